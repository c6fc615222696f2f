"""A handle: a tensor as the runtime sees it; and nests of them."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar
from weakref import ref

from anneal.uop import Op, UOp, by_rule, references

if TYPE_CHECKING:
    import numpy.typing as npt

UNSEEN = -1  # used by calls that no thread has noted (`uses.py`), or several have
WHOLE = "whole"  # the tag of a SHRINK that shows all of a tensor of symbolic shape in memory for the largest


class Inside:
    """Stands for a gradient that a jit function computed: no replay would update it. If the call was not captured,
    `value` is the gradient; a next call that adds to it is not captured either.
    """

    def __init__(self, value: Any = None) -> None:
        self.value = value


# Names that torch's tensors have and ours lack, with the expression to write instead.
_INSTEAD = dict(
    line.split(": ", 1)
    for line in """\
cuda: x.to("webgpu"), for GPUs of every vendor, or x.to("auto")
apply_: the function of tensors, or x.copy_(...) of what NumPy gives
as_subclass: cls(x)
grad_dtype: x.grad.dtype
imag: x.zeros_like(): there are no complex numbers
map_: the function of tensors, or x.copy_(...) of what NumPy gives
reinforce: the loss -(log_prob * reward).sum()
rename: x itself: axes have no names
resize_: y = x.reshape(...), or y = x.new_zeros(...)
resize_as_: y = x.reshape(other.shape), or y = x.new_zeros(other.shape)
storage: x.flatten(): tensors do not expose their memory
storage_offset: 0: every tensor counts as contiguous
stft: transforms of windows of x, by an.fft
to_sparse: x itself: there are no sparse tensors
untyped_storage: x.flatten(): tensors do not expose their memory
as_strided_: x = x.as_strided(size, stride): what is changed in place keeps its strides""".splitlines()
)
# Methods of packages above this one, imported when the first of them is called.
_HOMES = dict.fromkeys(("igamma", "igammac"), "anneal.special") | dict.fromkeys(
    [
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "det",
        "inverse",
        "logdet",
        "lu",
        "lu_solve",
        "matrix_exp",
        "pinverse",
        "qr",
        "slogdet",
        "svd",
        "triangular_solve",
    ],
    "anneal.linalg.older",
)

_create, _RESHAPE = object.__new__, Op.RESHAPE


def _shown(name: str, slot: str, doc: str, write: str) -> property:
    """The property `name` that shows a slot and refuses to set it: `write` is what to do instead."""

    def refuse(self: Handle, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: {write}")

    return property(operator.attrgetter(slot), refuse, doc=doc)


class Earlier(NamedTuple):
    """A node that a leaf had before it was changed, by weak references: that of a graph, or of the memory below a
    reshape, with who showed it then; or a numbering and a template."""

    ref: Any
    of: Any  # the template; or the reshape's argument and tag; None for the node itself
    owner: Any
    shown: Any  # the node itself, which rounds of a loop show again and again

    @staticmethod
    def node(u: UOp) -> Earlier:
        """The record of a node."""
        base = u.src[0] if u.op is Op.RESHAPE else u
        if base.op is not Op.BUFFER:
            return Earlier(ref(u), None, None, ref(u))
        of = None if u is base else (u.arg, u.tag)
        return Earlier(ref(base), of, base.arg.owner, ref(u))

    def __call__(self) -> UOp | None:
        """The node; None where no graph has it any more."""
        held = self.ref()
        if held is None or not isinstance(held, UOp):
            try:
                return None if held is None else held.node(self.of)
            except LookupError:  # its memory went
                return None
        if held.op is Op.BUFFER and held.arg.owner is not self.owner:
            return None  # the memory is another tensor's now
        return held if self.of is None else held.then(Op.RESHAPE, *self.of)


class Records(list[Earlier]):
    """The nodes that a leaf had before it was changed, `lazy` where one of them is no memory."""

    lazy = False


@dataclass(slots=True, eq=False, repr=False)
class View:
    """The place of a view: `recipe` leads to it from `root`, which is no view; `step` is the last part of the recipe.
    Both are a `ViewRecipe` of `ops/bases.py`.

    It keeps `root` alive, whose values others may see and change. A view whose root was changed is *outdated*: it has
    neither a node nor a record in place of one, and gets a node when it is asked for it. `placement`
    says where it is by places in memory, if the program gives places anew in each round.

    Memory is shared beyond a `detach`, and gradients are not: what it gave may be changed by values that want one,
    which the root does not get. `graph` is the node that its gradient goes to, and a view of it has it as `over`.
    """

    root: Handle
    recipe: Any
    step: Any
    over: Handle | None = None
    placement: Any = None
    graph: UOp | None = None

    def detached_base(self) -> Handle | None:
        """The result of the last `detach` in the recipe, if the view is a view of that result."""
        over = self.over
        return over if over is not None and over._base and over._base.root is self.root else None

    def outdate(self, v: Handle) -> None:
        """Drop the node of `v`, the view at this place: the root's values have changed since it got that."""
        if not self.recipe.is_view:
            v._base = None
            return
        source = self.detached_base() if self.recipe.detached else self.root
        if source is not None and not (v._leaf and v._wants):
            v._wants, v._leaf, v._spent = source._wants, not source._wants, False
        elif v._wants and not v._leaf and (v.late or _node(v) is not None):
            self.graph = None if v._spent else v.uop
        if v._leaf and v._wants:
            v._note_earlier()
        v.late = v._alias = None
        v._used = UNSEEN if v._wants else 0
        try:
            del v.uop
        except AttributeError:  # it has none
            pass

    def show(self, v: Handle) -> UOp:
        """Make the node of `v`, the view at this place, and store it in `v`."""
        over = self.detached_base()
        if over is not None and over._wants:
            v.uop = self.recipe.after(over).read(over.uop)
        else:
            u = self.recipe.read(self.root.uop)
            v.uop = u if self.graph is None else by_rule("equal", u, self.graph)
        if v._leaf and v._wants:
            v._set_wants(True)  # a leaf has a node of its own
        return v.uop


