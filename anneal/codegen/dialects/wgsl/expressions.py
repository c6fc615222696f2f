"""Expressions of WGSL: types, constants, the table from op to text, and the texts that depend on dtypes and bounds.

An infinite or nan constant is built from its bits and a number that only a run knows, because a WGSL compiler may
reject, or assume away, one that it can see; so is a zero where a product or a quotient with it would be worked out
without nan and infinity.
"""

from __future__ import annotations

import math
import re
import struct

from anneal.codegen.dialects.wgsl.functions import FUNCTIONS
from anneal.codegen.dialects.writer import ARITHMETIC, bare, is_from
from anneal.codegen.target import register
from anneal.frozen import frozen
from anneal.uop import DType, Op, UOp, dtypes

COMPONENTS = "xyzw"

# ---------------------------------------------------------------------------------------------------------------------
# Memory whose elements are narrower than a word: two or four of them lie in a u32, the first in its lowest bits.
#
# A value of such a dtype is a number of the dtype that it is computed in (`register` in `codegen/target.py`); this
# file has the text by which it comes out of words and goes back. A store of whole words writes them. In a sub-word
# store another thread may write the rest of the word, so it is two atomic operations on bits that no other thread
# touches; all of that memory is then an array of atomics.


@frozen
class Packed:
    """`unpack_NAME` makes a number of the bits of an element, and `pack_NAME` rounds one to such bits."""

    name: str
    bits: int

    @property
    def per_word(self) -> int:
        """Elements of a word."""
        return 32 // self.bits

    def unpack(self, bits: str, lanes: int = 1) -> str:
        """The number whose bits, each element's in a u32 of its own, are `bits`."""
        return f"unpack_{self.name}{'' if lanes == 1 else f'_x{lanes}'}({bits})"

    def pack(self, value: str, lanes: int = 1) -> str:
        """The bits of what `value` rounds to."""
        return f"pack_{self.name}{'' if lanes == 1 else f'_x{lanes}'}({value})"

    def words(self, lanes: int) -> int:
        """Words of a vector."""
        return max(1, lanes * self.bits // 32)

    def read(self, whole: str, lanes: int) -> str:
        """The vector that lies in whole words."""
        return self.unpack(f"split_{self.bits}in{lanes}({whole})", lanes)

    def written(self, value: str, lanes: int) -> str:
        """Whole words of a vector."""
        return f"join_{self.bits}in{lanes}({self.pack(value, lanes)})"

    def place(self, index: str) -> tuple[str, str]:
        """The word of an element, given as a name or a number, and how far up its bits lie in it."""
        if index.removesuffix("i").isdigit():
            at = int(index.removesuffix("i"))
            return f"{at // self.per_word}", f"{at % self.per_word * self.bits}u"
        digits, scale = self.per_word.bit_length() - 1, self.bits.bit_length() - 1
        return f"{index} >> {digits}u", f"(u32({index} & {self.per_word - 1}i) << {scale}u)"

    def element(self, word: str, shift: str) -> str:
        """The number in a part of a word."""
        low = word if shift == "0u" else f"({word} >> {shift})"
        return self.unpack(f"{low} & {self.mask}")

    @property
    def mask(self) -> str:
        """The bits of the first element of a word."""
        return f"{(1 << self.bits) - 1:#x}u"


PACKED = {
    dtypes.bfloat16: Packed("bf16", 16),
    dtypes.float8_e4m3fn: Packed("e4", 8),
    dtypes.float8_e5m2: Packed("e5", 8),
    dtypes.int8: Packed("i8", 8),
    dtypes.uint8: Packed("u8", 8),
    dtypes.int16: Packed("i16", 16),
    dtypes.uint16: Packed("u16", 16),
}


# ---------------------------------------------------------------------------------------------------------------------


_TYPES = {
    dtypes.bool_: "bool", dtypes.int32: "i32", dtypes.uint32: "u32", dtypes.float32: "f32", dtypes.float16: "f16",
    dtypes.int64: "i64", dtypes.uint64: "u64", dtypes.float64: "f64",
}  # fmt: skip

# -- the table: an op and the kind of its first source -> text --------------------------------------------------------
# Kinds are bool, int, uint, float; "any" for all others; "64" for what has 64 bits and cannot have the text of its kind
# with other types. NE of floats is an unordered "not equal": WGSL's != may be false for nan.
_TEXTS = {
    (op, kind): text
    for op, kind, text in (row.split(maxsplit=2) for row in """
ABS       any    abs({0})
MAX       any    max({0}, {1})
MIN       any    min({0}, {1})
EXP       any    exp_f32({0})
EXP2      any    exp2_f32({0})
LOG       any    log_f32({0})
LOG2      any    log2_f32({0})
SIN       any    sin_f32({0})
COS       any    cos_f32({0})
TAN       any    tan_f32({0})
TANH      any    tanh_f32({0})
ERF       any    erf_f32({0})
SQRT      any    sqrt({0})
RSQRT     any    inverseSqrt({0})
RECIP     any    (1.0f / {0})
FLOOR     any    floor({0})
CEIL      any    ceil({0})
ROUND     any    round({0})
TRUNC     any    trunc({0})
POW       any    pow_f32({0}, {1})
WHERE     any    select({2}, {1}, {0})
THREEFRY  any    threefry({0}, {1}, {2})
NOT       bool   (!{0})
NOT       int    (~{0})
NOT       uint   (~{0})
NEG       bool   {0}
XOR       bool   ({0} != {1})
ABS       bool   {0}
SIGN      bool   {0}
NE        float  (!({0} == {1}))
MAX       int    max_i32({0}, {1})
MIN       int    min_i32({0}, {1})
DIV       float  div_f32({0}, {1})
MAX       float  max_f32({0}, {1})
MIN       float  min_f32({0}, {1})
SIGN      float  sign_f32({0})
SIGN      int    sign({0})
SIGN      uint   sign_u32({0})
IDIV      int    floordiv_i32({0}, {1})
IDIV      uint   div_u32({0}, {1})
IDIV      float  floordiv_f32({0}, {1})
MOD       int    floormod_i32({0}, {1})
MOD       uint   mod_u32({0}, {1})
MOD       float  floormod_f32({0}, {1})
SHL       int    shl_i32({0}, {1})
SHL       uint   shl_u32({0}, {1})
SHR       int    shr_i32({0}, {1})
SHR       uint   shr_u32({0}, {1})
EXP2      64     exp2_f64({0})
RSQRT     64     (1.0lf / sqrt({0}))
RECIP     64     (1.0lf / {0})
DIV       64     ({0} / {1})
""".strip().splitlines())
}  # fmt: skip
_TYPED = re.compile(r"\b(\w+_[iuf])32\(")


def type_of(dtype: DType, lanes: int = 1) -> str:
    """The WGSL type of a value."""
    one = _TYPES[register(dtype)]
    return one if lanes == 1 else f"vec{lanes}<{one}>"


def stored_type(dtype: DType, lanes: int = 1) -> str:
    """The type of an element of memory that packs nothing: bools are words."""
    return type_of(dtypes.uint32 if dtype.kind == "bool" else dtype, lanes)


_LARGE = 2.0**125


def unseen(dtype: DType, value: str, lanes: int = 1) -> str:
    """A float, so written that no compiler sees which it is."""
    held = register(dtype)
    bits, zero = (dtypes.uint64, "u64(zero_bits)") if held is dtypes.float64 else (dtypes.uint32, "zero_bits")
    if lanes > 1:
        zero = f"{type_of(bits, lanes)}({zero})"
    return f"bitcast<{type_of(held, lanes)}>(bitcast<{type_of(bits, lanes)}>({bare(value)}) | {zero})"


def literal(dtype: DType, value: bool | int | float, hidden: str = "") -> str:
    """A constant as WGSL text. With `hidden`, bits that only a run knows, no compiler sees a float that is zero, or so
    large that its reciprocal may be taken for zero."""
    dtype = register(dtype)
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype is dtypes.uint32:
        return f"{value}u"
    if dtype is dtypes.uint64:
        return f"{value}lu"
    if dtype is dtypes.int64:
        return f"{value}li" if value != dtype.min else "(-9223372036854775807li - 1li)"
    if dtype is dtypes.float64:
        if math.isfinite(value) and not 0 < abs(value) < 2.3e-308 and not (hidden and value == 0):
            return f"{float(value)!r}lf"
        long = struct.unpack("<Q", struct.pack("<d", value))[0] if value == value else 0x7FF8000000000000
        return f"bitcast<f64>({long:#018x}lu | u64({hidden or 'zero_bits'}))"
    if dtype is dtypes.int32:
        return f"{value}i" if value != dtype.min else "i32(-2147483648)"
    value = float(value)
    lost = value == 0 and math.copysign(1.0, value) < 0  # a compiler may keep one zero for both
    plain = math.isfinite(value) and not 0 < abs(value) < 1.2e-38 and not lost
    if plain and not (hidden and (value == 0 or abs(value) > _LARGE)):
        return f"{value!r}{'h' if dtype.bits == 16 else 'f'}"
    bits = struct.unpack("<I", struct.pack("<f", value))[0] if value == value else 0x7FC00000
    text = f"bitcast<f32>({bits:#010x}u | {hidden or 'zero_bits'})"
    return f"f16({text})" if dtype.bits == 16 else text


def component(index: str, wide: int) -> tuple[str, str]:
    """The index of an element of an array, of vectors if `wide` is over 1, and its lane."""
    if wide == 1:
        return index, ""
    if index.removesuffix("i").isdigit():
        at = int(index.removesuffix("i"))
        return f"{at // wide}", f"{at % wide}i"
    return f"({index}) >> {wide.bit_length() - 1}u", f"({index}) & {wide - 1}i"


def text_of(op: Op, dtype: DType, lanes: int = 1) -> str | None:
    """The text of `op` on values of `dtype`; for vectors our own functions have a name of their own."""
    text = template_of(op, dtype)
    return text if lanes == 1 or text is None else on_lanes(text, lanes)


def template_of(op: Op, dtype: DType) -> str | None:
    """The text of `op` on scalars of `dtype`."""
    found = _TEXTS.get((op.name, dtype.kind)) or ARITHMETIC.get(op) or _TEXTS.get((op.name, "any"))
    if dtype.bits < 64 or found is None:
        return found
    return _TEXTS.get((op.name, "64")) or _TYPED.sub(r"\g<1>64(", found)


def on_lanes(template: str, lanes: int) -> str:
    """The template for vectors: our own functions have a name of their own there."""
    name = template.partition("(")[0]
    return template if lanes == 1 or name not in FUNCTIONS else template.replace(f"{name}(", f"{name}_x{lanes}(", 1)


def _number(dtype: DType, value: int | float, lanes: int) -> str:
    text = literal(dtype, value)
    return text if lanes == 1 else f"{type_of(dtype, lanes)}({text})"


def cast(old: DType, new: DType, x: str, lanes: int) -> str:
    x = bare(x)
    if new.kind == "bool":
        if old.kind == "bool":
            return x
        return (
            f"(!({x} == {_number(old, 0, lanes)}))" if old.kind == "float" else f"(({x}) != {_number(old, 0, lanes)})"
        )
    if old.kind == "float" and new.is_int:
        wide = x if old.bits >= 32 else f"{type_of(dtypes.float32, lanes)}({x})"
        name = (PACKED[new].name if new in PACKED else _TYPES[new]) + ("_f64" if old.bits == 64 else "")
        return f"to_{name}{'' if lanes == 1 else f'_x{lanes}'}({wide})"
    if new is dtypes.float16 and old.bits == 64:
        x = f"{type_of(dtypes.float32, lanes)}({x})"
    if new.is_int and old.is_int and new.bits == 64 and old.bits < 64:
        # The sign is extended as the old type has it, before it counts as the new.
        x = f"{type_of(dtypes.int64 if old.kind == 'int' else dtypes.uint64, lanes)}({x})"
    if new is dtypes.float16 and old.kind == "float":
        x = f"round_f16{'' if lanes == 1 else f'_x{lanes}'}({x})"
    if new not in PACKED:
        return f"{type_of(new, lanes)}({x})"
    packed = PACKED[new]
    if new.is_float:
        wide = x if old is dtypes.float32 else f"{type_of(dtypes.float32, lanes)}({x})"
        return f"round_{packed.name}{'' if lanes == 1 else f'_x{lanes}'}({wide})"
    return packed.unpack(packed.pack(f"{type_of(new, lanes)}({x})", lanes), lanes)


_F16_BITS = Packed("f16", 16)


def packing(dtype: DType) -> Packed:
    return PACKED.get(dtype, _F16_BITS)


def by_constant(u: UOp, args: list[str], kind: str, lanes: int) -> str | None:
    """Shorter text where a constant operand or known bounds allow it."""
    if len(u.src) != 2:
        return None
    op, a, b = u.op, u.src[0], u.src[1]
    if not b.is_const:
        if a.dtype is dtypes.int32 and op in (Op.IDIV, Op.MOD) and lanes == 1 and is_from(0, a) and is_from(1, b):
            return f"i32(u32({bare(args[0])}) {'/' if op is Op.IDIV else '%'} u32({bare(args[1])}))"
        return None
    if kind not in ("int", "uint"):
        return None
    c = int(b.arg)

    def places(n: int) -> str:
        return _number(dtypes.uint32, n, lanes)

    if op in (Op.SHL, Op.SHR):
        sign = "<<" if op is Op.SHL else ">>"
        return f"({args[0]} {sign} {places(c)})" if 0 <= c < u.dtype.bits else None
    if op not in (Op.IDIV, Op.MOD) or c <= 0:
        return None
    if c & (c - 1) == 0:
        # Two's complement: a shift rounds down, and a mask is never negative.
        if op is Op.IDIV:
            return f"({args[0]} >> {places(c.bit_length() - 1)})"
        return f"({args[0]} & {_number(u.dtype, c - 1, lanes)})"
    sign = "/" if op is Op.IDIV else "%"
    if kind == "uint" or u.dtype.bits == 64 and is_from(0, a):
        return f"({args[0]} {sign} {_number(u.dtype, c, lanes)})"
    if u.dtype.bits == 32 and is_from(0, a):
        whole, unsigned = type_of(dtypes.int32, lanes), type_of(dtypes.uint32, lanes)
        return f"{whole}({unsigned}({bare(args[0])}) {sign} {places(c)})"
    return None
