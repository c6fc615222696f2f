"""The WebGPU device of the fuzz tests: any adapter, a software one too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anneal import settings
from anneal.backend import get_device
from anneal.errors import DeviceError


@pytest.fixture
def webgpu() -> Iterator[str]:
    """The name of the device; skips where there is no adapter, unless ANNEAL_REQUIRE_WEBGPU=1 asks for one."""
    must = settings.current().require_webgpu
    with settings.override(require_webgpu=True):
        try:
            get_device("webgpu")
        except DeviceError as e:
            if must:
                raise
            pytest.skip(f"no WebGPU adapter: {e}")
        yield "webgpu"
