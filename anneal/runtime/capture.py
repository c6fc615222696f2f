"""A capture: the recorded steps of one run of a function with guards, bound to memory, ready to be replayed."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from anneal import schedule
from anneal.backend import AnyDevice, OpaqueBuffer, Storage, register
from anneal.errors import JitError
from anneal.runtime.arguments import rebuild
from anneal.runtime.bodies import DeviceCall
from anneal.runtime.calls import FOUND, call_host
from anneal.runtime.context import here
from anneal.runtime.guards import Failure, Guards
from anneal.runtime.handle import Handle
from anneal.runtime.held import Read, Staging, SymbolicResult, Written
from anneal.runtime.launch import Execution, copy_of
from anneal.runtime.nodes import Made, buffer_leaf, storage_of
from anneal.runtime.recording import Recording
from anneal.runtime.sizes import needed
from anneal.runtime.steps import Collective, HostCall, Launch
from anneal.runtime.turns import bound
from anneal.schedule import Origin, Plan
from anneal.uop import Op, UOp, Users, const, dtypes
from anneal.uop.sizes import Values, bound_sizes, symbolic_arg, variables_of

if TYPE_CHECKING:
    from anneal.runtime.meter import Meter


ARGUMENT = "argument"  # the tag of the bindings that a captured function is called with

# A result of at most so many elements gets new memory for each call; a larger one is copied if somebody still has it
# when the next call needs its memory.
_SMALL_RESULT = 1 << 16

_LEAF, _UOP, _VIEWS = attrgetter("leaf"), attrgetter("uop"), attrgetter("_views")

Swap = Callable[[], Sequence[tuple[OpaqueBuffer, OpaqueBuffer]]]  # makes pairs of buffers, the old and the new


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The facts of a function's run when it becomes a capture.

    `arguments` are the storages it was recorded with; `results` the tensors of `result`; `state` those of them that
    were there before the call; `bound` the values of the arguments' Variables; `graded` the leaves whose gradient it
    set, with what that shows then.
    """

    name: str
    device: AnyDevice
    recording: Recording
    arguments: list[Storage]
    result: Any
    results: list[Handle]
    state: list[Handle]
    guards: Guards
    bound: dict[str, int]
    graded: list[tuple[weakref.ref[Handle], Any]]


class _CopyBack:
    """The step that takes new values of state from where they were computed to where the tensor shows them."""

    __slots__ = ("aside", "device", "state")

    def __init__(self, device: AnyDevice, state: Written, aside: Storage) -> None:
        self.device, self.state, self.aside = device, state, aside

    def run(self, swap: Swap | None = None) -> None:
        state = self.state.storage
        self.device.copy(self.aside.ensure(), state.ensure(), state.size, state.dtype)


class _BoundHostCall:
    """A call of the host bound to buffers. What it finds of sizes, the launches after it are given."""

    __slots__ = ("bound", "device", "function", "inputs", "kinds", "later", "outputs", "restart", "values")

    def __init__(self, step: HostCall, device: AnyDevice, bound: dict[str, int], restart: Callable[[], None]) -> None:
        self.function, self.device = step.function, device
        self.kinds = [(shape, s.dtype) for shape, s in zip(step.shapes, step.inputs, strict=True)]
        self.inputs: list[OpaqueBuffer] = [s.ensure() for s in step.inputs]
        self.outputs: list[OpaqueBuffer] = [s.ensure() for s in step.outputs]
        self.values = step.values
        self.bound = bound  # the capture's values of Variables, which a replay changes
        self.restart = restart
        self.later: list[tuple[Execution, list[str]]] = []  # launches, each with the Variables that this call finds

    def run(self, swap: Swap | None = None) -> None:
        values = {n: self.bound[n] if tag is not None else self.values[n] for n, tag in _tags(self.values).items()}
        found = call_host(self.function, self.kinds, self.device, self.inputs, self.outputs, values)
        if found:
            self.bound.update(found)
            changed = [launch.give({n: found[n] for n in names}) for launch, names in self.later]
            if any(changed):
                self.restart()

    def rebind(self, old: OpaqueBuffer, new: OpaqueBuffer) -> None:
        """Read the buffer `new` in place of `old`."""
        self.inputs = [new if b is old else b for b in self.inputs]


