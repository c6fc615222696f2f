"""Loop coalescing: ranges become one where every index uses them as one, and only there."""

from __future__ import annotations

from anneal.codegen.coalesce import coalesce
from anneal.uop import Op, toposort
from tests.codegen import kernels as K


def test_merges_contiguous_ranges() -> None:
    ranges = [u for u in toposort((coalesce(K.adam(10)),)) if u.op is Op.RANGE]
    assert len(ranges) == 1
    i, j = K.loop(4, 0), K.loop(6, 1)
    at = i * 6 + j
    merged = coalesce(K.sink(K.store(K.param(0, 24), at, K.load(K.param(1, 24), at))))
    f = K.loop(24, 1)
    assert merged is K.sink(K.store(K.param(0, 24), f, K.load(K.param(1, 24), f)))


def test_leaves_ranges_that_are_used_apart() -> None:
    for graph in (
        K.transpose(4, 6),
        K.elementwise(4, 6),
        K.matmul(8, 9, 10),
        K.logsumexp(4, 6),
        K.segment_sum(3, 4, 5),
    ):
        assert coalesce(graph) is graph


def test_merges_reduce_ranges_and_batches() -> None:
    b, t, c = K.over(3, 1), K.over(5, 2), K.loop(7, 0)
    x = K.load(K.param(1, 105), b * 35 + t * 7 + c)
    merged = coalesce(K.sink(K.store(K.param(0, 7), c, K.reduce(Op.ADD, x, b, t))))
    extents = sorted(int(u.src[0].arg) for u in toposort((merged,)) if u.op is Op.RANGE)
    assert extents == [7, 15]
