"""What an adapter is found to do with halves is what NumPy says it does, and kernels that rely on it round alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from anneal.backend.webgpu import WebGpuDevice
from anneal.backend.webgpu.opened import rounds_halves
from anneal.codegen import Target, generate
from anneal.uop import UOp, dtypes
from tests.backend.webgpu.run import run
from tests.codegen import kernels as K

MIDDLES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def numbers() -> npt.NDArray[np.float32]:
    """Every float16, and what lies halfway to the next, with the numbers beside it."""
    half = (MIDDLES.view(np.uint32) + 0x1000).view(np.float32)
    with np.errstate(invalid="ignore"):
        small = MIDDLES + np.copysign(np.float32(2**-25), MIDDLES)
    near = [(x.view(np.uint32) + np.uint32(d)).view(np.float32) for x in (half, small) for d in (-1 % 2**32, 0, 1)]
    return np.concatenate([MIDDLES, *near])


def rounding(count: int) -> UOp:
    """A kernel that rounds numbers to float16 and stores them as float32."""
    row = K.loop(count, 0)
    value = K.load(K.param(1, count), row).cast(dtypes.float16).cast(dtypes.float32)
    return K.sink(K.store(K.param(0, count), row, value))


def test_text() -> None:
    found = generate(rounding(64), Target(f16=True, rounds_halves=True)).source
    assert "packed_f16" in found
    assert "round_f16" not in found
    assert "packed_f16" not in generate(rounding(64), Target(f16=True)).source


def test_found_as_numpy_finds_it(device: WebGpuDevice) -> None:
    if "shader-f16" not in device.features:
        pytest.skip(f"{device.info.name} has no float16")
    given = numbers()
    with np.errstate(over="ignore", invalid="ignore"):
        right = given.astype(np.float16).astype(np.float32)
    graph = rounding(len(given))
    plain = run(device, graph, {1: given}, target=replace(device.target, f16=True, rounds_halves=False))[0]
    np.testing.assert_array_equal(plain, right)
    packed = run(device, graph, {1: given}, target=replace(device.target, f16=True, rounds_halves=True))[0]
    same = np.isnan(packed) & np.isnan(right) | (packed.view(np.uint32) == right.view(np.uint32))
    assert rounds_halves(device.gpu, device.info, device.made_by) == bool(same.all())
