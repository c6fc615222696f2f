"""Guards of a capture, and the structure of its function's arguments: they decide whether a call may be a replay."""

from __future__ import annotations

import datetime as dt
import dis
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from io import IOBase
from operator import attrgetter, is_, methodcaller
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from anneal.errors import JitError
from anneal.frozen import frozen
from anneal.runtime.context import same_plain
from anneal.runtime.execution import realize
from anneal.runtime.handle import Handle
from anneal.runtime.nodes import is_realized, owner_of, shown_below
from anneal.uop import SYMBOLIC, Op, UOp
from anneal.uop.sizes import bindings_of, is_symbolic, mapped as of_sizes, symbolic_arg, unbound, variables_of

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_WRITES = frozenset(
    ["add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "remove", "update"]
)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_CLOCKS = frozenset(
    f"{name}{kind}"
    for name in ["time", "perf_counter", "monotonic", "process_time", "thread_time", "localtime", "gmtime", "ctime"]
    for kind in ("", "_ns")
)  # fmt: skip
_ASKING = frozenset(["getattr", "hasattr", "attrgetter", "methodcaller", "vars"])  # for a name in a string
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_MISSING: Any = object()
_FLAGGED = sys.version_info >= (3, 12)  # LOAD_ATTR says by a bit that it loads a method
_ITEMS = 4096  # items of containers and arrays that are watched in all; of further ones only the length is
_DEPTH = 40  # attributes and calls that are followed, one from another
_THINGS = 10_000  # objects that are looked at: a call into a large library must not watch all of it


@frozen
class Failure:
    """A guard that does not hold: the name of what it watches, and its values at the capture and now, as short text."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


_Said = Callable[[Any, Any], Failure] | str  # makes the failure if a value has changed; or its name


class Guards:
    """The values that `function` uses beside these arguments, compared with the present ones at every replay.

    Followed from the function's code: variables of its closure and defaults, globals, and the attributes it reaches
    from those and from `self` (`self.options.scale`), into the functions, methods and modules' `forward` that it finds
    there. Remembered: plain values, which tensors stand there (and their nodes, where those are lazy), the items of
    containers, small arrays, the environment. `unguarded` names an iterator, or a clock that user's code names: they
    cannot be remembered. A `getattr` with a computed name, say, is not seen.
    """

    unguarded: str | None = None  # something that has another value each time, in words
    _contents = 0  # how many objects are watched that may change and stay the same
    _installed = False  # whether what is followed is code of an installed package
    _room = _ITEMS

    def __init__(self, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}) -> None:
        # by what is watched: what gives its present value, the value that it had, and what says that it is another now,
        # or its name
        self._watched: dict[Any, tuple[Callable[[], Any], Any, _Said]] = {}
        self.generators: list[Any] = []  # of random numbers
        self.tensors: list[Handle] = []  # which may be frozen, and unfrozen
        self._seen: dict[Any, Any] = {}  # with the objects, so that no id is used twice
        self._arguments = _bound(function, args, kwargs)
        self._objects: list[Any] = []  # objects that followed code may pass on
        self._asked: set[tuple[str, ...]] = set()  # attributes that such code asks of its arguments
        self._optional: set[tuple[str, ...]] = set()  # such attributes that need not be there yet
        self._look(function, 0)
        self._look_at_objects()

    def failure(self) -> Failure | None:
        """The first thing that is another now; None if all is as it was."""
        for look, value, said in self._watched.values():
            now = look()
            if now is not value and not _equal(now, value):
                return said(value, now) if callable(said) else Failure(said, brief(value), brief(now))
        return None

    def _watch(self, key: Any, look: Callable[[], Any], said: _Said, value: Any = _MISSING) -> None:
        """Remember `value`, which `look` returns. `said` makes the failure if it has changed, or is its name."""
        if key not in self._watched:
            self._watched[key] = look, look() if value is _MISSING else value, said

    def _watch_attribute(self, owner: Any, name: str, value: Any) -> None:
        what = "a lazy tensor" if isinstance(owner, Handle) else f"{_named(owner)}.{name}"
        self._watch((id(owner), name), partial(getattr, owner, name, _MISSING), what, value)

    def _watch_content(self, owner: Any, look: Callable[[], Any], said: _Said) -> None:
        """Remember the content of a mutable object."""
        self._contents += 1
        self._watch(id(owner), look, said)

    def _new(self, *things: Any) -> bool:
        key = tuple([id(x) for x in things])
        return len(self._seen) < _THINGS and self._seen.setdefault(key, things) is things

    def _fits(self, size: int) -> bool:
        if size > self._room:
            return False
        self._room -= size
        return True

    def _look_at_objects(self) -> None:
        """For each object remember the attributes that followed code asks of its arguments."""
        done = set()
        while todo := [
            (owner, names)
            for owner in self._objects
            for names in self._asked | self._optional
            if (id(owner), names) not in done and (names in self._optional or _has(owner, names[0]))
        ]:
            for owner, names in todo:
                done.add((id(owner), names))
                self._reach(owner, names, 1)

    def _look(self, value: Any, depth: int) -> None:
        """Remember the content of `value`, and of what it leads to."""
        if isinstance(value, _PLAIN) or depth > _DEPTH or not self._new(value):
            return
        depth += 1
        if isinstance(value, Handle):
            self.tensors.append(value)
            if (view := value._base) and value._is_part():
                # what it is a part of may change: then it gets another node
                self._watch_attribute(value, "_base", view)
                self._look(view.root, depth)
            # of one that was computed from others a gradient goes on to those
            elif not is_realized(value.uop) or (value._wants and not value._leaf) or owner_of(value) is not value:
                self._watch_attribute(value, "uop", value.uop)
                # memory that it reads is found through the tensor that shows it, which may show other memory later
                for owner in shown_below(value):
                    self._watch_attribute(owner, "uop", owner.uop)
        elif _is_environment(value):
            self._look_at_container(vars(os.environ)["_data"], depth)
        elif isinstance(value, FunctionType):
            self._follow(value, None, depth)
        elif isinstance(value, MethodType):
            if isinstance(value.__func__, FunctionType):
                self._follow(value.__func__, value.__self__, depth)
        elif isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self._look(part, depth)
        elif isinstance(value, (attrgetter, methodcaller)):
            made = value.__reduce__()  # of a method that is called with keywords a partial has the name
            given = (*getattr(made[0], "args", ()), *made[1])
            self._optional |= {tuple(n.split(".")) for n in given if isinstance(n, str)}
        elif isinstance(value, _CONTAINERS):
            self._look_at_container(value, depth)
        elif isinstance(value, np.ndarray):
            if self._fits(value.size) and value.dtype != object:
                self._watch_content(value, value.tobytes, partial(_elements_changed, value))
        elif isinstance(value, _GENERATORS):
            self.generators.append(value)
        elif isinstance(value, Iterator) and not isinstance(value, IOBase):
            self._is_unguarded(f"a {type(value).__name__}, which gives another value each time")
        elif clock := _clock(value):
            self._is_unguarded(f"the clock ({clock})")
        elif not isinstance(value, (type, ModuleType)):
            if isinstance(groups := getattr(value, "__dict__", {}).get("param_groups"), list):  # in a container
                self._look_at_optimiser(value, groups)
            self._look_at_parameters(value)
            inner = getattr(value, "__wrapped__", None)  # of a jit function, a cached one, ...
            if inner is not None:
                self._look(inner, depth)
            elif not _is_foreign(type(value).__module__):
                for name in ("__call__", "forward"):  # what `value(...)` runs
                    method = _static(type(value), name)
                    if isinstance(method, FunctionType):
                        self._follow(method, value, depth)
            self._objects.append(value)

    def _look_at_optimiser(self, owner: Any, groups: list[dict[str, Any]]) -> None:
        """Remember what an optimiser trains, and which tensors its state is; its settings say themselves that they
        change."""
        if self._new(owner, groups):
            self._watch_attribute(owner, "param_groups", groups)
            for x in (groups, *[g["params"] for g in groups]):
                self._watch_content(x, partial(tuple, x), partial(_items_changed, list))
            self.tensors += [p for g in groups for p in g["params"]]
            self._watch((id(owner), "state"), partial(_state_tensors, owner), f"{_named(owner)}.state")

    def _look_at_parameters(self, owner: Any) -> None:
        """Note the parameters of a module, some of which may be frozen, and see what its hooks see."""
        if not isinstance(owner, type) and hasattr(type(owner), "named_parameters") and self._new(owner, "parameters"):
            self.tensors += owner.parameters()
            named = [n for m in owner.modules() if m._hooks is not None for n in m._hooks.values()]
            self._look([hook for n in named for hook, _ in n.values()], 0)

    def _is_unguarded(self, what: str) -> None:
        if not self._installed:  # a library may look at the clock for a log
            self.unguarded = self.unguarded or what

    def _look_at_container(self, value: Any, depth: int) -> None:
        if not self._fits(len(value)):
            if self._contents < 64:
                self._watch_content(value, partial(len, value), f"length of a {type(value).__name__}")
            return
        if not isinstance(value, (tuple, frozenset)):
            self._watch_content(value, partial(_members, value), partial(_items_changed, type(value)))
        for member in _members(value):
            self._look(member, depth)

    def _follow(self, function: FunctionType, owner: Any, depth: int) -> None:
        """Watch what the code of a function reads; `owner` is what its first argument is bound to, if anything."""
        if not self._new(function, owner):
            return
        code = function.__code__
        outer = self._installed
        self._installed = outer or "site-packages" in code.co_filename or "dist-packages" in code.co_filename
        chains, loose, written = _chains(code)
        cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        foreign = _is_foreign(function.__globals__.get("__name__", ""))
        roots = self._arguments.pop(code, {})
        if owner is not None and code.co_argcount:
            roots["local", code.co_varnames[0]] = owner
        for name, cell in cells.items():
            roots["local", name] = content = _content(cell)
            self._watch(id(cell), partial(_content, cell), f"variable {name}", content)
        if not foreign:
            for name in sorted({name for kind, name, *_ in chains if kind == "global"} & function.__globals__.keys()):
                roots["global", name] = content = function.__globals__[name]
                look = partial(function.__globals__.get, name, _MISSING)
                self._watch((id(function.__globals__), name), look, f"global {name}", content)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._look(default, depth)
        for kind, name, *names in sorted(chains):
            if (kind, name) in roots:
                self._reach(roots[kind, name], tuple(names), depth)
            elif kind == "local" and names and not foreign:
                self._asked.add(tuple(names))
        if not foreign:
            self._asked.update([(name,) for name in loose])
            self._optional |= written
        self._installed = outer

    def _reach(self, owner: Any, names: tuple[str, ...], depth: int) -> None:
        """Follow attributes, one after the other, as long as reading them runs no code, and look at the last."""
        names = tuple([name.removesuffix("()") for name in names])
        for name in names:
            if isinstance(owner, _PLAIN):
                return
            if isinstance(owner, (Handle, np.ndarray)):  # a method of it, which reads its values
                break
            if isinstance(owner, (*_CONTAINERS, *_GENERATORS)) or owner is os.environ:  # and a method of it
                if name in _WRITES:
                    return
                break
            if isinstance(owner, (type, ModuleType)) and _is_foreign(getattr(owner, "__module__", owner.__name__)):
                owner = _of_library(owner, names[names.index(name) :])
                break
            own = getattr(owner, "__dict__", {})
            if name == "__dict__" and type(own) is dict and not isinstance(owner, ModuleType):
                owner = own  # which is read as a whole
                break
            kind = owner if isinstance(owner, type) else type(owner)
            found = own[name] if name in own and not isinstance(owner, type) else _static(kind, name)
            if isinstance(found, MemberDescriptorType):
                found = getattr(owner, name, _MISSING)
            elif found is not _MISSING and (name not in own or isinstance(owner, type)) and hasattr(found, "__get__"):
                method = _function(found)  # a method, a property: it runs, and sees more of its object
                if isinstance(groups := own.get("param_groups"), list):
                    self._look_at_optimiser(owner, groups)
                self._look_at_parameters(owner)
                if method and not _is_foreign(method.__module__):
                    self._follow(method, owner, depth)
                return
            if found is _MISSING and (hasattr(type(owner), "__getattr__") or isinstance(owner, ModuleType)):
                return
            self._watch_attribute(owner, name, found)  # also an attribute that is not there yet
            self._seen.setdefault(("kept", id(owner)), owner)
            owner = found
        self._look(owner, depth)


def _has(owner: Any, name: str) -> bool:
    """True if an object or its class has an attribute, whatever its value; for `name()`, one that can be called."""
    plain = name.removesuffix("()")
    found = getattr(owner, "__dict__", {}).get(plain, _MISSING)
    found = _static(type(owner), plain) if found is _MISSING else found
    return found is not _MISSING and (plain == name or callable(found) or hasattr(found, "__get__"))


def _state_tensors(optimiser: Any) -> tuple[Handle, ...]:
    """The tensors of an optimiser's state: a program may take them away, or put others there."""
    held = getattr(optimiser, "state", {}).values()
    return tuple([t for own in held if isinstance(own, dict) for t in own.values() if isinstance(t, Handle)])


def _of_library(owner: Any, names: Sequence[str]) -> Any:
    """A value of Python's standard library that differs from call to call, such as a clock or the environment."""
    for name in names:
        if owner in (os, time, dt) or (isinstance(owner, type) and issubclass(owner, dt.date)):
            owner = getattr(owner, name, None)
    return owner if _is_environment(owner) or _clock(owner) else None


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


def _elements_changed(array: Any, before: bytes, now: bytes) -> Failure:
    """The failure of a guard that watches the elements of an array."""
    old, new = [brief(np.frombuffer(x, array.dtype)[:4].tolist()) for x in (before, now)]
    return Failure(f"elements of {brief(array)}", old, new)


def _items_changed(kind: type, before: tuple[Any, ...], now: tuple[Any, ...]) -> Failure:
    """The failure of a guard that watches the items of a container of this kind."""
    name, parts = kind.__name__, 2 if issubclass(kind, dict) else 1
    if len(before) != len(now):
        return Failure(f"length of a {name}", str(len(before) // parts), str(len(now) // parts))
    n, half = next(n for n, (a, b) in enumerate(zip(before, now)) if not _same(a, b)), len(now) // 2
    at = repr(now[n - half]) if parts == 2 and n >= half else str(n)
    return Failure(f"item {at} of a {name}", brief(before[n]), brief(now[n]))


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


def _bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[CodeType, dict[Any, Any]]:
    """The arguments that are objects, by name, with the code that takes them; jit itself looks at the others."""
    inner = getattr(function, "__func__", function)
    if not isinstance(inner, FunctionType):
        return {}
    code = inner.__code__
    names = code.co_varnames[int(inner is not function) : code.co_argcount]
    given = {**dict(zip(names, args)), **kwargs}
    seen = (Handle, *_PLAIN, list, tuple, dict)
    return {code: {("local", n): v for n, v in given.items() if not isinstance(v, seen)}}


@lru_cache(1 << 12)
def _chains(code: CodeType) -> tuple[frozenset[tuple[str, ...]], frozenset[str], frozenset[tuple[str, ...]]]:
    """The values that code reaches from variables by names alone, ("local", "self", "options", "scale"), the attributes
    that it asks of anything else, and those that it may ask by a string. Code of functions inside it counts; a variable
    stands for what was last put there.
    """
    chains = set()
    loose, written = set[str](), set[tuple[str, ...]]()
    known: dict[str, tuple[str, ...]] = {}
    for inner in _codes(code):
        for name in inner.co_varnames:
            known.pop(name, None)
        chain: tuple[str, ...] | None = None
        asks, whole = not _ASKING.isdisjoint(inner.co_names), False  # whole: the argument of `vars` is loaded
        for step in dis.get_instructions(inner):
            stored, loaded = _variables(step)
            if stored:
                known[stored] = chain or ("unknown",)
            before, chain = chain, None
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                called = step.opname == "LOAD_METHOD" or (_FLAGGED and bool((step.arg or 0) & 1))
                # who asks for a method does not read a number of that name
                name = f"{step.argval}()" if called else step.argval
                if before is None:
                    loose.add(name)
                else:
                    chain = (*before, name)
                continue
            if before and step.opname != "STORE_ATTR":
                chains.add(before)
                if whole and step.opname in ("PRECALL", "CALL"):
                    chains.add((*before, "__dict__"))
            if asks and step.opname == "LOAD_CONST" and isinstance(step.argval, str):
                names = tuple(step.argval.split("."))
                if before is None or before[-1].removesuffix("()") in _ASKING:
                    if all(map(str.isidentifier, names)):
                        written.add(names)
                else:
                    chains.add((*before, *names))
            whole = loaded == "vars" or (whole and step.opname != "CALL")
            if loaded:
                kind = "global" if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else "local"
                chain = (kind, loaded) if kind == "global" else known.get(loaded, (kind, loaded))
    loose |= {name for kind, *names in chains if kind == "unknown" for name in names}
    return frozenset(c for c in chains if c[0] != "unknown"), frozenset(loose), frozenset(written)


def _variables(step: dis.Instruction) -> tuple[str | None, str | None]:
    """The variable that an instruction stores, and the variable that is on top of the stack after it."""
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


# Code that is not the user's: what it sees does not change, or says so itself. A class that `exec` makes in a namespace
# without a name is in "builtins", whose own classes have nothing to look at.
_FOREIGN = frozenset(("anneal", "numpy", *sys.stdlib_module_names)) - {"__main__", "builtins", "test"}
_LIBRARY = os.path.dirname(getattr(os, "__file__", ""))


def _is_foreign(module: str | None) -> bool:
    """True for a module of anneal, NumPy or Python; a file of the user's may have the name of one of Python's."""
    name = (module or "").partition(".")[0]
    if name not in _FOREIGN or name in ("anneal", "numpy"):
        return name in _FOREIGN
    return (getattr(sys.modules.get(name), "__file__", None) or _LIBRARY).startswith(_LIBRARY)


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


def _members(value: Any) -> tuple[Any, ...]:
    return (*value.keys(), *value.values()) if isinstance(value, dict) else tuple(value)


def _same(a: Any, b: Any) -> bool:
    """True if two values are one, or plain and equal."""
    return a is b or _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    """True if two values are plain and the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, frozenset)):
        return len(a) == len(b) and (all(map(is_, a, b)) or all(map(_same, a, b)))
    if isinstance(a, _PLAIN):
        return same_plain(a, b)
    return isinstance(a, MethodType) and a.__func__ is b.__func__ and a.__self__ is b.__self__


# -- arguments ---------------------------------------------------------------------------------------------------------
# Nests of tensors, sizes and plain values: what a jit function takes and gives.


class ArrayGiven(JitError):
    """An array among the arguments, to be made a tensor."""


def flatten(value: Any, tensors: list[Handle], bound: dict[str, int] | None) -> Any:
    """Collect the tensors of a nest of tuples, lists and dicts, and the values of Variables, where `bound` takes them.

    Returns the nest's structure, which can be hashed. A tensor with a size that a call of the host is to find is
    computed for it.
    """
    if isinstance(value, Handle):
        tensors.append(value)
        shape = value.uop.shape
        if SYMBOLIC.seen and bound is not None and symbolic_arg(shape):
            if not is_realized(value.uop) and any(v.op is Op.VARIABLE for n in shape for v in variables_of(n)):
                realize([value])
                shape = value.uop.shape
            shape = of_sizes(shape, lambda n: unbound(n, bound))
        return ("T", shape, value.uop.dtype, value._device, value._wants)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[flatten(v, tensors, bound) for v in value])
    if isinstance(value, dict):
        return ("dict", *[(k, flatten(v, tensors, bound)) for k, v in value.items()])
    if isinstance(value, UOp) and is_symbolic(value) and not value.is_const:
        return ("S", unbound(value, bound) if bound is not None and bindings_of(value) else value)
    try:
        hash(value)
    except TypeError:
        if isinstance(value, np.ndarray):
            raise ArrayGiven("a jit function returns tensors, not NumPy arrays: return Tensor(array)") from None
        raise JitError(
            f"a jit function takes tensors, arrays, hashable values and nests of them, not {type(value).__name__}"
        ) from None
    return ("V", type(value), value, *(["-0.0"] if value.__class__ is float and repr(value) == "-0.0" else ()))
