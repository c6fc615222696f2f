"""A captured call through which gradients flow: its forward pass is replayed, and so is its backward pass, on its own.

The run that becomes a capture is traced: memory that it read has numbers, and its results, the state that it assigned
and what the backward pass is to read (`transforms/residuals.py`) are one graph over them. A replay runs that graph on
the memory of the call. Nothing is bound and nothing is written in place: each call has results of its own, and as long
as its backward may come, the nodes of what it read. Who changes one of those tensors in place leaves it the old values.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anneal import schedule
from anneal.backend import Storage, get_device
from anneal.errors import JitError, UserError
from anneal.rewrite import applied
from anneal.runtime.bodies import abstracted
from anneal.runtime.capture import Capture, Recorded, Source
from anneal.runtime.context import here
from anneal.runtime.execution import launched, realize
from anneal.runtime.handle import Handle
from anneal.runtime.launch import Run
from anneal.runtime.nodes import buffer_leaf, is_realized, own, storage_of
from anneal.runtime.recording import Recording
from anneal.schedule import Origin, Plan
from anneal.uop import SYMBOLIC, GraphFunction, Op, UOp, toposort
from anneal.uop.sizes import symbolic_arg


class Again:
    """A Function that is computed again and again, on other memory each time: on one device, as one launch.

    Args:
        device: the name of the device.
        function: the computation.
    """

    def __init__(self, device: str, function: GraphFunction) -> None:
        self.device, self.function = device, function
        there = set(function.parameters)
        # what shows a parameter, or has none below, is not computed
        results = list(enumerate(function.results))
        self._computed = [n for n, u in results if _shown(u) not in there and not there.isdisjoint(toposort((u,)))]
        self._shown = [n for n, _ in results if n not in self._computed]
        self._lazy, self._views = (
            GraphFunction(function.name, (), function.parameters, tuple([function.results[n] for n in numbers]))
            for numbers in (self._computed, self._shown)
        )
        self._runs: dict[Any, Run] = {}
        self.plans: list[tuple[Plan, Sequence[Origin]]] = []  # that were made, with where their nodes come from

    def __call__(self, leaves: Sequence[UOp]) -> list[UOp]:
        """The nodes of the results, in memory where they are computed; memory of former ones is written anew once
        nobody has them.

        Args:
            leaves: memory, in place of the parameters.
        """
        out = list(self.function.results)
        for numbers, made in (
            (self._shown, applied(self._views, leaves) if self._shown else ()),
            (self._computed, self._run(leaves) if self._computed else ()),
        ):
            for n, u in zip(numbers, made, strict=True):
                out[n] = u
        return out

    def _run(self, leaves: Sequence[UOp]) -> Sequence[UOp]:
        storages = [storage_of(u) for u in leaves]
        first: dict[int, int] = {}
        pattern = tuple([first.setdefault(id(s), n) for n, s in enumerate(storages)])  # two may be one memory
        run = self._runs.get(pattern)
        if run is None or here.watchers or (here.meter is not None and not here.meter.knows(run.plan)):
            wanted: dict[UOp, None] = {}
            for n, u in enumerate(applied(self._lazy, leaves)):
                wanted[u if u not in wanted else UOp(Op.CONTIGUOUS, u.dtype, (u,), tag=n)] = None
            shapes = [u.shape for u in wanted]

            def keep(plan: Plan, inputs: list[Storage]) -> None:
                if all(id(s) in first for s in inputs):
                    if pattern not in self._runs:
                        self.plans.append((plan, schedule.origins(schedule.graph(list(wanted)))))
                    self._runs[pattern] = Run(plan, [first[id(s)] for s in inputs], shapes)

            return launched(list(wanted), list(wanted), self.device, (), keep)
        here.context.plans_found += 1
        done = run.again(get_device(self.device), [storages[n] for n in run.numbers], True)  # type: ignore[misc]
        found = list(done.leaves)
        done.done()
        return found


def _shown(u: UOp) -> UOp:
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u


@dataclass(slots=True, eq=False)
class Traced:
    """A run as a Function of the memory that it read: its results are the lazy results of the run, by the ids of the
    tensors, and then the `state` that it assigned; and what knows its backward pass, with the numbers of the results
    that gradients flow through."""

    leaves: list[UOp]
    function: GraphFunction
    results: list[int]
    state: list[Handle]
    flowing: list[int]
    backward: Any


def trace(
    name: str,
    record: Recording,
    results: Sequence[tuple[Handle, UOp]],
    again: Sequence[Handle],
    given: Sequence[Storage],
) -> Traced | str:
    """The run that is recorded, whose results have these nodes and are not computed yet; or a reason why it is not
    captured.

    Args:
        name: the function's, for messages.
        record: what is known of the run.
        again: results that were there before.
        given: the memory of the arguments.
    """
    before = {id(t) for t in again}
    lazy = {id(t): u for t, u in results if id(t) not in before and not is_realized(u)}
    passing = {id(t) for t, _ in results} - before
    state = [t for t in {id(t): t for t in record.pending()}.values() if id(t) not in passing]
    devices = {t._device for t in (*state, *[t for t, _ in results])}
    if record.steps:
        return "it computes on its way"
    if any(t._is_part() or is_realized(t.uop) for t in state):
        return "it assigns to a view, or assigns a tensor as it is"
    theirs = [storage_of(u) for t, u in results if id(t) not in lazy and (id(t) not in before or t._wants)]
    if any(t._wants and id(t) not in lazy for t, _ in results) or any(s not in given for s in theirs):
        return "it gives a tensor that others see"
    roots = [t._base.root for t, _ in results if t._is_part() and t._base is not None]
    if any(id(t) not in passing and (is_realized(t.uop) or any(t is s for s in state)) for t in roots):
        return "it gives a view of a tensor that others see"
    order = toposort([*lazy.values(), *[t.uop for t in state]])
    wanting = {_shown(n) for t in here.context.tensors.live_leaves() for n in (t.uop, t._alias) if n is not None}
    if SYMBOLIC.seen and any(symbolic_arg(u.shape) for u in order):
        return "it takes a Variable"
    if any(u.op is Op.HOST_CALL for u in order):
        return "it calls the host, or has a loop"
    if any(u.op is not Op.BUFFER and u in wanting for u in order):
        return "it reads a leaf that is not computed yet"
    leaves = [u for u in order if u.op is Op.BUFFER and u.arg.derivative is None]
    if len({*devices, *[u.arg.device for u in leaves]}) > 1:
        return "it works on several devices"
    function = abstracted(name, leaves, [*lazy.values(), *[t.uop for t in state]])
    flowing = [n for n, i in enumerate(lazy) if any(t._wants and id(t) == i for t, _ in results)]
    inputs = [n for n, u in enumerate(leaves) if u in wanting or u.arg.made_by is not None]
    kind: Any = type(results[0][0])
    assigned_before = len(record.assigned)
    try:
        backward = kind._captured_backward(devices.pop(), function, flowing, inputs)
    except (JitError, UserError) as e:  # of a function of the user's, whose backward does what cannot be captured
        return f"its backward cannot be captured ({e})"
    if len(record.assigned) > assigned_before:
        return "its backward assigns to a tensor"
    return Traced(leaves, function, list(lazy), state, flowing, backward)


class Flowing(Capture):
    """A captured call through which gradients flow: see the module's docstring."""

    def __init__(self, run: Recorded, traced: Traced) -> None:
        self._watch_over(run)
        given = {id(s): n for n, s in enumerate(run.arguments)}
        run.recording.refuse_frozen([u.arg for u in traced.leaves if id(u.arg) not in given])
        self._leaves = [self._leaf(u, given) for u in traced.leaves]
        self._seen = [r for kind, r in self._leaves if kind == "read"]
        self._state = [weakref.ref(t) for t in traced.state]
        self.wanting = [(r, t._wants) for r in (*self._seen, *self._state) if (t := r()) is not None]
        self._backward = traced.backward
        self.planned: list[Plan] = []  # those that run are shown as they run
        f = traced.function
        roots = (*f.results, *self._backward.residuals)
        self._forward = Again(run.device.name, GraphFunction(f.name, f.arguments, f.parameters, roots))
        number = {n: i for i, n in enumerate(traced.results)}
        self._flowing = traced.flowing
        self._kinds = {number[id(r)]: type(r) for r in run.results if id(r) in number}
        self._hand_out(run, lambda r: self._source_of(r, number, given, any(r is t for t in run.state)))
        self.spent = []

    def _source_of(self, r: Handle, number: dict[int, int], given: dict[int, int], state: bool) -> Source:
        """The source of a replay's result, given what is computed and the memory of the arguments."""
        if state:
            return lambda there: r
        if (n := number.get(id(r))) is not None:
            return lambda there: there[n]
        place, shape, kind, device = len(number) + given[id(storage_of(r.uop))], r.uop.shape, type(r), self.device.name
        return lambda there: kind._from_uop(buffer_leaf(there[place], shape), device)

    def _leaf(self, u: UOp, given: dict[int, int]) -> tuple[str, Any]:
        """The place where a replay finds memory that a run read: among the arguments, in a tensor, or there itself."""
        if id(u.arg) in given:
            return "given", given[id(u.arg)]
        owner = None if u.arg.owner is None else u.arg.owner()
        return ("own", u) if owner is None else ("read", weakref.ref(owner))

    def outdated(self) -> bool:
        """True if something that the capture depends on is another now."""
        return any([r() is None for r in self._seen]) or super().outdated()  # noqa: C419  # a generator takes longer

    def plans(self) -> list[tuple[Plan, Sequence[Origin]]]:
        """The plans that replays run, forward and backward."""
        return [found for again in (self._forward, *self._backward.known()) for found in again.plans]

    def said(self) -> str:
        """The capture in words."""
        count = sum([len(plan.calls) for plan, _ in self._forward.plans])
        kept = sum([u.size * u.dtype.itemsize for u in self._backward.residuals])
        several = "" if count == 1 else "s"
        return f"captured with its backward, {count} kernel{several}, {kept} bytes kept for the backward"

    def laid_out(self) -> Any:
        """Raises JitError: what it launches is bound to no memory."""
        raise JitError("a call cannot be taken as a fixed list of kernels: gradients flow through its results")

    def close(self) -> None:
        """Let go of what the capture holds: calls whose backward is to come have what that needs."""

    def replay(self, arguments: Sequence[Handle]) -> Any:
        """The results for `arguments`, one tensor for each memory: asks for BUILDING."""
        here.effects += 1
        state = [r() for r in self._state]
        lazy = [t for t in (*[r() for r in self._seen], *state) if t is not None and not is_realized(t.uop)]
        if lazy:
            realize(lazy)
        leaves = []
        for kind, what in self._leaves:
            u = what if kind == "own" else _shown((arguments[what] if kind == "given" else what()).uop)
            leaves.append(u)
        made = self._forward(leaves)
        count, first = len(self._kinds), len(self._kinds) + len(state)
        for t, u in zip(state, made[count:first], strict=True):
            if t is not None:
                t._settle(u)
                t._alias = None
                own(t)
                if t._views is not None:
                    t._outdate_views()
        tensors: list[Any] = [self._kinds[n]._from_uop(made[n], self.device.name) for n in range(count)]
        origins = self._backward.begin(leaves, made[first:])
        for n, origin in zip(self._flowing, origins, strict=True):
            t, storage = tensors[n], storage_of(made[n])
            t._wants, t._leaf = True, False
            if storage is None:
                t.uop = origin
            else:
                storage.origin = origin
        return self.results([*tensors, *[storage_of(t.uop) for t in arguments]])
