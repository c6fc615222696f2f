"""The heuristic's opts for products keep their values: every kind of operand and shape, every tile it may choose."""

from __future__ import annotations

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import generate, prepare
from anneal.codegen.heuristics import choose, matmul
from anneal.uop import Op, UOp, const, dtypes
from tests.backend.webgpu.run import run
from tests.codegen import kernels as K

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def product(m: int, n: int, k: int, batch: int, across: str) -> UOp:
    """gelu-like prologue of `a`, plain `b`, and an epilogue that reads a bias and a residual; `across` as in BLAS."""
    z = K.loop(batch, 0) if batch > 1 else const(K.I32, 0)
    i, j, r = K.loop(m, 1), K.loop(n, 2), K.over(k, 3)
    a = K.load(K.param(1, batch * m * k), z * (m * k) + (r * m + i if across[0] == "t" else i * k + r))
    b = K.load(K.param(2, batch * k * n), z * (k * n) + (j * k + r if across[1] == "t" else r * n + j))
    at = z * (m * n) + i * n + j
    total = K.reduce(Op.ADD, (a * Op.TANH(a)) * b, r)
    return K.sink(
        K.store(K.param(0, batch * m * n), at, total + K.load(K.param(3, n), j) + K.load(K.param(4, batch * m * n), at))
    )


def check(device: WebGpuDevice, m: int, n: int, k: int, batch: int, across: str) -> None:
    graph = product(m, n, k, batch, across)
    opts = choose(prepare(graph, device.target), device.target)
    assert any(o.kind == "TILE" for o in opts), opts
    a, b, bias, rest = normal(batch, m, k) * 0.5, normal(batch, k, n), normal(n), normal(batch, m, n)
    want = (a * np.tanh(a)).astype(np.float64) @ b + bias + rest
    given = {
        1: a.swapaxes(1, 2) if across[0] == "t" else a,
        2: b.swapaxes(1, 2) if across[1] == "t" else b,
        3: bias,
        4: rest,
    }
    out = run(device, graph, {s: np.ascontiguousarray(x).ravel() for s, x in given.items()}, opts)[0]
    np.testing.assert_allclose(out.reshape(batch, m, n), want, rtol=1e-5, atol=3e-5, err_msg=str(opts))


@pytest.mark.parametrize("across", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "size", [(32, 32, 32, 1), (40, 36, 24, 3), (33, 65, 21, 1), (8, 100, 60, 1), (70, 9, 17, 2), (16, 16, 300, 1)]
)
def test_products_by_the_heuristic(device: WebGpuDevice, size: tuple[int, int, int, int], across: str) -> None:
    check(device, *size, across)


@pytest.mark.parametrize("tile", matmul._TILES, ids=lambda t: f"{t.m}x{t.n}x{t.results}")
def test_every_tile(device: WebGpuDevice, tile: matmul._Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_TILES", (tile,))
    check(device, tile.m + 8, tile.n, 40, 1, "nt")
    check(device, tile.m, tile.n + 1, 19, 1, "tn")


def test_what_lies_beyond_the_end_of_a_reduce_adds_nothing(device: WebGpuDevice) -> None:
    m, n, k = 16, 16, 37
    a, b = normal(m, k), normal(k, n)
    a[3, k - 1] = np.inf
    b[k - 1, 5] = -np.inf
    graph = prepare(K.matmul(m, n, k), device.target)
    out = run(device, graph, {1: a, 2: b}, choose(graph, device.target))[0].reshape(m, n)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(out, np.tanh(a @ b), rtol=1e-5, atol=1e-5)


def test_stores_read_what_they_overwrite_first(device: WebGpuDevice) -> None:
    """Two updates in place, one of them by its neighbour's value, after a product that fills the registers."""
    m, n, k = 40, 72, 16
    i, j, r = K.loop(m, 1), K.loop(n, 2), K.over(k, 3)
    a, b = normal(m, k), normal(k, n)
    x, y = normal(m, n), normal(m, n)
    total = K.reduce(Op.ADD, K.load(K.param(2, m * k), i * k + r) * K.load(K.param(3, k * n), r * n + j), r)
    at = i * n + j
    for other in (at, i * n + (const(K.I32, n - 1) - j)):
        p, q = K.param(0, m * n), K.param(1, m * n)
        here = [K.store(p, at, K.load(p, at) + total), K.store(q, at, K.load(q, at) * K.load(p, other) - total)]
        if other is not at:
            here = [K.store(q, at, K.load(q, at) * K.load(K.param(4, m * n), other) - total)]
        graph = K.sink(*here)
        opts = choose(prepare(graph, device.target), device.target)
        out = run(device, graph, {0: x, 1: y, 2: a, 3: b, 4: x}, opts)
        want = (a.astype(np.float64) @ b).astype(np.float32)
        second = y * (x if other is at else x[:, ::-1]) - want
        np.testing.assert_allclose(out[1].reshape(m, n), second, rtol=1e-4, atol=1e-4)
        if other is at:
            np.testing.assert_allclose(out[0].reshape(m, n), x + want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(2, 4, 16, 8), (1, 3, 9, 11)])
