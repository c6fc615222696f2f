"""Elementwise ops as NumPy calls that write into given memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from anneal.backend.arrays import Array, NumpyDType, numpy_dtype
from anneal.backend.cpu.primitives import Build, Instr, PlanValue, Step, bits, once, union
from anneal.errors import CompilerError
from anneal.uop import ALU, DType, Op, covering

# Elements up to which an array that is known while compiling is stored; a larger one is computed again in each block.
FIXED = 1 << 18


class Emitter:
    """The primitive calls of one block, as instructions; work on what is known while compiling costs nothing at run
    time. `top` has the largest value of each dim."""

    def __init__(self, top: Sequence[int]) -> None:
        self.top = top
        self.instrs: list[Instr] = []
        self.same: dict[tuple[Any, ...], PlanValue] = {}

    def emit(
        self, name: str, build: Build, ins: Sequence[PlanValue], dtype: NumpyDType, inplace: bool = True
    ) -> PlanValue:
        """A new value of the broadcast shape of `ins`. `inplace`: the output may lie on an input of its own size."""
        mask = union(v.mask for v in ins)
        key = (name, dtype, *ins)
        found = self.same.get(key)
        if found is not None:
            return found
        if all(map(self.fixed, ins)) and math.prod(self.top[s] + 1 for s in bits(mask)) <= FIXED:
            arrays = [v.ref for v in ins]
            array = np.empty(np.broadcast_shapes(*[a.shape for a in arrays]), dtype)
            for f, args in build(arrays, array):
                f(*args)
            out = PlanValue("fixed" if mask else "const", dtype, mask, array if mask else array.reshape(()))
        else:
            out = PlanValue("temp", dtype, mask)
            self.instrs.append(Instr(name, build, list(ins), out, inplace))
        self.same[key] = out
        return out

    def const(self, dtype: NumpyDType, value: Any) -> PlanValue:
        """A scalar value."""
        key = ("const", dtype, repr(value))
        found = self.same.get(key)
        if found is None:
            found = self.same[key] = PlanValue("const", dtype, 0, np.array(value).astype(dtype))
        return found

    def bits(self, value: PlanValue, dtype: NumpyDType) -> PlanValue:
        """The same memory under another dtype of equal size."""
        if value.dtype == dtype:
            return value
        key = ("bits", dtype, value)
        found = self.same.get(key)
        if found is not None:
            return found
        if value.root.dtype == dtype:
            return value.root
        if self.fixed(value):
            found = PlanValue(value.kind, dtype, value.mask, value.ref.view(dtype))
        else:
            found = PlanValue("bits", dtype, value.mask, value.root)
        self.same[key] = found
        return found

    def fixed(self, value: PlanValue) -> bool:
        """True when the value is known while compiling."""
        return value.kind in ("const", "fixed")

    def call(self, f: Callable[..., Any], dtype: NumpyDType, *ins: PlanValue) -> PlanValue:
        """Emit a ufunc that takes its output as the last positional argument."""
        return self.emit(f.__name__, once(f), ins, dtype)

    def cast(self, value: PlanValue, dtype: NumpyDType) -> PlanValue:
        """The value as NumPy makes it one of `dtype`."""
        return self.emit("cast", copy_cast, (value,), dtype, False)


def copy_cast(ins: Sequence[Array], out: Array) -> list[Step]:
    return [(np.copyto, (out, ins[0], "unsafe"))]


def _mask(ins: Sequence[Array], out: Array) -> list[Step]:
    return [(partial(np.negative, out=out, casting="unsafe"), (ins[0].view(np.int8),))]


_ONE8 = np.int8(1)


def _unmask(ins: Sequence[Array], out: Array) -> list[Step]:
    return [(partial(np.subtract, out=out, casting="unsafe"), (ins[0].view(np.int8), _ONE8))]


def negated(e: Emitter, dtype: NumpyDType, x: PlanValue) -> PlanValue:
    """`x` with the other sign: floats invert the bit of their sign, integers are taken from 0.

    NumPy 2.4's `negative` reads wrong elements if numbers of 4 bytes lie 16 bytes apart, or numbers of 8 bytes lie 64
    bytes apart, and its output has gaps too.
    """
    if dtype.kind != "f":
        return e.call(np.subtract, dtype, e.const(dtype, 0), x)
    bits = bits_dtype(dtype)
    sign = e.const(bits, np.iinfo(bits).min)
    return e.bits(e.call(np.bitwise_xor, bits, e.bits(x, bits), sign), dtype)


def _saturate(x: Array, out: Array) -> None:
    info = np.iinfo(out.dtype)
    high = x >= x.dtype.type(float(info.max) + 1 if info.max > 2**24 else info.max)
    low = x <= x.dtype.type(info.min)  # that may be -inf
    np.copyto(out, np.where(high | low | (x != x), x.dtype.type(0), x), "unsafe")
    np.copyto(out, info.max, "unsafe", high)
    np.copyto(out, info.min, "unsafe", low)


def _power(x: Array, y: Array, out: Array) -> None:
    """np.power without its short cut for one exponent of 0.5, the square root, which knows neither -0.0 nor -inf."""
    if not any(y.strides) and y.size and y.flat[0] == 0.5:
        lowest = x == -np.inf  # asked first: `out` may be `x`
        np.sqrt(np.add(x, 0, out), out)  # -0.0 + 0 is 0.0
        np.copyto(out, np.inf, where=lowest)
    else:
        np.power(x, y, out)


_erf64 = np.frompyfunc(math.erf, 1, 1)


def _erf_wide(x: Array, out: Array) -> None:
    out[...] = _erf64(x)


# erf(x) = tanh(x P(x^2)) with P fitted to atanh(erf(x)) / x for this file, by iterated least squares weighted for the
# relative error of the result: 1e-7 exactly, 2.5e-7 evaluated in float32. Highest power first. P grows beyond the
# fitted |x| < 4.2, so that the tails are 1.
_ERF = (
    1.4185473690241375e-07,
    -5.668516548754613e-06,
    8.763755602991246e-05,
    -6.197851987018657e-04,
    -1.918302668846049e-04,
    1.0276905560150044e-01,
    1.1283792743217493,
)

# The functions of NumPy that the rows of ops name, and those that take an output where a row has another meaning.
_UFUNCS: dict[Op, Callable[..., Any]] = {
    **{op: getattr(np, op.numpy) for op in ALU if isinstance(op.numpy, str)},
    Op.NOT: np.invert,
    Op.RECIP: np.reciprocal,
    Op.SUB: np.subtract,
    Op.IDIV: np.floor_divide,
    Op.MOD: np.remainder,
    Op.POW: _power,
}
_ROUNDING = frozenset((Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC))
_BOOL = np.dtype(np.bool_)
_U32 = np.dtype(np.uint32)
_F64 = np.dtype(np.float64)


def bits_dtype(dtype: NumpyDType) -> NumpyDType:
    """The signed integer dtype as wide as `dtype`."""
    return np.dtype(f"i{dtype.itemsize}")


def lower(e: Emitter, op: Op, dtype: DType, src_dtypes: Sequence[DType], src: Sequence[PlanValue]) -> PlanValue:
    """Emit `op` on `src`; `dtype` and `src_dtypes` are the node's and its sources'.

    Integer rules: arithmetic wraps silently; division and modulo by zero give 0; a shift by the width or more gives 0
    (or the sign, for a right shift of a negative); a float becomes an integer by truncation, saturating at the ends,
    nan as 0.
    """
    out = numpy_dtype(dtype)
    if op is Op.CAST:
        return _cast(e, src_dtypes[0], dtype, src[0])
    if op is Op.BITCAST:
        return e.bits(src[0], out)
    if op in _OTHERS:
        return _OTHERS[op](e, out, *src)  # type: ignore[no-any-return]
    f = _UFUNCS.get(op)
    if f is None:
        raise CompilerError(f"the cpu device has no {op.name}", stage="cpu.lower")
    if op in _ROUNDING and not dtype.is_float:
        return src[0]
    if op is Op.MAX or op is Op.MIN:  # which deprecate a positional output
        return e.emit(f.__name__, lambda ins, out: [(partial(f, out=out), tuple(ins))], src, out)
    return e.call(f, out, *src)


def _cast(e: Emitter, source: DType, target: DType, x: PlanValue) -> PlanValue:
    out = numpy_dtype(target)
    if source is target:
        return x
    if target.kind == "bool":
        return e.call(np.not_equal, out, x, e.const(numpy_dtype(source), 0))
    if source.is_float and target.is_int:
        return e.emit("saturate", once(_saturate), (x,), out, False)
    return e.cast(x, out)


def _zero(value: PlanValue) -> bool:
    """True when the value is the scalar whose bits are all zero."""
    return value.kind == "const" and not any(value.ref.tobytes())


def _where(e: Emitter, out: NumpyDType, c: PlanValue, a: PlanValue, b: PlanValue) -> PlanValue:
    """A select by masks: np.where and masked copies mispredict a branch per element, 10 to 40 times slower."""
    bits = _BOOL if out == _BOOL else bits_dtype(out)
    both, xor = partial(e.call, np.bitwise_and, bits), partial(e.call, np.bitwise_xor, bits)
    if out == _BOOL:
        return xor(b, both(xor(a, b), c))
    ai, bi = e.bits(a, bits), e.bits(b, bits)

    def masked(x: PlanValue, name: str, build: Build) -> PlanValue:
        return both(x, e.emit(name, build, (c,), bits, False))

    if _zero(b):
        chosen = masked(ai, "mask", _mask)
    elif _zero(a):
        chosen = masked(bi, "unmask", _unmask)
    elif e.fixed(c) and (e.fixed(a) or e.fixed(b)):
        chosen = e.call(np.bitwise_or, bits, masked(ai, "mask", _mask), masked(bi, "unmask", _unmask))
    else:
        mask = e.emit("mask", _mask, (c,), bits, False)
        chosen = xor(both(xor(ai, bi), mask), bi)
    return e.bits(chosen, out)


def _erf(e: Emitter, out: NumpyDType, x: PlanValue) -> PlanValue:
    if out == _F64:
        return e.emit("erf", once(_erf_wide), (x,), out)
    add, times = partial(e.call, np.add, out), partial(e.call, np.multiply, out)
    s = times(x, x)
    p = times(s, e.const(out, _ERF[0]))
    for c in _ERF[1:-1]:
        p = times(add(p, e.const(out, c)), s)
    p = add(p, e.const(out, _ERF[-1]))
    return e.call(np.tanh, out, times(p, x))


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(e: Emitter, _: NumpyDType, counter: PlanValue, key0: PlanValue, key1: PlanValue) -> PlanValue:
    """threefry2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)."""
    add, xor = partial(e.call, np.add, _U32), partial(e.call, np.bitwise_xor, _U32)
    keys = (key0, key1, xor(xor(key0, key1), e.const(_U32, 0x1BD11BDA)))
    x0, x1 = add(counter, key0), key1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = add(x0, x1)
            left = e.call(np.left_shift, _U32, x1, e.const(_U32, rotation))
            right = e.call(np.right_shift, _U32, x1, e.const(_U32, 32 - rotation))
            x1 = xor(e.call(np.bitwise_or, _U32, left, right), x0)
        x0 = add(x0, keys[(group + 1) % 3])
        x1 = add(x1, add(keys[(group + 2) % 3], e.const(_U32, group + 1)))
    return x0


_OTHERS: dict[Op, Callable[..., Any]] = {
    Op.NEG: negated,
    Op.WHERE: _where,
    Op.RSQRT: lambda e, out, x: e.call(np.reciprocal, out, e.call(np.sqrt, out, x)),
    Op.ERF: _erf,
    Op.THREEFRY: _threefry,
}
covering("the cpu device's list of ops", {**_UFUNCS, **_OTHERS}, ALU - {Op.CAST, Op.BITCAST})
