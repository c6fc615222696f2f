"""A run of a jit function that is to become a capture: what it did, and the memory that the capture holds."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from weakref import ref

import numpy as np

from anneal.backend import AnyDevice, Array, Storage, get_device
from anneal.errors import JitError
from anneal.runtime.context import here, modes
from anneal.runtime.execution import realize
from anneal.runtime.guards import Failure, brief
from anneal.runtime.handle import Handle, Handles, Inside, Ref, emptied, filled
from anneal.runtime.launch import copy_of, left
from anneal.runtime.nodes import Constants, Made, base_of, buffer_leaf, memory_of, sources_of
from anneal.runtime.steps import Step, Storages
from anneal.uop import Nodes, Op, UOp, dtypes, references, toposort
from anneal.uop.sizes import bound_sizes

Results = Sequence[tuple[Handle, UOp]]  # of a run, with their nodes
ARGUMENT = "argument"  # the tag of the bindings that a captured function is called with


class Draws:
    """The states of generators of random numbers that a run has no business with: a number drawn would be frozen.

    `others` are those that its function reaches beside the global ones. A function of the host may draw: replays call
    it.
    """

    drawn: str | None = None  # the one from which the run drew

    def __init__(self, others: Sequence[Any]) -> None:
        self._states: list[tuple[str, Callable[[], Any]]] = [
            ("random", random.getstate),
            ("numpy.random", partial(np.random.get_state, legacy=False)),
            *[
                (f"a {type(rng).__module__}.{type(rng).__name__}", getattr(rng, "getstate", rng.__reduce__))
                for rng in others
            ],
        ]
        self.begin()

    def begin(self) -> None:
        """Begin: draws before this do not count."""
        self._before = [pickle.dumps(state()) for _, state in self._states]

    def look(self) -> None:
        """Note whether something was drawn since."""
        for (name, state), before in zip(self._states, self._before, strict=True):
            if pickle.dumps(state()) != before:
                self.drawn = self.drawn or name


class Graded:
    """A leaf whose gradient a run set: `old`, what it was before; and how the last of what was set stands."""

    set = read = False  # whether there is a gradient that the run set, and whether it was read since
    used = dropped = False  # whether one was read before it was dropped, and whether one was dropped

    def __init__(self, t: Handle) -> None:
        self.ref, self.old = ref(t), t._grad

    def note(self, value: Any) -> None:
        if value is None:
            self.used |= self.set and self.read
            self.dropped = True
        self.set, self.read = value is not None, False


class Recording:
    """The facts of one run: its steps, and the tensors that it computed and assigned; `kept`: it becomes a capture.

    `call` is what it was called with, `results` are the tensors of `result`, and `nodes` those that they had; those of
    them that were there `before` the call are state. A capture has the `guards` of its run.
    """

    name: str
    call: GivenCall
    guards: Any = None
    result: Any
    results: Handles
    nodes: Results
    before: Handles
    seeded = False  # whether it began a stream of random numbers anew
    draws: Draws | None = None  # while it runs, where it is to become a capture
    read_outside: Handle | None = None  # a tensor whose gradient was read, and had been taken before

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.steps: list[Step] = []
        self.realized: list[Ref] = []
        self.assigned: list[Ref] = []
        self.made: list[Made] = []  # from host data
        self.frozen: list[Made] = []  # entries of `made` whose values differed in the run before
        self.graded: dict[int, Graded] = {}  # by id, the tensors whose gradient was set
        self.constants: Constants = {}  # the numbers in what it computed
        self.drawn: dict[Any, Any] = {}  # by generator, the draws of the run (`ops/random.py`)
        self.expected: Mapping[Any, Any] = {}  # the draws of the run before
        self.passed: list[UOp] = []  # nodes whose backward was taken for the last time
        self.given: list[Ref] = []  # copies of arguments, which have no gradient of their own

    def note_grad(self, t: Handle, value: Any) -> None:
        """The gradient of `t` is about to be set."""
        self.graded.setdefault(id(t), Graded(t)).note(value)

    def note_read(self, t: Handle) -> None:
        """The gradient of `t` is read."""
        mine = self.graded.get(id(t))
        if mine and (mine.set or mine.dropped):
            mine.read = True
        elif t._grad is not None or any(t is r() for r in self.given):
            self.read_outside = t

    def note_passed(self, t: Handle) -> None:
        """The backward of `t` is taken for the last time."""
        self.passed += (t.uop, *sources_of(t.uop))

    def flows(self) -> bool:
        """True if gradients flow through the run's results, and otherwise neither into it nor out of it, so that a
        capture of it has a backward pass of its own."""
        if self.graded or self.passed or self.read_outside is not None:
            return False
        ids = set(map(id, self.results))
        flowing = [t for t in self.pending(self.results) if t._wants and not t._leaf]
        return bool(flowing) and all(id(t) in ids and not t._spent for t in flowing)

    def refused(self, flows: bool) -> str | None:
        """The reason for which calls like the run are not captured, None if they may be: gradients are taken of its
        results alone if it `flows`. Raises JitError where it assigned to an argument."""
        given = self.call.tensors
        changed = [t for t in given if any(t is r() for r in self.assigned)]
        if any(not t._wants for t in changed):
            raise JitError(
                "a jit function assigned to its argument, or changed it in place; return the new value (x = x + y for "
                "x += y), or assign to a tensor that it reads"
            )
        if changed:
            return "it changes an argument that requires a gradient"
        roots = [t._base.root for t in given if t._base]
        if any(t is r() for t in roots for r in self.assigned):
            return "it changes a tensor of which an argument is a view"
        why = "it seeds random numbers" if self.seeded else None if flows else self.why_not()
        if why is None and (self.graded or self.passed) and any(t._wants for t in given):
            why = "an argument requires a gradient, and it takes gradients itself"
        return why

    def taken(self, kept: bool) -> list[tuple[Ref, Inside | None]]:
        """The leaves whose gradient the run set, each with what it shows afterwards: a gradient stays inside. `kept`:
        the function's next call may go on with it."""
        graded = []
        for g in self.graded.values():
            leaf = g.ref()
            if leaf is not None:
                known = kept and not isinstance(leaf._grad, Inside)
                inside = Inside(leaf._grad if known else None) if g.set else None
                if inside:
                    leaf._grad = inside
                graded.append((g.ref, inside))
        return graded

    def why_not(self) -> str | None:
        """The reason for which no replay may stand for the run; None if one may.

        A replay has no graph, and takes and leaves no gradients. So nothing may be left through which a gradient goes
        to a leaf, but for what the run's own backward went through: that is spent, as in torch.
        """
        if (t := self.read_outside) is not None:
            return f"it uses a gradient, of a tensor of shape {t.uop.shape}, of before the call: zero_grad() forgets it"
        left = [g for g in self.graded.values() if g.set and not g.read and not g.used]
        whole = len(left) < len(self.graded) and any(g.used or (g.set and g.read) for g in self.graded.values())
        for g in left:
            if (leaf := g.ref()) is None or isinstance(leaf._grad, Inside):
                continue
            if not whole or not (g.dropped or g.old is None or isinstance(g.old, Inside)):
                return f"it leaves the gradient of a tensor of shape {leaf.uop.shape} for code outside"
        there = [(t, u, "it gives a result") for t, u in self.nodes]
        there += [(t, t.uop, "it changes a tensor") for t in self.pending()]
        flowing = [(t, u, does) for t, u, does in there if t._wants and not t._leaf and not t._spent]
        covered = _below(self.passed) if flowing else ()
        for t, u, does in flowing:
            if not covered or _reaches(u, covered):
                return (
                    f"{does} of shape {t.uop.shape} through which gradients flow, and it takes gradients or changes "
                    "others"
                )
        return None

    def refuse_frozen(self, read: Storages) -> None:
        """Raise JitError where what the run read from outside was made from host data, of other values than in the run
        before."""
        storages = {id(s) for s in read}
        for m in self.frozen:
            if m.storage is None or id(m.storage) in storages:
                raise JitError(
                    "a tensor made from host data inside a jit function would be frozen at its first value, and had "
                    f"other values in the run before ({m.where}); make it outside the function, or pass it as an "
                    "argument"
                )

    def pending(self, others: Handles = ()) -> Handles:
        """Some tensors, and the live ones that were assigned, each once; they may be lazy still."""
        assigned = [t for r in self.assigned if (t := r()) is not None]
        return list({id(t): t for t in (*others, *assigned)}.values())

    def let_go(self) -> None:
        """Keep the steps and graphs no longer: they hold the memory of what the run has assigned, as it was before."""
        self.steps.clear()
        self.passed.clear()

    def owners(self) -> list[Ref]:
        """The tensors whose memory the run read."""
        found = {id(s): s.owner for step in self.steps for s in step.inputs}
        return list(found.values())

    def touched(self) -> list[ref[Handle]]:
        """The tensors whose memory the run read, and those that it computed: an assignment to one of them that is
        pending is no part of the next run."""
        return [*self.owners(), *self.realized]

    def began(self, results: set[int]) -> bool:
        """True if the run wrote to tensors, but for those of `results`, whose memory it had not read."""
        known = {id(None)} | results | {id(r()) for r in self.owners()}
        return not {id(r()) for r in self.realized} <= known

    def device(self) -> AnyDevice:
        """The device on which it ran. Raises JitError if it ran nothing."""
        storages = [s for step in self.steps for s in (*step.outputs, *step.inputs)]
        names = [*[t._device for t in self.results], *[s.device for s in storages]]
        if not names:
            raise JitError("a jit function ran nothing: it must realize or return at least one tensor")
        return get_device(names[0])


