"""Provenance: the user's line, module path and function for which a node was built, and how a thread says so."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

# Phase, the user's code and line, the path of the module that was being called ("h.0.mlp"), and the code of the
# function of anneal.ops or anneal.tensor that the user or the module called (`linear`).
Provenance = tuple[str, CodeType | None, int, str, CodeType | None]
Line = tuple[CodeType | None, int]  # the user's code and line

# Kinds of code in the search for the user's line; a named one is a public function of anneal.ops or anneal.tensor. Of
# an entry, such as the command line, all callers are frames of libraries: nobody's line is behind it.
_USERS, _INSIDE, _NAMED, _ENTRY = 0, 1, 2, 3
_ENTRIES = ("anneal.cli.", "anneal.web.")
_MAX_CODES = 1 << 13  # then they are forgotten, and begin anew: a program may go on making code
_RUNNERS = ("anneal.ops.arguments",)
_STANDARD = os.path.dirname(os.__file__) + os.sep  # the standard library, which calls users' functions
_PACKAGES = tuple([_STANDARD + name for name in ("site-packages", "dist-packages")])


class _Codes:
    """The codes that have run, and their kinds by id: a code object's hash is that of all its parts, and takes longer
    than to make a node."""

    def __init__(self) -> None:
        self.kinds: dict[int, int] = {}
        self.kept: dict[int, CodeType] = {}  # as long as they are, the ids are theirs
        self.also: list[Callable[[], None]] = []  # called where they are forgotten, by who knows codes by their ids

    def kind_of(self, f: FrameType) -> int:
        """The kind of a frame's code, which is remembered."""
        if len(self.kept) >= _MAX_CODES:
            self.kinds.clear()
            self.kept.clear()
            for forget in self.also:
                forget()
        code = f.f_code
        self.kept[id(code)] = code
        kind = self.kinds[id(code)] = _kind_of(f)
        return kind


CODES = _Codes()


def _kind_of(f: FrameType) -> int:
    module, name = f.f_globals.get("__name__", ""), f.f_code.co_name
    if not module.startswith("anneal."):
        file = f.f_code.co_filename
        standard = file.startswith((_STANDARD, "<frozen ")) and not file.startswith(_PACKAGES)
        return _INSIDE if standard else _USERS
    if module.startswith(_ENTRIES):
        return _ENTRY
    named = module.startswith(("anneal.ops.", "anneal.tensor.", "anneal.optim.")) and not module.startswith(_RUNNERS)
    if "<locals>" in f.f_code.co_qualname:  # of a decorator
        named = False
    return _NAMED if named and (name[0] not in "_<" or name in _OPERATORS) else _INSIDE


def users_frame(depth: int = 1) -> tuple[FrameType, int, CodeType | None]:
    """The frame of the user's code that the caller runs for, or the last that was looked at where there is none; its
    kind, 0 for the user's; and the code of the function of ops that was called there."""
    f, named, kinds = sys._getframe(depth + 1), None, CODES.kinds
    while True:
        code = f.f_code
        kind = kinds.get(id(code))
        if kind is None:
            kind = CODES.kind_of(f)
        if kind == _NAMED:
            named = code
        elif kind != _INSIDE:
            return f, kind, named
        back = f.f_back
        if back is None:
            return f, kind, named
        f = back


def users_line(depth: int = 1) -> Line:
    """The user's code and line that the caller runs for; None and 0 where no user's code called it."""
    return line_at(*users_frame(depth)[:2])


def line_at(f: FrameType, kind: int) -> Line:
    """The code and line of a frame of this kind; None and 0 if it is not the user's."""
    return (None, 0) if kind else (f.f_code, f.f_lineno)


def line_of(code: int, lasti: int) -> str:
    """The file and line of an instruction of the code with this id, if that has a kind."""
    found = CODES.kept.get(code)
    if found is None:
        return "code that was forgotten"
    line = next((n for begin, end, n in found.co_lines() if begin <= lasti < end), found.co_firstlineno)
    return f"{found.co_filename}:{line}"


_OPERATORS = ("__eq__", "__ne__")  # the other operators are functions of anneal.ops by other names


class _Here(threading.local):
    """State of the thread that builds."""

    phase = "forward"  # of its nodes
    path = ""  # of the module that is being called, from the one that was called first: "h.0.mlp"
    track = True  # whether nodes note the user's line
    origin: Provenance = ("forward", None, 0, "", None)  # the provenance of what is made untracked


class Builder:
    """The half of an arena that says of which provenance the nodes are that a thread makes."""

    __slots__ = ("here",)

    def __init__(self) -> None:
        self.here = _Here()

    @property
    def phase(self) -> str:
        """The phase of the nodes that this thread makes."""
        return self.here.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        here = self.here
        here.phase = phase
        here.origin = (phase, None, 0, "", None)

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """Nodes that this thread makes inside are not asked which line they come from: that takes longer than to make
        them."""
        here = self.here
        track, here.track = here.track, False
        origin = here.origin
        try:
            yield
        finally:
            here.track, here.origin = track, origin

    @contextmanager
    def located(self) -> Iterator[None]:
        """Nodes that this thread makes inside bear the line that runs now: it is looked for once, not for each."""
        here = self.here
        f, kind, function = users_frame(2)
        before = here.origin
        with self.untracked():
            here.origin = (here.phase, *line_at(f, kind), here.path, function)
            yield
        here.origin = before
