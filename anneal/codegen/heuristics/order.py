"""The rules in order; the first that applies decides."""

from __future__ import annotations

import math

from anneal.codegen.heuristics.elementwise import flat, transposed, unrolled
from anneal.codegen.heuristics.facts import Facts
from anneal.codegen.heuristics.matmul import matmul
from anneal.codegen.heuristics.matrices import matrices
from anneal.codegen.heuristics.reduces import shared_reduce
from anneal.codegen.heuristics.rows import fused_reduces
from anneal.codegen.opts import Opt, axes_of
from anneal.codegen.target import Target
from anneal.uop import Op, UOp, dtypes, toposort


def choose(sink: UOp, target: Target) -> tuple[Opt, ...]:
    """Opts for a kernel whose loops are coalesced."""
    order = toposort((sink,))
    axes = axes_of(sink, order)
    if any(a.is_loop and a.extent is None for a in axes):
        return ()
    facts = Facts(
        axes,
        math.prod(a.extent or 1 for a in axes if a.is_loop),
        [u for u in order if u.op is Op.REDUCE],
        [u for u in order if u.op is Op.LOAD],
        sink.src,
        len(order),
        [u for u in order if u.op is Op.LT and u.src[0].dtype is dtypes.int32],
    )
    for rule in (matrices, matmul, fused_reduces, shared_reduce, transposed):
        opts = rule(facts, target)
        if opts is not None:
            return opts
    return (*unrolled(facts), *flat(facts, target))
