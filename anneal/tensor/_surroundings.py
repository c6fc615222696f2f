"""What a function sees beside its arguments, so that jit can tell when it would compute something else.

Followed from the function's code: the variables of its closure, its defaults, the globals and attributes that it names,
the functions and the modules' `forward` that it reaches that way. Remembered of them: plain values, which tensors stand
there (and their nodes, where those are lazy), the items of lists, tuples, dicts and sets, small arrays.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from anneal.tensor._base import TensorBase
from anneal.tensor.execution import is_realized

__all__ = ["Surroundings"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_MISSING: Any = object()
_DEPTH = 6  # of attributes and containers
_ITEMS = 1024  # of a container or an array: beyond that only its length is watched
# Code that is not the user's: what it sees does not change, or says so itself.
_FOREIGN = frozenset(("anneal", "numpy", "typing", *sys.stdlib_module_names)) - {"__main__"}

Changed = Callable[[], bool]


class Surroundings:
    """A picture of what `function` sees; `changed()` says whether it looks otherwise now."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._attributes: list[tuple[Any, str, Any]] = []
        self._items: list[tuple[Any, str, Any]] = []  # of dicts of globals
        self._cells: list[tuple[Any, Any]] = []
        self._others: list[Changed] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that no id is used twice
        self._root = getattr(function, "__func__", function)
        self._look(function, frozenset(), 0)
        self._seen.clear()

    def changed(self) -> bool:
        """Whether anything that was seen is another now."""
        for cell, value in self._cells:
            if _content(cell) is not value and not _equal(_content(cell), value):
                return True
        for names, name, value in self._items:
            now = names.get(name, _MISSING)
            if now is not value and not _equal(now, value):
                return True
        for owner, name, value in self._attributes:
            now = getattr(owner, name, _MISSING)
            if now is not value and not _equal(now, value):
                return True
        return any(changed() for changed in self._others)

    def _look(self, value: Any, names: frozenset[str], depth: int) -> None:
        """Remember what `value` holds, as far as code that uses `names` can see it."""
        if isinstance(value, (*_PLAIN, type)) and not _users(value) or depth > _DEPTH or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._kept.append(value)
        if isinstance(value, TensorBase):
            if not is_realized(value.uop):
                self._attributes.append((value, "uop", value.uop))
        elif isinstance(value, FunctionType):
            self._look_at_code(value, depth)
        elif isinstance(value, MethodType):
            self._look(value.__func__, names, depth)
            self._look(value.__self__, names | _names_of(value.__func__), depth)
        elif isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self._look(part, names, depth + 1)
        elif isinstance(value, (list, tuple, dict, set, frozenset)):
            self._look_at_container(value, names, depth)
        elif isinstance(value, np.ndarray):
            if value.size <= _ITEMS and value.dtype != object:
                before = value.tobytes()
                self._others.append(lambda: value.tobytes() != before)
        else:
            self._look_at_object(value, names, depth)

    def _look_at_code(self, function: FunctionType, depth: int) -> None:
        names = _names_of(function)
        for cell in function.__closure__ or ():
            content = _content(cell)
            self._cells.append((cell, content))
            self._look(content, names, depth + 1)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._look(default, names, depth + 1)
        if _is_foreign(function.__globals__.get("__name__", "")):
            return
        for name in sorted(names & function.__globals__.keys()):
            content = function.__globals__[name]
            self._items.append((function.__globals__, name, content))
            self._look(content, names, depth + 1)

    def _look_at_container(self, value: Any, names: frozenset[str], depth: int) -> None:
        size = len(value)
        if size > _ITEMS:
            self._others.append(lambda: len(value) != size)
            return
        if not isinstance(value, (tuple, frozenset)):
            before = _members(value)

            def changed() -> bool:
                now = _members(value)
                return len(now) != len(before) or not all(a is b or _equal(a, b) for a, b in zip(now, before))

            self._others.append(changed)
        for member in _members(value):
            self._look(member, names, depth + 1)

    def _look_at_object(self, value: Any, names: frozenset[str], depth: int) -> None:
        kind = value if isinstance(value, type) else type(value)
        inner = getattr(value, "__wrapped__", None)  # a jit function, a cached one, ...
        if inner is not None:
            self._look(inner, names, depth)
        if isinstance(value, ModuleType) and _is_foreign(value.__name__):
            return
        own = getattr(value, "__dict__", {})
        if not isinstance(value, (type, ModuleType)) and not _is_foreign(kind.__module__):
            for special in ("__call__", "forward"):  # what `value(...)` runs
                method = _static(kind, special)
                if isinstance(method, FunctionType) and not self._calls_root(value, _names_of(method)):
                    names |= _names_of(method)
                    self._look(method, names, depth + 1)
        for name in sorted(names):
            found = own.get(name, _MISSING)
            if found is _MISSING:
                found = _static(kind, name)
            if isinstance(found, MemberDescriptorType):
                found = getattr(value, name, _MISSING)
            if name not in own:
                for method in _functions(found):
                    self._look_at_method(value, method, names, depth)
            if found is _MISSING or name not in own and hasattr(type(found), "__get__"):
                continue
            self._attributes.append((value, name, found))
            self._look(found, names, depth + 1)

    def _calls_root(self, owner: Any, names: frozenset[str]) -> bool:
        """Whether code of `owner` that uses `names` calls the function itself: then the function does not call it."""
        for name in names:
            found = getattr(owner, "__dict__", {}).get(name, _MISSING)
            inner = getattr(_static(type(owner), name) if found is _MISSING else found, "__wrapped__", None)
            if inner is not None and getattr(inner, "__func__", inner) is self._root:
                return True
        return False

    def _look_at_method(self, owner: Any, method: FunctionType, names: frozenset[str], depth: int) -> None:
        more = _names_of(method) - names
        self._look(method, names, depth + 1)
        if more and depth < _DEPTH:
            self._look_at_object(owner, more, depth + 1)


def _functions(found: Any) -> list[FunctionType]:
    """The user's functions behind what a class has under a name: a method, a property's, a class method's."""
    inner = getattr(found, "fget", None) or getattr(found, "__func__", found)
    inner = getattr(inner, "__wrapped__", inner)  # a jit method, a cached one
    return [inner] if isinstance(inner, FunctionType) and not _is_foreign(inner.__module__) else []


def _users(value: Any) -> bool:
    """Whether this is a class of the user's, whose attributes may change."""
    return isinstance(value, type) and not _is_foreign(value.__module__)


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in _FOREIGN


def _names_of(function: Any) -> frozenset[str]:
    """Globals and attributes that a function's code names, and the code of functions inside it."""
    code = getattr(function, "__code__", None)
    return frozenset(_names(code)) if isinstance(code, CodeType) else frozenset()


def _names(code: CodeType) -> Iterator[str]:
    # What is only stored (`self.loss = step(x)`) is a result, and changes with every call.
    for i in dis.get_instructions(code):
        if i.opcode in dis.hasname and not i.opname.startswith(("STORE_", "DELETE_")):
            yield i.argval
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is there yet
        return _MISSING


def _static(kind: type, name: str) -> Any:
    """An attribute as it stands in a class, not bound to anything."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


def _members(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are plain and the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, _PLAIN):
        return bool(a == b)
    if isinstance(a, (tuple, frozenset)):
        return len(a) == len(b) and all(x is y or _equal(x, y) for x, y in zip(a, b))
    return isinstance(a, MethodType) and a.__func__ is b.__func__ and a.__self__ is b.__self__
