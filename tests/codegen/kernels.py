"""Small words for building kernel graphs by hand."""

from __future__ import annotations

from anneal.codegen import Opt
from anneal.uop import DType, Op, UOp, const, dtypes

F32, I32, U32, BOOL, F16 = dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool_, dtypes.float16


def loop(extent: int | UOp, ident: int, kind: str = "loop") -> UOp:
    extent = extent if isinstance(extent, UOp) else const(I32, extent)
    return UOp(Op.RANGE, I32, (extent,), (ident, kind))


def over(extent: int | UOp, ident: int) -> UOp:
    return loop(extent, ident, "reduce")


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp(Op.PARAM, dtype, (), (slot, (size,)))


def load(p: UOp, index: UOp | int, *gate: UOp) -> UOp:
    index = index if isinstance(index, UOp) else const(I32, index)
    return UOp(Op.LOAD, p.dtype, (p, index, *gate))


def store(p: UOp, index: UOp | int, value: UOp, *gate: UOp) -> UOp:
    index = index if isinstance(index, UOp) else const(I32, index)
    return UOp(Op.STORE, F32, (p, index, value, *gate))


def reduce(op: Op, value: UOp, *ranges: UOp) -> UOp:
    return UOp(Op.REDUCE, value.dtype, (value, *ranges), op)


def sink(*stores: UOp) -> UOp:
    return UOp(Op.SINK, F32, stores)


def elementwise(rows: int, columns: int) -> UOp:
    """exp(x) + bias, row by row."""
    i, j = loop(rows, 0), loop(columns, 1)
    at = i * columns + j
    value = Op.EXP(load(param(1, rows * columns), at)) + load(param(2, columns), j)
    return sink(store(param(0, rows * columns), at, value))


def matmul(m: int, n: int, k: int, batch: int = 1) -> UOp:
    """tanh(a @ b), with a leading batch dimension if `batch` is over 1."""
    z = loop(batch, 0) if batch > 1 else const(I32, 0)
    i, j, r = loop(m, 1), loop(n, 2), over(k, 3)
    a = load(param(1, batch * m * k), z * (m * k) + i * k + r)
    b = load(param(2, batch * k * n), z * (k * n) + r * n + j)
    return sink(store(param(0, batch * m * n), z * (m * n) + i * n + j, Op.TANH(reduce(Op.ADD, a * b, r))))


def half_product(m: int, n: int, k: int, end: str, a_across: bool = False, b_across: bool = False) -> UOp:
    """A product of float16 with float32 sums; `end` is "float32", "float16", "bias" (and a relu), or "transposed"."""
    i, j, r = loop(m, 0), loop(n, 1), over(k, 2)
    a = load(param(1, m * k, F16), r * m + i if a_across else i * k + r)
    b = load(param(2, k * n, F16), j * k + r if b_across else r * n + j)
    value = reduce(Op.ADD, a.cast(F32) * b.cast(F32), r)
    if end == "bias":
        value = Op.MAX(value + load(param(3, n, F16), j).cast(F32), const(F32, 0.0))
    out = param(0, m * n, F32 if end in ("float32", "transposed") else F16)
    return sink(store(out, j * m + i if end == "transposed" else i * n + j, value))


# Of the heuristic for subgroup matrices: subgroups and matrices of each along rows and columns, and depth.
TILES = [
    (2, 2, 4, 4, 2), (2, 2, 4, 6, 1), (2, 2, 3, 6, 2), (2, 4, 3, 2, 2), (2, 2, 4, 3, 2), (2, 2, 3, 4, 2),
    (2, 4, 2, 2, 2), (2, 2, 4, 2, 2), (2, 2, 2, 4, 4), (2, 2, 2, 3, 2), (2, 4, 2, 1, 4), (2, 2, 2, 2, 4),
    (2, 2, 2, 2, 2),
]  # fmt: skip


def by_matrices(first: int, down: int, across: int, high: int, wide: int, deep: int) -> list[Opt]:
    """Opts for the loops `first` and the next, and the reduce after them: subgroups, matrices of each, and depth."""
    i, j, k = first, first + 1, first + 2
    shape = [Opt("MATRIX", axis, 16) for axis in (i, j, k)]
    split = [Opt("LOCAL", i, down), Opt("LOCAL", j, across), Opt("UPCAST", i, high), Opt("UPCAST", j, wide)]
    return [*shape, *split, Opt("UNROLL", k, deep), Opt("TILE", k, 1)]


def row_reduce(op: Op, rows: int, columns: int, dtype: DType = F32) -> UOp:
    i, k = loop(rows, 0), over(columns, 1)
    return sink(store(param(0, rows, dtype), i, reduce(op, load(param(1, rows * columns, dtype), i * columns + k), k)))


