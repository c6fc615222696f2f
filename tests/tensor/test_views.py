"""Movement against NumPy: it moves values and changes none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor, broadcast_tensors
from tests.helpers import check_values, close, reference

both_devices = pytest.mark.usefixtures("device")


def box(*shape: int) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


A = box(2, 3, 4)
M = box(4, 5)

CASES: dict[str, tuple[Any, Any, Any]] = {
    "reshape": (A, lambda x: x.reshape(4, 6), A.reshape(4, 6)),
    "reshape inferred": (A, lambda x: x.reshape((2, -1)), A.reshape(2, -1)),
    "view": (A, lambda x: x.view(24), A.reshape(24)),
    "flatten": (A, lambda x: x.flatten(1), A.reshape(2, 12)),
    "flatten middle": (A, lambda x: x.flatten(0, 1), A.reshape(6, 4)),
    "unflatten": (A, lambda x: x.unflatten(2, (2, -1)), A.reshape(2, 3, 2, 2)),
    "squeeze": (A[:, None, :1], lambda x: x.squeeze(), A[:, 0]),
    "squeeze one": (A[:, None], lambda x: x.squeeze(1), A),
    "unsqueeze": (A, lambda x: x.unsqueeze(-1), A[..., None]),
    "permute": (A, lambda x: x.permute(2, 0, 1), A.transpose(2, 0, 1)),
    "permute back": (A, lambda x: x.permute(2, 0, 1).permute(1, 2, 0), A),
    "transpose": (A, lambda x: x.transpose(0, -1), A.swapaxes(0, -1)),
    "T": (A, lambda x: x.T, A.T),
    "mT": (A, lambda x: x.mT, A.swapaxes(1, 2)),
    "t": (M, lambda x: x.t(), M.T),
    "movedim": (A, lambda x: x.movedim(0, 2), np.moveaxis(A, 0, 2)),
    "movedim several": (A, lambda x: x.movedim((0, 1), (2, 0)), np.moveaxis(A, (0, 1), (2, 0))),
    "flip": (A, lambda x: x.flip(0, 2), np.flip(A, (0, 2))),
    "flip all": (A, lambda x: x.flip(), np.flip(A)),
    "roll": (A, lambda x: x.roll(1, 2), np.roll(A, 1, 2)),
    "roll back": (A, lambda x: x.roll(-5, 1), np.roll(A, -5, 1)),
    "roll two": (A, lambda x: x.roll((1, 2), (0, 2)), np.roll(A, (1, 2), (0, 2))),
    "roll flat": (A, lambda x: x.roll(7), np.roll(A, 7)),
    "expand": (A[:, :1], lambda x: x.expand(5, 2, -1, 4), np.broadcast_to(A[:, :1], (5, 2, 1, 4))),
    "broadcast_to": (M[0], lambda x: x.broadcast_to(3, 5), np.broadcast_to(M[0], (3, 5))),
    "repeat": (M, lambda x: x.repeat(2, 1, 3), np.tile(M, (2, 1, 3))),
    "tile": (A, lambda x: x.tile(2), np.tile(A, 2)),
    "repeat_interleave": (M, lambda x: x.repeat_interleave(3, dim=1), np.repeat(M, 3, 1)),
    "repeat_interleave flat": (M, lambda x: x.repeat_interleave(2), np.repeat(M, 2)),
    "pad last": (M, lambda x: x.pad((1, 2)), np.pad(M, ((0, 0), (1, 2)))),
    "pad two": (M, lambda x: x.pad((1, 2, 0, 3), value=7), np.pad(M, ((0, 3), (1, 2)), constant_values=7)),
    "pad pairs": (M, lambda x: x.pad(((1, 0), (0, 2))), np.pad(M, ((1, 0), (0, 2)))),
    "pad negative": (M, lambda x: x.pad((-1, 2)), np.pad(M[:, 1:], ((0, 0), (0, 2)))),
    "pad reflect": (M, lambda x: x.pad((2, 3), mode="reflect"), np.pad(M, ((0, 0), (2, 3)), mode="reflect")),
    "pad replicate": (M, lambda x: x.pad((2, 3), mode="replicate"), np.pad(M, ((0, 0), (2, 3)), mode="edge")),
    "pad circular": (M, lambda x: x.pad((2, 3, 1, 0), mode="circular"), np.pad(M, ((1, 0), (2, 3)), mode="wrap")),
    "shrink": (M, lambda x: x.shrink(((1, 3), None)), M[1:3]),
    "narrow": (M, lambda x: x.narrow(1, -3, 2), M[:, 2:4]),
    "cat": (M, lambda x: Tensor.cat([x, x[:1], x], dim=0), np.concatenate([M, M[:1], M])),
    "cat last": (M, lambda x: Tensor.cat((x, x[:, :2]), -1), np.concatenate([M, M[:, :2]], 1)),
    "cat with nothing": (M, lambda x: Tensor.cat([x[:0], x]), M),
    "cat method": (M, lambda x: x.cat(x, dim=1), np.concatenate([M, M], 1)),
    "stack": (M, lambda x: Tensor.stack([x, x + 1, x], dim=1), np.stack([M, M + 1, M], 1)),
    "stack last": (M, lambda x: Tensor.stack([x, x], -1), np.stack([M, M], -1)),
    "unfold": (M, lambda x: x.unfold(1, 3, 1), np.lib.stride_tricks.sliding_window_view(M, 3, 1)),
    "unfold steps": (M, lambda x: x.unfold(0, 2, 2), np.lib.stride_tricks.sliding_window_view(M, 2, 0)[::2]),
    "unfold middle": (A, lambda x: x.unfold(1, 2, 1), np.lib.stride_tricks.sliding_window_view(A, 2, 1)),
    "tril": (M, lambda x: x.tril(), np.tril(M)),
    "tril up": (M, lambda x: x.tril(1), np.tril(M, 1)),
    "triu": (A, lambda x: x.triu(-1), np.triu(A, -1)),
    "diagonal": (M, lambda x: x.diagonal(), np.diagonal(M)),
    "diagonal up": (M, lambda x: x.diagonal(2), np.diagonal(M, 2)),
    "diagonal down": (A, lambda x: x.diagonal(-1, 1, 2), np.diagonal(A, -1, 1, 2)),
    "diagonal outside": (M, lambda x: x.diagonal(9), np.diagonal(M, 9)),
    "diag": (M[0], lambda x: x.diag(), np.diag(M[0])),
    "diag up": (M[0], lambda x: x.diag(2), np.diag(M[0], 2)),
    "diag down": (M[0], lambda x: x.diag(-1), np.diag(M[0], -1)),
    "scalar flatten": (np.int32(3), lambda x: x.flatten(), np.array([3])),
    "steps of movement": (
        A,
        lambda x: x.permute(1, 0, 2).reshape(3, 8).flip(1)[:, 1::3],
        A.transpose(1, 0, 2).reshape(3, 8)[:, ::-1][:, 1::3],
    ),
}


@both_devices
@pytest.mark.parametrize("name", CASES)
def test_moves(name: str) -> None:
    array, f, expected = CASES[name]
    check_values(f(Tensor(np.asarray(array))), expected, dtype="int32")


@both_devices
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_cat_of_other_dtypes(dtype: str) -> None:
    a = np.array([1, 0, 1]).astype(dtype)
    check_values(Tensor.cat([Tensor(a), Tensor(a)]), np.concatenate([a, a]), dtype=dtype)
    check_values(Tensor.stack([Tensor(a), Tensor(a)]), np.stack([a, a]), dtype=dtype)


@both_devices
def test_cat_promotes() -> None:
    check_values(Tensor.cat([Tensor([1]), Tensor([2.5])]), [1.0, 2.5], dtype="float32")


@both_devices
def test_padding_with_infinity_keeps_the_rest() -> None:
    check_values(Tensor([1.0, -2.0]).pad((1, 1), value=float("-inf")), [-np.inf, 1.0, -2.0, -np.inf])


@both_devices
def test_split_and_chunk() -> None:
    x = Tensor(M)
    for got, expected in zip(x.split(2, dim=1), np.split(M, [2, 4], 1), strict=True):
        check_values(got, expected)
    for got, expected in zip(x.split([1, 3]), np.split(M, [1]), strict=True):
        check_values(got, expected)
    for got, expected in zip(x.chunk(3, dim=1), np.split(M, [2, 4], 1), strict=True):
        check_values(got, expected)
    for got, expected in zip(x.unbind(1), M.T, strict=True):
        check_values(got, expected)
    assert [t.shape for t in x.chunk(3, 0)] == [(2, 5), (2, 5)]


def test_broadcast_tensors() -> None:
    a, b = broadcast_tensors(Tensor.zeros(3, 1), Tensor.zeros(4))
    assert a.shape == b.shape == (3, 4)


def test_movement_makes_few_nodes() -> None:
    x = Tensor.zeros(2, 3).contiguous()
    assert x.reshape(2, 3) is x
    assert x.permute(0, 1).uop is x.uop
    assert x.reshape(6).reshape(2, 3).uop is x.uop
    assert x.expand(2, 3).uop is x.uop
    assert x.pad((0, 0)).uop is x.uop


# -- any movement at all ----------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> tuple[Any, Any, list[str]]:
    """A random chain of movements, as the array and the tensor it gives."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array = box(*shape)
    tensor = Tensor(array)
    said = [str(shape)]
    for _ in range(draw(st.integers(1, 5))):
        n = array.ndim
        kind = draw(st.sampled_from(["reshape", "permute", "flip", "pad", "shrink", "expand", "step", "roll"]))
        if kind == "reshape":
            sizes = [s for s in range(1, array.size + 1) if array.size and array.size % s == 0]
            new = (draw(st.sampled_from(sizes)), -1) if sizes else (0,)
            array, tensor = array.reshape(new), tensor.reshape(new)
        elif kind == "permute":
            order = draw(st.permutations(range(n)))
            array, tensor = array.transpose(order), tensor.permute(order)
        elif kind == "flip":
            axis = draw(st.integers(0, n - 1))
            array, tensor = np.flip(array, axis), tensor.flip(axis)
        elif kind == "pad" and array.size < 500:
            pairs = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(n))
            array, tensor = np.pad(array, pairs), tensor.pad(pairs)
        elif kind == "shrink":
            pairs = []
            for s in array.shape:
                begin = draw(st.integers(0, s - 1)) if s else 0
                pairs.append((begin, draw(st.integers(min(begin + 1, s), s))))
            array, tensor = array[tuple(slice(*p) for p in pairs)], tensor.shrink(pairs)
        elif kind == "expand" and n < 4 and array.size < 500:
            array, tensor = np.broadcast_to(array, (2, *array.shape)), tensor.expand(2, *array.shape)
        elif kind == "step":
            step = draw(st.sampled_from([-3, -2, -1, 2, 3]))
            array, tensor = array[..., ::step], tensor[..., ::step]
        elif kind == "roll":
            shift, axis = draw(st.integers(-5, 5)), draw(st.integers(0, n - 1))
            array, tensor = np.roll(array, shift, axis), tensor.roll(shift, axis)
        said.append(kind)
    return array, tensor, said


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_any_chain_of_movements(program: tuple[Any, Tensor, list[str]]) -> None:
    array, tensor, _ = program
    close(reference(tensor), array)
    close(tensor.numpy(), array)


