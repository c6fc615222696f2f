"""Decisions of the table from op to text: which text for which kind, and where a constant allows a shorter one."""

from __future__ import annotations

import math

import pytest

from anneal.codegen import Opt, Target, generate
from anneal.codegen.dialects.wgsl import WGSL
from anneal.codegen.dialects.wgsl.expressions import (
    by_constant,
    cast,
    component,
    literal,
    on_lanes,
    stored_type,
    template_of,
    type_of,
    unseen,
)
from anneal.codegen.dialects.wgsl.writer import WgslWriter
from anneal.codegen.dialects.writer import bare, outer_parens
from anneal.codegen.hardware import LaunchConfig
from anneal.codegen.linear import LinearProgram, Param
from anneal.uop import DType, Op, UOp, const, dtypes
from tests.codegen import kernels as K

I64, U64, F64, F16, BF16 = dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.float16, dtypes.bfloat16


# -- op and kind of dtype -> text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "dtype", "text"), [
    (Op.ADD, K.F32, "({0} + {1})"),
    (Op.NE, K.I32, "({0} != {1})"),
    (Op.NE, K.F32, "(!({0} == {1}))"),  # nan differs from itself, which WGSL's != need not know
    (Op.MAX, K.U32, "max({0}, {1})"),
    (Op.MAX, K.I32, "max_i32({0}, {1})"),
    (Op.MAX, K.F32, "max_f32({0}, {1})"),
    (Op.DIV, K.F32, "div_f32({0}, {1})"),
    (Op.DIV, F64, "({0} / {1})"),
    (Op.IDIV, K.I32, "floordiv_i32({0}, {1})"),
    (Op.IDIV, K.U32, "div_u32({0}, {1})"),
    (Op.IDIV, I64, "floordiv_i64({0}, {1})"),
    (Op.EXP2, K.F32, "exp2_f32({0})"),
    (Op.EXP2, F64, "exp2_f64({0})"),
    (Op.RSQRT, F64, "(1.0lf / sqrt({0}))"),
    (Op.SIN, F64, "sin_f64({0})"),
    (Op.NOT, K.BOOL, "(!{0})"),
    (Op.NOT, K.I32, "(~{0})"),
    (Op.XOR, K.BOOL, "({0} != {1})"),
    (Op.XOR, K.U32, "({0} ^ {1})"),
    (Op.NOT, K.F32, None),
])  # fmt: skip
def test_the_text_of_an_op_depends_on_the_kind_and_width(op: Op, dtype: DType, text: str | None) -> None:
    assert template_of(op, dtype) == text


def test_functions_of_our_own_have_other_names_for_vectors_and_built_in_ones_have_not() -> None:
    assert on_lanes("max_f32({0}, {1})", 4) == "max_f32_x4({0}, {1})"
    assert on_lanes("max_f32({0}, {1})", 1) == "max_f32({0}, {1})"
    assert on_lanes("sqrt({0})", 4) == "sqrt({0})"
    assert on_lanes("({0} + {1})", 2) == "({0} + {1})"


@pytest.mark.parametrize(("dtype", "lanes", "value", "memory"), [
    (K.F32, 1, "f32", "f32"), (K.F32, 4, "vec4<f32>", "vec4<f32>"), (K.BOOL, 1, "bool", "u32"),
    (K.BOOL, 2, "vec2<bool>", "vec2<u32>"), (BF16, 1, "f32", "f32"), (dtypes.int8, 1, "i32", "i32"),
])  # fmt: skip
def test_bools_are_words_in_memory_and_packed_values_wide_in_registers(
    dtype: DType, lanes: int, value: str, memory: str
) -> None:
    assert (type_of(dtype, lanes), stored_type(dtype, lanes)) == (value, memory)


# -- constants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "value", "text"), [
    (K.F32, 1.5, "1.5f"),
    (K.F32, 0.0, "0.0f"),
    (F16, 1.5, "1.5h"),
    (F64, 1.5, "1.5lf"),
    (K.I32, -3, "-3i"),
    (K.I32, -(2**31), "i32(-2147483648)"),  # -2147483648i is a minus before what is no i32
    (K.U32, 3, "3u"),
    (I64, -(2**63), "(-9223372036854775807li - 1li)"),
    (U64, 3, "3lu"),
    (K.BOOL, True, "true"),
    (K.F32, math.inf, "bitcast<f32>(0x7f800000u | zero_bits)"),
    (K.F32, -math.inf, "bitcast<f32>(0xff800000u | zero_bits)"),
    (K.F32, math.nan, "bitcast<f32>(0x7fc00000u | zero_bits)"),
    (K.F32, 1e-40, "bitcast<f32>(0x000116c2u | zero_bits)"),  # a denormal, which a compiler may flush
    (F16, math.inf, "f16(bitcast<f32>(0x7f800000u | zero_bits))"),
    (F64, math.inf, "bitcast<f64>(0x7ff0000000000000lu | u64(zero_bits))"),
    (BF16, 2.0, "2.0f"),
])  # fmt: skip
def test_a_constant_is_text_that_every_compiler_takes(dtype: DType, value: float, text: str) -> None:
    assert literal(dtype, value) == text


