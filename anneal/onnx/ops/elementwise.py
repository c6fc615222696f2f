"""Elementwise operators: a table, a function for each of the others; casts; and helpers of several families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from anneal.errors import DTypeError
from anneal.onnx.execute import fail, node
from anneal.onnx.registry import op, rows
from anneal.onnx.values import NpDType, Sizes, array_code, dtype_named, element_bits, element_name, fits_device, objects
from anneal.runtime import Fun
from anneal.tensor import Tensor, dtypes

Array = np.ndarray[Any, Any]
Value = Tensor | Array
Tensors = tuple[Tensor, ...]
# Inputs and attributes that a node may leave off.
MaybeTensor = Tensor | None
MaybeArray = Array | None
MaybeValue = Value | None
Numbers = Sequence[int] | None
Floats = Sequence[float] | None
Texts = Sequence[str] | None


def is_float(x: Value) -> bool:
    """True if the elements are floats, of any width."""
    return bool(x.dtype.name.startswith(("bfloat", "float")))


def floats(x: Tensor) -> Tensor:
    """x, as float32 if its elements are no floats."""
    return x if is_float(x) else x.float()


def single(x: Array) -> Any:
    """The one element of an array, as Python's number; of `Sizes` it may be a node."""
    return (x.items if isinstance(x, Sizes) else x).reshape(()).item()


def whole(x: Array) -> int:
    """The one element of an array as a whole number, which does not follow from Variables."""
    return int(single(x))


def ints(x: Array | Sequence[int]) -> list[Any]:
    """The elements of an array of one axis (or of none) as Python's integers; those of `Sizes` may be nodes."""
    return list(np.asarray(objects(x)).reshape(-1).tolist())


def plus(x: Tensor, more: MaybeTensor) -> Tensor:
    """x and what an optional input adds to it."""
    return x if more is None else x + more


def total_of(parts: Sequence[Tensor]) -> Tensor:
    """The sum of values of which there is one at least."""
    return reduce(Tensor.add, parts)


def counted(x: Tensor) -> Tensor:
    """Positions as int64, which the standard has for them; as they are where a device has no integers of 64 bits."""
    try:
        return x.cast(dtypes.int64)
    except DTypeError:
        return x


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from 0; an error that names the node for one that does not exist."""
    if not -ndim <= axis < max(ndim, 1):
        raise fail(f"axis {axis} of a value of {ndim} axes")
    return axis + ndim if axis < 0 else axis


def axes_of(axes: Numbers, ndim: int) -> list[int]:
    """Axes counted from 0, all of them if none are named."""
    return list(range(ndim)) if axes is None else [axis_of(a, ndim) for a in axes]


def iota(x: Tensor, count: int, axis: int, ndim: int) -> Tensor:
    """0 to count - 1 along one of `ndim` axes, as int32 on the device of x."""
    return Tensor.arange(count, device=x.device).reshape([count if i == axis else 1 for i in range(ndim)])


def _functions(words: str) -> dict[str, tuple[Callable[..., Tensor], Fun]]:
    """Functions of Tensors and of arrays by operators' names, from their names: "Add=add Mul=mul/multiply ..."."""
    found = {}
    for name, names in [word.split("=") for word in words.split()]:
        on_device, *on_host = names.split("/")
        found[name] = getattr(Tensor, on_device), getattr(np, (on_host or [on_device])[0])
    return found


# -- operators of one value --------------------------------------------------------------------------------------------

# Operators that are methods of Tensor; a value on the host is moved to the device for them.
_METHODS = (
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf HardSwish Mish Relu Sigmoid Sin Sinh Softplus Softsign Tan Tanh"
)
rows({name: getattr(Tensor, name.lower()) for name in _METHODS.split()})

