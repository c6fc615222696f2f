"""A buffer of the GPU's memory, and one kernel compiled for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from anneal.backend.device import Program
from anneal.codegen import GeneratedKernel, opts_text
from anneal.errors import CompilerError, DeviceError, OutOfMemoryError


class DeviceBuffer:
    """Device memory. `nbytes` is what was asked for, rounded up to whole words; `groups` are cached bind groups on
    it."""

    __slots__ = ("gpu", "groups", "nbytes")

    def __init__(self, gpu: Any, nbytes: int) -> None:
        self.gpu, self.nbytes = gpu, nbytes
        self.groups: set[Any] = set()


class WebGpuProgram(Program):
    """One kernel: its WGSL, and a pipeline that is being `built` until it is first needed."""

    def __init__(self, name: str, kernel: GeneratedKernel) -> None:
        self.name, self.kernel, self.source = name, kernel, kernel.source
        self.built: Future[tuple[Any, Any]] | None = None
        self.pipeline: Any = None
        self.layout: Any = None

    @property
    def opts(self) -> str:
        return opts_text(self.kernel.opts)


# ---------------------------------------------------------------------------------------------------------------------
# wgpu's errors as ours.


def gpu_errors() -> tuple[type[Exception], ...]:
    """The classes of errors of the packages in use."""
    return tuple([m.GPUError for name in ("wgpu", "wgpudawn") if (m := sys.modules.get(name)) is not None])


@contextmanager
def translated(what: Callable[[], str]) -> Iterator[None]:
    """Errors of wgpu as ours; `what` says what was being done."""
    try:
        yield
    except gpu_errors() as e:
        if type(e).__name__ == "GPUOutOfMemoryError":
            raise _out_of_memory(what()) from e
        text = str(e)
        if "lost" in text.lower():
            raise DeviceError(
                f"the GPU was lost {what()}: its driver reset it, or it was removed; restart the program"
            ) from e
        if "out of memory" in text.lower() or "not enough memory" in text.lower():
            raise _out_of_memory(what()) from e
        raise CompilerError(f"WebGPU rejected a call {what()}: {text}", stage="webgpu") from e


def _out_of_memory(what: str) -> OutOfMemoryError:
    return OutOfMemoryError(f"out of GPU memory {what}; use a smaller batch or model, or device 'cpu'")
