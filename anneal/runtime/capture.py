"""A capture: the recorded steps of one run of a function with guards, bound to memory, ready to be replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, call as target, is_
from typing import Any
from weakref import ref

from anneal import schedule
from anneal.backend import Array, Storage, numpy_dtype
from anneal.errors import JitError
from anneal.runtime.context import found_generation, here
from anneal.runtime.guards import Failure
from anneal.runtime.handle import Handle, Handles, Ref, emptied, filled
from anneal.runtime.launch import Execution, Round, Rounds, Scratch, compiled, copy_of
from anneal.runtime.nodes import buffer_leaf, memory_of, needed, storage_of
from anneal.runtime.recording import CopyBack, Read, Recording, Staging, Written, in_turn, over
from anneal.runtime.steps import Collective, HostCall, Launch, Step, Storages
from anneal.runtime.turns import bound
from anneal.schedule import Plans
from anneal.uop import Op, Shape, UOp, Users
from anneal.uop.sizes import Sizes, Values, bound_sizes, symbolic_arg, variables_of

_LEAF, _UOP, _VIEWS = attrgetter("leaf"), attrgetter("uop"), attrgetter("_views")


Source = Callable[[Sequence[Any]], Handle]  # what makes a result of a replay, given the memory of its arguments
_GONE = type(None)


class Capture:
    """A captured run, ready to be replayed: its `steps` are executed in order, for as long as the guards hold.

    State is written where its tensors show it. Results that are handed out are a `Round` of memory, as those of a
    launch without jit are; the steps are bound to each of a few, which take turns.
    """

    _seen: Sequence[Ref] = ()  # tensors without which it cannot be replayed
    running = False
    _gives_arguments = False  # whether a result shows the memory of an argument
    _viewed = False  # whether the state had views when it was last written

    def __init__(self, run: Recording) -> None:
        given = self._watch_over(run)
        calls = [step for step in run.steps if isinstance(step, HostCall)]
        found = {n: v for call in calls for n, v in call.found.items()}
        _check_variables(run, calls, found)
        self.bound.update(found)
        # A replay that makes programs, for the sizes that it finds, has to be the only thread that does; one that waits
        # for other participants lets go of its locks meanwhile.
        self.steps_aside = bool(found) or any(isinstance(step, Collective) for step in calls)
        self.graded = run.taken(False)
        self.reads: dict[int, Read] = {}  # by storage
        self.state: dict[int, Written] = {}  # by storage: tensors that outlive the call and show an output of it
        self._rounds = Rounds()
        self._new: dict[int, tuple[Storage, Shape]] = {}  # results of a round by storage: a blank, its shape
        self._written: list[UOp] = []  # the leaves of what was written last, while the results are handed out
        internal = {id(s) for step in run.steps for s in step.outputs}
        sized = {id(s) for call in calls if call.found for s in (*call.inputs, *call.outputs)}
        carried = self._find_state(run, internal, given)
        self.arguments = list(map(Staging, run.call.storages))
        self._hand_out(run, lambda r: self._source(internal, sized, given, r))
        shown = [storage_of(r.uop) for r in run.results]
        self._shown = [self._new[id(s)][0] if id(s) in self._new else s for s in shown]
        self._states = list(self.state.values())
        self._note([r.ref for r in self.reads.values()], [w.ref for w in self._states])
        self._watch()
        # as a graph's plan is known; `_placed` makes others of them
        self.planned = [step.plan for step in run.steps if isinstance(step, Launch)]
        self.steps = self._placed(run.steps, carried)
        run.let_go()  # the memory of the state as it was before is needed below
        if self.steps_aside:
            kept = {*self.state, *self.reads, *map(id, self._shown), *[id(blank) for blank, _ in self._new.values()]}
            self.steps = in_turn(self.steps, kept)
        self.launches = [step for step in self.steps if isinstance(step, Launch)]
        self._compiled = {
            n: (compiled(step.plan, self.device, often=True), Scratch(self.device))
            for n, step in enumerate(self.steps)
            if isinstance(step, Launch)
        }
        self._shared: dict[int, Any] = {}  # by number: steps that no round's memory is bound to
        first = self._next()
        self._bind(first)
        first.done()
        self.device.reserved.add(self)

    # -- how it is made -------------------------------------------------------------------------------------------

    def _watch_over(self, run: Recording) -> dict[int, int]:
        """Note what the capture depends on; gives the numbers of its arguments by their ids."""
        self.name, self.device, self.guards = run.name, run.device(), run.guards
        self.lock = self.device.lock
        self.tensors = here.tensors
        self.generation, self.flags = found_generation(), self.tensors.flags
        self.bound = dict(run.call.bound)  # the values of Variables: the arguments', and those that calls find
        self.drawn = run.drawn
        return {id(s): n for n, s in enumerate(run.call.storages)}

    def _note(self, reads: Sequence[Ref], state: Sequence[Ref]) -> None:
        """Note the tensors that a replay changes. Note also the `requires_grad` of these, of the tensors that it reads,
        and of those that the function names (a run may read these only to train them).
        """
        named = map(ref, self.guards.tensors)
        self.wanting = [(r, t._wants) for r in (*reads, *state, *named) if (t := r()) is not None]
        self._changed = {id(t): r for r in state if (t := r()) is not None}

    def _hand_out(self, run: Recording, source: Callable[[Handle], Source]) -> None:
        """Note how a replay makes its results: each by the `source` that it has."""
        self.result = emptied(run.result)  # its tensors hold memory that is handed out
        # backward was called on the tensors that they come from, and cannot be called again
        self.spent = [n for n, r in enumerate(run.results) if r._wants and not r._leaf]
        state = set(map(id, run.before))
        self.sources = [(lambda _, r=r: r) if id(r) in state else source(r) for r in run.results]
        first: dict[int, int] = {}
        numbers = [(n, first.setdefault(id(r), n)) for n, r in enumerate(run.results)]
        self._repeated = [(n, m) for n, m in numbers if n != m]  # a tensor that is returned twice is one tensor
        self._aliases = aliases_of(run.results)

    def _find_state(self, run: Recording, internal: set[int], given: Mapping[int, Any]) -> dict[int, Storage]:
        """Tell the tensors that the run only read from those that it updated.

        Returns, by the id of each storage of state that was read at the start, the storage that carries the state on.
        """
        passing = {id(r) for r in run.results} - {id(r) for r in run.before}
        live = [t for r in run.realized if (t := r()) is not None and id(t) not in passing]
        now = {id(s): t for t in live if id(s := storage_of(t.uop)) in internal}
        found = {id(s): s for step in run.steps for s in step.inputs}
        outside = [s for n, s in found.items() if n not in internal and n not in given]
        run.refuse_frozen(outside)
        carried = {}
        for s in outside:
            owner = s.owner()
            if owner is None:
                continue
            current = storage_of(owner.uop)
            if current and id(current) in now:
                carried[id(s)] = current
            elif current is s or owner._is_part():  # a view that was in memory, and that has changed since
                self.reads[id(s)] = Read(owner, s)
        for key, t in now.items():
            self.state[key] = Written(t, memory_of(t.uop))
            if any(v.tag is not None for n in t.uop.shape for v in variables_of(n)):
                raise JitError(
                    f"a jit function assigned values of symbolic shape {t.uop.shape} to a tensor that outlives the "
                    "call; give it the largest size, and assign to a part of it"
                )
        return carried

    def _source(self, internal: set[int], sized: set[int], given: Mapping[int, int], result: Handle) -> Source:
        """The source of a replay's result."""
        leaf, shape, device, make = result.uop, result.uop.shape, self.device, type(result)._from_uop
        shown = storage_of(leaf)
        if (view := result._base) and result._is_part() and (view.recipe.detached or not view.root._wants):
            root, recipe, kind, under = view.root, view.recipe, type(result), storage_of(view.root.uop)
            mine = under and under.owner() is root
            if mine and (id(under) in self.state or id(under) not in (internal | given.keys())):
                return lambda _: kind._view_of(root, recipe)  # of a tensor that others see
        key = id(shown)
        if key in given:
            number, self._gives_arguments = given[key], True
            return lambda arguments: make(buffer_leaf(arguments[number], self._now(shape)), device.name)
        if shown and key not in internal and (owner := shown.owner()) is not None:
            self.reads.setdefault(key, Read(owner, shown))
        held: Any = self.state.get(key) or self.reads.get(key)
        if shown is None or not (held or key in internal):
            return lambda _: make(leaf, device.name)  # a constant
        if held or symbolic_arg(shape) or key in sized:  # of a symbolic shape, or a call's: it stays the capture's
            fixed = None if held else shown

            def copy(_: Any) -> Handle:
                """Note that the result shows memory of the capture: later calls change that, and must not change
                this."""
                mine, now = fixed or held.storage, self._now(shape)
                own = Storage(mine.size, mine.dtype, device.name)
                own.buffer = copy_of(device, mine, needed(now))
                return make(buffer_leaf(own, now), device.name)

            return copy
        if key not in self._new:
            self._new[key] = Storage(shown.size, shown.dtype, shown.device), shape
            self._written.append(leaf)
        n = list(self._new).index(key)

        def hand_out(_: Any) -> Handle:
            mine = self._written[n]
            return make(mine if shape == mine.shape else buffer_leaf(memory_of(mine), shape), device.name)

        return hand_out

    def _placed(self, steps: Sequence[Step], carried: dict[int, Storage]) -> list[Step | CopyBack]:
        """The steps over the capture's memory: state is read from and written to the storage that carries it, in place
        where safe, and blanks stand for results."""
        read_from = {id(v): k for k, v in carried.items()}
        last_reader = {id(s): n for n, step in enumerate(steps) for s in step.inputs}
        blanks = {k: blank for k, (blank, _) in self._new.items()}
        placed = []
        copies = []
        aside: dict[int, Storage] = {}  # new values of state, by its storage, that wait for readers of the old ones
        for n, step in enumerate(steps):
            in_place: set[int] = set()
            if isinstance(step, Launch):
                step, in_place = self._donated(step, n, read_from, last_reader)
            inputs = [aside.get(id(s)) or carried.get(id(s)) or blanks.get(id(s), s) for s in step.inputs]
            outputs = [blanks.get(id(s), s) for s in step.outputs]
            for k, s in enumerate(step.outputs):
                source = read_from.get(id(s))
                if source is not None and k not in in_place and (source in last_reader and last_reader[source] >= n):
                    outputs[k] = aside[id(s)] = Storage(s.size, s.dtype, s.device)
                    copies.append(CopyBack(self.device, self.state[id(s)], outputs[k]))
            placed.append(replace(step, inputs=inputs, outputs=outputs))
        return [*placed, *copies]

    # -- its memory -----------------------------------------------------------------------------------------------

    def _round(self) -> Round:
        new = self._new.values()
        return Round([(b.size, b.dtype) for b, _ in new], self.device, [shape for _, shape in new])

    def _next(self) -> Round:
        """The memory that a replay writes its results into: one that nobody uses, or a new one."""
        return self._rounds.next(self.device, self._round, 2)  # a name has the last call's result

    def _bind(self, made: Round) -> None:
        """Bind the steps to the memory of a round."""
        where = {id(b): s for (b, _), s in zip(self._new.values(), made.storages, strict=True)}
        own = set(where)
        where.update((n, w.storage) for n, w in self.state.items())
        where.update((n, r.memory) for n, r in self.reads.items())
        for n, step in enumerate(self.steps):
            found = self._shared.get(n)
            if isinstance(step, CopyBack):
                found = step
            elif found is None:
                found = self._bound(n, over(step, where))
                if own.isdisjoint(map(id, (*step.inputs, *step.outputs))):
                    self._shared[n] = found
            made.bound.append(found)

    def _bound(self, n: int, step: Step) -> Any:
        """Step number `n`, bound to memory."""
        if isinstance(step, HostCall):
            return bound(step, self.device, self.bound, self._give)
        programs, scratch = self._compiled[n]
        made = Execution(step, self.device, programs, scratch=scratch.take(step.plan.temporaries))
        made.give(self.bound)
        return made

    def laid_out(self) -> tuple[list[Execution], list[CopyBack], list[Storage | None]]:
        """The launches bound to a round's memory, the copies after them, and the memory of each result, None if it has
        none. Raises JitError for a call that needs the host in the middle."""
        for step in self.steps:
            if isinstance(step, HostCall):
                raise JitError(
                    f"{step.function.title} runs on the host in the middle of the call, and a page has no Python: "
                    "leave it out"
                )
        made = self._rounds[-1]
        own = {id(blank): s for (blank, _), s in zip(self._new.values(), made.storages, strict=True)}
        copies = [step for step in self.steps if isinstance(step, CopyBack)]
        launches = [run for run in made.bound if isinstance(run, Execution)]
        return launches, copies, [own.get(id(s), s) for s in self._shown]

    def unbind(self) -> None:
        """Bind the steps anew for the coming runs: memory that they read is elsewhere."""
        self._shared.clear()
        for made in self._rounds:
            made.bound.clear()

    def _give(self, values: dict[str, int]) -> None:
        """Use these values of Variables in the following runs."""
        self.bound.update(values)
        for made in self._rounds:
            for run in made.bound:
                if not isinstance(run, CopyBack):
                    run.give(values)

    def _donated(
        self, step: Launch, n: int, read_from: dict[int, int], last_reader: dict[int, int]
    ) -> tuple[Launch, set[int]]:
        """Step number `n` with a plan in which outputs take the place of inputs, and the numbers of those outputs."""
        plan = step.plan
        wanted = {}
        for value, s in zip(plan.outputs, step.outputs, strict=True):
            source = read_from.get(id(s))
            if source is not None and last_reader[source] == n:
                wanted[value] = max(i for i, x in enumerate(step.inputs) if id(x) == source)
        if not wanted:
            return step, set()
        plan, done = schedule.donate(plan, wanted, self.device.cost_model.concurrent)
        return replace(step, plan=plan), {k for k, value in enumerate(plan.outputs) if value in done}

    def plans(self) -> Plans:
        """The plans that a replay runs, each with where the nodes come from that it computes, by place."""
        return [(step.plan, step.origins) for step in self.launches]

    def said(self) -> str:
        """The capture in words."""
        return f"captured, {kernels_in(self.plans())}"

    # -- how it is replayed ---------------------------------------------------------------------------------------

    def flag_changed(self) -> Failure | None:
        """A tensor that was read, written or named and whose `requires_grad` has changed; None if none is."""
        for r, wanted in self.wanting:
            if (t := r()) is not None and t._wants is not wanted:
                return Failure(f"requires_grad of a tensor of shape {t.uop.shape}", str(wanted), str(not wanted))
        self.flags = self.tensors.flags
        return None

    def outdated(self) -> bool:
        """True if something that the capture depends on has changed."""
        now = self.tensors
        return (
            self.generation != (now.generation or found_generation())
            or (self.flags != now.flags and self.flag_changed() is not None)
            or _GONE in map(type, map(target, self._seen))
            or self.guards.failure() is not None
        )

    def changes(self, arguments: Handles) -> bool:
        """True if a replay changes the values that one of its arguments shows: it would have copied them before."""
        for t in arguments:
            shown = t if t._base is None else t._base.root
            if (r := self._changed.get(id(shown))) and r() is shown:
                return True
        return False

    def takes(self, arrays: Sequence[Array]) -> bool:
        """True if a replay accepts arrays of the host as its arguments' memory."""
        kinds = [(s.memory.size, numpy_dtype(s.memory.dtype)) for s in self.arguments]
        return kinds == [(a.size, a.dtype) for a in arrays] and not (self.steps_aside or self._gives_arguments)

    def prepare(self, arguments: Sequence[Storage | Array], bound: dict[str, int]) -> None:
        """Prepare a replay: all that may have to compute something. The caller holds BUILDING. Takes the device's lock,
        which `launch` releases.
        """
        self.lock.acquire()
        try:
            if bound:
                self._give(bound)
            for staging, theirs in zip(self.arguments, arguments, strict=True):
                staging.load(self.device, theirs)
            self._draw()
            self._protect()
        except BaseException:
            self.lock.release()
            raise

    def _draw(self) -> None:
        """Set the counters of random draws to the values that they would have without jit."""
        for generator, drawn in self.drawn.items():
            generator.resume(drawn)

    def launch(self, arguments: Sequence[Any]) -> Any:
        """The replay, once it is prepared. Returns the results."""
        made = None
        try:
            made = self._next()
            if not made.bound:
                self._bind(made)
            if here.meter is None:
                for step in made.bound:
                    step.run()
            else:
                plans = iter(self.planned)
                for step in made.bound:
                    here.meter.run(next(plans), step) if isinstance(step, Execution) else step.run()
            for r, shown in self.graded:
                if (t := r()) is not None:
                    t._grad = shown
            if self._viewed:
                self._outdate_views()
            self._written = made.leaves
            return self.results(arguments)
        finally:
            if made:
                made.done()
            self.lock.release()

    def replay_alone(self, arguments: Storages, bound: dict[str, int]) -> Any:
        """Replay at once, for a capture that `steps_aside`. The caller holds BUILDING. Returns the results."""
        self.check_idle()
        self.running = True
        try:
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

    def results(self, arguments: Sequence[Any]) -> Any:
        """The function's result for `arguments`, after the steps have run."""
        made = [make(arguments) for make in self.sources]
        for n, m in self._repeated:
            made[n] = made[m]
        self._written = []
        for n in self.spent:
            made[n]._spent = True
        for n, m, recipe in self._aliases:
            if made[n]._base is None:
                made[n]._part_of(made[m], recipe)
        return filled(self.result, iter(made), self._now)

    def _now(self, sizes: Any) -> Any:
        """A size, or a shape, with this call's values of Variables."""
        return bound_sizes(sizes, self.bound) if self.bound else sizes

    def close(self) -> None:
        """Free the memory now: results and the capture refer to each other, and would wait for the collector."""
        with self.device.lock:
            self.unbind()
            for _, scratch in self._compiled.values():
                scratch.close()
            for held in (self.sources, self.steps, self.launches, self.arguments, self._rounds, self._new):
                held.clear()

    def reserved(self) -> tuple[str, int]:
        """The memory held here beside the tensors that others can see: see `memory_report`."""
        memory = [staging.memory for staging in self.arguments]
        memory += [r.own.memory for r in self.reads.values() if r.own]
        memory += [step.aside for step in self.steps if isinstance(step, CopyBack)]
        nbytes = sum([s.size * s.dtype.itemsize for s in memory])
        nbytes += sum([size * dtype.itemsize for step in self.launches for size, dtype in step.plan.temporaries])
        return f"jit function {self.name}: temporaries and arguments", nbytes

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
        """Invalidate the views of the state, which is about to change or has changed. A view that is state itself is
        written along with it.
        """
        own = {id(t) for h in self._states if (t := h.ref()) is not None}
        self._viewed = False
        for h in self._states:
            t = h.ref()
            if t is not None and t._views:
                t._outdate_views(own)
                self._viewed |= t._views is not None

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
            r.follow(self.device, self.unbind)
        state = self._states
        shown = [h.ref() for h in state]
        try:
            if any(map(_VIEWS, shown)):
                self._outdate_views()
            untouched = all(map(is_, map(_UOP, shown), map(_LEAF, state)))
        except AttributeError:  # a tensor of the state is gone
            self._outdate_views()
            untouched = False
        del shown
        if not untouched or self._users.more() is not None:
            self._users.held.clear()
            for h in state:
                h.follow(self.device)
            self._watch()


