"""`anneal cache where|ls|prune`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anneal import cache, settings
from anneal.cache import store
from tests.cli.helpers import run, run_process


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def fill(place: Path) -> list[Path]:
    """Three entries, used one, two and three days ago."""
    paths = []
    for day in (1, 2, 3):
        key = cache.disk_key(day)
        assert key is not None
        assert cache.save("plans", key, os.urandom(1000).hex(), f"entry {day}")
        paths.append(place / "plans" / key.hex())
        then = time.time() - day * 86400 - 60
        os.utime(paths[-1], (then, then))
    return paths


def test_where(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    assert run(capsys, "cache", "where").out.strip() == str(place)
    report = json.loads(run(capsys, "cache", "where", "--json").out)
    assert report == {"folder": str(place), "exists": False, "enabled": True}


def test_ls(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    assert run(capsys, "cache", "ls").out.strip().endswith("nothing yet")
    paths = fill(place)
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    os.utime(paths[2], (0, 0))
    lines = run(capsys, "cache", "ls").out.splitlines()
    assert ["entry 1" in lines[0], "entry 2" in lines[1], "damaged" in lines[2], "3 plans" in lines[3]] == [True] * 4
    assert "1d" in lines[0]
    report = json.loads(run(capsys, "cache", "ls", "--json").out)
    assert [e["state"] for e in report["entries"]] == ["current", "current", "damaged"]
    assert report["bytes"] == sum(e["bytes"] for e in report["entries"]) == sum(p.stat().st_size for p in paths)
    assert report["entries"][0]["what"] == "entry 1"
    assert report["entries"][0]["file"] == str(paths[0])


def test_ls_reads_what_it_shows(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may have tens of thousands of entries: only those that are listed are opened."""
    paths = fill(place)
    opened: list[str] = []
    read = store.files.opened
    monkeypatch.setattr(store.files, "opened", lambda path: opened.append(str(path)) or read(path))
    monkeypatch.setattr("anneal.cli.commands.doctor._LISTED", 2)
    lines = run(capsys, "cache", "ls").out.splitlines()
    assert opened == [str(p) for p in paths[:2]]
    assert lines[2] == "and 1 more; --all lists them"
    assert lines[3].endswith("3 plans")
    report = json.loads(run(capsys, "cache", "ls", "--json").out)
    assert (len(report["entries"]), report["count"]) == (2, 3)
    assert report["bytes"] == sum(p.stat().st_size for p in paths)
    assert len(opened) == 4
    assert len(run(capsys, "cache", "ls", "--all").out.splitlines()) == 4
    assert len(json.loads(run(capsys, "cache", "ls", "--all", "--json").out)["entries"]) == 3
    assert len(opened) == 10


def test_prune_by_age_by_size_and_all(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    paths = fill(place)
    assert run(capsys, "cache", "prune", "--older-than", "2.5d").out.startswith("removed 1 entry, ")
    assert [p.exists() for p in paths] == [True, True, False]
    size = paths[0].stat().st_size
    report = json.loads(run(capsys, "cache", "prune", "--max-size", f"{size + 10}B", "--json").out)
    assert (report["removed"], report["failed"]) == (1, 0)
    assert [p.exists() for p in paths] == [True, False, False]
    assert run(capsys, "cache", "prune", "--max-size", "1GB").out.startswith("removed 0 entries")
    assert run(capsys, "cache", "prune", "--all").out.startswith("removed 1 entry")
    assert cache.entries(place) == []
    assert run(capsys, "cache", "prune", "--all").code == 0


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((), "say what to remove: --older-than AGE, --max-size SIZE or --all"),
        (("--older-than", "soon"), "--older-than soon is not an age"),
        (("--older-than", "-1d"), "--older-than -1d is not an age"),
        (("--older-than", "7"), "is not an age; write a number and s, m, h, d or w"),
        (("--max-size", "big"), "--max-size big is not a size"),
        (("--max-size", "1TB"), "is not a size"),
    ],
)
def test_wrong_flags(capsys: pytest.CaptureFixture[str], place: Path, flags: tuple[str, ...], text: str) -> None:
    paths = fill(place)
    outcome = run(capsys, "cache", "prune", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert text in outcome.err
    assert all(p.exists() for p in paths)


def test_what_cannot_be_removed_is_said(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place)

    def refuse(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.os, "unlink", refuse)
    outcome = run(capsys, "cache", "prune", "--all")
    assert outcome.code == 4
    assert "3 of the entries" in outcome.err


def test_nowhere_to_look(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_user_folder", lambda: None)
    with settings.override(cache_dir=""):
        outcome = run(capsys, "cache", "ls")
    assert outcome.code == 4
    assert "ANNEAL_CACHE_DIR" in outcome.err


def test_the_second_run_of_a_command_finds_the_first_ones_plans(tmp_path: Path) -> None:
    environ = {"ANNEAL_CACHE": "1", "ANNEAL_CACHE_DIR": str(tmp_path)}
    outcomes = [
        run_process("train", "mlp", "--steps", "3", "--device", "cpu", "--plain", "--seed", "3", **environ)
        for _ in "12"
    ]
    assert [o.code for o in outcomes] == [0, 0]
    found = json.loads(run_process("cache", "ls", "--json", **environ).out)["entries"]
    assert {e["kind"] for e in found} - {"native"} == {"plans"}  # kernels in C where there is a compiler
    assert {e["state"] for e in found} == {"current"}
