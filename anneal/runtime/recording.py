"""A recording: the steps and changes of one run of a jit function, noted while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anneal.errors import JitError
from anneal.runtime.context import here
from anneal.runtime.handle import INSIDE, Handle
from anneal.runtime.nodes import Constants, Made, base_of, sources_of
from anneal.uop import Op, UOp

if TYPE_CHECKING:
    from anneal.backend import Storage
    from anneal.runtime.guards import Draws
    from anneal.runtime.steps import Step


def capturing() -> bool:
    """True while a jit function runs its Python in this thread."""
    return bool(here.recordings)


def forbid_in_jit(what: str, fix: str) -> None:
    """Raise JitError if a jit function is running: `what` would freeze, `fix` says what to do instead."""
    if here.recordings:
        raise JitError(f"{what} inside a jit function would be frozen at its first value; {fix}")


def forbid_in_capture(what: str, fix: str) -> None:
    """Raise JitError if a run is being captured: replays would not do `what`, `fix` says what to do instead.

    The first call of a jit function is no such run: what is made there once and kept is seen by the second.
    """
    if here.recordings and here.recordings[-1].kept:
        raise JitError(f"{what} inside a jit function would not be done again by its replays; {fix}")


class Graded:
    """A leaf whose gradient a run set: `old`, what it was before; and how the last of what was set stands."""

    __slots__ = ("dropped", "old", "read", "ref", "set", "used")

    def __init__(self, t: Handle) -> None:
        self.ref, self.old = weakref.ref(t), t._grad
        self.set = self.read = False  # whether there is a gradient that the run set, and whether it was read since
        self.used = self.dropped = False  # whether one was read before it was dropped, and whether one was dropped

    def note(self, value: Any) -> None:
        if value is None:
            self.used |= self.set and self.read
            self.dropped = True
        self.set, self.read = value is not None, False


class Recording:
    """The steps of one run, and the tensors that it computed and assigned; `kept`: it becomes a capture."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.steps: list[Step] = []
        self.realized: list[weakref.ref[Handle]] = []
        self.assigned: list[weakref.ref[Handle]] = []
        self.made: list[Made] = []  # from host data
        self.frozen: list[Made] = []  # those of them that the run before made of other values
        self.graded: dict[int, Graded] = {}  # by id, the tensors whose gradient was set
        self.constants: Constants = {}  # the numbers in what it computed
        self.draws: Draws | None = None  # while it runs, where it is to become a capture
        self.passed: list[UOp] = []  # nodes whose backward was taken for the last time
        self.given: list[weakref.ref[Handle]] = []  # copies of arguments, which have no gradient of their own
        self.read_outside: Handle | None = None  # a tensor whose gradient was read, and had been taken before

    def note_grad(self, t: Handle, value: Any) -> None:
        """The gradient of `t` is about to be set."""
        self.graded.setdefault(id(t), Graded(t)).note(value)

    def note_read(self, t: Handle) -> None:
        """The gradient of `t` is read."""
        mine = self.graded.get(id(t))
        if mine is not None and (mine.set or mine.dropped):
            mine.read = True
        elif t._grad is not None or any(t is r() for r in self.given):
            self.read_outside = t

    def note_passed(self, t: Handle) -> None:
        """The backward of `t` is taken for the last time."""
        self.passed += (t.uop, *sources_of(t.uop))

    def flows(self, results: Sequence[tuple[Handle, UOp]]) -> bool:
        """True if gradients flow through the run's results, and otherwise neither into it nor out of it, so that a
        capture of it has a backward pass of its own."""
        if self.graded or self.passed or self.read_outside is not None:
            return False
        ids = {id(t) for t, _ in results}
        flowing = [t for t in (*[t for t, _ in results], *self.pending()) if t._wants and not t._leaf]
        return bool(flowing) and all(id(t) in ids and not t._spent for t in flowing)

    def refused(self, given: Sequence[Handle], results: Sequence[tuple[Handle, UOp]], flows: bool) -> str | None:
        """The reason for which calls like the run are not captured, None if they may be: it was `given` arguments, and
        gradients are taken of its `results` alone if it `flows`. Raises JitError where it assigned to an argument."""
        changed = [t for t in given if any(t is r() for r in self.assigned)]
        if any(not t._wants for t in changed):
            raise JitError(
                "a jit function assigned to its argument, or changed it in place; return the new value (x = x + y for "
                "x += y), or assign to a tensor that it reads"
            )
        if changed:
            return "it changes an argument that requires a gradient"
        why = None if flows else self.why_not(results)
        if why is None and (self.graded or self.passed) and any(t._wants for t in given):
            why = "an argument requires a gradient, and it takes gradients itself"
        return why

    def taken(self) -> list[tuple[weakref.ref[Handle], Any]]:
        """The leaves whose gradient the run set, each with what it shows afterwards: a gradient stays INSIDE."""
        graded: list[tuple[weakref.ref[Handle], Any]] = []
        for g in self.graded.values():
            leaf = g.ref()
            if leaf is not None:
                if g.set:
                    leaf._grad = INSIDE
                graded.append((g.ref, INSIDE if g.set else None))
        return graded

    def why_not(self, results: Sequence[tuple[Handle, UOp]]) -> str | None:
        """The reason for which no replay may stand for the run, whose results had these nodes; None if one may.

        A replay has no graph, and takes and leaves no gradients. So nothing may be left through which a gradient goes
        to a leaf, but for what the run's own backward went through: that is spent, as in torch.
        """
        if (t := self.read_outside) is not None:
            return f"it uses the gradient of a tensor of shape {t.uop.shape} that was computed outside"
        left = [g for g in self.graded.values() if g.set and not g.read and not g.used]
        whole = len(left) < len(self.graded) and any(g.used or (g.set and g.read) for g in self.graded.values())
        for g in left:
            if (leaf := g.ref()) is None or leaf._grad is INSIDE:
                continue
            if not whole or not (g.dropped or g.old is None or g.old is INSIDE):
                return f"it leaves the gradient of a tensor of shape {leaf.uop.shape} for code outside"
        others = [(t, t.uop) for t in self.pending()]
        there = [(t, u, what) for found, what in ((results, "result"), (others, "tensor")) for t, u in found]
        flowing = [(t, u, what) for t, u, what in there if t._wants and not t._leaf and not t._spent]
        if flowing:
            covered = _below(self.passed, set()) if self.passed else set()
            for t, u, what in flowing:
                if not covered or _reaches(u, covered):
                    given = "it gives" if what == "result" else "it changes"
                    return (
                        f"{given} a {what} of shape {t.uop.shape} through which gradients flow, and it takes gradients "
                        "or changes others"
                    )
        return None

    def refuse_frozen(self, read: Sequence[Storage]) -> None:
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

    def pending(self) -> list[Handle]:
        """The live tensors that were assigned; they may be lazy still."""
        return [t for r in self.assigned if (t := r()) is not None]

    def let_go(self) -> None:
        """Keep the steps and graphs no longer: they hold the memory of what the run has assigned, as it was before."""
        self.steps.clear()
        self.passed.clear()

    def owners(self) -> list[weakref.ref[Handle]]:
        """The tensors whose memory the run read."""
        found = {id(s): s.owner for step in self.steps for s in step.inputs if s.owner is not None}
        return list(found.values())

    def device(self) -> str:
        """The name of the device on which it ran. Raises JitError if it ran nothing."""
        for step in self.steps:
            for s in (*step.outputs, *step.inputs):
                return s.device
        raise JitError("a jit function ran nothing: it must realize or return at least one tensor")


