"""Graphs over new sources: what is rewritten, what stays, and indices in normal form."""

from __future__ import annotations

from anneal.codegen.ranges import substituted
from anneal.uop import const, dtypes, toposort
from tests.codegen import kernels as K

I32 = dtypes.int32


def test_a_substitution_changes_only_what_depends_on_the_range() -> None:
    i, j = K.loop(4, 0), K.loop(6, 1)
    graph = K.transpose(4, 6)
    replaced = substituted(graph, {i: const(I32, 2)})
    assert all(u is not i for u in toposort((replaced,)))
    assert any(u is j for u in toposort((replaced,)))
