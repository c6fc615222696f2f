"""Chains of products: how many rows and columns a workgroup takes at a time.

The first split of a list that the target's workgroup memory and threads have room for. More rows read a column's
factors less often; the memory decides how many workgroups run side by side.
"""

from __future__ import annotations

from anneal.codegen.chain import Chain, Split, bytes_of, chain_of
from anneal.codegen.heuristics.facts import Facts
from anneal.codegen.opts import Opt
from anneal.codegen.ranges import SUBGROUP, extent
from anneal.codegen.target import MatrixShape, Target
from anneal.uop import Op, UOp, dtypes, toposort

_SHAPE = MatrixShape("float16", "float32", 16, 16, 16)
# On an H200, of 4 x 16 heads of 4096 x 64, causal, ms with 4 subgroups and with 8: maximum 0.69 and 0.60, sum 0.71 and
# 0.65, one score and a product 1.23 and 0.98, two scores and one product (64 rows, 4 subgroups) 1.99 and 1.65, and two
# 2.79 and 2.58. 256 rows or 32 columns at a time were slower.
_MATRICES = (Split(128, 16, 16, 8, 1, True), Split(64, 16, 16, 4, 1, True), Split(32, 16, 16, 2, 1, True))
_THREADS = (Split(64, 64, 8, 8, 16), Split(64, 32, 8, 8, 16), Split(32, 32, 8, 8, 8))
_STATISTICS = Split(64, 64, 16, 8, 16)


def chains(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Opts for a kernel whose products are made of other products, if it is one."""
    if len(facts.reduces) < 2:
        return None
    chain = chain_of(facts.stores, toposort(facts.stores))
    if chain is None:
        return None
    axes: list[UOp] = [a.range for a in facts.axes]
    threads = _THREADS if chain.d is not None else (_STATISTICS, *_THREADS)
    by_matrices = _SHAPE in target.matrices and target.subgroup == SUBGROUP and _is_narrow(chain)
    matrices = _MATRICES if by_matrices else ()
    for split in (*matrices, *threads):
        count = split.down * (SUBGROUP if split.by_matrices else split.across)
        if count <= target.max_threads and bytes_of(chain, split) <= target.workgroup_bytes:
            found: tuple[Opt, ...] = split.opts(chain, axes)
            return found
    return None


def _is_narrow(chain: Chain) -> bool:
    """True if all that is multiplied comes from float16 numbers."""
    factors = [f for s in chain.scores for f in chain.factors(s)]
    factors += [x for u in chain.reductions if (x := chain.product(u)[1]) is not None]
    for f in factors:
        while f.op in (Op.MUL, Op.DIV):
            f = f.src[0]
        if f.op is not Op.CAST or f.src[0].dtype is not dtypes.float16:
            return False
    return all(extent(e) >= 16 for e in chain.depths)
