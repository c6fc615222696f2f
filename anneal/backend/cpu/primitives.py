"""The records of a plan, and calls of instructions that are no plain ufunc: copies, look-ups, scatters, reduces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from anneal.backend.arrays import MEANINGS, Array, NumpyDType
from anneal.backend.cpu.index import Dims
from anneal.uop import Ints, Op

Step = tuple[Callable[..., Any], tuple[Any, ...]]
# Given input arrays and the output array, the calls that fill the output.
Build = Callable[[Sequence[Array], Array], list[Step]]
Block = dict[int, tuple[int, int]]  # which values of each dim, from the first to before the last


@dataclass(slots=True, eq=False)
class PlanValue:
    """An array of the plan. `kind`:

    const   a scalar; `ref` is a 0-d array
    fixed   known while compiling; `ref` is the array, one axis per dim
    param   a strided view of kernel argument `ref`, from element `offset`
    full    scratch that lives for the whole kernel, `size` elements; a strided view of it
    temp    scratch of one block, in a register that is reused once nobody needs it
    bits    another value's memory under another dtype; `ref` is that value
    """

    kind: str
    dtype: NumpyDType
    mask: int
    ref: Any = None
    strides: dict[int, int] = field(default_factory=dict)
    offset: int = 0
    size: int = 0
    register: int = -1

    @property
    def root(self) -> PlanValue:
        """The value that owns the memory."""
        v = self
        while v.kind == "bits":
            v = v.ref
        return v


@dataclass(slots=True)
class Instr:
    """An instruction, one primitive: `build(inputs, output)` gives its calls. `fold`, for a reduce accumulated over
    blocks, combines a block's result with what is there, over the reduced dims `over`. `passes` is how often it goes
    over its output.
    """

    name: str
    build: Build
    ins: list[PlanValue]
    out: PlanValue
    inplace: bool = False
    fold: Callable[..., Any] | None = None
    over: int = 0
    passes: int = 1


@dataclass(slots=True)
class BlockLoop:
    """Instructions run once for every block; `whole` are dims that must not be cut."""

    instrs: list[Instr]
    mask: int
    whole: int


@dataclass(slots=True)
class Pad:
    """out[...] = 0, then out's interior = source."""

    out: PlanValue
    interior: PlanValue
    source: PlanValue
    extents: dict[int, int]


@dataclass(slots=True)
class Product:
    """c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]; each a list of dims in array order."""

    a: PlanValue
    b: PlanValue
    c: PlanValue
    batch: list[int]
    m: list[int]
    n: list[int]
    k: list[int]


@dataclass(slots=True)
class CpuPlan:
    """`order` lists the dims outermost first: the axes of every array.

    A plan is a list of phases:

        Pad      copy a predicated load into a zero-bordered array, of which such reads are plain strided views
        Loop     elementwise work and small reduces, block by block so that temporaries stay in cache
        Product  one sum of products by BLAS
    """

    order: list[int]
    dims: Dims
    phases: list[BlockLoop | Pad | Product]
    fulls: list[PlanValue]


def bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def among(order: Iterable[int], mask: int) -> list[int]:
    """The dims of a mask in the order in which `order` has them."""
    return [s for s in order if mask >> s & 1]


def mask_of(dims: Iterable[int]) -> int:
    return union(1 << s for s in dims)


def union(masks: Iterable[int]) -> int:
    """The dims of all masks together."""
    return reduce(int.__or__, masks, 0)


_BLAS = (np.dtype(np.float32), np.dtype(np.float64))

# A reduce over fewer elements in a row than this, for so many results, goes place by place.
_SHORT, _MANY = 8, 1024
# The key of the step from one element of a table's last axis to the next, which is no dim.
EXTRA = -2
# Nanoseconds of a copy: to the next row; of an element beside the one before it, within its cache line, farther off.
_ROW_NS, _BESIDE_NS, _STEP_NS, _FAR_NS, _NEAR = 10.0, 0.2, 0.6, 1.0, 32
# Fewer words are added up in 64 bits at once.
_SURE = 2048


class _Shared:
    """Values that the cpu devices of a process share. Whoever holds a device's lock writes it."""

    def __init__(self) -> None:
        self.ones: dict[NumpyDType, Array] = {}  # of a dtype the first of one array serve all lengths
        self.libraries: WeakValueDictionary[str, Any] = WeakValueDictionary()  # compiled kernels, by their keys
        self.worker = 0  # calls that are made from now on run on this one
        # One per worker: workers run at the same time, the kernels of one worker one after another.
        self.scratch: dict[int, Array] = {}
        self.unfit: list[
            tuple[Any, str]
        ] = []  # tags of results that did not fit their dtypes, since somebody last asked


