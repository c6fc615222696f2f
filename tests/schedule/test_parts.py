"""A plan in parts: each call is in one part, in an order in which everything is there when it is read."""

from __future__ import annotations

import numpy as np

from anneal.runtime import plan_of
from anneal.schedule import Plan, in_parts
from anneal.tensor import Tensor


def a_plan() -> Plan:
    """The gradients of three layers."""
    r = np.random.default_rng(0)
    weights = [Tensor(r.normal(size=(8, 8)).astype(np.float32), requires_grad=True) for _ in range(3)]
    x = Tensor(r.normal(size=(4, 8)).astype(np.float32))
    for w in weights:
        x = (x @ w).tanh()
    x.sum().backward()
    return plan_of([w.grad for w in weights if w.grad is not None])


def test_each_part_reads_what_is_there() -> None:
    plan = a_plan()
    wanted = [[2], [1]]
    parts = in_parts(plan, wanted)
    assert len(parts) == 3
    assert sum([len(p.plan.calls) for p in parts]) == len(plan.calls)
    assert all(len(p.plan.calls) for p in parts), "each layer's gradient needs more than those behind it"
    there = set(range(plan.inputs))
    for n, part in enumerate(parts):
        assert set(part.inputs) <= there
        there |= set(part.outputs)
        assert {plan.outputs[k] for k in (wanted[n] if n < 2 else [0])} <= there
        assert part.plan.inputs == len(part.inputs)
        assert [v.kind for v in part.plan.values[: part.plan.inputs]] == ["input"] * part.plan.inputs
        shared = {v for v, _ in part.plan.memory}
        assert not shared & {*range(part.plan.inputs), *part.plan.outputs}, "what crosses has memory of its own"
    assert in_parts(plan, wanted) is parts


def test_what_needs_everything_is_one_part() -> None:
    plan = a_plan()
    first, *rest = in_parts(plan, [[0, 1, 2], [1]])
    assert len(first.plan.calls) == len(plan.calls)
    assert [len(p.plan.calls) for p in rest] == [0, 0]
