"""Programs: the layout of a kernel's plan, how its loops are cut into blocks and where temporaries lie, made once; and
kernels over variables."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.backend.cpu.analysis import share_ranges
from anneal.backend.cpu.dynamic import is_dynamic
from anneal.backend.cpu.index import Dims, Unsettled
from anneal.backend.cpu.planner import Planner, make_plan
from anneal.backend.cpu.primitives import Block, BlockLoop, CpuPlan, Pad, PlanValue, Product, among, mask_of, union
from anneal.backend.device import Program
from anneal.rewrite import FLOATS, legalised, over, rebuild, substitute
from anneal.schedule import members_of, simplify_indices
from anneal.uop import Ints, Nodes, Op, Recent, Src, UOp, arena, const, ranged, toposort
from anneal.uop.sizes import Sizes, evaluator, most, size_node

_MOST = 12  # more pieces than this cost more in calls than the predicates do
_LEAST = 4096  # kernels of fewer elements gain nothing

# ---------------------------------------------------------------------------------------------------------------------
# Cut a kernel at constant bounds of predicates: where one says `r < 4`, the ranges 0..3 and 4.. become kernels of
# their own.
#
# A concatenation is a sum of padded parts, each predicated; split at the seams, every piece is a plain copy:
#
#     out[r] = (a[r] if r < 4 else 0) + (b[r-4] if not r < 4 else 0)   for r in 0..11
#     ->  out[r] = a[r] + 0  for r in 0..3,   out[r+4] = 0 + b[r]  for r in 0..7


def segments(sink: UOp) -> list[UOp]:
    """Kernels that together do what `sink` does, with predicates on loop ranges decided where constants decide them."""
    order = toposort(sink)
    if math.prod(u.src[0].arg for u in order if u.op is Op.RANGE) < _LEAST:
        return [sink]
    seams: dict[UOp, set[int]] = {}
    predicates = [u.src[2] for u in order if u.op is Op.LOAD and len(u.src) == 3]
    predicates += [u.src[0] for u in order if u.op is Op.WHERE]
    for u in toposort(predicates):
        for n, (x, bound) in enumerate((u.src, u.src[::-1])) if u.op is Op.LT else ():
            if bound.is_const and (found := _range_plus(x)) is not None:
                r, shift = found
                seams.setdefault(r, set()).add(bound.arg - shift + n)
    choices = []
    for r, at in seams.items():
        extent = r.src[0].arg
        bounds = [0, *sorted(s for s in at if 0 < s < extent), extent]
        choices.append([(r, lo, hi) for lo, hi in itertools.pairwise(bounds)])
    if not 1 < math.prod(map(len, choices)) <= _MOST:
        return [sink]
    return [_restrict(order, combination) for combination in itertools.product(*choices)]


def _range_plus(u: UOp) -> tuple[UOp, int] | None:
    """(r, c) when `u` is a loop range r, or r + c."""
    shift = 0
    if u.op is Op.ADD and u.src[1].is_const:
        u, shift = u.src[0], u.src[1].arg
    if u.op is Op.RANGE and u.arg[1] == "loop" and u.src[0].is_const:
        return u, shift
    return None


def _restrict(order: list[UOp], part: tuple[tuple[UOp, int, int], ...]) -> UOp:
    new = {r: size_node(lo) if hi - lo == 1 else ranged(hi - lo, r.arg) + lo for r, lo, hi in part}

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.LOAD and len(src) == 3 and src[2].is_const:
            return UOp(Op.LOAD, u.dtype, src[:2]) if src[2].arg else const(u.dtype, 0)
        for x, other in (src, src[::-1]) if u.op is Op.ADD else ():
            if x.is_const and x.arg == 0:
                return other
        return over(u, src)

    return rebuild(order[-1], visit, new)


# ---------------------------------------------------------------------------------------------------------------------


ALIGN = 64
# Elements of one block: temporaries of this size stay in the second-level cache.
BLOCK = 98_304
# Elements of a product computed in one go: they should still be in cache when the epilogue reads them.
_PRODUCT = 1 << 18
# Work of less than this many nanoseconds is not worth a synchronisation with another thread.
_WORKER_NS = 100_000
# Workers split columns if there are more than this many times as many columns as rows.
_WIDE = 4
# The factor by which a multiplication takes longer if each element of the matrix is used once: the time is that of
# reading it.
_MATRIX_ONCE = 20
_KEPT = -1  # the size that marks a value whose register lives through all blocks
Blocks = list[Block]


def aligned(nbytes: int) -> int:
    """The bytes up to the next place where memory may begin."""
    return -(-nbytes // ALIGN) * ALIGN


class LoopLayout:
    """The cuts of one loop, and the places of its temporaries (byte offsets in the scratch of a worker).

    A `product` that comes before the loop is computed block by block with it, while its rows are in cache.
    """

    def __init__(self, plan: CpuPlan, loop: BlockLoop, workers: int, product: Product | None) -> None:
        self.loop, self.product, self.plan = loop, product, plan
        extent = plan.dims.extent
        dims = among(plan.order, loop.mask)
        size = {s: extent[s] for s in dims}
        total = math.prod(size.values())
        flops = 0
        if product is not None:
            flops = 2 * plan.dims.count([*product.batch, *product.m, *product.n, *product.k])
            if not product.n:
                flops *= _MATRIX_ONCE
        folds = any(i.fold is not None for i in loop.instrs)
        # estimated nanoseconds: elementwise passes and products at what one core of a laptop does
        self.worth = total * sum(i.passes for i in loop.instrs) // 5 + flops // 150
        self.workers = workers if self.worth > _WORKER_NS and not folds else 1
        temps = any(i.out.root.kind == "temp" or i.fold is not None or i.passes > 1 for i in loop.instrs)
        whole = not temps and (product is None or not loop.instrs)
        target = min(total if whole else BLOCK, math.ceil(total / self.workers))
        if product is not None and (wide := self._wide(product)) is not None:
            pieces = self.workers * math.ceil(total / (self.workers * target))
            size[wide] = math.ceil(extent[wide] / pieces)
        elif product is not None and not loop.instrs:
            s = self._shared(product)
            size[s] = math.ceil(extent[s] / self.workers)
        elif total > target:
            self._cut(size, target)
        cuts = {s: range(0, extent[s], size[s]) for s in dims if size[s] < extent[s]}
        self.cut = mask_of(cuts)
        steps = [[(s, (i, min(i + at.step, at.stop))) for i in at] for s, at in cuts.items()]
        self.blocks: Blocks = [dict(b) for b in itertools.product(*steps)]
        # what no block changes runs before the blocks
        self.once = [
            self.cut != 0 and not self.cut & union([i.out.mask, i.over, *[v.mask for v in i.ins]]) for i in loop.instrs
        ]
        self.workers = min(self.workers, len(self.blocks))
        if any(o and i.out.root.kind != "temp" for i, o in zip(loop.instrs, self.once, strict=True)):
            # every worker computes the values that its blocks share for itself; values that others see are written once
            self.workers = 1
        self.spare: dict[int, int] = {}
        self.end = self._registers(size)

    def _wide(self, product: Product) -> int | None:
        """The dim of a product's columns, if there are so many more of them than rows that workers split the columns:
        each then reads its part of the large matrix, where rows would have every worker read all of it."""
        extent, count = self.plan.dims.extent, self.plan.dims.count
        rows, columns = count(product.m), count(product.n)
        if self.workers < 2 or product.batch or not product.n or columns <= _WIDE * rows:
            return None
        s = max(product.n, key=extent.__getitem__)
        return s if extent[s] >= 32 * self.workers and not self.loop.whole >> s & 1 else None

    def _shared(self, product: Product) -> int:
        """The dim of a product alone that the workers split: the outermost, so that each writes memory of its own and
        most often reads what it wrote, unless that leaves BLAS with too few rows."""
        dims, extent = among(self.plan.order, product.c.mask), self.plan.dims.extent
        for s in sorted(dims, key=lambda s: -product.c.strides[s]):
            side = next(g for g in (product.batch, product.m, product.n) if s in g)
            rows = extent[s] if side is product.batch else self.plan.dims.count(side) // 32
            if extent[s] >= self.workers and rows >= self.workers:
                return s
        return max(dims, key=extent.__getitem__)

    def _cut(self, size: dict[int, int], target: int) -> None:
        """Choose block extents: whole dims from the innermost out, one dim in part, single steps before it."""
        inner = self.plan.dims.count(among(size, self.loop.whole))
        full = False
        for s in reversed(among(size, ~self.loop.whole)):
            extent = size[s]
            if full:
                size[s] = 1
            elif inner * extent <= target:
                inner *= extent
            else:
                pieces = math.ceil(extent / max(1, target // inner))
                if pieces % self.workers and pieces < extent:
                    pieces = min(extent, math.ceil(pieces / self.workers) * self.workers)
                size[s] = math.ceil(extent / pieces)
                full = True

    def gathered(self, blocks: Blocks) -> list[Blocks]:
        """Neighbouring blocks whose part of the product is computed in one go: BLAS likes more rows than a block
        has."""
        if len(blocks[0]) == 0:
            return [blocks]
        inner = list(blocks[0])[-1]
        assert self.product is not None
        size = self.plan.dims.count(among(self.plan.order, self.product.c.mask))
        out: list[Blocks] = []
        elements = 0
        for b in blocks:
            own = size
            for s, (lo, hi) in b.items():
                own = own // self.plan.dims.extent[s] * (hi - lo)
            same = out and all(b[s] == out[-1][-1][s] for s in b if s != inner)
            if same and elements + own <= _PRODUCT:
                out[-1].append(b)
                elements += own
            else:
                out.append([b])
                elements = own
        return out

    def _registers(self, size: dict[int, int]) -> int:
        instrs = self.loop.instrs
        last = {id(v.root): n for n, i in enumerate(instrs) for v in i.ins}
        free: dict[int, list[int]] = {}
        end = 0

        def nbytes(v: PlanValue) -> int:
            return aligned(v.dtype.itemsize * math.prod([size[s] for s in among(size, v.mask)]))

        def take(n: int) -> int:
            nonlocal end
            if free.get(n):
                return free[n].pop()
            end += n
            return end - n

        # all that runs once comes first, whatever its place in the list
        for n in sorted(range(len(instrs)), key=lambda n: not self.once[n]):
            i, once = instrs[n], self.once[n]
            out = i.out.root
            roots = {id(v.root): v.root for v in i.ins}.values()
            dying = [v for v in roots if not once and v.kind == "temp" and last[id(v)] == n and v.size != _KEPT]
            if out.kind == "temp":
                place = out.mask, out.dtype.itemsize
                same = [v for v in dying if i.inplace and (v.mask, v.dtype.itemsize) == place]
                if same:  # what runs once lets nothing die
                    out.register = same[0].register
                    dying.remove(same[0])
                else:
                    out.register = take(nbytes(out))
                if once:
                    out.size = _KEPT
            elif i.fold is not None:
                self.spare[n] = take(nbytes(out))
                free.setdefault(nbytes(out), []).append(self.spare[n])
            for v in dying:
                free.setdefault(nbytes(v), []).append(v.register)
        return end


class CpuProgram(Program):
    """A kernel's plan with the layout of its scratch memory; `names` are those of its variables."""

    def __init__(self, sink: UOp, name: str, workers: int = 1, names: Sequence[str] = ()) -> None:
        self.name, self.workers, self.names = name, workers, names
        self.sink = sink = legalised(sink, FLOATS)
        self.weight = 1 + len(toposort(sink)) // _USUAL
        self.dynamic = is_dynamic(sink)  # it is run whole
        self.parts: list[tuple[CpuPlan, list[LoopLayout | Pad]]] = []
        # bytes that the whole kernel shares, and bytes of every worker
        self.shared = self.scratch = 0
        with np.errstate(all="ignore"):  # what is known ahead is computed here
            self._plan(workers)

    @functools.cached_property
    def for_one_worker(self) -> CpuProgram:
        """The same for one worker."""
        return self if self.workers == 1 else type(self)(self.sink, self.name, 1, self.names)

    @functools.cached_property
    def worth(self) -> int:
        """Estimated nanoseconds of all of it."""
        return sum([x.worth for x in self._loops()])

    @functools.cached_property
    def calls(self) -> int:
        """The functions of NumPy that a run calls, if no loop goes block by block."""
        return sum([len(x.loop.instrs) for x in self._loops()])

    @functools.cached_property
    def gemv_worth(self) -> int:
        """Estimated nanoseconds of matrix-vector products, with what is computed in the same loops."""
        return sum([x.worth for x in self._loops() if x.product is not None and not x.product.n])

    def _loops(self) -> list[LoopLayout]:
        return [x for _, layouts in self.parts for x in layouts if isinstance(x, LoopLayout)]

    def _plan(self, workers: int) -> None:
        for part in () if self.dynamic else members_of(self.sink):
            for piece in segments(part):
                self._lay_out(make_plan(piece), workers)

    def own(self, values: Sizes) -> Sizes:
        """The values of its own variables."""
        return {n: values[n] for n in self.names}

    def taken(self, part: int, values: Sizes) -> Block:
        """The part of each dim that one run takes, for dims that it does not take whole."""
        return {}

    def _lay_out(self, plan: CpuPlan, workers: int) -> None:
        end = 0
        for v in plan.fulls:
            v.register = end
            end += aligned(v.size * v.dtype.itemsize)
        self.shared = max(self.shared, end)
        layouts = []
        waiting = None
        for phase in (*plan.phases, None):
            layout = LoopLayout(plan, phase, workers, waiting) if isinstance(phase, BlockLoop) else None
            if waiting is not None and (layout is None or layout.cut & ~waiting.c.mask):
                # the product is a loop of its own: cut into rows for the workers
                layouts.append(LoopLayout(plan, BlockLoop([], waiting.c.mask, 0), workers, waiting))
                layout = LoopLayout(plan, phase, workers, None) if isinstance(phase, BlockLoop) else None
            waiting = phase if isinstance(phase, Product) else None
            if (made := phase if isinstance(phase, Pad) else layout) is not None:
                layouts.append(made)
        self.parts.append((plan, layouts))
        self.scratch = max([made.end for made in self._loops()], default=0)

    @property
    def source(self) -> str:  # type: ignore[override]
        """The plan as text: one line per array operation, blocks first."""
        if self.dynamic:
            return f"# {self.name}: evaluated whole"
        lines = [f"# {self.name}"]
        names: dict[int, str] = {}

        def name(v: PlanValue) -> str:
            if v.kind == "const":
                return repr(v.ref.item())
            if v.kind == "bits":
                return f"{name(v.ref)}.{v.dtype.name}"
            if v.kind == "param":
                at = "+".join([str(v.offset)] * bool(v.offset) + [f"{c}*d{s}" for s, c in v.strides.items()])
                return f"p{v.ref}[{at or 0}]"
            if v.kind == "full" and isinstance(v.ref, PlanValue):
                return name(v.ref)
            return names.setdefault(id(v), f"{v.kind}{len(names)}")

        for plan, layouts in self.parts:
            lines.append(f"dims: {', '.join(f'd{s}={plan.dims.extent[s]}' for s in plan.order)}")
            for layout in layouts:
                if isinstance(layout, Pad):
                    lines.append(f"{name(layout.out)} = pad({name(layout.source)})")
                else:
                    lines.append(f"for {len(layout.blocks)} blocks on {layout.workers} workers:")
                    if (p := layout.product) is not None:
                        lines.append(f"    {name(p.c)} = {name(p.a)} @ {name(p.b)}")
                    for i in layout.loop.instrs:
                        lines.append(f"    {name(i.out)} = {i.name}({', '.join(name(v) for v in i.ins)})")
        return "\n".join(lines)


