"""Elementwise kernels, and what is left over: one flat index, short reduces written out."""

from __future__ import annotations

from anneal.codegen.heuristics.facts import ENOUGH_THREADS, Facts
from anneal.codegen.lower import Target
from anneal.codegen.opts import Opt

__all__ = ["flat", "written_out"]


_ENOUGH_WORDS = 1 << 17  # outputs for which threads that move four words each are enough threads
_IN_FLIGHT = 8  # loads of a loop that a thread has under way at once
_NODES = 512


def flat(facts: Facts, target: Target) -> tuple[Opt, ...]:
    """One flat index over the outputs, neighbours as lanes of a vector where memory allows."""
    loops = [i for i, a in enumerate(facts.axes) if a.is_loop]
    if not loops:
        return ()
    opts = []
    outputs = facts.outputs
    if outputs >= _ENOUGH_WORDS:
        wide = facts.lanes([facts.axes[loops[-1]].range])
        if wide > 1:
            opts.append(Opt("VECTORIZE", loops[-1], wide))
            outputs //= wide
    threads = 256 if outputs >= ENOUGH_THREADS else 64
    return (*opts, Opt("FLAT", 0, min(threads, target.max_threads, max(1, outputs))))


def written_out(facts: Facts) -> list[Opt]:
    """Reduces of a few elements whole: a loop costs more than its body, and indices become constants. Of others some
    turns at once, so that their loads do not wait for each other."""
    opts = []
    nodes = facts.nodes
    for i, a in enumerate(facts.axes):
        if a.is_loop or not a.extent or a.extent == 1:
            continue
        few = a.extent if a.extent <= 2 * _IN_FLIGHT and nodes * a.extent <= _NODES else 0
        amount = few or next((n for n in (_IN_FLIGHT, 6, 5, 4) if a.extent % n == 0), 4)
        if nodes * amount <= _NODES:
            opts.append(Opt("UNROLL", i, amount))
            nodes *= amount
    return opts
