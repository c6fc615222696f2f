"""Functions element by element, along axes, and of shapes and positions: the standard's names for ops of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal import ops
from anneal.array_api._dtypes import result_type, standards
from anneal.errors import DTypeError, ShapeError
from anneal.ops import as_dtype, axis_of, broadcast_shapes as _broadcast_shapes
from anneal.tensor import DType, Tensor, broadcast_tensors, dtypes

_Unary = Callable[[Tensor], Tensor]
_Binary = Callable[[Any, Any], Tensor]


def _one(op: Callable[..., Tensor], said: str) -> _Unary:
    def function(x: Tensor, /) -> Tensor:
        return op(x)

    function.__doc__ = said
    return function


def _two(op: Callable[..., Tensor], said: str) -> _Binary:
    def function(x1: Any, x2: Any, /) -> Tensor:
        if isinstance(x1, Tensor):
            return op(x1, x2)
        name = function.__name__
        if not isinstance(x2, Tensor):
            raise DTypeError(f"{name}: one of the two is an array; asarray makes one of a number")
        return op(x2._lift(x1, name), x2)

    function.__doc__ = said
    return function


def _floored(x: Tensor, y: Any) -> Tensor:
    """The floor of a quotient, by the standard's table of infinities: inf // 2 is inf, 1 // -inf is -0.0."""
    q: Tensor = ops.floor_divide(x, y)
    if not q.dtype.is_float:
        return q
    far = ops.isinf(x)
    if isinstance(y, Tensor) or math.isinf(y):
        far = far | ops.isinf(x._lift(y, "floor_divide"))
    return far.where(ops.div(x, y), q)


