"""Values that are computed again for the backward pass where memory is scarce: which, when, and that they are
the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anneal import settings
from anneal.codegen import kernel_info
from anneal.runtime import plan_of, values
from anneal.schedule import Plan, clear_cache
from anneal.schedule.passes import kernel_groups, memory_plan as memory
from anneal.schedule.passes.memory_plan import peak_bytes
from anneal.tensor import Tensor, functional as F
from benchmarks.models import CASES, Case, Images, planned


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is scarce for every program, and time is not."""
    for name, value in (("SCARCE", 1), ("_LARGE", 1), ("_SHARE", 1)):
        monkeypatch.setattr(kernel_groups, name, value)
    clear_cache()


def operands(device: str) -> list[Tensor]:
    r = np.random.default_rng(0)
    shapes = ((24, 16), (16, 32), (32,), (32, 16))
    return [Tensor(r.standard_normal(s).astype(np.float32), device=device, requires_grad=True) for s in shapes]


def layers(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> list[Tensor]:
    """A wide layer with gelu and a narrow one, normed; everything's gradients."""
    y = F.layer_norm(F.linear((x @ w + b).gelu("tanh"), v.T), 16) @ w
    loss = (y * y).sum()
    loss.backward()
    return [loss, *[t.grad for t in (x, w, b, v) if t.grad is not None]]


def plan() -> Plan:
    with settings.override(cache=False):
        return plan_of(layers(*operands("cpu")))


def made_again(p: Plan) -> list[int]:
    """The places of the calls that compute something again: elementwise ones of the backward pass, of forward
    values.
    """
    forward = {v for c in p.calls if c.phase == "forward" for v in c.args[: c.outputs]}
    given = forward | {v for v, value in enumerate(p.values) if value.kind == "input"}
    return [
        n
        for n, c in enumerate(p.calls)
        if c.phase == "backward" and c.kernel.name.startswith("e_") and given.issuperset(c.args[c.outputs :])
    ]


def test_what_is_cheap_is_computed_again_for_who_reads_it_late(scarce: None) -> None:
    p = plan()
    clear_cache()
    places = made_again(p)
    assert places
    for n in places:
        (value,) = p.calls[n].args[: p.calls[n].outputs]
        assert p.values[value].kind == "temp"
        assert any(value in c.args[c.outputs :] for c in p.calls[n + 1 :])


def test_nothing_is_computed_again_where_there_is_memory() -> None:
    assert made_again(plan()) == []


def test_the_values_are_the_same(webgpu: str, scarce: None) -> None:
    with settings.override(cache=False):
        found = values(layers(*operands(webgpu)))
        expected = values(layers(*operands("cpu")))
    clear_cache()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


def reduced(name: str) -> Case:
    case = CASES[name]
    if isinstance(case.size, Images):
        return replace(case, size=replace(case.size, batch=8))
    return replace(case, size=replace(case.size, layers=3, batch=2, vocab=20000))


def figures(case: Case) -> tuple[int, int, int, float]:
    """Kernels, bytes that live at once, bytes of all pieces of memory, and bytes that kernels move."""
    plan, _, _ = planned(case)
    infos = [kernel_info(c.kernel.sink) for c in plan.calls]
    moved = sum(i.bytes_read + i.bytes_written for i in infos)
    return len(plan.calls), peak_bytes(plan.values, plan.calls), sum(n for n, _ in plan.temporaries), moved


# resnet18 needs most where no value is as large as its largest, whose piece is not filled there.
@pytest.mark.parametrize(("name", "kernels", "mib", "spread"), [("gpt2", 96, 860, 1.03), ("resnet18", 236, 253, 1.33)])
def test_a_step_s_memory(name: str, kernels: int, mib: int, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory._Program, "runs", lambda *_: 1)  # any saving is taken
    clear_cache()
    calls, live, pieces, _ = figures(reduced(name))
    assert calls <= kernels
    assert pieces <= mib << 20
    assert pieces <= spread * live


def test_what_scarce_memory_saves_and_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = figures(reduced("gpt2"))
    monkeypatch.setattr(kernel_groups, "SCARCE", 1)
    clear_cache()
    found = figures(reduced("gpt2"))
    clear_cache()
    # of each block gelu's result and those of its two norms, and the last norm's
    assert 0 < found[0] - plain[0] <= 3 * 3 + 1
    assert found[1] < 0.93 * plain[1]
    assert found[3] < 1.06 * plain[3]
