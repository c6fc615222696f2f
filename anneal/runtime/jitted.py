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
- a tensor made from host data inside the function is a constant where the run before made it of the same values; of
  other values it is an error, as are a random number without a device counter and a read-back: it would be frozen.
  An array as an argument is made a tensor first.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anneal import settings
from anneal.backend import Storage, get_device
from anneal.errors import JitError
from anneal.runtime.arguments import ArrayGiven, difference, flatten, rebuild, with_tensors
from anneal.runtime.calls import exchanges
from anneal.runtime.capture import ARGUMENT, Capture, Recorded
from anneal.runtime.context import here
from anneal.runtime.execution import realize
from anneal.runtime.guards import Failure, Guards
from anneal.runtime.handle import INSIDE, Handle
from anneal.runtime.held import copy_of
from anneal.runtime.nodes import Made, buffer_leaf, differing, storage_of
from anneal.runtime.recording import Recording, recording
from anneal.schedule import BUILDING, Origin, Plan
from anneal.uop import toposort
from anneal.uop.sizes import bound_sizes

__all__ = ["Jit", "Recapture", "jit"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")

# Captures of one function; beyond that the one goes that was longest unused, and its memory with it.
_CAPTURES = 128
_REASONS = 32  # the last reasons for captures that a function keeps


@dataclass(frozen=True, slots=True)
class Recapture:
    """The reason of a second capture of a function: a guard failed, or its arguments are of another kind."""

    function: str
    cause: Failure

    def __str__(self) -> str:
        return f"{self.function} is captured again: {self.cause}"


@dataclass(slots=True)
class _Call:
    """One call that runs the function: the tensors of its arguments, their storages, and which tensor shows which."""

    args: Any
    kwargs: Any
    tensors: list[Handle]
    places: list[int]
    storages: list[Storage]
    bound: dict[str, int]  # the values of its Variables


class Jit(Generic[P, R]):
    """A function with its captures; see the module's docstring."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.captures: dict[Any, Capture | None] = {}
        self.read: dict[Any, list[weakref.ref[Handle]]] = {}  # after the first call: the tensors that it read
        self.returned: dict[Any, list[weakref.ref[Handle]]] = {}  # and the results of the first call
        self.made: dict[Any, list[Made]] = {}  # what the last run made from host data
        self.recaptures: deque[Recapture] = deque(maxlen=_REASONS)  # the last of them
        update_wrapper(self, function)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: Jit[Concatenate[T, Q], R], instance: T, owner: type | None = None) -> Jit[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Jit[..., R]:
        """Bind to an instance: each instance has captures of its own."""
        if instance is None:
            return self
        name = f"__jit_{self.function.__name__}"
        bound: Jit[..., R] | None = instance.__dict__.get(name)
        if bound is None:
            bound = instance.__dict__[name] = Jit(self.function.__get__(instance, owner))
        return bound

    def plans(self) -> list[tuple[Plan, Sequence[Origin]]]:
        """The plans that replays run, capture by capture, each with the origins of what it computes, by place."""
        return [found for capture in self.captures.values() if capture is not None for found in capture.plans()]

    def reset(self) -> None:
        """Forget every capture, and give back its memory."""
        with BUILDING:
            for captured in self.captures.values():
                if captured is not None:
                    captured.close()
        self.captures.clear()
        self.read.clear()
        self.returned.clear()
        self.made.clear()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if here.recordings or here.depth or here.in_host_call:
            # a jit inside a jit is part of the outer one; a transform looks into the function; the host computes none
            return self.function(*args, **kwargs)
        if here.watchers:
            return self._watched(*args, **kwargs)
        tensors: list[Handle] = []
        bound: dict[str, int] = {}
        try:
            key = flatten((args, kwargs), tensors, bound)
        except ArrayGiven:
            args, kwargs = with_tensors((args, kwargs))
            tensors.clear()
            key = flatten((args, kwargs), tensors, bound)
        for t in tensors:
            if t._wants:
                raise JitError("an argument of a jit function may not require a gradient; read the parameter inside it")
        if tensors:
            realize(tensors)
        number: dict[Storage, int] = {}  # one memory passed twice is one argument
        places = [number.setdefault(_storage(t), len(number)) for t in tensors]
        storages = list(number)
        key = (key, tuple(places))
        with BUILDING:
            captured = self.captures.get(key)
            if captured is None or captured.generation != captured.tensors.generation or captured.guards.failed():
                return self._record(key, captured, _Call(args, kwargs, tensors, places, storages, bound))
            if len(self.captures) > _CAPTURES // 2:
                self.captures[key] = self.captures.pop(key)  # the one used last
            if captured.steps_aside:
                return captured.replay_alone(storages, bound)  # type: ignore[no-any-return]
            lock = captured.lock
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

    def _record(self, key: Any, captured: Capture | None, call: _Call) -> R:
        """Run the function as it stands; from the second time on, or where `captured` is out of date only by its
        generation, capture what it does. Asks for BUILDING: what other threads do is not taken for the function's.
        """
        self._tell(key, captured)
        if captured is not None:
            captured.check_idle()
            if captured.generation == captured.tensors.generation:
                del self.captures[key]  # a guard failed: it starts anew
            captured.close()
        # what the function reads is computed first: a pending assignment is no part of the function
        realize([live for r in self.read.pop(key, ()) if (live := r()) is not None])
        realize(_pending_gradients())
        first = key not in self.captures
        given, args, kwargs, copies = call.tensors, call.args, call.kwargs, call.storages
        if not first:
            guards = Guards(self.function, args, kwargs)
            given, args, kwargs, copies = _copied(call)
        with recording(kept=not first) as record:
            result = self.function(*args, **kwargs)
            results: list[Handle] = []
            flatten(result, results, None)
            # what the function assigned and left lazy is part of the call
            realize(list({id(t): t for t in (*results, *record.pending())}.values()))
        if any(t is r() for t in given for r in record.assigned):
            raise JitError(
                "a jit function assigned to its argument, or changed it in place; return the new value (x = x + y for "
                "x += y), or assign to a tensor that it reads"
            )
        graded = _taken(record)
        record.frozen = differing(self.made.get(key, ()), record.made)
        self.made[key] = [replace(m, storage=None) for m in record.made]
        if first:
            self.captures[key] = None
            self.read[key] = record.owners()
            self.returned[key] = [weakref.ref(r) for r in results]
            return result
        # what is returned again and again was there before: it is state
        again = [r for r, old in zip(results, self.returned[key], strict=False) if r is old()]
        device = get_device(results[0].device if results else record.device())
        with device.lock:
            made = Capture(
                Recorded(
                    _name_of(self.function), device, record, copies, result, results, again, guards, call.bound, graded
                )
            )
            self._keep(key, made)
            return made.results(call.storages)  # type: ignore[no-any-return]

    def _watched(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function as it stands, as at the first call: of replays nobody could say which graph they compute."""
        with recording(kept=False) as record:
            result = self.function(*args, **kwargs)
            results: list[Handle] = []
            flatten(result, results, None)
            realize(list({id(t): t for t in (*results, *record.pending())}.values()))
        return result

    def _keep(self, key: Any, made: Capture) -> None:
        """Put a capture in its place; the one that was longest unused goes where there are too many."""
        self.captures[key] = made
        if len(self.captures) > _CAPTURES:
            unused = next(iter(self.captures))
            if (old := self.captures.pop(unused)) is not None:
                old.close()
            self.returned.pop(unused, None)
            self.made.pop(unused, None)

    def _tell(self, key: Any, captured: Capture | None) -> None:
        """Note why the function runs although it has a capture; ANNEAL_DEBUG=2 shows it."""
        if captured is not None:
            now = captured.tensors
            if captured.generation != now.generation:
                cause = Failure(f"guard generation ({now.outdated})", str(captured.generation), str(now.generation))
            else:
                cause = captured.guards.failure() or Failure("a guard", "held", "failed")
        elif self.captures and key not in self.captures:
            last, last_places = next(reversed(self.captures))
            cause = difference(last, key[0]) or Failure("arguments that show one memory", str(last_places), str(key[1]))
        else:
            return
        recapture = Recapture(_name_of(self.function), cause)
        self.recaptures.append(recapture)
        if settings.current().debug >= 2:
            print(f"anneal: {recapture}", file=sys.stderr)


def _copied(call: _Call) -> tuple[list[Handle], Any, Any, list[Storage]]:
    """The arguments with copies for tensors: the caller's are not overwritten by the capture, and what the function
    reads by itself is no argument, even if it is passed as well. Returns the tensors, args, kwargs and storages.
    """
    copies = [_duplicate(s) for s in call.storages]
    sizes = partial(bound_sizes, values=call.bound, tag=ARGUMENT)
    given = [
        type(t)._from_uop(buffer_leaf(copies[n], sizes(t.uop.shape) if call.bound else t.uop.shape), t.device)
        for n, t in zip(call.places, call.tensors, strict=True)
    ]
    args, kwargs = rebuild((call.args, call.kwargs), iter(given), sizes)
    return given, args, kwargs, copies


def _pending_gradients() -> list[Handle]:
    """The gradients that leaves have now, but for those that another thread is taking: their values are its own to
    compute, together with other participants where a group adds them up.
    """
    tensors = here.context.tensors
    elsewhere = {n for r in tensors.recordings for n in r.graded}
    found = [t._grad for t in tensors.live_leaves() if id(t) not in elsewhere]
    there = [g for g in found if g is not None and g is not INSIDE]
    return [g for g in there if not (tensors.host_calls and exchanges(g.uop))]


def _taken(record: Recording) -> list[weakref.ref[Handle]]:
    """The leaves whose gradient a run took. It stays inside: they show INSIDE now.

    Raises JitError where it added to a gradient from outside.
    """
    used = {id(s) for step in record.steps for s in step.inputs}
    leaves = here.context.tensors.leaves
    graded = []
    for n, (ref, old) in record.graded.items():
        leaf = ref()
        if leaf is None or leaves.get(n) is not leaf:
            continue
        new = leaf._grad
        if new is not None and new is not INSIDE and new is not old:
            shown = None if old is None or old is INSIDE else storage_of(old.uop)
            if shown is not None and (id(shown) in used or any(u.arg is shown for u in toposort((new.uop,)))):
                raise JitError(
                    f"a jit function added to the gradient of a tensor of shape {leaf.uop.shape} from outside; take "
                    "the gradient and use it inside one function, and start with zero_grad()"
                )
            leaf._grad = INSIDE
            graded.append(ref)
    return graded


def _name_of(function: Any) -> str:
    """A function's name, with its file and line where it has them."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _storage(t: Handle) -> Storage:
    s = storage_of(t.uop)
    assert s is not None, t.uop
    return s


def _duplicate(s: Storage) -> Storage:
    copy = Storage(s.size, s.dtype, s.device)
    copy.buffer = copy_of(get_device(s.device), s)
    return copy


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
