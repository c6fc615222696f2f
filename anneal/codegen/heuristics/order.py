"""The rules in order; the first that applies decides."""

from __future__ import annotations

import math

from anneal.codegen.chain import Chain, Split, bytes_of, chain_of
from anneal.codegen.heuristics.facts import ENOUGH_THREADS, Facts
from anneal.codegen.heuristics.matmul import matmul, matrices, registers
from anneal.codegen.heuristics.reduces import fused_reduces, shared_reduce
from anneal.codegen.opts import Opt, Opts, axes_of, split
from anneal.codegen.ranges import SUBGROUP, extent, form
from anneal.codegen.target import HALVES, Target
from anneal.uop import Op, UOp, dtypes, of_op, toposort

_ENOUGH_WORDS = 1 << 17  # outputs for which threads that move four words each are enough threads
_WORDS = 4  # that a thread should move
_BYTES_APART = 32  # ... of one- or two-byte elements
_IN_FLIGHT = 8  # loads of a loop that a thread has under way at once
_NODES = 512

# ---------------------------------------------------------------------------------------------------------------------
# Elementwise kernels, and those that no other rule takes: one flat index, short reduces unrolled.


def transposed(facts: Facts, target: Target) -> Opts | None:
    """Values read along one axis and stored along another: blocks of registers, read and stored by whole vectors."""
    loops = [i for i, _ in facts.loops]
    if len(loops) < 2 or facts.reduces or facts.outputs < _ENOUGH_WORDS:
        return None
    j = facts.axes[loops[-1]]
    along = [form(u.src[1])[0] for u in facts.loads if u.varies_over(j.range)]
    across = [f for f in along if f.get(j.range) not in (None, 1)]
    i = next((i for i in reversed(loops[:-1]) if any(f.get(facts.axes[i].range) == 1 for f in across)), None)
    if i is None or any(not s.varies_over(facts.axes[i].range) for s in facts.stores):
        return None
    wide = facts.lanes([j.range], facts.stores)
    opts = split("VECTORIZE", loops[-1], wide)
    columns, down = 8 if wide > 1 else 32, facts.axes[i].count
    tall = next((n for n in (8, 4, 2, 1) if down % (4 * n) == 0), 8)  # else the last block would read past the end
    return (*opts, Opt("UPCAST", i, 4), Opt("LOCAL", loops[-1], columns), Opt("LOCAL", i, tall))


