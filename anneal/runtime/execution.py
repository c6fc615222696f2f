"""Realize: from lazy graphs to memory. `plan_of` makes only the plan, `tracing` collects the graphs that would run."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from anneal import schedule, settings
from anneal.backend import AnyDevice, Array, MemoryReport, Storage, cost_models, get_device, memory_report
from anneal.errors import DeviceError, UserError
from anneal.runtime.along import note_computed, with_others
from anneal.runtime.calls import Between, around_host_calls, call_host, called_now
from anneal.runtime.context import default_device, here
from anneal.runtime.handle import Handle, Handles, LateValue, note_earlier
from anneal.runtime.late import RUNS, become_late, is_computed_late
from anneal.runtime.launch import execute, rounds_of
from anneal.runtime.nodes import buffer_leaf, is_realized, memory_of, needed, note_constants, seen, storage_of

from anneal.runtime.numbering import (  # isort: skip
    EXPANDING, Late, Numbering, at_once, has_calls, is_open, numbering_of, numbers_of,
    reset,
)  # fmt: skip
from anneal.runtime.repeats import StepsAgain
from anneal.runtime.steps import Exchange, Launch
from anneal.runtime.turns import called
from anneal.schedule import Plan
from anneal.uop import SYMBOLIC, Line, Nodes, Op, Shape, Src, UOp, toposort
from anneal.uop.sizes import Sizes, Values

# a plan, what it reads and values of Variables -> its results, or None where it is not run
First = Callable[[Plan, list[Storage], Sizes], list[Storage] | None]


def realize_uops(uops: Nodes, device_name: str) -> list[UOp]:
    """Compute `uops` together on one device; each comes back as a buffer leaf of the same shape."""
    lazy = [u for u in dict.fromkeys(uops) if not is_realized(u)]
    if lazy and here.context.tensors.host_calls:
        return around_host_calls(uops, lazy, device_name, launched, called)
    return launched(uops, lazy, device_name)


def launched(
    uops: Nodes, lazy: list[UOp], device_name: str, between: Sequence[Between] = (), first: First | None = None
) -> list[UOp]:
    """`realize_uops` of graphs without a HOST_CALL; `lazy` are those of `uops` that are not in memory.

    `first` may run the plan as the first launch of those to come, which write the same memory. With something `between`
    there is a launch for each part of the plan that ends where that is called.
    """
    done = {}
    for nodes, start in () if lazy else between:
        start(nodes)
    if lazy:
        device = get_device(device_name)
        context = here.context
        begun = time.perf_counter()
        values = Values()
        sink = schedule.graph(lazy)
        plan, inputs, hit = schedule.plan_for(sink, device.cost_model, values)
        for record in here.recordings:
            note_constants(sink, record.constants)
        planned = time.perf_counter()
        context.plans_found += hit
        context.plans_made += not hit
        context.compile_seconds += planned - begun
        found = schedule.origins(sink) if here.observers else ()
        outputs = None if first is None else first(plan, inputs, values)
        if between:
            outputs = _in_parts(sink, Launch(plan, inputs, (), values, found), device, lazy, between)
        elif outputs is None:
            outputs = execute(plan, device, inputs, values, found)
        step = Launch(plan, inputs, outputs, values, found)
        for watch in here.watchers:
            watch(sink, step)
        if here.meter and not between:
            here.meter.show(sink, step)
        for u, storage in zip(lazy, outputs, strict=True):
            storage.line = u.provenance[1:3]
            done[u] = buffer_leaf(storage, u.shape)
        if (level := settings.current().debug) >= 2:
            _tell(level, plan, device, inputs, values, hit, planned - begun, time.perf_counter() - planned)
    return [done.get(u, u) for u in uops]


def _in_parts(sink: UOp, step: Launch, device: AnyDevice, lazy: Nodes, between: Sequence[Between]) -> list[Storage]:
    """Execute a launch part by part; each of `between` is called once its nodes are computed, and computing goes on.

    Args:
        sink: the graph of the launch; `lazy` are its outputs.
    """
    place = {u: n for n, u in enumerate(lazy)}
    plan, held = step.plan, dict(enumerate(step.inputs))
    wanted = [[place[u] for u in nodes if u in place] for nodes, _ in between]
    for n, part in enumerate(schedule.in_parts(plan, wanted)):
        if part.plan.calls:
            inputs = [held[v] for v in part.inputs]
            made = execute(part.plan, device, inputs, step.values, step.origins)
            if here.meter:
                here.meter.show(sink, Launch(part.plan, inputs, made, step.values, step.origins))
            held.update(zip(part.outputs, made, strict=True))
        if n < len(between):
            nodes, start = between[n]
            start([buffer_leaf(held[plan.outputs[place[u]]], u.shape) if u in place else u for u in nodes])
    return [held[v] for v in plan.outputs]


def _tell(
    level: int,
    plan: Plan,
    device: AnyDevice,
    inputs: list[Storage],
    values: Sizes,
    hit: bool,
    planning: float,
    running: float,
) -> None:
    """ANNEAL_DEBUG=2: the times of a realize and, once for each plan, of its kernels; 3: what they read and write."""
    known = "known" if hit else f"{planning * 1e3:.1f} ms"
    print(
        f"anneal: realize on {device.name}: {len(plan.calls)} kernels, plan {known}, launch {running * 1e3:.1f} ms",
        file=sys.stderr,
    )
    if plan not in here.context.profiled:
        from anneal.runtime.profile import profile

        here.context.profiled.add(plan)
        try:
            lines = profile(plan, device, inputs, values, heat=0.02, least=0.05).text()
        except DeviceError as e:
            lines = [str(e)]
        for line in lines:
            print(f"anneal:   {line}", file=sys.stderr)
    if level >= 3:
        for c in plan.calls:
            print(
                f"anneal:   {c.kernel.name} {c.args[: c.outputs]} <- {c.args[c.outputs :]} ({c.phase})", file=sys.stderr
            )


@contextmanager
def tracing() -> Iterator[list[Handle]]:
    """A block in which nothing runs: tensors that would have been computed are collected, still lazy."""
    noted: list[Handle] = []
    here.tracing.append(noted)
    try:
        yield noted
    finally:
        here.tracing.pop()


def realize(tensors: Handles) -> None:
    """Compute every lazy tensor of `tensors`; afterwards each is a leaf that shows its own memory.

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
    by_device: dict[str, list[Handle]] = {}
    for t in with_others(tensors, numbering):
        if is_computed_late(t) or not is_realized(t.uop):
            by_device.setdefault(t._device, []).append(t)
    for name, group in by_device.items():
        if not _ran_again(group, name):
            _realize_on(group, name)
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
    name = changed[0].device if changed else ""
    tensors = with_others(tensors, numbering, changed)
    group = [t for t in tensors if is_computed_late(t) or not is_realized(t.uop)]
    if changed and all(t._device == name for t in group):
        new = [*numbering.all_of(group), *templates]
        note_earlier(changed)
        if _repeated([*group, *changed], name, new, numbering, lines):
            for t in changed:
                t._alias = None
                if t._views:
                    t._outdate_views()
            here.effects += 1
            reset(numbering)
            return
    for t, template, line in zip(changed, templates, lines, strict=True):
        become_late(t, Late(numbering, template, line))
        if t._views:
            t._outdate_views()
    realize([*tensors, *changed])


