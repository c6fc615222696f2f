"""CHAIN: the kernel of a chain (`chain.py`), by threads or by subgroup matrices."""

from __future__ import annotations

from collections.abc import Sequence

from anneal.codegen.chain import chain_of, refused, split_of
from anneal.codegen.chained_matrices import Matrices
from anneal.codegen.chained_threads import Threads
from anneal.codegen.opts import Opt, axes_of
from anneal.uop import UOp, toposort


def is_chained(opts: Sequence[Opt]) -> bool:
    """Do `opts` ask for a chain?"""
    return any(o.kind == "CHAIN" for o in opts)


def chained(sink: UOp, opts: Sequence[Opt]) -> UOp:
    """The kernel with `opts`, which ask for CHAIN. Raises CompilerError if they do not fit it."""
    chain = chain_of(sink.src, toposort((sink,)))
    if chain is None:
        raise refused("the kernel is no chain of products")
    split = split_of(opts, chain, [a.range for a in axes_of(sink)])
    return (Matrices if split.by_matrices else Threads)(sink, chain, split).kernel()
