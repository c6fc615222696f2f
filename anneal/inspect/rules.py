"""The rules that concern an op or a Tensor method, as values, in the words of the rule files."""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anneal
from anneal.rewrite import listing
from anneal.rewrite.listing import Listed
from anneal.uop import MOVEMENT, Op, UOp, toposort

PACKAGE = Path(anneal.__file__).resolve().parent
# What tables of each kind are for, in the order in which a program meets them.
KINDS = {
    "fold": "forward, when the node is made",
    "rewrite": "forward, in a compiler pass",
    "gradient": "gradient: what y with cotangent g gives each source",
    "forward": "tangent: what the tangent g of each source adds to that of y",
}


@dataclass(frozen=True, slots=True)
class OpRules:
    """The rules that concern `op`, in the order of KINDS; within a kind, those that start with it come first."""

    op: str
    meaning: str
    rules: tuple[Listed, ...]


def op_rules(op: str) -> OpRules:
    """The rules of the op called `op`, and its line in ops.py. Raises UserError for a name that is no op."""
    order = list(KINDS)
    return OpRules(op, _meaning(op), tuple(sorted(listing.explain(op), key=lambda r: order.index(r.kind))))


def tensor_methods() -> list[str]:
    """Public methods of Tensor that make a tensor."""
    from anneal.tensor import Tensor

    return sorted(n for n in dir(Tensor) if not n.startswith("_") and callable(getattr(Tensor, n)))


@dataclass(frozen=True, slots=True)
class Example:
    """A call of a Tensor method, and the nodes of the graph that it builds, sources first."""

    source: str
    nodes: tuple[UOp, ...]

    @property
    def ops(self) -> list[str]:
        """The names of the ops, movement and leaves left out."""
        return list(dict.fromkeys(u.op.name for u in self.nodes if _has_rules(u)))


# What most methods take, for those whose docstring has no example: x is (2, 2), index whole numbers of that shape.
_CALLS = ("", "x", "0", "0, index", "x, x", "index[0]", "2", "(2,)", "x > 0", "x > 0, x", "[x, x]")


def example_of(method: str) -> Example | None:
    """A call of a Tensor method: the first of its docstring that gives a tensor, or one for small arguments; None if
    no such call does.

    >>> example_of("relu").ops
    ['MAX']
    """
    from anneal.tensor import Tensor

    function = getattr(Tensor, method)
    parsed = doctest.DocTestParser().get_examples(function.__doc__ or "")
    known = {**vars(sys.modules[function.__module__]), "Tensor": Tensor}
    x, index = Tensor([[0.1, 0.2], [0.3, 0.4]]), Tensor([[0, 1], [1, 0]])
    told = [e.source.strip() for e in parsed]
    tries = [f"x.{method}({arguments})" for arguments in _CALLS]
    return _first(method, told, known) or _first(method, tries, {"x": x, "index": index})


def _first(method: str, lines: Iterable[str], names: dict[str, Any]) -> Example | None:
    """The first line that calls the method and gives tensors; those before it may name what it uses."""
    from anneal.tensor import Tensor

    for line in lines:
        try:
            code = compile(line, f"<{method}>", "eval")
        except SyntaxError:
            exec(line, names)
            continue
        try:
            result = eval(code, names)
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            continue
        found = result if isinstance(result, (tuple, list)) else (result,)
        outputs = [t.uop for t in found if isinstance(t, Tensor)]
        if outputs and method in line:
            return Example(line, tuple(toposort(outputs)))
    return None


def _has_rules(u: UOp) -> bool:
    return bool(u.src) and u.op not in MOVEMENT and u.op is not Op.CONTIGUOUS


def _meaning(op: str) -> str:
    """The line of ops.py that says what the op is."""
    text = (PACKAGE / "uop" / "ops.py").read_text(encoding="utf-8")
    found = re.search(rf"^    {op}: ClassVar\[\s*Op\s*\](?:  # (.*))?$", text, re.MULTILINE)
    return (found[1] if found else None) or "elementwise"
