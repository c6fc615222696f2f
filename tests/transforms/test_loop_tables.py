"""Tables that turns of a loop read from and write into: the work is that of a row, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.runtime import turns
from anneal.tensor import Tensor

TURNS, ROWS, WIDTH = 5, 80, 4
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
WORDS = np.array([[3, 7], [3, 3], [-1, 0], [79, 7], [8, 9]], np.int32)

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
    "rows of its two halves": lambda t, h, n, w: (h + t.reshape(2, 40, WIDTH)[1, w % 40]).tanh(),
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


# -- what a turn writes into what it carries --------------------------------------------------------------------------

Write = Callable[[Tensor, Tensor, Tensor, Tensor], Any]  # of what is carried, the turn's number, two words, a row


def put(c: Tensor, index: Any, value: Any) -> Tensor:
    c = c.clone()
    c[index] = value
    return c


def twice(c: Tensor, n: Tensor, w: Tensor, x: Tensor) -> Tensor:
    return put(put(c, n, x + c[w[0]]), w[1], x * c[n + 1])


def exchanged(c: Tensor, n: Tensor, w: Tensor, x: Tensor) -> Tensor:
    a, b = c[n], c[w[0]]
    return put(put(c, n, b), w[0], a)


WRITES: dict[str, Write] = {
    "the row of the turn": lambda c, n, w, x: put(c, n, x),
    "a row at a word, which may be none": lambda c, n, w, x: put(c, w[0] + 3, x * 2),
    "a row that was there": lambda c, n, w, x: put(c, w[0], c[w[0]] * 0.5 + x),
    "a row made of the one before": lambda c, n, w, x: put(c, n + 1, (c[n] + x).tanh()),
    "a column": lambda c, n, w, x: put(c, (slice(None), w[1] % WIDTH), c[:, 0] * x[0]),
    "an element": lambda c, n, w, x: put(c, (w[0] % ROWS, n % WIDTH), x[0]),
    "a row by index_put": lambda c, n, w, x: c.index_put((w[1:],), x.reshape(1, WIDTH)),
    "a row by index_copy": lambda c, n, w, x: c.index_copy(0, w[1:] % ROWS, x.reshape(1, WIDTH)),
    "always the same row": lambda c, n, w, x: put(c, 3, x + c[2]),
    "always the same part": lambda c, n, w, x: put(c, (slice(1, 3), slice(2)), x[:2] + c[4:6, 2:]),
    "a part that is moved inside": lambda c, n, w, x: c.update_slice(x.reshape(1, WIDTH)[:, :2] + 1, (w[0], n)),
    "two rows": twice,
    "two rows that take each other's place": exchanged,
    "a row, which is read then": lambda c, n, w, x: put(d := put(c, w[0], x), w[1], d[n] * 2),
}
COPIED = ("a row, which is read then",)


def writing(write: Write, c: Tensor, words: Tensor, xs: Tensor, looped: bool) -> Tensor:
    if looped:
        return an.scan(lambda c, s: (write(c, *s), None), c, (an.arange(TURNS).int(), words, xs))[0]
    for n in range(TURNS):
        c = write(c, Tensor(n), words[n], xs[n])
    return c


def given() -> list[Tensor]:
    return [Tensor(TABLE * 0.5), Tensor(WORDS), Tensor(TABLE[10 : 10 + TURNS] * 0.7)]


@pytest.mark.parametrize("write", WRITES)
def test_a_turn_writes_into_the_memory_that_it_carries(
    write: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs: list[Any] = []
    prepare = turns._BoundLoop._prepare
    monkeypatch.setattr(turns._BoundLoop, "_prepare", lambda self: (prepare(self), pairs.append(self.pairs))[0])
    found, wanted = [writing(WRITES[write], *given(), looped).numpy() for looped in (True, False)]
    np.testing.assert_allclose(found, wanted, 1e-6, 1e-6)
    ((_, first), (_, second)) = pairs[-1]
    assert (first is second) is (write not in COPIED)


@pytest.mark.parametrize("write", WRITES)
def test_what_turns_write_has_gradients_tangents_and_many_examples(write: str) -> None:
    results = []
    for looped in (True, False):
        f = lambda c, w, xs, looped=looped: writing(WRITES[write], c, w, xs, looped)
        loss = lambda c, w, xs, f=f: (f(c, w, xs) ** 2).sum()
        c, w, xs = given()
        several, words = an.stack([c, c * 2]), an.stack([w, w.flip(0)])
        slopes = an.grad(loss, (0, 2))
        results.append(
            [
                *slopes(c, w, xs),
                *an.jvp(lambda c, xs, f=f, w=w: f(c, w, xs), (c, xs), (c * 3, xs * 2)),
                an.vmap(f, (0, None, None))(several, w, xs),
                an.vmap(f, (None, 0, None))(c, words, xs),
                *an.vmap(slopes, (0, 0, None))(several, words, xs),
                an.jvp(lambda c, s=slopes, w=w, xs=xs: s(c, w, xs)[1], (c,), (c,))[1],
            ]
        )
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-5, 1e-5)


def test_a_while_loop_and_a_loop_in_a_loop_write_in_place_and_results_stay() -> None:
    table = Tensor(TABLE)

    def until(c: Tensor) -> Tensor:
        return an.while_loop(lambda s: s[0] < 7, lambda s: (s[0] + 1, put(s[1], s[0], s[1][s[0] + 1] * 2)), (0, c))[1]

    def inner(c: Tensor, n: Tensor) -> Tensor:
        c = an.fori_loop(0, 3, lambda i, c: put(c, n + i, c[n + i] * 2), c)
        return put(c, n, an.fori_loop(0, 2, lambda i, s: s + c[i + n], c[n]))

    wanted, nested = TABLE.copy(), TABLE.copy()
    wanted[:7] = wanted[1:8] * 2
    for n in range(TURNS):
        nested[n : n + 3] *= 2
        nested[n] += nested[n] + nested[n + 1]
    replayed = an.jit(until)
    first = replayed(table)
    for found in (until(table), replayed(table), replayed(table), first):
        np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_allclose(an.fori_loop(0, TURNS, lambda n, c: inner(c, n), table).numpy(), nested, 1e-6)
    np.testing.assert_array_equal(table.numpy(), TABLE)


def test_the_reverse_keeps_rows_of_what_is_carried_where_it_reads_rows(carried: list[tuple[Any, ...]]) -> None:
    c, _, xs = given()
    rows: list[Any] = []
    loop = turns.Loop
    loss = lambda c, xs: an.fori_loop(0, TURNS, lambda n, c: put(c, n + 1, (c[n] + xs[n]).tanh()), c).sum()
    call = an.grad(loss, (0, 1))(c, xs)
    from anneal.uop import Op, toposort

    for u in toposort([g.uop for g in call]):
        if u.op is Op.HOST_CALL and isinstance(u.arg[0], loop):
            rows += [shape for shape, _ in u.arg[0].results[u.arg[0].carried :]]
    assert rows
    assert all(np.prod(shape) < TABLE.size for shape in rows), rows
