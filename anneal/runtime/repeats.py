"""Steps that are taken again, on other memory: the launches and the loops of a computation, noted when it first ran."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anneal import schedule
from anneal.backend import AnyDevice, Storage, get_device
from anneal.runtime.calls import around_host_calls
from anneal.runtime.context import here
from anneal.runtime.launch import Round, Run, rounds_of
from anneal.runtime.nodes import memory_of
from anneal.runtime.steps import HostCall
from anneal.runtime.turns import BoundCall, called, planned_call
from anneal.schedule import Origin, Plan
from anneal.uop import UOp
from anneal.uop.sizes import widest

_KEPT = 4  # bound calls of one round: what a loop reads takes turns, too


class _CallAgain:
    """A loop, or a choice, that was: what it is, and the numbers of what it reads."""

    __slots__ = ("_device", "_kinds", "_new", "_rounds", "_shapes", "_step", "numbers")

    def __init__(self, step: HostCall, numbers: list[int]) -> None:
        self._step, self.numbers = replace(step, inputs=(), outputs=()), numbers
        self._kinds = [(s.size, s.dtype) for s in step.outputs]
        self._shapes = [widest(shape) for shape, _ in step.function.results]
        self._device: AnyDevice | None = None

    def again(self, device: AnyDevice, inputs: list[Storage], keep: bool, values: Mapping[str, int]) -> Round:
        """Call once more: as for `Run`."""
        if self._device is not device:
            self._rounds, self._new = rounds_of(device, self._kinds, self._shapes)
            self._device = device
        with device.lock:
            made = self._rounds.next(device, self._new) if keep else self._new()
        now = {name: values[name] for name in self._step.values}
        step = replace(self._step, inputs=inputs, outputs=made.storages, values=now)
        try:
            self._bound_to(made, step, device).run()
        except BaseException:
            made.done()
            raise
        for observe in here.observers:
            observe(step)
        return made

    def _bound_to(self, made: Round, step: HostCall, device: AnyDevice) -> BoundCall:
        """The call bound to a round's memory, for as long as the round has it."""
        given, taken = [s.ensure() for s in step.inputs], [s.ensure() for s in step.outputs]
        for b in made.bound:
            if isinstance(b, BoundCall) and all(map(operator.is_, (*b.inputs, *b.outputs), (*given, *taken))):
                b.give(step.values)
                return b
        new = planned_call(step, device).onto(given, taken, step.values)
        made.bound = [*made.bound[1 - _KEPT :], new]
        return new


class StepsAgain:
    """The launches and the loops of a computation in order, over numbered memory: that of the leaves, and then what
    each of them writes; and what its results are in it.

    Args:
        memory: that of the leaves, while they are made.
        number: of memory, by its id.
        launched: computes graphs without calls, as that of `execution.py` does.
    """

    def __init__(self, memory: list[Storage], number: dict[int, int], launched: Callable[..., list[UOp]]) -> None:
        self.memory, self._number, self.launch = memory, number, launched
        self.steps: list[Run | _CallAgain] = []
        self.plans: list[tuple[Plan, Sequence[Origin]]] = []  # with where their nodes come from
        self.results: list[int] = []
        self.complete = True  # whether all that they read has a number

    def computed(self, wanted: list[UOp], device: str, calls: bool) -> list[UOp]:
        """Compute graphs, note the steps, and return the leaves.

        Args:
            wanted: the graphs.
            device: the name of the device.
            calls: whether there are loops in them.
        """
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
        made = self.launch(uops, lazy, device, (), lambda plan, inputs: kept.append((plan, inputs)))
        leaves = dict(zip(uops, made, strict=True))
        for plan, inputs in kept:
            self.plans.append((plan, schedule.origins(schedule.graph(lazy))))
            self.steps.append(Run(plan, self._numbers(inputs), [widest(u.shape) for u in lazy]))
            self._note([memory_of(leaves[u]) for u in lazy])
        return made

    def _called(self, step: HostCall) -> Mapping[str, int]:
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

    def again(self, device: str, memory: list[Storage], values: Mapping[str, int]) -> list[UOp]:
        """Take all steps once more: leaves by number, None for those that were there.

        Args:
            device: the name of the device.
            memory: other leaves' memory, which what is written is added to.
            values: of Variables.
        """
        rounds: list[Round] = []
        leaves: list[Any] = [None] * len(memory)
        try:
            for step in self.steps:
                done = step.again(get_device(device), [memory[n] for n in step.numbers], True, values)
                rounds.append(done)
                memory += done.storages
                leaves += done.leaves
            return leaves
        finally:
            for done in rounds:
                done.done()
