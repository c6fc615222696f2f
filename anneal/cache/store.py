"""Entries on disk: one file each, written whole or not at all, checked from the first bit to the last.

    file = magic (8) | hash of the rest (16) | key (16) | code version (16) | label length (2) | label | zlib(JSON)

Whatever is wrong with a file or a folder, an entry that cannot be read is a miss and one that cannot be written is
not kept: no error, and no value but the one that was saved. A file carries data only, nothing in it is ever run as
Python, and it is unpacked to LARGEST bytes at most. The hash tells damage, not forgery: what another user has written,
or could have, is a miss too, and so is data that does not decode. An entry's time of modification is when it was last
used; over the limit the longest unused go first.

Compiled kernels are the one kind of data that is run: they are `private`, in a folder of this user's alone, and so are
the tables of a C header, which C takes as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from anneal import files, progress, settings
from anneal.frozen import frozen

LIMIT = 256 << 20  # bytes of all entries together
LARGEST = 32 << 20  # bytes of one value as JSON; GPT-2's training step, 300 kernels, takes 2 MB
_MAGIC = b"anneal\x00\x01"
_HEAD = 8 + 16 + 16 + 16 + 2
_COUNT = "written"  # a file of one byte for each KiB that processes wrote since one looked at the limit


@frozen
class CacheEntry:
    """A file of the cache. `state` is current, old (made by another version of anneal), damaged, or empty where nobody
    read the file."""

    kind: str
    path: Path
    bytes: int
    used: float
    label: str
    state: str


def enabled() -> bool:
    """True if entries are read and written."""
    return settings.current().cache and folder() is not None


def folder() -> Path | None:
    """The folder of the entries, or None if there is no such place."""
    chosen = settings.current().cache_dir
    return Path(chosen) if chosen else _user_folder()


@cache
def _user_folder() -> Path | None:
    try:
        from platformdirs import user_cache_path

        return user_cache_path("anneal", appauthor=False)
    except (ImportError, OSError, RuntimeError) as e:  # no such package, no home
        _say(f"no cache folder ({e})")
        return None


def disk_key(*parts: object) -> bytes | None:
    """The key of what `parts` (bytes, and values whose repr is their content) and the compiler's own code decide."""
    if (version := code_version()) is None:
        _say("the cache is off: anneal's source files are missing, or newer than this process")
        return None
    h = hashlib.blake2b(version, digest_size=16)
    for p in parts:
        data = p if isinstance(p, bytes) else repr(p).encode()
        h.update(b"%d:%b" % (len(data), data))
    return h.digest()


def load(
    kind: str, key: bytes | None, decode: Callable[[Any], Any] = lambda value: value, private: bool = False
) -> Any | None:
    """The entry saved under `key`, as `decode` reads it, or None: also where `decode` can make nothing of it.

    Args:
        private: it is to be run as code: a link is a miss, and so is what anybody else could have put there.
    """
    where = folder() if settings.current().cache else None
    if where is None or key is None:
        return None
    path = os.path.join(where, kind, key.hex())
    try:
        with files.opened(path) as f:
            facts = os.fstat(f.fileno())
            text = f.read(LARGEST + 1) if _is_ours(path, facts, private) else b""
    except OSError:
        return None
    try:
        label = _checked(text, key)
        found = None if label is None else decode(json.loads(_unpacked(memoryview(text)[_HEAD + len(label) :])))
    except Exception:  # what `decode` meets in data that it has not written is unforeseeable
        found = None
    if found is None:
        _say(f"{path} is damaged, or another user's, and is made again")
        return None
    with suppress(OSError):
        os.utime(path)
    return found


def _is_ours(path: str, facts: os.stat_result, private: bool) -> bool:
    """True if only this user (or root) can have written the file; of what is private, if only this user can have, or
    put it there. Always true on systems without user ids.
    """
    if not hasattr(os, "geteuid"):
        return True
    if not private:
        return facts.st_uid in (os.geteuid(), 0) and not facts.st_mode & stat.S_IWOTH
    both = facts, os.stat(os.path.dirname(path))
    return os.path.samestat(os.lstat(path), facts) and all(
        f.st_uid == os.geteuid() and not f.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for f in both
    )


def _unpacked(packed: memoryview) -> bytes:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, LARGEST)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("more than an entry may have, or cut short")
    return text


def _checked(text: bytes, key: bytes) -> bytes | None:
    """The label of a file whose every bit is as it was written for `key`; else None."""
    if text[:8] != _MAGIC or _hash(memoryview(text)[24:]) != text[8:24] or text[24:40] != key:
        return None
    return text[_HEAD : _HEAD + int.from_bytes(text[_HEAD - 2 : _HEAD], "little")]


def _hash(text: bytes | memoryview) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def save(kind: str, key: bytes | None, value: Any, label: str, private: bool = False) -> bool:
    """Keep `value`, which JSON can represent, under `key`; `label` describes it for people. False if it was not kept.

    Args:
        private: nobody else may read the file or its folder.
    """
    where = folder() if settings.current().cache else None
    version = code_version()
    if where is None or key is None or version is None or not unchanged():
        return False
    note = label.encode()[:500]
    text = json.dumps(value, separators=(",", ":")).encode()
    if len(text) > LARGEST:
        return False
    rest = key + version + len(note).to_bytes(2, "little") + note + zlib.compress(text, 1)
    packed = _MAGIC + _hash(rest) + rest
    try:
        where.mkdir(parents=True, exist_ok=True)
        (where / kind).mkdir(0o700 if private else 0o777, exist_ok=True)
        files.replace(where / kind / key.hex(), lambda f: f.write(packed), cached=True, private=private)
        if _counted(where, len(packed)) > LIMIT >> 14:  # a sixteenth of the limit, in KiB
            os.truncate(where / _COUNT, 0)
            prune(where, max_bytes=LIMIT)
    except OSError as e:
        _say(f"nothing is kept in {where}: {e.strerror or e}")
        return False
    return True


