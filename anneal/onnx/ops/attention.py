"""Attention and related operators: rotary positions, linear attention, attention with functions of its scores."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import anneal.tensor.functional as F
from anneal.onnx.execute import NodeCall
from anneal.onnx.graph import Graph
from anneal.onnx.ops._values import iota
from anneal.onnx.registry import op
from anneal.onnx.values import element_name
from anneal.tensor import Tensor, dtypes


def heads_of(x: Tensor, heads: int) -> Tensor:
    """(batch, positions, heads * size) to (batch, heads, positions, size)."""
    n, length, width = x.shape
    return x.reshape(n, length, heads, width // heads).transpose(1, 2)


def together(x: Tensor) -> Tensor:
    """(batch, heads, positions, size) to (batch, positions, heads * size)."""
    n, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(n, length, heads * width)


# -- attention --------------------------------------------------------------------------------------------------------


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    *,
    causal: bool = False,
    guarded: bool = True,
) -> Tensor:
    """softmax(q k^T * scale + bias) v over what is allowed; heads of k and v are repeated to those of q.

    `causal` stands for a mask of position i seeing 0..i, and nothing else is masked. A row of which nothing is allowed
    gives zeros where `guarded`.
    """
    mask = _joined(allowed, bias)
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=True)
    if mask is None or not guarded:
        return y
    return (_nothing(allowed, bias)).where(y.zeros_like(), y)


def _joined(allowed: Tensor | None, bias: Tensor | None) -> Tensor | None:
    if allowed is None or bias is None:
        return allowed if bias is None else bias
    return allowed.where(bias, -math.inf)


def _nothing(allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """True for each row that has no position to attend to."""
    mask = _joined(allowed, bias)
    assert mask is not None
    if bias is None:
        return mask.any(-1, keepdim=True).logical_not()
    return mask.amax(-1, keepdim=True) == -math.inf


def scored(
    node: NodeCall,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    softcap: float,
    precision: int | None,
    mode: int,
) -> tuple[Tensor, Tensor]:
    """Attention step by step, and the scores after the step `mode`: 0 product, 1 softcap, 2 mask, 3 softmax."""
    if q.shape[1] != k.shape[1]:
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = (q * root).matmul((k * root).transpose(-1, -2))
    stages = [scores]
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    stages.append(scores)
    mask = _joined(allowed, bias)
    if mask is not None:
        scores = allowed.where(scores, -math.inf) if bias is None and allowed is not None else scores + mask
    stages.append(scores)
    if precision:
        scores = scores.cast(_float_name(node, precision))
    weights = scores.softmax(-1)
    if mask is not None:
        weights = _nothing(allowed, bias).where(weights.zeros_like(), weights)
    weights = weights.cast(q.dtype)
    stages.append(weights)
    return weights.matmul(v.cast(q.dtype)), stages[mode]


def _float_name(node: NodeCall, code: int) -> str:
    name = element_name(code)
    if not name.startswith(("float", "bfloat")):
        raise node.fail(f"softmax_precision {code} is no float type")
    return name


def _visible(q: Tensor, total: int, offset: Tensor | int, causal: bool, left: int, right: int) -> Tensor | None:
    """The keys that each query may see: up to its own position, and within a window about it."""
    position = iota(q, q.shape[2], 2, 4) + offset
    key = iota(q, total, 3, 4)
    parts = []
    if causal:
        parts.append(key <= position)
    if left >= 0:
        parts.append(key >= position - left)
    if right >= 0:
        parts.append(key <= position + right)
    return _all_of(parts)


def _all_of(parts: list[Any]) -> Tensor | None:
    return reduce(Tensor.bitwise_and, parts) if parts else None


def _mask(mask: Tensor, total: int) -> tuple[Tensor | None, Tensor | None]:
    """A mask as what is added to the scores, or as what takes part; one that is too short hides what is beyond it."""
    short = total - mask.shape[-1]
    sides = [(0, 0)] * (mask.ndim - 1) + [(0, short)]
    if mask.dtype.name == "bool":
        return None, mask.pad(sides) if short > 0 else mask
    return mask.pad(sides, value=-math.inf) if short > 0 else mask, None


@op("Attention")
def attention(
    node: NodeCall,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Any:
    """Scaled dot product attention with masks and a cache of keys and values.

    `nonpad_kv_seqlen`, how many keys of each sample count, came with version 24, as did masks that are too short;
    windows about each position with version 25.
    """
    flat = q.ndim == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise node.fail("q_num_heads and kv_num_heads are missing, which inputs of three axes need")
        q, k, v = heads_of(q, q_num_heads), heads_of(k, kv_num_heads), heads_of(v, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = Tensor.cat([past_key, k], dim=2), Tensor.cat([past_value, v], dim=2)
    total = k.shape[2]
    bias, allowed = (None, None) if mask is None else _mask(mask, total)
    plain = mask is None and nonpad_kv_seqlen is None and past == 0 and left_window_size < 0 and right_window_size < 0
    simple = not softcap and not node.wants(3) and not _other_precision(node, q, softmax_precision)
    if not plain or not simple:
        offset: Any = past
        lengths = None if nonpad_kv_seqlen is None else nonpad_kv_seqlen.cast(dtypes.int32).reshape(-1, 1, 1, 1)
        if lengths is not None and past_key is None:
            offset = lengths - q.shape[2]
        padded = None if lengths is None else iota(q, total, 3, 4) < lengths
        seen = _visible(q, total, offset, bool(is_causal), left_window_size, right_window_size)
        allowed = _all_of([p for p in (allowed, seen, padded) if p is not None])
    stage = None
    if simple:
        y = attend(q, k, v, allowed, bias, scale, causal=plain and bool(is_causal))
    else:
        y, stage = scored(node, q, k, v, allowed, bias, scale, softcap, softmax_precision, qk_matmul_output_mode)
    y = y.cast(q.dtype)
    outputs = (together(y) if flat else y, k, v, stage)
    return outputs[: node.outputs]


def _other_precision(node: NodeCall, q: Tensor, code: int | None) -> bool:
    """True if softmax is asked for in a type other than that of the scores, or float32, which it always has."""
    return bool(code) and _float_name(node, code or 0) not in (q.dtype.name, "float32")


@op("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    node: NodeCall,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    prob_mod: Graph | None = None,
    scale: float | None = None,
    score_mod: Graph | None = None,
    softmax_precision: int | None = None,
) -> Tensor:
    """Attention whose scores and weights go through subgraphs."""
    if q.shape[1] != k.shape[1]:
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    name = _float_name(node, softmax_precision) if softmax_precision else "float64" if q.dtype.bits == 64 else "float32"
    scores = q.matmul(k.transpose(-1, -2)).cast(name)
    scores = scores * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = node.tensor(node.run(score_mod, scores)[0])
    weights = scores.softmax(-1)
    if prob_mod is not None:
        weights = node.tensor(node.run(prob_mod, weights)[0])
    return weights.cast(v.dtype).matmul(v).cast(q.dtype)


# -- linear attention -------------------------------------------------------------------------------------------------


@op("LinearAttention")
def linear_attention(
    node: NodeCall,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float,
    update_rule: str,
) -> Any:
    """A state of keys times values that each position decays, corrects, adds to and reads, step by step."""
    gated, corrected = update_rule.startswith("gated"), update_rule.endswith("delta")
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise node.fail(f"update_rule is linear, gated, delta or gated_delta, not {update_rule!r}")
    if gated != (decay is not None) or corrected != (beta is not None):
        raise node.fail(f"update_rule {update_rule!r} and the inputs decay and beta do not go together")
    q, k, v = heads_of(query, q_num_heads).float(), heads_of(key, kv_num_heads).float(), heads_of(value, kv_num_heads)
    v = v.float()
    batch, _, length, width = k.shape
    factors = None if decay is None else heads_of(decay, kv_num_heads).float().exp()
    rates = None if beta is None else heads_of(beta, beta.shape[-1]).float()
    if past_state is None:
        state = Tensor.zeros(batch, kv_num_heads, width, v.shape[-1], device=q.device)
    else:
        state = past_state.float()
    outputs = []
    for t in range(length):
        here, new = k[:, :, t].unsqueeze(-1), v[:, :, t].unsqueeze(-2)
        if factors is not None:
            state = state * factors[:, :, t].unsqueeze(-1)
        if rates is not None:
            new = rates[:, :, t].unsqueeze(-1) * (new - (state * here).sum(-2, keepdim=True))
        state = state + here * new
        seen = state.repeat_interleave(q_num_heads // kv_num_heads, 1)
        outputs.append((seen * q[:, :, t].unsqueeze(-1)).sum(-2))
    y = Tensor.stack(outputs, dim=2) * (scale or 1 / math.sqrt(width))
    kept = query.dtype if past_state is None else past_state.dtype
    return together(y).cast(query.dtype), state.cast(kept)


# -- rotary positions -------------------------------------------------------------------------------------------------


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: int) -> Tensor:
    """Pairs of features turned by angles: neighbours if interleaved, else those half the width apart.

    x is (..., width) and cos and sin broadcast to (..., width / 2).
    """
    half = x.shape[-1] // 2
    if interleaved:
        pairs = x.reshape(*x.shape[:-1], half, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        return Tensor.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).reshape(*x.shape)
    a, b = x[..., :half], x[..., half:]
    return Tensor.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@op("RotaryEmbedding")
def rotary_embedding(
    node: NodeCall,
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """The first features of each head turned by the angles of their positions."""
    flat = x.ndim == 3
    if flat and not num_heads:
        raise node.fail("num_heads is missing, which an input of three axes needs")
    data = heads_of(x, num_heads or 1) if flat else x
    width = rotary_embedding_dim or data.shape[-1]
    if position_ids is not None:
        index = position_ids.cast(dtypes.int32)
        cos_cache, sin_cache = cos_cache.rows(index), sin_cache.rows(index)
    cos, sin = cos_cache.unsqueeze(1), sin_cache.unsqueeze(1)
    turned = rotated(data[..., :width], cos, sin, interleaved)
    out = turned if width == data.shape[-1] else Tensor.cat([turned, data[..., width:]], dim=-1)
    return together(out) if flat else out