def column_reduce(op: Op, rows: int, columns: int, dtype: DType = F32) -> UOp:
    j, k = loop(columns, 0), over(rows, 1)
    x = load(param(1, rows * columns, dtype), k * columns + j)
    return sink(store(param(0, columns, dtype), j, reduce(op, x, k)))


def logsumexp(rows: int, columns: int) -> UOp:
    """Two reduces, the second of which needs the first."""
    i, k, r = loop(rows, 0), over(columns, 1), over(columns, 2)
    x = param(1, rows * columns)
    top = reduce(Op.MAX, load(x, i * columns + k), k)
    total = reduce(Op.ADD, Op.EXP(load(x, i * columns + r) - top), r)
    return sink(store(param(0, rows), i, top + Op.LOG(total)))


def adam(n: int) -> UOp:
    """Three stores over one range, each to a buffer that is also read."""
    i = loop(n, 0)
    p, m, v = param(0, n), param(1, n), param(2, n)
    g = load(param(3, n), i)
    m1 = load(m, i) * 0.9 + g * 0.1
    v1 = load(v, i) * 0.99 + g * g * 0.01
    p1 = load(p, i) - m1 * 0.001 / (Op.SQRT(v1) + 1e-8)
    return sink(store(p, i, p1), store(m, i, m1), store(v, i, v1))


def segment_sum(segments: int, width: int, n: int) -> UOp:
    """out[v] = sum of value[order[starts[v] : starts[v+1]]]."""
    v, d = loop(segments, 0), loop(width, 1)
    starts = param(3, segments + 1, I32)
    k = over(load(starts, v + 1) - load(starts, v), 2)
    row = load(param(2, n, I32), load(starts, v) + k)
    value = load(param(1, n * width), row * width + d)
    return sink(store(param(0, segments * width), v * width + d, reduce(Op.ADD, value, k)))


def argsort(n: int) -> UOp:
    r = loop(n, 0)
    return sink(store(param(0, n, I32), r, UOp(Op.ARGSORT, I32, (param(1, n, I32), r))))


def padded_conv(n: int, taps: int) -> UOp:
    """A one-dimensional convolution whose loads are gated at both ends."""
    i, k = loop(n, 0), over(taps, 1)
    at = i + k - taps // 2
    gate = (at >= 0) & (at < n)
    return sink(store(param(0, n), i, reduce(Op.ADD, load(param(1, n), at, gate) * load(param(2, taps), k), k)))


def embedding(tokens: int, width: int, rows: int) -> UOp:
    """table[index], rows out of range reading as 0."""
    i, d = loop(tokens, 0), loop(width, 1)
    row = load(param(2, tokens, I32), i)
    gate = (row >= 0) & (row < rows)
    return sink(store(param(0, tokens * width), i * width + d, load(param(1, rows * width), row * width + d, gate)))


def transpose(rows: int, columns: int) -> UOp:
    i, j = loop(rows, 0), loop(columns, 1)
    return sink(store(param(0, rows * columns), i * columns + j, load(param(1, rows * columns), j * rows + i)))


def softmax(rows: int, columns: int, statistics: bool = False) -> UOp:
    """Each row's softmax, with its largest value and its sum as outputs of their own if asked for."""
    i, j, k = loop(rows, 0), loop(columns, 1), over(columns, 2)
    x = param(1, rows * columns)
    top = reduce(Op.MAX, load(x, i * columns + k), k)
    total = reduce(Op.ADD, Op.EXP(load(x, i * columns + k) - top), k)
    out = store(param(0, rows * columns), i * columns + j, Op.EXP(load(x, i * columns + j) - top) / total)
    if not statistics:
        return sink(out)
    return sink(out, store(param(2, rows), i, top), store(param(3, rows), i, total))


def layer_norm_backward(rows: int, columns: int) -> UOp:
    """dx = (w dy - mean(w dy) - x mean(w dy x)) * s[row], for normalised x: two reduces of two rows and a vector."""
    i, j, k = loop(rows, 0), loop(columns, 1), over(columns, 2)
    x, dy, w = param(1, rows * columns), param(2, rows * columns), param(3, columns)

    def at(r: UOp) -> tuple[UOp, UOp]:
        return load(x, i * columns + r), load(dy, i * columns + r) * load(w, r)

    xk, gk = at(k)
    a = reduce(Op.ADD, gk, k) * (1 / columns)
    b = reduce(Op.ADD, gk * xk, k) * (1 / columns)
    xj, gj = at(j)
    return sink(store(param(0, rows * columns), i * columns + j, (gj - a - xj * b) * load(param(4, rows), i)))
