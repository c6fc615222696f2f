"""Opts: choices about a kernel's ranges, as values that `apply.py` applies by a graph rewrite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from anneal.codegen.ranges import SUBGROUP
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.frozen import frozen
from anneal.uop import DType, Nodes, Op, UOp, const, of_op, reduce_identity, toposort
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
    "CHAIN": "`amount` rows, columns or steps of a sum over products that are made of other products, by a workgroup",
    "FUSE_REDUCE": "reduces as long as a loop range are fused into that loop, which is then split as a reduce range is",
}


@frozen
class Opt:
    """One choice: a kind of split (`KINDS`), an axis, and an amount.

    A kernel arrives with "loop" ranges (one iteration per output element) and "reduce" ranges. Each opt splits one
    range, or all loop ranges at once; the pieces carry what happens to them as the kind in the RANGE's arg:

        workgroup   what is left of a loop range: one workgroup per value
        local       threads of a workgroup
        upcast      registers: every value is written out
        reduce      a loop
        unroll      a reduce written out
        written     the same of a reduce with tiles: a loop in all but the text, which repeats its body
        group       threads of a workgroup that share a reduce
        vector      lanes of a vec2 or vec4: a value that depends on it is a vector
        row, column, depth  elements of a matrix that a subgroup holds (`ranges.py`)

    Axes are numbered over the kernel whose loops are coalesced: loop ranges in id order, then reduce ranges in id
    order. A piece is split off the part that is left over, so after LOCAL(0, 16) and UPCAST(0, 4) the range is `(w*4 +
    u)*16 + l`: neighbouring threads touch neighbouring elements. Among threads the opt given first varies fastest. An
    amount need not divide the extent: an index that runs over is clamped, its value never stored, and it adds nothing
    to a reduce.

    >>> Opt("LOCAL", 0, 64)
    Opt(kind='LOCAL', axis=0, amount=64)
    """

    kind: str
    axis: int
    amount: int


def refused(why: str, node: UOp | None = None) -> CompilerError:
    """The error for opts that do not fit a kernel."""
    return CompilerError(why, stage="apply_opts", node=node)


def split(kind: str, axis: int, amount: int) -> list[Opt]:
    """The opt that splits an axis; none for an amount of 1."""
    return [Opt(kind, axis, amount)] if amount > 1 else []


def opts_text(opts: Iterable[Opt]) -> str:
    """Opts on one line.

    >>> opts_text([Opt("LOCAL", 0, 16), Opt("UPCAST", 0, 4)])
    'LOCAL(0,16) UPCAST(0,4)'
    """
    return " ".join(f"{o.kind}({o.axis},{o.amount})" for o in opts)


@frozen
class Axis:
    """One range of a kernel whose loops are coalesced.

    `extent` is None where data decide it. For a symbolic `size` it is a number near the `largest` value, with no more
    divisors than every value has: the rules decide with it.
    """

    range: UOp
    extent: int | None
    size: Size = 0

    @property
    def count(self) -> int:
        """The extent as a number of iterations; 1 where data decide it."""
        return self.extent or 1

    @property
    def largest(self) -> int:
        """The most values that the range can take; 0 where data decide."""
        return most(self.size)

    @property
    def is_loop(self) -> bool:
        return bool(self.range.arg[1] == "loop")


def axes_of(sink: UOp, order: Nodes | None = None) -> list[Axis]:
    """The axes an opt may name, in their numbering. `order` is the nodes of the kernel, where the caller has them."""
    ranges = of_op(order or toposort(sink), Op.RANGE)
    ranges.sort(key=lambda r: (r.arg[1] != "loop", r.arg[0]))
    return [_axis(r) for r in ranges]


def _axis(r: UOp) -> Axis:
    extent = r.src[0]
    if extent.is_const:
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


# ---------------------------------------------------------------------------------------------------------------------
# The candidates of a search: sequences of opts one step away from a given one.
#
# A step changes an amount, trades a factor of two between two opts, leaves an opt out, adds one of any kind in
# `KINDS` to any axis, or lets two opts change places. Most steps fit; code generation refuses the others.


Opts = tuple[Opt, ...]

# Amounts worth trying; of a kind that is not listed, 1.
_AMOUNTS = {
    "FLAT": (32, 64, 128, 256, 512),
    "LOCAL": (2, 4, 8, 16, 32, 64, 128),
    "UPCAST": (2, 4, 8),
    "MERGE": (1, 2, 3),
    "GROUP": (2, 4, 8, 16, 32, 64, 128, 256),
    "UNROLL": (2, 4, 8, 16, 32),
    "VECTORIZE": (2, 4),
    "TILE": (1, 4, 8, 16, 32),
}
_FIRST = frozenset(("MERGE", "VECTORIZE", "FUSE_REDUCE"))  # before other splits of their axis
_NEVER_ALONE = frozenset(("MATRIX", "CHAIN"))  # only where the heuristic has chosen it
_MOST_REGISTERS = 128  # values that one thread keeps
_MOST_COPIES = 1024  # copies of a reduce's body in the text


def neighbours(axes: Sequence[Axis], opts: Opts, target: Target) -> Iterator[Opts]:
    """The sequences one step from `opts` that fit a workgroup and the text of a kernel."""
    seen = {opts}
    for found in _steps(axes, opts):
        if found not in seen and _fits(found, target):
            seen.add(found)
            yield found


def _steps(axes: Sequence[Axis], opts: Opts) -> Iterator[Opts]:
    numbers = range(len(opts))
    for i in numbers:
        yield from (_with(opts, {i: a}) for a in (opts[i].amount * 2, opts[i].amount // 2))
        yield opts[:i] + opts[i + 1 :]
        for j in numbers:
            if i != j and (opts[i].kind == opts[j].kind or opts[i].axis == opts[j].axis) and opts[j].amount > 1:
                yield _with(opts, {i: opts[i].amount * 2, j: opts[j].amount // 2})
            if i < j and opts[i].axis != opts[j].axis:
                swapped = list(opts)
                swapped[i], swapped[j] = opts[j], opts[i]
                yield tuple(swapped)
    taken = {(o.kind, o.axis) for o in opts}
    for kind in (k for k in KINDS if k not in _NEVER_ALONE):
        for n, axis in enumerate(axes[:1] if kind == "FLAT" else axes):
            if (kind, n) in taken or axis.extent is None:
                continue
            for amount in _AMOUNTS.get(kind, (1,)):
                if amount < 2 * axis.extent or kind == "FLAT":
                    new = Opt(kind, n, amount)
                    yield (new, *opts) if kind in _FIRST else (*opts, new)


def _with(opts: Opts, amounts: dict[int, int]) -> Opts:
    return tuple([Opt(o.kind, o.axis, amounts.get(i, o.amount)) for i, o in enumerate(opts)])


def _product(opts: Opts, *kinds: str) -> int:
    return math.prod(o.amount for o in opts if o.kind in kinds)


def threads(opts: Opts) -> int:
    """Threads of a workgroup."""
    shared = max((o.amount for o in opts if o.kind == "GROUP"), default=1)
    return _product(opts, "FLAT", "LOCAL") * shared * (SUBGROUP if any(o.kind == "MATRIX" for o in opts) else 1)


def _fits(opts: Opts, target: Target) -> bool:
    registers = _product(opts, "UPCAST", "VECTORIZE")
    return (
        all(o.amount >= 1 for o in opts)
        and threads(opts) <= target.max_threads
        and registers <= _MOST_REGISTERS
        and registers * _product(opts, "UNROLL") <= _MOST_COPIES
    )


def work(axes: Sequence[Axis], opts: Opts) -> tuple[int, int]:
    """About how often the innermost body runs, in one thread and in all, as if every reduce were inside the others."""
    fused = {o.axis for o in opts if o.kind == "FUSE_REDUCE"}
    joined = {axes[n].extent for n in fused}
    serial = math.prod(a.count for n, a in enumerate(axes) if n in fused or not (a.is_loop or a.extent in joined))
    outputs = math.prod(a.count for n, a in enumerate(axes) if a.is_loop and n not in fused)
    shared = max((o.amount for o in opts if o.kind == "GROUP"), default=1)
    return serial * _product(opts, "UPCAST") // shared, serial * outputs
