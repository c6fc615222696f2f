"""Kernel graph -> plan: which arrays there are, in which order they are computed, and the instructions of each loop.

A node is evaluated once, at the extents of the dims it depends on; broadcasting supplies the rest. A reduce that fits
a block is computed inside the loop that needs it. A reduce over more than that is accumulated over the blocks of an
earlier loop, and a sum of products becomes a Product; both leave a full array behind.
"""

from __future__ import annotations

import itertools
import math
from functools import partial, reduce

import numpy as np

from anneal.backend.arrays import MEANINGS, Array, NumpyDType, numpy_dtype
from anneal.backend.cpu.analysis import Analysis, Dot, share_ranges, summand
from anneal.backend.cpu.index import LinearIndex, Unsettled, factors_of
from anneal.backend.cpu.ops import Emitter, copy_cast, lower, negated

from anneal.backend.cpu.primitives import (  # isort: skip
    EXTRA, WORDS, BlockLoop, CpuPlan, Instr, PlanValue, Product, among, bits, fit, mask_of, once, put, reduce_calls,
    scatter, take, take_rows, tap_calls, union,
)  # fmt: skip
from anneal.uop import FITS, Op, Src, UOp, const, dtypes, ranks, reduce_identity, toposort

# A reduce whose body has at most this many elements per row stays inside its consumer's loop.
INLINE = 65_536
# Multiplications in one BLAS call below which its set-up shows.
SMALL_PRODUCT = 1 << 20


# -- one loop: nodes become instructions that run once for every block -------------------------------------------------


_INDEX = np.dtype(np.int64)


def _clamp(u: UOp) -> tuple[UOp, int, int]:
    """(x, low, high) where the integer `u` is min(max(x, low), high)."""
    bounds = []
    while u.op in (Op.MAX, Op.MIN) and (number := next((s for s in u.src if s.is_const), None)) is not None:
        bounds.append((max if u.op is Op.MAX else min, number.arg))
        u = u.src[u.src[0] is number]
    low, high = int(u.dtype.min), int(u.dtype.max)
    for f, n in reversed(bounds):
        low, high = f(low, n), f(high, n)
    return u, low, high


def _flat(u: UOp) -> PlanValue:
    """The memory of a load or a store as it lies, of which elements are looked up."""
    return PlanValue("param", numpy_dtype(u.src[0].dtype), 0, u.slot, {-1: 1})


