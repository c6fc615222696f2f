"""Recurrent layers beside onnxruntime, of as many steps as are one graph, one more, and several captures' worth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import anneal.onnx
from tests.onnx import peers
from tests.tiers import thinned

MICROSOFT = "com.microsoft"
STEPS = (5, 64, 65, 130)  # a few; as many as are one graph at most; one more; captures of two lengths
WIDTH, HIDDEN, BATCH = 4, 6, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4, "DynamicQuantizeLSTM": 4}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
HARD = {"activations": ["HardSigmoid", "Softsign", "Tanh"], "activation_alpha": [0.3], "activation_beta": [0.4]}

# what a layer may have besides its weights, by the ops that have it: "state", "peepholes" and "zeros" are inputs
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "RNN": [
        {},
        {"state": 1},
        {"activations": ["Relu"]},
        {"activations": ["Affine"], "activation_alpha": [0.4], "clip": 0.7},
    ],
    "GRU": [{}, {"linear_before_reset": 1}, {"state": 1, "clip": 0.5}, {"activations": ["HardSigmoid", "Softsign"]}],
    "LSTM": [{}, {"state": 1, "peepholes": 1}, {"input_forget": 1, "clip": 0.5}, HARD, {"peepholes": 1, **HARD}],
    "DynamicQuantizeLSTM": [{}, {"state": 1, "zeros": 1}, {"peepholes": 1, "columns": 1}, {"columns": 1, **HARD}],
}


def rows(steps: tuple[int, ...], variants: range = range(5)) -> Iterator[Any]:
    for n, direction, lengths, count, op in itertools.product(variants, DIRECTIONS, (False, True), steps, VARIANTS):
        if n < len(VARIANTS[op]):
            name = f"{op}-{n}-{direction}{'-lengths' * lengths}-{count}"
            yield pytest.param(op, VARIANTS[op][n], direction, lengths, count, id=name)


ALWAYS = list(rows((65,), range(1, 2)))[-8:]  # both directions of one variant of each op
OTHERS = [row for row in rows(STEPS) if row.id not in {r.id for r in ALWAYS}]


def layer(
    op: str, variant: dict[str, Any], direction: str, lengths: bool, steps: int
) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and the attributes; what the steps make stays small, so rounding errors do not grow."""
    r = np.random.RandomState(steps)
    how = {k: v for k, v in variant.items() if k not in ("state", "peepholes", "zeros", "columns")}
    ways, gates = DIRECTIONS[direction], GATES[op] * HIDDEN
    for name in ("activations", "activation_alpha", "activation_beta"):
        if name in how:
            how[name] = how[name] * ways

    def f(*shape: int) -> Any:
        return (r.randn(*shape) * 0.4).astype(np.float32)

    ends = np.array([steps, max(steps - 7, 1), steps // 2], np.int32) if lengths else None
    state = [f(ways, BATCH, HIDDEN) if "state" in variant else None]
    cell = [*state, f(ways, 3 * HIDDEN) if "peepholes" in variant else None]
    if op != "DynamicQuantizeLSTM":
        weights = [f(ways, gates, WIDTH), f(ways, gates, HIDDEN), f(ways, 2 * gates)]
        inputs = [f(steps, BATCH, WIDTH), *weights, ends, *state, *(cell if op == "LSTM" else [])]
    else:
        count = (ways, gates) if "columns" in variant else (ways,)
        scales = [(abs(f(*count)) + 0.3).astype(np.float32) * np.float32(0.01) for _ in "wr"]
        points = [r.randint(0, 9, count).astype(np.int8) * np.int8("zeros" in variant) for _ in "wr"]
        whole = [r.randint(-60, 60, (ways, n, gates)).astype(np.int8) for n in (WIDTH, HIDDEN)]
        more = [x for pair in zip(scales, points, strict=True) for x in pair]
        fixed = [(x,) for x in whole]
        inputs = [f(steps, BATCH, WIDTH), *fixed, f(ways, 2 * gates), ends, *state, *cell, *[(x,) for x in more]]
    outputs = 3 if "LSTM" in op else 2
    return inputs, {"hidden_size": HIDDEN, "direction": direction, "outputs": outputs, **how}


@pytest.mark.parametrize(
    ("op", "variant", "direction", "lengths", "steps"), [*ALWAYS, *thinned(OTHERS, test=40, ci=16)]
)
def test_a_recurrent_layer_gives_the_values_of_onnxruntime(
    op: str, variant: dict[str, Any], direction: str, lengths: bool, steps: int
) -> None:
    inputs, how = layer(op, variant, direction, lengths, steps)
    quantised = op == "DynamicQuantizeLSTM"
    tolerance = {"rtol": 1e-3, "atol": 2e-3} if quantised else {"rtol": 1e-4, "atol": 1e-5}
    peers.check_node(op, inputs, opset=14, domain=MICROSOFT if quantised else "", **tolerance, **how)


@pytest.mark.parametrize("steps", (5, 65))
@pytest.mark.parametrize("op", ("RNN", "GRU", "LSTM"))
def test_a_layer_whose_first_axis_is_the_batch_gives_the_same(op: str, steps: int) -> None:
    (x, *rest), how = layer(op, {"state": 1}, "bidirectional", True, steps)
    states = [n for n, v in enumerate(rest) if n > 3 and v is not None]
    turned = [v.transpose(1, 0, 2) if n in states else v for n, v in enumerate(rest)]

    def results(layout: int, *inputs: Any) -> list[Any]:
        model = anneal.onnx.load(peers.model_of(op, inputs, version=14, layout=layout, **how))
        feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
        return [t.numpy() for _ in range(3) for t in model.run(feeds).values()][-how["outputs"] :]

    plain, by_batch = results(0, x, *rest), results(1, x.transpose(1, 0, 2), *turned)
    for n, (a, b) in enumerate(zip(plain, by_batch, strict=True)):
        np.testing.assert_allclose(b, a.transpose(1, 0, 2) if n else a.transpose(2, 0, 1, 3), atol=1e-6)


@pytest.mark.parametrize("variant", ({}, {"state": 1}), ids=("zeros", "state"))
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", ("RNN", "GRU", "LSTM"))
def test_a_sequence_of_no_steps_leaves_the_states_as_they_are(op: str, direction: str, variant: dict[str, Any]) -> None:
    (_, *rest), how = layer(op, variant, direction, False, 3)
    x, ways = np.zeros((0, BATCH, WIDTH), np.float32), DIRECTIONS[direction]
    feeds = {f"x{i}": v for i, v in enumerate([x, *rest]) if v is not None}
    outputs = list(anneal.onnx.load(peers.model_of(op, [x, *rest], version=14, **how)).run(feeds).values())
    assert outputs[0].shape == (0, ways, BATCH, HIDDEN)
    for state in outputs[1:]:
        np.testing.assert_array_equal(state.numpy(), rest[4] if variant else np.zeros(state.shape, np.float32))
