"""Memory planning: the order of calls, and temporaries whose lives do not overlap in one piece of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from anneal.schedule.records import Call, Value
from anneal.uop import DType, dtypes

Memory = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, DType], ...]]

# Where temporaries take up to this many bytes, the order that leaves most to run side by side is taken; above it, the
# one that needs least memory: then the values are large, and so is the work on each.
_SMALL_PROGRAM = 256 << 20
# The same where calls run one at a time, and lose nothing but values in a processor's cache.
_SMALL_IN_TURN = 32 << 20
# Writing memory that was used before makes a GPU wait: small values get pieces of their own.
_WORTH_SHARING = 1 << 20
# The work on a value of this size fills a GPU alone: its memory may go to another call of the level.
_LARGE = 16 << 20
# A device that runs calls one at a time takes the order that saves memory if its peak is below this part of the other.
_WORTH_WAITING = 0.75
# A call that lets go of so many bytes more than it asks for is taken as soon as it can run.
_WORTH_FREEING = 1 << 20


def nbytes(value: Value) -> int:
    """The bytes of a value on any device: a GPU keeps bools as words."""
    return -(-value.size * value.dtype.device_itemsize // 4) * 4


def arrange(
    values: Sequence[Value], calls: Sequence[Call], concurrent: bool, overwrites: Mapping[int, int] | None = None
) -> tuple[list[Call], Memory]:
    """Calls in the order to run them, and the memory of temporaries: (value, piece) pairs and each piece's size and
    dtype.

    `overwrites` names outputs that take the memory of an input; `calls` have them behind that input's other readers. A
    concurrent device gets independent calls next to each other, and pieces of bytes for values of any size.
    """
    if not concurrent:
        ordered = _in_turn(values, calls, overwrites or {})
        return ordered, _same_size(values, ordered)
    p = _Program(values, calls, overwrites or {})
    early = _early_levels(p.ahead)
    late = sorted(range(len(calls)), key=_late_levels(p.ahead, early).__getitem__)
    order: Sequence[int] = late
    memory = p.pieces(late)
    if _bytes(memory) > _SMALL_PROGRAM:
        order, memory = _least(p, late, sorted(range(len(calls)), key=early.__getitem__))
    return [calls[n] for n in order], memory


def _least(p: _Program, late: list[int], by_level: list[int]) -> tuple[Sequence[int], Memory]:
    """The order with the least bytes times runs: a tenth less memory is worth a tenth more waits between calls. What
    is alive at once stays within a hundredth of the least of the orders that have most to run side by side."""
    wide = [late, by_level, list(range(len(late)))]
    most = 1.01 * min([p.peak(o) for o in wide])
    orders = {tuple(o) for o in [*wide, *[p.delayed(o) for o in (*wide, p.frugal(by_level), p.frugal(late))]]}
    ways = [(p.runs(o) * _bytes(m), o, m) for o in orders if p.peak(o) <= most for m in [p.pieces(o)]]
    return min(ways)[1:]


def _bytes(memory: Memory) -> int:
    """The bytes of all pieces together."""
    return sum(size for size, _ in memory[1])


def _in_turn(values: Sequence[Value], calls: Sequence[Call], overwrites: Mapping[int, int]) -> list[Call]:
    """The calls of a device that runs one at a time: as they come, unless another order needs much less memory."""
    p = _Program(values, calls, overwrites)
    as_it_is = list(range(len(calls)))
    peak = p.peak(as_it_is)
    frugal = p.frugal(as_it_is) if peak > _SMALL_IN_TURN else as_it_is
    return [calls[n] for n in (frugal if p.peak(frugal) < _WORTH_WAITING * peak else as_it_is)]


class _Program:
    """Calls by number, in any order that their dependencies allow, and what each touches of the temporaries."""

    def __init__(self, values: Sequence[Value], calls: Sequence[Call], overwrites: Mapping[int, int]) -> None:
        self.ahead = _dependencies(calls, overwrites)
        self.size = {v: nbytes(values[v]) for c in calls for v in c.args if values[v].kind == "temp"}
        self.touched = [[v for v in dict.fromkeys(c.args) if v in self.size] for c in calls]

    def lives(self, order: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """The places in `order` of the first and of the last call that touches each temporary."""
        first: dict[int, int] = {}
        last = {}
        for at, n in enumerate(order):
            for v in self.touched[n]:
                first.setdefault(v, at)
                last[v] = at
        return first, last

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes of temporaries that are alive at once."""
        first, last = self.lives(order)
        change = [0] * (len(order) + 1)
        for v, at in first.items():
            change[at] += self.size[v]
            change[last[v] + 1] -= self.size[v]
        return max(accumulate(change))

    def frugal(self, base: Sequence[int]) -> list[int]:
        """The order `base`, but what lets go of memory comes as soon as all it reads is there.

        A weight's gradient then stands behind the other readers of what it is made of, and not among all the others at
        the end, for which activations and their gradients would have to stay.
        """
        behind: list[list[int]] = [[] for _ in base]
        missing = [len(needs) for needs in self.ahead]
        for n, needs in enumerate(self.ahead):
            for x in needs:
                behind[x].append(n)
        uses = dict.fromkeys(self.size, 0)
        for touched in self.touched:
            for v in touched:
                uses[v] += 1
        born = set()
        ready = {n for n, count in enumerate(missing) if not count}
        rank = {n: at for at, n in enumerate(base)}
        order = []
        gains: dict[int, int] = {}  # of calls that are ready, where nothing they touch has changed since
        while ready:
            best, most = -1, _WORTH_FREEING
            for n in ready:
                gain = gains.get(n)
                if gain is None:
                    gain = sum([self.size[v] * ((uses[v] == 1) - (v not in born)) for v in self.touched[n]])
                    gains[n] = gain
                if gain > most or (gain == most and best >= 0 and rank[n] < rank[best]):
                    best, most = n, gain
            if best < 0:
                best = min(ready, key=rank.__getitem__)
            ready.remove(best)
            order.append(best)
            changed = set()
            for v in self.touched[best]:
                uses[v] -= 1
                born.add(v)
                if uses[v] == 1:
                    changed.add(v)
            for n in behind[best]:
                missing[n] -= 1
                if not missing[n]:
                    ready.add(n)
            if changed:
                for n in ready:
                    if not changed.isdisjoint(self.touched[n]):
                        gains.pop(n, None)
        return order

    def delayed(self, order: Sequence[int]) -> list[int]:
        """The order with calls that ask for more memory than they let go of right before what needs them, where nothing
        large stays longer for it."""
        _, last = self.lives(order)
        at = {n: place for place, n in enumerate(order)}
        wanted = dict.fromkeys(order, len(order))  # the place of the first call that needs it, as that is delayed
        key = {}
        born = set[int]()
        new = {}
        for n in order:
            fresh = [v for v in self.touched[n] if v not in born]
            born.update(fresh)
            new[n] = sum(self.size[v] for v in fresh) >= _WORTH_FREEING
        for n in reversed(order):
            place = at[n]
            if new[n] and wanted[n] < len(order):
                stays = all(last[v] >= wanted[n] for v in self.touched[n] if self.size[v] >= _WORTH_FREEING)
                if stays:
                    place = wanted[n]
            key[n] = (place, place == at[n], at[n])
            for x in self.ahead[n]:
                wanted[x] = min(wanted[x], place)
        return sorted(order, key=key.__getitem__)

    def pieces(self, order: Sequence[int]) -> Memory:
        """The largest values first, each in the tightest piece that is free for its whole life.

        A value lives from its first writer to its last reader, and unless it is large, from the begin to the end of
        their runs: calls of one run stay independent.
        """
        first, last = self.lives(order)
        begin, end = self._runs(order)
        sizes: list[int] = []
        taken: list[int] = []  # of each piece: the calls it is taken at, as bits
        place = {}
        for v in sorted(first, key=lambda v: -self.size[v]):
            size = self.size[v]
            born, died = first[v], last[v]
            if size < _LARGE:
                born, died = begin[born], end[died]
            life = (2 << died) - (1 << born)
            # pieces come in falling sizes: the last that fits is the tightest
            piece = len(sizes) - 1 if size >= _WORTH_SHARING else -1
            while piece >= 0 and taken[piece] & life:
                piece -= 1
            if piece < 0:
                piece = len(sizes)
                sizes.append(size)
                taken.append(0)
            taken[piece] |= life
            place[v] = piece
        return tuple(sorted(place.items())), tuple([(size, dtypes.uint8) for size in sizes])

    def runs(self, order: Sequence[int]) -> int:
        """The number of runs: after each but the last, a device waits."""
        return len(set(self._runs(order)[0]))

    def _runs(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """The first and the last place of the run around each place in `order`: a run is calls in a row that need not
        each other.
        """
        where = [0] * len(order)
        begins: list[int] = []
        for at, n in enumerate(order):
            where[n] = at
            begin = begins[-1] if begins else 0
            begins.append(at if any(where[x] >= begin for x in self.ahead[n]) else begin)
        ends = list(range(len(order)))
        for at in reversed(range(len(order) - 1)):
            if begins[at] == begins[at + 1]:
                ends[at] = ends[at + 1]
        return begins, ends


def uses(calls: Sequence[Call]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """The numbers of the calls that write each value, and of those that read it."""
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    for n, c in enumerate(calls):
        for v in c.args[: c.outputs]:
            writers.setdefault(v, []).append(n)
        for v in c.args[c.outputs :]:
            readers.setdefault(v, []).append(n)
    return writers, readers


def _dependencies(calls: Sequence[Call], overwrites: Mapping[int, int]) -> list[set[int]]:
    """The calls that must come before each call."""
    writers, readers = uses(calls)
    ahead = []
    for n, c in enumerate(calls):
        needs = {w for v in c.args[c.outputs :] for w in writers.get(v, ())}
        needs.update(r for v in c.args[: c.outputs] if v in overwrites for r in readers.get(overwrites[v], ()))
        needs.update(w for v in c.args[: c.outputs] for w in writers[v] if w < n)
        needs.discard(n)
        ahead.append(needs)
    return ahead


def _early_levels(ahead: Sequence[set[int]]) -> list[int]:
    """A level for each call, right above the calls ahead of it."""
    levels: list[int] = []
    for needs in ahead:
        levels.append(max([levels[x] + 1 for x in needs], default=0))
    return levels


def _late_levels(ahead: Sequence[set[int]], early: Sequence[int]) -> list[int]:
    """A level for each call, as high as the calls behind it let it be.

    The long chain of a program sets the pace; what only has to be done by the end (weight gradients and updates)
    gathers there, where it fills the device together.
    """
    levels = [max(early, default=0)] * len(ahead)
    for n in reversed(range(len(ahead))):
        for x in ahead[n]:
            levels[x] = min(levels[x], levels[n] - 1)
    return levels


def peak_bytes(values: Sequence[Value], calls: Sequence[Call]) -> int:
    """The most bytes of temporaries that are alive at once."""
    return _Program(values, calls, {}).peak(range(len(calls)))


def _same_size(values: Sequence[Value], calls: Sequence[Call]) -> Memory:
    """A piece is handed on only to a value of the same size and dtype, after the call that read it last."""
    last = {v: n for n, c in enumerate(calls) for v in c.args}
    free: dict[tuple[int, DType], list[int]] = {}
    pieces: list[tuple[int, DType]] = []
    place = {}
    for n, c in enumerate(calls):
        for v in c.args[: c.outputs]:
            if values[v].kind != "temp" or v in place:
                continue
            key = (values[v].size, values[v].dtype)
            if spare := free.get(key):
                place[v] = spare.pop()
            else:
                place[v] = len(pieces)
                pieces.append(key)
        for v in dict.fromkeys(c.args):
            if v in place and last[v] == n:
                free.setdefault((values[v].size, values[v].dtype), []).append(place[v])
    return tuple(place.items()), tuple(pieces)
