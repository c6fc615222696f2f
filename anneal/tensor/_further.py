"""Names of torch and of the array API that are short to say in the ops below them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.ops import DTypeLike, axis_of, broadcast_shapes, int_args, need_tensor
from anneal.ops.nodes import Number
from anneal.tensor._statistics import Statistics
from anneal.tensor._views import members_of, need_axes
from anneal.uop import Op, UOp, dtypes

__all__ = ["Further"]


class Further(Statistics):
    """What other libraries have a name for."""

    __slots__ = ()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def fmax(self, other: Any) -> Self:
        """The larger of two elements; of a number and nan, the number. At a tie the first has the gradient.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, float("nan")]).fmax(Tensor([0.5, 2.0]))
        Tensor([1., 2.], dtype=float32)
        """
        return self._not_nan("fmax", other)

    def fmin(self, other: Any) -> Self:
        """The smaller of two elements; of a number and nan, the number."""
        return self._not_nan("fmin", other)

    def _not_nan(self, name: str, other: Any) -> Self:
        o = self._lift(name, other)
        mine = self >= o if name == "fmax" else self <= o
        out: Self = (mine | o.isnan())._choose(self, o)
        return out

    def float_power(self, exponent: Any) -> Self:
        """`self ** exponent` as floats."""
        out: Self = self._new(self._real()) ** exponent
        return out

    def logaddexp2(self, other: Any) -> Self:
        """log2(2**self + 2**other), without overflow.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1000.0]).logaddexp2(Tensor([1000.0]))
        Tensor([1001.], dtype=float32)
        """
        scale = math.log(2)
        return (self * scale).logaddexp(self._lift("logaddexp2", other) * scale) * (1 / scale)

    def ldexp(self, other: Any) -> Self:
        """self * 2**other.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 3.0]).ldexp(Tensor([4, -1]))
        Tensor([16. ,  1.5], dtype=float32)
        """
        return self * self._lift("ldexp", other).exp2()

    def gcd(self, other: Any) -> Self:
        """The greatest common divisor of integers.

        >>> from anneal.tensor import Tensor
        >>> Tensor([12, -7, 0]).gcd(Tensor([18, 21, 5]))
        Tensor([6, 7, 5], dtype=int32)
        """
        o = self._lift("gcd", other)
        if not (self.dtype.is_int and o.dtype.is_int):
            raise DTypeError(f"gcd: takes integers, not {self.dtype.name} and {o.dtype.name}")
        zero = self * 0 + o * 0
        a, b = (self + zero).abs(), (o + zero).abs()
        # Euclid's steps: after as many as Fibonacci numbers fit the dtype, b is 0.
        for _ in range(math.ceil(a.dtype.bits * 1.4405)):
            a, b = b.ne(0)._choose(b, a), b.ne(0)._choose(a % b, b)
        return a

    def lcm(self, other: Any) -> Self:
        """The least common multiple of integers.

        >>> from anneal.tensor import Tensor
        >>> Tensor([4, 0]).lcm(Tensor([6, 5]))
        Tensor([12,  0], dtype=int32)
        """
        o = self._lift("lcm", other)
        return ((self // self.gcd(o).maximum(1)) * o).abs()

    def nextafter(self, other: Any) -> Self:
        """The float next to each element, towards `other`. Its slope is 1, and 0 where both are equal; none in `other`.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0]).nextafter(Tensor([2.0])).item() - 1.0 == 2**-23
        True
        """
        o = self._lift("nextafter", other)
        if not (self.dtype.is_float and o.dtype is self.dtype and self.dtype.bits >= 32):
            raise DTypeError(f"nextafter: takes float32 or float64, not {self.dtype.name} and {o.dtype.name}")
        shape = broadcast_shapes("nextafter", self.shape, o.shape)
        x, y = self.expand(shape), o.expand(shape)
        kind = dtypes.int32 if self.dtype.bits == 32 else dtypes.int64
        bits = x.bitcast(kind)
        up = (x < y).eq(bits >= 0)  # away from 0: more bits
        grown = bits + up.cast(kind) * 2 - 1
        tiny = ((y < 0)._choose(-1.0, 1.0) * 0.0 + self._least()).copysign(y)
        moved = x.eq(0.0)._choose(tiny, grown.bitcast(self.dtype))
        out = (x.isnan() | y.isnan())._choose(math.nan, x.eq(y)._choose(y, moved))
        slope = x.ne(y).cast(self.dtype).detach()  # torch's
        moved_on = UOp(Op.COMPOSITE, x.dtype, (out.uop, x.uop, slope.uop), ("slope", ()))
        return x._new(UOp(Op.COMPOSITE, x.dtype, (moved_on, y.uop), ("beside", ())), y)

    def _least(self) -> Self:
        """The smallest denormal number, from its bits."""
        kind = dtypes.int32 if self.dtype.bits == 32 else dtypes.int64
        return (self.detach().ne(math.inf) | True).cast(kind).bitcast(self.dtype)

    def frexp(self) -> tuple[Self, Self]:
        """Mantissas of size 0.5 to 1, and the exponents of two, as int32, that they go with.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3.0, -0.5, 0.0]).frexp()
        (Tensor([ 0.75, -0.5 ,  0.  ], dtype=float32), Tensor([2, 0, 0], dtype=int32))
        """
        x = self._new(self._real())
        if x.dtype.bits != 32:
            raise DTypeError(f"frexp: takes float32, not {x.dtype.name}; cast it")
        small = x.abs() < 2.0**-100
        scaled = small._choose(x * 2.0**64, x)
        bits = scaled.bitcast(dtypes.int32)
        plain = x.eq(0.0) | ~x.isfinite()
        exponent = ((bits >> 23) & 255) - 126 - small._choose(64, 0)
        mantissa = ((bits & ~(255 << 23)) | (126 << 23)).bitcast(x.dtype)
        exponent = plain._choose(0, exponent)
        value = plain._choose(x, mantissa)
        scale = exponent.neg().cast(x.dtype).exp2()  # of the mantissa the exponent is a constant
        return x._new(UOp(Op.COMPOSITE, x.dtype, (value.uop, x.uop, scale.uop), ("slope", ()))), exponent

    def equal(self, other: Any) -> bool:
        """Whether two tensors have the same shape and the same elements.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).equal(Tensor([1, 2])), Tensor([1, 2]).equal(Tensor([1]))
        (True, False)
        """
        o = self._lift("equal", other)
        return self.shape == o.shape and (not self.numel() or bool(self.eq(o).all().item()))

    def positive(self) -> Self:
        """The tensor itself."""
        return self

    def isreal(self) -> Self:
        """True everywhere: there are no complex numbers."""
        return self.eq(self) | True

    def clamp_min(self, min: Any) -> Self:
        """`clamp(min=min)`."""
        return self.clamp(min=min)

    def clamp_max(self, max: Any) -> Self:
        """`clamp(max=max)`."""
        return self.clamp(max=max)

    # -- products ------------------------------------------------------------------------------------------------------

    def inner(self, other: Any) -> Self:
        """The inner products of the last axes.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).inner(Tensor([1, 10]))
        Tensor([21, 43], dtype=int32)
        """
        o = self._lift("inner", other)
        return self * o if not (self.ndim and o.ndim) else self.tensordot(o, ([-1], [-1]))

    def vdot(self, other: Any) -> Self:
        """The inner product of two vectors."""
        return self.dot(other)

    def addmv(self, mat: Any, vec: Any, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * (mat @ vec)."""
        return self._added("addmv", self._lift("addmv", mat).matmul(vec), beta, alpha)

    def addr(self, vec1: Any, vec2: Any, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * outer(vec1, vec2)."""
        return self._added("addr", self._lift("addr", vec1).outer(vec2), beta, alpha)

    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * (batch1 @ batch2)."""
        return self._added("baddbmm", self._lift("baddbmm", batch1).matmul(batch2), beta, alpha)

    def addbmm(self, batch1: Any, batch2: Any, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """beta * self + alpha * the sum of batch1 @ batch2 over the batch."""
        return self._added("addbmm", self._lift("addbmm", batch1).matmul(batch2).sum(0), beta, alpha)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def select(self, dim: int, index: int) -> Self:
        """The slice at `index` of an axis, which goes.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).select(1, 0)
        Tensor([1, 3], dtype=int32)
        """
        at = axis_of("select", dim, self.ndim)
        return self[(slice(None),) * at + (index,)]

    def _with(self, index: Any, src: Any) -> Self:
        out = self.clone() if not self.requires_grad else self + 0
        out[index] = src
        return out

    def select_scatter(self, src: Any, dim: int, index: int) -> Self:
        """A copy whose slice at `index` of an axis is `src`.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([9, 9]), 0, 0)
        Tensor([[9, 9],
                [3, 4]], dtype=int32)
        """
        at = axis_of("select_scatter", dim, self.ndim)
        return self._with((slice(None),) * at + (index,), src)

    def slice_scatter(
        self, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Self:
        """A copy whose elements `start:end:step` of an axis are `src`."""
        at = axis_of("slice_scatter", dim, self.ndim)
        return self._with((slice(None),) * at + (slice(start, end, step),), src)

    def tensor_split(self, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of an axis: so many of nearly equal length, or cut before each of the indices.

        >>> from anneal.tensor import Tensor
        >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).tensor_split(2)]
        [[1, 2, 3], [4, 5]]
        """
        at = axis_of("tensor_split", dim, self.ndim)
        need_axes("tensor_split", self.shape)
        n = self.shape[at]
        if isinstance(indices_or_sections, int):
            parts = indices_or_sections
            if parts < 1:
                raise ShapeError(f"tensor_split: at least one part, not {parts}")
            ends = list(itertools.accumulate(n // parts + (i < n % parts) for i in range(parts)))[:-1]
        else:
            ends = [min(max(i + n if i < 0 else i, 0), n) for i in indices_or_sections]
        bounds = [0, *ends, n]
        return tuple([self.narrow(at, a, max(0, b - a)) for a, b in itertools.pairwise(bounds)])

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """`tensor_split` of the columns (of a vector, its elements)."""
        return self.tensor_split(indices_or_sections, 1 if self.ndim > 1 else 0)

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """`tensor_split` of the rows."""
        return self.tensor_split(indices_or_sections, 0)

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """`tensor_split` of the third axis."""
        return self.tensor_split(indices_or_sections, 2)

    def diagflat(self, offset: int = 0) -> Self:
        """The matrix whose diagonal the elements are."""
        return self.reshape(-1).diag(offset)

    def sum_to_size(self, *size: Any) -> Self:
        """The sum over axes that broadcasting from `size` would have repeated.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).sum_to_size(1, 2)
        Tensor([[4, 6]], dtype=int32)
        """
        new = int_args("sum_to_size", size)
        if len(new) > self.ndim or broadcast_shapes("sum_to_size", new, self.shape) != self.shape:
            raise ShapeError(f"sum_to_size: shape {new} does not broadcast to {self.shape}")
        padded = (1,) * (self.ndim - len(new)) + new
        axes = [i for i, (a, b) in enumerate(zip(padded, self.shape, strict=True)) if a == 1 != b]
        return (self.sum(axes, keepdim=True) if axes else self).reshape(new)

    def block_diag(self, *others: Any) -> Self:
        """The matrices along the diagonal of one, zeros elsewhere.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2]]).block_diag(Tensor([[3]]))
        Tensor([[1, 2, 0],
                [0, 0, 3]], dtype=int32)
        """
        parts = [self, *[self._lift("block_diag", o) for o in others]]
        parts = [p.reshape((1,) * (2 - p.ndim) + p.shape) for p in parts]
        width, at = sum(p.shape[1] for p in parts), 0
        rows: list[Any] = []
        for p in parts:
            rows.append(p.pad((at, width - at - p.shape[1])))
            at += p.shape[1]
        out: Self = rows[0].cat(*rows[1:], dim=0)
        return out

    def cartesian_prod(self, *others: Any) -> Self:
        """Every combination of an element of each vector, a row for each.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).cartesian_prod(Tensor([3, 4])).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
        """
        parts = [self, *[self._lift("cartesian_prod", o) for o in others]]
        if any(p.ndim != 1 for p in parts):
            raise ShapeError(f"cartesian_prod: takes vectors, not shapes {[p.shape for p in parts]}")
        if len(parts) == 1:
            return self
        whole = tuple([p.shape[0] for p in parts])
        wide: list[Any] = [
            p.reshape([whole[j] if j == i else 1 for j in range(len(parts))]).expand(whole).reshape(-1)
            for i, p in enumerate(parts)
        ]
        out: Self = wide[0].stack(*wide[1:], dim=1)
        return out

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """Every choice of `r` elements of a vector, in order, a row for each.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2, 3]).combinations().tolist()
        [[1, 2], [1, 3], [2, 3]]
        """
        if self.ndim != 1:
            raise ShapeError(f"combinations: takes a vector, not shape {self.shape}")
        if r < 0:
            raise ShapeError(f"combinations: r is a count, not {r}")
        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        places = list(choose(range(self.shape[0]), r))
        return self[np.array(places, np.int32).reshape(-1)].reshape(len(places), r)

    # -- joined --------------------------------------------------------------------------------------------------------

    def atleast_1d(self) -> Self:
        """The tensor with one axis at least."""
        return self if self.ndim else self.reshape(1)

    def atleast_2d(self) -> Self:
        """The tensor with two axes at least: a vector is a row."""
        return self if self.ndim > 1 else self.reshape(1, -1)

    def atleast_3d(self) -> Self:
        """The tensor with three axes at least: a matrix is one of columns of one element, a vector its middle axis."""
        return self.atleast_2d().unsqueeze(-1) if self.ndim < 3 else self

    def hstack(self: Any, *others: Any) -> Any:
        """Tensors side by side: along the second axis, vectors along their only one.

        >>> from anneal.tensor import Tensor
        >>> Tensor.hstack(Tensor([1]), Tensor([2, 3])).tolist()
        [1, 2, 3]
        """
        parts = [t.atleast_1d() for t in members_of("hstack", self, others, None)[0]]
        return parts[0].cat(*parts[1:], dim=0 if parts[0].ndim == 1 else 1)

    def vstack(self: Any, *others: Any) -> Any:
        """Tensors one below the other, vectors as rows.

        >>> from anneal.tensor import Tensor
        >>> Tensor.vstack(Tensor([1, 2]), Tensor([3, 4])).tolist()
        [[1, 2], [3, 4]]
        """
        parts = [t.atleast_2d() for t in members_of("vstack", self, others, None)[0]]
        return parts[0].cat(*parts[1:], dim=0)

    def dstack(self: Any, *others: Any) -> Any:
        """Tensors one behind the other, along the third axis."""
        parts = [t.atleast_3d() for t in members_of("dstack", self, others, None)[0]]
        return parts[0].cat(*parts[1:], dim=2)

    def column_stack(self: Any, *others: Any) -> Any:
        """Tensors side by side, vectors as columns.

        >>> from anneal.tensor import Tensor
        >>> Tensor.column_stack(Tensor([1, 2]), Tensor([3, 4])).tolist()
        [[1, 3], [2, 4]]
        """
        parts = [t if t.ndim > 1 else t.reshape(-1, 1) for t in members_of("column_stack", self, others, None)[0]]
        return parts[0].cat(*parts[1:], dim=1)

    row_stack = vstack

    # -- names of the array API ----------------------------------------------------------------------------------------

    def astype(self, dtype: DTypeLike) -> Self:
        """`cast`."""
        return self.cast(dtype)

    def expand_dims(self, axis: int = 0) -> Self:
        """`unsqueeze`."""
        return self.unsqueeze(axis)

    def permute_dims(self, axes: Sequence[int]) -> Self:
        """`permute`."""
        return self.permute(*axes)

    def matrix_transpose(self) -> Self:
        """`mT`."""
        return self.mT

    def unstack(self, axis: int = 0) -> tuple[Self, ...]:
        """`unbind`."""
        return self.unbind(axis)

    def bitwise_invert(self) -> Self:
        """`bitwise_not`."""
        return self.bitwise_not()

    def cumulative_sum(self, axis: int | None = None, *, include_initial: bool = False) -> Self:
        """`cumsum`, with a zero before it if `include_initial`."""
        at = axis_of("cumulative_sum", 0 if axis is None and self.ndim == 1 else axis, self.ndim)  # type: ignore[arg-type]
        return self._after(self.cumsum(at), at, 0) if include_initial else self.cumsum(at)

    def cumulative_prod(self, axis: int | None = None, *, include_initial: bool = False) -> Self:
        """`cumprod`, with a one before it if `include_initial`."""
        at = axis_of("cumulative_prod", 0 if axis is None and self.ndim == 1 else axis, self.ndim)  # type: ignore[arg-type]
        return self._after(self.cumprod(at), at, 1) if include_initial else self.cumprod(at)

    def _after(self, x: Self, at: int, first: Number) -> Self:
        before: Any = x.new_full((*x.shape[:at], 1, *x.shape[at + 1 :]), first)
        out: Self = before.cat(x, dim=at)
        return out

    # -- names of torch ------------------------------------------------------------------------------------------------

    def type_as(self, other: Any) -> Self:
        """`cast(other.dtype)`."""
        return self.cast(need_tensor("type_as", "other", other).dtype)

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """`split`."""
        return self.split(list(split_sizes), dim)

    def nelement(self) -> int:
        """`numel`."""
        return self.numel()

    def ndimension(self) -> int:
        """`ndim`."""
        return self.ndim

    def new_tensor(self, data: Any) -> Self:
        """A tensor of `data` with this one's dtype and device."""
        return type(self)(data, device=self.device, dtype=self.dtype)

    def new_full(self, size: Sequence[int], fill_value: Number) -> Self:
        """A tensor of one number with this one's dtype and device."""
        return type(self)(fill_value, device=self.device, dtype=self.dtype).expand(tuple(size))

    def new_zeros(self, *size: Any) -> Self:
        """Zeros with this tensor's dtype and device."""
        return self.new_full(int_args("new_zeros", size), 0)

    def new_ones(self, *size: Any) -> Self:
        """Ones with this tensor's dtype and device."""
        return self.new_full(int_args("new_ones", size), 1)