_SLOTS = "__weakref__ _alias _base _device _earlier _grad _hooks _leaf _spent _used _views _wants _was late uop"


class Handle:
    """A name of a node that stays while the node changes: a lazy one at first, a BUFFER once it is computed.

    `Tensor` is the one class of handles. The runtime computes what handles name, and makes new ones for results.
    """

    __slots__ = _SLOTS.split()

    uop: UOp  # of a late tensor it is made when it is asked for
    late: Any  # what a late tensor has in place of a node: a `numbering.Late`, or None
    # Public names are properties of slots: what sets them from outside is refused, or seen.
    _device: str
    _wants: bool
    _leaf: bool  # `requires_grad` was set on it, or it wants none
    _alias: UOp | None  # the node that graphs have of a leaf that was lazy when they were made
    _earlier: Records  # only of leaves: nodes from before they were changed
    _spent: bool  # its backward was taken
    _base: View | None  # of a view: its place in the root (`_part_of`)
    _views: list[Ref] | None  # the views of this tensor; some may be gone
    _grad: Any  # a handle, None, or an Inside
    _hooks: Any  # only of leaves with hooks (`Tensors.hooked`)
    _was: Any  # None, or the recipe of what was a view once, whose strides it still has
    _used: int  # once graphs may have it UNSEEN, or the number of the thread that has noted its calls

    if TYPE_CHECKING:
        requires_grad: bool
        device: str
        is_leaf: bool
    else:
        device = _shown("device", "_device", "The name of the device.", "move the tensor by .to(device)")
        is_leaf = _shown(
            "is_leaf",
            "_leaf",
            "True for a leaf: no gradient flows on from here.",
            ".detach() makes a leaf of a computed tensor",
        )
        requires_grad = property(
            operator.attrgetter("_wants"),
            lambda self, value: self._set_wants(value),
            doc="True if `backward()` gives it a gradient; can be set on a leaf.",
        )

    def _set_wants(self, value: Any) -> None:
        """Take what was assigned to `requires_grad`."""
        raise NotImplementedError

    @classmethod
    def _from_uop(cls, u: UOp, device: str, wants: bool = False) -> Self:
        """A handle of `u` on `device`, no leaf if it `wants` a gradient."""
        raise NotImplementedError

    @classmethod
    def _late(cls, late: Any, device: str, requires_grad: bool) -> Self:
        """A late tensor as an op gives it."""
        t = _create(cls)
        t._device = device
        t._leaf = not requires_grad
        t._wants = requires_grad
        t.late = late
        t._grad = t._alias = t._base = t._was = t._views = None
        t._spent = False
        t._used = 0
        return t

    # -- leaves ---------------------------------------------------------------------------------------------------

    def _note_earlier(self) -> None:
        """Note this leaf's node before another one replaces it: graphs that have the old node give their gradients to
        this leaf.
        """
        if late := self.late:
            new = [Earlier(ref(late.numbering), late.template, None, _no_node)] if late.is_used() else []
        else:
            new = [Earlier.node(u) for u in (_node(self), self._alias) if u is not None]
        known = [e[:3] for e in new]
        try:
            several = _get_earlier(self)
        except AttributeError:  # it was not changed before
            several = self._earlier = Records()
        new += [e for e in several if e.ref() is not None and e[:3] not in known]
        several[:] = new
        several.lazy = not all([e.owner for e in new])  # noqa: C419
        for e in new:
            if e.owner is not None and (held := e.ref()) is not None and held.arg.owner is e.owner:
                held.arg.noted = several, e.owner, e.shown

    # -- views ----------------------------------------------------------------------------------------------------

    def _part_of(self, base: Handle, step: Any) -> None:
        """Note that this tensor is the part of `base` that `step` shows: a view of `base`, or of the root of `base`."""
        link, over = base._base, None
        if link and base._is_part():
            root, recipe = link.root, link.recipe.then(step)
            if link.recipe.detached and not step.detached:
                over = base if link.over is None else link.over
        else:
            root, recipe = base, base._was.below(step) if base._was else step
        self._base = View(root, recipe, step, over)
        views = root._views
        if views is None:
            root._views = [ref(self)]
            return
        views.append(ref(self))
        n = len(views)
        if n > 15 and not n & (n - 1):
            root._views = [r for r in views if r() is not None]

    @classmethod
    def _view_of(cls, root: Handle, recipe: Any) -> Self:
        """A new view of `root` by `recipe`; no gradient flows through it."""
        t = cls._late(None, root._device, False)
        t._part_of(root, recipe)
        return t

    def _is_part(self) -> bool:
        """True if this tensor is a view of part of another's values. It stops being one, and forgets the other, where
        torch has copied, or where that one has no other reference.
        """
        link = self._base
        if link is None:
            return False
        if link.recipe.is_view and (references(link.root) > _SOLE or link.recipe.overlaps):
            return True
        self.uop if self.late is None else None  # noqa: B018  # one that is outdated is made anew, for the last time
        self._base, self._was = None, link.recipe
        return False

    def _detached_from(self) -> Handle | None:
        """The tensor whose `data` this is, all of its values and no gradient; None for any other."""
        link = self._base
        return link.root if link and link.recipe.whole and self._is_part() else None

    def _outdate_views(self, but: Container[int] = (), over: Handle | None = None) -> None:
        """Drop the nodes of this tensor's views, since its values have changed; they get new ones when they are used.
        Views in `but`, by id, keep theirs, and so do those that are no views of `over`, if it is given.
        """
        live = self._live_views()
        for v, link in live:
            if id(v) not in but and (over is None or link.over is over):
                link.outdate(v)
        if not live:
            self._views = None

    def _live_views(self) -> list[tuple[Handle, View]]:
        """The views of this that are there, with their places."""
        there = [(v, v._base) for r in self._views or () if (v := r()) is not None]
        return [(v, link) for v, link in there if link and link.root is self]

    def _show_views(self) -> None:
        """Give views new nodes over the memory that the values are in now, if they were not computed and want no
        gradient.
        """
        for v, link in self._live_views():
            if not v._wants and (v.late or _is_lazy(v)):
                link.outdate(v)

    def _leave(self) -> None:
        """Stop sharing values with other tensors: views of this tensor keep its present values."""
        if self._base:
            self.uop if self.late is None else None  # noqa: B018
            self._base = None
        live, self._views = self._live_views(), None
        if live:
            heir = type(self)._from_uop(self.uop, self._device, self._wants)
            heir._views = [ref(v) for v, _ in live]
            for v, link in live:
                v._base = View(heir, link.recipe, link.step, link.over)

    def _is_plain(self) -> bool:
        """True if it is as an op gives it: only its node is known, and whether it requires a gradient."""
        return self._grad is None and self._alias is None and not self._spent and self._leaf is not self._wants

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """The node of a late tensor, which has none before it is asked for it."""
            if name == "uop":
                late = self.late
                if late:
                    return late.node_of(self)
                link = self._base
                # without one another thread has given it a node just now
                return object.__getattribute__(self, "uop") if link is None else link.show(self)
            if name in _HOMES:
                return getattr(import_module(_HOMES[name]), name).__get__(self)
            write = f": write {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{write}")

    @property
    def _looks(self) -> UOp:
        """A node of this shape and dtype; a late tensor's own node is not made for the question."""
        late = self.late
        return self.uop if late is None else late.template

    def _settle(self, view: UOp) -> None:
        """The value is computed: name `view`, a BUFFER in this shape."""
        raise NotImplementedError

    # the backward pass of a captured call: `transforms/captured.py`
    _captured_backward: ClassVar[Callable[..., Any]]

    def numpy(self) -> npt.NDArray[Any]:
        """The values as a new array."""
        raise NotImplementedError


