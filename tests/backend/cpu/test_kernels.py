"""Kernels built by hand, against the scalar oracle: one test for each way that the planner can go."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from anneal.backend import get_device, numpy_dtype
from anneal.backend.cpu import analysis, binding, dynamic, executor, layout, planner
from anneal.uop import REAL, DType, Op, UOp, const, dtypes
from tests.backend.cpu.kernels import (
    BOOL,
    F16,
    F32,
    F64,
    I32,
    check,
    filled,
    kernel,
    load,
    loop,
    over,
    param,
    reduce,
    run,
    store,
)

RNG = np.random.default_rng(7)
INTS = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, I32, dtypes.uint32, dtypes.int64, dtypes.uint64)


def data(size: int, dtype: DType = F32) -> np.ndarray:
    return filled(RNG, size, dtype)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few elements, every worker in use: remainders and folds happen at test sizes."""
    monkeypatch.setattr(layout, "BLOCK", 7)
    monkeypatch.setattr(layout, "_WORKER_NS", -1)
    monkeypatch.setattr(planner, "INLINE", 12)
    monkeypatch.setattr(layout, "_LEAST", 0)
    programs = get_device("cpu").__dict__["_programs"]
    programs.clear()
    yield
    programs.clear()


# -- elementwise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 7, 8, 50])
def test_a_chain_runs_in_blocks_with_a_remainder(n: int, small_blocks: None) -> None:
    i = loop(0, n)
    x = load(param(1, n), i)
    check(kernel(store(param(0, n), i, Op.TANH(x * 2.0 + 1.0) * x)), data(n), data(n))


def test_rows_and_columns_broadcast() -> None:
    i, j = loop(0, 5), loop(1, 6)
    x = load(param(1, 30), i * 6 + j) * load(param(2, 6), j) + load(param(3, 5), i)
    check(kernel(store(param(0, 30), i * 6 + j, x)), data(30), data(30), data(6), data(5))


def test_a_constant_fills_and_a_range_counts() -> None:
    i, j = loop(0, 3), loop(1, 4)
    at = i * 4 + j
    check(
        kernel(store(param(0, 12), at, const(F32, 2.5)), store(param(1, 12, I32), at, at * 3 + i)),
        data(12),
        data(12, I32),
    )


def test_several_stores_and_a_buffer_updated_in_place(small_blocks: None) -> None:
    """AdamW's shape: three buffers read and written at one index, each from the others' old values."""
    n = 40
    i = loop(0, n)
    p, m, v, g = (load(param(s, n), i) for s in range(4))
    m2 = m * 0.9 + g * 0.1
    v2 = v * 0.99 + g * g * 0.01
    new = p - Op.DIV(m2, Op.SQRT(v2) + 1e-8) * 0.1
    sink = kernel(store(param(0, n), i, new), store(param(1, n), i, m2), store(param(2, n), i, v2))
    check(sink, data(n), data(n), np.abs(data(n)), data(n))


def test_two_buffers_swap() -> None:
    i = loop(0, 9)
    a, b = param(0, 9), param(1, 9)
    check(kernel(store(a, i, load(b, i)), store(b, i, load(a, i))), data(9), data(9))


def test_one_value_is_stored_twice() -> None:
    i = loop(0, 9)
    x = load(param(2, 9), i) + 1.0
    check(kernel(store(param(0, 9), i, x), store(param(1, 9), i, x)), data(9), data(9), data(9))


def test_a_transposed_and_a_reversed_load() -> None:
    i, j = loop(0, 4), loop(1, 6)
    x = load(param(1, 24), j * 4 + i) - load(param(2, 24), i * 6 + (const(I32, 5) - j))
    check(kernel(store(param(0, 24), i * 6 + j, x)), data(24), data(24), data(24))


def test_a_strided_store_and_a_predicated_store() -> None:
    i = loop(0, 5)
    x = load(param(1, 5), i)
    check(kernel(store(param(0, 12), i * 2 + 1, x)), data(12), data(5))
    check(kernel(store(param(0, 13), i * 3, x, x > 0.0)), data(13), data(5))


