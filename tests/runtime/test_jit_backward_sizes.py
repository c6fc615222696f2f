"""Captured calls whose backward is taken outside, of symbolic sizes and with loops: one capture serves all sizes, and
values and gradients are those of the same program without jit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import Variable, nn, optim
from anneal.backend import get_device
from anneal.errors import GradientError
from anneal.runtime import Jit, cache_statistics
from anneal.tensor import Tensor, functional as F, jit
from benchmarks.calls import counted

LENGTH, BATCH = Variable("length", 1, 12), Variable("batch", 1, 6)
PAIRS = ((3, 4), (7, 2), (3, 4), (12, 6), (1, 1), (7, 5), (2, 6))
X = np.random.default_rng(0).standard_normal((12, 6, 4)).astype(np.float32) * 0.5
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32) * 0.3

Wrap = Callable[[Any], Any]
Program = Callable[[Tensor, Tensor], Any]  # of x (length, batch, 4) and w (4, 4)


def no_loop(x: Tensor, w: Tensor) -> Any:
    y = (x @ w).tanh()
    return y, (y.exp().mean(0) * y.sum(0)).sum()


def attention(x: Tensor, w: Tensor) -> Any:
    rows = x.permute(1, 0, 2)
    return ((rows @ w) @ rows.transpose(1, 2)).softmax(-1) @ rows


def elman(x: Tensor, w: Tensor) -> Any:
    def turn(h: Tensor, row: Tensor) -> Any:
        h = (h @ w + row).tanh()
        return h, h * 2

    return an.scan(turn, an.zeros(x.shape[1], 4), x)


def gated_from_the_end(x: Tensor, w: Tensor) -> Any:
    def turn(state: Any, row: Tensor) -> Any:
        h, c = state
        z = h @ w + row
        c = z.sigmoid() * c + z.tanh()
        return (c.tanh(), c), {"y": c.tanh(), "sum": z.sum(1)}

    zero = an.zeros(x.shape[1], 4)
    return an.scan(turn, (zero, zero + 1), x, reverse=True)


def two_after_another(x: Tensor, w: Tensor) -> Any:
    last, rows = elman(x, w)
    return last, (elman(rows * rows, w @ w)[1] * x).sum()


def nested(x: Tensor, w: Tensor) -> Any:
    def outer(h: Tensor, row: Tensor) -> Any:
        last, rows = an.scan(lambda c, r: (c * 0.5 + r @ w, c), h.sum(0), row * h)
        return h + last, rows.sum(0)

    return an.scan(outer, an.ones(x.shape[1], 4), x)


def power(x: Tensor, w: Tensor) -> Any:
    return (an.fori_loop(0, 5, lambda i, m: m @ w + i * 0.1, an.ones(3, 4)) * x.sum()).exp()


def turns_by_a_length(x: Tensor, w: Tensor) -> Any:
    """A loop is all that has the Variable."""
    return an.fori_loop(0, x.shape[0], lambda i, m: (m @ w).tanh() + i * 0.1, w).sum()


def a_choice(x: Tensor, w: Tensor) -> Any:
    return an.cond(x.sum() > 0, lambda a: (a @ w).sum(), lambda a: (a * a).sum(), x)


def checkpointed(x: Tensor, w: Tensor) -> Any:
    def turn(h: Tensor, row: Tensor) -> Any:
        h = an.utils.checkpoint.checkpoint(lambda a, b: (a @ w + b).tanh(), h, row)
        return h, h

    return an.scan(turn, an.zeros(x.shape[1], 4), x)


PROGRAMS = [
    *(no_loop, attention, elman, gated_from_the_end, two_after_another, nested, power, turns_by_a_length),
    *(a_choice, checkpointed),
]


def tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in (result.values() if isinstance(result, dict) else result) for t in tensors(part)]


def given(length: int, batch: int, symbolic: bool) -> Tensor:
    return Tensor(X)[: LENGTH.bind(length), : BATCH.bind(batch)] if symbolic else Tensor(X[:length, :batch])


def total(result: Any) -> Tensor:
    return sum([(t * t).sum() for t in tensors(result)], Tensor(0.0))


def close(got: Any, expected: Any) -> None:
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1e-3, float(np.abs(b).max(initial=0))))


def is_captured(f: Jit[..., Any]) -> bool:
    return not f.uncaptured and f.explain().count("captured with its backward") == 1


@pytest.mark.parametrize("symbolic", [True, False], ids=["symbolic", "fixed"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients_are_those_without_jit(device: str, program: Program, symbolic: bool) -> None:
    pairs = PAIRS if symbolic else PAIRS[:1] * 4

    def run(f: Program, symbolic: bool) -> list[list[Any]]:
        w, found = Tensor(W, requires_grad=True), []
        for length, batch in pairs:
            x = given(length, batch, symbolic).requires_grad_()
            result = f(x, w)
            total(result).backward()
            there = [x.grad, w.grad, *tensors(result)]
            found.append([t.numpy() for t in there if t is not None])
            w.grad = None
        return found

    f = jit(program)
    got, expected = run(f, symbolic), run(program, False)
    for a, b in zip(got, expected, strict=True):
        close(a, b)
    assert is_captured(f)
    assert not f.recaptures


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn, self.out = nn.Embedding(9, 6), nn.LSTM(6, 8, num_layers=2), nn.Linear(8, 9)
        for i, p in enumerate(self.parameters()):
            p.assign(Tensor(np.random.default_rng(i).standard_normal(p.shape).astype(np.float32) * 0.4))

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        h, _ = self.rnn(self.embedding(tokens))
        return F.cross_entropy(self.out(h).reshape(-1, 9), following.reshape(-1))


TOKENS = np.random.default_rng(3).integers(0, 9, (13, 4)).astype(np.int32)


def training(wrap: Wrap) -> tuple[Callable[[int], float], Any]:
    model = Language()
    f, optimiser = wrap(model), optim.Adam(model.parameters(), lr=0.01)

    def step(length: int) -> float:
        tokens, following = (Tensor(a)[: LENGTH.bind(length)] for a in (TOKENS[:12], TOKENS[1:]))
        optimiser.zero_grad()
        loss = f(tokens, following)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step, f


LENGTHS = (5, 9, 5, 12, 3, 9, 7, 1, 12, 5)


def test_a_language_model_trains_as_without_jit(device: str) -> None:
    step, f = training(jit)
    got = [step(n) for n in LENGTHS]
    plain, _ = training(lambda m: m)
    expected = [plain(n) for n in LENGTHS]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert is_captured(f)
    assert len(f.captures) == 1


def test_lengths_of_a_loop_take_no_plan_and_little_work(device: str) -> None:
    step, f = training(jit)
    for n in LENGTHS:
        step(n)
    plain, _ = training(lambda m: m)
    for n in LENGTHS:
        plain(n)
    plans = cache_statistics()[1]
    new = (4, 8, 11, 2)  # lengths that were not there before
    calls = sum([counted(lambda n=n: step(n)).calls for n in new])
    assert cache_statistics()[1] == plans
    assert calls * 3 < sum([counted(lambda n=n: plain(n)).calls for n in new])


def test_several_calls_wait_for_one_backward(device: str) -> None:
    def run(f: Program) -> list[Any]:
        w = Tensor(W, requires_grad=True)
        for length, batch in PAIRS[:3]:
            f(given(length, batch, True), w).backward()
        w.grad = None
        losses = [f(given(length, batch, True), w).realize() for length, batch in PAIRS]
        sum(losses[::-1], Tensor(0.0)).backward()
        return [w.grad.numpy(), *[loss.numpy() for loss in losses]]

    def program(x: Tensor, w: Tensor) -> Tensor:
        return total(elman(x, w))

    f, plain, w = jit(program), [], Tensor(W, requires_grad=True)
    for length, batch in PAIRS:  # without jit graphs of several sizes do not go together
        loss = program(given(length, batch, True), w)
        loss.backward()
        w.grad.realize()
        plain.append(loss.numpy())
    close(run(f), [w.grad.numpy(), *plain])
    assert is_captured(f)


def test_results_go_through_further_calls(device: str) -> None:
    """A result of symbolic shape is an argument of another call, through which its gradient goes on."""

    def run(wrap: Wrap) -> list[Any]:
        f, g = wrap(lambda x, w: elman(x, w)[1]), wrap(lambda x, w: (x @ w).sigmoid())
        w, found = Tensor(W, requires_grad=True), []
        for length, batch in PAIRS:
            x = given(length, batch, True).requires_grad_()
            y = g(f(g(x, w), w) * 2, w)
            (y * x).mean().backward()
            found += [x.grad.numpy(), w.grad.numpy(), y.numpy()]
            w.grad = None
        return found

    close(run(jit), run(lambda f: f))


def test_gradients_are_added_up_and_taken_twice(device: str) -> None:
    def run(f: Program) -> list[Any]:
        w, found = Tensor(W, requires_grad=True), []
        for length, batch in PAIRS:
            loss = total(f(given(length, batch, True), w))
            loss.backward(retain_graph=True)
            loss.backward()
            found.append(w.grad.numpy())
        return found

    f = jit(elman)
    close(run(f), run(elman))
    w, x = Tensor(W, requires_grad=True), given(3, 2, True)
    loss = total(f(x, w))
    (loss * 2).backward()
    with pytest.raises(GradientError, match="a second time"):
        (loss * 3).backward()


def test_gradients_of_gradients(device: str) -> None:
    def run(f: Program) -> list[Any]:
        w, found = Tensor(W, requires_grad=True), []
        for length, batch in PAIRS:
            (g,) = an.autograd.grad(total(f(given(length, batch, True), w)), [w], create_graph=True)
            (g * g).sum().backward()
            found.append(w.grad.numpy())
            w.grad = None
        return found

    close(run(jit(no_loop)), run(no_loop))
    close(run(jit(elman)), run(elman))


def test_what_a_pending_backward_needs_is_changed_in_place(device: str) -> None:
    """A leaf's change is an error; of anything else the call keeps the values that it read."""

    def run(f: Program) -> list[Any]:
        w, scale, found = Tensor(W, requires_grad=True), Tensor([2.0]), []
        function = f(lambda x, w: elman(x * scale, w))
        for length, batch in PAIRS:
            x = given(length, batch, True)
            loss = total(function(x, w))
            scale.assign(scale + 0.5)
            x.assign(x * 0)
            loss.backward()
            found += [w.grad.numpy(), loss.numpy()]
            w.grad = None
        return found

    close(run(jit), run(lambda f: f))
    w = Tensor(W, requires_grad=True)
    f = jit(elman)
    for length, batch in PAIRS:
        total(f(given(length, batch, True), w)).backward()
    loss = total(f(given(3, 2, True), w))
    with an.no_grad():
        w.add_(1.0)
    with pytest.raises(GradientError, match="modified by an inplace operation|the leaf was changed"):
        loss.backward()


