"""com.microsoft: operators of older exporters, diffusion models and quantised weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import anneal.tensor.functional as F
from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array, Value, axis_of, ints
from anneal.onnx.ops.contrib import MICROSOFT, fused_conv, group_norm, unpacked
from anneal.onnx.ops.images import grid_sample, sampled
from anneal.onnx.ops.quantised import exact_matmul
from anneal.onnx.ops.windows import conv_transpose
from anneal.onnx.registry import op
from anneal.tensor import Tensor, dtypes

__all__: list[str] = []

# -- images -----------------------------------------------------------------------------------------------------------


@op("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(
    node: Call,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """FusedConv of images and kernels whose channels are the last axis."""
    y: Tensor = fused_conv.function(
        node,
        x.movedim(-1, 1),
        weight.movedim(-1, 1),
        bias,
        None if z is None else z.movedim(-1, 1),
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return y.movedim(1, -1)


@op("ConvTransposeWithDynamicPads", domain=MICROSOFT, values=("pads",))
def conv_transpose_with_dynamic_pads(
    node: Call,
    x: Tensor,
    weight: Tensor,
    pads: Array | None = None,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """ConvTranspose whose pads are an input."""
    y: Tensor = conv_transpose.function(
        node,
        x,
        weight,
        bias,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=None if pads is None else ints(pads),
        strides=strides,
    )
    return y


@op("GridSample", domain=MICROSOFT)
def grid_sample_as_ai_onnx(
    node: Call,
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Any:
    """ai.onnx's GridSample."""
    return grid_sample.function(node, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@op("CropAndResize", domain=MICROSOFT, values=("crop_size",))
def crop_and_resize(
    node: Call,
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    crop_size: Array,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Tensor:
    """Regions of images, whose corners are parts of the image from 0 to 1, brought to one size."""
    if mode not in ("bilinear", "nearest"):
        raise node.fail(f"mode is bilinear or nearest, not {mode!r}")
    count = rois.shape[0]
    images = x.rows(batch_indices.cast(dtypes.int32).reshape(-1))
    places: list[Tensor] = []
    inside: Tensor | None = None
    sizes = ints(crop_size)
    for i, (n, m) in enumerate(zip(x.shape[2:], sizes, strict=True)):
        low, high = rois[:, i : i + 1] * (n - 1), rois[:, i + 2 : i + 3] * (n - 1)
        steps = node.constant(np.arange(m, dtype=np.float32).reshape(1, -1))
        at = low + steps * ((high - low) / (m - 1)) if m > 1 else (low + high) * 0.5
        fits: Any = (at >= 0) & (at <= n - 1)
        shape = (count, m, 1) if i == 0 else (count, 1, m)
        fits = fits.reshape(*shape).expand(count, *sizes)
        inside = fits if inside is None else inside & fits
        at = at if mode == "bilinear" else (at + 0.5).floor()
        places.append(at.reshape(*shape).expand(count, *sizes).reshape(count, -1))
    assert inside is not None
    kind = "linear" if mode == "bilinear" else "nearest"
    y = sampled(images, places, kind, "border", 1).reshape(count, x.shape[1], *sizes)
    return inside.unsqueeze(1).where(y, extrapolation_value)


@op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    node: Call,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    skip: Tensor,
    bias: Tensor | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Any:
    """GroupNorm of a sum, which is the second output."""
    if skip.ndim == 2:
        skip = skip.reshape(skip.shape[0], 1, 1, -1) if channels_last else skip.reshape(*skip.shape, 1, 1)
    total = x + skip
    if bias is not None:
        total = total + (bias if channels_last else bias.reshape(-1, 1, 1))
    how = {"activation": activation, "channels_last": channels_last, "epsilon": epsilon, "groups": groups}
    return (group_norm.function(node, total, gamma, beta, **how), total)[: node.outputs]


# -- rows and windows of memory ---------------------------------------------------------------------------------------


@op("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(node: Call, x: Tensor, *, dim: int = -1, size: int, step: int = 1) -> Tensor:
    """Windows along an axis; what is in them is a new last axis."""
    return x.unfold(axis_of(node, dim, x.ndim), size, step)


@op("TorchEmbedding", domain=MICROSOFT)
def torch_embedding(
    node: Call, weight: Tensor, index: Tensor, padding_idx: Tensor | None = None, scale: Tensor | None = None
) -> Tensor:
    """Rows of a table; the padding and the scale concern gradients alone."""
    return weight.rows(index.cast(dtypes.int32))


@op("Unique", domain=MICROSOFT, raw=True)
def unique_in_order(node: Call, x: Value) -> tuple[Array, ...]:
    """The different elements in the order in which they come, where each stands among them, and how many there are."""
    _, first, inverse, counts = np.unique(node.host(x), return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    return node.host(x)[first[order]], np.argsort(order)[inverse.reshape(-1)], counts[order]


@op("NGramRepeatBlock", domain=MICROSOFT, raw=True)
def ngram_repeat_block(node: Call, ids: Value, scores: Value, *, ngram_size: int) -> Array:
    """Scores, minus infinity for each token that would repeat a sequence of `ngram_size` tokens."""
    rows, out = node.host(ids, "its tokens are compared"), np.array(node.host(scores, "its tokens are compared"))
    if ngram_size < 1:
        raise node.fail(f"ngram_size is {ngram_size}")
    for row, line in zip(rows.tolist(), out, strict=True):
        last = row[len(row) - ngram_size + 1 :]
        for i in range(len(row) - ngram_size + 1):
            if row[i : i + ngram_size - 1] == last:
                line[row[i + ngram_size - 1]] = -np.inf
    return out


@op("GatherBlockQuantized", domain=MICROSOFT, values=("data", "scales", "zero_points"))
def gather_block_quantized(
    node: Call,
    data: Array,
    index: Tensor,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    """Gather of a table of 2 to 8 bits with a scale for each block of an axis; unpacked once, on the host."""
    if data.dtype.name.startswith("float") or block_size < 1:
        raise node.fail(f"a table of {data.dtype.name} with blocks of {block_size}; integers in blocks are read")
    packed = data.dtype == np.uint8
    axis, along = axis_of(node, gather_axis, data.ndim), axis_of(node, quantize_axis, data.ndim)

    def table() -> Array:
        steps = (unpacked(data, bits) if packed else data).astype(np.float32)
        blocks = np.minimum(np.arange(steps.shape[along]) // block_size, scales.shape[along] - 1)
        zeros = np.float32(1 << (bits - 1) if packed else 0)
        if zero_points is not None:
            known = (unpacked(zero_points, bits) if packed else zero_points).astype(np.float32)
            zeros = np.take(known, blocks, along)
        each = np.take(scales.astype(np.float32), blocks, along)
        return np.asarray(((steps - zeros) * each).astype(scales.dtype))

    rows = node.constant(table, (data, scales, zero_points))
    count = rows.shape[axis]
    place = index.cast(dtypes.int32)
    place = (place < 0).where(place + count, place)
    found = rows.index_select(axis, place.reshape(-1))
    return found.reshape(*rows.shape[:axis], *index.shape, *rows.shape[axis + 1 :])


# -- products ---------------------------------------------------------------------------------------------------------

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


@op("MatMulBnb4", domain=MICROSOFT, values=("b", "absmax"))
def matmul_bnb4(
    node: Call,
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
        raise node.fail(f"quant_type {quant_type} in blocks of {block_size}; 0 (FP4) and 1 (NF4) are read")
    node.room(N, K)

    def weight() -> Array:
        steps = np.stack([b.reshape(-1) >> 4, b.reshape(-1) & 15], -1).reshape(-1)[: N * K]
        numbers = np.array(_NF4 if quant_type else _FP4, np.float32)[steps]
        each = np.repeat(absmax.reshape(-1).astype(np.float32), block_size)[: N * K]
        rows = (numbers * each).reshape(N, K)
        return np.ascontiguousarray(rows.T if transB else rows).astype(a.dtype.name)

    return a.matmul(node.constant(weight, (b, absmax)))


@op("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(node: Call, a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices of 16-bit integers, summed as int32."""
    return exact_matmul(a.cast(dtypes.int32), b.cast(dtypes.int32))


@op("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(node: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """gelu by tanh of a product, to which a bias is added."""
    y = x.matmul(weight)
    return (y if bias is None else y + bias).gelu("tanh")


@op("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def complex_mul(node: Call, a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers, which are pairs of the last axis; with Conj of the second's conjugates."""
    (ar, ai), (br, bi) = (a[..., 0], a[..., 1]), (b[..., 0], b[..., 1])
    bi = bi * (-1 if node.op == "ComplexMulConj" else 1)
    return Tensor.stack([ar * br - ai * bi, ar * bi + ai * br], dim=-1)


@op("Inverse", domain=MICROSOFT, raw=True)
def inverse(node: Call, x: Value) -> Array:
    """The inverses of square matrices, the last two axes, by LAPACK on the host."""
    array = node.host(x, "an inverse is computed on the host")
    return np.asarray(np.linalg.inv(array.astype(np.float64)).astype(array.dtype))


@op("DynamicTimeWarping", domain=MICROSOFT, raw=True)
def dynamic_time_warping(node: Call, x: Value) -> Array:
    """The cheapest way from the first to the last place of a table of costs, as rows and columns: (2, steps)."""
    cost = node.host(x, "the way is found on the host")
    cost = cost.reshape(cost.shape[-2:]).astype(np.float64)
    n, m = cost.shape
    node.room(n, m)
    best = np.full((n + 1, m + 1), np.inf)
    best[0, 0] = 0
    came = np.zeros((n + 1, m + 1), np.int8)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            ways = (best[i - 1, j - 1], best[i - 1, j], best[i, j - 1])
            came[i, j] = 0 if ways[0] < ways[1] and ways[0] < ways[2] else 1 if ways[1] < ways[2] else 2
            best[i, j] = cost[i - 1, j - 1] + ways[came[i, j]]
    way, (i, j) = [], (n, m)
    while i > 0 and j > 0:
        way.append((i - 1, j - 1))
        i, j = i - (came[i, j] != 2), j - (came[i, j] != 1)
    return np.array(way[::-1], np.int32).reshape(-1, 2).T.copy()


# -- layers -----------------------------------------------------------------------------------------------------------


@op("BiasDropout", domain=MICROSOFT)
def bias_dropout(
    node: Call,
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Tensor | None = None,
    training_mode: Tensor | None = None,
) -> Tensor:
    """x + bias + residual: nothing is dropped where nothing is trained."""
    if node.wants(1):
        raise node.fail("its mask is not computed", "export the model for inference")
    y = x + bias
    return y if residual is None else y + residual


@op("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(node: Call, x: Tensor, scale: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """silu of scaled values."""
    return (x * alpha if scale is None else x * scale).silu()


@op("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(
    node: Call, x: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = 1e-5
) -> Tensor:
    """The root mean square norm of each piece as long as the scale, times an activation of the gate."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise node.fail(f"activation is silu, swish or sigmoid, not {activation!r}")
    width = scale.shape[0]
    y = F.rms_norm(x.reshape(*x.shape[:-1], -1, width).float(), width, scale.float(), epsilon).reshape(*x.shape)
    z = gate.float()
    return (y * (z.sigmoid() if activation == "sigmoid" else z.silu())).cast(x.dtype)


@op("RelativePositionBias", domain=MICROSOFT, values=("query_length", "key_length"))
def relative_position_bias(
    node: Call,
    table: Tensor,
    query_length: Array,
    key_length: Array,
    *,
    is_bidirectional: int = 0,
    max_distance: int,
) -> Tensor:
    """T5's bias for each pair of positions: rows of a table by the logarithm of their distance (Raffel et al., 2019).

    (buckets, heads) to (1, heads, queries, keys).
    """
    n, m = int(query_length.reshape(())), int(key_length.reshape(()))
    node.room(table.shape[1], n, m)
    buckets = table.shape[0]
    apart = np.arange(m)[None, :] - np.arange(n)[:, None]
    base = np.zeros_like(apart)
    if is_bidirectional:
        buckets //= 2
        base = np.where(apart > 0, buckets, 0)
        apart = np.abs(apart)
    else:
        apart = np.maximum(-apart, 0)
    exact = buckets // 2
    steps = np.log(np.maximum(apart, 1).astype(np.float32) / exact) / np.log(np.float32(max_distance / exact))
    far = exact + (steps * (buckets - exact)).astype(np.int64)
    place = base + np.where(apart < exact, apart, np.minimum(far, buckets - 1))
    found = table.rows(node.constant(place.astype(np.int32)))
    return found.permute(2, 0, 1).unsqueeze(0)
