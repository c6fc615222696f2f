"""Decisions of legalise: what becomes logic, what is computed wide, what rounds on its way, what a target lacks."""

from __future__ import annotations

import math

import pytest

from anneal.codegen import Target
from anneal.codegen.legalise import legalise
from anneal.errors import DTypeError
from anneal.schedule import PERMUTATION
from anneal.uop import DType, Op, UOp, const, dtypes, toposort
from tests.codegen import kernels as K

I = K.loop(8, 0)
P, Q = K.load(K.param(1, 8, K.BOOL), I), K.load(K.param(2, 8, K.BOOL), I)
X = K.load(K.param(1, 8), I)


def legal(value: UOp, target: Target | None = None) -> UOp:
    """What is stored in the place of `value`."""
    made = legalise(K.sink(UOp(Op.STORE, value.dtype, (K.param(0, 8, value.dtype), I, value))), target or Target())
    return made.src[0].src[2]


def raw(op: Op, dtype: DType, *src: UOp) -> UOp:
    return UOp(op, dtype, src)


@pytest.mark.parametrize(("op", "want"), [
    (Op.ADD, lambda: P | Q),
    (Op.MUL, lambda: P & Q),
    (Op.SUB, lambda: P ^ Q),
    (Op.MAX, lambda: P | Q),
    (Op.MIN, lambda: P & Q),
    (Op.NE, lambda: P ^ Q),
    (Op.LT, lambda: Op.NOT(P) & Q),
])  # fmt: skip
def test_arithmetic_on_bools_is_logic(op: Op, want: object) -> None:
    assert callable(want)
    assert legal(raw(op, K.BOOL, P, Q)) is want()


@pytest.mark.parametrize(("op", "counted"), [(Op.ADD, Op.MAX), (Op.MAX, Op.MAX), (Op.MUL, Op.MIN), (Op.MIN, Op.MIN)])
def test_a_reduction_of_bools_is_one_of_integers(op: Op, counted: Op) -> None:
    k = K.over(4, 1)
    x = K.load(K.param(1, 32, K.BOOL), I * 4 + k)
    assert legal(K.reduce(op, x, k)) is K.reduce(counted, x.cast(K.I32), k).ne(0)


def test_other_reductions_stay() -> None:
    k = K.over(4, 1)
    total = K.reduce(Op.ADD, K.load(K.param(1, 32), I * 4 + k), k)
    assert legal(total) is total


def test_nan_is_told_by_its_bits() -> None:
    bits = UOp(Op.BITCAST, K.U32, (X,)) & 0x7FFFFFFF
    is_nan = Op.LT(const(K.U32, 0x7F800000), bits)
    assert legal(raw(Op.NE, K.BOOL, X, X)) is is_nan
    assert legal(raw(Op.EQ, K.BOOL, X, X)) is Op.NOT(is_nan)
    other = raw(Op.NE, K.BOOL, X, K.load(K.param(2, 8), I))
    assert legal(other) is other


def test_integers_are_whole_and_unsigned_ones_have_no_sign() -> None:
    n, u = K.load(K.param(1, 8, K.I32), I), K.load(K.param(1, 8, K.U32), I)
    for op in (Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC):
        assert legal(raw(op, K.I32, n)) is n
        assert legal(raw(op, K.F32, X)).op is op
    assert legal(raw(Op.ABS, K.U32, u)) is u
    assert legal(raw(Op.ABS, K.I32, n)).op is Op.ABS
    assert legal(raw(Op.NEG, K.U32, u)) is const(K.U32, 0) - u


@pytest.mark.parametrize(
    ("divisor", "exact"), [(8.0, True), (0.25, True), (-2.0, True), (3.0, False), (2.0**15, False), (0.0, False)]
)
def test_a_power_of_two_divides_by_a_product(divisor: float, exact: bool) -> None:
    made = legal(raw(Op.DIV, K.F32, X, const(K.F32, divisor)))
    assert made.op is (Op.MUL if exact else Op.DIV)
    if exact:
        assert made is X * (1 / divisor)


