"""Barriers: between which dispatches the GPU must wait, and how one wait serves several.

wgpu follows every buffer by itself: a dispatch waits for all work before it if a buffer it binds was written before, or
is written now and was used before in the same command buffer. So two dispatches that are independent of each other
still run one after the other if each reads something that was written since. Two remedies, for a run of independent
dispatches:

- a fence: a dispatch of no workgroups that binds everything the run reads; the run itself then waits no more;
- a cut: at the begin of a command buffer wgpu waits once for all uses in it, writes too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

# A command buffer costs more than a wait: it must spare this many.
_CUT_SPARES = 3


B = TypeVar("B", bound=Hashable)
State = dict[B, Literal["read", "written"]]


@dataclass(frozen=True, slots=True)
class Use(Generic[B]):
    """The buffers that a dispatch binds, to read and to write."""

    reads: Sequence[B]
    writes: Sequence[B]


@dataclass(slots=True)
class Section(Generic[B]):
    """The dispatches from `begin` to `end`, in a command buffer of their own if `cut`, after a fence over `fence`."""

    begin: int
    end: int
    cut: bool = False
    fence: tuple[B, ...] = ()


def _runs(uses: Sequence[Use[B]]) -> Iterator[tuple[int, int]]:
    """Ranges of dispatches in a row that are independent of each other."""
    begin = 0
    read: set[B] = set()
    written: set[B] = set()
    for n, use in enumerate(uses):
        if not written.isdisjoint(use.reads) or not written.isdisjoint(use.writes) or not read.isdisjoint(use.writes):
            yield begin, n
            begin, read, written = n, set(), set()
        read.update(use.reads)
        written.update(use.writes)
    if begin < len(uses):
        yield begin, len(uses)


def _waits(uses: Sequence[Use[B]], state: State[B]) -> int:
    """The number of `uses` that wait, in a command buffer that has left its buffers in `state`; updates `state`."""
    waits = 0
    for use in uses:
        waits += any(state.get(b) == "written" for b in use.reads) or any(b in state for b in use.writes)
        state.update(dict.fromkeys(use.reads, "read"))
        state.update(dict.fromkeys(use.writes, "written"))
    return waits


def sections(uses: Sequence[Use[B]]) -> list[Section[B]]:
    """Cuts and fences for a sequence of dispatches."""
    out: list[Section[B]] = []
    state: State[B] = {}
    for begin, end in _runs(uses):
        run = uses[begin:end]
        section: Section[B] = Section(begin, end)
        if end - begin > 1:
            plain = _waits(run, dict(state))
            stale = tuple(dict.fromkeys(b for use in run for b in use.reads if state.get(b) == "written"))
            fenced = 1 + _waits(run, state | dict.fromkeys(stale, "read")) if stale else plain
            if min(plain, fenced) > _CUT_SPARES:
                section.cut = True
                state = {}
            elif fenced < plain:
                section.fence = stale
                state.update(dict.fromkeys(stale, "read"))
        _waits(run, state)
        out.append(section)
    return out
