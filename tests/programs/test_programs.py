"""Programs in torch's idiom give torch's losses, with one import changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import anneal
from tests.programs.common import FILES, losses_of, with_anneal
from tests.programs.programs import PROGRAMS

TORCH = json.loads(Path(__file__).with_name("torch.json").read_text(encoding="utf-8"))


def check(name: str, losses: list[float]) -> None:
    np.testing.assert_allclose(losses, TORCH[name], rtol=1e-4, atol=1e-6)
    assert len(set(losses)) > 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_torchs_losses(name: str) -> None:
    check(name, PROGRAMS[name](anneal, np.random.default_rng(0)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_torchs_losses(name: str) -> None:
    check(name, losses_of(with_anneal(name)))


@pytest.mark.parametrize("name", [*PROGRAMS, *FILES])
def test_a_program_has_torchs_losses_on_webgpu(name: str, webgpu: str) -> None:
    if name in PROGRAMS:
        check(name, PROGRAMS[name](anneal, np.random.default_rng(0)))
    else:
        check(name, losses_of(with_anneal(name)))
