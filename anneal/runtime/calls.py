"""Calls of the host in a graph: they run first, between launches, and memory takes their place.

A call may find sizes: Variables without a value in the shapes of its results. What is computed after it has them bound.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import ref

from anneal import settings
from anneal.backend import AnyDevice, Storage, nothing
from anneal.errors import ShapeError
from anneal.rewrite import rebuild
from anneal.runtime.bodies import DeviceCall, has_variables, sized
from anneal.runtime.context import here
from anneal.runtime.nodes import buffer_leaf, is_realized, keep, laid_out, needed, seen, storage_of, with_lines
from anneal.runtime.steps import ArrayKinds, Buffers, Collective, Exchange, HostCall, HostFunction
from anneal.schedule import BUILDING
from anneal.uop import ALU, MOVEMENT, SYMBOLIC, Known, Nodes, Op, Src, UOp, arena, toposort

from anneal.uop.sizes import (  # isort: skip
    Sizes, Values, bound_sizes, bound_to, mapped, note_value, symbolic_arg, variables_of, widest,
)  # fmt: skip

_HEAVY = 32  # elementwise ops that are as much work as storing their result; a reduction is
FOUND = "found"  # the tag of the bindings that a call of the host found while a function was captured

# some nodes, and what is called with their leaves as soon as these are computed
Between = tuple[Nodes, Callable[[Nodes], None]]
# (nodes, the lazy ones among them, device, functions to call in between) -> the nodes as leaves: one launch, or one in
# parts
Launched = Callable[[Nodes, list[UOp], str, Sequence[Between]], list[UOp]]
# a call -> the values of Variables that it found
Called = Callable[[HostCall], Sizes]
# calls that need no other's results, each with the nodes of its results
Wave = dict[tuple[HostFunction, Src], list[UOp]]


def around_host_calls(
    uops: Nodes, lazy: list[UOp], device_name: str, launched: Launched, called: Called, dry: bool = False
) -> list[UOp]:
    """Compute `uops` on one device, the calls of the host first; `lazy` are those of them that are not in memory.

    `called` makes a call, and gives the values of Variables that it found. If it is `dry`, neither it nor `launched`
    computes anything: they note what is to be done.

    Calls that need no other's results have their inputs computed together, by `launched`, and with them what is wanted
    and needs no more calls: a loss, say, beside the gradients that participants exchange. Raises ShapeError for a size
    that two calls find to be two numbers, or that is needed to find it.
    """
    if not (lazy and here.tensors.host_calls):
        return launched(uops, lazy, device_name, ())
    # a replay makes its calls itself, and who watches is shown all of them
    watched = (
        here.recordings or here.observers or here.watchers or dry or (SYMBOLIC.seen and has_variables(toposort(lazy)))
    )
    kept = None if watched else here.tensors.kept
    computed = _Computed(called, dry)
    depth, waves, shared = _waves(lazy, kept, computed.leaves)
    if not waves and not computed.leaves:
        return launched(uops, lazy, device_name, ())
    roots = set(lazy)
    # no tensor shows the memory of kept results
    shown = {s for u in computed.leaves.values() if (s := storage_of(u))}
    for n, wave in enumerate(waves):
        computed.nodes = dict(computed.leaves)  # nodes over what is in memory by now are made over that memory
        calls = [_wanted(function, src, nodes, kept is not None) for (function, src), nodes in wave.items()]
        sources = [[computed.over(s) for s in src] for _, src, _ in calls]
        ready = {u: computed.over(u) for u in (*lazy, *shared) if depth.get(u, 0) == n}
        flat = list(dict.fromkeys([s for src in (*sources, ready.values()) for s in src]))
        between = [] if dry or here.watchers else computed.early(calls, sources, device_name)
        made = launched(flat, [s for s in flat if not is_realized(s)], device_name, between)
        leaves = dict(zip(flat, made, strict=True))
        computed.leaves.update({u: leaves[s] for u, s in ready.items()})
        for k, ((function, _, results), src) in enumerate(zip(calls, sources, strict=True)):
            if rest := computed.under_way.pop(k, None):
                computed.call(rest, results, [], device_name)
                continue
            computed.call(function, results, [leaves[s] for s in src], device_name)
            if kept is None or isinstance(function, Exchange):
                continue
            for u in results:
                if u.weak and (u not in roots or u.arg[0].for_reverse(u.src)):
                    keep(u, None if u in roots else computed.leaves[u])
    computed.nodes = dict(computed.leaves)
    final = {u: computed.over(u) for u in lazy}
    for n, (old, u) in enumerate(final.items()):
        # each has memory of its own, as everything that is realized: a jit may update one of them in place
        s = storage_of(u)
        if s is not None and (s in shown or s.owner is not nothing):
            final[old] = u.then(Op.CONTIGUOUS, tag=("host", n))
        elif s is not None:
            shown.add(s)
    wanted = [final.get(u, u) for u in uops]
    return launched(wanted, [u for u in dict.fromkeys(wanted) if not is_realized(u)], device_name, ())


def called_now(function: HostFunction, inputs: Nodes, device_name: str, called: Called) -> Nodes:
    """Call a function with leaves in memory, by `called`: its results as leaves."""
    computed, results = _Computed(called, dry=False), function.nodes(())
    computed.call(function, {u: n for n, u in enumerate(results)}, inputs, device_name)
    return [computed.leaves[u] for u in results]


def _wanted(function: HostFunction, src: Src, nodes: Nodes, keeps: bool) -> tuple[HostFunction, Src, dict[UOp, int]]:
    """A call that gives only the results `nodes`, its sources, and the numbers of the results in it. If results are
    kept, a loop also gives those whose nodes are in use, and those that its reverse will read.
    """
    if not isinstance(function, DeviceCall):
        return function, src, {u: u.arg[1] for u in nodes}
    if keeps and any(u.weak for u in nodes):
        known = arena().nodes
        refs = [known.get((Op.HOST_CALL, t, src, (function, n), None)) for n, (_, t) in enumerate(function.results)]
        others = [r() if isinstance(r, ref) else r for r in refs]
        nodes = [*nodes, *[u for u in others if u is not None], *function.for_reverse(src)]
    less, taken, numbers = function.pruned(src, {u.arg[1] for u in nodes})
    return less, taken, {u: numbers[u.arg[1]] for u in nodes}


class _Computed:
    """Results of calls so far: memory in the place of their nodes, and values for the Variables that they found."""

    def __init__(self, called: Called, dry: bool) -> None:
        self.called, self.dry = called, dry
        self.leaves: Known = {}  # in the place of results of calls, and of what is computed for several waves
        self.nodes: Known = {}  # the leaves, and the nodes over them
        self.found: dict[str, int] = {}
        self.under_way: dict[int, Exchange] = {}  # what waits for the exchanges of a wave that have started, by number
        # the tag distinguishes sizes that a replay finds anew from fixed ones
        self.tag = FOUND if here.recordings and here.recordings[-1].kept else None

    def over(self, root: UOp) -> UOp:
        """`root` over the memory and the sizes that are there, with the lines that it has."""
        if self.found:
            return sized((root,), bound_to(self.found, self.tag, free=True), self.nodes)[0]
        return rebuild(root, with_lines, self.nodes)

    def _bound(self, sizes: Any) -> Any:
        """Sizes with the values that were found."""
        return bound_sizes(sizes, self.found, self.tag, free=True) if self.found and symbolic_arg(sizes) else sizes

    def early(
        self, calls: Sequence[tuple[HostFunction, Any, Any]], sources: Sequence[Nodes], device_name: str
    ) -> list[Between]:
        """The functions that start a wave's exchanges, if there are several. Each runs as soon as its inputs are
        computed, while the rest is computed; other calls of the wave wait for all of it.
        """
        begun = [(n, f) for n, (f, _, _) in enumerate(calls) if isinstance(f, Exchange) and f.begin]
        found: list[Between] = []
        for n, function in begun if len(begun) > 1 else ():
            start, self.under_way[n] = function.halves()
            found.append((sources[n], partial(self.call, start, {}, device_name=device_name)))
        return found

    def call(self, function: HostFunction, nodes: Mapping[UOp, int], inputs: Nodes, device_name: str) -> None:
        """Call a function: leaves take the place of `nodes`, its results by their numbers."""
        given = [s for u in inputs if (s := storage_of(u))]
        outputs = [Storage(math.prod(widest(shape)), dtype, device_name) for shape, dtype in function.results]
        values = Values()
        shapes = [u.shape for u in inputs]
        sized = (*shapes, *[self._bound(shape) for shape, _ in function.results])
        if isinstance(function, DeviceCall):
            function = function.sized(bound_to(self.found, self.tag, free=True)) if self.found else function
            sized = (*sized, function.variables)
        for size in [n for shape in sized for n in shape] if SYMBOLIC.seen else ():
            for v in variables_of(size):
                if v.op is Op.BIND:
                    note_value(v, values)
        begun = time.perf_counter()
        kind = Collective if isinstance(function, Exchange) else HostCall
        found: dict[str, int] = {}
        step = kind(function, given, shapes, outputs, values, found)
        found.update(self.called(step))
        if settings.current().debug >= 2 and not self.dry:
            sizes = "".join([f", {name} is {value}" for name, value in found.items()])
            taken = (time.perf_counter() - begun) * 1e3
            print(f"anneal: {function.title}: {taken:.1f} ms{sizes}", file=sys.stderr)
        for name, value in found.items():
            if self.found.setdefault(name, value) != value:
                raise ShapeError(
                    f"{function.title}: Variable {name} is {value}, and another call of this program found "
                    f"{self.found[name]}: give each call a Variable of its own"
                )
        for observe in () if self.dry else here.observers:
            observe(step)
        for u, n in nodes.items():
            storage = outputs[n]
            storage.line = u.provenance[1:3]
            self.leaves[u] = buffer_leaf(storage, self._bound(u.shape))


# -- the order of calls -------------------------------------------------------------------------------------------


def _waves(
    lazy: Nodes, kept: Mapping[UOp, tuple[UOp | None, Nodes]] | None, known: Known
) -> tuple[dict[UOp, int], list[Wave], dict[UOp, None]]:
    """The calls below `lazy` in waves: a wave's calls need only results of earlier waves; for each node the number of
    waves before it; and the nodes that later waves read, and that are too much work to be computed again by each. Else
    the work of a chain of calls would grow with the square of its length. Results that are `kept` need no call; `known`
    gets their leaves.
    """

    def is_kept(u: UOp) -> bool:
        leaf = kept.get(u, (None, ()))[0] if kept and u.op is Op.HOST_CALL else None
        if leaf is not None:
            known[u] = leaf
        return leaf is not None

    order = toposort(lazy, until=is_kept)
    givers: dict[str, list[UOp]] = {}  # by the name of a Variable: the calls that find it
    for u in order if SYMBOLIC.seen else ():
        if u.op is Op.HOST_CALL:
            for v in u.arg[0].sizes:
                givers.setdefault(v.arg[0], []).append(u)
    needs = {u: u.src for u in order} if not givers else dict(_with_sizes(lazy, givers))
    depth: dict[UOp, int] = {}
    waves: list[Wave] = []
    work: dict[UOp, int] = {}  # of a node over memory
    shared: dict[UOp, None] = {}
    for u, below in needs.items():
        depth[u] = at = max([depth.get(s, 0) for s in below], default=0)
        for s in below:
            if depth.get(s, 0) < at and work.get(s) == _HEAVY:
                while s.op in MOVEMENT:
                    s = s.src[0]
                if s.op in ALU or s.op is Op.REDUCE_AXIS:
                    shared[s] = None
        own = _HEAVY if u.op is Op.REDUCE_AXIS else int(u.op in ALU)
        work[u] = min(own + sum([work.get(s, 0) for s in below if s not in shared]), _HEAVY)
        if u.op is Op.HOST_CALL:
            depth[u], work[u] = at + 1, 0
            if at == len(waves):
                waves.append({})
            waves[at].setdefault((u.arg[0], u.src), []).append(u)
    return depth, waves, shared


def _with_sizes(lazy: Nodes, givers: Mapping[str, list[UOp]]) -> Iterator[tuple[UOp, Src]]:
    """The nodes below `lazy`, each after the nodes that it needs: its sources, and the calls that find its sizes,
    except calls that depend on this use of it.

    Raises ShapeError where a size is needed to find it.
    """
    finders = {}  # for each node the calls that find its Variables, a list for each

    def sources(u: UOp) -> Src:
        free = variables_of(u) if u.op is Op.VARIABLE else _free(u.arg) if symbolic_arg(u.arg) else ()
        finders[u] = calls = [givers[v.arg[0]] for v in free if v.arg[0] in givers]
        return (*u.src, *[g for several in calls for g in several]) if calls else u.src

    placed: set[UOp] = set()
    for u in toposort(lazy, sources=sources):
        usable = [[g for g in several if g in placed] for several in finders[u]]
        if not (all(usable) and placed.issuperset(u.src)):
            raise ShapeError(
                f"host_call: a call that finds one of the Variables {', '.join(givers)} also needs it; give each call "
                "its own Variable"
            )
        placed.add(u)
        yield u, (*u.src, *[g for several in usable for g in several])


def _free(arg: Any) -> Nodes:
    """The Variables without a value in an arg."""
    found = []
    mapped(arg, lambda size: found.extend([v for v in variables_of(size) if v.op is Op.VARIABLE]))
    return found


def exchanges(u: UOp) -> bool:
    """True if a value is computed together with other participants of a group."""
    return any(x.op is Op.HOST_CALL and isinstance(x.arg[0], Exchange) for x in toposort(u))


# -- a call -------------------------------------------------------------------------------------------------------


def call_host(
    function: HostFunction, kinds: ArrayKinds, device: AnyDevice, inputs: Buffers, outputs: Buffers, values: Sizes
) -> dict[str, int]:
    """Read the inputs, of these shapes and dtypes, call the function and write the outputs. What it raises is raised.

    `values` are those of the Variables that are known; returns those that the call found.
    """
    if over := exchange_over(function, kinds, device, inputs, outputs):
        over()
        return {}
    shapes = [bound_sizes(shape, values) if SYMBOLIC.seen else shape for shape, _ in kinds]
    with device.lock:
        pieces = [(b, needed(shape), dtype) for b, shape, (_, dtype) in zip(inputs, shapes, kinds, strict=True)]
        if isinstance(function, Exchange) and function.under_way:
            reader = device.read_later(pieces)
            function.under_way.later(
                lambda use: reader(lambda flat: use([seen(a, shape) for a, shape in zip(flat, shapes, strict=True)]))
            )
            return {}
        given = device.download_all(pieces)
    arrays = [seen(a, shape) for a, shape in zip(given, shapes, strict=True)]
    kept = [shape for shape, _ in function.results]
    if isinstance(function, Exchange) and function.ending and not any(map(symbolic_arg, kept)):
        results = [(b, math.prod(s), t) for b, (s, t) in zip(outputs, function.results, strict=True)]
        if written := device.written(results):
            into, give = written
            with released(device.lock, BUILDING):
                function.over(arrays, [a.reshape(shape) for a, shape in zip(into, kept, strict=True)])
            give()
            return {}
    before, here.in_host_call = here.in_host_call, True
    draws = [d for r in here.recordings if (d := r.draws)]
    for d in draws:
        d.look()
    try:
        with released(device.lock, BUILDING) if isinstance(function, Exchange) else nullcontext():
            made, found = function.called(arrays, values)
    finally:
        here.in_host_call = before
        for d in draws:
            d.begin()
    with device.lock:
        for buffer, array, (shape, _) in zip(outputs, made, function.results, strict=True):
            device.upload(buffer, laid_out(array, shape).reshape(-1))
    return found


def exchange_over(
    function: HostFunction, kinds: ArrayKinds, device: AnyDevice, inputs: Buffers, outputs: Buffers
) -> Callable[[], None] | None:
    """The function that runs an exchange of a group that copies, over buffers that the host sees; None for others."""
    if not (isinstance(function, Exchange) and function.begin):
        return None
    views = []
    for b, (shape, dtype) in zip((*inputs, *outputs), (*kinds, *function.results), strict=True):
        view = None if symbolic_arg(shape) else device.host_view(b, math.prod(shape), dtype)
        if view is None:
            return None
        views.append(view.reshape(shape))

    def run() -> None:
        with released(device.lock, BUILDING):
            function.over(views[: len(inputs)], views[len(inputs) :])

    return run


class released:
    """A block in which this thread releases `locks`, as often as it took them: another may need them first.

    Afterwards it takes them again, the last one first, which is the order in which a thread takes several.
    """

    def __init__(self, *locks: Any) -> None:
        self._locks = locks

    def __enter__(self) -> None:
        # as `threading.Condition` does it: a lock is released all at once, however often it was taken
        self._held = [(lock, lock._release_save()) for lock in self._locks if lock._is_owned()]

    def __exit__(self, *error: object) -> None:
        for lock, count in reversed(self._held):
            lock._acquire_restore(count)
