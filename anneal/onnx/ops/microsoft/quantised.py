"""com.microsoft: quantised layers, which are float32 but for exact products, packed weights, mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from anneal.frozen import frozen
from anneal.onnx.execute import fail, node
from anneal.onnx.ops import quantised as main
from anneal.onnx.ops.attention import Cell, Layer, activations_of, directions_of, lstm_step, run_layer
from anneal.onnx.ops.elementwise import Array, MaybeArray, MaybeTensor, MaybeValue, axis_of, plus, total_of
from anneal.onnx.ops.indexing import Gather
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
    y = AveragePool(x.movedim(-1, 1) if channels_last else x, count_include_pad=count_include_pad, how=how)
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


@frozen
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


# -- weights of few bits, which are unpacked on the host, once, and mixtures of experts --------------------------------


@op
def MatMulNBits(
    a: Tensor,
    b: Array,
    scales: Array,
    zero_points: MaybeArray,
    g_idx: MaybeArray,
    bias: MaybeTensor,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Tensor:
    """A times a matrix of N columns whose K elements have 2, 4 or 8 bits, and a scale for each block of them.

    The matrix is unpacked on the host, once. `accuracy_level` would allow less precision; it is not used.
    """
    if bits not in (2, 4, 8) or weight_prepacked:
        raise fail(f"{bits} bits with weight_prepacked={weight_prepacked}; 2, 4 and 8, not packed again, are read")
    node.room(N, K)

    def weight() -> Array:
        return _dequantised_blocks(b, scales, zero_points, g_idx, N, K, bits, block_size).T.astype(a.dtype.name)

    return plus(a.matmul(node.constant(weight, (b, scales, zero_points, g_idx))), bias)


def _dequantised_blocks(
    b: Array, scales: Array, zero_points: MaybeArray, g_idx: MaybeArray, N: int, K: int, bits: int, block_size: int
) -> Array:
    """(N, K) float32 numbers from packed ones, with a scale and a zero point for each block of a row."""
    blocks = -(-K // block_size)
    steps = unpacked(b, bits).reshape(N, blocks * block_size)[:, :K]
    if zero_points is not None:
        packed = zero_points.dtype == np.uint8 and scales.dtype != np.uint8
        zero_points = unpacked(zero_points.reshape(N, -1), bits)[:, :blocks] if packed else zero_points
        zero_points = zero_points.reshape(N, blocks)
    group = np.arange(K) // block_size if g_idx is None else g_idx[:K]
    return _scaled(steps, scales.reshape(N, blocks), zero_points, 1 << (bits - 1), group, 1)


def _scaled(steps: Array, scales: Array, zeros: MaybeArray, centre: int, places: Any, axis: int) -> Array:
    """Steps from zero points, or from `centre`, times scales, as float32; both lie at `places` of an axis."""
    less = centre if zeros is None else np.take(zeros.astype(np.float32), places, axis)
    return np.asarray((steps.astype(np.float32) - less) * np.take(scales.astype(np.float32), places, axis))


def unpacked(x: Array, bits: int) -> Array:
    """Bytes as the numbers in them, the first in the lowest bits."""
    per = 8 // bits
    parts = [(x >> (bits * i)) & ((1 << bits) - 1) for i in range(per)]
    return np.stack(parts, -1).reshape(*x.shape[:-1], x.shape[-1] * per)


@op
def GatherBlockQuantized(
    data: Array,
    index: Tensor,
    scales: Array,
    zero_points: MaybeArray,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Any:
    """Gather of a table of 2 to 8 bits with a scale for each block of an axis; unpacked once, on the host."""
    if data.dtype.name.startswith("float") or block_size < 1:
        raise fail(f"a table of {data.dtype.name} with blocks of {block_size}; integers in blocks are read")
    packed, along = data.dtype == np.uint8, axis_of(quantize_axis, data.ndim)

    def table() -> Array:
        steps = unpacked(data, bits) if packed else data
        zeros = unpacked(zero_points, bits) if packed and zero_points is not None else zero_points
        blocks = np.minimum(np.arange(steps.shape[along]) // block_size, scales.shape[along] - 1)
        return _scaled(steps, scales, zeros, 1 << (bits - 1) if packed else 0, blocks, along).astype(scales.dtype)

    return Gather(node.constant(table, (data, scales, zero_points)), index, axis=gather_axis)


_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


_HALF = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)


_FP4 = (*_HALF, *[-v for v in _HALF])


@op
def MatMulBnb4(
    a: Tensor,
    b: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Tensor:
    """A times a matrix of the 16 numbers of bitsandbytes' FP4 or NF4 (Dettmers et al., "QLoRA", 2023), each block of
    them with its largest size; unpacked once, on the host.
    """
    if quant_type not in (0, 1) or block_size < 1:
        raise fail(f"quant_type {quant_type} in blocks of {block_size}; 0 (FP4) and 1 (NF4) are read")
    node.room(N, K)

    def weight() -> Array:
        steps = np.stack([b.reshape(-1) >> 4, b.reshape(-1) & 15], -1).reshape(-1)[: N * K]
        numbers = np.array(_NF4 if quant_type else _FP4, np.float32)[steps]
        each = np.repeat(absmax.reshape(-1).astype(np.float32), block_size)[: N * K]
        rows = (numbers * each).reshape(N, K)
        return (rows.T if transB else rows).astype(a.dtype.name)

    return a.matmul(node.constant(weight, (b, absmax)))


class Mixture(NamedTuple):
    """The attributes of mixtures of experts."""

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    use_sparse_mixer: int = 0


_GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": Tensor.relu,
    "gelu": lambda h: h.gelu("tanh"),
    "silu": Tensor.silu,
    "identity": lambda h: h,
}


def _routed(router: Tensor, k: int, normalise: int) -> Any:
    """(rows, experts): the weight of each expert, 0 but for the k with the largest scores."""
    scores = router.float()
    experts = scores.shape[1]
    if not 0 < k <= experts:
        raise fail(f"k is {k}, of {experts} experts")
    _, place = scores.topk(k, 1)
    every = node.constant(np.arange(experts, dtype=np.int32).reshape(1, 1, -1))
    hits = place.int().unsqueeze(-1) == every
    chosen = hits.any(1)
    return chosen.where(scores, -np.inf).softmax(1) if normalise else chosen.where(scores.softmax(1), 0.0)


def _gated(h: Tensor, other: MaybeTensor, how: Mixture) -> Any:
    """The activation of the first product; of swiglu with the gate beside it, or in every second column."""
    kind = how.activation_type
    if kind == "swiglu":
        fusion = how.swiglu_fusion
        if fusion == 1:
            gate, line = h[..., 0::2], h[..., 1::2]
        elif fusion == 2:
            gate, line = h.chunk(2, -1)
        elif other is not None:
            gate, line = h, other
        else:
            raise fail("swiglu_fusion=0 without weights of fc3")
        if (limit := how.swiglu_limit) is not None:
            gate, line = gate.clamp(None, limit), line.clamp(-limit, limit)
        return gate * (gate * how.activation_alpha).sigmoid() * (line + how.activation_beta)
    y = _GATES[kind](h)
    return y if other is None else y * other


def _mixed(x: Tensor, router: Tensor, layers: list[tuple[Any, Any]], how: Mixture) -> Any:
    """The experts' results, weighted; a layer is (experts, out, in) weights and (experts, out) biases, None without.

    Every expert computes every row, and the rows of those that a router did not choose count nothing: shapes stay
    fixed, and there is no host in between.
    """
    if how.use_sparse_mixer:
        raise fail("use_sparse_mixer=1 is not computed")
    rows = x.reshape(1, -1, x.shape[-1])

    def through(h: Tensor, weight: Tensor, bias: MaybeTensor) -> Tensor:
        return plus(h.matmul(weight.mT), None if bias is None else bias.unsqueeze(1))

    gate = None if layers[2][0] is None else through(rows, *layers[2])
    y = through(_gated(through(rows, *layers[0]), gate, how), *layers[1])
    weights = _routed(router, how.k, how.normalize_routing_weights)
    return (y * weights.T.unsqueeze(-1).cast(y.dtype)).sum(0).reshape(*x.shape)


@op
def MoE(
    x: Tensor,
    router: Tensor,
    w1: Tensor,
    b1: MaybeTensor,
    w2: Tensor,
    b2: MaybeTensor,
    w3: MaybeTensor,
    b3: MaybeTensor,
    *,
    how: Mixture,
) -> Any:
    """The results of the k experts with the largest scores for each row, weighted by softmax over all scores, or over
    those of the k.
    """
    return _mixed(x, router, [(w1, b1), (w2, b2), (w3, b3)], how)


@op
def QMoE(
    x: Tensor,
    router: Tensor,
    w1: Array,
    s1: MaybeArray,
    b1: MaybeTensor,
    w2: Array,
    s2: MaybeArray,
    b2: MaybeTensor,
    w3: MaybeArray,
    s3: MaybeArray,
    b3: MaybeTensor,
    z1: MaybeArray,
    z2: MaybeArray,
    z3: MaybeArray,
    router_weights: MaybeTensor,
    *,
    accuracy_level: int = 0,
    block_size: int = 0,
    expert_weight_bits: int = 4,
    quant_type: str = "int",
    weights_prepacked: int = -1,
    how: Mixture,
) -> Any:
    """MoE with weights of 4 or 8 bits, a scale for each row or for each block of it; unpacked once, on the host.

    `accuracy_level` would allow less precision; it is not used.
    """
    if quant_type != "int" or expert_weight_bits not in (4, 8) or weights_prepacked > 0 or router_weights is not None:
        raise fail(f"{expert_weight_bits} bits of {quant_type!r}; integers of 4 and 8 bits, not packed again, are read")

    def layer(w: MaybeArray, s: MaybeArray, z: MaybeArray) -> MaybeTensor:
        if w is None or s is None:
            return None
        return node.constant(lambda: _weights(w, s, z, expert_weight_bits, block_size).astype(x.dtype.name), (w, s, z))

    return _mixed(x, router, [(layer(w1, s1, z1), b1), (layer(w2, s2, z2), b2), (layer(w3, s3, z3), b3)], how)


def _weights(packed: Array, scales: Array, zeros: MaybeArray, bits: int, block: int) -> Array:
    """(experts, out, in) float32 numbers."""
    steps, each = unpacked(packed, bits), scales[..., None] if scales.ndim == 2 else scales
    places = np.arange(steps.shape[-1])
    places = np.minimum(places // block, each.shape[-1] - 1) if block else 0 * places
    known = None if zeros is None else unpacked(zeros.reshape(*zeros.shape[:2], -1), bits)
    return _scaled(steps, each, known, 1 << (bits - 1), places, -1)