def _counted(where: Path, size: int) -> int:
    """The KiB that processes wrote since one of them looked at the limit, with these `size` bytes: a look reads the
    facts of every entry, and there are tens of thousands. Where nothing was counted yet it is time to look."""
    first = not (where / _COUNT).exists()
    with open(where / _COUNT, "ab") as f:
        f.write(bytes((size >> 10) + 1))
        return LIMIT if first else f.tell()


def _files(where: Path) -> Iterator[tuple[str, os.DirEntry[str], os.stat_result]]:
    """(kind, file, its facts) of every file below `where`; what vanishes meanwhile is left out."""
    with suppress(OSError), os.scandir(where) as kinds:
        for kind in sorted(kinds, key=lambda e: e.name):
            with suppress(OSError), os.scandir(kind.path) as found:
                for e in found:
                    with suppress(OSError):
                        if e.is_file(follow_symlinks=False):
                            yield kind.name, e, e.stat(follow_symlinks=False)


def _is_entry(name: str) -> bool:
    return len(name) == 32 and all(c in "0123456789abcdef" for c in name)


def entries(where: Path, most: int | None = None) -> list[CacheEntry]:
    """Every entry below `where`, last used first. The first `most` of them, all if that is None, are read and checked;
    of the others label and state are empty."""
    found = [(kind, e.path, facts) for kind, e, facts in _files(where) if _is_entry(e.name)]
    found.sort(key=lambda f: (-f[2].st_mtime, f[1]))
    out: list[CacheEntry] = []
    for kind, path, facts in found:
        note = state = ""
        if most is None or len(out) < most:
            try:
                with files.opened(path) as f:
                    text = f.read(LARGEST + 1)
            except OSError:
                continue
            label = _checked(text, bytes.fromhex(os.path.basename(path)))
            state = "damaged" if label is None else "current" if text[40:56] == code_version() else "old"
            note = (label or b"").decode(errors="replace")
        out.append(CacheEntry(kind, Path(path), facts.st_size, facts.st_mtime, note, state))
    return out


def prune(where: Path, max_bytes: int | None = None, older_than: float | None = None) -> tuple[int, int, int]:
    """Remove entries unused for `older_than` seconds, then the longest unused until `max_bytes` are left, and files
    that a writer left behind. Returns how many entries and bytes went, and how many entries could not be removed;
    other files are not touched.
    """
    now = time.time()
    kept = []
    gone = freed = stuck = 0

    def remove(path: str, size: int) -> None:
        nonlocal gone, freed, stuck
        try:
            os.unlink(path)
            gone, freed = gone + 1, freed + size
        except FileNotFoundError:
            pass  # another process was faster
        except OSError:
            stuck += 1

    with suppress(OSError), os.scandir(where) as kinds:
        for kind in kinds:
            files.sweep(kind.path)
    for _, e, facts in _files(where):
        if not _is_entry(e.name):
            continue
        if older_than is not None and now - facts.st_mtime >= older_than:
            remove(e.path, facts.st_size)
        else:
            kept.append((facts.st_mtime, facts.st_size, e.path))
    if max_bytes is not None:
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= max_bytes:
                break
            remove(path, size)
            total -= size
    return gone, freed, stuck


def _say(text: str) -> None:
    """ANNEAL_DEBUG=1: once each."""
    if settings.current().debug >= 1:
        progress.note(text)


# -- the version of the compiler itself, as a hash of its source text -------------------------------------------------


_IMPORTED = time.time()
_PACKAGE = Path(__file__).resolve().parent.parent
# The packages that decide what a program is compiled to; those above them only write programs.
_ROOMS = ("cache", "uop", "rewrite", "schedule", "codegen", "backend")
_ENDS = (".py", ".wgsl", ".h")


@cache
def code_version() -> bytes | None:
    """A hash of every source file between a program and its kernels; None if what runs may not be what the files say.

    That is so where there are no source files, and where one was written after this process started.
    """
    return _source_hash(_PACKAGE, _IMPORTED)


def unchanged() -> bool:
    """True if the source files are still older than this process."""
    try:
        return all(t <= _IMPORTED for room in _ROOMS for _, t in sources(str(_PACKAGE / room), _ENDS))
    except OSError:
        return False


def _source_hash(package: Path, imported: float) -> bytes | None:
    try:
        rooms = [sources(str(package / room), _ENDS) for room in _ROOMS]
    except OSError:
        return None
    return digest([s for room in rooms for s in room], imported, str(package)) if all(rooms) else None


def digest(found: Iterable[tuple[str, float]], since: float, root: str = "") -> bytes | None:
    """A hash of source files, which stand below `root`; None where one changed after `since`, or cannot be read."""
    h = hashlib.blake2b(digest_size=16)
    try:
        for path, changed in found:
            if changed > since:
                return None
            text = Path(path).read_bytes()
            h.update(f"{path.removeprefix(root)} {len(text)}\n".encode() + text)
    except OSError:
        return None
    return h.digest()


def sources(folder: str, ends: tuple[str, ...]) -> list[tuple[str, float]]:
    """The files below `folder` with these endings, with their times, in an order that does not depend on the file
    system.
    """
    out = []
    with os.scandir(folder) as found:
        for e in sorted(found, key=lambda e: e.name):
            if e.name.endswith(ends):
                facts = e.stat()
                out.append((e.path, max(facts.st_mtime, facts.st_ctime)))
            elif e.is_dir() and e.name not in ("__pycache__", "node_modules") and e.name[0] != ".":
                out += sources(e.path, ends)
    return out
