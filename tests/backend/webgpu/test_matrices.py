"""MATRIX on adapters that have subgroup matrices: every tile of the heuristic, every layout, values beside float64."""

from __future__ import annotations

import numpy as np
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import Opt, choose, prepare
from tests.backend.webgpu.run import run
from tests.codegen import kernels as K


def test_an_adapter_without_matrices_gives_none_to_kernels(device: WebGpuDevice) -> None:
    assert bool(device.target.matrices) == ({"subgroup-matrix", "shader-f16"} <= set(device.features))
    if not device.target.matrices and device.target.f16:
        kernel = prepare(K.half_product(256, 256, 64, "float16"), device.target)
        assert all(o.kind != "MATRIX" for o in choose(kernel, device.target))


@pytest.mark.parametrize("end", ["float32", "float16", "bias", "transposed"])
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True), (True, True)])
def test_products(device: WebGpuDevice, end: str, across: tuple[bool, bool]) -> None:
    if not device.target.matrices:
        pytest.skip("this adapter has no subgroup matrices")
    rng = np.random.default_rng(3)
    m, n, k = 384, 384, 192
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    bias = rng.standard_normal(n).astype(np.float16)
    given = {1: a.T if across[0] else a, 2: b.T if across[1] else b}
    want = a.astype(np.float64) @ b.astype(np.float64)
    if end == "bias":
        given[3] = bias
        want = np.maximum(want + bias, 0)
    exact = end in ("float32", "transposed")
    for tile in (*K.TILES, (1, 1, 1, 1, 1)):
        for buffers in (0, 1):
            opts = [*K.by_matrices(0, *tile), *([Opt("PREFETCH", 2, buffers)] if buffers else [])]
            inputs = {slot: np.ascontiguousarray(x).reshape(-1) for slot, x in given.items()}
            got = run(device, K.half_product(m, n, k, end, *across), inputs, opts)[0].reshape(m, n)
            got = got.T if end == "transposed" else got
            slack = {"rtol": 1e-5, "atol": 2e-4} if exact else {"rtol": 1e-3, "atol": 4e-2}
            np.testing.assert_allclose(got, want, **slack, err_msg=str(opts))
