"""Symbolic sizes: one plan serves every size in its bounds, and each gives what onnxruntime gives."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper

import anneal.onnx
from anneal.errors import OnnxError
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor, jit
from tests.onnx.bad import array, floats, ints, model, node

F, I64 = TensorProto.FLOAT, TensorProto.INT64
BOUNDS = {"batch": (1, 6), "sequence": (1, 12)}


def load(*arguments: Any, shapes: dict[str, Any] | None = None, device: str = "cpu") -> anneal.onnx.Model:
    return anneal.onnx.load(model(*arguments).SerializeToString(), device, shapes=shapes)


def made() -> int:
    """How many plans were made so far."""
    return cache_statistics()[1]


def check(file: bytes, m: anneal.onnx.Model, feeds: dict[str, Any]) -> None:
    """A run equals onnxruntime's, to 1e-4 of the largest value; the outputs' shapes are plain."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    results = m.run(feeds)
    for (name, ours), theirs in zip(results.items(), session.run(None, feeds), strict=True):
        assert isinstance(ours, Tensor)
        assert all(type(n) is int for n in ours.shape)
        assert ours.shape == theirs.shape, name
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-4 * max(np.abs(theirs).max(initial=0), 1))


# -- models -----------------------------------------------------------------------------------------------------------


class Bert:
    """An encoder as exporters write it: shapes are computed from Shape, and the mask is expanded by the -1 dance."""

    WIDTH, HEADS, WORDS, LAYERS = 16, 2, 50, 2

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        for name, value in {"0": 0, "1": 1, "-1": -1, "[0]": [0], "[1]": [1], "[1,2]": [1, 2]}.items():
            self.weights.append(array(name, value))
        for name, number in {"one": 1.0, "far": -1e4, "scale": (self.WIDTH / self.HEADS) ** -0.5}.items():
            self.weights.append(array(name, number, np.float32))
        self.weights += [self.weight("words", self.WORDS, self.WIDTH), self.weight("places", 64, self.WIDTH)]
        self.weights.append(numpy_helper.from_array(np.arange(64).reshape(1, 64), "position_ids"))

    def weight(self, name: str, *shape: int) -> Any:
        return numpy_helper.from_array((self.random.standard_normal(shape) * 0.3).astype(np.float32), name)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(node(op, inputs, [output], **attributes))
        return output

    def embedding(self) -> str:
        add = self.add
        add("Shape", ["ids"], "shape")
        for n, name in enumerate(("batch", "seq")):
            add("Gather", ["shape", str(n)], name)
            add("Unsqueeze", [name, "[0]"], f"[{name}]")
        add("Slice", ["position_ids", "[0]", "[seq]", "[1]", "[1]"], "at")
        return add("Add", [add("Gather", ["words", "ids"], "w"), add("Gather", ["places", "at"], "p")], "h")

    def bias(self) -> str:
        add = self.add
        add("Concat", ["[batch]", "[1]", "[seq]", "[seq]"], "wide", axis=0)
        ones = add("ConstantOfShape", [add("Shape", ["wide"], "rank")], "ones", value=array("", [1]))
        same = add("Equal", ["wide", add("Mul", [ones, "-1"], "minus")], "same")
        to = add("Where", [same, ones, "wide"], "to")
        full = add("Expand", [add("Unsqueeze", ["mask", "[1,2]"], "mask4"), to], "full")
        hidden = add("Sub", ["one", add("Cast", [full], "seen", to=F)], "hidden")
        return add("Mul", [hidden, "far"], "bias")

    def layer(self, n: int, x: str, bias: str) -> str:
        def add(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
            return self.add(op, inputs, f"{output}{n}", **attributes)

        heads = {}
        for kind in "qkv":
            self.weights.append(self.weight(f"w{kind}{n}", self.WIDTH, self.WIDTH))
            split = add("Reshape", [add("MatMul", [x, f"w{kind}{n}"], kind), "heads"], f"{kind}s")
            heads[kind] = add("Transpose", [split], f"{kind}t", perm=[0, 2, 3, 1] if kind == "k" else [0, 2, 1, 3])
        scores = add("Mul", [add("MatMul", [heads["q"], heads["k"]], "s"), "scale"], "scaled")
        weights = add("Softmax", [add("Add", [scores, bias], "masked")], "a", axis=-1)
        mixed = add("Transpose", [add("MatMul", [weights, heads["v"]], "o")], "ot", perm=[0, 2, 1, 3])
        self.weights += [array(f"gain{n}", np.ones(self.WIDTH), np.float32)]
        total = add("Add", [add("Reshape", [mixed, "joined"], "oj"), x], "r")
        return add("LayerNormalization", [total, f"gain{n}"], "n", axis=-1)

    def file(self) -> bytes:
        x, bias = self.embedding(), self.bias()
        self.weights += [
            array("[h]", [self.HEADS]),
            array("[d]", [self.WIDTH // self.HEADS]),
            array("[w]", [self.WIDTH]),
        ]
        self.add("Concat", ["[batch]", "[seq]", "[h]", "[d]"], "heads", axis=0)
        self.add("Concat", ["[batch]", "[seq]", "[w]"], "joined", axis=0)
        for n in range(self.LAYERS):
            x = self.layer(n, x, bias)
        self.add("Identity", [x], "hidden_state")
        self.add("Gather", [x, "0"], "first", axis=1)
        self.add("Gather", [x, "-1"], "last", axis=1)
        self.add("Shape", [x], "its_shape")
        inputs = [ints("ids", "batch", "sequence"), ints("mask", "batch", "sequence")]
        outputs = [helper.make_tensor_value_info(n, F, None) for n in ("hidden_state", "first", "last")]
        outputs.append(helper.make_tensor_value_info("its_shape", I64, None))
        return bytes(model(self.nodes, inputs, outputs, self.weights).SerializeToString())

    @classmethod
    def feeds(cls, batch: int, sequence: int) -> dict[str, Any]:
        random = np.random.default_rng(batch * 100 + sequence)
        mask = (random.random((batch, sequence)) > 0.3).astype(np.int64)
        mask[:, 0] = 1
        return {"ids": random.integers(0, cls.WORDS, (batch, sequence)), "mask": mask}


def cnn() -> bytes:
    """Convolutions, pooling, a mean over places, and a Flatten whose shape follows from Shape."""
    random = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> Any:
        return numpy_helper.from_array((random.standard_normal(shape) * 0.3).astype(np.float32), name)

    weights = [weight("a", 8, 3, 3, 3), weight("b", 8, 4, 3, 3), weight("c", 5, 8), weight("d", 128, 4)]
    weights += [array("0", 0), array("[0]", [0]), array("[-1]", [-1])]
    nodes = [
        node("Conv", ["x", "a"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "b"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2], group=2),
        node("GlobalAveragePool", ["c2"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "c"], ["y"], transB=1),
        node("Shape", ["c2"], ["s"]),
        node("Gather", ["s", "0"], ["n"]),
        node("Unsqueeze", ["n", "[0]"], ["n1"]),
        node("Concat", ["n1", "[-1]"], ["to"], axis=0),
        node("Reshape", ["c2", "to"], ["v"]),
        node("MatMul", ["v", "d"], ["z"]),
    ]
    outputs = [helper.make_tensor_value_info(n, F, None) for n in "yz"]
    return bytes(model(nodes, [floats("x", "batch", 3, 16, 16)], outputs, weights).SerializeToString())


def test_an_encoder_has_one_plan_for_all_batches_and_lengths(device: str) -> None:
    file = Bert().file()
    m = anneal.onnx.load(file, device, shapes=BOUNDS)
    sizes = [(2, 5), (3, 7), (1, 1), (6, 12), (1, 12), (6, 1), (5, 11), (2, 5)]
    check(file, m, Bert.feeds(*sizes[0]))
    before = made()
    for batch, sequence in sizes[1:]:
        check(file, m, Bert.feeds(batch, sequence))
    assert made() == before
    assert len(m._plans) == 1
    assert [str(s) for s in m.sizes] == ["batch (1 to 6): one plan", "sequence (1 to 12): one plan"]


def test_every_size_in_bounds_equals_the_size_alone() -> None:
    file = Bert().file()
    m, alone = anneal.onnx.load(file, "cpu", shapes=BOUNDS), anneal.onnx.load(file, "cpu")
    plans = 0
    for batch in (1, 2, 6):
        for sequence in range(1, 13):
            feeds, before = Bert.feeds(batch, sequence), made()
            results = m.run(feeds)
            plans += made() - before
            for a, b in zip(results.values(), alone.run(feeds).values(), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    assert len(m._plans) == 1
    assert plans <= 1


def test_a_convolutional_network_has_one_plan_for_all_batches(device: str) -> None:
    file = cnn()
    m = anneal.onnx.load(file, device, shapes={"batch": (1, 5)})
    random = np.random.default_rng(0)
    before = made()
    for n in (2, 3, 1, 5, 4):
        check(file, m, {"x": random.standard_normal((n, 3, 16, 16)).astype(np.float32)})
    assert made() <= before + 1


def modules() -> dict[str, tuple[Any, Callable[[Any, int, int], Any], dict[int, str]]]:
    """PyTorch modules, what makes an input of a batch and a length, and which axes are dynamic."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.all = nn.Embedding(50, 16), nn.Linear(16, 48)

        def forward(self, x: Any) -> Any:
            h = self.words(x)
            b, t, c = h.shape
            q, k, v = [z.view(b, t, 2, 8).transpose(1, 2) for z in self.all(h).split(16, 2)]
            seen = torch.tril(torch.ones(t, t, dtype=torch.bool))
            a = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(~seen, float("-inf")).softmax(-1)
            y = (a @ v).transpose(1, 2).contiguous().view(b, t, c)
            fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y, fused, y[:, -1], y.mean(1), y[:, : t // 2 + 1]

    class Signal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv1d(4, 8, 5, padding=2), nn.Conv1d(8, 8, 3, stride=2)
            self.group, self.layer = nn.GroupNorm(2, 8), nn.LayerNorm(8)

        def forward(self, x: Any) -> Any:
            y = self.b(F.gelu(self.group(self.a(x))))
            both = torch.cat([y, y.flip(-1)], -1)
            return self.layer(y.transpose(1, 2)).log_softmax(-1), y.argmax(1), y.cumsum(-1), both

    class Moves(nn.Module):
        def forward(self, x: Any) -> Any:
            b, t = x.shape
            repeated = x.unsqueeze(1).repeat(1, 2, 1).reshape(b * 2, t)
            added = torch.zeros(b, 3) + x.sum(1, keepdim=True)
            made = x.unsqueeze(2) * torch.arange(t)
            padded = F.pad(x, (1, 2))
            full = torch.full((b, t), 2.0)
            larger = F.interpolate(x.reshape(b, 1, 1, t), scale_factor=2)
            return repeated, added, x.new_ones(t, t).triu(1), made, padded, x.topk(1, 1)[0], full, x[:, ::2], larger

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.b(self.a(x)))
            z = F.interpolate(F.avg_pool2d(F.max_pool2d(y, 3, 2, 1), 2, 1), scale_factor=2)
            return self.c(F.adaptive_avg_pool2d(y, 1).flatten(1)), z

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(6, 8, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.gru(x)[0]

    def words(r: Any, b: int, t: int) -> Any:
        return r.integers(0, 50, (b, t))

    def normal(*shape: int) -> Callable[[Any, int, int], Any]:
        named = {-1: 0, -2: 1}
        return lambda r, b, t: r.standard_normal([(b, t)[named[n]] if n < 0 else n for n in shape]).astype(np.float32)

    return {
        "causal": (Causal(), words, {0: "b", 1: "t"}),
        "signal": (Signal(), normal(-1, 4, -2), {0: "b", 2: "t"}),
        "moves": (Moves(), normal(-1, -2), {0: "b", 1: "t"}),
        "images": (Images(), normal(-1, 3, -2, -2), {0: "b", 2: "h", 3: "w"}),
        "recurrent": (Recurrent(), normal(-1, 7, 6), {0: "b"}),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["causal", "signal", "moves", "images", "recurrent"])
def test_modules_that_pytorch_exported_have_one_plan(name: str) -> None:
    torch = pytest.importorskip("torch")
    module, make, axes = modules()[name]
    random, file = np.random.default_rng(0), io.BytesIO()
    torch.manual_seed(0)
    torch.onnx.export(
        module.eval(),
        (torch.from_numpy(make(random, 2, 8)),),
        file,
        input_names=["x"],
        dynamic_axes={"x": axes},
        dynamo=False,
        opset_version=17,
    )
    bounds = {n: (1, 4) if n == "b" else (5, 16) for n in axes.values()}
    m = anneal.onnx.load(file.getvalue(), "cpu", shapes=bounds)
    before = made()
    for batch, length in [(2, 8), (3, 7), (1, 5), (4, 16), (1, 16), (4, 5)]:
        check(file.getvalue(), m, {"x": make(random, batch, length)})
    assert [s.reason for s in m.sizes] == [""] * len(axes)
    assert made() <= before + 1


# -- values on the host -----------------------------------------------------------------------------------------------

# name: nodes that make "y" of x (batch, sequence, 6), whose sizes are "b" and "s" and whose shape is "shape"
HOSTED: dict[str, list[tuple[str, list[str], dict[str, Any]]]] = {
    "sums": [("Add", ["b", "s"], {})],
    "products": [("Mul", ["b", "s"], {})],
    "differences": [("Sub", ["s", "b"], {})],
    "quotients": [("Div", ["s", "2"], {})],
    "remainders": [("Mod", ["s", "2"], {})],
    "negatives": [("Neg", ["s"], {})],
    "largest": [("Max", ["s", "b", "3"], {})],
    "smallest": [("Min", ["s", "b"], {})],
    "all elements": [("Size", ["x"], {})],
    "product of a shape": [("ReduceProd", ["shape"], {"keepdims": 0})],
    "sum of a shape": [("ReduceSum", ["shape"], {"keepdims": 1})],
    "a part of a shape": [("Slice", ["shape", "[1]", "[3]"], {})],
    "places of a shape": [("Gather", ["shape", "[2,0]"], {})],
    "joined": [("Concat", ["shape", "[3]"], {"axis": 0})],
    "halves": [("Split", ["shape", "[1,2]"], {"axis": 0})],
    "another type": [("Cast", ["shape"], {"to": TensorProto.INT32})],
    "as floats": [("Cast", ["shape"], {"to": F})],
    "comparisons": [("Less", ["shape", "[100]"], {})],
    "ranges": [("Range", ["0", "s", "1"], {})],
    "ranges by steps": [("Range", ["1", "s", "2"], {})],
    "ranges to a sum": [("Add", ["s", "b"], {}), ("Range", ["s", "y0", "1"], {})],
    "constants": [("ConstantOfShape", ["shape"], {})],
    "as many as there are": [("Unsqueeze", ["s", "[0]"], {}), ("Expand", ["3", "y0"], {})],
    "matrices of a size": [("Reshape", ["shape", "[3,1]"], {}), ("Transpose", ["y0"], {}), ("Squeeze", ["y1"], {})],
    "used with tensors": [("Cast", ["s"], {"to": F}), ("Div", ["x", "y0"], {})],
    "ends that are computed": [
        ("Sub", ["s", "1"], {}),
        ("Unsqueeze", ["y0", "[0]"], {}),
        ("Slice", ["x", "[0]", "y1", "[1]"], {}),
    ],
    "rows from the end": [("Slice", ["x", "[-1]", "[far]", "[1]"], {})],
    "backward": [("Slice", ["x", "[-1]", "[-far]", "[1]", "[-1]"], {})],
    "every second": [("Slice", ["x", "[1]", "[far]", "[1]", "[2]"], {})],
    "at most 5": [("Slice", ["x", "[0]", "[5]", "[1]"], {})],
    "the last 5, if there are": [("Slice", ["x", "[-5]", "[far]", "[1]"], {})],
    "what is beyond 2, up to 7": [("Slice", ["x", "[2]", "[7]", "[1]"], {})],
    "perhaps nothing": [("Slice", ["x", "[4]", "[100]", "[1]"], {}), ("ReduceSum", ["y0", "[1]"], {})],
    "every second of 7 at most": [("Slice", ["x", "[1]", "[7]", "[1]", "[2]"], {})],
    "back from 5, if there are": [("Slice", ["x", "[5]", "[-far]", "[1]", "[-1]"], {})],
    "as many as a size, 5 at most": [
        ("Min", ["s", "5"], {}),
        ("Unsqueeze", ["y0", "[0]"], {}),
        ("Slice", ["x", "[0]", "y1", "[1]"], {}),
        ("Slice", ["y2", "[0]", "[4]", "[1]"], {}),
    ],
    "tiles": [("Tile", ["x", "[2,1,1]"], {})],
    "merged axes": [("Reshape", ["x", "[-1,6]"], {})],
    "kept axes": [("Reshape", ["x", "[0,0,2,3]"], {})],
}


@pytest.mark.parametrize("name", HOSTED)
def test_what_is_computed_from_shapes_is_the_same_for_symbolic_sizes(name: str) -> None:
    nodes = [node("Shape", ["x"], ["shape"])]
    nodes += [node("Gather", ["shape", str(n)], ["bs"[n]]) for n in (0, 1)]
    steps = HOSTED[name]
    for n, (op, inputs, attributes) in enumerate(steps):
        last = n == len(steps) - 1
        outputs = (["y", "z"] if op == "Split" else ["y"]) if last else [f"y{n}"]
        nodes.append(node(op, inputs, outputs, **attributes))
    far = 2**63 - 1
    constants = {str(n): n for n in range(4)} | {"[far]": [far], "[-far]": [-far], "[100]": [100], "[-1]": [-1]}
    constants |= {"5": 5} | {f"[{n}]": [n] for n in (0, 1, 2, 3, 4, 5, 7, -5)}
    constants |= {"[2,0]": [2, 0], "[1,2]": [1, 2], "[3,1]": [3, 1]}
    constants |= {"[2,1,1]": [2, 1, 1], "[-1,6]": [-1, 6], "[0,0,2,3]": [0, 0, 2, 3]}
    weights = [array(n, v) for n, v in constants.items()]
    made = model(nodes, [floats("x", "batch", "sequence", 6)], [helper.make_empty_tensor_value_info("y")], weights)
    file = made.SerializeToString()
    m = anneal.onnx.load(file, "cpu", shapes={"batch": (1, 4), "sequence": (3, 9)})
    random = np.random.default_rng(0)
    for sizes in [(2, 5), (4, 9), (1, 3), (3, 4)]:
        check(file, m, {"x": random.standard_normal((*sizes, 6)).astype(np.float32)})
    assert [s.reason for s in m.sizes] == ["", ""]


# -- bounds -----------------------------------------------------------------------------------------------------------


def square(*shape: Any) -> bytes:
    return bytes(
        model([node("Mul", ["x", "x"], ["y"])], [floats("x", *shape)], [floats("y", *shape)]).SerializeToString()
    )


def test_a_size_outside_its_bounds_is_named() -> None:
    m = anneal.onnx.load(square("n", 2), shapes={"n": (2, 4)})
    message = r"input 'x': axis 0 is 'n', which goes from 2 to 4, and has 5; load the model with wider shapes"
    with pytest.raises(OnnxError, match=message):
        m.run({"x": np.zeros((5, 2), np.float32)})
    with pytest.raises(OnnxError, match="and has 1"):
        m.trace({"x": np.zeros((1, 2), np.float32)})


def test_a_number_fixes_a_size() -> None:
    m = anneal.onnx.load(square("n", 2), shapes={"n": 3})
    assert [str(v) for v in (*m.inputs, *m.outputs)] == ["x: float32[3, 2]", "y: float32[3, 2]"]
    assert m.run({"x": np.full((3, 2), 2, np.float32)})["y"].tolist() == [[4, 4]] * 3
    with pytest.raises(OnnxError, match="has shape"):
        m.run({"x": np.zeros((2, 2), np.float32)})


def test_inputs_that_share_a_name_share_its_size() -> None:
    m = load(
        [node("Concat", ["a", "b"], ["y"], axis=1)],
        [floats("a", "n", 2), floats("b", "n", 3)],
        [floats("y", "n", 5)],
        shapes={"n": (1, 4)},
    )
    ones = [np.ones((n, k), np.float32) for n, k in ((2, 2), (2, 3), (3, 3))]
    assert m(*ones[:2]).shape == (2, 5)
    with pytest.raises(OnnxError, match="'n' is 2 by input 'a', and 3 by axis 0 of input 'b'"):
        m(ones[0], ones[2])


def test_sizes_without_names_are_given_by_input_and_axis() -> None:
    m = anneal.onnx.load(square(None, None), shapes={"x": {0: (1, 4), 1: "m"}, "m": (1, 3)})
    assert str(m.inputs[0]) == "x: float32[x_0, m]"
    for shape in [(2, 3), (4, 1), (1, 2), (3, 3)]:
        assert m(np.full(shape, 3, np.float32)).tolist() == np.full(shape, 9).tolist()
    assert len(m._plans) == 1


WRONG = [
    ({"k": (1, 2)}, r"shapes names 'k', which no input has; the names are n;"),
    ({"n": (0, 2)}, r"goes from 0 to 2; bounds are 1 <= low <= high"),
    ({"n": (3, 2)}, r"goes from 3 to 2"),
    ({"n": (1, 2, 3)}, r"is \(1, 2, 3\); bounds are given as shapes="),
    ({"n": "many"}, r"is 'many'; bounds are given as"),
    ({"n": 2.0}, r"is 2.0; bounds are given as"),
    ({"z": {0: (1, 2)}}, r"shapes gives axes of 'z', which is no input; the inputs are x"),
    ({"x": {2: (1, 2)}}, r"shapes gives axis 2 of input x: float32\[n, 2\], which has 2 axes"),
    ({"x": {0: (1, 2)}}, r"shapes gives axis 0 of input x: float32\[n, 2\], which is 'n': shapes="),
    ({"x": {1: (1, 2)}}, r"which is 2: leave it away"),
]


@pytest.mark.parametrize(("shapes", "message"), WRONG, ids=[str(s) for s, _ in WRONG])
def test_wrong_bounds_are_told(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(OnnxError, match=message):
        anneal.onnx.load(square("n", 2), shapes=shapes)


def test_names_are_any_text() -> None:
    m = anneal.onnx.load(square("batch size + 1", "2nd"), shapes={"batch size + 1": (1, 4), "2nd": (1, 4)})
    for shape in [(2, 3), (4, 1), (1, 2), (3, 3)]:
        assert m(np.full(shape, 3, np.float32)).tolist() == np.full(shape, 9).tolist()
    assert len(m._plans) == 1


# -- what has no symbolic size ----------------------------------------------------------------------------------------


def test_an_operator_that_takes_no_symbolic_size_is_named_and_each_size_has_a_plan() -> None:
    nodes = [node("Resize", ["x", "", "", "to"], ["y"], mode="linear", name="grow"), node("Shape", ["x"], ["to"])]
    nodes = [
        nodes[1],
        node("Mul", ["to", "by"], ["wide"]),
        node("Resize", ["x", "", "", "wide"], ["y"], mode="linear", name="grow"),
    ]
    made = model(nodes, [floats("x", "n", "m")], [floats("y", None, None)], [array("by", [1, 2])])
    file = made.SerializeToString()
    m = anneal.onnx.load(file, "cpu", shapes={"n": (1, 4), "m": (2, 8)})
    random = np.random.default_rng(0)
    for shape in [(2, 3), (4, 3), (1, 5), (3, 8), (2, 8)]:
        check(file, m, {"x": random.standard_normal(shape).astype(np.float32)})
    n, size = m.sizes
    assert str(n) == "n (1 to 4): one plan"
    assert str(size).startswith("m (2 to 8): a plan per size, because Resize (version ")
    assert "node 'grow'" in size.reason


def test_a_squeeze_that_depends_on_a_size_is_not_taken_for_the_same_at_all_sizes() -> None:
    file = model(
        [node("Squeeze", ["x"], ["y"])], [floats("x", "n", 1, 3)], [helper.make_tensor_value_info("y", F, None)]
    ).SerializeToString()
    m = anneal.onnx.load(file, "cpu", shapes={"n": (1, 4)})
    for n in (2, 1, 3, 1):
        check(file, m, {"x": np.ones((n, 1, 3), np.float32)})
    assert "Squeeze" in m.sizes[0].reason
    assert anneal.onnx.load(file, "cpu", shapes={"n": (2, 4)})(np.ones((2, 1, 3), np.float32)).shape == (2, 3)


def test_a_name_without_bounds_says_so() -> None:
    m = anneal.onnx.load(square("n", 2))
    assert [str(s) for s in m.sizes] == ["n: a plan per size, because it has no bounds; give load shapes"]


# -- runs -------------------------------------------------------------------------------------------------------------


def test_outputs_are_tensors_of_plain_sizes_that_keep_their_values(device: str) -> None:
    m = anneal.onnx.load(square("n", "m"), device, shapes={"n": (1, 5), "m": (1, 5)})
    kept, x = [], Tensor(np.full((2, 3), 1.5, np.float32), device=device)
    for _ in range(4):
        x = m.run({"x": x})["y"]  # what comes out goes in
        kept.append(x)
    for n in range(1, 6):
        m.run({"x": np.full((n, n), float(n), np.float32)})
    for n, y in enumerate(kept):
        assert y.device == device
        np.testing.assert_allclose(y.numpy(), np.full((2, 3), 1.5 ** (2 ** (n + 1))), rtol=1e-5)
        np.testing.assert_allclose(
            (y + np.ones((2, 3), np.float32)).numpy()[0, 0], 1.5 ** (2 ** (n + 1)) + 1, rtol=1e-5
        )


def test_threads_run_sizes_of_their_own() -> None:
    m = anneal.onnx.load(square("n", "m"), "cpu", shapes={"n": (1, 8), "m": (1, 8)})
    faults: list[str] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(30):
            x = random.standard_normal(random.integers(1, 9, 2)).astype(np.float32)
            if not np.allclose(m.run({"x": x})["y"].numpy(), x * x):
                faults.append(f"{x.shape}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    assert len(m._plans) == 1


def test_inside_a_function_that_is_captured_sizes_are_those_of_the_call() -> None:
    m = anneal.onnx.load(square("n", 2), "cpu", shapes={"n": (1, 8)})

    @jit
    def twice(x: Tensor) -> Any:
        return m.run({"x": x})["y"] * 2

    for n in range(4):
        assert twice(Tensor(np.full((3, 2), float(n), np.float32))).tolist() == [[2.0 * n * n] * 2] * 3


def test_a_session_takes_bounds() -> None:
    session = anneal.onnx.InferenceSession(square("n", 2), device="cpu", shapes={"n": (1, 4)})
    for n in (1, 4, 2):
        assert session.run(None, {"x": np.ones((n, 2), np.float32)})[0].shape == (n, 2)
    assert len(session.model._plans) == 1
