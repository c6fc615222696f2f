"""Recurrent layers, Scan and Loop of symbolic length beside onnxruntime: one plan serves all numbers of turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import ModelProto, TensorProto, helper

import anneal.onnx
from anneal.errors import OnnxError
from anneal.runtime.context import here
from tests.onnx import peers
from tests.onnx.bad import array, floats, ints, model, node
from tests.onnx.test_recurrent import MICROSOFT, layer
from tests.onnx.test_segments import check, graph, ran, session, untyped  # noqa: F401

F, BOOL = TensorProto.FLOAT, TensorProto.BOOL
SHAPES = {"time": (1, 40), "batch": (1, 5)}
PAIRS = ((3, 2), (40, 5), (1, 1), (17, 3), (2, 5))
LAYERS = [
    ("RNN", {}, "forward", False),
    ("GRU", {"state": 1}, "reverse", True),
    ("GRU", {"linear_before_reset": 1}, "bidirectional", False),
    ("LSTM", {"peepholes": 1}, "bidirectional", True),
    ("DynamicQuantizeLSTM", {"zeros": 1}, "reverse", True),
]


def one_plan(m: anneal.onnx.Model, *names: str) -> None:
    assert [str(s) for s in m.sizes] == [f"{n} ({SHAPES[n][0]} to {SHAPES[n][1]}): one plan" for n in names]
    assert not m.host_steps


@pytest.mark.parametrize(("op", "variant", "direction", "lengths"), LAYERS, ids=lambda v: str(v))
def test_recurrent_layers(op: str, variant: dict[str, Any], direction: str, lengths: bool, device: str) -> None:
    quantised = op == "DynamicQuantizeLSTM"
    inputs, how = layer(op, variant, direction, lengths, 8)
    domain = MICROSOFT if quantised else ""
    made = ModelProto.FromString(peers.model_of(op, inputs, version=14, domain=domain, **how))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "time"
    file = bytes(made.SerializeToString())
    m, reference = anneal.onnx.load(file, device, shapes={"time": SHAPES["time"]}), session(file)
    random = np.random.default_rng(0)
    feeds = {f"x{n}": x for n, x in enumerate(inputs) if isinstance(x, np.ndarray)}
    for time, _ in PAIRS:
        feeds["x0"] = random.standard_normal((time, *inputs[0].shape[1:])).astype(np.float32)
        if lengths:
            feeds["x4"] = random.integers(1, time + 1, inputs[0].shape[1]).astype(np.int32)
        found = m.run(feeds)
        tolerance = 4e-3 if quantised else 1e-4
        for (name, ours), theirs in zip(found.items(), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, tolerance, tolerance, err_msg=name)
    one_plan(m, "time")


def scanned(axis: int, **attributes: Any) -> bytes:
    """A Scan along an axis of x, of symbolic numbers of turns and of examples."""
    steps = [node("MatMul", ["h", "w"], ["m"]), node("Add", ["m", "row"], ["a"]), node("Tanh", ["a"], ["next"])]
    carried, rows = [floats(n, "batch", 4) for n in ("h", "row")], [floats(n, "batch", 4) for n in ("next", "out")]
    body = graph([*steps, node("Mul", ["next", "next"], ["out"])], carried, rows)
    nodes = [
        node("ReduceSum", ["x", "axis"], ["start"], keepdims=0),
        node("Scan", ["start", "x"], ["last", "rows"], body=body, num_scan_inputs=1, **attributes),
        node("Neg", ["rows"], ["y"]),
    ]
    weights = [array("w", np.random.default_rng(0).standard_normal((4, 4)) * 0.4, np.float32), array("axis", [axis])]
    x = floats("x", *(("batch", "time", 4) if axis else ("time", "batch", 4)))
    return bytes(model(nodes, [x], untyped("last", "y"), weights).SerializeToString())


def counted(*ends: Any, grows: bool = False) -> bytes:
    """A Loop of as many turns as x is long, if it does not end before; with rows, unless it says when it `ends`."""
    step = [node("Cast", ["turn"], ["t"], to=F), node("Mul", ["t", "small"], ["s"]), node("Add", ["v", "s"], ["w"])]
    step += [node("Concat", ["w", "w"], ["next"], axis=1)] if grows else [node("Sin", ["w"], ["next"])]
    step += ends or [node("Identity", ["on"], ["goes"]), node("ReduceSum", ["next"], ["out"], keepdims=0)]
    given = [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", "batch", None)]
    made = [helper.make_tensor_value_info("goes", BOOL, []), floats("next", "batch", None)]
    body = graph(step, given, [*made, *([] if ends else [floats("out", None)])])
    names = ["last"] if ends else ["last", "rows"]
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["turns"]),
        node("ReduceSum", ["x", "first"], ["start"], keepdims=0),
        node("Loop", ["turns", "", "start"], names, body=body),
    ]
    weights = [array("small", 0.01, np.float32), array("bar", 0.2, np.float32), array("zero", 0), array("first", [0])]
    return bytes(model(nodes, [floats("x", "time", "batch", 4)], untyped(*names), weights).SerializeToString())


ENDS = [node("ReduceMax", ["next"], ["top"], keepdims=0), node("Less", ["top", "bar"], ["goes"])]
FILES = {
    "scan": scanned(0),
    "scan of another axis": scanned(1, scan_input_axes=[1], scan_output_axes=[1]),
    "scan from the end": scanned(0, scan_input_directions=[1], scan_output_directions=[1]),
    "loop": counted(),
    "loop that ends early": counted(*ENDS),
}


@pytest.mark.parametrize("name", FILES)
def test_scans_and_loops(name: str, device: str) -> None:
    file = FILES[name]
    m, reference = anneal.onnx.load(file, device, shapes=SHAPES), session(file)
    random = np.random.default_rng(0)
    for time, batch in PAIRS:
        shape = (batch, time, 4) if "another" in name else (time, batch, 4)
        check(file, m, {"x": (random.standard_normal(shape) * 0.3).astype(np.float32)}, reference)
    one_plan(m, *(("batch", "time") if "another" in name else ("time", "batch")))


def test_turns_of_growing_shapes_have_a_plan_for_each_number() -> None:
    file = counted(grows=True)
    m, reference = anneal.onnx.load(file, "cpu", shapes=SHAPES), session(file)
    for time in (1, 3, 2, 3):
        check(file, m, {"x": np.full((time, 2, 4), 0.1, np.float32)}, reference)
    assert "a plan per size, because Loop" in str(m.sizes[0])
    assert "is no loop on the device, so its number of turns is plain, not time" in m.sizes[0].reason


def test_a_loop_that_reads_its_condition_forgets_its_turns() -> None:
    """Each turn looks at the tensors that turns before made: those that are computed or gone are not kept."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["a"]),
            helper.make_node("Mul", ["a", "half"], ["o"]),
            helper.make_node("ReduceSum", ["o"], ["r"], keepdims=0),
            helper.make_node("Less", ["r", "large"], ["goes"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", BOOL, []),
            helper.make_tensor_value_info("s", F, [3]),
        ],
        [helper.make_tensor_value_info("goes", BOOL, []), helper.make_tensor_value_info("o", F, [3])],
        [helper.make_tensor("half", F, [], [0.5]), helper.make_tensor("large", F, [], [1e9])],
    )
    whole = helper.make_graph(
        [helper.make_node("Loop", ["", "", "x"], ["y"], body=body)],
        "whole",
        [helper.make_tensor_value_info("x", F, [3])],
        [helper.make_tensor_value_info("y", F, [3])],
    )
    file = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    model = anneal.onnx.load(bytes(file), budget=2000)
    with pytest.raises(OnnxError, match="the model runs more nodes than its budget allows"):
        model.run({"x": np.ones(3, np.float32)})
    assert len(here.plain) < 100  # without an end the turns would have left 660


