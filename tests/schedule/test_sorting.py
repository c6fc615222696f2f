"""Long sorts: a few passes over the keys, stable, and no work that grows with the square of their number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anneal.backend import get_device
from anneal.schedule import CostModel, clear_cache, graph, plan_for
from anneal.schedule.passes import early_helpers
from anneal.tensor import Tensor, Variable, set_default_device
from anneal.transforms import grad, jvp
from anneal.uop import Op, toposort

rng = np.random.default_rng(0)


@pytest.fixture
def by_digits(webgpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On webgpu more than 100 keys are sorted digit by digit."""
    device = get_device(webgpu)
    monkeypatch.setattr(device, "cost_model", replace(device.cost_model, sort_by_counting=100))
    set_default_device(webgpu)
    yield
    set_default_device(None)


@pytest.mark.parametrize(("n", "top"), [(101, 3), (128, 2**31), (700, 40), (5000, 2**31)])
def test_keys_in_order_equal_ones_as_they_were(by_digits: None, n: int, top: int) -> None:
    keys = rng.integers(-top, top, n).astype(np.int32)
    keys[:3] = [2**31 - 1, -(2**31), 2**31 - 1]  # beside what fills the last block
    np.testing.assert_array_equal(Tensor(keys).argsort().numpy(), np.argsort(keys, kind="stable"))


def test_floats_rows_and_the_gradient(by_digits: None) -> None:
    x = rng.normal(size=(3, 300)).astype(np.float32).round(1)
    x[0, :4] = [np.nan, np.inf, -0.0, 0.0]
    t = Tensor(x, requires_grad=True)
    values, places = t.sort(1)
    order = np.argsort(x, 1, kind="stable")
    np.testing.assert_array_equal(places.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.sort(x, 1))
    weight = rng.normal(size=x.shape).astype(np.float32)
    (values.nan_to_num() * Tensor(weight)).sum().backward()
    expected = np.zeros_like(x)
    np.put_along_axis(expected, order, weight, 1)
    assert t.grad is not None
    finite = np.isfinite(x)
    np.testing.assert_allclose(t.grad.numpy()[finite], expected[finite], rtol=1e-6)


def test_rows_looked_up_get_their_gradient_by_digits(by_digits: None) -> None:
    table = Tensor(rng.normal(size=(11, 4)).astype(np.float32), requires_grad=True)
    rows = rng.integers(0, 11, 333).astype(np.int32)
    weight = rng.normal(size=(333, 4)).astype(np.float32)
    (table[Tensor(rows)] * Tensor(weight)).sum().backward()
    expected = np.zeros((11, 4))
    np.add.at(expected, rows, weight)
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_million_keys_take_no_quadratic_work() -> None:
    keys = Tensor(np.zeros(1 << 20, np.int32))
    cost_model = CostModel(max_buffers=16, row_fusion=65536, parallel=512, concurrent=True, sort_by_counting=16384)
    plan = plan_for(graph([keys.argsort().uop]), cost_model)[0]
    assert len(plan.calls) < 100
    loops = [u for c in plan.calls for u in toposort((c.kernel.sink,)) if u.op is Op.RANGE and u.arg[1] == "reduce"]
    assert max(int(r.src[0].arg) for r in loops) <= 256
    assert all(u.arg == "permutation" for c in plan.calls for u in toposort((c.kernel.sink,)) if u.op is Op.ARGSORT)


def test_a_short_sort_stays_one_kernel() -> None:
    cost_model = CostModel(sort_by_counting=16384)
    assert len(plan_for(graph([Tensor(np.zeros(16384, np.int32)).argsort().uop]), cost_model)[0].calls) == 1


@pytest.mark.parametrize(("rows", "n"), [(11, 333), (70, 5), (5, 1), (3, 64)])
@pytest.mark.usefixtures("device")
def test_runs_found_by_halving(rows: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_helpers, "_MANY", 0)
    index, values = rng.integers(0, rows, n).astype(np.int32), rng.normal(size=(n, 4)).astype(np.float32)
    expected = np.zeros((rows, 4))
    np.add.at(expected, index, values)
    got = Tensor.zeros(rows, 4).index_add(0, Tensor(index), Tensor(values + 0.0))
    clear_cache()  # the plan of the same sum found otherwise is kept by the graph of the sum
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)
    clear_cache()


@pytest.mark.usefixtures("device")
def test_rows_of_symbolic_length() -> None:
    x = rng.integers(0, 1000, 700).astype(np.int32)
    row, n = Tensor(x).realize(), Variable("sorted", 1, 700)
    table = Tensor(rng.normal(size=(11, 4)).astype(np.float32), requires_grad=True)
    for k in (3, 300, 700):
        part = row[: n.bind(k)]
        np.testing.assert_array_equal(part.argsort().numpy(), np.argsort(x[:k], kind="stable"))
        np.testing.assert_array_equal(part.searchsorted(Tensor([500])).numpy(), [(x[:k] < 500).sum()])
        table.zero_grad()
        table[part % 11].sum().backward()
        assert table.grad is not None
        np.testing.assert_allclose(table.grad.numpy()[:, 0], np.bincount(x[:k] % 11, minlength=11))


