"""Materialisation: which nodes of the tensor graph get memory, and so where the graph is cut into kernels."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cached_property

from anneal.schedule.cost_model import COST, GATHER_COST, MASK_COST, REDUCE_COST, CostModel
from anneal.schedule.fusion import facts
from anneal.uop import ALU, MOVEMENT, Known, Nodes, Numbers, Op, Src, UOp, ranks, toposort


class Reason(Enum):
    """The reason why a node is materialised, as the text that a listing shows."""

    OUTPUT = "an output of the program"
    REQUESTED = "CONTIGUOUS, UPDATE, ARGSORT, SCAN and SCATTER_ADD are memory by their meaning"
    READ_ANYWHERE = "a sort, or a sum of segments, reads it in an order that no loop has"
    REPEATED = "an EXPAND repeats it, and computing it again costs more than a read"
    SCALAR = "every element would compute this scalar again"
    PADDED = "the result of a reduction is padded"
    REDUCED = "the result of a reduction is reduced again"
    ACROSS_ROWS = "a reduction across rows would compute the result of each row for every column again"
    SECOND_REDUCTION = "the results of two reductions meet, and the other one goes on"
    NO_ROW = "it is a reduction across rows, and meets a kernel of rows"
    GATHERED = "a GATHER reads it, and computing it again costs more than a read"
    FORKED = "the result of a reduction goes several ways, which do not meet again"
    BINDINGS = "a kernel that computed it as well would bind too many buffers"
    LONG_CHAIN = "a kernel computes no longer chain of elementwise ops"
    SEVERAL_PLACES = "a kernel reads it at several places, and computing it at each costs more than a read"
    SHARED = "several kernels read it, and computing it in each costs more than a read"
    CHAINED = "a reduction over scores that are computed again for each of their readers"
    FUNCTION = "all readers compute the same from a product: that is stored in its place"


Materialised = dict[UOp, Reason]  # in the order of the decisions
Homes = dict[UOp, UOp | None]  # the one node to whose kernel each belongs, if there is one


class State:
    """The decisions so far. `open_reduce`, `cost` and `leaves` are of the kernel that computes a node.

    `open_reduce`: the reduction whose result it carries in a register. `cost`: the price of computing it once more.
    `leaves`: the memory that it is made of.
    """

    def __init__(self, order: Nodes, outputs: Src, cost_model: CostModel, consumers: facts.Consumers) -> None:
        self.order, self.outputs, self.cost_model = order, set(outputs), cost_model
        self.member_buffers, self.by_size = cost_model.member_buffers, cost_model.binding_bytes > 0
        self.consumers = consumers
        self.summed = facts.only_summed(order, consumers, cost_model)
        self.materialised: Materialised = {}
        self.open_reduce: Homes = {}
        self.cost: Numbers = {}
        self.leaves: dict[UOp, frozenset[UOp]] = {}
        self.rows: set[UOp] = set()  # reductions that can be fused into the loop of the kernel that reads them
        self.row_of: Known = {}  # of elements of rows that results for the row went into: one such reduction
        self.across: list[UOp] = []  # reductions across rows, of elements that results for the row went into
        self.repeated: set[UOp] = set()  # EXPANDs of what each kernel that reads them computes for itself
        self.steps: Numbers = {}  # elementwise ops that follow each other in the kernel

    @cached_property
    def position(self) -> Numbers:
        """The number of each node in the order."""
        return ranks(self.order)

    @cached_property
    def depth(self) -> Numbers:
        """The number of reductions on the longest way from an input to each node."""
        return facts.reduce_depths(self.order)

    def inputs_of(self, src: Src) -> frozenset[UOp]:
        """The memory that a kernel reads for the values `src`."""
        leaves = self.leaves
        found = leaves[src[0]]
        for s in src[1:]:
            more = leaves[s]
            if more and more is not found:
                found = found | more if found else more
        return found

    def put(self, u: UOp, reduce: UOp | None, cost: int, leaves: frozenset[UOp]) -> None:
        """Note what a kernel that computes `u` holds."""
        self.open_reduce[u], self.cost[u], self.leaves[u] = reduce, cost, leaves

    def keep(self, u: UOp, reason: Reason) -> None:
        """Materialise `u` itself."""
        self.materialised[u] = reason
        self.put(u, None, 0, frozenset((u,)))

    def materialise(self, u: UOp, reason: Reason) -> None:
        """Materialise the value of which `u` is a view, not a repeated or shifted view of it.

        A view that only reorders the value, and is all that anybody sees of it, is kept as it is seen: whoever computes
        the value can write it in that order. Of a cast to more bits its source is kept.
        """
        done = self.materialised
        chain = [u]
        while chain[-1].op in MOVEMENT and chain[-1] not in done and chain[-1].op is not Op.PAD:
            chain.append(chain[-1].src[0])
        value = chain[-1]
        if not value.src:
            return
        if value not in done and facts.is_widening(value) and value.src[0].src:
            self.materialise(value.src[0], reason)
            kept = self.leaves[value.src[0]]
        else:
            if value not in done:
                chain = chain[: self._as_seen(chain) + 1]
                value = chain[-1]
                done[value] = reason
                self.steps[value] = 0
            kept = frozenset((value,))
            for c in chain:
                self.row_of.pop(c, None)
        for c in chain:
            self.put(c, None, 0, kept)

    def _as_seen(self, chain: Nodes) -> int:
        """The view of `chain`, from its last node up, that has the order in which the value is stored."""
        at = top = len(chain) - 1
        if not self.cost_model.reorders:
            return at
        while top and chain[top - 1].op in facts.REORDER and len(self.consumers[chain[top]]) == 1:
            top -= 1
            if chain[top].op is Op.PERMUTE:
                at = top
            elif facts.long_axes(chain[top]) != facts.long_axes(chain[top].src[0]):
                break  # split axes put in another order: a product would have to be scattered, not just written
        return at

    def within_limit(self, u: UOp, saved: bool = False) -> frozenset[UOp]:
        """The inputs of a kernel that computes `u`, which binds no more buffers than it may: as long as it did, the
        source that is made of most buffers is materialised; with `saved`, of those that are not."""
        src, most = u.src, self.member_buffers
        inputs = self.leaves[src[0]] if len(src) == 1 else self.inputs_of(src)
        bindings = self.cost_model.bindings
        if not self.by_size and len(inputs) < most:
            return inputs
        own = 1 if u in self.summed else bindings((u,))
        while bindings(inputs) + own > most:
            several = dict.fromkeys(src)
            widest = max(several, key=lambda s: 0 if saved and s in self.materialised else bindings(self.leaves[s]))
            if widest in self.materialised or len(self.leaves[widest]) <= 1:
                break
            self.materialise(widest, Reason.BINDINGS)
            inputs = self.inputs_of(src)
        return inputs

    def is_row(self, reduce: UOp) -> bool:
        """True if a reduction makes one number of each short row of values that are read, rather than of products: a
        body larger than twice each input is a contraction.
        """
        if not 0 < facts.row_length(reduce) <= self.cost_model.row_fusion:
            return False
        return any(x.size * 2 > reduce.src[0].size for x in self.leaves[reduce])

    def converges(self, u: UOp) -> bool:
        """True if all values made of `u` meet in one value a few elementwise steps on: `u` stays in a register."""
        frontier = {self.position[c] for c in self.consumers[u]}
        for _ in range(self.cost_model.epilogue_steps):
            n = min(frontier)
            if len(frontier) == 1:
                return True
            node = self.order[n]
            if node in self.outputs or not (node.op in ALU or node.op in facts.REORDER) or node.size != u.size:
                return False
            frontier.remove(n)
            frontier.update(self.position[c] for c in self.consumers[node])
        return False


# -- the decisions ----------------------------------------------------------------------------------------------------


def materialised_nodes(order: Nodes, outputs: Src, cost_model: CostModel, consumers: facts.Consumers) -> Materialised:
    """The nodes of `order` (sources first) to materialise, each with the first reason for it.

    Everything fuses unless a hard boundary (correctness) or a cost decision says otherwise.

    Hard boundaries: outputs; CONTIGUOUS; the inputs and outputs of ARGSORT, SCAN and SCATTER_ADD; the order and
    starts of SEGMENT_SUM.

    Cost decisions, in the order they are taken:
    - a reduce starts a chain; elementwise work on it joins as its epilogue until the value is repeated (EXPAND),
      padded, reduced again, met by a second reduce, or wanted in more than one place;
    - with `row_fusion`, a reduce over trailing axes (softmax, norms) stays in the kernel that goes on over the same
      rows;
    - elements that were made with such a result are materialised where a reduce across the rows reads them;
    - elementwise work that an EXPAND would repeat is materialised unless it is next to free;
    - with `repeated_rows`, so is a short row (of a norm, of a softmax), but for a product that reads one matrix element
      for each element that it repeats, as a matrix does for a vector: the memory is what takes time there, and a launch
      is saved;
    - elementwise work that one kernel wants at several places (a stencil reads its neighbours) is recomputed at each
      unless that costs more than reading it back: else a chain of n such turns would be k^n of them;
    - elementwise work wanted by several kernels is recomputed in each unless that costs more than reading it back;
    - a chain of very many elementwise ops is cut: drivers take far longer over one large kernel, and the pieces of a
      regular chain are one kernel.
    """
    state = State(order, outputs, cost_model, consumers)
    for u in order:
        if not u.src:
            state.put(u, None, 0, frozenset((u,) if u.op in facts.LEAVES else ()))
            state.steps[u] = 0
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
    longest = max([state.steps[s] for s in u.src])
    if u.op in ALU:
        longest += 1
        if longest > state.cost_model.kernel_steps:
            state.materialise(u, Reason.LONG_CHAIN)
            longest = 0
    state.steps[u] = 0 if u in done else longest


def keep_across(state: State) -> None:
    """Materialise elements that a reduction across their rows reads, if results for their rows would be computed with
    each: once for every column."""
    for u in state.across:
        inside = toposort(u.src, until=lambda x: x in state.materialised or x.op in facts.LEAVES)
        if not state.rows.isdisjoint(inside):
            state.materialise(u.src[0], Reason.ACROSS_ROWS)


def keep_repeated(state: State) -> None:
    """Materialise what one kernel computes at several places and is dear to compute at each.

    A place is a kernel and a way down from its root: the movements, and gathers, through which it reads.
    """
    done, cost, most = state.materialised, state.cost, state.cost_model.recompute_cost
    places: dict[UOp, dict[int, None]] = {}  # of nodes whose consumers are all behind us
    ways: dict[tuple[int, UOp], int] = {}
    kernel_of: list[int] = []
    for u in reversed(state.order):
        if not u.src:
            continue
        mine = places.pop(u, None)
        if mine is not None and len(mine) > 1 and u not in done:
            kernels = len({kernel_of[p] for p in mine})
            again = len(mine) - kernels
            if again and again * cost[u] > most and (u.op in ALU or facts.never_twice(u)):
                state.materialise(u, Reason.SEVERAL_PLACES)
            elif kernels > 1 and (not again or len(mine) > _MOST_PLACES):
                mine = None  # `keep_shared` judges that; what is below is counted for each kernel alike
        if mine is None or u in done:
            mine = {len(kernel_of): None}
            kernel_of.append(len(kernel_of))
        below = mine
        if facts.is_elsewhere(u):
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


def homes(state: State) -> Homes:
    """The one materialised node whose kernel computes each node; None if several kernels do."""
    home: Homes = {}
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


def keep_shared(state: State, home: Homes) -> None:
    """Materialise what several kernels compute and is dear to compute in each.

    By now the prices know what is materialised below.
    """
    done = state.materialised
    for u in state.order:
        if not u.src:
            continue
        inputs = state.within_limit(u, saved=True)
        if u in done:
            continue
        state.cost[u] = price_of(MASK_COST if facts.is_slice(u) else _PRICES.get(u.op, 0), u.src, state.cost)
        state.leaves[u] = inputs
        if home[u] is None and (u.op in ALU or facts.never_twice(u)) and is_dear(state, u, home):
            state.keep(u, Reason.SHARED)


_PRICES = COST | dict.fromkeys(facts.NEVER_TWICE, REDUCE_COST) | {Op.GATHER: GATHER_COST, Op.PAD: 1}


def is_dear(state: State, u: UOp, home: Homes) -> bool:
    """True if reading `u` back is cheaper than computing it in each kernel that uses it; False if one elementwise op of
    its size alone reads it, whose result is materialised instead, if any.
    """
    then = u
    while len(state.consumers[then]) == 1 and (then is u or then.op is Op.RESHAPE):
        then = state.consumers[then][0]
    same = then is not u and then.op in ALU and then.size == u.size and not facts.is_widening(then)
    if same and home[then] is None:
        return False
    if facts.never_twice(u) or state.cost[u] > state.cost_model.recompute_cost:
        return True
    return sum([x.size >= u.size for x in state.leaves[u]]) > state.cost_model.recompute_loads


# -- fusion decisions, one function for each kind of op ---------------------------------------------------------------
# Are its sources fused into its kernel, or materialised?
#
# A decision reads what the state says of the op's sources, materialises some of them, and writes what a kernel that
# computes the op itself holds. `DECISIONS` is the table from op to function.


Decision = Callable[[State, UOp], None]
MOST = 1 << 20  # the price of everything that costs more


def price_of(own: int, src: Src, cost: Numbers) -> int:
    """The price of an op with those of its sources, each of which a kernel computes once."""
    return min(own + sum([cost[s] for s in set(src)]), MOST)


# -- movement ----------------------------------------------------------------------------------------------------------


def expand(state: State, u: UOp) -> None:
    """A value that is next to free is computed again at each place; the result of a row goes back to its row; a row
    that a matrix-vector product repeats is computed in each of its kernels. Others are materialised.
    """
    s = u.src[0]
    r = state.open_reduce[s]
    # more for a value that indices alone decide
    most = state.cost_model.expand_cost if state.leaves[s] or not state.cost_model.masks else MASK_COST
    if r is not None and r in state.rows and u.size == r.src[0].size and facts.goes_back(u, facts.row_length(r)):
        state.row_of[u] = r
    elif r is not None or state.cost[s] > most:
        if _repeats_cheaply(state, u, r, state.row_of.get(s)):
            state.repeated.add(u)
        else:
            state.materialise(s, Reason.REPEATED)
    state.put(u, None, state.cost[s], state.leaves[s])


def _repeats_cheaply(state: State, u: UOp, number: UOp | None, element: UOp | None) -> bool:
    """True if the values that `u` repeats, results of rows or elements made with them, are computed again rather than
    materialised.
    """
    most = state.cost_model.repeated_rows
    if element is not None:
        return u.size <= most and facts.repeats_for_vectors(u, element, state.consumers)
    if number is None or number not in state.rows or u.size * facts.row_length(number) > most:
        return False
    return facts.repeats_beside_vectors(u, number, state.consumers)


def pad(state: State, u: UOp) -> None:
    """Elementwise work is fused into a PAD, which reads it or zero; the result of a reduction is materialised."""
    s = u.src[0]
    if state.open_reduce[s] is not None:
        state.materialise(s, Reason.PADDED)
    state.put(u, None, state.cost[s] + 1, state.leaves[s])


def view(state: State, u: UOp) -> None:
    """Any other movement: index arithmetic in the kernel that reads it."""
    s = u.src[0]
    state.put(u, state.open_reduce[s], state.cost[s], state.leaves[s])
    if u.op in facts.REORDER and s in state.row_of:
        state.row_of[u] = state.row_of[s]


# -- reductions --------------------------------------------------------------------------------------------------------


def reduction(state: State, u: UOp) -> None:
    """Elementwise work is fused into the reduction that reads it, another reduction's result is materialised."""
    s = u.src[0]
    if state.open_reduce[s] is not None:
        state.materialise(s, Reason.REDUCED)
    elif s in state.row_of and not facts.takes_rows(u, facts.row_length(state.row_of[s])):
        state.across.append(u)
    state.put(u, u, state.cost[s] + REDUCE_COST, state.leaves[s])
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
    state.put(u, u, REDUCE_COST, state.within_limit(u))


