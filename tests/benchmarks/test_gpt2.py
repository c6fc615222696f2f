"""The GPT-2 benchmark at a size that says whether it works."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import gpt2
from tests.examples.gpt2.helpers import DATA


def test_a_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--model-dir", str(DATA / "tiny"), "--tokens", "4", "--prompt", "20", "--rounds", "1", "--json"]
    monkeypatch.setattr(sys, "argv", ["gpt2", *flags])
    gpt2.main()
    result = json.loads(capsys.readouterr().out)
    mine = result["results"]["anneal"]
    assert mine["tokens_per_s"] == pytest.approx(1e3 / mine["token_ms"])
    assert mine["prefill_ms"] > 0
    (row,) = gpt2.rows(result)
    assert row["who"] == "anneal"
