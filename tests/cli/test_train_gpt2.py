"""train gpt2: it learns, its checkpoints outlive kill -9 at any moment, and training goes on from them to the
last bit.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from anneal.tensor import io
from examples.gpt2 import read_checkpoint
from tests.cli.helpers import Outcome, run
from tests.cli.test_gpt2 import make

STEPS = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 over bytes that is as initialised."""
    return make(tmp_path_factory.mktemp("bytes"), spread=1.0)


def flags(folder: Path, checkpoint: Path | None, steps: int = STEPS, **more: Any) -> list[str]:
    options = {
        "model-dir": folder,
        "steps": steps,
        "batch": 4,
        "lr": 3e-3,
        "device": "cpu",
        "checkpoint-every": 1,
        **more,
    }
    if checkpoint is not None:
        options["checkpoint"] = checkpoint
    return ["train", "gpt2", "--json", *[f"--{name}={value}" for name, value in options.items()]]


def train(capsys: pytest.CaptureFixture[str], folder: Path, checkpoint: Path | None, **more: Any) -> Outcome:
    outcome = run(capsys, *flags(folder, checkpoint, **more))
    assert outcome.code == 0, outcome
    return outcome


def losses(outcome: Outcome) -> list[float]:
    return [e["loss"] for e in outcome.events if e["event"] == "step"]


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of an uninterrupted training."""
    place = tmp_path_factory.mktemp("whole")
    subprocess.run(
        [sys.executable, "-c", "from anneal.cli import main; main()", *flags(folder, place)],
        check=True, capture_output=True,
    )  # fmt: skip
    return place


def check_equal(found: Path, wanted: Path) -> None:
    for name in ("model.safetensors", f"training-{STEPS}.safetensors"):
        a, b = load_file(found / name), load_file(wanted / name)
        assert set(a) == set(b)
        for key in b:
            np.testing.assert_array_equal(a[key], b[key])
    for path in wanted.iterdir():
        assert path.read_bytes() == (found / path.name).read_bytes(), path.name


def test_it_learns(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    outcome = train(capsys, folder, None, steps=60)
    start, *_, done = outcome.events
    assert start["data"].startswith("Tiny Shakespeare, 1,115,394 tokens")
    found = losses(outcome)
    assert found[0] == pytest.approx(np.log(257), abs=0.2)
    assert np.mean(found[-5:]) < found[0] - 1.5
    assert done["sample"].startswith("ROMEO:")
    assert done["uops_backward"] > done["uops_forward"] > 50


def test_being_killed_at_any_moment_changes_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, whole: Path, tmp_path: Path
) -> None:
    chance = random.Random(3)
    for wait in (None, chance.uniform(0, 0.3), chance.uniform(0, 0.3)):
        with subprocess.Popen(
            [sys.executable, "-c", "from anneal.cli import main; main()", *flags(folder, tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:  # once a checkpoint is there, or some time after the start
                if json.loads(line)["event"] == "start":  # what the one before left unfinished is gone
                    assert not list(tmp_path.glob("*.unfinished"))
                    assert not list(tmp_path.glob(".*.unfinished"))
                if json.loads(line)["event"] == ("start" if wait else "checkpoint"):
                    break
            time.sleep(wait or 0)
            child.send_signal(signal.SIGKILL)
        read_checkpoint(tmp_path)
        state = io.safe_metadata(tmp_path / "model.safetensors")["training"]
        done = json.loads(io.safe_metadata(tmp_path / state)["training"])["step"]
    outcome = train(capsys, folder, tmp_path)
    assert [e["step"] for e in outcome.events if e["event"] == "step"] == list(range(done + 1, STEPS + 1))
    check_equal(tmp_path, whole)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["config.json", "merges.txt", "model.safetensors", f"training-{STEPS}.safetensors", "vocab.json"]


def test_what_is_done_is_not_done_again(capsys: pytest.CaptureFixture[str], folder: Path, whole: Path) -> None:
    start, done = train(capsys, folder, whole).events
    assert (start["steps"], done["steps"], done["final_loss"]) == (STEPS, STEPS, None)


def test_sample_reads_its_checkpoint(capsys: pytest.CaptureFixture[str], whole: Path) -> None:
    outcome = run(capsys, "gpt2", "sample", "ROMEO:", "--model-dir", str(whole), "--device", "cpu", "--max-tokens", "5")
    assert outcome.code == 0
    assert outcome.out.startswith("ROMEO:")


def test_a_small_one_from_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anneal.training import load_module

    train_module = load_module("gpt2.train")
    monkeypatch.setattr(train_module, "WIDTH", 16)
    monkeypatch.setattr(train_module, "CONTEXT", 16)
    outcome = run(capsys, *flags(folder, None, steps=2), "--scratch")
    assert outcome.code == 0
    assert losses(outcome)[0] == pytest.approx(np.log(257), abs=0.2)


def test_files_of_tokens(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    """What `data tokenize` writes is trained on, and goes on where a checkpoint ends."""
    text = tmp_path / "text.txt"
    text.write_text("How now, spirit! Whither wander you? " * 400)
    made = run(capsys, "data", "tokenize", str(text), "--model-dir", str(folder), "--json")
    assert made.code == 0, made
    tokens = tmp_path / "text.txt.bin"
    whole = train(capsys, folder, None, steps=4, tokens=tokens)
    parts = [train(capsys, folder, tmp_path / "c", steps=n, tokens=tokens) for n in (2, 4)]
    assert losses(parts[1]) == pytest.approx(losses(whole)[2:], rel=1e-2)  # the schedule of two steps was another
    assert losses(parts[0])[0] == losses(whole)[0]


def test_mistakes(capsys: pytest.CaptureFixture[str], folder: Path, whole: Path, tmp_path: Path) -> None:
    def check(code: int, text: str, *arguments: str) -> None:
        outcome = run(capsys, *arguments)
        assert (outcome.code, outcome.out) == (code, ""), outcome
        assert text in outcome.err
        assert "Traceback" not in outcome.err

    check(4, "was trained with --batch 4, and this is 5", *flags(folder, whole, batch=5))
    check(4, "was trained with --lr 0.003", *flags(folder, whole, lr=0.1))
    check(4, "is no checkpoint of a training, and would be overwritten", *flags(folder, folder))
    check(2, "--scratch and --tokens are for gpt2, not for mlp", "train", "mlp", "--scratch")
    damaged = Path(shutil.copytree(whole, tmp_path / "damaged"))
    (damaged / f"training-{STEPS}.safetensors").unlink()
    check(4, f"training-{STEPS}.safetensors", *flags(folder, damaged))
    if os.name == "posix" and os.geteuid():
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        check(4, "cannot make the folder", *flags(folder, locked / "below"))