H = TypeVar("H", bound=Handle)
Handles = Sequence[Handle]
Ref = ref[Handle]
_node_of = vars(Handle)["uop"].__get__  # of one that has a node, without a look at anything else
_get_earlier = vars(Handle)["_earlier"].__get__


def _node(t: Handle) -> UOp | None:
    """The node of a tensor; None where it has none now."""
    try:
        u: UOp = _node_of(t)
    except AttributeError:
        return None
    return u


def _no_node() -> None:
    """The node of a tensor that is late."""


def note_earlier(tensors: Iterable[Handle]) -> None:
    """Call `Handle._note_earlier` of several tensors, which get other values.

    Args:
        tensors: tensors of all kinds.
    """
    for t in tensors:
        if not (t._leaf and t._wants):
            continue
        t._used = 0
        if t.late is None and t._alias is None:
            u = t.uop
            storage = (u.src[0] if u.op is _RESHAPE else u).arg
            try:
                records, owner, shown = storage.noted
                if shown() is u and owner is storage.owner and records is t._earlier:
                    continue  # rounds of a loop take turns in the same memory
            except (AttributeError, TypeError):  # it is no memory, or was not noted
                pass
        t._note_earlier()


def lazily_earlier(leaves: Iterable[Handle]) -> bool:
    """True if leaves had nodes that are no memory before they were changed.

    Args:
        leaves: the leaves.
    """
    for t in leaves:
        try:
            records = _get_earlier(t)
            if records.lazy and [e for e in records if e.owner is None and e.ref() is not None]:
                return True
        except AttributeError:  # it was not changed
            continue
    return False


