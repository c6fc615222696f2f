"""The memory behind a tensor: it knows its device, and gives its buffer back to the device's pool when the last tensor
that needs it goes away."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from anneal.backend.arrays import Array
from anneal.backend.device import OpaqueBuffer
from anneal.backend.registry import DEVICES, get_device
from anneal.uop import DType, UOp

nothing: weakref.ref[Any] = weakref.ref(set())  # the reference to something that is not there


class Storage:
    """Flat device memory of `size` elements of `dtype`; equality is identity.

    `buffer` is the device's own object, or None until something is written. `host` is an array waiting to be uploaded.
    What is computed into it stays, unless it is `reused`: then each replay of a jit function may write it anew.
    """

    __slots__ = (
        "__weakref__",
        "buffer",
        "derivative",
        "device",
        "dtype",
        "host",
        "leaf",
        "line",
        "made_by",
        "noted",
        "owner",
        "place",
        "reused",
        "size",
        "spent",
    )

    def __init__(self, size: int, dtype: DType, device: str, host: Array | None = None) -> None:
        self.size, self.dtype, self.device = size, dtype, device
        self.buffer: OpaqueBuffer | None = None
        self.host = host
        self.reused = False
        # The graph these values were computed from, or what makes it, where a gradient has to go on through it.
        self.made_by: UOp | Callable[[], UOp] | None = None
        self.spent = False  # whether a backward pass has used that graph up
        self.owner = nothing  # a weak reference to the tensor that shows this memory
        self.noted: Any = None  # where it is noted that a leaf showed this once (`Handle._note_earlier`)
        self.leaf: weakref.ref[Any] | None = None  # the leaf node that shows this memory, if there is one
        self.place: tuple[Any, ...] | None = None  # how graphs without memory last named it (`runtime/numbering.py`)
        self.derivative: Any = None  # of memory that stands for a call: what knows the call's derivative
        self.line: tuple[Any, int] | None = None  # the user's code and line that computes it, where not the node's own

    @property
    def origin(self) -> UOp | None:
        """The graph that these values were computed from, kept only where a gradient has to go on through it."""
        found = self.made_by
        if callable(found):
            found = self.made_by = found()
        return found

    @origin.setter
    def origin(self, u: UOp | None) -> None:
        self.made_by = u

    def ensure(self) -> OpaqueBuffer:
        """The device buffer: allocated on first use, with `host` uploaded if there is one."""
        if self.buffer is None or self.host is not None:
            device = get_device(self.device)
            with device.lock:
                if self.buffer is None:
                    self.buffer = device.alloc(self.size, self.dtype)
                    device.asked += self.size * self.dtype.itemsize
                if self.host is not None:
                    device.upload(self.buffer, self.host)
                    self.host = None
        return self.buffer

    def release(self) -> None:
        """Give the buffer back to the device's pool now."""
        buffer, self.buffer = self.buffer, None
        if buffer is not None:
            device = DEVICES.open.get(self.device)
            if device is not None:
                device.free(buffer)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends its modules' globals are gone: memory goes with the process.
        if self.buffer is not None and not ending():
            self.release()

    def __repr__(self) -> str:
        return f"Storage({self.size}, {self.dtype.name}, {self.device!r})"

    def __reduce__(self) -> Any:
        raise TypeError("the memory of a tensor cannot be pickled; pickle the tensor, which takes its values along")
