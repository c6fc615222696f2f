"""com.microsoft: layers that onnxruntime's optimiser fuses; attention with caches and rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import anneal.tensor.functional as F
from anneal.onnx.execute import fail, node
from anneal.onnx.ops import attention as main
from anneal.onnx.ops.attention import ACTIVATIONS, attend, heads_of, rotated, scored, together, visible
from anneal.onnx.ops.elementwise import Array, Floats, MaybeTensor, Numbers, axis_of, iota, plus, whole
from anneal.onnx.ops.indexing import GatherND, TensorScatter
from anneal.onnx.ops.quantised import exact_matmul
from anneal.onnx.ops.shapes import Pad, Range, Trilu
from anneal.onnx.ops.training import LayerNormalization, RMSNormalization
from anneal.onnx.ops.windows import MaxPool, Windows, convolved, windows_of
from anneal.onnx.registry import also, op, rows
from anneal.tensor import Tensor

# -- activations ------------------------------------------------------------------------------------------------------

rows(
    {
        "Gelu": lambda x: x.gelu(),
        "BiasGelu": lambda x, bias: (x + bias).gelu(),
        "FastGelu": lambda x, bias=None: plus(x, bias).gelu("tanh"),
        "QuickGelu": lambda x, *, alpha=1.702: x * (x * alpha).sigmoid(),
        "BiasAdd": lambda x, bias, skip: x + bias + skip,
        "ScaledSiLU": lambda x, scale=None, *, alpha=1.0: (x * alpha if scale is None else x * scale).silu(),
        "GemmFastGelu": lambda x, weight, bias=None: plus(x.matmul(weight), bias).gelu("tanh"),
        "MatMulInteger16": lambda a, b: exact_matmul(a.int(), b.int()),
        # the padding and the scale concern gradients alone
        "TorchEmbedding": lambda weight, index, padding=None, scale=None: weight.rows(index.int()),
    }
)


@op
def BiasSplitGelu(x: Tensor, bias: Tensor) -> Tensor:
    """The first half of the last axis of a sum, times gelu of the second."""
    line, gate = (x + bias).chunk(2, -1)
    return line * gate.gelu()


@op
def BiasSoftmax(x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    """softmax of a sum over the axes from `axis` on; of the axes before it a bias has the last, or the first."""
    first = axis_of(axis, x.ndim)
    if not is_inner_broadcast and bias.ndim == x.ndim - 1:
        bias = bias.unsqueeze(first - 1)
    return (x + bias).flatten(first).softmax(-1).reshape(*x.shape)


def _activated(y: Tensor, activation: str, parameters: Sequence[float]) -> Tensor:
    """y after the activation that is fused into the operator."""
    if not activation:
        return y
    if activation == "Clip":
        low, high = parameters or (None, None)
        return y.clamp(low, high)
    if activation.lower() not in ACTIVATIONS:
        raise fail(f"activation {activation!r} is not known")
    function, *defaults = ACTIVATIONS[activation.lower()]
    given = list(parameters)[: len(defaults)]
    return function(y, *given, *defaults[len(given) :])  # type: ignore[no-any-return]


# -- products ---------------------------------------------------------------------------------------------------------


@op("FusedMatMul", "TransposeMatMul")
def fused_matmul(
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


@op
def FusedGemm(
    a: Tensor,
    b: Tensor,
    c: MaybeTensor,
    *,
    activation: str = "",
    activation_alpha: float | None,
    activation_beta: float | None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """An activation of alpha * A @ B + beta * C."""
    out = plus((a.T if transA else a).matmul(b.T if transB else b) * alpha, None if c is None else c * beta)
    return _activated(out, activation, [p for p in (activation_alpha, activation_beta) if p is not None])


@op
def FusedConv(
    x: Tensor,
    weight: Tensor,
    bias: MaybeTensor,
    z: MaybeTensor,
    *,
    activation: str = "",
    activation_params: Floats,
    group: int = 1,
    how: Windows,
) -> Tensor:
    """An activation of a convolution, to which another value may be added first."""
    y = convolved(x, weight, bias, windows_of(x, weight, how), group)
    return _activated(plus(y, z), activation, activation_params or ())


# -- norms ------------------------------------------------------------------------------------------------------------


def _of_sum(total: Tensor, norm: Callable[..., Tensor], *weights: Any) -> Any:
    """The norm of the rows of a sum; the sum is the fourth output."""
    if node.wants(1) or node.wants(2):
        raise fail("the outputs mean and inv_std_var are not computed", "leave them off")
    return norm(total, total.shape[-1], *weights), None, None, total


rows(
    {
        "SkipLayerNormalization": lambda x, skip, gamma, beta=None, bias=None, *, epsilon=1e-12: _of_sum(
            plus(x + skip, bias), F.layer_norm, gamma, beta, epsilon
        ),
        "SkipSimplifiedLayerNormalization": lambda x, skip, gamma, bias=None, *, epsilon=1e-12: _of_sum(
            plus(x + skip, bias), F.rms_norm, gamma, epsilon
        ),
    }
)
# onnxruntime's name in ai.onnx for RMSNormalization
also(RMSNormalization, "SimplifiedLayerNormalization", domain="", axis=-1, epsilon=1e-5, stash_type=1)
also(LayerNormalization, axis=-1, epsilon=1e-5, stash_type=1)


@op
def GroupNorm(
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


@op
def EmbedLayerNormalization(
    ids: Tensor,
    segments: MaybeTensor,
    words: Tensor,
    positions: Tensor,
    segment_rows: MaybeTensor,
    gamma: Tensor,
    beta: Tensor,
    mask: MaybeTensor,
    position_ids: MaybeTensor,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:
    """The layer norm of the sum of rows of words, positions and segments, and how many places of a mask are set."""
    place = positions[: ids.shape[1]].unsqueeze(0) if position_ids is None else positions.rows(position_ids.int())
    total = words.rows(ids.int()) + place
    if segments is not None and segment_rows is not None:
        total = total + segment_rows.rows(segments.int())
    y = F.layer_norm(total, total.shape[-1], gamma, beta, epsilon)
    counts = ids.new_zeros(ids.shape[0], dtype="int32") if mask is None else mask.int().sum(1)
    return y, counts, total


# -- others under a name of their own ---------------------------------------------------------------------------------


@op
def CDist(a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """The distances, or their squares, of all pairs of rows."""
    squares = (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1)
    return squares if metric == "sqeuclidean" else squares.sqrt()


@op
def IsAllFinite(*xs: Tensor, isinf_only: int = 0, isnan_only: int = 0) -> Tensor:
    """True if no element of any input is infinite or nan."""
    bad = [x.isinf() if isinf_only else x.isnan() if isnan_only else x.isfinite().logical_not() for x in xs]
    return reduce(Tensor.bitwise_and, [b.any().logical_not() for b in bad])


@op(passes=MaxPool)
def NhwcMaxPool(x: Tensor, **how: Any) -> Any:
    """MaxPool of images whose channels are the last axis."""
    return MaxPool(x.movedim(-1, 1), **how).movedim(1, -1)


@op
def ExpandDims(x: Tensor, axis: Array) -> Tensor:
    """A further axis of size 1."""
    return x.unsqueeze(whole(axis))


also(GatherND)
also(Pad, mode="constant")
also(Trilu, upper=1)
also(Range)


class Heads(NamedTuple):
    """The attributes of attention with masks."""

    mask_filter_value: float = -10000.0
    num_heads: int = 1
    scale: float = 0.0
    unidirectional: int = 0


def _joint_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: MaybeTensor,
    bias: MaybeTensor,
    past: tuple[Tensor, Tensor] | None,
    how: Heads,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of heads after a cache; what a mask hides gets `mask_filter_value` added, not minus infinity."""
    before = 0
    if past is not None:
        before = past[0].shape[2]
        k, v = Tensor.cat([past[0], k], dim=2), Tensor.cat([past[1], v], dim=2)
    total = k.shape[2]
    if mask is not None:
        bias = plus(_hidden(mask, q, total).where(how.mask_filter_value, q.new_zeros(1)), bias)
    allowed = None
    if how.unidirectional and (before or bias is not None):
        allowed = iota(q, total, 3, 4) <= iota(q, q.shape[2], 2, 4) + before
    plain = bool(how.unidirectional) and allowed is None
    return together(attend(q, k, v, allowed, bias, how.scale or None, causal=plain, guarded=False)), k, v


