"""Fusion decisions, one function for each kind of op: are its sources fused into its kernel, or materialised?

A decision reads what the state says of the op's sources, materialises some of them, and writes what a kernel that
computes the op itself holds. `DECISIONS` is the table from op to function.
"""

from __future__ import annotations

from collections.abc import Callable

from anneal.schedule.cost_model import COST, GATHER_COST, MASK_COST, REDUCE_COST
from anneal.schedule.fusion.facts import (
    REORDER,
    goes_back,
    repeats_beside_vectors,
    repeats_for_vectors,
    row_length,
    takes_rows,
)
from anneal.schedule.fusion.state import Reason, State
from anneal.uop import ALU, MOVEMENT, Op, UOp

Decision = Callable[[State, UOp], None]
MOST = 1 << 20  # the price of everything that costs more


def price_of(own: int, src: tuple[UOp, ...], cost: dict[UOp, int]) -> int:
    """The price of an op with those of its sources, each of which a kernel computes once."""
    if len(src) == 1:
        total = own + cost[src[0]]
    elif len(src) == 2:
        a, b = src
        total = own + cost[a] + (cost[b] if a is not b else 0)
    else:
        total = own + sum([cost[s] for s in dict.fromkeys(src)])
    return total if total < MOST else MOST


# -- movement ----------------------------------------------------------------------------------------------------------


def expand(state: State, u: UOp) -> None:
    """A value that is next to free is computed again at each place; the result of a row goes back to its row; a row
    that a matrix-vector product repeats is computed in each of its kernels. Others are materialised.
    """
    s = u.src[0]
    r = state.open_reduce[s]
    if r is not None and r in state.rows and u.size == r.src[0].size and goes_back(u, row_length(r)):
        state.row_of[u] = r
    elif r is not None or state.cost[s] > _most_for_repeating(state, s):
        if _repeats_cheaply(state, u, r, state.row_of.get(s)):
            state.repeated.add(u)
        else:
            state.materialise(s, Reason.REPEATED)
    state.open_reduce[u], state.cost[u], state.leaves[u] = None, state.cost[s], state.leaves[s]


def _most_for_repeating(state: State, s: UOp) -> int:
    """Up to what price a value is computed again at each place: more for one that indices alone decide."""
    return state.cost_model.expand_cost if state.leaves[s] or not state.cost_model.masks else MASK_COST


def _repeats_cheaply(state: State, u: UOp, number: UOp | None, element: UOp | None) -> bool:
    """True if the values that `u` repeats, results of rows or elements made with them, are computed again rather than
    materialised.
    """
    most = state.cost_model.repeated_rows
    if element is not None:
        return u.size <= most and repeats_for_vectors(u, element, state.consumers)
    if number is None or number not in state.rows or u.size * row_length(number) > most:
        return False
    return repeats_beside_vectors(u, number, state.consumers)


def pad(state: State, u: UOp) -> None:
    """Elementwise work is fused into a PAD, which reads it or zero; the result of a reduction is materialised."""
    s = u.src[0]
    if state.open_reduce[s] is not None:
        state.materialise(s, Reason.PADDED)
    state.open_reduce[u], state.cost[u], state.leaves[u] = None, state.cost[s] + 1, state.leaves[s]


def view(state: State, u: UOp) -> None:
    """Any other movement: index arithmetic in the kernel that reads it."""
    s = u.src[0]
    state.open_reduce[u], state.cost[u], state.leaves[u] = state.open_reduce[s], state.cost[s], state.leaves[s]
    if u.op in REORDER and s in state.row_of:
        state.row_of[u] = state.row_of[s]


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(state: State, u: UOp) -> None:
    """Elementwise work is fused into the reduction that reads it, another reduction's result is materialised."""
    s = u.src[0]
    if state.open_reduce[s] is not None:
        state.materialise(s, Reason.REDUCED)
    elif s in state.row_of and not takes_rows(u, row_length(state.row_of[s])):
        state.across.append(u)
    state.open_reduce[u], state.cost[u], state.leaves[u] = u, state.cost[s] + REDUCE_COST, state.leaves[s]
    if state.cost_model.row_fusion and state.is_row(u):
        state.rows.add(u)


