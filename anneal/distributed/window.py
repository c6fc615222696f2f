"""Exchanges between the processes of one host through memory that they share, piece by piece."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from anneal.backend import Array, Crew
from anneal.runtime import Arrays, Reduction, reduced

SLOTS = 32  # of each rank: what may be under way at once
_POSTED, _COMBINED, _DONE = 0, 8, 16  # each count in a cache line of its own
_HEAD = 4096  # bytes before the slots: the counts, and what each slot's exchange is
_MARKS = 24  # from this word on

# A generator that combines a rank's share of a piece with other hosts: it runs in steps, until it is exhausted.
Crossing = Callable[[Array, Reduction], Iterator[None]]

# Every rank has as many slots as the others. A piece of an exchange has the same slot at all ranks and goes through it
# in three steps, which each rank counts in memory that the others read:
#
#    posted     my part of the piece is in my slot
#    combined   my share of the piece is summed over all ranks, in the order of their numbers
#    done       I have copied the result, and the slot may be used again
#
# Each rank sums a small piece whole, from the slots: nothing is combined, and a piece that comes alone takes its steps
# without the queues (`post_alone`, `end_alone`).
#
# Nobody waits inside a step: `progress` does what can be done, and is called while kernels run, between them, and by
# who waits. So an exchange goes on without a thread of its own, and sums are the same bits everywhere and each time.


@lru_cache(1 << 10)
def signature(what: str, *kinds: tuple[Any, Any]) -> int:
    """A number that stands for an exchange: equal where ranks make the same one of arrays of the same kinds."""
    said = repr((what, [(shape, str(dtype)) for shape, dtype in kinds])).encode()
    return int.from_bytes(hashlib.blake2b(said, digest_size=7).digest(), "little")


class Results:
    """The arrays that an exchange writes: the given ones (`made`), or new ones from `room`.

    Args:
        room: makes an array of a shape and a dtype; `kinds` has them.
    """

    __slots__ = ("_kinds", "_room", "made")

    def __init__(self, room: Callable[[Any, Any], Array], kinds: Sequence[Any], into: Arrays = ()) -> None:
        self._room, self._kinds, self.made = room, kinds, list(into)

    def arrays(self) -> list[Array]:
        """The arrays, of the shapes and dtypes that were asked for."""
        self.made = self.made or [self._room(*kind) for kind in self._kinds]
        return self.made

    def parts(self, where: Sequence[tuple[int, slice]], ranks: int) -> list[Array]:
        """Parts of the arrays, flat; of a gather's, whose `ranks` are not 0, [ranks, elements]."""
        made = self.arrays()
        shape = (ranks, -1) if ranks else (-1,)
        return [made[n].reshape(shape)[..., part] for n, part in where]


class Piece:
    """A piece of an exchange, which goes through a slot at once: from `sources`, of one dtype, to `results`, which are
    asked for when they are written."""

    __slots__ = ("after", "count", "dtype", "kind", "mark", "number", "op", "results", "slot", "sources")

    def __init__(
        self, kind: str, mark: int, sources: list[Array], results: Callable[[], list[Array]], op: Any = None
    ) -> None:
        self.kind, self.mark, self.sources, self.results, self.op = kind, mark, sources, results, op
        self.count = sum([a.size for a in sources])
        self.dtype = sources[0].dtype if sources else np.dtype(np.uint8)
        self.number = self.slot = self.after = -1  # `after`: the number of the piece that had the slot before