SHARED = _Shared()


def once(f: Callable[..., Any]) -> Build:
    """The build of one call of `f`, which takes the inputs and then the output."""
    return lambda ins, out: [(f, (*ins, out))]


def take(ins: Sequence[Array], out: Array) -> list[Any]:
    flat, index = ins
    return [(flat.take, (index.reshape(out.shape), None, out, "clip"))]


def take_rows(ins: Sequence[Array], out: Array) -> list[Any]:
    """Elements of the last axis of a table, at an index with axes of its own, of length 1 in the table; a third input
    says which of them are in range, the others become zero."""
    table, index, *inside = ins
    axes = range(out.ndim)
    # as it lies in memory, so that NumPy need not copy it
    lies = sorted(range(table.ndim), key=lambda i: (table.shape[i] > 1, -table.strides[i]))
    table, at = table.transpose(lies), lies.index(out.ndim)
    wide = (*table.shape[:at], *index.shape, *table.shape[at + 1 :])
    # of each axis the index's, or the table's; the other has length 1
    place = {i: n if n < at else n + out.ndim - 1 for n, i in enumerate(lies)}
    order = [at + i if index.shape[i] > 1 else place[i] for i in axes]
    made, long = None, [n for n in order if wide[n] > 1]
    if long == sorted(long) and out.flags.c_contiguous:
        made = out.reshape(*table.shape[:at], index.size, *table.shape[at + 1 :])
    order += [i for i in range(len(wide)) if i not in order]

    def taken() -> None:
        found = table.take(index.reshape(-1), at, made, "clip")
        if inside and not inside[0].all():
            found[(slice(None),) * at + (np.flatnonzero(~inside[0]),)] = 0
        if made is None:
            np.copyto(out, found.reshape(wide).transpose(order).reshape(out.shape))

    return [(taken, ())]


def scatter(*arrays: Array) -> None:
    """Store values where an index says, perhaps under a predicate; the last array is flat memory."""
    index, value, *inside = np.broadcast_arrays(*arrays[:-1])
    if inside:
        index, value = index[inside[0]], value[inside[0]]
    arrays[-1][index] = value


def _put_now(first: int, terms: Sequence[Any], value: Array, flat: Array, strides: Ints) -> None:
    for number, (low, high, step) in terms:
        first += step * min(max(number(), low), high)
    place = np.ndarray(value.shape, flat.dtype, flat, first * flat.itemsize, strides)
    np.copyto(place, value, "unsafe")


WORDS = (np.dtype(np.int32), np.dtype(np.uint32))


def fit(tag: Any, x: Array, out: Array) -> None:
    """Copy into fewer bits, and note in `SHARED.unfit` if that loses a value."""
    np.copyto(out, x, "unsafe")
    if not (out == x).all():  # a constant has fewer axes, and is as wide as what it fills
        SHARED.unfit.append((tag, out.dtype.name))


def _add_words(x: Array, axes: Ints, out: Array, n: int) -> None:
    """The sum of words of 32 bits in 64: in 32, five times as fast, if the largest word says that it fits."""
    if x.size > _SURE:
        most = np.iinfo(x.dtype).max
        top = int(np.bitwise_or.reduce(x, None))  # no word is larger, if none is negative; one look at them, not two
        if top < 0 or top * n > most:
            top = max(int(np.maximum.reduce(x, None)), -int(np.minimum.reduce(x, None)))
        if top * n <= most:
            np.copyto(out, np.add.reduce(x, axes, x.dtype, keepdims=True))
            return
    np.add.reduce(x, axes, out.dtype, out, keepdims=True)


def put(steps: Ints, first: int, terms: Sequence[tuple[int, int, int]], ins: Sequence[Array], out: Array) -> list[Any]:
    """Write the first input into flat memory, with these steps from one element to the next. It begins at element
    `first`, and for every other input, a number, (low, high, step) farther: step times the number, no less than low and
    no more than high.
    """
    value, *numbers = ins
    strides = tuple([n * out.itemsize for n in steps])
    return [(_put_now, (first, [(x.item, t) for x, t in zip(numbers, terms, strict=True)], value, out, strides))]


