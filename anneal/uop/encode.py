"""Graphs as plain data (lists, strings, numbers), and back to the identical nodes.

A row is [op, dtype, sources, arg] or [op, dtype, sources, arg, tag], sources by row number and before what uses them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from anneal.uop.dtype import by_name
from anneal.uop.node import UOp, toposort
from anneal.uop.ops import ALL, Op
from anneal.uop.sizes import is_symbolic


def encode_graph(root: UOp) -> list[list[Any]]:
    """The graph below `root` as rows, itself last. TypeError if an arg is no plain value (a BUFFER's memory)."""
    order = toposort((root,))
    number = {u: i for i, u in enumerate(order)}
    rows = []
    for u in order:
        row = [u.op.name, u.dtype.name, [number[s] for s in u.src], encode_value(u.arg)]
        rows.append(row if u.tag is None else [*row, encode_value(u.tag)])
    return rows


def decode_graph(rows: Sequence[Sequence[Any]]) -> UOp:
    """The node that `encode_graph` wrote down."""
    made: list[UOp] = []
    for op, dtype, src, arg, *tag in rows:
        made.append(
            UOp(
                ALL[op],
                by_name(dtype),
                tuple([made[i] for i in src]),
                decode_value(arg),
                decode_value(tag[0]) if tag else None,
            )
        )
    return made[-1]


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
    if isinstance(value, UOp) and is_symbolic(value):
        return {"size": encode_graph(value)}
    raise TypeError(f"cannot be written down: {value!r}")


def decode_value(value: Any) -> Any:
    """The value that `encode_value` was given."""
    if isinstance(value, list):
        return tuple([decode_value(v) for v in value])
    if isinstance(value, dict):
        if "op" in value:
            return ALL[value["op"]]
        if "size" in value:
            return decode_graph(value["size"])
        return struct.unpack("<d", bytes.fromhex(value["bits"]))[0]
    return value
