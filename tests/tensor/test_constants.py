"""What is folded equals what is executed: every op, on every special constant of every dtype, in every operand.

An operand is a constant in the graph, or the same value in memory; all ways must give the same bits on the cpu device,
signs of zeros included. What webgpu makes of constants is in tests/backend/webgpu/test_literals.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from anneal.backend import numpy_dtype
from anneal.errors import RangeError
from anneal.runtime import here, realize
from anneal.tensor import Tensor
from anneal.uop import ALU, DType, Op, UOp, alu, const, dtypes
from anneal.uop.dtype import normalise_const
from tests.reference import evaluate
from tests.tiers import thinned

Array = np.ndarray[Any, Any]

FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
INTEGERS = tuple([getattr(dtypes, f"{sign}int{bits}") for bits in (32, 8, 16, 64) for sign in ("", "u")])
DTYPES = (*FLOATS[:1], *INTEGERS[:1], dtypes.bool_, *FLOATS[1:], *INTEGERS[1:])


def values_of(dtype: DType) -> list[Any]:
    """Zeros, units, ends, and a few others, as `dtype` stores them."""
    if dtype.kind == "bool":
        return [False, True]
    if dtype.is_int:
        ends = [dtype.min, dtype.max, dtype.min + 1, dtype.max - 1]
        odd = 2**60 + 2**36 + 1  # a float32 of it by way of a float64 would be rounded twice
        return list(dict.fromkeys(normalise_const(dtype, v) for v in (0, 1, -1, 2, 3, -7, 31, odd, *ends)))
    least = 2.0 ** (dtype.least - dtype.digits + 1)
    sizes = (0.0, 1.0, math.inf, math.nan, least, 2.0**dtype.least, dtype.largest, 0.5, 1.5, 3.0, 0.1)
    found = [normalise_const(dtype, s * v) for v in sizes for s in (1.0, -1.0)][:-1]
    return [v for n, v in enumerate(found) if v == v or n == 6]


def filled(dtype: DType, values: Sequence[Any]) -> Array:
    return np.array(values, np.float64 if dtype.is_float else object).astype(numpy_dtype(dtype))


def bits(x: Array) -> Array:
    """The values so that equal ones compare equal: bit for bit, and all nans alike."""
    if x.dtype.kind not in "fV" and x.dtype.name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return x
    out = x.view(f"u{x.dtype.itemsize}").copy()
    out[np.isnan(x.astype(np.float64))] = 1 << (8 * x.dtype.itemsize - 1) - 1
    return out


@pytest.fixture(autouse=True)
def _integers_wrap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """What constants prove to leave int32 is refused elsewhere (test_wholes.py); here its folding is compared."""
    monkeypatch.setattr(here, "wraps", True)


# -- single ops --------------------------------------------------------------------------------------------------------


def takes(op: Op, dtype: DType) -> bool:
    if op.takes == "floats":
        return dtype.is_float
    if op.takes == "whole":
        return dtype.is_int if op in (Op.SHL, Op.SHR) else not dtype.is_float
    return dtype.kind != "bool" or op not in (Op.NEG, Op.ABS, Op.SIGN, Op.SUB, Op.IDIV, Op.MOD)


OPS = sorted((op for op in ALU if (op.arity or 0) < 3 and op not in (Op.CAST, Op.BITCAST)), key=lambda op: op.index)
CASES = [pytest.param(op, d, id=f"{op.name}-{d.name}") for d in DTYPES for op in OPS if takes(op, d)]


def read(ts: Sequence[Tensor]) -> list[Array]:
    realize(ts)
    return [t.numpy() for t in ts]


def computed(nodes: Sequence[UOp], like: Tensor) -> Array:
    """What nodes over constants alone are: the constants that they folded to, or what the device computes."""
    waiting = [like._new(u) for u in nodes if not u.is_const]
    got = iter(read(waiting))
    return filled(nodes[0].dtype, [u.arg if u.is_const else next(got)[()] for u in nodes])


def ways(op: Op, dtype: DType) -> tuple[Array, list[tuple[str, Array]]]:
    """The op on every value, or pair of values, in memory; and the same where an operand, or all, are constants."""
    values = values_of(dtype)
    n = len(values)
    memory = Tensor(filled(dtype, values))
    nodes = [const(dtype, v) for v in values]
    new = memory._new
    if op.arity == 1:
        [whole] = read([new(alu(op, (memory.uop,)))])
        return whole, [("a constant", computed([alu(op, (c,)) for c in nodes], memory))]
    across, down = (memory.reshape(s).expand(n, n).contiguous() for s in ((1, n), (n, 1)))
    whole, right, left = read([
        new(alu(op, (down.uop, across.uop))),
        Tensor.stack([new(alu(op, (memory.uop, c))) for c in nodes], 1),
        Tensor.stack([new(alu(op, (c, memory.uop))) for c in nodes], 0),
    ])  # fmt: skip
    both = computed([alu(op, (a, b)) for a in nodes for b in nodes], memory).reshape(n, n)
    return whole, [("constant on the right", right), ("constant on the left", left), ("two constants", both)]


def differences(op: Op, dtype: DType, whole: Array, folded: Array) -> list[str]:
    values = values_of(dtype)
    apart = np.argwhere(bits(whole) != bits(folded))
    return [
        f"{op.name}{tuple(values[i] for i in at)}: {folded[tuple(at)]}, executed {whole[tuple(at)]}" for at in apart
    ]


@pytest.mark.parametrize(("op", "dtype"), thinned(CASES, test=11, ci=3))
def test_ops(op: Op, dtype: DType) -> None:
    whole, others = ways(op, dtype)
    wrong = [f"{way}: {d}" for way, folded in others for d in differences(op, dtype, whole, folded)]
    assert not wrong, f"{dtype.name}\n" + "\n".join(wrong)


@pytest.mark.parametrize(("op", "dtype"), thinned(CASES, test=11, ci=3))
def test_what_folds_is_the_meaning_of_the_op(op: Op, dtype: DType) -> None:
    """Numbers fold to what the op's row says of arrays in NumPy, which the reference interpreter computes."""
    rows = list(itertools.product(values_of(dtype), repeat=op.arity or 0))
    [meant] = evaluate([alu(op, tuple(Tensor(filled(dtype, column)).uop for column in zip(*rows, strict=True)))])
    folded = [alu(op, tuple(const(dtype, v) for v in row)) for row in rows]
    found = filled(folded[0].dtype, [u.arg if u.is_const else v for u, v in zip(folded, meant, strict=True)])
    apart = np.flatnonzero(bits(found) != bits(meant))
    assert not [f"{op.name}{rows[i]}: {found[i]}, meant {meant[i]}" for i in apart]


