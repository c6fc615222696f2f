"""Kernels with a range whose trip count depends on data (segment sums), sorts, scatters, scans: evaluated whole.

The axes that such a range depends on are flattened together with it into one axis of segments, on which the body is an
ordinary array; `ufunc.reduceat` then reduces each segment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from anneal.backend.arrays import MEANINGS, Array, numpy_dtype
from anneal.backend.cpu.ops import EAGER, Step, lower
from anneal.backend.cpu.primitives import fitting
from anneal.errors import CompilerError
from anneal.rewrite import Sum
from anneal.uop import FITS, Op, Src, UOp, reduce_identity, toposort
from anneal.uop.sizes import is_symbolic

_WHOLE = (Op.ARGSORT, Op.SCAN, Op.SCATTER_ADD)
_FEW = 8  # of that many times as many the first ones are parted before they are sorted
_WIDE = 64  # columns from which on a call for each row is faster
_PART = 1 << 15  # numbers that are added at once: their places stay in cache


def is_dynamic(sink: UOp) -> bool:
    """True for kernels that this module runs: they sort, or an extent depends on data."""
    return any(u.op in _WHOLE or (u.op is Op.RANGE and not is_symbolic(u.src[0])) for u in toposort((sink,)))


def dynamic_step(sink: UOp, buffers: Sequence[Array]) -> Step:
    """One call that runs the whole kernel on `buffers`."""
    if (u := sink.src[0].src[2]).op is Op.SCATTER_ADD:
        (index, (n,)), (values, (size,)) = u.src[0].arg, u.src[1].arg
        (out, (total,)), width = sink.src[0].src[0].arg, size // n
        table, added = buffers[out][:total].reshape(-1, width), buffers[values][:size].reshape(n, width)
        return _add_rows, (table, buffers[index][:n], added, len(u.arg) > 1)
    if u.op is Op.SCAN:
        (op, n, after), (slot, (size,)) = u.arg, u.src[0].arg
        x, made = [buffers[k][:size].reshape(-1, n, after) for k in (slot, sink.src[0].src[0].arg[0])]
        return _scan, (MEANINGS[op], x, made)
    return _run, (sink, tuple(buffers))


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


def _run(sink: UOp, buffers: tuple[Array, ...]) -> None:
    results: list[tuple[UOp, Any, Array]] = []
    for s in sink.src:
        # Over its own ranges alone: kernels that were joined have others, and all of them together are their product.
        ranges = sorted({u for u in toposort((s,)) if u.op is Op.RANGE and u.arg[1] == "loop"}, key=lambda u: u.arg[0])
        shape = tuple([int(r.src[0].arg) for r in ranges])
        if 0 in shape:
            continue
        env = dict(zip(ranges, np.indices(shape, np.int32, sparse=True), strict=True))
        value, place = s.src[2], Sum.of(s.src[1])
        if value.op is Op.ARGSORT:
            count = math.prod(shape)  # one row may be of symbolic length
            n, k = value.arg if isinstance(value.arg, tuple) else (count, count)
            keys = buffers[value.src[0].arg[0]][: count // k * n]
            result = _order(keys.reshape(-1, n), k).reshape(shape)
        else:
            result = np.broadcast_to(_value(value, env, buffers), shape)
        steps = {r: math.prod(shape[n + 1 :]) for n, r in enumerate(ranges)}
        if place.terms == steps and not place.constant and len(s.src) == 3:  # all places in order, as most often
            results.append((s.src[0], slice(math.prod(shape)), result.reshape(-1)))
            continue
        index = np.broadcast_to(_value(s.src[1], env, buffers), shape)
        if len(s.src) > 3:
            predicate = np.broadcast_to(_value(s.src[3], env, buffers), shape)
            index, result = index[predicate], result[predicate]
        results.append((s.src[0], index, result))
    for buffer, places, result in results:
        buffers[buffer.arg[0]][places] = result


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


def _value(root: UOp, env: dict[UOp, Array], buffers: tuple[Array, ...]) -> Array:
    """`root` over the axes of `env`, whose arrays all have one rank. Nesting follows that of the reduces."""
    memo: dict[UOp, Array] = dict(env)

    def sources(u: UOp) -> Src:
        if u.op is Op.LOAD:
            return u.src[1:] if (row := _row(u)) is None else row[:2]
        return () if u.op is Op.REDUCE else u.src

    for u in toposort((root,), until=env.__contains__, sources=sources):
        if u.op is Op.CONST:
            memo[u] = np.array(u.arg).astype(numpy_dtype(u.dtype))
        elif u.op is Op.LOAD:
            memo[u] = _load(u, memo, buffers)
        elif u.op is Op.REDUCE:
            memo[u] = _reduce(u, env, buffers)
        elif u.op is Op.CAST and u.tag is not None and u.tag[0] == FITS:
            memo[u] = EAGER.emit("fits", partial(fitting, u.tag), (memo[u.src[0]],), numpy_dtype(u.dtype))
        else:
            memo[u] = lower(EAGER, u.op, u.dtype, [s.dtype for s in u.src], [memo[s] for s in u.src])
    return memo[root]


def _row(u: UOp) -> tuple[UOp, UOp, int] | None:
    """(node, r, width) where a load's index is node * width + r, for a range r of `width` values."""
    index = Sum.of(u.src[1])
    if len(u.src) > 2 or len(index.terms) != 2 or index.constant:
        return None
    (node, width), (r, step) = sorted(index.terms.items(), key=lambda term: term[0].op is Op.RANGE)
    whole = r.op is Op.RANGE and step == 1 and r.src[0].arg == width and u.src[0].size % width == 0
    return (node, r, width) if whole else None


