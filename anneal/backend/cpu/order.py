"""The order in which streams take kernels: each as soon as the data allow, those that lead nowhere first.

The scheduler's order goes level by level, and there a weight's gradient is computed long after the values that it is
made of. Here it follows them, while they are in cache, and its update follows it. A kernel that would have to wait for
another worker stands back until the wait is over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile
from typing import Generic, TypeVar

# Where a work item reads or writes: first address, last + 1, whether it writes.
Place = tuple[int, int, bool]
T = TypeVar("T")
# Work items as (task, item), the last one first: lists that share their tails.
Items = tuple[tuple[int, int], "Items"] | None


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
