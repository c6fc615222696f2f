"""Creation rules: what they make, and that floats keep every bit."""

from __future__ import annotations

import inspect
import math
import random
import struct
import sys

import hypothesis
import hypothesis.strategies
import numpy as np
import pytest

from anneal.uop import DType, Op, UOp, alu, const, dtypes

I32, U32, F32, F16, BOOL = dtypes.int32, dtypes.uint32, dtypes.float32, dtypes.float16, dtypes.bool_
X = UOp(Op.VARIABLE, I32, (), ("x", -1000, 1000))
Y = UOp(Op.VARIABLE, I32, (), ("y", 0, 63))
FULL = UOp(Op.VARIABLE, I32, (), ("full", I32.min, I32.max))
F = UOp(Op.PARAM, F32, (), (0, ()))
P, Q = X < 3, Y < 5


def i(value: int) -> UOp:
    return const(I32, value)


def f(value: float) -> UOp:
    return const(F32, value)


def not_(u: UOp) -> UOp:
    return alu(Op.NOT, (u,))


CASES = [
    ("x + 0", X + 0, X),
    ("0 + x", 0 + X, X),
    ("x * 1", X * 1, X),
    ("x * 0", X * 0, i(0)),
    ("x - x", X - X, i(0)),
    ("constants move outward", (X + 3) + (Y + 4), Y + X + 7),
    ("x + x", X + X, X * 2),
    ("factors add", X * 3 + X * 5, X * 8),
    ("factors multiply", X * 3 * 5, X * 15),
    ("a minus is a plus", X - 3, X + -3),
    ("x // 1", X // 1, X),
    ("x % 1", X % 1, i(0)),
    ("a product divides", (X * 12) // 4, X * 3),
    ("a quotient of a small product", (X * 4) // 12, X // 3),
    ("a common factor goes", (X * 6) // 4, (X * 3) // 2),
    ("quotients join", X // 3 // 4, X // 12),
    ("an offset leaves", (X + 13) // 4, (X + 1) // 4 + 3),
    ("digits come apart", (X * 64 + Y) // 64, X),
    ("... into a smaller one", (X * 64 + Y) // 128, X // 2),
    ("... and a remainder", (X * 64 + Y) % 64, Y),
    ("... of two digits", (X * 64 + Y) % 128, X % 2 * 64 + Y),
    ("remainders join", X % 12 % 4, X % 4),
    ("a value below its divisor", Y % 64, Y),
    ("a value in one block", (Y + 64) % 64, Y),
    ("a comparison solves", (X + 3) < 5, X < 2),
    ("... a product", (X * 4) < 7, X < 2),
    ("... a negative product", (X * -4) < 7, i(-2) < X),
    ("... a quotient", (X // 4) < 3, X < 12),
    ("... two digits", (X * 64 + Y) < 128, X < 2),
    ("not less", not_(X < 5), i(4) < X),
    ("a bound decides", X < 2000, const(BOOL, True)),
    ("an equation solves", (X + 3).eq(5), X.eq(2)),
    ("x == x", X.eq(X), const(BOOL, True)),
    ("not not", not_(not_(P & Q)), P & Q),
    ("p & true", P & True, P),
    ("p & false", P & False, const(BOOL, False)),
    ("p | true", P | True, const(BOOL, True)),
    ("p & ~p", (P & Q) & not_(P & Q), const(BOOL, False)),
    ("a mask above the value", Y & 63, Y),
    ("max under bounds", alu(Op.MAX, (Y, i(-1))), Y),
    ("min under bounds", alu(Op.MIN, (Y, i(63))), Y),
    ("a constant condition", const(BOOL, True).where(X, Y), X),
    ("equal branches", P.where(X, X), X),
    ("a turned condition", not_(P & Q).where(X, Y), (P & Q).where(Y, X)),
    ("a choice of bools", P.where(const(BOOL, True), const(BOOL, False)), P),
    ("a nested choice", P.where(P.where(X, Y), Y), P.where(X, Y)),
    ("-(-x)", alu(Op.NEG, (-X,)), X),
    ("x + -y", F + -alu(Op.SIN, (F,)), F - alu(Op.SIN, (F,))),
    ("a float times one", F * 1.0, F),
    ("a float over a power of two", F / 8.0, F * 0.125),
    ("a float less nothing", F - 0.0, F),
    ("a float plus minus nothing", F + -0.0, F),
    ("a cast and back", X.cast(dtypes.int64).cast(I32), X),
    ("a cast through a wider type", X.cast(dtypes.int8).cast(dtypes.int16).cast(F32), X.cast(dtypes.int8).cast(F32)),
    ("division by zero waits", UOp(Op.IDIV, I32, (i(1), i(0))), alu(Op.IDIV, (i(1), i(0)))),
    ("log of a negative waits", UOp(Op.LOG, F32, (f(-1.0),)), alu(Op.LOG, (f(-1.0),))),
]


@pytest.mark.parametrize(("made", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_fold(made: UOp, wanted: UOp) -> None:
    assert made is wanted, f"\n{made}\n-- wanted\n{wanted}"


KEPT = [
    ("a float plus zero may be minus zero", lambda: F + 0.0, Op.ADD),
    ("a float times zero may be nan", lambda: F * 0.0, Op.MUL),
    ("a float less itself may be nan", lambda: F - F, Op.SUB),
    ("a float may differ from itself", lambda: F.eq(F), Op.EQ),
    ("float sums keep their order", lambda: (F + 1.0) + 2.0, Op.ADD),
    ("float products keep their order", lambda: (F * 3.0) * 5.0, Op.MUL),
    ("a third is not exact", lambda: F / 3.0, Op.DIV),
    ("a product that wraps keeps its division", lambda: (FULL * 4) // 4, Op.IDIV),
    ("a sum that wraps keeps its comparison", lambda: (FULL + 1) < 5, Op.LT),
    ("a lossy cast stays", lambda: X.cast(F16).cast(I32), Op.CAST),
    ("an int cut short stays cut", lambda: X.cast(dtypes.int8).cast(I32), Op.CAST),
]


@pytest.mark.parametrize(("make", "op"), [k[1:] for k in KEPT], ids=[k[0] for k in KEPT])
def test_what_must_not_fold(make: object, op: Op) -> None:
    u = make()  # type: ignore[operator]
    assert u.op is op
    assert len(u.src) >= 1


def test_the_kept_casts_keep_both() -> None:
    assert X.cast(dtypes.int8).cast(I32).src[0].op is Op.CAST
    assert ((F + 1.0) + 2.0).src[0] is F + 1.0


def test_shapes_survive_folding() -> None:
    wide = UOp(Op.PARAM, I32, (), (0, (4,)))
    gate = UOp(Op.PARAM, BOOL, (), (1, (4,)))
    assert (wide * 0).shape == (4,)
    assert (wide - wide).shape == (4,)
    assert wide.eq(wide).shape == (4,)
    assert gate.where(i(1), i(1)).shape == (4,)
    assert (gate & False).shape == (4,)
    assert alu(Op.WHERE, (const(BOOL, True), i(1), wide)).shape == (4,)
    assert alu(Op.WHERE, (const(BOOL, False), i(1), wide)) is wide
    assert alu(Op.MAX, (i(5), wide % 4)).shape == (4,)


def bits(x: float) -> int:
    return int(struct.unpack("I", struct.pack("f", x))[0])


EXACT = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}


@pytest.mark.parametrize("op", list(EXACT), ids=lambda op: op.name)
def test_float_constants_round_once(op: Op) -> None:
    rng = random.Random(7)
    for _ in range(3000):
        a, b = (struct.unpack("f", struct.pack("I", rng.getrandbits(32)))[0] for _ in range(2))
        folded = alu(op, (f(a), f(b)))
        if folded.op is not Op.CONST:
            assert op is Op.DIV
            continue
        with np.errstate(all="ignore"):
            wanted = EXACT[op](np.float32(a), np.float32(b))
        if math.isnan(wanted):
            assert math.isnan(folded.arg)
        else:
            assert bits(folded.arg) == bits(float(wanted)), (a, b)


@pytest.mark.parametrize("dtype", [I32, U32, dtypes.int8, dtypes.uint8, dtypes.int64], ids=lambda d: d.name)
def test_integer_constants_wrap_as_numpy_does(dtype: DType) -> None:
    rng = random.Random(3)
    kind = np.dtype(dtype.name)
    ops = {
        Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.IDIV: np.floor_divide, Op.MOD: np.mod,
        Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor, Op.MAX: np.maximum, Op.MIN: np.minimum,
    }  # fmt: skip
    for _ in range(500):
        a, b = (rng.choice((rng.randint(int(dtype.min), int(dtype.max)), rng.randint(0, 9))) for _ in range(2))
        for op, f in ops.items():
            if op in (Op.IDIV, Op.MOD) and (b == 0 or (a == dtype.min and b == -1)):
                continue
            with np.errstate(all="ignore"):
                wanted = f(np.array([a], kind), np.array([b], kind))[0]
            assert alu(op, (const(dtype, a), const(dtype, b))).arg == int(wanted), (op, a, b)


def test_what_every_device_computes_alike_is_computed_at_once() -> None:
    table = {Op.SQRT: np.sqrt, Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.ROUND: np.rint, Op.TRUNC: np.trunc}
    for op, g in table.items():
        for v in (0.5, 1.5, 2.5, 3.0, 0.1):
            assert bits(alu(op, (f(v),)).arg) == bits(float(g(np.float32(v))))
    assert bits(alu(Op.FLOOR, (f(-0.0),)).arg) == bits(-0.0)


def test_functions_of_constants_wait_for_the_device() -> None:
    for op in (Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.RSQRT):
        assert alu(op, (f(0.5),)).op is op
    assert alu(Op.POW, (f(0.5), f(1.5))).op is Op.POW


def test_constants_that_no_rule_computes_with_do_not_change_places() -> None:
    """Of zeros of unlike signs a device gives either, so their order stays; nan has no place in any order."""
    for op in (Op.MAX, Op.MIN):
        assert alu(op, (f(0.0), f(-0.0))).src == (f(0.0), f(-0.0))
        assert alu(op, (f(-0.0), f(0.0))).src == (f(-0.0), f(0.0))
        assert alu(op, (f(0.0), F)).src == (f(0.0), F)
        assert alu(op, (f(1.0), F)).src == (F, f(1.0))
        for a, b in ((math.nan, 0.0), (1.0, math.nan), (math.nan, math.nan)):
            assert math.isnan(alu(op, (f(a), f(b))).arg)


SPECIAL = (0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 2.0**-149, 3.4e38)
BINARY_OF_FLOATS = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN, Op.POW, Op.MOD, Op.IDIV)
UNARY_OF_FLOATS = (Op.NEG, Op.ABS, Op.SIGN, Op.SQRT, Op.RECIP, Op.FLOOR)
LEAVES = hypothesis.strategies.sampled_from([*map(f, SPECIAL), F])


@hypothesis.given(
    hypothesis.strategies.recursive(
        LEAVES,
        lambda inner: (
            hypothesis.strategies.tuples(hypothesis.strategies.sampled_from(BINARY_OF_FLOATS), inner, inner)
            | hypothesis.strategies.tuples(hypothesis.strategies.sampled_from(UNARY_OF_FLOATS), inner)
        ),
        max_leaves=20,
    )
)
@hypothesis.settings(max_examples=100, deadline=None)
def test_folding_ends(tree: object) -> None:
    """Whatever stands below, a node is made in a few steps: far fewer than Python's stack has."""

    def build(t: object) -> UOp:
        return t if isinstance(t, UOp) else alu(t[0], tuple(build(x) for x in t[1:]))  # type: ignore[index]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        assert build(tree).dtype is F32
    finally:
        sys.setrecursionlimit(limit)


def test_negation_of_zero_has_a_sign() -> None:
    assert bits((-f(0.0)).arg) == bits(-0.0)
