"""Statistics: covariance, histograms, order statistics, integrals of samples, distances and likenesses of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from anneal.errors import DTypeError, PositionError, SettingError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import Axes, axes_of, axis_in, broadcast_shapes, is_tensor, need_axes, said, whole
from anneal.ops.elementwise import beside, choose, floats_of, real_node, standing_for
from anneal.ops.extremes import ValuesIndices
from anneal.ops.indexing import gathered
from anneal.ops.joining import slice_axis
from anneal.ops.nodes import Number, iota, numbered, row_shape, take_rows
from anneal.ops.sorting import as_rows, quantiles, taken
from anneal.uop import const, dtypes, promote

_CDIST_MODES = "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"


@function("functional method=no autocast=float32 single")
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; shapes broadcast first, norms below eps count as eps.

    >>> from anneal.tensor import Tensor
    >>> cosine_similarity(Tensor([[1.0, 0.0]]), Tensor([[1.0, 1.0]])).round(4)
    Tensor([0.7071], dtype=float32)
    """
    if a.shape != b.shape:
        shape = broadcast_shapes(a.shape, b.shape)
        a, b = a.expand(shape), b.expand(shape)
    x, y = a / a.norm(2.0, dim, True).clamp(min=eps), b / b.norm(2.0, dim, True).clamp(min=eps)
    return (x * y).sum(dim)


def _need_order(p: float) -> None:
    if p < 0:
        raise ShapeError(f"the order of a distance is not negative, not {p}")


@function("functional method=no autocast=float32 single")
def cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm distances between the rows of (..., m, d) and of (..., n, d): (..., m, n).

    torch's `compute_mode` says how, not what: any is computed by differences.

    >>> from anneal.tensor import Tensor
    >>> cdist(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0], [0.0, 1.0]]))
    Tensor([[5., 1.]], dtype=float32)
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: takes (..., m, d) and (..., n, d), not {a.shape} and {b.shape}")
    if compute_mode not in _CDIST_MODES:
        raise SettingError(f"cdist: compute_mode is one of {', '.join(_CDIST_MODES)}, not {said(compute_mode)}")
    _need_order(p)
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    p = p if a.shape[-1] else 1.0  # rows of nothing are no distance apart
    out = apart.norm(p, -1)
    if p != math.inf or not out.requires_grad:
        return out
    # of equal largest differences each has the whole gradient, as in torch
    size = apart.abs()
    return standing_for(out, choose(size.eq(size.amax(-1, True).detach()), size, 0.0).sum(-1))


@function("functional method=no")
def pairwise_distance(a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of a - b + eps along the last axis.

    >>> from anneal.tensor import Tensor
    >>> pairwise_distance(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0]])).round(3)
    Tensor([5.], dtype=float32)
    """
    return (a - b + eps).norm(p, -1, keepdim)


@function("single")
def cov(x: Tensor, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariances of variables, which are rows; the columns are samples. A vector is one variable; of one, the
    variance.

    `fweights` says how often each sample occurred, `aweights` how much each counts: vectors, as many as columns.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]).cov()
    Tensor([[ 1. , -0.5],
            [-0.5,  1. ]], dtype=float32)
    """
    if x.ndim > 2 or not x.ndim:
        raise ShapeError(f"cov: takes a vector or a matrix of variables by samples, not shape {x.shape}")
    floats = floats_of(x)
    rows = floats if x.ndim == 2 else floats.unsqueeze(0)
    weights = _weights(floats, fweights, aweights)
    if weights is None:
        apart = rows - rows.mean(1, keepdim=True)
        out: Tensor = (apart @ apart.T) / max(rows.shape[1] - correction, 0)
    else:
        total = weights.sum()
        apart = rows - (rows * weights).sum(1, keepdim=True) / total
        lost = (weights * aweights).sum() / total if aweights is not None else 1
        out = ((apart * weights) @ apart.T) / (total - lost * correction).clip(min=0)
    return out if out.shape[0] != 1 else out.reshape(())