@pytest.mark.parametrize("through", ["a state", "a row"])
def test_a_state_decides_shapes_only_by_its_own_place(through: str) -> None:
    """A small float input that a loop carries is data, though the number of a turn and another state decide shapes."""
    body = graph(
        [
            node("Add", ["v", "one"], ["next"]),
            node("Add", ["n", "turn"], ["m"]),
            node("Unsqueeze", ["n", "[0]"], ["end"]),
            node("Slice", ["row", "[0]", "end"], ["some"]),
            node("ReduceSum", ["some", "[0]"], ["out"], keepdims=0),
            node("Add", ["m", "zero"], ["count"]),
            node("Identity", ["on"], ["goes"]),
        ],
        [ints("turn"), helper.make_tensor_value_info("on", BOOL, []), floats("v", 4), ints("n")],
        [helper.make_tensor_value_info("goes", BOOL, []), floats("next", 4), ints("m"), floats("out"), ints("count")],
    )
    nodes = [node("Loop", ["four", "", "x", "first"], ["last", "sum", "y", "counts"], body=body)]
    if through == "a row":  # what decides a shape behind the loop is a row of it, and no state
        nodes.append(node("ConstantOfShape", ["counts"], ["z"]))
    weights = [array("four", 4), array("zero", 0), array("[0]", [0]), array("one", 1, np.float32)]
    weights.append(array("row", np.arange(9), np.float32))
    outputs = untyped("last", "sum", "y", *(["z"] if through == "a row" else []))
    file = bytes(model(nodes, [floats("x", 4), ints("first")], outputs, weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in (1, 2, 1):
        check(file, m, {"x": np.linspace(0, n, 4, dtype=np.float32), "first": np.array(n)}, reference)
    assert [v for v in ("x", "first") if v in m.deciding] == ["first"]
    assert not any("'x'" in s.node for s in m.host_steps)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("count", ["turn", "more"])
def test_a_loop_of_as_many_turns_as_the_number_of_a_turn_is_on_the_device(
    count: str,
    ends: bool,
    ran: list[str],  # noqa: F811
) -> None:
    condition = helper.make_tensor_value_info
    goes = node("ReduceMax", ["w"], ["top"], keepdims=0), node("Less", ["top", "bar"], ["go"])
    inner = graph(
        [node("Mul", ["u", "half"], ["h"]), node("Add", ["h", "one"], ["w"])]
        + (list(goes) if ends else [node("Identity", ["on2"], ["go"])]),
        [ints("turn2"), condition("on2", BOOL, []), floats("u", 4)],
        [condition("go", BOOL, []), floats("w", 4)],
    )
    body = graph(
        [
            node("Add", ["turn", "two"], ["more"]),
            node("Loop", [count, "on", "v"], ["deep"], body=inner),
            node("Sin", ["deep"], ["next"]),
            node("ReduceSum", ["next"], ["out"], keepdims=0),
            node("Identity", ["on"], ["goes"]),
        ],
        [ints("turn"), condition("on", BOOL, []), floats("v", 4)],
        [condition("goes", BOOL, []), floats("next", 4), floats("out")],
    )
    weights = [array("many", 40), array("two", 2)]
    weights += [array(n, v, np.float32) for n, v in {"half": 0.5, "one": 1, "bar": 1.95}.items()]
    loop = node("Loop", ["many", "", "x"], ["last", "rows"], body=body)
    file = bytes(model([loop], [floats("x", 4)], untyped("last", "rows"), weights).SerializeToString())
    m, reference = anneal.onnx.load(file, "cpu"), session(file)
    for n in range(4):
        ran.clear() if n == 2 else None
        check(file, m, {"x": np.linspace(0, n, 4, dtype=np.float32)}, reference)
    assert not ran
    assert not m.host_steps
