"""Functions of the standard that anneal has as ops or in `anneal.linalg`: made from those functions and their
signatures.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from anneal.array_api._dtypes import result_type, standards
from anneal.errors import DTypeError, ShapeError
from anneal.ops import as_dtype
from anneal.runtime import Fun
from anneal.tensor import DType, Tensor, dtypes

# Arguments of ops that the standard lacks, and arguments that have another name in the standard.
LACKING = "UPLO alpha assume_unique atol decimals dim1 dim2 dtype hermitian rounding_mode tol unbiased"
RENAMED = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "diagonal": "k"}


def standard(op: Fun, name: str) -> Fun:
    """The standard's function `name` that is an op: one declared by `@function("array_api")`.

    Operands, which have no default, are given by position: x, or x1 and x2, of which one may be a number. What else the
    op takes and the standard has is given by name.
    """
    given = list(inspect.signature(op).parameters.values())
    adds = getattr(op, "neutral", "").isdigit()  # 0 of sums, 1 of products
    operands = [p for p in given if p.default is p.empty]
    named = {
        RENAMED.get(p.name, p.name): p
        for p in given
        if p.default is not p.empty and not isinstance(p.default, tuple)
        if p.name not in LACKING.split() or (adds and p.name == "dtype")
    }
    two = len(operands) == 2 and operands[1].annotation in ("Any", "Operand")
    names = ["x1", "x2"] if two else ["x", *[p.name for p in operands[1:]]]
    function: Any = standards(summed(op) if adds else op)
    if two and "axis" in named:
        function = _of_vectors(function, name)
    if named or len(names) > 1 + two:
        by_place = takewhile(lambda p: p in named.values() and p.kind is not p.KEYWORD_ONLY, given[len(operands) :])
        function = _by_name(function, name, names, named, len(list(by_place)))
    else:
        function = of_two(function, name) if two else _of_one(function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = "anneal.array_api"
    function.__doc__ = _said(op.__doc__ or "", RENAMED | dict(zip([p.name for p in operands], names)))
    if adds:
        function.__doc__ += " Integers below 32 bits widen to 32; what the dtype does not hold wraps around and warns."
    return function  # type: ignore[no-any-return]


def widened(x: Tensor, dtype: Any) -> DType:
    """The dtype to add up in: integers narrower than 32 bits widen to 32, by their kind."""
    if dtype is not None:
        return as_dtype(dtype)
    if x.dtype.is_float or x.dtype.bits >= 32:
        return x.dtype
    return dtypes.uint32 if x.dtype.kind == "uint" else dtypes.int32


def summed(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Sums or products whose dtype follows from x's alone, where `Tensor.sum` looks for one that holds the values."""

    def function(x: Tensor, axis: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        kind = widened(x, dtype)
        return op(x.cast(kind), axis, keepdim, dtype=None if dtype is None else kind)

    return function


def _said(text: str, names: Mapping[str, str]) -> str:
    """The first sentence of an op's docstring, with the standard's names of its operands."""
    first = re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
    return re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), first)


def _of_one(op: Fun) -> Fun:
    def function(x: Tensor, /) -> Any:
        return op(x)

    return function


def of_two(op: Fun, name: str) -> Fun:
    """A binary op, of which one operand may be a number."""

    def function(x1: Any, x2: Any, /) -> Any:
        if isinstance(x1, Tensor):
            return op(x1, x2)
        if not isinstance(x2, Tensor):
            raise DTypeError(f"{name}: one of the two is an array; asarray makes one of a number")
        return op(x2._lift(x1, name), x2)

    return function


def _of_vectors(op: Fun, name: str) -> Fun:
    """An op of vectors along an axis, counted from the end, which has one size in both; the other axes broadcast."""

    def function(x1: Tensor, x2: Tensor, /, *axis: int, **named: int) -> Any:
        ndim, kind, (at,) = max(x1.ndim, x2.ndim), result_type(x1, x2), (*axis, *named.values())
        x, y = [x if x.ndim == ndim else x.reshape((*[1] * (ndim - x.ndim), *x.shape)) for x in (x1, x2)]
        made = op(x, y, *axis, **named)
        if -x1.ndim <= at < 0 and -x2.ndim <= at and x1.shape[at] != x2.shape[at]:  # one broadcast the other
            raise ShapeError(f"{name}: axis {at} of shapes {x1.shape} and {x2.shape} must have one size")
        return made if kind.bits == 32 else made.cast(kind)

    return function


def _by_name(op: Fun, name: str, names: Sequence[str], named: Mapping[str, inspect.Parameter], first: int) -> Fun:
    """The function over `op` whose positional parameters are `names` and whose keyword parameters are `named`; the
    `first` of `named` are passed to `op` by position.
    """
    # by default torch's `correction` is 1, the standard's 0
    defaults = {n: 0.0 if n == "correction" else p.default for n, p in named.items()}
    placed, others = list(named)[:first], {n: p.name for n, p in list(named.items())[first:]}
    signature = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names]
        + [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=defaults[n]) for n in sorted(named)]
    )

    def function(*args: Any, **options: Any) -> Any:
        if len(args) != len(names) or not options.keys() <= named.keys():
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
        values = defaults | options
        return op(*args, *[values[n] for n in placed], **{own: values[n] for n, own in others.items()})

    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
