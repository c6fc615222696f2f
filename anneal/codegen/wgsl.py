"""WGSL text from a linear program: a table from op to text, and the few functions WGSL lacks.

Names count up in statement order, so equal kernels give equal text in every process. A value used once is written where
it is used. Bools are stored as u32. An infinite or nan constant is built from its bits and a variable, because a WGSL
compiler may reject, or assume away, one that it can see.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from anneal.codegen.linear import LinearProgram, Operand, Stmt
from anneal.codegen.lower import Target
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, dtypes

__all__ = ["grid", "render"]

_TYPES = {dtypes.bool_: "bool", dtypes.int32: "i32", dtypes.uint32: "u32", dtypes.float32: "f32", dtypes.float16: "f16"}
_READ_AT_ONCE = 8  # partial results that one thread combines between two barriers
_LINE = 110  # characters of an expression before it gets a name of its own

# -- the table: (op, kind of the first source) -> text; kinds are bool, int, uint, float ----------------------------------

_ANY: dict[Op, str] = {
    Op.ADD: "({0} + {1})",
    Op.SUB: "({0} - {1})",
    Op.MUL: "({0} * {1})",
    Op.DIV: "({0} / {1})",
    Op.LT: "({0} < {1})",
    Op.EQ: "({0} == {1})",
    Op.NE: "({0} != {1})",
    Op.AND: "({0} & {1})",
    Op.OR: "({0} | {1})",
    Op.XOR: "({0} ^ {1})",
    Op.NEG: "(-{0})",
    Op.ABS: "abs({0})",
    Op.MAX: "max({0}, {1})",
    Op.MIN: "min({0}, {1})",
    Op.EXP: "exp({0})",
    Op.EXP2: "exp2({0})",
    Op.LOG: "log({0})",
    Op.LOG2: "log2({0})",
    Op.SIN: "sin({0})",
    Op.COS: "cos({0})",
    Op.TAN: "tan({0})",
    Op.TANH: "tanh_f32({0})",
    Op.ERF: "erf_f32({0})",
    Op.SQRT: "sqrt({0})",
    Op.RSQRT: "inverseSqrt({0})",
    Op.RECIP: "(1.0f / {0})",
    Op.FLOOR: "floor({0})",
    Op.CEIL: "ceil({0})",
    Op.ROUND: "round({0})",
    Op.TRUNC: "trunc({0})",
    Op.POW: "pow_f32({0}, {1})",
    Op.THREEFRY: "threefry({0}, {1}, {2})",
}
_SPECIFIC: dict[tuple[Op, str], str] = {
    (Op.NOT, "bool"): "(!{0})",
    (Op.NOT, "int"): "(~{0})",
    (Op.NOT, "uint"): "(~{0})",
    (Op.NEG, "bool"): "{0}",
    (Op.XOR, "bool"): "({0} != {1})",
    (Op.ABS, "bool"): "{0}",
    (Op.SIGN, "bool"): "{0}",
    # An unordered "not equal": WGSL's != may be false for nan.
    (Op.NE, "float"): "(!({0} == {1}))",
    (Op.MAX, "int"): "max_i32({0}, {1})",
    (Op.MIN, "int"): "min_i32({0}, {1})",
    (Op.DIV, "float"): "div_f32({0}, {1})",
    (Op.MAX, "float"): "max_f32({0}, {1})",
    (Op.MIN, "float"): "min_f32({0}, {1})",
    (Op.SIGN, "float"): "sign_f32({0})",
    (Op.SIGN, "int"): "sign({0})",
    (Op.SIGN, "uint"): "min({0}, 1u)",
    (Op.IDIV, "int"): "floordiv_i32({0}, {1})",
    (Op.IDIV, "uint"): "div_u32({0}, {1})",
    (Op.IDIV, "float"): "floor({0} / {1})",
    (Op.MOD, "int"): "floormod_i32({0}, {1})",
    (Op.MOD, "uint"): "mod_u32({0}, {1})",
    (Op.MOD, "float"): "floormod_f32({0}, {1})",
    (Op.SHL, "int"): "shl_i32({0}, {1})",
    (Op.SHL, "uint"): "shl_u32({0}, {1})",
    (Op.SHR, "int"): "shr_i32({0}, {1})",
    (Op.SHR, "uint"): "shr_u32({0}, {1})",
}
# For operands whose bounds or constants make the general text needless.
_NAN_FREE: dict[Op, str] = {
    # The second operand is a number: a nan in the first comes through.
    Op.MAX: "select({1}, {0}, !({0} <= {1}))",
    Op.MIN: "select({1}, {0}, !({0} >= {1}))",
}

_HELPERS: dict[str, str] = {
    "is_nan": "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    # Not max() and min(): NVIDIA's compiler (580.159) gets them wrong for a chain over negated integers.
    "max_i32": "fn max_i32(a: i32, b: i32) -> i32 { return select(a, b, a < b); }",
    "min_i32": "fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }",
    # WGSL promises a quotient only for divisors up to 2^126; NVIDIA gives 0 beyond.
    "div_f32": """fn div_f32(a: f32, b: f32) -> f32 {
  let s = select(1.0f, 0.25f, abs(b) > 8.507059e37f);
  return (a * s) / (b * s);
}""",
    "max_f32": "fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }",
    "min_f32": "fn min_f32(a: f32, b: f32) -> f32 { return select(b, a, (a < b) | is_nan(a)); }",
    "sign_f32": "fn sign_f32(x: f32) -> f32 { return select(f32(x > 0.0f) - f32(x < 0.0f), x, is_nan(x)); }",
    "tanh_f32": """fn tanh_f32(x: f32) -> f32 {
  // tanh overflows on some drivers; beyond 10 it is 1 to the last bit.
  return select(tanh(clamp(x, -10.0f, 10.0f)), x, is_nan(x) | (abs(x) < 0.0002f));
}""",
    "erf_f32": """fn erf_f32(x: f32) -> f32 {
  // Below 1 the Taylor series, above it Chebyshev's fit of erfc (Numerical Recipes 6.2); within 1.6e-7 everywhere.
  let a = abs(x);
  let q = min(a, 1.0f) * min(a, 1.0f);
  var s = 1.480719282e-08f + q * -1.229055530e-09f;
  s = 1.646211437e-06f + q * (-1.636584469e-07f + q * s);
  s = 1.205533298e-04f + q * (-1.492565036e-05f + q * s);
  s = 5.223977625e-03f + q * (-8.548327023e-04f + q * s);
  s = 1.128379167e-01f + q * (-2.686617065e-02f + q * s);
  s = 1.128379167e+00f + q * (-3.761263890e-01f + q * s);
  let z = min(a, 10.0f);
  let t = 1.0f / (1.0f + 0.5f * z);
  var c = -0.82215223f + t * 0.17087277f;
  c = -1.13520398f + t * (1.48851587f + t * c);
  c = -0.18628806f + t * (0.27886807f + t * c);
  c = 0.37409196f + t * (0.09678418f + t * c);
  c = -1.26551223f + t * (1.00002368f + t * c);
  let far = 1.0f - t * exp(c - z * z);
  return select(select(select(far, -far, x < 0.0f), x * s, a < 1.0f), x, is_nan(x));
}""",
    "pow_f32": """fn pow_f32(x: f32, y: f32) -> f32 {
  let whole = floor(y) == y;
  let odd = whole & (abs(y) < 16777216.0f) & (abs(y - 2.0f * floor(y * 0.5f)) == 1.0f);
  // The two ends are spelled out: what exp2 and log2 do there is the driver's choice.
  let zero = x == 0.0f;
  let ends = zero | (abs(x) == infinity());
  let size = select(exp2(y * log2(abs(x))), select(0.0f, infinity(), zero == (y < 0.0f)), ends);
  let even = select(size, 1.0f, abs(x) == 1.0f);
  let signed = select(even, -even, odd & ((bitcast<u32>(x) >> 31u) == 1u));
  let out = select(signed, quiet_nan(), (x < 0.0f) & !whole & (abs(x) < infinity()));
  return select(select(out, x + y, is_nan(x) | is_nan(y)), 1.0f, (y == 0.0f) | (x == 1.0f));
}""",
    "quiet_nan": "fn quiet_nan() -> f32 { return bitcast<f32>(0x7fc00000u | zero_bits); }",
    "infinity": "fn infinity() -> f32 { return bitcast<f32>(0x7f800000u | zero_bits); }",
    "floormod_f32": """fn floormod_f32(a: f32, b: f32) -> f32 {
  let r = select(a - trunc(a / b) * b, a, (abs(b) == infinity()) & (abs(a) < infinity()));
  return select(r, r + b, (r != 0.0f) & ((r < 0.0f) != (b < 0.0f)));
}""",
    "floordiv_i32": """fn floordiv_i32(a: i32, b: i32) -> i32 {
  let d = select(b, 1i, (b == 0i) | (b == -1i));
  let q = a / d;
  let down = ((a - q * d) != 0i) & ((a < 0i) != (d < 0i));
  return select(select(q - i32(down), 0i - a, b == -1i), 0i, b == 0i);
}""",
    "floormod_i32": """fn floormod_i32(a: i32, b: i32) -> i32 {
  let d = select(b, 1i, (b == 0i) | (b == -1i));
  let r = a - (a / d) * d;
  return select(r, r + d, (r != 0i) & ((r < 0i) != (d < 0i)));
}""",
    "div_u32": "fn div_u32(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }",
    "mod_u32": "fn mod_u32(a: u32, b: u32) -> u32 { return select(a % max(b, 1u), 0u, b == 0u); }",
    "shl_i32": "fn shl_i32(a: i32, b: i32) -> i32 { return select(a << (u32(b) & 31u), 0i, u32(b) > 31u); }",
    "shl_u32": "fn shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b > 31u); }",
    "shr_i32": "fn shr_i32(a: i32, b: i32) -> i32 { return a >> min(u32(b), 31u); }",
    "shr_u32": "fn shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b > 31u); }",
    "to_i32": """fn to_i32(x: f32) -> i32 {
  let i = i32(clamp(x, -2147483648.0f, 2147483520.0f));
  return select(select(i, 2147483647i, x >= 2147483648.0f), 0i, is_nan(x));
}""",
    "to_u32": """fn to_u32(x: f32) -> u32 {
  let i = u32(clamp(x, 0.0f, 4294967040.0f));
  return select(select(i, 4294967295u, x >= 4294967296.0f), 0u, is_nan(x));
}""",
    "threefry": """fn threefry(counter: u32, key0: u32, key1: u32) -> u32 {
  // Threefry-2x32 with 20 rounds, of (counter, 0); the first word.
  var key = array<u32, 3>(key0, key1, key0 ^ key1 ^ 0x1bd11bdau);
  var turn = array<u32, 8>(13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u);
  var a = counter + key0;
  var b = key1;
  for (var i = 0u; i < 5u; i += 1u) {
    for (var j = 0u; j < 4u; j += 1u) {
      let r = turn[(i & 1u) * 4u + j];
      a += b;
      b = ((b << r) | (b >> (32u - r))) ^ a;
    }
    a += key[(i + 1u) % 3u];
    b += key[(i + 2u) % 3u] + i + 1u;
  }
  return a;
}""",
}

_CALLS = {name: f"{name}(" for name in _HELPERS}


def grid(workgroups: int, limit: int = 65535) -> tuple[int, int, int]:
    """`workgroups` as a grid with no side over `limit`, with as few spare workgroups as a plain fold allows.

    >>> grid(1000)
    (1000, 1, 1)
    >>> grid(100_000)
    (50000, 2, 1)
    """
    x, y, z = max(1, workgroups), 1, 1
    if x > limit:
        y = -(-x // limit)
        x = -(-x // y)
    if y > limit:
        z = -(-y // limit)
        y = -(-y // z)
    if z > limit:
        raise CompilerError(f"a launch of {workgroups} workgroups does not fit a grid of side {limit}", stage="grid")
    return x, y, z


def literal(dtype: DType, value: bool | int | float) -> str:
    """A constant as WGSL text."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype is dtypes.uint32:
        return f"{value}u"
    if dtype is dtypes.int32:
        return f"{value}i" if value != dtype.min else "i32(-2147483648)"
    value = float(value)
    if math.isfinite(value) and not 0 < abs(value) < 1.2e-38:
        return f"{value!r}{'h' if dtype.bits == 16 else 'f'}"
    bits = struct.unpack("<I", struct.pack("<f", value))[0] if value == value else 0x7FC00000
    text = f"bitcast<f32>({bits:#010x}u | zero_bits)"
    return f"f16({text})" if dtype.bits == 16 else text


