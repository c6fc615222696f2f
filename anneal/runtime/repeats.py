"""Graphs that are computed in launches, and steps that are taken again, on other memory and with other values of
Variables each time: the launches and the loops of a computation, noted when it first ran."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from anneal import schedule, settings
from anneal.backend import AnyDevice, Storage, get_device
from anneal.errors import DeviceError
from anneal.rewrite import over, rebuild
from anneal.runtime.bodies import has_variables, sized
from anneal.runtime.calls import Between, around_host_calls
from anneal.runtime.context import here
from anneal.runtime.launch import Round, Rounds, Scratch, compiled, execute, rounds_of
from anneal.runtime.nodes import buffer_leaf, memory_of, note_constants, shown, storage_of
from anneal.runtime.steps import HostCall, Launch, Storages
from anneal.runtime.turns import called, planned_call
from anneal.schedule import Plan, Plans
from anneal.uop import GraphFunction, Known, Nodes, Op, Shape, UOp, toposort
from anneal.uop.sizes import Sizes, Values, bound_sizes, bound_to, widest

# a plan, what it reads and values of Variables -> its results, or None where it is not run
First = Callable[[Plan, list[Storage], Sizes], list[Storage] | None]


def launched(
    uops: Nodes, lazy: Nodes, device_name: str, between: Sequence[Between], first: First | None = None
) -> list[UOp]:
    """`realize_uops` of graphs without a HOST_CALL; `lazy` are those of `uops` that are not in memory.

    `first` may run the plan as the first launch of those to come, which write the same memory. With something `between`
    there is a launch for each part of the plan that ends where that is called.
    """
    done = {}
    for nodes, start in () if lazy else between:
        start(nodes)
    if lazy:
        device = get_device(device_name)
        context = here.context
        begun = time.perf_counter()
        values = Values()
        sink = schedule.graph(lazy)
        plan, inputs, hit = schedule.plan_for(sink, device.cost_model, values)
        for record in here.recordings:
            note_constants(sink, record.constants)
        planned = time.perf_counter()
        context.plans_found += hit
        context.plans_made += not hit
        context.compile_seconds += planned - begun
        found = schedule.origins(sink) if here.observers else ()
        outputs = None if first is None else first(plan, inputs, values)
        if between:
            outputs = _in_parts(sink, Launch(plan, inputs, (), values, found), device, lazy, between)
        elif outputs is None:
            outputs = execute(plan, device, inputs, values, found)
        step = Launch(plan, inputs, outputs, values, found)
        for watch in here.watchers:
            watch(sink, step)
        if here.meter and not between:
            here.meter.show(sink, step)
        for u, storage in zip(lazy, outputs, strict=True):
            storage.line = u.provenance[1:3]
            done[u] = buffer_leaf(storage, u.shape)
        if (level := settings.current().debug) >= 2:
            tell_launch(level, step, device, hit, planned - begun, time.perf_counter() - planned)
    return [done.get(u, u) for u in uops]


def _in_parts(sink: UOp, step: Launch, device: AnyDevice, lazy: Nodes, between: Sequence[Between]) -> list[Storage]:
    """Execute a launch part by part; each of `between` is called once its nodes are computed, and computing goes on.

    Args:
        sink: the graph of the launch; `lazy` are its outputs.
    """
    place = {u: n for n, u in enumerate(lazy)}
    plan, held = step.plan, dict(enumerate(step.inputs))
    wanted = [[place[u] for u in nodes if u in place] for nodes, _ in between]
    for n, part in enumerate(schedule.in_parts(plan, wanted)):
        if part.plan.calls:
            inputs = [held[v] for v in part.inputs]
            made = execute(part.plan, device, inputs, step.values, step.origins)
            if here.meter:
                here.meter.show(sink, Launch(part.plan, inputs, made, step.values, step.origins))
            held.update(zip(part.outputs, made, strict=True))
        if n < len(between):
            nodes, start = between[n]
            start([buffer_leaf(held[plan.outputs[place[u]]], u.shape) if u in place else u for u in nodes])
    return [held[v] for v in plan.outputs]


def tell_launch(level: int, step: Launch, device: AnyDevice, hit: bool, planning: float, running: float) -> None:
    """ANNEAL_DEBUG=2: the times of a realize and, once for each plan, of its kernels; 3: what they read and write.

    Args:
        level: the number that ANNEAL_DEBUG is.
        step: the launch.
        device: the device on which it ran.
        hit: whether its plan was known.
        planning: the seconds that planning took.
        running: the seconds that it ran.
    """
    plan, known = step.plan, "known" if hit else f"{planning * 1e3:.1f} ms"
    told = [f"realize on {device.name}: {len(plan.calls)} kernels, plan {known}, launch {running * 1e3:.1f} ms"]
    if plan not in here.context.profiled:
        from anneal.runtime.profile import profile

        here.context.profiled.add(plan)
        try:
            lines = profile(plan, device, step.inputs, step.values, heat=0.02, least=0.05).text()
        except DeviceError as e:
            lines = [str(e)]
        told += [f"  {line}" for line in lines]
    for c in plan.calls if level >= 3 else ():
        told.append(f"  {c.kernel.name} {c.args[: c.outputs]} <- {c.args[c.outputs :]} ({c.phase})")
    for line in told:
        print(f"anneal: {line}", file=sys.stderr)


# -- again and again -------------------------------------------------------------------------------------------------


class Run:
    """A step that was, a launch of a plan or a call: what it does, the numbers of what it reads, and the shapes of its
    results."""

    inner = False  # whether steps after it alone read what it writes, so that this stays in memory of its own

    def __init__(self, does: Plan | HostCall, numbers: list[int], shapes: list[Shape]) -> None:
        self.numbers, self._shapes = numbers, shapes
        self.device: AnyDevice | None = None  # the device of the last run
        if isinstance(does, HostCall):
            # what stands for its inputs has no memory
            given = [Storage(s.size, s.dtype, s.device) for s in does.inputs]
            self.plan, self._call = None, replace(does, inputs=given, outputs=())
            self.kinds = [(s.size, s.dtype) for s in does.outputs]
        else:
            self.plan = does
            self.kinds = [(does.values[v].size, does.values[v].dtype) for v in does.outputs]

    def _begin(self, device: AnyDevice) -> None:
        """Compile it for a device."""
        for kind in self.kinds:
            device.check_size(*kind)
        if self.plan is None:
            self._planned = planned_call(self._call, device)
        else:
            self._programs = compiled(self.plan, device)
            self._left = device.runs_before_often(self._programs)  # how many, until it has run often
            self._scratch = device.of_launches.setdefault(id(self.plan), Scratch(device))
        shared, self._new = rounds_of(device, self.kinds, self._shapes)
        self._rounds = Rounds() if self.inner else shared
        self.device = device

    def again(self, device: AnyDevice, inputs: Storages, keep: bool, values: Sizes) -> Round:
        """Run once more on a device, with these values of Variables. The results are shown, and then the round is
        done. With `keep` their memory may be another round's: nothing but the values may be noted in it."""
        if self.device is not device:
            self._begin(device)
        plan = self.plan
        if plan and self._left:
            self._left -= 1
            if not self._left:
                self._programs = compiled(plan, device, often=True)
        with device.lock:
            made = self._rounds.next(device, self._new) if keep or self.inner else self._new()
        try:
            if plan is None:  # a function of the host is called with no lock held
                now = {name: values[name] for name in self._call.values}
                self._planned.kept_onto(inputs, made.storages, now).run()
            else:
                with device.lock:
                    try:
                        memory = self._scratch.take(plan.temporaries)
                        execute(plan, device, inputs, values, (), self._programs, made.storages, memory)
                    finally:
                        self._scratch.done(plan.temporaries)
        except BaseException:
            made.done()
            raise
        for observe in here.observers if plan is None else ():
            observe(replace(self._call, inputs=inputs, outputs=made.storages, values=now))
        return made

    def forget_calls(self) -> bool:
        """`Round.forget_calls` of all that it wrote."""
        if self.device is None:
            return True
        with self.device.lock:
            return all([r.forget_calls(r.users.more()) for r in self._rounds])  # noqa: C419  # of each one


