"""A captured call through which gradients flow: its forward pass is replayed, and its backward pass on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, call
from typing import Any
from weakref import ref

from anneal.errors import JitError, UserError
from anneal.runtime.bodies import DeviceCall, abstracted, sized
from anneal.runtime.capture import _GONE, Capture, Source, aliases_of, kernels_in
from anneal.runtime.context import here
from anneal.runtime.execution import realize
from anneal.runtime.handle import WHOLE, Handle, Handles, Ref, emptied, filled
from anneal.runtime.late import composite, home
from anneal.runtime.nodes import buffer_leaf, is_realized, memory_of, own, shown, storage_of
from anneal.runtime.numbering import Late, numbering_of
from anneal.runtime.recording import ARGUMENT, Recording
from anneal.runtime.repeats import Again, over_memory
from anneal.runtime.steps import Storages
from anneal.runtime.uses import TOGETHER, LateCall, used_unseen
from anneal.schedule import Plan, Plans
from anneal.uop import GraphFunction, Known, Nodes, Op, toposort
from anneal.uop.sizes import Sizes, bound_sizes

_LATE, _NODE = attrgetter("late"), attrgetter("uop")


def trace(record: Recording) -> Callable[[Recording], Flowing] | str:
    """The function that makes a capture of the recorded run, whose results are not computed yet; or why there is none.

    Args:
        record: what is known of the run.
    """
    results, bound = record.nodes, record.call.bound
    before = set(map(id, record.before))
    lazy = {id(t): u for t, u in results if id(t) not in before and not is_realized(u)}
    passing = {id(t) for t, _ in results} - before
    state = [t for t in record.pending() if id(t) not in passing]
    devices = {t._device for t in (*state, *record.results)}
    if record.steps:
        return "it computes on its way"
    theirs = [storage_of(u) for t, u in results if id(t) not in lazy and (id(t) not in before or t._wants)]
    if any(t._wants and id(t) not in lazy for t, _ in results) or any(s not in record.call.storages for s in theirs):
        return "it gives a tensor that others see"
    if any(t._is_part() or is_realized(t.uop) for t in state):
        return "it assigns to a view, or assigns a tensor as it is"
    roots = [t._base.root for t, _ in results if t._is_part() and t._base]
    if any(id(t) not in passing and (is_realized(t.uop) or any(t is s for s in state)) for t in roots):
        return "it gives a view of a tensor that others see"
    graphs = [*lazy.values(), *[t.uop for t in state]]
    # memory in a symbolic shape
    whole = dict.fromkeys([u for u in toposort(graphs) if u.tag == WHOLE and u.op is Op.SHRINK])
    order = toposort(graphs, until=whole.__contains__)
    wanting = set(map(shown, here.tensors.live_nodes()))
    sizes: Known = {}
    sized(graphs, lambda v: sizes.setdefault(v, v), {})
    if any(v.arg[0] not in bound or v.tag != (ARGUMENT if record.kept else None) for v in sizes):
        return "it has a Variable with a value that no argument brings"
    if sizes and aliases_of(record.results):
        return "it gives views of each other, of symbolic sizes"
    if any(u.op is Op.HOST_CALL and not isinstance(u.arg[0], DeviceCall) for u in order):
        return "it calls the host"
    if any(u.op is not Op.BUFFER and u in wanting for u in order):
        return "it reads a leaf that is not computed yet"
    leaves = [*whole, *[u for u in order if u.op is Op.BUFFER and u.arg.derivative is None]]
    if len({*devices, *[memory_of(u).device for u in leaves]}) > 1:
        return "it works on several devices"
    wanted = [u for u in leaves if u in wanting or memory_of(u).made_by is not None]
    given, owners = record.call.storages, {u: memory_of(u).owner() for u in leaves}
    leaves.sort(key=lambda u: 0 if memory_of(u) in given else 1 if owners[u] is not None else 2)
    seen = [ref(t) for u, t in owners.items() if t is not None and memory_of(u) not in given]
    function = abstracted(record.name, leaves, graphs)
    flowing = [n for n, i in enumerate(lazy) if any(t._wants and id(t) == i for t, _ in results)]
    before_it = len(record.assigned)
    try:
        inputs = list(map(leaves.index, wanted))
        backward = type(results[0][0])._captured_backward(devices.pop(), function, flowing, inputs)
    except (JitError, UserError) as e:  # of a function of the user's, whose backward does what cannot be captured
        return f"its backward cannot be captured ({e})"
    if len(record.assigned) > before_it:
        return "its backward assigns to a tensor"
    ids = list(lazy)
    return lambda run: Flowing(run, leaves, seen, function, ids, state, flowing, backward)


def unmarked(record: Recording) -> Any:
    """The result of a run with the sizes of the caller's Variables, without the marks that say that they came from
    arguments.

    Args:
        record: what is known of the run, whose results are computed.
    """
    known: Known = {}
    bound = record.call.bound
    for t in record.pending(record.results):
        (t.uop,) = over_memory([t.uop], known, bound)
        s = storage_of(t.uop)
        if s is not None and s.origin is not None:
            (s.origin,) = over_memory([s.origin], known, bound)
    return filled(emptied(record.result), iter(record.results), partial(bound_sizes, values=bound))


class Flowing(Capture):
    """A captured call through which gradients flow.

    The run that becomes a capture is traced: memory that it read has numbers, and its results, the state that it
    assigned and what the backward pass is to read (`transforms/captured.py`) are one graph over them. A replay runs
    that graph on the memory of the call (`repeats.py`), with the values that Variables have there. Nothing is bound and
    nothing is written in place: each call has results of its own, and as long as its backward may come, the nodes of
    what it read. Who changes one of those tensors in place leaves it the old values.

    Args:
        run: the run that is captured.
        leaves: the memory that it read: that of arguments, that of other tensors, and the rest.
        seen: those other tensors.
        function: what it computed of that: its lazy results, and the state that it assigned.
        results: the ids of the tensors that are those results.
        state: the tensors that were assigned.
        flowing: the numbers of the results that gradients flow through.
        backward: what knows its backward pass.
    """

    def __init__(
        self,
        run: Recording,
        leaves: Nodes,
        seen: Sequence[Ref],
        function: GraphFunction,
        results: Sequence[int],
        state: Handles,
        flowing: Sequence[int],
        backward: Any,
    ) -> None:
        given = self._watch_over(run)
        self._given = [given[id(s)] for s in map(memory_of, leaves) if id(s) in given]
        run.refuse_frozen(list(map(memory_of, leaves[len(self._given) :])))
        self._seen, self._own = seen, leaves[len(self._given) + len(seen) :]
        self._state = [ref(t) for t in state]
        self._note(self._seen, self._state)
        self._backward = backward
        self.planned: list[Plan] = []  # plans are shown when they run
        roots = (*function.results, *self._backward.residuals)
        self._forward = Again(
            self.device.name, GraphFunction(function.name, function.arguments, function.parameters, roots)
        )
        number = {n: i for i, n in enumerate(results)}
        self._flowing = flowing
        self._lines = [u.provenance[1:3] for u in function.results]
        self._kinds = {number[id(r)]: type(r) for r in run.results if id(r) in number}
        self._hand_out(run, partial(self._source_of, number, given))
        self.spent = []
        self._launched = True  # whether memory may have calls that nobody needs any more, and that keep what they read
        # whether a call does nothing but give results, with gradients by rules alone
        none = state or self.drawn or self._aliases or self._backward.alone or self._backward.calls_python
        self._may_be_late = not none
        self._gives_one = isinstance(run.result, Handle) and len(self._kinds) == 1

    def _source_of(self, number: dict[int, int], given: dict[int, int], r: Handle) -> Source:
        """A function that makes a replay's result of the computed nodes and the arguments' memory."""
        if (n := number.get(id(r))) is not None:
            return lambda there: there[n]
        place, shape, kind, device = len(number) + given[id(storage_of(r.uop))], r.uop.shape, type(r), self.device.name
        return lambda there: kind._from_uop(buffer_leaf(there[place], self._now(shape)), device)

    def plans(self) -> Plans:
        """The plans that replays run, forward and backward."""
        return [found for again in (self._forward, *self._backward.known()) for found in again.plans]

    def said(self) -> str:
        """The capture in words."""
        kept = sum([int(u.size) * u.dtype.itemsize for u in self._backward.residuals])
        return f"captured with its backward, {kernels_in(self._forward.plans)}, {kept} bytes kept for the backward"

    def laid_out(self) -> Any:
        """Raises JitError: what it launches is bound to no memory."""
        raise JitError("a call cannot be taken as a fixed list of kernels: gradients flow through its results")

    def close(self) -> None:
        """Release what the capture holds; calls whose backward may still come keep what it needs."""

    def is_late(self) -> bool:
        """True if the next call is to be late."""
        return self._may_be_late and self._backward.history.late and len(here.calls) < TOGETHER and here.meter is None

    def late(self, arguments: Handles, storages: Storages) -> Any:
        """The results as late tensors; None if the call is to be launched (`uses.py`). The caller holds BUILDING.

        Args:
            arguments: one tensor for each memory.
            storages: that memory.
        """
        history = self._backward.history
        n = numbering_of(home())
        if n is None:
            return None
        tensors = list(map(arguments.__getitem__, self._given))
        given, templates = len(tensors), n.read(tensors)
        seen: list[Any] = list(map(call, self._seen))
        if templates is None or _GONE in map(type, seen) or any(map(_LATE, seen)):
            return None
        templates += n.templates([*map(_NODE, seen), *self._own])
        tensors += seen
        found = composite(n, (Flowing, history), templates, lambda: self._graphs(tensors))
        if found is None:
            return None
        if self._launched:
            self._launched = not self._forward.forget_calls()
        made, (wanting, flowing) = found
        results = [
            Late(n, u, self._lines[i]).tensor(self._kinds[i], self.device.name, i in self._flowing)  # type: ignore[arg-type]
            for i, u in enumerate(made)
        ]
        outer = []  # those through which gradients go on
        ways = []
        for t, template in zip(tensors[:given], templates):
            if t._wants and not t._leaf:
                outer.append(ref(t))
                ways.append(template)
        inner = list(map(results.__getitem__, self._flowing))
        log = n.note((None, (ways, flowing), outer, list(map(ref, inner))))
        n.calls.append(history)
        LateCall(self._backward.name, history, list(map(tensors.__getitem__, wanting)), inner, log)
        return results[0] if self._gives_one else self.results([*results, *storages])

    def _graphs(self, tensors: Handles) -> tuple[Nodes, tuple[list[int], Nodes]] | None:
        """The results as graphs of memory; which of the tensors that the call reads want gradients; and the templates
        of the results that gradients flow through. None if a tensor is not in memory.
        """
        if not all(is_realized(t.uop) for t in tensors):
            return None
        leaves = [shown(t.uop) for t in tensors]
        graphs = self._forward.graphs([*leaves, *self._own], {}, range(len(self._kinds)))
        n = here.numbering()
        flowing = [n.learn(graphs[i]) for i in self._flowing]
        return graphs, ([i for i, t in enumerate(tensors) if t._wants], flowing)

    def replay(self, arguments: Handles, bound: Sizes) -> Any:
        """The results for `arguments`, one tensor for each memory, with these values of Variables. The caller holds
        BUILDING.
        """
        here.effects += 1
        self._launched = True
        used_unseen(arguments)
        self.bound.update(bound)
        self._draw()
        state = [r() for r in self._state]
        seen: list[Any] = list(map(call, self._seen))
        lazy = [t for t in (*seen, *state) if t is not None and not is_realized(t.uop)]
        if lazy:
            realize(lazy)
        read = [*map(arguments.__getitem__, self._given), *seen]
        leaves = [*[shown(t.uop) for t in read], *self._own]
        made = self._forward(leaves, bound)
        count, first = len(self._kinds), len(self._kinds) + len(state)
        for t, u in zip(state, made[count:first], strict=True):
            if t is not None:
                t._settle(u)
                t._alias = None
                own(t)
                if t._views:
                    t._outdate_views()
        tensors = [self._kinds[n]._from_uop(made[n], self.device.name) for n in range(count)]
        origins = self._backward.begin(leaves, made[first:], bound)
        for n, origin in zip(self._flowing, origins, strict=True):
            t, storage = tensors[n], storage_of(made[n])
            t._wants, t._leaf = True, False
            if storage is None:
                t.uop = origin
            else:
                storage.origin = origin
        return self.results([*tensors, *[storage_of(t.uop) for t in arguments]])