def _below(roots: Nodes, stop: Collection[UOp] = ()) -> set[UOp]:
    """The nodes that `roots` were computed from, they themselves among them, but for those below nodes of `stop`."""
    return set(toposort(roots, stop.__contains__, lambda u: () if u.op is Op.DETACH else sources_of(u)))


def _reaches(u: UOp, covered: Collection[UOp]) -> bool:
    """True if a gradient goes from a node to a leaf on a way that is not `covered`."""
    leaves = set(map(base_of, here.tensors.live_nodes()))
    return any(base_of(n) in leaves for n in _below([u], {n for n in covered if base_of(n) not in leaves}))


@contextmanager
def recording(kept: bool) -> Iterator[Recording]:
    """Note what this thread does inside the block."""
    r = Recording(kept)
    everybodys = here.tensors.recordings
    everybodys.append(r)
    observers, assigned = [*here.observers, r.steps.append], [*here.assigned, r.assigned]
    try:
        with modes(recordings=[*here.recordings, r], observers=observers, assigned=assigned, made=r.made):
            yield r
    finally:
        everybodys.remove(r)


# -- memory ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class GivenCall:
    """A call that runs the function: the tensors of its arguments, their storages, and which tensor shows which."""

    args: Any
    kwargs: Any
    tensors: list[Handle]
    places: list[int]
    storages: list[Storage]
    bound: dict[str, int]  # the values of its Variables


