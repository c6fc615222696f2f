"""Where files are, when they are trusted, who downloads, and what happens without a network."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest

from anneal import settings
from anneal.assets import ASSETS, Asset, _files, fetch, location, verify
from anneal.errors import DataError
from tests.assets.server import ANSWERS, BODY, OTHER, Server

ROOT = Path(__file__).resolve().parents[2]


def by_hand(asset: Asset, data: bytes) -> Path:
    path = location(asset)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose hash was taken."""
    seen: list[Path] = []

    def examine(path: Path, examine: Callable[[Path], tuple[str, os.stat_result]] = _files.examine) -> object:
        result = examine(path)
        seen.append(path)
        return result

    monkeypatch.setattr(_files, "examine", examine)
    return seen


def test_the_pins_are_whole() -> None:
    gpt2 = [f"gpt2/{file}" for file in ("model.safetensors", "vocab.json", "merges.txt")]
    assert list(ASSETS) == [*gpt2, "cifar10/cifar-10-binary.tar.gz"]
    for name, asset in ASSETS.items():
        assert name == asset.name
        assert re.fullmatch("[0-9a-f]{64}", asset.sha256)
        revision = "/resolve/[0-9a-f]{40}" if name in gpt2 else ""  # where others may change what is there
        assert re.fullmatch(rf"https://[\w./~-]+{revision}/{name.split('/')[1]}", asset.url)
    assert ASSETS["gpt2/model.safetensors"].bytes == 548_105_171


def test_a_file_that_was_put_there_by_hand_needs_no_download(server: Server, asset: Asset, place: Path) -> None:
    assert verify(asset) is None
    by_hand(asset, BODY)
    assert verify(asset) == fetch(asset) == place / "assets" / "folder" / "file.bin"
    assert server.seen == []


@pytest.mark.parametrize("how", ["download", "by hand"])
def test_a_hash_is_taken_once(asset: Asset, hashed: list[Path], how: str) -> None:
    path = by_hand(asset, BODY) if how == "by hand" else fetch(asset)
    verify(asset)
    hashed.clear()
    assert verify(asset) == fetch(asset) == path
    assert hashed == []


def test_a_file_that_was_touched_is_hashed_again_once(asset: Asset, hashed: list[Path]) -> None:
    path = fetch(asset)
    hashed.clear()
    os.utime(path, (1e9, 1e9))
    assert [verify(asset), verify(asset)] == [path, path]
    assert hashed == [path]


@pytest.mark.parametrize("stamp", [b"", b"\xff\xfe", b"0" * 64])
def test_a_stamp_that_says_nothing_costs_a_hash(asset: Asset, hashed: list[Path], stamp: bytes) -> None:
    path = fetch(asset)
    hashed.clear()
    Path(f"{path}.verified").write_bytes(stamp)
    assert verify(asset) == path
    assert hashed == [path]


def _in_place(path: Path) -> None:
    path.write_bytes(OTHER)


def _same_time(path: Path) -> None:
    facts = path.stat()
    time.sleep(0.02)
    path.write_bytes(OTHER)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _another_file(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(OTHER)
    os.replace(other, path)


def _truncated(path: Path) -> None:
    os.truncate(path, 1000)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_in_place, _same_time, _another_file, _truncated, _emptied])
@pytest.mark.parametrize("offline", [False, True])
def test_a_file_that_was_replaced_is_noticed(
    server: Server, asset: Asset, harm: Callable[[Path], None], offline: bool
) -> None:
    path = fetch(asset)
    harm(path)
    found = path.read_bytes()
    server.seen.clear()
    with settings.override(offline=offline), pytest.raises(DataError) as error:
        fetch(asset)
    said = str(error.value)
    assert f"{path} is not the file that is pinned: SHA-256 " in said
    assert f"expected {asset.sha256} (300,000 bytes). It was moved to {path}.rejected; then " in said
    assert ("put the right file there" if offline else "run the command again") in said
    assert not path.exists()
    assert Path(f"{path}.rejected").read_bytes() == found
    assert server.seen == []
    assert fetch(asset).read_bytes() == BODY


