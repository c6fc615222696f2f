"""Kernels that are one sort, scatter or scan of whole arrays: NumPy has a function for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.backend.arrays import MEANINGS, Array
from anneal.backend.cpu.primitives import Step
from anneal.uop import Op, UOp

_WHOLE = (Op.ARGSORT, Op.SCAN, Op.SCATTER_ADD)
_FEW = 8  # of that many times as many the first ones are parted before they are sorted
_WIDE = 64  # columns from which on a call for each row is faster
_PART = 1 << 15  # numbers that are added at once: their places stay in cache


def is_dynamic(sink: UOp) -> bool:
    """True for kernels that this module runs; each stores one value."""
    return sink.src[0].src[2].op in _WHOLE


def dynamic_step(sink: UOp, buffers: Sequence[Array]) -> Step:
    """One call that runs the whole kernel on `buffers`."""
    (store,) = sink.src
    u, (out, (total,)) = store.src[2], store.src[0].arg
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
    count = u.src[1].vmax + 1  # of a row of symbolic length, fewer than there is memory for
    n, k = u.arg if isinstance(u.arg, tuple) else (count, count)
    return _sort, (buffers[slot][: count * n // k], n, k, buffers[out][:count])


def _add_rows(table: Array, index: Array, values: Array, largest: bool) -> None:
    """Every row of values into the row of the table that the index says, in order, or the largest of their integers;
    what is out of range nowhere."""
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
