"""What a kernel graph means, one element at a time: plain Python loops over every range.

Slow on purpose, and written without looking at any executor. Numbers are Python ints, floats and bools; floats are
rounded to their dtype after every op, so float32 results agree to the last bits, not exactly, with reordered sums.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.uop import DType, Op, UOp, normalise_const, toposort

Number = Any


def run_kernel(sink: UOp, buffers: Sequence[np.ndarray]) -> None:
    """Execute `sink` on flat arrays, in the order of the PARAM slots; outputs are written in place."""
    order = toposort((sink,))
    loops = sorted({u for u in order if u.op is Op.RANGE and u.arg[1] == "loop"}, key=lambda u: u.arg[0])
    writes: list[tuple[int, int, Number]] = []
    for point in itertools.product(*[range(int(r.src[0].arg)) for r in loops]):
        env = dict(zip(loops, point, strict=True))
        for store in sink.src:
            memo = dict(env)
            if len(store.src) > 3 and not evaluate(store.src[3], memo, buffers):
                continue
            index = evaluate(store.src[1], memo, buffers)
            writes.append((store.src[0].arg[0], index, evaluate(store.src[2], memo, buffers)))
    # every value is computed before anything is written
    for slot, index, value in writes:
        buffers[slot][index] = value


def evaluate(root: UOp, memo: dict[UOp, Number], buffers: Sequence[np.ndarray]) -> Number:
    """The value of `root` where `memo` gives the ranges."""
    if root in memo:
        return memo[root]
    op = root.op
    if op is Op.CONST:
        value = root.arg
    elif op is Op.LOAD:
        if len(root.src) > 2 and not evaluate(root.src[2], memo, buffers):
            value = normalise_const(root.dtype, 0)
        else:
            index = evaluate(root.src[1], memo, buffers)
            memory = buffers[root.src[0].arg[0]]
            assert 0 <= index < memory.size, f"load of element {index} of {memory.size}"
            value = memory[index].item()
    elif op is Op.REDUCE:
        value = _reduce(root, memo, buffers)
    elif op is Op.ARGSORT:
        keys = buffers[root.src[0].arg[0]]
        n, k = root.arg if isinstance(root.arg, tuple) else (keys.size, keys.size)
        row, place = divmod(evaluate(root.src[1], memo, buffers), k)
        value = sorted(range(n), key=lambda i: keys[row * n + i])[place]
    elif op is Op.SCAN:
        f, n, after = root.arg
        at = evaluate(root.src[1], memo, buffers)
        place = at // after % n
        terms = buffers[root.src[0].arg[0]][at - place * after : at + 1 : after]
        value = {Op.ADD: np.sum, Op.MUL: np.prod, Op.MAX: np.max, Op.MIN: np.min}[f](terms).item()
    elif op is Op.SCATTER_ADD:
        index, rows = [buffers[s.arg[0]][: s.arg[1][0]] for s in root.src[:2]]
        row, *column = [evaluate(s, memo, buffers) for s in root.src[2:]]
        taken = rows.reshape(index.size, -1)[index == row]
        value = taken[:, column[0] if column else 0].sum(dtype=rows.dtype).item()
    else:
        value = apply(op, root.dtype, [s.dtype for s in root.src], [evaluate(s, memo, buffers) for s in root.src])
    memo[root] = value
    return value


def _reduce(u: UOp, memo: dict[UOp, Number], buffers: Sequence[np.ndarray]) -> Number:
    ranges = u.src[1:]
    extents = [evaluate(r.src[0], dict(memo), buffers) for r in ranges]
    identity = {Op.ADD: 0, Op.MUL: 1, Op.MAX: u.dtype.min, Op.MIN: u.dtype.max}[u.arg]
    total = identity if u.dtype.is_float else normalise_const(u.dtype, identity)
    closed = 0
    for r in ranges:
        closed |= 1 << r.arg[0]
    outside = {k: v for k, v in memo.items() if not k.ranges & closed}
    for point in itertools.product(*[range(n) for n in extents]):
        inner = dict(outside)
        inner.update(zip(ranges, point, strict=True))
        value = evaluate(u.src[0], inner, buffers)
        if u.dtype.is_float and u.arg in (Op.ADD, Op.MUL):
            # sums and products are judged against wide arithmetic, rounded once
            total = total + value if u.arg is Op.ADD else total * value
        else:
            total = apply(u.arg, u.dtype, [u.dtype, u.dtype], [total, value])
    return _round(u.dtype, total)


def _round(d: DType, v: Number) -> Number:
    if d.is_float and isinstance(v, float) and not math.isfinite(v):
        return v
    return normalise_const(d, v)


def _bits(d: DType, v: Number) -> int:
    if d.is_float:
        return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[d.bits], v), "little")
    return int(v) & ((1 << max(8, d.bits)) - 1)


def _from_bits(d: DType, b: int) -> Number:
    if d.is_float:
        kind = {16: "<e", 32: "<f", 64: "<d"}[d.bits]
        return struct.unpack(kind, b.to_bytes(d.bits // 8, "little"))[0]
    return normalise_const(d, b)


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (32 - r))) & 0xFFFFFFFF


def _threefry(counter: int, k0: int, k1: int) -> int:
    m = 0xFFFFFFFF
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (counter + k0) & m, k1
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = (x0 + x1) & m
            x1 = _rotl(x1, r) ^ x0
        x0 = (x0 + keys[(group + 1) % 3]) & m
        x1 = (x1 + keys[(group + 2) % 3] + group + 1) & m
    return x0


def _float(f: Any, *v: float) -> float:
    try:
        return f(*v)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.nan


def _divide(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _log(x: float) -> float:
    return -math.inf if x == 0 else _float(math.log, x)


_FLOAT_UNARY = {
    Op.EXP: lambda x: _float(math.exp, x),
    Op.EXP2: lambda x: _float(lambda y: 2.0**y, x),
    Op.LOG: _log,
    Op.LOG2: lambda x: -math.inf if x == 0 else _float(math.log2, x),
    Op.SIN: lambda x: _float(math.sin, x),
    Op.COS: lambda x: _float(math.cos, x),
    Op.TAN: lambda x: _float(math.tan, x),
    Op.TANH: math.tanh,
    Op.ERF: math.erf,
    Op.SQRT: lambda x: _float(math.sqrt, x),
    Op.RSQRT: lambda x: _divide(1.0, _float(math.sqrt, x)),
    Op.RECIP: lambda x: _divide(1.0, x),
}
_ROUNDING = {Op.FLOOR: math.floor, Op.CEIL: math.ceil, Op.ROUND: round, Op.TRUNC: math.trunc}


def apply(op: Op, d: DType, src: Sequence[DType], v: Sequence[Number]) -> Number:
    """One op on Python numbers."""
    return _round(d, _apply(op, d, src, v))


def _apply(op: Op, d: DType, src: Sequence[DType], v: Sequence[Number]) -> Number:
    a = v[0]
    b = v[1] if len(v) > 1 else None
    if op in _FLOAT_UNARY:
        return _FLOAT_UNARY[op](a)
    if op in _ROUNDING:
        return a if isinstance(a, float) and not math.isfinite(a) else type(a)(_ROUNDING[op](a))
    if op is Op.CAST:
        if d.kind == "bool":
            return a != 0
        if src[0].is_float and d.is_int:
            if a != a:
                return 0
            return int(max(d.min, min(d.max, a))) if math.isfinite(a) else (d.max if a > 0 else d.min)
        return a
    if op is Op.BITCAST:
        return _from_bits(d, _bits(src[0], a))
    if op is Op.NEG:
        return -a
    if op is Op.ABS:
        return abs(a)
    if op is Op.SIGN:
        return a if a != a else (a > 0) - (a < 0)
    if op is Op.NOT:
        return not a if d.kind == "bool" else ~a
    if op is Op.WHERE:
        return v[1] if a else v[2]
    if op is Op.THREEFRY:
        return _threefry(*v)
    if op is Op.LT:
        return a < b
    if op is Op.EQ:
        return a == b
    if op is Op.NE:
        return a != b
    if op in (Op.MAX, Op.MIN):
        if a != a or b != b:
            return math.nan
        return (max if op is Op.MAX else min)(a, b)
    if d.kind == "bool":
        return {Op.ADD: a or b, Op.OR: a or b, Op.MUL: a and b, Op.AND: a and b, Op.XOR: a != b}[op]
    if op is Op.ADD:
        return a + b
    if op is Op.SUB:
        return a - b
    if op is Op.MUL:
        return a * b
    if op is Op.DIV:
        return _divide(a, b)
    if op is Op.POW:
        return float(np.power(np.float64(a), np.float64(b)))
    if op is Op.IDIV:
        return (a // b if b else 0) if d.is_int else (math.nan if b == 0 else a // b)
    if op is Op.MOD:
        return (a % b if b else 0) if d.is_int else (math.nan if b == 0 else a % b)
    if op is Op.AND:
        return a & b
    if op is Op.OR:
        return a | b
    if op is Op.XOR:
        return a ^ b
    if op is Op.SHL:
        return a << b if 0 <= b < d.bits else 0
    if op is Op.SHR:
        return a >> b if 0 <= b < d.bits else (-1 if a < 0 else 0)
    raise AssertionError(f"no meaning for {op}")
