"""PyTorch's samples of each op that we have by its name, beside our results and gradients (torch_op_db.py runs them).

A name that is not in `CHOICES`, which differ on purpose, agrees on every sample, but where torch's float32 is rounded
further from torch's float64 than ours is.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.helpers import optional
from tests.tensor.torch_op_db import found, outcomes

torch = optional("torch")
pytestmark = pytest.mark.deep

CHOICES: dict[str, str] = {
    "as_strided": "of a tensor that was cut from another it is refused, since torch counts from the other's first element",
    "as_strided_scatter": "torch gives the slope of what is overwritten to the tensor, and none to what stays",
}


PARTS = 16


@functools.cache
def _ops() -> dict[str, list[Any]]:
    """The ops of op_db that we have by name; importing it takes half a minute, so only the deep tier does."""
    op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db
    ops: dict[str, list[Any]] = {}
    for op in op_db:
        if torch.float32 in op.dtypes and found(op.name) is not None:
            ops.setdefault(op.name, []).append(op)
    assert len(ops) > 500
    return ops


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_sample_of_torchs_table_agrees_or_is_refused_for_a_known_reason(part: int) -> None:
    torch.manual_seed(0)
    ops = _ops()
    names = sorted(ops)[part::PARTS]
    wrong: list[str] = []
    differing: set[str] = set()
    for name in names:
        for o in [o for op in ops[name] for o in outcomes(op, torch)]:
            if o.kind in ("agrees", "nearer"):
                continue
            differing.add(name)
            if name not in CHOICES:
                wrong.append(f"{o.call:.200}\n    {o.kind}: {o.said:.200}")
                break
    assert not wrong, "\n".join(wrong)
    idle = {*CHOICES}.intersection(names) - differing
    assert not idle, f"in a table without need: {sorted(idle)}"


def test_the_table_names_ops_of_torch() -> None:
    assert {*CHOICES} <= {*_ops()}