def _check_variables(run: Recording, calls: Sequence[HostCall], found: Sizes) -> None:
    """Raise JitError for a Variable that has several values in a run: a replay would use only one."""
    finders: dict[str, HostCall] = {}
    for call in calls:
        for name in call.found:
            first = finders.setdefault(name, call)
            again = first.function == call.function and all(map(is_, first.inputs, call.inputs))
            if name in run.call.bound or not again:
                other = (
                    "another call finds it" if name not in run.call.bound else "it is an argument of the jit function"
                )
                raise JitError(
                    f"{call.function.title} finds Variable {name} inside a jit function, and {other} as well: give the "
                    "call a Variable of its own"
                )
    for step in run.steps:
        tags = step.values.tags if isinstance(step.values, Values) else {}
        for name in step.values:
            if tags.get(name) is None and (name in found or name in run.call.bound):
                source = "is found by a call" if name in found else "is an argument"
                raise JitError(
                    f"Variable {name} {source} of a jit function and is also bound to {step.values[name]}, which a "
                    "replay could not tell apart: use two Variables"
                )


def kernels_in(plans: Plans) -> str:
    """The number of kernels of some plans, in words.

    Args:
        plans: the plans.
    """
    count = sum([len(plan.calls) for plan, _ in plans])
    return f"{count} kernel{'s' if count != 1 else ''}"


def aliases_of(results: Handles) -> list[tuple[int, int, Any]]:
    """The results that are views of others, by number: which, of which, and how.

    Args:
        results: the tensors.
    """
    return [
        (n, m, view.recipe)
        for n, r in enumerate(results)
        if (view := r._base) and r._is_part()
        for m, other in enumerate(results)
        if other is view.root
    ]
