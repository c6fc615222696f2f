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

STATIC = "the shape depends on values"
ZERO_D = "a tensor of shape () is no row"
LACKING: dict[str, str] = {
    **dict.fromkeys(["argwhere", "masked_select", "nonzero", "unique", "unique_consecutive"], STATIC),
    "__getitem__": "a bool tensor: " + STATIC,
    "index_put": "a bool tensor: " + STATIC,
    "repeat_interleave": "repeats as a tensor: " + STATIC,
    "tensor_split": "places as a tensor: " + STATIC,
    "arange": "bools for numbers",
    "atleast_1d": "a list of tensors",
    "atleast_2d": "a list of tensors",
    "atleast_3d": "a list of tensors",
    "cat": "a vector without elements beside matrices, torch's old exception",
    "gather": "an index without elements, of more axes",
    "index_add": ZERO_D,
    "index_copy": ZERO_D,
    "nn.functional.batch_norm": "a vector for a batch of channels",
    "nn.functional.multi_margin_loss": "weight; one row without its axis",
    "norm": "singular values",
    "linalg.vander": "a tensor of shape () is no vector",
    "linspace": "tensors for numbers",
    "logspace": "dtype; tensors for numbers",
    "quantile": "q as a tensor",
    "nanquantile": "q as a tensor; interpolation",
    "masked_scatter": "the tensor broadcast to the mask",
    "randint": "torch's places of the arguments: (high, size) and (low, high, size)",
    "to": "non_blocking and copy",
    "cov": "fweights, aweights",
    "diff": "prepend, append",
    "new_full": "dtype",
    "new_ones": "dtype",
    "new_zeros": "dtype",
    "searchsorted": "side, sorter; rows of several axes",
    "tensordot": "axes of size 1 beside others",
    "nn.functional.softmin": "dtype",
    "nn.functional.interpolate": "recompute_scale_factor, antialias",
    "nn.functional.avg_pool2d": "a stride of no numbers, for the kernel's",
    "nn.functional.gaussian_nll_loss": "a target that broadcasts",
    "nn.functional.grid_sample": 'padding_mode "reflection"; mode "bicubic"; volumes',
    "nn.functional.instance_norm": "running statistics",
    "nn.functional.pad": "borders from inside that are cut off; of tensors without elements",
    "nn.functional.scaled_dot_product_attention": "a batch of heads beside one head",
}
CHOICES: dict[str, str] = {
    **dict.fromkeys(
        ["linalg.eigh", "linalg.svd"], "another sign of a vector, where a LAPACK of torch's own chooses it"
    ),
    "linalg.lstsq": "residuals by every driver; in torch's second table of it results are left out",
    "linalg.pinv": "of symmetric matrices the gradient is symmetric; one table of it multiplies two arguments first",
    "logcumsumexp": "torch's slopes are off by 7e-4 beside float64's, ours by 1e-7",
    "nn.functional.layer_norm": "the slope of a row of one element is 0; torch has what rounding leaves",
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
    assert len(ops) > 350
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
