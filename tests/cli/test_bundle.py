"""--bundle: a folder that says what a run was and did, whole or not there."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from anneal import settings
from anneal.cli import _reporters
from tests.cli.helpers import run
from tests.conftest import opened

ARGUMENTS = ("train", "mlp", "--steps", "4", "--batch", "32", "--json")


def _only(folder: Path) -> Path:
    (found,) = (folder / "runs").iterdir()
    return found


def _manifest(bundle: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    for name, f in facts["files"].items():
        data = (bundle / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (f["bytes"], f["sha256"])
    assert set(facts["files"]) | {"manifest.json"} == {
        p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()
    }
    return facts


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_a_bundle_says_what_the_run_did(capsys: pytest.CaptureFixture[str], tmp_path: Path, device: str) -> None:
    with opened(device):
        outcome = run(capsys, *ARGUMENTS, "--device", device, "--bundle")
    assert outcome.code == 0
    bundle = _only(tmp_path)
    assert outcome.err == f"bundle  {bundle.relative_to(tmp_path)}\n"
    stamp, model, tail = bundle.name.split("-")
    assert (len(stamp), model, len(tail)) == (15, "mlp", 6)
    assert int(tail, 16) >= 0
    facts = _manifest(bundle)
    assert (facts["status"], facts["model"], facts["device"]) == ("done", "mlp", device)
    assert (facts["steps"], facts["steps_done"], facts["batch"], facts["seed"]) == (4, 4, 32, 1)
    assert facts["error"] is None
    events = [json.loads(line) for line in (bundle / "events.jsonl").read_text().splitlines()]
    assert events == outcome.events
    rows = list(csv.DictReader((bundle / "loss.csv").read_text().splitlines()))
    assert [(int(r["step"]), float(r["loss"])) for r in rows] == [
        (e["step"], e["loss"]) for e in events if e["event"] == "step"
    ]
    config = json.loads((bundle / "config.json").read_text())
    assert config["options"]["steps"] == 4
    assert config["settings"]["debug"] == 0
    kernels = json.loads((bundle / "schedule.json").read_text())["kernels"]
    names = {k["name"] for k in kernels}
    assert len(kernels) >= 5
    assert {p.stem for p in (bundle / "kernels").iterdir()} == names
    starts = ("fn main(", "void kernel_")  # of WGSL, and of C where the cpu compiles it
    assert all(any(s in p.read_text() for s in starts) for p in (bundle / "kernels").iterdir())
    assert "# backward" in (bundle / "graph.txt").read_text()


def test_off_by_default_and_on_by_the_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, *ARGUMENTS, "--device", "cpu")
    assert not (tmp_path / "runs").exists()
    with settings.override(bundle=True):
        run(capsys, *ARGUMENTS, "--device", "cpu")
    assert _manifest(_only(tmp_path))["status"] == "done"


def test_a_run_that_fails_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outcome = run(capsys, "train", "mlp", "--steps", "60", "--lr", "1e30", "--device", "cpu", "--json", "--bundle")
    assert outcome.code == 2
    facts = _manifest(_only(tmp_path))
    assert facts["status"] == "failed"
    assert "the loss became" in facts["error"]


def test_what_a_killed_run_leaves_is_no_bundle(tmp_path: Path) -> None:
    bundle = _reporters.Bundle("mlp", {})
    bundle.line(event="start")
    (left,) = (tmp_path / "runs").iterdir()
    assert left.name == f".{bundle.path.name}"
    assert not bundle.path.exists()
    assert bundle.finish() == bundle.finish()
    assert [p.name for p in (tmp_path / "runs").iterdir()] == [bundle.path.name]


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    outcome = run(capsys, *ARGUMENTS, "--device", "cpu", "--bundle")
    assert outcome.code != 0
    assert "cannot be written" in outcome.err
    assert "leave out --bundle" in outcome.err
