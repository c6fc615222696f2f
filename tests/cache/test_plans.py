"""Plans and kernels on disk: a second process neither schedules nor generates, and computes the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from anneal import cache, settings
from anneal.backend import get_device
from anneal.cache import store
from anneal.codegen import Opt, decode_kernel, encode_kernel, generate
from anneal.schedule import CostModel, clear_cache, graph, plan, plan_for
from anneal.tensor import Tensor, jit, realize
from anneal.uop import Op, Recent, UOp, const, decode_graph, dtypes, encode_graph
from tests.codegen.test_golden import KERNELS, TARGET, TARGETS
from tests.fuzz.generate import program
from tests.fuzz.programs import build

ODD = [0.0, -0.0, 1e-45, 3.4e38, float("inf"), -float("inf"), float("nan"), -float("nan"), 0.1]


@pytest.fixture(autouse=True)
def everything_is_worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.backend.webgpu.device._WORTH", 0.0)


def forget(device: str) -> None:
    """What a new process does not know."""
    clear_cache()
    if device == "webgpu":
        d: Any = get_device(device)
        d._programs = Recent(1024)


def counting(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many programs are scheduled, and kernels generated, from now on."""
    counts = {"scheduled": 0, "generated": 0}

    def count(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return f(*args, **kwargs)

        return counted

    monkeypatch.setattr(plan, "run_passes", count("scheduled", plan.run_passes))
    monkeypatch.setattr("anneal.backend.webgpu.device.generate", count("generated", generate))
    return counts


def test_graphs_come_back_as_the_identical_nodes() -> None:
    for value in ODD:
        for dtype in (dtypes.float32, dtypes.float64):
            u = const(dtype, value)
            assert decode_graph(json.loads(json.dumps(encode_graph(u)))) is u
    x = UOp(Op.PARAM, dtypes.int64, (), (0, (2, 3)))
    strange = UOp(
        Op.CONTIGUOUS, dtypes.int64, (x + (1 << 62), x), (None, "a|b", Op.ADD, (1.5, True), float("nan")), tag=7
    )
    assert decode_graph(json.loads(json.dumps(encode_graph(strange)))).key == strange.key
    with pytest.raises(TypeError, match="written down"):
        encode_graph(UOp(Op.CONTIGUOUS, dtypes.int64, (x,), object()))


@pytest.mark.parametrize("name", KERNELS)
def test_generated_kernels_come_back_equal(name: str) -> None:
    sink, opts = KERNELS[name]
    kernel = generate(sink, TARGETS.get(name, TARGET), opts)
    assert decode_kernel(json.loads(json.dumps(encode_kernel(kernel)))) == kernel
    assert (
        decode_kernel(json.loads(json.dumps(encode_kernel(replace(kernel, opts=(Opt("FLAT", 0, 3),) * 3))))) != kernel
    )


def test_plans_come_back_equal() -> None:
    for seed in range(40):
        made, _, _ = plan_for(graph([t.uop for t in build(program(seed), "cpu").values()]), CostModel())
        again = plan.decode_plan(json.loads(json.dumps(plan.encode_plan(made))))
        assert [k.name for k in again.kernels] == [k.name for k in made.kernels]
        for a, b in zip(again.calls, made.calls, strict=True):
            assert a.kernel.key == b.kernel.key == b.kernel.sink.key
            assert a.kernel.sink is b.kernel.sink
            assert a[1:] == b[1:]
        for field in ("values", "inputs", "outputs", "memory", "temporaries"):
            assert getattr(again, field) == getattr(made, field), field


def step() -> list[Any]:
    """A training step's worth of kernels, in the smallest sizes."""
    w = Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), requires_grad=True)
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) / 6)
    loss = ((x @ w).tanh().softmax(-1) * Tensor([1.0, 0.0, 2.0, 0.5])).sum()
    loss.backward()
    assert w.grad is not None
    new = w.detach() - w.grad * 0.1
    realize([loss, new, w.grad])
    return [loss.item(), new.tolist(), w.grad.tolist()]


