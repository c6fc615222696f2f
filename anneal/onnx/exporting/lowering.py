"""Writes a traced graph as an ONNX graph: a recipe for each node that is needed, then all recipes in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anneal import progress
from anneal.onnx.exporting import composites, graph_writer as forms
from anneal.onnx.exporting.graph_writer import ExportRecipe, GraphValue, GraphWriter, MaybeRecipe, Values, carrier
from anneal.onnx.values import dtype_named
from anneal.ops.nodes import reshape, shrink
from anneal.rewrite import matched_axes, value_of
from anneal.tensor import Tensor
from anneal.uop import ALU, DType, Known, Op, Shape, UOp, arena, dtypes, toposort
from anneal.uop.sizes import symbolic_arg

_SAME = frozenset((Op.CONTIGUOUS, Op.DETACH, Op.EXPAND))  # the value as it is: it broadcasts
_first = lambda w, given: given[0]
_MOVES = frozenset((Op.CAST, Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.CONTIGUOUS, Op.DETACH))


class Leaf(NamedTuple):
    """An input or a weight: its name and dtype, and for a weight the tensor, whose values are written if it is used."""

    name: str
    dtype: DType
    weight: Tensor | None

    def written(self, w: GraphWriter) -> str:
        """The leaf in the carrier of its dtype."""
        if self.weight is not None:
            w.initialisers.append((self.name, self.weight.detach().numpy()))
        return self.name if carrier(self.dtype) is self.dtype else w.cast(self.name, carrier(self.dtype))


class Missing(NamedTuple):
    """A node without a form in ONNX, and why."""

    node: UOp
    reason: str


class GraphLowering:
    """The recipes of a graph, and the values that they have made.

    The first that fits makes a node's recipe: a weight or an input; a value that follows from constants alone, which is
    computed now; the operator of a name that an op left (`composites.py`), or of several nodes; or the form of the
    node's own op, which every op has that can be exported.
    """

    def __init__(self, writer: GraphWriter, leaves: dict[UOp, Leaf], device: str, drawn: Container[UOp]) -> None:
        self.writer = writer
        self.leaves = leaves
        # the memory of weights, which reshapes of them read, and the nodes that are the weights
        self.memory = {u.src[0]: u for u in leaves if u.op is Op.RESHAPE and u.src[0].op is Op.BUFFER}
        self.constants = Constants(device, [*leaves, *self.memory], drawn)
        self.missing: list[Missing] = []
        self._values: dict[UOp, GraphValue] = {}
        self._products: Known = {}  # sums that a reshape of them has written

    def lower(self, roots: Iterable[UOp]) -> Values:
        """Write all nodes that `roots` need; returns the values of `roots`."""
        roots = list(roots)
        recipes: dict[UOp, ExportRecipe] = {}
        stack = [(u, False) for u in reversed(roots)]
        here = arena()
        with here.untracked(), progress.work("writing nodes") as writing:
            while stack:
                u, ready = stack.pop()
                if u in self._values:
                    continue
                if ready:
                    writing.step()
                    recipe = recipes.pop(u)
                    self.writer.at(u)
                    made = recipe.emit(self.writer, [self._values[s] for s in recipe.inputs])
                    self._values[u] = GraphValue(made, u.shape) if isinstance(made, str) else made
                elif u not in recipes:
                    here.inherit(u)
                    recipes[u] = recipe = self._recipe(u)
                    stack.append((u, True))
                    stack += [(s, False) for s in reversed(recipe.inputs)]
        return [self.writer.whole(self._values[u], u.shape) for u in roots]

    def _recipe(self, u: UOp) -> ExportRecipe:
        leaf = self.leaves.get(u)
        if leaf is not None:
            return ExportRecipe((), lambda w, _: leaf.written(w))
        if (first := self.memory.get(u.src[0] if u.op is Op.RESHAPE else u)) is not None:
            return ExportRecipe((first,), partial(_again, u, first))
        constant = self.constants.of(u)
        if constant is not None:
            return ExportRecipe((), lambda w, _: constant.written(w))
        return composites.composite(u, self.writer.opset) or self._summed(u) or self._looked_up(u) or self._own(u)

    def _summed(self, u: UOp) -> MaybeRecipe:
        """A sum of products, in the shape that a reshape of it gives it, if there is one."""
        total = u.src[0] if u.op is Op.RESHAPE else u
        if total.op is not Op.REDUCE_AXIS:
            return None
        first = self._products.get(total)
        if first is not None and first is not u:
            return ExportRecipe((first,), partial(_again, u, first))
        recipe = composites.contraction(total, u.shape)
        if recipe is not None:
            self._products[total] = u
        return recipe

    def _looked_up(self, u: UOp) -> MaybeRecipe:
        """A look-up of slices by indices that are surely inside, in the shape that a reshape of it gives it."""
        found = u.src[0] if u.op is Op.RESHAPE else u
        if found.op is not Op.GATHER or found.arg != 0:
            return None
        table, index = found.src
        bare = index.src[0] if index.op is Op.EXPAND else index
        if bare.shape != (found.shape[0], *[1] * (len(found.shape) - 1)):
            return None  # an index for each element, not one for each slice
        while bare not in self.leaves and bare.op is Op.RESHAPE:
            bare = bare.src[0]
        front, rest = u.shape[: len(bare.shape)], u.shape[len(bare.shape) :]
        if front != bare.shape or found.shape[1:] != table.shape[1:]:
            return None
        plain, inside = composites.plain_index(bare, table.shape[0], self._is_given(bare))
        if not inside:
            return None
        return composites.one("Gather", (reshape(table, (table.shape[0], *rest)), plain), axis=0)

    def _own(self, u: UOp) -> ExportRecipe:
        if u.op in _SAME:
            return ExportRecipe(u.src[:1], _first)
        if u.op is Op.CALL:
            return ExportRecipe((value_of(u),), _first)
        if u.op is Op.GATHER:
            index, inside = composites.plain_index(u.src[1], u.src[0].shape[u.arg], self._is_given(u.src[1]))
            return ExportRecipe((u.src[0], index), lambda w, given: composites.gathered(w, u, given, inside))
        if u.op is Op.BITCAST and has_bits(u):
            return ExportRecipe(u.src, lambda w, given: same_bits(w, u, given))
        if u.op.composed is not None and u.op not in forms.FORMS:
            return ExportRecipe((u.op.composed(*u.src),), _first)
        if u.op in ALU and not (reason := forms.without_form(u, self.writer.opset)):
            return ExportRecipe(u.src, lambda w, given: forms.elementwise(w, u, given))
        if u.op in _FORMS:
            form = _FORMS[u.op]
            # a symbolic size is not a value of the graph
            sources = () if u.op is Op.BIND or u.op is Op.VARIABLE else u.src
            return ExportRecipe(sources, lambda w, given: form(w, u, given))
        reason = reason if u.op in ALU else _REASONS.get(u.op, f"the op {u.op.name}")
        self.missing.append(Missing(u, reason))
        return ExportRecipe((), lambda w, _: "")

    def _is_given(self, index: UOp) -> bool:
        """True if an index is an unchanged input: the caller answers for its values."""
        while index not in self.leaves and index.op in _MOVES:
            index = index.src[0]
        if index.op is Op.WHERE:
            return self._is_given(index.src[2])
        return index in self.leaves and self.leaves[index].weight is None


# -- views ------------------------------------------------------------------------------------------------------------
# Movement ops, and the leaves that are made of sizes, as ONNX nodes.


_LAST = (1 << 63) - 1  # an end beyond every axis


def reshaped(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """RESHAPE. Axes of size 1 that only come or go in front leave a value as it is."""
    v, old, new = given[0], u.src[0].shape, u.shape
    ones = all(n == 1 for n in v.shape)
    if len(v.shape) <= (len(new) if ones else len(_trailing(new))) and (ones or _trailing(old) == _trailing(new)):
        return v
    shape = (1,) * len(new) if ones else _spread(v, old, new)
    if shape is None:
        v, shape = w.whole(v, old), new
    return GraphValue(w.reshape(v.name, shape), shape)


def _trailing(shape: Shape) -> Shape:
    """A shape without the 1s in front."""
    return tuple(itertools.dropwhile(lambda n: n == 1, shape))


def _spread(v: GraphValue, old: Shape, new: Shape) -> Shape | None:
    """The shape of a value after a reshape of which no group of axes is repeated in part; None if one is."""
    if 0 in old:
        return None
    mine = (1,) * (len(old) - len(v.shape)) + v.shape
    out = [1] * len(new)
    for theirs, its in matched_axes(old, new):
        before = [mine[i] for i in theirs]
        if all(n == 1 for n in before):
            continue
        if any(n != old[i] for n, i in zip(before, theirs)):
            return None
        for i in its:
            out[i] = new[i]
    return tuple(out)


def permuted(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """PERMUTE; moving axes of one element among others is a reshape."""
    v = given[0]
    if all(n == 1 for n in v.shape):
        return v
    v = w.ranked(v, len(u.shape))
    shape = tuple(v.shape[a] for a in u.arg)
    long = [a for a in u.arg if v.shape[a] != 1]
    if long == sorted(long):
        return GraphValue(w.reshape(v.name, shape), shape)
    return GraphValue(w.Transpose(v.name, perm=list(u.arg)), shape)


def padded(w: GraphWriter, u: UOp, given: Values) -> str:
    """PAD with zeros."""
    begins, ends = zip(*u.arg)
    return w.Pad(*w.wholes(given, u.src), w.shape(begins + ends), w.scalar(u.dtype, 0))


def shrunk(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """SHRINK: a slice along the axes that change; a repeated axis is repeated less often."""
    rank = len(u.shape)
    v = given[0]
    own = (1,) * (rank - len(v.shape)) + v.shape
    cut = [
        a
        for a, ((b, e), n, m) in enumerate(zip(u.arg, u.src[0].shape, own))
        if (m == n and (b != 0 or e != n)) or (m != n and u.shape[a] == 0)
    ]
    if any(own[a] != u.src[0].shape[a] for a in cut):
        v = w.whole(v, u.src[0].shape)
        own = v.shape
    if not cut:
        return v
    v = w.ranked(v, rank)
    begins, ends = tuple(u.arg[a][0] for a in cut), tuple(u.arg[a][1] for a in cut)
    name = w.Slice(v.name, w.shape(begins), w.shape(ends), w.ints(cut))
    return GraphValue(name, tuple(u.shape[a] if a in cut else n for a, n in enumerate(own)))


def flipped(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """FLIP: a slice from the last element to the first."""
    v = w.ranked(given[0], len(u.shape))
    axes = [a for a in u.arg if v.shape[a] != 1]
    if not axes:
        return v
    many = len(axes)
    ends = [w.ints([-1] * many), w.ints([-_LAST] * many), w.ints(axes), w.ints([-1] * many)]
    return GraphValue(w.Slice(v.name, *ends), v.shape)


def iota(w: GraphWriter, u: UOp, _: Values) -> str:
    """IOTA of a symbolic size."""
    (n,) = u.shape
    last = w.cast(w.Squeeze(w.size(n)), dtypes.int32)
    return w.Range(w.scalar(dtypes.int32, 0), last, w.scalar(dtypes.int32, 1))


def sized(w: GraphWriter, u: UOp, _: Values) -> str:
    """A symbolic size as a number."""
    return w.cast(w.Squeeze(w.size(u)), carrier(u.dtype))


_FORMS: dict[Op, Callable[[GraphWriter, UOp, Values], GraphValue | str]] = {
    Op.RESHAPE: reshaped,
    Op.PERMUTE: permuted,
    Op.PAD: padded,
    Op.SHRINK: shrunk,
    Op.FLIP: flipped,
    Op.REDUCE_AXIS: composites.reduced,
    Op.IOTA: iota,
    Op.VARIABLE: sized,
    Op.BIND: sized,
    Op.SCATTER_ADD: composites.scattered,
    Op.ARGSORT: composites.argsorted,
    Op.UPDATE: composites.updated,
}
_REASONS = {
    Op.HOST_CALL: "a function of the host, a while_loop or a cond, which no file holds",
    Op.PARAM: "a value of another function that is being transformed",
}


def _again(u: UOp, first: UOp, w: GraphWriter, given: Values) -> str:
    """The elements of `first` in the shape of `u`."""
    (name,) = w.wholes(given, (first,))
    return name if first.shape == u.shape else w.reshape(name, u.shape)


# -- values that follow from constants alone are computed once, when the file is made ---------------------------------
# Masks, positions, tables.


MOST = 1 << 20  # bytes of a value that takes the place of the nodes that compute it
_VARIES = frozenset((Op.PARAM, Op.BIND, Op.VARIABLE, Op.HOST_CALL))
_VIEWS = frozenset((Op.RESHAPE, Op.PERMUTE, Op.CONTIGUOUS, Op.DETACH))


class Constant(NamedTuple):
    """A value that is known: an array, or a number, of a dtype."""

    array: Any
    dtype: DType

    def written(self, w: GraphWriter) -> GraphValue:
        """The constant as an initialiser, in its carrier dtype."""
        if not self.array.shape:
            return GraphValue(w.scalar(self.dtype, self.array.item()), ())
        return GraphValue(w.constant(carried(self.array, self.dtype)), self.array.shape)


def carried(array: Any, dtype: DType) -> Any:
    """An array of `dtype` as one of its carrier."""
    return array if carrier(dtype) is dtype else array.astype(dtype_named(carrier(dtype).name))


class Constants:
    """The constant nodes of a graph, and their values.

    Args:
        device: where their memory is.
        named: nodes that are inputs or weights: they have names, and what depends on them is no constant.
        drawn: nodes made while the function was traced, whose random numbers are drawn anew in each run.
    """

    def __init__(self, device: str, named: Iterable[UOp], drawn: Container[UOp]) -> None:
        self._device = device
        self._named = set(named)
        self._drawn = drawn
        self._known: dict[UOp, bool] = {}
        self._shapes: dict[UOp, Any] = {}

    def of(self, u: UOp) -> Constant | None:
        """The value of a node, of the axes along which it does not repeat, if it is a constant worth writing."""
        if u.is_const:
            return Constant(np.array(u.arg, dtype_named(u.dtype.name)), u.dtype)
        if 0 in u.shape and not symbolic_arg(u.shape):  # it has no values that could change
            return Constant(np.zeros(u.shape, dtype_named(u.dtype.name)), u.dtype)
        if u.op is Op.EXPAND or not self.is_constant(u):
            return None
        data = u
        while data.op in _VIEWS:
            data = data.src[0]
        shape = self._unrepeated(u)
        if (
            data.op is not Op.BUFFER
            and math.prod(shape) * u.dtype.itemsize > MOST
            and not any(x.op is Op.THREEFRY for x in toposort(u))
        ):
            return None
        if shape != u.shape:
            u = shrink(u, tuple((0, m) for m in shape))
        return Constant(Tensor._from_uop(u, self._device).detach().numpy(), u.dtype)

    def is_constant(self, u: UOp) -> bool:
        """True if nothing below a node changes from run to run."""
        known = self._known
        if u not in known:
            for x in toposort(u, until=known.__contains__):
                varies = x in self._named or x.op in _VARIES or (x.op is Op.THREEFRY and x in self._drawn)
                known[x] = (
                    not varies
                    and all(map(known.__getitem__, x.src))
                    and not symbolic_arg(x.shape)
                    and not symbolic_arg(x.arg)
                )
        return known[u]

    def _unrepeated(self, u: UOp) -> Any:
        """The shape of a constant with 1 where it repeats."""
        shapes = self._shapes
        for x in toposort(u, until=shapes.__contains__):
            full = x.shape
            if x.op is Op.EXPAND:
                found = shapes[x.src[0]]
            elif x.op in ALU and full:
                found = forms.broadcast([shapes[s] for s in x.src])
                found = (1,) * (len(full) - len(found)) + found
            else:
                found = full
            shapes[x] = found
        return shapes[u]


# -- numbers of 32 bits read as another kind, by arithmetic -----------------------------------------------------------
# ONNX has no operator for that before opset 26.
#
# A float is (-1)**sign * significand * 2**(exponent - 150), with the exponent in 8 bits and 23 of the significand's 24,
# whose first is 1 unless the exponent is 0 (IEEE 754, section 3.4). All of it is exact in float64.


_F32, _F64, _I64 = dtypes.float32, dtypes.float64, dtypes.int64
_ONE = float(1 << 23)  # the significand's first bit
_SIGN = 1 << 31


def has_bits(u: UOp) -> bool:
    """True if a BITCAST is between dtypes that arithmetic can convert."""
    old, new = u.src[0].dtype, u.dtype
    return (old.is_int or old is _F32) and (new.is_int or new is _F32)


def same_bits(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """BITCAST."""
    (v,), new = given, u.dtype
    old = u.src[0].dtype
    x = forms.Term(w, v.name, old)
    if old.is_int and new.is_int:
        made = forms.cast(x, old, new)
    elif old is new:
        return v
    else:
        made = _float_of(forms.cast(x, old, _I64)) if new is _F32 else forms.cast(_bits_of(x), _I64, new)
    return GraphValue(made.name, v.shape)


def _power(exponent: forms.Term) -> forms.Term:
    return exponent.number(2.0).of("Pow", exponent)


def _bits_of(x: forms.Term) -> forms.Term:
    """The bits of a float32 as int64, the sign not counted as negative."""
    d = x.cast(_F64)
    zero, infinity = d.number(0.0), d.number(math.inf)
    size = d.of("Abs")
    usual = (zero < size) & (size < infinity)
    held = usual.where(size, 1.0)
    # the logarithm may be off by one where it is all but whole
    guess = (held.of("Log") / math.log(2.0)).of("Floor")
    power = _power(guess)
    above = (held < power).cast(_F64)
    below = (~(held < power * 2.0)).cast(_F64)
    exponent = (guess - above + below).of("Max", -126.0)
    digits = held * _power(exponent.number(23.0) - exponent)
    bits = ((exponent + 126.0) * _ONE + digits).cast(_I64)
    other = d.of("IsNaN", dtype=dtypes.bool_).where(bits.number(0x7FC00000), 0x7F800000)
    bits = usual.where(bits, size.eq(zero).where(0, other))
    # -0.0 is not less than 0, but its reciprocal is
    negative = (d < zero) | (d.of("Reciprocal") < zero)
    return negative.where(bits + _SIGN, bits)


def _float_of(x: forms.Term) -> forms.Term:
    """The float32 of bits that int64 holds, by their lowest 32."""
    bits = x.of("Mod", 1 << 32)
    sign = bits.number(_SIGN - 1) < bits
    bits = bits.of("Mod", _SIGN)
    exponent = (bits / (1 << 23)).cast(_F64)
    digits = bits.of("Mod", 1 << 23).cast(_F64)
    first = exponent.eq(0.0).where(exponent.number(0.0), _ONE)
    lifted = exponent.of("Max", 1.0)
    value = (digits + first) * _power(lifted - 150.0)
    other = digits.eq(0.0).where(value.number(math.inf), math.nan)
    value = exponent.eq(255.0).where(other, value)
    return sign.where(value.of("Neg"), value).cast(_F32)