class LoopBuilder(Emitter):
    """Records the instructions of one block."""

    def __init__(self, planner: Analysis, mask: int) -> None:
        super().__init__(planner.dims.top)
        self.p = planner
        self.mask = mask
        self.whole = 0
        self.folded = 0  # dims that are folded place by place
        self.memo: dict[UOp, PlanValue] = {}

    # -- nodes
    def value(self, root: UOp) -> PlanValue:
        p, memo = self.p, self.memo
        for u in toposort(root, memo.__contains__, lambda u: () if u in p.known else p.inputs(u)):
            if u in p.known:
                memo[u] = p.known[u]
            elif u not in memo:
                v = memo[u] = self._node(u)
                if v.kind == "fixed":
                    p.known[u] = v
        return memo[root]

    def _node(self, u: UOp) -> PlanValue:
        p, op, memo = self.p, u.op, self.memo
        if op is Op.CONST:
            return self.const(numpy_dtype(u.dtype), u.arg)
        if op is Op.RANGE:
            return self._range(u)
        if op is Op.LOAD:
            return self._loaded(u)
        if op is Op.REDUCE:
            if p.empty(u):
                return self.const(numpy_dtype(u.dtype), reduce_identity(u.arg, u.dtype))
            if u in p.hoisted:
                return self._hoisted(u)
            if u in p.windows:
                return self.fold_taps(u)
            return self._scaled(u, self.reduce(u, memo[summand(u)]))
        if op is Op.CAST and u.tag is not None and u.tag[0] == FITS:
            x = memo[u.src[0]]
            out = PlanValue("temp", numpy_dtype(u.dtype), x.mask)  # in each run: also of what is known while compiling
            self.instrs.append(Instr("fits", once(partial(fit, u.tag)), [x], out))
            return out
        return lower(self, op, u.dtype, [s.dtype for s in u.src], [memo[s] for s in u.src])

    def _axis(self, s: int, array: Array) -> Array:
        shape = [1] * len(self.p.order)
        shape[self.p.rank[s]] = -1
        return array.reshape(shape)

    def _range(self, u: UOp) -> PlanValue:
        p = self.p
        total = np.zeros((1,) * len(p.order), np.int32)
        mask = 0
        for s, weight in p.dims.digits[u.arg[0]]:
            if p.dims.varies(s):
                total = total + self._axis(s, np.arange(p.dims.top[s] + 1, dtype=np.int32) * np.int32(weight))
                mask |= 1 << s
        if not mask:
            return self.const(np.dtype(np.int32), 0)
        return PlanValue("fixed", np.dtype(np.int32), mask, total)

    def _loaded(self, u: UOp) -> PlanValue:
        p = self.p
        view = p.view(u)
        if view is not None:
            return view
        load = p.loads[u]
        dtype = numpy_dtype(u.dtype)
        if not load.form.nodes:
            mask = mask_of(load.form.dims)
            v = PlanValue("param", dtype, mask, u.slot, load.form.dims, load.form.const)
        else:
            v = self._gather(u, load.form, dtype)
            if load.predicate is not None and self.instrs[-1].out is v and self.instrs[-1].name == "take_rows":
                predicate, index = self.memo[load.predicate], self.instrs[-1].ins[1]
                if predicate.mask == index.mask and predicate.kind != "const":
                    # most often every row is in range: look before masking
                    self.instrs[-1].ins.append(predicate)
                    return v
        if load.predicate is not None:
            predicate = self.memo[load.predicate]
            v = lower(
                self, Op.WHERE, u.dtype, [load.predicate.dtype, u.dtype, u.dtype], [predicate, v, self.const(dtype, 0)]
            )
        return v

    def _gather(self, u: UOp, form: LinearIndex, dtype: NumpyDType) -> PlanValue:
        flat = _flat(u)
        if table := self._table(u, form):
            index = self.cast(self.memo[next(iter(form.nodes))], _INDEX)
            out = PlanValue("temp", dtype, index.mask | table.mask)
            self.instrs.append(Instr("take_rows", take_rows, [table, index], out))
            return out
        terms = []
        for node, c in form.nodes.items():
            term = self.cast(self.memo[node], _INDEX)
            terms.append(term if c == 1 else self.call(np.multiply, _INDEX, term, self.const(_INDEX, c)))
        for s, c in form.dims.items():
            axis = self._axis(s, np.arange(self.p.dims.top[s] + 1, dtype=np.int64) * c)
            terms.append(PlanValue("fixed", _INDEX, 1 << s, axis))
        if form.const:
            terms.append(self.const(_INDEX, form.const))
        total = reduce(partial(self.call, np.add, _INDEX), terms)
        out = PlanValue("temp", dtype, total.mask)
        self.instrs.append(Instr("take", take, [flat, total], out))
        return out

    def _table(self, u: UOp, form: LinearIndex) -> PlanValue | None:
        """The memory of a load with an axis more, from one value of the index's node to the next. None if not each of
        its values is asked for at all places of the other dims, or much more would be copied than is asked for."""
        p, size, asked = self.p, u.src[0].size, self.p.loads[u].predicate
        if len(form.nodes) != 1 or form.const or not all(map(p.dims.settled, form.dims)):
            return None
        ((node, step),) = form.nodes.items()
        looked, mask, extent = p.mask[node], mask_of(form.dims), p.dims.extent
        if mask & looked or not (mask and looked) or (asked is not None and p.mask[asked] & ~looked):
            return None
        count = (size - 1 - sum(c * (extent[s] - 1) for s, c in form.dims.items())) // step + 1
        inner, few = 1, count <= 4 * math.prod([extent[s] for s in bits(looked)])
        for c, n in sorted([(c, extent[s]) for s, c in form.dims.items()]):
            if c < 1 or not (few or (c == inner and c < step)):
                return None
            inner *= n
        if not few and inner != step:
            return None
        self.whole |= mask_of([s for s, c in form.dims.items() if c < step])
        return PlanValue("param", numpy_dtype(u.dtype), mask, u.src[0].arg[0], {**form.dims, EXTRA: step}, 0, count)

    def _hoisted(self, u: UOp) -> PlanValue:
        p = self.p
        v = p.hoisted[u]
        dot = p.dots.get(u)
        if dot is None:
            return self._scaled(u, v)
        for op, factor in dot.post:
            if factor is None:
                v = negated(self, v.dtype, v)
            else:
                f = np.multiply if op is Op.MUL else np.true_divide
                other = self.memo[factor]
                if other.dtype != v.dtype:
                    other = self.cast(other, v.dtype)
                v = self.call(f, v.dtype, v, other)
        return v

    def _scaled(self, u: UOp, v: PlanValue) -> PlanValue:
        """Account for ranges that the body does not depend on: n equal terms."""
        p = self.p
        digits = [s for r in u.src[1:] for s, _ in p.dims.digits[r.arg[0]] if not p.mask[u.src[0]] >> s & 1]
        if not all(map(p.dims.settled, digits)):
            raise Unsettled
        times = p.dims.count(digits)
        if times == 1 or v.dtype == np.bool_ or u.arg not in (Op.ADD, Op.MUL):
            return v
        if u.arg is Op.MUL:
            return self.call(np.power, v.dtype, v, self.const(v.dtype, times))
        wrapped = const(u.dtype, times).arg if u.dtype.is_int else times
        return self.call(np.multiply, v.dtype, v, self.const(v.dtype, wrapped))

    def reduce(self, u: UOp, body: PlanValue, into: PlanValue | None = None) -> PlanValue:
        """Reduce `body` over u's ranges: to a temporary, or accumulating over blocks into `into`."""
        p = self.p
        over = p.over(u) & body.mask
        dtype = _INDEX if body.dtype in WORDS and u.dtype is dtypes.int64 else body.dtype
        out = PlanValue("temp", dtype, body.mask & ~over) if into is None else into
        if not over and into is None:
            return body if dtype is body.dtype else self.cast(body, dtype)
        if into is None:
            self.whole |= over
        op = u.arg
        axes = tuple([p.rank[s] for s in among(p.order, over)])
        build = partial(reduce_calls, op, axes) if over else copy_cast
        name = f"reduce_{op.name.lower()}"
        self.instrs.append(Instr(name, build, [body], out, False, None if into is None else MEANINGS[op], over))
        return out

    def fold_taps(self, u: UOp) -> PlanValue:
        """Reduce over a window, place by place."""
        p = self.p
        ins = [self.memo[f] for f in factors_of(u)]
        over = p.over(u)
        out = PlanValue("temp", ins[0].dtype, union(v.mask for v in ins) & ~over)
        self.whole |= over
        self.folded |= over
        axes = tuple([p.rank[s] for s in among(p.order, over)])
        name = f"taps_{u.arg.name.lower()}"
        self.instrs.append(Instr(name, partial(tap_calls, u.arg, axes), ins, out, passes=len(ins) * p.taps(u)))
        return out

    def store(self, s: UOp) -> None:
        form = self.p.place(s)
        value = self.value(s.src[2])
        param = s.slot
        dtype = numpy_dtype(s.src[0].dtype)
        if form is not None:
            target = PlanValue("param", dtype, mask_of(form.dims), param, form.dims, form.const)
            if value.kind == "param" and value.ref == param and value.strides == target.strides:
                if value.offset == target.offset and value.dtype == dtype:
                    return
            self.put(value, target)
            return
        if self._put(s, value):
            return
        ins = [self.value(s.src[1]), value, *map(self.value, s.src[3:])]
        self.instrs.append(Instr("scatter", once(scatter), ins, _flat(s)))

    def _put(self, s: UOp, value: PlanValue) -> bool:
        """Store into a strided view that begins where a number says, if that is all that is looked up."""
        p = self.p
        form = p.store_forms.get(s)
        if form is None or any(p.mask[n] for n in form.nodes) or mask_of(form.dims) != value.mask:
            return False
        clamped = [(*_clamp(node), c) for node, c in form.nodes.items()]
        flat = _flat(s)
        self.whole |= value.mask
        steps = tuple([form.dims.get(dim, 0) for dim in p.order])
        terms = [(low, high, c) for _, low, high, c in clamped]
        numbers = [self.value(node) for node, *_ in clamped]
        self.instrs.append(Instr("put", partial(put, steps, form.const, terms), [value, *numbers], flat))
        return True

    def put(self, value: PlanValue, target: PlanValue) -> None:
        """Redirect the instruction that makes `value` to write into `target`, or append a copy."""
        root = value.root
        if root.kind == "temp" and value.dtype == target.dtype and value.mask == target.mask:
            at = next(i for i in range(len(self.instrs) - 1, -1, -1) if self.instrs[i].out is root)
            hazard = target.kind == "param" and any(
                v.root.kind == "param" and v.root.ref == target.ref
                for later in self.instrs[at + 1 :]
                for v in (*later.ins, later.out)
            )
            # memory that is written many times has the innermost axis of the loops innermost
            inner = [s for s in among(self.p.order, target.mask) if self.p.dims.extent[s] > 1][-1:]
            lies_alike = all(target.strides.get(s) == 1 for s in inner)
            if not hazard and (self.instrs[at].passes == 1 or lies_alike):
                root.kind, root.strides, root.offset = target.kind, target.strides, target.offset
                root.ref = target.ref if target.kind == "param" else target
                return
        self.instrs.append(Instr("copy", copy_cast, [value], target))

    def finish(self) -> None:
        if self.instrs:
            instrs = self._live()
            gone = self.folded & ~union(i.out.mask | i.over for i in instrs)  # no array of a block has these
            self.p.phases.append(BlockLoop(instrs, self.mask & ~gone, self.whole & ~gone))

    def _live(self) -> list[Instr]:
        """Only what some output needs: work shared by folding may have left dead instructions."""
        needed: set[int] = set()
        out = []
        for i in reversed(self.instrs):
            root = i.out.root
            if root.kind != "temp" or id(root) in needed:
                out.append(i)
                needed.update(id(v.root) for v in i.ins)
        out.reverse()
        return out


