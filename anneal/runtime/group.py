"""A group of participants as a value, and exchanges between them as functions of the host.

Each participant is a thread, or a process, that runs the same program and holds a `Group` of its own, with its number
in it. Nothing here knows how values travel: an implementation overrides `exchange`, and what it does better than by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from anneal.backend import Array, Reader
from anneal.errors import GroupError
from anneal.runtime.host import HostFunction
from anneal.uop import Recent

Reduction = Literal["sum", "mean", "max"]
Arrays = Sequence[Array]
# Waits for the results of an exchange. Given memory, it may write them there; it returns the arrays that have them.
Wait = Callable[..., Sequence[Array]]
# Starts an exchange of arrays; memory for its results that is known by then comes second, and is empty otherwise. The
# third says that it is waited for at once.
Begin = Callable[[Arrays, Arrays, bool], Wait]


class Group(ABC):
    """A participant's view of a group of `size`: it is number `rank`, counted from 0.

    Every participant makes the same exchanges in the same order. Each returns once all have come to it, with the same
    bits for all; where one does not come, or comes with something else, every one that waits gets an error.
    """

    size: int
    rank: int
    coming: deque[UnderWay]  # exchanges that wait for arrays from a device
    made: Recent[Any, Exchange]  # exchanges by name and results, of one that copies
    # True if a started exchange no longer reads the arrays that it was given, and writes results into given memory.
    copies = False

    def leave(self) -> None:  # noqa: B027  # not all have something to do
        """Take no further part."""

    @abstractmethod
    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        """The arrays of every participant in the order of their numbers. `what` says the exchange in words.

        Raises GroupError where a participant does not come in time or comes for another exchange, ShapeError or
        DTypeError where the arrays of one are of another shape or dtype than those of the others.
        """

    def all_reduce(self, arrays: Arrays, op: Reduction) -> list[Array]:
        """The sum over the participants of each of several arrays, or the mean or the largest, as `op` says; float16
        and bfloat16 add in float32.
        """
        return list(self.begin_all_reduce(arrays, op)())

    def begin_all_reduce(self, arrays: Arrays, op: Reduction, into: Arrays = (), now: bool = False) -> Wait:
        """Start `all_reduce` of `arrays` by `op`; what is returned waits for its results. Here it has them at once.

        `into` is memory for the results, which they may be written to; `now` says that it is waited for at once.
        """
        made = self._reduced(self.exchange(f"all_reduce ({op})", arrays), op)
        return lambda into=(): made

    def reduce_scatter(self, arrays: Arrays, op: Reduction) -> list[Array]:
        """This participant's part, along the first axis, of what `all_reduce` of `arrays` by `op` gives."""
        return list(self.begin_reduce_scatter(arrays, op)())

    def begin_reduce_scatter(self, arrays: Arrays, op: Reduction, into: Arrays = (), now: bool = False) -> Wait:
        """Start `reduce_scatter` of `arrays` by `op`; what is returned waits for its results, `now` if that is so.
        `into` may take them."""
        given = self.exchange(f"reduce_scatter ({op})", arrays)
        made = self._reduced([[np.split(a, self.size)[self.rank] for a in each] for each in given], op)
        return lambda into=(): made

    def all_gather(self, arrays: Arrays) -> list[Array]:
        """The arrays of all participants along a new first axis, for each of several arrays."""
        return list(self.begin_all_gather(arrays)())

    def begin_all_gather(self, arrays: Arrays, into: Arrays = (), now: bool = False) -> Wait:
        """Start `all_gather` of `arrays`; what is returned waits for its results, `now` if that is so. `into` may take
        them."""
        made = [np.stack(each) for each in zip(*self.exchange("all_gather", arrays), strict=True)]
        return lambda into=(): made

    def broadcast(self, arrays: Arrays, root: int, into: Arrays = ()) -> list[Array]:
        """The arrays that participant `root` gives. `into` may take them."""
        return list(self.exchange(f"broadcast from {root}", arrays)[root])

    def reduce(self, arrays: Arrays, root: int) -> list[Array]:
        """The sums of `arrays` over the participants at `root`, zeros at the others."""
        given = self.exchange(f"reduce to {root}", arrays)
        return self._reduced(given, "sum") if self.rank == root else [np.zeros_like(a) for a in arrays]

    def send(self, array: Array, to: int) -> None:
        """Give an array to participant `to`, who calls `receive`."""
        raise GroupError(f"send: a {type(self).__name__} has no messages from one participant to another")

    def receive(self, like: Array, source: int, into: Arrays = ()) -> Array:
        """The array, of the shape and dtype of `like`, that participant `source` sends. `into` may take it."""
        raise GroupError(f"recv: a {type(self).__name__} has no messages from one participant to another")

    def barrier(self) -> None:
        """Wait until all participants have come here."""
        self.exchange("barrier", [])

    def begin_coming(self) -> None:
        """Start the exchanges that wait for a device: another one that is made now comes after them everywhere."""
        while self.coming:
            self.coming.popleft().begin()

    def check_rank(self, name: str, rank: int) -> None:
        """Raise GroupError, with the op's `name`, unless `rank` is a participant's number."""
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.size:
            raise GroupError(f"{name}: root is a participant, a number from 0 to {self.size - 1}, not {rank!r}")

    def _reduced(self, given: Sequence[Arrays], op: Reduction) -> list[Array]:
        """Sums in the order of the participants' numbers, so that they are the same bits everywhere."""
        return [reduced(each, op, self.size) for each in zip(*given, strict=True)]


