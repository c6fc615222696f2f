"""Materialisation: which nodes of the tensor graph get memory, and so where the graph is cut into kernels.

Everything fuses unless a hard boundary (correctness) or a cost decision says otherwise.

Hard boundaries: outputs; CONTIGUOUS; the inputs and outputs of ARGSORT; the order and starts of SEGMENT_SUM.

Cost decisions, in the order they are taken:
- a reduce starts a chain; elementwise work on it joins as its epilogue until the value is repeated (EXPAND), padded,
  reduced again, met by a second reduce, or wanted in more than one place;
- with `row_fusion`, a reduce over trailing axes (softmax, norms) stays in the kernel that goes on over the same rows;
- elements that were made with such a result are materialised where a reduce across the rows reads them;
- elementwise work that an EXPAND would repeat is materialised unless it is next to free;
- with `repeated_rows`, so is a short row (of a norm, of a softmax), but for a product that reads one matrix element for
  each element that it repeats, as a matrix does for a vector: the memory is what takes time there, and a launch is
  saved;
- elementwise work that one kernel wants at several places (a stencil reads its neighbours) is recomputed at each
  unless that costs more than reading it back: else a chain of n such turns would be k^n of them;
- elementwise work wanted by several kernels is recomputed in each unless that costs more than reading it back;
- a chain of very many elementwise ops is cut: drivers take far longer over one large kernel, and the pieces of a
  regular chain are one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from anneal.schedule.cost_model import COST, GATHER_COST, REDUCE_COST, CostModel
from anneal.schedule.fusion.decisions import DECISIONS, price_of
from anneal.schedule.fusion.facts import LEAVES, NEVER_TWICE, Consumers, is_elsewhere, is_widening
from anneal.schedule.fusion.state import Materialised, Reason, State
from anneal.uop import ALU, Op, UOp


def materialised_nodes(
    order: Sequence[UOp], outputs: tuple[UOp, ...], cost_model: CostModel, consumers: Consumers
) -> Materialised:
    """The nodes of `order` (sources first) to materialise, each with the first reason for it."""
    state = State(order, outputs, cost_model, consumers)
    for u in order:
        if u.op in LEAVES or not u.src:
            state.open_reduce[u], state.cost[u], state.steps[u] = None, 0, 0
            state.leaves[u] = frozenset((u,)) if u.op in LEAVES else frozenset()
        else:
            DECISIONS[u.op](state, u)
            end_chain(state, u)
    keep_repeated(state)
    keep_shared(state, homes(state))
    keep_across(state)
    return state.materialised


def end_chain(state: State, u: UOp) -> None:
    """An output is materialised, and so are the result of a reduction that goes several ways and the end of a chain
    that is too long for one kernel."""
    done = state.materialised
    if u in state.outputs:
        state.keep(u, Reason.OUTPUT)
    else:
        r = state.open_reduce[u]
        if r is not None and r not in state.rows and len(state.consumers[u]) > 1 and not state.converges(u):
            state.materialise(u, Reason.FORKED)
    src, steps = u.src, state.steps
    longest = steps[src[0]]
    for s in src[1:]:
        if steps[s] > longest:
            longest = steps[s]
    if u.op in ALU:
        longest += 1
        if longest > state.cost_model.kernel_steps:
            state.materialise(u, Reason.LONG_CHAIN)
            longest = 0
    steps[u] = 0 if u in done else longest


def keep_across(state: State) -> None:
    """Materialise elements that a reduction across their rows reads, if results for their rows would be computed with
    each: once for every column."""
    for u in state.across:
        stack, seen = [u.src[0]], set[UOp]()
        while stack:
            x = stack.pop()
            if x in seen or x in state.materialised or x.op in LEAVES:
                continue
            seen.add(x)
            if x in state.rows:
                state.materialise(u.src[0], Reason.ACROSS_ROWS)
                break
            stack += x.src


def keep_repeated(state: State) -> None:
    """Materialise what one kernel computes at several places and is dear to compute at each.

    A place is a kernel and a way down from its root: the movements, and gathers, through which it reads.
    """
    done, cost, most = state.materialised, state.cost, state.cost_model.recompute_cost
    places: dict[UOp, dict[int, None]] = {}  # of nodes whose consumers are all behind us
    ways: dict[tuple[int, UOp], int] = {}
    kernel_of: list[int] = []
    for u in reversed(state.order):
        if u.op in LEAVES or not u.src:
            continue
        mine = places.pop(u, None)
        if mine is not None and len(mine) > 1 and u not in done:
            kernels = len({kernel_of[p] for p in mine})
            again = len(mine) - kernels
            if again and again * cost[u] > most and (u.op in ALU or u.op in NEVER_TWICE):
                state.materialise(u, Reason.SEVERAL_PLACES)
            elif kernels > 1 and (not again or len(mine) > _MOST_PLACES):
                mine = None  # `keep_shared` judges that; what is below is counted for each kernel alike
        if mine is None or u in done:
            mine = {len(kernel_of): None}
            kernel_of.append(len(kernel_of))
        below = mine
        if is_elsewhere(u):
            below = {}
            for p in mine:
                way = ways.setdefault((p, u), len(kernel_of))
                if way == len(kernel_of):
                    kernel_of.append(kernel_of[p])
                below[way] = None
        for s in u.src:
            others = places.get(s)
            places[s] = below if others is None or others is below else others | below
            below = mine  # the indices of a gather are read in place


_MOST_PLACES = 64


def homes(state: State) -> dict[UOp, UOp | None]:
    """The one materialised node whose kernel computes each node; None if several kernels do."""
    home: dict[UOp, UOp | None] = {}
    consumers, repeated = state.consumers, state.repeated
    for u in reversed(state.order):
        if u in state.materialised:
            home[u] = u
            continue
        readers = consumers[u]
        one = home[readers[0]] if readers else None
        several = not readers
        for c in readers:
            if home[c] is not one:
                several = True
                break
        home[u] = one if not several else u if u in repeated else None
    return home


def keep_shared(state: State, home: dict[UOp, UOp | None]) -> None:
    """Materialise what several kernels compute and is dear to compute in each.

    By now the prices know what is materialised below.
    """
    done = state.materialised
    for u in state.order:
        if u.op in LEAVES or not u.src:
            continue
        inputs = state.within_limit(u, state.buffers_saved)
        if u in done:
            continue
        state.cost[u] = price_of(_PRICES.get(u.op, 0), u.src, state.cost)
        state.leaves[u] = inputs
        if home[u] is None and (u.op in ALU or u.op in NEVER_TWICE) and is_dear(state, u, home):
            state.keep(u, Reason.SHARED)


_PRICES = COST | dict.fromkeys(NEVER_TWICE, REDUCE_COST) | {Op.GATHER: GATHER_COST, Op.PAD: 1}


def is_dear(state: State, u: UOp, home: dict[UOp, UOp | None]) -> bool:
    """True if reading `u` back is cheaper than computing it in each kernel that uses it; False if one elementwise op of
    its size alone reads it, whose result is materialised instead, if any.
    """
    then = u
    while len(state.consumers[then]) == 1 and (then is u or then.op is Op.RESHAPE):
        then = state.consumers[then][0]
    same = then is not u and then.op in ALU and then.size == u.size and not is_widening(then)
    if same and home[then] is None:
        return False
    if u.op in NEVER_TWICE or state.cost[u] > state.cost_model.recompute_cost:
        return True
    return sum([x.size >= u.size for x in state.leaves[u]]) > state.cost_model.recompute_loads
