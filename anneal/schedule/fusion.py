"""Where to cut: which nodes of the tensor graph are materialised.

Everything fuses unless a hard boundary (correctness) or a cost decision says otherwise.

Hard boundaries: outputs; CONTIGUOUS; the inputs and outputs of ARGSORT; the order and starts of SEGMENT_SUM.

Cost decisions, in the order they are taken:
- a reduce starts a chain; elementwise work on it joins as its epilogue until the value is repeated (EXPAND), padded,
  reduced again, met by a second reduce, or wanted in more than one place;
- with `row_fusion`, a reduce over trailing axes (softmax, norms) stays in the kernel that goes on over the same rows;
- elementwise work that an EXPAND would repeat is materialised unless it is next to free;
- with `repeated_rows`, so is a short row (of a norm, of a softmax), but for a product that reads one matrix element for
  each element that it repeats, as a matrix does for a vector: the memory is what takes time there, and a launch is
  saved;
- elementwise work wanted by several kernels is recomputed in each unless that costs more than reading it back;
- a chain of very many elementwise ops is cut: drivers take far longer over one large kernel, and the pieces of a
  regular chain are one kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from anneal.schedule.rows import goes_back, repeats_beside_vectors, repeats_for_vectors, row_length
from anneal.uop import ALU, MOVEMENT, Op, UOp

__all__ = ["COPY", "COST", "LEAVES", "CostModel", "base", "realize_map"]

# What recomputing an op costs, in units of one multiply.
COST = dict.fromkeys(ALU, 1) | dict.fromkeys(
    (Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.POW), 6
)
COST |= dict.fromkeys((Op.SQRT, Op.RSQRT, Op.DIV, Op.RECIP, Op.IDIV, Op.MOD), 3)
COST |= {Op.THREEFRY: 60, Op.CAST: 0, Op.BITCAST: 0}
_GATHER_COST = 40  # an indirect read: worth keeping where several kernels want it
_MASK_COST = 4  # what indices alone decide is computed again up to this price: it says what need not be computed
_REORDER = frozenset((Op.RESHAPE, Op.PERMUTE))
_NEVER_TWICE = frozenset((Op.REDUCE_AXIS, Op.SEGMENT_SUM, Op.GATHER))
LEAVES = frozenset((Op.BUFFER, Op.PARAM))
COPY = "copy for an update"  # in the tag of a CONTIGUOUS: the memory that an UPDATE writes into


@dataclass(frozen=True)
class CostModel:
    """The target's cost model: limits and prices of the fusion decisions.

    `max_buffers` is the device's storage buffers per kernel.

    Only a kernel in parts may take more than `part_buffers`: one body with many more runs out of registers.
    """

    max_buffers: int = 8
    recompute_cost: int = 30  # elementwise work wanted by several kernels is recomputed up to this price
    recompute_loads: int = 3  # ... and up to this many full-size loads
    epilogue_steps: int = 48  # how far ahead a reduce's value may fork before it must meet itself again
    row_fusion: int = 0  # reduces over at most this many trailing elements stay inside the kernel that uses them
    expand_cost: int = 1  # work below a repeating EXPAND is recomputed up to this price
    repeated_rows: int = 0  # ... and rows that a product with a vector repeats, up to this many elements in all
    parallel: int = 0  # workgroups that fill the device: long reduces for fewer are done in two stages; 0 is never
    parts: bool = True  # a kernel may have parts: workgroups that compute one thing, and others that compute another
    join_epilogues: bool = True  # elementwise work joins the reduce that it reads, also where both are stored
    keeps_functions: bool = True  # a product stores what others make of it rather than itself
    keeps_rows: bool = True  # a kernel holds a row while it reduces it: a reduce may join the kernel that makes the row
    masks: bool = False  # kernels are told what an index alone decides, and leave it out
    concurrent: bool = False  # calls that do not need each other run side by side, on memory without a size or dtype
    sort_by_counting: int = 0  # rows longer than this are sorted digit by digit, not by counting; 0: none
    kernel_steps: int = (
        1024  # elementwise ops that follow each other in one kernel: a long chain is cut, at pieces alike
    )
    binding_bytes: int = 0  # the most that one binding shows: larger values count as several buffers; 0 is no limit

    @property
    def part_buffers(self) -> int:
        """The most buffers of one part of a kernel."""
        return min(self.max_buffers, 32)

    def bindings(self, values: Collection[UOp]) -> int:
        """The storage bindings that `values` take in a kernel."""
        if not self.binding_bytes:
            return len(values)
        return sum(max(1, -(-memory_bytes(u) // self.binding_bytes)) for u in values)

    def fit_to(self, values: Iterable[UOp]) -> CostModel:
        """The same cost model, without a limit that none of `values` reaches."""
        if not self.binding_bytes or any(memory_bytes(u) > self.binding_bytes for u in values):
            return self
        return replace(self, binding_bytes=0)


def memory_bytes(u: UOp) -> int:
    """What `u` takes on a device, once it is materialised."""
    return u.size * u.dtype.device_itemsize


def base(u: UOp) -> UOp:
    """`u` below its movement ops."""
    while u.op in MOVEMENT:
        u = u.src[0]
    return u


def realize_map(order: list[UOp], outputs: tuple[UOp, ...], cost_model: CostModel) -> dict[UOp, None]:
    """The nodes of `order` (sources first) to materialise; an ordered set."""
    consumers: dict[UOp, list[UOp]] = {u: [] for u in order}
    for u in order:
        for s in dict.fromkeys(u.src):
            consumers[s].append(u)
    # What only sums read is added up where it is computed: it takes no memory of its own, however large it is.
    summed: set[UOp] = set()
    if cost_model.binding_bytes:
        for u in reversed(order):
            if consumers[u] and all(c.op is Op.REDUCE_AXIS or c in summed for c in consumers[u]):
                summed.add(u)

    def stored(u: UOp) -> int:
        return 1 if u in summed else cost_model.bindings((u,))

    real: dict[UOp, None] = {}
    out_set = set(outputs)
    # forward: hard boundaries, reduces with their epilogues, buffer limit
    reduce_of: dict[UOp, UOp | None] = {}
    cost: dict[UOp, int] = {}
    leaves: dict[UOp, frozenset[UOp]] = {}
    none: frozenset[UOp] = frozenset()
    position = {u: n for n, u in enumerate(order)}
    depth: dict[UOp, int] = {}  # reduces on the longest way from an input
    for u in order:
        depth[u] = max([depth[s] for s in u.src], default=0) + (u.op in _NEVER_TWICE)
    rows: set[UOp] = set()  # reduces that need not leave the kernel of their rows
    again: set[UOp] = set()  # EXPANDs of what each kernel that reads them computes for itself
    steps: dict[UOp, int] = {}  # elementwise ops that follow each other in the kernel
    row_of: dict[UOp, UOp] = {}  # of elements of rows that numbers of the row went into: one of those reduces

    def is_row(r: UOp) -> bool:
        if not 0 < row_length(r) <= cost_model.row_fusion:
            return False
        # a body larger than all it reads is a product, and no row
        return any(x.size * 2 > r.src[0].size for x in leaves[r])

    def materialise(u: UOp) -> None:
        # The value itself is kept, not a repeated or shifted view of it. A view that only reorders it, and that is all
        # anybody sees of it, is kept as it is seen: whoever computes it can write it in that order.
        chain = [u]
        while chain[-1].op in MOVEMENT and chain[-1] not in real and chain[-1].op is not Op.PAD:
            chain.append(chain[-1].src[0])
        b = chain[-1]
        if b.op in LEAVES or not b.src:
            return
        if b not in real and _is_widening(b) and b.src[0].src:
            materialise(b.src[0])
            for c in chain:
                reduce_of[c], cost[c], leaves[c] = None, 0, leaves[b.src[0]]
            return
        if b not in real:
            at = top = len(chain) - 1
            while top and chain[top - 1].op in _REORDER and len(consumers[chain[top]]) == 1:
                top -= 1
                if chain[top].op is Op.PERMUTE:
                    at = top
                elif _long_axes(chain[top]) != _long_axes(chain[top].src[0]):
                    break  # split axes put in another order: a product would have to be scattered, not just written
            b = chain[at]
            chain = chain[: at + 1]
        real[b] = None
        for c in chain:
            reduce_of[c], cost[c], leaves[c] = None, 0, frozenset((b,))
            row_of.pop(c, None)

    def repeats_cheaply(u: UOp, number: UOp | None, element: UOp | None) -> bool:
        # whether what u repeats, numbers of rows or elements made with them, is computed again rather than kept
        if element is not None:
            return u.size <= cost_model.repeated_rows and repeats_for_vectors(u, element, consumers)
        if number is None or number not in rows or u.size * row_length(number) > cost_model.repeated_rows:
            return False
        return repeats_beside_vectors(u, number, consumers)

    def converges(u: UOp) -> bool:
        # whether everything made from u, a few elementwise steps on, meets again in one value: then u stays a register
        frontier = {position[c] for c in consumers[u]}
        for _ in range(cost_model.epilogue_steps):
            n = min(frontier)
            if len(frontier) == 1:
                return True
            node = order[n]
            if node in out_set or not (node.op in ALU or node.op in (Op.RESHAPE, Op.PERMUTE)) or node.size != u.size:
                return False
            frontier.remove(n)
            frontier.update(position[c] for c in consumers[node])
            if not frontier:
                return False
        return False

    def within_limit(u: UOp) -> frozenset[UOp]:
        src, own = u.src, stored(u)
        gathered = none.union(*[leaves[s] for s in src])
        while cost_model.bindings(gathered) + own > cost_model.part_buffers:
            widest = max(dict.fromkeys(src), key=lambda s: cost_model.bindings(leaves[s]))
            if len(leaves[widest]) <= 1:
                break
            materialise(widest)
            gathered = none.union(*[leaves[s] for s in src])
        return gathered

    for u in order:
        op = u.op
        if op in LEAVES:
            reduce_of[u], cost[u], leaves[u] = None, 0, frozenset((u,))
            continue
        if not u.src:
            reduce_of[u], cost[u], leaves[u] = None, 0, none
            continue
        src = u.src
        if op is Op.EXPAND:
            s = src[0]
            r = reduce_of[s]
            if r is not None and r in rows and u.size == r.src[0].size and goes_back(u, row_length(r)):
                row_of[u] = r
            elif r is not None or cost[s] > (
                cost_model.expand_cost if leaves[s] or not cost_model.masks else _MASK_COST
            ):
                if repeats_cheaply(u, r, row_of.get(s)):
                    again.add(u)
                else:
                    materialise(s)
            reduce_of[u], cost[u], leaves[u] = None, cost[s], leaves[s]
        elif op is Op.PAD:
            s = src[0]
            if reduce_of[s] is not None:
                materialise(s)
            reduce_of[u], cost[u], leaves[u] = None, cost[s] + 1, leaves[s]
        elif op in MOVEMENT:
            s = src[0]
            reduce_of[u], cost[u], leaves[u] = reduce_of[s], cost[s], leaves[s]
            if op in _REORDER and s in row_of:
                row_of[u] = row_of[s]
        elif op is Op.REDUCE_AXIS:
            s = src[0]
            if reduce_of[s] is not None:
                materialise(s)
            reduce_of[u], cost[u], leaves[u] = u, cost[s] + 1000, leaves[s]
            if cost_model.row_fusion and is_row(u):
                rows.add(u)
        elif op in ALU:
            held = dict.fromkeys(r for s in src if (r := reduce_of[s]) is not None)
            if len(held) > 1 and not (rows.issuperset(held) and len({r.src[0].shape for r in held}) == 1):
                # the last to be known goes on; where kernels run side by side the others are done by then
                keep = max(held, key=lambda r: (depth[r] if cost_model.concurrent else 0, r.src[0].size, -r.size))
                for s in dict.fromkeys(src):
                    r = reduce_of[s]
                    if r is not None and r is not keep:
                        materialise(s)
            if any(s in row_of for s in src):
                for s in src:
                    if reduce_of[s] is not None and reduce_of[s] not in rows:
                        materialise(s)  # a kernel of rows has no other reduces: it would not know its rows any more
            if u.shape:
                for s in src:
                    if not s.shape and (reduce_of[s] is not None or cost[s] > cost_model.expand_cost):
                        materialise(s)  # a scalar that every element would compute again
            gathered = within_limit(u)
            r = None
            for s in src:
                r = r or reduce_of[s]
            reduce_of[u] = r
            cost[u] = min(COST[op] + sum(cost[s] for s in dict.fromkeys(src)), 1 << 20)
            leaves[u] = gathered
            of_row = [row_of[s] for s in src if s in row_of]
            if of_row:
                row_of[u] = of_row[0]
        elif op is Op.GATHER:
            for s in src:
                if reduce_of[s] is not None or cost[s] > cost_model.recompute_cost:
                    materialise(s)
            gathered = within_limit(u)
            reduce_of[u], cost[u], leaves[u] = None, _GATHER_COST + sum(cost[s] for s in src), gathered
        elif op is Op.ARGSORT:
            materialise(src[0])
            real[u] = None
            reduce_of[u], cost[u], leaves[u] = None, 0, frozenset((u,))
        elif op is Op.SEGMENT_SUM:
            materialise(src[1])
            materialise(src[2])
            if reduce_of[src[0]] is not None or cost[src[0]] > 0:
                materialise(src[0])  # rows are read in any order: as they lie in memory
            reduce_of[u], cost[u], leaves[u] = u, 1000, within_limit(u)
        elif op is Op.CONTIGUOUS or op is Op.UPDATE:
            real[u] = None
            reduce_of[u], cost[u], leaves[u] = None, 0, frozenset((u,))
        else:
            raise AssertionError(op)
        if u in out_set:
            real[u] = None
            reduce_of[u], cost[u], leaves[u] = None, 0, frozenset((u,))
        elif reduce_of[u] is not None and reduce_of[u] not in rows and len(consumers[u]) > 1 and not converges(u):
            materialise(u)
        n = (op in ALU) + max([0 if s in real else steps.get(s, 0) for s in src])
        if n > cost_model.kernel_steps:
            materialise(u)
            n = 0
        steps[u] = n
    # backward: which nodes do several kernels want?
    home: dict[UOp, UOp | None] = {}
    for u in reversed(order):
        if u in real:
            home[u] = u
            continue
        homes = dict.fromkeys(home[c] for c in consumers[u])
        home[u] = next(iter(homes)) if len(homes) == 1 else u if u in again else None
    # forward again, with prices that know what is materialised below: keep what is dear to compute in each of them
    for u in order:
        if u.op in LEAVES or not u.src:
            continue
        op, src = u.op, u.src
        own = _GATHER_COST if op is Op.GATHER else 1000 if op in _NEVER_TWICE else COST.get(op, op is Op.PAD)
        read = none.union(*[frozenset((s,)) if s in real else leaves[s] for s in src])
        mine = stored(u)
        while cost_model.bindings(read) + mine > cost_model.part_buffers:
            # what was materialised since the first pass counts beside what it was made of
            widest = max(src, key=lambda s: 0 if s in real else cost_model.bindings(leaves[s]))
            if widest in real or len(leaves[widest]) <= 1:
                break
            materialise(widest)
            read = none.union(*[frozenset((s,)) if s in real else leaves[s] for s in src])
        if u in real:
            continue
        cost[u] = min(own + sum(cost[s] for s in dict.fromkeys(src) if s not in real), 1 << 20)
        leaves[u] = read
        if home[u] is None and (op in ALU or op in _NEVER_TWICE):
            then = u
            while len(consumers[then]) == 1 and (then is u or then.op is Op.RESHAPE):
                then = consumers[then][0]
            same = then is not u and then.op in ALU and then.size == u.size and not _is_widening(then)
            if same and home[then] is None:
                continue  # only one thing is made of it: keep that, if anything
            wide = sum(1 for x in leaves[u] if x.size >= u.size)
            if op in _NEVER_TWICE or cost[u] > cost_model.recompute_cost or wide > cost_model.recompute_loads:
                real[u] = None
    return real


def _is_widening(u: UOp) -> bool:
    """Whether `u` is what a reader makes of fewer bits: they are what is kept."""
    return u.op is Op.CAST and u.dtype.itemsize > u.src[0].dtype.itemsize


def _long_axes(u: UOp) -> list[int]:
    return [n for n in u.shape if n != 1]
