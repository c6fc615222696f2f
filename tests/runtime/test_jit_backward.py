"""Captured calls whose backward is taken outside: each situation gives what the same program gives without jit.

A program takes `wrap`, which is jit or nothing, and gives numbers and texts of errors. Values are compared to 1e-6 of
the largest of their array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anneal as an
from anneal import nn, optim
from anneal.errors import GradientError
from anneal.runtime import Jit, Meter, here, launch, metered, watched
from anneal.tensor import Tensor, jit, no_grad
from anneal.transforms.captured import residuals
from anneal.uop import Op, UOp, dtypes
from tests.tiers import on_devices

Wrap = Callable[[Any], Any]


def rows(i: int, *shape: int) -> Tensor:
    return Tensor(np.random.default_rng(i).standard_normal(shape, np.float32))


def filled(module: Any, first: int = 70) -> Any:
    for i, p in enumerate(module.parameters()):
        p.assign(rows(first + i, *p.shape) * 0.5)
    return module


def net(inner: int = 8, last: int = 3) -> Any:
    return filled(nn.Sequential(nn.Linear(4, inner), nn.Tanh(), nn.Linear(inner, last)))


def known(wrap: Wrap, module: Any) -> Any:
    """The module, whose call is captured by now where it ever is; without gradients."""
    f = wrap(module)
    for i in range(3):
        f(rows(i, 5, 4)).sum().backward()
    module.zero_grad()
    return f


def grads(*modules: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.numpy().copy() for m in modules for p in m.parameters()]


def agree(got: Any, expected: Any) -> None:
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            agree(a, b)
    elif expected is None or isinstance(expected, str):
        assert got == expected
    else:
        a, b = np.asarray(got), np.asarray(expected)
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * max(1.0, float(np.abs(b).max(initial=0))))


def is_captured(f: Any) -> bool:
    return "captured with its backward" in f.explain()


# -- situations --------------------------------------------------------------------------------------------------------


def calls_before_one_backward(wrap: Wrap) -> Any:
    m = net()
    f = known(wrap, m)
    ys = [f(rows(i, 5, 4)) for i in range(6)]
    total = Tensor(0.0)
    for i, y in enumerate(ys):
        total = total + (y * y).sum() * (i + 1)
    total.backward()
    return grads(m)


def backwards_in_another_order(wrap: Wrap) -> Any:
    m = net(40)
    f, out = known(wrap, m), []
    ys = [f(rows(i, 50, 4)) for i in range(4)]
    for y in reversed(ys):
        (y * y).mean().backward()
        out.append(grads(m))
    return out


def retained(wrap: Wrap) -> Any:
    m = net()
    y = known(wrap, m)(rows(9, 5, 4))
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    first = grads(m)
    loss.backward()
    return first, grads(m)


def arguments_change(wrap: Wrap) -> Any:
    m = net()
    f, x = known(wrap, m), rows(9, 5, 4)
    loss = f(x).square().sum()
    x.add_(5.0)
    loss.backward()
    return grads(m)


def results_change(wrap: Wrap) -> Any:
    m = net()
    y = known(wrap, m)(rows(9, 5, 4))
    y.mul_(2.0)
    y.add_(1)
    y.square().sum().backward()
    return grads(m), y.numpy()


def hooks_on_results(wrap: Wrap) -> Any:
    m, seen = net(), []

    def doubled(g: Tensor) -> Tensor:
        seen.append(g.numpy().copy())
        return g * 2

    y = known(wrap, m)(rows(9, 5, 4))
    y.register_hook(doubled)
    y.retain_grad()
    y.square().sum().backward()
    return grads(m), seen, y.grad.numpy()


def hooks_on_leaves(wrap: Wrap) -> Any:
    m = net()
    f = known(wrap, m)
    m[0].weight.register_hook(lambda g: g * 3)
    for _ in range(4):
        f(rows(9, 5, 4)).square().sum().backward()
    return grads(m)


def hooks_inside(wrap: Wrap) -> Any:
    m, seen = net(), []

    def body(x: Tensor) -> Tensor:
        y = m(x)
        y.register_hook(lambda g: seen.append(g.numpy().copy()))
        return y * 2

    f = wrap(body)
    for i in range(4):
        f(rows(i, 5, 4)).square().sum().backward()
    return grads(m), seen


def gradients_of_gradients(wrap: Wrap) -> Any:
    m = net()
    f, out = known(wrap, m), []
    for i in range(3):
        x = rows(i, 5, 4).requires_grad_()
        y = f(x)
        (slope,) = an.autograd.grad(y.sum(), x, create_graph=True)
        (slope.square().sum() + y.sum()).backward()
        assert x.grad is not None
        out.append([slope.numpy(), x.grad.numpy()])
    return out, grads(m)


def gradients_on_the_way(wrap: Wrap) -> Any:
    f, x = known(wrap, net()), rows(3, 5, 4).requires_grad_()
    for _ in range(3):
        h = x * 2
        y = f(h)
        found = an.autograd.grad((y * y).sum(), [y, h, x])
    return [g.numpy() for g in found]


def chosen_leaves(wrap: Wrap) -> Any:
    m = net()
    (known(wrap, m)(rows(1, 5, 4)) ** 2).sum().backward(inputs=[m[0].weight])
    return grads(m)


def with_and_without_gradients(wrap: Wrap) -> Any:
    m, out = net(), []
    f = wrap(m)
    for i in range(8):
        x = rows(i, 5, 4).requires_grad_(i % 4 < 2)
        if i % 2:
            with no_grad():
                y = f(x)
            assert not y.requires_grad
        else:
            y = f(x)
            y.sum().backward()
        out.append([y.numpy(), None if x.grad is None else x.grad.numpy()])
    return out, grads(m)


def an_annealed_loss(wrap: Wrap) -> Any:
    m = net()
    f, o = wrap(m), optim.SGD(m.parameters(), lr=0.1)
    for i in range(16):
        o.zero_grad()
        (f(rows(i, 5, 4)).square().mean() * (i / 20)).backward()
        o.step()
    return [p.numpy() for p in m.parameters()]


def accumulated(wrap: Wrap) -> Any:
    m = net()
    f, o = wrap(m), optim.SGD(m.parameters(), lr=0.1)
    for i in range(16):
        (f(rows(i, 5, 4)).square().mean() / 4).backward()
        if i % 4 == 3:
            o.step()
            o.zero_grad()
    return [p.numpy() for p in m.parameters()]


def calls_of_each_other_s_results(wrap: Wrap) -> Any:
    a, b = net(), filled(nn.Linear(3, 4), 80)
    f, g = wrap(a), wrap(b)
    for i in range(5):
        a.zero_grad()
        b.zero_grad()
        h = f(rows(i, 5, 4))
        (f(g(h.relu())).sum() + h.square().sum()).backward()
    return grads(a, b)


def episodes_of_any_length(wrap: Wrap) -> Any:
    m = net()
    f, o = wrap(m), optim.SGD(m.parameters(), lr=0.1)
    for length in (3, 4, 2):
        chosen = []
        for t in range(length):
            p = f(rows(t, 1, 4)).log_softmax(-1)
            chosen.append(p[0, int(p.argmax().item())])
        o.zero_grad()
        (-Tensor.stack(chosen).sum()).backward()
        o.step()
    return [p.numpy() for p in m.parameters()]


def losses_are_read_before(wrap: Wrap) -> Any:
    m, out = net(), []
    f, o = wrap(m), optim.SGD(m.parameters(), lr=0.1)
    for i in range(6):
        o.zero_grad()
        loss = f(rows(i, 5, 4)).square().mean()
        out.append(loss.item())
        loss.backward()
        o.step()
    return out, [p.numpy() for p in m.parameters()]


def the_loss_is_the_result(wrap: Wrap) -> Any:
    m, losses = net(), []
    f, o = wrap(lambda x: m(x).square().mean()), optim.SGD(m.parameters(), lr=0.1)
    for i in range(6):
        o.zero_grad()
        losses.append(f(rows(i, 5, 4)))
        (losses[-1] / (1 + i % 2)).backward()
        o.step()
    return [x.item() for x in losses], [p.numpy() for p in m.parameters()]


def parts_of_the_results(wrap: Wrap) -> Any:
    a, b, out = net(), filled(nn.Linear(4, 2), 80), []
    f = wrap(lambda x: {"a": a(x), "b": (b(x).sigmoid(), x.argmax(-1))})
    for i in range(9):
        a.zero_grad()
        b.zero_grad()
        found = f(rows(i, 5, 4))
        first, second = found["a"].sum(), found["b"][0].square().sum()
        (first, second, first + second)[i % 3].backward()
        out.append([grads(a, b), found["b"][1].numpy()])
    return out


def cotangents_are_given(wrap: Wrap) -> Any:
    m = net()
    f, out = known(wrap, m), []
    for i in range(4):
        f(rows(i, 5, 4)).backward(rows(7 + i, 5, 3))
        out.append(grads(m))
    return out


def two_results_with_one_cotangent(wrap: Wrap) -> Any:
    a, b, out = filled(nn.Linear(4, 3)), filled(nn.Linear(4, 3), 80), []
    f = wrap(lambda x: (a(x).tanh(), b(x).sigmoid()))
    for i in range(6):
        a.zero_grad()
        b.zero_grad()
        y, z = f(rows(i, 5, 4))
        w, v = rows(30 + i, 5, 3), rows(60 + i, 5, 3)
        ((y + z) * w).sum().backward() if i < 4 else ((y * w).sum() + (z * v).sum()).backward()
        out.append(grads(a, b))
    return out


def a_generator_and_its_judge(wrap: Wrap) -> Any:
    maker, judge, out = net(last=4), filled(nn.Linear(4, 1), 80), []
    f, g = wrap(maker), wrap(judge)
    makers, judges = optim.SGD(maker.parameters(), lr=0.05), optim.SGD(judge.parameters(), lr=0.05)
    for i in range(8):
        made = f(rows(i, 5, 4))
        judges.zero_grad()
        loss = g(rows(30 + i, 5, 4)).tanh().mean() - g(made.detach()).tanh().mean()
        loss.backward()
        judges.step()
        makers.zero_grad()
        fooled = g(made).square().mean()
        fooled.backward()
        makers.step()
        out.append([loss.item(), fooled.item()])
    return out, [p.numpy() for m in (maker, judge) for p in m.parameters()]


def one_tensor_twice(wrap: Wrap) -> Any:
    w = nn.Parameter(np.ones((3, 3), np.float32))
    f, out = wrap(lambda a, b: a @ b.T @ w), []
    for i in range(5):
        w.grad = None
        (f(w, w) if i < 3 else f(w, rows(i, 3, 3))).sum().backward()
        assert w.grad is not None
        out.append(w.grad.numpy().copy())
    return out


def state_goes_on(wrap: Wrap) -> Any:
    w, hidden = Tensor([2.0], requires_grad=True), Tensor([1.0])

    def body(x: Tensor) -> Tensor:
        hidden.assign((hidden * 0.5 + x).detach())
        return hidden * w

    f, out = wrap(body), []
    for i in range(6):
        y = f(Tensor([float(i)]))
        out.append(y.item())
        if i % 2:
            y.backward()
            assert w.grad is not None
            out.append(w.grad.item())
    return out, hidden.item()


def statistics_are_written_once(wrap: Wrap) -> Any:
    m = filled(nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU()))
    f, out = wrap(m), []
    for i in range(6):
        y = f(rows(i, 3, 2, 8))
        if i != 3:
            y.square().mean().backward()
        out.append([b.numpy().copy() for b in m.buffers()])
    # the first layer's bias has no influence: what it gets is rounding
    return out, [g for n, g in enumerate(grads(m)) if n != 1]


def functions_of_the_user(wrap: Wrap) -> Any:
    class Reversed(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float) -> Any:
            ctx.by = by
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * -ctx.by, None

    m, by, out = net(), [1.0], []
    f = wrap(lambda x: Reversed.apply(m(x), by[0]))
    for i in range(8):
        by[0] = 1.0 if i < 4 else 3.0
        m.zero_grad()
        f(rows(i, 5, 4)).sum().backward()
        out.append(grads(m))
    return out


def transforms_look_inside(wrap: Wrap) -> Any:
    f, x = known(wrap, net()), rows(1, 5, 4)
    pushed = an.jvp(f, (x,), (rows(2, 5, 4),))
    return an.grad(lambda x: f(x).sum())(x).numpy(), an.vmap(f)(x).numpy(), [t.numpy() for t in pushed]


def a_checkpoint_around(wrap: Wrap) -> Any:
    m = net()
    f = wrap(m)
    for i in range(4):
        m.zero_grad()
        an.utils.checkpoint.checkpoint(f, rows(i, 5, 4).requires_grad_(), use_reentrant=False).square().sum().backward()
    return grads(m)


def arguments_come_back(wrap: Wrap) -> Any:
    f, x = wrap(lambda x: (x, x * 2, x.T)), rows(1, 5, 4).requires_grad_()
    for _ in range(4):
        a, b, c = f(x)
        (a.sum() + b.sum() + c.square().sum()).backward()
    assert x.grad is not None
    return x.grad.numpy()


def an_argument_is_changed_inside(wrap: Wrap) -> Any:
    m, out = net(), []
    f, x = wrap(lambda x: m(x.relu_())), rows(1, 5, 4).requires_grad_()
    for _ in range(4):
        m.zero_grad()
        y = f(x * 2)
        y.sum().backward()
        out.append(y.numpy())
    assert x.grad is not None
    return out, grads(m), x.grad.numpy()


def views_of_one_result(wrap: Wrap) -> Any:
    a, out = filled(nn.Linear(4, 6)), []
    f = wrap(lambda x: a(x).chunk(2, -1))
    for i in range(5):
        a.zero_grad()
        y, z = f(rows(i, 5, 4))
        y.mul_(2.0)
        (y * z.exp()).sum().backward()
        out.append([grads(a), y.numpy(), z.numpy()])
    return out


SITUATIONS = [
    *(calls_before_one_backward, backwards_in_another_order, retained, arguments_change, results_change),
    *(hooks_on_results, hooks_on_leaves, hooks_inside, gradients_of_gradients, gradients_on_the_way, chosen_leaves),
    *(with_and_without_gradients, an_annealed_loss, accumulated, calls_of_each_other_s_results),
    *(episodes_of_any_length, losses_are_read_before, the_loss_is_the_result, parts_of_the_results),
    *(cotangents_are_given, two_results_with_one_cotangent, one_tensor_twice, state_goes_on),
    a_generator_and_its_judge,
    *(statistics_are_written_once, functions_of_the_user, transforms_look_inside, a_checkpoint_around),
    *(arguments_come_back, an_argument_is_changed_inside, views_of_one_result),
]
AS_THEY_STAND = {hooks_inside, arguments_come_back, an_argument_is_changed_inside}


@pytest.mark.parametrize(("device", "situation"), on_devices(SITUATIONS, test=2, ci=2), indirect=["device"])
def test_a_situation_gives_what_it_gives_without_jit(device: str, situation: Callable[[Wrap], Any]) -> None:
    jitted: list[Any] = []

    def wrap(f: Any) -> Any:
        jitted.append(jit(f))
        return jitted[-1]

    agree(situation(wrap), situation(lambda f: f))
    assert all(is_captured(f) is (situation not in AS_THEY_STAND) for f in jitted)


# -- what may not go unnoticed -----------------------------------------------------------------------------------------


def test_a_second_backward_without_retain_graph_is_an_error(device: str) -> None:
    m = net()
    y = known(jit, m)(rows(9, 5, 4))
    y.sum().backward()
    with pytest.raises(GradientError, match=r"passes the call of Sequential a second time.*retain_graph=True"):
        (y * y).sum().backward()
    other = Tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="a second time"):
        (y.sum() + other).backward()


@pytest.mark.parametrize("change", ["step", "part", "bias"])
def test_parameters_that_change_before_the_backward_are_an_error(device: str, change: str) -> None:
    m = net()
    f, o = known(jit, m), optim.SGD(m.parameters(), lr=0.1)
    f(rows(1, 5, 4)).sum().backward()
    loss = f(rows(9, 5, 4)).square().sum()
    if change == "step":
        o.step()
    else:
        with no_grad():
            _ = m[0].bias.mul_(0.5) if change == "bias" else m[0].weight[0].zero_()
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        loss.backward()


def test_a_whole_step_between_forward_and_backward_is_seen(device: str) -> None:
    m = net()
    f, o = known(jit, m), optim.SGD(m.parameters(), lr=0.1)

    @jit
    def step(x: Tensor) -> Tensor:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        o.zero_grad()
        return loss

    for i in range(4):
        step(rows(i, 5, 4))
    for i in range(3):
        f(rows(i, 5, 4)).sum().backward()
        o.zero_grad()
    loss = f(rows(9, 5, 4)).sum()
    step(rows(8, 5, 4))
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        loss.backward()
    y = f(rows(9, 5, 4))
    agree(y.tolist(), m(rows(9, 5, 4)).tolist())


def test_masks_are_those_of_their_forward(device: str) -> None:
    drop, m = nn.Dropout(0.5), nn.Linear(6, 16)
    f = jit(lambda x: drop(m(x)))
    for _ in range(6):
        m.zero_grad()
        first, second = f(Tensor.ones(4, 6)), f(Tensor.ones(4, 6))
        assert m.bias is not None
        assert first.tolist() != second.tolist()
        for y in (first, second):
            m.bias.grad = None
            y.sum().backward()
            assert m.bias.grad is not None
            agree(m.bias.grad.tolist(), ((y.numpy() != 0).sum(0) * 2.0).tolist())
    assert is_captured(f)


def test_a_capture_makes_nothing_anew() -> None:
    """Neither the function nor the backward is traced, and no plan is made, once a loop of calls is known; nor are
    they where as many calls come before a backward as were never there."""
    m, runs = net(), []

    def body(x: Tensor) -> Tensor:
        runs.append(1)
        return m(x)

    f, o = jit(body), optim.SGD(m.parameters(), lr=0.1)
    for i in range(12):
        if i == 6:
            made, ran = here.context.plans_made, len(runs)
        o.zero_grad()
        f(rows(i, 5, 4)).square().sum().backward()
        o.step()
    assert (here.context.plans_made, len(runs)) == (made, ran)
    for i in range(2):
        f(rows(i, 5, 4)).backward(Tensor.ones(5, 3))
    made = here.context.plans_made
    for count in (3, 5):
        for y in [f(rows(i, 5, 4)) for i in range(count)]:
            y.backward(Tensor.ones(5, 3))
        assert here.context.plans_made <= made + 1  # the sums of the leaves' gradients
    assert len(runs) == ran


def test_a_gradient_that_was_computed_is_added_to_with_what_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge has gradients of its own step when those of the maker pass it: three launches less, one way back."""
    maker, judge = net(last=4), filled(nn.Linear(4, 1), 80)
    f, g = jit(maker), jit(judge)
    makers, judges = optim.Adam(maker.parameters()), optim.Adam(judge.parameters())
    launches: list[Any] = []
    execute = launch.execute
    monkeypatch.setattr(launch, "execute", lambda *a, **k: (launches.append(a[0]), execute(*a, **k))[1])
    for i in range(24):
        launches.clear()
        made = f(rows(i, 5, 4))
        judges.zero_grad()
        loss = g(rows(30 + i, 5, 4)).tanh().mean() - g(made.detach()).tanh().mean()
        loss.backward()
        judges.step()
        makers.zero_grad()
        fooled = g(made).square().mean()
        fooled.backward()
        makers.step()
    # three calls, a result that is read by one, and two steps
    assert len(launches) <= 7


