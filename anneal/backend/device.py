"""A device: memory, compiled kernels, and batches of calls that can be replayed."""

from __future__ import annotations

import gc
import heapq
import itertools
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NewType, Protocol, TypeVar

from anneal.backend.arrays import Array
from anneal.errors import DeviceError, OutOfMemoryError
from anneal.frozen import frozen
from anneal.progress import told
from anneal.uop import DType, Ints, UOp, Weighed, arena

if TYPE_CHECKING:
    from anneal.backend.memory import MemoryReport, MemoryUse, Reserved
    from anneal.schedule import CostModel, Kernel

Buffer = TypeVar("Buffer")
T = TypeVar("T")
Contents = Sequence[tuple[Buffer, int, DType]]  # buffers with the elements that they hold, and their dtypes


# A promise of arrays that a device was asked for: it waits for them, and gives the result of a function of them.
Reader = Callable[[Callable[[list[Array]], Any]], Any]

# ---------------------------------------------------------------------------------------------------------------------
# Compiled kernels, and batches of their calls that can be replayed.


class Program(ABC):
    """A compiled kernel. `name` is stable from run to run; `source` is the generated text."""

    name: str
    source: str
    weight: int = 1  # the memory that it takes, in programs of a kernel of usual size

    @property
    def opts(self) -> str:
        """The splits of the kernel's ranges as text, for a listing; empty on a device that chooses none."""
        return ""


Call = tuple[Program, Sequence[Buffer]]


@frozen
class Timed:
    """A run with a clock beside each call: the seconds of all of it, and those of each call in order."""

    seconds: float
    each: Sequence[float]