class StepsAgain:
    """The launches and the loops of a computation in order, over numbered memory: that of the leaves, and then what
    each of them writes; and what its results are in it.

    Args:
        memory: that of the leaves, while they are made.
        number: of memory, by its id.
        keep: whether nothing but the values is noted in the results' memory.
        tells: whether it is noted where the nodes of its plans come from; then the first run has memory of its own.
    """

    complete = True  # whether all that they read has a number
    _knows = False  # which of the steps are inner ones

    def __init__(
        self,
        memory: list[Storage],
        number: dict[int, int],
        keep: bool = True,
        tells: bool = False,
    ) -> None:
        self.memory, self._number, self._keep, self._tells = memory, number, keep, tells
        self.steps: list[Run] = []
        self.plans: Plans = []
        self.results: list[int] = []
        self._rounds: list[Round] = []

    def computed(self, wanted: list[UOp], device: str) -> list[UOp]:
        """Compute graphs, note the steps, and return the leaves.

        Args:
            wanted: the graphs.
            device: the name of the device.
        """
        try:
            made = around_host_calls(wanted, wanted, device, self._launched, self._called, dry=True)
        finally:
            for done in self._rounds:
                done.done()
            self._rounds.clear()
        self.results = self._numbers(map(memory_of, made))
        self.memory.clear()
        self._number.clear()
        return made

    def _launched(self, uops: Nodes, lazy: Nodes, device: str, _: Any) -> list[UOp]:
        def first(plan: Plan, inputs: Storages, values: Sizes) -> list[Storage] | None:
            run = Run(plan, self._numbers(inputs), [widest(u.shape) for u in lazy])
            self.steps.append(run)
            self.plans.append((plan, schedule.origins(schedule.graph(lazy)) if self._tells else ()))
            if self._tells or schedule.stages(plan) or not self.complete:
                return None
            # bound to the memory that later rounds read and write, so that none of them binds it again
            self._rounds.append(run.again(get_device(device), inputs, self._keep, values))
            return self._rounds[-1].storages

        made = launched(uops, lazy, device, (), first)
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

    def again(
        self, device: AnyDevice, memory: list[Storage], keep: bool, values: Sizes, shapes: Sequence[Shape]
    ) -> list[UOp]:
        """Take all steps once more: the leaves of the results.

        Args:
            device: the device.
            memory: other leaves' memory, which what is written is added to.
            keep: as for `Run`.
            values: of Variables.
            shapes: of the results, where calls, or values of Variables, may have left them in others.
        """
        rounds = []
        leaves: list[Any] = [None] * len(memory)
        if not self._knows:
            self._knows, at, results = True, len(memory), set(self.results)
            for step in self.steps:
                if results.isdisjoint(range(at, at := at + len(step.kinds))):
                    step.inner, step.device = True, None  # it begins again
        try:
            for step in self.steps:
                done = step.again(device, list(map(memory.__getitem__, step.numbers)), keep, values)
                rounds.append(done)
                memory += done.storages
                leaves += done.leaves
            made = list(map(leaves.__getitem__, self.results))
        finally:
            for done in rounds:
                done.done()
        if not shapes:
            return made
        return [u if u.shape == s else buffer_leaf(memory_of(u), s) for u, s in zip(made, shapes, strict=True)]


