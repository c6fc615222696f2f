"""Kernel graph -> plan: which arrays there are, and in which order they are computed.

A node is evaluated once, at the extents of the dims it depends on; broadcasting supplies the rest. A reduce that fits
a block is computed inside the loop that needs it. A reduce over more than that is accumulated over the blocks of an
earlier loop, and a sum of products becomes a Product; both leave a full array behind.
"""

from __future__ import annotations

import itertools

import numpy as np

from anneal.backend.arrays import NumpyDType, numpy_dtype
from anneal.backend.cpu.analysis import Analysis, Dot, share_ranges, summand
from anneal.backend.cpu.index import LinearIndex, factors_of
from anneal.backend.cpu.loops import LoopBuilder
from anneal.backend.cpu.ops import copy_cast
from anneal.backend.cpu.primitives import CpuPlan, PlanValue, Product, among, bits, mask_of, union
from anneal.uop import Op, Src, UOp, toposort

# A reduce whose body has at most this many elements per row stays inside its consumer's loop.
INLINE = 65_536
# Multiplications in one BLAS call below which its set-up shows.
SMALL_PRODUCT = 1 << 20


def make_plan(sink: UOp) -> CpuPlan:
    """Plan a kernel whose ranges all have constant extents."""
    return Planner(share_ranges(sink)).plan()


