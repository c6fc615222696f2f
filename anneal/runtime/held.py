"""Memory that a capture holds: its arguments, the tensors that it reads, and those that it writes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from anneal.backend import AnyDevice, Array, Storage, get_device
from anneal.runtime.context import here
from anneal.runtime.execution import realize
from anneal.runtime.guards import rebuild
from anneal.runtime.handle import Handle
from anneal.runtime.launch import copy_of
from anneal.runtime.nodes import buffer_leaf, memory_of
from anneal.uop import Op, UOp, dtypes, references
from anneal.uop.sizes import bound_sizes

ARGUMENT = "argument"  # the tag of the bindings that a captured function is called with


@dataclass(slots=True)
class GivenCall:
    """A call that runs the function: the tensors of its arguments, their storages, and which tensor shows which."""

    args: Any
    kwargs: Any
    tensors: list[Handle]
    places: list[int]
    storages: list[Storage]
    bound: dict[str, int]  # the values of its Variables


def copied(call: GivenCall) -> tuple[list[Handle], Any, Any, list[Storage]]:
    """The arguments with copies for tensors: the caller's are not overwritten by the capture, and what the function
    reads by itself is no argument, even if it is passed as well. Returns the tensors, args, kwargs and storages.
    """
    copies = [_duplicate(s) for s in call.storages]
    sizes = partial(bound_sizes, values=call.bound, tag=ARGUMENT)
    given = [
        type(t)._from_uop(buffer_leaf(copies[n], sizes(t.uop.shape) if call.bound else t.uop.shape), t.device)
        for n, t in zip(call.places, call.tensors, strict=True)
    ]
    for copy, t, n in zip(given, call.tensors, call.places, strict=True):
        if t._wants and here.grad:  # a gradient goes on to the caller's
            copy._wants, copy._leaf, copies[n].origin = True, False, t.uop
    args, kwargs = rebuild((call.args, call.kwargs), iter(given), sizes)
    return given, args, kwargs, copies


def _duplicate(s: Storage) -> Storage:
    copy = Storage(s.size, s.dtype, s.device)
    copy.buffer = copy_of(get_device(s.device), s)
    return copy


class Staging:
    """Memory of a capture's own that values are copied into before the kernels read it."""

    __slots__ = ("_loaded", "memory")

    def __init__(self, memory: Storage) -> None:
        self.memory = memory
        memory.reused = True
        self._loaded: weakref.ref[Storage] | None = None

    def load(self, device: AnyDevice, other: Storage | Array) -> None:
        """Copy the values of `other` in, unless they are there already."""
        mine = self.memory
        if not isinstance(other, Storage):
            device.upload(mine.ensure(), other)
            self._loaded = None
            return
        if self._loaded is not None and self._loaded() is other and not other.reused:
            return
        if other.host is not None:
            device.upload(mine.ensure(), other.host)
        else:
            device.copy(other.ensure(), mine.ensure(), mine.size, mine.dtype)
        self._loaded = weakref.ref(other)


class Kept:
    """Memory of a result that stays the capture's, of a symbolic shape or a call's: each replay gives a copy of it."""

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage


class Read:
    """A tensor outside the function that the kernels read and do not write.

    They read `bound`, the buffer it showed at the capture, for as long as it shows that one (another function may be
    updating it there); memory of their own once it shows something else.
    """

    __slots__ = ("bound", "own", "ref", "storage")

    def __init__(self, tensor: Handle, storage: Storage) -> None:
        self.ref = weakref.ref(tensor)
        self.storage = storage  # what the tensor shows
        self.bound = storage.ensure()
        self.own: Staging | None = None

    @property
    def memory(self) -> Storage:
        """The memory that the kernels are to be bound to."""
        return self.storage if self.own is None else self.own.memory

    def follow(self, device: AnyDevice, unbind: Callable[[], None]) -> None:
        """Make the kernels read what the tensor shows now; `unbind` is called where they are to be bound anew."""
        t = self.ref()
        if t is not None:
            realize([t])
            self.storage = memory_of(t.uop)
        now = self.storage
        if now.buffer is self.bound and now.host is None:
            return
        if self.own is None:
            self.own = Staging(Storage(now.size, now.dtype, now.device))
            self.bound = self.own.memory.ensure()
            unbind()
        self.own.load(device, now)


