"""The benchmark of eager steps: its models train, and a step of each is the same with jit and without."""

from __future__ import annotations

import pytest

from benchmarks.eager import contestant, profile
from benchmarks.eager_models import CASES


@pytest.mark.parametrize("case", [c for c in CASES if c not in ("cnn", "gpt")])
def test_a_step_is_the_same_with_jit_and_without(case: str) -> None:
    eager, jitted = (contestant(who, case, "cpu")[0] for who in ("eager", "jit"))
    losses = [(eager(), jitted()) for _ in range(4)]
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in losses)
    assert len(set(losses)) == 4


def test_the_parts_of_a_step_add_up() -> None:
    rows = profile("mlp", "cpu", 3)
    *parts, whole = [row["us"] for row in rows]
    assert sum(parts) == pytest.approx(whole, rel=0.01)
