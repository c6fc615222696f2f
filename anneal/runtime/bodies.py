"""Computations as values that the device runs between launches: the body of a loop, and loops and choices made of them.

A body is a `Function`, which is closed and holds no memory. A loop is a function that a HOST_CALL names: `Loop`, whose
number of turns is known, and `While`, whose body says when it ends; so is a `Choice` of one of two computations.
`turns.py` runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from anneal.errors import UserError
from anneal.rewrite import over, rebuild
from anneal.runtime.steps import HostFunction

from anneal.uop import (  # isort: skip
    MOVEMENT, SYMBOLIC, DType, GraphFunction, Known, Nodes, Op, Src, UOp, arena, const, dtypes, toposort, Shape,
)  # fmt: skip
from anneal.uop.sizes import Size, any_symbolic, free_of, symbolic_arg, with_variables

Pairs = Sequence[tuple[UOp, UOp]]  # what stands for values in a body, and the nodes that are passed for them
Change = Callable[[UOp], UOp]  # of Variables, bound or not
Depends = Callable[[UOp], bool] | None  # whether a node depends on such stand-ins; found by a walk, if it is None

# Movement ops cost nothing: they stay in a body even if their source is computed before the loop.
_STAYS = MOVEMENT | {Op.CAST, Op.DETACH}
_VALUES = frozenset((Op.HOST_CALL, Op.CONTIGUOUS))
_CONSTANTS = frozenset((Op.CONST, Op.IOTA))
_NOTHING = GraphFunction("body")  # until there is one


Pruned = tuple["DeviceCall", Src, dict[int, int]]


@dataclass(frozen=True, repr=False)
class DeviceCall(HostFunction):
    """A call that the device runs by plans of its own; the host only says how often.

    `body` is its computation. Each kind of calls has `rules` of its own. Of its sources the first are `constants`, and
    the next the first values of what is `carried`.
    """

    body: GraphFunction = _NOTHING
    constants: int = 0
    carried: int = 0

    def __repr__(self) -> str:
        """The call's name, and a few letters derived from its body: they distinguish calls of one name."""
        return f"<{self.name} {''.join(r.key.hex()[:6] for r in self.body.results)[:24]}>"

    _said = "{}"

    def parts(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """`values`, one for each source, split into those of the constants, of the carried values and of the slices."""
        first, second = self.constants, self.constants + self.carried
        return values[:first], values[first:second], values[second:]

    @cached_property
    def draws(self) -> bool:
        """True if the body of the call draws random numbers."""
        return any(
            u.op is Op.THREEFRY or (isinstance(f := _function(u), DeviceCall) and f.draws)
            for u in toposort(self.body.results)
        )

    @cached_property
    def pure(self) -> bool:
        """True if it calls no function of the host, and its sizes are numbers."""
        below = [f for u in toposort(self.body.results) if (f := _function(u)) is not None]
        return not self.variables and all(f.pure for f in below)

    @cached_property
    def variables(self) -> Src:
        """The Variables that its sizes and its body have, bound or not."""
        found: Known = {}
        roots = [*self.body.parameters, *self.body.results]
        if SYMBOLIC.seen and (has_variables(toposort(roots)) or symbolic_arg(self._sizes)):
            self.sized(lambda v: found.setdefault(v, v))
        return tuple(found)

    @property
    def _sizes(self) -> Shape:
        """The symbolic sizes that are not in the body."""
        return tuple([shape for shape, _ in self.results])

    @cached_property
    def free(self) -> Self:
        """The call with unbound Variables: the key of its plan."""
        return self.sized(free_of) if self.variables else self

    def sized(self, f: Change, known: Known | None = None) -> Self:
        """The call with `f` applied to its Variables, bound or not; `known` gets what nodes of its body become."""
        b, known = self.body, {} if known is None else known
        body = GraphFunction(b.name, b.arguments, sized(b.parameters, f, known), sized(b.results, f, known))
        results = [(with_variables(shape, f), dtype) for shape, dtype in self.results]
        return replace(self, results=tuple(results), body=body)

    def pruned(self, src: Src, wanted: Collection[int]) -> Pruned:
        """A call that gives only the results numbered `wanted`; the sources among `src` that it takes; and the numbers
        of these results in it.
        """
        return self, src, {n: n for n in wanted}


@dataclass(frozen=True, repr=False)
class Loop(DeviceCall):
    """`length` turns. The body takes (turn, *constants, *carried, *slices), and gives (*carried, *rows).

    The sources are the constants, the first values of what is carried, and arrays whose slices along the first axis the
    turns are given; `turn` is the number of the slice. The results are the last values of what is carried, and the rows
    of all turns along a new first axis. In `reverse` the last slice comes first.
    """

    length: Size = 0
    reverse: bool = False
    extra: int = field(default=0, compare=False)  # the last rows that its reverse alone reads
    again: bool = False  # its reverse computes again what has more elements than each slice
    inside: frozenset[UOp] = frozenset()  # nodes of the body that its reverse computes again, of checkpoints

    @classmethod
    def named(cls, name: str, length: Size = 0, reverse: bool = False, again: bool = False) -> Loop:
        """A loop without a body, for `looped` to make others like it.

        Args:
            name: of the loop, for messages.
            length: the number of turns.
            reverse: whether the last slice comes first.
            again: whether its reverse computes again what has more elements than each slice.
        """
        return cls("loop", (), _nowhere, name, length=length, reverse=reverse, again=again)

    def sized(self, f: Change, known: Known | None = None) -> Self:
        known = {} if known is None else known
        new = super().sized(f, known)
        return replace(new, length=with_variables(self.length, f), inside=_found(self.inside, known))

    @property
    def _sizes(self) -> Shape:
        return (*super()._sizes, self.length)

    @property
    def tests(self) -> Src:
        """Rows of the body that are no results: whether there is a turn of these values."""
        return ()

    def over(self, body: GraphFunction, extra: int = 0, **changes: Any) -> Self:
        """The loop with another body, and some `changes`.

        Args:
            extra: how many of its last rows its reverse alone reads.
        """
        loop = replace(self, body=body, extra=extra, **changes)
        kinds, n = _kinds(body.results), loop.carried
        rows = [((loop.length, *shape), dtype) for shape, dtype in kinds[n + len(loop.tests) :]]
        return replace(loop, results=(*kinds[:n], *rows))

    def for_reverse(self, src: Src) -> Nodes:
        return self.nodes(src)[len(self.results) - self.extra :]

    def pruned(self, src: Src, wanted: Collection[int]) -> Pruned:
        """The loop of the results `wanted` alone, without what none of them needs of its sources `src` and of what is
        carried."""
        body, parameters = self.body, self.body.parameters[1:]
        place = {p: k for k, p in enumerate(self.parts(parameters)[1])}
        live = set(wanted)
        while True:
            below = toposort([body.results[k] for k in sorted(live)])
            more = {place[u] for u in below if u in place} - live
            if not more:
                break
            live |= more
        used = set(below)
        taken = [k for k, p in enumerate(parameters) if (place[p] in live if p in place else p in used)]
        if len(live) == len(body.results) and len(taken) == len(parameters):
            return self, src, {k: k for k in wanted}
        kept = sorted(live)
        split = self.parts([k in taken for k in range(len(parameters))])
        given = [body.parameters[0], *[parameters[k] for k in taken]]
        known: Known = {}
        numbered = abstracted("body", given, [body.results[k] for k in kept], known)
        inside = _found(self.inside, known)
        loop = self.over(numbered, constants=sum(split[0]), carried=sum(split[1]), inside=inside)
        return loop, tuple([src[k] for k in taken]), {k: kept.index(k) for k in wanted}


class While(Loop):
    """Turns (iterations) as long as the body's only row is true for the values that a turn is given. That row is not a
    result, and there are no slices.
    """

    @property
    def tests(self) -> Src:
        return self.body.results[self.carried :]

    pruned = DeviceCall.pruned


class Choice(DeviceCall):
    """The first half of the body's results where the first source is true, else the second. The body takes the other
    sources."""


def _function(u: UOp) -> Any:
    return u.arg[0] if u.op is Op.HOST_CALL else None


def has_variables(nodes: Nodes) -> bool:
    """True if a Variable, bound or not, is among some nodes, in their sizes, or in calls.

    Args:
        nodes: the nodes.
    """
    return any_symbolic(nodes) or any(u.arg[0].variables for u in nodes if u.op is Op.HOST_CALL)


def sized(roots: Nodes, f: Change, known: Known) -> Src:
    """Graphs with `f` applied to the Variables in their sizes, bound or not.

    Args:
        roots: the graphs.
        known: nodes that are not looked into, and what they become; what others become is added.
    """

    def visit(u: UOp, src: Src) -> UOp:
        op, arg = u.op, u.arg
        if op is Op.BIND or op is Op.VARIABLE:
            return f(u)
        if op is Op.HOST_CALL and isinstance(arg[0], DeviceCall):
            arg = arg[0].sized(f), arg[1]
        elif symbolic_arg(arg):
            arg = with_variables(arg, f)
        return u if src == u.src and arg == u.arg else arena().again(u, src, arg)

    return tuple([rebuild(u, visit, known) for u in roots])


# -- how they are made ------------------------------------------------------------------------------------------------


def _nowhere(*_: Any) -> Any:
    raise UserError("a loop is computed on a device, not from arrays")


def parameters_like(several: Nodes, tag: Any) -> Src:
    """Parameters like some nodes, in their order.

    Args:
        several: the nodes.
        tag: the parameters'.
    """
    return tuple([UOp(Op.PARAM, u.dtype, (), (n, u.shape), tag) for n, u in enumerate(several)])


def abstracted(name: str, given: Nodes, results: Nodes, known: Known | None = None) -> GraphFunction:
    """The Function of the nodes that are `given`, in this order, whose results are these graphs over them.

    Args:
        name: the Function's.
        known: nodes that are not looked into, and what they become; what others become is added.
    """
    parameters = parameters_like(given, "body")
    known = {} if known is None else known
    known.update(zip(given, parameters, strict=True))
    return GraphFunction(name, (), parameters, tuple([rebuild(r, over, known) for r in results]))


def _found(nodes: Collection[UOp], known: Known) -> frozenset[UOp]:
    return frozenset([known[u] for u in nodes if u in known])


def _closed(
    lead: Nodes, constants: Pairs, carried: Nodes, slices: Pairs, results: Nodes, depends: Depends
) -> tuple[Pairs, Pairs, GraphFunction, Known]:
    """A body with these `results`. It takes the turn's number, constants, carried values and slices. Returns its
    constants (the given ones that it reads, and other nodes that it reads), its slices, the body, and the nodes in it
    by the nodes that they replace. `depends` tells whether a node depends on what the body takes; None: a walk finds
    it. Nodes that do not are computed once, before the loop, except constants and movement ops.
    """
    given = {*lead, *carried, *[p for p, _ in (*constants, *slices)]}
    if depends is None:
        below = set(given)
        for u in toposort(results):
            if any(s in below for s in u.src):
                below.add(u)
        depends = below.__contains__
    outside, read, seen = list[UOp](), set[UOp](), set[UOp]()
    stay = {}
    known: dict[UOp, bool] = {}
    stack = list(reversed(results))
    while stack:
        u = stack.pop()
        if u in seen:
            continue
        seen.add(u)
        if u in given:
            read.add(u)
        elif depends(u):
            stack += reversed(u.src)
        elif _constant(u, known) or (u.op is Op.BUFFER and getattr(u.arg, "derivative", None) is not None):
            stay[u] = u  # a number, or what stands for a derivative by a function
        elif u.op in _STAYS:
            stack += reversed(u.src)
        else:
            outside.append(u)
    fixed = [(p, u) for p, u in constants if p in read] + [(u, u) for u in outside]
    along = [(p, u) for p, u in slices if p in read]
    if lead and not (fixed or carried or along):
        zero = const(dtypes.int32, 0)
        fixed = [(UOp(Op.PARAM, dtypes.int32, (), (-1, ()), "nothing"), zero)]  # a call has a source
    taken = [*lead, *[p for p, _ in fixed], *carried, *[p for p, _ in along]]
    return fixed, along, abstracted("body", taken, results, stay), stay


def _constant(u: UOp, known: dict[UOp, bool]) -> bool:
    """True if a node is made of constants alone, and is no variable of a transform."""
    if u.weak:
        return False
    if u not in known:
        for x in toposort(u, until=known.__contains__):
            known[x] = all(known[s] for s in x.src) if x.src else x.op in _CONSTANTS
            known[x] = known[x] and x.op not in _VALUES
    return known[u]


def _kinds(nodes: Nodes) -> list[tuple[Shape, DType]]:
    return [(u.shape, u.dtype) for u in nodes]


def looped(
    like: Loop,
    turn: UOp,
    constants: Pairs,
    carried: Sequence[tuple[UOp, UOp, UOp]],
    slices: Pairs,
    rows: Nodes,
    depends: Depends = None,
    grown: Callable[[Loop], Loop] | None = None,
    inside: Collection[UOp] = (),
) -> tuple[list[UOp], list[UOp]]:
    """The last values of what is carried, and the rows of a loop.

    Args:
        like: a loop with the name of this one, its length and its direction.
        turn: stands for the number of the slice.
        constants: what stands for them, with their nodes.
        carried: what stands for them, with the nodes of their first values and the graphs of their next ones.
        slices: what stands for them, with the nodes of the arrays.
        rows: graphs; of a `While` the one that says whether there is a turn.
        depends: whether a node depends on one of those stand-ins; found by a walk, if it is None.
        grown: gives the loop further rows.
        inside: nodes of the graphs that its reverse computes again.
    """
    moving = [c for c in carried if c[2] is not c[0]]
    still = [(p, first) for p, first, after in carried if after is p]
    results = [*[after for _, _, after in moving], *rows]
    fixed, along, body, stay = _closed([turn], [*constants, *still], [p for p, *_ in moving], slices, results, depends)
    loop = like.over(body, constants=len(fixed), carried=len(moving), inside=_found(inside, stay))
    src = (*[u for _, u in fixed], *[first for _, first, _ in moving], *[u for _, u in along])
    nodes = (loop if grown is None else grown(loop)).nodes(src)
    last = iter(nodes)
    ends = [first if after is p else next(last) for p, first, after in carried]
    return ends, nodes[len(moving) : len(results)]


def chosen(name: str, predicate: UOp, given: Pairs, ways: Sequence[Nodes], depends: Depends = None) -> Nodes:
    """The results of a `Choice` between two ways, graphs over what stands for the nodes that are `given`.

    Args:
        name: of the call, for messages.
        predicate: the node that chooses.
        depends: whether a node depends on one of those stand-ins; found by a walk, if it is None.
    """
    taken, _, body, _ = _closed((), given, (), (), [*ways[0], *ways[1]], depends)
    call = Choice("choice", tuple(_kinds(ways[0])), _nowhere, name, body=body)
    return call.nodes((predicate, *[u for _, u in taken]))
