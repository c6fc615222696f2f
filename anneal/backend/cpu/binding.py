"""Binding: a program's plan becomes a flat list of calls on given memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from anneal.backend.arrays import Array
from anneal.backend.cpu.dynamic import dynamic_step
from anneal.backend.cpu.layout import CpuProgram, LoopLayout

from anneal.backend.cpu.primitives import (  # isort: skip
    EXTRA, SHARED, Block, Pad, PlanValue, Product, Step, copy_ns, mask_of, regroup, regrouped,
)  # fmt: skip
from anneal.backend.cpu.workers import Workers, run_all

# A product copies an operand that BLAS cannot read in pieces of at most this many bytes.
_PIECE = 8 << 20


class _Axes(NamedTuple):
    """The axes of a product's arrays that are its batch, rows, columns and the sum's."""

    batch: list[int]
    m: list[int]
    n: list[int]
    k: list[int]

    def readable(self, x: Array, rows: list[int]) -> bool:
        """True if BLAS can read an operand in place: k is one axis, and so is a worthwhile part of its rows."""
        inner = _together(rows, x, x)[1]
        part = math.prod(x.shape[i] for i in inner)
        if part < math.prod(x.shape[i] for i in rows) and part < 32:
            return False
        outer = rows[: len(rows) - len(inner)]
        grouped = regrouped(x, [*[[i] for i in (*self.batch, *outer)], inner, self.k])
        return grouped is not None and _matrix(*grouped, x.itemsize)


class _Host(Protocol):
    """The workers, and the memory of values that live only while a kernel runs."""

    workers: Workers

    def arena(self, key: tuple[int, str], nbytes: int) -> Array:
        """Scratch of one worker for one purpose, at least `nbytes`."""


class BoundProgram:
    """A program bound to buffers, as `steps`: calls, of which one runs what several workers share. Scratch of a worker
    is its own.

    Of a program that runs over the first values of its dims, as variables say, `steps` is one call of them all, which
    are replaced when the variables get other values.
    """

    def __init__(self, program: CpuProgram, buffers: Sequence[Array], device: _Host, values: Mapping[str, int]) -> None:
        self.program, self.buffers, self.device = program, buffers, device
        self.memory = device.arena((-1, ""), program.shared)  # what the kernel's workers share
        self._kept: dict[Any, Array] = {}  # arrays that no variable changes
        self._own = program.own(values)
        self._all = self._bound(self._own)
        self.steps: list[Step] = [(run_all, (self._all,))] if self._own else self._all

    def give(self, values: Mapping[str, int]) -> None:
        """Run with these values of variables."""
        own = self.program.own(values)
        if own != self._own:
            self._all[:], self._own = self._bound(own), own

    def _bound(self, values: Mapping[str, int]) -> list[Step]:
        """The calls that run the program with these values."""
        program = self.program
        self._calls: list[Step] = []
        self._enter(0)
        if program.dynamic:
            self._calls.append(dynamic_step(program.sink, self.buffers))
        for number, (plan, layouts) in enumerate(program.parts):
            self.plan = plan
            # what a run takes of dims, where that depends on variables
            self.taken: Block = program.taken(number, values)
            self.taken_mask = mask_of(self.taken)
            for layout in layouts:
                if isinstance(layout, Pad):
                    self._pad(layout)
                else:
                    self._loop(layout)
        return self._calls

    def _enter(self, worker: int) -> None:
        """Have the calls that are made from here on run on `worker`."""
        self.worker = worker
        self.arena = self.device.arena((worker, ""), self.program.scratch)
        SHARED.worker = worker

    def _array(self, v: PlanValue, block: Block) -> Array:
        if self.taken:
            if not v.mask & self.taken_mask:
                key = (id(v), self.worker, *[b for s, b in block.items() if v.mask >> s & 1])
                found = self._kept.get(key)
                if found is None:
                    found = self._kept[key] = self._view(v, block)
                return found
            block = {**self.taken, **block}
        return self._view(v, block)

    def _view(self, v: PlanValue, block: Block) -> Array:
        kind = v.kind
        if kind == "const":
            return v.ref  # type: ignore[no-any-return]
        if kind == "bits":
            return self._array(v.ref, block).view(v.dtype)
        if kind == "fixed":
            return self._part(v.ref, block)
        if kind == "param" and -1 in v.strides:
            return self.buffers[v.ref]  # type: ignore[no-any-return]
        extent, unit = self.plan.dims.extent, v.dtype.itemsize
        shape, strides, offset = [], [], v.offset * unit
        for s in self.plan.order:
            lo, hi, step = 0, 1, 0
            if v.mask >> s & 1:
                lo, hi = block.get(s, (0, extent[s]))
                step = v.strides.get(s, 0) * unit
            shape.append(hi - lo)
            strides.append(step)
            offset += lo * step
        if kind == "temp":
            return np.ndarray(shape, v.dtype, self.arena, v.register)
        if EXTRA in v.strides:
            step, size = v.strides[EXTRA] * unit, v.size
            if kind == "param":  # of a loop that is shorter than those that its kernels are made for
                last = offset + unit + sum([(n - 1) * s for n, s in zip(shape, strides)])
                size = min(size, 1 + (self.buffers[v.ref].nbytes - last) // step)
            shape.append(size)
            strides.append(step)
        if kind == "param":
            return np.ndarray(shape, v.dtype, self.buffers[v.ref], offset, strides)
        base = v.ref if isinstance(v.ref, PlanValue) else v
        return np.ndarray(shape, v.dtype, self.memory, base.register + offset, strides)

    def _part(self, x: Array, block: Block) -> Array:
        """The elements of a block in an array with an axis for each dim."""
        for axis, s in enumerate(self.plan.order):
            if s in block:
                x = _piece(x, axis, *block[s])
        return x

    def _loop(self, layout: LoopLayout) -> None:
        product = layout.product
        if product is not None and self._in_pieces(product):
            product = None
        if layout.workers == 1:
            self._share(layout, product, layout.blocks)
            return
        whole, shares = self._calls, []
        for worker in range(layout.workers):
            self._enter(worker)
            self._calls = []
            first, end = (n * len(layout.blocks) // layout.workers for n in (worker, worker + 1))
            self._share(layout, product, layout.blocks[first:end])
            shares.append(self._calls)
        self._calls = whole
        self._calls.append((self.device.workers.run, (shares,)))
        self._enter(0)

    def _share(self, layout: LoopLayout, product: Product | None, blocks: list[Block]) -> None:
        """A worker's part of a loop."""
        made: dict[Any, Array] = {}
        for i, once in zip(layout.loop.instrs, layout.once, strict=True):
            if once:
                self._calls.extend(i.build([self._array(v, {}) for v in i.ins], self._array(i.out, {})))
        if self.taken:
            blocks = _within(blocks, self.taken)
        if product is None:
            for block in blocks:
                self._block(layout, block, made)
        elif blocks:
            axes, a, b, c = self._axes(product), *[self._array(v, {}) for v in (product.a, product.b, product.c)]
            # what every block reads is copied once, where BLAS cannot read it
            a = a if product.a.mask & layout.cut else self._factor("a", a, axes)
            b = b if product.b.mask & layout.cut else self._factor("b", b, axes)
            for together in layout.gathered(blocks):
                whole = {s: (lo, together[-1][s][1]) for s, (lo, _) in together[0].items()}
                self._single(self._part(a, whole), self._part(b, whole), self._part(c, whole), axes)
                for block in together:
                    self._block(layout, block, made)

    def _block(self, layout: LoopLayout, block: dict[int, tuple[int, int]], made: dict[Any, Array]) -> None:
        """The loop's instructions on one block. `made` keeps the worker's arrays."""
        steps, cut = self._calls, layout.cut

        def array(v: PlanValue) -> Array:
            touched, kept = v.mask & cut, v.root.kind != "temp"
            key = (id(v), *[lo if kept else hi - lo for s, (lo, hi) in block.items() if touched >> s & 1])
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
                part = np.ndarray(out.shape, out.dtype, self.arena, layout.spare[n])
                steps.extend(i.build(ins, part))
                steps.append((partial(i.fold, out=out), (out, part)))
            else:
                steps.extend(i.build(ins, out))

    def _pad(self, p: Pad) -> None:
        whole = np.ndarray((p.out.size,), p.out.dtype, self.memory, p.out.register)
        if math.prod(p.extents.values()) < whole.size or not p.extents:
            self._calls.append((whole.fill, (0,)))
        if p.extents:
            axes = sorted(p.extents)
            unit = p.out.dtype.itemsize
            shape = [p.extents[i] for i in axes]

            def view(v: PlanValue, memory: Array, start: int) -> Array:
                strides = [v.strides[i] * unit for i in axes]
                return np.ndarray(shape, p.out.dtype, memory, start + v.offset * unit, strides)

            inside = view(p.interior, self.memory, p.out.register)
            self._calls.append((np.copyto, (inside, view(p.source, self.buffers[p.source.ref], 0))))

    # -- products
    def _axes(self, p: Product) -> _Axes:
        at = {s: i for i, s in enumerate(self.plan.order)}
        return _Axes(*[[at[s] for s in g] for g in (p.batch, p.m, p.n, p.k)])

    def _in_pieces(self, p: Product) -> bool:
        """Compute a product at once whose operands have to be copied and are large; False for any other."""
        a, b, c = (self._array(v, {}) for v in (p.a, p.b, p.c))
        if max(a.nbytes, b.nbytes) <= _PIECE:
            return False
        batch, m, n, k = axes = self._axes(p)
        sizes = [0 if axes.readable(x, rows) else x.nbytes for x, rows in ((a, m), (b, n))]
        if (copied := max(sizes)) <= _PIECE:
            return False
        axis = (batch or (m if sizes[0] == copied else n))[0]
        if not batch and c.shape[axis] * _PIECE < copied:
            axis = k[0]
        length = max(x.shape[axis] for x in (a, b))
        width = math.ceil(length / min(length, math.ceil(copied / _PIECE)))
        for lo in range(0, length, width):
            sa, sb, sc = (_piece(x, axis, lo, lo + width) for x in (a, b, c))
            if axis in k and lo:
                part = self._beside(c)
                self._single(sa, sb, part, axes)
                self._calls.append((np.add, (c, part, c)))
            else:
                self._single(sa, sb, sc, axes)
        return True

    def _beside(self, c: Array) -> Array:
        """Memory of its own for a product that cannot be written in place."""
        return self.device.arena((self.worker, "c"), c.nbytes)[: c.nbytes].view(c.dtype).reshape(c.shape)

    def _single(self, a: Array, b: Array, c: Array, axes: _Axes) -> None:
        """Add the call of BLAS that computes one product, and a copy if it cannot write the result in place."""
        a, b = self._factor("a", a, axes), self._factor("b", b, axes)
        batch, m, n, k = axes

        def matrices(target: Array) -> list[Any]:
            outer_m, inner_m = _together(m, a, target)
            outer_n, inner_n = _together(n, b, target)
            groups = [[i] for i in (*batch, *outer_m, *outer_n)]
            last = ((a, inner_m, k), (b, k, inner_n), (target, inner_m, inner_n))
            return [regroup(x, [*groups, rows, columns]) for x, rows, columns in last]

        target = c
        a3, b3, c3 = matrices(c)
        if c3 is None or not _matrix(c3.shape, c3.strides, c3.itemsize):
            target = self._beside(c)
            a3, b3, c3 = matrices(target)
        while c3.ndim > 2 and c3.shape[0] == 1:
            a3, b3, c3 = a3[0], b3[0], c3[0]
        # np.dot lets other workers run beside a matrix-vector product, which np.matmul does not
        alone = c3.ndim == 2 and c3.shape[1] == 1 and a3.flags.forc and c3.flags.c_contiguous
        self._calls.append((np.dot if alone else np.matmul, (a3, b3, c3)))
        if target is not c:
            self._calls.append((np.copyto, (c, target)))

    def _factor(self, name: str, x: Array, axes: _Axes) -> Array:
        """A factor, "a" or "b", as matrices that BLAS can read: as it is, or copied, with the axes innermost with which
        NumPy copies it faster."""
        batch, m, n, k = axes
        rows, first, second = (m, m, k) if name == "a" else (n, k, n)
        if axes.readable(x, rows):
            return x
        order = min([*batch, *first, *second], [*batch, *second, *first], key=lambda axes: copy_ns(x, axes))
        strides, step = [0] * x.ndim, x.itemsize
        for axis in reversed(order):
            strides[axis] = step
            step *= x.shape[axis]
        out = np.ndarray(x.shape, x.dtype, self.device.arena((self.worker, name), x.nbytes), 0, strides)
        self._calls.append((np.copyto, (out, x)))
        return out


