"""The arrays that are planned so far: arguments as strided views, padded ones, scratch for the whole kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anneal.backend.arrays import numpy_dtype
from anneal.backend.cpu.analysis import Analysis
from anneal.backend.cpu.index import Bounds, Unsettled
from anneal.backend.cpu.plan import Loop, Pad, Product, Value, mask_of
from anneal.uop import UOp


class Arrays(Analysis):
    """A kernel while it is planned: its facts, the phases so far and the arrays that they leave."""

    def __init__(self, sink: UOp, variables: Mapping[int, UOp] | None = None) -> None:
        super().__init__(sink, variables)
        self.known: dict[UOp, Value] = {}  # fixed values, the same in every loop
        self.views: dict[UOp, Value] = {}
        self.phases: list[Loop | Pad | Product] = []
        self.fulls: list[Value] = []

    def full(self, dtype: np.dtype[Any], mask: int, order: Sequence[int] | None = None) -> Value:
        """Scratch for the whole kernel, an array over the dims of `mask`, whose axes lie in `order`."""
        v = Value("full", dtype, mask)
        size = 1
        for s in reversed(order if order is not None else [s for s in self.order if mask >> s & 1]):
            v.strides[s] = size if s not in self.dims.points else 0  # a variable's value is no place in it
            size *= self.dims.extent[s]
        v.size = size
        self.fulls.append(v)
        return v

    def view(self, u: UOp) -> Value | None:
        """A load as a strided view, padded if it must be; None if elements have to be looked up or masked."""
        found = self.views.get(u)
        if found is not None:
            return found
        load = self.loads[u]
        if load.form.nodes or load.predicate is not None:
            return None
        view = Value("param", numpy_dtype(u.dtype), load.mask, u.src[0].arg[0])
        view.offset = load.form.const
        view.strides = load.form.dims
        reduce = next((r for r, w in self.windows.items() if u in w.factors), None)
        if reduce is not None:
            view = self._windowed(view, load.box, reduce, u)
        elif load.box is not None:
            view = self._pad(view, load.box)
        self.views[u] = view
        return view

    def _windowed(self, view: Value, box: list[Bounds] | None, reduce: UOp, u: UOp) -> Value:
        """A factor of a window: with its borders, and the axis innermost that the loops have innermost."""
        window = self.windows[reduce]
        forms = self._window_forms(window, reduce) if window.main is u else box or []
        kept = [s for s in self.order if self.mask[reduce] >> s & 1 and self.dims.extent[s] > 1]
        steps = {s: abs(view.strides[s]) for s in kept if view.mask >> s & 1}
        inner = kept[-1] if kept else -1
        lies = inner not in steps or steps[inner] == (min(steps.values()) if window.main is u else 1)
        if forms is None or (box is None and lies):
            return view if box is None else self._pad(view, box)
        return self._pad(view, forms, kept)

    def _pad(self, view: Value, box: list[Bounds], kept: Sequence[int] = ()) -> Value:
        """Copy the allowed part of `view` into a zeroed array that has one axis per predicated form: as they lie in the
        source, or in the order of the dims `kept`, of which each axis has one."""
        extent = self.dims.extent
        if not all(map(self.dims.settled, view.strides)):
            raise Unsettled
        predicated = mask_of(s for b in box for s in b.dims)
        # axis: (step in the source, length, first, last+1 allowed, form)
        axes: list[tuple[int, int, int, int, int, dict[int, int]]] = []
        for s, c in view.strides.items():
            if not predicated >> s & 1:
                axes.append((c, extent[s], 0, 0, extent[s], {s: 1}))
        empty = False
        for b in box:
            if not b.dims:
                empty = True
                continue
            low = sum(min(0, c * (extent[s] - 1)) for s, c in b.dims.items())
            high = sum(max(0, c * (extent[s] - 1)) for s, c in b.dims.items()) + 1
            s0, c0 = next(iter(b.dims.items()))
            first, last = max(b.low, low), min(b.high, high)
            empty |= first >= last
            axes.append((view.strides.get(s0, 0) // c0, high - low, low, first, last, b.dims))
        at = {s: n for n, s in enumerate(kept)}
        # where an axis has several of the dims, or none, they stay as in the source
        axes.sort(key=lambda a: (max([at.get(s, -1) for s in a[5]], default=-1), -abs(a[0])))
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
