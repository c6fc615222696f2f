"""The example that names files: a tiny model in place of Magika's, and Magika's where it is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from examples import onnx_classify

CONFIG = {
    "beg_size": 6, "end_size": 4, "block_size": 16, "padding_token": 256, "target_labels_space": ["pdf", "png", "empty"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that knows three kinds by their first byte."""
    x = helper.make_tensor_value_info("x", TensorProto.INT32, ["n", 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    firsts = np.int32([[ord("%"), 0x89, 256]])
    weights = [numpy_helper.from_array(np.int64([0]), "zero"), numpy_helper.from_array(firsts, "firsts")]
    nodes = [
        helper.make_node("Gather", ["x", "zero"], ["first"], axis=1),
        helper.make_node("Equal", ["first", "firsts"], ["hit"]),
        helper.make_node("Cast", ["hit"], ["score"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["score", "nine"], ["large"]),
        helper.make_node("Softmax", ["large"], ["y"], axis=-1),
    ]
    weights.append(numpy_helper.from_array(np.float32(9), "nine"))
    made = helper.make_model(helper.make_graph(nodes, "kinds", [x], [y], weights))
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    (tmp_path / "config.min.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("data", "begin", "end"),
    [
        (b"", [256] * 6, [256] * 4),
        (b"ab", [97, 98, *[256] * 4], [256, 256, 97, 98]),
        (b"  abcdefgh\n\n", [97, 98, 99, 100, 101, 102], [101, 102, 103, 104]),
        (b"x" * 17 + b"yz", [120] * 6, [120, 120, 121, 122]),
    ],
)
def test_a_file_is_its_beginning_and_its_end_without_blanks(data: bytes, begin: list[int], end: list[int]) -> None:
    assert onnx_classify.features(data, CONFIG) == [*begin, *end]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["onnx_classify.py", *map(str, arguments)])
    return onnx_classify.main()


def test_files_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, data in (("a", b" %PDF-1.7 and more of it"), ("b", b"\x89PNG\r\n"), ("c", b" \n")):
        files.append(folder / name)
        files[-1].write_bytes(data)
    assert run(monkeypatch, *files, "--model", folder, "--device", "cpu") == 0
    kinds = [line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["pdf (100.0%)", "png (100.0%)", "empty (100.0%)"]
    assert run(monkeypatch, folder / "none", "--model", folder) == 1
    assert "No such file" in capsys.readouterr().err


def test_without_the_package_the_way_to_get_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(onnx_classify, "installed", lambda: None)
    assert run(monkeypatch, "README.md") == 1
    assert "pip install magika" in capsys.readouterr().err


def test_magika_knows_this_file() -> None:
    model = onnx_classify.installed()
    if model is None:
        pytest.skip("magika is not installed")
    ((kind, sure),) = onnx_classify.classify([Path(__file__)], model.parent, "cpu")
    assert kind == "python"
    assert sure > 0.9