def test_state_goes_on(device: str) -> None:
    def run(wrap: Wrap) -> list[Any]:
        seen = Tensor.zeros(2)

        def program(x: Tensor, w: Tensor) -> Tensor:
            last, rows = elman(x, w)
            seen.assign(seen + rows.detach().sum())
            return last.exp().sum()

        f, w = wrap(program), Tensor(W, requires_grad=True)
        found = []
        for length, batch in PAIRS:
            loss = f(given(length, batch, True), w)
            loss.backward()
            found += [loss.numpy(), w.grad.numpy(), seen.numpy()]
            w.grad = None
        return found

    close(run(jit), run(lambda f: f))


def test_masks_are_drawn_anew_and_kept_for_the_backward(device: str) -> None:
    w = Tensor(W, requires_grad=True)
    f = jit(lambda x, w: F.dropout(x, 0.5) * w)
    masks = []
    for length in (5, 7, 5, 12, 7, 7, 5):
        y = f(Tensor(np.ones((12, 4, 4), np.float32))[: LENGTH.bind(length)], w)
        y.sum().backward()
        masks.append((y / w).round().numpy())
        np.testing.assert_allclose(w.grad.numpy(), masks[-1].sum(0))
        assert set(np.unique(masks[-1])) == {0, 2}
        w.grad = None
    assert len({m.tobytes() for m in masks}) == len(masks)
    assert is_captured(f)


