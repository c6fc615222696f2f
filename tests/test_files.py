"""anneal.files: what is written is whole or not there, wherever the writer was stopped, and nothing but files is
written or read.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anneal import files, load, onnx
from anneal.errors import DataError
from anneal.tensor import Tensor, io
from examples.gpt2.vocabulary import read_text
from tests.tiers import thinned

root = not hasattr(os, "geteuid") or os.geteuid() == 0

WRITERS: dict[str, Callable[[Path], object]] = {
    "files": lambda p: files.replace(p, lambda f: f.write(b"new")),
    "safetensors": lambda p: io.safe_save({"x": Tensor([1.0])}, p),
    "npy": lambda p: io.save_npy(Tensor([1.0]), p),
    "npz": lambda p: io.save_npz({"x": Tensor([1.0])}, p),
    "text": lambda p: io.save_text("new", p),
}
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@writers
@pytest.mark.parametrize("how", ["absolute", "relative", "of a link", "to nothing"])
def test_a_link_is_followed_and_stays(write: Callable[[Path], object], how: str, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    if how != "to nothing":
        target.write_bytes(b"old")
        target.chmod(0o640)
    link.symlink_to("far/target" if how == "relative" else target)
    given = link
    if how == "of a link":
        given = tmp_path / "second"
        given.symlink_to(link)
    write(given)
    assert link.is_symlink()
    assert given.is_symlink()
    assert not target.is_symlink()
    assert target.read_bytes() not in (b"", b"old")
    if how != "to nothing":
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert names(tmp_path / "far") == ["target"]


def _fifo(place: Path) -> Path:
    os.mkfifo(place)
    return place


def _socket(place: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(place))
    return place


def _folder(place: Path) -> Path:
    place.mkdir()
    return place


def _loop(place: Path) -> Path:
    place.symlink_to(place)
    return place


def _to_device(place: Path) -> Path:
    place.symlink_to("/dev/null")
    return place


def _locked(place: Path) -> Path:
    place.write_bytes(b"old")
    place.chmod(0o444)
    return place


OTHERS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "device": (lambda p: Path("/dev/full"), "it is a device, not a file"),
    "endless device": (lambda p: Path("/dev/zero"), "it is a device, not a file"),
    "link to a device": (_to_device, "it is a device, not a file"),
    "pipe": (_fifo, "it is a pipe, not a file"),
    "socket": (_socket, "it is a socket, not a file"),
    "folder": (_folder, "it is a folder, not a file"),
    "link to itself": (_loop, "symbolic links"),
    "long name": (lambda p: p.with_name("n" * 300), "File name too long"),
    "NUL": (lambda p: p.with_name("a\0b"), "not one that a file can have"),
    "half a character": (lambda p: p.with_name("a\ud800"), "not one that a file can have"),
    "nowhere": (lambda p: p / "below", "No such file"),
    "below a file": (lambda p: _locked(p) / "below", "Not a directory"),
}


@writers
@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_file_is_refused_and_stays(write: Callable[[Path], object], other: str, tmp_path: Path) -> None:
    make, said = OTHERS[other]
    path = make(tmp_path / "x")
    try:
        before = os.lstat(path)
    except (OSError, ValueError):
        before = None
    with pytest.raises((OSError, DataError), match=said):
        write(path)
    with pytest.raises(OSError, match=said):
        files.check_replaceable(path)
    if before is not None:
        after = os.lstat(path)
        assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)
    assert not [n for n in names(tmp_path) if n.endswith(".unfinished")]


@pytest.mark.parametrize("other", [o for o in OTHERS if o != "nowhere"])
def test_what_is_no_file_is_not_read(other: str, tmp_path: Path) -> None:
    path = OTHERS[other][0](tmp_path / "x")
    for read in (
        io.safe_load,
        io.safe_open,
        io.load_npy,
        io.load_npz,
        io.gguf_open,
        io.safe_metadata,
        load,
        onnx.load,
        read_text,
    ):
        with pytest.raises(DataError):
            read(path)  # type: ignore[operator]


@pytest.mark.skipif(root, reason="root may write anywhere")
def test_a_file_that_may_not_be_written_stays(tmp_path: Path) -> None:
    path = _locked(tmp_path / "x")
    with pytest.raises(PermissionError):
        files.replace(path, lambda f: f.write(b"new"))
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("length", [1, 100, 255])
def test_names_of_any_length(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("é" * (length // 2) + "n" * (length % 2))
    files.check_replaceable(path)
    assert names(tmp_path) == []
    files.replace(path, lambda f: f.write(b"x"))
    assert path.read_bytes() == b"x"


def test_rights_are_those_of_new_files_or_of_the_old_one(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.replace(tmp_path / "new", lambda f: f.write(b""))
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        seen: list[int] = []
        for mode in (0o600, 0o666, 0o755, 0o620):
            (tmp_path / "new").chmod(mode)
            files.replace(tmp_path / "new", lambda f: seen.append(stat.S_IMODE(os.fstat(f.fileno()).st_mode)))
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode
            assert seen[-1] & ~(mode | 0o200) == 0  # at no time may more people read it
    finally:
        os.umask(before)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("x"), KeyboardInterrupt()])
def test_what_fails_leaves_the_old_file_alone(error: BaseException, tmp_path: Path) -> None:
    def fail(f: object) -> None:
        raise error

    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(type(error)):
        files.replace(tmp_path / "x", fail)
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_only_what_is_abandoned_is_swept(tmp_path: Path) -> None:
    abandoned = [".x.01234567.unfinished", ".a\nb.89abcdef.unfinished"]
    others = [
        "x.01234567.unfinished",
        ".x.unfinished",
        ".x.0123456g.unfinished",
        ".x.01234567.unfinished~",
        "unfinished",
    ]
    for n in (*abandoned, *others):
        (tmp_path / n).write_bytes(b"half")
    (tmp_path / ".d.01234567.unfinished").mkdir()
    (tmp_path / ".l.01234567.unfinished").symlink_to(tmp_path / "unfinished")
    held = tmp_path / ".y.01234567.unfinished"
    held.write_bytes(b"half")
    with held.open("rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        files.replace(tmp_path / "new", lambda f: f.write(b""))
        left = {*others, ".d.01234567.unfinished", ".l.01234567.unfinished", held.name, "new"}
        assert set(names(tmp_path)) == left
    files.sweep(tmp_path)
    assert set(names(tmp_path)) == left - {held.name}
    files.sweep(tmp_path / "nowhere")


def test_writers_do_not_sweep_each_other(tmp_path: Path) -> None:
    """Several processes that write one file all the time: each write succeeds, and what is read is one of
    them, whole.
    """
    text = """
