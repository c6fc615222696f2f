"""Loops whose turns change parts of what they carry, and carry it on in other places: as the same turns unrolled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.tensor import Tensor, jit

SIZE = 300  # enough for updates in place
Carry = tuple[Tensor, ...]


class Turn:
    """A random turn: steps that change one of several tensors, the order in which they are carried on, and a row."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        k = self.width = rng.choice([1, 2, 2, 3])
        self.count = rng.choice([1, 2, 3, 4, 7])
        self.steps = [
            (rng.choice(STEPS), rng.randrange(k), rng.randrange(k), rng.randrange(5), rng.randrange(5))
            for _ in range(rng.randrange(1, 6))
        ]
        self.order = [rng.randrange(k) for _ in range(k)] if rng.random() < 0.6 else list(range(k))
        self.row = rng.randrange(k)
        self.loop = rng.choice(list(LOOPS))

    def __call__(self, i: Any, carry: Carry) -> tuple[Carry, Tensor]:
        c = list(carry)
        for change, a, b, to, at in self.steps:
            c[a] = change(c[a].clone(), c[b], i + to, i + at)
        return tuple([c[j] for j in self.order]), c[self.row].sum()

    def unrolled(self, *carry: Tensor) -> Carry:
        rows = []
        for i in range(self.count):
            carry, row = self(i, carry)
            rows.append(row)
        return (*carry, *([Tensor.stack(rows)] if self.loop == "scan" else []))

    def looped(self, *carry: Tensor) -> Carry:
        return LOOPS[self.loop](self, carry)


def one_element(x: Tensor, y: Tensor, to: Any, at: Any) -> Tensor:
    x[to] = y[at]
    return x


def own_element(x: Tensor, y: Tensor, to: Any, at: Any) -> Tensor:
    x[to] = x[at] * 2.0
    return x


def a_sum(x: Tensor, y: Tensor, to: Any, at: Any) -> Tensor:
    x[to] = y.sum() * 0.01
    return x


def a_part(x: Tensor, y: Tensor, to: Any, at: Any) -> Tensor:
    x[3:8] = y[10:15]
    return x


STEPS: list[Callable[[Tensor, Tensor, Any, Any], Tensor]] = [
    one_element, own_element, a_sum, a_part, lambda x, y, to, at: x + y * 0.5, lambda x, y, to, at: y,
]  # fmt: skip


def scanned(turn: Turn, carry: Carry) -> Carry:
    last, rows = an.scan(lambda c, i: turn(i, c), carry, an.arange(turn.count, device=carry[0].device))
    return *last, rows


def counted(turn: Turn, carry: Carry) -> Carry:
    found: Carry = an.fori_loop(0, turn.count, lambda i, c: turn(i, c)[0], carry)
    return found


def while_counted(turn: Turn, carry: Carry) -> Carry:
    first = (an.tensor(0, device=carry[0].device), *carry)
    found: Carry = an.while_loop(lambda c: c[0] < turn.count, lambda c: (c[0] + 1, *turn(c[0], c[1:])[0]), first)
    return found[1:]


LOOPS: dict[str, Callable[[Turn, Carry], Carry]] = {"scan": scanned, "fori_loop": counted, "while_loop": while_counted}


def start(turn: Turn, seed: int, device: str) -> Carry:
    rng = np.random.default_rng(seed)
    return tuple([Tensor(rng.standard_normal(SIZE).astype(np.float32), device=device) for _ in range(turn.width)])


def near(got: Carry, wanted: Carry) -> None:
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-3, 1e-4)


@pytest.mark.parametrize("seed", range(80))
def test_values(seed: int) -> None:
    turn = Turn(seed)
    given = start(turn, seed, "cpu")
    before = [x.numpy() for x in given]
    wanted = turn.unrolled(*given)
    near(turn.looped(*given), wanted)
    captured = jit(turn.looped)
    for _ in range(3):
        near(captured(*given), wanted)
    for x, old in zip(given, before, strict=True):
        assert np.array_equal(x.numpy(), old)


@pytest.mark.parametrize("seed", range(6))
def test_values_on_webgpu(seed: int, webgpu: Any) -> None:
    turn = Turn(seed)
    given = start(turn, seed, "webgpu")
    near(turn.looped(*given), turn.unrolled(*given))


@pytest.mark.parametrize("seed", range(24))
def test_gradients(seed: int) -> None:
    turn = Turn(1000 + seed)
    if turn.loop == "while_loop":
        turn.loop = "fori_loop"
    found = []
    for f in (turn.looped, turn.unrolled):
        given = [x.requires_grad_() for x in start(turn, seed, "cpu")]
        sum([(y * y).sum() for y in f(*given)]).backward()  # type: ignore[union-attr]
        found.append(tuple([x.grad if x.grad is not None else x.detach() * 0.0 for x in given]))
    near(*found)
