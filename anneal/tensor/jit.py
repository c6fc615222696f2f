"""jit: capture what a function runs, and replay it without tracing again.

    @jit
    def step(x, y):
        loss = model(x, y)
        loss.backward()
        optimizer.step(loss)
        return loss

The first call with given shapes runs as it stands (and lets optimisers make their state); the second is captured; later
ones copy the arguments into the captured inputs and relaunch the captured kernels. Tensors that the function reads and
assigns (parameters, moments) are updated in place. Nothing stale is replayed:

- another shape, dtype, device or structure of the arguments, or another value of an argument that is not a tensor, is
  captured on its own;
- a tensor that the function reads and somebody reassigned meanwhile is read anew;
- a lazy tensor that still needs a value about to be overwritten keeps a copy, and so does a result of an earlier call;
- a tensor that was lazy when the function read it and was assigned since makes it capture again;
- gradients taken inside stay inside: reading `.grad` afterwards is an error, and so is adding to one from outside;
- where Python values that it sees have changed (its closure, globals and attributes that it names, the items of lists
  and dicts, a module's attributes, a setting of an optimiser), it runs as at the first call;
- a tensor made from host data, a random number without a device counter, or a read-back inside the function is an
  error: its value would be frozen.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, update_wrapper
from operator import attrgetter, is_
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from anneal.backend import AnyDevice, Storage, get_device, register
from anneal.schedule import BUILDING, Plan, donate
from anneal.tensor import execution as _realize
from anneal.tensor._arguments import JitError, flatten, rebuild
from anneal.tensor._base import _MODE, INSIDE, capture_epoch, leaves
from anneal.tensor._surroundings import Surroundings
from anneal.uop import Op, UOp, arena, const, dtypes, toposort
from anneal.uop.sizes import bound_sizes, symbolic_arg, variables_of

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["JitError", "capturing", "forbid_in_capture", "forbid_in_jit", "jit"]

P = ParamSpec("P")
R = TypeVar("R")


class _Active(threading.local):
    """The runs that a thread records, the innermost last."""

    def __init__(self) -> None:
        self.runs: list[_Recorder] = []


_ACTIVE = _Active()


def capturing() -> bool:
    """Whether a jit function is running its Python in this thread right now."""
    return bool(_ACTIVE.runs)


def forbid_in_jit(what: str, fix: str) -> None:
    """Raise JitError if a jit function is running: `what` would freeze, `fix` says what to do instead."""
    if _ACTIVE.runs:
        raise JitError(f"{what} inside a jit function would be frozen at its first value; {fix}")


def forbid_in_capture(what: str, fix: str) -> None:
    """Raise JitError if a run is being captured: replays would not do `what`, `fix` says what to do instead.

    The first call of a jit function is no such run: what is made there once and kept is seen by the second.
    """
    if _ACTIVE.runs and _ACTIVE.runs[-1].kept:
        raise JitError(f"{what} inside a jit function would not be done again by its replays; {fix}")


class _Recorder:
    """What one run of the function did; `kept`: it becomes a capture."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.runs: list[tuple[Plan, list[Storage], list[Storage], dict[str, int]]] = []
        self.realized: list[weakref.ref[Tensor]] = []
        self.assigned: list[weakref.ref[Tensor]] = []
        self.made: list[Storage] = []

    def saw(self, plan: Plan, inputs: list[Storage], outputs: list[Storage]) -> None:
        self.runs.append((plan, inputs, outputs, _realize.given_values()))


@contextmanager
def _recording(kept: bool) -> Iterator[_Recorder]:
    r = _Recorder(kept)
    watching, noted = _realize.watching, Storage.noted
    _ACTIVE.runs.append(r)
    watching.observers.append(r.saw)
    watching.realized.append(r.realized)
    watching.assigned.append(r.assigned)
    outer, noted.made = noted.made, r.made
    try:
        yield r
    finally:
        noted.made = outer
        watching.assigned.pop()
        watching.realized.pop()
        watching.observers.pop()
        _ACTIVE.runs.pop()


