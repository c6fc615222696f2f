"""Elementwise kernels, and what is left over: one flat index, short reduces written out."""

from __future__ import annotations

from anneal.codegen.heuristics.facts import ENOUGH_THREADS, Facts
from anneal.codegen.lower import Target
from anneal.codegen.opts import Opt

__all__ = ["flat", "short_reduces"]


def flat(facts: Facts, target: Target) -> tuple[Opt, ...]:
    if not any(a.is_loop for a in facts.axes):
        return ()
    wide = 256 if facts.outputs >= ENOUGH_THREADS else 64
    return (Opt("FLAT", 0, min(wide, target.max_threads, max(1, facts.outputs))),)


def short_reduces(facts: Facts) -> list[Opt]:
    """Write out reduces of a few elements: a loop costs more than its body, and indices become constants."""
    opts = []
    nodes = facts.nodes
    for i, a in enumerate(facts.axes):
        if not a.is_loop and a.extent and a.extent <= 5 and nodes * a.extent <= 512:
            opts.append(Opt("UNROLL", i, a.extent))
            nodes *= a.extent
    return opts
