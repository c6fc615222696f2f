"""`anneal run text`: characters with their chances, from weights that were saved, and the plan that makes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from anneal.inspect import KeptRecording
from anneal.tensor import Tensor
from anneal.tensor.io import safe_save
from anneal.training import load_example
from tests.cli.helpers import run


def test_chances_are_the_softmax_of_what_the_model_reads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = load_example("makemore-mlp")
    training = example.make(steps=1, batch=1, seed=7, lr=0.1)
    safe_save(training.model.state_dict(), tmp_path / "w.safetensors")
    flags = ["--device", "cpu", "--max-tokens", "4", "--temperature", "0.5", "--seed", "3"]
    files = ["--weights", str(tmp_path / "w.safetensors"), "--record", str(tmp_path / "r.zip")]
    outcome = run(capsys, "run", "text", "makemore-mlp", "an", "--stream", *flags, *files)
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert [e["event"] for e in events] == ["prompt", *["token"] * 4, "done"]
    row = [0, 1, 14]
    for e in events[1:5]:
        window = np.zeros((1, 16), np.int32)
        window[0, : len(row)] = row
        logits = training.model(Tensor(window)).numpy()[0, len(row) - 1].astype(np.float64) / 0.5
        chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert e["chance"] == pytest.approx(chances[e["id"]], rel=1e-4)
        assert [x["id"] for x in e["likely"]] == np.argsort(-chances, kind="stable")[:8].tolist()
        row = [0] if e["id"] == 0 else [*row, e["id"]]
    assert {e["plan"] for e in events[1:5]} == {0}
    assert KeptRecording(tmp_path / "r.zip").plan(0).kernels()["kernels"]
    greedy = run(capsys, "run", "text", "makemore-mlp", "an", "--greedy", "--json", *flags, *files[:2])
    assert len(json.loads(greedy.out)["text"]) == 4


def test_a_text_of_characters_goes_beyond_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "run", "text", "nanogpt", "a" * 64, "--max-tokens", "3", "--device", "cpu", "--json")
    assert (outcome.code, len(json.loads(outcome.out)["text"])) == (0, 3)
    assert "has not learnt anything" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["mlp"], 2, "no text model called"),
        (["nanogpt", "é"], 2, "does not know 'é'"),
        (["nanogpt", "--temperature", "0"], 2, "above 0"),
        (["nanogpt", "--weights", "no.safetensors"], 4, "no.safetensors"),
        (["nanogpt", "--record", "x.json"], 2, ".zip"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    outcome = run(capsys, "run", "text", *arguments, "--device", "cpu")
    assert (outcome.code, said in outcome.err) == (code, True)
