"""Commands that C records are those that Python records: values, errors, sizes that change, and no compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import settings
from anneal.backend import compiler, get_device
from anneal.backend.webgpu import WebGpuDevice, batch, native, open_device
from anneal.errors import CompilerError
from anneal.uop import dtypes
from tests.backend.webgpu.test_device import _steps

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="this wgpu-py has no such names")
HAS_C = compiler.find() is not None


@pytest.fixture(params=["python", pytest.param("c", marks=pytest.mark.skipif(not HAS_C, reason="no C compiler"))])
def opened(request: pytest.FixtureRequest, device: WebGpuDevice) -> Iterator[tuple[WebGpuDevice, bool]]:
    """A device whose commands are recorded in each way, and whether C does it."""
    with settings.override(cpu="numpy"):
        other = open_device(device.info.name, allow_software=True)
        if request.param == "c":
            other.queue.record_in_c()
        yield other, request.param == "c"


def recorded_in_c(batch: Any) -> bool:
    return [p.packed is not None for p in batch._passes] == [True] * len(batch._passes)


def test_runs_give_the_same_values(opened: tuple[WebGpuDevice, bool]) -> None:
    device, in_c = opened
    batch, (x, _) = _steps(device, 50)
    for times in range(1, 7):
        batch.run()
        np.testing.assert_array_equal(device.download(x, 50, dtypes.float32), 1 + 6.0 * np.arange(50) * times)
    assert recorded_in_c(batch) is in_c


def test_an_error_names_its_kernel(opened: tuple[WebGpuDevice, bool]) -> None:
    device, in_c = opened
    batch, (x, _) = _steps(device, 8)
    pipeline, group, *_ = batch.dispatches[1]
    batch.dispatches[1] = (pipeline, group, 1 << 20, 1, 1)
    batch._handles[:] = device.queue.handles(batch.dispatches)
    with pytest.raises(CompilerError, match=batch.names[1]):
        batch.run()
    assert recorded_in_c(batch) is in_c
    again, (y, _) = _steps(device, 8)
    again.run()
    np.testing.assert_array_equal(device.download(y, 8, dtypes.float32), 1 + 6.0 * np.arange(8))


@pytest.mark.skipif(not HAS_C, reason="no C compiler")
def test_sizes_that_change_launch_other_workgroups(webgpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_MANY_WORKGROUPS", 0)
    device: Any = get_device(webgpu)
    before, made = vars(device.queue).get("_recorder"), []
    right = batch.WebGpuBatch.give
    monkeypatch.setattr(batch.WebGpuBatch, "give", lambda self, values: (made.append(self), right(self, values))[1])
    device.queue.record_in_c()
    try:
        n = an.Variable("n", 1, 700)
        double = an.jit(lambda x: (x * 2).exp() + 1)
        for size in (3, 700, 3, 512, 700, 1, 64, 300):
            x = np.linspace(0, 1, 700, dtype=np.float32)
            for _ in range(3):
                got = double(an.Tensor(x, device=webgpu)[: n.bind(size)]).numpy()
                np.testing.assert_allclose(got, np.exp(2 * x[:size]) + 1, rtol=1e-5)
    finally:
        device.queue._recorder = before
    assert any(b._large and recorded_in_c(b) for b in made)


def test_without_a_compiler_python_records(opened: tuple[WebGpuDevice, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    device, in_c = opened
    monkeypatch.setattr(compiler, "find", lambda: None)
    with settings.override(cpu="auto"):
        device.record_in_c()
    assert device._in_c is not None
    assert device._in_c.result() is None
    assert (device.queue._recorder is not None) is in_c  # what there was stays
