"""Gradients that hooks and backward functions keep, beside torch's: constants without create_graph."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

import anneal as an
from tests.transforms.torch_hook_values import PATH, PROGRAMS, run

VALUES: dict[str, Any] = json.loads(PATH.read_text())["values"]
assert VALUES.keys() == set(PROGRAMS), "run python -m tests.transforms.torch_hook_values, which needs torch"


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_kept_is_torchs(name: str, device: str) -> None:
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert run(an, name) == VALUES[name]
