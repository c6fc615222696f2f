"""C, for a processor: `kernel(memory, begin, end)` runs the workgroups from `begin` up to `end`, one after another.

Threads of a workgroup are a loop, so they cannot wait for each other: no reduce is shared among them, and a tile, the
memory of a workgroup, belongs to a single one. Vectors are those of gcc and clang, made and taken apart lane by lane;
compilers join the lanes. Wants `-fwrapv`: sums of integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from anneal.codegen.dialects.writer import ARITHMETIC, Dialect, Text, Writer, bare, variable_name
from anneal.codegen.lanes import is_whole, memory_of
from anneal.codegen.linear import Operand, Stmt
from anneal.codegen.opts import Opt
from anneal.codegen.target import Target, register
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, dtypes

TARGET = Target(
    max_threads=64, max_workgroups=2**31 - 1, binding_bytes=1 << 62, int64=True, float64=True, dialect="c"
)  # fmt: skip

_TYPES = {
    dtypes.bool_: "u8", dtypes.int32: "i32", dtypes.uint32: "u32", dtypes.int64: "i64", dtypes.uint64: "u64",
    dtypes.float32: "f32", dtypes.float64: "f64",
    dtypes.int8: "i8", dtypes.uint8: "u8", dtypes.int16: "i16", dtypes.uint16: "u16",
}  # fmt: skip
_HEAD = """#include <math.h>
#include <stdint.h>

#define NUMBER(t, kind) typedef kind t; \\
  typedef t t##x2 __attribute__((vector_size(2 * sizeof(t)))); \\
  typedef t t##x4 __attribute__((vector_size(4 * sizeof(t)))); \\
  static inline t max_##t(t a, t b) { return a > b || a != a ? a : b; } \\
  static inline t min_##t(t a, t b) { return a < b || a != a ? a : b; } \\
  static inline t abs_##t(t a) { return a < 0 ? -a : a; } \\
  static inline t sign_##t(t a) { return a != a ? a : (a > 0) - (a < 0); }
#define WHOLE(t, kind, low, high) NUMBER(t, kind) \\
  static inline t to_##t(f64 x) { return x != x ? 0 : x <= low ? low : x >= high ? high : (t)x; } \\
  static inline t mod_##t(t a, t b) { \\
    if (b == 0 || (b == (t)-1 && low != 0)) return 0; \\
    t r = a % b; \\
    return r != 0 && (r < 0) != (b < 0) ? r + b : r; \\
  } \\
  static inline t div_##t(t a, t b) { \\
    return b == 0 ? 0 : b == (t)-1 && low != 0 ? -a : a / b - (a % b != 0 && (a < 0) != (b < 0)); \\
  } \\
  static inline t shl_##t(t a, t b) { return (uint64_t)b < 8 * sizeof(t) ? a << b : 0; } \\
  static inline t shr_##t(t a, t b) { return (uint64_t)b < 8 * sizeof(t) ? a >> b : a < 0 ? -1 : 0; }
#define REAL(t, f) \\
  static inline t mod_##t(t a, t b) { \\
    t r = fmod##f(a, b); \\
    return r == 0 ? copysign##f(0, b) : (r < 0) != (b < 0) ? r + b : r; \\
  } \\
  static inline t div_##t(t a, t b) { \\
    if (a != a || b == 0) return a / b; \\
    t r = fmod##f(a, b), q = rint##f((a - r) / b) - (r != 0 && (r < 0) != (b < 0)); \\
    return q == 0 ? copysign##f(0, a) * copysign##f(1, b) : q; \\
  }
#define bits(t, kind, x) (((union { kind from; t to; }){ .from = x }).to)
NUMBER(f32, float)
NUMBER(f64, double)
WHOLE(i8, int8_t, -128, 127)
WHOLE(u8, uint8_t, 0, 255)
WHOLE(i16, int16_t, -32768, 32767)
WHOLE(u16, uint16_t, 0, 65535)
WHOLE(i32, int32_t, INT32_MIN, INT32_MAX)
WHOLE(u32, uint32_t, 0, UINT32_MAX)
WHOLE(i64, int64_t, INT64_MIN, INT64_MAX)
WHOLE(u64, uint64_t, 0, UINT64_MAX)
REAL(f32, f)
REAL(f64, )