def _kept(y: Tensor) -> list[Any]:
    """The memory that a call keeps for its backward, by its result."""
    pending = y.uop.src[0].arg.origin.src[-1].arg.derivative.captured
    return [u.arg for u in pending.memory()[5:]]  # after the argument and the parameters


def test_what_is_kept_is_the_call_s_until_its_backward_or_its_results_go() -> None:
    f = known(jit, net())
    y = f(rows(1, 5, 4))
    (mine,) = _kept(y)
    assert mine.size == 5 * 8
    others = [f(rows(i, 5, 4)) for i in range(3)]
    assert len({id(s) for z in (y, *others) for s in _kept(z)}) == 4
    y.sum().backward(retain_graph=True)
    assert _kept(y) == [mine]
    y.sum().backward()
    assert _kept(y) == []


@pytest.mark.parametrize("backward", [True, False])
def test_memory_is_written_anew_once_nobody_needs_it(backward: bool) -> None:
    """Calls take turns: without a backward one result is there until the next has its name."""
    m = net(400)
    f, used = jit(m), []
    for i in range(10):
        y = f(rows(i % 3, 200, 4))
        if i > 1:
            used.append(_kept(y)[0].buffer)
        if backward:
            y.sum().backward()
            m.zero_grad()
        else:
            y.tolist()
    assert len({id(b) for b in used}) == (1 if backward else 2)


