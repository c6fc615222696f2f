"""Movement: the same values seen in another order or shape. Nothing is copied; the scheduler turns it into indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.errors import DTypeError, ModeError, RangeError, ShapeError
from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import function
from anneal.ops.checks import Axes, axes_of, axis_in, axis_of, int_args, is_tensor, need_axes, said, several, whole
from anneal.ops.indexing import values_now
from anneal.ops.inputs import along, places, wholes
from anneal.ops.joining import join, slice_axis
from anneal.ops.nodes import BOOL, INT32, Number, broadcast, check_inside, iota, weak_const
from anneal.uop import Varying, const
from anneal.uop.sizes import Size, divided_size, least, most, product, range_of, size


@function("view")
def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The values in row-major order under another shape; one size may be -1, to be worked out.

    Raises ShapeError if the number of elements differs.

    >>> from anneal.tensor import Tensor; Tensor.arange(6).reshape(2, -1)
    Tensor([[0, 1, 2],
            [3, 4, 5]], dtype=int32)
    """
    new = int_args(shape)
    old = x.shape
    if new == old:
        return x
    if -1 in new:
        total = product(old)
        if new.count(-1) > 1:
            raise ShapeError(f"reshape: only one size of {new} can be -1")
        if (left := divided_size(total, size(-product(new)))) is None:
            raise ShapeError(f"reshape: {total} elements of shape {old} do not divide into {new}")
        new = tuple([left if n == -1 else n for n in new])
    if product(new) != product(old) or (len(new) > 1 and any(n < 0 for n in new)):
        raise ShapeError(
            f"reshape: shape {old} has {product(old)} elements and {new} has {product(new)}; "
            f"they must be equal (one size may be -1)"
        )
    return x._new(nodes.reshape(x.uop, new))


@function("function_alias=view_copy view")
def view(x: Tensor, *shape: Any) -> Tensor:
    """`reshape`; or `bitcast`, given a dtype.

    >>> from anneal.tensor import Tensor; Tensor.arange(4).view(2, 2).shape
    (2, 2)
    """
    if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)):
        return x.bitcast(shape[0])
    return x.reshape(*shape)


@function("alias=view_as view")
def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """The tensor in the shape of `other`: `reshape(other.shape)`.

    >>> from anneal.tensor import Tensor; Tensor([1, 2, 3, 4]).reshape_as(Tensor.ones(2, 2))
    Tensor([[1, 2],
            [3, 4]], dtype=int32)
    """
    return x.reshape(other.shape)


@function("view")
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The tensor with the axes from start_dim to end_dim joined to one.

    >>> from anneal.tensor import Tensor; Tensor.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    s = x.shape
    if not s:
        return x.reshape(1)
    a, b = axis_of(start_dim, len(s)), axis_of(end_dim, len(s))
    if a > b:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {s}")
    return x.reshape((*s[:a], product(s[a : b + 1]), *s[b + 1 :]))


@function("view")
def ravel(x: Tensor) -> Tensor:
    """The tensor with all axes joined to one.

    >>> from anneal.tensor import Tensor; Tensor([[1, 2], [3, 4]]).ravel()
    Tensor([1, 2, 3, 4], dtype=int32)
    """
    return x.reshape(-1 if x.numel() else 0)


@function("view")
def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """The tensor with one axis split into several, of the given sizes (one may be -1).

    >>> from anneal.tensor import Tensor; Tensor.zeros(2, 12).unflatten(1, (3, -1)).shape
    (2, 3, 4)
    """
    a = axis_in(dim, x)
    s, new = x.shape, int_args((sizes,))
    if new.count(-1) == 1 and (left := divided_size(s[a], size(-product(new)))) is not None:
        new = tuple([left if n == -1 else n for n in new])
    if product(new) != s[a]:
        raise ShapeError(f"unflatten: axis {dim} of shape {s} has {s[a]} elements, which {tuple(sizes)} does not give")
    return x.reshape(nodes.resized(s, a, *new))


@function("function_alias=squeeze_copy in_place=shape view")
def squeeze(x: Tensor, dim: Axes = None) -> Tensor:
    """The tensor without its axes of size 1: all of them, or those given (an axis of another size stays).

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(1, 3, 1).squeeze().shape, Tensor.zeros(1, 3, 1).squeeze(0).shape
    ((3,), (3, 1))
    """
    axes = axes_of(dim, x.ndim)
    return x.reshape(tuple([n for i, n in enumerate(x.shape) if n != 1 or i not in axes]))


