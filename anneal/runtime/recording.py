"""A recording: the steps and changes of one run of a jit function, noted while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anneal.errors import JitError
from anneal.runtime.context import here
from anneal.runtime.handle import Handle
from anneal.runtime.nodes import Made

if TYPE_CHECKING:
    from anneal.runtime.steps import Step

__all__ = ["Recording", "capturing", "forbid_in_capture", "forbid_in_jit", "recording"]


def capturing() -> bool:
    """Whether a jit function is running its Python in this thread right now."""
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


class Recording:
    """The steps of one run, and the tensors that it computed and assigned; `kept`: it becomes a capture."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.steps: list[Step] = []
        self.realized: list[weakref.ref[Handle]] = []
        self.assigned: list[weakref.ref[Handle]] = []
        self.made: list[Made] = []  # from host data
        self.frozen: list[Made] = []  # those of them that the run before made of other values
        # by id, the tensors whose gradient was set, each with what it was before
        self.graded: dict[int, tuple[weakref.ref[Handle], Any]] = {}

    def note_grad(self, t: Handle) -> None:
        """The gradient of `t` is about to be set."""
        if id(t) not in self.graded:
            self.graded[id(t)] = weakref.ref(t), t._grad

    def pending(self) -> list[Handle]:
        """The live tensors that were assigned; they may be lazy still."""
        return [t for r in self.assigned if (t := r()) is not None]

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