# -- elementwise -------------------------------------------------------------------------------------------------------


def elementwise(state: State, u: UOp) -> None:
    """Elementwise work joins the kernel of its sources: the epilogue of one reduction, or of several of equal rows."""
    src, reduce_of = u.src, state.open_reduce
    one_reduction(state, u)
    if state.row_of:
        rows_alone(state, u)
    if u.shape:
        no_scalar_again(state, u)
    inputs = state.within_limit(u)
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
    """A kernel of rows has no other reductions, which would hide that its elements are rows."""
    if any(s in state.row_of for s in u.src):
        for s in u.src:
            r = state.open_reduce[s]
            if r is not None and r not in state.rows:
                state.materialise(s, Reason.NO_ROW)


def no_scalar_again(state: State, u: UOp) -> None:
    """A scalar is materialised, not computed again for every element, unless it is nearly free."""
    for s in u.src:
        if not s.shape and (state.open_reduce[s] is not None or state.cost[s] > state.cost_model.expand_cost):
            state.materialise(s, Reason.SCALAR)


# -- reads in any order, and memory by meaning -------------------------------------------------------------------------


def gather(state: State, u: UOp) -> None:
    """A GATHER's table and indices are computed where it reads them, if that is cheap."""
    for s in u.src:
        if state.open_reduce[s] is not None or state.cost[s] > state.cost_model.recompute_cost:
            state.materialise(s, Reason.GATHERED)
    inputs = state.within_limit(u)
    cost = (MASK_COST if facts.is_slice(u) else GATHER_COST) + sum([state.cost[s] for s in u.src])
    state.put(u, None, cost, inputs)


def opaque(state: State, u: UOp) -> None:
    """A sort, and a scatter or a running reduction that is a kernel, read memory and write memory."""
    for s in u.src:
        state.materialise(s, Reason.READ_ANYWHERE)
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
    Op.ARGSORT: opaque,
    Op.SCAN: opaque,
    Op.SCATTER_ADD: opaque,
    Op.CONTIGUOUS: requested,
    Op.UPDATE: requested,
}