import sys
from anneal import files
for n in range(150):
    files.replace(sys.argv[1], lambda f: [f.write(sys.argv[2].encode() * 1000) for _ in range(20)])
"""
    path = tmp_path / "x"
    running = [subprocess.Popen([sys.executable, "-c", text, str(path), c]) for c in "abcd"]
    while any(p.poll() is None for p in running):
        found = path.read_bytes() if path.exists() else b"a" * 20_000
        assert len(found) == 20_000
        assert len(set(found)) == 1
    assert [p.wait() for p in running] == [0] * 4
    assert names(tmp_path) == ["x"]


LOOP = """
import sys
from anneal import files
n = int(sys.argv[2])
print(n, flush=True)
while True:
    n += 1
    files.replace(sys.argv[1], lambda f: [f.write(n.to_bytes(8, "little") * 4096) for _ in range(16)])
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    return tmp_path_factory.mktemp("killed"), []


@pytest.mark.parametrize("number", thinned(range(200), test=40, ci=10))
def test_a_killed_writer_leaves_a_whole_file_and_nothing_else(killed: tuple[Path, list[int]], number: int) -> None:
    folder, last = killed
    path = folder / "x"
    before = last[-1] if last else 0
    with subprocess.Popen([sys.executable, "-c", LOOP, str(path), str(before)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(random.Random(number).uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
    if path.exists():
        found = path.read_bytes()
        assert found == found[:8] * 4096 * 16
        last.append(int.from_bytes(found[:8], "little"))
        assert last[-1] >= before
    files.check_replaceable(path)  # what the next command does first
    assert names(folder) == (["x"] if path.exists() else [])
