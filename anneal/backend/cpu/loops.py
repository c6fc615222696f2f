"""One loop of a plan: nodes become instructions that run once for every block."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from anneal.backend.arrays import MEANINGS, Array, NumpyDType, numpy_dtype
from anneal.backend.cpu.analysis import Analysis, summand
from anneal.backend.cpu.index import LinearIndex, Unsettled, factors_of
from anneal.backend.cpu.ops import Emitter, copy_cast, lower, negated

from anneal.backend.cpu.primitives import (  # isort: skip
    WORDS, BlockLoop, Instr, PlanValue, among, bits, fit, mask_of, once, put, reduce_calls, scatter, take,
    take_rows, tap_calls, union,
)  # fmt: skip
from anneal.uop import FITS, Op, UOp, const, dtypes, reduce_identity, toposort

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
    return PlanValue("param", numpy_dtype(u.src[0].dtype), 0, u.src[0].arg[0], {-1: 1})


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
        for u in toposort((root,), memo.__contains__, lambda u: () if u in p.known else p.inputs(u)):
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
        total: Array = np.zeros((1,) * len(p.order), np.int32)
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
            v = PlanValue("param", dtype, mask, u.src[0].arg[0], load.form.dims, load.form.const)
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
        rows = self._rows(form, u.src[0].size)
        if rows is not None:
            node, width = rows
            index = self.cast(self.memo[node], _INDEX)
            self.whole |= mask_of(form.dims)
            out = PlanValue("temp", dtype, index.mask | mask_of(form.dims))
            self.instrs.append(Instr("take_rows", partial(take_rows, width), [flat, index], out))
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

    def _rows(self, form: LinearIndex, size: int) -> tuple[UOp, int] | None:
        """index = node * width + position in a row, with the row's dims innermost and contiguous."""
        p = self.p
        if len(form.nodes) != 1 or form.const or not form.dims or not all(map(p.dims.settled, form.dims)):
            return None
        ((node, width),) = form.nodes.items()
        inner = sorted(form.dims, key=lambda s: p.rank[s])
        step = 1
        for s in reversed(inner):
            if form.dims[s] != step:
                return None
            step *= p.dims.extent[s]
        first = p.rank[inner[0]]
        if step != width or size % width or any(p.rank[s] >= first for s in bits(p.mask[node])):
            return None
        return node, width

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
        instr = Instr(name, build, [body], out, False, None if into is None else MEANINGS[op], over)
        self.instrs.append(instr)
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
        p = self.p
        form = p.place(s)
        value = self.value(s.src[2])
        param = s.src[0].arg[0]
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
        ins = [self.value(s.src[1]), value]
        if len(s.src) > 3:
            ins.append(self.value(s.src[3]))
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
            held = union(i.out.mask | i.over for i in instrs)
            gone = self.folded & ~held  # no array of a block has these
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
