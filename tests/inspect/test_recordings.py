"""Recordings of a program: every plan with the answers that the studio has about a model, kept and read back."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import inspect, nn, optim
from anneal.errors import DataError, UserError
from anneal.runtime import jit
from anneal.tensor import Tensor


def loop(times: int, device: str) -> None:
    model = nn.Linear(4, 3, device=device)
    update = optim.SGD(model.parameters(), lr=0.1)
    x = Tensor(np.ones((5, 4), np.float32), device=device)
    for _ in range(times):
        update.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        update.step()
        loss.item()


def test_a_loop_is_one_plan_that_ran_many_times(device: str) -> None:
    loop(3, device)  # known before, so that it would be run again without a graph
    with inspect.recording("loop") as r:
        loop(4, device)
        Tensor([1.0, 2.0], device=device).exp().sum().item()
    assert [p.runs for p in r.plans] == [4, 1]
    graph, kernels = r.plans[0].answer("graph"), r.plans[0].answer("kernels")
    assert {n["phase"] for n in graph["nodes"]} == {"forward", "backward", "update"}
    assert len(kernels["kernels"]) == r.plans[0].kernels == len(kernels["times"]["kernels"])
    assert all(t["seconds"] > 0 for t in kernels["times"]["kernels"])
    mine = {n["line"]["function"] for n in graph["nodes"] if n["line"]}
    assert "loop" in mine
    assert r.plans[0].line.startswith(__file__)
    text = r.plans[0].answer("kernel/0")["text"]
    assert any(line["nodes"] for line in text["lines"])


def test_what_is_recorded_is_what_is_asked_of_the_graph() -> None:
    """The answers of a recording and of `Looked` are the same records."""
    from anneal.backend import get_device
    from anneal.schedule import graph

    x = Tensor([1.0, 2.0], device="cpu")
    y = (x.exp() * 2.0).sum()
    target = inspect.c_target("cpu")
    looked = inspect.Looked("", graph([y.uop]), get_device("cpu").cost_model, target=target)
    with inspect.recording(times=False) as r:
        y.realize()
    found = {"graph": looked.graph(), "passes": looked.passes(), "kernel/0": looked.kernel(0)}
    for name, value in json.loads(json.dumps(found, default=inspect.plain)).items():
        kept = r.plans[0].answer(name)
        assert {**kept, "model": ""} == {**value, "model": ""} if name == "graph" else kept == value


def test_a_jit_that_was_captured_is_recorded() -> None:
    @jit
    def f(x: Tensor) -> Tensor:
        return (x * 3.0).sum()

    x = Tensor([1.0, 2.0], device="cpu")
    for _ in range(3):
        f(x).item()
    with inspect.recording(times=False) as r:
        for _ in range(2):
            f(x).item()
    assert [p.runs for p in r.plans] == [2]


def test_a_file_has_everything_back(tmp_path: Path) -> None:
    with inspect.recording("two", times=False) as r:
        loop(1, "cpu")
    kept = inspect.KeptRecording(r.save(tmp_path / "r.zip"))
    assert kept.summary()["plans"] == [p.summary() for p in r.plans]
    plan = kept.plan(0)
    assert plan.graph() == r.plans[0].answer("graph")
    assert plan.one_pass("early-rewrites") == r.plans[0].answer("pass/early-rewrites")
    assert plan.kernel(1) == r.plans[0].answer("kernel/1")
    line = next(n["line"] for n in plan.graph()["nodes"] if n["line"] and n["line"]["file"] == __file__)
    source = kept.source(line["file"], line["line"], 3)
    assert source["lines"][line["line"] - source["first"]] == Path(__file__).read_text().splitlines()[line["line"] - 1]
    for wrong in (
        lambda: kept.plan(9),
        lambda: plan.kernel(99),
        lambda: plan.one_pass("nothing"),
        lambda: plan.passes(0),
        lambda: kept.source("/etc/passwd", 1, 3),
        lambda: r.save(tmp_path / "r.json"),
        lambda: r.save(tmp_path / "none" / "r.zip"),
    ):
        with pytest.raises(UserError):
            wrong()


def test_further_plans_are_counted_and_further_texts_left_out() -> None:
    with inspect.recording(most=1, texts=0, times=False) as r:
        for n in range(1, 4):
            (Tensor([1.0] * n, device="cpu") + 1.0).realize()
    assert (len(r.plans), r.left_out) == (1, 2)
    assert r.plans[0].answer("kernel/0")["text"] is None
    assert "first 0 kernels" in r.plans[0].answer("kernel/0")["error"]


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"recording.json": "[]"},
        {"recording.json": "{"},
        {"recording.json": '{"plans": 1}'},
        {"recording.json": "[" * 100_000},
        {"recording.json": '{"plans": [1]}', "0/graph.json": "\x00"},
        None,
    ],
)
def test_a_file_that_is_none_is_an_error_that_says_so(tmp_path: Path, made: dict[str, str] | None) -> None:
    place = tmp_path / "r.zip"
    if made is None:
        place.write_bytes(b"PK\x03\x04 and no more")
    else:
        with zipfile.ZipFile(place, "w") as f:
            for name, text in made.items():
                f.writestr(name, text)
    with pytest.raises(DataError, match=r"r\.zip"):
        inspect.KeptRecording(place).plan(0).graph()


def test_a_trace_lays_the_launches_one_after_another() -> None:
    launches: list[dict[str, Any]] = [
        {"name": f"k{n}", "label": f"l{n}", "phase": p, "seconds": s, "lines": [{"file": "a.py", "line": 3}]}
        for n, (p, s) in enumerate([("forward", 1e-6), ("backward", 3e-6), ("forward", 2e-6)])
    ]
    found = inspect.chrome_trace("m", launches, "cpu", [4, 8, 2])["traceEvents"]
    spans = [e for e in found if e["ph"] == "X"]
    assert [(e["ts"], e["dur"], e["tid"]) for e in spans] == [(0.0, 1.0, 1), (1.0, 3.0, 2), (4.0, 2.0, 1)]
    assert spans[0]["args"]["lines"] == "a.py:3"
    assert [e["args"] for e in found if e["ph"] == "C"] == [{"temporaries and results": b} for b in (4, 8, 2)]
    assert {e["args"]["name"] for e in found if e["name"] == "thread_name"} == {"forward", "backward"}


def test_a_recording_runs_nothing_but_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is launched once, and a function under jit is replayed: the program goes on as fast as without."""
    from anneal.backend.cpu.executor import CpuBatch
    from anneal.runtime import capture

    launched, replayed = [], []
    timed, launch = CpuBatch.timed, capture.Capture.launch
    monkeypatch.setattr(CpuBatch, "timed", lambda self: (launched.append(self), timed(self))[1])
    monkeypatch.setattr(capture.Capture, "launch", lambda self, a: (replayed.append(self), launch(self, a))[1])

    @jit
    def f(x: Tensor) -> Tensor:
        return (x * 3.0).sum()

    x = Tensor([1.0, 2.0], device="cpu").realize()
    with inspect.recording() as r:
        assert [f(x).item() for _ in range(6)] == [9.0] * 6
    assert (len(launched), len(replayed)) == (6, 4)
    (plan,) = r.plans
    assert (plan.runs, plan.times["kernels"]["count"] >= 3) == (6, True)  # type: ignore[index]
    assert plan.times["total"] > 0  # type: ignore[index]


