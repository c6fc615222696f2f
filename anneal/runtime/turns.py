"""Loops and choices on a device: their computations are planned and compiled once, and replayed turn by turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import Any, Self

import numpy as np

from anneal import schedule
from anneal.backend import AnyDevice, OpaqueBuffer, Storage, get_device
from anneal.errors import CompilerError, ShapeError
from anneal.rewrite import applied, over, rebuild
from anneal.runtime.bodies import Choice, DeviceCall, Loop
from anneal.runtime.calls import around_host_calls, call_host, exchange_over
from anneal.runtime.context import here
from anneal.runtime.launch import Holding, buffers_in, buffers_of, compiled, new_outputs
from anneal.runtime.nodes import buffer_leaf, is_realized, memory_of, storage_of
from anneal.runtime.steps import Buffers, HostCall, Launch, Storages
from anneal.uop import Known, Nodes, Op, Recent, Src, UOp, dtypes, toposort
from anneal.uop.sizes import Size, Sizes, Values, evaluator, most

_KEPT = 64  # bound calls of one loop: rounds take turns, and layers of one size are one loop
_ROUNDED = 4096  # turns up to which lengths share kernels, which find slices in arrays of the next power of two
_TOGETHER = 256  # calls of kernels that are bound, and submitted, together: several turns

_Work = Any  # a program with its buffers, or a call that is bound


class _Steps:
    """Graphs over memory as steps that compute them: planned and compiled, not bound.

    Args:
        roots: what is computed.
        rows: memory into which a root that is an update of it is written.
        carried: of roots the memory into which each is written, if it is an update of that and nobody reads it later.
    """

    torn = False  # whether a step reads memory that a step before it has written into

    def __init__(
        self, roots: Nodes, device: AnyDevice, rows: Storages = (), carried: Mapping[UOp, Storage] | None = None
    ) -> None:
        self.device = device
        self._carried = carried or {}
        self._written: set[int] = set()
        self.steps: list[tuple[Launch | HostCall, Any]] = []  # each with its programs, or what binds the call
        self._rows = set(map(id, rows))
        wanted = []
        for n, u in enumerate(roots):
            # each has memory of its own
            wanted.append(u.then(Op.CONTIGUOUS, tag=("root", n)) if u in wanted or is_realized(u) else u)
        made = around_host_calls(wanted, wanted, device.name, self._launched, self._called, dry=True)
        self.results = list(map(memory_of, made))

    def _launched(self, uops: Nodes, lazy: Nodes, device_name: str, between: Any) -> list[UOp]:
        done = {}
        if lazy:
            device = self.device
            # what is carried has two buffers, so that nothing but rows is overwritten
            cost_model = replace(device.cost_model, keeps_inputs=True)
            plan, inputs, hit = schedule.plan_for(schedule.graph(lazy), cost_model, Values())
            here.context.plans_found += hit
            here.context.plans_made += not hit
            below = {n: storage_of(_chain(u)[-1]) for n, u in enumerate(lazy) if u.op is Op.UPDATE}
            rows = self._rows
            over = {n: s for n, s in below.items() if s and (id(s) in rows or self._carried.get(lazy[n]) is s)}
            self._read(inputs)
            outputs = new_outputs(plan, device)
            if over:
                pairs = {plan.outputs[n]: inputs.index(s) for n, s in over.items()}
                plan, accepted = schedule.donate(plan, pairs, device.cost_model.concurrent)
                over = {n: s for n, s in over.items() if plan.outputs[n] in accepted or id(s) in rows}
                if len(accepted) < len(over):
                    raise CompilerError("a loop's rows are not written in place")
                self._written.update(map(id, over.values()))
            outputs = [over.get(n, s) for n, s in enumerate(outputs)]
            self.steps.append((Launch(plan, inputs, outputs), compiled(plan, device)))
            done = {u: buffer_leaf(s, u.shape) for u, s in zip(lazy, outputs, strict=True)}
        return [done.get(u, u) for u in uops]

    def _read(self, storages: Storages) -> None:
        self.torn |= not self._written.isdisjoint(map(id, storages))

    def _called(self, call: HostCall) -> Sizes:
        self._read(call.inputs)
        if call.function.sizes:
            raise ShapeError(f"{call.function.title}: finds a size, which it cannot do in the body of a loop")
        self.steps.append((call, planned_call(call, self.device)))
        return {}

    def hurry(self) -> None:
        """Compile the kernels for many runs."""
        for n, (step, made) in enumerate(self.steps):
            if isinstance(step, Launch):
                self.steps[n] = step, compiled(step.plan, self.device, often=True)
            else:
                made.hurry()

    def bound(self, where: dict[int, Any], own: list[OpaqueBuffer], values: Sizes) -> Iterator[_Work]:
        """The calls of kernels, and other work, with the buffers of memory in `where`, by the storage's id; it is given
        those that are made, which are added to `own`."""
        device = self.device

        def buffer(s: Storage) -> OpaqueBuffer:
            found = where.get(id(s))
            if found is None and (s.buffer is not None or s.host is not None):
                found = s.ensure()
            if found is None:
                found = where[id(s)] = device.alloc(s.size, s.dtype)
                own.append(found)
            return found

        for step, made in self.steps:
            if isinstance(step, HostCall):
                yield made.onto(list(map(buffer, step.inputs)), list(map(buffer, step.outputs)), values)
                continue
            plan = step.plan
            scratch = where.get(id(plan))
            if scratch is None:
                scratch = where[id(plan)] = []
                device.alloc_all(plan.temporaries, scratch)
                own += scratch
            buffers = buffers_in(plan, [*map(buffer, (*step.inputs, *step.outputs)), *scratch])
            for c, program in zip(plan.calls, made, strict=True):
                yield program, [buffers[v] for v in c.args]


class _Part:
    """Work in order, with calls of kernels that follow each other bound together."""

    def __init__(self, items: Sequence[_Work], device: AnyDevice, values: Sizes) -> None:
        self._values = values
        self._work: list[Any] = []
        self._others: list[Any] = []  # that are in other parts, too
        for are_kernels, some in groupby(items, key=lambda i: isinstance(i, tuple)):
            together = list(some)
            self._work += [device.prepare(together, values)] if are_kernels else together
            self._others += [] if are_kernels else together

    def run(self, values: Sizes) -> None:
        """Do it, with these values of Variables."""
        for x in self._others if values == self._values else self._work:
            x.give(values)
        self._values = values
        for x in self._work:
            x.run()


def _chain(u: UOp) -> list[UOp]:
    """The node, and those that it is made of by movements within memory and updates of parts, down to the memory."""
    out = [u]
    while u.op in (Op.UPDATE, Op.RESHAPE, Op.DETACH) or (u.op is Op.CALL and not u.arg[0].results):
        u = u.src[u.arg[1] if u.op is Op.CALL else 0]
        out.append(u)
    return out


def _as_updates(results: Nodes, leaves: Nodes) -> list[UOp]:
    """The results of a turn, where what is carried is an update if that is all that is made of it. What parts are made
    of is read before memory is written into.

    Args:
        leaves: what is carried, in the order of the first results.
    """
    memory = {r: m for r, leaf in zip(results, leaves) if r is not leaf and _chain(r)[-1] is (m := _chain(leaf)[-1])}
    updates = {u for r in memory for u in _chain(r) if u.op is Op.UPDATE}
    parts = {u for u in updates if not {*memory.values()}.isdisjoint(toposort(u.src[1:2]))}

    def visit(u: UOp, src: Src) -> UOp:
        return over(u, (src[0], src[1].then(Op.CONTIGUOUS), *src[2:]) if u in parts else src)

    known: Known = {}
    made = [rebuild(r, visit, known) for r in results] if memory else list(results)
    for n, r in enumerate(results[: len(leaves)]):
        if r in memory:
            made[n] = next((u for u in _chain(made[n]) if u.op is Op.UPDATE), made[n])
    return made


def _placeholders(parameters: Nodes, device: AnyDevice) -> tuple[list[UOp], list[Storage]]:
    """Leaves in the place of parameters, and the storages that stand for their memory."""
    storages = [Storage(int(u.size), u.dtype, device.name) for u in parameters]
    return [buffer_leaf(s, u.shape) for s, u in zip(storages, parameters, strict=True)], storages


def _places(*several: tuple[Storages, Buffers]) -> dict[int, Any]:
    """The buffers of memory, by the storages' ids."""
    return {id(s): b for storages, buffers in several for s, b in zip(storages, buffers, strict=True)}


