"""The derivatives of loops and choices, and their form for many examples: each is a loop, or a choice, again.

The reverse of a loop is a loop from its last turn to the first. What it needs of the forward turns is kept in further
rows: what is carried, and what was summed up or looped for; the rest is computed again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from anneal.errors import GradientError
from anneal.ops import nodes
from anneal.rewrite import over, rebuild
from anneal.runtime import Choice, Loop, Rules, chosen, looped
from anneal.transforms.batching import Flagged, Flags, full, rewritten, swapped
from anneal.transforms.walks import added, paths, pull_back, push_forward, stand_in, whole
from anneal.uop import ALU, MOVEMENT, GraphFunction, Known, Nodes, Op, Some, Src, UOp, dtypes, toposort
from anneal.uop.sizes import Size

T = TypeVar("T")
Pairs = list[tuple[UOp, UOp]]  # what stands for a value in a body, and the node that is passed for it

# Ops whose results the reverse reads from memory: computing them again would take longer.
_KEPT = frozenset((Op.REDUCE_AXIS, Op.HOST_CALL, Op.ARGSORT, Op.SCATTER_ADD, Op.SEGMENT_SUM))


def _like(u: UOp) -> UOp:
    return stand_in(u.dtype, u.shape)


def _substituted(results: Nodes, known: Known) -> list[UOp]:
    """The graphs over other nodes; `known` gets the replacements of the nodes in between."""
    return [rebuild(r, over, known) for r in results]


def _order(results: Nodes) -> list[tuple[UOp, Src]]:
    return [(u, u.src) for u in toposort(results)]


# -- reverse mode -----------------------------------------------------------------------------------------------------


class _Pulled:
    """The reverse of a loop's body: graphs over its parameters and over what stands for cotangents.

    `given`: which results have one. `wants`: which sources need one. A carried value needs one, too, if a turn computes
    it from such a source.
    """

    def __init__(self, loop: Loop, given: Flags, wants: Flags) -> None:
        results, parameters, n = loop.body.results, loop.body.parameters[1:], loop.carried
        self.constants, self.carried, self.slices = loop.parts(parameters)
        self.largest = max([p.size for p in self.slices], default=0) if loop.again else float("inf")
        order = _order(results)
        self.forward, self.inside, self.stacked = {u for u, _ in order}, loop.inside, set(results[n:])
        targets = {p for p, wanted in zip(parameters, wants, strict=True) if wanted and p.dtype.is_float}
        while True:  # what is carried is a target where it depends on one after a turn
            path = paths(order, targets)
            carried = {p for p, r in zip(self.carried, results) if r in path[0] and p.dtype.is_float}
            if carried <= targets:
                break
            targets |= carried
        self.rows = {k: _like(r) for k, (r, g) in enumerate(zip(results[n:], given[n:])) if g}
        self.ends: dict[int, UOp] = {}  # of what is carried: what stands for a cotangent
        more = {k for k in range(n) if given[k] and self.carried[k] in targets}
        while True:  # what has a cotangent before a turn has one after it
            self.ends.update((k, _like(self.carried[k])) for k in sorted(more))
            seeds = [(results[k], g) for k, g in self.ends.items()]
            grads = pull_back([*seeds, *[(results[n + k], g) for k, g in self.rows.items()]], *path)
            more = {k for k, p in enumerate(self.carried) if p in grads} - set(self.ends)
            if not more:
                break

        self.sums = [p for p in self.constants if p in grads]
        self.along = [p for p in self.slices if p in grads]
        # what a turn of the reverse computes
        ends = [self.carried[k] for k in self.ends]
        self.nexts, self.parts, self.out = [
            [whole(grads.get(p), p) for p in ps] for ps in (ends, self.sums, self.along)
        ]

    def kept(self, turn: UOp) -> list[UOp]:
        """The nodes of the forward turn that it reads beside constants and slices."""
        late = {*self.ends.values(), *self.rows.values()}
        varies, inside = {turn, *self.carried, *self.slices}, set(self.inside)
        results = [*self.nexts, *self.parts, *self.out]
        order = toposort(results)
        readers: dict[UOp, list[UOp | None]] = {u: [None] for u in (*results, *self.stacked)}
        for u in order:
            for s in dict.fromkeys(u.src):
                readers.setdefault(s, []).append(u)
            for found in (late, varies, *([] if u in self.forward else [inside])):
                if not found.isdisjoint(u.src):
                    found.add(u)
        stack = [s for u in order if u in late for s in u.src if s not in late]
        stack += [u for u in results if u not in late]
        kept: dict[UOp, None] = {}
        carried, seen = set(self.carried), set[UOp]()
        while stack:
            u = stack.pop()
            if u in seen:
                continue
            seen.add(u)
            if u.op in _KEPT and u in varies and u not in inside and u.size <= self.largest:
                kept[_instead(u, readers, self.forward - late - inside)] = None
            elif u in carried or (
                u.op in (Op.GATHER, Op.SHRINK) and _moved(u.src[0]) in carried and 2 * u.size <= u.src[0].size
            ):
                kept[u] = None
            else:
                stack += u.src
        return list(kept)


def _instead(u: UOp, readers: dict[UOp, list[UOp | None]], allowed: Collection[UOp]) -> UOp:
    """The last of `allowed` that is made of `u` element by element, and alone reads what comes before: it takes no more
    memory, and need not be made again.
    """
    while len(found := readers.get(u, [])) == 1 and (r := found[0]) is not None and r in allowed:
        if r.size != u.size or r.dtype.itemsize > u.dtype.itemsize or not (r.op in ALU or r.op in MOVEMENT):
            break
        u = r
    return u


def rows_for_reverse(loop: Loop) -> Loop:
    """The loop with the rows that its reverse needs, whatever cotangents there are."""
    given = [r.dtype.is_float for r in loop.body.results]
    if not any(given):
        return loop
    try:
        return _with_rows(loop, _Pulled(loop, given, [True] * (len(loop.body.parameters) - 1)))[0]
    except GradientError:  # it has no reverse derivative, which whoever takes one is told
        return loop


def _with_rows(loop: Loop, pulled: _Pulled) -> tuple[Loop, dict[UOp, int]]:
    """The loop with what the reverse needs among its rows, and the numbers of those results."""
    kept = pulled.kept(loop.body.parameters[0])
    missing = [u for u in kept if u not in pulled.stacked]
    longer = loop
    if missing:
        body = GraphFunction("body", (), loop.body.parameters, (*loop.body.results, *missing))
        longer = loop.over(body, loop.extra + len(missing))
    place = {r: k for k, r in enumerate(longer.body.results) if k >= loop.carried}
    return longer, {u: place[u] for u in kept}


def _pull_loop(loop: Loop, src: Nodes, given: Some, wants: Flags) -> Some:
    n = loop.carried
    pulled = _Pulled(loop, [g is not None for g in given], wants)
    if loop.tests:
        if not (pulled.ends or pulled.sums):  # what has a cotangent depends on nothing that wants one
            return [None] * len(src)
        raise GradientError(
            f"{loop.name} has no reverse derivative, because the number of its turns is not known before: use scan, or "
            "fori_loop with ints as bounds; jvp goes through it, and detach() on what goes in stops gradients"
        )
    longer, place = _with_rows(loop, pulled)
    made = longer.nodes(tuple(src))
    rows = {u: _like(u) for u in place}
    constants, _, slices = loop.parts(src)
    fixed = dict(zip(pulled.constants, constants, strict=True))
    along = [*zip(pulled.slices, slices, strict=True)]
    along += [(g, end) for k, g in pulled.rows.items() if (end := given[n + k]) is not None]
    along += [(rows[u], made[k]) for u, k in place.items()]
    nexts, parts, out, inside = [
        _substituted(us, rows) for us in (pulled.nexts, pulled.parts, pulled.out, list(loop.inside))
    ]
    sums = _Sums(parts, {*pulled.constants, *[p for p, _ in along], *out})
    states = [(g, whole(given[k], g), following) for (k, g), following in zip(pulled.ends.items(), nexts, strict=True)]
    states += [(total, whole(None, u), total + u) for u, total in sums.carried.items()]
    ends, stacked = looped(
        replace(loop, reverse=not loop.reverse),
        loop.body.parameters[0],
        list(fixed.items()),
        states,
        along,
        [*out, *sums.rows],
        inside=inside,
    )
    found = dict(zip([pulled.carried[k] for k in pulled.ends], ends))
    found.update(zip(pulled.along, stacked))
    arrays = {**dict(along), **dict(zip([*out, *sums.rows], stacked, strict=True))}
    totals = dict(zip(sums.carried, ends[len(pulled.ends) :], strict=True))
    for u, read in sums.after.items():
        totals[u] = _over_all_turns(u, {v: arrays[v] for v in read if v in arrays}, fixed, loop.length)
    found.update(zip(pulled.sums, sums.made(totals), strict=True))
    return [found.get(p) if p.dtype.is_float else None for p in loop.body.parameters[1:]]


class _Sums:
    """The sums of parts over all turns.

    A part is a sum of terms: nodes that movements and casts bring to its shape, which come after the loop. A sum of
    products, or of rows at places of a table, is summed over all turns at once, after the loop, where what it reads has
    no more elements than it has itself, which a turn would read and write; `rows` keep what is not `held`. A sum of
    other terms is carried.
    """

    def __init__(self, parts: Nodes, held: set[UOp]) -> None:
        each = [_terms(p) for p in parts]
        self.after: dict[UOp, list[UOp]] = {}
        self.rows: dict[UOp, None] = {}
        for u in sorted(dict.fromkeys([u for terms in each for u, _ in terms]), key=lambda u: -int(u.size)):
            read = _summed_up(u)
            new = [v for v in read if v not in held and v not in self.rows]
            if read and sum([v.size for v in new]) <= u.size:
                self.after[u] = read
                self.rows.update(dict.fromkeys(new))
        self._terms = [self._together(terms, part.size) for terms, part in zip(each, parts, strict=True)]
        self.carried = {u: _like(u) for terms in self._terms for u, _ in terms if u not in self.after}

    def _together(self, terms: list[_Term], size: Size) -> list[_Term]:
        """The terms, with those as one that are carried, and no smaller than the sum."""
        apart = [t for t in terms if t[0] in self.after or t[0].size < size]
        rest = [_brought(*t) for t in terms if t not in apart]
        return [*apart, (added(rest), [])] if rest else apart

    def made(self, totals: Known) -> list[UOp]:
        """The sums of the parts, given those of the nodes that are carried, or summed up after the loop."""
        return [added([_brought(totals[u], moves) for u, moves in terms]) for terms in self._terms]


_Term = tuple[UOp, list[UOp]]  # a node, and the movements and casts that follow it


def _terms(u: UOp) -> list[_Term]:
    """The terms of a sum, from left to right."""
    found: list[_Term] = []
    seen: set[UOp] = set()
    rest: list[_Term] = [(u, [])]
    while rest:
        u, moves = rest.pop()
        while u.op in MOVEMENT or (u.op is Op.CAST and u.src[0].dtype.is_float and u.src[0].dtype.bits >= u.dtype.bits):
            moves = [u, *moves]
            u = u.src[0]
        if u.op is not Op.ADD or u in seen or any(s.shape != u.shape for s in u.src):
            found.append((u, moves))
        else:
            seen.add(u)
            rest += [(s, moves) for s in reversed(u.src)]
    return found


def _brought(u: UOp, moves: list[UOp]) -> UOp:
    """A node after movements and casts."""
    for m in moves:
        u = u.cast(m.dtype) if m.op is Op.CAST else u.then(m.op, m.arg)
    return u


def _moved(u: UOp) -> UOp:
    """The node below movements and casts."""
    while u.op in MOVEMENT or u.op is Op.CAST:
        u = u.src[0]
    return u


def _summed_up(u: UOp) -> list[UOp]:
    """The nodes of which `u` is a sum: of products, as the gradient of a product's weight is, or of rows, as that of a
    table is; none for another node."""
    if u.op is Op.SCATTER_ADD:
        return [v for v in dict.fromkeys(map(_moved, u.src)) if v.op is not Op.CONST]
    if u.op is not Op.REDUCE_AXIS or u.arg[0] is not Op.ADD:
        return []
    each = _moved(u.src[0])
    factors = [_moved(s) for s in each.src] if each.op is Op.MUL else [each]
    if all(f.size == each.size for f in factors):
        factors = [each]  # a product element by element: it is a row itself
    return [v for v in dict.fromkeys(factors) if v.op is not Op.CONST]


def _over_all_turns(u: UOp, arrays: Known, fixed: Known, length: Size) -> UOp:
    """The sum over all turns of a node whose values for each are in `arrays`: one product, or one look-up, after the
    loop."""
    wanted = u.src if u.op is Op.SCATTER_ADD else (u,)
    each = _substituted([full(*made, length) for made in rewritten(wanted, arrays, length)], fixed)
    if u.op is not Op.SCATTER_ADD:
        return nodes.reshape(each[0].then(Op.REDUCE_AXIS, (Op.ADD, (0,))), u.shape)
    joined = [nodes.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) for x in each]
    return UOp(Op.SCATTER_ADD, u.dtype, tuple(joined), u.arg)


def _halves(several: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The halves of a list: of the first of two ways, and of the second."""
    n = len(several) // 2
    return several[:n], several[n:]


