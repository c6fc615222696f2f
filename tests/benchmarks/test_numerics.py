"""The published numbers: every function within its stated error, every special value and every integer as the rules
say.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.numerics import BINARY, UNARY, Measured, arguments, measure, page, ulps


@pytest.fixture(scope="module")
def found() -> dict[str, Measured]:
    return {}


def _measured(device: str, found: dict[str, Measured]) -> Measured:
    if device not in found:
        found[device] = measure(device, 6000)
    return found[device]


def test_functions_are_within_their_stated_error(device: str, found: dict[str, Measured]) -> None:
    m = _measured(device, found)
    far_off = {name: at for name, at in m.unary.items() if not at[0] <= UNARY[name].ulp}
    assert not far_off
    assert not m.special


def test_pairs_of_special_values(device: str, found: dict[str, Measured]) -> None:
    m = _measured(device, found)
    wrong = {name: b for name, b in m.binary.items() if b["wrong"] or b["ulp"] > max(BINARY[name].ulp, 0.5)}
    assert not wrong
    assert not {name: b for name, b in m.binary.items() if b["zero signs"]}


def test_integers_and_casts_keep_the_rules(device: str, found: dict[str, Measured]) -> None:
    m = _measured(device, found)
    assert len(m.integers) >= 26
    assert not {k: n for k, n in (m.integers | m.casts).items() if n}


def test_the_measure_sees_an_error() -> None:
    x = arguments(UNARY["log"], 300)
    assert 1.0 in x
    exact = np.log(x.astype(np.float64))
    good = exact.astype(np.float32)
    assert ulps(good, exact).max() <= 0.5
    assert ulps(np.nextafter(good, np.float32(np.inf)), exact).max() >= 0.5
    assert np.isinf(ulps(np.array([np.nan], np.float32), np.array([1.0]))[0])
    assert ulps(np.array([np.inf], np.float32), np.array([1e39]))[0] == 0


def test_the_page_is_made_of_the_results() -> None:
    root = Path(__file__).parents[2]
    files = sorted((root / "benchmarks" / "numbers").glob("*.json"))
    found = [Measured(**m) for f in files for m in json.loads(f.read_text())]
    assert page(found) == (root / "NUMERICS.md").read_text()


def test_the_page_shows_what_was_measured() -> None:
    m = Measured("cpu", "NumPy 0")
    m.unary = {"log": (1.25, 0.5)}
    m.special = {"sin": ["at inf: 1, not nan"]}
    m.binary = {name: {"ulp": 0.5, "wrong": 3, "zero signs": 0, "denormals": 0, "shown": []} for name in BINARY}
    m.integers = {"int32 +": 7}
    text = page([m])
    assert "| log | 1.175e-38 to 3.403e+38 | 1.25 at 0.5 |" in text
    assert "sin at inf: 1, not nan" in text
    assert "| + | 0.5, 3 wrong |" in text
    assert "| int32 | int32 + 7 |" in text
