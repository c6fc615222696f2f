"""The screen of a training: what stands on it at every size, and the terminal that it leaves behind."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anneal.cli import _dashboard
from anneal.cli._dashboard import Dashboard, frame
from anneal.cli._output import complain, message
from anneal.cli._reporters import Progress, Slow, Start
from tests.cli.snapshots import check_lines, matches

pytest.importorskip("pty")  # Windows has none
from tests.cli.terminal import Terminal

START = Start(
    model="nanogpt", info="4 layers, 4 heads, width 128", data="Tiny Shakespeare", device="webgpu",
    adapter="NVIDIA H100", params=824_000, steps=5000, batch=32, seed=1, lr=1e-3, unit="tokens", examples_per_step=4096,
)  # fmt: skip


def made(steps: int) -> Progress:
    return Progress(
        losses=[2.8 * math.exp(-n / 500) + 1.4 + 0.2 * math.sin(n * 12.9898) for n in range(steps)],
        times=[4.2] * steps, kernels=34, phases={"forward": 12, "backward": 15, "update": 7},
        slowest=[
            Slow("backward", "h.0.attn: scaled_dot_product_attention + linear", 1.24e-3, 0.21),
            Slow("forward", "h.0.mlp: linear + gelu", 0.31e-3, 0.05),
        ],
        measured={"kernels": {"median": 3.6e-3, "count": 64}, "step": {"median": 4.2e-3}, "python": {"median": 4e-4}},
        vitals={"lr": 9.1e-4, "norm": 0.8312, "bytes": 245_000_000},
    )  # fmt: skip


SIZES = [(60, 24), (80, 24), (80, 40), (120, 30), (200, 50)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_frames(monkeypatch: pytest.MonkeyPatch, width: int, height: int, encoding: str) -> None:
    monkeypatch.setattr(_dashboard, "fits", lambda text: encoding == "utf-8")
    lines = [line.plain for line in frame(START, made(1230), min(width, 120), min(height, 40))]
    assert {len(line) for line in lines} == {min(width, 120)}, "a torn box"
    assert len(lines) <= height
    if encoding == "ascii":
        assert "".join(lines).isascii()
    check_lines(lines, width)
    matches(f"dashboard-{width}x{height}-{encoding}", "\n".join(lines))


@pytest.mark.parametrize("width", range(24, 130, 7))
@pytest.mark.parametrize("height", [8, 12, 24, 60])
@pytest.mark.parametrize("steps", [0, 1, 2, 300])
def test_a_frame_of_any_size_is_whole(width: int, height: int, steps: int) -> None:
    lines = frame(START, made(steps), width, height, ["stopping after this step; Ctrl-C again stops at once"])
    assert {line.cell_len for line in lines} == {width}
    assert len(lines) <= max(height, 4)


def test_it_says_what_each_loss_is() -> None:
    text = "\n".join(line.plain for line in frame(START, made(100), 100, 30))
    assert f"loss {made(100).losses[-1]:.4g} in the last step" in text
    assert f"{sum(made(100).losses[-50:]) / 50:.4g} the mean of the last 50" in text
    assert "learning rate 0.00091" in text
    assert "gradient norm 0.831" in text
    assert "memory 245 MB" in text


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal(80, 30)
    yield found
    found.close()


def boxed(terminal: Terminal) -> None:
    """The screen is one whole box of the terminal's width."""
    lines = [line for line in terminal.lines if line]
    width = min(terminal.screen.columns, 120)
    assert lines[0].startswith("\u256d\u2500 anneal train nanogpt "), terminal.text
    assert lines[-1] == "\u2570" + "\u2500" * (width - 2) + "\u256f", terminal.text
    for line in lines[1:-1]:
        assert (line[0], line[-1], len(line)) == ("\u2502", "\u2502", width), terminal.text


def until(terminal: Terminal, done: Callable[[], None]) -> None:
    end = time.monotonic() + 20
    while True:
        terminal.read(0.05)
        try:
            return done()
        except AssertionError:
            if time.monotonic() > end:
                raise


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 121, 200])
def test_both_borders_stand_while_it_is_live(columns: int) -> None:
    """Also where names are long and characters take two columns, and on a terminal as low as the frame."""
    progress = made(50)
    progress.slowest = [
        Slow("backward", "h.0.attn.projection_of_the_heads: linear + gelu" * 4, 1e-3, 0.5),
        Slow("forward", "\u5c42.0.\u6ce8\u610f: \u7ebf\u6027" * 12, 1e-3, 0.5),
    ]
    terminal = Terminal(columns, 22)
    try:
        with terminal.as_output():
            dashboard = Dashboard()
            try:
                dashboard.start(START)
                dashboard.step(progress)
                message("\u505c\u6b62 " * 60)
                until(terminal, lambda: bordered(terminal))
            finally:
                dashboard.close()
    finally:
        terminal.close()


