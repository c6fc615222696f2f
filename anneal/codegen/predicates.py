"""Predicates of loads and stores: the condition under which an access is made, as its last source."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from anneal.uop import Op, UOp


def conjunction(conditions: Sequence[UOp]) -> tuple[UOp, ...]:
    """The predicate that asks for all of `conditions`, as the last source of an access: none for none."""
    return (functools.reduce(operator.and_, conditions),) if conditions else ()


def conjuncts(predicate: UOp) -> list[UOp]:
    """The conditions that a predicate asks for, from left to right."""
    out, stack = [], [predicate]
    while stack:
        u = stack.pop()
        if u.op is Op.AND:
            stack += (u.src[1], u.src[0])
        else:
            out.append(u)
    return out