class _Slot:
    """Memory of a capture's own that values are copied into before the kernels read it."""

    __slots__ = ("_loaded", "memory")

    def __init__(self, memory: Storage) -> None:
        self.memory = memory
        memory.reused = True
        self._loaded: weakref.ref[Storage] | None = None

    def load(self, device: AnyDevice, other: Storage) -> None:
        """Copy the values of `other` in, unless they are there already."""
        mine = self.memory
        if self._loaded is not None and self._loaded() is other and not other.reused:
            return
        if other.host is not None:
            device.upload(mine.ensure(), other.host)
        else:
            device.copy(other.ensure(), mine.ensure(), mine.size, mine.dtype)
        self._loaded = weakref.ref(other)


class _Held:
    """A result of symbolic shape: each call gets a copy of its own."""

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage


_ARGUMENT = "argument"  # the tag of the bindings that a captured function is called with


class _Read:
    """A tensor outside the function that the kernels read and do not write.

    They read `bound`, the buffer it showed at the capture, for as long as it shows that one (another function may be
    updating it there); memory of their own once it shows something else.
    """

    __slots__ = ("_own", "bound", "ref", "storage")

    def __init__(self, tensor: Tensor, storage: Storage) -> None:
        self.ref = weakref.ref(tensor)
        self.storage = storage  # what the tensor shows
        self.bound = storage.ensure()
        self._own: _Slot | None = None

    def follow(self, captured: _Captured) -> None:
        """Make the kernels read what the tensor shows now."""
        t = self.ref()
        if t is not None:
            t.realize()
            shown = _realize.storage_of(t.uop)
            assert shown is not None
            self.storage = shown
        now = self.storage
        if now.buffer is self.bound and now.host is None:
            return
        if self._own is None:
            self._own = _Slot(Storage(now.size, now.dtype, now.device))
            old, self.bound = self.bound, self._own.memory.ensure()
            captured.rebind(old, self.bound)
        self._own.load(captured.device, now)


_LEAF, _UOP = attrgetter("leaf"), attrgetter("uop")


# A result of at most so many elements gets new memory for each call; a larger one is copied if somebody still has it
# when the next call needs its memory.
_SMALL_RESULT = 1 << 16
# Captures of one function; beyond that the one goes that was longest unused, and its memory with it.
_CAPTURES = 128


def _nobody() -> None:
    """The reference to a tensor that is not there."""


class _Written:
    """Memory that the kernels write and a tensor shows through the node `leaf`: state, or a result handed out.

    `alone` and `flat_alone` are the references to `leaf` and to the BUFFER below it when nobody else uses them.
    """

    __slots__ = ("alone", "flat", "flat_alone", "leaf", "ref", "storage")

    def __init__(self, tensor: Tensor, storage: Storage) -> None:
        self.ref: Callable[[], Tensor | None] = weakref.ref(tensor)
        self.alone, self.flat_alone = _references_when_alone(tensor.uop.op is Op.RESHAPE)
        self.show(storage, tensor.uop)

    def like(self, other: _Written) -> None:
        """Make this new memory, which nobody shows yet, for what `other` holds."""
        self.ref = _nobody
        self.alone, self.flat_alone = other.alone, other.flat_alone
        storage = Storage(other.storage.size, other.storage.dtype, other.storage.device)
        above: list[UOp] = []
        u = other.leaf
        while u.op is not Op.BUFFER:
            above.append(u)
            u = u.src[0]
        nodes = arena()
        leaf = nodes.again(u, (), storage)
        while above:
            u = above.pop()
            leaf = nodes.again(u, (leaf, *u.src[1:]), u.arg)
        self.show(storage, leaf)

    def show(self, storage: Storage, leaf: UOp) -> None:
        storage.reused = True
        self.storage, self.leaf, self.flat = storage, leaf, leaf
        while self.flat.op is Op.RESHAPE or self.flat.op is Op.SHRINK:
            self.flat = self.flat.src[0]

    def used(self, shown: bool) -> bool:
        """Whether a lazy graph or another tensor uses the node; `shown`: the tensor itself does."""
        less = 0 if shown else 1
        below = self.flat_alone - (less if self.flat is self.leaf else 0)
        return getrefcount(self.leaf) > self.alone - less or getrefcount(self.flat) > below

    def detach(self, device: AnyDevice) -> None:
        """Leave the values to those who use the node: a copy for them; this memory gets a new node."""
        old, buffer = self.storage, self.storage.ensure()
        fresh = Storage(old.size, old.dtype, old.device)
        fresh.buffer = buffer
        old.buffer = _copy_of(device, old)
        self.show(fresh, _realize.buffer_leaf(fresh, self.leaf.shape))

    def follow(self, device: AnyDevice) -> None:
        """Take over what the tensor was assigned meanwhile; leave the old values to whoever still uses them."""
        t = self.ref()
        shown = t is not None and t.uop is self.leaf
        if shown and not self.used(True):
            return
        if t is not None and not shown:
            t.realize()
        if self.used(shown):
            self.detach(device)
        if t is None:
            return
        if not shown:
            other = _realize.storage_of(t.uop)
            assert other is not None
            if other is not self.storage:
                _Slot(self.storage).load(device, other)
        t.uop = self.leaf
        self.storage.owner = weakref.ref(t)


