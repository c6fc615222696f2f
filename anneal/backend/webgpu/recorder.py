"""A recorder of dispatches in C (`record.c`): one call for a pass, where Python needs three for each dispatch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from anneal.backend import compiler

_FUNCTIONS = (  # as `functions` of record.c has them
    "wgpuDeviceCreateCommandEncoder", "wgpuCommandEncoderBeginComputePass", "wgpuComputePassEncoderSetPipeline",
    "wgpuComputePassEncoderSetBindGroup", "wgpuComputePassEncoderDispatchWorkgroups", "wgpuComputePassEncoderEnd",
    "wgpuComputePassEncoderRelease",
)  # fmt: skip
_DISPATCH = np.dtype([("pipeline", np.uintp), ("group", np.uintp), ("size", np.uint32, 3)], align=True)


def recorder(ffi: Any, lib: Any, device: Any) -> Callable[[Iterable[Any]], partial[Any]]:
    """A function that makes of dispatches a call, which gives the address of an encoder with one pass over them.

    Raises SubprocessError or OSError where nothing can be compiled.

    Args:
        ffi: what calls the library below a package, `lib`.
        device: the library's.
    """
    found = compiler.find()
    if found is None:
        raise compiler.NotCompiled(compiler.why_none())
    text = Path(__file__).with_name("record.c").read_text()
    (library,) = compiler.libraries([text], found, WeakValueDictionary())
    record = library.record  # which holds the library
    record.argtypes, record.restype = [*[ctypes.c_void_p] * 3, ctypes.c_int64], ctypes.c_void_p

    def number(pointer: Any) -> int:
        return int(ffi.cast("uintptr_t", pointer))

    functions = np.array([number(ffi.addressof(lib, name)) for name in _FUNCTIONS], np.uintp).ctypes

    def packed(dispatches: Iterable[Any]) -> partial[Any]:
        rows = [(number(pipeline), number(group), (x, y, z)) for pipeline, group, x, y, z in dispatches]
        return partial(record, functions, number(device), np.array(rows, _DISPATCH).ctypes, len(rows))

    return packed