def over_memory(roots: Nodes, known: Known, values: Sizes) -> Nodes:
    """Graphs over other nodes, with the values that Variables have now.

    Args:
        roots: the graphs.
        known: the nodes, by those that they take the place of; what others become is added.
        values: of the Variables.
    """
    return list(sized(roots, bound_to(values), known)) if values else [rebuild(u, over, known) for u in roots]


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
        self._computed = [n for n, u in results if shown(u) not in there and not there.isdisjoint(toposort(u))]
        self._shown = [n for n, _ in results if n not in self._computed]
        order = toposort(function.results)
        self._symbolic = has_variables(order)
        self._calls = any(u.op is Op.HOST_CALL for u in order)
        self._steps: dict[Any, StepsAgain] = {}  # by which of the leaves are one memory

    @property
    def plans(self) -> Plans:
        """The plans that were made, each with where the nodes come from that it computes."""
        return [found for steps in self._steps.values() for found in steps.plans]

    def forget_calls(self) -> bool:
        """`Round.forget_calls` of all that it wrote."""
        return all([run.forget_calls() for steps in self._steps.values() for run in steps.steps])  # noqa: C419

    def __call__(self, leaves: Nodes, values: Sizes) -> Nodes:
        """The nodes of the results, in memory where they are computed; memory of former ones is written anew once
        nobody has them.

        Args:
            leaves: memory, in place of the parameters.
            values: of Variables.
        """
        views = self.graphs(leaves, values, self._shown) if self._shown else ()
        computed = self._run(leaves, values) if self._computed else ()
        made = dict(zip((*self._shown, *self._computed), (*views, *computed), strict=True))
        return list(map(made.__getitem__, range(len(made))))

    def graphs(self, leaves: Nodes, values: Sizes, numbers: Sequence[int] | None = None) -> Nodes:
        """The results, or those with these numbers, as graphs of memory.

        Args:
            leaves: memory, in place of the parameters.
            values: of Variables.
        """
        f = self.function
        roots = f.results if numbers is None else [f.results[n] for n in numbers]
        return over_memory(roots, dict(zip(f.parameters, leaves, strict=True)), values if self._symbolic else {})

    def _run(self, leaves: Nodes, values: Sizes) -> Nodes:
        memory: list[Any] = list(map(storage_of, leaves))
        first: dict[int, int] = {}
        pattern = tuple([first.setdefault(id(s), n) for n, s in enumerate(memory)])  # two may be one memory
        steps, meter = self._steps.get(pattern), here.meter
        if steps is None or here.watchers or (meter and not all(meter.knows(p) for p, _ in steps.plans)):
            wanted: dict[UOp, None] = {}
            for n, u in enumerate(self.graphs(leaves, values, self._computed)):
                wanted[u if u not in wanted else u.then(Op.CONTIGUOUS, tag=n)] = None
            steps = StepsAgain(memory, first, tells=True)
            made = steps.computed(list(wanted), self.device)
            if steps.complete:
                self._steps[pattern] = steps
            return made
        here.context.plans_found += len(steps.plans)
        several = self._computed if self._calls or self._symbolic else ()
        shapes = [bound_sizes(self.function.results[n].shape, values) for n in several]
        return steps.again(get_device(self.device), memory, True, values, shapes)