def reduced(parts: Sequence[Array], op: Reduction, size: int) -> Array:
    """A new array: the sum of `parts` in their order, the mean over a group of `size`, or the largest, by `op`."""
    dtype = parts[0].dtype
    if op == "max":
        largest: Array = np.maximum.reduce(parts)
        return largest
    wide = np.dtype(np.float32) if dtype.itemsize <= 2 and dtype.kind not in "iub" else dtype
    total = parts[0].astype(wide)
    for a in parts[1:]:
        total += a.astype(wide, copy=False)
    if op == "mean":
        total /= wide.type(size)
    return total.astype(dtype, copy=False)


class UnderWay:
    """An exchange between its start and its end. Arrays that are still on their way from a device are waited for at the
    end, in the order in which the exchanges were started; `coming` are those of the group."""

    __slots__ = ("_begin", "_coming", "_reader", "_wait")

    def __init__(self, begin: Begin, coming: deque[UnderWay]) -> None:
        self._begin, self._coming = begin, coming
        self._reader: Reader | None = None
        self._wait: Wait | None = None

    def start(self, *arrays: Array) -> list[Array]:
        """Start it with arrays that are there."""
        self._wait = self._started((), arrays)
        return []

    def later(self, reader: Reader) -> None:
        """Start it as soon as a device has given the arrays."""
        self._reader, self._wait = reader, None
        self._coming.append(self)

    def _started(self, into: Arrays, arrays: Arrays) -> Wait:
        return self._begin(arrays, into, False)

    def begin(self, into: Arrays = ()) -> None:
        """Wait for its arrays from the device, and start it."""
        assert self._reader is not None
        self._wait, self._reader = self._reader(partial(self._started, into)), None

    def finish(self, into: Arrays = ()) -> Arrays:
        """Wait for the results, which may be written `into` memory."""
        while self._wait is None:
            first = self._coming.popleft()
            first.begin(into if first is self else ())
        wait, self._wait = self._wait, None
        return wait(into)


@dataclass(frozen=True, slots=True)
class Exchange(HostFunction):
    """A function of the host that waits for the other participants of `group`: it is called with no lock held.

    One with `begin` may be started before kernels that do not need its results, and waited for after them.
    """

    group: Group | None = field(default=None, compare=False)  # the key has it
    begin: Begin | None = field(default=None, compare=False, repr=False)
    under_way: UnderWay | None = field(default=None, compare=False, repr=False)  # of the half that starts
    ending: UnderWay | None = field(default=None, compare=False, repr=False)  # of the half that waits
    # by device: the memory of results that one after another has
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def halves(self) -> tuple[Exchange, Exchange]:
        """The exchange as two: one takes the arrays and starts it, the other waits for the results."""
        assert self.begin is not None
        assert self.group is not None
        both = UnderWay(self.begin, self.group.coming)
        return replace(self, results=(), call=both.start, under_way=both), replace(self, call=both.finish, ending=both)

    def over(self, given: Arrays, into: Arrays) -> None:
        """Make it, or this half of it, over memory that the host sees, of a group that `copies`: of what is `given`,
        with the results written `into` theirs."""
        if self.under_way is not None:
            self.under_way.start(*given)
            return
        assert self.begin is not None
        made = self.ending.finish(into) if self.ending is not None else self.begin(given, into, True)(into)
        for a, b in zip(made, into, strict=True):
            if a is not b:
                b[...] = a

    @property
    def title(self) -> str:
        """The name of the exchange in messages."""
        return self.name
