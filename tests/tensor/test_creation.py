"""Tensors made from data and from nothing, dtypes, values out, and the small promises of the class."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anneal import jit, settings
from anneal.backend import get_device
from anneal.errors import DeviceError, DTypeError, GradientError, JitError, ShapeError
from anneal.tensor import Tensor, as_dtype, default_device, dtypes, grad_enabled, meshgrid, no_grad, set_default_device
from anneal.uop import promote
from tests.helpers import check_values

both_devices = pytest.mark.usefixtures("device")

MADE: dict[str, tuple[Any, Any, str]] = {
    "a float": (lambda: Tensor(2.5), 2.5, "float32"),
    "an int": (lambda: Tensor(3), 3, "int32"),
    "a bool": (lambda: Tensor(True), True, "bool"),
    "a list": (lambda: Tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]], "int32"),
    "a list of floats": (lambda: Tensor([1, 2.5]), [1.0, 2.5], "float32"),
    "a list of bools": (lambda: Tensor([True, False]), [True, False], "bool"),
    "a range": (lambda: Tensor(range(3)), [0, 1, 2], "int32"),
    "an empty list": (lambda: Tensor([]), np.zeros(0), "float32"),
    "an array": (lambda: Tensor(np.array([1.5], np.float32)), [1.5], "float32"),
    "a NumPy scalar": (lambda: Tensor(np.float32(1.5)), 1.5, "float32"),
    "a strided array": (lambda: Tensor(np.arange(6, dtype=np.int32)[::-2]), [5, 3, 1], "int32"),
    "a dtype": (lambda: Tensor([1, 2], dtype="float32"), [1.0, 2.0], "float32"),
    "a tensor": (lambda: Tensor(Tensor([1, 2]), dtype=float), [1.0, 2.0], "float32"),
    "full": (lambda: Tensor.full((2, 2), 7), np.full((2, 2), 7), "int32"),
    "full of floats": (lambda: Tensor.full(3, 0.5), [0.5] * 3, "float32"),
    "zeros": (lambda: Tensor.zeros(2, 3), np.zeros((2, 3)), "float32"),
    "zeros of a tuple": (lambda: Tensor.zeros((2, 3), dtype="int32"), np.zeros((2, 3)), "int32"),
    "no axes": (lambda: Tensor.ones(), 1.0, "float32"),
    "ones": (lambda: Tensor.ones(2, dtype="bool"), [True, True], "bool"),
    "empty": (lambda: Tensor.empty(2), [0.0, 0.0], "float32"),
    "eye": (lambda: Tensor.eye(3), np.eye(3), "float32"),
    "eye of two": (lambda: Tensor.eye(2, 4, dtype="int32"), np.eye(2, 4), "int32"),
    "tri": (lambda: Tensor.tri(3, 4, 1), np.tri(3, 4, 1), "float32"),
    "arange": (lambda: Tensor.arange(5), np.arange(5), "int32"),
    "arange from": (lambda: Tensor.arange(2, 9, 3), np.arange(2, 9, 3), "int32"),
    "arange down": (lambda: Tensor.arange(5, 0, -2), np.arange(5, 0, -2), "int32"),
    "arange nothing": (lambda: Tensor.arange(5, 0), np.arange(5, 0), "int32"),
    "arange of floats": (lambda: Tensor.arange(0, 1, 0.25), [0.0, 0.25, 0.5, 0.75], "float32"),
    "arange cast": (lambda: Tensor.arange(3, dtype="float32"), [0.0, 1.0, 2.0], "float32"),
    "linspace": (lambda: Tensor.linspace(-1, 2, 7), np.linspace(-1, 2, 7), "float32"),
    "linspace of one": (lambda: Tensor.linspace(3, 4, 1), [3.0], "float32"),
    "zeros_like": (lambda: Tensor([[1], [2]]).zeros_like(), [[0], [0]], "int32"),
    "ones_like": (lambda: Tensor.ones_like(Tensor([1.5])), [1.0], "float32"),
    "full_like": (lambda: Tensor([1.5]).full_like(4), [4.0], "float32"),
    "full_like of another dtype": (lambda: Tensor([1.5]).full_like(4, dtype="int32"), [4], "int32"),
}


@both_devices
@pytest.mark.parametrize("name", MADE)
def test_made(name: str) -> None:
    make, expected, dtype = MADE[name]
    check_values(make(), expected, dtype=dtype)


@both_devices
def test_linspace_ends_exactly() -> None:
    x = Tensor.linspace(0.1, 0.7, 50).numpy()
    assert x[0] == np.float32(0.1)
    assert x[-1] == np.float32(0.7)


def test_arrays_keep_their_dtype_on_the_cpu() -> None:
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        check_values(
            Tensor(np.array([0, 1], name)) + Tensor(np.array([1, 1], name)),
            np.array([0, 1], name) + np.array([1, 1], name),
            dtype=name,
        )
    for name in ("float16", "float32", "float64"):
        check_values(Tensor(np.array([0.5, 1], name)) * 2, [1.0, 2.0], dtype=name)
    assert Tensor([2**40]).dtype is dtypes.int64
    assert Tensor(2**40).item() == 2**40


def test_data_is_copied() -> None:
    array = np.zeros(2, np.float32)
    x = Tensor(array)
    array[0] = 5
    out = x.numpy()
    out[1] = 7
    assert x.tolist() == [0.0, 0.0]


@both_devices
def test_random_tensors_have_the_asked_shape() -> None:
    assert Tensor.rand(2, 3).shape == Tensor.randn((2, 3)).shape == Tensor.rand_like(Tensor.zeros(2, 3)).shape == (2, 3)
    x = Tensor.randint(0, 5, (100,)).numpy()
    assert x.dtype == np.int32
    assert set(x.tolist()) <= set(range(5))
    assert sorted(Tensor.randperm(10).tolist()) == list(range(10))


@pytest.mark.parametrize("name", ["zeros", "ones", "full", "empty", "rand", "randn"])
def test_the_like_of_another_take_a_device_and_want_gradients(name: str) -> None:
    x = Tensor([1.0, 2.0])
    out = getattr(Tensor, f"{name}_like")(x, *([3.0] if name == "full" else []), device="cpu", requires_grad=True)
    assert out.shape == (2,)
    assert out.device == "cpu"
    assert out.requires_grad
    with pytest.raises(DeviceError, match="nowhere"):
        getattr(x, f"{name}_like")(*([3.0] if name == "full" else []), device="nowhere").realize()


def test_meshgrid() -> None:
    a, b = Tensor([1, 2, 3]), Tensor([4, 5])
    assert [t.tolist() for t in meshgrid([a, b])] == [t.tolist() for t in meshgrid(a, b)]
    for indexing in ("ij", "xy"):
        ours = meshgrid(Tensor.arange(2), Tensor.arange(3), indexing=indexing)
        theirs = np.meshgrid(np.arange(2), np.arange(3), indexing=indexing)  # type: ignore[call-overload]
        for got, expected in zip(ours, theirs, strict=True):
            check_values(got, expected)


# -- dtypes -----------------------------------------------------------------------------------------------------------


def test_promotion_is_numpys_without_floats_for_uint64() -> None:
    names = [d for d in vars(dtypes).values() if hasattr(d, "bits")]
    for a in names:
        for b in names:
            assert promote(a, b) is promote(b, a)
            numpys_own = all(d is dtypes.float16 or not d.is_narrow and d is not dtypes.uint64 for d in (a, b))
            if a.is_float == b.is_float and numpys_own:
                assert promote(a, b).name == np.promote_types(a.name, b.name).name
    assert promote(dtypes.uint64, dtypes.int8) is dtypes.int64
    assert promote(dtypes.int64, dtypes.float16) is dtypes.float16


def test_dtypes_by_many_names() -> None:
    assert as_dtype("half") is dtypes.float16
    assert as_dtype(np.float64) is dtypes.float64
    assert as_dtype(np.dtype("uint8")) is dtypes.uint8
    assert as_dtype(bool) is dtypes.bool_
    assert as_dtype(float) is dtypes.float32


def test_short_casts() -> None:
    x = Tensor([1.5])
    names = {
        "half": "float16",
        "float": "float32",
        "double": "float64",
        "int": "int32",
        "long": "int64",
        "bool": "bool",
    }
    for method, name in names.items():
        assert getattr(x, method)().dtype.name == name
    assert x.float() is x
    assert x.to("float16").dtype.name == "float16"
    assert x.to("cpu") is x
    assert x.to(Tensor([1])).dtype.name == "int32"


# -- values out -------------------------------------------------------------------------------------------------------


@both_devices
def test_values_out() -> None:
    x = Tensor([[1.5, -2.0]])
    assert x.tolist() == [[1.5, -2.0]]
    assert Tensor(3).item() == 3
    assert isinstance((Tensor([1]) + 1).item(), int)
    assert float(Tensor(2.5)) == 2.5
    assert int(Tensor([7])) == 7
    assert bool(Tensor([0.5])) is True
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    for f in (np.asarray, np.array):
        with pytest.raises(ValueError, match="copy=False"):
            f(x, copy=False)
    assert len(Tensor.zeros(3, 2)) == 3
    assert [10, 20, 30][Tensor(1)] == 20
    assert f"{Tensor(2.5):.2f}" == "2.50"
    assert Tensor(True).tolist() is True


def test_facts() -> None:
    x = Tensor.zeros(2, 3)
    assert (x.ndim, x.dim(), x.numel(), x.size(), x.size(-1), x.nbytes()) == (2, 2, 6, (2, 3), 3, 24)
    assert x.is_floating_point()
    assert hash(x) == hash(x)
    assert x.device == "cpu"


def test_text() -> None:
    assert repr(Tensor([1.0, 2.5])) == "Tensor([1. , 2.5], dtype=float32)"
    assert repr(Tensor(3)) == "Tensor(3, dtype=int32)"
    assert repr(Tensor([[1, 2], [3, 4]])) == "Tensor([[1, 2],\n        [3, 4]], dtype=int32)"
    assert repr(Tensor([1.0], requires_grad=True)) == "Tensor([1.], dtype=float32, requires_grad=True)"
    assert repr(Tensor([])) == "Tensor([], shape=(0,), dtype=float32)"
    big = Tensor.zeros(100, 100)
    assert repr(big).endswith("[0., 0., 0., ..., 0., 0., 0.]], shape=(100, 100), dtype=float32)")


def test_copies() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other is not x
        assert other.tolist() == [1.0, 2.0]
        assert other.requires_grad


# -- realize, assign, flags -------------------------------------------------------------------------------------------


@both_devices
def test_realize_keeps_values_and_shape() -> None:
    x = Tensor.arange(6).reshape(2, 3) * 2
    y = x + 1
    assert not x.is_realized
    assert x.realize(y) is x
    assert x.is_realized
    assert y.is_realized
    check_values(x, [[0, 2, 4], [6, 8, 10]])
    check_values(y.contiguous() + x, [[1, 5, 9], [13, 17, 21]])


@both_devices
def test_assign_has_value_semantics() -> None:
    x = Tensor([1.0, 2.0])
    y = x * 10
    x.assign(x + 1)
    check_values(x, [2.0, 3.0])
    check_values(y, [10.0, 20.0])
    x.assign(5)
    check_values(x, [5.0, 5.0], dtype="float32")
    w = Tensor([1.0], requires_grad=True)
    w.assign(w * 2)
    assert w.requires_grad
    (w * w).sum().backward()
    assert w.grad is not None
    check_values(w.grad, [4.0])


@both_devices
def test_looking_at_a_value_does_not_cut_the_gradient() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    y.realize()
    loss = (y * 3).sum()
    assert loss.item() == 15.0
    loss.backward()
    assert w.grad is not None
    check_values(w.grad, [6.0, 12.0])


def test_a_lazy_leaf_may_be_realised_before_backward() -> None:
    w = Tensor.ones(2, requires_grad=True)
    loss = (w * 3).sum()
    w.realize()
    loss.backward()
    assert w.grad is not None
    check_values(w.grad, [3.0, 3.0])


def test_no_grad_as_block_decorator_and_nested() -> None:
    w = Tensor([1.0], requires_grad=True)
    with no_grad():
        with Tensor.no_grad():
            assert not (w * 2).requires_grad
        assert not grad_enabled()
    assert grad_enabled()

    @no_grad()
    def double(x: Tensor) -> Tensor:
        return x * 2

    assert not double(w).requires_grad
    with no_grad():
        y = w * 2
    (y * w).sum().backward()
    assert w.grad is not None
    check_values(w.grad, [2.0])


def test_comparisons_and_integers_want_no_gradient() -> None:
    w = Tensor([1.0], requires_grad=True)
    for y in (w > 0, w.int(), w.argmax(), w.detach(), w.isnan()):
        assert not y.requires_grad
    assert w.clone().requires_grad
    assert not w.clone().is_leaf


def test_the_default_device_can_be_set() -> None:
    assert default_device() == "cpu"
    set_default_device("cpu")
    assert default_device() == "cpu"
    set_default_device(None)
    with settings.override(device="cpu"):
        assert Tensor.zeros(1).device == "cpu"


def test_arrays_in_a_list_keep_their_dtype() -> None:
    for kind in (np.float64, np.float32, np.int64, np.int8, np.bool_):
        for data in ([np.ones(2, kind), np.zeros(2, kind)], ([np.ones(1, kind)],), [np.ones((0, 2), kind)]):
            assert Tensor(data).numpy().dtype == kind
    assert [Tensor(data).dtype for data in ([], [[]], [np.array(1.5)])] == [dtypes.float32] * 3
    assert Tensor([np.ones(2), [1, 2]]).tolist() == [[1, 1], [1, 2]]


# -- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "ragged": (
        lambda: Tensor([[1, 2], [3]]),
        ShapeError,
        r"must be a box, but data\[0\] has 2 items but data\[1\] has 1",
    ),
    "ragged deeper": (
        lambda: Tensor([[[1], [2]], [[3], 4]]),
        ShapeError,
        r"data\[0\]\[0\] has 1 items but data\[1\]\[1\] is a number",
    ),
    "ragged arrays": (
        lambda: Tensor([[1], np.ones(2)]),
        ShapeError,
        r"data\[0\] has 1 items but data\[1\] has 2 items",
    ),
    "text": (lambda: Tensor("abc"), DTypeError, "cannot make a tensor of"),
    "an object": (lambda: Tensor(object()), DTypeError, "cannot make a tensor of object"),
    "complex": (lambda: Tensor([1j]), DTypeError, "cannot make a tensor of dtype complex128; known dtypes: bool, int8"),
    "a list of tensors": (lambda: Tensor([Tensor([1, 2]), Tensor([2, 3])]), DTypeError, "use Tensor.stack"),
    "a wrong dtype": (lambda: Tensor([1], dtype="float33"), DTypeError, "unknown dtype 'float33'; known: bool, int8"),
    "a wrong dtype kind": (lambda: Tensor([1], dtype=3), DTypeError, "unknown dtype"),
    "a number too large": (lambda: Tensor([300], dtype="uint8"), DTypeError, "from 300 to 300 do not fit uint8"),
    "a device": (
        lambda: Tensor([1], device="cuda"),
        DeviceError,
        "there is no device 'cuda' here",
    ),
    "to": (lambda: Tensor([1]).to("gpu"), DeviceError, "to: there is no device 'gpu' here"),
    "a negative size": (lambda: Tensor.zeros(2, -1), ShapeError, "zeros: sizes must not be negative"),
    "a float size": (lambda: Tensor.zeros(2.5), ShapeError, "zeros: sizes and axes are ints, not 2.5"),
    "no step": (lambda: Tensor.arange(0, 5, 0), ShapeError, "arange: step must not be 0"),
    "too far": (lambda: Tensor.arange(2**31, 2**31 + 5), DTypeError, "arange: .* does not fit int32"),
    "item of many": (lambda: Tensor([1, 2]).item(), ShapeError, r"item: a tensor of shape \(2,\) has 2 values"),
    "truth of many": (lambda: bool(Tensor([1, 2])), ShapeError, "bool: the truth .* is ambiguous; use .any"),
    "text in a tensor": (lambda: "a" in Tensor([1]), DTypeError, "in: a tensor contains numbers"),
    "None in a tensor": (lambda: None in Tensor([[1.0]]), DTypeError, "in: a tensor contains numbers"),
    "length of a scalar": (lambda: len(Tensor(1)), TypeError, "has no length"),
    "iterating a scalar": (lambda: iter(Tensor(1)), TypeError, "has no rows"),
    "index of a float": (lambda: [1][Tensor(0.0)], TypeError, "only an integer tensor"),
    "gradient of ints": (lambda: Tensor([1], requires_grad=True), DTypeError, "only floats have gradients, not int32"),
    "assign shape": (
        lambda: Tensor([1, 2]).assign(Tensor([1, 2, 3])),
        ShapeError,
        r"assign: a tensor of shape \(2,\) cannot take values of shape \(3,\)",
    ),
    "backward of many": (lambda: Tensor([1.0, 2.0], requires_grad=True).exp().backward(), GradientError, "backward"),
    "decline": (lambda: Tensor([1.0], requires_grad=True).exp().requires_grad_(False), GradientError, "only a leaf"),
    "meshgrid": (lambda: meshgrid(Tensor([1]), indexing="ji"), ShapeError, "meshgrid: indexing is"),
}


def test_a_number_is_in_a_tensor_of_any_shape() -> None:
    """As in torch and NumPy: any element is equal."""
    for x in (Tensor(3.0), Tensor([1.0, 3.0]), Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[[3]], [[1]]])):
        assert [v in x for v in (3.0, 3, Tensor(3.0), np.float32(3), 7.0)] == [True, True, True, True, False]
    assert Tensor([1.0, 4.0]) in Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert 0 not in Tensor.zeros(0)
    with pytest.raises(JitError, match="a branch on the value"):
        jit(lambda x: x * 2 if 1.0 in x else x)(Tensor([1.0, 2.0]))


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_at_the_call(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()


def test_a_device_that_lacks_a_dtype_says_so(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":
        assert math.isclose(Tensor([0.1], dtype="float64").item(), 0.1)
        return
    opened = get_device(device)
    held = opened.limits.dtypes - {dtypes.float64, dtypes.int64}
    monkeypatch.setattr(opened, "limits", replace(opened.limits, dtypes=held))
    with pytest.raises(DTypeError, match="has no float64; it has .*: cast first"):
        Tensor(np.zeros(1))
    with pytest.raises(DTypeError, match="has no int64"):
        Tensor([1]).long()