def test_a_graph_is_kept_without_the_memory_that_it_read() -> None:
    import gc
    import weakref

    with inspect.recording(times=False) as r:
        x = Tensor([1.0, 2.0], device="cpu").realize()
        there = weakref.ref(x.uop.arg if x.uop.src == () else x.uop.src[0].arg)
        (x + 1.0).realize()
        del x
        gc.collect()
        assert there() is None
    assert r.plans[0].answer("graph")["nodes"]


def test_rules_are_heard_of_plans_that_are_new_later() -> None:
    """They are listened to only for so long as plans are new: nodes are made anew for that in each step."""
    from anneal.rewrite.passes import listening

    with inspect.recording(times=False) as r:
        x = Tensor([1.0, 2.0], device="cpu").realize()
        for _ in range(20):
            (x * 2.0).realize()
        assert not listening()
        r._heard = 0.0
        for _ in range(20):
            y = Tensor([1.0, 2.0], device="cpu", requires_grad=True)
            y.tanh().sum().backward()
            y.grad.realize()
        assert not listening()
    made = [n for n in r.plans[-1].answer("graph")["nodes"] if n.get("rule") or n.get("made")]
    assert made


def test_what_is_told_on_the_way_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from anneal.inspect import recordings

    monkeypatch.setattr(recordings, "TOLD_S", 0.0)
    monkeypatch.setattr(recordings, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(recordings, "LOOK_PART", 1e9)
    told: list[tuple[int, int, bool]] = []
    with inspect.recording(told=lambda p: told.append((p.number, p.runs, p.looked))):
        for _ in range(4):
            (Tensor([1.0, 2.0], device="cpu") + 1.0).realize()
    assert told[0] == (0, 1, False)
    assert told[-1] == (0, 4, True)
