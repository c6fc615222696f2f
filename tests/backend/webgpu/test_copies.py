"""A batch that the host reads after each run copies what is read itself: one submission a run, and the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal import nn, optim
from anneal.backend import get_device
from anneal.backend.webgpu import WebGpuDevice, batch as batches
from anneal.tensor import Tensor
from anneal.uop import dtypes
from tests.backend.webgpu.test_device import _steps

N = 50


def value(times: int) -> Any:
    """The first buffer of `_steps` after so many runs."""
    return 1 + 6.0 * np.arange(N) * times


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait counts as long, however slow the adapter is."""
    monkeypatch.setattr(batches, "_WAIT", float("inf"))


@pytest.fixture
def started(device: WebGpuDevice, waiting: None) -> tuple[Any, Any, Any]:
    """A batch that copies what it was read after each of six runs, and its buffers."""
    batch, (x, y) = _steps(device, N)
    for _ in range(6):
        batch.run()
        device.download(x, N, dtypes.float32)
    return batch, x, y


def test_a_run_and_a_read_are_one_submission(device: WebGpuDevice, started: Any) -> None:
    batch, x, _ = started
    for times in range(7, 11):
        before = device.queue._submissions
        batch.run()
        np.testing.assert_array_equal(device.download(x, N, dtypes.float32), value(times))
        assert device.queue._submissions == before + 1
    # a second read of the same run is one of its own
    np.testing.assert_array_equal(device.download(x, N, dtypes.float32), value(10))
    assert device.queue._submissions == before + 2


def test_what_is_read_may_change(device: WebGpuDevice, started: Any) -> None:
    batch, x, y = started
    for times in range(7, 19):
        batch.run()
        wanted = ([x], [y], [x, y])[times // 3 % 3]
        found = device.download_all([(buffer, N, dtypes.float32) for buffer in wanted])
        for buffer, values in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(values, value(times) if buffer is x else 3 * np.arange(N))


def test_data_that_came_after_the_run_is_read(device: WebGpuDevice, started: Any) -> None:
    batch, x, y = started
    batch.run()
    device.upload(x, np.arange(N, dtype=np.float32))
    np.testing.assert_array_equal(device.download(x, N, dtypes.float32), np.arange(N))
    batch.run()
    device.upload(y, np.ones(N, np.float32))
    device.copy(y, x, N, dtypes.float32)
    np.testing.assert_array_equal(device.download(x, N, dtypes.float32), np.ones(N))


def test_a_later_run_leaves_what_an_earlier_one_copied(device: WebGpuDevice, started: Any) -> None:
    batch, x, _ = started
    readers = []
    for _ in range(5):
        batch.run()
        readers.append(device.read_later([(x, N, dtypes.float32)]))
    for times, read in enumerate(readers, 7):
        np.testing.assert_array_equal(read(lambda views: views[0].copy()), value(times))


def test_copies_end_where_nobody_reads_them(device: WebGpuDevice, started: Any) -> None:
    batch, x, _ = started
    assert all(copies for _, copies in batch._ready)
    for _ in range(batches._UNREAD + 4):
        batch.run()
    assert not any(copies for _, copies in batch._ready)
    np.testing.assert_array_equal(device.download(x, N, dtypes.float32), value(6 + batches._UNREAD + 4))


def test_much_is_copied_when_it_is_asked_for(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_READ_BYTES", 4 * N - 1)
    batch, (x, _) = _steps(device, N)
    for times in range(1, 7):
        batch.run()
        np.testing.assert_array_equal(device.download(x, N, dtypes.float32), value(times))
    assert not any(copies for _, copies in batch._ready)


def test_copies_come_before_what_they_need_not_wait_for(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_WAIT", -1.0)
    batch, (x, y) = _steps(device, N)
    times = 0

    def reads(*buffers: Any) -> int:
        """Run it, and read buffers. Returns the submissions."""
        nonlocal times
        times += 1
        before = device.queue._submissions
        batch.run()
        found = device.download_all([(buffer, N, dtypes.float32) for buffer in buffers])
        for buffer, values in zip(buffers, found, strict=True):
            np.testing.assert_array_equal(values, value(times) if buffer is x else 3 * np.arange(N))
        return device.queue._submissions - before

    # the first kernel alone writes y
    assert [reads(y) for _ in range(batches._WAITS + 8)][-4:] == [2] * 4
    assert batch._early < len(batch._passes)
    # the last one writes x
    assert [reads(x) for _ in range(batches._WAITS + 8)][-4:] == [1] * 4
    assert [reads(x, y) for _ in range(batches._WAITS + 8)][-4:] == [1] * 4
    for n in range(12):
        reads(*([x], [y], [x, y])[n // 3 % 3])


def test_a_training_step_whose_loss_is_read_is_one_submission(waiting: None) -> None:
    device: Any = get_device("webgpu")
    model = nn.Linear(4, 1).to("webgpu")
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    counts, losses = [], []
    for _ in range(14):
        before = device.queue._submissions
        optimizer.zero_grad()
        loss = (model(Tensor(np.ones((2, 4), np.float32), device="webgpu")) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        counts.append(device.queue._submissions - before)
    assert counts[-4:] == [1] * 4
    assert losses == sorted(losses, reverse=True)
