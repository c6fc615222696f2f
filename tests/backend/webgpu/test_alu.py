"""Every elementwise op on every dtype, against NumPy, over values that break things.

What holds on webgpu (this file checks it; `any` marks what WGSL leaves to the driver):

| op | rule |
|---|---|
| int + - * | wrap around |
| int // and % | floor, sign of the divisor; by zero 0; int min // -1 is int min |
| << >> | by the width or more: 0, or the sign for >> of a negative |
| float -> int | truncates; saturates at the ends; nan is 0 |
| float -> bool | nan is True |
| max, min | nan if either is nan; of 0 and -0 any |
| < == != | false, false, true with a nan |
| sign | nan of nan; 0 of both zeros |
| round | half to even |
| pow | x**0 = 1 and 1**y = 1 even for nan; nan for a negative base and a fractional exponent |
| tanh, erf | 1 and -1 far out; nan of nan |
| denormals | any: kept or 0, as inputs and as results |
| sin, cos, tan | nan of inf |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.uop import DType, Op, UOp, alu, const
from tests.backend.webgpu.run import Array, run
from tests.codegen.kernels import BOOL, F16, F32, I32, U32, load, loop, param, sink, store

nan, inf = math.nan, math.inf
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    7.75,
    -0.1,
    1e-30,
    88.0,
    -100.0,
    1e5,
    3e38,
    -3e38,
    inf,
    -inf,
    nan,
]
INTS = [0, 1, -1, 2, 3, -3, 7, -8, 31, 32, 33, 100, -100, 65537, 2**31 - 1, -(2**31), -(2**31) + 1]
UINTS = [0, 1, 2, 3, 7, 31, 32, 33, 100, 65537, 2**31, 2**32 - 1]
BOOLS = [False, True]
VALUES: dict[DType, Array] = {
    F32: np.array(FLOATS, np.float32),
    I32: np.array(INTS, np.int32),
    U32: np.array(UINTS, np.uint32),
    BOOL: np.array(BOOLS),
    F16: np.array([0, -0.0, 1, -1, 0.5, 2.5, -2.5, 3, 7.75, -0.1, 100, 60000, inf, -inf, nan], np.float16),
}
_erf = np.vectorize(math.erf, otypes=[float])


def _quiet(f: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(f(*args))

    return call


def _wide(f: Callable[..., Any]) -> Callable[..., Any]:
    """Float operations: computed in float64, rounded once."""

    def call(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(f(*[a.astype(np.float64) for a in args])).astype(args[0].dtype)

    return call


def _shift_left(a: Array, b: Array) -> Array:
    wide = (a.astype(np.int64) << np.where((b >= 0) & (b < 32), b, 0).astype(np.int64)).astype(a.dtype)
    return np.where((b >= 0) & (b < 32), wide, 0).astype(a.dtype)


def _shift_right(a: Array, b: Array) -> Array:
    return (a.astype(np.int64) >> np.where((b >= 0) & (b < 32), b, 63).astype(np.int64)).astype(a.dtype)


def _pow(x: Array, y: Array) -> Array:
    return np.float_power(x, y)


FLOAT_UNARY = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.SIGN: np.sign, Op.EXP: np.exp, Op.EXP2: np.exp2, Op.LOG: np.log,
    Op.LOG2: np.log2, Op.TANH: np.tanh, Op.ERF: _erf, Op.SQRT: np.sqrt, Op.RSQRT: lambda x: 1 / np.sqrt(x),
    Op.RECIP: lambda x: 1 / x, Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.ROUND: np.rint, Op.TRUNC: np.trunc,
}  # fmt: skip
FLOAT_BINARY = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.POW: _pow,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.LT: np.less, Op.EQ: np.equal, Op.NE: np.not_equal,
}  # fmt: skip
INT_UNARY = {Op.NEG: np.negative, Op.ABS: np.abs, Op.SIGN: np.sign, Op.NOT: np.invert, Op.FLOOR: lambda x: x}
INT_BINARY = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.IDIV: np.floor_divide, Op.MOD: np.remainder,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.LT: np.less, Op.EQ: np.equal, Op.NE: np.not_equal,
    Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor, Op.SHL: _shift_left, Op.SHR: _shift_right,
}  # fmt: skip
BOOL_BINARY = {
    Op.AND: np.logical_and, Op.OR: np.logical_or, Op.XOR: np.logical_xor, Op.ADD: np.logical_or,
    Op.MUL: np.logical_and, Op.MAX: np.logical_or, Op.MIN: np.logical_and, Op.LT: np.less, Op.EQ: np.equal,
    Op.NE: np.not_equal,
}  # fmt: skip

# Relative tolerance where one rounding is not enough; large results of pow carry the error of their logarithm.
RTOL = {Op.POW: 1e-4, Op.EXP: 1e-5, Op.EXP2: 1e-5, Op.ERF: 1e-6, Op.TANH: 1e-6}


def _check(op: Op, got: Array, want: Array, dtype: DType, args: list[Array]) -> None:
    if want.dtype == bool or not dtype.is_float:
        ok = got == want
    else:
        rtol = RTOL.get(op, 2e-6) if dtype is F32 else 2e-3
        with np.errstate(all="ignore"):
            close = np.isclose(got, want, rtol=rtol, atol=1.2e-38 if dtype is F32 else 6.2e-5, equal_nan=True)
            # A result at the end of the range may round to infinity.
            ok = close | (np.abs(want) > np.finfo(want.dtype).max * 0.999) & (np.sign(got) == np.sign(want))
    bad = np.flatnonzero(~ok)
    assert bad.size == 0, f"{op.name} {dtype.name}: " + "; ".join(
        f"{[a[i].item() for a in args]} -> {got[i]!r}, expected {want[i]!r}" for i in bad[:12]
    )


def _run_all(device: WebGpuDevice, dtype: DType, table: dict[Op, Any], args: list[Array], wide: bool) -> None:
    """One kernel per six ops, each storing all of them."""
    n = args[0].size
    ops = list(table)
    for at in range(0, len(ops), 6):
        some = ops[at : at + 6]
        i = loop(n, 0)
        sources = tuple([load(param(len(some) + k, n, dtype), i) for k in range(len(args))])
        nodes = [alu(op, sources) for op in some]
        graph = sink(*[store(param(s, n, u.dtype), i, u) for s, u in enumerate(nodes)])
        out = run(device, graph, {len(some) + k: a for k, a in enumerate(args)})
        for slot, op in enumerate(some):
            want = (_wide if wide and nodes[slot].dtype is dtype else _quiet)(table[op])(*args)
            _check(op, out[slot], want, dtype, args)


def _pairs(dtype: DType) -> list[Array]:
    v = VALUES[dtype]
    a, b = np.meshgrid(v, v)
    return [a.ravel().copy(), b.ravel().copy()]


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda d: d.name)
def test_float_ops_match_numpy(device: WebGpuDevice, dtype: DType) -> None:
    if dtype not in device.limits.dtypes:
        pytest.skip("no shader-f16")
    _run_all(device, dtype, FLOAT_UNARY, [VALUES[dtype]], wide=True)
    _run_all(device, dtype, FLOAT_BINARY, _pairs(dtype), wide=True)


def test_int_ops_match_numpy(device: WebGpuDevice) -> None:
    _run_all(device, I32, INT_UNARY, [VALUES[I32]], wide=False)
    _run_all(device, I32, INT_BINARY, _pairs(I32), wide=False)
    _run_all(device, U32, {k: v for k, v in INT_UNARY.items() if k is not Op.ABS}, [VALUES[U32]], wide=False)
    _run_all(device, U32, INT_BINARY, _pairs(U32), wide=False)


def test_bool_ops_match_numpy(device: WebGpuDevice) -> None:
    _run_all(device, BOOL, {Op.NOT: np.logical_not}, [VALUES[BOOL]], wide=False)
    _run_all(device, BOOL, BOOL_BINARY, _pairs(BOOL), wide=False)


def test_trigonometry_on_moderate_arguments(device: WebGpuDevice) -> None:
    x = np.concatenate([np.linspace(-100, 100, 2001), [0.0, -0.0]]).astype(np.float32)
    i = loop(x.size, 0)
    value = load(param(3, x.size), i)
    ops = (Op.SIN, Op.COS, Op.TAN)
    out = run(device, sink(*[store(param(s, x.size), i, op(value)) for s, op in enumerate(ops)]), {3: x})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out[0], np.sin(wide), atol=2e-5)
    np.testing.assert_allclose(out[1], np.cos(wide), atol=2e-5)
    np.testing.assert_allclose(out[2], np.tan(wide), rtol=1e-4, atol=2e-5 * (1 + np.tan(wide) ** 2).max())


def test_smooth_functions_are_accurate_everywhere(device: WebGpuDevice) -> None:
    x = np.linspace(-12, 12, 4001).astype(np.float32)
    i = loop(x.size, 0)
    value = load(param(3, x.size), i)
    ops = (Op.ERF, Op.TANH, Op.EXP)
    out = run(device, sink(*[store(param(s, x.size), i, op(value)) for s, op in enumerate(ops)]), {3: x})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out[0], _erf(wide), atol=3e-7)
    np.testing.assert_allclose(out[1], np.tanh(wide), atol=3e-7, rtol=2e-6)
    np.testing.assert_allclose(out[2], np.exp(wide), rtol=3e-6)


def test_casts_saturate_and_wrap(device: WebGpuDevice) -> None:
    floats = np.array(
        [*FLOATS, 2147483520.0, 2147483648.0, 4294967040.0, 4294967296.0, -2147483648.0, -2.9], np.float32
    )
    ints = VALUES[I32]
    n = floats.size
    i = loop(n, 0)
    x, k = load(param(6, n), i), load(param(7, n, I32), i)
    nodes = [x.cast(I32), x.cast(U32), x.cast(BOOL), k.cast(F32), k.cast(U32), k.cast(BOOL)]
    padded = np.resize(ints, n)
    out = run(device, sink(*[store(param(s, n, u.dtype), i, u) for s, u in enumerate(nodes)]), {6: floats, 7: padded})
    wide = np.where(np.isnan(floats), 0, floats.astype(np.float64))
    assert out[0].tolist() == np.clip(np.trunc(wide), -(2**31), 2**31 - 1).astype(np.int32).tolist()
    assert out[1].tolist() == np.clip(np.trunc(wide), 0, 2**32 - 1).astype(np.uint32).tolist()
    assert out[2].tolist() == (floats != 0).tolist()
    assert out[3].tolist() == padded.astype(np.float32).tolist()
    assert out[4].tolist() == padded.astype(np.uint32).tolist()
    assert out[5].tolist() == (padded != 0).tolist()


def test_bitcasts_selects_and_constants(device: WebGpuDevice) -> None:
    x = VALUES[F32]
    n = x.size
    i = loop(n, 0)
    v = load(param(7, n), i)
    special = [nan, inf, -inf, -0.0, 1e-40, 3.4028234663852886e38, 0.1]
    picked: UOp = const(F32, special[-1])
    for at, c in enumerate(special[:-1]):
        picked = i.eq(at).where(const(F32, c), picked)
    bits = UOp(Op.BITCAST, U32, (v,))
    nodes = [
        picked,
        bits,
        UOp(Op.BITCAST, F32, (bits,)),
        v.ne(v),
        v.eq(v),
        const(I32, -(2**31)) + i,
        Op.EXP(const(F32, 1.0)) + v,
    ]
    out = run(device, sink(*[store(param(s, n, u.dtype), i, u) for s, u in enumerate(nodes)]), {7: x})
    want = np.array(special + [0.1] * (n - len(special)), np.float32)
    got = out[0]
    assert np.isnan(got[0])
    assert got[1:4].tolist() == [inf, -inf, 0]
    assert np.signbit(got[3])
    assert got[5:].tolist() == want[5:].tolist()
    assert out[1].tolist() == x.view(np.uint32).tolist()
    assert out[2].view(np.uint32).tolist() == x.view(np.uint32).tolist()
    assert out[3].tolist() == np.isnan(x).tolist()
    assert out[4].tolist() == (~np.isnan(x)).tolist()
    assert out[5].tolist() == (np.arange(n) - 2**31).tolist()
    np.testing.assert_allclose(out[6], np.float32(math.e) + x, rtol=1e-6)


def test_floor_division_by_constants(device: WebGpuDevice) -> None:
    x = np.arange(-40, 40, dtype=np.int32)
    i = loop(x.size, 0)
    v = load(param(6, x.size, I32), i)
    nodes = [v // 7, v % 7, v // 8, v % 8, v // -3, v % -3]
    want = [x // 7, x % 7, x // 8, x % 8, x // -3, x % -3]
    out = run(device, sink(*[store(param(s, x.size, I32), i, u) for s, u in enumerate(nodes)]), {6: x})
    for s, w in enumerate(want):
        assert out[s].tolist() == w.tolist()


def _threefry(counter: int, key0: int, key1: int) -> int:
    """Threefry-2x32-20 as its authors describe it, on Python numbers."""
    mask = 2**32 - 1
    keys = (key0, key1, key0 ^ key1 ^ 0x1BD11BDA)
    a, b = (counter + key0) & mask, key1
    for r in range(20):
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[r % 8]
        a = (a + b) & mask
        b = ((b << turn | b >> (32 - turn)) & mask) ^ a
        if r % 4 == 3:
            j = r // 4 + 1
            a, b = (a + keys[j % 3]) & mask, (b + keys[(j + 1) % 3] + j) & mask
    return a


def test_threefry_matches_its_definition(device: WebGpuDevice) -> None:
    # The reference vector of the paper: all zeros give 6b200159 99ba4efe.
    assert _threefry(0, 0, 0) == 0x6B200159
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2**32, (3, 64), dtype=np.uint32)
    data[:, 0] = 0
    i = loop(64, 0)
    node = alu(Op.THREEFRY, tuple([load(param(1 + k, 64, U32), i) for k in range(3)]))
    out = run(device, sink(store(param(0, 64, U32), i, node)), {1 + k: data[k] for k in range(3)})
    assert out[0].tolist() == [_threefry(*map(int, row)) for row in data.T]


def test_halves_are_rounded_on_the_way_too(device: WebGpuDevice) -> None:
    # A compiler may take float(half(x)) for x.
    if F16 not in device.limits.dtypes:
        pytest.skip("no shader-f16")
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    edges = [65519.9, 65520.0, -65520.0, 2**-24, 2**-25, 1.5 * 2**-25, -(2**-25), 1 + 2**-11, 1 + 3 * 2**-11, 1e30, inf]
    near = halves[np.isfinite(halves)][::7] * np.float32(1 + 2**-12)
    x = np.concatenate([halves, near, np.array(edges, np.float32)])
    i = loop(x.size, 0)
    value = load(param(2, x.size), i).cast(F16)
    graph = sink(store(param(0, x.size), i, value.cast(F32)), store(param(1, x.size, F16), i, value))
    out = run(device, graph, {2: x})
    with np.errstate(all="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(out[0], want.astype(np.float32))
    np.testing.assert_array_equal(out[1], want)