def test_explain_says_what_is_kept() -> None:
    f = known(jit, net())
    f(rows(1, 5, 4)).backward(Tensor.ones(5, 3))
    (line,) = f.explain().splitlines()[1:]
    assert line.startswith("  (float32 (5, 4) on cpu): captured with its backward, ")
    assert line.endswith(" kernels, 160 bytes kept for the backward")
    assert len(f.plans()) >= 2
    for plan, origins in f.plans():
        assert plan.calls
        assert any(o.provenance[1] is not None and o.provenance[1].co_filename == __file__ for o in origins)


def test_replays_are_measured_and_shown_to_who_watches() -> None:
    m, shown, watched_plans = net(), [], []
    f = known(jit, m)

    def step(i: int) -> list[Any]:
        y = f(rows(i, 5, 4))
        y.backward(rows(i + 5, 5, 3))
        found = [y.tolist(), *[p.grad.tolist() for p in m.parameters()]]
        m.zero_grad()
        return found

    expected = [step(i) for i in range(6)]
    with metered(Meter(shown=lambda _, launch: shown.append(launch.plan))) as meter:
        found = [step(i) for i in range(6)]
    assert found == expected
    assert len(set(shown)) == len(shown)
    assert {plan: track.runs for plan, track in meter.tracks.items() if len(plan.calls) > 1} == {
        plan: 6 for plan in shown if len(plan.calls) > 1
    }
    with watched(lambda _, launch: watched_plans.append(launch.plan)):
        agree(step(0), expected[0])
    assert watched_plans


