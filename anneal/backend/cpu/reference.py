"""The oracle: a tensor graph evaluated op by op in plain NumPy.

It knows nothing of rules, scheduling or kernels, so it cannot share a mistake with them. Speed is no aim; memory is
given back as soon as the last user of a value has run.

What it fixes, where NumPy leaves a choice (the devices follow it):

- integers wrap; integer division and modulo by zero give 0; both round towards minus infinity, as Python's do;
- a float outside the range of an integer dtype casts to the nearest end of that range, nan to 0; nan casts to True;
- floats of 8 and 16 bits are computed with in float32 and rounded once, at the end of each op; a product that is summed
  is not rounded;
- an empty reduction gives the identity: 0, 1, or the lowest or highest value of the dtype;
- MAX and MIN give nan if either side is nan; ROUND rounds halves to even;
- GATHER reads 0 at an index out of range and SCATTER_ADD drops the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anneal.backend.arrays import numpy_dtype
from anneal.backend.registry import get_device
from anneal.backend.storage import Storage
from anneal.errors import CompilerError
from anneal.uop import ALU, SYMBOLIC, Op, UOp, const, dtypes, toposort
from anneal.uop.sizes import evaluator, mapped, symbolic_arg, unbound

__all__ = ["evaluate", "threefry2x32"]

Array = NDArray[Any]


def evaluate(uops: Sequence[UOp], *, dtype_override: DTypeLike | None = None) -> list[Array]:
    """The value of each tensor graph, as a new array of its shape and dtype.

    `dtype_override` replaces float32 and float64 (a gradient check asks for float64), and float32 where narrower floats
    are computed with. Raises CompilerError for an op that does not belong in a tensor graph.

    >>> from anneal.uop import Op, UOp, const, dtypes
    >>> x = UOp(Op.IOTA, dtypes.int32, (), (4,))
    >>> evaluate([x * x + 1])
    [array([ 1,  2,  5, 10], dtype=int32)]
    """
    override = None if dtype_override is None else np.dtype(dtype_override)
    if SYMBOLIC.seen:
        uops = _with_numbers(uops)
    order = toposort(uops)
    wide = np.dtype(np.float32) if override is None else override  # what narrow floats are computed in
    users: dict[UOp, int] = dict.fromkeys(order, 0)
    for u in order:
        for s in u.src:
            users[s] += 1
    for u in uops:
        users[u] += 1
    values: dict[UOp, Array] = {}
    products: dict[UOp, Array] = {}  # of narrow floats, before they are rounded
    with np.errstate(all="ignore"):
        for u in order:
            narrow = u.dtype.is_narrow
            out = override if override is not None and u.dtype.is_float and not narrow else numpy_dtype(u.dtype)
            src = [values[s] for s in u.src]
            if u.op is not Op.BITCAST:
                src = [x.astype(wide) if s.dtype.is_narrow else x for s, x in zip(u.src, src, strict=True)]
            if u.op is Op.REDUCE_AXIS and u.src[0] in products:
                src = [products[u.src[0]]]
            # NumPy rounds any number to float16 once; the others are reached by float32.
            direct = u.op is Op.BUFFER or u.op is Op.BITCAST or (u.op is Op.CAST and u.dtype is dtypes.float16)
            value = _evaluate_one(u, src, wide if narrow and not direct else out)
            if narrow and u.op is Op.MUL:
                products[u] = value
            if narrow and not direct:
                value = value.astype(np.float32)
            values[u] = value if value.dtype == out else value.astype(out)
            if values[u].shape != u.shape:
                raise CompilerError(f"reference: {u.op.name} gave shape {values[u].shape}, not {u.shape}", node=u)
            for s in u.src:
                users[s] -= 1
                if not users[s]:
                    del values[s]
                    products.pop(s, None)
    # a copy, so that no result aliases a buffer or another result
    return [values[u].copy(order="C") for u in uops]


def _with_numbers(uops: Sequence[UOp]) -> list[UOp]:
    """The graphs with the values of bound variables in their place."""
    new: dict[UOp, UOp] = {}

    def number(u: UOp) -> int:
        values: dict[str, int] = {}
        return evaluator((unbound(u, values),))(values)[0]

    for u in toposort(uops):
        src = tuple([new[s] for s in u.src])
        arg = mapped(u.arg, number) if symbolic_arg(u.arg) else u.arg
        if u.op is Op.BIND:
            new[u] = const(u.dtype, u.arg[3])
        elif u.op in ALU:
            new[u] = u.replace(src=src)
        else:
            new[u] = u if src == u.src and arg is u.arg else UOp(u.op, u.dtype, src, arg, u.tag)
    return [new[u] for u in uops]


def _update(u: UOp, src: list[Array], _: np.dtype[Any]) -> Array:
    out, starts = src[0].copy(), iter(src[2:])
    places = []
    for b, n, whole in zip(u.arg, src[1].shape, out.shape, strict=True):
        begin = min(max(int(next(starts)), 0), whole - n) if b is None else b
        places.append(slice(begin, begin + n))
    out[tuple(places)] = src[1]
    return out


def _evaluate_one(u: UOp, src: list[Array], out: np.dtype[Any]) -> Array:
    if u.op in ALU:
        value = np.asarray(_alu(u, src, out))
        return value if value.shape == u.shape else np.broadcast_to(value, u.shape)
    rule = _GRAPH.get(u.op)
    if rule is None:
        raise CompilerError(f"reference: {u.op.name} does not belong in a tensor graph", node=u)
    return rule(u, src, out)


def _alu(u: UOp, src: list[Array], out: np.dtype[Any]) -> Any:
    if u.op is Op.CAST:
        return _cast(src[0], out)
    if u.op is Op.BITCAST:
        # an override must not change which bits are seen
        return src[0].astype(numpy_dtype(u.src[0].dtype)).view(numpy_dtype(u.dtype))
    return _ELEMENTWISE[u.op](*src)


def _cast(x: Array, out: np.dtype[Any]) -> Array:
    if x.dtype.kind == "f" and out.kind in "iu":
        info = np.iinfo(out)
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        inside = np.where((wide >= float(info.min)) & (wide < float(info.max)), wide, 0.0).astype(out)
        low = np.where(wide < float(info.min), np.array(info.min, out), inside)
        return np.asarray(np.where(wide >= float(info.max), np.array(info.max, out), low))
    if out.kind == "b":
        return np.asarray(x != 0)
    return x.astype(out)


def _idiv(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.floor_divide(a, b)
    zero = b == 0
    return np.where(zero, np.zeros((), a.dtype), np.floor_divide(a, np.where(zero, np.ones((), b.dtype), b)))


def _mod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.mod(a, b)
    zero = b == 0
    return np.where(zero, np.zeros((), a.dtype), np.mod(a, np.where(zero, np.ones((), b.dtype), b)))


def _not(a: Array) -> Array:
    return np.logical_not(a) if a.dtype.kind == "b" else np.invert(a)


def _neg(a: Array) -> Array:
    return a if a.dtype.kind == "b" else np.negative(a)


_erf_one = np.frompyfunc(math.erf, 1, 1)


def _erf(a: Array) -> Array:
    return np.asarray(_erf_one(a.astype(np.float64))).astype(np.float64).astype(a.dtype)


def _rotate_left(x: Array, bits: int) -> Array:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def threefry2x32(x0: Array, x1: Array, k0: Array, k1: Array) -> tuple[Array, Array]:
    """Twenty rounds of Threefry 2x32 (Salmon et al., SC 2011): both output words of counter (x0, x1), key (k0, k1).

    >>> a, b = threefry2x32(*(np.zeros(1, np.uint32) for _ in range(4)))
    >>> hex(a[0]), hex(b[0])
    ('0x6b200159', '0x99ba4efe')
    """
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    with np.errstate(over="ignore"):
        x0, x1 = x0 + k0, x1 + k1
        for i in range(5):
            for r in rotations[i % 2]:
                x0 = x0 + x1
                x1 = _rotate_left(x1, r) ^ x0
            x0 = x0 + keys[(i + 1) % 3]
            x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


def _threefry(counter: Array, k0: Array, k1: Array) -> Array:
    return threefry2x32(counter, np.zeros_like(counter), k0, k1)[0]


_ELEMENTWISE: dict[Op, Callable[..., Any]] = {
    Op.NEG: _neg,
    Op.ABS: np.abs,
    Op.SIGN: np.sign,
    Op.NOT: _not,
    Op.EXP: np.exp,
    Op.EXP2: np.exp2,
    Op.LOG: np.log,
    Op.LOG2: np.log2,
    Op.SIN: np.sin,
    Op.COS: np.cos,
    Op.TAN: np.tan,
    Op.TANH: np.tanh,
    Op.ERF: _erf,
    Op.SQRT: np.sqrt,
    Op.RSQRT: lambda a: 1 / np.sqrt(a),
    Op.RECIP: lambda a: 1 / a,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.ROUND: np.rint,
    Op.TRUNC: np.trunc,
    Op.ADD: np.add,
    Op.SUB: lambda a, b: np.logical_xor(a, b) if a.dtype.kind == "b" else np.subtract(a, b),
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.IDIV: _idiv,
    Op.MOD: _mod,
    Op.POW: np.power,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.LT: np.less,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift,
    Op.SHR: np.right_shift,
    Op.WHERE: np.where,
    Op.THREEFRY: _threefry,
}


def _buffer(u: UOp, _: list[Array], out: np.dtype[Any]) -> Array:
    storage: Storage = u.arg
    if storage.host is not None:
        return storage.host.reshape(u.shape)
    if storage.buffer is None:
        raise CompilerError("reference: a BUFFER that was never filled", node=u)
    return get_device(storage.device).download(storage.buffer, storage.size, storage.dtype).reshape(u.shape)


def _reduce(u: UOp, src: list[Array], out: np.dtype[Any]) -> Array:
    op, axes = u.arg
    x = src[0]
    if op is Op.ADD or op is Op.MUL:
        total = np.sum if op is Op.ADD else np.prod
        return np.asarray(total(x, axis=axes, dtype=out, keepdims=True))
    lowest = op is Op.MAX
    empty: Any
    if out.kind == "f":
        empty = -np.inf if lowest else np.inf
    elif out.kind == "b":
        empty = not lowest
    else:
        empty = np.iinfo(out).min if lowest else np.iinfo(out).max
    best = np.max if lowest else np.min
    return np.asarray(best(x, axis=axes, keepdims=True, initial=empty))


def _gather(u: UOp, src: list[Array], out: np.dtype[Any]) -> Array:
    x, index = src
    axis: int = u.arg
    n = x.shape[axis]
    if n == 0 or index.size == 0:
        return np.zeros(index.shape, out)
    window = tuple(slice(None) if i == axis else slice(0, s) for i, s in enumerate(index.shape))
    inside = (index >= 0) & (index < n)
    taken = np.take_along_axis(x[window], np.where(inside, index, 0), axis)
    return np.where(inside, taken, np.zeros((), out))


def _scatter_add(u: UOp, src: list[Array], out: np.dtype[Any]) -> Array:
    index, value = src
    result = np.zeros(u.shape, out)
    inside = (index >= 0) & (index < u.shape[0])
    np.add.at(result, index[inside], value[inside])
    return result


def _segment_sum(u: UOp, src: list[Array], out: np.dtype[Any]) -> Array:
    value, order, starts = src
    result = np.zeros(u.shape, out)
    for v in range(u.shape[0]):
        result[v] = value[order[starts[v] : starts[v + 1]]].sum(axis=0, dtype=result.dtype)
    return result


_GRAPH: dict[Op, Callable[[UOp, list[Array], np.dtype[Any]], Array]] = {
    Op.BUFFER: _buffer,
    Op.CONST: lambda u, _, out: np.array(u.arg, out),
    Op.IOTA: lambda u, _, out: np.arange(u.arg[0], dtype=out),
    Op.RESHAPE: lambda u, s, _: s[0].reshape(u.arg),
    Op.PERMUTE: lambda u, s, _: s[0].transpose(u.arg),
    Op.EXPAND: lambda u, s, _: np.broadcast_to(s[0], u.arg),
    Op.PAD: lambda u, s, _: np.pad(s[0], u.arg) if u.arg else s[0],
    Op.SHRINK: lambda u, s, _: s[0][tuple(slice(b, e) for b, e in u.arg)],
    Op.FLIP: lambda u, s, _: np.flip(s[0], u.arg),
    Op.REDUCE_AXIS: _reduce,
    Op.GATHER: _gather,
    Op.SCATTER_ADD: _scatter_add,
    Op.ARGSORT: lambda u, s, _: np.argsort(s[0], kind="stable").astype(np.int32),
    Op.SEGMENT_SUM: _segment_sum,
    Op.CONTIGUOUS: lambda u, s, _: s[0],
    Op.UPDATE: _update,
    Op.DETACH: lambda u, s, _: s[0],
    Op.CALL: lambda u, s, _: s[u.arg[1]],
    Op.HOST_CALL: lambda u, s, _: u.arg[0].arrays(s)[u.arg[1]],
}
