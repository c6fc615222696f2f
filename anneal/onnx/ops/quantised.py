"""Quantised tensors: integers of 2 to 16 bits and narrow floats, with scales for a tensor, its slices or its blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.onnx.execute import node
from anneal.onnx.ops.elementwise import Array, MaybeTensor, MaybeValue, Value, axis_of, converted, is_float, plus
from anneal.onnx.ops.windows import Window, Windows, convolved, windows_of
from anneal.onnx.registry import op
from anneal.onnx.values import along, dtype_named, fits_device, taken
from anneal.tensor import Tensor, dtypes
from anneal.uop.sizes import product

RANGES = {f"uint{n}": (0, (1 << n) - 1) for n in (2, 4, 8, 16)}
RANGES |= {f"int{n}": (-1 << n - 1, (1 << n - 1) - 1) for n in (2, 4, 8, 16)}

# -- scales and zero points -------------------------------------------------------------------------------------------


def wide(x: Value) -> Tensor:
    """A value as a tensor: elements that no device holds become int32 or float32 on the host first."""
    if isinstance(x, np.ndarray) and not fits_device(x.dtype):
        x = x.astype(np.int32 if "int" in x.dtype.name else np.float32)
    return node.tensor(x)  # type: ignore[no-any-return]


def _spread(scale: Value, x: Value, axis: int, block: int) -> Any:
    """A scale or zero point in a shape that broadcasts to x: of one element, of an axis, or of blocks of it."""
    if math.prod(scale.shape) == 1 and not block:
        return scale.reshape(())
    axis = axis_of(axis, x.ndim)
    if block:
        repeat: Any = np.repeat if isinstance(scale, np.ndarray) else Tensor.repeat_interleave
        return taken(repeat(scale, block, axis), axis, slice(x.shape[axis]))
    return scale.reshape(along(axis, x.ndim)) if scale.ndim == 1 else scale


def integers(x: Tensor, zero_point: MaybeTensor) -> Tensor:
    """x - zero_point as int32."""
    x = x.int()
    return x if zero_point is None else x - zero_point.int()


def dequantised(x: Tensor, scale: Tensor, zero_point: MaybeTensor) -> Tensor:
    """(x - zero_point) * scale, in the scale's dtype."""
    steps = x if is_float(x) else integers(x, zero_point)
    return (steps.float() * scale.float()).cast(scale.dtype)


def quantised(x: Tensor, scale: Tensor, zero_point: MaybeTensor, name: str) -> Tensor:
    """x / scale to the nearest whole number (halves to even), plus the zero point, within the range of an integer type.

    What has fewer than 8 bits is float32 still.
    """
    low, high = RANGES[name]
    steps = (x / scale).round()
    steps = steps if steps.dtype.bits >= 32 else steps.float()
    steps = plus(steps, None if zero_point is None else zero_point.cast(steps.dtype)).clamp(low, high)
    return steps if name.endswith(("int4", "int2")) else steps.cast(name)


