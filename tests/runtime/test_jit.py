"""jit: replays compute what the function would have, whatever happens to tensors between the calls."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

from anneal import nn
from anneal.errors import JitError
from anneal.tensor import Tensor, jit


def numbers(count: int = 6) -> list[Tensor]:
    return [Tensor([float(i)]) for i in range(count)]


def test_state_is_carried_from_call_to_call() -> None:
    total = Tensor([0.0])

    @jit
    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 10

    assert [add(x).item() for x in numbers()] == [0, 10, 30, 60, 100, 150]
    assert total.item() == 15


def test_state_that_is_looked_at_between_calls() -> None:
    total = Tensor([0.0])

    @jit
    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 10

    seen = []
    for x in numbers():
        add(x)
        seen.append(total.item())
    assert seen == [0, 1, 3, 6, 10, 15]


def test_what_is_assigned_but_never_read_is_computed_too() -> None:
    last = Tensor([0.0])

    @jit
    def remember(x: Tensor) -> Tensor:
        last.assign(x * 2)
        return x + 1

    assert [(remember(x).item(), last.item()) for x in numbers()] == [(i + 1, 2 * i) for i in range(6)]


@pytest.mark.parametrize("calls_before", range(5))
def test_an_assignment_from_outside_is_seen_once(calls_before: int) -> None:
    weight = Tensor([1.0])

    @jit
    def scale(x: Tensor) -> Tensor:
        return x * weight

    one = Tensor([1.0])
    for _ in range(calls_before):
        assert scale(one).item() == 1
    weight.assign(weight * 3)
    assert [scale(one).item() for _ in range(4)] == [3, 3, 3, 3]
    assert weight.item() == 3


@pytest.mark.parametrize("calls_before", range(5))
def test_earlier_results_keep_their_values(calls_before: int) -> None:
    total = Tensor([0.0])

    @jit
    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 1

    one = Tensor([1.0])
    for _ in range(calls_before):
        add(one)
    kept, copy, view = add(one), total + 0, total.reshape(1, 1)
    for _ in range(4):
        add(one)
    assert (kept.item(), copy.item()) == (calls_before + 1,) * 2
    assert (view.item(), total.item()) == (calls_before + 5,) * 2


def test_other_shapes_and_values_are_captured_on_their_own() -> None:
    @jit
    def power(x: Tensor, n: int) -> Tensor:
        return x**n

    for _ in range(4):
        for size in (2, 3):
            for n in (2, 3):
                x = np.arange(1, size + 1, dtype=np.float32)
                assert power(Tensor(x), n).tolist() == (x**n).tolist()


@pytest.mark.parametrize(("function", "text"), [
    (lambda x: x + Tensor(np.random.default_rng().random(1)), "made from host data inside a jit"),
    (lambda x: x * x.item(), "inside a jit function would be frozen"),
])  # fmt: skip
def test_what_would_be_frozen_is_an_error(function: object, text: str) -> None:
    step = jit(function)  # type: ignore[arg-type]

    def run() -> None:
        for x in numbers(3):
            step(x)

    with pytest.raises(JitError, match=text):
        run()


def test_results_that_are_kept_keep_their_values_whatever_is_replaced_meanwhile(device: str) -> None:
    """Runs are prepared ahead, and bound to the memory of their results: also across tensors that are assigned anew."""
    rng = np.random.default_rng(0)
    weight, state = Tensor([1.0, 2.0]), Tensor([0.0, 0.0])

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        half = (x * weight).realize()  # a batch of its own
        state.assign(state + half)
        return half + 1, (state * 2).sum()

    kept: list[tuple[Tensor, npt.NDArray[np.float32]]] = []
    w, total = np.array([1.0, 2.0]), np.zeros(2)
    for i in range(60):
        if rng.random() < 0.15:
            w = rng.integers(1, 5, 2).astype(np.float32)
            weight.assign(Tensor(w))
        x = rng.integers(0, 9, 2).astype(np.float32)
        first, second = step(Tensor(x))
        total = total + x * w
        if rng.random() < 0.6:
            kept += [(first, x * w + 1), (second, np.array(2 * total.sum()))]
        if rng.random() < 0.2:
            kept = kept[len(kept) // 2 :]
        if i % 20 == 19:
            for got, want in kept:
                np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(state.numpy(), total)


def test_repr_names_what_is_captured() -> None:
    def twice(x: Tensor) -> Tensor:
        return x * 2

    f = jit(twice)
    assert re.fullmatch(r"<jit function .*twice \(.*test_jit.py:\d+\), 0 captures>", repr(f))
    f(Tensor([1.0]))
    f(Tensor([1.0]))
    assert repr(f).endswith("1 capture>")
    assert repr(jit(nn.Linear(2, 3))) == "jit(Linear(in_features=2, out_features=3, bias=True))"


def test_an_array_as_a_result_is_an_error_that_says_what_to_return() -> None:
    with pytest.raises(JitError, match=r"returns tensors, not NumPy arrays: return Tensor\(array\)"):
        jit(lambda x: [x * 2, np.ones(3)])(Tensor.ones(3))


def test_new_values_of_state_are_read_while_old_ones_are_still_needed() -> None:
    """They wait aside then, and a launch in between reads them there."""
    w = Tensor([1.0]).realize()

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        old = w * 2
        w.assign(w + 1)
        w.realize()
        y = (w * x).realize()
        return y, (old * x + 1).realize()

    for n in range(5):
        y, z = step(Tensor([10.0]))
        assert (y.item(), z.item(), w.item()) == (10.0 * (n + 2), 20.0 * (n + 1) + 1, n + 2.0)
