"""A cache of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anneal import progress, settings


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, switched on; everything is worth keeping."""
    monkeypatch.setattr("anneal.schedule.plan._WORTH", 0.0)
    monkeypatch.setattr(progress._TOLD, "noted", set())
    folder = tmp_path / "cache"
    with settings.override(cache=True, cache_dir=str(folder)):
        yield folder
