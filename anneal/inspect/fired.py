"""The rules that fire while a model is compiled: how often, in which passes, and for which lines of the user's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anneal.codegen import Target, bodies_of
from anneal.inspect.derivations import Derivations
from anneal.inspect.names import Line
from anneal.progress import told
from anneal.rewrite import Event, tracing
from anneal.schedule import BUILDING, CostModel, Origin, graph, kernel_graph, origins, parametrise
from anneal.schedule import run_passes as scheduled
from anneal.uop import Provenance, UOp, arena, toposort


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule, its table and its place as "file:line", with the `count` of times that it fired.

    `passes`, `lines` (of the user's code) and `modules` (their paths) are where, with how often, the most first. A pass
    is "" while the graph is built. Equal pieces of a program are compiled once, and a rule counts once for them.
    """

    rule: str
    table: str
    place: str
    count: int
    passes: tuple[tuple[str, int], ...]
    lines: tuple[tuple[Line, int], ...]
    modules: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _Tally:
    count: int = 0
    passes: Counter[str] = field(default_factory=Counter)
    lines: Counter[Line] = field(default_factory=Counter)
    modules: Counter[str] = field(default_factory=Counter)


def firings(
    build: Callable[[], Iterable[UOp]], cost_model: CostModel, target: Target | None = None, *, forward: bool = False
) -> tuple[Firing, ...]:
    """The rules that fire while `build` makes a graph (it gives the outputs), and while that becomes WGSL; the most
    frequent first.

    Everything is compiled anew, so that what is kept from before hides no rule. With `forward`, rules of the backward
    pass and the optimiser, which `build` may go on to, do not count.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    tallies: dict[tuple[str, str, str], _Tally] = {}
    with tracing() as events:
        sink = graph(build())
    for e in events:
        if not forward or (e.before.provenance[0] == "forward" and isinstance(e.after, UOp)):
            _count(tallies, e, e.pass_name, [e.before.provenance])
    known = origins(sink)
    with BUILDING, arena().untracked():
        numbers: dict[UOp, tuple[int, ...]] = {}
        derived = Derivations(numbers)
        with derived.listening() as events:
            s = scheduled(parametrise(sink)[0], cost_model, until="kernel-split")
        numbers.update((u, (at,)) for u, at in s.places.items())
        _count_all(tallies, events, "", derived, range(len(known)), {}, (), known)
        pieces: dict[UOp, list[int]] = {}
        stored: dict[UOp, list[int]] = {}
        for cut in s.cuts:
            pieces.setdefault(cut.graph, []).extend(cut.places)
            stored.setdefault(cut.graph, []).extend(cut.places[: len(cut.group.roots)])
        for piece, places in told(pieces.items(), "compiling kernels", len(pieces)):
            within = frozenset(places)
            ends = {u: derived.of(u, within).nodes for u in toposort((piece,))}
            of_kernel = Derivations(ends)
            with of_kernel.listening("range-propagation") as events:
                bodies = bodies_of(kernel_graph(piece), target)
            nodes = [s.node for b in bodies for s in b.program.stmts if s.node is not None]
            made = {u: o.nodes for u, o in of_kernel.below(nodes, within, stored[piece]).items()}
            _count_all(tallies, events, "range-propagation", of_kernel, within, made, stored[piece], known)
    found = [
        Firing(rule, table, place, t.count, _most(t.passes), _most(t.lines), _most(t.modules))
        for (rule, table, place), t in tallies.items()
    ]
    return tuple(sorted(found, key=lambda f: (-f.count, f.place)))


def _count_all(
    tallies: dict[tuple[str, str, str], _Tally],
    events: Sequence[Event],
    where: str,
    derived: Derivations,
    within: frozenset[int] | range,
    made: Mapping[UOp, frozenset[int]],
    otherwise: Sequence[int],
    known: Sequence[Origin],
) -> None:
    """Count events of passes.

    A node that comes from nowhere in particular belongs to what is `made` of it in the end, or else to the nodes
    `otherwise`.
    """
    of: dict[UOp, frozenset[int]] = dict(made)
    for e in reversed(events):
        if not of.get(e.before):
            of[e.before] = derived.of(e.before, within).nodes
            if not of[e.before] and isinstance(e.after, UOp):
                of[e.before] = of.get(e.after) or frozenset(derived.numbers.get(e.after, ()))
    for e in events:
        _count(tallies, e, e.pass_name or where, [known[n].provenance for n in of[e.before] or otherwise])


def _count(tallies: dict[tuple[str, str, str], _Tally], e: Event, where: str, at: Iterable[Provenance]) -> None:
    t = tallies.setdefault((e.rule, e.table, e.place), _Tally())
    t.count += 1
    t.passes[where] += 1
    t.lines.update({Line(code.co_filename, line, code.co_qualname) for _, code, line, _, _ in at if code is not None})
    t.modules.update({path for _, _, _, path, _ in at if path})


def _most(counts: Counter[str] | Counter[Line]) -> tuple[tuple[Any, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], str(item[0]))))