class BoundCall(Holding):
    """A call that is planned and compiled, and then bound to buffers; memory of its own is given back with `close`.

    Planning takes BUILDING, which nobody asks for who has the device's lock; so it comes first, inner calls' too.
    """

    inputs: Buffers
    outputs: Buffers
    _ready = False
    _length: Size = 0  # of a loop
    _several: Sequence[_Steps] = ()  # what it does
    _within: Sequence[BoundCall] = ()  # the calls in that

    def __init__(self, device: AnyDevice) -> None:
        super().__init__(device)
        self.values: Sizes = {}  # of the call's Variables
        self._left = [math.inf]  # turns until it has run often; those that are bound have it, too
        self._kept: dict[Any, BoundCall] = {}  # by the length, and the ids of the buffers

    def _count(self, *several: _Steps) -> None:
        """Begin to count the turns of these steps."""
        self._several = several
        made = [row for steps in several for row in steps.steps]
        self._within = [call for step, call in made if isinstance(step, HostCall)]
        programs = [p for step, found in made if isinstance(step, Launch) for p in found]
        self._left = [self.device.runs_before_often(programs) or math.inf]

    def turns_left(self) -> float:
        """The turns until it, or a call within it, has run often; infinity where nothing is compiled for that."""
        return min([self._left[0], *[call.turns_left() for call in self._within]])

    def hurry(self) -> None:
        """Compile the kernels for many runs, and let go of what is bound to others."""
        self._left[0] = math.inf
        for steps in self._several:
            steps.hurry()
        with self.device.lock:
            for call in self._kept.values():
                call.close()
            self._kept.clear()

    def onto(self, inputs: Buffers, outputs: Buffers, values: Sizes) -> Self:
        """The same call bound to these buffers, with these values of its Variables."""
        new = copy(self)
        new.inputs, new.outputs, new.own, new._kept = inputs, outputs, [], {}
        new.values = {**self.values, **values}
        new._forget()
        return new

    def give(self, values: Sizes) -> None:
        """Run with these values of the Variables from the next time on."""
        self.values = {name: values.get(name, old) for name, old in self.values.items()}

    def kept_onto(self, inputs: Storages, outputs: Storages, values: Sizes) -> BoundCall:
        """The call bound to this memory, and kept: without jit a loop's memory takes turns, too."""
        if self.turns_left() <= 0:
            self.hurry()
        given, taken = buffers_of(inputs), buffers_of(outputs)
        key = self._length, *map(id, (*given, *taken))
        with self.device.lock:
            found = self._kept.get(key)
            if found and found.nbytes:
                found.give(values)
                return found
            new = self.onto(given, taken, values)
            new.nbytes = sum([s.size * s.dtype.itemsize for s in (*inputs, *outputs)]) + 1
            for k in [k for k, b in self._kept.items() if not b.nbytes] or [*self._kept][: 1 - _KEPT]:
                del self._kept[k]
            self._kept[key] = new
            self.device.keep_idle(new)
            return new

    def run(self) -> None:
        with self.device.lock:
            self.running = True
            try:
                if not self._ready:
                    self._prepare()
                    self._ready = True
                self._run()
            finally:
                self.running = False

    def close(self) -> None:
        """Give the memory back that it made; the buffers that it is bound to go with their last user."""
        self._ready = False
        self._forget()
        super().close()

    def _prepare(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """Let go of what is bound to buffers."""

    def _whole(self, steps: _Steps, where: dict[int, Any]) -> _Part:
        """All work of some steps, bound as one batch."""
        return _Part(list(steps.bound(where, self.own, self.values)), self.device, self.values)


def _steps(roots: Nodes, device: AnyDevice, rows: Storages, carried: Storages) -> _Steps:
    """The steps of a turn, in which what is carried is written in place where no step reads it after that, and where
    the same memory is to have it in the next turn: what is carried may change places."""
    own: dict[UOp, Storage] = {}
    for root, s in zip(roots[1:], carried):
        own.setdefault(root, s)
    made = _Steps(roots, device, rows, own)
    return _Steps(roots, device, rows) if made.torn else made


class _BoundLoop(BoundCall):
    """The turn's number lives on the device, slices are read and rows written at it, and what is carried has two
    buffers, of which a turn reads one and writes the other: turns are the same calls each time, so many of them are
    bound, and submitted, together.

    An odd number of turns begins in the other buffer, so that every loop ends in the buffers of its results; turns are
    made from the last ones back, by numbers of them that are bound together, and are the same whatever the number of
    all is. Where that is unknown, the host reads before each turn whether there is one.
    """

    def __init__(self, loop: Loop, device: AnyDevice) -> None:
        super().__init__(device)
        self.loop, self._length, self.count = loop, loop.length, Storage(1, dtypes.int32, device.name)
        at, room, n = buffer_leaf(self.count, ()), most(loop.length), loop.carried
        constants, carried, slices = loop.parts(loop.body.parameters[1:])
        leaves, self.sources = _placeholders((*constants, *carried), device)
        for p in slices:
            whole = Storage(int(p.size) * room, p.dtype, device.name)
            self.sources.append(whole)
            leaves.append(_slice(buffer_leaf(whole, (room, *p.shape)), at))
        made = applied(loop.body, [at, *leaves])
        self.condition = _Steps(made[n:], device) if loop.tests else None
        results = _as_updates(made[:n] if loop.tests else made, loop.parts(leaves)[1])
        self.rows = [Storage(int(r.size) * room, r.dtype, device.name) for r in results[n:]]
        roots = [at + (-1 if loop.reverse else 1), *results[:n]]
        for r, s in zip(results[n:], self.rows, strict=True):
            if not s.size:  # there is nothing to write
                continue
            leaf = buffer_leaf(s, (room, *r.shape))
            begins = (None, *[0] * len(r.shape))
            row = r.then(Op.RESHAPE, (1, *r.shape))
            roots.append(UOp(Op.UPDATE, r.dtype, (leaf, row, at), begins))
        self.carried = loop.parts(self.sources)[1]
        self.steps = _steps(roots, device, self.rows, self.carried)
        self._count(self.steps, *filter(None, [self.condition]))

    def _forget(self) -> None:
        self.parts: dict[tuple[int, int], _Part] = {}  # by the number of turns, and the buffers of the first
        self.turns: list[list[_Work]] = [[], []]
        self.tests: list[_Part] = []

    def _prepare(self) -> None:
        n, new = self.loop.carried, list[OpaqueBuffer]()
        kept = [made is s for s, made in zip(self.carried, self.steps.results[1:])]  # what a turn writes in place
        others = [s for s, same in zip(self.carried, kept) if not same]
        self.device.alloc_all([(s.size, s.dtype) for s in (self.count, self.count, *others)], new)
        self.own += new
        first, second, *rest = new
        ends, free = self.outputs[:n], iter(rest)
        # of the number and of what is carried: those of the results, and others
        self.pairs = [
            [first, *ends],
            [second, *[e if same else next(free) for e, same in zip(ends, kept, strict=True)]],
        ]
        self.where = _places((self.sources, self.inputs), (self.rows, self.outputs[n:]))
        if self.condition:
            for odd in (0, 1):
                self._place(odd)
                self.tests.append(self._whole(self.condition, self.where))
            self.goes_on = self.where[id(self.condition.results[0])]

    def _place(self, odd: int) -> None:
        """Have a turn read the first of the two buffers and write what it computes to the second, or back."""
        before, after = (self.count, *self.carried), self.steps.results[: 1 + len(self.carried)]
        self.where |= _places((before, self.pairs[odd]), (after, self.pairs[1 - odd]))

    def _turn(self, odd: int) -> list[_Work]:
        """The work of a turn from the first of the two buffers to the second, or back."""
        if not self.turns[odd]:
            self._place(odd)
            self.turns[odd] = list(self.steps.bound(self.where, self.own, self.values))
        return self.turns[odd]

    def _part(self, count: int, odd: int) -> _Part:
        """The given number of turns, bound as one batch."""
        found = self.parts.get((count, odd))
        if found is None:
            work = [x for n in range(count) for x in self._turn((odd + n) % 2)]
            found = self.parts[count, odd] = _Part(work, self.device, self.values)
        return found

    def _run(self) -> None:
        (length,) = evaluator((self._length,))(self.values)
        odd = length % 2
        start = np.full(1, length - 1 if self.loop.reverse else 0, np.int32)
        self.device.upload(self.pairs[odd][0], start)
        self._copy(self.loop.parts(self.inputs)[1], self.pairs[odd][1:])
        if self.tests:
            self._run_while()
        elif length > 0:
            together = 2 * max(1, _TOGETHER // (2 * max(1, len(self._turn(odd)))))
            times, rest = divmod(length, together)
            if rest:
                self._part(rest, odd).run(self.values)
            for _ in range(times):
                self._part(together, 0).run(self.values)
            self._left[0] -= length

    def _run_while(self) -> None:
        odd = 0
        while True:
            self.tests[odd].run(self.values)
            if not self.device.download(self.goes_on, 1, dtypes.bool_).item():
                break
            self._part(1, odd).run(self.values)
            self._left[0] -= 1
            odd = 1 - odd
        if odd:
            self._copy(self.pairs[1][1:], self.outputs)

    def _copy(self, sources: Buffers, to: Buffers) -> None:
        """Copy the carried values from some buffers to others."""
        for source, target, s in zip(sources, to, self.carried, strict=True):
            self.device.copy(source, target, s.size, s.dtype)


def _slice(whole: UOp, at: UOp) -> UOp:
    """The slice of an array along its first axis at a number on the device."""
    shape = (1, *whole.shape[1:])
    index = at.then(Op.RESHAPE, (1,) * len(shape)).then(Op.EXPAND, shape)
    return UOp(Op.GATHER, whole.dtype, (whole, index), 0).then(Op.RESHAPE, shape[1:])


class _BoundChoice(BoundCall):
    """The condition is read by the host, and one of the two ways taken."""

    def __init__(self, call: Choice, device: AnyDevice) -> None:
        super().__init__(device)
        leaves, self.sources = _placeholders(call.body.parameters, device)
        results, n = applied(call.body, leaves), len(call.results)
        self.steps = [_Steps(way, device) for way in (results[:n], results[n:])]
        self._count(*self.steps)

    def _forget(self) -> None:
        self.ways: list[_Part] = []

    def _prepare(self) -> None:
        for steps in self.steps:
            where = _places((self.sources, self.inputs[1:]), (steps.results, self.outputs))
            self.ways.append(self._whole(steps, where))

    def _run(self) -> None:
        first = self.device.download(self.inputs[0], 1, dtypes.bool_).item()
        self.ways[0 if first else 1].run(self.values)
        self._left[0] -= 1


class _BoundHostCall(BoundCall):
    """A call of the host, which runs with no lock held; `tell` is given the values of Variables that it finds."""

    tell: Callable[[dict[str, int]], None] | None = None

    def __init__(self, step: HostCall, device: AnyDevice) -> None:
        super().__init__(device)
        self._kinds = [(shape, s.dtype) for shape, s in zip(step.shapes, step.inputs, strict=True)]
        self._function, self.values = step.function, step.values

    def run(self) -> None:
        given = self._function, self._kinds, self.device, self.inputs, self.outputs
        if not self._ready:
            self._over, self._ready = exchange_over(*given), True
        if self._over:
            self._over()
        elif (found := call_host(*given, self.values)) and self.tell:
            self.tell(found)


# loops and choices that are planned and compiled, and bound to no buffers, by function and device
_plans: Recent[tuple[Any, AnyDevice], BoundCall] = Recent(64)
schedule.WITH_PLANS.append(_plans.clear)


def planned_call(step: HostCall, device: AnyDevice) -> BoundCall:
    """A call to be bound. A loop, or a choice, is planned once, whatever the values of its Variables are.

    Args:
        step: the call.
    """
    function = step.function
    if not isinstance(function, DeviceCall):
        return _BoundHostCall(step, device)
    general = function
    length = function.length if isinstance(function, Loop) and not function.tests else None
    if isinstance(function, Loop) and isinstance(length, int) and length <= _ROUNDED:
        room, n = 1 << (length - 1).bit_length(), function.carried
        rows = [((room, *shape[1:]), dtype) for shape, dtype in function.results[n:]]
        general = replace(function, length=room, results=(*function.results[:n], *rows))
    key = general.free, device
    found = _plans[key]
    if found is None:
        kind: Any = _BoundLoop if isinstance(function, Loop) else _BoundChoice
        found = _plans[key] = kind(general, device)
    if general is not function:
        found = copy(found)
        found._length = length
    return found


def bound(step: HostCall, device: AnyDevice, values: Sizes, tell: Callable[[dict[str, int]], None]) -> BoundCall:
    """A call bound to its memory for many runs, with these values of its Variables: `run()` makes the call, and reports
    the values that it finds.

    Args:
        step: a loop, a choice, or a call of the host.
    """
    planned = planned_call(step, device)
    if planned.turns_left() < math.inf:
        planned.hurry()
    made = planned.onto(buffers_of(step.inputs), buffers_of(step.outputs), step.values)
    made.give(values)
    if isinstance(made, _BoundHostCall):
        made.tell = tell
    return made


def called(step: HostCall) -> Sizes:
    """Make a call now; the values of Variables that it found."""
    device = get_device((step.outputs or step.inputs)[0].device)
    if isinstance(step.function, DeviceCall):
        planned = planned_call(step, device)
        with device.lock:
            planned.kept_onto(step.inputs, step.outputs, step.values).run()
        return {}
    found: dict[str, int] = {}
    bound(step, device, step.values, found.update).run()
    return found
