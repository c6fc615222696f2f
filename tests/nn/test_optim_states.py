"""The state of an optimiser that a program replaces, takes away or loads in the middle: jit steps see it, too."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import optim
from anneal.errors import DataError
from anneal.tensor import Tensor
from tests.nn.optim_programs import GOAL, OPTIMISERS, START

Change = Callable[[Any, Any], Any]  # what happens to an optimiser; the second makes another over its parameters


def _replaced(o: Any, make: Any) -> None:
    o.state = defaultdict(dict)


def _cleared(o: Any, make: Any) -> None:
    o.state.clear()


def _deleted(o: Any, make: Any) -> None:
    for p in o.params:
        if o.state.get(p):
            del o.state[p]
    for group in o.param_groups:  # counts of all parameters
        o.state.pop(group, None)


def _loaded(o: Any, make: Any) -> None:
    o.load_state_dict(make(o.params).state_dict())


def _loaded_as_torchs(o: Any, make: Any) -> None:
    saved = o.state_dict()
    o.load_state_dict({"state": {}, "param_groups": saved["param_groups"]})


CHANGES: dict[str, Change] = {f.__name__: f for f in (_replaced, _cleared, _deleted, _loaded, _loaded_as_torchs)}


def losses(name: str, change: Change | None, wrap: Any = lambda f: f, anew: bool = False) -> list[float]:
    """The losses of a fit in whose middle something happens to the optimiser, or a new one goes on."""
    params = [Tensor(x.astype(np.float32), requires_grad=True) for x in START]
    goals = [Tensor(x.astype(np.float32)) for x in GOAL]

    def make(params: list[Any]) -> Any:
        return OPTIMISERS[name](optim, [{"params": params[:2]}, {"params": params[2:]}])

    def stepped(optimizer: Any) -> Any:
        def step() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = sum([((p - g) ** 2).sum() for p, g in zip(params, goals, strict=True)], start=Tensor(0.0))
            loss.backward()
            optimizer.step()
            return loss

        return wrap(step)

    optimizer = make(params)
    step = stepped(optimizer)
    found = [step().item() for _ in range(4)]
    if anew:
        step = stepped(make(params))
    elif change is not None:
        change(optimizer, make)
    return found + [step().item() for _ in range(4)]


@functools.cache
def begun_anew(name: str) -> list[float]:
    return losses(name, None, anew=True)


@pytest.mark.parametrize("wrap", [lambda f: f, an.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_whose_state_was_taken_away_begins_anew(name: str, change: str, wrap: Any) -> None:
    np.testing.assert_allclose(losses(name, CHANGES[change], wrap), begun_anew(name), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, an.jit], ids=["eager", "jit"])
def test_a_state_that_a_program_puts_there_is_taken(wrap: Any) -> None:
    def halved(o: Any, make: Any) -> None:
        for p in o.params:
            o.state[p]["momentum_buffer"] = o.state[p]["momentum_buffer"] / 2

    def halved_in_place(o: Any, make: Any) -> None:
        for p in o.params:
            o.state[p]["momentum_buffer"].mul_(0.5)

    name = "SGD, dampened"
    expected = losses(name, halved_in_place)
    assert losses(name, None) != expected
    for change in (halved, halved_in_place):
        np.testing.assert_allclose(losses(name, change, wrap), expected, rtol=1e-5)


def test_the_own_state_is_loaded_as_it_is() -> None:
    for name in OPTIMISERS:
        np.testing.assert_allclose(
            losses(name, lambda o, make: o.load_state_dict(o.state_dict())), losses(name, None), rtol=1e-5
        )


def test_an_empty_state_is_refused() -> None:
    for state in ({}, {"state": {}}):
        with pytest.raises(DataError, match="load_state_dict: "):
            optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1).load_state_dict(state)


MAKERS: dict[str, Any] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
}


def fitted(make: Any, devices: list[str], how: str) -> Any:
    """Weights of a fit, a step on each of the devices; "moved": the module moves, "loaded": another goes on."""
    Tensor.manual_seed(1)
    module = an.nn.Linear(2, 1, device=devices[0])
    o = make(module.parameters())
    schedule = optim.lr_scheduler.StepLR(o, 1, 0.5)
    for device in devices:
        if device != module.weight.device and how == "loaded":
            saved, weights = o.state_dict(), module.state_dict()
            module = an.nn.Linear(2, 1, device=device)
            module.load_state_dict({k: v.to(device) for k, v in weights.items()})
            o = make(module.parameters())
            schedule = optim.lr_scheduler.StepLR(o, 1, 0.5)
            o.load_state_dict(saved)
        module.to(device)
        o.zero_grad()
        (module(an.ones(3, 2, device=device)) ** 2).mean().backward()
        o.step()
        if how == "moved":
            schedule.step()
    return module.weight.numpy()


@pytest.mark.parametrize("how", ["moved", "loaded"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_fit_goes_on_on_another_device(name: str, how: str, webgpu: str) -> None:
    wanted = fitted(MAKERS[name], ["cpu"] * 5, how)
    for devices in (["cpu", "cpu", webgpu, webgpu, "cpu"], [webgpu, webgpu, "cpu", "cpu", "cpu"]):
        np.testing.assert_allclose(fitted(MAKERS[name], devices, how), wanted, rtol=1e-4)


def test_a_saved_state_has_the_settings(tmp_path: Path) -> None:
    """As torch's: an optimiser that was made with others goes on with those of the state."""
    w = an.nn.Parameter([1.0, 2.0])
    optimizer = optim.AdamW([w], lr=0.1, betas=(0.5, 0.6), eps=1e-2, weight_decay=0.3)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)
    w.sum().backward()
    optimizer.step()
    schedule.step()
    an.save({"optimizer": optimizer.state_dict(), "epoch": 3}, tmp_path / "checkpoint")
    other = optim.AdamW([an.nn.Parameter(w.detach().numpy())])
    other.load_state_dict(an.load(tmp_path / "checkpoint")["optimizer"])
    mine, theirs = ({k: v for k, v in o.param_groups[0].items() if k != "params"} for o in (optimizer, other))
    assert theirs == mine
    assert mine["initial_lr"] == 0.1
    for o in (optimizer, other):
        o.zero_grad()
        (o.params[0] * 3).sum().backward()
        o.step()
    assert optimizer.params[0].tolist() == other.params[0].tolist()