def test_a_second_process_neither_schedules_nor_generates(
    place: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counting(monkeypatch)
    forget(device)
    first = step()
    made = dict(counts)
    assert made["scheduled"] > 0
    forget(device)
    assert step() == first
    assert counts == made
    kinds = {e.kind for e in cache.entries(place)} - {"native"}
    assert kinds == ({"plans", "kernels"} if device == "webgpu" else {"plans"})
    with settings.override(cache=False):
        forget(device)
        assert step() == first
    assert counts["scheduled"] == 2 * made["scheduled"]
    assert counts["generated"] == 2 * made["generated"]


def train() -> list[float]:
    w, m = Tensor(np.ones((4, 4), np.float32), requires_grad=True), Tensor(np.zeros((4, 4), np.float32))

    @jit
    def update(x: Tensor) -> Tensor:
        loss = ((x @ w) * (x @ w)).mean()
        w.grad = None
        loss.backward()
        assert w.grad is not None
        m.assign(m * 0.9 + w.grad)
        w.assign((w - m * 0.1).detach())
        return loss

    return [float(update(Tensor(np.eye(4, dtype=np.float32))).item()) for _ in range(5)]


def test_donated_plans_of_jit_are_not_generated_again(
    place: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counting(monkeypatch)
    forget(device)
    first = train()
    made = dict(counts)
    forget(device)
    assert train() == first
    assert counts["scheduled"] == made["scheduled"]
    assert counts["generated"] - made["generated"] <= 2  # copies of a buffer, which belong to no plan


def test_a_kernel_from_disk_builds_no_graph(place: Path) -> None:
    get = lambda: graph([((Tensor([1.0, 2.0]) + 1).exp().sum() * 3).uop])
    clear_cache()
    plan_for(get(), CostModel())
    clear_cache()
    with mock.patch.object(plan, "decode_graph", side_effect=AssertionError("built")):
        again, _, known = plan_for(get(), CostModel())
        assert not known
        assert all(k.name and k.key for k in again.kernels)
        with pytest.raises(AssertionError, match="built"):
            _ = again.kernels[0].sink
    assert again.kernels[0].sink.op is Op.SINK


SECOND = """
import sys
from anneal.schedule import plan
plan._WORTH = 0
count = []
run = plan.run_passes
plan.run_passes = lambda *a: count.append(1) or run(*a)
import numpy as np
from anneal.tensor import Tensor
x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
print(((x @ x.T).softmax(-1).gelu() * x.sum(1)).tolist(), file=sys.stderr)
print(len(count))
"""


def test_another_process_finds_the_plan_whatever_its_hash_seed(place: Path) -> None:
    outcomes = []
    for seed in ("1", "2", "3"):
        env = {**os.environ, "ANNEAL_CACHE": "1", "ANNEAL_CACHE_DIR": str(place), "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", SECOND], env=env, capture_output=True, text=True, check=True)
        outcomes.append((done.stdout.strip(), done.stderr))
    assert [o[0] for o in outcomes] == ["1", "0", "0"]
    assert len({o[1] for o in outcomes}) == 1


def plans_scheduled(monkeypatch: pytest.MonkeyPatch, cost_model: CostModel) -> bool:
    counts = counting(monkeypatch)
    clear_cache()
    plan_for(graph([((Tensor([1.0, 2.0]) + 1).exp().sum() * 3).uop]), cost_model)
    return bool(counts["scheduled"])


def test_cost_model_and_code_version_are_part_of_a_plans_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plans_scheduled(monkeypatch, CostModel())
    assert not plans_scheduled(monkeypatch, CostModel())
    for field, value in (("max_buffers", 5), ("row_fusion", 4), ("recompute_cost", 1), ("expand_cost", 9)):
        assert plans_scheduled(monkeypatch, replace(CostModel(), **{field: value}))  # type: ignore[arg-type]
    monkeypatch.setattr(store, "code_version", lambda: b"another version..")
    assert plans_scheduled(monkeypatch, CostModel())


def test_debug_5_shows_the_passes_of_a_plan_that_is_on_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plans_scheduled(monkeypatch, CostModel())
    with settings.override(debug=5):
        assert plans_scheduled(monkeypatch, CostModel())
    assert "range-propagation" in capsys.readouterr().err


def test_what_is_quick_to_make_is_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_WORTH", 1e9)
    clear_cache()
    assert (Tensor([1.0, 2.0]) + 1).tolist() == [2.0, 3.0]
    assert {e.kind for e in cache.entries(place)} <= {"native"}  # a compiler is never quick


def test_a_damaged_entry_is_made_again(place: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counting(monkeypatch)
    forget(device)
    first = step()
    made = dict(counts)
    for e in cache.entries(place):
        text = e.path.read_bytes()
        e.path.write_bytes(text[: len(text) // 2] + b"?" + text[len(text) // 2 + 1 :])
    forget(device)
    assert step() == first
    assert counts["scheduled"] == 2 * made["scheduled"]
    assert counts["generated"] == 2 * made["generated"]
    assert {e.state for e in cache.entries(place)} == {"current"}


def test_adapter_driver_limits_and_features_are_part_of_the_kernels_key(
    place: Path, monkeypatch: pytest.MonkeyPatch, webgpu: str
) -> None:
    counts = counting(monkeypatch)
    d: Any = get_device(webgpu)

    def generated() -> bool:
        before = counts["generated"]
        forget("webgpu")
        assert (Tensor([1.0, 2.0], device="webgpu").exp() + 1).sum().item() == pytest.approx(12.107, abs=1e-3)
        return counts["generated"] > before

    generated()
    assert not generated()
    info, features, limits, target, library = d.identity
    others = [
        (replace(info, name="other"), features, limits, target, library),
        (replace(info, driver="other"), features, limits, target, library),
        (replace(info, backend="Metal"), features, limits, target, library),
        (info, [*features, "more"], limits, target, library),
        (info, features, [(limits[0][0], limits[0][1] + 1), *limits[1:]], target, library),
        (info, features, limits, replace(target, max_threads=32), library),
        (info, features, limits, target, "0.0"),
    ]
    for other in others:
        monkeypatch.setattr(d, "identity", other)
        assert generated(), other
        assert not generated()
    monkeypatch.setattr(d, "identity", (info, features, limits, target, library))
    assert not generated()


def test_kernels_of_another_search_are_not_mixed_up(place: Path, monkeypatch: pytest.MonkeyPatch, webgpu: str) -> None:
    monkeypatch.setattr("anneal.backend.webgpu.device.best_opts", lambda device, sink, width: ())
    counts = counting(monkeypatch)
    for width in (0, 2, 4):
        for again in (False, True):
            forget("webgpu")
            before = counts["generated"]
            with settings.override(beam=width):
                assert (Tensor([1.0, 2.0], device="webgpu").exp() + 1).sum().item() == pytest.approx(12.107, abs=1e-3)
            assert (counts["generated"] == before) is again


def test_random_programs_from_disk_compute_the_same(place: Path, device: str) -> None:
    for seed in range(30):
        values = []
        for _ in range(2):
            forget(device)
            outputs = build(program(seed), device)
            realize(list(outputs.values()))
            values.append([t.numpy() for t in outputs.values()])
        for a, b in zip(*values, strict=True):
            np.testing.assert_array_equal(a, b)
    assert cache.entries(place)
