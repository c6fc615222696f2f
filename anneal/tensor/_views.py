"""Movement: the same values seen in another order or shape. Nothing is copied; the scheduler turns it into indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.ops import (
    axes_of,
    axis_of,
    broadcast_shapes,
    checked,
    int_args,
    need_tensor,
    nodes,
    one_of,
    said,
    several,
    whole,
)
from anneal.ops.nodes import Number, broadcast, check_inside, every, iota, weak_const
from anneal.tensor._base import TensorBase
from anneal.tensor._elementwise import beside
from anneal.tensor._gamma import Gamma
from anneal.uop import Op, UOp, alu, const, dtypes, promote
from anneal.uop.sizes import Size, divided_size, least, most, product, range_of, size

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["Views"]

_INT32 = dtypes.int32
_BOOL = dtypes.bool_


class Views(Gamma):
    """Movement operations."""

    __slots__ = ()

    # -- shape ----------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> Self:
        """The values in row-major order under another shape; one size may be -1, to be worked out.

        Raises ShapeError if the number of elements differs.

        >>> from anneal.tensor import Tensor
        >>> Tensor.arange(6).reshape(2, -1)
        Tensor([[0, 1, 2],
                [3, 4, 5]], dtype=int32)
        """
        new = int_args("reshape", shape)
        old = self.uop.shape
        if new == old:
            return self
        if -1 in new:
            known = -product(new)
            total = product(old)
            if new.count(-1) > 1:
                raise ShapeError(f"reshape: only one size of {new} can be -1")
            left = divided_size(total, size(known))
            if left is None:
                raise ShapeError(f"reshape: {total} elements of shape {old} do not divide into {new}")
            new = tuple([left if n == -1 else n for n in new])
        if product(new) != product(old) or any(n < 0 for n in new):
            raise ShapeError(
                f"reshape: shape {old} has {product(old)} elements and {new} has {product(new)}; "
                f"they must be equal (one size may be -1)"
            )
        return self._new(nodes.reshape(self.uop, new))

    def view(self, *shape: Any) -> Self:
        """`reshape`; or `bitcast`, given a dtype.

        >>> from anneal.tensor import Tensor
        >>> Tensor.arange(4).view(2, 2).shape
        (2, 2)
        """
        if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)):
            return self.bitcast(shape[0])
        return self.reshape(*shape)

    def reshape_as(self, other: TensorBase) -> Self:
        """`reshape(other.shape)`."""
        return self.reshape(other.shape)

    view_as = reshape_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from start_dim to end_dim as one.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        n = self.ndim
        if not n:
            return self.reshape(1)
        a, b = axis_of("flatten", start_dim, n), axis_of("flatten", end_dim, n)
        if a > b:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {self.shape}")
        s = self.shape
        return self.reshape((*s[:a], product(s[a : b + 1]), *s[b + 1 :]))

    def ravel(self) -> Self:
        """All axes as one."""
        return self.reshape(-1) if self.numel() else self.reshape(0)

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """One axis as several, of the given sizes (one may be -1).

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 12).unflatten(1, (3, -1)).shape
        (2, 3, 4)
        """
        a = axis_of("unflatten", dim, self.ndim)
        s, new = self.shape, int_args("unflatten", (sizes,))
        if new.count(-1) == 1 and (left := divided_size(s[a], size(-product(new)))) is not None:
            new = tuple([left if n == -1 else n for n in new])
        if product(new) != s[a]:
            raise ShapeError(
                f"unflatten: axis {dim} of shape {s} has {s[a]} elements, which {tuple(sizes)} does not give"
            )
        return self.reshape((*s[:a], *new, *s[a + 1 :]))

    def squeeze(self, dim: int | Sequence[int] | None = None, axis: int | Sequence[int] | None = None) -> Self:
        """Without the axes of size 1: all of them, or those given (an axis of another size stays).

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(1, 3, 1).squeeze().shape, Tensor.zeros(1, 3, 1).squeeze(0).shape
        ((3,), (3, 1))
        """
        axes = axes_of("squeeze", one_of("squeeze", axis, dim), self.ndim)
        return self.reshape(tuple([n for i, n in enumerate(self.shape) if n != 1 or i not in axes]))

    def unsqueeze(self, dim: int | None = None, axis: int | None = None) -> Self:
        """With a new axis of size 1 at `dim`.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(3).unsqueeze(-1).shape
        (3, 1)
        """
        at = one_of("unsqueeze", axis, dim)
        if at is None:
            raise ShapeError("unsqueeze: say where, as dim=")
        a = axis_of("unsqueeze", at, self.ndim + 1)
        s = self.shape
        return self.reshape((*s[:a], 1, *s[a:]))

    # -- order ----------------------------------------------------------------------------------------------------

    def permute(self, *dims: Any) -> Self:
        """The axes in another order: axis i of the result is axis dims[i].

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        order = int_args("permute", dims)
        n = self.ndim
        if len(order) != n:
            raise ShapeError(f"permute: a tensor of shape {self.shape} needs {n} axes, not {order}")
        axes = tuple([axis_of("permute", a, n) for a in order]) if n else ()
        if len(set(axes)) != n:
            raise ShapeError(f"permute: every axis must be named once; {order} does not")
        return self._new(nodes.permute(self.uop, axes))

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes exchanged.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2, 3]]).transpose(0, 1).shape
        (3, 1)
        """
        n = self.ndim
        a, b = axis_of("transpose", dim0, n), axis_of("transpose", dim1, n)
        if a == b:
            return self
        order = list(range(n))
        order[a], order[b] = b, a
        return self._new(nodes.permute(self.uop, order))

    swapaxes = transpose
    swapdims = transpose

    def t(self) -> Self:
        """The transpose of a matrix; a vector or scalar is itself. Raises ShapeError above two axes."""
        if self.ndim > 2:
            raise ShapeError(f"t: takes at most two axes, not shape {self.shape}; use .mT or .transpose")
        return self.transpose(0, 1) if self.ndim == 2 else self

    @property
    def T(self) -> Self:
        """All axes in reverse order."""
        return self._new(nodes.permute(self.uop, tuple(range(self.ndim))[::-1]))

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"mT: needs two axes or more, not shape {self.shape}")
        return self.transpose(-2, -1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """The axes `source` moved to `destination`; the others keep their order.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 3, 4).movedim(0, -1).shape
        (3, 4, 2)
        """
        n = self.ndim
        frm = [axis_of("movedim", a, n) for a in ([source] if isinstance(source, int) else source)]
        to = [axis_of("movedim", a, n) for a in ([destination] if isinstance(destination, int) else destination)]
        if len(frm) != len(to) or len(set(frm)) != len(frm) or len(set(to)) != len(to):
            raise ShapeError(f"movedim: {source} and {destination} must name equally many axes, each once")
        rest = iter([a for a in range(n) if a not in frm])
        placed = dict(zip(to, frm, strict=True))
        return self._new(nodes.permute(self.uop, [placed[i] if i in placed else next(rest) for i in range(n)]))

    moveaxis = movedim

    def flip(self, *dims: Any, axis: int | Sequence[int] | None = None) -> Self:
        """The axes reversed; all of them if none is named.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).flip(1)
        Tensor([[2, 1],
                [4, 3]], dtype=int32)
        """
        named = int_args("flip", dims) if dims else axis
        return self._new(nodes.flip(self.uop, axes_of("flip", named, self.ndim)))

    def roll(
        self,
        shifts: int | Sequence[int],
        dims: int | Sequence[int] | None = None,
        axis: int | Sequence[int] | None = None,
    ) -> Self:
        """Shifted along the axes, what leaves at one end entering at the other; without axes, as one flat row.

        >>> from anneal.tensor import Tensor
        >>> Tensor.arange(5).roll(2)
        Tensor([3, 4, 0, 1, 2], dtype=int32)
        """
        where = one_of("roll", axis, dims)
        if where is None:
            if not isinstance(shifts, int):
                raise ShapeError("roll: several shifts need as many dims")
            return self.ravel().roll(shifts, 0).reshape(self.shape)
        amounts = [shifts] if isinstance(shifts, int) else list(shifts)
        axes = [where] if isinstance(where, int) else list(where)
        if len(amounts) != len(axes):
            raise ShapeError(f"roll: {len(amounts)} shifts for {len(axes)} axes; give one each")
        u = self.uop
        for shift, a in zip(amounts, axes, strict=True):
            at = axis_of("roll", a, self.ndim)
            s = u.shape
            n = s[at] if s else 1
            if most(n) < 2 or shift == 0 or (isinstance(n, int) and shift % n == 0):
                continue
            if isinstance(n, int):
                begin: Size = n - shift % n
            elif abs(shift) <= least(n):
                begin = n - shift if shift > 0 else -shift
            else:
                raise ShapeError(f"roll: {shift} may be more than the {n} elements of axis {a} of shape {self.shape}")
            # two copies side by side, seen through a window
            twice = broadcast(nodes.reshape(u, (*s[:at], 1, *s[at:])), (*s[:at], 2, *s[at:]))
            twice = nodes.reshape(twice, (*s[:at], 2 * n, *s[at + 1 :]))
            u = nodes.shrink(twice, tuple([(begin, begin + n) if i == at else (0, m) for i, m in enumerate(s)]))
        return self._new(u)

    # -- repetition -----------------------------------------------------------------------------------------------

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated to `shape`, new axes in front; -1 keeps a size.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1], [2]]).expand(-1, 3)
        Tensor([[1, 1, 1],
                [2, 2, 2]], dtype=int32)
        """
        new = int_args("expand", shape)
        old = self.uop.shape
        lead = len(new) - len(old)
        if lead < 0:
            raise ShapeError(f"expand: shape {old} has more axes than {new}")
        full = tuple([(old[i - lead] if i >= lead else -1) if n == -1 else n for i, n in enumerate(new)])
        for i, n in enumerate(full):
            have = old[i - lead] if i >= lead else 1
            if n < 0 or (have != n and have != 1):
                raise ShapeError(
                    f"expand: shape {old} does not expand to {new}: axis {i - len(new)} is {have} and only size 1 repeats"
                )
        return self._new(broadcast(self.uop, full))

    def expand_as(self, other: TensorBase) -> Self:
        """`expand(other.shape)`."""
        return self.expand(other.shape)

    def broadcast_to(self, *shape: Any) -> Self:
        """`expand`, NumPy's name for it."""
        return self.expand(*shape)

    def repeat(self, *repeats: Any) -> Self:
        """The whole tensor laid out again and again along each axis, new axes in front (NumPy's tile).

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).repeat(2, 2)
        Tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]], dtype=int32)
        """
        times = int_args("repeat", repeats)
        if any(t < 0 for t in times):
            raise ShapeError(f"repeat: counts must not be negative, not {times}")
        if len(times) < self.ndim:
            raise ShapeError(f"repeat: shape {self.shape} needs at least {self.ndim} counts, not {times}")
        s = (1,) * (len(times) - self.ndim) + self.shape
        split: list[int] = []
        spread: list[int] = []
        for t, n in zip(times, s, strict=True):
            split += [n] if t == 1 else [1, n]
            spread += [n] if t == 1 else [t, n]
        u = nodes.expand(nodes.reshape(self.uop, tuple(split)), tuple(spread))
        return self._new(nodes.reshape(u, tuple([t * n for t, n in zip(times, s, strict=True)])))

    def tile(self, *repeats: Any) -> Self:
        """`repeat`, with missing counts taken as 1."""
        times = int_args("tile", repeats)
        return self.repeat((1,) * (self.ndim - len(times)) + times)

    def repeat_interleave(self, repeats: int, dim: int | None = None, axis: int | None = None) -> Self:
        """Each element `repeats` times in a row along an axis; without one, of the flat row.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).repeat_interleave(2)
        Tensor([1, 1, 2, 2], dtype=int32)
        """
        at = one_of("repeat_interleave", axis, dim)
        if not isinstance(repeats, int) or repeats < 0:
            raise ShapeError(f"repeat_interleave: repeats is a count, not {repeats!r}")
        if at is None or not self.ndim:
            axis_of("repeat_interleave", at or 0, self.ndim)
            return self.ravel().repeat_interleave(repeats, 0)
        a = axis_of("repeat_interleave", at, self.ndim)
        s = self.shape
        u = broadcast(nodes.reshape(self.uop, (*s[: a + 1], 1, *s[a + 1 :])), (*s[: a + 1], repeats, *s[a + 1 :]))
        return self._new(nodes.reshape(u, (*s[:a], s[a] * repeats, *s[a + 1 :])))

    # -- borders --------------------------------------------------------------------------------------------------

    def pad(self, padding: Sequence[Any], mode: str = "constant", value: Number = 0.0) -> Self:
        """Borders added, filled with `value`.

        `padding` is torch's flat list, last axis first (left, right, top, bottom, ...), or one (before, after) pair
        per axis. A negative number cuts off. mode is "constant", "reflect", "replicate" or "circular".

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).pad((1, 2), value=9), Tensor([[1]]).pad(((0, 0), (1, 0)))
        (Tensor([9, 1, 2, 9, 9], dtype=int32), Tensor([[0, 1]], dtype=int32))
        """
        pairs = self._pad_pairs(padding)
        if mode != "constant":
            return self._pad_from_inside(pairs, mode)
        u = self.uop
        cut = tuple([(_above(-b), n - _above(-a)) for (b, a), n in zip(pairs, u.shape, strict=True)])
        for i, (begin, end) in enumerate(cut):
            if begin > end:
                raise ShapeError(f"pad: {pairs[i]} cuts more than the {u.shape[i]} elements of axis {i}")
        u = nodes.shrink(u, cut)
        grown = tuple([(_above(b), _above(a)) for b, a in pairs])
        padded = nodes.pad(u, grown)
        if value and padded is not u:
            fill = weak_const("pad", u.dtype, value)
            inside = nodes.pad(broadcast(const(_BOOL, True), u.shape), grown)
            padded = alu(Op.WHERE, (inside, padded.cast(fill.dtype), fill))
        return self._new(padded)

    def _pad_pairs(self, padding: Sequence[Any]) -> tuple[tuple[int, int], ...]:
        n = self.ndim
        if isinstance(padding, (int, np.integer)):
            border = whole("pad", "padding", padding)
            return ((border, border),) * n
        padding = several("pad", "padding", padding)
        if any(isinstance(p, (tuple, list)) for p in padding):
            given: list[tuple[int, ...]] = [
                int_args("pad", (p,)) if isinstance(p, (tuple, list)) else (p,) for p in padding
            ]
            if len(given) != n or any(len(p) != 2 for p in given):
                raise ShapeError(f"pad: shape {self.shape} needs {n} (before, after) pairs, not {tuple(padding)}")
            return tuple([(p[0], p[1]) for p in given])
        flat = int_args("pad", (tuple(padding),))
        if len(flat) % 2 or len(flat) > 2 * n:
            raise ShapeError(
                f"pad: shape {self.shape} takes an even number of sizes up to {2 * n}, last axis first, not {flat}"
            )
        last_first = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
        return ((0, 0),) * (n - len(last_first)) + tuple(last_first[::-1])

    def _pad_from_inside(self, pairs: tuple[tuple[int, int], ...], mode: str) -> Self:
        if mode not in ("reflect", "replicate", "circular"):
            raise ShapeError(f"pad: mode is constant, reflect, replicate or circular, not {mode!r}")
        out = self
        for axis, (before, after) in enumerate(pairs):
            n = out.shape[axis]
            room = {"reflect": n - 1, "circular": n, "replicate": before + after if n else 0}[mode]
            if min(before, after) < 0 or max(before, after) > room:
                raise ShapeError(
                    f"pad: {mode} of {(before, after)} needs 0 to {room} on axis {axis} of shape {self.shape}"
                )
            parts = []
            for width, left in ((before, True), (after, False)):
                if not width:
                    continue
                if mode == "replicate":
                    edge = out._slice(axis, 0, 1) if left else out._slice(axis, n - 1, n)
                    part = edge._new(broadcast(edge.uop, (*out.shape[:axis], width, *out.shape[axis + 1 :])))
                elif mode == "reflect":
                    part = (out._slice(axis, 1, width + 1) if left else out._slice(axis, n - 1 - width, n - 1)).flip(
                        axis
                    )
                else:
                    part = out._slice(axis, n - width, n) if left else out._slice(axis, 0, width)
                parts.append((left, part))
            row = [p for left, p in parts if left] + [out] + [p for left, p in parts if not left]
            out = out._cat(row, axis) if len(row) > 1 else out
        return out

    def _slice(self, axis: int, begin: int, end: int) -> Self:
        s = self.uop.shape
        pairs = tuple([(begin, end) if i == axis else (0, n) for i, n in enumerate(s)])
        return self._new(nodes.shrink(self.uop, pairs))

    def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
        """The part [begin, end) of each axis; None keeps an axis whole.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink((None, (1, 3)))
        Tensor([[2, 3],
                [5, 6]], dtype=int32)
        """
        s = self.shape
        given = [
            b if b is None else int_args("shrink", (several("shrink", "each of bounds", b),))
            for b in several("shrink", "bounds", bounds)
        ]
        if len(given) != len(s) or any(b is not None and len(b) != 2 for b in given):
            raise ShapeError(f"shrink: shape {s} needs {len(s)} (begin, end) pairs, not {said(bounds)}")
        pairs = tuple([(0, n) if b is None else (b[0], b[1]) for b, n in zip(given, s, strict=True)])
        for i, (b, e) in enumerate(pairs):
            check_inside("shrink", b, e, i, s)
        return self._new(nodes.shrink(self.uop, pairs))

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """`length` elements of one axis from `start` on.

        >>> from anneal.tensor import Tensor
        >>> Tensor.arange(5).narrow(0, 1, 3)
        Tensor([1, 2, 3], dtype=int32)
        """
        a = axis_of("narrow", dim, self.ndim)
        n = self.shape[a]
        begin = start + n if range_of(start)[1] < 0 else start
        check_inside("narrow", begin, begin + length, a, self.shape)
        return self._slice(a, begin, begin + length)

    # -- joining and cutting --------------------------------------------------------------------------------------

    def _cat(self, parts: Sequence[TensorBase], axis: int) -> Self:
        dtype = parts[0].dtype
        for p in parts[1:]:
            dtype = promote(dtype, p.dtype)
        op = Op.OR if dtype is _BOOL else Op.ADD
        total = sum(p.shape[axis] for p in parts)
        out: UOp | None = None
        begin = 0
        empty = []
        for p in parts:
            u = p.uop.cast(dtype)
            n = u.shape[axis]
            if n.__class__ is not int or n:
                padded = nodes.pad(
                    u, tuple([(begin, total - begin - n) if i == axis else (0, 0) for i in range(len(u.shape))])
                )
                out = padded if out is None else alu(op, (out, padded))
            else:
                empty.append(p)
            begin += n
        if out is None:
            out = parts[0].uop.cast(dtype)
        return self._new(beside(out, *empty) if empty else out, *parts)

    def cat(self: Any, *others: Any, dim: int | None = None, axis: int | None = None) -> Tensor:
        """Tensors one after the other along an axis (0 if none is named); other sizes must agree.

        Called on a list, `Tensor.cat([a, b], dim=1)`, or on a tensor, `a.cat(b, dim=1)`.

        >>> from anneal.tensor import Tensor
        >>> Tensor.cat([Tensor([1]), Tensor([2, 3])])
        Tensor([1, 2, 3], dtype=int32)
        """
        parts, where = members_of("cat", self, others, one_of("cat", axis, dim))
        first = parts[0]
        a = axis_of("cat", where, first.ndim)
        if not first.ndim:
            raise ShapeError("cat: tensors of shape () cannot be joined; use stack")
        for i, p in enumerate(parts[1:], 1):
            ours, theirs = first.shape, p.shape
            if len(ours) != len(theirs) or ours[:a] + ours[a + 1 :] != theirs[:a] + theirs[a + 1 :]:
                raise ShapeError(
                    f"cat: part 0 has shape {ours} and part {i} has {theirs}; all axes but axis {a} must be equal"
                )
        return first._cat(parts, a) if len(parts) > 1 else first  # type: ignore[no-any-return]

    concat = cat
    concatenate = cat

    def stack(self: Any, *others: Any, dim: int | None = None, axis: int | None = None) -> Tensor:
        """Tensors of one shape along a new axis (0 if none is named).

        >>> from anneal.tensor import Tensor
        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1)
        Tensor([[1, 3],
                [2, 4]], dtype=int32)
        """
        parts, where = members_of("stack", self, others, one_of("stack", axis, dim))
        first = parts[0]
        for i, p in enumerate(parts[1:], 1):
            if p.shape != first.shape:
                raise ShapeError(
                    f"stack: part 0 has shape {first.shape} and part {i} has {p.shape}; they must be equal"
                )
        a = axis_of("stack", where, first.ndim + 1)
        wide = [p.unsqueeze(a) for p in parts]
        return wide[0]._cat(wide, a) if len(wide) > 1 else wide[0]  # type: ignore[no-any-return]

    def split(
        self, split_size: int | Sequence[int], dim: int | None = None, axis: int | None = None
    ) -> tuple[Self, ...]:
        """Pieces of `split_size` along an axis (the last may be smaller), or of the sizes listed.

        >>> from anneal.tensor import Tensor
        >>> [t.tolist() for t in Tensor.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
        """
        a = axis_of("split", one_of("split", axis, dim, 0), self.ndim)
        if not self.ndim:
            raise ShapeError("split: a tensor of shape () has no axis to split")
        n = self.shape[a]
        if isinstance(split_size, int):
            if split_size <= 0:
                raise ShapeError(f"split: the size must be positive, not {split_size}")
            sizes = [min(split_size, n - i) for i in range(0, n, split_size)] or [0]
        else:
            sizes = list(split_size)
            if sum(sizes) != n or any(s < 0 for s in sizes):
                raise ShapeError(f"split: sizes {sizes} add up to {sum(sizes)}, but axis {a} of {self.shape} has {n}")
        out, begin = [], 0
        for s in sizes:
            out.append(self._slice(a, begin, begin + s))
            begin += s
        return tuple(out)

    def chunk(self, chunks: int, dim: int | None = None, axis: int | None = None) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size along an axis (the last may be smaller); of nothing so many empty ones.

        >>> from anneal.tensor import Tensor
        >>> [t.tolist() for t in Tensor.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
        """
        if chunks <= 0:
            raise ShapeError(f"chunk: the number of chunks must be positive, not {chunks}")
        a = axis_of("chunk", one_of("chunk", axis, dim, 0), self.ndim)
        n = self.shape[a] if self.ndim else 1
        return self.split(max(1, -(-n // chunks)), a) if n else (self,) * chunks

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """One tensor for each position of an axis, without that axis."""
        a = axis_of("unbind", dim, self.ndim)
        need_axes("unbind", self.shape)
        rest = (*self.shape[:a], *self.shape[a + 1 :])
        return tuple([t.reshape(rest) for t in self.split(1, a)]) if self.shape[a] else ()

    def unfold(self, dim: int, size: int, step: int = 1) -> Self:
        """Every window of `size` elements along an axis, `step` apart; the elements of a window are the last axis.

        >>> from anneal.tensor import Tensor
        >>> Tensor.arange(5).unfold(0, 3, 1)
        Tensor([[0, 1, 2],
                [1, 2, 3],
                [2, 3, 4]], dtype=int32)
        """
        a = axis_of("unfold", dim, self.ndim)
        if not self.ndim:
            return self.reshape(1).unfold(0, size, step).reshape(size)
        n = self.shape[a]
        if not 1 <= size <= n or step < 1:
            raise ShapeError(f"unfold: windows of {size}, {step} apart, do not fit axis {dim} of shape {self.shape}")
        u = nodes.permute(self.uop, [i for i in range(self.ndim) if i != a] + [a])
        rest = u.shape[:-1]
        out = (n - size) // step + 1
        # `size` copies laid end to end and read back in rows one longer: row j starts j elements further on
        copies = size + 1
        u = nodes.reshape(broadcast(nodes.reshape(u, (*rest, 1, n)), (*rest, copies, n)), (*rest, copies * n))
        whole = tuple([(0, m) for m in rest])
        u = nodes.reshape(nodes.shrink(u, (*whole, (0, size * (n + 1)))), (*rest, size, n + 1))
        u = nodes.shrink(u, (*whole, (0, size), (0, (out - 1) * step + 1)))
        u = every(u, len(rest) + 1, step)
        order = [*range(a), len(rest) + 1, *range(a, len(rest)), len(rest)]
        return self._new(nodes.permute(u, order))

    # -- triangles and diagonals ----------------------------------------------------------------------------------

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle of the last two axes; 0 above the diagonal.

        >>> from anneal.tensor import Tensor
        >>> Tensor.ones(2, 2).tril()
        Tensor([[1., 0.],
                [1., 1.]], dtype=float32)
        """
        return self._triangle("tril", diagonal, True)

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle of the last two axes; 0 below the diagonal."""
        return self._triangle("triu", diagonal, False)

    def _triangle(self, name: str, diagonal: int, lower: bool) -> Self:
        s = self.shape
        if len(s) < 2:
            raise ShapeError(f"{name}: needs two axes or more, not shape {s}")
        row = broadcast(iota(s[-2], 0, 2), s[-2:])
        column = broadcast(iota(s[-1], 1, 2), s[-2:])
        edge = row + diagonal if diagonal else row
        keep = alu(Op.NOT, (alu(Op.LT, (edge, column)),)) if lower else alu(Op.NOT, (alu(Op.LT, (column, edge)),))
        u = self.uop
        return self._new(alu(Op.WHERE, (broadcast(keep, s), u, const(u.dtype, 0))))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of two axes, as the last axis.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).diagonal()
        Tensor([1, 4], dtype=int32)
        """
        n = self.ndim
        if n < 2:
            raise ShapeError(f"diagonal: needs two axes or more, not shape {self.shape}")
        a, b = axis_of("diagonal", dim1, n), axis_of("diagonal", dim2, n)
        if a == b:
            raise ShapeError(f"diagonal: dim1 and dim2 are both axis {a}; name two different ones")
        u = nodes.permute(self.uop, [i for i in range(n) if i not in (a, b)] + [a, b])
        rest, (rows, columns) = u.shape[:-2], u.shape[-2:]
        top, left = max(0, -offset), max(0, offset)
        d = max(0, min(rows - top, columns - left))
        whole = tuple([(0, m) for m in rest])
        if not d:
            return self._new(beside(broadcast(const(u.dtype, 0), (*rest, 0)), self))
        u = nodes.shrink(u, (*whole, (top, top + d), (left, left + d)))
        # rows one longer put the diagonal under itself
        u = nodes.pad(nodes.reshape(u, (*rest, d * d)), (*((0, 0) for _ in rest), (0, d)))
        u = nodes.shrink(nodes.reshape(u, (*rest, d, d + 1)), (*whole, (0, d), (0, 1)))
        return self._new(nodes.reshape(u, (*rest, d)))

    def diag(self, diagonal: int = 0) -> Self:
        """The diagonal of a matrix, or the matrix with a vector as its diagonal.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).diag()
        Tensor([[1, 0],
                [0, 2]], dtype=int32)
        """
        if self.ndim == 2:
            return self.diagonal(diagonal)
        if self.ndim != 1:
            raise ShapeError(f"diag: takes one or two axes, not shape {self.shape}")
        n = self.shape[0]
        u = nodes.pad(nodes.reshape(self.uop, (n, 1)), ((0, 0), (0, n)))
        u = nodes.reshape(nodes.shrink(nodes.reshape(u, (n * (n + 1),)), ((0, n * n),)), (n, n))
        off = abs(diagonal)
        return self._new(nodes.pad(u, ((0, off), (off, 0)) if diagonal > 0 else ((off, 0), (0, off))))

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """A matrix for each row of the last axis, with the row as its diagonal and 0 elsewhere.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).diag_embed().shape
        (2, 2, 2)
        """
        s = self.shape
        if not s:
            raise ShapeError("diag_embed: needs one axis or more, not shape ()")
        a, b = axis_of("diag_embed", dim1, len(s) + 1), axis_of("diag_embed", dim2, len(s) + 1)
        if a == b:
            raise ShapeError(f"diag_embed: dim1 and dim2 are both axis {a}; name two different ones")
        n, rest = s[-1], s[:-1]
        plain = [(0, 0)] * len(rest)
        u = nodes.pad(nodes.reshape(self.uop, (*rest, n, 1)), (*plain, (0, 0), (0, n)))
        u = nodes.shrink(nodes.reshape(u, (*rest, n * (n + 1))), (*[(0, m) for m in rest], (0, n * n)))
        off = abs(offset)
        border = ((0, off), (off, 0)) if offset > 0 else ((off, 0), (0, off))
        u = nodes.pad(nodes.reshape(u, (*rest, n, n)), (*plain, *border))
        order = [i for i in range(len(s) + 1) if i not in (a, b)] + [a, b]
        return self._new(nodes.permute(u, sorted(range(len(order)), key=order.__getitem__)))

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Turned by `k` quarter turns from the first of two axes towards the second.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).rot90()
        Tensor([[2, 4],
                [1, 3]], dtype=int32)
        """
        if len(dims) != 2:
            raise ShapeError(f"rot90: takes two axes, not {tuple(dims)}")
        a, b = axes_of("rot90", dims, self.ndim)
        if axis_of("rot90", dims[0], self.ndim) != a:
            a, b = b, a
        k %= 4
        if k == 2:
            return self.flip(a, b)
        return self if not k else self.flip(b).transpose(a, b) if k == 1 else self.transpose(a, b).flip(b)

    def fliplr(self) -> Self:
        """The second axis reversed."""
        return self.flip(1)

    def flipud(self) -> Self:
        """The first axis reversed."""
        return self.flip(0)


def need_axes(name: str, shape: tuple[Any, ...]) -> None:
    """Raise ShapeError for a tensor of shape ()."""
    if not shape:
        raise ShapeError(f"{name}: a tensor of shape () has no axes; use .reshape(1) first")


def _above(n: Size) -> Size:
    """`max(0, n)`, for a symbolic size that is known to have one sign."""
    if isinstance(n, int):
        return max(0, n)
    low, high = range_of(n)
    if low < 0 < high:
        raise ShapeError(f"pad: whether {n} adds or cuts off depends on the values of its Variables; give it one sign")
    return n if low >= 0 else 0


def members_of(name: str, first: Any, others: tuple[Any, ...], axis: int | None) -> tuple[list[Any], int]:
    """The tensors of `Tensor.cat([a, b], dim)`, `Tensor.cat(a, b)` and `a.cat(b, dim=)` alike, and the axis."""
    if isinstance(first, (list, tuple)):
        parts = list(first)
        if others:
            if len(others) > 1 or not isinstance(others[0], int) or axis is not None:
                raise ShapeError(f"{name}: takes a list of tensors and one axis")
            axis = others[0]
    else:
        parts = [first]
        for o in others:
            if isinstance(o, (list, tuple)):
                parts.extend(o)
            else:
                parts.append(o)
    if not parts:
        raise ShapeError(f"{name}: needs at least one tensor")
    for i, p in enumerate(parts):
        if not isinstance(p, TensorBase):
            raise DTypeError(f"{name}: part {i} is {type(p).__name__}, not a tensor")
        if p.device != parts[0].device:
            parts[0]._mixed(name, p)
    return parts, 0 if axis is None else axis


@checked
def broadcast_tensors(*tensors: Views) -> tuple[Views, ...]:
    """All tensors expanded to the shape they broadcast to.

    >>> from anneal.tensor import Tensor
    >>> [t.shape for t in broadcast_tensors(Tensor.zeros(2, 1), Tensor.zeros(3))]
    [(2, 3), (2, 3)]
    """
    for t in tensors:
        need_tensor("broadcast_tensors", "each argument", t)
    if not tensors:
        return ()
    shape = broadcast_shapes("broadcast_tensors", *[t.shape for t in tensors])
    return tuple([t.expand(shape) for t in tensors])