def _either(call: Choice, src: Nodes, given: Pairs, ways: Sequence[Some], like: Nodes) -> Some:
    """The chosen way's values of those that either way gives; zeros where it gives none, in the shape of `like`."""
    wanted = [k for k, both in enumerate(zip(*ways, strict=True)) if any(u is not None for u in both)]
    wide = [[whole(way[k], like[k]) for k in wanted] for way in ways]
    made = chosen(call.name, src[0], [*zip(call.body.parameters, src[1:], strict=True), *given], wide) if wanted else []
    found = dict(zip(wanted, made, strict=True))
    return [found.get(k) for k in range(len(like))]


def _pull_choice(call: Choice, src: Nodes, given: Some, wants: Flags) -> Some:
    parameters, several = call.body.parameters, _halves(call.body.results)
    targets = [p for p, wanted in zip(parameters, wants[1:], strict=True) if wanted and p.dtype.is_float]
    seeds = [(k, _like(several[0][k]), c) for k, c in enumerate(given) if c is not None]
    each = [pull_back([(way[k], g) for k, g, _ in seeds], *paths(_order(way), targets)) for way in several]
    ways = [list(map(grads.get, parameters)) for grads in each]
    return [None, *_either(call, src, [(g, c) for _, g, c in seeds], ways, parameters)]


