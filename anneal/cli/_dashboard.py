"""The screen that `anneal train` draws on a terminal: the curve of the loss, the measurements, the kernels."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from anneal import progress
from anneal.cli._output import NOW, console, data, fits, harmless, hold_messages, message, phase_colours, sized
from anneal.cli._reporters import PlainLines, Progress, Start

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_LOOK = 0.05  # seconds between two looks at the terminal's size
_DRAWN = 0.25  # seconds between two frames
_WIDEST, _TALLEST, _PRINTED = 120, 40, 24  # columns and lines of a frame; lines of the one that is printed at the end


def leave() -> None:
    """Give the terminal back, if a dashboard has it: for whoever ends the process on the spot."""
    if NOW.dashboard is not None:
        NOW.dashboard.close()


class Dashboard(PlainLines):
    """A reporter that draws; before the first step and after the last one it tells what `PlainLines` does.

    It fills the terminal's other screen, which terminals neither scroll nor fold when they are resized; each frame is
    made for the size that the terminal has then, and replaces all of it. When it is given back the terminal is as it
    was before, and the last frame is printed below.
    """

    def __init__(self) -> None:
        super().__init__(every=1, measures=True)
        self._progress = Progress()
        self._said: list[str] = []
        self._lock = threading.RLock()  # a signal's handler draws, whoever is drawing
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="anneal-dashboard", daemon=True)
        self._failed: BaseException | None = None
        self._size, self._at = (0, 0), 0.0
        self._signals: dict[int, Any] = {}

    # -- a reporter

    def start(self, start: Start) -> None:
        super().start(start)
        self._progress.before = start.before
        self._enter()
        self._thread.start()

    def step(self, progress: Progress) -> None:
        self._progress = progress
        if self._failed is not None:
            raise self._failed

    def sampled(self, progress: Progress) -> None:
        """Keep a sample until the terminal is given back, and print it then, since the curve fills the screen."""
        message(f"sample after step {progress.count}:\n{harmless(progress.sample)}")

    def ended(self, progress: Progress) -> None:
        """Give the terminal back: what is said while the model draws stands below."""
        self._progress = progress
        self.close()

    def close(self) -> None:
        with self._lock:
            if NOW.dashboard is not self:
                return
            self._ended.set()
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(ValueError):  # of another thread than the first; Ctrl-C is not heard meanwhile
                    stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))
                self._leave()
                NOW.dashboard = None
                if self._progress.losses and self._failed is None:
                    self._print()
                for text in self._said:
                    message(text)
                self._said.clear()

    # -- the terminal

    def _enter(self) -> None:
        NOW.dashboard = self
        progress.silence()
        hold_messages(self._say)
        data(_ENTER, end="")
        for name, handler in (("SIGTERM", self._ends), ("SIGHUP", self._ends), ("SIGTSTP", self._rests)):
            # a system may have no such signal, and another thread than the first has none
            with contextlib.suppress(ValueError, AttributeError):
                number = getattr(signal, name)
                self._signals[number] = signal.signal(number, handler)
        self._draw()

    def _leave(self) -> None:
        data(_LEAVE, end="")
        hold_messages(None)
        progress.silence(False)
        while self._signals:
            number, handler = self._signals.popitem()
            signal.signal(number, handler)

    def _ends(self, number: int, _: object) -> None:
        """Handle a signal that ends the process: give the terminal back first."""
        self.close()
        os.kill(os.getpid(), number)

    def _rests(self, number: int, _: object) -> None:
        """Handle Ctrl-Z: give the terminal to the shell while the process is stopped."""
        with self._lock:
            self._leave()
            os.kill(os.getpid(), number)
            self._enter()

    def _say(self, text: str) -> None:
        self._said.append(text)
        self._draw()

    def _redraw(self) -> None:
        drawn: tuple[object, ...] = ()
        while not self._ended.wait(_LOOK):
            now, size = time.monotonic(), _size()
            state = (self._progress.count, now // 1)
            if size != self._size or (state != drawn and now - self._at >= _DRAWN):
                drawn = state
                self._draw()

    def _draw(self) -> None:
        with self._lock:
            if NOW.dashboard is not self or self._start is None or self._failed is not None:
                return
            self._at, self._size = time.monotonic(), _size()
            try:
                width, height = self._size
                lines = frame(self._start, self._progress, min(width, _WIDEST), min(height, _TALLEST), self._said[-1:])
                data(_drawing(_painted(lines, width), *self._size), end="")
            except BaseException as error:
                self._failed = error  # the training thread raises it

    def _print(self) -> None:
        """The last frame, for the terminal to keep."""
        assert self._start is not None
        width, height = _size()
        for text in _painted(frame(self._start, self._progress, min(width, _WIDEST), min(height - 2, _PRINTED)), width):
            data(text, whole=True)


def _size() -> tuple[int, int]:
    """Columns and lines of the terminal, as it is now."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return progress.columns(sys.stdout), 24
    return found.columns or 80, found.lines or 24