@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.name)
def test_casts(source: DType) -> None:
    values = values_of(source)
    memory = Tensor(filled(source, values))
    whole = read([memory.cast(target) for target in DTYPES])
    wrong = []
    for target, executed in zip(DTYPES, whole, strict=True):
        folded = computed([const(source, v).cast(target) for v in values], memory)
        apart = np.flatnonzero(bits(executed) != bits(folded))
        wrong += [f"{target.name}({values[i]}): {folded[i]}, executed {executed[i]}" for i in apart]
    assert not wrong, "\n".join(wrong)


def test_choices() -> None:
    """where() between constants, under a condition that is a constant, or is not."""
    values = values_of(dtypes.float32)
    memory, yes = Tensor(filled(dtypes.float32, values)), Tensor([True] * len(values))
    for p, other in ((yes, 1.0), (~yes, -0.0), (Tensor.full((), True), 0.0), (Tensor.full((), False), math.nan)):
        executed, left, right = read([
            Tensor.stack([p.where(memory, Tensor([other])), p.where(Tensor([other]), memory)]),
            p.where(memory, other) + Tensor(-0.0),
            p.where(other, memory) + Tensor(-0.0),
        ])  # fmt: skip
        assert (bits(executed) == bits(np.stack([left, right]))).all()


# -- functions of several ops ------------------------------------------------------------------------------------------

