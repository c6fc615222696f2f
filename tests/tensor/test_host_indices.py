"""An index whose values are on the host is checked, in every op that takes one and in every form that it may have; -1
is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.errors import PositionError, ShapeError
from anneal.tensor import Tensor, functional, jit
from tests.tiers import thinned

X = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
# Of an index of one axis along axis 0 of X, (4, 3). What takes as many axes as X has gets it as a column.
FROM_THE_END: dict[str, Callable[[Tensor, Any], Any]] = {
    "index": lambda x, i: x[i],
    "index ": lambda x, i: x[i, 0],
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x[:, 0].take(i),
    "gather": lambda x, i: x[:, 0].gather(0, i),
    "take_along_dim": lambda x, i: x[:, 0].take_along_dim(i, 0),
    "take_along_axis": lambda x, i: x[:, 0].take_along_axis(i, 0),
    "scatter": lambda x, i: x[:, 0].scatter(0, i, 7.0),
    "scatter_add": lambda x, i: x[:, 0].scatter_add(0, i, Tensor([7.0, 8.0])),
    "scatter_reduce": lambda x, i: x[:, 0].scatter_reduce(0, i, Tensor([7.0, 8.0]), "amax"),
    "index_add": lambda x, i: x.index_add(0, i, Tensor(X[:2])),
    "index_copy": lambda x, i: x.index_copy(0, i, Tensor(X[:2])),
    "index_fill": lambda x, i: x.index_fill(0, i, 7.0),
    "index_put": lambda x, i: x.index_put((i,), 7.0, accumulate=True),
    "index_put ": lambda x, i: x.index_put((i,), 7.0),
    "index assignment": lambda x, i: _assigned(x, i),
}
# Rows of a table and classes count from 0.
FROM_ZERO: dict[str, Callable[[Tensor, Any], Any]] = {
    "rows": lambda x, i: x.rows(i),
    "embedding": lambda x, i: functional.embedding(i, x),
    "one_hot": lambda x, i: i.one_hot(4),
    "cross_entropy": lambda x, i: functional.cross_entropy(x.mT[:2], i),
    "nll_loss": lambda x, i: functional.nll_loss(x.mT[:2], i),
    "multi_margin_loss": lambda x, i: functional.multi_margin_loss(x.mT[:2], i),
}
TENSORS: dict[str, Callable[[list[int]], Any]] = {
    "of a list": Tensor,
    "of int64": lambda v: Tensor(np.array(v, np.int64)),
    "of int16": lambda v: Tensor(np.array(v, np.int16)),
    "cast": lambda v: Tensor(v).long(),
    "reshaped": lambda v: Tensor([v]).reshape(2),
    "flipped": lambda v: Tensor(v[::-1]).flip(0),
    "detached": lambda v: Tensor(v).detach(),
    "one value": lambda v: Tensor.full((2,), v[0], dtype="int32"),
}
FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "array": np.array,
    "small array": lambda v: np.array(v, np.int8),
    **TENSORS,
}
WRONG = {4: "past the end", -5: "before the start", 99: "far"}
ALL = {**FROM_THE_END, **FROM_ZERO}


def _assigned(x: Tensor, i: Any) -> Tensor:
    y = x + 0
    y[i] = 7.0
    return y


@pytest.mark.parametrize("name", ALL)
def test_what_is_out_of_range_on_the_host_is_an_error(name: str, device: str) -> None:
    op = ALL[name]
    x = Tensor(X)
    for form, make in (TENSORS if name in FROM_ZERO else FORMS).items():
        for wrong in (*WRONG, *([-1] if name in FROM_ZERO else [])):
            with pytest.raises(
                PositionError, match=rf"^{name.split(maxsplit=1)[0]}: {wrong} is out of bounds"
            ) as error:
                op(x, make([wrong, wrong]))
            assert isinstance(error.value, (IndexError, ShapeError)), form
        if form != "one value":
            with pytest.raises(IndexError, match=rf"^{name.split(maxsplit=1)[0]}: 4 is out of bounds"):
                op(x, make([0, 4]))


@pytest.mark.parametrize("name", thinned(FROM_THE_END, test=5, ci=2))
def test_negative_positions_count_from_the_end(name: str, device: str) -> None:
    op, x = FROM_THE_END[name], Tensor(X)
    got = [op(x, make([-4, -2])) for form, make in FORMS.items() if form != "one value"]
    computed = op(x, Tensor([-5, -3]) + 1)  # by a device, too
    expected = op(x, [0, 2]).numpy()
    for t in (*got, computed):
        np.testing.assert_array_equal(t.numpy(), expected)


def test_integers_of_64_bits_are_not_cut_off_before_they_are_checked() -> None:
    for name in FROM_THE_END:
        with pytest.raises(PositionError, match="is out of bounds"):
            FROM_THE_END[name](Tensor(X), np.array([0, 2**32]))
    for name in FROM_ZERO:
        with pytest.raises(PositionError, match="is out of bounds"):
            FROM_ZERO[name](Tensor(X), Tensor(np.array([0, 2**32])))


def test_on_the_cpu_what_is_realized_is_checked_and_what_is_lazy_stays_lazy() -> None:
    x, computed = Tensor(X), Tensor([1, 3]) + 1
    assert x.index_select(0, computed).numpy().tolist() == [X[2].tolist(), [0.0, 0.0, 0.0]]
    assert not computed.is_realized
    with pytest.raises(PositionError, match="index_select: 4 is out of bounds"):
        x.index_select(0, computed.realize())


@pytest.mark.parametrize("ignored", [-100, -1, 1, 7, None])
def test_ignored_targets_are_no_mistake(ignored: int | None) -> None:
    scores = Tensor(X)
    for loss in (functional.cross_entropy, functional.nll_loss):
        with pytest.raises(
            PositionError, match=r": 5 is out of bounds for axis 1 of shape \(4, 3\): it runs from 0 to 2"
        ):
            loss(scores, Tensor([0, 2, 5, 2]), ignore_index=ignored)
        if ignored is not None:
            assert np.isfinite(loss(scores, Tensor([0, 2, ignored, 2]), ignore_index=ignored).item())


def test_the_padding_row_of_an_embedding_is_one_of_its_rows() -> None:
    table = Tensor(X, requires_grad=True)
    functional.embedding(Tensor([3, 0]), table, padding_idx=-1).sum().backward()
    assert table.grad is not None
    assert table.grad.numpy()[:, 0].tolist() == [1.0, 0.0, 0.0, 0.0]
    for wrong in (4, -5):
        with pytest.raises(PositionError, match="embedding: padding_idx"):
            functional.embedding(Tensor([0]), Tensor(X), padding_idx=wrong)


def test_what_a_jit_function_is_given_is_not_read() -> None:
    @jit
    def step(table: Tensor, ids: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return table.index_select(0, ids), functional.cross_entropy(table[:2], target)

    for ids in ([0, 1], [1, 0], [3, -1], [9, 0]):  # the last one out of range: it reads 0
        rows, _ = step(Tensor(X), Tensor(ids), Tensor([0, 2]))
        assert rows.numpy().tolist() == [X[i].tolist() if i < 4 else [0.0] * 3 for i in ids]


def test_an_axis_without_elements_has_no_positions() -> None:
    nothing = Tensor(np.zeros((0, 3), np.float32))
    assert nothing.index_select(0, Tensor(np.zeros(0, np.int32))).shape == (0, 3)
    assert nothing.index_select(0, []).shape == (0, 3)
    with pytest.raises(PositionError, match="which has no elements"):
        nothing.index_select(0, [0])
