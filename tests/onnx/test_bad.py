"""Broken models: one error that names the place and the fault, in bounded time and memory."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import anneal.onnx
from anneal.errors import OnnxError
from tests.onnx.bad import BAD, external


def test_there_are_many() -> None:
    assert len(BAD) >= 120


@pytest.mark.parametrize("name", BAD)
def test_a_broken_model_is_one_error_that_names_the_fault(name: str) -> None:
    bad = BAD[name]
    made = bad.make()
    data = made if isinstance(made, bytes) else made.SerializeToString()
    begun = time.perf_counter()
    with pytest.raises(OnnxError, match=(bad.says if "\\" in bad.says else re.escape(bad.says)) or None) as caught:
        anneal.onnx.load(data, budget=20_000).run(bad.feeds)["y"].numpy()
    assert "Traceback" not in str(caught.value)
    assert time.perf_counter() - begun < 20


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"location": "/etc/hostname"}, "outside the model's folder"),
        ({"location": "../secret.bin"}, "outside the model's folder"),
        ({"location": "inner/../../secret.bin"}, "outside the model's folder"),
        ({"location": "link.bin"}, "outside the model's folder"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "."}, "missing"),
        ({"location": "none.bin"}, "missing"),
        ({"location": "w.bin", "offset": "5"}, "has 3 bytes"),
        ({"location": "w.bin", "offset": "9"}, "which has 8"),
        ({"location": "w.bin", "offset": "-4"}, "which has 8"),
        ({"location": "w.bin", "length": "99"}, "which has 8"),
        ({"location": "w.bin", "length": str(2**62)}, "which has 8"),
        ({"location": "w.bin", "offset": str(2**62), "length": "8"}, "which has 8"),
        ({"location": "w.bin", "length": "4"}, "has 4 bytes"),
        ({"location": "w.bin", "offset": "x"}, "is no number"),
        ({"location": "w.bin\0"}, "is no path"),
    ],
)
def test_external_data_lie_in_the_folder_and_have_the_size_they_say(
    said: dict[str, str], fault: str, tmp_path: Path
) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.float32([1, 2]).tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "m.onnx").write_bytes(external(**said).SerializeToString())
    with pytest.raises(OnnxError, match=re.escape(fault) or None):
        anneal.onnx.load(folder / "m.onnx")
    assert anneal.onnx.load(folder / "m.onnx", structure_only=True).outputs[0].name == "y"


def test_external_data_in_the_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 4 + np.float32([1, 2]).tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(external(location="w.bin", offset="4", length="8").SerializeToString())
    assert anneal.onnx.load(path).run({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 3]
