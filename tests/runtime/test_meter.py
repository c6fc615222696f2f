"""Times of plans: what is measured is the program's own runs, and nothing runs that the program did not ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from anneal import nn, optim
from anneal.backend import Batch, get_device
from anneal.backend.device import Timed
from anneal.runtime import Spread, Times, jit, metered
from anneal.runtime.meter import Meter
from anneal.tensor import Tensor


def training(device: str, captured: bool = True) -> Callable[[], float]:
    rng = np.random.default_rng(0)
    x, y = (Tensor(rng.standard_normal((32, n)).astype(np.float32), device=device) for n in (16, 1))
    model = nn.Sequential(nn.Linear(16, 64, device=device), nn.GELU(), nn.Linear(64, 1, device=device))
    for n, p in enumerate(model.parameters()):
        p.assign(Tensor(np.random.default_rng(n).standard_normal(p.shape).astype(np.float32) * 0.1, device=device))
    update = optim.Adam(model.parameters(), lr=1e-2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        update.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        update.step()
        return loss

    run = jit(step) if captured else step
    return lambda: run(x, y).item()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, device: str) -> list[str]:
    """How each batch of the device was run."""
    found: list[str] = []
    kind = type(get_device(device).prepare([]))

    def counted(name: str) -> None:
        inner = getattr(kind, name)

        def run(self: Batch[Any], *args: Any) -> Any:
            found.append(name)
            return inner(self, *args)

        monkeypatch.setattr(kind, name, run)

    for name in ("run", "timed"):
        counted(name)
    return found


@pytest.mark.parametrize("captured", [True, False])
def test_a_run_is_measured_where_it_happens(device: str, captured: bool, runs: list[str]) -> None:
    """Not once more in memory of its own, and a captured function is replayed; the values are the same."""
    step = training(device, captured)
    expected = [step() for _ in range(14)]
    count = len(runs)
    runs.clear()
    step = training(device, captured)
    with metered() as meter:
        found = [step() for _ in range(14)]
    assert found == expected
    assert len(runs) == count
    track = max(meter.tracks.values(), key=lambda t: t.launches)
    times = track.times()
    assert times.runs == 14
    assert times.kernels is not None
    assert len(times.each) == len(times.share) == times.launches
    assert sum(times.share) == pytest.approx(1)
    if device == "cpu":
        assert times.kernels.count == times.runs - 1, "the first is not like the others"
        assert times.timed is not None
        assert times.kernels.median == pytest.approx(times.timed.median)
        assert times.total is not None
        assert times.run is not None
        assert times.run.low <= times.run.median <= times.run.high


def test_kernels_are_timed_in_a_replay_of_what_was_captured_before(device: str) -> None:
    step, again = training(device), training(device)
    expected = [again() for _ in range(24)]
    found = [step() for _ in range(4)]
    with metered() as meter:
        found += [step() for _ in range(20)]
    assert found == expected
    assert max(t.runs for t in meter.tracks.values()) == 20


def test_what_nobody_times_is_not_waited_for(runs: list[str], device: str) -> None:
    with metered(Meter(kernels=False)) as meter:
        (Tensor([1.0, 2.0], device=device) + 1.0).realize()
    assert "timed" not in runs
    assert [t.times().kernels for t in meter.tracks.values()] == [None]


@dataclass
class Fake:
    """A batch whose runs take as long as they are told."""

    seconds: list[float]
    waits: bool = True

    def timed(self) -> Timed:
        taken = self.seconds.pop(0)
        return Timed(taken, [0.75 * taken, 0.25 * taken])


def test_one_hiccup_decides_nothing() -> None:
    plan: Any = type("Plan", (), {"calls": (1, 2)})()
    meter = Meter()
    seconds = [0.003] * 6 + [0.12] + [0.003] * 6
    launch: Any = type("Launch", (), {"batch": Fake([*seconds]), "device": None})()
    for _ in seconds:
        meter.run(plan, launch)
    times = meter.tracks[plan].times()
    assert times.run == Spread(0.003, 0.003, 0.003, 12)
    assert times.kernels is not None
    assert times.kernels.median == pytest.approx(0.003)
    assert [e.median for e in times.each] == pytest.approx([0.00225, 0.00075])
    assert times.share == pytest.approx((0.75, 0.25))
    assert times.total == pytest.approx(sum(seconds)), "measured, not the median times a count"


def test_what_lies_between_kernels_is_measured_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the rest of a step: what measuring takes is no part of it."""
    now = [100.0]

    class Slow(Fake):
        def timed(self) -> Timed:
            found = super().timed()
            now[0] += found.seconds + 0.5  # and half a second of the clock's own
            return found

    monkeypatch.setattr("anneal.runtime.meter.time", type("Clock", (), {"perf_counter": lambda: now[0]}))
    ours, other = [type("Plan", (), {"calls": (1, 2)})() for _ in range(2)]
    launches: Any = [type("Launch", (), {"batch": Slow([s] * 21), "device": None})() for s in (6.0, 1.0)]
    meter = Meter()
    for _ in range(21):
        meter.run(ours, launches[0])
        now[0] += 2.0
        meter.run(other, launches[1])
        now[0] += 1.0
    times = meter.tracks[ours].times()
    assert times.step == Spread(11.0, 11.0, 11.0, 20)
    assert times.python == Spread(3.0, 3.0, 3.0, 20)
    assert times.others == Spread(1.0, 1.0, 1.0, 20)
    assert times.parts == pytest.approx({"kernels": 6 / 11, "other plans": 1 / 11, "between kernels": 3 / 11})
    assert sum(times.parts.values()) == pytest.approx(10 / 11)
    assert times.summary()["parts"] == times.parts


