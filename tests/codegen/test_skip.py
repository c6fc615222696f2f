"""Decisions of skip-unused: which loops have no iterations, which have fewer, which loads and stores are not made."""

from __future__ import annotations

import pytest

from anneal.codegen import skip
from anneal.codegen.skip import skip_unused
from anneal.rewrite import substitute
from anneal.schedule.masks import DEAD, wishes
from anneal.uop import Op, UOp, const, toposort
from tests.codegen import kernels as K

W, T, R = K.loop(4, 0, "workgroup"), K.loop(8, 1, "local"), K.over(32, 2)
Q = W * 8 + T  # a row; eight in a workgroup
OUT, X = K.param(0, 32), K.param(1, 32 * 32)
ZERO = const(K.F32, 0.0)


def row_sum(value: UOp, op: Op = Op.ADD) -> UOp:
    return K.reduce(op, value, R)


def loops(graph: UOp) -> list[UOp]:
    return [u for u in toposort((graph,)) if u.op is Op.RANGE and u.arg[1] == "reduce"]


def per_workgroup(u: UOp) -> list[int]:
    """What an expression is in each of the four workgroups."""
    found = [substitute(u, {W: const(K.I32, w)}) for w in range(4)]
    assert all(x.is_const for x in found), found
    return [int(x.arg) for x in found]


def kernel(*values: UOp) -> UOp:
    return K.sink(*[K.store(K.param(10 * n, 32), Q, v) for n, v in enumerate(values)])


# -- loops whose results nothing uses ---------------------------------------------------------------------------------


def test_a_loop_has_no_iterations_in_workgroups_that_throw_its_result_away() -> None:
    total = row_sum(K.load(X, Q * 32 + R))
    [loop] = loops(skip_unused(kernel((Q < 16).where(ZERO, total))))
    assert per_workgroup(loop.src[0]) == [0, 0, 32, 32]
    [loop] = loops(skip_unused(kernel((Q < 16).where(total, ZERO))))
    assert per_workgroup(loop.src[0]) == [32, 32, 0, 0]
    [loop] = loops(skip_unused(kernel((Q < 12).where(ZERO, total))))
    assert per_workgroup(loop.src[0]) == [0, 32, 32, 32], "the second workgroup has rows on both sides"


def test_a_result_that_is_used_elsewhere_too_keeps_its_loop() -> None:
    total = row_sum(K.load(X, Q * 32 + R))
    graph = kernel((Q < 16).where(ZERO, total), total)
    assert skip_unused(graph) is graph


def test_a_loop_that_two_reduces_share_runs_if_one_of_them_is_needed() -> None:
    first, second = row_sum(K.load(X, Q * 32 + R)), row_sum(K.load(X, Q * 32 + R), Op.MAX)
    graph = kernel((Q < 16).where(ZERO, first), second)
    assert skip_unused(graph) is graph
    [loop] = loops(skip_unused(kernel((Q < 16).where(ZERO, first), (Q < 8).where(ZERO, second))))
    assert per_workgroup(loop.src[0]) == [0, 32, 32, 32]


def test_a_condition_on_data_says_nothing() -> None:
    for at in (Q, const(K.I32, 0)):
        limit = K.load(K.param(2, 32, K.I32), at)
        graph = kernel((limit > Q).where(ZERO, row_sum(K.load(X, Q * 32 + R))))
        assert [x.src[0].op for x in loops(skip_unused(graph))] == [Op.CONST]


def test_a_condition_on_the_loop_itself_says_nothing_outside_of_it() -> None:
    inside = K.reduce(Op.MAX, (R < 16).where(K.load(X, Q * 32 + R), ZERO), R)
    graph = kernel(inside)
    assert [x.src[0].op for x in loops(skip_unused(graph))] == [Op.CONST]
    # and one outside, on the range of a fused loop, nothing inside: the sum takes all of the row
    fused = K.sink(K.store(K.param(0, 1024), Q * 32 + R, (Q < R).where(ZERO, row_sum(K.load(X, Q * 32 + R)))))
    assert skip_unused(fused) is fused


def test_without_choices_or_comparisons_nothing_is_looked_at() -> None:
    for graph in (kernel(row_sum(K.load(X, Q * 32 + R))), K.matmul(8, 8, 8), K.elementwise(4, 6)):
        assert skip_unused(graph) is graph


# -- sums of which terms are zero -------------------------------------------------------------------------------------


def test_a_sum_ends_with_the_last_term_that_its_workgroup_needs() -> None:
    causal = row_sum((Q < R).where(ZERO, K.load(X, Q * 32 + R)))
    [loop] = loops(skip_unused(kernel(causal)))
    assert per_workgroup(loop.src[0]) == [8, 16, 24, 32]


def test_a_sum_begins_with_the_first_term_that_its_workgroup_needs() -> None:
    late = row_sum((R < Q).where(ZERO, K.load(X, Q * 32 + R)))
    made = skip_unused(kernel(late))
    [loop] = loops(made)
    assert per_workgroup(loop.src[0]) == [32, 24, 16, 8]
    [load] = [u for u in toposort((made,)) if u.op is Op.LOAD]
    here = {W: const(K.I32, 2), T: const(K.I32, 3), loop: const(K.I32, 0)}
    [first] = [x for x in [substitute(load.src[1], here)] if x.is_const]
    assert first.arg == (2 * 8 + 3) * 32 + 16, "iteration 0 is term 16"