def _drawing(lines: Sequence[str], width: int, height: int) -> str:
    """A frame over whatever stands on the screen.

    What is left of a wider frame is erased where there is room beside or below this one, and nowhere else: behind a
    line of the terminal's width the cursor stays on its last column, and to erase from there takes the border away.
    """
    beside = "\x1b[K" if width > _WIDEST else ""
    below = "\r\n\x1b[J" if len(lines) < height else ""
    return "\x1b[?2026h\x1b[H" + f"{beside}\r\n".join(lines) + beside + below + "\x1b[?2026l"


def _painted(lines: list[Text], width: int) -> list[str]:
    """The lines as the terminal takes them."""
    screen = console(width)
    with screen.capture() as captured:
        for line in lines:
            screen.print(line, width=width, no_wrap=True, overflow="crop", crop=True, soft_wrap=False)
    return captured.get().rstrip("\n").split("\n")


# -- the picture -------------------------------------------------------------------------------------------------------


def frame(start: Start, made: Progress, width: int, height: int, said: list[str] | None = None) -> list[Text]:
    """The lines of a frame of so many columns and lines: a box with what there is room for, the curve above all."""
    fancy = fits("\u2500\u2502\u256d\u28ff\u2501\u25a0")
    inner = width - 4
    below = [*_figures(start, made, inner), *_kernels(made, inner, fancy, height)]
    end = [_bar(start, made, inner, fancy)]
    end += [Text(text.splitlines()[0], style="bold") for text in said or () if text.strip()]
    room = height - 3 - len(below) - len(end)
    if room < 6:  # a low terminal: the curve and the essential
        below = below[: max(0, height - 9 - len(end))]
        room = height - 3 - len(below) - len(end)
    top = []
    painted = phase_colours()
    if room >= 3:
        mean = share(len(made.losses), inner, fancy)
        about = "loss by step" + (f", each column of dots the mean of about {mean:,}" if mean > 1 else "")
        top.append(Text(about, style="dim"))
        if made.losses:
            for axis, curve in chart(made.losses[:], inner, room, first=made.before + 1, braille=fancy):
                top.append(Text.assemble((axis, "dim"), (curve, painted["forward"])))
        else:
            top += [Text("")] * room
    return _boxed([*top, *below, *end], f"anneal train {start.model}", width, fancy)


def _boxed(lines: list[Text], title: str, width: int, fancy: bool) -> list[Text]:
    left, flat, right, side, low_left, low_right = "\u256d\u2500\u256e\u2502\u2570\u256f" if fancy else "+-+|++"
    name = Text(f" {title} ", "bold")
    head = name if name.cell_len < width - 4 else Text()
    out = [Text.assemble((left + flat, "dim"), head, (flat * (width - 3 - head.cell_len) + right, "dim"))]
    for line in lines:
        if line.cell_len > width - 4 and not fancy:
            line.truncate(width - 7, overflow="crop")
            line += Text("...")
        line.truncate(width - 4, overflow="ellipsis", pad=True)
        out.append(Text.assemble((f"{side} ", "dim"), line, (f" {side}", "dim")))
    return [*out, Text(low_left + flat * (width - 2) + low_right, "dim")]


