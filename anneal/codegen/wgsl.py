"""The body of a WGSL kernel from a linear program: its statements, and the accesses to memory.

Names count up in statement order, so equal kernels give equal text in every process. A value used once is written where
it is used. Bools are stored as u32, in workgroup memory too: NVIDIA's compiler (580.159) gets arrays of bool wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from anneal.codegen.expressions import (
    COMPONENTS,
    bare,
    bits_of,
    by_constant,
    cast,
    component,
    literal,
    on_lanes,
    outer_parens,
    packing,
    put_part,
    stored_type,
    template_of,
    type_of,
    unseen,
)
from anneal.codegen.fragments import Fragment, fragment, is_fragment, is_product, result_type
from anneal.codegen.lanes import is_whole, memory_of
from anneal.codegen.linear import LinearProgram, Operand, Stmt
from anneal.codegen.modules import Shared, Text, variable_name
from anneal.codegen.packed import PACKED, element_type
from anneal.codegen.segments import param_bytes
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.rewrite import Watch
from anneal.uop import DType, Op, UOp, dtypes

__all__ = ["Written", "write", "writing"]

_READ_AT_ONCE = 8  # partial results that one thread combines between two barriers
_MIXED = frozenset((Op.ADD, Op.SUB, Op.MUL))  # WGSL takes a vector and a scalar
# Of a zero that it sees a compiler may make a zero (x * 0.0), a negation (0.0 - x), or anything (x / 0.0).
_BY_ZERO = frozenset((Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.IDIV, Op.MOD, Op.POW))
# x - x and x / x are no 0 and no 1 where x is infinite or nan.
_OF_ITSELF = frozenset((Op.SUB, Op.DIV))
_LINE = 110  # characters of an expression before it gets a name of its own


def _is_zeros(u: UOp) -> bool:
    """True if it chooses between 0.0 and -0.0, which a compiler may take for equal."""
    if u.op is not Op.WHERE or not u.dtype.is_float:
        return False
    return all(x.op is Op.CONST and x.arg == 0 for x in u.src[1:])


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
        if o.op is Op.VARIABLE:
            return variable_name(o.arg[0])
        if o.op is Op.RANGE:
            n = int(o.src[0].arg)
            return f"vec{n}<i32>({', '.join(f'{i}i' for i in range(n))})"
        return literal(o.dtype, o.arg)

    def hidden(self, o: Operand, bits: str = "zero_bits") -> str:
        """The operand, with a constant that invites shortcuts so written that no compiler sees it."""
        if isinstance(o, UOp) and o.op is Op.CONST:
            return literal(o.dtype, o.arg, bits)
        return self.operand(o)

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
            self.line(s.depth, f"if (!({bare(test)})) {{ return; }}")
        elif s.kind == "acc":
            assert u is not None
            self.text[s.number] = name = self.name("acc")
            if is_product(u):
                self.line(s.depth, f"var {name}: {result_type(u)};")
                return
            first = self.operand(s.src[0])
            lanes = self.program.width(u)
            if lanes > 1 and isinstance(s.src[0], UOp):
                first = f"{type_of(u.dtype, lanes)}({first})"
            self.line(s.depth, f"var {name}: {self.type(u)} = {bare(first)};")
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
            value = self.splat(s.src[1], self.operand(s.src[1]), u.dtype, self.program.width(u))
            self.line(s.depth, f"{self.operand(s.src[0])} = {bare(value)};")
        elif s.kind == "barrier":
            self.line(s.depth, "workgroupBarrier();")
        else:
            assert u is not None
            self.store(s, u)

    def end(self, depth: int) -> None:
        """Close a loop; the iterations of a "written" one follow each other, each with its number as a constant."""
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
        into, *parts = [self.hidden(o) for o in s.src]
        if is_product(u):
            self.line(s.depth, f"{into} = subgroupMatrixMultiplyAccumulate({', '.join(parts)}, {into});")
            return
        lanes = self.program.width(u)
        parts = [self.splat(o, x, u.dtype, lanes) for o, x in zip(s.src[1:], parts, strict=True)]
        if len(parts) == 1:
            self.line(s.depth, self.combine(u.arg, u, into, parts[0]))
            return
        a, b = parts
        self.line(s.depth, f"{into} = fma({bare(a)}, {bare(b)}, {into});")

    def splat(self, o: Operand, text: str, dtype: DType, lanes: int) -> str:
        """The operand's text with `lanes` lanes: a scalar is repeated in all of them."""
        return text if lanes == 1 or self.lanes_of(o) == lanes else f"{type_of(dtype, lanes)}({bare(text)})"

    def lanes_of(self, o: Operand) -> int:
        if isinstance(o, int):
            return self.widths.get(o, 1)
        return self.program.width(o)

    def combine(self, op: Op, u: UOp, into: str, value: str) -> str:
        """Statement: `into` combined with another value of the type of `u`."""
        if op is Op.ADD:
            return f"{into} += {bare(value)};"
        if op is Op.MUL:
            return f"{into} *= {bare(value)};"
        template = template_of(op, u.dtype)
        assert template is not None
        return f"{into} = {on_lanes(template, self.program.width(u)).format(into, bare(value))};"

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.SPECIAL:
            self.text[s.number] = u.arg[0]
            return
        if u.op is Op.LANES:
            self.text[s.number], rest = (self.operand(o) for o in s.src)
            if not (rest.isidentifier() or isinstance(s.src[1], UOp)):
                name = self.name("n")
                self.line(s.depth, f"let {name} = {bare(rest)};")
                rest = name
            self.rest[s.number] = rest
            return
        if u.op is Op.LANE:
            text = self.operand(s.src[0])
            self.text[s.number] = text if self.lanes_of(s.src[0]) == 1 else f"{text}.{COMPONENTS[u.arg]}"
            return
        text = self.load(s, u) if u.op is Op.LOAD else self.alu(u, s)
        if u.op is not Op.LOAD and (s.number in self.inline or self.is_offset(s, u)) and len(text) < _LINE:
            self.text[s.number] = text
            return
        # Not "i": one of them would be called i32.
        prefix = "x" if u.op is Op.LOAD else "c" if u.dtype.kind == "bool" else "n" if u.dtype.kind == "int" else "v"
        self.text[s.number] = name = self.name(prefix)
        if text[0] == "(" and outer_parens(text):
            text = text[1:-1]
        self.line(s.depth, f"let {name} = {text};")

    def is_offset(self, s: Stmt, u: UOp) -> bool:
        """A name plus a constant: nothing to compute where an address is made of it."""
        if u.op is not Op.ADD or u.dtype.kind != "int" or isinstance(s.src[1], int):
            return False
        return s.src[1].op is Op.CONST and self.operand(s.src[0]).isidentifier()

    def matrix(self, s: Stmt, index: UOp) -> tuple[Fragment, str, str]:
        """The matrix at `index`, the arguments that say where it begins, and those that say how it lies there."""
        found = fragment(index)
        first = f"&{self.operand(s.src[0])}, u32({bare(self.operand(s.src[1]))})"
        return found, first, f"{str(found.is_transposed).lower()}, {found.stride}u"

    def load(self, s: Stmt, u: UOp) -> str:
        if is_fragment(u.src[1]):
            found, first, lies = self.matrix(s, u.src[1])
            return f"subgroupMatrixLoad<{found.type}>({first}, {lies})"
        index = self.operand(s.src[1])
        predicate = ""
        lanes = self.program.width(u)
        if len(s.src) == 3:
            predicate = self.operand(s.src[2])
            if not predicate.isidentifier():
                name = self.name("c")
                self.line(s.depth, f"let {name} = {bare(predicate)};")
                predicate = name
            n = max(self.lanes_of(s.src[1]), self.lanes_of(s.src[2]))
            index = bare(self.splat(s.src[1], index, dtypes.int32, n))
            index = f"select({type_of(dtypes.int32, n)}(), {index}, {predicate})"
        value = self.element(s, u, index, lanes)
        if u.dtype.kind == "bool":
            value = f"({value} != {'0u' if lanes == 1 else f'vec{lanes}<u32>()'})"
        if not predicate:
            return value
        if u.dtype.kind == "bool":
            return f"({self.splat(s.src[2], predicate, dtypes.bool_, lanes)} & {value})"
        zero = literal(u.dtype, 0) if lanes == 1 else f"{type_of(u.dtype, lanes)}()"
        return f"select({zero}, {value}, {predicate})"

    def element(self, s: Stmt, u: UOp, index: str, lanes: int) -> str:
        """The value of memory at `index`: an element, a whole vector, or elements gathered lane by lane."""
        array = self.operand(s.src[0])
        wide = self.program.wide.get(memory_of(u.src[0]), 1)
        packed = PACKED.get(memory_of(u.src[0]).dtype)
        if is_whole(u.src[1]):
            whole = f"{array}[{bare(index)}]"
            return packed.read(whole, wide) if packed is not None else whole
        if lanes == 1:
            return self.part(s, u, index, wide)
        if not index.isidentifier():
            name = self.name("n")
            self.line(s.depth, f"let {name} = {bare(index)};")
            index = name
        kind = stored_type(u.dtype)
        if u.arg is not None:
            # The other lanes of these vectors are asked for, too: they are read once.
            read = self.gathered.get(s.src[:2])
            if read is None:
                read = self.gathered[s.src[:2]] = [self.name("x") for _ in range(lanes)]
                for name, c in zip(read, COMPONENTS):
                    whole = f"{array}[{index}.{c}]"
                    self.line(s.depth, f"let {name} = {packed.read(whole, wide) if packed is not None else whole};")
            return f"vec{lanes}<{kind}>({', '.join(f'{name}.{COMPONENTS[u.arg]}' for name in read)})"
        parts = [self.part(s, u, f"{index}.{c}", wide) for c in COMPONENTS[:lanes]]
        return f"vec{lanes}<{kind}>({', '.join(parts)})"

    def part(self, s: Stmt, u: UOp, index: str, wide: int) -> str:
        """An element of memory, as text."""
        array, memory = self.operand(s.src[0]), memory_of(u.src[0])
        packed = PACKED.get(memory.dtype)
        if packed is None:
            return component(array, bare(index), wide)
        word, shift = packed.place(self.named(s.depth, bare(index)))
        at = component(array, word, packed.words(wide))
        return packed.element(f"atomicLoad(&{at})" if memory in self.program.sub_word else at, shift)

    def named(self, depth: int, text: str) -> str:
        """The text, or a name for it where it is more than one, or a number."""
        if text.replace(".", "").isidentifier() or text.removesuffix("i").isdigit():
            return text
        name = self.name("n")
        self.line(depth, f"let {name} = {text};")
        return name

    def store(self, s: Stmt, u: UOp) -> None:
        if is_fragment(u.src[1]):
            _, first, lies = self.matrix(s, u.src[1])
            self.line(s.depth, f"subgroupMatrixStore({first}, {self.operand(s.src[2])}, {lies});")
            return
        place, index, value = s.src[:3]
        assert isinstance(place, UOp)
        predicate = s.src[3] if len(s.src) == 4 else None
        lanes = max(self.lanes_of(s.src[1]), self.lanes_of(predicate) if predicate is not None else 1)
        text = bare(self.operand(value))
        if place.dtype.kind == "bool":
            text = f"{'u32' if self.lanes_of(value) == 1 else f'vec{self.lanes_of(value)}<u32>'}({text})"
        elif place.dtype is dtypes.float16 and u.src[2].dtype is dtypes.float32:
            text = f"{type_of(dtypes.float16, self.lanes_of(value))}({text})"  # memory rounds
        array, wide = self.operand(place), self.program.wide.get(place, 1)
        packed = PACKED.get(place.dtype) if place.op is Op.PARAM else None
        where = bare(self.operand(index))
        if is_whole(u.src[1]):
            given = self.splat(value, text, place.dtype, wide)
            if packed is not None:
                given = packed.written(given, wide)
            self.guarded(s.depth, f"{array}[{where}] = {given};", predicate)
            return
        lane = self.rest.get(index) if isinstance(index, int) else None
        if lanes == 1 and packed is None:
            self.guarded(s.depth, f"{component(array, where, wide, lane)} = {text};", predicate)
            return
        if lanes == 1:
            assert packed is not None
            where = self.named(s.depth, where)
            self.guarded(s.depth, put_part(packed, array, where, text), predicate)
            return
        named = []
        for o, t, prefix in ((index, where, "n"), (value, text, "v"), (predicate, "", "c")):
            if o is not None and self.lanes_of(o) > 1:
                t = t or bare(self.operand(o))
                if not t.isidentifier():
                    name = self.name(prefix)
                    self.line(s.depth, f"let {name} = {t};")
                    t = name
            elif o is not None:
                t = t or bare(self.operand(o))
            named.append((t, o is not None and self.lanes_of(o) > 1))
        for c in COMPONENTS[:lanes]:
            at, given, test = [f"{t}.{c}" if vector else t for t, vector in named]
            if packed is not None:
                put = put_part(packed, array, at, given)
            else:
                put = f"{component(array, at, wide, lane)} = {given};"
            self.line(s.depth, put if predicate is None else f"if ({test}) {{ {put} }}")

    def guarded(self, depth: int, text: str, predicate: Operand | None) -> None:
        self.line(depth, text if predicate is None else f"if ({bare(self.operand(predicate))}) {{ {text} }}")

    def share(self, stmts: Sequence[Stmt]) -> None:
        """Combine partial results, first within subgroups, then in workgroup memory; every thread gets the total."""
        launch = self.program.launch
        stride, group = launch.group_stride, launch.group
        parts = []
        for s in stmts:
            assert s.node is not None
            self.text[s.number] = name = self.name("total")
            parts.append((name, s.node))
            self.line(0, f"var {name} = {bare(self.operand(s.src[0]))};")
        joined = 1  # neighbouring lanes of a group that hold the same combined value by now
        short = all(u.dtype.bits <= 32 for _, u in parts)  # not every subgroup exchanges 64 bits
        while short and joined < group and stride * joined < self.target.subgroup and stride & (stride - 1) == 0:
            for name, u in parts:
                self.line(0, self.combine(u.arg, u, name, f"subgroupShuffleXor({name}, {stride * joined}u)"))
            joined *= 2
        if joined < group:
            self.share_in_memory(parts, joined)

    def share_in_memory(self, parts: list[tuple[str, UOp]], joined: int) -> None:
        """Combine values in shared memory: one of `joined` lanes writes; while many are left an eighth of the threads
        takes in the others; all read.
        """
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
        self.line(0, f"let {lane} = {bare(at) if whole else f'{at} % {launch.group}u'};")
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
        """The index of a group's first partial result."""
        launch = self.program.launch
        stride = launch.group_stride
        if launch.group * stride == launch.threads:
            return "0u" if stride == 1 else f"local_id % {stride}u"
        start = f"local_id / {launch.group * stride}u * {launch.group // joined * stride}u"
        return start if stride == 1 else f"{start} + local_id % {stride}u"

    # -- expressions

    def alu(self, u: UOp, s: Stmt) -> str:
        constants = bool(s.src) and all(isinstance(o, UOp) and o.op is Op.CONST for o in s.src)
        args = [self.hidden(o) if constants or u.op in _BY_ZERO or _is_zeros(u) else self.operand(o) for o in s.src]
        if constants:
            # unlike bits: of two alike a compiler would know that they are equal
            args[1:] = [self.hidden(o, "(zero_bits << 1u)") for o in s.src[1:]]
            # All constants: behind a variable, so that no compiler works it out, and rejects it, ahead of time.
            first = s.src[0]
            assert isinstance(first, UOp)
            name = self.name("v")
            self.line(s.depth, f"var {name}: {type_of(first.dtype)} = {args[0]};")
            args[0] = name
        op, a = u.op, u.src[0]
        lanes = self.program.width(u)
        if lanes > 1 and op not in _MIXED:
            args = [self.splat(o, t, x.dtype, lanes) for o, t, x in zip(s.src, args, u.src, strict=True)]
        if op is Op.WHERE:
            return f"select({bare(args[2])}, {bare(args[1])}, {bare(args[0])})"
        if op is Op.CAST:
            return cast(a.dtype, u.dtype, args[0], lanes)
        if op is Op.BITCAST and u.dtype.bits < 32:
            bits = bits_of(a.dtype, bare(args[0]), lanes)
            return packing(u.dtype).unpack(bits, lanes)
        if op is Op.BITCAST:
            return f"bitcast<{type_of(u.dtype, lanes)}>({bare(args[0])})"
        kind = a.dtype.kind
        if op in (Op.MAX, Op.MIN) and kind == "float" and a.op is Op.CONST:
            # Of a comparison with a constant first NVIDIA's compiler (580.159) makes a maximum, which drops nan.
            args.reverse()
        if op in _OF_ITSELF and kind == "float" and args[0] == args[1]:
            args[1] = unseen(a.dtype, args[1], lanes)
        special = by_constant(u, args, kind, lanes)
        if special is not None:
            return special
        template = template_of(op, a.dtype)
        if template is None:
            raise CompilerError(f"no WGSL for {op.name} of {a.dtype.name}", stage="render", node=u)
        template = on_lanes(template, lanes)
        if template.partition("(")[0].isidentifier() and "/" not in template:
            args = [bare(a) for a in args]  # a call: its own parentheses are enough
        return template.format(*args)

    def written(self) -> Text:
        p = self.program
        bindings = {}
        for x in p.params:
            element = stored_type(x.node.dtype, p.wide.get(x.node, 1))
            packed = PACKED.get(x.node.dtype)
            if packed is not None:
                element = element_type(packed.words(p.wide.get(x.node, 1)), x.node in p.sub_word)
            bindings[x.slot] = (element, x.written, param_bytes(x))
        shared = []
        for t in p.tiles:
            lanes = p.wide.get(t, 1)
            size = -(-t.arg[1][0] // lanes)
            element = stored_type(t.dtype, lanes)
            shared.append(Shared(f"tile{t.arg[0]}", element, size, size * lanes * t.dtype.device_itemsize))
        f16 = any(x.node.dtype is dtypes.float16 for x in p.params)
        uses = frozenset(n for n in ("wg", "lid") if n in self.text.values())
        names = tuple([v.arg[0] for v in p.variables])
        return Text(bindings, (*shared, *self.shared), f16, uses, tuple(self.lines), p.launch, names)


def write(program: LinearProgram, target: Target) -> Text:
    """The statements of `program` as WGSL."""
    if _WRITTEN.found is None:
        return _Writer(program, target).run()
    teller = _Teller(program, target)
    text = teller.run()
    said = tuple([line.said if isinstance(line, _Line) else () for line in teller.lines])
    _WRITTEN.found.append(Written(text, said))
    return text


# -- which line says what ---------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """A text, and for each of its lines the statements that it says: those written inside of another one first."""

    text: Text
    said: tuple[tuple[Stmt, ...], ...]


_WRITTEN = Watch[Written]()


def writing() -> AbstractContextManager[list[Written]]:
    """A block that records every text written within it, with the statements of its lines."""
    return _WRITTEN.listening()


class _Line(str):
    """A line that knows its statements."""

    said: tuple[Stmt, ...] = ()


class _Teller(_Writer):
    """A writer that notes for each line which statements it says."""

    def __init__(self, program: LinearProgram, target: Target) -> None:
        super().__init__(program, target)
        self.said: tuple[Stmt, ...] = ()
        self.inlined: dict[int, tuple[Stmt, ...]] = {}  # by the number of a statement that got no line of its own

    def line(self, depth: int, text: str) -> None:
        super().line(depth, text)
        line = self.lines[-1] = _Line(self.lines[-1])
        line.said = self.said

    def statement(self, s: Stmt) -> None:
        self.said, before = self.with_inlined((s,)), len(self.lines)
        super().statement(s)
        if s.kind == "let" and len(self.lines) == before:
            self.inlined[s.number] = self.said

    def share(self, stmts: Sequence[Stmt]) -> None:
        self.said = self.with_inlined(stmts)
        super().share(stmts)

    def with_inlined(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        inside = [x for s in stmts for o in s.src if isinstance(o, int) for x in self.inlined.get(o, ())]
        return tuple(dict.fromkeys([*inside, *stmts]))