class Batch(ABC, Generic[Buffer]):
    """Kernel calls bound to their buffers, in order; `run` may be called any number of times."""

    # whether `run` comes back when the work is done, and `timed` takes as long: else it waits for call after call
    waits: ClassVar[bool] = True
    names: Sequence[str] = ()  # of the kernels that are called, in order

    @abstractmethod
    def run(self) -> None:
        """Execute every call in order. Results are visible to `Device.download` and to later batches."""

    def give(self, values: Mapping[str, int]) -> None:
        """From the next run on variables have these values."""
        raise DeviceError(f"{type(self).__name__} has no variables")

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
        return list(zip(self.names, self.timed().each, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Freed buffers that are kept for reuse.

_ENTRY_BYTES = 256


class BufferPool(Generic[Buffer]):
    """Freed buffers kept for reuse, by kind (a hashable key such as a size class), within a budget of bytes.

    Of a kind the buffer that was made first is taken first: a loop that frees in each round what it took in the one
    before gets the same buffers every second round, in the same places, and what was bound to them can be kept.

    Over budget the kinds that were longest unused go first; `drop` is told of each buffer that leaves. The buffer that
    was freed last stays, however large: a loop over large results frees one for each that it makes.
    """

    def __init__(self, budget: int, drop: Callable[[Buffer], None]) -> None:
        self.budget = budget
        self.held = 0
        self._drop = drop
        self._free: dict[Hashable, tuple[int, list[tuple[int, Buffer]]]] = {}  # heaps, by number
        self._numbers: dict[int, int] = {}  # of buffers by id, in the order in which they came
        self._count = itertools.count()

    def made(self, buffer: Buffer) -> None:
        """Note that a buffer was made, which will come here: not when, but in which order it was made, counts then."""
        self._numbers[id(buffer)] = next(self._count)

    def take(self, kind: Hashable) -> Buffer | None:
        """A pooled buffer of `kind`, of those the one that was made first, or None."""
        entry = self._free.get(kind)
        if entry is None:
            return None
        nbytes, buffers = entry
        _, buffer = heapq.heappop(buffers)
        self.held -= nbytes
        if not buffers:
            del self._free[kind]
        return buffer

    def give(self, kind: Hashable, nbytes: int, buffer: Buffer, budget: int = 0, worth: int | None = None) -> None:
        """Keep `buffer`; may push others out.

        Args:
            nbytes: its bytes.
            budget: the budget, where that is larger than the pool's own.
            worth: the bytes of which the pool's own is to be no more, if that is more than a quarter of it: a program
                that uses little at once would fill the pool with sizes that do not come again.
        """
        # Every entry also costs the host an object, so tiny buffers are not free to keep.
        nbytes += _ENTRY_BYTES
        entry = self._free.pop(kind, None) or (nbytes, [])
        number = self._numbers.get(id(buffer))
        if number is None:
            number = self._numbers[id(buffer)] = next(self._count)
        heapq.heappush(entry[1], (number, buffer))
        self._free[kind] = entry  # reinserted last: most recently used
        self.held += nbytes
        budget = max(budget, self.budget if worth is None else min(self.budget, max(worth, self.budget // 4)))
        while self.held > budget and self.held > nbytes:
            oldest = next(iter(self._free))
            size, buffers = self._free[oldest]
            _, victim = buffers.pop()  # a heap without its last item is one
            self.held -= size
            if not buffers:
                del self._free[oldest]
            self._numbers.pop(id(victim), None)
            self._drop(victim)

    def clear(self) -> None:
        """Drop everything."""
        while self._free:
            _, (_, buffers) = self._free.popitem()
            for _, buffer in buffers:
                self._drop(buffer)
        self._numbers.clear()
        self.held = 0


class BoundCache(Weighed[Ints, tuple[T, object]], Generic[T]):
    """Batches, or other objects, by the owner (a plan, say) and the buffers that they were made for, until one of the
    buffers leaves the device: a loop meets the same ones every second round. Keys are ids: of an owner that is kept,
    and of buffers that are the device's."""

    def __init__(self, most: int, heavy: int) -> None:
        super().__init__(most, heavy)
        self._keys: dict[int, set[Ints]] = {}  # by the ids of the buffers

    def of(self, owner: object, buffers: Iterable[object]) -> T | None:
        """The object that was made for these, which is the one used last then; None if none was."""
        found = self.find((id(owner), *map(id, buffers)))
        return None if found is None else found[0]

    def put(self, made: T, owner: object, buffers: Iterable[object], weight: int = 1) -> None:
        """Have `of` find what was made; may push others out."""
        key = (id(owner), *map(id, buffers))
        for b in key[1:]:
            self._keys.setdefault(b, set()).add(key)
        self.keep(key, (made, owner), weight)

    def drop(self, owner: object, buffers: Iterable[object]) -> None:
        """Forget a batch that failed."""
        if (key := (id(owner), *map(id, buffers))) in self:
            del self[key]

    def left(self, buffer: object) -> None:
        """Forget all that was made for a buffer."""
        for key in list(self._keys.get(id(buffer), ())):
            del self[key]

    def __delitem__(self, key: Ints) -> None:
        super().__delitem__(key)
        for b in {*key[1:]}:
            keys = self._keys[b]
            keys.discard(key)
            if not keys:
                del self._keys[b]

    def clear(self) -> None:
        super().clear()
        self._keys.clear()


# ---------------------------------------------------------------------------------------------------------------------

_OF_PEAK = 8  # the pool has at most so many times what was in use at once, if that is more than a quarter of its budget
# A buffer as code outside of its device sees it: to be handed back to that device, and nothing else.
OpaqueBuffer = NewType("OpaqueBuffer", object)


@frozen
class Limits:
    """The limits of one kernel: storage buffers, bytes of one binding, and the dtypes that it can compute with."""

    max_buffers: int
    max_binding_bytes: int
    dtypes: frozenset[DType]


class Idle(Protocol):
    """Memory that is kept though it may be unused: a round of the same loop may come."""

    nbytes: int  # 0 once it holds none

    def let_go(self) -> bool:
        """Free the memory if it is unused; True if it was freed."""

    def forget(self) -> None:
        """Keep the memory no longer: it goes with its last user."""


class Device(ABC, Generic[Buffer]):
    """Allocator, compiler and launcher of one piece of hardware. `Buffer` is the type of its memory.

    get_device("cpu")  ->  Device.alloc / upload / download / free
                           Device.compile(sink) -> Program
                           Device.prepare([(program, buffers), ...]) -> Batch;  Batch.run()

    Any thread may use a device that holds its `lock`; what several calls do together (bind, then run) is done under one
    lock. `free` alone may be called at any time: finalisers call it.

    Args:
        pool_bytes: the bytes of freed memory that are kept for later use.
    """

    name: str
    limits: Limits
    cost_model: CostModel  # what the scheduler decides by
    adapter: str | None = None  # the name of its adapter, if it has one
    survives_fork: ClassVar[bool] = False
    _CALLS: ClassVar[int] = 0  # up to so many calls of batches are kept, however many batches those are

    def __init__(self, pool_bytes: int) -> None:
        self.lock = threading.RLock()
        self.pool: BufferPool[Buffer] = BufferPool(pool_bytes, self._left)
        self.batches: BoundCache[Batch[Buffer]] = BoundCache(sys.maxsize, self._CALLS)  # that may run again
        # Memory that later rounds of a loop may write anew, which goes with the loop's launch; and its bytes, at most.
        self._idle: list[weakref.ref[Idle]] = []
        self._idle_bytes = self._idle_looked = 0
        self._returned: deque[Buffer] = deque()  # freed, and not yet in the pool
        # Held while the pool changes: a finaliser that comes meanwhile, in the same thread, leaves the pool alone. A
        # lock because entering one costs no call of Python.
        self._changing = threading.Lock()
        self._in_use = self._peak = 0
        self.reserved: weakref.WeakSet[Reserved] = weakref.WeakSet()  # that have memory which no tensor shows
        # what launches share: by the results' sizes and shapes, and by the id of a plan
        self.of_launches: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self.asked = 0  # bytes of memory that tensors have asked for so far

    # -- memory

    def alloc(self, size: int, dtype: DType) -> Buffer:
        """Memory for `size` elements, contents undefined. Freed memory of the same kind is used first: commands run in
        order, so it may be written anew while the GPU still has to run what used it before.

        Raises OutOfMemoryError, with what holds most, where there is none left even after everything unused was
        dropped.

        Args:
            dtype: the dtype of the elements.
        """
        with self.lock:
            kind, nbytes = self._kind(size, dtype)
            buffer = self._pooled(kind)
            if (
                buffer is None
                # kept though memory is made: two loops that take turns would have each other's let go in every round
                and self._idle_bytes > (most := max(self.pool.budget, self._in_use) // 4)
                and sum([m.nbytes for m in self._look_at_idle()]) > most
                and self.end_idle(most)
            ):
                buffer = self._pooled(kind)
            if buffer is None:
                try:
                    buffer = self._create(size, dtype)
                except MemoryError:
                    buffer = self._create_after_all(size, dtype, nbytes)
                self.pool.made(buffer)
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)
            return buffer

    def _pooled(self, kind: Hashable) -> Buffer | None:
        """A buffer of the pool's, if it has one of this kind."""
        if self._changing.locked():
            return None
        if self._returned:
            self._reclaim()
        with self._changing:
            return self.pool.take(kind)

    def alloc_all(self, pieces: Sequence[tuple[int, DType]], out: list[Buffer]) -> None:
        """`alloc` of several, each with its size and dtype; they are put into `out` as they come.

        Args:
            pieces: a size and a dtype for each.
        """
        with self.lock:
            if self._returned:
                self._reclaim()
            if not self._changing.locked():
                with self._changing:
                    for size, dtype in pieces:
                        kind, nbytes = self._kind(size, dtype)
                        buffer = self.pool.take(kind)
                        if buffer is None:
                            break
                        out.append(buffer)
                        self._in_use += nbytes
                self._peak = max(self._peak, self._in_use)
            for size, dtype in pieces[len(out) :]:
                out.append(self.alloc(size, dtype))

    def keep_idle(self, memory: Idle) -> None:
        """Keep memory for a later round, and free some if there is too much of it, oldest first.

        Three times the largest may stay: steps of training take turns in the memory of two rounds' results, and write
        the same temporaries, however large these are.
        """
        with self.lock:
            self._idle.append(weakref.ref(memory))
            self._idle_bytes += memory.nbytes
            most = max(self.pool.budget, self._in_use // 4)
            if self._idle_bytes > most or len(self._idle) > 2 * self._idle_looked + 64:
                kept = self._look_at_idle()
                most = max(most, 3 * max([m.nbytes for m in kept], default=0))
                for m in kept:
                    if self._idle_bytes <= most:
                        break
                    self._idle_bytes -= m.nbytes
                    m.forget()

    def _look_at_idle(self) -> list[Idle]:
        """The memory that is kept for later rounds, oldest first."""
        found = [m for r in self._idle if (m := r()) is not None and m.nbytes]
        self._idle = [weakref.ref(m) for m in found]
        self._idle_bytes, self._idle_looked = sum([m.nbytes for m in found]), len(found)
        return found

    def end_idle(self, most: int = 0) -> bool:
        """Free memory that was kept for later rounds, oldest first, until at most `most` bytes are left; True if any
        was freed."""
        ended = False
        for m in self._look_at_idle():
            if self._idle_bytes <= most:
                break
            nbytes = m.nbytes
            if m.let_go():
                self._idle_bytes -= nbytes
                ended = True
            else:  # it is in use, and none of what is left idle
                most += nbytes
        self._look_at_idle()
        return ended

    def check_size(self, size: int, dtype: DType) -> None:
        """Raise DeviceError where memory for so many elements is more than the device can ever have in one piece.

        Args:
            size: the number of elements.
            dtype: the dtype of the elements.
        """
        self._kind(size, dtype)

    def _create_after_all(self, size: int, dtype: DType, nbytes: int) -> Buffer:
        """Drop all unused memory, wait until the device has freed it, and try again."""
        arena().sweep()
        gc.collect()
        self.empty_cache()
        self.synchronize()
        try:
            return self._create(size, dtype)
        except MemoryError:
            shape = f"{size} {dtype.name}"
            raise OutOfMemoryError(
                f"device {self.name!r} has no room for {nbytes:,} bytes ({shape}): delete tensors, take smaller "
                f"batches, or use no_grad() where no gradient is needed\n{self.report().text(most=8)}"
            ) from None

    def free(self, buffer: Buffer) -> None:
        """Hand a buffer back. The caller must not use it again; a batch that was prepared with it may still run."""
        self.free_all((buffer,))

    def free_all(self, buffers: Iterable[Buffer]) -> None:
        """`free` of several.

        Args:
            buffers: the buffers.
        """
        self._returned.extend(buffers)
        if self._returned and self.lock.acquire(blocking=False):  # else its holder takes them before it allocates
            try:
                self._reclaim()
            finally:
                self.lock.release()

    def _reclaim(self) -> None:
        """Put what was freed into the pool."""
        if self._changing.locked():
            return
        with self._changing:
            while self._returned:
                buffer = self._returned.popleft()
                if (found := self._kind_of(buffer)) is not None:
                    kind, nbytes = found
                    self._in_use -= nbytes
                    self.pool.give(kind, nbytes, buffer, self._in_use // 4, _OF_PEAK * self._peak)

    def memory(self) -> MemoryUse:
        """The bytes in use, the bytes kept for later use, and the peak of use."""
        from anneal.backend.memory import MemoryUse

        with self.lock:
            self.end_idle()
            self._reclaim()
            return MemoryUse(self._in_use, self.pool.held, self._peak)

    def report(self) -> MemoryReport:
        """A report of the holders of this device's memory."""
        from anneal.backend.memory import report

        return report(self.name, self.memory(), list(self.reserved))

    def held(self) -> int:
        """Bytes of the device's memory that are taken, what is kept for later use included."""
        use = self.memory()
        return use.in_use + use.cached

    def reset_peak(self) -> None:
        """Measure the peak from here on."""
        with self.lock:
            self._reclaim()
            self._peak = self._in_use

    def empty_cache(self) -> None:
        """Give back unused memory, and scratch memory that can be made again."""
        with self.lock:
            if self._changing.locked():
                return
            self.end_idle()
            self._reclaim()
            self.batches.clear()
            with self._changing:
                self.pool.clear()

    def _left(self, buffer: Buffer) -> None:
        """A buffer left the pool."""
        self.batches.left(buffer)
        self._drop(buffer)

    @abstractmethod
    def _kind(self, size: int, dtype: DType) -> tuple[Hashable, int]:
        """The pool's key for memory of so many elements, and its bytes.
        Raises DeviceError where the device can have no such."""

    @abstractmethod
    def _kind_of(self, buffer: Buffer) -> tuple[Hashable, int] | None:
        """The same of a buffer; None if it is not this device's."""

    @abstractmethod
    def _create(self, size: int, dtype: DType) -> Buffer:
        """New memory. Raises MemoryError where there is none."""

    @abstractmethod
    def _drop(self, buffer: Buffer) -> None:
        """A buffer left the pool: nothing may keep it alive."""

    @abstractmethod
    def upload(self, buffer: Buffer, data: Array) -> None:
        """Copy `data` (any shape, the buffer's dtype and size) into the buffer."""

    @abstractmethod
    def download(self, buffer: Buffer, size: int, dtype: DType) -> Array:
        """A fresh flat host array with the buffer's contents, after all work submitted so far.

        Args:
            size: the number of elements.
            dtype: the dtype of the elements.
        """

    def download_all(self, pieces: Contents[Buffer]) -> list[Array]:
        """`download` of several buffers, each with its size and dtype; waits once.

        Args:
            pieces: a buffer, its size and its dtype for each.
        """
        return [self.download(*p) for p in pieces]

    def read_later(self, pieces: Contents[Buffer]) -> Reader:
        """Begin to read several buffers, each with its size and dtype. What is returned is called with a function,
        waits, and gives what that makes of the arrays, which it may look at until it returns. Work that is asked for
        in between is not waited for, where the device can tell.

        Args:
            pieces: a buffer, its size and its dtype for each.
        """
        arrays = self.download_all(pieces)
        return lambda use: use(arrays)

    def written(self, pieces: Contents[Buffer]) -> tuple[list[Array], Callable[[], None]] | None:
        """Arrays to be written, and what then gives them to buffers; nobody looks at them after that. None where there
        is no such memory; `pieces` are a buffer, its size and its dtype each."""
        return None

    def host_view(self, buffer: Buffer, size: int, dtype: DType) -> Array | None:
        """The contents of a buffer that the host sees as they are, without a copy or a wait; None of any other.

        Args:
            size: the number of elements.
            dtype: the dtype of the elements.
        """
        return None

    @abstractmethod
    def copy(self, source: Buffer, destination: Buffer, size: int, dtype: DType) -> None:
        """Copy `size` elements from buffer to buffer, in order with batches, uploads and downloads.

        Args:
            source: the buffer that is read.
            destination: the buffer that is written.
            dtype: the dtype of the elements.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work submitted so far."""

    @abstractmethod
    def compile(self, sink: UOp) -> Program:
        """Compile the kernel graph `sink`. Compiling the same sink again returns the same program."""

    def compile_all(self, kernels: Sequence[Kernel], often: bool = False) -> list[Program]:
        """Compile the kernels of a plan; what a device keeps on disk it keeps for all of them together.

        Args:
            often: True if they are to run many times, which is worth a longer compilation.
        """
        return [self.compile(k.sink) for k in told(kernels, "compiling kernels")]

    def runs_before_often(self, programs: Sequence[Program]) -> int:
        """The number of runs of a plan's programs after which to compile them `often`; 0 for never."""
        return 0

    @abstractmethod
    def prepare(self, calls: Sequence[Call[Buffer]], values: Mapping[str, int] | None = None) -> Batch[Buffer]:
        """Bind calls, each a program and its buffers in the order of the PARAM slots, for execution in order.

        `values` are those of the variables that the programs have.
        """

    def __str__(self) -> str:
        return f"{self.name} ({self.adapter})" if self.adapter else self.name

    def describe(self) -> dict[str, Any]:
        """Facts for `anneal doctor`: at least name, backend, limits and dtypes."""
        return {
            "name": self.name,
            "max_buffers": self.limits.max_buffers,
            "max_binding_bytes": self.limits.max_binding_bytes,
            "dtypes": sorted(d.name for d in self.limits.dtypes),
        }
