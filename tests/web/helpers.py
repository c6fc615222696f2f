"""A client of the studio's application in this process, and waiting for what its children do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from anneal.web.guard import Key
from anneal.web.server import Studio, application

HOST = "127.0.0.1:3001"
Client = TestClient


@contextmanager
def opened(where: Path, *, always: bool = False) -> Iterator[TestClient]:
    """The application over `where`/runs; requests carry the host and the token unless they say others."""
    studio = Studio(where, Key(frozenset([HOST]), always=always))
    headers = {"x-anneal-token": studio.key.token}
    with TestClient(application(studio), base_url=f"http://{HOST}", headers=headers) as client:
        client.app.key = studio.key  # type: ignore[attr-defined]
        client.studio = studio  # type: ignore[attr-defined]
        yield client


def until(found: Callable[[], Any], seconds: float = 40.0) -> Any:
    """What `found` gives once it is true."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return value


def over(client: TestClient, job: str, seconds: float = 60.0) -> dict[str, Any]:
    """A job once it has ended."""

    def look() -> Any:
        now = client.get(f"/api/jobs/{job}").json()
        return now if now["state"] in ("done", "failed", "stopped", "cancelled") else None

    found: dict[str, Any] = until(look, seconds)
    return found
