"""Fences and cuts: which dispatches wait, and that nothing is lost by running others side by side."""

from __future__ import annotations

import random

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.backend.webgpu.batch import BufferUse, Section, sections
from anneal.uop import dtypes
from tests.codegen import kernels as K


def use(reads: str, writes: str) -> BufferUse:
    return BufferUse(tuple(reads), tuple(writes))


def test_a_chain_needs_nothing() -> None:
    assert sections([use("a", "b"), use("b", "c"), use("c", "d")]) == [Section(0, 1), Section(1, 2), Section(2, 3)]


def test_independent_readers_of_different_results_get_a_fence() -> None:
    assert sections([use("a", "b"), use("a", "c"), use("b", "d"), use("c", "e")]) == [
        Section(0, 2),
        Section(2, 4, fence=("b", "c")),
    ]
    # one result that both read: the first of them waits, the second need not
    assert sections([use("a", "b"), use("b", "d"), use("b", "e")]) == [Section(0, 1), Section(1, 3)]


def test_updates_in_place_get_a_command_buffer_of_their_own() -> None:
    forward = [use("abcdx", "y")]
    updates = [use("y", w) for w in "abcd"]
    assert sections(forward + updates) == [Section(0, 1), Section(1, 5, cut=True)]
    assert sections(forward + updates[:2]) == [Section(0, 1), Section(1, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_sections_are_in_order_and_independent_within(seed: int) -> None:
    rng = random.Random(seed)
    uses = []
    for _ in range(60):
        chosen = rng.sample("abcdefghijkl", rng.randint(2, 5))
        uses.append(BufferUse(chosen[1:], chosen[:1]))
    found = sections(uses)
    assert [n for p in found for n in range(p.begin, p.end)] == list(range(60))
    for p in found:
        for i in range(p.begin, p.end):
            for j in range(p.begin, i):
                assert not set(uses[j].writes) & {*uses[i].reads, *uses[i].writes}
                assert not set(uses[i].writes) & set(uses[j].reads)


def test_a_batch_with_fences_and_cuts_computes_the_same(device: WebGpuDevice) -> None:
    n = 50
    i = K.loop(n, 0)
    x = [K.load(K.param(s, n), i) for s in range(3)]
    increase = device.compile(K.sink(K.store(K.param(0, n), i, x[0] + x[1])))
    add = device.compile(K.sink(K.store(K.param(0, n), i, x[1] + x[2])))
    source, *rest = (device.alloc(n, dtypes.float32) for _ in range(10))
    states, sums = rest[:5], rest[5:9]
    for buffer in (source, *rest):
        device.upload(buffer, np.ones(n, np.float32))
    calls = [(increase, [s, source]) for s in states]
    calls += [(add, [t, a, b]) for t, a, b in zip(sums, states, states[1:], strict=False)]
    calls += [(increase, [s, sums[0]]) for s in states]
    batch = device.prepare(calls)
    values, total = np.ones(5), np.zeros(4)
    for _ in range(4):
        batch.run()
        values += 1
        total = values[:-1] + values[1:]
        values += total[0]
    if device.waits_by_buffer:
        assert batch._fences
        assert len(batch._passes) > 1
    for buffer, value in zip((*states, *sums), (*values, *total), strict=True):
        np.testing.assert_array_equal(device.download(buffer, n, dtypes.float32), np.full(n, value, np.float32))
