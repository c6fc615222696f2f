"""The index algebra: forms a scheduler writes become the forms a reader would."""

from __future__ import annotations

import itertools
import random

import pytest

from anneal.rewrite import simplify
from anneal.uop import Op, UOp, alu, const, dtypes
from tests.rewrite.fuzz_index import failures

I32 = dtypes.int32


def rng(size: int, number: int) -> UOp:
    return UOp(Op.RANGE, I32, (const(I32, size),), (number, "loop"))


A, B, C, D = rng(4, 0), rng(12, 1), rng(64, 2), rng(64, 3)
E, K = rng(65, 4), rng(3, 5)
POS = A * 768 + B * 64 + C
WIDE = C * 64 + D
NO = const(dtypes.bool_, False)


def not_(u: UOp) -> UOp:
    return alu(Op.NOT, (u,))


CASES = [
    ("a row-major position loses its digits", POS // 768, A),
    ("... the middle one", POS // 64 % 12, B),
    ("... the last one", POS % 64, C),
    ("... two at once", POS % 768, B * 64 + C),
    ("a quotient by a multiple", POS // 128, A * 6 + B // 2),
    ("a quotient and remainder meet", (C // 8) * 8 + C % 8, C),
    ("... in another order", C % 8 + (C // 8) * 8, C),
    ("... as part of a sum", (C // 8) * 16 + A + C % 8 * 2, C * 2 + A),
    ("... of a sum", (WIDE // 32) * 32 + WIDE % 32, WIDE),
    ("three digits meet", (WIDE // 256) * 256 + (WIDE // 16) % 16 * 16 + WIDE % 16, WIDE),
    ("two digits meet", (C // 8) % 4 * 8 + C % 8, C % 32),
    ("a common factor goes", (C * 6 + D * 4) // 8, (C * 3 + D * 2) // 4),
    ("a remainder keeps its factor", (C * 6) % 8, C * 3 % 4 * 2),
    ("a flipped digit", (const(I32, 63) - C) // 8, C // 8 * -1 + 7),
    ("a flipped remainder", (const(I32, 63) - C) % 8, C % 8 * -1 + 7),
    ("equal terms cancel", C - D * 3 + 5 - C, D * -3 + 5),
    ("a comparison of equal sums", (A + B) < (B + A + 1), const(dtypes.bool_, True)),
    ("a comparison divides", (A * 768 + B * 64) < 1536, A < 2),
    ("small terms do not matter", POS < 1536, A < 2),
    ("... with an offset", (B * 64 + C + 640) < 768, B < 2),
    ("an equation divides", alu(Op.EQ, (A * 8, const(I32, 16))), alu(Op.EQ, (A, const(I32, 2)))),
    ("an equation that cannot hold", alu(Op.EQ, (A * 8 + C * 2, const(I32, 17))), NO),
    ("gates merge", (C < 32) & (C < 40), C < 32),
    ("gates exclude each other", (C < 32) & not_(C < 40), NO),
    ("gates pin a value", (C < 33) & not_(C < 32), alu(Op.EQ, (C, const(I32, 32)))),
    ("a gate that always holds goes", (C < 64) & (D < 8), D < 8),
    ("a remainder divided", (C % 32) // 8, C // 8 % 4),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_simplify(before: UOp, after: UOp) -> None:
    assert simplify(before) is simplify(after), f"\n{simplify(before)}\n-- wanted\n{simplify(after)}"


def test_a_sum_does_not_depend_on_how_it_was_built() -> None:
    terms = [A * 768, B * 64, C, D * 64, const(I32, 5), C * 2]
    forms = set()
    for order in itertools.permutations(terms):
        total = order[0]
        for t in order[1:]:
            total = UOp(Op.ADD, I32, (total, t))
        forms.add(simplify(total))
    assert len(forms) == 1
    pairs = [UOp(Op.ADD, I32, (terms[i], terms[i + 1])) for i in (0, 2, 4)]
    assert simplify(UOp(Op.ADD, I32, (pairs[2], UOp(Op.ADD, I32, (pairs[0], pairs[1]))))) in forms


def test_simplify_is_its_own_fixpoint() -> None:
    from tests.rewrite.fuzz_index import integer

    for seed in range(300):
        once = simplify(integer(random.Random(seed), 4, []))
        assert simplify(once) is once


def test_wrap_around_is_respected() -> None:
    full = UOp(Op.VARIABLE, I32, (), ("full", I32.min, I32.max))
    for u in ((full * 4) // 4, (full + 1) < 5, (full * 2) % 2 + full // 2):
        assert not simplify(u).is_const
    assert simplify((full * 4) // 4) is not full
    assert simplify((full + 1) - 1) is full


def test_loads_inside_an_index_are_left_alone() -> None:
    p = UOp(Op.PARAM, I32, (), (0, (64,)))
    load = UOp(Op.LOAD, I32, (p, UOp(Op.ADD, I32, (C, const(I32, 0)))))
    assert simplify(load * 4 + C - load * 4) is C
    assert simplify(load) is load


def test_floats_are_left_alone() -> None:
    f = UOp(Op.LOAD, dtypes.float32, (UOp(Op.PARAM, dtypes.float32, (), (0, (64,))), C))
    u = UOp(Op.SUB, dtypes.float32, (f, f))
    assert simplify(u) is u


def test_a_sum_of_20000_terms_takes_linear_time() -> None:
    total: UOp = A
    for i in range(20_000):
        total = UOp(Op.ADD, I32, (total, A if i % 2 else B))
    assert simplify(total) is simplify(A * 10_001 + B * 10_000)
    doubled: UOp = UOp(Op.ADD, I32, (A, B))
    for _ in range(200):
        doubled = UOp(Op.ADD, I32, (doubled, doubled))
    assert simplify(doubled) is const(I32, 0)  # 2**200 times anything wraps to nothing


def test_2000_random_expressions_keep_their_value() -> None:
    bad = failures(2000, seed=1)
    assert not bad, "\n\n".join(m for _, m in bad)
