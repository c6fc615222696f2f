"""Gradients of programs beside torch's: at once, in loops, and where nothing is replayed."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

import anneal as an
from anneal import settings
from tests.transforms.gradient_programs import PROGRAMS, TABLE, run

VALUES: dict[str, Any] = json.loads(TABLE.read_text())
assert VALUES.keys() == set(PROGRAMS), "run python -m tests.transforms.gradient_programs, which needs torch"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("replay", [True, False])
def test_gradients_are_torchs(name: str, replay: bool, device: str) -> None:
    with warnings.catch_warnings(), settings.override(replay=replay):
        warnings.simplefilter("ignore")
        for _ in range(5 if replay else 2):
            for found, torchs in zip(run(an, name), VALUES[name], strict=True):
                assert found == (torchs if torchs is None else pytest.approx(torchs, rel=1e-5)), VALUES[name]
