"""Names of torch and of the array API that are one-line functions of other ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from anneal.backend import get_device
from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import axis_in, int_args, is_tensor, need_tensor
from anneal.ops.elementwise import binary, choose, floats_of, halved, operands, sloped, standing_for
from anneal.ops.made import DTypeLike
from anneal.ops.nodes import FLOAT32, INT32, Number, broadcast, common_dtype, resized
from anneal.uop import Op, by_rule, dtypes, promote


def _not_nan(name: str, op: Op, x: Tensor, other: Any) -> Tensor:
    o = x._lift(other)
    out = choose((x >= o if op is Op.MAX else x <= o) | o.isnan(), x, o)
    return standing_for(out, halved(binary(op, x, o))) if out.requires_grad else out


fmax, fmin = family(
    _not_nan,
    "",
    """
    fmax:
    The larger of two elements; of a number and nan, the number. At a tie each side has half the gradient.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("nan")]).fmax(Tensor([0.5, 2.0]))
    Tensor([1., 2.], dtype=float32)

    fmin:
    The smaller of two elements; of a number and nan, the number.

    >>> from anneal.tensor import Tensor
    >>> Tensor([float("nan"), 5.0]).fmin(3.0)
    Tensor([3., 3.], dtype=float32)
    """,
    {
        "fmax": Op.MAX,
        "fmin": Op.MIN,
    },
)


@function("in_place lifts=number")
def float_power(x: Tensor, exponent: Any) -> Tensor:
    """`x ** exponent` in float64, or in float32 on a device that has none; shapes broadcast.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3]).float_power(2)
    Tensor([4., 9.], dtype=float64)
    """
    wide = dtypes.float64 if dtypes.float64 in get_device(x.device).limits.dtypes else FLOAT32
    return x.cast(wide) ** (exponent.cast(wide) if is_tensor(exponent) else exponent)


@function("single")
def logaddexp2(x: Tensor, other: Any) -> Tensor:
    """log2(2**x + 2**other), without overflow; shapes broadcast.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1000.0]).logaddexp2(Tensor([1000.0]))
    Tensor([1001.], dtype=float32)
    """
    scale = math.log(2)
    return (x * scale).logaddexp(x._lift(other) * scale) * (1 / scale)


@function("in_place")
def ldexp(x: Tensor, other: Any) -> Tensor:
    """x * 2**other, of two integers as float32; shapes broadcast.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 3.0]).ldexp(Tensor([4, -1]))
    Tensor([16. ,  1.5], dtype=float32)
    """
    o = x._lift(other)
    kind = promote(x.dtype, o.dtype)
    if not kind.is_float:
        kind = FLOAT32
    # products may need factors of 2**16 and 2**-25, which float16 does not have
    wide = FLOAT32 if kind.is_narrow else kind
    return (x.cast(wide) * o.cast(wide).exp2()).cast(kind)


def _alike(x: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
    """The two tensors in the dtype that they promote to."""
    a, b = common_dtype(x.uop, o.uop)
    return x._new(a), o._new(b)


@function("in_place")
def gcd(x: Tensor, other: Any) -> Tensor:
    """The greatest common divisor of integers.

    >>> from anneal.tensor import Tensor
    >>> Tensor([12, -7, 0]).gcd(Tensor([18, 21, 5]))
    Tensor([6, 7, 5], dtype=int32)
    """
    x, o = _alike(x, x._lift(other))
    if not (x.dtype.is_int and o.dtype.is_int):
        raise DTypeError(f"gcd: takes integers, not {x.dtype.name} and {o.dtype.name}")
    zero = x * 0 + o * 0
    a, b = (x + zero).abs(), (o + zero).abs()
    # Euclid's steps: after as many as Fibonacci numbers fit the dtype, b is 0.
    for _ in range(math.ceil(a.dtype.bits * 1.4405)):
        more = b.ne(0)
        a, b = choose(more, b, a), choose(more, a % choose(more, b, 1), b)
    return a.abs()  # the least integer is its own absolute value


@function("in_place")
def lcm(x: Tensor, other: Any) -> Tensor:
    """The least common multiple of integers.

    >>> from anneal.tensor import Tensor
    >>> Tensor([4, 0]).lcm(Tensor([6, 5]))
    Tensor([12,  0], dtype=int32)
    """
    x, o = _alike(x, x._lift(other))
    return ((x // x.gcd(o).maximum(1)) * o).abs()


@function("in_place array_api")
def nextafter(x: Tensor, other: Any) -> Tensor:
    """The float next to each element, towards `other`. Its slope is 1, and 0 where both are equal; none in `other`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).nextafter(Tensor([2.0])).item() - 1.0 == 2**-23
    True
    """
    a, b, shape, o = operands(x, other)
    dtype = a.dtype
    if not dtype.is_float or dtype.bits < 16:
        raise DTypeError(f"nextafter: takes floats of 16 bits or more, not {x.dtype.name} and {o.dtype.name}")
    wide, y = x._new(broadcast(a, shape)), o._new(broadcast(b, shape))
    kind = {16: dtypes.int16, 32: INT32, 64: dtypes.int64}[dtype.bits]
    bits = wide.bitcast(kind)
    up = (wide < y).eq(bits >= 0)  # away from 0: more bits
    grown = bits + up.cast(kind) * 2 - 1
    least = (x.detach().ne(math.inf) | True).cast(kind).bitcast(dtype)  # the smallest denormal number, from its bits
    tiny = (choose(y < 0, -1.0, 1.0).cast(dtype) * 0.0 + least).copysign(y)
    moved = choose(wide.eq(0.0), tiny, grown.bitcast(dtype))
    out = choose(wide.isnan() | y.isnan(), math.nan, choose(wide.eq(y), y, moved))
    slope = wide.ne(y).cast(dtype).detach()  # torch's
    return wide._new(by_rule("beside", sloped(out, wide, slope).uop, y.uop), y)


class Frexp(NamedTuple):
    """The result of `frexp`: each element is `mantissa` times two to the `exponent`."""

    mantissa: Tensor
    exponent: Tensor


@function
def frexp(x: Tensor) -> Frexp:
    """Mantissas of size 0.5 to 1, and the exponents of two, as int32, that they go with.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3.0, -0.5, 0.0]).frexp()
    Frexp(mantissa=Tensor([ 0.75, -0.5 ,  0.  ], dtype=float32), exponent=Tensor([2, 0, 0], dtype=int32))
    """
    x = floats_of(x)
    dtype = x.uop.dtype
    if dtype.bits == 16:
        wide = x.float().frexp()
        return Frexp(wide.mantissa.cast(dtype), wide.exponent)
    if dtype.bits != 32:
        raise DTypeError(f"frexp: takes floats of 16 and 32 bits, not {dtype.name}; cast it")
    small = x.abs() < 2.0**-100
    scaled = choose(small, x * 2.0**64, x)
    bits = scaled.bitcast(INT32)
    plain = x.eq(0.0) | ~x.isfinite()
    exponent = ((bits >> 23) & 255) - 126 - choose(small, 64, 0)
    mantissa = ((bits & ~(255 << 23)) | (126 << 23)).bitcast(dtype)
    exponent = choose(plain, 0, exponent)
    value = choose(plain, x, mantissa)
    scale = exponent.neg().cast(dtype).exp2()  # of the mantissa the exponent is a constant
    return Frexp(sloped(value, x, scale), exponent)


@function
def equal(x: Tensor, other: Any) -> bool:
    """True if two tensors have the same shape and the same elements.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).equal(Tensor([1, 2])), Tensor([1, 2]).equal(Tensor([1]))
    (True, False)
    """
    o = x._lift(other)
    return x.shape == o.shape and (not x.numel() or bool(x.eq(o).all().item()))


@function("itself function_alias=alias_copy array_api")
def positive(x: Tensor) -> Tensor:
    """The tensor itself.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1, 2]).positive()
    Tensor([-1,  2], dtype=int32)
    """
    return x


@function
def isreal(x: Tensor) -> Tensor:
    """True everywhere: there are no complex numbers.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).isreal()
    Tensor([ True,  True], dtype=bool)
    """
    return x.eq(x) | True


@function("in_place")
def clamp_min(x: Tensor, min: Any) -> Tensor:
    """The elements, none below `min`: `clamp(min=min)`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 5]).clamp_min(3)
    Tensor([3, 5], dtype=int32)
    """
    return x.clamp(min=min)


@function("in_place")
def clamp_max(x: Tensor, max: Any) -> Tensor:
    """The elements, none above `max`: `clamp(max=max)`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 5]).clamp_max(3)
    Tensor([1, 3], dtype=int32)
    """
    return x.clamp(max=max)


# -- names of the array API -------------------------------------------------------------------------------------------


@function
def astype(x: Tensor, dtype: DTypeLike) -> Tensor:
    """Another name of `cast`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.7]).astype("int32")
    Tensor([1], dtype=int32)
    """
    return x.cast(dtype)


@function("view")
def expand_dims(x: Tensor, axis: int = 0) -> Tensor:
    """Another name of `unsqueeze`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).expand_dims(1).shape
    (2, 1)
    """
    return x.unsqueeze(axis)


@function("view")
def permute_dims(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Another name of `permute`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(2, 3, 4).permute_dims((2, 0, 1)).shape
    (4, 2, 3)
    """
    return x.permute(*axes)