for _name, (_on_device, _of_arrays) in _functions(
    "Abs=abs BitwiseNot=bitwise_not Ceil=ceil Exp=exp Floor=floor IsNaN=isnan Log=log Neg=neg/negative "
    "Not=logical_not Reciprocal=reciprocal Round=round Sign=sign Sqrt=sqrt"
).items():
    op(_name, host=_of_arrays)(_on_device)

# with attributes
rows(
    {
        "Celu": lambda x, *, alpha: x.celu(alpha),
        "Elu": lambda x, *, alpha: x.elu(alpha),
        "Gelu": lambda x, *, approximate: x.gelu(approximate),
        "HardSigmoid": lambda x, *, alpha, beta: (x * alpha + beta).clamp(0.0, 1.0),
        "LeakyRelu": lambda x, *, alpha: x.leaky_relu(alpha),
        # version 1 has fewer digits in its defaults
        "Selu": lambda x, *, alpha, gamma: (x > 0).where(x, x.minimum(0).expm1() * alpha) * gamma,
        "Swish": lambda x, *, alpha: x.silu() if alpha == 1 else x * (x * alpha).sigmoid(),
        "ThresholdedRelu": lambda x, *, alpha: (x > alpha).where(x, x.zeros_like()),
        "Mean": lambda *xs: total_of(xs) / len(xs),
    }
)

# floats with fmod=0 since version 28
op("Mod", host=lambda a, b, *, fmod: np.fmod(a, b) if fmod else np.mod(a, b))(
    lambda a, b, *, fmod: a.fmod(b) if fmod else a.remainder(b)
)


@op
def Shrink(x: Tensor, *, bias: float, lambd: float) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, 0 between; integers are computed as floats."""
    wide = floats(x)
    return (wide < -lambd).where(wide + bias, (wide > lambd).where(wide - bias, 0.0)).cast(x.dtype)


@op
def IsInf(x: Tensor, *, detect_negative: int, detect_positive: int) -> Tensor:
    """True for each element that is one of the infinities asked for."""
    if detect_negative and detect_positive:
        return x.isinf()
    if detect_negative:
        return x.isneginf()
    return x.isposinf() if detect_positive else x.zeros_like(dtype="bool")


@op(since=11, was=("min", "max"))
def Clip(x: Value, low: MaybeValue, high: MaybeValue) -> Any:
    """x moved into [low, high]; where low is above high, everything is high. Both are attributes before version 11."""
    kind: Any = np
    if not all(v is None or isinstance(v, np.ndarray) for v in (x, low, high)):
        kind, x, low, high = Tensor, node.tensor(x), _bound(low), _bound(high)
    out = x if low is None else kind.maximum(x, low)
    return out if high is None else kind.minimum(out, high)


def _bound(value: Any) -> Any:
    """A bound as a number where it is known, so that it becomes part of the kernel, else a Tensor of shape ()."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return single(value)
    return node.tensor(value).reshape(())


@op
def PRelu(x: Tensor, slope: Tensor) -> Tensor:
    """slope * x below 0. Before version 7 a slope of one axis belongs to axis 1 of x; then it broadcasts."""
    if node.version < 7 and slope.ndim == 1 and slope.shape[0] > 1 and x.ndim > 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return (x < 0).where(x * slope, x)


# -- two inputs -------------------------------------------------------------------------------------------------------


