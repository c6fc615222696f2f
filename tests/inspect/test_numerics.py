"""The card of numerics: what a device is known to do, and errors that are planted are on it."""

from __future__ import annotations

import numpy as np
import pytest

from anneal import inspect
from anneal.inspect import numerics as measured
from anneal.tensor import Tensor


def test_a_card_agrees_with_what_a_device_does(device: str) -> None:
    card = measured(device)
    assert card.device == device
    facts = dict(card.facts)
    flushed = (Tensor([1e-40], device=device) * Tensor([1.0], device=device)).item() == 0.0
    assert facts["denormals"] == ("read or made as 0" if flushed else "kept")
    if device == "cpu":
        assert facts["a * b + c"] == "two roundings"
    assert all(0 <= f.ulps < 16 and f.low <= f.at <= f.high for f in card.functions)
    x = np.float32(next(f.at for f in card.functions if f.name == "exp"))
    wanted = np.exp(np.float64(x))
    error = abs(Tensor([x], device=device).exp().item() - wanted) / np.spacing(np.float32(wanted))
    assert error == pytest.approx(next(f.ulps for f in card.functions if f.name == "exp"), abs=0.01)


def test_a_wrong_function_is_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Tensor.tanh
    monkeypatch.setattr(Tensor, "tanh", lambda x: right(x) * (1 + 2.0**-16))
    found = next(f for f in inspect.numerics("cpu").functions if f.name == "tanh")
    assert 64 < found.ulps < 1000
