"""A small file may ask for much: what each op makes, what loops gather, and what a run holds are bounded beforehand."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

import anneal.onnx
from anneal.errors import OnnxError
from tests.onnx.bad import array, floats, ints, model, node

ELEMENTS = 1 << 16
BYTES = ELEMENTS * 8 * 32  # a few values of as many as that
F, BOOL, STRING = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.STRING
HUGE = 1 << 26

sequence = helper.make_tensor_sequence_value_info


def untyped(*names: str) -> list[Any]:
    return [helper.make_empty_tensor_value_info(n) for n in names]


def one(op: str, inputs: dict[str, Any], outputs: int = 1, opset: int = 20, domain: str = "", **how: Any) -> Any:
    """A model of one node; its inputs are of the file, but for x."""
    weights = [array(n, v, np.asarray(v).dtype) for n, v in inputs.items() if v is not None and n != "x"]
    names = ["y", "z"][:outputs]
    made = node(op, ["" if v is None else n for n, v in inputs.items()], names, domain=domain, **how)
    given = [floats("x", *np.shape(inputs["x"]))] if "x" in inputs else []
    return model([made], given, untyped(*names), weights, opset=opset, domains=[domain] if domain else [])


def f(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def body_of(nodes: list[Any], outputs: list[Any], carried: list[Any]) -> Any:
    on = helper.make_tensor_value_info("on", BOOL, [])
    goes = helper.make_tensor_value_info("goes", BOOL, [])
    return helper.make_graph(
        [node("Identity", ["on"], ["goes"]), *nodes], "body", [ints("i"), on, *carried], [goes, *outputs]
    )


def loop(
    nodes: list[Any], outputs: list[Any], carried: list[Any], start: list[str], turns: int = 5000, **how: Any
) -> Any:
    names = [f"y{n}" for n in range(len(outputs))]
    body = body_of(nodes, outputs, carried)
    before = [node("SequenceEmpty", [], ["none"])] if "none" in start else []
    found = how.get("found")
    count = (
        [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["n"], to=TensorProto.INT64)] if found else []
    )
    made = [*before, *count, node("Loop", ["n", "", *start], names, body=body), *how.get("then", [])]
    weights = [] if found else [array("n", turns)]
    weights += [array("size", [999]), array("rows", [1, 999])]
    return model(made, [floats("x", 1)], untyped(how.get("output", names[-1])), weights, opset=20)


def texts(op: str, times: int, domain: str = "", **how: Any) -> Any:
    """A text that is doubled again and again, then taken apart."""
    nodes = [node("StringConcat", [f"t{n}"] * 2, [f"t{n + 1}"]) for n in range(times)]
    nodes.append(
        node(
            op,
            [f"t{times}", *(["many"] if op == "StringConcat" else [])],
            ["y", "z"][: 1 + (op == "StringSplit")],
            domain=domain,
            **how,
        )
    )
    weights = [helper.make_tensor(n, STRING, s, [b"a "] * int(np.prod(s))) for n, s in (("t0", [8]), ("many", [64, 1]))]
    return model(nodes, [], untyped("y"), weights, opset=20, domains=[domain] if domain else [])


EXPANDED = [node("Expand", ["x", "size"], ["w"])]
FILLED = [node("ConstantOfShape", ["size"], ["w"])]
V, W = floats("v", 1), floats("w", None)


def cases() -> Iterator[tuple[str, Any]]:
    zero, value = np.zeros((), np.int64), np.float32([0, 1])
    for op, inputs, how in (
        ("ConstantOfShape", {"s": [HUGE]}, {}),
        ("Expand", {"x": f(1), "s": [HUGE]}, {}),
        ("Expand", {"a": f(1), "s": [HUGE]}, {}),
        ("Tile", {"x": f(1), "s": [HUGE]}, {}),
        ("Tile", {"a": f(1), "s": [HUGE]}, {}),
        ("Range", {"a": zero, "b": np.int64(HUGE), "c": np.int64(1)}, {}),
        ("EyeLike", {"a": np.broadcast_to(np.int8(1), (300, 300))}, {"dtype": 11}),
        ("OneHot", {"a": np.zeros(4, np.int64), "n": np.int64(HUGE), "v": value}, {}),
        ("Pad", {"x": f(2), "p": [0, HUGE]}, {}),
        ("Pad", {"a": f(2), "p": [HUGE, 0]}, {}),
        ("Resize", {"x": f(1, 1, 2), "roi": None, "scales": None, "s": [1, 1, HUGE]}, {}),
        ("Resize", {"x": f(1, 1, 2), "roi": None, "s": np.float32([1, 1, HUGE])}, {"mode": "cubic"}),
        ("Upsample", {"x": f(1, 1, 2), "s": np.float32([1, 1, HUGE])}, {"opset": 9}),
        ("Einsum", {"x": f(400), "b": f(400)}, {"equation": "i,j->ij"}),
        ("MatMul", {"a": f(4000, 1), "b": f(1, 4000)}, {}),
        ("Add", {"a": f(4000, 1), "b": f(1, 4000)}, {}),
        ("Equal", {"a": f(4000, 1), "b": f(1, 4000)}, {}),
        ("Where", {"c": np.ones((4000, 1), bool), "a": f(1, 4000), "b": f(1)}, {}),
        ("Gather", {"x": f(9, 9), "i": np.zeros((200, 200), np.int64)}, {}),
        ("Gather", {"a": f(9, 9), "i": np.zeros((200, 200), np.int64)}, {}),
        ("GatherND", {"x": f(9, 999), "i": np.zeros((999, 1), np.int64)}, {}),
        ("CenterCropPad", {"x": f(2), "s": [HUGE]}, {}),
        ("Col2Im", {"x": f(1, 1, 1), "s": [HUGE, 1], "b": [1, 1]}, {}),
        ("ConvTranspose", {"x": f(1, 1, 9), "w": f(1, 1, 1)}, {"strides": [HUGE]}),
        ("ConvTranspose", {"x": f(1, 1, 9), "w": f(1, 1, 1)}, {"output_shape": [HUGE]}),
        ("MaxUnpool", {"x": f(1, 1, 1), "i": np.zeros((1, 1, 1), np.int64), "s": [1, 1, HUGE]}, {"kernel_shape": [1]}),
        ("Conv", {"x": f(1, 1, 9), "w": f(1, 1, 1)}, {"pads": [HUGE, HUGE]}),
        ("AveragePool", {"x": f(1, 1, 9)}, {"kernel_shape": [1], "pads": [0, HUGE]}),
        ("AffineGrid", {"x": f(1, 2, 3), "s": [1, 1, 9999, 9999]}, {}),
        ("RoiAlign", {"x": f(1, 1, 2, 2), "r": f(1, 4), "i": [0]}, {"output_height": 9999, "output_width": 9999}),
        ("MaxRoiPool", {"x": f(1, 1, 2, 2), "r": f(1, 5)}, {"pooled_shape": [9999, 9999]}),
        ("SpaceToDepth", {"a": np.zeros((1, 1, 512, 512), np.int8)}, {"blocksize": 2}),
        ("Unique", {"a": np.arange(99999)}, {}),
        ("RandomNormal", {}, {"shape": [HUGE]}),
        ("RandomUniform", {}, {"shape": [HUGE]}),
        ("Multinomial", {"x": f(1, 2)}, {"sample_size": HUGE}),
        ("HannWindow", {"n": np.int64(HUGE)}, {}),
        ("HammingWindow", {"n": np.int64(HUGE)}, {}),
        ("BlackmanWindow", {"n": np.int64(HUGE)}, {}),
        ("MelWeightMatrix", dict(zip("abcde", (np.int64(9999), np.int64(9999), np.int64(9), f(), f() + 3))), {}),
        ("DFT", {"x": f(1, 2, 1), "n": np.int64(HUGE)}, {}),
        ("SplitToSequence", {"x": f(9), "s": np.zeros(HUGE // 64, np.int64)}, {}),
        ("TfIdfVectorizer", {"a": np.arange(9)}, {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "mode": "TF", "ngram_counts": [0], "ngram_indexes": [HUGE], "pool_int64s": [1]}),
    ):  # fmt: skip
        yield f"{op} of {', '.join(inputs) or 'nothing'} {' '.join(how)}", one(op, inputs, **how)
    yield "rows of a loop", loop(EXPANDED, [W], [], [])
    yield "rows of a loop, filled", loop(FILLED, [W], [], [])
    yield "rows of a loop that is found", loop(EXPANDED, [W], [], [], found=True)
    yield "rows of a long loop", loop(EXPANDED, [V, W], [V], ["x"], turns=40_000)
    grown = [*EXPANDED, node("SequenceInsert", ["s", "w"], ["t"])]
    items = sequence("s", F, None), sequence("t", F, None)
    for found in (False, True):
        yield f"items of a sequence, {found}", loop(grown, [items[1]], [items[0]], ["none"], found=found)
    yield "a value that grows", loop([node("Concat", ["v", "v"], ["w"], axis=0)], [W], [floats("v", None)], ["x"])
    for n in range(2):
        made = [node("ConstantOfShape", ["s"], [f"c{k}"]) for k in range(12)]
        made = made[: None if n else 1] + [node("Neg", [f"c{k * n}"], [f"y{k}"]) for k in range(12)]
        outputs = untyped(*[f"y{k}" for k in range(12)])
        yield f"many outputs, {n}", model(made, [floats("x", 1)], outputs, [array("s", [ELEMENTS - 9])], opset=20)
    scan = helper.make_graph([node("Expand", ["r", "size"], ["w"])], "b", [floats("r", 1)], [W])
    for length in (60, 500):
        made = [node("Scan", ["x"], ["y"], body=scan, num_scan_inputs=1)]
        yield (
            f"rows of a scan of {length}",
            model(made, [floats("x", length, 1)], untyped("y"), [array("size", [4000])]),
        )
    each = helper.make_graph([node("Expand", ["r", "size"], ["w"])], "b", [floats("r", None)], [W])
    made = [node("SplitToSequence", ["x"], ["s"]), node("SequenceMap", ["s"], ["t"], body=each)]
    made.append(node("SequenceAt", ["t", "size"], ["y"]))
    yield "items of a map", model(made, [floats("x", 900)], untyped("y"), [array("size", [800])], opset=20)
    yield "a text that is doubled", texts("StringConcat", 20)
    yield "a text beside many", texts("StringConcat", 10)
    yield "texts in pieces", texts("StringSplit", 14)
    yield "words", texts("Tokenizer", 14, "com.microsoft", mark=0, mincharnum=1, pad_value="", separators=[" "])


CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_what_a_file_asks_for_is_bounded_before_it_is_made(name: str) -> None:
    data = CASES[name].SerializeToString()
    loaded = anneal.onnx.load(data, elements=ELEMENTS)
    feeds = {v.name: np.full(v.shape, 5000, np.float32) for v in loaded.inputs}
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(OnnxError, match=r"elements|possible"):
            for value in loaded.run(feeds).values():
                _ = value if isinstance(value, (np.ndarray, list)) else value.numpy()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BYTES + 4 * len(data)
    assert time.process_time() - begun < 10
