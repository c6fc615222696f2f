"""Capture of a function's kernels, and their replay without tracing again: jit."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import update_wrapper
from types import FunctionType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

import numpy as np

from anneal import settings
from anneal.backend import Array, Storage
from anneal.errors import JitError, SettingError
from anneal.frozen import frozen
from anneal.runtime.calls import exchanges
from anneal.runtime.capture import Capture
from anneal.runtime.context import found_generation, here
from anneal.runtime.execution import realize
from anneal.runtime.flowing import Flowing, trace, unmarked
from anneal.runtime.guards import ArrayGiven, Failure, Guards, flatten
from anneal.runtime.handle import Handle, Handles, Inside, Ref, mapped
from anneal.runtime.late import tensor_class
from anneal.runtime.nodes import Constants, Made, changed_constant, differing, memory_of, storage_of
from anneal.runtime.recording import Draws, GivenCall, Recording, copied, described, difference, recording
from anneal.runtime.uses import used_unseen
from anneal.schedule import BUILDING, Plans

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


@frozen
class Recapture:
    """The reason why a function was captured again: a guard failed, or its arguments are of another kind."""

    function: str
    cause: Failure

    def __str__(self) -> str:
        return f"{self.function} is captured again: {self.cause}"


@dataclass(slots=True)
class _Last:
    """The last run, for one kind of calls, that was not a replay."""

    made: list[Made]  # from host data
    constants: Constants  # the numbers that it computed with
    drawn: Mapping[Any, Any]  # as a Recording has it
    guards: Guards | None = None  # what it saw after it; None where the next run's numbers may be others
    stamp: tuple[int, int] = (0, 0)  # the generation, and the count of flags
    doubted: bool = False  # whether its numbers were others than those of the run before
    read: Sequence[Ref] = ()  # tensors
    returned: Sequence[Ref] = ()


# The most captures of one function, and calls that may become one; beyond it the one that was unused longest is
# dropped, with its memory.
_CAPTURES = 128
_FLOWS = "gradients flow"  # in the reason
_NO_NAMES = ("dict",)  # the structure of no arguments by name
_REASONS = 32  # the last reasons for captures that a function keeps


class Jit(Generic[P, R]):
    """A function with its captures.

        @jit
        def step(x, y):
            loss = model(x, y)
            loss.backward()
            optimizer.step(loss)
            return loss

    The first call with given shapes runs uncaptured (and lets optimisers make their state); the second is captured;
    later ones copy the arguments into the captured inputs and relaunch the captured kernels. Tensors that the function
    reads and assigns (parameters, moments) are updated in place. Nothing stale is replayed:

    - another shape, dtype, device or structure of the arguments, or another value of an argument that is not a tensor,
      is captured on its own;
    - a tensor that the function reads is read again if it was reassigned meanwhile;
    - a lazy tensor that still needs a value about to be overwritten keeps a copy, and so does a result of an earlier
      call;
    - a tensor that was lazy when the function read it and was assigned since makes it capture again;
    - a call through whose results gradients flow is captured with its backward (`flowing.py`), and its results have a
      graph that ends there. A replay of a whole step, with backward and optimiser inside, has none. A call that takes
      and leaves gradients otherwise runs as it stands; `explain()` says which do, and why;
    - gradients that a whole step takes stay inside: reading `.grad` afterwards is an error;
    - where Python values that it sees have changed (its closure, globals and attributes that it names, the items of
      lists and dicts, a module's attributes, a setting of an optimiser), it runs as at the first call;
    - a tensor made from host data inside the function is a constant where the run before made it of the same values; of
      other values it is an error, as are a random number without a device counter and a read-back: it would be frozen.
      An array as an argument is made a tensor first.

    Args:
        function: what is captured, a function or a module.
        run: calls the function without capture; needed if the function's own call is this object's.
    """

    _late = False  # whether the last call was late
    _replayed: Any = None  # the key of the capture that was replayed last

    def __init__(self, function: Callable[P, R], run: Callable[P, R] | None = None) -> None:
        self.function = function
        self._run = run or function  # calls it, where the function's own call comes here
        self.captures: dict[Any, Capture | None] = {}
        self._last: dict[Any, _Last] = {}
        self.uncaptured: dict[Any, str] = {}  # kinds of calls that are not captured, each with the reason
        self.recaptures: deque[Recapture] = deque(maxlen=_REASONS)  # the last of them
        # an object's attributes are its own, and asked of it
        update_wrapper(self, function, updated=("__dict__",) if isinstance(function, FunctionType) else ())

    def __getattr__(self, name: str) -> Any:
        """The attributes of the function itself: `parameters()` and `train()` of a module."""
        if name.startswith("__") or name == "function":
            raise AttributeError(name)
        return getattr(self.function, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit[P, R]:
        """A function of its own, with no captures yet."""
        function, run = deepcopy(self.__getstate__(), memo)
        return Jit(function, getattr(function, run) if run else None)

    def __getstate__(self) -> tuple[Any, str | None]:
        return self.function, None if self._run is self.function else self._run.__name__

    def __setstate__(self, state: tuple[Any, str | None]) -> None:
        function, run = state
        self.__init__(function, getattr(function, run) if run else None)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A method by its owner and a module's function by its name, what leads here; else anew, without captures."""
        owner, name = getattr(self.function, "__self__", None), getattr(self.function, "__name__", "")
        if isinstance(getattr(type(owner), name, None), Jit):
            return getattr, (owner, name)
        return (
            name if getattr(sys.modules.get(self.__module__), name, None) is self else super().__reduce_ex__(protocol)
        )

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
        if bound is None or getattr(bound.function, "__self__", instance) is not instance:  # a copy has the original's
            bound = instance.__dict__[name] = Jit(self.function.__get__(instance, owner))
        return bound

    def __repr__(self) -> str:
        if not hasattr(self.function, "__qualname__"):  # a module, or another object that is called
            return f"jit({self.function!r})"
        count = len(list(filter(None, self.captures.values())))
        return f"<jit function {_name_of(self.function)}, {count} capture{'s' if count != 1 else ''}>"

    def plans(self) -> Plans:
        """The plans that replays run, capture by capture, each with the origins of what it computes, by place."""
        return [found for capture in self.captures.values() if capture for found in capture.plans()]

    def explain(self) -> str:
        """The kinds of calls so far, one line each: whether they are captured, or why not; and why
        something was captured again.
        """
        lines = [f"  {_said(kind)}: not captured: {why}" for kind, why in self.uncaptured.items()]
        for (kind, _), captured in self.captures.items():
            state = "ran once, and will be captured" if captured is None else captured.said()
            lines.append(f"  {_said(kind)}: {state}")
        lines += [f"  captured again: {r.cause}" for r in self.recaptures]
        name = _name_of(self.function)
        return "\n".join([name, *lines]) if lines else f"{name}: not called yet"

    def reset(self) -> None:
        """Drop every capture, and free its memory."""
        with BUILDING:
            for captured in filter(None, self.captures.values()):
                captured.close()
        for memo in (self.captures, self._last, self.uncaptured):
            memo.clear()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if here.recordings or here.depth or here.in_host_call:
            # a jit inside a jit is part of the outer one; a transform looks into the function; the host computes none
            return self._run(*args, **kwargs)
        if here.watchers:
            return self._watched(*args, **kwargs)
        tensors: list[Handle] = []
        bound: dict[str, int] = {}
        try:
            positional = "tuple", *[flatten(v, tensors, bound) for v in args]
            key: Any = "tuple", positional, flatten(kwargs, tensors, bound) if kwargs else _NO_NAMES
        except ArrayGiven:
            args, kwargs = mapped((args, kwargs), lambda v: tensor_class()(v) if isinstance(v, np.ndarray) else v)
            tensors.clear()
            key = flatten((args, kwargs), tensors, bound)
        kind = (key, here.grad, here.device, here.autocast)
        if self.uncaptured and kind in self.uncaptured:
            return self._as_it_stands(kind, args, kwargs)
        number: dict[Storage, int] = {}  # one memory passed twice is one argument
        places = []
        for t in tensors if self._late else ():
            if t.late or (s := storage_of(t.uop)) is None:
                break
            places.append(number.setdefault(s, len(number)))
        waits = self._late and len(places) == len(tensors)  # to be computed with a late call, and what comes by then
        if not waits:
            number.clear()
            if tensors:
                realize(tensors)
            places = [number.setdefault(memory_of(t.uop), len(number)) for t in tensors]
        storages, key = list(number), (kind, tuple(places))
        with BUILDING:
            captured = self.captures.get(key)
            late = isinstance(captured, Flowing) and captured.is_late()
            if waits and not late:
                realize(tensors)
            self._late = late
            if captured is None or captured.outdated():
                return self._record(key, captured, GivenCall(args, kwargs, tensors, places, storages, bound))
            if tensors and captured.changes(tensors):
                return self._as_it_stands(kind, args, kwargs)
            if here.meter and here.meter.asks_for(captured, captured.planned):
                return self._watched(*args, **kwargs)
            if len(self.captures) > _CAPTURES // 2:
                self.captures[key] = self.captures.pop(key)  # the one used last
            if isinstance(captured, Flowing):
                several = len(storages) < len(tensors)  # of one memory
                first = dict(zip(reversed(places), reversed(tensors), strict=True)) if several else {}
                given = [first[n] for n in range(len(storages))] if several else tensors
                result = captured.late(given, storages) if late else None
                return captured.replay(given, bound) if result is None else result  # type: ignore[no-any-return]
            if captured.steps_aside:
                return captured.replay_alone(storages, bound)  # type: ignore[no-any-return]
            self._replayed = key
            captured.prepare(storages, bound)
        # the device stays with this thread, and others may plan and compile
        made: R = captured.launch(storages)
        if here.meter:
            here.meter.between()
        return made

    def again(self, arrays: Sequence[Array]) -> R | None:
        """Replay the last replay's capture with contiguous arrays in place of its tensors, in their order: the result,
        or None if it cannot be replayed with arrays.
        """
        key, here_too = self._replayed, (here.grad, here.device, here.autocast)
        watched = here.recordings or here.depth or here.in_host_call or here.watchers or here.tracing
        if key is None or key[0][1:] != here_too or watched or here.meter:
            return None
        here.effects += 1
        with BUILDING:
            captured = self.captures.get(key)
            if captured is None or not captured.takes(arrays) or captured.outdated():
                return None
            captured.prepare(arrays, {})
        return captured.launch(arrays)  # type: ignore[no-any-return]

    def _record(self, key: Any, captured: Capture | None, call: GivenCall) -> R:
        """Run the function as it stands; from the second time on, or where `captured` is out of date only by its
        generation, capture what it does. The caller holds BUILDING, so that work of other threads is not recorded.
        """
        self._replayed = None
        last = self._begin_anew(key, captured)
        changed = last.guards and last.guards.failure()
        moved = captured or last.stamp != _stamp()
        first = key not in self.captures or (captured is None and changed)
        if changed or last.stamp != _stamp():
            last.guards = None
        guards = None if first else Guards(self.function, call.args, call.kwargs)
        run = copied(call) if guards else call
        with recording(kept=not first) as record:
            record.name, record.call, record.guards, record.expected = _name_of(self.function), run, guards, last.drawn
            if guards:
                record.draws, record.given = Draws(guards.generators), list(map(weakref.ref, run.tensors))
            record.result = result = self._run(*run.args, **run.kwargs)
            used_unseen(call.tensors)
            record.results = results = _parted(result, run.tensors)
            record.nodes = [(t, t.uop) for t in results]
            # a tensor that each call returns was there before the call: it is state
            record.before = [r for r, old in zip(results, last.returned) if r is old()]
            flows = here.grad and record.flows()
            traced = trace(record) if flows else None
            # what the function assigned and left lazy is part of the call
            realize(record.pending(results))
            why = record.refused(flows)
            record.nodes = []  # they hold the state as it was before
            if record.draws:
                record.draws.look()
        if isinstance(traced, str):
            why = why or f"{traced}, and gradients flow through it"
        new = set(map(id, results)) - set(map(id, record.before))
        if guards and any(r._leaf and r._wants and id(r) in new for r in results):
            why = why or "it gives a leaf that requires a gradient, and another one in each call"
        # A lazy tensor that replaced one of the state was computed by the run; a replay would begin after that.
        moved = moved and record.began(new)
        settled = self._is_settled(key, record, last, why, moved)
        if now := self._last.get(key):
            now.read = record.touched()  # it may be captured again, with assignments pending
        if guards is None or not settled:
            if now:
                now.returned = list(map(weakref.ref, results))
            return result
        if callable(traced):
            self._keep(key, traced(record))
            return unmarked(record) if call.bound else result
        for s in run.storages:
            s.origin = None
        with record.device().lock:
            made = Capture(record)
            self._keep(key, made)
            return made.results(call.storages)  # type: ignore[no-any-return]

    def _is_settled(self, key: Any, record: Recording, last: _Last, why: str | None, began: bool) -> bool:
        """True if a run becomes a capture. If not, note what the next run needs to know of it, or `why` calls of this
        kind stay uncaptured.
        """
        after = record.guards or Guards(self.function, record.call.args, record.call.kwargs)
        if record.guards is None and why is None and after.unguarded:
            why = f"it sees {after.unguarded}"
        if why:
            self._leave(key, why)
            return False
        record.frozen = differing(last.made, record.made)
        made = [replace(m, storage=None) for m in record.made]
        now = self._last[key] = _Last(made, record.constants, record.drawn, returned=last.returned)
        if record.guards is None:
            now.guards, now.stamp = after, _stamp()
        elif began:
            now.stamp = _stamp()
        elif self._settled(now, record, last):
            return True
        record.taken(True)
        self._keep(key, None)
        return False

    def _begin_anew(self, key: Any, captured: Capture | None) -> _Last:
        """Close a capture that is out of date, and compute the tensors that the function reads: an assignment that is
        still pending is no part of the capture. Returns what is known of the last run.
        """
        self._tell(key, captured)
        if captured:
            captured.check_idle()
            if captured.generation == found_generation():
                del self.captures[key]  # a guard failed: it starts anew
            else:
                self.captures[key] = None  # its generation may come back, and it is closed
            captured.close()
        last = self._last.get(key) or _Last([], {}, {})
        realize([live for r in last.read if (live := r()) is not None])
        realize(_pending_gradients())
        return last

    def _settled(self, now: _Last, record: Recording, last: _Last) -> bool:
        """True if the run `now` may become a capture: the next call will compute the same, as the `last` one did.

        Raises JitError if a Python number differs without a change in anything that the guards watch.
        """
        if record.draws and record.draws.drawn:
            line = f" ({record.frozen[0].where})" if record.frozen else ""
            raise JitError(
                f"a jit function drew a random number from {record.draws.drawn}{line}, and a replay would not draw "
                "a new one: draw it outside and pass it as a tensor, or use anneal's functions (an.rand, "
                "an.randint, ...)"
            )
        # the function changed what it sees: the next call computes something else
        if record.guards.failure() or any(d.broken for d in record.drawn.values()):
            now.guards, now.stamp = Guards(self.function, record.call.args, record.call.kwargs), _stamp()
            return False
        change = None if last.guards is None else changed_constant(last.constants, record.constants)
        if change is None:
            return True
        if last.doubted:
            raise JitError(
                f"a jit function computes with {change}: a number of Python that changes from call to call, which its "
                "replays would not see: pass it as an argument (a tensor, or a Variable where it is a size), or assign "
                "it to a tensor that the function reads"
            )
        now.guards, now.stamp, now.doubted = record.guards, _stamp(), True
        return False

    def _leave(self, key: Any, why: str) -> None:
        """Run calls of this kind uncaptured from here on."""
        self.captures.pop(key, None)
        self._last.pop(key, None)
        known = key[0] in self.uncaptured
        self.uncaptured[key[0]] = why
        if len(self.uncaptured) > _CAPTURES:
            del self.uncaptured[next(iter(self.uncaptured))]
        if settings.current().debug and not known:
            print(f"anneal: {_name_of(self.function)} is not captured: {why}", file=sys.stderr)

    def _as_it_stands(self, kind: Any, args: Any, kwargs: Any) -> R:
        """Run a call that is not captured. If no gradient flows any more, the next call may be captured."""
        result = self._run(*args, **kwargs)
        if _FLOWS in self.uncaptured.get(kind, "") and not any(t._wants for t in _tensors_of(result)):
            self.uncaptured.pop(kind, None)
        return result

    def _watched(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function uncaptured, as at the first call: the graph of a replay is unknown."""
        with recording(kept=False) as record:
            result = self._run(*args, **kwargs)
            realize(record.pending(_tensors_of(result)))
        return result

    def _keep(self, key: Any, made: Capture | None) -> None:
        """Store a capture, or None for a call that may become one. If there are too many of its kind, remove the one
        that was unused longest.
        """
        self.captures[key] = made
        alike = [k for k, c in self.captures.items() if (c is None) is (made is None)]
        if len(alike) > _CAPTURES:
            if old := self.captures.pop(alike[0]):
                old.close()
            self._last.pop(alike[0], None)

    def _tell(self, key: Any, captured: Capture | None) -> None:
        """Note why the function runs although it has a capture; ANNEAL_DEBUG=2 shows it."""
        if captured:
            now = captured.tensors
            if captured.generation != found_generation():
                cause = Failure(f"guard generation ({now.outdated})", str(captured.generation), str(now.generation))
            else:
                cause = captured.flag_changed() or captured.guards.failure() or Failure("a guard", "held", "failed")
        elif self.captures and key not in self.captures:
            ((last, *modes), last_places), ((now_given, *now_modes), now_places) = next(reversed(self.captures)), key
            others = zip(("gradients recorded", "default device", "autocast", "arguments that share memory"),
                         (*modes, last_places), (*now_modes, now_places))  # fmt: skip
            cause = difference(last, now_given) or next(Failure(w, str(a), str(b)) for w, a, b in others if a != b)
        else:
            return
        recapture = Recapture(_name_of(self.function), cause)
        self.recaptures.append(recapture)
        if settings.current().debug >= 2:
            print(f"anneal: {recapture}", file=sys.stderr)


def _tensors_of(result: Any) -> Handles:
    """The tensors of a result. Raises JitError for what is no nest of tensors and values."""
    found: list[Handle] = []
    flatten(result, found, None)
    return found


def _parted(result: Any, given: Handles) -> Handles:
    """The tensors of a result. They stop sharing memory with the arguments, since a replay has other arguments."""
    results = _tensors_of(result)
    arguments = {id(t) for t in given} | {id(t._base.root) for t in given if t._base}
    for r in results:
        if r._base and id(r._base.root) in arguments:
            r._leave()
    return results


def _pending_gradients() -> Handles:
    """The gradients that leaves have now, except those that another thread is computing: it computes their values
    itself, together with the other participants if a group adds them up.
    """
    tensors = here.tensors
    elsewhere = {n for r in tensors.recordings for n in r.graded}
    found = [t._grad for t in tensors.live_leaves() if id(t) not in elsewhere]
    return [g for g in found if not (g is None or isinstance(g, Inside) or (tensors.host_calls and exchanges(g.uop)))]


def _name_of(function: Any) -> str:
    """A function's name, with its file and line where it has them."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _stamp() -> tuple[int, int]:
    return found_generation(), here.tensors.flags


def _said(kind: Any) -> str:
    """A kind of calls in words."""
    given, grad, device, *_ = kind
    on = "" if device is None else f", default device {device}"
    return described(given) + ("" if grad else ", without gradients") + on


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Wrap `function` so that later calls replay the kernels of its second call.

    Arguments: tensors, hashable values, and nests of them. Results: tensors and nests of them.
    Raises JitError where a value would be frozen (see `Jit`).

    >>> from anneal.tensor import Tensor
    >>> @jit
    ... def twice(x):
    ...     return x * 2
    >>> [twice(Tensor([float(i)])).item() for i in range(4)]
    [0.0, 2.0, 4.0, 6.0]
    """
    return Jit(function)


def as_written(function: Any = None, *args: Any, **options: Any) -> Any:
    """The `function` itself, or module: `jit.script`, `jit.ignore` and torch's other marks of scripting are ignored.

    Args:
        args, options: ignored, as example inputs are.
    """
    return (lambda given: given) if function is None else function


_MARKS = "export freeze ignore interface script script_if_tracing script_method trace unused"
vars(jit).update(dict.fromkeys(_MARKS.split(), as_written))
vars(jit).update(Final=Final, annotate=lambda kind, value: value, is_scripting=bool, is_tracing=bool)  # both False

C = TypeVar("C", bound=Callable[..., Any])
_BACKENDS = ["inductor", "eager", "aot_eager", "cudagraphs"]
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class CompileOptions(TypedDict, total=False):
    """Torch's options of `compile`."""

    fullgraph: bool
    dynamic: bool | None
    backend: str
    mode: str | None
    options: Mapping[str, Any] | None
    disable: bool


@overload
def compile(model: C, **options: Unpack[CompileOptions]) -> C: ...
@overload
def compile(model: None = None, **options: Unpack[CompileOptions]) -> Callable[[C], C]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """`jit` with torch's arguments: a function is captured; a module compiles its own calls, and is returned. Without a
    `model` it is a decorator.

    Args:
        model: a function or a module.
        fullgraph: ignored: a call is captured as a whole, or not at all.
        dynamic: ignored: each shape is captured, a Variable serves several.
        backend: one of torch's names; "eager" captures nothing.
        mode: one of torch's names, ignored. options: a dict, ignored.
        disable: whether nothing is captured.

    Raises SettingError for a value that torch does not have either.

    >>> from anneal.tensor import Tensor
    >>> @compile(mode="max-autotune")
    ... def twice(x):
    ...     return x * 2
    >>> [twice(Tensor([float(i)])).item() for i in range(4)]
    [0.0, 2.0, 4.0, 6.0]
    """
    modes = f": one of {', '.join(map(str, _MODES))}, and options go with no mode"
    for name, value, good, more in (
        ("fullgraph", fullgraph, isinstance(fullgraph, bool), ""),
        ("dynamic", dynamic, dynamic is None or isinstance(dynamic, bool), ""),
        ("backend", backend, backend in _BACKENDS, f": one of {', '.join(_BACKENDS)}"),
        ("mode", mode, mode in _MODES and (mode is None or options is None), modes),
        ("options", options, options is None or isinstance(options, Mapping), ""),
        ("disable", disable, isinstance(disable, bool), ""),
    ):
        if not good:
            raise SettingError(f"compile: {name}={value!r} is not a valid value{more}")
    if model is not None and not callable(model):
        raise SettingError(f"compile: the model is a function or a module, not {type(model).__name__}")

    def compiled(f: Any) -> Any:
        if disable or backend == "eager":
            return f
        if not hasattr(f, "named_modules") or isinstance(f, Jit):
            return Jit(f)
        f.compile()
        return f

    return compiled if model is None else compiled(model)
