"""Realize: from lazy graphs to memory. `plan_of` makes only the plan, `tracing` collects the graphs that would run."""

from __future__ import annotations

import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anneal import schedule, settings
from anneal.backend import Array, MemoryReport, cost_models, get_device, memory_report
from anneal.errors import UserError
from anneal.runtime.calls import around_host_calls, call_host, called_now
from anneal.runtime.context import default_device, here, modes
from anneal.runtime.handle import Handle, Handles, note_earlier
from anneal.runtime.late import RUNS, become_late
from anneal.runtime.launch import rounds_of

from anneal.runtime.nodes import (  # isort: skip
    LEARNED, has_calls, is_computed_late, is_open, is_realized, mask_of, memory_of, needed, seen, storage_of,
)  # fmt: skip
from anneal.runtime.numbering import EXPANDING, Late, Numbering, at_once, lazy_node, numbering_of, numbers_of, reset
from anneal.runtime.repeats import StepsAgain, launched, tell_launch
from anneal.runtime.steps import Exchange, Launch, Storages
from anneal.runtime.turns import called
from anneal.schedule import Plan
from anneal.uop import SYMBOLIC, Line, Nodes, Op, UOp, toposort

_FEW = 64  # tensors that were noted, up to which all are looked at again
_LONG = 24  # nodes of a graph of constants that a tensor was assigned; `zeros` and `ones` have 4


def realize_uops(uops: Nodes, device_name: str) -> list[UOp]:
    """Compute `uops` together on one device; each comes back as a buffer leaf of the same shape."""
    lazy = [u for u in dict.fromkeys(uops) if not is_realized(u)]
    return around_host_calls(uops, lazy, device_name, launched, called)


@contextmanager
def tracing() -> Iterator[list[Handle]]:
    """A block in which nothing runs: tensors that would have been computed are collected, still lazy."""
    noted: list[Handle] = []
    with modes(tracing=[*here.tracing, noted]):
        yield noted


def realize(tensors: Handles, along: Handles = ()) -> None:
    """Compute every lazy tensor of `tensors`; afterwards each is a leaf that shows its own memory.

    Args:
        along: `with_others` of them, if that was asked already, which may not give all of them twice.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1, 2]) + 1
    >>> realize([x])
    >>> x.is_realized
    True
    """
    if here.tracing:
        here.tracing[-1].extend(t for t in tensors if not is_realized(t.uop))
        return
    if here.in_host_call:
        raise UserError("a function of host_call gets arrays and must not compute tensors: its device waits for it")
    here.effects += 1
    numbering = here.numbering()
    for together in along or with_others(tensors, numbering), tensors:
        by_device = defaultdict(list)
        for t in together:
            if is_computed_late(t) or not is_realized(t.uop):
                by_device[t._device].append(t)
        try:
            for name, group in by_device.items():
                if not _ran_again(group, name):
                    _realize_on(group, name)
            break
        except Exception:  # one of values that nobody asked for is not this read's
            if together is tensors:
                raise
    if by_device:
        reset(numbering)


def realize_new(
    tensors: Handles, numbering: Numbering, changed: Handles, templates: Nodes, lines: Sequence[Line]
) -> None:
    """Give the tensors `changed` the values of `templates`, made at `lines`, and compute them with every lazy one of
    `tensors`.

    It is `become_late` and `realize`, without a stop between them where such a launch was before. `changed` are leaves
    of one device, and no template is a view of memory.

    Args:
        numbering: the numbering that the templates are of.
    """
    together, again = with_others(tensors, numbering, changed), False
    group = [t for t in together if is_computed_late(t) or not is_realized(t.uop)]
    if changed and {t._device for t in group} <= {name := changed[0].device}:
        new = [*numbering.all_of(group), *templates]
        note_earlier(changed)
        try:
            again = _repeated([*group, *changed], name, new, numbering, lines)
        except Exception:  # one of values that nobody asked for is not this step's; `realize` raises others
            again = False
    if not again:
        for t, template, line in zip(changed, templates, lines, strict=True):
            become_late(t, Late(numbering, template, line))
    for t in changed:
        if t._views:
            t._outdate_views()
    if again:
        here.effects += 1
        reset(numbering)
    else:
        realize([*tensors, *changed], [*together, *changed])


