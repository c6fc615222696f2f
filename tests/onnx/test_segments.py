"""Runs with host steps: what is before, between and behind them is captured, and replayed for any sizes found."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper

import anneal.onnx
from anneal.errors import OnnxError
from anneal.onnx.execute import GraphRun
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor
from tests.onnx.bad import array, floats, ints, model, node

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators of the nodes that were run one after the other, or traced."""
    ops: list[str] = []
    run_node = GraphRun.node

    def noted(self: GraphRun, n: int, node: Any, scope: Any) -> None:
        ops.append(node.op)
        run_node(self, n, node, scope)

    monkeypatch.setattr(GraphRun, "node", noted)
    return ops


def untyped(*names: str) -> list[Any]:
    return [helper.make_empty_tensor_value_info(n) for n in names]


def session(file: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def check(file: bytes, m: anneal.onnx.Model, feeds: dict[str, Any], reference: Any = None) -> None:
    """A run equals onnxruntime's."""
    results = m.run(feeds)
    for (name, ours), theirs in zip(results.items(), (reference or session(file)).run(None, feeds), strict=True):
        assert isinstance(ours, Tensor), name
        assert ours.shape == theirs.shape, name
        assert str(ours.dtype.name) in (theirs.dtype.name, "int32"), name
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5, err_msg=name)


