"""The driver: order, recording, loops, depth."""

from __future__ import annotations

import gc
import time

import pytest

from anneal.errors import CompilerError
from anneal.rewrite import graph_rewrite, rewritten
from anneal.uop import Op, UOp, dtypes, toposort

F32, I32 = dtypes.float32, dtypes.int32
X, Y = UOp(Op.PARAM, F32, (), (0, ())), UOp(Op.PARAM, F32, (), (1, ()))


def chain(depth: int, op: Op = Op.SIN) -> UOp:
    u = X
    for _ in range(depth):
        u = UOp(op, F32, (u,))
    return u


def test_sources_are_rewritten_before_the_nodes_that_use_them() -> None:
    seen: list[UOp] = []
    table = {Op.SIN: lambda u: seen.append(u)}
    root = UOp(Op.ADD, F32, (chain(2), Op.COS(X)))
    assert graph_rewrite(root, table) is root
    assert [u.src[0].op for u in seen] == [Op.PARAM, Op.SIN]


def test_a_result_is_visited_in_its_turn() -> None:
    table = {Op.SIN: lambda u: (Op.COS(u.src[0]), "sin"), Op.COS: lambda u: (Op.TAN(u.src[0]), "cos")}
    assert graph_rewrite(Op.SIN(X), table) is Op.TAN(X)


def test_a_node_that_becomes_one_that_is_done_needs_no_rule_again() -> None:
    asked: list[UOp] = []

    def drop(u: UOp) -> tuple[UOp, str]:
        asked.append(u)
        return u.src[0], "sin(x) -> x"

    assert graph_rewrite(chain(2), {Op.SIN: drop}) is X
    assert asked == [Op.SIN(X)]  # the outer sine became the inner one, which was done


def test_rewritten_applies_rules_at_the_node_alone_until_none_matches() -> None:
    table = {Op.SIN: lambda u: (Op.COS(u.src[0]), "sin"), Op.COS: lambda u: (Op.TAN(u.src[0]), "cos")}
    assert rewritten(Op.SIN(X), table) is Op.TAN(X)
    assert rewritten(Op.EXP(Op.SIN(X)), table) is Op.EXP(Op.SIN(X))
    circle = {**table, Op.COS: lambda u: (Op.SIN(u.src[0]), "back")}
    with pytest.raises(CompilerError, match="leads back"):
        rewritten(Op.SIN(X), circle)


def test_rules_that_chase_each_other_are_an_error() -> None:
    table = {Op.SIN: lambda u: (Op.COS(u.src[0]), "a"), Op.COS: lambda u: (Op.SIN(u.src[0]), "b")}
    with pytest.raises(CompilerError, match="leads back"):
        graph_rewrite(Op.SIN(X), table)


def test_a_result_that_holds_its_own_node_is_an_error_or_ends_there() -> None:
    table = {Op.SIN: lambda u: (Op.COS(u), "wrap")}
    with pytest.raises(CompilerError, match="leads back"):
        graph_rewrite(Op.SIN(X), table)
    ends = graph_rewrite(Op.SIN(X), table, steps=3)
    assert ends is Op.COS(Op.SIN(X))


def test_depth_20000_is_rewritten_without_recursion() -> None:
    new = graph_rewrite(chain(20_000), {Op.SIN: lambda u: (Op.COS(u.src[0]), "cos")})
    assert len(toposort((new,))) == 20_001
    assert new.op is Op.COS


def test_time_grows_with_the_graph_and_no_faster() -> None:
    def graph(n: int) -> UOp:
        u = X
        for i in range(n // 2):
            u = UOp(Op.ADD, F32, (UOp(Op.SIN, F32, (u,)), u if i % 2 else X))
        return u

    def seconds(n: int) -> float:
        root = graph(n)
        start = time.thread_time()  # not the clock's: other programs run beside the tests
        graph_rewrite(root, {Op.SIN: lambda u: (Op.COS(u.src[0]), "cos")})
        return time.thread_time() - start

    gc.collect()
    gc.disable()  # a collection walks every object there is, also those of the tests before
    try:
        small = max(seconds(5_000) for _ in range(3))
        assert seconds(50_000) < 30 * small
    finally:
        gc.enable()
