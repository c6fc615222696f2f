"""Parts of tensors that a loop without jit assigns, counted: twenty in a step are remembered as other calls are, and
places that change are data of one plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.runtime import late
from anneal.tensor import Tensor
from tests.runtime.test_eager_work import Work, warm

ROWS = np.random.default_rng(0).standard_normal((8, 20, 6)).astype(np.float32)
PLACES = np.random.default_rng(1).integers(0, 24, (64, 20)).tolist()
Change = Callable[[Any, int, int, Any], None]  # of a table of 24 rows: the step, the number of the change, and a row


def rows(x: Any, n: int, i: int, row: Any) -> None:
    x[i] = row


def columns(x: Any, n: int, i: int, row: Any) -> None:
    x[:6, i % 6] += row


def elements(x: Any, n: int, i: int, row: Any) -> None:
    x[i, 2] = 0.5 * i


def parts_of_parts(x: Any, n: int, i: int, row: Any) -> None:
    part = x[4:]
    part[i] *= row


def every_second(x: Any, n: int, i: int, row: Any) -> None:
    x[i % 4 :: 4] += row


def rows_anywhere(x: Any, n: int, i: int, row: Any) -> None:
    x[PLACES[n][i]] = row


def added_anywhere(x: Any, n: int, i: int, row: Any) -> None:
    x[PLACES[n][i]] += row


def slices_anywhere(x: Any, n: int, i: int, row: Any) -> None:
    k = PLACES[n][i] % 20
    x[k : k + 3] = row


def numbers_anywhere(x: Any, n: int, i: int, row: Any) -> None:
    x[PLACES[n][i], PLACES[n][-i] % 6] += 0.25 * n


ALL: list[Change] = [
    rows, columns, elements, parts_of_parts, every_second, rows_anywhere, added_anywhere, slices_anywhere,
    numbers_anywhere,
]  # fmt: skip
MOVING = (rows_anywhere, added_anywhere, slices_anywhere, numbers_anywhere)


def step_of(change: Change, changes: int = 20, flows: bool = False) -> Callable[[int], Any]:
    """A step that makes so many changes, with a gradient to a factor of the rows, or in a table that stays."""
    table, data = Tensor.zeros(24, 6), [Tensor(r) for r in ROWS]
    factor = Tensor(np.ones(6, np.float32), requires_grad=flows)

    def step(n: int) -> Any:
        x = Tensor.zeros(24, 6) + 1 if flows else table
        for i in range(changes):
            change(x, n, i, data[n % 8][i] * factor)
        if not flows:
            return x.numpy()
        (x * x).sum().backward()
        assert factor.grad is not None
        grad, factor.grad = factor.grad.numpy(), None
        return x.numpy(), grad

    return step


def with_numpy(change: Change, n: int, x: Any) -> Any:
    for i in range(20):
        change(x, n, i, ROWS[n % 8][i])
    return x


@pytest.mark.parametrize("change", ALL, ids=lambda f: f.__name__)
def test_parts_that_are_changed_are_remembered(change: Change) -> None:
    step = warm(step_of(change), 24)
    work = Work(step, range(24, 28))
    assert (work.plans, work.misses) == (0, 0)
    # a change takes the same work whether it is the first of a step or the last
    few = Work(warm(step_of(change, 5), 24), range(24, 28))
    each = (work.calls - few.calls) / 30
    assert each <= (330 if change is numbers_anywhere else 230 if change in MOVING else 160)
    assert work.nodes - few.nodes <= 30 * (24 if change in MOVING else 0) + 8


@pytest.mark.parametrize("change", [rows, columns, rows_anywhere, added_anywhere], ids=lambda f: f.__name__)
def test_parts_that_a_gradient_flows_through_are_planned_once(change: Change) -> None:
    assert not Work(warm(step_of(change, flows=True), 24), range(24, 28)).plans


@pytest.mark.parametrize("change", ALL, ids=lambda f: f.__name__)
def test_parts_have_the_values_of_numpy(change: Change) -> None:
    late.forget()
    step, wanted = step_of(change), np.zeros((24, 6), np.float32)
    for n in range(14):
        wanted = with_numpy(change, n, wanted)
        np.testing.assert_allclose(step(n), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", [rows, columns, rows_anywhere, added_anywhere], ids=lambda f: f.__name__)
def test_gradients_through_parts_are_those_of_the_values(change: Change) -> None:
    late.forget()
    step = step_of(change, flows=True)
    for n in range(12):
        at, grad = step(n)
        wanted = with_numpy(change, n, np.ones((24, 6), np.float32))
        np.testing.assert_allclose(at, wanted, rtol=1e-5, atol=1e-5)
        slope = np.zeros(6)
        for k in range(6):  # the values are linear in the factor of the rows, and each element in its own
            data = ROWS[n % 8].copy()
            data[:, [j for j in range(6) if j != k]] = 0
            part = np.zeros((24, 6))
            for i in range(20):
                change(part, n, i, data[i])
            slope[k] = (2 * wanted * part).sum()
        np.testing.assert_allclose(grad, slope, rtol=1e-3, atol=1e-3)


def test_rows_of_a_large_table_go_to_their_places() -> None:
    """A table that a program writes a row of in each round: neither a plan for each place, nor a copy."""
    table = Tensor.zeros(20_000, 4)

    def step(n: int) -> float:
        table[(n * 7919) % 20_000] = Tensor(ROWS[n % 8, 0, :4])
        return table[(n * 7919) % 20_000].sum().item()

    warm(step, 8)
    work = Work(step, range(8, 16))
    assert (work.plans, work.misses) == (0, 0)
    for n in range(16, 20):
        assert step(n) == pytest.approx(ROWS[n % 8, 0, :4].sum(), rel=1e-5)
    assert np.count_nonzero(table.numpy().any(1)) == 20


def test_one_row_of_several_axes_goes_to_its_place() -> None:
    x, rows = np.zeros((4, 2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    for dim, place in ((0, 2), (0, -1), (1, 1)):
        source = rows if dim == 0 else np.broadcast_to(rows[:, :1], (4, 1, 3))
        wanted = x.copy()
        wanted[(slice(None),) * dim + (place,)] = source.squeeze(dim)
        assert Tensor(x).index_copy(dim, Tensor([place]), Tensor(source.copy())).tolist() == wanted.tolist()
