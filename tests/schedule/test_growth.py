"""Deep graphs take work in proportion to their depth: function calls are counted, since times say little on a busy
machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from anneal import nn, no_grad, stack
from anneal.runtime import plan_of
from anneal.schedule import clear_cache
from anneal.schedule.fusion import joining
from anneal.tensor import Tensor
from anneal.uop import arena


def constants(n: int) -> Tensor:
    y = Tensor([1.0, 2.0])
    for _ in range(n):
        y = y + 1.5
    return y


def buffers(n: int) -> Tensor:
    y, others = Tensor([1.0, 2.0]), [Tensor([float(i), 1.0]) for i in range(20)]
    for i in range(n):
        y = y * others[i % 20]
    return y


def sums(n: int) -> Tensor:
    y = total = Tensor([1.0, 2.0])
    for _ in range(n):
        y = (y * 0.5).relu()
        total = total + y
    return total


def backward(n: int) -> Tensor:
    y = x = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(n):
        y = (y * 1.0001).relu()
    y.sum().backward()
    assert x.grad is not None
    return x.grad


def losses(n: int) -> Tensor:
    """Losses of a model's batches, read together."""
    w, others = Tensor([[0.5, 1.0], [2.0, 0.25]]), [Tensor([[float(i), 1.0]]) for i in range(n)]
    with no_grad():
        return stack([((x @ w).tanh() ** 2).mean() for x in others]).sum()


def column_sums(n: int) -> Tensor:
    others = [(Tensor.arange(40).reshape(20, 2) * 1.5, Tensor([float(i), 1.0])) for i in range(n)]
    return stack([(x * y).sum(0) for x, y in others]).sum()


def shared(n: int) -> Tensor:
    """Results that read one large value, and each another one beside."""
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    return stack([(x * float(i)).exp() @ Tensor([[float(i)]] * 4) for i in range(n)]).sum()


def pairs(n: int) -> Tensor:
    """A loss of n pairs of results, with its gradient, as two loops write it."""
    layer = nn.Linear(8, 4)
    rows = [layer(Tensor([float(i)] * 8)) for i in range(round((2 * n) ** 0.5))]
    loss = sum([(a * b).sum() for i, a in enumerate(rows) for b in rows[:i]], Tensor(0.0))
    loss.backward()
    assert layer.weight.grad is not None
    return loss.detach() + layer.weight.grad.sum()


def calls(make: Callable[[int], Tensor], n: int) -> int:
    """How many functions are called to build the chain and to plan it."""
    count = 0

    def seen(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call" or event == "c_call"

    clear_cache()
    gc.collect()
    arena().sweep()  # else one may come meanwhile, and look at all nodes that tests before left
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        plan_of([make(n)])
    finally:
        sys.setprofile(before)
    return count


def test_a_join_looks_once_for_what_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each reader of a value: pairs of rows that many others read took time with their number squared."""
    asked = [0, 0]

    def counted(n: int, f: Callable[..., bool]) -> Callable[..., bool]:
        def count(*args: Any) -> bool:
            asked[n] += 1
            return f(*args)

        return count

    monkeypatch.setattr(joining, "depends", counted(0, joining.depends))
    monkeypatch.setattr(joining.Joining, "joined", counted(1, joining.Joining.joined))
    clear_cache()
    plan_of([pairs(300)])
    assert 0 < asked[0] <= asked[1], asked


@pytest.mark.parametrize(
    ("make", "n"),
    [
        (constants, 500),
        (buffers, 500),
        (losses, 100),
        (column_sums, 100),
        (pairs, 150),
        pytest.param(shared, 100, marks=pytest.mark.ci),
        pytest.param(sums, 400, marks=pytest.mark.ci),
        pytest.param(backward, 200, marks=pytest.mark.ci),
        *[pytest.param(make, 2000, marks=pytest.mark.deep) for make in (constants, buffers, sums)],
        *[pytest.param(make, 200, marks=pytest.mark.deep) for make in (losses, column_sums, shared)],
        *[pytest.param(make, n, marks=pytest.mark.deep) for make, n in ((pairs, 300), (backward, 500))],
    ],
)
def test_work_grows_with_depth(make: Callable[[int], Tensor], n: int) -> None:
    small, large = calls(make, n), calls(make, 3 * n)
    assert large < 4 * small, (small, large)
