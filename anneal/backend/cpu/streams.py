"""Streams: the calls of many kernels as one list a worker, with as few synchronisations as the data allow."""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile
from typing import Generic, TypeVar

from anneal.backend.cpu.ops import Array, Step

# Where a work item reads or writes: first address, last + 1, whether it writes.
Place = tuple[int, int, bool]
T = TypeVar("T")
# Work items as (task, item), the last one first: lists that share their tails.
Items = tuple[tuple[int, int], "Items"] | None

# ---------------------------------------------------------------------------------------------------------------------
# The order in which streams take kernels: each as soon as the data allow, those that lead nowhere first.
#
# The scheduler's order goes level by level, and there a weight's gradient is computed long after the values that it
# is made of. Here it follows them, while they are in cache, and its update follows it. A kernel that would have to
# wait for another worker stands back until the wait is over.


class Spans(Generic[T]):
    """A value for each address, in as few stretches as they make: finding one takes a logarithm of them."""

    def __init__(self, value: T) -> None:
        self._starts = [-1]
        self._values = [value]

    def over(self, lo: int, hi: int) -> list[T]:
        """The values of the stretches that have an address of `lo` to `hi` - 1."""
        return self._values[bisect_right(self._starts, lo) - 1 : bisect_left(self._starts, hi)]

    def change(self, lo: int, hi: int, of: Callable[[T], T]) -> None:
        """Replace the values from `lo` to `hi` - 1; neighbours for which `of` gives the same object become one."""
        at, end = self._cut(lo), self._cut(hi)
        starts: list[int] = []
        values: list[T] = []
        for start, value in zip(self._starts[at:end], map(of, self._values[at:end])):
            if not values or values[-1] is not value:
                starts.append(start)
                values.append(value)
        self._starts[at:end] = starts
        self._values[at:end] = values

    def _cut(self, address: int) -> int:
        """The place of the stretch that begins here, which is made if there is none."""
        at = bisect_left(self._starts, address)
        if at == len(self._starts) or self._starts[at] != address:
            self._starts.insert(at, address)
            self._values.insert(at, self._values[at - 1])
        return at


@dataclass(slots=True)
class Task:
    """A kernel as the order sees it: what each work item touches, the longest one in nanoseconds, and whether all
    workers take part."""

    places: list[list[Place]]
    worth: int
    shared: bool
    before: dict[int, bool] = field(default_factory=dict)  # tasks that come first: whether they are another worker's
    after: list[int] = field(default_factory=list)


def ordered(tasks: Sequence[Task], workers: int, wait: int) -> list[int]:
    """A permutation of `tasks` in which whatever touches the same memory keeps its order, unless all only read."""
    _link(tasks)
    height = [0] * len(tasks)
    for n in range(len(tasks) - 1, -1, -1):
        height[n] = tasks[n].worth + max([height[m] for m in tasks[n].after], default=0)
    missing = [len(t.before) for t in tasks]
    finish = [0] * len(tasks)
    time = [0] * workers
    order: list[int] = []
    # for those that all workers share, and for the others: what can begin at once, by height; and what has to wait
    ready: list[list[tuple[int, int]]] = [[], []]
    waiting: list[list[tuple[int, int, int]]] = [[], []]

    def start(n: int) -> int:
        return max([finish[m] + wait * apart for m, apart in tasks[n].before.items()], default=0)

    def offer(n: int) -> None:
        heappush(waiting[tasks[n].shared], (start(n), height[n], n))

    def cheapest() -> int:
        """The task that makes workers wait the least, of these the lowest."""
        best: list[tuple[int, int, int, int]] = []
        for shared, now in enumerate((min(time), max(time))):
            while waiting[shared] and waiting[shared][0][0] <= now:
                heappush(ready[shared], heappop(waiting[shared])[1:])
            if ready[shared]:
                best.append((0, *ready[shared][0], shared))
            elif waiting[shared]:
                begins, high, n = waiting[shared][0]
                best.append((begins - now, high, n, shared))
        _, _, n, shared = min(best)
        if ready[shared]:
            heappop(ready[shared])
        else:
            heappop(waiting[shared])
        return n

    for n, count in enumerate(missing):
        if not count:
            offer(n)
    for _ in tasks:
        n = cheapest()
        order.append(n)
        if tasks[n].shared:
            begun = start(n)
            time = [max(t, begun) + tasks[n].worth for t in time]
            finish[n] = max(time)
        else:
            at = time.index(min(time))
            finish[n] = time[at] = max(time[at], start(n)) + tasks[n].worth
        for m in tasks[n].after:
            missing[m] -= 1
            if not missing[m]:
                offer(m)
    return order


