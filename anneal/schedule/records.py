"""The records of this room: a plan (kernels, the values they pass on, calls), and the state that the passes hand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from anneal.rewrite import over, rebuild
from anneal.uop import DType, Op, UOp, toposort
from anneal.uop.sizes import is_symbolic, variables_of

if TYPE_CHECKING:
    from anneal.schedule.fusion import CostModel, FusionGroup, Materialised

CONCATENATION = "concatenation"  # the arg of a SINK whose root is stored piece by piece


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


@dataclass(frozen=True, slots=True)
class Value:
    """A numbered value of a plan."""

    size: int
    dtype: DType
    kind: str  # "input", "output" or "temp"


class Call(NamedTuple):
    """A launch: values by PARAM slot; the first `outputs` of them are written.

    `places` are the numbers of the nodes that it computes in the parametrised graph (`places.py`), its outputs first.
    """

    kernel: Kernel
    args: tuple[int, ...]
    outputs: int
    phase: str
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Plan:
    """Kernel calls over values. Values 0..inputs-1 are inputs; `outputs` lists the value of each sink source."""

    values: tuple[Value, ...]
    inputs: int
    outputs: tuple[int, ...]
    calls: tuple[Call, ...]
    memory: tuple[tuple[int, int], ...]  # (value, physical temporary) of each temporary
    temporaries: tuple[tuple[int, DType], ...]  # size and dtype of each physical temporary
    variables: tuple[UOp, ...] = ()  # those whose values each run must give

    @property
    def kernels(self) -> list[Kernel]:
        """The distinct kernels, in order of first use."""
        return list(dict.fromkeys(c.kernel for c in self.calls))


class Cut(NamedTuple):
    """The graph of one kernel with numbered parameters for what it reads, what these are, and its nodes' places."""

    graph: UOp
    inputs: tuple[UOp, ...]
    group: FusionGroup
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state that the passes hand on to each other: each makes a new one, with more fields filled."""

    sink: UOp
    cost_model: CostModel
    order: list[UOp] = field(default_factory=list)  # the nodes below `sink`, sources first
    consumers: dict[UOp, list[UOp]] = field(default_factory=dict)  # of the nodes of `order`
    materialised: Materialised = field(default_factory=dict)
    chained: frozenset[UOp] = frozenset()  # nodes inside of chains (fusion/chains.py)
    groups: list[FusionGroup] = field(default_factory=list)
    places: dict[UOp, int] = field(
        default_factory=dict
    )  # of the program's nodes and of what stands for them (places.py)
    cuts: list[Cut] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    plan: Plan | None = None

    def over(self, sink: UOp) -> Schedule:
        """The same for another sink, with the order of its nodes."""
        return self if sink is self.sink else replace(self, sink=sink, order=toposort((sink,))[:-1])


def name_of(sink: UOp) -> str:
    """A kernel's name: r (reduces) or e (elementwise), its loop sizes, its reduce sizes, how many more members of other
    sizes it has, and a piece of its key."""
    parts = members_of(sink)
    loops: list[tuple[int, str]] = []
    reduces: list[tuple[int, str]] = []
    for u in toposort((parts[0],)):
        if u.op is Op.RANGE:
            size = _size_word(u.src[0])
            (loops if u.arg[1] == "loop" else reduces).append((u.arg[0], size))
    words = ["r" if reduces else "e", *[n for _, n in sorted(loops)]]
    if reduces:
        words += ["by", *[n for _, n in sorted(reduces)]]
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


def members_of(sink: UOp) -> list[UOp]:
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
    first = {s: n for n, s in enumerate(sink.src)}
    groups.sort(key=lambda g: first[g[1][0]])
    return [UOp(Op.SINK, sink.dtype, tuple(stores), sink.arg) for _, stores in groups]


def standalone(member: UOp) -> tuple[UOp, list[int]]:
    """A member as a kernel of its own, and the slots that its memory had: equal members become the same kernel.

    Memory is numbered from 0, outputs first; ranges too, loops first.
    """
    order = toposort((member,))
    written = list(dict.fromkeys(s.src[0].arg[0] for s in member.src))
    slots = [*written, *dict.fromkeys([u.arg[0] for u in order if u.op is Op.PARAM and u.arg[0] not in written])]
    number = {slot: n for n, slot in enumerate(slots)}
    ranges = sorted([u for u in order if u.op is Op.RANGE], key=lambda r: (r.arg[1] != "loop", r.arg[0]))
    ids = {r: n for n, r in enumerate(ranges)}

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.PARAM:
            return UOp(Op.PARAM, u.dtype, (), (number[u.arg[0]], u.arg[1]))
        if u.op is Op.RANGE:
            return UOp(Op.RANGE, u.dtype, src, (ids[u], u.arg[1]))
        return over(u, src)

    return rebuild(member, visit, order=order), slots
