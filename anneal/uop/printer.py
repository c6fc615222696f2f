"""Printing nodes: one line each, shared nodes named once; the text evaluates back to the identical node."""

from __future__ import annotations

from anneal.uop.later import SYMBOLIC
from anneal.uop.node import UOp, toposort
from anneal.uop.ops import Op
from anneal.uop.sizes import is_symbolic, mapped, size_text, symbolic_arg


def short(u: UOp) -> str:
    """A line of text: op, dtype, shape, arg and the ops of the sources."""
    if SYMBOLIC.seen and u.dtype.name == "int32" and u.op is not Op.CONST and is_symbolic(u):
        return size_text(u)
    arg = "" if u.arg is None else f" {u.arg!r}"
    shape = f" {list(u.shape)}" if u.shape else ""
    return f"<{u.op.name} {u.dtype.name}{shape}{arg} ({', '.join(s.op.name for s in u.src)})>"


def render(u: UOp) -> str:
    """The graph below `u` as Python assignments, sources first; the last line is `u` itself.

    Evaluating the text with `UOp`, `Op` and `dtypes` in scope gives the identical node back.
    """
    order = _with_sizes(u) if SYMBOLIC.seen else toposort((u,))
    names: dict[UOp, str] = {}
    lines = []
    for i, n in enumerate(order):
        names[n] = f"n{i}"
        dtype = "dtypes.bool_" if n.dtype.name == "bool" else repr(n.dtype)
        src = "(" + "".join(f"{names[s]}, " for s in n.src).rstrip() + ")"
        tail = [] if n.arg is None and n.tag is None else [f"arg={_literal(n.arg, names)}"]
        if n.tag is not None:
            tail.append(f"tag={n.tag!r}")
        lines.append(f"n{i} = UOp({', '.join([repr(n.op), dtype, src, *tail])})")
    return "\n".join(lines)


def _with_sizes(root: UOp) -> list[UOp]:
    """The nodes below `root`, sources and the sizes that args hold first."""
    held: list[UOp] = []
    for n in toposort((root,)):
        mapped(n.arg, held.append)
    return toposort((*held, root))


def _literal(arg: object, names: dict[UOp, str]) -> str:
    if isinstance(arg, tuple) and symbolic_arg(arg):
        return "(" + "".join(f"{names[a] if isinstance(a, UOp) else _literal(a, names)}, " for a in arg).rstrip() + ")"
    if isinstance(arg, float) and (arg != arg or arg in (float("inf"), float("-inf"))):
        return f"float('{arg!r}')"
    return repr(arg)