def earlier_nodes(leaves: Iterable[H], below: Container[Any] | None = None) -> list[tuple[H, UOp]]:
    """The nodes that graphs have of leaves from before these were changed, each after its leaf.

    Args:
        leaves: the leaves.
        below: the memory below a result, if that is known: of nodes that are memory only such count.
    """
    found = []
    for t in leaves:
        try:
            several = _get_earlier(t)
        except AttributeError:  # it was not changed
            continue
        own = t.uop if t.late is None else None
        for e in several:
            held, _, owner, shown = e
            if (own is None or shown() is not own) and (owner is None or below is None or held() in below):
                if (u := e()) is not None and u is not own and u is not t._alias:
                    found.append((t, u))
    return found


def _is_lazy(t: Handle) -> bool:
    """True if a tensor's node is more than a reshape of memory, or all of its symbolic shape there."""
    u = _node(t)
    while u is not None and (u.op is Op.RESHAPE or u.tag == WHOLE):
        u = u.src[0]
    return u is not None and u.op is not Op.BUFFER


def _references_when_sole() -> int:
    view = View(_create(Handle), None, None)
    return references(view.root)


_SOLE: Final = _references_when_sole()  # of a root that one view has, and nobody else


# -- nests ------------------------------------------------------------------------------------------------------------
# Tuples, lists and dicts with tensors, and other values, at their leaves.

