"""Convolutions and pools, found by where a view reads: a view of windows reads its base at stride * i + dilation * j.

The movement ops of a view are index arithmetic (`anneal.shape`). What they come to, simplified, is affine in the view's
axes if the view is one of windows, whatever movement made it; where it reads beyond the base, it pads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from anneal.codegen import affine_form
from anneal.onnx.exporting.contractions import factors
from anneal.onnx.exporting.recipes import Recipe
from anneal.onnx.exporting.values import Shape, Value, Writer
from anneal.ops.nodes import reshape
from anneal.rewrite import simplify
from anneal.shape import source_index
from anneal.uop import MOVEMENT, Op, UOp, alu, const, dtypes
from anneal.uop.sizes import product

__all__ = ["convolution", "pool"]

_INT32 = dtypes.int32
_FLOAT32 = dtypes.float32
_DEEPEST = 24  # movement ops of one view


@dataclass(frozen=True, slots=True)
class _Axis:
    """The map from a view's axis to its base: `stride * output + dilation * place - before`."""

    output: int | None  # axes of the view
    place: int | None
    stride: int
    dilation: int
    before: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """A base of a view, with the affine form of each of its indices, and whether a predicate holds it inside."""

    base: UOp
    forms: list[tuple[dict[int, int], int]]  # the factor of each axis of the view, and what is added
    inside: bool


def _readings(view: UOp) -> Iterator[_Reading]:
    """The part of each value below it that a view reads, the nearest first, as long as that is affine."""
    ranges = [
        const(_INT32, 0) if n == 1 else UOp(Op.RANGE, _INT32, (_number(n),), (i, "loop"))
        for i, n in enumerate(view.shape)
    ]
    axes = {r: i for i, r in enumerate(ranges) if r.op is Op.RANGE}
    index, predicate, u = tuple(ranges), None, view
    for _ in range(_DEEPEST):
        found = _affine(u, tuple([simplify(i) for i in index]), predicate, axes)
        if found is not None:
            yield found
        if u.op not in MOVEMENT:
            return
        index, more = source_index(u, index)
        if more is not None:
            predicate = more if predicate is None else alu(Op.AND, (predicate, more))
        u = u.src[0]


def _number(n: Any) -> UOp:
    return n if isinstance(n, UOp) else const(_INT32, n)


def _affine(u: UOp, index: tuple[UOp, ...], predicate: UOp | None, axes: dict[UOp, int]) -> _Reading | None:
    forms = []
    for i in index:
        terms, constant = affine_form(i)
        if any(t not in axes for t in terms):
            return None
        forms.append(({axes[t]: k for t, k in terms.items()}, constant))
    if predicate is None:
        return _Reading(u, forms, False)
    predicate = simplify(predicate)
    if predicate.is_const:
        return _Reading(u, forms, False) if predicate.arg else None
    bounds = []
    for i, n in zip(index, u.shape, strict=True):
        if isinstance(n, int):
            bounds += [affine_form(const(_INT32, -1) - i), affine_form(i - n)]
    stack = [predicate]
    while stack:  # every part of the predicate is an end of an axis of this base
        part = stack.pop()
        if part.op is Op.AND:
            stack += part.src
        elif part.op is not Op.LT or affine_form(part.src[0] - part.src[1]) not in bounds:
            return None
    return _Reading(u, forms, True)


def _axes(found: _Reading, places: Sequence[int], first: int) -> list[_Axis] | None:
    """The axes of a base from `first` on, read in windows; `places` are the view's axes within a window."""
    out: list[_Axis] = []
    for terms, constant in found.forms[first:]:
        inner = [(a, k) for a, k in terms.items() if a in places]
        outer = [(a, k) for a, k in terms.items() if a not in places]
        if len(inner) > 1 or len(outer) > 1 or any(k < 1 for k in terms.values()):
            return None
        output, stride = outer[0] if outer else (None, 1)
        place, dilation = inner[0] if inner else (None, 1)
        out.append(_Axis(output, place, stride, dilation, -constant))
    return out


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The attributes of a window operator."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    def attributes(self, *, kernel: bool = True) -> dict[str, Any]:
        more: dict[str, Any] = {"kernel_shape": self.kernel} if kernel else {}
        if any(d != 1 for d in self.dilations):
            more["dilations"] = self.dilations
        if any(self.pads):
            more["pads"] = self.pads
        return {**more, "strides": self.strides}


