"""The NumPy device: binds plans to memory as flat lists of calls, and replays them."""

from __future__ import annotations

import itertools
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from anneal.backend.cpu.lanes import Lanes, blas_obeys, one_blas_thread
from anneal.backend.cpu.ops import Array, Step
from anneal.backend.cpu.plan import BLOCK, Instr, Loop, Pad, Plan, Product, Value, make_plan, regroup, use_lane
from anneal.backend.cpu.ragged import is_ragged, ragged_step
from anneal.backend.cpu.segment import segments
from anneal.backend.device import Batch, BufferPool, Call, Device, Limits, Program, numpy_dtype
from anneal.schedule import name_of
from anneal.uop import DType, UOp, dtypes

__all__ = ["CpuDevice", "CpuProgram"]

_ALIGN = 64
# Elements of a product computed in one go: they should still be in cache when the epilogue reads them.
_PRODUCT = 1 << 18
# Work of less than this many nanoseconds is not worth waking another thread.
_LANE_NS = 100_000
# A product copies an operand that BLAS cannot read in pieces of at most this many bytes.
_PIECE = 8 << 20
Blocks = list[dict[int, tuple[int, int]]]
# arrays a, b, c of a product, and the axes of its batch, m, n and k
_Operands = tuple[Array, Array, Array, list[int], list[int], list[int], list[int]]


def _aligned(nbytes: int) -> Array:
    raw = np.empty(nbytes + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + nbytes]


# -- layout: blocks and registers, once per program ------------------------------------------------------------------


