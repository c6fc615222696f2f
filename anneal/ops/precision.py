"""The precision of functions that are made of several ops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from anneal.ops.checks import is_tensor
from anneal.runtime import Handle
from anneal.uop import dtypes, promote

F = TypeVar("F", bound=Callable[..., Any])
_FLOAT32 = dtypes.float32


def in_single(keeps: bool = False) -> Callable[[F], F]:
    """A decorator for functions of several ops: floats of 8 and 16 bits become float32 first, and the result is rounded
    once.

    The result has the dtype that the float tensors among the arguments promote to; with `keeps`, that of the first.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def in_float32(*args: Any, **options: Any) -> Any:
            kinds = [a.uop.dtype for a in (*args, *options.values()) if isinstance(a, Handle)]
            if not any(k.is_narrow for k in kinds) or options.get("dtype") is not None:
                return function(*args, **options)
            floats = [k for k in kinds if k.is_float]
            kind = args[0].uop.dtype if keeps else functools.reduce(promote, floats)
            out = function(*[_as_single(a) for a in args], **{n: _as_single(a) for n, a in options.items()})
            return out.cast(kind)

        return in_float32  # type: ignore[return-value]

    return decorate


def _as_single(x: Any) -> Any:
    return x.cast(_FLOAT32) if is_tensor(x) and x.uop.dtype.is_narrow else x
