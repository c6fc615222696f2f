"""Memory planning: the order of calls, and temporaries whose lives do not overlap in one piece of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anneal.uop import DType, dtypes

if TYPE_CHECKING:
    from anneal.schedule.plan import Call, Value

__all__ = ["arrange", "nbytes", "peak_bytes", "uses"]

Memory = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, DType], ...]]

# Up to this many bytes of temporaries the order that leaves most to run side by side is taken; above it, the one that
# needs least memory: then the values are large, and so is the work on each.
_SMALL_PROGRAM = 256 << 20
# Writing memory that was used before makes a GPU wait: small values get pieces of their own.
_WORTH_SHARING = 1 << 20
# The work on a value of this size fills a GPU alone: its memory may go to another call of the level.
_LARGE = 16 << 20


def nbytes(value: Value) -> int:
    """The bytes of a value on any device: a GPU keeps bools as words."""
    return -(-value.size * (4 if value.dtype.kind == "bool" else value.dtype.itemsize) // 4) * 4


def arrange(
    values: Sequence[Value], calls: Sequence[Call], concurrent: bool, overwrites: Mapping[int, int] | None = None
) -> tuple[list[Call], Memory]:
    """Calls in the order to run them, and the memory of temporaries: (value, piece) pairs and each piece's size and dtype.

    `overwrites` names outputs that take the memory of an input; `calls` have them behind that input's other readers. A
    concurrent device gets independent calls next to each other, and pieces of bytes for values of any size.
    """
    if not concurrent:
        return list(calls), _same_size(values, calls)
    ahead = _dependencies(calls, overwrites or {})
    early = _early_levels(ahead)
    late = _late_levels(ahead, early)
    best = _sorted(calls, late)
    if peak_bytes(values, best) > _SMALL_PROGRAM:
        best = min((best, _sorted(calls, early), list(calls)), key=lambda order: peak_bytes(values, order))
    return best, _any_size(values, best, _runs(best, overwrites or {}))


def _sorted(calls: Sequence[Call], levels: Sequence[int]) -> list[Call]:
    return [calls[n] for n in sorted(range(len(calls)), key=levels.__getitem__)]


def _runs(calls: Sequence[Call], overwrites: Mapping[int, int]) -> list[int]:
    """For each call the number of its run: calls in a row that do not depend on each other."""
    ahead = _dependencies(calls, overwrites)
    begin, number, numbers = 0, 0, []
    for n, needs in enumerate(ahead):
        if any(x >= begin for x in needs):
            begin, number = n, number + 1
        numbers.append(number)
    return numbers


def uses(calls: Sequence[Call]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each value the numbers of the calls that write it, and of those that read it."""
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    for n, c in enumerate(calls):
        for v in c.args[: c.outputs]:
            writers.setdefault(v, []).append(n)
        for v in c.args[c.outputs :]:
            readers.setdefault(v, []).append(n)
    return writers, readers


def _dependencies(calls: Sequence[Call], overwrites: Mapping[int, int]) -> list[set[int]]:
    """For each call the calls that must come before it."""
    writers, readers = uses(calls)
    ahead: list[set[int]] = []
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

    The long chain of a program sets the pace; what only has to be done by the end (weight gradients and updates) gathers
    there, where it fills the device together.
    """
    levels = [max(early, default=0)] * len(ahead)
    for n in reversed(range(len(ahead))):
        for x in ahead[n]:
            levels[x] = min(levels[x], levels[n] - 1)
    return levels


def peak_bytes(values: Sequence[Value], calls: Sequence[Call]) -> int:
    """The most bytes of temporaries that are alive at once."""
    last = {v: n for n, c in enumerate(calls) for v in c.args}
    live = peak = 0
    born: set[int] = set()
    for n, c in enumerate(calls):
        mine = {v for v in c.args if values[v].kind == "temp"}
        live += sum(nbytes(values[v]) for v in mine - born)
        born |= mine
        peak = max(peak, live)
        live -= sum(nbytes(values[v]) for v in mine if last[v] == n)
    return peak


def _same_size(values: Sequence[Value], calls: Sequence[Call]) -> Memory:
    """A piece is handed on only to a value of the same size and dtype, after the call that read it last."""
    last = {v: n for n, c in enumerate(calls) for v in c.args}
    free: dict[tuple[int, DType], list[int]] = {}
    pieces: list[tuple[int, DType]] = []
    place: dict[int, int] = {}
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


def _any_size(values: Sequence[Value], calls: Sequence[Call], runs: Sequence[int]) -> Memory:
    """The largest values first, each in the tightest piece that is free for its whole life.

    A value lives from its first writer to its last reader, and unless it is large, from the begin to the end of their runs:
    calls of one run stay independent.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for n, c in enumerate(calls):
        for v in c.args:
            if values[v].kind == "temp":
                first.setdefault(v, n)
                last[v] = n
    begin = {r: n for n, r in reversed(list(enumerate(runs)))}
    end = {r: n for n, r in enumerate(runs)}
    sizes: list[int] = []
    taken: list[int] = []  # of each piece: the calls it is taken at, as bits
    place: dict[int, int] = {}
    for v in sorted(first, key=lambda v: -nbytes(values[v])):
        size = nbytes(values[v])
        born, died = first[v], last[v]
        if size < _LARGE:
            born, died = begin[runs[born]], end[runs[died]]
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
