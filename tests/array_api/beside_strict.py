"""Calls of the array API, made of our namespace and of array-api-strict, the standard's own strict implementation.

`compare` makes one call of both and tells how the results differ. What array-api-strict refuses is not defined by the
standard, and not compared. Its default dtypes are int64 and float64, ours int32 and float32: sums of narrow integers
and indices are compared as ours.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from anneal import array_api as ours
from anneal.tensor import Tensor

strict = pytest.importorskip("array_api_strict")

Array = np.ndarray[Any, Any]
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (), (1,), (3,), (0,), (3, 0), (2, 1, 4))
INDICES = (
    "argmax", "argmin", "argsort", "searchsorted", "nonzero", "count_nonzero", "unique_all", "unique_counts",
    "unique_inverse", "matrix_rank",
)  # fmt: skip
SUMS = ("sum", "prod", "cumulative_sum", "cumulative_prod", "trace")
NARROW = {
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "uint8": "uint32",
    "uint16": "uint32",
    "uint32": "uint32",
}


class Call(NamedTuple):
    """A call of a function of the namespace `xp`, with these arrays."""

    name: str
    of: Callable[..., Any]
    arrays: tuple[Array, ...]
    said: str = ""


def special(dtype: str) -> Array:
    """Values at which functions are special."""
    kind = np.dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if kind.kind in "iu":
        ends = np.iinfo(kind)
        low, high = int(ends.min), int(ends.max)
        some = {low, low + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100, high - 1, high}
        return np.array(sorted(v for v in some if low <= v <= high), kind)
    f = np.finfo(kind)
    tiny, huge = float(f.tiny), float(f.max)
    some_floats = [tiny, 1e-3, 0.25, 0.5, 1, 1.5, 2, 2.5, 3.3, 100, huge, math.inf]
    return np.array([*[-v for v in some_floats], -0.0, 0.0, *some_floats, math.nan], kind)


def drawn(dtype: str, shape: tuple[int, ...]) -> Array:
    """Small numbers, with ties."""
    rng = np.random.default_rng(len(shape) + 7 * math.prod(shape))
    count = math.prod(shape)
    if dtype == "bool":
        values: Array = rng.integers(0, 2, count)
    elif np.dtype(dtype).kind == "f":
        values = np.round(rng.standard_normal(count) * 4) / 2 + 0.0
    else:
        values = rng.integers(0 if dtype.startswith("u") else -4, 5, count)
    return values.astype(dtype).reshape(shape)


def compare(call: Call) -> str | None:
    """How our results differ from array-api-strict's, None if they do not."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            expected = call.of(strict, *[strict.asarray(a) for a in call.arrays])
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
    dtypes = [str(a.dtype) for a in call.arrays]
    where = f"{call.name} of {', '.join(dtypes)} {call.said}"
    got = call.of(ours, *[Tensor(a) for a in call.arrays])
    mine, theirs = (list(x) if isinstance(x, (tuple, list)) else [x] for x in (got, expected))
    if len(mine) != len(theirs):
        return f"{where}: {len(mine)} results, not {len(theirs)}"
    for x, y in zip(mine, theirs, strict=True):
        if not isinstance(y, type(strict.asarray(0))):
            if x != y:
                return f"{where}: {x}, not {y}"
            continue
        want = np.asarray(y._array)
        if call.name in INDICES and want.dtype == np.int64 and x.dtype.name == "int32":
            want = want.astype(np.int32)
        if call.name in SUMS and dtypes[0] in NARROW and want.dtype.itemsize == 8 and "float" not in call.said:
            want = want.astype(NARROW[dtypes[0]] if "int64" not in call.said else want.dtype)
        if said := _differs(x.numpy(), want):
            return f"{where}: {said}"
    return None


def _differs(mine: Array, theirs: Array) -> str:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{mine.dtype} of shape {mine.shape}, not {theirs.dtype} of shape {theirs.shape}"
    if mine.dtype.kind != "f":
        wrong = mine != theirs
    else:
        tolerance = 3e-6 if mine.dtype == np.float32 else 1e-12
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        wrong = ~np.isclose(a, b, tolerance, tolerance * 0.1, equal_nan=True)
        tiny = np.finfo(mine.dtype).tiny
        wrong |= (np.abs(b) > 2 * tiny) & (a == 0)
        wrong |= (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not np.any(wrong):
        return ""
    at = tuple(np.argwhere(np.atleast_1d(wrong))[0])
    return f"{np.atleast_1d(mine)[at]} at {at}, not {np.atleast_1d(theirs)[at]}"


# -- element by element -----------------------------------------------------------------------------------------------

UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj", "cos", "cosh", "exp", "expm1",
    "floor", "imag", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not", "negative", "positive",
    "real", "reciprocal", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "copysign",
    "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp",
    "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow",
    "remainder", "subtract",
]  # fmt: skip


