"""Kernels of a GPT step on the cpu device, each beside NumPy written by hand for the same work.

    python -m benchmarks.cpu_kernels [--json]

The hand-written side uses `out=` and no blocks, as one would write it; it is what an interpreter that added nothing and
saved nothing would cost. Times are the best of many runs, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal.backend import get_device
from anneal.uop import DType, Op, UOp, const, dtypes

Array = np.ndarray[Any, Any]
F32, I32 = dtypes.float32, dtypes.int32


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp(Op.PARAM, dtype, (), (slot, (size,)))


def loop(i: int, n: int, kind: str = "loop") -> UOp:
    return UOp(Op.RANGE, I32, (const(I32, n),), (i, kind))


def load(slot: int, size: int, index: UOp, dtype: DType = F32) -> UOp:
    return UOp(Op.LOAD, dtype, (param(slot, size, dtype), index))


def total(value: UOp, *ranges: UOp, op: Op = Op.ADD) -> UOp:
    return UOp(Op.REDUCE, value.dtype, (value, *ranges), op)


def sink(*stores: tuple[int, int, UOp, UOp]) -> UOp:
    return UOp(Op.SINK, F32, tuple([UOp(Op.STORE, F32, (param(s, n), i, v)) for s, n, i, v in stores]))


@dataclass
class Case:
    """A kernel, its buffers in slot order, and the same by hand."""

    name: str
    kernel: UOp
    buffers: list[Array]
    by_hand: Callable[[], object]


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def matmul_gelu() -> Case:
    m, n, k = 768, 512, 128
    i, j, r = loop(0, m), loop(1, n), loop(2, k, "reduce")
    h = total(load(1, m * k, i * k + r) * load(2, k * n, r * n + j), r) + load(3, n, j)
    gelu = h * 0.5 * (Op.ERF(h * math.sqrt(0.5)) + 1.0)
    a, b, c = random(m, k), random(k, n), random(n)
    out, t = random(m, n), random(m, n)

    def by_hand() -> None:
        np.matmul(a, b, out)
        np.add(out, c, out)
        # erf by tanh of a cubic, coarser than the kernel's
        np.multiply(out, out, t)
        np.multiply(t, 0.0356774081, t)
        np.add(t, 0.7978845608, t)
        np.multiply(t, out, t)
        np.tanh(t, t)
        np.add(t, 1.0, t)
        np.multiply(t, out, t)
        np.multiply(t, 0.5, out)

    return Case("matmul 768x512x128 + bias + gelu", sink((0, m * n, i * n + j, gelu)), [out, a, b, c], by_hand)


def layer_norm() -> Case:
    m, n = 768, 128
    i, j, r, q = loop(0, m), loop(1, n), loop(2, n, "reduce"), loop(3, n, "reduce")

    def x(at: UOp) -> UOp:
        return load(1, m * n, i * n + at)

    mean = total(x(r), r) * (1 / n)
    centred = x(q) - mean
    scale = Op.RSQRT(total(centred * centred, q) * (1 / n) + 1e-5)
    value = (x(j) - mean) * scale * load(2, n, j) + load(3, n, j)
    a, g, b, out = random(m, n), random(n), random(n), random(m, n)

    def by_hand() -> None:
        d = a - a.mean(1, keepdims=True)
        np.multiply(d, 1 / np.sqrt((d * d).mean(1, keepdims=True) + np.float32(1e-5)), d)
        np.multiply(d, g, d)
        np.add(d, b, out)

    return Case("layer norm 768x128", sink((0, m * n, i * n + j, value)), [out, a, g, b], by_hand)


def softmax() -> Case:
    m, n = 48 * 64, 64
    i, j, r, q = loop(0, m), loop(1, n), loop(2, n, "reduce"), loop(3, n, "reduce")
    top = total(load(1, m * n, i * n + r), r, op=Op.MAX)

    def e(at: UOp) -> UOp:
        return Op.EXP(load(1, m * n, i * n + at) - top)

    a, out = random(m, n), random(m, n)

    def by_hand() -> None:
        np.subtract(a, a.max(1, keepdims=True), out)
        np.exp(out, out)
        np.divide(out, out.sum(1, keepdims=True), out)

    return Case("softmax 48x64x64", sink((0, m * n, i * n + j, Op.DIV(e(j), total(e(q), q)))), [out, a], by_hand)


def column_sums() -> Case:
    m, n = 768, 128
    j, r = loop(0, n), loop(1, m, "reduce")
    a, out = random(m, n), random(n)
    return Case(
        "column sums 768x128",
        sink((0, n, j, total(load(1, m * n, r * n + j), r))),
        [out, a],
        lambda: np.add.reduce(a, 0, None, out),
    )


def repeated_sums() -> Case:
    """What a constant cotangent makes of the product in a convolution's gradient: sums of weights, repeated."""
    b, m, n, k = 8, 32, 784, 64
    i, j, q, r = loop(0, b), loop(1, m), loop(2, n), loop(3, k, "reduce")
    w, out = random(k, m), random(b, m, n)

    def by_hand() -> None:
        out[...] = np.add.reduce(w, 0)[:, None]

    value = total(load(1, k * m, r * m + j), r)
    return Case("repeated sums 8x32x784 by 64", sink((0, b * m * n, (i * m + j) * n + q, value)), [out, w], by_hand)