def _geometry(axes: list[_Axis], view: Shape, base: Shape, outputs: Shape, inside: bool) -> _Geometry | None:
    """The attributes with which windows over `base` are `outputs` many; None if there are none."""
    kernel, ends = [], []
    for axis, n, m in zip(axes, base, outputs, strict=True):
        k = 1 if axis.place is None else view[axis.place]
        if not all(isinstance(x, int) for x in (k, n, m)) or axis.before < 0:
            return None
        reach = axis.dilation * (k - 1) + 1
        needed = (m - 1) * axis.stride + reach - axis.before - n
        # as much as in front, if that makes as many windows
        after = next((e for e in (axis.before, max(0, needed)) if _count(n, axis, reach, e) == m), None)
        if after is None or (not inside and (axis.before > 0 or needed > 0)):
            return None
        kernel.append(k)
        ends.append(after)
    return _Geometry(kernel, [a.stride for a in axes], [a.dilation for a in axes], [*[a.before for a in axes], *ends])


def _count(n: int, axis: _Axis, reach: int, after: int) -> int:
    return (n + axis.before + after - reach) // axis.stride + 1


# -- convolutions -----------------------------------------------------------------------------------------------------


def convolution(u: UOp, target: Shape, bias: UOp | None = None) -> Recipe | None:
    """A Conv for a sum of products of windows and a weight, in the shape `target`, and a number for each channel added
    to it; None if it is none."""
    found = factors(u)
    rank, axes = len(u.shape), u.arg[1]
    k = len(axes) - 1
    # (batch, [groups,] out, places of the output..., in, places of the kernel...), summed from `in` on
    groups = rank - 2 * k - 3
    if found is None or k < 1 or groups not in (0, 1) or axes != tuple(range(rank - k - 1, rank)):
        return None
    if u.dtype is not _FLOAT32:
        return None  # runtimes have no other
    left, right = [s.src[0] if s.op is Op.EXPAND else s for s in found]
    out = 1 + groups
    weight_shape = right.shape
    if weight_shape[0] != 1 or left.shape[out] != 1 or any(n != 1 for n in weight_shape[out + 1 : -k - 1]):
        return None
    space = u.src[0].shape
    channels, inner = space[1] * space[out] if groups else space[out], space[-k - 1]
    if weight_shape[-k - 1 :] != space[-k - 1 :] or weight_shape[out] != space[out]:
        return None
    weight = reshape(right, (channels, inner, *space[rank - k :]))
    recipe = None
    for reading in _readings(left):  # the last that fits reads what is not padded yet
        geometry = _convolved(reading, left.shape, space, k, groups)
        if geometry is not None:
            inputs = (reading.base, weight) if bias is None else (reading.base, weight, bias)
            recipe = _conv(u, inputs, geometry, groups, target)
    return recipe


def _convolved(found: _Reading, view: Shape, space: Shape, k: int, groups: int) -> _Geometry | None:
    """The attributes of the convolution that a reading makes; None if it makes none."""
    base, rank = found.base, len(space)
    if len(base.shape) != k + 2:
        return None
    batch, channel = found.forms[0], found.forms[1]
    inner = rank - k - 1
    if batch != (({0: 1}, 0) if space[0] != 1 else ({}, 0)) or base.shape[0] != space[0]:
        return None
    wanted = {} if view[inner] == 1 else {inner: 1}
    if groups and space[1] != 1:
        wanted[1] = space[inner]
    if channel != (wanted, 0) or base.shape[1] != space[inner] * (space[1] if groups else 1):
        return None
    places = range(inner + 1, rank)
    axes = _axes(found, places, 2)
    if axes is None:
        return None
    outputs = range(2 + groups, inner)
    for axis, place, output in zip(axes, places, outputs, strict=True):
        if axis.place != (place if space[place] != 1 else None):
            return None
        if axis.output != (output if space[output] != 1 else None):
            return None
    return _geometry(axes, view, base.shape[2:], tuple([space[o] for o in outputs]), found.inside)


def _conv(u: UOp, inputs: tuple[UOp, ...], geometry: _Geometry, groups: int, target: Shape) -> Recipe:
    space = u.src[0].shape
    many = space[1] if groups else 1
    out: Shape = (space[0], inputs[1].shape[0], *space[2 + groups : -len(u.arg[1])])

    def emit(w: Writer, given: list[Value]) -> Value:
        names = [w.whole(v, s.shape).name for v, s in zip(given, inputs, strict=True)]
        more = {"group": many} if many != 1 else {}
        name = w.node("Conv", names, **geometry.attributes(), **more)
        return Value(name if out == target else w.reshape(name, target), u.dtype, target)

    return Recipe(inputs, emit)


