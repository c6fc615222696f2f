"""Printing nodes: one line each, shared nodes named once; the text evaluates back to the identical node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anneal.uop.node import UOp

__all__ = ["render", "short"]


def short(u: UOp) -> str:
    """One line: op, dtype, shape, arg and the ops of the sources."""
    arg = "" if u.arg is None else f" {u.arg!r}"
    shape = f" {list(u.shape)}" if u.shape else ""
    return f"<{u.op.name} {u.dtype.name}{shape}{arg} ({', '.join(s.op.name for s in u.src)})>"


def render(u: UOp) -> str:
    """The graph below `u` as Python assignments, sources first; the last line is `u` itself.

    Evaluating the text with `UOp`, `Op` and `dtypes` in scope gives the identical node back.
    """
    from anneal.uop.node import toposort

    order = toposort((u,))
    names: dict[UOp, str] = {}
    lines = []
    for i, n in enumerate(order):
        names[n] = f"n{i}"
        dtype = "dtypes.bool_" if n.dtype.name == "bool" else repr(n.dtype)
        src = "(" + "".join(f"{names[s]}, " for s in n.src).rstrip() + ")"
        tail = [] if n.arg is None and n.tag is None else [f"arg={_literal(n.arg)}"]
        if n.tag is not None:
            tail.append(f"tag={n.tag!r}")
        lines.append(f"n{i} = UOp({', '.join([repr(n.op), dtype, src, *tail])})")
    return "\n".join(lines)


def _literal(arg: object) -> str:
    if isinstance(arg, float) and (arg != arg or arg in (float("inf"), float("-inf"))):
        return f"float('{arg!r}')"
    return repr(arg)
