"""Blocks of memory that are numbered in one step get the numbers, and notes, that they get one by one."""

from __future__ import annotations

from typing import Any

from anneal.runtime import Numbering
from anneal.tensor import Tensor
from anneal.uop import UOp


def nodes(*shapes: tuple[int, ...]) -> list[UOp]:
    made = [Tensor.full(s, float(i)).realize() for i, s in enumerate(shapes)]
    KEPT.extend(made)
    return [t.uop for t in made]


KEPT: list[Tensor] = []
HOME = 0, 0


def state(n: Numbering) -> Any:
    log = None if n.log is None else [None if r is None else r() for r in n.log.leaves]
    return n.leaves, n.known, n.nbytes, n.passed, log


def one_by_one(several: list[UOp], before: list[UOp], log: bool) -> tuple[list[UOp], Any]:
    n = Numbering(HOME)
    if log:
        n.note(())
    for u in before:
        n.templates([u])
    return [n.templates([u])[0] for u in several], state(n)


def test_a_block_is_numbered_as_its_nodes_are() -> None:
    several = nodes((3,), (2, 3), (1,), (4, 4))
    other = nodes((5,))
    for before, log in (([], False), ([], True), (other, False), (several[:1], False), (several[3:], True)):
        for _ in range(3):
            n = Numbering(HOME)
            if log:
                n.note(())
            for u in before:
                n.templates([u])
            found = n.templates(several)
            assert (found, state(n)) == one_by_one(several, before, log)


def test_memory_that_others_are_in_now_is_numbered_anew() -> None:
    several = nodes((3,), (2, 3))
    for _ in range(2):
        Numbering(HOME).templates(several)
    for now in (several[::-1], [several[0], *nodes((2, 3))], [several[0]] * 2):
        n = Numbering(HOME)
        assert (n.templates(now), state(n)) == one_by_one(now, [], False)


def test_memory_that_gradients_go_on_through_is_noted() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    a = Tensor.ones(2).realize()
    for _ in range(2):
        Numbering(HOME).templates([a.uop])
    a.uop.arg.made_by = (w * 2).uop
    n = Numbering(HOME)
    assert (n.templates([a.uop]), state(n)) == one_by_one([a.uop], [], False)
    assert n.passed == [a.uop]
