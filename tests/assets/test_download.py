"""Whatever the server does: there is the file with the pinned hash, or none and an error that says what to do."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import itertools
import shutil
import ssl
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
import urllib3
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from anneal import progress, settings
from anneal.assets import Asset, _files, fetch, location, verify
from anneal.errors import DataError
from tests.assets.server import ANSWERS, BODY, OTHER, Server, cut, status


def part_of(asset: Asset) -> Path:
    return Path(f"{location(asset)}.part")


@pytest.fixture(autouse=True)
def _only_the_pinned_file(asset: Asset) -> Iterator[None]:
    """Each test ends with the pinned file in its place, or none."""
    yield
    path = location(asset)
    assert not path.exists() or path.read_bytes() == BODY


def leave(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# What the server answers -> the Range of each request that leads to the file.
ARRIVES: list[tuple[list[str], list[str | None]]] = [
    ([], [None]),
    (["no length"], [None]),
    (["chunked"], [None]),
    (["gzip"], [None]),
    (["drip"], [None]),
    (["redirect"], [None, None]),
    (["500", "503", "429"], [None] * 4),
    (["hangs up without an answer", "no http"], [None] * 3),
    (["silent"], [None, None]),
    (["416"], [None, None]),
    (["another range", "a range without its place"], [None] * 3),
    (["not gzip at all"], [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "ranges"), ARRIVES, ids=lambda x: ", ".join(map(str, x)))
def test_the_file_arrives(server: Server, asset: Asset, answers: list[str], ranges: list[str | None]) -> None:
    server.script = [ANSWERS[a] for a in answers]
    assert fetch(asset) == location(asset)
    assert location(asset).read_bytes() == BODY
    assert not part_of(asset).exists()
    assert server.seen == ranges
    assert set(server.encodings) == {"identity"}


# What cuts the download -> how the rest is answered -> whether the last answer is to a request for the rest.
CUTS = ["cut", "range ignored, cut", "no length, cut", "chunked, cut", "gzip, cut", "hang"]
RESTS = {
    "good": True, "range ignored": True, "no length": True, "a range of unknown length": True, "503": True,
    "416": False, "gzip of a range": False, "another range": False, "a range without its place": False,
    "a range with too much": False, "another file": False, "not gzip at all": False,
}  # fmt: skip


@pytest.mark.parametrize("how", CUTS)
def test_a_cut_download_goes_on_where_it_stopped(server: Server, asset: Asset, how: str) -> None:
    server.script = [ANSWERS[how]]
    assert fetch(asset).read_bytes() == BODY
    first, second = server.seen
    assert first is None
    assert second is not None
    assert int(second.removeprefix("bytes=").rstrip("-")) >= _files.CHUNK


@pytest.mark.parametrize("rest", RESTS)
def test_what_the_server_makes_of_a_range(server: Server, asset: Asset, rest: str) -> None:
    server.script = [cut(131_072), ANSWERS[rest]]
    assert fetch(asset).read_bytes() == BODY
    assert server.seen[1] == "bytes=131072-"
    assert (server.seen[-1] is not None) == RESTS[rest]


def test_many_cuts_are_no_failure_while_much_arrives(
    server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "GAIN", 10_000)
    monkeypatch.setattr(_files, "CHUNK", 1000)
    server.script = [cut(20_000)] * 14
    assert fetch(asset).read_bytes() == BODY
    assert len(server.seen) == 15


def test_a_server_that_cuts_and_ignores_ranges_does_not_go_on_for_ever(
    server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "GAIN", 10_000)
    server.script = [ANSWERS["range ignored, cut"]] * 50
    with pytest.raises(DataError, match="attempts, 196,608 of 300,000 bytes are there"):
        fetch(asset)
    assert len(server.seen) == _files.ATTEMPTS


FINAL = [
    ("404", "the server answers 404 Not Found for http://127"),
    ("403", "the server answers 403 Forbidden for http://127"),
    ("redirect to itself", "Exceeded 30 redirects"),
    ("another file", f"SHA-256 {hashlib.sha256(OTHER).hexdigest()}, expected {hashlib.sha256(BODY).hexdigest()}"),
    ("a shorter file", "250,000 bytes, expected 300,000"),
    ("a longer file", "300,004 bytes, expected 300,000"),
    ("no end", "more than 300,000 bytes"),
    ("a wrong length", "300,005 bytes, expected 300,000"),
    ("a login page", "26 bytes, expected 300,000"),
]


@pytest.mark.parametrize(("answer", "text"), FINAL, ids=[a for a, _ in FINAL])
def test_what_no_further_attempt_would_change(server: Server, asset: Asset, answer: str, text: str) -> None:
    server.script = [ANSWERS[answer]] * 31
    with pytest.raises(DataError) as error:
        fetch(asset)
    assert text in str(error.value)
    assert f"put the file at {location(asset)} yourself: 300,000 bytes, SHA-256 {asset.sha256}" in str(error.value)
    assert len(server.seen) == (31 if "redirect" in answer else 1)
    assert sorted(p.name for p in location(asset).parent.iterdir()) == ["file.bin.lock"]


def test_a_body_without_an_end_is_not_read_to_the_end(server: Server, asset: Asset) -> None:
    server.script = [ANSWERS["no end"]]
    with pytest.raises(DataError, match="more than 300,000 bytes"):
        fetch(asset)
    assert server.hung_up.wait(30)


def test_the_file_changes_between_attempts(server: Server, asset: Asset) -> None:
    server.script = [ANSWERS["another file, cut"], ANSWERS["good"]]
    assert fetch(asset).read_bytes() == BODY
    assert server.seen == [None, "bytes=131072-", None]


def test_the_length_changes_between_attempts(server: Server, asset: Asset) -> None:
    server.script = [cut(131_072), ANSWERS["a longer file"], cut(131_072), ANSWERS["a shorter file"]]
    assert fetch(asset).read_bytes() == BODY
    assert server.seen == [None, "bytes=131072-", None, "bytes=131072-", None]


PARTS = {
    "a good beginning": (BODY[:123_456], ["bytes=123456-"]),
    "all of it": (BODY, []),
    "a wrong beginning": (OTHER[:1000], ["bytes=1000-", None]),
    "all of another file": (OTHER, [None]),
    "a hole that a power cut left": (BODY[:1000] + bytes(5000), ["bytes=6000-", None]),
    "too much": (BODY + b"x", [None]),
    "nothing": (b"", [None]),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_an_earlier_download_left(server: Server, asset: Asset, name: str) -> None:
    left, ranges = PARTS[name]
    leave(part_of(asset), left)
    assert fetch(asset).read_bytes() == BODY
    assert server.seen == ranges


def test_attempts_wait_longer_and_longer(server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(_files.time, "sleep", waits.append)
    monkeypatch.setattr(_files.random, "uniform", lambda low, high: high)
    monkeypatch.setattr(_files, "BACK_OFF", 1.0)
    server.script = [
        status(500),
        status(503, Retry_After="7"),
        status(429, Retry_After="9999"),
        status(502),
        status(500),
    ]
    with pytest.raises(
        DataError, match=r"the server answers 500 Internal Server Error; 5 attempts, 0 of 300,000 bytes"
    ):
        fetch(asset)
    assert waits == [1.0, 7.0, _files.LONGEST_WAIT, 8.0]


def test_nobody_listens(asset: Asset) -> None:
    with pytest.raises(DataError, match="Connection refused"):
        fetch(dataclasses.replace(asset, url="http://127.0.0.1:1/file"))


@pytest.mark.parametrize("there", [0, 1000])
def test_without_a_network_it_says_so_at_once(asset: Asset, there: int) -> None:
    """In three lines, after one attempt; what an earlier command brought stays."""
    leave(part_of(asset), BODY[:there])
    with pytest.raises(DataError, match="nowhere.invalid cannot be reached") as error:
        fetch(dataclasses.replace(asset, url="http://nowhere.invalid/file"))
    assert len(str(error.value).splitlines()) == 3
    assert part_of(asset).stat().st_size == there


def test_a_network_that_goes_in_the_middle_may_come_back(
    server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, calls = requests.get, []

    def gone(*args: Any, **kwargs: Any) -> requests.Response:
        calls.append(1)
        if len(calls) == 2:
            inner = OSError(errno.ENETUNREACH, "Network is unreachable")
            raise requests.exceptions.ConnectionError(urllib3.exceptions.ProtocolError("gone", inner))
        return get(*args, **kwargs)

    monkeypatch.setattr(requests, "get", gone)
    server.script = [ANSWERS["cut"]]
    assert fetch(asset).read_bytes() == BODY
    assert len(calls) == 3


def test_a_certificate_that_is_not_trusted_is_not_tried_again(asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def get(*_: object, **__: object) -> None:
        calls.append(1)
        inner = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
        reason = urllib3.exceptions.SSLError(inner)
        raise requests.exceptions.SSLError(urllib3.exceptions.MaxRetryError(None, asset.url, reason))  # type: ignore[arg-type]

    monkeypatch.setattr(requests, "get", get)
    with pytest.raises(DataError, match="certificate verify failed"):
        fetch(asset)
    assert calls == [1]


def test_a_disk_that_fills_up(server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:

    class Full:
        def __init__(self, path: Path, mode: str) -> None:
            self.file, self.room = path.open(mode), 100_000

        def write(self, data: bytes) -> None:
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(data)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    monkeypatch.setattr(_files, "open", Full, raising=False)
    with pytest.raises(
        DataError, match=r"cannot be written \(No space left on device\); free space .*ANNEAL_CACHE_DIR"
    ):
        fetch(asset)
    assert not location(asset).exists()
    monkeypatch.undo()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert fetch(asset).read_bytes() == BODY
    assert server.seen == [None, "bytes=65536-"]


def test_too_little_room_is_noticed_before_the_download(
    server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: NamedTuple("Usage", free=int)(free=1000))
    with pytest.raises(DataError, match=r"needs 300,000 bytes more, and .* has 1,000 left"):
        fetch(asset)
    assert server.seen == []


def test_a_folder_that_cannot_be_made(server: Server, asset: Asset, place: Path) -> None:
    leave(place / "assets", b"a file where the folder should be")
    with pytest.raises(DataError, match="cannot be written"):
        fetch(asset)
    assert server.seen == []


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is(server: Server, asset: Asset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress, "AFTER", 0.0)
    monkeypatch.setattr(progress, "REDRAWN", 0.01)
    monkeypatch.setattr(_files.time, "sleep", lambda _, sleep=_files.time.sleep: sleep(0.15))
    server.script = [status(500)]
    with progress.shown():
        fetch(asset)
    assert "downloading folder/file.bin" in screen.getvalue()
    assert "0.0 of 0.3 MB" in screen.getvalue()
    assert "\u2026" in screen.getvalue()
    monkeypatch.setattr(progress, "_WIDEST", 119)
    fetch_again = dataclasses.replace(asset, name="folder/other.bin")
    server.script = [status(500)]
    with progress.shown():
        fetch(fetch_again)
    assert "500 Internal Server Error; again in 0 s" in screen.getvalue()


def test_a_program_shows_nothing(server: Server, asset: Asset, capfd: pytest.CaptureFixture[str]) -> None:
    server.script = [status(500)]
    fetch(asset)
    assert capfd.readouterr() == ("", "")


FOUND: dict[str, bytes | None] = {
    "nothing": None, "the file": BODY, "another": OTHER, "the beginning": BODY[:1000], "empty": b"",
}  # fmt: skip
_folders = itertools.count()


@hypothesis_settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    answers=st.lists(st.sampled_from(sorted(set(ANSWERS) - {"hang", "silent", "drip"})), max_size=6),
    left=st.sampled_from([None, *(data for data, _ in PARTS.values())]),
    found=st.sampled_from(sorted(FOUND)),
    stamp=st.sampled_from([None, b"", b"\xff" * 99]),
)
def test_the_file_is_the_pinned_one_or_there_is_none(
    server: Server, asset: Asset, place: Path,
    answers: list[str], left: bytes | None, found: str, stamp: bytes | None,
) -> None:  # fmt: skip
    with settings.override(cache_dir=str(place / str(next(_folders)))):
        path = location(asset)
        for suffix, data in (("", FOUND[found]), (".part", left), (".verified", stamp)):
            if data is not None:
                leave(Path(f"{path}{suffix}"), data)
        server.script = [ANSWERS[a] for a in answers]
        outcomes = []
        for _ in range(3):
            try:
                assert fetch(asset) == path
                assert path.read_bytes() == BODY
                assert verify(asset) == path
                outcomes.append("fetched")
            except DataError:
                assert not path.exists()
                outcomes.append("error")
        # Once the server behaves, one more run is enough, whatever was left by those before.
        server.script = []
        assert fetch(asset).read_bytes() == BODY