class _BoundDeviceCall:
    """A loop, or a choice, bound to buffers. It finds no sizes."""

    __slots__ = ("function", "later", "turns")

    def __init__(self, turns: Any, function: DeviceCall) -> None:
        self.turns, self.function = turns, function
        self.later: list[tuple[Execution, list[str]]] = []

    def run(self, swap: Swap | None = None) -> None:
        self.turns.run()

    def rebind(self, old: OpaqueBuffer, new: OpaqueBuffer) -> None:
        """Read the buffer `new` in place of `old`."""
        self.turns.rebind(old, new)


def _tags(values: Mapping[str, int]) -> dict[str, Any]:
    """The kind of binding that each Variable's value came from."""
    return values.tags if isinstance(values, Values) else dict.fromkeys(values)


class Capture:
    """A captured run, ready to be replayed: `steps` are executed in order, for as long as the guards hold."""

    def __init__(self, run: Recorded) -> None:
        self.name, self.device, self.lock = run.name, run.device, run.device.lock
        self.guards = run.guards
        self.tensors = here.context.tensors
        self.generation, self.flags = self.tensors.generation, self.tensors.flags
        calls = [step for step in run.recording.steps if isinstance(step, HostCall)]
        found = {n: v for call in calls for n, v in call.found.items()}
        _check_variables(run, calls, found)
        self.bound = {**run.bound, **found}  # the values of Variables: the arguments', and those that calls found
        # A replay that makes programs, for the sizes that it finds, has to be the only thread that does; one that waits
        # for other participants lets go of its locks meanwhile.
        self.steps_aside = bool(found) or any(isinstance(step, Collective) for step in calls)
        self.running = False
        self.graded = run.graded
        self.reads: dict[int, Read] = {}  # by storage
        self.state: dict[int, Written] = {}  # by storage: tensors that outlive the call and show an output of it
        # results in memory of their own: that of the coming call, and of the calls that are prepared after it
        self.in_flight: dict[int, deque[Written]] = {}
        internal = {id(s) for step in run.recording.steps for s in step.outputs}
        given = {id(s): n for n, s in enumerate(run.arguments)}
        carried = self._find_state(run, internal, _outside(run, internal))
        self.arguments = [Staging(s) for s in run.arguments]
        # the nest alone: its tensors hold memory that is handed out
        blanks = [type(r)._from_uop(const(dtypes.float32, 0), self.device.name) for r in run.results[:1]]
        # backward was taken of what they come from: it cannot be taken again
        self.spent = [n for n, r in enumerate(run.results) if r._wants and not r._leaf]
        self.result = rebuild(run.result, iter(blanks * len(run.results)), lambda sizes: sizes)
        self.sources = [self._source(r, internal, given, any(r is t for t in run.state)) for r in run.results]
        shown = [storage_of(r.uop) for r in run.results]  # results whose memory stays, for `bound.py`
        self.shown = [s if id(s) not in self.in_flight else None for s in shown]
        self._aliases = aliases_of(run.results)
        self._states = list(self.state.values())
        seen: list[Callable[[], Handle | None]] = [r.ref for r in self.reads.values()]
        seen += [w.ref for w in self.state.values()]
        self.wanting = [(r, t._wants) for r in seen if (t := r()) is not None]
        self._viewed = False  # whether the state had views when it was last written
        self._watch()
        self._bind(run.recording, carried)
        launches = [step for step in run.recording.steps if isinstance(step, Launch)]
        self.origins = [step.origins for step in launches]
        self.planned = [step.plan for step in launches]  # as a graph's plan is known; `_donated` makes others of them
        for waiting in self.in_flight.values():
            waiting.extend([waiting[0]] * max([launch.batch.pipeline_depth for launch in self.launches], default=0))
        register(self)

    # -- how it is made -------------------------------------------------------------------------------------------

    def _find_state(self, run: Recorded, internal: set[int], outside: dict[int, Storage]) -> dict[int, Storage]:
        """Tell the tensors that the run only read from those that it updated.

        Returns, by the id of each storage of state that was read at the start, the storage that carries the state on.
        """
        passing = {id(r) for r in run.results} - {id(r) for r in run.state}
        now: dict[int, Handle] = {}
        for ref in run.recording.realized:
            t = ref()
            shown = storage_of(t.uop) if t is not None else None
            if t is not None and shown is not None and id(shown) in internal and id(t) not in passing:
                now[id(shown)] = t
        carried: dict[int, Storage] = {}
        for s in outside.values():
            owner = s.owner() if s.owner is not None else None
            if owner is None:
                continue
            current = storage_of(owner.uop)
            if current is s:
                self.reads[id(s)] = Read(owner, s)
            elif current is not None and id(current) in now:
                carried[id(s)] = current
            elif owner._is_part():  # a view that was in memory, and what it is a part of has changed since
                self.reads[id(s)] = Read(owner, s)
        for key, t in now.items():
            shown = storage_of(t.uop)
            assert shown is not None
            self.state[key] = Written(t, shown)
            if any(v.tag is not None for n in t.uop.shape for v in variables_of(n)):
                raise JitError(
                    f"a jit function assigned values of symbolic shape {t.uop.shape} to a tensor that outlives the "
                    "call; give it the largest size, and assign to a part of it"
                )
        return carried

    def _source(
        self, result: Handle, internal: set[int], given: dict[int, int], state: bool
    ) -> Callable[[list[Storage]], Handle]:
        """The source of a replay's result, given the arguments of the call."""
        leaf, shape, device, make = result.uop, result.uop.shape, self.device, type(result)._from_uop
        shown = storage_of(leaf)
        if state:
            return lambda arguments: result
        if (view := result._base) is not None and result._is_part() and (view.recipe.detached or not view.root._wants):
            root, recipe, kind, under = view.root, view.recipe, type(result), storage_of(view.root.uop)
            mine = under is not None and under.owner is not None and under.owner() is root
            if mine and (id(under) in self.state or id(under) not in (internal | given.keys())):
                return lambda arguments: kind._view_of(root, recipe)  # of a tensor that others see
        if shown is not None and id(shown) in given:
            number = given[id(shown)]
            return lambda arguments: make(buffer_leaf(arguments[number], self._now(shape)), device.name)
        if shown is None:
            return lambda arguments: make(leaf, device.name)
        key = id(shown)
        owner = shown.owner() if shown.owner is not None else None
        if key not in internal and owner is not None:
            self.reads.setdefault(key, Read(owner, shown))
        held: Written | Read | SymbolicResult | None = self.state.get(key) or self.reads.get(key)
        if held is None and key in internal and symbolic_arg(shape):
            held = SymbolicResult(shown)
        if held is not None:

            def copy(arguments: list[Storage]) -> Handle:
                """Note that the result shows state: later calls change that, and must not change this."""
                own, now = Storage(held.storage.size, held.storage.dtype, device.name), self._now(shape)
                own.buffer = copy_of(device, held.storage, needed(now))
                return make(buffer_leaf(own, now), device.name)

            return copy
        if key not in internal:
            return lambda arguments: make(leaf, device.name)  # a constant
        if key not in self.in_flight:
            self.in_flight[key] = deque((Written(result, shown),))

        def hand_out(arguments: list[Storage]) -> Handle:
            mine = self.in_flight[key][0]
            t = make(mine.leaf if shape == mine.leaf.shape else buffer_leaf(mine.storage, shape), device.name)
            mine.ref = weakref.ref(t)
            return t

        return hand_out

    def _bind(self, recording: Recording, carried: dict[int, Storage]) -> None:
        """Bind the steps: state is read from and written to the storage that carries it, in place where safe."""
        steps = recording.steps
        read_from = {id(v): k for k, v in carried.items()}
        last_reader = {id(s): n for n, step in enumerate(steps) for s in step.inputs}
        self.launches: list[Execution] = []
        self.copies: list[_CopyBack] = []
        self.host_calls: list[_BoundHostCall | _BoundDeviceCall] = []
        self.steps: list[Execution | _BoundHostCall | _BoundDeviceCall | _CopyBack] = []
        # Memory that the kernels use belongs to the capture, whatever becomes of the tensors that showed it: constants,
        # what one launch leaves to the next. Results that are handed out have new memory each time.
        self.memory: list[Storage] = []
        for n, step in enumerate(steps):
            plan, in_place = (
                (None, set()) if isinstance(step, HostCall) else self._donated(step, n, read_from, last_reader)
            )
            inputs = [carried.get(id(s), s) for s in step.inputs]
            outputs = list(step.outputs)
            for k, s in enumerate(outputs):
                source = read_from.get(id(s))
                if source is not None and k not in in_place and (source in last_reader and last_reader[source] >= n):
                    outputs[k] = Storage(s.size, s.dtype, s.device)
                    self.copies.append(_CopyBack(self.device, self.state[id(s)], outputs[k]))
            self.memory += [s for s in (*inputs, *outputs) if id(s) not in self.in_flight]
            if isinstance(step, HostCall):
                call = HostCall(step.function, inputs, step.shapes, outputs, step.values)
                if isinstance(step.function, DeviceCall):
                    self.host_calls.append(_BoundDeviceCall(bound(call, self.device), step.function))
                else:
                    self.host_calls.append(_BoundHostCall(call, self.device, self.bound, self._restart))
                self.steps.append(self.host_calls[-1])
            else:
                assert plan is not None
                self.launches.append(Execution(Launch(plan, inputs, outputs, step.values), self.device))
                self.steps.append(self.launches[-1])
                found = {n for n, tag in _tags(step.values).items() if tag is FOUND}
                for caller in self.host_calls if found else ():
                    if names := [v.arg[0] for v in caller.function.sizes if v.arg[0] in found]:
                        caller.later.append((self.launches[-1], names))
        self.steps += self.copies

    def _donated(
        self, step: Launch, n: int, read_from: dict[int, int], last_reader: dict[int, int]
    ) -> tuple[Plan, set[int]]:
        """The plan of step number `n` in which outputs take the place of inputs, and the numbers of those outputs."""
        plan = step.plan
        wanted: dict[int, int] = {}
        for value, s in zip(plan.outputs, step.outputs, strict=True):
            source = read_from.get(id(s))
            if source is not None and last_reader[source] == n:
                wanted[value] = max(i for i, x in enumerate(step.inputs) if id(x) == source)
        if not wanted:
            return plan, set()
        plan, done = schedule.donate(plan, wanted, self.device.cost_model.concurrent)
        return plan, {k for k, value in enumerate(plan.outputs) if value in done}

    def plans(self) -> list[tuple[Plan, Sequence[Origin]]]:
        """The plans that a replay runs, each with where the nodes come from that it computes, by place."""
        return [(launch.plan, found) for launch, found in zip(self.launches, self.origins, strict=False)]

    def said(self) -> str:
        """The capture in words."""
        count = sum([len(plan.calls) for plan, _ in self.plans()])
        return f"captured, {count} kernel{'s' if count != 1 else ''}"

    # -- how it is replayed ---------------------------------------------------------------------------------------

    def flag_changed(self) -> Failure | None:
        """A tensor that was read or written and whose `requires_grad` has changed; None if all are as they were."""
        for r, wanted in self.wanting:
            if (t := r()) is not None and t._wants is not wanted:
                return Failure(f"requires_grad of a tensor of shape {t.uop.shape}", str(wanted), str(not wanted))
        self.flags = self.tensors.flags
        return None

    def outdated(self) -> bool:
        """True if something that the capture depends on has changed."""
        now = self.tensors
        return (
            self.generation != now.generation
            or (self.flags != now.flags and self.flag_changed() is not None)
            or self.guards.failed()
        )

    def prepare(self, arguments: list[Storage], bound: dict[str, int]) -> None:
        """Everything of a replay that may have to compute something first: asks for BUILDING and the device's lock."""
        device = self.device
        if bound:
            self.bound.update(bound)
            changed = [launch.give(bound) for launch in self.launches]
            if any(changed):
                self._restart()
        for staging, theirs in zip(self.arguments, arguments, strict=True):
            staging.load(device, theirs)
        self._protect()

    def launch(self, arguments: list[Storage]) -> Any:
        """The replay, once it is prepared: asks for the device's lock alone. Returns the results."""
        # a function of the host reads and writes the same buffers each time: then results are copied if they are kept
        small = (
            {}
            if self.host_calls
            else {
                id(w): w
                for w in [waiting[-1] for waiting in self.in_flight.values()]
                if w.storage.size <= _SMALL_RESULT
                and (b := w.storage.buffer) is not None
                and all(x.batch.can_swap(b) for x in self.launches)
            }
        )
        fresh: dict[int, Written] = {}

        def swap() -> list[tuple[OpaqueBuffer, OpaqueBuffer]]:
            """New memory for the next run's results, made while this one runs."""
            if not fresh:
                for key, written in small.items():
                    fresh[key] = Written.__new__(Written)
                    fresh[key].like(written)
            return [(b, fresh[key].storage.ensure()) for key, w in small.items() if (b := w.storage.buffer) is not None]

        if here.meter is None:
            for step in self.steps:
                step.run(swap if small else None)
        else:
            self._measured(here.meter, small, swap)
        for waiting in self.in_flight.values():
            waiting.append(fresh.get(id(waiting[-1]), waiting[-1]))
        for r, shown in self.graded:
            if (t := r()) is not None:
                t._grad = shown
        if self._viewed:
            self._outdate_views()
        results = self.results(arguments)
        for waiting in self.in_flight.values():
            waiting.popleft()
        return results

    def _measured(self, meter: Meter, small: dict[int, Written], swap: Swap) -> None:
        """Run the steps; where kernels are timed one by one, with the memory of the coming run."""
        how = [meter.chooses(plan, run) for plan, run in zip(self.planned, self.launches, strict=True)]
        if "kernels" in how and any(run.batch.pipeline_depth for run in self.launches):
            self._restart()
            small.clear()
        launches = iter(zip(self.planned, how, strict=True))
        for step in self.steps:
            if isinstance(step, Execution):
                plan, measured = next(launches)
                meter.run(plan, step, swap if small else None, measured)
            else:
                step.run(swap if small else None)

    def replay_alone(self, arguments: list[Storage], bound: dict[str, int]) -> Any:
        """The whole replay in one, where `steps_aside`: asks for BUILDING. Returns the results."""
        self.check_idle()
        self.running = True
        try:
            with self.lock:
                self.prepare(arguments, bound)
                return self.launch(arguments)
        finally:
            self.running = False

    def check_idle(self) -> None:
        """Raise JitError where a thread is in the middle of a replay, and waits for other participants of a group."""
        if self.running:
            raise JitError(
                f"{self.name} is replayed by another thread, which waits there for other participants of its group: "
                "give each participant a jit function of its own, or pass the group as an argument"
            )

    def results(self, arguments: list[Storage]) -> Any:
        """The function's result for `arguments`, after the steps have run."""
        made = [make(arguments) for make in self.sources]
        for n in self.spent:
            made[n]._spent = True
        for n, m, recipe in self._aliases:
            if made[n]._base is None:
                made[n]._part_of(made[m], recipe)
        return rebuild(self.result, iter(made), self._now)

    def _now(self, sizes: Any) -> Any:
        """A size, or a shape, as this call's values of Variables make it."""
        return bound_sizes(sizes, self.bound) if self.bound else sizes

    def close(self) -> None:
        """Free the memory now: results and the capture refer to each other, and would wait for the collector."""
        with self.device.lock:
            for held in (
                self.sources,
                self.steps,
                self.launches,
                self.copies,
                self.host_calls,
                self.in_flight,
                self.memory,
                self.arguments,
            ):
                held.clear()

    def reserved(self) -> tuple[str, str, int]:
        """The memory held here beside the tensors that others can see: see `memory_report`."""
        memory = [staging.memory for staging in self.arguments]
        memory += [r.own.memory for r in self.reads.values() if r.own is not None]
        memory += [copy.aside for copy in self.copies]
        nbytes = sum([s.size * s.dtype.itemsize for s in memory])
        nbytes += sum([size * dtype.itemsize for launch in self.launches for size, dtype in launch.plan.temporaries])
        return self.device.name, f"jit function {self.name}: temporaries and arguments", nbytes

    def rebind(self, old: OpaqueBuffer, new: OpaqueBuffer) -> None:
        """Have the kernels use the buffer `new` in place of `old`, from the coming run on."""
        for launch in self.launches:
            launch.rebind(old, new)
        for call in self.host_calls:
            call.rebind(old, new)
        self._restart()

    def _restart(self) -> None:
        """Prepare the coming runs anew: they all write what the last of them was to."""
        for launch in self.launches:
            launch.batch.restart()
        for waiting in self.in_flight.values():
            for n in range(len(waiting)):
                waiting[n] = waiting[-1]

    def _watch(self) -> None:
        """Note the nodes of the state, and the references to each when they have no other user; the list is one too."""
        nodes: list[UOp] = []
        alone: list[int] = []
        for h in self._states:
            more = 2 if h.flat is h.leaf else 1
            nodes += (h.leaf, h.flat)
            alone += (h.alone + more, h.flat_alone + more)
        self._users = Users(nodes, alone)

    def _outdate_views(self) -> None:
        """The state is about to change, or has changed: views of it show it as it will be. One that is state itself is
        written along with it."""
        own = {id(t) for h in self._states if (t := h.ref()) is not None}
        self._viewed = False
        for h in self._states:
            t = h.ref()
            if t is not None and t._views is not None:
                t._outdate_views(own)
                self._viewed = self._viewed or t._views is not None

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
            r.follow(self.device, self.rebind)
        state = self._states
        shown = [h.ref() for h in state]
        try:
            if any(map(_VIEWS, shown)):
                self._outdate_views()
            untouched = all(map(is_, map(_UOP, shown), map(_LEAF, state)))
        except AttributeError:  # one of them is gone
            self._outdate_views()
            untouched = False
        del shown
        if not untouched or self._users.more() is not None:
            self._users.held.clear()
            for h in state:
                h.follow(self.device)
            self._watch()
        for h, *_ in self.in_flight.values():
            if h.ref() is not None or h.used(False):
                h.detach(self.device)


