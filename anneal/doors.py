"""Front doors, and classes, that import the files behind them when one of their names is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from anneal.names import OPENED


def opened_later(
    package: str, files: Mapping[str, Iterable[str]] | None = None, make: Callable[[Any, str], Any] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: the names that it takes from each of its `files` without importing them yet, and
    its own modules, as names of the file "". A file with a dot in its name is that of another package. For a word
    NAME=OTHER it is what `make` gives for the OTHER and the NAME.

    Without `files` they are what `anneal/names.py` lists. A name stands in the package once it was asked for.
    """
    if files is None:
        files = {file: names.split() for file, names in OPENED[package].items()}
    home = {}
    for file, words in files.items():
        for word in words:
            name, _, other = word.partition("=")
            home[name] = file, other

    names = vars(sys.modules[package])

    def later(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        file, other = home[name]
        if not file:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(file if file.startswith("anneal") else f"{package}.{file}"), other or name)
        if other and make is not None:
            found = make(found, name)
            found.__module__, found.__qualname__ = package, name  # where `pickle` finds it
        names[name] = found
        return found

    names["__dir__"] = lambda: sorted({*names, *home})
    return later


def names_of(package: str) -> list[str]:
    """The names that a package opens later."""
    return [word.partition("=")[0] for words in OPENED[package].values() for word in words.split()]


def pairs(text: str) -> dict[str, str]:
    """The words NAME=OTHER of a text, by the NAME."""
    return dict(word.split("=") for word in text.split())


def same_under(
    package: str, files: str, rest: Callable[[str], Any] | None = None, **others: ModuleType
) -> Callable[[str], Any]:
    """Let `package` itself be found under the names of torch's files in it, and `others` under theirs; gives the
    package's `__getattr__`, which takes all further names from `rest`.
    """
    paths = dict.fromkeys(files.split(), sys.modules[package]) | others
    sys.modules.update({f"{package}.{name}": module for name, module in paths.items()})

    def later(name: str) -> Any:
        if name in paths:
            return paths[name]
        if rest is not None:
            return rest(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return later


class _Method:
    """A method that is imported when it is first asked for, and stands in its class from then on."""

    __slots__ = ("name", "owner", "room", "static")

    def __init__(self, owner: type, room: str, name: str, static: bool) -> None:
        self.owner, self.room, self.name, self.static = owner, room, name, static

    def __get__(self, x: object, cls: type) -> Any:
        found = getattr(import_module(self.room), self.name)
        setattr(self.owner, self.name, staticmethod(found) if self.static else found)
        return found if self.static else found.__get__(x, cls)


def methods_later(cls: type, room: str, names: Iterable[str], static: bool = False) -> None:
    """Give a class methods of these names, imported from a package when they are first asked for."""
    for name in names:
        setattr(cls, name, _Method(cls, room, name, static))


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function under another name, which provenance shows, too: nodes keep the code object that made them."""
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    return function