@function("view alias=adjoint array_api linalg")
def matrix_transpose(x: Tensor) -> Tensor:
    """The last two axes exchanged: another name of `mT`, and of `mH`, since numbers are real.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).matrix_transpose()
    Tensor([[1, 3],
            [2, 4]], dtype=int32)
    """
    return x.mT


@function
def bitwise_invert(x: Tensor) -> Tensor:
    """Another name of `bitwise_not`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0, 5]).bitwise_invert()
    Tensor([-1, -6], dtype=int32)
    """
    return x.bitwise_not()


def _cumulative(
    running: str, first: Number, x: Tensor, axis: int | None = None, *, include_initial: bool = False
) -> Tensor:
    at = axis_in(0 if axis is None and x.ndim == 1 else axis, x)  # type: ignore[arg-type]
    out: Tensor = getattr(x, running)(at)
    return out.new_full(resized(x.shape, at, 1), first).cat(out, dim=at) if include_initial else out


cumulative_sum, cumulative_prod = family(
    _cumulative,
    "",
    """
    cumulative_sum:
    `cumsum`, with a zero before it if `include_initial`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3, 4]).cumulative_sum(include_initial=True)
    Tensor([0, 2, 5, 9], dtype=int32)

    cumulative_prod:
    `cumprod`, with a one before it if `include_initial`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3, 4]).cumulative_prod()
    Tensor([ 2,  6, 24], dtype=int32)
    """,
    {
        "cumulative_sum": ("cumsum", 0),
        "cumulative_prod": ("cumprod", 1),
    },
)


