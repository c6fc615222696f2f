"""Chains: kernels that sum products whose one factor is made of other products (`anneal/schedule/fusion/chains.py`).

    out[r, d] = sum over c of f(sum over e of a[r, e] * b[c, e], ...) * x[c, d]

A kernel may have several such sums over the same scores, or reduce `f` itself over c. With the opts

    CHAIN(r, R) CHAIN(c, C) CHAIN(e, E)    a workgroup's rows, the scores' columns at a time, and the depth of a step
    LOCAL(r, L) LOCAL(c, F)                L by F threads
    LOCAL(r, L) MATRIX(r, 16)              L subgroups, by subgroup matrices

it becomes one in which a workgroup computes R rows of results, over all of d. For each C columns it sums R by C scores;
puts what `f` makes of them into workgroup memory; and multiplies that with C rows of `x`. Columns that a comparison of
indices rules out for all rows of a workgroup (above a diagonal) are left out. `chained.py` makes the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anneal.codegen.opts import Opt
from anneal.codegen.ranges import extent, mask_of
from anneal.errors import CompilerError
from anneal.uop import Op, UOp, dtypes, toposort

_F32 = dtypes.float32
LANES = 4
SIDE = 16  # rows and columns of a subgroup matrix
GAP = 8  # elements of float16 between two rows in workgroup memory


def refused(why: str, node: UOp | None = None) -> CompilerError:
    return CompilerError(f"CHAIN: {why}", stage="apply_opts", node=node)


@dataclass(frozen=True, slots=True)
class Chain:
    """A kernel that is a chain: its reductions over `c`, the scores below them, and the ranges.

    `d` is the loop over the width of results; None for reductions of what is made of the scores.
    """

    reductions: tuple[UOp, ...]
    scores: tuple[UOp, ...]
    r: UOp
    c: UOp
    d: UOp | None

    @property
    def depths(self) -> tuple[UOp, ...]:
        """The ranges over which scores are summed."""
        return tuple(sorted({s.src[1] for s in self.scores}, key=lambda x: int(x.arg[0])))

    def factors(self, score: UOp) -> tuple[UOp, UOp]:
        """The factor of a score over rows, and the one over columns."""
        a, b = score.src[0].src
        return (a, b) if a.ranges >> self.r.arg[0] & 1 else (b, a)

    def product(self, reduction: UOp) -> tuple[UOp, UOp | None]:
        """The factor that is made of the scores, and the other one, if there is one."""
        value = reduction.src[0]
        if self.d is None:
            return value, None
        a, b = value.src
        return (b, a) if a.ranges >> self.d.arg[0] & 1 else (a, b)


def scaled(value: UOp, inner: UOp) -> tuple[UOp, tuple[Op, UOp] | None]:
    """A factor without what it is multiplied with or divided by, if that does not depend on the range `inner`."""
    if value.op in (Op.MUL, Op.DIV) and not value.src[1].ranges >> inner.arg[0] & 1:
        return value.src[0], (value.op, value.src[1])
    return value, None


def chain_of(stores: Sequence[UOp], order: Sequence[UOp]) -> Chain | None:
    """The kernel as a chain, if it is one that this room can make."""
    reduces = [u for u in order if u.op is Op.REDUCE]
    if any(len(u.src) != 2 or u.dtype is not _F32 or u.src[1].src[0].op is not Op.CONST for u in reduces):
        return None
    below: dict[UOp, set[UOp]] = {u: set() for u in reduces}  # the reduces that one is made of
    made: dict[UOp, frozenset[UOp]] = {}
    for u in order:
        mine = frozenset().union(*[made[s] for s in u.src])
        if u.op is Op.REDUCE:
            below[u] = set(mine)
            mine = mine | {u}
        made[u] = mine
    scores = [u for u in reduces if not below[u] and any(u in below[v] for v in reduces)]
    reductions = [u for u in reduces if u not in scores]
    if not scores or len({u.src[1] for u in reductions}) != 1:
        return None
    c = reductions[0].src[1]
    loops = [u for u in order if u.op is Op.RANGE and u.arg[1] == "loop"]
    if any(u.src[0].op is not Op.CONST for u in loops):
        return None
    return _with_loops(stores, tuple(reductions), tuple(scores), c, loops)


def _with_loops(
    stores: Sequence[UOp], reductions: tuple[UOp, ...], scores: tuple[UOp, ...], c: UOp, loops: list[UOp]
) -> Chain | None:
    rows = set(loops)
    for s in scores:
        if s.arg is not Op.ADD or s.src[0].op is not Op.MUL:
            return None
        a, b = s.src[0].src
        if b.ranges >> c.arg[0] & 1 == a.ranges >> c.arg[0] & 1:
            return None
        left, right = (a, b) if b.ranges >> c.arg[0] & 1 else (b, a)
        rows &= {r for r in loops if left.ranges >> r.arg[0] & 1 and not right.ranges >> r.arg[0] & 1}
    if not rows:
        return None
    r = max(rows, key=lambda r: (extent(r), r.arg[0]))
    wide = [x for x in loops if not any(s.ranges >> x.arg[0] & 1 for s in scores)]
    if len(wide) > 1:
        return None
    d = wide[0] if wide else None
    chain = Chain(reductions, scores, r, c, d)
    bits = mask_of([r, *wide])
    if any(s.ranges & bits != bits or s.src[1].ranges & bits != bits for s in stores):
        return None
    for u in reductions:
        if d is None:
            if any(v in reductions for v in toposort((u.src[0],))):
                return None
            continue
        if u.arg is not Op.ADD or u.src[0].op is not Op.MUL:
            return None
        f, x = chain.product(u)
        if x is None or not x.ranges >> d.arg[0] & 1 or x.ranges >> r.arg[0] & 1 or not x.ranges >> c.arg[0] & 1:
            return None
        if f.ranges >> d.arg[0] & 1 or any(v in reductions for v in toposort((u.src[0],))):
            return None
    return chain


# -- opts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of a workgroup, columns at a time, depth of a step; and threads along the rows of results, and across.

    By matrices, `down` counts subgroups, and `across` is 1.
    """

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    by_matrices: bool = False

    def opts(self, chain: Chain, axes: Sequence[UOp]) -> tuple[Opt, ...]:
        """The opts that say so."""
        r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
        steps = [Opt("CHAIN", e, self.depth) for e in deep]
        blocks = (Opt("CHAIN", r, self.rows), Opt("CHAIN", c, self.columns), *steps, Opt("LOCAL", r, self.down))
        return (*blocks, Opt("MATRIX", r, SIDE)) if self.by_matrices else (*blocks, Opt("LOCAL", c, self.across))