@cache
def _references_when_alone(reshaped: bool) -> tuple[int, int]:
    """What `getrefcount` says of a node that its arena, one tensor and one `_Written` hold, and of the BUFFER below."""
    from anneal.tensor._tensor import Tensor

    storage = Storage(1, dtypes.float32, "cpu")
    tensor = Tensor._from_uop(_realize.buffer_leaf(storage, (1, 1) if reshaped else (1,)), "cpu")
    h = _Written.__new__(_Written)
    h.show(storage, tensor.uop)
    return getrefcount(h.leaf), getrefcount(h.flat)


def _copy_of(device: AnyDevice, storage: Storage) -> Any:
    """A new buffer with the contents of `storage`."""
    with device.lock:
        fresh = device.alloc(storage.size, storage.dtype)
        device.copy(storage.ensure(), fresh, storage.size, storage.dtype)
    return fresh


class _Captured:
    """One captured run, ready to be replayed.

    `arguments` are the storages it was captured with; `state` are results that were there before the call.
    """

    def __init__(
        self,
        name: str,
        device: AnyDevice,
        record: _Recorder,
        arguments: list[Storage],
        result: Any,
        results: list[Tensor],
        state: list[Tensor],
        surroundings: Surroundings,
        graded: list[weakref.ref[Tensor]],
    ) -> None:
        from anneal.tensor._tensor import Tensor

        self.name, self.device = name, device
        self.surroundings = surroundings
        self.bound: dict[str, int] = {}  # the values of the Variables among the arguments
        self.graded = graded  # leaves whose gradient the function took
        internal = {id(s) for _, _, outputs, _ in record.runs for s in outputs}
        given = {id(s): n for n, s in enumerate(arguments)}
        made = {id(s) for s in record.made if s not in arguments}
        outside: dict[int, Storage] = {}
        for _, inputs, _, _ in record.runs:
            for s in inputs:
                if id(s) not in internal and id(s) not in given:
                    outside[id(s)] = s
                    if id(s) in made:
                        raise JitError(
                            "a tensor made from host data inside a jit function would be frozen at its first value; "
                            "make it outside the function, or pass it as an argument"
                        )
        passing = {id(r) for r in results} - {id(r) for r in state}
        # state: tensors that outlive the call and now show an output of it
        now: dict[int, Tensor] = {}
        for ref in record.realized:
            t = ref()
            shown = _realize.storage_of(t.uop) if t is not None else None
            if t is not None and shown is not None and id(shown) in internal and id(t) not in passing:
                now[id(shown)] = t
        self.reads: dict[int, _Read] = {}  # by storage
        self.state: dict[int, _Written] = {}
        # results in memory of their own: that of the coming call, and of the calls that are prepared after it
        self.coming: dict[int, deque[_Written]] = {}
        pairs: dict[int, Storage] = {}  # id of the storage read at the start -> storage that carries the state on
        for s in outside.values():
            owner = s.owner() if s.owner is not None else None
            if owner is None:
                continue
            current = _realize.storage_of(owner.uop)
            if current is s:
                self.reads[id(s)] = _Read(owner, s)
            elif current is not None and id(current) in now:
                pairs[id(s)] = current
        for key, t in now.items():
            shown = _realize.storage_of(t.uop)
            assert shown is not None
            self.state[key] = _Written(t, shown)
            if any(v.tag is _ARGUMENT for n in t.shape for v in variables_of(n)):
                raise JitError(
                    f"a jit function assigned values of symbolic shape {t.shape} to a tensor that outlives the call; give it "
                    "the largest size, and assign to a part of it"
                )
        self.epoch = capture_epoch()
        self.arguments = [_Slot(s) for s in arguments]
        # the nest alone: its tensors hold memory that is handed out
        blank = Tensor._from_uop(const(dtypes.float32, 0), device.name)
        self.result = rebuild(result, iter([blank] * len(results)), lambda sizes: sizes)
        self.sources = [self._source(r, internal, given, any(r is t for t in state)) for r in results]
        self._states = list(self.state.values())
        self._watch()
        self._bind(record, pairs)
        for coming in self.coming.values():
            coming.extend([coming[0]] * max(run.batch.lag for run in self.runs))
        register(self)

    def _source(
        self, result: Tensor, internal: set[int], given: dict[int, int], state: bool
    ) -> Callable[[list[Storage]], Tensor]:
        """How a replay makes a result, from the arguments it is called with."""
        from anneal.tensor._tensor import Tensor

        leaf, shape, device = result.uop, result.shape, self.device
        shown = _realize.storage_of(leaf)
        if state:
            return lambda arguments: result
        if shown is not None and id(shown) in given:
            number = given[id(shown)]
            return lambda arguments: Tensor._from_uop(
                _realize.buffer_leaf(arguments[number], self._now(shape)), device.name
            )
        if shown is None:
            return lambda arguments: Tensor._from_uop(leaf, device.name)
        key = id(shown)
        owner = shown.owner() if shown.owner is not None else None
        if key not in internal and owner is not None:
            self.reads.setdefault(key, _Read(owner, shown))
        held: _Written | _Read | _Held | None = self.state.get(key) or self.reads.get(key)
        if held is None and key in internal and symbolic_arg(shape):
            held = _Held(shown)
        if held is not None:

            def copy(arguments: list[Storage]) -> Tensor:
                """The result looks at state: later calls change that, and must not change this."""
                own = Storage(held.storage.size, held.storage.dtype, device.name)
                own.buffer = _copy_of(device, held.storage)
                return Tensor._from_uop(_realize.buffer_leaf(own, self._now(shape)), device.name)

            return copy
        if key not in internal:
            return lambda arguments: Tensor._from_uop(leaf, device.name)  # a constant
        if key not in self.coming:
            self.coming[key] = deque((_Written(result, shown),))

        def hand_out(arguments: list[Storage]) -> Tensor:
            mine = self.coming[key][0]
            t = Tensor._from_uop(
                mine.leaf if shape == mine.leaf.shape else _realize.buffer_leaf(mine.storage, shape), device.name
            )
            mine.ref = weakref.ref(t)
            return t

        return hand_out

    def _bind(self, record: _Recorder, pairs: dict[int, Storage]) -> None:
        """State is read from and written to the storage that carries it."""
        self.runs: list[_realize.Execution] = []
        self.copies: list[tuple[_Written, Storage]] = []  # state, and where its new values are computed
        carried = {id(v): k for k, v in pairs.items()}
        last_reader = {id(s): n for n, (_, inputs, _, _) in enumerate(record.runs) for s in inputs}
        # Memory that the kernels use belongs to the capture, whatever becomes of the tensors that showed it: constants, what
        # one run leaves to the next. Results that are handed out have new memory each time.
        self.memory: list[Storage] = []
        for n, (plan, inputs, outputs, values) in enumerate(record.runs):
            wanted: dict[int, int] = {}
            for value, s in zip(plan.outputs, outputs, strict=True):
                source = carried.get(id(s))
                if source is not None and last_reader[source] == n:
                    wanted[value] = max(i for i, x in enumerate(inputs) if id(x) == source)
            done: dict[int, int] = {}
            if wanted:
                plan, done = donate(plan, wanted, self.device.cost_model.concurrent)
            bound_in = [pairs.get(id(s), s) for s in inputs]
            bound_out = list(outputs)
            for k, (value, s) in enumerate(zip(plan.outputs, outputs, strict=True)):
                source = carried.get(id(s))
                if source is not None and value not in done and (source in last_reader and last_reader[source] >= n):
                    aside = Storage(s.size, s.dtype, s.device)
                    bound_out[k] = aside
                    self.copies.append((self.state[id(s)], aside))
            self.memory += [s for s in (*bound_in, *bound_out) if id(s) not in self.coming]
            self.runs.append(_realize.Execution(plan, self.device, bound_in, bound_out, values))

    def prepare(self, arguments: list[Storage], bound: dict[str, int]) -> None:
        """Everything of a replay that may have to compute something first: asks for BUILDING and the device's lock."""
        device = self.device
        if bound:
            self.bound = bound
            changed = [run.give(bound) for run in self.runs]
            if any(changed):
                self._restart()
        for slot, theirs in zip(self.arguments, arguments, strict=True):
            slot.load(device, theirs)
        self._protect()

    def launch(self, arguments: list[Storage]) -> Any:
        """The replay, once it is prepared: asks for the device's lock alone. Returns the results."""
        device = self.device
        small = {
            id(w): w
            for w in [coming[-1] for coming in self.coming.values()]
            if w.storage.size <= _SMALL_RESULT
            and (b := w.storage.buffer) is not None
            and all(r.batch.exchanges(b) for r in self.runs)
        }
        fresh: dict[int, _Written] = {}

        def exchange() -> list[tuple[Any, Any]]:
            """New memory for the next run's results, made while this one runs."""
            if not fresh:
                for key, written in small.items():
                    fresh[key] = _Written.__new__(_Written)
                    fresh[key].like(written)
            return [(w.storage.buffer, fresh[key].storage.ensure()) for key, w in small.items()]

        for run in self.runs:
            run.run(exchange if small else None)
        for coming in self.coming.values():
            coming.append(fresh.get(id(coming[-1]), coming[-1]))
        for state, aside in [(h.storage, aside) for h, aside in self.copies]:
            device.copy(aside.ensure(), state.ensure(), state.size, state.dtype)
        for r in self.graded:
            if (t := r()) is not None:
                t._grad = INSIDE
        results = self.results(arguments)
        for coming in self.coming.values():
            coming.popleft()
        return results

    def close(self) -> None:
        """Let go of the memory now: results and the capture know each other, and would wait for a collection of cycles."""
        with self.device.lock:
            for held in (self.sources, self.runs, self.coming, self.memory, self.arguments):
                held.clear()

    def reserved(self) -> tuple[str, str, int]:
        """What this holds beside the tensors that others can see: see `memory_report`."""
        memory = [slot.memory for slot in self.arguments]
        memory += [r._own.memory for r in self.reads.values() if r._own is not None]
        memory += [aside for _, aside in self.copies]
        nbytes = sum([s.size * s.dtype.itemsize for s in memory])
        nbytes += sum([size * dtype.itemsize for run in self.runs for size, dtype in run.plan.temporaries])
        return self.device.name, f"jit function {self.name}: temporaries and arguments", nbytes

    def rebind(self, old: Any, new: Any) -> None:
        """Have the kernels use the buffer `new` in place of `old`, from the coming run on."""
        for run in self.runs:
            run.rebind(old, new)
        self._restart()

    def _restart(self) -> None:
        """What is prepared of the coming runs is prepared anew: they all write what the last of them was to."""
        for run in self.runs:
            run.batch.restart()
        for coming in self.coming.values():
            for n in range(len(coming)):
                coming[n] = coming[-1]

    def results(self, arguments: list[Storage]) -> Any:
        """What the function returns when it is called with `arguments`, after the kernels have run."""
        return rebuild(self.result, iter([make(arguments) for make in self.sources]), self._now)

    def _now(self, sizes: Any) -> Any:
        """A size, or a shape, as this call's values of Variables make it."""
        return bound_sizes(sizes, self.bound) if self.bound else sizes

    def _watch(self) -> None:
        """Note the nodes of the state, and the references to each when nobody else uses them; the list is one too."""
        self._nodes: list[UOp] = []
        self._references: list[int] = []
        for h in self._states:
            more = 2 if h.flat is h.leaf else 1
            self._nodes += (h.leaf, h.flat)
            self._references += (h.alone + more, h.flat_alone + more)

    def _protect(self) -> None:
        """Read reassigned tensors anew; leave a copy of what is about to be overwritten to those who still use it."""
        buffer, reshape = Op.BUFFER, Op.RESHAPE
        for r in self.reads.values():  # of many weights, at each call: as few steps as can be
            t, s = r.ref(), r.storage
            if t is not None and s.buffer is r.bound:
                u = t.uop
                if u.op is reshape:
                    u = u.src[0]  # the memory that it gives a shape
                if u.op is buffer and u.arg is s:
                    continue
            r.follow(self)
        state = self._states
        try:
            untouched = all(map(is_, map(_UOP, [h.ref() for h in state]), map(_LEAF, state)))
        except AttributeError:  # one of them is gone
            untouched = False
        if not untouched or list(map(getrefcount, self._nodes)) != self._references:
            self._nodes.clear()
            for h in state:
                h.follow(self.device)
            self._watch()
        for h, *_ in self.coming.values():
            if h.ref() is not None or h.used(False):
                h.detach(self.device)


