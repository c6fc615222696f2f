"""com.microsoft: quantised layers. Products of integers are exact; all else is float32, quantised again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from anneal.onnx.execute import fail, node
from anneal.onnx.ops import quantised as main
from anneal.onnx.ops.attention import Cell, Layer, activations_of, directions_of, lstm_step, run_layer
from anneal.onnx.ops.elementwise import MaybeTensor, MaybeValue, axis_of, plus, total_of
from anneal.onnx.ops.microsoft.layers import EmbedLayerNormalization, Heads, self_attention
from anneal.onnx.ops.windows import AveragePool, Windows
from anneal.onnx.registry import also, op
from anneal.tensor import Tensor

for _one in (main.QuantizeLinear, main.DequantizeLinear, main.QLinearConv):
    also(_one)

# -- elementwise ------------------------------------------------------------------------------------------------------


def _scalar(x: MaybeTensor) -> MaybeTensor:
    return None if x is None else x.reshape(())


def _read(x: Tensor, scale: Tensor, zero: MaybeTensor) -> Tensor:
    return main.dequantised(x, scale.reshape(()), _scalar(zero))


def _written(y: Tensor, like: Tensor, scale: Tensor, zero: MaybeTensor = None) -> Tensor:
    """y quantised: in the dtype of the zero point, else in that of `like`."""
    return main.quantised(y, scale.reshape(()), _scalar(zero), (like if zero is None else zero).dtype.name)


def _through(name: str, function: Callable[..., Tensor], count: int = 1, first: int = 0) -> None:
    """Register a function of floats for quantised values: `count` of its inputs, from the place `first` on, and its
    result have a scale and a zero point behind them.
    """

    def computed(*inputs: Tensor, **how: Any) -> Tensor:
        behind = first + 3 * count
        values = [_read(*inputs[i : i + 3]) for i in range(first, behind, 3)]
        return _written(function(*inputs[:first], *values, **how), inputs[first], *inputs[behind:])

    op(name, passes=function)(computed)


def _means(x: Tensor, *, channels_last: int = 0, count_include_pad: int = 0, how: Windows) -> Tensor:
    """The mean of each window."""
    data = x.movedim(-1, 1) if channels_last else x
    y: Tensor = AveragePool(data, count_include_pad=count_include_pad, how=how)
    return y.movedim(1, -1) if channels_last else y


_through("QLinearAdd", lambda x, y: x + y, 2)
_through("QLinearMul", lambda x, y: x * y, 2)
_through("QLinearWhere", lambda condition, x, y: condition.where(x, y), 2, 1)
_through("QLinearSigmoid", lambda x: x.sigmoid())
_through("QLinearLeakyRelu", lambda x, *, alpha=0.01: x.leaky_relu(alpha))
_through(  # over one axis, or below opset 13 over the axes from it on
    "QLinearSoftmax",
    lambda x, *, axis=-1, opset: x.softmax(axis) if opset >= 13 else x.flatten(axis).softmax(-1).reshape(*x.shape),
)
_through(
    "QLinearGlobalAveragePool",
    lambda x, *, channels_last=0: x.mean(
        tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim)), keepdim=True
    ),
)
_through("QLinearReduceMean", lambda x, *, axes, keepdims: x.mean(tuple(axes), bool(keepdims)))
_through("QLinearAveragePool", _means)


@op
def QLinearConcat(y_scale: Tensor, y_zero: Tensor, *inputs: Tensor, axis: int) -> Tensor:
    """Quantised values, each with its scale and zero point behind it, one after the other."""
    if not inputs or len(inputs) % 3:
        raise fail(f"{len(inputs)} inputs; each value has a scale and a zero point behind it")
    parts = [_read(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return _written(Tensor.cat(parts, dim=axis_of(axis, parts[0].ndim)), inputs[0], y_scale, y_zero)


# -- products ---------------------------------------------------------------------------------------------------------


def _dynamic(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as int32 steps from its zero point, and their scale, as DynamicQuantizeLinear finds them."""
    steps, scale, zero = main.by_range(x)
    return main.integers(steps, zero), scale


