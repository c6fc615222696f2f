"""Tensors without elements, and integers of NumPy's or in tensors, give what torch gives (torch_empties.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anneal as an
from anneal.errors import UserError
from tests.tensor.torch_empties import CALLS, PATH, called, told

VALUES: dict[str, Any] = json.loads(PATH.read_text())["values"]
assert VALUES.keys() == set(CALLS), "run python -m tests.tensor.torch_empties, which needs torch"
# Results that differ from torch's on purpose: a part of the call's text, and the reason.
DIFFERENT = {
    "), ())": "a reduction over no axes reduces nothing",
    "an.unique_consecutive(": "slices without elements are equal, torch refuses them",
    "an.quantile(": "rows along an axis with elements have quantiles, torch refuses them",
    "an.ones(5,0,2)": "a sum over no channels is 0 for each of the five results, of which torch gives none",
    "an.ones(0,3,2)": "there are no results, torch refuses",
    "F.cross_entropy(an.zeros(2, 0), an.zeros(2, 0), ": "the mean of two losses of 0 is 0, torch's is nan",
    "F.cross_entropy(an.zeros(0, 0), L[:0], label_smoothing=0.1, reduction='sum')": "no losses add up to 0, torch's to nan",
    "F.multilabel_margin_loss(an.zeros(0, 3)": "the mean of nothing is nan, as that of the other losses; torch's is 0",
    "_pool1d(an.zeros(2, 0, 4)": "no channels have no maxima and means, torch refuses them",
    "_pool2d(an.zeros(2, 0, 4, 4)": "no channels have no maxima and means, torch refuses them",
    "_pool1d(an.zeros(0, 3, 4), 0)": "an output of length 0 is refused",
    "F.adaptive_avg_pool1d(an.zeros(2, 3, 0), 1)": "a mean of nothing is refused, torch's is nan",
    "X.split(np.": "NumPy's integers are sizes, torch refuses them",
    "an.tensordot(X, X, np.": "NumPy's integers are counts, torch refuses them",
}


def outcome(call: str) -> Any:
    """The result of a call as JSON, or the names of its error's classes."""
    try:
        return json.loads(json.dumps(told(called(an, call))))
    except Exception as error:
        if not isinstance(error, (UserError, TypeError)):
            raise
        return [c.__name__ for c in type(error).__mro__]


def agrees(ours: Any, torchs: Any) -> bool:
    if isinstance(torchs, str) and torchs.startswith("raises "):
        return isinstance(ours, list) and torchs.removeprefix("raises ") in ours
    if isinstance(torchs, dict) and isinstance(ours, dict):
        return ours | {"values": 0} == torchs | {"values": 0} and (
            ours["values"] == torchs["values"]
            or [float(n) for n in ours["values"]]
            == pytest.approx([float(n) for n in torchs["values"]], abs=2e-3, nan_ok=True)
        )
    if isinstance(torchs, list) and isinstance(ours, list):
        return len(ours) == len(torchs) and all(agrees(a, b) for a, b in zip(ours, torchs, strict=True))
    return bool(ours == torchs)


def test_calls_give_what_torchs_give(device: str) -> None:
    wrong = {call: (ours, VALUES[call]) for call in CALLS if not agrees(ours := outcome(call), VALUES[call])}
    unknown = {call: pair for call, pair in wrong.items() if not any(part in call for part in DIFFERENT)}
    assert not unknown
    assert [part for part in DIFFERENT if not any(part in call for call in wrong)] == []
