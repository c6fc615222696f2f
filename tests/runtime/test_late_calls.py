"""Late calls: a loop around a captured model is one launch a round, and keeps every promise of a captured call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import anneal as an
from anneal import nn, optim
from anneal.errors import GradientError
from anneal.runtime import here, launch
from anneal.tensor import Tensor, jit, no_grad
from benchmarks.calls import counted
from tests.runtime.test_jit_backward import SITUATIONS, agree, grads, is_captured, net, rows

Loop = tuple[Any, Any, Callable[[int], Any]]  # the module, its jit function, and a round


def loop(module: Any = None, wrap: Callable[[Any], Any] = jit, inputs: int = 4) -> Loop:
    """A loop whose calls are late by now, where they are jitted."""
    m = net() if module is None else module
    f, o = wrap(m), optim.SGD(m.parameters(), lr=0.05)

    def step(i: int) -> Any:
        o.zero_grad()
        loss = f(rows(i, 5, inputs)).square().mean()
        loss.backward()
        o.step()
        return loss

    for i in range(8):
        step(i)
    o.zero_grad()
    return m, f, step


def is_late(y: Tensor) -> bool:
    return y.late is not None


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    execute = launch.execute
    monkeypatch.setattr(launch, "execute", lambda *a, **k: (found.append(a[0]), execute(*a, **k))[1])
    monkeypatch.setattr("anneal.runtime.repeats.execute", launch.execute)
    return found


def test_a_round_is_one_launch_and_gives_what_it_gives_without_jit(device: str, launches: list[Any]) -> None:
    m, f, step = loop()
    plain, _, plain_step = loop(wrap=lambda m: m)
    launches.clear()
    losses = [step(i).item() for i in range(8, 14)]
    assert len(launches) == 6
    agree(losses, [plain_step(i).item() for i in range(8, 14)])
    agree([p.numpy() for p in m.parameters()], [p.numpy() for p in plain.parameters()])
    assert is_captured(f)


def test_a_round_calls_no_more_python_than_the_loop_without_jit() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x).tanh())

    counts = []
    for wrap in (jit, lambda m: m):
        _, _, step = loop(Two(), wrap)
        for i in range(8):
            step(i)
        counts.append(counted(lambda step=step: step(3)))
    assert counts[0].calls < 0.9 * counts[1].calls


@pytest.mark.parametrize("situation", SITUATIONS)
def test_late_calls_give_what_calls_without_jit_give(
    situation: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that go on in many ways after a captured call, which is late here from the first one on."""
    from anneal.runtime.uses import CallHistory

    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(CallHistory, "late", always, raising=False)
    agree(situation(jit), situation(lambda f: f))


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("change", ["step", "part", "bias"])
def test_parameters_that_change_before_the_backward_are_an_error(device: str, change: str, read: bool) -> None:
    m, f, step = loop()
    o = optim.SGD(m.parameters(), lr=0.1)
    m(rows(1, 5, 4)).sum().backward()
    o.step()
    o.zero_grad()
    y = f(rows(9, 5, 4))
    assert is_late(y)
    loss = y.square().sum()
    if read:
        loss.item()
    if change == "step":
        m(rows(1, 5, 4)).sum().backward()
        o.step()
    else:
        with no_grad():
            _ = m[0].bias.mul_(0.5) if change == "bias" else m[0].weight[0].zero_()
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("leaf", [True, False])
def test_an_argument_that_changes_before_the_backward_is_an_error_where_it_is_a_leaf(leaf: bool) -> None:
    m = net()
    f, o = jit(m), optim.SGD(m.parameters(), lr=0.05)
    for i in range(8):
        o.zero_grad()
        f(rows(i, 5, 4).requires_grad_()).square().mean().backward()
        o.step()
    o.zero_grad()
    x = rows(1, 5, 4).requires_grad_()
    given = x if leaf else (x * 2).realize()
    y = f(given)
    assert is_late(y)
    loss = y.square().sum()
    with no_grad():
        given.mul_(3.0)
    if leaf:
        with pytest.raises(GradientError, match="modified by an inplace operation"):
            loss.backward()
        return
    loss.backward()
    other = rows(1, 5, 4).requires_grad_()
    m(other * 2).square().sum().backward()
    assert x.grad is not None
    assert other.grad is not None
    agree(x.grad.numpy(), other.grad.numpy())


def test_a_second_backward_without_retain_graph_is_an_error(device: str) -> None:
    m, f, _ = loop()
    y = f(rows(9, 5, 4))
    assert is_late(y)
    y.sum().backward()
    with pytest.raises(GradientError, match=r"passes the call of Sequential a second time.*retain_graph=True"):
        (y * y).sum().backward()
    m.zero_grad()
    y, z = f(rows(9, 5, 4)), m(rows(9, 5, 4))
    for t in (y, z):
        t.sum().backward(retain_graph=True)
        (t * t).sum().backward()
        if t is y:
            first = grads(m)
            m.zero_grad()
    agree(first, grads(m))