def flat(facts: Facts, target: Target) -> Opts:
    """A flat index over the outputs; with many outputs, several words for a thread: as the lanes of a vector where
    memory allows, else from several rows.
    """
    loops = [i for i, _ in facts.loops]
    if not loops:
        return ()
    opts = []
    outputs = facts.outputs
    if outputs >= _ENOUGH_WORDS or facts.packed:
        last = [facts.axes[loops[-1]].range]
        wide = facts.lanes(last)
        if wide == 1 and facts.packed:
            wide = facts.lanes(last, facts.packed)
        opts += split("VECTORIZE", loops[-1], wide)
        outer = [i for i in loops[:-1] if facts.axes[i].count % (_WORDS // wide) == 0]
        if wide < _WORDS and outer and not facts.reduces and facts.nodes * _WORDS <= _NODES:
            opts.append(Opt("UPCAST", outer[-1], _WORDS // wide))
            outputs //= _WORDS // wide
        outputs //= wide
        apart = _vectors_apart(facts, loops, wide)
        if apart > 1:
            return (*opts, Opt("LOCAL", loops[-1], min(256, target.max_threads)), Opt("UPCAST", loops[-1], apart))
    threads = 256 if outputs >= ENOUGH_THREADS else 64
    return (*opts, Opt("FLAT", 0, min(threads, target.max_threads, max(1, outputs))))


def _vectors_apart(facts: Facts, loops: list[int], wide: int) -> int:
    """The number of vectors of narrow elements that a thread moves, each next to its neighbours': one such vector is
    short.
    """
    size = max(u.dtype.itemsize for u in (*facts.loads, *facts.stores))
    if len(loops) > 1 or facts.reduces or wide < _WORDS or size > 2:
        return 1
    amount = _BYTES_APART // (wide * size)
    fits = facts.outputs >= ENOUGH_THREADS * wide * amount and facts.nodes * amount <= _NODES
    return amount if fits else 1


def unrolled(facts: Facts) -> list[Opt]:
    """Reduces of a few elements whole: a loop costs more than its body, and indices become constants. Of others some
    iterations at once, so that their loads do not wait for each other."""
    opts = []
    nodes = facts.nodes
    for i, a in enumerate(facts.axes):
        if a.is_loop or not a.extent or a.extent == 1:
            continue
        few = a.largest if a.largest <= 2 * _IN_FLIGHT and nodes * a.largest <= _NODES else 0
        amount = few or next((n for n in (_IN_FLIGHT, 6, 5, 4) if a.extent % n == 0), 4)
        if nodes * amount <= _NODES:
            opts.append(Opt("UNROLL", i, amount))
            nodes *= amount
    return opts


# ---------------------------------------------------------------------------------------------------------------------


def choose(sink: UOp, target: Target) -> Opts:
    """Opts for a kernel whose loops are coalesced."""
    order = toposort(sink)
    axes = axes_of(sink, order)
    if any(a.is_loop and a.extent is None for a in axes):
        return ()
    facts = Facts(
        axes,
        math.prod(a.count for a in axes if a.is_loop),
        of_op(order, Op.REDUCE),
        of_op(order, Op.LOAD),
        sink.src,
        len(order),
        [u for u in order if u.op is Op.LT and u.src[0].dtype is dtypes.int32],
    )
    together = (chains, matrices, matmul, fused_reduces, shared_reduce, transposed)
    for rule in together if target.barriers else (registers,):
        opts = rule(facts, target)
        if opts is not None:
            return opts
    return (*unrolled(facts), *flat(facts, target))


# -- chains of products -----------------------------------------------------------------------------------------------
# How many rows and columns a workgroup takes at a time.
#
# The first split of a list that the target's workgroup memory and threads have room for. More rows read a column's
# factors less often; the memory decides how many workgroups run side by side.


# On an H200, of 4 x 16 heads of 4096 x 64, causal, ms with 4 subgroups and with 8: maximum 0.69 and 0.60, sum 0.71 and
# 0.65, one score and a product 1.23 and 0.98, two scores and one product (64 rows, 4 subgroups) 1.99 and 1.65, and two
# 2.79 and 2.58. 256 rows or 32 columns at a time were slower.
_MATRICES = (Split(128, 16, 16, 8, 1, True), Split(64, 16, 16, 4, 1, True), Split(32, 16, 16, 2, 1, True))
_THREADS = (Split(64, 64, 8, 8, 16), Split(64, 32, 8, 8, 16), Split(32, 32, 8, 8, 8))
_STATISTICS = Split(64, 64, 16, 8, 16)


def chains(facts: Facts, target: Target) -> Opts | None:
    """Opts for a kernel whose products are made of other products, if it is one."""
    if len(facts.reduces) < 2:
        return None
    chain = chain_of(facts.stores, toposort(facts.stores))
    if chain is None:
        return None
    axes = [a.range for a in facts.axes]
    threads = _THREADS if chain.d is not None else (_STATISTICS, *_THREADS)
    by_matrices = HALVES in target.matrices and target.subgroup == SUBGROUP and _is_narrow(chain)
    matrices = _MATRICES if by_matrices else ()
    for way in (*matrices, *threads):
        count = way.down * (SUBGROUP if way.by_matrices else way.across)
        if count <= target.max_threads and bytes_of(chain, way) <= target.workgroup_bytes:
            found: Opts = way.opts(chain, axes)
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
