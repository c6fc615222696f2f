"""Rows: reduces that run over the loop range of the values made from them.

A softmax reduces its rows over a range of their own, `k`, and stores over the loop range `j`; both count the same
elements. Once the reduces run over `j` itself, whatever becomes of `j` (threads, registers, vectors) becomes of all of
them: a thread keeps its part of the row in registers, since the load for the reduce and the load for the store are one
node.
"""

from __future__ import annotations

from collections.abc import Sequence

from anneal.codegen.affine import replaced
from anneal.uop import UOp

__all__ = ["join_row", "row_reduces"]


def row_reduces(reduces: Sequence[UOp], row: UOp) -> set[UOp]:
    """The ranges of `reduces` that may become the loop range `row`: as long, alone in a reduce, whose terms use no two."""
    fit: set[UOp] = set()
    unfit: set[UOp] = set()
    for u in reduces:
        good = len(u.src) == 2 and u.src[1].src[0] is row.src[0] and u.src[1].arg[1] == "reduce"
        (fit if good else unfit).update(u.src[1:])
    fit -= unfit
    bits = sum(1 << r.arg[0] for r in (row, *fit))
    for u in reduces:
        if u.src[0].ranges & bits & ~(1 << u.src[1].arg[0]):
            fit -= {*u.src[1:]}
    return fit


def join_row(sink: UOp, row: UOp, reduces: set[UOp]) -> UOp:
    """The kernel with `row` in the place of the ranges `reduces`."""
    return replaced(sink, dict.fromkeys(reduces, row))
