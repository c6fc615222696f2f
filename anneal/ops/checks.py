"""Words about arguments: what is a tensor, an int or a bool, and how a message names what is none."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from anneal.errors import ArgumentError, DTypeError
from anneal.runtime import Handle
from anneal.uop import UOp
from anneal.uop.sizes import Count, is_symbolic

if TYPE_CHECKING:
    from anneal.tensor import Tensor

_LIMIT = 1 << 31  # index arithmetic has 32 bits


def is_tensor(x: Any) -> TypeGuard[Tensor]:
    """True if the argument is a tensor."""
    return isinstance(x, Handle)


def is_bool(x: Any) -> bool:
    """True if the argument is a bool, which is never an axis, a size or a position."""
    return isinstance(x, (bool, np.bool_))


def said(x: Any) -> str:
    """A wrong argument, described for a message; nothing is computed for it."""
    if is_tensor(x):
        return f"a tensor of {x.dtype.name} of shape {x.shape}"
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype} of shape {x.shape}"
    if isinstance(x, (list, tuple, dict, set)) and any(is_tensor(y) for y in x):
        return f"a {type(x).__name__} with tensors in it"
    text = repr(x)
    return text if len(text) <= 60 else f"{type(x).__name__} {text[:40]}..."


def bound_int(name: str, what: str, n: int) -> int:
    """An int that fits 32 bits."""
    if -_LIMIT <= n < _LIMIT:
        return n
    raise ArgumentError(f"{name}: {what} is an int of 32 bits, not {said(n)}")


def whole(name: str, what: str, x: Any) -> Any:
    """An int, or a symbolic size; raises ShapeError for all else, bools among it."""
    if x.__class__ is int:
        return bound_int(name, what, x)
    if isinstance(x, Count) or (isinstance(x, UOp) and is_symbolic(x)):
        return x
    if not is_bool(x) and not (is_tensor(x) and x.dtype.name == "bool"):
        try:
            return bound_int(name, what, operator.index(x))
        except TypeError:
            pass
    raise ArgumentError(f"{name}: {what} is an int, not {said(x)}")


def need_tensor(name: str, what: str, x: Any) -> Any:
    """A tensor; raises DTypeError for all else."""
    if is_tensor(x):
        return x
    raise DTypeError(f"{name}: {what} is a tensor, not {said(x)}; make one with Tensor(...)")
