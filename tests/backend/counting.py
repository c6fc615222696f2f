"""A device that plans as a GPU does and computes nothing: it counts the memory of programs too large to run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anneal.backend import Array, Batch, Device, Limits, Program, cost_models, numpy_dtype
from anneal.schedule import name_of
from anneal.uop import DType, UOp, dtypes

NAME = "counting"
COST_MODEL = cost_models.gpu(binding_bytes=(1 << 31) - 4, buffer_bytes=1 << 38)


class Memory:
    """A buffer: its bytes by number."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class CountedProgram(Program):
    def __init__(self, sink: UOp) -> None:
        self.name, self.source = name_of(sink), ""


class CountedBatch(Batch[Memory]):
    def run(self) -> None:
        """Compute nothing."""


class CountingDevice(Device[Memory]):
    name = NAME
    limits = Limits(128, 1 << 38, frozenset((dtypes.bool_, dtypes.int32, dtypes.uint32, dtypes.float32)))
    cost_model = COST_MODEL

    def __init__(self) -> None:
        super().__init__(1 << 30)

    def _kind(self, size: int, dtype: DType) -> tuple[int, int]:
        nbytes = max(4, size * dtype.itemsize)
        return nbytes, nbytes

    def _kind_of(self, buffer: Memory) -> tuple[int, int]:
        return buffer.nbytes, buffer.nbytes

    def _create(self, size: int, dtype: DType) -> Memory:
        return Memory(self._kind(size, dtype)[0])

    def _drop(self, buffer: Memory) -> None:
        """Nothing else keeps it."""

    def upload(self, buffer: Memory, data: Array) -> None:
        """There is nothing to write to."""

    def download(self, buffer: Memory, size: int, dtype: DType) -> Array:
        return np.zeros(size, numpy_dtype(dtype))

    def host_view(self, buffer: Memory, size: int, dtype: DType) -> Array:
        return np.zeros(size, numpy_dtype(dtype))

    def copy(self, source: Memory, destination: Memory, size: int, dtype: DType) -> None:
        """There is nothing to copy."""

    def synchronize(self) -> None:
        """Nothing runs by itself."""

    def compile(self, sink: UOp) -> CountedProgram:
        return CountedProgram(sink)

    def prepare(
        self, calls: Sequence[tuple[Program, Sequence[Memory]]], values: Mapping[str, int] | None = None
    ) -> CountedBatch:
        return CountedBatch()