@function("method=no")
def rsub(x: Tensor, other: Any, alpha: Number = 1) -> Tensor:
    """other - alpha * x, in the shape that both broadcast to.

    >>> from anneal.tensor import Tensor
    >>> rsub(Tensor([1, 2]), 10)
    Tensor([9, 8], dtype=int32)
    """
    return x._lift(other).sub(x, alpha)


@function("method=no")
def fill(x: Tensor, value: Any) -> Tensor:
    """A tensor filled with one number, or with a tensor of shape (), in this tensor's shape and dtype.

    >>> from anneal.tensor import Tensor
    >>> fill(Tensor([1.0, 2.0]), 3)
    Tensor([3., 3.], dtype=float32)
    """
    return x.clone().fill_(value)


@function("itself")
def type_as(x: Tensor, other: Any) -> Tensor:
    """The tensor in the dtype of `other`: `cast(other.dtype)`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.7]).type_as(Tensor([1]))
    Tensor([1], dtype=int32)
    """
    return x.cast(need_tensor("other", other).dtype)


@function("function_alias=split_with_sizes_copy view")
def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Another name of `split`, for a list of sizes.

    >>> from anneal.tensor import Tensor
    >>> [part.tolist() for part in Tensor([1, 2, 3]).split_with_sizes([1, 2])]
    [[1], [2, 3]]
    """
    return x.split(list(split_sizes), dim)


@function
def nelement(x: Tensor) -> int:
    """The number of elements, as `numel`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2]]).nelement()
    2
    """
    return x.numel()


@function
def ndimension(x: Tensor) -> int:
    """The number of axes, as `ndim`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2]]).ndimension()
    2
    """
    return x.ndim


@function
def new_tensor(
    x: Tensor,
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of `data` with this one's dtype and device, unless others are given.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).new_tensor([2, 3])
    Tensor([2., 3.], dtype=float32)
    """
    out = x._made(data, device=device or x.device, dtype=x.dtype if dtype is None else dtype)
    return out.requires_grad_() if requires_grad else out


