"""Views of the windows of one, two or three axes: what convolutions and pools are sums and extremes over.

A view of the windows is movement only, so what is computed of it fuses as anything else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anneal.errors import ShapeError
from anneal.ops.arguments import function
from anneal.ops.nodes import expand, pad, permute, reshape, shrink
from anneal.uop import UOp

if TYPE_CHECKING:
    from anneal.tensor import Tensor

Sizes = int | Sequence[int]
Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
AXES = {1: "n", 2: "h, w", 3: "d, h, w"}
KERNEL = {1: "k", 2: "kh, kw", 3: "kd, kh, kw"}


# -- windows ----------------------------------------------------------------------------------------------------------


def per_axis(name: str, what: str, value: Sizes, count: int, least: int = 1) -> Ints:
    """A number for each of `count` axes."""
    p = (value,) if isinstance(value, int) else tuple(value)
    p = p * count if len(p) == 1 else p
    if len(p) != count or not all(isinstance(v, int) and v >= least for v in p):
        many = "an int" if count == 1 else f"an int or {['two', 'three'][count - 2]} ints"
        raise ShapeError(f"{name}: {what} is {many} of at least {least}, not {value!r}")
    return p


def windows_of(name: str, x: UOp, kernel: Ints, stride: Ints, dilation: Ints) -> UOp:
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
    # of one window the stride does not matter, and may be longer than any row
    stride = tuple([size if o == 1 and s > size else s for o, size, s in zip(out, kernel, stride, strict=True)])
    whole = tuple([(0, n) for n in lead])
    if all(size == s and d == 1 for size, s, d in zip(kernel, stride, dilation, strict=True)):
        # Windows that do not overlap are rows and columns of blocks.
        x = shrink(x, (*whole, *[(0, o * size) for o, size in zip(out, kernel, strict=True)]))
        x = reshape(x, (*lead, *woven(out, kernel)))
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
    x = expand(reshape(x, (*lead, *woven((1,) * k, sizes))), (*lead, *woven(copies, sizes)))
    x = reshape(x, (*lead, *[c * n for c, n in zip(copies, sizes, strict=True)]))
    x = shrink(x, (*whole, *[(0, size * n) for size, n in zip(kernel, lengths, strict=True)]))
    x = reshape(x, (*lead, *woven(kernel, lengths)))
    spans = [o * s for o, s in zip(out, stride, strict=True)]
    x = shrink(x, (*whole, *[(0, n) for n in woven(kernel, spans)]))
    if any(s != 1 for s in stride):
        split = [n for group in zip(kernel, out, stride, strict=True) for n in group]
        x = reshape(x, (*lead, *split))
        x = shrink(x, (*whole, *[(0, 1 if i % 3 == 2 else n) for i, n in enumerate(split)]))
        x = reshape(x, (*lead, *woven(kernel, out)))
    return x


def woven(a: Sequence[int], b: Sequence[int]) -> Ints:
    """a0, b0, a1, b1, ..."""
    return tuple([n for pair in zip(a, b, strict=True) for n in pair])


# -- pools by their output --------------------------------------------------------------------------------------------

Outputs = int | Sequence[int | None]


@function(functional="unfold", method=False)
def im2col(x: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The windows of (batch, channels, h, w) as columns: (batch, channels*kh*kw, number of windows), torch's im2col.

    >>> from anneal.tensor import Tensor
    >>> im2col(Tensor.arange(6).reshape(1, 1, 2, 3), 2)
    Tensor([[[0, 1],
             [1, 2],
             [3, 4],
             [4, 5]]], dtype=int32)
    """
    if x.ndim == 3:
        return im2col(x.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if x.ndim != 4:
        raise ShapeError(f"unfold: x is (batch, channels, h, w) or (channels, h, w), not {x.shape}")
    k, d = per_axis("unfold", "kernel_size", kernel_size, 2), per_axis("unfold", "dilation", dilation, 2)
    p, s = per_axis("unfold", "padding", padding, 2, 0), per_axis("unfold", "stride", stride, 2)
    u = windows_of("unfold", pad(x.uop, ((0, 0), (0, 0), *[(v, v) for v in p])), k, s, d)
    n, c, kh, oh, kw, ow = u.shape
    return x._new(reshape(permute(u, (0, 1, 2, 4, 3, 5)), (n, c * kh * kw, oh * ow)))