def bordered(terminal: Terminal) -> None:
    """Every line of the screen begins and ends with a border, by columns: pyte has an empty cell behind a wide one."""
    screen = terminal.screen
    width = min(screen.columns, 120)
    assert "\u5c42.0." in terminal.text
    assert "\u505c\u6b62" in terminal.text
    ends = [(screen.buffer[y][0].data, screen.buffer[y][width - 1].data) for y in range(screen.lines)]
    sides = [("\u2502", "\u2502")] * (screen.lines - 2)
    assert ends == [("\u256d", "\u256e"), *sides, ("\u2570", "\u256f")], terminal.text


def test_it_is_whole_after_every_resize_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    with terminal.as_output():
        print("what stood there before")
        dashboard = Dashboard()
        progress = made(50)
        try:
            dashboard.start(START)
            for columns, lines in ((80, 30), (60, 24), (61, 12), (60, 20), (120, 40), (200, 50)):
                terminal.resize(columns, lines)
                progress.losses += progress.losses[:7]
                progress.times += progress.times[:7]
                dashboard.step(progress)
                until(terminal, lambda: boxed(terminal))
            progress.sample = "To be,\nor not"
            dashboard.sampled(progress)
            until(terminal, lambda: boxed(terminal))
            message("stopping after this step; Ctrl-C again stops at once")
            until(terminal, lambda: boxed(terminal))
            assert "stopping after this step" in terminal.text
        finally:
            dashboard.close()
    terminal.read()
    assert terminal.lines[0] == "what stood there before"
    text = terminal.text
    assert "To be,\nor not" in text
    assert text.index("model   nanogpt") < text.index("\u256d\u2500 anneal train") < text.index("stopping after")
    assert terminal.raw.count(b"\x1b[?1049h") == terminal.raw.count(b"\x1b[?1049l") == 1
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l"), "the cursor stays hidden"
    assert terminal.raw.rindex(b"\x1b[?7h") > terminal.raw.rindex(b"\x1b[?7l"), "lines stay cut"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_whatever_ends_it_the_terminal_is_given_back(terminal: Terminal, error: type[BaseException]) -> None:
    from anneal.cli import _give_back

    with terminal.as_output(), pytest.raises(error):
        try:
            dashboard = Dashboard()
            dashboard.start(START)
            complain("anneal: something is wrong")
            raise error
        finally:
            _give_back()
    terminal.read()
    assert "anneal: something is wrong" in terminal.text
    assert terminal.raw.endswith(b"wrong\r\n")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_stdout_that_is_gone_stops_the_training(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError("gone")

    with terminal.as_output():
        dashboard = Dashboard()
        dashboard.start(START)
        out = sys.stdout
        try:
            with monkeypatch.context() as patch:
                patch.setattr("anneal.cli._dashboard.data", gone)
                dashboard._draw()
                with pytest.raises(OSError, match="gone"):
                    dashboard.step(made(3))
        finally:
            sys.stdout = out
            dashboard.close()
    assert not dashboard._thread.is_alive() or dashboard._thread.join(2) is None


def test_interrupted_while_it_trains(terminal: Terminal, tmp_path: Path) -> None:
    """The command itself: a resize in the middle, Ctrl-C, and what stands there afterwards."""
    import subprocess

    env = {**os.environ, "TERM": "xterm-256color", "ANNEAL_DEVICE": "cpu"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        env.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-c", "from anneal.cli import main; main()", "train", "mlp", "--steps", "200000"],
        stdin=terminal.slave, stdout=terminal.slave, stderr=terminal.slave, env=env, cwd=tmp_path,
    ) as child:  # fmt: skip
        try:
            terminal.wait("the slowest: medians of")
            terminal.resize(60, 24)
            terminal.wait("step 1,")
            child.send_signal(signal.SIGINT)
            terminal.wait("sample:")
        finally:
            reader = threading.Thread(target=terminal.read, args=(1.0,))
            reader.start()
            assert child.wait(60) == 130
            reader.join()
    check_lines(terminal.lines, 60)
    assert "stopped after" in terminal.text
    assert "Traceback" not in terminal.text
