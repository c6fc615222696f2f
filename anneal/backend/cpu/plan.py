"""Kernel graph -> plan: which arrays there are, in which order they are computed, and how the work is cut into blocks.

Every RANGE becomes one or more slots (array axes). A node is evaluated once, at the extents of the slots it depends on;
broadcasting supplies the rest. A reduce range takes over the slot of a loop range of equal extent when no node sees
both, so that the `exp(x - max)` summed by a softmax and the one divided by the sum are one node.

A plan is a list of phases:

    Pad      copy a gated load into a zero-bordered array, of which the gated reads are plain strided views
    Loop     elementwise work and small reduces, block by block so that temporaries stay in cache
    Product  one sum of products by BLAS

A reduce that fits a block is computed inside the loop that needs it. A reduce over more than that is accumulated over
the blocks of an earlier loop, and a sum of products becomes a Product; both leave a full array behind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key, partial
from typing import Any

import numpy as np

from anneal.backend.cpu.index import Bounds, Linear, NeedsSplit, NotLinear, Slots, box_of, linear
from anneal.backend.cpu.ops import Array, Build, EagerEmitter, Emitter, lower
from anneal.backend.device import numpy_dtype
from anneal.uop import DType, Op, UOp, const, toposort

__all__ = ["Instr", "Loop", "Pad", "Plan", "Product", "Value", "identity", "make_plan", "regroup", "use_lane"]

# Elements of one block: temporaries of this size stay in the second-level cache.
BLOCK = 98_304
# A reduce whose body has at most this many elements per row stays inside its consumer's loop.
INLINE = 65_536
# Multiplications in one BLAS call below which its set-up shows.
SMALL_PRODUCT = 1 << 20
# What is known while compiling is stored up to this size, and recomputed per block above it.
FIXED = 1 << 18

_INDEX = np.dtype(np.int64)
_F16 = np.dtype(np.float16)
_F32 = np.dtype(np.float32)
_BLAS = (np.dtype(np.float32), np.dtype(np.float64))


class Value:
    """An array of the plan. `kind`:

    const   a scalar; `ref` is a 0-d array
    fixed   known while compiling; `ref` is the array, one axis per slot
    param   a strided view of kernel argument `ref`, from element `offset`
    full    scratch that lives for the whole kernel, `size` elements; a strided view of it
    temp    scratch of one block, in a register that is reused once nobody needs it
    bits    another value's memory under another dtype; `ref` is that value
    """

    __slots__ = ("dtype", "kind", "mask", "offset", "ref", "register", "size", "strides")

    def __init__(self, kind: str, dtype: np.dtype[Any], mask: int, ref: Any = None) -> None:
        self.kind, self.dtype, self.mask, self.ref = kind, dtype, mask, ref
        self.strides: dict[int, int] = {}
        self.offset = 0
        self.size = 0
        self.register = -1

    @property
    def root(self) -> Value:
        """The value that owns the memory."""
        v = self
        while v.kind == "bits":
            v = v.ref
        return v


@dataclass(slots=True)
class Instr:
    """One primitive: `build(inputs, output)` gives the calls. `fold`, for a reduce accumulated over blocks, combines
    a block's result with what is there, over the reduced slots `over`."""

    name: str
    build: Build
    ins: list[Value]
    out: Value
    inplace: bool = True
    fold: Callable[..., Any] | None = None
    over: int = 0


@dataclass(slots=True)
class Loop:
    """Instructions run once for every block; `whole` are slots that must not be cut."""

    instrs: list[Instr]
    mask: int
    whole: int


@dataclass(slots=True)
class Pad:
    """out[...] = 0, then out's interior = source."""

    out: Value
    interior: Value
    source: Value
    extents: dict[int, int]


@dataclass(slots=True)
class Product:
    """c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]; each a list of slots in array order."""

    a: Value
    b: Value
    c: Value
    batch: list[int]
    m: list[int]
    n: list[int]
    k: list[int]


@dataclass(slots=True)
class Plan:
    """`order` lists the slots outermost first: the axes of every array. `extent` is indexed by slot."""

    order: list[int]
    extent: list[int]
    phases: list[Loop | Pad | Product]
    fulls: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class _Load:
    form: Linear
    box: list[Bounds] | None  # the gate as bounds, when that is all it is
    gate: UOp | None  # the gate, when it must be applied to loaded values
    mask: int = 0


@dataclass(slots=True)
class _Dot:
    a: list[UOp]
    b: list[UOp]
    post: list[tuple[Op, UOp | None]]
    a_mask: int
    b_mask: int
    value: Value | None = None
    dtype: np.dtype[Any] = _F32


def identity(op: Op, dtype: DType) -> Any:
    """What a reduce over nothing gives."""
    if op is Op.ADD:
        return 0
    if op is Op.MUL:
        return 1
    return dtype.min if op is Op.MAX else dtype.max


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _mask_of(slots: Iterable[int]) -> int:
    m = 0
    for s in slots:
        m |= 1 << s
    return m


# -- sharing slots ---------------------------------------------------------------------------------------------------


