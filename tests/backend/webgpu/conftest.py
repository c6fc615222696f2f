"""One device for all tests: any adapter will do, software too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anneal import settings
from anneal.backend.webgpu import WebGpuDevice, open_device
from anneal.errors import DeviceError


@pytest.fixture(scope="session")
def device() -> Iterator[WebGpuDevice]:
    try:
        yield open_device(settings.current().adapter or None, allow_software=True)
    except DeviceError as e:
        if settings.current().require_webgpu:
            raise
        pytest.skip(f"no WebGPU adapter: {str(e).splitlines()[0]}")
