"""Provenance: the user's line, module path and function for which a node was built, and how a thread says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anneal.uop.node import UOp

__all__ = ["KINDS", "Builder", "Provenance", "kind_of"]

# Phase, the user's code and line, the path of the module that was being called ("h.0.mlp"), and the code of the
# function of anneal.ops or anneal.tensor that the user or the module called (`linear`).
Provenance = tuple[str, CodeType | None, int, str, CodeType | None]

# Kinds of code in the search for the user's line; a named one is a public function of anneal.ops or anneal.tensor.
_USERS, _INSIDE, _NAMED = 0, 1, 2
KINDS: dict[CodeType, int] = {}
_RUNNERS = ("anneal.ops.arguments",)


def kind_of(f: FrameType) -> int:
    module, name = f.f_globals.get("__name__", ""), f.f_code.co_name
    if not module.startswith("anneal."):
        return _USERS
    named = module.startswith(("anneal.ops.", "anneal.tensor.", "anneal.optim.")) and not module.startswith(_RUNNERS)
    if "<locals>" in f.f_code.co_qualname:  # of a decorator
        named = False
    return _NAMED if named and (name[0] not in "_<" or name in _OPERATORS) else _INSIDE


_OPERATORS = ("__eq__", "__ne__")  # the other operators are functions of anneal.ops by other names


class _Here(threading.local):
    """State of the thread that builds: the phase of its nodes, the module that is being called, and whether nodes note
    the user's line."""

    phase = "forward"
    path = ""
    track = True
    origin: Provenance = ("forward", None, 0, "", None)  # the provenance of what is made untracked


class Builder:
    """The half of an arena that says of which provenance the nodes are that a thread makes."""

    __slots__ = ("_here",)

    def __init__(self) -> None:
        self._here = _Here()

    @property
    def phase(self) -> str:
        """The phase of the nodes that this thread makes."""
        return self._here.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        here = self._here
        here.phase = phase
        here.origin = (phase, None, 0, "", None)

    @property
    def path(self) -> str:
        """The path of the module that this thread is calling, from the one that was called first: "h.0.mlp"."""
        return self._here.path

    @path.setter
    def path(self, path: str) -> None:
        self._here.path = path

    @property
    def track(self) -> bool:
        """Whether the nodes that this thread makes note the user's line."""
        return self._here.track

    @track.setter
    def track(self, track: bool) -> None:
        self._here.track = track

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """Nodes that this thread makes inside are not asked which line they come from: that takes longer than to make
        them."""
        here = self._here
        track, here.track = here.track, False
        origin = here.origin
        try:
            yield
        finally:
            here.track, here.origin = track, origin

    def derive(self, u: UOp) -> None:
        """Untracked nodes that this thread makes from now on bear the line, path and function of `u`, in the phase in
        force: they are its gradient, say."""
        here = self._here
        here.origin = (here.phase, *u.provenance[1:])

    def inherit(self, u: UOp) -> None:
        """Untracked nodes that this thread makes from now on bear the provenance of `u`, whose place they take."""
        self._here.origin = u.provenance