def detector(batch: Any = 1) -> bytes:
    """Convolutions, boxes and scores, NonMaxSuppression, and what is computed from the boxes that it chooses."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        spread = (2 / np.prod(shape[1:])) ** 0.5
        return numpy_helper.from_array((random.standard_normal(shape) * spread).astype(np.float32), name)

    weights = [weight("a", 8, 3, 3, 3), weight("b", 4, 8, 1, 1), weight("c", 1, 8, 1, 1)]
    for name, value in {
        "[0]": [0],
        "[1]": [1],
        "[2]": [2],
        "[3]": [3],
        "[4]": [4],
        "most": [100],
        "[-1]": [-1],
    }.items():
        weights.append(array(name, value))
    for name, number in {"part": 0.3, "overlap": [0.4], "least": [0.5]}.items():
        weights.append(array(name, number, np.float32))
    weights += [array("boxes of", [0, -1, 4]), array("scores of", [0, 1, -1])]
    nodes = [
        node("Conv", ["x", "a"], ["f"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["f"], ["r"]),
        node("Conv", ["r", "b"], ["b1"]),
        node("Transpose", ["b1"], ["b2"], perm=[0, 2, 3, 1]),
        node("Reshape", ["b2", "boxes of"], ["b3"]),
        node("Sigmoid", ["b3"], ["b4"]),
        node("Slice", ["b4", "[0]", "[2]", "[2]"], ["near"]),
        node("Slice", ["b4", "[2]", "[4]", "[2]"], ["size"]),
        node("Mul", ["size", "part"], ["small"]),
        node("Add", ["near", "small"], ["far"]),
        node("Concat", ["near", "far"], ["boxes"], axis=2),
        node("Conv", ["r", "c"], ["s1"]),
        node("Reshape", ["s1", "scores of"], ["s2"]),
        node("Sigmoid", ["s2"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"], name="choose"),
        node("Slice", ["chosen", "[2]", "[3]", "[1]"], ["column"]),
        node("Squeeze", ["column", "[1]"], ["places"]),
        node("Slice", ["boxes", "[0]", "[1]", "[0]"], ["first"]),
        node("Squeeze", ["first", "[0]"], ["rows"]),
        node("Gather", ["rows", "places"], ["found"]),
        node("Slice", ["scores", "[0]", "[1]", "[0]"], ["firsts"]),
        node("Reshape", ["firsts", "[-1]"], ["flat"]),
        node("Gather", ["flat", "places"], ["sure"]),
        node("Mul", ["found", "found"], ["squares"]),
        node("ReduceSum", ["squares", "[1]"], ["sums"], keepdims=0),
        node("Mul", ["sums", "sure"], ["weighted"]),
        node("Shape", ["found"], ["how many"]),
    ]
    outputs = untyped("found", "sure", "weighted", "how many")
    return bytes(model(nodes, [floats("x", batch, 3, 16, 16)], outputs, weights).SerializeToString())


def images(n: int, batch: int = 1) -> Any:
    random = np.random.default_rng(n)
    return (random.standard_normal((batch, 3, 16, 16)) * (0.3 + 0.1 * (n % 5))).astype(np.float32)


def test_a_detector_runs_one_node_and_replays_the_others(device: str, ran: list[str]) -> None:
    file = detector()
    m, reference = anneal.onnx.load(file, device), session(file)
    for n in [*range(16), *range(16)]:
        check(file, m, {"x": images(n)}, reference)
    plans = cache_statistics()[1]
    ran.clear()
    counts = set()
    for n in range(16):
        check(file, m, {"x": images(n)}, reference)
        counts.add(m.run({"x": images(n)})["sure"].shape[0])
    assert len(counts) > 4
    assert set(ran) <= {"NonMaxSuppression", "Constant"}
    assert cache_statistics()[1] == plans
    (step,) = {s.node for s in m.host_steps}
    assert "'choose'" in step


def test_a_detector_of_any_batch_has_one_plan(ran: list[str]) -> None:
    file = detector("n")
    m, reference = anneal.onnx.load(file, "cpu", shapes={"n": (1, 4)}), session(file)
    for n in list(range(12)) * 3:
        check(file, m, {"x": images(n, 1 + n % 4)}, reference)
    assert [str(s) for s in m.sizes] == ["n (1 to 4): one plan"]
    assert len(m._plans) == 1
    ran.clear()
    for n in range(12):
        check(file, m, {"x": images(n, 1 + n % 4)}, reference)
    assert set(ran) <= {"NonMaxSuppression", "Constant"}


def test_nothing_that_is_found_is_a_size_too() -> None:
    file = detector()
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in (0, 1, None, 2, None, None, 3):
        x = np.full((1, 3, 16, 16), -5, np.float32) * 0 if n is None else images(n)
        check(file, m, {"x": x}, reference)


def test_sizes_that_were_equal_so_far_may_differ() -> None:
    nodes = [
        node("Compress", ["x", "p"], ["a"], axis=0),
        node("Compress", ["x", "q"], ["b"], axis=0),
        node("Concat", ["a", "b"], ["c"], axis=0),
        node("Exp", ["c"], ["y"]),
    ]
    conditions = [helper.make_tensor_value_info(n, BOOL, [6]) for n in "pq"]
    file = bytes(model(nodes, [floats("x", 6), *conditions], untyped("y")).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    x = np.arange(6, dtype=np.float32) / 6
    for a, b in [(2, 2), (3, 3), (4, 4), (3, 3), (4, 2), (5, 1), (2, 2), (1, 6), (6, 1), (3, 3)]:
        check(file, m, {"x": x, "p": np.arange(6) < a, "q": np.arange(6)[::-1] < b}, reference)


FINDING: dict[str, list[Any]] = {
    "positions": [
        node("NonZero", ["big"], ["p"]),
        node("Transpose", ["p"], ["t"]),
        node("GatherND", ["x", "t"], ["z"]),
    ],
    "compressed": [node("Compress", ["x", "big"], ["z"])],
    "unique": [node("Round", ["x"], ["r"]), node("Unique", ["r"], ["z"])],
    "the largest": [
        node("Cast", ["big"], ["b"], to=I64),
        node("ReduceSum", ["b"], ["k"], keepdims=0),
        node("Unsqueeze", ["k", "[0]"], ["k1"]),
        node("TopK", ["x", "k1"], ["z", "at"], axis=0),
    ],
    "a part": [
        node("Cast", ["big"], ["b"], to=I64),
        node("ReduceSum", ["b"], ["k"], keepdims=0),
        node("Unsqueeze", ["k", "[0]"], ["k1"]),
        node("Slice", ["x", "[0]", "k1"], ["z"]),
    ],
    "a range": [
        node("Cast", ["big"], ["b"], to=I64),
        node("ReduceSum", ["b"], ["k"], keepdims=0),
        node("Range", ["0", "k", "1"], ["places"]),
        node("Gather", ["x", "places"], ["z"]),
    ],
}


@pytest.mark.parametrize("name", FINDING)
def test_what_is_found_on_the_host_is_the_same_in_every_run(name: str) -> None:
    before = [node("Sin", ["w"], ["x"]), node("Greater", ["x", "bar"], ["big"])]
    behind = [node("Mul", ["z", "z"], ["square"]), node("Neg", ["square"], ["y"])]
    weights = [array("bar", 0.1, np.float32), array("[0]", [0]), array("0", 0), array("1", 1)]
    file = bytes(
        model([*before, *FINDING[name], *behind], [floats("w", 12)], untyped("y"), weights).SerializeToString()
    )
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    random = np.random.default_rng(0)
    for _ in range(14):
        check(file, m, {"w": (random.standard_normal(12) * 3).astype(np.float32)}, reference)
    assert m.host_steps


# -- control flow -----------------------------------------------------------------------------------------------------


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs)


def test_both_branches_of_an_if_are_kept(ran: list[str]) -> None:
    grow = graph([node("Mul", ["h", "h"], ["g"]), node("Add", ["g", "x"], ["a"])], [], untyped("a"))
    shrink = graph(
        [node("Abs", ["h"], ["s"]), node("Sqrt", ["s"], ["t"]), node("Sub", ["t", "x"], ["b"])], [], untyped("b")
    )
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Sub", ["e", "one"], ["h"]),
        node("ReduceSum", ["h"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node("If", ["c"], ["z"], then_branch=grow, else_branch=shrink),
        node("Neg", ["z"], ["n"]),
        node("Mul", ["n", "e"], ["y"]),
    ]
    weights = [array("zero", 0, np.float32), array("one", 1, np.float32)]
    file = bytes(model(nodes, [floats("x", 20)], untyped("y"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    xs = [np.linspace(0, n / 4, 20, dtype=np.float32) * (-1) ** n for n in range(12)]
    for x in xs:
        check(file, m, {"x": x}, reference)
    ran.clear()
    for x in xs:
        check(file, m, {"x": x}, reference)
    assert not ran
    assert not m.host_steps


def countdown(n: int = 2) -> bytes:
    """A loop as long as what it carries is below a bar: how often it turns is not known before."""
    body = graph(
        [
            node("Add", ["v", "x"], ["w"]),
            node("Mul", ["w", "half"], ["h"]),
            node("Sin", ["h"], ["s"]),
            node("Add", ["w", "s"], ["next"]),
            node("ReduceMax", ["next"], ["top"], keepdims=0),
            node("Less", ["top", "bar"], ["goes"]),
            node("Cast", ["turn"], ["t"], to=F),
            node("Mul", ["next", "t"], ["row"]),
        ],
        [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", n)],
        [helper.make_tensor_value_info("goes", BOOL, []), floats("next", n), floats("row", n)],
    )
    nodes = [node("Loop", ["", "yes", "x"], ["last", "rows"], body=body), node("Neg", ["rows"], ["y"])]
    weights = [array("half", 0.5, np.float32), array("bar", 5, np.float32), array("yes", True, np.bool_)]
    return bytes(model(nodes, [floats("x", n)], untyped("last", "y"), weights).SerializeToString())


def test_the_body_of_a_loop_is_replayed_a_turn(device: str, ran: list[str]) -> None:
    file = countdown()
    m, reference = anneal.onnx.load(file, device), session(file)
    for n in range(6):
        check(file, m, {"x": np.array([1 + n / 3, 0.5], np.float32)}, reference)
    ran.clear()
    for n in range(6):
        check(file, m, {"x": np.array([1 + n / 3, 0.5], np.float32)}, reference)
    assert ran == ["Loop"] * 6


def test_few_turns_whose_number_depends_on_values_are_a_loop_on_the_device(device: str, ran: list[str]) -> None:
    """No turn waits for the model's runner: it is captured whole."""
    body = graph(
        [
            node("Mul", ["v", "half"], ["next"]),
            node("ReduceMax", ["next"], ["top"], keepdims=0),
            node("Greater", ["top", "bar"], ["goes"]),
        ],
        [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", 3)],
        [helper.make_tensor_value_info("goes", BOOL, []), floats("next", 3)],
    )
    weights = [array("half", 0.5, np.float32), array("bar", 0.6, np.float32), array("ten", 10, np.int64)]
    nodes = [node("Loop", ["ten", "", "x"], ["last"], body=body), node("Neg", ["last"], ["y"])]
    file = bytes(model(nodes, [floats("x", 3)], untyped("last", "y"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, device), session(file)
    for top in (0.1, 1.0, 5.0, 80.0, 1e9):
        check(file, m, {"x": np.array([top, -3.0, 0.01], np.float32)}, reference)
    assert ran.count("Loop") <= 2, "traced, and captured"


def test_a_search_inside_a_branch_inside_a_loop() -> None:
    many = graph(
        [node("Compress", ["v", "chosen"], ["kept"]), node("ReduceSum", ["kept"], ["a"], keepdims=1)], [], untyped("a")
    )
    few = graph([node("ReduceMax", ["v"], ["b"], keepdims=1)], [], untyped("b"))
    body = graph(
        [
            node("Greater", ["v", "bar"], ["chosen"]),
            node("Cast", ["chosen"], ["ones"], to=F),
            node("ReduceSum", ["ones"], ["count"], keepdims=0),
            node("Greater", ["count", "two"], ["c"]),
            node("If", ["c"], ["z"], then_branch=many, else_branch=few),
            node("Cos", ["v"], ["turned"]),
            node("Add", ["turned", "z"], ["next"]),
            node("Identity", ["on"], ["goes"]),
        ],
        [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", 5)],
        [helper.make_tensor_value_info("goes", BOOL, []), floats("next", 5), floats("z", 1)],
    )
    nodes = [node("Loop", ["times", "", "x"], ["last", "rows"], body=body), node("Neg", ["rows"], ["y"])]
    weights = [array("bar", 0.2, np.float32), array("two", 2, np.float32)]
    file = bytes(model(nodes, [floats("x", 5), ints("times")], untyped("last", "y"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    random = np.random.default_rng(0)
    for n in range(10):
        x = random.standard_normal(5).astype(np.float32)
        check(file, m, {"x": x, "times": np.array(1 + n % 4)}, reference)


# -- runs -------------------------------------------------------------------------------------------------------------


def test_results_keep_their_values_and_feed_the_next_run() -> None:
    nodes = [
        node("Greater", ["x", "bar"], ["c"]),
        node("Compress", ["x", "c"], ["z"]),
        node("Mul", ["z", "two"], ["y"]),
    ]
    weights = [array("bar", 1, np.float32), array("two", 2, np.float32)]
    m = anneal.onnx.load(model(nodes, [floats("x", None)], untyped("y"), weights).SerializeToString(), "cpu")
    kept = []
    for n in range(8):
        x: Any = np.arange(n + 3, dtype=np.float32)
        for _ in range(5):
            x = m.run({"x": x})["y"]  # what comes out goes in
            kept.append((x, x.numpy()))
    for y, values in kept:
        np.testing.assert_array_equal(y.numpy(), values)


def test_random_numbers_are_drawn_in_each_run() -> None:
    nodes = [node("RandomNormalLike", ["x"], ["r"]), node("Exp", ["r"], ["e"]), node("Add", ["e", "x"], ["y"])]
    m = anneal.onnx.load(model(nodes, [floats("x", 3)], [floats("y", 3)]).SerializeToString(), "cpu")
    drawn = [m.run({"x": np.zeros(3, np.float32)})["y"].tolist() for _ in range(6)]
    assert len({tuple(d) for d in drawn}) == 6


def test_threads_run_in_pieces() -> None:
    file = detector()
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    faults: list[str] = []

    def work(seed: int) -> None:
        try:
            for n in range(6):
                check(file, m, {"x": images(seed + n)}, reference)
        except Exception as e:
            faults.append(str(e))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_captures_of_a_part_are_bounded() -> None:
    nodes = [
        node("NonZero", ["x"], ["p"]),
        node("Cast", ["p"], ["f"], to=F),
        node("Resize", ["f", "", "", "to"], ["y"], mode="linear"),
    ]
    m = anneal.onnx.load(
        model(nodes, [floats("x", 64)], untyped("y"), [array("to", [1, 7])]).SerializeToString(), "cpu"
    )
    for n in range(1, 60):
        assert m.run({"x": (np.arange(64) < n).astype(np.float32)})["y"].shape == (1, 7)
    (plan,) = m._plans.values()
    (divided,) = plan._graphs.values()
    (part,) = [p for p, _ in divided._stages or () if p is not None]
    assert len(part._kept) <= 16
    assert any("a capture for each size, because Resize" in s.reason for s in m.host_steps)


# -- many turns -------------------------------------------------------------------------------------------------------

RECURRENT = [
    ("GRU", {"linear_before_reset": 1}, False),
    ("GRU", {"direction": "bidirectional"}, True),
    ("LSTM", {"direction": "reverse"}, True),
    ("RNN", {}, False),
]


@pytest.mark.parametrize(("op", "attributes", "lengths"), RECURRENT)
def test_many_steps_of_a_recurrent_layer_are_a_loop(
    op: str, attributes: dict[str, Any], lengths: bool, ran: list[str]
) -> None:
    random = np.random.default_rng(0)
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op] * 6

    def weight(name: str, *shape: int) -> Any:
        return array(name, random.standard_normal(shape) * 0.4, np.float32)

    weights = [weight("w", ways, gates, 4), weight("r", ways, gates, 6), weight("b", ways, 2 * gates)]
    inputs = ["t", "w", "r", "b", *(["lengths"] if lengths else [])]
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node(op, inputs, ["h", "last"], hidden_size=6, **attributes),
        node("Exp", ["h"], ["y"]),
    ]
    given = [floats("x", 150, 3, 4)]
    if lengths:
        given.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [3]))
    file = bytes(model(nodes, given, untyped("y", "last"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in range(5):
        feeds = {"x": random.standard_normal((150, 3, 4)).astype(np.float32)}
        if lengths:
            feeds["lengths"] = np.array([150, 64 + n, 7], np.int32)
        if n == 4:
            ran.clear()
        check(file, m, feeds, reference)
    assert not ran
    assert not m.host_steps


def test_gradients_go_through_many_steps() -> None:
    weights = [array(n, np.full(s, 0.1), np.float32) for n, s in {"w": (1, 2, 1), "r": (1, 2, 2)}.items()]
    file = model([node("RNN", ["x", "w", "r"], ["y"], hidden_size=2)], [floats("x", 80, 1, 1)], untyped("y"), weights)
    layer: Any = anneal.onnx.load(file.SerializeToString(), "cpu").module()
    layer(Tensor.ones(80, 1, 1)).sum().backward()
    assert layer.w.grad is not None
    assert float(layer.w.grad.sum().item()) > 1


def scanned(**attributes: Any) -> bytes:
    body = graph(
        [node("MatMul", ["h", "w"], ["m"]), node("Add", ["m", "row"], ["a"]), node("Tanh", ["a"], ["next"])]
        + [node("Mul", ["next", "next"], ["out"])],
        [floats("h", 1, 4), floats("row", 1, 4)],
        [floats("next", 1, 4), floats("out", 1, 4)],
    )
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Scan", ["start", "e"], ["last", "rows"], body=body, num_scan_inputs=1, **attributes),
        node("Neg", ["rows"], ["y"]),
    ]
    weights = [array("w", np.random.default_rng(0).standard_normal((4, 4)) * 0.4, np.float32)]
    weights.append(array("start", np.zeros((1, 4)), np.float32))
    shape = (1, 300, 4) if attributes.get("scan_input_axes") else (300, 1, 4)
    return bytes(model(nodes, [floats("x", *shape)], untyped("last", "y"), weights).SerializeToString())


SCANS: list[dict[str, Any]] = [
    {},
    {"scan_input_axes": [1], "scan_output_axes": [1]},
    {"scan_input_directions": [1], "scan_output_directions": [1]},
    {"scan_output_axes": [-1]},
]


@pytest.mark.parametrize("attributes", SCANS, ids=str)
def test_many_turns_of_a_scan_are_a_loop(attributes: dict[str, Any], ran: list[str]) -> None:
    file = scanned(**attributes)
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    shape = (1, 300, 4) if attributes.get("scan_input_axes") else (300, 1, 4)
    for n in range(4):
        ran.clear()
        check(file, m, {"x": np.random.default_rng(n).standard_normal(shape).astype(np.float32)}, reference)
    assert not ran
    assert not m.host_steps


def counted(nodes: list[Any], turns: int, goes: str = "goes", **weights: Any) -> bytes:
    """A loop of a known number of turns over x (4), which carries "v" to "next" and has "out" for each turn."""
    body = graph(
        [*nodes, *([node("Identity", ["on"], ["goes"])] if goes == "goes" else [])],
        [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", 4)],
        [helper.make_tensor_value_info(goes, BOOL, []), floats("next", 4), floats("out", None)],
    )
    loop = node("Loop", ["turns", "", "x"], ["last", "rows"], body=body)
    constants = [array("turns", turns), *[array(n, v) for n, v in weights.items()]]
    constants += [array("small", 0.01, np.float32), array("bar", 3, np.float32)]
    return bytes(
        model(
            [loop, node("Neg", ["rows"], ["y"])], [floats("x", 4)], untyped("last", "y"), constants
        ).SerializeToString()
    )


LOOPS = {
    "numbers of turns": [
        node("Cast", ["turn"], ["t"], to=F),
        node("Mul", ["t", "small"], ["s"]),
        node("Add", ["v", "s"], ["w"]),
        node("Sin", ["w"], ["next"]),
        node("Exp", ["next"], ["out"]),
    ],
    "places": [
        node("Sin", ["v"], ["next"]),
        node("Mod", ["turn", "four"], ["at"]),
        node("Gather", ["next", "at"], ["out"]),
    ]
    + [node("Exp", ["next"], ["unused"])],
    "parts": [
        node("Sin", ["v"], ["next"]),
        node("Mod", ["turn", "four"], ["at"]),
        node("Unsqueeze", ["at", "zero"], ["begin"]),
        node("Add", ["begin", "one"], ["end"]),
        node("Slice", ["next", "begin", "end"], ["out"]),
    ],
}


@pytest.mark.parametrize("name", LOOPS)
def test_many_turns_of_a_loop_equal_onnxruntime(name: str) -> None:
    file = counted(LOOPS[name], 260, four=4, zero=[0], one=[1])
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in range(4):
        check(file, m, {"x": np.linspace(0, 1 + n, 4, dtype=np.float32)}, reference)


def test_many_turns_that_end_early() -> None:
    ends = [node("Add", ["v", "small"], ["next"]), node("ReduceMax", ["next"], ["top"], keepdims=0)]
    ends += [node("Less", ["top", "bar"], ["below"]), node("Mul", ["next", "next"], ["out"])]
    file = counted(ends, 400, goes="below")
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in range(4):
        check(file, m, {"x": np.linspace(0, 2 + n / 4, 4, dtype=np.float32)}, reference)


def test_a_loop_inside_a_loop_sees_the_number_of_the_outer_turn() -> None:
    yes = helper.make_tensor_value_info("on", BOOL, [])
    inner = graph(
        [
            node("Add", ["turn", "one"], ["more"]),
            node("Cast", ["more"], ["m"], to=F),
            node("Mul", ["m", "small"], ["grown"]),
            node("Add", ["u", "grown"], ["next2"]),
            node("ReduceMax", ["next2"], ["top2"], keepdims=0),
            node("Less", ["top2", "bar"], ["goes2"]),
        ],
        [ints("turn2"), helper.make_tensor_value_info("on2", BOOL, []), floats("u", 4)],
        [helper.make_tensor_value_info("goes2", BOOL, []), floats("next2", 4)],
    )
    body = graph(
        [
            node("Loop", ["three", "", "v"], ["next"], body=inner),
            node("ReduceMax", ["next"], ["top"], keepdims=0),
            node("Less", ["top", "bar"], ["goes"]),
        ],
        [ints("turn"), yes, floats("v", 4)],
        [helper.make_tensor_value_info("goes", BOOL, []), floats("next", 4)],
    )
    weights = [array("five", 5), array("three", 3), array("one", 1), array("bar", 3, np.float32)]
    weights.append(array("small", 0.01, np.float32))
    loop = node("Loop", ["five", "", "x"], ["y"], body=body)
    file = bytes(model([loop], [floats("x", 4)], untyped("y"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in range(5):
        check(file, m, {"x": np.linspace(0, 1 + n / 4, 4, dtype=np.float32)}, reference)


def test_a_part_whose_inputs_are_seldom_the_same_is_not_captured() -> None:
    # the number of a turn decides a shape, and how many turns there are is found in the run
    body = graph(
        [*LOOPS["parts"], node("ReduceMax", ["next"], ["top"], keepdims=0), node("Less", ["top", "bar"], ["goes"])],
        [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", 4)],
        [helper.make_tensor_value_info("goes", BOOL, []), floats("next", 4), floats("out", None)],
    )
    nodes = [node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["times"], to=I64)]
    nodes += [node("Loop", ["times", "", "x"], ["last", "rows"], body=body), node("Neg", ["rows"], ["y"])]
    weights = [array(n, v) for n, v in {"four": 4, "zero": [0], "one": [1]}.items()] + [array("bar", 3, np.float32)]
    file = bytes(model(nodes, [floats("x", 4)], untyped("last", "y"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in range(3):
        check(file, m, {"x": np.array([70 + n, 1, 2, 3], np.float32)}, reference)
    assert any("seldom of the same shapes" in s.reason for s in m.host_steps)


# -- long sequences ---------------------------------------------------------------------------------------------------


def growing(turns: int, *, known: bool, joined: bool) -> bytes:
    """A loop that puts a value into a sequence in each turn; how many there are the file says, or what it finds."""
    sequence = helper.make_tensor_sequence_value_info
    nodes = [node("Add", ["v", "one"], ["w"]), node("SequenceInsert", ["s", "w"], ["grown"])]
    if known:
        nodes.append(node("Identity", ["on"], ["goes"]))
    else:
        nodes += [node("ReduceMax", ["w"], ["top"], keepdims=0), node("Less", ["top", "bar"], ["goes"])]
    on = helper.make_tensor_value_info("on", BOOL, [])
    goes = helper.make_tensor_value_info("goes", BOOL, [])
    inputs = [ints("turn"), on, floats("v", 4), sequence("s", F, None)]
    body = graph(nodes, inputs, [goes, floats("w", 4), sequence("grown", F, None)])
    counts = ["turns", ""] if known else ["", "yes"]
    all_of = [node("SequenceEmpty", [], ["none"]), node("Loop", [*counts, "x", "none"], ["last", "all"], body=body)]
    if joined:
        all_of.append(node("ConcatFromSequence", ["all"], ["y"], axis=0))
    outputs = untyped("y") if joined else [sequence("all", F, None)]
    weights = [array("turns", turns), array("yes", True, np.bool_)]
    weights += [array("one", 1, np.float32), array("bar", turns, np.float32)]
    return bytes(model(all_of, [floats("x", 4)], outputs, weights).SerializeToString())


def calls(function: Any) -> int:
    """How many Python functions are called."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(("known", "joined"), [(True, True), (True, False), (False, True)])
def test_a_turn_costs_the_same_however_long_its_sequence_is(known: bool, joined: bool) -> None:
    each = []
    for turns in (80, 240):
        file = growing(turns, known=known, joined=joined)
        m, feeds = anneal.onnx.load(file, "cpu"), {"x": np.zeros(4, np.float32)}
        for _ in range(3):
            (ours,) = m.run(feeds).values()
        (theirs,) = session(file).run(None, feeds)
        if isinstance(ours, list):
            ours, theirs = Tensor.stack(ours), np.stack(theirs)
        np.testing.assert_allclose(ours.numpy(), theirs)
        each.append(calls(lambda m=m, feeds=feeds: m.run(feeds)) / turns)
    assert each[1] <= 1.5 * each[0]


def test_a_scan_of_many_turns_is_no_kernel_that_computes_all_sums_anew() -> None:
    body = graph(
        [node("Add", ["h", "row"], ["next"]), node("Exp", ["next"], ["out"])],
        [floats("h", 4), floats("row", 4)],
        [floats("next", 4), floats("out", 4)],
    )
    scan = node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    weights = [array("start", np.zeros(4), np.float32)]
    cost = []
    for turns in (64, 256):
        file = model([scan], [floats("x", turns, 4)], untyped("last", "y"), weights).SerializeToString()
        m, feeds = anneal.onnx.load(file, "cpu"), {"x": np.full((turns, 4), -0.01, np.float32)}
        cost.append(calls(lambda m=m, feeds=feeds: m.run(feeds)) / turns)
        check(file, m, feeds)
    assert cost[1] <= cost[0]


# -- nothing, and sequences -------------------------------------------------------------------------------------------

VECTOR = helper.make_tensor_type_proto(F, None)
SOME = [np.float32([1, 2]), np.float32([3])]


def subgraph(name: str, made: list[Any], given: list[Any] | None = None, kind: Any = F) -> Any:
    return helper.make_graph(made, name, given or [], [helper.make_tensor_value_info(name, kind, None)])


def either(condition: str, result: Any) -> Any:
    nine = subgraph("else", [node("Constant", [], ["else"], value=array("", [9], np.float32))])
    return node("If", [condition], ["y"], then_branch=subgraph("then", [result]), else_branch=nine)


CHOSEN = {  # nodes whose results tell nothing from something, and an empty sequence from another: type, nodes, results
    "an optional": (
        helper.make_optional_type_proto(VECTOR),
        [node("OptionalHasElement", ["q"], ["has"]), either("has", node("OptionalGetElement", ["q"], ["then"]))],
        {"has": BOOL, "y": F},
        [None, SOME[0]],
    ),
    "an optional sequence": (
        helper.make_optional_type_proto(helper.make_sequence_type_proto(VECTOR)),
        [node("OptionalHasElement", ["q"], ["has"])],
        {"has": BOOL},
        [None, SOME],
    ),
    "a sequence": (
        helper.make_sequence_type_proto(VECTOR),
        [
            node("SequenceLength", ["q"], ["n"]),
            node("Cast", ["n"], ["has"], to=BOOL),
            either("has", node("ConcatFromSequence", ["q"], ["then"], axis=0)),
            node("SequenceInsert", ["q", "c"], ["more"]),
            node("SequenceLength", ["more"], ["m"]),
        ],
        {"n": I64, "y": F, "m": I64},
        [[], SOME, SOME[:1]],
    ),
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("what", CHOSEN)
def test_an_input_that_was_nothing_may_be_something(what: str, first: int, device: str) -> None:
    """Nothing and an empty sequence follow from the inputs, not from the file: runs keep no result of them as its."""
    kind, nodes, results, given = CHOSEN[what]
    inputs = [helper.make_value_info("q", kind)]
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in results.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [array("c", [7], np.float32)])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    m, reference = anneal.onnx.load(file), session(file)
    for value in [*given[first:], *given, *given, *given[::-1]]:
        check(file, m, {"q": value}, reference)


def test_a_sequence_that_was_empty_may_have_items() -> None:
    """How many turns a loop makes depends on values that are read: so does its empty result."""
    kind = helper.make_tensor_sequence_value_info("v", F, None)
    body = helper.make_graph(
        [node("Identity", ["on"], ["goes"]), node("SequenceInsert", ["v", "x"], ["w"])],
        "body",
        [helper.make_tensor_value_info("i", I64, []), helper.make_tensor_value_info("on", BOOL, []), kind],
        [helper.make_tensor_value_info("goes", BOOL, []), helper.make_tensor_sequence_value_info("w", F, None)],
    )
    nodes = [
        node("NonZero", ["x"], ["at"]),
        node("Shape", ["at"], ["shape"]),
        node("Gather", ["shape", "one"], ["count"]),
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["count", "", "none"], ["r"], body=body),
        node("SequenceLength", ["r"], ["n"]),
    ]
    file = model(nodes, [floats("x", 3)], [helper.make_tensor_value_info("n", I64, [])], [array("one", 1)])
    m = anneal.onnx.load(file.SerializeToString())
    for x in ([0, 0, 0], [1, 0, 2], [0, 0, 0], [1, 1, 2], [0, 3, 0]):
        assert m.run({"x": np.float32(x)})["n"].item() == np.count_nonzero(x)


TEXTS = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
GATHERED: dict[str, tuple[str, dict[str, int], Any]] = {
    "Gather": ("Gather", {"axis": 1}, [[2, 0], [-1, 1]]),
    "GatherElements": ("GatherElements", {"axis": 1}, [[2], [-3]]),
    "GatherElements, a part": ("GatherElements", {"axis": 0}, [[1, -2]]),
    "GatherND": ("GatherND", {}, [[1, 2], [0, -1], [0, 0]]),
    "GatherND, rows": ("GatherND", {}, [[1], [-2], [0]]),
    "GatherND, a batch": ("GatherND", {"batch_dims": 1}, [[2], [-3]]),
}


@pytest.mark.parametrize("how", ["an input", "of the file", "computed"])
@pytest.mark.parametrize("name", GATHERED)
def test_texts_are_gathered_wherever_positions_come_from(name: str, how: str) -> None:
    op, attributes, index = GATHERED[name]
    at = np.array(index)
    nodes = [node(op, ["s", "at"], ["y"], **attributes)]
    if how == "computed":
        nodes.insert(0, node("Add", ["given", "none"], ["at"]))
    inputs = [helper.make_tensor_value_info("s", TensorProto.STRING, [None, 3])]
    given = {"an input": "at", "computed": "given"}.get(how)
    inputs += [] if given is None else [ints(given, *[None] * at.ndim)]
    weights = {"of the file": [array("at", index)], "computed": [array("none", 0)]}.get(how, [])
    outputs = [helper.make_tensor_value_info("y", TensorProto.STRING, None)]
    file = model(nodes, inputs, outputs, weights).SerializeToString()
    m, reference = anneal.onnx.load(file), session(file)
    for texts in (TEXTS, TEXTS[::-1], TEXTS):
        feeds = {"s": texts, **({} if given is None else {given: at})}
        np.testing.assert_array_equal(m.run(feeds)["y"], reference.run(None, feeds)[0])
        at = at[::-1].copy()


@pytest.mark.parametrize(("op", "index"), [("Gather", [3]), ("GatherElements", [[3]]), ("GatherND", [[0, 3]])])
def test_positions_of_texts_that_are_not_there_are_named(op: str, index: Any) -> None:
    inputs = [helper.make_tensor_value_info("s", TensorProto.STRING, None), ints("at", *np.shape(index))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.STRING, None)]
    m = anneal.onnx.load(model([node(op, ["s", "at"], ["y"])], inputs, outputs).SerializeToString())
    with pytest.raises(OnnxError, match=rf"{op} .*(index 3 is out|from 3 to 3)"):
        m.run({"s": TEXTS, "at": np.array(index)})