def _link(tasks: Sequence[Task]) -> None:
    """Fill in which task comes before which."""
    # who wrote there last, and who has read it since: later tasks may depend on them, and through them on all before
    touched: Spans[tuple[Items, Items]] = Spans((None, None))
    for n, task in enumerate(tasks):
        for item, places in enumerate(task.places):
            for lo, hi, writes in places:
                for wrote, read in touched.over(lo, hi):
                    for other, its in [*_listed(wrote), *(_listed(read) if writes else ())]:
                        apart = its != item or not task.shared or not tasks[other].shared
                        task.before[other] = task.before.get(other, False) or apart
        for item, places in enumerate(task.places):
            for lo, hi, writes in places:
                touched.change(lo, hi, _noted(n, item, writes))
        for other in task.before:
            tasks[other].after.append(n)


def _noted(n: int, item: int, writes: bool) -> Callable[[tuple[Items, Items]], tuple[Items, Items]]:
    """A function that updates the record of who touched an address, when an item of task `n` does."""
    made: dict[object, tuple[Items, Items]] = {}

    def reads(found: tuple[Items, Items]) -> tuple[Items, Items]:
        return made.setdefault(id(found), (found[0], ((n, item), found[1])))

    def wrote(found: tuple[Items, Items]) -> tuple[Items, Items]:
        # the task's own stay: they are the last ones
        own = [tuple(takewhile(lambda x: x[0] == n, _listed(items))) for items in found]
        return made.setdefault(tuple(own), (((n, item), _items(own[0])), _items(own[1])))

    return wrote if writes else reads


def _items(some: Sequence[tuple[int, int]]) -> Items:
    out: Items = None
    for x in reversed(some):
        out = x, out
    return out


def _listed(items: Items) -> Iterator[tuple[int, int]]:
    """Work items one after the other, the last one first."""
    while items is not None:
        yield items[0]
        items = items[1]


# ---------------------------------------------------------------------------------------------------------------------


# What waiting for another worker costs, in nanoseconds, and what a call costs besides its work.
_WAIT_NS = 20_000
_CALL_NS = 700


@dataclass(slots=True)
class WorkItem:
    """One worker's part of one kernel; `spans` are the addresses it touches, as (first, last + 1, whether it
    writes); `worth` is the estimated time in nanoseconds."""

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

    def places(self) -> list[Place]:
        """The memory that it touches, with neighbours joined."""
        out: list[Place] = []
        for kind in (False, True):
            end = -1
            for lo, hi, written in sorted([s for s in self.spans if s[2] is kind]):
                if lo > end:
                    out.append((lo, hi, written))
                elif hi > end:
                    out[-1] = out[-1][0], hi, written
                end = max(end, hi)
        return out


class Unseen(WorkItem):
    """A work item of which others know what it may touch beforehand."""

    __slots__ = ()

    def touch(self, x: Array, written: bool) -> None:
        """Does nothing."""


# The waves of one kernel, in order, and the same for another worker to run where a wave has but one item.
Wave = list[WorkItem]
Kernel = tuple[Sequence[Wave], Callable[[int], Sequence[Wave]]]


@dataclass
class Streams:
    """Steps of each worker, and the locks by which they wait for each other: closed before and after every run.

    A kernel that is split into work items gives each worker the rows it most often gave it before, so a worker can go
    on to the next kernel without waiting for the others. Only where an item touches memory that another worker has
    written, or writes what another worker has read, does it wait, and then for that very item. A kernel that is too
    small to be split goes to the worker that would be done with it first.

    `kernels` has the number of the kernel that each step is of, -1 where it waits or lets others go on.
    """

    steps: list[list[Step]]
    locks: list[threading.Lock]
    kernels: list[list[int]] = field(default_factory=list)
    _parts: list[tuple[list[list[Step]], list[int]]] = field(default_factory=list)

    def parts(self) -> list[tuple[list[list[Step]], list[int]]]:
        """For each worker the steps in a row that are of one kernel, and the number of each such row's kernel."""
        if not self._parts:
            for steps, kernels in zip(self.steps, self.kernels, strict=True):
                rows: list[list[Step]] = []
                numbers: list[int] = []
                for step, kernel in zip(steps, kernels, strict=True):
                    if numbers[-1:] != [kernel]:
                        rows.append([])
                        numbers.append(kernel)
                    rows[-1].append(step)
                self._parts.append((rows, numbers))
        return self._parts


