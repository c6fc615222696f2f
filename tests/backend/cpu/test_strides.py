"""Kernels of NumPy whose input and output have gaps: each op gives what it gives of elements that lie together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import anneal as an
from anneal.backend import numpy_dtype
from anneal.uop import ALU, DType, Op, UOp, dtypes
from tests.backend.cpu.kernels import kernel, load, loop, param, run, store

GAPS = (1, 2, 3, 4, 5, 8, 16)
COUNT = 19
UNARY = tuple(op for op in sorted(ALU, key=lambda op: op.name) if op.arity == 1 and op not in (Op.CAST, Op.BITCAST))
NUMBERS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.float32, dtypes.float64)


def takes(op: Op, dtype: DType) -> bool:
    return {"floats": dtype.is_float, "whole": dtype.is_int}.get(op.takes, True)


@pytest.mark.usefixtures("in_numpy")
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
def test_ops_of_one_operand_take_gaps(dtype: DType) -> None:
    """Inputs and outputs of each distance, of one buffer (in place) and of two."""
    for op in UNARY:
        if not takes(op, dtype) or (op is Op.RECIP and dtype.is_int):
            continue
        i = loop(0, COUNT)
        x = np.arange(1, COUNT * max(GAPS) + 1).astype(numpy_dtype(dtype))
        wide = param(1, x.size, dtype)
        for read, written in itertools.product(GAPS, GAPS):
            dense = x[::read][:COUNT].copy()
            together = kernel(store(param(0, COUNT, dtype), i, UOp(op, dtype, (load(param(1, COUNT, dtype), i),))))
            want = run(together, np.zeros_like(dense), dense)[0]
            apart = kernel(store(param(0, x.size, dtype), i * written, UOp(op, dtype, (load(wide, i * read),))))
            got = run(apart, np.zeros_like(x), x)[0]
            np.testing.assert_array_equal(got[::written][:COUNT], want, err_msg=f"{op.name} {read} {written}")


@pytest.mark.usefixtures("in_numpy")
@pytest.mark.parametrize("dtype", [an.float32, an.float64, an.int32, an.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["negative", "abs", "square", "sign"])
def test_an_op_in_place_of_a_column(name: str, dtype: DType) -> None:
    """numpy.negative of 2.4 reads wrong elements of some columns."""
    for columns in GAPS:
        x = (an.arange(1, 6 * columns + 1, dtype=dtype).reshape(6, columns) - 7).realize()
        want = x.numpy()
        want[:, columns // 2] = getattr(np, name)(want[:, columns // 2].copy())
        getattr(x[:, columns // 2], f"{name}_")()
        np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.usefixtures("in_numpy")
def test_negation_keeps_zeros_and_nan() -> None:
    """A negation turns the bit of the sign, of 0 and nan too."""
    for dtype in (an.float16, an.float32, an.float64):
        x = an.tensor([0.0, -0.0, float("inf"), float("nan"), 1.5], dtype=dtype)
        got = (-x).numpy()
        np.testing.assert_array_equal(got, -x.numpy())
        np.testing.assert_array_equal(np.signbit(got), ~np.signbit(x.numpy()))