# -- residuals ---------------------------------------------------------------------------------------------------------


def _hole(n: int, *shape: int) -> UOp:
    return UOp(Op.PARAM, dtypes.float32, (), (n, shape), tag="hole")


def test_residuals_are_as_few_bytes_as_will_do() -> None:
    x, g, r = _hole(0, 4, 6), _hole(1, 4, 6), _hole(2, 4, 6)
    total = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (Op.ADD, (1,)))
    wide = UOp(Op.EXPAND, x.dtype, (total,), (4, 6))
    slope = Op.EXP(x * wide)
    # of memory and a sum all else is computed again: the sum is kept, and no view of it
    assert residuals([g * slope, g * wide], [g]) == [total]
    # two functions of one dear value are computed of it; one function of it is kept itself, if it is no larger
    dear = UOp(Op.CONTIGUOUS, x.dtype, (x,))
    h = Op.EXP(dear)
    assert residuals([r * h, r * Op.SIN(h)], [r]) == [h]
    assert residuals([r * Op.SIN(h)], [r]) == [Op.SIN(h)]
    # a bool for each element is less than a float
    mask = Op.LT(h, x)
    assert residuals([r * mask.cast(r.dtype)], [r]) == [mask]
    assert residuals([r * Op.EXP(x)], [r]) == []
    # what is a function of no memory is not kept, however dear
    ramp = UOp(Op.CONTIGUOUS, dtypes.int32, (UOp(Op.IOTA, dtypes.int32, (), (6,)),)).cast(x.dtype)
    wide = UOp(Op.EXPAND, x.dtype, (UOp(Op.RESHAPE, x.dtype, (ramp,), (1, 6)),), (4, 6))
    assert residuals([r * wide], [r]) == []


