"""A call of a function on stand-ins for its arguments; the graph that it leaves becomes one of the arguments.

A stand-in is a node of its own, made for the call: what the function captures besides is a constant, even if it is the
argument itself, and transforms nest without mixing up their variables. Only nodes younger than the stand-ins can depend
on them, so no walk here goes below the part of the graph that the call made. Arguments and results are trees: nests of
dicts, lists, tuples and named tuples with tensors at the leaves. None is a tree without leaves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from anneal.errors import DTypeError, GradientError, TransformError
from anneal.names import Tensor
from anneal.ops import grad_enabled, is_tensor, made
from anneal.ops.nodes import detached, reshape
from anneal.runtime import Fun, Options, base_of, earlier_nodes, flat, here, mapped, modes, sources_of, used_unseen
from anneal.transforms.walks import Path, stand_in
from anneal.uop import DType, Known, Nodes, Op, Src, UOp, arena, toposort, unique

P = ParamSpec("P")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)


class TypedFunction(Protocol[P, _R_co]):
    """A function of parameters `P`. (mypy refuses calls of a `Callable` that was made of a lambda as untyped.)"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> _R_co: ...


# -- trees ------------------------------------------------------------------------------------------------------------


def _parts(tree: Any) -> list[tuple[str, Any]] | None:
    """The subtrees of a node with how each is written after it (`['w']`, `[0]`, `.x`); None for a leaf."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [(f"[{k!r}]", v) for k, v in tree.items()]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [(f".{k}", v) for k, v in zip(tree._fields, tree, strict=True)]
    if isinstance(tree, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(tree)]
    return None


def named_leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves of `tree`, in order, each after its path from `name`."""
    parts = _parts(tree)
    if parts is None:
        yield name, tree
    else:
        for step, part in parts:
            yield from named_leaves(part, name + step)


def paths_of(tree: Any, name: str = "") -> list[str]:
    """The paths of the leaves of `tree`, in order: the Python text that reaches each from `name`.

    >>> paths_of({"w": [1, 2], "b": None}, "p")
    ["p['w'][0]", "p['w'][1]"]
    """
    return [where for where, _ in named_leaves(tree, name)]


def flatten(tree: Any) -> list[Any]:
    """The leaves, in order.

    Args:
        tree: a tensor, or a nest of tuples, lists and dicts.
    """
    return [x for x in flat(tree) if x is not None]


tree_leaves = flatten


def rebuild(tree: Any, leaves: Iterator[Any]) -> Any:
    """The same structure with each leaf replaced by the next of `leaves` (a tree is a few levels deep)."""
    return mapped(tree, lambda x: None if x is None else next(leaves))


def like(name: str, tree: Any, other: Any, what: str, reference: str) -> list[Any]:
    """The parts of `other` at the leaves of `tree`; `other` may have any subtree there.

    Raises TransformError naming the place where the structures differ; `what` and `reference` are what to call them.
    """
    parts, theirs = _parts(tree), _parts(other)
    if parts is None:
        return [other]
    keyed = isinstance(tree, dict) and isinstance(other, dict)
    if keyed and tree.keys() != other.keys():
        said = f"has the keys {list(other)}, not {list(tree)}"
    elif theirs is None or (type(tree) is not type(other) and not keyed):
        said = f"is {_kind(other)}, not {_kind(tree)}"
    elif len(parts) != len(theirs):
        said = f"has {len(theirs)} items, not {len(parts)}"
    else:
        each = zip(parts, [other[k] for k in tree] if keyed else [x for _, x in theirs], strict=True)
        return [y for (step, part), x in each for y in like(name, part, x, what + step, reference)]
    raise TransformError(f"{name}: {what} {said}: it must have the structure of {reference}")


def _kind(tree: Any) -> str:
    return "None" if tree is None else f"a {type(tree).__name__}"