def _check_variables(run: Recorded, calls: Sequence[HostCall], found: Mapping[str, int]) -> None:
    """Raise JitError for a Variable that has several values in a run, of which a replay would know one."""
    finders: dict[str, HostCall] = {}
    for call in calls:
        for name in call.found:
            first = finders.setdefault(name, call)
            again = first.function == call.function and all(map(is_, first.inputs, call.inputs))
            if name in run.bound or not again:
                other = "another call finds it" if name not in run.bound else "it is an argument of the jit function"
                raise JitError(
                    f"{call.function.title} finds Variable {name} inside a jit function, and {other} as well: give the "
                    "call a Variable of its own"
                )
    for step in run.recording.steps:
        for name, tag in _tags(step.values).items():
            if tag is None and (name in found or name in run.bound):
                source = "is found by a call" if name in found else "is an argument"
                raise JitError(
                    f"Variable {name} {source} of a jit function and is also bound to {step.values[name]}, which a "
                    "replay could not tell apart: use two Variables"
                )


def _outside(run: Recorded, internal: set[int]) -> dict[int, Storage]:
    """By id, the storages that the steps read and that are neither their own nor arguments."""
    given = {id(s) for s in run.arguments}
    found = {id(s): s for step in run.recording.steps for s in step.inputs}
    outside = {n: s for n, s in found.items() if n not in internal and n not in given}
    refuse_frozen(run.recording, list(outside.values()))
    return outside


def refuse_frozen(recording: Recording, read: Sequence[Storage]) -> None:
    """Raise JitError where what a run read from outside was made from host data, of other values than in the run
    before."""
    frozen = {id(m.storage): m for m in recording.frozen if m.storage is not None}
    for m in recording.frozen:
        if m.storage is None:
            raise JitError(_frozen(m))
    for s in read:
        if id(s) in frozen:
            raise JitError(_frozen(frozen[id(s)]))


def aliases_of(results: Sequence[Handle]) -> list[tuple[int, int, Any]]:
    """The results that are views of others, by number: which, of which, and how."""
    return [
        (n, m, view.recipe)
        for n, r in enumerate(results)
        if (view := r._base) is not None and r._is_part()
        for m, other in enumerate(results)
        if other is view.root
    ]


def _frozen(made: Made) -> str:
    return (
        "a tensor made from host data inside a jit function would be frozen at its first value, and had other values "
        f"in the run before ({made.where}); make it outside the function, or pass it as an argument"
    )