@function("function_alias=unsqueeze_copy in_place=shape view")
def unsqueeze(x: Tensor, dim: int | None = None) -> Tensor:
    """The tensor with a new axis of size 1 at `dim`.

    >>> from anneal.tensor import Tensor; Tensor.zeros(3).unsqueeze(-1).shape
    (3, 1)
    """
    if dim is None:
        raise ShapeError("unsqueeze: say where, as dim=")
    a, s = axis_of(dim, x.ndim + 1), x.shape
    return x.reshape((*s[:a], 1, *s[a:]))


# -- order ------------------------------------------------------------------------------------------------------------


@function("function_alias=permute_copy view")
def permute(x: Tensor, *dims: Any) -> Tensor:
    """The tensor with its axes reordered: axis i of the result is axis dims[i].

    >>> from anneal.tensor import Tensor; Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    order = int_args(dims)
    n = x.ndim
    if len(order) != n:
        raise ShapeError(f"permute: a tensor of shape {x.shape} needs {n} axes, not {order}")
    axes = tuple([axis_of(a, n) for a in order]) if n else ()
    if len(set(axes)) != n:
        raise ShapeError(f"permute: every axis must be named once; {order} does not")
    return x._new(nodes.permute(x.uop, axes))


@function("alias=swapaxes,swapdims function_alias=transpose_copy in_place=shape view")
def transpose(x: Tensor, dim0: int = 1, dim1: int = 0) -> Tensor:
    """The tensor with two axes exchanged.

    >>> from anneal.tensor import Tensor; Tensor([[1, 2, 3]]).transpose(0, 1).shape
    (3, 1)
    """
    n = x.ndim
    a, b = axis_of(dim0, n), axis_of(dim1, n)
    if a == b:
        return x
    order = list(range(n))
    order[a], order[b] = b, a
    return x._new(nodes.permute(x.uop, order))


@function("function_alias=t_copy in_place=shape view")
def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; a vector or scalar is itself. Raises ShapeError above two axes.

    >>> from anneal.tensor import Tensor; Tensor([[1, 2], [3, 4]]).t()
    Tensor([[1, 3],
            [2, 4]], dtype=int32)
    """
    if x.ndim > 2:
        raise ShapeError(f"t: takes at most two axes, not shape {x.shape}; use .mT or .transpose")
    return x.transpose(0, 1) if x.ndim == 2 else x


@function("alias=moveaxis view array_api=moveaxis")
def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """The tensor with the axes `source` moved to `destination`; the others keep their order.

    >>> from anneal.tensor import Tensor; Tensor.zeros(2, 3, 4).movedim(0, -1).shape
    (3, 4, 2)
    """
    n = x.ndim
    frm = [axis_of(a, n) for a in ([source] if isinstance(source, int) else source)]
    to = [axis_of(a, n) for a in ([destination] if isinstance(destination, int) else destination)]
    if len(frm) != len(to) or len(set(frm)) != len(frm) or len(set(to)) != len(to):
        raise ShapeError(f"movedim: {source} and {destination} must name equally many axes, each once")
    rest = iter([a for a in range(n) if a not in frm])
    placed = dict(zip(to, frm))
    return x._new(nodes.permute(x.uop, [placed[i] if i in placed else next(rest) for i in range(n)]))


@function
def flip(x: Tensor, *dims: Any, axis: Axes = None) -> Tensor:
    """The tensor with axes reversed; all of them if none is named.

    >>> from anneal.tensor import Tensor; Tensor([[1, 2], [3, 4]]).flip(1)
    Tensor([[2, 1],
            [4, 3]], dtype=int32)
    """
    if dims and axis is not None:
        raise DTypeError("flip: dims and axis are the same argument; give one of them")
    named = int_args(dims) if dims else axis
    return x._new(nodes.flip(x.uop, axes_of(named, x.ndim)))


