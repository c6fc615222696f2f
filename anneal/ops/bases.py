"""Bases of views: what `x[0] += 1` or `x.view(-1).zero_()` changes besides the tensor that the op gave.

Nodes have no memory to share. A tensor from an op that gives a view in torch knows, weakly, the tensor that it is a
part of; an in-place op undoes the movements between the two, and the base shows the result.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from anneal.errors import GradientError, ShapeError
from anneal.ops import nodes
from anneal.ops.nodes import broadcast, inverse
from anneal.runtime import Late, is_realized
from anneal.uop import MOVEMENT, Op, UOp, alu, const, dtypes

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["Base", "base_of", "refresh"]


class Base:
    """The tensor that a view is a part of, and the movements between them, the view's own first.

    The movements begin at the tensor's values in the shape `core`: a reshape of a reshape is one.
    """

    __slots__ = ("_core", "_movements", "detached", "tensor")

    def __init__(self, tensor: Tensor, movements: list[UOp], core: tuple[int, ...]) -> None:
        self.tensor, self._movements, self._core = tensor, movements, core
        self.detached = any(u.op is Op.DETACH for u in movements)

    def written(self, new: UOp) -> UOp:
        """The base's values with `new` in the view's place."""
        for u, parent in zip(self._movements, self._replayed()[1:], strict=True):
            new = _undone(u, new, parent)
        return nodes.reshape(new, self.tensor.uop.shape)

    def show(self, x: Tensor) -> None:
        """Let `x` be this view of the base as it is now."""
        x._become(self._replayed()[0])
        x._base = weakref.ref(self.tensor), self.tensor.uop

    def _replayed(self) -> list[UOp]:
        """The view, the values that each movement is of, and the base, as it is now."""
        found = [nodes.reshape(self.tensor.uop, self._core)]
        for u in reversed(self._movements):
            found.append(u.replace(src=(found[-1],)))
        return found[::-1]


def base_of(x: Tensor, name: str) -> Base | None:
    """What `x` is a view of; None where nobody has that, or torch had copied it. `name` is for messages.

    Raises GradientError where the way from one to the other is not known any more, ShapeError where elements of the
    view are one in the base.
    """
    link = x._base
    tensor = None if link is None else link[0]()
    if tensor is None:
        return None
    try:
        at = link[1].numbering.node(link[1].template) if isinstance(link[1], Late) else link[1]
    except LookupError:  # it was computed since, and what it was before is forgotten
        at = tensor.uop
    ends = {}
    for end in (at, tensor.uop):
        ends[end] = end.shape
        while end.op is Op.RESHAPE:
            end = end.src[0]
        ends.setdefault(end, end.shape)
    movements: list[UOp] = []
    u = x.uop
    while u not in ends:
        if u.op not in MOVEMENT and u.op is not Op.DETACH:
            raise GradientError(
                f"{name}: the tensor is a view of another, of shape {tensor.shape}, which was computed since the "
                "view was "
                "taken: take the view again, or change a copy, x.clone()"
            )
        movements.append(u)
        u = u.src[0]
    if not _is_view(ends[u], movements):
        x._base = None
        return None
    if any(v.op is Op.EXPAND for v in movements):
        raise ShapeError(f"{name}: several elements of the expanded tensor are one in memory; use .clone() first")
    return Base(tensor, movements, ends[u])


def refresh(x: Tensor, name: str) -> None:
    """Let a view that is about to be changed show its base as it is now."""
    link = x._base
    if link is not None:
        base = base_of(x, name)
        if base is not None and base.tensor.uop is not link[1]:
            base.show(x)


def _undone(u: UOp, new: UOp, parent: UOp) -> UOp:
    """The values that a movement was of, where it now gives `new`."""
    if u.op is Op.RESHAPE:
        return nodes.reshape(new, parent.shape)
    if u.op is Op.PERMUTE:
        return nodes.permute(new, inverse(u.arg))
    if u.op is Op.FLIP:
        return nodes.flip(new, u.arg)
    if u.op is Op.DETACH:
        return new
    if u.op is Op.PAD:
        return nodes.shrink(new, tuple([(b, b + n) for (b, _), n in zip(u.arg, parent.shape, strict=True)]))
    if is_realized(parent) or parent.op is Op.UPDATE:
        return UOp(Op.UPDATE, parent.dtype, (parent, new), tuple([b for b, _ in u.arg]))
    around = tuple([(b, n - e) for (b, e), n in zip(u.arg, parent.shape, strict=True)])
    inside = nodes.pad(broadcast(const(dtypes.bool_, True), new.shape), around)
    return alu(Op.WHERE, (inside, nodes.pad(new, around), parent))


def _is_view(shape: tuple[int, ...], movements: list[UOp]) -> bool:
    """Whether torch gives a view, rather than a copy: whether strides can say where the elements are."""
    strides = _contiguous(shape)
    for u in reversed(movements):
        if not all(isinstance(n, int) for n in (*u.shape, *u.src[0].shape)):
            return True
        if u.op is Op.RESHAPE:
            found = _strides(u.src[0].shape, strides, u.shape)
            if found is None:
                return False
            strides = found
        elif u.op is Op.PERMUTE:
            strides = [strides[a] for a in u.arg]
        elif u.op is Op.FLIP:
            strides = [-s if a in u.arg else s for a, s in enumerate(strides)]
        elif u.op is Op.EXPAND:
            strides = [0 if a != b else s for s, a, b in zip(strides, u.src[0].shape, u.shape, strict=True)]
    return True


def _contiguous(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def _strides(shape: tuple[int, ...], strides: list[int], new: tuple[int, ...]) -> list[int] | None:
    """The strides of a reshaped view; None where there are none.

    Axes that lie in memory as one are joined; each group must be a run of the new axes.
    """
    if 0 in shape:
        return _contiguous(new)
    groups: list[list[int]] = []  # elements, and the last stride
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if groups and groups[-1][1] == n * s:
            groups[-1] = [groups[-1][0] * n, s]
        else:
            groups.append([n, s])
    out = [0] * len(new)
    axis = len(new) - 1
    for count, stride in reversed(groups):
        step = 1
        while axis >= 0 and step < count:
            out[axis] = step * stride
            step *= new[axis]
            axis -= 1
        if step != count:
            return None
    return out
