"""Steps that are taken again, on other memory: the launches and the loops of a computation, noted when it first ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from anneal import schedule
from anneal.backend import AnyDevice, Storage, get_device
from anneal.runtime.calls import around_host_calls
from anneal.runtime.context import here
from anneal.runtime.launch import Round, Scratch, compiled, execute, rounds_of
from anneal.runtime.nodes import memory_of
from anneal.runtime.steps import HostCall
from anneal.runtime.turns import called, planned_call
from anneal.schedule import Plan, Plans
from anneal.uop import Nodes, Shape, UOp
from anneal.uop.sizes import Sizes, widest


class Run:
    """A step that was, a launch of a plan or a loop: what it does, the numbers of what it reads, and the shapes of its
    results."""

    def __init__(self, does: Plan | HostCall, numbers: list[int], shapes: list[Shape]) -> None:
        self.numbers, self._shapes = numbers, shapes
        self._device: AnyDevice | None = None  # on which it has run again
        if isinstance(does, HostCall):
            self.plan, self._call = None, replace(does, inputs=(), outputs=())
            self._kinds = [(s.size, s.dtype) for s in does.outputs]
        else:
            self.plan = does
            self._kinds = [(does.values[v].size, does.values[v].dtype) for v in does.outputs]

    def _begin(self, device: AnyDevice) -> None:
        """Compile it for a device."""
        for kind in self._kinds:
            device.check_size(*kind)
        if self.plan is None:
            self._planned = planned_call(self._call, device)
        else:
            self._programs = compiled(self.plan, device)
            self._left = device.runs_before_often(self._programs)  # how many, until it has run often
            self._scratch = device.of_launches.setdefault(id(self.plan), Scratch(device))
        self._rounds, self._new = rounds_of(device, self._kinds, self._shapes)
        self._device = device

    def again(self, device: AnyDevice, inputs: list[Storage], keep: bool, values: Sizes) -> Round:
        """Run once more on a device, with these values of Variables. The results are shown, and then the round is
        done. With `keep` their memory may be another round's: nothing but the values may be noted in it."""
        if self._device is not device:
            self._begin(device)
        plan = self.plan
        if plan and self._left:
            self._left -= 1
            if not self._left:
                self._programs = compiled(plan, device, often=True)
        with device.lock:
            made = self._rounds.next(device, self._new) if keep else self._new()
            try:
                if plan is None:
                    now = {name: values[name] for name in self._call.values}
                    self._planned.kept_onto(inputs, made.storages, now).run()
                else:
                    memory = self._scratch.take(plan.temporaries)
                    execute(plan, device, inputs, values, (), self._programs, made.storages, memory)
            except BaseException:
                made.done()
                raise
            finally:
                if plan:
                    self._scratch.done(plan.temporaries)
        for observe in here.observers if plan is None else ():
            observe(replace(self._call, inputs=inputs, outputs=made.storages, values=now))
        return made

    def forget_calls(self) -> bool:
        """`Round.forget_calls` of all that it wrote."""
        if self._device is None:
            return True
        with self._device.lock:
            return all([r.forget_calls() for r in self._rounds])  # noqa: C419  # of each one


class StepsAgain:
    """The launches and the loops of a computation in order, over numbered memory: that of the leaves, and then what
    each of them writes; and what its results are in it.

    Args:
        memory: that of the leaves, while they are made.
        number: of memory, by its id.
        launched: computes graphs without calls, as that of `execution.py` does.
        keep: whether nothing but the values is noted in the results' memory.
        tells: whether it is noted where the nodes of its plans come from; then the first run has memory of its own.
    """

    def __init__(
        self,
        memory: list[Storage],
        number: dict[int, int],
        launched: Callable[..., list[UOp]],
        keep: bool = True,
        tells: bool = False,
    ) -> None:
        self.memory, self._number, self.launch, self._keep, self._tells = memory, number, launched, keep, tells
        self.steps: list[Run] = []
        self.plans: Plans = []
        self.results: list[int] = []
        self.complete = True  # whether all that they read has a number
        self._rounds: list[Round] = []

    def computed(self, wanted: list[UOp], device: str, calls: bool) -> list[UOp]:
        """Compute graphs, note the steps, and return the leaves.

        Args:
            wanted: the graphs.
            device: the name of the device.
            calls: whether there are loops in them.
        """
        try:
            made = (
                around_host_calls(wanted, wanted, device, self._launched, self._called, dry=True)
                if calls
                else self._launched(wanted, wanted, device, ())
            )
        finally:
            for done in self._rounds:
                done.done()
            self._rounds.clear()
        self.results = self._numbers(map(memory_of, made))
        self.memory.clear()
        self._number.clear()
        return made

    def _launched(self, uops: Nodes, lazy: list[UOp], device: str, _: Any) -> list[UOp]:
        def first(plan: Plan, inputs: list[Storage], values: Sizes) -> list[Storage] | None:
            run = Run(plan, self._numbers(inputs), [widest(u.shape) for u in lazy])
            self.steps.append(run)
            self.plans.append((plan, schedule.origins(schedule.graph(lazy)) if self._tells else ()))
            if self._tells or schedule.stages(plan) or not self.complete:
                return None
            # bound to the memory that later rounds read and write, so that none of them binds it again
            self._rounds.append(run.again(get_device(device), inputs, self._keep, values))
            return self._rounds[-1].storages

        made = self.launch(uops, lazy, device, (), first)
        if lazy:
            leaves = dict(zip(uops, made, strict=True))
            self._note([memory_of(leaves[u]) for u in lazy])
        return made

    def _called(self, step: HostCall) -> Sizes:
        found = called(step)
        for observe in here.observers:
            observe(step)
        self.steps.append(Run(step, self._numbers(step.inputs), [widest(s) for s, _ in step.function.results]))
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

    def again(self, device: AnyDevice, memory: list[Storage], keep: bool, values: Sizes) -> list[UOp]:
        """Take all steps once more: leaves by number, None for those that were there.

        Args:
            device: the device.
            memory: other leaves' memory, which what is written is added to.
            keep: as for `Run`.
            values: of Variables.
        """
        rounds: list[Round] = []
        leaves: list[Any] = [None] * len(memory)
        try:
            for step in self.steps:
                done = step.again(device, list(map(memory.__getitem__, step.numbers)), keep, values)
                rounds.append(done)
                memory += done.storages
                leaves += done.leaves
            return leaves
        finally:
            for done in rounds:
                done.done()
