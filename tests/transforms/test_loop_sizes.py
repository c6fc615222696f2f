"""Loops of symbolic sizes: one plan, and one capture, for all numbers of turns and of examples, on both devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import Variable, nn
from anneal.errors import ShapeError
from anneal.runtime import here
from anneal.tensor import Tensor
from tests.tiers import on_devices

LENGTH, BATCH = Variable("length", 0, 16), Variable("batch", 1, 8)
PAIRS = ((1, 1), (3, 7), (5, 2), (16, 8), (0, 2), (5, 3))
X = np.random.default_rng(0).standard_normal((16, 8, 4)).astype(np.float32) * 0.5
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32) * 0.3

# of x (length, batch, 4) and w (4, 4)
Program = Callable[[Tensor, Tensor], Any]


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


def cumulative_sum(x: Tensor, w: Tensor) -> Any:
    return an.scan(lambda total, row: (total + row, total), an.zeros(x.shape[1], 4), x * w.sum())[1]


def power(x: Tensor, w: Tensor) -> Any:
    return an.fori_loop(0, x.shape[0], lambda i, m: m @ w + i * 0.1, an.ones(x.shape[1], 4))


def between_sizes(x: Tensor, w: Tensor) -> Any:
    return an.fori_loop(x.shape[1], x.shape[0], lambda i, m: m @ w + i * 0.1, w)


def of_given_length(x: Tensor, w: Tensor) -> Any:
    return an.scan(lambda m, _: (m @ w, m.sum(0)), w, length=2 * x.shape[0] + 1)


def nested_over_examples(x: Tensor, w: Tensor) -> Any:
    def outer(h: Tensor, row: Tensor) -> Any:
        last, rows = an.scan(lambda c, r: (c * 0.5 + r @ w, c), h.sum(0), row * h)
        return h + last, rows.sum(0)

    return an.scan(outer, an.ones(x.shape[1], 4), x)


def nested_over_time(x: Tensor, w: Tensor) -> Any:
    def outer(h: Tensor, rows: Tensor) -> Any:
        last, each = an.scan(lambda c, row: ((c @ w + row).tanh(), c), h, rows)
        return last, each.sum(0)

    return an.scan(outer, an.ones(4), x.permute(1, 0, 2))


def closed_over(x: Tensor, w: Tensor) -> Any:
    y = x.sum(0) @ w
    return an.fori_loop(0, 3, lambda i, h: h * 0.5 + (y * h).sum() + i * y, y)


def choice(x: Tensor, w: Tensor) -> Any:
    return an.cond(x.sum() > 0, lambda a: (a @ w).sum(0), lambda a: a.sum(0) * w.sum(), x)


def choice_in_a_loop(x: Tensor, w: Tensor) -> Any:
    def turn(h: Tensor, row: Tensor) -> Any:
        return an.cond(row.sum() > 0, lambda h, r: h @ w + r, lambda h, r: h * 0.5 - r, h, row), h

    return an.scan(turn, an.ones(x.shape[1], 4), x)


def until(x: Tensor, w: Tensor) -> Any:
    total = x.sum(0)
    return an.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 0.5 + total @ w), (0, total))[1]


def looked_up(x: Tensor, w: Tensor) -> Any:
    def turn(h: Tensor, row: Tensor) -> Any:
        h = (h + w[(row.sum(1) > 0).int()] * row).tanh()
        return h, h

    return an.scan(turn, an.ones(x.shape[1], 4), x)


def many_weights(x: Tensor, w: Tensor) -> Any:
    return an.vmap(lambda each: elman(x, each)[1])(an.stack([w, w * 2]))


def many_examples(x: Tensor, w: Tensor) -> Any:
    alone = lambda row: an.scan(lambda h, r: ((h @ w + r).tanh(), h), an.zeros(4), row)
    return an.vmap(alone, in_axes=1)(x)


def many_choices(x: Tensor, w: Tensor) -> Any:
    return an.vmap(lambda r: an.cond(r.sum() > 0, lambda r: r @ w, lambda r: r * 2, r), in_axes=1)(x.cumsum(0)[-1:])


PROGRAMS: list[Program] = [
    elman,
    gated_from_the_end,
    cumulative_sum,
    power,
    between_sizes,
    of_given_length,
    nested_over_examples,
    nested_over_time,
    closed_over,
    choice,
    choice_in_a_loop,
    until,
    looked_up,
    many_weights,
    many_examples,
]


def in_all_modes(f: Program) -> Program:
    """The values of a program, its gradients (a `while_loop` has none) and its tangents."""

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return sum([t.sum() * (n + 1) for n, t in enumerate(an.tree_leaves(f(x, w)))], Tensor(0.0))

    def each(x: Tensor, w: Tensor) -> Any:
        slopes = () if f is until else an.grad(loss, (0, 1))(x, w)
        return f(x, w), slopes, an.jvp(lambda w: f(x, w), (w,), (w * 2,))[1]

    return each


def part(length: int, batch: int) -> Any:
    """The array of these sizes, with numbers behind its ends that must not be read."""
    x = np.full_like(X, np.nan)
    x[:length, :batch] = X[:length, :batch]
    return x


@cache
def with_ints(f: Program, length: int, batch: int) -> Any:
    """The results with sizes that are ints, as arrays: of the cpu."""
    device = an.default_device()
    an.set_default_device("cpu")
    try:
        return an.tree_map(Tensor.numpy, in_all_modes(f)(Tensor(X[:length, :batch]), Tensor(W)))
    finally:
        an.set_default_device(device)


def near(found: Any, wanted: Any) -> None:
    for a, b in zip(an.tree_leaves(found), an.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(*[v.numpy() if isinstance(v, Tensor) else v for v in (a, b)], 2e-4, 2e-5)


@pytest.mark.parametrize(("device", "f"), on_devices(PROGRAMS, test=2, ci=2), indirect=["device"])
def test_one_capture_serves_all_sizes(device: str, f: Program) -> None:
    g = in_all_modes(f)
    replayed = an.jit(lambda x, w, n, b: g(x[:n, :b], w))
    for place, (length, batch) in enumerate(PAIRS):
        wanted = with_ints(f, length, batch)
        before = here.context.plans_made
        given = Tensor(part(length, batch)), Tensor(W)
        near(replayed(*given, LENGTH.bind(length), BATCH.bind(batch)), wanted)
        assert place < 2 or here.context.plans_made == before
    assert len(replayed.captures) == 1, replayed.explain()


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_plan_serves_all_sizes_without_jit(f: Program) -> None:
    g = in_all_modes(f)
    made = []
    for length, batch in PAIRS:
        before = here.context.plans_made
        found = g(Tensor(part(length, batch))[: LENGTH.bind(length), : BATCH.bind(batch)], Tensor(W))
        an.realize(an.tree_leaves(found))
        made.append(here.context.plans_made - before)
        near(found, with_ints(f, length, batch))
    assert made[1:] == [0] * len(made[1:])


def test_values_are_those_of_numpy(device: str) -> None:
    for length, batch in PAIRS:
        last, rows = elman(Tensor(part(length, batch))[: LENGTH.bind(length), : BATCH.bind(batch)], Tensor(W))
        h, wanted = np.zeros((batch, 4), np.float32), []
        for row in X[:length, :batch]:
            h = np.tanh(h @ W + row)
            wanted.append(2 * h)
        np.testing.assert_allclose(last.numpy(), h, 1e-5, 1e-5)
        np.testing.assert_allclose(rows.numpy(), np.reshape(wanted, (length, batch, 4)), 1e-5, 1e-5)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 40])
def test_turns_that_are_bound_together_are_those_of_the_length(length: int, device: str) -> None:
    """More turns than are submitted at once, of odd and even numbers, one after another in one capture."""
    n = Variable("n", 1, 70)
    counted = an.jit(lambda k: an.scan(lambda c, _: (c + 1, c), 0, length=k))
    for k in (length, length + 1, 70, length):
        last, rows = counted(n.bind(k))
        assert (last.item(), rows.tolist()) == (k, list(range(k)))


def test_a_loop_runs_over_a_size_that_a_call_finds(device: str) -> None:
    n = Variable("found", 0, 16)

    def positive(x: Tensor) -> Any:
        kept = an.host_call(lambda a: a[a > 0], ((n,), an.float32), x)
        return an.scan(lambda c, v: (c + v, c * v), 0.0, kept)

    replayed = an.jit(positive)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(16).astype(np.float32)
        kept = x[x > 0]
        for f in (positive, replayed):
            last, rows = f(Tensor(x))
            np.testing.assert_allclose(last.numpy(), kept.sum(), 1e-5)
            np.testing.assert_allclose(rows.numpy(), (kept.cumsum() - kept) * kept, 1e-5, 1e-5)


def test_a_body_calls_the_host_with_symbolic_sizes(device: str) -> None:
    def turn(h: Tensor, row: Tensor) -> Any:
        h = an.host_call(lambda a, b: a * 0.5 + b, (h.shape, an.float32), h, row)
        return h, h.sum()

    replayed = an.jit(lambda x, n, b: an.scan(turn, an.zeros(b, 4), x[:n, :b]))
    for length, batch in PAIRS:
        last, rows = replayed(Tensor(part(length, batch)), LENGTH.bind(length), BATCH.bind(batch))
        h = np.zeros((batch, 4), np.float32)
        for k, row in enumerate(X[:length, :batch]):
            h = h * np.float32(0.5) + row
            np.testing.assert_allclose(rows.numpy()[k], h.sum(), 1e-4, 1e-5)
        np.testing.assert_allclose(last.numpy(), h, 1e-5, 1e-5)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_layers_run_over_a_symbolic_length(kind: Any, both: bool) -> None:
    layer = kind(4, 3, bidirectional=both, num_layers=2)
    weights = list(layer.parameters())

    def step(x: Tensor) -> Any:
        out, last = layer(x)
        loss = (out * out).sum()
        loss.backward()
        slopes = [w.grad for w in weights]
        for w in weights:
            w.grad = None
        return out.detach(), [t.detach() for t in an.tree_leaves(last)], slopes

    replayed = an.jit(lambda x, n, b: step(x[:n, :b]))
    for length, batch in ((1, 1), (3, 7), (16, 2)):
        found = replayed(Tensor(part(length, batch)), LENGTH.bind(length), BATCH.bind(batch))
        near(found, step(Tensor(X[:length, :batch])))
    assert len(replayed.captures) == 1, replayed.explain()


# -- what is refused --------------------------------------------------------------------------------------------------


def test_lengths_that_differ_are_named() -> None:
    x = Tensor(X)
    n, m = LENGTH.bind(3), Variable("m", 0, 16).bind(3)
    add = lambda c, v: (c + v[0].sum(), c)
    with pytest.raises(ShapeError, match=r"differ in number: xs\[0\] has length=3 .*, xs\[1\] has m=3"):
        an.scan(add, 0.0, (x[:n], x[:m]))
    with pytest.raises(ShapeError, match=r"length is 3, but xs has length=3"):
        an.scan(add, 0.0, x[:n], 3)
    with pytest.raises(ShapeError, match=r"length is length=3 - 1, and cannot be negative"):
        an.scan(lambda c, _: (c, c), 0.0, length=n - 1)


def test_turns_of_a_symbolic_number_are_not_written_out() -> None:
    x = Tensor(X)[: LENGTH.bind(3)]
    add = lambda c, v: (c + v.sum(), c)
    with pytest.raises(ShapeError, match=r"scan: length=3 turns cannot be written out .* give a length that is an int"):
        an.scan(add, 0.0, x, unroll=True)
    near(an.scan(add, 0.0, x, unroll=4)[0], an.scan(add, 0.0, Tensor(X[:3]))[0])


def test_a_variable_has_one_value_in_a_loop() -> None:
    x = Tensor(X)[: LENGTH.bind(3)]
    other = Tensor(X)[: LENGTH.bind(4)].sum(0)
    with pytest.raises(ShapeError, match="Variable length has two values"):
        an.scan(lambda c, v: (c + v + other, c), other, x)[0].numpy()
    with pytest.raises(ShapeError, match="Variable length has no value here"):
        an.scan(lambda c, v: (c + v, c), an.zeros(8, 4), Tensor(X)[:LENGTH])[0].numpy()


def test_a_carry_keeps_its_symbolic_shape() -> None:
    x = Tensor(X)[: LENGTH.bind(3)]
    with pytest.raises(ShapeError, match=r"the body takes it, and of shape"):
        an.scan(lambda c, v: (c[:0], None), Tensor(X)[: LENGTH.bind(3)], x)