# -- forward mode -----------------------------------------------------------------------------------------------------


def _pushed(results: Nodes, tangents: Known) -> Some:
    """The tangents of graphs, given the tangents of their inputs."""
    known = dict(tangents)
    push_forward(_order(results), results, known)
    return [whole(known[r], r) if r in known else None for r in results]


def _push_turns(loop: Loop, src: Nodes, given: Some) -> Some:
    body = loop.body
    turn, *parameters = body.parameters
    constants, carried, slices = loop.parts(parameters)
    of = dict(zip(parameters, src, strict=True))
    tangents: dict[UOp, Any] = dict(zip(parameters, given, strict=True))
    known = {p: _like(p) for p, t in tangents.items() if t is not None}
    while True:  # a carry with a tangent after a turn has one before
        made = _pushed(body.results, known)
        more = [p for p, t in zip(carried, made) if t is not None and p not in known]
        if not more:
            break
        known.update((p, _like(p)) for p in more)

    def both(parameters: Nodes) -> Pairs:
        return [*[(p, of[p]) for p in parameters], *[(known[p], tangents[p]) for p in parameters if p in known]]

    n, moving = len(carried), [k for k, p in enumerate(carried) if p in known]
    after = [*body.results[:n], *[whole(made[k], carried[k]) for k in moving]]
    states = [(p, whole(first, p), r) for (p, first), r in zip(both(carried), after, strict=True)]
    rows = {k: t for k, t in enumerate(made) if t is not None and k >= n}
    inner = [*loop.tests, *rows.values()]
    ends, out = looped(loop, turn, both(constants), states, both(slices), inner, inside=loop.inside)
    found = dict(zip([*moving, *rows], [*ends[n:], *out], strict=True))
    return [found.get(k) for k in range(len(loop.results))]


