"""The benchmark of ONNX files at a size that says whether it works."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import onnx_loops, onnx_peers


@pytest.mark.ci  # four fresh interpreters
def test_a_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    x, y = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 2]) for n in "xy"]
    weight = numpy_helper.from_array(np.float32([[1, 2], [3, 4]]), "weight")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "weight"], ["y"])], "layer", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "layer.onnx").write_bytes(model.SerializeToString())
    flags = [str(tmp_path), "--runs", "1", "--rounds", "1", "--threads", "1", "--shape", "x=3,2", "--json"]
    monkeypatch.setattr("sys.argv", ["onnx_peers", *flags])
    onnx_peers.main()
    result = json.loads(capsys.readouterr().out)
    assert result["cases"]["layer"]["error"] < 1e-6
    (row,) = onnx_peers.rows(result)
    assert row["anneal ms"] > 0
    assert row["onnxruntime ms"] > 0
    assert row["first s"] > 0
    assert row["with plans"] > 0


def test_inputs_are_the_same_for_all_who_list_the_same() -> None:
    listed = [("ids", "int64", ("batch", 8)), ("x", "float32", (2, "n"))]
    first, again = [onnx_peers.random_inputs(listed, {"ids": [3, 8]}) for _ in range(2)]
    assert first["ids"].shape == (3, 8)
    assert first["ids"].max() < onnx_peers.TOKENS
    assert first["x"].shape == (2, 1)
    assert all((first[n] == again[n]).all() for n in first)


@pytest.mark.ci  # six models
def test_a_report_of_loops(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("sys.argv", ["onnx_loops", "--steps", "3,40", "--rounds", "1", "--json"])
    onnx_loops.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["case"], r["steps"]) for r in rows] == [(c, n) for c in onnx_loops.CASES for n in (3, 40)]
    assert all(r["error"] < 1e-5 for r in rows)
