"""Answers on disk, for the next start of the studio: found by the question and by all that decides the answer.

That is every source file of anneal and of its examples, the packages that are installed, and which files were
downloaded. A file that is newer than this process makes a miss of everything, as in `anneal/cache`, which keeps them.
"""

from __future__ import annotations

import base64
import binascii
import functools
import gzip
import hashlib
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from anneal import cache, settings
from anneal.assets import ASSETS, location
from anneal.training import MODELS, examples_folder
from anneal.version import __version__

KIND = "studio"
LARGEST = 16 << 20  # bytes of an answer
WORTH_S = 0.2  # what is answered faster is asked again
QUESTIONS = frozenset({"graph", "passes", "pass", "kernels", "kernel", "explain", "firings"})
_STARTED = time.time()
_PACKAGE = Path(__file__).resolve().parents[1]


def load(question: dict[str, Any], text: str) -> tuple[bytes, bytes] | None:
    """The answer to `question`, whose JSON is `text`, plain and packed by gzip; None if none is kept."""
    packed = cache.load(KIND, _key(text), _packed) if _lasting(question) and cache.enabled() else None
    return None if packed is None else (gzip.decompress(packed), packed)


def save(question: dict[str, Any], text: str, packed: bytes, seconds: float) -> None:
    """Keep an answer, packed by gzip, that took `seconds` to find."""
    if seconds < WORTH_S or len(packed) > LARGEST or not _lasting(question) or not cache.enabled():
        return
    key = _key(text)
    if key is not None and _newest() <= _STARTED:
        cache.save(KIND, key, base64.b64encode(packed).decode(), f"studio: {text}")


def _lasting(question: dict[str, Any]) -> bool:
    """True if the question is about an example, or a dropped file, which is named by its content."""
    model = question.get("model")
    known = model is None or model in MODELS or str(model).startswith("upload.")
    return known and question.get("ask") in QUESTIONS


def _packed(value: Any) -> bytes | None:
    try:
        packed = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return None
    return packed if packed[:2] == b"\x1f\x8b" else None


def _key(text: str) -> bytes | None:
    decided = _decided()
    return None if decided is None else hashlib.blake2b(decided + _here() + text.encode(), digest_size=16).digest()


@functools.cache
def _decided() -> bytes | None:
    """A hash of every source file; None where one is newer than this process, or cannot be read."""
    h = hashlib.blake2b(f"{__version__} {sys.version}".encode(), digest_size=16)
    try:
        if _newest() > _STARTED:
            return None
        for path, _ in _sources():
            text = Path(path).read_bytes()
            h.update(f"{path} {len(text)}\n".encode())
            h.update(text)
    except OSError:
        return None
    return h.digest()


def _here() -> bytes:
    """The things that may change without a source of ours: the packages, the settings, and the files that an example
    found or did without.
    """
    sizes = [(a.name, _size(location(a))) for a in ASSETS.values()]
    packages = Path(sysconfig.get_path("purelib"))
    plain = replace(settings.current(), debug=0, cache_dir="", bundle=False)
    return repr((packages.stat().st_mtime if packages.is_dir() else None, sizes, plain)).encode()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _newest() -> float:
    return max(changed for _, changed in _sources())


def _sources() -> Iterator[tuple[str, float]]:
    """The Python files and rules of anneal and its examples, and when they changed, in a fixed order."""
    for root in (_PACKAGE, examples_folder()):
        for folder, below, names in os.walk(root):
            below[:] = sorted(n for n in below if n != "__pycache__" and not n.startswith("."))
            if Path(folder) == _PACKAGE / "web":
                below[:] = []
            for name in sorted(names):
                if name.endswith((".py", ".upat")):
                    path = os.path.join(folder, name)
                    facts = os.stat(path)
                    yield path, max(facts.st_mtime, facts.st_ctime)
