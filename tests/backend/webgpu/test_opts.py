"""Every opt keeps the values of every kernel, alone and with others, whether or not its amount divides the extent."""

from __future__ import annotations

import random

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import Opt, Target, axes_of, generate, prepare
from anneal.codegen.opts import KINDS
from anneal.errors import CompilerError
from anneal.uop import Op, UOp, toposort
from tests.backend.webgpu.run import run
from tests.codegen import kernels as K
from tests.tiers import thinned

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def product(m: int, n: int, k: int, a_across: bool = False, b_across: bool = False) -> UOp:
    """exp(a) @ (b * scale[n]) + bias[n], either factor stored the other way round."""
    i, j, r = K.loop(m, 0), K.loop(n, 1), K.over(k, 2)
    a = K.load(K.param(1, m * k), r * m + i if a_across else i * k + r)
    b = K.load(K.param(2, k * n), j * k + r if b_across else r * n + j)
    value = K.reduce(Op.ADD, Op.EXP(a) * (b * K.load(K.param(3, n), j)), r)
    return K.sink(K.store(K.param(0, m * n), i * n + j, value + K.load(K.param(4, n), j)))


TILED = [
    Opt("VECTORIZE", 1, 4), Opt("LOCAL", 1, 4), Opt("UPCAST", 0, 4), Opt("LOCAL", 0, 4),
    Opt("UPCAST", 1, 2), Opt("UNROLL", 2, 4), Opt("TILE", 2, 2),
]  # fmt: skip


SIZES = [(32, 64, 32), (33, 36, 20), (9, 65, 21), (16, 32, 7)]
ACROSS = [(False, False), (True, False), (False, True)]
PRODUCTS = [pytest.param(size, across, id=f"{size}-{across}") for size in SIZES for across in ACROSS]


@pytest.mark.parametrize(("size", "across"), thinned(PRODUCTS, test=2, ci=2))
def test_tiled_products(device: WebGpuDevice, size: tuple[int, int, int], across: tuple[bool, bool]) -> None:
    m, n, k = size
    a, b, scale, bias = normal(m, k) * 0.3, normal(k, n), normal(n), normal(n)
    want = np.exp(a.astype(np.float64)) @ (b * scale) + bias
    given = {1: a.T if across[0] else a, 2: b.T if across[1] else b, 3: scale, 4: bias}
    graph = product(m, n, k, *across)
    for opts in (
        TILED,
        [*TILED, Opt("PREFETCH", 2, 1)],
        [*TILED, Opt("PREFETCH", 2, 2)],
        [Opt("GROUP", 2, 2), *TILED, Opt("PREFETCH", 2, 1)],
        [Opt("GROUP", 2, 2), *TILED, Opt("PREFETCH", 2, 2)],
        [Opt("LOCAL", 0, 4), Opt("UPCAST", 0, 3), Opt("LOCAL", 1, 5), Opt("TILE", 2, 3)],
        [Opt("UNROLL", 2, 4), Opt("TILE", 2, 1), Opt("LOCAL", 1, 8), Opt("UPCAST", 0, 4)],
        [Opt("VECTORIZE", 2, 4), Opt("UPCAST", 0, 2), Opt("LOCAL", 1, 8), Opt("LOCAL", 0, 2)],
        [Opt("VECTORIZE", 0, 4), Opt("LOCAL", 1, 8), Opt("TILE", 2, 4)],
    ):
        out = run(device, graph, {s: np.ascontiguousarray(x) for s, x in given.items()}, opts)[0]
        np.testing.assert_allclose(out.reshape(m, n), want, rtol=1e-5, atol=2e-5, err_msg=str(opts))


def test_vectors_of_every_operation(device: WebGpuDevice) -> None:
    n = 64
    i = K.loop(n, 0)
    x, y = K.load(K.param(1, n), i), K.load(K.param(2, n), 63 - i)
    whole = Op.MOD(i, i * 0 + 5)
    value = Op.TANH(x) + Op.ERF(y) + Op.MAX(x, y) * (x < y).where(x, y * 2.0)
    value = value + whole.cast(K.F32) + Op.POW(Op.ABS(x) + 1.0, y) + x / y
    value = value + ((i & 3).eq(2) | (x < 0.0)).where(x.cast(K.I32).cast(K.F32), Op.SIGN(y))
    graph = K.sink(K.store(K.param(0, n), i, value))
    a, b = normal(n), normal(n) + 3
    want = run(device, graph, {1: a, 2: b}, [])[0]
    for opts in ([Opt("VECTORIZE", 0, 4)], [Opt("VECTORIZE", 0, 2), Opt("FLAT", 0, 8)]):
        np.testing.assert_array_equal(run(device, graph, {1: a, 2: b}, opts)[0], want)


def test_a_value_is_a_vector_along_one_axis_only(device: WebGpuDevice) -> None:
    with pytest.raises(CompilerError, match="two axes"):
        run(
            device,
            product(8, 8, 8),
            {s: normal(64) for s in (1, 2, 3, 4)},
            [Opt("VECTORIZE", 0, 4), Opt("VECTORIZE", 1, 4)],
        )
    with pytest.raises(CompilerError, match="2 or 4 lanes"):
        run(device, product(8, 8, 8), {}, [Opt("VECTORIZE", 0, 3)])
    with pytest.raises(CompilerError, match="without a TILE"):
        run(device, product(8, 8, 8), {}, [Opt("PREFETCH", 2, 1)])


GRAPHS = {
    "matmul": K.matmul(9, 12, 20),
    "batched": K.matmul(8, 8, 8, 3),
    "elementwise": K.elementwise(6, 20),
    "row_sum": K.row_reduce(Op.ADD, 5, 28),
    "row_max": K.row_reduce(Op.MAX, 5, 28),
    "column_sum": K.column_reduce(Op.ADD, 28, 12),
    "logsumexp": K.logsumexp(6, 20),
    "transpose": K.transpose(12, 20),
    "conv": K.padded_conv(40, 3),
    "adam": K.adam(44),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_random_sequences_of_opts(device: WebGpuDevice, name: str) -> None:
    graph = GRAPHS[name]
    given = {u.arg[0]: np.abs(normal(u.arg[1][0])) * 0.5 for u in toposort((graph,)) if u.op is Op.PARAM}
    want = run(device, graph, given, [])
    pick = random.Random(name)
    seen = set()
    for _ in range(10):
        opts = _some(prepare(graph, device.target), pick, device.target)
        seen.update(o.kind for o in opts)
        out = run(device, graph, given, opts)
        for slot, expected in want.items():
            np.testing.assert_allclose(out[slot], expected, rtol=1e-5, atol=1e-6, err_msg=str(opts))
    assert len(seen) >= 2


def _some(graph: UOp, pick: random.Random, target: Target) -> list[Opt]:
    """Opts that fit the kernel and the target, at random."""
    opts: list[Opt] = []
    axes = len(axes_of(graph))
    for _ in range(12):
        opt = Opt(pick.choice([k for k in KINDS if k != "FLAT"]), pick.randrange(axes), pick.choice((1, 2, 3, 4, 4, 8)))
        try:
            generate(graph, target, [*opts, opt])
        except CompilerError:
            continue
        opts.append(opt)
    return opts
