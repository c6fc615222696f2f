"""Attention with several heads as torch computes it, from its weights."""

from __future__ import annotations

import math
from typing import NamedTuple

from anneal.errors import ShapeError
from anneal.ops import function
from anneal.tensor import Tensor, functional as F


def _projected(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor | None, bias: Tensor | None, own: tuple[Tensor | None, ...] | None
) -> list[Tensor]:
    """Queries, keys and values, projected by one weight for all three or by one each."""
    width = q.shape[-1]
    if own is None:
        assert weight is not None
        if q is k and k is v:
            three = F.linear(q, weight, bias)
            return [three[..., i * width : (i + 1) * width] for i in range(3)]
        weights: list[Tensor] = [weight[i * width : (i + 1) * width] for i in range(3)]
    else:
        weights = [w for w in own if w is not None]
    biases = [None] * 3 if bias is None else [bias[i * width : (i + 1) * width] for i in range(3)]
    return [F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]


def _as_added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask whose True leaves out, as numbers that are added to the scores."""
    if mask is None:
        return None
    if mask.dtype.name == "bool":
        return mask.where(Tensor(-math.inf, dtype=like.dtype, device=like.device), 0.0)
    return mask.cast(like.dtype)


@function
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The result of `nn.MultiheadAttention`, computed from its weights: query (l, batch, e), key and value (s, batch,
    ...).

    Without a batch axis all three have two axes. Masks are bool (True leaves a position out) or are added to the
    scores: `attn_mask` (l, s) or (batch * num_heads, l, s), `key_padding_mask` (batch, s). `is_causal` is a hint in
    torch and needs `attn_mask`; here it makes one if there is none.

    Returns the result and, with `need_weights`, the weights (batch, l, s), or (batch, heads, l, s) not averaged.

    Raises ShapeError for sizes that do not fit.

    >>> x, w = Tensor.ones(3, 1, 4), Tensor.ones(12, 4)
    >>> y, weights = multi_head_attention_forward(x, x, x, 4, 2, w, None, None, None, False, 0.0, w[:4], None)
    >>> y.shape, weights.shape
    ((3, 1, 4), (1, 3, 3))
    """
    _check_query(query, embed_dim_to_check, num_heads)
    own = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    projection = (in_proj_weight, in_proj_bias, own)
    ends = _Ends(bias_k, bias_v, static_k, static_v, add_zero_attn)
    masks = _Masks(attn_mask, key_padding_mask, is_causal)
    p = dropout_p if training else 0.0
    mixed, weights = _attended(query, key, value, num_heads, projection, ends, masks, p, need_weights)
    out = F.linear(mixed, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(axis=1)
    if query.ndim == 2:
        return out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


class _Ends(NamedTuple):
    """Keys and values besides those that are projected."""

    bias_k: Tensor | None
    bias_v: Tensor | None
    static_k: Tensor | None
    static_v: Tensor | None
    zero: bool


class _Masks(NamedTuple):
    attn: Tensor | None
    padding: Tensor | None
    is_causal: bool


def _check_query(query: Tensor, width: int, heads: int) -> None:
    if query.ndim not in (2, 3) or query.shape[-1] != width or width % heads:
        raise ShapeError(
            f"multi_head_attention_forward: query is (time, batch, {width}) or (time, {width}), and {heads} heads "
            f"divide that width; it has shape {query.shape}"
        )


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    count: int,
    projection: tuple[Tensor | None, Tensor | None, tuple[Tensor | None, ...] | None],
    ends: _Ends,
    masks: _Masks,
    p: float,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """The values mixed, (l, batch, width), and the weights of each head if they are asked for."""
    padding = masks.padding
    if query.ndim == 2:
        same = query is key, key is value
        query = query.unsqueeze(1)
        key = query if same[0] else key.unsqueeze(1)
        value = key if same[1] else value.unsqueeze(1)
        padding = None if padding is None else padding.unsqueeze(0)
    l, batch, width = query.shape
    q, k, v = _projected(query, key, value, *projection)
    if ends.bias_k is not None and ends.bias_v is not None:
        k = Tensor.cat([k, ends.bias_k.expand(1, batch, width)], dim=0)
        v = Tensor.cat([v, ends.bias_v.expand(1, batch, width)], dim=0)
    head = width // count
    heads = [x.reshape(x.shape[0], batch, count, head).permute(1, 2, 0, 3) for x in (q, k, v)]
    for i, static in ((1, ends.static_k), (2, ends.static_v)):
        if static is not None:
            heads[i] = static.reshape(batch, count, static.shape[1], head)
    if ends.zero:
        zeros = Tensor.zeros(batch, count, 1, head, dtype=q.dtype, device=q.device)
        heads[1:] = [Tensor.cat([x, zeros], dim=2) for x in heads[1:]]
    mask = _masks(masks.attn, padding, (batch, count, l, heads[1].shape[2]), masks.is_causal, q)
    weights = None
    if need_weights:
        scores = heads[0] @ heads[1].transpose(-2, -1) / math.sqrt(head)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, p) if p else weights
        mixed = weights @ heads[2]
    else:
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask, p)
    return mixed.permute(2, 0, 1, 3).reshape(l, batch, width), weights


def _masks(
    attn_mask: Tensor | None, padding: Tensor | None, shape: tuple[int, int, int, int], is_causal: bool, like: Tensor
) -> Tensor | None:
    """Both masks as one that is added to the scores (batch, heads, l, s)."""
    batch, heads, l, s = shape
    if is_causal and attn_mask is None:
        attn_mask = Tensor.ones(l, s, dtype="bool", device=like.device).triu(1)
    mask = _as_added(attn_mask, like)
    if mask is not None:
        if mask.ndim == 3:
            mask = mask.reshape(batch, heads, *mask.shape[1:])
        if mask.shape[-2] != l or mask.shape[-1] > s:
            raise ShapeError(
                f"multi_head_attention_forward: attn_mask of shape {mask.shape} does not fit scores of {shape}"
            )
        mask = F.pad(mask, (0, s - mask.shape[-1])) if mask.shape[-1] < s else mask
    more = _as_added(padding, like)
    if more is not None:
        if more.shape[0] != batch or more.shape[1] > s:
            raise ShapeError(
                f"multi_head_attention_forward: key_padding_mask of shape {more.shape} does not fit scores of {shape}"
            )
        more = F.pad(more, (0, s - more.shape[1])) if more.shape[1] < s else more
        more = more.reshape(batch, 1, 1, s)
        mask = more if mask is None else mask + more
    return mask