@pytest.mark.parametrize(
    ("value", "hidden"), [(0.0, True), (-0.0, True), (2.0**126, True), (1.0, False), (2.0**125, False)]
)
def test_zeros_and_large_constants_hide_where_they_are_asked_to(value: float, hidden: bool) -> None:
    assert ("bitcast" in literal(K.F32, value)) == (str(value) == "-0.0")  # a compiler may keep one zero for both
    assert ("secret" in literal(K.F32, value, "secret")) == hidden
    assert ("secret" in literal(F64, value, "secret")) == (hidden and value == 0)


def test_a_value_may_hide_behind_bits_of_its_own_width() -> None:
    assert unseen(K.F32, "(x + y)") == "bitcast<f32>(bitcast<u32>(x + y) | zero_bits)"
    assert unseen(K.F32, "x", 2) == "bitcast<vec2<f32>>(bitcast<vec2<u32>>(x) | vec2<u32>(zero_bits))"
    assert unseen(F64, "x") == "bitcast<f64>(bitcast<u64>(x) | u64(zero_bits))"


# -- conversions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new", "lanes", "text"), [
    (K.BOOL, K.BOOL, 1, "x"),
    (K.I32, K.BOOL, 1, "((x) != 0i)"),
    (K.F32, K.BOOL, 1, "(!(x == 0.0f))"),  # nan is true
    (K.F32, K.BOOL, 2, "(!(x == vec2<f32>(0.0f)))"),
    (K.I32, K.F32, 1, "f32(x)"),
    (K.F32, K.I32, 1, "to_i32(x)"),  # stops at the ends
    (K.F32, K.I32, 4, "to_i32_x4(x)"),
    (F16, K.I32, 1, "to_i32(f32(x))"),
    (F64, K.I32, 1, "to_i32_f64(x)"),
    (K.F32, F16, 1, "f16(round_f16(x))"),
    (F64, F16, 1, "f16(round_f16(f32(x)))"),
    (K.I32, I64, 1, "i64(i64(x))"),
    (K.I32, U64, 1, "u64(i64(x))"),  # the sign goes along
    (K.U32, U64, 1, "u64(u64(x))"),
    (K.F32, BF16, 1, "round_bf16(x)"),
    (K.I32, BF16, 1, "round_bf16(f32(x))"),
    (K.I32, dtypes.int8, 1, "unpack_i8(pack_i8(i32(x)))"),
    (K.F32, dtypes.uint8, 1, "to_u8(x)"),
])  # fmt: skip
def test_a_conversion_rounds_wraps_or_stops_as_its_dtypes_ask(old: DType, new: DType, lanes: int, text: str) -> None:
    assert cast(old, new, "x", lanes) == text


# -- shorter text by constants and bounds -----------------------------------------------------------------------------


def shorter(op: Op, a: UOp, b: UOp, lanes: int = 1) -> str | None:
    return by_constant(UOp(op, a.dtype, (a, b)), ["a", "b"], a.dtype.kind, lanes)


SIGNED, INDEX = K.load(K.param(0, 8, K.I32), 0), K.loop(100, 0)
WHOLE, LONG = K.load(K.param(0, 8, K.U32), 0), K.load(K.param(0, 8, I64), 0)


@pytest.mark.parametrize(("op", "a", "c", "text"), [
    (Op.IDIV, SIGNED, 8, "(a >> 3u)"),  # a shift rounds down, as // does
    (Op.MOD, SIGNED, 8, "(a & 7i)"),
    (Op.IDIV, SIGNED, 6, None),
    (Op.IDIV, INDEX, 6, "i32(u32(a) / 6u)"),  # never negative
    (Op.MOD, INDEX, 6, "i32(u32(a) % 6u)"),
    (Op.IDIV, WHOLE, 6, "(a / 6u)"),
    (Op.MOD, WHOLE, 8, "(a & 7u)"),
    (Op.IDIV, LONG, 6, None),
    (Op.IDIV, SIGNED, -8, None),
    (Op.IDIV, SIGNED, 0, None),
    (Op.SHL, SIGNED, 3, "(a << 3u)"),
    (Op.SHR, SIGNED, 3, "(a >> 3u)"),
    (Op.SHL, SIGNED, 32, None),  # WGSL takes no shift by a word
    (Op.SHL, SIGNED, -1, None),
    (Op.ADD, SIGNED, 8, None),
])  # fmt: skip
def test_a_constant_divisor_or_shift_has_shorter_text(op: Op, a: UOp, c: int, text: str | None) -> None:
    assert shorter(op, a, const(a.dtype, c)) == text


