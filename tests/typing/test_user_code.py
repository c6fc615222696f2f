"""User programs through type checkers: what anneal promises of the types of calls.

The programs of `programs/` are checked by mypy as a user's are, --strict, and by pyright where one is installed (it
brings Node along, 300 MB, so no extra asks for it: `pip install basedpyright`). They also run, and `assert_type`
compares the values with the types then: a checker believes annotations. In `wrong.py` each line with an error says
which.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import typing
from pathlib import Path
from types import UnionType
from typing import Any

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "tests/typing/programs").glob("*.py"))
RIGHT = [path for path in PROGRAMS if path.stem != "wrong"]
FILES = sorted((ROOT / "tests/programs/files").glob("[a-z]*.py"))  # programs as torch's users write them
PYRIGHT = shutil.which("basedpyright") or shutil.which("pyright")

Found = dict[str, list[tuple[int, str]]]  # for each program the errors: line, and mypy's code or pyright's rule


@pytest.fixture(scope="module")
def mypys() -> tuple[Found, str]:
    """What mypy finds, and says; its cache is that of `make check`."""
    cache, config = ROOT / ".mypy_cache", ROOT / "pyproject.toml"
    text, fault, _ = api.run(
        [
            "--config-file",
            str(config),
            "--cache-dir",
            str(cache),
            "--no-pretty",
            *[str(path) for path in [*PROGRAMS, *FILES]],
        ]
    )
    assert not fault, fault
    found: Found = {}
    for path, line, code in re.findall(r"^(.*?):(\d+): error: .*\[([\w-]+)\]$", text, re.MULTILINE):
        found.setdefault(Path(path).name, []).append((int(line), code))
    return found, text


@pytest.fixture(scope="module")
def pyrights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, str]:
    if PYRIGHT is None:
        pytest.skip("no pyright here; `pip install basedpyright` brings one")
    config = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    settings = {
        # pyright itself takes no absolute paths, and finds nothing then
        "include": [os.path.relpath(path, config.parent) for path in [*PROGRAMS, *FILES]],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    config.write_text(json.dumps(settings))
    run = subprocess.run([PYRIGHT, "-p", config, "--outputjson"], capture_output=True, text=True, check=False)
    assert json.loads(run.stdout)["summary"]["filesAnalyzed"] >= len(PROGRAMS), run.stdout
    found: Found = {}
    for said in json.loads(run.stdout)["generalDiagnostics"]:
        if said["severity"] == "error":
            line = said["range"]["start"]["line"] + 1
            found.setdefault(Path(said["file"]).name, []).append((line, said["rule"]))
    return found, "\n".join(f"{name}:{line}: {rule}" for name, all_ in found.items() for line, rule in all_)


def expected(place: int) -> list[tuple[int, str]]:
    """The errors that wrong.py asks for: of mypy (place 0) or pyright (1)."""
    lines = (ROOT / "tests/typing/programs/wrong.py").read_text().splitlines()
    notes = [(n, line.partition("  # wrong: ")[2].split()) for n, line in enumerate(lines, 1)]
    return [(n, note[place]) for n, note in notes if note]


@pytest.mark.parametrize("program", [*RIGHT, *FILES], ids=lambda path: path.stem)
def test_mypy_accepts_a_program(program: Path, mypys: tuple[Found, str]) -> None:
    found, text = mypys
    assert program.name not in found, text


def test_mypy_finds_each_mistake(mypys: tuple[Found, str]) -> None:
    assert sorted(set(mypys[0]["wrong.py"])) == expected(0), mypys[1]


@pytest.mark.slow
@pytest.mark.parametrize("program", RIGHT, ids=lambda path: path.stem)
def test_pyright_accepts_a_program(program: Path, pyrights: tuple[Found, str]) -> None:
    found, text = pyrights
    assert program.name not in found, text


@pytest.mark.slow
@pytest.mark.parametrize("program", FILES, ids=lambda path: path.stem)
def test_pyright_accepts_a_program_of_torchs_users(program: Path, pyrights: tuple[Found, str]) -> None:
    """But for what --strict says of their own lists and lambdas, which have no annotations."""
    found, text = pyrights
    assert [rule for _, rule in found.get(program.name, []) if not rule.startswith("reportUnknown")] == [], text


@pytest.mark.slow
def test_pyright_finds_each_mistake(pyrights: tuple[Found, str]) -> None:
    assert sorted(set(pyrights[0]["wrong.py"])) == expected(1), pyrights[1]


def is_of(value: object, kind: Any) -> bool:
    """Whether a value is of a type, with what it holds."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is None:
        return isinstance(value, kind)
    if origin in (typing.Union, UnionType):
        return any(is_of(value, part) for part in parts)
    if not isinstance(value, origin):
        return False
    if origin is tuple:
        assert isinstance(value, tuple)
        return len(value) == len(parts) and all(map(is_of, value, parts))
    if origin is dict:
        assert isinstance(value, dict)
        return all(is_of(k, parts[0]) and is_of(v, parts[1]) for k, v in value.items())
    assert origin is list, kind
    assert isinstance(value, list)
    return all(is_of(item, parts[0]) for item in value)


@pytest.mark.parametrize("program", RIGHT, ids=lambda path: path.stem)
def test_values_are_of_the_types_that_a_program_asserts(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asserted = []

    def assert_type(value: object, kind: Any) -> None:
        asserted.append(kind)
        assert is_of(value, kind), f"{value!r} is no {kind}"

    monkeypatch.setattr(typing, "assert_type", assert_type)
    runpy.run_path(str(program))
    assert asserted


def test_what_is_compared_with_a_type() -> None:
    assert is_of(({"a": 1.0}, [2]), tuple[dict[str, float], list[int]])
    assert not is_of(({"a": 1.0}, ["2"]), tuple[dict[str, float], list[int]])
    assert not is_of((1, 2, 3), tuple[int, int])
    assert is_of(None, int | None)
