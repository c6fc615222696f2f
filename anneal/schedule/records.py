"""The records of the scheduler: a plan (kernels, values, calls), and the state that one pass hands to the next."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from anneal.frozen import frozen
from anneal.rewrite import over, rebuild, rebuilt
from anneal.uop import DType, Ints, Nodes, Numbers, Op, Provenance, Src, UOp, of_op, ranks, toposort
from anneal.uop.sizes import is_symbolic, variables_of

if TYPE_CHECKING:
    from anneal.schedule.fusion import CostModel, FusionGroup, Materialised


class Kernel:
    """A distinct kernel: its graph, its name in listings, and the graph's key.

    A kernel from disk has a function in the graph's place, called when the graph is first asked for.
    """

    __slots__ = ("_graph", "key", "name")

    def __init__(self, graph: UOp | Callable[[], UOp], name: str, key: bytes | None = None) -> None:
        self._graph, self.name = graph, name
        self.key = key if key is not None else self.sink.key

    @property
    def sink(self) -> UOp:
        if not isinstance(self._graph, UOp):
            self._graph = self._graph()
        return self._graph


@frozen
class Value:
    """A numbered value of a plan."""

    size: int
    dtype: DType
    kind: str  # "input", "output" or "temp"


class Call(NamedTuple):
    """A launch: values by PARAM slot; the first `outputs` of them are written.

    `places` are the numbers of the nodes that it computes in the parametrised graph, its outputs first.
    """

    kernel: Kernel
    args: Ints
    outputs: int
    phase: str
    places: Ints = ()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Plan:
    """Kernel calls over values. Values 0..inputs-1 are inputs; `outputs` lists the value of each sink source."""

    values: tuple[Value, ...]
    inputs: int
    outputs: Ints
    calls: tuple[Call, ...]
    memory: tuple[tuple[int, int], ...]  # (value, physical temporary) of each temporary
    temporaries: tuple[tuple[int, DType], ...]  # size and dtype of each physical temporary
    variables: Src = ()  # the Variables whose values each run must give

    @property
    def kernels(self) -> list[Kernel]:
        """The distinct kernels, in order of first use."""
        return list(dict.fromkeys(c.kernel for c in self.calls))


class Cut(NamedTuple):
    """The graph of one kernel with numbered parameters for what it reads, what these are, and its nodes' places."""

    graph: UOp
    inputs: Src
    group: FusionGroup
    places: Ints


@frozen
class Schedule:
    """The state that the passes hand on to each other: each makes a new one, with more fields filled."""

    sink: UOp
    cost_model: CostModel
    order: list[UOp] = field(default_factory=list)  # the nodes below `sink`, sources first
    consumers: dict[UOp, list[UOp]] = field(default_factory=dict)  # of the nodes of `order`
    materialised: Materialised = field(default_factory=dict)
    chained: frozenset[UOp] = frozenset()  # nodes inside of chains (fusion/chains.py)
    groups: list[FusionGroup] = field(default_factory=list)
    places: Numbers = field(default_factory=dict)  # of the program's nodes and of what stands for them
    cuts: list[Cut] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    plan: Plan | None = None

    def over(self, sink: UOp) -> Schedule:
        """A copy of the state for another sink, with the order of its nodes."""
        return self if sink is self.sink else replace(self, sink=sink, order=toposort(sink)[:-1])

    def changed(self, change: Callable[[UOp, Nodes, CostModel], UOp]) -> Schedule:
        """The same for the sink that a pass makes of this one, and of the order of its nodes."""
        return self.over(carried(self.places, self.sink, lambda: change(self.sink, self.order, self.cost_model)))


def name_of(sink: UOp) -> str:
    """A kernel's name: r (reduces) or e (elementwise), its loop sizes, its reduce sizes, how many more members of other
    sizes it has, and a piece of its key."""
    parts = members_of(sink)
    ranges = sorted([u for u in toposort(parts[0]) if u.op is Op.RANGE], key=lambda r: r.arg[0])
    reduces = [_size_word(r.src[0]) for r in ranges if r.arg[1] != "loop"]
    words = ["r" if reduces else "e", *[_size_word(r.src[0]) for r in ranges if r.arg[1] == "loop"]]
    if reduces:
        words += ["by", *reduces]
    if len(parts) > 1:
        words += ["and", str(len(parts) - 1)]
    return "_".join([*words, sink.key.hex()[:6]])


