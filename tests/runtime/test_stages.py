"""Launches that need much memory run in stages the first time: what is not read again makes room for the results."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from anneal import nn, schedule
from anneal.backend import AnyDevice, cost_models, get_device, register_device, registry
from anneal.errors import DeviceError
from anneal.runtime import Meter, metered
from anneal.runtime.launch import Staged
from anneal.schedule import plan as plans
from anneal.tensor import Tensor, jit, realize
from tests.backend import counting


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnyDevice]:
    """A device that counts its memory, which the process forgets afterwards."""
    monkeypatch.setattr(registry.DEVICES, "known", dict(registry.DEVICES.known))
    register_device(counting.NAME, counting.CountingDevice, counting.COST_MODEL)
    yield get_device(counting.NAME)
    gc.collect()
    del registry.DEVICES.open[counting.NAME]


def perceptron(device: str, width: int, rows: int) -> tuple[nn.Module, nn.Optimizer, Tensor, Tensor]:
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    optimizer = nn.AdamW(model.parameters(), lr=1e-3)
    x, y = Tensor.ones((rows, width), device=device), Tensor.ones((rows, 1), device=device)
    realize([x, y])
    return model, optimizer, x, y


@pytest.mark.parametrize("clip", [False, True])
def test_the_first_steps_of_training_need_little_more_memory_than_later_ones(counted: AnyDevice, clip: bool) -> None:
    model, optimizer, x, y = perceptron(counting.NAME, width=2048, rows=16384)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        if clip:
            nn.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(loss)
        return loss

    peaks = []
    for _ in range(4):
        counted.reset_peak()
        step(x, y)
        peaks.append(counted.memory().peak)
    assert peaks[2] == peaks[3] > 16384 * 2048 * 4 * 4
    # with all results beside all that is computed on the way, it is 1.2 times as much
    assert max(peaks) <= 1.07 * peaks[3]


def test_stages_run_each_call_once_with_the_memory_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_LARGE", 4 << 20)
    x = Tensor(np.ones((4096, 1024), np.float32))
    for width, in_stages in ((8, False), (1024, True)):
        a = x[:, :width]
        for n in range(4):
            a = (a @ Tensor.full((width, width), n / 7)).tanh()
        graph = schedule.graph([(a.sum(0) @ a.T).uop, (a * a.sum(1, keepdim=True)).uop, a.max(0)[0].uop])
        plan, *_ = schedule.plan_for(graph, cost_models.gpu())
        found = plans.stages(plan)
        assert (len(found) > 1) is in_stages
        assert [s.begin for s in found] == [0, *[s.end for s in found[:-1]]][: len(found)]
        assert not found or found[-1].end == len(plan.calls)
        piece, there, made = dict(plan.memory), set[int](), set[int]()
        for stage in found:
            there |= set(stage.taken)
            made |= set(stage.outputs)
            for c in plan.calls[stage.begin : stage.end]:
                assert all(piece[v] in there for v in c.args if v in piece)
                assert all(v in made for v in c.args if v in plan.outputs)
            there -= set(stage.left)
        assert not there


@pytest.mark.parametrize("limit", [1 << 10, 1 << 40])
def test_values_in_stages_are_those_of_one_launch(device: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_LARGE", limit)
    schedule.clear_cache()  # a plan that is known keeps its stages
    ran: list[int] = []
    run = Staged.run
    monkeypatch.setattr(Staged, "run", lambda self: (ran.append(len(self.stages)), run(self))[1])
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((33, 33)).astype(np.float32) / 6
    w = Tensor(weight, device=device, requires_grad=True)
    x = Tensor(rng.standard_normal((17, 33)).astype(np.float32), device=device)
    y = x
    for _ in range(5):
        y = (y @ w).tanh()
    (y.sum(1).exp().sum() + y.square().mean()).backward()
    assert w.grad is not None
    found = (w - 0.1 * w.grad).numpy()
    assert (max(ran, default=0) > 1) is (limit < 1 << 20)
    want = weight - 0.1 * reference(weight, x.numpy())
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def reference(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The gradient, in float64."""
    w, layers = w.astype(np.float64), [x.astype(np.float64)]
    for _ in range(5):
        layers.append(np.tanh(layers[-1] @ w))
    y = layers[-1]
    above = np.exp(y.sum(1, keepdims=True)) + 2 * y / y.size
    total = np.zeros_like(w)
    for n in range(5, 0, -1):
        inner = above * (1 - layers[n] ** 2)
        total += layers[n - 1].T @ inner
        above = inner @ w.T
    return total


def test_a_launch_in_stages_is_measured_whole_and_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_LARGE", 1 << 10)
    x = Tensor(np.ones((64, 64), np.float32))
    get_device("cpu").empty_cache()
    with metered(Meter(part=1.0)) as meter:
        y = ((x @ x).exp() @ x).sum(0).realize()
    assert sum(track.runs for track in meter.tracks.values()) == 1
    np.testing.assert_allclose(y.numpy(), np.full(64, 64.0 * 64 * np.exp(64), np.float32), rtol=1e-5)

    def fails(self: object) -> None:
        raise DeviceError("planted")

    before = get_device("cpu").memory().in_use
    monkeypatch.setattr(type(get_device("cpu").prepare([])), "run", fails)
    z = ((x @ x).cos() @ x).sum(1)
    with pytest.raises(DeviceError, match="planted"):
        z.realize()
    monkeypatch.undo()
    del z
    gc.collect()
    assert get_device("cpu").memory().in_use == before
