"""Rows on the device: reduces and stores over one range, however it is split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import Opt
from tests.backend.webgpu.run import Array, run
from tests.codegen import kernels as K

RNG = np.random.default_rng(0)

SPLITS = [
    [],
    [Opt("GROUP", 1, 8)],
    [Opt("GROUP", 1, 32), Opt("UNROLL", 1, 4)],
    [Opt("GROUP", 1, 8), Opt("UNROLL", 1, 2), Opt("LOCAL", 0, 3)],
    [Opt("UNROLL", 1, 3), Opt("GROUP", 1, 4), Opt("LOCAL", 0, 8)],
    [Opt("UNROLL", 1, 5), Opt("LOCAL", 0, 4)],
    [Opt("VECTORIZE", 1, 4), Opt("GROUP", 1, 8), Opt("UNROLL", 1, 2), Opt("LOCAL", 0, 2)],
    [Opt("VECTORIZE", 1, 2), Opt("UNROLL", 1, 3)],
    [Opt("FLAT", 0, 4), Opt("GROUP", 1, 16)],
    [Opt("UPCAST", 0, 2), Opt("GROUP", 1, 16), Opt("UNROLL", 1, 2)],
]
SHAPES = [(5, 64), (7, 37), (9, 3)]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("splits", SPLITS, ids=str)
def test_softmax_with_its_statistics(device: WebGpuDevice, splits: list[Opt]) -> None:
    for rows, columns in SHAPES:
        x = normal(rows, columns)
        top = x.max(1)
        total = np.exp(x - top[:, None]).sum(1)
        want = np.exp(x - top[:, None]) / total[:, None]
        for subgroup in {0, device.target.subgroup}:
            target = replace(device.target, subgroup=subgroup)
            opts = [Opt("FUSE_REDUCE", 1, 1), *splits]
            out = run(device, K.softmax(rows, columns, True), {1: x}, opts, target)
            np.testing.assert_allclose(out[0].reshape(rows, columns), want, rtol=1e-5, atol=1e-7)
            np.testing.assert_array_equal(out[2], top)
            np.testing.assert_allclose(out[3], total, rtol=1e-5)


@pytest.mark.parametrize("splits", SPLITS, ids=str)
def test_a_row_of_several_buffers(device: WebGpuDevice, splits: list[Opt]) -> None:
    for rows, columns in SHAPES:
        x, dy, w, s = normal(rows, columns), normal(rows, columns), normal(columns), normal(rows)
        g = dy.astype(np.float64) * w
        want = (g - g.mean(1, keepdims=True) - x * (g * x).mean(1, keepdims=True)) * s[:, None]
        graph = K.layer_norm_backward(rows, columns)
        out = run(device, graph, {1: x, 2: dy, 3: w, 4: s}, [Opt("FUSE_REDUCE", 1, 1), *splits])[0]
        np.testing.assert_allclose(out.reshape(rows, columns), want, rtol=1e-4, atol=2e-6)


def test_rows_without_any_opt(device: WebGpuDevice) -> None:
    x = normal(5, 37)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    for opts in (None, [], [Opt("FLAT", 0, 64)], [Opt("GROUP", 2, 8)], [Opt("LOCAL", 1, 32)]):
        out = run(device, K.softmax(5, 37, True), {1: x}, opts)
        np.testing.assert_allclose(out[0].reshape(5, 37), want, rtol=1e-5)
        np.testing.assert_array_equal(out[2], x.max(1))