def copied(call: GivenCall) -> GivenCall:
    """The call with copies for its tensors: the caller's are not overwritten by the capture, and what the function
    reads by itself is no argument, even if it is passed as well.
    """
    copies = []
    for s in call.storages:
        copies.append(Storage(s.size, s.dtype, s.device))
        copies[-1].buffer = copy_of(get_device(s.device), s)
    sizes = partial(bound_sizes, values=call.bound, tag=ARGUMENT)
    given = []
    for n, t in zip(call.places, call.tensors, strict=True):
        wants = t._wants and here.grad
        given.append(type(t)._from_uop(buffer_leaf(copies[n], sizes(t.uop.shape)), t.device, wants))
        if wants:  # a gradient goes on to the caller's
            copies[n].origin = t.uop
    args, kwargs = filled(emptied((call.args, call.kwargs)), iter(given), sizes)
    return replace(call, args=args, kwargs=kwargs, tensors=given, storages=copies)


class Staging:
    """Memory of a capture's own that values are copied into before the kernels read it."""

    _loaded: ref[Storage] | None = None

    def __init__(self, memory: Storage) -> None:
        self.memory = memory
        memory.reused = True

    def load(self, device: AnyDevice, other: Storage | Array) -> None:
        """Copy the values of `other` in, unless they are there already."""
        mine = self.memory
        if not isinstance(other, Storage):
            device.upload(mine.ensure(), other)
            self._loaded = None
            return
        if self._loaded and self._loaded() is other and not other.reused:
            return
        if other.host is not None:
            device.upload(mine.ensure(), other.host)
        else:
            device.copy(other.ensure(), mine.ensure(), mine.size, mine.dtype)
        self._loaded = ref(other)