def _weights(x: Tensor, often: Tensor | None, much: Tensor | None) -> Tensor | None:
    out = None
    for name, given in (("fweights", often), ("aweights", much)):
        if given is not None:
            if given.shape != x.shape[-1:]:
                raise ShapeError(
                    f"cov: {name} has one number for each of the {x.shape[-1]} samples, not shape {given.shape}"
                )
            if name == "fweights" and not given.dtype.is_int:
                raise DTypeError(f"cov: fweights are integers, not {given.dtype.name}; aweights may be floats")
            out = given.cast(x.dtype) if out is None else out * given
    return out


@function("single")
def corrcoef(x: Tensor) -> Tensor:
    """The correlations of variables, which are rows: covariances over the standard deviations.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]).corrcoef().round(3)
    Tensor([[1., 1.],
            [1., 1.]], dtype=float32)
    """
    c = x.cov()
    if not c.ndim:
        return c / c
    size = c.diagonal().sqrt()
    return (c / size.unsqueeze(1) / size.unsqueeze(0)).clip(-1.0, 1.0)


@function
def histc(x: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """The counts of elements in each of `bins` equal bins of [min, max], as a vector of floats; elements outside are
    not counted.

    With both ends equal, as by default, the range is from the least element to the largest, and one less and one
    more of equal ones.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0, 1.0, 9.0]).histc(4, 0, 3)
    Tensor([0., 2., 1., 0.], dtype=float32)
    """
    if bins < 1 or not min <= max or not math.isfinite(max - min):
        raise ShapeError(f"histc: takes at least 1 bin and min <= max, not {bins} bins from {min} to {max}")
    x = floats_of(x).reshape(-1).detach()
    low: Any = float(min)
    high: Any = float(max)
    if min == max and x.numel():
        low, high = x.min(), x.max()
        same = low.eq(high)
        low, high = choose(same, low - 1.0, low), choose(same, high + 1.0, high)
    elif min == max:
        high = low + 1.0
    place = ((x - low) * (float(bins) / (high - low))).floor()
    inside = (x >= low) & (x <= high)
    last = (bins - 1.0) + 0.0 * place  # the upper end belongs to the last part
    index = choose(inside, place.minimum(last), -1.0).cast("int32")
    return index.bincount(None, bins).cast(x.dtype)


class Histogram(NamedTuple):
    """The result of `histogram`: `hist`, the count (or weight) of each bin, and `bin_edges`, one more than there are
    bins.
    """

    hist: Tensor
    bin_edges: Tensor


@function
def histogram(
    x: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """The counts of elements in each bin of a range, as floats, and the edges of the bins.

    Args:
        bins: how many equal parts, or a rising vector of their ends.
        range: the ends of the first and the last part; by default the least and the largest element.
        weight: what each element counts, in the shape of x.
        density: counts over their sum and the width of each part.

    The last part holds its upper end too; what lies outside is not counted. No gradient flows. Raises ShapeError for no
    parts, or a range with `bins` that are ends.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0, 1.0]).histogram(2, range=(0.0, 2.0)).hist
    Tensor([0., 3.], dtype=float32)
    """
    u = real_node(x)
    row = x._new_plain(u.cast(promote(u.dtype, dtypes.float32))).reshape(-1)
    if is_tensor(bins):
        if bins.ndim != 1 or bins.shape[0] < 2 or range is not None:
            raise ShapeError("histogram: bins is a number, or a vector of two ends or more without a range")
        edges = bins.detach().cast(row.dtype)
    else:
        edges = _edges(row, whole("bins", bins), range)
    parts = edges.shape[0] - 1
    place = edges.searchsorted(row, right=True) - 1
    place = choose(row.eq(edges[-1]), parts - 1, place)
    index = choose((row >= edges[0]) & (row <= edges[-1]), place, -1)
    if weight is not None and weight.shape != x.shape:
        raise ShapeError(f"histogram: weight has the shape of x, {x.shape}, not {weight.shape}")
    each = None if weight is None else weight.detach().reshape(-1)
    counts = index.bincount(each, parts).cast(row.dtype)
    if density:
        counts = counts / (edges.diff() * counts.sum())
    return Histogram(counts.cast(u.dtype), edges.cast(u.dtype))


def _edges(row: Tensor, bins: int, span: Sequence[float] | None) -> Tensor:
    """The ends of equal parts of a range."""
    if bins < 1:
        raise ShapeError(f"histogram: takes at least 1 bin, not {bins}")
    pair = isinstance(span, (tuple, list)) and len(span) == 2 and all(isinstance(n, (int, float)) for n in span)
    if span is not None and not (pair and span[0] <= span[1]):
        raise ShapeError(f"histogram: range is two numbers, the lower first, not {said(span)}")
    low = row._lift(float(span[0])) if span else row.min() if row.numel() else row.sum()
    high = row._lift(float(span[1])) if span else row.max() if row.numel() else row.sum() + 1.0
    same = low.eq(high)
    low, high = choose(same, low - 0.5, low), choose(same, high + 0.5, high)
    share = row._new_plain(iota(bins + 1)).cast(row.dtype) * (1.0 / bins)
    return choose(share.eq(1.0), high, low + (high - low) * share)


@function("method=no single")
def gradient(x: Tensor, *, spacing: Any = 1, dim: Axes = None, edge_order: int = 1) -> list[Tensor]:
    """The slopes of samples along axes, by central differences; at the ends by one-sided ones of order 1 or 2.

    Args:
        spacing: the distance of samples: a number, one for each axis, or a vector of places for each.
        dim: the axes, all by default. edge_order: 1 or 2, that of the slopes at the ends.

    Raises ShapeError for an axis with too few samples, or spacings that do not fit.

    >>> from anneal.tensor import Tensor
    >>> gradient(Tensor([1.0, 4.0, 9.0]))[0]
    Tensor([3., 4., 5.], dtype=float32)
    """
    if edge_order not in (1, 2):
        raise ShapeError(f"gradient: edge_order is 1 or 2, not {edge_order}")
    axes = axes_of(dim, x.ndim) if dim is None or isinstance(dim, int) else [axis_in(d, x) for d in dim]
    if len(set(axes)) < len(axes):
        raise ShapeError(f"gradient: an axis is named twice in dim={dim}")
    many = isinstance(spacing, (list, tuple))
    steps = list(spacing) if many else [1 if spacing is None else spacing] * len(axes)
    if len(steps) != len(axes):
        raise ShapeError(f"gradient: {len(steps)} spacings for {len(axes)} axes")
    floats = floats_of(x)
    return [_slopes(floats, at, step, edge_order) for at, step in zip(axes, steps)]


def _slopes(x: Tensor, at: int, spacing: Any, edge_order: int) -> Tensor:
    n = x.shape[at]
    if n < edge_order + 1:
        raise ShapeError(f"gradient: axis {at} of shape {x.shape} needs {edge_order + 1} samples at least")
    if is_tensor(spacing) and spacing.ndim:
        if spacing.shape != (n,):
            raise ShapeError(f"gradient: the places along axis {at} are {n}, not of shape {spacing.shape}")
        gaps = spacing.diff().reshape(row_shape(n - 1, at, x.ndim))
    else:
        gaps = x._lift(spacing if is_tensor(spacing) else float(spacing)).reshape([1] * x.ndim)
        gaps = gaps.expand(row_shape(n - 1, at, x.ndim))

    ratio = x.diff(dim=at) / gaps

    def cut(begin: int, end: int) -> tuple[Tensor, Tensor]:
        return slice_axis(ratio, at, begin, end), slice_axis(gaps, at, begin, end)

    def edge(i: int, beside: int) -> Tensor:
        slope, a = cut(i, i + 1)
        if edge_order == 1:
            return slope
        following, b = cut(beside, beside + 1)
        return slope + (slope - following) * a / (a + b)

    parts = []
    if n > 2:  # in the middle, each side's slope weighs by the other side's gap
        (before, a), (after, b) = cut(0, n - 2), cut(1, n - 1)
        parts = [(before * b + after * a) / (a + b)]
    return edge(0, 1).cat(*parts, edge(n - 2, n - 3), dim=at)


@function
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest of an axis, from 1 on, and its position, int32.

    Raises PositionError for a k that the axis does not have.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).kthvalue(2)
    ValuesIndices(values=Tensor(2, dtype=int32), indices=Tensor(2, dtype=int32))
    """
    at = axis_in(dim, x)
    if not x.ndim:
        one, where = x.reshape(1).kthvalue(k, 0)
        return ValuesIndices(one.reshape(()), where.reshape(()))
    if not 1 <= k <= x.shape[at]:
        raise PositionError(f"kthvalue: k must be 1 to {x.shape[at]} for axis {at} of shape {x.shape}, not {k}")
    place = x.argsort(at).narrow(at, k - 1, 1)
    value = gathered(x, at, place.uop)
    return _at_one(value, place, at, keepdim)


def _at_one(value: Tensor, place: Tensor, at: int, keepdim: bool) -> ValuesIndices:
    """A value of each row along an axis, and where it is."""
    return ValuesIndices(value, place) if keepdim else ValuesIndices(value.squeeze(at), place.squeeze(at))


@function
def msort(x: Tensor) -> Tensor:
    """The values of `sort` along the first axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[3, 1], [2, 5]]).msort()
    Tensor([[2, 1],
            [3, 5]], dtype=int32)
    """
    return x.sort(0)[0]


@function
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The element that an axis has most often, the smallest of several, and a position of it, int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 3, 2]).mode().values.item()
    3
    """
    at = axis_in(dim, x)
    if not x.ndim:
        return ValuesIndices(x, x._new_plain(const(dtypes.int32, 0)))
    if x.shape[at] == 0:
        raise PositionError(f"shape {x.shape} has nothing to choose from along axis {dim}")
    values, places = x.sort(at)
    rows, where = values.movedim(at, -1), places.movedim(at, -1)
    here = x._new_plain(numbered(rows.shape, x.ndim - 1))
    other = rows.ne(rows.roll(1, -1)) | here.eq(0)
    first = other.where(here, 0).cummax(axis=-1)  # of each run of equal ones
    best = taken(first, (here - first).argmax(-1, keepdim=True))  # the longest, of several the first: the smallest
    value, place = (taken(x, best).movedim(-1, at) for x in (rows, where))
    return _at_one(value, place, at, keepdim)


