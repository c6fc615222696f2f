"""wgpu's errors as ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anneal.errors import CompilerError, DeviceError, OutOfMemoryError


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
