"""Help: it lists every command, and builds none, so that it comes at once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anneal.cli._app import built
from anneal.cli.commands import COMMANDS, FILES

ROOT = Path(__file__).parents[2]


def test_help_lists_every_command_and_imports_none() -> None:
    code = """import sys
from anneal.cli._app import app
try:
    app(["--help"], prog_name="anneal")
except SystemExit:
    print(*[name for name in sys.modules if name.startswith("anneal.cli.")], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(done.stderr.split()) == ["anneal.cli._app", "anneal.cli.commands"]
    listed = dict(
        row.split(maxsplit=1) for row in done.stdout.partition("Commands:\n")[2].splitlines() if row[2:3] > " "
    )
    assert {name: listed.get(name) for name in COMMANDS} == COMMANDS


def test_values_that_are_as_they_should_be_import_no_converter() -> None:
    """A text, a path, a flag and a number that was left out need no pydantic, which newer typers convert by; a number
    does."""
    code = """import sys
from anneal.cli._app import run
print(run(["web", "elsewhere", "--no-open"]), run(["kernels", "nothing"]), run(["doctor", "--help"]) and "")
assert [run(["graph", "nothing"]), run(["check", "nothing"]), run(["train", "nothing"])] == [2, 2, 2]
print("pydantic" in sys.modules)
print(run(["train", "mlp", "--steps", "0"]), run(["train", "mlp", "--steps", "many"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "elsewhere is no address" in done.stderr
    assert done.stderr.count("Invalid value for '--steps'") == 2
    assert "2 2 0\nFalse\n2 2\n" in done.stdout


def test_what_looks_at_a_model_imports_nothing_that_it_does_not_use() -> None:
    code = """import sys
from anneal.cli._app import run
assert run(["kernels", "mlp"]) == run(["graph", "mlp"]) == 0
print(*{"email", "importlib.metadata", "onnx", "pydantic", "rich", "wgpu"} & {*sys.modules}, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_every_command_has_a_file() -> None:
    files = {f.stem for f in (ROOT / "anneal" / "cli" / "commands").glob("[a-z]*.py")}
    assert files == {FILES.get(name, name) for name in COMMANDS}
    assert {name: built(name).name for name in COMMANDS} == {name: name for name in COMMANDS}


def options(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every option and argument of a command and of those below it."""
    for p in command.params:
        yield f"{name} {(p.opts or [p.name])[0]}", p
    for below, c in getattr(command, "commands", {}).items():
        yield from options(c, f"{name} {below}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_in_one_style(name: str) -> None:
    """A sentence each; a value is named as a value (N, FILE), not by the type that Python has for it."""
    command = built(name)
    for at, p in options(command, name):
        said = p.help or ""
        assert re.fullmatch(r"[A-Z-].*\.|gpt2: .*\.", said), (at, said)
        assert not re.search(r"wilder|tamer|likely|chance|speaks|whose fusion|learnt|of such", said), (at, said)
        if p.opts[0].startswith("-") and not p.is_flag and p.opts != ["--device"]:  # whose choices are listed
            assert p.metavar, at
    flags = {p.opts[0] for _, p in options(command, name)}
    reporting = name not in ("web", "viz")  # which serve until they are stopped
    assert ({"--quiet", "--json"} <= flags) == reporting


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_begins_as_its_line_does(name: str) -> None:
    command = built(name)
    assert (command.help or "").split()[:2] == COMMANDS[name].split()[:2]
