"""Order: argsort, sort, topk, medians and quantiles, and counting by value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import Axes, axes_of, axis_in, is_bool, is_tensor, of_python, said
from anneal.ops.elementwise import choose, floats_of, standing_for
from anneal.ops.extremes import ValuesIndices, one_dim
from anneal.ops.indexing import gathered, values_now
from anneal.ops.joining import join

from anneal.ops.nodes import (  # isort: skip
    COUNTED, INT32, broadcast, first_by_blocks, keys, moved, permute, reshape, sorted_places, sum_into,
)  # fmt: skip
from anneal.ops.precision import kept, refused
from anneal.uop import const

_BLOCKED = 32  # the k largest of a row are looked for by blocks where there are that many times more elements


def _nearest(a: Tensor, b: Tensor, part: Any, low: Any) -> Tensor:
    far = round(low + part) > low
    return choose(far, b, a) if is_tensor(far) else b if far else a


# The quantile between neighbours a and b, by method: `part` of the way from a to b, and the place `low` of a, are
# numbers or tensors.
_BETWEEN: dict[str, Callable[[Tensor, Tensor, Any, Any], Tensor]] = {
    "linear": lambda a, b, part, low: a.lerp(b, part),
    "lower": lambda a, b, part, low: a,
    "higher": lambda a, b, part, low: b,
    "midpoint": lambda a, b, part, low: a.lerp(b, 0.5),
    "nearest": _nearest,
}

# One row is sorted by the ARGSORT op. Of many rows, those that are short are sorted by counting: every element counts
# those that come before it (its rank). Longer ones are sorted as one row, by value and then, stably, by the row they
# are of.


@function
def argsort(x: Tensor, dim: int | None = None, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that sort an axis (the last if none is named), as int32; equal elements keep their order.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).argsort()
    Tensor([1, 2, 0], dtype=int32)
    """
    return _first_places(x, axis_in(-1 if dim is None else dim, x), descending)


def _first_places(x: Tensor, at: int, descending: bool, first: int | None = None) -> Tensor:
    ranked = keys(x._kept(), descending)
    if not ranked.shape:
        return x._new_plain(const(INT32, 0))
    return x._new_plain(moved(sorted_places(moved(ranked, at, -1), first), -1, at))


@function
def sort(x: Tensor, dim: int | None = None, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The values of an axis (the last if none is named) in order, and the positions they came from, int32.

    Equal elements keep their order; nan is the largest. Raises ShapeError for an axis that is not there.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3, 1, 2]).sort(descending=True)
    ValuesIndices(values=Tensor([3, 2, 1], dtype=int32), indices=Tensor([0, 2, 1], dtype=int32))
    """
    at = axis_in(-1 if dim is None else dim, x)
    order = x.argsort(at, descending)
    return ValuesIndices(gathered(x, at, order.uop), order)


@function
def topk(x: Tensor, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The k largest (or smallest) values of an axis in order, and their positions, int32.

    Raises ShapeError for a k that the axis does not have.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3.0, 1.0, 2.0]).topk(2)
    ValuesIndices(values=Tensor([3., 2.], dtype=float32), indices=Tensor([0, 2], dtype=int32))
    """
    at = axis_in(-1 if dim is None else dim, x)
    n = x.shape[at] if x.ndim else 1
    if not 0 <= k <= n:
        raise ShapeError(f"topk: k must be 0 to {n} for axis {at} of shape {x.shape}, not {k}")
    if x.ndim == 1 and x.dtype.bits < 64 and isinstance(n + k, int) and 0 < k <= n // _BLOCKED:
        order = x._new_plain(first_by_blocks(keys(x._kept(), largest), k))
    else:
        order = _first_places(x, at, largest, k)
    return ValuesIndices(gathered(x, at, order.uop), order)


def as_rows(x: Tensor, axis: Any) -> Tensor:
    """The tensor with the named axes flattened into one, the last."""
    axes = axes_of(axis, x.ndim)
    rest = [i for i in range(x.ndim) if i not in axes]
    n = math.prod([x.shape[a] for a in axes])
    if not n:
        raise PositionError(f"shape {x.shape} has nothing to choose from along axis {axis}")
    u = permute(x._kept(), [*rest, *axes])
    return x._new(reshape(u, (*[x.shape[i] for i in rest], n)))


def taken(x: Tensor, place: Tensor) -> Tensor:
    """`gather` along the last axis, of positions that are computed and right."""
    return gathered(x, x.ndim - 1, place.uop)


def from_rows(t: Tensor, x: Tensor, axis: Any, keepdim: bool) -> Tensor:
    """The result for `as_rows`, with the axes that went at size 1 if they are to be kept."""
    axes = axes_of(axis, t.ndim)
    return x.reshape([1 if i in axes else n for i, n in enumerate(t.shape)]) if keepdim else x