def test_values_are_those_of_numpy(device: str) -> None:
    f, w = jit(no_loop), Tensor(W, requires_grad=True)
    for length, batch in PAIRS:
        x = X[:length, :batch].astype(np.float64)
        y, z = f(given(length, batch, True), w)
        (y.sum() + z).backward()
        want = np.tanh(x @ W)
        means, sums = np.exp(want).mean(0), want.sum(0)
        slope = (1 + np.exp(want) / length * sums + means) * (1 - want * want)
        close([y.numpy(), z.numpy(), w.grad.numpy()], [want, (means * sums).sum(), np.einsum("tbi,tbj->ij", x, slope)])
        w.grad = None


def test_memory_is_flat() -> None:
    step, f = training(jit)
    used = []
    for _ in range(4):
        for n in LENGTHS:
            step(n)
        gc.collect()
        used.append(get_device("cpu").memory().in_use)
    assert max(used[2:]) <= used[1]
    assert is_captured(f)


def test_a_size_that_no_argument_brings_is_not_captured(device: str) -> None:
    w = Tensor(W, requires_grad=True)
    state = {"x": given(3, 2, True).realize()}
    f = jit(lambda y: (state["x"] @ w * y).sum())
    for length in (3, 3, 3, 5, 2):
        state["x"] = given(length, 2, True).realize()
        f(Tensor([2.0])).backward()
        close([w.grad.numpy()], [np.broadcast_to(2 * X[:length, :2].sum((0, 1))[:, None], (4, 4))])
        w.grad = None
    assert "a Variable with a value that no argument brings" in f.explain()
