"""The array API beside array-api-strict: every function, dtype and shape, and special values (beside_strict.py)."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

from anneal import array_api as ours
from tests.array_api.beside_strict import (
    BINARY,
    DTYPES,
    FAMILIES,
    SHAPES,
    UNARY,
    compare,
    drawn,
    elementwise,
    special,
    strict,
)
from tests.tiers import thinned


def rows(*lists: Any) -> Any:
    return [pytest.param(*row) for row in itertools.product(*lists)]


# Of two zeros either is the larger: the standard does not say which.
TIES = ("maximum", "minimum")
PUBLIC = [n for n in dir(ours) if not n.startswith("_") and inspect.isfunction(getattr(ours, n))]


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name: str) -> None:
    assert [said for dtype in DTYPES for call in elementwise(name, dtype) if (said := compare(call))] == []


@pytest.mark.parametrize(("name", "first"), thinned(rows(BINARY, DTYPES), test=11, ci=11))
def test_functions_of_two(name: str, first: str) -> None:
    assert [said for call in elementwise(name, first) if (said := compare(call))] == []


@pytest.mark.parametrize(("family", "dtype", "shape"), thinned(rows(FAMILIES, DTYPES, SHAPES), test=15, ci=15))
def test_functions_of_arrays(family: str, dtype: str, shape: tuple[int, ...]) -> None:
    assert [said for call in FAMILIES[family](drawn(dtype, shape)) if (said := compare(call))] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_functions_of_arrays_on_each_device(family: str, device: str) -> None:
    calls = [
        call for call in FAMILIES[family](drawn("float32", (2, 3))) if "64" not in str([a.dtype for a in call.arrays])
    ]
    assert [
        said for call in calls[:: 5 if device == "webgpu" else 2] if "64" not in call.said and (said := compare(call))
    ] == []


# -- dtypes and names -------------------------------------------------------------------------------------------------


def test_every_name_is_there_with_the_standards_arguments() -> None:
    missing = [
        n
        for n in dir(strict)
        if not n.startswith("_") and inspect.isfunction(getattr(strict, n)) and not hasattr(ours, n)
    ]
    assert [n for n in missing if "array_api_strict_flags" not in n] == []
    spaces = [(ours, strict, PUBLIC), (ours.linalg, strict.linalg, strict.linalg.__all__)]
    for mine, theirs, names in spaces:
        for name in names:
            one, two = (
                [(p.name, p.kind) for p in inspect.signature(getattr(space, name)).parameters.values()]
                for space in (mine, theirs)
            )
            assert one == two, name
    array = strict.asarray([[1]])
    lacking = [n for n in dir(array) if not n.startswith("_") and not hasattr(ours.asarray([[1]]), n)]
    assert lacking == []
    for name in ("e", "inf", "pi", "newaxis"):
        assert getattr(ours, name) == getattr(strict, name)


def test_promotion_casts_and_kinds() -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        mine, theirs = ((getattr(xp, a), getattr(xp, b)) for xp in (ours, strict))
        assert ours.can_cast(*mine) == strict.can_cast(*theirs), (a, b)
        try:
            expected = strict.result_type(*theirs)
        except TypeError:
            continue
        assert ours.result_type(*mine).name == str(expected).rpartition(".")[2], (a, b)
        x, y = ours.ones(2, dtype=mine[0]), ours.ones((), dtype=mine[1])
        assert (x + y).dtype is (y + x).dtype is ours.result_type(x, y) if a != "bool" or b != "bool" else True
    kinds: list[Any] = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating"]
    for a, kind in itertools.product(DTYPES, [*kinds, "numeric", ("bool", "integral")]):
        assert ours.isdtype(getattr(ours, a), kind) == strict.isdtype(getattr(strict, a), kind), (a, kind)
    for name, fields in (("finfo", "bits eps max min smallest_normal"), ("iinfo", "bits max min")):
        for a in DTYPES:
            if a.startswith("float") if name == "finfo" else "int" in a:
                one, two = (getattr(xp, name)(getattr(xp, a)) for xp in (ours, strict))
                assert [getattr(one, f) for f in fields.split()] == [getattr(two, f) for f in fields.split()]


CREATED: list[tuple[str, Any]] = [
    *[
        ("arange", a)
        for a in [(5,), (0,), (2, 5), (5, 2), (5, 2, -1), (1, 10, 3), (0.0, 1.0, 0.1), (10, 0, -3), (2.5,)]
    ],
    *[("linspace", a) for a in [(0, 1, 5), (0.0, 1.0, 1), (0, 1, 0), (5, -5, 11), (1.5, 3.25, 7)]],
    *[("eye", a) for a in [(3,), (2, 3), (0, 2), (3, 1)]],
    *[(n, (s,)) for n in ("zeros", "ones") for s in [(), 3, (0, 3), (2, 3)]],
    *[("full", (s, v)) for s in [(), (2, 3)] for v in [2, 2.5, True]],
    *[("asarray", (v,)) for v in [1, 2.5, True, [1, 2], [[1, 2.5], [3, 4]], [True, False], [], [[]], float("inf")]],
]


@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_new_arrays(dtype: str | None) -> None:
    others: dict[str, list[dict[str, Any]]] = {
        "linspace": [{}, {"endpoint": False}],
        "eye": [{"k": k} for k in (-4, -1, 0, 1, 2)],
    }
    for name, args in CREATED:
        floats = any(isinstance(a, float) for a in args) or name == "linspace"
        if floats and dtype is not None and not dtype.startswith("float"):
            continue  # the standard has a float dtype there
        for more in others.get(name, [{}]):
            options = ({**more} if dtype is None else {**more, "dtype": getattr(xp, dtype)} for xp in (ours, strict))
            mine, theirs = options
            try:
                expected = np.asarray(getattr(strict, name)(*args, **theirs)._array)
            except (TypeError, ValueError, OverflowError):
                continue
            if dtype is None:  # default dtypes are NumPy's there
                small = {"int64": "int32", "float64": "float32"}
                expected = expected.astype(small.get(expected.dtype.name, expected.dtype.name))
            made = getattr(ours, name)(*args, **mine).numpy()
            assert made.dtype == expected.dtype, (name, args, more)
            np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6, err_msg=f"{name} {args} {more}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", [(), (2,), (0,), (2, 1)])
def test_linear_algebra(lead: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(lead))
    a = rng.standard_normal((*lead, 3, 3))
    a, b = (a @ np.swapaxes(a, -1, -2) + np.eye(3)).astype(dtype), rng.standard_normal((*lead, 3, 2)).astype(dtype)
    one = ("cholesky", "det", "inv", "matrix_norm", "pinv", "slogdet", "svdvals", "matrix_rank", "eigvalsh")
    calls: list[Any] = [lambda xp, x, y, n=name: getattr(xp.linalg, n)(x) for name in one]
    calls += [
        lambda xp, x, y: xp.linalg.solve(x, y),
        lambda xp, x, y: xp.linalg.matrix_power(x, 3),
        lambda xp, x, y: [xp.abs(z) for z in xp.linalg.qr(y, mode="complete")],
        lambda xp, x, y: [xp.abs(z) for z in xp.linalg.svd(x)],
        lambda xp, x, y: [xp.abs(z) for z in xp.linalg.eigh(x)],
        lambda xp, x, y: [
            xp.linalg.vecdot(x, x),
            xp.linalg.cross(x, x + 1),
            xp.linalg.matrix_norm(y, ord="nuc", keepdims=True),
        ],
    ]
    for call in calls:
        mine, theirs = call(ours, ours.asarray(a), ours.asarray(b)), call(strict, strict.asarray(a), strict.asarray(b))
        for x, y in zip(*[v if isinstance(v, (list, tuple)) else [v] for v in (mine, theirs)], strict=True):
            want = np.asarray(y._array)
            assert x.dtype.name in (want.dtype.name, "int32")
            tolerance = 2e-3 if dtype == "float32" else 1e-9
            np.testing.assert_allclose(x.numpy(), want, rtol=tolerance, atol=tolerance)


def test_a_difference_is_told() -> None:
    """The comparison can fail: of values, dtypes, shapes and signs of zero."""
    from tests.array_api.beside_strict import Call

    x = special("float32")
    for of in (
        lambda xp, a: a + 1 if xp is ours else a,
        lambda xp, a: xp.astype(a, xp.float64) if xp is ours else a,
        lambda xp, a: xp.expand_dims(a, axis=0) if xp is ours else a,
        lambda xp, a: xp.abs(a) if xp is ours else a,
    ):
        assert compare(Call("planted", of, (x,)))
    zero = np.array([0.0], np.float32)
    assert compare(Call("planted", lambda xp, a: -a if xp is ours else a, (zero,)))
