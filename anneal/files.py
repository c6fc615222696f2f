"""Files replaced whole or not at all, and read only where they are files: every part of anneal that writes does it
here.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # on Windows an open file cannot be removed, which serves as the lock
    fcntl = None  # type: ignore[assignment]

StrPath = str | os.PathLike[str]

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{8}\.unfinished", re.DOTALL)
_SHOWN = 100  # bytes of the name of the file in that of the unfinished one: names have at most 255
_KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

# A file is made beside its place under a name of its own, `.NAME.<8 hex>.unfinished`, brought to disk, and renamed into
# the place, so that a reader sees the old file or the new one. Its writer holds a lock on it, which the system lets go
# of when the process ends, however that ends; the next writer in the same folder removes the unlocked ones.
#
# What is no regular file (a device, a pipe, a folder) is neither replaced nor read; a link is followed, and stays a
# link. All errors are OSErrors with a `strerror` that ends a sentence.


def replace(path: StrPath, write: Callable[[IO[bytes]], Any], *, cached: bool = False, private: bool = False) -> None:
    """Put what `write` writes into the file it is given in the place of the file at `path`, or there anew.

    The rights of a file that is replaced are kept. Raises OSError if it cannot be done, and what `write` raises; then
    the old file is as it was.

    Args:
        path: the file.
        write: a function of an open file.
        cached: it is one of many that can be made again, whose folder is swept elsewhere, and that is looked at for
            damage when it is read: it is not waited for until it is on disk.
        private: only this user may read or write it.
    """
    place, before = _place(path)
    if not cached:
        sweep(place.parent)
    with _unfinished(place, before) as (f, temporary):
        write(f)
        f.flush()
        if not cached:
            os.fsync(f.fileno())
        if private:
            os.chmod(temporary, 0o600)
        elif before is not None:
            os.chmod(temporary, stat.S_IMODE(before.st_mode) & 0o777)
        if fcntl is None:
            f.close()
        os.replace(temporary, place)
        if not cached:
            sync_folder(place.parent)


def check_replaceable(path: StrPath) -> None:
    """Raise the OSError that `replace` would raise before it writes. What killed processes left in the folder goes."""
    place, before = _place(path)
    sweep(place.parent)
    with _unfinished(place, before):
        pass


def sweep(folder: StrPath) -> None:
    """Remove from a folder the unfinished files of processes that are gone. What cannot be looked at or
    removed stays.
    """
    with suppress(OSError), os.scandir(folder) as found:
        for path in [e.path for e in found if e.name.endswith(".unfinished") and _UNFINISHED.fullmatch(e.name)]:
            with suppress(OSError):
                _remove_abandoned(path)


def opened(path: StrPath) -> IO[bytes]:
    """A regular file, open for reading. OSError where there is none, or where another thing is: a pipe would wait
    forever.
    """
    found = _stat(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    _refuse_others(path, found)
    return open(path, "rb")


def sync_folder(folder: Path) -> None:
    """Have the rename on disk too, where a folder can be opened for that."""
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


# -- parts -------------------------------------------------------------------------------------------------------------


def _stat(path: StrPath) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except ValueError:  # a NUL, or half a character
        raise OSError(errno.EINVAL, "the name is not one that a file can have", os.fspath(path)) from None


def _refuse_others(path: StrPath, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is a {_KINDS.get(kind, 'thing of another kind')}, not a file", os.fspath(path))


def _place(path: StrPath) -> tuple[Path, os.stat_result | None]:
    """The file's path, links followed, and its facts if it is there."""
    found = _stat(path)
    if found is not None:
        _refuse_others(path, found)
        if not os.access(path, os.W_OK):  # a rename needs no such right
            if _stat(path) is None:  # somebody removed it in between
                return Path(os.path.realpath(path)), None
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    return Path(os.path.realpath(path)), found


@contextmanager
def _unfinished(place: Path, before: os.stat_result | None) -> Iterator[tuple[IO[bytes], str]]:
    """A new file beside `place`, locked, and its name; it is gone afterwards unless it was renamed."""
    # Nobody may read what will be read by fewer than all; a new file has the rights that the process gives new files.
    rights = 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o666 | 0o200
    handle = -1
    while handle < 0:
        name = os.fsdecode(os.fsencode(place.name)[:_SHOWN])
        temporary = os.path.join(place.parent, f".{name}.{secrets.token_hex(4)}.unfinished")
        with suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
            handle = os.open(temporary, flags, rights)
            if not _locked(handle, temporary):
                os.close(handle)
                handle = -1
    try:
        with open(handle, "rb+") as f:
            yield f, temporary
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _locked(handle: int, name: str) -> bool:
    """Lock a file that was just made; False if another process took it for abandoned, and removed it, before."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.stat(name), os.fstat(handle))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks: there nobody can lock, and nobody removes
        return True


def _remove_abandoned(path: str) -> None:
    if fcntl is None:
        os.unlink(path)
        return
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)  # a name is never used twice: this is the file that is locked, or it was renamed and this fails
    finally:
        os.close(handle)