# -- the plan ---------------------------------------------------------------------------------------------------------


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
        at = ranks(order)
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
        body = self.mask[u.src[0]]
        first, outer = (min([self.rank[s] for s in bits(m)], default=len(self.order)) for m in (over, body))
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
        return union(self.mask[u] for u in toposort(root, sources=self.inputs))

    def _adopt_outputs(self) -> None:
        """Let products write straight into outputs that their result, or an epilogue over it, goes to."""
        taken = {u.slot for u in self.loads}
        for store in self.stores:
            form, slot = self.place(store), store.slot
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
        at = ranks(natural)
        grouped = all(at[g[-1]] - at[g[0]] == len(g) - 1 for g in axes[1:] if g)
        full = self.full(dtype, mask_of(flat), natural if grouped else flat)
        loop.mask = union(map(self._reach, factors))
        loop.put(value, full)
        loop.finish()
        made[key] = full
        return full

    def _store_loop(self) -> None:
        loop = LoopBuilder(self, union(self._place(s) | self._reach(s.src[2]) for s in self.stores))
        written = {s.slot for s in self.stores}
        for s in self.stores:
            v = loop.value(s.src[2])
            if v.root.kind == "param" and v.root.ref in written and v.root.ref != s.slot:
                # another store overwrites this store's source: copy it first
                loop.memo[s.src[2]] = loop.emit("hold", copy_cast, (v,), v.dtype, False)
        for s in self.stores:
            loop.store(s)
        loop.finish()
