"""From a traced graph to a written one: for each node that is needed a recipe, then all recipes in order.

The first that fits makes a node's recipe: a weight or an input; a value that follows from constants alone, which is
computed now; the operator of a name that an op left (`composites.py`), or of several nodes; or the form of the
node's own op, which every op has that can be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from anneal import progress
from anneal.onnx.exporting.bits import has_bits, same_bits
from anneal.onnx.exporting.composites import composite
from anneal.onnx.exporting.folding import Constants
from anneal.onnx.exporting.graph_writer import ExportRecipe, GraphValue, GraphWriter, Shape, carrier
from anneal.onnx.exporting.pointwise import FORMS, elementwise, without_form
from anneal.onnx.exporting.reductions import argsorted, contraction, gathered, plain_index, reduced, scattered, updated
from anneal.onnx.exporting.views import expanded, flipped, iota, padded, permuted, reshaped, shrunk, sized
from anneal.ops.nodes import reshape
from anneal.rewrite import value_of
from anneal.tensor import Tensor
from anneal.uop import ALU, DType, Op, UOp, arena

_FORMS: dict[Op, Callable[[GraphWriter, UOp, list[GraphValue]], GraphValue]] = {
    Op.RESHAPE: reshaped,
    Op.PERMUTE: permuted,
    Op.EXPAND: expanded,
    Op.PAD: padded,
    Op.SHRINK: shrunk,
    Op.FLIP: flipped,
    Op.REDUCE_AXIS: reduced,
    Op.IOTA: iota,
    Op.VARIABLE: sized,
    Op.BIND: sized,
    Op.SCATTER_ADD: scattered,
    Op.ARGSORT: argsorted,
    Op.UPDATE: updated,
}
_SAME = frozenset((Op.CONTIGUOUS, Op.DETACH))
_MOVES = frozenset((Op.CAST, Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.CONTIGUOUS, Op.DETACH))


class Leaf(NamedTuple):
    """An input or a weight: its name and dtype, and for a weight the tensor, whose values are written if it is used."""

    name: str
    dtype: DType
    weight: Tensor | None

    def written(self, w: GraphWriter, shape: Shape) -> GraphValue:
        """The leaf in the carrier of its dtype."""
        if self.weight is not None:
            w.initialisers.append((self.name, self.weight.detach().numpy()))
        name = self.name if carrier(self.dtype) is self.dtype else w.cast(self.name, carrier(self.dtype))
        return GraphValue(name, self.dtype, shape)


class Missing(NamedTuple):
    """A node without a form in ONNX, and why."""

    node: UOp
    reason: str


class GraphLowering:
    """The recipes of a graph, and the values that they have made."""

    def __init__(self, writer: GraphWriter, leaves: dict[UOp, Leaf], constants: Constants) -> None:
        self.writer = writer
        self.leaves = leaves
        # the memory of weights, which reshapes of them read, and the nodes that are the weights
        self.memory = {u.src[0]: u for u in leaves if u.op is Op.RESHAPE and u.src[0].op is Op.BUFFER}
        constants.name(self.memory)
        self.constants = constants
        self.missing: list[Missing] = []
        self._values: dict[UOp, GraphValue] = {}
        self._products: dict[UOp, UOp] = {}  # sums that a reshape of them has written

    def lower(self, roots: Iterable[UOp]) -> list[GraphValue]:
        """Write all that `roots` need; their values."""
        roots = list(roots)
        recipes: dict[UOp, ExportRecipe] = {}
        stack: list[tuple[UOp, bool]] = [(u, False) for u in reversed(roots)]
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
                    self._values[u] = recipe.emit(self.writer, [self._values[s] for s in recipe.inputs])
                elif u not in recipes:
                    here.inherit(u)
                    recipes[u] = recipe = self._recipe(u)
                    stack.append((u, True))
                    stack += [(s, False) for s in reversed(recipe.inputs)]
        return [self.writer.whole(self._values[u], u.shape) for u in roots]

    def _recipe(self, u: UOp) -> ExportRecipe:
        leaf = self.leaves.get(u)
        if leaf is not None:
            return ExportRecipe((), lambda w, _: leaf.written(w, u.shape))
        bare = u.src[0] if u.op is Op.RESHAPE else u
        if (first := self.memory.get(bare)) is not None:
            return ExportRecipe((first,), partial(_again, u, first))
        constant = self.constants.of(u)
        if constant is not None:
            return ExportRecipe((), lambda w, _: constant.written(w))
        return composite(u, self.writer.opset) or self._summed(u) or self._looked_up(u) or self._own(u)

    def _summed(self, u: UOp) -> ExportRecipe | None:
        """A sum of products, in the shape that a reshape of it gives it, if there is one."""
        total = u.src[0] if u.op is Op.RESHAPE else u
        if total.op is not Op.REDUCE_AXIS:
            return None
        first = self._products.get(total)
        if first is not None and first is not u:
            return ExportRecipe((first,), partial(_again, u, first))
        recipe = contraction(total, u.shape)
        if recipe is not None:
            self._products[total] = u
        return recipe

    def _looked_up(self, u: UOp) -> ExportRecipe | None:
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
        plain, inside = plain_index(bare, table.shape[0], self._is_given(bare))
        if not inside:
            return None
        slices = reshape(table, (table.shape[0], *rest))

        def emit(w: GraphWriter, given: list[GraphValue]) -> GraphValue:
            names = [w.whole(v, s.shape).name for v, s in zip(given, (slices, plain), strict=True)]
            return GraphValue(w.node("Gather", names, axis=0), u.dtype, u.shape)

        return ExportRecipe((slices, plain), emit)

    def _own(self, u: UOp) -> ExportRecipe:
        if u.op in _SAME:
            return ExportRecipe(u.src[:1], lambda w, given: given[0])
        if u.op is Op.CALL:
            return ExportRecipe((value_of(u),), lambda w, given: given[0])
        if u.op is Op.GATHER:
            index, inside = plain_index(u.src[1], u.src[0].shape[u.arg], self._is_given(u.src[1]))
            return ExportRecipe((u.src[0], index), lambda w, given: gathered(w, u, given, inside))
        if u.op is Op.BITCAST and has_bits(u):
            return ExportRecipe(u.src, lambda w, given: same_bits(w, u, given))
        if u.op.composed is not None and u.op not in FORMS:
            return ExportRecipe((u.op.composed(*u.src),), lambda w, given: given[0])
        if u.op in ALU and not (reason := without_form(u, self.writer.opset)):
            return ExportRecipe(u.src, lambda w, given: elementwise(w, u, given))
        if u.op in _FORMS:
            form = _FORMS[u.op]
            return ExportRecipe(_sources(u), lambda w, given: form(w, u, given))
        reason = reason if u.op in ALU else _REASONS.get(u.op, f"the op {u.op.name}")
        self.missing.append(Missing(u, reason))
        return ExportRecipe((), lambda w, _: GraphValue("", u.dtype, u.shape))

    def _is_given(self, index: UOp) -> bool:
        """True if an index is an unchanged input: the caller answers for its values."""
        while index not in self.leaves and index.op in _MOVES:
            index = index.src[0]
        if index.op is Op.WHERE:
            return self._is_given(index.src[2])
        return index in self.leaves and self.leaves[index].weight is None


_REASONS = {
    Op.HOST_CALL: "a function of the host, a while_loop or a cond, which no file holds",
    Op.PARAM: "a value of another function that is being transformed",
}


def _sources(u: UOp) -> tuple[UOp, ...]:
    """The values that a node's own form reads; a symbolic size is no value."""
    return () if u.op is Op.BIND or u.op is Op.VARIABLE else u.src


def _again(u: UOp, first: UOp, w: GraphWriter, given: list[GraphValue]) -> GraphValue:
    """The elements of `first` in the shape of `u`."""
    shape: Shape = u.shape
    name = w.whole(given[0], first.shape).name
    return GraphValue(name if first.shape == shape else w.reshape(name, shape), u.dtype, shape)
