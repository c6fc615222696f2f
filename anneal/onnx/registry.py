"""The table of operators: one function for each operator and family of versions."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, overload

from anneal.runtime import Fun

F = TypeVar("F", bound=Fun)


@dataclass(eq=False)
class Operator:
    """The computation of an operator from version `since` of its domain on, until another one begins.

        @op(since=7)
        def Gemm(a: Tensor, b: Tensor, c: MaybeTensor, *, alpha: float, beta: float, transA: int, transB: int):
            ...

    The function takes the inputs by position (an absent optional one is None) and, as keyword-only parameters, the
    attributes it reads, by their ONNX names. Defaults of the schema are filled in; an attribute that has none is None,
    or the parameter's own default. It returns one value, or a tuple for several outputs; those behind the ones
    that the node wants are let go. `execute.node` is the node that runs: its version, its device, its errors.

    Values are Tensors on the node's device, NumPy arrays on the host, lists (sequences), None (an empty optional), and
    NumPy arrays of objects (strings). Which of them a function gets is said by the types of its parameters, or where it
    is registered:

    - by default every input is a Tensor;
    - an `Array` is an input whose values decide shapes: it comes as a NumPy array, whatever it was;
    - `host=True`: if all other inputs are NumPy arrays as well, the function gets them as they are, and gives arrays;
      `host=function` is another function, of the same inputs, for that case;
    - a `Value`, or anything, is raw: it comes as it is (sequences, control flow, what looks at shapes alone); symbolic
      sizes (`Sizes`) come as tensors, unless `sizes=True`.

    An array that depends on fixed arrays and on shapes alone is computed once for each set of input shapes.
    """

    name: str
    domain: str
    since: int
    function: Fun
    on_host: Fun | None  # gets NumPy arrays alone
    values: frozenset[str]  # names of inputs that are wanted as NumPy arrays
    inputs: tuple[str, ...]  # names of the positional parameters; the last may take all that follow
    tensors: frozenset[str]  # those that come as tensors, whatever the others do
    required: frozenset[str]  # those of them that are not optional, as far as types say it
    variadic: bool
    attributes: dict[str, Any]  # those that are read, with the parameter's own default, or None
    record: tuple[str, type] | None  # the parameter that gets several attributes as one value, and its type
    raw: bool
    was: tuple[str, ...] = ()  # attributes of this version that are the last inputs of a later one
    by_shape: bool = False  # no value of an input matters, their shapes alone
    pure: bool = True  # equal inputs give equal results
    sizes: bool = False  # raw, and `Sizes` come as they are
    numbers: bool = False  # arrays of one number come as constants of the kernel
    asks: str = ""  # the one of `values` that comes as it is: the function reads it itself

    def wants_value(self, n: int) -> bool:
        """True if the values of input `n` decide shapes."""
        return bool(self.values) and self.inputs[min(n, len(self.inputs) - 1)] in self.values


_TABLE: dict[tuple[str, str], list[Operator]] = {}
_ARRAYS, _RAW = ("Array", "MaybeArray"), ("Any", "Value", "MaybeValue")  # the types of inputs that say how they come
_NEEDED = ("Array", "Tensor", "Value", inspect.Parameter.empty)  # and that they must be there; a lambda's have none


def _put(one: Operator) -> None:
    known = _TABLE.setdefault((one.domain, one.name), [])
    if any(k.since == one.since for k in known):
        raise ValueError(f"{one.name} of {one.domain or 'ai.onnx'} is registered twice for version {one.since}")
    known.append(one)
    known.sort(key=lambda k: k.since)


@overload
def op(function: F, /) -> F: ...
@overload
def op(*names: str, **how: Any) -> Callable[[F], F]: ...
def op(
    *names: Any,
    since: int = 1,
    domain: str | None = None,
    host: Fun | bool = False,
    was: tuple[str, ...] = (),
    passes: Fun | None = None,
    **how: Any,
) -> Any:
    """Register a function for the operator of its name, or for the operators `names`, from version `since` of `domain`
    on: a decorator. `Operator` says what the function gets and gives.

    Args:
        domain: if it is not given, the DOMAIN of the folder in which the function stands.
        host: the function for NumPy arrays, where all inputs are arrays; True if it is the same.
        was: the names that its last inputs had as attributes before `since`, "" for none: one function serves both.
        passes: the function that it hands its further keywords, `**how`, on to, whose attributes it so has.

        how: what else `Operator` says of it: `by_shape`, no value of an input matters to it, their shapes alone;
            `pure=False` for what draws random numbers; `sizes`, it is raw, and takes `Sizes` as well; `numbers`, arrays
            of one number come as constants; `asks`, the input whose values decide shapes that it reads itself.

    A keyword whose type is a NamedTuple stands for several attributes: they are its fields.

    Raises ValueError for a name registered twice.
    """

    def register(function: F) -> F:
        called = [n for n in names if isinstance(n, str)] or [function.__name__]
        folder = sys.modules.get(function.__module__.rpartition(".")[0])
        home = getattr(folder, "DOMAIN", "") if domain is None else domain
        parameters = inspect.signature(function).parameters.values()
        inputs = {p.name: p.annotation for p in parameters if p.kind < p.KEYWORD_ONLY and p.default in (p.empty, None)}
        attributes: dict[str, Any] = {}
        records = [_read(f, attributes) for f in (function, passes) if f is not None]
        facts = (
            function if host is True else host or None,
            frozenset(name for name, kind in inputs.items() if kind in _ARRAYS or name == how.get("asks")),
            tuple(inputs),
            frozenset(name for name, kind in inputs.items() if kind in ("MaybeTensor", "Tensor")),
            frozenset(
                p.name
                for p in parameters
                if p.kind < p.VAR_POSITIONAL and p.default is p.empty and p.annotation in _NEEDED
            ),
            any(p.kind is p.VAR_POSITIONAL for p in parameters),
            attributes,
            next(filter(None, records), None),
            "sizes" in how or (not host and any(kind in _RAW for kind in inputs.values())),
        )
        made = [Operator(n, home, since, function, *facts, **how) for n in called]
        if was:
            more = {**attributes, **dict.fromkeys(was)}
            made += [replace(one, since=1, attributes=more, was=was) for one in made]
        for one in made:
            _put(one)
        return function

    return register(names[0]) if names and callable(names[0]) else register


def also(function: Fun, name: str = "", *, domain: str = "com.microsoft", **defaults: Any) -> None:
    """Register a function's operator in another domain as well, from its first version on, perhaps by another name.
    `defaults` are those of attributes, which no schema says there.
    """
    one = next(one for known in _TABLE.values() for one in known if one.function is function and not one.was)
    _put(replace(one, name=name or one.name, domain=domain, since=1, attributes={**one.attributes, **defaults}))


def _read(function: Fun, attributes: dict[str, Any]) -> tuple[str, type] | None:
    """Put the attributes that keywords stand for into `attributes`, with their defaults; the keyword that stands for
    several, and its type.
    """
    record = None
    names = getattr(function, "__globals__", {})
    for p in inspect.signature(function).parameters.values():
        kind: Any = names.get(p.annotation)
        if hasattr(kind, "_field_defaults"):
            record = p.name, kind
            attributes.update(kind._field_defaults)
        elif p.kind is p.KEYWORD_ONLY:
            attributes[p.name] = None if p.default is p.empty else p.default
    return record


def rows(functions: Mapping[str, Fun], **how: Any) -> None:
    """Register a table of functions by the names of operators; `how` as for `op`."""
    for name, function in functions.items():
        op(name, **how)(function)


@cache
def _load() -> None:
    """Import every file below `ops/`, which registers what stands there."""
    folder = importlib.import_module("anneal.onnx.ops")
    for found in pkgutil.walk_packages(folder.__path__, "anneal.onnx.ops."):
        importlib.import_module(found.name)


def find(name: str, domain: str, version: int) -> Operator | None:
    """The newest implementation not above `version`, or None."""
    _load()
    known = _TABLE.get((domain, name), [])
    at = bisect_right(known, version, key=lambda k: k.since)
    return known[at - 1] if at else None


def table() -> dict[tuple[str, str], list[Operator]]:
    """The implementations by domain and name, oldest first."""
    _load()
    return _TABLE