class Planner(Analysis):
    """Levels of hoisted reduces, and the phases that compute them."""

    def plan(self) -> CpuPlan:
        """The phases, in order."""
        if not self.empty_loop:
            self._levels()
            self._schedule()
        return CpuPlan(self.order, self.dims, self.phases, self.fulls)

    # -- levels --------------------------------------------------------------------------------------------------
    def _levels(self) -> None:
        """level[u]: how many rounds of hoisted reduces come before u can be computed."""
        self.level: dict[UOp, int] = {}
        self.above = self._above()
        for u in self.nodes:
            n = max([self.level[s] for s in u.src], default=0)
            if u.op is Op.REDUCE and not self.empty(u):
                if (dot := self.dots.get(u)) is not None:
                    after = [self.level[f] for _, f in dot.post if f is not None]
                    n = max([*[self.level[f] + 1 for side in (dot.a, dot.b) for f in side], *after])
                    # the factors applied afterwards may depend on more
                    mask = union(self.sides(dot)) & ~self.over(u)
                    self.hoisted[u] = self.full(numpy_dtype(u.dtype), mask, self._result_order(dot, mask))
                elif not self._inline(u):
                    n += 1
                    self.hoisted[u] = self.full(numpy_dtype(u.dtype), self.mask[u])
            self.level[u] = n

    def _result_order(self, dot: Dot, mask: int) -> list[int]:
        """The layout of a product's result: the loops' own, unless rows or columns that other dims interrupt would
        leave BLAS with many small products. Then it is batch, rows, columns.
        """
        order = among(self.order, mask)
        a, b = self.sides(dot)
        sides = among(order, a & ~b), among(order, b & ~a)
        at = {s: i for i, s in enumerate(order)}
        apart = 1
        for side in sides:
            for before, after in itertools.pairwise(side):
                if at[after] != at[before] + 1:
                    # what comes before the last interruption has to be walked one by one
                    apart *= self.dims.count(side[: side.index(after)])
        if apart == 1:
            return order
        work = self.dims.count(bits(a | b))
        batch = among(order, a & b)
        calls = apart * self.dims.count(batch)
        if work // calls > SMALL_PRODUCT:
            return order
        first, second = sides if sides[1][-1] == order[-1] else (sides[1], sides[0])
        return [*batch, *first, *second]

    def _place(self, s: UOp) -> int:
        """The dims along which a store writes other elements."""
        form = self.place(s)
        return self.mask[s] if form is None else mask_of(form.dims)

    def _above(self) -> dict[UOp, int]:
        """The dims of all that is made of a node."""
        above = {s: self._place(s) for s in self.stores}
        for u in reversed(self.nodes):
            mine = above.setdefault(u, 0) | self.mask[u]
            for x in u.src:
                above[x] = above.get(x, 0) | mine
        return above

    def _inline(self, u: UOp) -> bool:
        over = self.over(u)
        if u in self.windows:
            return not any(self.dims.extent[s] > 1 for s in bits(self.above[u] & ~self.mask[u]))
        first = min((self.rank[s] for s in bits(over)), default=len(self.order))
        body = self.mask[u.src[0]]
        outer = min((self.rank[s] for s in bits(body)), default=len(self.order))
        if any(self.rank[s] < outer and self.dims.extent[s] > 1 for s in bits(self.above[u])):
            return False  # each iteration of an outer loop would sum the same once more
        return self.dims.count(s for s in bits(body) if self.rank[s] >= first) <= INLINE

    # -- phases --------------------------------------------------------------------------------------------------
    def _schedule(self) -> None:
        last = max(self.level[s.src[2]] for s in self.stores)
        self._adopt_outputs()
        for level in range(last + 1):
            targets: dict[int, list[UOp]] = {}
            products = []
            operands: dict[Src, PlanValue] = {}
            for u in self.hoisted:
                dot = self.dots.get(u)
                if dot is not None:
                    if max(self.level[f] for side in (dot.a, dot.b) for f in side) == level:
                        products.append((u, dot))
                elif self.level[u] == level + 1:
                    targets.setdefault(self._reach(summand(u)), []).append(u)
            for key, group in targets.items():
                self._accumulate(key, group)
            for u, dot in products:
                self._product(u, dot, operands)
        self._store_loop()

    def _reach(self, root: UOp) -> int:
        """Dims of everything evaluated to get `root`, up to hoisted values."""
        return union(self.mask[u] for u in toposort((root,), sources=self.inputs))

    def _adopt_outputs(self) -> None:
        """Let products write straight into outputs that their result, or an epilogue over it, goes to."""
        taken = {u.src[0].arg[0] for u in self.loads}
        for store in self.stores:
            form, slot = self.place(store), store.src[0].arg[0]
            if form is None or slot in taken:
                continue
            for u, dot in self.dots.items():
                full = self.hoisted[u]
                if (
                    full.kind == "full"
                    and self.level[u] == self.level[store.src[2]]
                    and self._fits(u, dot, store, form)
                ):
                    full.kind, full.ref, full.offset = "param", slot, form.const
                    if form.dims != full.strides:
                        full.strides = form.dims
                    self.fulls.remove(full)
                    taken.add(slot)
                    break

    def _fits(self, u: UOp, dot: Dot, store: UOp, form: LinearIndex) -> bool:
        full = self.hoisted[u]
        if full.mask != mask_of(form.dims) or full.dtype != numpy_dtype(store.src[0].dtype):
            return False
        bare = store.src[2] is u and not dot.post
        return form.dims == full.strides or (bare and self._is_written_at_once(dot, form.dims))

    def _is_written_at_once(self, dot: Dot, strides: dict[int, int]) -> bool:
        """True if BLAS can write a result of this layout with one call a matrix: rows are one axis, and so are
        columns.
        """
        a, b = self.sides(dot)
        for side in (a & ~b, b & ~a):
            for outer, inner in itertools.pairwise(among(self.order, side)):
                if strides[outer] != strides[inner] * self.dims.extent[inner]:
                    return False
        return 1 in strides.values()

    def _accumulate(self, mask: int, group: list[UOp]) -> None:
        loop = LoopBuilder(self, mask)
        for u in group:
            if u in self.windows:
                for f in factors_of(u):
                    loop.value(f)
                loop.put(loop.fold_taps(u), self.hoisted[u])
            else:
                loop.reduce(u, loop.value(summand(u)), self.hoisted[u])
        loop.finish()

    def _product(self, u: UOp, dot: Dot, operands: dict[Src, PlanValue]) -> None:
        (left, right), over, c = self.sides(dot), self.over(u), self.hoisted[u]
        masks = (left & right & ~over, left & ~right, right & ~left, over)
        batch, m, n, k = [among(self.order, mask) for mask in masks]
        a = self._operand(dot.a, c.dtype, [batch, m, k], operands)
        b = self._operand(dot.b, c.dtype, [batch, k, n], operands)
        # BLAS writes rows: the dim that is innermost in the result belongs to n
        if n and self.rank[m[-1]] > self.rank[n[-1]]:
            a, b, m, n = b, a, n, m
        self.phases.append(Product(a, b, c, batch, m, n, k))

    def _operand(
        self, factors: list[UOp], dtype: NumpyDType, axes: list[list[int]], made: dict[Src, PlanValue]
    ) -> PlanValue:
        first, key = factors[0], tuple(factors)
        if len(factors) == 1 and numpy_dtype(first.dtype) == dtype:
            if first.op is Op.LOAD and (view := self.view(first)) is not None:
                return view
            if first in self.hoisted and first not in self.dots:
                return self.hoisted[first]
        if key in made:
            return made[key]
        loop = LoopBuilder(self, 0)
        value = loop.value(first)
        for f in factors[1:]:
            value = loop.call(np.multiply, value.dtype, value, loop.value(f))
        flat = [s for group in axes for s in group]
        natural = sorted(flat, key=lambda s: self.rank[s])
        # where the innermost axes are neighbours in it, and so are the others but the batch
        at = {s: n for n, s in enumerate(natural)}
        grouped = all(at[g[-1]] - at[g[0]] == len(g) - 1 for g in axes[1:] if g)
        full = self.full(dtype, mask_of(flat), natural if grouped else flat)
        loop.mask = union(map(self._reach, factors))
        loop.put(value, full)
        loop.finish()
        made[key] = full
        return full

    def _store_loop(self) -> None:
        loop = LoopBuilder(self, union(self._place(s) | self._reach(s.src[2]) for s in self.stores))
        written = {s.src[0].arg[0] for s in self.stores}
        for s in self.stores:
            v = loop.value(s.src[2])
            if v.root.kind == "param" and v.root.ref in written and v.root.ref != s.src[0].arg[0]:
                # another store overwrites what this one copies
                loop.memo[s.src[2]] = loop.emit("hold", copy_cast, (v,), v.dtype, False)
        for s in self.stores:
            loop.store(s)
        loop.finish()
