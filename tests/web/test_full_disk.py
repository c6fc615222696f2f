"""A disk that gets full: one line says so, to the terminal and on the page, and nothing is left half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.helpers import run
from tests.web.helpers import opened, over

pytestmark = pytest.mark.slow
resource = pytest.importorskip("resource", reason="files are limited by setrlimit, which Windows has not")


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file of this process, and of those that it starts, gets larger than so many bytes.

    What they import is not kept compiled: Python would leave the first bytes of it, which nobody can import later.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 160 KiB; skipped for those who may mount none."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)]
    try:
        mounted = sys.platform == "linux" and subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("needs a small disk, which may not be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Leave no room on the disk of a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(file, bytes(1 << 12))
    os.close(file)


def test_a_bundle_that_does_not_fit_stops_the_run_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with limited(20_000):
        outcome = run(capsys, "train", "mlp", "--device", "cpu", "--steps", "500", "--bundle", "--quiet")
    assert outcome.code == 4, outcome.err
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: the bundle runs/")
    assert line.endswith("cannot be written (File too large); leave out --bundle")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_that_does_not_fit_is_shown_with_why(small: Path) -> None:
    with opened(small) as client:
        made = client.post("/api/jobs", json={"kind": "train", "model": "mlp", "device": "cpu", "steps": 1500})
        ended = over(client, made.json()["id"])
        assert (ended["state"], ended["code"]) == ("failed", 4)
        assert "the bundle runs/" in ended["error"]
        assert "cannot be written (No space left on device)" in ended["error"]
        assert client.get("/api/runs").json() == []
        fill(small / "filled")
        refused = client.post("/api/jobs", json={"kind": "train", "model": "mlp", "device": "cpu", "steps": 3})
        assert refused.status_code == 507
        assert refused.json() == {"error": "the job cannot be kept: No space left on device"}
    with opened(small) as client:  # a server that starts later finds the same, and no other job
        (job,) = client.get("/api/jobs").json()
        assert (job["state"], job["error"]) == ("failed", ended["error"])


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as client, limited(20_000):
        answer = client.post("/api/uploads", content=bytes(50_000), headers={"x-file-name": "x.npy"})
    assert answer.status_code == 507, answer.text
    assert "cannot be kept" in answer.json()["error"]
    assert [p.name for p in (tmp_path / "runs/.studio/uploads").iterdir()] == []


def test_a_job_that_left_no_exit_code_is_no_crash(tmp_path: Path) -> None:
    """What a process leaves that lost its power, or its disk."""
    name = "20260314T150926-train-a1b2c3"
    place = tmp_path / "runs/.studio/jobs" / name
    place.mkdir(parents=True)
    facts = {"id": name, "kind": "train", "model": "mlp", "device": "cpu", "arguments": [], "about": {}}
    (place / "job.json").write_text(json.dumps({**facts, "state": "running", "pid": 1}))
    with opened(tmp_path) as client:
        job = over(client, name)
    assert (job["state"], job["error"]) == ("failed", "the process ended without an exit code; it may have been killed")
