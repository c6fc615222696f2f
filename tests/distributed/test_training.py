"""Data parallel training: participants that each take a part of a batch train as one process does on all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.distributed import all_reduce, average_gradients
from anneal.errors import GradientError, ShapeError
from anneal.runtime import Collective, Launch, Step, default_device, observed
from anneal.tensor import Tensor, jit
from tests.distributed.threads import ThreadGroup, in_threads

Optimisers = Callable[[Any], nn.Optimizer]
PARTS = 2


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Linear(6, 16)
        self.outer = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x).tanh())


def model() -> Mlp:
    """A model with the same weights each time."""
    made = Mlp()
    r = np.random.default_rng(7)
    for p in made.parameters():
        p.assign(Tensor(r.normal(size=p.shape).astype(np.float32) * 0.3))
    return made


def batch(step: int) -> tuple[Any, Any]:
    r = np.random.default_rng(step)
    return r.normal(size=(8, 6)).astype(np.float32), r.normal(size=(8, 3)).astype(np.float32)


def trained(
    optimiser: Optimisers, captured: bool, group: ThreadGroup | None, steps: list[Step]
) -> tuple[list[float], list[Any]]:
    """Losses and weights after five steps, on all of the batches or on a participant's part of them."""
    net = model()
    optimizer = optimiser(net.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if group is None:
            optimizer.step(loss)
            return loss
        optimizer.step(loss, reduce=lambda gradients: all_reduce(gradients, group, "mean"))
        return loss

    run = jit(step) if captured else step
    losses = []
    for n in range(5):
        x, y = batch(n)
        part = slice(None) if group is None else slice(group.rank * 8 // PARTS, (group.rank + 1) * 8 // PARTS)
        steps.clear()
        with observed(steps.append):
            losses.append(run(Tensor(x[part]), Tensor(y[part])).item())
    return losses, [p.numpy() for p in net.parameters()]


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "optimiser",
    [lambda p: nn.SGD(p, lr=0.1, momentum=0.9), lambda p: nn.AdamW(p, lr=0.01)],
    ids=["sgd", "adamw"],
)
def test_parts_of_a_batch_train_as_the_whole(device: str, optimiser: Optimisers, captured: bool) -> None:
    alone: list[Step] = []
    losses, weights = trained(optimiser, captured, None, alone)
    steps: list[list[Step]] = [[] for _ in range(PARTS)]
    parts = in_threads(
        lambda group: trained(optimiser, captured, group, steps[group.rank]), PARTS, device=default_device()
    )
    np.testing.assert_allclose(np.mean([found for found, _ in parts], axis=0), losses, rtol=1e-4)
    for mine, other, want in zip(parts[0][1], parts[1][1], weights, strict=True):
        np.testing.assert_array_equal(mine, other, "participants stay the same, to the last bit")
        np.testing.assert_allclose(mine, want, rtol=2e-3, atol=1e-5)
    if not captured:
        (whole,) = alone
        assert isinstance(whole, Launch)
        for found in steps:
            backward, exchange, update = found
            assert [type(s) for s in found] == [Launch, Collective, Launch]
            assert len(exchange.inputs) == 4, "one exchange for all gradients"
            names = [c.kernel.name for c in update.plan.calls]  # type: ignore[union-attr]
            assert update.kernels <= 4, f"the forward pass is not computed again: {names}"
            assert backward.kernels + update.kernels <= whole.kernels + 4


def test_the_halves_of_a_step_are_the_step() -> None:
    """Where nothing is exchanged in between, the same kernels run."""

    def kernels(step: Callable[[nn.Optimizer, Tensor], None]) -> tuple[list[str], Any]:
        net = model()
        optimizer = nn.AdamW(net.parameters(), lr=0.01)
        launches: list[Step] = []
        for n in range(2):
            optimizer.zero_grad()
            x, y = batch(n)
            loss = ((net(Tensor(x)) - Tensor(y)) ** 2).mean()
            loss.backward()
            launches.clear()
            with observed(launches.append):
                step(optimizer, loss)
        (launch,) = launches
        assert isinstance(launch, Launch)
        return [c.kernel.name for c in launch.plan.calls], [p.numpy() for p in net.parameters()]

    names, weights = kernels(lambda optimizer, loss: optimizer.step(loss))
    for split in (
        lambda optimizer, loss: optimizer.apply(optimizer.gradients(), loss),
        lambda optimizer, loss: optimizer.step(loss, reduce=list),
    ):
        same, others = kernels(split)  # type: ignore[arg-type]
        assert same == names
        for a, b in zip(weights, others, strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_may_be_left_out_and_replaced() -> None:
    a, b = Tensor([1.0], requires_grad=True), Tensor([1.0, 1.0], requires_grad=True)
    optimizer = nn.SGD([a, b], lr=1.0)
    (a * 2).sum().backward()
    assert [None if g is None else g.tolist() for g in optimizer.gradients()] == [[2.0], None]
    optimizer.apply([None, Tensor([1.0, 3.0])])
    assert (a.tolist(), b.tolist()) == ([1.0], [0.0, -2.0])
    assert a.grad is None
    assert b.grad is not None
    assert b.grad.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda o: o.apply([]), GradientError, "SGD: 0 gradients for 1 parameters"),
        (lambda o: o.apply([1.0]), GradientError, "gradient 0 is a tensor, or None, not float"),
        (lambda o: o.apply([Tensor([1.0])]), ShapeError, r"gradient 0 has shape \(1,\), and its parameter \(2,\)"),
        (lambda o: o.step(reduce=lambda g: []), GradientError, "reduce gives 0 gradients for 1"),
    ],
)
def test_wrong_gradients_are_said_before_anything_changes(call: Any, error: type[Exception], message: str) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = nn.SGD([w], lr=0.1)
    (w * w).sum().backward()
    with pytest.raises(error, match=message):
        call(optimizer)
    assert w.grad is not None
    assert w.grad.tolist() == [2.0, 4.0]
    assert w.tolist() == [1.0, 2.0]


def test_wide_gradients_keep_their_digits_on_the_wire() -> None:
    def mean(group: ThreadGroup) -> float:
        w = Tensor(np.ones(1), requires_grad=True)
        (w * Tensor(np.array([1.0 + group.rank * 2.0**-40]))).sum().backward()
        average_gradients([w], group, wire="float64")
        assert w.grad is not None
        return float(w.grad.item())

    assert in_threads(mean, 2) == [1.0 + 2.0**-41] * 2