def spread(x: float, wide: float = 0.0) -> Spread:
    return Spread(x, x * (1 - wide), x * (1 + wide), 20)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"runs": 1}, ["it ran once"]),
        ({"kernels": spread(0.5)}, ["the kernels together take 500.00 ms and a run 1.00 s"]),
        ({"timed": spread(2.0), "kernels": spread(2.0)}, ["20 runs in which kernels were timed took"]),
        ({"kernels": spread(2.0), "beside": True}, ["in a pass of its own"]),
        ({"step": spread(2.0), "python": spread(1.0)}, ["Python between the runs 1.00 s"]),
        ({"step": spread(2.0), "python": spread(0.4), "others": spread(0.6)}, ["other plans 600.00 ms"]),
        ({"step": spread(2.0), "python": None}, ["the program works while the device does"]),
        ({"waited": 0.4}, ["other processes had the processor for 40% of the time"]),
        ({"run": spread(1.0, 0.3)}, ["the runs differ: half of them took 700.00 ms to 1.30 s"]),
    ],
)
def test_sums_that_do_not_agree_have_a_reason(change: dict[str, Any], said: list[str]) -> None:
    agreeing: dict[str, Any] = {
        "runs": 20, "first": 1.0, "run": spread(1.0), "step": spread(1.1), "others": spread(0.0), "python": spread(0.1),
        "kernels": spread(0.97), "timed": spread(1.0), "each": (), "share": (), "total": 20.0,
        "waited": 0.0, "beside": False, "launches": 3,
    }  # fmt: skip
    reasons = Times(**{**agreeing, **change}).reasons()
    assert len(reasons) == len(said)
    assert all(part in reason for part, reason in zip(said, reasons, strict=True))


def test_many_runs_take_no_more_memory() -> None:
    plan: Any = type("Plan", (), {"calls": (1, 2)})()
    meter, count = Meter(), 20_000
    launch: Any = type("Launch", (), {"batch": Fake([0.001 * n for n in range(count)]), "device": None})()
    for _ in range(count):
        meter.run(plan, launch)
    track = meter.tracks[plan]
    assert max(len(track.own.rows), track.counts[0]) <= 8192
    run = track.times().run
    assert run is not None
    assert run.median == pytest.approx(0.001 * count / 2, rel=0.01), "as many late ones as early ones"