def segment_sum(state: State, u: UOp) -> None:
    """The order and the starts of segments lie in memory, and so does a value that is more than a read: its rows are
    read in any order."""
    value, order, starts = u.src
    state.materialise(order, Reason.READ_ANYWHERE)
    state.materialise(starts, Reason.READ_ANYWHERE)
    if state.open_reduce[value] is not None or state.cost[value] > 0:
        state.materialise(value, Reason.READ_ANYWHERE)
    inputs = state.within_limit(u, state.buffers_below)
    state.open_reduce[u], state.cost[u], state.leaves[u] = u, REDUCE_COST, inputs


# -- elementwise -------------------------------------------------------------------------------------------------------


def elementwise(state: State, u: UOp) -> None:
    """Elementwise work joins the kernel of its sources: the epilogue of one reduction, or of several of equal rows."""
    src, reduce_of = u.src, state.open_reduce
    one_reduction(state, u)
    if state.row_of:
        rows_alone(state, u)
    if u.shape:
        no_scalar_again(state, u)
    inputs = state.within_limit(u, state.buffers_below)
    reduce = of_row = None
    for s in src:
        reduce = reduce or reduce_of[s]
        of_row = of_row or state.row_of.get(s)
    reduce_of[u], state.leaves[u] = reduce, inputs
    state.cost[u] = price_of(COST[u.op], src, state.cost)
    if of_row is not None:
        state.row_of[u] = of_row


def one_reduction(state: State, u: UOp) -> None:
    """Reductions whose results meet: one goes on, the last to be known where kernels run side by side, since the others
    are done by then, and then the longest. Reductions of equal rows all stay.
    """
    reduce_of = state.open_reduce
    held = dict.fromkeys([r for s in u.src if (r := reduce_of[s]) is not None])
    if len(held) < 2 or (state.rows.issuperset(held) and len({r.src[0].shape for r in held}) == 1):
        return
    depth = state.depth if state.cost_model.concurrent else dict.fromkeys(held, 0)
    goes_on = max(held, key=lambda r: (depth[r], r.src[0].size, -r.size))
    for s in dict.fromkeys(u.src):
        r = reduce_of[s]
        if r is not None and r is not goes_on:
            state.materialise(s, Reason.SECOND_REDUCTION)


def rows_alone(state: State, u: UOp) -> None:
    """A kernel of rows has no other reductions: it would not know its rows any more."""
    if any(s in state.row_of for s in u.src):
        for s in u.src:
            r = state.open_reduce[s]
            if r is not None and r not in state.rows:
                state.materialise(s, Reason.NO_ROW)


def no_scalar_again(state: State, u: UOp) -> None:
    """A scalar that takes more than next to nothing is materialised, not computed for every element."""
    for s in u.src:
        if not s.shape and (state.open_reduce[s] is not None or state.cost[s] > state.cost_model.expand_cost):
            state.materialise(s, Reason.SCALAR)


# -- reads in any order, and memory by meaning -------------------------------------------------------------------------


def gather(state: State, u: UOp) -> None:
    """A GATHER's table and indices are computed where it reads them, if that is cheap."""
    for s in u.src:
        if state.open_reduce[s] is not None or state.cost[s] > state.cost_model.recompute_cost:
            state.materialise(s, Reason.GATHERED)
    inputs = state.within_limit(u, state.buffers_below)
    cost = GATHER_COST + sum([state.cost[s] for s in u.src])
    state.open_reduce[u], state.cost[u], state.leaves[u] = None, cost, inputs


def argsort(state: State, u: UOp) -> None:
    """A sort reads its keys from memory and writes the order to memory."""
    state.materialise(u.src[0], Reason.READ_ANYWHERE)
    state.keep(u, Reason.REQUESTED)


def requested(state: State, u: UOp) -> None:
    """CONTIGUOUS and UPDATE are memory."""
    state.keep(u, Reason.REQUESTED)


DECISIONS: dict[Op, Decision] = {
    **dict.fromkeys(MOVEMENT, view),
    Op.EXPAND: expand,
    Op.PAD: pad,
    Op.REDUCE_AXIS: reduction,
    Op.SEGMENT_SUM: segment_sum,
    **dict.fromkeys(ALU, elementwise),
    Op.GATHER: gather,
    Op.ARGSORT: argsort,
    Op.CONTIGUOUS: requested,
    Op.UPDATE: requested,
}
