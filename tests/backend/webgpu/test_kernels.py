"""Whole kernels on the device: reduces alone and shared, products of matrices, gathers, gates, several stores."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import Opt
from anneal.uop import DType, Op, UOp
from tests.backend.webgpu.run import Array, run
from tests.codegen import kernels as K

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


REDUCES: dict[Op, Any] = {Op.ADD: np.sum, Op.MUL: np.prod, Op.MAX: np.max, Op.MIN: np.min}
# Few outputs and many, extents that no amount divides, one element.
ROWS = [(1, 1), (3, 7), (5, 100), (1, 1000), (70, 33), (2, 4096)]


@pytest.mark.parametrize("op", REDUCES, ids=lambda o: o.name)
def test_float_reduces_along_rows_and_columns(device: WebGpuDevice, op: Op) -> None:
    for rows, columns in ROWS:
        x = (1 + 0.01 * normal(rows, columns)).astype(np.float32)
        for axis, build in ((1, K.row_reduce), (0, K.column_reduce)):
            out = run(device, build(op, rows, columns), {1: x})[0]
            np.testing.assert_allclose(out, REDUCES[op](x.astype(np.float64), axis=axis), rtol=2e-5)


@pytest.mark.parametrize("dtype", [K.I32, K.U32, K.BOOL, K.F16], ids=lambda d: d.name)
def test_reduces_of_other_dtypes(device: WebGpuDevice, dtype: DType) -> None:
    if dtype not in device.limits.dtypes:
        pytest.skip("no shader-f16")
    rows, columns = 3, 100
    if dtype is K.BOOL:
        x = RNG.random((rows, columns)) < [[0.0], [0.5], [1.0]]
    elif dtype is K.F16:
        x = normal(rows, columns).astype(np.float16)
    else:
        x = RNG.integers(0 if dtype is K.U32 else -50, 50, (rows, columns)).astype(dtype.name)
    for op in REDUCES:
        if op is Op.MUL and dtype is K.F16:
            continue
        want = REDUCES[op](x.astype(np.float32) if dtype is K.F16 else x, axis=1)
        if dtype is K.BOOL:
            want = {Op.ADD: np.any, Op.MAX: np.any}.get(op, np.all)(x, axis=1)
        got = run(device, K.row_reduce(op, rows, columns, dtype), {1: x})[0]
        np.testing.assert_allclose(got.astype(np.float64), want.astype(x.dtype).astype(np.float64), rtol=1e-3)


@pytest.mark.parametrize("group", [1, 2, 8, 64])
def test_shared_reduces_of_every_amount(device: WebGpuDevice, group: int) -> None:
    x = normal(6, 37)
    opts = [Opt("GROUP", 1, group), Opt("LOCAL", 0, 4)] if group > 1 else [Opt("LOCAL", 0, 4)]
    for order in (opts, opts[::-1]):
        for op, f in REDUCES.items():
            out = run(device, K.row_reduce(op, 6, 37), {1: x}, order)[0]
            np.testing.assert_allclose(out, f(x.astype(np.float64), axis=1), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("local", [1, 2, 3])
def test_shared_reduces_with_and_without_subgroups(device: WebGpuDevice, local: int) -> None:
    x = normal(6, 700)
    for subgroup in {0, device.target.subgroup}:
        target = replace(device.target, subgroup=subgroup)
        for group in (2, 16, 128):
            if group * local > target.max_threads:
                continue
            opts = [Opt("GROUP", 1, group), Opt("LOCAL", 0, local)]
            for order in (opts, opts[::-1]):
                out = run(device, K.row_reduce(Op.ADD, 6, 700), {1: x}, order, target)[0]
                np.testing.assert_allclose(out, x.astype(np.float64).sum(axis=1), rtol=2e-5, atol=1e-5)


def test_maximum_keeps_nan_however_it_is_shared(device: WebGpuDevice) -> None:
    x = normal(4, 50)
    x[1, 3] = np.nan
    x[2, 49] = np.nan
    x[3] = -np.inf
    for opts in ([Opt("FLAT", 0, 64)], [Opt("GROUP", 1, 16)], [Opt("GROUP", 1, 64)]):
        np.testing.assert_array_equal(run(device, K.row_reduce(Op.MAX, 4, 50), {1: x}, opts)[0], x.max(1))


def test_a_reduce_that_needs_another(device: WebGpuDevice) -> None:
    for rows, columns in ((1, 5), (7, 65), (40, 200)):
        x = normal(rows, columns)
        top = x.max(1)
        want = top + np.log(np.exp(x - top[:, None]).sum(1))
        np.testing.assert_allclose(run(device, K.logsumexp(rows, columns), {1: x})[0], want, rtol=1e-5)


def test_matrix_products(device: WebGpuDevice) -> None:
    for m, n, k, batch in (
        (1, 1, 1, 1),
        (8, 8, 8, 1),
        (33, 65, 17, 1),
        (64, 64, 32, 1),
        (16, 24, 128, 3),
        (9, 70, 200, 2),
    ):
        a, b = normal(batch, m, k) * 0.2, normal(batch, k, n) * 0.2
        out = run(device, K.matmul(m, n, k, batch), {1: a, 2: b})[0]
        np.testing.assert_allclose(out.reshape(batch, m, n), np.tanh(a.astype(np.float64) @ b), atol=2e-6)


def test_every_opt_alone_and_with_others_keeps_the_values(device: WebGpuDevice) -> None:
    m, n, k = 9, 14, 21
    a, b = normal(m, k) * 0.2, normal(k, n) * 0.2
    want = np.tanh(a.astype(np.float64) @ b)
    pieces = [
        Opt("LOCAL", 0, 4), Opt("LOCAL", 1, 8), Opt("UPCAST", 0, 2), Opt("UPCAST", 1, 3), Opt("GROUP", 2, 4),
        Opt("UNROLL", 2, 5),
    ]  # fmt: skip
    chosen = [list(c) for size in (0, 1, 6) for c in itertools.combinations(pieces, size)]
    chosen += [
        [Opt("FLAT", 0, 16)],
        [Opt("FLAT", 0, 16), Opt("GROUP", 2, 8)],
        [Opt("UPCAST", 1, 4), Opt("FLAT", 0, 16)],
        pieces[::-1],
    ]
    chosen += [[Opt("UPCAST", 1, 4), Opt("LOCAL", 1, 4)], [Opt("UNROLL", 2, 21), Opt("LOCAL", 0, 3)]]
    for opts in chosen:
        out = run(device, K.matmul(m, n, k), {1: a, 2: b}, opts)[0]
        np.testing.assert_allclose(out.reshape(m, n), want, atol=2e-6, err_msg=str(opts))


def test_several_stores_to_buffers_that_are_also_read(device: WebGpuDevice) -> None:
    n = 1000
    p, m, v, g = normal(n), normal(n), np.abs(normal(n)), normal(n)
    out = run(device, K.adam(n), {0: p, 1: m, 2: v, 3: g})
    m1, v1 = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
    np.testing.assert_allclose(out[1], m1, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(out[2], v1, rtol=1e-5)
    np.testing.assert_allclose(out[0], p - m1 * 0.001 / (np.sqrt(v1) + 1e-8), rtol=1e-5, atol=1e-6)


def test_two_reduces_over_one_range_stored_apart(device: WebGpuDevice) -> None:
    rows, columns = 50, 13
    j, k = K.loop(columns, 0), K.over(rows, 1)
    x, g = (K.load(K.param(s, rows * columns), k * columns + j) for s in (2, 3))
    graph = K.sink(
        K.store(K.param(0, columns), j, K.reduce(Op.ADD, x * g, k)),
        K.store(K.param(1, columns), j, K.reduce(Op.ADD, g, k)),
    )
    a, b = normal(rows, columns), normal(rows, columns)
    out = run(device, graph, {2: a, 3: b})
    np.testing.assert_allclose(out[0], (a * b).sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[1], b.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [K.F32, K.I32, K.BOOL], ids=lambda d: d.name)
def test_transposes_by_blocks_of_registers(device: WebGpuDevice, dtype: DType) -> None:
    for rows, columns in ((8, 12), (16, 64), (7, 20), (20, 7), (33, 65)):
        x = (normal(columns, rows) * 10).astype(bool if dtype is K.BOOL else dtype.name)
        if dtype is K.BOOL:
            x = normal(columns, rows) > 0
        i, j = K.loop(rows, 0), K.loop(columns, 1)
        value = K.load(K.param(1, rows * columns, dtype), j * rows + i)
        graph = K.sink(K.store(K.param(0, rows * columns, dtype), i * columns + j, value))
        for opts in (
            [Opt("VECTORIZE", 1, 4), Opt("UPCAST", 0, 4), Opt("LOCAL", 1, 2), Opt("LOCAL", 0, 2)],
            [Opt("VECTORIZE", 1, 4), Opt("UPCAST", 0, 4)],
            [Opt("VECTORIZE", 1, 2), Opt("UPCAST", 0, 4), Opt("LOCAL", 1, 2)],
            [Opt("UPCAST", 0, 4), Opt("LOCAL", 1, 8)],
        ):
            out = run(device, graph, {1: x}, opts)[0]
            np.testing.assert_array_equal(out.reshape(rows, columns), x.T, err_msg=str(opts))


def test_gather_reads_zero_out_of_range(device: WebGpuDevice) -> None:
    table = normal(10, 6)
    index = np.array([3, 9, 0, -1, 10, 2**31 - 1, -(2**31), 5], np.int32)
    want = np.where(((index >= 0) & (index < 10))[:, None], table[np.clip(index, 0, 9)], 0)
    np.testing.assert_array_equal(run(device, K.embedding(8, 6, 10), {1: table, 2: index})[0].reshape(8, 6), want)


def test_gated_loads_pad_with_zero(device: WebGpuDevice) -> None:
    x, w = normal(37), normal(5)
    np.testing.assert_allclose(
        run(device, K.padded_conv(37, 5), {1: x, 2: w})[0], np.convolve(x, w[::-1], "same"), atol=1e-5
    )


def test_gated_stores_leave_memory_alone(device: WebGpuDevice) -> None:
    n = 100
    i = K.loop(n, 0)
    x = K.load(K.param(1, n), i)
    before, data = normal(n), normal(n)
    graph = K.sink(K.store(K.param(0, n), i, x * 2, (i % 3).eq(0) & (x > 0)))
    want = np.where((np.arange(n) % 3 == 0) & (data > 0), data * 2, before)
    np.testing.assert_array_equal(run(device, graph, {0: before, 1: data})[0], want)


def test_segment_sum_over_ranges_that_depend_on_data(device: WebGpuDevice) -> None:
    segments, width, n = 6, 5, 20
    keys = np.sort(RNG.integers(0, segments, n))
    keys[keys == 2] = 3  # an empty segment
    starts = np.searchsorted(keys, np.arange(segments + 1)).astype(np.int32)
    order = RNG.permutation(n).astype(np.int32)
    value = normal(n, width)
    want = np.zeros((segments, width))
    for v in range(segments):
        want[v] = value[order[starts[v] : starts[v + 1]]].sum(0)
    for opts in (None, [Opt("UPCAST", 0, 2)], [Opt("UPCAST", 0, 3), Opt("UPCAST", 1, 5)]):
        out = run(device, K.segment_sum(segments, width, n), {1: value, 2: order, 3: starts}, opts)[0]
        np.testing.assert_allclose(out.reshape(segments, width), want, atol=1e-5)


@pytest.mark.parametrize("n", [1, 5, 300, 4500])
def test_argsort_is_stable(device: WebGpuDevice, n: int) -> None:
    keys = RNG.integers(-4, 4, n).astype(np.int32)
    out = run(device, K.argsort(n), {1: keys})[0]
    assert out.tolist() == np.argsort(keys, kind="stable").tolist()


def test_movement_and_a_whole_reduce(device: WebGpuDevice) -> None:
    x = normal(33, 20)
    np.testing.assert_array_equal(run(device, K.transpose(20, 33), {1: x})[0].reshape(20, 33), x.T)
    np.testing.assert_allclose(run(device, K.row_reduce(Op.ADD, 1, 65536), {1: np.ones(65536)})[0], [65536])


def test_a_launch_of_more_than_65535_workgroups(device: WebGpuDevice) -> None:
    n = 70_001
    i = K.loop(n, 0)
    graph = K.sink(K.store(K.param(0, n, K.I32), i, i * 3))
    out = run(device, graph, {}, [Opt("FLAT", 0, 1)])[0]
    np.testing.assert_array_equal(out, np.arange(n) * 3)
    # The spare workgroups of the fold stand before the barriers of a shared reduce, too.
    k = K.over(2, 1)
    both = K.sink(K.store(K.param(0, n, K.I32), i, K.reduce(Op.ADD, i + k, k)))
    np.testing.assert_array_equal(run(device, both, {}, [Opt("GROUP", 1, 2)])[0], np.arange(n) * 2 + 1)


def test_reduces_nested_in_a_reduce(device: WebGpuDevice) -> None:
    # sum over j of (sum over k of x[i, j, k]) ** 2
    i, j, k = K.loop(3, 0), K.over(4, 1), K.over(5, 2)
    inner = K.reduce(Op.ADD, K.load(K.param(1, 60), i * 20 + j * 5 + k), k)
    x = normal(3, 4, 5)
    out = run(device, K.sink(K.store(K.param(0, 3), i, K.reduce(Op.ADD, inner * inner, j))), {1: x})[0]
    np.testing.assert_allclose(out, (x.sum(2) ** 2).sum(1), rtol=1e-5)


def test_two_reduces_in_turn_over_the_same_range(device: WebGpuDevice) -> None:
    # A variance whose mean was taken over the very same RANGE.
    i, k = K.loop(6, 0), K.over(50, 1)
    x = K.load(K.param(1, 300), i * 50 + k)
    d = x - K.reduce(Op.ADD, x, k) * (1 / 50)
    data = normal(6, 50)
    out = run(device, K.sink(K.store(K.param(0, 6), i, K.reduce(Op.ADD, d * d, k) * (1 / 50))), {1: data})[0]
    np.testing.assert_allclose(out, data.var(1), rtol=1e-4)


def test_reduces_over_several_ranges_shared_as_one(device: WebGpuDevice) -> None:
    # sum over a, b of x[i, a, b] * w[a]: the ranges cannot merge of themselves.
    i, a, b = K.loop(3, 0), K.over(7, 1), K.over(9, 2)
    value = K.load(K.param(1, 189), i * 63 + a * 9 + b) * K.load(K.param(2, 7), a)
    graph = K.sink(K.store(K.param(0, 3), i, K.reduce(Op.ADD, value, a, b)))
    x, w = normal(3, 7, 9), normal(7)
    for opts in (None, [Opt("MERGE", 1, 1), Opt("GROUP", 1, 16)], [Opt("MERGE", 1, 1)], [Opt("GROUP", 1, 4)]):
        out = run(device, graph, {1: x, 2: w}, opts)[0]
        np.testing.assert_allclose(out, np.einsum("iab,a->i", x, w), rtol=1e-4, atol=1e-5)


def test_long_chains_need_no_recursion(device: WebGpuDevice) -> None:
    i = K.loop(4, 0)
    value: UOp = K.load(K.param(1, 4), i)
    for step in range(3000):
        value = value + (1.0 if step % 2 else 2.0) * 0.001
    x = normal(4)
    np.testing.assert_allclose(run(device, K.sink(K.store(K.param(0, 4), i, value)), {1: x})[0], x + 4.5, rtol=1e-3)
