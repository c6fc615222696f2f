"""Tensors that are not computed yet, read at several places and written in parts, turn after turn: the work of n turns
is n times that of one, and the values are NumPy's.

A program takes the library (`anneal`, or NumPy), an array and the number of turns; it changes arrays that it made
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal
from anneal.backend import planned_cost_model
from anneal.schedule import clear_cache, graph, plan_for
from anneal.schedule.passes.range_propagation import indexed
from anneal.tensor import Tensor, jit
from anneal.uop import toposort
from tests.helpers import close
from tests.schedule.test_growth import calls
from tests.tiers import thinned

Program = Callable[[Any, Any, int], Any]
SIZE = 12


def wave(lib: Any, u: Any, n: int) -> Any:
    for _ in range(n):
        acc = lib.zeros_like(u)
        acc[1:-1] = u[2:] - 2 * u[1:-1] + u[:-2]
        u = u + 0.1 * acc
    return u


def two_fields(lib: Any, x: Any, n: int) -> Any:
    u, v = x, 1 - x
    for _ in range(n):
        flow = u * v * v
        u, v = u + 0.1 * (lib.roll(u, 1, 0) - u) - flow, v + 0.05 * (lib.roll(v, -1, 0) - v) + flow - 0.1 * v
    return u - v


def heat(lib: Any, x: Any, n: int) -> Any:
    u = x + 0
    for _ in range(n):
        u[1:-1, 1:-1] += 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
        u[0, :] = u[1, :]
        u[-1] = u[-2]
        u[:, 0] = u[:, 1]
    return u


def red_black(lib: Any, x: Any, n: int) -> Any:
    u = x + 0
    for _ in range(n):
        u[1:-1:2] = (u[:-2:2] + u[2::2]) / 2
        u[2:-1:2] = (u[1:-2:2] + u[3::2]) / 2
    return u


def life(lib: Any, x: Any, n: int) -> Any:
    u = lib.where(x > 0.5, 1.0, 0.0)
    for _ in range(n):
        around = [lib.roll(lib.roll(u, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        k = sum(around[1:], around[0])
        u = lib.where((k == 3) | ((k == 2) & (u == 1)), 1.0, 0.0)
    return u


def edges(lib: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        g = lib.zeros_like(x)
        g[1:-1, 1:-1] = abs(x[2:, 1:-1] - x[:-2, 1:-1]) + abs(x[1:-1, 2:] - x[1:-1, :-2])
        x = x - 0.1 * g
    return x


def rows(lib: Any, x: Any, n: int) -> Any:
    table = lib.zeros((n + 1, SIZE))
    for i in range(n):
        table[i + 1] = (x + 0.9 * table[i]).max(1)[0] if lib is anneal else (x + 0.9 * table[i]).max(1)
    return table


def entries(lib: Any, x: Any, n: int) -> Any:
    d = lib.zeros((n + 1,))
    for i in range(1, n + 1):
        d[i] = d[i - 1] * 0.5 + x[i % SIZE]
    return d


def differences(lib: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = lib.concatenate([x[1:] - x[:-1], x[:1]]) * 0.6
    return x


def halves(lib: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = lib.concatenate([x[SIZE // 2 :] * 0.5, x[: SIZE // 2] + 1])
    return x


def two_ways(lib: Any, x: Any, n: int) -> Any:
    """What is read at several places is never a view itself."""
    for _ in range(n):
        x = x * 0.5 + lib.concatenate([x[:1] * 0, (x + 1)[:-1] * 0.25])
    return x


def turned(lib: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = x * 0.5 + 0.2 * lib.flip(x, (0,)) - 0.25 * x.T
    return x


def other_shapes(lib: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = x * 0.5 + lib.sin(x.reshape(9, 16)).reshape(SIZE, SIZE)
    return x


def far(lib: Any, x: Any, n: int) -> Any:
    """The turn before the last is read, too."""
    a, b = x, x * 0.5
    for _ in range(n):
        a, b = b, 0.5 * lib.roll(a, 1, 0) + 0.4 * lib.roll(b, 2, 0)
    return a + b


PROGRAMS: dict[str, tuple[Program, int]] = {  # each with the axes of its array
    f.__name__: (f, axes)
    for axes, programs in {
        1: (wave, two_fields, red_black, entries, differences, halves, two_ways, far),
        2: (heat, life, edges, rows, turned, other_shapes),
    }.items()
    for f in programs
}
BOTH = [pytest.param(name, cost_model) for name in PROGRAMS for cost_model in ("cpu", "webgpu")]
SMOOTH = [name for name in PROGRAMS if name not in ("life", "edges", "rows")]


def data(name: str) -> tuple[Program, Any]:
    f, axes = PROGRAMS[name]
    return f, np.random.default_rng(5).random((SIZE,) * axes).astype(np.float32)


def work(make: Callable[[int], Tensor], n: int, device: str) -> dict[str, int]:
    """The nodes, launches and work of a program's plan."""
    clear_cache()
    sink = graph([make(n).uop])
    with indexed() as found:
        plan, _, _ = plan_for(sink, planned_cost_model(device))
    sizes = {k: len(toposort((k.sink,))) for k in plan.kernels}
    return {
        "nodes": len(toposort((sink,))),
        "places": sum(map(len, found)),
        "launches": len(plan.calls),
        "computed": sum(sizes[c.kernel] for c in plan.calls),
    }


