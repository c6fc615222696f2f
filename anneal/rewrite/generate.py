"""The generator turns `.upat` files, as `upat.py` reads them, into plain-Python match functions.

`python -m anneal.rewrite.generate` rewrites every `NAME_rules.py` under the package; `--check` only compares.

>>> print(*generate("table t\\n-x -> x\\nx - y -> y\\n", "t.upat").splitlines()[-4:], sep="\\n")
T: dict[Op, Any] = {
    Op.NEG: lambda u: (u.src[0], '-x -> x'),  # -x -> x
    Op.SUB: lambda u: (u.src[1], 'x - y -> y'),  # x - y -> y
}
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anneal.errors import CompilerError
from anneal.rewrite import upat
from anneal.uop import ALL, ALU, COMPARE, Op

PACKAGE = Path(__file__).resolve().parent.parent
_DERIVATIVES = ("gradient", "forward")
_CALLED = (Op.POW, Op.EQ, Op.NE)  # a node has no operators for them
# Names that generated code may use, by module of anneal/uop.
_OF_UOP = {"dtype": ("dtypes",), "node": ("UOp", "alu", "const"), "ops": ("Op",)}


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


# -- code -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One line of a match: a test, an assignment, or the last lines that build the result; `end` is their form where no
    rule follows.
    """

    kind: str
    text: str
    end: str = ""


