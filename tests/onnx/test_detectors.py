"""Detectors find another number of boxes in each run: the ops that follow have one plan for all numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper

import anneal.onnx
from anneal.runtime import cache_statistics
from tests.onnx.bad import array, floats, model, node
from tests.onnx.test_segments import calls, check, ran, session, untyped  # noqa: F401

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
MANY = 40

# name: nodes that make "y" of the boxes (k, 4) and scores (k) that were found
AFTER: dict[str, list[Any]] = {
    "the first 20": [node("Slice", ["boxes", "[0]", "[20]"], ["y"])],
    "the last 20": [node("Slice", ["boxes", "[-20]", "[far]"], ["y"])],
    "the best 10, by a count": [
        node("Shape", ["scores"], ["k"]),
        node("Min", ["k", "[10]"], ["most"]),
        node("TopK", ["scores", "most"], ["best", "at"]),
        node("Gather", ["boxes", "at"], ["y"]),
    ],
    "the best 10, by a joined count": [
        node("Shape", ["scores"], ["k"]),
        node("Concat", ["[10]", "k"], ["both"], axis=0),
        node("ReduceMin", ["both"], ["most"], keepdims=0),
        node("Unsqueeze", ["most", "[0]"], ["count"]),
        node("TopK", ["scores", "count"], ["best", "at"]),
        node("Gather", ["boxes", "at"], ["y"]),
    ],
    "all, in order": [
        node("Shape", ["scores"], ["k"]),
        node("TopK", ["scores", "k"], ["best", "at"]),
        node("Gather", ["boxes", "at"], ["y"]),
    ],
    "filled up to 50": [
        node("Shape", ["scores"], ["k"]),
        node("Sub", ["[50]", "k"], ["missing"]),
        node("Cast", ["missing"], ["i32"], to=TensorProto.INT32),
        node("Cast", ["i32"], ["less"], to=I64),
        node("Concat", ["[0]", "[0]", "less", "[0]"], ["pads"], axis=0),
        node("Pad", ["boxes", "pads"], ["y"]),
    ],
    "20, filled up": [
        node("Slice", ["boxes", "[0]", "[20]"], ["cut"]),
        node("Shape", ["cut"], ["k"], end=1),
        node("Sub", ["[20]", "k"], ["missing"]),
        node("Concat", ["[0]", "[0]", "missing", "[0]"], ["pads"], axis=0),
        node("Pad", ["cut", "pads"], ["y"]),
    ],
    "regions of an image": [
        node("Reshape", ["x", "[1,1,10,16]"], ["image"]),
        node("Squeeze", ["where", "[0]"], ["numbers"]),
        node("Mul", ["numbers", "[0]"], ["first"]),
        node("RoiAlign", ["image", "boxes", "first"], ["y"], output_height=2, output_width=3, sampling_ratio=2),
    ],
    "parts of an image": [
        node("Reshape", ["x", "[1,1,10,16]"], ["image"]),
        node("Transpose", ["where"], ["column"]),
        node("Mul", ["column", "[0]"], ["zeros"]),
        node("Cast", ["zeros"], ["first"], to=F),
        node("Add", ["boxes", "wide"], ["some boxes"]),
        node("Concat", ["first", "some boxes"], ["regions"], axis=1),
        node("MaxRoiPool", ["image", "regions"], ["y"], pooled_shape=[2, 3]),
    ],
}


def finding(after: list[Any]) -> bytes:
    """Boxes and scores of which those are found whose score is above 0."""
    nodes = [
        node("Greater", ["s", "bar"], ["good"]),
        node("NonZero", ["good"], ["where"]),
        node("Transpose", ["where"], ["places"]),
        node("GatherND", ["x", "places"], ["some"]),
        node("GatherND", ["s", "places"], ["scores"]),
        node("Mul", ["some", "part"], ["boxes"]),
    ]
    weights = [array("bar", 0, np.float32), array("part", 0.5, np.float32), array("[far]", [2**63 - 1])]
    weights += [array(f"[{n}]", [n]) for n in (0, 10, 20, 50, -20)] + [array("[1,1,10,16]", [1, 1, 10, 16])]
    weights.append(array("wide", [1, 1, 9, 7], np.float32))
    return bytes(
        model([*nodes, *after], [floats("x", MANY, 4), floats("s", MANY)], untyped("y"), weights).SerializeToString()
    )


@pytest.mark.parametrize("name", AFTER)
def test_what_follows_from_a_number_of_boxes_has_one_plan(name: str, device: str, ran: list[str]) -> None:  # noqa: F811
    file = finding(AFTER[name])
    m, reference = anneal.onnx.load(file, device), session(file)
    random = np.random.default_rng(0)

    def image(count: int) -> dict[str, Any]:
        scores = np.where(np.arange(MANY) < count, 1, -1) * random.uniform(0.1, 1, MANY)
        return {"x": random.standard_normal((MANY, 4)).astype(np.float32), "s": random.permutation(scores.astype("f"))}

    for count in (30, 7, 0, 40, 12, 0, 35, 25):
        check(file, m, image(count), reference)
    before = cache_statistics()[1]
    ran.clear()
    for count in (1, 9, 10, 0, 11, 19, 20, 21, 39):
        check(file, m, image(count), reference)
    assert cache_statistics()[1] == before
    assert set(ran) <= {"NonZero", "Constant"}
    assert {s.node.split()[0] for s in m.host_steps} == {"NonZero"}


def test_captures_grow_with_the_most_that_was_found_and_not_with_what_is_found_together() -> None:
    """Two counts of any size each: a capture for one does not need another for each size of the other."""
    nodes = [node("NonZero", [f"{x} is"], [f"{x} where"]) for x in "pq"]
    nodes += [node("Gather", [x, f"{x} where"], [f"{x} rows"]) for x in "pq"]
    nodes += [node("Squeeze", [f"{x} rows", "[0]"], [f"{x} found"]) for x in "pq"]
    nodes += [node("Concat", ["p found", "q found"], ["all"], axis=0), node("Exp", ["all"], ["y"])]
    inputs = [floats(x, 100) for x in "pq"] + [helper.make_tensor_value_info(f"{x} is", BOOL, [100]) for x in "pq"]
    file = bytes(model(nodes, inputs, untyped("y"), [array("[0]", [0])]).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    p = np.linspace(0, 1, 100, dtype=np.float32)
    counts = [(5, 8), (9, 7), (100, 100), (70, 80), (2, 5)]
    for a, b in [*counts, (50, 30), (3, 60), (20, 99), (90, 9), (64, 1), (1, 33), (17, 2)]:
        before = cache_statistics()[1]
        check(file, m, {"p": p, "q": -p, "p is": np.arange(100) < a, "q is": np.arange(100) < b}, reference)
    assert cache_statistics()[1] == before


# -- NonMaxSuppression ------------------------------------------------------------------------------------------------


def suppressing(center: int) -> bytes:
    inputs = [floats("b", None, None, 4), floats("s", None, None, None)]
    inputs += [helper.make_tensor_value_info("most", I64, [1]), floats("overlap", 1), floats("least", 1)]
    names = [v.name for v in inputs]
    nodes = [node("NonMaxSuppression", names, ["y"], center_point_box=center)]
    return bytes(model(nodes, inputs, untyped("y")).SerializeToString())


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("n", [1, 5, 63, 65, 200])
def test_boxes_that_are_suppressed_equal_onnxruntimes(n: int, center: int) -> None:
    """Several batches and classes, equal scores, equal and flat boxes, limits that are reached within a block."""
    file = suppressing(center)
    m, reference, random = anneal.onnx.load(file, "cpu"), session(file), np.random.default_rng(n)
    for turn in range(6):
        boxes, scores = random.random((2, n, 4)), random.random((2, 3, n))
        if turn % 2:
            boxes, scores = np.round(boxes * 4) / 4, np.round(scores * 8) / 8
        if turn % 3:
            boxes[..., 2:] = boxes[..., 2:] * 0.3 + (0 if center else boxes[..., :2])
        feeds: dict[str, Any] = {"b": boxes, "s": scores, "overlap": [(0.5, 0, 1)[turn % 3]], "least": [turn / 8]}
        feeds = {k: np.asarray(v, np.float32) for k, v in feeds.items()}
        check(file, m, feeds | {"most": np.array([(1000, 1, 20, 0)[turn % 4]])}, reference)


def test_many_boxes_are_compared_at_once() -> None:
    m, random = anneal.onnx.load(suppressing(0), "cpu"), np.random.default_rng(0)
    cost = {}
    for n in (500, 3000):
        near = random.random((1, n, 2))
        feeds = {"b": np.concatenate([near, near + 0.005], 2), "s": random.random((1, 1, n))}
        feeds = {k: v.astype(np.float32) for k, v in feeds.items()} | {"most": np.array([n])}
        feeds |= {"overlap": np.float32([0.5]), "least": np.float32([0])}
        assert m.run(feeds)["y"].shape[0] > 0.9 * n
        cost[n] = calls(lambda feeds=feeds: m.run(feeds))
    assert cost[3000] - cost[500] < 2500, "less than one call for each box"
