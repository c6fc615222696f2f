"""Streams: workers that wait for each other only where the data say so."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from anneal.backend.cpu import executor, layout, planner
from anneal.backend.cpu.executor import CpuDevice
from anneal.backend.cpu.streams import Streams, Task, WorkItem, compose, ordered
from anneal.backend.cpu.workers import Workers
from anneal.uop import Op, UOp
from tests.backend.cpu.kernels import kernel, load, loop, over, param, reduce, store

pytestmark = pytest.mark.usefixtures("in_numpy")

N = 24


@pytest.fixture
def everything_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", -1)
    monkeypatch.setattr(executor, "_SYNCHRONISATION_NS", -1)
    monkeypatch.setattr(executor, "_ARRANGING_NS", 0)


def device(workers: int) -> CpuDevice:
    made = CpuDevice()
    made.workers = Workers(workers)
    return made


def add_one() -> UOp:
    i = loop(0, N * N)
    return kernel(store(param(0, N * N), i, load(param(1, N * N), i) + 1.0))


def transposed() -> UOp:
    i, j = loop(0, N), loop(1, N)
    return kernel(store(param(0, N * N), i * N + j, load(param(1, N * N), j * N + i) * 0.5))


def row_means() -> UOp:
    i, j, k = loop(0, N), loop(1, N), over(2, N)
    x = param(1, N * N)
    value = load(x, i * N + j) - reduce(Op.ADD, load(x, i * N + k), k) * (1 / N)
    return kernel(store(param(0, N * N), i * N + j, value))


def column_sums() -> UOp:
    j, k = loop(0, N), over(1, N)
    return kernel(store(param(0, N * N), j, reduce(Op.ADD, load(param(1, N * N), k * N + j), k) * 0.1))


def product() -> UOp:
    i, j, k = loop(0, N), loop(1, N), over(2, N)
    a, b = load(param(1, N * N), i * N + k), load(param(2, N * N), k * N + j)
    return kernel(store(param(0, N * N), i * N + j, Op.TANH(reduce(Op.ADD, a * b, k) * (1 / N))))


def in_place() -> UOp:
    i = loop(0, N * N)
    return kernel(store(param(0, N * N), i, load(param(0, N * N), i) * 0.9 + load(param(1, N * N), i) * 0.1))


def upper_half() -> UOp:
    i = loop(0, N * N // 2)
    return kernel(store(param(0, N * N), i + N * N // 2, load(param(1, N * N), i)))


MADE = (add_one, transposed, row_means, column_sums, product, in_place, upper_half)


def slowed(streams: Streams, rng: np.random.Generator) -> Streams:
    """The same streams with pauses in them, so that workers synchronise in any order."""
    steps = [
        list(itertools.chain.from_iterable([(time.sleep, (float(rng.random() < 0.2) * 2e-4,)), s] for s in worker))
        for worker in streams.steps
    ]
    return Streams(steps, streams.locks)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_streams_compute_what_one_kernel_after_another_does(seed: int, workers: int, everything_shared: None) -> None:
    rng = np.random.default_rng(seed)
    initial = [rng.standard_normal(N * N).astype(np.float32) for _ in range(5)]
    chosen = [(MADE[rng.integers(len(MADE))], rng.permutation(5)[:3]) for _ in range(40)]
    results = []
    for count in (1, workers):
        d = device(count)
        buffers = [b.copy() for b in initial]
        batch = d.prepare([(d.compile(make()), [buffers[i] for i in at]) for make, at in chosen])
        batch.run()
        if count > 1:
            bound = batch.__dict__["_bound"]
            streams = compose([(b.waves, b.for_worker) for b in bound], count)
            assert streams.locks
            batch.__dict__["_streams"] = slowed(streams, rng)
        for _ in range(3):
            batch.run()
        results.append(buffers)
    for one, several in zip(*results, strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-5, atol=1e-6)


def test_a_kernel_touches_the_same_memory_for_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "INLINE", 12)  # sums are accumulated over rows, in scratch of the whole kernel
    d = device(2)
    x, y = (np.zeros(N * N, np.float32) for _ in range(2))
    for bound in d.prepare([(d.compile(column_sums()), [y, x]), (d.compile(add_one()), [x, y])]).__dict__["_bound"]:
        assert bound.program.shared or bound.program.name.startswith("e_")
        spans = [[item.spans for item in wave] for wave in bound.waves]
        assert spans == [[item.spans for item in wave] for wave in bound.for_worker(1)]


def test_rows_go_on_without_waiting(everything_shared: None) -> None:
    d = device(2)
    x, y, z = (np.zeros(N * N, np.float32) for _ in range(3))
    bound = d.prepare(
        [(d.compile(add_one()), [y, x]), (d.compile(row_means()), [z, y]), (d.compile(in_place()), [x, z])]
    ).__dict__["_bound"]
    streams = compose([(b.waves, b.for_worker) for b in bound], 2)
    assert all(streams.steps)
    assert not streams.locks


def test_what_leads_nowhere_follows_what_it_reads() -> None:
    def task(reads: int, writes: int) -> Task:
        return Task([[(8 * reads, 8 * reads + 4, False), (8 * writes, 8 * writes + 4, True)]], 100, False)

    # a chain 0 -> 1 -> 2 -> 3, and two that read what its first two links made
    tasks = [task(0, 1), task(1, 2), task(2, 3), task(1, 5), task(2, 6)]
    assert ordered(tasks, 1, 0) == [0, 3, 1, 2, 4] or ordered(tasks, 1, 0) == [0, 3, 1, 4, 2]


def test_an_order_keeps_what_depends_on_what() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        tasks = []
        for _ in range(30):
            places = []
            for _ in range(3):
                lo = int(rng.integers(0, 90))
                places.append((lo, lo + int(rng.integers(1, 30)), bool(rng.random() < 0.3)))
            tasks.append(Task([places], int(rng.integers(1, 100)), bool(rng.random() < 0.5)))
        place = {n: i for i, n in enumerate(ordered(tasks, 2, 10))}
        assert len(place) == len(tasks)
        for m, n in itertools.combinations(range(len(tasks)), 2):
            clash = any(
                (w or v) and a < d and c < b for a, b, w in tasks[m].places[0] for c, d, v in tasks[n].places[0]
            )
            assert not clash or place[m] < place[n]


def test_a_transposed_reader_waits_for_the_other_worker(everything_shared: None) -> None:
    d = device(2)
    x, y, z = (np.zeros(N * N, np.float32) for _ in range(3))
    bound = d.prepare([(d.compile(add_one()), [y, x]), (d.compile(transposed()), [z, y])]).__dict__["_bound"]
    assert len(compose([(b.waves, b.for_worker) for b in bound], 2).locks) == 2


def test_small_kernels_that_need_nothing_of_each_other_take_different_workers() -> None:
    kernels = []
    memory = np.zeros(2, np.float32)
    for n in range(2):
        item = WorkItem([(int, (0,))], worth=1000)
        item.touch(memory[n : n + 1], True)
        kernels.append(([[item]], lambda worker, s=item: [[WorkItem([(int, (worker,))], s.spans, s.worth)]]))
    assert [len(worker) for worker in compose(kernels, 2).steps] == [1, 1]


def test_little_work_wakes_no_thread() -> None:
    d = device(2)
    x = np.zeros(N * N, np.float32)
    batch = d.prepare([(d.compile(add_one()), [x, x])] * 3)
    for _ in range(3):
        batch.run()
    assert len(batch.__dict__["_streams"].steps) == 1
    np.testing.assert_array_equal(x, np.full(N * N, 9.0, np.float32))


@pytest.mark.parametrize(("rows", "columns", "widths"), [(16, 512, [256, 256]), (512, 16, [16]), (512, 512, [512])])
def test_of_a_wide_matrix_each_worker_reads_a_part(rows: int, columns: int, widths: list[int]) -> None:
    d, k = device(2), 256
    i, j, r = loop(0, rows), loop(1, columns), over(2, k)
    a, b = load(param(1, rows * k), i * k + r), load(param(2, columns * k), j * k + r)
    found = d.compile(kernel(store(param(0, rows * columns), i * columns + j, Op.SQRT(reduce(Op.ADD, a * b, r)))))
    rng = np.random.default_rng(0)
    x, w = rng.random((rows, k), np.float32), rng.random((columns, k), np.float32)
    y = np.zeros(rows * columns, np.float32)
    batch = d.prepare([(found, [y, x.reshape(-1), w.reshape(-1)])])
    batch.run()
    np.testing.assert_allclose(y.reshape(rows, columns), np.sqrt(x @ w.T), rtol=1e-5)
    ((items,),) = [b.waves for b in batch.__dict__["_bound"]]
    assert len(items) == 2
    shapes = [args[1].shape for item in items for f, args in item.steps if f is np.matmul]
    assert [width for _, width in shapes] == widths * (2 // len(widths))


def times_vector(rows: int, columns: int) -> UOp:
    i, k = loop(0, rows), over(1, columns)
    a, x = load(param(1, rows * columns), i * columns + k), load(param(2, columns), k)
    return kernel(store(param(0, rows), i, reduce(Op.ADD, a * x, k) + 1.0))


def test_products_with_vectors_are_left_to_the_threads_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_ARRANGING_NS", 0)
    d = device(2)
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(640, 512)).astype(np.float32), rng.normal(size=512).astype(np.float32)
    y, z = np.zeros(640, np.float32), np.zeros(N * N, np.float32)
    calls = [(d.compile(times_vector(640, 512)), [y, a.reshape(-1), x])] * 4
    assert calls[0][0].workers == calls[0][0].parts[0][1][0].workers == 2
    batch = d.prepare(calls)
    for _ in range(3):
        batch.run()
    streams = batch.__dict__["_streams"]
    assert len(streams.steps) == 1
    assert [f for f, _ in streams.steps[0]].count(np.dot) == len(calls)  # in one piece each
    np.testing.assert_allclose(y, a @ x + 1, rtol=1e-4, atol=1e-4)
    # beside other work the workers split the products too
    mixed = d.prepare([calls[0], *[(d.compile(row_means()), [z, z])] * 100])
    mixed.run()
    mixed.run()
    assert len(mixed.__dict__["_streams"].steps) == 2


def test_work_is_arranged_side_by_side_once_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    d = device(2)
    z = np.zeros(N * N, np.float32)
    batch = d.prepare([(d.compile(row_means()), [z, z])] * 100)
    costs = [item.cost for b in batch._bound for wave in b.waves for item in wave]  # type: ignore[union-attr]
    monkeypatch.setattr(executor, "_ARRANGING_NS", 3.5 * sum(costs) / 2 / len(costs))
    arranged = []
    for _ in range(6):
        batch.run()
        assert batch._until_arranged is not None
        arranged.append(batch._until_arranged < 0)
    assert arranged == [False] * 4 + [True] * 2


@pytest.mark.parametrize("worker", [0, 1])
def test_an_error_in_a_stream_reaches_the_caller_and_the_batch_lives_on(worker: int, everything_shared: None) -> None:
    d = device(2)
    x, y = (np.zeros(N * N, np.float32) for _ in range(2))
    batch = d.prepare([(d.compile(transposed()), [x, y]), (d.compile(transposed()), [y, x])] * 3)
    batch.run()
    batch.run()
    streams = batch.__dict__["_streams"]
    assert streams.locks
    streams.steps[worker].insert(1, (divmod, (1, 0)))
    with pytest.raises(ZeroDivisionError):
        batch.run()
    y[:] = 64.0
    batch.run()
    np.testing.assert_array_equal(y, np.full(N * N, 1.0, np.float32))
