"""Parameters that are given equal values are parameters of their own: each has its gradient, as in torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.runtime import cache_statistics

VALUES = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
SHARED = an.tensor(VALUES)

GIVEN: dict[str, Callable[[nn.Linear], object]] = {
    "zero_": lambda layer: layer.bias.zero_(),
    "fill_ of data": lambda layer: layer.bias.data.fill_(0.0),
    "copy_ of constants": lambda layer: layer.bias.copy_(an.zeros(4)),
    "copy_ of memory": lambda layer: layer.bias.copy_(SHARED),
    "copy_ of a graph": lambda layer: layer.bias.copy_(SHARED * 2),
    "data = constants": lambda layer: setattr(layer.bias, "data", an.zeros(4)),
    "data = memory": lambda layer: setattr(layer.bias, "data", SHARED),
    "init": lambda layer: nn.init.constant_(layer.bias, 0.5),
    "a slice": lambda layer: layer.bias.__setitem__(slice(None), 0.0),
    "mul_": lambda layer: layer.bias.mul_(0.0),
    "a new parameter": lambda layer: setattr(layer, "bias", nn.Parameter(an.zeros(4))),
    "a parameter of memory": lambda layer: setattr(layer, "bias", nn.Parameter(SHARED)),
    "load_state_dict": lambda layer: layer.load_state_dict({"weight": layer.weight, "bias": SHARED}),
}


@pytest.mark.parametrize("name", GIVEN)
def test_each_has_its_own_gradient(name: str) -> None:
    an.manual_seed(0)
    one, two = nn.Linear(3, 4), nn.Linear(3, 4)
    with an.no_grad():
        GIVEN[name](one)
        GIVEN[name](two)
    x = an.ones(2, 3)
    weights = [layer.weight.numpy().astype(np.float64) for layer in (one, two)]
    biases = [layer.bias.numpy().astype(np.float64) for layer in (one, two)]
    optimizer = optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
    (one(x) * (two(x) + 1.0)).sum().backward()
    a, b = (np.ones((2, 3)) @ w.T + bias for w, bias in zip(weights, biases))
    np.testing.assert_allclose(one.bias.grad.numpy(), (b + 1.0).sum(0), rtol=1e-5)
    np.testing.assert_allclose(two.bias.grad.numpy(), a.sum(0), rtol=1e-5, atol=1e-6)
    optimizer.step()
    np.testing.assert_allclose(two.bias.numpy(), biases[1] - 0.1 * a.sum(0), rtol=1e-5, atol=1e-6)


def test_a_loop_that_zeroes_parameters_makes_no_plan_after_the_first_rounds() -> None:
    layers = [nn.Linear(3, 4), nn.Linear(3, 4)]
    made = []
    for _ in range(6):
        with an.no_grad():
            for layer in layers:
                layer.bias.copy_(layer.weight.sum(1))
        for layer in layers:
            layer.zero_grad()
        (layers[0](an.ones(2, 3)) * layers[1](an.ones(2, 3))).sum().backward()
        [layer.bias.grad.numpy() for layer in layers]
        made.append(cache_statistics()[1])
    assert made[-1] == made[3]
