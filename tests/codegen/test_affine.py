"""Index arithmetic: affine forms and the expressions rebuilt from them keep their value."""

from __future__ import annotations

import random

from anneal.codegen.ranges import form, normalise
from anneal.uop import Op, UOp, const, dtypes, toposort
from tests.codegen import kernels as K

I32 = dtypes.int32


def value(u: UOp, at: dict[UOp, int]) -> int:
    """An index expression's value, by Python's arithmetic."""
    known: dict[UOp, int] = dict(at)
    rules = {
        Op.ADD: lambda a, b: a + b, Op.SUB: lambda a, b: a - b, Op.MUL: lambda a, b: a * b, Op.NEG: lambda a: -a,
        Op.IDIV: lambda a, b: a // b if b else 0, Op.MOD: lambda a, b: a % b if b else 0,
        Op.MIN: min, Op.MAX: max, Op.SHL: lambda a, b: a << b, Op.SHR: lambda a, b: a >> b, Op.AND: lambda a, b: a & b,
    }  # fmt: skip
    for n in toposort((u,), until=lambda n: n in known):
        known[n] = int(n.arg) if n.op is Op.CONST else rules[n.op](*[known[s] for s in n.src])
    return known[u]


def expression(rng: random.Random, ranges: list[UOp], depth: int) -> UOp:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*ranges, const(I32, rng.randint(-9, 9))])
    a = expression(rng, ranges, depth - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return a * rng.choice([-3, 2, 4, 6, 12])
    if kind == 1:
        return a // rng.choice([2, 3, 4, 6, 12])
    if kind == 2:
        return a % rng.choice([2, 3, 4, 6, 12])
    b = expression(rng, ranges, depth - 1)
    return a + b if kind < 5 else a - b


def test_normal_form_keeps_the_value_of_random_expressions() -> None:
    rng = random.Random(0)
    ranges = [K.loop(e, i) for i, e in enumerate((5, 12, 7))]
    for _ in range(2000):
        u = expression(rng, ranges, 4)
        n = normalise(u, serial=0b100)
        for _ in range(8):
            at = {r: rng.randrange(int(r.src[0].arg)) for r in ranges}
            assert value(u, at) == value(n, at), f"{u}\n->\n{n}\nat {list(at.values())}"


def test_division_loses_what_divides_evenly() -> None:
    i, j = K.loop(5, 0), K.loop(6, 1)
    assert normalise((i * 6 + j) // 6) is i
    assert normalise((i * 6 + j) % 6) is j


def test_quotient_and_remainder_join() -> None:
    f = K.loop(60, 0)
    assert normalise((f // 5) * 5 + f % 5) is f
    assert normalise((f // 20) * 20 + (f // 5) % 4 * 5 + f % 5) is f
    terms, constant = form((f // 5) * 10 + f % 5 * 2 + 3)
    assert (terms, constant) == ({f: 2}, 3)


def test_loop_terms_come_last_so_that_the_rest_is_lifted() -> None:
    i, k = K.loop(5, 0), K.over(6, 1)
    n = normalise(k * 3 + i * 2 + 1, serial=0b10)
    assert n is (i * 2 + k * 3) + 1