def broadcast_prefix(name: str, prefix: Any, tree: Any, what: str, reference: str) -> list[Any]:
    """A value for each leaf of `tree`, from a tree of values that may stop early: a value there counts for all below.

    None in `prefix` is a value (no axis), as in vmap's in_axes.
    """
    parts = None if prefix is None else _parts(prefix)
    if parts is None:
        return [prefix] * len(flatten(tree))
    below = _parts(tree)
    alike = isinstance(prefix, (list, tuple)) and isinstance(tree, (list, tuple))
    if isinstance(prefix, dict) and isinstance(tree, dict) and prefix.keys() == tree.keys():
        each = [(step, prefix[k], x) for (step, x), k in zip(_parts(tree) or (), tree, strict=True)]
    elif not alike or below is None or len(parts) != len(below):
        many = f" of {len(below)} items" if alike and below is not None else ""
        raise TransformError(
            f"{name}: {what} is {_kind(prefix)} of {len(parts)} items, but the part of {reference} there is "
            f"{_kind(tree)}{many}; give one value for the whole, or the same structure"
        )
    else:
        each = [(f"[{i}]", p, x) for i, (p, x) in enumerate(zip(prefix, tree, strict=True))]
    return [v for step, p, x in each for v in broadcast_prefix(name, p, x, what + step, reference)]


def tree_map(function: Fun, tree: Any, *others: Any) -> Any:
    """`function` of every leaf of `tree` (and of the parts of `others` in its place), in the same structure.

    Raises TransformError if another tree has another structure.

    >>> from anneal.tensor import Tensor
    >>> tree_map(lambda p, g: p - 0.5 * g, {"w": Tensor([1.0])}, {"w": Tensor([4.0])})
    {'w': Tensor([-1.], dtype=float32)}
    """
    columns: Sequence[list[Any]] = [
        flatten(tree),
        *[like("tree_map", tree, o, f"tree {n}", "the first") for n, o in enumerate(others, 2)],
    ]
    return rebuild(tree, iter([function(*leaves) for leaves in zip(*columns, strict=True)]))


# -- calls ------------------------------------------------------------------------------------------------------------


def leaves() -> list[Tensor]:
    """The live tensors on which requires_grad was set."""
    return here.tensors.live_leaves()  # type: ignore[return-value]


def leaf_nodes(tensor: Tensor) -> Src:
    """The nodes that a leaf has in graphs built so far: its present node and, if it was realised since, the earlier
    one.

    Args:
        tensor: a tensor that is a leaf.
    """
    return (tensor.uop,) if tensor._alias is None else (tensor.uop, tensor._alias)


PLAIN = (bool, int, float, np.generic, np.ndarray)  # leaves that become tensors


def as_tensor(name: str, where: str, value: Any) -> Tensor:
    """A leaf as a tensor; arrays and numbers are made one. Raises DTypeError naming the place of anything else."""
    if is_tensor(value):
        return value
    if isinstance(value, PLAIN):
        return made.tensor(value)
    raise DTypeError(
        f"{name}: {where} is a {type(value).__name__}; trees have tensors, arrays or numbers at their leaves "
        f"(dicts, lists, tuples, named tuples and None make the tree)"
    )


def results_of(name: str, tree: Any, whose: str = "the function's result") -> list[Tensor]:
    """The tensors of what a function returned."""
    return [as_tensor(name, where, v) for where, v in named_leaves(tree, whose)]


