"""What a turn reads of a table, and what it writes into one: the work of a row, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.runtime import turns
from anneal.tensor import Tensor

TURNS, ROWS, WIDTH = 5, 40, 4
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
WORDS = np.array([[3, 7], [3, 3], [-1, 0], [39, 7], [8, 9]], np.int32)

Turn = Callable[[Tensor, Tensor, Any, Tensor], Tensor]  # of the table, what is carried, the turn's number, two words


def by_scan(turn: Turn, table: Tensor, h: Tensor, words: Tensor) -> Tensor:
    numbers = an.arange(TURNS).int()
    last, rows = an.scan(lambda h, s: ((new := turn(table, h, *s)), new), h, (numbers, words))
    return last.sum() + (rows * rows).sum()


def by_hand(turn: Turn, table: Tensor, h: Tensor, words: Tensor) -> Tensor:
    total = Tensor(0.0)
    for n in range(TURNS):
        h = turn(table, h, Tensor(n), words[n])
        total = total + (h * h).sum()
    return h.sum() + total


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The shapes of what loops carry that are made ready from here on."""
    found: list[tuple[Any, ...]] = []
    prepare = turns._BoundLoop._prepare

    def preparing(self: Any) -> None:
        found.extend(shape for shape, _ in self.loop.results[: self.loop.carried])
        prepare(self)

    monkeypatch.setattr(turns._BoundLoop, "_prepare", preparing)
    return found


READS: dict[str, Turn] = {
    "rows at words": lambda t, h, n, w: (h + t[w]).tanh(),
    "a row at a word": lambda t, h, n, w: (h + t[w[0]]).tanh(),
    "the row of the turn": lambda t, h, n, w: (h * t[n]).tanh(),
    "a column at a word": lambda t, h, n, w: (h + t[:WIDTH, w[1] % WIDTH]).tanh() * t[5],
    "rows of its two halves": lambda t, h, n, w: (h + t.reshape(2, 20, WIDTH)[1, w % 20]).tanh(),
    "a row, and a product with all": lambda t, h, n, w: (h + t[w] + ((h @ t.T).tanh() * 0.1) @ t).tanh(),
    "rows that are always the same": lambda t, h, n, w: (h * t[1] + t[2:4]).tanh() + t[6].sum(),
    "rows in half precision": lambda t, h, n, w: (h + t.half()[w].float()).tanh(),
}


@pytest.mark.parametrize("read", READS)
def test_a_gradient_of_what_a_turn_reads_is_put_into_the_table_once(
    read: str, device: str, carried: list[tuple[Any, ...]]
) -> None:
    table, h, words = Tensor(TABLE), an.ones(2, WIDTH), Tensor(WORDS)
    slope = an.grad(lambda t, h: by_scan(READS[read], t, h, words), (0, 1))
    found = [g.numpy() for g in slope(table, h)]
    assert carried
    assert all(np.prod(shape) < TABLE.size for shape in carried), carried
    wanted = an.grad(lambda t, h: by_hand(READS[read], t, h, words), (0, 1))(table, h)
    rough = 2e-3 if "half" in read else 2e-5
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rough, rough)


@pytest.mark.parametrize("read", READS)
def test_such_gradients_have_derivatives_and_are_made_for_many_examples(read: str) -> None:
    table, h, words = Tensor(TABLE), an.ones(3, 2, WIDTH) * Tensor([[[0.5]], [[1.0]], [[2.0]]]), Tensor(WORDS)
    several = Tensor(np.stack([WORDS, WORDS[::-1], WORDS]))
    found = []
    for run in (by_scan, by_hand):
        slope = an.grad(lambda t, h, w, run=run: run(READS[read], t, h, w))
        many = an.vmap(slope, (None, 0, 0))(table, h, several)
        tables = an.vmap(slope, (0, None, None))(an.stack([table, table * 2]), h[0], words)
        second = an.jvp(lambda t, slope=slope: slope(t, h[0], words), (table,), (table * 0.5,))[1]
        found.append([v.numpy() for v in (many, tables, second)])
    rough = 5e-2 if "half" in read else 2e-4
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rough, rough)


def test_a_weight_of_two_products_has_one_gradient_after_the_loop(carried: list[tuple[Any, ...]]) -> None:
    w = Tensor(RNG.standard_normal((12, 12)).astype(np.float32) * 0.2)

    def turn(w: Tensor, h: Tensor, n: Tensor, words: Tensor) -> Tensor:
        return (h @ w + h.tanh() @ w.T + w[0]).tanh()

    found, wanted = [
        an.grad(lambda w, run=run: run(turn, w, an.ones(2, 12), Tensor(WORDS)))(w).numpy() for run in (by_scan, by_hand)
    ]
    np.testing.assert_allclose(found, wanted, 2e-5, 2e-5)
    assert all(np.prod(shape) < 144 for shape in carried), carried
