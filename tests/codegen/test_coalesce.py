"""Loop coalescing: ranges become one where every index uses them as one, and only there."""

from __future__ import annotations

from anneal.codegen.coalesce import coalesce
from anneal.uop import Op, UOp, toposort
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


def copied(at: UOp, slots: int, *more: UOp) -> UOp:
    return K.sink(K.store(K.param(0, slots), at, K.load(K.param(1, slots), at)), *more)


def extents(graph: UOp) -> list[int]:
    return sorted(int(u.src[0].arg) for u in toposort((graph,)) if u.op is Op.RANGE and u.src[0].op is Op.CONST)


def test_a_row_of_ranges_becomes_one() -> None:
    i, j, k = K.loop(2, 0), K.loop(3, 1), K.loop(5, 2)
    assert extents(coalesce(copied(i * 15 + j * 5 + k, 30))) == [30]
    assert extents(coalesce(copied(i * 30 + j * 5 + k, 60))) == [2, 15], "rows with gaps between them stay rows"


def test_a_stride_that_does_not_fit_keeps_ranges_apart() -> None:
    i, j = K.loop(4, 0), K.loop(6, 1)
    for at, slots in ((i * 8 + j, 32), (i + j * 4, 24), (i * 6 + j * 2, 32)):
        graph = copied(at, slots)
        assert coalesce(graph) is graph


def test_one_other_use_keeps_ranges_apart() -> None:
    i, j = K.loop(4, 0), K.loop(6, 1)
    graph = copied(i * 6 + j, 24, K.store(K.param(2, 24), i * 6 + j, K.load(K.param(3, 4), i)))
    assert coalesce(graph) is graph
    as_number = K.sink(K.store(K.param(0, 24), i * 6 + j, j.cast(K.F32)))
    assert coalesce(as_number) is as_number


def test_loops_and_reduces_are_never_one() -> None:
    i, k = K.loop(4, 0), K.over(6, 1)
    graph = K.sink(K.store(K.param(0, 4), i, K.reduce(Op.ADD, K.load(K.param(1, 24), i * 6 + k), k)))
    assert coalesce(graph) is graph
    both = K.sink(K.store(K.param(0, 1), 0, K.reduce(Op.ADD, K.load(K.param(1, 24), i * 6 + k), i, k)))
    assert coalesce(both) is both, "ranges of other kinds beside each other"


def test_reduce_ranges_join_only_if_they_stand_side_by_side_in_every_reduce() -> None:
    c, a, b = K.loop(7, 0), K.over(3, 1), K.over(5, 2)
    x = K.load(K.param(1, 105), a * 35 + b * 7 + c)
    one = K.store(K.param(0, 7), c, K.reduce(Op.ADD, x, a, b))
    assert extents(coalesce(K.sink(one))) == [7, 15]
    alone = K.store(K.param(2, 7), c, K.reduce(Op.ADD, K.load(K.param(3, 35), b * 7 + c), b))
    assert extents(coalesce(K.sink(one, alone))) == [3, 5, 7], "another reduce has one of them by itself"
    for ranges in ((b,), (a,)):  # also where the index does not tell: b is summed over, whatever c is
        repeated = K.reduce(Op.ADD, K.load(K.param(3, 7), c), *ranges)
        assert extents(coalesce(K.sink(one, K.store(K.param(2, 7), c, repeated)))) == [3, 5, 7]
    m = K.over(2, 3)
    between = K.reduce(Op.ADD, K.load(K.param(3, 14), m * 7 + c), a, m, b)
    assert extents(coalesce(K.sink(one, K.store(K.param(2, 7), c, between)))) == [2, 3, 5, 7], "with one between them"
    swapped = K.sink(K.store(K.param(0, 7), c, K.reduce(Op.ADD, x, b, a)))
    assert coalesce(swapped) is swapped, "in the other order they are no neighbours"


def test_ranges_whose_extent_depends_on_data_or_sizes_take_no_part() -> None:
    n = UOp(Op.VARIABLE, K.I32, (), ("n", 1, 9))
    i, j = K.loop(n, 0), K.loop(6, 1)
    graph = copied(i * 6 + j, 54)
    assert coalesce(graph) is graph
    # an extent that uses two ranges as one does not keep them apart, one that uses them otherwise does
    i, j = K.loop(4, 0), K.loop(6, 1)
    for index, joined in ((i * 6 + j, True), (i, False)):
        r = K.over(K.load(K.param(2, 24, K.I32), index), 2)
        total = K.reduce(Op.ADD, K.load(K.param(1, 9), r), r)
        graph = K.sink(K.store(K.param(0, 24), i * 6 + j, total))
        assert extents(coalesce(graph)) == ([24] if joined else [4, 6])
    triangle = K.over(i + 1, 2)
    total = K.reduce(Op.ADD, K.load(K.param(1, 9), triangle), triangle)
    graph = K.sink(K.store(K.param(0, 24), i * 6 + j, total))
    assert coalesce(graph) is graph, "the extent is the row's"
