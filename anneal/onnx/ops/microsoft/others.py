"""com.microsoft: operators of older exporters and diffusion models, and words of texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import regex

import anneal.tensor.functional as F
from anneal.onnx.execute import fail, node
from anneal.onnx.ops.control import PATIENCE, filled, text_of
from anneal.onnx.ops.elementwise import Array, MaybeArray, MaybeTensor, Texts, Value, ints, plus
from anneal.onnx.ops.images import GridSample
from anneal.onnx.ops.indexing import Unique
from anneal.onnx.ops.microsoft.layers import FusedConv, GroupNorm
from anneal.onnx.ops.windows import ConvTranspose, Windows
from anneal.onnx.registry import also, op
from anneal.ops import sampled
from anneal.tensor import Tensor


@op("NhwcConv", "NhwcFusedConv", passes=FusedConv)
def nhwc_conv(x: Tensor, weight: Tensor, bias: MaybeTensor, z: MaybeTensor, **how: Any) -> Any:
    """FusedConv of images and kernels whose channels are the last axis."""
    other = None if z is None else z.movedim(-1, 1)
    return FusedConv(x.movedim(-1, 1), weight.movedim(-1, 1), bias, other, **how).movedim(1, -1)


@op(passes=ConvTranspose)
def ConvTransposeWithDynamicPads(
    x: Tensor, weight: Tensor, pads: MaybeArray, bias: MaybeTensor, *, how: Windows, **more: Any
) -> Any:
    """ConvTranspose whose pads are an input."""
    how = how._replace(pads=None if pads is None else ints(pads))
    return ConvTranspose(x, weight, bias, how=how, **more)


also(GridSample, align_corners=0, mode="bilinear", padding_mode="zeros")


@op
def CropAndResize(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    crop_size: Array,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Tensor:
    """Regions of images, whose corners are parts of the image from 0 to 1, brought to one size."""
    count = rois.shape[0]
    images = x.rows(batch_indices.int().reshape(-1))
    places = []
    inside: list[Tensor] = []
    sizes = ints(crop_size)
    for i, (n, m) in enumerate(zip(x.shape[2:], sizes, strict=True)):
        low, high = rois[:, i : i + 1] * (n - 1), rois[:, i + 2 : i + 3] * (n - 1)
        steps = node.constant(np.arange(m, dtype=np.float32).reshape(1, -1))
        at = low + steps * ((high - low) / (m - 1)) if m > 1 else (low + high) * 0.5
        at = at.reshape(count, *[(m, 1), (1, m)][i]).expand(count, *sizes)
        inside.append((at >= 0) & (at <= n - 1))
        places.append((at if mode == "bilinear" else (at + 0.5).floor()).reshape(count, -1))
    y = sampled(images, places, mode, "border", True).reshape(count, x.shape[1], *sizes)
    return (inside[0] & inside[1]).unsqueeze(1).where(y, extrapolation_value)


@op(passes=GroupNorm)
def SkipGroupNorm(
    x: Tensor, gamma: Tensor, beta: Tensor, skip: Tensor, bias: MaybeTensor, *, channels_last: int = 1, **how: Any
) -> Any:
    """GroupNorm of a sum, which is the second output."""
    if skip.ndim == 2:
        skip = skip.reshape(skip.shape[0], 1, 1, -1) if channels_last else skip.reshape(*skip.shape, 1, 1)
    total = plus(x + skip, bias if bias is None or channels_last else bias.reshape(-1, 1, 1))
    return GroupNorm(total, gamma, beta, channels_last=channels_last, **how), total


# -- rows and windows of memory ---------------------------------------------------------------------------------------


# windows along an axis; what is in them is a new last axis
op("UnfoldTensor")(lambda x, *, dim=-1, size, step=1: x.unfold(dim, size, step))


@op("Unique")
def unique_in_order(x: Value) -> tuple[Array, ...]:
    """The different elements in the order in which they come, where each stands among them, and how many there are."""
    found, _, inverse, counts = Unique(x, sorted=0)
    return found, inverse, counts


@op
def NGramRepeatBlock(ids: Value, scores: Value, *, ngram_size: int) -> Array:
    """Scores, minus infinity for each token that would repeat a sequence of `ngram_size` tokens."""
    rows, out = node.host(ids, "its tokens are compared"), np.array(node.host(scores, "its tokens are compared"))
    for row, line in zip(rows.tolist(), out, strict=True):
        last = row[len(row) - ngram_size + 1 :]
        for i in range(len(row) - ngram_size + 1):
            if row[i : i + ngram_size - 1] == last:
                line[row[i + ngram_size - 1]] = -np.inf
    return out


# -- products ---------------------------------------------------------------------------------------------------------


@op("ComplexMul", "ComplexMulConj")
def complex_mul(a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers, which are pairs of the last axis; with Conj of the second's conjugates."""
    (ar, ai), (br, bi) = (a[..., 0], a[..., 1]), (b[..., 0], b[..., 1])
    bi = bi * (-1 if node.op == "ComplexMulConj" else 1)
    return Tensor.stack([ar * br - ai * bi, ar * bi + ai * br], dim=-1)