# -- mistakes ---------------------------------------------------------------------------------------------------------

Z = Tensor.zeros(2, 3)
MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "reshape": (lambda: Z.reshape(4, 2), ShapeError, r"reshape: shape \(2, 3\) has 6 elements and \(4, 2\) has 8"),
    "reshape twice -1": (lambda: Z.reshape(-1, -1), ShapeError, "only one size"),
    "reshape undividable": (lambda: Z.reshape(4, -1), ShapeError, r"6 elements of shape \(2, 3\) do not divide"),
    "reshape float": (lambda: Z.reshape(2.0, 3), ShapeError, "reshape: sizes and axes are ints, not 2.0"),
    "permute length": (lambda: Z.permute(0), ShapeError, "permute: a tensor of shape .* needs 2 axes"),
    "permute twice": (lambda: Z.permute(0, 0), ShapeError, "every axis must be named once"),
    "permute axis": (lambda: Z.permute(0, 2), ShapeError, "permute: axis 2 does not exist: valid axes are -2 to 1"),
    "expand": (lambda: Z.expand(2, 6), ShapeError, "expand: shape .* axis -1 is 3 and only size 1 repeats"),
    "expand fewer": (lambda: Z.expand(3), ShapeError, "expand: shape .* has more axes"),
    "transpose": (lambda: Z.transpose(0, 5), ShapeError, "transpose: axis 5"),
    "flip": (lambda: Z.flip(3), ShapeError, "flip: axis 3"),
    "flip twice": (lambda: Z.flip(0, -2), ShapeError, "axis 0 is given twice"),
    "pad odd": (lambda: Z.pad((1, 2, 3)), ShapeError, "pad: shape .* even number"),
    "pad mode": (lambda: Z.pad((1, 1), mode="mirror"), ShapeError, "pad: mode is constant"),
    "pad reflect too far": (lambda: Z.pad((3, 0), mode="reflect"), ShapeError, "needs at most 2 on axis 1"),
    "pad cuts too much": (lambda: Z.pad((-2, -2)), ShapeError, "cuts more than the 3"),
    "shrink": (lambda: Z.shrink(((0, 5), None)), ShapeError, r"shrink: 0 to 5 is not inside axis 0"),
    "cat shapes": (lambda: Tensor.cat([Z, Tensor.zeros(3, 2)]), ShapeError, "cat: part 0 has shape .* part 1 has"),
    "cat of numbers": (lambda: Tensor.cat([Z, 3]), DTypeError, "cat: part 1 is int"),
    "cat of nothing": (lambda: Tensor.cat([]), ShapeError, "cat: needs at least one"),
    "stack shapes": (lambda: Tensor.stack([Z, Tensor.zeros(3)]), ShapeError, "stack: part 0 has shape"),
    "split sizes": (lambda: Z.split([1, 1], 1), ShapeError, "split: sizes .* add up to 2, but axis 1 .* has 3"),
    "unfold": (lambda: Z.unfold(1, 4, 1), ShapeError, "unfold: windows of 4"),
    "tril": (lambda: Tensor.zeros(3).tril(), ShapeError, "tril: needs two axes"),
    "axis and dim": (lambda: Z.unsqueeze(0, axis=1), ShapeError, "the same argument"),
    "movedim": (lambda: Z.movedim((0, 1), 0), ShapeError, "movedim"),
    "scalar axis": (lambda: Tensor(1.0).unfold(2, 1), ShapeError, "has no axes"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()