@function
@wholes("shifts")
def roll(
    x: Tensor,
    shifts: int | Sequence[int],
    dims: Axes = None,
) -> Tensor:
    """The elements shifted along the axes; those that leave at one end enter at the other. Without axes, as one flat
    row.

    >>> from anneal.tensor import Tensor; Tensor.arange(5).roll(2)
    Tensor([3, 4, 0, 1, 2], dtype=int32)
    """
    if dims is None:
        if not isinstance(shifts, int) and len(shifts) != 1:
            raise ShapeError("roll: several shifts need as many dims")
        return x.ravel().roll(shifts, 0).reshape(x.shape)
    need_axes(x.uop.shape)
    amounts: list[Any] = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if len(amounts) != len(axes):
        raise ShapeError(f"roll: {len(amounts)} shifts for {len(axes)} axes; give one each")
    u = x.uop
    for shift, a in zip(amounts, axes):
        at = axis_in(a, x)
        s = u.shape
        n = s[at]
        back = -shift
        if type(shift) is Varying and isinstance(n, int):
            places = iota(n) + broadcast(const(INT32, back % n), (n,))
            u = nodes.picked(u, at, places % n)
            continue
        if most(n) < 2 or shift == 0 or (isinstance(n, int) and shift % n == 0):
            continue
        if isinstance(n, int):
            begin = n - shift % n
        elif abs(shift) <= least(n):
            begin = n - shift if shift > 0 else -shift
        else:
            raise ShapeError(f"roll: {shift} may be more than the {n} elements of axis {a} of shape {x.shape}")
        # two copies side by side, seen through a window
        twice = broadcast(nodes.reshape(u, nodes.resized(s, at, 1, n)), nodes.resized(s, at, 2, n))
        twice = nodes.reshape(twice, nodes.resized(s, at, 2 * n))
        u = nodes.cut(twice, at, begin, begin + n)
    return x._new(u)


# -- repetition -------------------------------------------------------------------------------------------------------


@function("alias=broadcast_to function_alias=expand_copy view")
def expand(x: Tensor, *shape: Any) -> Tensor:
    """The tensor with axes of size 1 repeated to `shape`, new axes in front; -1 keeps a size.

    >>> from anneal.tensor import Tensor; Tensor([[1], [2]]).expand(-1, 3)
    Tensor([[1, 1, 1],
            [2, 2, 2]], dtype=int32)
    """
    new = int_args(shape)
    old = x.shape
    lead = len(new) - len(old)
    if lead < 0:
        raise ShapeError(f"expand: shape {old} has more axes than {new}")
    full = (*new[:lead], *[m if n == -1 else n for n, m in zip(new[lead:], old)])
    for i, (n, have) in enumerate(zip(full, (1,) * lead + old)):
        if n < 0 or have not in (n, 1):
            raise ShapeError(
                f"expand: shape {old} does not expand to {new}: axis {i - len(new)} is {have} and only size 1 repeats"
            )
    return x._new(broadcast(x.uop, full))


@function("view")
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """The tensor expanded to the shape of `other`: `expand(other.shape)`.

    >>> from anneal.tensor import Tensor; Tensor([[1], [2]]).expand_as(Tensor.ones(2, 3)).tolist()
    [[1, 1, 1], [2, 2, 2]]
    """
    return x.expand(other.shape)


@function
def repeat(x: Tensor, *repeats: Any) -> Tensor:
    """The tensor repeated along each axis, with new axes in front (NumPy's tile).

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).repeat(2, 2)
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], dtype=int32)
    """
    times = int_args(repeats)
    if any(t < 0 for t in times):
        raise ShapeError(f"repeat: counts must not be negative, not {times}")
    if len(times) < x.ndim:
        raise ShapeError(f"repeat: shape {x.shape} needs at least {x.ndim} counts, not {times}")
    s = (1,) * (len(times) - x.ndim) + x.shape
    split = [m for t, n in zip(times, s) for m in ((n,) if t == 1 else (1, n))]
    spread = [m for t, n in zip(times, s) for m in ((n,) if t == 1 else (t, n))]
    u = nodes.expand(nodes.reshape(x.uop, tuple(split)), tuple(spread))
    return x._new(nodes.reshape(u, tuple([t * n for t, n in zip(times, s)])))


@function
def tile(x: Tensor, *repeats: Any) -> Tensor:
    """`repeat`, with missing counts taken as 1.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).tile(2)
    Tensor([1, 2, 1, 2], dtype=int32)
    """
    times = int_args(repeats)
    return x.repeat((1,) * (x.ndim - len(times)) + times)


