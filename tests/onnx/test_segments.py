"""Runs with host steps: what is before, between and behind them is captured, and replayed for any sizes found."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper

import anneal.onnx
from anneal.onnx.execute import Run
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor
from tests.onnx.bad import array, floats, ints, model, node

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators of the nodes that were run one after the other, or traced."""
    ops: list[str] = []
    run_node = Run.node

    def noted(self: Run, n: int, node: Any, scope: Any) -> None:
        ops.append(node.op)
        run_node(self, n, node, scope)

    monkeypatch.setattr(Run, "node", noted)
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


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
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
    assert ran == ["If"] * 12
    assert {s.node for s in m.host_steps} == {"If (version 16), node that makes 'z' of main graph"}


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


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_the_body_of_a_loop_is_replayed_a_turn(device: str, ran: list[str]) -> None:
    file = countdown()
    m, reference = anneal.onnx.load(file, device), session(file)
    for n in range(6):
        check(file, m, {"x": np.array([1 + n / 3, 0.5], np.float32)}, reference)
    ran.clear()
    for n in range(6):
        check(file, m, {"x": np.array([1 + n / 3, 0.5], np.float32)}, reference)
    assert ran == ["Loop"] * 6


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
    (divided,) = plan._pieces._graphs.values()
    (part,) = [p for p, _ in divided._stages or () if p is not None]
    assert len(part._kept) <= 16
    assert any("a capture for each size, because Resize" in s.reason for s in m.host_steps)
