"""Graphs as text: assignments that evaluate to the identical nodes, and rows of plain data for JSON."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from anneal.uop.dtype import by_name
from anneal.uop.node import Nodes, UOp, from_rows, toposort
from anneal.uop.ops import ALL, SYMBOLIC, Op, ranks
from anneal.uop.sizes import is_symbolic, mapped, size_text, symbolic_arg


def short(u: UOp) -> str:
    """A line of text: op, dtype, shape, arg and the ops of the sources."""
    if SYMBOLIC.seen and u.dtype.name == "int32" and not u.is_const and is_symbolic(u):
        return size_text(u)
    arg = "" if u.arg is None else f" {u.arg!r}"
    shape = f" {list(u.shape)}" if u.shape else ""
    return f"<{u.op.name} {u.dtype.name}{shape}{arg} ({', '.join(s.op.name for s in u.src)})>"


def render(u: UOp) -> str:
    """The graph below `u` as Python assignments, sources first; the last line is `u` itself.

    Evaluating the text with `UOp`, `Op` and `dtypes` in scope gives the identical node back.
    """
    order = _with_sizes(u) if SYMBOLIC.seen else toposort(u)
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


def _with_sizes(root: UOp) -> Nodes:
    """The nodes below `root`, sources and the sizes that args hold first."""
    held: list[UOp] = []
    for n in toposort(root):
        mapped(n.arg, held.append)
    return toposort((*held, root))


def _literal(arg: object, names: dict[UOp, str]) -> str:
    if isinstance(arg, tuple) and symbolic_arg(arg):
        return "(" + "".join(f"{names[a] if isinstance(a, UOp) else _literal(a, names)}, " for a in arg).rstrip() + ")"
    if isinstance(arg, float) and (arg != arg or arg in (float("inf"), float("-inf"))):
        return f"float('{arg!r}')"
    return repr(arg)


def encode_graph(root: UOp) -> list[list[Any]]:
    """The graph below `root` as rows, itself last. TypeError if an arg is no plain value (a BUFFER's memory)."""
    order = toposort(root)
    number = ranks(order)
    rows = []
    for u in order:
        row = [u.op.name, u.dtype.name, [number[s] for s in u.src], encode_value(u.arg)]
        rows.append(row if u.tag is None else [*row, encode_value(u.tag)])
    return rows


def decode_graph(rows: Sequence[Sequence[Any]]) -> UOp:
    """The node that `encode_graph` wrote down."""
    return from_rows(
        [
            (ALL[op], by_name(dtype), src, decode_value(arg), decode_value(tag[0]) if tag else None)
            for op, dtype, src, arg, *tag in rows
        ]
    )


def encode_value(value: Any) -> Any:
    """A node's arg as JSON can say it: tuples become lists, ops and floats that have no numeral become objects."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"bits": struct.pack("<d", value).hex()}
    if isinstance(value, tuple):
        return [encode_value(v) for v in value]
    if isinstance(value, Op):
        return {"op": value.name}
    if isinstance(value, UOp):
        return {"graph": encode_graph(value)}
    raise TypeError(f"cannot be written down: {value!r}")


def decode_value(value: Any) -> Any:
    """The value that `encode_value` was given."""
    if isinstance(value, list):
        return tuple([decode_value(v) for v in value])
    if isinstance(value, dict):
        if "op" in value:
            return ALL[value["op"]]
        if "graph" in value:
            return decode_graph(value["graph"])
        return struct.unpack("<d", bytes.fromhex(value["bits"]))[0]
    return value