def _realize_on(group: Handles, name: str, compute: Callable[[Nodes, str], Nodes] = realize_uops) -> None:
    """Compute lazy tensors of one device, by `compute`."""
    wanted: dict[UOp, None] = {}
    lazy = [t.uop for t in group]
    note_computed(lazy)
    for n, old in enumerate(lazy):
        # two tensors of one node get memory of their own: a jit may update one of them in place
        u = old if old not in wanted else old.then(Op.CONTIGUOUS, tag=n)
        wanted[u] = None
    made = compute(list(wanted), name)
    _show(group, lazy, made, list(map(memory_of, made)))


def _show(group: Handles, before: Sequence[UOp | Late], leaves: Nodes, storages: Storages) -> None:
    """Have tensors show memory, in place of the nodes, or records, that they had `before`.

    Args:
        leaves: the nodes of the `storages`, which note who shows them: jit finds its state that way.
    """
    grad = here.grad
    with EXPANDING:  # another thread may be about to give one a lazy node
        for t, old, leaf, storage in zip(group, before, leaves, storages, strict=True):
            now = t.late or t.uop
            # else another thread has computed it, or assigned to it, meanwhile; it may have asked for the node alone
            if now is old or (old.__class__ is Late and now is old()):
                if t._base or (
                    t._wants
                    and (
                        grad
                        or not t._leaf
                        or (old.template in old.numbering.used if old.__class__ is Late else t._used)
                    )
                ):
                    t._settle(leaf)
                else:
                    t.uop, t.late = leaf, None
                storage.owner = weakref.ref(t)  # the same object as before, where it is the same tensor's
    for t in group:
        if t._views:
            t._show_views()
    for record in here.recordings:
        record.realized += [weakref.ref(t) for t in group]


def _show_changed(tensors: Handles, before: Sequence[UOp | Late], leaves: Nodes, storages: Storages) -> None:
    """`_show` for leaves that get other values, which `note_earlier` was told of: graphs keep their nodes of before."""
    rest = []
    with EXPANDING:
        for t, old, leaf, storage in zip(tensors, before, leaves, storages, strict=True):
            if t.late is None and t.uop is old and t._base is None:
                t.uop, t._alias, storage.owner = leaf, None, weakref.ref(t)
            else:
                rest.append((t, old, leaf, storage))
    if rest:
        _show(*zip(*rest, strict=True))
        for t, *_ in rest:
            t._alias = None
    for record in here.recordings:
        record.realized += map(weakref.ref, tensors)


def _ran_again(group: Handles, name: str) -> bool:
    """Compute late tensors of one device by a launch of their templates, a known one or the first of its kind; False if
    the templates do not determine it.
    """
    if any(t.late is None and t.uop.op is Op.HOST_CALL for t in group):
        return len(group) == 1 and _exchanged(group[0], name)
    numbering = numbering_of()
    if numbering is None or here.watchers:
        return False  # who watches is shown the graph each time
    templates = [numbering.of(t) for t in group]
    if any(map(is_open, templates)):
        return False
    if _repeated(group, name, templates, numbering, ()):
        return True
    lines = [(t.late.line if t.late else t.uop.provenance[1:3]) for t in group]
    calls: Nodes = ()
    over_kept, sure = templates, 0
    if with_calls := here.tensors.host_calls and any(map(has_calls, templates)):
        calls, sure, over_kept = _with_calls(group, templates, numbering, False)
    numbers = sorted({n for u in over_kept for n in numbers_of(u)})
    memory = [u.arg for n in numbers if (u := numbering.leaves[n]) is not None]
    steps = StepsAgain(memory, {id(s): n for n, s in enumerate(memory)}, _are_plain(group))

    def compute(wanted: Nodes, device: str) -> Nodes:
        roots = dict.fromkeys(wanted)
        if with_calls:
            roots = {}
            for n, u in enumerate(map(numbering.node, over_kept)):
                roots[u.then(Op.CONTIGUOUS, tag=n) if u in roots else u] = None
        made = steps.computed(list(roots), device)
        for call, leaf in zip(calls, made[len(group) :], strict=True):
            numbering.keep(call, leaf)
        return made[: len(group)]

    _realize_on(group, name, compute)
    if steps.complete:
        del steps.results[len(group) + sure :]
        key = name, get_device(name).cost_model, *over_kept[: len(group) + sure], *[len(group)] * with_calls
        RUNS.keep(key, (steps, numbers), len(toposort(templates)))
    for t, line in zip(group, lines, strict=True):
        if storage := storage_of(t.uop):
            storage.line = line
    return True


