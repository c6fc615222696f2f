"""Attributes whose names code gives as strings (`getattr`, `attrgetter`, `vars`) are guarded in jit functions."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from types import SimpleNamespace
from typing import Any

import pytest

import anneal as an
from anneal.tensor import jit
from tests.runtime.test_jit_objects import check_follows

pytestmark = pytest.mark.usefixtures("same_kernels")


class Settings:
    """Settings of a program, which it reads in several ways."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.inner = SimpleNamespace(rate=3.0)

    def apply(self, x: Any, more: float = 1.0) -> Any:
        return x * self.scale * more


def scaled(x: Any, given: Any) -> Any:
    return x * getattr(given, "scale", 1.0)


def counted(x: Any, given: Any) -> Any:
    return x * len(vars(given)) * given.__dict__["scale"]


def below(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda o: lambda x: x * get(o)


def from_call(ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def route(o: Any) -> Any:
        def get() -> Any:
            return o

        return lambda x: x * ask(get)

    return route


ROUTES: dict[str, Callable[[Any], Any]] = {
    "getattr": lambda o: lambda x: x * getattr(o, "scale"),  # noqa: B009
    "getattr of getattr": lambda o: lambda x: x * getattr(getattr(o, "inner"), "rate", 1.0),  # noqa: B009
    "getattr of an argument": lambda o: lambda x: scaled(x, o),
    "getattr of what a call gives": from_call(lambda get: getattr(get(), "scale", 1.0)),
    "getattr of what is not there yet": from_call(lambda get: getattr(get(), "extra", 1.0)),
    "hasattr of what a call gives": from_call(lambda get: 2 if hasattr(get(), "extra") else 3),
    "attrgetter": lambda o: lambda x: x * attrgetter("scale")(o),
    "attrgetter of two": lambda o: lambda x: x * sum(attrgetter("scale", "inner.rate")(o)),
    "an attrgetter kept": below(attrgetter("inner.rate")),
    "methodcaller": lambda o: lambda x: methodcaller("apply", x)(o),
    "methodcaller with keywords": lambda o: lambda x: methodcaller("apply", x, more=2.0)(o),
    "a methodcaller kept": lambda o: (lambda get, x: get(o) * x).__get__(methodcaller("apply", 3.0, more=2.0)),
    "vars": lambda o: lambda x: x * vars(o)["scale"],
    "vars below": lambda o: lambda x: x * vars(o.inner)["rate"],
    "vars of what a call gives": from_call(lambda get: vars(get())["scale"]),
    "__dict__": lambda o: lambda x: x * o.__dict__["scale"],
    "__dict__ of what a call gives": from_call(lambda get: get().__dict__["scale"]),
    "__dict__.get": lambda o: lambda x: x * o.__dict__.get("extra", 1.0),
    "all values": lambda o: lambda x: x * sum([v for v in vars(o).values() if isinstance(v, float)]),
    "all of an argument's": lambda o: lambda x: counted(x, o),
}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "scale": lambda o: setattr(o, "scale", 7.0),
    "inner": lambda o: setattr(o.inner, "rate", 7.0),
    "replaced": lambda o: setattr(o, "inner", SimpleNamespace(rate=11.0)),
    "added": lambda o: setattr(o, "extra", 4.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("route", ROUTES)
def test_names_in_strings_are_guarded(route: str, change: str) -> None:
    given = Settings()
    check_follows(ROUTES[route](given), lambda: CHANGES[change](given))


@pytest.mark.parametrize("route", ["getattr", "getattr of getattr", "attrgetter", "an attrgetter kept"])
def test_what_nobody_names_may_change(route: str) -> None:
    given = Settings()
    captured = jit(ROUTES[route](given))
    x = an.ones(2, device="cpu")
    for n in range(8):
        given.log = n  # type: ignore[attr-defined]
        captured(x)
    assert not captured.recaptures
