"""Every op of the tensor graph and every family of functions, exported: onnxruntime gives our values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from anneal.tensor import Tensor, dtypes, functional as F
from tests.onnx.exporting import check_export

Function = Callable[..., Any]
R = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def ints(*shape: int, low: int = -9, high: int = 10, dtype: Any = np.int32) -> np.ndarray:
    return R.integers(low, high, shape).astype(dtype)


def called(name: str, *operands: Tensor) -> Tensor:
    """A method of the first operand, or a function of `functional`."""
    method = getattr(Tensor, name, None) or getattr(F, name)
    return method(*operands)


def bools(*shape: int) -> np.ndarray:
    return R.random(shape) < 0.5


X, Y, POSITIVE = floats(3, 4), floats(3, 4), np.abs(floats(3, 4)) + 0.1
SPECIAL = np.float32([0.0, -0.0, 1.5, -2.5, 2.5, 0.5, np.inf, -np.inf, np.nan, 3e9, -3e9, 1e-40])
I, J, B, C = ints(3, 4), ints(3, 4), bools(3, 4), bools(3, 4)
IMAGE = floats(2, 4, 9, 8)
ROW = floats(2, 4, 11)
CUBE = floats(1, 2, 5, 6, 4)

UNARY = [
    "exp", "sin", "cos", "tan", "tanh", "erf", "floor", "ceil", "round", "trunc", "sign", "abs", "neg", "relu",
    "sigmoid", "silu", "gelu", "softplus", "mish", "elu", "selu", "hardswish", "isnan", "isinf", "square", "asinh",
    "sinh", "cosh", "atan", "exp2", "expm1", "relu6", "softsign", "logsigmoid",
]  # fmt: skip
OF_POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "pow", "fmod", "remainder", "floor_divide", "atan2", "hypot", "lt",
    "le", "gt", "ge", "eq", "ne", "copysign", "logaddexp",
]  # fmt: skip
OF_INTEGERS = [
    "add", "sub", "mul", "maximum", "minimum", "floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor",
    "lt", "eq", "ne",
]  # fmt: skip
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, tmp_path: Path) -> None:
    check_export(lambda x: called(name, x), X * 2, folder=tmp_path)


@pytest.mark.parametrize("name", OF_POSITIVE)
def test_unary_of_positive(name: str, tmp_path: Path) -> None:
    check_export(lambda x: called(name, x), POSITIVE, folder=tmp_path)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "tan", "tanh", "sigmoid", "floor", "exp2", "gelu"])
def test_unary_of_float64(name: str, tmp_path: Path) -> None:
    check_export(lambda x: called(name, x), X.astype(np.float64), folder=tmp_path)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "sign", "abs", "neg", "relu", "isnan", "isfinite"])
def test_unary_of_special_values(name: str, tmp_path: Path) -> None:
    check_export(lambda x: called(name, x), SPECIAL, folder=tmp_path)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, tmp_path: Path) -> None:
    check_export(lambda x, y: called(name, x, y), POSITIVE if name == "pow" else X, Y, folder=tmp_path)


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts(name: str, tmp_path: Path) -> None:
    check_export(lambda x, y: called(name, x, y), POSITIVE if name == "pow" else X, Y[:, :1], folder=tmp_path)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_binary_of_integers(dtype: Any, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    edges = np.array([info.min, info.max, 0, 1, 2, 3, 100, info.max - 1], dtype)
    a, b = np.meshgrid(edges, edges)
    check_export(lambda x, y: [called(name, x, y) for name in OF_INTEGERS], a, b, folder=tmp_path)


def test_uint64(tmp_path: Path) -> None:
    edges = np.array([0, 1, 5, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    a, b = np.meshgrid(edges, edges)
    check_export(
        lambda x, y: (x + y, x * y, x < y, x.maximum(y), x.minimum(y), ~x, x >> 3, x.float(), x & y, x == y),
        a, b, folder=tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: Any, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 77, info.max - 5], dtype)
    n = np.arange(6).astype(dtype)
    last = info.bits - 1
    check_export(lambda x, n: (x << n, x >> n, x << 3, x >> 3, x >> last, x << last), x, n, folder=tmp_path)


def test_bools(tmp_path: Path) -> None:
    check_export(
        lambda a, b: (a & b, a | b, a ^ b, ~a, a == b, a != b, a.where(a, b), a + b, a.sum(), a.any(1), a.all(0)),
        B, C, folder=tmp_path,
    )  # fmt: skip


KINDS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("kind", KINDS)
def test_casts(kind: str, tmp_path: Path) -> None:
    """From each dtype to every other, at the ends of the ranges."""
    if kind.startswith("float"):
        with np.errstate(over="ignore"):
            x = SPECIAL.astype(kind)
    elif kind == "bool":
        x = np.array([False, True])
    else:
        info = np.iinfo(kind)
        x = np.array([info.min, info.max, 0, 1, 7, 100], kind)
    check_export(lambda x: [x.cast(k) for k in KINDS], x, folder=tmp_path)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_narrow_floats_round_at_every_op(kind: str, tmp_path: Path) -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        a, b = x.cast(kind), y.cast(kind)
        return [t.float() for t in (a + b, a * b, a / b, a.exp(), (a @ b.T), a.sum(1), a.softmax(-1), a.max(1).values)]

    check_export(f, X, Y, folder=tmp_path)


def test_float16_in_and_out(tmp_path: Path) -> None:
    made = check_export(lambda x, y: (x + y, x @ y.T), X.astype(np.float16), Y.astype(np.float16), folder=tmp_path)
    assert {i.dtype for i in (*made.inputs, *made.outputs)} == {"float16"}


REDUCTIONS: list[Function] = [
    lambda x: x.sum(),
    lambda x: x.sum(1),
    lambda x: x.sum((0, 2), keepdim=True),
    lambda x: x.mean(-1),
    lambda x: x.mean((1, 2)),
    lambda x: x.amax(1),
    lambda x: x.amin((0, 1)),
    lambda x: x.prod(2),
    lambda x: x.max(1),
    lambda x: x.min(dim=0),
    lambda x: x.argmax(1),
    lambda x: x.argmin(),
    lambda x: x.argmax(0, keepdim=True),
    lambda x: x.var(1),
    lambda x: x.std((0, 1)),
    lambda x: x.norm(),
    lambda x: x.logsumexp(1),
    lambda x: x.softmax(1),
    lambda x: x.softmax(-1),
    lambda x: x.log_softmax(0),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(2),
    lambda x: x.cummax(1),
    lambda x: x.logcumsumexp(0),
    lambda x: (x > 0).sum(1),
    lambda x: x.expand(5, 2, 3, 4).sum(0),
    lambda x: x.unsqueeze(1).expand(2, 6, 3, 4).mean((1, 2)),
    lambda x: x.median(dim=1),
    lambda x: x.sort(dim=1),
    lambda x: x.sort(dim=2, descending=True).values,
    lambda x: x.reshape(-1).argsort(),
    lambda x: x.topk(2),
    lambda x: x.diff(),
]


@pytest.mark.parametrize("f", REDUCTIONS)
def test_reductions(f: Function, tmp_path: Path) -> None:
    check_export(f, floats(2, 3, 4), folder=tmp_path)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_reductions_of_integers_wrap(dtype: Any, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    x = R.integers(info.min, info.max, (3, 5), dtype=dtype, endpoint=True)
    d = dtype.__name__
    check_export(
        lambda x: (x.sum(1, dtype=d), x.sum(dtype=d), x.prod(1, dtype=d), x.cumsum(1, dtype=d), x.amax(0), x.amin(), x.argmax(1)),
        x, folder=tmp_path,
    )  # fmt: skip
    # without a dtype they are exact
    check_export(lambda x: (x.sum(1), x.sum(), x.prod(1), x.cumsum(1), x @ x.T), x // (info.max // 9), folder=tmp_path)


def test_a_sum_over_nothing(tmp_path: Path) -> None:
    check_export(lambda x: (x.sum(1), x.prod(1), x.sum(0), (x * 2)), floats(3, 0), folder=tmp_path)


MOVEMENT: list[Function] = [
    lambda x: x.reshape(6, 4),
    lambda x: x.reshape(1, 2, 12, 1),
    lambda x: x.permute(2, 0, 1),
    lambda x: x.transpose(0, 1).reshape(-1),
    lambda x: x.unsqueeze(1).expand(2, 5, 3, 4),
    lambda x: x.unsqueeze(1).expand(2, 5, 3, 4).reshape(10, 12),
    lambda x: x.unsqueeze(0).expand(3, 2, 3, 4).permute(1, 0, 3, 2),
    lambda x: x.pad((1, 2)),
    lambda x: x.pad((1, 0, 0, 2, 1, 1)),
    lambda x: x.pad((1, 2), value=3.5),
    lambda x: x[:, 1:, ::2],
    lambda x: x[..., -1],
    lambda x: x[::-1] if False else x.flip(0, 2),
    lambda x: x[1],
    lambda x: x.roll(1, 2),
    lambda x: x.repeat(2, 1, 3),
    lambda x: x.repeat_interleave(2, dim=1),
    lambda x: Tensor.cat([x, x * 2], dim=1),
    lambda x: Tensor.cat([x, x[:, :1], x], dim=1) + 1,
    lambda x: Tensor.stack([x, -x], dim=-1),
    lambda x: Tensor.cat([x > 0, x < 0], dim=2),
    lambda x: Tensor.cat([x, x.int()], dim=0),
    lambda x: x.chunk(2, dim=2),
    lambda x: x.split([1, 2], dim=1),
    lambda x: x.unfold(2, 3, 1),
    lambda x: x.tril(),
    lambda x: x.triu(1),
    lambda x: x.diagonal(dim1=1, dim2=2),
    lambda x: x.unsqueeze(0).expand(4, 2, 3, 4)[1:3, :, 1:],
    lambda x: x.unsqueeze(0).expand(4, 2, 3, 4).flip(0),
    lambda x: x.squeeze().flatten(),
    lambda x: x.movedim(0, 2),
    lambda x: (x + Tensor.arange(4)) * Tensor.eye(4)[1],
    lambda x: x.masked_fill(x > 0, -1e9),
    lambda x: x.where(x > 0, 0.0) if False else (x > 0).where(x, 0.0),
    lambda x: F.interpolate(x.unsqueeze(0), scale_factor=2, mode="nearest"),
    lambda x: F.interpolate(x.unsqueeze(0), size=(5, 6), mode="bilinear"),
    lambda x: F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2),
]


@pytest.mark.parametrize("f", MOVEMENT)
def test_movement(f: Function, tmp_path: Path) -> None:
    check_export(f, floats(2, 3, 4), folder=tmp_path)


PRODUCTS: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk->ki", (3, 4), (4, 5)),
    ("ij,kj->ik", (3, 4), (5, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,jk->bik", (2, 3, 4), (4, 5)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("bij,bik->jk", (2, 3, 4), (2, 3, 5)),
    ("i,i->", (4,), (4,)),
    ("i,j->ij", (3,), (4,)),
    ("ijk,ljk->il", (2, 3, 4), (5, 3, 4)),
    ("aib,bja->ij", (2, 3, 4), (4, 5, 2)),
    ("abc,cd->dab", (2, 3, 4), (4, 5)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("bi,bij->bj", (2, 3), (2, 3, 4)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
@pytest.mark.parametrize(("formula", "left", "right"), PRODUCTS)
def test_products(formula: str, left: tuple[int, ...], right: tuple[int, ...], dtype: Any, tmp_path: Path) -> None:
    a, b = [(R.standard_normal(s) * 9).astype(np.int64).astype(dtype) for s in (left, right)]
    check_export(lambda x, y: Tensor.einsum(formula, x, y), a, b, folder=tmp_path)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4,))]
)
def test_matmul(shapes: Any, tmp_path: Path) -> None:
    check_export(lambda x, y: x @ y, *[floats(*s) for s in shapes], folder=tmp_path)


def test_matmul_is_one_node(tmp_path: Path) -> None:
    made = check_export(
        lambda x, w, b: F.linear(x, w, b).relu(), floats(2, 3, 4), floats(5, 4), floats(5), folder=tmp_path
    )
    assert made.operators == {"Transpose": 1, "MatMul": 1, "Add": 1, "Relu": 1}


CONVOLUTIONS: list[Any] = [
    (IMAGE, (6, 4, 3, 3), {}),
    (IMAGE, (6, 4, 3, 3), {"padding": 1}),
    (IMAGE, (6, 4, 3, 2), {"padding": (1, 0), "stride": (2, 1)}),
    (IMAGE, (6, 4, 3, 3), {"padding": 2, "dilation": 2}),
    (IMAGE, (6, 4, 2, 3), {"padding": "same"}),
    (IMAGE, (6, 4, 1, 1), {}),
    (IMAGE, (6, 4, 1, 1), {"stride": 2}),
    (IMAGE, (6, 4, 2, 2), {"stride": 2}),
    (IMAGE, (6, 4, 3, 3), {"stride": 3}),
    (IMAGE, (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    (IMAGE, (8, 1, 3, 3), {"groups": 4, "stride": 2}),
    (IMAGE, (6, 2, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
    (IMAGE, (1, 4, 3, 3), {}),
    (IMAGE[:, :1], (3, 1, 9, 8), {}),
    (IMAGE[:1], (3, 4, 3, 3), {"padding": 1}),
    (ROW, (3, 4, 3), {"padding": 1}),
    (ROW, (3, 4, 3), {"dilation": 3}),
    (ROW, (3, 4, 5), {"stride": 4, "padding": 2}),
    (CUBE, (3, 2, 2, 3, 2), {"padding": 1}),
]


@pytest.mark.parametrize(("x", "weight", "options"), CONVOLUTIONS)
def test_convolutions(x: np.ndarray, weight: tuple[int, ...], options: dict[str, Any], tmp_path: Path) -> None:
    """One Conv, with its padding and its bias."""
    conv = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
    made = check_export(
        lambda x, w, b: conv(x, w, b, **options), x, floats(*weight), floats(weight[0]), folder=tmp_path
    )
    assert made.operators == {"Conv": 1}


def test_a_padded_input_is_the_convolutions_padding(tmp_path: Path) -> None:
    made = check_export(lambda x, w: F.conv2d(x.pad((1, 2, 0, 1)), w), IMAGE, floats(3, 4, 3, 3), folder=tmp_path)
    assert made.operators == {"Conv": 1}
    made = check_export(lambda x, w: F.conv1d(x.pad((4, 0)), w, dilation=2), ROW, floats(3, 4, 3), folder=tmp_path)
    assert made.operators == {"Conv": 1}


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2}]
)
def test_transposed_convolutions(options: dict[str, Any], tmp_path: Path) -> None:
    check_export(lambda x, w: F.conv_transpose2d(x, w, **options), IMAGE, floats(4, 3, 3, 3), folder=tmp_path)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_convolutions_of_other_floats(dtype: Any, tmp_path: Path) -> None:
    x, w = IMAGE.astype(dtype), floats(3, 4, 3, 3).astype(dtype)
    check_export(lambda x, w: F.conv2d(x, w, padding=1), x, w, folder=tmp_path)


POOLS: list[tuple[Function, str]] = [
    (lambda x: F.max_pool2d(x, 2), "MaxPool"),
    (lambda x: F.max_pool2d(x, 3, 2, 1), "MaxPool"),
    (lambda x: F.max_pool2d(x, 3, 1, 1, 2), "MaxPool"),
    (lambda x: F.max_pool2d(x, (1, 3), 1), "MaxPool"),
    (lambda x: F.max_pool2d(x, 2, ceil_mode=True), "MaxPool"),
    (lambda x: F.max_pool2d(x[0], 2), "MaxPool"),
    (lambda x: F.avg_pool2d(x, 2), "AveragePool"),
    (lambda x: F.avg_pool2d(x, 3, 2, 1), "AveragePool"),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), "AveragePool"),
    (lambda x: F.avg_pool2d(x, (3, 1), 1), "AveragePool"),
    (lambda x: F.adaptive_avg_pool2d(x, 1), "ReduceMean"),
    (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), "ReduceMean"),
    (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), ""),
    (lambda x: F.adaptive_max_pool2d(x, (4, 3)), ""),
]


@pytest.mark.parametrize(("f", "operator"), POOLS)
def test_pools(f: Function, operator: str, tmp_path: Path) -> None:
    made = check_export(f, IMAGE, folder=tmp_path)
    assert not operator or operator in made.operators
    assert "Expand" not in made.operators or not operator


def test_pools_of_integers_and_of_other_ranks(tmp_path: Path) -> None:
    check_export(lambda x: F.max_pool2d(x, 2, 1, 1), ints(1, 2, 5, 5), folder=tmp_path)
    check_export(lambda x: (F.max_pool1d(x, 3, 2, 1), F.avg_pool1d(x, 2)), ROW, folder=tmp_path)
    check_export(lambda x: F.max_pool3d(x, 2), CUBE, folder=tmp_path)


NORMS: list[tuple[Function, str]] = [
    (lambda x, w, b: F.layer_norm(x, (5,), w, b), "LayerNormalization"),
    (lambda x, w, b: F.layer_norm(x, (5,)), "LayerNormalization"),
    (lambda x, w, b: F.layer_norm(x, (5,), w), "LayerNormalization"),
    (lambda x, w, b: F.rms_norm(x, (5,), w), "ReduceMean"),
    (lambda x, w, b: F.group_norm(x.permute(0, 2, 1), 5, w, b), "LayerNormalization"),
    (lambda x, w, b: F.batch_norm(x.permute(0, 2, 1), w, b.abs(), w, b), "BatchNormalization"),
    (lambda x, w, b: F.instance_norm(x), ""),
    (lambda x, w, b: F.normalize(x), ""),
]


@pytest.mark.parametrize(("f", "operator"), NORMS)
def test_norms(f: Function, operator: str, tmp_path: Path) -> None:
    made = check_export(f, floats(2, 3, 5), floats(5), floats(5), folder=tmp_path)
    assert not operator or operator in made.operators


def test_a_norm_over_a_long_row_is_of_instances(tmp_path: Path) -> None:
    made = check_export(lambda x: F.group_norm(x, 2), floats(2, 4, 50, 60), folder=tmp_path)
    assert made.operators["InstanceNormalization"] == 1


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_two_products_and_a_softmax(causal: bool, tmp_path: Path) -> None:
    q, k, v = floats(2, 3, 6, 4), floats(2, 3, 6, 4), floats(2, 3, 6, 5)
    made = check_export(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v, folder=tmp_path
    )
    assert made.operators["MatMul"] == 2
    assert made.operators["Softmax"] == 1
    assert made.operators.get("Where", 0) == causal


INDEXING: list[Function] = [
    lambda x, i: x[i],
    lambda x, i: x[:, i],
    lambda x, i: x[i, i],
    lambda x, i: x[i % 3, 1],
    lambda x, i: F.embedding(i.abs(), x),
    lambda x, i: x.gather(0, i.reshape(3, 1).abs()),
    lambda x, i: x[:, :3].gather(0, i.abs().reshape(1, 3).expand(3, 3)),
    lambda x, i: x[:, :3].gather(0, i.abs().reshape(3, 1).expand(3, 3)),
    lambda x, i: F.embedding(i.abs().reshape(3, 1).expand(3, 2), x),
    lambda x, i: F.embedding(i.reshape(1, 3, 1).abs(), x.reshape(3, 4)),
    lambda x, i: F.embedding(i % 3, x),
    lambda x, i: x.reshape(12)[i],
    lambda x, i: x.index_select(1, i.abs()),
    lambda x, i: x.take_along_dim(i.reshape(1, 3).abs(), 1),
    lambda x, i: F.one_hot(i.abs(), 5),
    lambda x, i: F.cross_entropy(x, i.abs()),
    lambda x, i: Tensor.zeros(5, 4).index_add(0, i.abs(), x),
    lambda x, i: Tensor.zeros(4, 4).scatter_add(0, i.abs().reshape(3, 1).expand(3, 4), x),
    lambda x, i: Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])[i],
    lambda x, i: x[Tensor([2, 0, -1])],
    # a constant that repeats is one element in the graph
    lambda x, i: x.gather(1, Tensor.zeros(3, 2, dtype=dtypes.int64)),
    lambda x, i: x.gather(0, Tensor.full((2, 4), 1)),
    lambda x, i: x.gather(1, Tensor([[1]]).expand(3, 2)),
    lambda x, i: x.gather(0, i[:1].reshape(1, 1).expand(2, 4)),
    lambda x, i: x.reshape(12).gather(0, Tensor.full((5,), 3)),
    lambda x, i: x.reshape(1, 3, 4).gather(2, Tensor.full((1, 3, 6), 3)),
    lambda x, i: x.take(Tensor.ones(2, 2, dtype=dtypes.int64)),
    lambda x, i: x[Tensor.zeros(3, dtype=dtypes.int64)],
]


@pytest.mark.parametrize("f", INDEXING)
def test_indexing(f: Function, tmp_path: Path) -> None:
    check_export(f, floats(3, 4), np.int32([2, 0, -1]), folder=tmp_path)


def test_an_embedding_is_one_look_up(tmp_path: Path) -> None:
    made = check_export(F.embedding, np.int32([[1, 2], [0, 1]]), floats(3, 4), folder=tmp_path)
    assert set(made.operators) <= {"Gather", "Reshape"}


def test_writing_into_a_tensor(tmp_path: Path) -> None:
    def f(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
        a, b, c = x * 1, x * 2, x * 3
        a[1:, 2] = 7.0
        b[:, 1:3] = y
        c[i] = 5.0
        return [a, b, c]

    check_export(f, floats(3, 4), floats(3, 2), np.int32([2, 0]), folder=tmp_path)


def test_bits(tmp_path: Path) -> None:
    x = np.concatenate([SPECIAL, np.float32([1e-45, -3e-39, 3.4e38, 1.1754944e-38, 7.0, -0.1])])
    check_export(
        lambda x: (x.bitcast(dtypes.int32), x.bitcast("uint32"), x.bitcast("int32").bitcast("float32")),
        x,
        folder=tmp_path,
    )


def test_derivatives_are_graphs_like_others(tmp_path: Path) -> None:
    from anneal.tensor import grad, vmap

    def loss(w: Tensor, x: Tensor) -> Tensor:
        return (F.conv2d(x.reshape(1, 1, 4, 4), w).relu() ** 2).sum()

    check_export(
        lambda w, x: vmap(grad(loss), in_axes=(None, 0))(w, x), floats(2, 1, 2, 2), floats(3, 4, 4), folder=tmp_path
    )


@pytest.mark.parametrize("opset", range(17, 24))
def test_opsets(opset: int, tmp_path: Path) -> None:
    made = check_export(
        lambda x, w: F.conv2d(x, w, padding=1).gelu().amax((2, 3)).softmax(-1).prod(1), IMAGE, floats(3, 4, 3, 3),
        folder=tmp_path, opset=opset,
    )  # fmt: skip
    assert ("Gelu" in made.operators) == (opset >= 20)
