"""Derivations: the way of a kernel's node back through passes and rules to nodes of the tensor graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

from anneal import schedule
from anneal.codegen import Lowering, Target, bodies_of, generate, in_text, run_passes
from anneal.errors import UserError
from anneal.frozen import Texts, frozen
from anneal.inspect.kernel_list import Line, Lines, label_of, lines_of, modules_of, placed
from anneal.progress import told
from anneal.rewrite import Event, Pass, forget, rebuilt, source_index, tracing
from anneal.schedule import CostModel, Origin, Schedule
from anneal.uop import MOVEMENT, Ints, Op, UOp, arena, toposort

# Nodes that many kernels share, so no line is their origin.
_COMMON = frozenset((Op.PARAM, Op.CONST, Op.RANGE, Op.SPECIAL, Op.VARIABLE, Op.SHARED))


@frozen
class FiredRule:
    """A rule that made a node: its text, its table, its place as "file:line", and the pass that it fired in."""

    rule: str
    table: str
    place: str
    pass_name: str

    def __str__(self) -> str:
        return f"{self.rule}   [{self.place}]"


@frozen
class Origins:
    """The origin of a node: numbers of nodes of the tensor graph, and the rules on the way, the last one first."""

    nodes: frozenset[int]
    rules: tuple[FiredRule, ...]


@contextmanager
def compiling() -> Iterator[None]:
    """The block makes nodes as the compiler does: no other thread plans, and no node says who made it."""
    with schedule.BUILDING, arena().untracked():
        yield


class Derivations:
    """Steps from nodes back to their origins, collected during a compilation.

    Walks tell what took the place of which node, rules what they made of it, and range propagation what a node of the
    tensor graph became at an index. Off, none of this is asked for. So a line of a kernel's text leads to what it
    computes, the rules that made that and the user's lines, and back: the kernel is made once more for it, by the
    passes that always make it.

    `numbers` has those of nodes that the way back ends at: which nodes of the tensor graph each stands for.
    """

    def __init__(self, numbers: Mapping[UOp, Collection[int]]) -> None:
        self.numbers = numbers
        self._back: dict[UOp, list[tuple[UOp, FiredRule | None]]] = {}

    def copy(self) -> Derivations:
        """A copy of the steps so far; later steps are noted in one of the two only."""
        found = Derivations(self.numbers)
        found._back = {u: [*steps] for u, steps in self._back.items()}
        return found

    @contextmanager
    def listening(self, where: str = "") -> Iterator[list[Event]]:
        """Take in what this thread compiles within the block; gives the rules that fire.

        `where` names what runs there outside of any pass.
        """
        forget()
        with rebuilt() as walks, schedule.indexed() as lowered, tracing() as events:
            yield events
        for walk in walks:
            for u, v in walk.items():
                self._walked(u, v)
        for contexts in lowered:
            for (u, index, _), v in contexts.items():
                self._link(v, u)
                if u.op in MOVEMENT:
                    for i in set(source_index(u, index)[0]).difference(index):
                        self._link(i, u)
        for e in events:
            if isinstance(e.after, UOp):
                self._link(e.after, e.before, FiredRule(e.rule, e.table, e.place, e.pass_name or where))

    def _walked(self, u: UOp, v: UOp) -> None:
        if u is v:
            return
        self._link(v, u)
        if u.op is v.op and len(u.src) == len(v.src):  # what a visit made of a source by itself, an index say
            for a, b in zip(u.src, v.src, strict=True):
                self._link(b, a)

    def _link(self, new: UOp, old: UOp, rule: FiredRule | None = None) -> None:
        if new is not old and new.op not in _COMMON:
            steps = self._back.setdefault(new, [])
            if (old, rule) not in steps[-4:]:  # the same walk tells it again and again
                steps.append((old, rule))

    def of(self, u: UOp, within: Collection[int]) -> Origins:
        """The nodes from which `u` comes, as far as they are `within`."""
        found: set[int] = set()
        rules: dict[FiredRule, None] = {}
        seen = [u]
        known = {u}
        for x in seen:  # the loop extends it
            found.update(at for at in self.numbers.get(x, ()) if at in within)
            for old, rule in self._back.get(x, ()):
                if rule is not None:
                    rules[rule] = None
                if old not in known:
                    known.add(old)
                    seen.append(old)
        return Origins(frozenset(found), tuple(rules))

    def below(self, roots: Iterable[UOp], within: Collection[int], stored: Iterable[int]) -> dict[UOp, Origins]:
        """The derivations of `roots` and all nodes below them.

        A node that comes from nowhere has what its sources come from, or else those who read it: the arithmetic of an
        index has the access that it is for. A store of such a node is of `stored`.
        """
        order = toposort(tuple(dict.fromkeys(roots)))
        found = {u: self.of(u, within) for u in order if u.op not in _COMMON}
        nodes = {u: o.nodes for u, o in found.items()}
        for u in order:
            if u in nodes and not nodes[u]:
                nodes[u] = frozenset().union(*[nodes[s] for s in u.src if s in nodes])
                if u.op is Op.STORE and not nodes[u]:
                    nodes[u] = frozenset(stored)
        read: dict[UOp, set[int]] = {}
        for u in reversed(order):
            if u in nodes:
                nodes[u] = nodes[u] or frozenset(read.get(u, ()))
                for s in u.src:
                    read.setdefault(s, set()).update(nodes[u])
        return {u: Origins(nodes[u], o.rules) for u, o in found.items()}


def made_by(fired: Iterable[Event]) -> dict[UOp, FiredRule]:
    """The nodes that rules made, in the order in which these fired.

    A fold makes the node that it gives. A rule of derivatives makes what stands between its contributions and what it
    was given: the op's node, the sources of that, and the cotangent, which is a contribution of an earlier event or the
    sum of several. Nodes of the forward pass are made by no such rule.

    >>> from anneal.rewrite import tracing
    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> with tracing() as events:
    ...     x.tanh().sum().backward()
    >>> any(rule.rule.endswith("-> g * (1 - y * y)") for rule in made_by(events).values())
    True
    """
    made = {}
    given: dict[UOp, set[UOp]] = {}  # what was contributed to the cotangent of a node so far
    for e in fired:
        rule = FiredRule(e.rule, e.table, e.place, e.pass_name)
        if isinstance(e.after, UOp):
            if e.after not in e.before.src:  # `x * 1 -> x` made no x
                made[e.after] = rule
            continue
        known = {e.before, *e.before.src}
        cotangents = given.get(e.before, set())
        for source, result in zip(e.before.src, e.after):
            if isinstance(result, UOp):
                for u in toposort(result, partial(_given, known, cotangents)):
                    made.setdefault(u, rule)
                given.setdefault(source, set()).add(result)
    return made


def _given(known: set[UOp], cotangents: set[UOp], u: UOp) -> bool:
    """True for a node that is known, is of no backward pass, or is a cotangent or a sum of some."""
    if u in known or u.provenance[0] != "backward":
        return True
    sums = toposort(u, cotangents.__contains__, lambda x: x.src if x.op is Op.ADD else ())
    return all(x.op is Op.ADD for x in sums)


# -- the rules that fire while a model is compiled --------------------------------------------------------------------


@frozen
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


def _scheduled(sink: UOp, cost_model: CostModel) -> tuple[Schedule, Derivations, list[Event]]:
    """The pieces that the scheduler makes of a graph, the way back from them, and the rules that fired."""
    numbers: dict[UOp, Ints] = {}
    derived = Derivations(numbers)
    with derived.listening() as events:
        s = schedule.run_passes(schedule.parametrise(sink)[0], cost_model, until="kernel-split")
    numbers.update((u, (at,)) for u, at in s.places.items())
    return s, derived, events


# by text, table and place of a rule: where it fired, and the nodes that it met
_Tallies = defaultdict[tuple[str, str, str], list[tuple[str, Sequence[Origin | UOp]]]]


def firings(
    build: Callable[[], Iterable[UOp]],
    cost_model: CostModel,
    target: Target | None = None,
    *,
    forward: bool = False,
) -> tuple[Firing, ...]:
    """The rules that fire while `build` makes a graph (it gives the outputs), and while that becomes WGSL; the most
    frequent first.

    Everything is compiled anew, so that what is kept from before hides no rule. With `forward`, rules of the backward
    pass and the optimiser, which `build` may go on to, do not count.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    tallies: _Tallies = defaultdict(list)
    with tracing() as events:
        sink = schedule.graph(build())
    for e in events:
        if not forward or (e.before.provenance[0] == "forward" and isinstance(e.after, UOp)):
            tallies[e.rule, e.table, e.place].append((e.pass_name, [e.before]))
    known = schedule.origins(sink)
    with compiling():
        s, derived, events = _scheduled(sink, cost_model)
        _count_all(tallies, events, "", derived, range(len(known)), {}, (), known)
        pieces: defaultdict[UOp, list[int]] = defaultdict(list)
        stored: defaultdict[UOp, list[int]] = defaultdict(list)
        for cut in s.cuts:
            pieces[cut.graph] += cut.places
            stored[cut.graph] += cut.places[: len(cut.group.roots)]
        for piece, places in told(pieces.items(), "compiling kernels"):
            within = frozenset(places)
            of_kernel = Derivations({u: derived.of(u, within).nodes for u in toposort(piece)})
            with of_kernel.listening("range-propagation") as events:
                bodies = bodies_of(schedule.kernel_graph(piece), target)
            nodes = [s.node for b in bodies for s in b.program.stmts if s.node is not None]
            made = {u: o.nodes for u, o in of_kernel.below(nodes, within, stored[piece]).items()}
            _count_all(tallies, events, "range-propagation", of_kernel, within, made, stored[piece], known)
    found = [
        Firing(
            *key,
            len(told_of),
            _most([where for where, _ in told_of]),
            _most([x for _, at in told_of for x in lines_of(at)]),
            _most([x for _, at in told_of for x in modules_of(at)]),
        )
        for key, told_of in tallies.items()
    ]
    return tuple(sorted(found, key=lambda f: (-f.count, f.place)))


