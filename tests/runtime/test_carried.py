"""States that a loop without jit carries on, through which gradients flow: no round computes those before it again."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import numpy as np
import pytest

import anneal as an
from anneal import nn, settings
from anneal.nn import functional as F
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor
from benchmarks.calls import counted

Step = Callable[[int], Any]
BATCHES = np.random.default_rng(0).standard_normal((50, 2, 3, 4)).astype(np.float32)


def _seen(n: int) -> tuple[Tensor, Tensor]:
    x, y = BATCHES[n]
    return Tensor(x), Tensor(y)


def _trained(when: str, every: int = 1, detached: Callable[[Tensor], Tensor] = Tensor.detach) -> Step:
    """A step of training of a cell, whose state is detached at a place in every so many rounds."""
    an.manual_seed(0)
    cell = nn.LSTMCell(4, 4)
    optimiser = an.optim.SGD(cell.parameters(), 0.1)
    h = c = an.zeros(3, 4)

    def step(n: int) -> float:
        nonlocal h, c
        x, y = _seen(n)
        if when == "at the top" and n % every == 0:
            h, c = detached(h), detached(c)
        h, c = cell(x, (h, c))
        loss = F.mse_loss(h, y)
        if n % every == every - 1:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        read = loss.item()
        if when == "at the end" and n % every == every - 1:
            h, c = detached(h), detached(c)
        return read

    return step


def _layer() -> Step:
    """A step of the training of a recurrent layer, whose state is no part of the loss."""
    an.manual_seed(0)
    layer = nn.LSTM(4, 4)
    optimiser = an.optim.SGD(layer.parameters(), 0.1)
    state: Any = None

    def step(n: int) -> float:
        nonlocal state
        x, y = _seen(n)
        if state is not None:
            state = tuple(t.detach() for t in state)
        out, state = layer(x, state)
        loss = F.mse_loss(out, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def _summed() -> Step:
    """A step of training whose losses are summed with their gradients."""
    an.manual_seed(0)
    net = nn.Linear(4, 4)
    optimiser = an.optim.SGD(net.parameters(), 0.1)
    total = an.zeros(())

    def step(n: int) -> float:
        nonlocal total
        x, y = _seen(n)
        loss = F.mse_loss(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total = total + loss
        return loss.item() if n % 10 != 9 else total.item()

    return step


def _sampled(cells: bool) -> Step:
    """A step of sampling with gradients on, each from the number that was drawn last."""
    an.manual_seed(0)
    embed, head = nn.Embedding(5, 4), nn.Linear(4, 5)
    net: Any = nn.GRUCell(4, 4) if cells else nn.GRU(4, 4)
    h, drawn = an.zeros(1, 4), 1

    def step(n: int) -> int:
        nonlocal h, drawn
        x = embed(Tensor([drawn]))
        if cells:
            h = out = net(x, h)
        else:
            out, h = net(x, h)
        drawn = int((head(out)[0] + n % 3 * an.arange(5)).argmax().item()) if n % 5 else 1
        return drawn

    return step


def _policy() -> Step:
    """A step of an episode of ten: an action is read from the state, and the last step trains through all of them."""
    an.manual_seed(0)
    cell, head = nn.GRUCell(4, 4), nn.Linear(4, 1)
    optimiser = an.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)
    h, losses = an.zeros(3, 4), []

    def step(n: int) -> float:
        nonlocal h, losses
        h = cell(_seen(n)[0], h)
        out = head(h)
        read = out.mean().item()
        losses.append((out * out).mean())
        if n % 10 == 9:
            optimiser.zero_grad()
            an.stack(losses).sum().backward()
            optimiser.step()
            h, losses = an.zeros(3, 4), []
        return read

    return step


LOOPS = {
    "detached at the top": lambda: _trained("at the top"),
    "detached at the end": lambda: _trained("at the end"),
    "detached in place": lambda: _trained("at the top", detached=Tensor.detach_),
    "copied without a gradient": lambda: _trained("at the top", detached=an.no_grad()(Tensor.clone)),
    "a layer's state": _layer,
    "a sampled cell": lambda: _sampled(True),
    "a sampled layer": lambda: _sampled(False),
    "episodes": _policy,
    "a sum of losses": _summed,
}
ALL = LOOPS | {
    "detached each fifth time, at the top": lambda: _trained("at the top", 5),
    "detached each fifth time, at the end": lambda: _trained("at the end", 5),
}


def _calls(step: Step, n: int) -> int:
    def turn() -> None:
        step(n)

    return counted(cast("FunctionType", turn)).calls


@pytest.mark.parametrize("name", LOOPS)
def test_a_round_does_the_work_of_the_one_before(name: str) -> None:
    step = LOOPS[name]()
    for n in range(30):
        step(n)
    plans = cache_statistics()[1]
    first = [_calls(step, n) for n in range(30, 40)]
    assert cache_statistics()[1] == plans
    second = [_calls(step, n) for n in range(40, 50)]
    assert sum(second) <= 1.02 * sum(first), (first, second)


@pytest.mark.parametrize("name", ALL)
def test_its_values_are_those_of_ops_that_are_never_late(name: str, device: str) -> None:
    step = ALL[name]()
    found = [step(n) for n in range(11)]
    with settings.override(replay=False), an.device("cpu"):
        step = ALL[name]()
        expected = [step(n) for n in range(11)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
