"""Memory plan: numbers of values and calls, their order, memory of temporaries; and kernels that store over what they
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

from anneal.errors import ShapeError
from anneal.rewrite import substitute
from anneal.schedule.fusion import WHOLE
from anneal.schedule.records import Call, Kernel, Plan, Schedule, Value, name_of, renumbered
from anneal.uop import SYMBOLIC, DType, Ints, Nodes, Numbers, Op, Src, UOp, dtypes, of_op, ranks, toposort
from anneal.uop.sizes import variables_of


def run(s: Schedule) -> Schedule:
    params = {u.arg[0]: u for u in s.order if u.op is Op.PARAM}
    count = 1 + max(params, default=-1)
    number = {u: n for n, u in params.items()}
    given = [params.get(n) for n in range(count)]
    values = [Value(0, dtypes.float32, "input") if u is None else Value(int(u.size), u.dtype, "input") for u in given]
    wanted = set(s.sink.src)

    second: Numbers = {}  # of what is computed again
    empty = [u for u in s.order if u in s.materialised and not u.size]  # no kernel computes it
    for r, again in [*[(u, False) for u in empty], *[(r, g.again) for g in s.groups for r in g.roots]]:
        value = Value(int(r.size), r.dtype, "output" if r in wanted and not again else "temp")
        if r.op is Op.UPDATE and not again:  # in the memory that it changes
            number[r] = number[r.src[0]]
            if r in wanted:
                values[number[r]] = value
        else:
            (second if again else number)[r] = len(values)
            values.append(value)
    calls = []
    for (_, inputs, group, places), kernel in zip(s.cuts, s.kernels, strict=True):
        results = [(second if group.again else number)[r] for r in group.roots]
        args = (*results, *[(second if u in group.second else number)[u] for u in inputs])
        phase = "backward" if group.again else group.roots[-1].provenance[0]
        calls.append(Call(kernel, args, len(results), phase, places))
    if s.cost_model.concurrent:
        calls = shared_temporaries(values, calls)
    ordered, (memory, temporaries) = arrange(values, calls, s.cost_model.concurrent)
    outputs = tuple([number[u] for u in s.sink.src])
    plan = Plan(tuple(values), count, outputs, tuple(ordered), memory, temporaries, _variables(s.kernels))
    return replace(s, plan=plan)


def _variables(kernels: Iterable[Kernel]) -> Src:
    """The variables of all kernels, by name. Raises ShapeError for one name with two ranges of values."""
    if not SYMBOLIC.seen:
        return ()
    found: dict[str, UOp] = {}
    for k in dict.fromkeys(kernels):
        for v in variables_of(k.sink):
            if found.setdefault(v.arg[0], v) is not v:
                a, b = (f"{x.arg[1]} to {x.arg[2]}" for x in (found[v.arg[0]], v))
                raise ShapeError(f"two Variables {v.arg[0]} in one program, from {a} and from {b}: give them two names")
    return tuple([found[name] for name in sorted(found)])


# -- kernels that store a result over what they read: whether one may, and the kernel that does ------------------------


# A temporary is given to what is made of it where it is more than this part of all that lives at once.
_SHARE = 16
_LEAST = 16 << 20


def shared_temporaries(values: Sequence[Value], calls: Sequence[Call]) -> list[Call]:
    """The calls, with large temporaries that one call alone reads overwritten by a result of that call, where it reads
    an element, or a row, only to store it: a softmax, or the gradient of logits, takes the place of what it is made of.
    """
    large = {v for c in calls for v in c.args if values[v].kind == "temp" and nbytes(values[v]) >= _LEAST}
    if not large:
        return list(calls)
    least = max(_LEAST, peak_bytes(values, calls) // _SHARE)
    writers, readers = uses(calls)
    large = {v for v in large if nbytes(values[v]) >= least and len(writers[v]) == 1}
    renamed: dict[int, int] = {}
    out = []
    for c in calls:
        args = [renamed.get(v, v) for v in c.args]
        pairs = {}
        for slot in range(c.outputs):
            made = c.args[slot]
            for n in range(c.outputs, len(args)) if made in large else ():
                v = c.args[n]
                if v not in large or n in pairs or len(readers[v]) > 1 or values[v] != values[made]:
                    continue
                if reads_in_place(c.kernel.sink, slot, n) or _reads_its_row(c.kernel.sink, slot, n):
                    pairs[n] = slot
                    renamed[made] = args[slot] = args[n]
                    break
        call = c._replace(args=tuple(args))
        out.append(merged(call, pairs) if pairs else call)
    return out


def reads_in_place(sink: UOp, store_slot: int, load_slot: int) -> bool:
    """True if a kernel reads one array only at the index at which it stores another, and in the same loops: a store
    with loops of its own runs in other threads, before or after."""
    where = _stored_at(sink, store_slot)
    others = [s for s in sink.src if s.src[1].ranges != where.ranges]
    if any(u.op is Op.LOAD and u.slot == load_slot for u in toposort(tuple(others))):
        return False
    for u in toposort(sink):
        if u.op is Op.LOAD and u.slot == load_slot and (u.src[1] is not where or len(u.src) == 3):
            return False
        if u.op in WHOLE and any(s.op is Op.PARAM and s.arg[0] == load_slot for s in u.src):
            return False
    return True


def _stored_at(sink: UOp, slot: int) -> UOp:
    return next(s.src[1] for s in sink.src if s.slot == slot)


def _reads_its_row(sink: UOp, store_slot: int, load_slot: int) -> bool:
    """True if a kernel reduces rows, and reads of one array only the row into whose place in another it stores.

    All its reduces run over one row then, so that code generation fuses them into the loop of the stores (opt
    FUSE_REDUCE): each element is read and stored by one thread, which stores it after the last reduce.
    """
    if any(len(s.src) != 3 for s in sink.src):
        return False
    where = _stored_at(sink, store_slot)
    order = toposort(sink)
    reduces = of_op(order, Op.REDUCE)
    over = {r for u in reduces for r in u.src[1:]}
    if not over or any(u.dtype.itemsize < 4 for u in reduces):
        return False
    for row in [u for u in toposort(where) if u.op is Op.RANGE and u.arg[1] == "loop"]:
        if fusible_reduces(reduces, row) == over:
            places = {where, *[substitute(where, {row: r}) for r in over]}
            loads = [u for u in order if u.op is Op.LOAD and u.slot == load_slot]
            return all(len(u.src) == 2 and u.src[1] in places for u in loads)
    return False


def fusible_reduces(reduces: Nodes, row: UOp) -> set[UOp]:
    """The ranges of `reduces` that may become the loop range `row`.

    Such a range is as long as the row and alone in its reduce, no term uses two of them, and the reduce is no part of a
    sum for each element of the row.
    """
    fit: set[UOp] = set()
    unfit: set[UOp] = set()
    for u in reduces:
        good = len(u.src) == 2 and u.src[1].src[0] is row.src[0] and u.src[1].arg[1] == "reduce"
        (fit if good else unfit).update(u.src[1:])
    fit -= unfit
    bits = sum([1 << r.arg[0] for r in (row, *fit)])
    for u in reduces:
        if u.src[0].ranges & bits & ~(1 << u.src[1].arg[0]):
            fit -= {*u.src[1:]}
    for u in reduces:
        if fit and fit.isdisjoint(u.src[1:]) and u.src[0].varies_over(row):
            fit -= {r for x in toposort(u.src[0]) if x.op is Op.REDUCE for r in x.src[1:]}
    return fit


def overwrites_rows(sink: UOp) -> bool:
    """True if a kernel stores into memory that it reads at other places too: rows, over which one workgroup has to
    run.
    """
    where = {s.src[0]: s.src[1] for s in sink.src}
    return any(u.op is Op.LOAD and where.get(u.src[0], u.src[1]) is not u.src[1] for u in toposort(sink))


def merged(call: Call, pairs: Mapping[int, int]) -> Call:
    """The call with each slot of `pairs` replaced by the slot it is paired with; the slots left are renumbered."""
    keep = tuple([s for s in range(len(call.args)) if s not in pairs])
    kernel = _merged(call.kernel, keep, tuple(sorted(pairs.items())))
    return call._replace(kernel=kernel, args=tuple([call.args[s] for s in keep]))


@lru_cache(1 << 11)
def _merged(kernel: Kernel, keep: Ints, pairs: tuple[tuple[int, int], ...]) -> Kernel:
    number = ranks(keep)
    number.update({s: number[other] for s, other in pairs})
    sink = renumbered(toposort(kernel.sink), number, {})
    return Kernel(sink, name_of(sink))


# ---------------------------------------------------------------------------------------------------------------------
# Donation: let an output take the memory of an input that is no longer needed (a parameter's update in place).


def donate(plan: Plan, wanted: Mapping[int, int], concurrent: bool = False) -> tuple[Plan, dict[int, int]]:
    """A plan in which outputs overwrite inputs, for those of `wanted` (output value -> input value) where that is safe.

    Safe means: the call that writes the output comes after every other reader of the input, and reads the input only
    at the index it stores. A call is moved behind those readers first, if all that read its results come later still.
    Returns the plan and the pairs that were accepted.
    """
    reader = {v: n for n, c in enumerate(plan.calls) for v in c.args[c.outputs :]}
    needed = [len(plan.calls)] * len(plan.calls)  # the first call after each that touches its results
    touched: dict[int, int] = {}
    for n, c in reversed(list(enumerate(plan.calls))):
        needed[n] = min([touched[v] for v in c.args[: c.outputs] if v in touched], default=len(plan.calls))
        touched.update(dict.fromkeys(c.args, n))
    # An update waits for the last reader of what it overwrites, and no longer: what it reads takes memory meanwhile.
    when = []
    for n, c in enumerate(plan.calls):
        after = max([reader.get(wanted[v], -1) for v in c.args[: c.outputs] if v in wanted], default=-1)
        when.append((after, True) if n < after < needed[n] else (n, False))
    order = [plan.calls[n] for n in sorted(range(len(when)), key=when.__getitem__)]
    final_reader = {v: n for n, c in enumerate(order) for v in c.args[c.outputs :]}
    updated = _updated(order, wanted)
    accepted = {v: source for v, (source, _) in updated.items() if source is not None}
    calls = []
    for n, c in enumerate(order):
        pairs = {}
        if c.args[0] in accepted and _is_copy_of(c, accepted[c.args[0]]):
            continue  # the copy of memory onto itself is not needed: an update writes its part there
        for slot, v in enumerate(c.args[: c.outputs]):
            source = wanted.get(v)
            if v in updated:
                source, first = updated[v]
                if n == first and source in c.args[c.outputs :]:
                    pairs[c.args.index(source, c.outputs)] = slot
                continue
            if source is None or final_reader.get(source, -1) > n or source in accepted.values():
                continue
            old, new = plan.values[source], plan.values[v]
            if old.size != new.size or old.dtype is not new.dtype:
                continue
            if source in c.args:
                twin = c.args.index(source, c.outputs)
                if not reads_in_place(c.kernel.sink, slot, twin):
                    continue
                pairs[twin] = slot
            accepted[v] = source
        calls.append(merged(c, pairs) if pairs else c)
    calls, (memory, temporaries) = arrange(plan.values, calls, concurrent, accepted)
    return replace(plan, calls=tuple(calls), memory=memory, temporaries=temporaries), accepted


def _updated(order: list[Call], wanted: Mapping[int, int]) -> dict[int, tuple[int | None, int]]:
    """Values that are a copy at first, into which updates then write their parts.

    For each: the input that it may overwrite, so that nothing need be copied, or None; and the first update. It may if
    nobody reads the input any more by then, but that update itself where it writes.
    """
    writers, readers = uses(order)
    out: dict[int, tuple[int | None, int]] = {}
    for v, at in writers.items():
        if len(at) < 2:
            continue
        copy, first = at[:2]
        source = wanted.get(v)
        if source is not None:
            last = max([n for n in readers[source] if n != copy], default=-1)
            c = order[first]
            fits = last < first or (
                last == first and reads_in_place(c.kernel.sink, c.args.index(v), c.args.index(source, c.outputs))
            )
            taken = any(source == other for other, _ in out.values())
            if not fits or taken or not _is_copy_of(order[copy], source):
                source = None
        out[v] = source, first
    return out


def _is_copy_of(call: Call, source: int) -> bool:
    """True if a call stores one array as it reads it from `source`."""
    sink = call.kernel.sink
    value = sink.src[0].src[2]
    if len(sink.src) != 1 or value.op is not Op.LOAD or value.src != (value.src[0], sink.src[0].src[1]):
        return False
    return call.args[1:] == (source,)


# -- the order of calls, and temporaries whose lives do not overlap in one piece of memory -----------------------------


Memory = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, DType], ...]]

# A program whose temporaries take at most this many bytes gets the order in which most calls can run side by side. A
# larger one gets the order that needs least memory: its values are large, and so is the work on each.
_SMALL_PROGRAM = 256 << 20
# The same bound where calls run one at a time: another order loses only values in a processor's cache.
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
    late = sorted(range(len(calls)), key=_late_levels(p.ahead, early, _losses(values, calls)).__getitem__)
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
        """The order `base`, except that a call that frees memory comes as soon as all its inputs are computed.

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
        rank = ranks(base)
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
        """The order in which each call that needs more memory than it frees comes right before its first reader, unless
        something large would stay longer.
        """
        _, last = self.lives(order)
        at = ranks(order)
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
                if all(last[v] >= wanted[n] for v in self.touched[n] if self.size[v] >= _WORTH_FREEING):
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


def _losses(values: Sequence[Value], calls: Sequence[Call]) -> list[int]:
    """The calls of a training step that give single numbers alone, which no other call reads: a loop reads its loss,
    and prepares the next step while the rest is computed."""
    if not any(c.phase == "backward" for c in calls):
        return []
    _, readers = uses(calls)
    one = [v not in readers and value.kind == "output" and value.size == 1 for v, value in enumerate(values)]
    return [n for n, c in enumerate(calls) if c.phase == "forward" and all(map(one.__getitem__, c.args[: c.outputs]))]


def _late_levels(ahead: Sequence[set[int]], early: Sequence[int], losses: Iterable[int]) -> list[int]:
    """A level for each call, as high as the calls behind it let it be; `losses` are done as early as they can be.

    The long chain of a program sets the pace; what only has to be done by the end (weight gradients and updates)
    gathers there, where it fills the device together.
    """
    levels = [max(early, default=0)] * len(ahead)
    for n in losses:
        levels[n] = early[n]
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
