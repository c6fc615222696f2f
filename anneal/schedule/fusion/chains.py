"""Chains of contractions: a product of matrices that other products read element by element need not be stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from anneal.schedule.cost_model import CostModel
from anneal.schedule.fusion.facts import LEAVES, NEVER_TWICE, Consumers, base, long_axes, sums_products
from anneal.schedule.fusion.groups import FusionGroup, Owner, depends
from anneal.schedule.fusion.materialisation import Materialised, Reason
from anneal.uop import ALU, MOVEMENT, DType, Nodes, Op, UOp, dtypes, toposort
from anneal.uop.sizes import most, product

_WIDEST = 256  # elements of a row of q and k: what is summed for one element of the scores
_ROWS = 16  # results' rows, for each workgroup that a device is to have: a workgroup sums for 64 rows and more alone
_SMALL = 64  # what is so many times smaller than the scores may be read where it was to be stored


def find_chains(
    order: Nodes, outputs: Collection[UOp], consumers: Consumers, materialised: Materialised, costs: CostModel
) -> frozenset[UOp]:
    """The nodes inside of chains, which leave `materialised`; reductions of them that are read again enter it.

        s = q @ k.T        p = f(s, ...)        o = p @ v

    Attention is such a chain, and so is its gradient. `s`, the scores, has an element for each pair of positions: far
    more than `q`, `k`, `v` and `o` have together. A kernel that sums over one axis of `s` can compute a tile of `s`
    again, apply `f`, and go on with the product. Memory is then linear in the length of the sequence, for the price of
    the arithmetic.

    A chain is made of scores, all of one size, and of the elementwise work between them and what reads it: contractions
    with something else, and reductions over one axis, whose results are stored (the maximum and the sum of a softmax).
    """
    found = set()
    tried = set()
    for u in order if costs.chained_bytes or costs.matrix_bytes or costs.buffer_bytes else ():
        if u not in tried and is_score(u) and _is_large(u, costs):
            chain = _Chain(u, outputs, consumers, materialised)
            tried |= chain.scores
            if chain.is_whole() and (chain.rows() >= costs.parallel * _ROWS or _exceeds(u, costs)):
                found |= chain.inside
                for x in (*chain.inside, *chain.scaled()):
                    materialised.pop(x, None)
                for x in chain.summed():
                    materialised[x] = Reason.CHAINED
                for r in chain.statistics:
                    if not _is_stored(r, materialised, consumers):
                        materialised[r] = Reason.CHAINED
    return frozenset(found)


def is_score(u: UOp) -> bool:
    """True if `u` sums products over few elements, and has many more elements than what it is made of."""
    factors = factors_of(u)
    if factors is None or not u.dtype.is_float:
        return False
    depth = u.src[0].shape[u.arg[1][0]]
    return isinstance(depth, int) and 8 <= depth <= _WIDEST and all(2 * x.size <= u.size for x in factors)


def _exceeds(score: UOp, costs: CostModel) -> bool:
    """True if no buffer of the device holds the scores."""
    return 0 < costs.buffer_bytes < score.size * score.dtype.itemsize


def _is_large(score: UOp, costs: CostModel) -> bool:
    """True if scores take so much memory that computing them again is better."""
    narrow = all(is_made_of(s, dtypes.float16) for s in score.src[0].src)
    least = costs.matrix_bytes if narrow and costs.matrix_bytes else costs.chained_bytes
    return 0 < least <= score.size * score.dtype.itemsize or _exceeds(score, costs)


def is_made_of(factor: UOp, dtype: DType) -> bool:
    """True if a factor is made of numbers of a narrow dtype, perhaps times a number for each row."""
    factor = base(factor, (*MOVEMENT, Op.MUL, Op.DIV))
    return factor.op is Op.CAST and factor.src[0].dtype is dtype


def factors_of(u: UOp) -> tuple[UOp, UOp] | None:
    """The two values of whose repetitions a contraction over one axis sums the products."""
    if not sums_products(u) or len(u.arg[1]) != 1:
        return None
    found = []
    for s in u.src[0].src:
        s = base(s, (Op.CAST,))
        if s.op is not Op.EXPAND:
            return None
        found.append(s.src[0])
    return found[0], found[1]


def _within(u: UOp, chain: Collection[UOp]) -> Nodes:
    """The factors of a contraction that a chain computes, or that only cast what it computes."""
    return [f for f in factors_of(u) or () if any(x in chain for x in (f, *f.src))]


def _is_stored(u: UOp, materialised: Mapping[UOp, Reason], consumers: Consumers) -> bool:
    """True if `u`, or what alone is made of it, is materialised."""
    while u not in materialised:
        if len(consumers[u]) != 1 or not (consumers[u][0].op in ALU or consumers[u][0].op is Op.RESHAPE):
            return False
        u = consumers[u][0]
    return True


class _Chain:
    """The chain that the scores `first` are part of: `inside` are the nodes that are not to be stored."""

    def __init__(
        self, first: UOp, outputs: Collection[UOp], consumers: Consumers, materialised: Mapping[UOp, Reason]
    ) -> None:
        self.outputs, self.consumers, self.materialised = outputs, consumers, materialised
        self.size = first.size
        self.scores = {first}
        self.inside = {first}
        self.statistics: dict[UOp, None] = {}
        self.products: dict[UOp, None] = {}
        self.stack = [first]

    def is_whole(self) -> bool:
        """True if contractions and reductions alone read the chain, and at least one contraction does."""
        while self.stack:
            x = self.stack.pop()
            if x in self.outputs or not all(self.takes(x, c) for c in self.consumers[x] if c not in self.inside):
                return False
            if x not in self.scores:
                for s in x.src:
                    self.look_above(s)
        return bool(self.products) and all(len(_within(p, self.inside)) == 1 for p in self.products)

    def rows(self) -> int:
        """The fewest rows of results that any of the contractions has: they are computed side by side."""
        found = []
        for p in self.products:
            (factor,) = _within(p, self.inside)
            wide = [most(n) for n, m in zip(p.src[0].shape, factor.shape, strict=True) if m != n]
            found.append(int(p.size) // int(product(wide)))
        return min(found)

    def takes(self, x: UOp, c: UOp) -> bool:
        """Take in `c`, which reads `x`; False if it needs `x` in memory."""
        if c.op is Op.REDUCE_AXIS and len(c.arg[1]) == 1:
            self.statistics[c] = None
            return True
        if c.op is Op.EXPAND:
            found = self.products_of(c)
            self.products.update(dict.fromkeys(found))
            return bool(found)
        if c.size != self.size or not (c.op in ALU or (c.op is Op.RESHAPE and long_axes(c) == long_axes(x))):
            return False
        self.inside.add(c)
        self.stack.append(c)
        return True

    def products_of(self, expand: UOp) -> Nodes:
        """The contractions that read the repetitions of a value; none if anything else does."""
        found = []
        stack = list(self.consumers[expand])
        while stack:
            c = stack.pop()
            if c.op is Op.CAST:
                stack += self.consumers[c]
            elif c.op is Op.MUL and all(factors_of(r) is not None for r in self.consumers[c]):
                found += self.consumers[c]
            else:
                return []
        return found

    def look_above(self, u: UOp) -> None:
        """Take in the scores, and what indices and small values alone decide, that `u` is made of."""
        stack = [u]
        while stack:
            s = stack.pop()
            if s in self.inside or s in self.outputs or s.size != self.size or s.op in LEAVES:
                continue
            if is_score(s):
                self.scores.add(s)
                self.inside.add(s)
                self.stack.append(s)
            elif s.op in ALU or s.op is Op.RESHAPE:
                if s in self.materialised:
                    if not self.is_small(s):
                        continue
                    self.inside.add(s)
                    self.stack.append(s)
                stack += s.src

    def scaled(self) -> Iterator[UOp]:
        """Factors of the chain that are narrow values times a number for each row: computed where they are read, so
        that what is multiplied are the narrow values, and the numbers go to the scores."""
        for u in (*self.scores, *self.products):
            for f in factors_of(u) or ():
                f = base(f, (Op.RESHAPE,))
                if f.op in (Op.MUL, Op.DIV) and f in self.materialised and f not in self.outputs:
                    x, y = f.src
                    if x.op is Op.CAST and x.src[0].dtype.is_narrow and y.op is Op.EXPAND:
                        yield f

    def summed(self) -> Iterator[UOp]:
        """Factors that hold a reduction, or the scaled part of one: a kernel of a chain has no other reductions."""
        for u in (*self.scores, *self.products):
            for f in factors_of(u) or ():
                f = base(f)
                if f in self.inside or f in self.materialised and f.op not in (Op.MUL, Op.DIV):
                    continue
                if f.op in (Op.MUL, Op.DIV) and f.src[0].op is Op.CAST and f not in self.materialised:
                    f = f.src[0].src[0]
                if self.holds_a_reduction(f):
                    yield f

    def holds_a_reduction(self, u: UOp) -> bool:
        """True if the kernel that computes `u` reduces something."""
        within = toposort(u, lambda s: s in self.materialised or s in self.inside or s.op in LEAVES)
        return any(s.op in NEVER_TWICE for s in within)

    def is_small(self, u: UOp) -> bool:
        """True if `u` is made of indices and small values alone, as the mask of a dropout is."""
        seen = {u}
        stack = [u]
        while stack:
            for s in stack.pop().src:
                if s in seen:
                    continue
                seen.add(s)
                if s.op is Op.REDUCE_AXIS or s.op is Op.GATHER or (s.op in LEAVES and s.size * _SMALL > u.size):
                    return False
                stack.append(s)
        return True


# -- kernels ----------------------------------------------------------------------------------------------------------


def join_chained(groups: list[FusionGroup], owner: Owner) -> list[FusionGroup]:
    """`groups` with those joined that sum over the same axis of the same chain for results of one shape: they compute
    the scores once."""
    kept: list[FusionGroup] = []
    for g in groups:
        h = next((h for h in kept if g.chained and _fit(g, h) and not depends((g,), {h}, owner)), None)
        if h is None:
            kept.append(g)
            continue
        assert g.chained is not None
        assert h.chained is not None
        h.roots, h.inputs = h.roots + g.roots, {**h.inputs, **g.inputs}
        h.chained = (h.chained[0] | g.chained[0], g.chained[1])
        owner.update(dict.fromkeys(g.roots, h))
    return kept


def _fit(g: FusionGroup, h: FusionGroup) -> bool:
    """True if two kernels sum over the same axis of scores that one of them computes anyway, for alike results."""
    if h.chained is None or g.chained is None or g.chained[1] != h.chained[1]:
        return False
    a, b, x, y = g.chained[0], h.chained[0], g.roots[0], h.roots[0]
    return (a <= b or b <= a) and long_axes(x) == long_axes(y) and x.dtype is y.dtype


def chained_over(inside_kernel: Nodes, chained: Collection[UOp]) -> tuple[frozenset[UOp], int] | None:
    """The scores that a kernel of these nodes computes, and the axis of theirs over which it sums; None if it computes
    none."""
    scores = frozenset([u for u in inside_kernel if u in chained and factors_of(u) is not None])
    if not scores:
        return None
    axes = set()
    for u in inside_kernel:
        if u.op is Op.REDUCE_AXIS and u not in scores:
            (value, *_) = (*_within(u, chained), u.src[0])
            long = [a for a, n in enumerate(u.src[0].shape) if n != 1 and value.shape[a] != 1]
            axes.add(long.index(u.arg[1][0]) if u.arg[1][0] in long else -1)
    return scores, axes.pop() if len(axes) == 1 else -1
