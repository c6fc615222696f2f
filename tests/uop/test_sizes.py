"""Sizes over variables: one canonical form, and what their bounds decide."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from anneal.errors import ShapeError
from anneal.rewrite import simplify
from anneal.uop import Op, UOp, const, decode_graph, dtypes, encode_graph
from anneal.uop.sizes import (
    Count,
    count,
    divided_size,
    evaluator,
    poly,
    product,
    range_of,
    size,
    size_text,
    variable,
)

N, M = variable("n", 1, 16), variable("m", 0, 9)
SIZES = st.recursive(
    st.sampled_from([N, M, 1, 2, 3, 64]),
    lambda x: st.tuples(st.sampled_from("+-*/%<>"), x, x),
    max_leaves=7,
)


def made(tree: object) -> UOp | int | None:
    """The size of a tree of operations, as it is built; None where it divides by what may be 0, or leaves the 32 bits
    that sizes have.
    """
    if not isinstance(tree, tuple):
        return tree  # type: ignore[return-value]
    op, a, b = tree[0], made(tree[1]), made(tree[2])
    if a is None or b is None or (op in "/%" and range_of(b)[0] <= 0):
        return None
    x: UOp = a if isinstance(a, UOp) else const(dtypes.int32, a)
    (a_low, a_high), (b_low, b_high) = range_of(a), range_of(b)
    if max(map(abs, (a_low, a_high))) * max(map(abs, (b_low, b_high, 1))) >= 2**31:
        return None
    y: UOp = b if isinstance(b, UOp) else const(dtypes.int32, b)
    return size({"+": x + b, "-": x - b, "*": x * b, "/": x // b, "%": x % b, "<": Op.MIN(x, y), ">": Op.MAX(x, y)}[op])


def value(tree: object, n: int, m: int) -> int:
    if not isinstance(tree, tuple):
        return n if tree is N else m if tree is M else tree  # type: ignore[return-value]
    a, b = value(tree[1], n, m), value(tree[2], n, m)
    if tree[0] in "/%":
        return a // b if tree[0] == "/" else a % b
    return {"+": a + b, "-": a - b, "*": a * b, "<": min(a, b), ">": max(a, b)}[tree[0]]


@given(SIZES, st.integers(1, 16), st.integers(0, 9))
def test_a_size_has_the_value_of_what_it_was_built_from(tree: object, n: int, m: int) -> None:
    u = made(tree)
    if u is None:
        return
    low, high = range_of(u)
    got = evaluator((u,))({"n": n, "m": m})[0]
    assert got == value(tree, n, m)
    assert low <= got <= high
    if isinstance(u, UOp):
        assert size(u) is u
        assert decode_graph(encode_graph(u)) is u


def test_equal_sizes_are_one_node() -> None:
    assert size((N + 1) * M) is size(M * N + M)
    assert size(N * 64 // 64) is N
    assert size(N - N) == 0
    assert size((N * M + M) // (M + 1) * (M + 1)) is not size(N * M + M)
    assert product((2, N, 32)) is product((64, N)) is product((N, 8, 8))
    assert divided_size(product((N, M, 12)), product((N, 4))) is size(M * 3)
    assert divided_size(product((N, 3)), 2) is None
    assert size_text(size((N + M) * 3)) == "m*3 + n*3"
    assert size_text(N * (M // 2)) == "n*(m//2)"


def test_counts_are_equal_only_to_the_same_expression() -> None:
    a, b = count((4, N)), count((N, 2, 2))
    assert isinstance(a, Count)
    assert a == b
    assert int(a) == 64 != a
    assert count((64,)) != a
    assert a > 63
    assert a * 2 == count((8, N))


def test_truth_follows_from_the_bounds() -> None:
    assert N > 0
    assert N + M >= 1
    assert not N < 1
    assert N + 1 > N
    with pytest.raises(ShapeError, match="whether n < 5 holds depends"):
        bool(N < 5)
    with pytest.raises(ShapeError, match="whether m holds depends"):
        bool(M)


def test_the_smaller_of_two_sizes_is_above_neither() -> None:
    some, rest = Op.MIN(N, const(dtypes.int32, 5)), Op.MAX(N - 5, const(dtypes.int32, 0))
    assert range_of(N - some) == (0, 11)
    assert range_of(N - rest) == (1, 5)
    assert range_of(some - Op.MIN(N, const(dtypes.int32, 4))) == (0, 1)
    assert range_of(N - some - rest) == (0, 0)


def loop(extent: UOp | int, ident: int) -> UOp:
    return UOp(
        Op.RANGE, dtypes.int32, (extent if isinstance(extent, UOp) else const(dtypes.int32, extent),), (ident, "loop")
    )


def test_an_index_over_symbolic_axes_is_taken_apart_without_division() -> None:
    i, j, k = loop(7, 0), loop(N, 1), loop(64, 2)
    long = size(N + 1)
    assert isinstance(long, UOp)
    p = loop(long, 3)
    assert simplify((i * N + j) // N) is i
    assert simplify((i * N + j) % N) is j
    assert simplify((i * (N + 1) * 64 + p * 64 + k) // ((N + 1) * 64)) is i
    assert simplify((j + N) // N).arg == 1
    assert simplify((j * 64 + k) < N * 64).arg is True
    assert simplify(j < N).arg is True
    assert simplify((j + 1) < N).op is Op.LT
    assert simplify((i * N + j + 1) // N) is not i


def test_division_by_sizes_is_right_for_every_value() -> None:
    r = random.Random(0)
    for _ in range(60):
        extents: list[UOp | int] = [r.choice((3, N, 4, size(N + 2))) for _ in range(3)]
        ranges = [loop(e, n) for n, e in enumerate(extents)]
        whole = (ranges[0] * extents[1] + ranges[1]) * extents[2] + ranges[2] + r.choice((0, 0, 1))
        divisor = size(extents[2] * r.choice((1, extents[1])))
        d = divisor if isinstance(divisor, UOp) else const(dtypes.int32, divisor)
        exact, rest = simplify(whole // d), simplify(whole % d)
        for _ in range(20):
            n = r.randint(1, 16)
            at = [r.randrange(evaluator((e,))({"n": n})[0]) for e in extents]
            x, y, q, left = (_at(u, at, n) for u in (whole, d, exact, rest))
            assert (q, left) == divmod(x, y)


def _at(u: UOp, at: list[int], n: int) -> int:
    total = 0
    for m, k in poly(u).items():
        for a in m:
            k *= at[a.arg[0]] if a.op is Op.RANGE else n if a is N else _at_division(a, at, n)
        total += k
    return total


def _at_division(u: UOp, at: list[int], n: int) -> int:
    assert u.op in (Op.IDIV, Op.MOD), u
    a, b = (_at(s, at, n) for s in u.src)
    return a // b if u.op is Op.IDIV else a % b