def _truncated(a: Array, b: Array) -> Any:
    """a / b; between integers rounded towards 0, and 0 where b is, as on devices."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "i":
        inexact = np.not_equal(quotient * b, a) & (np.not_equal(b, 0))
        quotient = quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)
    return quotient


def _placed(a: Any, b: Any, broadcast: int | None, axis: int | None) -> Any:
    """b in the shape that the attributes of versions before 7 give it: its axes are those of a from `axis` on.

    Since version 7 two inputs broadcast as NumPy's. `consumed_inputs`, a hint of the first versions, says nothing here.
    """
    if not broadcast or axis is None or b.ndim == a.ndim:
        return b
    first = axis + a.ndim if axis < 0 else axis
    return b.reshape(*b.shape, *[1] * (a.ndim - first - b.ndim))


def _of_two(function: Fun, a: Value, b: Value, *, broadcast: Any = None, axis: Any = None) -> Any:
    return function(a, _placed(a, b, broadcast, axis))


for _name, (_on_device, _of_arrays) in (
    _functions(
        "Add=add And=logical_and BitwiseAnd=bitwise_and BitwiseOr=bitwise_or BitwiseXor=bitwise_xor Greater=gt/greater "
        "GreaterOrEqual=ge/greater_equal Less=lt/less LessOrEqual=le/less_equal Mul=mul/multiply Or=logical_or "
        "Sub=sub/subtract Xor=logical_xor"
    )
    | {
        "Div": (lambda a, b: a / b if is_float(a) else a.div(b, rounding_mode="trunc"), _truncated),
        "Equal": (Tensor.eq, lambda a, b: np.equal(a, b).astype(bool)),
    }
).items():
    op(_name, host=partial(_of_two, _of_arrays), numbers=True)(partial(_of_two, _on_device))


@op
def Pow(a: Value, b: Value, *, broadcast: Any = None, axis: Any = None) -> Any:
    """a to the power of b, in the dtype of a; a known exponent is a number, so that squares are products."""
    b = _placed(a, b, broadcast, axis)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        node.broadcasts(a, b)
        return np.asarray(np.power(a, b), a.dtype)
    x = node.operand(a)
    if isinstance(b, np.ndarray) and b.size == 1 and b.ndim <= x.ndim and (is_float(x) or not is_float(b)):
        return x.pow(single(b)).cast(x.dtype)
    return x.pow(node.operand(b)).cast(x.dtype)


@op
def BitShift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Bits moved to the LEFT or RIGHT by y; signed integers, which keep their sign, since version 28."""
    if direction == "LEFT":
        return x.bitwise_left_shift(y)
    moved = x.bitwise_right_shift(y)
    if x.dtype.name.startswith("uint"):
        return moved
    return ((y < 0) | (y >= x.dtype.bits)).where((x < 0).where(x * 0 - 1, x * 0), moved)


# -- any number of inputs ---------------------------------------------------------------------------------------------


def _of_several(function: Fun, *xs: Value) -> Any:
    """Inputs taken two at a time; they broadcast since version 8."""
    return reduce(function, xs)


for _name, (_on_device, _of_arrays) in _functions("Max=maximum Min=minimum Sum=add").items():
    op(_name, host=partial(_of_several, _of_arrays), numbers=True)(partial(_of_several, _on_device))


op("Where", host=np.where, numbers=True)(lambda condition, x, y: condition.where(x, y))


def converted(x: Value, dtype: NpDType, saturate: int = 1, round_mode: str = "up") -> Value:
    """x in another element type: on the device where both types are, else on the host."""
    if isinstance(x, Sizes):
        if dtype.name in ("int32", "int64"):
            return Sizes(x.items, dtype)  # type: ignore[return-value]  # a value like the others
        x = node.tensor(x)
    if isinstance(x, Tensor) and fits_device(dtype):
        if x.dtype.name == dtype.name:
            return x
        if dtype.name.startswith("float8") and saturate:
            high = float(_largest(dtype))
            x = x.float().clamp(-high, high)
        if dtype.name == "int64" and not is_float(x) and x.dtype.name != "uint64":
            return counted(x)
        return x.cast(dtype.name)
    return _on_host(node.host(x), dtype, saturate, round_mode)


