"""A buffer of the GPU's memory, and one kernel compiled for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from anneal.backend.batch import Program
from anneal.codegen import Kernel, opts_text


class Buffer:
    """Device memory. `nbytes` is what was asked for, rounded up to whole words; `groups` are cached bind groups on
    it."""

    __slots__ = ("gpu", "groups", "nbytes")

    def __init__(self, gpu: Any, nbytes: int) -> None:
        self.gpu, self.nbytes = gpu, nbytes
        self.groups: set[Any] = set()


class WebGpuProgram(Program):
    """One kernel: its WGSL, and a pipeline that is being `built` until it is first needed."""

    __slots__ = ("built", "kernel", "layout", "name", "pipeline", "source")

    def __init__(self, name: str, kernel: Kernel) -> None:
        self.name, self.kernel, self.source = name, kernel, kernel.source
        self.built: Future[tuple[Any, Any]] | None = None
        self.pipeline: Any = None
        self.layout: Any = None

    @property
    def opts(self) -> str:
        return opts_text(self.kernel.opts)
