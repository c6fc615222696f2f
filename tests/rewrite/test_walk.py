"""The walk: order, sharing, what is known, phases, depth."""

from __future__ import annotations

import pytest

from anneal.rewrite import over, rebuild, substitute, unfolded
from anneal.uop import Op, UOp, arena, const, dtypes, toposort

F32, I32 = dtypes.float32, dtypes.int32
X, Y = UOp(Op.PARAM, F32, (), (0, ())), UOp(Op.PARAM, F32, (), (1, ()))


def chain(depth: int) -> UOp:
    u = X
    for _ in range(depth):
        u = UOp(Op.SIN, F32, (u,))
    return u


def test_sources_come_first_and_each_node_once() -> None:
    shared = Op.SIN(X)
    seen: list[UOp] = []
    assert rebuild(shared * Op.EXP(shared), lambda u, src: seen.append(u) or u) is shared * Op.EXP(shared)
    assert seen == [X, shared, Op.EXP(shared), shared * Op.EXP(shared)]


def test_visit_sees_the_rebuilt_sources() -> None:
    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        return Y if u is X else over(u, src)

    assert rebuild(Op.EXP(Op.SIN(X)), visit) is Op.EXP(Op.SIN(Y))


def test_the_walk_stops_at_what_is_known_and_adds_its_results() -> None:
    inner = Op.SIN(X)
    known = {inner: Y}
    root = Op.EXP(inner)

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        assert u is root
        return over(u, src)

    assert rebuild(root, visit, known) is Op.EXP(Y)
    assert known == {inner: Y, root: Op.EXP(Y)}
    assert rebuild(root, lambda u, src: pytest.fail("visited again"), known) is Op.EXP(Y)


def test_an_order_at_hand_is_not_made_again() -> None:
    root = Op.SIN(X)
    known: dict[UOp, UOp] = {}
    assert rebuild(root, over, known, order=[X, root]) is root
    assert known == {X: X, root: root}


def test_over_folds_and_unfolded_does_not() -> None:
    i, j = (UOp(Op.VARIABLE, I32, (), (n, 0, 9)) for n in "ij")
    zero = const(I32, 0)
    assert over(i + j, (i, zero)) is i
    assert unfolded(i + j, (i, zero)).src == (i, zero)


def test_a_node_keeps_the_phase_of_the_one_whose_place_it_takes() -> None:
    a = arena()
    forward = UOp(Op.SIN, F32, (X,), tag="phases")
    a.phase = "backward"
    try:
        backward = UOp(Op.COS, F32, (forward,), tag="phases")
    finally:
        a.phase = "forward"
    known: dict[UOp, UOp] = {X: UOp(Op.PARAM, F32, (), (2, ()))}
    with pytest.raises(ZeroDivisionError):
        rebuild(backward, lambda u, src: 1 // 0 if u is backward else unfolded(u, src), dict(known))
    assert a.phase == "forward"
    new = rebuild(backward, unfolded, known)
    assert new is not backward
    assert (new.provenance[0], new.src[0].provenance[0]) == ("backward", "forward")
    assert a.phase == "forward"


def test_substitute_replaces_nodes_and_folds() -> None:
    i, j = (UOp(Op.VARIABLE, I32, (), (n, 0, 9)) for n in "ij")
    assert substitute(i * 4 + j, {j: const(I32, 0)}) is i * 4
    assert substitute(i + j, {i: j, j: i}) is j + i
    deep = substitute(chain(20_000), {X: Y})
    assert toposort((deep,))[0] is Y
