"""Memory goes with the last tensor that shows it, and what a device says of it is true."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable

import numpy as np
import pytest

import anneal
from anneal import nn
from anneal.backend import Device, get_device
from anneal.errors import OutOfMemoryError, ShapeError
from anneal.tensor import Tensor, empty_cache, jit, no_grad
from anneal.uop import Op, UOp, arena

N = 5000


@pytest.fixture
def at(device: str) -> Device:
    """The device, with nothing left behind by other tests."""
    gc.collect()
    return get_device(device)


def used(at: Device) -> int:
    return at.memory().in_use


def body(x: Tensor) -> Tensor:
    return (x * 2 + 1).realize()


@pytest.mark.parametrize("f", [body, jit(body)], ids=["eager", "jit"])
def test_a_loop_over_results_holds_one_of_them(at: Device, f: Callable[[Tensor], Tensor]) -> None:
    x = Tensor(np.ones(N, np.float32)).realize()
    held = []
    for _ in range(30):
        r = f(x)
        held.append((used(at), at.held()))
    assert r.numpy()[0] == 3
    assert set(held[6:]) == {held[6]}
    assert held[6][1] <= held[2][1] + 3 * (4 * N + 300)


def test_a_result_of_other_sizes_than_before_takes_the_place_of_none(at: Device) -> None:
    """Sizes that come once each do not gather beyond the pool's budget."""
    before, budget = used(at), at.pool.budget
    at.pool.budget = 100_000
    try:
        for n in range(40):
            (Tensor(np.ones(1000 + 7 * n, np.float32)) * 2).realize()
        assert at.memory().cached <= 100_000
        assert used(at) == before
    finally:
        at.pool.budget = budget


def test_new_inputs_and_a_list_of_results_leave_nothing(at: Device) -> None:
    w = Tensor(np.ones((16, 16), np.float32)).realize()

    @jit
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ w, x.sum()

    def work() -> None:
        kept = [f(Tensor(np.full((4, 16), i, np.float32))) for i in range(20)]
        assert kept[7][0].numpy()[0, 0] == 7 * 16
        assert kept[19][1].item() == 19 * 64

    work()
    before = used(at)
    work()
    assert used(at) == before


def test_what_an_exception_leaves_behind_goes(at: Device) -> None:
    w = Tensor(np.ones((16, 16), np.float32)).realize()

    @jit
    def f(x: Tensor) -> Tensor:
        y = (x @ w).realize()
        if len(f.captures) and x.shape[0] == 3:
            raise KeyError("on purpose")
        return y + 1

    def work() -> None:
        for rows in (4, 3, 4, 3, 4, 4):
            x = Tensor(np.ones((rows, 16), np.float32))
            try:
                f(x)
                (x + Tensor(np.ones(5, np.float32))).realize()
            except (KeyError, ShapeError):
                continue

    work()
    gc.collect()  # what an exception passed through is a cycle
    before = used(at)
    for _ in range(3):
        work()
    gc.collect()
    assert used(at) == before


@pytest.mark.parametrize("shapes", [40, pytest.param(5000, marks=pytest.mark.deep)])
def test_many_shapes_leave_nothing(device: str, shapes: int) -> None:
    if device == "webgpu" and shapes > 100:
        pytest.skip("each shape is a pipeline of the driver's; 40 show the same")
    d = get_device(device)
    gc.collect()
    before = used(d)
    for n in range(shapes):
        assert (Tensor(np.ones(n + 1, np.float32)) * 3).sum().item() == 3 * (n + 1)
    assert used(d) == before


def test_a_captured_functions_memory_goes_with_it(at: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("anneal.runtime.jitted"), "_CAPTURES", 8)
    before = used(at)

    @jit
    def f(x: Tensor) -> Tensor:
        return (x.softmax(-1) @ x).relu()

    x = Tensor(np.ones((20, 20), np.float32))
    for _ in range(4):
        f(x)
    f.reset()
    del x
    assert used(at) == before
    for n in range(3, 14):  # as many captures as are kept, and more
        for _ in range(2):
            body_jit(Tensor(np.ones(n, np.float32)))
    assert len(body_jit.captures) <= 8
    body_jit.reset()
    assert used(at) == before


body_jit = jit(lambda x: x + 1)


