"""The switch of gradients: `no_grad`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from anneal.runtime import here

F = TypeVar("F", bound=Callable[..., Any])


class no_grad:
    """A block (or a decorated function) whose results require no gradient. Other threads are not affected.

    >>> from anneal.tensor import Tensor, no_grad
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> with no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> no_grad:
        self._before.append(here.grad)
        here.grad = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        here.grad = self._before.pop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def without_grad(*args: Any, **kwargs: Any) -> Any:
            with no_grad():
                return function(*args, **kwargs)

        return without_grad  # type: ignore[return-value]


def grad_enabled() -> bool:
    """False inside `no_grad`.

    >>> grad_enabled()
    True
    """
    return here.grad
