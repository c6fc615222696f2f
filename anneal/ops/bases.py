"""The ways from a tensor to its views: how a view is read from it, and how what is written to a view gets there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from anneal.errors import ShapeError
from anneal.ops.nodes import broadcast, detached, expand, flip, inverse, iota, pad, permute, reshape, shrink, span

from anneal.runtime import (  # isort: skip
    LEARNED, Args, Fun, Handle, Late, Numbering, Options, at_once, become_late, call_late, forget_become, here,
    is_realized, modes, number, tensor_class, varies_at,
)  # fmt: skip
from anneal.uop import Ints, Op, Shape, UOp, const, dtypes
from anneal.uop.sizes import symbolic_arg

Layout = tuple[Ints, int, Ints]  # the strides of a view, the place of its first element, and its shape
# an op of MOVEMENT, DETACH, BITCAST or CONTIGUOUS, and its argument; or the name of another, and its arguments
Step = tuple[Any, Any]
_MOST = 1 << 12  # recipes that are kept


# -- steps ------------------------------------------------------------------------------------------------------------

_READ: Final[dict[Any, Callable[[UOp, Any], UOp]]] = {
    Op.RESHAPE: reshape,
    Op.EXPAND: expand,
    Op.PERMUTE: permute,
    Op.PAD: pad,
    Op.SHRINK: shrink,
    Op.FLIP: flip,
    Op.DETACH: lambda u, _: detached(u),
    Op.BITCAST: lambda u, dtype: UOp(Op.BITCAST, dtype, (u,)),
    Op.CONTIGUOUS: lambda u, _: u,
}


# steps after which no element is there twice
_APART: Final[frozenset[Any]] = frozenset((*_READ, "diagonal")) - {Op.EXPAND}
_MOVES: Final[frozenset[Any]] = frozenset((Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.PAD))  # places, and no more

# Nodes have no memory to share. A tensor from an op that gives a view in torch knows what it is a part of (`View`, in
# `anneal/runtime/handle.py`): the root, and the movements between the two. A change of any of them goes to the root,
# whose views forget their nodes and are read from it anew when they are asked for.


def _read(u: UOp, op: Any, arg: Any) -> UOp:
    """The view of `u` that a step makes."""
    movement = _READ.get(op)
    if movement is not None:
        return movement(u, arg)
    with modes(defers=False):  # ops within the block are parts of one
        shown: UOp = getattr(tensor_class()(u, "cpu"), op)(*arg).uop  # nodes have no device
        return shown


def _undone(op: Any, arg: Any, new: UOp, parent: UOp) -> UOp:
    """The inverse of a step: the values of which the step now gives `new`."""
    if op is Op.RESHAPE:
        return reshape(new, parent.shape)
    if op is Op.PERMUTE:
        return permute(new, inverse(arg))
    if op is Op.FLIP:
        return flip(new, arg)
    if op in (Op.DETACH, Op.CONTIGUOUS):
        return new
    if op is Op.BITCAST:
        return UOp(op, parent.dtype, (new,))
    if op is Op.PAD:
        return shrink(new, tuple([(b, b + n) for (b, _), n in zip(arg, parent.shape)]))
    if op is not Op.SHRINK:
        return _scattered(lambda u: _read(u, op, arg), new, parent)
    if is_realized(parent) or parent.op is Op.UPDATE:
        return UOp(Op.UPDATE, parent.dtype, (parent, new), tuple([b for b, _ in arg]))
    around = tuple([(b, n - e) for (b, e), n in zip(arg, parent.shape)])
    inside = pad(broadcast(const(dtypes.bool_, True), new.shape), around)
    return inside.where(pad(new, around), parent)


def _scattered(read: Callable[[UOp], UOp], new: UOp, whole: UOp) -> UOp:
    """The whole with `new` in the places that `read` shows of it: by their numbers."""
    places = read(reshape(iota(whole.size), whole.shape))
    with modes(defers=False):  # ops within the block are parts of one
        old, at, given = [tensor_class()(reshape(u, (u.size,)), "cpu") for u in (whole, places, new)]
        return reshape(old.scatter(0, at, given).uop, whole.shape)


# -- ways -------------------------------------------------------------------------------------------------------------


class ViewRecipe:
    """The way from a tensor of `shape` to a view of it: steps, the first of which is of the tensor."""

    index: Any = None  # by which a program made it

    def __init__(self, shape: Shape, steps: tuple[Step, ...], strides: Ints | None = None) -> None:
        self.shape, self.steps, self.strides = shape, steps, strides
        ops = [op for op, _ in steps]
        self.detached = Op.DETACH in ops
        self.whole = ops.count(Op.DETACH) == len(ops)

    def then(self, step: ViewRecipe) -> ViewRecipe:
        """The way to a view of the view."""
        strided = step.steps and step.steps[0][0] == "as_strided"
        if strided and self.layout not in (None, (_contiguous(step.shape), 0, step.shape)):
            raise ShapeError(
                "as_strided: strides count from the first element in memory, and this tensor, of shape "
                f"{step.shape}, is part of another: call it on that one, with storage_offset=, or on a .clone()"
            )
        return recipe_of(self.shape, (*self.steps, *step.steps), self.strides)

    def below(self, step: ViewRecipe) -> ViewRecipe:
        """The way from the view to a view of it, if nobody has the root any more; its strides do not change."""
        self.then(step)  # or it raises
        return step if self.gaps is None else recipe_of(step.shape, step.steps, self.gaps)

    def after(self, over: Any) -> ViewRecipe:
        """The rest of the way, which goes by the view `over`."""
        return recipe_of(over.uop.shape, self.steps[len(over._base.recipe.steps) :])

    @cached_property
    def layout(self) -> Layout | None:
        """The layout of the elements in torch; None if strides cannot express it: there torch copies."""
        return _layout(self.shape, self.steps, self.strides)

    @cached_property
    def gaps(self) -> Ints | None:
        """The strides of the view; None where they are those of a contiguous tensor, or where torch copies."""
        strides, _, shape = self.layout or ((), 0, ())
        apart = any(a != b and n != 1 for n, a, b in zip(shape, strides, _contiguous(shape)))
        return strides if apart and 0 not in shape else None

    @cached_property
    def overlaps(self) -> bool:
        """True if several elements of the view are one in memory."""
        return self.layout is not None and _overlap(self.layout[2], self.layout[0])

    @property
    def is_view(self) -> bool:
        """True if torch gives a view, rather than a copy."""
        return self.layout is not None

    def is_at(self, index: Any) -> bool:
        """True if the view is known as the part at an index."""
        return self.index is not None and _is_known(index) and bool(self.index == index)

    def read(self, u: UOp) -> UOp:
        """The view, where the whole is `u`."""
        for op, arg in self.steps:
            u = _read(u, op, arg)
        return u

    def part(self, n: Numbering, t: Handle, root: Handle) -> UOp | None:
        """The template in a numbering of `t`, this view of `root`, which an earlier round of a loop made: with memory
        for its places if they vary from round to round, as those of the parts of `x.split(32)` do. None where the root
        is not in memory: if they vary, it is computed with what is computed next."""
        begins, steps = self._cuts
        late, whole = t.late, root.late
        used = [x for x in (late, whole) if x and not x.numbering.retired]  # by a round that runs
        if used or not begins or not self.is_view:
            return None
        varies = varies_at((self.shape, steps), None, "part", begins)
        line = whole.line if whole else root.uop.provenance[1:3]
        if whole is None and is_realized(root.uop):
            if not (varies or late):
                return None
            places = [n.template(number(b, dtypes.int32, t._device)) for b in begins] if varies else ()
            part = _cut(steps, n.template(root.uop), *places) if varies else n.template(self.read(root.uop))
            become_late(t, Late(n, part, line))
            n.parts.append(n.tensors[-1])
            return part
        if varies and not root._wants and (made := n.moved(whole) if whole else n.template(root.uop)) is not None:
            become_late(root, Late(n, made, line))
            LEARNED.carry((line,))
        return None

    @cached_property
    def _cuts(self) -> tuple[Ints, tuple[Step, ...]]:
        """The places where parts of axes begin, and the steps with sizes for them; nothing if there are other steps."""
        shape, begins, steps = self.shape, list[int](), list[Step]()
        for op, arg in () if symbolic_arg((shape, self.steps)) else self.steps:
            if op is Op.SHRINK:
                cut = [(i, e - b, b) for i, ((b, e), n) in enumerate(zip(arg, shape)) if e - b < n]
                begins += [b for _, _, b in cut]
                shape, arg = tuple([e - b for b, e in arg]), tuple([each[:2] for each in cut])
            elif op is Op.RESHAPE:
                shape = arg
            elif op is Op.PERMUTE:
                shape = tuple([shape[i] for i in arg])
            elif op is not Op.DETACH:
                return (), ()
            steps.append((op, arg))
        return tuple(begins), tuple(steps)

    def written(self, name: str, u: UOp, new: UOp) -> UOp:
        """The whole, where it was `u`, with `new` in the view's place; `name` is for messages.

        Raises ShapeError where several elements of the view are one in the whole, and may differ.
        """
        if 0 in new.shape:
            return u
        if self.overlaps and name not in ("fill_", "zero_"):
            raise ShapeError(f"{name}: several elements of the expanded tensor are one in memory; use .clone() first")
        if not _APART.issuperset([op for op, _ in self.steps]):
            moves = recipe_of(self.shape, tuple([step for step in self.steps if step[0] is not Op.BITCAST]))
            return _scattered(moves.read, new if new.dtype is u.dtype else UOp(Op.BITCAST, u.dtype, (new,)), u)
        passed = [u]
        for op, arg in self.steps:
            passed.append(_read(passed[-1], op, arg))
        for (op, arg), parent in zip(reversed(self.steps), reversed(passed[:-1])):
            new = _undone(op, arg, new, parent)
        return new


recipe_of = lru_cache(_MOST)(ViewRecipe)  # equal ones are one


@lru_cache(_MOST)
def _cut(steps: Sequence[Step], u: UOp, *begins: UOp) -> UOp:
    """The view of `u` that steps make, where parts of axes begin at places in memory."""
    left = iter(begins)
    for op, arg in steps:
        if op is Op.SHRINK:
            for axis, size in arg:
                u = span(u, axis, next(left), size)
        else:
            u = _read(u, op, arg)
    return u


def _overlap(shape: Shape, strides: Sequence[int]) -> bool:
    """True if two elements of these strides share a place in memory."""
    if not strides or 0 in shape or not all(isinstance(n, int) for n in shape):
        return False
    reach = 0
    for stride, n in sorted([(abs(s), n) for s, n in zip(strides, shape) if n != 1]):
        if stride <= reach:
            places = sum([np.arange(n).reshape(-1, *[1] * i) * s for i, (n, s) in enumerate(zip(shape, strides))])
            return np.unique(places).size < np.size(places)
        reach += stride * (n - 1)
    return False


# NumPy arrays of bytes model views: they have a view's shape and strides, which count elements since an element is a
# byte. Nothing reads them; their only memory is this byte.
_BYTE = np.zeros(1, np.int8)
_strided, _windows = np.lib.stride_tricks.as_strided, np.lib.stride_tricks.sliding_window_view
_MOVED: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    Op.PERMUTE: np.transpose,
    Op.FLIP: np.flip,
    Op.EXPAND: lambda a, new: _strided(a, new, [s * (n == m) for s, n, m in zip(a.strides, a.shape, new)]),
    Op.SHRINK: lambda a, pairs: a[tuple([slice(*pair) for pair in pairs])],
    # of what is cut off again (`every`)
    Op.PAD: lambda a, pairs: _strided(a, [n + b + e for n, (b, e) in zip(a.shape, pairs)], a.strides),
    "unfold": lambda a, arg: _windows(a, arg[1], arg[0])[(slice(None),) * arg[0] + (slice(None, None, arg[2]),)],
    "diagonal": lambda a, arg: np.diagonal(a, *arg),
}


def _layout(shape: Shape, steps: Sequence[Step], strides: Ints | None) -> Layout | None:
    """The layout of a view of a tensor, a contiguous one if no strides say otherwise; ((), 0, ()) where sizes are
    Variables'."""
    if symbolic_arg((shape, steps)):
        return (), 0, ()
    view, start = _strided(_BYTE, shape, strides or _contiguous(shape)), 0
    for op, arg in steps:
        if op is Op.RESHAPE:
            strides = _strides(view.shape, view.strides, arg)
            if strides is None:
                return None
            view = _strided(view, arg, strides)
        elif op == "as_strided":
            view, start = _strided(_BYTE, arg[0], arg[1]), arg[2] or 0
        elif op in _MOVED:
            view = _MOVED[op](view, arg)
        elif op is Op.CONTIGUOUS and not view.flags.c_contiguous:
            return None  # what is not contiguous is copied
    begins = [a.__array_interface__["data"][0] for a in (view, _BYTE)]
    return view.strides, begins[0] - begins[1] + start, view.shape


