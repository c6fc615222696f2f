"""The store: what is read is what was written, or nothing."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anneal import cache, settings
from anneal.cache import store

VALUE = {"a": [1, 2.5, None, True], "b": "ω"}


def saved(place: Path, *parts: object, value: Any = VALUE) -> tuple[bytes, Path]:
    key = cache.disk_key(*(parts or ("x",)))
    assert key is not None
    assert cache.save("things", key, value, "a thing")
    path = place / "things" / key.hex()
    assert path.is_file()
    return key, path


def test_what_was_saved_comes_back(place: Path) -> None:
    key, _ = saved(place)
    assert cache.load("things", key) == VALUE
    assert cache.load("things", cache.disk_key("y")) is None
    assert cache.load("others", key) is None
    [entry] = cache.entries(place)
    assert (entry.kind, entry.label, entry.state) == ("things", "a thing", "current")


def test_every_flipped_bit_and_every_cut_is_a_miss(place: Path) -> None:
    key, path = saved(place)
    whole = path.read_bytes()
    for i in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :])
            assert cache.load("things", key) is None, (i, bit)
        path.write_bytes(whole[:i])
        assert cache.load("things", key) is None, i
    for wrong in (whole + b"\0", whole + whole, bytes(len(whole)), b"\xff" * len(whole)):
        path.write_bytes(wrong)
        assert cache.load("things", key) is None
    assert [e.state for e in cache.entries(place)] == ["damaged"]
    saved(place)
    assert cache.load("things", key) == VALUE


def test_an_entry_under_another_name_is_a_miss(place: Path) -> None:
    _, first = saved(place, "first")
    other = cache.disk_key("second")
    assert other is not None
    first.rename(first.with_name(other.hex()))
    assert cache.load("things", other) is None


def test_keys_tell_parts_apart(place: Path) -> None:
    keys = [cache.disk_key(*p) for p in (("ab",), ("a", "b"), ("a", b"b"), (b"ab",), ("a", "b", ""), ((), "ab"))]
    assert len(set(keys)) == len(keys)


def test_another_version_of_the_code_is_another_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = saved(place)
    monkeypatch.setattr(store, "code_version", lambda: b"another version..")
    assert cache.disk_key("x") != key
    assert cache.load("things", cache.disk_key("x")) is None
    assert [e.state for e in cache.entries(place)] == ["old"]


def test_the_version_follows_every_source_file(tmp_path: Path) -> None:
    for room in store._ROOMS:
        (tmp_path / room / "deep").mkdir(parents=True)
        (tmp_path / room / "a.py").write_text(room)
        (tmp_path / room / "deep" / "b.py").write_text("b")
    now = time.time() + 10
    seen = {store._source_hash(tmp_path, now)}
    for room in store._ROOMS:
        for name in ("a.py", "deep/b.py"):
            (tmp_path / room / name).write_text(f"other {name}")
            seen.add(store._source_hash(tmp_path, now))
    (tmp_path / "uop" / "c.py").write_text("")
    seen.add(store._source_hash(tmp_path, now))
    (tmp_path / "uop" / "c.py").rename(tmp_path / "uop" / "d.py")
    seen.add(store._source_hash(tmp_path, now))
    assert len(seen) == 1 + 2 * len(store._ROOMS) + 2
    assert None not in seen
    (tmp_path / "uop" / "notes.txt").write_text("not code")
    assert store._source_hash(tmp_path, now) in seen


def test_there_is_no_version_where_the_files_may_not_be_what_runs(tmp_path: Path) -> None:
    for room in store._ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text(room)
    assert store._source_hash(tmp_path, time.time() + 10) is not None
    assert store._source_hash(tmp_path, time.time() - 10) is None  # written after the process started
    (tmp_path / "uop" / "a.py").unlink()
    assert store._source_hash(tmp_path, time.time() + 10) is None  # byte code only
    assert store._source_hash(tmp_path / "none", time.time() + 10) is None


def test_nothing_is_kept_once_a_source_file_changed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, path = saved(place)
    path.unlink()
    monkeypatch.setattr(store, "_IMPORTED", 0.0)
    assert not cache.save("things", key, VALUE, "")
    assert not path.exists()


def test_switched_off_it_neither_reads_nor_writes(place: Path) -> None:
    key, path = saved(place)
    with settings.override(cache=False):
        assert cache.load("things", key) is None
        path.unlink()
        assert not cache.save("things", key, VALUE, "")
    assert not path.exists()


@pytest.mark.parametrize("trouble", ["a file in its place", "no space", "vanished", "not renamed"])
def test_a_disk_that_does_not_take_it_is_no_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if trouble == "a file in its place":
        place.write_text("")
    elif trouble == "no space":
        monkeypatch.setattr(os, "open", fail)
    elif trouble == "vanished":
        monkeypatch.setattr(Path, "mkdir", fail)
    else:
        monkeypatch.setattr(os, "replace", fail)
    key = cache.disk_key("x")
    with settings.override(debug=1):
        for _ in range(3):
            assert not cache.save("things", key, VALUE, "")
            assert cache.load("things", key) is None
    assert capsys.readouterr().err.count("nothing is kept in") == 1
    assert not cache.save("things", key, VALUE, "")
    assert capsys.readouterr().err == ""
    assert cache.entries(place) == []
    assert not list(place.rglob("*.unfinished"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_no_error(place: Path) -> None:
    place.mkdir(mode=0o500)
    assert not cache.save("things", cache.disk_key("x"), VALUE, "")


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_user_folder", lambda: None)
    with settings.override(cache=True, cache_dir=""):
        assert cache.folder() is None
        assert not cache.enabled()
        assert not cache.save("things", cache.disk_key("x"), VALUE, "")
        assert cache.load("things", cache.disk_key("x")) is None


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_over_the_limit_the_longest_unused_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [saved(place, n, value=os.urandom(500).hex())[1] for n in range(8)]
    for n, p in enumerate(paths):
        age(p, 1000 - n)
    assert cache.load("things", cache.disk_key(0)) is not None  # used: the newest now
    size = paths[0].stat().st_size
    monkeypatch.setattr(store, "LIMIT", 4 * size + size // 2)
    last = saved(place, "last", value=os.urandom(500).hex())[1]
    left = {e.path for e in cache.entries(place)}
    assert {last, paths[0]} <= left
    assert sum(p.stat().st_size for p in left) <= store.LIMIT
    assert left == {last, paths[0], paths[7], paths[6]}


def test_saving_costs_the_same_beside_any_number_of_entries(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the limit reads the facts of all entries, a sweep the folder: one for 16 MiB, whoever wrote them."""
    saved(place, "first")  # it looks: nobody has counted here
    looks: list[str] = []
    scan, remove = os.scandir, store.prune

    def scandir(path: Any) -> Any:
        if str(path).startswith(str(place)):
            looks.append("scan")
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(store, "prune", lambda *a, **k: looks.append("prune") or remove(*a, **k))
    for n in range(20):
        saved(place, n)
    assert looks == []
    with open(place / store._COUNT, "ab") as f:  # what other processes wrote meanwhile
        f.write(bytes(16 << 10))
    saved(place, "over")
    assert looks.count("prune") == 1
    looks.clear()
    saved(place, "next")
    assert looks == []


