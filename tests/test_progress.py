"""What long work says of itself: where, when, and how it makes room for others."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from anneal import progress
from anneal.progress import Work, line, shown, silence, told, work, yields


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.02)
    monkeypatch.setattr(progress, "EVERY", 0.05)
    monkeypatch.setattr(progress, "REDRAWN", 0.03)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "COLORFGBG", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def said(terminal: bool, seconds: list[float], what: str = "drawing") -> str:
    stream = Stream(terminal)
    with shown(stream):
        for n in told(range(len(seconds)), what, len(seconds)):
            time.sleep(seconds[n])
    return stream.getvalue()


def test_quick_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 1.0)
    assert said(False, [0.01] * 10) == ""
    assert said(True, [0.01] * 10) == ""


def test_the_library_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with work("compiling"):
        for _ in told(range(3), "drawing", 3):
            time.sleep(0.06)
    assert capfd.readouterr() == ("", "")
    assert progress.running() == []


def test_lines_in_a_pipe() -> None:
    lines = said(False, [0.2, 0.1, 0.1, 0.01]).splitlines()
    assert len(lines) >= 3
    assert lines[0] == "drawing: 0 of 4, 0 s", "also while the first piece of work goes on"
    assert all(re.fullmatch(r"drawing: [0-3] of 4, \d+ s(, \d+ s left)?", x) for x in lines)


def test_a_bar_on_a_terminal_that_is_taken_away() -> None:
    drawn = said(True, [0.15, 0.1])
    assert "\n" not in drawn
    assert drawn.startswith("\rdrawing  ")
    assert "\x1b[38;5;31m" in drawn
    assert drawn.endswith("\r\x1b[K")


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[38" not in said(True, [0.15])


def luminance(hue: str) -> float:
    """The relative luminance of "#rrggbb", from 0 to 1 (WCAG 2.2)."""
    parts = [int(hue[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("hue", ["teal", "ember", "gold"])
@pytest.mark.parametrize(
    ("variable", "grounds"),
    [("", "dark light"), ("0;15", "light"), ("0;default;7", "light"), ("15;0", "dark"), ("7;8", "dark")],
)
def test_every_colour_stands_out_from_its_ground(
    monkeypatch: pytest.MonkeyPatch, hue: str, variable: str, grounds: str
) -> None:
    """At 4.5 : 1, the contrast of legible text, on white and on black where the ground is not known."""
    if variable:
        monkeypatch.setenv("COLORFGBG", variable)
    found = luminance(progress.colour(hue)) + 0.05
    contrast = {"light": 1.05 / found, "dark": found / 0.05}
    assert min(contrast[ground] for ground in grounds.split()) >= 4.5
    assert progress.ground() == (grounds if variable else "")


@pytest.mark.parametrize(("terminal", "code"), [("truecolor", "38;2;0;128;160"), ("", "38;5;31")])
def test_a_bar_is_painted_as_the_terminal_can(monkeypatch: pytest.MonkeyPatch, terminal: str, code: str) -> None:
    monkeypatch.setenv("COLORTERM", terminal)
    told_of = Work("compiling", 4)
    told_of.step(2)
    assert f"\x1b[{code}m#" in line(told_of, told_of.begun, 59, "#-", progress.colour("teal"))


def test_the_innermost_work_that_takes_long_is_shown() -> None:
    stream = Stream(False)
    with shown(stream), work("training", 10), work("compiling"):
        time.sleep(0.15)
    assert set(stream.getvalue().splitlines()) == {"compiling: 0 s"}


def test_others_write_on_a_line_of_their_own() -> None:
    stream = Stream(True)
    with shown(stream), work("training", 10):
        time.sleep(0.12)
        yields("step 1\n")
        stream.write("step 1\n")
        time.sleep(0.12)
        yields("half a")
        stream.write("half a")
        time.sleep(0.12)
    text = stream.getvalue()
    assert "\r\x1b[Kstep 1\n\rtraining" in text
    assert text.endswith("\r\x1b[Khalf a"), "a bar over text that somebody goes on with"


def test_silence() -> None:
    stream = Stream(True)
    with shown(stream), work("training", 10):
        silence()
        time.sleep(0.12)
    assert stream.getvalue() == ""


def test_a_stream_that_takes_nothing_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(False)
    with shown(stream), work("training"):
        stream.close()
        time.sleep(0.12)
    monkeypatch.setattr(sys, "stderr", None)
    with shown():
        assert list(told([1], "x", 1)) == [1]


def test_an_error_ends_the_work() -> None:
    with pytest.raises(ValueError), shown(Stream(False)), work("x"):
        raise ValueError
    assert progress.running() == []


@pytest.mark.parametrize("width", [20, 40, 60, 80])
@pytest.mark.parametrize("total", [None, 0, 7, 548_105_171])
def test_a_line_fits(width: int, total: int | None) -> None:
    told_of = Work("downloading model.safetensors", total, "B" if total and total > 99 else "")
    told_of.resume(total // 3 if total else 0)
    told_of.step(5)
    told_of.note = "the server does not answer; again in 3 s"
    text = line(told_of, told_of.begun + 75, width, "#-")
    assert len(text) <= width
    whole = line(told_of, told_of.begun + 75)
    assert "\u2026" not in whole
    for word in re.findall(r"\w+", text.partition("\u2026")[0])[:-1]:
        assert word in whole