def share_ranges(sink: UOp) -> UOp:
    """Rename reduce ranges to ranges of equal extent that no node sees together with them."""
    order = toposort((sink,))
    ranges = sorted((u for u in order if u.op is Op.RANGE), key=lambda u: u.arg[0])
    reduces = [u for u in ranges if u.arg[1] == "reduce"]
    if not reduces:
        return sink
    together: dict[int, int] = {u.arg[0]: 0 for u in ranges}
    sights = {u.ranges for u in order}
    for u in order:
        if u.op is Op.REDUCE:
            # also a range that the body does not depend on must not become one that it does
            sights.add(u.src[0].ranges | _mask_of(r.arg[0] for r in u.src[1:]))
    for m in sights:
        for i in _bits(m):
            together[i] |= m
    renamed: dict[UOp, UOp] = {}
    for r in reduces:
        mine = r.arg[0]
        for other in reversed(ranges):
            i = other.arg[0]
            if i >= mine or other in renamed or other.src != r.src or together[mine] >> i & 1:
                continue
            renamed[r] = other
            together[i] |= together[mine]
            for j in _bits(together[mine]):
                together[j] |= 1 << i
            break
    if not renamed:
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        if u in renamed:
            new[u] = renamed[u]
        elif u.src:
            new[u] = u.replace(src=tuple([new[s] for s in u.src]))
        else:
            new[u] = u
    return new[sink]


# -- the planner -----------------------------------------------------------------------------------------------------


def make_plan(sink: UOp) -> Plan:
    """Plan a kernel whose ranges all have constant extents."""
    return _Planner(share_ranges(sink)).plan()


