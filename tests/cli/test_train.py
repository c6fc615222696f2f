"""train: three ways to report, one training run behind them."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from anneal.cli._reporters import Progress
from anneal.training import MODELS
from tests.cli.helpers import run, run_process

STEP = re.compile(r"^step (\d+)  loss (\d+\.\d{4})  \d+\.\d ms$")


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_json_lines(capsys: pytest.CaptureFixture[str], model: str) -> None:
    outcome = run(capsys, "train", model, "--steps", "6", "--batch", "32", "--device", "cpu", "--json")
    assert outcome.code == 0
    start, *steps, done = outcome.events
    assert start["event"] == "start"
    assert (start["model"], start["device"], start["adapter"]) == (model, "cpu", None)
    assert start["params"] > 1000
    assert [(e["event"], e["step"]) for e in steps] == [("step", i) for i in range(1, 7)]
    assert all(math.isfinite(e["loss"]) and e["ms"] > 0 for e in steps)
    assert done["event"] == "done"
    assert done["steps"] == 6
    assert done["final_loss"] == pytest.approx(sum(e["loss"] for e in steps) / 6)
    assert done["kernels"] > 5
    assert done["uops_forward"] > 10
    assert done["uops_backward"] > done["uops_forward"]
    assert done["median_ms"] > 0
    assert done["compile_s"] > 0
    assert done["final_loss_steps"] == 6
    assert "accuracy" in done["sample"]
    assert outcome.err == ""


def test_a_watched_run_says_how_many_kernels_it_would_have(capsys: pytest.CaptureFixture[str]) -> None:
    """The norm of the gradients keeps some of them from being fused with their updates."""
    options = ("train", "mlp", "--steps", "4", "--device", "cpu", "--json")
    plain, watched = (run(capsys, *options, *more).events[-1] for more in ((), ("--vitals",)))
    assert plain["kernels_unwatched"] is None
    assert watched["kernels"] > watched["kernels_unwatched"] == plain["kernels"]


def test_the_models_learn(capsys: pytest.CaptureFixture[str]) -> None:
    for model, steps, loss in (("mlp", 300, 0.2), ("conv", 100, 2.0)):
        outcome = run(capsys, "train", model, "--steps", str(steps), "--device", "cpu", "--json")
        assert outcome.events[-1]["final_loss"] < loss, model


def test_shakespeare_starts_where_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "train", "nanogpt", "--steps", "3", "--batch", "4", "--device", "cpu", "--json")
    start, first, *_, done = outcome.events
    assert first["loss"] == pytest.approx(4.17, abs=0.1)
    assert start["params"] > 700_000
    assert len(done["sample"]) > 200
    assert done["sample"].startswith("ROMEO:")


def test_equal_seeds_give_equal_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def losses(seed: str) -> list[float]:
        outcome = run(capsys, "train", "mlp", "--steps", "4", "--seed", seed, "--device", "cpu", "--json")
        return [e["loss"] for e in outcome.events if e["event"] == "step"]

    assert losses("5") == losses("5") != losses("6")


def test_a_pipe_gets_plain_lines_without_colour() -> None:
    outcome = run_process("train", "mlp", "--steps", "5", "--log-every", "2", "--device", "cpu")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert [m[1] for m in map(STEP.match, lines) if m] == ["1", "2", "4", "5"]
    assert any(re.match(r"done: 5 steps  final loss [\d.]+ \(mean of the last 5\)  median", line) for line in lines)
    assert any(re.match(r"forward \d+ uops  backward \d+ uops  fused into \d+ kernels", line) for line in lines)
    assert "sample:" in lines
    assert "\x1b" not in outcome.out + outcome.err
    assert outcome.err.startswith("model   mlp: ")
    assert "made by examples/mlp.py" in outcome.err


def test_save_writes_the_weights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    path = tmp_path / "mlp.safetensors"
    assert run(capsys, "train", "mlp", "--steps", "2", "--device", "cpu", "--plain", "--save", str(path)).code == 0
    weights = load_file(path)
    assert weights["first.weight"].shape == (64, 2)
    assert all(np.isfinite(w).all() for w in weights.values())


def test_a_loss_that_runs_away_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "train", "conv", "--steps", "50", "--lr", "1e30", "--device", "cpu", "--plain")
    assert outcome.code == 2
    assert "try a smaller --lr" in outcome.err
    assert "Traceback" not in outcome.err


def _in_terminal(*arguments: str, **environ: str) -> tuple[int, str]:
    """`anneal ARGUMENTS` on a terminal of its own: exit code and everything drawn."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from anneal.cli import main; main()", *arguments],
        stdout=other, stderr=other, stdin=other, env={**os.environ, "TERM": "xterm-256color", **environ},
    )  # fmt: skip
    os.close(other)
    drawn = b""
    begun = time.monotonic()
    while True:
        if select.select([main], [], [], 0.1)[0]:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            drawn += piece
        if time.monotonic() - begun > 120:
            process.kill()
            break
    os.close(main)
    return process.wait(), drawn.decode("utf-8", "replace")