def _defined(name: str, first: str, y: Array) -> Array:
    """The second operands for which the standard says what comes of it."""
    kind, wide = y.dtype.kind, y.astype(object)
    if "shift" in name and kind in "iu":
        return y[(wide >= 0) & (wide < 8 * np.dtype(first).itemsize)]
    if name in ("floor_divide", "remainder") and kind in "iu":
        return y[y != 0]
    if name == "floor_divide" and kind == "f":
        return y[~np.isinf(y)]
    return y[(wide >= 0) & (wide < 8)] if name == "pow" and kind in "iu" else y


def elementwise(name: str, first: str) -> Iterator[Call]:
    """Calls of one function whose first operand is of one dtype."""
    x = special(first)
    if name == "floor_divide" and x.dtype.kind == "f":
        x = x[~np.isinf(x)]  # NumPy has its own rules there
    if name in UNARY:
        yield Call(name, lambda xp, a: getattr(xp, name)(a), (x,))
        return
    for second in DTYPES:
        a, b = np.meshgrid(x, _defined(name, first, special(second)), indexing="ij")
        yield Call(name, lambda xp, p, q: getattr(xp, name)(p, q), (a.ravel(), b.ravel()))
    nonzero = _defined(name, first, x) if name in ("floor_divide", "remainder", "pow") else x
    for number in (True, 2, 1.5):
        yield Call(name, lambda xp, p, s=number: getattr(xp, name)(p, s), (x,), f"and {number}")
        if "shift" not in name:
            yield Call(name, lambda xp, p, s=number: getattr(xp, name)(s, p), (nonzero,), f"after {number}")


# -- arrays of several axes -------------------------------------------------------------------------------------------


def _axes(shape: tuple[int, ...], several: bool = True) -> list[Any]:
    many: list[Any] = [()] if shape else []
    many += [(0, 1), (-1, 0)] if len(shape) > 1 else []
    return [None, *range(-len(shape), len(shape)), *(many if several else [])]


def reductions(x: Array) -> Iterator[Call]:
    for axis in _axes(x.shape):
        for keep in (False, True):
            for name in ("sum", "prod", "mean", "max", "min", "all", "any", "count_nonzero"):
                yield Call(
                    name, lambda xp, p, n=name, a=axis, k=keep: getattr(xp, n)(p, axis=a, keepdims=k), (x,), f"{axis}"
                )
        for correction in (0, 1, 1.5):
            for name in ("var", "std"):
                yield Call(
                    name, lambda xp, p, n=name, a=axis, c=correction: getattr(xp, n)(p, axis=a, correction=c), (x,)
                )
        for order in (0, 1, 2, *([-1] if x.size else []), 3.0, math.inf, -math.inf):  # torch has no -1 of no elements
            yield Call(
                "vector_norm",
                lambda xp, p, a=axis, o=order: xp.linalg.vector_norm(p, axis=a, ord=o),
                (x,),
                f"{order} {axis}",
            )
    for name in ("sum", "prod"):
        for dtype in ("int64", "float32", "float64", *(["uint8"] if x.dtype.kind in "bu" else [])):
            yield Call(name, lambda xp, p, n=name, d=dtype: getattr(xp, n)(p, dtype=getattr(xp, d)), (x,), dtype)
    if x.ndim > 1:
        yield Call("trace", lambda xp, p: xp.linalg.trace(p, offset=1), (x,))


