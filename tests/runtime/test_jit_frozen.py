"""Values of Python that a captured function would freeze: seen and followed, or refused with their line.

Each source gives another number in each call. A function that computes with it under jit gives what it gives without,
or raises a JitError before a number is wrong.
"""

from __future__ import annotations

import collections
import datetime as dt
import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import JitError
from anneal.tensor import Tensor, host_call, jit

CALLS = 6
Source = tuple[Callable[[], None], Callable[[], float]]  # what begins anew, and what gives a number
FOLLOWED: dict[str, Callable[[], Source]] = {}
REFUSED: dict[str, tuple[Callable[[], Source], str]] = {}


class Store:
    """Something that a name of a method leads to, and no attribute."""


def followed(make: Callable[[], Source]) -> Callable[[], Source]:
    FOLLOWED[make.__name__] = make
    return make


def refused(text: str) -> Callable[[Callable[[], Source]], Callable[[], Source]]:
    def note(make: Callable[[], Source]) -> Callable[[], Source]:
        REFUSED[make.__name__] = make, text
        return make

    return note


def nothing() -> None:
    pass


@followed
def a_counter() -> Source:
    count = itertools.count()
    return nothing, lambda: float(next(count))


@followed
def a_generator() -> Source:
    numbers = (float(n) for n in range(100))
    return nothing, lambda: next(numbers)


@followed
def an_iterator_in_an_attribute() -> Source:
    store = Store()
    store.numbers = iter(range(100))  # type: ignore[attr-defined]
    return nothing, lambda: float(next(store.numbers))  # type: ignore[attr-defined]


@followed
def a_deque() -> Source:
    waiting = collections.deque(float(n) for n in range(100))
    return nothing, lambda: waiting.popleft()


@followed
def a_list_from_its_end() -> Source:
    waiting = [float(n) for n in range(100)]
    return nothing, lambda: waiting.pop()


@followed
def a_key_by_get() -> Source:
    options = {"scale": 0.0}
    return lambda: options.update(scale=options["scale"] + 1), lambda: options.get("scale", 1.0)


@followed
def a_key_by_items() -> Source:
    options = {"scale": 0.0}
    return lambda: options.update(scale=options["scale"] + 1), lambda: sum(v for _, v in options.items())


def _more() -> None:
    os.environ["JIT_SCALE"] = str(float(os.environ.get("JIT_SCALE", "0")) + 1)


@followed
def the_environment() -> Source:
    return _more, lambda: float(os.environ["JIT_SCALE"])


@followed
def the_environment_by_get() -> Source:
    return _more, lambda: float(os.environ.get("JIT_SCALE", "0"))


@followed
def the_environment_by_getenv() -> Source:
    return _more, lambda: float(os.getenv("JIT_SCALE", "0"))


@followed
def a_count_of_calls() -> Source:
    store = Store()
    store.calls = 0  # type: ignore[attr-defined]

    def counted() -> float:
        store.calls += 1  # type: ignore[attr-defined]
        return float(store.calls)  # type: ignore[attr-defined]

    return nothing, counted


@refused("drew a random number from random")
def python_s_random() -> Source:
    return nothing, random.random


@refused("drew a random number from random")
def python_s_random_integers() -> Source:
    return nothing, lambda: float(random.randint(0, 10**6))


@refused("drew a random number from numpy.random")
def numpy_s_random() -> Source:
    return nothing, lambda: float(np.random.rand())


@refused("drew a random number from a random.Random")
def a_random_of_one_s_own() -> Source:
    own = random.Random(1)
    return nothing, lambda: own.random()


@refused("drew a random number from a numpy.random._generator.Generator")
def a_generator_of_numpy() -> Source:
    own = np.random.default_rng(1)
    return nothing, lambda: float(own.random())


@refused("drew a random number from a numpy.random.mtrand.RandomState")
def a_random_state_of_numpy() -> Source:
    store = Store()
    store.own = np.random.RandomState(1)  # type: ignore[attr-defined]
    return nothing, lambda: float(store.own.rand())  # type: ignore[attr-defined]


