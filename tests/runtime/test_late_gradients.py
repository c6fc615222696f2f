"""Gradients of `autograd.grad` in a loop without jit: taken once for all rounds, of graphs that do not grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, settings
from anneal.autograd import grad
from anneal.tensor import Tensor, no_grad
from anneal.uop import toposort
from tests.tiers import on_devices

Step = Callable[[int], Any]
DATA = np.random.default_rng(0).standard_normal((16, 6, 2)).astype(np.float32)
OTHERS = [0.5, 1.0]


def net() -> Any:
    an.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def third_derivatives() -> Step:
    model = net()
    optimiser = an.optim.SGD(model.parameters(), lr=0.01)

    def step(n: int) -> list[float]:
        x = Tensor(DATA[n]).requires_grad_()
        u = model(x)
        for _ in range(3):
            (slopes,) = grad(u, x, an.ones_like(u), create_graph=True)
            u = slopes[:, :1]
        loss = (u**2).mean() + (slopes * 0.1).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return [loss.item(), model[0].weight.sum().item()]

    return step


def several_results_weighted() -> Step:
    model = net()

    def step(n: int) -> Any:
        x = Tensor(DATA[n]).requires_grad_()
        y, z = model(x), (x * x).sum(1, keepdim=True)
        w = Tensor(DATA[n, :, :1])
        found = grad([y, z, y.sum()], [x, model[0].weight], [w, w * 2, None], retain_graph=True)
        return [*found, *grad([z, y], [x], [w.exp(), an.ones_like(y)])]

    return step


def unused_inputs() -> Step:
    a, b = Tensor(OTHERS, requires_grad=True), Tensor(OTHERS, requires_grad=True)

    def step(n: int) -> Any:
        x = Tensor(DATA[n])
        found = grad((x * a).sin().sum(), [b, a], allow_unused=True)
        assert found[0] is None
        return [found[1], *grad((x * b).sin().sum(), [b, a], materialize_grads=True)]

    return step


def through_what_was_read() -> Step:
    w = Tensor(OTHERS, requires_grad=True)

    def step(n: int) -> Any:
        y = Tensor(DATA[n])
        for _ in range(4):
            y = (y * w).tanh()
            if y.abs().max().item() > 100:
                break
        return grad((y * y).sum(), w)

    return step


def steps_in_place() -> Step:
    w = Tensor(OTHERS, requires_grad=True)
    held = [Tensor(DATA[0])]

    def step(n: int) -> Any:
        x = held[0].clone().requires_grad_()
        for _ in range(3):
            x.data.add_(Tensor(DATA[n]), alpha=0.01)
            (slopes,) = grad((x * w).cos().sum(), x)
            x.data.sub_(0.1 * slopes)
        loss = (x * w).cos().sum()
        held[0] = x.detach()
        return [*grad(loss, [w, x]), loss]

    return step


def leapfrog_with_a_look() -> Step:
    held = [Tensor(DATA[0, 0])]

    def slope(q: Tensor) -> Tensor:
        q = q.detach().requires_grad_()
        part, other = q[0], q[1]
        assert (other < 1e6).all()
        found: Tensor = grad(-((part - 1) ** 2) - (other * part).cos(), q)[0]
        return found

    def step(n: int) -> Any:
        q, p = held[0], Tensor(DATA[n, 1])
        g = slope(q)
        for _ in range(9):
            p = p + 0.05 * g
            q = q + 0.1 * p
            g = slope(q)
            p = p + 0.05 * g
        held[0] = q
        return [q, p]

    return step


def hooks_and_shared_leaves() -> Step:
    w = Tensor(OTHERS, requires_grad=True)
    w.register_hook(lambda g: g * 2)

    def step(n: int) -> Any:
        x = Tensor(DATA[n]).requires_grad_()
        y = x * w
        y.register_hook(lambda g: g * 3)
        return grad((y**2).sum(), [x, w])

    return step


def two_leaves_of_one_value() -> Step:
    def step(n: int) -> Any:
        a = (Tensor(DATA[n]) * 2).requires_grad_()
        b = (Tensor(DATA[n]) * 2).requires_grad_()
        both = grad((a * a * b).sum(), [b, a, a])
        a.tolist()
        return [*both, *grad((a * a * b).sum(), [a, b, a])]

    return step


KNOWN = [
    third_derivatives,
    several_results_weighted,
    unused_inputs,
    through_what_was_read,
    steps_in_place,
    leapfrog_with_a_look,
]
OWN = [hooks_and_shared_leaves, two_leaves_of_one_value]  # taken anew in each round


def listed(found: Any) -> Any:
    if isinstance(found, list | tuple):
        return [listed(x) for x in found]
    return np.asarray(found.tolist() if isinstance(found, Tensor) else found)


@pytest.mark.parametrize(("device", "make"), on_devices([*KNOWN, *OWN], test=2, ci=2), indirect=["device"])
def test_gradients_of_a_loop_are_those_of_each_round(make: Callable[[], Step], device: str) -> None:
    found = []
    for replay in (False, True):
        with settings.override(replay=replay):
            step = make()
            found.append([listed(step(n)) for n in range(10)])
    for n, (a, b) in enumerate(zip(*found, strict=True)):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5, err_msg=f"round {n}")


@pytest.mark.parametrize("keeps", [True, False])
def test_a_path_of_slopes_that_nothing_reads_is_computed_on_the_way(keeps: bool) -> None:
    """Euler's steps down a potential; the graph of each point had those of all before."""
    model, path = net(), []
    z = Tensor([[1.0, 0.5]])
    expected = z.numpy()
    for _ in range(40):
        x = z.detach().requires_grad_()
        (slopes,) = grad(model(x).sum(), x)
        with no_grad():
            z = z - 0.1 * slopes
        path += [z] if keeps else []
        assert len(toposort((z.uop,))) < 400
    a, b = model[0].weight.numpy(), model[2].weight.numpy()
    for n in range(40):
        t = np.tanh(expected @ a.T + model[0].bias.numpy())
        expected = expected - 0.1 * ((1 - t * t) * b) @ a
        if keeps:
            np.testing.assert_allclose(path[n].numpy(), expected, rtol=1e-4)
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-4)


