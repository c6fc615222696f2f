"""The bundled files and their checksums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from anneal.errors import DataError


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A bundled file: its place, its hash, and its contents in words."""

    file: str
    sha256: str
    about: str


BUNDLED = {
    "names": BundledFile(
        "names.txt",
        "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
        "32,033 first names, one a line, from the US Social Security Administration's lists; public domain",
    ),
    "tinyshakespeare": BundledFile(
        "tinyshakespeare.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        "Tiny Shakespeare: 1,115,394 characters of the plays, 65 of them distinct; public domain",
    ),
}


def load(name: str, folder: Path | None = None) -> bytes:
    """The bytes of a bundled file. DataError if it is unknown, missing, unreadable or not the file that was shipped.

    `folder` reads the file from another folder than the package's own.

    >>> load("tinyshakespeare")[:14]
    b'First Citizen:'
    """
    if name not in BUNDLED:
        raise DataError(f"no bundled data is called {name!r}; there is: {', '.join(BUNDLED)}")
    asset = BUNDLED[name]
    path = (folder or Path(__file__).parent) / asset.file
    fix = "reinstall it: pip install --force-reinstall anneal-compiler"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is missing from the installed package; {fix}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); {fix}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != asset.sha256:
        raise DataError(
            f"{path} is not the file that was shipped: SHA-256 {found[:16]}..., expected {asset.sha256[:16]}...; {fix}"
        )
    return data
