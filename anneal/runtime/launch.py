"""A launch: the calls of one plan, compiled, bound to memory and run; and a launch that is run again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from anneal.backend import AnyDevice, OpaqueBuffer, Program, Storage, Timed, get_device
from anneal.errors import DeviceError
from anneal.runtime.context import here
from anneal.runtime.nodes import base_of, buffer_leaf
from anneal.runtime.steps import Buffers, Launch, Storages
from anneal.schedule import BUILDING, Origin, Plan, Stage, stages
from anneal.uop import DType, Shape, Users, arena
from anneal.uop.sizes import Sizes

_ROUNDS = 4  # of a run: two take turns, and a program may hold one more for a while
_SMALL = 1 << 16  # bytes of results still in use that are copied, so that the round can be written again
_PART = 16  # or this part of all

Kinds = Sequence[tuple[int, DType]]  # of memory: the sizes and dtypes


class Holding:
    """A holder of device memory, its `own`, which `close` gives back: at the latest when nobody uses the holder, unless
    the process ends. The device may know of it, and has it forget `nbytes` of memory when it needs some, but not while
    it is `running`.
    """

    nbytes = 0
    running = False

    def __init__(self, device: AnyDevice) -> None:
        self.device = device
        self.own: list[OpaqueBuffer] = []

    def close(self) -> None:
        """Give the memory back."""
        self.nbytes = 0
        own, self.own = self.own, []
        if own:
            self.device.free_all(own)

    def let_go(self) -> bool:
        """Give the memory back if it is not being written. Returns whether it did."""
        if not self.running:
            self.forget()
        return not self.running

    def forget(self) -> None:
        """Give the memory back. What is being written at that time gets new memory."""
        self.nbytes = 0
        if not self.running:
            self.close()

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.own and not ending():
            self.close()


class Execution(Holding):
    """A launch bound to buffers: `run()` executes it, any number of times.

    With `again` one that was bound to the same buffers before is found again, as the device keeps it. What is computed
    on the way goes into `scratch`, where that is given, and else into memory that is given back with `close`.

    Compiling is done under BUILDING, which the maker of one holds or may take; the rest under the device's lock.

    Args:
        step: the launch that is bound.
        programs: its compiled kernels.
    """

    def __init__(
        self,
        step: Launch,
        device: AnyDevice,
        programs: Sequence[Program],
        again: bool = False,
        scratch: Buffers | None = None,
    ) -> None:
        plan = step.plan
        self.plan, self.programs, self.device, self._again = plan, programs, device, again
        self.values = {v.arg[0]: step.values[v.arg[0]] for v in plan.variables}
        self.own = []
        try:
            given = buffers_of([*step.inputs, *step.outputs])
            if scratch is None:
                device.alloc_all(plan.temporaries, self.own)
                scratch = self.own
        except BaseException:
            self.close()  # a traceback may keep this object for longer
            raise
        self._held = [*given, *scratch]
        if again and (found := device.batches.of(programs, self._held)):
            self.batch = found
            if self.values:
                found.give(self.values)
            return
        self.batch = _prepared(device, programs, plan.calls, self.buffers, self.values)
        if again:
            device.batches.put(self.batch, programs, self._held, sum([p.weight for p in programs]))

    @property
    def buffers(self) -> list[OpaqueBuffer]:
        """The buffers of the plan's values, by number."""
        return buffers_in(self.plan, self._held)

    def give(self, values: Sizes) -> None:
        """Use these values of the variables in the following runs."""
        mine = {name: values.get(name, old) for name, old in self.values.items()}
        if mine != self.values:
            self.values = mine
            self.batch.give(mine)

    def run(self) -> None:
        """Execute the launch once."""
        try:
            self.batch.run()
        except BaseException:
            if self._again:
                self.device.batches.drop(self.programs, self._held)
            raise


class Staged:
    """A launch that `run()` executes once, in the stages of its plan: each gives back the memory that no later one
    needs, and memory for results is asked for by the one that writes them."""

    waits = False

    def __init__(self, step: Launch, device: AnyDevice, programs: Sequence[Program], stages: Sequence[Stage]) -> None:
        self.step, self.device, self.programs, self.stages = step, device, programs, stages

    @property
    def batch(self) -> Staged:
        """The launch itself: who measures asks for a launch's batch."""
        return self

    def run(self) -> None:
        """Execute the launch."""
        step, plan, device = self.step, self.step.plan, self.device
        values = {v.arg[0]: step.values[v.arg[0]] for v in plan.variables}
        results = dict(zip(plan.outputs, step.outputs, strict=True))
        scratch: dict[int, OpaqueBuffer] = {}  # by number of the piece
        buffers: list[Any] = [None] * len(plan.values)
        buffers[: len(step.inputs)] = buffers_of(step.inputs)
        try:
            for stage in self.stages:
                for v in stage.outputs:
                    buffers[v] = results[v].ensure()
                taken: list[OpaqueBuffer] = []
                try:
                    device.alloc_all([plan.temporaries[n] for n in stage.taken], taken)
                finally:
                    scratch.update(zip(stage.taken, taken))
                for v, piece in plan.memory:
                    buffers[v] = scratch.get(piece)
                now = slice(stage.begin, stage.end)
                _prepared(device, self.programs[now], plan.calls[now], buffers, values).run()
                device.free_all([scratch.pop(n) for n in stage.left])
        finally:
            device.free_all(list(scratch.values()))

    def timed(self) -> Timed:
        """Raises DeviceError: it runs once."""
        raise DeviceError("a launch in stages cannot time single kernels")