def _rows(parts: Sequence[str | Text], width: int) -> list[Text]:
    """Facts side by side, as many as a line has room for; none is broken."""
    lines: list[Text] = []
    for part in parts:
        text = Text() + part
        if lines and lines[-1].cell_len + 3 + text.cell_len <= width:
            lines[-1] += Text("   ") + text
        else:
            lines.append(text)
    return lines


def _figures(start: Start, made: Progress, width: int) -> list[Text]:
    """The losses, each labelled for what it is, and what is measured."""
    if not made.losses:
        work = progress.running()
        return _rows([progress.line(work[-1], time.monotonic(), width) if work else "compiling the first step"], width)
    recent = statistics.median(made.times[-25:]) or 1e-9
    loss = [
        f"loss {made.losses[-1]:.4g} in the last step",
        f"{made.final_loss:.4g} the mean of the last {made.final_steps}",
        f"{min(made.losses):.4g} the least",
    ]
    facts = [f"{recent:.1f} ms a step", f"{start.examples_per_step / recent * 1e3:,.0f} {start.unit}/s"]
    shown = {"lr": "learning rate {:.3g}", "norm": "gradient norm {:.3g}"}
    facts += [text.format(made.vitals[k]) for k, text in shown.items() if made.vitals.get(k) is not None]
    if (used := made.vitals.get("bytes")) is not None:
        facts.append(f"memory {sized(used)}")
    ranks = [
        f"rank {n}: {r['median_ms']:.1f} ms, {r['waiting']:.0%} of it waiting, "
        f"{sized(int(r['sent_bytes']))} sent a step"
        for n, r in enumerate(made.ranks)
    ]
    return [*_rows(loss, width), *_rows(facts, width), *_rows(ranks, width)]


def _kernels(made: Progress, width: int, fancy: bool, height: int) -> list[Text]:
    """The number of kernels of a step, by phase, and the slowest of them."""
    if not made.kernels:
        return []
    mark, painted = "\u25a0 " if fancy else "", phase_colours()
    phases = [Text.assemble((mark, painted.get(p, "")), f"{n} {p}") for p, n in made.phases.items()]
    lines = _rows([f"{made.kernels} fused kernels a step", *phases], width)
    slowest = made.slowest[: 3 if height < 30 else 6]
    if slowest:
        lines.append(Text(_measured(made), style="dim"))
    unit = "\u00b5s" if fancy else "us"
    for k in slowest:
        took = f"{k.seconds * 1e6:>9,.0f} {unit} {100 * k.share:>3.0f} %  "
        lines.append(Text.assemble(took, (mark, painted.get(k.phase, "")), f"{k.phase:8} {k.label}"))
    return lines


def _measured(made: Progress) -> str:
    """The source of the kernels' times: the number of steps, and their sum beside the step."""
    from anneal.runtime import said

    sums, step, python = [made.measured.get(name) for name in ("kernels", "step", "python")]
    if not sums:
        return "the slowest of them"
    rest = f", Python {said(python['median'])}" if python else ""
    whole = f" of a step of {said(step['median'])}{rest}" if step else ""
    return f"the slowest: medians of {sums['count']} steps; all kernels {said(sums['median'])}{whole}"