class _Writer:
    def __init__(self, program: LinearProgram, target: Target) -> None:
        self.program, self.target = program, target
        self.text: dict[int, str] = {}
        self.lines: list[str] = []
        self.shared: list[str] = []
        self.counters: dict[str, int] = {}
        self.inline = self._used_once()

    def _used_once(self) -> set[int]:
        """Statements whose value is used once, in the block that makes it."""
        depth: dict[int, int] = {}
        uses: dict[int, int] = {}
        same: set[int] = set()
        for s in self.program.stmts:
            depth[s.number] = s.depth
            for o in s.src:
                if isinstance(o, int):
                    uses[o] = uses.get(o, 0) + 1
                    if depth[o] == s.depth and s.kind not in ("for", "share"):
                        same.add(o)
        return {n for n in same if uses[n] == 1}

    def name(self, prefix: str) -> str:
        n = self.counters.get(prefix, 0)
        self.counters[prefix] = n + 1
        return f"{prefix}{n}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * (depth + 1) + text)

    def operand(self, o: Operand) -> str:
        if isinstance(o, int):
            return self.text[o]
        if o.op is Op.PARAM:
            return f"p{o.arg[0]}"
        return literal(o.dtype, o.arg)

    # -- statements

    def run(self) -> str:
        stmts = self.program.stmts
        i = 0
        while i < len(stmts):
            s = stmts[i]
            if s.kind == "share":
                j = i
                while j < len(stmts) and stmts[j].kind == "share":
                    j += 1
                self.share(stmts[i:j])
                i = j
                continue
            self.statement(s)
            i += 1
        return self.module()

    def statement(self, s: Stmt) -> None:
        u = s.node
        if s.kind == "let":
            assert u is not None
            self.let(s, u)
        elif s.kind == "end":
            self.line(s.depth, "}")
        elif s.kind == "guard":
            test = " & ".join(self.operand(o) for o in s.src)
            self.line(s.depth, f"if (!({_bare(test)})) {{ return; }}")
        elif s.kind == "acc":
            assert u is not None
            self.text[s.number] = name = self.name("acc")
            self.line(s.depth, f"var {name}: {_TYPES[u.dtype]} = {self.operand(s.src[0])};")
        elif s.kind == "for":
            self.text[s.number] = name = self.name("k")
            self.line(s.depth, f"for (var {name} = 0i; {name} < {self.operand(s.src[0])}; {name} += 1i) {{")
        elif s.kind == "update":
            assert u is not None
            self.line(s.depth, _combine(u.arg, u.dtype, self.operand(s.src[0]), self.operand(s.src[1])))
        else:
            assert u is not None
            self.store(s)

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.SPECIAL:
            self.text[s.number] = u.arg[0]
            return
        text = self.load(s, u) if u.op is Op.LOAD else self.alu(u, s)
        if u.op is not Op.LOAD and s.number in self.inline and len(text) < _LINE:
            self.text[s.number] = text
            return
        prefix = "x" if u.op is Op.LOAD else "c" if u.dtype.kind == "bool" else "i" if u.dtype.kind == "int" else "v"
        self.text[s.number] = name = self.name(prefix)
        if text[0] == "(" and _outer_parens(text):
            text = text[1:-1]
        self.line(s.depth, f"let {name} = {text};")

    def load(self, s: Stmt, u: UOp) -> str:
        param = s.src[0]
        index = self.operand(s.src[1])
        if len(s.src) == 3:
            gate = self.operand(s.src[2])
            if not gate.isidentifier():
                name = self.name("c")
                self.line(s.depth, f"let {name} = {_bare(gate)};")
                gate = name
            index = f"select(0i, {_bare(index)}, {gate})"
        value = f"{self.operand(param)}[{_bare(index)}]"
        if u.dtype.kind == "bool":
            value = f"({value} != 0u)"
            return f"({gate} & {value})" if len(s.src) == 3 else value
        return f"select({literal(u.dtype, 0)}, {value}, {gate})" if len(s.src) == 3 else value

    def store(self, s: Stmt) -> None:
        param, index, value = s.src[:3]
        assert isinstance(param, UOp)
        text = _bare(self.operand(value))
        if param.dtype.kind == "bool":
            text = f"u32({text})"
        text = f"{self.operand(param)}[{_bare(self.operand(index))}] = {text};"
        self.line(s.depth, text if len(s.src) == 3 else f"if ({_bare(self.operand(s.src[3]))}) {{ {text} }}")

    def share(self, stmts: Sequence[Stmt]) -> None:
        """Combine partial results: first within subgroups, then through workgroup memory; every thread gets the total."""
        launch = self.program.launch
        stride, group = launch.group_stride, launch.group
        parts = []
        for s in stmts:
            assert s.node is not None
            self.text[s.number] = name = self.name("total")
            parts.append((name, s.node))
            self.line(0, f"var {name} = {_bare(self.operand(s.src[0]))};")
        joined = 1  # neighbouring lanes of a group that hold the same combined value by now
        while joined < group and stride * joined < self.target.subgroup and stride & (stride - 1) == 0:
            for name, u in parts:
                self.line(0, _combine(u.arg, u.dtype, name, f"subgroupShuffleXor({name}, {stride * joined}u)"))
            joined *= 2
        if joined < group:
            self.share_in_memory(parts, joined)

    def share_in_memory(self, parts: list[tuple[str, UOp]], joined: int) -> None:
        """One of `joined` lanes writes; while many are left an eighth of the threads takes in the others; all read."""
        launch = self.program.launch
        stride, left = launch.group_stride, launch.group // joined
        rooms = []
        for _, u in parts:
            rooms.append(self.name("part"))
            self.shared.append(f"var<workgroup> {rooms[-1]}: array<{_TYPES[u.dtype]}, {launch.threads // joined}>;")
        lane = self.name("lane")
        at = "local_id" if stride == 1 else f"(local_id / {stride}u)"
        whole = launch.group * stride == launch.threads
        self.line(0, f"let {lane} = {_bare(at) if whole else f'{at} % {launch.group}u'};")
        # A group's partial results lie `stride` apart, as its threads do.
        where = "local_id"
        if joined > 1:
            where = f"local_id / {stride * joined}u" + (f" * {stride}u + local_id % {stride}u" if stride > 1 else "")
        write = " ".join(f"{room}[{where}] = {name};" for room, (name, _) in zip(rooms, parts, strict=True))
        self.line(0, f"if (({lane} & {joined - 1}u) == 0u) {{ {write} }}" if joined > 1 else write)
        self.line(0, "workgroupBarrier();")
        while left > _READ_AT_ONCE:
            keep = max(1, left // _READ_AT_ONCE)
            self.line(0, f"if ({lane} < {keep}u) {{")
            first = self.name("first")
            mine = lane if stride == 1 else f"{lane} * {stride}u"
            start = self.first_of(joined)
            self.line(1, f"let {first} = {mine if start == '0u' else f'{start} + {mine}'};")
            for room, (_, u) in zip(rooms, parts, strict=True):
                for i in range(1, left // keep):
                    there = f"{room}[{first} + {i * keep * stride}u]"
                    self.line(1, _combine(u.arg, u.dtype, f"{room}[{first}]", there))
            self.line(0, "}")
            self.line(0, "workgroupBarrier();")
            left = keep
        first = self.name("first")
        self.line(0, f"let {first} = {self.first_of(joined)};")
        for room, (name, u) in zip(rooms, parts, strict=True):
            self.line(0, f"{name} = {room}[{first}];")
            for i in range(1, left):
                self.line(0, _combine(u.arg, u.dtype, name, f"{room}[{first} + {i * stride}u]"))

    def first_of(self, joined: int) -> str:
        """Where a group's first partial result lies."""
        launch = self.program.launch
        stride = launch.group_stride
        if launch.group * stride == launch.threads:
            return "0u" if stride == 1 else f"local_id % {stride}u"
        start = f"local_id / {launch.group * stride}u * {launch.group // joined * stride}u"
        return start if stride == 1 else f"{start} + local_id % {stride}u"

    # -- expressions

    def alu(self, u: UOp, s: Stmt) -> str:
        args = [self.operand(o) for o in s.src]
        if args and not any(isinstance(o, int) for o in s.src):
            # All constants: behind a variable, so that no compiler works it out, and rejects it, ahead of time.
            first = s.src[0]
            assert isinstance(first, UOp)
            name = self.name("v")
            self.line(s.depth, f"var {name}: {_TYPES[first.dtype]} = {args[0]};")
            args[0] = name
        op, a = u.op, u.src[0]
        if op is Op.WHERE:
            return f"select({_bare(args[2])}, {_bare(args[1])}, {_bare(args[0])})"
        if op is Op.CAST:
            return _cast(a.dtype, u.dtype, args[0])
        if op is Op.BITCAST:
            return f"bitcast<{_TYPES[u.dtype]}>({_bare(args[0])})"
        kind = a.dtype.kind
        special = _by_constant(u, args, kind)
        if special is not None:
            return special
        template = _SPECIFIC.get((op, kind)) or _ANY.get(op)
        if template is None:
            raise CompilerError(f"no WGSL for {op.name} of {a.dtype.name}", stage="render", node=u)
        if template.partition("(")[0].isidentifier() and "/" not in template:
            args = [_bare(a) for a in args]  # a call: its own parentheses are enough
        return template.format(*args)

    # -- the module

    def module(self) -> str:
        p = self.program
        body = "\n".join(self.lines)
        used = _closure(body)
        head = []
        if any(x.node.dtype is dtypes.float16 for x in p.params) or "f16(" in body:
            head.append("enable f16;")
        for x in p.params:
            access = "read_write" if x.written else "read"
            element = "u32" if x.node.dtype.kind == "bool" else _TYPES[x.node.dtype]
            head.append(f"@group(0) @binding({x.slot}) var<storage, {access}> p{x.slot}: array<{element}>;")
        head += self.shared
        helpers = [_HELPERS[h] for h in used]
        if "zero_bits" in body or any("zero_bits" in h for h in helpers):
            head.append("var<private> zero_bits: u32 = 0u;")
        nx, ny, nz = grid(p.launch.workgroups, self.target.max_workgroups)
        where = "group_id.x" if ny == 1 else f"group_id.x + group_id.y * {nx}u"
        if nz > 1:
            where += f" + group_id.z * {nx * ny}u"
        start = []
        spare = nx * ny * nz != p.launch.workgroups
        if "wg" in self.text.values() or spare:
            start.append(f"  let wg = i32({where});")
        if spare:
            start.append(f"  if (wg >= {p.launch.workgroups}i) {{ return; }}")
        if "lid" in self.text.values():
            start.append("  let lid = i32(local_id);")
        main = f"@compute @workgroup_size({p.launch.threads})\nfn main({_BUILTINS}) {{"
        return "\n".join([*head, *helpers, main, *start, body, "}"]) + "\n"


_BUILTINS = "@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32"


def _closure(body: str) -> list[str]:
    """The helpers that `body` calls, and those they call, in the order of the table."""
    used: set[str] = set()
    texts = [body]
    while texts:
        text = texts.pop()
        for name, call in _CALLS.items():
            if name not in used and call in text:
                used.add(name)
                texts.append(_HELPERS[name])
    return [h for h in _HELPERS if h in used]


def _outer_parens(text: str) -> bool:
    depth = 0
    for i, ch in enumerate(text):
        if ch == "(":
            depth += 1
        elif ch == ")":
            depth -= 1
            if depth == 0:
                return i == len(text) - 1
    return False


def _bare(text: str) -> str:
    return text[1:-1] if text[0] == "(" and _outer_parens(text) else text


def _combine(op: Op, dtype: DType, into: str, value: str) -> str:
    if op is Op.ADD:
        return f"{into} += {_bare(value)};"
    if op is Op.MUL:
        return f"{into} *= {_bare(value)};"
    template = _SPECIFIC.get((op, dtype.kind)) or _ANY[op]
    return f"{into} = {template.format(into, _bare(value))};"


def _cast(old: DType, new: DType, x: str) -> str:
    x = _bare(x)
    if new.kind == "bool":
        return {"float": f"(!({x} == 0.0{'h' if old.bits == 16 else 'f'}))", "bool": x}.get(
            old.kind, f"(({x}) != {literal(old, 0)})"
        )
    if old.kind == "float" and new.is_int:
        wide = x if old.bits == 32 else f"f32({x})"
        return f"to_{_TYPES[new]}({wide})"
    return f"{_TYPES[new]}({x})"


def _by_constant(u: UOp, args: list[str], kind: str) -> str | None:
    """Shorter text where a constant operand or known bounds allow it."""
    if len(u.src) != 2:
        return None
    op, a, b = u.op, u.src[0], u.src[1]
    if kind == "float" and op in _NAN_FREE:
        if a.op is Op.CONST and a.arg == a.arg:
            return _NAN_FREE[op].format(args[1], args[0])
        if b.op is Op.CONST and b.arg == b.arg:
            return _NAN_FREE[op].format(*args)
        return None
    if b.op is not Op.CONST or kind not in ("int", "uint"):
        return None
    c = int(b.arg)
    if op in (Op.SHL, Op.SHR):
        sign = "<<" if op is Op.SHL else ">>"
        return f"({args[0]} {sign} {c}u)" if 0 <= c < 32 else None
    if op not in (Op.IDIV, Op.MOD) or c <= 0:
        return None
    if c & (c - 1) == 0:
        # Two's complement: a shift rounds down, and a mask is never negative.
        return f"({args[0]} >> {c.bit_length() - 1}u)" if op is Op.IDIV else f"({args[0]} & {literal(u.dtype, c - 1)})"
    sign = "/" if op is Op.IDIV else "%"
    if kind == "uint":
        return f"({args[0]} {sign} {c}u)"
    if a.vmin is not None and a.vmin >= 0:
        return f"i32(u32({_bare(args[0])}) {sign} {c}u)"
    return None


def render(program: LinearProgram, target: Target) -> str:
    """The WGSL module of `program`; its entry point is `main`."""
    return _Writer(program, target).run()