def _within(blocks: Sequence[Block], taken: Block) -> list[Block]:
    """The blocks as far as a run takes them."""
    out = []
    for b in blocks:
        cut = {s: (lo, min(hi, taken[s][1])) if s in taken else (lo, hi) for s, (lo, hi) in b.items()}
        if all(lo < hi for lo, hi in cut.values()):
            out.append(cut)
    return out


def _piece(x: Array, axis: int, lo: int, hi: int) -> Array:
    if x.shape[axis] == 1:
        return x
    return x[(slice(None),) * axis + (slice(lo, hi),)]


def _matrix(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    """BLAS can take the last two axes: one has unit stride, the other steps over it."""
    rows, cols = shape[-2:]
    s, t = strides[-2:]
    return (t == unit and s >= unit * cols and s % unit == 0) or (s == unit and t >= unit * rows and t % unit == 0)


def _together(axes: list[int], x: Array, y: Array) -> tuple[list[int], list[int]]:
    """Split `axes` into leading ones that must stay apart, and trailing ones that are one axis in both arrays."""
    cut = len(axes) - 1
    while cut > 0:
        i, j = axes[cut - 1], axes[cut]
        if any(z.strides[i] != z.strides[j] * z.shape[j] for z in (x, y)):
            break
        cut -= 1
    return axes[:cut], axes[cut:]