# -- programs with loops: a run of them is launches and loops in turn ------------------------------------------------


def _with_calls(
    group: Handles, templates: Nodes, numbering: Numbering, again: bool
) -> tuple[list[UOp], int, list[UOp]]:
    """The templates of results of calls that are kept when `templates` are computed; how many of them are kept each
    time; and all that is to be computed, over what was kept before.

    Each time these are what gradients will flow through, and what nodes may be made of. When a program runs for the
    first time, and not `again`, further late tensors get what they need of its calls: if a loop uses these tensors,
    they are known by their lines in its next rounds.
    """
    for node in [r() for r in here.tensors.kept.keyrefs()]:  # another thread may add to it meanwhile
        if node in numbering.known and (leaf := here.tensors.kept[node][0]):
            numbering.kept[numbering.known[node]] = leaf

    def calls(roots: Nodes) -> list[UOp]:
        # what reads no memory is the same on all devices
        return [u for u in toposort(roots) if u.op is Op.HOST_CALL and numbers_of(u) and u not in numbering.kept]

    mine, device = set(map(id, group)), group[0]._device
    late = [(t, x.template) for r in numbering.tensors if (t := r()) is not None and (x := t.late)]
    late = [(t, u) for t, u in late if has_calls(u) and t._device == device]
    through = [u for t, u in late if t._wants and not t._spent and not (t._leaf and id(t) in mine)]
    nodes = [u for t, u in zip(group, templates, strict=True) if not (t.late or is_realized(t.uop))]
    for u in nodes:
        numbering.node(u)  # it is there, and what it is made of
    found = dict.fromkeys([v for u in calls(through + nodes) for v in (u, *u.arg[0].for_reverse(u.src))])
    sure = len(found)
    if not again:
        made = {(u.arg[0], u.src) for u in calls(templates)}
        others = calls([u for t, u in late if id(t) not in mine])
        found.update(dict.fromkeys([u for u in others if (u.arg[0], u.src) in made]))
    return list(found), sure, numbering.over_kept((*templates, *found))


def _exchanged(t: Handle, name: str) -> bool:
    """Give a tensor the result of an exchange of what is in memory, if it is one's only result: nothing is planned for
    it, and results take turns with those before, as a launch's do."""
    u = t.uop
    function, given = u.arg[0], storage_of(u.src[0])
    if not isinstance(function, Exchange) or function.begin is None or given is None or len(function.results) > 1:
        return False
    if SYMBOLIC.seen or at_once(vars(here)) or settings.current().debug >= 2:
        return False
    device, x = get_device(name), u.src[0]
    if (kept := function.kept.get(device)) is None:
        kept = function.kept[device] = rounds_of(device, [(u.size, u.dtype)], [u.shape])
    rounds, new = kept
    with device.lock:
        made = rounds.next(device, new) if _are_plain([t]) else new()
    (out,) = made.storages
    try:
        call_host(function, [(x.shape, x.dtype)], device, [given.ensure()], [out.ensure()], {})
        out.line = u.provenance[1:3]
        _show([t], [u], made.leaves, made.storages)
    finally:
        made.done()
    return True


def begun(exchange: Exchange, inputs: Nodes, device_name: str, now: bool = False) -> Callable[[], Nodes]:
    """Start an exchange of leaves in memory; what is returned waits for its results, and gives them as leaves.

    Both halves are steps of their own, so that launches between them run meanwhile; with `now` it is made at once.

    Args:
        inputs: the leaves, of memory on the device called `device_name`.
    """
    if now:
        made = called_now(exchange, inputs, device_name, called)
        return lambda: made
    start, ending = exchange.halves()
    called_now(start, inputs, device_name, called)
    return lambda: called_now(ending, (), device_name, called)


def _are_plain(group: Handles) -> bool:
    """True if nothing but values is to be noted of tensors: a gradient may go on through memory of the others."""
    return not [t for t in group if t._wants and not t._leaf and not t._spent]