def _on_host(x: Array, dtype: NpDType, saturate: int, round_mode: str) -> Array:
    if dtype.hasobject:
        return np.array([*map(str, x.reshape(-1))], object).reshape(x.shape)
    if x.dtype.hasobject:
        return _read(x, dtype)
    if dtype.name == "float8_e8m0fnu":
        return _power_of_two(x, dtype, saturate, round_mode)
    if dtype.name.startswith("float8") and saturate:
        high = np.float32(_largest(dtype))
        return np.clip(x.astype(np.float32), -high, high).astype(dtype)
    if dtype.name in ("int4", "uint4", "int2", "uint2") and is_float(x):
        x = x.astype(np.int32)
    elif x.dtype.kind == "V" or dtype.kind == "V":
        x = x.astype(np.float32)  # one of ml_dtypes' types is not converted into another one directly
    return x.astype(dtype)


def _largest(dtype: NpDType) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]


def _read(x: Array, dtype: NpDType) -> Array:
    """Numbers from text, as the standard reads them."""
    try:
        if dtype.kind in "iu":
            values: list[Any] = [int(v) if v.strip().lstrip("+-").isdigit() else int(float(v)) for v in x.reshape(-1)]
        else:
            values = [float(v) for v in x.reshape(-1)]
    except (ValueError, OverflowError) as e:
        raise fail(f"text that is no number: {e}") from e
    return np.array(values, np.float64 if dtype.kind not in "iu" else dtype).astype(dtype).reshape(x.shape)


def _power_of_two(x: Array, dtype: NpDType, saturate: int, round_mode: str) -> Array:
    """Scales: the power of two above, below or nearest; what is no positive number is the least one or nan."""
    wide = np.abs(x.astype(np.float64))
    mantissa, exponent = np.frexp(wide)
    exponent = exponent - 1
    over = mantissa * 2  # in [1, 2)
    if round_mode == "up":
        exponent = exponent + (over > 1)
    elif round_mode == "nearest":
        exponent = exponent + (over >= 1.5)
    exponent = np.where(wide == 0, -127, exponent)
    outside = (exponent > 127) | np.isinf(wide)
    value = np.ldexp(1.0, np.clip(exponent, -127, 127).astype(np.int32))
    value = np.where(np.isinf(wide), np.ldexp(1.0, 127), value)
    value = np.where(np.isnan(wide) | (outside & (not saturate)), np.nan, value)
    return value.astype(np.float32).astype(dtype)


def _named(code: int) -> NpDType:
    dtype = node.element(code)
    if dtype.kind == "c":
        raise fail(f"there are no tensors of {element_name(code)}")
    return dtype


@op(sizes=True)
def Cast(x: Value, *, to: Any, saturate: int = 1, round_mode: str = "up") -> Value:
    """Another element type. Version 1 names it by text; 8-bit floats stop at their ends unless `saturate` is 0."""
    if isinstance(to, str):
        dtype = np.dtype({"FLOAT": "float32", "DOUBLE": "float64"}.get(to, to.lower()))
    else:
        dtype = _named(to)
    return converted(x, dtype, saturate, round_mode)


@op
def CastLike(x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """The element type of another value."""
    return converted(x, _array_dtype(like), saturate, round_mode)


def _array_dtype(x: Value) -> NpDType:
    """The dtype that an array of the same elements has."""
    return x.dtype if isinstance(x, np.ndarray) else dtype_named(x.dtype.name)


@op
def BitCast(x: Value, *, to: int) -> Value:
    """The same bits read as another type of the same width; a bool is a byte of 0 or 1."""
    dtype = _named(to)
    was = _array_dtype(x)
    had, has = [element_bits(array_code(d.name)) for d in (was, dtype)]
    if had != has:
        raise fail(f"{was.name} has {had} bits and {dtype.name} {has}")
    if isinstance(x, Tensor) and fits_device(dtype):
        if was == np.bool_ or dtype == np.bool_:
            through = x.byte() if was == np.bool_ else x.bitcast("uint8")
            return through.bool() if dtype == np.bool_ else through.bitcast(dtype.name)
        return x.bitcast(dtype.name)
    return np.ascontiguousarray(node.host(x)).view(dtype).reshape(x.shape)
