"""Every optimiser under every schedule, and with every setting changed in the middle: the losses that torch's take."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import anneal
from anneal.tensor import jit
from tests.nn.optim_programs import CHANGES, OPTIMISERS, TABLE, fit
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