# -- kernels over variables --------------------------------------------------------------------------------------------


_PLANS = 64
_USUAL = 64  # nodes of a kernel
_LARGE_NS = 3_000_000  # estimated work above which a plan of its own is worth its time
_LARGE_VARIABLE = 1 << 16  # the values of a variable are listed: not of more


class SymbolicProgram(Program):
    """A kernel over variables. `program(values)` is what runs it with these values.

    Most have one plan for all values: that of the kernel with every size at its largest, of which a run takes a part. A
    range of symbolic extent is a dim of which it takes the first values; a variable itself is a dim of which it takes
    one. Memory is laid out for the largest sizes, so an index has constant strides, and other values only cut other
    views of the same arrays.

    Where the plan would depend on the values (an axis is taken apart, a size is 0), or where so much is computed that
    blocks and workers should fit it, each choice of values has a plan of its own.
    """

    def __init__(self, sink: UOp, name: str, variables: Nodes, workers: int) -> None:
        self.name, self.source, self.workers = name, "", workers
        self.sink, self.variables = sink, {v.arg[0]: v for v in variables}
        self.whole: PartialProgram | None = None
        if all(most(v) < _LARGE_VARIABLE for v in variables) and not is_dynamic(sink):
            with contextlib.suppress(Unsettled):
                whole = PartialProgram(sink, name, workers, [*self.variables])
                if whole.worth < _LARGE_NS:
                    self.whole = whole
        self._programs: Recent[Ints, CpuProgram] = Recent(_PLANS // 2)

    def program(self, values: Sizes) -> CpuProgram:
        """The program for these values."""
        if self.whole is not None and self.whole.fits(values):
            return self.whole
        key = tuple([values[n] for n in self.variables])
        found = self._programs[key]
        if found is None:
            with arena().untracked():
                sink = substitute(self.sink, {v: size_node(values[n]) for n, v in self.variables.items()})
                sink = simplify_indices(sink)
            found = self._programs[key] = CpuProgram(sink, self.name, self.workers)
        return found


class PartialProgram(CpuProgram):
    """The plan of a kernel with every size at its largest. Raises Unsettled where it would depend on the values."""

    def __init__(self, *args: Any) -> None:
        with arena().untracked():
            super().__init__(*args)

    def _plan(self, workers: int) -> None:
        self._bounds: list[tuple[Dims, Callable[[Sizes], Ints]]] = []
        limits: list[UOp] = []
        for part in members_of(self.sink):
            sink, variables = _largest(share_ranges(part))
            plan = Planner(sink, variables).plan()
            self._lay_out(plan, workers)
            ends = plan.dims.limits.values()
            self._bounds.append((plan.dims, evaluator((*ends, *plan.dims.points.values()))))
            limits += ends
        self._limits = evaluator(tuple(limits))

    def fits(self, values: Sizes) -> bool:
        """True if no size is 0: a reduction needs a first element."""
        return 0 not in self._limits(values)

    def taken(self, part: int, values: Sizes) -> Block:
        dims, ends = self._bounds[part]
        found = zip((*dims.limits, *dims.points), ends(values), strict=True)
        return {s: (0, n) if s in dims.limits else (n, n + 1) for s, n in found}


def _largest(sink: UOp) -> tuple[UOp, dict[int, UOp]]:
    """The kernel with every size at its largest and ranges for variables; for those ranges, and for those of symbolic
    extents, what a run takes of them."""
    order = toposort(sink)
    fresh = itertools.count(1 + max((u.arg[0] for u in order if u.op is Op.RANGE), default=-1))
    variables = {}

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.VARIABLE:
            if most(u) == 0:
                raise Unsettled
            number = next(fresh)
            variables[number] = u
            return ranged(most(u) + 1, (number, "variable"))
        if u.op is Op.RANGE and not u.src[0].is_const:
            if most(u.src[0]) < 2:
                raise Unsettled
            variables[u.arg[0]] = u.src[0]
            return ranged(most(u.src[0]), u.arg)
        return over(u, src)

    return rebuild(sink, visit, order=order), variables
