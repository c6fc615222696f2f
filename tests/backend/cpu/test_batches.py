"""Batches on several workers: what they compute, what wakes no thread, and errors."""

from __future__ import annotations

import time

import numpy as np
import pytest

from anneal.backend.cpu import layout
from anneal.backend.cpu.executor import CpuBatch, CpuDevice
from anneal.backend.cpu.primitives import Step
from anneal.backend.cpu.workers import Workers
from anneal.backend.promises import Promise
from anneal.uop import Op, UOp
from tests.backend.cpu.kernels import kernel, load, loop, over, param, reduce, store

pytestmark = pytest.mark.usefixtures("in_numpy")

N = 24


@pytest.fixture
def everything_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", -1)


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


def shared(batch: CpuBatch) -> list[list[list[Step]]]:
    """What the workers share: for each such call the steps of each worker."""
    return [args[0] for f, args in batch._steps if f == batch._device.workers.run]


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_workers_compute_what_one_does(seed: int, workers: int, everything_shared: None) -> None:
    rng = np.random.default_rng(seed)
    initial = [rng.standard_normal(N * N).astype(np.float32) for _ in range(5)]
    chosen = [(MADE[rng.integers(len(MADE))], rng.permutation(5)[:3]) for _ in range(40)]
    results = []
    for count in (1, workers):
        d = device(count)
        buffers = [b.copy() for b in initial]
        batch = d.prepare([(d.compile(make()), [buffers[i] for i in at]) for make, at in chosen])
        assert bool(shared(batch)) == (count > 1)
        for _ in range(4):
            batch.run()
        results.append(buffers)
    for one, several in zip(*results, strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-5, atol=1e-6)


def test_little_work_wakes_no_thread() -> None:
    d = device(2)
    x = np.zeros(N * N, np.float32)
    batch = d.prepare([(d.compile(add_one()), [x, x])] * 3)
    for _ in range(3):
        batch.run()
    assert not shared(batch)
    np.testing.assert_array_equal(x, np.full(N * N, 9.0, np.float32))


@pytest.mark.parametrize(("rows", "columns", "widths"), [(16, 512, [256, 256]), (512, 16, [16]), (512, 512, [512])])
def test_of_a_wide_matrix_each_worker_reads_a_part(
    rows: int, columns: int, widths: list[int], everything_shared: None
) -> None:
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
    (parts,) = shared(batch)
    assert len(parts) == 2
    shapes = [args[1].shape for part in parts for f, args in part if f is np.matmul]
    assert [width for _, width in shapes] == widths * (2 // len(widths))


def times_vector(rows: int, columns: int) -> UOp:
    i, k = loop(0, rows), over(1, columns)
    a, x = load(param(1, rows * columns), i * columns + k), load(param(2, columns), k)
    return kernel(store(param(0, rows), i, reduce(Op.ADD, a * x, k) + 1.0))


def test_products_with_vectors_are_left_to_the_threads_of_blas(everything_shared: None) -> None:
    d = device(2)
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(640, 512)).astype(np.float32), rng.normal(size=512).astype(np.float32)
    y, z = np.zeros(640, np.float32), np.zeros(N * N, np.float32)
    calls = [(d.compile(times_vector(640, 512)), [y, a.reshape(-1), x])] * 4
    assert calls[0][0].workers == calls[0][0].parts[0][1][0].workers == 2
    batch = d.prepare(calls)
    for _ in range(3):
        batch.run()
    assert not shared(batch)
    assert [f for f, _ in batch._steps].count(np.dot) == len(calls)  # in one piece each
    np.testing.assert_allclose(y, a @ x + 1, rtol=1e-4, atol=1e-4)
    # beside other work the workers split the products too
    mixed = d.prepare([calls[0], *[(d.compile(row_means()), [z, z])] * 100])
    mixed.run()
    assert np.dot in [f for part in shared(mixed)[0] for f, _ in part]


@pytest.mark.parametrize("worker", [0, 1])
def test_an_error_of_a_worker_reaches_the_caller_and_the_batch_lives_on(worker: int, everything_shared: None) -> None:
    d = device(2)
    x, y = (np.zeros(N * N, np.float32) for _ in range(2))
    batch = d.prepare([(d.compile(transposed()), [x, y]), (d.compile(transposed()), [y, x])] * 3)
    batch.run()
    steps = shared(batch)[1][worker]
    steps.insert(1, (divmod, (1, 0)))
    with pytest.raises(ZeroDivisionError):
        batch.run()
    del steps[1]
    y[:] = 64.0
    batch.run()
    np.testing.assert_array_equal(y, np.full(N * N, 1.0, np.float32))


def test_an_interrupt_while_others_work_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would write memory that the caller takes for its own."""
    wait, interrupts = Promise.wait, iter([KeyboardInterrupt()])

    def interrupted(promise: Promise[None]) -> None:
        for e in interrupts:
            raise e
        wait(promise)

    monkeypatch.setattr(Promise, "wait", interrupted)
    seen: list[int] = []
    slow: list[Step] = [(time.sleep, (0.05,)), (seen.append, (1,))]
    with pytest.raises(KeyboardInterrupt):
        Workers(2).run([[], slow])
    assert seen == [1]


def test_the_seconds_of_kernels_add_up_to_those_of_the_run(everything_shared: None) -> None:
    d = device(2)
    x, y = (np.zeros(N * N, np.float32) for _ in range(2))
    batch = d.prepare([(d.compile(make()), [x, y, x]) for make in (add_one, transposed, add_one)])
    found = batch.timed()
    assert len(found.each) == 3
    assert min(found.each) >= 0
    assert sum(found.each) == pytest.approx(found.seconds)