def _of_floats(a: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """The product of floats, quantised for it, and steps of a scale, as `weight_of` gives them."""
    steps, scale = _dynamic(a)
    return main.exact_matmul(steps, b).float() * (scale * b_scale)


@op
def DynamicQuantizeMatMul(a: Tensor, b: Tensor, b_scale: Tensor, b_zero: MaybeTensor, bias: MaybeTensor) -> Tensor:
    """Floats, quantised by their own range, times a quantised matrix, as floats."""
    return plus(_of_floats(a, main.columns_of(a, b, b_zero), main.for_columns(b_scale)), bias)


@op
def MatMulIntegerToFloat(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero: MaybeTensor, b_zero: MaybeTensor, bias: MaybeTensor
) -> Tensor:
    """The product of quantised matrices, as floats."""
    total = main.exact_matmul(main.integers(a, _scalar(a_zero)), main.columns_of(a, b, b_zero))
    return plus(total.cast(a_scale.dtype) * (a_scale.reshape(()) * main.for_columns(b_scale)), bias)


@op
def QGemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: MaybeTensor,
    y_scale: MaybeTensor,
    y_zero: MaybeTensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * (A @ B + C) of quantised matrices and int32, quantised if there is a scale for it, else as floats."""
    left = main.integers(a, a_zero.reshape(()))
    right = main.weight_of(b, b_zero, [1 if transB else 0], (-1, 1) if transB else (-1,))
    total = plus(main.exact_matmul(left.T if transA else left, right.T if transB else right), c)
    factor = a_scale.reshape(()) * main.for_columns(b_scale) * alpha
    if y_scale is None:
        return total.float() * factor
    return main.requantised(total, factor / y_scale.reshape(()), _scalar(y_zero), a.dtype.name)


# -- layers -----------------------------------------------------------------------------------------------------------


@op
def QAttention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask: MaybeTensor,
    x_zero: MaybeTensor,
    weight_zero: MaybeTensor,
    past: MaybeTensor,
    *,
    how: Heads,
) -> Any:
    """Self-attention whose projection is a product of quantised matrices."""
    total = main.exact_matmul(main.integers(x, _scalar(x_zero)), main.columns_of(x, weight, weight_zero))
    joined = total.float() * (x_scale.reshape(()) * main.for_columns(weight_scale)) + bias
    return self_attention(joined, [weight.shape[1] // 3] * 3, mask, None, past, how)


@op
def QEmbedLayerNormalization(ids: Tensor, segments: MaybeTensor, *tables: MaybeTensor, epsilon: float = 1e-12) -> Any:
    """EmbedLayerNormalization of quantised tables, of words, positions, segments, gamma and beta: the inputs are these,
    the mask, the scale of each, and the zero point of each.
    """
    triples = zip(tables[:5], tables[6:11], tables[11:])
    read: Any = [None if x is None or scale is None else _read(x, scale, zero) for x, scale, zero in triples]
    words, places, rows, gamma, beta = read
    return EmbedLayerNormalization(ids, segments, words, places, rows, gamma, beta, tables[5], None, epsilon=epsilon)


@dataclass(frozen=True)
class QuantisedCell(Cell):
    """Weights of 8 bits with scales and zero points, of all or of each column; what meets them is quantised by its own
    range."""

    input_scale: Any = None  # tensors
    state_scale: Any = None
    state_zero: MaybeTensor = None
    narrow: bool = False  # whether float32 holds the sums of the state
    looped: ClassVar[int] = 8

    def from_inputs(self, x: Tensor) -> Tensor:
        """The part of the gates that the inputs of all steps give: they are quantised together."""
        return plus(_of_floats(x, self.inputs, self.input_scale), self.input_bias)

    def from_state(self, h: Tensor) -> Tensor:
        """The part of the gates that the state gives."""
        steps, scale = _dynamic(h)
        state = main.integers(self.state, None)  # of the weights as they are: they are read in 8 bits
        total = main.exact_matmul(steps, state.float() if self.narrow else state)
        if self.state_zero is not None:
            total = total - steps.sum(-1, keepdim=True) * main.integers(self.state_zero, None)
        return total.float() * (scale * self.state_scale)  # type: ignore[no-any-return]


@op
def DynamicQuantizeLSTM(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: MaybeTensor,
    sequence_lens: MaybeValue,
    initial_h: MaybeTensor,
    initial_c: MaybeTensor,
    p: MaybeTensor,
    w_scale: Tensor,
    w_zero: MaybeTensor,
    r_scale: Tensor,
    r_zero: MaybeTensor,
    *,
    how: Layer,
) -> Any:
    """LSTM with quantised weights (directions, in, 4 * hidden); inputs and states are quantised as they come."""
    if how.input_forget:
        raise fail("input_forget=1 is not computed")
    count = directions_of(how, r[..., : r.shape[-1] // 4])
    scales = [None if s is None else s.reshape(count, -1) for s in (w_scale, r_scale, r_zero)]
    inputs = main.weight_of(w, w_zero, [1], (count, 1, -1))
    narrow = main.is_narrow(r, node.of.constants.held(r), [1])
    cells = []
    for d, f in enumerate(activations_of(how, ["Sigmoid", "Tanh", "Tanh"], count)):
        bias = None if b is None else total_of(b[d].chunk(2))
        by, state_by, less = [None if s is None else main.for_columns(s[d]) for s in scales]
        peephole = None if p is None else p[d]
        cells.append(QuantisedCell(f, inputs[d], r[d], bias, None, peephole, by, state_by, less, narrow))
    return run_layer(x, cells, [initial_h, initial_c], lstm_step, sequence_lens, how)