def _repeated(group: Handles, name: str, templates: Nodes, numbering: Numbering, lines: Sequence[Line]) -> bool:
    """Give tensors of one device the values of templates, if such a computation was before. `lines` are those of the
    last of the tensors, leaves that get other values."""
    level = settings.current().debug
    if here.watchers:
        return False
    device = get_device(name)
    run, calls = RUNS.find((name, device.cost_model, *templates)), list[UOp]()
    if run is None:
        if not (here.tensors.host_calls and any(map(has_calls, templates))):
            return False
        calls, _, over_kept = _with_calls(group, templates, numbering, True)
        run = RUNS.find((name, device.cost_model, *over_kept, len(templates)))
        if run is None or here.meter or level >= 2:
            return False
    steps, numbers = run
    if here.meter and not all(here.meter.knows(plan) for plan, _ in steps.plans):
        return False  # who measures is shown the graph once
    begun = time.perf_counter()
    here.context.plans_found += len(steps.plans)
    several = len(group) - len(lines)
    before = [t.late or t.uop for t in group]
    said = [*[old.provenance[1:3] if isinstance(old, UOp) else old.line for old in before[:several]], *lines]
    there: list[Any] = numbering.leaves
    memory = [there[n].arg for n in numbers]  # the templates read them
    # results of calls may be shown in another shape
    shapes = [u.shape for u in (*templates, *calls)] if len(steps.steps) > len(steps.plans) else ()
    made = steps.again(device, memory, _are_plain(group[:several]), {}, shapes)
    for call, leaf in zip(calls, made[len(group) :], strict=True):
        numbering.keep(call, leaf)
    storages = list(map(memory.__getitem__, steps.results[: len(group)]))  # one step of Python, however many they are
    if [s.line for s in storages] != said:  # another round left them there, as a rule
        for storage, line in zip(storages, said, strict=True):
            storage.line = line
    _show(group[:several], before[:several], made[:several], storages[:several])
    if lines:
        _show_changed(group[several:], before[several:], made[several : len(group)], storages[several:])
    for step in steps.steps if level >= 2 else ():
        if step.plan:
            told = Launch(step.plan, [memory[n] for n in step.numbers], ())
            tell_launch(level, told, device, True, 0.0, time.perf_counter() - begun)
    return True


def upload(tensors: Handles) -> None:
    """Realize `tensors`, and put values that wait on the host, an array's or a file's, into the device's memory now."""
    realize(tensors)
    for t in tensors:
        s = storage_of(t.uop)
        if s is not None and s.size:
            s.ensure()


def values(tensors: Handles) -> list[Array]:
    """The values of several tensors as fresh arrays, computed together and read with one wait for each device."""
    realize(tensors)
    out = {}
    by_device = defaultdict(list)
    for n, t in enumerate(tensors):
        s = storage_of(t.uop)
        if s is None or s.host is not None or s.size == 0:
            out[n] = t.numpy()
        else:
            by_device[s.device].append((n, s, t.uop.shape))
    for name, there in by_device.items():
        device = get_device(name)
        with device.lock:
            arrays = device.download_all([(s.ensure(), needed(shape), s.dtype) for _, s, shape in there])
        out.update({n: seen(array, shape) for (n, _, shape), array in zip(there, arrays, strict=True)})
    return [out[n] for n in range(len(tensors))]


def memory(device: str | None = None) -> MemoryReport:
    """The memory of a device: bytes in use and cached, the peak, and the holders of memory, by the user's lines.

    `device` is "cpu" or "webgpu"; None is the default device of this thread.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor.ones(1000, device="cpu").realize()
    >>> report = memory("cpu")
    >>> report.use.in_use >= 4000, report.device
    (True, 'cpu')
    """
    return memory_report(default_device() if device is None else get_device(device).name)


def plan_of(tensors: Handles, max_buffers: int = 128) -> Plan:
    """The plan that realizing `tensors` would run on an adapter with `max_buffers` storage buffers.

    No device is opened.
    """
    roots = [t.uop for t in tensors]
    if here.tensors.host_calls and any(u.op is Op.HOST_CALL for u in toposort(roots)):
        raise UserError(
            "plan_of: the host is called between plans, so there are several; realize what goes into the call"
        )
    return schedule.plan_for(schedule.graph(roots), cost_models.gpu(max_buffers))[0]


# -- what is computed along --------------------------------------------------------------------------------------------
# Left lazy, graphs would grow by all that a loop does, or be computed several times.


