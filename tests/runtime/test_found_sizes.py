"""Calls of the host that find sizes: what is computed after them runs with these, eager and in every replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import settings
from anneal.errors import GradientError, JitError, ShapeError, TransformError
from anneal.runtime import HostCall, Launch, Step, cache_statistics, observed
from anneal.tensor import Tensor, Variable, host_call, jit, realize, vmap
from anneal.uop import UOp

I32 = "int32"


def nonzero(x: Tensor, name: str = "n", high: int | None = None) -> Tensor:
    """The positions of the elements of a vector that are not 0."""
    n = Variable(name, 0, x.shape[0] if high is None else high)
    return host_call(lambda a: np.flatnonzero(a).astype(np.int32), ((n,), I32), x, key="nonzero")


def sparse(seed: int, size: int = 16, density: float = 0.5) -> Any:
    r = np.random.default_rng(seed)
    return (r.integers(1, 9, size) * (r.random(size) < density)).astype(np.float32)


def test_what_follows_runs_with_the_size_that_was_found(device: str) -> None:
    a, w = sparse(0), np.arange(16, dtype=np.float32)
    x, table = Tensor(a), Tensor(w)
    steps: list[Step] = []
    places = nonzero(x * 2)
    read = table[places] * 3
    assert repr(read.shape) == "(n,)"
    with observed(steps.append):
        assert read.sum().item() == 3 * w[a != 0].sum()
    call = steps[1]
    assert [type(s) for s in steps] == [Launch, HostCall, Launch]
    assert isinstance(call, HostCall)
    assert call.found == {"n": np.count_nonzero(a)}
    np.testing.assert_array_equal(read.numpy(), 3 * w[a != 0])
    assert repr(read.shape) == f"(n={np.count_nonzero(a)},)"
    np.testing.assert_allclose(read.mean().item(), 3 * w[a != 0].mean(), rtol=1e-6)
    assert nonzero(Tensor(np.zeros(4, np.float32))).tolist() == []
    assert table[nonzero(Tensor(np.zeros(4, np.float32)))].sum().item() == 0


def test_replays_find_it_anew(device: str) -> None:
    w = np.arange(16, dtype=np.float32)
    table = Tensor(w).realize()

    @jit
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Any]:
        places = nonzero(x + 0)
        read = table[places]
        return read * 10, read.sum(), x[places].mean() * read.max(), places.shape[0]

    kept = []
    for seed in range(8):
        if seed == 3:
            _, made = cache_statistics()
        a = sparse(seed, density=0.2 + 0.1 * seed)
        there = w[a != 0]
        read, total, mixed, n = f(Tensor(a))
        assert total.item() == there.sum()
        np.testing.assert_allclose(mixed.item(), a[a != 0].mean() * there.max(), rtol=1e-6)
        if seed:
            assert isinstance(n, UOp)
            assert n.arg == ("n", 0, 16, there.size)
        kept.append((read, 10 * there))
    assert cache_statistics()[1] == made, "one plan serves every size"
    for read, want in kept:
        np.testing.assert_array_equal(read.numpy(), want)


def test_the_dense_part_has_its_gradient(device: str) -> None:
    a, w = sparse(1, 8), np.arange(8, dtype=np.float32)
    table = Tensor(w, requires_grad=True)
    (table[nonzero(Tensor(a))] ** 2).mean().backward()
    want = np.where(a != 0, 2 * w / np.count_nonzero(a), 0)
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), want, rtol=1e-6)
    table.zero_grad()
    squares = (table[nonzero(Tensor(a))] ** 2).realize()
    squares.sum().backward()
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), np.where(a != 0, 2 * w, 0), rtol=1e-6)


def test_a_captured_step_of_training_follows_it(device: str) -> None:
    w = np.linspace(-1, 1, 8).astype(np.float32)
    table = Tensor(w, requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        table.zero_grad()
        loss = (table[nonzero(x)] ** 2).sum()
        loss.backward()
        table.assign(table.detach() - 0.1 * table.grad)  # type: ignore[operator]
        return loss

    for seed in range(6):
        a = sparse(seed, 8)
        loss = step(Tensor(a)).item()
        np.testing.assert_allclose(loss, (w[a != 0] ** 2).sum(), rtol=1e-5)
        w = np.where(a != 0, w - 0.2 * w, w)
    np.testing.assert_allclose(table.numpy(), w, rtol=1e-5)


def unique(x: Tensor) -> tuple[Tensor, ...]:
    n = Variable("kinds", 1, x.shape[0] if isinstance(x.shape[0], int) else 16)

    def found(a: Any) -> Any:
        values, counts = np.unique(a, return_counts=True)
        return values, counts.astype(np.int32)

    return host_call(found, [((n,), x.dtype), ((n,), I32)], x, key="unique")


def test_a_call_takes_what_another_sized(device: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positive = x[nonzero(x)]  # (n,)
        values, counts = unique(positive)  # (kinds,) each
        back = host_call(lambda v, a: np.stack([a, a]) + v.sum(), ((2, positive.shape[0]), "float32"), values, positive)
        return values * counts, back * 2, Tensor.arange(positive.shape[0])

    captured = jit(program)
    for seed in range(6):
        a = sparse(seed)
        b = a[a != 0]
        v, c = np.unique(b, return_counts=True)
        for f in (program, captured):
            products, back, counter = f(Tensor(a))
            realize([products, back, counter])  # the counter alone would not know its size
            np.testing.assert_array_equal(products.numpy(), v * c)
            np.testing.assert_array_equal(back.numpy(), 2 * (np.stack([b, b]) + v.sum()))
            assert counter.tolist() == list(range(b.size))


def test_sizes_that_no_source_leads_to_wait_for_their_call(device: str) -> None:
    """`arange(n)` has no source, and what calls the host with it comes after the call that finds n."""
    x = Tensor(sparse(2))
    n = nonzero(x).shape[0]
    squares = host_call(lambda a: a * a, ((n,), I32), Tensor.arange(n) + 1)
    total = squares.sum() + nonzero(x).sum()
    there = np.flatnonzero(sparse(2))
    assert total.item() == sum((i + 1) ** 2 for i in range(there.size)) + there.sum()
    with pytest.raises(ShapeError, match="Variable n has no value here"):
        Tensor.arange(n).realize()


def test_debug_2_shows_a_call_with_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    places = nonzero(Tensor(np.array([0, 1, 2], np.float32), device="cpu").realize())
    with settings.override(debug=2):
        places.realize()
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"anneal: host_call of nonzero: \d+\.\d ms, n is 2", line)


def test_two_sizes_and_one_for_two_results(device: str) -> None:
    def split(a: Any) -> Any:
        return [a[a > 4], np.stack([np.flatnonzero(a <= 4)] * 2).astype(np.int32)]

    n, m = Variable("large", 0, 16), Variable("small", 0, 16)
    for program in (call_split := lambda x: host_call(split, [((n,), "float32"), ((2, m), I32)], x), jit(call_split)):
        for seed in range(4):
            a = sparse(seed)
            large, small = program(Tensor(a))  # type: ignore[operator]
            np.testing.assert_array_equal(large.numpy(), a[a > 4])
            np.testing.assert_array_equal(small.numpy(), [np.flatnonzero(a <= 4)] * 2)


def test_a_lazy_tensor_with_such_a_size_is_an_argument(device: str) -> None:
    total = jit(lambda x: (x * 2).sum() + x.shape[0])
    for seed in range(5):
        a = sparse(seed)
        assert total(nonzero(Tensor(a))).item() == 2 * np.flatnonzero(a).sum() + np.count_nonzero(a)


def test_a_call_that_is_made_again_finds_the_same(device: str) -> None:
    f = jit(lambda x: x[nonzero(x)].sum().realize() * x[nonzero(x)].max().realize())
    for seed in range(5):
        a = sparse(seed)
        assert f(Tensor(a)).item() == a.sum() * a.max()


def test_an_error_leaves_the_capture_as_it_was(device: str) -> None:
    f = jit(lambda x: Tensor.arange(16)[nonzero(x, high=4)].sum())
    for seed, count in enumerate((2, 3, 4, 5, 1, 4)):
        a = np.zeros(16, np.float32)
        a[np.random.default_rng(seed).permutation(16)[:count]] = 1
        if count > 4:
            with pytest.raises(ShapeError, match="result 0 has 5 along axis 0, and Variable n runs from 0 to 4"):
                f(Tensor(a))
        else:
            assert f(Tensor(a)).item() == np.flatnonzero(a).sum()


def both(x: Tensor) -> Tensor:
    return (nonzero(x).sum() + nonzero(x[1:], high=4).sum()).realize()


def needs_itself(x: Tensor) -> Tensor:
    n = Variable("n", 0, 4)
    found = host_call(lambda a: a, ((n,), I32), Tensor.arange(n).sum().reshape(1))
    return found.realize()


def beside_an_argument(x: Tensor) -> Any:
    n = Variable("n", 0, 4)
    f = jit(lambda y: y.sum() + nonzero(x).sum().realize())
    return [f(x[: n.bind(2)]) for _ in range(2)]


def found_twice(x: Tensor) -> Any:
    """Each realize has one value of it; a replay would take the second for both."""
    f = jit(lambda y: nonzero(y).sum().realize() + nonzero(y[1:], high=4).sum().realize())
    return [f(x) for _ in range(2)]


def bound_beside_it(x: Tensor) -> Any:
    two = Variable("n", 0, 4).bind(2)
    f = jit(lambda y: y[nonzero(y)].sum().realize() + y[:two].sum().realize())
    return [f(x) for _ in range(2)]


def assigned(x: Tensor) -> Any:
    n = Variable("n", 0, 4)
    state = Tensor(np.ones(4, np.float32))[: n.bind(4)].realize()
    return state.assign(x[nonzero(x)])


def kept_outside(x: Tensor) -> Any:
    kept = []
    f = jit(lambda y: kept.append(x[nonzero(y)].realize()) or y * 1)  # type: ignore[func-returns-value]
    return [f(x) for _ in range(3)]


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (both, ShapeError, "host_call of nonzero: Variable n is [23], and another call of this program found [23]"),
        (needs_itself, ShapeError, "a call that finds one of the Variables n also needs it"),
        (lambda x: host_call(np.sort, ((Variable("n", 0, 2) * 2,), "float32"), x), ShapeError, "a size is n alone"),
        (lambda x: host_call(np.sort, ((Variable("n", 0, 2),), "float32"), x).realize(), ShapeError, "result 0 has 4"),
        (
            lambda x: host_call(lambda a: [a, a[1:]], [((Variable("n", 0, 9),), "float32")] * 2, x)[0].realize(),
            ShapeError,
            "result 1 has 3 along axis 0, where Variable n is 4",
        ),
        (
            beside_an_argument,
            JitError,
            "finds Variable n inside a jit function, and it is an argument of the jit function",
        ),
        (found_twice, JitError, "finds Variable n inside a jit function, and another call finds it as well"),
        (bound_beside_it, JitError, "Variable n is found by a call of a jit function and is also bound to 2"),
        (assigned, ShapeError, r"shape \(n=4,\) cannot take values of shape \(n,\)"),
        (kept_outside, JitError, r"assigned values of symbolic shape \(n=3,\) to a tensor that outlives the call"),
        (lambda x: vmap(nonzero)(x.reshape(2, 2)), TransformError, "finds Variable n, which differs between examples"),
        (lambda x: unique(x.requires_grad_())[0].sum().backward(), GradientError, "no gradient for unique"),
    ],
)
def test_what_cannot_be_is_said(
    device: str, program: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    x = Tensor(np.array([1, 0, 2, 3], np.float32))
    with pytest.raises(error, match=message):
        program(x)
    assert nonzero(x).tolist() == [0, 2, 3]
