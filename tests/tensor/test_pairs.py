"""Values with their indices: torch's `dim=` forms beside torch's own; and `axis=` forms, which give values alone."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import DTypeError, ShapeError
from anneal.tensor import MinMax, Tensor, ValuesIndices, Variable, grad, jit, jvp, vmap
from tests.helpers import check_kernels, check_values, optional, reference

torch = optional("torch")

N = math.nan
GENERATOR = np.random.default_rng(5)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "floats": GENERATOR.permutation(24).reshape(2, 3, 4).astype(np.float32),
    "ints": GENERATOR.permutation(24).reshape(2, 3, 4).astype(np.int32),
    "ties": GENERATOR.integers(0, 3, (2, 3, 4)).astype(np.float32),
    "nan": np.array([[1.0, N, 3.0, N], [4.0, 2.0, 1.0, 9.0], [N, N, N, N]], np.float32),
    "long": GENERATOR.permutation(70).astype(np.float32),
    "number": np.array(3.0, np.float32),
}
FORMS: dict[str, Callable[[Any, int], Any]] = {
    "max": lambda x, dim: x.max(dim=dim),
    "max by position": lambda x, dim: x.max(dim),
    "max kept": lambda x, dim: x.max(dim, keepdim=True),
    "min": lambda x, dim: x.min(dim=dim),
    "min kept": lambda x, dim: x.min(dim, True),
    "median": lambda x, dim: x.median(dim=dim),
    "median kept": lambda x, dim: x.median(dim, keepdim=True),
    "nanmedian": lambda x, dim: x.nanmedian(dim=dim),
    "nanmedian kept": lambda x, dim: x.nanmedian(dim, keepdim=True),
    "sort": lambda x, dim: x.sort(dim=dim),
    "sort descending": lambda x, dim: x.sort(dim, descending=True),
    "topk": lambda x, dim: x.topk(1, dim=dim),
    "topk smallest": lambda x, dim: x.topk(1, dim=dim, largest=False),
    "kthvalue": lambda x, dim: x.kthvalue(1, dim=dim),
    "kthvalue kept": lambda x, dim: x.kthvalue(1, dim=dim, keepdim=True),
    "mode": lambda x, dim: x.mode(dim=dim),
    "mode kept": lambda x, dim: x.mode(dim, keepdim=True),
    "cummax": lambda x, dim: x.cummax(dim=dim),
    "cummin": lambda x, dim: x.cummin(dim),
}
# Where several elements are equal torch promises nothing of which of them it means; these mean the same one as torch.
FIRST = ("max", "min", "cummax", "cummin")


def means_the_same(form: str) -> bool:
    return form.startswith(FIRST)


# nan equals nothing, so no element is there most often.
@pytest.mark.parametrize(
    ("form", "kind"), [(f, k) for f in FORMS for k in ARRAYS if not (k == "nan" and f.startswith("mode"))]
)
def test_values_and_indices_are_torchs(form: str, kind: str) -> None:
    array = ARRAYS[kind]
    for dim in {-1, 0, array.ndim // 2 if array.ndim else 0}:
        ours, theirs = FORMS[form](Tensor(array), dim), FORMS[form](torch.tensor(array), dim)
        values, indices = ours
        assert values is ours.values
        assert indices is ours.indices
        check_values(ours.values, theirs.values.numpy(), dtype=array.dtype.name)
        assert ours.indices.dtype.name == "int32"
        assert ours.indices.shape == tuple(theirs.indices.shape)
        places = reference(ours.indices)
        np.testing.assert_array_equal(places, ours.indices.numpy())
        if kind in ("floats", "ints", "long", "number") or means_the_same(form):
            np.testing.assert_array_equal(places, theirs.indices.numpy())
        elif array.ndim:
            full = places if places.ndim == array.ndim else np.expand_dims(places, dim)
            there = np.take_along_axis(array, full, dim).reshape(places.shape)
            np.testing.assert_array_equal(there, theirs.values.numpy())


@pytest.mark.parametrize("kind", ["floats", "ints", "ties", "nan"])
def test_aminmax_is_torchs(kind: str) -> None:
    array = ARRAYS[kind]
    for options in ({}, {"dim": 0}, {"dim": -1, "keepdim": True}):
        ours, theirs = Tensor(array).aminmax(**options), torch.tensor(array).aminmax(**options)
        low, high = ours
        assert isinstance(ours, MinMax)
        assert low is ours.min
        assert high is ours.max
        check_values(low, theirs.min.numpy())
        check_values(high, theirs.max.numpy())


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
def test_without_a_dim_and_with_an_axis_there_are_values_alone(name: str) -> None:
    array = ARRAYS["floats"]
    x, numpys = Tensor(array), getattr(np, name)
    of = operator.methodcaller
    check_values(of(name)(x), getattr(torch.tensor(array), name)().numpy())
    expected = np.sort(array, 1)[:, 1] if "median" in name else numpys(array, 1)
    check_values(of(name, axis=1)(x), expected)
    check_values(of(name, axis=1, keepdim=True)(x), np.expand_dims(expected, 1))
    whole = np.sort(array.transpose(1, 0, 2).reshape(3, 8), 1)[:, 3] if "median" in name else numpys(array, (0, 2))
    check_values(of(name, axis=(0, 2))(x), whole)


def test_running_extremes_along_an_axis_are_values_alone() -> None:
    array = ARRAYS["ties"]
    check_values(Tensor(array).cummax(axis=1), np.maximum.accumulate(array, 1))
    check_values(Tensor(array).cummin(axis=-1), np.minimum.accumulate(array, -1))


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "cummax", "cummin"])
def test_dim_and_axis_are_two_forms(name: str) -> None:
    x = Tensor(ARRAYS["floats"])
    with pytest.raises(ShapeError, match=rf"{name}: dim=1 gives values with their indices, axis=1 the values alone"):
        getattr(x, name)(dim=1, axis=1)
    with pytest.raises(ShapeError, match=rf"{name}: axis 3 does not exist"):
        getattr(x, name)(dim=3)
    with pytest.raises(ShapeError, match=f"{name}: dim is one axis.*int"):
        getattr(x, name)("rows")


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
def test_a_dim_is_one_axis(name: str) -> None:
    with pytest.raises(ShapeError, match=rf"{name}: dim is one axis.*axis=\(0, 1\)"):
        getattr(Tensor(ARRAYS["floats"]), name)(dim=(0, 1))


def test_there_is_nothing_to_choose_from_in_nothing() -> None:
    for name in ("max", "min", "median", "nanmedian"):
        with pytest.raises(ShapeError, match=f"{name}: shape .* has nothing to choose from along axis 1"):
            getattr(Tensor.zeros(2, 0), name)(dim=1)


def test_the_larger_of_two_is_no_pair() -> None:
    check_values(Tensor([1.0, 5.0]).max(Tensor([3.0, 2.0])), [3.0, 5.0])
    check_values(Tensor([1.0, 5.0]).min(Tensor([3.0, 2.0])), [1.0, 2.0])


def test_a_pair_says_what_it_holds() -> None:
    pair = Tensor([[1, 5], [7, 3]]).max(dim=1)
    assert repr(pair) == "ValuesIndices(values=Tensor([5, 7], dtype=int32), indices=Tensor([1, 0], dtype=int32))"
    assert pair._fields == ("values", "indices")
    assert isinstance(pair, tuple)
    assert repr(Tensor([1, 5]).aminmax()) == "MinMax(min=Tensor(1, dtype=int32), max=Tensor(5, dtype=int32))"


@pytest.mark.parametrize("use", [lambda x, p: x - p, lambda x, p: x * p, lambda x, p: Tensor(p)])
def test_a_pair_in_place_of_a_tensor_is_an_error_that_says_so(use: Callable[[Tensor, Any], Tensor]) -> None:
    x = Tensor([[1.0, 5.0], [7.0, 3.0]])
    with pytest.raises(DTypeError, match=r"ValuesIndices.*\.values"):
        use(x, x.max(dim=1, keepdim=True))


@pytest.mark.parametrize(
    ("form", "kind"), [(f, k) for f in FORMS for k in ("floats", "ties") if k == "floats" or means_the_same(f)]
)
def test_the_gradient_goes_to_the_indices_as_in_torch(form: str, kind: str) -> None:
    array = ARRAYS[kind].astype(np.float64)
    x, t = Tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    ours, theirs = FORMS[form](x, 1).values, FORMS[form](t, 1).values
    weight = GENERATOR.standard_normal(ours.shape)
    (ours * Tensor(weight)).sum().backward()
    (theirs * torch.tensor(weight)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-12)


def test_forward_mode_follows_the_indices_too() -> None:
    x, v = Tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]]), Tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    _, tangent = jvp(lambda x: x.max(dim=1).values, (x,), (v,))
    check_values(tangent, [2.0, 8.0])
    _, tangent = jvp(lambda x: x.cummax(1).values, (x,), (v,))
    check_values(tangent, [[1.0, 2.0, 4.0], [8.0, 8.0, 8.0]])


def test_jit_takes_and_gives_pairs() -> None:
    double = jit(lambda pair: pair._replace(values=pair.values * 2))
    largest = jit(lambda x: x.max(dim=1))
    for i in range(4):
        x = Tensor([[1.0, 5.0 + i], [7.0, 3.0]])
        pair = double(largest(x))
        assert type(pair) is ValuesIndices
        check_values(pair.values, [10.0 + 2 * i, 14.0])
        check_values(pair.indices, [1, 0])


def test_vmap_and_gradients_go_through_pairs() -> None:
    x = Tensor(ARRAYS["floats"])
    pair = vmap(lambda row: row.max(dim=0))(x)
    assert type(pair) is ValuesIndices
    check_values(pair.values, ARRAYS["floats"].max(1))
    check_values(pair.indices, ARRAYS["floats"].argmax(1))
    both = vmap(lambda row: row.aminmax())(x)
    check_values(both.max, ARRAYS["floats"].max((1, 2)))
    ends = vmap(lambda row: row.cummax(-1).indices)(x)
    check_values(ends, torch.tensor(ARRAYS["floats"]).cummax(-1).indices.numpy())
    slope = grad(lambda pair: (pair.values * pair.values).sum())(ValuesIndices(Tensor([2.0]), Tensor([1.0])))
    assert type(slope) is ValuesIndices
    check_values(slope.values, [4.0])
    check_values(vmap(grad(lambda row: row.max(dim=-1).values.sum()))(x).sum(), 6.0)


def test_values_alone_cost_no_positions() -> None:
    x = Tensor(ARRAYS["floats"]).realize()
    check_kernels(x.max(dim=1).values, 1)
    check_kernels(x.cummax(dim=1).values, 1)


@pytest.mark.parametrize("name", ["max", "min", "nanmedian", "cummax", "cummin"])
def test_an_axis_may_be_as_long_as_a_run_says(name: str) -> None:
    array, n = ARRAYS["ties"].reshape(3, 8), Variable("n", 1, 8)
    for size in (1, 5, 8):
        ours = getattr(Tensor(array)[:, : n.bind(size)], name)(dim=1)
        theirs = getattr(torch.tensor(array[:, :size]), name)(dim=1)
        np.testing.assert_array_equal(ours.values.numpy(), theirs.values.numpy())
        if name != "nanmedian":
            np.testing.assert_array_equal(ours.indices.numpy(), theirs.indices.numpy())


@pytest.mark.parametrize("form", [{"dim": 1}, {"axis": 1}])
def test_a_median_takes_a_number_of_elements(form: dict[str, int]) -> None:
    with pytest.raises(ShapeError, match=r"median: takes a number of elements, and here there are n=3"):
        Tensor(ARRAYS["ties"].reshape(3, 8))[:, : Variable("n", 1, 8).bind(3)].median(**form)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize("name", ["max", "min", "median", "cummax", "cummin"])
def test_values_keep_their_dtype(name: str, dtype: str) -> None:
    x = Tensor(ARRAYS["ties"]).cast(dtype)
    ours, theirs = getattr(x, name)(dim=1), getattr(torch.tensor(x.float().numpy()), name)(dim=1)
    assert (ours.values.dtype.name, ours.indices.dtype.name) == (dtype, "int32")
    np.testing.assert_array_equal(ours.values.float().numpy(), theirs.values.numpy())


@pytest.mark.parametrize("q", [0.3, [0.0, 0.25, 1.0]])
@pytest.mark.parametrize("interpolation", ["linear", "nearest", "higher"])
def test_a_quantile_is_of_as_many_elements_as_a_run_says(interpolation: str, q: Any) -> None:
    array, n = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32), Variable("n", 1, 8)
    for size in (1, 4, 7):
        found = Tensor(array)[:, : n.bind(size)].quantile(q, 1, interpolation=interpolation)
        wanted = np.quantile(array[:, :size].astype(np.float64), q, axis=1, method=interpolation)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-6)


# The names of the parts of results, as torch 2.13.0's `torch.return_types` have them.
PARTS: dict[str, tuple[str, ...]] = {
    "aminmax": ("min", "max"),
    "cummax": ("values", "indices"),
    "cummin": ("values", "indices"),
    "frexp": ("mantissa", "exponent"),
    "histogram": ("hist", "bin_edges"),
    "kthvalue": ("values", "indices"),
    "linalg.cholesky_ex": ("L", "info"),
    "linalg.eigh": ("eigenvalues", "eigenvectors"),
    "linalg.inv_ex": ("inverse", "info"),
    "linalg.lstsq": ("solution", "residuals", "rank", "singular_values"),
    "linalg.lu": ("P", "L", "U"),
    "linalg.lu_factor": ("LU", "pivots"),
    "linalg.lu_factor_ex": ("LU", "pivots", "info"),
    "linalg.qr": ("Q", "R"),
    "linalg.slogdet": ("sign", "logabsdet"),
    "linalg.solve_ex": ("result", "info"),
    "linalg.svd": ("U", "S", "Vh"),
    "max": ("values", "indices"),
    "median": ("values", "indices"),
    "min": ("values", "indices"),
    "mode": ("values", "indices"),
    "nanmedian": ("values", "indices"),
    "slogdet": ("sign", "logabsdet"),
    "sort": ("values", "indices"),
    "svd": ("U", "S", "V"),
    "topk": ("values", "indices"),
}
ARGUMENTS: dict[str, tuple[int, ...]] = {
    "kthvalue": (1,), "histogram": (2,), "topk": (1,), **dict.fromkeys(["cummax", "cummin", "max", "median", "min", "nanmedian"], (0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_results_have_torch_names(name: str) -> None:
    function = operator.attrgetter(name)(an)
    x = an.eye(2) + 1 if "linalg" in name or name in ("slogdet", "svd") else an.tensor([3.0, 1.0, 2.0])
    rest = (x,) if name in ("linalg.lstsq", "linalg.solve_ex") else ARGUMENTS.get(name, ())
    assert function(x, *rest)._fields == PARTS[name]
