"""What every command prints on terminals of 60, 80, 120 and 200 columns, as files to look at, and held to what a pipe
gets: no line is too long, no word broken, nothing cut without an ellipsis.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from anneal import settings
from anneal.cli import main
from anneal.cli.commands import COMMANDS
from anneal.runtime.meter import Spread, Times
from tests.cli.snapshots import check_lines, matches
from tests.cli.test_gpt2 import make
from tests.examples.test_llama2c import write as write_llama
from tests.tiers import thinned

WIDTHS = (60, 80, 120, 200)


class Screen(io.StringIO):
    """A stream that says it is a terminal, or that it is none."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def isatty(self) -> bool:
        return self.terminal

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


def printed(arguments: list[str], width: int | None, monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    """What stands on a terminal of so many columns after the command, or in a pipe; both streams, the codes of colours
    taken out.
    """
    stream = Screen(width is not None)
    # a pipe has no width; what reads one all the same gets this
    for name, value in {"COLUMNS": str(width or 5000), "LINES": "24", "TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    for name in {"NO_COLOR", "COLORTERM", "COLORFGBG"} - environ.keys():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        with settings.override(device="cpu"):
            main(arguments)
    except SystemExit:
        pass
    finally:
        monkeypatch.setattr(sys, "stdout", sys.__stdout__)
        monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    return stream.getvalue()


def without_codes(text: str) -> str:
    text = re.sub(r"\r[^\n]*\x1b\[K", "", text)  # the bar of work that takes long here
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    from tests.onnx.test_models import mlp

    place = tmp_path_factory.mktemp("screens")
    (place / "llama").mkdir()
    write_llama(place / "llama")
    (place / "m.onnx").write_bytes(mlp())
    (place / "cache").mkdir()
    (place / "script.py").write_text("from anneal.tensor import Tensor\n(Tensor.ones(3) + 1).tolist()\n")
    return {"gpt2": str(make(place / "gpt2")), "llama": str(place / "llama"), "onnx": str(place / "m.onnx"),
            "cache": str(place / "cache"), "out": str(place)}  # fmt: skip


LIVE = {
    "graph": "graph mlp --limit 14",
    "graph-until": "graph mlp --until linearise --kernel 1",
    "kernels": "kernels mlp",
    "kernels-step": "kernels mlp --step",
    "kernels-wgsl": "kernels mlp --wgsl 1",
    "kernels-lines": "kernels mlp --wgsl 1 --lines",
    "kernels-time": "kernels mlp --time",
    "explain": "explain",
    "explain-op": "explain mul",
    "explain-method": "explain conv2d",
    "explain-model": "explain --model mlp --limit 4",
    "check": "check mlp --batch 8",
    "train": "train mlp --steps 3 --plain",
    "record": "record {out}/script.py --device cpu",
    "doctor": "doctor",
    "doctor-verbose": "doctor --verbose",
    "gpt2": "gpt2 sample Hello --max-tokens 3 --model-dir {gpt2}",
    "llama2c": "run llama2c {llama}/model.bin --max-tokens 8",
    "onnx-info": "onnx info {onnx}",
    "onnx-run": "onnx run {onnx}",
    "onnx-check": "onnx check {onnx}",
    "onnx-export": "onnx export mlp -o {out}/e.onnx",
    "cache-ls": "cache ls",
    "cache-prune": "cache prune --all",
    "error-model": "train nanogtp",
    "error-option": "train mlp --stesp 3",
    "error-command": "trian mlp",
    "error-value": "train mlp --device gup",
    "error-pass": "graph mlp --until lienarise",
    "error-op": "explain sofmax",
    "error-file": "onnx info {out}/nowhere.onnx",
    "error-argument": "train",
    "error-kernel": "kernels mlp --wgsl nothing",
}
# Their text says what the compiler makes of a model, what the machine has or how fast it is, or comes from random
# weights, and changes with these: held to the rules below, and not to a file.
UNKEPT = {
    "kernels-time", "train", "gpt2", "llama2c", "graph", "graph-until", "kernels-wgsl", "kernels-lines", "kernels-step",
    "explain", "explain-op", "explain-method", "explain-model", "doctor", "doctor-verbose", "record", "cache-ls",
    "error-file", "onnx-export",  # folded by the length of a path
}  # fmt: skip


def same(text: str, places: dict[str, str]) -> str:
    """The text without what differs from one run, or one machine, to the next: times, names of devices, hashes."""
    for name, value in places.items():
        text = text.replace(value, f"<{name}>")
    text = re.sub(r"\b[a-z]+(?:_\d+)+(?:_by(?:_\d+)+)?_[0-9a-f]{6}\b", "<kernel>", text)
    text = re.sub(r"\d[\d,.]*(?= (?:ms|s|us|tokens/s|points/s|GFLOP/s|GB/s)\b)", "<n>", text)
    text = re.sub(r"\d+\.\d\d+(e-?\d+)?", "<n>", text)  # other machines sum in another order
    return re.sub(r" +\n", "\n", text)


def words(text: str) -> list[str]:
    """The words, without the marks of comments that go on, and of colours; all numbers are one."""
    found = re.sub(r"\d[\d,.]*", "0", text).split()
    return [w for w in found if w not in ("//", "#", "\u25a0")]


def check_screen(text: str, whole: str, width: int) -> None:
    """The text is that of a pipe, `whole`, in lines that fit: no word is broken, none is cut without an ellipsis, and
    none is missing where nothing is cut.
    """
    check_lines(text.splitlines(), width)
    there = words(whole)
    known = set(there)
    for word in words(text):
        if word not in known:
            assert word.endswith("\u2026"), f"{word!r} is not whole at {width} columns"
            assert any(w.startswith(word[:-1]) for w in known), f"{word!r} is of nothing at {width} columns"


def reasons() -> list[str]:
    """All that is said of times which do not agree."""
    low, high = Spread(0.002, 0.001, 0.003, 9), Spread(0.008, 0.006, 0.010, 9)
    return Times(
        runs=9, first=0.1, run=high, step=Spread(0.02, 0.01, 0.03, 9), others=low, python=high, kernels=low, timed=low,
        each=(), share=(), total=1.0, waited=0.5, beside=False, launches=6,
    ).reasons()  # fmt: skip


@pytest.mark.parametrize("name", thinned(LIVE, test=2, ci=2))
def test_screens(name: str, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = reasons()
    assert len(said) == 4
    monkeypatch.setattr(Times, "reasons", lambda times: said)  # one run's would not be the next one's
    arguments = [a.format(**places) for a in LIVE[name].split()]
    with settings.override(cache_dir=places["cache"], offline=True):
        whole = printed(arguments, None, monkeypatch)
        assert "\x1b" not in whole
        kept = []
        for width in WIDTHS:
            text = without_codes(printed(arguments, width, monkeypatch))
            check_screen(text, whole, width)
            if "\u2026" not in text and not name.startswith("kernels"):
                assert words(text) == words(whole), f"words are missing at {width} columns"
            kept.append(f"== {width} columns ==\n{same(text, places)}")
    if name not in UNKEPT:
        matches(name, "\n".join(kept), typer.__version__)


def commands() -> Iterator[list[str]]:
    yield []
    for name in COMMANDS:
        yield [name]
    for group, names in {
        "gpt2": ["sample"], "run": ["llama2c", "resnet9"], "onnx": ["info", "run", "check", "export"],
        "cache": ["where", "ls", "prune"], "data": ["tokenize"],
    }.items():  # fmt: skip
        for name in names:
            yield [group, name]


def test_what_works_can_be_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {c[0] for c in commands() if len(c) > 1}
    for command in commands():
        if command not in ([], ["web"], ["viz"], *[[g] for g in groups]):
            assert "--quiet" in printed([*command, "--help"], 80, monkeypatch), command


QUIET = ["train", "kernels-time", "doctor", "check", "onnx-run", "onnx-export"]


@pytest.mark.parametrize("name", QUIET)
def test_quiet_leaves_results(name: str, places: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    arguments = [a.format(**places) for a in LIVE[name].split()]
    with settings.override(device="cpu", cache_dir=places["cache"]), pytest.raises(SystemExit):
        main([*arguments, "--quiet"])
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out
    assert "step 1 " not in said.out
    with pytest.raises(SystemExit):
        main(["train", "nanogtp", "--quiet"])
    assert "Did you mean 'nanogpt'" in capfd.readouterr().err, "errors are told"


@pytest.mark.parametrize("command", list(commands()), ids=lambda c: "-".join(c) or "anneal")
def test_help(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    whole = printed([*command, "--help"], 200, monkeypatch)
    for width in WIDTHS:
        text = printed([*command, "--help"], width, monkeypatch)
        check_screen(text, whole, width)
        assert words(text) == words(whole)
        if width in (60, 120):
            kept.append(f"== {width} columns ==\n{text}")
    matches("-".join(["help", *command]), "\n".join(kept), typer.__version__)


COLOURFUL = ["kernels", "kernels-wgsl", "gpt2"]


@pytest.mark.parametrize("name", COLOURFUL)
def test_colours_are_left_out_where_they_are_not_wanted(
    name: str, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR, a dumb terminal and a light one: the words are the same."""
    monkeypatch.chdir(tmp_path)
    arguments = [a.format(**places) for a in LIVE[name].split()]
    colour = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m")
    shown = printed(arguments, 200, monkeypatch, TERM="xterm-256color", COLORTERM="truecolor")
    bare = printed(arguments, 200, monkeypatch, TERM="xterm-256color", NO_COLOR="1")
    dumb = printed(arguments, 200, monkeypatch, TERM="dumb")
    assert colour.search(shown) or name == "gpt2"
    assert not colour.search(bare)
    assert "\x1b" not in dumb
    assert words(without_codes(shown)) == words(without_codes(bare))
    for ground in ("15;0", "0;15"):  # a dark terminal, a light one; tests/test_progress.py has their colours
        there = printed(arguments, 200, monkeypatch, TERM="xterm-256color", COLORTERM="truecolor", COLORFGBG=ground)
        assert words(without_codes(there)) == words(without_codes(shown))
        assert bool(colour.search(there)) == bool(colour.search(shown))


def mistyped(word: str) -> str:
    """The word without a letter of its middle."""
    return word[: len(word) // 2 + 1] + word[len(word) // 2 + 2 :]


@pytest.mark.parametrize("command", [c for c in commands() if c], ids="-".join)
def test_a_typing_mistake_in_every_command_and_option(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest right one is named, and nothing else happens."""
    *above, name = command
    if len(name) > 3:
        said = printed([*above, mistyped(name)], None, monkeypatch)
        assert f"Did you mean '{name}'" in said, said
    for option in re.findall(
        r"^  (?:-\w, )?(--[a-z-]+)", printed([*command, "--help"], 200, monkeypatch), re.MULTILINE
    ):
        if len(option) < 6:  # without a letter it is any other word
            continue
        said = printed([*command, mistyped(option)], None, monkeypatch)
        assert "Did you mean" in said, (option, said)
        assert option in said.split("Did you mean")[1].split("?")[0], (option, said)
        assert "Traceback" not in said


def test_a_checker_that_sees() -> None:
    whole = "a kernel computes what nobody reads\n"
    check_screen("a kernel\ncomputes what\nnobody rea\u2026\n", whole, 14)
    for broken in ("a ker\nnel\n", "a kernel computes\n", "a kernel com\n"):
        with pytest.raises(AssertionError):
            check_screen(broken, whole, 14)