class _Worker:
    """The tasks that one worker has been given so far."""

    def __init__(self, workers: int) -> None:
        self.items: list[list[Step]] = []
        self.kernels: list[list[int]] = []  # of the steps of each item
        self.finish: list[int] = []
        # seen[n][k]: how many items of worker k are known to be done when item n is
        self.seen: list[list[int]] = []
        self.now = [0] * workers
        self.time = 0
        # the places of the last item that wrote to an address, and of the last one that touched it
        self.touched = Spans((-1, -1))
        self.signals: dict[int, list[threading.Lock]] = {}

    def last(self, spans: list[Place], after: int) -> int:
        """One more than the place of the last item from place `after` on that must be done before `spans` are
        touched."""
        found = after
        for lo, hi, written in spans:
            for touched in self.touched.over(lo, hi):
                found = max(found, touched[written] + 1)
        return found


def _touched(place: int, written: bool) -> Callable[[tuple[int, int]], tuple[int, int]]:
    """A function that updates the record of who touched an address last, when the item at `place` does."""
    made: dict[int, tuple[int, int]] = {}

    def now(last: tuple[int, int]) -> tuple[int, int]:
        wrote = place if written else last[0]
        return made.setdefault(wrote, (wrote, place))

    return now


def compose(kernels: Sequence[Kernel], workers: int) -> Streams:
    """The work items of `kernels` in streams, in an order that has the same results."""
    made = _Composition(kernels, workers)
    for number in ordered(made.tasks(kernels), workers, _WAIT_NS):
        made.kernel = number
        waves, again = kernels[number]
        for wave in waves:
            if len(wave) > 1:
                made.put_side_by_side(wave)
            else:
                made.put_where_it_ends_first(wave[0], again if len(waves) == 1 else None)
    flat = [_flat(worker) for worker in made.workers]
    return Streams([steps for steps, _ in flat], made.locks, [numbers for _, numbers in flat])


class _Composition:
    """Streams that work items are added to, one after the other."""

    def __init__(self, kernels: Sequence[Kernel], workers: int) -> None:
        self.workers = [_Worker(workers) for _ in range(workers)]
        self.locks: list[threading.Lock] = []
        self.kernel = 0  # whose items are added
        self.places = {id(item): item.places() for waves, _ in kernels for wave in waves for item in wave}

    def tasks(self, kernels: Sequence[Kernel]) -> list[Task]:
        """The tasks of all kernels, each with the addresses it touches: from these the order is made."""
        tasks = []
        for waves, _ in kernels:
            shared = any(len(wave) > 1 for wave in waves)
            places = [
                [p for wave in waves if n < len(wave) for p in self.places[id(wave[n])]]
                for n in range(max(map(len, waves), default=0))
            ]
            worth = sum(max([item.cost for item in wave]) for wave in waves)
            tasks.append(Task(places, worth, shared))
        return tasks

    def needs(self, spans: list[Place], at: int) -> list[int]:
        """The item that each worker must have reached before worker `at` may touch `spans`."""
        own = self.workers[at].now
        return [0 if k == at else worker.last(spans, own[k]) for k, worker in enumerate(self.workers)]

    def begin(self, needed: list[int], at: int) -> int:
        """The earliest time at which worker `at` can begin, if the others must have come this far."""
        worker = self.workers[at]
        waits = [self.workers[k].finish[n - 1] + _WAIT_NS for k, n in enumerate(needed) if n > worker.now[k]]
        return max([worker.time, *waits])

    def put(self, item: WorkItem, steps: list[Step], spans: list[Place], at: int, needed: list[int]) -> None:
        """Have worker `at` do `steps` for the work item next, after it has waited for what is `needed`."""
        worker = self.workers[at]
        worker.time = self.begin(needed, at) + item.cost
        waits: list[Step] = []
        for k, n in enumerate(needed):
            if k != at and n > worker.now[k]:
                lock = threading.Lock()
                lock.acquire()
                self.locks.append(lock)
                self.workers[k].signals.setdefault(n - 1, []).append(lock)
                waits.append((lock.acquire, ()))
                for j, seen in enumerate(self.workers[k].seen[n - 1]):
                    worker.now[j] = max(worker.now[j], seen)
        place = len(worker.items)
        worker.now[at] = place + 1
        worker.seen.append(list(worker.now))
        worker.finish.append(worker.time)
        worker.items.append(waits + steps)
        worker.kernels.append([-1] * len(waits) + [self.kernel] * len(steps))
        for lo, hi, written in spans:
            worker.touched.change(lo, hi, _touched(place, written))

    def put_side_by_side(self, wave: Sequence[WorkItem]) -> None:
        """A work item for each worker; those of one wave do not wait for each other."""
        spans_of = [self.places[id(item)] for item in wave]
        needed_of = [self.needs(spans, at) for at, spans in enumerate(spans_of)]
        for at, item in enumerate(wave):
            self.put(item, item.steps, spans_of[at], at, needed_of[at])

    def put_where_it_ends_first(self, item: WorkItem, again: Callable[[int], Sequence[Wave]] | None) -> None:
        """The one work item of a wave: the first worker's, or any other's, if `again` makes it for that one."""
        spans = self.places[id(item)]
        choices = [self.needs(spans, at) for at in range(len(self.workers) if again is not None else 1)]
        at = min(range(len(choices)), key=lambda at: (self.begin(choices[at], at), at))
        steps = item.steps if at == 0 or again is None else again(at)[0][0].steps
        self.put(item, steps, spans, at, choices[at])


