"""PyTorch's samples of each op that we have by its name, beside our results and gradients (torch_op_db.py runs them).

A name that is in no table below agrees on every sample. `LACKING` are arguments and kinds of arguments that we do not
take: Python's or our own error says so. `CHOICES` differ on purpose. A wrong value, shape or gradient, or an exception
that is none of ours, is in no table.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.tensor.torch_op_db import found, outcomes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.deep

SIGNS = "vectors of a decomposition have LAPACK's signs, or their opposites"
LACKING: dict[str, str] = {
    "arange": "bools for numbers",
    "linalg.vander": "a tensor of shape () is no vector",
    "nn.functional.batch_norm": "a vector for a batch of channels",
}
CHOICES: dict[str, str] = {
    "as_strided": "strides are those of a contiguous tensor, not of what the tensor was cut from",
    "as_strided_scatter": "torch gives the slope of what is overwritten to the tensor",
    "cholesky_inverse": "outside of the triangle, which is not read, slopes are 0",
    "cholesky_solve": "outside of the triangle, which is not read, slopes are 0",
    "cov": "slopes that cancel to 0 differ in what rounding leaves",
    "linalg.eigh": SIGNS,
    "linalg.pinv": "of symmetric matrices the gradient is symmetric; one table of it multiplies two arguments first",
    "linalg.svd": SIGNS,
    "svd": SIGNS,
    "logcumsumexp": "torch's slopes are off by 7e-4 beside float64's, ours by 1e-7",
    "nn.functional.ctc_loss": "the slope in the logarithms themselves; torch's holds behind log_softmax alone",
    "nn.functional.layer_norm": "the slope of a row of one element is 0; torch has what rounding leaves",
    **{
        f"nn.functional.max_unpool{n}d": "of values put in one place the one that stays has the slope, in torch all"
        for n in (1, 2, 3)
    },
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
            if o.kind == "agrees":
                continue
            differing.add(name)
            if name not in CHOICES and (o.kind not in ("argument", "refused") or name not in LACKING):
                wrong.append(f"{o.call:.200}\n    {o.kind}: {o.said:.200}")
                break
    assert not wrong, "\n".join(wrong)
    idle = {*LACKING, *CHOICES}.intersection(names) - differing
    assert not idle, f"in a table without need: {sorted(idle)}"


def test_the_tables_name_ops_of_torch() -> None:
    assert {*LACKING, *CHOICES} <= {*_ops()}
    assert not {*LACKING} & {*CHOICES}