def test_the_zero_may_be_a_factor() -> None:
    mask = (Q < R).where(ZERO, K.load(X, Q * 32 + R))
    [loop] = loops(skip_unused(kernel(row_sum(mask * K.load(K.param(2, 32), R)))))
    assert per_workgroup(loop.src[0]) == [8, 16, 24, 32]


def test_only_sums_of_zeros_are_cut() -> None:
    for value in (
        row_sum((Q < R).where(ZERO, K.load(X, Q * 32 + R)), Op.MAX),
        row_sum((Q < R).where(const(K.F32, 1.0), K.load(X, Q * 32 + R))),
    ):
        assert [x.src[0].op for x in loops(skip_unused(kernel(value)))] == [Op.CONST]


def test_a_loop_that_sums_over_different_parts_runs_over_all() -> None:
    causal, late = (row_sum((c).where(ZERO, K.load(X, Q * 32 + R))) for c in (Q < R, R < Q))
    assert [x.src[0].op for x in loops(skip_unused(kernel(causal, late)))] == [Op.CONST]


def test_the_loop_of_a_fused_reduce_which_stores_too_is_left() -> None:
    total = row_sum((Q < R).where(ZERO, K.load(X, Q * 32 + R)))
    graph = K.sink(K.store(OUT, Q, total), K.store(K.param(10, 1024), Q * 32 + R, K.load(X, Q * 32 + R) * 2.0))
    assert [x.src[0].op for x in loops(skip_unused(graph))] == [Op.CONST]


# -- loads ------------------------------------------------------------------------------------------------------------

COLUMN = K.loop(32, 3, "upcast")


def test_a_load_whose_value_is_not_used_is_not_made() -> None:
    x = K.load(X, Q * 32 + COLUMN)
    graph = K.sink(K.store(K.param(0, 1024), Q * 32 + COLUMN, (Q < COLUMN).where(ZERO, x)))
    [load] = [u for u in toposort((skip_unused(graph),)) if u.op is Op.LOAD]
    asked = {
        (q, c): substitute(load.src[2], {W: const(K.I32, q // 8), T: const(K.I32, q % 8), COLUMN: const(K.I32, c)}).arg
        for q in (0, 9, 31)
        for c in (0, 9, 10, 31)
    }
    assert asked == {(q, c): not q < c for q, c in asked}


def test_the_order_of_conditions_is_that_of_the_graph_and_no_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    x = K.load(X, Q * 32 + COLUMN)
    inner = (COLUMN < Q * 2).where(x, ZERO)
    graph = K.sink(K.store(K.param(0, 1024), Q * 32 + COLUMN, (Q < COLUMN).where(ZERO, inner)))
    made = []
    for turned in (False, True):
        in_order = lambda order, turned=turned: {
            u: sorted(c, key=lambda x: x[0].key, reverse=turned) for u, c in wishes(order).items()
        }
        monkeypatch.setattr(skip, "wishes", in_order)
        made.append(skip_unused(graph))
    assert made[0] is made[1] is not graph


def test_a_load_that_is_used_on_both_sides_is_made() -> None:
    x = K.load(X, Q * 32 + COLUMN)
    graph = K.sink(K.store(K.param(0, 1024), Q * 32 + COLUMN, (Q < COLUMN).where(x * 2.0, x)))
    assert skip_unused(graph) is graph


def test_a_comparison_with_a_constant_costs_more_than_the_load() -> None:
    x = K.load(X, Q * 32 + COLUMN)
    graph = K.sink(K.store(K.param(0, 1024), Q * 32 + COLUMN, (COLUMN < 16).where(ZERO, x)))
    assert skip_unused(graph) is graph


# -- stores -----------------------------------------------------------------------------------------------------------


def test_a_store_of_dead_lanes_alone_is_not_made_and_others_need_no_mask() -> None:
    value = Op.EXP(K.load(X, Q * 32 + COLUMN))
    for tag, condition, kept in (
        (DEAD[0], Q < COLUMN, lambda q, c: not q < c),
        (DEAD[1], COLUMN < Q + 1, lambda q, c: c < q + 1),
    ):
        sides = (ZERO, value) if tag == DEAD[0] else (value, ZERO)
        masked = UOp(Op.WHERE, K.F32, (condition, *sides), tag=tag)
        made = skip_unused(K.sink(K.store(K.param(0, 1024), Q * 32 + COLUMN, masked)))
        [store] = made.src
        assert store.src[2].op is Op.EXP, "readers mask again"
        for q in (0, 9, 31):
            for c in (0, 9, 10, 31):
                at = {W: const(K.I32, q // 8), T: const(K.I32, q % 8), COLUMN: const(K.I32, c)}
                assert substitute(store.src[3], at).arg == kept(q, c)


def test_a_choice_that_is_not_tagged_is_stored_as_it_is() -> None:
    plain = (Q < COLUMN).where(ZERO, const(K.F32, 2.0))
    graph = K.sink(K.store(K.param(0, 1024), Q * 32 + COLUMN, plain))
    assert skip_unused(graph) is graph
