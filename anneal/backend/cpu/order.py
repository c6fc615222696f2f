"""The order in which streams take kernels: each as soon as the data allow, those that lead nowhere first.

The scheduler's order goes level by level, and there a weight's gradient is computed long after the values that it is
made of. Here it follows them, while they are in cache, and its update follows it. A kernel that would have to wait for
another worker stands back until the wait is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Task", "ordered"]

# Where a work item reads or writes: region, first address, last + 1, whether it writes.
Place = tuple[int, int, int, bool]


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
    ready = [n for n, count in enumerate(missing) if not count]
    finish = [0] * len(tasks)
    time = [0] * workers
    order: list[int] = []

    def start(n: int) -> int:
        return max([finish[m] + wait * apart for m, apart in tasks[n].before.items()], default=0)

    def price(n: int) -> tuple[int, int, int]:
        return max(0, start(n) - (max(time) if tasks[n].shared else min(time))), height[n], n

    while ready:
        n = min(ready, key=price)
        ready.remove(n)
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
                ready.append(m)
    return order


def _link(tasks: Sequence[Task]) -> None:
    """Fill in which task comes before which."""
    # region -> (task, item, first, last + 1, whether it writes) of what later tasks may still depend on
    touched: dict[int, list[tuple[int, int, int, int, bool]]] = {}
    for n, task in enumerate(tasks):
        for item, places in enumerate(task.places):
            for region, lo, hi, writes in places:
                for other, its, first, last, wrote in touched.get(region, ()):
                    if (writes or wrote) and lo < last and first < hi:
                        apart = its != item or not task.shared or not tasks[other].shared
                        task.before[other] = task.before.get(other, False) or apart
        for item, places in enumerate(task.places):
            for region, lo, hi, writes in places:
                there = touched.setdefault(region, [])
                if writes:
                    # whoever comes later depends on this task, and through it on what it covers
                    there[:] = [t for t in there if t[0] == n or t[2] < lo or t[3] > hi]
                there.append((n, item, lo, hi, writes))
        for other in task.before:
            tasks[other].after.append(n)
