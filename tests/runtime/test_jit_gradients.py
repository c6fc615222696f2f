"""Gradients and jit: a training loop gives the same numbers whichever of its parts are under jit.

Each program takes `wrap`, which is given the name of a part and the part, and is run with every set of parts under jit
and with none. Beside numbers it may give the gradients and the running statistics that it leaves.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anneal as an
from anneal import nn, optim
from anneal.errors import GradientError, JitError
from anneal.runtime import Jit
from anneal.tensor import Tensor, jit, no_grad
from tests.tiers import thinned

Wrap = Callable[[str, Any], Any]
PARTS = ("encoder", "head", "loss")
CHOICES = [set(c) for n in range(1, 4) for c in itertools.combinations(PARTS, n)]
ROUNDS = 5


def rows(i: int, *shape: int) -> Tensor:
    return Tensor(np.random.default_rng(i).standard_normal(shape, np.float32))


class World:
    """Three parts, each jitted or not, and an optimiser over their parameters."""

    def __init__(self, wrap: Wrap) -> None:
        self.modules = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()), nn.Linear(4, 2)
        self.parameters = [p for m in self.modules for p in m.parameters()]
        for i, p in enumerate(self.parameters):
            p.assign(rows(90 + i, *p.shape) * 0.5)
        self.optimiser = optim.SGD(self.parameters, lr=0.05, momentum=0.9)
        self.encoder, self.head = wrap("encoder", self.modules[0]), wrap("head", self.modules[1])
        self.loss = wrap("loss", lambda y, t: (y - t).pow(2).mean())

    def forward(self, i: int) -> Tensor:
        return self.loss(self.head(self.encoder(rows(i, 4, 3))), rows(50 + i, 4, 2))  # type: ignore[no-any-return]

    def end(self, *more: Any) -> list[Any]:
        norm: Any = self.modules[0][1]
        state = [norm.running_mean, norm.running_var, norm.num_batches_tracked]
        gradients = [None if p.grad is None else p.grad.tolist() for p in self.parameters]
        return [*more, gradients, *[t.tolist() for t in (*self.parameters, *state)]]


def steps(w: World) -> list[Any]:
    out = []
    for i in range(ROUNDS):
        w.optimiser.zero_grad()
        loss = w.forward(i)
        out.append(loss.item())
        loss.backward()
        w.optimiser.step()
    return w.end(out)


def several_calls_before_one_backward(w: World) -> list[Any]:
    for i in range(ROUNDS):
        total = sum([w.forward(3 * i + k) for k in range(3)], Tensor(0.0))
        w.optimiser.zero_grad()
        total.backward()
        w.optimiser.step()
    return w.end()


def held_losses(w: World) -> list[Any]:
    losses = []
    for i in range(ROUNDS):
        losses.append(w.forward(i))
        w.optimiser.zero_grad()
        losses[-1].backward()
        w.optimiser.step()
    return w.end([x.item() for x in losses])


def several_backwards_before_one_step(w: World) -> list[Any]:
    for i in range(ROUNDS):
        for k in range(3):
            (w.forward(3 * i + k) / 3).backward()
        w.optimiser.step()
        w.optimiser.zero_grad()
    return w.end()


def values_are_read_between(w: World) -> list[Any]:
    out: list[Any] = []
    for i in range(ROUNDS):
        h = w.encoder(rows(i, 4, 3))
        out.append(h.tolist())
        y = w.head(h)
        out.append(y.sum().item())
        loss = w.loss(y, rows(50 + i, 4, 2))
        w.optimiser.zero_grad()
        loss.backward()
        out.append([p.grad.tolist() for p in w.parameters])  # type: ignore[union-attr]
        w.optimiser.step()
    return w.end(out)


def evaluation_takes_turns(w: World) -> list[Any]:
    out = []
    for i in range(2 * ROUNDS):
        if i % 2:
            for m in w.modules:
                m.eval()
            with no_grad():
                out.append(w.forward(i).item())
            for m in w.modules:
                m.train()
        else:
            w.optimiser.zero_grad()
            w.forward(i).backward()
            w.optimiser.step()
    return w.end(out)


def an_input_requires_a_gradient(w: World) -> list[Any]:
    out = []
    for i in range(ROUNDS):
        x = rows(i, 4, 3).requires_grad_()
        w.optimiser.zero_grad()
        w.loss(w.head(w.encoder(x)), rows(50 + i, 4, 2)).backward()
        assert x.grad is not None
        out.append(x.grad.tolist())
        w.optimiser.step()
    return w.end(out)


def a_gradient_of_a_gradient(w: World) -> list[Any]:
    out = []
    for i in range(ROUNDS):
        x = rows(i, 4, 3).requires_grad_()
        y = w.head(w.encoder(x))
        (slope,) = an.autograd.grad(y.sum(), x, create_graph=True)
        w.optimiser.zero_grad()
        (w.loss(y, rows(50 + i, 4, 2)) + slope.pow(2).mean()).backward()
        out.append(slope.tolist())
        w.optimiser.step()
    return w.end(out)


def one_graph_twice(w: World) -> list[Any]:
    for i in range(ROUNDS):
        w.optimiser.zero_grad()
        loss = w.forward(i)
        loss.backward(retain_graph=True)
        loss.backward()
        w.optimiser.step()
    return w.end()


def frozen_in_the_middle(w: World) -> list[Any]:
    for i in range(3 * ROUNDS):
        w.modules[0].requires_grad_(not ROUNDS <= i < 2 * ROUNDS)
        w.optimiser.zero_grad()
        w.forward(i).backward()
        w.optimiser.step()
    return w.end()


PROGRAMS = [
    *(steps, several_calls_before_one_backward, held_losses, several_backwards_before_one_step),
    *(values_are_read_between, evaluation_takes_turns, an_input_requires_a_gradient, a_gradient_of_a_gradient),
    *(one_graph_twice, frozen_in_the_middle),
]


def run(program: Callable[[World], list[Any]], jitted: set[str]) -> list[Any]:
    return program(World(lambda name, part: jit(part) if name in jitted else part))


def agree(got: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            agree(a, b)
    elif expected is None:
        assert got is None
    else:
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


@functools.cache
def without(device: str, program: Callable[[World], list[Any]]) -> list[Any]:
    """The results of a program on the default device, which is `device`, with none of its parts jitted."""
    return run(program, set())


def sets_of_parts(device: str, choices: Sequence[set[str]]) -> list[Any]:
    rows = itertools.product(PROGRAMS, choices)
    return thinned(
        [pytest.param(device, p, c, id="-".join([p.__name__, *sorted(c), device])) for p, c in rows], test=2, ci=2
    )


@pytest.mark.parametrize(
    ("device", "program", "jitted"),
    [*sets_of_parts("cpu", CHOICES), *sets_of_parts("webgpu", CHOICES[-1:])],
    indirect=["device"],
)
def test_every_set_of_parts_trains_as_none(
    device: str, program: Callable[[World], list[Any]], jitted: set[str]
) -> None:
    agree(run(program, jitted), without(device, program))


# -- whole steps -------------------------------------------------------------------------------------------------------


def whole(w: World, wrap: Callable[[Any], Any], body: Callable[[World, Tensor, Tensor], Any]) -> Callable[[int], Any]:
    step = wrap(lambda x, t: body(w, x, t))
    return lambda i: step(rows(i, 4, 3), rows(50 + i, 4, 2))


def _loss(w: World, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    y = w.head(w.encoder(x))
    return y, w.loss(y, t)


def first_zero(w: World, x: Tensor, t: Tensor) -> Any:
    w.optimiser.zero_grad()
    _, loss = _loss(w, x, t)
    loss.backward()
    w.optimiser.step()
    return loss


def last_zero(w: World, x: Tensor, t: Tensor) -> Any:
    _, loss = _loss(w, x, t)
    loss.backward()
    w.optimiser.step(loss)
    w.optimiser.zero_grad()
    return loss


def with_predictions(w: World, x: Tensor, t: Tensor) -> Any:
    w.optimiser.zero_grad()
    y, loss = _loss(w, x, t)
    loss.backward()
    nn.utils.clip_grad_norm_(w.parameters, 0.5)
    w.optimiser.step()
    return loss, y, y.softmax(-1), (y.argmax(-1) == 0).float().mean()


def by_autograd(w: World, x: Tensor, t: Tensor) -> Any:
    _, loss = _loss(w, x, t)
    for p, g in zip(w.parameters, an.autograd.grad(loss, w.parameters), strict=True):
        p.assign((p - 0.1 * g).detach())
    return loss


def accumulated_inside(w: World, x: Tensor, t: Tensor) -> Any:
    w.optimiser.zero_grad()
    for k in range(2):
        (_loss(w, x + k, t)[1] / 2).backward()
    w.optimiser.step()


def zeros_first(w: World, x: Tensor, t: Tensor) -> Any:
    w.optimiser.zero_grad(set_to_none=False)
    w.modules[0].zero_grad(set_to_none=False)
    _, loss = _loss(w, x, t)
    loss.backward()
    w.optimiser.step()
    return loss


CAPTURED = [first_zero, last_zero, with_predictions, by_autograd, accumulated_inside, zeros_first]


def zeroed_in_place(w: World, x: Tensor, t: Tensor) -> Any:
    _, loss = _loss(w, x, t)
    loss.backward()
    w.optimiser.step()
    for p in w.parameters:
        if p.grad is not None:
            p.grad.zero_()
    return loss


def zeroed_before(w: World, x: Tensor, t: Tensor) -> Any:
    for p in w.parameters:
        if p.grad is not None:
            p.grad.zero_()
    return never_zeroed(w, x, t)


def never_zeroed(w: World, x: Tensor, t: Tensor) -> Any:
    _, loss = _loss(w, x, t)
    loss.backward()
    w.optimiser.step()
    return loss


def zeroed_in_part(w: World, x: Tensor, t: Tensor) -> Any:
    w.modules[1].zero_grad()
    return never_zeroed(w, x, t)


GOES_ON = [zeroed_in_place, zeroed_before, never_zeroed, zeroed_in_part]


def outside_zero(w: World, x: Tensor, t: Tensor) -> Any:
    _, loss = _loss(w, x, t)
    loss.backward()
    return loss


def only_the_optimiser(w: World, x: Tensor, t: Tensor) -> Any:
    w.optimiser.step()
    w.optimiser.zero_grad()


def clipped_for_outside(w: World, x: Tensor, t: Tensor) -> Any:
    w.optimiser.zero_grad()
    _, loss = _loss(w, x, t)
    loss.backward()
    nn.utils.clip_grad_norm_(w.parameters, 0.5)
    return loss


def also_a_penalty(w: World, x: Tensor, t: Tensor) -> Any:
    _, loss = _loss(w, x, t)
    loss.backward()
    w.optimiser.step()
    w.optimiser.zero_grad()
    return loss.detach(), (w.modules[1].bias ** 2).sum()


def numbers(found: Any) -> list[Any]:
    return [t.tolist() for t in (found if isinstance(found, tuple) else (found,)) if t is not None]


@pytest.mark.parametrize("body", CAPTURED, ids=lambda b: b.__name__)
def test_a_whole_step_is_captured_and_trains_as_without(device: str, body: Callable[..., Any]) -> None:
    found = []
    for wrap in (lambda f: f, jit):
        w = World(lambda name, part: part)
        step: Any = None

        def noted(f: Any, wrap: Any = wrap) -> Any:
            nonlocal step
            step = wrap(f)
            return step

        call = whole(w, noted, body)
        out = [numbers(call(i)) for i in range(ROUNDS)]
        if isinstance(step, Jit):
            assert not step.uncaptured
            assert sum(c is not None for c in step.captures.values()) == 1
        w.optimiser.zero_grad()
        found.append(w.end(out))
    agree(found[1], found[0])


@pytest.mark.parametrize("body", [*GOES_ON, zeros_first], ids=lambda b: b.__name__)
@pytest.mark.parametrize("change", ["nothing", "part", "group", "frozen", "eager first"])
def test_a_step_may_go_on_with_the_gradients_of_the_step_before(
    device: str, body: Callable[..., Any], change: str
) -> None:
    found = []
    for wrap in (lambda f: f, jit):
        w = World(lambda name, part: part)
        if change in ("part", "group"):
            w.optimiser = optim.SGD(w.modules[1].parameters(), lr=0.05, momentum=0.9)
        call = whole(w, wrap, body)
        out = [numbers(body(w, rows(7, 4, 3), rows(8, 4, 2)))] if change == "eager first" else []
        for i in range(2 * ROUNDS):
            out.append(numbers(call(i)))
            if i == ROUNDS and change == "group":
                w.optimiser.add_param_group({"params": w.modules[0].parameters(), "lr": 0.01})
            if i in (ROUNDS, ROUNDS + 3) and change == "frozen":
                w.modules[0].requires_grad_(i > ROUNDS)
        for p in w.parameters:
            p.grad = None
        found.append(w.end(out))
    agree(found[1], found[0])


def test_a_whole_step_is_replayed_from_the_third_call(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    w = World(lambda name, part: part)
    call = whole(w, jit, lambda w, x, t: (runs.append(1), first_zero(w, x, t))[1])
    for i in range(6):
        call(i)
    assert len(runs) == 2


@pytest.mark.parametrize("accumulate", [outside_zero, clipped_for_outside])
@pytest.mark.parametrize("update", [False, True])
def test_gradients_that_a_call_leaves_are_there(device: str, accumulate: Callable[..., Any], update: bool) -> None:
    found = []
    for wrap in (lambda f: f, jit):
        w = World(lambda name, part: part)
        call = whole(w, wrap, accumulate)
        step = whole(w, wrap if update else lambda f: f, only_the_optimiser)
        out = []
        for i in range(ROUNDS):
            out += [numbers(call(3 * i + k)) for k in range(3)]
            out.append([p.grad.tolist() for p in w.parameters if p.grad is not None])
            step(i)
        found.append(w.end(out))
    agree(found[1], found[0])


def test_a_step_that_gives_a_further_graph_is_not_captured(device: str) -> None:
    found = []
    for wrap in (lambda f: f, jit):
        w = World(lambda name, part: part)
        call = whole(w, wrap, also_a_penalty)
        out = []
        for i in range(ROUNDS):
            loss, penalty = call(i)
            w.optimiser.zero_grad()
            out.append([loss.tolist(), penalty.tolist()])
        found.append(w.end(out))
    agree(found[1], found[0])


# -- state, modes, nests -----------------------------------------------------------------------------------------------


def test_a_mask_is_drawn_once_for_forward_and_backward(device: str) -> None:
    drop = nn.Dropout(0.5)
    f = jit(lambda x: drop(x))
    for i in range(ROUNDS):
        x = Tensor(np.ones(64, np.float32), requires_grad=True)
        y = f(x) if i % 2 else f(x * 1.0)
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == y.tolist()
        assert 0 < sum(v == 0 for v in y.tolist()) < 64


def test_a_mask_over_weights_is_drawn_once_for_forward_and_backward(device: str) -> None:
    weight = nn.Parameter(np.ones(64, np.float32))
    f = jit(lambda: nn.functional.dropout(weight, 0.5, True))
    seen = set()
    for _ in range(ROUNDS):
        weight.grad = None
        y = f()
        y.sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == y.tolist()
        seen.add(tuple(y.tolist()))
    assert len(seen) == ROUNDS


def test_nested_functions_let_gradients_through(device: str) -> None:
    found = []
    for wrap in (lambda f: f, jit):
        w = World(lambda name, part, wrap=wrap: wrap(part))  # type: ignore[misc]
        outer = wrap(lambda x, w=w: w.head(w.encoder(x)))
        out = []
        for i in range(ROUNDS):
            w.optimiser.zero_grad()
            loss = w.loss(outer(rows(i, 4, 3)), rows(50 + i, 4, 2))
            loss.backward()
            w.optimiser.step()
            out.append(loss.item())
        found.append(w.end(out))
    agree(found[1], found[0])


def test_a_state_through_which_gradients_flow_is_not_captured(device: str) -> None:
    found = []
    for wrap in (lambda f: f, jit):
        weight = Tensor([2.0], requires_grad=True)
        hidden = [Tensor([1.0])]

        def step(x: Tensor, weight: Tensor = weight, hidden: list[Tensor] = hidden) -> None:
            hidden[0].mul_(weight).add_(x)

        f = wrap(step)
        for _ in range(ROUNDS):
            f(Tensor([1.0]))
        hidden[0].sum().backward()
        assert weight.grad is not None
        found.append([hidden[0].tolist(), weight.grad.tolist()])
    agree(found[1], found[0])


def test_a_tensor_that_begins_to_want_a_gradient_is_seen(device: str) -> None:
    weight, x = Tensor([2.0], requires_grad=True), Tensor([3.0])
    for begins in (lambda h: h.mul_(weight), lambda h: h.requires_grad_(), lambda h: h.__setitem__(0, weight[0] * 3)):
        h = Tensor([1.0])
        f = jit(lambda x, h=h: x * h)
        for _ in range(4):
            assert not f(x).requires_grad
        begins(h)
        for _ in range(4):
            y = f(x)
            assert y.requires_grad
            assert y.tolist() == (x * h).tolist()
            y.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [4 * 3.0 + 4 * 9.0]


def test_calls_without_gradients_are_captured_beside_those_with(device: str) -> None:
    model = nn.Linear(2, 1)
    f = jit(model)
    for i in range(4):
        f(rows(i, 3, 2)).sum().backward()
        with no_grad():
            assert not f(rows(i, 3, 2)).requires_grad
    assert len(f.captures) == 2
    assert all(captured is not None for captured in f.captures.values())
    model.requires_grad_(False)
    for i in range(4):
        agree(f(rows(i, 3, 2)).tolist(), model(rows(i, 3, 2)).tolist())
    assert not f.uncaptured


def test_explain_says_what_is_captured_and_why_not() -> None:
    model = nn.Linear(2, 1)
    f = jit(model)
    assert f.explain() == "Linear: not called yet"
    for i in range(3):
        f(rows(i, 3, 2))
        with no_grad():
            f(rows(i, 3, 2))
    f(rows(1, 4, 2).requires_grad_())
    with_backward, captured, argument, *_ = f.explain().splitlines()[1:]
    assert with_backward.startswith("  (float32 (3, 2) on cpu): captured with its backward, ")
    assert captured.startswith("  (float32 (3, 2) on cpu), without gradients: captured, ")
    assert argument == "  (float32 (4, 2) on cpu that requires a gradient): ran once, and will be captured"
    g = jit(lambda x: (x, model(x)))
    g(rows(1, 3, 2).requires_grad_())
    (runs,) = g.explain().splitlines()[1:]
    assert runs == (
        "  (float32 (3, 2) on cpu that requires a gradient): not captured: it gives a tensor that others see, and "
        "gradients flow through it"
    )


def test_backward_of_what_a_whole_step_gives_is_torch_s_error(device: str) -> None:
    w = World(lambda name, part: part)
    call = whole(w, jit, first_zero)
    for i in range(4):
        with pytest.raises(GradientError, match="called a second time on the same result"):
            call(i).backward()


@pytest.mark.parametrize("jitted", [("critic",), ("generator",), ("critic", "generator")], ids="-".join)
@pytest.mark.parametrize("rounds", ["dg", "dgg", "ddg"])
def test_a_step_adds_to_gradients_that_another_left_and_forgets(
    device: str, jitted: tuple[str, ...], rounds: str
) -> None:
    """The two steps of a GAN: the generator's leaves gradients of the critic, which the critic's forgets."""

    def trained(jitted: tuple[str, ...]) -> list[float]:
        an.manual_seed(0)
        maker, critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        makers, critics = optim.SGD(maker.parameters(), 0.1), optim.Adam(critic.parameters(), 0.1)
        softplus = nn.functional.softplus

        def judge(x: Tensor, z: Tensor) -> Tensor:
            critics.zero_grad()
            loss = softplus(-critic(x)).mean() + softplus(critic(maker(z).detach())).mean()
            loss.backward()
            critics.step()
            return loss.detach()

        def make(z: Tensor) -> Tensor:
            makers.zero_grad()
            loss = softplus(-critic(maker(z))).mean()
            loss.backward()
            makers.step()
            return loss.detach()

        judge, make = jit(judge) if "critic" in jitted else judge, jit(make) if "generator" in jitted else make
        losses = [
            (judge(rows(i, 5, 4), rows(i + 50, 5, 3)) if which == "d" else make(rows(i, 5, 3))).item()
            for i, which in enumerate(rounds * 4)
        ]
        if "critic" in jitted:
            with pytest.raises(JitError, match="stays there"):
                _ = critic[0].weight.grad
        critics.zero_grad()
        softplus(critic(rows(0, 5, 4))).sum().backward()  # and a sum begins anew
        assert critic[1].bias.grad is not None
        return [*losses, critic[1].bias.grad.item(), *(p.sum().item() for p in maker.parameters())]

    np.testing.assert_allclose(trained(jitted), trained(()), rtol=1e-4)


def test_a_gradient_that_stays_inside_says_so() -> None:
    w = World(lambda name, part: part)
    call = whole(w, jit, first_zero)
    call(0)
    with pytest.raises(JitError, match="taken inside a jit function and stays there"):
        _ = w.parameters[0].grad


# -- any order ---------------------------------------------------------------------------------------------------------

ACTIONS = ("train", "forward", "backward", "step", "zero", "read", "eval", "no_grad", "freeze", "whole", "assign")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(ACTIONS), min_size=4, max_size=14), st.sets(st.sampled_from(PARTS), min_size=1))
def test_any_order_of_what_a_loop_does(actions: list[str], jitted: set[str]) -> None:
    def play(jitted: set[str], wrap: Callable[[Any], Any]) -> list[Any]:
        w = World(lambda name, part: jit(part) if name in jitted else part)
        once = whole(w, wrap, last_zero)
        out: list[Any] = []
        losses: list[Tensor] = []
        for i, action in enumerate(actions * 3):
            if action == "train":
                losses.clear()  # a step changes what they were computed from
                w.optimiser.zero_grad()
                w.forward(i).backward()
                w.optimiser.step()
            elif action == "forward":
                losses.append(w.forward(i))
            elif action == "backward" and losses:
                losses.pop().backward()
            elif action == "step":
                losses.clear()
                w.optimiser.step()
            elif action == "zero":
                w.optimiser.zero_grad()
            elif action == "read":
                out += [x.item() for x in losses]
            elif action == "eval":
                w.modules[0].train(not w.modules[0].training)
            elif action == "no_grad":
                with no_grad():
                    out.append(w.forward(i).item())
            elif action == "freeze":
                losses.clear()
                bias: Any = w.modules[1].bias
                bias.requires_grad_(not bias.requires_grad)
            elif action == "whole":
                losses.clear()
                w.optimiser.zero_grad()
                out.append(once(i).item())
            elif action == "assign":
                losses.clear()
                with no_grad():
                    w.parameters[0].mul_(0.9)
        return w.end(out)

    agree(play(jitted, jit), play(set(), lambda f: f))