def test_a_terminal_gets_the_dashboard() -> None:
    code, drawn = _in_terminal(
        "train", "mlp", "--steps", "40", "--device", "cpu", PYTHONUTF8="1", COLORTERM="truecolor", COLORFGBG="15;0"
    )
    assert code == 0
    assert "anneal train mlp" in drawn
    assert "kernels" in drawn
    assert "points/s" in drawn
    assert any(0x2800 < ord(c) < 0x2900 for c in drawn)
    assert "accuracy on 300 unseen points" in drawn
    for colour in ("0;173;216", "255;112;67", "255;193;7"):  # teal, ember, gold
        assert f"38;2;{colour}m" in drawn


def test_no_color_is_honoured() -> None:
    _, drawn = _in_terminal("train", "mlp", "--steps", "5", "--device", "cpu", NO_COLOR="1", COLORTERM="truecolor")
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]m|38;)", drawn)


def test_interrupt_of_json_says_so() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from anneal.cli import main; main()", "train", "mlp", "--steps", "1000000", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "ANNEAL_DEVICE": "cpu"},
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    done = json.loads(out.splitlines()[-1])
    assert process.returncode == 130
    assert done["event"] == "done"
    assert done["stopped"] is True
    assert "Traceback" not in err


def test_progress_measures_what_it_says() -> None:
    progress = Progress(losses=[float(i) for i in range(100)], times=[3000.0, 1000.0] + [10.0] * 98)
    assert progress.final_loss == pytest.approx(sum(range(50, 100)) / 50)
    assert progress.median_ms == 10.0
    assert progress.final_steps == 50
    assert (Progress().final_loss, Progress().final_steps) == (None, 0)
    assert Progress(losses=[1.0, 2.0]).final_steps == 2


@pytest.mark.parametrize(
    "model",
    [
        "mlp",
        "makemore-mlp",
        *[pytest.param(m, marks=pytest.mark.deep) for m in MODELS if m not in ("gpt2", "mlp", "makemore-mlp")],
    ],
)
def test_what_is_shown_on_the_way_changes_nothing(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    losses = []
    for flags in ((), ("--samples", "2", "--vitals")):
        outcome = run(capsys, "train", model, "--steps", "6", "--batch", "4", "--json", "--device", "cpu", *flags)
        events = [json.loads(line) for line in outcome.out.splitlines()]
        losses.append([e["loss"] for e in events if e["event"] == "step"])
    assert losses[0] == losses[1]
    assert [e["step"] for e in events if e["event"] == "sample"] == [2, 4]
    *_, kernels = [e for e in events if e["event"] == "kernels"]
    assert kernels["times"]["kernels"]["count"] >= 3, "of one step nobody knows what came between"
    assert kernels["slowest"][0]["seconds"] >= kernels["slowest"][-1]["seconds"] > 0
    pictures = [e["picture"] for e in events if e["event"] == "sample" and e["picture"]]
    assert all((tmp_path / p).is_file() for p in pictures)


def test_a_training_starts_from_weights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = str(tmp_path / "w.safetensors")
    flags = ("--batch", "32", "--device", "cpu", "--json")
    first = run(capsys, "train", "mlp", "--steps", "60", *flags, "--save", place).events
    again = run(capsys, "train", "mlp", "--steps", "1", *flags, "--start", place).events
    assert again[1]["loss"] < 0.9 * first[1]["loss"]
    assert run(capsys, "train", "conv", "--steps", "1", *flags, "--start", place).code != 0
    assert "--model-dir" in run(capsys, "train", "gpt2", "--start", place).err
