"""The folder of downloaded files, and the check that a file is the pinned one.

    <cache>/assets/gpt2/model.safetensors              the file: absent, or with the pinned hash
                        model.safetensors.part         a download that is not complete yet
                        model.safetensors.verified     what the file was like when its hash was last taken
                        model.safetensors.lock         held by the process that downloads or hashes
                        model.safetensors.rejected     another file, which was found in its place

A file that is put in place by hand counts like a downloaded one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from anneal import files, settings
from anneal.assets._download import download, examine
from anneal.assets._pins import Asset, by_hand
from anneal.cache import folder
from anneal.errors import DataError


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
        # Where no lock can be made nothing can be changed either: then the hash is all there is to do.
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
