"""Front doors that import the files behind them when one of their names is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["opened_later"]


def opened_later(
    package: str, files: Mapping[str, tuple[str, ...]], modules: tuple[str, ...] = ()
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: the names that it takes from each of its `files` without importing them yet, and
    its own `modules`. A file with a dot in its name is that of another package.

    A name stands in the package once it was asked for. Type checkers see the imports that stand beside it, under
    TYPE_CHECKING.
    """
    home = {name: file for file, names in files.items() for name in names}

    def later(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        file = home[name]
        found = getattr(import_module(file if "." in file else f"{package}.{file}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return later
