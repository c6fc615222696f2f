"""A dialect is a language that kernels are printed in: a value, with what all dialects have in common around it.

Names count up in statement order, so equal kernels give equal text in every process. A value used once is written where
it is used.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from anneal.codegen.hardware import LaunchConfig
from anneal.codegen.linear import LinearProgram, Operand, Stmt
from anneal.codegen.opts import Opts
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.frozen import frozen
from anneal.uop import ALU, DType, Ints, Op, UOp, covering, dtypes

# Ops that WGSL and C write alike, on values of any dtype: those with an infix sign, except `//` and `%`, which round as
# Python's, `**`, and shifts, which have bounds.
_SIGNED = ALU - {Op.IDIV, Op.MOD, Op.POW, Op.SHL, Op.SHR}
ARITHMETIC = {Op.NEG: "(-{0})"} | {op: f"({{0}} {op.sign} {{1}})" for op in _SIGNED if op.sign}
_BINDING = re.compile(r"\bp(\d+)(?=\b|_)")
_LINE = 110  # characters of an expression before it gets a name of its own


@frozen
class Dialect:
    """A language that kernels are printed in.

    `lines` is the text of each kind of line, with names in braces: "let" and "var" declare {name}, of {type}, as
    {value}; "for" counts {name} up to {end}; "number" declares an iteration that is written out; "guard" leaves a
    thread whose {test} fails; "fma" adds {a} * {b} {into} a variable of {type}; "barrier" waits for other threads.
    `text_of` gives the text of an op on values of a dtype with so many lanes, 1 if none are said, `type_of` that of the
    dtype, `literal` that of a constant; `choose` the opts of a kernel; `writer` what prints a program, and `module` the
    text around programs: head, bindings, workgroup memory, functions.
    """

    name: str
    lines: Mapping[str, str]
    text_of: Callable[..., str | None]
    type_of: Callable[[DType, int], str]
    literal: Callable[[DType, Any], str]
    choose: Callable[[UOp, Target], Opts]
    writer: Callable[[Dialect, LinearProgram, Target], Writer]
    module: Callable[[Sequence[Text], Target], str]

    def __post_init__(self) -> None:
        said = [op for op in ALU if self.text_of(op, dtypes.float32) or self.text_of(op, dtypes.int32)]
        asked = [op for op in ALU if op.composed is None and op not in (Op.CAST, Op.BITCAST)]
        covering(f"the text of ops in {self.name}", dict.fromkeys(said), asked)

    def write(self, program: LinearProgram, target: Target) -> Text:
        """The statements of `program` as text."""
        return self.writer(self, program, target).run()


class Shared(NamedTuple):
    """An array in workgroup memory."""

    name: str
    element: str
    length: int
    nbytes: int

    @property
    def merged_name(self) -> str:
        """The array's name in a module of several programs."""
        return self.name + "".join(filter(str.isalnum, self.element))


Bindings = dict[int, tuple[str, bool, int]]  # by slot: element type, whether it is written, bytes


class Text(NamedTuple):
    """A program's statements as text, and what they need around them."""

    bindings: Bindings
    shared: tuple[Shared, ...]
    lines: tuple[str, ...]
    launch: LaunchConfig
    variables: tuple[str, ...] = ()  # names, as they follow each other in the binding after the last
    sources: Ints = ()  # of each line: the number of the statement that it was written for

    def uses(self, index: str) -> bool:
        """True if a line names the hardware index."""
        return any(re.search(rf"\b{index}\b", line) for line in self.lines)

    @property
    def shared_bytes(self) -> int:
        return sum(x.nbytes for x in self.shared)

    @property
    def synchronises(self) -> bool:
        """True if its threads wait for each other."""
        return bool(self.shared) or self.launch.group > 1

    def bound(self, slots: Sequence[int]) -> Text:
        """The text with other bindings: `slots[n]` in the place of n."""
        lines = tuple([_BINDING.sub(lambda m: f"p{slots[int(m[1])]}", line) for line in self.lines])
        return self._replace(bindings={slots[n]: b for n, b in self.bindings.items()}, lines=lines)


def in_text(texts: Sequence[Text]) -> list[Text]:
    """Several programs as a merged module has them: those with barriers first, where no thread has left yet.

    Shaders ask for barriers in uniform control flow, and a thread may leave a program that has none. A chain of
    else-ifs would do as well, but for drivers that lose count of hundreds of them (llvmpipe of more than 80).
    """
    return sorted(texts, key=lambda t: not t.synchronises)


def merged(texts: Sequence[Text]) -> Text:
    """The parts that several programs need around them: the bindings of all, the names of variables as they follow each
    other in the last one, and workgroup memory for any one program, the largest array of each name and type."""
    bindings: Bindings = {}
    largest: dict[str, Shared] = {}
    for t in texts:
        for slot, (element, written, nbytes) in t.bindings.items():
            bindings[slot] = element, written or (slot in bindings and bindings[slot][1]), nbytes
        for x in t.shared:
            if x.merged_name not in largest or largest[x.merged_name].length < x.length:
                largest[x.merged_name] = x._replace(name=x.merged_name)
    variables = tuple(sorted({n for t in texts for n in t.variables}))
    return Text(bindings, tuple(largest.values()), (), texts[0].launch, variables)


