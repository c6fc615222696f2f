"""Short words for building kernels by hand, and one check against the scalar oracle."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.backend import get_device, numpy_dtype
from anneal.uop import DType, Op, UOp, const, dtypes
from tests.backend.kernel_oracle import run_kernel

F32, F64, F16, I32, BOOL = dtypes.float32, dtypes.float64, dtypes.float16, dtypes.int32, dtypes.bool_


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp(Op.PARAM, dtype, (), (slot, (size,)))


def loop(i: int, extent: int) -> UOp:
    return UOp(Op.RANGE, I32, (const(I32, extent),), (i, "loop"))


def over(i: int, extent: int) -> UOp:
    return UOp(Op.RANGE, I32, (const(I32, extent),), (i, "reduce"))


def load(p: UOp, index: UOp, predicate: UOp | None = None) -> UOp:
    return UOp(Op.LOAD, p.dtype, (p, index) if predicate is None else (p, index, predicate))


def store(p: UOp, index: UOp, value: UOp, predicate: UOp | None = None) -> UOp:
    return UOp(Op.STORE, p.dtype, (p, index, value) if predicate is None else (p, index, value, predicate))


def reduce(op: Op, value: UOp, *ranges: UOp) -> UOp:
    return UOp(Op.REDUCE, value.dtype, (value, *ranges), op)


def kernel(*stores: UOp) -> UOp:
    return UOp(Op.SINK, F32, stores)


def run(sink: UOp, *buffers: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The buffers after the cpu device ran `sink` on copies of them: by itself, and again as streams."""
    device = get_device("cpu")
    mine = [np.array(b).reshape(-1) for b in buffers]
    batch = device.prepare([(device.compile(sink), mine)])
    batch.run()
    first = [b.copy() for b in mine]
    for b, initial in zip(mine, buffers, strict=True):
        b[:] = np.array(initial).reshape(-1)
    batch.run()
    for b, expected in zip(mine, first, strict=True):
        np.testing.assert_array_equal(b, expected)
    return mine


def check(sink: UOp, *buffers: np.ndarray[Any, Any], rtol: float = 2e-5, atol: float = 2e-5) -> None:
    """The cpu device and the scalar oracle leave the same values in every buffer."""
    mine = run(sink, *buffers)
    want = [np.array(b).reshape(-1) for b in buffers]
    with np.errstate(all="ignore"):
        run_kernel(sink, want)
    for got, expected in zip(mine, want, strict=True):
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(got, expected)


def filled(rng: np.random.Generator, size: int, dtype: DType = F32) -> np.ndarray[Any, Any]:
    """Random values: normal floats, any integers, bools."""
    held = numpy_dtype(dtype)
    if dtype.is_float:
        return rng.standard_normal(size).astype(held)
    if dtype is BOOL:
        return rng.random(size) < 0.5
    info = np.iinfo(held)
    low, high = max(info.min, -1000), min(info.max, 1000)
    return rng.integers(low, high, size, endpoint=True).astype(held)


def exact(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Random eighths from -2 to 2: up to 2 ** 16 products of them sum without rounding, so every order of summation,
    and with it every BLAS and every split of the work, gives the same bits.
    """
    return (rng.integers(-16, 17, shape) / 8).astype(np.float32)
