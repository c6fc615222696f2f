"""torch's `compiler`, for programs that steer `an.compile` by it: most of it has nothing to do here."""

from __future__ import annotations

from typing import Any

from anneal.doors import names_of
from anneal.runtime import F, here

__all__ = names_of(__name__)


def reset() -> None:
    """Does nothing: guards of a jit function see what has changed, and `f.reset()` drops the captures of one."""


def is_compiling() -> bool:
    """True while a function of `jit` or `compile` is being captured.

    >>> is_compiling()
    False
    """
    return bool(here.recordings)


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: `onnx.export` runs the program as it is."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself, uncaptured. Inside a function that `jit` captures it is captured with it: call it outside,
    or leave jit away.

    Args:
        fn: a function; None for a decorator.
        recursive: ignored.
        reason: ignored.

    >>> disable(len)([1, 2])
    2
    """
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: F) -> F:
    """The function itself: all calls are part of a capture.

    Args:
        fn: a function.
    """
    return fn


def cudagraph_mark_step_begin() -> None:
    """Does nothing: results of a replay have memory of their own."""