@op
def Inverse(x: Value) -> Array:
    """The inverses of square matrices, the last two axes, by LAPACK on the host."""
    array = node.host(x, "an inverse is computed on the host")
    return np.asarray(np.linalg.inv(array.astype(np.float64)).astype(array.dtype))


@op
def DynamicTimeWarping(x: Value) -> Array:
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


@op
def BiasDropout(
    x: Tensor, bias: Tensor, residual: MaybeTensor, ratio: MaybeTensor, training_mode: MaybeTensor
) -> Tensor:
    """x + bias + residual: nothing is dropped where nothing is trained."""
    if node.wants(1):
        raise fail("its mask is not computed", "export the model for inference")
    return plus(x + bias, residual)


@op
def GatedRMSNorm(x: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = 1e-5) -> Tensor:
    """The root mean square norm of each piece as long as the scale, times an activation of the gate."""
    width = scale.shape[0]
    y = F.rms_norm(x.reshape(*x.shape[:-1], -1, width).float(), width, scale.float(), epsilon).reshape(*x.shape)
    z = gate.float()
    return (y * (z.sigmoid() if activation == "sigmoid" else z.silu())).cast(x.dtype)


@op
def RelativePositionBias(
    table: Tensor, query_length: Array, key_length: Array, *, is_bidirectional: int = 0, max_distance: int
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
    return table.rows(node.constant(place.astype(np.int32))).permute(2, 0, 1).unsqueeze(0)


@op
def Tokenizer(
    x: Value, *, mark: int, mincharnum: int, pad_value: str, separators: Texts, tokenexp: str | None
) -> Array:
    """The words of each text, filled up to one length: what a pattern matches, what stands between separators (which
    are patterns), or, for the separator "", the single characters. `mark` puts two marks around them.
    """
    texts = text_of(x)
    if (tokenexp is None) == (separators is None):
        raise fail("has separators or tokenexp, one of them")
    try:
        rows = [list(_words(t, separators, tokenexp, mincharnum)) for t in texts.reshape(-1)]
    except regex.error as e:
        raise fail(f"its pattern is not valid: {e}") from e
    except TimeoutError:
        raise fail(f"its pattern takes more than {PATIENCE:g} s for a text", "simplify it") from None
    if mark:
        rows = [["\x02", *row, "\x03"] for row in rows]
    return filled(rows, pad_value, texts.shape)


def _words(text: str, separators: Texts, pattern: str | None, least: int) -> Iterator[str]:
    if pattern is not None:
        found = [m.group() for m in regex.finditer(pattern, text, timeout=PATIENCE)]
    elif list(separators or ()) == [""]:
        found = list(text)
    else:
        found = [text]
        for separator in separators or ():
            found = [part for t in found for part in _parts(t, separator)]
    return (word for word in found if word and len(word) >= least)


def _parts(text: str, separator: str) -> Iterator[str]:
    begin = 0
    for m in regex.finditer(separator, text, timeout=PATIENCE):
        yield text[begin : m.start()]
        begin = m.end()
    yield text[begin:]


@op
def MurmurHash3(x: Value, *, positive: int = 1, seed: int = 0) -> Array:
    """MurmurHash3 of 32 bits of each element: of a text's UTF-8, of a number's bytes."""
    array = node.host(x, "its bytes are hashed on the host")
    texts = array.dtype.kind in "OUS"
    data = [str(v).encode() if texts else v.tobytes() for v in array.reshape(-1)]
    found = np.array([_murmur(d, seed % 2**32) for d in data], np.uint32).reshape(array.shape)
    return found if positive else found.view(np.int32)


def _murmur(data: bytes, h: int) -> int:
    """Austin Appleby's MurmurHash3_x86_32."""
    mask, whole = 2**32 - 1, len(data) // 4 * 4

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & mask
        return (k << 15 | k >> 17) * 0x1B873593 & mask

    for i in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[i : i + 4], "little"))
        h = (h << 13 | h >> 19) * 5 + 0xE6546B64 & mask
    if whole < len(data):
        h ^= mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16
