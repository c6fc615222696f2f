"""`anneal record`: what a script ran, what it printed, and how it ended."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anneal.inspect import KeptRecording
from tests.cli.helpers import run

SCRIPT = """
import sys
from anneal.tensor import Tensor
print("said", sys.argv[1:])
for _ in range(2):
    (Tensor([1.0, 2.0], device="cpu") + 1.0).sum().item()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    found = tmp_path / "mine.py"
    found.write_text(SCRIPT)
    return found


def test_a_script_is_run_and_its_plans_are_listed(
    capsys: pytest.CaptureFixture[str], script: Path, tmp_path: Path
) -> None:
    kept, trace = tmp_path / "r.zip", tmp_path / "t.json"
    outcome = run(capsys, "record", str(script), "-o", str(kept), "--trace", str(trace), "--", "--steps", "3")
    assert (outcome.code, outcome.out.splitlines()[0]) == (0, "said ['--steps', '3']")
    assert outcome.out.splitlines()[2].split()[:2] == ["0", "2"]
    assert "1 plan, 2 runs of them" in outcome.out
    assert KeptRecording(kept).summary()["plans"][0]["line"] == f"{script}:6"
    assert any(e["ph"] == "X" for e in json.loads(trace.read_text())["traceEvents"])


def test_the_parts_of_a_step_are_told(capsys: pytest.CaptureFixture[str], script: Path) -> None:
    """Kernels, and what lies between them, which is no kernel's time: their sum is the step."""
    script.write_text(
        "import time\nfrom anneal.tensor import Tensor\nx = Tensor([1.0, 2.0], device='cpu').realize()\n"
        "for _ in range(30):\n    (x + 1.0).realize()\n    time.sleep(0.001)\n"
    )
    outcome = run(capsys, "record", str(script))
    assert outcome.code == 0, outcome.err
    (parts,) = re.findall(r"^plan 0: of a step kernels (\d+)%, between kernels (\d+)%$", outcome.out, re.MULTILINE)
    assert int(parts[1]) > 50
    assert 80 <= sum(map(int, parts)) <= 101


def test_events_are_apart_from_what_the_script_prints(capsys: pytest.CaptureFixture[str], script: Path) -> None:
    outcome = run(capsys, "record", str(script), "--json", "--no-times")
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert [e["event"] for e in events] == ["plan", "done"]
    assert events[1]["plans"][0]["runs"] == 2
    assert "said" in outcome.err


def test_an_exception_is_told_and_what_ran_before_is_kept(
    capsys: pytest.CaptureFixture[str], script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(SCRIPT + "Tensor([1.0, 2.0]) @ Tensor([[1.0]])\n")
    kept = tmp_path / "r.zip"
    monkeypatch.chdir(tmp_path)
    outcome = run(capsys, "record", str(script), "-o", str(kept))
    assert (outcome.code, "matmul" in outcome.err, "Traceback" in outcome.err) == (2, True, False)
    found = KeptRecording(kept).summary()
    assert len(found["plans"]) == 1
    assert 'File "mine.py", line 7' in found["error"]
    assert "anneal/ops" not in found["error"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["no.py"], 4), (["{script}", "-o", "x.json"], 2), (["{script}", "--no-times", "--trace", "t.json"], 2)],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], script: Path, arguments: list[str], code: int) -> None:
    outcome = run(capsys, "record", *[a.format(script=script) for a in arguments])
    assert (outcome.code, "said" in outcome.out) == (code, False)
