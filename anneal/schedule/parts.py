"""A plan in parts: the calls that some of its outputs need, then those that the next ones need as well, and so on.

An exchange of the first gradients goes on while the kernels of the others run. Each part is a plan of its own; what one
part computes and a later one reads is an output of the first and an input of the second.

And a plan in stages, which need less memory one after another than the plan at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anneal.schedule.memory import nbytes, uses
from anneal.schedule.records import Call, Plan, Value
from anneal.schedule.shared import WITH_PLANS
from anneal.uop import Recent


class PlanPart(NamedTuple):
    """A plan over some of a whole plan's values: `inputs` and `outputs` are their numbers in the whole plan."""

    plan: Plan
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


# An exchange in each step asks for the same parts each time.
_made: Recent[tuple[Plan, tuple[tuple[int, ...], ...]], list[PlanPart]] = Recent(32)
WITH_PLANS.append(_made.clear)


def in_parts(plan: Plan, wanted: Sequence[Sequence[int]]) -> list[PlanPart]:
    """The parts of a plan, in order: one for each entry of `wanted`, and a last one with the rest of its calls.

    Args:
        wanted: for each part the positions in `plan.outputs` of the results that are ready after it.
    """
    key = tuple([tuple(w) for w in wanted])
    found = _made[plan, key]
    if found is None:
        found = _made[plan, key] = _split(plan, key)
    return found


class Stage(NamedTuple):
    """The calls `begin` to `end` of a plan: the outputs that they write first, by value, the pieces of memory for
    temporaries that they use first, and those that no later call uses."""

    begin: int
    end: int
    outputs: tuple[int, ...]
    taken: tuple[int, ...]
    left: tuple[int, ...]


_LARGE = 64 << 20  # bytes: launches of less run at once
_STAGE = 1 / 16  # of a launch's memory is left after each stage


def stages(plan: Plan) -> list[Stage]:
    """The stages of a launch that runs once: after each a good part of its memory is needed no more, and what is
    written later may take that. Nothing for a launch that needs little memory, or all of it to the end.

    A training step's activations are gone when the optimiser writes new parameters and moments beside the old ones.
    """
    sizes = {("output", v): nbytes(plan.values[v]) for v in dict.fromkeys(plan.outputs)}
    if sum(sizes.values()) < _LARGE * _STAGE:
        return []
    sizes |= {("temp", n): size * dtype.itemsize for n, (size, dtype) in enumerate(plan.temporaries)}
    whole = sum(sizes.values())
    if whole < _LARGE:
        return []
    piece = dict(plan.memory)
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    for n, c in enumerate(plan.calls):
        for v in c.args:
            what = ("temp", piece[v]) if v in piece else ("output", v)
            if what in sizes:
                first.setdefault(what, n)
                last[what] = n
    leaves = [0] * len(plan.calls)
    for what, n in last.items():
        leaves[n] += sizes[what] if what[0] == "temp" else 0
    ends, left = [], 0
    for n, size in enumerate(leaves[:-1]):
        left += size
        if left >= _STAGE * whole:
            ends.append(n + 1)
            left = 0
    made = []
    for begin, end in zip([0, *ends], [*ends, len(plan.calls)], strict=True):
        new = [what for what, n in first.items() if begin <= n < end]
        gone = tuple([n for (kind, n), at in last.items() if kind == "temp" and begin <= at < end])
        outputs, taken = ([n for kind, n in new if kind == wanted] for wanted in ("output", "temp"))
        made.append(Stage(begin, end, tuple(outputs), tuple(taken), gone))
    return made if ends else []


def _split(plan: Plan, wanted: Sequence[Sequence[int]]) -> list[PlanPart]:
    numbers = _numbers(plan, wanted)
    count = len(wanted) + 1
    parts = [[c for c, n in zip(plan.calls, numbers, strict=True) if n == part] for part in range(count)]
    written = [{v for c in calls for v in c.args[: c.outputs]} for calls in parts]
    touched = [{v for c in calls for v in c.args} for calls in parts]
    results = set(plan.outputs)
    made = []
    for n in range(count):
        later = set[int]().union(*touched[n + 1 :])
        inputs = sorted(touched[n] - written[n])
        outputs = sorted(v for v in written[n] if v in results or v in later)
        made.append(PlanPart(_part(plan, parts[n], inputs, outputs), tuple(inputs), tuple(outputs)))
    return made


def _numbers(plan: Plan, wanted: Sequence[Sequence[int]]) -> list[int]:
    """The part of each call: the first one in which something is wanted that needs the call.

    Calls that write one value together, piece by piece or one over the other's result, stay in one part.
    """
    writers, readers = uses(plan.calls)
    numbers = [len(wanted)] * len(plan.calls)
    for part, outputs in enumerate(wanted):
        stack = [c for n in outputs for c in writers.get(plan.outputs[n], ())]
        while stack:
            c = stack.pop()
            if numbers[c] <= part:
                continue
            numbers[c] = part
            for v in plan.calls[c].args:
                several = writers.get(v, ())
                stack += several
                if len(several) > 1:
                    stack += readers.get(v, ())
    return numbers


def _part(plan: Plan, calls: Sequence[Call], inputs: Sequence[int], outputs: Sequence[int]) -> Plan:
    """The plan of some calls; its values are numbered anew, inputs first."""
    order = list(dict.fromkeys([*inputs, *[v for c in calls for v in c.args]]))
    place = {v: n for n, v in enumerate(order)}
    kinds = {**dict.fromkeys(outputs, "output"), **dict.fromkeys(inputs, "input")}
    values = [Value(plan.values[v].size, plan.values[v].dtype, kinds.get(v, "temp")) for v in order]
    memory = [(v, piece) for v, piece in plan.memory if v in place and v not in kinds]
    pieces = {piece: n for n, piece in enumerate(dict.fromkeys([piece for _, piece in memory]))}
    return Plan(
        tuple(values),
        len(inputs),
        tuple([place[v] for v in outputs]),
        tuple([c._replace(args=tuple([place[v] for v in c.args])) for c in calls]),
        tuple([(place[v], pieces[piece]) for v, piece in memory]),
        tuple([plan.temporaries[piece] for piece in pieces]),
        plan.variables,
    )