def test_exp_of_a_rounded_product_is_exp2() -> None:
    assert legal(Op.EXP(X * 0.3)) is Op.EXP2(X * (0.3 * math.log2(math.e)))
    assert legal(Op.EXP(X * 2.0)).op is Op.EXP  # exact, so that exp has to be
    assert legal(Op.EXP(X)).op is Op.EXP


# -- narrow dtypes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("narrow", "wide"), [
    (dtypes.bfloat16, K.F32), (dtypes.float8_e4m3fn, K.F32), (dtypes.int8, K.I32), (dtypes.uint16, K.U32),
])  # fmt: skip
def test_what_memory_packs_is_computed_wide_and_rounded_at_once(narrow: DType, wide: DType) -> None:
    a, b = K.load(K.param(1, 8, narrow), I), K.load(K.param(2, 8, narrow), I)
    c = raw(Op.MUL, narrow, raw(Op.ADD, narrow, a, b), a)
    made = legalise(K.sink(UOp(Op.STORE, narrow, (K.param(0, 8, narrow), I, c))), Target())
    computed = [u for u in toposort((made,)) if u.op in (Op.ADD, Op.MUL)]
    assert [u.dtype for u in computed] == [wide, wide]
    [total, product] = computed
    assert product.src[0].op is Op.CAST  # the sum was rounded before it is a factor
    assert product.src[0].src[0].op is Op.CAST
    assert product.src[0].src[0].dtype is narrow
    assert product.src[0].src[0].src[0] is total


def test_a_store_that_rounds_needs_no_conversion_before_it() -> None:
    for dtype, held in ((dtypes.bfloat16, K.F32), (dtypes.int8, K.I32), (dtypes.float16, K.F32)):
        x = K.load(K.param(1, 8, held), I)
        assert legal(UOp(Op.CAST, dtype, (x,)), Target(f16=True)) is x
    x = K.load(K.param(1, 8, K.I32), I)
    assert legal(UOp(Op.CAST, K.F32, (x,))).op is Op.CAST
    converted = UOp(Op.CAST, dtypes.float16, (x,))
    assert legal(converted, Target(f16=True)) is converted, "memory rounds floats, and no integers"


# -- sorting ----------------------------------------------------------------------------------------------------------


def test_a_sort_counts_what_comes_before() -> None:
    keys = K.param(1, 8)
    order = UOp(Op.ARGSORT, K.I32, (keys, I), None)
    store = legalise(K.sink(UOp(Op.STORE, K.I32, (K.param(0, 8, K.I32), I, order))), Target()).src[0]
    rank, value = store.src[1:]
    assert value is I, "element r is stored where its rank says"
    assert (rank.op, rank.arg) == (Op.REDUCE, Op.ADD)
    j = rank.src[1]
    mine, other = K.load(keys, I), K.load(keys, j)
    assert rank.src[0] is ((other < mine) | (other.eq(mine) & (j < I))).cast(K.I32), "equal ones in their order"


def test_a_permutation_is_inverted_without_a_loop() -> None:
    keys = K.param(1, 8, K.I32)
    order = UOp(Op.ARGSORT, K.I32, (keys, I), PERMUTATION)
    store = legalise(K.sink(UOp(Op.STORE, K.I32, (K.param(0, 8, K.I32), I, order))), Target()).src[0]
    assert store.src[1:] == (K.load(keys, I), I)


# -- what a target lacks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "feature"), [
    (dtypes.float16, "shader-f16"), (dtypes.float64, "shader-f64"), (dtypes.int64, "shader-int64"), (dtypes.uint64, "shader-int64"),
])  # fmt: skip
def test_a_dtype_that_the_target_lacks_is_named_with_its_feature(dtype: DType, feature: str) -> None:
    with pytest.raises(DTypeError, match=rf"no buffer of {dtype.name}: this adapter lacks {feature}; cast it"):
        legal(K.load(K.param(1, 8, dtype), I))
    with pytest.raises(DTypeError, match=rf"CAST of {dtype.name}"):
        legal(raw(Op.LT, K.BOOL, UOp(Op.CAST, dtype, (X,)), const(dtype, 1)))


def test_a_dtype_that_the_target_has_is_fine() -> None:
    x = K.load(K.param(1, 8, dtypes.float16), I)
    assert legal(x, Target(f16=True)) is x
