"""Convolutions and pools: sums and extremes over windows of one to three axes (pools: any number)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import anneal.tensor.functional as F
from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import Array, MaybeArray, MaybeTensor, Numbers, counted, ints, iota, total_of
from anneal.onnx.registry import op, rows
from anneal.ops import overlapped
from anneal.tensor import Tensor
from anneal.uop import Ints

Pairs = tuple[tuple[int, int], ...]
_AXES = (1, 2, 3)  # numbers of axes for which there are functions


class Window(NamedTuple):
    """The places of windows along each axis: sizes of kernel, steps and borders, and how many windows there are."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Pairs  # as given; what ceil_mode hangs over the end is not among them
    out: Ints

    def reach(self, sizes: Sequence[int]) -> Pairs:
        """The borders that the windows see: at the end cut to, or grown to, the last window's end."""
        ends = [
            (o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(self.out, self.strides, self.dilations, self.kernel)
        ]
        return tuple((b, e - n - b) for (b, _), e, n in zip(self.pads, ends, sizes))


class Windows(NamedTuple):
    """The attributes that say where windows lie."""

    auto_pad: str | None = "NOTSET"
    ceil_mode: int = 0
    dilations: Numbers = None
    kernel_shape: Numbers = None
    pads: Numbers = None
    strides: Numbers = None

    def steps(self, axes: int) -> tuple[Ints, Ints, list[int]]:
        """Strides, dilations and pads, as given or as they are if they are not."""
        each = (1,) * axes
        return tuple(self.strides or each), tuple(self.dilations or each), list(self.pads or [0] * (2 * axes))


def window_of(sizes: Sequence[int], how: Windows, kernel: Numbers = None) -> Window:
    """The windows over axes of these sizes; an error that names the node where they do not fit.

    `pads` are the begins of all axes and then the ends; `auto_pad` works them out so that SAME_UPPER and SAME_LOWER
    give ceil(size / stride) windows, the odd element of the padding at the end or at the beginning.
    """
    axes, kernel = len(sizes), how.kernel_shape if kernel is None else kernel
    if kernel is None:
        raise fail("kernel_shape is missing")
    strides, dilations, pads = how.steps(axes)
    if not len(kernel) == len(strides) == len(dilations) == axes or len(pads) != 2 * axes:
        raise fail(f"kernel_shape, strides, dilations and pads do not all fit the {axes} axes of windows")
    auto = how.auto_pad or "NOTSET"
    pairs, out = [], []
    for i, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations)):
        span = d * (k - 1) + 1
        if auto.startswith("SAME"):
            count = (n + s - 1) // s
            pair = _halves(max((count - 1) * s + span - n, 0), auto)
        else:
            pair = (0, 0) if auto == "VALID" else (pads[i], pads[axes + i])
            room = n + sum(pair) - span
            count = ((room + s - 1) // s if how.ceil_mode else room // s) + 1
            # A window that hangs over the end does not start in the padding.
            if how.ceil_mode and (count - 1) * s >= n + pair[0]:
                count -= 1
        if count < 1:
            raise fail(f"a kernel of {tuple(kernel)} does not fit the axes {tuple(sizes)} with pads {pads}")
        pairs.append(pair)
        out.append(count)
    return Window(tuple(kernel), strides, dilations, tuple(pairs), tuple(out))


def _halves(total: int, auto: str) -> tuple[int, int]:
    """The borders that a number of elements makes, the odd one at the end or at the beginning."""
    both = total // 2, total - total // 2
    return both if auto == "SAME_UPPER" else both[::-1]


def _bordered(x: Tensor, pairs: Pairs, value: Any = 0) -> Tensor:
    """x with borders along its last axes; negative ones cut off."""
    if not any(map(any, pairs)):
        return x
    return x.pad(((0, 0),) * (x.ndim - len(pairs)) + pairs, value=value)


def _windows(x: Tensor, w: Window, value: Any) -> Tensor:
    """(n, c, h, w) to (n, c, oh, ow, kh, kw), and so for any number of axes: a view."""
    x = _bordered(x, w.reach(x.shape[-len(w.kernel) :]), value)
    for i, (k, s, d) in enumerate(zip(w.kernel, w.strides, w.dilations)):
        x = x.unfold(2 + i, d * (k - 1) + 1, s)
        x = x if d == 1 else x[..., ::d]
    return x


# -- convolutions -----------------------------------------------------------------------------------------------------


def convolved(x: Tensor, weight: Tensor, bias: MaybeTensor, w: Window, groups: int) -> Tensor:
    """The convolution of (batch, in, ...) and (out, in/groups, ...) over the windows."""
    axes = len(w.kernel)
    if axes not in _AXES:
        raise fail(f"a convolution over {axes} axes; one to three are computed")
    side = [b for b, _ in w.pads]
    if any(b != e for b, e in w.pads):
        x, side = _bordered(x, w.pads), [0] * axes
    return getattr(F, f"conv{axes}d")(x, weight, bias, list(w.strides), side, list(w.dilations), groups)  # type: ignore[no-any-return]


def windows_of(x: Tensor, weight: Tensor, how: Windows) -> Window:
    """The windows of a convolution."""
    return window_of(x.shape[2:], how, kernel_of(weight, how))


def kernel_of(weight: Tensor, how: Windows) -> Ints:
    """The sizes of the kernel; the attribute, if given, must agree."""
    kernel = tuple(weight.shape[2:])
    if how.kernel_shape and tuple(how.kernel_shape) != kernel:
        raise fail(f"kernel_shape {tuple(how.kernel_shape)} is not that of the weight {tuple(weight.shape)}")
    return kernel


@op
def Conv(x: Tensor, weight: Tensor, bias: MaybeTensor, *, group: int, how: Windows) -> Tensor:
    """The convolution over one to three axes; the same in every version."""
    return convolved(x, weight, bias, windows_of(x, weight, how), group)


@op
def ConvTranspose(
    x: Tensor,
    weight: Tensor,
    bias: MaybeTensor,
    *,
    group: int = 1,
    output_padding: Numbers,
    output_shape: Numbers,
    how: Windows,
) -> Tensor:
    """The gradient of Conv by its input, as an operator of its own; `output_shape`, if given, decides the padding."""
    axes, kernel, auto_pad = x.ndim - 2, kernel_of(weight, how), how.auto_pad or "NOTSET"
    if axes not in _AXES:
        raise fail(f"a transposed convolution over {axes} axes; one to three are computed")
    steps, spread, given = how.steps(axes)
    extra = list(output_padding or [0] * axes)
    cut = []
    for i, n in enumerate(x.shape[2:]):
        full = steps[i] * (n - 1) + extra[i] + spread[i] * (kernel[i] - 1) + 1
        wanted = output_shape[i - axes] if output_shape else n * steps[i] if auto_pad.startswith("SAME") else None
        if wanted is None:
            cut.append((given[i], given[axes + i]) if auto_pad == "NOTSET" else (0, 0))
            continue
        cut.append(_halves(max(full - wanted, 0), auto_pad))
        extra[i] += max(wanted - full, 0)
    whole = getattr(F, f"conv_transpose{axes}d")(x, weight, None, list(steps), 0, 0, group, list(spread))
    out = _bordered(whole, tuple((-b, more - e) for (b, e), more in zip(cut, extra)))
    return out if bias is None else out + bias.reshape(1, -1, *[1] * axes)


@op
def Col2Im(x: Tensor, image_shape: Array, block_shape: Array, *, how: Windows) -> Tensor:
    """Columns put back where windows took them, overlapping ones added: a sum over the places of the kernel."""
    image, kernel = ints(image_shape), ints(block_shape)
    w = window_of(image, how, kernel)
    columns = x.reshape(x.shape[0], x.shape[1] // math.prod(kernel), *kernel, *w.out)
    padded = [size + sum(pair) for size, pair in zip(image, w.pads)]
    return _bordered(overlapped(columns, padded, w.strides, w.dilations), tuple((-b, -e) for b, e in w.pads))


# -- pools ------------------------------------------------------------------------------------------------------------


@op
def MaxPool(x: Tensor, *, storage_order: int = 0, how: Windows) -> Any:
    """The largest of each window, and since version 8 its place in the flat input; ceil_mode, dilations since 10."""
    axes, lowest = x.ndim - 2, -math.inf if x.dtype.is_float else x.dtype.min
    w = window_of(x.shape[2:], how)
    if not node.wants(1):
        if axes in _AXES:
            padded = _bordered(x, w.reach(x.shape[2:]), lowest)
            return getattr(F, f"max_pool{axes}d")(padded, list(w.kernel), list(w.strides), 0, list(w.dilations))
        return _windows(x, w, lowest).amax(tuple(range(2 + axes, 2 + 2 * axes)))
    seen = _windows(x, w, lowest).reshape(*x.shape[:2], *w.out, -1)
    return seen.amax(-1), _flat_position(x, seen.argmax(-1), w, storage_order)


def _flat_position(x: Tensor, best: Tensor, w: Window, column_major: int) -> Tensor:
    """The index in x of the `best` place of each window, laid flat; with column_major the first axis runs fastest."""
    axes, sizes = len(w.kernel), x.shape[2:]
    rest, places = best, []
    for i in reversed(range(axes)):
        rest, inside = rest.divmod(w.kernel[i])
        begin = iota(x, w.out[i], 2 + i, x.ndim) * w.strides[i] - w.pads[i][0]
        stride = math.prod(sizes[:i] if column_major else sizes[i + 1 :])
        places.append((begin + inside * w.dilations[i]) * stride)
    image = iota(x, math.prod(x.shape[:2]), 0, 1).reshape(*x.shape[:2], *[1] * axes)
    return counted(image * math.prod(sizes) + total_of(places))


def _counts(w: Window, sizes: Sequence[int], padding: int) -> list[Array]:
    """The number of elements that each window sees along each axis, with or without the padding."""
    found = []
    for n, k, s, d, (b, e), o in zip(sizes, w.kernel, w.strides, w.dilations, w.pads, w.out):
        places = np.arange(o)[:, None] * s - b + np.arange(k) * d
        low, high = (-b, n + e) if padding else (0, n)
        found.append(((places >= low) & (places < high)).sum(1))
    return found


def _window_sum(x: Tensor, w: Window) -> Tensor:
    axes = len(w.kernel)
    return _windows(x, w, 0).sum(tuple(range(2 + axes, 2 + 2 * axes)))


@op
def AveragePool(x: Tensor, *, count_include_pad: int = 0, how: Windows) -> Tensor:
    """The mean of each window; count_include_pad since version 7, ceil_mode since 10, dilations since 19."""
    w = window_of(x.shape[2:], how)
    total = _window_sum(x, w)
    if not how.ceil_mode and (count_include_pad or not any(map(any, w.pads))):
        return total * (1.0 / math.prod(w.kernel))
    node.room(*x.shape[:2], *w.out)
    counts = _counts(w, x.shape[2:], count_include_pad)
    if all((c == k).all() for c, k in zip(counts, w.kernel)):
        return total * (1.0 / math.prod(w.kernel))
    scale = reduce(np.multiply.outer, [1.0 / np.maximum(row, 1) for row in counts], np.ones(()))
    return total * node.constant(scale.astype(x.dtype.name))


@op
def LpPool(x: Tensor, *, p: float, how: Windows) -> Tensor:
    """The p-norm of each window; p is an integer since version 2, ceil_mode and dilations since 18."""
    return _root(_window_sum(_power(x, p), window_of(x.shape[2:], how)), p)


def _power(x: Tensor, p: float) -> Tensor:
    return x.abs() if p == 1 else x * x if p == 2 else x.abs().pow(p)


def _root(x: Tensor, p: float) -> Tensor:
    return x if p == 1 else x.sqrt() if p == 2 else x.pow(1 / p)


def _places(x: Tensor) -> Ints:
    return tuple(range(2, x.ndim))


rows(
    {
        "GlobalAveragePool": lambda x: x.mean(_places(x), keepdim=True),
        "GlobalMaxPool": lambda x: x.amax(_places(x), keepdim=True),
        "GlobalLpPool": lambda x, *, p: _root(_power(x, p).sum(_places(x), keepdim=True), p),
    }
)


@op
def MaxUnpool(x: Tensor, index: Tensor, output_shape: MaybeArray, *, how: Windows) -> Tensor:
    """MaxPool's results at the places that its indices name, zeros elsewhere."""
    kernel = how.kernel_shape or ()
    axes = len(kernel)
    steps, _, side = how.steps(axes)
    inferred = [
        (n - 1) * s - side[i] - side[axes + i] + k
        for i, (n, s, k) in enumerate(zip(x.shape[2:], steps, kernel, strict=True))
    ]
    shape = (*x.shape[:2], *inferred)
    out = x.new_zeros(math.prod(shape)).scatter(0, index.int().reshape(-1), x.reshape(-1)).reshape(*shape)
    if output_shape is None:
        return out
    return _bordered(out, tuple((0, n - m) for n, m in zip(ints(output_shape)[2:], inferred, strict=True)))
