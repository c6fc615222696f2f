"""Random programs with Variables in the place of sizes.

Some of the sizes of a program's leaves become symbolic, everywhere where they occur among them: a leaf is then a part
of a larger one, and what lies beyond the part is nan, or a number that a result would show. Sizes that a line writes as
numbers become symbolic too. Many programs then ask for what only numbers can say (whether 3 is inside the axis): those
are left out.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass, field

from tests.fuzz.generate import Program

_SHAPED = frozenset(("reshape", "expand", "view", "zeros", "ones", "full", "arange", "broadcast_to", "tri", "eye"))
_BEYOND = {"f": float("nan"), "i": 77777, "u": 77777, "b": True}


@dataclass
class SymbolicProgram(Program):
    """`program` with the sizes `chosen` symbolic: size -> (name, min, max)."""

    chosen: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    def source(self) -> str:
        """The program as Python, given Tensor, Variable, F, np."""
        made = [f"{name} = Variable({name!r}, {lo}, {hi}).bind({n})" for n, (name, lo, hi) in self.chosen.items()]
        for n, d, s, v in self.leaves:
            wants = ", requires_grad=True" if n in self.wants_grad else ""
            data = f"np.array({v!r}, np.{d}).reshape({s})"
            part = self._part(s)
            if part is None:
                made.append(f"{n} = Tensor({data}{wants})")
                continue
            room = tuple(self.chosen[m][2] if m in self.chosen else m for m in s)
            beyond = _BEYOND.get(d[0], 1)
            made.append(f"{n}_all = np.full({room}, {beyond if beyond == beyond else 'np.nan'}, np.{d})")
            made.append(f"{n}_all[tuple(slice(0, m) for m in {s})] = {data}")
            made.append(f"{n}_whole = Tensor({n}_all{wants})")
            made.append(f"{n} = {n}_whole[{part}]")
        return "\n".join([*made, *[self._line(line) for line in self.lines]])

    def _part(self, shape: tuple[int, ...]) -> str | None:
        if not any(m in self.chosen for m in shape):
            return None
        return ", ".join(f":{self.chosen[m][0]}" if m in self.chosen else ":" for m in shape)

    def _line(self, line: str) -> str:
        name, _, what = line.partition(" = ")
        if what.endswith(".grad"):
            leaf = what.removesuffix(".grad")
            part = self._part(next(s for n, _, s, _ in self.leaves if n == leaf))
            return (
                line
                if part is None
                else f"{name} = {leaf}_whole.grad[{part}] if {leaf}_whole.grad is not None else None"
            )
        return ast.unparse(_Sizes(self.chosen).visit(ast.parse(line)))


class _Sizes(ast.NodeTransformer):
    """Sizes as numbers in calls that take shapes become names."""

    def __init__(self, chosen: dict[int, tuple[str, int, int]]) -> None:
        self.chosen = chosen

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPED:
            node.args = [_Named(self.chosen).visit(a) for a in node.args]
        return node


class _Named(ast.NodeTransformer):
    def __init__(self, chosen: dict[int, tuple[str, int, int]]) -> None:
        self.chosen = chosen

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int:
            for n, (name, _, _) in self.chosen.items():
                if node.value == n:
                    return ast.Name(name, ast.Load())
                if node.value and node.value % n == 0 and node.value // n <= 6:
                    return ast.parse(f"{name} * {node.value // n}", mode="eval").body
        return node


def symbolic(p: Program) -> SymbolicProgram | None:
    """`p` with one or two of its leaves' sizes symbolic; None if it has none to choose from."""
    r = random.Random(p.seed)
    sizes = sorted({m for _, _, s, _ in p.leaves for m in s if m > 1})
    if not sizes:
        return None
    chosen = {}
    for k, n in enumerate(r.sample(sizes, min(len(sizes), r.choice((1, 1, 2))))):
        low = r.choice((1, n, max(1, n - 2)))
        chosen[n] = (f"s{k}", low, n + r.choice((0, 1, 3, 16)))
    return SymbolicProgram(p.seed, p.leaves, p.lines, p.outputs, chosen)
