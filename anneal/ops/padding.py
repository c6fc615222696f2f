"""The borders of `pad`: how they are given, and those that take values from inside the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.errors import ModeError, RangeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import several
from anneal.ops.checks import int_args, whole
from anneal.ops.joining import join, slice_axis
from anneal.ops.nodes import Number, broadcast
from anneal.uop import DType, dtypes


def whole_fill(dtype: DType, value: Number) -> Number:
    """A number in the dtype of the bools or integers that it stands beside, without its fraction."""
    if dtype is dtypes.bool_:
        return bool(value)
    if not math.isfinite(value):
        raise RangeError(f"pad: {dtype.name} does not hold {value}; give a whole number, or use .float() first")
    return int(value)


def pad_pairs(x: Tensor, padding: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The borders of each axis, of torch's flat list or of pairs."""
    n = x.ndim
    if isinstance(padding, (int, np.integer)):
        border = whole("pad", "padding", padding)
        return ((border, border),) * n
    padding = several("pad", "padding", padding)
    if any(p is None or isinstance(p, (tuple, list)) for p in padding):
        padding = [(0, 0) if p is None else p for p in padding]
        given: list[tuple[int, ...]] = [
            int_args("pad", (p,)) if isinstance(p, (tuple, list)) else (p,) for p in padding
        ]
        if len(given) != n or any(len(p) != 2 for p in given):
            raise ShapeError(f"pad: shape {x.shape} needs {n} (before, after) pairs, not {tuple(padding)}")
        return tuple([(p[0], p[1]) for p in given])
    flat = int_args("pad", (tuple(padding),))
    if len(flat) % 2 or len(flat) > 2 * n:
        raise ShapeError(
            f"pad: shape {x.shape} takes an even number of sizes up to {2 * n}, last axis first, not {flat}"
        )
    last_first = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
    return ((0, 0),) * (n - len(last_first)) + tuple(last_first[::-1])


def pad_from_inside(x: Tensor, pairs: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    """Borders with values of the tensor itself."""
    if mode not in ("reflect", "replicate", "circular"):
        raise ModeError(f"pad: mode is constant, reflect, replicate or circular, not {mode!r}")
    out = x
    for axis, (before, after) in enumerate(pairs):
        n = out.shape[axis]
        if not before and not after:
            continue
        # a negative border cuts off: in a circle first, else what was added, as in torch
        cut = (max(0, -before), max(0, -after))
        before, after = max(0, before), max(0, after)
        if sum(cut) > n + before + after or (mode == "circular" and sum(cut) > n):
            raise ShapeError(f"pad: {pairs[axis]} cuts more than the {n} elements of axis {axis} of {x.shape}")
        if mode == "circular":
            out, n, cut = slice_axis(out, axis, cut[0], n - cut[1]), n - sum(cut), (0, 0)
        room = {"reflect": n - 1, "circular": n, "replicate": before + after if n else 0}[mode]
        if max(before, after) > room:
            kind = ModeError if n < x.shape[axis] else ShapeError  # torch's result is not of the tensor then
            raise kind(f"pad: {mode} of {pairs[axis]} needs at most {room} on axis {axis} of shape {x.shape}")
        parts = []
        for width, left in ((before, True), (after, False)):
            if not width:
                continue
            if mode == "replicate":
                edge = slice_axis(out, axis, 0, 1) if left else slice_axis(out, axis, n - 1, n)
                part = edge._new(broadcast(edge.uop, (*out.shape[:axis], width, *out.shape[axis + 1 :])))
            elif mode == "reflect":
                part = (
                    slice_axis(out, axis, 1, width + 1) if left else slice_axis(out, axis, n - 1 - width, n - 1)
                ).flip(axis)
            else:
                part = slice_axis(out, axis, n - width, n) if left else slice_axis(out, axis, 0, width)
            parts.append((left, part))
        row = [p for left, p in parts if left] + [out] + [p for left, p in parts if not left]
        out = join(row, axis) if len(row) > 1 else out
        if cut != (0, 0):
            out = slice_axis(out, axis, cut[0], out.shape[axis] - cut[1])
    return out