def _device_of(record: _Recorder) -> str:
    for _, inputs, outputs, _ in record.runs:
        for s in (*outputs, *inputs):
            return s.device
    raise JitError("a jit function ran nothing: it must realize or return at least one tensor")


class Jit(Generic[P, R]):
    """A function with its captures; see the module's docstring."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.captures: dict[Any, _Captured | None] = {}
        self.read: dict[Any, list[weakref.ref[Tensor]]] = {}  # after the first call: the tensors that it read
        self.returned: dict[Any, list[weakref.ref[Tensor]]] = {}  # and the results of the first call
        update_wrapper(self, function)

    def __get__(self, instance: object, owner: type | None = None) -> Jit[..., R]:
        """Bind to an instance: each instance has captures of its own."""
        if instance is None:
            return self
        name = f"__jit_{self.function.__name__}"
        bound = instance.__dict__.get(name)
        if bound is None:
            bound = instance.__dict__[name] = Jit(self.function.__get__(instance, owner))
        return bound

    def reset(self) -> None:
        """Forget every capture, and give back its memory."""
        with BUILDING:
            for captured in self.captures.values():
                if captured is not None:
                    captured.close()
        self.captures.clear()
        self.read.clear()
        self.returned.clear()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:

        if _ACTIVE.runs or _MODE.depth:
            # a jit inside a jit is part of the outer one, and a transform looks into the function
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        bound: dict[str, int] = {}
        key = flatten((args, kwargs), tensors, bound)
        for t in tensors:
            if t.requires_grad:
                raise JitError("an argument of a jit function may not require a gradient; read the parameter inside it")
        if tensors:
            _realize.realize(tensors)
        number: dict[Storage, int] = {}  # one memory passed twice is one argument
        places = [number.setdefault(_storage(t), len(number)) for t in tensors]
        storages = list(number)
        key = (key, tuple(places))
        with BUILDING:
            captured = self.captures.get(key)
            if captured is None or captured.epoch != capture_epoch() or captured.surroundings.changed():
                return self._record(key, captured, args, kwargs, tensors, places, storages, bound)
            if len(self.captures) > _CAPTURES // 2:
                self.captures[key] = self.captures.pop(key)  # the one used last
            lock = captured.device.lock
            lock.acquire()
            try:
                captured.prepare(storages, bound)
            except BaseException:
                lock.release()
                raise
        # the device stays with this thread, and others may plan and compile
        try:
            return captured.launch(storages)  # type: ignore[no-any-return]
        finally:
            lock.release()

    def _record(
        self,
        key: Any,
        captured: _Captured | None,
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        places: list[int],
        storages: list[Storage],
        bound: dict[str, int],
    ) -> R:
        """Run the function as it stands; from the second time on, or where `captured` is out of date only by its epoch,
        capture what it does. Asks for BUILDING: nothing that other threads do is to be taken for the function's."""
        from anneal.tensor._tensor import Tensor

        if captured is not None:
            if captured.epoch == capture_epoch():
                del self.captures[key]  # its surroundings have changed: it starts anew
            captured.close()
        # what the function reads is computed first: a pending assignment is no part of the function
        _realize.realize([live for r in self.read.pop(key, ()) if (live := r()) is not None])
        before = {id(t): t._grad for t in leaves() if t._grad is not None and t._grad is not INSIDE}
        _realize.realize(list(before.values()))
        first = key not in self.captures
        given = tensors
        if not first:
            surroundings = Surroundings(self.function, args, kwargs)
            # Captured with copies: the caller's tensors are not overwritten, and what the function reads by itself is
            # no argument, even if it happens to be passed as well.
            copies = [_duplicate(s) for s in storages]
            sizes = partial(bound_sizes, values=bound, tag=_ARGUMENT)
            given = [
                Tensor._from_uop(_realize.buffer_leaf(copies[n], sizes(t.shape) if bound else t.shape), t.device)
                for n, t in zip(places, tensors, strict=True)
            ]
            args, kwargs = rebuild((args, kwargs), iter(given), sizes)
        with _recording(kept=not first) as record:
            result = self.function(*args, **kwargs)
            results: list[Tensor] = []
            flatten(result, results, {})
            _settle(record, results)
        if any(t is r() for t in given for r in record.assigned):
            raise JitError(
                "a jit function assigned to its argument; return the new value, or assign to a tensor that it reads"
            )
        used = {id(s) for _, inputs, _, _ in record.runs for s in inputs}
        graded = []
        for leaf in leaves():
            old = before.get(id(leaf))
            new = leaf._grad
            if new is not None and new is not INSIDE and new is not old:
                shown = None if old is None else _realize.storage_of(old.uop)
                if shown is not None and (id(shown) in used or any(u.arg is shown for u in toposort((new.uop,)))):
                    raise JitError(
                        f"a jit function added to the gradient of a tensor of shape {leaf.shape} from outside; take the "
                        "gradient and use it inside one function, and start with zero_grad()"
                    )
                leaf._grad = INSIDE
                graded.append(weakref.ref(leaf))
        if first:
            self.captures[key] = None
            self.read[key] = _owners(record)
            self.returned[key] = [weakref.ref(r) for r in results]
            return result
        # what is returned again and again was there before: it is state
        again = [r for r, old in zip(results, self.returned[key], strict=False) if r is old()]
        device = get_device(results[0].device if results else _device_of(record))
        with device.lock:
            made = _Captured(
                _name_of(self.function), device, record, copies, result, results, again, surroundings, graded
            )
            self.captures[key] = made
            made.bound = bound
            if len(self.captures) > _CAPTURES:
                unused = next(iter(self.captures))
                if (old := self.captures.pop(unused)) is not None:
                    old.close()
                self.returned.pop(unused, None)
            return made.results(storages)  # type: ignore[no-any-return]