def _flat(worker: _Worker) -> tuple[list[Step], list[int]]:
    """The steps of a worker, and the number of each one's kernel."""
    steps: list[Step] = []
    kernels: list[int] = []
    for place, (item, numbers) in enumerate(zip(worker.items, worker.kernels, strict=True)):
        signals: list[Step] = [(lock.release, ()) for lock in worker.signals.get(place, ())]
        steps += item
        steps += signals
        kernels += numbers
        kernels += [-1] * len(signals)
    return steps, kernels


Span = tuple[float, float, int]  # when a row of steps began and ended, and the number of its kernel


def run_timed(rows: list[list[Step]], ticks: array[float]) -> None:
    """Run rows of steps, each of one kernel; `ticks` gets the time before the first, and after each."""
    clock, note = time.perf_counter, ticks.append
    note(clock())
    for steps in rows:
        for f, args in steps:
            f(*args)
        note(clock())


def spans(ticks: Sequence[float], kernels: Sequence[int]) -> list[Span]:
    """The rows of one worker that are of kernels, as `run_timed` noted them.

    Args:
        kernels: the number of the kernel that each row is of, -1 for a wait.
    """
    return [(b, e, k) for b, e, k in zip(ticks, ticks[1:], kernels) if k >= 0 and e > b]


def shares(workers: Sequence[Sequence[Span]], count: int, begun: float, ended: float) -> tuple[list[float], float]:
    """The seconds of each of `count` kernels in a run, and those in which no worker computed.

    Where several workers compute at once, each has its part of that time; where none does, one is being woken, or waits
    for a processor, and the time is the next kernel's, or the last one's at the end. The seconds add up to the run's.

    Args:
        workers: the steps of each.
        begun: when the run began.
        ended: when it ended.

    >>> shares([[(0.0, 2.0, 0)], [(1.0, 3.0, 1), (4.0, 5.0, 0)]], 2, 0.0, 5.5)
    ([4.0, 1.5], 1.5)
    """
    seconds = [0.0] * count
    at, waited, active, kernel = begun, 0.0, 0, 0
    running: dict[int, int] = {}
    # all at which something ends (0) or begins (1)
    for now, begins, kernel in sorted([m for found in workers for b, e, k in found for m in ((b, 1, k), (e, 0, k))]):
        for k, n in running.items():
            seconds[k] += (now - at) * n / active
        if not active:
            seconds[kernel] += now - at
            waited += now - at
        at = now
        active += 1 if begins else -1
        running[kernel] = running.get(kernel, 0) + (1 if begins else -1)
        if not running[kernel]:
            del running[kernel]
    if at > begun:
        seconds[kernel] += ended - at
        waited += ended - at
    return seconds, waited