def _contiguous(shape: Shape) -> Ints:
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        n = shape[axis + 1]
        strides[axis] = strides[axis + 1] * ((n or 1) if isinstance(n, int) else 1)
    return tuple(strides)


def _strides(shape: Shape, strides: Sequence[int], new: Shape) -> Ints | None:
    """The strides of a reshaped view; None where there are none.

    Axes that lie in memory as one are joined; each group must be a run of the new axes.
    """
    if 0 in shape:
        return _contiguous(new)
    groups: list[list[int]] = []  # elements, and the last stride
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if groups and groups[-1][1] == n * s:
            groups[-1] = [groups[-1][0] * n, s]
        else:
            groups.append([n, s])
    out = list(_contiguous(new))
    axis = len(new) - 1
    for count, stride in reversed(groups):
        step = 1
        while axis >= 0 and step < count:
            out[axis] = step * stride
            step *= new[axis]
            axis -= 1
        if step != count:
            return None
    return tuple(out)


# -- what an op gave --------------------------------------------------------------------------------------------------


def link_views(name: str, op: Fun, args: Args, options: Options, out: Any) -> None:
    """Note of the results of an op that gives views what they are parts of: of its first tensor.

    Args:
        name: the op's name.
        op: the op.
    """
    base = next((x for x in (*args, *options.values()) if isinstance(x, Handle)), None)
    parts = (out,) if isinstance(out, Handle) else tuple(out)
    if base is None or (name in _SOMETIMES and not _SOMETIMES[name](*args)):
        return
    for n, part in enumerate(parts):
        if part is not base and part._base is None:
            steps = _NAMED[name](base, *args[1:], **options) if name in _NAMED else _steps(part.uop, base.uop)
            if steps is None:  # folding hides the way
                steps = _probed(op, base, args, options, n)
            if steps is None:
                continue
            if name == "detach" and not any(o is Op.DETACH for o, _ in steps):
                steps = (*steps, (Op.DETACH, None))
            recipe = recipe_of(base.uop.shape, steps)
            part._part_of(base, recipe)
            if name == "getitem" and _is_known(args[1]):
                recipe.index = args[1]