def test_a_training_step_holds_parameters_and_moments_once(at: Device) -> None:
    """Captured, a step updates them in place: the ones it started from are not kept beside them."""
    start = used(at)
    model = nn.Linear(64, 64, bias=False)
    optimizer = nn.AdamW(model.parameters(), lr=1e-3)
    x = Tensor(np.ones((1, 64), np.float32)).realize()
    before = None

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step(loss)
        return loss

    for n in range(8):
        step(x)
        if n == 5:
            before = used(at)
    assert used(at) == before
    one = 64 * 64 * 4
    assert used(at) - start < 4.5 * one  # the weight and two moments; a gradient at the most


def test_a_long_chain_goes_without_recursion() -> None:
    x = Tensor(np.ones(2, np.float32))
    u = x.uop
    for _ in range(50_000):
        u = UOp(Op.ADD, u.dtype, (u, x.uop))
    before = len(arena())
    del u
    assert before - len(arena()) >= 49_000


def test_equal_nodes_above_memory_are_one_while_somebody_has_them() -> None:
    x = Tensor(np.ones(2, np.float32))
    a = x + 1
    assert (x + 1).uop is a.uop
    size = len(arena())
    del a
    assert len(arena()) < size
    assert (x + 1).uop is (x + 1).uop


def test_out_of_memory_says_who_has_it_and_the_program_goes_on(at: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    create, room = at._create, used(at) + 500_000
    monkeypatch.setattr(at, "_create", lambda size, dtype: create(size, dtype) if fits(size * 4) else refuse())

    def fits(nbytes: int) -> bool:
        return at.held() + nbytes <= room

    def refuse() -> None:
        raise MemoryError("no more")

    kept = []
    with pytest.raises(OutOfMemoryError) as raised:
        for n in range(100):
            kept.append((Tensor(np.full(N, n, np.float32)) * 2).realize())
    said = str(raised.value)
    assert "20,000 bytes" in said
    assert "5000 float32" in said
    assert f"{__file__}:" in said
    assert f"{len(kept) + 1} x float32" in said  # with the one that was to be doubled
    assert isinstance(raised.value, MemoryError)
    raised = None  # type: ignore[assignment]  # its traceback has what it was about to compute
    kept.clear()
    gc.collect()
    assert (Tensor(np.full(N, 3, np.float32)) * 2).numpy()[-1] == 6


def test_too_large_for_the_host_is_an_error_of_ours() -> None:
    with pytest.raises(OutOfMemoryError, match="has no room for"):
        Tensor.zeros(1 << 26, 1 << 26, device="cpu").contiguous().realize()


def test_unused_memory_is_kept_first_and_then_given_back(at: Device) -> None:
    x = (Tensor(np.ones(N, np.float32)) * 2).realize()
    at.reset_peak()
    before = at.memory()
    y = (x * 2).realize()
    assert at.memory().in_use > before.in_use
    peak = at.memory().peak
    del y
    after = at.memory()
    assert (after.in_use, after.peak) == (before.in_use, peak)
    assert after.cached > 0
    empty_cache()
    assert at.memory().cached == 0
    assert at.held() == at.memory().in_use
    assert x.numpy()[0] == 2


def test_the_report_names_lines_functions_and_sizes(at: Device) -> None:
    kept = [(Tensor(np.ones(N, np.float32)) * n).realize() for n in range(2, 6)]

    @jit
    def f(x: Tensor) -> Tensor:
        return x.softmax(0) + x.sum()

    for _ in range(3):
        f(kept[0])
    report = anneal.memory(at.name)
    mine = [h for h in report.holders if h.where.startswith(__file__) and h.what == "float32 of 5,000"]
    assert max(h.count for h in mine) == len(kept)
    assert any("jit function" in h.what and "test_memory.py" in h.what for h in report.holders)
    assert str(report).startswith(f"{at.name}: ")
    assert [h.nbytes for h in report.holders] == sorted([h.nbytes for h in report.holders], reverse=True)


def test_a_list_of_losses_keeps_no_graphs(at: Device) -> None:
    w = Tensor(np.ones((30, 30), np.float32), requires_grad=True)
    x = Tensor(np.ones((30, 30), np.float32)).realize()
    losses = []
    held = []
    for _ in range(8):
        w.grad = None
        loss = ((x @ w).tanh() ** 2).mean()
        loss.backward()
        assert w.grad is not None
        loss.realize(w.grad)
        with no_grad():
            w.assign(w - w.grad).realize()
        losses.append(loss)
        held.append(used(at))
    assert held[-1] - held[3] <= 4 * 16