@function("single")
def nanquantile(
    x: Tensor, q: Any, axis: Axes = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """`quantile` of the elements that are not nan; nan where every element is. Arguments and errors as for `quantile`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("nan"), 3.0]).nanquantile(0.5).item()
    2.0
    """
    rows = as_rows(floats_of(x), axis)
    last = (~rows.isnan()).sum(-1, True) - 1
    return quantiles(x, rows, last.maximum(0).cast(rows.dtype), q, axis, keepdim, interpolation)


@function("autocast=float32")
def dist(x: Tensor, other: Any, p: float = 2.0) -> Tensor:
    """The p-norm of the difference.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).dist(Tensor([4.0, 6.0])).item()
    5.0
    """
    return (x - x._lift(other)).norm(p)


@function("in_place autocast=float32 single")
def renorm(x: Tensor, p: float, dim: int, maxnorm: Number) -> Tensor:
    """Slices along an axis, those longer than `maxnorm` scaled down to it.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[3.0, 4.0], [0.3, 0.4]]).renorm(2.0, 0, 1.0).round(2)
    Tensor([[0.6, 0.8],
            [0.3, 0.4]], dtype=float32)
    """
    at = axis_in(dim, x)
    if maxnorm < 0 or p <= 0 or x.ndim < 2:
        raise ShapeError(f"renorm: takes slices, maxnorm >= 0 and p > 0, not shape {x.shape}, {maxnorm} and {p}")
    size = x.norm(p, [i for i in range(x.ndim) if i != at], keepdim=True)
    return x * choose(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


@function("function_alias=trapz single")
def trapezoid(y: Tensor, x: Any = None, *, dx: Number = 1, dim: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule, over places `x` or steps of `dx`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0, 3.0]).trapezoid().item()
    4.0
    """
    return _trapezoids(y, x, dx, dim).sum(dim)


@function("single")
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Number = 1, dim: int = -1) -> Tensor:
    """The running integral along an axis by the trapezoidal rule.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0, 3.0]).cumulative_trapezoid()
    Tensor([1.5, 4. ], dtype=float32)
    """
    return _trapezoids(y, x, dx, dim).cumsum(dim)


def _trapezoids(t: Tensor, x: Any, dx: Number, dim: int) -> Tensor:
    at = axis_in(dim, t)
    need_axes(t.shape)
    n = t.shape[at]
    y = floats_of(t)
    both = (y.narrow(at, 0, max(0, n - 1)) + y.narrow(at, min(1, n), max(0, n - 1))) * 0.5
    if x is None:
        return both * float(dx)
    places = t._lift(x)
    return both * (
        places.diff().reshape(row_shape(-1, at, t.ndim)) if places.ndim == 1 else places.diff(dim=at - t.ndim)
    )


@function("functional autocast=float32")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of rows, those with the first row first.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]).pdist().round(3)
    Tensor([5.   , 1.   , 4.243], dtype=float32)
    """
    if x.ndim != 2:
        raise ShapeError(f"pdist: takes a matrix of points by coordinates, not shape {x.shape}")
    n = x.shape[0]
    # the number of a pair from the last on, of which 1, 2, 3, ... are in a row; roots may round to a row beside it
    count = n * (n - 1) // 2
    last = count - 1 - x._new_plain(iota(count))

    def before(row: Tensor) -> Tensor:
        return row * (row + 1) // 2

    row = ((last.float() * 8 + 1).sqrt() * 0.5 - 0.5).int()
    row = row - (before(row) > last).int()
    row = row + (before(row + 1) <= last).int()
    place = (n - 2 - row) * n + (n - 1) - (last - before(row))
    return x._new(take_rows(cdist(x, x, p).reshape(-1).uop, place.uop))


