"""Plans on disk: a process that meets a program again neither schedules it nor builds its kernel graphs.

A plan's key is the program's structure, the target's cost model and the compiler's code, for it depends on nothing
else. A kernel's graph is kept as text of its own and read only if it is needed: a device that finds its code on
disk too never does.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from anneal import cache, settings
from anneal.errors import AnnealError, CompilerError
from anneal.schedule.fusion import CostModel
from anneal.schedule.records import Call, Kernel, Plan, Value
from anneal.uop import UOp, arena, by_name, decode_graph, encode_graph
from anneal.uop.sizes import variable

_WORTH = 0.005  # seconds of scheduling below which a plan is not worth a file


def recall(program: UOp, cost_model: CostModel) -> Plan | None:
    """The plan of a parametrised program, if a process before this one kept it."""
    if settings.current().debug >= 5 or not cache.enabled():  # 5: the passes are to be seen
        return None
    return cache.load("plans", cache.disk_key(program.key, cost_model), decode_plan)


def keep(program: UOp, cost_model: CostModel, plan: Plan, seconds: float) -> None:
    """Save a plan that took `seconds` to make."""
    if seconds >= _WORTH and cache.enabled():
        distinct = len(plan.kernels)
        label = f"{len(plan.calls)} kernels, {distinct} distinct: {', '.join(k.name for k in plan.kernels[:3])}"
        key = cache.disk_key(program.key, cost_model)
        cache.save("plans", key, encode_plan(plan), label + (", ..." if distinct > 3 else ""))


def encode_plan(plan: Plan) -> dict[str, Any]:
    """`plan` as what JSON can say."""
    number = {k: n for n, k in enumerate(plan.kernels)}
    return {
        "values": [[v.size, v.dtype.name, v.kind] for v in plan.values],
        "inputs": plan.inputs,
        "outputs": plan.outputs,
        "calls": [[number[c.kernel], c.args, c.outputs, c.phase, c.places] for c in plan.calls],
        "memory": plan.memory,
        "temporaries": [[size, dtype.name] for size, dtype in plan.temporaries],
        "variables": [v.arg for v in plan.variables],
        "kernels": [[k.name, k.key.hex(), json.dumps(encode_graph(k.sink))] for k in number],
    }


def decode_plan(data: dict[str, Any]) -> Plan:
    """The plan that `encode_plan` wrote down; an exception if this is none: numbers of nothing, memory that is too
    small.
    """
    kernels = [
        Kernel(partial(_graph, rows, key), name, key)
        for name, key, rows in [(str(name), bytes.fromhex(key), str(rows)) for name, key, rows in data["kernels"]]
    ]
    values = tuple([Value(_number(size), by_name(dtype), _KINDS[kind]) for size, dtype, kind in data["values"]])
    temporaries = tuple([(_number(size), by_name(dtype)) for size, dtype in data["temporaries"]])
    count = len(values)
    memory = tuple([(_number(value, count), _number(place, len(temporaries))) for value, place in data["memory"]])
    for value, place in memory:
        size, dtype = temporaries[place]
        if values[value].size * values[value].dtype.itemsize > size * dtype.itemsize:
            raise ValueError("a value that its place cannot hold")
    calls = [
        Call(
            kernels[_number(k, len(kernels))],
            tuple([_number(v, count) for v in args]),
            _number(outputs, len(args) + 1),
            phase,
            tuple([_number(at) for at in places]),
        )
        for k, args, outputs, phase, places in data["calls"]
    ]
    return Plan(
        values,
        _number(data["inputs"], count + 1),
        tuple([_number(v, count) for v in data["outputs"]]),
        tuple(calls),
        memory,
        temporaries,
        tuple([variable(*arg) for arg in data["variables"]]),
    )


_KINDS = {kind: kind for kind in ("input", "output", "temp")}


def _number(n: Any, end: int = 1 << 62) -> int:
    """`n`, if it is a number from 0 up to before `end`."""
    if type(n) is not int or not 0 <= n < end:
        raise ValueError(f"{n!r} is no number below {end}")
    return n


def _graph(rows: str, key: bytes) -> UOp:
    try:
        with arena().untracked():
            found = decode_graph(json.loads(rows))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, AnnealError) as e:
        raise _forged() from e
    if found.key != key:
        raise _forged()
    return found


def _forged() -> CompilerError:
    return CompilerError("a kernel in the cache differs from its entry; empty the cache: anneal cache prune --all")