def _is_known(index: Any) -> bool:
    """True if an index is made of Python's integers and slices of them."""
    items = index if index.__class__ is tuple else (index,)
    return all(
        _is_known((x.start, x.stop, x.step)) if x.__class__ is slice else x is None or x is Ellipsis
        for x in items
        if x.__class__ is not int
    )


class Placement(NamedTuple):
    """An index that has memory for places which vary, and the ops that read and write what is there."""

    at: tuple[Any, ...]
    read: Fun
    write: Fun


def link_part(part: Handle, base: Handle, bounds: tuple[Ints, ...], shape: Shape, index: Any, placement: Any) -> None:
    """Note of a tensor that it is what `base` has within `bounds`, in this shape: at an index, and by a `Placement`."""
    steps: tuple[Step, ...] = ((Op.SHRINK, bounds),)
    if len(shape) < len(bounds) or (index.__class__ is tuple and None in index):  # axes of one place
        steps = (*steps, (Op.RESHAPE, shape))
    if base._wants and not here.grad:
        steps = (*steps, (Op.DETACH, None))
    recipe = recipe_of(base._looks.shape, steps)
    part._part_of(base, recipe)
    recipe.index = index if index.__class__ is int or _is_known(index) else None
    if part._base is not None and part._base.root is base:
        part._base.placement = placement


