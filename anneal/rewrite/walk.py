"""Graphs made anew, without recursion: the one walk, and the engine that applies tables of rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from anneal.errors import CompilerError
from anneal.uop import GraphFunction, Known, Nodes, Numbers, Op, Src, UOp, arena, toposort

# -- a list of events in a thread, while it has a listener ------------------------------------------------------------


class _Here(threading.local):
    """A thread's state in planning: for each kind of event the list to append to, or None without a listener; the pass
    that runs, and whether a listener is told of a rule right now.

    >>> with HERE.listening("walks") as heard:
    ...     if HERE.walks is not None:
    ...         HERE.walks.append({})
    >>> heard, HERE.walks
    ([{}], None)
    """

    walks: list[Known] | None = None  # as `rebuilt` has them
    refusals: list[Any] | None = None  # of two groups to be one kernel (schedule)
    indexed: list[Any] | None = None  # nodes with their indices, and what they became (schedule)
    pass_name = ""
    telling = False

    @contextmanager
    def listening(self, kind: str) -> Iterator[list[Any]]:
        """A list that gets every event of this thread within the block; an outer block's gets them at its end.

        Args:
            kind: the name of the attribute.
        """
        outer: list[Any] | None = getattr(self, kind)
        mine: list[Any] = []
        setattr(self, kind, mine)
        try:
            yield mine
        finally:
            setattr(self, kind, outer)
            if outer is not None:
                outer.extend(mine)


HERE = _Here()
K = TypeVar("K")
V = TypeVar("V")


# -- the one walk that makes a graph anew -----------------------------------------------------------------------------


Visit = Callable[[UOp, Src], UOp]  # (node, its rebuilt sources) -> what takes the node's place


def rebuild(root: UOp, visit: Visit, known: Known | None = None, order: Nodes | None = None) -> UOp:
    """The node that `visit` makes of `root`, after it has made one for every node below.

    A pass that changes nodes is such a `visit`: a function from a node and its rebuilt sources to the node that takes
    its place. The walk calls it once for each node, sources first, also where several nodes share a source.

    `known` holds results: the walk neither visits its keys nor looks below them, and adds every result to it, so that a
    second root shares the work of the first. `order` is the nodes below `root`, sources first, where the caller has
    them already (then `known` does not shorten it). Nodes made by `visit` bear the phase of the node whose place they
    take.

    >>> from anneal.uop import Op, UOp, dtypes
    >>> x = UOp(Op.PARAM, dtypes.float32, (), (0, ()))
    >>> cosines = lambda u, src: Op.COS(src[0]) if u.op is Op.SIN else over(u, src)
    >>> rebuild(Op.SIN(x) * Op.EXP(Op.SIN(x)), cosines) is Op.COS(x) * Op.EXP(Op.COS(x))
    True
    """
    new = {} if known is None else known
    if order is None:
        order = toposort(root, until=known.__contains__ if known else None)
    a = arena()
    before = phase = a.phase
    try:
        for u in order:
            if (at := u.provenance[0]) is not phase:
                a.phase = phase = at
            src = u.src  # by their number: a comprehension would cost more than most visits
            if not src:
                new[u] = visit(u, src)
            elif len(src) == 1:
                new[u] = visit(u, (new[src[0]],))
            elif len(src) == 2:
                new[u] = visit(u, (new[src[0]], new[src[1]]))
            else:
                new[u] = visit(u, tuple([new[s] for s in src]))
    finally:
        if phase is not before:
            a.phase = before
    if HERE.walks is not None:
        HERE.walks.append(new)
    return new[root]


def rebuilt() -> AbstractContextManager[list[Known]]:
    """A block that records each walk that ends within it: the nodes that it visited, and their replacements.

    >>> from anneal.uop import Op, UOp, dtypes
    >>> x = UOp(Op.PARAM, dtypes.float32, (), (0, ()))
    >>> with rebuilt() as walks:
    ...     y = substitute(Op.SIN(x), {x: Op.COS(x)})
    >>> walks[0][Op.SIN(x)] is y
    True
    """
    return HERE.listening("walks")


def tell(walks: Callable[[], Iterable[Known]]) -> None:
    """Report another loop to listeners (`rebuilt`): `walks()`, asked for only then, maps nodes to their results."""
    if HERE.walks is not None:
        HERE.walks.extend(walks())


def applied(function: GraphFunction, sources: Nodes) -> Nodes:
    """The results of a Function for these sources: its body, opened.

    >>> from anneal.uop import Op, dtypes
    >>> x, y = (UOp(Op.PARAM, dtypes.float32, (), (n, ())) for n in (0, 1))
    >>> applied(GraphFunction("sine", (), (x,), (Op.SIN(x),)), [y]) == [Op.SIN(y)]
    True
    """
    if not function.results:
        return list(sources)
    known = dict(zip(function.parameters, sources, strict=True))
    return [rebuild(r, over, known) for r in function.results]


def value_of(call: UOp) -> UOp:
    """The node that a CALL is, once it is opened."""
    number: int = call.arg[1]
    return applied(call.arg[0], call.src)[number]


def unchanged(order: Nodes, changing: Container[UOp]) -> tuple[Known, list[UOp]]:
    """The `known` and the `order` with which `rebuild` visits the nodes of `changing` alone, and those above them.

    >>> from anneal.uop import Op, UOp, dtypes
    >>> x = UOp(Op.PARAM, dtypes.float32, (), (0, ()))
    >>> y = Op.SIN(x)
    >>> known, above = unchanged([x, y, Op.EXP(y)], {y})
    >>> known == {x: x}, above == [y, Op.EXP(y)]
    (True, True)
    """
    known: Known = {}
    above: list[UOp] = []
    for u in order:
        if u not in changing:
            for s in u.src:
                if s not in known:
                    break
            else:
                known[u] = u
                continue
        above.append(u)
    return known, above


def answered(first: K, ask: Callable[[K], Generator[K, Any, V]], known: dict[K, V]) -> V:
    """The value of `first`. `ask(x)` is a generator that yields the keys whose values it needs, is sent those values,
    and returns the value of x. A recursive function written so does not use Python's stack. `known` holds the values,
    and gets all that are made.

    >>> def fibonacci(n):
    ...     return n if n < 2 else (yield n - 1) + (yield n - 2)
    >>> answered(300, fibonacci, {}) % 1000
    600
    """
    waiting = [] if first in known else [(first, ask(first))]
    value: V | None = None
    while waiting:
        question, asking = waiting[-1]
        try:
            wanted = asking.send(value)
        except StopIteration as end:
            known[question] = value = end.value
            waiting.pop()
            continue
        value = known.get(wanted)
        if value is None:
            waiting.append((wanted, ask(wanted)))
    return known[first]


def over(u: UOp, src: Src) -> UOp:
    """`u` over other sources, folded if it is elementwise: the visit that changes nothing by itself."""
    return u.replace(src=src)


def unfolded(u: UOp, src: Src) -> UOp:
    """`u` over other sources, not folded: for graphs whose elementwise nodes must stay."""
    return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)


def substitute(root: UOp, mapping: Mapping[UOp, UOp]) -> UOp:
    """`root` with every node that is a key of `mapping` replaced by its value.

    The nodes below a replaced one are not looked at, and values are not searched for keys.

    >>> from anneal.uop import Op, UOp, const, dtypes
    >>> i, j = (UOp(Op.VARIABLE, dtypes.int32, (), (name, 0, 9)) for name in "ij")
    >>> substitute(i * 4 + j, {j: const(dtypes.int32, 0)}) is i * 4
    True
    """
    return rebuild(root, over, dict(mapping))


Match = Callable[[Any], Any]  # node -> (node, rule text) | None; None or the node itself is no match
Table = Mapping[Op, Match]
_LONG = 10_000  # rewrites of one node after which its rules go round in circles


def rewritten(u: UOp, table: Table) -> UOp:
    """The node that the rules make of `u` itself, one after another until none matches; nodes below are as they are.

    `graph_rewrite` does so at every node of a graph. Raises CompilerError for rules that do not end.

    >>> from anneal.uop import const, dtypes
    >>> x = UOp(Op.SPECIAL, dtypes.int32, (), ("x", 8))
    >>> table = {Op.XOR: lambda u: (u.src[0] + u.src[1], "x ^ y -> x + y")}
    >>> rewritten(x ^ 5, table) is x + 5, graph_rewrite(((x ^ 5) * 3) ^ x, table) is (x + 5) * 3 + x
    (True, True)
    """
    for _ in range(_LONG):
        if (match := table.get(u.op)) is None or (found := match(u)) is None:
            return u
        if found[0] is None or found[0] is u:
            return u
        u, rule = found
    raise _loop(rule, u)


def _sources(u: UOp) -> Src:
    return u.src


def _over_done(u: UOp, done: Mapping[UOp, UOp]) -> UOp:
    return u.replace(src=tuple([done[s] for s in u.src]))


def _loop(rule: str, u: UOp) -> CompilerError:
    return CompilerError("a rule leads back to the node it replaced", rule=rule, node=u)


def graph_rewrite(
    root: UOp,
    table: Table,
    done: Known | None = None,
    *,
    parts: Callable[[UOp], Nodes | None] = _sources,
    remake: Callable[[UOp, Known], UOp] = _over_done,
    steps: int = 0,
) -> UOp:
    """The node that the rules make of `root` and of all below it, until none matches; sources come before their users,
    and the node that a rule returns is visited in its turn. `parts(u)` are the nodes to rewrite before `u` (None: `u`
    stays), `remake(u, done)` is `u` made of what they became. `done` keeps the results. Rules that lead back to a node
    raise CompilerError; with `steps`, they end there, as does a node that was rewritten so often."""
    done = {} if done is None else done
    became: set[UOp] = set()  # nodes that were replaced: their result is that of the replacement
    count: Numbers = {}

    def result(u: UOp) -> Generator[UOp, Any, UOp]:
        below = parts(u)
        if below is None:
            return u
        n, rule = u, "(see the node)"
        while pending := [s for s in below if s not in done]:
            if not became.isdisjoint(pending):
                if not steps:
                    raise _loop(rule, u)
                break
            for s in reversed(pending):  # noqa: UP028  # an iterator cannot be sent what its nodes became
                yield s
        else:
            n = remake(u, done)
        if n is u:
            match = table.get(u.op)
            found = match(u) if match is not None else None
            if found is None or found[0] is None or found[0] is u:
                return u
            n, rule = found
        if n in done:
            return done[n]
        if steps:
            count[n] = count.get(u, 0) + 1
            if count[n] > steps or n in became:
                return n
        elif n in became:
            raise _loop(rule, u)
        became.add(u)
        out: UOp = yield n
        return out

    return answered(root, result, done)
