"""Masks in programs without jit, counted: what they choose is data, and a size that comes again finds all it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn, optim
from anneal.runtime import late
from anneal.tensor import Tensor
from tests.runtime.test_eager_work import Work, warm

DATA = np.random.default_rng(0).standard_normal((8, 40, 6)).astype(np.float32)
SCORES = [np.random.default_rng(n).permutation(40).astype(np.float32) for n in range(8)]
Choice = Callable[[Any, Any], Any]  # of rows by a mask of them


def chosen(x: Any, m: Any) -> Any:
    return x[m] * 2


def selected(x: Any, m: Any) -> Any:
    return x[:, 1].masked_select(m) if isinstance(x, Tensor) else x[:, 1][m]


def columns(x: Any, m: Any) -> Any:
    return x.T[1:5, m]


def places(x: Any, m: Any) -> Any:
    return x[m.nonzero().squeeze(1)] if isinstance(x, Tensor) else x[np.flatnonzero(m)]


def one_place_each(x: Any, m: Any) -> Any:
    (i,) = m.nonzero(as_tuple=True) if isinstance(x, Tensor) else m.nonzero()
    return x[i, i % 6]


def replaced(x: Any, m: Any) -> Any:
    y = x * 1
    y[m] = x[m] * 3
    y[~m] = 0.5
    return y


def by_arrays(x: Any, m: Any) -> Any:
    values = m.numpy() if isinstance(m, Tensor) else m
    return x[values] + x[np.flatnonzero(values)]


CHOICES: list[Choice] = [chosen, selected, columns, places, one_place_each, replaced, by_arrays]


def step_of(choice: Choice, sizes: int = 1) -> Callable[[int], Any]:
    data, scores = [Tensor(d) for d in DATA], [Tensor(s) for s in SCORES]
    return lambda n: choice(data[n % 8], scores[n % 8] > 10.5 + n % sizes).numpy()


@pytest.mark.parametrize("choice", CHOICES, ids=lambda f: f.__name__)
def test_rows_that_masks_choose_are_remembered(choice: Choice) -> None:
    late.forget()
    work = Work(warm(step_of(choice), 12), range(12, 20))
    assert (work.plans, work.misses) == (0, 0)
    step = warm(step_of(choice, 3), 24)
    assert (Work(step, range(24, 48)).plans, Work(step, range(24, 48)).misses) == (0, 0)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda f: f.__name__)
def test_rows_that_masks_choose_are_those_of_numpy(choice: Choice) -> None:
    late.forget()
    step = step_of(choice, 5)
    for n in range(16):
        wanted = choice(DATA[n % 8], SCORES[n % 8] > 10.5 + n % 5)
        np.testing.assert_allclose(step(n), wanted, rtol=1e-6)


def test_a_loss_of_the_rows_that_a_mask_chooses_is_remembered() -> None:
    late.forget()
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimiser = optim.Adam(model.parameters())
    data, scores = [Tensor(d) for d in DATA], [Tensor(s) for s in SCORES]

    def step(n: int) -> float:
        optimiser.zero_grad()
        x, y = data[n % 8], scores[n % 8]
        mask = y > 9.5 + n % 4
        out = model(x).squeeze(1)
        loss = ((out[mask] - y[mask]) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss.item() + (out[mask] > 0).float().mean().item()

    work = Work(warm(step, 32), range(32, 40))
    assert (work.plans, work.misses) == (0, 0)


def test_where_of_a_condition_alone_gives_the_places() -> None:
    for n in range(4):
        (found,) = Tensor.where(Tensor(SCORES[n]) > 30 + n)
        assert found.tolist() == np.flatnonzero(SCORES[n] > 30 + n).tolist()


def test_gradients_go_to_the_rows_that_a_mask_chooses() -> None:
    late.forget()
    factor = Tensor(np.linspace(1, 2, 6, dtype=np.float32), requires_grad=True)
    for n in range(8):
        x, mask = Tensor(DATA[n]) * factor, Tensor(SCORES[n]) > 19.5
        y = x * 2
        y[mask] = x[mask] * x[mask]
        y.sum().backward()
        chosen, rest = DATA[n][SCORES[n] > 19.5], DATA[n][SCORES[n] <= 19.5]
        wanted = (2 * chosen**2 * np.linspace(1, 2, 6)).sum(0) + 2 * rest.sum(0)
        assert factor.grad is not None
        np.testing.assert_allclose(factor.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)
        factor.grad = None