class Trace:
    """The stand-ins of one call; `name` is the transform's, for messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[UOp] = []
        self.originals: list[Tensor] = []
        self._mark = arena().watermark()
        self._above: dict[UOp, None] = {}  # the stand-ins and what is known to depend on them
        self._assigned: list[weakref.ref[Tensor]] = []
        self._tracers: list[weakref.ref[Tensor]] = []
        self._watches = [(watch, len(watch)) for watch in here.assigned]
        self.inside: set[UOp] = set()  # nodes in checkpoints of a loop's body

    # -- the call -------------------------------------------------------------------------------------------------

    def variables(self, argument: Any, where: str) -> Any:
        """`argument` with its float leaves replaced by stand-ins of the same values, which require gradients.

        Args:
            argument: a tree. where: its name in messages.
        """
        stands = []
        for path, value in named_leaves(argument, where):
            t = as_tensor(self.name, path, value)
            if not t.uop.dtype.is_float:
                raise GradientError(
                    f"{self.name}: {path} is {t.dtype.name}, and only floats have derivatives: use .float(), or let "
                    "the function capture it or take it as an argument that is not differentiated"
                )
            stands.append(self._add(t, t.uop.then(Op.CONTIGUOUS, tag=("variable", unique())), True))
        return rebuild(argument, iter(stands))

    def example(
        self, original: Tensor, shape: tuple[int, ...], dtype: DType | None = None, wants: bool | None = None
    ) -> Tensor:
        """A stand-in without values: one of many that `original` holds. `dtype`, and whether it `wants` a gradient,
        are its, unless they are given.

        Args:
            original: the tensor. shape: that of one.
        """
        wants = original.requires_grad if wants is None else wants
        return self._add(original, stand_in(dtype or original.uop.dtype, shape), wants)

    def _add(self, original: Tensor, node: UOp, requires_grad: bool) -> Tensor:
        self.nodes.append(node)
        self._above[node] = None
        self.originals.append(original)
        used_unseen([original])
        return self._stands(original, node, requires_grad)

    def _stands(self, like: Tensor, node: UOp, requires_grad: bool) -> Tensor:
        stand_in = like._new_plain(node)
        stand_in._wants = requires_grad
        stand_in._leaf = not requires_grad
        self._tracers.append(weakref.ref(stand_in))
        return stand_in

    def again(self, tree: Any, stands: Sequence[Tensor]) -> Any:
        """The `tree` of an argument with other stand-ins of the same nodes: a function may change those in place.

        Args:
            stands: stand-ins for its leaves, which no function was given.
        """
        return rebuild(tree, iter([self._stands(t, t.uop, t._wants) for t in stands]))

    def run(self, f: Fun, args: Sequence[Any], kwargs: Options, grad: bool = True) -> Any:
        """`f(*args, **kwargs)`, where jit functions let one look inside; with `grad`, no_grad outside counts for
        nothing. Results have their nodes: a view whose tensor was changed later gets one among those of this call.
        """
        if not callable(f):
            raise TransformError(f"takes a function, as in grad(f)(x), not {f!r}")
        with modes(grad=here.grad or grad, depth=here.depth + 1, assigned=[*here.assigned, self._assigned]):
            out = f(*args, **kwargs)
            for t in flat(out):
                t.uop if is_tensor(t) else None
            return out

    def apart(self, f: Fun, args: Sequence[Any], kwargs: Options) -> Any:
        """`run` of `f`, for `check_escapes`: results are tensors of their own, and none of the function's is kept."""
        out = self.run(f, args, kwargs, grad=False)
        return mapped(out, lambda t: self._stands(t, t.uop, t._wants) if is_tensor(t) else t)

    # -- what it made ---------------------------------------------------------------------------------------------

    def made(self) -> list[UOp]:
        """The nodes made since this was asked last, sources first."""
        a = arena()
        new = a.since(self._mark)
        self._mark = a.watermark()
        above = self._above
        for u in new:
            if u not in above and any(s in above for s in sources_of(u)):
                above[u] = None
        return new

    def depends(self) -> Callable[[UOp], bool]:
        """A function that tells whether a node depends on a stand-in."""
        self.made()
        return self._above.__contains__

    def order(self) -> Path:
        """The nodes that depend on a stand-in, sources first, with the nodes that each was computed from."""
        self.made()
        mine = set(self.nodes)
        return [(u, sources_of(u)) for u in self._above if u not in mine]

    def put_back(self, roots: Nodes) -> list[UOp]:
        """`roots` as graphs of the real arguments."""
        self.made()
        above = self._above
        new: Known = dict(zip(self.nodes, [t.uop for t in self.originals], strict=True))
        a = arena()
        with a.untracked():
            for u in toposort(roots, until=lambda u: u in new or u not in above):
                a.inherit(u)
                new[u] = u.replace(src=tuple([new.get(s, s) for s in u.src])) if u.src else u
        return [new.get(u, u) for u in roots]

    def finish(self, tensors: Sequence[Tensor], nodes: Nodes = ()) -> list[Tensor]:
        """Tensors like `tensors` (the last ones with other `nodes`) as graphs of the real arguments.

        What the function assigned meanwhile becomes such a graph too.
        """
        written = list({id(t): t for r in self._assigned if (t := r()) is not None}.values())
        self._assigned.clear()
        given = [*[t.uop for t in tensors[: len(tensors) - len(nodes)]], *nodes]
        roots = self.put_back([*given, *[t.uop for t in written]])
        for t, u in zip(written, roots[len(given) :], strict=True):
            t.uop = u
            if t._views is not None:
                t._outdate_views()
        return flagged(
            [t._new_plain(u if u.shape == g.shape else reshape(u, g.shape)) for t, g, u in zip(tensors, given, roots)]
        )

    def check_escapes(self, often: bool = False) -> None:
        """Raise TransformError if the function assigned what stands for one example, or turn, to a tensor that outlives
        the call.

        Args:
            often: whether the function is run another number of times than it is called: it may assign nothing then.
        """
        self.made()
        for leaf in leaves():
            if is_tensor(g := leaf._grad) and g.late is None and g.uop in self._above:
                raise TransformError(
                    f"{self.name}: backward() inside the function gives a tensor of shape {leaf.shape} that outlives "
                    "the call a gradient of one example, or turn; take it of the result, outside, or by grad() inside"
                )
        # what stands for an argument may be changed in place: the caller's tensor is another; draws are counted once
        mine = [t for r in self._tracers if (t := r()) is not None]
        counters = [t for r in here.recordings for generator in r.drawn for t in generator.counters()]
        for t in self.assigned([*mine, *counters], lambda t: often or t.uop in self._above):
            if t.uop in self._above:
                raise TransformError(
                    f"{self.name}: the function assigned a value of one example, or turn, to a tensor of shape "
                    f"{t.shape} that outlives the call and holds one value for all of them; return the value instead"
                )
            raise TransformError(
                f"{self.name}: the function changed a tensor of shape {t.shape} that outlives the call; it is called "
                "once, however often it is run, and the change would be made once: carry the tensor, or return it"
            )
        self._assigned.clear()
        # what stands for an argument, and lives on in a cycle, has no values that a jit function could compute
        tracers = {id(t) for t in mine}
        for watch, before in self._watches:
            watch[before:] = [r for r in watch[before:] if id(r()) not in tracers]

    def assigned(self, mine: Sequence[Tensor], counts: Callable[[Tensor], bool] = lambda _: True) -> list[Tensor]:
        """The tensors that the function assigned and that others see, which `mine` are not.

        Args:
            mine: results, and stand-ins. counts: which of them count.
        """
        known = {id(t) for t in mine}
        # a view keeps its root alive, which nobody else may see: results let go of theirs meanwhile
        each = {id(t): t for t in mine}.values()  # a function may return one twice
        roots = [(t, link, weakref.ref(link.root)) for t in each if (link := t._base) is not None]
        for t, _, _ in roots:
            t._base = None
        for _, link, _ in roots:
            del link.root

        def found() -> list[Tensor]:
            live = {id(t): t for r in self._assigned if (t := r()) is not None and id(t) not in known}
            return [t for t in live.values() if counts(t)]

        if found():
            gc.collect()  # a tensor of the function's own may wait in a cycle
        for t, link, ref in roots:
            if (root := ref()) is not None:
                t._base, link.root = link, root
        return found()


def flagged(tensors: list[Tensor]) -> list[Tensor]:
    """Set requires_grad on fresh results: within a transform on all floats, else where a leaf's gradient is wanted."""
    floats = [t for t in tensors if t.uop.dtype.is_float]
    wanting: set[UOp] = set()
    if not here.depth:
        there = leaves()
        wanted = {base_of(n) for t in there for n in leaf_nodes(t)} | {base_of(n) for _, n in earlier_nodes(there)}
        for u in toposort([t.uop for t in floats]) if wanted else ():
            if u.op is Op.BUFFER:
                wants = u in wanted or bool(sources_of(u))
            else:
                wants = u in wanted or (u.op is not Op.DETACH and any(s in wanting for s in u.src))
            if wants:
                wanting.add(u)
    for t in floats:
        if here.depth or t.uop in wanting:
            if grad_enabled():
                t._wants, t._leaf = True, False
            else:
                t.uop = detached(t.uop)
    return tensors