_HOLE = object()


def flat(nest: Any) -> list[Any]:
    """The leaves of a nest, in order.

    Args:
        nest: the nest.

    >>> flat((1, [2, {"a": 3, "b": ()}], None))
    [1, 2, 3, None]
    """
    out, rest = [], [nest]
    while rest:
        x = rest.pop()
        if isinstance(x, dict):
            rest.extend(reversed(x.values()))
        elif isinstance(x, (tuple, list)):
            rest.extend(reversed(x))
        else:
            out.append(x)
    return out


def mapped(nest: Any, leaf: Callable[[Any], Any], in_slices: bool = False) -> Any:
    """The same nest with `leaf` of each leaf.

    Args:
        nest: the nest.
        leaf: the function. in_slices: whether the bounds of slices are leaves, not the slices.

    >>> mapped((1, [2, {"a": 3}]), lambda x: x + 1)
    (2, [3, {'a': 4}])
    """
    if isinstance(nest, (tuple, list)):
        items = [mapped(x, leaf, in_slices) for x in nest]
        return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)
    if in_slices and nest.__class__ is slice:
        return slice(leaf(nest.start), leaf(nest.stop), leaf(nest.step))
    if not isinstance(nest, dict):
        return leaf(nest)
    pairs = {k: mapped(x, leaf, in_slices) for k, x in nest.items()}
    if isinstance(nest, defaultdict):
        return defaultdict(nest.default_factory, pairs)
    return OrderedDict(pairs) if isinstance(nest, OrderedDict) else pairs


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Handle)


def emptied(nest: Any, taken: list[Any] | None = None, chosen: Callable[[Any], bool] = _is_tensor) -> Any:
    """A nest without its tensors, also without those in slices, so that whoever keeps it keeps no tensor.

    Args:
        nest: the nest.
        taken: a list that gets them, in order.
        chosen: a function that is True for what goes in place of tensors.
    """

    # A leaf that called itself would be a circle of references, and hold the tensors until a collection.
    def leaf(x: Any) -> Any:
        if not chosen(x):
            return x
        if taken is not None:
            taken.append(x)
        return _HOLE

    return mapped(nest, leaf, True)


def filled(nest: Any, tensors: Iterator[Any], other: Callable[[Any], Any] | None = None) -> Any:
    """A nest that was emptied, with these tensors, and with `other` of each leaf that is no tensor."""
    return mapped(nest, lambda x: next(tensors) if x is _HOLE else x if other is None else other(x), True)


def is_hole(x: Any) -> bool:
    """True for a placeholder of a tensor in a nest that was emptied.

    Args:
        x: a leaf of the nest.
    """
    return x is _HOLE