# -- pools ------------------------------------------------------------------------------------------------------------


def pool(u: UOp, target: Shape, opset: int, *, mean: bool = False) -> Recipe | None:
    """A MaxPool, or the sum (`mean`: the mean) of an AveragePool, for a reduction of windows; None if it is none."""
    op, places = u.arg
    view = u.src[0]
    k = len(places)
    lead = len(view.shape) - 2 * k
    if u.dtype is not _FLOAT32 or op not in (Op.MAX, Op.ADD) or not 1 <= k <= 3 or lead < 0 or view.op not in MOVEMENT:
        return None
    if places != tuple(range(lead, lead + 2 * k, 2)) or all(view.shape[p] == 1 for p in places):
        return None
    recipe = None
    for reading in _readings(view):
        base, inside = (reading.base, reading.inside) if op is Op.ADD else _without_border(reading)
        if len(base.shape) != lead + k:
            continue
        plain = [({i: 1} if n != 1 else {}, 0) for i, n in enumerate(view.shape[:lead])]
        axes = _axes(reading, places, lead)
        if reading.forms[:lead] != plain or axes is None or base.shape[:lead] != view.shape[:lead]:
            continue
        if [a.place for a in axes] != [p if view.shape[p] != 1 else None for p in places]:
            continue
        outputs = range(lead + 1, lead + 2 * k, 2)
        if any(a.output != (o if view.shape[o] != 1 else None) for a, o in zip(axes, outputs, strict=True)):
            continue
        pads = _border(reading.base, base, lead)
        axes = [_Axis(a.output, a.place, a.stride, a.dilation, a.before + p) for a, p in zip(axes, pads, strict=True)]
        sizes = tuple([view.shape[o] for o in outputs])
        geometry = _geometry(axes, view.shape, base.shape[lead:], sizes, inside)
        if geometry is None or any(p >= n for p, n in zip(geometry.pads, geometry.kernel * 2, strict=True)):
            continue
        if op is Op.ADD and any(d != 1 for d in geometry.dilations) and opset < 19:
            return None
        recipe = _pooled(u, base, geometry, (lead, sizes, target), mean)
    return recipe


def _without_border(found: _Reading) -> tuple[UOp, bool]:
    """The value within a border of the least value, which never is the largest."""
    u = found.base
    if u.op is Op.WHERE and u.src[1].op is Op.PAD and u.src[2].is_const and u.src[2].arg == u.dtype.min:
        inside, inner, _ = u.src
        if inside.op is Op.PAD and inside.arg == inner.arg and _all_true(inside.src[0]) and not found.inside:
            return inner.src[0], True
    return u, False


def _all_true(u: UOp) -> bool:
    while u.op in (Op.EXPAND, Op.RESHAPE):
        u = u.src[0]
    return u.is_const and bool(u.arg)


def _border(outer: UOp, inner: UOp, lead: int) -> list[int]:
    if outer is inner:
        return [0] * (len(inner.shape) - lead)
    return [b for b, _ in outer.src[1].arg[lead:]]


def _pooled(u: UOp, x: UOp, geometry: _Geometry, shapes: tuple[int, Shape, Shape], mean: bool) -> Recipe:
    """The pool over (batch, channels, ...), which other leading axes are made."""
    lead, sizes, target = shapes
    front = x.shape[:lead]
    flat: Shape = front if lead == 2 else ((1, 1) + front)[-2:] if lead < 2 else (product(front[:-1]), front[-1])
    source = reshape(x, (*flat, *x.shape[lead:]))
    out: Shape = (*flat, *sizes)

    def emit(w: Writer, given: list[Value]) -> Value:
        name = w.whole(given[0], source.shape).name
        if u.arg[0] is Op.MAX:
            name = w.node("MaxPool", [name], **geometry.attributes())
        else:
            name = w.node("AveragePool", [name], count_include_pad=1, **geometry.attributes())
            if not mean:
                name = w.node("Mul", [name, w.scalar(u.dtype, product(geometry.kernel))])
        return Value(name if out == target else w.reshape(name, target), u.dtype, target)

    return Recipe((source,), emit)
