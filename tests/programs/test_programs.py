"""Programs in torch's idiom give torch's losses, with one import changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import anneal
from tests.programs.programs import PROGRAMS

TORCH = json.loads(Path(__file__).with_name("torch.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_torchs_losses(name: str) -> None:
    losses = PROGRAMS[name](anneal, np.random.default_rng(0))
    np.testing.assert_allclose(losses, TORCH[name], rtol=1e-4)
    assert len(set(losses)) > 1
