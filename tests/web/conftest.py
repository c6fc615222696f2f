"""The studio's tests need the extra `web`, and its client httpx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the studio's tests need the extra: pip install -e '.[test]'")
pytest.importorskip("uvicorn", reason="the studio's tests need the extra: pip install -e '.[test]'")
pytest.importorskip("httpx", reason="the studio's tests need the extra: pip install -e '.[test]'")

from tests.web.helpers import Client, opened


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of a server whose runs/ is in a folder of the test's own."""
    with opened(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client that a file's tests share, with the one child that answers them: to start one takes a second."""
    with opened(tmp_path_factory.mktemp("shared")) as found:
        yield found
