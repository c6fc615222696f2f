"""The language of `.upat` files, read: a text becomes tables of rules, a pattern a tree (README.md describes both)."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from anneal.errors import CompilerError
from anneal.uop import ALL, ALU, COMPARE, Op

KINDS = ("rewrite", "fold", "gradient", "forward")
_COMMUTES = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR, Op.EQ, Op.NE))
ONE_DTYPE = ALU - COMPARE - {Op.WHERE, Op.CAST, Op.BITCAST}  # result and sources share it
DTYPE_TESTS = {
    "int": "{}.dtype.is_int",
    "uint": "{}.dtype.kind == 'uint'",
    "float": "{}.dtype.is_float",
    "bool": "{}.dtype is dtypes.bool_",
}
_CONST_NAME = re.compile(r"c\d*$")
_ANNOTATED = re.compile(r"\b([A-Za-z_]\w*):(" + "|".join(DTYPE_TESTS) + r")\b")


# -- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A line of a rule table, as text."""

    pattern: str
    result: str
    guard: str
    comment: str
    line: int

    @property
    def text(self) -> str:
        guard = f" if {self.guard}" if self.guard else ""
        return f"{self.pattern} -> {self.result}{guard}"


@dataclass
class Table:
    """A named table: its kind, its rules in order."""

    name: str
    kind: str
    rules: list[Rule] = field(default_factory=list)