@pytest.mark.parametrize(("name", "cost_model"), thinned(BOTH, test=3, ci=2))
def test_turns_take_equal_work(name: str, cost_model: str) -> None:
    f, x = data(name)
    counts = {n: work(lambda n: f(anneal, Tensor(x), n), n, cost_model) for n in (5, 10, 20, 40)}
    for n in (5, 10, 20):
        for what, count in counts[n].items():
            assert counts[2 * n][what] <= 2.5 * count + 60, (what, counts)
    assert counts[40]["places"] < 40 * 400


@pytest.mark.parametrize("cost_model", ["cpu", "webgpu"])
@pytest.mark.parametrize("name", thinned(SMOOTH, test=4, ci=2))
def test_gradients_of_turns_take_equal_work(name: str, cost_model: str) -> None:
    f, x = data(name)

    def gradient(n: int) -> Tensor:
        t = Tensor(x, requires_grad=True)
        f(anneal, t, n).pow(2).sum().backward()
        assert t.grad is not None
        return t.grad

    small, large = work(gradient, 10, cost_model), work(gradient, 20, cost_model)
    assert all(large[what] <= 2.5 * small[what] + 60 for what in small), (small, large)


@pytest.mark.parametrize("name", ["entries", "heat", "rows"])
def test_the_graph_of_a_turn_is_not_learnt_again(name: str) -> None:
    f, x = data(name)
    small, large = (calls(lambda n: f(anneal, Tensor(x), n), n) for n in (10, 40))
    assert large < 5.5 * small, (small, large)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, device: str) -> None:
    f, x = data(name)
    for n in (1, 2, 5, 10) if device == "cpu" else (1, 7):
        close(f(anneal, Tensor(x), n).numpy(), f(np, x.astype(np.float64), n), rtol=1e-4, atol=1e-5)
    compiled = jit(lambda t: f(anneal, t, 6))
    for i in range(4):
        close(compiled(Tensor(x * (1 - i / 8))).numpy(), f(np, x.astype(np.float64) * (1 - i / 8), 6), 1e-4, 1e-5)


@pytest.mark.parametrize("name", thinned(SMOOTH, test=3, ci=1))
def test_gradients(name: str, device: str) -> None:
    f, x = data(name)
    wide, h = x.astype(np.float64), 1e-6
    way = np.random.default_rng(6).standard_normal(x.shape)
    for n in (1, 2, 6) if device == "cpu" else (3,):
        slope = ((f(np, wide + h * way, n) ** 2).sum() - (f(np, wide - h * way, n) ** 2).sum()) / (2 * h)
        t = Tensor(x, requires_grad=True)
        f(anneal, t, n).pow(2).sum().backward()
        assert t.grad is not None
        assert (t.grad.numpy() * way).sum() == pytest.approx(slope, rel=2e-3, abs=2e-3)
