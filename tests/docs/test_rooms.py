"""Rooms: each has a front door that lint keeps, and a README that says what enters, what leaves and where to start."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.front_doors import rewritten, rooms

ROOT = Path(__file__).resolve().parents[2]
ROOMS = [room.replace(".", "/") for room in rooms(ROOT)]
# The most imports past a front door that pyproject.toml may excuse; lint itself finds those that nobody needs any more.
PAST_A_DOOR = 1


def contracts() -> list[dict[str, Any]]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return [contract for contract in found if contract["type"] == "protected"]


def excused() -> list[str]:
    """The exceptions; a module that is public by its own name is a door, not an exception."""
    return [line for c in contracts() for line in c.get("ignore_imports", ()) if not line.startswith("anneal.** -> ")]


def test_every_room_has_a_front_door_that_lint_keeps() -> None:
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert config == rewritten(config, ROOT), "python tools/front_doors.py writes the contracts anew"
    kept = {name.removesuffix(".*").replace(".", "/") for c in contracts() for name in c["protected_modules"]}
    assert kept == set(ROOMS)


def test_the_exceptions_become_fewer() -> None:
    assert len(excused()) <= PAST_A_DOOR, "none is added"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_enters_what_leaves_and_where_to_start(room: str) -> None:
    path = ROOT / room / "README.md"
    assert path.exists(), "ten lines for whoever comes in: what enters, what leaves, where to start reading"
    door = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    assert door.startswith(f"# {room}\n")
    assert len(door.splitlines()) <= 16
    for said in ("What enters:", "What leaves:", "Start with `"):
        assert said in door
    assert max(map(len, door.splitlines())) <= 120
    # Names with a suffix or a slash are files, of this room or from the root.
    named = re.findall(r"`([\w./]+(?:\.(?:py|upat|md)|/[\w/]*))`", door)
    assert named
    assert [name for name in named if not ((ROOT / room / name).exists() or (ROOT / name).exists())] == []


@pytest.mark.slow
def test_lint_finds_an_import_past_a_door_and_an_exception_that_nobody_needs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "anneal", tmp_path / "anneal", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "anneal" / "nn" / "_planted.py").write_text("from anneal.uop.bounds import BOUNDS\n")
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    def said(text: str) -> str:
        (tmp_path / "pyproject.toml").write_text(text)
        command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
        found = subprocess.run(
            [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert found.returncode != 0
        return found.stdout + found.stderr

    assert "anneal.nn._planted" in said(config)
    (tmp_path / "anneal" / "nn" / "_planted.py").unlink()
    door = '"anneal.** -> anneal.uop.sizes",'
    assert door in config
    unneeded = said(config.replace(door, f'{door} "anneal.cli.** -> anneal.uop.bounds",'))
    assert "anneal.cli.** -> anneal.uop.bounds" in unneeded
