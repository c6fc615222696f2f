"""The kernel benchmarks in small: they run, their values are checked, and their reports have the figures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from benchmarks import _harness as h, matmul, memory_bound, ours, report


@pytest.mark.parametrize(("module", "sizes"), [(matmul, "small,conv"), (memory_bound, "copy,AdamW")])
def test_a_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: Any, sizes: str) -> None:
    options = ["--tiny", "--rounds", "1", "--sizes", sizes, "--json"]
    monkeypatch.setattr("sys.argv", ["benchmark", *options])
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", module.__name__, *options])
    module.main()
    result = json.loads(capsys.readouterr().out)
    assert result["contestants"]["anneal"]["device"]
    assert len(result["cases"]) == 2
    lines = report.section(module, result)
    assert lines[0].startswith("`python -m ")
    assert sum(line.startswith("| ") for line in lines) == 3
    for case in result["cases"].values():
        assert case["results"]["anneal"]["rate"] > 0
        assert case["results"]["anneal"]["kernels"] >= 1


@pytest.mark.parametrize("case", matmul.CASES, ids=lambda c: c.name)
def test_products_are_what_they_are_checked_against(case: Any) -> None:
    _, error = matmul.prepare(ours.Kernels("cpu"), case.tiny())
    assert error() < h.TOLERANCE


@pytest.mark.parametrize("case", memory_bound.CASES, ids=lambda c: c.name)
def test_memory_bound_work_is_what_it_is_checked_against(case: memory_bound.Case) -> None:
    _, error = memory_bound.prepare(ours.Kernels("cpu"), case, 1.0)
    assert error() < h.TOLERANCE


def test_wrong_values_are_noticed() -> None:
    case = next(c for c in memory_bound.CASES if c.name == "softmax 128")
    right = np.concatenate([memory_bound.softmax(case.tile(1.0)[0].astype(np.float64))] * case.rows(1.0)[1])
    assert case.error([right], 1.0) == 0
    right[-1, -1] += 1
    assert case.error([right], 1.0) > h.TOLERANCE