def _below(roots: Sequence[UOp], stop: set[UOp]) -> set[UOp]:
    """The nodes that `roots` were computed from, they themselves among them, but for those below nodes of `stop`."""
    seen: set[UOp] = set()
    stack = [u for u in roots if u not in stop]
    while stack:
        u = stack.pop()
        if u not in seen:
            seen.add(u)
            if u.op is not Op.DETACH:
                stack += [s for s in sources_of(u) if s not in stop]
    return seen


def _reaches(u: UOp, covered: set[UOp]) -> bool:
    """True if a gradient goes from a node to a leaf on a way that is not `covered`."""
    leaves = {base_of(n) for t in here.context.tensors.live_leaves() for n in (t.uop, t._alias) if n is not None}
    return any(base_of(n) in leaves for n in _below([u], {n for n in covered if base_of(n) not in leaves}))


@contextmanager
def recording(kept: bool) -> Iterator[Recording]:
    """Note what this thread does inside the block."""
    r = Recording(kept)
    here.recordings.append(r)
    everybodys = here.context.tensors.recordings
    everybodys.append(r)
    here.observers.append(r.steps.append)
    here.realized.append(r.realized)
    here.assigned.append(r.assigned)
    outer, here.made = here.made, r.made
    try:
        yield r
    finally:
        here.made = outer
        here.assigned.pop()
        here.realized.pop()
        here.observers.pop()
        here.recordings.pop()
        everybodys.remove(r)