def test_a_parameter_without_a_gradient_has_no_state_in_torchs_form() -> None:
    """It has a count of steps, which torch would take for a whole state."""
    for make in (optim.Adam, optim.AdamW, optim.NAdam):
        params = [an.nn.Parameter(an.ones(2)), an.nn.Parameter(an.ones(3))]
        optimizer = make(params)
        (params[0] * 2).sum().backward()
        optimizer.step()
        state = optimizer.state_dict()
        assert [*state["state"]] == [0]
        other = make(params)
        other.load_state_dict({name: state[name] for name in ("state", "param_groups")})
        (params[1] * 2).sum().backward()
        other.step()
        assert [*other.state_dict()["state"]] == [0, 1]


def test_counts_that_differ_between_parameters_have_torchs_shape() -> None:
    params = [an.nn.Parameter(an.ones(2)), an.nn.Parameter(an.ones(3))]
    optimizer = optim.Adam(params)
    for frozen in (False, True, False):
        params[0].requires_grad_(not frozen)
        optimizer.zero_grad()
        (params[0].sum() + params[1].sum()).backward()
        optimizer.step()
    steps = [s["step"] for s in optimizer.state_dict()["state"].values()]
    assert [(t.shape, t.item()) for t in steps] == [((), 2.0), ((), 3.0)]


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.int64(1)])
def test_settings_may_be_numpys_numbers(number: Any) -> None:
    optimizer = optim.SGD([an.nn.Parameter([3.0])], lr=number, momentum=number)
    assert [type(optimizer.param_groups[0][n]) for n in ("lr", "momentum")] == [type(number.item())] * 2
    other = optim.SGD([an.nn.Parameter([3.0])], lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == number
