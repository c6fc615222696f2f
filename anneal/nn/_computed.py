"""Attributes of a module that are computed from its other tensors at each access: weights as direction and length,
pruned ones.

A module with such attributes gets its own class, below its class, with a property for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from anneal.errors import DataError
from anneal.nn._module import Module

__all__ = ["before", "compute", "computed", "keep"]

Compute = Callable[[Any], Any]


def computed(module: Module) -> dict[str, tuple[Compute, Compute | None]]:
    """The functions that compute attributes of `module`, by name, and those that set them."""
    found: dict[str, Any] = vars(module).get("_computed", {})
    return found


def before(module: Module) -> type:
    """The class of a module before attributes of it were computed."""
    kind: type = getattr(module, "_before", type(module))
    return kind


def compute(module: Any, name: str, get: Callable[..., Any], put: Callable[..., Any] | None = None) -> None:
    """Make `module.name` compute `get(module, name)`; assignment calls `put(module, name, value)`."""
    vars(module).pop(name, None)
    vars(module)["_computed"] = computed(module) | {name: (get, put)}
    _reclass(module)


def keep(module: Any, name: str, value: Any) -> None:
    """Make `module.name` a plain attribute with `value` again."""
    vars(module)["_computed"] = {n: f for n, f in computed(module).items() if n != name}
    _reclass(module)
    setattr(module, name, value)


def _reclass(module: Any) -> None:
    kind, names = before(module), tuple(computed(module))
    module.__class__ = _class(kind, names) if names else kind


def _property(name: str) -> property:
    def get(module: Any) -> Any:
        return vars(module)["_computed"][name][0](module, name)

    def put(module: Any, value: Any) -> None:
        by = vars(module)["_computed"][name][1]
        if by is None:
            raise DataError(f"{before(module).__name__}.{name} is computed: set the tensors that it is computed of")
        by(module, name, value)

    return property(get, put)


@lru_cache(1 << 10)
def _class(kind: type, names: tuple[str, ...]) -> type:
    body: dict[str, Any] = {name: _property(name) for name in names}
    body |= {"__module__": kind.__module__, "__doc__": kind.__doc__, "_before": kind}
    body["__reduce__"] = lambda module: (_made, (kind, names), vars(module))
    return type(kind.__name__, (kind,), body)


def _made(kind: type, names: tuple[str, ...]) -> Any:
    return object.__new__(_class(kind, names))