def test_prune_by_age_leaves_what_is_not_its_own(place: Path) -> None:
    old, new = saved(place, 1)[1], saved(place, 2)[1]
    age(old, 5000)
    names = (".x.0123abcd.unfinished", ".x.0123abce.unfinished", "README")
    abandoned, busy, foreign = (old.with_name(n) for n in names)
    for p in (abandoned, busy, foreign):
        p.write_text("x")
    age(foreign, 1e5)
    with busy.open("rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # as a writer does
        assert cache.prune(place, older_than=4000)[0] == 1
    assert sorted(p.name for p in (place / "things").iterdir()) == sorted([new.name, busy.name, foreign.name])
    assert cache.prune(place / "nowhere") == (0, 0, 0)


WRITER = """
import random, sys
from anneal import cache
seed = int(sys.argv[1])
r = random.Random(seed)
for n in range(150):
    k = r.randrange(4)
    key = cache.disk_key(k)
    found = cache.load("things", key)
    assert found is None or found == [k] * 3000, found
    what = r.randrange(4)
    if what == 0:
        cache.prune(cache.folder(), max_bytes=r.choice((0, 2000)))
    elif what == 1:
        for e in cache.entries(cache.folder()):
            assert e.state == "current", e
    else:
        assert cache.save("things", key, [k] * 3000, "k")
"""


def test_processes_share_a_folder(place: Path) -> None:
    env = {**os.environ, "ANNEAL_CACHE": "1", "ANNEAL_CACHE_DIR": str(place)}
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(n)], env=env) for n in range(3)]
    assert [p.wait(120) for p in running] == [0, 0, 0]
    assert not list(place.rglob("*.unfinished"))


def test_threads_share_a_folder(place: Path) -> None:
    def work(n: int) -> None:
        key = cache.disk_key(n % 3)
        for _ in range(30):
            assert cache.load("things", key) in (None, [n % 3])
            assert cache.save("things", key, [n % 3], "")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def crafted(key: bytes, packed: bytes) -> bytes:
    """An entry whose hash is right."""
    rest = key + bytes(16) + b"\0\0" + packed
    return b"anneal\x00\x01" + hashlib.blake2b(rest, digest_size=16).digest() + rest


def test_an_entry_is_unpacked_within_bounds(place: Path) -> None:
    key, path = saved(place)
    for packed in (
        zlib.compress(b" " * (48 << 20) + b"1", 9),
        zlib.compress(b"[" * 100_000, 9),
        zlib.compress(b"1")[:-1],
    ):
        path.write_bytes(crafted(key, packed))
        tracemalloc.start()
        try:
            assert cache.load("things", key) is None
            assert tracemalloc.get_traced_memory()[1] < 3 * store.LARGEST
        finally:
            tracemalloc.stop()
    path.write_bytes(crafted(key, zlib.compress(b"[1]")))
    assert cache.load("things", key) == [1]
    with path.open("r+b") as f:
        f.truncate(store.LARGEST + 1)
    assert cache.load("things", key) is None
    path.unlink()
    os.mkfifo(path)
    assert cache.load("things", key) is None
    assert cache.entries(place) == []


def test_what_does_not_decode_is_a_miss(place: Path) -> None:
    key, _ = saved(place)
    assert cache.load("things", key, lambda value: value["b"]) == "ω"
    for error in (KeyError, RecursionError, MemoryError, AssertionError):

        def fail(value: Any, error: type[Exception] = error) -> None:
            raise error

        assert cache.load("things", key, fail) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users have no numbers here")
def test_an_entry_that_others_may_write_is_a_miss(place: Path) -> None:
    key, path = saved(place)
    path.chmod(0o646)
    assert cache.load("things", key) is None
    path.chmod(0o664)
    assert cache.load("things", key) == VALUE
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        assert cache.load("things", key) is None
    assert cache.save("things", key, VALUE, "")
    assert cache.load("things", key) == VALUE


def test_a_value_that_is_too_large_is_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST", 1000)
    assert not cache.save("things", cache.disk_key("x"), "x" * 1000, "")
    assert cache.save("things", cache.disk_key("x"), "x" * 900, "")