def _size_word(extent: UOp) -> str:
    """A range in a kernel's name: its size, or the variables of a symbolic one."""
    if extent.is_const:
        return str(extent.arg)
    return "".join(v.arg[0] for v in variables_of(extent)) if is_symbolic(extent) else "n"


# -- members of fused kernels -----------------------------------------------------------------------------------------
# Horizontally fused kernels: members share a launch but no loop range, and each has workgroups of its own.


def members_of(sink: UOp) -> Nodes:
    """The members of a kernel in the order of their first stores; `[sink]` if it is not horizontally fused."""
    groups: list[tuple[int, list[UOp]]] = []  # loop ranges, stores
    for store in sink.src:
        ranges, stores = store.ranges, [store]
        rest = []
        for r, s in groups:
            if r & ranges or r == ranges:
                ranges, stores = r | ranges, s + stores
            else:
                rest.append((r, s))
        groups = [*rest, (ranges, stores)]
    if len(groups) == 1:
        return [sink]
    first = ranks(sink.src)
    groups.sort(key=lambda g: first[g[1][0]])
    return [UOp(Op.SINK, sink.dtype, tuple(stores), sink.arg) for _, stores in groups]


def standalone(member: UOp) -> tuple[UOp, list[int]]:
    """A member as a kernel of its own, and the slots that its memory had: equal members become the same kernel.

    Memory is numbered from 0, outputs first; ranges too, loops first.
    """
    order = toposort(member)
    written = list(dict.fromkeys(s.slot for s in member.src))
    slots = [*written, *dict.fromkeys([u.arg[0] for u in order if u.op is Op.PARAM and u.arg[0] not in written])]
    ranges = sorted(of_op(order, Op.RANGE), key=lambda r: (r.arg[1] != "loop", r.arg[0]))
    return renumbered(order, ranks(slots), ranks(ranges)), slots


def renumbered(order: Nodes, slots: Mapping[int, int], ids: Mapping[UOp, int]) -> UOp:
    """A kernel, the last of its nodes, with other slots for its memory and other numbers for its ranges."""

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.PARAM and u.arg[0] in slots:
            return UOp(Op.PARAM, u.dtype, (), (slots[u.arg[0]], u.arg[1]))
        if u.op is Op.RANGE and u in ids:
            return UOp(Op.RANGE, u.dtype, src, (ids[u], u.arg[1]))
        return over(u, src)

    return rebuild(order[-1], visit, order=order)


# -- places: the nodes of the user's graph that a kernel computes ------------------------------------------------------
# A place is the number of a node in the parametrised graph, sources first. A call of a plan holds the places of what it
# computes, also on disk; the graph that a program has at hand gives their lines and modules (`live_nodes`), so these
# are never out of date.


def carried(places: Numbers, sink: UOp, change: Callable[[], UOp]) -> UOp:
    """The sink that `change` makes of `sink`; `places` also gets the nodes that now stand in the place of others.

    Where `places` is empty, `sink` is the program, which `change` walks first: in the order of places.
    """
    with rebuilt() as walks:
        new = change()
    if not places:
        places.update(zip(next(walk for walk in walks if sink in walk), itertools.count()))
    for walk in walks:
        for u, v in walk.items():
            if v is not u and v not in places and (at := places.get(u)) is not None:
                places[v] = at
    for u, v in zip(sink.src, new.src):  # a copy, for an output that was a leaf or another one's equal
        places.setdefault(v, places[u])
    return new


def complete(places: Numbers, roots: Iterable[UOp], order: Nodes) -> None:
    """Give each of `roots` a place; a root that a pass made for another node gets that node's place."""
    if all(r in places for r in roots):
        return
    for u in reversed(order):
        at = places.get(u)
        if at is not None:
            for s in u.src:
                if s not in places:
                    places[s] = at


def places_of(roots: Nodes, order: Iterable[UOp], places: Mapping[UOp, int]) -> Ints:
    """The places of the roots of a kernel, one each, and then of the other nodes that it computes."""
    first = [places[r] for r in roots]
    rest = {at for u in order if u.src and (at := places.get(u)) is not None}
    return (*first, *sorted(rest.difference(first)))


class Origin(NamedTuple):
    """The origin of a node of the user's graph. `grounded`: it is computed from memory, not from constants alone."""

    op: Op
    grounded: bool
    provenance: Provenance


Plans = list[tuple[Plan, Sequence[Origin]]]  # each with where the nodes come from that it computes
