"""Programs in torch's idiom give torch's losses, with one import changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import anneal
from anneal.runtime import cache_statistics
from tests.programs.common import FILES, losses_of, with_anneal
from tests.programs.programs import PROGRAMS
from tests.tiers import thinned

TORCH = json.loads(Path(__file__).with_name("torch.json").read_text(encoding="utf-8"))

LONG = ("critics", "hooks", "per_sample", "seq2seq", "vit")  # to compile


def check(name: str, losses: list[float]) -> None:
    np.testing.assert_allclose(losses, TORCH[name], rtol=1e-4, atol=1e-6)
    assert len(set(losses)) > 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_torchs_losses(name: str) -> None:
    check(name, PROGRAMS[name](anneal, np.random.default_rng(0)))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.ci) if n in LONG else n for n in FILES])
def test_a_file_has_torchs_losses(name: str) -> None:
    check(name, losses_of(with_anneal(name)))


@pytest.mark.parametrize("name", thinned([*PROGRAMS, *FILES], test=12, ci=12))
def test_a_program_has_torchs_losses_on_webgpu(name: str, webgpu: str) -> None:
    anneal.set_default_device(webgpu)
    try:
        if name in PROGRAMS:
            check(name, PROGRAMS[name](anneal, np.random.default_rng(0)))
        else:
            check(name, losses_of(with_anneal(name)))
    finally:
        anneal.set_default_device(None)


def test_a_state_that_a_loop_changes_in_place_does_not_pile_up() -> None:
    """Nobody looks at the state: its graph would grow with the rounds, and each round would plan anew."""
    model, state = anneal.nn.Linear(3, 3), anneal.zeros(3, 3)
    x = anneal.ones(3, 3).realize()
    made = []
    for _ in range(8):
        with anneal.no_grad():
            state.mul_(0.5).add_(model(x))
            for p in model.parameters():
                p.mul_(0.9)
        (model(x) + state).sum().item()
        made.append(cache_statistics()[1])
    assert made[4] == made[-1]
