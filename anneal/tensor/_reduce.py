"""Reductions along axes, and what is made of them: statistics, softmax, extremes with positions, running sums.

`axis` and `dim` are one argument: an int, several, or None for all axes. `keepdim` leaves reduced axes with size 1.
Sums and products of bools and of integers below 32 bits are int32; means of integers are float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from anneal.errors import DTypeError, ShapeError
from anneal.ops import DTypeLike, as_dtype, axes_of, axis_of, in_single, nodes, one_of, said
from anneal.ops.nodes import Number, broadcast, elementwise, iota, reciprocal, reduce_node
from anneal.tensor._base import TensorBase
from anneal.tensor._elementwise import beside
from anneal.tensor._views import Views
from anneal.uop import DType, Op, UOp, alu, const, dtypes, reduce_identity
from anneal.uop.sizes import Size, most, product

__all__ = ["Reduce"]

Axes = int | Sequence[int] | None
_INT32 = dtypes.int32
_BLOCK = 32


def _unbiased(axis: Any, unbiased: bool | None) -> tuple[Any, bool | None]:
    """The axis and `unbiased`, where torch takes a bool in the first place for the second."""
    if not isinstance(axis, bool):
        return axis, unbiased
    if unbiased is not None and unbiased != axis:
        raise ShapeError(
            f"var: {axis} in the axis's place and unbiased={unbiased} are the same argument; give one of them"
        )
    return None, axis


class Reduce(Views):
    """Reductions."""

    __slots__ = ()

    def _reduce(self, name: str, op: Op, u: UOp, axis: Axes, keepdim: bool) -> Self:
        return self._new(reduce_node(u, op, axes_of(name, axis, len(u.shape)), keepdim))

    def _wide(self, dtype: DTypeLike | None = None) -> UOp:
        """The node in the dtype its sum has."""
        u = self.uop
        if dtype is not None:
            return u.cast(as_dtype(dtype))
        return u if u.dtype.is_float or u.dtype.bits >= 32 else u.cast(_INT32)

    def _summed(self, name: str, axis: Axes, dtype: DTypeLike | None) -> UOp:
        """`_wide`, of so few elements along axes that int32 holds the sum of any values."""
        u = self._wide(dtype)
        if dtype is None and u.dtype is not self.uop.dtype and u.vmin is not None and u.vmax is not None:
            s = u.shape
            count = math.prod([most(s[a]) for a in axes_of(name, axis, len(s))])
            if count * max(-u.vmin, u.vmax) > _INT32.max:
                raise DTypeError(
                    f"{name}: the sum of {count} elements of {self.dtype.name} may be more than int32 holds; "
                    f"give dtype='int64' or a float"
                )
        return u

    def sum(
        self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None, dtype: DTypeLike | None = None
    ) -> Self:
        """The sum along axes; 0 over nothing.

        Raises DTypeError where so many small integers are summed that int32 may not hold the sum, and no dtype is
        given.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0)
        Tensor([4, 6], dtype=int32)
        """
        axis = one_of("sum", axis, dim)
        return self._reduce("sum", Op.ADD, self._summed("sum", axis, dtype), axis, keepdim)

    def prod(
        self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None, dtype: DTypeLike | None = None
    ) -> Self:
        """The product along axes; 1 over nothing.

        >>> from anneal.tensor import Tensor
        >>> Tensor([2, 3, 4]).prod().item()
        24
        """
        axis = one_of("prod", axis, dim)
        return self._reduce("prod", Op.MUL, self._wide(dtype), axis, keepdim)

    def _extreme(self, name: str, op: Op, axis: Any, keepdim: bool, dim: Any, kept: bool = True) -> Self:
        where = one_of(name, axis, dim)
        s = self.uop.shape
        if 0 in s and any(s[a] == 0 for a in axes_of(name, where, len(s))):
            raise ShapeError(f"{name}: shape {s} has nothing to choose from along axis {where}")
        return self._reduce(name, op, self._kept() if kept else self.uop, where, keepdim)

    def max(self, axis: Any = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The largest value along axes (the values only: `argmax` has the positions); nan if there is one.

        Given a tensor, it is `maximum`. Ties share the gradient evenly. Raises ShapeError over nothing.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 5], [7, 3]]).max(dim=1)
        Tensor([5, 7], dtype=int32)
        """
        if isinstance(axis, TensorBase):
            return self._other("max", axis, keepdim, dim)
        return self._extreme("max", Op.MAX, axis, keepdim, dim)

    def min(self, axis: Any = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The smallest value along axes (the values only: `argmin` has the positions), or `minimum`; nan if there is
        one.
        """
        if isinstance(axis, TensorBase):
            return self._other("min", axis, keepdim, dim)
        return self._extreme("min", Op.MIN, axis, keepdim, dim)

    def _other(self, name: str, other: TensorBase, keepdim: bool, dim: Axes) -> Self:
        """The larger or smaller of two: a tensor where an axis may stand."""
        if keepdim or dim is not None:
            raise ShapeError(
                f"{name}: an axis is an int, not {said(other)}; the {name}imum of two tensors keeps all axes"
            )
        return self._binary(f"{name}imum", Op.MAX if name == "max" else Op.MIN, other)

    def amax(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """`max` along axes."""
        return self._extreme("amax", Op.MAX, axis, keepdim, dim)

    def amin(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """`min` along axes."""
        return self._extreme("amin", Op.MIN, axis, keepdim, dim)

    def aminmax(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> tuple[Self, Self]:
        """`min` and `max`."""
        axis = one_of("aminmax", axis, dim)
        return self.min(axis, keepdim), self.max(axis, keepdim)

    def any(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether some element along axes differs from 0; False over nothing."""
        axis = one_of("any", axis, dim)
        return self._new_plain(self._reduce("any", Op.MAX, self._truth().uop, axis, keepdim).uop)

    def all(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether every element along axes differs from 0; True over nothing.

        >>> from anneal.tensor import Tensor
        >>> (Tensor([1, 2]) > 0).all().item()
        True
        """
        axis = one_of("all", axis, dim)
        return self._new_plain(self._reduce("all", Op.MIN, self._truth().uop, axis, keepdim).uop)

    def count_nonzero(self, axis: Axes = None, *, dim: Axes = None) -> Self:
        """How many elements along axes differ from 0, as int32."""
        return self._truth().sum(axis, dim=dim)

    # -- statistics -----------------------------------------------------------------------------------------------

    def _count(self, name: str, axis: Axes) -> int:
        s = self.uop.shape
        count: int = product([s[a] for a in axes_of(name, axis, len(s))])
        return count

    @in_single()
    def mean(
        self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None, dtype: DTypeLike | None = None
    ) -> Self:
        """The mean along axes; nan over nothing. Integers give float32.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).mean(axis=1)
        Tensor([1.5, 3.5], dtype=float32)
        """
        axis = one_of("mean", axis, dim)
        u = self._real() if dtype is None else self.uop.cast(as_dtype(dtype))
        n = self._count("mean", axis)
        total = reduce_node(u, Op.ADD, axes_of("mean", axis, len(u.shape)), keepdim)
        if n == 1:
            return self._new(total)
        if isinstance(n, UOp):
            return self._new(elementwise(Op.MUL, (total, reciprocal(u.dtype, [n])), total.shape))
        scale = 1 / n if n else math.nan
        return self._new(elementwise(Op.MUL, (total, const(u.dtype, scale)), total.shape))

    @in_single()
    def var(
        self,
        axis: Axes | bool = None,
        correction: Number | None = 1,
        keepdim: bool = False,
        *,
        dim: Axes = None,
        unbiased: bool | None = None,
    ) -> Self:
        """The variance along axes, in two passes; the divisor is the count less `correction` (torch's default is 1).

        A bool in the axis's place is `unbiased`, as torch has it: True is a correction of 1, False of 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0, 3.0, 4.0]).var(correction=0).item()
        1.25
        """
        axis, unbiased = _unbiased(axis, unbiased)
        axis = one_of("var", axis, dim)
        if unbiased is not None or correction is None:
            correction = int(unbiased is not False)
        x = self._new(self._real())
        centred = x - x.mean(axis, True)
        left = self._count("var", axis) - correction
        total = (centred * centred).sum(axis, keepdim)
        if isinstance(left, UOp):
            return total / self._new_plain(alu(Op.MAX, (left, left.const_like(0))).cast(total.dtype))
        left = max(0, left)
        return total * (1 / left) if left else total / 0.0

    @in_single()
    def std(
        self,
        axis: Axes | bool = None,
        correction: Number | None = 1,
        keepdim: bool = False,
        *,
        dim: Axes = None,
        unbiased: bool | None = None,
    ) -> Self:
        """The square root of `var`. The gradient is 0 where it is 0."""
        return self.var(axis, correction, keepdim, dim=dim, unbiased=unbiased)._root(2)

    def var_mean(
        self,
        axis: Axes | bool = None,
        correction: Number | None = 1,
        keepdim: bool = False,
        *,
        dim: Axes = None,
        unbiased: bool | None = None,
    ) -> tuple[Self, Self]:
        """`var` and `mean`."""
        axis, unbiased = _unbiased(axis, unbiased)
        axis = one_of("var_mean", axis, dim)
        return self.var(axis, correction, keepdim, unbiased=unbiased), self.mean(axis, keepdim)

    def std_mean(
        self,
        axis: Axes | bool = None,
        correction: Number | None = 1,
        keepdim: bool = False,
        *,
        dim: Axes = None,
        unbiased: bool | None = None,
    ) -> tuple[Self, Self]:
        """`std` and `mean`."""
        axis, unbiased = _unbiased(axis, unbiased)
        axis = one_of("std_mean", axis, dim)
        return self.std(axis, correction, keepdim, unbiased=unbiased), self.mean(axis, keepdim)

    def _root(self, p: float) -> Self:
        """The p-th root of what is not negative, with slope 0 at 0: the lengths of vectors, where all lie in
        one point.
        """
        length = self.sqrt() if p == 2 else self ** (1.0 / p)
        zero = length.eq(0.0)
        safe = zero._choose(1.0, self)
        slope = zero._choose(0.0, 0.5 / safe.sqrt() if p == 2 else safe ** (1.0 / p - 1.0) * (1.0 / p))
        return self._new(UOp(Op.COMPOSITE, length.uop.dtype, (length.uop, self.uop, slope.uop), ("slope", ())))

    def _size_power(self, p: float) -> Self:
        """|self| ** p, with slope 0 at 0."""
        size = self.abs()
        zero = size.eq(0.0)
        slope = zero._choose(0.0, self.sign() * zero._choose(1.0, size) ** (p - 1.0) * p)
        value = size**p
        return self._new(UOp(Op.COMPOSITE, value.uop.dtype, (value.uop, self.uop, slope.uop), ("slope", ())))

    @in_single()
    def norm(self, p: float | str = 2.0, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The p-norm of vectors along axes: any number; inf and -inf are the ends, 0 counts; "fro" is 2.

        The gradient of the norm of zeros is 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3.0, 4.0]).norm().item(), Tensor([3.0, -4.0]).norm(float("inf")).item()
        (5.0, 4.0)
        """
        axis = one_of("norm", axis, dim)
        x = self._new(self._real())
        if p in ("fro", 2):
            return (x * x).sum(axis, keepdim)._root(2)
        if isinstance(p, str):
            raise ShapeError(f'norm: p is a number or "fro", not {p!r}; matrix_norm has those of matrices')
        if p == 1:
            return x.abs().sum(axis, keepdim)
        if math.isinf(p):
            return x.abs().max(axis, keepdim) if p > 0 else x.abs().min(axis, keepdim)
        if p == 0:
            return self._new(beside(x.ne(0.0).cast(x.uop.dtype).sum(axis, keepdim).uop, x))
        return x._size_power(float(p)).sum(axis, keepdim)._root(float(p))

    # -- without nan ----------------------------------------------------------------------------------------------

    def nansum(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The sum of what is not nan.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, float("nan"), 2.0]).nansum().item()
        3.0
        """
        return self.isnan()._choose(0, self).sum(axis, keepdim, dim=dim)

    @in_single()
    def nanmean(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The mean of what is not nan; nan where everything is.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, float("nan"), 2.0]).nanmean().item()
        1.5
        """
        axis = one_of("nanmean", axis, dim)
        x = self._new(self._real())
        nan = x.isnan()
        return nan._choose(0.0, x).sum(axis, keepdim) / (~nan).sum(axis, keepdim)

    @in_single()
    def nanvar(
        self, axis: Axes = None, correction: int | float = 1, keepdim: bool = False, *, dim: Axes = None
    ) -> Self:
        """The variance of what is not nan; the divisor is their count less `correction`, nan where that is
        not above 0.
        """
        axis = one_of("nanvar", axis, dim)
        x = self._new(self._real())
        nan = x.isnan()
        apart = nan._choose(0.0, x - x.nanmean(axis, True))
        left = (~nan).sum(axis, keepdim) - correction
        return (left > 0)._choose((apart * apart).sum(axis, keepdim) / left, math.nan)

    @in_single()
    def nanstd(
        self, axis: Axes = None, correction: int | float = 1, keepdim: bool = False, *, dim: Axes = None
    ) -> Self:
        """The square root of `nanvar`."""
        return self.nanvar(axis, correction, keepdim, dim=dim)._root(2)

    def nanmax(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The largest of what is not nan; nan where everything is."""
        return self._nan_extreme("nanmax", Op.MAX, axis, keepdim, dim)

    def nanmin(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The smallest of what is not nan; nan where everything is."""
        return self._nan_extreme("nanmin", Op.MIN, axis, keepdim, dim)

    def _nan_extreme(self, name: str, op: Op, axis: Axes, keepdim: bool, dim: Axes) -> Self:
        axis = one_of(name, axis, dim)
        if not self.uop.dtype.is_float:
            return self._extreme(name, op, axis, keepdim, None)
        nan = self.isnan()
        best = nan._choose(-math.inf if op is Op.MAX else math.inf, self)._extreme(name, op, axis, keepdim, None)
        return nan.all(axis, keepdim)._choose(math.nan, best)

    # -- positions ------------------------------------------------------------------------------------------------

    def _position(self, name: str, op: Op, axis: int | None, keepdim: bool) -> Self:
        u = self._kept()
        if axis is None:
            shape = u.shape
            u = nodes.reshape(u, (math.prod(shape),))
            at = 0
        else:
            at = axis_of(name, axis, len(u.shape))
            shape = u.shape
        if not u.shape:
            return self._new_plain(const(_INT32, 0))
        n = u.shape[at]
        if n == 0:
            raise ShapeError(f"{name}: shape {shape} has nothing to choose from along axis {axis}")
        best = broadcast(nodes.reduce_axis(u, op, (at,)), u.shape)
        hit = alu(Op.EQ, (u, best))
        if u.dtype.is_float:
            hit = alu(Op.OR, (hit, alu(Op.NE, (u, u))))
        place = broadcast(iota(n, at, len(u.shape)), u.shape)
        none = n if isinstance(n, UOp) else const(_INT32, n)
        first = reduce_node(elementwise(Op.WHERE, (hit, place, none), u.shape), Op.MIN, (at,), True)
        if axis is None:
            return self._new_plain(nodes.reshape(first, (1,) * len(shape) if keepdim else ()))
        return self._new_plain(first if keepdim else nodes.reshape(first, (*shape[:at], *shape[at + 1 :])))

    def argmax(self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None) -> Self:
        """The position of the first largest value (or nan) along an axis, as int32; of the flat row without one.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 5], [7, 3]]).argmax(dim=1)
        Tensor([1, 0], dtype=int32)
        """
        return self._position("argmax", Op.MAX, one_of("argmax", axis, dim), keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None) -> Self:
        """The position of the first smallest value (or nan) along an axis, as int32."""
        return self._position("argmin", Op.MIN, one_of("argmin", axis, dim), keepdim)

    # -- exponential families -------------------------------------------------------------------------------------

    def _top(self, x: Self, axis: Axes) -> Self:
        """The maximum along axes, as a constant: it shifts exponents, has no gradient of its own, and is compared with
        nothing, so that x need not be kept for it."""
        x = x.detach()
        return x._reduce("max", Op.MAX, x.uop, axis, True)

    @in_single()
    def logsumexp(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """log(sum(exp(x))) along axes, without overflow; -inf where every element is.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1000.0, 1000.0]).logsumexp().round(1)
        Tensor(1000.7, dtype=float32)
        """
        axis = one_of("logsumexp", axis, dim)
        x = self._new(self._real())
        top = self._top(x, axis)
        top = top.isinf()._choose(0.0, top)
        total = (x - top).exp().sum(axis, True).log() + top
        return total if keepdim else self._drop(total, axis)

    def _drop(self, x: Self, axis: Axes) -> Self:
        axes = axes_of("reduce", axis, x.ndim)
        return x.reshape(tuple([n for i, n in enumerate(x.shape) if i not in axes]))

    @in_single()
    def softmax(self, axis: int | None = None, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Self:
        """exp(x) divided by its sum along an axis (the last if none is named).

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 0.0]).softmax(-1)
        Tensor([0.5, 0.5], dtype=float32)
        """
        at = one_of("softmax", axis, dim, -1)
        x = self._new(self._real()) if dtype is None else self.cast(dtype)
        if not x.ndim:
            axis_of("softmax", at, 0)
            return x * 0.0 + 1.0
        if 0 in x.shape and axes_of("softmax", at, x.ndim):
            return x
        e = (x - self._top(x, at)).exp()
        return e / e.sum(at, True)

    @in_single()
    def softmin(self, axis: int | None = None, *, dim: int | None = None) -> Self:
        """`softmax` of what is negated."""
        return self.neg().softmax(axis, dim=dim)

    @in_single()
    def log_softmax(self, axis: int | None = None, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Self:
        """The logarithm of softmax, without loss.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 0.0]).log_softmax(-1).round(4)
        Tensor([-0.6931, -0.6931], dtype=float32)
        """
        at = one_of("log_softmax", axis, dim, -1)
        x = self._new(self._real()) if dtype is None else self.cast(dtype)
        if not x.ndim:
            axis_of("log_softmax", at, 0)
            return x * 0.0
        if 0 in x.shape and axes_of("softmax", at, x.ndim):
            return x
        shifted = x - self._top(x, at)
        return shifted - shifted.exp().sum(at, True).log()

    # -- running results ------------------------------------------------------------------------------------------

    @in_single()
    def cumsum(self, axis: int | None = None, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Self:
        """The sum of the elements up to and including each, along an axis.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2, 3]).cumsum(0)
        Tensor([1, 3, 6], dtype=int32)
        """
        return self._running(
            "cumsum",
            _fold(Op.ADD),
            self._summed("cumsum", one_of("cumsum", axis, dim), dtype),
            one_of("cumsum", axis, dim),
        )

    @in_single()
    def cumprod(self, axis: int | None = None, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Self:
        """The product of the elements up to and including each, along an axis."""
        return self._running("cumprod", _fold(Op.MUL), self._wide(dtype), one_of("cumprod", axis, dim))

    @in_single()
    def logcumsumexp(self, axis: int | None = None, *, dim: int | None = None) -> Self:
        """The logarithm of the running sum of exponentials along an axis, without overflow.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1000.0, 1000.0, -5.0]).logcumsumexp(0).round(1)
        Tensor([1000. , 1000.7, 1000.7], dtype=float32)
        """
        return self._running("logcumsumexp", _LOG_SUM_EXP, self._real(), one_of("logcumsumexp", axis, dim))

    def cummax(self, axis: int | None = None, *, dim: int | None = None) -> Self:
        """The largest of the elements up to and including each, along an axis (the values only)."""
        return self._running("cummax", _fold(Op.MAX), self.uop, one_of("cummax", axis, dim))

    def cummin(self, axis: int | None = None, *, dim: int | None = None) -> Self:
        """The smallest of the elements up to and including each, along an axis (the values only).

        >>> from anneal.tensor import Tensor
        >>> Tensor([3, 1, 2]).cummin(0)
        Tensor([3, 1, 1], dtype=int32)
        """
        return self._running("cummin", _fold(Op.MIN), self.uop, one_of("cummin", axis, dim))

    def diff(self, n: int = 1, dim: int = -1) -> Self:
        """Each element less the one before it along an axis, `n` times over.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 4, 9]).diff()
        Tensor([3, 5], dtype=int32)
        """
        at = axis_of("diff", dim, self.ndim)
        if not self.ndim or n < 0:
            raise ShapeError(f"diff: takes one axis or more and n >= 0, not shape {self.shape} and n = {n}")
        out = self
        for _ in range(n):
            length = out.shape[at]
            if not length:
                break
            after, before = out._slice(at, 1, length), out._slice(at, 0, length - 1)
            out = after ^ before if self.uop.dtype is dtypes.bool_ else after - before
        return out

    def _running(self, name: str, fold: _Fold, u: UOp, axis: int | None) -> Self:
        if axis is None:
            raise ShapeError(f"{name}: say along which axis, as dim=")
        at = axis_of(name, axis, len(u.shape))
        if not u.shape or most(u.shape[at]) < 2:
            return self._new(u)
        order = [i for i in range(len(u.shape)) if i != at] + [at]
        moved = nodes.permute(u, order)
        back = sorted(range(len(order)), key=order.__getitem__)
        n = moved.shape[-1]
        if isinstance(n, UOp):  # what follows the end changes nothing before it
            moved = _filled(moved, (0, most(n) - n), fold.nothing(u.dtype))
            scanned = nodes.shrink(_scan(moved, fold), tuple([(0, m) for m in (*moved.shape[:-1], n)]))
        else:
            scanned = _scan(moved, fold)
        return self._new(nodes.permute(scanned, back))


class _Fold(NamedTuple):
    """What runs along an axis: its value for nothing, for all of an axis, and for two results."""

    nothing: Callable[[DType], Number]
    along: Callable[[UOp, int], UOp]
    join: Callable[[UOp, UOp], UOp]


def _fold(op: Op) -> _Fold:
    return _Fold(
        partial(reduce_identity, op), lambda u, axis: reduce_node(u, op, (axis,), False), lambda a, b: alu(op, (a, b))
    )


def _finite(top: UOp) -> UOp:
    """0 in place of infinities: less themselves they would be nan."""
    return alu(Op.WHERE, (alu(Op.ABS, (top,)).eq(math.inf), const(top.dtype, 0), top))


def _log_sum_exp(u: UOp, axis: int) -> UOp:
    top = _finite(reduce_node(UOp(Op.DETACH, u.dtype, (u,)), Op.MAX, (axis,), True))
    total = reduce_node(alu(Op.EXP, (u - broadcast(top, u.shape),)), Op.ADD, (axis,), True)
    return nodes.reshape(alu(Op.LOG, (total,)) + top, tuple([n for i, n in enumerate(u.shape) if i != axis]))


def _log_add_exp(a: UOp, b: UOp) -> UOp:
    top = _finite(alu(Op.MAX, (UOp(Op.DETACH, a.dtype, (a,)), UOp(Op.DETACH, b.dtype, (b,)))))
    return alu(Op.LOG, (alu(Op.EXP, (a - top,)) + alu(Op.EXP, (b - top,)),)) + top


_LOG_SUM_EXP = _Fold(lambda _: -math.inf, _log_sum_exp, _log_add_exp)


def _scan(u: UOp, fold: _Fold) -> UOp:
    """Running `fold` along the last axis: inside blocks of 32, then over the blocks' totals, and so on up.

    Work and memory stay at 32 times the length, where the plain triangle would need its square.
    """
    fill = fold.nothing(u.dtype)
    levels: list[tuple[UOp, int]] = []  # what runs inside the blocks of each level, and the level's length
    while True:
        n = u.shape[-1]
        rest = u.shape[:-1]
        blocks = -(-n // _BLOCK)
        if blocks == 1:
            done = _triangle(u, fold, fill)
            break
        u = _filled(u, (0, blocks * _BLOCK - n), fill)
        inside = _triangle(nodes.reshape(u, (*rest, blocks, _BLOCK)), fold, fill)
        levels.append((inside, n))
        last = tuple([(0, m) for m in (*rest, blocks)])
        u = nodes.reshape(nodes.shrink(inside, (*last, (_BLOCK - 1, _BLOCK))), (*rest, blocks))
    for inside, n in reversed(levels):
        *rest_, blocks, _ = inside.shape
        rest = tuple(rest_)
        # each block goes on from the total of the blocks before it
        whole = tuple([(0, m) for m in rest])
        before = _filled(nodes.shrink(done, (*whole, (0, blocks - 1))), (1, 0), fill)
        carried = broadcast(nodes.reshape(before, (*rest, blocks, 1)), inside.shape)
        done = nodes.reshape(fold.join(carried, inside), (*rest, blocks * _BLOCK))
        done = nodes.shrink(done, (*whole, (0, n)))
    return done


def _filled(u: UOp, border: tuple[Size, Size], fill: Number) -> UOp:
    """`u` with elements of value `fill` before and after on its last axis."""
    pairs = (*((0, 0) for _ in u.shape[:-1]), border)
    padded = nodes.pad(u, pairs)
    if not fill or padded is u:
        return padded
    inside = nodes.pad(broadcast(const(dtypes.bool_, True), u.shape), pairs)
    return alu(Op.WHERE, (inside, padded, const(u.dtype, fill)))


def _triangle(u: UOp, fold: _Fold, fill: Number) -> UOp:
    """Running `fold` along a short last axis: each position reduces what stands at or before it."""
    n = u.shape[-1]
    shape = (*u.shape[:-1], n, n)
    row = broadcast(iota(n, 0, 2), (n, n))
    column = broadcast(iota(n, 1, 2), (n, n))
    kept = broadcast(alu(Op.NOT, (alu(Op.LT, (row, column)),)), shape)
    spread = broadcast(nodes.reshape(u, (*u.shape[:-1], 1, n)), shape)
    chosen = alu(Op.WHERE, (kept, spread, const(u.dtype, fill)))
    return fold.along(chosen, len(shape) - 1)