def _load(u: UOp, memo: Mapping[UOp, Array], buffers: tuple[Array, ...]) -> Array:
    memory, row = buffers[u.src[0].arg[0]], _row(u)
    if row is not None:
        place, along, width = memo[row[0]], memo[row[1]], row[2]
        if place.shape[-1:] == (1,) and along.shape[-1] == width:
            rows: Array = memory.reshape(-1, width).take(place[..., 0], 0, None, "clip")
            return rows
    index = memo[u.src[1]] if row is None else place * width + along
    out: Array = memory.take(index, None, None, "clip")
    if len(u.src) > 2:
        out = np.where(memo[u.src[2]], out, out.dtype.type(0))
    return out


def _reduce(u: UOp, env: dict[UOp, Array], buffers: tuple[Array, ...]) -> Array:
    f: Any = MEANINGS[u.arg]
    body, ranges = u.src[0], u.src[1:]
    out = numpy_dtype(u.dtype)
    empty = reduce_identity(u.arg, u.dtype)
    rank = next(iter(env.values())).ndim if env else 0
    dynamic = [r for r in ranges if r.src[0].op is not Op.CONST]
    if len(dynamic) > 1 or (dynamic and len(ranges) > 1):
        raise CompilerError("a reduce over several ranges of which one depends on data", stage="cpu.dynamic", node=u)
    if not dynamic:
        # one more axis in front for each range
        n = len(ranges)
        front = (*[int(r.src[0].arg) for r in ranges], *[1] * rank)
        inner = {r: np.array(a, ndmin=n + rank) for r, a in env.items()}
        inner |= zip(ranges, np.indices(front, np.int32, sparse=True))
        values = _over(front, _value(body, inner, buffers))
        return np.asarray(f.reduce(values, tuple(range(n)), out, initial=empty))
    r = dynamic[0]
    counts = np.array(np.maximum(_value(r.src[0], env, buffers), 0), ndmin=rank)
    flat = counts.reshape(-1).astype(np.int64)
    total = int(flat.sum())
    starts = np.cumsum(flat) - flat
    column = (total,) + (1,) * rank
    inner = {}
    for q, a in env.items():
        own = np.broadcast_shapes(a.shape, counts.shape) == counts.shape  # it varies along axes of segments alone
        inner[q] = np.repeat(np.broadcast_to(a, counts.shape), flat).reshape(column) if own else a[None]
    inner[r] = (np.arange(total) - np.repeat(starts, flat)).astype(np.int32).reshape(column)
    values = _over(column, _value(body, inner, buffers))
    rest = values.shape[1:]
    result = np.full((flat.size, *rest), empty, out)
    filled = flat > 0
    if total:
        result[filled] = f.reduceat(values, starts[filled], axis=0, dtype=out)
    # Every axis is either one of the segments' or one of the values': interleave the two sets and merge.
    pairs = [axis for i in range(rank) for axis in (i, rank + i)]
    shape = tuple([c * v for c, v in zip(counts.shape, rest, strict=True)])
    return result.reshape((*counts.shape, *rest)).transpose(pairs).reshape(shape)


def _over(front: tuple[int, ...], values: Array) -> Array:
    """Values for each place of the axes in front; one that no range reaches has fewer axes."""
    return np.broadcast_to(values, np.broadcast_shapes(front, values.shape))
