"""Indexing, gather and scatter against NumPy; where NumPy and torch differ, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from anneal.errors import DTypeError, GradientError, ShapeError
from anneal.tensor import Tensor, no_grad
from anneal.uop import Op, toposort
from tests.helpers import check_values, close, reference

both_devices = pytest.mark.usefixtures("device")

A = np.arange(2 * 5 * 4, dtype=np.int32).reshape(2, 5, 4)
I = np.array([0, -1, 2, 2], np.int32)
J = np.array([[1, 0], [3, -2]], np.int32)

BASIC: list[Any] = [
    0,
    -1,
    (1, 2, 3),
    (slice(None), 2),
    (Ellipsis, -1),
    (slice(0, 1), slice(1, 4), slice(None, None, 2)),
    (slice(None), slice(None, None, -1)),
    (slice(None), slice(4, 0, -2), slice(3, None, -3)),
    (None, 1, Ellipsis, None),
    (slice(5, 9),),
    (slice(None), slice(3, 1)),
    (slice(-100, 100), slice(-2, None)),
    (Ellipsis,),
    (slice(None), slice(1, None, 3), slice(0, 3, 2)),
    np.int64(1),
]

ADVANCED: list[Any] = [
    (slice(None), I),
    (slice(None), J),
    (slice(None), I, slice(1, 3)),
    (slice(None), slice(None), I),
    (slice(None), I, I),
    (slice(None), J, J),
    (slice(None), J[:1], J[:, :1]),
    (np.array([0, 1, 1, 0]), slice(None), I),
    (np.array([0, 1, 1, 0]), I),
    (np.array([0, 1, 1, 0]), I, I),
    (slice(None), slice(4, 0, -1), I),
    (None, np.array([1, 0])),
    (slice(None), I, None),
    np.array([1]),
    np.array([[1, 0], [0, 1]]),
]


@both_devices
@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_indices(index: Any) -> None:
    check_values(Tensor(A)[index], A[index], dtype="int32")


@both_devices
@pytest.mark.parametrize("kind", ["array", "tensor", "list"])
@pytest.mark.parametrize("k", range(len(ADVANCED)))
def test_integer_indices(k: int, kind: str) -> None:
    index = ADVANCED[k]

    def given(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        return {"array": x, "tensor": Tensor(x, dtype="int32"), "list": x.tolist()}[kind]

    ours = tuple(given(x) for x in index) if isinstance(index, tuple) else given(index)
    check_values(Tensor(A)[ours], A[index], dtype="int32")


def test_an_int_beside_an_integer_tensor_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    x, i = torch.tensor(A), torch.tensor([0, 2, 1])
    check_values(Tensor(A)[0, :, Tensor([0, 2, 1])], x[0, :, i].numpy())
    check_values(Tensor(A)[Tensor([0, 1, 1]), 3], x[torch.tensor([0, 1, 1]), 3].numpy())


@both_devices
def test_masks_that_are_known() -> None:
    mask = A[0, :, 0] % 8 == 0
    check_values(Tensor(A)[:, mask], A[:, mask])
    check_values(Tensor(A)[A > 20], A[A > 20])
    check_values(Tensor(A)[[True, False]], A[[True, False]])


@both_devices
def test_a_computed_index_out_of_range_reads_zero() -> None:
    x = Tensor([10, 20, 30])
    check_values(x[Tensor([-1, 2, -5, -2]) + 1], [10, 0, 0, 30])
    check_values(Tensor(A)[Tensor([-1, 1]) + 1, Tensor([1, 1])], np.stack([A[0, 1], np.zeros(4, np.int32)]))


def test_rows_of_a_table_are_one_gather() -> None:
    table = Tensor.zeros(50, 8).contiguous()
    ids = Tensor(np.zeros((4, 6), np.int32))
    got = table.rows(ids)
    assert got.shape == (4, 6, 8)
    assert [u.op for u in toposort((got.uop,))].count(Op.GATHER) == 1
    assert len(toposort((got.uop,))) - len(toposort((table.uop, ids.uop))) <= 4


@st.composite
def indexed(draw: st.DrawFn) -> tuple[Any, Any]:
    shape = draw(hnp.array_shapes(max_dims=3, max_side=5))
    return shape, draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=4))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(indexed())
def test_any_basic_index(case: tuple[Any, Any]) -> None:
    shape, index = case
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    got = Tensor(array)[index]
    close(reference(got), array[index])
    close(got.numpy(), np.asarray(array[index]))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(indexed(), st.booleans())
def test_any_basic_assignment(case: tuple[Any, Any], wide: bool) -> None:
    shape, index = case
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    x = Tensor(array.copy())
    value = -1 - np.arange(array[index].size, dtype=np.int32).reshape(array[index].shape) if wide else np.int32(-7)
    array[index] = value
    x[index] = Tensor(value) if wide else -7
    close(reference(x), array)
    close(x.numpy(), array)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    hnp.array_shapes(min_dims=1, max_dims=3, max_side=4).flatmap(
        lambda s: st.tuples(
            st.just(s), hnp.integer_array_indices(s, result_shape=hnp.array_shapes(max_dims=2, max_side=3))
        )
    )
)
def test_any_integer_index(case: tuple[Any, Any]) -> None:
    shape, index = case
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    got = Tensor(array)[tuple(Tensor(i.astype(np.int32)) for i in index)]
    close(reference(got), array[index])
    close(got.numpy(), array[index])


# -- assignment -------------------------------------------------------------------------------------------------------

ASSIGNED: list[tuple[Any, Any]] = [
    (0, 5),
    ((slice(None), 1), np.arange(4)),
    ((slice(None), slice(None, None, 2)), -1),
    ((slice(None), slice(None, None, -2), slice(1, 3)), np.arange(2)),
    ((Ellipsis,), 3),
    (slice(0, 0), 3),
    ((slice(None), I[:3]), 9),
    ((slice(None), I[:3], slice(1, 3)), np.arange(12).reshape(2, 3, 2)),
    ((np.array([0, 1]), np.array([4, 0])), np.arange(8).reshape(2, 4)),
    ((1, np.array([4, 0]), 2), np.array([7, 8])),
    ((slice(None), slice(None), np.array([[0], [3]])), np.arange(2).reshape(2, 1)),
]


@both_devices
@pytest.mark.parametrize("k", range(len(ASSIGNED)))
def test_assignment(k: int) -> None:
    index, value = ASSIGNED[k]
    expected = A.copy()
    expected[index] = value
    x = Tensor(A)
    before = x + 0
    x[index] = Tensor(np.asarray(value, np.int32)) if isinstance(value, np.ndarray) else value
    check_values(x, expected, dtype="int32")
    check_values(before, A)


@both_devices
def test_of_several_writes_to_one_place_the_last_stays() -> None:
    x = Tensor.zeros(4)
    x[Tensor([1, 3, 1, 1])] = Tensor([1.0, 2.0, 3.0, 4.0])
    check_values(x, [0.0, 4.0, 0.0, 2.0])


def test_assignment_and_gradients() -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = Tensor([5.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"clone\(\) first, or no_grad"):
        w[0] = 1.0
    x = w * 2
    x[1:2] = v * 3
    x.sum().backward()
    assert w.grad is not None
    assert v.grad is not None
    check_values(w.grad, [2.0, 0.0, 2.0])
    check_values(v.grad, [3.0])
    with no_grad():
        w[0] = 7.0
    assert w.requires_grad
    assert w.is_leaf
    check_values(w, [7.0, 2.0, 3.0])


# -- gather and scatter -----------------------------------------------------------------------------------------------


@both_devices
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather(dim: int) -> None:
    rng = np.random.default_rng(3)
    size = A.shape[dim]
    index = rng.integers(0, size, (2, 3, 4)).astype(np.int32)
    window = A[:, :3] if dim != 1 else A
    check_values(Tensor(A).gather(dim, Tensor(index)), np.take_along_axis(window, index, dim))


@both_devices
def test_looking_up_along_an_axis() -> None:
    check_values(Tensor(A).index_select(1, Tensor([3, 0, 3])), A[:, [3, 0, 3]])
    check_values(Tensor(A).take(Tensor([[0, -1], [7, 39]])), A.reshape(-1)[[[0, -1], [7, 39]]])
    order = np.argsort(-A, axis=2).astype(np.int32)
    check_values(Tensor(A).take_along_dim(Tensor(order), 2), np.take_along_axis(A, order, 2))


@both_devices
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scatter_add(dim: int) -> None:
    rng = np.random.default_rng(4)
    index = rng.integers(0, A.shape[dim], (2, 4, 3)).astype(np.int32)
    src = rng.integers(-5, 5, (2, 5, 4)).astype(np.int32)
    expected = A.copy()
    place = list(np.indices(index.shape))
    place[dim] = index
    np.add.at(expected, tuple(place), src[:2, :4, :3])
    check_values(Tensor(A).scatter_add(dim, Tensor(index), Tensor(src)), expected, dtype="int32")
    written = A.copy()
    for at in np.ndindex(index.shape):
        to = list(at)
        to[dim] = index[at]
        written[tuple(to)] = src[at]
    check_values(Tensor(A).scatter(dim, Tensor(index), Tensor(src)), written, dtype="int32")


@both_devices
def test_bools_add_up_to_whether_one_is_true() -> None:
    rng = np.random.default_rng(1)
    x, y, i = rng.random((3, 16)) < 0.3, rng.random((3, 16)) < 0.5, rng.integers(0, 16, 16)
    expected = x.copy()
    np.logical_or.at(expected.T, i, y.T)
    check_values(Tensor(x).index_add(1, Tensor(i), Tensor(y)), expected, dtype="bool")
    check_values(Tensor(x.T.copy()).index_add(0, Tensor(i), Tensor(y.T.copy())), expected.T, dtype="bool")
    check_values(Tensor(x).scatter_add(1, Tensor(np.tile(i, (3, 1))), Tensor(y)), expected, dtype="bool")


@both_devices
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "int64"])
def test_extremes_of_what_comes_to_one_place(dtype: str) -> None:
    """Beside NumPy, also of nan, which wins, of infinities and of the ends of integers."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 100, 50).astype(dtype)
    y, i = rng.integers(0, 100, 200).astype(dtype), rng.integers(0, 40, 200)
    kind = np.dtype(dtype).kind
    ends = [np.inf, -np.inf, np.nan] if kind == "f" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    y[rng.integers(0, 200, 8)] = rng.choice(ends, 8)
    for name, f in (("amax", np.maximum), ("amin", np.minimum)):
        for include_self in (True, False):
            expected = x.copy()
            if not include_self:
                expected[i] = y  # one of those that are written
            with np.errstate(invalid="ignore"):
                f.at(expected, i, y)
            got = Tensor(x).scatter_reduce(0, Tensor(i), Tensor(y), name, include_self=include_self)
            check_values(got, expected, dtype=dtype)