def test_what_runs_along_an_axis_is_a_kernel_where_the_device_has_such() -> None:
    running = [Tensor(np.zeros((4, 100), np.float32)).cumsum(1).uop]

    def kernels(serial: bool) -> list[bool]:
        sinks = [c.kernel.sink for c in plan_for(graph(running), CostModel(serial=serial))[0].calls]
        return [any(u.op is Op.SCAN for u in toposort((s,))) for s in sinks]

    assert kernels(True) == [True]
    assert len(kernels(False)) > 1
    assert not any(kernels(False))


def test_derivatives_of_running_sums_are_running_sums(device: str) -> None:
    """In blocks, as a GPU has them, their gradient took 32 times the work on the cpu."""
    x, v = np.random.default_rng(0).normal(size=(2, 3, 70, 2)).astype(np.float32)

    def cubed(t: Tensor) -> Tensor:
        return (t.cumsum(1) ** 3).sum()

    found, tangent = jvp(grad(cubed), (Tensor(x, device=device),), (Tensor(v, device=device),))
    after = lambda t: t[:, ::-1].cumsum(1)[:, ::-1]
    sums, along = (t.astype(np.float64).cumsum(1) for t in (x, v))
    np.testing.assert_allclose(found.numpy(), after(3 * sums**2), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(tangent.numpy(), after(6 * sums * along), rtol=1e-4, atol=1e-2)
    w = Tensor(x, requires_grad=True)
    cubed(w).backward()
    assert w.grad is not None
    sinks = [c.kernel.sink for c in plan_for(graph([w.grad.uop]), CostModel(serial=True))[0].calls]
    assert sum(u.op is Op.SCAN for s in sinks for u in toposort((s,))) == 2
    assert not any(u.op is Op.REDUCE for s in sinks for u in toposort((s,)))


def test_derivatives_of_running_products_are_those_of_each_factor(device: str) -> None:
    """In blocks, as a GPU has them, their gradient took 35 times as long as torch's on the cpu; by division it would be
    nan or wrong where several factors are zero.
    """
    rng = np.random.default_rng(0)
    x, g, v = rng.uniform(-1.5, 1.5, (3, 2, 41, 2)).astype(np.float32)
    x[0, [3, 17, 18], 0] = x[1, 0, 1] = x[1, [5, 40], 0] = 0

    def weighed(t: Tensor) -> Tensor:
        return (t.cumprod(1) * Tensor(g, device=device)).sum()

    def partial(*without: int) -> NDArray[Any]:
        """The derivative of the weighed sum by the factors at those places."""
        rest = x.astype(np.float64)
        rest[:, list(without)] = 1
        return (g * rest.cumprod(1))[:, max(without) :].sum(1)

    places = range(x.shape[1])
    slopes = np.stack([partial(i) for i in places], 1)
    second = np.stack([sum(v[:, j] * partial(i, j) for j in places if j != i) for i in places], 1)
    found, tangent = jvp(grad(weighed), (Tensor(x, device=device),), (Tensor(v, device=device),))
    np.testing.assert_allclose(found.numpy(), slopes, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tangent.numpy(), second, rtol=1e-4, atol=1e-3)
    backwards = grad(lambda t: (grad(weighed)(t) * Tensor(v, device=device)).sum())(Tensor(x, device=device))
    np.testing.assert_allclose(backwards.numpy(), second, rtol=1e-4, atol=1e-3)
    _, along = jvp(weighed, (Tensor(x, device=device),), (Tensor(v, device=device),))
    np.testing.assert_allclose(along.numpy(), (v * slopes).sum(), rtol=1e-4, atol=1e-3)


def test_rows_are_sorted_by_a_kernel_where_the_device_has_such() -> None:
    order = [Tensor(np.zeros((4, 100), np.float32)).topk(3).indices.uop]

    def sorts(serial: bool) -> list[object]:
        calls = plan_for(graph(order), CostModel(serial=serial))[0].calls
        return [u.arg for c in calls for u in toposort((c.kernel.sink,)) if u.op is Op.ARGSORT]

    assert sorts(True) == [(100, 3)]
    assert sorts(False) == [], "short rows are counted"


def test_the_first_of_a_single_row_is_looked_for() -> None:
    x = np.array([[3, 1, 9, 4]], np.int32)
    assert Tensor(x).topk(1).indices.tolist() == [[2]]
    assert Tensor(x).topk(1, dim=0).indices.tolist() == [[0, 0, 0, 0]]
    assert Tensor(x[:, :1]).topk(1).indices.tolist() == [[0]]
