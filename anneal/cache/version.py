"""The version of the compiler itself, as a hash of its source text."""

from __future__ import annotations

import hashlib
import os
import time
from functools import cache
from pathlib import Path

_IMPORTED = time.time()
_PACKAGE = Path(__file__).resolve().parent.parent
# The rooms that decide what a program is compiled to; those above them only write programs.
_ROOMS = ("cache", "uop", "rewrite", "shape", "schedule", "codegen", "backend")


@cache
def code_version() -> bytes | None:
    """A hash of every source file between a program and its kernels; None if what runs may not be what the files say.

    That is so where there are no source files, and where one was written after this process started.
    """
    return _hash(_PACKAGE, _IMPORTED)


def unchanged() -> bool:
    """True if the source files are still older than this process."""
    try:
        return all(changed <= _IMPORTED for room in _ROOMS for _, changed in _sources(str(_PACKAGE / room)))
    except OSError:
        return False


def _hash(package: Path, imported: float) -> bytes | None:
    h = hashlib.blake2b(digest_size=16)
    try:
        for room in _ROOMS:
            found = 0
            for path, changed in _sources(str(package / room)):
                if changed > imported:
                    return None
                with open(path, "rb") as f:
                    text = f.read()
                h.update(f"{room}/{os.path.basename(path)} {len(text)}\n".encode())
                h.update(text)
                found += 1
            if not found:
                return None
    except OSError:
        return None
    return h.digest()


def _sources(folder: str) -> list[tuple[str, float]]:
    """The .py files below `folder` with their times, in an order that does not depend on the file system."""
    out: list[tuple[str, float]] = []
    with os.scandir(folder) as found:
        for e in sorted(found, key=lambda e: e.name):
            if e.name.endswith(".py"):
                facts = e.stat()
                out.append((e.path, max(facts.st_mtime, facts.st_ctime)))
            elif e.is_dir() and e.name != "__pycache__":
                out += _sources(e.path)
    return out
