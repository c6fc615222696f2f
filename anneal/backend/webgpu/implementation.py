"""The two implementations of WebGPU behind one device: wgpu (wgpu-native, naga) and Dawn (Tint), an extra.

An `Implementation` has what differs between their packages: how adapters are found, devices opened, shader modules and
pipelines made, and the queue. Everything else of their APIs is the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from anneal import cache
from anneal.backend.webgpu.queue import Queue
from anneal.codegen import MatrixShape


class Implementation:
    """One package that implements WebGPU, by its public API; subclasses do some things faster.

    Args:
        package: the imported package.
    """

    name: ClassVar[str]
    names_subgroups: ClassVar[bool]  # WGSL says `enable subgroups;` before it uses them

    def __init__(self, package: Any) -> None:
        self.package = package
        self.version: str = package.__version__

    @property
    def can_trust(self) -> bool:
        """True if it can make shaders without bounds checks."""
        return False

    def adapters(self) -> list[Any]:
        """The adapters of Vulkan, Metal and DX12. OpenGL is left out: probing it is slow, and it lacks what we need."""
        if cache.enabled():
            # NVIDIA's driver keeps the pipelines it made on disk, for root only if it is told to; drivers read the
            # environment themselves, so it is written here and below
            os.environ.setdefault("__GL_SHADER_DISK_CACHE", "1")
        with _runtime_dir():
            self._prepare()
            return list(self.package.gpu.enumerate_adapters_sync())

    def _prepare(self) -> None:
        """Set the instance up, before adapters are first asked for."""

    def features(self, adapter: Any) -> Mapping[str, str]:
        """The adapter's name of each feature that it has, by our names, which are those of wgpu."""
        return {f: f for f in adapter.features}

    def matrices(self, adapter: Any) -> tuple[MatrixShape, ...]:
        """The subgroup matrices that an adapter multiplies."""
        return ()

    def open(self, adapter: Any, features: Sequence[str], limits: Mapping[str, int], trusted: bool) -> Any:
        """A device of an adapter. `trusted`: its shaders have no bounds checks, where that is a device's property."""
        return adapter.request_device_sync(required_features=list(features), required_limits=dict(limits))

    def shader_module(self, device: Any, code: str, label: str, trusted: bool) -> Any:
        """A shader module; `trusted` leaves out the bounds checks if the library can do so for a module."""
        return device.create_shader_module(label=label, code=code)

    def pipeline(self, device: Any, label: str, layout: Any, module: Any) -> Any:
        """The compute pipeline of a module's function `main`. Several threads may make pipelines at once."""
        return device.create_compute_pipeline(
            label=label, layout=layout, compute={"module": module, "entry_point": "main"}
        )

    def queue(self, device: Any) -> Queue:
        """The queue of a device."""
        return Queue(device)

    def timestamp_period(self, device: Any) -> float:
        """Nanoseconds of one tick of a timestamp query."""
        return 1.0


@contextlib.contextmanager
def _runtime_dir() -> Iterator[None]:
    # Mesa looks for a display even to list adapters, and complains on stderr where a session has no runtime folder.
    if not sys.platform.startswith("linux") or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]
