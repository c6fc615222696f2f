"""Order: argsort, sort, topk, medians and quantiles, and counting by value.

One row is sorted by the ARGSORT op. Of many rows, those that are short are sorted by counting: every element counts
those that come before it (its rank). Longer ones are sorted as one row, by value and then, stably, by the row they are
of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from anneal.errors import DTypeError, ShapeError
from anneal.ops import axes_of, axis_of, nodes, one_of
from anneal.ops.nodes import COUNTED, broadcast, first_by_blocks, keys, sorted_places
from anneal.tensor._base import TensorBase
from anneal.tensor._indexing import Indexing
from anneal.tensor._reduce import Axes
from anneal.uop import Op, UOp, const, dtypes

__all__ = ["Sorting"]

_INT32 = dtypes.int32
# The k largest of a row are looked for by blocks where there are that many times more elements.
_BLOCKED = 32

# How much of the upper of two neighbours a quantile takes, from where it lies between them and the lower's place.
_BETWEEN: dict[str, Callable[[float, int], float]] = {
    "linear": lambda part, low: part,
    "lower": lambda part, low: 0.0,
    "higher": lambda part, low: 1.0 if part else 0.0,
    "midpoint": lambda part, low: 0.5 if part else 0.0,
    "nearest": lambda part, low: float(round(low + part) - low),
}


class Sorting(Indexing):
    """Sorting and counting."""

    __slots__ = ()

    def argsort(
        self, dim: int | None = None, descending: bool = False, stable: bool = True, *, axis: int | None = None
    ) -> Self:
        """The positions that sort an axis (the last if none is named), as int32; equal elements keep their order.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3, 1, 2]).argsort()
        Tensor([1, 2, 0], dtype=int32)
        """
        at = axis_of("argsort", one_of("argsort", axis, dim, -1), self.ndim)
        ranked = keys(self._kept(), descending)
        if not ranked.shape:
            return self._new_plain(const(_INT32, 0))
        order = [i for i in range(len(ranked.shape)) if i != at] + [at]
        place = sorted_places(nodes.permute(ranked, order))
        return self._new_plain(nodes.permute(place, sorted(range(len(order)), key=order.__getitem__)))

    def sort(self, dim: int | None = None, descending: bool = False, *, axis: int | None = None) -> tuple[Self, Self]:
        """The values of an axis (the last if none is named) in order, and the positions they came from.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3, 1, 2]).sort(descending=True)
        (Tensor([3, 2, 1], dtype=int32), Tensor([0, 2, 1], dtype=int32))
        """
        at = axis_of("sort", one_of("sort", axis, dim, -1), self.ndim)
        order = self.argsort(at, descending)
        return self._gathered(at, order.uop), order

    def topk(
        self, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True, *, axis: int | None = None
    ) -> tuple[Self, Self]:
        """The k largest (or smallest) values of an axis in order, and their positions.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3.0, 1.0, 2.0]).topk(2)
        (Tensor([3., 2.], dtype=float32), Tensor([0, 2], dtype=int32))
        """
        at = axis_of("topk", one_of("topk", axis, dim, -1), self.ndim)
        n = self.shape[at] if self.ndim else 1
        if not 0 <= k <= n:
            raise ShapeError(f"topk: k must be 0 to {n} for axis {at} of shape {self.shape}, not {k}")
        if self.ndim == 1 and self.dtype.bits < 64 and 0 < k <= n // _BLOCKED:
            order = self._new_plain(first_by_blocks(keys(self._kept(), largest), k))
        else:
            order = self.argsort(at, largest)
            order = order.narrow(at, 0, k) if self.ndim else order
        return self._gathered(at, order.uop), order

    def _as_rows(self, name: str, axis: Any) -> Self:
        """The axes that go as one, the last."""
        axes = axes_of(name, axis, self.ndim)
        rest = [i for i in range(self.ndim) if i not in axes]
        n = math.prod([self.shape[a] for a in axes])
        if not n:
            raise ShapeError(f"{name}: shape {self.shape} has nothing to choose from along axis {axis}")
        u = nodes.permute(self._kept(), [*rest, *axes])
        return self._new(nodes.reshape(u, (*[self.shape[i] for i in rest], n)))

    def _taken(self, place: Self) -> Self:
        """`gather` along the last axis, of positions that are computed and right."""
        return self._gathered(self.ndim - 1, place.uop)

    def _back(self, x: Self, axis: Any, keepdim: bool) -> Self:
        """What was made of `_as_rows`, with the axes that went at size 1 if they are to be kept."""
        axes = axes_of("reduce", axis, self.ndim)
        return x.reshape([1 if i in axes else n for i, n in enumerate(self.shape)]) if keepdim else x

    def median(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The middle one in order along axes, the lower of two (the values only); nan if there is one.

        `quantile(0.5)` is the mean of the middle two.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[3, 1, 2, 9]]).median(dim=1)
        Tensor([2], dtype=int32)
        """
        axis = one_of("median", axis, dim)
        rows = self._as_rows("median", axis)
        n = rows.shape[-1]
        middle = rows._taken(rows.argsort().narrow(-1, (n - 1) // 2, 1))
        middle = (
            rows.isnan().any(-1)._choose(math.nan, middle.squeeze(-1)) if self.dtype.is_float else middle.squeeze(-1)
        )
        return self._back(middle, axis, keepdim)

    def nanmedian(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The middle one of what is not nan, the lower of two; nan where everything is.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3.0, float("nan"), 1.0]).nanmedian().item()
        1.0
        """
        axis = one_of("nanmedian", axis, dim)
        rows = self._as_rows("nanmedian", axis)
        # nan is sorted last
        middle = ((~rows.isnan()).sum(-1, True) - 1).maximum(0) // 2
        return self._back(rows._taken(rows.argsort()._taken(middle)).squeeze(-1), axis, keepdim)

    def quantile(
        self,
        q: float | Sequence[float],
        axis: Axes = None,
        keepdim: bool = False,
        *,
        dim: Axes = None,
        interpolation: str = "linear",
    ) -> Self:
        """The value below which a share `q` of the elements lies, along axes; nan if there is one.

        Several shares become the first axis. Between two elements, interpolation is "linear", "lower", "higher",
        "midpoint" or "nearest" (halves to even).

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0, 4.0]).quantile([0.25, 0.5])
        Tensor([1.5, 2. ], dtype=float32)
        """
        axis = one_of("quantile", axis, dim)
        if isinstance(q, (int, float)):
            shares = [float(q)]
        elif isinstance(q, TensorBase):
            raise DTypeError("quantile: q is a number or a list of numbers known now, not a tensor; use q.tolist()")
        else:
            shares = [float(x) for x in q]
        if not shares or not all(0 <= x <= 1 for x in shares):
            raise ShapeError(f"quantile: q must lie in 0 to 1, not {q}")
        if interpolation not in _BETWEEN:
            raise ShapeError(f"quantile: interpolation is one of {', '.join(_BETWEEN)}, not {interpolation!r}")
        rows = self._new(self._real())._as_rows("quantile", axis)
        order = rows.argsort()
        n = rows.shape[-1]
        nan = rows.isnan().any(-1)
        out = []
        for share in shares:
            place = share * (n - 1)
            low, high = math.floor(place), math.ceil(place)
            weight = _BETWEEN[interpolation](place - low, low)
            a, b = [rows._taken(order.narrow(-1, i, 1)).squeeze(-1) for i in (low, high)]
            value = a if low == high or weight == 0 else b if weight == 1 else a.lerp(b, weight)
            out.append(self._back(nan._choose(math.nan, value), axis, keepdim))
        return out[0] if isinstance(q, (int, float)) else out[0]._cat([x.unsqueeze(0) for x in out], 0)

    def bincount(self, minlength: int) -> Self:
        """How often each number from 0 to minlength - 1 occurs, as int32; others are not counted.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0, 2, 2]).bincount(4)
        Tensor([1, 0, 2, 0], dtype=int32)
        """
        if not self.uop.dtype.is_int or self.ndim != 1:
            raise DTypeError(f"bincount: takes one axis of integers, not {self.dtype.name} of shape {self.shape}")
        n = self.shape[0]
        ones = broadcast(const(_INT32, 1), (n, 1))
        total = UOp(Op.SCATTER_ADD, _INT32, (self.uop.cast(_INT32), ones), (minlength,))
        return self._new_plain(nodes.reshape(total, (minlength,)))

    def searchsorted(self, values: Any, right: bool = False) -> Self:
        """Where in this sorted row each value would go: before equal elements, or with `right` after them, as int32.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 3, 5]).searchsorted(Tensor([3, 6]))
        Tensor([1, 3], dtype=int32)
        """
        if self.ndim != 1:
            raise ShapeError(f"searchsorted: the sorted tensor has one axis, not shape {self.shape}")
        v, n = self._lift("searchsorted", values), self.shape[0]
        if not isinstance(n, int) or n <= COUNTED:
            wide = v.unsqueeze(-1)
            return (self <= wide if right else self < wide).sum(-1)
        flat = v.reshape(-1)
        place: Self = (flat.ne(flat) & False).cast(_INT32)
        step = 1 << (n.bit_length() - 1)
        while step:  # so many elements further on, as long as what lies before is still smaller
            last = place + (step - 1)
            key = self._taken(last)
            smaller = key <= flat if right else key < flat
            place = place + (smaller & (last < n)).cast(_INT32) * step
            step >>= 1
        return place.reshape(v.shape)