FUNCTIONS = [
    "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "silu", "gelu", "softplus", "softsign", "mish", "hardtanh",
    "hardsigmoid", "hardswish", "softshrink", "hardshrink", "tanhshrink", "sigmoid", "logsigmoid", "exp", "exp2", "expm1", "log",
    "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "square", "sin", "cos", "tan", "tanh", "sinh", "cosh", "erf", "erfc",
    "erfinv", "asin", "acos", "atan", "asinh", "acosh", "atanh", "cbrt", "sinc", "logit", "lgamma", "digamma", "floor", "ceil",
    "round", "trunc", "frac", "sign", "abs", "neg", "isnan", "isinf", "isfinite", "signbit", "nan_to_num", "logical_not", "deg2rad",
]  # fmt: skip
OF_TWO = [
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "hypot", "atan2",
    "copysign", "logaddexp", "logaddexp2", "xlogy", "heaviside", "eq", "ne", "lt", "le", "gt", "ge", "isclose", "logical_and",
    "logical_or", "logical_xor", "ldexp", "clamp_min", "clamp_max",
]  # fmt: skip
OF_INTEGERS = [
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "minimum", "bitwise_and", "bitwise_or",
    "bitwise_xor", "gcd", "lcm", "eq", "ne", "lt", "le", "gt", "ge", "sign", "abs", "neg", "bitwise_not", "relu", "square",
]  # fmt: skip
DIVISIONS = ("floor_divide", "remainder", "fmod")  # which refuse a 0 that they know of, of integers
CONSTANTS = {
    "float32": (0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 2.0**-149, 3.4e38, 0.5),
    "int32": (0, 1, -1, 7, -(2**31), 2**31 - 1),
}
_ALONE = frozenset((*FUNCTIONS, "bitwise_not"))
ROWS = [
    pytest.param(n, d, id=f"{n}-{d}")
    for d, names in (("float32", FUNCTIONS + OF_TWO), ("int32", OF_INTEGERS))
    for n in names
]


@pytest.mark.parametrize(("name", "dtype"), thinned(ROWS, test=4, ci=2))
def test_functions(name: str, dtype: str) -> None:
    """A method on numbers in memory, and on numbers that the graph knows: on the left, on the right, on both sides."""
    values = CONSTANTS[dtype]
    memory = Tensor(np.array(values, dtype))
    if dtype == "int32" and name in DIVISIONS:
        with pytest.raises(RangeError, match="no quotient by 0"):
            getattr(memory, name)(0)
        values = tuple([v for v in values if v])
        memory = Tensor(np.array(values, dtype))
    n = len(values)

    def call(*args: Any) -> Tensor:
        return getattr(args[0], name)(*args[1:])  # type: ignore[no-any-return]

    numbers = [Tensor.full((), v, dtype=dtype) for v in values]
    if name in _ALONE:
        whole, *folded = read([call(memory), *[call(t) for t in numbers]])
        ways = {"a constant": np.array(folded)}
    else:
        across, down = (memory.reshape(s).expand(n, n).contiguous() for s in ((1, n), (n, 1)))
        whole, *got = read([
            call(down, across),
            *[call(memory, v) for v in values],
            *[call(t, memory) for t in numbers],
            *[call(a, b) for a in numbers for b in numbers],
        ])  # fmt: skip
        both = np.array(got[2 * n :]).reshape(n, n)
        ways = {"right": np.stack(got[:n], 1), "left": np.stack(got[n : 2 * n]), "both": both}
    for way, found in ways.items():
        assert found.dtype == whole.dtype
        apart = np.argwhere(bits(found) != bits(whole))
        wrong = [f"{tuple(values[i] for i in at)}: {found[tuple(at)]}, executed {whole[tuple(at)]}" for at in apart]
        assert not wrong, f"{name}, {way}:\n" + "\n".join(wrong)
