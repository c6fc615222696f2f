"""Guards of a capture: the values that its function uses beside the arguments, so that a change of one is noticed.

Followed from the function's code: variables of its closure and defaults, globals, and the attributes it reaches from
those and from `self` (`self.options.scale`), into the functions, methods and modules' `forward` that it finds there.
Remembered: plain values, which tensors stand there (and their nodes, where those are lazy), the items of lists, tuples,
dicts, sets and deques, small arrays, the environment. An iterator, or a clock that user's code names, cannot be
remembered: `unguarded` names it. What is reached in other ways (`getattr` with a computed name, say) is not seen.

`Guards.failed()` is asked at every replay and says yes or no; `failure()` then names the guard that failed.
"""

from __future__ import annotations

import datetime as dt
import dis
import os
import pickle
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import IOBase
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from anneal.runtime.handle import Handle
from anneal.runtime.nodes import is_realized
from anneal.uop import UOp

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_WRITES = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "remove", "update")
)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_CLOCKS = frozenset(
    f"{name}{kind}"
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time", "localtime", "gmtime", "ctime")
    for kind in ("", "_ns")
)  # fmt: skip
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_MISSING: Any = object()
_ITEMS = 4096  # of containers and arrays, all together: beyond that a length is all that is watched
_DEPTH = 40  # of what is followed from what
_THINGS = 10_000  # that are looked at: who calls into a large library does not want all of it watched
# Code that is not the user's: what it sees does not change, or says so itself.
_FOREIGN = frozenset(("anneal", "numpy", *sys.stdlib_module_names)) - {"__main__", "test"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A guard that does not hold: the name of what it watches, and its values at the capture and now, as short text."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


class Guards:
    """The values that `function` uses when it is called with these arguments; `failed()` compares them with the present
    ones.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}) -> None:
        self._attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._globals: list[tuple[Any, str, Any]] = []
        self._cells: list[tuple[Any, str, Any]] = []
        self._contents: list[_Contents] = []
        self.unguarded: str | None = None  # something that has another value each time, in words
        self.generators: list[Any] = []  # of random numbers
        self._installed = False  # whether what is followed is code of an installed package
        self._room = _ITEMS
        self._seen: dict[Any, Any] = {}  # with the objects, so that no id is used twice
        self._arguments = _bound(function, args, kwargs)
        self._look(function, 0)

    def failed(self) -> bool:
        """True if any observed value has changed."""
        for cell, _, value in self._cells:
            if _content(cell) is not value and not _equal(_content(cell), value):
                return True
        for names, name, value in self._globals:
            now = names.get(name, _MISSING)
            if now is not value and not _equal(now, value):
                return True
        for owner, name, value in self._attributes.values():
            now = getattr(owner, name, _MISSING)
            if now is not value and not _equal(now, value):
                return True
        return any([contents.changed() for contents in self._contents])  # noqa: C419  # a generator takes longer

    def failure(self) -> Failure | None:
        """The first thing that is another now; None if all is as it was."""
        seen: list[tuple[str, Any, Any]] = [(f"variable {n}", v, _content(cell)) for cell, n, v in self._cells]
        seen += [(f"global {n}", v, names.get(n, _MISSING)) for names, n, v in self._globals]
        for owner, name, value in self._attributes.values():
            what = "a lazy tensor" if isinstance(owner, Handle) else f"{_named(owner)}.{name}"
            seen.append((what, value, getattr(owner, name, _MISSING)))
        for what, value, now in seen:
            if now is not value and not _equal(now, value):
                return Failure(what, brief(value), brief(now))
        return next((found.failure() for found in self._contents if found.changed()), None)

    def _new(self, *things: Any) -> bool:
        key = tuple([id(x) for x in things])
        return len(self._seen) < _THINGS and self._seen.setdefault(key, things) is things

    def _fits(self, size: int) -> bool:
        if size > self._room:
            return False
        self._room -= size
        return True

    def _look(self, value: Any, depth: int, loose: frozenset[str] = frozenset()) -> None:
        """Remember what `value` holds and go on from there. `loose`: attributes of it that code may ask for."""
        if isinstance(value, _PLAIN) or depth > _DEPTH or not self._new(value):
            return
        depth += 1
        if isinstance(value, Handle):
            if (view := value._base) is not None and value._is_part():
                # what it is a part of may change: then it gets another node
                self._attributes[id(value), "_base"] = value, "_base", view
                self._look(view.root, depth)
            # of one that was computed from others a gradient goes on to those
            elif not is_realized(value.uop) or (value._wants and not value._leaf):
                self._attributes[id(value), "uop"] = value, "uop", value.uop
        elif _is_environment(value):
            self._look_at_container(vars(os.environ)["_data"], depth, loose)
        elif isinstance(value, FunctionType):
            self._follow(value, None, depth)
        elif isinstance(value, MethodType):
            if isinstance(value.__func__, FunctionType):
                self._follow(value.__func__, value.__self__, depth)
        elif isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self._look(part, depth)
        elif isinstance(value, _CONTAINERS):
            self._look_at_container(value, depth, loose)
        elif isinstance(value, np.ndarray):
            if self._fits(value.size) and value.dtype != object:
                self._contents.append(_Elements(value))
        elif isinstance(value, _GENERATORS):
            self.generators.append(value)
        elif isinstance(value, Iterator) and not isinstance(value, IOBase):
            self._is_unguarded(f"a {type(value).__name__}, which gives another value each time")
        elif (clock := _clock(value)) is not None:
            self._is_unguarded(f"the clock ({clock})")
        elif not isinstance(value, (type, ModuleType)):
            inner = getattr(value, "__wrapped__", None)  # of a jit function, a cached one, ...
            if inner is not None:
                self._look(inner, depth)
            elif not _is_foreign(type(value).__module__):
                for name in ("__call__", "forward"):  # what `value(...)` runs
                    method = _static(type(value), name)
                    if isinstance(method, FunctionType):
                        self._follow(method, value, depth)
                for name in loose:
                    self._reach(value, (name,), depth)

    def _look_at_optimiser(self, owner: Any, groups: list[dict[str, Any]]) -> None:
        """Remember what an optimiser trains; its settings say themselves that they change."""
        if self._new(owner, groups):
            self._attributes[id(owner), "param_groups"] = owner, "param_groups", groups
            self._contents += [_Objects(x, list(x)) for x in (groups, *[g["params"] for g in groups])]

    def _is_unguarded(self, what: str) -> None:
        if not self._installed:  # a library may look at the clock for a log
            self.unguarded = self.unguarded or what

    def _look_at_container(self, value: Any, depth: int, loose: frozenset[str]) -> None:
        if not self._fits(len(value)):
            if len(self._contents) < 64:
                self._contents.append(_Length(value))
            return
        members = _members(value)
        if not isinstance(value, (tuple, frozenset)):
            self._contents.append(_Items(value, members))
        for member in members:
            self._look(member, depth, loose)

    def _follow(self, function: FunctionType, owner: Any, depth: int) -> None:
        """See what the code of a function sees; `owner` is what its first argument is bound to, if to anything."""
        if not self._new(function, owner):
            return
        code = function.__code__
        outer = self._installed
        self._installed = outer or "site-packages" in code.co_filename or "dist-packages" in code.co_filename
        chains, loose = _chains(code)
        cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        foreign = _is_foreign(function.__globals__.get("__name__", ""))
        roots: dict[tuple[str, str], Any] = {}
        if owner is not None and code.co_argcount:
            roots["local", code.co_varnames[0]] = owner
        roots.update({("local", name): value for name, value in self._arguments.pop(code, {}).items()})
        for name, cell in cells.items():
            roots["local", name] = content = _content(cell)
            self._cells.append((cell, name, content))
        if not foreign:
            for name in sorted({name for kind, name, *_ in chains if kind == "global"} & function.__globals__.keys()):
                roots["global", name] = content = function.__globals__[name]
                self._globals.append((function.__globals__, name, content))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._look(default, depth, loose)
        for kind, name, *names in sorted(chains):
            if (kind, name) in roots:
                self._reach(roots[kind, name], tuple(names), depth, loose)
        self._installed = outer

    def _reach(self, owner: Any, names: tuple[str, ...], depth: int, loose: frozenset[str] = frozenset()) -> None:
        """Follow attributes, one after the other, as far as they are plain to see, and look at the last."""
        for name in names:
            if isinstance(owner, (*_PLAIN, Handle, np.ndarray)):
                return
            if isinstance(owner, (*_CONTAINERS, *_GENERATORS)) or owner is os.environ:  # and a method of it
                if name in _WRITES:
                    return
                break
            if isinstance(owner, (type, ModuleType)) and _is_foreign(getattr(owner, "__module__", owner.__name__)):
                if (owner := _of_library(owner, names[names.index(name) :])) is None:
                    return
                break
            own = getattr(owner, "__dict__", {})
            kind = owner if isinstance(owner, type) else type(owner)
            found = own[name] if name in own and not isinstance(owner, type) else _static(kind, name)
            if isinstance(found, MemberDescriptorType):
                found = getattr(owner, name, _MISSING)
            elif found is not _MISSING and (name not in own or isinstance(owner, type)) and hasattr(found, "__get__"):
                method = _function(found)  # a method, a property: it runs, and sees more of its object
                if isinstance(groups := own.get("param_groups"), list):
                    self._look_at_optimiser(owner, groups)
                if method is not None and not _is_foreign(method.__module__):
                    self._follow(method, owner, depth)
                return
            if found is _MISSING:
                return
            self._attributes.setdefault((id(owner), name), (owner, name, found))
            self._seen.setdefault(("kept", id(owner)), owner)
            owner = found
        self._look(owner, depth, loose)


def _of_library(owner: Any, names: Sequence[str]) -> Any:
    """The value behind a name of Python's standard library that differs each time: a clock, the environment."""
    for name in names:
        if owner is os and _is_environment(getattr(os, name, None)):
            return os.environ
        if owner not in (os, time, dt) and not (isinstance(owner, type) and issubclass(owner, dt.date)):
            return None
        owner = getattr(owner, name, None)
    return owner if _clock(owner) is not None else None


def _is_environment(value: Any) -> bool:
    """True if something is the environment, or a function that reads it."""
    # the object itself, which user's code reads; anneal reads no variable here
    return value is os.environ or (
        isinstance(value, FunctionType) and value.__module__ == "os" and "environ" in value.__code__.co_names
    )


def _clock(value: Any) -> str | None:
    """The name of a clock."""
    if isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        if isinstance(owner, type) and issubclass(owner, dt.date):
            return f"{owner.__name__}.{value.__name__}"
        if (owner is time and value.__name__ in _CLOCKS) or value is os.urandom:
            return f"{value.__module__}.{value.__name__}"
    return None


class _Contents:
    """The content of an object that may change and stay the same object."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def changed(self) -> bool:
        """True if it holds something else now."""
        raise NotImplementedError

    def failure(self) -> Failure:
        """The value that it held, and the one that it holds now."""
        raise NotImplementedError


class _Elements(_Contents):
    """The elements of an array."""

    __slots__ = ("_before",)

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._before = self._now()

    def _now(self) -> Any:
        return self._value.tobytes()

    def changed(self) -> bool:
        return bool(self._now() != self._before)

    def failure(self) -> Failure:
        before = np.frombuffer(self._before, self._value.dtype)
        return Failure(
            f"elements of {brief(self._value)}", brief(before[:4].tolist()), brief(self._value.ravel()[:4].tolist())
        )


class _Length(_Elements):
    """The length of a container too large to look into."""

    __slots__ = ()

    def _now(self) -> Any:
        return len(self._value)

    def failure(self) -> Failure:
        return Failure(f"length of a {type(self._value).__name__}", str(self._before), str(self._now()))


class _Items(_Contents):
    """The items of a list, a dict or a set."""

    __slots__ = ("_before",)

    def __init__(self, value: Any, before: list[Any]) -> None:
        super().__init__(value)
        self._before = before

    def changed(self) -> bool:
        now, before = _members(self._value), self._before
        return len(now) != len(before) or not all(a is b or _equal(a, b) for a, b in zip(now, before))

    def failure(self) -> Failure:
        now, before = _members(self._value), self._before
        kind = type(self._value).__name__
        if len(now) != len(before):
            count = 2 if isinstance(self._value, dict) else 1
            return Failure(f"length of a {kind}", str(len(before) // count), str(len(now) // count))
        for n, (a, b) in enumerate(zip(now, before)):
            if a is not b and not _equal(a, b):
                half = len(now) // 2
                at = repr(now[n - half]) if isinstance(self._value, dict) and n >= half else str(n)
                return Failure(f"item {at} of a {kind}", brief(b), brief(a))
        return Failure(f"items of a {kind}", "", "")


class _Objects(_Items):
    """The items of a list, compared by identity."""

    __slots__ = ()

    def changed(self) -> bool:
        return len(self._value) != len(self._before) or not all(map(is_, self._value, self._before))


class Draws:
    """The states of generators of random numbers that a run has no business with: a number drawn would be frozen.

    `others` are those that its function reaches beside the global ones. A function of the host may draw: replays call
    it.
    """

    def __init__(self, others: Sequence[Any] = ()) -> None:
        self._states: list[tuple[str, Callable[[], Any]]] = [
            ("random", random.getstate),
            ("numpy.random", partial(np.random.get_state, legacy=False)),
            *[(f"a {type(rng).__module__}.{type(rng).__name__}", _state_of(rng)) for rng in others],
        ]
        self.drawn: str | None = None  # the one from which the run drew
        self.begin()

    def begin(self) -> None:
        """Take what was drawn so far for nothing."""
        self._before = [pickle.dumps(state()) for _, state in self._states]

    def look(self) -> None:
        """Note whether something was drawn since."""
        for (name, state), before in zip(self._states, self._before, strict=True):
            if pickle.dumps(state()) != before:
                self.drawn = self.drawn or name


def _state_of(rng: Any) -> Callable[[], Any]:
    if isinstance(rng, np.random.Generator):
        return lambda: rng.bit_generator.state
    state: Callable[[], Any] = rng.getstate if isinstance(rng, random.Random) else rng.get_state
    return state


def brief(value: Any) -> str:
    """A value in a few words: a plain one as it is written, else its type; of tensors and arrays shape and dtype."""
    if value is _MISSING:
        return "nothing"
    if isinstance(value, Handle):
        return f"a tensor {value.uop.shape} of {value.uop.dtype.name}"
    if isinstance(value, UOp):
        return f"a graph {value.shape} of {value.dtype.name}"
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        if not all(isinstance(x, _PLAIN) for x in _members(value)):
            return f"a {type(value).__name__} of {len(value)}"
    elif not isinstance(value, _PLAIN):
        return _named(value) if isinstance(value, (type, ModuleType)) else f"another {_named(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _named(owner: Any) -> str:
    """An object's type, or the name of a class, a module or a function."""
    if isinstance(owner, (type, ModuleType, FunctionType, MethodType)):
        return str(getattr(owner, "__qualname__", owner.__name__))
    return type(owner).__name__


def _bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[CodeType, dict[str, Any]]:
    """The arguments that are objects, by name, with the code that takes them; jit itself looks at the others."""
    inner = getattr(function, "__func__", function)
    if not isinstance(inner, FunctionType):
        return {}
    code = inner.__code__
    names = code.co_varnames[int(inner is not function) : code.co_argcount]
    given = {**dict(zip(names, args)), **kwargs}
    return {code: {n: v for n, v in given.items() if not isinstance(v, (Handle, *_PLAIN, list, tuple, dict))}}


@lru_cache(1 << 12)
def _chains(code: CodeType) -> tuple[frozenset[tuple[str, ...]], frozenset[str]]:
    """The values that code reaches from variables by names alone, ("local", "self", "options", "scale"), and the
    attributes that it asks of anything else. Code of functions inside it counts; a variable stands for what was last
    put there.
    """
    chains: set[tuple[str, ...]] = set()
    loose: set[str] = set()
    known: dict[str, tuple[str, ...]] = {}
    for inner in _codes(code):
        for name in inner.co_varnames:
            known.pop(name, None)
        chain: tuple[str, ...] | None = None
        for step in dis.get_instructions(inner):
            stored, loaded = _variables(step)
            if stored is not None:
                known[stored] = chain or ("unknown",)
            before, chain = chain, None
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if before is None:
                    loose.add(step.argval)
                else:
                    chain = (*before, step.argval)
                continue
            if before is not None and step.opname != "STORE_ATTR":
                chains.add(before)
            if loaded is not None:
                kind = "global" if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else "local"
                chain = (kind, loaded) if kind == "global" else known.get(loaded, (kind, loaded))
    loose |= {name for kind, *names in chains if kind == "unknown" for name in names}
    return frozenset(c for c in chains if c[0] != "unknown"), frozenset(loose)


def _variables(step: dis.Instruction) -> tuple[str | None, str | None]:
    """The variable that an instruction stores, and the one that it leaves on top of the stack."""
    name, value = step.opname, step.argval
    if name.startswith("STORE_FAST_LOAD_FAST"):
        return value[0], value[1]
    if name.startswith(("STORE_FAST", "STORE_DEREF")):
        return (value[-1] if isinstance(value, tuple) else value), None
    if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")) or name in ("LOAD_GLOBAL", "LOAD_NAME"):
        return None, value[-1] if isinstance(value, tuple) else value
    return None, None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _function(found: Any) -> FunctionType | None:
    """The function behind what a class has under a name: a method, a property's, a class method's, a jit method's."""
    inner = getattr(found, "fget", None) or getattr(found, "__func__", found)
    inner = getattr(inner, "__wrapped__", inner)
    return inner if isinstance(inner, FunctionType) else None


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in _FOREIGN


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
    """True if two values are plain and the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, _PLAIN):
        return bool(a == b)
    if isinstance(a, (tuple, frozenset)):
        return len(a) == len(b) and all(x is y or _equal(x, y) for x, y in zip(a, b))
    return isinstance(a, MethodType) and a.__func__ is b.__func__ and a.__self__ is b.__self__
