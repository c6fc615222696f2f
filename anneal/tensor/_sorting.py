"""Order: argsort, sort, topk, and counting by value.

One row is sorted by the ARGSORT op. Along an axis of many rows every element counts those that come before it (its
rank), which is quadratic in the axis's length but needs no memory beyond the result.
"""

from __future__ import annotations

from typing import Any, Self

from anneal.errors import DTypeError, ShapeError
from anneal.tensor import _movement as move
from anneal.tensor._base import axis_of, broadcast, one_of
from anneal.tensor._indexing import Indexing
from anneal.tensor._reduce import reduce_node
from anneal.tensor._views import iota
from anneal.uop import Op, UOp, alu, const, dtypes

__all__ = ["Sorting"]

_INT32 = dtypes.int32


def _keys(u: UOp, descending: bool) -> UOp:
    """Integers in the order of `u`, or the reverse; nan is the largest, and -0.0 equals 0.0."""
    if u.dtype.is_float:
        if u.dtype.bits == 64:
            raise DTypeError("sort: takes floats of at most 32 bits; cast to float32 first")
        u = u.cast(dtypes.float32)
        u = alu(Op.WHERE, (u.eq(0.0), const(u.dtype, 0.0), u))
        bits = UOp(Op.BITCAST, _INT32, (u,))
        # negative floats grow with their magnitude's bits: inverting all but the sign turns them round
        bits = alu(Op.XOR, (bits, alu(Op.AND, (alu(Op.SHR, (bits, const(_INT32, 31))), const(_INT32, 0x7FFFFFFF)))))
        u = alu(Op.WHERE, (alu(Op.NE, (u, u)), const(_INT32, 0x7FFFFFFF), bits))
    elif u.dtype is dtypes.uint32:
        u = UOp(Op.BITCAST, _INT32, (alu(Op.XOR, (u, const(u.dtype, 0x80000000))),))
    elif u.dtype.bits < 64:
        u = u.cast(_INT32)
    return alu(Op.NOT, (u,)) if descending else u


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
        keys = _keys(self._kept(), descending)
        if len(keys.shape) < 2 and keys.dtype is _INT32:
            return self._new_plain(UOp(Op.ARGSORT, _INT32, (keys,)) if keys.shape else const(_INT32, 0))
        order = [i for i in range(len(keys.shape)) if i != at] + [at]
        keys = move.permute(keys, order)
        shape = keys.shape
        n = shape[-1]
        square = (*shape, n)
        mine = broadcast(move.reshape(keys, (*shape, 1)), square)
        other = broadcast(move.reshape(keys, (*shape[:-1], 1, n)), square)
        i = broadcast(iota(n, 0, 2), square)
        j = broadcast(iota(n, 1, 2), square)
        tie = alu(Op.AND, (alu(Op.EQ, (other, mine)), alu(Op.LT, (j, i))))
        before = alu(Op.OR, (alu(Op.LT, (other, mine)), tie)).cast(_INT32)
        rank = reduce_node(before, Op.ADD, (len(square) - 1,), False)
        # position r of the result holds the one element whose rank is r
        here = alu(Op.EQ, (broadcast(move.reshape(rank, (*shape[:-1], 1, n)), square), i))
        place = reduce_node(alu(Op.WHERE, (here, j, const(_INT32, 0))), Op.ADD, (len(square) - 1,), False)
        return self._new_plain(move.permute(place, sorted(range(len(order)), key=order.__getitem__)))

    def sort(self, dim: int | None = None, descending: bool = False, *, axis: int | None = None) -> tuple[Self, Self]:
        """The values of an axis (the last if none is named) in order, and the positions they came from.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3, 1, 2]).sort(descending=True)
        (Tensor([3, 2, 1], dtype=int32), Tensor([0, 2, 1], dtype=int32))
        """
        at = axis_of("sort", one_of("sort", axis, dim, -1), self.ndim)
        order = self.argsort(at, descending)
        return self.gather(at, order), order

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
        order = self.argsort(at, largest)
        order = order.narrow(at, 0, k) if self.ndim else order
        return self.gather(at, order), order

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
        return self._new_plain(move.reshape(total, (minlength,)))

    def searchsorted(self, values: Any, right: bool = False) -> Self:
        """Where in this sorted row each value would go: before equal elements, or with `right` after them, as int32.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 3, 5]).searchsorted(Tensor([3, 6]))
        Tensor([1, 3], dtype=int32)
        """
        if self.ndim != 1:
            raise ShapeError(f"searchsorted: the sorted tensor has one axis, not shape {self.shape}")
        v = self._lift("searchsorted", values).unsqueeze(-1)
        return (self <= v if right else self < v).sum(-1)