class SharedWindow:
    """The slots of all ranks of one host, and the pieces of exchanges that go through them in their order.

    Args:
        segments: the memory of each rank, bytes; `rank` is this process's number among them.
        sync: makes what other processes have written visible, and what this one has written to them.
        size: the participants of the group, over which means are taken.
        crossing: combines a share with those of other hosts, where there are several.
        threads: the threads that copy and add large arrays together.

    >>> window = SharedWindow([np.zeros(_HEAD + SLOTS * 64, np.uint8)], 0, lambda: None, 1, None)
    >>> out = np.empty(3, np.float32)
    >>> window.add(Piece("reduce", 7, [np.ones(3, np.float32)], lambda: [out], "sum"))
    0
    >>> window.wanted = 1
    >>> window.progress(), window.is_done(0), out.tolist()
    (True, True, [1.0, 1.0, 1.0])
    """

    def __init__(
        self, segments: list[Array], rank: int, sync: Callable[[], None], size: int, crossing: Crossing | None,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.rank, self.size, self._sync, self._crossing = rank, size, sync, crossing
        self.room = (segments[0].size - _HEAD) // SLOTS  # bytes of a slot
        self._heads = [s[:_HEAD].view(np.int64).data for s in segments]
        self._slots = [s[_HEAD:].reshape(SLOTS, self.room) for s in segments]
        self._mine = self._heads[rank]
        self.threads, self._crew = threads, Crew(threads, "anneal-exchange")
        # pieces that take a step before the next step's turn: caches have what one has written
        self._most = 1 if threads < 2 else 4 * threads
        self._added = self._next = 0  # pieces so far, and the slot of the next one
        self._half = 0
        self._users = [-1] * SLOTS  # the last piece of each slot
        self._to_post: deque[Piece] = deque()
        self._to_combine: deque[Piece] = deque()
        self._to_finish: deque[Piece] = deque()
        self._crossings: deque[tuple[Piece, Iterator[None]]] = deque()
        self.differs: Piece | None = None  # a piece that other ranks have as one of another exchange
        self.wanted = 0  # results of pieces below it are waited for; others are written when slots are needed

    def add(self, piece: Piece) -> int:
        """Put a piece behind those that were added before; its number, for `is_done`.

        Where all before it are waited for, slots are taken from the first or the middle one on, in turn: caches have
        them. Ranks start and wait for exchanges in one order, so that a piece has the same slot at all of them.
        """
        if self.wanted == self._added:
            self._half = SLOTS // 2 - self._half
            self._next = self._half
        piece.number, piece.slot, piece.after = self._added, self._next, self._users[self._next]
        self._users[piece.slot] = piece.number
        self._added += 1
        self._next = (self._next + 1) % SLOTS
        self._to_post.append(piece)
        return piece.number

    def post_alone(self, piece: Piece) -> bool:
        """Post a piece of which nothing is combined, if nothing else is under way; its steps are the caller's then."""
        if len(self._to_post) > 1 or self._to_combine or self._to_finish or self._least(_DONE) <= piece.after:
            return False
        self._to_post.clear()
        self._post(piece)
        self._count(_POSTED, piece)
        return True

    def is_posted(self, number: int) -> bool:
        """True if all ranks have posted a piece."""
        return self._least(_POSTED) > number

    def end_alone(self, piece: Piece) -> bool:
        """Write the results of a piece that all have posted; False if it is another exchange's at other ranks."""
        self._sync()
        if not self._same(piece):
            return False
        self._mine[_COMBINED] = piece.number + 1
        self._finish(piece)
        self._count(_DONE, piece)
        return True

    def posts_left(self) -> bool:
        """True while arrays of some piece are still to be read."""
        return bool(self._to_post)

    def is_done(self, number: int) -> bool:
        """True if the results of a piece are there."""
        return self._mine[_DONE] > number

    def progress(self) -> bool:
        """Do what can be done without waiting; True if anything was."""
        self._sync()
        moved = False
        if self._to_post:
            moved = self._step(self._post, _before(self._to_post, self._least(_DONE), self._most, "after"), _POSTED)
        if self._to_combine and self.differs is None:
            moved = self._combine_all(_before(self._to_combine, self._least(_POSTED), self._most)) or moved
        if self._crossings:
            moved = self._cross() or moved
        if self._to_finish:
            number = self._least(_COMBINED)
            number = number if self._to_post else min(number, self.wanted)
            moved = self._step(self._finish, _before(self._to_finish, number, self._most), _DONE) or moved
        return moved

    def _step(self, step: Callable[[Piece], None], pieces: Sequence[Piece], count: int) -> bool:
        """Take a step for some pieces, and count them; True if there are any."""
        self._crew.each(step, pieces)
        for piece in pieces:
            self._count(count, piece)
            if count != _DONE:
                (self._to_combine if count == _POSTED else self._to_finish).append(piece)
        return bool(pieces)

    def _combine_all(self, pieces: Sequence[Piece]) -> bool:
        """Combine this rank's shares of pieces, those before the first that other ranks have as another exchange's."""
        for n, piece in enumerate(pieces):
            if not self._same(piece):
                self.differs, pieces = piece, pieces[:n]
                break
        if self._crossing is None:
            return self._step(self._combine, pieces, _COMBINED)
        self._crew.each(self._combine, pieces)
        self._crossings += [(piece, self._to_other_hosts(piece)) for piece in pieces]
        return bool(pieces)

    def _least(self, count: int) -> int:
        """The number that every rank has counted to."""
        return min([head[count] for head in self._heads])

    def _count(self, count: int, piece: Piece) -> None:
        self._sync()
        self._mine[count] = piece.number + 1

    def _post(self, piece: Piece) -> None:
        slot = piece.slot
        begin = 0
        if piece.kind != "broadcast" or piece.op == self.rank:
            for a in piece.sources:
                self._slots[self.rank][slot, begin : begin + a.nbytes] = a.view(np.uint8)
                begin += a.nbytes
        piece.sources = []
        self._mine[_MARKS + slot] = piece.mark

    def _same(self, piece: Piece) -> bool:
        """True if all ranks have a piece as one of the same exchange."""
        place = _MARKS + piece.slot
        return [head[place] for head in self._heads].count(piece.mark) == len(self._heads)

    def _combine(self, piece: Piece) -> None:
        if piece.kind == "reduce" and piece.count:
            parts = self._shares(piece)
            alone = self._crossing is None
            self._sum(parts, "sum" if piece.op == "mean" and not alone else piece.op, parts[0])
        elif piece.kind == "scatter":
            self._sum(self._shares(piece), piece.op, *piece.results())

    def _shares(self, piece: Piece) -> list[Array]:
        """This rank's share of what each rank posted of a piece."""
        dtype, count, ranks = piece.dtype, piece.count, len(self._heads)
        share = slice(self.rank * count // ranks, (self.rank + 1) * count // ranks)
        return [s[piece.slot, : count * dtype.itemsize].view(dtype)[share] for s in self._slots]

    def _to_other_hosts(self, piece: Piece) -> Iterator[None]:
        """The steps by which a share that is combined here is combined with those of other hosts."""
        if self._crossing is None or piece.kind != "reduce" or not piece.count:
            return iter(())
        return self._crossing(self._shares(piece)[0], piece.op)

    def _sum(self, parts: Arrays, op: Reduction, out: Array) -> None:
        """Reduce parts in the order of the ranks into `out`, which may be the first of them."""
        wide = out.dtype.itemsize > 2 or out.dtype.kind in "iub"
        if len(parts) == 1 or not wide:
            out[...] = reduced(parts, op, self.size)
            return
        combine = np.maximum if op == "max" else np.add
        if op != "mean" and len(parts) == 2:
            combine(parts[0], parts[1], out=out)
            return
        total = combine(parts[0], parts[1])  # memory that a device reads is slow to read here
        for a in parts[2:]:
            combine(total, a, out=total)
        if op == "mean":
            np.divide(total, total.dtype.type(self.size), out=out)
        else:
            out[...] = total

    def _cross(self) -> bool:
        """Let the exchanges with other hosts go on; True if one has come to its end."""
        for _, crossing in list(self._crossings):
            next(crossing, None)
        moved = False
        while self._crossings and next(self._crossings[0][1], self) is self:
            piece, _ = self._crossings.popleft()
            self._count(_COMBINED, piece)
            self._to_finish.append(piece)
            moved = True
        return moved

    def _finish(self, piece: Piece) -> None:
        kind, begin = piece.kind, 0
        if kind == "part":
            self._sum(self._shares(piece), piece.op, *piece.results())
        if kind in ("part", "scatter"):
            return
        for a in piece.results():
            end = begin + (a[0] if kind == "gather" else a).nbytes
            parts = [s[piece.slot, begin:end].view(a.dtype) for s in self._slots]
            if kind == "gather":  # [rank, elements]
                for r, part in enumerate(parts):
                    a[r] = part
            elif kind == "total":
                self._sum(parts, piece.op, a)
            else:
                a[...] = parts[piece.op if kind == "broadcast" else 0]
            begin = end


def _before(pieces: deque[Piece], number: int, most: int, of: str = "number") -> list[Piece]:
    """Take up to `most` pieces, whose numbers, or those of the ones before in their slots, are below one, off the
    front."""
    found: list[Piece] = []
    while pieces and getattr(pieces[0], of) < number and len(found) < most:
        found.append(pieces.popleft())
    return found


def pieces_of(arrays: Arrays, room: int) -> Iterator[list[tuple[int, slice]]]:
    """Parts of flat arrays that fill `room` bytes together, as numbers of arrays and slices: each of one dtype."""
    part: list[tuple[int, slice]] = []
    left = room
    for n, a in enumerate(arrays):
        begin = 0
        if part and arrays[part[-1][0]].dtype != a.dtype:
            yield part
            part, left = [], room
        while begin < a.size:
            count = min(a.size - begin, left // a.itemsize)
            if count:
                part.append((n, slice(begin, begin + count)))
                left -= count * a.itemsize
                begin += count
            if begin < a.size:
                yield part
                part, left = [], room
    if part:
        yield part