@both_devices
def test_scatter_of_rows_and_out_of_range() -> None:
    ids = (Tensor([1, -1, 1, 6, -6]) + 1).reshape(5, 1).expand(5, 3)
    got = Tensor.zeros(4, 3).scatter_add(0, ids, Tensor.ones(5, 3))
    assert [u.arg for u in toposort((got.uop,)) if u.op is Op.SCATTER_ADD] == [(4,)]
    check_values(got, np.array([1, 0, 2, 0.0])[:, None] * np.ones(3))
    check_values(Tensor.zeros(3).scatter_add(0, Tensor([4, 0, -5]) + 1, Tensor([1.0, 2.0, 4.0])), [0.0, 2.0, 0.0])
    check_values(Tensor.zeros(2, 2).scatter(1, Tensor([[1], [0]]), 5), [[0.0, 5.0], [5.0, 0.0]])


@both_devices
@pytest.mark.parametrize("reduce", ["add", "sum", "mean", "prod"])
@pytest.mark.parametrize("rest", [(3,), (2, 3), (0,)])
def test_an_index_repeated_along_rows_names_rows(reduce: str, rest: tuple[int, ...]) -> None:
    """Messages of a graph: `index[:, None].expand_as(messages)`, of integers of 64 bits as NumPy and torch have."""
    rng = np.random.default_rng(3)
    x, y, i = *[rng.integers(1, 4, (n, *rest)).astype(np.float32) for n in (4, 6)], np.array([0, 2, 2, -1, 0, 2])
    index = Tensor(i).reshape(6, *[1] * len(rest)).expand(6, *rest)
    expected = x.copy()
    (np.multiply if reduce == "prod" else np.add).at(expected, i, y)
    if reduce == "mean":
        expected /= 1 + np.bincount(i % 4, minlength=4).reshape(4, *[1] * len(rest))
    a, b = Tensor(x), Tensor(y)
    got = a.scatter_add(0, index, b) if reduce == "add" else a.scatter_reduce(0, index, b, reduce)
    sums = [u for u in toposort((got.uop,)) if u.op is Op.SCATTER_ADD]
    assert {u.src[0].shape for u in sums} <= {(6,)}
    check_values(got, expected)