class _Writer:
    """Writes one rule (one order of its sources) as a list of steps."""

    def __init__(self, rule: upat.Rule, table: upat.Table, helpers: frozenset[str], where: str, named: bool) -> None:
        self.rule, self.table, self.helpers, self.where = rule, table, helpers, where
        self.named = named or table.kind == "rewrite"
        self.names: dict[str, str] = {}
        self.operands = ""
        self.dtype = "dtype" if table.kind == "fold" else "u.dtype" if table.kind == "rewrite" else "y.dtype"
        self.root = "y" if table.kind in _DERIVATIVES else "u"

    def steps(self, pattern: upat.TextNode) -> list[Step]:
        tests: list[Step] = []
        late: list[Step] = []
        if self.table.kind == "fold" and pattern.op in upat.ONE_DTYPE | COMPARE:
            # one test of the dtype, before anything else, lets a function skip all its integer rules for a float
            self.operands = next((d for d in upat.operand_dtypes(pattern) if d in ("int", "float")), "")
            if self.operands:
                where = "s0.dtype" if pattern.op in COMPARE else "dtype"
                tests.append(Step("test", f"{where}.is_{self.operands}"))
        self._sources(pattern, self.root, tests, late, top=True)
        if self.table.kind in _DERIVATIVES:
            self.names.setdefault("g", "g")
        if self.table.kind != "fold":
            self.names.setdefault(self.root, self.root)
        steps = tests + late
        if self.rule.guard:
            steps.append(Step("test", self._python(upat.expression_of(self.rule.guard, self.where))))
        self.end = ""
        result = _bare("\n".join(self._result()))
        if self.table.kind == "fold" and upat.all_alu(pattern):
            kept = set(re.findall(r"\w+", result))
            free = (x.name for x in upat.variables_in(pattern) if x.name != "_" and not x.const)
            alive = list(dict.fromkeys(self.names[n] for n in free))
            for v in (v for v in alive if v not in kept):
                same = "".join(f" or {v}.shape == {k}.shape" for k in alive if k in kept)
                steps.append(Step("test", f"(not {v}.shape{same})" if same else f"not {v}.shape"))
        steps.append(Step("leaf", result, _bare(self.end)))
        return steps

    def _sources(
        self, p: upat.TextNode, path: str, tests: list[Step], late: list[Step], top: bool = False, same: bool = True
    ) -> None:
        self._arg(p, path, tests)
        kids = [f"s{i}" if top else f"{path}_{i}" for i in range(len(p.src))]
        src = "src" if top and self.table.kind == "fold" else f"{path}.src"
        if p.op.arity is None:
            if p.op is not Op.CALL:  # which has as many as its name says
                tests.append(Step("test", f"len({src}) == {len(kids)}"))
        elif len(kids) != p.op.arity:
            raise CompilerError(f"{self.where}: {p.op.name} does not take {len(kids)} sources")
        if kids and (self.table.kind != "fold" or not top):
            tests.append(Step("bind", f"{_tuple(kids)[1:-1]} = {src}"))
        # the right source first: it is the constant, if only one of them is
        pairs = list(zip(kids, p.src, strict=True))
        for k, s in pairs if all(isinstance(s, upat.Var) and s.const for s in p.src) else reversed(pairs):
            op = f"o{k[1:]}" if top and self.table.kind == "fold" else f"{k}.op"
            if isinstance(s, upat.Lit):
                tests.append(Step("test", f"{op} is _CONST"))
                equal = "is" if s.value in ("True", "False") else "=="
                tests.append(Step("test", f"{k}.arg {equal} {s.value}"))
            elif isinstance(s, upat.TextNode):
                tests.append(Step("test", f"{op} is _{s.op.name}"))
            elif s.const and s.name not in self.names:
                tests.append(Step("test", f"{op} is _CONST"))
        for k, s in zip(kids, p.src, strict=True):
            if isinstance(s, upat.Var) and s.name != "_":
                if s.name in self.names:
                    late.append(Step("test", f"{k} is {self.names[s.name]}"))
                self.names.setdefault(s.name, k)
            if isinstance(s, upat.Var) and s.dtype and not (same and s.dtype == self.operands):
                late.append(Step("test", upat.DTYPE_TESTS[s.dtype].format(k)))
        for k, s in zip(kids, p.src, strict=True):
            if isinstance(s, upat.TextNode):
                self._sources(s, k, tests, late, same=same and s.op in upat.ONE_DTYPE)

    def _arg(self, p: upat.TextNode, path: str, tests: list[Step]) -> None:
        if p.arg is None:
            return
        parts = [f"{path}.arg"] if len(p.arg) == 1 else [f"{path}.arg[{i}]" for i in range(len(p.arg))]
        if p.op is Op.CALL:
            tests.append(Step("bind", f"{path}_function = {path}.arg[0]"))
            parts = [f"{path}_function.name", f"{path}_function.arguments"]
        for part, e in zip(parts, p.arg, strict=True):
            op = upat.op_named(e)
            if op is not None:
                tests.append(Step("test", f"{part} is _{op.name}"))
            elif isinstance(e, ast.Name):
                if e.id != "_":
                    self.names[e.id] = part
            else:
                tests.append(Step("test", f"{part} == {ast.unparse(e)}"))

    # -- results
    def _result(self) -> list[str]:
        e = upat.expression_of(self.rule.result, self.where)
        if self.table.kind in _DERIVATIVES:
            parts = e.elts if isinstance(e, ast.Tuple) else [e]
            code = ["None" if isinstance(p, ast.Name) and p.id == "_" else self._build(p, self.dtype) for p in parts]
            if self.table.kind == "forward" and len(code) > 1:
                # g belongs to one source: the contributions of the others are not built
                tests = [f"{c} if place == {i} else " for i, c in enumerate(code[:-1])]
                made = f"({''.join(tests)}{code[-1]},)"
            else:
                made = _tuple(code)
            return [f"return {self._named(made)}"]
        if isinstance(e, ast.Set):
            inner, made = e.elts[0], self._python(e.elts[0])
            if isinstance(inner, ast.BinOp | ast.UnaryOp | ast.Compare):  # never None
                return [f"return {self._named(f'const({self.dtype}, {made})')}"]
            return self._maybe(made, self._named(f"const({self.dtype}, r)"))
        if isinstance(e, ast.Call) and upat.call_parts(e)[0] is None:
            test = "r is not None and r is not u" if self.table.kind == "rewrite" else "r is not None"
            return self._maybe(self._build(e, self.dtype), self._named("r"), test)
        return [f"return {self._named(self._build(e, self.dtype))}"]

    def _named(self, result: str) -> str:
        return f"({result}, {self.rule.text!r})" if self.named else result

    def _maybe(self, value: str, result: str, test: str = "r is not None") -> list[str]:
        if result == self._named("r") and (self.table.kind == "rewrite" or not self.named):
            self.end = f"return {self._named(value)}"  # the caller takes None, and the node itself, for no match
        return [f"r = {value}", f"if {test}:", f"    return {result}"]

    def _python(self, e: ast.expr) -> str:
        """Guards and `{...}`: Python as written, with bound names and v(), lo(), hi() put in place."""
        return ast.unparse(_Substitute(self.names).visit(ast.parse(ast.unparse(e), mode="eval").body))

    def _dtype_of(self, e: ast.expr, default: str) -> str | None:
        """Source text of the dtype that `e` has, None if it is a bare number."""
        if isinstance(e, ast.Name):
            return f"{self.names.get(e.id, e.id)}.dtype"
        if self._number(e):
            return None
        if isinstance(e, ast.Attribute | ast.Subscript):
            return f"{self._python(e)}.dtype"
        op, operands = upat.operation_of(e) or (None, [])
        if isinstance(e, ast.Call):
            op, operands = upat.call_parts(e)[0], e.args
            if op in (Op.CAST, Op.BITCAST):
                return self._python(operands[1])
        if op in COMPARE:
            return "dtypes.bool_"
        return default if op is None or not operands else self._common(operands[op is Op.WHERE :], default)

    def _common(self, several: Sequence[ast.expr], default: str) -> str | None:
        """Source text of the dtype of the first of several expressions that is not a bare number."""
        return next((d for e in several if (d := self._dtype_of(e, default))), None)

    def _number(self, e: ast.expr) -> str | None:
        """The text of a bare number, `2` or `{v(c) + 1}`; None for a node."""
        if isinstance(e, ast.Set):
            return self._python(e.elts[0])
        return ast.unparse(e) if upat.is_literal(e) else None

    def _build(self, e: ast.expr, dtype: str) -> str:
        """Source text that makes the node `e`; bare numbers take `dtype`."""
        if (number := self._number(e)) is not None:
            return f"const({dtype}, {number})"
        if isinstance(e, ast.Name):
            if e.id not in self.names:
                raise CompilerError(f"{self.where}: `{e.id}` is not bound by the pattern")
            return self.names[e.id]
        if (operation := upat.operation_of(e)) is not None:
            return self._alu(*operation, dtype)
        if isinstance(e, ast.Call):
            return self._call(e, dtype)
        return self._python(e)

    def _alu(self, op: Op, args: list[ast.expr], dtype: str) -> str:
        inner = self._common(args[op is Op.WHERE :], dtype) or dtype
        parts = [self._build(a, inner) for a in args]
        if op is Op.WHERE:
            parts[0] = self._build(args[0], "dtypes.bool_")
        if op is Op.NEG:
            return f"(-{parts[0]})"
        if op.sign and op not in _CALLED:
            number = self._number(args[1]) if self._number(args[0]) is None else None  # it takes the left node's dtype
            return f"({parts[0]} {op.sign} ({number or parts[1]}))"
        return f"_{op.name}({', '.join(parts)})"

    def _call(self, e: ast.Call, dtype: str) -> str:
        op, arg = upat.call_parts(e)
        if op is None:
            name = ast.unparse(e.func)
            if name not in self.helpers and not isinstance(e.func, ast.Attribute):
                raise CompilerError(f"{self.where}: `{name}` is no op and comes from no `use` line")
            func = name if name in self.helpers else self._python(e.func)
            args = [ast.unparse(a) if upat.is_literal(a) else self._build(a, dtype) for a in e.args]
            args += [f"{k.arg}={self._python(k.value)}" for k in e.keywords]
            return f"{func}({', '.join(args)})"
        if op in (Op.CAST, Op.BITCAST):
            to = self._python(e.args[1])
            x = self._build(e.args[0], dtype)
            return f"{x}.cast({to})" if op is Op.CAST else f"UOp(_BITCAST, {to}, ({x},))"
        if op in ALU:
            return self._alu(op, e.args, dtype)
        given = next((self._python(k.value) for k in e.keywords if k.arg == "dtype"), None)
        inner = given or self._common(e.args, dtype) or dtype
        src = [self._build(a, inner) for a in e.args]
        parts = [self._arg_text(a) for a in arg or ()]
        text = "None" if arg is None else parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        if len(src) == 1 and inner == f"{src[0]}.dtype":
            return f"{src[0]}.then(_{op.name}{'' if arg is None else f', {text}'})"
        return f"UOp(_{op.name}, {inner}, {_tuple(src)}, {text})"

    def _arg_text(self, e: ast.expr) -> str:
        op = None if isinstance(e, ast.Name) and e.id in self.names else upat.op_named(e)
        return f"_{op.name}" if op else self._python(e)


