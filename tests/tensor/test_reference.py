"""The oracle itself, op by op: on numbers worked out by hand, by NumPy's loops, and by JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal.backend import Storage
from anneal.errors import CompilerError
from anneal.uop import Op, UOp, const, dtypes
from anneal.uop.meaning import threefry2x32
from tests.reference import evaluate


def buffer(array: Any) -> UOp:
    array = np.asarray(array)
    kind = next(d for d in vars(dtypes).values() if getattr(d, "name", "") == array.dtype.name)
    flat = UOp(Op.BUFFER, kind, (), Storage(array.size, kind, "cpu", host=array.reshape(-1)))
    return UOp(Op.RESHAPE, kind, (flat,), array.shape)


def value(u: UOp) -> Any:
    return evaluate([u])[0]


def test_threefry_is_jaxs() -> None:
    jax = pytest.importorskip("jax")
    random = pytest.importorskip("jax.extend.random")
    rng = np.random.default_rng(0)
    counter = rng.integers(0, 2**32, 50, dtype=np.uint32)
    zero = np.zeros_like(counter)
    key = np.array([0x12345678, 0x9ABCDEF0], np.uint32)
    both = random.threefry_2x32(jax.numpy.asarray(key), jax.numpy.asarray(np.concatenate([counter, zero])))
    ours = threefry2x32(np, counter, zero, np.full_like(counter, key[0]), np.full_like(counter, key[1]))
    np.testing.assert_array_equal(np.concatenate(ours), np.asarray(both))
    k0, k1 = (const(dtypes.uint32, int(k)) for k in key)
    np.testing.assert_array_equal(value(UOp(Op.THREEFRY, dtypes.uint32, (buffer(counter), k0, k1))), ours[0])


def test_gather_reads_zero_out_of_range() -> None:
    x = buffer(np.arange(6, dtype=np.float32).reshape(3, 2) + 1)
    i = buffer(np.array([[2, -1], [0, 3]], np.int32))
    np.testing.assert_array_equal(value(UOp(Op.GATHER, dtypes.float32, (x, i), 0)), [[5, 0], [1, 0]])


def test_scatter_add_and_segment_sum_agree() -> None:
    index = np.array([2, 0, 2, 9, -1], np.int32)
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    got = value(UOp(Op.SCATTER_ADD, dtypes.float32, (buffer(index), buffer(rows)), (4,)))
    np.testing.assert_array_equal(got, [[2, 3], [0, 0], [4, 6], [0, 0]])
    order = value(UOp(Op.ARGSORT, dtypes.int32, (buffer(index),)))
    np.testing.assert_array_equal(order, [4, 1, 0, 2, 3])
    starts = buffer(np.searchsorted(index[order], np.arange(5)).astype(np.int32))
    summed = UOp(Op.SEGMENT_SUM, dtypes.float32, (buffer(rows), buffer(order), starts))
    np.testing.assert_array_equal(value(summed), got)


@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD])
def test_integer_division_is_pythons(op: Op) -> None:
    a, b = np.meshgrid(np.arange(-7, 8), np.arange(-3, 4), indexing="ij")
    got = value(UOp(op, dtypes.int32, (buffer(a.astype(np.int32)), buffer(b.astype(np.int32)))))
    for x, y, q in zip(a.flat, b.flat, got.flat, strict=True):
        assert q == (0 if y == 0 else x // y if op is Op.IDIV else x % y)


def test_casts_of_floats_to_integers_stop_at_the_ends() -> None:
    x = buffer(np.array([np.nan, np.inf, -np.inf, 3e9, -1.5, 255.9], np.float32))
    as_int = value(UOp(Op.CAST, dtypes.int32, (x,)))
    np.testing.assert_array_equal(as_int, [0, 2**31 - 1, -(2**31), 2**31 - 1, -1, 255])
    np.testing.assert_array_equal(value(UOp(Op.CAST, dtypes.uint8, (x,))), [0, 255, 0, 255, 0, 255])
    np.testing.assert_array_equal(value(UOp(Op.CAST, dtypes.bool_, (x,))), [True] * 6)


def test_float16_sums_in_float32() -> None:
    x = buffer(np.full((4096,), 1.0, np.float16))
    assert value(UOp(Op.REDUCE_AXIS, dtypes.float16, (x,), (Op.ADD, (0,))))[0] == 4096


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        (Op.ADD, dtypes.float32, 0),
        (Op.MUL, dtypes.int32, 1),
        (Op.MAX, dtypes.float32, -np.inf),
        (Op.MAX, dtypes.int32, -(2**31)),
        (Op.MIN, dtypes.uint8, 255),
        (Op.MIN, dtypes.bool_, True),
    ],
)
def test_an_empty_reduction_gives_the_identity(op: Op, dtype: Any, expected: Any) -> None:
    x = buffer(np.zeros((0, 2), dtype.name))
    np.testing.assert_array_equal(value(UOp(Op.REDUCE_AXIS, dtype, (x,), (op, (0,)))), [[expected] * 2])


def test_the_override_widens_floats_and_keeps_bits() -> None:
    x = buffer(np.array([0.1], np.float32))
    wide = evaluate([x * x], dtype_override=np.float64)[0]
    assert wide.dtype == np.float64
    assert wide[0] == float(np.float32(0.1)) ** 2
    bits = UOp(Op.BITCAST, dtypes.int32, (x,))
    np.testing.assert_array_equal(
        evaluate([bits], dtype_override="float64")[0], np.array([0.1], np.float32).view(np.int32)
    )


def test_a_deep_graph_needs_no_recursion() -> None:
    u = buffer(np.zeros(2, np.float32))
    for _ in range(20_000):
        u = UOp(Op.SIN, dtypes.float32, (u,))
    np.testing.assert_array_equal(value(u), [0, 0])


def test_results_are_fresh_arrays() -> None:
    x = buffer(np.arange(3, dtype=np.int32))
    a, b = evaluate([x, x])
    a[0] = 9
    assert b[0] == 0
    assert value(x)[0] == 0


def test_an_op_of_another_stage_is_refused() -> None:
    with pytest.raises(CompilerError, match="PARAM does not belong in a tensor graph"):
        value(UOp(Op.PARAM, dtypes.float32, (), (0, (4,))))
