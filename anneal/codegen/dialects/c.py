"""C, for a processor: `kernel(memory, begin, end)` runs the workgroups from `begin` up to `end`, one after another.

Threads of a workgroup are a loop, so they cannot wait for each other: no reduce is shared among them, and a tile, the
memory of a workgroup, belongs to a single one. Vectors are those of gcc and clang; what these have no operator for is a
loop over lanes, made of the function for one number (`head.h`), which both compile to vector instructions. A vector
of bools is one of int32: 0 or -1. Wants `-fwrapv`, since sums of integers wrap, and `-fopenmp-simd` for the loops.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anneal.codegen.dialects.writer import ARITHMETIC, Dialect, Text, Writer, bare, is_from, merged, variable_name
from anneal.codegen.heuristics import choose_for_processor
from anneal.codegen.linear import Operand, Stmt
from anneal.codegen.ranges import extent, run_of
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.uop import COMPARE, DType, Op, UOp, dtypes

TARGET = Target(
    max_threads=1 << 16, max_workgroups=2**31 - 1, binding_bytes=1 << 62, f16=True, int64=True, float64=True,
    dialect="c", lanes=16, unaligned=True,
)  # fmt: skip

# The text that every module begins with: types, functions of one number, written without branches, so that a loop over
# lanes becomes vector instructions (`NUMERICS.md` has the bounds of those of float32; float64 takes the C library's),
# and what makes functions of vectors: NAME(t, n) makes the function name_TxN, and a module says which it needs. It
# includes no header: to read <math.h> takes as long as to compile a small kernel.
HEAD = Path(__file__).with_name("head.h").read_text(encoding="utf-8")
_KINDS = frozenset(re.findall(r"NUMBER\((\w+),", HEAD))  # f32, u8 ...
# Ops that `head.h` has functions for, of numbers and of vectors: `exp_f32`, `exp_f32x16`.
_FUNCTIONS = frozenset(re.findall(r"#define (\w+)\(t, n\)", HEAD))
_CALL = re.compile(r"\b([a-z]\w*?)_(b?[fiu]\d+)x(\d+)\(")  # of a function of vectors
_LINES = {
    "let": "const {type} {name} = {value};",
    "var": "{type} {name} = {value};",
    "for": "for (i32 {name} = 0; {name} < {end}; {name} += 1) {{",
    "number": "const i32 {name} = {value};",
    "guard": "if (!({test})) {{ continue; }}",
    "fma": "{into} = fused_{type}({a}, {b}, {into});",
    "barrier": "// all threads of the workgroup are this one",
}
_BITS = {dtypes.float16: "<e", dtypes.bfloat16: "<f"}  # dtypes whose values are bits until they are cast
_SUFFIXES = {"f32": "f", "u32": "u", "i64": "LL", "u64": "ULL"}


def _type_of(dtype: DType, lanes: int = 1) -> str:
    kind = dtype.name.replace("float", "f").replace("uint", "u").replace("int", "i").replace("bool", "u8")
    if kind not in _KINDS:
        raise CompilerError(f"no C for {dtype.name}", stage="render")
    return kind if lanes == 1 else f"{'i32' if dtype.kind == 'bool' else kind}x{lanes}"


def _text_of(op: Op, dtype: DType, lanes: int = 1) -> str | None:
    if op in ARITHMETIC:
        return ARITHMETIC[op]
    if op is Op.NOT:
        return "(!{0})" if dtype.kind == "bool" and lanes == 1 else "(~{0})"
    if op.name not in _FUNCTIONS:
        return None
    return f"{op.name.lower()}_{_type_of(dtype, lanes)}({', '.join(['{0}', '{1}', '{2}'][: op.arity])})"


def _literal(dtype: DType, value: Any) -> str:
    if dtype in _BITS:
        return str(int.from_bytes(struct.pack(_BITS[dtype], float(value))[-2:], "little"))
    if dtype.is_float:
        if not math.isfinite(value):
            return "NAN" if value != value else "INFINITY" if value > 0 else "(-INFINITY)"
        value = float(value)
    elif value == dtypes.int64.min:
        return "INT64_MIN"
    text = f"{int(value) if dtype.kind == 'bool' else value!r}{_SUFFIXES.get(_type_of(dtype), '')}"
    return f"({text})" if text[0] == "-" else text


class _Writer(Writer):
    def numbered(self, lanes: int) -> str:
        return f"((i32x{lanes}){{{', '.join(map(str, range(lanes)))}}})"

    def splat(self, o: Operand, text: str, dtype: DType, lanes: int) -> str:
        if lanes == 1 or self.lanes_of(o) == lanes:
            return text
        return f"all_{_type_of(dtype, lanes)}({'-' + text if dtype.kind == 'bool' else bare(text)})"

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.LANE:
            lanes = extent(u.src[1])
            kind = _type_of(u.dtype, lanes)
            self.text[s.number] = f"fold_{u.arg.name.lower()}_{kind}({bare(self.wide(s.src[0], u.dtype, lanes))})"
        else:
            super().let(s, u)

    # -- memory

    def conditions(self, predicate: Sequence[Operand]) -> tuple[str, str]:
        """Text of the condition that all lanes share, and of that which differs between them; "" for none. The former
        is no part of a mask: a processor takes long to find that memory which it may not read is not asked for."""
        found: tuple[list[str], list[str]] = [], []
        left = [*predicate]
        for o in left:
            differs = self.lanes_of(o) > 1
            if isinstance(o, int) and differs and self.made[o][0].op is Op.AND:
                left += self.made[o][1]
            elif (text := self.operand(o)) != "1":
                found[differs].append(text)
        return " & ".join(found[0]), " & ".join(found[1])

    def access(
        self, verb: str, s: Stmt, u: UOp, lanes: int, asked: Sequence[Operand], value: str = ""
    ) -> tuple[str, str]:
        """The text that loads or stores, and the condition under which it is to run; "" for none. The function of a
        vector is called by how its lanes lie in memory, and whether there is a mask."""
        memory, index, (guard, mask) = self.operand(s.src[0]), bare(self.operand(s.src[1])), self.conditions(asked)
        step = run_of(u.src[1])
        place = f"{memory} + {index}"  # pointers do not wrap: what is added last is part of the instruction
        if lanes == 1:
            return f"*({place})", guard
        if step is None:
            place = f"{memory}, {self.wide(s.src[1], dtypes.int32, lanes)}"
        name = verb + {None: "_at", 1: "", 2: "_even"}.get(step, "_step") + ("_if" if mask else "")
        given = [place, str(step) if "_step" in name else "", value, mask]
        return f"{name}_{_type_of(u.src[0].dtype)}x{lanes}({', '.join(filter(None, given))})", guard

    def load(self, s: Stmt, u: UOp) -> str:
        lanes = self.program.width(u)
        text, guard = self.access("load", s, u, lanes, s.src[2:])
        if u.dtype.kind == "bool" and lanes > 1:
            text = f"(-__builtin_convertvector({text}, i32x{lanes}))"
        return f"({guard} ? {text} : ({self.type(u)}){{0}})" if guard else text

    def store(self, s: Stmt, u: UOp) -> None:
        lanes, held = max(map(self.program.width, u.src[1:3])), u.src[0].dtype
        value = self.cast(self.wide(s.src[2], u.src[2].dtype, lanes), u.src[2].dtype, held, lanes)
        if held.kind == "bool" and lanes > 1:
            value = f"__builtin_convertvector(-{value}, u8x{lanes})"
        value = bare(value)
        text, guard = self.access("store", s, u, lanes, s.src[3:], value)
        self.guarded(s.depth, f"{text} = {value};" if lanes == 1 else f"{text};", guard)

    # -- values

    def alu(self, s: Stmt, u: UOp) -> str:
        lanes, old = self.program.width(u), u.src[0].dtype
        args = [self.wide(o, x.dtype, lanes) for o, x in zip(s.src, u.src, strict=True)]
        if u.op is Op.CAST:
            return self.cast(args[0], old, u.dtype, lanes)
        if u.op is Op.BITCAST:
            kind = self.type(u)
            return f"(({kind}){args[0]})" if lanes > 1 else f"bits({kind}, {_type_of(old)}, {args[0]})"
        if u.op in (Op.IDIV, Op.MOD) and old is dtypes.int32 and is_from(0, u.src[0]) and is_from(1, u.src[1]):
            a, b = [f"({_type_of(dtypes.uint32, lanes)}){x}" for x in args]
            return f"(({self.type(u)})({a} {'/' if u.op is Op.IDIV else '%'} {b}))"
        if u.op is Op.WHERE and self.lanes_of(s.src[0]) == 1:
            return f"({self.operand(s.src[0])} ? {args[1]} : {args[2]})"
        text = self.applied(u, args)
        return truth(text, old, lanes) if u.op in COMPARE else text

    def cast(self, value: str, old: DType, new: DType, lanes: int) -> str:
        """A value as one of another dtype."""
        if old is new:
            return value
        if (old in _BITS or new in _BITS) and dtypes.float32 not in (old, new):
            return self.cast(self.cast(value, old, dtypes.float32, lanes), dtypes.float32, new, lanes)
        if new.kind == "bool":
            return truth(f"({value} != 0)", old, lanes)
        to = _type_of(new, lanes)
        if (old.is_float and new.is_int) or old in _BITS or new in _BITS:
            return f"to_{_type_of(new)}_{_type_of(old, lanes)}({bare(value)})"
        if lanes == 1:
            return f"(({to}){value})"
        if lanes >= 8 and old in (dtypes.int8, dtypes.uint8):
            value, old = f"WIDER_{_type_of(old, lanes)}({value})", dtypes.int32
        return value if old is new else f"__builtin_convertvector({'-' if old.kind == 'bool' else ''}{value}, {to})"

    def stored(self, memory: UOp) -> str:
        return _type_of(memory.dtype)


def truth(text: str, compared: DType, lanes: int) -> str:
    """A comparison's result: lanes of as many bits as are compared, as lanes of 32."""
    if lanes == 1 or compared.kind == "bool" or compared.bits == 32:
        return text
    return f"__builtin_convertvector({bare(text)}, i32x{lanes})"


def _module(texts: Sequence[Text], target: Target) -> str:
    """The function that runs several programs, one after another, the numbers of whose workgroups follow each other."""
    whole = merged(texts)
    out = [
        f"  {'' if written else 'const '}{element} *restrict p{slot} = memory[{slot}];"
        for slot, (element, written, _) in sorted(whole.bindings.items())
    ]
    for i, n in enumerate(whole.variables):
        out.append(f"  const i32 {variable_name(n)} = ((i32 *)memory[{1 + max(whole.bindings)}])[{i}];")
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
    called = sorted({found for line in out for found in _CALL.findall(line)})
    made = [f"{name.upper()}({kind}, {lanes})" for name, kind, lanes in called]
    return "\n".join([HEAD, *made, "void kernel(void **memory, long begin, long end) {", *out, "}"]) + "\n"


C = Dialect("C", _LINES, _text_of, _type_of, _literal, choose_for_processor, _Writer, _module)