class _Substitute(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names:
            return ast.parse(self.names[node.id], mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        attribute = {"v": "arg", "lo": "vmin", "hi": "vmax"}.get(name)
        return ast.Attribute(node.args[0], attribute, ast.Load()) if attribute else node


def _bare(text: str) -> str:
    """Statements without the parentheses that nothing needs."""
    found = ast.unparse(ast.parse(text))
    return re.sub(r"(?<=return )\(.*", lambda m: m[0][1:-1] if _is_tuple(m[0]) else m[0], found)


def _is_tuple(text: str) -> bool:
    return isinstance(ast.parse(text, mode="eval").body, ast.Tuple)


def _emit(rules: Sequence[tuple[str, list[Step]]], depth: int, out: list[str], last: bool = True) -> None:
    """Nested ifs: neighbours that begin with the same step share it, so the order of rules is kept. `last`: nothing
    comes after them."""
    pad = "    " * depth
    i = 0
    while i < len(rules):
        step = rules[i][1][0]
        j = i + 1
        while j < len(rules) and step.kind != "leaf" and rules[j][1][0] == step:
            j += 1
        group = [(text, steps[1:]) for text, steps in rules[i:j]]
        ends = last and j == len(rules)
        if step.kind == "leaf":
            out.append(f"{pad}# {rules[i][0]}")
            out.extend(pad + line for line in (ends and step.end or step.text).splitlines())
        elif step.kind == "bind":
            out.append(pad + step.text)
            _emit(group, depth, out, ends)
        else:
            # consecutive tests that no other rule shares become one condition
            tests = [step.text]
            while len(group) == 1 and group[0][1][0].kind == "test":
                tests.append(group[0][1][0].text)
                group = [(group[0][0], group[0][1][1:])]
            joined = " and ".join(f"({t})" if " or " in t and t[0] != "(" and len(tests) > 1 else t for t in tests)
            out.append(f"{pad}if {joined}:")
            _emit(group, depth + 1, out, ends)
        i = j


# The parameters of a table's functions.
_PARAMETERS = {"rewrite": "u", "fold": "dtype, src", "gradient": "y, g", "forward": "y, g, place"}


def _function(
    table: upat.Table,
    op: Op,
    rules: list[tuple[upat.Rule, upat.TextNode]],
    helpers: frozenset[str],
    name: str,
    named: bool,
) -> tuple[list[str], str]:
    """The function of an op's rules and its row of the table; of a rule that is one expression the row has a lambda."""
    compiled: list[tuple[str, list[Step]]] = []
    for rule, pattern in rules:
        where = f"{name}:{rule.line}"
        seen: set[tuple[str, ...]] = set()
        for order in upat.in_all_orders(pattern):
            assert isinstance(order, upat.TextNode)
            names: dict[str, str] = {}
            shape = upat.shape_of(order, names)
            key = shape, *[names.get(word, word) for word in re.findall(r"\w+|\W", rule.guard or "")]
            if key in seen:  # the same function again
                continue
            seen.add(key)
            compiled.append((rule.text, _Writer(rule, table, helpers, where, named).steps(order)))
    function = f"_{table.name}_{op.name.lower()}"
    arity = (op.arity or 0) if table.kind == "fold" else 0
    parameters = _PARAMETERS[table.kind]
    lines = [f"def {function}({parameters}):"]
    if arity:
        lines.append(f"    {_tuple([f's{i}' for i in range(arity)])[1:-1]} = src")
    body: list[str] = []
    _emit(compiled, 1, body)
    words = Counter(re.findall(r"\w+", "\n".join(body)))
    once = {f"o{i}": f"s{i}.op" for i in range(arity) if words[f"o{i}"] == 1}
    lines += [f"    o{i} = s{i}.op" for i in range(arity) if words[f"o{i}"] > 1]
    body = [re.sub(r"\bo\d\b", lambda m: once.get(m[0], m[0]), line) for line in body]
    body = [line for line in body if not _unused(line, words)]
    *before, comment, last = body
    tests = [line.strip() for line in before if not re.fullmatch(r"\s+s0.* = [uy]\.src", line)]
    result = last.strip().removeprefix("return ")
    whole = result == last.strip() or len(lines) > 1 + bool(arity) or not all(t.startswith("if ") for t in tests)
    if whole or len(tests) > 1:
        return [*lines, *body], f"    Op.{op.name}: {function},"
    src = "src" if arity else f"{parameters[0]}.src"
    value = f"({result})" if _is_tuple(result) else result
    made = re.sub(r"\bs(\d)\b", rf"{src}[\1]", value + "".join(f" if {t[3:-1]} else None" for t in tests))
    return [], f"    Op.{op.name}: lambda {parameters}: {made},  {comment.strip()}"


def _unused(line: str, words: Counter[str]) -> bool:
    """True for a line that gives names to sources which nothing else names."""
    names, _, of = line.partition(" = ")
    return of.endswith(".src") and "if" not in names and all(words[n] == 1 for n in re.findall(r"\w+", names))


def _uop_imports(name: str, words: set[str]) -> list[str]:
    """The lines that import from `anneal.uop` what a generated module names: through its front door, except inside."""
    found = {module: [n for n in names if n in words] for module, names in _OF_UOP.items()}
    if not name.startswith("anneal/uop/"):
        return [f"from anneal.uop import {', '.join(sorted(n for names in found.values() for n in names))}"]
    return [f"from anneal.uop.{module} import {', '.join(names)}" for module, names in found.items() if names]


def generate(text: str, name: str, named: bool = False) -> str:
    """The Python module for a `.upat` text; `name` is what errors and the header call it.

    With `named` the functions of every kind return (result, rule text), as those of rewrite tables always do.
    """
    file = upat.parse(text, name)
    helpers = frozenset().union(*file.uses.values())
    body: list[str] = []
    for table in file.tables:
        by_op: dict[Op, list[tuple[upat.Rule, upat.TextNode]]] = {}
        for rule in table.rules:
            pattern = upat.pattern_of(upat.expression_of(rule.pattern, f"{name}:{rule.line}"), f"{name}:{rule.line}")
            if not isinstance(pattern, upat.TextNode):
                raise CompilerError(f"{name}:{rule.line}: a pattern must start with an op: {rule.pattern}")
            by_op.setdefault(pattern.op, []).append((rule, pattern))
        entries = []
        for op, rules in by_op.items():
            lines, entry = _function(table, op, rules, helpers, name, named)
            body += ["", "", *lines] if lines else []
            entries.append(entry)
        body += ["", "", f"{table.name.upper()}: dict[Op, Any] = {{", *entries, "}"]
    code = "\n".join(body)
    counts = Counter(re.findall(r"\w+", code))
    for word in ALL:
        if 0 < counts[f"_{word}"] < 3:  # more have a name of their own
            code = re.sub(rf"\b_{word}\b", f"Op.{word}", code)
    words = set(re.findall(r"\w+", code))
    lines = [
        f"from {module} import {part.rstrip(',')}"
        for module, names in file.uses.items()
        for part in textwrap.wrap(", ".join(sorted(words & names)), 107 - len(module))
    ]
    header = [
        f'"""Generated from {name} by `python -m anneal.rewrite.generate`; edit that file, not this one."""',
        "# fmt: off",
        "# mypy: allow-untyped-defs",
        *(["import math"] if re.search(r"\bmath\.", code) else []),
        "from typing import Any",
        "",
        *_uop_imports(name, words),
        *lines,
        "",
        *(f"_{op} = Op.{op}" for op in ALL if f"_{op}" in words),
    ]
    return "\n".join(header) + code + "\n"


# -- command --------------------------------------------------------------------------------------------------------


def targets() -> list[tuple[Path, Path]]:
    """(rule file, generated module) for every `.upat` under the package."""
    return [(p, p.with_name(f"{p.stem}_rules.py")) for p in sorted(PACKAGE.rglob("*.upat"))]


def main(argv: Sequence[str] | None = None) -> int:
    """Write stale modules, or with `--check` name them; the exit code is 1 if `--check` found one."""
    check = "--check" in (sys.argv[1:] if argv is None else argv)
    stale = 0
    for source, target in targets():
        wanted = generate(source.read_text(), source.relative_to(PACKAGE.parent).as_posix())
        if target.exists() and target.read_text() == wanted:
            continue
        stale += 1
        if check:
            print(f"{target}: stale; run python -m anneal.rewrite.generate", file=sys.stderr)
        else:
            target.write_text(wanted)
            print(target)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
