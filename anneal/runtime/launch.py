"""A launch: the calls of one plan, compiled, bound to memory and run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from anneal.backend import AnyDevice, OpaqueBuffer, Program, Storage
from anneal.runtime.context import here
from anneal.runtime.steps import Launch
from anneal.schedule import BUILDING, Origin, Plan

__all__ = ["Execution", "compiled", "execute", "new_outputs"]


class Execution:
    """A launch bound to buffers: `run()` executes it, any number of times.

    With `again` one that was bound to the same buffers before is found again, as the device keeps it. What is computed
    on the way goes into `scratch`, where that is given, and else into memory that is given back with `close`.

    Compiling is done under BUILDING, which the maker of one holds or may take; the rest under the device's lock.

    Args:
        step: the launch that is bound.
        programs: its compiled kernels, if there are any yet.
    """

    __slots__ = ("_again", "_places", "batch", "buffers", "device", "plan", "programs", "temporaries", "values")

    def __init__(
        self,
        step: Launch,
        device: AnyDevice,
        programs: Sequence[Program] | None = None,
        again: bool = False,
        scratch: Sequence[OpaqueBuffer] | None = None,
    ) -> None:
        plan = step.plan
        if programs is None:
            programs = compiled(plan, device)
        self.plan, self.device, self._again = plan, device, again and not plan.variables
        self.values: dict[str, int] = {v.arg[0]: step.values[v.arg[0]] for v in plan.variables}
        self.temporaries: list[OpaqueBuffer] = []
        buffers: list[OpaqueBuffer] = [None] * len(plan.values)  # type: ignore[list-item]  # the loops below fill it
        try:
            for i, s in enumerate(step.inputs):
                buffer = s.buffer
                buffers[i] = buffer if buffer is not None and s.host is None else s.ensure()
            for v, s in zip(plan.outputs, step.outputs, strict=True):
                buffer = s.buffer
                buffers[v] = buffer if buffer is not None and s.host is None else s.ensure()
            if scratch is None:
                device.alloc_all(plan.temporaries, self.temporaries)
                scratch = self.temporaries
        except BaseException:
            self.close()  # a traceback may keep this for longer
            raise
        for v, t in plan.memory:
            buffers[v] = scratch[t]
        self.buffers = buffers
        self._places: dict[int, list[int]] = {}  # of swapped buffers, by id
        self.programs = programs
        self._bind()

    def _bind(self) -> None:
        if self._again and (found := self.device.kept(self.plan, self.buffers)) is not None:
            self.batch = found
            return
        begun = time.perf_counter()
        calls = zip(self.programs, self.plan.calls, strict=True)
        self.batch = self.device.prepare([(p, [self.buffers[v] for v in c.args]) for p, c in calls], self.values)
        here.context.compile_seconds += time.perf_counter() - begun
        if self._again:
            self.device.keep(self.plan, self.buffers, self.batch)

    def give(self, values: Mapping[str, int]) -> bool:
        """Run with these values of the variables from the next time on; whether what is prepared must be anew."""
        mine = {name: values.get(name, old) for name, old in self.values.items()}
        if mine == self.values:
            return False
        self.values = mine
        return self.batch.give(mine)

    def rebind(self, old: OpaqueBuffer, new: OpaqueBuffer) -> None:
        """Use the buffer `new` in place of `old`."""
        if any(b is old for b in self.buffers):
            self.buffers = [new if b is old else b for b in self.buffers]
            self._places.clear()
            self._bind()

    def run(self, swap: Callable[[], Sequence[tuple[OpaqueBuffer, OpaqueBuffer]]] | None = None) -> None:
        """Launch; from the next time on, use the second buffer of each pair in place of the first.

        `swap` makes the pairs once the launch is under way, and gives the same ones again when it is called again.
        """
        if swap is None:
            try:
                self.batch.run()
            except BaseException:
                if self._again:
                    self.device.forget_batch(self.plan, self.buffers)
                raise
            return
        self.batch.run_and_swap(swap)
        for old, new in swap():
            places = self._places.pop(id(old), None)
            if places is None:
                places = [v for v, b in enumerate(self.buffers) if b is old]
            self._places[id(new)] = places
            for v in places:
                self.buffers[v] = new

    def close(self) -> None:
        """Give back the temporaries."""
        temporaries, self.temporaries = self.temporaries, []
        if temporaries:
            self.device.free_all(temporaries)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.close()


def compiled(plan: Plan, device: AnyDevice) -> list[Program]:
    """The programs of a plan's calls."""
    begun = time.perf_counter()
    with BUILDING:
        programs = device.compile_all([c.kernel for c in plan.calls])
    here.context.compile_seconds += time.perf_counter() - begun
    return programs


def new_outputs(plan: Plan, device: AnyDevice) -> list[Storage]:
    """Storages for a plan's results; they get memory when it is bound.

    Args:
        device: the name of the device.
    """
    return [Storage(plan.values[v].size, plan.values[v].dtype, device.name) for v in plan.outputs]


def execute(
    plan: Plan,
    device: AnyDevice,
    inputs: Sequence[Storage],
    values: Mapping[str, int] | None = None,
    origins: Sequence[Origin] = (),
    programs: Sequence[Program] | None = None,
    outputs: list[Storage] | None = None,
    scratch: Sequence[OpaqueBuffer] | None = None,
) -> list[Storage]:
    """Run a plan once; returns the storages of its outputs. `origins` is for those who observe.

    With its compiled `programs` it is a plan that ran before, and may meet the buffers that it had then. `outputs` and
    `scratch` (what is computed on the way) are written, if they are given, instead of new memory.

    Raises DeviceError for an output that the device can never hold.

    Args:
        inputs: the storages of the inputs.
        values: the values of Variables by name.
    """
    again = programs is not None
    if outputs is None:
        for v in plan.outputs:  # before compiling: a kernel that writes what cannot be held has worse errors
            device.check_size(plan.values[v].size, plan.values[v].dtype)
        outputs = new_outputs(plan, device)
    if programs is None:
        programs = compiled(plan, device)
    step = Launch(plan, inputs, outputs, values or {}, origins)
    with device.lock:
        run = Execution(step, device, programs, again, scratch)
        try:
            if here.meter is None:
                run.run()
            else:
                here.meter.run(plan, run)
        finally:
            run.close()
    for observe in here.observers:
        observe(step)
    return outputs