def _hidden(mask: Tensor, q: Tensor, total: int) -> Tensor:
    """The keys that a mask hides: lengths (batch,), or zeros of (batch, keys), (batch, queries, keys) or of four
    axes.
    """
    key, batch, mask = iota(q, total, 3, 4), q.shape[0], mask.int()
    if mask.ndim == 1 and mask.shape[0] == batch:
        return key >= mask.reshape(-1, 1, 1, 1)
    if mask.ndim == 1 and mask.shape[0] == 2 * batch:
        end, start = mask[:batch].reshape(-1, 1, 1, 1), mask[batch:].reshape(-1, 1, 1, 1)
        return (key >= end) | (key < start)
    if mask.ndim == 2 and mask.shape == (batch, total):
        return mask.reshape(batch, 1, 1, total) == 0
    if mask.ndim == 3:
        return mask.unsqueeze(1) == 0
    if mask.ndim == 4:
        return mask[:, :, total - q.shape[2] : total, :total] == 0
    raise fail(f"a mask of shape {tuple(mask.shape)}")


@op
def Attention(
    x: Tensor,
    weights: Tensor,
    bias: MaybeTensor,
    mask: MaybeTensor,
    past: MaybeTensor,
    attention_bias: MaybeTensor,
    *,
    qkv_hidden_sizes: Numbers,
    how: Heads,
) -> Any:
    """Self-attention with its projection: the weights of queries, keys and values side by side."""
    widths = list(qkv_hidden_sizes or [weights.shape[1] // 3] * 3)
    return self_attention(plus(x.matmul(weights), bias), widths, mask, attention_bias, past, how)


def self_attention(
    joined: Tensor, widths: list[int], mask: MaybeTensor, bias: MaybeTensor, past: MaybeTensor, how: Heads
) -> Any:
    """Attention of queries, keys and values of these widths, which lie side by side, and the cache if it is wanted."""
    q, k, v = [heads_of(p, how.num_heads) for p in joined.split(widths, dim=2)]
    y, k, v = _joint_attention(q, k, v, mask, bias, None if past is None else (past[0], past[1]), how)
    return (y, Tensor.stack([k, v])) if node.wants(1) else y


@op
def MultiHeadAttention(
    query: Tensor,
    key: MaybeTensor,
    value: MaybeTensor,
    bias: MaybeTensor,
    mask: MaybeTensor,
    attention_bias: MaybeTensor,
    past_key: MaybeTensor,
    past_value: MaybeTensor,
    *,
    how: Heads,
) -> Any:
    """Attention of projected queries, keys and values, in one value of five axes or apart."""
    if query.ndim == 5:
        q, k, v = [x.transpose(1, 2) for x in query.unbind(3)]
    elif key is not None and key.ndim == 5:
        q, k, v = heads_of(query, how.num_heads), *[x.transpose(1, 2) for x in key.unbind(3)]
    elif key is not None and value is not None:
        q = heads_of(query, how.num_heads)
        k, v = [x if x.ndim == 4 else heads_of(x, how.num_heads) for x in (key, value)]
    else:
        raise fail("the keys or the values are missing")
    if bias is not None:
        width = q.shape[1] * q.shape[3]
        rows = [bias[:width], bias[width : 2 * width], bias[2 * width :]]
        q, k, v = [x + r.reshape(1, x.shape[1], 1, -1) for x, r in zip((q, k, v), rows)]
    past = None if past_key is None or past_value is None else (past_key, past_value)
    y, k, v = _joint_attention(q, k, v, mask, attention_bias, past, how)
    return y, k, v


@op
def GroupQueryAttention(
    query: Tensor,
    key: MaybeTensor,
    value: MaybeTensor,
    past_key: MaybeTensor,
    past_value: MaybeTensor,
    seqlens_k: Tensor,
    total_sequence_length: Array,
    cos_cache: MaybeTensor,
    sin_cache: MaybeTensor,
    position_ids: MaybeTensor,
    attention_bias: MaybeTensor,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
) -> Any:
    """Causal attention with fewer heads of keys, rotary positions and a cache with a length for each sample."""
    if key is None or value is None:
        size = query.shape[2] // (num_heads + 2 * kv_num_heads)
        query, key, value = query.split([num_heads * size, kv_num_heads * size, kv_num_heads * size], dim=2)
    q, k, v = heads_of(query, num_heads), heads_of(key, kv_num_heads), heads_of(value, kv_num_heads)
    length, total = q.shape[2], whole(total_sequence_length)
    # Keys of each sample before this call's: none in the first one, whatever is padded.
    first = past_key is None or total == length
    ends = seqlens_k.int().reshape(-1)
    starts = ends.zeros_like() if first else ends + 1 - length
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise fail("do_rotary=1 without cos_cache and sin_cache")
        places = starts.reshape(-1, 1) + iota(q, length, 1, 2) if position_ids is None else position_ids
        cos, sin = [cache.rows(places.int()).unsqueeze(1) for cache in (cos_cache, sin_cache)]
        q, k = [rotated(x, cos, sin, rotary_interleaved) for x in (q, k)]
    if past_key is not None and past_value is not None:
        room = max(total, past_key.shape[2])
        k, v = [_written(old, new, starts, room) for old, new in ((past_key, k), (past_value, v))]
    left = local_window_size - 1 if local_window_size > 0 else -1
    allowed = visible(q, k.shape[2], starts.reshape(-1, 1, 1, 1), True, left, -1)
    bias = attention_bias
    if bias is not None and bias.shape[-1] < k.shape[2]:
        bias = bias.pad([(0, 0)] * (bias.ndim - 1) + [(0, k.shape[2] - bias.shape[-1])])
    if softcap:
        y, _ = scored(q, k, v, allowed, bias, scale or None, softcap, None, 0)
    else:
        y = attend(q, k, v, allowed, bias, scale or None, guarded=False)
    return together(y), k, v


def _written(cache: Tensor, new: Tensor, starts: Tensor, room: int) -> Any:
    """A cache of `room` positions with new ones written from each sample's start on."""
    more = room - cache.shape[2]
    cache = cache.pad(((0, 0), (0, 0), (0, more), (0, 0))) if more else cache
    return TensorScatter(cache, new, starts, axis=2, mode="linear")


@op
def RotaryEmbedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Any:
    """The first features of each head turned by the angles of their positions, which may be told by the first alone."""
    if is_packed_batching or scale != 1.0:
        raise fail("packed batches and a scale are not computed")
    flat, places, width = x.ndim == 3, position_ids.int(), 2 * cos_cache.shape[-1]
    if places.ndim == 1:
        length = x.shape[1 if flat else 2]
        places = (places.reshape(1, 1) + iota(x, length, 1, 2)).expand(x.shape[0], length)
    how = {"num_heads": num_heads or x.shape[-1] // width, "rotary_embedding_dim": width, "interleaved": interleaved}
    return main.RotaryEmbedding(x, cos_cache, sin_cache, places, **how)
