"""Rounds of a loop: a launch that is run again and again, and the memory of its results, which later rounds write anew.

A loop's results go when the next round's take their places: a step of training leaves parameters and moments, and the
step after it reads those and leaves others. `Round` is the memory of one round, with the nodes that show it. Once
they have no other user, another round of the same launch gets them as they are: nothing is allocated, bound or made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

from anneal.backend import AnyDevice, OpaqueBuffer, Program, Storage, get_device
from anneal.runtime.launch import compiled, execute, new_outputs
from anneal.runtime.nodes import buffer_leaf
from anneal.schedule import Plan
from anneal.uop import Op, UOp, arena

__all__ = ["Round", "Run"]

_ROUNDS = 4  # of a run: two take turns, and a program may hold one more for a while
_SMALL = 1 << 16  # bytes of results in use that are copied, so that the others' memory can be written anew
_PART = 16  # or this part of all


class Round:
    """The memory of the results of one round: `leaves` show `storages`.

    The device knows of it, and has it freed when it needs unused memory.
    """

    __slots__ = ("__weakref__", "_alone", "_held", "_writing", "leaves", "nbytes", "storages")

    def __init__(self, plan: Plan, device: AnyDevice, shapes: Sequence[tuple[Any, ...]]) -> None:
        self.storages = [_reused(s) for s in new_outputs(plan, device)]
        with arena().located():
            self.leaves = [buffer_leaf(s, shape) for s, shape in zip(self.storages, shapes, strict=True)]
        self.nbytes = sum([_nbytes(s) for s in self.storages])
        self._writing = False
        self._look()

    def _look(self) -> None:
        """Count the references to the held objects, which have no other user yet."""
        self._held: list[object] = [*self.leaves, *[_flat(u) for u in self.leaves], *self.storages]
        self._alone = list(map(getrefcount, self._held))

    def take(self) -> bool:
        """Begin to write the memory again; False if its contents are still used."""
        if self._writing or not self._held:
            return False
        counts = list(map(getrefcount, self._held))
        if counts != self._alone:
            if self._forgot_calls(counts):
                counts = list(map(getrefcount, self._held))
            if counts != self._alone and not self._copied(counts):
                return False
        for s in self.storages:
            s.origin = None
        self._writing = True
        return True

    def _forgot_calls(self, counts: list[int]) -> bool:
        """Forget calls whose results nobody has any more: they may keep others of this memory for their backward."""
        n, alone = len(self.storages), self._alone
        gone = [s for i, s in enumerate(self.storages) if s.made_by is not None and counts[i::n] == alone[i::n]]
        for s in gone:
            s.origin = None
        return bool(gone)

    def done(self) -> None:
        """The memory was written, and tensors show it."""
        self._writing = False

    def let_go(self) -> bool:
        """Free the memory if it is unused; True if it was freed."""
        if self._writing or list(map(getrefcount, self._held)) != self._alone:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Hold the memory no longer: it goes with its last user."""
        self.storages, self.leaves, self._held, self.nbytes = [], [], [], 0

    def _copied(self, counts: list[int]) -> bool:
        """Give those who use a little of the memory a copy of it; whether that could be done."""
        n = len(self.storages)
        more = [a - b for a, b in zip(counts, self._alone, strict=True)]
        used = [i for i in range(n) if more[i] or more[i + n] or more[i + 2 * n]]
        if sum([_nbytes(self.storages[i]) for i in used]) > max(_SMALL, self.nbytes // _PART):
            return False
        for i in used:
            # tensors and graphs refer to the leaf, a capture to the memory too: it is bound to the very buffer
            s = self.storages[i]
            if more[i + 2 * n] or s.host is not None or s.buffer is None:
                return False
        for i in used:
            self._leave(i)
        self._look()
        return True

    def _leave(self, i: int) -> None:
        """Leave a result to those who use it, with a copy of its values; its buffer gets a new node."""
        old = self.storages[i]
        device, fresh = get_device(old.device), _reused(Storage(old.size, old.dtype, old.device))
        with device.lock:
            copy = device.alloc(old.size, old.dtype)
            device.copy(old.ensure(), copy, old.size, old.dtype)
            fresh.buffer, old.buffer, old.reused = old.buffer, copy, False
        with arena().located():
            self.leaves[i] = buffer_leaf(fresh, self.leaves[i].shape)
        self.storages[i] = fresh


class Scratch:
    """The memory for a launch's temporaries, one for all rounds.

    The device knows of it, and has it freed when it needs memory.
    """

    __slots__ = ("__weakref__", "_device", "_writing", "buffers", "nbytes")

    def __init__(self, device: AnyDevice) -> None:
        self._device = device
        self.buffers: list[OpaqueBuffer] = []
        self.nbytes = 0
        self._writing = False

    def take(self, plan: Plan) -> list[OpaqueBuffer]:
        """Begin to write it. The caller has the device's lock."""
        self._writing = True
        if not self.buffers:
            self._device.alloc_all(plan.temporaries, self.buffers)
        return self.buffers

    def done(self, plan: Plan) -> None:
        """Note that the round was written: its contents are no longer needed, and its memory may be freed from now
        on.
        """
        self._writing = False
        if self.buffers and not self.nbytes:
            self.nbytes = sum([size * dtype.itemsize for size, dtype in plan.temporaries])
            self._device.keep_idle(self)

    def let_go(self) -> bool:
        """Give the memory back if it is not being written; whether that was so."""
        if self._writing:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Give the memory back."""
        buffers, self.buffers, self.nbytes = self.buffers, [], 0
        if buffers:
            self._device.free_all(buffers)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.forget()


def _flat(u: UOp) -> UOp:
    return u.src[0] if u.op is Op.RESHAPE else u


def _nbytes(s: Storage) -> int:
    return s.size * s.dtype.itemsize


def _reused(s: Storage) -> Storage:
    """The storage, marked as reused: values read from it before are out of date."""
    s.reused = True
    return s


class Run:
    """A launch that was: its plan, the numbers of what it reads, and the shapes of its results."""

    __slots__ = ("_device", "_programs", "_rounds", "_scratch", "numbers", "plan", "shapes")

    def __init__(self, plan: Plan, numbers: list[int], shapes: list[tuple[Any, ...]]) -> None:
        self.plan, self.numbers, self.shapes = plan, numbers, shapes
        self._programs: Sequence[Program] | None = None  # on `_device`, once it has run again
        self._device: AnyDevice | None = None
        self._rounds: list[Round] = []
        self._scratch: Scratch | None = None

    def again(self, device: AnyDevice, inputs: list[Storage], keep: bool) -> Round:
        """Run once more on a device. The results are shown, and then the round is done. With `keep` their memory may
        be another round's: nothing but the values may be noted in it."""
        if self._programs is None or self._device is not device:
            self._programs, self._device = compiled(self.plan, device), device
            self._rounds, self._scratch = [], Scratch(device)
        scratch = self._scratch
        assert scratch is not None
        with device.lock:
            current = self._next(device) if keep else Round(self.plan, device, self.shapes)
            try:
                memory = scratch.take(self.plan)
                execute(self.plan, device, inputs, programs=self._programs, outputs=current.storages, scratch=memory)
            except BaseException:
                current.done()
                raise
            finally:
                scratch.done(self.plan)
            return current

    def _next(self, device: AnyDevice) -> Round:
        """A round to be written: an unused one, or a new one."""
        self._rounds = [r for r in self._rounds if r.storages]
        for r in self._rounds:
            if r.take():
                return r
        if len(self._rounds) >= _ROUNDS:
            self._rounds.pop(0).forget()
        made = Round(self.plan, device, self.shapes)
        made.take()
        self._rounds.append(made)
        device.keep_idle(made)
        return made
