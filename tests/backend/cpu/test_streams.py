"""Streams: lanes that wait for each other only where the data say so."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from anneal.backend.cpu import layout
from anneal.backend.cpu.executor import CpuDevice
from anneal.backend.cpu.lanes import Lanes
from anneal.backend.cpu.streams import Share, Streams, compose
from anneal.uop import Op, UOp
from tests.backend.cpu.kernels import kernel, load, loop, over, param, reduce, store

N = 24


@pytest.fixture
def everything_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_LANE_NS", -1)


def device(lanes: int) -> CpuDevice:
    made = CpuDevice()
    made.lanes = Lanes(lanes)
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
    return kernel(store(param(0, N * N), i * N + j, (reduce(Op.ADD, a * b, k) * (1 / N)).alu(Op.TANH)))


def in_place() -> UOp:
    i = loop(0, N * N)
    return kernel(store(param(0, N * N), i, load(param(0, N * N), i) * 0.9 + load(param(1, N * N), i) * 0.1))


def upper_half() -> UOp:
    i = loop(0, N * N // 2)
    return kernel(store(param(0, N * N), i + N * N // 2, load(param(1, N * N), i)))


MADE = (add_one, transposed, row_means, column_sums, product, in_place, upper_half)


def slowed(streams: Streams, rng: np.random.Generator) -> Streams:
    """The same streams with pauses in them, so that lanes meet in any order."""
    steps = [
        list(itertools.chain.from_iterable([(time.sleep, (float(rng.random() < 0.2) * 2e-4,)), s] for s in lane))
        for lane in streams.steps
    ]
    return Streams(steps, streams.locks)


@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_streams_compute_what_one_kernel_after_another_does(seed: int, lanes: int, everything_shared: None) -> None:
    rng = np.random.default_rng(seed)
    initial = [rng.standard_normal(N * N).astype(np.float32) for _ in range(5)]
    chosen = [(MADE[rng.integers(len(MADE))], rng.permutation(5)[:3]) for _ in range(40)]
    results = []
    for count in (1, lanes):
        d = device(count)
        buffers = [b.copy() for b in initial]
        batch = d.prepare([(d.compile(make()), [buffers[i] for i in at]) for make, at in chosen])
        batch.run()
        if count > 1:
            bound = batch.__dict__["_bound"]
            streams = compose([(b.parts, b.in_lane) for b in bound], count)
            assert streams.locks
            batch.__dict__["_streams"] = slowed(streams, rng)
        for _ in range(3):
            batch.run()
        results.append(buffers)
    for one, several in zip(*results, strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-5, atol=1e-6)


def test_rows_go_on_without_waiting(everything_shared: None) -> None:
    d = device(2)
    x, y, z = (np.zeros(N * N, np.float32) for _ in range(3))
    bound = d.prepare(
        [(d.compile(add_one()), [y, x]), (d.compile(row_means()), [z, y]), (d.compile(in_place()), [x, z])]
    ).__dict__["_bound"]
    streams = compose([(b.parts, b.in_lane) for b in bound], 2)
    assert all(streams.steps)
    assert not streams.locks


def test_a_transposed_reader_waits_for_the_other_lane(everything_shared: None) -> None:
    d = device(2)
    x, y, z = (np.zeros(N * N, np.float32) for _ in range(3))
    bound = d.prepare([(d.compile(add_one()), [y, x]), (d.compile(transposed()), [z, y])]).__dict__["_bound"]
    assert len(compose([(b.parts, b.in_lane) for b in bound], 2).locks) == 2


def test_small_kernels_that_need_nothing_of_each_other_take_different_lanes() -> None:
    kernels = []
    memory = np.zeros(2, np.float32)
    for n in range(2):
        share = Share(worth=1000)
        share.touch(memory[n : n + 1], True)
        kernels.append(([[share]], lambda lane, s=share: [[Share([(int, (lane,))], s.spans, s.worth)]]))
    kernels[0][0][0][0].steps.append((int, (0,)))
    steps = compose(kernels, 2).steps
    assert [[args for _, args in lane] for lane in steps] == [[(0,)], [(1,)]]


@pytest.mark.parametrize("lane", [0, 1])
def test_an_error_in_a_stream_reaches_the_caller_and_the_batch_lives_on(lane: int, everything_shared: None) -> None:
    d = device(2)
    x, y = (np.zeros(N * N, np.float32) for _ in range(2))
    batch = d.prepare([(d.compile(transposed()), [x, y]), (d.compile(transposed()), [y, x])] * 3)
    batch.run()
    batch.run()
    streams = batch.__dict__["_streams"]
    assert streams.locks
    streams.steps[lane].insert(1, (divmod, (1, 0)))
    with pytest.raises(ZeroDivisionError):
        batch.run()
    y[:] = 64.0
    batch.run()
    np.testing.assert_array_equal(y, np.full(N * N, 1.0, np.float32))
