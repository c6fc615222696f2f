"""Streams: the calls of many kernels as one list a lane, with as few meetings as the data allow.

A kernel that is shared out gives each lane the rows it most often gave it before, so a lane can go on to the next
kernel without waiting for the others. Only where a share touches memory that another lane has written, or writes what
another lane has read, does it wait, and then for that very share. A kernel that is too small to be shared out goes to the
lane that would be done with it first.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from anneal.backend.cpu.ops import Array, Step
from anneal.backend.cpu.order import Place, Task, ordered

__all__ = ["Share", "Streams", "Unseen", "compose"]

# What waiting for another lane costs, in nanoseconds, and what a call costs besides its work.
_WAIT_NS = 20_000
_CALL_NS = 700


@dataclass(slots=True)
class Share:
    """What one lane does of one kernel; `spans` are the addresses it touches, as (first, last + 1, whether it writes);
    `worth` is the estimated time in nanoseconds."""

    steps: list[Step] = field(default_factory=list)
    spans: set[tuple[int, int, bool]] = field(default_factory=set)
    worth: int = 0

    @property
    def cost(self) -> int:
        """Estimated nanoseconds with what the calls take besides their work."""
        return self.worth + _CALL_NS * len(self.steps)

    def touch(self, x: Array, written: bool) -> None:
        """Add the memory of `x`."""
        if not x.size:
            return
        lo = hi = x.__array_interface__["data"][0]
        for n, step in zip(x.shape, x.strides, strict=True):
            if step > 0:
                hi += (n - 1) * step
            else:
                lo += (n - 1) * step
        self.spans.add((lo, hi + x.itemsize, written))


class Unseen(Share):
    """A share of which others know what it may touch beforehand."""

    __slots__ = ()

    def touch(self, x: Array, written: bool) -> None:
        """Nothing to note."""


# The parts of one kernel, in order, and the same for another lane to run when there is but one share.
Part = list[Share]
Kernel = tuple[Sequence[Part], Callable[[int], Sequence[Part]]]


@dataclass
class Streams:
    """Steps of each lane, and the locks by which they wait for each other: closed before and after every run."""

    steps: list[list[Step]]
    locks: list[threading.Lock]


class _Lane:
    """What has been put into one lane so far."""

    def __init__(self, lanes: int, regions: int) -> None:
        self.shares: list[list[Step]] = []
        self.finish: list[int] = []
        # seen[n][k]: how many shares of lane k are known to be done when share n is
        self.seen: list[list[int]] = []
        self.now = [0] * lanes
        self.time = 0
        # (place, first, last + 1, whether it writes) of all that touched a region
        self.touched: list[list[Place]] = [[] for _ in range(regions)]
        self.signals: dict[int, list[threading.Lock]] = {}

    def last(self, spans: list[Place], after: int) -> int:
        """One more than the place of the last share from place `after` on that must be done before `spans` are touched."""
        found = after
        for region, lo, hi, written in spans:
            for place, first, last, wrote in reversed(self.touched[region]):
                if place < found:
                    break
                if (written or wrote) and lo < last and first < hi:
                    found = place + 1
                    break
        return found


def compose(kernels: Sequence[Kernel], lanes: int) -> Streams:
    """The shares of `kernels` in streams, in an order that has the same results."""
    starts = _regions([share for parts, _ in kernels for part in parts for share in part])
    made = [_Lane(lanes, len(starts)) for _ in range(lanes)]
    locks: list[threading.Lock] = []

    def located(share: Share) -> list[Place]:
        return [(bisect_right(starts, lo) - 1, lo, hi, written) for lo, hi, written in share.spans]

    def needs(spans: list[Place], at: int) -> list[int]:
        own = made[at].now
        return [0 if k == at else made[k].last(spans, own[k]) for k in range(lanes)]

    def begin(needed: list[int], at: int) -> int:
        lane = made[at]
        waits = [made[k].finish[n - 1] + _WAIT_NS for k, n in enumerate(needed) if n > lane.now[k]]
        return max([lane.time, *waits])

    def put(share: Share, steps: list[Step], spans: list[Place], at: int, needed: list[int]) -> None:
        lane = made[at]
        lane.time = begin(needed, at) + share.cost
        waits: list[Step] = []
        for k, n in enumerate(needed):
            if k != at and n > lane.now[k]:
                lock = threading.Lock()
                lock.acquire()
                locks.append(lock)
                made[k].signals.setdefault(n - 1, []).append(lock)
                waits.append((lock.acquire, ()))
                for j, seen in enumerate(made[k].seen[n - 1]):
                    lane.now[j] = max(lane.now[j], seen)
        place = len(lane.shares)
        lane.now[at] = place + 1
        lane.seen.append(list(lane.now))
        lane.finish.append(lane.time)
        lane.shares.append(waits + steps)
        for region, lo, hi, written in spans:
            lane.touched[region].append((place, lo, hi, written))

    tasks = []
    for parts, _ in kernels:
        shared = any(len(part) > 1 for part in parts)
        places = [
            [p for part in parts if n < len(part) for p in located(part[n])]
            for n in range(max(map(len, parts), default=0))
        ]
        worth = sum(max([share.cost for share in part]) for part in parts)
        tasks.append(Task(places, worth, shared))
    for parts, again in [kernels[n] for n in ordered(tasks, lanes, _WAIT_NS)]:
        for part in parts:
            if len(part) > 1:
                # shares of one part do not wait for each other
                spans_of = [located(share) for share in part]
                needed_of = [needs(spans, at) for at, spans in enumerate(spans_of)]
                for at, share in enumerate(part):
                    put(share, share.steps, spans_of[at], at, needed_of[at])
                continue
            share = part[0]
            spans = located(share)
            choices = [needs(spans, at) for at in range(lanes)] if len(parts) == 1 else [needs(spans, 0)]
            at = min(range(len(choices)), key=lambda at: (begin(choices[at], at), at))
            steps = share.steps if at == 0 else again(at)[0][0].steps
            put(share, steps, spans, at, choices[at])
    return Streams([_flat(lane) for lane in made], locks)


def _flat(lane: _Lane) -> list[Step]:
    steps: list[list[Step]] = []
    for place, share in enumerate(lane.shares):
        steps.append(share)
        steps.append([(lock.release, ()) for lock in lane.signals.get(place, ())])
    return list(chain.from_iterable(steps))


def _regions(shares: list[Share]) -> list[int]:
    """First addresses of regions that no span crosses, ascending."""
    starts: list[int] = []
    end = -1
    for lo, hi in sorted({(lo, hi) for share in shares for lo, hi, _ in share.spans}):
        if lo >= end:
            starts.append(lo)
        end = max(end, hi)
    return starts