def test_a_change_within_one_tick_of_the_clock_is_noticed(asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        by_hand(asset, BODY)
        assert verify(asset) == location(asset)
        location(asset).write_bytes(OTHER)
        with pytest.raises(DataError, match="not the file that is pinned"):
            verify(asset)
    # Some systems count finer than others: whatever they do, a tick passes before the hash of a new file.
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    _files.examine(by_hand(asset, BODY))
    os.utime(location(asset), (1e9, 1e9))
    _files.examine(location(asset))
    assert waits == [0.02]


def test_a_wrong_file_that_cannot_be_moved(asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    path = by_hand(asset, OTHER)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(DataError, match=r"cannot be moved away \(Permission denied\): remove it; then run"):
        verify(asset)
    assert path.exists()


def test_a_folder_in_its_place(asset: Asset) -> None:
    location(asset).mkdir(parents=True)
    with pytest.raises(DataError, match="cannot be read"):
        fetch(asset)


def test_a_link_to_a_file_elsewhere(asset: Asset, tmp_path: Path, server: Server) -> None:
    elsewhere = tmp_path / "weights"
    elsewhere.write_bytes(BODY)
    by_hand(asset, b"").unlink()
    location(asset).symlink_to(elsewhere)
    assert fetch(asset).read_bytes() == BODY
    assert server.seen == []
    elsewhere.unlink()  # a link to nothing is replaced
    assert fetch(asset).read_bytes() == BODY
    assert not location(asset).is_symlink()


def test_a_folder_that_can_only_be_read(server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    by_hand(asset, BODY)
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert fetch(asset) == verify(asset) == location(asset)
    location(asset).unlink()
    with pytest.raises(DataError, match=r"cannot be written \(Permission denied\); .* ANNEAL_CACHE_DIR"):
        fetch(asset)
    assert server.seen == []


def test_a_file_system_without_locks(server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("no locks here")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(DataError, match="cannot be written .no locks here"):
        fetch(asset)
    assert server.seen == []


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    with monkeypatch.context() as patch:
        for name in ("socket", "create_connection", "getaddrinfo", "gethostbyname"):
            patch.setattr(socket, name, refuse)
        yield


@pytest.mark.usefixtures("no_sockets")
def test_offline_opens_no_socket(asset: Asset) -> None:
    with settings.override(offline=True):
        with pytest.raises(DataError) as error:
            fetch(asset)
        assert str(error.value) == (
            f"{location(asset)} is missing, and ANNEAL_OFFLINE forbids to download it; unset that, or put the file at "
            f"{location(asset)} yourself: 300,000 bytes, SHA-256 {asset.sha256}, from {asset.url}"
        )
        assert not location(asset).parent.exists()
        by_hand(asset, BODY)
        assert fetch(asset).read_bytes() == BODY


def test_offline_does_not_go_on_with_a_part(server: Server, asset: Asset) -> None:
    by_hand(asset, BODY).rename(f"{location(asset)}.part")
    with settings.override(offline=True), pytest.raises(DataError, match="ANNEAL_OFFLINE"):
        fetch(asset)
    assert server.seen == []


def start_another(asset: Asset, place: Path) -> subprocess.Popen[str]:
    """Another process that fetches."""
    code = f"from anneal.assets import Asset, fetch; print(fetch({asset!r}))"
    environ = {**os.environ, "ANNEAL_CACHE_DIR": str(place), "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_of_several_processes_one_downloads(server: Server, asset: Asset, place: Path) -> None:
    server.script = [ANSWERS["hang"], ANSWERS["drip"]]
    first = start_another(asset, place)
    wait_for(lambda: bool(server.seen))
    waiting = [start_another(asset, place) for _ in range(2)]
    for other in waiting:
        assert other.stderr is not None
        said = other.stderr.readline()
        assert said == f"anneal: waiting for another process that is working on {location(asset)}\n"
    server.go_on.set()
    for other in (first, *waiting):
        assert other.communicate(timeout=60) == (f"{location(asset)}\n", "")
    assert server.seen == [None, "bytes=131072-"]
    assert location(asset).read_bytes() == BODY


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kill -9 is for POSIX")
def test_a_killed_download_goes_on(server: Server, asset: Asset, place: Path) -> None:
    part = Path(f"{location(asset)}.part")
    for expected in (131072, 262144):
        server.script = [ANSWERS["hang"]]
        other = start_another(asset, place)
        wait_for(lambda expected=expected: part.exists() and part.stat().st_size >= expected)
        other.send_signal(signal.SIGKILL)
        other.communicate()
        assert not location(asset).exists()
    assert fetch(asset).read_bytes() == BODY
    assert server.seen == [None, "bytes=131072-", "bytes=262144-"]


def test_what_only_a_download_needs_is_imported_by_a_download() -> None:
    code = "import sys, anneal.assets; print(sorted({'requests', 'filelock', 'rich', 'ssl'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