def test_a_shorter_text_is_one_of_vectors_where_the_value_is_one() -> None:
    assert shorter(Op.IDIV, SIGNED, const(K.I32, 8), 4) == "(a >> vec4<u32>(3u))"
    assert shorter(Op.MOD, INDEX, const(K.I32, 6), 2) == "vec2<i32>(vec2<u32>(a) % vec2<u32>(6u))"


def test_an_index_divided_by_what_is_above_zero_is_divided_unsigned() -> None:
    size = UOp(Op.VARIABLE, K.I32, (), ("n", 1, 9))
    perhaps = UOp(Op.VARIABLE, K.I32, (), ("n", 0, 9))
    assert shorter(Op.IDIV, INDEX, size) == "i32(u32(a) / u32(b))"
    assert shorter(Op.MOD, INDEX, size) == "i32(u32(a) % u32(b))"
    assert shorter(Op.IDIV, INDEX, perhaps) is None
    assert shorter(Op.IDIV, SIGNED, size) is None
    assert shorter(Op.IDIV, INDEX, size, 2) is None


# -- elements of memory -----------------------------------------------------------------------------------------------


PLAIN, SPLIT = (UOp(Op.PARAM, K.F32, (), (slot, (size,))) for slot, size in ((0, 64), (1, 1 << 20)))
WRITER = WgslWriter(
    WGSL,
    LinearProgram((), (Param(0, PLAIN, True), Param(1, SPLIT, True)), LaunchConfig(1, 1), {}, {}, ()),
    Target(binding_bytes=1024),
)


@pytest.mark.parametrize(("place", "text", "call", "stored"), [
    (component("n0", 1), "p0[n0]", "p1_at(n0)", "p1_put(n0, v);"),
    (component("6i", 4), "p0[1].z", "p1_at(1).z", "p1_put_lane(1, 2i, v);"),
    (component("n0", 4), "p0[(n0) >> 2u][(n0) & 3i]", "p1_at((n0) >> 2u)[(n0) & 3i]",
     "p1_put_lane((n0) >> 2u, (n0) & 3i, v);"),
    (("n0", "3i"), "p0[n0].w", "p1_at(n0).w", "p1_put_lane(n0, 3i, v);"),
    (("n0", "n1"), "p0[n0][n1]", "p1_at(n0)[n1]", "p1_put_lane(n0, n1, v);"),
])  # fmt: skip
def test_an_element_of_memory_in_vectors(place: tuple[str, str], text: str, call: str, stored: str) -> None:
    """Of memory in segments by functions."""
    assert WRITER.at(PLAIN, *place) == text
    assert WRITER.put_at(PLAIN, *place, "v") == f"{text} = v;"
    assert WRITER.at(SPLIT, *place) == call
    assert WRITER.put_at(SPLIT, *place, "v") == stored


def test_an_element_of_a_word_is_written_by_two_atomic_operations_on_its_own_bits() -> None:
    def stored(dtype: DType, index: UOp) -> str:
        out, x = (UOp(Op.PARAM, dtype, (), (slot, (64,))) for slot in (0, 1))
        value = UOp(Op.LOAD, dtype, (x, index))
        store = UOp(Op.STORE, dtype, (out, index, value))
        return generate(UOp(Op.SINK, dtype, (store,)), Target(), [Opt("FLAT", 0, 1)]).source

    first = stored(dtypes.uint8, const(K.I32, 6))
    assert "atomicAnd(&p0[1], ~(0xffu << 16u)); atomicOr(&p0[1], pack_u8(" in first
    assert (
        "atomicAnd(&p0[wg >> 1u], ~(0xffffu << (u32(wg & 1i) << 4u))); "
        "atomicOr(&p0[wg >> 1u], pack_bf16(x0) << (u32(wg & 1i) << 4u));"
    ) in stored(BF16, K.loop(64, 0))


def test_only_brackets_around_the_whole_go() -> None:
    assert [bare(x) for x in ("(a + b)", "(a) + (b)", "f(a)", "((a))")] == ["a + b", "(a) + (b)", "f(a)", "(a)"]
    assert not outer_parens("a")
