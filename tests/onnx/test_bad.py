"""Broken models: one error that names the place and the fault, in bounded time and memory."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import anneal.onnx
from anneal.errors import OnnxError, OutOfMemoryError
from anneal.onnx.plan import ModelPlan
from tests.fuzz.files import mutated
from tests.onnx.bad import BAD, external, model, sparse
from tests.onnx.hostile import mutation, outcome


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


@pytest.mark.parametrize("indices", [[1, 5, 3], [[0, 1], [1, 2], [1, 0]]])
def test_a_sparse_initialiser_is_read_by_numbers_and_by_positions(indices: list[Any]) -> None:
    loaded = anneal.onnx.load(sparse([2.0, 3.0, 4.0], indices, [2, 3]).SerializeToString())
    assert loaded.program.graph.constants["w"].tolist() == [[0, 2, 0], [4, 0, 3]]


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


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_model_is_refused_or_runs(part: int) -> None:
    found = {}
    for n in range(1_000_000 + part, 1_000_400, 4):
        kind, data, given = mutation(random.Random(f"onnx {n}"), mutated)
        found[n, kind] = outcome(data, given)
    assert {k: v for k, v in found.items() if v not in ("runs", "refused")} == {}
    assert {"runs", "refused"} == set(found.values())


@pytest.mark.parametrize("n", [1_177_717])  # an axis of 2**40 elements beside one of none
def test_a_model_that_was_once_no_onnx_error_is_refused_or_runs(n: int) -> None:
    _, data, given = mutation(random.Random(f"onnx {n}"), mutated)
    assert outcome(data, given) in ("runs", "refused")


@pytest.mark.parametrize("error", [MemoryError, SystemError])
def test_a_function_that_gets_no_memory_is_an_error_of_anneal(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error("returned NULL without setting an exception")

    from onnx import helper

    loaded = anneal.onnx.load(model([helper.make_node("Neg", ["x"], ["y"])]).SerializeToString())
    monkeypatch.setattr(ModelPlan, "_run", fails)
    with pytest.raises(OutOfMemoryError, match="more memory than there is: returned NULL"):
        loaded.run({"x": np.ones(2, np.float32)})


def test_large_work_is_done_where_the_caller_allows_it() -> None:
    from onnx import helper

    made = model(
        [
            helper.make_node("ConstantOfShape", ["n"], ["zeros"]),
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Add", ["zeros", "sum"], ["a"]),
            helper.make_node("MatMul", ["a", "a"], ["y"]),
        ],
        weights=[helper.make_tensor("n", 7, [2], [512, 512])],
    ).SerializeToString()
    feeds = {"x": np.ones(2, np.float32)}
    with pytest.raises(OnnxError, match="takes the run to 134,217,730 elements that go through sums"):
        anneal.onnx.load(made, elements=1 << 18).run(feeds)
    assert anneal.onnx.load(made, elements=1 << 19).run(feeds)["y"].numpy()[0, 0] == 2048
