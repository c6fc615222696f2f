"""Memory plan: values and calls get numbers, calls their order, and temporaries their memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anneal.errors import ShapeError
from anneal.schedule.inplace import shared_temporaries
from anneal.schedule.memory import arrange
from anneal.schedule.records import Call, Kernel, Plan, Schedule, Value
from anneal.uop import SYMBOLIC, Op, UOp, dtypes
from anneal.uop.sizes import variables_of


def run(s: Schedule) -> Schedule:
    return replace(s, plan=_assemble(s))


def _assemble(s: Schedule) -> Plan:
    values: list[Value] = []
    number: dict[UOp, int] = {}
    params = sorted((u for u in s.order if u.op is Op.PARAM), key=lambda u: int(u.arg[0]))
    count = 1 + max((u.arg[0] for u in params), default=-1)
    sizes = {u.arg[0]: u for u in params}
    for i in range(count):
        u = sizes.get(i)
        values.append(Value(int(u.size), u.dtype, "input") if u is not None else Value(0, dtypes.float32, "input"))
        if u is not None:
            number[u] = i
    wanted = set(s.sink.src)

    def numbered(r: UOp) -> None:
        kind = "output" if r in wanted else "temp"
        if r.op is Op.UPDATE:  # in the memory that it changes
            number[r] = number[r.src[0]]
            if r in wanted:
                values[number[r]] = Value(int(r.size), r.dtype, kind)
            return
        number[r] = len(values)
        values.append(Value(int(r.size), r.dtype, kind))

    for u in s.order:
        if u in s.materialised and not u.size:  # no kernel computes it
            numbered(u)
    second: dict[UOp, int] = {}
    for g in s.groups:
        if g.again:
            for r in g.roots:
                second[r] = len(values)
                values.append(Value(int(r.size), r.dtype, "temp"))
            continue
        for r in g.roots:
            numbered(r)
    calls = []
    for (_, inputs, group, places), kernel in zip(s.cuts, s.kernels, strict=True):
        results = [(second if group.again else number)[r] for r in group.roots]
        args = (*results, *[(second if u in group.second else number)[u] for u in inputs])
        phase = "backward" if group.again else _phase_of(group.roots[-1])
        calls.append(Call(kernel, args, len(results), phase, places))
    if s.cost_model.concurrent:
        calls = shared_temporaries(values, calls)
    ordered, (memory, temporaries) = arrange(values, calls, s.cost_model.concurrent)
    outputs = tuple([number[u] for u in s.sink.src])
    return Plan(tuple(values), count, outputs, tuple(ordered), memory, temporaries, _variables(s.kernels))


def _variables(kernels: Iterable[Kernel]) -> tuple[UOp, ...]:
    """The variables of all kernels, by name. Raises ShapeError for one name with two ranges of values."""
    if not SYMBOLIC.seen:
        return ()
    found: dict[str, UOp] = {}
    for k in dict.fromkeys(kernels):
        for v in variables_of(k.sink):
            if found.setdefault(v.arg[0], v) is not v:
                a, b = (f"{x.arg[1]} to {x.arg[2]}" for x in (found[v.arg[0]], v))
                raise ShapeError(f"two Variables {v.arg[0]} in one program, from {a} and from {b}: give them two names")
    return tuple([found[name] for name in sorted(found)])


def _phase_of(u: UOp) -> str:
    return u.provenance[0]