def _count_all(
    tallies: _Tallies,
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
    of = dict(made)
    for e in reversed(events):
        if not of.get(e.before):
            of[e.before] = derived.of(e.before, within).nodes
            if not of[e.before] and isinstance(e.after, UOp):
                of[e.before] = of.get(e.after) or frozenset(derived.numbers.get(e.after, ()))
    for e in events:
        at = [known[n] for n in of[e.before] or otherwise]
        tallies[e.rule, e.table, e.place].append((e.pass_name or where, at))


def _most(found: Iterable[Any]) -> tuple[tuple[Any, int], ...]:
    return tuple(sorted(Counter(found).items(), key=lambda item: (-item[1], str(item[0]))))


_FIRST = "range-propagation"  # makes a kernel's graph
_LAST = "vectorise"  # the last pass that makes a graph
_C_FUNCTION = "void kernel(void **memory, long begin, long end) {"
_STATEMENTS = "linearise"  # makes statements of it, and nodes that a statement alone has: a tile's loads ahead of use


@frozen
class TextLine:
    """A line of a kernel's text, by its `number` from 1.

    `ops` are what it computes, innermost first; `rules` those that made these nodes, the last one to fire first, and
    `passes` those that had these nodes first, the last one first;
    `nodes` the numbers of the nodes of the tensor graph that are computed there, with their `lines` and `modules`. The
    arithmetic of an index has those of the access that it is for; declarations and brackets have none.
    """

    number: int
    text: str
    ops: Texts
    rules: tuple[FiredRule, ...]
    passes: Texts
    nodes: Ints
    lines: Lines
    modules: Texts


@frozen
class KernelText:
    """The text of launch `number` of a plan, line by line."""

    number: int
    name: str
    label: str
    lines: tuple[TextLine, ...]

    def of_line(self, file: str, line: int) -> list[TextLine]:
        """The lines of the text that come from line `line` of `file` (a path, or its end)."""
        return [t for t in self.lines if any(x.line == line and x.file.endswith(file) for x in t.lines)]


def kernel_text(sink: UOp, cost_model: CostModel, number: int, target: Target | None = None) -> KernelText:
    """The WGSL of launch `number` of the plan of `sink` (`SINK(outputs...)`), each line with where it comes from.

    Raises UserError for a launch that the plan does not have.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    return KernelTexts(sink, cost_model, target).text(number)


class KernelTexts:
    """The texts of several launches of one plan: the scheduler's passes, which all have in common, run once."""

    def __init__(self, sink: UOp, cost_model: CostModel, target: Target | None = None) -> None:
        self.sink, self.cost_model, self.target = sink, cost_model, target
        self.origins = schedule.origins(sink)

    @cached_property
    def _scheduled(self) -> tuple[Schedule, Derivations, list[Event]]:
        return _scheduled(self.sink, self.cost_model)

    def text(self, number: int) -> KernelText:
        """The text of launch `number`. Raises UserError for a launch that the plan does not have."""
        known, target = self.origins, self.target or Target()
        with compiling():
            call = launch(self.sink, self.cost_model, number)
            s, before, _ = self._scheduled
            derived = before.copy()
            with derived.listening(_FIRST):
                pieces = [schedule.kernel_graph(c.graph) for c in s.cuts if c.places == call.places]
                kernel = call.kernel.sink if call.kernel.sink in pieces else pieces[-1]
                bodies = bodies_of(kernel, target)
            text = generate(kernel, target).source.rstrip("\n").split("\n")
            if target.dialect == "c":  # without the functions that all kernels have
                text = text[text.index(_C_FUNCTION) :]
        said = _said(text, bodies, target)
        found = derived.below(
            [u for nodes in said.values() for u in nodes], frozenset(call.places), call.places[: call.outputs]
        )
        passes = _passes(bodies, target)

        def line(n: int, line: str) -> TextLine:
            made = said.get(n, ())
            mine = [found[u] for u in made if u in found]
            nodes = sorted(frozenset().union(*[o.nodes for o in mine]))
            from_ = placed(nodes, known)
            return TextLine(
                number=n + 1,
                text=line,
                ops=tuple(f"{u.op.name} {u.dtype.name}" for u in made),
                rules=tuple(dict.fromkeys(r for o in reversed(mine) for r in o.rules)),
                passes=tuple(dict.fromkeys(passes.get(u, _STATEMENTS) for u in reversed(made))),
                nodes=tuple(nodes),
                lines=lines_of(from_),
                modules=modules_of(from_),
            )

        lines = tuple(line(n, t) for n, t in enumerate(text))
        return KernelText(number, call.kernel.name, label_of(placed(call.places, known)), lines)


def launch(sink: UOp, cost_model: CostModel, number: int) -> schedule.Call:
    """Launch `number` of the plan of `sink`. Raises UserError for one that it does not have.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
    """
    calls = schedule.plan_for(sink, cost_model, {})[0].calls
    if not 0 <= number < len(calls):
        raise UserError(f"there is no kernel {number}: the plan has {len(calls)}, from 0 to {len(calls) - 1}")
    return calls[number]


def _said(text: Sequence[str], bodies: Sequence[Lowering], target: Target) -> dict[int, list[UOp]]:
    """The nodes of each line's statements, by the line's place in the text: bodies stand at its end, in their order."""
    said = {id(b.text): b.said() for b in bodies}
    found: dict[int, list[UOp]] = {}
    at = len(text) - 1  # the bracket that closes the function
    in_c = target.dialect == "c"
    parts, begins = in_c or len(bodies) > 1, "  for (long at = " if in_c else "  if ((at >= "
    texts = [b.text for b in bodies]
    for t in reversed(texts if in_c else in_text(texts)):
        if parts:
            at -= 2 if in_c else 1  # and those of a part
        lines = said[id(t)]
        at -= len(lines)
        found.update(enumerate(lines, at))
        while parts and not text[at].startswith(begins):
            at -= 1
    return found


def _passes(bodies: Iterable[Lowering], target: Target) -> dict[UOp, str]:
    """The pass after which each node is there first.

    Passes run once more for it: a body keeps what they have made, not when.
    """
    made: dict[UOp, str] = {}

    def note(p: Pass[Lowering], state: Lowering) -> None:
        roots = [u for u in p.view(state) if isinstance(u, UOp)]
        for u in toposort(tuple(roots)):
            made.setdefault(u, p.name)

    for body in bodies:
        made.update(dict.fromkeys(toposort(body.kernel), _FIRST))
        run_passes(body.kernel, target, body.opts, until=_LAST, hook=note)
    return made