@function
def new_full(
    x: Tensor,
    size: Sequence[int],
    fill_value: Number,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one number with this one's dtype and device, unless others are given.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1]).new_full((2,), 7)
    Tensor([7, 7], dtype=int32)
    """
    one = x._made(fill_value, device=device or x.device, dtype=x.dtype if dtype is None else dtype)
    out = one.expand(tuple(size))
    return out.requires_grad_() if requires_grad else out


def _new_filled(
    name: str,
    value: int,
    x: Tensor,
    *size: Any,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    return x.new_full(int_args(size), value, dtype=dtype, device=device, requires_grad=requires_grad)


new_zeros, new_ones, new_empty = family(
    _new_filled,
    "",
    """
    new_zeros:
    Zeros with this tensor's dtype and device, unless others are given.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1]).new_zeros(2)
    Tensor([0, 0], dtype=int32)

    new_ones:
    Ones with this tensor's dtype and device, unless others are given.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1]).new_ones(2)
    Tensor([1, 1], dtype=int32)

    new_empty:
    A tensor of unspecified values, with this tensor's dtype and device, unless others are given.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1]).new_empty(2, 3).shape
    (2, 3)
    """,
    {
        "new_zeros": 0,
        "new_ones": 1,
        "new_empty": 0,
    },
)


@function
def new(x: Tensor, *data: Any, device: str | None = None) -> Tensor:
    """torch's older `new_empty` of ints, or of a tuple of sizes, and `new_tensor` of other `data`, on `device`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).new(2, 3).shape, Tensor([1.0]).new([2, 3])
    ((2, 3), Tensor([2., 3.], dtype=float32))
    """
    if all(isinstance(n, (int, tuple)) for n in data):
        return x.new_empty(*data, device=device)
    return x.new_tensor(data[0], device=device)


@function
def new_empty_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """`new_empty(size)`, with its options. Tensors have no strides of their own: only the length of `stride` is
    checked.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1]).new_empty_strided((2, 3), (1, 2)).shape
    (2, 3)
    """
    if len(size) != len(stride):
        raise ShapeError(f"new_empty_strided: {len(size)} sizes and {len(stride)} strides")
    return x.new_empty(size, **options)


@function
def stride(x: Tensor, dim: int | None = None) -> tuple[int, ...] | int:
    """The strides, in elements, of a contiguous tensor of this shape: one for each axis, or that of `dim`. Nodes have
    no memory of their own.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 3, 4).stride(), Tensor.zeros(2, 3, 4).stride(0)
    ((12, 4, 1), 12)
    """
    steps = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    return tuple(steps) if dim is None else steps[axis_in(dim, x)]


@function
def is_contiguous(x: Tensor) -> bool:
    """True: the compiler chooses how a view is read, and every tensor counts as contiguous.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2]]).T.is_contiguous()
    True
    """
    return True