@function
def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """The tensor with each element repeated `repeats` times along an axis; without an axis, flattened first.

    A tensor or a list has a count for each position. The counts are computed now, unless `output_size` says what they
    add up to: then the result has so many elements, in jit too, and what the counts lack is the last position's.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).repeat_interleave(2)
    Tensor([1, 1, 2, 2], dtype=int32)
    """
    if isinstance(repeats, (list, tuple)):
        repeats = x._made(list(repeats), device=x.device)
    if is_tensor(repeats):
        return _repeated(x, repeats, dim, output_size)
    repeats = whole("repeats", repeats)
    if isinstance(repeats, int) and repeats < 0:
        raise ShapeError(f"repeat_interleave: repeats is a count, not {repeats!r}")
    if dim is None or not x.ndim:
        axis_in(dim or 0, x)
        return x.ravel().repeat_interleave(repeats, 0)
    a = axis_in(dim, x)
    s = x.uop.shape
    u = broadcast(nodes.reshape(x.uop, nodes.resized(s, a, s[a], 1)), nodes.resized(s, a, s[a], repeats))
    return x._new(nodes.reshape(u, nodes.resized(s, a, s[a] * repeats)))


def _repeated(x: Tensor, counts: Tensor, at: int | None, total: int | None) -> Tensor:
    """The tensor with each position of an axis repeated as `counts` says."""
    name = "repeat_interleave"
    x = x.ravel() if at is None else x
    at = axis_in(at or 0, x)
    n = x.shape[at] if x.ndim else 1
    if not counts.dtype.is_int or counts.ndim > 1 or counts.numel() not in (1, n):
        raise ShapeError(f"{name}: repeats are {n} integers, one for each position, or one, not {said(counts)}")
    counts = counts.reshape(-1).expand(n)
    if total is None:
        known = values_now(counts, "give output_size=, what they add up to")
        if known.size and int(known.min()) < 0:
            raise ShapeError(f"{name}: repeats are counts, not {int(known.min())}")
        return x.index_select(at, np.repeat(np.arange(n, dtype=np.int32), known))
    if total < 0:
        raise ShapeError(f"{name}: output_size must not be negative, not {total}")
    found = counts.cumsum(0).searchsorted(x._new_plain(nodes.iota(total)), right=True)
    return x.index_select(at, found.minimum(n - 1))


# -- borders ----------------------------------------------------------------------------------------------------------


@function("functional")
def pad(x: Tensor, padding: Sequence[Any], mode: str = "constant", value: Number | None = 0.0) -> Tensor:
    """Borders added, filled with `value`, which integers keep without its fraction; None is 0.

    `padding` is torch's flat list, last axis first (left, right, top, bottom, ...), or one (before, after) pair
    per axis, None for no border. A negative number cuts off. mode is "constant", "reflect", "replicate" or "circular".

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).pad((1, 2), value=9), Tensor([[1]]).pad(((0, 0), (1, 0)))
    (Tensor([9, 1, 2, 9, 9], dtype=int32), Tensor([[0, 1]], dtype=int32))
    """
    pairs = pad_pairs(x, padding)
    if mode != "constant":
        return pad_from_inside(x, pairs, mode).clone()
    u = x.uop
    cut = tuple([(_above(-b), n - _above(-a)) for (b, a), n in zip(pairs, u.shape)])
    for i, (begin, end) in enumerate(cut):
        if begin > end:
            raise ShapeError(f"pad: {pairs[i]} cuts more than the {u.shape[i]} elements of axis {i}")
    u = nodes.shrink(u, cut)
    grown = tuple([(_above(b), _above(a)) for b, a in pairs])
    if value:
        if u.dtype is BOOL:
            value = bool(value)
        elif not u.dtype.is_float:
            if not math.isfinite(value):
                raise RangeError(f"{u.dtype.name} does not hold {value}; give a whole number, or use .float() first")
            value = int(value)  # without its fraction
    if value is None or (not value and str(value) != "-0.0"):
        return x._new(nodes.filled(u, grown, 0))
    return x._new(nodes.filled(u, grown, weak_const(u.dtype, value)))


@function
def shrink(x: Tensor, bounds: Sequence[tuple[int, int] | None]) -> Tensor:
    """The part [begin, end) of each axis; None keeps an axis whole.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink((None, (1, 3)))
    Tensor([[2, 3],
            [5, 6]], dtype=int32)
    """
    s = x.shape
    given = [b if b is None else int_args((several("each of bounds", b),)) for b in several("bounds", bounds)]
    if len(given) != len(s) or any(b is not None and len(b) != 2 for b in given):
        raise ShapeError(f"shrink: shape {s} needs {len(s)} (begin, end) pairs, not {said(bounds)}")
    pairs = tuple([(0, n) if b is None else (b[0], b[1]) for b, n in zip(given, s)])
    for i, (b, e) in enumerate(pairs):
        check_inside(b, e, i, s)
    return x._new(nodes.shrink(x.uop, pairs))


