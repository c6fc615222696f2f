"""The state of the fusion decisions: the nodes materialised so far, and what the kernels of the others hold."""

from __future__ import annotations

from enum import Enum
from functools import cached_property

from anneal.schedule.cost_model import CostModel
from anneal.schedule.fusion import facts
from anneal.uop import ALU, MOVEMENT, Known, Nodes, Numbers, Op, Src, UOp


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
        self.open_reduce: dict[UOp, UOp | None] = {}
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
        return {u: n for n, u in enumerate(self.order)}

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
        if value.op in facts.LEAVES or not value.src:
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
