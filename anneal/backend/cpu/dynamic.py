"""Kernels that are one sort, scatter or scan of whole arrays, for which NumPy has functions; and those with a range
whose extent depends on data, the sums of segments in a plan for a GPU that the cpu runs (`anneal.pages`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from anneal.backend.arrays import MEANINGS, Array, numpy_dtype
from anneal.backend.cpu.ops import Emitter, lower
from anneal.backend.cpu.primitives import PlanValue, Step
from anneal.uop import Op, Src, UOp, reduce_identity, toposort
from anneal.uop.sizes import is_symbolic

_WHOLE = (Op.ARGSORT, Op.SCAN, Op.SCATTER_ADD)
_FEW = 8  # of that many times as many the first ones are parted before they are sorted
_WIDE = 64  # columns from which on a call for each row is faster
_PART = 1 << 15  # numbers that are added at once: their places stay in cache


def is_dynamic(sink: UOp) -> bool:
    """True for kernels that this module runs."""
    return any(u.op in _WHOLE or (u.op is Op.RANGE and not is_symbolic(u.src[0])) for u in toposort(sink))


def dynamic_step(sink: UOp, buffers: Sequence[Array]) -> Step:
    """A call that runs the whole kernel on `buffers`."""
    u, (out, (total,)) = sink.src[0].src[2], sink.src[0].src[0].arg
    if u.op not in _WHOLE:
        return _run, (sink, buffers)
    slot, (size,) = u.src[0].arg
    if u.op is Op.SCATTER_ADD:
        values, (elements,) = u.src[1].arg
        width = elements // size
        table, added = buffers[out][:total].reshape(-1, width), buffers[values][:elements].reshape(size, width)
        return _add_rows, (table, buffers[slot][:size], added, len(u.arg) > 1)
    if u.op is Op.SCAN:
        op, n, after = u.arg
        x, made = [buffers[k][:size].reshape(-1, n, after) for k in (slot, out)]
        return _scan, (MEANINGS[op], x, made)
    count = 1 + cast(int, u.src[1].vmax)  # of a row of symbolic length, fewer than there is memory for
    n, k = u.arg if isinstance(u.arg, tuple) else (count, count)
    return _sort, (buffers[slot][: count * n // k], n, k, buffers[out][:count])


def _add_rows(table: Array, index: Array, values: Array, largest: bool) -> None:
    """Add every row of values to the table's row that the index names, in order, or keep the largest of their integers;
    rows out of range are ignored.
    """
    count, width = table.shape
    table.fill(np.iinfo(table.dtype).min if largest else 0)
    if index.min() < 0 or index.max() >= count:
        inside = (index >= 0) & (index < count)
        index, values = index[inside], values[inside]
    step = max(1, _PART // width)
    columns = np.arange(width)
    for first in range(0, len(index), step):
        part = slice(first, first + step)
        places = (index[part, None] * width + columns).reshape(-1)
        (np.maximum if largest else np.add).at(table.reshape(-1), places, values[part].reshape(-1))


def _scan(f: Any, x: Array, out: Array) -> None:
    """Every element with those before it along the middle axis; sums and products of float32 in float64."""
    dtype = np.float64 if x.dtype == np.float32 and f in (np.add, np.multiply) else x.dtype
    step = max(1, _PART // max(1, x[:1].size))
    for first in range(0, len(x), step):
        done = x[first : first + step].astype(dtype)
        if x.shape[2] < _WIDE:
            f.accumulate(done, 1, dtype, done)
        else:  # NumPy would go along the axis, for one column after another
            for i in range(1, x.shape[1]):
                f(done[:, i - 1], done[:, i], out=done[:, i])
        out[first : first + step] = done


def _sort(keys: Array, n: int, k: int, out: Array) -> None:
    """The first `k` places of each row of `n` keys in order."""
    out.reshape(-1, k)[...] = _order(keys.reshape(-1, n), k)


def _order(keys: Array, k: int) -> Array:
    """The first k of the stable order of each row of integers. NumPy sorts words of 64 bits with vectors, and by values
    and places much more slowly: a key and its place are one word where both fit."""
    n = keys.shape[1]
    bits = n.bit_length()
    if keys.dtype.itemsize > 4:
        low = int(keys.min(initial=0))
        if int(keys.max(initial=0)) - low >> 63 - bits:
            order = keys.argsort()
            ranked = np.take_along_axis(keys, order, 1)
            if (ranked[:, 1:] == ranked[:, :-1]).any():
                order = keys.argsort(kind="stable")
            return order[:, :k]
        keys = keys - low
    words = keys.astype(np.int64)
    words <<= bits
    words |= np.arange(n)
    if k * _FEW < n:
        words.partition(k - 1)
        words = words[:, :k]
    words.sort()
    words &= (1 << bits) - 1
    return words[:, :k]


# -- element by element, each with as many terms as the data say ------------------------------------------------------


def _run(sink: UOp, buffers: Sequence[Array]) -> None:
    results = []
    for s in sink.src:
        ranges = sorted({u for u in toposort(s) if u.op is Op.RANGE and u.arg[1] == "loop"}, key=lambda u: u.arg[0])
        shape = [int(r.src[0].arg) for r in ranges]
        env = dict(zip(ranges, np.indices(shape, np.int32).reshape(len(shape), -1), strict=True))
        index, value, *inside = [_value(x, env, math.prod(shape), buffers) for x in s.src[1:]]
        for predicate in inside:
            index, value = index[predicate], value[predicate]
        results.append((buffers[s.slot], index, value))
    for buffer, index, value in results:
        buffer[index] = value


def _value(root: UOp, env: Mapping[UOp, Array], count: int, buffers: Sequence[Array]) -> Array:
    """`root` for `count` elements, for which `env` has the values of ranges. Nesting follows that of the reduces."""
    emitter = Emitter([0])

    def known(array: Array) -> PlanValue:
        return PlanValue("fixed", array.dtype, 1, array)

    def sources(u: UOp) -> Src:
        return u.src[1:] if u.op is Op.LOAD else () if u.op is Op.REDUCE else u.src

    memo = {r: known(a) for r, a in env.items()}
    for u in toposort(root, until=env.__contains__, sources=sources):
        if u.is_const:
            memo[u] = emitter.const(numpy_dtype(u.dtype), u.arg)
        elif u.op is Op.LOAD:
            index, *inside = [memo[s].ref for s in u.src[1:]]
            found = buffers[u.slot].take(index, None, None, "clip")
            memo[u] = known(np.where(inside[0], found, found.dtype.type(0)) if inside else found)
        elif u.op is Op.REDUCE:
            memo[u] = known(_reduced(u, env, count, buffers))
        else:
            memo[u] = lower(emitter, u.op, u.dtype, [s.dtype for s in u.src], [memo[s] for s in u.src])
    return np.broadcast_to(memo[root].ref, (count,))


def _reduced(u: UOp, env: Mapping[UOp, Array], count: int, buffers: Sequence[Array]) -> Array:
    inner, owner = dict(env), np.arange(count)  # for each term the number of its element
    for r in u.src[1:]:
        counts = np.maximum(_value(r.src[0], inner, len(owner), buffers), 0)
        inner = {q: np.repeat(a, counts) for q, a in inner.items()}
        owner = np.repeat(owner, counts)
        inner[r] = (np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.int32)
    out = np.full(count, reduce_identity(u.arg, u.dtype), numpy_dtype(u.dtype))
    filled, starts = np.unique(owner, return_index=True)
    if filled.size:
        combine: Any = MEANINGS[u.arg]
        out[filled] = combine.reduceat(_value(u.src[0], inner, len(owner), buffers), starts, dtype=out.dtype)
    return out
