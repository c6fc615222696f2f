"""The precision of functions: of those that are made of several ops, and of what runs under `autocast`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from anneal.ops.checks import is_tensor
from anneal.runtime import Handle, here
from anneal.uop import DType, dtypes, promote

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


# -- autocast ---------------------------------------------------------------------------------------------------------


def casts(function: F, rule: str) -> F:
    """`function`, which takes its float tensors in another dtype under `autocast`; within it nothing more is cast.

    Args:
        rule: the dtype, as the word `autocast` of `@function` says it: "low" that of the block, "float32", or "widest"
            what the tensors promote to. float64 is left as it is, and so is a call that names a dtype.
    """

    @functools.wraps(function)
    def cast_first(*args: Any, **options: Any) -> Any:
        kinds = here.autocast
        if not kinds or options.get("dtype") is not None:
            return function(*args, **options)
        floats = [t for x in (*args, *options.values()) for t in _tensors(x) if _may_change(t)]
        low = cast_dtype(kinds, floats[0].device) if floats else None
        here.autocast = ()
        try:
            if low is None:
                return function(*args, **options)
            wide = functools.reduce(promote, [t.uop.dtype for t in floats])
            kind = {"low": low, "float32": _FLOAT32, "widest": wide}[rule]
            return function(*[_changed(x, kind) for x in args], **{n: _changed(x, kind) for n, x in options.items()})
        finally:
            here.autocast = kinds

    return cast_first  # type: ignore[return-value]


def cast_dtype(kinds: tuple[tuple[str, DType], ...], device: str) -> DType | None:
    """The dtype of tensors that blocks of `autocast` in force ask for on a device; None if none does.

    Args:
        kinds: the blocks: a kind of device and a dtype each.
        device: the device's name.

    >>> cast_dtype((("cpu", dtypes.bfloat16),), "cpu:0")
    dtypes.bfloat16
    """
    kind = device.partition(":")[0]
    return next((dtype for name, dtype in kinds if name == kind), None)


def _tensors(x: Any) -> list[Any]:
    return [t for t in (x if isinstance(x, (list, tuple)) else (x,)) if isinstance(t, Handle)]


def _may_change(t: Any) -> bool:
    kind: DType = t.uop.dtype
    return kind.is_float and kind.bits < 64


def _changed(x: Any, kind: DType) -> Any:
    if isinstance(x, (list, tuple)) and any(isinstance(t, Handle) for t in x):
        return type(x)([_changed(t, kind) for t in x])
    return x.cast(kind) if is_tensor(x) and _may_change(x) else x