def orders(x: Array) -> Iterator[Call]:
    for axis in _axes(x.shape, False):
        for name in ("argmax", "argmin"):
            yield Call(name, lambda xp, p, n=name, a=axis: getattr(xp, n)(p, axis=a, keepdims=True), (x,), f"{axis}")
        for name in ("cumulative_sum", "cumulative_prod") if x.ndim else ():
            for first in (False, True):
                yield Call(
                    name,
                    lambda xp, p, n=name, a=axis, f=first: getattr(xp, n)(p, axis=a, include_initial=f),
                    (x,),
                    f"{axis}",
                )
        if axis is None:
            continue
        for name in ("sort", "argsort"):
            for down in (False, True):
                yield Call(
                    name, lambda xp, p, n=name, a=axis, d=down: getattr(xp, n)(p, axis=a, descending=d), (x,), f"{axis}"
                )
        for n in (0, 1, 2):
            yield Call("diff", lambda xp, p, a=axis, n=n: xp.diff(p, axis=a, n=n), (x,), f"{axis} {n}")
        yield Call("diff", lambda xp, p, q, a=axis: xp.diff(p, axis=a, prepend=q, append=q), (x, x))
    if x.ndim == 1:
        for side in ("left", "right"):
            yield Call(
                "searchsorted",
                lambda xp, p, q, s=side: xp.searchsorted(p, q, side=s, sorter=xp.argsort(p)),
                (x, drawn(str(x.dtype), (2, 2))),
            )
    for name in ("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"):
        yield Call(name, lambda xp, p, n=name: getattr(xp, n)(p), (x,))


def movement(x: Array) -> Iterator[Call]:
    s = x.shape
    for axis in range(-x.ndim, x.ndim):
        for name, of in {
            "flip": lambda xp, p, a: xp.flip(p, axis=a),
            "roll": lambda xp, p, a: xp.roll(p, 2, axis=a),
            "repeat": lambda xp, p, a: xp.repeat(p, 2, axis=a),
            "concat": lambda xp, p, a: xp.concat([p, p], axis=a),
            "unstack": lambda xp, p, a: xp.unstack(p, axis=a),
            "moveaxis": lambda xp, p, a: xp.moveaxis(p, a, 0),
        }.items():
            yield Call(name, lambda xp, p, f=of, a=axis: f(xp, p, a), (x,), f"{axis}")
        if s[axis]:
            at = np.array([0, s[axis] - 1, 0])
            yield Call("take", lambda xp, p, i, a=axis: xp.take(p, i, axis=a), (x, at), f"{axis}")
            yield Call(
                "take_along_axis", lambda xp, p, i, a=axis: xp.take_along_axis(p, i, axis=a), (x, np.zeros(s, np.int64))
            )
            yield Call("repeat", lambda xp, p, i, a=axis: xp.repeat(p, i, axis=a), (x, np.arange(s[axis])), f"{axis}")
        if s[axis] == 1:
            yield Call("squeeze", lambda xp, p, a=axis: xp.squeeze(p, axis=a), (x,), f"{axis}")
    for axis in range(-x.ndim - 1, x.ndim + 1):
        yield Call("expand_dims", lambda xp, p, a=axis: xp.expand_dims(p, axis=a), (x,), f"{axis}")
        yield Call("stack", lambda xp, p, a=axis: xp.stack([p, p], axis=a), (x,), f"{axis}")
    wholes: dict[str, Callable[[Any, Any], Any]] = {
        "concat": lambda xp, p: xp.concat([p, p], axis=None),
        "flip": lambda xp, p: xp.flip(p),
        "roll": lambda xp, p: xp.roll(p, -2),
        "repeat": lambda xp, p: xp.repeat(p, 3),
        "permute_dims": lambda xp, p: xp.permute_dims(p, tuple(range(x.ndim))[::-1]),
        "reshape": lambda xp, p: xp.reshape(p, (1, *s, 1)),
        "broadcast_to": lambda xp, p: xp.broadcast_to(p, (2, *s)),
        "broadcast_arrays": lambda xp, p: xp.broadcast_arrays(p, xp.ones((2, 1, 1, 1), dtype=xp.int8)),
        "meshgrid": lambda xp, p: xp.meshgrid(p, p) if x.ndim == 1 else p,
        "zeros_like": lambda xp, p: xp.zeros_like(p, dtype=xp.float64),
        "ones_like": lambda xp, p: xp.ones_like(p),
        "full_like": lambda xp, p: xp.full_like(p, True if p.dtype == xp.bool else 3),
        "roll of two": lambda xp, p: xp.roll(p, (1, 2), axis=(0, 1)),
        "flip of two": lambda xp, p: xp.flip(p, axis=(0, -1)),
        "matrix_transpose": lambda xp, p: xp.matrix_transpose(p),
        "diagonal": lambda xp, p: xp.linalg.diagonal(p, offset=-1),
        "tril": lambda xp, p: xp.tril(p, k=-1),
        "triu": lambda xp, p: xp.triu(p, k=1),
    }  # fmt: skip
    for name, whole in wholes.items():
        if x.ndim > 1 or name not in ("roll of two", "flip of two", "matrix_transpose", "diagonal", "tril", "triu"):
            yield Call(name, whole, (x,))
    for counts in ((), (2,), (2, 3), (1, 0), (2, 1, 3, 1)):
        yield Call("tile", lambda xp, p, c=counts: xp.tile(p, c), (x,), f"{counts}")


