"""A device that is no part of anneal: it runs kernels one element at a time, on memory that is nothing but bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anneal.backend import Array, Batch, Device, Limits, Program, numpy_dtype
from anneal.schedule import CostModel, name_of
from anneal.uop import DType, Op, UOp, dtypes, toposort
from tests.backend.kernel_oracle import run_kernel

NAME = "toy"
COST_MODEL = CostModel(max_buffers=6)


class Memory:
    """A buffer. `device` is the one it belongs to: no other may be given it."""

    def __init__(self, device: ToyDevice, nbytes: int) -> None:
        self.device = device
        self.bytes = bytearray(nbytes)

    def values(self, dtype: DType) -> Array:
        """What it shows as elements of `dtype`, to read and to write."""
        return np.frombuffer(self.bytes, numpy_dtype(dtype))


class ToyProgram(Program):
    def __init__(self, sink: UOp) -> None:
        self.sink, self.name, self.source = sink, name_of(sink), str(sink)
        params = {u.arg[0]: u.dtype for u in toposort((sink,)) if u.op is Op.PARAM}
        self.dtypes = [params.get(n) for n in range(max(params) + 1)]


class ToyBatch(Batch[Memory]):
    def __init__(self, device: ToyDevice, calls: Sequence[tuple[Program, Sequence[Memory]]]) -> None:
        self.device, self.calls = device, calls

    def run(self) -> None:
        for program, buffers in self.calls:
            assert isinstance(program, ToyProgram)
            assert all(b.device is self.device for b in buffers)
            arrays = [b.values(d or dtypes.uint8) for b, d in zip(buffers, program.dtypes, strict=False)]
            self.device.ran.append(program.name)
            run_kernel(program.sink, arrays)


class ToyDevice(Device[Memory]):
    name = NAME
    limits = Limits(6, 1 << 20, frozenset((dtypes.bool_, dtypes.int32, dtypes.uint32, dtypes.float32)))
    cost_model = COST_MODEL

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.ran: list[str] = []  # the kernels, in order
        self.viewed = 0  # how often the host looked into a buffer

    def _kind(self, size: int, dtype: DType) -> tuple[int, int]:
        nbytes = max(4, size * dtype.itemsize)
        return nbytes, nbytes

    def _kind_of(self, buffer: Memory) -> tuple[int, int]:
        return len(buffer.bytes), len(buffer.bytes)

    def _create(self, size: int, dtype: DType) -> Memory:
        return Memory(self, self._kind(size, dtype)[0])

    def free(self, buffer: Memory) -> None:
        """Memory is freed by its device's name. Each test opens a toy device anew, as no program can: what is left of
        an older one goes here then, and is dropped."""
        if buffer.device is self:
            super().free(buffer)

    def _drop(self, buffer: Memory) -> None:
        """Nothing else keeps it."""

    def upload(self, buffer: Memory, data: Array) -> None:
        buffer.bytes[: data.nbytes] = np.ascontiguousarray(data).tobytes()

    def download(self, buffer: Memory, size: int, dtype: DType) -> Array:
        return buffer.values(dtype)[:size].copy()

    def host_view(self, buffer: Memory, size: int, dtype: DType) -> Array:
        self.viewed += 1
        return buffer.values(dtype)[:size]

    def copy(self, source: Memory, destination: Memory, size: int, dtype: DType) -> None:
        destination.bytes[: size * dtype.itemsize] = source.bytes[: size * dtype.itemsize]

    def synchronize(self) -> None:
        """Nothing runs by itself."""

    def compile(self, sink: UOp) -> ToyProgram:
        return ToyProgram(sink)

    def prepare(
        self, calls: Sequence[tuple[Program, Sequence[Memory]]], values: Mapping[str, int] | None = None
    ) -> ToyBatch:
        assert not values
        return ToyBatch(self, calls)