def outer_parens(text: str) -> bool:
    depth = 0
    for i, ch in enumerate(text):
        if ch == "(":
            depth += 1
        elif ch == ")":
            depth -= 1
            if depth == 0:
                return i == len(text) - 1
    return False


def bare(text: str) -> str:
    return text[1:-1] if text[0] == "(" and outer_parens(text) else text


def is_from(least: int, u: UOp) -> bool:
    """True for a number that is never below `least`: what divides such numbers rounds down as floor division does."""
    return u.vmin is not None and u.vmin >= least


def variable_name(name: str) -> str:
    """The name of a variable of a symbolic size."""
    return "v_" + "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)


class Writer:
    """Prints one program; a dialect's own writer has the accesses to memory, and what is special about its ops."""

    numbered: Callable[[int], str]  # the text of a vector of lane numbers
    alu: Callable[[Stmt, UOp], str]  # the value of an op
    load: Callable[[Stmt, UOp], str]  # the value of memory
    store: Callable[[Stmt, UOp], None]
    stored: Callable[[UOp], str]  # the type of an element of memory

    def __init__(self, dialect: Dialect, program: LinearProgram, target: Target) -> None:
        self.dialect, self.program, self.target = dialect, program, target
        self.text: dict[int, str] = {}
        self.rest: dict[int, str] = {}  # of an index counted in vectors: the lane
        self.lines: list[str] = []
        self.sources: list[int] = []  # of each line: the number of its statement, of several that are shared the first
        self.current = 0  # that of the statement which is written
        self.shared: list[Shared] = []
        self.counters: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self.open: list[tuple[UOp, str, int]] = []  # loops: the range, its variable, its first line
        self.inline = self._used_once()
        self.is_typed = "{type}" in dialect.lines["let"]
        self.made = {s.number: (s.node, s.src) for s in program.stmts if s.node is not None}

    def _used_once(self) -> set[int]:
        """Statements whose value is used once, in the block that makes it."""
        depth = {s.number: s.depth for s in self.program.stmts}
        read = [(o, s) for s in self.program.stmts for o in s.src if isinstance(o, int)]
        uses = Counter([o for o, _ in read])
        return {o for o, s in read if uses[o] == 1 and depth[o] == s.depth and s.kind not in ("for", "share")}

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self.counters[prefix])}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * (depth + 1) + text)
        self.sources.append(self.current)

    def put(self, depth: int, kind: str, **texts: str) -> None:
        """A line of a kind that the dialect has the text of."""
        self.line(depth, self.dialect.lines[kind].format(**texts))

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
            return self.numbered(int(o.src[0].arg))
        return self.dialect.literal(o.dtype, o.arg)

    def hidden(self, o: Operand) -> str:
        """The operand where a compiler might take shortcuts with a constant that it sees."""
        return self.operand(o)

    def type(self, u: UOp) -> str:
        return self.dialect.type_of(u.dtype, self.program.width(u))

    def lanes_of(self, o: Operand) -> int:
        return self.program.width(self.made[o][0] if isinstance(o, int) else o)

    def splat(self, o: Operand, text: str, dtype: DType, lanes: int) -> str:
        """The operand's text with `lanes` lanes: a scalar is repeated in all of them."""
        if lanes == 1 or self.lanes_of(o) == lanes:
            return text
        return f"{self.dialect.type_of(dtype, lanes)}({bare(text)})"

    def wide(self, o: Operand, dtype: DType, lanes: int) -> str:
        """The operand, of a dtype, in so many lanes."""
        return self.splat(o, self.operand(o), dtype, lanes)

    # -- statements

    def run(self) -> Text:
        stmts = self.program.stmts
        i = 0
        while i < len(stmts):
            self.current, j = i, i + 1
            if stmts[i].kind == "share":
                while j < len(stmts) and stmts[j].kind == "share":
                    j += 1
                self.share(stmts[i:j])
            else:
                self.statement(stmts[i])
            i = j
        return self.written()

    def statement(self, s: Stmt) -> None:
        u = s.node
        if s.kind == "end":
            self.end(s.depth)
        elif s.kind == "guard":
            self.put(s.depth, "guard", test=bare(" & ".join(self.operand(o) for o in s.src)))
        elif s.kind == "barrier":
            self.put(s.depth, "barrier")
        elif u is None:
            raise AssertionError(s)
        elif s.kind == "let":
            self.let(s, u)
        elif s.kind == "acc":
            self.accumulator(s, u)
        elif s.kind == "for":
            self.text[s.number] = name = self.name("k")
            self.open.append((u, name, len(self.lines)))
            if u.arg[1] != "written":
                self.put(s.depth, "for", name=name, end=self.operand(s.src[0]))
        elif s.kind == "update":
            self.update(s, u)
        elif s.kind == "set":
            value = self.wide(s.src[1], u.dtype, self.program.width(u))
            self.line(s.depth, f"{self.operand(s.src[0])} = {bare(value)};")
        else:
            self.store(s, u)

    def end(self, depth: int) -> None:
        """Close a loop; the iterations of a "written" one follow each other, each with its number as a constant."""
        loop, name, start = self.open.pop()
        if loop.arg[1] != "written":
            self.line(depth, "}")
            return
        body, sources = self.lines[start:], self.sources[start:]
        del self.lines[start:], self.sources[start:]
        for i in range(int(loop.src[0].arg)):
            self.line(depth, "{")
            self.put(depth + 1, "number", name=name, value=str(i))
            self.lines += body
            self.sources += sources
            self.line(depth, "}")

    def accumulator(self, s: Stmt, u: UOp) -> None:
        self.text[s.number] = name = self.name("acc")
        first = self.operand(s.src[0])
        lanes = self.program.width(u)
        if isinstance(s.src[0], UOp):
            first = self.splat(s.src[0], first, u.dtype, lanes)
        self.put(s.depth, "var", name=name, type=self.type(u), value=bare(first))

    def update(self, s: Stmt, u: UOp) -> None:
        lanes = self.program.width(u)
        into = self.operand(s.src[0])
        parts = [self.splat(o, self.hidden(o), u.dtype, lanes) for o in s.src[1:]]
        if len(parts) == 1:
            self.line(s.depth, self.combine(u.arg, u, into, parts[0]))
        else:
            self.put(s.depth, "fma", into=into, a=bare(parts[0]), b=bare(parts[1]), type=self.type(u))

    def combine(self, op: Op, u: UOp, into: str, value: str) -> str:
        """Statement: `into` combined with another value of the type of `u`."""
        if op in (Op.ADD, Op.MUL):
            return f"{into} {op.sign}= {bare(value)};"
        return f"{into} = {self.template(op, u.dtype, u).format(into, bare(value))};"

    def let(self, s: Stmt, u: UOp) -> None:
        if u.op is Op.SPECIAL:
            self.text[s.number] = u.arg[0]
            return
        text = self.load(s, u) if u.op is Op.LOAD else self.alu(s, u)
        if u.op is not Op.LOAD and (s.number in self.inline or self.is_offset(s, u)) and len(text) < _LINE:
            self.text[s.number] = text
            return
        # Not "i": one of them would be called i32.
        prefix = "x" if u.op is Op.LOAD else "c" if u.dtype.kind == "bool" else "n" if u.dtype.kind == "int" else "v"
        self.text[s.number] = name = self.name(prefix)
        self.put(s.depth, "let", name=name, type=self.type(u) if self.is_typed else "", value=bare(text))

    def is_offset(self, s: Stmt, u: UOp) -> bool:
        """A name plus a constant: nothing to compute where an address is made of it."""
        if u.op is not Op.ADD or u.dtype.kind != "int" or isinstance(s.src[1], int):
            return False
        return s.src[1].is_const and self.operand(s.src[0]).isidentifier()

    def guarded(self, depth: int, text: str, test: str) -> None:
        self.line(depth, f"if ({bare(test)}) {{ {text} }}" if test else text)

    # -- expressions

    def template(self, op: Op, dtype: DType, u: UOp) -> str:
        """The text of `op` on values of `dtype`, for a result like `u`."""
        found = self.dialect.text_of(op, dtype, self.program.width(u))
        if found is None:
            raise CompilerError(f"no {self.dialect.name} for {op.name} of {dtype.name}", stage="render", node=u)
        return found

    def applied(self, u: UOp, args: Sequence[str]) -> str:
        """The op of `u` on operands that have texts."""
        template = self.template(u.op, u.src[-1].dtype, u)  # the first source of a choice is its condition
        if template.partition("(")[0].isidentifier() and "/" not in template:
            args = [bare(a) for a in args]  # in a call its own parentheses are enough
        return template.format(*args)

    def share(self, stmts: Sequence[Stmt]) -> None:
        """Combine partial results of a group's threads."""
        raise CompilerError(f"no {self.dialect.name} for threads that share a reduce", stage="render")

    def written(self) -> Text:
        p = self.program
        bindings = {x.slot: (self.stored(x.node), x.written, x.nbytes) for x in p.params}
        shared = []
        for t in p.tiles:
            lanes = p.wide.get(t, 1)
            size = -(-t.arg[1][0] // lanes)
            shared.append(Shared(self.operand(t), self.stored(t), size, size * lanes * t.dtype.device_itemsize))
        names = tuple([v.arg[0] for v in p.variables])
        return Text(bindings, (*shared, *self.shared), tuple(self.lines), p.launch, names, tuple(self.sources))
