"""Compiled kernels, and batches of their calls that can be replayed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from anneal.errors import DeviceError

Buffer = TypeVar("Buffer")


class Program(ABC):
    """A compiled kernel. `name` is stable from run to run; `source` is the generated text."""

    name: str
    source: str

    @property
    def opts(self) -> str:
        """The splits of the kernel's ranges as text, for a listing; empty on a device that chooses none."""
        return ""


Call = tuple[Program, Sequence[Buffer]]


@dataclass(frozen=True, slots=True)
class Timed:
    """A run with a clock beside each call: it took `seconds`.

    `each` gives the seconds of each call in order, and those in which nothing was computed: each such wait is part of
    the next call's time.
    """

    seconds: float
    each: Callable[[], tuple[list[float], float]]


class Batch(ABC, Generic[Buffer]):
    """Kernel calls bound to their buffers, in order; `run` may be called any number of times.

    `pipeline_depth`: how many runs after the next one are in flight, prepared already: a buffer swap does not reach
    them.
    """

    pipeline_depth: ClassVar[int] = 0
    # whether `run` comes back when the work is done, and `timed` takes as long: else it waits for call after call
    waits: ClassVar[bool] = True
    names: Sequence[str] = ()  # of the kernels that are called, in order

    @abstractmethod
    def run(self) -> None:
        """Execute every call in order. Results are visible to `Device.download` and to later batches."""

    def give(self, values: Mapping[str, int]) -> bool:
        """From the next run on variables have these values; whether that asks for a `restart`."""
        raise DeviceError(f"{type(self).__name__} has no variables")

    def can_swap(self, buffer: Buffer) -> bool:
        """True if `run_and_swap` may replace `buffer`."""
        return False

    def run_and_swap(self, pairs: Callable[[], Sequence[tuple[Buffer, Buffer]]]) -> None:
        """`run`; after `pipeline_depth` runs more the second buffer of each pair stands for the first.

        `pairs` is called once the work is under way: the device does not wait for what is made there.
        """
        self.run()

    def restart(self) -> None:
        """Prepare the runs in flight anew: they use the buffers that the last swap left."""
        return

    def seconds(self) -> float:
        """Execute every call in order and wait; the seconds that the device took, by the finest clock there is."""
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def timed(self) -> Timed:
        """Execute every call once, as `run` does, with a clock beside each."""
        raise DeviceError(f"{type(self).__name__} cannot time single kernels")

    def profile(self) -> list[tuple[str, float]]:
        """Execute every call once, and wait; (kernel name, seconds) in order. Where calls run side by side, each has
        its part of that time: together they are no more than the run."""
        return list(zip(self.names, self.timed().each()[0], strict=True))