# -- changes of a view, late ------------------------------------------------------------------------------------------


class _Through:
    """An in-place op of a view, as an op of the view's root: at a recipe, or at the place in its second argument."""

    __slots__ = ("__name__", "__wrapped__", "first")

    def __init__(self, op: Any, recipe: ViewRecipe | None) -> None:
        self.__wrapped__, self.__name__, self.first = op, op.__name__, recipe is None


_through = lru_cache(_MOST)(_Through)  # equal ones are one


def change_view(op: Any, function: Fun, x: Handle, args: Args, options: Any) -> bool:
    """Change what `x` is a view of by the in-place op `function`, late; False where that is done otherwise. `args` are
    what the op takes beside `x`."""
    link = x._base
    if link is None or not x._is_part() or at_once(vars(here)):
        return False
    root, placement = link.root, link.placement
    recipe: Any = link.recipe
    leaves = (x._wants and x._leaf) or (root._wants and root._leaf)
    if leaves or not _MOVES.issuperset([step for step, _ in recipe.steps]):
        return False

    def by_recipe(root: Any, *args: Any, **options: Any) -> Any:
        part = root._view_of(root, recipe)
        part._base.outdate(part)
        function(part, *args, **options)
        return _shown(root, recipe.read, root.uop)

    def by_places(root: Any, index: Any, *args: Any, **options: Any) -> Any:
        part = placement.read(root, index)
        function(part, *args, **options)
        forget_become(part)
        return _shown(root, placement.read, placement.write(root, index, part), index)

    if placement is None:
        shown = call_late(_through(op, recipe), (root, *args), options, by_recipe, True)
    else:
        shown = call_late(_through(op, None), (root, placement.at, *args), options, by_places, True)
    if shown.late is not None:
        become_late(x, shown.late)
    return True


