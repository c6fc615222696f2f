"""com.microsoft: layers that onnxruntime's optimiser and the exporters for it fuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import anneal.tensor.functional as F
from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import axis_of, single
from anneal.onnx.ops.indexing import gather_nd
from anneal.onnx.ops.microsoft import MICROSOFT
from anneal.onnx.ops.normalisation import layer_normalization, rms_normalization
from anneal.onnx.ops.quantised import exact_matmul
from anneal.onnx.ops.recurrent import ACTIVATIONS
from anneal.onnx.ops.shapes import pad, range_, trilu
from anneal.onnx.ops.windows import WINDOWS, Windows, convolved, kernel_of, max_pool, window_of
from anneal.onnx.registry import op, rows
from anneal.tensor import Tensor, dtypes

# -- activations ------------------------------------------------------------------------------------------------------

POINTWISE: dict[str, Callable[..., Tensor]] = {
    "Gelu": lambda node, x: x.gelu(),
    "BiasGelu": lambda node, x, bias: (x + bias).gelu(),
    "FastGelu": lambda node, x, bias=None: (x if bias is None else x + bias).gelu("tanh"),
    "QuickGelu": lambda node, x, *, alpha=1.702: x * (x * alpha).sigmoid(),
    "BiasAdd": lambda node, x, bias, skip: x + bias + skip,
    "ScaledSiLU": lambda node, x, scale=None, *, alpha=1.0: (x * alpha if scale is None else x * scale).silu(),
    "GemmFastGelu": lambda node, x, weight, bias=None: _sum(x.matmul(weight), bias).gelu("tanh"),
    "MatMulInteger16": lambda node, a, b: exact_matmul(a.cast(dtypes.int32), b.cast(dtypes.int32)),
    # the padding and the scale concern gradients alone
    "TorchEmbedding": lambda node, weight, index, padding=None, scale=None: weight.rows(index.cast(dtypes.int32)),
}
rows(POINTWISE, domain=MICROSOFT)


def _sum(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: NodeCall, x: Tensor, bias: Tensor) -> Tensor:
    """The first half of the last axis of a sum, times gelu of the second."""
    x = x + bias
    half = x.shape[-1] // 2
    return x[..., :half] * x[..., half:].gelu()


@op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(node: NodeCall, x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    """softmax of a sum over the axes from `axis` on; of the axes before it a bias has the last, or the first."""
    first = axis_of(node, axis, x.ndim)
    if not is_inner_broadcast and bias.ndim == x.ndim - 1:
        bias = bias.unsqueeze(first - 1)
    rows = (x + bias).reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
    return rows.softmax(1).reshape(*x.shape)


def _activated(node: NodeCall, y: Tensor, activation: str, parameters: Sequence[float]) -> Tensor:
    """y after an activation that was fused with what made it."""
    if not activation:
        return y
    if activation == "Clip":
        low, high = parameters or (None, None)
        return y.clamp(low, high)
    if activation.lower() not in ACTIVATIONS:
        raise node.fail(f"activation {activation!r} is not known")
    function, *defaults = ACTIVATIONS[activation.lower()]
    wanted = [d for d in defaults if d is not None]
    given = list(parameters)[: len(wanted)]
    return function(y, *given, *wanted[len(given) :])


# -- products ---------------------------------------------------------------------------------------------------------


@op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    node: NodeCall,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """alpha * A @ B, either turned round; transBatch moves the last axis but one (of the turned) to the front."""
    a = a.movedim(0, -2) if transBatchA else a
    b = b.movedim(0, -2) if transBatchB else b
    a = a.mT if transA and a.ndim > 1 else a
    b = b.mT if transB and b.ndim > 1 else b
    out = a.matmul(b)
    return out if alpha == 1 else out * alpha


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    node: NodeCall,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """An activation of alpha * A @ B + beta * C."""
    out = (a.T if transA else a).matmul(b.T if transB else b) * alpha
    out = out if c is None else out + c * beta
    return _activated(node, out, activation, [p for p in (activation_alpha, activation_beta) if p is not None])


@op("FusedConv", domain=MICROSOFT)
def fused_conv(
    node: NodeCall,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] | None = None,
    group: int = 1,
    how: Windows = WINDOWS,
) -> Tensor:
    """An activation of a convolution, to which another value may be added first."""
    w = window_of(node, x.shape[2:], how, kernel_of(node, weight, how))
    y = convolved(node, x, weight, bias, w, group)
    return _activated(node, y if z is None else y + z, activation, activation_params or ())


# -- norms ------------------------------------------------------------------------------------------------------------


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    node: NodeCall,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """The layer norm of a sum; the sum is the fourth output."""
    total = x + skip if bias is None else x + skip + bias
    y = F.layer_norm(total, total.shape[-1], gamma, beta, epsilon)
    return _with_statistics(node, y, total)


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    node: NodeCall, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> Any:
    """The root mean square norm of a sum; the sum is the fourth output."""
    total = x + skip if bias is None else x + skip + bias
    return _with_statistics(node, F.rms_norm(total, total.shape[-1], gamma, epsilon), total)


def _with_statistics(node: NodeCall, y: Tensor, total: Tensor) -> Any:
    if node.wants(1) or node.wants(2):
        raise node.fail("the outputs mean and inv_std_var are not computed", "leave them off")
    return (y, None, None, total)[: node.outputs]


# onnxruntime's name in ai.onnx for RMSNormalization
op("SimplifiedLayerNormalization")(
    lambda node, x, scale, *, axis=-1, epsilon=1e-5, stash_type=1: rms_normalization.function(
        node, x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type
    )
)
op("LayerNormalization", domain=MICROSOFT)(
    lambda node, x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1: layer_normalization.function(
        node, x, scale, bias, axis=axis, epsilon=epsilon, stash_type=stash_type
    )
)


@op("GroupNorm", domain=MICROSOFT)
def group_norm(
    node: NodeCall,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Tensor:
    """The norm of groups of channels, which are the last axis by default, and silu if `activation` is 1."""
    x = x.movedim(-1, 1) if channels_last else x
    y = F.group_norm(x, groups, gamma.cast(x.dtype), beta.cast(x.dtype), epsilon)
    y = y.silu() if activation == 1 else y
    return y.movedim(1, -1) if channels_last else y


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    node: NodeCall,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    positions: Tensor,
    segment_rows: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:
    """The layer norm of the sum of rows of words, positions and segments, and how many places of a mask are set."""
    if position_ids is None:
        place = positions[: ids.shape[1]].unsqueeze(0)
    else:
        place = positions.rows(position_ids.cast(dtypes.int32))
    total = words.rows(ids.cast(dtypes.int32)) + place
    if segments is not None and segment_rows is not None:
        total = total + segment_rows.rows(segments.cast(dtypes.int32))
    y = F.layer_norm(total, total.shape[-1], gamma, beta, epsilon)
    if mask is None:
        counts = Tensor.zeros(ids.shape[0], dtype="int32", device=ids.device)
    else:
        counts = mask.cast(dtypes.int32).sum(1)
    return (y, counts, total)[: node.outputs]


# -- others under a name of their own ---------------------------------------------------------------------------------


@op("CDist", domain=MICROSOFT)
def cdist(node: NodeCall, a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """The distances, or their squares, of all pairs of rows."""
    if metric not in ("sqeuclidean", "euclidean"):
        raise node.fail(f"metric is sqeuclidean or euclidean, not {metric!r}")
    less = a.unsqueeze(1) - b.unsqueeze(0)
    squares = (less * less).sum(-1)
    return squares if metric == "sqeuclidean" else squares.sqrt()


@op("IsAllFinite", domain=MICROSOFT)
def is_all_finite(node: NodeCall, *xs: Tensor, isinf_only: int = 0, isnan_only: int = 0) -> Tensor:
    """True if no element of any input is infinite or nan."""
    out: Tensor | None = None
    for x in xs:
        bad = x.isinf() if isinf_only else x.isnan() if isnan_only else x.isfinite().logical_not()
        fine = bad.any().logical_not()
        out = fine if out is None else out & fine
    assert out is not None
    return out


@op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    node: NodeCall,
    x: Tensor,
    *,
    how: Windows = WINDOWS,
) -> Tensor:
    """MaxPool of images whose channels are the last axis."""
    y: Tensor = max_pool.function(node, x.movedim(-1, 1), how=how)
    return y.movedim(1, -1)


op("ExpandDims", domain=MICROSOFT, values=("axis",))(lambda node, x, axis: x.unsqueeze(int(single(axis))))
op("GatherND", domain=MICROSOFT)(gather_nd.function)
op("Pad", domain=MICROSOFT, raw=True)(
    lambda node, x, pads, value=None, *, mode="constant": pad.function(node, x, pads, value, mode=mode)
)
op("Trilu", domain=MICROSOFT, values=("k",))(
    lambda node, x, k=None, *, upper=1: trilu.function(node, x, k, upper=upper)
)
op("Range", domain=MICROSOFT, values=("start", "limit", "delta"))(range_.function)
