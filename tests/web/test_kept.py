"""Answers on disk: the next start of the studio finds them, and no other question, and nothing that has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anneal import cache, settings
from anneal.web import snapshots as kept
from anneal.web.asking import Answer, Inspector
from tests.web.helpers import opened

QUESTION = {"ask": "graph", "model": "mlp", "step": True}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of the test's own."""
    with settings.override(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def put(question: dict[str, Any], plain: bytes = b"[1]" * 2000, seconds: float = 1.0) -> bytes | None:
    """What is found of an answer that was kept."""
    text = json.dumps(question)
    kept.keep(question, text, plain, seconds)
    return kept.load(question, text)


def test_what_took_long_is_found_again_and_can_be_listed(folder: Path) -> None:
    assert put(QUESTION) == b"[1]" * 2000
    assert kept.load({**QUESTION, "step": False}, "{}") is None
    (entry,) = cache.entries(folder)
    assert (entry.kind, entry.state) == ("studio", "current")
    assert "mlp" in entry.label


@pytest.mark.parametrize(
    "question",
    [
        {"ask": "graph", "model": "script:mine.py"},  # whose text may change
        {"ask": "source", "model": "mlp"},
        {"ask": "ops"},
    ],
)
def test_other_questions_are_not_kept(question: dict[str, Any]) -> None:
    assert put(question) is None


def test_what_is_quick_is_not_kept() -> None:
    assert put(QUESTION, seconds=0.01) is None


def test_with_the_cache_off_nothing_is_kept(folder: Path) -> None:
    with settings.override(cache=False):
        assert put(QUESTION) is None
    assert not folder.exists()


def test_sources_that_are_newer_than_the_server_make_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    assert put(QUESTION) is not None
    kept._decided.cache_clear()
    with monkeypatch.context() as m:
        m.setattr(kept, "_STARTED", 0.0)
        assert put(QUESTION) is None
    kept._decided.cache_clear()
    assert kept.load(QUESTION, json.dumps(QUESTION)) is not None


@pytest.mark.parametrize("part", ["sources", "settings", "packages"])
def test_whatever_decides_an_answer_is_in_its_key(part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert put(QUESTION) is not None
    if part == "sources":
        source = tmp_path / "more.py"
        source.write_text("x = 1")
        there = kept._sources
        monkeypatch.setattr(kept, "_sources", lambda: [*there(), (str(source), 0.0)])
        kept._decided.cache_clear()
        monkeypatch.setattr(kept, "_STARTED", float("inf"))
    elif part == "packages":
        monkeypatch.setattr(kept.sysconfig, "get_path", lambda _: str(tmp_path))
    with settings.override(trusted=part != "settings"):
        assert kept.load(QUESTION, json.dumps(QUESTION)) is None
    kept._decided.cache_clear()


def test_the_next_studio_answers_without_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH_S", 0.0)
    path = "/api/ask/graph?model=mlp&step=1"
    with opened(tmp_path) as client:
        first = client.get(path)
        assert first.status_code == 200

    async def none(*_: object) -> Answer:
        raise AssertionError("a child was asked")

    monkeypatch.setattr(Inspector, "_answer", none)
    with opened(tmp_path) as client:
        again = client.get(path)
        assert again.headers["content-encoding"] == "gzip"
        assert again.json() == first.json()
        assert client.get(path, headers={"accept-encoding": "identity"}).json() == first.json()
