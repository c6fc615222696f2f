"""Random programs of loops and choices, as values that several libraries run: anneal, jax.lax, and Python's own loops.

A program is a list of steps over vectors of three elements; each adds one to those that there are. Steps have steps of
their own inside: the body of a loop, the branches of a choice. What is there before a loop is read inside as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

SIZE = 3
STEPS = ("scan", "scan", "fori", "cond", "while", "op", "op")
OPS: dict[str, Callable[..., Any]] = {
    "tanh": lambda m, a, b, w: m.tanh(a * b + 0.1),
    "sine": lambda m, a, b, w: m.sin(a) - 0.5 * b,
    "product": lambda m, a, b, w: (a @ w) * 0.7 + b,
    "sum": lambda m, a, b, w: a.sum() * 0.3 + b * a,
    "choice": lambda m, a, b, w: m.where(a > b, a * 0.8, b),
    "turned": lambda m, a, b, w: m.flip(a, (0,)) * 0.9 + b[0],
}


@dataclass(frozen=True)
class Library:
    """What a program is run with: a module of functions, and the loops of it."""

    m: Any
    scan: Callable[..., Any]
    fori_loop: Callable[..., Any]
    while_loop: Callable[..., Any]
    cond: Callable[..., Any]


def python(m: Any, select: bool = False) -> Library:
    """Python's own loops over the functions of a module; with `select` a choice computes both results."""

    def scan(f: Any, init: Any, xs: Any, length: int | None = None, reverse: bool = False) -> Any:
        count = len(xs[0])
        rows: dict[int, Any] = {}
        carry = init
        for n in range(count)[:: -1 if reverse else 1]:
            carry, rows[n] = f(carry, tuple([x[n] for x in xs]))
        return carry, m.stack([rows[n] for n in range(count)])

    def fori_loop(lower: int, upper: int, f: Any, value: Any) -> Any:
        for n in range(lower, upper):
            value = f(n, value)
        return value

    def while_loop(goes_on: Any, f: Any, value: Any) -> Any:
        while bool(goes_on(value)):
            value = f(value)
        return value

    def cond(p: Any, first: Any, second: Any, *operands: Any) -> Any:
        if select:
            return m.where(p, first(*operands), second(*operands))
        return first(*operands) if bool(p) else second(*operands)

    return Library(m, scan, fori_loop, while_loop, cond)


def program(seed: int, depth: int = 2, loops: tuple[str, ...] = STEPS, count: int = 3) -> list[Any]:
    """The steps of a random program, three levels deep at most."""
    r = Random(seed)

    def steps(level: int, n: int) -> list[Any]:
        return [step(level) for _ in range(n)]

    def step(level: int) -> Any:
        kind = r.choice(loops) if level else "op"
        pick = (r.random(), r.random(), r.random())
        if kind == "op":
            return ("op", r.choice(list(OPS)), pick)
        if kind == "cond":
            return ("cond", pick, steps(level - 1, r.randint(1, 2)), steps(level - 1, r.randint(1, 2)))
        inner = steps(level - 1, r.randint(1, 2))
        return (kind, pick, r.randint(1, 4), r.random() < 0.5, inner)

    return [*steps(depth, count - 1), step(depth) if loops[0] == "op" else _loop_step(r, step, depth)]


def _loop_step(r: Random, step: Callable[[int], Any], depth: int) -> Any:
    while (found := step(depth))[0] == "op":
        r.random()
    return found


def run(steps: list[Any], lib: Library, values: list[Any], w: Any) -> Any:
    """The last vector of a program."""
    env = list(values)
    for s in steps:
        env.append(_step(s, lib, env, w))
    return env[-1]


def _step(s: Any, lib: Library, env: list[Any], w: Any) -> Any:
    def at(p: float) -> Any:
        return env[int(p * len(env))]

    if s[0] == "op":
        return OPS[s[1]](lib.m, at(s[2][0]), at(s[2][1]), w)
    if s[0] == "cond":
        (p, q, _), first, second = s[1:]
        a = at(p)
        return lib.cond(
            a.sum() > q - 0.5, lambda x: run(first, lib, [*env, x], w), lambda x: run(second, lib, [*env, x], w), a
        )
    kind, (p, q, c), count, flag, inner = s
    a, b = at(p), at(q)
    if kind == "scan":

        def turn(carry: Any, x: Any) -> Any:
            u, v = carry
            new = run(inner, lib, [*env, u, v, x[0]], w)
            return (lib.m.tanh(new), u * 0.5 + x[0] * x[1]), new * v

        rows = lib.m.stack([at(c) * (0.5 + k) for k in range(count)])
        numbers = lib.m.stack([at(p)[0] + k for k in range(count)])
        (u, v), ys = lib.scan(turn, (a, b), (rows, numbers), reverse=flag)
        return lib.m.tanh(u + v + ys.sum(0)) + ys[0] * 0.1
    if kind == "fori":
        return lib.fori_loop(
            1, 1 + count, lambda i, x: lib.m.tanh(run(inner, lib, [*env, x], w) + 0.125 * i), a
        )  # a number of the turn as a value, too

    def body(state: Any) -> Any:
        n, x = state
        return n + 1, lib.m.tanh(run(inner, lib, [*env, x], w))

    return lib.while_loop(lambda state: (state[0] < count) & (state[1].sum() < 2.5), body, (0, a))[1]