def test_convolution_is_a_product_over_all_its_reduce_ranges(
    device: WebGpuDevice, size: tuple[int, int, int, int]
) -> None:
    batch, inputs, outputs, side = size
    z, o, y, x = K.loop(batch, 0), K.loop(outputs, 1), K.loop(side, 2), K.loop(side, 3)
    c, p, q = K.over(inputs, 4), K.over(3, 5), K.over(3, 6)
    row, column = y + p - 1, x + q - 1
    inside = (row < side) & (column < side) & Op.NOT(row < 0) & Op.NOT(column < 0)
    image = K.load(K.param(1, batch * inputs * side * side), ((z * inputs + c) * side + row) * side + column, inside)
    weight = K.load(K.param(2, outputs * inputs * 9), ((o * inputs + c) * 3 + p) * 3 + q)
    at = ((z * outputs + o) * side + y) * side + x
    graph = K.sink(K.store(K.param(0, batch * outputs * side * side), at, K.reduce(Op.ADD, image * weight, c, p, q)))
    opts = choose(prepare(graph, device.target), device.target)
    assert {"MERGE", "TILE"} <= {x.kind for x in opts}
    a, w = normal(batch, inputs, side, side), normal(outputs, inputs, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    want = np.einsum("bchwpq,ocpq->bohw", windows.astype(np.float64), w)
    out = run(device, graph, {1: a.ravel(), 2: w.ravel()}, opts)[0]
    np.testing.assert_allclose(out.reshape(want.shape), want, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_what_is_like_a_product_is_tiled_too(device: WebGpuDevice, op: Op) -> None:
    m, n, k = 40, 33, 22
    i, j, r = K.loop(m, 0), K.loop(n, 1), K.over(k, 2)
    apart = K.load(K.param(1, m * k), i * k + r) - K.load(K.param(2, n * k), j * k + r)
    graph = K.sink(K.store(K.param(0, m * n), i * n + j, K.reduce(op, Op.ABS(apart), r)))
    opts = choose(prepare(graph, device.target), device.target)
    assert any(o.kind == "TILE" for o in opts)
    a, b = normal(m, k), normal(n, k)
    want = np.abs(a[:, None] - b[None]).astype(np.float64)
    out = run(device, graph, {1: a, 2: b}, opts)[0].reshape(m, n)
    np.testing.assert_allclose(out, want.sum(-1) if op is Op.ADD else want.max(-1), rtol=1e-5)


def test_masks_wait_as_words(device: WebGpuDevice) -> None:
    # NVIDIA's compiler loses bools in workgroup memory
    m, n, k = 36, 40, 24
    i, j, r = K.loop(m, 1), K.loop(n, 2), K.over(k, 3)
    kept = K.load(K.param(1, m * k, dtypes.bool_), i * k + r)
    chosen = kept.where(K.load(K.param(2, k * n), r * n + j), const(dtypes.float32, 9.0))
    graph = K.sink(K.store(K.param(0, m * n), i * n + j, K.reduce(Op.MIN, chosen, r)))
    opts = choose(prepare(graph, device.target), device.target)
    source = generate(graph, device.target, opts).source
    assert "var<workgroup> tile0" in source
    assert "array<bool" not in source
    mask, b = RNG.random((m, k)) < 0.5, normal(k, n)
    out = run(device, graph, {1: mask.ravel(), 2: b.ravel()}, opts)[0]
    np.testing.assert_array_equal(out.reshape(m, n), np.where(mask[:, :, None], b, np.float32(9)).min(1))
