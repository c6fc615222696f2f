"""A file of events, line by line, as server-sent events while a job goes on writing it."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

MOST_STREAMS = 24
LOOK_S = 0.04
STATE_LOOKS = 5  # looks from one at the state to the next
PIECE = 1 << 18  # bytes at a time
LARGEST = 64 << 20  # bytes of a document
QUIET_S = 15.0  # after so long a comment shows that the connection lives


async def stream(
    path: Path, begin: int, state: Callable[[], dict[str, Any]], *, whole: bool = False
) -> AsyncIterator[bytes]:
    """The lines of `path` from byte `begin` on, in batches, and every new `state`; ends when the job has.

    An event's id is the byte after its last line, from which a page that lost the connection goes on. A file that is
    one document is `whole`: it is told once, when the job has ended.
    """
    at, told, spoke = begin, "", time.monotonic()
    for look in itertools.count():
        if look % STATE_LOOKS == 0:
            now = state()
        ended = now["state"] in ("done", "failed", "stopped", "cancelled")
        quiet = not ended and (whole or _size(path) <= at)  # a look at the size costs less than a thread that reads
        piece = b"" if quiet else await asyncio.to_thread(read, path, at, whole)
        if piece:
            at += len(piece)
            yield b"id: %d\nevent: lines\ndata: [%s]\n\n" % (at, _joined(piece, whole))
            spoke = time.monotonic()
            continue
        said = json.dumps(now)
        if said != told:
            told = said
            yield b"event: state\ndata: " + said.encode() + b"\n\n"
            spoke = time.monotonic()
        if ended:
            return
        if time.monotonic() - spoke > QUIET_S:
            yield b": here\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(LOOK_S)


def told(path: Path, whole: bool) -> bytes:
    """The lines of a file of events that there are now, with commas between them."""
    return _joined(read(path, 0, True), whole)


def _joined(text: bytes, whole: bool) -> bytes:
    return b",".join([line for line in ([_one(text)] if whole else text.split(b"\n")) if _is_json(line)])


def _one(text: bytes) -> bytes:
    """A document on one line; what is none as it is."""
    try:
        return json.dumps(json.loads(text), separators=(",", ":")).encode()
    except ValueError:
        return text


def _size(path: Path) -> int:
    """Bytes of a file; 0 of one that is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read(path: Path, at: int, whole: bool) -> bytes:
    """Whole lines from byte `at` on, as many as fit a piece, or all."""
    try:
        with path.open("rb") as f:
            f.seek(at)
            piece = f.read(LARGEST if whole else PIECE)
    except OSError:
        return b""
    return piece[: piece.rfind(b"\n") + 1]


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
