"""Horizontally fused kernels: pieces of a concatenation, and small kernels that share a launch."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from anneal.backend import get_device
from anneal.codegen import generate
from anneal.runtime import execution
from anneal.schedule import CostModel, Plan, graph, members_of, plan_for, standalone
from anneal.tensor import Tensor
from anneal.uop import Op, UOp, toposort

from .build import F32, buffer, expand, matmul, permute, reshape

COST_MODEL = CostModel(max_buffers=16, row_fusion=8192)


def pad(x: UOp, *pairs: tuple[int, int]) -> UOp:
    return UOp(Op.PAD, F32, (x,), pairs)


def cat(*parts: UOp) -> UOp:
    """Along the first axis."""
    total = sum(p.shape[0] for p in parts)
    out, at = None, 0
    for p in parts:
        piece = pad(p, (at, total - at - p.shape[0]), *[(0, 0)] * (len(p.shape) - 1))
        out = piece if out is None else out + piece
        at += p.shape[0]
    assert out is not None
    return out


def plan(*outputs: UOp, cost_model: CostModel = COST_MODEL) -> Plan:
    return plan_for(graph(outputs), cost_model)[0]


def test_a_concatenation_is_stored_piece_by_piece() -> None:
    p = plan(cat(buffer(3, 4), buffer(5, 4) * 2.0, buffer(1, 4)))
    assert len(p.calls) == 1
    sink = p.calls[0].kernel.sink
    assert len(members_of(sink)) == 3
    assert {s.src[0].arg for s in sink.src} == {(0, (36,))}
    assert "select" not in generate(sink).source


@pytest.mark.parametrize("pads", [((0, 4), (4, 0)), ((0, 2), (2, 0))], ids=["gap", "overlap"])
def test_what_leaves_a_gap_or_overlaps_is_no_concatenation(pads: tuple[tuple[int, int], tuple[int, int]]) -> None:
    total = pad(buffer(3, 4), pads[0], (0, 0)) + pad(buffer(3, 4), pads[1], (0, 0))
    assert len(members_of(plan(total).calls[0].kernel.sink)) == 1


def test_products_store_into_the_concatenation_that_is_made_of_them() -> None:
    x = buffer(64, 32)
    heads = [reshape(matmul(x, buffer(32, 16)), 1, 64, 16) for _ in range(3)]
    packed = reshape(permute(cat(*heads), 1, 0, 2), 64, 48)
    p = plan(matmul(packed, buffer(48, 8)))
    assert len(p.calls) == 2
    first = p.calls[0].kernel.sink
    assert len(members_of(first)) == 3
    source = generate(first).source
    assert source.count("@workgroup_size") == 1


def test_a_piece_that_is_wanted_elsewhere_is_stored_there_too() -> None:
    y = matmul(buffer(8, 4), buffer(4, 4))
    p = plan(cat(y, buffer(2, 4)), y)
    assert [c.outputs for c in p.calls] == [1, 1]


def test_small_kernels_of_one_level_share_a_launch() -> None:
    outputs = [buffer(n) * 2.0 for n in (3, 70, 1, 5000)]
    p = plan(*outputs)
    assert len(p.calls) == 1
    assert p.calls[0].outputs == 4
    assert len(plan(*outputs, cost_model=replace(COST_MODEL, max_buffers=4)).calls) == 2


def test_updates_behind_one_number_share_a_launch() -> None:
    grads = [buffer(n, 8) for n in (4, 6, 16)]
    scale = buffer(1)
    norm = Op.SQRT(scale * 3.0)
    new = [buffer(*g.shape) - g * expand(reshape(norm, 1, 1), *g.shape) for g in grads]
    assert len(plan(*new).calls) <= 2


def test_a_part_alone_numbers_its_memory_from_the_outputs() -> None:
    sink = plan(*[buffer(n) * 2.0 for n in (3, 70)]).calls[0].kernel.sink
    part, slots = standalone(members_of(sink)[1])
    assert slots == [1, 3]
    assert part.src[0].src[0].arg == (0, (70,))


def test_equal_parts_alone_are_one_kernel() -> None:
    a, b, c = buffer(8, 4), buffer(8, 4), buffer(4)
    shared = buffer(1)
    new = [x * expand(reshape(shared, *[1] * len(x.shape)), *x.shape) for x in (a, c, b)]
    first, other, second = members_of(plan(*new).calls[0].kernel.sink)
    assert standalone(first)[0] is standalone(second)[0]
    assert standalone(first)[0] is not standalone(other)[0]
    assert standalone(first)[1] != standalone(second)[1]


def test_parts_that_differ_in_threads_and_tiles_make_one_module() -> None:
    outputs = matmul(buffer(256, 256), buffer(256, 256)), matmul(buffer(64, 512), buffer(512, 32)), buffer(5) * 2.0
    stores = []
    for n, u in enumerate(outputs):
        sink = plan(u).calls[0].kernel.sink
        stores += [_moved(s, 10 * n, 16 * n) for s in sink.src]
    joint = UOp(Op.SINK, F32, tuple(stores))
    made = generate(joint)
    assert made.source.count("if ((at >= ") == 3
    assert [p.slot for p in made.params] == [0, 1, 2, 10, 11, 12, 20, 21]
    assert made.launch.threads == max(generate(p).launch.threads for p in members_of(joint))


def _moved(store: UOp, slots: int, ranges: int) -> UOp:
    """The store with its slots and ranges renumbered."""
    new: dict[UOp, UOp] = {}
    for u in toposort((store,)):
        src = tuple([new[s] for s in u.src])
        if u.op is Op.PARAM:
            new[u] = UOp(Op.PARAM, u.dtype, (), (u.arg[0] + slots, u.arg[1]))
        elif u.op is Op.RANGE:
            new[u] = UOp(Op.RANGE, u.dtype, src, (u.arg[0] + ranges, u.arg[1]))
        else:
            new[u] = u.replace(src=src) if src else u
    return new[store]


@pytest.mark.parametrize("width", [4, 5])
def test_the_values_are_the_same(device: str, width: int) -> None:
    r = np.random.default_rng(width)
    x = r.standard_normal((33, width)).astype(np.float32)
    w = [r.standard_normal((width, width)).astype(np.float32) for _ in range(3)]
    with mock.patch.object(get_device(device), "cost_model", COST_MODEL):
        t = Tensor(x)
        got = Tensor.cat([t @ Tensor(m) for m in w], dim=1)
        np.testing.assert_allclose(got.numpy(), np.concatenate([x @ m for m in w], 1), rtol=1e-5, atol=1e-5)
        stacked = Tensor.stack([t * 2, t.exp(), t]).permute(1, 2, 0)
        want = np.stack([x * 2, np.exp(x), x]).transpose(1, 2, 0)
        np.testing.assert_allclose(stacked.numpy(), want, rtol=1e-5)
        uneven = Tensor.cat([t[:7], t.sum(0, keepdim=True), t[7:]])
        np.testing.assert_allclose(
            uneven.numpy(), np.concatenate([x[:7], x.sum(0, keepdims=True), x[7:]]), rtol=1e-5, atol=1e-5
        )


def test_what_joins_one_of_the_first_parts_keeps_its_place() -> None:
    """Two sums over columns of one array, and one of another that stands between them."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 8)).astype(np.float32) for _ in range(2))
    x, y = Tensor(a), Tensor(b)
    sums = [x.sum(0), y.sum(0), (x * x).sum(0)]
    calls = execution.plan_of(sums).calls
    assert [c.outputs for c in calls] == [3]
    assert len(members_of(calls[0].kernel.sink)) == 2
    for got, want in zip(execution.values(sums), (a.sum(0), b.sum(0), (a * a).sum(0)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_parts_that_are_written_into_memory_share_a_launch() -> None:
    """The rows of a loop, each in memory of its own."""

    def row(n: int) -> UOp:
        return UOp(Op.UPDATE, F32, (buffer(6, n), buffer(1, n) * 2.0), (2, 0))

    p = plan(row(4), row(8))
    assert [c.outputs for c in p.calls] == [
        1,
        1,
        2,
    ]  # the copies of the memory before, which a loop leaves out, and both rows
