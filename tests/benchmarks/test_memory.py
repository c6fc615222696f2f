"""The memory benchmark in small: it runs, and its reports have the figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import memory, report
from benchmarks.models import CASES, Training, planned


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    options = ("--tiny", "--steps", "2", "--json", *options)
    monkeypatch.setattr("sys.argv", ["benchmark", *options])
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", "benchmarks.memory", *options])
    memory.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.ci
def test_steps_are_measured_beside_their_plans(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(capsys, monkeypatch, "--peak", "--cases", "gpt2")
    ours = result["steps"]["gpt2"]["results"]["anneal"]
    assert ours["median_ms"] > 0
    assert ours["loss"] < 4.3
    assert ours["peak_bytes"] >= ours["in_use_peak_bytes"] > 0
    assert result["steps"]["gpt2"]["planned"]["temporaries"] > 0
    assert sum(line.startswith("| ") for line in report.section(memory, result)) == 2


def test_what_a_device_holds_is_watched(
    webgpu: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(capsys, monkeypatch, "--peak", "--cases", "gpt2", "--device", webgpu)
    ours = result["steps"]["gpt2"]["results"]["anneal"]
    planned_bytes = result["steps"]["gpt2"]["planned"]
    assert ours["peak_bytes"] >= planned_bytes["inputs"] + planned_bytes["temporaries"]
    assert ours["peaks_of_first_steps"] == sorted(ours["peaks_of_first_steps"])


def test_plans_say_what_a_step_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(capsys, monkeypatch, "--plan", "--cases", "gpt2,resnet18")
    for case in result["results"].values():
        assert case["temporaries"] >= case["live"] > 0
        assert case["outputs"] < case["inputs"]  # the state is overwritten: what is left is the loss
        assert sum(x["count"] * x["mib"] for x in case["largest"]) * 2**20 <= case["live"] * 1.001
    assert sum(line.startswith("| ") for line in report.section(memory, result)) == 3


@pytest.mark.ci
def test_a_step_of_full_size_is_planned_without_memory() -> None:
    """All state of GPT-2 small is overwritten; its weights and moments are never made."""
    case = CASES["gpt2"]
    plan, overwritten, _ = planned(case)
    outputs = {v for v in plan.outputs if v not in overwritten}
    assert sum(plan.values[v].size for v in outputs) == 1  # the loss
    assert len(plan.calls) <= 387  # two of each layer's are sums of pieces, which fill the device (`split_reduces.py`)
    assert sum(size for size, _ in plan.temporaries) <= 12_043 << 20


def test_torch_keeps_what_is_expected() -> None:
    torch_models = pytest.importorskip("benchmarks.peers.torch_models")
    expected = torch_models.expected_bytes(CASES["gpt2"].tiny())
    parameters = sum(t.numel() for t in Training(CASES["gpt2"].tiny()).model.parameters())
    assert expected["state"] == 3 * 4 * parameters
    assert expected["saved"] > 4 * 4 * 16 * 65  # the logits at least