def _push_choice(call: Choice, src: Nodes, given: Some) -> Some:
    results = call.body.results
    tangents = [(p, _like(p), t) for p, t in zip(call.body.parameters, given[1:], strict=True) if t is not None]
    ways = _halves(_pushed(results, {p: stand for p, stand, _ in tangents}))
    return _either(call, src, [(stand, t) for _, stand, t in tangents], ways, _halves(results)[0])


# -- many examples ----------------------------------------------------------------------------------------------------


def _of_many(parameters: Nodes, n: Size) -> Known:
    """Parameters, each with what stands for it with an axis of examples in front."""
    return {p: stand_in(p.dtype, (n, *p.shape)) for p in parameters}


def _batch_turns(loop: Loop, src: Nodes, batched: Flags, n: Size, different: bool) -> Flagged:
    results = loop.body.results
    turn, *parameters = loop.body.parameters
    constants, carried, slices = loop.parts(parameters)
    of = dict(zip(parameters, src, strict=True))
    flags = [p for p, f in zip(parameters, batched, strict=True) if f]
    many = _of_many(flags, n)
    while True:  # what has the axis after a turn has it before
        made = rewritten([*results, *loop.inside], many, n, different)
        apart = bool(loop.tests) and made[-1][1]
        if apart:  # examples that are done keep their values, each its own, until all are
            made = [(full(*x, n), True) for x in made]
        more = [p for p, (_, has) in zip(carried, made) if has and p not in many]
        if not more:
            break
        many.update(_of_many(more, n))

    rows = made[len(carried) : len(results)]
    inside = [u for u, _ in made[len(results) :]]
    if apart:
        ((goes_on, _),) = rows
        made = [(_beside(goes_on, p).where(u, many[p]), True) for p, (u, _) in zip(carried, made)]
        rows = [(nodes.reshape(nodes.reduce_axis(goes_on.cast(dtypes.int32), Op.MAX, (0,)), ()).ne(0), False)]
    ends, out = looped(
        loop,
        turn,
        [(many.get(p, p), of[p]) for p in constants],
        [
            (many[p], full(of[p], p in flags, n), full(*after, n)) if p in many else (p, of[p], after[0])
            for p, after in zip(carried, made)
        ],
        [(many.get(p, p), swapped(of[p]) if p in flags else of[p]) for p in slices],
        [u for u, _ in rows],
        inside=inside,
    )
    # the axis of examples lies before that of turns, or the other way round, where there are both
    stacked = [(swapped(u) if has else u, has) for u, (_, has) in zip(out, rows)]
    return [*[(u, p in many) for u, p in zip(ends, carried, strict=True)], *stacked]


