"""The WebGPU device of the fuzz tests: any adapter, a software one too."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from anneal import settings
from anneal.backend import get_device
from anneal.errors import DeviceError

# Most of the time goes into compiling thousands of small kernels. Mesa's software adapter, which reads this when it
# starts, compiles them in half the time without its optimisation passes; other adapters do not look at it.
os.environ.setdefault("GALLIVM_PERF", "nopt")


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
