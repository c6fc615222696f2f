"""Front doors, and classes, that import the files behind them when one of their names is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["MethodsLater", "opened_later", "same_under", "statics_later"]


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


def same_under(package: str, files: str) -> Callable[[str], Any]:
    """Let `package` itself be found under the names of torch's files in it; gives the package's `__getattr__`."""
    room, names = sys.modules[package], files.split()
    sys.modules.update({f"{package}.{name}": room for name in names})

    def later(name: str) -> Any:
        if name in names:
            return room
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return later


class MethodsLater:
    """A room whose functions a class takes as methods (`exp = room.exp`) without importing the room yet.

    Type checkers see the room itself, under TYPE_CHECKING.
    """

    def __init__(self, room: str) -> None:
        self._room = room

    def __getattr__(self, name: str) -> Any:
        return _Method(self._room, name)


class _Method:
    """A method that is imported when it is first asked for, and stands in its class from then on."""

    __slots__ = ("attribute", "name", "owner", "room", "static")

    def __init__(self, room: str, name: str) -> None:
        self.room, self.name, self.static = room, name, False

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.owner, self.attribute = owner, attribute

    def __get__(self, x: object, cls: type) -> Any:
        found = getattr(import_module(self.room), self.name)
        setattr(self.owner, self.attribute, staticmethod(found) if self.static else found)
        return found if self.static else found.__get__(x, cls)


def statics_later(cls: type) -> None:
    """Let a class's methods that are imported later be static where its body says `staticmethod(room.name)`."""
    for attribute, found in list(vars(cls).items()):
        method = found.__func__ if isinstance(found, staticmethod) else None
        if isinstance(method, _Method):
            method.static = True
            method.__set_name__(cls, attribute)
            setattr(cls, attribute, method)
