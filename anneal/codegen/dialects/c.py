"""C, for a processor: `kernel(memory, begin, end)` runs the workgroups from `begin` up to `end`, one after another.

Threads of a workgroup are a loop, so they cannot wait for each other: no reduce is shared among them, and a tile, the
memory of a workgroup, belongs to a single one. Vectors are those of gcc and clang; what these have no operator for is a
loop over lanes, made of the function for one number (`c_head.py`), which both compile to vector instructions. A vector
of bools is one of int32: 0 or -1. Wants `-fwrapv`, since sums of integers wrap, and `-fopenmp-simd` for the loops.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from anneal.codegen.dialects.c_head import HEAD
from anneal.codegen.dialects.writer import ARITHMETIC, Dialect, Text, Writer, bare, variable_name
from anneal.codegen.heuristics import choose_for_processor
from anneal.codegen.linear import Operand, Stmt
from anneal.codegen.ranges import extent, run_of
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, dtypes

TARGET = Target(
    max_threads=1 << 16, max_workgroups=2**31 - 1, binding_bytes=1 << 62, f16=True, int64=True, float64=True,
    dialect="c", lanes=16, unaligned=True,
)  # fmt: skip

_TYPES = {
    dtypes.bool_: "u8", dtypes.int32: "i32", dtypes.uint32: "u32", dtypes.int64: "i64", dtypes.uint64: "u64",
    dtypes.float32: "f32", dtypes.float64: "f64", dtypes.float16: "f16", dtypes.bfloat16: "bf16",
    dtypes.int8: "i8", dtypes.uint8: "u8", dtypes.int16: "i16", dtypes.uint16: "u16",
}  # fmt: skip
# Functions of `c_head.py` and those that are made of them for vectors: `exp_f32`, `exp_f32x16`.
_FUNCTIONS = {
    Op.MAX: "max", Op.MIN: "min", Op.SIGN: "sign", Op.ABS: "abs", Op.IDIV: "div", Op.MOD: "mod", Op.SHL: "shl",
    Op.SHR: "shr", Op.THREEFRY: "threefry", Op.RECIP: "recip", Op.RSQRT: "rsqrt", Op.POW: "pow",
    Op.EXP: "exp", Op.EXP2: "exp2", Op.LOG: "log", Op.LOG2: "log2", Op.SIN: "sin", Op.COS: "cos", Op.TAN: "tan",
    Op.TANH: "tanh", Op.ERF: "erf", Op.SQRT: "sqrt", Op.FLOOR: "floor", Op.CEIL: "ceil", Op.ROUND: "rint",
    Op.TRUNC: "trunc",
}  # fmt: skip
_FOLDED = {Op.ADD: "add", Op.MUL: "mul", Op.MAX: "max", Op.MIN: "min"}
_ARITY = {Op.THREEFRY: 3, **dict.fromkeys((Op.MAX, Op.MIN, Op.IDIV, Op.MOD, Op.SHL, Op.SHR, Op.POW), 2)}
_LINES = {
    "let": "const {type} {name} = {value};",
    "var": "{type} {name} = {value};",
    "for": "for (i32 {name} = 0; {name} < {end}; {name} += 1) {{",
    "number": "const i32 {name} = {value};",
    "guard": "if (!({test})) {{ continue; }}",
    "fma": "{into} = {a} * {b} + {into};",
    "barrier": "// all threads of the workgroup are this one",
}
_BITS = {dtypes.float16: "<e", dtypes.bfloat16: "<f"}  # dtypes whose values are bits until they are cast
_SUFFIXES = {"f32": "f", "u32": "u", "i64": "LL", "u64": "ULL"}


def _type_of(dtype: DType, lanes: int = 1) -> str:
    if dtype not in _TYPES:
        raise CompilerError(f"no C for {dtype.name}", stage="render")
    return _TYPES[dtype] if lanes == 1 else f"{'i32' if dtype.kind == 'bool' else _TYPES[dtype]}x{lanes}"


def _text_of(op: Op, dtype: DType, lanes: int = 1) -> str | None:
    if op in ARITHMETIC:
        return ARITHMETIC[op]
    if op is Op.WHERE:
        return "({0} ? {1} : {2})"
    if op is Op.NOT:
        return "(!{0})" if dtype.kind == "bool" and lanes == 1 else "(~{0})"
    if op not in _FUNCTIONS:
        return None
    return f"{_FUNCTIONS[op]}_{_type_of(dtype, lanes)}({', '.join(['{0}', '{1}', '{2}'][: _ARITY.get(op, 1)])})"


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
    def __init__(self, dialect: Dialect, program: Any, target: Target) -> None:
        super().__init__(dialect, program, target)
        self.made: dict[str, None] = {}  # lines that make functions for vectors
        self.both: dict[Operand, Sequence[Operand]] = {}  # vectors that are conjunctions

    def make(self, line: str) -> None:
        self.made[line] = None

    def numbered(self, lanes: int) -> str:
        return f"((i32x{lanes}){{{', '.join(map(str, range(lanes)))}}})"

    def splat(self, o: Operand, text: str, dtype: DType, lanes: int) -> str:
        if lanes == 1 or self.lanes_of(o) == lanes:
            return text
        kind = "i32" if dtype.kind == "bool" else _type_of(dtype)
        self.make(f"ALL({kind}, {lanes})")
        return f"all_{kind}x{lanes}({'-' + text if dtype.kind == 'bool' else bare(text)})"

    def wide(self, o: Operand, u: UOp, lanes: int) -> str:
        """The operand `o`, which is the node `u`, in so many lanes."""
        return self.splat(o, self.operand(o), u.dtype, lanes)

    def combine(self, op: Op, u: UOp, into: str, value: str) -> str:
        lanes = self.program.width(u)
        if op in (Op.ADD, Op.MUL):
            return super().combine(op, u, into, value)
        self.of_lanes(op, u.dtype, lanes)
        return f"{into} = {self.template(op, u.dtype, u).format(into, bare(value))};"

    def update(self, s: Stmt, u: UOp) -> None:
        if len(s.src) != 3 or not u.dtype.is_float:
            super().update(s, u)
            return
        lanes = self.program.width(u)
        a, b = (bare(self.splat(o, self.operand(o), u.dtype, lanes)) for o in s.src[1:])
        into, kind = self.operand(s.src[0]), _type_of(u.dtype, lanes)
        if lanes > 1:
            self.make(f"FUSED({_type_of(u.dtype)}, {lanes})")
        self.line(s.depth, f"{into} = fma_{kind}({a}, {b}, {into});")

    def of_lanes(self, op: Op, dtype: DType, lanes: int) -> None:
        """See that there is a function of vectors for `op`."""
        if lanes > 1 and op in _FUNCTIONS:
            kind, arity, name = _type_of(dtype), _ARITY.get(op, 1), _FUNCTIONS[op]
            if op in (Op.SIN, Op.COS) and dtype is dtypes.float32:
                self.make(f"NEAR({name}, {kind}, {lanes})")
            else:
                self.make(f"MAP{arity}({name}, {kind}, {kind + ', ' if arity == 1 else ''}{lanes})")

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.LANE:
            lanes, name, kind = extent(u.src[1]), _FOLDED[u.arg], _type_of(u.dtype)
            self.make(f"FOLD2({name}, {kind})")
            for half in (2, 4, 8)[: lanes.bit_length() - 2]:
                self.make(f"ADDED({kind}, {half})" if u.arg is Op.ADD else f"MAP2({name}, {kind}, {half})")
                self.make(f"FOLD({name}, {kind}, {2 * half}, {half})")
            self.text[s.number] = f"fold_{name}_{kind}x{lanes}({bare(self.wide(s.src[0], u, lanes))})"
        else:
            if u.op is Op.AND and self.program.width(u) > 1:
                self.both[s.number] = s.src
            super().let(s, u)

    # -- memory

    def conditions(self, predicate: Sequence[Operand]) -> tuple[str, str]:
        """Text of the condition that all lanes share, and of that which differs between them; "" for none. The former
        is no part of a mask: a processor takes long to find that memory which it may not read is not asked for."""
        found: tuple[list[str], list[str]] = [], []
        left = [*predicate]
        for o in left:
            if o in self.both:
                left += self.both[o]
            elif isinstance(o, int) or o.op is not Op.CONST or not o.arg:
                found[self.lanes_of(o) > 1].append(self.operand(o))
        return " & ".join(found[0]), " & ".join(found[1])

    def load(self, s: Stmt, u: UOp) -> str:
        memory, index, (guard, mask) = self.operand(s.src[0]), bare(self.operand(s.src[1])), self.conditions(s.src[2:])
        lanes, kind = self.program.width(u), _type_of(u.dtype)
        if lanes == 1:
            text = f"*({memory} + {index})"  # pointers do not wrap: what is added last is part of the instruction
            return f"({guard} ? {text} : 0)" if guard else text
        step = run_of(u.src[1])
        if step == 1 and not mask:
            text = f"(({kind}x{lanes})*(const {kind}x{lanes}u *)({memory} + {index}))"
        else:
            name = {None: "gather", 1: "some", 2: "step2" if lanes > 2 else "step"}.get(step, "step")
            if mask and step != 1:
                name += "_if"
            if name == "step2_if":
                self.make(f"SOME({kind}, {lanes})")
            self.make(f"{name.upper()}({kind}, {lanes})")
            at = [f"{memory}, {self.wide(s.src[1], u.src[1], lanes)}" if step is None else f"{memory} + {index}"]
            at += [str(step)] if name.startswith("step") and "2" not in name else []
            text = f"{name}_{kind}x{lanes}({', '.join([*at, mask] if mask else at)})"
        if u.dtype.kind == "bool":
            text = f"(-__builtin_convertvector({text}, i32x{lanes}))"
        return f"({guard} ? {text} : ({self.type(u)}){{0}})" if guard else text

    def asked(self, depth: int, text: str, guard: str) -> None:
        self.line(depth, f"if ({bare(guard)}) {{ {text} }}" if guard else text)

    def store(self, s: Stmt, u: UOp) -> None:
        memory, index, (guard, mask) = self.operand(s.src[0]), bare(self.operand(s.src[1])), self.conditions(s.src[3:])
        lanes = max(self.program.width(u.src[1]), self.program.width(u.src[2]))
        held = u.src[0].dtype
        value = self.cast(self.wide(s.src[2], u.src[2], lanes), u.src[2].dtype, held, lanes)
        if lanes == 1:
            self.asked(s.depth, f"*({memory} + {index}) = {bare(value)};", guard)
            return
        kind = _type_of(held)
        if held.kind == "bool":
            value = f"__builtin_convertvector(-{value}, u8x{lanes})"
        step = run_of(u.src[1])
        if step == 1 and not mask:
            text = f"*({kind}x{lanes}u *)({memory} + {index}) = {bare(value)};"
        else:
            wanted = mask or f"~(i32x{lanes}){{0}}"
            name = "put" if step == 1 else "put2" if step == 2 and lanes > 2 else "scatter"
            if name != "scatter":
                self.make(f"PUT({kind}, {lanes})")
                at = f"{memory} + {index}"
            elif step is None:
                at = f"{memory}, {self.wide(s.src[1], u.src[1], lanes)}"
            else:
                at = f"{memory}, {index} + {step} * {self.numbered(lanes)}"
            self.make(f"{name.upper()}({kind}, {lanes})")
            text = f"{name}_{kind}x{lanes}({at}, {bare(value)}, {wanted});"
        self.asked(s.depth, text, guard)

    # -- values

    def alu(self, s: Stmt, u: UOp) -> str:
        lanes = self.program.width(u)
        if u.op in (Op.CAST, Op.BITCAST):
            return self.converted(s, u, lanes)
        if u.op in (Op.IDIV, Op.MOD) and self.is_natural(u):
            a, b = (self.wide(o, x, lanes) for o, x in zip(s.src, u.src, strict=True))
            sign = "/" if u.op is Op.IDIV else "%"
            kind = f"u32x{lanes}" if lanes > 1 else "u32"
            return f"(({self.type(u)})(({kind}){a} {sign} ({kind}){b}))"
        if lanes == 1:
            return self.applied(u, [self.operand(o) for o in s.src])
        if u.op is Op.WHERE:
            values = [self.wide(o, x, lanes) for o, x in zip(s.src[1:], u.src[1:], strict=True)]
            condition = self.operand(s.src[0])
            if self.lanes_of(s.src[0]) == 1:
                return f"({condition} ? {values[0]} : {values[1]})"
            kind = "i32" if u.dtype.kind == "bool" else _type_of(u.dtype)
            self.make(f"WHERE({kind}, {lanes})")
            return f"where_{kind}x{lanes}({bare(condition)}, {bare(values[0])}, {bare(values[1])})"
        self.of_lanes(u.op, u.src[0].dtype, lanes)
        args = [self.wide(o, x, lanes) for o, x in zip(s.src, u.src, strict=True)]
        text = self.applied(u, args)
        if u.dtype.kind == "bool" and u.src[0].dtype.kind != "bool" and u.src[0].dtype.bits != 32:
            return f"__builtin_convertvector({bare(text)}, i32x{lanes})"
        return text

    @staticmethod
    def is_natural(u: UOp) -> bool:
        """True for a division of an index that is never negative by a constant."""
        a, b = u.src
        return b.op is Op.CONST and b.arg > 0 and u.dtype is dtypes.int32 and a.vmin is not None and a.vmin >= 0

    def converted(self, s: Stmt, u: UOp, lanes: int) -> str:
        value, old = self.wide(s.src[0], u.src[0], lanes), u.src[0].dtype
        if u.op is Op.CAST:
            return self.cast(value, old, u.dtype, lanes)
        kind = _type_of(u.dtype, lanes)
        return f"(({kind}){value})" if lanes > 1 else f"bits({kind}, {_type_of(old)}, {value})"

    def cast(self, value: str, old: DType, new: DType, lanes: int) -> str:
        """A value as one of another dtype."""
        if old is new:
            return value
        to = _type_of(new, lanes)
        if (old in _BITS or new in _BITS) and dtypes.float32 not in (old, new):
            return self.cast(self.cast(value, old, dtypes.float32, lanes), dtypes.float32, new, lanes)
        if new.kind == "bool":
            test = f"({value} != 0)"
            return test if lanes == 1 or old.bits == 32 else f"__builtin_convertvector({bare(test)}, i32x{lanes})"
        if (old.is_float and new.is_int) or old in _BITS or new in _BITS:
            name = f"to_{_type_of(new)}"
            if lanes >= 8 and dtypes.float16 in (old, new):
                self.make(f"HALVES_{_type_of(new)}_{lanes}")
            elif lanes > 1:
                self.make(f"MAP1({name}, {_type_of(old)}, {_type_of(new)}, {lanes})")
            return f"{name}_{_type_of(old, lanes)}({bare(value)})"
        if lanes == 1:
            return f"(({to}){value})"
        if lanes >= 8 and old in (dtypes.int8, dtypes.uint8):
            value, old = f"WIDER_{_type_of(old, lanes)}({value})", dtypes.int32
        return value if old is new else f"__builtin_convertvector({'-' if old.kind == 'bool' else ''}{value}, {to})"

    def stored(self, memory: UOp) -> str:
        return _type_of(memory.dtype)

    def written(self) -> Text:
        return super().written()._replace(uses=frozenset(self.made))


def _module(texts: Sequence[Text], target: Target) -> str:
    """The function that runs several programs, one after another, the numbers of whose workgroups follow each other."""
    bindings: dict[int, tuple[str, bool]] = {}
    for t in texts:
        for slot, (element, written, _) in t.bindings.items():
            bindings[slot] = element, written or slot in bindings and bindings[slot][1]
    out = [
        f"  {'' if written else 'const '}{element} *restrict p{slot} = memory[{slot}];"
        for slot, (element, written) in sorted(bindings.items())
    ]
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
    made = sorted({line for t in texts for line in t.uses}, key=_in_order)
    return "\n".join([HEAD, *made, "void kernel(void **memory, long begin, long end) {", *out, "}"]) + "\n"


def _in_order(line: str) -> tuple[int, str]:
    """Functions that others are made of come first: folds of fewer lanes."""
    return (1 if line.startswith("FOLD2") else int(line.split(", ")[2])) if line.startswith("FOLD") else 0, line


C = Dialect("C", _LINES, _text_of, _type_of, _literal, choose_for_processor, _Writer, _module)
