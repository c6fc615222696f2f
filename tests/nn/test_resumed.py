"""Schedules and optimisers that go on give what torch's give, and leave the states that torch's leave."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import anneal
from tests.nn.resumed_programs import BROKEN_OFF, GOING_ON, LEAVING, STEPPING, TABLE, going_on, kept, left

FOUND: dict[str, Any] = json.loads(TABLE.read_text())
# what only torch asks for, and what is found from other settings
TORCHS_OWN = {"_get_lr_called_within_step", "_step_count", "use_beta1", "mode_worse"}
TORCHS_OWN |= {"foreach", "capturable", "differentiable", "fused"}


def compare(mine: Any, theirs: Any, rtol: float = 1e-9) -> None:
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            compare(a, b, rtol)
    elif isinstance(theirs, dict):
        assert theirs.keys() - mine.keys() <= TORCHS_OWN
        for name in theirs.keys() & mine.keys() - {"_step_count"}:  # torch's leaves out some steps
            compare(mine[name], theirs[name], rtol)
    elif isinstance(theirs, float):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)
    else:
        assert mine == theirs


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", GOING_ON)
def test_a_schedule_that_is_told_the_step_goes_on_as_torchs(name: str, kind: str) -> None:
    for steps, wanted in zip(BROKEN_OFF, FOUND["going on"][f"{name}, {kind}"], strict=True):
        compare(going_on(anneal, GOING_ON[name], kind, steps), wanted)


@pytest.mark.parametrize("name", LEAVING)
def test_a_state_of_a_schedule_is_torchs(name: str) -> None:
    """Torch's `load_state_dict` takes what it finds under its own names, and asks for those of functions."""
    state, rates = FOUND["left"][name]
    mine, after = left(anneal, LEAVING[name])
    compare(mine[0], state[0])
    compare(after, rates)
    compare(left(anneal, LEAVING[name], state)[1], rates)


@pytest.mark.parametrize("name", STEPPING)
def test_a_state_of_an_optimiser_is_torchs(name: str) -> None:
    """Its names, shapes and values; and from torch's it goes on as torch's."""
    torchs = FOUND["kept"][name]
    digits = 1e-2 if name == "Muon" else 2e-5  # torch iterates in bfloat16
    compare(kept(anneal, name), torchs, digits)
    compare(kept(anneal, name, torchs), torchs[2:], digits)


@pytest.mark.parametrize("name", [n for n in STEPPING if "," not in n and n not in ("Muon", "LBFGS")])
def test_what_a_group_has_besides_is_no_setting(name: str) -> None:
    """As in torch: Rprop has no weight_decay, and Adagrad none that is decoupled."""
    found = []
    for more in ({}, {"weight_decay": 0.5, "decoupled_weight_decay": True, "maximize": True, "momentum": 0.5}):
        w = anneal.nn.Parameter([1.0, -2.0])
        make = getattr(anneal.optim, name)
        defaults = make([anneal.nn.Parameter([1.0])]).defaults
        optimizer = make([{"params": [w]} | {k: v for k, v in more.items() if k not in defaults}], lr=0.1)
        (w**2).sum().backward()
        optimizer.step()
        found.append(w.tolist())
    assert found[0] == found[1]