@function
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The matrix of the powers of a vector's elements, a row for each; the highest first unless `increasing`. Powers of
    integers have the dtypes and the errors of `prod`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).vander()
    Tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]], dtype=int32)
    """
    if x.ndim != 1:
        raise ShapeError(f"vander: takes a vector, not shape {x.shape}")
    count = x.shape[0] if N is None else N
    if N is not None and N < 0:
        raise ShapeError(f"vander: N is a count, not {N}")
    powers = x.reshape(-1, 1).expand(x.shape[0], max(count - 1, 0)).cumprod(1)  # from the first on
    powers = powers.new_ones(x.shape[0], min(count, 1)).cat(powers, dim=1)
    return powers if increasing else powers.flip(1)


@function
def matrix_power(x: Tensor, n: int) -> Tensor:
    """The product of `n` copies of square matrices, the last two axes; by squaring.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 1], [0, 1]]).matrix_power(5)
    Tensor([[1, 5],
            [0, 1]], dtype=int32)
    """
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, not shape {x.shape}")
    if n < 0:
        raise DTypeError(f"matrix_power: there is no inverse here, so {n} must not be negative")
    side = x.shape[-1]
    result = None
    square = x
    while n:
        if n & 1:
            result = square if result is None else result @ square
        n >>= 1
        square = square @ square if n else square
    if result is not None:
        return result.clone()
    i = x._new_plain(iota(side, 0, 2))
    return x._new(beside(i.eq(i.mT).cast(x.dtype).expand(x.shape).uop, x))
