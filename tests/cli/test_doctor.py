"""doctor: facts on stdout, advice on stderr, exit code 3 exactly when there is no hardware adapter."""

from __future__ import annotations

import json

import pytest

from anneal import inspect
from anneal.inspect import Adapter, advice
from tests.cli.helpers import run

GPU = Adapter(
    "Fast Card 9",
    0,
    "wgpu",
    "Vulkan",
    "DiscreteGPU",
    "driver 1.2",
    True,
    True,
    False,
    True,
    ["shader-f16"],
    {"max-buffer-size": 1 << 32},
)
LLVM = Adapter("llvmpipe (LLVM 15)", 1, "wgpu", "Vulkan", "CPU", "Mesa", False, False, False, False, [], {})
SOFTWARE_ONLY = "the only WebGPU adapter is software: llvmpipe"

CASES = [
    pytest.param(
        ([GPU, LLVM], GPU, ""), 0, "\u2713 webgpu: Fast Card 9 (Vulkan). Next: anneal train nanogpt", "", id="hardware"
    ),
    pytest.param(
        ([LLVM], None, SOFTWARE_ONLY), 3, f"\u2717 webgpu: {SOFTWARE_ONLY}", '--adapter "llvmpipe"', id="software"
    ),
    pytest.param(
        ([], None, "no WebGPU adapter was found"), 3, "\u2717 webgpu: no WebGPU adapter was", "--device cpu", id="none"
    ),
    pytest.param(([], None, "the wgpu package does not load: no"), 3, "does not load", "--device cpu", id="broken"),
]


@pytest.mark.parametrize(("found", "code", "out", "err"), CASES)
def test_says_what_there_is_and_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    found: tuple[list[Adapter], Adapter | None, str], code: int, out: str, err: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(inspect, "survey", lambda wanted: found)
    outcome = run(capsys, "doctor")
    assert outcome.code == code
    assert outcome.out.startswith(out) or out in outcome.out.splitlines()[0]  # the verdict comes first
    assert err in outcome.err
    report = json.loads(run(capsys, "doctor", "--json").out)
    assert report["status"] == ("failed" if code else "ok")
    assert [a["name"] for a in report["adapters"]] == [a.name for a in found[0]]
    assert report["chosen"] == (found[1].name if found[1] else None)
    assert bool(report["advice"]) == bool(code)


def test_features_are_told_when_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "survey", lambda wanted: ([GPU], GPU, ""))
    short, long = run(capsys, "doctor").out, run(capsys, "doctor", "--verbose").out
    assert "buffers up to 4,096 MiB, 1 features" in short
    assert "max-buffer-size" not in short
    assert "  features: shader-f16\n  max-buffer-size: 4294967296 (4,096 MiB)" in long


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "doctor", "--json")
    report = json.loads(outcome.out)
    assert (outcome.code == 0) == (report["status"] == "ok")
    assert outcome.code in (0, 3)
    assert report["cpu"]["status"] == "ok"
    assert {"anneal", "python", "system", "numpy", "wgpu"} <= set(report["versions"])
    assert "ANNEAL_DEVICE" in report["settings"]


@pytest.mark.parametrize("system", ["Linux", "Darwin", "Windows", "Plan9"])
def test_every_system_gets_advice(system: str) -> None:
    lines = advice(system, [])
    assert len(lines) >= 2
    assert any("--device cpu" in line for line in lines)
