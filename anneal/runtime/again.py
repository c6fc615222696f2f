"""A computation that is run again and again, on other memory and with other values of Variables each time: what it
launched, and the loops between its launches, are noted when it first runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anneal import schedule
from anneal.backend import AnyDevice, Storage, get_device
from anneal.rewrite import over, rebuild
from anneal.runtime.bodies import has_variables, sized
from anneal.runtime.calls import around_host_calls
from anneal.runtime.context import here
from anneal.runtime.execution import launched
from anneal.runtime.launch import Round, Run, rounds_of
from anneal.runtime.nodes import buffer_leaf, memory_of, storage_of
from anneal.runtime.steps import HostCall
from anneal.runtime.turns import called
from anneal.schedule import Origin, Plan
from anneal.uop import GraphFunction, Op, UOp, toposort
from anneal.uop.sizes import bound_sizes, bound_to, widest

Values = Mapping[str, int]  # of Variables


def over_memory(roots: Sequence[UOp], known: dict[UOp, UOp], values: Values) -> list[UOp]:
    """Graphs over other nodes, with the values that Variables have now.

    Args:
        roots: the graphs.
        known: the nodes, by those that they take the place of; what others become is added.
        values: of the Variables.
    """
    return list(sized(roots, bound_to(values), known)) if values else [rebuild(u, over, known) for u in roots]


class _CallAgain:
    """A call that was: what it calls, and the numbers of what it reads."""

    __slots__ = ("_kinds", "_shapes", "_step", "numbers")

    def __init__(self, step: HostCall, numbers: list[int]) -> None:
        self._step, self.numbers = step, numbers
        self._kinds = [(s.size, s.dtype) for s in step.outputs]
        self._shapes = [widest(shape) for shape, _ in step.function.results]

    def again(self, device: AnyDevice, inputs: list[Storage], keep: bool, values: Mapping[str, int]) -> Round:
        """Call once more: as for `Run`."""
        rounds, new = rounds_of(device, self._kinds, self._shapes)
        with device.lock:
            made = rounds.next(device, new) if keep else new()
        now = {name: values[name] for name in self._step.values}
        step = replace(self._step, inputs=inputs, outputs=made.storages, values=now)
        try:
            called(step)
        except BaseException:
            made.done()
            raise
        for observe in here.observers:
            observe(step)
        return made


class _Steps:
    """The launches and the loops of a computation in order, over numbered memory: that of the leaves, and then what
    each of them writes; and what its results are in it."""

    def __init__(self, memory: list[Storage], number: dict[int, int]) -> None:
        self.memory, self._number = memory, number  # while they are made; the number of memory by its id
        self.steps: list[Run | _CallAgain] = []
        self.plans: list[tuple[Plan, Sequence[Origin]]] = []  # with where their nodes come from
        self.results: list[int] = []
        self.complete = True  # whether all that they read has a number

    def computed(self, wanted: list[UOp], device: str, calls: bool) -> list[UOp]:
        """Compute graphs on a device, note the steps, and return the leaves; `calls` tells whether there are loops."""
        made = (
            around_host_calls(wanted, wanted, device, self._launched, self._called, dry=True)
            if calls
            else self._launched(wanted, wanted, device, ())
        )
        self.results = self._numbers(map(memory_of, made))
        self.memory.clear()
        self._number.clear()
        return made

    def _launched(self, uops: Sequence[UOp], lazy: list[UOp], device: str, _: Any) -> list[UOp]:
        kept: list[tuple[Plan, list[Storage]]] = []
        made = launched(uops, lazy, device, (), lambda plan, inputs: kept.append((plan, inputs)))
        leaves = dict(zip(uops, made, strict=True))
        for plan, inputs in kept:
            self.plans.append((plan, schedule.origins(schedule.graph(lazy))))
            self.steps.append(Run(plan, self._numbers(inputs), [widest(u.shape) for u in lazy]))
            self._note([memory_of(leaves[u]) for u in lazy])
        return made

    def _called(self, step: HostCall) -> Values:
        found = called(step)
        for observe in here.observers:
            observe(step)
        self.steps.append(_CallAgain(step, self._numbers(step.inputs)))
        self._note(step.outputs)
        return found

    def _note(self, written: Sequence[Storage]) -> None:
        for s in written:
            self._number[id(s)] = len(self.memory)
            self.memory.append(s)

    def _numbers(self, several: Iterable[Storage]) -> list[int]:
        found = [self._number.get(id(s), -1) for s in several]
        self.complete = self.complete and -1 not in found
        return found

    def again(self, device: str, memory: list[Storage], values: Values) -> list[UOp]:
        """Compute the results once more, of other memory."""
        rounds: list[Round] = []
        leaves: list[Any] = [None] * len(memory)
        try:
            for step in self.steps:
                done = step.again(get_device(device), [memory[n] for n in step.numbers], True, values)
                rounds.append(done)
                memory += done.storages
                leaves += done.leaves
            return [leaves[n] for n in self.results]
        finally:
            for done in rounds:
                done.done()


class Again:
    """A Function that is computed again and again, on other memory, and with other values of Variables, each time: on
    one device, as one launch, or several with loops between them.

    Args:
        device: the name of the device.
        function: the computation.
    """

    def __init__(self, device: str, function: GraphFunction) -> None:
        self.device, self.function = device, function
        there = set(function.parameters)
        # what shows a parameter, or has none below, is not computed
        results = list(enumerate(function.results))
        self._computed = [n for n, u in results if shown(u) not in there and not there.isdisjoint(toposort((u,)))]
        self._shown = [n for n, _ in results if n not in self._computed]
        order = toposort(function.results)
        self._symbolic = has_variables(order)
        self._calls = any(u.op is Op.HOST_CALL for u in order)
        self._steps: dict[Any, _Steps] = {}  # by which of the leaves are one memory

    @property
    def plans(self) -> list[tuple[Plan, Sequence[Origin]]]:
        """The plans that were made, each with where the nodes come from that it computes."""
        return [found for steps in self._steps.values() for found in steps.plans]

    def __call__(self, leaves: Sequence[UOp], values: Values) -> list[UOp]:
        """The nodes of the results, in memory where they are computed; memory of former ones is written anew once
        nobody has them.

        Args:
            leaves: memory, in place of the parameters.
            values: of Variables.
        """
        out = list(self.function.results)
        for numbers, made in (
            (self._shown, self.graphs(leaves, values, self._shown) if self._shown else ()),
            (self._computed, self._run(leaves, values) if self._computed else ()),
        ):
            for n, u in zip(numbers, made, strict=True):
                out[n] = u
        return out

    def graphs(self, leaves: Sequence[UOp], values: Values, numbers: Sequence[int] | None = None) -> list[UOp]:
        """The results, or those with these numbers, as graphs of memory.

        Args:
            leaves: memory, in place of the parameters.
            values: of Variables.
        """
        f = self.function
        roots = f.results if numbers is None else [f.results[n] for n in numbers]
        return over_memory(roots, dict(zip(f.parameters, leaves, strict=True)), values if self._symbolic else {})

    def _run(self, leaves: Sequence[UOp], values: Values) -> list[UOp]:
        memory: list[Any] = list(map(storage_of, leaves))
        first: dict[int, int] = {}
        pattern = tuple([first.setdefault(id(s), n) for n, s in enumerate(memory)])  # two may be one memory
        steps, meter = self._steps.get(pattern), here.meter
        if steps is None or here.watchers or (meter is not None and not all(meter.knows(p) for p, _ in steps.plans)):
            wanted: dict[UOp, None] = {}
            for n, u in enumerate(self.graphs(leaves, values, self._computed)):
                wanted[u if u not in wanted else UOp(Op.CONTIGUOUS, u.dtype, (u,), tag=n)] = None
            steps = _Steps(memory, first)
            made = steps.computed(list(wanted), self.device, self._calls)
            if steps.complete:
                self._steps[pattern] = steps
            return made
        here.context.plans_found += len(steps.plans)
        made = steps.again(self.device, memory, values)
        if not (self._calls or self._symbolic):
            return made
        shapes = [bound_sizes(self.function.results[n].shape, values) for n in self._computed]
        return [u if u.shape == s else buffer_leaf(memory_of(u), s) for u, s in zip(made, shapes, strict=True)]


def shown(u: UOp) -> UOp:
    """The node that a node gives another shape.

    Args:
        u: the node.
    """
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u
