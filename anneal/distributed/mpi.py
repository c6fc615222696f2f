"""A group of processes that MPI has started. On one host values go through shared memory, between hosts by MPI."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from anneal.backend import Array
from anneal.distributed.window import SLOTS, Piece, Results, SharedWindow, pieces_of, signature
from anneal.errors import GroupError
from anneal.runtime import Arrays, Group, Reduction, Wait, reduced
from anneal.uop import Recent, references

_SLOT = 1 << 20  # bytes of a slot: a rank's part of it stays in the caches of a core
_SLOT_BETWEEN_HOSTS = 1 << 22  # large enough for what each host sends another
_HEAD = 4096
_SMALL = 1 << 15  # bytes up to which arrays that are only moved go through slots
_KEPT = 1 << 16  # bytes of a result from which on its memory is kept for the next one
_UNUSED = 2  # references of an array that only a list has: that, and the argument of `references`
_THREADS = 8  # that copy and add, of each rank at most
_POLLS = 200  # without a pause: an exchange of a few microseconds is worth them
_POLLS_OF_MPI = 5000
_PAUSES = (2e-5, 1e-3)  # seconds, the first and the longest
_OF_THE_WAIT = 1 / 16  # a pause: who has waited for long may come a little later than the others
_ODD = 0x9E3779B97F4A7C15  # exchanges of one kind have marks that differ by it

Facts = Callable[[], dict[str, str]]


class MPIGroup(Group):
    """This process's view of the processes of an MPI communicator. Made by `anneal.distributed.init`.

    Sums are made in the order of the ranks (on several hosts: within each host, then over hosts), so that they are the
    same bits for every rank and in every run; MPI itself promises neither. Nothing here starts a thread: what is under
    way goes on when the process starts another exchange, waits for one, or calls `progress`.

    Args:
        comm: the communicator, of mpi4py. timeout: seconds that an exchange waits for the others.
        facts: tells what must be the same at all ranks, by its name; the first exchange compares it.
        ranks_per_host: takes so many neighbours for the ranks of one host, where some hosts have more.
    """

    copies = True

    def __init__(
        self, comm: Any, timeout: float = 600.0, facts: Facts = dict, ranks_per_host: int | None = None
    ) -> None:
        from mpi4py import MPI

        self._mpi, self._comm = MPI, comm.Dup()
        self.coming, self.made = deque(), Recent(256)
        self.rank, self.size, self.timeout = comm.rank, comm.size, timeout
        self._facts = facts
        self.held = ExitStack()  # what holds for as long as the group lives
        self._local = self._comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        if ranks_per_host is not None:
            self._local = self._local.Split(self.rank // ranks_per_host, self.rank)
        counts = self._comm.allgather(self._local.size)
        if len(set(counts)) > 1:  # hosts with other numbers of ranks: each rank sends for itself
            self._local = self._comm.Split(self.rank, 0)
        self.local_rank, self.local_size = self._local.rank, self._local.size
        across = self._comm.Split(self.local_rank, self.rank)
        self.hosts = across.size
        places = self._comm.allgather((across.rank, self.local_rank))
        ordered = sorted(range(self.size), key=places.__getitem__)
        self._hosts = [ordered[n : n + self.local_size] for n in range(0, self.size, self.local_size)]
        self._across = (across, across.Dup())  # for either half of a sum
        self._crossed = self._returned = 0  # pieces that have begun either half
        cores = set[int]().union(*self._local.allgather(_cores()))
        self._crowded = self.local_size > len(cores)  # then whoever waits leaves its core to others
        room = self._local.bcast(_slot(_SLOT if self.hosts == 1 else _SLOT_BETWEEN_HOSTS, self.local_size))
        self._memory = MPI.Win.Allocate_shared(_HEAD + SLOTS * room, 1, comm=self._local)
        self._memory.Lock_all()
        segments = [np.asarray(self._memory.Shared_query(r)[0]).view(np.uint8) for r in range(self.local_size)]
        segments[self.local_rank][:] = 0  # touched here: by the core that uses it
        self._local.Barrier()
        threads = min(_THREADS, len(cores) // self.local_size)
        crossing = None if self.hosts == 1 else self._between_hosts
        self._window = SharedWindow(segments, self.local_rank, self._memory.Sync, self.size, crossing, threads)
        self._results: dict[tuple[Any, ...], list[Array]] = {}  # by shape and dtype
        self._last: Any = ("",)  # the exchange that was made last
        self.waited = 0.0  # seconds
        self.sent = 0  # bytes that this rank sent
        self.exchanges = 0
        self._ended = False
        self._excepthook, sys.excepthook = sys.excepthook, self._on_error
        atexit.register(self.leave)

    def share_cores(self) -> None:
        """Take this rank's part of the cores, where the ranks of a host may use the same ones."""
        cores = _cores()
        if hasattr(os, "sched_setaffinity") and self._local.allgather(cores).count(cores) == self.local_size > 1:
            ordered = sorted(cores)
            begin = self.local_rank * len(ordered) // self.local_size
            end = max(begin + 1, (self.local_rank + 1) * len(ordered) // self.local_size)
            os.sched_setaffinity(0, ordered[begin:end])

    # -- exchanges

    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        made = self.begin_all_gather(arrays, (), True, what)()
        return [[a[r] for a in made] for r in range(self.size)]

    def begin_all_reduce(
        self, arrays: Arrays, op: Reduction, into: Arrays = (), now: bool = False, what: str = ""
    ) -> Wait:
        """Start `all_reduce` of `arrays` by `op`; `into` may take the results. `what` is its name, and `now` says that
        it is waited for at once."""
        results = Results(self._room, [(a.shape, a.dtype) for a in arrays], into)
        # two ranks with threads read each other's part whole: one step less to wait for
        whole = self._is_small(arrays) or (self.hosts == 1 and self.size == 2 and self._window.threads > 1)
        kind = "total" if whole else "reduce"
        return self._begun(kind, what or f"all_reduce ({op})", arrays, results, op, now)

    def begin_all_gather(self, arrays: Arrays, into: Arrays = (), now: bool = False, what: str = "all_gather") -> Wait:
        """Start `all_gather` of `arrays`; `into` may take the results. `what` is its name, and `now` says that it is
        waited for at once."""
        if self._is_small(arrays) or not (now or self.hosts > 1):
            results = Results(self._room, [((self.size, *a.shape), a.dtype) for a in arrays], into)
            return self._begun("gather", what, arrays, results, None, now)
        made = list(into) or [self._room((self.size, *a.shape), a.dtype) for a in arrays]
        self._meet(what, arrays)
        if now:  # nobody computes meanwhile, and MPI copies large arrays from one process to another at once
            for a, out in zip(arrays, made, strict=True):
                self._comm.Allgather(_bytes(a), _bytes(out))
            return lambda into=(): made
        pairs = zip(arrays, made, strict=True)
        requests = [self._comm.Iallgather(_bytes(a.copy()), _bytes(out)) for a, out in pairs]

        def finish(into: Arrays = ()) -> list[Array]:
            self._until(lambda: self._mpi.Request.Testall(requests), what, _POLLS_OF_MPI)
            return made

        return finish

    def begin_reduce_scatter(self, arrays: Arrays, op: Reduction, into: Arrays = (), now: bool = False) -> Wait:
        what = f"reduce_scatter ({op})"
        kinds = [((len(a) // self.size, *a.shape[1:]), a.dtype) for a in arrays]
        target = Results(self._room, kinds, into)
        results = target.arrays()
        if self.hosts > 1:
            self._agree(what, arrays)
            for a, out in zip(arrays, results, strict=True):
                given = np.empty((self.size, *out.shape), a.dtype)
                self._until(self._comm.Ialltoall(_bytes(a), _bytes(given)).Test, what)
                hosts = [
                    reduced([given[r] for r in ranks], "max" if op == "max" else "sum", 1) for ranks in self._hosts
                ]
                out[...] = reduced(hosts, op, self.size)  # in the order of `all_reduce`
            return lambda into=(): results
        mark, last = self._mark(what, arrays), -1
        if now and len(arrays) == 1 and arrays[0].size and self._is_small(arrays):
            self._alone(Piece("part", mark, [_flat(arrays[0])], partial(list, [_flat(results[0])]), op), what)
            return lambda into=(): results
        for a, out in zip(arrays, results, strict=True):
            shards, flat = _flat(a).reshape(self.size, -1), _flat(out)
            step = max(1, self._window.room // self.size // a.itemsize)
            for begin in range(0, flat.size, step):
                part = [_flat(s[begin : begin + step]) for s in shards]
                last = self._add(Piece("scatter", mark, part, partial(list, [flat[begin : begin + step]]), op))
        return self._waiting(what, last, target)

    def broadcast(self, arrays: Arrays, root: int, into: Arrays = ()) -> list[Array]:
        what, results = f"broadcast from {root}", Results(self._room, [(a.shape, a.dtype) for a in arrays], into)
        if self._is_small(arrays):
            return list(self._begun("broadcast", what, arrays, results, root, now=True)())
        self._meet(what, arrays)
        mine = self.rank == root
        requests = [self._comm.Ibcast(_bytes(a), root) for a in (arrays if mine else results.arrays())]
        if mine:
            for a, out in zip(arrays, into, strict=False):  # copy while the others receive
                out[...] = a
        self._mpi.Request.Waitall(requests)  # all have come
        return list(into or arrays) if mine else results.made

    def reduce(self, arrays: Arrays, root: int) -> list[Array]:
        made = self.begin_all_reduce(arrays, "sum", (), True, f"reduce to {root}")()
        return list(made) if self.rank == root else [np.zeros_like(a) for a in arrays]

    def send(self, array: Array, to: int) -> None:
        self.sent += array.nbytes
        self._until(self._comm.Isend(_bytes(array), to, _tag(array)).Test, f"send to {to}", _POLLS_OF_MPI)

    def receive(self, like: Array, source: int, into: Arrays = ()) -> Array:
        (out,) = into or [self._room(like.shape, like.dtype)]
        status = self._mpi.Status()
        what = f"recv from {source}"
        self._until(lambda: self._comm.Iprobe(source, self._mpi.ANY_TAG, status), what, _POLLS_OF_MPI)
        count = status.Get_count(self._mpi.BYTE)
        if count != out.nbytes or status.Get_tag() != _tag(out):
            raise GroupError(
                f"{what}: participant {source} sends {count} bytes of another dtype or shape than {out.dtype} "
                f"{out.shape}, {out.nbytes} bytes, which participant {self.rank} expects"
            )
        self._comm.Recv(_bytes(out), source, _tag(out))  # the probe above has found the message
        return out

    def barrier(self) -> None:
        self.begin_coming()
        self._meet("barrier", [])

    def progress(self) -> None:
        """Let exchanges that are under way go on, without waiting."""
        while self._window.progress():
            pass
        if self._window.differs is not None:
            self._say_difference()

    def leave(self) -> None:
        """Wait for the others to end as well; a participant that starts another exchange meanwhile gets an error."""
        if self._ended:
            return
        self.timeout = math.inf  # one may have more to do at the end than the others
        try:
            self._meet("the end", [])
            self._ended = True
            sys.excepthook = self._excepthook
        except GroupError as e:
            self._abort(e)

    # -- how they are made

    def _is_small(self, arrays: Arrays) -> bool:
        """True for what goes through a slot, and is neither parted nor given to MPI."""
        return self.hosts == 1 and sum([a.nbytes for a in arrays]) <= min(_SMALL, self._window.room)

    def _meet(self, what: str, arrays: Arrays) -> None:
        """Wait until all ranks make this exchange."""
        self.sent += sum([a.nbytes for a in arrays])
        if self.hosts > 1:
            self._agree(what, arrays)
            return
        self._alone(Piece("mark", self._mark(what, arrays), [], list), what)

    def _begun(self, kind: str, what: str, arrays: Arrays, results: Results, op: Any = None, now: bool = False) -> Wait:
        """Start an exchange of one host's ranks; what is returned waits for its `results`, `now` or later."""
        if self.hosts > 1:
            self._agree(what, arrays)
        mark, last = self._mark(what, arrays), -1
        ranks = self.size if kind == "gather" else 0
        if now and kind != "reduce" and len(arrays) == 1 and arrays[0].size and self._is_small(arrays):
            to = partial(results.parts, [(0, slice(None))], ranks)
            self._alone(Piece(kind, mark, [_flat(arrays[0])], to, op), what)
            return lambda into=(): results.made
        sources = [_flat(a) for a in arrays]
        for part in list(pieces_of(sources, self._window.room)) or [[]]:
            to = partial(results.parts, part, ranks)
            last = self._add(Piece(kind, mark, [sources[n][where] for n, where in part], to, op))
        self._window.progress()
        return self._waiting(what, last, results)

    def _alone(self, piece: Piece, what: str) -> None:
        """Make an exchange of one piece, of which nothing is combined: its results are there when this returns."""
        window, number = self._window, self._add(piece)
        window.wanted = number + 1
        if not window.post_alone(piece):
            self._until(lambda: window.is_done(number), what)
            return
        self._until(lambda: window.is_posted(number), what)
        if not window.end_alone(piece):
            self._say_difference()

    def _waiting(self, what: str, last: int, results: Results) -> Wait:
        window = self._window
        self._until(lambda: not window.posts_left(), what)  # the arrays may be written anew once this returns

        def finish(into: Arrays = ()) -> list[Array]:
            results.made = results.made or list(into)
            window.wanted = max(window.wanted, last + 1)
            window.progress()
            self._until(lambda: window.is_done(last), what)
            return results.arrays()

        return finish

    def _room(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array to write: one that was given before where nobody has it any more, since its pages are there."""
        alike = self._results.setdefault((shape, dtype), [])
        for n in range(len(alike)):
            if references(alike[n]) == _UNUSED:
                return alike[n]
        made = np.empty(shape, dtype)
        if made.nbytes >= _KEPT and len(alike) < 8:
            alike.append(made)
        return made

    def _add(self, piece: Piece) -> int:
        self.sent += sum([a.nbytes for a in piece.sources])
        return self._window.add(piece)

    def _mark(self, what: str, arrays: Arrays) -> int:
        """The number that stands for an exchange. The first one's has in it what must be the same at all ranks."""
        self._last = kind = what, *[(a.shape, a.dtype) for a in arrays]
        self.exchanges += 1
        if self.exchanges == 1:
            return signature(f"{what} {sorted(self._facts().items())!r}", *kind[1:])
        return (signature(*kind) + self.exchanges * _ODD) >> 1 & sys.maxsize

    def _until(self, done: Callable[[], Any], what: str, most: int = _POLLS) -> None:
        """Let exchanges go on until `done` says so, after `most` looks with pauses. Raises GroupError where ranks
        differ, or one does not come."""
        if done():
            return
        begun = time.perf_counter()
        polls, pause = 0, _PAUSES[0]
        while not done():
            if self._window.progress():
                polls, pause = 0, _PAUSES[0]
                continue
            if self._window.differs is not None:
                self._say_difference()
            polls += 1
            if self._crowded and polls <= most:
                os.sched_yield()
            elif polls > most:
                time.sleep(pause)
                since = time.perf_counter() - begun
                pause = min(max(_PAUSES[0], since * _OF_THE_WAIT), _PAUSES[1])
                if since > self.timeout:
                    raise GroupError(
                        f"{what}: participant {self.rank} of {self.size} waited {self.timeout:g} s, and others did "
                        "not come"
                    )
        self.waited += time.perf_counter() - begun

    def _agree(self, what: str, arrays: Arrays) -> None:
        """Between hosts: see that all ranks make the same exchange. Raises GroupError where they do not."""
        mine = np.array([self._mark(what, arrays)])
        self.exchanges -= 1
        marks = np.empty(self.size, mine.dtype)
        self._until(self._comm.Iallgather(_bytes(mine), _bytes(marks)).Test, what)
        if (marks != mine[0]).any():
            self._tell(self._comm)

    def _say_difference(self) -> None:
        self._tell(self._local)

    def _tell(self, comm: Any) -> None:
        """Raise GroupError with what differs between this rank and another; all ranks of `comm` come here."""
        given = comm.allgather((self.rank, _in_words(*self._last), self._facts() if self.exchanges <= 1 else {}))
        rank, last, facts = given[0]
        for other, theirs, its in given[1:]:
            for name in facts:
                if facts[name] != its.get(name):
                    raise GroupError(
                        f"{name} is {facts[name]} for participant {rank}, and {its.get(name)} for participant {other}: "
                        "all ranks run the same program with the same settings"
                    )
            if theirs == last:
                continue
            if "the end of" in theirs + last:
                gone, (there, what) = (other, (rank, last)) if "the end of" in theirs else (rank, (other, theirs))
                raise GroupError(f"participant {gone} has ended, and participant {there} makes {what}")
            raise GroupError(f"participant {rank} makes {last}, and participant {other} makes {theirs}")
        raise GroupError(f"participants make other exchanges than each other: {last}")

    def _between_hosts(self, share: Array, op: Reduction) -> Iterator[None]:
        """Reduce this rank's share of a piece with the ranks of the same place at other hosts, in the hosts' order."""
        first, second = self._across
        number = self._crossed
        self._crossed += 1
        bounds = [h * share.size // self.hosts for h in range(self.hosts + 1)]
        counts = [(b - a) * share.itemsize for a, b in zip(bounds, bounds[1:], strict=False)]
        begins = [b * share.itemsize for b in bounds[:-1]]
        me = first.rank
        mine = share[bounds[me] : bounds[me + 1]]
        given = np.empty((self.hosts, mine.size), share.dtype)
        whole = [share.view(np.uint8), counts, begins, self._mpi.BYTE]
        request = first.Ialltoallv(whole, [_bytes(given), [mine.nbytes] * self.hosts, None, self._mpi.BYTE])
        while not request.Test():
            yield
        out = reduced(list(given), op, self.size)
        while self._returned != number:  # MPI takes them in one order at all ranks
            yield
        self._returned += 1
        request = second.Iallgatherv([_bytes(out), out.nbytes, self._mpi.BYTE], whole)
        while not request.Test():
            yield

    # -- errors

    def _on_error(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """An error that nobody caught ends all ranks, with its message."""
        self._abort(error)

    def _abort(self, error: BaseException) -> None:
        print(f"anneal: rank {self.rank} of {self.size} ended with an error:", file=sys.stderr)
        traceback.print_exception(error)
        self.abort()

    def abort(self, code: int = 1) -> None:
        """End all ranks now, with an exit `code`."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._ended = True
        self._comm.Abort(code)

    def __repr__(self) -> str:
        return f"MPIGroup({self.rank} of {self.size})"


def _in_words(what: str, *kinds: tuple[Any, Any]) -> str:
    """An exchange of arrays of these shapes and dtypes, in words."""
    said = ", ".join([f"{dtype}{list(shape)}" for shape, dtype in kinds[:8]])
    return f"{what} of {said}" + (f" and {len(kinds) - 8} more" if len(kinds) > 8 else "")


def _slot(nbytes: int, ranks: int) -> int:
    """The bytes of a slot: fewer where the memory that processes share has no room (containers have 64 MB of it)."""
    where = "/dev/shm"
    if os.path.isdir(where):
        free = os.statvfs(where)
        while nbytes > 1 << 14 and 2 * SLOTS * nbytes * ranks > free.f_bavail * free.f_frsize:
            nbytes //= 2
    return nbytes


def _cores() -> set[int]:
    """The cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _flat(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(-1)


def _bytes(a: Array) -> Any:
    return _flat(a).view(np.uint8)


def _tag(a: Array) -> int:
    """The tag of a message: of arrays of one dtype and shape it is the same."""
    return signature("message", (a.shape, a.dtype)) % 32749
