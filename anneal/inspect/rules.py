"""The rules that concern an op or a Tensor method, as values, in the words of the rule files; with an
example that each makes, its passes and its kernels.
"""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anneal.inspect.graphs import Node, PassGraph, nodes, pass_graphs
from anneal.inspect.kernel_list import kernel_calls
from anneal.rewrite import listing
from anneal.rewrite.listing import Listed
from anneal.schedule import CostModel, graph, origins, plan_for
from anneal.uop import MOVEMENT, Op, UOp, toposort

PACKAGE = Path(__file__).resolve().parents[1]
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
class RuleExample:
    """A call of a Tensor method, and the nodes of the graph that it builds, sources first."""

    source: str
    nodes: tuple[UOp, ...]

    @property
    def ops(self) -> list[str]:
        """The names of the ops, movement and leaves left out."""
        return list(dict.fromkeys(u.op.name for u in self.nodes if _has_rules(u)))


# What most methods take, for those whose docstring has no example: x is (2, 2), index whole numbers of that shape.
_CALLS = ("", "x", "0", "0, index", "x, x", "index[0]", "2", "(2,)", "x > 0", "x > 0, x", "[x, x]")


def example_of(method: str) -> RuleExample | None:
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


def _first(method: str, lines: Iterable[str], names: dict[str, Any]) -> RuleExample | None:
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
            return RuleExample(line, tuple(toposort(outputs)))
    return None


def _has_rules(u: UOp) -> bool:
    return bool(u.src) and u.op not in MOVEMENT and u.op is not Op.CONTIGUOUS


def _meaning(op: str) -> str:
    """The comment at the op's row of ops.py, which says what the op is."""
    text = (PACKAGE / "uop" / "ops.py").read_text(encoding="utf-8")
    found = re.search(rf"^    {op} = ((?:.+\n)*?)(?=    [A-Z]\w* = |\n)", text, re.MULTILINE)
    said = re.findall(r"(?:^|\s)# (?!fmt:)(.*)", found[1]) if found else ()
    return " ".join(said) or "elementwise"


ROOT = PACKAGE.parent
# Methods that build an op whose name they do not have.
METHODS = {
    "REDUCE_AXIS": "sum", "IDIV": "floor_divide", "RECIP": "reciprocal", "CMPLT": "lt", "LT": "lt", "EQ": "eq",
    "MAX": "maximum", "MIN": "minimum", "SCATTER_ADD": "scatter_add", "WHERE": "relu", "EXPAND": "softmax",
    "SHRINK": "tril", "PAD": "cumsum", "CONTRACT": "matmul", "CAST": "int", "ARGSORT": "argsort", "IOTA": "tril",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Batching:
    """The function that batches an op (vmap): its first line, its place as "file:line", its text."""

    about: str
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Worked:
    """A call of a Tensor method: the `nodes` of its graph, what each pass makes of it, its kernels as WGSL."""

    call: str
    nodes: tuple[Node, ...]
    passes: tuple[PassGraph, ...]
    kernels: tuple[str, ...]


def batching(op: str) -> Batching | None:
    """The rule by which `vmap` batches the op called `op`; None where there is none.

    >>> batching("FLIP").place.startswith("anneal/transforms/batching.py:")
    True
    """
    from anneal.transforms import BATCHING

    rule = BATCHING.get(getattr(Op, op))
    if rule is None:
        return None
    text, line = inspect.getsourcelines(rule)
    file = Path(inspect.getsourcefile(rule) or "").resolve()
    return Batching((rule.__doc__ or "").split("\n")[0], f"{file.relative_to(ROOT).as_posix()}:{line}", "".join(text))


def worked(name: str, cost_model: CostModel) -> Worked | None:
    """An example of the op, or the Tensor method, called `name`; None where no method builds it of small arguments.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).

    >>> from anneal.backend import planned_cost_model
    >>> worked("EXP", planned_cost_model("cpu")).call
    'Tensor([0, 1]).exp().round(4)'
    """
    methods = tensor_methods()
    for method in dict.fromkeys((METHODS.get(name.upper(), name.lower()), name.lower())):
        example = example_of(method) if method in methods else None
        if example is None or (hasattr(Op, name) and name not in [u.op.name for u in example.nodes]):
            continue
        sink = graph(_outputs(example.nodes))
        plan = plan_for(sink, cost_model)[0]
        texts = dict.fromkeys([k.text for k in kernel_calls(plan, origins(sink))])
        return Worked(
            example.source, tuple(nodes(list(example.nodes))), tuple(pass_graphs(sink, cost_model)), tuple(texts)
        )
    return None


def _outputs(order: Sequence[UOp]) -> list[UOp]:
    """The nodes that none of the others reads."""
    read = {s for u in order for s in u.src}
    return [u for u in order if u not in read]
