"""A number of Python that is another in each round of a loop: which expressions make a plan for each.

The values are those of a loop that remembers nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import settings
from anneal.nn import functional as F
from anneal.runtime import cache_statistics
from anneal.schedule.plan import clear_cache
from tests.runtime.changing_numbers import NUMBERS, Row

ROUNDS = 9
# Plans of the rounds after the third. The list may only shrink.
PLANS = {
    # the number says how many, or of which kind the result is
    "pow of an int": 2, "round": 1, "diagonal": 1, "kthvalue": 3, "quantile": 6,
    # a size: small plans of the parts of a loop, where there was one of all its turns
    "ctc, the longest": 7,
    # places
    "x[n::4]": 2, "x[n:n + 6:2]": 3, "x[n, list]": 3, "x[tensor, n]": 3, "as_strided": 6,
    "split": 2, "chunk": 1, "unbind": 3, "list": 3, "select_scatter": 4, "slice_scatter": 3,
    "pad": 1, "pad of two axes": 1, "pad, reflect": 1, "pad, replicate": 1, "pad, cut": 4,
    # integers whose values are looked at before anything is computed
    "mul of ints": 6, "ignore_index": 4, "randint": 3,
    "attention, dropout": 6,
}  # fmt: skip
DATA = np.random.default_rng(0).standard_normal((12, 10)).astype(np.float32)


def trained(row: Row) -> tuple[list[float], list[int]]:
    """The losses of some rounds of a training loop, and the plans that each makes."""
    numbers, expression = row
    w = an.nn.Parameter(an.tensor(DATA))
    optimizer = an.optim.SGD([w], 0.01)
    an.manual_seed(0)
    losses, plans = [], []
    for n in numbers[:ROUNDS]:
        before = cache_statistics()[1]
        optimizer.zero_grad()
        y = expression(an, F, w * 0.5, n).float()
        loss = (y**2).mean() + y.sum() * 0.1
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        plans.append(cache_statistics()[1] - before)
    return [*losses, w.square().sum().item()], plans


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_changes_makes_no_plan(name: str) -> None:
    clear_cache()
    losses, plans = trained(NUMBERS[name])
    with settings.override(replay=False):
        np.testing.assert_allclose(losses, trained(NUMBERS[name])[0], rtol=1e-5, atol=1e-6)
    assert sum(plans[3:]) == PLANS.get(name, 0)


SETTINGS: dict[str, tuple[str, dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "momentum": ("SGD", {"momentum": 0.9, "nesterov": True}, lambda n: {"momentum": 0.9 - n / 50}),
    "decay": ("SGD", {"weight_decay": 0.1, "momentum": 0.5}, lambda n: {"weight_decay": n / 50 + 0.01}),
    "dampening": ("SGD", {"momentum": 0.9, "dampening": 0.1}, lambda n: {"dampening": n / 50 + 0.01}),
    "betas": ("Adam", {}, lambda n: {"betas": (0.9 - n / 50, 0.99 - n / 100)}),
    "all of Adam's": ("AdamW", {"amsgrad": True}, lambda n: {"lr": n / 99, "eps": (n + 1) / 1e6, "weight_decay": 0.1 / (n + 1)}),
    "alpha": ("RMSprop", {"centered": True, "momentum": 0.5}, lambda n: {"alpha": 0.99 - n / 50, "momentum": n / 50 + 0.1}),
    "rho": ("Adadelta", {}, lambda n: {"rho": 0.9 - n / 50}),
    "NAdam": ("NAdam", {}, lambda n: {"betas": (0.9 - n / 50, 0.99), "momentum_decay": n / 1e3 + 1e-3}),
    "etas": ("Rprop", {}, lambda n: {"etas": (0.5 - n / 99, 1.2 + n / 99)}),
}  # fmt: skip


def optimised(name: str, step_of: Callable[[Any], Any], rounds: range) -> tuple[list[float], list[int]]:
    """The weights that an optimiser whose settings change leaves, and the plans that each round makes."""
    of, settings_, changes = SETTINGS[name]
    w = an.nn.Parameter(an.tensor(DATA))
    optimizer = getattr(an.optim, of)([w], lr=0.1, **settings_)

    def step() -> Any:
        optimizer.zero_grad()
        loss = (w.square() + w).mean()
        loss.backward()
        optimizer.step()
        return loss

    step, plans = step_of(step), []
    for n in rounds:
        optimizer.param_groups[0].update(changes(n))
        before = cache_statistics()[1]
        step().item()
        plans.append(cache_statistics()[1] - before)
    return w.flatten().tolist(), plans


@pytest.mark.parametrize("step_of", [lambda step: step, an.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_changes_makes_no_plan(name: str, step_of: Callable[[Any], Any]) -> None:
    values, plans = optimised(name, step_of, range(12))
    assert not any(plans[3:])
    with settings.override(replay=False):
        np.testing.assert_allclose(values, optimised(name, lambda step: step, range(12))[0], rtol=1e-5, atol=1e-6)


def test_a_setting_that_becomes_nothing_is_another_update() -> None:
    """Of no momentum the buffer is not kept, as in torch; of no decay there is no term."""
    for step_of in (lambda step: step, an.jit):
        w = an.nn.Parameter(an.tensor([1.0, -2.0]))
        optimizer = an.optim.SGD([w], 0.5, momentum=0.5, weight_decay=0.25)
        step = step_of(lambda: (optimizer.zero_grad(), (w * 2).sum().backward(), optimizer.step())[2])  # noqa: B023
        expected, buffer = np.array([1.0, -2.0]), np.zeros(2)
        for n, (momentum, decay) in enumerate(
            [(0.5, 0.25), (0.25, 0.5), (0.75, 0), (0, 0.125), (0.5, 0.25), (0, 0)] * 2
        ):
            optimizer.param_groups[0].update(momentum=momentum, weight_decay=decay)
            step()
            slope = 2 + expected * decay
            if momentum:
                buffer = slope = slope + buffer * momentum
            expected = expected - 0.5 * slope
            np.testing.assert_allclose(w.tolist(), expected, rtol=1e-5, err_msg=f"{n}")


def test_the_count_of_steps_is_in_the_state_of_each_parameter() -> None:
    used, other = an.nn.Parameter(an.ones(2)), an.nn.Parameter(an.ones(2))
    optimizer = an.optim.Adam([used, other])
    for n in range(4):
        optimizer.zero_grad()
        (used + other * (n < 2)).sum().backward() if n < 2 else used.sum().backward()
        optimizer.step()
    assert [int(optimizer.state[p]["step"].item()) for p in (used, other)] == [4, 2]
    again = copy.deepcopy(optimizer)
    assert [int(again.state[p]["step"].item()) for p in again.param_groups[0]["params"]] == [4, 2]
    with pytest.raises(KeyError, match="steps"):
        optimizer.state[used]["steps"]


@pytest.mark.parametrize("step_of", [lambda step: step, an.jit], ids=["eager", "jit"])
def test_a_setting_of_another_kind_is_that_of_an_optimiser_that_had_it_from_the_first(
    step_of: Callable[[Any], Any],
) -> None:
    """Numbers of NumPy, lists, and numbers of which the update has no value, in one step alone."""
    kinds = [(0.9, 0.99), [0.5, 0.75], (np.float64(0.75), 0.5), (1, 1), (0, 0.5), [0.5, np.float32(0.25)]]
    for n, betas in enumerate(kinds * 2):
        w = an.nn.Parameter(an.tensor([1.0, -2.0]))
        optimizer = an.optim.RAdam([w], 0.1, betas=(0.5, 0.5), weight_decay=0.5)
        step = step_of(lambda: (optimizer.zero_grad(), w.square().sum().backward(), optimizer.step())[2])  # noqa: B023
        for each in [*kinds, *kinds][: n + 1]:
            optimizer.param_groups[0].update(betas=each, weight_decay=np.float64(n / 8))
            if each == (1, 1):
                with pytest.raises(ZeroDivisionError):
                    step()
            else:
                step()
        assert np.isfinite(w.tolist()).all()
        assert optimizer.param_groups[0]["betas"] is betas
