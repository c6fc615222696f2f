"""In which order streams take kernels: what depends on what, what stands back for a wait, what leads nowhere first."""

from __future__ import annotations

import sys

import pytest

from anneal.backend.cpu.streams import Place, Task, ordered

WAIT = 100


def task(*items: list[Place], worth: int = 10) -> Task:
    return Task(list(items), worth, len(items) > 1)


def reads(lo: int, hi: int) -> Place:
    return lo, hi, False


def writes(lo: int, hi: int) -> Place:
    return lo, hi, True


def linked(*tasks: Task) -> list[dict[int, bool]]:
    """For each task those that come first, and whether they are another worker's."""
    ordered(tasks, 2, WAIT)
    return [t.before for t in tasks]


@pytest.mark.parametrize(("first", "second", "depends"), [
    (writes(0, 8), reads(0, 8), True),
    (reads(0, 8), writes(0, 8), True),
    (writes(0, 8), writes(0, 8), True),
    (reads(0, 8), reads(0, 8), False),
    (writes(0, 8), reads(8, 16), False),  # the last address is behind the last
    (writes(0, 8), reads(7, 16), True),
])  # fmt: skip
def test_who_touches_what_another_writes_comes_after_it(first: Place, second: Place, depends: bool) -> None:
    assert linked(task([first]), task([second])) == [{}, {0: True} if depends else {}]


def test_work_items_of_the_same_worker_need_not_wait_for_each_other() -> None:
    def rows(kind: object, *places: tuple[int, int]) -> Task:
        assert callable(kind)
        return task(*[[kind(lo, hi)] for lo, hi in places])

    halves = (0, 8), (8, 16)
    assert linked(rows(writes, *halves), rows(reads, *halves)) == [{}, {0: False}]
    assert linked(rows(writes, *halves), rows(reads, *halves[::-1])) == [{}, {0: True}]
    assert linked(rows(writes, *halves), task([reads(0, 16)])) == [{}, {0: True}], "which worker's it is, nobody knows"


def test_a_write_stands_for_all_that_it_covers() -> None:
    made = linked(task([writes(0, 8)]), task([writes(0, 8)]), task([reads(0, 8)]))
    assert made == [{}, {0: True}, {1: True}]
    made = linked(task([writes(0, 8)]), task([writes(0, 4)]), task([reads(0, 8)]))
    assert made == [{}, {0: True}, {0: True, 1: True}], "a part is not all"


def test_what_leads_nowhere_comes_first() -> None:
    # 0 makes what 1, 2 and 3 read; 2 and 3 are a chain
    tasks = [task([writes(0, 8)]), task([reads(0, 8)]), task([reads(0, 8), writes(8, 16)]), task([reads(8, 16)])]
    assert ordered(tasks, 1, WAIT) == [0, 1, 2, 3]
    late = [tasks[0], task([reads(0, 8), writes(8, 16)]), task([reads(8, 16)]), task([reads(0, 8)])]
    for t in late:
        t.before, t.after = {}, []
    assert ordered(late, 1, WAIT) == [0, 3, 1, 2]


def test_equal_tasks_keep_their_order() -> None:
    assert ordered([task([reads(0, 8)]) for _ in range(5)], 2, WAIT) == [0, 1, 2, 3, 4]


def halves(kind: object, crossed: bool = False, base: int = 0, worth: int = 10) -> Task:
    assert callable(kind)
    places = [[kind(base, base + 8)], [kind(base + 8, base + 16)]]
    return task(*(places[::-1] if crossed else places), worth=worth)


def test_a_kernel_that_would_wait_for_another_worker_stands_back() -> None:
    # 1 reads what the other worker of 0 wrote; 2 has nothing to do with either, and more to come after it
    tasks = [halves(writes), halves(reads, crossed=True), halves(writes, base=100, worth=1000)]
    assert ordered(tasks, 2, WAIT) == [0, 2, 1]
    straight = [halves(writes), halves(reads), halves(writes, base=100, worth=1000)]
    assert ordered(straight, 2, WAIT) == [0, 1, 2], "its own rows it need not wait for"


def test_small_kernels_go_to_the_worker_that_is_free_first() -> None:
    # 0 and 1 run side by side; 2 needs the long one, 3 the short one, which is over before
    tasks = [
        task([writes(0, 8)], worth=1000),
        task([writes(8, 16)], worth=10),
        task([reads(0, 8), writes(32, 40)], worth=10),
        task([reads(8, 16), writes(40, 48)], worth=5000),
    ]
    assert ordered(tasks, 2, 0) == [0, 1, 3, 2]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_it_is_a_permutation(workers: int) -> None:
    tasks = [task([writes(n % 3 * 8, n % 3 * 8 + 8)]) for n in range(12)]
    order = ordered(tasks, workers, WAIT)
    assert sorted(order) == list(range(12))
    for column in range(3):
        assert [n for n in order if n % 3 == column] == [n for n in range(12) if n % 3 == column]


def steps(tasks: list[Task]) -> int:
    """How many lines of Python `ordered` goes through."""
    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        ordered(tasks, 2, WAIT)
    finally:
        sys.settrace(before)
    return count


MANY = {
    "rows of many kernels that read one weight": lambda n: [
        task([reads(0, 64), writes(64 + 8 * k, 72 + 8 * k)], [reads(0, 64)]) for k in range(n)
    ],
    "many rows of each of a few kernels": lambda n: [
        halves(writes),
        *[task(*[[writes(20 * k, 20 * k + 8) for k in range(at, n, 2)] for at in (0, 1)]) for _ in range(3)],
        task([reads(0, 20 * n)]),
    ],
    "a chain": lambda n: [task([reads(8 * k, 8 * k + 8), writes(8 * k + 8, 8 * k + 16)]) for k in range(n)],
    "one buffer again and again": lambda n: [task([reads(0, 8)] if k % 3 else [writes(0, 16)]) for k in range(n)],
    "outputs side by side, then one reader": lambda n: [
        *[task([writes(8 * k, 8 * k + 4)]) for k in range(n)],
        task([reads(0, 8 * n)]),
    ],
}


@pytest.mark.parametrize("what", MANY)
def test_the_order_of_many_takes_no_more_for_each(what: str) -> None:
    few, many = [steps(MANY[what](n)) / n for n in (100, 800)]
    assert many <= 1.5 * few