def regroup(x: Array, groups: Sequence[Sequence[int]]) -> Array | None:
    """`x` with each group of axes made one, as a view; None when the strides do not allow it. Axes in no group must
    have length 1."""
    found = regrouped(x, groups)
    return None if found is None else np.lib.stride_tricks.as_strided(x, *found)


def regrouped(x: Array, groups: Sequence[Sequence[int]]) -> tuple[list[int], list[int]] | None:
    """The shape and strides that `regroup` gives `x`."""
    lengths, steps, unit = x.shape, x.strides, x.itemsize
    shape = []
    strides = []
    for group in groups:
        n, step = 1, unit
        for axis in reversed(group):
            length = lengths[axis]
            if length == 1:
                continue
            if n == 1:
                n, step = length, steps[axis]
            elif steps[axis] == step * n:
                n *= length
            else:
                return None
        shape.append(n)
        strides.append(step)
    return shape, strides


def copy_ns(x: Array, axes: Sequence[int]) -> float:
    """Estimated nanoseconds of copying `x` into contiguous memory with the axes in that order: NumPy walks rows of the
    innermost one, and of those before it that go on with the same step."""
    run, step = 1, x.itemsize
    for axis in reversed(axes):
        length = x.shape[axis]
        if length == 1:
            continue
        if run == 1:
            step = x.strides[axis]
        elif x.strides[axis] != step * run:
            break
        run *= length
    return x.size * (_ROW_NS / run + (_BESIDE_NS if step == x.itemsize else _STEP_NS if step <= _NEAR else _FAR_NS))


def _ones(dtype: NumpyDType, n: int) -> Array:
    """An array of ones."""
    found = SHARED.ones.get(dtype)
    if found is None or found.size < n:
        found = SHARED.ones[dtype] = np.ones(n if found is None else max(n, 2 * found.size), dtype)
    return found[:n]


def reduce_calls(op: Op, axes: Ints, ins: Sequence[Array], out: Array) -> list[Any]:
    x = ins[0]
    f: Any = MEANINGS[op]
    if x.dtype != out.dtype and x.dtype in WORDS:
        return [(_add_words, (x, axes, out, math.prod(x.shape[i] for i in axes)))]
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
    if out.size >= _MANY and _in_short_runs(x, axes):
        return tap_calls(op, axes, ins, out)
    return [(f.reduce, (x, axes, x.dtype, out, True))]


def _in_short_runs(x: Array, axes: Ints) -> bool:
    """True if NumPy's own reduce would walk few elements at a time: then one pass for each of them is faster."""
    inner = min([i for i in range(x.ndim) if x.shape[i] > 1], key=lambda i: abs(x.strides[i]), default=-1)
    return inner in axes and x.shape[inner] <= _SHORT and math.prod(x.shape[i] for i in axes) <= _SHORT**2


def _row_extrema(f: Any, axes: Ints, x: Array, out: Array) -> list[Any] | None:
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
    steps = []
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


def tap_calls(op: Op, axes: Ints, ins: Sequence[Array], out: Array) -> list[Any]:
    """A reduce over short axes of views, or of the products of two: a pass over `out` for each place along the axes."""
    fold = MEANINGS[op]
    part = np.ndarray(out.shape, out.dtype, _scratch(out.nbytes))
    steps: list[Any] = []
    lengths = [max(x.shape[axis] for x in ins) for axis in axes]
    for number, place in enumerate(itertools.product(*map(range, lengths))):
        at = [slice(None)] * out.ndim
        for axis, n in zip(axes, place, strict=True):
            at[axis] = slice(n, n + 1)
        views = [_at(x, at) for x in ins]
        tap = views[0]
        if len(views) > 1:
            tap = part if number else out
            steps.append((np.multiply, (*views, tap)))
        elif not number:
            steps.append((np.copyto, (out, tap)))
        if number:
            steps.append((partial(fold, out=out), (out, tap)))
    return steps


def _at(x: Array, places: Sequence[Any]) -> Array:
    """A part of an array, with all of an axis along which it is repeated."""
    return x[tuple([p if n > 1 else slice(None) for p, n in zip(places, x.shape, strict=True)])]


def _scratch(nbytes: int) -> Array:
    """Scratch for the steps of one instruction."""
    found = SHARED.scratch.get(SHARED.worker)
    if found is None or found.nbytes < nbytes:
        found = SHARED.scratch[SHARED.worker] = np.empty(max(nbytes, 1 << 16), np.uint8)
    return found
