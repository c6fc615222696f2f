"""Opts: choices about a kernel's ranges, as values that `apply.py` applies by a graph rewrite.

A kernel arrives with "loop" ranges (one iteration per output element) and "reduce" ranges. Each opt splits one range,
or all loop ranges at once; the pieces carry what happens to them as the kind in the RANGE's arg:

    workgroup   what is left of a loop range: one workgroup per value
    local       threads of a workgroup
    upcast      registers: every value is written out
    reduce      a loop
    unroll      a reduce written out
    written     the same of a reduce with tiles: a loop in all but the text, which repeats its body
    group       threads of a workgroup that share a reduce
    vector      lanes of a vec2 or vec4: a value that depends on it is a vector
    row, column, depth  elements of a matrix that a subgroup holds (`fragments.py`)

Axes are numbered over the kernel whose loops are coalesced: loop ranges in id order, then reduce ranges in id order. A
piece is split off the part that is left over, so after LOCAL(0, 16) and UPCAST(0, 4) the range is `(w*4 + u)*16 + l`:
neighbouring threads touch neighbouring elements. Among threads the opt given first varies fastest. An amount need not
divide the extent: an index that runs over is clamped, its value never stored, and it adds nothing to a reduce.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anneal.uop import DType, Op, UOp, const, reduce_identity, toposort
from anneal.uop.sizes import Size, content, is_symbolic, most

KINDS = {
    "FLAT": "all loop ranges become one, `amount` of its values to a workgroup",
    "LOCAL": "`amount` values of a loop range go to the threads of a workgroup",
    "UPCAST": "`amount` values of a loop range go to registers of one thread",
    "MERGE": "a reduce range takes in the `amount` ranges after it in its reduce, as digits of one mixed-radix index",
    "GROUP": "`amount` threads share a reduce range",
    "UNROLL": "`amount` values of a reduce range are written out",
    "VECTORIZE": "`amount` (2 or 4) neighbouring values of a range become the lanes of a vector",
    "TILE": "operands of a reduce wait in workgroup memory, for `amount` iterations of its innermost loop at a time",
    "PREFETCH": "the next tiles of a TILE wait in registers while the present ones are used; 2: double buffering",
    "MATRIX": "`amount` values of a loop or reduce range are the rows, the columns or the depth of a subgroup matrix",
    "FUSE_REDUCE": "reduces as long as a loop range are fused into that loop, which is then split as a reduce range is",
}


@dataclass(frozen=True, slots=True)
class Opt:
    """One choice: a kind of split (`KINDS`), an axis, and an amount.

    >>> Opt("LOCAL", 0, 64)
    Opt(kind='LOCAL', axis=0, amount=64)
    """

    kind: str
    axis: int
    amount: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One range of a kernel whose loops are coalesced.

    `extent` is None where data decide it. For a symbolic `size` it is a number near the `largest` value, with no more
    divisors than every value has: the rules decide with it.
    """

    range: UOp
    extent: int | None
    size: Size = 0

    @property
    def largest(self) -> int:
        """The most values that the range can take; 0 where data decide."""
        return most(self.size)

    @property
    def is_loop(self) -> bool:
        return bool(self.range.arg[1] == "loop")


def axes_of(sink: UOp, order: Sequence[UOp] | None = None) -> list[Axis]:
    """The axes an opt may name, in their numbering. `order` is the nodes of the kernel, where the caller has them."""
    ranges = [u for u in order or toposort((sink,)) if u.op is Op.RANGE]
    ranges.sort(key=lambda r: (r.arg[1] != "loop", r.arg[0]))
    return [_axis(r) for r in ranges]


def _axis(r: UOp) -> Axis:
    extent = r.src[0]
    if extent.op is Op.CONST:
        return Axis(r, int(extent.arg), int(extent.arg))
    return Axis(r, typical(extent), extent) if is_symbolic(extent) else Axis(r, None)


def typical(n: UOp) -> int:
    """About the largest value of a symbolic extent, divisible by what divides all of them and by little else."""
    unit = content(n)
    count = most(n) // unit
    while count > 2 and not all(count % d for d in range(2, math.isqrt(count) + 1)):
        count -= 1
    return unit * count


def identity(op: Op, dtype: DType) -> UOp:
    """The initial value of a reduce."""
    return const(dtype, reduce_identity(op, dtype))