def _realize_on(group: Handles, name: str, compute: Callable[[list[UOp], str], list[UOp]] = realize_uops) -> None:
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


def _show(group: Handles, before: Sequence[UOp | LateValue], leaves: Nodes, storages: Sequence[Storage]) -> None:
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
                if t._base or (t._wants and grad):
                    t._settle(leaf)
                else:
                    t.uop, t.late = leaf, None
                storage.owner = weakref.ref(t)  # the same object as before, where it is the same tensor's
    for t in group:
        if t._views:
            t._show_views()
    for watch in here.realized:
        watch += [weakref.ref(t) for t in group]


def _ran_again(group: Handles, name: str) -> bool:
    """Compute tensors of one device whose templates say what a launch of them would be, as one like it was before or
    as the first of its kind; False where that cannot be said."""
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
    loops = here.context.tensors.host_calls and any(map(has_calls, templates))
    others, looped = _looped(group, numbering) if loops else ([], ())
    for t, late in others:
        late.node_of(t)  # what nodes read is kept
    if loops and not _loops_again(group, numbering):
        return False
    nodes = [numbering.node(u) for u in looped]
    numbers = sorted({n for u in (*templates, *looped) for n in numbers_of(u)})
    memory = [u.arg for n in numbers if (u := numbering.leaves[n]) is not None]
    steps = StepsAgain(memory, {id(s): n for n, s in enumerate(memory)}, launched, _are_plain(group))
    found = []

    def compute(wanted: list[UOp], device: str) -> list[UOp]:
        place = {u: n for n, u in enumerate(dict.fromkeys((*wanted, *nodes)))}
        made = steps.computed(list(place), device, loops)
        found.extend([made[place[u]] for u in nodes])
        steps.results = [steps.results[place[u]] for u in (*wanted, *nodes)]
        return made[: len(wanted)]

    _realize_on(group, name, compute)
    _keep(nodes, found)
    if steps.complete:
        key = name, get_device(name).cost_model, *templates
        RUNS.keep((*key, looped) if loops else key, (steps, numbers), len(toposort(templates)))
    for t, line in zip(group, lines, strict=True):
        if storage := storage_of(t.uop):
            storage.line = line
    return True


# -- programs with loops: a run of them is launches and loops in turn ------------------------------------------------