def with_others(tensors: Handles, numbering: Numbering | None, but: Handles = ()) -> Handles:
    """`tensors`, and what is to be computed along with them: tensors that were assigned, and those from which a loop
    will go on. Left lazy, their graphs would grow by all that the loop does. Of `but` none is added.

    Args:
        tensors: those that are asked for.
        numbering: this thread's.
        but: tensors.
    """
    if here.assigned or here.depth or here.alone:
        return tensors
    others = []
    if here.pending:
        later = {}
        for r in here.pending.values():
            t = r()
            if t is None:
                continue
            late = t.late
            if t._wants and not (t._leaf and (here.grad or (late and not late.is_used()))):
                later[id(t)] = r  # a graph of it may be there, through which a gradient goes to what it is now
            elif _grows(t):
                others.append(t)
        here.pending = later
    others += _carried(numbering)
    if numbering:
        others += _left(numbering)
    if here.calls:
        # no backward passes these again, and who reads the results later would compute them a second time
        others += [t for call in here.calls if call.spent for r in call.results if (t := r()) is not None]
    if not others:
        return tensors
    there = {id(t) for t in (*tensors, *but)}
    return [*tensors, *{id(t): t for t in others if id(t) not in there}.values()]


def _carried(n: Numbering | None) -> Handles:
    """The live tensors, late in a numbering or lazy, made on lines whose results were used beyond a realize before."""
    lines, growing = LEARNED.carried, LEARNED.growing
    if not lines:
        return []
    noted = tuple(here.plain)  # a collection may add to it
    if len(noted) > _FEW:
        noted = _still_lazy(noted)
    lazy = [(t, line) for r, line in noted if lazy_node(t := r()) is not None]
    plain = [t for t, line in lazy if line in (lines if t._leaf else growing)]
    if n is None:
        return plain
    late = [(t, x) for r in n.tensors if (t := r()) is not None and (x := t.late) and x.numbering is n]
    # one that requires a gradient keeps its graph as it is, unless that grows
    plain += [t for t, x in late if x.line in lines and (not t._wants or x.line in growing)]
    return plain + _apart(n, [*lazy, *[(t, x.line) for t, x in late]]) if LEARNED.detached else plain


def _apart(n: Numbering, live: Sequence[tuple[Handle, Line]]) -> list[Handle]:
    """New tensors of the values of those that a loop detaches in its next round: it goes on from them.

    Args:
        n: this thread's numbering.
        live: lazy tensors, and the lines that made them.
    """
    for t, line in live:
        if line in LEARNED.detached and not (t._leaf or t._spent or any(t is x for x, _, _ in n.apart)):
            late = t.late
            values = type(t)._late(late, t._device, False) if late else type(t)._from_uop(t.uop, t._device)
            n.apart.append((t, late or t.uop, values))
    return [values for _, _, values in n.apart]


def _still_lazy(noted: tuple[Any, ...]) -> tuple[Any, ...]:
    """The records of `here.plain` that may be computed along. The others go: a loop whose steps are captured, or that
    reads what is computed already, ends no numbering, and would look at all that it made before in each round."""
    live = [(r, line) for r, line in noted if (t := r()) is not None and (t.late or lazy_node(t))]
    for _ in range(min(len(noted), len(here.plain))):
        here.plain.popleft()
    here.plain.extendleft(reversed(live))
    return tuple(live)


def note_computed(roots: Nodes) -> None:
    """Look in graphs that are to be computed for those that a realize before left lazy: a loop goes on from them."""
    if LEARNED.outlived:
        below = set(toposort(roots))
        outlived = LEARNED.outlived.copy()  # a collection may end a numbering meanwhile
        LEARNED.carry([line for r, line in outlived if r() in below])


def _left(numbering: Numbering) -> Handles:
    """The tensors that an earlier realize left late though it computed a part of what they need, as what is used now
    shows: that part would be computed for each of them."""
    found = []
    for late in numbering.behind:
        old = late.numbering
        sums = {u for u in toposort(late.template) if u.op is Op.REDUCE_AXIS}
        live = [(t, t.late) for r in old.tensors if (t := r()) is not None and not t._wants]
        same = [
            t for t, other in live if other and other.numbering is old and not sums.isdisjoint(toposort(other.template))
        ]
        if len(same) <= 1:
            old.tensors = []  # nothing is shared there, and it is not looked for again
        found += same
    numbering.behind.clear()
    return found


def _grows(t: Handle) -> bool:
    """True if a lazy tensor that a loop assigns in each round would have another graph each time: it reads memory, or
    counts, or has many nodes, like a value that a loop started from a constant and built on.
    """
    u = t._looks
    if (mask_of(u) if t.late else u.weak) or (u.dtype.is_int and u.size == 1):
        return True
    return len(toposort(u)) > _LONG
