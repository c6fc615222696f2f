"""The rules that concern an op or a Tensor method, as values, in the words of the rule files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anneal
from anneal.rewrite import listing
from anneal.rewrite.listing import Listed
from anneal.uop import ALL, MOVEMENT, Op, UOp, toposort

__all__ = ["ALL", "KINDS", "OpRules", "op_rules", "ops_of_method", "outputs_of_method", "tensor_methods"]

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


def ops_of_method(name: str) -> list[str]:
    """The ops in the graph that a Tensor method builds for small arguments, movement and leaves left out."""
    return list(dict.fromkeys(u.op.name for u in toposort(outputs_of_method(name)) if _has_rules(u)))


def outputs_of_method(name: str) -> list[UOp]:
    """What a Tensor method gives for small arguments, of matrices of two by two; nothing if none of them suits it."""
    from anneal.tensor import Tensor

    x = Tensor([[0.1, 0.2], [0.3, 0.4]])
    index = Tensor([[0, 1], [1, 0]])
    tries: list[Callable[[Any], Any]] = [
        lambda f: f(),
        lambda f: f(x),
        lambda f: f(0),
        lambda f: f(0, index),
        lambda f: f(x, x),
        lambda f: f(index[0]),
    ]
    for attempt in tries:
        try:
            result = attempt(getattr(x, name))
            return [result.uop] if isinstance(result, Tensor) else [t.uop for t in result if isinstance(t, Tensor)]
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            continue
    return []


def _has_rules(u: UOp) -> bool:
    return bool(u.src) and u.op not in MOVEMENT and u.op is not Op.CONTIGUOUS


def _meaning(op: str) -> str:
    """The line of ops.py that says what the op is."""
    text = (PACKAGE / "uop" / "ops.py").read_text(encoding="utf-8")
    found = re.search(rf"^    {op}: ClassVar\[Op\](?:  # (.*))?$", text, re.MULTILINE)
    return (found[1] if found else None) or "elementwise"