def test_an_index_with_division_and_modulo_is_taken_apart() -> None:
    i = loop(0, 24)
    check(kernel(store(param(0, 24), i, load(param(1, 24), i % 4 * 6 + i // 4))), data(24), data(24))
    # 5 does not divide 24: looked up element by element
    check(kernel(store(param(0, 24), i, load(param(1, 60), i % 5 * 12 + i // 5))), data(24), data(60))
    check(kernel(store(param(0, 24), i, load(param(1, 7), i * i % 7))), data(24), data(7))


def test_nothing_to_do() -> None:
    i = loop(0, 0)
    check(kernel(store(param(0, 0), i, load(param(1, 0), i) + 1.0)), data(0), data(0))


@pytest.mark.parametrize("op,empty", [(Op.ADD, 0.0), (Op.MUL, 1.0), (Op.MAX, -np.inf), (Op.MIN, np.inf)])
def test_a_reduce_over_nothing_is_the_identity(op: Op, empty: float) -> None:
    i, k = loop(0, 3), over(1, 0)
    (out, _) = run(kernel(store(param(0, 3), i, reduce(op, load(param(1, 0), i + k), k))), data(3), data(0))
    assert out.tolist() == [empty] * 3


# -- every op on every dtype ---------------------------------------------------------------------------------------

FLOAT_OPS = sorted((op for op in REAL if op.arity == 1), key=lambda op: op.index)
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, 3.0, -7.25, np.inf, -np.inf, np.nan, 40.0]
TOLERANCE = {F16: 2e-3, F32: 1e-6, F64: 1e-14}


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("op", FLOAT_OPS, ids=str)
def test_float_unary(op: Op, dtype: DType) -> None:
    x = np.array([*SPECIAL, *RNG.standard_normal(20)]).astype(numpy_dtype(dtype))
    i = loop(0, x.size)
    sink = kernel(store(param(0, x.size, dtype), i, op(load(param(1, x.size, dtype), i))))
    check(sink, np.zeros_like(x), x, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 4)


@pytest.mark.parametrize("dtype", [F32, F64, F16], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN, Op.LT, Op.EQ, Op.NE, Op.MOD], ids=str)
def test_float_binary(op: Op, dtype: DType) -> None:
    pairs = np.array(list(itertools.product([0.0, 1.5, -2.5, np.inf, -np.inf, np.nan], repeat=2)))
    if op is Op.MOD:
        pairs = pairs[np.isfinite(pairs).all(1)]
    a, b = (pairs[:, i].astype(numpy_dtype(dtype)) for i in (0, 1))
    i, n = loop(0, len(pairs)), len(pairs)
    value = op(load(param(1, n, dtype), i), load(param(2, n, dtype), i))
    check(kernel(store(param(0, n, value.dtype), i, value)), np.zeros(n, numpy_dtype(value.dtype)), a, b, rtol=2e-3)


def extremes(dtype: DType) -> np.ndarray:
    info = np.iinfo(numpy_dtype(dtype))
    values = [0, 1, 2, 3, 5, info.max, info.max - 1, info.min, info.min + 1]
    return np.array(values if dtype.kind == "uint" else [*values, -1, -2, -3, -5], numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize(
    "op",
    [Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR, Op.LT, Op.EQ, Op.NE],
    ids=str,
)
def test_integer_binary_wraps_and_floors(op: Op, dtype: DType) -> None:
    v = extremes(dtype)
    a, b = np.repeat(v, v.size), np.tile(v, v.size)
    i, n = loop(0, a.size), a.size
    value = op(load(param(1, n, dtype), i), load(param(2, n, dtype), i))
    check(kernel(store(param(0, n, value.dtype), i, value)), np.zeros(n, numpy_dtype(value.dtype)), a, b)


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", [Op.SHL, Op.SHR], ids=str)
def test_shifts_by_the_width_and_more(op: Op, dtype: DType) -> None:
    v = extremes(dtype)
    by = np.array([0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 3], v.dtype)
    a, b = np.repeat(v, by.size), np.tile(by, v.size)
    i, n = loop(0, a.size), a.size
    value = op(load(param(1, n, dtype), i), load(param(2, n, dtype), i))
    check(kernel(store(param(0, n, dtype), i, value)), np.zeros_like(a), a, b)


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", [Op.NEG, Op.ABS, Op.SIGN, Op.NOT, Op.FLOOR], ids=str)
def test_integer_unary(op: Op, dtype: DType) -> None:
    v = extremes(dtype)
    i = loop(0, v.size)
    check(kernel(store(param(0, v.size, dtype), i, op(load(param(1, v.size, dtype), i)))), np.zeros_like(v), v)


@pytest.mark.parametrize("target", [*INTS, BOOL, F16, F32, F64], ids=str)
@pytest.mark.parametrize("source", [F16, F32, F64, BOOL, dtypes.int8, dtypes.uint32, dtypes.int64], ids=str)
def test_casts(source: DType, target: DType) -> None:
    """Float to integer saturates, nan becomes 0; integers wrap."""
    if source.is_float:
        x = np.array([0.0, -0.5, 1.9, -1.9, 127.5, 200.0, -200.0, 60000.0, np.inf, -np.inf, np.nan, 3e9, -3e9, 1e20])
    elif source is BOOL:
        x = np.array([True, False])
    else:
        x = extremes(source)
    with np.errstate(over="ignore"):
        x = x.astype(numpy_dtype(source))
    i, n = loop(0, x.size), x.size
    value = load(param(1, n, source), i).cast(target)
    tolerance = 1e-3 if target is F16 else 1e-6
    check(kernel(store(param(0, n, target), i, value)), np.zeros(n, numpy_dtype(target)), x, rtol=tolerance)


def test_bitcasts_keep_bits() -> None:
    x = data(9)
    i = loop(0, 9)
    bits = UOp(Op.BITCAST, I32, (load(param(1, 9), i),))
    check(kernel(store(param(0, 9, I32), i, bits)), np.zeros(9, np.int32), x)
    back = UOp(Op.BITCAST, F32, (Op.AND(bits, const(I32, 0x7FFFFFFF)),))
    check(kernel(store(param(0, 9), i, back)), data(9), x)


@pytest.mark.parametrize("dtype", [F16, F32, F64, BOOL, dtypes.int8, I32, dtypes.uint64], ids=str)
@pytest.mark.parametrize("zeros", ["neither", "first", "second"])
def test_where_selects_bits(dtype: DType, zeros: str) -> None:
    n = 20
    i = loop(0, n)
    a, b = load(param(1, n, dtype), i), load(param(2, n, dtype), i)
    zero = const(dtype, 0)
    picked = load(param(3, n, BOOL), i).where(zero if zeros == "first" else a, zero if zeros == "second" else b)
    check(kernel(store(param(0, n, dtype), i, picked)), data(n, dtype), data(n, dtype), data(n, dtype), data(n, BOOL))


def test_where_keeps_what_it_does_not_pick_out_of_the_result() -> None:
    i = loop(0, 4)
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    picked = load(param(2, 4, BOOL), i).where(load(param(1, 4), i), const(F32, 0.0))
    out = run(kernel(store(param(0, 4), i, picked)), data(4), x, np.array([False, False, False, True]))[0]
    assert out.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_a_causal_mask_is_known_while_compiling() -> None:
    b, i, j = loop(0, 3), loop(1, 5), loop(2, 5)
    at = b * 25 + i * 5 + j
    masked = (i < j).where(const(F32, float("-inf")), load(param(1, 75), at))
    check(kernel(store(param(0, 75), at, masked)), data(75), data(75))


def test_threefry_gives_the_published_words() -> None:
    """Known answers of the Random123 distribution for threefry2x32-20, counter (0, 0) and key (0, 0)."""
    i = loop(0, 1)
    u32 = dtypes.uint32
    zero = const(u32, 0)
    word = UOp(Op.THREEFRY, u32, (load(param(1, 1, u32), i), zero, zero))
    (out, _) = run(kernel(store(param(0, 1, u32), i, word)), np.zeros(1, np.uint32), np.zeros(1, np.uint32))
    assert out[0] == 0x6B200159


def test_threefry_follows_the_oracle() -> None:
    n, u32 = 16, dtypes.uint32
    i = loop(0, n)
    word = UOp(
        Op.THREEFRY, u32, (i.cast(u32), load(param(1, 2, u32), const(I32, 0)), load(param(1, 2, u32), const(I32, 1)))
    )
    check(kernel(store(param(0, n, u32), i, word)), np.zeros(n, np.uint32), np.array([123, 2**32 - 5], np.uint32))


def test_erf_in_the_tails() -> None:
    x = np.array([4.0, 4.5, 5.0, 6.0, 10.0, 1e3, 1e20, 3e38, -5.0, -1e19, np.inf, -np.inf, np.nan], np.float32)
    i = loop(0, x.size)
    check(kernel(store(param(0, x.size), i, Op.ERF(load(param(1, x.size), i)))), np.zeros_like(x), x, rtol=5e-7)


def test_warnings_stay_inside() -> None:
    i = loop(0, 2)
    x = load(param(1, 2), i)
    run(kernel(store(param(0, 2), i, Op.LOG(x) + Op.RECIP(x))), data(2), np.array([0.0, -1.0], np.float32))


# -- reduces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F16, F32, F64, BOOL, dtypes.int8, I32, dtypes.uint32], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN], ids=str)
@pytest.mark.parametrize("axes", ["rows", "columns", "both", "middle"])
def test_reduces(op: Op, axes: str, dtype: DType) -> None:
    a, b, c = 4, 16, 5
    x = data(a * b * c, dtype)
    names = {"rows": "abk", "columns": "kab", "both": "akk", "middle": "akb"}[axes]
    ranges, loops, reduces = [], [], []
    for n, kind in zip((a, b, c), names, strict=True):
        r = over(10 + len(reduces), n) if kind == "k" else loop(len(loops), n)
        (reduces if kind == "k" else loops).append(r)
        ranges.append(r)
    at = (ranges[0] * b + ranges[1]) * c + ranges[2]
    out, size = const(I32, 0), 1
    for r in loops:
        out = out * r.src[0].arg + r
        size *= r.src[0].arg
    sink = kernel(store(param(0, size, dtype), out, reduce(op, load(param(1, x.size, dtype), at), *reduces)))
    tolerance = 5e-3 if dtype is F16 else 1e-4
    check(sink, np.zeros(size, x.dtype), x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [8, 16, 24, 64])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN], ids=str)
def test_extrema_of_many_short_rows(op: Op, n: int) -> None:
    rows = 70
    i, k = loop(0, rows), over(1, n)
    x = data(rows * n)
    x[5] = np.nan
    (out, _) = run(kernel(store(param(0, rows), i, reduce(op, load(param(1, x.size), i * n + k), k))), data(rows), x)
    f = np.max if op is Op.MAX else np.min
    np.testing.assert_array_equal(out, f(x.reshape(rows, n), axis=1))


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX], ids=str)
def test_a_large_reduce_is_accumulated_over_blocks(op: Op, small_blocks: None) -> None:
    j, r = loop(0, 5), over(1, 23)
    x = load(param(1, 115), r * 5 + j) * load(param(2, 5), j)
    check(kernel(store(param(0, 5), j, reduce(op, x, r) * 2.0)), data(5), data(115), data(5))


def test_a_sum_of_half_precision_is_kept_in_single() -> None:
    n = 4096
    k = over(0, n)
    value = reduce(Op.ADD, load(param(1, n, F16), k), k)
    (out, _) = run(
        kernel(store(param(0, 1, F16), const(I32, 0), value)), np.zeros(1, np.float16), np.ones(n, np.float16)
    )
    assert out[0] == n


def test_ranges_that_the_body_does_not_depend_on() -> None:
    i, k = loop(0, 3), over(1, 4)
    x = load(param(1, 3), i)
    for op in (Op.ADD, Op.MUL, Op.MAX):
        check(kernel(store(param(0, 3), i, reduce(op, x, k))), data(3), data(3))


def softmax(rows: int, n: int) -> UOp:
    i, j = loop(0, rows), loop(1, n)
    size = rows * n

    def x(at: UOp) -> UOp:
        return load(param(1, size), i * n + at)

    k, k2 = over(2, n), over(3, n)
    top = reduce(Op.MAX, x(k), k)
    total = reduce(Op.ADD, Op.EXP(x(k2) - top), k2)
    return kernel(store(param(0, size), i * n + j, Op.DIV(Op.EXP(x(j) - top), total)))


def test_softmax_in_one_kernel() -> None:
    check(softmax(6, 9), data(54), data(54))


@pytest.mark.usefixtures("in_numpy")
def test_softmax_computes_each_exponential_once() -> None:
    """The reduce ranges share the loop's dim, so both uses of exp(x - max) are one."""
    source = get_device("cpu").compile(softmax(6, 9)).source
    assert source.count("exp(") == 1


def test_softmax_over_rows_longer_than_a_block(small_blocks: None) -> None:
    check(softmax(3, 20), data(60), data(60))


# -- products ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ta,tb,tc", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("epilogue", [False, True])
def test_matmul_in_all_transposes(ta: bool, tb: bool, tc: bool, epilogue: bool) -> None:
    m, n, k = 5, 7, 6
    i, j, r = loop(0, m), loop(1, n), over(2, k)
    a = load(param(1, m * k), r * m + i if ta else i * k + r)
    b = load(param(2, k * n), j * k + r if tb else r * n + j)
    value = reduce(Op.ADD, a * b, r)
    if epilogue:
        value = Op.TANH(value + load(param(3, n), j)) * value
    check(
        kernel(store(param(0, m * n), j * m + i if tc else i * n + j, value)),
        data(m * n),
        data(m * k),
        data(k * n),
        data(n),
    )


@pytest.mark.parametrize("dtype", [F16, F32, F64, I32], ids=str)
def test_matmul_dtypes(dtype: DType) -> None:
    i, j, r = loop(0, 4), loop(1, 3), over(2, 5)
    value = reduce(Op.ADD, load(param(1, 20, dtype), i * 5 + r) * load(param(2, 15, dtype), r * 3 + j), r)
    zeros = np.zeros(12, numpy_dtype(dtype))
    check(
        kernel(store(param(0, 12, dtype), i * 3 + j, value)),
        zeros,
        data(20, dtype),
        data(15, dtype),
        rtol=4e-3,
        atol=4e-3,
    )


def test_half_operands_widened_before_the_product() -> None:
    i, j, r = loop(0, 4), loop(1, 3), over(2, 5)
    a = load(param(1, 20, F16), i * 5 + r).cast(F32)
    value = reduce(Op.ADD, a * load(param(2, 15, F16), r * 3 + j).cast(F32), r)
    check(kernel(store(param(0, 12), i * 3 + j, value)), data(12), data(20, F16), data(15, F16))


def test_attention_scores_of_split_heads(small_blocks: None) -> None:
    """q and k lie as (batch, time, heads, width): batch dims b and h, neither next to the other."""
    B, T, H, D = 2, 5, 3, 4
    b, h, t, s, d = loop(0, B), loop(1, H), loop(2, T), loop(3, T), over(4, D)
    q = load(param(1, B * T * H * D), ((b * T + t) * H + h) * D + d)
    k = load(param(2, B * T * H * D), ((b * T + s) * H + h) * D + d)
    scores = reduce(Op.ADD, q * k, d) * 0.5
    masked = (t < s).where(const(F32, -9.0), scores)
    sink = kernel(store(param(0, B * H * T * T), ((b * H + h) * T + t) * T + s, masked))
    check(sink, data(B * H * T * T), data(B * T * H * D), data(B * T * H * D))


def test_attention_values_into_merged_heads() -> None:
    B, T, H, D = 2, 4, 3, 5
    b, t, h, d, s = loop(0, B), loop(1, T), loop(2, H), loop(3, D), over(4, T)
    p = load(param(1, B * H * T * T), ((b * H + h) * T + t) * T + s)
    v = load(param(2, B * T * H * D), ((b * T + s) * H + h) * D + d)
    sink = kernel(store(param(0, B * T * H * D), ((b * T + t) * H + h) * D + d, reduce(Op.ADD, p * v, s)))
    check(sink, data(B * T * H * D), data(B * H * T * T), data(B * T * H * D))


def test_a_weight_gradient_reduces_batch_and_time() -> None:
    B, T, M, N = 3, 4, 5, 6
    m, n, b, t = loop(0, M), loop(1, N), over(2, B), over(3, T)
    x = load(param(1, B * T * M), (b * T + t) * M + m)
    g = load(param(2, B * T * N), (b * T + t) * N + n)
    check(
        kernel(store(param(0, M * N), m * N + n, reduce(Op.ADD, x * g, b, t))),
        data(M * N),
        data(B * T * M),
        data(B * T * N),
    )


def test_operands_are_expressions_and_factors_are_pulled_out(small_blocks: None) -> None:
    i, j, k = loop(0, 4), loop(1, 5), over(2, 6)
    a = Op.EXP(load(param(1, 24), i * 6 + k))
    b = load(param(2, 30), k * 5 + j) - load(param(3, 6), k)
    body = Op.DIV(Op.NEG((a * b) * load(param(4, 4), i)), load(param(5, 5), j))
    check(
        kernel(store(param(0, 20), i * 5 + j, reduce(Op.ADD, body, k))),
        data(20),
        data(24),
        data(30),
        data(6),
        data(4),
        data(5) + 3,
    )


def test_a_square_times_a_matrix_and_a_factor_that_reaches_further() -> None:
    i, j, h, k = loop(0, 3), loop(1, 2), loop(2, 4), over(3, 5)
    x = load(param(1, 15), i * 5 + k)
    body = x * x * load(param(2, 20), k * 4 + h) * load(param(3, 2), j)
    check(
        kernel(store(param(0, 24), (i * 2 + j) * 4 + h, reduce(Op.ADD, body, k))), data(24), data(15), data(20), data(2)
    )


def test_a_product_of_products() -> None:
    """(a @ b) @ c in one kernel: the first product is an operand of the second."""
    i, j, k, q = loop(0, 3), loop(1, 4), over(2, 5), over(3, 6)
    first = reduce(Op.ADD, load(param(1, 18), i * 6 + q) * load(param(2, 30), q * 5 + k), q)
    value = reduce(Op.ADD, first * load(param(3, 20), k * 4 + j), k)
    check(kernel(store(param(0, 12), i * 4 + j, value)), data(12), data(18), data(30), data(20))


def test_a_row_dot_needs_no_product() -> None:
    i, k = loop(0, 6), over(1, 7)
    value = reduce(Op.ADD, load(param(1, 42), i * 7 + k) * load(param(2, 42), i * 7 + k), k)
    check(kernel(store(param(0, 6), i, value)), data(6), data(42), data(42))


@pytest.mark.parametrize("transposed, batch", [(False, 1), (True, 1), (False, 3), (True, 3)])
@pytest.mark.parametrize("epilogue", [False, True])
def test_a_matrix_times_a_vector_is_a_product(
    transposed: bool, batch: int, epilogue: bool, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "_VECTOR", 4)
    m, k = 11, 8
    b, i, r = loop(0, batch), loop(1, m), over(2, k)
    matrix = load(param(1, batch * m * k), b * (m * k) + (r * m + i if transposed else i * k + r))
    vector = load(param(2, batch * k), b * k + r) * 0.5
    value = reduce(Op.ADD, matrix * vector, r)
    if epilogue:
        value = Op.TANH(value + load(param(3, m), i))
    sink = kernel(store(param(0, batch * m), b * m + i, value))
    assert " @ " in executor.CpuProgram(sink, "matvec", 2).source
    check(sink, data(batch * m), data(batch * m * k), data(batch * k), data(m))


def test_a_matrix_that_is_read_anyway_is_summed_with_the_rest() -> None:
    i, r = loop(0, 40), over(1, 50)
    matrix = load(param(1, 2000), i * 50 + r)
    largest, total = reduce(Op.MAX, matrix, r), reduce(Op.ADD, matrix * load(param(2, 50), r), r)
    sink = kernel(store(param(0, 40), i, largest + total))
    assert " @ " not in executor.CpuProgram(sink, "rows", 2).source
    check(sink, data(40), data(2000), data(50))


def test_a_maximum_of_sums_is_blocked(small_blocks: None) -> None:
    i, j, k = loop(0, 4), loop(1, 5), over(2, 6)
    value = reduce(Op.MAX, load(param(1, 24), i * 6 + k) + load(param(2, 30), k * 5 + j), k)
    check(kernel(store(param(0, 20), i * 5 + j, value)), data(20), data(24), data(30))


def test_scratch_of_a_wide_broadcast_reduce_is_bounded() -> None:
    n = 200
    i, j, k = loop(0, n), loop(1, n), over(2, n)
    value = reduce(Op.MAX, load(param(1, n * n), i * n + k) + load(param(2, n * n), k * n + j), k)
    program = get_device("cpu").compile(kernel(store(param(0, n * n), i * n + j, value)))
    scratch = program.__dict__["scratch"]  # of a program in C by slot
    assert (sum(scratch.values()) if isinstance(scratch, dict) else scratch) <= 8 << 20


# -- padding, windows, concatenation -------------------------------------------------------------------------------


def convolution(stride: int, pad: int) -> tuple[UOp, list[int]]:
    N, C, H, O, K = 2, 3, 6, 4, 3
    out = (H + 2 * pad - K) // stride + 1
    n, o, y, x = loop(0, N), loop(1, O), loop(2, out), loop(3, out)
    c, ky, kx = over(4, C), over(5, K), over(6, K)
    iy, ix = y * stride + ky - pad, x * stride + kx - pad
    predicate = ((iy >= 0) & (iy < H)) & ((ix >= 0) & (ix < H))
    at = ((n * C + c) * H + iy) * H + ix
    image = load(param(1, N * C * H * H), at, predicate if pad else None)
    weight = load(param(2, O * C * K * K), ((o * C + c) * K + ky) * K + kx)
    value = reduce(Op.ADD, image * weight, c, ky, kx) + load(param(3, O), o)
    size = N * O * out * out
    return kernel(store(param(0, size), ((n * O + o) * out + y) * out + x, value)), [
        size,
        N * C * H * H,
        O * C * K * K,
        O,
    ]


@pytest.mark.parametrize("stride,pad", [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_convolutions(stride: int, pad: int) -> None:
    sink, sizes = convolution(stride, pad)
    check(sink, *[data(n) for n in sizes], rtol=1e-4, atol=1e-4)


def test_a_convolution_larger_than_the_copy_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_PIECE", 2000)
    sink, sizes = convolution(1, 1)
    check(sink, *[data(n) for n in sizes], rtol=1e-4, atol=1e-4)


def test_the_weight_gradient_of_a_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The windows are the reduced axes here: pieces of them are added up."""
    monkeypatch.setattr(binding, "_PIECE", 700)
    C, O, H, K = 2, 3, 6, 3
    W = H - K + 1
    o, c, ky, kx, y, x = loop(0, O), loop(1, C), loop(2, K), loop(3, K), over(4, W), over(5, W)
    g = load(param(1, O * W * W), (o * W + y) * W + x)
    image = load(param(2, C * H * H), (c * H + y + ky) * H + x + kx)
    size = O * C * K * K
    sink = kernel(store(param(0, size), ((o * C + c) * K + ky) * K + kx, reduce(Op.ADD, g * image, y, x)))
    check(sink, data(size), data(O * W * W), data(C * H * H), rtol=1e-4, atol=1e-4)


def test_maxima_of_windows() -> None:
    i, k = loop(0, 7), over(1, 3)
    check(kernel(store(param(0, 7), i, reduce(Op.MAX, load(param(1, 9), i + k), k))), data(7), data(9))


def test_a_padded_load_outside_of_its_buffer() -> None:
    i = loop(0, 9)
    x = load(param(1, 4), i - 3, (i >= 3) & (i < 7))
    check(kernel(store(param(0, 9), i, x)), data(9), data(4))
    check(kernel(store(param(0, 9), i, load(param(1, 4), i - 20, i >= 20))), data(9), data(4))


def test_a_predicate_that_is_no_box() -> None:
    i = loop(0, 12)
    x = load(param(1, 6), i // 2, (i % 2).eq(0))
    check(kernel(store(param(0, 12), i, x)), data(12), data(6))
    x = load(param(1, 4), i // 3, (i % 3).eq(0))
    check(kernel(store(param(0, 12), i, x * 2.0)), data(12), data(4))


def test_a_predicate_that_depends_on_data() -> None:
    i = loop(0, 8)
    x = load(param(1, 8), i * 3, load(param(2, 8, I32), i).eq(1) & (i < 3))
    check(kernel(store(param(0, 8), i, x)), data(8), data(8), RNG.integers(0, 2, 8).astype(np.int32))


def test_a_concatenation_becomes_copies(small_blocks: None) -> None:
    i, j = loop(0, 4), loop(1, 9)
    parts = load(param(1, 12), i * 3 + j, j < 3) + load(param(2, 24), i * 6 + j - 3, (const(I32, 2) < j))
    sink = kernel(store(param(0, 36), i * 9 + j, parts))
    check(sink, data(36), data(12), data(24))
    assert "add(" not in get_device("cpu").compile(sink).source


def test_cumulative_sums() -> None:
    b, i, k = loop(0, 3), loop(1, 6), over(2, 6)
    x = load(param(1, 18), b * 6 + k)
    check(
        kernel(store(param(0, 18), b * 6 + i, reduce(Op.ADD, (i < k).where(const(F32, 0.0), x), k))), data(18), data(18)
    )


# -- gathers, segment sums, sorting --------------------------------------------------------------------------------


def test_rows_named_by_data() -> None:
    n, V, D = 7, 5, 6
    i, j = loop(0, n), loop(1, D)
    row = load(param(2, n, I32), i)
    value = load(param(1, V * D), row * D + j) + load(param(3, D), j)
    sink = kernel(store(param(0, n * D), i * D + j, value))
    check(sink, data(n * D), data(V * D), RNG.integers(0, V, n).astype(np.int32), data(D))


def test_rows_out_of_range_read_zero() -> None:
    n, V, D = 7, 5, 6
    i, j = loop(0, n), loop(1, D)
    row = load(param(2, n, I32), i)
    value = load(param(1, V * D), row * D + j, (row >= 0) & (row < V))
    index = np.array([0, 4, -1, 5, 99, -2000000000, 2], np.int32)
    check(kernel(store(param(0, n * D), i * D + j, value)), data(n * D), data(V * D), index)


def test_elements_named_by_data_along_each_axis() -> None:
    i, j = loop(0, 4), loop(1, 5)
    at = load(param(2, 20, I32), i * 5 + j)
    index = RNG.integers(0, 3, 20).astype(np.int32)
    check(kernel(store(param(0, 20), i * 5 + j, load(param(1, 12), i * 3 + at))), data(20), data(12), index)
    check(kernel(store(param(0, 20), i * 5 + j, load(param(1, 15), at * 5 + j))), data(20), data(15), index)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("order", list(itertools.permutations("nkm")), ids="".join)
def test_an_axis_named_by_data_between_others(order: tuple[str, ...], gated: bool) -> None:
    """One call of NumPy with a small index, not a place for each element; of few among many no table is copied."""
    sizes = {"n": 3, "k": 5, "m": 4}
    at = {axis: loop(number, sizes[axis]) for number, axis in enumerate(order)}
    place = functools.reduce(lambda u, axis: u * sizes[axis] + at[axis], order[1:], at[order[0]])
    row = load(param(2, 5, I32), at["k"])
    index = np.array([5, 0, 0, 3, 5] if not gated else [5, -1, 0, 99, -2000000000], np.int32)
    for rows in (6, 60):
        inside = ((row >= 0) & (row < rows),) if gated else ()
        value = load(param(1, 3 * rows * 4), (at["n"] * rows + row) * 4 + at["m"], *inside)
        sink = kernel(store(param(0, 60), place, value * 2.0))
        assert ("take_rows(" in layout.CpuProgram(sink, "k", 1).source) == (rows == 6)
        check(sink, data(60), data(3 * rows * 4), index)


def test_an_index_that_is_itself_looked_up() -> None:
    i = loop(0, 6)
    first = load(param(2, 6, I32), i)
    second = load(param(3, 6, I32), first)
    perm = RNG.permutation(6).astype(np.int32)
    check(kernel(store(param(0, 6), i, load(param(1, 6), second))), data(6), data(6), perm, perm[::-1].copy())


def segment_sum(v: int, n: int, d: int, dtype: DType = F32) -> UOp:
    row, col = loop(0, v), loop(1, d)
    first = load(param(3, v + 1, I32), row)
    extent = load(param(3, v + 1, I32), row + 1) - first
    r = UOp(Op.RANGE, I32, (extent,), (2, "reduce"))
    source = load(param(2, n, I32), first + r)
    return kernel(
        store(param(0, v * d, dtype), row * d + col, reduce(Op.ADD, load(param(1, n * d, dtype), source * d + col), r))
    )


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("starts", [[0, 2, 2, 5, 9], [0, 0, 0, 0, 0], [0, 9, 9, 9, 9], [1, 2, 3, 4, 8]])
def test_segment_sums(d: int, starts: list[int]) -> None:
    order = RNG.permutation(9).astype(np.int32)
    check(segment_sum(4, 9, d), data(4 * d), data(9 * d), order, np.array(starts, np.int32))


@pytest.mark.parametrize("dtype", [F16, F64, I32], ids=str)
def test_segment_sums_of_other_dtypes(dtype: DType) -> None:
    order = np.arange(5, dtype=np.int32)
    check(
        segment_sum(2, 5, 3, dtype),
        data(6, dtype),
        data(15, dtype),
        order,
        np.array([0, 3, 5], np.int32),
        rtol=4e-3,
        atol=4e-3,
    )


def test_sorting_is_stable() -> None:
    keys = np.array([3, 1, 2, 1, 3, 0, 1], np.int32)
    r = loop(0, 7)
    sink = kernel(store(param(0, 7, I32), r, UOp(Op.ARGSORT, I32, (param(1, 7, I32), r))))
    check(sink, np.zeros(7, np.int32), keys)


@pytest.mark.parametrize("dtype", [F32, F64, I32, dtypes.int8], ids=str)
@pytest.mark.parametrize("width", [1, 3])
def test_rows_are_added_where_an_index_says(dtype: DType, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "_PART", 2 * width)
    i, j = loop(0, 4), loop(1, width)
    added = UOp(Op.SCATTER_ADD, dtype, (param(1, 7, I32), param(2, 7 * width, dtype), i, j), (4,))
    sink = kernel(store(param(0, 4 * width, dtype), i * width + j, added))
    for index in ([2, 0, 2, 2, 0, 1, 1], [2, -1, 4, 2, 0, 2, -7], [9] * 7):
        check(sink, data(4 * width, dtype), np.array(index, np.int32), data(7 * width, dtype), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [F32, F64, I32, dtypes.int64], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN], ids=str)
@pytest.mark.parametrize("shape", [(1, 9, 1), (3, 4, 1), (2, 3, 5), (1, 5, 70)], ids=str)
def test_each_element_is_reduced_with_those_before_it(
    shape: tuple[int, int, int], op: Op, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic, "_PART", 8)
    size = shape[0] * shape[1] * shape[2]
    i = loop(0, size)
    sink = kernel(store(param(0, size, dtype), i, UOp(Op.SCAN, dtype, (param(1, size, dtype), i), (op, *shape[1:]))))
    x = data(size, dtype)
    if dtype is F32:
        x[1] = np.nan
    check(sink, data(size, dtype), x % 4 if dtype.is_int else x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [I32, dtypes.int64], ids=str)
def test_a_sort_of_any_range_of_keys_is_stable(dtype: DType) -> None:
    low, high = dtype.min, dtype.max
    r = loop(0, 6)
    sink = kernel(store(param(0, 6, I32), r, UOp(Op.ARGSORT, I32, (param(1, 6, dtype), r))))
    for keys in ([high, low, high, low, 0, 0], [high, high - 1, high, high, high - 1, 0], [5, low, high, 0, 1, -1]):
        check(sink, np.zeros(6, np.int32), np.array(keys, numpy_dtype(dtype)))


@pytest.mark.parametrize("dtype", [I32, dtypes.int64], ids=str)
@pytest.mark.parametrize("k", [1, 2, 20])
def test_rows_are_sorted_each_by_itself(k: int, dtype: DType) -> None:
    r = loop(0, 3 * k)
    order = UOp(Op.ARGSORT, I32, (param(1, 60, dtype), r), (20, k))
    for wide in (dtype.min, 3):
        keys = RNG.integers(0, 5, 60) * (2**60 if dtype.bits > 32 and wide != 3 else 1)
        check(kernel(store(param(0, 3 * k, I32), r, order)), np.zeros(3 * k, np.int32), keys.astype(numpy_dtype(dtype)))


@pytest.mark.parametrize("dtype", [BOOL, F16, I32], ids=str)
def test_rows_out_of_range_are_zero_in_every_dtype(dtype: DType) -> None:
    n, V, D = 5, 3, 4
    i, j = loop(0, n), loop(1, D)
    row = load(param(2, n, I32), i)
    value = load(param(1, V * D, dtype), row * D + j, (row >= 0) & (row < V))
    index = np.array([0, -1, 2, 3, 1], np.int32)
    check(kernel(store(param(0, n * D, dtype), i * D + j, value)), data(n * D, dtype), data(V * D, dtype), index)


def test_a_chain_of_twenty_thousand_operations() -> None:
    n = 10
    i = loop(0, n)
    x = load(param(1, n), i)
    y = load(param(2, n), i)
    for k in range(10_000):
        x = Op.MIN(x + y, const(F32, float(k % 7)))
    program = get_device("cpu").compile(kernel(store(param(0, n), i, x)))
    assert program.__dict__["scratch"] <= 4096
    out = np.zeros(n, np.float32)
    a, b = np.zeros(n, np.float32), np.full(n, 0.25, np.float32)
    get_device("cpu").prepare([(program, [out, a, b])]).run()
    want = a.copy()
    for k in range(10_000):
        want = np.minimum(want + b, np.float32(k % 7))
    np.testing.assert_array_equal(out, want)


def test_a_long_thin_tensor_and_a_wide_flat_one() -> None:
    for rows, n in ((200_000, 3), (3, 200_000)):
        i, j, k = loop(0, rows), loop(1, n), over(2, n)
        size = rows * n
        total = reduce(Op.ADD, load(param(1, size), i * n + k), k)
        sink = kernel(store(param(0, size), i * n + j, load(param(1, size), i * n + j) - total * (1 / n)))
        x = data(size)
        out = run(sink, np.zeros(size, np.float32), x)[0].reshape(rows, n)
        x = x.reshape(rows, n)
        np.testing.assert_allclose(out, x - x.mean(1, keepdims=True), atol=1e-4)


# -- products and what is stored of them -----------------------------------------------------------------------------


def product_of(m: int, n: int, k: int) -> tuple[UOp, UOp, UOp]:
    i, j, r = loop(0, m), loop(1, n), over(2, k)
    return i, j, reduce(Op.ADD, load(param(4, m * k), i * k + r) * load(param(5, k * n), r * n + j), r)


@pytest.mark.parametrize("first", range(3))
def test_a_product_lies_in_one_of_several_outputs_until_its_epilogue_is_done(first: int, small_blocks: None) -> None:
    m, n, k = 6, 8, 4
    i, j, raw = product_of(m, n, k)
    h = raw + load(param(3, n), j)
    values = [h, Op.TANH(h) * raw, raw - h * 2.0]
    values = values[first:] + values[:first]
    stores = [store(param(s, m * n), i * n + j, v) for s, v in enumerate(values)]
    check(kernel(*stores), *[data(m * n) for _ in range(3)], data(n), data(m * k), data(k * n))


def test_a_product_is_stored_beside_what_is_made_of_it(small_blocks: None) -> None:
    m, n, k = 6, 8, 4
    i, j, raw = product_of(m, n, k)
    at = i * n + j
    stores = [store(param(0, m * n), at, raw), store(param(1, m * n), at, raw * raw)]
    check(kernel(*stores), *[data(m * n) for _ in range(2)], data(1), data(1), data(m * k), data(k * n))


def test_heads_are_written_side_by_side(small_blocks: None) -> None:
    b, h, t, d = 2, 3, 4, 5
    i, g, j, c, r = loop(0, b), loop(1, h), loop(2, t), loop(3, d), over(4, t)
    x, y = param(1, b * h * t * t), param(2, b * h * t * d)
    value = reduce(Op.ADD, load(x, ((i * h + g) * t + j) * t + r) * load(y, ((i * h + g) * t + r) * d + c), r)
    at = (i * t + j) * (3 * h * d) + g * d + c + h * d
    sink = kernel(store(param(0, b * t * 3 * h * d), at, value))
    check(sink, data(b * t * 3 * h * d), data(b * h * t * t), data(b * h * t * d))
    assert "full" not in get_device("cpu").compile(sink).source


@pytest.mark.parametrize("scale", [1, 5])
def test_a_part_is_put_where_a_number_says(scale: int, small_blocks: None) -> None:
    i, j = loop(0, 3), loop(1, 4)
    at = Op.MIN(Op.MAX(load(param(2, 1, I32), const(I32, 0)), const(I32, 0)), const(I32, 2))
    place = i * 20 + at * scale + j + 1
    sink = kernel(store(param(0, 80), place, load(param(1, 12), j * 3 + i) * 2.0))
    assert "put(" in executor.CpuProgram(sink, "put", 2).source
    for start in (-4, 0, 1, 2, 9):
        check(sink, data(80), data(12), np.array([start], np.int32))


def test_what_is_known_ahead_warns_as_little_as_a_run() -> None:
    i = loop(0, 5)
    number = UOp(Op.CAST, F32, (i,))
    check(kernel(store(param(0, 5), i, (const(F32, 1.0) / number) * load(param(1, 5), i))), data(5), data(5))
