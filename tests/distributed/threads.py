"""A group of threads of one process, for tests of exchanges: participants meet at a table, where each puts its arrays
down and reads all others'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from anneal.distributed import Group
from anneal.errors import DTypeError, GroupError, ShapeError
from anneal.runtime import Arrays, Context

R = TypeVar("R")


class ThreadGroup(Group):
    """Number `rank` of a group of threads; `ThreadGroup.of(size)` makes the views of all of them.

    An exchange waits `timeout` seconds for the others. After one that failed, because a participant did not come or has
    left, every exchange of the group fails.

    Args:
        table: the meeting place that the views of a group share.

    >>> first, second = ThreadGroup.of(2, timeout=0.05)
    >>> first.exchange("sum", [])
    Traceback (most recent call last):
    ...
    anneal.errors.GroupError: sum: participant 1 of 2 did not come within 0.05 s
    """

    def __init__(self, rank: int, table: _Table) -> None:
        self.rank, self.size, self._table = rank, table.size, table

    @classmethod
    def of(cls, size: int, timeout: float = 600.0) -> list[ThreadGroup]:
        """The views of all participants of a new group. Raises GroupError for a size or a time that is not above 0.

        Args:
            timeout: the seconds that a participant waits for the others.
        """
        if size < 1 or not timeout > 0:
            raise GroupError(
                f"ThreadGroup: takes at least one participant and a time above 0, not {size} and {timeout} s"
            )
        table = _Table(size, timeout)
        return [cls(rank, table) for rank in range(size)]

    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        return self._table.meet(self.rank, what, arrays)

    def leave(self, why: str = "has left") -> None:
        """Take this participant out of every further exchange: waiting participants get an error now, which says
        `why`.
        """
        self._table.fail(f"participant {self.rank} of {self.size} {why}")

    def __repr__(self) -> str:
        return f"ThreadGroup({self.rank} of {self.size})"


class _Table:
    """The place where the participants of a group meet. Each round ends when all have come."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self._all = threading.Barrier(size, self._end_round, timeout)
        self._put: dict[int, tuple[str, Arrays]] = {}  # by the participant's number, in this round
        self._last = self._put  # of the last round; the next ends when all have read it
        self._rounds = 0
        self._failed = ""  # why no exchange takes place any more

    def _end_round(self) -> None:
        self._last, self._put = self._put, {}
        self._rounds += 1

    def meet(self, rank: int, what: str, arrays: Arrays) -> list[Arrays]:
        """Put arrays down and wait for the others; every participant's arrays, in the order of their numbers."""
        if rank in self._put and not self._failed:
            raise GroupError(f"{what}: participant {rank} is in two exchanges at once; it is one thread at a time")
        mine = self._rounds
        try:
            if not self._all.broken:
                self._put[rank] = what, arrays
            self._all.wait()
        except threading.BrokenBarrierError:
            if self._rounds == mine:  # else all came, and one of them has left since
                missing = ", ".join([str(n) for n in range(self.size) if n not in self._put])
                several = "s" if "," in missing else ""
                self.fail(f"participant{several} {missing} of {self.size} did not come within {self.timeout:g} s")
                raise GroupError(f"{what}: {self._failed}") from None
        last = self._last
        _compare(last)
        return [last[n][1] for n in range(self.size)]

    def fail(self, why: str) -> None:
        """Make every exchange from now on fail with `why`, unless they fail already."""
        self._failed = self._failed or why
        self._all.abort()


def _compare(given: dict[int, tuple[str, Arrays]]) -> None:
    """Raise an error that names two participants, the same one for all, where they differ in what they give."""
    what, arrays = given[0]
    for rank in range(1, len(given)):
        other, theirs = given[rank]
        if other != what:
            raise GroupError(f"{what}: participant 0 makes {what}, and participant {rank} makes {other}")
        if len(arrays) != len(theirs):
            raise GroupError(f"{what}: participant 0 gives {len(arrays)} arrays, and participant {rank} {len(theirs)}")
        for n, (a, b) in enumerate(zip(arrays, theirs, strict=True)):
            for kind, mine, its in ((ShapeError, a.shape, b.shape), (DTypeError, a.dtype, b.dtype)):
                if mine != its:
                    raise kind(f"{what}: array {n} is {mine} for participant 0, and {its} for participant {rank}")


def in_threads(
    function: Callable[[ThreadGroup], R], size: int, *, device: str | None = None, timeout: float = 600.0
) -> list[R]:
    """Results of `function` for each participant of a group of `size` threads, each in a context of its own.

    Args:
        function: takes a participant's view of the group.
        size: the number of participants.
        device: the default device; None leaves it to the setting.
        timeout: seconds that an exchange waits for the others; they may be compiling. One that ends with an error is
            not waited for.

    Raises what the first participant raised that failed; the others are told of it at their next exchange.

    >>> in_threads(lambda group: group.rank * 10, 3)
    [0, 10, 20]
    """
    members = ThreadGroup.of(size, timeout)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def participate(member: ThreadGroup) -> None:
        try:
            with Context(device):
                results[member.rank] = function(member)
        except BaseException as e:
            errors.append(e)
            member.leave(f"has ended: {type(e).__name__}: {e}")
        else:
            member.leave("has ended")

    threads = [threading.Thread(target=participate, args=(m,), name=f"participant {m.rank}") for m in members]
    for t in threads:
        t.start()
    try:
        for t in threads:
            t.join()
    except BaseException:  # Ctrl-C, say: the threads go on to their next exchange
        for m in members:
            m.leave("was left alone")
        raise
    if errors:
        raise errors[0]
    return results
