"""Files that ship inside the package, files that are downloaded once, and the check that a file is the pinned one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anneal import files, progress, settings
from anneal.cache import folder
from anneal.errors import DataError
from anneal.frozen import frozen

if TYPE_CHECKING:
    from requests import Response


@frozen
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


# -- the files that may be downloaded, each pinned to one content -----------------------------------------------------


@frozen
class Asset:
    """A file to download: its source, and its exact contents by size and hash.

    `name` is also its path below the folder of assets: `gpt2/vocab.json`.
    """

    name: str
    url: str
    sha256: str
    bytes: int
    about: str


def by_hand(asset: Asset, path: Path) -> str:
    """Advice if there is no download, as the end of a sentence."""
    return f"put the file at {path} yourself: {asset.bytes:,} bytes, SHA-256 {asset.sha256}, from {asset.url}"


def _gpt2(file: str, sha256: str, size: int, about: str) -> Asset:
    # A revision, not a branch: what a branch holds may change, and then no download would pass any more.
    repository, revision = "openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"
    url = f"https://huggingface.co/{repository}/resolve/{revision}/{file}"
    return Asset(f"gpt2/{file}", url, sha256, size, about)


_PINNED = (
    _gpt2(
        "model.safetensors",
        "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
        548_105_171,
        "GPT-2 small: 124 million weights in float32",
    ),
    _gpt2(
        "vocab.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        1_042_301,
        "GPT-2's tokens and their numbers",
    ),
    _gpt2(
        "merges.txt",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        456_318,
        "the merges that make GPT-2's tokens, in order",
    ),
    Asset(
        "cifar10/cifar-10-binary.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        170_052_171,
        "CIFAR-10: 60,000 photographs of ten classes, 32x32",
    ),
)

ASSETS = {asset.name: asset for asset in _PINNED}


# -- the download of one file over HTTP, in as many attempts as it takes: each resumes where the last one stopped -----
#
# The pinned hash decides, taken of the whole file on disk at the end. So what a server says on the way (lengths,
# ranges, ETags) may save time, but whatever it gets wrong cannot put a wrong file in place.


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
    # requests' errors are OSErrors: without this they would be reported as faults of the disk.
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


# -- the folder of downloaded files -----
#
#    <cache>/assets/gpt2/model.safetensors              the file: absent, or with the pinned hash
#                        model.safetensors.part         a download that is not complete yet
#                        model.safetensors.verified     what the file was like when its hash was last taken
#                        model.safetensors.lock         held by the process that downloads or hashes
#                        model.safetensors.rejected     another file, which was found in its place
#
# A file that is put in place by hand counts like a downloaded one.


def location(asset: Asset) -> Path:
    """The path at which the file is kept, whether or not it is there.

    >>> from anneal import files, settings
    >>> from anneal.assets import ASSETS
    >>> with settings.override(cache_dir="/data"):
    ...     location(ASSETS["gpt2/vocab.json"]).as_posix()
    '/data/assets/gpt2/vocab.json'
    """
    cache = folder()
    if cache is None:
        raise DataError("there is no cache folder for this user; name one: ANNEAL_CACHE_DIR")
    return cache.joinpath("assets", *asset.name.split("/"))


def verify(asset: Asset) -> Path | None:
    """The file's path if it is there with the pinned hash, None if it is not there. Opens no connection.

    Another file in its place is moved aside, and is a DataError. The hash is taken again only if the size or a time of
    the file has changed since the last time.
    """
    path = location(asset)
    if _stamped(asset, path):
        return path
    if not path.exists():
        return None
    with contextlib.ExitStack() as held:
        # In a read-only folder no lock can be made, nor the file changed: the hash is still checked.
        with contextlib.suppress(OSError):
            held.enter_context(_lock(path))
        return _check(asset, path)


def fetch(asset: Asset) -> Path:
    """The path of the file with the pinned hash; it is downloaded if it is not there.

    DataError, with what to do, if it cannot be had; with `ANNEAL_OFFLINE` set, before any connection, if it is not
    there. One process downloads, others wait for it. A download goes on where the last one stopped, however that ended.
    """
    if (found := verify(asset)) is not None:
        return found
    path = location(asset)
    if settings.current().offline:
        raise DataError(
            f"{path} is missing, and ANNEAL_OFFLINE forbids to download it; unset that, or {by_hand(asset, path)}"
        )
    try:
        with _lock(path):
            if _check(asset, path) is None:  # else another process was faster
                _stamp(asset, path, download(asset, path))
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}); free space and check the folder's permissions, "
            "or choose another folder: ANNEAL_CACHE_DIR"
        ) from None
    return path


def _check(asset: Asset, path: Path) -> Path | None:
    if _stamped(asset, path):
        return path
    try:
        found, facts = examine(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check it and its permissions") from None
    if found == asset.sha256:
        _stamp(asset, path, facts)
        return path
    aside = path.with_name(f"{path.name}.rejected")
    try:
        os.replace(path, aside)
        fate = f"It was moved to {aside}"
    except OSError as error:
        fate = f"It cannot be moved away ({error.strerror}): remove it"
    again = "put the right file there" if settings.current().offline else "run the command again to download it"
    raise DataError(
        f"{path} is not the file that is pinned: SHA-256 {found} ({facts.st_size:,} bytes), "
        f"expected {asset.sha256} ({asset.bytes:,} bytes). {fate}; then {again}"
    )


def _facts(asset: Asset, facts: os.stat_result) -> bytes:
    # The time of change catches what the time of modification does not: cp -p, touch -r, another file moved here.
    return f"{asset.sha256} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}\n".encode()


def _stamped(asset: Asset, path: Path) -> bool:
    """True if the file is unchanged since its hash was checked against the pinned one."""
    try:
        wanted = _facts(asset, path.stat())
        with files.opened(f"{path}.verified") as f:
            return f.read(len(wanted) + 1) == wanted
    except OSError:
        return False


def _stamp(asset: Asset, path: Path, examined: os.stat_result) -> None:
    """Remember that the file has the pinned hash. What cannot be kept costs a hash the next time."""
    with contextlib.suppress(OSError):
        now = path.stat()
        if (now.st_size, now.st_mtime_ns) != (examined.st_size, examined.st_mtime_ns):
            return  # written to meanwhile
        files.replace(f"{path}.verified", lambda f: f.write(_facts(asset, now)))


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """A lock that one process holds at a time; the system frees it when the process ends. OSError if there is none."""
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{path}.lock")
    try:
        try:
            lock.acquire(timeout=1)
        except Timeout:
            print(f"anneal: waiting for another process that is working on {path}", file=sys.stderr)
            lock.acquire()
    except NotImplementedError as error:  # a file system without locks
        raise OSError(str(error)) from None
    try:
        yield
    finally:
        lock.release()