def adamw() -> Case:
    n = 65536
    i = loop(0, n)
    p, m, v, g = (load(s, n, i) for s in range(4))
    m2, v2 = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
    new = p * 0.9999 - Op.DIV(m2, Op.SQRT(v2) + 1e-8) * 1e-3
    kernel = sink((0, n, i, new), (1, n, i, m2), (2, n, i, v2))
    buffers = [random(n), random(n), np.abs(random(n)), random(n)]
    P, M, V, G = (b.copy() for b in buffers)
    t, u = random(n), random(n)

    def by_hand() -> None:
        np.multiply(M, 0.9, M)
        np.multiply(G, 0.1, t)
        np.add(M, t, M)
        np.multiply(V, 0.99, V)
        np.multiply(G, G, t)
        np.multiply(t, 0.01, t)
        np.add(V, t, V)
        np.sqrt(V, t)
        np.add(t, 1e-8, t)
        np.divide(M, t, t)
        np.multiply(t, 1e-3, t)
        np.multiply(P, 0.9999, u)
        np.subtract(u, t, P)

    return Case("AdamW on 65536", kernel, buffers, by_hand)


def embedding() -> Case:
    n, v, d = 768, 65, 128
    i, j = loop(0, n), loop(1, d)
    row = load(2, n, i, I32)
    index = np.random.default_rng(0).integers(0, v, n).astype(np.int32)
    table, out = random(v, d), random(n, d)
    value = UOp(Op.LOAD, F32, (param(1, v * d), row * d + j, (row >= 0) & (row < v)))
    return Case(
        "embedding 768x128 of 65",
        sink((0, n * d, i * d + j, value)),
        [out, table, index],
        lambda: np.take(table, index, 0, out, "clip"),
    )


CASES = (matmul_gelu, layer_norm, softmax, column_sums, repeated_sums, adamw, embedding)


def best(run: Callable[[], object], seconds: float = 0.3) -> float:
    """Microseconds of the fastest of the runs that fit in `seconds`."""
    run()
    least = math.inf
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
    return least * 1e6


def measure(case: Case) -> dict[str, Any]:
    """Both times of one case; `prepare_us` is what binding the kernel to new buffers costs, once."""
    device = get_device("cpu")
    program = device.compile(case.kernel)
    buffers = [b.reshape(-1) for b in case.buffers]
    start = time.perf_counter()
    batch = device.prepare([(program, buffers)])
    prepare = time.perf_counter() - start
    ours, by_hand = best(batch.run), best(case.by_hand)
    return {"kernel": case.name, "us": ours, "numpy_us": by_hand, "ratio": ours / by_hand, "prepare_us": prepare * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(make()) for make in CASES]
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'kernel':36s} {'us':>9s} {'NumPy us':>9s} {'ratio':>6s} {'prepare us':>11s}")
    for r in rows:
        print(f"{r['kernel']:36s} {r['us']:9.1f} {r['numpy_us']:9.1f} {r['ratio']:6.2f} {r['prepare_us']:11.1f}")


if __name__ == "__main__":
    main()