class _Planner:
    def __init__(self, sink: UOp) -> None:
        self.nodes = toposort((sink,))
        self.stores = sink.src
        self.slots = Slots()
        self.loads: dict[UOp, _Load] = {}
        self.store_forms: dict[UOp, Linear | None] = {}
        self.mask: dict[UOp, int] = {}
        self.dots: dict[UOp, _Dot] = {}
        self.order: list[int] = []
        self.rank: dict[int, int] = {}
        self.level: dict[UOp, int] = {}
        self.hoisted: dict[UOp, Value] = {}
        self.known: dict[UOp, Value] = {}  # fixed values, the same in every loop
        self.views: dict[UOp, Value] = {}
        self.phases: list[Loop | Pad | Product] = []
        self.fulls: list[Value] = []

    def plan(self) -> Plan:
        self._ranges()
        if any(u.op is Op.RANGE and u.arg[1] == "loop" and not u.src[0].arg for u in self.nodes):
            return Plan([], self.slots.extent, [])
        self._forms()
        self._masks()
        self._find_dots()
        self._order()
        self._merge()
        self._levels()
        self._schedule()
        return Plan(self.order, self.slots.extent, self.phases, self.fulls)

    # -- ranges, forms, masks ------------------------------------------------------------------------------------
    def _ranges(self) -> None:
        for u in self.nodes:
            if u.op is Op.RANGE:
                self.slots.add(u.arg[0], int(u.src[0].arg))

    def _forms(self) -> None:
        """Linear forms of every index and gate, splitting slots until they are as linear as they get."""
        indexed = [u for u in self.nodes if u.op in (Op.LOAD, Op.STORE)]
        while True:
            try:
                for u in indexed:
                    if u.op is Op.STORE:
                        try:
                            self.store_forms[u] = None if len(u.src) > 3 else linear(u.src[1], self.slots)
                        except NotLinear:
                            self.store_forms[u] = None
                    else:
                        self.loads[u] = self._load(u)
                return
            except NeedsSplit as e:
                self.slots.split(e.slot, e.inner)

    def _load(self, u: UOp) -> _Load:
        form = linear(u.src[1], self.slots, opaque=True)
        if len(u.src) == 2:
            return _Load(form, None, None)
        gate = u.src[2]
        if not form.nodes and not _reads(gate):
            box = box_of(gate, self.slots)
            if box is not None and all(self._pads(form, b) for b in box):
                return _Load(form, box, None)
        if form.nodes or (self._low(form) >= 0 and self._high(form) < u.src[0].arg[1][0]):
            return _Load(form, None, gate)
        # The index may leave the buffer where the gate is false: look elements up one by one, clipped.
        return _Load(Linear(0, {}, {u.src[1]: 1}), None, gate)

    def _low(self, form: Linear) -> int:
        return form.const + sum(min(0, c * (self.slots.extent[s] - 1)) for s, c in form.slots.items())

    def _high(self, form: Linear) -> int:
        return form.const + sum(max(0, c * (self.slots.extent[s] - 1)) for s, c in form.slots.items())

    @staticmethod
    def _pads(form: Linear, b: Bounds) -> bool:
        """The gated form enters the index as a whole: index = ... + step * form."""
        steps = {divmod(form.slots.get(s, 0), c) for s, c in b.slots.items()}
        return len(steps) <= 1 and all(r == 0 for _, r in steps)

    def _masks(self) -> None:
        mask, extent = self.mask, self.slots.extent
        for u in self.nodes:
            if u.op is Op.RANGE:
                m = _mask_of(s for s, _ in self.slots.digits[u.arg[0]] if extent[s] > 1)
            elif u.op is Op.LOAD:
                load = self.loads[u]
                m = _mask_of(load.form.slots)
                for n in load.form.nodes:
                    m |= mask[n]
                if load.gate is not None:
                    m |= mask[load.gate]
                for b in load.box or ():
                    m |= _mask_of(b.slots)
                load.mask = m
            elif u.op is Op.REDUCE:
                m = mask[u.src[0]] & ~self._over(u)
            else:
                m = 0
                for s in u.src:
                    m |= mask[s]
            mask[u] = m

    def _over(self, u: UOp) -> int:
        """The slots a REDUCE ends."""
        return _mask_of(s for r in u.src[1:] for s, _ in self.slots.digits[r.arg[0]] if self.slots.extent[s] > 1)

    # -- sums of products ----------------------------------------------------------------------------------------
    def _find_dots(self) -> None:
        for u in self.nodes:
            if u.op is Op.REDUCE and u.arg is Op.ADD and u.dtype.is_float and not self._empty(u):
                dot = self._dot(u)
                if dot is not None:
                    self.dots[u] = dot

    def _empty(self, u: UOp) -> bool:
        return any(r.src[0].arg == 0 for r in u.src[1:])

    def _dot(self, u: UOp) -> _Dot | None:
        over, mask = self._over(u), self.mask
        inner: list[UOp] = []
        post: list[tuple[Op, UOp | None]] = []
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
        first = inner[0]
        a_mask = mask[first]
        second = next((f for f in inner[1:] if mask[f] & ~a_mask and a_mask & ~mask[f]), None)
        if second is None:
            return None
        b_mask = mask[second]
        a, b = [first], [second]
        # the second once only: a square brings the same factor twice
        inner.remove(second)
        for f in inner[1:]:
            if not mask[f] & ~a_mask:
                a.append(f)
            elif not mask[f] & ~b_mask:
                b.append(f)
            else:
                return None
        if over & ~(a_mask & b_mask) or not (a_mask & ~b_mask & ~over and b_mask & ~a_mask & ~over):
            return None
        dtype = numpy_dtype(u.dtype)
        return _Dot(a, b, post, a_mask, b_mask, None, _F32 if dtype == _F16 else dtype)

    # -- slot order and merging ----------------------------------------------------------------------------------
    def _order(self) -> None:
        """Outermost first, as memory has them: each strided access votes, weighted by its size."""
        extent = self.slots.extent
        n = len(extent)
        votes = [[0] * n for _ in range(n)]
        direct = {f for d in self.dots.values() for side in (d.a, d.b) if len(side) == 1 for f in side}
        for u, load in self.loads.items():
            if u not in direct:
                self._vote(votes, load.form, math.prod(extent[s] for s in _bits(load.mask)))
        for form in self.store_forms.values():
            if form is not None:
                self._vote(votes, form, 4 * math.prod(extent[s] for s in form.slots))
        used = 0
        for m in self.mask.values():
            used |= m
        for form in self.store_forms.values():
            used |= _mask_of(form.slots) if form is not None else 0

        def compare(a: int, b: int) -> int:
            return votes[b][a] - votes[a][b] or a - b

        self.order = sorted(_bits(used), key=cmp_to_key(compare))

    @staticmethod
    def _vote(votes: list[list[int]], form: Linear, weight: int) -> None:
        terms = [(abs(c), s) for s, c in form.slots.items()]
        for i, (ca, a) in enumerate(terms):
            for cb, b in terms[i + 1 :]:
                if ca > cb:
                    votes[a][b] += weight
                elif cb > ca:
                    votes[b][a] += weight

    def _merge(self) -> None:
        """Make one slot of neighbours that every access walks as one."""
        extent, mask = self.slots.extent, self.mask
        apart = 0
        forms: list[dict[int, int]] = []
        for load in self.loads.values():
            forms.append(load.form.slots)
            if load.form.nodes:
                apart |= _mask_of(load.form.slots)
            for b in load.box or ():
                apart |= _mask_of(b.slots)
        for u in self.store_forms:
            form = self.store_forms[u]
            if form is not None:
                forms.append(form.slots)
        # a range used as a number, and not only inside linear indices, keeps its own slots
        stack = [u.src[2] for u in self.stores]
        for u, form in self.store_forms.items():
            if form is None:
                stack.extend((u.src[1], *u.src[3:]))
        seen = set(stack)
        while stack:
            u = stack.pop()
            if u.op is Op.RANGE:
                apart |= mask[u]
            for s in self._inputs(u):
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
        overs = {self._over(u) for u in self.nodes if u.op is Op.REDUCE}
        kept: list[int] = []
        for slot in self.order:
            if kept and not (apart >> slot & 1) and not (apart >> kept[-1] & 1):
                a = kept[-1]
                same = all((m >> a & 1) == (m >> slot & 1) for m in overs)
                if same and all(f.get(a, 0) == f.get(slot, 0) * extent[slot] for f in forms):
                    kept[-1] = slot
                    extent[slot] *= extent[a]
                    self._forget(a)
                    overs = {m & ~(1 << a) for m in overs}
                    continue
            kept.append(slot)
        self.order = kept
        self.rank = {s: i for i, s in enumerate(kept)}

    def _forget(self, a: int) -> None:
        keep = ~(1 << a)
        for u in self.mask:
            self.mask[u] &= keep
        for load in self.loads.values():
            load.form.slots.pop(a, None)
            load.mask &= keep
        for form in self.store_forms.values():
            if form is not None:
                form.slots.pop(a, None)
        for d in self.dots.values():
            d.a_mask &= keep
            d.b_mask &= keep
        for digits in self.slots.digits.values():
            digits[:] = [d for d in digits if d[0] != a]

    # -- levels --------------------------------------------------------------------------------------------------
    def _levels(self) -> None:
        """level[u]: how many rounds of hoisted reduces come before u can be computed."""
        for u in self.nodes:
            n = 0
            for s in u.src:
                n = max(n, self.level[s])
            if u.op is Op.REDUCE and not self._empty(u):
                if u in self.dots:
                    n = max(self.level[f] for side in (self.dots[u].a, self.dots[u].b) for f in side) + 1
                    for _, f in self.dots[u].post:
                        n = max(n, self.level[f] if f is not None else 0)
                    dot = self.dots[u]
                    # the factors applied afterwards may depend on more
                    mask = (dot.a_mask | dot.b_mask) & ~self._over(u)
                    self.hoisted[u] = self._full(dot.dtype, mask, self._result_order(dot, mask))
                elif not self._inline(u):
                    n += 1
                    wide = numpy_dtype(u.dtype)
                    self.hoisted[u] = self._full(_F32 if wide == _F16 else wide, self.mask[u])
            self.level[u] = n

    def _result_order(self, dot: _Dot, mask: int) -> list[int]:
        """How a product's result lies: as the loops have it, unless rows or columns that other slots interrupt would
        leave BLAS with many small products. Then batch, rows and columns lie one after another."""
        extent = self.slots.extent
        order = [s for s in self.order if mask >> s & 1]
        both = dot.a_mask & dot.b_mask
        sides = [[s for s in order if not both >> s & 1 and side >> s & 1] for side in (dot.a_mask, dot.b_mask)]
        at = {s: i for i, s in enumerate(order)}
        apart = 1
        for side in sides:
            for before, after in itertools.pairwise(side):
                if at[after] != at[before] + 1:
                    # what comes before the last interruption has to be walked one by one
                    apart *= math.prod(extent[s] for s in side[: side.index(after)])
        if apart == 1:
            return order
        work = math.prod(extent[s] for s in _bits(dot.a_mask | dot.b_mask))
        batch = [s for s in order if both >> s & 1]
        calls = apart * math.prod(extent[s] for s in batch)
        if work // calls > SMALL_PRODUCT:
            return order
        first, second = sides if sides[1][-1] == order[-1] else (sides[1], sides[0])
        return [*batch, *first, *second]

    def _inline(self, u: UOp) -> bool:
        over = self._over(u)
        first = min((self.rank[s] for s in _bits(over)), default=len(self.order))
        body = self.mask[u.src[0]]
        return math.prod(self.slots.extent[s] for s in _bits(body) if self.rank[s] >= first) <= INLINE

    def _full(self, dtype: np.dtype[Any], mask: int, order: Sequence[int] | None = None) -> Value:
        v = Value("full", dtype, mask)
        size = 1
        for s in reversed(order if order is not None else [s for s in self.order if mask >> s & 1]):
            v.strides[s] = size
            size *= self.slots.extent[s]
        v.size = size
        self.fulls.append(v)
        return v

    # -- phases --------------------------------------------------------------------------------------------------
    def _schedule(self) -> None:
        last = max(self.level[s.src[2]] for s in self.stores)
        self._adopt_outputs()
        for level in range(last + 1):
            targets: dict[int, list[UOp]] = {}
            products: list[tuple[UOp, _Dot]] = []
            operands: dict[tuple[UOp, ...], Value] = {}
            for u, value in self.hoisted.items():
                dot = self.dots.get(u)
                if dot is not None:
                    if max(self.level[f] for side in (dot.a, dot.b) for f in side) == level:
                        products.append((u, dot))
                elif self.level[u] == level + 1:
                    del value
                    targets.setdefault(self._reach(u.src[0]), []).append(u)
            for key, group in targets.items():
                self._accumulate(key, group)
            for u, dot in products:
                self._product(u, dot, operands)
            if level == last:
                self._store_loop()

    def _reach(self, root: UOp) -> int:
        """Slots of everything evaluated to get `root`, up to hoisted values."""
        m = 0
        seen = {root}
        stack = [root]
        while stack:
            u = stack.pop()
            m |= self.mask[u]
            for s in self._inputs(u):
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
        return m

    def _inputs(self, u: UOp) -> tuple[UOp, ...]:
        """The nodes whose values `u` needs."""
        if u.op is Op.RANGE:
            return ()
        if u.op is Op.LOAD:
            load = self.loads[u]
            return (*load.form.nodes, load.gate) if load.gate is not None else tuple(load.form.nodes)
        if u in self.hoisted:
            dot = self.dots.get(u)
            return () if dot is None else tuple([f for _, f in dot.post if f is not None])
        if u.op is Op.REDUCE:
            return () if self._empty(u) else (u.src[0],)
        return u.src

    def _adopt_outputs(self) -> None:
        """Let a product write straight into the output that its result, or an epilogue over it, goes to."""
        if len(self.stores) != 1:
            return
        store = self.stores[0]
        form = self.store_forms[store]
        loaded = {u.src[0].arg[0] for u in self.loads}
        last = self.level[store.src[2]]
        if form is None or form.nodes or store.src[0].arg[0] in loaded:
            return
        for u, dot in self.dots.items():
            full = self.hoisted[u]
            if self.level[u] == last and full.mask == _mask_of(form.slots) and form.slots == full.strides:
                if dot.dtype == numpy_dtype(store.src[0].dtype):
                    full.kind, full.ref, full.offset = "param", store.src[0].arg[0], form.const
                    self.fulls.remove(full)
                    return

    def _accumulate(self, mask: int, group: list[UOp]) -> None:
        loop = _LoopBuilder(self, mask)
        for u in group:
            body = loop.value(u.src[0])
            body = loop.widen(body)
            loop.reduce(u, body, self.hoisted[u])
        loop.finish()

    def _product(self, u: UOp, dot: _Dot, operands: dict[tuple[UOp, ...], Value]) -> None:
        over = self._over(u)
        both = dot.a_mask & dot.b_mask

        def slots(m: int) -> list[int]:
            return [s for s in self.order if m >> s & 1]

        batch, k = slots(both & ~over), slots(over)
        m, n = slots(dot.a_mask & ~both), slots(dot.b_mask & ~both)
        a = self._operand(dot.a, dot, dot.a_mask, [batch, m, k], operands)
        b = self._operand(dot.b, dot, dot.b_mask, [batch, k, n], operands)
        c = self.hoisted[u]
        # BLAS writes rows: the slot that is innermost in the result belongs to n
        if self.rank[m[-1]] > self.rank[n[-1]]:
            a, b, m, n = b, a, n, m
        self.phases.append(Product(a, b, c, batch, m, n, k))

    def _operand(
        self, factors: list[UOp], dot: _Dot, mask: int, axes: list[list[int]], made: dict[tuple[UOp, ...], Value]
    ) -> Value:
        if len(factors) == 1 and factors[0].op is Op.LOAD and numpy_dtype(factors[0].dtype) == dot.dtype:
            view = self._view(factors[0])
            if view is not None:
                return view
        if len(factors) == 1 and factors[0] in self.hoisted and factors[0] not in self.dots:
            if self.hoisted[factors[0]].dtype == dot.dtype:
                return self.hoisted[factors[0]]
        key = tuple(factors)
        if key in made:
            return made[key]
        loop = _LoopBuilder(self, 0)
        value = loop.value(factors[0])
        for f in factors[1:]:
            value = loop.call(np.multiply, value.dtype, value, loop.value(f))
        flat = [s for group in axes for s in group]
        natural = sorted(flat, key=lambda s: self.rank[s])
        full = self._full(dot.dtype, mask, natural if _grouped(natural, axes) else flat)
        loop.mask = 0
        for f in factors:
            loop.mask |= self._reach(f)
        loop.put(value, full)
        loop.finish()
        made[key] = full
        return full

    def _store_loop(self) -> None:
        mask = 0
        for s in self.stores:
            form = self.store_forms[s]
            mask |= self._reach(s.src[2]) | (_mask_of(form.slots) if form is not None else self.mask[s])
        loop = _LoopBuilder(self, mask)
        written = {s.src[0].arg[0] for s in self.stores}
        for s in self.stores:
            v = loop.value(s.src[2])
            if v.root.kind == "param" and v.root.ref in written and v.root.ref != s.src[0].arg[0]:
                # another store overwrites what this one copies
                loop.memo[s.src[2]] = loop.emit("hold", _copy_cast, (v,), v.dtype, False)
        for s in self.stores:
            loop.store(s)
        loop.finish()

    def _view(self, u: UOp) -> Value | None:
        """A load as a strided view, padded if it must be; None if elements have to be looked up or masked."""
        found = self.views.get(u)
        if found is not None:
            return found
        load = self.loads[u]
        if load.form.nodes or load.gate is not None:
            return None
        view = Value("param", numpy_dtype(u.dtype), load.mask, u.src[0].arg[0])
        view.offset = load.form.const
        view.strides = load.form.slots
        if load.box is not None:
            view = self._pad(view, load.box)
        self.views[u] = view
        return view

    def _pad(self, view: Value, box: list[Bounds]) -> Value:
        """Copy the allowed part of `view` into a zeroed array that has one axis per gated form."""
        extent = self.slots.extent
        gated = _mask_of(s for b in box for s in b.slots)
        # axis: (step in the source, length, first, last+1 allowed, form)
        axes: list[tuple[int, int, int, int, int, dict[int, int]]] = []
        for s, c in view.strides.items():
            if not gated >> s & 1:
                axes.append((c, extent[s], 0, 0, extent[s], {s: 1}))
        empty = False
        for b in box:
            if not b.slots:
                empty = True
                continue
            low = sum(min(0, c * (extent[s] - 1)) for s, c in b.slots.items())
            high = sum(max(0, c * (extent[s] - 1)) for s, c in b.slots.items()) + 1
            s0, c0 = next(iter(b.slots.items()))
            first, last = max(b.low, low), min(b.high, high)
            empty |= first >= last
            axes.append((view.strides.get(s0, 0) // c0, high - low, low, first, last, b.slots))
        axes.sort(key=lambda a: -abs(a[0]))
        out = Value("full", view.dtype, view.mask)
        whole, interior, source = (
            Value("full", view.dtype, 0),
            Value("full", view.dtype, 0),
            Value("param", view.dtype, 0),
        )
        source.ref, source.offset = view.ref, view.offset
        extents: dict[int, int] = {}
        size = 1
        for i in range(len(axes) - 1, -1, -1):
            step, length, low, first, last, form = axes[i]
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


def _grouped(order: list[int], axes: list[list[int]]) -> bool:
    """The innermost axis group is contiguous in `order`, and so are the others but the batch."""
    last = [g for g in axes[1:] if g]
    at = {s: i for i, s in enumerate(order)}
    return all(at[g[-1]] - at[g[0]] == len(g) - 1 for g in last)


def _reads(u: UOp) -> bool:
    return any(n.op is Op.LOAD for n in toposort((u,)))


# -- one loop --------------------------------------------------------------------------------------------------------

_EAGER = EagerEmitter()


class _LoopBuilder(Emitter[Value]):
    """Records the instructions of one block."""

    def __init__(self, planner: _Planner, mask: int) -> None:
        self.p = planner
        self.mask = mask
        self.whole = 0
        self.instrs: list[Instr] = []
        self.memo: dict[UOp, Value] = {}
        self.same: dict[tuple[Any, ...], Value] = {}

    # -- Emitter
    def emit(self, name: str, build: Build, ins: Sequence[Value], dtype: np.dtype[Any], inplace: bool = True) -> Value:
        mask = 0
        for v in ins:
            mask |= v.mask
        key = (name, dtype, *map(id, ins))
        found = self.same.get(key)
        if found is not None:
            return found
        if all(v.kind in ("const", "fixed") for v in ins):
            if math.prod(self.p.slots.extent[s] for s in _bits(mask)) <= FIXED:
                array = _EAGER.emit(name, build, [v.ref for v in ins], dtype)
                out = Value("fixed" if mask else "const", dtype, mask, array if mask else array.reshape(()))
                self.same[key] = out
                # keep the inputs alive: the key names them by id
                self.same[("keep", id(out))] = out
                self._keep(ins)
                return out
        out = Value("temp", dtype, mask)
        self.instrs.append(Instr(name, build, list(ins), out, inplace))
        self.same[key] = out
        return out

    def _keep(self, values: Sequence[Value]) -> None:
        for v in values:
            self.same[("keep", id(v))] = v

    def const(self, dtype: np.dtype[Any], value: Any) -> Value:
        key = ("const", dtype, repr(value))
        found = self.same.get(key)
        if found is None:
            found = self.same[key] = Value("const", dtype, 0, np.array(value).astype(dtype))
        return found

    def bits(self, value: Value, dtype: np.dtype[Any]) -> Value:
        if value.dtype == dtype:
            return value
        key = ("bits", dtype, id(value))
        found = self.same.get(key)
        if found is not None:
            return found
        if value.root.dtype == dtype:
            return value.root
        if value.kind in ("const", "fixed"):
            found = Value(value.kind, dtype, value.mask, value.ref.view(dtype))
        else:
            found = Value("bits", dtype, value.mask, value.root)
        self.same[key] = found
        self._keep((value,))
        return found

    def fixed(self, value: Value) -> bool:
        return value.kind in ("const", "fixed")

    def zero(self, value: Value) -> bool:
        return value.kind == "const" and not any(value.ref.tobytes())

    # -- nodes
    def value(self, root: UOp) -> Value:
        p, memo = self.p, self.memo
        stack = [root]
        while stack:
            u = stack[-1]
            if u in memo:
                stack.pop()
                continue
            if u in p.known:
                memo[u] = p.known[u]
                continue
            todo = [s for s in p._inputs(u) if s not in memo]
            if todo:
                stack.extend(reversed(todo))
                continue
            stack.pop()
            v = memo[u] = self._node(u)
            if v.kind == "fixed":
                p.known[u] = v
        return memo[root]

    def _node(self, u: UOp) -> Value:
        p, op, memo = self.p, u.op, self.memo
        if op is Op.CONST:
            return self.const(numpy_dtype(u.dtype), u.arg)
        if op is Op.RANGE:
            return self._range(u)
        if op is Op.LOAD:
            return self._loaded(u)
        if op is Op.REDUCE:
            if p._empty(u):
                return self.const(numpy_dtype(u.dtype), identity(u.arg, u.dtype))
            if u in p.hoisted:
                return self._hoisted(u)
            return self._scaled(u, self.reduce(u, self.widen(memo[u.src[0]])))
        return lower(self, op, u.dtype, [s.dtype for s in u.src], [memo[s] for s in u.src])

    def _axis(self, s: int, array: Array) -> Array:
        shape = [1] * len(self.p.order)
        shape[self.p.rank[s]] = -1
        return array.reshape(shape)

    def _range(self, u: UOp) -> Value:
        p = self.p
        total: Array = np.zeros((1,) * len(p.order), np.int32)
        mask = 0
        for s, weight in p.slots.digits[u.arg[0]]:
            if p.slots.extent[s] > 1:
                total = total + self._axis(s, np.arange(p.slots.extent[s], dtype=np.int32) * np.int32(weight))
                mask |= 1 << s
        if not mask:
            return self.const(np.dtype(np.int32), 0)
        return Value("fixed", np.dtype(np.int32), mask, total)

    def _loaded(self, u: UOp) -> Value:
        p = self.p
        view = p._view(u)
        if view is not None:
            return view
        load = p.loads[u]
        dtype = numpy_dtype(u.dtype)
        if not load.form.nodes:
            v = Value("param", dtype, _mask_of(load.form.slots), u.src[0].arg[0])
            v.offset, v.strides = load.form.const, load.form.slots
        else:
            v = self._gather(u, load.form, dtype)
            if load.gate is not None and self.instrs[-1].out is v and self.instrs[-1].name == "take_rows":
                gate, index = self.memo[load.gate], self.instrs[-1].ins[1]
                if gate.mask == index.mask and gate.kind != "const":
                    # most often every row is in range: look before masking
                    self.instrs[-1].ins.append(gate)
                    return v
        if load.gate is not None:
            gate = self.memo[load.gate]
            v = lower(self, Op.WHERE, u.dtype, [load.gate.dtype, u.dtype, u.dtype], [gate, v, self.const(dtype, 0)])
        return v

    def _gather(self, u: UOp, form: Linear, dtype: np.dtype[Any]) -> Value:
        extent = self.p.slots.extent
        size = u.src[0].arg[1][0]
        flat = Value("param", dtype, 0, u.src[0].arg[0])
        flat.strides = {-1: 1}
        rows = self._rows(form, size)
        if rows is not None:
            node, width = rows
            index = self.emit("cast", _copy_cast, (self.memo[node],), _INDEX, False)
            self.whole |= _mask_of(form.slots)
            out = Value("temp", dtype, index.mask | _mask_of(form.slots))
            self.instrs.append(Instr("take_rows", partial(_take_rows, width), [flat, index], out, False))
            return out
        total: Value | None = None
        for node, c in form.nodes.items():
            part = self.emit("cast", _copy_cast, (self.memo[node],), _INDEX, False)
            if c != 1:
                part = self.call(np.multiply, _INDEX, part, self.const(_INDEX, c))
            total = part if total is None else self.call(np.add, _INDEX, total, part)
        assert total is not None
        for s, c in form.slots.items():
            axis = Value("fixed", _INDEX, 1 << s, self._axis(s, np.arange(extent[s], dtype=np.int64) * c))
            total = self.call(np.add, _INDEX, total, axis)
        if form.const:
            total = self.call(np.add, _INDEX, total, self.const(_INDEX, form.const))
        out = Value("temp", dtype, total.mask)
        self._keep((total,))
        self.instrs.append(Instr("take", _take, [flat, total], out, False))
        return out

    def _rows(self, form: Linear, size: int) -> tuple[UOp, int] | None:
        """index = node * width + position in a row, with the row's slots innermost and contiguous."""
        p = self.p
        if len(form.nodes) != 1 or form.const or not form.slots:
            return None
        ((node, width),) = form.nodes.items()
        inner = sorted(form.slots, key=lambda s: p.rank[s])
        step = 1
        for s in reversed(inner):
            if form.slots[s] != step:
                return None
            step *= p.slots.extent[s]
        first = p.rank[inner[0]]
        if step != width or size % width or any(p.rank[s] >= first for s in _bits(p.mask[node])):
            return None
        return node, width

    def _hoisted(self, u: UOp) -> Value:
        p = self.p
        v = p.hoisted[u]
        dot = p.dots.get(u)
        if dot is None:
            return self._scaled(u, v)
        for op, factor in dot.post:
            if op is Op.NEG:
                v = self.call(np.negative, v.dtype, v)
            else:
                assert factor is not None
                f = np.multiply if op is Op.MUL else np.true_divide
                other = self.memo[factor]
                if other.dtype != v.dtype:
                    other = self.emit("cast", _copy_cast, (other,), v.dtype, False)
                v = self.call(f, v.dtype, v, other)
        return self._narrow(u, v)

    def widen(self, v: Value) -> Value:
        """float16 sums, products and extrema are kept in float32 until the reduce is done."""
        return self.emit("cast", _copy_cast, (v,), _F32, False) if v.dtype == _F16 else v

    def _narrow(self, u: UOp, v: Value) -> Value:
        out = numpy_dtype(u.dtype)
        return v if v.dtype == out else self.emit("cast", _copy_cast, (v,), out, False)

    def _scaled(self, u: UOp, v: Value) -> Value:
        """Account for ranges that the body does not depend on: n equal terms."""
        p = self.p
        digits = [s for r in u.src[1:] for s, _ in p.slots.digits[r.arg[0]]]
        times = math.prod(p.slots.extent[s] for s in digits if not p.mask[u.src[0]] >> s & 1)
        if times > 1:
            if u.arg is Op.ADD and v.dtype != np.bool_:
                wrapped = const(u.dtype, times).arg if u.dtype.is_int else times
                v = self.call(np.multiply, v.dtype, v, self.const(v.dtype, wrapped))
            elif u.arg is Op.MUL and v.dtype != np.bool_:
                v = self.call(np.power, v.dtype, v, self.const(v.dtype, times))
        return self._narrow(u, v)

    def reduce(self, u: UOp, body: Value, into: Value | None = None) -> Value:
        """Reduce `body` over u's ranges: to a temporary, or accumulating over blocks into `into`."""
        p = self.p
        over = p._over(u) & body.mask
        out = Value("temp", body.dtype, body.mask & ~over) if into is None else into
        if not over and into is None:
            return body
        if into is None:
            self.whole |= over
        op = u.arg
        axes = tuple(p.rank[s] for s in p.order if over >> s & 1)
        if not over:
            build: Build = _copy_cast
        else:
            build = partial(_reduce, op, axes)
        name = f"reduce_{op.name.lower()}"
        instr = Instr(name, build, [body], out, False, None if into is None else _FOLD[op], over)
        self.instrs.append(instr)
        return out

    def put(self, value: Value, target: Value) -> None:
        """Copy into a full array, or have the last instruction write there."""
        self._write(value, target)

    def store(self, s: UOp) -> None:
        p = self.p
        form = p.store_forms[s]
        value = self.value(s.src[2])
        param = s.src[0].arg[0]
        dtype = numpy_dtype(s.src[0].dtype)
        if form is not None:
            target = Value("param", dtype, _mask_of(form.slots), param)
            target.offset, target.strides = form.const, form.slots
            if value.kind == "param" and value.ref == param and value.strides == target.strides:
                if value.offset == target.offset and value.dtype == dtype:
                    return
            self._write(value, target)
            return
        ins = [self.value(s.src[1]), value]
        if len(s.src) > 3:
            ins.append(self.value(s.src[3]))
        flat = Value("param", dtype, 0, param)
        flat.strides = {-1: 1}
        self.instrs.append(Instr("scatter", _scatter, ins, flat, False))

    def _write(self, value: Value, target: Value) -> None:
        """Redirect the instruction that makes `value` to write into `target`, or append a copy."""
        root = value.root
        if root.kind == "temp" and value.dtype == target.dtype and value.mask == target.mask:
            at = next(i for i in range(len(self.instrs) - 1, -1, -1) if self.instrs[i].out is root)
            hazard = target.kind == "param" and any(
                v.root.kind == "param" and v.root.ref == target.ref
                for later in self.instrs[at + 1 :]
                for v in (*later.ins, later.out)
            )
            if not hazard:
                root.kind, root.strides, root.offset = target.kind, target.strides, target.offset
                root.ref = target.ref if target.kind == "param" else target
                return
        self.instrs.append(Instr("copy", _copy_cast, [value], target, False))

    def finish(self) -> None:
        if self.instrs:
            self.p.phases.append(Loop(self._live(), self.mask, self.whole))

    def _live(self) -> list[Instr]:
        """Only what some output needs: work shared by folding may have left dead instructions."""
        needed: set[int] = set()
        out: list[Instr] = []
        for i in reversed(self.instrs):
            root = i.out.root
            if root.kind != "temp" or id(root) in needed:
                out.append(i)
                needed.update(id(v.root) for v in i.ins)
        out.reverse()
        return out


# -- primitive calls -------------------------------------------------------------------------------------------------

_FOLD: dict[Op, Callable[..., Any]] = {Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum}
_ONES: dict[tuple[np.dtype[Any], int], Array] = {}


def _copy_cast(ins: Sequence[Array], out: Array) -> list[Any]:
    return [(np.copyto, (out, ins[0], "unsafe"))]


def _take(ins: Sequence[Array], out: Array) -> list[Any]:
    flat, index = ins
    return [(flat.take, (index.reshape(out.shape), None, out, "clip"))]


def _take_rows_apart(table: Array, index: Array, out: Array) -> None:
    out[...] = table.take(index, 0, None, "clip").reshape(out.shape)


def _clear_rows(rows: Array, keep: Array) -> None:
    if not keep.all():
        np.copyto(rows, rows.dtype.type(0), where=~keep)


def _take_rows(width: int, ins: Sequence[Array], out: Array) -> list[Any]:
    """Rows of a table; a third input says which of them are in range, the others become zero."""
    flat, index = ins[0], ins[1]
    steps: list[Any] = []
    if not out.flags.c_contiguous:
        steps.append((_take_rows_apart, (flat.reshape(-1, width), index.reshape(-1), out)))
    else:
        steps.append((flat.reshape(-1, width).take, (index.reshape(-1), 0, out.reshape(-1, width), "clip")))
    if len(ins) > 2:
        steps.append((_clear_rows, (out, ins[2])))
    return steps


def _scatter_now(ins: Sequence[Array], flat: Array) -> None:
    arrays = np.broadcast_arrays(*ins)
    index, value = arrays[0], arrays[1]
    if len(arrays) > 2:
        index, value = index[arrays[2]], value[arrays[2]]
    flat[index] = value


def _scatter(ins: Sequence[Array], out: Array) -> list[Any]:
    return [(_scatter_now, (ins, out))]


def regroup(x: Array, groups: Sequence[Sequence[int]]) -> Array | None:
    """`x` with each group of axes made one, as a view; None when the strides do not allow it. Axes in no group must
    have length 1."""
    shape: list[int] = []
    strides: list[int] = []
    for group in groups:
        n, step = 1, x.itemsize
        for axis in reversed(group):
            if x.shape[axis] == 1:
                continue
            if n == 1:
                n, step = x.shape[axis], x.strides[axis]
            elif x.strides[axis] == step * n:
                n *= x.shape[axis]
            else:
                return None
        shape.append(n)
        strides.append(step)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _ones(dtype: np.dtype[Any], n: int) -> Array:
    found = _ONES.get((dtype, n))
    if found is None:
        found = _ONES[dtype, n] = np.ones(n, dtype)
    return found


def _reduce(op: Op, axes: tuple[int, ...], ins: Sequence[Array], out: Array) -> list[Any]:
    x = ins[0]
    f: Any = _FOLD[op]
    if op is Op.ADD and x.dtype in _BLAS:
        # BLAS sums several times faster than np.add.reduce: a product with ones, over rows or over columns
        others = [i for i in range(x.ndim) if i not in axes]
        n = math.prod(x.shape[i] for i in axes)
        before = [i for i in others if i < axes[0]]
        after = [i for i in others if i > axes[0]]
        x3 = regroup(x, [before, list(axes), after])
        o2 = regroup(out, [before, after])
        if x3 is not None and o2 is not None and n > 1:
            unit = x.itemsize
            ones = _ones(x.dtype, n)
            if x3.shape[2] == 1 and x3.strides[1] == unit and x3.strides[0] >= unit * n and o2.strides[0] == unit:
                return [(np.matmul, (x3[:, :, 0], ones, o2[:, 0]))]
            if x3.shape[2] >= 8 and x3.strides[2] == unit and x3.strides[1] >= unit * x3.shape[2]:
                if o2.shape[1] == 1 or o2.strides[1] == unit:
                    if x3.shape[0] == 1:
                        return [(np.matmul, (ones, x3[0], o2[0]))]
                    if n * x3.shape[2] >= 256:
                        return [(np.matmul, (ones, x3, o2))]
    if op in (Op.MAX, Op.MIN):
        rows = _row_extrema(f, axes, x, out)
        if rows is not None:
            return rows
    return [(f.reduce, (x, axes, x.dtype, out, True))]


def _row_extrema(f: Any, axes: tuple[int, ...], x: Array, out: Array) -> list[Any] | None:
    """Extrema of many short rows: fold halves onto each other, then the few columns left. NumPy's own reduce pays
    its set-up for every row."""
    others = [i for i in range(x.ndim) if i not in axes]
    if any(i > axes[0] and x.shape[i] > 1 for i in others):
        return None
    x2, o1 = regroup(x, [others, axes]), regroup(out, [others])
    if x2 is None or o1 is None:
        return None
    rows, n = x2.shape
    if rows < 64 or n % 8 or n > 512 or n // 8 & (n // 8 - 1):
        return None
    steps: list[Any] = []
    if n > 8:
        nbytes = rows * (n // 2) * x.itemsize
        half = _scratch(nbytes)[:nbytes].view(x.dtype).reshape(rows, n // 2)
        while n > 8:
            n //= 2
            steps.append((partial(f, out=half[:, :n]), (x2[:, :n], x2[:, n : 2 * n])))
            x2 = half
    first = x2[:, 0]
    for i in range(1, 8):
        steps.append((partial(f, out=o1), (first, x2[:, i])))
        first = o1
    return steps


# One per lane: lanes run at the same time, the kernels of one lane one after another.
_SCRATCH: dict[int, Array] = {}
_LANE = [0]


def use_lane(lane: int) -> None:
    """Calls built from here on run in this lane."""
    _LANE[0] = lane


def _scratch(nbytes: int) -> Array:
    """Scratch for the steps of one instruction."""
    found = _SCRATCH.get(_LANE[0])
    if found is None or found.nbytes < nbytes:
        found = _SCRATCH[_LANE[0]] = np.empty(max(nbytes, 1 << 16), np.uint8)
    return found
