"""A misbehaving server, an asset that it has, and an empty cache folder; no waiting between attempts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from anneal import settings
from anneal.assets import Asset, _files
from tests.assets.server import BODY, Server


@pytest.fixture(scope="session")
def _running() -> Iterator[Server]:
    server = Server()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def server(_running: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(_files, "BACK_OFF", 0.0)
    monkeypatch.setattr(_files, "TIMEOUT", (2.0, 0.3))
    _running.script, _running.seen, _running.encodings = [], [], []
    _running.go_on.clear()
    _running.hung_up.clear()
    yield _running
    _running.go_on.set()  # nobody hangs longer than the test


@pytest.fixture
def asset(server: Server) -> Asset:
    return Asset("folder/file.bin", server.url, hashlib.sha256(BODY).hexdigest(), len(BODY), "a test's file")


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[Path]:
    """The cache folder."""
    with settings.override(cache_dir=str(tmp_path / "cache"), offline=False):
        yield tmp_path / "cache"