def _beside(predicate: UOp, u: UOp) -> UOp:
    """A predicate for each example in the shape of what each example has."""
    shape = (predicate.shape[0], *u.shape)
    return nodes.expand(nodes.reshape(predicate, (shape[0], *[1] * len(u.shape))), shape)


def _batch_choice(call: Choice, src: Nodes, batched: Flags, n: Size, different: bool) -> Flagged:
    parameters, results = call.body.parameters, call.body.results
    many = _of_many([p for p, f in zip(parameters, batched[1:], strict=True) if f], n)
    ways = _halves(rewritten(results, many, n, different))
    pairs = [(many.get(p, p), u) for p, u in zip(parameters, src[1:], strict=True)]
    if batched[0]:  # compute both ways, and choose one for each example
        first, second = [_substituted([full(*r, n) for r in way], dict(pairs)) for way in ways]
        return [(_beside(src[0], r).where(a, b), True) for r, a, b in zip(results, first, second)]
    has = [a[1] or b[1] for a, b in zip(*ways, strict=True)]
    wide = [[full(*r, n) if h else r[0] for r, h in zip(way, has, strict=True)] for way in ways]
    return list(zip(chosen(call.name, src[0], pairs, wide), has, strict=True))


Loop.rules = Rules(_pull_loop, _push_turns, _batch_turns)
Choice.rules = Rules(_pull_choice, _push_choice, _batch_choice)
