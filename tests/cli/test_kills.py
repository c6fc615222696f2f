"""A training that is killed at any moment: the last whole checkpoint loads, what follows is what would have followed,
to the last bit and byte, and nothing that a killed process left outlives the next start."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anneal.tensor import io
from examples.gpt2 import read_checkpoint
from tests.cli.test_gpt2 import make
from tests.cli.test_train_gpt2 import flags
from tests.tiers import thinned

pytestmark = pytest.mark.ci  # three kills of a training run in every tier: test_train_gpt2.py

STEPS = 24
FILES = ["config.json", "merges.txt", "model.safetensors", f"training-{STEPS}.safetensors", "vocab.json"]


class Training:
    """One checkpoint folder, trained by processes that are killed, and beside it one that was trained by one
    process.
    """

    def __init__(self, place: Path) -> None:
        self.start = make(place / "start", spread=1.0)
        self.whole, self.folder, self.left = place / "whole", place / "killed", 0
        done = self.process(self.whole)
        done.communicate()
        assert done.returncode == 0

    def process(self, folder: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "from anneal.cli import main; main()", *flags(self.start, folder, STEPS)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def done(self) -> int:
        """The step of the checkpoint, which must be whole; -1 if there is none yet."""
        if not (self.folder / "model.safetensors").exists():
            return -1
        read_checkpoint(self.folder)
        state = self.folder / io.safe_metadata(self.folder / "model.safetensors")["training"]
        assert len(io.safe_load(state)) > 10
        return int(json.loads(io.safe_metadata(state)["training"])["step"])

    def names(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    return Training(tmp_path_factory.mktemp("kills"))


def same(a: Path, b: Path) -> None:
    for name in FILES:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


@pytest.mark.parametrize("number", thinned(range(200), test=50, ci=50))
def test_a_killed_training_goes_on(training: Training, number: int) -> None:
    before = training.done()
    if before == STEPS:  # trained to its end in spite of all: that is compared, and another one begins
        assert training.names() == FILES
        same(training.folder, training.whole)
        training.folder.rename(training.folder.with_name(f"ended before {number}"))
        before = -1
    chance = random.Random(number)
    events = chance.choice((1, 1, 2, 3, 6, 11))
    with training.process(training.folder) as child:
        assert child.stdout is not None
        line = b""
        for _ in range(events):
            line = child.stdout.readline() or line
            if json.loads(line)["event"] == "start":  # what an earlier process left is gone
                left = [n for n in training.names() if n not in FILES[:3] + FILES[4:]]
                assert not [n for n in left if n.endswith(".unfinished")], left
                assert len(left) == (before >= 0), left
        time.sleep(chance.uniform(0, 0.02))
        child.send_signal(signal.SIGKILL)
    assert training.done() >= before


def test_what_is_trained_to_the_end_after_kills_is_the_same(training: Training) -> None:
    for wait in (2, 5):
        with training.process(training.folder) as child:
            assert child.stdout is not None
            for _ in range(wait):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
    with training.process(training.folder) as child:
        child.communicate()
    assert child.returncode == 0
    assert training.done() == STEPS
    assert training.names() == FILES
    same(training.folder, training.whole)


def test_equal_trainings_write_equal_bytes(training: Training, tmp_path: Path) -> None:
    again = training.process(tmp_path)
    again.communicate()
    same(tmp_path, training.whole)