class Written:
    """Memory of state, which the kernels write and a tensor shows through the node `leaf`.

    `alone` and `flat_alone` are the references to `leaf` and to the BUFFER below it when they have no other user.
    """

    __slots__ = ("alone", "flat", "flat_alone", "leaf", "ref", "storage")

    def __init__(self, tensor: Handle, storage: Storage) -> None:
        self.ref = weakref.ref(tensor)
        kind: Any = type(tensor)
        self.alone, self.flat_alone = _references_when_alone(kind, tensor.uop.op is Op.RESHAPE)
        self.show(storage, tensor.uop)

    def show(self, storage: Storage, leaf: UOp) -> None:
        storage.reused = True
        self.storage, self.leaf, self.flat = storage, leaf, leaf
        while self.flat.op is Op.RESHAPE or self.flat.op is Op.SHRINK:
            self.flat = self.flat.src[0]

    def used(self, shown: bool) -> bool:
        """True if a lazy graph or another tensor uses the node; `shown`: the tensor itself does."""
        less = 0 if shown else 1
        below = self.flat_alone - (less if self.flat is self.leaf else 0)
        return references(self.leaf) > self.alone - less or references(self.flat) > below

    def detach(self, device: AnyDevice) -> None:
        """Leave the values to those who use the node: a copy for them; this memory gets a new node."""
        old, buffer = self.storage, self.storage.ensure()
        fresh = Storage(old.size, old.dtype, old.device)
        fresh.buffer = buffer
        old.buffer = copy_of(device, old)
        self.show(fresh, buffer_leaf(fresh, self.leaf.shape))

    def follow(self, device: AnyDevice) -> None:
        """Take over the tensor's newly assigned values; leave the old ones to their other users."""
        t = self.ref()
        shown = t is not None and t.uop is self.leaf
        if shown and not self.used(True):
            return
        if t is not None and not shown:
            realize([t])
        if self.used(shown):
            self.detach(device)
        if t is None:
            return
        if not shown:
            other = memory_of(t.uop)
            if other is not self.storage:
                Staging(self.storage).load(device, other)
        t.uop = self.leaf
        self.storage.owner = weakref.ref(t)


@lru_cache(64)
def _references_when_alone(kind: Any, reshaped: bool) -> tuple[int, int]:
    """The references to a node that its arena, one tensor and one `Written` hold, and of the BUFFER below."""
    storage = Storage(1, dtypes.float32, "cpu")
    tensor = kind._from_uop(buffer_leaf(storage, (1, 1) if reshaped else (1,)), "cpu")
    h = Written.__new__(Written)
    h.show(storage, tensor.uop)
    return references(h.leaf), references(h.flat)


class CopyBack:
    """The step that takes new values of state from where they were computed to where the tensor shows them."""

    __slots__ = ("aside", "device", "state")

    def __init__(self, device: AnyDevice, state: Written, aside: Storage) -> None:
        self.device, self.state, self.aside = device, state, aside

    def run(self) -> None:
        state = self.state.storage
        self.device.copy(self.aside.ensure(), state.ensure(), state.size, state.dtype)


def in_turn(steps: Sequence[Any], kept: Collection[int]) -> list[Any]:
    """Steps over memory that is written again after its last reader, by a step that writes as much: a plan's own memory
    is planned, and what goes from one launch or exchange to another is not.

    Args:
        kept: the ids of storages that keep their memory.
    """
    computing = [step for step in steps if not isinstance(step, CopyBack)]
    last = {id(s): n for n, step in enumerate(computing) for s in (*step.inputs, *step.outputs)}
    seen = {*kept, *[id(step.aside) for step in steps if isinstance(step, CopyBack)]}
    place: dict[int, Storage] = {}
    free: dict[Any, list[Storage]] = {}
    for n, step in enumerate(computing):
        seen |= {id(s) for s in step.inputs} - place.keys()  # from outside: nothing here has written it
        for s in step.outputs:
            if id(s) not in seen and id(s) not in place:
                waiting = free.get((s.size, s.dtype))
                place[id(s)] = waiting.pop() if waiting else s
        for s in {id(s): s for s in (*step.inputs, *step.outputs)}.values():
            if last[id(s)] == n and id(s) in place:
                free.setdefault((s.size, s.dtype), []).append(place[id(s)])
    return [step if isinstance(step, CopyBack) else _over(step, place) for step in steps]


def _over(step: Any, place: Mapping[int, Storage]) -> Any:
    inputs, outputs = ([place.get(id(s), s) for s in several] for several in (step.inputs, step.outputs))
    return replace(step, inputs=inputs, outputs=outputs)
