"""Programs that blend what is mostly used alone give what torch's give, without jit and with it."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import anneal
from anneal import nn, special
from anneal.names import OPENED
from anneal.tensor import jit
from tests.nn.blends_programs import PROGRAMS, TABLE
from tests.nn.kin_programs import numbers
from tests.nn.test_kin import compare

RESULTS: dict[str, Any] = json.loads(TABLE.read_text())["results"]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_torchs_gives(name: str, compiled: bool) -> None:
    found = PROGRAMS[name](anneal, jit if compiled else lambda step: step)
    compare(json.loads(json.dumps(numbers(found))), RESULTS[name])


def test_functions_can_be_pickled() -> None:
    """By the name under which a room has them, aliases and those in place too."""
    for room in (nn.functional, special):
        for word in " ".join(OPENED[room.__name__].values()).split():
            function = getattr(room, word.partition("=")[0])
            assert pickle.loads(pickle.dumps(function)) is function
    for name in ("relu_", "absolute", "clip_", "multiply"):
        assert pickle.loads(pickle.dumps(getattr(anneal, name))) is getattr(anneal, name)
    kept = pickle.loads(pickle.dumps(nn.TransformerEncoderLayer(4, 2, 4, activation=nn.functional.relu)))
    assert kept.activation is nn.functional.relu
