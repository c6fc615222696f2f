"""Every optimiser under every schedule, and with every setting changed in the middle: the losses that torch's take."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import anneal
from anneal.tensor import jit
from tests.nn.optim_programs import CHANGES, OPTIMISERS, TABLE, fit, unchanged
from tests.tiers import thinned

LOSSES: dict[str, list[float]] = json.loads(TABLE.read_text())["losses"]


def same(name: str, wrap: Any) -> None:
    optimiser, _, change = name.partition(": ")
    got = fit(anneal, OPTIMISERS[optimiser], CHANGES[change], wrap)
    np.testing.assert_allclose(got, LOSSES[name], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", thinned(LOSSES, test=4, ci=4))
def test_losses_are_torchs(name: str) -> None:
    same(name, lambda f: f)


@pytest.mark.parametrize("name", thinned(LOSSES, test=8, ci=8))
def test_losses_under_jit_are_torchs(name: str) -> None:
    same(name, jit)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_what_is_float64_is_updated_in_float64(name: str) -> None:
    """Rates and counts, too; two of torch's optimisers have float32 scalars among their states."""
    wanted = json.loads(TABLE.read_text())["float64"][name]
    rtol = 3e-8 if name.startswith(("NAdam", "ASGD")) else 1e-13
    for wrap in (lambda f: f, jit):
        np.testing.assert_allclose(fit(anneal, OPTIMISERS[name], unchanged, wrap, np.float64), wanted, rtol=rtol)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_the_norm_of_gradients_of_float64_is_one(p: float) -> None:
    values = [np.array([1 / 3, -2 / 7]), np.array([[0.1], [1.7]])]
    flat = np.concatenate([v.ravel() for v in values])
    params = [anneal.zeros(v.shape, dtype=anneal.float64, requires_grad=True) for v in values]
    for t, v in zip(params, values, strict=True):
        t.grad = anneal.tensor(v)
    norm = np.linalg.norm(flat, p)
    found = anneal.nn.utils.clip_grad_norm_(params, 0.3, p)
    assert found.dtype is anneal.float64
    np.testing.assert_allclose(found.item(), norm, rtol=1e-14)
    grads = np.concatenate([t.grad.numpy().ravel() for t in params if t.grad is not None])
    np.testing.assert_allclose(grads, flat * 0.3 / (norm + 1e-6), rtol=1e-14)


def test_groups_take_names_too() -> None:
    """`model.named_parameters()` in place of the parameters: alone, in groups, and in groups that are added."""
    model = anneal.nn.Sequential(anneal.nn.Linear(2, 3), anneal.nn.Linear(3, 1))
    named = list(model.named_parameters())
    optimizer = anneal.optim.SGD([{"params": named[:1]}, {"params": iter(named[1:3]), "lr": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": named[3:]})
    assert all(p is q for p, (_, q) in zip(optimizer.params, named, strict=True))
    assert [len(g["params"]) for g in optimizer.param_groups] == [1, 2, 1]
    assert len(anneal.optim.SGD(model.named_parameters(), lr=0.1).params) == 4