class Read:
    """A tensor outside the function that the kernels read and do not write.

    They read `bound`, the buffer it showed at the capture, for as long as it shows that one (another function may be
    updating it there); memory of their own once it shows something else.
    """

    own: Staging | None = None

    def __init__(self, tensor: Handle, storage: Storage) -> None:
        self.ref = ref(tensor)
        self.storage = storage  # what the tensor shows
        self.bound = storage.ensure()

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

    def __init__(self, tensor: Handle, storage: Storage) -> None:
        self.ref = ref(tensor)
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
        fresh = left(device, self.storage)
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
        self.storage.owner = ref(t)


@lru_cache(64)
def _references_when_alone(kind: Any, reshaped: bool) -> tuple[int, int]:
    """The references to a node that its arena, one tensor and one `Written` hold, and of the BUFFER below."""
    storage = Storage(1, dtypes.float32, "cpu")
    tensor = kind._from_uop(buffer_leaf(storage, (1, 1) if reshaped else (1,)), "cpu")
    h = Written.__new__(Written)
    h.show(storage, tensor.uop)
    return references(h.leaf), references(h.flat)


@dataclass(slots=True, eq=False)
class CopyBack:
    """The step that takes new values of state from where they were computed to where the tensor shows them."""

    device: AnyDevice
    state: Written
    aside: Storage

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
    return [step if isinstance(step, CopyBack) else over(step, place) for step in steps]


def over(step: Any, place: Mapping[int, Storage]) -> Any:
    """A step over other memory.

    Args:
        step: the step.
        place: the memory, by the ids of storages whose place it takes.
    """
    inputs, outputs = ([place.get(id(s), s) for s in several] for several in (step.inputs, step.outputs))
    return replace(step, inputs=inputs, outputs=outputs)


# -- arguments in words ------------------------------------------------------------------------------------------------


def difference(old: Any, new: Any, where: str = "arguments") -> Failure | None:
    """The first place where two structures made by `flatten` differ; None if they are equal.

    >>> difference(("tuple", ("V", int, 1)), ("tuple", ("V", int, 2)))
    Failure(what='arguments[0]', old='1', new='2')
    """
    if old == new:
        return None
    kind = old[0]
    if kind == new[0] and kind not in ("T", "V", "S") and len(old) == len(new):
        for n, (a, b) in enumerate(zip(old[1:], new[1:])):
            if kind != "dict":
                found = difference(a, b, f"{where}[{n}]")
            elif a[0] != b[0]:
                found = Failure(f"keys of {where}", repr(a[0]), repr(b[0]))
            else:
                found = difference(a[1], b[1], f"{where}[{a[0]!r}]")
            if found is not None:
                return found
    return Failure(where, _said(old), _said(new))


def described(structure: Any) -> str:
    """The arguments of which `flatten` gave a structure, as text."""
    _, args, named = structure
    return f"({', '.join([*map(_said, args[1:]), *[f'{name}={_said(s)}' for name, s in named[1:]]])})"


def _said(structure: Any) -> str:
    kind, *rest = structure
    if kind == "T":
        shape, dtype, device, wants = rest
        return f"{dtype.name} {shape} on {device}{' that requires a gradient' if wants else ''}"
    if kind == "V":
        return brief(rest[1])
    return str(rest[0]) if kind == "S" else f"a {kind} of {len(rest)}"