def buffers_of(storages: Storages) -> list[OpaqueBuffer]:
    """The device's buffers of storages, with what waits on the host put into them.

    Args:
        storages: the storages.
    """
    return [b if (b := s.buffer) is not None and s.host is None else s.ensure() for s in storages]


def buffers_in(plan: Plan, held: Buffers) -> list[OpaqueBuffer]:
    """The buffers of a plan's values, by number.

    Args:
        plan: the plan.
        held: those of its inputs, of its outputs, and of its temporaries.
    """
    count = plan.inputs
    buffers: list[Any] = [*held[:count], *[None] * (len(plan.values) - count)]
    for v, buffer in zip(plan.outputs, held[count:]):
        buffers[v] = buffer
    for v, t in plan.memory:
        buffers[v] = held[count + len(plan.outputs) + t]
    return buffers


def _prepared(device: AnyDevice, programs: Sequence[Program], calls: Any, buffers: Sequence[Any], values: Sizes) -> Any:
    """The batch of some calls of kernels, with these buffers by value."""
    begun = time.perf_counter()
    batch = device.prepare([(p, [buffers[v] for v in c.args]) for p, c in zip(programs, calls, strict=True)], values)
    here.context.compile_seconds += time.perf_counter() - begun
    return batch


def compiled(plan: Plan, device: AnyDevice, often: bool = False) -> list[Program]:
    """The programs of a plan's calls on a device, in their order.

    Args:
        often: True if they are to run many times, as those of a jit function are.
    """
    begun = time.perf_counter()
    with BUILDING:
        programs = device.compile_all([c.kernel for c in plan.calls], often or bool(here.recordings))
    here.context.compile_seconds += time.perf_counter() - begun
    return programs


def new_outputs(plan: Plan, device: AnyDevice) -> list[Storage]:
    """Storages for a plan's results; they get memory when it is bound. Raises DeviceError for one that the device can
    never hold.
    """
    made = [Storage(plan.values[v].size, plan.values[v].dtype, device.name) for v in plan.outputs]
    for s in made:
        device.check_size(s.size, s.dtype)
    return made


