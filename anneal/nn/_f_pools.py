"""Pools that return positions, their inverses, and pools of powers; bags of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.errors import ShapeError
from anneal.ops import ValuesIndices, family, function, per_axis
from anneal.tensor import Tensor, functional as F

Sizes = int | Sequence[int]
Outputs = int | Sequence[int | None]
Places = np.ndarray[Any, Any]  # (windows, positions of each): -1 for none

# A window is a list of positions on each axis: plain and adaptive pools differ in these lists alone.


def _picked(x: Tensor, places: Sequence[Places]) -> ValuesIndices:
    """The largest value of each window of the last axes, and where it stands among the elements of these axes."""
    axes = len(places)
    lead = x.shape[: x.ndim - axes]
    at, inside = np.array(0), np.array(True)  # [windows of each axis, positions of each axis]
    for i, p in enumerate(places):
        p = p.reshape([p.shape[0] if j == i else p.shape[1] if j == i + axes else 1 for j in range(2 * axes)])
        at, inside = at * x.shape[len(lead) + i] + p, inside & (p >= 0)
    windows = at.shape[:axes]
    count = math.prod(windows)
    at, inside = np.where(inside, at, 0).astype(np.int32).reshape(count, -1), inside.reshape(count, -1)
    at = np.where(inside, at, np.take_along_axis(at, inside.argmax(1)[:, None], 1))  # the border is the first element
    table = Tensor(at.reshape(-1), device=x.device)
    rows = x.flatten(len(lead)).index_select(-1, table).reshape(*lead, *at.shape)
    if not inside.all():
        low = -math.inf if x.dtype.is_float else x.dtype.min
        rows = Tensor(inside, device=x.device).where(rows, low)
    best = rows.argmax(-1)
    values = rows.gather(-1, best.unsqueeze(-1))
    flat = table[Tensor.arange(count, device=x.device) * rows.shape[-1] + best]
    return ValuesIndices(values.reshape(*lead, *windows), flat.reshape(*lead, *windows))


def _plain(axes: int, x: Tensor, k: Sizes, s: Any, p: Sizes, d: Sizes, ceil: bool) -> Tensor:
    step = None if isinstance(s, (list, tuple)) and not s else s
    return getattr(F, f"max_pool{axes}d")(x, k, step, p, d, ceil)  # type: ignore[no-any-return]


def _indexed(
    name: str,
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> ValuesIndices:
    values = _plain(axes, x, kernel_size, stride, padding, dilation, ceil_mode)
    kernel = per_axis("kernel_size", kernel_size, axes)
    steps = kernel if stride is None or stride in ([], ()) else per_axis("stride", stride, axes)
    rest = per_axis("padding", padding, axes, 0), per_axis("dilation", dilation, axes)
    places = []
    for n, m, k, s, p, d in zip(x.shape[-axes:], values.shape[-axes:], kernel, steps, *rest, strict=True):
        at = np.arange(m)[:, None] * s - p + np.arange(k) * d
        places.append(np.where((at >= 0) & (at < n), at, -1))
    return _picked(x, places)


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = family(
    _indexed,
    "",
    """
    max_pool1d_with_indices:
    `max_pool1d` with `return_indices=True`.

    >>> max_pool1d_with_indices(Tensor.ones(1, 8), 2).indices.flatten().tolist()
    [0, 2, 4, 6]

    max_pool2d_with_indices:
    `max_pool2d` with `return_indices=True`.

    >>> max_pool2d_with_indices(Tensor.ones(1, 1, 8), (1, 2)).indices.flatten().tolist()
    [0, 2, 4, 6]

    max_pool3d_with_indices:
    `max_pool3d` with `return_indices=True`.

    >>> max_pool3d_with_indices(Tensor.ones(1, 1, 1, 8), (1, 1, 2)).indices.flatten().tolist()
    [0, 2, 4, 6]
    """,
)


def _max_pool(
    name: str,
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | ValuesIndices:
    if return_indices:
        return _indexed(name, axes, x, kernel_size, stride, padding, dilation, ceil_mode)
    return _plain(axes, x, kernel_size, stride, padding, dilation, ceil_mode)


max_pool1d, max_pool2d, max_pool3d = family(
    _max_pool,
    "",
    """
    max_pool1d:
    The largest value of each window of the last axis; with `return_indices` also its position.

    Positions count all elements of the last axis, int32. Otherwise as `anneal.tensor.functional.max_pool1d`.

    >>> pair = max_pool1d(Tensor.arange(2.0, 10.0).reshape(1, 8), 2, return_indices=True)
    >>> pair.values.flatten().tolist(), pair.indices.flatten().tolist()
    ([3.0, 5.0, 7.0, 9.0], [1, 3, 5, 7])

    max_pool2d:
    The largest value of each window of the last two axes; with `return_indices` also its position.

    Positions count all elements of the last two axes, int32. Otherwise as `anneal.tensor.functional.max_pool2d`.

    >>> pair = max_pool2d(Tensor.arange(2.0, 10.0).reshape(1, 1, 8), (1, 2), return_indices=True)
    >>> pair.values.flatten().tolist(), pair.indices.flatten().tolist()
    ([3.0, 5.0, 7.0, 9.0], [1, 3, 5, 7])

    max_pool3d:
    The largest value of each window of the last three axes; with `return_indices` also its
    position.

    Positions count all elements of the last three axes, int32. Otherwise as `anneal.tensor.functional.max_pool3d`.

    >>> pair = max_pool3d(Tensor.arange(2.0, 10.0).reshape(1, 1, 1, 8), (1, 1, 2), return_indices=True)
    >>> pair.values.flatten().tolist(), pair.indices.flatten().tolist()
    ([3.0, 5.0, 7.0, 9.0], [1, 3, 5, 7])
    """,
)


def _adaptive(name: str, axes: int, x: Tensor, output_size: Outputs) -> ValuesIndices:
    given = [output_size] * axes if isinstance(output_size, int) or output_size is None else list(output_size)
    if len(given) != axes or x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"{name}: {axes} sizes for the last axes of (batch, channels, ...), not {output_size} for {x.shape}"
        )
    places = []
    for n, m in zip(x.shape[-axes:], given, strict=True):
        count = n if m is None else m
        numbers = np.arange(count)
        starts, ends = numbers * n // count, -(-(numbers + 1) * n // count)
        at = starts[:, None] + np.arange((ends - starts).max())
        places.append(np.where(at < ends[:, None], at, -1))
    return _picked(x, places)


adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = family(
    _adaptive,
    "",
    """
    adaptive_max_pool1d_with_indices:
    `adaptive_max_pool1d` with `return_indices=True`.

    >>> adaptive_max_pool1d_with_indices(Tensor.arange(4.0).reshape(1, 4), 2).indices.flatten().tolist()
    [1, 3]

    adaptive_max_pool2d_with_indices:
    `adaptive_max_pool2d` with `return_indices=True`.

    >>> adaptive_max_pool2d_with_indices(Tensor.arange(4.0).reshape(1, 1, 4), (1, 2)).indices.flatten().tolist()
    [1, 3]

    adaptive_max_pool3d_with_indices:
    `adaptive_max_pool3d` with `return_indices=True`.

    >>> adaptive_max_pool3d_with_indices(Tensor.arange(4.0).reshape(1, 1, 1, 4), (1, 1, 2)).indices.flatten().tolist()
    [1, 3]
    """,
)


def _adaptive_max_pool(
    name: str, axes: int, x: Tensor, output_size: Outputs, return_indices: bool = False
) -> Tensor | ValuesIndices:
    if return_indices:
        return _adaptive(name, axes, x, output_size)
    return getattr(F, name)(x, output_size)  # type: ignore[no-any-return]


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = family(
    _adaptive_max_pool,
    "",
    """
    adaptive_max_pool1d:
    The largest value of as many windows as `output_size` says, over the last axis;
    `return_indices` as for `max_pool1d`.

    >>> pair = adaptive_max_pool1d(Tensor.arange(4.0).reshape(1, 4), 2, True)
    >>> pair.values.flatten().tolist(), pair.indices.flatten().tolist()
    ([1.0, 3.0], [1, 3])

    adaptive_max_pool2d:
    The largest value of as many windows as `output_size` says, over the last two axes;
    `return_indices` as for `max_pool2d`.

    >>> pair = adaptive_max_pool2d(Tensor.arange(4.0).reshape(1, 1, 4), (1, 2), True)
    >>> pair.values.flatten().tolist(), pair.indices.flatten().tolist()
    ([1.0, 3.0], [1, 3])

    adaptive_max_pool3d:
    The largest value of as many windows as `output_size` says, over the last three axes;
    `return_indices` as for `max_pool3d`.

    >>> pair = adaptive_max_pool3d(Tensor.arange(4.0).reshape(1, 1, 1, 4), (1, 1, 2), True)
    >>> pair.values.flatten().tolist(), pair.indices.flatten().tolist()
    ([1.0, 3.0], [1, 3])
    """,
)


# -- back again -------------------------------------------------------------------------------------------------------


def _unpool(
    name: str,
    axes: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    if x.ndim not in (axes + 1, axes + 2) or indices.shape != x.shape:
        raise ShapeError(
            f"{name}: x is (batch, channels, ...) and indices of its shape, not {x.shape} and {indices.shape}"
        )
    kernel = per_axis("kernel_size", kernel_size, axes)
    steps = kernel if stride is None else per_axis("stride", stride, axes)
    borders = per_axis("padding", padding, axes, 0)
    lead, inner = x.shape[: x.ndim - axes], x.shape[x.ndim - axes :]
    plain = tuple([(n - 1) * b - 2 * c + a for n, a, b, c in zip(inner, kernel, steps, borders, strict=True)])
    sizes = plain if output_size is None else tuple(output_size)[-axes:]
    if len(sizes) != axes or any(abs(n - m) >= b for n, m, b in zip(sizes, plain, steps, strict=True)):
        raise ShapeError(f"{name}: output_size {output_size} is further from {plain} than a stride")
    rows = Tensor.zeros(*lead, math.prod(sizes), dtype=x.dtype, device=x.device)
    filled = rows.scatter(-1, indices.flatten(len(lead)), x.flatten(len(lead)))
    return filled.reshape(*lead, *sizes)


max_unpool1d, max_unpool2d, max_unpool3d = family(
    _unpool,
    "",
    """
    max_unpool1d:
    Values back where `max_pool1d` found them, and zeros elsewhere: (batch, channels, ...) or
    (channels, ...).

    `output_size` is the size before the pool, where several would give this x. Raises ShapeError for one too far off.

    >>> pair = max_pool1d(Tensor.arange(4.0).reshape(1, 4), 2, return_indices=True)
    >>> max_unpool1d(*pair, 2).flatten().tolist()
    [0.0, 1.0, 0.0, 3.0]

    max_unpool2d:
    Values back where `max_pool2d` found them, and zeros elsewhere: (batch, channels, ...) or
    (channels, ...).

    `output_size` is the size before the pool, where several would give this x. Raises ShapeError for one too far off.

    >>> pair = max_pool2d(Tensor.arange(4.0).reshape(1, 1, 4), (1, 2), return_indices=True)
    >>> max_unpool2d(*pair, (1, 2)).flatten().tolist()
    [0.0, 1.0, 0.0, 3.0]

    max_unpool3d:
    Values back where `max_pool3d` found them, and zeros elsewhere: (batch, channels, ...) or
    (channels, ...).

    `output_size` is the size before the pool, where several would give this x. Raises ShapeError for one too far off.

    >>> pair = max_pool3d(Tensor.arange(4.0).reshape(1, 1, 1, 4), (1, 1, 2), return_indices=True)
    >>> max_unpool3d(*pair, (1, 1, 2)).flatten().tolist()
    [0.0, 1.0, 0.0, 3.0]
    """,
)


# -- powers -----------------------------------------------------------------------------------------------------------


def _lp_pool(
    name: str,
    axes: int,
    x: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if not norm_type:
        raise ShapeError(f"{name}: norm_type is not 0")
    if math.isinf(norm_type):
        sign = 1 if norm_type > 0 else -1
        return _plain(axes, x.abs() * sign, kernel_size, stride, 0, 1, ceil_mode) * sign
    mean: Tensor = getattr(F, f"avg_pool{axes}d")(x**norm_type, kernel_size, stride, 0, ceil_mode)
    count = math.prod(per_axis("kernel_size", kernel_size, axes))
    return (mean.sign() * mean.abs().relu() * count) ** (1 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = family(
    _lp_pool,
    "single",
    """
    lp_pool1d:
    (sum of x ** norm_type) ** (1 / norm_type) over each window of the last axis.

    >>> lp_pool1d(Tensor([3.0, 4.0]).reshape(1, 1, 2), 2.0, 2).flatten().tolist()
    [5.0]

    lp_pool2d:
    (sum of x ** norm_type) ** (1 / norm_type) over each window of the last two axes.

    >>> lp_pool2d(Tensor([3.0, 4.0]).reshape(1, 1, 1, 2), 2.0, (1, 2)).flatten().tolist()
    [5.0]

    lp_pool3d:
    (sum of x ** norm_type) ** (1 / norm_type) over each window of the last three axes.

    >>> lp_pool3d(Tensor([3.0, 4.0]).reshape(1, 1, 1, 1, 2), 2.0, (1, 1, 2)).flatten().tolist()
    [5.0]
    """,
)


# -- pools of random windows ------------------------------------------------------------------------------------------


def _fractional(
    name: str,
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> ValuesIndices:
    """Windows that begin at random places (Graham, 2014), others for each channel."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}: x is (batch, channels, ...) or (channels, ...), not {x.shape}")
    if (output_size is None) == (output_ratio is None):
        raise ShapeError(f"{name}: give output_size or output_ratio, and not both")
    kernel = per_axis("kernel_size", kernel_size, axes)
    inner = x.shape[x.ndim - axes :]
    if output_ratio is not None:
        ratios = [output_ratio] * axes if isinstance(output_ratio, (int, float)) else output_ratio
        output_size = [int(n * r) for n, r in zip(inner, ratios, strict=True)]
    assert output_size is not None
    out = per_axis("output_size", output_size, axes)
    whole = x if x.ndim == axes + 2 else x.unsqueeze(0)
    lead = whole.shape[:2]
    samples, at = _random_samples, Tensor(0, device=x.device)  # the elements of each window
    if samples is None:
        samples = Tensor.rand(*lead, axes, device=x.device, dtype=x.dtype)
    for i, (n, m, w) in enumerate(zip(inner, out, kernel, strict=True)):
        sample = samples[:, :, 1 - i if axes == 2 else i].unsqueeze(-1)  # torch's places: (w, h), (d, h, w)
        steps = Tensor.arange(m, device=x.device).cast(x.dtype)
        alpha = (n - w) / max(1, m - 1)
        starts = ((steps + sample) * alpha).int() - (sample * alpha).int()
        starts = (steps == m - 1).where(n - w, starts)  # the last window ends at the end
        places = starts.unsqueeze(-1) + Tensor.arange(w, device=x.device)
        at = at * n + places.reshape(*lead, *[1] * i, m, *[1] * (axes - 1), w, *[1] * (axes - 1 - i))
    at = at.flatten(2 + axes)
    rows = whole.flatten(2).gather(-1, at.flatten(2)).reshape(*at.shape)
    best = rows.argmax(-1).unsqueeze(-1)
    values, flat = [t.gather(-1, best).squeeze(-1) for t in (rows, at)]
    return ValuesIndices(values, flat) if whole is x else ValuesIndices(values.squeeze(0), flat.squeeze(0))


fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = family(
    _fractional,
    "",
    """
    fractional_max_pool2d_with_indices:
    `fractional_max_pool2d` with `return_indices=True`.

    >>> fractional_max_pool2d_with_indices(Tensor.ones(1, 1, 4, 4), 2, output_size=3).indices.shape
    (1, 1, 3, 3)

    fractional_max_pool3d_with_indices:
    `fractional_max_pool3d` with `return_indices=True`.

    >>> fractional_max_pool3d_with_indices(Tensor.ones(1, 1, 4, 4, 4), 2, output_size=3).indices.shape
    (1, 1, 3, 3, 3)
    """,
)


def _fractional_max_pool(
    name: str,
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | ValuesIndices:
    pair = _fractional(name, axes, x, kernel_size, output_size, output_ratio, True, _random_samples)
    return pair if return_indices else pair.values


fractional_max_pool2d, fractional_max_pool3d = family(
    _fractional_max_pool,
    "",
    """
    fractional_max_pool2d:
    The largest value of windows of the last two axes that begin at random places
    (Graham, 2014).

    `output_size` or `output_ratio` says how many; `_random_samples`, (batch, channels, 2) in [0, 1), where they begin.

    >>> fractional_max_pool2d(Tensor.ones(1, 1, 4, 4), 2, output_size=3).shape
    (1, 1, 3, 3)

    fractional_max_pool3d:
    The largest value of windows of the last three axes that begin at random places
    (Graham, 2014).

    `output_size` or `output_ratio` says how many; `_random_samples`, (batch, channels, 3) in [0, 1), where they begin.

    >>> fractional_max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2, output_size=3).shape
    (1, 1, 3, 3, 3)
    """,
)


# -- bags of embeddings -----------------------------------------------------------------------------------------------


@function
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The "sum", "mean" or "max" of the rows of `weight` that each bag names: (bags, width).

    Bags are the rows of `input` (bags, n), or the parts of `input` (n,) that begin at `offsets` (bags,), with the end
    of the last one after them if `include_last_offset`. `padding_idx` counts in no bag; `per_sample_weights`, of the
    shape of `input`, weigh the rows of a sum. An empty bag gives zeros. The other arguments are those of `embedding`.

    Raises ShapeError for an unknown mode, offsets that do not fit, or weights elsewhere than in a sum.

    >>> table = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> embedding_bag(Tensor([0, 1, 2]), table, Tensor([0, 2]), mode="sum")
    Tensor([[4., 6.],
            [5., 6.]], dtype=float32)
    """
    check_bags("embedding_bag", mode)
    if (input.ndim == 2) == (offsets is not None) or input.ndim not in (1, 2):
        raise ShapeError(f"embedding_bag: input of two axes, or of one with offsets, not shape {input.shape}")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ShapeError('embedding_bag: per_sample_weights are of the shape of input, for mode="sum"')
    rows = F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counts = Tensor.ones(*input.shape, dtype="bool", device=input.device)
    if padding_idx is not None:
        counts = input != padding_idx % weight.shape[0]
    if offsets is None:
        return _bags(rows, counts, mode)
    ends = offsets.shape[0] - include_last_offset
    bag = offsets.searchsorted(Tensor.arange(input.shape[0], device=input.device), right=True) - 1
    return _parts(rows, ((bag >= 0) & counts).where(bag.minimum(ends), ends), ends, mode)


def check_bags(name: str, mode: str) -> None:
    """Raise ShapeError, with the caller's name, for an unknown mode of joining the rows of a bag."""
    if mode not in ("sum", "mean", "max"):
        raise ShapeError(f'{name}: mode is "sum", "mean" or "max", not {mode!r}')


def _bags(rows: Tensor, counts: Tensor, mode: str) -> Tensor:
    """Rows (bags, n, width), and which of them count, (bags, n): (bags, width)."""
    inside = counts.unsqueeze(-1)
    if mode == "max" and 0 not in rows.shape:
        return inside.any(-2).where(inside.where(rows, -math.inf).amax(-2), 0.0)
    total = inside.where(rows, 0.0).sum(-2)
    return total if mode == "sum" else total / counts.sum(-1, keepdim=True).clamp(min=1)


def _parts(rows: Tensor, bag: Tensor, bags: int, mode: str) -> Tensor:
    """Rows (n, width) and the number of the bag of each, `bags` for one that is in none: (bags, width)."""
    none = Tensor.zeros(bags + 1, rows.shape[1], dtype=rows.dtype, device=rows.device)
    if mode == "max":
        return none.index_reduce(0, bag, rows, "amax", include_self=False)[:bags]
    total = none.index_add(0, bag, rows)[:bags]
    return total if mode == "sum" else total / bag.bincount(minlength=bags + 1)[:bags, None].clamp(min=1)