def _bar(start: Start, made: Progress, width: int, fancy: bool) -> Text:
    """The bar of the steps, with the time left."""
    recent = statistics.median(made.times[-25:]) if made.times else 0.0
    left = (start.steps - made.count) * recent / 1e3
    hours, minutes, seconds = int(left // 3600), int(left // 60) % 60, int(left % 60)
    clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    said = f"  step {made.count:,} of {start.steps:,}" + (f", {clock} left" if made.times else "")
    room = max(width - len(said), 0)
    full = min(room, room * made.count // max(start.steps, 1))
    done, rest = ("\u2501", "\u2500") if fancy else ("=", "-")
    return Text.assemble((done * full, phase_colours()["update"]), (rest * (room - full), "dim"), said)


# -- a loss curve drawn with characters, between axes -----------------------------------------------------------------


# The bit of each of a braille cell's dots, [row][column], over U+2800.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def chart(
    values: Sequence[float], width: int, height: int, *, first: int = 1, braille: bool = True
) -> list[tuple[str, str]]:
    """`height` lines of at most `width` characters that plot `values` from left to right over their numbers, which
    begin with `first`; each line as its axis and its part of the curve.

    Each column of dots shows the mean of its share of the values: see `share`. The last two lines are the axis below.
    Without braille, one mark per character.

    >>> for axis, curve in chart([4.0, 3.0, 2.0, 1.0], 16, 6, braille=False):
    ...     print(f"{axis}{curve}".rstrip())
      4 +***
        |   ***
      2 +      ***
        |         **
        +-----------
    <BLANKLINE>
    """
    rows = max(height - 2, 1)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high == low:
        low, high = low - 0.5, high + 0.5
    marks = ticks(low, high, max(rows // 3, 2))
    digits = _digits(marks)
    labels = [f"{m:.{digits}f}" for m in marks]
    label = max([3, *map(len, labels)])
    across, down = (2, 4) if braille else (1, 1)
    cells = max(width - label - 2, 1)
    columns, dots = cells * across, rows * down

    def row_of(value: float) -> int:
        return min(dots - 1, int((high - value) / (high - low) * (dots - 1) + 0.5))

    drawn = [[0] * cells for _ in range(rows)]
    for column, value in enumerate(_resample(values, columns)):
        row = row_of(value)
        drawn[row // down][column // across] |= _DOTS[row % 4][column % 2] if braille else 1
    named = {row_of(m) // down: text for m, text in zip(marks, labels)}
    side, tick = ("\u2502", "\u2524") if braille else ("|", "+")
    mark = "" if braille else "*"
    lines = []
    for i, line in enumerate(drawn):
        text = "".join((mark or chr(0x2800 + c)) if c else " " for c in line).rstrip()
        lines.append((f"{named.get(i, ''):>{label}} {tick if i in named else side}", text))
    return lines + [(" " * (label + 1) + line, "") for line in _below(first, len(values), cells, braille)]


def share(count: int, width: int, braille: bool = True) -> int:
    """About how many of `count` values a column of the curve is the mean of, in a chart of `width` characters.

    >>> share(50, 60), share(2000, 60)
    (1, 19)
    """
    return max(1, round(count / max((width - 6) * (2 if braille else 1), 1)))


def _below(first: int, count: int, cells: int, braille: bool) -> tuple[str, str]:
    """The axis below, and the numbers under its ticks."""
    corner, flat, tick = ("\u2514", "\u2500", "\u252c") if braille else ("+", "-", "+")
    line, text, end = [flat] * cells, [" "] * (cells + 1), 0
    last = first + count - 1
    for mark in ticks(first, last, max(cells // 14, 1)) if count > 1 else ():
        label = f"{mark:,.0f}"
        at = min(int((mark - first) / (last - first) * (cells - 1) + 0.5), cells - 1)
        begin = at + 1 - len(label) // 2
        if mark != int(mark) or begin < end or begin + len(label) > cells + 1:
            continue
        line[at] = tick
        text[begin : begin + len(label)] = label
        end = begin + len(label) + 1
    return corner + "".join(line), "".join(text).rstrip()


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, as far apart as 1, 2 or 5 times a power of ten: about `most` of them.

    >>> ticks(0.13, 4.2, 4), ticks(1, 500, 6), ticks(1.874, 1.8791, 3)
    ([1.0, 2.0, 3.0, 4.0], [100.0, 200.0, 300.0, 400.0, 500.0], [1.874, 1.876, 1.878])
    """
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.7)
    begin, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(begin, end + 1)]


def _digits(marks: Sequence[float]) -> int:
    """The decimals in which neighbouring ticks differ."""
    gap = min([b - a for a, b in itertools.pairwise(marks)], default=1.0)
    return max(0, -math.floor(math.log10(gap) + 1e-9)) if gap > 0 else 0


def _resample(values: Sequence[float], columns: int) -> list[float]:
    count = len(values)
    if count <= columns:
        return [values[i * count // columns] for i in range(columns)] if count > 1 else list(values)
    edges = [i * count // columns for i in range(columns + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
