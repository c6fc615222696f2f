"""What a whole workgroup throws away is not computed, and nothing else is left out."""

from __future__ import annotations

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import Opt, Target, generate
from anneal.uop import Op, UOp
from tests.backend.webgpu.run import run
from tests.codegen import kernels as K

N, DEPTH = 64, 12
TILED = [
    Opt("VECTORIZE", 1, 4), Opt("LOCAL", 1, 4), Opt("UPCAST", 0, 4), Opt("LOCAL", 0, 4), Opt("UNROLL", 2, 4), Opt("TILE", 2, 1)
]  # fmt: skip
OPTS = [TILED, [*TILED, Opt("PREFETCH", 2, 1)], [*TILED, Opt("PREFETCH", 2, 2)], [Opt("GROUP", 2, 2), *TILED]]


def scores(mask: str, shift: int = 0) -> UOp:
    """a @ b.T where the mask lets it through, -7 elsewhere."""
    i, j, r = K.loop(N, 0), K.loop(N, 1), K.over(DEPTH, 2)
    a, b = K.load(K.param(1, N * DEPTH), i * DEPTH + r), K.load(K.param(2, N * DEPTH), j * DEPTH + r)
    total = K.reduce(Op.ADD, a * b, r) * 0.25
    outside = {"causal": i + shift < j, "band": (i + shift < j) | (j + 24 < i), "kept": j - 1 < i + shift}[mask]
    value = outside.where(total, -7.0) if mask == "kept" else outside.where(total * 0 - 7.0, total)
    return K.sink(K.store(K.param(0, N * N), i * N + j, value))


def expected(a: np.ndarray, b: np.ndarray, mask: str, shift: int) -> np.ndarray:
    i, j = np.arange(N)[:, None], np.arange(N)
    outside = (i + shift < j) | (j + 24 < i) if mask == "band" else i + shift < j
    return np.where(outside, -7.0, 0.25 * (a.astype(np.float64) @ b.T))


@pytest.mark.parametrize("mask", ["causal", "band", "kept"])
@pytest.mark.parametrize("shift", [0, 5, -20, -60])
def test_masked_products(device: WebGpuDevice, mask: str, shift: int) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((N, DEPTH)).astype(np.float32) for _ in range(2))
    for opts in OPTS:
        out = run(device, scores(mask, shift), {1: a, 2: b}, opts)[0]
        np.testing.assert_allclose(
            out.reshape(N, N), expected(a, b, mask, shift), rtol=1e-5, atol=1e-5, err_msg=str(opts)
        )


def test_blocks_beyond_the_mask_take_no_turns() -> None:
    def bound(graph: UOp) -> str:
        source = generate(graph, Target(), TILED).source
        return next(line for line in source.splitlines() if "for (" in line).split("<")[1].split(";")[0].strip()

    assert bound(scores("kept")) == "n2"  # decided by the workgroup
    i, j, r = K.loop(N, 0), K.loop(N, 1), K.over(DEPTH, 2)
    a, b = K.load(K.param(1, N * DEPTH), i * DEPTH + r), K.load(K.param(2, N * DEPTH), j * DEPTH + r)
    total = K.reduce(Op.ADD, a * b, r)
    masked = (i < j).where(total * 2, total)
    assert bound(K.sink(K.store(K.param(0, N * N), i * N + j, masked))) == "3i"  # looked at on both sides
    even = (i * j < 40).where(total, 1.0)
    assert bound(K.sink(K.store(K.param(0, N * N), i * N + j, even))) == "3i"  # not affine


# -- sums over what a mask leaves -------------------------------------------------------------------------------------

MASKS = {
    "causal": lambda i, k, shift: i + shift < k,
    "reversed": lambda i, k, shift: k < i + shift,
    "band": lambda i, k, shift: (i + shift < k) | (k + 24 < i),
    "kept": lambda i, k, shift: (k - 1 < i + shift) ^ True,
}


def weighted(mask: str, shift: int, rows: int, flipped: bool) -> UOp:
    """where(mask, 0, a) @ b, with a as it is or transposed in memory."""
    i, j, k = K.loop(rows, 0), K.loop(16, 1), K.over(N, 2)
    masked = MASKS[mask](i, k, shift)
    a = K.load(K.param(1, rows * N), k * rows + i if flipped else i * N + k)
    value = UOp(Op.WHERE, a.dtype, (masked, a.const_like(0.0), a))
    b = K.load(K.param(2, N * 16), k * 16 + j)
    return K.sink(K.store(K.param(0, rows * 16), i * 16 + j, K.reduce(Op.ADD, value * b, k)))


SUMS = [
    [Opt("VECTORIZE", 1, 4), Opt("LOCAL", 1, 4), Opt("UPCAST", 0, 4), Opt("LOCAL", 0, 4), Opt("UNROLL", 2, 4), Opt("TILE", 2, 1)],
    [Opt("LOCAL", 1, 8), Opt("UPCAST", 0, 4)],
    [Opt("LOCAL", 0, 8), Opt("UNROLL", 2, 4), Opt("GROUP", 2, 2)],
    [],
]  # fmt: skip
SUMS += [
    [*SUMS[0], Opt("PREFETCH", 2, 1)],
    [*SUMS[0], Opt("PREFETCH", 2, 2)],
    [Opt("GROUP", 2, 2), *SUMS[0], Opt("PREFETCH", 2, 1)],
]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shift", [0, -90])
def test_masked_sums(device: WebGpuDevice, mask: str, shift: int) -> None:
    rng = np.random.default_rng(4)
    for rows, flipped in ((64, False), (64, True), (50, False)):
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, N), (N, 16)))
        masked = MASKS[mask](np.arange(rows)[:, None], np.arange(N), shift)
        wanted = np.where(masked, 0.0, a.astype(np.float64)) @ b
        for opts in SUMS if rows == N else SUMS[4:]:
            given = {1: np.ascontiguousarray(a.T) if flipped else a, 2: b}
            out = run(device, weighted(mask, shift, rows, flipped), given, opts)[0]
            np.testing.assert_allclose(out.reshape(rows, 16), wanted, rtol=1e-5, atol=1e-5, err_msg=str(opts))


def test_masked_sums_take_the_turns_that_are_left() -> None:
    def text(mask: str) -> str:
        return generate(weighted(mask, 0, N, False), Target(), SUMS[0]).source

    assert "let n0 = wg * 4i;" in text(
        "causal"
    )  # blocks of 16 rows: each takes four more turns of 4 than the one before
    assert "k0 < (n0 + 4i);" in text("causal")
    assert "let n0 = (wg * -4i) + 16i;" in text("reversed")
    assert "k0 < n0;" in text("reversed")


def test_a_sum_over_anything_else_takes_all_turns() -> None:
    i, j, k = K.loop(N, 0), K.loop(16, 1), K.over(N, 2)
    a, b = K.load(K.param(1, N * N), i * N + k), K.load(K.param(2, N * 16), k * 16 + j)
    for masked, op in (
        ((i < k).where(a, 1.0), Op.ADD),  # not zero
        ((i < k).where(a, 0.0), Op.MAX),  # zero counts
        ((i * k < 40).where(a, 0.0), Op.ADD),  # not affine
    ):
        graph = K.sink(K.store(K.param(0, N * 16), i * 16 + j, K.reduce(op, masked * b, k)))
        assert "k0 < 16i" in generate(graph, Target(), SUMS[0]).source