@refused("a jit function computes with [0-9.(), ]+ at .*test_jit_frozen.py:[0-9]+, where the run before had [0-9.(]+")
def what_cannot_be_seen() -> Source:
    globals()["UNSEEN"] = 0.0

    def more() -> None:
        globals()["UNSEEN"] += 1.5

    return more, lambda: sys.modules[__name__].UNSEEN  # type: ignore[no-any-return]


USES: list[Callable[[Tensor, float], Tensor]] = [
    lambda x, n: x * n,
    lambda x, n: x.clamp(max=n),
    lambda x, n: x ** (1 + n / 100),
    lambda x, n: x.reshape(1, 2).pad(((0, 0), (int(n * 7919) % 50 + 1, 0))).sum(1),
]


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_seen_is_followed(device: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JIT_SCALE", "0")
    found = []
    for wrap in (lambda f: f, jit):
        monkeypatch.setenv("JIT_SCALE", "0")
        begin, number = FOLLOWED[name]()
        f: Any = wrap(lambda x, number=number: x * number())
        out = []
        for _ in range(CALLS):
            begin()
            out.append(f(Tensor([1.0, 2.0])).tolist())
        found.append(out)
    assert found[1] == found[0]


@pytest.mark.parametrize("use", range(len(USES)))
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_seen_is_refused_before_it_is_wrong(device: str, name: str, use: int) -> None:
    make, text = REFUSED[name]
    begin, number = make()
    f = jit(lambda x: USES[use](x, number()))
    begin()
    f(Tensor([1.0, 2.0]))

    def rest() -> None:
        for _ in range(2):
            begin()
            f(Tensor([1.0, 2.0]))

    with pytest.raises(JitError, match=text):
        rest()


@pytest.mark.parametrize("clock", [
    lambda: time.time(), lambda: time.perf_counter(), lambda: time.monotonic_ns(), lambda: time.process_time(),
    lambda: dt.datetime.now(), lambda: dt.date.today(), lambda: int.from_bytes(os.urandom(2), "big"),
], ids=[*("time", "perf_counter", "monotonic_ns", "process_time", "now", "today", "urandom")])  # fmt: skip
def test_a_function_that_looks_at_a_clock_is_not_captured(clock: Callable[[], Any]) -> None:
    seen: list[Any] = []
    f = jit(lambda x: (seen.append(clock()), x * 2)[1])
    for n in range(5):
        assert f(Tensor([float(n)])).tolist() == [2.0 * n]
    assert len(seen) == 5
    (why,) = f.uncaptured.values()
    assert why.startswith("it sees the clock (")


class Lazy:
    """A layer that makes something at its first call: a number that differs between two runs, and then no more."""

    calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        name = "".join(("kno", "wn"))  # a computed one, which guards do not see
        if not hasattr(self, name):
            setattr(self, name, [])
        getattr(self, name).append(1)
        return x * (2.0 if len(getattr(self, name)) > 1 else 3.0)


def test_what_differs_once_is_captured_one_call_later() -> None:
    runs: list[int] = []
    layer = Lazy()
    f = jit(lambda x: (runs.append(1), layer(x))[1])
    assert [f(Tensor([1.0])).item() for _ in range(6)] == [3, 2, 2, 2, 2, 2]
    assert len(runs) == 3


def test_a_number_that_jit_sees_may_change_between_the_first_calls() -> None:
    scale = 0.0
    f = jit(lambda x: x * scale)
    out = []
    for n in range(8):
        scale = float(n if n < 4 else 4)
        out.append(f(Tensor([1.0])).item())
    assert out == [0, 1, 2, 3, 4, 4, 4, 4]
    assert any(c is not None for c in f.captures.values())


def test_what_the_host_draws_and_what_anneal_draws_is_drawn_again(device: str) -> None:
    rng = np.random.default_rng(3)

    @jit
    def f(x: Tensor) -> Tensor:
        return host_call(lambda a: a + np.float32(rng.random()), ((2,), "float32"), x) + an.rand(2)

    random.seed(1)
    first, second, third, fourth = (f(Tensor([1.0, 2.0])).tolist() for _ in range(4))
    assert len({tuple(v) for v in (first, second, third, fourth)}) == 4
    assert any(c is not None for c in f.captures.values())