def _shown(root: Any, read: Fun, *args: Any) -> Any:
    """The part of `root` that `read` shows. Gradients flow to the root, even under `no_grad`."""
    here.grad, before = True, here.grad
    try:
        shown = read(*args)
        return root._new(shown) if isinstance(shown, UOp) else shown
    finally:
        here.grad = before


def _is_basic(index: Any) -> bool:
    """True if an index has no tensors, arrays and lists."""
    kinds = (int, slice, type(None), type(Ellipsis), UOp, np.integer)
    return all(isinstance(x, kinds) for x in (index if isinstance(index, tuple) else (index,)))


def _steps(u: UOp, base: UOp) -> tuple[Step, ...] | None:
    """The movements from `base` to `u`; None where that is not how `u` was made."""
    core = base
    while core.op is Op.RESHAPE:  # a reshape of a reshape is one
        core = core.src[0]
    steps: list[Step] = []
    while u is not base:
        if u is core:
            if not steps or steps[-1][0] is not Op.RESHAPE:
                steps.append((Op.RESHAPE, core.shape))
            break
        if u.op not in _READ:
            return None
        steps.append((u.op, u.dtype if u.op is Op.BITCAST else u.arg))
        u = u.src[0]
    return tuple(steps[::-1])


def _probed(op: Fun, base: Any, args: Args, options: Options, n: int) -> tuple[Step, ...] | None:
    """`_steps` of the op's result number `n`, from a node that nothing folds away."""
    u = base.uop
    probe = UOp(Op.PARAM, u.dtype, (), (-1, u.shape), tag="probe")
    t = base._new_plain(probe)
    with modes(defers=False):  # ops within the block are parts of one
        out = op(*[t if x is base else x for x in args], **{k: t if x is base else x for k, x in options.items()})
    found = out if isinstance(out, Handle) else tuple(out)[n]
    return _steps(found.uop, probe)


def _named_unfold(x: Any, dim: int = 0, size: int = 1, step: int = 1, dimension: int | None = None) -> tuple[Step, ...]:
    at = int(dim if dimension is None else dimension) % max(x.ndim, 1)
    return (("unfold", (at, int(size), int(step))),) if x.ndim else ((Op.RESHAPE, (1,)),)


def _keeps_axes(formula: Any, *operands: Any) -> bool:
    """True if a formula of `einsum` is of one operand, and sums nothing up."""
    if not isinstance(formula, str) or len(operands) != 1:
        return False
    old, arrow, new = formula.replace(" ", "").partition("->")
    return set(old) == set(new) if arrow else len(set(old)) == len(old) - 2 * old.count("...")


# ops that give views for some arguments
_SOMETIMES: Final[dict[str, Callable[..., bool]]] = {
    "getitem": lambda x, index, *known: _is_basic(index),
    "einsum": _keeps_axes,
}
_NAMED: Final[dict[str, Callable[..., tuple[Step, ...]]]] = {
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: (("diagonal", (offset, dim1 % x.ndim, dim2 % x.ndim)),),
    "unfold": _named_unfold,
    # of what is not contiguous torch makes a copy, also where strides could say it
    "ravel": lambda x: ((Op.CONTIGUOUS, None), (Op.RESHAPE, (x.uop.size,))),
    "as_strided": lambda x, size, stride, storage_offset=None: (
        ("as_strided", (tuple(size), tuple(stride), storage_offset)),
    ),
}