def execute(
    plan: Plan,
    device: AnyDevice,
    inputs: Storages,
    values: Sizes | None = None,
    origins: Sequence[Origin] = (),
    programs: Sequence[Program] | None = None,
    outputs: list[Storage] | None = None,
    scratch: Buffers | None = None,
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
        outputs = new_outputs(plan, device)  # before compiling, whose error is less clear
    if programs is None:
        programs = compiled(plan, device)
    step = Launch(plan, inputs, outputs, values or {}, origins)
    with device.lock:
        in_stages = [] if again else stages(plan)
        run = (
            Staged(step, device, programs, in_stages)
            if in_stages
            else Execution(step, device, programs, again, scratch)
        )
        try:
            if here.meter is None:
                run.run()
            else:
                here.meter.run(plan, run)
        finally:
            if isinstance(run, Execution):
                run.close()
    for observe in here.observers:
        observe(step)
    return outputs


# -- again and again --------------------------------------------------------------------------------------------------


class Round:
    """The memory of the results of one round: `leaves` show `storages`. `bound` is for work that stays bound to it.

    A loop's results go when the next round's take their places: a step of training leaves parameters and moments, and
    the step after it reads those and leaves others. Once nobody else uses the memory and the nodes that show it,
    another round of the same launch gets them as they are: nothing is allocated, bound or made.

    The device knows of it, and has it freed when it needs unused memory.
    """

    def __init__(self, kinds: Kinds, device: AnyDevice, shapes: Sequence[Shape]) -> None:
        self.bound: list[Any] = []
        self.storages = [_reused(size, dtype, device.name) for size, dtype in kinds]
        with arena().located():
            self.leaves = [buffer_leaf(s, shape) for s, shape in zip(self.storages, shapes, strict=True)]
        self.nbytes = sum([_nbytes(s) for s in self.storages]) or 1  # 0 once it was forgotten
        self._writing = False
        self._look()

    def _look(self) -> None:
        """Count the references to the held objects, which have no other user yet."""
        # no local name may refer to one of them here
        self.users = Users([*self.leaves, *map(base_of, self.leaves), *self.storages])

    def take(self, copied: bool = True) -> bool:
        """Begin to write the memory again; False if its contents are still used. If they may be `copied`, users of a
        small part of them get a copy.
        """
        if self._writing or not self.nbytes:
            return False
        more = self.users.more()
        if more:
            self.forget_calls(more)
            more = self.users.more()
        if more and not (copied and self._copied(more)):
            return False
        for s in self.storages:
            s.made_by, s.spent = None, False
        self._writing = True
        return True

    def forget_calls(self, more: list[int] | None) -> bool:
        """Forget calls whose results nobody has any more, and the memory that they read, which may be of this round.
        Returns whether no call is left.
        """
        n = len(self.storages)
        for i, s in enumerate(self.storages):
            if more is None or not any(more[i::n]):
                s.made_by = None
        return all(s.made_by is None for s in self.storages)

    def done(self) -> None:
        """The memory was written, and tensors show it."""
        self._writing = False
        if not self.nbytes:  # it was forgotten meanwhile
            self.forget()

    def let_go(self) -> bool:
        """Free the memory if it is unused; True if it was freed."""
        if self._writing or self.users.more() is not None:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Stop holding the memory, or stop at the end of the round if it is being written; the last user frees it."""
        self.nbytes = 0
        if not self._writing:
            self.storages, self.leaves, self.bound, self.users = [], [], [], Users([])

    def _copied(self, more: list[int]) -> bool:
        """Give users of a small part of the memory a copy. Returns whether that could be done."""
        n = len(self.storages)
        used = [i for i in range(n) if any(more[i::n])]
        if sum([_nbytes(self.storages[i]) for i in used]) > max(_SMALL, self.nbytes // _PART):
            return False
        for i in used:
            # tensors and graphs refer to the leaf, a capture to the memory too: it is bound to the very buffer
            s = self.storages[i]
            if more[i + 2 * n] or s.host is not None or s.buffer is None:
                return False
        for i in used:  # it is left to those who use it, with a copy of its values; its buffer gets a new node
            old = self.storages[i]
            self.storages[i] = left(get_device(old.device), old)  # which no local name may refer to
            old.reused = False
            with arena().located():
                self.leaves[i] = buffer_leaf(self.storages[i], self.leaves[i].shape)
        self.users.held.clear()
        self._look()
        return True


class Scratch(Holding):
    """The memory for a launch's temporaries, one for all rounds."""

    def take(self, temporaries: Kinds) -> list[OpaqueBuffer]:
        """Begin to write it. The caller has the device's lock."""
        self.running = True
        if not self.own:
            self.device.alloc_all(temporaries, self.own)
        return self.own

    def done(self, temporaries: Kinds) -> None:
        """Note that the round was written: its contents are no longer needed, and its memory may be freed from now
        on.
        """
        self.running = False
        if self.own and not self.nbytes:
            self.nbytes = sum([size * dtype.itemsize for size, dtype in temporaries])
            self.device.keep_idle(self)


def _nbytes(s: Storage) -> int:
    return s.size * s.dtype.itemsize


def _reused(size: int, dtype: DType, device: str) -> Storage:
    """A storage that is marked as reused: values read from it before are out of date."""
    s = Storage(size, dtype, device)
    s.reused = True
    return s


def copy_of(device: AnyDevice, storage: Storage, count: int | None = None) -> OpaqueBuffer:
    """A new buffer with the contents of `storage`; of the first `count` elements alone, if that is given."""
    with device.lock:
        fresh = device.alloc(storage.size, storage.dtype)
        if count != 0:
            device.copy(storage.ensure(), fresh, storage.size if count is None else count, storage.dtype)
    return fresh


def left(device: AnyDevice, old: Storage) -> Storage:
    """A new storage with the memory of `old`; the old one, which others use, gets a copy of its values.

    Args:
        device: its device.
        old: the storage.
    """
    fresh = _reused(old.size, old.dtype, old.device)
    fresh.buffer, old.buffer = old.ensure(), copy_of(device, old)
    return fresh


class Rounds(list[Round]):
    """The rounds of all launches that leave results of the same sizes: so steps of different structures, which take
    turns, leave parameters in the memory that each of them was bound to.
    """

    def next(self, device: AnyDevice, new: Callable[[], Round], least: int = 1) -> Round:
        """A round to be written: an unused one, or a new one. The caller has the device's lock.

        Args:
            new: makes one.
            least: how many there are before values in use are copied, so that an older one can be written.
        """
        self[:] = [r for r in self if r.nbytes]
        # what was written last is in use as a rule, and what was written before it is bound, and in a cache
        for r in [*self[-2::-1], *self[-1:]]:
            if r.take(len(self) >= least):
                if r is not self[-1]:
                    self.remove(r)
                    self.append(r)
                return r
        if len(self) >= _ROUNDS:
            self.pop(0).forget()
        made = new()
        made.take()
        self.append(made)
        device.keep_idle(made)
        return made


def rounds_of(device: AnyDevice, kinds: Kinds, shapes: Sequence[Shape]) -> tuple[Rounds, partial[Round]]:
    """The rounds of a device that hold results of these `kinds` and `shapes`, and what makes one."""
    rounds = device.of_launches.setdefault((tuple(kinds), tuple(shapes)), Rounds())
    return rounds, partial(Round, kinds, device, shapes)