static inline u32 threefry(u32 counter, u32 key0, u32 key1) {
  u32 key[3] = {key0, key1, key0 ^ key1 ^ 0x1bd11bdau}, turn[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  u32 a = counter + key0, b = key1;
  for (u32 i = 0; i < 5; i += 1) {
    for (u32 j = 0; j < 4; j += 1) {
      u32 r = turn[(i & 1) * 4 + j];
      a += b;
      b = (b << r | b >> (32 - r)) ^ a;
    }
    a += key[(i + 1) % 3];
    b += key[(i + 2) % 3] + i + 1;
  }
  return a;
}
"""
# {t} is the type of the first operand; functions of math.h are those of its width.
_OPS = {
    **ARITHMETIC, Op.WHERE: "({0} ? {1} : {2})", Op.RECIP: "(1 / {0})", Op.THREEFRY: "threefry({0}, {1}, {2})",
    Op.MAX: "max_{t}({0}, {1})", Op.MIN: "min_{t}({0}, {1})", Op.SIGN: "sign_{t}({0})", Op.ABS: "abs_{t}({0})",
    Op.IDIV: "div_{t}({0}, {1})", Op.MOD: "mod_{t}({0}, {1})",
    Op.SHL: "shl_{t}({0}, {1})", Op.SHR: "shr_{t}({0}, {1})",
}  # fmt: skip
_MATH = {
    Op.EXP: "exp", Op.EXP2: "exp2", Op.LOG: "log", Op.LOG2: "log2", Op.SIN: "sin", Op.COS: "cos", Op.TAN: "tan",
    Op.TANH: "tanh", Op.ERF: "erf", Op.SQRT: "sqrt", Op.FLOOR: "floor", Op.CEIL: "ceil", Op.ROUND: "rint",
    Op.TRUNC: "trunc", Op.ABS: "fabs", Op.POW: "pow",
}  # fmt: skip
_LINES = {
    "let": "const {type} {name} = {value};",
    "var": "{type} {name} = {value};",
    "for": "for (i32 {name} = 0; {name} < {end}; {name} += 1) {{",
    "number": "const i32 {name} = {value};",
    "guard": "if (!({test})) {{ continue; }}",
    "fma": "{into} += {a} * {b};",
    "barrier": "// all threads of the workgroup are this one",
}
_SUFFIXES = {"f32": "f", "u32": "u", "i64": "LL", "u64": "ULL"}


def _type_of(dtype: DType, lanes: int = 1) -> str:
    if dtype not in _TYPES:
        raise CompilerError(f"no C for {dtype.name}", stage="render")
    return _TYPES[dtype] if lanes == 1 else f"{_TYPES[dtype]}x{lanes}"


def _text_of(op: Op, dtype: DType, lanes: int = 1) -> str | None:
    if dtype.is_float and op in _MATH:
        second = ", {1}" if op is Op.POW else ""
        return f"{_MATH[op]}{'f' if dtype.bits == 32 else ''}({{0}}{second})"
    if op is Op.RSQRT:
        return f"(1 / sqrt{'f' if dtype.bits == 32 else ''}({{0}}))"
    if op is Op.NOT:
        return "(!{0})" if dtype.kind == "bool" else "(~{0})"
    return _OPS[op].replace("{t}", _type_of(register(dtype))) if op in _OPS else None


def _literal(dtype: DType, value: Any) -> str:
    if dtype.is_float:
        if not math.isfinite(value):
            return "NAN" if value != value else "INFINITY" if value > 0 else "(-INFINITY)"
        value = float(value)
    elif value == dtypes.int64.min:
        return "INT64_MIN"
    text = f"{int(value) if dtype.kind == 'bool' else value!r}{_SUFFIXES.get(_type_of(register(dtype)), '')}"
    return f"({text})" if text[0] == "-" else text


class _Writer(Writer):
    def numbered(self, lanes: int) -> str:
        return f"((i32x{lanes}){{{', '.join(map(str, range(lanes)))}}})"

    def lane(self, o: Operand, k: int) -> str:
        """One lane of an operand; a scalar has it in all of them."""
        if isinstance(o, UOp) and o.op is Op.RANGE:
            return str(k)
        return self.operand(o) if self.lanes_of(o) == 1 else f"{self.operand(o)}[{k}]"

    def lanewise(self, u: UOp, lane: Callable[[int], str]) -> str:
        """A value of the type of `u`, made lane by lane."""
        lanes = self.program.width(u)
        if lanes == 1:
            return lane(0)
        return f"({self.type(u)}){{{', '.join(bare(lane(k)) for k in range(lanes))}}}"

    def splat(self, o: Operand, text: str, dtype: DType, lanes: int) -> str:
        if lanes == 1 or self.lanes_of(o) == lanes:
            return text
        return f"({self.dialect.type_of(dtype, lanes)}){{{', '.join([bare(text)] * lanes)}}}"

    def combine(self, op: Op, u: UOp, into: str, value: str) -> str:
        if self.program.width(u) == 1 or op in (Op.ADD, Op.MUL):
            return super().combine(op, u, into, value)
        template = self.template(op, u.dtype, u)
        lanes = [
            f"{into}[{k}] = {template.format(f'{into}[{k}]', f'{value}[{k}]')};" for k in range(self.program.width(u))
        ]
        return " ".join(lanes)

    def let(self, s: Stmt, u: UOp) -> None:
        if self.program.width(u) > 1:
            self.inline.discard(s.number)  # a vector's text is repeated for each lane
        if u.op is Op.LANES:
            self.text[s.number], self.rest[s.number] = (self.operand(o) for o in s.src)
        elif u.op is Op.LANE:
            self.text[s.number] = self.lane(s.src[0], u.arg)
        else:
            super().let(s, u)

    def element(self, s: Stmt, u: UOp, k: int) -> str:
        """The element of memory that lane `k` of an access is about."""
        index, wide = s.src[1], self.program.wide.get(memory_of(u.src[0]), 1)
        at = self.lane(index, k)
        if is_whole(u.src[1]):
            at = f"({at}) * {wide} + {k}"
        elif u.op is Op.LOAD and u.arg is not None:
            at = f"({at}) * {wide} + {u.arg}"
        elif isinstance(index, int) and index in self.rest:
            at = f"({at}) * {wide} + {self.rest[index]}"
        return f"{self.operand(s.src[0])}[{bare(at)}]"

    def load(self, s: Stmt, u: UOp) -> str:
        if len(s.src) == 2:
            return self.lanewise(u, lambda k: self.element(s, u, k))
        return self.lanewise(u, lambda k: f"({self.lane(s.src[2], k)} ? {self.element(s, u, k)} : 0)")

    def store(self, s: Stmt, u: UOp) -> None:
        lanes = max(self.program.width(u.src[1]), self.program.width(u.src[2]))
        for k in range(lanes):
            text = f"{self.element(s, u, k)} = {bare(self.lane(s.src[2], k))};"
            self.line(s.depth, text if len(s.src) == 3 else f"if ({bare(self.lane(s.src[3], k))}) {{ {text} }}")

    def alu(self, s: Stmt, u: UOp) -> str:
        return self.lanewise(u, lambda k: self.of_lane(u, [self.lane(o, k) for o in s.src]))

    def of_lane(self, u: UOp, args: Sequence[str]) -> str:
        if u.op not in (Op.CAST, Op.BITCAST):
            return self.applied(u, args)
        old, kind = u.src[0].dtype, _type_of(u.dtype)
        if u.op is Op.BITCAST:
            return f"bits({kind}, {_type_of(old)}, {args[0]})"
        if u.dtype.kind == "bool":
            return f"({args[0]} != 0)"
        return f"to_{kind}({bare(args[0])})" if old.is_float and u.dtype.is_int else f"(({kind}){args[0]})"

    def stored(self, memory: UOp) -> str:
        return _type_of(memory.dtype)


def _module(texts: Sequence[Text], target: Target) -> str:
    """The function that runs several programs, one after another, the numbers of whose workgroups follow each other."""
    bindings = {slot: element for t in texts for slot, (element, _, _) in t.bindings.items()}
    out = [f"  {element} *p{slot} = memory[{slot}];" for slot, element in sorted(bindings.items())]
    names = sorted({n for t in texts for n in t.variables})
    out += [f"  const i32 {variable_name(n)} = ((i32 *)memory[{1 + max(bindings)}])[{i}];" for i, n in enumerate(names)]
    first = 0
    for t in texts:
        threads = t.launch.threads
        if t.synchronises and threads > 1:
            raise CompilerError("no C for threads that wait for each other", stage="render")
        last = first + t.launch.workgroups
        out.append(f"  for (long at = begin > {first} ? begin : {first}; at < end && at < {last}; at += 1) {{")
        out.append(f"    const i32 wg = at - {first};")
        out += [f"    {x.element} {x.name}[{x.nbytes} / sizeof({x.element})];" for x in t.shared]
        out.append(f"    for (i32 lid = 0; lid < {threads}; lid += 1) {{")
        out += ["    " + line for line in t.lines] + ["    }", "  }"]
        first = last
    return "\n".join([_HEAD, "void kernel(void **memory, long begin, long end) {", *out, "}"]) + "\n"


def _choose(sink: UOp, target: Target) -> tuple[Opt, ...]:
    """Elements one after another, so that the compiler can take several at a time."""
    return (Opt("FLAT", 0, target.max_threads),)


C = Dialect("C", _LINES, _text_of, _type_of, _literal, _choose, _Writer, _module)