@dataclass
class File:
    """A parsed `.upat` file: the names it may call by module, tables in order."""

    uses: dict[str, set[str]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending: tuple[int, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip()
        if pending and line[:1].isspace():
            pending = (pending[0], f"{pending[1]} {line.strip()}")
            continue
        if pending:
            yield pending
        pending = None
        if not line or line.startswith("#"):
            yield number, line.strip()
        else:
            pending = (number, line)
    if pending:
        yield pending


def parse(text: str, name: str) -> File:
    """Read a `.upat` text. Raises CompilerError with file and line for what is not a rule, a table or a use line."""
    out = File()
    comment: list[str] = []
    after_rule = False
    for number, line in _logical_lines(text):
        if not line:
            comment = []
        elif line.startswith("#"):
            if after_rule:
                comment = []
            comment.append(line[1:].strip())
        elif line.startswith("use "):
            module, _, names = line[4:].partition(":")
            out.uses.setdefault(module.strip(), set()).update(re.findall(r"\w+", names.split("#")[0]))
        elif line.startswith("table "):
            words = line.split("#")[0].split()
            options = dict(w.split("=", 1) for w in words[2:])
            kind = options.pop("kind", "rewrite")
            if kind not in KINDS or options:
                raise CompilerError(f"{name}:{number}: table takes kind={'|'.join(KINDS)}: {line}")
            out.tables.append(Table(words[1], kind))
            comment = []
        else:
            pattern, arrow, rest = line.partition("->")
            if not arrow or not out.tables:
                raise CompilerError(
                    f"{name}:{number}: a rule is `pattern -> replacement [if guard]` in a table: {line}"
                )
            result, _, guard = rest.partition(" if ")
            pattern, result, guard = (" ".join(p.split()) for p in (pattern, result, guard))
            out.tables[-1].rules.append(Rule(pattern, result, guard, " ".join(comment), number))
        after_rule = bool(line) and not line.startswith("#")
    return out


# -- patterns -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """Any node, or any constant, bound to a name."""

    name: str
    dtype: str = ""

    @property
    def const(self) -> bool:
        return _CONST_NAME.match(self.name) is not None


@dataclass(frozen=True)
class Lit:
    """A constant equal to a number."""

    value: str


@dataclass(frozen=True)
class TextNode:
    """An op over sub-patterns; `arg` is the subscript's source text."""

    op: Op
    src: tuple[Var | Lit | TextNode, ...]
    arg: tuple[ast.expr, ...] | None = None


Pattern = Var | Lit | TextNode


def expression_of(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(_ANNOTATED.sub(r"(\1@\2)", text), mode="eval").body
    except SyntaxError as e:
        raise CompilerError(f"{where}: {e.msg} in `{text}`") from None


def op_named(e: ast.expr) -> Op | None:
    return ALL.get(e.id.upper()) if isinstance(e, ast.Name) and e.id == e.id.lower() else None


def call_parts(e: ast.Call) -> tuple[Op | None, tuple[ast.expr, ...] | None]:
    """(op, arg patterns) of `op(...)` or `op[arg](...)`; op is None when the name is no op."""
    if isinstance(e.func, ast.Subscript):
        index = e.func.slice
        return op_named(e.func.value), tuple(index.elts) if isinstance(index, ast.Tuple) else (index,)
    return op_named(e.func), None


def _signs_of(e: ast.expr) -> tuple[list[str], list[ast.expr]]:
    """The classes of an operation's signs, by name, and its operands."""
    parts = list(ast.iter_child_nodes(e))
    operands = [x for x in parts if isinstance(x, ast.expr)]
    return [type(x).__name__ for x in parts if x not in operands], operands


_OPERATORS = {_signs_of(ast.parse(f"a {op.sign} b", mode="eval").body)[0][0]: op for op in ALU if op.sign}
_OPERATORS |= {"USub": Op.NEG, "Invert": Op.NOT, "Not": Op.NOT, "Gt": Op.LT}


def operation_of(e: ast.expr) -> tuple[Op, list[ast.expr]] | None:
    """The op of one of Python's operators, and its operands."""
    signs, operands = _signs_of(e)
    op = _OPERATORS.get(signs[0]) if len(signs) == 1 else None
    return None if op is None else (op, operands[::-1] if signs == ["Gt"] else operands)


def is_literal(e: ast.expr) -> bool:
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        e = e.operand
    return isinstance(e, ast.Constant)


def pattern_of(e: ast.expr, where: str) -> Pattern:
    """The pattern that an expression writes (expressions in a rule are a few levels deep, so recursion is fine)."""
    if is_literal(e):
        return Lit(ast.unparse(e))
    if isinstance(e, ast.Name):
        return Var(e.id)
    if isinstance(e, ast.BinOp):
        if isinstance(e.op, ast.MatMult) and isinstance(e.left, ast.Name) and isinstance(e.right, ast.Name):
            return Var(e.left.id, e.right.id)
    if (operation := operation_of(e)) is not None:
        op, operands = operation
        return TextNode(op, tuple([pattern_of(x, where) for x in operands]))
    if isinstance(e, ast.Call):
        named, arg = call_parts(e)
        if named is not None:
            return TextNode(named, tuple([pattern_of(a, where) for a in e.args]), arg)
    raise CompilerError(f"{where}: `{ast.unparse(e)}` is no pattern")


def mentioned(rule: Rule, name: str) -> list[Op]:
    """The ops in a rule's pattern, the one it starts with first."""
    where = f"{name}:{rule.line}"
    out: list[Op] = []
    waiting: list[Pattern] = [pattern_of(expression_of(rule.pattern, where), where)]
    while waiting:
        p = waiting.pop()
        if isinstance(p, TextNode):
            out.append(p.op)
            waiting.extend(reversed(p.src))
    return list(dict.fromkeys(out))


def variables_in(p: Pattern) -> Iterator[Var]:
    if isinstance(p, Var):
        yield p
    elif isinstance(p, TextNode):
        for s in p.src:
            yield from variables_in(s)


def in_all_orders(p: Pattern) -> Iterator[Pattern]:
    """`p` with the sources of its commutative ops in every order that a node can have."""
    if not isinstance(p, TextNode):
        yield p
        return
    for src in itertools.product(*(list(in_all_orders(s)) for s in p.src)):
        yield TextNode(p.op, src, p.arg)
        if p.op in _COMMUTES and not any(isinstance(s, Lit) or (isinstance(s, Var) and s.const) for s in src):
            yield TextNode(p.op, src[::-1], p.arg)


def shape_of(p: Pattern, names: dict[str, str]) -> str:
    """Equal for patterns that match the same nodes: names are numbered as they come."""
    if isinstance(p, Var):
        kind = "c" if p.const else "x"
        return p.name if p.name == "_" else names.setdefault(p.name, f"{kind}{len(names)}")
    if isinstance(p, Lit):
        return p.value
    arg = "" if p.arg is None else repr([ast.unparse(a) for a in p.arg])
    return f"{p.op.name}{arg}({','.join(shape_of(s, names) for s in p.src)})"


def operand_dtypes(p: Pattern) -> Iterator[str]:
    """The dtypes that an elementwise pattern demands of its operands."""
    for s in p.src if isinstance(p, TextNode) else ():
        if isinstance(s, Var) and s.dtype:
            yield s.dtype
        elif isinstance(s, TextNode) and s.op in ONE_DTYPE:
            yield from operand_dtypes(s)


def all_alu(p: Pattern) -> bool:
    return not isinstance(p, TextNode) or (p.op in ALU and all(all_alu(s) for s in p.src))