@function("alias=narrow_copy view")
@places(along)
def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements of one axis from `start` on.

    >>> from anneal.tensor import Tensor
    >>> Tensor.arange(5).narrow(0, 1, 3)
    Tensor([1, 2, 3], dtype=int32)
    """
    need_axes(x.shape)
    a = axis_in(dim, x)
    n = x.shape[a]
    begin = start + n if range_of(start)[1] < 0 else start
    check_inside(begin, begin + length, a, x.shape)
    return slice_axis(x, a, begin, begin + length)


def _above(n: Size) -> Size:
    """`max(0, n)`, for a symbolic size that is known to have one sign."""
    if isinstance(n, int):
        return max(0, n)
    low, high = range_of(n)
    if low < 0 < high:
        raise ShapeError(f"pad: whether {n} adds or cuts off depends on the values of its Variables; give it one sign")
    return n if low >= 0 else 0


# -- how borders are given --------------------------------------------------------------------------------------------
# What `pad` is given, and borders that take values from inside the tensor.


def pad_pairs(x: Tensor, padding: Sequence[Any]) -> nodes.Pairs:
    """The borders of each axis, of torch's flat list or of pairs."""
    n = x.ndim
    if isinstance(padding, (int, np.integer)):
        border = whole("padding", padding)
        return ((border, border),) * n
    padding = several("padding", padding)
    if any(p is None or isinstance(p, (tuple, list)) for p in padding):
        padding = [(0, 0) if p is None else p for p in padding]
        given = [int_args((p,)) if isinstance(p, (tuple, list)) else (p,) for p in padding]
        if len(given) != n or any(len(p) != 2 for p in given):
            raise ShapeError(f"pad: shape {x.shape} needs {n} (before, after) pairs, not {tuple(padding)}")
        return tuple([(p[0], p[1]) for p in given])
    flat = int_args((tuple(padding),))
    if len(flat) % 2 or len(flat) > 2 * n:
        raise ShapeError(
            f"pad: shape {x.shape} takes an even number of sizes up to {2 * n}, last axis first, not {flat}"
        )
    last_first = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
    return ((0, 0),) * (n - len(last_first)) + tuple(last_first[::-1])


def pad_from_inside(x: Tensor, pairs: nodes.Pairs, mode: str) -> Tensor:
    """Borders with values of the tensor itself."""
    if mode not in ("reflect", "replicate", "circular"):
        raise ModeError(f"pad: mode is constant, reflect, replicate or circular, not {mode!r}")
    out = x
    for axis, (before, after) in enumerate(pairs):
        n = out.shape[axis]
        if before == after == 0:
            continue
        # a negative border cuts off: in a circle first, else what was added, as in torch
        cut = (max(0, -before), max(0, -after))
        before, after = max(0, before), max(0, after)
        if sum(cut) > n + before + after or (mode == "circular" and sum(cut) > n):
            raise ShapeError(f"pad: {pairs[axis]} cuts more than the {n} elements of axis {axis} of {x.shape}")
        if mode == "circular":
            out, n, cut = slice_axis(out, axis, cut[0], n - cut[1]), n - sum(cut), (0, 0)
        room = {"reflect": n - 1, "circular": n, "replicate": before + after if n else 0}[mode]
        if max(before, after) > room:
            kind = ModeError if n < x.shape[axis] else ShapeError  # torch's result is not of the tensor then
            raise kind(f"pad: {mode} of {pairs[axis]} needs at most {room} on axis {axis} of shape {x.shape}")
        row = [out]
        for width, left in ((before, True), (after, False)):
            if not width:
                continue
            first, last = {"replicate": (0, n - 1), "reflect": (1, n - 1 - width), "circular": (n - width, 0)}[mode]
            begin = first if left else last
            part = slice_axis(out, axis, begin, begin + (1 if mode == "replicate" else width))
            if mode == "replicate":
                part = part._new(broadcast(part.uop, nodes.resized(out.shape, axis, width)))
            elif mode == "reflect":
                part = part.flip(axis)
            row = [part, *row] if left else [*row, part]
        out = join(row, axis) if len(row) > 1 else out
        if cut != (0, 0):
            out = slice_axis(out, axis, cut[0], out.shape[axis] - cut[1])
    return out