def test_a_loss_that_is_read_before_its_backward_has_its_calls_launched_again(launches: list[Any]) -> None:
    m, f, step = loop()
    o = optim.SGD(m.parameters(), lr=0.05)
    plain, _, _ = loop(wrap=lambda m: m)
    other = optim.SGD(plain.parameters(), lr=0.05)
    for i in range(6):
        for g, p in ((f, o), (plain, other)):
            p.zero_grad()
            loss = g(rows(i, 5, 4)).square().mean()
            if g is f:
                assert is_late(loss)
                launches.clear()
            loss.item()
            loss.backward()
            p.step()
            if g is f and i:
                # the loss, and what is left of the step: the call was launched by itself
                assert len(launches) == 2
    agree([p.numpy() for p in m.parameters()], [p.numpy() for p in plain.parameters()])
    for i in range(80):
        step(i)
    assert is_late(f(rows(1, 5, 4)))


def test_results_that_are_read_after_the_step_are_those_of_the_call(launches: list[Any]) -> None:
    m, f, _ = loop()
    o = optim.SGD(m.parameters(), lr=0.05)
    for i in range(6):
        with no_grad():
            expected = m(rows(i, 5, 4)).numpy()
        o.zero_grad()
        y = f(rows(i, 5, 4))
        assert is_late(y)
        launches.clear()
        y.square().mean().backward()
        o.step()
        agree(y.numpy(), expected)
        assert len(launches) == 1  # the result came with the step


def test_what_changes_between_rounds_is_seen() -> None:
    m, f, step = loop(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 3)))

    def expect() -> None:
        y = f(rows(1, 5, 4))
        with no_grad():
            agree(y.detach().numpy(), m(rows(1, 5, 4)).numpy())

    m[0].weight.data = rows(5, 8, 4)
    expect()
    with no_grad():
        m[0].bias.copy_(rows(6, 8))
    expect()
    m[2].weight = nn.Parameter(rows(7, 3, 8).numpy())
    expect()
    for i in range(8):
        step(i)
    m[1].p = 1.0
    expect()
    m.eval()
    expect()
    m[2].bias.requires_grad = False
    for _ in range(4):
        m.zero_grad()
        f(rows(1, 5, 4)).sum().backward()
        assert m[2].bias.grad is None
        assert m[0].bias.grad is not None
    with an.autocast("cpu", dtype="bfloat16"):
        assert f(rows(1, 5, 4)).dtype == m(rows(1, 5, 4)).dtype
    with no_grad():
        assert not f(rows(1, 5, 4)).requires_grad


def test_gradients_that_add_up_are_no_growing_graph() -> None:
    m, f, _ = loop()
    for i in range(6):
        f(rows(i, 5, 4)).square().mean().backward()
    for i in range(3):
        made = here.context.plans_made
        f(rows(i, 5, 4)).square().mean().backward()
    assert here.context.plans_made == made
    plain = net()
    plain.load_state_dict(m.state_dict())
    for i in (*range(6), *range(3)):
        plain(rows(i, 5, 4)).square().mean().backward()
    agree(grads(m), grads(plain))


def test_calls_that_nobody_uses_hold_no_memory_for_ever() -> None:
    _, f, _ = loop()
    for i in range(200):
        assert f(rows(i, 5, 4)).requires_grad
    assert len(here.calls) <= 4


def test_any_number_of_calls_waits_for_one_backward_without_a_new_plan_for_each() -> None:
    m, f, _ = loop()
    o = optim.SGD(m.parameters(), lr=0.05)

    def step(count: int) -> None:
        o.zero_grad()
        sum([f(rows(i, 5, 4)).square().mean() for i in range(count)], Tensor(0.0)).backward()
        o.step()

    for _ in range(3):
        for count in (2, 9):
            step(count)
    made = here.context.plans_made
    step(9)
    step(2)
    assert here.context.plans_made == made


def test_threads_have_late_calls_of_their_own() -> None:
    m, f, _ = loop()
    want = [m(rows(i, 5, 4)).detach().numpy() for i in range(4)]
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = f(rows(i, 5, 4)).detach().numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    agree([found[i] for i in range(4)], want)


def test_hooks_of_leaves_and_of_results_are_called() -> None:
    m, f, _ = loop()
    seen: list[Any] = []
    y = f(rows(1, 5, 4))
    assert is_late(y)
    loss = y.square().sum()
    y.register_hook(lambda g: seen.append(g.numpy()))
    m[0].bias.register_hook(lambda g: g * 3)
    loss.backward()
    agree(seen[0], 2 * y.detach().numpy())
    got = grads(m)
    m.zero_grad()
    m(rows(1, 5, 4)).square().sum().backward()
    agree(got, grads(m))
