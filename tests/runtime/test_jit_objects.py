"""Attributes of objects that a jit function passes on, to a helper or in a list, are guarded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import anneal as an
from anneal.tensor import Tensor, jit

pytestmark = pytest.mark.usefixtures("same_kernels")


@dataclass
class Inner:
    """Settings below others."""

    rate: float = 3.0


@dataclass
class Settings:
    """Settings of a program, which it passes on to its helpers."""

    scale: float = 2.0
    inner: Inner = field(default_factory=Inner)

    @property
    def doubled(self) -> float:
        return 2 * self.scale

    def apply(self, x: Tensor) -> Tensor:
        return x * self.scale


class Slotted:
    """The same, without a dict."""

    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


def helper(x: Tensor, given: Any) -> Any:
    return x * given.scale


def deeper(x: Tensor, given: Any) -> Any:
    return helper(x, given) + given.inner.rate


def by_property(x: Tensor, given: Any) -> Any:
    return x * given.doubled


def by_method(x: Tensor, given: Any) -> Tensor:
    applied: Tensor = given.apply(x)
    return applied


def kept(x: Tensor, given: Any) -> Any:
    same = given
    return x * same.scale


class Trainer:
    """A program's class whose method passes its settings on."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def loss(self, x: Tensor) -> Any:
        return helper(x, self.settings)


def in_list(given: Any) -> Callable[[Tensor], Tensor]:
    several = [given]
    return lambda x: helper(x, several[0])


def in_dict(given: Any) -> Callable[[Tensor], Tensor]:
    several = {"a": given}
    return lambda x: Tensor.stack([helper(x, v) for v in several.values()])


def from_call(given: Any) -> Callable[[Tensor], Tensor]:
    def get() -> Any:
        return given

    return lambda x: x * get().scale


def by_inner(given: Any) -> Callable[[Tensor], Tensor]:
    def inner(y: Tensor, t: Any) -> Tensor:
        return helper(y, t)

    return lambda x: inner(x, given)


Route = Callable[[Any], Callable[[Tensor], Tensor]]
ROUTES: dict[str, Route] = {
    "an argument": lambda o: lambda x: helper(x, o),
    "by name": lambda o: lambda x: helper(x, given=o),
    "an argument's argument": lambda o: lambda x: deeper(x, o),
    "a property": lambda o: lambda x: by_property(x, o),
    "a method": lambda o: lambda x: by_method(x, o),
    "another name": lambda o: lambda x: kept(x, o),
    "a list": in_list,
    "items of a dict": in_dict,
    "what a call gives": from_call,
    "an attribute": lambda o: Trainer(o).loss,
    "a helper of a helper": by_inner,
}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "scale": lambda o: setattr(o, "scale", o.scale + 5.0),
    "inner": lambda o: setattr(o.inner, "rate", 7.0),
    "replaced": lambda o: setattr(o, "inner", Inner(11.0)),
}


def check_follows(function: Callable[[Tensor], Tensor], change: Callable[[], Any]) -> None:
    """A captured function gives what the function itself gives, before a change and after it."""
    captured = jit(function)
    x = an.ones(2, device="cpu")
    for n in range(10):
        if n == 5:
            change()
        assert captured(x).tolist() == function(x).tolist()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("change", CHANGES)
def test_attributes_of_what_is_passed_on_are_guarded(route: str, change: str) -> None:
    given = Settings()
    check_follows(ROUTES[route](given), lambda: CHANGES[change](given))


@pytest.mark.parametrize("route", ["an argument", "a list", "another name"])
def test_slots_are_guarded_too(route: str) -> None:
    given = Slotted()
    check_follows(ROUTES[route](given), lambda: setattr(given, "scale", 9.0))


def test_what_nobody_asks_may_change() -> None:
    given = Settings()
    captured = jit(lambda x: helper(x, given))
    x = an.ones(2, device="cpu")
    for n in range(8):
        given.inner = Inner(float(n))  # a log, say
        captured(x)
    assert not captured.recaptures


class Counting:
    """A program's class with a number of the name of a method that its helpers call of something else."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.apply = 0


def applied(x: Tensor, given: Any) -> Tensor:
    out: Tensor = given.apply(x)
    return out


def test_a_number_of_a_methods_name_may_change() -> None:
    counting, settings = Counting(), Settings()
    captured = jit(lambda x: helper(x, counting) + applied(x, settings))
    runs = []
    for n in range(8):
        counting.apply = n  # who calls `apply()` of the other does not read it
        runs.append(captured(an.ones(2, device="cpu")).tolist())
    assert runs == [[4.0, 4.0]] * 8
    assert any(c is not None for c in captured.captures.values())
    settings.scale = 3.0
    assert captured(an.ones(2, device="cpu")).tolist() == [5.0, 5.0]