# -- any program -------------------------------------------------------------------------------------------------------

UNARY = {
    "tanh": lambda a, b, w: a.tanh(),
    "relu": lambda a, b, w: a.relu(),
    "exp": lambda a, b, w: (a * 0.3).exp(),
    "matmul": lambda a, b, w: a @ w,
    "add": lambda a, b, w: a + b,
    "mul": lambda a, b, w: a * b,
    "softmax": lambda a, b, w: a.softmax(-1),
    "norm": lambda a, b, w: (a - a.mean(-1, keepdim=True)) * (a.var(-1, keepdim=True) + 0.1).rsqrt(),
    "max": lambda a, b, w: a.amax(0, keepdim=True) + b,
    "gather": lambda a, b, w: a[:, [2, 0, 1, 1]],
    "where": lambda a, b, w: an.where(a > b, a, b * w[0]),
    "transpose": lambda a, b, w: (a[:4].T @ b[:4]).sum(0, keepdim=True) + a,
    "detach": lambda a, b, w: a.detach() * b,
    "fixed": lambda a, b, w: a * an.arange(4).float().cumsum(0).contiguous().softmax(0),
}
EVENTS = ("call", "call", "backward", "together", "part", "change x", "step", "no_grad", "twice")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(UNARY)), min_size=1, max_size=6),
    st.integers(1, 3),
    st.lists(st.sampled_from(EVENTS), min_size=3, max_size=10),
)
def test_any_program_has_the_gradients_that_it_has_without_jit(ops: list[str], count: int, events: list[str]) -> None:
    def play(wrap: Wrap) -> list[Any]:
        w, v = (nn.Parameter(rows(i, 4, 4).numpy() * 0.5) for i in (90, 91))

        def body(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            a, b, out = x, y, []
            for n, op in enumerate(ops):
                a, b = UNARY[op](a, b, w if n % 2 else v) * (1.0 if n else v[0]), a
                out.append(a)
            return tuple(out[-count:])

        f, out, pending = wrap(body), [], []
        for i in range(3):
            x = rows(i, 5, 4).requires_grad_()
            sum([y.sum() for y in f(x, rows(50 + i, 5, 4))], Tensor(0.0)).backward()
        for i, event in enumerate(events * 2):
            x = rows(i, 5, 4).requires_grad_()
            if event in ("call", "no_grad"):
                with an.set_grad_enabled(event == "call"):
                    ys = f(x, rows(50 + i, 5, 4))
                out.append([y.numpy() for y in ys] if i % 3 else 0)
                if event == "call":
                    pending.append((x, ys))
            elif event == "step":
                pending.clear()
                with no_grad():
                    w.sub_(w.grad * 0.01) if w.grad is not None else w.mul_(0.9)
                w.grad = v.grad = None
            elif event == "change x" and pending:
                with no_grad():
                    pending[-1][1][0].mul_(1.5)
            elif event == "together" and pending:
                total = sum([y.square().mean() for _, ys in pending for y in ys], Tensor(0.0))
                total.backward()
                out.append([None if x.grad is None else x.grad.numpy() for x, _ in pending])
                pending.clear()
            elif event in ("backward", "part", "twice") and pending:
                x, ys = pending.pop(0)
                loss = (ys[-1] * rows(i, *ys[-1].shape)).sum() if event == "part" else sum([y.sum() for y in ys]) * 0.5
                loss.backward(retain_graph=event == "twice")
                if event == "twice":
                    loss.backward()
                out.append(None if x.grad is None else x.grad.numpy())
        return [*out, *[None if p.grad is None else p.grad.numpy() for p in (w, v)], w.numpy(), v.numpy()]

    jitted: list[Jit[Any, Any]] = []

    def wrap(f: Any) -> Any:
        jitted.append(jit(f))
        return jitted[-1]

    agree(play(wrap), play(lambda f: f))
    assert is_captured(jitted[0])
