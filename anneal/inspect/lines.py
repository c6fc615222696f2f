"""From a line of a kernel's text to what it computes, the rules that made that and the user's lines; and back.

The kernel is made once more for it, by the passes that always make it, while `derivations.py` listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anneal import schedule
from anneal.codegen import Body, Lowering, Target, WrittenText, bodies_of, generate, in_text, run_passes, writing
from anneal.errors import UserError
from anneal.inspect.derivations import Derivations, FiredRule, Origins
from anneal.inspect.names import Line, label_of, lines_of, modules_of, placed
from anneal.rewrite import Pass
from anneal.uop import UOp, arena, toposort

_FIRST = "range-propagation"  # makes a kernel's graph
_LAST = "vectorise"  # the last pass that makes a graph
_C_FUNCTION = "void kernel(void **memory, long begin, long end) {"
_STATEMENTS = "linearise"  # makes statements of it, and nodes that a statement alone has: a tile's loads ahead of use


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of a kernel's text, by its `number` from 1.

    `ops` are what it computes, innermost first; `rules` those that made these nodes, the last one to fire first, and
    `passes` those that had these nodes first, the last one first;
    `nodes` the numbers of the nodes of the tensor graph that are computed there, with their `lines` and `modules`. The
    arithmetic of an index has those of the access that it is for; declarations and brackets have none.
    """

    number: int
    text: str
    ops: tuple[str, ...]
    rules: tuple[FiredRule, ...]
    passes: tuple[str, ...]
    nodes: tuple[int, ...]
    lines: tuple[Line, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelText:
    """The text of launch `number` of a plan, line by line."""

    number: int
    name: str
    label: str
    lines: tuple[TextLine, ...]

    def of_line(self, file: str, line: int) -> list[TextLine]:
        """The lines of the text that come from line `line` of `file` (a path, or its end)."""
        return [t for t in self.lines if any(x.line == line and x.file.endswith(file) for x in t.lines)]


def kernel_text(sink: UOp, cost_model: schedule.CostModel, number: int, target: Target | None = None) -> KernelText:
    """The WGSL of launch `number` of the plan of `sink` (`SINK(outputs...)`), each line with where it comes from.

    Raises UserError for a launch that the plan does not have.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    return KernelTexts(sink, cost_model, target).text(number)


class KernelTexts:
    """The texts of several launches of one plan: the scheduler's passes, which all have in common, run once."""

    def __init__(self, sink: UOp, cost_model: schedule.CostModel, target: Target | None = None) -> None:
        self._sink, self._cost_model, self._target = sink, cost_model, target or Target()
        self._origins = schedule.origins(sink)
        self._scheduled: tuple[schedule.Schedule, Derivations] | None = None

    def text(self, number: int) -> KernelText:
        """The text of launch `number`. Raises UserError for a launch that the plan does not have."""
        known, target = self._origins, self._target
        with schedule.BUILDING, arena().untracked():
            call = launch(self._sink, self._cost_model, number)
            s, before = self._scheduled or self._schedule()
            self._scheduled = s, before
            derived = before.copy()
            with derived.listening(_FIRST), writing() as written:
                kernel = schedule.kernel_graph(_piece(s, call))
                bodies = bodies_of(kernel, target)
            text = generate(kernel, target).source.rstrip("\n").split("\n")
            if target.dialect == "c":  # without the functions that all kernels have
                text = text[text.index(_C_FUNCTION) :]
        said = {n: [x for x in nodes if x is not None] for n, nodes in _said(text, bodies, written, target).items()}
        found = derived.below(
            [u for nodes in said.values() for u in nodes], frozenset(call.places), call.places[: call.outputs]
        )
        passes = _passes(bodies, target)
        lines = [_line(n, t, said.get(n, ()), found, passes, known) for n, t in enumerate(text)]
        return KernelText(number, call.kernel.name, label_of(placed(call.places, known)), tuple(lines))

    def _schedule(self) -> tuple[schedule.Schedule, Derivations]:
        numbers: dict[UOp, tuple[int, ...]] = {}
        derived = Derivations(numbers)
        with derived.listening():
            s = schedule.run_passes(schedule.parametrise(self._sink)[0], self._cost_model, until="kernel-split")
        numbers.update((u, (at,)) for u, at in s.places.items())
        return s, derived


def launch(sink: UOp, cost_model: schedule.CostModel, number: int) -> schedule.Call:
    """Launch `number` of the plan of `sink`. Raises UserError for one that it does not have.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
    """
    calls = schedule.plan_for(sink, cost_model, {})[0].calls
    if not 0 <= number < len(calls):
        raise UserError(f"there is no kernel {number}: the plan has {len(calls)}, from 0 to {len(calls) - 1}")
    return calls[number]


def _piece(s: schedule.Schedule, call: schedule.Call) -> UOp:
    """The piece of the tensor graph that a call's kernel was made of."""
    pieces = [c.graph for c in s.cuts if c.places == call.places]
    return next((p for p in pieces[:-1] if schedule.kernel_graph(p) is call.kernel.sink), pieces[-1])


def _said(
    text: Sequence[str], bodies: Sequence[Body], written: Iterable[WrittenText], target: Target
) -> dict[int, list[UOp | None]]:
    """The nodes of each line's statements, by the line's place in the text: bodies stand at its end, in their order."""
    said = {id(w.text): w.said for w in written}
    found: dict[int, list[UOp | None]] = {}
    at = len(text) - 1  # the bracket that closes the function
    in_c = target.dialect == "c"
    parts, begins = in_c or len(bodies) > 1, "  for (long at = " if in_c else "  if ((at >= "
    texts = [b.text for b in bodies]
    for t in reversed(texts if in_c else in_text(texts)):
        if parts:
            at -= 2 if in_c else 1  # and those of a part
        lines = said[id(t)]
        at -= len(lines)
        for n, statements in enumerate(lines):
            found[at + n] = [s.node for s in statements]
        while parts and not text[at].startswith(begins):
            at -= 1
    return found


def _passes(bodies: Iterable[Body], target: Target) -> dict[UOp, str]:
    """The pass after which each node is there first.

    Passes run once more for it: a body keeps what they have made, not when.
    """
    made: dict[UOp, str] = {}

    def note(p: Pass[Lowering], state: Lowering) -> None:
        roots = [u for u in p.view(state) if isinstance(u, UOp)]
        for u in toposort(tuple(roots)):
            made.setdefault(u, p.name)

    for body in bodies:
        made.update(dict.fromkeys(toposort((body.kernel,)), _FIRST))
        run_passes(body.kernel, target, body.opts, until=_LAST, hook=note)
    return made


def _line(
    number: int,
    text: str,
    said: Sequence[UOp],
    found: Mapping[UOp, Origins],
    passes: Mapping[UOp, str],
    known: Sequence[schedule.Origin],
) -> TextLine:
    mine = [found[u] for u in said if u in found]
    nodes = sorted(frozenset().union(*[o.nodes for o in mine]))
    from_ = placed(nodes, known)
    return TextLine(
        number=number + 1,
        text=text,
        ops=tuple([f"{u.op.name} {u.dtype.name}" for u in said]),
        rules=tuple(dict.fromkeys([r for o in reversed(mine) for r in o.rules])),
        passes=tuple(dict.fromkeys([passes.get(u, _STATEMENTS) for u in reversed(said)])),
        nodes=tuple(nodes),
        lines=lines_of(from_),
        modules=modules_of(from_),
    )