def _name_of(function: Any) -> str:
    """A function's name, with its file and line where it has them."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _storage(t: Tensor) -> Storage:
    s = _realize.storage_of(t.uop)
    assert s is not None, t.uop
    return s


def _duplicate(s: Storage) -> Storage:
    copy = Storage(s.size, s.dtype, s.device)
    copy.buffer = _copy_of(get_device(s.device), s)
    return copy


def _settle(record: _Recorder, results: list[Tensor]) -> None:
    """Compute the results, and with them what the function assigned and left lazy: the update is part of the call."""
    pending = [t for r in record.assigned if (t := r()) is not None]
    _realize.realize(list({id(t): t for t in (*results, *pending)}.values()))


def _owners(record: _Recorder) -> list[weakref.ref[Tensor]]:
    """The tensors whose memory the function read."""
    found = {id(s): s.owner for _, inputs, _, _ in record.runs for s in inputs if s.owner is not None}
    return list(found.values())


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Wrap `function` so that later calls replay the kernels of its second call.

    Arguments: tensors, hashable values, and nests of them. Results: tensors and nests of them.
    Raises JitError where a value would be frozen (see the module's docstring).

    >>> from anneal.tensor import Tensor
    >>> @jit
    ... def twice(x):
    ...     return x * 2
    >>> [twice(Tensor([float(i)])).item() for i in range(4)]
    [0.0, 2.0, 4.0, 6.0]
    """
    return Jit(function)
