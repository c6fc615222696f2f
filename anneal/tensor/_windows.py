"""Convolutions and pools over one, two or three axes: sums and extremes over views of windows.

A view of the windows is movement only, so a convolution is a product and a sum that fuse as any others. A transposed
convolution is a convolution for each phase of the stride, laid side by side: nothing is multiplied by inserted zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anneal.errors import DTypeError, ShapeError
from anneal.ops import checked
from anneal.ops.nodes import (
    broadcast,
    common_dtype,
    expand,
    flip,
    iota,
    pad,
    permute,
    reduce_axis,
    reduce_node,
    reshape,
    shrink,
)
from anneal.uop import Op, UOp, alu, const, dtypes

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = [
    "Sizes",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "unfold",
]

Sizes = int | Sequence[int]
Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
_AXES = {1: "n", 2: "h, w", 3: "d, h, w"}
_KERNEL = {1: "k", 2: "kh, kw", 3: "kd, kh, kw"}
_BOOL = dtypes.bool_


def need_float(name: str, what: str, x: Tensor) -> None:
    """Raise DTypeError unless `x` is a float tensor."""
    if not x.uop.dtype.is_float:
        raise DTypeError(f"{name}: {what} must be a float tensor, not {x.uop.dtype.name}; use .float()")


def same_device(name: str, x: Tensor, *others: Tensor | None) -> None:
    """Raise DeviceError unless all that are there live on one device."""
    for o in others:
        if o is not None and o.device != x.device:
            x._mixed(name, o)


def result(u: UOp, x: Tensor, *others: Tensor | None) -> Tensor:
    """The tensor of `u`, made from `x` and those of `others` that are there."""
    return x._new(u, *[o for o in others if o is not None])


# -- windows ----------------------------------------------------------------------------------------------------------


def per_axis(name: str, what: str, value: Sizes, count: int, least: int = 1) -> Ints:
    """One number for each of `count` axes."""
    p = (value,) if isinstance(value, int) else tuple(value)
    p = p * count if len(p) == 1 else p
    if len(p) != count or not all(isinstance(v, int) and v >= least for v in p):
        many = "an int" if count == 1 else f"an int or {['two', 'three'][count - 2]} ints"
        raise ShapeError(f"{name}: {what} is {many} of at least {least}, not {value!r}")
    return p


def _windows(name: str, x: UOp, kernel: Ints, stride: Ints, dilation: Ints) -> UOp:
    """(..., h, w) to (..., kh, oh, kw, ow), and so for any number of axes: what each place of the kernel
    sees, a view.
    """
    k = len(kernel)
    lead, sizes = x.shape[:-k], x.shape[-k:]
    m = len(lead)
    out = []
    for axis, (n, size, s, d) in enumerate(zip(sizes, kernel, stride, dilation, strict=True)):
        reach = d * (size - 1) + 1
        if n < reach:
            raise ShapeError(
                f"{name}: a kernel of {kernel} with dilation {dilation} does not fit the (padded) input of {sizes} "
                f"along axis {axis - k}; add padding or use a smaller kernel"
            )
        out.append((n - reach) // s + 1)
    whole = tuple([(0, n) for n in lead])
    if all(size == s and d == 1 for size, s, d in zip(kernel, stride, dilation, strict=True)):
        # Windows that do not overlap are rows and columns of blocks.
        x = shrink(x, (*whole, *[(0, o * size) for o, size in zip(out, kernel, strict=True)]))
        x = reshape(x, (*lead, *_woven(out, kernel)))
        return permute(x, (*range(m), *[m + 2 * i + j for i in range(k) for j in (1, 0)]))
    # Along one axis: copies of the row laid end to end and read back in rows d longer, so that row j starts j*d further
    # on.
    lengths = []
    for i, (s, d) in enumerate(zip(stride, dilation, strict=True)):
        lengths.append(max(sizes[i] + d, out[i] * s))
        # A longer row than n + d needs a longer input; what is added is never looked at.
        if lengths[i] > sizes[i] + d:
            extra = lengths[i] - sizes[i] - d
            x = pad(x, (*[(0, 0)] * m, *[(0, extra if j == i else 0) for j in range(k)]))
    sizes = x.shape[-k:]
    copies = [-(-size * n // length) for size, n, length in zip(kernel, lengths, sizes, strict=True)]
    x = expand(reshape(x, (*lead, *_woven((1,) * k, sizes))), (*lead, *_woven(copies, sizes)))
    x = reshape(x, (*lead, *[c * n for c, n in zip(copies, sizes, strict=True)]))
    x = shrink(x, (*whole, *[(0, size * n) for size, n in zip(kernel, lengths, strict=True)]))
    x = reshape(x, (*lead, *_woven(kernel, lengths)))
    spans = [o * s for o, s in zip(out, stride, strict=True)]
    x = shrink(x, (*whole, *[(0, n) for n in _woven(kernel, spans)]))
    if any(s != 1 for s in stride):
        split = [n for group in zip(kernel, out, stride, strict=True) for n in group]
        x = reshape(x, (*lead, *split))
        x = shrink(x, (*whole, *[(0, 1 if i % 3 == 2 else n) for i, n in enumerate(split)]))
        x = reshape(x, (*lead, *_woven(kernel, out)))
    return x


def _woven(a: Sequence[int], b: Sequence[int]) -> Ints:
    """a0, b0, a1, b1, ..."""
    return tuple([n for pair in zip(a, b, strict=True) for n in pair])


# -- convolutions -----------------------------------------------------------------------------------------------------


def _convolve(
    name: str,
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    same_device(name, x, weight, bias)
    xs, ws = x.uop.shape, weight.uop.shape
    if len(xs) == axes + 1:
        return _convolve(name, axes, x.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    if len(xs) != axes + 2 or len(ws) != axes + 2:
        raise ShapeError(
            f"{name}: x is (batch, in, {_AXES[axes]}) and weight (out, in/groups, {_KERNEL[axes]}), not {xs} and {ws}"
        )
    channels, (outs, inner) = xs[1], ws[:2]
    if groups < 1 or channels % groups or outs % groups or inner != channels // groups:
        raise ShapeError(
            f"{name}: x of shape {xs} has {channels} channels in {groups} groups, so the weight must have shape "
            f"(multiple of {groups}, {channels}/{groups}, {_KERNEL[axes]}), not {ws}"
        )
    if bias is not None and bias.uop.shape != (outs,):
        raise ShapeError(f"{name}: bias has shape {bias.uop.shape}, but the weight {ws} makes {outs} channels")
    st, di = per_axis(name, "stride", stride, axes), per_axis(name, "dilation", dilation, axes)
    a, b = common_dtype(x.uop, weight.uop)
    a = pad(a, ((0, 0), (0, 0), *_conv_padding(name, padding, ws[2:], st, di)))
    return result(_biased(_windowed_product(name, a, b, st, di, groups), bias), x, weight, bias)


def _windowed_product(name: str, x: UOp, w: UOp, stride: Ints, dilation: Ints, groups: int) -> UOp:
    """The convolution of (batch, in, ...) and (out, in/groups, ...) without padding."""
    n, outs, inner = x.shape[0], *w.shape[:2]
    kernel = w.shape[2:]
    k = len(kernel)
    u = _windows(name, x, kernel, stride, dilation)
    # (batch, in, kh, oh, kw, ow): places of the kernel are even axes behind the first two, the output's are odd
    out = u.shape[3::2]
    ones = (1,) * k
    co = outs // groups
    if groups == 1:
        full: Ints = (n, co, *out, inner, *kernel)
        u = permute(u, (0, *range(3, 3 + 2 * k, 2), 1, *range(2, 2 + 2 * k, 2)))
        left = reshape(u, (n, 1, *out, inner, *kernel))
        right = reshape(w, (1, co, *ones, inner, *kernel))
    else:
        # (n, g, 1, oh, ow, ci, kh, kw) times (1, g, co, 1, 1, ci, kh, kw), summed over the last three
        full = (n, groups, co, *out, inner, *kernel)
        u = reshape(u, (n, groups, inner, *u.shape[2:]))
        u = permute(u, (0, 1, *range(4, 4 + 2 * k, 2), 2, *range(3, 3 + 2 * k, 2)))
        left = reshape(u, (n, groups, 1, *out, inner, *kernel))
        right = reshape(w, (1, groups, co, *ones, inner, *kernel))
    m = len(full)
    total = reduce_axis(expand(left, full) * expand(right, full), Op.ADD, tuple(range(m - k - 1, m)))
    return reshape(total, (n, outs, *out))


def _biased(u: UOp, bias: Tensor | None) -> UOp:
    """`u` with a number added to each channel."""
    if bias is None:
        return u
    u, c = common_dtype(u, bias.uop)
    return u + broadcast(reshape(c, (1, u.shape[1], *[1] * (len(u.shape) - 2))), u.shape)


def _conv_padding(name: str, padding: Sizes | str, kernel: Ints, stride: Ints, dilation: Ints) -> Pairs:
    if not isinstance(padding, str):
        return tuple([(p, p) for p in per_axis(name, "padding", padding, len(kernel), 0)])
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise ShapeError(f'{name}: padding is an int, one for each axis, "same" or "valid", not {padding!r}')
    if any(s != 1 for s in stride):
        raise ShapeError(f'{name}: padding="same" needs stride 1, not {stride}')
    return tuple([(d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for k, d in zip(kernel, dilation, strict=True)])


@checked
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """1-D convolution: x (batch, in, n) or (in, n), weight (out, in/groups, k); see `conv2d`."""
    return _convolve("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@checked
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """2-D convolution (cross-correlation, as everywhere in deep learning).

    Args:
        x: (batch, in, h, w) or (in, h, w).
        weight: (out, in/groups, kh, kw).
        bias: (out,) or None.
        padding: zeros on each side, or "same" (stride 1) or "valid".

    Returns:
        (batch, out, oh, ow) with `oh = (h + 2*padding - dilation*(kh-1) - 1)//stride + 1`, without batch if x has none.

    Raises ShapeError for sizes that do not fit.

    >>> from anneal.tensor import Tensor
    >>> conv2d(Tensor.arange(9).float().reshape(1, 1, 3, 3), Tensor.ones(1, 1, 2, 2))
    Tensor([[[[ 8., 12.],
              [20., 24.]]]], dtype=float32)
    """
    return _convolve("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@checked
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """3-D convolution: x (batch, in, d, h, w) or without batch, weight (out, in/groups, kd, kh, kw); see `conv2d`."""
    return _convolve("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


# -- transposed convolutions ------------------------------------------------------------------------------------------


def _transposed(
    name: str,
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    same_device(name, x, weight, bias)
    xs, ws = x.uop.shape, weight.uop.shape
    if len(xs) == axes + 1:
        x = x.unsqueeze(0)
        return _transposed(name, axes, x, weight, bias, stride, padding, output_padding, groups, dilation).squeeze(0)
    if len(xs) != axes + 2 or len(ws) != axes + 2:
        raise ShapeError(
            f"{name}: x is (batch, in, {_AXES[axes]}) and weight (in, out/groups, {_KERNEL[axes]}), not {xs} and {ws}"
        )
    if groups < 1 or ws[0] % groups or xs[1] != ws[0]:
        raise ShapeError(
            f"{name}: x of shape {xs} has {xs[1]} channels, so the weight must have shape ({xs[1]}, out/groups, "
            f"{_KERNEL[axes]}) and groups divide {xs[1]}, not {ws} and {groups}"
        )
    if bias is not None and bias.uop.shape != (groups * ws[1],):
        raise ShapeError(
            f"{name}: bias has shape {bias.uop.shape}, but the weight {ws} makes {groups * ws[1]} channels"
        )
    st, di = per_axis(name, "stride", stride, axes), per_axis(name, "dilation", dilation, axes)
    side = per_axis(name, "padding", padding, axes, 0)
    extra = per_axis(name, "output_padding", output_padding, axes, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, st, di, strict=True)):
        raise ShapeError(f"{name}: output_padding {extra} must be less than the stride {st} or the dilation {di}")
    a, b = common_dtype(x.uop, weight.uop)
    reach = [d * (k - 1) + 1 for k, d in zip(ws[2:], di, strict=True)]
    sizes = [(n - 1) * s - 2 * p + r + e for n, s, p, r, e in zip(xs[2:], st, side, reach, extra, strict=True)]
    if any(n < 1 for n in sizes):
        raise ShapeError(f"{name}: x of shape {xs} with padding {side} leaves nothing: the output would be {sizes}")
    u = _unwound(name, a, b, st, di, groups)
    # whole it begins `padding` early; what lies beyond its end is zero
    ends = [p + n for p, n in zip(side, sizes, strict=True)]
    u = pad(u, ((0, 0), (0, 0), *[(0, max(0, e - n)) for e, n in zip(ends, u.shape[2:], strict=True)]))
    u = shrink(u, ((0, u.shape[0]), (0, u.shape[1]), *zip(side, ends, strict=True)))
    return result(_biased(u, bias), x, weight, bias)


def _unwound(name: str, x: UOp, w: UOp, stride: Ints, dilation: Ints, groups: int) -> UOp:
    """The transposed convolution of (batch, in, ...) and (in, out/groups, ...), whole.

    Position o*s + r of it is the sum over j of x[o - j] * w[j*s + r]: for each phase r a convolution with every s-th
    element of the kernel, turned round.
    """
    channels, co, *kernel = w.shape
    k = len(kernel)
    inner = channels // groups
    if any(d > 1 for d in dilation):
        spread = reshape(w, (channels, co, *_woven(kernel, (1,) * k)))
        spread = pad(spread, ((0, 0), (0, 0), *[p for d in dilation for p in ((0, 0), (0, d - 1))]))
        kernel = [n * d for n, d in zip(kernel, dilation, strict=True)]
        w = reshape(spread, (channels, co, *kernel))
    taps = [-(-n // s) for n, s in zip(kernel, stride, strict=True)]
    w = pad(w, ((0, 0), (0, 0), *[(0, m * s - n) for n, m, s in zip(kernel, taps, stride, strict=True)]))
    w = reshape(w, (groups, inner, co, *_woven(taps, stride)))
    w = flip(w, tuple(range(3, 3 + 2 * k, 2)))
    # (g, co, s..., ci, taps...): each phase is an output channel
    w = permute(w, (0, 2, *range(4, 4 + 2 * k, 2), 1, *range(3, 3 + 2 * k, 2)))
    phases = math.prod(stride)
    w = reshape(w, (groups * co * phases, inner, *taps))
    x = pad(x, ((0, 0), (0, 0), *[(m - 1, m - 1) for m in taps]))
    u = _windowed_product(name, x, w, (1,) * k, (1,) * k, groups)
    n, out = u.shape[0], u.shape[2:]
    u = reshape(u, (n, groups * co, *stride, *out))
    u = permute(u, (0, 1, *[i for j in range(k) for i in (2 + k + j, 2 + j)]))
    return reshape(u, (n, groups * co, *[o * s for o, s in zip(out, stride, strict=True)]))


@checked
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transposed 1-D convolution: x (batch, in, n), weight (in, out/groups, k); see `conv_transpose2d`."""
    return _transposed("conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, groups, dilation)


@checked
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transposed 2-D convolution: what `conv2d` does to gradients of its input.

    Args:
        x: (batch, in, h, w) or (in, h, w).
        weight: (in, out/groups, kh, kw).
        bias: (out,) or None.
        padding: cut off on each side. output_padding: added at the end of each axis.

    Returns:
        (batch, out, oh, ow) with `oh = (h - 1)*stride - 2*padding + dilation*(kh - 1) + output_padding + 1`.

    Raises ShapeError for sizes that do not fit.

    >>> from anneal.tensor import Tensor
    >>> conv_transpose2d(Tensor([[[1.0, 2.0]]]), Tensor.ones(1, 1, 1, 2), stride=2)
    Tensor([[[1., 1., 2., 2.]]], dtype=float32)
    """
    return _transposed("conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, groups, dilation)


@checked
def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transposed 3-D convolution: x (batch, in, d, h, w), weight (in, out/groups, kd, kh, kw); see
    `conv_transpose2d`.
    """
    return _transposed("conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, groups, dilation)


# -- pools ------------------------------------------------------------------------------------------------------------


def _pool_args(
    name: str, axes: int, x: Tensor, kernel: Sizes, stride: Sizes | None, padding: Sizes, ceil: bool, dilation: Sizes
) -> tuple[Ints, Ints, Ints, Ints, Pairs]:
    """Kernel, stride, padding and dilation for each axis, and the padding with what ceil_mode adds at the end."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}: x is (batch, channels, {_AXES[axes]}) or (channels, {_AXES[axes]}), not {x.shape}")
    k, d = per_axis(name, "kernel_size", kernel, axes), per_axis(name, "dilation", dilation, axes)
    p = per_axis(name, "padding", padding, axes, 0)
    s = k if stride is None else per_axis(name, "stride", stride, axes)
    if any(2 * b > a for a, b in zip(k, p, strict=True)):
        raise ShapeError(f"{name}: padding {p} is more than half the kernel {k}")
    sides = []
    for n, a, st, b, e in zip(x.shape[-axes:], k, s, p, d, strict=True):
        extra = 0
        room = n + 2 * b - e * (a - 1) - 1
        # A last window may hang over the end, but not start in the padding.
        if ceil and room >= 0 and room % st and (room // st + 1) * st < n + b:
            extra = st - room % st
        sides.append((b, b + extra))
    return k, s, p, d, tuple(sides)


def _reduce_windows(u: UOp, op: Op, axes: int) -> UOp:
    """(..., kh, oh, kw, ow) to (..., oh, ow)."""
    m = len(u.shape) - 2 * axes
    return reshape(reduce_axis(u, op, tuple(range(m, m + 2 * axes, 2))), (*u.shape[:m], *u.shape[m + 1 :: 2]))


def _max_pool(
    name: str, axes: int, x: Tensor, kernel: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil: bool
) -> Tensor:
    k, s, _, d, sides = _pool_args(name, axes, x, kernel, stride, padding, ceil, dilation)
    u = x._kept()
    if any(side != (0, 0) for side in sides):
        pairs = (*[(0, 0)] * (x.ndim - axes), *sides)
        inside = pad(broadcast(const(_BOOL, True), u.shape), pairs)
        u = alu(Op.WHERE, (inside, pad(u, pairs), const(u.dtype, u.dtype.min)))
    return x._new(_reduce_windows(_windows(name, u, k, s, d), Op.MAX, axes))


@checked
def max_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest value of each window of the last axis; see `max_pool2d`."""
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode)


@checked
def max_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest value of each window of the last two axes; stride defaults to the kernel. Padding never wins.

    Equal largest values in a window share the gradient evenly.

    >>> from anneal.tensor import Tensor
    >>> max_pool2d(Tensor.arange(16).reshape(1, 4, 4), 2)
    Tensor([[[ 5,  7],
             [13, 15]]], dtype=int32)
    """
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode)


@checked
def max_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest value of each window of the last three axes; see `max_pool2d`."""
    return _max_pool("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode)


def _avg_pool(
    name: str,
    axes: int,
    x: Tensor,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Tensor:
    need_float(name, "x", x)
    k, s, p, d, sides = _pool_args(name, axes, x, kernel, stride, padding, ceil, 1)
    lead = x.ndim - axes
    u = x.uop
    total = _reduce_windows(_windows(name, pad(u, (*[(0, 0)] * lead, *sides)), k, s, d), Op.ADD, axes)
    hangs = any(after != b for b, (_, after) in zip(p, sides, strict=True))
    if divisor is not None or not (hangs or (any(p) and not count_padding)):
        return x._new(total * (1.0 / (math.prod(k) if divisor is None else divisor)))
    # What ceil_mode adds beyond the padding never counts.
    size = u.shape[-axes:]
    counted = size if not count_padding else tuple([n + 2 * b for n, b in zip(size, p, strict=True)])
    border = sides if not count_padding else tuple([(0, after - b) for b, (_, after) in zip(p, sides, strict=True)])
    ones = pad(broadcast(const(u.dtype, 1), counted), border)
    counts = _reduce_windows(_windows(name, ones, k, s, d), Op.ADD, axes)
    return x._new(total / broadcast(reshape(counts, (1,) * lead + counts.shape), total.shape))


@checked
def avg_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last axis; see `avg_pool2d`."""
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@checked
def avg_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last two axes; stride defaults to the kernel.

    With count_include_pad the zeros of the padding count; `divisor_override` replaces the count.

    >>> from anneal.tensor import Tensor
    >>> avg_pool2d(Tensor.arange(16).float().reshape(1, 4, 4), 2)
    Tensor([[[ 2.5,  4.5],
             [10.5, 12.5]]], dtype=float32)
    """
    return _avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@checked
def avg_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last three axes; see `avg_pool2d`."""
    return _avg_pool("avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


# -- pools by their output --------------------------------------------------------------------------------------------

Outputs = int | Sequence[int | None]


def _adaptive(name: str, axes: int, x: Tensor, size: Outputs, op: Op) -> Tensor:
    """One window for each output, from floor(i n / m) up to ceil((i + 1) n / m), axis by axis."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}: x is (batch, channels, {_AXES[axes]}) or (channels, {_AXES[axes]}), not {x.shape}")
    given = (size,) * axes if isinstance(size, int) else tuple(size)
    if len(given) != axes or not all(m is None or (isinstance(m, int) and m > 0) for m in given):
        raise ShapeError(f"{name}: output_size is a positive int or {axes} (None keeps an axis), not {size!r}")
    u = x._kept() if op is Op.MAX else x.uop
    for i, m in enumerate(given):
        axis = x.ndim - axes + i
        if m is None or m == u.shape[axis]:
            continue
        if not u.shape[axis]:
            raise ShapeError(f"{name}: shape {x.shape} has nothing to choose from along axis {axis}")
        u = pooled(u, axis, m, op)
    return x._new(u)


def pooled(u: UOp, axis: int, m: int, op: Op) -> UOp:
    """The mean (ADD) or the largest (MAX) of each of `m` windows that cover an axis."""
    s = u.shape
    n = s[axis]
    lead, tail = s[:axis], s[axis + 1 :]
    if n % m == 0:
        blocks = reshape(u, (*lead, m, n // m, *tail))
        out = reduce_node(blocks, op, (axis + 1,), False)
        return out * (m / n) if op is Op.ADD else out
    row, column = iota(m, 0, 2), broadcast(iota(n, 1, 2), (m, n))
    first = alu(Op.IDIV, (row * n, const(dtypes.int32, m)))
    last = alu(Op.IDIV, (row * n + (n + m - 1), const(dtypes.int32, m)))
    beyond = alu(
        Op.OR, (alu(Op.LT, (column, broadcast(first, (m, n)))), alu(Op.NOT, (column < broadcast(last, (m, n)),)))
    )
    full = (*lead, m, n, *tail)
    shape = (*[1] * len(lead), m, n, *[1] * len(tail))
    wide = expand(reshape(u, (*lead, 1, n, *tail)), full)
    nothing = const(u.dtype, 0 if op is Op.ADD else u.dtype.min)
    chosen = alu(Op.WHERE, (expand(reshape(beyond, shape), full), nothing, wide))
    out = reduce_node(chosen, op, (axis + 1,), False)
    if op is Op.MAX:
        return out
    count = reshape((last - first).cast(u.dtype), (*[1] * len(lead), m, *[1] * len(tail)))
    return out / expand(count, out.shape)


@checked
def adaptive_avg_pool1d(x: Tensor, output_size: Outputs) -> Tensor:
    """The mean of windows that make `output_size` of the last axis; see `adaptive_avg_pool2d`."""
    need_float("adaptive_avg_pool1d", "x", x)
    return _adaptive("adaptive_avg_pool1d", 1, x, output_size, Op.ADD)


@checked
def adaptive_avg_pool2d(x: Tensor, output_size: Outputs) -> Tensor:
    """The mean of windows that make `output_size` of the last two axes; None keeps an axis.

    >>> from anneal.tensor import Tensor
    >>> adaptive_avg_pool2d(Tensor.arange(6).float().reshape(1, 2, 3), (1, 2))
    Tensor([[[2., 3.]]], dtype=float32)
    """
    need_float("adaptive_avg_pool2d", "x", x)
    return _adaptive("adaptive_avg_pool2d", 2, x, output_size, Op.ADD)


@checked
def adaptive_avg_pool3d(x: Tensor, output_size: Outputs) -> Tensor:
    """The mean of windows that make `output_size` of the last three axes; see `adaptive_avg_pool2d`."""
    need_float("adaptive_avg_pool3d", "x", x)
    return _adaptive("adaptive_avg_pool3d", 3, x, output_size, Op.ADD)


@checked
def adaptive_max_pool1d(x: Tensor, output_size: Outputs) -> Tensor:
    """The largest of windows that make `output_size` of the last axis."""
    return _adaptive("adaptive_max_pool1d", 1, x, output_size, Op.MAX)


@checked
def adaptive_max_pool2d(x: Tensor, output_size: Outputs) -> Tensor:
    """The largest of windows that make `output_size` of the last two axes; None keeps an axis."""
    return _adaptive("adaptive_max_pool2d", 2, x, output_size, Op.MAX)


@checked
def adaptive_max_pool3d(x: Tensor, output_size: Outputs) -> Tensor:
    """The largest of windows that make `output_size` of the last three axes; None keeps an axis."""
    return _adaptive("adaptive_max_pool3d", 3, x, output_size, Op.MAX)


@checked
def unfold(x: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The windows of (batch, channels, h, w) as columns: (batch, channels*kh*kw, number of windows), torch's im2col.

    >>> from anneal.tensor import Tensor
    >>> unfold(Tensor.arange(6).reshape(1, 1, 2, 3), 2)
    Tensor([[[0, 1],
             [1, 2],
             [3, 4],
             [4, 5]]], dtype=int32)
    """
    if x.ndim == 3:
        return unfold(x.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if x.ndim != 4:
        raise ShapeError(f"unfold: x is (batch, channels, h, w) or (channels, h, w), not {x.shape}")
    k, d = per_axis("unfold", "kernel_size", kernel_size, 2), per_axis("unfold", "dilation", dilation, 2)
    p, s = per_axis("unfold", "padding", padding, 2, 0), per_axis("unfold", "stride", stride, 2)
    u = _windows("unfold", pad(x.uop, ((0, 0), (0, 0), *[(v, v) for v in p])), k, s, d)
    n, c, kh, oh, kw, ow = u.shape
    return x._new(reshape(permute(u, (0, 1, 2, 4, 3, 5)), (n, c * kh * kw, oh * ow)))
