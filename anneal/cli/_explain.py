"""`anneal explain`: the rules that concern an op, in the words of the rule files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anneal
from anneal.cli._models import suggest
from anneal.cli._output import data, json_report
from anneal.rewrite import listing
from anneal.rewrite.listing import Listed
from anneal.uop import MOVEMENT, Op, UOp, toposort
from anneal.uop.ops import ALL

__all__ = ["explain", "ops_of_method", "rules_of"]

PACKAGE = Path(anneal.__file__).resolve().parent
# What tables of each kind are for, in the order in which a program meets them.
KINDS = {
    "fold": "forward, when the node is made",
    "rewrite": "forward, in a compiler pass",
    "gradient": "gradient: what y with cotangent g gives each source",
    "forward": "tangent: what the tangent g of each source adds to that of y",
}


def explain(name: str, *, as_json: bool) -> None:
    """Print the rules of the op called `name`, or of the ops that the Tensor method `name` builds."""
    methods: list[str] = []
    if name.upper() in ALL:
        ops = [name.upper()]
        meaning = _meaning(name.upper())
    else:
        methods = tensor_methods()
        if name.lower() not in methods:
            raise suggest("op or Tensor method", name, [*ALL, *methods] if len(name) < 2 else _near(name, methods))
        ops = ops_of_method(name.lower())
        meaning = f"Tensor.{name.lower()} builds: {', '.join(ops) or 'no node of its own'}"
    if as_json:
        found = {op: [_record(r) for r in rules_of(op)] for op in ops}
        json_report({"name": name, "meaning": meaning, "ops": found})
        return
    data(f"{name.upper() if not methods else name.lower()}: {meaning}" if not methods else meaning)
    for op in ops:
        _print(op, rules_of(op), heading=len(ops) > 1)


def rules_of(op: str) -> list[Listed]:
    """The rules that concern `op`, in the order of KINDS; within a kind, those that start with it come first."""
    order = list(KINDS)
    return sorted(listing.explain(op), key=lambda r: order.index(r.kind))


def tensor_methods() -> list[str]:
    """Public methods of Tensor that make a tensor."""
    from anneal.tensor import Tensor

    return sorted(n for n in dir(Tensor) if not n.startswith("_") and callable(getattr(Tensor, n)))


def ops_of_method(name: str) -> list[str]:
    """The ops in the graph that a Tensor method builds for small arguments, movement and leaves left out."""
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
            outputs = [result.uop] if isinstance(result, Tensor) else [t.uop for t in result if isinstance(t, Tensor)]
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            continue
        return list(dict.fromkeys(u.op.name for u in toposort(outputs) if _has_rules(u)))
    return []


def _has_rules(u: UOp) -> bool:
    return bool(u.src) and u.op not in MOVEMENT and u.op is not Op.CONTIGUOUS


def _near(name: str, methods: list[str]) -> list[str]:
    """Known names that look like `name`; all ops when none does."""
    import difflib

    known = {n.lower(): n for n in [*methods, *ALL]}
    return [known[n] for n in difflib.get_close_matches(name.lower(), known, n=6, cutoff=0.5)] or list(ALL)


def _meaning(op: str) -> str:
    """The line of ops.py that says what the op is."""
    text = (PACKAGE / "uop" / "ops.py").read_text(encoding="utf-8")
    found = re.search(rf"^    {op}: ClassVar\[Op\](?:  # (.*))?$", text, re.MULTILINE)
    return (found[1] if found else None) or "elementwise"


def _record(rule: Listed) -> dict[str, Any]:
    return {
        "kind": rule.kind,
        "table": rule.table,
        "rule": rule.text,
        "reason": rule.comment,
        "file": rule.file,
        "line": rule.line,
    }


def _print(op: str, rules: list[Listed], heading: bool) -> None:
    if heading:
        data(f"\n{op}: {_meaning(op)}")
    for kind, about in KINDS.items():
        data(f"\n  {about}")
        mine = [r for r in rules if r.kind == kind and (r.op == op or kind not in ("gradient", "forward"))]
        if not mine:
            known = any(r.kind == "gradient" and r.op == op for r in rules)
            more = {
                "gradient": "; nothing flows back through it",
                "forward": " of its own: the gradient's, which is its own transpose" if known else "",
            }
            data("    no rule" + more.get(kind, ""))
        reason = ""
        for r in mine:
            if r.comment and r.comment != reason:
                data(f"    # {r.comment}")
            reason = r.comment
            data(f"    {r.text}   [{r.file}:{r.line}]")
