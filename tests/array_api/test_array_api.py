"""The array API's namespace: how it is reached, what it says of itself, and how other libraries take tensors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import array_api as xp
from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor, jit


def test_a_tensor_names_its_namespace() -> None:
    x = Tensor([[1.0, 2.0]])
    assert x.__array_namespace__() is xp is x.__array_namespace__(api_version="2023.12") is an.array_api
    with pytest.raises(ValueError, match=r"version 2024\.12"):
        x.__array_namespace__(api_version="2030.12")
    assert (x.size, x.size == 2, x.size(), x.size(1), x.device) == (2, True, (1, 2), 2, "cpu")
    with pytest.raises(ShapeError, match=r"size: axis 2"):
        x.size(2)
    assert x.to_device("cpu") is x
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["indexing"] is xp.int32 is info.default_dtypes(device="cpu")["integral"]
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", "float32", "float64"]
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices()


def test_nothing_is_imported_before_it_is_used() -> None:
    rooms = "anneal.linalg", "anneal.fft", "anneal.array_api"
    code = f"""
import sys
import anneal as an
an.zeros(3).sum().item()
assert not {set(rooms)!r} & set(sys.modules)
an.linalg, an.fft, an.array_api
assert {set(rooms)!r} <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_of_the_standard_run_lazily_and_inside_jit() -> None:
    def standardised(x: Any) -> Any:
        ns = x.__array_namespace__()
        mean = ns.mean(x, axis=0, keepdims=True)
        return ns.where(
            ns.std(x, axis=0, keepdims=True) > 0, (x - mean) / ns.std(x, axis=0, keepdims=True), ns.asarray(0.0)
        )

    values = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
    lazy = standardised(Tensor(values))
    assert not lazy.is_realized
    captured = jit(standardised)
    for _ in range(3):
        np.testing.assert_allclose(captured(Tensor(values)).numpy(), [[-1, 0], [1, 0]])
    np.testing.assert_allclose(lazy.numpy(), [[-1, 0], [1, 0]])


def test_arrays_of_others_become_tensors_and_tensors_theirs() -> None:
    x = xp.asarray([[1, 2], [3, 4]], dtype=xp.float32)
    for made in (np.from_dlpack(x), np.asarray(x), np.asarray(x, dtype=np.float64), np.reshape(x, (2, 2))):
        np.testing.assert_array_equal(made, [[1, 2], [3, 4]])
    assert np.sum(x) == 10
    assert xp.float32 == np.float32
    exp: Any = np.exp(x)  # ufuncs give tensors, as torch's
    assert isinstance(exp, Tensor)
    np.testing.assert_array_equal(exp.numpy(), np.exp(x.numpy()))
    for array in (np.arange(3, dtype=np.int16), np.array([True]), np.zeros((2, 0))):
        made = xp.from_dlpack(array)
        assert (made.dtype.name, made.shape) == (array.dtype.name, array.shape)
        assert xp.asarray(array).tolist() == array.tolist()
    torch = pytest.importorskip("torch")
    for theirs in (torch.as_tensor(x), torch.from_dlpack(x)):
        assert theirs.tolist() == x.tolist()
    assert xp.from_dlpack(torch.arange(3)).tolist() == xp.asarray(torch.arange(3)).tolist() == [0, 1, 2]


def test_what_is_copied_and_what_is_not() -> None:
    x = xp.asarray([1, 2])
    assert xp.asarray(x) is xp.asarray(x, copy=False) is xp.astype(x, xp.int32, copy=False) is x
    assert xp.asarray(x, copy=True) is not x
    y = xp.astype(x, xp.int32)
    y += 1
    assert (x.tolist(), y.tolist()) == ([1, 2], [2, 3])
    assert xp.asarray([2**40]).dtype is xp.asarray(2**40).dtype is xp.full((), 2**40).dtype is xp.int64
    assert xp.asarray([2**63]).dtype is xp.uint64
    assert xp.asarray([x, x]).tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: xp.asarray([1], copy=False), ValueError, "asarray: a tensor has memory of its own"),
        (
            lambda x: xp.asarray(x, dtype=xp.int8, copy=False),
            ValueError,
            "asarray: another dtype or device needs a copy",
        ),
        (lambda x: xp.from_dlpack(np.ones(2), copy=False), BufferError, "from_dlpack: a tensor has memory of its own"),
        (lambda x: x.__dlpack__(copy=False), BufferError, "__dlpack__: values are copied"),
        (lambda x: x.__dlpack__(dl_device=(2, 0)), BufferError, r"__dlpack__: values go by way of the cpu"),
        (lambda x: xp.add(1, 2), DTypeError, "add: one of the two is an array"),
        (lambda x: xp.squeeze(x, axis=0), ShapeError, "squeeze: axis 0 of shape .* has 2 elements"),
        (lambda x: xp.take(x, x), ShapeError, r"take: axis is needed for shape \(2, 3\)"),
        (lambda x: xp.cumulative_sum(x), ShapeError, "cumulative_sum: axis is needed"),
        (lambda x: xp.expand_dims(x, axis=(0, 0)), ShapeError, "expand_dims: an axis is named twice"),
        (lambda x: xp.repeat(x, xp.asarray([1, 2, 3]), axis=0), ShapeError, "repeat: 3 counts for axis 0"),
        (lambda x: xp.searchsorted(x[0], x[0], side="both"), ShapeError, 'searchsorted: side is "left" or "right"'),
        (lambda x: xp.nonzero(x[0, 0]), ShapeError, r"nonzero: an array of shape \(\)"),
        (lambda x: xp.arange(1, 2, 0), ShapeError, "arange: step must not be 0"),
        (lambda x: xp.isdtype(xp.int8, "integer"), DTypeError, "isdtype: kinds are bool, signed integer"),
        (lambda x: xp.finfo(xp.int8), DTypeError, "finfo: takes a float dtype"),
        (lambda x: xp.iinfo(xp.float32), DTypeError, "iinfo: takes an integer dtype"),
        (lambda x: xp.result_type(1, 2.0), DTypeError, "result_type: takes an array or a dtype"),
        (lambda x: xp.clip(x, xp.asarray(1.5)), DTypeError, "clip: bounds of float32 for int32"),
    ],
)
def test_mistakes_are_named(call: Callable[[Tensor], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(Tensor(np.arange(6, dtype=np.int32).reshape(2, 3)))


@pytest.mark.parametrize("axis", [0, -1])
def test_an_array_of_no_axes_has_one_to_name(axis: int) -> None:
    """As NumPy's: squeeze and repeat take the axis that a row of one element would have, and no other."""
    x = xp.asarray(1.5)
    assert xp.squeeze(x, axis=axis).shape == ()
    assert xp.repeat(x, xp.asarray(2), axis=axis).tolist() == [1.5, 1.5]
    assert xp.repeat(x, xp.asarray([3]), axis=axis).tolist() == [1.5] * 3
    assert xp.repeat(x, 2, axis=axis).tolist() == [1.5, 1.5]
    for f in (xp.squeeze, lambda x, axis: xp.repeat(x, xp.asarray([2]), axis=axis)):
        with pytest.raises(ShapeError, match="axis 1 does not exist"):
            f(x, axis=1)
