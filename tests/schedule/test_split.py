"""Long reductions in two stages: the same numbers, more workgroups."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from anneal.backend import get_device
from anneal.runtime import execution
from anneal.schedule import CostModel, graph, plan_for
from anneal.tensor import Tensor
from anneal.uop import Op, UOp, toposort

from .build import buffer, matmul, permute, reduce, reshape
from .test_fusion import adam

COST_MODEL = CostModel(max_buffers=16, row_fusion=8192, parallel=512)


def stages(*outputs: object) -> int:
    return len(plan_for(graph(outputs), COST_MODEL)[0].calls)  # type: ignore[arg-type]


def test_a_weight_gradient_is_summed_in_two_stages_and_updated_in_the_second() -> None:
    g = matmul(permute(buffer(4096, 32), 1, 0), buffer(4096, 16))
    plan, _, _ = plan_for(graph(adam(g)), COST_MODEL)
    assert [c.outputs for c in plan.calls] == [1, 3]
    first = plan.calls[0].kernel.sink
    assert first.src[0].src[0].arg[1] == (32 * 32 * 16,)


def test_what_fills_the_device_or_is_short_stays_whole() -> None:
    assert stages(matmul(buffer(2048, 1024), buffer(1024, 2048))) == 1
    assert stages(matmul(buffer(64, 512), buffer(512, 64))) == 1
    assert stages(reduce(buffer(512, 64), Op.ADD, 0)) == 1
    assert stages(reduce(buffer(4096, 1024), Op.ADD, 1)) == 1


def test_a_cost_model_without_parallel_never_splits() -> None:
    plan, _, _ = plan_for(graph([reduce(buffer(1 << 20), Op.ADD, 0)]), replace(COST_MODEL, parallel=0))
    assert len(plan.calls) == 1


@pytest.mark.parametrize("shape", [(1 << 18,), (3, 1 << 16), (64, 1024, 3)])
def test_a_whole_sum_is_two_kernels(shape: tuple[int, ...]) -> None:
    axes = tuple(range(len(shape)))
    assert stages(reshape(reduce(buffer(*shape), Op.ADD, *axes), *[1] * len(shape))) == 2


def test_a_length_without_divisors_stays_whole() -> None:
    assert stages(reduce(buffer(131_071), Op.ADD, 0)) == 1


def norm(sizes: list[tuple[int, ...]]) -> UOp:
    total = None
    for shape in sizes:
        x = buffer(*shape)
        part = reshape(reduce(x * x, Op.ADD, *range(len(shape))))
        total = part if total is None else total + part
    assert total is not None
    return Op.SQRT(total)


def test_the_norm_of_many_arrays_takes_no_kernel_for_each() -> None:
    sizes = [(128,), (65, 128), (512, 128), (384,), (7,)] * 2
    assert stages(norm(sizes)) == 2
    many = plan_for(graph([norm(sizes * 3)]), COST_MODEL)[0]
    assert len(many.calls) == 4  # 14 arrays a kernel
    assert all(len(c.args) <= COST_MODEL.max_buffers for c in many.calls)
    assert stages(norm(sizes[:2])) == 2


def test_a_sum_that_occurs_twice_counts_twice(device: str) -> None:
    x = [numbers(n, 40) for n in (3, 5, 32)]
    with mock.patch.object(get_device(device), "cost_model", COST_MODEL):
        t = [Tensor(a) for a in x]
        s = [a.sum() for a in t]
        pair = s[0] + s[1]
        total = pair + s[2] + pair + s[2] * 2 + s[0] + 1
        both = total * pair
        want = [float(a.sum(dtype=np.float64)) for a in x]
        expected = 3 * want[0] + 2 * want[1] + 3 * want[2] + 1
        np.testing.assert_allclose(total.item(), expected, rtol=1e-5)
        np.testing.assert_allclose(both.item(), expected * (want[0] + want[1]), rtol=1e-5)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_the_values_are_the_same(device: str) -> None:
    with mock.patch.object(get_device(device), "cost_model", COST_MODEL):
        check_values()


def check_values() -> None:
    a, b = numbers(48, 8, 256), numbers(48, 3, 256)
    x, y = Tensor(a), Tensor(b)
    # a product over two axes, a sum over columns with an epilogue, a maximum of everything
    product = (x.permute(1, 0, 2).reshape(8, -1) @ y.permute(0, 2, 1).reshape(-1, 3)).tanh() * 2
    columns = Tensor(numbers(6144, 5))
    np.testing.assert_allclose(
        product.numpy(), np.tanh(np.einsum("imk,ink->mn", a, b, dtype=np.float64)) * 2, rtol=2e-5, atol=2e-5
    )
    mean = columns.mean(0)
    np.testing.assert_allclose(mean.numpy(), numbers(6144, 5).mean(0, dtype=np.float64), rtol=1e-4, atol=1e-6)
    everything = Tensor(numbers(300, 1000))
    assert everything.max().item() == numbers(300, 1000).max()


@pytest.mark.parametrize(
    ("m", "n", "k", "pieces"),
    [
        (1024, 1024, 1024, 1),
        (512, 512, 1024, 8),
        (1024, 1024, 8192, 8),
        (768, 3072, 8192, 4),
        (2048, 3072, 8192, 2),
        (2048, 4096, 8192, 1),
        (768, 3072, 2048, 1),
    ],
)
def test_a_product_is_cut_where_the_pieces_pay_for_their_sum(m: int, n: int, k: int, pieces: int) -> None:
    plan, _, _ = plan_for(graph([matmul(buffer(m, k), buffer(k, n))]), COST_MODEL)
    assert plan.calls[0].kernel.sink.src[0].src[0].arg[1] == (pieces * m * n,)


def test_long_segments_are_cut(device: str) -> None:
    r = np.random.default_rng(5)
    index = r.choice(9, 2000, p=[0.6, 0.2, 0.05, 0, 0.05, 0.04, 0.03, 0.02, 0.01]).astype(np.int32)
    cotangent = numbers(2000, 3)
    with mock.patch.object(get_device(device), "cost_model", COST_MODEL):
        table = Tensor(np.zeros((9, 3), np.float32), requires_grad=True)
        (table[Tensor(index)] * Tensor(cotangent)).sum().backward()
        assert table.grad is not None
        lengths = [
            r.src[0]
            for c in execution.plan_of([table.grad]).calls
            for r in toposort((c.kernel.sink,))
            if r.op is Op.RANGE and not r.src[0].is_const
        ]
        got = table.grad.numpy()
    assert len(lengths) == 1
    want = np.zeros((9, 3))
    np.add.at(want, index, cotangent)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_segments_of_a_large_table_stay_whole() -> None:
    table = Tensor(np.zeros((5000, 128), np.float32), requires_grad=True)
    (table[Tensor(np.zeros(2000, np.int32))] * Tensor(numbers(2000, 128))).sum().backward()
    assert table.grad is not None
    plan = execution.plan_of([table.grad])
    assert max(size for size, _ in plan.temporaries) < 5000 * 128 * 4