def _median(
    name: str, place: Callable[..., Tensor], x: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Axes = None
) -> Tensor | ValuesIndices:
    if dim is not None:
        at = one_dim(dim, axis, x.ndim)
        rows = as_rows(x, at)
        where = place(rows, rows.argsort())
        values, indices = [from_rows(x, t.squeeze(-1), at, keepdim) for t in (taken(rows, where), where)]
        return ValuesIndices(values, indices)
    if axis is None and x.dtype.is_float and 0 in x.shape:
        return x.sum(axis, keepdim) + math.nan
    x._kept()
    rows = as_rows(x, axis)
    return from_rows(x, _shared(rows, taken(rows, place(rows, rows.argsort())).squeeze(-1)), axis, keepdim)


def _middle(rows: Tensor, order: Tensor) -> Tensor:
    """The place of the middle one in the order of each row, or of a nan. Raises ShapeError where the number of elements
    is known only at the run.
    """
    n = rows.shape[-1]
    if not isinstance(n, int):
        raise ShapeError(
            f"median: takes a number of elements, and here there are {n}; slice by numbers, or use nanmedian"
        )
    if not rows.dtype.is_float:
        return order.narrow(-1, (n - 1) // 2, 1)
    nans = rows.isnan().sum(-1, True)  # they are sorted last: the first of them stands for all
    return taken(order, choose(nans > 0, n - nans, (n - 1) // 2))


def _middle_of_numbers(rows: Tensor, order: Tensor) -> Tensor:
    """The place of the middle one of what is not nan: nan is sorted last."""
    return taken(order, ((~rows.isnan()).sum(-1, True) - 1).maximum(0) // 2)


def _shared(rows: Tensor, value: Tensor) -> Tensor:
    """A value of each row, whose gradient all elements equal to it share evenly."""
    if not value.requires_grad:
        return value
    picked = value.detach().unsqueeze(-1)
    hit = rows.eq(picked) | (rows.isnan() & picked.isnan())
    same = choose(hit, rows, 0.0).sum(-1) / hit.sum(-1).cast(rows.uop.dtype)
    return standing_for(value, same)


median, nanmedian = family(
    _median,
    "",
    """
    median:
    The middle one in order along an axis, the lower of two, with its index; of all, or along `axis`, values
    alone.

    nan if there is one. `quantile(0.5)` is the mean of the middle two.

    Args:
        dim: one axis, by position or by name as in torch: gives `(values, indices)`; gradients go to the indices.
        keepdim: whether reduced axes stay, with size 1.
        axis: one axis or several: gives the values; their gradient is shared by all that are equal to them.

    All of no floats have nan for theirs, as in torch. Raises ShapeError over nothing else, or for both of dim and axis.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[3, 1, 2, 9]])
    >>> x.median(dim=1)
    ValuesIndices(values=Tensor([2], dtype=int32), indices=Tensor([2], dtype=int32))
    >>> x.median(axis=1), x.median().item()
    (Tensor([2], dtype=int32), 2)

    nanmedian:
    The median of the elements that are not nan, the lower of two; nan where every element is.

    Arguments, results and errors as for `median`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3.0, float("nan"), 1.0]).nanmedian().item()
    1.0
    """,
    {
        "median": _middle,
        "nanmedian": _middle_of_numbers,
    },
)


@function("single")
def quantile(
    x: Tensor,
    q: Any,
    axis: Axes = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The value below which a fraction `q` of the elements lies, along axes; nan if there is one.

    Several shares, a list or a vector, become the first axis. Between two elements, interpolation is "linear", "lower",
    "higher", "midpoint" or "nearest" (halves to even).

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0, 4.0]).quantile([0.25, 0.5])
    Tensor([1.5, 2. ], dtype=float32)
    """
    rows = as_rows(floats_of(x), axis)
    n = rows.shape[-1]
    if is_tensor(q) or not isinstance(n, int):
        whole = choose(rows.isnan().any(-1, True), math.nan, rows)
        return quantiles(x, whole, n - 1, q, axis, keepdim, interpolation)
    order, nan, out = rows.argsort(), rows.isnan().any(-1), []
    for share in _shares(q, interpolation):
        place = share * (n - 1)
        low, high = math.floor(place), math.ceil(place)
        a, b = [taken(rows, order.narrow(-1, i, 1)).squeeze(-1) for i in (low, high)]
        value = a if low == high else _BETWEEN[interpolation](a, b, place - low, low)
        out.append(from_rows(x, choose(nan, math.nan, value), axis, keepdim))
    return out[0] if isinstance(of_python(q), (int, float)) else join([x.unsqueeze(0) for x in out], 0)


def _shares(q: Any, interpolation: str) -> list[float]:
    """The shares that are known, checked."""
    if interpolation not in _BETWEEN:
        raise ShapeError(f"interpolation is one of {', '.join(_BETWEEN)}, not {interpolation!r}")
    if is_tensor(q):
        return []
    given = q if isinstance(q, (list, tuple, np.ndarray)) else [q]
    if not all(isinstance(s, (int, float, np.number)) and not is_bool(s) for s in given):
        raise DTypeError(f"q is a number or several, not {said(q)}")
    shares = [float(s) for s in given]
    if not shares or not all(0 <= s <= 1 for s in shares):
        raise ShapeError(f"q must lie in 0 to 1, not {q}")
    return shares


def quantiles(x: Tensor, rows: Tensor, last: Any, q: Any, axis: Any, keepdim: bool, interpolation: str) -> Tensor:
    """Quantiles of rows up to a last place of each, for shares that may be a tensor of shape () or (n,)."""
    shares: list[Any] = list(_shares(q, interpolation))
    if is_tensor(q):
        if q.ndim > 1 or not q.dtype.is_float or not q.numel():
            raise ShapeError(f"q is a float or a vector of floats, not {said(q)}")
        given = q.cast(rows.dtype).reshape(-1)
        shares = [given[i : i + 1] for i in range(given.shape[0])]
    order, out, title = rows.argsort(), [], "nanquantile" if is_tensor(last) else "quantile"
    for share in shares:
        place = share * last if is_tensor(last) else (rows[..., :1].isnan() * 0 + last) * share
        low = place.detach().floor()
        below, above = [taken(rows, taken(order, _place(title, e, share))) for e in (low, place.detach().ceil())]
        value = _BETWEEN[interpolation](below, above, place - low, low)
        out.append(from_rows(x, value.squeeze(-1), axis, keepdim))
    one = q.ndim == 0 if is_tensor(q) else isinstance(of_python(q), (int, float))
    return out[0] if one else join([part.unsqueeze(0) for part in out], 0)


def _place(title: str, at: Tensor, share: Any) -> Tensor:
    """A place, int32; the cpu refuses that of a share beyond 0 to 1, which is a tensor."""
    at = at.cast(INT32)
    if not is_tensor(share):
        return at
    right = ((share >= 0) & (share <= 1)).expand(at.shape)
    return at._new_plain(refused(title, at.device, at.uop, right.uop, "q lies in 0 to 1; these do not"))


@function
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The counts of the integers 0 to minlength - 1 among the elements, as an int32 vector; other elements are not
    counted.

    With `weights`, a number for each element, they are added up. Without `minlength` there are as many numbers as the
    largest says, which is computed now: a ShapeError inside jit.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 2, 2]).bincount(minlength=4)
    Tensor([1, 0, 2, 0], dtype=int32)
    """
    if not x.uop.dtype.is_int or x.ndim != 1:
        raise DTypeError(f"bincount: takes one axis of integers, not {x.dtype.name} of shape {x.shape}")
    if not minlength:
        known = values_now(x, "give minlength=, the number of values that are counted")
        if known.min(initial=0) < 0:
            raise ShapeError(f"bincount: counts integers from 0 on, and {known.min()} is among them")
        minlength = int(known.max()) + 1 if known.size else 0
    if minlength < 0:
        raise ShapeError(f"bincount: minlength must not be negative, not {minlength}")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"bincount: weights have the shape of the elements, {x.shape}, not {weights.shape}")
    places = x.uop.cast(INT32)
    if weights is None:
        return x._new_plain(sum_into(places, broadcast(const(INT32, 1), x.shape), minlength))
    return x._lift(weights)._new(kept("bincount", x.device, (weights.uop,), lambda w: sum_into(places, w, minlength)))


@function
def searchsorted(
    x: Tensor,
    values: Any,
    right: bool = False,
    *,
    side: str | None = None,
    sorter: Tensor | None = None,
    out_int32: bool = True,
) -> Tensor:
    """The places in this sorted row where values would go, as int32: before equal elements, or with `right` after them.

    Of several rows, `values` has as many: the other axes are equal. `side` is "left" or "right", `sorter` the places
    that sort the rows; `out_int32` changes nothing: places are int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 3, 5]).searchsorted(Tensor([3, 6]))
    Tensor([1, 3], dtype=int32)
    """
    if side not in (None, "left", "right") or side == "left" and right:
        raise ShapeError(f'searchsorted: side is "left", or "right" as right=True says, not {side!r}')
    right = right or side == "right"
    if sorter is not None and x.ndim:
        if sorter.shape != x.shape:
            raise ShapeError(f"searchsorted: the sorter has the shape of what it sorts, {x.shape}, not {sorter.shape}")
        x = x.take_along_dim(sorter, -1)
    v = x._lift(values)
    if x.ndim != 1:
        if not x.ndim or v.shape[:-1] != x.shape[:-1]:
            raise ShapeError(
                f"searchsorted: rows of shape {x.shape} and values of {v.shape} need equal axes but the last"
            )
    n = x.shape[-1]
    if n.__class__ is not int or n <= COUNTED:
        x, wide = x if x.ndim == 1 else x.unsqueeze(-2), v.unsqueeze(-1)
        return ((x <= wide if right else x < wide) | wide.ne(wide)).sum(-1)  # nan comes last
    flat = v.reshape(-1) if x.ndim == 1 else v
    nan = flat.ne(flat)
    place = (nan & False).cast(INT32)
    step = 1 << n.bit_length() - 1
    while step:  # so many elements further on, as long as what lies before is still smaller
        last = place + (step - 1)
        key = taken(x, last)
        smaller = (key <= flat if right else key < flat) | nan
        place = place + (smaller & (last < n)).cast(INT32) * step
        step >>= 1
    return place.reshape(v.shape)
