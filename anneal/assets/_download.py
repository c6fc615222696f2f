"""Download of one file over HTTP, in as many attempts as it takes; each resumes where the last one stopped.

What decides is the pinned hash, taken of the whole file on disk at the end. So what a server says on the way (lengths,
ranges, ETags) may save time, but whatever it gets wrong cannot put a wrong file in place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anneal import files, progress
from anneal.assets._pins import Asset, by_hand
from anneal.errors import DataError

if TYPE_CHECKING:
    from requests import Response

ATTEMPTS = 5  # in a row that bring less than GAIN
GAIN = 1 << 20  # bytes
BACK_OFF = 1.0  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 60.0  # seconds, also where the server asks for more
TIMEOUT = (10.0, 30.0)  # seconds without a connection; without a byte
CHUNK = 1 << 16  # bytes
# File systems count time in ticks of up to 10 ms: two writes within one leave the same time of modification.
TICK = 0.02  # seconds


class _Failed(Exception):
    """An attempt that came to nothing where another may not; `wait` seconds are asked for. `offline`: no network."""

    def __init__(self, why: str, wait: float = 0.0, offline: bool = False) -> None:
        super().__init__(why)
        self.wait, self.offline = wait, offline


def examine(path: Path) -> tuple[str, os.stat_result]:
    """The SHA-256 of a file, and its facts before it was read: once they differ, so may the hash."""
    facts = path.stat()
    if abs(time.time() - facts.st_mtime) < TICK:
        time.sleep(TICK)
    with open(path, "rb") as f, progress.work(f"checking {path.name}"):
        return hashlib.file_digest(f, "sha256").hexdigest(), facts


def download(asset: Asset, path: Path) -> os.stat_result:
    """Bring the file to `path`, by one rename once it is complete and has the pinned hash.

    Returns what `examine` saw. The caller holds the lock. DataError if the file cannot be had, OSError if it cannot be
    written; what is of use the next time stays in `path`.part.
    """
    part = Path(f"{path}.part")
    _ask_for_room(asset, part)
    failures = longest = 0
    before = _size(part)
    with progress.work(f"downloading {asset.name}", asset.bytes, "B") as going:
        while True:
            try:
                facts = _attempt(asset, path, part, going)
                break
            except _Failed as failure:
                gained = _size(part) - longest
                longest = max(longest, _size(part))
                failures = 1 if gained >= GAIN else failures + 1
                why, wait = str(failure), failure.wait
                if failure.offline and _size(part) == before:  # else the network may come back soon
                    raise DataError(
                        f"{asset.name} cannot be downloaded: {urlsplit(asset.url).hostname} cannot be reached\n"
                        f"connect to a network and run the command again: {asset.bytes / 1e6:,.0f} MB, needed once\n"
                        f"or put the file of {asset.url} at {path}"
                    ) from None
            if failures >= ATTEMPTS:
                raise DataError(
                    f"{asset.name} cannot be downloaded ({why}; {failures} attempts, {_size(part):,} of "
                    f"{asset.bytes:,} bytes are there); check the network and run the command again to go on, or "
                    f"{by_hand(asset, path)}"
                )
            wait = min(LONGEST_WAIT, max(wait, BACK_OFF * 2 ** (failures - 1) * random.uniform(0.5, 1.0)))
            going.note = f"{why}; again in {wait:.0f} s"
            time.sleep(wait)
    os.replace(part, path)
    files.sync_folder(path.parent)
    return facts


def _attempt(asset: Asset, path: Path, part: Path, going: progress.Work) -> os.stat_result:
    """Read one response, then check the hash; the facts of a part that has the pinned one."""
    start = _size(part)
    if start < asset.bytes:
        start = _receive(asset, path, part, start, going)
    found, facts = examine(part)
    if found == asset.sha256:
        return facts
    part.unlink()
    if start:
        # Pieces of different files, or what a crash left: a whole download may still be right.
        raise _Failed("the pieces do not make the pinned file")
    raise _wrong(asset, path, f"SHA-256 {found}, expected {asset.sha256}")


def _receive(asset: Asset, path: Path, part: Path, start: int, going: progress.Work) -> int:
    """Add to the part until it has all bytes. Returns where the response began: `start`, or 0 if ranges are ignored."""
    import ssl

    import requests
    from requests import exceptions
    from urllib3.exceptions import HTTPError

    # Lengths and ranges count the file's own bytes only if nothing compresses them on the way.
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with requests.get(asset.url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            start = _begin(asset, path, part, start, response)
            size = start
            with open(part, "ab" if start else "wb") as f:
                going.resume(size)  # what is there already says nothing about the speed
                for chunk in response.iter_content(CHUNK):
                    size += len(chunk)
                    if size > asset.bytes:
                        break
                    f.write(chunk)
                    going.at(size)
                f.flush()
                os.fsync(f.fileno())
    # All of requests' errors are OSErrors; as such they would pass for a fault of the disk.
    except exceptions.Timeout:
        raise _Failed("the server does not answer") from None
    except exceptions.ChunkedEncodingError:
        raise _Failed("the connection broke") from None
    except (exceptions.ConnectionError, exceptions.ContentDecodingError, HTTPError) as error:
        if isinstance(_innermost(error), ssl.SSLCertVerificationError):  # the next attempt meets the same certificate
            raise _unavailable(asset, path, _reason(error)) from None
        raise _Failed(_reason(error), offline=_offline(error)) from None
    except exceptions.RequestException as error:
        raise _unavailable(asset, path, _reason(error)) from None
    if size < asset.bytes:
        raise _Failed(f"the connection ended after {size:,} of {asset.bytes:,} bytes")
    if size > asset.bytes:
        part.unlink()
        if start:
            raise _Failed("the server sent more than was missing")
        raise _wrong(asset, path, f"more than {asset.bytes:,} bytes")
    return start


def _begin(asset: Asset, path: Path, part: Path, start: int, response: Response) -> int:
    """The offset in the file at which the body of this response begins."""
    status = response.status_code
    answer = f"the server answers {status} {response.reason or ''}".rstrip()
    if status == 416:
        part.unlink(missing_ok=True)
        raise _Failed(answer)
    if status in {408, 425, 429} or status >= 500:
        asked = response.headers.get("Retry-After", "")
        raise _Failed(answer, float(asked) if re.fullmatch(r"\d{1,6}", asked) else 0.0)
    if status == 206:
        given = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not given or int(given[1]) != start or given[2] not in {"*", str(asset.bytes)}:
            part.unlink(missing_ok=True)
            raise _Failed("the server sent another range than it was asked for")
        return start
    if status != 200:
        raise _unavailable(asset, path, f"{answer} for {asset.url}")
    length = response.headers.get("Content-Length", "")
    if "Content-Encoding" not in response.headers and length.isdecimal() and int(length) != asset.bytes:
        raise _wrong(asset, path, f"{int(length):,} bytes, expected {asset.bytes:,}")
    return 0


def _unavailable(asset: Asset, path: Path, why: str) -> DataError:
    return DataError(f"{asset.name} cannot be downloaded: {why}; {by_hand(asset, path)}")


def _wrong(asset: Asset, path: Path, what: str) -> DataError:
    return DataError(
        f"{asset.url} is not the file that is pinned as {asset.name}: {what}. Nothing is kept at {path}. A proxy or a "
        f"login page may stand between: run the command again from another network, or {by_hand(asset, path)}"
    )


def _innermost(error: Exception) -> Exception:
    """The socket's own error: requests wraps urllib3's, which wraps that."""
    while True:
        inner = getattr(error, "reason", None) or (error.args[-1] if error.args else None)
        if not isinstance(inner, Exception):
            return error
        error = inner


def _offline(error: Exception) -> bool:
    """An unknown host name, or no route to the host."""
    from urllib3.exceptions import NameResolutionError

    inner = _innermost(error)
    return isinstance(inner, NameResolutionError | socket.gaierror) or (
        isinstance(inner, OSError) and inner.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
    )


def _reason(error: Exception) -> str:
    inner = _innermost(error)
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner).rsplit(": ", 1)[-1] or type(inner).__name__


def _ask_for_room(asset: Asset, part: Path) -> None:
    missing, free = asset.bytes - _size(part), shutil.disk_usage(part.parent).free
    if free < missing:
        raise DataError(
            f"{asset.name} needs {missing:,} bytes more, and {part.parent} has {free:,} left; free space, or choose "
            "another folder: ANNEAL_CACHE_DIR"
        )


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0