def _looped(group: Handles, numbering: Numbering) -> tuple[list[tuple[Handle, LateValue]], Src]:
    """Late tensors beside `group` that may be computed after it, of the same loops, and the templates of what loops
    give them."""
    mine = set(map(id, group))
    late = [(t, x) for r in numbering.tensors if (t := r()) is not None and (x := t.late)]
    others = [(t, x) for t, x in late if id(t) not in mine and has_calls(x.template)]
    found = {u: None for u in toposort([x.template for _, x in others]) if u.op is Op.HOST_CALL}
    for u in toposort([x.template for t, x in others if t._wants and not t._spent]):
        if u.op is Op.HOST_CALL:  # its reverse may come
            found.update(dict.fromkeys(u.arg[0].for_reverse(u.src)))
    return others, tuple(found)


def _keep(nodes: Nodes, leaves: Nodes) -> None:
    """Have results of loops taken from memory for as long as somebody has the graphs that read them."""
    for u, leaf in zip(nodes, leaves, strict=True):
        rows = u.arg[0].for_reverse(u.src)
        here.context.tensors.kept[u] = leaf, () if u in rows else rows


def _loops_again(group: Handles, numbering: Numbering) -> bool:
    """True if none of the loops has run for another realize, and what they give is needed by late tensors alone."""
    late = all(t.late or is_realized(t.uop) for t in group)
    if not (late and _are_plain(group)):
        return False
    # another thread may add to what is kept meanwhile: its references are listed at once
    return all(u is None or u not in numbering.known for u in [r() for r in here.context.tensors.kept.keyrefs()])


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


def begun(exchange: Exchange, inputs: Nodes, device_name: str, now: bool = False) -> Callable[[], list[UOp]]:
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
    return not here.grad or not any(t._wants and not t._leaf and not t._spent for t in group)


def _repeated(group: Handles, name: str, templates: Nodes, numbering: Numbering, lines: Sequence[Line]) -> bool:
    """Give tensors of one device the values of templates, if such a computation was before. `lines` are those of the
    last of the tensors, where they are others than the tensors'."""
    context, level = here.context, settings.current().debug
    if here.watchers:
        return False
    device = get_device(name)
    key = name, device.cost_model, *templates
    run = RUNS.find(key)
    others: list[tuple[Handle, LateValue]] = []
    looped: Src = ()
    if run is None:
        if not (context.tensors.host_calls and any(map(has_calls, templates)) and _loops_again(group, numbering)):
            return False
        others, looped = _looped(group, numbering)
        run = RUNS.find((*key, looped))
        if run is None or here.meter or level >= 2:
            return False
    steps, numbers = run
    if here.meter and not all(here.meter.knows(plan) for plan, _ in steps.plans):
        return False  # who measures is shown the graph once
    begun = time.perf_counter()
    context.plans_found += len(steps.plans)
    for t, value in others:
        value.node_of(t)
    before = [t.late or t.uop for t in group]
    by_tensor = [old.provenance[1:3] if isinstance(old, UOp) else old.line for old in before[: len(group) - len(lines)]]
    leaves = numbering.leaves
    memory = [leaves[n].arg for n in numbers]  # the templates read them
    made = steps.again(device, memory, _are_plain(group), {})
    mine = steps.results[: len(group)]
    if looped:
        _keep([numbering.node(u) for u in looped], [made[n] for n in steps.results[len(group) :]])
    storages = list(map(memory.__getitem__, mine))  # one step of Python, however many they are
    said = [*by_tensor, *lines]
    if [s.line for s in storages] != said:  # another round left them there, as a rule
        for storage, line in zip(storages, said, strict=True):
            storage.line = line
    _show(group, before, list(map(made.__getitem__, mine)), storages)
    for step in steps.steps:
        if level >= 2 and step.plan:
            inputs = [memory[n] for n in step.numbers]
            _tell(level, step.plan, device, inputs, {}, True, 0.0, time.perf_counter() - begun)
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
    out: dict[int, Array] = {}
    by_device: dict[str, list[tuple[int, Storage, Shape]]] = {}
    for n, t in enumerate(tensors):
        s = storage_of(t.uop)
        if s is None or s.host is not None or s.size == 0:
            out[n] = t.numpy()
        else:
            by_device.setdefault(s.device, []).append((n, s, t.uop.shape))
    for name, there in by_device.items():
        device = get_device(name)
        with device.lock:
            arrays = device.download_all([(s.ensure(), needed(shape), s.dtype) for _, s, shape in there])
        for (n, _, shape), array in zip(there, arrays, strict=True):
            out[n] = seen(array, shape)
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
    if here.context.tensors.host_calls and any(u.op is Op.HOST_CALL for u in toposort(roots)):
        raise UserError(
            "plan_of: the host is called between plans, so there are several; realize what goes into the call"
        )
    return schedule.plan_for(schedule.graph(roots), cost_models.gpu(max_buffers))[0]
