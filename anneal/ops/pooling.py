"""Windows of one, two or three axes, and pools: the largest, the mean or a norm of each window."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anneal.errors import PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function, need_float

from anneal.ops.nodes import (  # isort: skip
    Pairs, broadcast, expand, filled, head, iota, named, numbered, pad, permute, picked, reduce_axis, reduce_node,
    reshape, row_shape,
)  # fmt: skip
from anneal.ops.reduce import root, size_power
from anneal.uop import Ints, Op, UOp, by_rule, const

Sizes = int | Sequence[int]
AXES = {1: "n", 2: "h, w", 3: "d, h, w"}
KERNEL = {1: "k", 2: "kh, kw", 3: "kd, kh, kw"}


# -- windows ----------------------------------------------------------------------------------------------------------

# A view of the windows is movement only, so what is computed of it fuses as anything else does; convolutions are sums
# of products over it.


def per_axis(what: str, value: Sizes, count: int, least: int = 1) -> Ints:
    """A number for each of `count` axes."""
    p = (value,) if isinstance(value, int) else tuple(value)
    p = p * count if len(p) == 1 else p
    if len(p) != count or not all(isinstance(v, int) and v >= least for v in p):
        many = "an int" if count == 1 else f"an int or {['two', 'three'][count - 2]} ints"
        raise ShapeError(f"{what} is {many} of at least {least}, not {value!r}")
    return p


def windows_of(x: UOp, kernel: Ints, stride: Ints, dilation: Ints) -> UOp:
    """(..., h, w) to (..., kh, oh, kw, ow), and so for any number of axes: what each place of the kernel
    sees, a view.
    """
    k = len(kernel)
    lead, sizes = x.shape[:-k], x.shape[-k:]
    m = len(lead)
    out = []
    for axis, (n, size, s, d) in enumerate(zip(sizes, kernel, stride, dilation)):
        reach = d * (size - 1) + 1
        if n < reach:
            raise ShapeError(
                f"a kernel of {kernel} with dilation {dilation} does not fit the (padded) input of {sizes} "
                f"along axis {axis - k}; add padding or use a smaller kernel"
            )
        out.append((n - reach) // s + 1)
    # of one window the stride does not matter, and may be longer than any row
    stride = tuple([size if o == 1 and s > size else s for o, size, s in zip(out, kernel, stride)])
    if all(size == s and d == 1 for size, s, d in zip(kernel, stride, dilation)):
        # Windows that do not overlap are rows and columns of blocks.
        x = head(x, [o * size for o, size in zip(out, kernel)])
        x = reshape(x, (*lead, *woven(out, kernel)))
        return permute(x, (*range(m), *[m + 2 * i + j for i in range(k) for j in (1, 0)]))
    # Along one axis: copies of the row laid end to end and read back in rows d longer, so that row j starts j*d further
    # on.
    lengths = [max(n + d, o * s) for n, d, o, s in zip(sizes, dilation, out, stride)]
    # A longer row than n + d needs a longer input; what is added is never looked at.
    x = pad(x, tuple([(0, length - n - d) for length, n, d in zip(lengths, sizes, dilation)]))
    sizes = x.shape[-k:]
    copies = [-(-size * n // length) for size, n, length in zip(kernel, lengths, sizes)]
    x = expand(reshape(x, (*lead, *woven((1,) * k, sizes))), (*lead, *woven(copies, sizes)))
    x = reshape(x, (*lead, *[c * n for c, n in zip(copies, sizes)]))
    x = head(x, [size * n for size, n in zip(kernel, lengths)])
    x = reshape(x, (*lead, *woven(kernel, lengths)))
    x = head(x, woven(kernel, [o * s for o, s in zip(out, stride)]))
    x = reshape(x, (*lead, *[n for group in zip(kernel, out, stride) for n in group]))
    x = head(x, [n for size, o in zip(kernel, out) for n in (size, o, 1)])
    return reshape(x, (*lead, *woven(kernel, out)))


def woven(a: Sequence[int], b: Sequence[int]) -> Ints:
    """a0, b0, a1, b1, ..."""
    return tuple([n for pair in zip(a, b) for n in pair])


# -- pools by their output --------------------------------------------------------------------------------------------

Outputs = int | Sequence[int | None]


@function("functional=unfold method=no")
def im2col(x: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The windows of (batch, channels, h, w) as columns: (batch, channels*kh*kw, number of windows), torch's im2col.

    >>> from anneal.tensor import Tensor, functional
    >>> functional.unfold(Tensor.arange(6).reshape(1, 1, 2, 3), 2)
    Tensor([[[0, 1],
             [1, 2],
             [3, 4],
             [4, 5]]], dtype=int32)
    """
    if x.ndim == 3:
        return im2col(x.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if x.ndim != 4:
        raise ShapeError(f"unfold: x is (batch, channels, h, w) or (channels, h, w), not {x.shape}")
    k, d = per_axis("kernel_size", kernel_size, 2), per_axis("dilation", dilation, 2)
    p, s = per_axis("padding", padding, 2, 0), per_axis("stride", stride, 2)
    u = windows_of(pad(x.uop, tuple([(v, v) for v in p])), k, s, d)
    n, c, kh, oh, kw, ow = u.shape
    return x._new(reshape(permute(u, (0, 1, 2, 4, 3, 5)), (n, c * kh * kw, oh * ow)))


def _pool_args(
    axes: int, x: Tensor, kernel: Sizes, stride: Sizes | None, padding: Sizes, ceil: bool, dilation: Sizes
) -> tuple[Ints, Ints, Ints, Ints, Pairs]:
    """Kernel, stride, padding and dilation for each axis, and the padding with what ceil_mode adds at the end."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"x is (batch, channels, {AXES[axes]}) or (channels, {AXES[axes]}), not {x.shape}")
    k, d = per_axis("kernel_size", kernel, axes), per_axis("dilation", dilation, axes)
    p = per_axis("padding", padding, axes, 0)
    s = k if stride is None or stride == () else per_axis("stride", stride, axes)
    if any(2 * b > a for a, b in zip(k, p)):
        raise ShapeError(f"padding {p} is more than half the kernel {k}")
    sides = []
    for n, a, st, b, e in zip(x.shape[-axes:], k, s, p, d):
        extra = 0
        room = n + 2 * b - e * (a - 1) - 1
        # A last window, or the only one, may hang over the end, but not start in the padding.
        if ceil and room > -st and room % st and (room // st + 1) * st < n + b:
            extra = st - room % st
        sides.append((b, b + extra))
    return k, s, p, d, tuple(sides)


def _reduce_windows(u: UOp, op: Op, axes: int, wants: bool = False) -> UOp:
    """(..., kh, oh, kw, ow) to (..., oh, ow); of a maximum whose gradient is wanted, that goes to the first place."""
    m = len(u.shape) - 2 * axes
    along = tuple(range(m, m + 2 * axes, 2))
    out = reshape(reduce_axis(u, op, along), (*u.shape[:m], *u.shape[m + 1 :: 2]))
    return first_of_largest(out, u, along) if wants else out


def first_of_largest(out: UOp, u: UOp, axes: Sequence[int]) -> UOp:
    """`out`, the largest of `u` along axes, with a gradient that goes to the first place of a tie."""
    return by_rule("first", out, u, arguments=tuple(axes)) if out.dtype.is_float else out


def _max_pool(
    name: str,
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    k, s, _, d, sides = _pool_args(axes, x, kernel_size, stride, padding, ceil_mode, dilation)
    u = x._kept()
    top = _reduce_windows(windows_of(filled(u, sides, u.dtype.min), k, s, d), Op.MAX, axes, x.requires_grad)
    return x._new(named("max_pool", top, u, arguments=(k, s, d, sides)))


max_pool1d, max_pool2d, max_pool3d = family(
    _max_pool,
    "functional",
    """
    max_pool1d:
    The largest value of each window of the last axis; see `max_pool2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[[1.0, 3.0, 5.0, 7.0]]]).max_pool1d(2)
    Tensor([[[3., 7.]]], dtype=float32)

    max_pool2d:
    The largest value of each window of the last two axes; stride defaults to the kernel. Padding
    never wins.

    Of equal largest values in a window the first has the gradient.

    >>> from anneal.tensor import Tensor
    >>> max_pool2d(Tensor.arange(16).reshape(1, 4, 4), 2)
    Tensor([[[ 5,  7],
             [13, 15]]], dtype=int32)

    max_pool3d:
    The largest value of each window of the last three axes; see `max_pool2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(1, 1, 4, 4, 4).max_pool3d(2).shape
    (1, 1, 2, 2, 2)
    """,
)


def _avg_pool(
    name: str,
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    need_float("x", x)
    if divisor_override == 0:
        raise ShapeError(f"{name}: divisor_override is not 0")
    k, s, p, d, sides = _pool_args(axes, x, kernel_size, stride, padding, ceil_mode, 1)
    u = x.uop
    total = _reduce_windows(windows_of(pad(u, sides), k, s, d), Op.ADD, axes)
    hangs = any(after != b for b, (_, after) in zip(p, sides))
    told = (k, s, d, sides)
    total = named("sum_pool", total, u, arguments=told)
    if divisor_override is not None:
        return x._new(total * (1.0 / divisor_override))
    if not (hangs or (any(p) and not count_include_pad)):
        return x._new(named("avg_pool", total * (1.0 / math.prod(k)), u, arguments=told))
    # Elements that ceil_mode adds beyond the padding are never counted.
    counted, border = u.shape[-axes:], sides
    if count_include_pad:
        counted = tuple([n + 2 * b for n, b in zip(counted, p)])
        border = tuple([(0, after - b) for b, (_, after) in zip(p, sides)])
    ones = pad(broadcast(const(u.dtype, 1), counted), border)
    counts = _reduce_windows(windows_of(ones, k, s, d), Op.ADD, axes)
    return x._new(total / broadcast(counts, total.shape))


@function("functional single")
def avg_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last axis; see `avg_pool2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[[1.0, 3.0, 5.0, 7.0]]]).avg_pool1d(2)
    Tensor([[[2., 6.]]], dtype=float32)
    """
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


avg_pool2d, avg_pool3d = family(
    _avg_pool,
    "functional single",
    """
    avg_pool2d:
    The mean of each window of the last two axes; stride defaults to the kernel.

    With count_include_pad the zeros of the padding count; `divisor_override` replaces the count.

    >>> from anneal.tensor import Tensor
    >>> avg_pool2d(Tensor.arange(16).float().reshape(1, 4, 4), 2)
    Tensor([[[ 2.5,  4.5],
             [10.5, 12.5]]], dtype=float32)

    avg_pool3d:
    The mean of each window of the last three axes; see `avg_pool2d`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(1, 1, 4, 4, 4).avg_pool3d(2).shape
    (1, 1, 2, 2, 2)
    """,
)


def pooled(u: UOp, axis: int, m: int, op: Op, wants: bool = False) -> UOp:
    """The mean (ADD) or the largest (MAX) of each of `m` windows that cover an axis; `wants`: the latter's gradient."""
    s = u.shape
    n = s[axis]
    lead, tail = s[:axis], s[axis + 1 :]
    if n % m == 0:
        chosen = reshape(u, (*lead, m, n // m, *tail))
    else:
        row, inside = iota(m, 0, 2), (m, (n + 2 * m - math.gcd(n, m) - 1) // m)
        first = row * n // m
        last = (row * n + (n + m - 1)) // m
        place = broadcast(first, inside) + numbered(inside, 1)
        within = Op.MIN(place, broadcast(last - 1, inside))  # of the largest, the last one counts again
        chosen = picked(u, axis, within)
        if op is Op.ADD:
            mine = expand(reshape(place.eq(within), (*[1] * axis, *inside, *[1] * len(tail))), chosen.shape)
            chosen = mine.where(chosen, 0)
    out = reduce_node(chosen, op, (axis + 1,), False)
    if op is Op.MAX:
        return first_of_largest(out, chosen, (axis + 1,)) if wants else out
    if n % m == 0:
        share: float = m / n
        return out * share
    return out / expand(reshape((last - first).cast(u.dtype), row_shape(m, axis, len(s))), out.shape)


def _adaptive(name: str, axes: int, x: Tensor, output_size: Outputs) -> Tensor:
    """The windows of adaptive pooling, one for each output: from floor(i n / m) up to ceil((i + 1) n / m), axis by
    axis.
    """
    op = Op.MAX if "max" in name else Op.ADD
    if op is Op.ADD:
        need_float("x", x)
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"x is (batch, channels, {AXES[axes]}) or (channels, {AXES[axes]}), not {x.shape}")
    given = (output_size,) * axes if isinstance(output_size, int) else tuple(output_size)
    if len(given) != axes or not all(m is None or (isinstance(m, int) and m > 0) for m in given):
        raise ShapeError(f"output_size is a positive int or {axes} (None keeps an axis), not {output_size!r}")
    u = x._kept() if op is Op.MAX else x.uop
    for i, m in reversed(list(enumerate(given))):  # of equal ones the first, row by row, has the gradient
        axis = x.ndim - axes + i
        if m is None or m == u.shape[axis]:
            continue
        if not u.shape[axis]:
            raise PositionError(f"shape {x.shape} has nothing to choose from along axis {axis}")
        u = pooled(u, axis, m, op, x.requires_grad and op is Op.MAX)
    return x._new(u)


(
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
) = family(
    _adaptive,
    "functional method=no",
    """
    adaptive_avg_pool1d single:
    The mean of windows that make `output_size` of the last axis; see
    `adaptive_avg_pool2d`.

    >>> from anneal.tensor import Tensor
    >>> adaptive_avg_pool1d(Tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2)
    Tensor([[[2., 6.]]], dtype=float32)

    adaptive_avg_pool2d single:
    The mean of windows that make `output_size` of the last two axes; None keeps an
    axis.

    >>> from anneal.tensor import Tensor
    >>> adaptive_avg_pool2d(Tensor.arange(6).float().reshape(1, 2, 3), (1, 2))
    Tensor([[[2., 3.]]], dtype=float32)

    adaptive_avg_pool3d single:
    The mean of windows that make `output_size` of the last three axes; see
    `adaptive_avg_pool2d`.

    >>> from anneal.tensor import Tensor
    >>> adaptive_avg_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)

    adaptive_max_pool1d:
    The largest of windows that make `output_size` of the last axis.

    >>> from anneal.tensor import Tensor
    >>> adaptive_max_pool1d(Tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2)
    Tensor([[[3., 7.]]], dtype=float32)

    adaptive_max_pool2d:
    The largest of windows that make `output_size` of the last two axes; None keeps an
    axis.

    >>> from anneal.tensor import Tensor
    >>> adaptive_max_pool2d(Tensor.ones(1, 1, 4, 6), (2, 3)).shape
    (1, 1, 2, 3)

    adaptive_max_pool3d:
    The largest of windows that make `output_size` of the last three axes; None keeps an
    axis.

    >>> from anneal.tensor import Tensor
    >>> adaptive_max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """,
)


def _lp_pool(
    name: str, axes: int, x: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None
) -> Tensor:
    if norm_type == math.inf:
        return _max_pool(name, axes, x.abs(), kernel_size, stride)
    mean = _avg_pool(name, axes, size_power(x, norm_type), kernel_size, stride)
    return root(math.prod(per_axis("kernel_size", kernel_size, axes)) * mean, norm_type)


lp_pool1d, lp_pool2d = family(
    _lp_pool,
    "functional method=no single",
    """
    lp_pool1d:
    The p-norm of each window of the last axis.

    >>> from anneal.tensor import Tensor
    >>> lp_pool1d(Tensor([[[3.0, 4.0, 6.0, 8.0]]]), 2, 2)
    Tensor([[[ 5., 10.]]], dtype=float32)

    lp_pool2d:
    The p-norm of each window of the last two axes.

    >>> from anneal.tensor import Tensor
    >>> lp_pool2d(Tensor.ones(1, 1, 2, 2), 2, 2)
    Tensor([[[[2.]]]], dtype=float32)
    """,
)
