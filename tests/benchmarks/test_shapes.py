"""The loops over shapes in small: each runs, and its shapes are all different."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks import shapes


@pytest.mark.ci
@pytest.mark.parametrize("mode", shapes.MODES)
def test_every_loop_runs(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    if mode == "onnx" and importlib.util.find_spec("onnx") is None:
        pytest.skip("onnx is not installed")
    found = shapes.loop(mode, 6, 4, each=2)
    assert [row["shapes"] for row in found["rows"]] == [2, 4, 6]
    assert found["slower"] > 0
    assert capsys.readouterr().err.count(" MiB, ") == 3
