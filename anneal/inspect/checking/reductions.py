"""Reductions of bounded values, products of matrices among them, and sorts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from anneal.backend import numpy_dtype
from anneal.inspect.checking.bounds import EXACT, MOST_TERMS, Array, Bounded, rounded, terms, unit
from anneal.uop import DType, Op, dtypes, reduce_identity


class TermFacts(NamedTuple):
    """The facts that a reduction needs about its terms, or about some of them.

    `value` is of the terms, `size` the sum of their magnitudes (of a product: the product of magnitudes and bounds; of
    an extreme: its upper end), `error` the sum of their bounds (of a product: that of the magnitudes below 1; of an
    extreme: its lower end), `many` how many there are. `whole` says that all are whole numbers.
    """

    value: Array
    size: Array
    error: Array
    many: float
    whole: bool


def part_of(op: Op, dtype: DType, x: Bounded, axes: tuple[int, ...], valid: Array | None = None) -> TermFacts:
    """The terms along `axes`, which stay with size 1; those where `valid` is false do not count."""
    value, error = x.value, x.error
    if dtype.kind == "bool":
        op = {Op.ADD: Op.MAX, Op.MUL: Op.MIN}.get(op, op)
        value = value.astype(np.int8)
        identity: Any = 0 if op is Op.MAX else 1
    else:
        identity = reduce_identity(op, dtype)
    floats = dtype.is_float
    if valid is not None:
        value = np.where(valid, value, np.array(identity, value.dtype))
        error = np.where(valid, error, 0.0) if not x.exact else error
    count = math.prod([value.shape[a] for a in axes])
    if op in (Op.MAX, Op.MIN):
        best = np.maximum if op is Op.MAX else np.minimum
        start = np.array(identity, value.dtype)
        made = best.reduce(value, axis=axes, keepdims=True, initial=start)
        if x.exact:
            return TermFacts(made, EXACT, EXACT, count, True)
        wide = value.astype(np.float64)
        ends = [best.reduce(wide + s * error, axis=axes, keepdims=True, initial=float(start)) for s in (1, -1)]
        return TermFacts(made, ends[0], ends[1], count, True)
    if not floats:
        total = np.sum if op is Op.ADD else np.prod
        made = total(value, axis=axes, keepdims=True, dtype=value.dtype)
        if x.exact:
            return TermFacts(made, EXACT, EXACT, count, True)
        if op is Op.ADD:
            return TermFacts(made, EXACT, np.sum(x.whole(), axis=axes, keepdims=True), count, True)
        return TermFacts(
            made, EXACT, np.where(np.max(x.whole(), axis=axes, keepdims=True) > 0, np.inf, 0.0), count, True
        )
    size = np.abs(value)
    if op is Op.ADD:
        if x.mass is not None:
            size = x.mass if valid is None else np.where(valid, x.mass, 0.0)
            count *= x.many
        whole = x.exact and bool((value == np.rint(value)).all())
        errors = np.sum(np.broadcast_to(error, value.shape), axis=axes, keepdims=True) if not x.exact else EXACT
        return TermFacts(
            np.sum(value, axis=axes, keepdims=True), np.sum(size, axis=axes, keepdims=True), errors, count, whole
        )
    made = np.prod(value, axis=axes, keepdims=True)
    lower = np.prod(np.minimum(size, 1.0), axis=axes, keepdims=True)
    return TermFacts(made, np.prod(size + error, axis=axes, keepdims=True), lower, count, False)


def joined(op: Op, dtype: DType, a: TermFacts, b: TermFacts) -> TermFacts:
    """The terms of both."""
    if dtype.kind == "bool":
        op = {Op.ADD: Op.MAX, Op.MUL: Op.MIN}.get(op, op)
    count, whole = a.many + b.many, a.whole and b.whole
    if op in (Op.MAX, Op.MIN):
        best = np.maximum if op is Op.MAX else np.minimum
        if a.size is EXACT and b.size is EXACT:
            return TermFacts(best(a.value, b.value), EXACT, EXACT, count, whole)
        first, second = [[p.value if p.size is EXACT else x for x in (p.size, p.error)] for p in (a, b)]
        upper, lower = best(first[0], second[0]), best(first[1], second[1])
        return TermFacts(best(a.value, b.value), upper, lower, count, whole)
    if op is Op.ADD:
        errors = EXACT if a.error is EXACT and b.error is EXACT else np.asarray(a.error + b.error)
        return TermFacts(a.value + b.value, np.asarray(a.size + b.size), errors, count, whole)
    if not dtype.is_float:
        return TermFacts(a.value * b.value, EXACT, np.asarray(np.maximum(a.error, b.error)), count, whole)
    return TermFacts(a.value * b.value, np.asarray(a.size * b.size), np.asarray(a.error * b.error), count, whole)


def reduced(op: Op, dtype: DType, part: TermFacts) -> Bounded:
    """The reduction of these terms, with its bound."""
    value = part.value
    if dtype.kind == "bool":
        value = value.astype(np.bool_)
        if part.size is EXACT and part.error is EXACT:
            return Bounded(value, EXACT)
        return Bounded(value, np.where((part.size > 0) != (part.error > 0), 1.0, 0.0))
    if op in (Op.MAX, Op.MIN):
        if part.size is EXACT:
            return Bounded(value, EXACT)
        wide = value.astype(np.float64)
        ends = [np.where(end == wide, 0.0, np.abs(end - wide)) for end in (part.size, part.error)]
        error = np.maximum(ends[0], ends[1])
        return Bounded(value, np.where(np.isnan(error) & ~np.isnan(wide), np.inf, np.nan_to_num(error, posinf=np.inf)))
    if not dtype.is_float:
        return Bounded(value.astype(numpy_dtype(dtype), copy=False), part.error)
    inner = dtypes.float32 if dtype.is_narrow else dtype  # narrow floats are summed in float32, and rounded once
    with np.errstate(all="ignore"):
        if op is Op.MUL:
            change = np.where(part.size == np.abs(value), 0.0, part.size - np.abs(value))
            error = change + part.many * unit(inner) * part.size
            # in another order the product may become 0, or infinite, on its way
            least = 2.0 ** max(inner.least, -126)
            small = (part.error < least) & (part.size > 0)
            error = np.where(small, np.where(part.size <= part.error * 2, part.size + least, np.inf), error)
            error = np.where(part.size > inner.largest * part.error, np.where(part.size > 0, np.inf, error), error)
        else:
            most = 2.0 ** min(inner.digits, 52)
            if part.whole and not dtype.is_narrow and bool((part.size < most).all()):
                return Bounded(value, EXACT, part.size, int(min(part.many, MOST_TERMS)))
            error = part.error + terms(part.many) * unit(inner) * (part.size + part.error)
            error = error + part.many * 2.0 ** max(inner.least, -126)  # subnormal products may become 0
            error = np.where(part.size == 0, part.error, error)
        if dtype.is_narrow:
            error = error + unit(dtype) * (np.abs(value) + error)
        odd = ~np.isfinite(value)
        if odd.any():  # an infinite term, or one that is no number: the sum is that too
            error = np.where(odd, np.where(np.isfinite(part.error) & (part.many > 0), 0.0, np.inf), error)
        overflow = (part.size > inner.largest) & ~odd
        if overflow.any():
            sure = overflow & (np.abs(value) - error > 2 * inner.largest) & dtype.has_infinity
            value = np.where(sure, np.copysign(np.inf, value), value)
            error = np.where(overflow, np.where(sure, 0.0, np.inf), error)
        found = rounded(value, error, dtype)
        if op is Op.MUL or dtype.is_narrow:
            return found
        return found._replace(mass=part.size, many=int(min(part.many, MOST_TERMS)))


# -- products of matrices ---------------------------------------------------------------------------------------------


def _varies(a: Array) -> list[bool]:
    return [n > 1 and s != 0 for n, s in zip(a.shape, a.strides, strict=True)]


def contracted(a: Bounded, b: Bounded, axes: tuple[int, ...]) -> TermFacts:
    """The terms of the sum over `axes` of a * b, two floats of one shape, without the products in memory."""
    shape = a.value.shape
    mine, its = (np.logical_or(_varies(x.value), _varies(x.whole())) for x in (a, b))
    value = _summed(a.value, b.value, axes, mine, its)
    absolute = [np.abs(x) for x in (_thin(a.value, mine), _thin(b.value, its))]
    size = _summed(_wide(absolute[0], shape), _wide(absolute[1], shape), axes, mine, its)
    error: Array = EXACT
    finite = bool(np.isfinite(size).all())
    if not a.exact:
        error = error + _summed(a.whole(), np.abs(b.value) if finite else b.value, axes, mine, its)
    if not b.exact:
        error = error + _summed(_wide(absolute[0] + _thin(a.whole(), mine), shape), b.whole(), axes, mine, its)
    whole = a.exact and b.exact
    if whole:
        whole = all(bool((t == np.rint(t)).all()) for t in (_thin(a.value, mine), _thin(b.value, its)))
    # a product is rounded, unless it is fused with the sum
    return TermFacts(
        value, size, np.abs(error) if error is not EXACT else EXACT, math.prod([shape[i] for i in axes]) + 1.0, whole
    )


def _thin(a: Array, varies: Any) -> Array:
    """The values of `a` with one element along each axis along which it repeats itself."""
    return a[tuple([slice(None) if v else slice(0, 1) for v in varies])]


def _wide(a: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(a, shape)


def _summed(a: Array, b: Array, axes: tuple[int, ...], mine: Any, its: Any) -> Array:
    """The sum over `axes` of a * b as one product of matrices for each of what both have; axes stay with size 1."""
    shape = a.shape
    times = math.prod([shape[i] for i in axes if not mine[i] and not its[i]])
    a, b = _thin(a, mine), _thin(b, its)
    alone = tuple([i for i in axes if mine[i] and not its[i]])
    a = a.sum(axis=alone, keepdims=True) if alone else a
    alone = tuple([i for i in axes if its[i] and not mine[i]])
    b = b.sum(axis=alone, keepdims=True) if alone else b
    every = range(len(shape))
    batch = [i for i in every if i not in axes and mine[i] and its[i]]
    rows = [i for i in every if i not in axes and mine[i] and not its[i]]
    columns = [i for i in every if i not in axes and its[i] and not mine[i]]
    along = [i for i in axes if mine[i] and its[i]]
    rest = [i for i in every if i not in (*batch, *rows, *columns, *along)]

    def count(group: list[int]) -> int:
        return math.prod([shape[i] for i in group])

    left = a.transpose(*batch, *rows, *along, *columns, *rest).reshape(count(batch), count(rows), count(along))
    right = b.transpose(*batch, *along, *columns, *rows, *rest).reshape(count(batch), count(along), count(columns))
    with np.errstate(all="ignore"):
        out = np.matmul(left, right) * float(times)
    order = [*batch, *rows, *columns]
    out = out.reshape([shape[i] for i in order] + [1] * (len(shape) - len(order)))
    left_over = [i for i in every if i not in order]
    back = np.argsort([*order, *left_over])
    made = out.transpose(*back)
    return np.broadcast_to(made, tuple([1 if i in axes else n for i, n in enumerate(shape)]))


# -- sorts ------------------------------------------------------------------------------------------------------------


def argsort(keys: Bounded) -> Bounded:
    """The stable order of keys; where two may be equal or the other way round, anything."""
    value = keys.value.reshape(-1)
    order = np.argsort(value, kind="stable").astype(np.int32)
    if keys.exact or value.size < 2:
        return Bounded(order, EXACT)
    error = keys.whole().reshape(-1)[order]
    wide = value[order].astype(np.float64)
    above = np.maximum.accumulate(wide + error)
    below = np.minimum.accumulate((wide - error)[::-1])[::-1]
    near = np.zeros(value.size, np.bool_)
    close = above[:-1] >= below[1:]
    sure = (error[:-1] == 0) & (error[1:] == 0)
    near[:-1] |= close & ~sure
    near[1:] |= close & ~sure
    return Bounded(order, np.where(near, np.inf, 0.0) if near.any() else EXACT)
