"""The body of a WGSL kernel from a linear program: a table from op to text, and the few functions WGSL lacks.

Names count up in statement order, so equal kernels give equal text in every process. A value used once is written where
it is used. Bools are stored as u32. An infinite or nan constant is built from its bits and a variable, because a WGSL
compiler may reject, or assume away, one that it can see.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from anneal.codegen.functions import FUNCTIONS
from anneal.codegen.lanes import is_whole, memory_of
from anneal.codegen.linear import LinearProgram, Operand, Stmt
from anneal.codegen.lower import Target
from anneal.codegen.modules import Shared, Text
from anneal.codegen.packed import PACKED, Packed, element_type, register
from anneal.codegen.windows import param_bytes
from anneal.errors import CompilerError
from anneal.uop import DType, Op, UOp, dtypes

__all__ = ["write"]

_TYPES = {dtypes.bool_: "bool", dtypes.int32: "i32", dtypes.uint32: "u32", dtypes.float32: "f32", dtypes.float16: "f16"}
_READ_AT_ONCE = 8  # partial results that one thread combines between two barriers
_COMPONENTS = "xyzw"
_MIXED = frozenset((Op.ADD, Op.SUB, Op.MUL))  # WGSL takes a vector and a scalar
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
    Op.EXP: "exp_f32({0})",
    Op.EXP2: "exp2({0})",
    Op.LOG: "log_f32({0})",
    Op.LOG2: "log2_f32({0})",
    Op.SIN: "sin_f32({0})",
    Op.COS: "cos_f32({0})",
    Op.TAN: "tan_f32({0})",
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
    (Op.SIGN, "uint"): "sign_u32({0})",
    (Op.IDIV, "int"): "floordiv_i32({0}, {1})",
    (Op.IDIV, "uint"): "div_u32({0}, {1})",
    (Op.IDIV, "float"): "floordiv_f32({0}, {1})",
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


def type_of(dtype: DType, lanes: int = 1) -> str:
    """The WGSL type of a value."""
    one = _TYPES[register(dtype)]
    return one if lanes == 1 else f"vec{lanes}<{one}>"


def literal(dtype: DType, value: bool | int | float) -> str:
    """A constant as WGSL text."""
    dtype = register(dtype)
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
        self.rest: dict[int, str] = {}  # of an index counted in vectors: the lane
        self.lines: list[str] = []
        self.shared: list[Shared] = []
        self.gathered: dict[tuple[Operand, ...], list[str]] = {}  # (memory, index) -> the vectors that lanes read
        self.counters: dict[str, int] = {}
        self.open: list[tuple[UOp, str, int]] = []  # loops: the range, its variable, its first line
        self.inline = self._used_once()
        self.widths = {s.number: self.program.width(s.node) for s in program.stmts if s.node is not None}

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
        if o.op is Op.SHARED:
            return f"tile{o.arg[0]}"
        if o.op is Op.RANGE:
            n = int(o.src[0].arg)
            return f"vec{n}<i32>({', '.join(f'{i}i' for i in range(n))})"
        return literal(o.dtype, o.arg)

    def type(self, u: UOp) -> str:
        return type_of(u.dtype, self.program.width(u))

    # -- statements

    def run(self) -> Text:
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
        return self.written()

    def statement(self, s: Stmt) -> None:
        u = s.node
        if s.kind == "let":
            assert u is not None
            self.let(s, u)
        elif s.kind == "end":
            self.end(s.depth)
        elif s.kind == "guard":
            test = " & ".join(self.operand(o) for o in s.src)
            self.line(s.depth, f"if (!({_bare(test)})) {{ return; }}")
        elif s.kind == "acc":
            assert u is not None
            self.text[s.number] = name = self.name("acc")
            first = self.operand(s.src[0])
            lanes = self.program.width(u)
            if lanes > 1 and isinstance(s.src[0], UOp):
                first = f"{type_of(u.dtype, lanes)}({first})"
            self.line(s.depth, f"var {name}: {self.type(u)} = {_bare(first)};")
        elif s.kind == "for":
            assert u is not None
            self.text[s.number] = name = self.name("k")
            self.open.append((u, name, len(self.lines)))
            if u.arg[1] != "written":
                self.line(s.depth, f"for (var {name} = 0i; {name} < {self.operand(s.src[0])}; {name} += 1i) {{")
        elif s.kind == "update":
            assert u is not None
            self.update(s, u)
        elif s.kind == "set":
            assert u is not None
            value = self.widened(s.src[1], self.operand(s.src[1]), u.dtype, self.program.width(u))
            self.line(s.depth, f"{self.operand(s.src[0])} = {_bare(value)};")
        elif s.kind == "barrier":
            self.line(s.depth, "workgroupBarrier();")
        else:
            assert u is not None
            self.store(s, u)

    def end(self, depth: int) -> None:
        """Close a loop; the turns of a "written" one follow each other, each with its number as a constant."""
        loop, name, start = self.open.pop()
        if loop.arg[1] != "written":
            self.line(depth, "}")
            return
        body = self.lines[start:]
        del self.lines[start:]
        for i in range(int(loop.src[0].arg)):
            self.line(depth, "{")
            self.line(depth + 1, f"const {name} = {i}i;")
            self.lines += body
            self.line(depth, "}")

    def update(self, s: Stmt, u: UOp) -> None:
        into, *parts = [self.operand(o) for o in s.src]
        lanes = self.program.width(u)
        parts = [self.widened(o, x, u.dtype, lanes) for o, x in zip(s.src[1:], parts, strict=True)]
        if len(parts) == 1:
            self.line(s.depth, self.combine(u.arg, u, into, parts[0]))
            return
        a, b = parts
        self.line(s.depth, f"{into} = fma({_bare(a)}, {_bare(b)}, {into});")

    def widened(self, o: Operand, text: str, dtype: DType, lanes: int) -> str:
        """The operand's text with `lanes` lanes."""
        return text if lanes == 1 or self.lanes_of(o) == lanes else f"{type_of(dtype, lanes)}({_bare(text)})"

    def lanes_of(self, o: Operand) -> int:
        if isinstance(o, int):
            return self.widths.get(o, 1)
        return self.program.width(o)

    def combine(self, op: Op, u: UOp, into: str, value: str) -> str:
        """Statement: `into` combined with another value of the type of `u`."""
        if op is Op.ADD:
            return f"{into} += {_bare(value)};"
        if op is Op.MUL:
            return f"{into} *= {_bare(value)};"
        template = _SPECIFIC.get((op, u.dtype.kind)) or _ANY[op]
        return f"{into} = {_on_lanes(template, self.program.width(u)).format(into, _bare(value))};"

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.SPECIAL:
            self.text[s.number] = u.arg[0]
            return
        if u.op is Op.LANES:
            self.text[s.number], rest = (self.operand(o) for o in s.src)
            if not (rest.isidentifier() or isinstance(s.src[1], UOp)):
                name = self.name("n")
                self.line(s.depth, f"let {name} = {_bare(rest)};")
                rest = name
            self.rest[s.number] = rest
            return
        if u.op is Op.LANE:
            text = self.operand(s.src[0])
            self.text[s.number] = text if self.lanes_of(s.src[0]) == 1 else f"{text}.{_COMPONENTS[u.arg]}"
            return
        text = self.load(s, u) if u.op is Op.LOAD else self.alu(u, s)
        if u.op is not Op.LOAD and (s.number in self.inline or self.is_offset(s, u)) and len(text) < _LINE:
            self.text[s.number] = text
            return
        # Not "i": one of them would be called i32.
        prefix = "x" if u.op is Op.LOAD else "c" if u.dtype.kind == "bool" else "n" if u.dtype.kind == "int" else "v"
        self.text[s.number] = name = self.name(prefix)
        if text[0] == "(" and _outer_parens(text):
            text = text[1:-1]
        self.line(s.depth, f"let {name} = {text};")

    def is_offset(self, s: Stmt, u: UOp) -> bool:
        """A name plus a constant: nothing to compute where an address is made of it."""
        if u.op is not Op.ADD or u.dtype.kind != "int" or isinstance(s.src[1], int):
            return False
        return s.src[1].op is Op.CONST and self.operand(s.src[0]).isidentifier()

    def load(self, s: Stmt, u: UOp) -> str:
        index = self.operand(s.src[1])
        gate = ""
        lanes = self.program.width(u)
        if len(s.src) == 3:
            gate = self.operand(s.src[2])
            if not gate.isidentifier():
                name = self.name("c")
                self.line(s.depth, f"let {name} = {_bare(gate)};")
                gate = name
            n = max(self.lanes_of(s.src[1]), self.lanes_of(s.src[2]))
            index = (
                f"select({type_of(dtypes.int32, n)}(), {_bare(self.widened(s.src[1], index, dtypes.int32, n))}, {gate})"
            )
        value = self.element(s, u, index, lanes)
        if u.dtype.kind == "bool" and u.src[0].op is Op.PARAM:
            value = f"({value} != {'0u' if lanes == 1 else f'vec{lanes}<u32>()'})"
        if not gate:
            return value
        if u.dtype.kind == "bool":
            return f"({self.widened(s.src[2], gate, dtypes.bool_, lanes)} & {value})"
        zero = literal(u.dtype, 0) if lanes == 1 else f"{type_of(u.dtype, lanes)}()"
        return f"select({zero}, {value}, {gate})"

    def element(self, s: Stmt, u: UOp, index: str, lanes: int) -> str:
        """What memory holds at `index`: an element, a whole vector, or elements gathered lane by lane."""
        array = self.operand(s.src[0])
        wide = self.program.wide.get(memory_of(u.src[0]), 1)
        packed = PACKED.get(memory_of(u.src[0]).dtype)
        if is_whole(u.src[1]):
            whole = f"{array}[{_bare(index)}]"
            return packed.read(whole, wide) if packed is not None else whole
        if lanes == 1:
            return self.part(s, u, index, wide)
        if not index.isidentifier():
            name = self.name("n")
            self.line(s.depth, f"let {name} = {_bare(index)};")
            index = name
        kind = "u32" if u.dtype.kind == "bool" and u.src[0].op is Op.PARAM else type_of(u.dtype)
        if u.arg is not None:
            # The other lanes of these vectors are asked for, too: they are read once.
            read = self.gathered.get(s.src[:2])
            if read is None:
                read = self.gathered[s.src[:2]] = [self.name("x") for _ in range(lanes)]
                for name, c in zip(read, _COMPONENTS):
                    whole = f"{array}[{index}.{c}]"
                    self.line(s.depth, f"let {name} = {packed.read(whole, wide) if packed is not None else whole};")
            return f"vec{lanes}<{kind}>({', '.join(f'{name}.{_COMPONENTS[u.arg]}' for name in read)})"
        parts = [self.part(s, u, f"{index}.{c}", wide) for c in _COMPONENTS[:lanes]]
        return f"vec{lanes}<{kind}>({', '.join(parts)})"

    def part(self, s: Stmt, u: UOp, index: str, wide: int) -> str:
        """One element of memory."""
        array, memory = self.operand(s.src[0]), memory_of(u.src[0])
        packed = PACKED.get(memory.dtype)
        if packed is None:
            return _component(array, _bare(index), wide)
        word, shift = packed.place(self.named(s.depth, _bare(index)))
        at = _component(array, word, packed.words(wide))
        return packed.element(f"atomicLoad(&{at})" if memory in self.program.parted else at, shift)

    def named(self, depth: int, text: str) -> str:
        """The text, or a name for it where it is more than one, or a number."""
        if text.replace(".", "").isidentifier() or text.removesuffix("i").isdigit():
            return text
        name = self.name("n")
        self.line(depth, f"let {name} = {text};")
        return name

    def store(self, s: Stmt, u: UOp) -> None:
        place, index, value = s.src[:3]
        assert isinstance(place, UOp)
        gate = s.src[3] if len(s.src) == 4 else None
        lanes = max(self.lanes_of(s.src[1]), self.lanes_of(gate) if gate is not None else 1)
        text = _bare(self.operand(value))
        if place.dtype.kind == "bool" and place.op is Op.PARAM:
            text = f"{'u32' if self.lanes_of(value) == 1 else f'vec{self.lanes_of(value)}<u32>'}({text})"
        array, wide = self.operand(place), self.program.wide.get(place, 1)
        packed = PACKED.get(place.dtype) if place.op is Op.PARAM else None
        where = _bare(self.operand(index))
        if is_whole(u.src[1]):
            given = self.widened(value, text, place.dtype, wide)
            if packed is not None:
                given = packed.written(given, wide)
            self.guarded(s.depth, f"{array}[{where}] = {given};", gate)
            return
        lane = self.rest.get(index) if isinstance(index, int) else None
        if lanes == 1 and packed is None:
            self.guarded(s.depth, f"{_component(array, where, wide, lane)} = {text};", gate)
            return
        if lanes == 1:
            assert packed is not None
            where = self.named(s.depth, where)
            self.guarded(s.depth, _put_part(packed, array, where, text), gate)
            return
        named = []
        for o, t, prefix in ((index, where, "n"), (value, text, "v"), (gate, "", "c")):
            if o is not None and self.lanes_of(o) > 1:
                t = t or _bare(self.operand(o))
                if not t.isidentifier():
                    name = self.name(prefix)
                    self.line(s.depth, f"let {name} = {t};")
                    t = name
            elif o is not None:
                t = t or _bare(self.operand(o))
            named.append((t, o is not None and self.lanes_of(o) > 1))
        for c in _COMPONENTS[:lanes]:
            at, given, test = [f"{t}.{c}" if vector else t for t, vector in named]
            if packed is not None:
                put = _put_part(packed, array, at, given)
            else:
                put = f"{_component(array, at, wide, lane)} = {given};"
            self.line(s.depth, put if gate is None else f"if ({test}) {{ {put} }}")

    def guarded(self, depth: int, text: str, gate: Operand | None) -> None:
        self.line(depth, text if gate is None else f"if ({_bare(self.operand(gate))}) {{ {text} }}")

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
                self.line(0, self.combine(u.arg, u, name, f"subgroupShuffleXor({name}, {stride * joined}u)"))
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
            size = launch.threads // joined
            self.shared.append(Shared(rooms[-1], self.type(u), size, size * self.program.width(u) * u.dtype.itemsize))
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
                    self.line(1, self.combine(u.arg, u, f"{room}[{first}]", there))
            self.line(0, "}")
            self.line(0, "workgroupBarrier();")
            left = keep
        first = self.name("first")
        self.line(0, f"let {first} = {self.first_of(joined)};")
        for room, (name, u) in zip(rooms, parts, strict=True):
            self.line(0, f"{name} = {room}[{first}];")
            for i in range(1, left):
                self.line(0, self.combine(u.arg, u, name, f"{room}[{first} + {i * stride}u]"))

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
        if args and all(isinstance(o, UOp) and o.op is Op.CONST for o in s.src):
            # All constants: behind a variable, so that no compiler works it out, and rejects it, ahead of time.
            first = s.src[0]
            assert isinstance(first, UOp)
            name = self.name("v")
            self.line(s.depth, f"var {name}: {type_of(first.dtype)} = {args[0]};")
            args[0] = name
        op, a = u.op, u.src[0]
        lanes = self.program.width(u)
        if lanes > 1 and op not in _MIXED:
            args = [self.widened(o, t, x.dtype, lanes) for o, t, x in zip(s.src, args, u.src, strict=True)]
        if op is Op.WHERE:
            return f"select({_bare(args[2])}, {_bare(args[1])}, {_bare(args[0])})"
        if op is Op.CAST:
            return _cast(a.dtype, u.dtype, args[0], lanes)
        if op is Op.BITCAST and u.dtype.bits < 32:
            bits = _bits_of(a.dtype, _bare(args[0]), lanes)
            return _packing(u.dtype).unpack(bits, lanes)
        if op is Op.BITCAST:
            return f"bitcast<{type_of(u.dtype, lanes)}>({_bare(args[0])})"
        kind = a.dtype.kind
        special = _by_constant(u, args, kind, lanes)
        if special is not None:
            return special
        template = _SPECIFIC.get((op, kind)) or _ANY.get(op)
        if template is None:
            raise CompilerError(f"no WGSL for {op.name} of {a.dtype.name}", stage="render", node=u)
        template = _on_lanes(template, lanes)
        if template.partition("(")[0].isidentifier() and "/" not in template:
            args = [_bare(a) for a in args]  # a call: its own parentheses are enough
        return template.format(*args)

    def written(self) -> Text:
        p = self.program
        bindings = {}
        for x in p.params:
            element = "u32" if x.node.dtype.kind == "bool" else type_of(x.node.dtype, p.wide.get(x.node, 1))
            packed = PACKED.get(x.node.dtype)
            if packed is not None:
                element = element_type(packed.words(p.wide.get(x.node, 1)), x.node in p.parted)
            bindings[x.slot] = (element, x.written, param_bytes(x))
        shared = []
        for t in p.tiles:
            lanes = p.wide.get(t, 1)
            size = -(-t.arg[1][0] // lanes)
            shared.append(Shared(f"tile{t.arg[0]}", type_of(t.dtype, lanes), size, size * lanes * t.dtype.itemsize))
        f16 = any(x.node.dtype is dtypes.float16 for x in p.params)
        uses = frozenset(n for n in ("wg", "lid") if n in self.text.values())
        return Text(bindings, (*shared, *self.shared), f16, uses, tuple(self.lines), p.launch)


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


def _component(array: str, index: str, wide: int, lane: str | None = None) -> str:
    """One element of an array, of vectors if `wide` is over 1; with `lane` the index counts vectors."""
    if wide == 1:
        return f"{array}[{index}]"
    if lane is None and index.removesuffix("i").isdigit():
        at = int(index.removesuffix("i"))
        index, lane = f"{at // wide}", f"{at % wide}"
    if lane is None:
        return f"{array}[({index}) >> {wide.bit_length() - 1}u][({index}) & {wide - 1}i]"
    digit = lane.removesuffix("i")
    return f"{array}[{index}].{_COMPONENTS[int(digit)]}" if digit.isdigit() else f"{array}[{index}][{lane}]"


def _on_lanes(template: str, lanes: int) -> str:
    """The template for vectors: our own functions have a name of their own there."""
    name = template.partition("(")[0]
    return template if lanes == 1 or name not in FUNCTIONS else template.replace(f"{name}(", f"{name}_x{lanes}(", 1)


def _number(dtype: DType, value: int | float, lanes: int) -> str:
    text = literal(dtype, value)
    return text if lanes == 1 else f"{type_of(dtype, lanes)}({text})"


def _cast(old: DType, new: DType, x: str, lanes: int) -> str:
    x = _bare(x)
    if new.kind == "bool":
        if old.kind == "bool":
            return x
        return (
            f"(!({x} == {_number(old, 0, lanes)}))" if old.kind == "float" else f"(({x}) != {_number(old, 0, lanes)})"
        )
    if old.kind == "float" and new.is_int:
        wide = x if old.bits == 32 else f"{type_of(dtypes.float32, lanes)}({x})"
        name = PACKED[new].name if new in PACKED else _TYPES[new]
        return f"to_{name}{'' if lanes == 1 else f'_x{lanes}'}({wide})"
    if new not in PACKED:
        return f"{type_of(new, lanes)}({x})"
    packed = PACKED[new]
    if new.is_float:
        wide = x if old is dtypes.float32 else f"{type_of(dtypes.float32, lanes)}({x})"
        return f"round_{packed.name}{'' if lanes == 1 else f'_x{lanes}'}({wide})"
    return packed.unpack(packed.pack(f"{type_of(new, lanes)}({x})", lanes), lanes)


_F16_BITS = Packed("f16", 16)


def _packing(dtype: DType) -> Packed:
    return PACKED.get(dtype, _F16_BITS)


def _bits_of(dtype: DType, x: str, lanes: int) -> str:
    """The bits of a value of a dtype narrower than a word, in a u32."""
    return _packing(dtype).pack(x, lanes)


def _put_part(packed: Packed, array: str, index: str, value: str) -> str:
    """Statements that write one element of a word, whose others may be written by other threads meanwhile."""
    word, shift = packed.place(index)
    at = f"&{array}[{word}]"
    return f"atomicAnd({at}, ~({packed.mask} << {shift})); atomicOr({at}, {packed.pack(_bare(value))} << {shift});"


def _by_constant(u: UOp, args: list[str], kind: str, lanes: int) -> str | None:
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

    def places(n: int) -> str:
        return _number(dtypes.uint32, n, lanes)

    if op in (Op.SHL, Op.SHR):
        sign = "<<" if op is Op.SHL else ">>"
        return f"({args[0]} {sign} {places(c)})" if 0 <= c < 32 else None
    if op not in (Op.IDIV, Op.MOD) or c <= 0:
        return None
    if c & (c - 1) == 0:
        # Two's complement: a shift rounds down, and a mask is never negative.
        if op is Op.IDIV:
            return f"({args[0]} >> {places(c.bit_length() - 1)})"
        return f"({args[0]} & {_number(u.dtype, c - 1, lanes)})"
    sign = "/" if op is Op.IDIV else "%"
    if kind == "uint":
        return f"({args[0]} {sign} {places(c)})"
    if a.vmin is not None and a.vmin >= 0:
        whole, unsigned = type_of(dtypes.int32, lanes), type_of(dtypes.uint32, lanes)
        return f"{whole}({unsigned}({_bare(args[0])}) {sign} {places(c)})"
    return None


def write(program: LinearProgram, target: Target) -> Text:
    """The statements of `program` as WGSL."""
    return _Writer(program, target).run()