class _LoopLayout:
    """How one loop is cut, and where its temporaries lie (byte offsets in the arena).

    A `product` that comes before the loop is computed block by block with it, while its rows are in cache.
    """

    __slots__ = ("blocks", "cut", "end", "lanes", "loop", "once", "product", "spare", "start")

    def __init__(self, plan: Plan, loop: Loop, start: int, lanes: int, product: Product | None) -> None:
        self.loop, self.start, self.product = loop, start, product
        extent = plan.extent
        slots = [s for s in plan.order if loop.mask >> s & 1]
        size: dict[int, int] = {s: extent[s] for s in slots}
        total = math.prod(size.values())
        flops = 0
        if product is not None:
            flops = 2 * math.prod(extent[s] for g in (product.batch, product.m, product.n, product.k) for s in g)
        folds = any(i.fold is not None for i in loop.instrs)
        # estimated nanoseconds: elementwise passes and products at what one core of a laptop does
        worth = total * len(loop.instrs) // 5 + flops // 80
        self.lanes = lanes if worth > _LANE_NS and not folds else 1
        target = BLOCK
        temps = any(i.out.root.kind == "temp" or i.fold is not None for i in loop.instrs)
        if not temps and product is None or (product is not None and not loop.instrs):
            target = total
        target = min(target, math.ceil(total / self.lanes))
        if product is not None and not loop.instrs:
            # shares of a product alone: of its matrices, or of its longer side
            s = max(product.batch or [*product.m, *product.n], key=extent.__getitem__)
            size[s] = math.ceil(extent[s] / self.lanes)
        elif total > target:
            self._cut(slots, size, extent, target)
        cuts = [s for s in slots if size[s] < extent[s]]
        self.cut = 0
        for s in cuts:
            self.cut |= 1 << s
        steps = [[(s, (i, min(i + size[s], extent[s]))) for i in range(0, extent[s], size[s])] for s in cuts]
        self.blocks: Blocks = [dict(b) for b in itertools.product(*steps)]
        # what no block changes runs before the blocks
        self.once = [self.cut != 0 and not self._varies(i) for i in loop.instrs]
        self.spare: dict[int, int] = {}
        self.end = self._registers(size, start)
        self.lanes = min(self.lanes, len(self.blocks))

    def _cut(self, slots: list[int], size: dict[int, int], extent: list[int], target: int) -> None:
        """Choose block extents: whole slots from the innermost out, one slot in part, single steps before it."""
        whole = self.loop.whole
        inner = math.prod(extent[s] for s in slots if whole >> s & 1)
        full = False
        for s in reversed(slots):
            if whole >> s & 1:
                continue
            if full:
                size[s] = 1
            elif inner * extent[s] <= target:
                inner *= extent[s]
            else:
                pieces = math.ceil(extent[s] / max(1, target // inner))
                if pieces % self.lanes and pieces < extent[s]:
                    pieces = min(extent[s], math.ceil(pieces / self.lanes) * self.lanes)
                size[s] = math.ceil(extent[s] / pieces)
                full = True

    def gathered(self, extent: list[int], blocks: Blocks) -> list[Blocks]:
        """Neighbouring blocks whose part of the product is computed in one go: BLAS likes more rows than a block has."""
        if len(blocks[0]) == 0:
            return [blocks]
        inner = list(blocks[0])[-1]
        assert self.product is not None
        size = math.prod(n for s, n in enumerate(extent) if self.product.c.mask >> s & 1)
        out: list[Blocks] = []
        elements = 0
        for b in blocks:
            own = size
            for s, (lo, hi) in b.items():
                own = own // extent[s] * (hi - lo)
            same = out and all(b[s] == out[-1][-1][s] for s in b if s != inner)
            if same and elements + own <= _PRODUCT:
                out[-1].append(b)
                elements += own
            else:
                out.append([b])
                elements = own
        return out

    def _varies(self, i: Instr) -> bool:
        if (i.out.mask | i.over) & self.cut:
            return True
        return any(v.mask & self.cut for v in i.ins)

    def _registers(self, size: dict[int, int], start: int) -> int:
        instrs = self.loop.instrs
        last: dict[int, int] = {}
        for n, i in enumerate(instrs):
            for v in i.ins:
                last[id(v.root)] = n
        free: dict[int, list[int]] = {}
        end = start

        def nbytes(v: Value) -> int:
            n = v.dtype.itemsize
            for s, k in size.items():
                if v.mask >> s & 1:
                    n *= k
            return (n + _ALIGN - 1) // _ALIGN * _ALIGN

        def take(n: int) -> int:
            nonlocal end
            if free.get(n):
                return free[n].pop()
            end += n
            return end - n

        # all that runs once comes first, whatever its place in the list
        numbered = sorted(range(len(instrs)), key=lambda n: not self.once[n])
        for n in numbered:
            i, once = instrs[n], self.once[n]
            out = i.out.root
            dying: list[Value] = []
            if not once:
                for v in {id(v.root): v.root for v in i.ins}.values():
                    if v.kind == "temp" and last[id(v)] == n and not self._kept(v):
                        dying.append(v)
            if out.kind == "temp":
                same = None
                if i.inplace and not once:
                    same = next(
                        (v for v in dying if v.mask == out.mask and v.dtype.itemsize == out.dtype.itemsize), None
                    )
                if same is not None:
                    out.register = same.register
                    dying.remove(same)
                else:
                    out.register = take(nbytes(out))
                if once:
                    out.size = -1  # marks a register that lives through all blocks
            elif i.fold is not None:
                self.spare[n] = take(nbytes(out))
                free.setdefault(nbytes(out), []).append(self.spare[n])
            for v in dying:
                free.setdefault(nbytes(v), []).append(v.register)
        return end

    @staticmethod
    def _kept(v: Value) -> bool:
        return v.size == -1


class CpuProgram(Program):
    """A kernel's plan with the layout of its scratch memory."""

    def __init__(self, sink: UOp, name: str, lanes: int = 1) -> None:
        self.name = name
        self.sink = sink
        self.params = 1 + max(u.src[0].arg[0] for u in sink.src)
        self.ragged: Callable[[Sequence[Array]], Step] | None = None
        self.parts: list[tuple[Plan, list[_LoopLayout | Pad]]] = []
        self.scratch = 0
        if is_ragged(sink):
            self.ragged = partial(ragged_step, sink)
            return
        for piece in segments(sink):
            self._lay_out(make_plan(piece), lanes)

    def _lay_out(self, plan: Plan, lanes: int) -> None:
        end = 0
        for v in plan.fulls:
            v.register = end
            end += (v.size * v.dtype.itemsize + _ALIGN - 1) // _ALIGN * _ALIGN
        self.scratch = max(self.scratch, end)
        layouts: list[_LoopLayout | Pad] = []
        waiting: Product | None = None
        for phase in plan.phases:
            if isinstance(phase, Loop):
                layout = _LoopLayout(plan, phase, end, lanes, waiting)
                if waiting is not None and layout.cut & ~waiting.c.mask:
                    layouts.append(self._alone(plan, waiting, end, lanes))
                    layout = _LoopLayout(plan, phase, end, lanes, None)
                waiting = None
                layouts.append(layout)
            else:
                if waiting is not None:
                    layouts.append(self._alone(plan, waiting, end, lanes))
                    waiting = None
                if isinstance(phase, Product):
                    waiting = phase
                else:
                    layouts.append(phase)
        if waiting is not None:
            layouts.append(self._alone(plan, waiting, end, lanes))
        for made in layouts:
            if isinstance(made, _LoopLayout):
                self.scratch = max(self.scratch, made.start + (made.end - made.start) * made.lanes)
        self.parts.append((plan, layouts))

    @staticmethod
    def _alone(plan: Plan, product: Product, start: int, lanes: int) -> _LoopLayout:
        """A product as a loop of its own: cut into rows for the lanes."""
        return _LoopLayout(plan, Loop([], product.c.mask, 0), start, lanes, product)

    @property
    def source(self) -> str:  # type: ignore[override]
        """The plan as text: one line per array operation, blocks first."""
        if self.ragged is not None:
            return f"# {self.name}: evaluated whole, over a flattened ragged axis"
        lines = [f"# {self.name}"]
        names: dict[int, str] = {}

        def name(v: Value) -> str:
            if v.kind == "const":
                return repr(v.ref.item())
            if v.kind == "bits":
                return f"{name(v.ref)}.{v.dtype.name}"
            if v.kind == "param":
                at = "+".join([str(v.offset)] * bool(v.offset) + [f"{c}*s{s}" for s, c in v.strides.items()])
                return f"p{v.ref}[{at or 0}]"
            if v.kind == "full" and isinstance(v.ref, Value):
                return name(v.ref)
            return names.setdefault(id(v), f"{v.kind}{len(names)}")

        for plan, layouts in self.parts:
            lines.append(f"slots: {', '.join(f's{s}={plan.extent[s]}' for s in plan.order)}")
            for layout in layouts:
                if isinstance(layout, Pad):
                    lines.append(f"{name(layout.out)} = pad({name(layout.source)})")
                else:
                    lines.append(f"for {len(layout.blocks)} blocks in {layout.lanes} lanes:")
                    if (p := layout.product) is not None:
                        lines.append(f"    {name(p.c)} = {name(p.a)} @ {name(p.b)}")
                    for i in layout.loop.instrs:
                        lines.append(f"    {name(i.out)} = {i.name}({', '.join(name(v) for v in i.ins)})")
        return "\n".join(lines)


# -- binding ---------------------------------------------------------------------------------------------------------


class _Binder:
    """Turns a program's plan into calls on the memory of `buffers` and scratch."""

    def __init__(self, program: CpuProgram, buffers: Sequence[Array], device: CpuDevice) -> None:
        self.buffers = buffers
        self.lane = self.shift = 0
        self.device = device
        self.arena = device.arena(program.scratch)
        self.steps: list[Step] = []
        for plan, layouts in program.parts:
            self.plan = plan
            for layout in layouts:
                if isinstance(layout, Pad):
                    self._pad(layout)
                else:
                    self._loop(layout)

    def _array(self, v: Value, block: dict[int, tuple[int, int]]) -> Array:
        kind = v.kind
        if kind == "const":
            return v.ref  # type: ignore[no-any-return]
        if kind == "bits":
            bits: Array = self._array(v.ref, block).view(v.dtype)
            return bits
        extent, unit = self.plan.extent, v.dtype.itemsize
        if kind == "fixed":
            fixed: Array = v.ref
            at = []
            for axis, s in enumerate(self.plan.order):
                lo_hi = block.get(s)
                at.append(slice(None) if lo_hi is None or fixed.shape[axis] == 1 else slice(*lo_hi))
            return fixed[tuple(at)]
        shape, strides = [], []
        mask, steps = v.mask, v.strides
        if kind == "temp":
            for s in self.plan.order:
                if mask >> s & 1:
                    lo_hi = block.get(s)
                    shape.append(extent[s] if lo_hi is None else lo_hi[1] - lo_hi[0])
                else:
                    shape.append(1)
            temp: Array = np.ndarray(shape, v.dtype, self.arena, v.register + (self.shift if v.size != -1 else 0))
            return temp
        if kind == "param":
            if -1 in steps:
                flat: Array = self.buffers[v.ref]
                return flat
            memory, offset = self.buffers[v.ref], v.offset * unit
        else:
            base = v.ref if isinstance(v.ref, Value) else v
            memory, offset = self.arena, base.register + v.offset * unit
        for s in self.plan.order:
            if mask >> s & 1:
                step = steps.get(s, 0) * unit
                lo_hi = block.get(s)
                if lo_hi is None:
                    shape.append(extent[s])
                else:
                    shape.append(lo_hi[1] - lo_hi[0])
                    offset += lo_hi[0] * step
                strides.append(step)
            else:
                shape.append(1)
                strides.append(0)
        return np.ndarray(shape, v.dtype, memory, offset, strides)

    def _loop(self, layout: _LoopLayout) -> None:
        made: dict[Any, Array] = {}
        for i, once in zip(layout.loop.instrs, layout.once, strict=True):
            if once:
                self.steps.extend(i.build([self._array(v, {}) for v in i.ins], self._array(i.out, {})))
        product = None if layout.product is None else self._operands(layout.product)
        count, blocks = layout.lanes, layout.blocks
        shares: list[list[Step]] = []
        outer = self.steps
        for lane in range(count):
            self.steps = []
            self.lane, self.shift = lane, lane * (layout.end - layout.start)
            use_lane(lane)
            mine = blocks[lane * len(blocks) // count : (lane + 1) * len(blocks) // count]
            for together in [mine] if product is None else layout.gathered(self.plan.extent, mine):
                if product is not None:
                    first, last = together[0], together[-1]
                    self._product_block(product, {s: (lo, last[s][1]) for s, (lo, _) in first.items()})
                for block in together:
                    self._block(layout, block, made)
            shares.append(self.steps)
        self.steps = outer
        self.lane = self.shift = 0
        use_lane(0)
        if count > 1:
            outer.append((self.device.lanes.run, (shares,)))
        else:
            outer.extend(shares[0])

    def _block(self, layout: _LoopLayout, block: dict[int, tuple[int, int]], made: dict[Any, Array]) -> None:
        steps, cut = self.steps, layout.cut

        def array(v: Value) -> Array:
            touched = v.mask & cut
            if v.root.kind == "temp":
                key: Any = (id(v), self.lane, *[hi - lo for s, (lo, hi) in block.items() if touched >> s & 1])
            elif touched:
                key = (id(v), *[lo for s, (lo, _) in block.items() if touched >> s & 1])
            else:
                key = id(v)
            found = made.get(key)
            if found is None:
                found = made[key] = self._array(v, block)
            return found

        for n, i in enumerate(layout.loop.instrs):
            if layout.once[n]:
                continue
            ins = [array(v) for v in i.ins]
            out = array(i.out)
            if i.fold is not None and any(lo and i.over >> s & 1 for s, (lo, _) in block.items()):
                part: Array = np.ndarray(out.shape, out.dtype, self.arena, layout.spare[n])
                steps.extend(i.build(ins, part))
                steps.append((partial(i.fold, out=out), (out, part)))
            else:
                steps.extend(i.build(ins, out))

    def _pad(self, p: Pad) -> None:
        whole: Array = np.ndarray((p.out.size,), p.out.dtype, self.arena, p.out.register)
        self.steps.append((whole.fill, (0,)))
        if p.extents:
            axes = sorted(p.extents)
            unit = p.out.dtype.itemsize
            shape = [p.extents[i] for i in axes]

            def view(v: Value, memory: Array, start: int) -> Array:
                strides = [v.strides[i] * unit for i in axes]
                return np.ndarray(shape, p.out.dtype, memory, start + v.offset * unit, strides)

            inside = view(p.interior, self.arena, p.out.register)
            self.steps.append((np.copyto, (inside, view(p.source, self.buffers[p.source.ref], 0))))

    # -- products
    def _operands(self, p: Product) -> _Operands | None:
        """The product's arrays; None when it had to be computed at once."""
        at = {s: i for i, s in enumerate(self.plan.order)}
        a, b, c = (self._array(v, {}) for v in (p.a, p.b, p.c))
        batch, m, n, k = ([at[s] for s in g] for g in (p.batch, p.m, p.n, p.k))
        copy_a, copy_b = not _readable(a, batch, m, k), not _readable(b, batch, n, k)
        if max(a.nbytes * copy_a, b.nbytes * copy_b) > _PIECE:
            self._multiply(a, b, c, batch, m, n, k)
            return None
        if copy_a:
            a = self._copied(0, a, [*batch, *m, *k])
        if copy_b:
            b = self._copied(1, b, [*batch, *k, *n])
        return a, b, c, batch, m, n, k

    def _product_block(self, product: _Operands, block: dict[int, tuple[int, int]]) -> None:
        a, b, c, batch, m, n, k = product
        for axis, s in enumerate(self.plan.order):
            if s in block:
                a, b, c = (_piece(x, axis, *block[s]) for x in (a, b, c))
        self._single(a, b, c, batch, m, n, k)

    def _multiply(
        self, a: Array, b: Array, c: Array, batch: list[int], m: list[int], n: list[int], k: list[int]
    ) -> None:
        copy_a = not _readable(a, batch, m, k)
        copy_b = not _readable(b, batch, n, k)
        copied = max(a.nbytes * copy_a, b.nbytes * copy_b)
        if copied > _PIECE:
            axis = batch[0] if batch else (m[0] if a.nbytes * copy_a == copied else n[0])
            if not batch and c.shape[axis] * _PIECE < copied:
                axis = k[0]
            length = max(x.shape[axis] for x in (a, b))
            pieces = min(length, math.ceil(copied / _PIECE))
            if pieces > 1:
                width = math.ceil(length / pieces)
                for lo in range(0, length, width):
                    sa, sb, sc = (_piece(x, axis, lo, lo + width) for x in (a, b, c))
                    if axis in k and lo:
                        part = (
                            self.device.workspace(3 * self.lane + 2, c.nbytes)[: c.nbytes]
                            .view(c.dtype)
                            .reshape(c.shape)
                        )
                        self._single(sa, sb, part, batch, m, n, k)
                        self.steps.append((np.add, (c, part, c)))
                    else:
                        self._single(sa, sb, sc, batch, m, n, k)
                return
        self._single(a, b, c, batch, m, n, k)

    def _single(self, a: Array, b: Array, c: Array, batch: list[int], m: list[int], n: list[int], k: list[int]) -> None:
        if not _readable(a, batch, m, k):
            a = self._copied(0, a, [*batch, *m, *k])
        if not _readable(b, batch, n, k):
            b = self._copied(1, b, [*batch, *k, *n])
        target = c
        outer_m, inner_m = _together(m, a, c)
        outer_n, inner_n = _together(n, b, c)
        groups = [[i] for i in (*batch, *outer_m, *outer_n)]
        a3 = regroup(a, [*groups, inner_m, k])
        b3 = regroup(b, [*groups, k, inner_n])
        c3 = regroup(c, [*groups, inner_m, inner_n])
        assert a3 is not None
        assert b3 is not None
        if c3 is None or not _matrix(c3):
            target = self.device.workspace(3 * self.lane + 2, c.nbytes)[: c.nbytes].view(c.dtype).reshape(c.shape)
            outer_m, inner_m = _together(m, a, target)
            outer_n, inner_n = _together(n, b, target)
            groups = [[i] for i in (*batch, *outer_m, *outer_n)]
            a3 = regroup(a, [*groups, inner_m, k])
            b3 = regroup(b, [*groups, k, inner_n])
            c3 = regroup(target, [*groups, inner_m, inner_n])
            assert a3 is not None
            assert b3 is not None
            assert c3 is not None
        a3, b3, c3 = _compact(a3, b3, c3)
        self.steps.append((np.matmul, (a3, b3, c3)))
        if target is not c:
            self.steps.append((np.copyto, (c, target)))

    def _copied(self, number: int, x: Array, axes: list[int]) -> Array:
        """`x` copied so that `axes` are contiguous, in that order."""
        memory = self.device.workspace(3 * self.lane + number, x.nbytes)
        shape = x.shape
        strides, step = [0] * x.ndim, x.itemsize
        for axis in reversed(axes):
            strides[axis] = step
            step *= shape[axis]
        out: Array = np.ndarray(shape, x.dtype, memory, 0, strides)
        self.steps.append((np.copyto, (out, x)))
        return out


def _piece(x: Array, axis: int, lo: int, hi: int) -> Array:
    if x.shape[axis] == 1:
        return x
    return x[(slice(None),) * axis + (slice(lo, hi),)]


def _matrix(x: Array) -> bool:
    """BLAS can take the last two axes: one has unit stride, the other steps over it."""
    rows, cols = x.shape[-2:]
    s, t = x.strides[-2:]
    unit = x.itemsize
    return (t == unit and s >= unit * cols and s % unit == 0) or (s == unit and t >= unit * rows and t % unit == 0)


def _readable(x: Array, batch: list[int], rows: list[int], k: list[int]) -> bool:
    """An operand that BLAS can read in place: k is one axis, and so is a worthwhile part of the rows."""
    inner = _together(rows, x, x)[1]
    whole = math.prod(x.shape[i] for i in rows)
    part = math.prod(x.shape[i] for i in inner)
    if part < whole and part < 32:
        return False
    outer = rows[: len(rows) - len(inner)]
    grouped = regroup(x, [*[[i] for i in (*batch, *outer)], inner, k])
    return grouped is not None and _matrix(grouped)


def _together(axes: list[int], x: Array, y: Array) -> tuple[list[int], list[int]]:
    """Split `axes` into leading ones that must stay apart, and trailing ones that are one axis in both arrays."""
    cut = len(axes) - 1
    while cut > 0:
        i, j = axes[cut - 1], axes[cut]
        if any(z.strides[i] != z.strides[j] * z.shape[j] for z in (x, y)):
            break
        cut -= 1
    return axes[:cut], axes[cut:]


def _compact(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Drop leading axes of length 1 and merge leading axes that all three arrays walk as one."""
    while c.ndim > 2 and c.shape[0] == 1:
        a, b, c = a[0], b[0], c[0]
    return a, b, c


# -- device ----------------------------------------------------------------------------------------------------------


class _Bound:
    """The calls of one program on one set of buffers."""

    __slots__ = ("buffers", "name", "program", "steps")

    def __init__(self, program: CpuProgram, steps: list[Step], buffers: tuple[Array, ...]) -> None:
        # the program stays: bindings are found by its id
        self.program, self.name, self.steps, self.buffers = program, program.name, steps, buffers


class CpuBatch(Batch):
    """Flat calls, replayed in order."""

    def __init__(self, bound: list[_Bound], lanes: int) -> None:
        self._bound = bound
        self._alone = lanes > 1
        self._steps = list(itertools.chain.from_iterable(b.steps for b in bound))

    def run(self) -> None:
        with np.errstate(all="ignore"), one_blas_thread() if self._alone else nullcontext():
            for f, args in self._steps:
                f(*args)

    def profile(self) -> list[tuple[str, float]]:
        out = []
        clock = time.perf_counter
        with np.errstate(all="ignore"), one_blas_thread() if self._alone else nullcontext():
            for b in self._bound:
                start = clock()
                for f, args in b.steps:
                    f(*args)
                out.append((b.name, clock() - start))
        return out


class CpuDevice(Device):
    """NumPy on the host. Buffers are flat arrays; one thread runs batches at a time."""

    name = "cpu"
    _POOL = 256 << 20
    _BINDINGS = 1024
    _PROGRAMS = 2048

    def __init__(self) -> None:
        self.limits = Limits(
            max_buffers=1 << 16,
            max_binding_bytes=1 << 40,
            dtypes=frozenset(d for d in vars(dtypes).values() if isinstance(d, DType)),
        )
        self._pool = BufferPool(self._POOL, self._dropped)
        self._programs: dict[UOp, CpuProgram] = {}
        self._bindings: dict[tuple[int, ...], _Bound] = {}
        self._users: dict[int, list[tuple[int, ...]]] = {}
        self._arena = _aligned(1 << 20)
        self._workspaces: dict[int, Array] = {}
        # without a say over BLAS's threads, lanes and BLAS would fight over the cores
        self.lanes = Lanes(None if blas_obeys() else 1)

    # -- memory
    def alloc(self, size: int, dtype: DType) -> Array:
        kind = (size, dtype)
        found = self._pool.take(kind)
        if found is not None:
            return found  # type: ignore[no-any-return]
        held = numpy_dtype(dtype)
        return _aligned(size * held.itemsize).view(held)

    def free(self, buffer: Array) -> None:
        self._pool.give((buffer.size, _DTYPES[buffer.dtype]), buffer.nbytes, buffer)

    def upload(self, buffer: Array, data: Array) -> None:
        np.copyto(buffer, data.reshape(-1), "unsafe")

    def download(self, buffer: Array, size: int, dtype: DType) -> Array:
        return buffer[:size].copy()

    def synchronize(self) -> None:
        """Nothing to wait for: batches run to the end."""

    def arena(self, nbytes: int) -> Array:
        """Scratch shared by all kernels, at least `nbytes`. Kernels run one after another, so they can share."""
        if nbytes > self._arena.nbytes:
            self._arena = _aligned(max(nbytes, 2 * self._arena.nbytes))
        return self._arena

    def workspace(self, number: int, nbytes: int) -> Array:
        """Scratch of a single product, apart from the arena."""
        found = self._workspaces.get(number)
        if found is None or found.nbytes < nbytes:
            found = self._workspaces[number] = _aligned(max(nbytes, 1 << 16))
        return found

    def _dropped(self, buffer: Array) -> None:
        """A buffer left the pool: nothing may keep it alive."""
        for key in self._users.pop(id(buffer), ()):
            bound = self._bindings.pop(key, None)
            if bound is not None:
                self._forget(key, bound, id(buffer))

    def _forget(self, key: tuple[int, ...], bound: _Bound, but: int) -> None:
        for b in {id(b): b for b in bound.buffers}.values():
            users = self._users.get(id(b))
            if users is not None and id(b) != but:
                users.remove(key)
                if not users:
                    del self._users[id(b)]

    # -- programs
    def compile(self, sink: UOp) -> CpuProgram:
        found = self._programs.pop(sink, None)
        if found is None:
            found = CpuProgram(sink, name_of(sink), self.lanes.count)
            if len(self._programs) >= self._PROGRAMS:
                del self._programs[next(iter(self._programs))]
        self._programs[sink] = found  # reinserted last: most recently used
        return found

    def prepare(self, calls: Sequence[Call]) -> CpuBatch:
        return CpuBatch([self._bind(program, buffers) for program, buffers in calls], self.lanes.count)

    def _bind(self, program: Program, buffers: Sequence[Array]) -> _Bound:
        assert isinstance(program, CpuProgram)
        key = (id(program), *map(id, buffers))
        found = self._bindings.get(key)
        if found is not None:
            return found
        if program.ragged is not None:
            steps = [program.ragged(buffers)]
        else:
            steps = _Binder(program, buffers, self).steps
        bound = _Bound(program, steps, tuple(buffers))
        while len(self._bindings) >= self._BINDINGS:
            old = next(iter(self._bindings))
            self._forget(old, self._bindings.pop(old), 0)
        self._bindings[key] = bound
        for b in {id(b): b for b in buffers}.values():
            self._users.setdefault(id(b), []).append(key)
        return bound

    def describe(self) -> dict[str, Any]:
        facts = super().describe()
        facts.update(
            backend="NumPy " + np.__version__,
            processor=platform.processor() or platform.machine(),
            cores=os.cpu_count(),
        )
        return facts


_DTYPES: dict[np.dtype[Any], DType] = {numpy_dtype(d): d for d in vars(dtypes).values() if isinstance(d, DType)}