def test_a_hook_may_come_after_a_gradient_was_taken() -> None:
    for n in range(4):
        x = Tensor(DATA[n]).requires_grad_()
        y = (x * x).sum()
        grad(y, x, retain_graph=True)
        y.register_hook(lambda g: g * 5)
        np.testing.assert_allclose(grad(y, x)[0].numpy(), 10 * DATA[n], rtol=1e-6)


CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "data": lambda w: w.data.add_(0.5),
    "new data": lambda w: setattr(w, "data", w.data + 0.5),
    "in place": lambda w: w.add_(0.5),
    "copy": lambda w: w.copy_(w.detach() + 0.5),
    "nothing": lambda w: w,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("changed_since", [True, False])
def test_a_leaf_that_was_read_without_gradients_keeps_those_of_its_graphs(
    change: str, backward: bool, changed_since: bool
) -> None:
    """A leaf that is lazy when it is used, and computed under `no_grad`: its gradient was missing without a word."""
    for n in range(4):
        w, v = Tensor(DATA[n]).requires_grad_(), Tensor(DATA[n + 1]).requires_grad_()
        with no_grad():
            CHANGES[change](w)
            now = DATA[n] + (0 if change == "nothing" else 0.5)
        y = (w * w * v).sum() + v.sum()
        with no_grad():
            np.testing.assert_allclose(y.item(), (now**2 * DATA[n + 1] + DATA[n + 1]).sum(), rtol=1e-4)
            np.testing.assert_allclose(w.sum().item(), now.sum(), rtol=1e-4)
            if changed_since:
                w.data.mul_(2)
        z = y * 2
        if backward:
            z.backward()
        found: Any = (w.grad, v.grad) if backward else grad(z, [w, v])
        np.testing.assert_allclose(found[0].numpy(), 4 * now * DATA[n + 1], rtol=1e-5)
        np.testing.assert_allclose(found[1].numpy(), 2 * now**2 + 2, rtol=1e-5)


def test_a_late_result_keeps_the_gradient_of_a_leaf_that_changes_again() -> None:
    """Something is computed between the result, the leaf's next change and the gradient: the leaf had lost its node."""
    w, v = Tensor(DATA[0]).requires_grad_(), Tensor(DATA[1]).requires_grad_()
    for n in range(6):
        y = v + w * 0.5
        Tensor(DATA[n]).sin().sum().item()
        (v * w.detach()).tolist()
        w.data.add_(0.1)
        assert all(g is not None for g in grad(y.sum(), [v, w], allow_unused=True, retain_graph=True)), n
        y.sum().backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), np.full(w.shape, 0.5), rtol=1e-6)
        w.grad = v.grad = None
