"""The body of a WGSL kernel: vectors, accesses to memory, subgroups, and what drivers must not see.

Bools are stored as u32, in workgroup memory too: NVIDIA's compiler (580.159) gets arrays of bool wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from anneal.codegen.dialects.wgsl.expressions import (  # isort: skip
    COMPONENTS, PACKED, by_constant, cast, component, literal, packing, stored_type, type_of, unseen,
)  # fmt: skip
from anneal.codegen.dialects.wgsl.modules import segments
from anneal.codegen.dialects.writer import Dialect, Shared, Writer, bare
from anneal.codegen.lanes import is_whole, memory_of
from anneal.codegen.linear import LinearProgram, Operand, Stmt
from anneal.codegen.ranges import extent, factors, is_fragment, is_product
from anneal.codegen.target import Target
from anneal.uop import Op, UOp, dtypes

_READ_AT_ONCE = 8  # partial results that one thread combines between two barriers
_MIXED = frozenset((Op.ADD, Op.SUB, Op.MUL))  # WGSL takes a vector and a scalar
# A compiler that sees a zero may fold x * 0.0 to zero and 0.0 - x to a negation, and x / 0.0 to anything.
_BY_ZERO = frozenset((Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.IDIV, Op.MOD, Op.POW))
# x - x and x / x are no 0 and no 1 where x is infinite or nan.
_OF_ITSELF = frozenset((Op.SUB, Op.DIV))
_ROLES = {("row", "depth"): "left", ("depth", "column"): "right", ("row", "column"): "result"}
LINES = {
    "let": "let {name} = {value};",
    "var": "var {name}: {type} = {value};",
    "for": "for (var {name} = 0i; {name} < {end}; {name} += 1i) {{",
    "number": "const {name} = {value}i;",
    "guard": "if (!({test})) {{ return; }}",
    "fma": "{into} = fma({a}, {b}, {into});",
    "barrier": "workgroupBarrier();",
}


def _is_zeros(u: UOp) -> bool:
    """True if a node chooses between 0.0 and -0.0, which a compiler may take for equal."""
    if u.op is not Op.WHERE or not u.dtype.is_float:
        return False
    return all(x.is_const and x.arg == 0 for x in u.src[1:])


class WgslWriter(Writer):
    def __init__(self, dialect: Dialect, program: LinearProgram, target: Target) -> None:
        super().__init__(dialect, program, target)
        self.split = {x.node for x in program.params if segments(x.nbytes, target.binding_bytes) > 1}
        self.gathered: dict[tuple[Operand, ...], list[str]] = {}  # (memory, index) -> the vectors that lanes read

    def numbered(self, lanes: int) -> str:
        return f"vec{lanes}<i32>({', '.join(f'{i}i' for i in range(lanes))})"

    def hidden(self, o: Operand, bits: str = "zero_bits") -> str:
        """The operand, with a constant that invites shortcuts so written that no compiler sees it."""
        if isinstance(o, UOp) and o.is_const:
            return literal(o.dtype, o.arg, bits)
        return self.operand(o)

    # -- statements

    def accumulator(self, s: Stmt, u: UOp) -> None:
        if is_product(u):
            left, right = factors(u.src[0])
            rows, columns = left.src[1].src[1], right.src[1].src[2]
            # explicit: drivers keep its last value in a loop
            first = f"subgroup_matrix_result<{type_of(u.dtype)}, {extent(columns)}, {extent(rows)}>()"
        elif u.op is Op.LOAD and is_fragment(u.src[1]):
            first = self.operand(s.src[0])
        else:
            super().accumulator(s, u)
            return
        self.text[s.number] = name = self.name("acc")
        self.line(s.depth, f"var {name} = {first};")

    def update(self, s: Stmt, u: UOp) -> None:
        if not is_product(u):
            super().update(s, u)
            return
        into, *parts = [self.operand(o) for o in s.src]
        self.line(s.depth, f"{into} = subgroupMatrixMultiplyAccumulate({', '.join(parts)}, {into});")

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.LANES:
            self.text[s.number], rest = (self.operand(o) for o in s.src)
            self.rest[s.number] = rest if isinstance(s.src[1], UOp) else self.called("n", s.depth, rest)
        elif u.op is Op.LANE:
            text = self.operand(s.src[0])
            self.text[s.number] = text if self.lanes_of(s.src[0]) == 1 else f"{text}.{COMPONENTS[u.arg]}"
        else:
            super().let(s, u)

    def called(self, prefix: str, depth: int, text: str) -> str:
        """A new name for a value that has none."""
        if text.isidentifier():
            return text
        name = self.name(prefix)
        self.line(depth, f"let {name} = {bare(text)};")
        return name

    def matrix(self, s: Stmt, index: UOp) -> tuple[str, str, str]:
        """The type of the matrix at `index`; the arguments that say where it begins; and those of its layout: whether
        it is column-major, and its stride.
        """
        _, rows, columns, _ = index.src
        dtype, steps = index.arg
        kind = f"{_ROLES[rows.arg[1], columns.arg[1]]}<{type_of(dtype)}, {extent(columns)}, {extent(rows)}>"
        first = f"&{self.operand(s.src[0])}, u32({bare(self.operand(s.src[1]))})"
        lies = f"false, {steps[0]}u" if steps[1] == 1 else f"true, {steps[1]}u"
        return f"subgroup_matrix_{kind}", first, lies

    def load(self, s: Stmt, u: UOp) -> str:
        if is_fragment(u.src[1]):
            kind, first, lies = self.matrix(s, u.src[1])
            return f"subgroupMatrixLoad<{kind}>({first}, {lies})"
        index = self.operand(s.src[1])
        predicate = ""
        lanes = self.program.width(u)
        if len(s.src) == 3:
            predicate = self.called("c", s.depth, self.operand(s.src[2]))
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

    def at(self, memory: UOp, index: str, lane: str = "") -> str:
        """An element of an array, or a lane of it, as text."""
        name, digit = self.operand(memory), lane.removesuffix("i")
        whole = f"{name}_at({index})" if memory in self.split else f"{name}[{index}]"
        return f"{whole}.{COMPONENTS[int(digit)]}" if digit.isdigit() else f"{whole}[{lane}]" if lane else whole

    def put_at(self, memory: UOp, index: str, lane: str, value: str) -> str:
        """The statement that stores it."""
        if memory not in self.split:
            return f"{self.at(memory, index, lane)} = {value};"
        return f"{self.operand(memory)}_put{'_lane' * bool(lane)}({', '.join(filter(None, (index, lane, value)))});"

    def atomic(self, op: str, memory: UOp, word: str, value: str = "") -> str:
        """An atomic access to a word of an array."""
        name, more = self.operand(memory), f", {value}" if value else ""
        return f"{name}_{op.lower()}({word}{more})" if memory in self.split else f"atomic{op}(&{name}[{word}]{more})"

    def element(self, s: Stmt, u: UOp, index: str, lanes: int) -> str:
        """The value of memory at `index`: an element, a whole vector, or elements gathered lane by lane."""
        memory = memory_of(u.src[0])
        wide, packed = self.program.wide.get(memory, 1), PACKED.get(memory.dtype)
        if is_whole(u.src[1]):
            whole = self.at(memory, bare(index))
            return packed.read(whole, wide) if packed is not None else whole
        if lanes == 1:
            return self.part(s, u, index, wide)
        index = self.called("n", s.depth, index)
        kind = stored_type(u.dtype)
        if u.arg is not None:
            # The other lanes of these vectors are needed, too; each vector is read once.
            read = self.gathered.get(s.src[:2])
            if read is None:
                read = self.gathered[s.src[:2]] = [self.name("x") for _ in range(lanes)]
                for name, c in zip(read, COMPONENTS):
                    whole = self.at(memory, f"{index}.{c}")
                    self.line(s.depth, f"let {name} = {packed.read(whole, wide) if packed is not None else whole};")
            return f"vec{lanes}<{kind}>({', '.join(f'{name}.{COMPONENTS[u.arg]}' for name in read)})"
        parts = [self.part(s, u, f"{index}.{c}", wide) for c in COMPONENTS[:lanes]]
        return f"vec{lanes}<{kind}>({', '.join(parts)})"

    def part(self, s: Stmt, u: UOp, index: str, wide: int) -> str:
        """An element of memory, as text."""
        memory = memory_of(u.src[0])
        packed = PACKED.get(memory.dtype)
        if packed is None:
            return self.at(memory, *component(bare(index), wide))
        word, shift = packed.place(self.named(s.depth, bare(index)))
        if memory in self.program.sub_word:
            return packed.element(self.atomic("Load", memory, word), shift)
        return packed.element(self.at(memory, *component(word, packed.words(wide))), shift)

    def named(self, depth: int, text: str) -> str:
        """The text, or a name for it where it is more than one, or a number."""
        if text.replace(".", "").isidentifier() or text.removesuffix("i").isdigit():
            return text
        return self.called("n", depth, text)

    def store(self, s: Stmt, u: UOp) -> None:
        if is_fragment(u.src[1]):
            _, first, lies = self.matrix(s, u.src[1])
            self.line(s.depth, f"subgroupMatrixStore({first}, {self.operand(s.src[2])}, {lies});")
            return
        place, index, value = s.src[:3]
        assert isinstance(place, UOp)
        predicate = s.src[3] if len(s.src) == 4 else None
        lanes = max(self.lanes_of(s.src[1]), self.lanes_of(predicate) if predicate is not None else 1)
        test = "" if predicate is None else bare(self.operand(predicate))
        text = bare(self.operand(value))
        if place.dtype.kind == "bool":
            text = f"{'u32' if self.lanes_of(value) == 1 else f'vec{self.lanes_of(value)}<u32>'}({text})"
        elif place.dtype is dtypes.float16 and u.src[2].dtype is dtypes.float32:
            text = f"{type_of(dtypes.float16, self.lanes_of(value))}({text})"  # memory rounds
        wide = self.program.wide.get(place, 1)
        packed = PACKED.get(place.dtype) if place.op is Op.PARAM else None
        where = bare(self.operand(index))
        if is_whole(u.src[1]):
            given = self.splat(value, text, place.dtype, wide)
            if packed is not None:
                given = packed.written(given, wide)
            self.guarded(s.depth, self.put_at(place, where, "", given), test)
            return
        lane = self.rest.get(index) if isinstance(index, int) else None

        def put(at: str, given: str) -> str:
            if packed is None:
                return self.put_at(place, *((at, lane) if lane else component(at, wide)), given)
            # other threads may write the rest of the word meanwhile
            word, shift = packed.place(at)
            cleared = self.atomic("And", place, word, f"~({packed.mask} << {shift})")
            return f"{cleared}; {self.atomic('Or', place, word, f'{packed.pack(bare(given))} << {shift}')};"

        if lanes == 1 and packed is not None:
            where = self.named(s.depth, where)
        named = []
        for o, t, prefix in ((index, where, "n"), (value, text, "v"), (predicate, test, "c")):
            vector = o is not None and self.lanes_of(o) > 1
            if vector:
                t = self.called(prefix, s.depth, t)
            named.append((t, vector))
        for c in COMPONENTS[:lanes]:
            at, given, test = [f"{t}.{c}" if vector else t for t, vector in named]
            self.guarded(s.depth, put(at, given), test)

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
        threads = launch.group * stride
        terms = [] if threads == launch.threads else [f"local_id / {threads}u * {threads // joined}u"]
        return " + ".join(terms + [f"local_id % {stride}u"] * (stride > 1)) or "0u"

    # -- expressions

    def alu(self, s: Stmt, u: UOp) -> str:
        constants = bool(s.src) and all(isinstance(o, UOp) and o.is_const for o in s.src)
        args = [self.hidden(o) if constants or u.op in _BY_ZERO or _is_zeros(u) else self.operand(o) for o in s.src]
        if constants:
            # unlike bits: of two alike a compiler would know that they are equal
            args[1:] = [self.hidden(o, "(zero_bits << 1u)") for o in s.src[1:]]
            # If all operands are constants, one goes through a variable: a compiler could fold the expression, and
            # reject it.
            first = s.src[0]
            assert isinstance(first, UOp)
            name = self.name("v")
            self.line(s.depth, f"var {name}: {type_of(first.dtype)} = {args[0]};")
            args[0] = name
        op, a = u.op, u.src[0]
        lanes = self.program.width(u)
        if lanes > 1 and op not in _MIXED:
            args = [self.splat(o, t, x.dtype, lanes) for o, t, x in zip(s.src, args, u.src, strict=True)]
        if op is Op.CAST:
            return cast(a.dtype, u.dtype, args[0], lanes)
        if op is Op.BITCAST and u.dtype.bits < 32:
            bits = packing(a.dtype).pack(bare(args[0]), lanes)  # in a u32
            return packing(u.dtype).unpack(bits, lanes)
        if op is Op.BITCAST:
            return f"bitcast<{type_of(u.dtype, lanes)}>({bare(args[0])})"
        kind = a.dtype.kind
        if op in (Op.MAX, Op.MIN) and kind == "float" and a.is_const:
            # NVIDIA's compiler (580.159) turns a comparison whose first operand is constant into a maximum, which drops
            # nan.
            args.reverse()
        if op in _OF_ITSELF and kind == "float" and args[0] == args[1]:
            args[1] = unseen(a.dtype, args[1], lanes)
        special = by_constant(u, args, kind, lanes)
        if special is not None:
            return special
        return self.applied(u, args)

    def stored(self, memory: UOp) -> str:
        packed = PACKED.get(memory.dtype) if memory.op is Op.PARAM else None
        wide = self.program.wide.get(memory, 1)
        if packed is None:
            return stored_type(memory.dtype, wide)
        return "atomic<u32>" if memory in self.program.sub_word else stored_type(dtypes.uint32, packed.words(wide))