@both_devices
def test_index_add() -> None:
    expected = A.copy()
    np.add.at(expected, (slice(None), [1, 1, 4]), 2 * A[:, :3])
    check_values(Tensor(A).index_add(1, Tensor([1, 1, 4]), Tensor(A[:, :3]), alpha=2), expected)


@both_devices
def test_one_hot_and_masked_fill() -> None:
    check_values(Tensor([[1, 0], [2, 2]]).one_hot(3), np.eye(3)[[[1, 0], [2, 2]]].astype(np.int32), dtype="int32")
    check_values(Tensor([2, 0]).one_hot(), [[0, 0, 1], [1, 0, 0]])
    x = Tensor([1.0, 2.0, 3.0])
    check_values(x.masked_fill(x > 1.5, float("-inf")), [1.0, -np.inf, -np.inf], dtype="float32")
    check_values(Tensor([1, 2]).masked_fill(Tensor([True, False]), 9), [9, 2], dtype="int32")


def test_rows_come_one_by_one() -> None:
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert Tensor([5, 6]).tolist()[Tensor(1)] == 6


# -- mistakes ---------------------------------------------------------------------------------------------------------

Z = Tensor.zeros(2, 3)


def _assign(x: Tensor, index: Any, value: Any) -> None:
    x[index] = value


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "out of range": (
        lambda: Z[2],
        ShapeError,
        r"index: 2 is out of bounds for axis 0 of shape \(2, 3\): it runs from -2 to 1",
    ),
    "second axis": (lambda: Z[0, -4], ShapeError, "index: -4 is out of bounds for axis 1"),
    "in a list": (lambda: Z[[0, 5]], ShapeError, "index: 5 is out of bounds for axis 0"),
    "too many": (lambda: Z[0, 0, 0], ShapeError, "too many indices: 3 axes are named, but shape .* has 2"),
    "two dots": (lambda: Z[..., ...], ShapeError, "only one ... may stand"),
    "a float": (lambda: Z[1.0], DTypeError, "index: takes ints, slices, .* not float"),
    "a float tensor": (lambda: Z[Z], DTypeError, "index: takes integers, not float32"),
    "a wrong mask": (lambda: Z[[True, False, True]], ShapeError, "a mask of 3 elements does not fit axis 0"),
    "zero step": (lambda: Z[::0], ShapeError, "index: slice.*cannot be zero"),
    "index shapes": (lambda: Z[Tensor([0, 1]), Tensor([0, 1, 2])], ShapeError, "index: shapes"),
    "assigned shape": (lambda: _assign(Tensor.zeros(2, 3), 0, Tensor.zeros(2)), ShapeError, "index assignment: shapes"),
    "gather axes": (lambda: Z.gather(0, Tensor([0])), ShapeError, "gather: the index has shape"),
    "gather too long": (lambda: Z.gather(0, Tensor([[0] * 4])), ShapeError, "longer than this tensor's"),
    "gather floats": (lambda: Z.gather(0, Z), DTypeError, "gather: an index is made of integers, not float32"),
    "scatter values": (
        lambda: Z.scatter_add(0, Tensor([[0, 1, 0]] * 2), Tensor.zeros(1, 3)),
        ShapeError,
        "scatter_add: .*values",
    ),
    "scatter reduce": (lambda: Z.scatter(0, Tensor([[0]]), 1.0, reduce="mul"), DTypeError, "scatter: reduce is"),
    "index_select axes": (lambda: Z.index_select(0, Tensor([[0]])), ShapeError, "index_select: the index has one axis"),
    "index_add": (lambda: Z.index_add(0, Tensor([0]), Z), ShapeError, "index_add: .* needs a source of shape"),
    "mask dtype": (lambda: Z.masked_fill(Z, 0), DTypeError, "masked_fill: a mask is bool"),
    "fill dtype": (lambda: Tensor([1]).masked_fill(Tensor([True]), np.nan), DTypeError, "nan does not fit int32"),
    "one_hot floats": (lambda: Z.one_hot(3), DTypeError, "one_hot: takes integers"),
}