def bytes_of(chain: Chain, split: Split) -> int:
    """Bytes of workgroup memory that a kernel takes, at most."""
    products = len(chain.reductions)
    width = 0 if chain.d is None else extent(chain.d)
    if split.by_matrices:
        depths = [-(-extent(s.src[1]) // SIDE) * SIDE for s in chain.scores]
        wide = max(*depths, -(-width // SIDE) * SIDE)
        tile = max(split.rows * split.columns, split.down * SIDE * SIDE)
        single = tile * (len(chain.scores) + (products if chain.d is None else 0))
        half = (len(chain.scores) + products) * split.columns * (wide + GAP)
        if chain.d is not None:
            half += products * split.rows * (split.columns + GAP)
        if extent(chain.r) % split.rows or any(extent(e) % SIDE for e in chain.depths):  # left factors wait, too
            half += sum(split.rows * (n + GAP) for n in depths)
        return 4 * single + 2 * half
    wide = -(-width // (split.across * LANES)) * split.across * LANES
    pad = 4 * LANES
    steps = split.depth * (split.rows + split.columns + 2 * pad) * len(chain.scores)
    if chain.d is None:
        return 4 * (steps + products * split.down * split.rows)
    return 4 * (steps + products * (split.columns * (split.rows + LANES) + split.depth * (wide + pad)))


def split_of(opts: Sequence[Opt], chain: Chain, axes: Sequence[UOp]) -> Split:
    amounts = {(o.kind, o.axis): o.amount for o in opts}
    r, c, *deep = (axes.index(x) for x in (chain.r, chain.c, *chain.depths))
    by_matrices = ("MATRIX", r) in amounts
    wanted = [
        ("CHAIN", r),
        ("CHAIN", c),
        ("CHAIN", deep[0]),
        ("LOCAL", r),
        ("MATRIX", r) if by_matrices else ("LOCAL", c),
    ]
    steps = {amounts.get(("CHAIN", e)) for e in deep}
    if set(amounts) != {*wanted, *[("CHAIN", e) for e in deep]} or len(amounts) != len(opts) or len(steps) > 1:
        raise refused("it takes the axes of rows, columns and depth, with a LOCAL of rows and columns")
    s = Split(amounts[wanted[0]], amounts[wanted[1]], amounts[wanted[2]], amounts[wanted[3]], amounts[wanted[4]])
    if by_matrices:
        s = replace(s, across=1, by_matrices=True)
        if s.rows % (s.down * SIDE) or s.columns % SIDE or amounts["MATRIX", r] != SIDE:
            raise refused(f"{s} does not divide into matrices")
        return s
    if min(amounts.values()) < 1 or s.rows % (s.across * LANES) or s.rows % s.down or s.columns % s.down:
        raise refused(f"{s} does not divide into threads")
    if s.depth % LANES or s.columns % s.depth:
        raise refused(f"{s.columns} columns are no multiple of a depth of {s.depth}, or that not of {LANES}")
    return s