def _of_integers(op: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """An op that leaves integers as they are."""
    return lambda x: op(x) if x.dtype.is_float else x


abs = _one(ops.abs, "The size of each element.")
acos = _one(ops.acos, "The inverse cosine.")
acosh = _one(ops.acosh, "The inverse hyperbolic cosine.")
asin = _one(ops.asin, "The inverse sine.")
asinh = _one(ops.asinh, "The inverse hyperbolic sine.")
atan = _one(ops.atan, "The inverse tangent.")
atanh = _one(ops.atanh, "The inverse hyperbolic tangent.")
bitwise_invert = _one(ops.bitwise_not, "Every bit the other way; of bools, not.")
ceil = _one(_of_integers(ops.ceil), "The least integer that is not below.")
conj = _one(lambda x: x, "The complex conjugate: of real numbers, themselves.")
cos = _one(ops.cos, "The cosine.")
cosh = _one(ops.cosh, "The hyperbolic cosine.")
exp = _one(ops.exp, "e to the power of each element.")
expm1 = _one(ops.expm1, "exp(x) - 1, with its digits near 0.")
floor = _one(_of_integers(ops.floor), "The largest integer that is not above.")
imag = _one(ops.zeros_like, "The imaginary part: of real numbers, 0.")
isfinite = _one(ops.isfinite, "True where an element is neither infinite nor nan.")
isinf = _one(ops.isinf, "True where an element is infinite.")
isnan = _one(ops.isnan, "True where an element is nan.")
log = _one(ops.log, "The natural logarithm.")
log1p = _one(ops.log1p, "log(1 + x), with its digits near 0.")
log2 = _one(ops.log2, "The logarithm to base 2.")
log10 = _one(ops.log10, "The logarithm to base 10.")
logical_not = _one(ops.logical_not, "True where an element is 0.")
negative = _one(ops.neg, "Minus each element.")
positive = _one(ops.positive, "Each element as it is.")
real = _one(lambda x: x, "The real part: of real numbers, themselves.")
reciprocal = _one(ops.reciprocal, "1 over each element.")
round = _one(_of_integers(ops.round), "The nearest integer, of two the even one.")
sign = _one(ops.sign, "-1, 0 or 1.")
signbit = _one(ops.signbit, "True where the sign is minus, also of -0.0 and nan.")
sin = _one(ops.sin, "The sine.")
sinh = _one(ops.sinh, "The hyperbolic sine.")
sqrt = _one(ops.sqrt, "The square root.")
square = _one(standards(ops.square), "Each element times itself.")
tan = _one(ops.tan, "The tangent.")
tanh = _one(ops.tanh, "The hyperbolic tangent.")
trunc = _one(_of_integers(ops.trunc), "The nearest integer that is not farther from 0.")

add = _two(standards(ops.add), "x1 + x2.")
atan2 = _two(ops.atan2, "The angle of the point (x2, x1).")
bitwise_and = _two(ops.bitwise_and, "The bits that both have.")
bitwise_left_shift = _two(standards(ops.bitwise_left_shift), "The bits of x1 moved up by x2 places.")
bitwise_or = _two(ops.bitwise_or, "The bits that either has.")
bitwise_right_shift = _two(ops.bitwise_right_shift, "The bits of x1 moved down by x2 places.")
bitwise_xor = _two(ops.bitwise_xor, "The bits that one of both has.")
copysign = _two(ops.copysign, "The size of x1 with the sign of x2.")
divide = _two(ops.div, "x1 / x2, a float.")
equal = _two(ops.eq, "True where x1 == x2.")
floor_divide = _two(
    _floored,
    "The largest integer that is not above x1 / x2; of infinities x1 / x2, where `x1 // x2` is Python's.",
)
greater = _two(ops.gt, "True where x1 > x2.")
greater_equal = _two(ops.ge, "True where x1 >= x2.")
hypot = _two(ops.hypot, "The square root of x1**2 + x2**2, without overflow.")
less = _two(ops.lt, "True where x1 < x2.")
less_equal = _two(ops.le, "True where x1 <= x2.")
logaddexp = _two(ops.logaddexp, "log(exp(x1) + exp(x2)), without overflow.")
logical_and = _two(ops.logical_and, "True where both differ from 0.")
logical_or = _two(ops.logical_or, "True where either differs from 0.")
logical_xor = _two(ops.logical_xor, "True where exactly one differs from 0.")
maximum = _two(ops.maximum, "The larger one; nan if either is.")
minimum = _two(ops.minimum, "The smaller one; nan if either is.")
multiply = _two(standards(ops.mul), "x1 * x2.")
nextafter = _two(ops.nextafter, "The float next to x1, towards x2.")
not_equal = _two(ops.ne, "True where x1 != x2.")
pow = _two(standards(ops.pow), "x1 to the power of x2.")
remainder = _two(ops.remainder, "The remainder of floor_divide, with the sign of x2.")
subtract = _two(standards(ops.sub), "x1 - x2.")


for _name, _function in [*globals().items()]:
    if getattr(_function, "__name__", "") == "function":
        _function.__name__ = _function.__qualname__ = _name
        _function.__module__ = "anneal.array_api"


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements clamped to [min, max], in the dtype of x; either may be left out, or be an array that broadcasts.

    >>> clip(Tensor([1, 5, 9]), 2, 6)
    Tensor([2, 5, 6], dtype=int32)
    """
    for bound in (min, max):
        if isinstance(bound, Tensor) and bound.dtype is not x.dtype and bound.dtype.is_float and not x.dtype.is_float:
            raise DTypeError(f"clip: bounds of {bound.dtype.name} for {x.dtype.name}; use astype")
    if min is None and max is None:
        return x
    return x.clamp(min, max).cast(x.dtype) if x.dtype is not dtypes.bool_ else x


# -- reductions and orders --------------------------------------------------------------------------------------------
# Sums and their like along axes, searches, orders.


def _summed(x: Tensor, dtype: Any) -> DType:
    """The dtype to add up in: integers narrower than 32 bits widen to 32, by their kind."""
    if dtype is not None:
        return as_dtype(dtype)
    if x.dtype.is_float or x.dtype.bits >= 32:
        return x.dtype
    return dtypes.uint32 if x.dtype.kind == "uint" else dtypes.int32


@standards
def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum along axes; 0 over nothing. Integers narrower than 32 bits give those of 32 bits, of their kind. One that
    the dtype does not hold wraps around and warns, where `Tensor.sum` is int64 or raises; with `dtype` it wraps around
    in that.

    >>> sum(Tensor([[1, 2], [3, 4]]), axis=0)
    Tensor([4, 6], dtype=int32)
    """
    kind = _summed(x, dtype)
    return x.cast(kind).sum(axis, keepdims, dtype=None if dtype is None else kind)


@standards
def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product along axes; 1 over nothing. Dtypes as those of `sum`."""
    kind = _summed(x, dtype)
    return x.cast(kind).prod(axis, keepdims, dtype=None if dtype is None else kind)


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean along axes; nan over nothing."""
    return x.mean(axis, keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along axes, whose divisor is the count less `correction`."""
    return x.var(axis, correction, keepdims)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`."""
    return x.std(axis, correction, keepdims)


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest value along axes; nan if there is one."""
    return x.amax(axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest value along axes; nan if there is one."""
    return x.amin(axis, keepdims)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """A test that every element along axes differs from 0, as bool."""
    return x.all(axis, keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """A test that some element along axes differs from 0, as bool."""
    return x.any(axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The number of elements that differ from 0, int32: of the whole array, or along `axis`; `keepdims` keeps it with
    size 1.
    """
    return x.ne(0).cast(dtypes.int32).sum(axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element, int32: along `axis`, or in the flattened array where it is None;
    `keepdims` keeps reduced axes with size 1.
    """
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element, int32: along `axis`, or in the flattened array where it is None;
    `keepdims` keeps reduced axes with size 1.
    """
    return x.argmin(axis, keepdims)


def _one_axis(name: str, x: Tensor, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{name}: axis is needed for shape {x.shape}")
    return axis_of(-1 if axis is None else axis, x.ndim, name)


@standards
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sums of the elements so far, after a 0 if `include_initial`. Dtypes as those of `sum`."""
    at = _one_axis("cumulative_sum", x, axis)
    kind = _summed(x, dtype)
    return x.cast(kind).cumulative_sum(at, include_initial=include_initial).cast(kind)


@standards
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The products of the elements so far, after a 1 if `include_initial`. Dtypes as those of `sum`."""
    at = _one_axis("cumulative_prod", x, axis)
    kind = _summed(x, dtype)
    return x.cast(kind).cumulative_prod(at, include_initial=include_initial).cast(kind)


@standards
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The difference of each element and the one before, n times, after `prepend` and `append` are joined.

    >>> diff(Tensor([1, 4, 9]))
    Tensor([3, 5], dtype=int32)
    """
    parts = [part for part in (prepend, x, append) if part is not None]
    y = Tensor.cat(parts, dim=axis) if len(parts) > 1 else x
    at: int = axis_of(axis, y.ndim, "diff")
    for _ in range(n):
        size = y.shape[at]
        if size == 0:
            break
        late, early = y.narrow(at, 1, size - 1), y.narrow(at, 0, size - 1)
        y = late.ne(early) if y.dtype is dtypes.bool_ else late - early
    return y


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere. One of both may be a number.

    >>> where(Tensor([True, False]), Tensor([1, 2]), 0)
    Tensor([1, 0], dtype=int32)
    """
    return condition.where(x1, x2)


# -- orders -----------------------------------------------------------------------------------------------------------


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of the elements in ascending order: int32. Equal ones keep their order, whatever `stable` says."""
    return x.argsort(axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in ascending order along an axis."""
    return x.sort(axis, descending)[0]


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The insertion points, int32 in x2's shape, that keep the ascending vector x1 in order: before equal elements, or
    after them by side="right". `sorter` has the indices that sort x1.

    >>> searchsorted(Tensor([1, 2, 2, 3]), Tensor([2, 9]), side="right")
    Tensor([3, 4], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ShapeError(f'searchsorted: side is "left" or "right", not {side!r}')
    row = x1 if sorter is None else x1.take(sorter)
    return row.searchsorted(x2, right=side == "right")


# -- shapes and positions ---------------------------------------------------------------------------------------------


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays in one shape."""
    return list(broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which arrays of these shapes meet."""
    return tuple(_broadcast_shapes(*shapes, name="broadcast_shapes"))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """x in a shape that it broadcasts to."""
    return x.broadcast_to(shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other along an axis; flat ones if it is None.

    >>> concat([Tensor([1]), Tensor([2, 3])])
    Tensor([1, 2, 3], dtype=int32)
    """
    parts = [x.reshape(-1) for x in arrays] if axis is None else list(arrays)
    return Tensor.cat(parts, dim=axis or 0)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    return Tensor.stack(list(arrays), dim=axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of an axis, without it."""
    return tuple(x.unbind(axis))


def expand_dims(x: Tensor, /, axis: Any = 0) -> Tensor:
    """x with new axes of size 1 at these places of the result."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    places = sorted([axis_of(a, ndim, "expand_dims") for a in axes])
    if len(set(places)) < len(places):
        raise ShapeError(f"expand_dims: an axis is named twice in {axis}")
    for at in places:
        x = x.unsqueeze(at)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without these axes, whose size is 1. Raises ShapeError for another size."""
    axes = [axis_of(a, x.ndim, "squeeze") for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    for a in axes:
        if x.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of shape {x.shape} has {x.shape[a]} elements, not 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """x with these axes reversed, all of them if none is named."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return x.flip(axes) if axes else x


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x moved along axes, what leaves at one end entering at the other; as one flat row without an axis."""
    return x.roll(shift, axis)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """x with axes moved; the others keep their order."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its axes in this order."""
    return x.permute(axes)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements, in their order, in another shape; one size may be -1."""
    return x.reshape(shape)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row, along an axis or of the flat array. An array of counts has one for each
    element of the axis; its values are read at once.

    >>> repeat(Tensor([1, 2]), Tensor([1, 2]))
    Tensor([1, 2, 2], dtype=int32)
    """
    if axis is None:
        x, axis = x.reshape(-1), 0
    if not isinstance(repeats, Tensor):
        return x.repeat_interleave(repeats, axis)
    at = axis_of(axis, x.ndim, "repeat")
    counts = repeats.tolist() if repeats.ndim else [repeats.item()]
    counts = counts * x.shape[at] if len(counts) == 1 else counts
    if len(counts) != x.shape[at]:
        raise ShapeError(f"repeat: {len(counts)} counts for axis {axis} of shape {x.shape}")
    return x.index_select(at, Tensor([i for i, n in enumerate(counts) for _ in range(n)], x.device, "int32"))


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Copies of x beside each other along its axes; missing counts are 1, further ones are of new axes in front."""
    return x.tile(tuple(repetitions))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The positions `indices` of an axis, which may be left out for a vector."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: axis is needed for shape {x.shape}")
    return x.index_select(-1 if axis is None else axis, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements of x along an axis at `indices`, which has as many axes and broadcasts."""
    return x.take_along_dim(indices, axis)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """A test of each element of x1 for being among those of x2, as bool."""
    x = x1 if isinstance(x1, Tensor) else x2._lift(x1, "isin")
    found = x.isin(x2)
    return ~found if invert else found


# -- products ---------------------------------------------------------------------------------------------------------


@standards
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return x1.matmul(x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


@standards
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over the last `axes` of x1 and the first of x2, or over two lists of axes in pairs."""
    return x1.tensordot(x2, axes)


@standards
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along an axis, counted from the end, which has one size in both. One of integers
    that their dtype does not hold wraps around and warns. Raises ShapeError for two sizes.
    """
    if -x1.ndim <= axis < 0 and -x2.ndim <= axis and x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot: axis {axis} of shapes {x1.shape} and {x2.shape} must have one size")
    made, kind = x1.vecdot(x2, axis), result_type(x1, x2)
    return made if kind.bits == 32 else made.cast(kind)


# -- functions whose result's size depends on values ------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The result of `unique_all`: `values`, the `indices` of their first occurrences, `inverse_indices` in the array's
    shape, and `counts`; indices are int32.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`: the distinct `values`, and their `counts`, int32."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`: the distinct `values`, and `inverse_indices`, int32, with values[inverse_indices]
    equal to the array.
    """

    values: Tensor
    inverse_indices: Tensor


def _places(a: Any, x: Tensor) -> Tensor:
    return Tensor(np.asarray(a, np.int32), x.device)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of the elements that differ from 0, an int32 vector for each axis. Values are read at once.

    >>> nonzero(Tensor([0, 5, 7]))
    (Tensor([1, 2], dtype=int32),)
    """
    if not x.ndim:
        raise ShapeError("nonzero: an array of shape () has no axis")
    return tuple([_places(a, x) for a in np.nonzero(x.numpy())])


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values, ascending; where each was first, which of them each element is, and how often each occurs,
    int32. Every nan is another value. Values are read at once.

    >>> unique_all(Tensor([3, 1, 3])).values
    Tensor([1, 3], dtype=int32)
    """
    values, first, inverse, counts = np.unique(
        x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return UniqueAll(
        Tensor(values, x.device), _places(first, x), _places(inverse, x).reshape(x.shape), _places(counts, x)
    )


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values, ascending, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, ascending, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values, ascending."""
    return unique_all(x).values