# what torch 2.13 gives of numbers that are filled in, None for an error (of an int, -1, it makes a uint8 of 255)
FILLS = [1.5, -1.5, 3, 2.0, 300, -1, 1e30, float("nan"), float("inf"), True]
FILLED: dict[str, list[Any]] = {
    "int32": [1, -1, 3, 2, 300, -1, None, None, None, 1],
    "uint8": [1, None, 3, 2, None, None, None, None, None, 1],
    "bool": [True] * 10,
}


@pytest.mark.parametrize("dtype", FILLED)
def test_a_number_is_filled_in_as_in_torch(dtype: str) -> None:
    calls: list[Callable[[Tensor, Any], Any]] = [
        lambda x, v: x.masked_fill(Tensor([True, False]), v)[0],
        lambda x, v: x.masked_fill_(Tensor([True, False]), v)[0],
        lambda x, v: x.index_fill(0, Tensor([0]), v)[0],
        lambda x, v: x.index_fill_(0, Tensor([0]), v)[0],
        lambda x, v: x.fill_(v)[0],
        lambda x, v: x.expand(2, 2).clone().fill_diagonal_(v)[0, 0],
    ]
    for call in calls:
        for value, wanted in zip(FILLS, FILLED[dtype], strict=True):
            x = Tensor([0, 0]).cast(dtype)
            if wanted is None:
                with pytest.raises(DTypeError, match="does not fit"):
                    call(x, value)
            else:
                assert call(x, value).tolist() == wanted


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("index", [True, False, (True, 0), (0, False), (None, True), (True, [0, 1]), (..., True)])
def test_bools_are_masks_of_no_axes(index: Any) -> None:
    """Also as arrays and tensors, where values are put, and where gradients flow."""
    whole = np.arange(6, dtype=np.float32).reshape(2, 3)
    items = index if isinstance(index, tuple) else (index,)
    for wrap in (lambda b: b, np.array, Tensor):
        at = tuple([wrap(i) if isinstance(i, bool) else i for i in items])
        x = Tensor(whole, requires_grad=True)
        found = x[at]
        np.testing.assert_array_equal(found.detach().numpy(), whole[index])
        found.sum().backward()
        chosen = np.zeros_like(whole)
        chosen[index] = 1
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), chosen)
        y = Tensor(whole)
        y[at] = 7
        np.testing.assert_array_equal(y.numpy(), np.where(chosen, 7, whole))


def test_bools_name_no_axis() -> None:
    with pytest.raises(ShapeError, match="too many indices: 3 axes are named, but shape .* has 2"):
        Z[True, 0, 0, 0]
