"""A kernel's accesses and sums as arrays: dims, linear indices, masks, products, and the order of axes.

Every RANGE becomes one or more dims (array axes). A reduce range takes over the dim of a loop range of equal extent
when no node sees both, so that the `exp(x - max)` summed by a softmax and the one divided by the sum are one node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, cmp_to_key
from itertools import permutations

from anneal.backend.arrays import NumpyDType, numpy_dtype

from anneal.backend.cpu.index import (  # isort: skip
    LEAST, MOST, Bounds, Dims, LinearIndex, NeedsSplit, Unsettled, box_of, factors_of, forms_of, linear, overlaps,
)  # fmt: skip
from anneal.backend.cpu.primitives import BlockLoop, Pad, PlanValue, Product, among, bits, mask_of, union
from anneal.rewrite import substitute
from anneal.uop import Op, Src, UOp, dtypes, ranks, toposort

# of a sum: multiplied with, divided by, or negated, if there is no node
Factors = list[tuple[Op, UOp | None]]
_WORDS = (dtypes.int32, dtypes.uint32)
# Rows and columns of a matrix below which BLAS gains nothing over a loop.
_VECTOR = 32
# Nanoseconds: NumPy's way from one row of an array to the next, an element that is read or written out of order, an
# element that is not beside the one before it.
_ROW_NS, _ASTRAY_NS, _STEP_NS = 15.0, 1.0, 0.35


@dataclass(slots=True)
class _Load:
    form: LinearIndex
    box: Sequence[Bounds] = ()  # the predicate as bounds, when that is all it is
    predicate: UOp | None = None  # the predicate, when it must be applied to loaded values


@dataclass(slots=True)
class Dot:
    """A sum of products: factors of each side, and what the sum is multiplied with, divided by or negated
    afterwards."""

    a: list[UOp]
    b: list[UOp]
    post: Factors


def share_ranges(sink: UOp) -> UOp:
    """Rename reduce ranges to ranges of equal extent that no node sees together with them."""
    order = toposort(sink)
    ranges = sorted((u for u in order if u.op is Op.RANGE), key=lambda u: u.arg[0])
    reduces = [u for u in ranges if u.arg[1] == "reduce"]
    if not reduces:
        return sink
    together = {u.arg[0]: 0 for u in ranges}
    # also a range that the body of a reduce does not depend on must not become one that it does
    sums = [u.src for u in order if u.op is Op.REDUCE]
    for m in {u.ranges for u in order} | {body.ranges | mask_of(r.arg[0] for r in over) for body, *over in sums}:
        for i in bits(m):
            together[i] |= m
    renamed = {}
    for r in reduces:
        mine = r.arg[0]
        for other in reversed(ranges):
            i = other.arg[0]
            if i >= mine or other in renamed or other.src != r.src or together[mine] >> i & 1:
                continue
            renamed[r] = other
            together[i] |= together[mine]
            for j in bits(together[mine]):
                together[j] |= 1 << i
            break
    return substitute(sink, renamed) if renamed else sink


class Analysis:
    """A kernel whose ranges all have constant extents, while it is planned: its dims, forms, masks and products, the
    phases so far and the arrays that they leave."""

    def __init__(self, sink: UOp, variables: Mapping[int, UOp] | None = None) -> None:
        self.nodes = toposort(sink)
        self.stores = sink.src
        self.dims = Dims()
        self.loads: dict[UOp, _Load] = {}
        self.store_forms: dict[UOp, LinearIndex] = {}  # of stores without a predicate
        self.mask: dict[UOp, int] = {}
        self.dots: dict[UOp, Dot] = {}
        self.windows: dict[UOp, UOp] = {}  # reduces over taps, and the loads whose windows overlap
        self.order: list[int] = []
        self.rank: dict[int, int] = {}
        # reduces that are computed before the loops that want them, and where
        self.hoisted: dict[UOp, PlanValue] = {}
        self.known: dict[UOp, PlanValue] = {}  # fixed values, the same in every loop
        self.views: dict[UOp, PlanValue] = {}
        self.phases: list[BlockLoop | Pad | Product] = []
        self.fulls: list[PlanValue] = []
        for u in self.nodes:
            if u.op is Op.RANGE:
                number, kind = u.arg[:2]
                taken = variables.get(number) if variables else None  # of ranges that a run takes a part of
                self.dims.add(number, int(u.src[0].arg), taken, kind == "variable")
        self.empty_loop = any(u.op is Op.RANGE and u.arg[1] == "loop" and not u.src[0].arg for u in self.nodes)
        if self.empty_loop:
            return
        self._forms()
        self._masks()
        self._find_dots()
        self._order()
        self._merge()

    # -- forms, masks ------------------------------------------------------------------------------------
    def _forms(self) -> None:
        """Linear forms of every index and predicate, splitting dims until they are as linear as they get."""
        indexed = [u for u in self.nodes if u.op in (Op.LOAD, Op.STORE)]
        while True:
            try:
                for u in indexed:
                    if u.op is Op.LOAD:
                        self.loads[u] = self._load(u)
                    elif len(u.src) == 3:
                        self.store_forms[u] = linear(u.src[1], self.dims, opaque=True)
                return
            except NeedsSplit as e:
                self.dims.split(e.dim, e.inner)

    def _load(self, u: UOp) -> _Load:
        form = linear(u.src[1], self.dims, opaque=True)
        if len(u.src) == 2:
            return _Load(form)
        predicate = u.src[2]
        if not form.nodes and not any(n.op is Op.LOAD for n in toposort(predicate)):
            box = box_of(predicate, self.dims)
            if box is not None and all(self._pads(form, b) for b in box):
                return _Load(form, box)
        low, high = self.dims.ends(form.dims)
        if form.nodes or (form.const + low >= 0 and form.const + high < u.src[0].arg[1][0]):
            return _Load(form, (), predicate)
        # The index may leave the buffer where the predicate is false: look elements up one by one, clipped.
        return _Load(LinearIndex(0, {}, {u.src[1]: 1}), (), predicate)

    def place(self, store: UOp) -> LinearIndex | None:
        """The form of a store's index, if it is linear."""
        form = self.store_forms.get(store)
        return None if form is None or form.nodes else form

    @staticmethod
    def _pads(form: LinearIndex, b: Bounds) -> bool:
        """The predicated form enters the index as a whole: index = ... + step * form."""
        steps = {divmod(form.dims.get(s, 0), c) for s, c in b.dims.items()}
        return len(steps) <= 1 and all(r == 0 for _, r in steps)

    def _masks(self) -> None:
        mask = self.mask
        for u in self.nodes:
            if u.op is Op.RANGE:
                m = mask_of(s for s, _ in self.dims.digits[u.arg[0]] if self.dims.varies(s))
            elif u.op is Op.LOAD:
                load = self.loads[u]
                dims = [load.form.dims, *[b.dims for b in load.box]]
                m = union([*map(mask_of, dims), *[mask[n] for n in self.inputs(u)]])
            elif u.op is Op.REDUCE:
                m = mask[u.src[0]] & ~self.over(u)
            else:
                m = union(mask[s] for s in u.src)
            mask[u] = m

    def over(self, u: UOp) -> int:
        """The dims a REDUCE ends."""
        return mask_of(s for r in u.src[1:] for s, _ in self.dims.digits[r.arg[0]] if self.dims.extent[s] > 1)

    def sides(self, dot: Dot) -> tuple[int, int]:
        """The dims of the factors on either side of a product."""
        return union(self.mask[f] for f in dot.a), union(self.mask[f] for f in dot.b)

    # -- sums of products ----------------------------------------------------------------------------------------
    def _find_dots(self) -> None:
        for u in self.nodes:
            if u.op is Op.REDUCE and u.arg is Op.ADD and u.dtype.is_float and not self.empty(u):
                dot = self._dot(u)
                if dot is not None:
                    self.dots[u] = dot
        for u in self.nodes:
            if u.op is Op.REDUCE and (main := self._window(u)) is not None:
                self.dots.pop(u, None)
                self.windows[u] = main

    @cached_property
    def readers(self) -> Counter[UOp]:
        """The number of nodes that read each."""
        return Counter([s for u in self.nodes for s in {*u.src}])

    def empty(self, u: UOp) -> bool:
        return any(r.src[0].arg == 0 for r in u.src[1:])

    def _dot(self, u: UOp) -> Dot | None:
        over, mask = self.over(u), self.mask
        inner = []
        post: Factors = []
        stack = [u.src[0]]
        while stack:
            f = stack.pop()
            if not mask[f] & over:
                post.append((Op.MUL, f))
            elif f.op is Op.MUL:
                stack.extend(f.src)
            elif f.op is Op.NEG:
                post.append((Op.NEG, None))
                stack.append(f.src[0])
            elif f.op is Op.DIV and not mask[f.src[1]] & over:
                post.append((Op.DIV, f.src[1]))
                stack.append(f.src[0])
            else:
                inner.append(f)
        if len(inner) < 2 or over & ~mask[u.src[0]]:
            return None
        inner.sort(key=lambda f: -mask[f].bit_count())
        a_mask = mask[inner[0]]
        second = next((f for f in inner[1:] if mask[f] & ~a_mask and a_mask & ~mask[f]), None)
        if second is None:
            return self._vector_dot(u, inner, post)
        b_mask = mask[second]
        # the second once only: a square brings the same factor twice
        inner.remove(second)
        b = [second, *[f for f in inner if mask[f] & ~a_mask]]
        if over & ~(a_mask & b_mask) or not (a_mask & ~b_mask & ~over and b_mask & ~a_mask & ~over):
            return None
        return None if any(mask[f] & ~b_mask for f in b) else Dot([f for f in inner if f not in b], b, post)

    def _vector_dot(self, u: UOp, inner: list[UOp], post: Factors) -> Dot | None:
        """A matrix-vector product: worth BLAS where the matrix lies in memory and nothing else of the kernel reads it,
        since elementwise work would read it block by block together with that."""
        matrix, *rest = inner
        over, a_mask, b_mask = self.over(u), self.mask[matrix], union(self.mask[f] for f in rest)
        if over & ~(a_mask & b_mask) or not a_mask & ~b_mask & ~over or matrix.op is not Op.LOAD:
            return None
        load = self.loads[matrix]
        rows = self.dims.count(bits(a_mask & ~b_mask & ~over))
        columns = self.dims.count(bits(over))
        if load.form.nodes or load.predicate is not None or load.box or min(rows, columns) < _VECTOR:
            return None
        if max(self.readers[matrix], self.readers[u.src[0]]) > 1:
            return None
        return Dot([matrix], rest, post)

    # -- windows -------------------------------------------------------------------------------------------------
    def taps(self, u: UOp) -> int:
        """The number of places that a reduce over windows folds."""
        return self.dims.count(bits(self.over(u)))

    def _window(self, u: UOp) -> UOp | None:
        """The load with overlapping windows that a reduce is over, unless it is a product of matrices."""
        over, mask, extent = self.over(u), self.mask, self.dims.extent
        if self.taps(u) > MOST or over & ~mask[u.src[0]] or self.dims.count(bits(mask[u])) < LEAST:
            return None
        if not over or u.dtype.kind == "bool":
            return None
        if (dot := self.dots.get(u)) is not None:
            a, b = self.sides(dot)
            if b & ~a:
                return None
        factors = factors_of(u)
        views = [f for f in factors if (x := self.loads.get(f)) and not x.form.nodes and x.predicate is None]
        if any(f not in views and mask[f] & over for f in factors):
            return None
        main = next((f for f in views if overlaps(self.loads[f].form, over, extent)), None)
        if main is None or (len(factors) > 1 and self.readers[u.src[0]] > 1):
            return None
        if not all(map(self.dims.settled, self.loads[main].form.dims)):
            raise Unsettled  # it may be laid out anew: each size has a plan of its own
        return main

    def _window_forms(self, u: UOp) -> Sequence[Bounds] | None:
        """The sums of dims that walk the memory of a reduce's windows: those of its borders, or what the steps tell."""
        load = self.loads[self.windows[u]]
        return load.box or forms_of(load.form, self.over(u), self.dims.top)

    def _innermost(self, u: UOp) -> int | None:
        """The dim to be laid out innermost while the windows of `u` are folded: its rows should be long, and arrays of
        another layout have to be copied.
        """
        extent, main = self.dims.extent, self.windows[u]
        form, forms = self.loads[main].form, self._window_forms(u)
        kept = [s for s in among(self.order, self.mask[u]) if s in form.dims and extent[s] > 1]
        if forms is None or not kept:
            return None
        steps = {s: abs(c) for b in forms for s, c in b.dims.items()}
        # how the kernel walks memory: for each dim the elements of a step, and the number of steps
        accesses = [({s: form.dims[s] for s in kept}, math.prod(extent[s] * steps.get(s, 1) for s in kept))]
        for x in (*[x.form for f, x in self.loads.items() if f is not main], *self.store_forms.values()):
            if not x.nodes and x.dims.keys() >= {*kept}:
                accesses.append((x.dims, self.dims.count(x.dims)))
        elements = self.taps(u) * self.dims.count(kept)

        def nanoseconds(s: int) -> float:
            rows = _ROW_NS * elements / extent[s]
            strided = _STEP_NS * elements * (steps.get(s, 1) > 1)
            turned = [n for dims, n in accesses if min(dims, key=lambda t: abs(dims[t])) != s]
            return rows + strided + _ASTRAY_NS * sum(turned)

        return min(reversed(kept), key=nanoseconds)

    # -- dim order and merging ----------------------------------------------------------------------------------
    def _order(self) -> None:
        """Outermost first, as memory has them: each strided access votes, weighted by its size."""
        votes: Counter[tuple[int, int]] = Counter()
        direct = {f for d in self.dots.values() for side in (d.a, d.b) if len(side) == 1 for f in side}
        accesses = [(x.form, self.dims.count(bits(self.mask[u]))) for u, x in self.loads.items() if u not in direct]
        stored = [(form, 4 * self.dims.count(form.dims)) for form in self.store_forms.values()]
        for form, weight in (*accesses, *stored):
            for (a, step), (b, other) in permutations(form.dims.items(), 2):
                if abs(step) > abs(other):
                    votes[a, b] += weight

        def compare(a: int, b: int) -> int:
            return votes[b, a] - votes[a, b] or a - b

        self.order = sorted(bits(union(self.mask.values())), key=cmp_to_key(compare))
        if self.windows:
            inner = self._innermost(max(self.windows, key=lambda u: self.dims.count(bits(self.mask[u]))))
            if inner is not None:
                self.order.append(self.order.pop(self.order.index(inner)))

    def _merge(self) -> None:
        """Make one dim of neighbours that every access walks as one."""
        extent, mask = self.dims.extent, self.mask
        loads = self.loads.values()
        apart = mask_of([*self.dims.limits, *self.dims.points])
        apart |= union([mask_of(x.form.dims) for x in loads if x.form.nodes])
        apart |= union([mask_of(b.dims) for x in loads for b in x.box])
        forms = [form.dims for form in (*[x.form for x in loads], *self.store_forms.values())]
        # a range used as a number, and not only inside linear indices, keeps its own dims
        roots = [u.src[2] for u in self.stores]
        for u in self.stores:
            if self.place(u) is None:
                roots += (u.src[1], *u.src[3:])
        for u in toposort(roots, sources=self.inputs):
            if u.op is Op.RANGE:
                apart |= mask[u]
        overs = {self.over(u) for u in self.nodes if u.op is Op.REDUCE}
        kept: list[int] = []
        for dim in self.order:
            if kept and not (apart >> dim & 1) and not (apart >> kept[-1] & 1):
                a = kept[-1]
                same = all((m >> a & 1) == (m >> dim & 1) for m in overs)
                if same and all(f.get(a, 0) == f.get(dim, 0) * extent[dim] for f in forms):
                    kept[-1] = dim
                    extent[dim] *= extent[a]
                    self.dims.top[dim] = extent[dim] - 1
                    self._forget(a)
                    overs = {m & ~(1 << a) for m in overs}
                    continue
            kept.append(dim)
        self.order = kept
        self.rank = ranks(kept)

    def _forget(self, a: int) -> None:
        keep = ~(1 << a)
        for u in self.mask:
            self.mask[u] &= keep
        for form in (*[x.form for x in self.loads.values()], *self.store_forms.values()):
            form.dims.pop(a, None)
        for digits in self.dims.digits.values():
            digits[:] = [d for d in digits if d[0] != a]

    def inputs(self, u: UOp) -> Src:
        """The nodes whose values `u` needs."""
        if u.op is Op.RANGE:
            return ()
        if u.op is Op.LOAD:
            load = self.loads[u]
            return (*load.form.nodes, load.predicate) if load.predicate is not None else tuple(load.form.nodes)
        if u in self.hoisted:
            dot = self.dots.get(u)
            return () if dot is None else tuple([f for _, f in dot.post if f is not None])
        if u in self.windows:
            return factors_of(u)
        if u.op is Op.REDUCE:
            return () if self.empty(u) else (summand(u),)
        return u.src

    # -- the arrays that are planned so far: arguments as strided views, padded ones, scratch for the whole kernel

    def full(self, dtype: NumpyDType, mask: int, order: Sequence[int] | None = None) -> PlanValue:
        """Scratch for the whole kernel, an array over the dims of `mask`, whose axes lie in `order`."""
        v = PlanValue("full", dtype, mask)
        size = 1
        for s in reversed(among(self.order, mask) if order is None else order):
            v.strides[s] = size if s not in self.dims.points else 0  # a variable's value is no place in it
            size *= self.dims.extent[s]
        v.size = size
        self.fulls.append(v)
        return v

    def view(self, u: UOp) -> PlanValue | None:
        """A load as a strided view, padded if it must be; None if elements have to be looked up or masked."""
        found = self.views.get(u)
        if found is not None:
            return found
        load = self.loads[u]
        if load.form.nodes or load.predicate is not None:
            return None
        view = PlanValue("param", numpy_dtype(u.dtype), self.mask[u], u.slot, load.form.dims, load.form.const)
        reduce = next((r for r in self.windows if u in factors_of(r)), None)
        if reduce is not None:
            view = self._windowed(view, load.box, reduce, u)
        elif load.box:
            view = self._pad(view, load.box)
        self.views[u] = view
        return view

    def _windowed(self, view: PlanValue, box: Sequence[Bounds], reduce: UOp, u: UOp) -> PlanValue:
        """A factor of a window: with its borders, and the axis innermost that the loops have innermost."""
        main = self.windows[reduce] is u
        forms = self._window_forms(reduce) if main else box
        kept = [s for s in among(self.order, self.mask[reduce]) if self.dims.extent[s] > 1]
        steps = {s: abs(view.strides[s]) for s in among(kept, view.mask)}
        inner = kept[-1] if kept else -1
        lies = inner not in steps or steps[inner] == (min(steps.values()) if main else 1)
        if forms is None or (lies and not box):
            return self._pad(view, box) if box else view
        return self._pad(view, forms, kept)

    def _pad(self, view: PlanValue, box: Sequence[Bounds], kept: Sequence[int] = ()) -> PlanValue:
        """Copy the allowed part of `view` into a zeroed array that has one axis per predicated form: as they lie in the
        source, or in the order of the dims `kept`, of which each axis has one."""
        extent = self.dims.extent
        if not all(map(self.dims.settled, view.strides)):
            raise Unsettled
        predicated = mask_of(s for b in box for s in b.dims)
        # axis: (step in the source, length, first, last+1 allowed, form)
        axes = []
        free = [Bounds({s: 1}, 0, extent[s]) for s in view.strides if not predicated >> s & 1]
        empty = not all(b.dims for b in box)
        for b in (*free, *[b for b in box if b.dims]):
            low, high = self.dims.ends(b.dims)
            s0, c0 = next(iter(b.dims.items()))
            first, last = max(b.low, low), min(b.high, high + 1)
            empty |= first >= last
            axes.append((view.strides.get(s0, 0) // c0, high + 1 - low, low, first, last, b.dims))
        at = ranks(kept)
        # where an axis has several of the dims, or none, they stay as in the source
        axes.sort(key=lambda a: (max([at.get(s, -1) for s in a[5]], default=-1), -abs(a[0])))
        out = PlanValue("full", view.dtype, view.mask)
        whole, interior = (PlanValue("full", view.dtype, 0) for _ in range(2))
        source = PlanValue("param", view.dtype, 0, view.ref, offset=view.offset)
        extents = {}
        size = 1
        for i, (step, length, low, first, last, form) in reversed([*enumerate(axes)]):
            interior.strides[i] = size
            interior.offset += (first - low) * size
            source.strides[i] = step
            source.offset += first * step
            extents[i] = max(0, last - first)
            for s, c in form.items():
                out.strides[s] = c * size
            out.offset -= low * size
            size *= length
        whole.size = size
        whole.strides = {0: 1}
        self.fulls.append(whole)
        out.ref = interior.ref = whole
        if empty:
            extents = {}
        self.phases.append(Pad(whole, interior, source, extents))
        return out


def summand(u: UOp) -> UOp:
    """The body of a reduce, of which a sum in int64 reads integers of 32 bits as they are."""
    x = u.src[0]
    wide = u.arg is Op.ADD and u.dtype is dtypes.int64 and x.op is Op.CAST and x.src[0].dtype in _WORDS
    return x.src[0] if wide else x