def choices(x: Array) -> Iterator[Call]:
    first, s = str(x.dtype), x.shape
    for low, high in ((None, None), (1, None), (None, 2), (0, 2)):
        yield Call("clip", lambda xp, p, a=low, b=high: xp.clip(p, a, b), (x,), f"{low} {high}")
    for dtype in DTYPES:
        y, c = drawn(dtype, s), drawn("bool", s)
        if not (np.dtype(first).kind in "fi" and dtype.startswith("u")):  # negative numbers as unsigned are not defined
            yield Call("astype", lambda xp, p, d=dtype: xp.astype(p, getattr(xp, d)), (x,), dtype)
        if {first[0], dtype[0]} in ({"f", "i"}, {"f", "u"}) or (
            "uint64" in (first, dtype) and "i" in first[0] + dtype[0]
        ):
            continue  # they have no common dtype in the standard
        yield Call("where", lambda xp, c, p, q: xp.where(c, p, q), (c, x, y))
        yield Call("isin", lambda xp, p, q: xp.isin(p, q), (x, y))
        if x.ndim:
            yield Call("vecdot", lambda xp, p, q: xp.vecdot(p, q), (x, y))
        if x.ndim == 2:
            yield Call("matmul", lambda xp, p, q: xp.matmul(p, xp.matrix_transpose(q)), (x, y))
            yield Call("tensordot", lambda xp, p, q: xp.tensordot(p, q, axes=((0,), (0,))), (x, y))
        if x.ndim == 1:
            yield Call("matmul", lambda xp, p, q: xp.matmul(p, q), (x, y))
            if np.result_type(x, y).itemsize != 4 or 4 in (
                x.itemsize,
                y.itemsize,
            ):  # the operator is int64 for the others
                yield Call("@", lambda xp, p, q: p @ q, (x, y))
            yield Call("outer", lambda xp, p, q: xp.linalg.outer(p, q), (x, y))


def positions(x: Array) -> Iterator[Call]:
    s, value = x.shape, True if x.dtype == bool else 1
    keys: list[Any] = [..., (), None, (None, ...)]
    keys += [slice(None, None, -1), slice(1, None), slice(-2, None, 2), (slice(0, 0), ...)] if s else []
    keys += [0, -1, (0, ..., None), (..., 0)] if s and 0 not in s else []
    keys += [(0, 1), (slice(None), 1), (-1, slice(None, None, -2)), (None, 0, None, 1)] if s == (2, 3) else []

    def written(xp: Any, p: Any, key: Any, value: Any) -> Any:
        y = xp.asarray(p, copy=True)
        y[key] = value
        return [y, p]

    for key in keys:
        yield Call("getitem", lambda xp, p, k=key: p[k], (x,), f"{key}")
        if key is not None and not (isinstance(key, tuple) and None in key):
            yield Call("setitem", lambda xp, p, k=key: written(xp, p, k, value), (x,), f"{key}")
    if s == (2, 3):
        yield Call("getitem", lambda xp, p, i, j: p[i, j], (x, np.array([0, -1]), np.array([[1], [2]])))
    elif len(s) == 1 and s[0]:
        yield Call("getitem", lambda xp, p, i: p[i], (x, np.array([0, -1, 0])))
    for lead in [s, s[:1]] if len(s) > 1 else [s]:
        mask = drawn("bool", lead)
        yield Call("getitem", lambda xp, p, m: p[m], (x, mask), f"mask {lead}")
        yield Call("setitem", lambda xp, p, m: written(xp, p, m, value), (x, mask), f"mask {lead}")


FAMILIES: dict[str, Callable[[Array], Iterator[Call]]] = {
    "reductions": reductions,
    "orders": orders,
    "movement": movement,
    "choices": choices,
    "positions": positions,
}
