"""A third device: registered from outside of anneal, it takes tensors, plans by its own cost model, and trains."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from anneal import nn
from anneal.backend import device_names, get_device, memory_report, planned_cost_model, register_device, registry
from anneal.errors import DeviceError, DTypeError
from anneal.schedule import CostModel
from anneal.schedule.passes import split_reduces
from anneal.tensor import Tensor, jit, no_grad, set_default_device
from anneal.uop import dtypes
from tests.backend.toy import COST_MODEL, NAME, ToyDevice

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(4, 3)).astype(np.float32), rng.integers(0, 2, 4)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyDevice]:
    """The toy device, which the process forgets afterwards."""
    monkeypatch.setattr(registry.DEVICES, "known", dict(registry.DEVICES.known))
    register_device(NAME, ToyDevice, COST_MODEL)
    device = get_device(NAME)
    assert isinstance(device, ToyDevice)
    yield device
    gc.collect()
    del registry.DEVICES.open[NAME]


def losses(device: str, compiled: bool) -> list[float]:
    """What a small model loses in a few steps of training."""
    weights = np.random.default_rng(1)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    for p in model.parameters():
        p.assign(weights.normal(size=p.shape).astype(np.float32) * 0.5)
    model.to(device)
    optimizer = nn.Adam(model.parameters(), lr=0.05)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step(loss)
        return loss

    run = jit(step) if compiled else step
    x, y = Tensor(X, device=device), Tensor(Y.astype(np.int32), device=device)
    return [run(x, y).item() for _ in range(6)]


def test_a_third_device_trains(toy: ToyDevice) -> None:
    want = losses("cpu", compiled=False)
    assert want[-1] < 0.8 * want[0]
    np.testing.assert_allclose(losses(NAME, compiled=False), want, rtol=1e-4)
    assert len(toy.ran) > 6


def test_sums_of_rows_are_made_in_parts_where_an_index_selects_many(
    toy: ToyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, rows = rng.integers(0, 3, 12).astype(np.int32), rng.normal(size=(12, 2)).astype(np.float32)
    want = np.zeros((3, 2), np.float32)
    np.add.at(want, index, rows)

    def kernels() -> int:
        before = len(toy.ran)
        got = Tensor(np.zeros((3, 2), np.float32), device=NAME).index_add(
            0, Tensor(index, device=NAME), Tensor(rows, device=NAME)
        )
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
        return len(toy.ran) - before

    few = kernels()
    monkeypatch.setattr(toy, "cost_model", CostModel(max_buffers=6, parallel=512))
    monkeypatch.setattr(split_reduces, "_LONG_SEGMENTS", 2)
    monkeypatch.setattr(split_reduces, "_SEGMENT_PART", 1)
    assert kernels() > few


def test_jit_replays_on_it(toy: ToyDevice) -> None:
    np.testing.assert_allclose(losses(NAME, compiled=True), losses("cpu", compiled=False), rtol=1e-4)
    a_step = len(toy.ran) // 6
    assert toy.ran[-a_step:] == toy.ran[-2 * a_step : -a_step]


def test_it_plans_by_its_own_cost_model(toy: ToyDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernels() -> int:
        toy.ran.clear()
        arrays = [Tensor(np.full(4, n, np.float32), device=NAME) for n in range(12)]
        assert sum(arrays, Tensor(0.0, device=NAME)).sum().item() == 4 * sum(range(12))
        return len(toy.ran)

    narrow = kernels()  # six buffers a kernel
    monkeypatch.setattr(toy, "cost_model", CostModel(max_buffers=32))
    assert 1 == kernels() < narrow


def test_it_is_asked_which_dtypes_it_holds_and_for_values_that_the_host_sees(toy: ToyDevice) -> None:
    with pytest.raises(DTypeError, match=r"device 'toy' has no float64; it has bool, float32, int32, uint32"):
        Tensor.zeros(3, dtype="float64", device=NAME)
    index = (Tensor(np.array([0, 6], np.int32), device=NAME) + 1).realize()
    toy.viewed = 0
    with pytest.raises(IndexError):
        Tensor(X, device=NAME)[index]
    assert toy.viewed == 1


def test_memory_of_an_older_toy_device_is_not_used_again(toy: ToyDevice) -> None:
    older = ToyDevice()
    left = older.alloc(1, dtypes.float32)
    toy.free(left)
    assert toy.alloc(1, dtypes.float32) is not left


def test_tensors_move_there_and_back_and_it_may_be_the_default(toy: ToyDevice) -> None:
    t = Tensor(X).to(NAME)
    assert t.device == NAME
    np.testing.assert_array_equal((t * 2).to("cpu").numpy(), X * 2)
    set_default_device(NAME)
    try:
        with no_grad():
            assert Tensor.ones(2).device == NAME
    finally:
        set_default_device(None)


def test_its_memory_is_counted_and_reported(toy: ToyDevice) -> None:
    t = (Tensor(X, device=NAME) + 1).realize()
    report = memory_report(NAME)
    assert report.use.in_use >= X.nbytes
    assert any("test_registry.py" in h.where for h in report.holders)
    before = report.use.in_use
    del t
    gc.collect()
    assert memory_report(NAME).use.in_use < before


def test_a_name_is_taken_once_and_known_from_then_on(toy: ToyDevice) -> None:
    assert device_names() == ("auto", "cpu", "webgpu", NAME)
    assert planned_cost_model(NAME) is COST_MODEL
    assert planned_cost_model("auto") is planned_cost_model("webgpu")
    for name in (NAME, "cpu", "auto"):
        with pytest.raises(DeviceError, match=f"there is a device '{name}' already"):
            register_device(name, ToyDevice, COST_MODEL)
    with pytest.raises(DeviceError, match="unknown device 'gqu'; choose one of auto, cpu, webgpu, toy"):
        planned_cost_model("gqu")
