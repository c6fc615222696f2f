"""Registers and unrolled iterations: a copy for each value of a range, and none of what does not depend on it."""

from __future__ import annotations

from anneal.codegen.pipeline import write_out
from anneal.codegen.ranges import form
from anneal.uop import Op, UOp, toposort
from tests.codegen import kernels as K

X, Y = K.param(1, 1024), K.param(2, 1024)
LID = UOp(Op.SPECIAL, K.I32, (), ("lid", 8))


def count(sink: UOp, op: Op) -> int:
    return sum(u.op is op for u in toposort((sink,)))


def test_a_kernel_without_such_ranges_stays_as_it_is() -> None:
    graph = K.matmul(8, 8, 8)
    assert write_out(graph) is graph


def test_a_node_is_copied_for_the_ranges_that_it_depends_on_alone() -> None:
    a, b = K.loop(2, 1, "upcast"), K.loop(4, 2, "upcast")
    fixed, rows, columns = Op.SIN(K.load(X, LID)), Op.COS(K.load(X, LID * 8 + a)), K.load(Y, LID * 4 + b)
    out = write_out(K.sink(K.store(K.param(0, 64), LID * 8 + a * 4 + b, fixed * rows + Op.EXP(columns))))
    assert (count(out, Op.SIN), count(out, Op.COS), count(out, Op.EXP)) == (1, 2, 4)
    assert len(out.src) == 8
    assert count(out, Op.RANGE) == 0


def test_the_copies_of_an_index_share_all_of_it_but_a_constant() -> None:
    a = K.loop(4, 1, "upcast")
    out = write_out(K.sink(K.store(K.param(0, 64), LID * 4 + a, K.load(X, a * 16 + LID))))
    loads = [u.src[1] for u in toposort((out,)) if u.op is Op.LOAD]
    assert [form(i) for i in loads] == [({LID: 1}, 16 * n) for n in range(4)]
    assert [i if i is LID else i.src[0] for i in loads] == [LID] * 4


def test_an_index_that_is_not_affine_is_copied_whole() -> None:
    a = K.loop(3, 1, "upcast")
    out = write_out(K.sink(K.store(K.param(0, 64), LID * 3 + a, K.load(X, (LID + a) % 5))))
    indices = {u.src[1] for u in toposort((out,)) if u.op is Op.LOAD}
    assert indices == {(LID + n) % 5 if n else LID % 5 for n in range(3)}


def test_a_reduce_over_an_unrolled_range_combines_the_copies_in_order() -> None:
    k = K.loop(3, 1, "unroll")
    out = write_out(K.sink(K.store(K.param(0, 8), LID, K.reduce(Op.MAX, K.load(X, LID * 3 + k), k))))
    a, b, c = (K.load(X, LID * 3 + n if n else LID * 3) for n in range(3))
    assert out.src[0].src[2] is Op.MAX(Op.MAX(a, b), c)


def test_a_reduce_that_stays_a_loop_says_how_many_iterations_its_body_has() -> None:
    k, r = K.loop(4, 1, "unroll"), K.over(5, 2)
    total = K.reduce(Op.ADD, K.load(X, LID * 20 + r * 4 + k), r, k)
    out = write_out(K.sink(K.store(K.param(0, 8), LID, total)))
    (reduce,) = [u for u in toposort((out,)) if u.op is Op.REDUCE]
    assert reduce.tag == 4
    assert [x.arg for x in reduce.src[1:]] == [(2, "reduce")]


def test_registers_of_results_are_reduces_of_their_own() -> None:
    a, k = K.loop(2, 1, "upcast"), K.over(5, 2)
    shared = K.load(Y, k)
    total = K.reduce(Op.ADD, K.load(X, a * 5 + k) * shared, k)
    out = write_out(K.sink(K.store(K.param(0, 8), a, total)))
    assert count(out, Op.REDUCE) == 2
    assert sum(u.op is Op.LOAD and u.src[0] is Y for u in toposort((out,))) == 1, "read once for both"


def test_a_data_dependent_trip_count_has_an_extent_for_each_copy() -> None:
    a = K.loop(2, 1, "upcast")
    k = K.over(K.load(K.param(3, 8, K.I32), a), 2)
    out = write_out(K.sink(K.store(K.param(0, 8), a, K.reduce(Op.ADD, K.load(X, k), k))))
    reduces = [store.src[2] for store in out.src]
    assert [r.src[1].src[0].src[1].arg for r in reduces] == [0, 1]
    assert [r.src[0].src[1] is r.src[1] for r in reduces] == [True, True], "the body runs over the range of its copy"