@op
def QuantizeLinear(
    x: Value,
    y_scale: Value,
    y_zero_point: MaybeValue,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """The nearest quantised number: `axis` since version 13, floats of 8 bits since 19, blocks, `output_dtype` and
    integers of 4 and 16 bits since 21, `precision` since 23.
    """
    name = node.element(output_dtype).name if output_dtype else "uint8"
    name = name if y_zero_point is None else y_zero_point.dtype.name
    data, scale = wide(x), wide(y_scale)
    scale = _spread(scale, data, axis, block_size)
    if precision:
        computed = node.element(precision).name
        data, scale = data.cast(computed), scale.cast(computed)
    data = data if is_float(data) else data.float()
    if name not in RANGES:
        return converted(data / scale, dtype_named(name), saturate)
    zero = None if y_zero_point is None else _spread(wide(y_zero_point), data, axis, block_size)
    return converted(quantised(data, scale, zero, name), dtype_named(name))


@op
def DequantizeLinear(
    x: Value, x_scale: Value, x_zero_point: MaybeValue, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    """(x - zero point) * scale: `axis` since version 13, blocks and 4 bits since 21, `output_dtype` since 23."""
    held = [v for v in (x, x_scale, x_zero_point) if isinstance(v, np.ndarray)]
    if len(held) == 3 - (x_zero_point is None) or any(not fits_device(v.dtype) for v in held):
        data, each, zeros = [node.host(v, "no device holds its type") for v in (x, x_scale, x_zero_point)]
        return _dequantised_on_host(data, each, zeros, axis, block_size, output_dtype)
    data = wide(x)
    scale = _spread(wide(x_scale), data, axis, block_size)
    zero = None
    if x_zero_point is not None and not is_float(data):
        zero = _spread(wide(x_zero_point), data, axis, block_size)
    if output_dtype:
        return dequantised(data, scale.float(), zero).cast(node.element(output_dtype).name)
    return dequantised(data, scale, zero)


def _dequantised_on_host(x: Any, scale: Any, zero_point: Any, axis: int, block: int, output_dtype: int) -> Any:
    """Weights, most of all: what they stand for is computed once."""
    dtype = node.element(output_dtype) if output_dtype else scale.dtype
    steps = x.astype(np.float32 if is_float(x) else np.int32)
    if zero_point is not None and not is_float(x):
        steps = steps - _spread(zero_point.astype(np.int32), x, axis, block)
    return (steps.astype(np.float32) * _spread(scale.astype(np.float32), x, axis, block)).astype(dtype)


@op
def DynamicQuantizeLinear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x as uint8, with the scale and zero point that its own least and largest elements, and 0, ask for."""
    steps, scale, zero = by_range(x)
    return steps, scale, zero.cast(dtypes.uint8)


def by_range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DynamicQuantizeLinear, with the zero point as a float."""
    low, high = x.min().minimum(0), x.max().maximum(0)
    scale = (high - low) / 255
    # If all values are 0, any scale is right.
    scale = (scale == 0).where(1.0, scale)
    zero = (-low / scale).round().clamp(0, 255)
    return quantised(x, scale, zero, "uint8"), scale, zero


# -- exact products ---------------------------------------------------------------------------------------------------


_EXACT = 1 << 24  # float32 holds the whole numbers up to it
_FAR = 255  # the largest distance of 8 bits from their zero point


def exactly(function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """A sum of products of int32 tensors, exactly, as int32; `b` may be float32, as `weight_of` gives it.

    Products of integers are summed exactly: in int32, or where the device is the cpu, whose integers have no BLAS, in
    float32 if the values of a weight bound every sum below 2**24, else in float64, which holds all of them.
    """
    if a.device != "cpu":
        return function(a, b)
    dtype = dtypes.float32 if b.dtype is dtypes.float32 else dtypes.float64
    return function(a.cast(dtype), b.cast(dtype)).int()


def exact_matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of int32 tensors; `b` as for `exactly`."""
    return exactly(Tensor.matmul, a, b)


def is_narrow(weight: Tensor, steps: Array | None, axes: Sequence[int]) -> bool:
    """True if `weight` is of 8 bits, on the cpu, and float32 holds every sum over `axes` of products of `steps`, its
    values less their zero point, with other 8 bits less theirs; False where the values are not known.
    """
    if steps is None or weight.device != "cpu" or weight.dtype.bits != 8:
        return False
    return int(np.abs(steps.astype(np.int32)).sum(tuple(axes)).max(initial=0)) * _FAR <= _EXACT


def weight_of(
    weight: Tensor, zero: MaybeTensor, axes: Sequence[int], shape: Sequence[int], kept: bool = False
) -> Tensor:
    """A weight less its zero point, to be multiplied and summed over `axes`: float32 where that is exact, else int32.

    Args:
        shape: that of a zero point of several elements.
        kept: whether a weight of the file stays as it is in memory; else it is computed once.
    """
    values, less = [node.of.constants.held(t) for t in (weight, zero)]
    if zero is not None:
        zero = zero.reshape(() if zero.numel() == 1 else shape)
        known = values is not None and less is not None
        values = values.astype(np.int32) - less.reshape(zero.shape) if known else None
    steps = integers(weight, zero)
    if not is_narrow(weight, values, axes):
        return steps
    return steps.float() if kept else node.constant(values.astype(np.float32), [weight])


def _exact_conv(x: Tensor, weight: Tensor, zero: MaybeTensor, w: Window, groups: int) -> Tensor:
    each = weight_of(weight, zero, range(1, weight.ndim), (-1, *[1] * (weight.ndim - 1)))
    return exactly(lambda a, b: convolved(a, b, None, w, groups), x, each)


def columns_of(a: Tensor, b: Tensor, zero: MaybeTensor) -> Tensor:
    """The right matrix of a product less its zero point. What one row reads stays in bytes: reading is all it costs."""
    return weight_of(b, zero, [b.ndim - 2], zero.shape if zero is not None else (), product(a.shape[:-1]) == 1)


def _for_rows(x: Tensor) -> Tensor:
    """A zero point, or a scale, for each row of the left matrix, or one for all."""
    return x.reshape(()) if x.numel() == 1 else x.unsqueeze(-1) if x.ndim == 1 else x


def for_columns(scale: Tensor) -> Tensor:
    """A scale for each column of the right matrix, or one for all."""
    return scale.reshape(()) if scale.numel() == 1 else scale


@op
def MatMulInteger(a: Tensor, b: Tensor, a_zero_point: MaybeTensor, b_zero_point: MaybeTensor) -> Tensor:
    """The product of matrices of 8-bit integers less their zero points, as int32."""
    zero = None if a_zero_point is None else _for_rows(a_zero_point)
    return exact_matmul(integers(a, zero), columns_of(a, b, b_zero_point))


@op
def QLinearMatMul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    """The product of quantised matrices, quantised; scales of float16 and bfloat16 since version 21."""
    total = exact_matmul(integers(a, _for_rows(a_zero_point)), columns_of(a, b, b_zero_point))
    rows, by = _for_rows(a_scale), _for_rows(y_scale)
    return requantised(total, rows.float() * for_columns(b_scale).float() / by.float(), _for_rows(y_zero_point))


def requantised(total: Tensor, factor: Tensor, zero_point: MaybeTensor, name: str = "uint8") -> Tensor:
    """An int32 sum times a factor, in the zero point's dtype."""
    name = name if zero_point is None else zero_point.dtype.name
    low, high = RANGES[name]
    steps = plus((total.float() * factor).round(), None if zero_point is None else zero_point.float())
    return steps.clamp(low, high).cast(name)


@op
def ConvInteger(
    x: Tensor, weight: Tensor, x_zero_point: MaybeTensor, w_zero_point: MaybeTensor, *, group: int, how: Windows
) -> Tensor:
    """The convolution of 8-bit integers less their zero points, as int32; the border is the zero point."""
    return _exact_conv(integers(x, x_zero_point), weight, w_zero_point, windows_of(x, weight, how), group)


@op
def QLinearConv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    bias: MaybeTensor,
    *,
    channels_last: int = 0,
    group: int = 1,
    how: Windows,
) -> Tensor:
    """The convolution of quantised tensors, quantised; the weight's scale may be one for each output channel."""
    x = x.moveaxis(-1, 1) if channels_last else x
    w = windows_of(x, weight, how)
    total = _exact_conv(integers(x, x_zero_point.reshape(())), weight, w_zero_point, w, group)
    rows = (1, -1, *[1] * (x.ndim - 2))
    total = plus(total, None if bias is None else bias.reshape(rows))
    factor = x_scale.reshape(()) * w_scale.reshape(() if w_scale.numel() == 1 else rows) / y_scale.reshape(())
    y = requantised(total, factor, y_zero_point.reshape(()))
    return y.moveaxis(1, -1) if channels_last else y
