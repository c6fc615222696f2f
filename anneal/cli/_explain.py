"""`anneal explain`: the rules that concern an op, in the words of the rule files."""

from __future__ import annotations

from typing import Any

from anneal.cli._models import suggest
from anneal.cli._output import data, json_report
from anneal.inspect import ALL, KINDS, OpRules, op_rules, ops_of_method, tensor_methods
from anneal.rewrite.listing import Listed

__all__ = ["explain"]


def explain(name: str, *, as_json: bool) -> None:
    """Print the rules of the op called `name`, or of the ops that the Tensor method `name` builds."""
    methods: list[str] = []
    if name.upper() in ALL:
        found = [op_rules(name.upper())]
        meaning = found[0].meaning
    else:
        methods = tensor_methods()
        if name.lower() not in methods:
            raise suggest("op or Tensor method", name, [*ALL, *methods] if len(name) < 2 else _near(name, methods))
        ops = ops_of_method(name.lower())
        found = [op_rules(op) for op in ops]
        meaning = f"Tensor.{name.lower()} builds: {', '.join(ops) or 'no node of its own'}"
    if as_json:
        ops_found = {f.op: [_record(r) for r in f.rules] for f in found}
        json_report({"name": name, "meaning": meaning, "ops": ops_found})
        return
    data(f"{name.upper() if not methods else name.lower()}: {meaning}" if not methods else meaning)
    for f in found:
        _print(f, heading=len(found) > 1)


def _near(name: str, methods: list[str]) -> list[str]:
    """Known names that look like `name`; all ops when none does."""
    import difflib

    known = {n.lower(): n for n in [*methods, *ALL]}
    return [known[n] for n in difflib.get_close_matches(name.lower(), known, n=6, cutoff=0.5)] or list(ALL)


def _record(rule: Listed) -> dict[str, Any]:
    return {
        "kind": rule.kind,
        "table": rule.table,
        "rule": rule.text,
        "reason": rule.comment,
        "file": rule.file,
        "line": rule.line,
    }


def _print(found: OpRules, heading: bool) -> None:
    op, rules = found.op, found.rules
    if heading:
        data(f"\n{op}: {found.meaning}")
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
