"""An optimiser whose state went through a file steps as one that was not interrupted, whatever it was made with."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import optim
from anneal.errors import DataError
from anneal.tensor import Tensor, io
from tests.nn.optim_programs import (
    GOAL,
    LBFGS_START,
    OPTIMISERS,
    SCHEDULES,
    SEARCHES,
    START,
    TABLE,
    lbfgs,
    searches,
)

Through = Callable[[Any, Path], Any]


def _saved(state: Any, path: Path) -> Any:
    an.save(state, path)
    return an.load(path)


def _safetensors(state: Any, path: Path) -> Any:
    io.safe_save(state, path)
    return io.safe_load(path)


THROUGH: dict[str, Through] = {
    "save": _saved,
    "safetensors": _safetensors,
    "pickle": lambda state, _: pickle.loads(pickle.dumps(state)),
    "deepcopy": lambda state, _: copy.deepcopy(state),
    "arrays": lambda state, _: {name: t.numpy() for name, t in state.items()},
    "nested": lambda state, path: _saved({n: state[n] for n in ("state", "param_groups")}, path),
}


class Fit:
    """A fit of three parameters in two groups, by an optimiser that is made in one of two ways."""

    def __init__(self, make: Callable[[list[Any]], Any], params: Any = START) -> None:
        self.params = [Tensor(np.array(x, np.float32), requires_grad=True) for x in params]
        self.goals = [Tensor(x.astype(np.float32)) for x in GOAL]
        self.optimizer = make(self.params)

    def loss(self) -> Tensor:
        self.optimizer.zero_grad()
        loss: Tensor = sum([((p - g) ** 2).sum() for p, g in zip(self.params, self.goals, strict=True)], Tensor(0.0))
        loss.backward()
        return loss

    def values(self) -> list[list[float]]:
        return [p.numpy().reshape(-1).tolist() for p in self.params]

    def step(self) -> None:
        self.loss()
        self.optimizer.step()


def _groups(p: list[Any]) -> list[dict[str, Any]]:
    return [{"params": p[:2], "lr": 0.07}, {"params": p[2:]}]


@pytest.mark.parametrize("through", THROUGH)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_resumed_optimiser_steps_as_one_that_went_on(name: str, through: str, tmp_path: Path) -> None:
    whole = Fit(lambda p: OPTIMISERS[name](optim, _groups(p)))
    for _ in range(3):
        whole.step()
    kind = type(whole.optimizer)
    resumed = Fit(lambda p: kind([{"params": p[:2]}, {"params": p[2:]}]), [p.numpy() for p in whole.params])
    resumed.optimizer.load_state_dict(THROUGH[through](whole.optimizer.state_dict(), tmp_path / "state"))
    for a, b in zip(whole.optimizer.param_groups, resumed.optimizer.param_groups, strict=True):
        assert {n: v for n, v in a.items() if n != "params"} == {n: v for n, v in b.items() if n != "params"}
    for fit in (whole, resumed):
        for _ in range(3):
            fit.step()
    assert whole.values() == resumed.values()


@pytest.mark.parametrize("through", ["save", "safetensors"])
def test_lbfgs_goes_on_with_what_it_remembers(through: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "max_iter": 2, "history_size": 3, "line_search_fn": "strong_wolfe"}
    whole = Fit(lambda p: optim.LBFGS(p, **settings))
    for _ in range(3):
        whole.optimizer.step(whole.loss)
    resumed = Fit(optim.LBFGS, [p.numpy() for p in whole.params])
    resumed.optimizer.load_state_dict(THROUGH[through](whole.optimizer.state_dict(), tmp_path / "state"))
    for fit in (whole, resumed):
        fit.optimizer.step(fit.loss)
    assert whole.values() == resumed.values()
    with pytest.raises(DataError, match="direction is of 17 elements, not 3"):
        small = [Tensor([1.0], requires_grad=True) for _ in range(3)]
        optim.LBFGS(small).load_state_dict(whole.optimizer.state_dict())


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_and_its_optimiser_go_on(name: str, tmp_path: Path) -> None:
    def made(p: list[Any]) -> Any:
        return optim.SGD(_groups(p), 0.1, momentum=0.9)

    whole, loss = Fit(made), 1.0
    schedule = SCHEDULES[name](optim.lr_scheduler, whole.optimizer)
    resumed = Fit(lambda p: optim.SGD([{"params": p[:2]}, {"params": p[2:]}]))
    other = SCHEDULES[name](optim.lr_scheduler, resumed.optimizer)

    def go_on(fit: Fit, schedule: Any) -> list[float]:
        fit.step()
        schedule.step(*[loss] * (name.startswith("ReduceLROnPlateau")))
        return [g[n] for g in fit.optimizer.param_groups for n in ("lr", "momentum", "initial_lr") if n in g]

    for _ in range(3):
        go_on(whole, schedule)
    state = _saved({"optimizer": whole.optimizer.state_dict(), "schedule": schedule.state_dict()}, tmp_path / "state")
    resumed.optimizer.load_state_dict(state["optimizer"])
    other.load_state_dict(state["schedule"])
    assert [go_on(whole, schedule) for _ in range(5)] == [go_on(resumed, other) for _ in range(5)]


def test_a_schedules_state_alone_leaves_the_optimisers_rates_until_the_next_step() -> None:
    w = Tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    state = schedule.state_dict()
    for _ in range(2):
        optimizer.step()
        schedule.step()
    schedule.load_state_dict(state)
    assert (optimizer.param_groups[0]["lr"], schedule.get_last_lr()) == (0.25, [1.0])
    schedule.step()
    assert (optimizer.param_groups[0]["lr"], schedule.get_last_lr()) == (0.125, [0.125])


def test_rates_and_further_settings_come_back_as_they_were(tmp_path: Path) -> None:
    w = Tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)
    optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.param_groups[0]["name"] = "head"
    other = optim.SGD([w], lr=1.0)
    other.load_state_dict(_saved(optimizer.state_dict(), tmp_path / "state"))
    group = other.param_groups[0]
    assert (group["lr"], group["initial_lr"], group["name"]) == (0.1, 0.1, "head")
    assert group.rate.item() == pytest.approx(0.1)


def test_a_rate_that_a_program_sets_in_a_state_counts() -> None:
    w = Tensor([1.0], requires_grad=True)
    state = dict(optim.SGD([w], lr=0.1, momentum=0.5).state_dict())
    state["group.0.lr"] = Tensor([0.25])
    other = optim.SGD([w], lr=1.0)
    other.load_state_dict(state)
    assert (other.param_groups[0]["lr"], other.param_groups[0]["momentum"]) == (0.25, 0.5)


def test_a_state_of_other_groups_or_of_damaged_settings_is_refused(tmp_path: Path) -> None:
    a, b = (Tensor([1.0], requires_grad=True) for _ in "ab")
    state = _saved(optim.SGD([a, b], lr=0.1).state_dict(), tmp_path / "state")
    with pytest.raises(DataError, match=r"groups of \[2\] parameters, and this SGD has \[1, 1\]"):
        optim.SGD([{"params": [a]}, {"params": [b]}]).load_state_dict(state)
    for wrong in ([1, 2], [*json.dumps([{"lr": 1}]).encode()]):
        with pytest.raises(DataError, match="'settings' is no settings"):
            optim.SGD([a, b]).load_state_dict(state | {"settings": Tensor(np.array(wrong, np.uint8))})


def _tensors(state: Any) -> Any:
    """A state with lists, as `lbfgs` gives it, with tensors again, and numbers for parameters."""
    lists = ("old_dirs", "old_stps", "ro")
    found = {
        k: [an.tensor(x, dtype=an.float64) for x in v] if k in lists else an.tensor(v, dtype=an.float64)
        for k, v in state["state"]["0"].items()
        if k != "al"  # torch's working memory
    }
    return {"state": {0: found}, "param_groups": state["param_groups"]}


def test_the_nested_state_of_lbfgs_is_torchs() -> None:
    """It goes on from torch's, has torch's names and values itself, and goes on from its own nested one."""
    table = json.loads(TABLE.read_text())["lbfgs"]
    after, _ = lbfgs(an, table["values"], 3, _tensors(table["state"]))
    for x, y in zip(after, table["after"], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    values, state = lbfgs(an, LBFGS_START, 2)
    mine, theirs = state["state"]["0"], table["state"]["state"]["0"]
    assert theirs.keys() - mine.keys() == {"al", "func_evals", "prev_loss"}
    for name, value in mine.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-9, atol=1e-12, err_msg=name)
    again, _ = lbfgs(an, values, 3, _tensors(state))
    for x, y in zip(again, table["after"], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_a_state_of_lbfgs_whose_nested_form_was_read_loses_nothing() -> None:
    params = [an.nn.Parameter(x, dtype="float64") for x in START]
    optimizer: Any = optim.LBFGS(params, lr=0.5)
    assert optimizer.state_dict()["state"] == {}

    def closure() -> Any:
        optimizer.zero_grad()
        loss: Any = sum(((p - an.tensor(g)) ** 2).sum() for p, g in zip(params, GOAL, strict=True))
        loss.backward()
        return loss

    optimizer.step(closure)
    state = optimizer.state_dict()
    assert state["state"][0]["n_iter"] > 0
    other = optim.LBFGS([an.nn.Parameter(p.numpy()) for p in params])
    other.load_state_dict(state)
    for name, t in optimizer.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name].numpy(), t.numpy(), name)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_line_search_calls_as_often_as_torchs(name: str) -> None:
    """At most as often as `max_eval` leaves to it, beyond its first look."""
    found = searches(an, SEARCHES[name])
    np.testing.assert_allclose(found, json.loads(TABLE.read_text())["searches"][name], rtol=1e-5)
