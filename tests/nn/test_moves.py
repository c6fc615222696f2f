"""Gradients that pass from one device to another, and optimisers whose parameters move. The numbers are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.errors import DeviceError, JitError
from anneal.tensor import Tensor


def test_gradients_and_tangents_come_back_from_another_device(webgpu: str) -> None:
    def there(t: Tensor) -> Tensor:
        return t.sum() + (t.to(webgpu) * 2).sum().to("cpu")

    t = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    there(t).backward()
    assert t.grad is not None
    assert (t.grad.tolist(), t.grad.device) == ([3.0, 3.0, 3.0], "cpu")
    assert an.grad(there)(Tensor.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert an.jvp(lambda t: (t.to(webgpu) * 2).sum().cpu(), (Tensor.ones(3),), (Tensor.ones(3),))[1].item() == 6.0


def test_a_loss_on_another_device_reaches_leaves_of_both(webgpu: str) -> None:
    w, v = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True, device=webgpu)
    for _ in range(3):
        w.grad = v.grad = None
        moved = (w**2).to(webgpu)
        moved.retain_grad()
        moved.realize()
        (moved * v).sum().backward()
        found = [t.grad for t in (w, v, moved)]
        assert [g.device for g in found if g is not None] == ["cpu", webgpu, webgpu]
        assert [g.tolist() for g in found if g is not None] == [[6.0, 16.0], [1.0, 4.0], [3.0, 4.0]]
    assert not moved.is_leaf
    assert moved.requires_grad


def test_second_derivatives_and_changes_in_place_pass_too(webgpu: str) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    (g,) = an.autograd.grad((w.to(webgpu) ** 3).sum(), [w], create_graph=True)
    g.sum().backward()
    assert (g.device, g.tolist()) == ("cpu", [3.0, 12.0])
    assert w.grad is not None
    assert w.grad.tolist() == [6.0, 12.0]
    w.grad, u = None, w.to(webgpu)
    u[0] = 7.0
    (u * u).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 4.0]


def test_a_copy_without_a_gradient_has_none(webgpu: str) -> None:
    w = Tensor([1.0], requires_grad=True)
    with an.no_grad():
        assert not w.to(webgpu).requires_grad
    assert not w.detach().to(webgpu).requires_grad


def test_jit_says_that_a_tensor_was_moved(webgpu: str) -> None:
    with pytest.raises(JitError, match="a tensor moved to 'webgpu' inside a jit function"):
        an.jit(lambda t: t.to(webgpu) * 2)(Tensor.ones(3))


MAKE: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, 0.1),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1),
}
X = np.arange(6, dtype=np.float32).reshape(3, 2) / 6


def _step(model: Any, optimizer: Any, x: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = (model(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


def _losses(make: Callable[[Any], Any], devices: list[str]) -> list[float]:
    an.manual_seed(3)
    model = nn.Linear(2, 1)
    optimizer = make(model.parameters())
    return [_step(model.to(d), optimizer, Tensor(X, device=d)).item() for d in devices]


@pytest.mark.parametrize("name", MAKE)
def test_an_optimiser_goes_on_where_its_parameters_moved(webgpu: str, name: str) -> None:
    stayed = _losses(MAKE[name], ["cpu"] * 5)
    np.testing.assert_allclose(_losses(MAKE[name], ["cpu", "cpu", webgpu, webgpu, "cpu"]), stayed, rtol=1e-5)
    np.testing.assert_allclose(_losses(MAKE[name], [webgpu] * 5), stayed, rtol=1e-5)  # moved before the first step


@pytest.mark.parametrize("name", MAKE)
def test_a_state_is_loaded_to_the_device_of_the_parameters(webgpu: str, name: str) -> None:
    an.manual_seed(3)
    model = nn.Linear(2, 1)
    first = MAKE[name](model.parameters())
    for _ in range(2):
        _step(model, first, Tensor(X))
    second = MAKE[name](model.to(webgpu).parameters())
    second.load_state_dict(first.state_dict())
    found = [_step(model, second, Tensor(X, device=webgpu)).item() for _ in range(2)]
    np.testing.assert_allclose(found, _losses(MAKE[name], ["cpu"] * 4)[2:], rtol=1e-5)


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("given", [True, False])
def test_a_captured_step_goes_on_where_its_parameters_moved(webgpu: str, name: str, given: bool) -> None:
    """There and back; the state moves in the call after the move, and what is replayed then goes on from it."""
    an.manual_seed(3)
    model = nn.Linear(2, 1)
    optimizer = MAKE[name](model.parameters())
    batch = [Tensor(X)]
    losses: list[float] = []
    runs: list[int] = []  # of the function, rather than of its captures

    def stepped(*x: Tensor) -> Tensor:
        runs.append(len(losses))
        return _step(model, optimizer, *(x or batch))

    step = an.jit(stepped)
    for device in ("cpu", webgpu, "cpu"):
        model.to(device)
        batch[:] = [Tensor(X, device=device)]
        losses += [step(*batch if given else ()).item() for _ in range(5)]
        assert runs[-1] < len(losses) - 1
    np.testing.assert_allclose(losses, _losses(MAKE[name], ["cpu"] * len(losses)), rtol=1e-4)


def test_a_group_on_two_devices_is_an_error(webgpu: str) -> None:
    params = [Tensor([1.0], requires_grad=True, device=d) for d in ("cpu", webgpu)]
    optimizer = optim.SGD(params, 0.1)
    for p in params:
        p.sum().backward()
    with pytest.raises(DeviceError, match="a group's parameters are on 'cpu' and 'webgpu': give those of each device"):
        optimizer.step()
