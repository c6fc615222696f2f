"""Convolutions over one, two or three axes: products with a view of the windows, summed, which fuse as any do."""

from __future__ import annotations

import math

from anneal.errors import ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, same_device
from anneal.ops.made import result

from anneal.ops.nodes import (  # isort: skip
    Pairs, broadcast, common_dtype, expand, flip, named, pad, permute, reduce_axis, reshape, row_shape, shrink,
)  # fmt: skip
from anneal.ops.pooling import AXES, KERNEL, Sizes, per_axis, windows_of, woven
from anneal.ops.precision import whole_product
from anneal.uop import Ints, Op, UOp


def _convolve(
    name: str,
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    same_device(x, weight, bias)
    xs, ws = x.uop.shape, weight.uop.shape
    if len(xs) == axes + 1:
        return _convolve(name, axes, x.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    if len(xs) != axes + 2 or len(ws) != axes + 2:
        raise ShapeError(
            f"{name}: x is (batch, in, {AXES[axes]}) and weight (out, in/groups, {KERNEL[axes]}), not {xs} and {ws}"
        )
    channels, (outs, inner) = xs[1], ws[:2]
    if groups < 1 or channels % groups or outs % groups or inner != channels // groups:
        raise ShapeError(
            f"{name}: x of shape {xs} has {channels} channels in {groups} groups, so the weight must have shape "
            f"(multiple of {groups}, {channels}/{groups}, {KERNEL[axes]}), not {ws}"
        )
    st, di = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    a, b = common_dtype(x.uop, weight.uop)
    sides = _conv_padding(padding, ws[2:], st, di)
    u = _biased(name, _windowed_product(name, x.device, pad(a, sides), b, st, di, groups), bias, ws)
    given = (a, b) if bias is None else (a, b, bias.uop)
    return result(named("conv", u, *given, arguments=(sides, st, di, groups)), x, weight, bias)


def _windowed_product(name: str, device: str, x: UOp, w: UOp, stride: Ints, dilation: Ints, groups: int) -> UOp:
    """The convolution of (batch, in, ...) and (out, in/groups, ...) without padding."""
    n, outs, inner = x.shape[0], *w.shape[:2]
    kernel = w.shape[2:]
    k = len(kernel)
    u = windows_of(x, kernel, stride, dilation)
    # (batch, in, kh, oh, kw, ow): places of the kernel are even axes behind the first two, the output's are odd
    out = u.shape[3::2]
    ones = (1,) * k
    co = outs // groups
    # (n, g, 1, oh, ow, ci, kh, kw) times (1, g, co, 1, 1, ci, kh, kw), summed over the last three; g only of several
    g = (groups,) * (groups > 1)
    at = len(g) + 1
    full = (n, *g, co, *out, inner, *kernel)
    u = reshape(u, (n, *g, inner, *u.shape[2:]))
    u = permute(u, (*range(at), *range(at + 2, at + 2 + 2 * k, 2), at, *range(at + 1, at + 1 + 2 * k, 2)))
    left = reshape(u, (n, *g, 1, *out, inner, *kernel))
    right = reshape(w, (1, *g, co, *ones, inner, *kernel))
    m = len(full)
    axes = tuple(range(m - k - 1, m))
    total = whole_product(
        name,
        device,
        (left, right),
        math.prod(full[m - k - 1 :]),
        lambda a, b: reduce_axis(expand(a, full) * expand(b, full), Op.ADD, axes),
    )
    return reshape(total, (n, outs, *out))


def _biased(name: str, u: UOp, bias: Tensor | None, weight: Ints) -> UOp:
    """`u`, which a weight of that shape made, with a number added to each channel."""
    if bias is None:
        return u
    channels = u.shape[1]
    if bias.uop.shape != (channels,):
        raise ShapeError(f"{name}: bias has shape {bias.uop.shape}, but the weight {weight} makes {channels} channels")
    u, c = common_dtype(u, bias.uop)
    return u + broadcast(reshape(c, row_shape(channels, 1, len(u.shape))), u.shape)


def _conv_padding(padding: Sizes | str, kernel: Ints, stride: Ints, dilation: Ints) -> Pairs:
    if not isinstance(padding, str):
        return tuple([(p, p) for p in per_axis("padding", padding, len(kernel), 0)])
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise ShapeError(f'padding is an int, one for each axis, "same" or "valid", not {padding!r}')
    if any(s != 1 for s in stride):
        raise ShapeError(f'padding="same" needs stride 1, not {stride}')
    return tuple([(d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for k, d in zip(kernel, dilation)])


conv1d, conv2d, conv3d = family(
    _convolve,
    "functional autocast=low",
    """
    conv1d:
    1-D convolution: x (batch, in, n) or (in, n), weight (out, in/groups, k); see `conv2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[[1.0, 2.0, 4.0]]]).conv1d(Tensor([[[1.0, -1.0]]]))
    Tensor([[[-1., -2.]]], dtype=float32)

    conv2d:
    2-D convolution (cross-correlation, as everywhere in deep learning).

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

    conv3d:
    3-D convolution: x (batch, in, d, h, w) or without batch, weight (out, in/groups, kd, kh, kw); see
    `conv2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(1, 1, 3, 3, 3).conv3d(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 2, 2, 2)
    """,
)


# A transposed convolution is a convolution for each phase of the stride, laid side by side: nothing is multiplied by
# inserted zeros.
def _transposed(
    name: str,
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    same_device(x, weight, bias)
    xs, ws = x.uop.shape, weight.uop.shape
    if len(xs) == axes + 1:
        x = x.unsqueeze(0)
        return _transposed(name, axes, x, weight, bias, stride, padding, output_padding, groups, dilation).squeeze(0)
    if len(xs) != axes + 2 or len(ws) != axes + 2:
        raise ShapeError(
            f"{name}: x is (batch, in, {AXES[axes]}) and weight (in, out/groups, {KERNEL[axes]}), not {xs} and {ws}"
        )
    if groups < 1 or ws[0] % groups or xs[1] != ws[0]:
        raise ShapeError(
            f"{name}: x of shape {xs} has {xs[1]} channels, so the weight must have shape ({xs[1]}, out/groups, "
            f"{KERNEL[axes]}) and groups divide {xs[1]}, not {ws} and {groups}"
        )
    st, di = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    side = per_axis("padding", padding, axes, 0)
    extra = per_axis("output_padding", output_padding, axes, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, st, di)):
        raise ShapeError(f"{name}: output_padding {extra} must be less than the stride {st} or the dilation {di}")
    a, b = common_dtype(x.uop, weight.uop)
    reach = [d * (k - 1) + 1 for k, d in zip(ws[2:], di)]
    sizes = [(n - 1) * s - 2 * p + r + e for n, s, p, r, e in zip(xs[2:], st, side, reach, extra)]
    if any(n < 1 for n in sizes):
        raise ShapeError(f"{name}: x of shape {xs} with padding {side} leaves nothing: the output would be {sizes}")
    u = _unwound(name, x.device, a, b, st, di, groups)
    # whole it begins `padding` early; what lies beyond its end is zero
    ends = [p + n for p, n in zip(side, sizes)]
    u = pad(u, tuple([(0, max(0, e - n)) for e, n in zip(ends, u.shape[2:])]))
    u = shrink(u, tuple(zip(side, ends)))
    return result(_biased(name, u, bias, ws), x, weight, bias)


def _unwound(name: str, device: str, x: UOp, w: UOp, stride: Ints, dilation: Ints, groups: int) -> UOp:
    """The transposed convolution of (batch, in, ...) and (in, out/groups, ...), whole.

    Position o*s + r of it is the sum over j of x[o - j] * w[j*s + r]: for each phase r a convolution with every s-th
    element of the kernel, turned round.
    """
    channels, co, *kernel = w.shape
    k, inner = len(kernel), channels // groups
    ones, turned = (1,) * k, tuple(range(3, 3 + 2 * k, 2))
    if any(d > 1 for d in dilation):
        spread = reshape(w, (channels, co, *woven(kernel, ones)))
        spread = pad(spread, tuple([p for d in dilation for p in ((0, 0), (0, d - 1))]))
        kernel = [n * d for n, d in zip(kernel, dilation)]
        w = reshape(spread, (channels, co, *kernel))
    taps = [-(-n // s) for n, s in zip(kernel, stride)]
    w = pad(w, tuple([(0, m * s - n) for n, m, s in zip(kernel, taps, stride)]))
    w = reshape(w, (groups, inner, co, *woven(taps, stride)))
    w = flip(w, turned)
    # (g, co, s..., ci, taps...): each phase is an output channel
    w = permute(w, (0, 2, *range(4, 4 + 2 * k, 2), 1, *turned))
    w = reshape(w, (groups * co * math.prod(stride), inner, *taps))
    x = pad(x, tuple([(m - 1, m - 1) for m in taps]))
    u = _windowed_product(name, device, x, w, ones, ones, groups)
    u = named("conv", u, x, w, arguments=(((0, 0),) * k, ones, ones, groups))
    n, out = u.shape[0], u.shape[2:]
    u = reshape(u, (n, groups * co, *stride, *out))
    u = permute(u, (0, 1, *[i for j in range(k) for i in (2 + k + j, 2 + j)]))
    return reshape(u, (n, groups * co, *[o * s for o, s in zip(out, stride)]))


conv_transpose1d, conv_transpose2d, conv_transpose3d = family(
    _transposed,
    "functional autocast=low",
    """
    conv_transpose1d:
    Transposed 1-D convolution: x (batch, in, n), weight (in, out/groups, k); see
    `conv_transpose2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[[1.0, 2.0]]]).conv_transpose1d(Tensor([[[1.0, 10.0]]]))
    Tensor([[[ 1., 12., 20.]]], dtype=float32)

    conv_transpose2d:
    Transposed 2-D convolution: the map of `conv2d`'s gradient to that of its input.

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

    conv_transpose3d:
    Transposed 3-D convolution: x (batch, in, d, h, w), weight (in, out/groups, kd, kh, kw);
    see `conv_transpose2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(1, 1, 2, 2, 2).conv_transpose3d(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 3, 3, 3)
    """,
)
