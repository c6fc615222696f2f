"""Sums of products as MatMul: a product of two views that share out the axes of a common space, and a sum.

An axis that only the left one varies along belongs to the rows of a matrix, one that only the right one varies along to
the columns; the axes that are summed are contracted, and the others count matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anneal.onnx.exporting.graph_writer import GraphValue, GraphWriter, Shape
from anneal.onnx.exporting.recipes import ExportRecipe
from anneal.ops.nodes import permute, reshape
from anneal.uop import Op, UOp, dtypes
from anneal.uop.sizes import product


def factors(u: UOp) -> tuple[UOp, UOp] | None:
    """The two values, repeated or not, whose products a sum adds up; None if it is no such sum."""
    if u.op is not Op.REDUCE_AXIS or u.arg[0] is not Op.ADD or u.dtype is dtypes.bool_ or u.dtype is dtypes.uint64:
        return None
    inner = u.src[0]
    if inner.op is not Op.MUL or not all(s.shape for s in inner.src):
        return None
    a, b = inner.src
    return a, b


@dataclass(frozen=True, slots=True)
class _Roles:
    """The axes of the common space by what they are in a product of matrices."""

    batch: list[int]
    rows: list[int]
    columns: list[int]
    summed: list[int]


def _unrepeated(u: UOp) -> UOp:
    return u.src[0] if u.op is Op.EXPAND else u


def _roles(u: UOp, a: UOp, b: UOp) -> _Roles | None:
    space, axes = u.src[0].shape, u.arg[1]
    roles = _Roles([], [], [], [])
    for i, n in enumerate(space):
        mine, theirs = a.shape[i] == n, b.shape[i] == n
        if n == 1:
            continue
        if i in axes:
            if not (mine and theirs):
                return None
            roles.summed.append(i)
        elif mine and theirs:
            roles.batch.append(i)
        elif mine:
            roles.rows.append(i)
        elif theirs:
            roles.columns.append(i)
        else:
            return None
    return roles if roles.summed else None


def contraction(u: UOp, target: Shape) -> ExportRecipe | None:
    """A MatMul for a sum of products, in the shape `target` that its one reader gives it; None if it is none."""
    found = factors(u)
    if found is None or 0 in u.src[0].shape:
        return None
    a, b = map(_unrepeated, found)
    roles = _roles(u, a, b)
    if roles is None or not (roles.rows or roles.columns):
        return None  # an elementwise product and a sum
    space = u.src[0].shape
    order = [*roles.batch, *roles.rows, *roles.columns]
    if order != sorted(order):
        # a matrix whose columns come first: the other way round
        turned = [*roles.batch, *roles.columns, *roles.rows]
        if turned == sorted(turned):
            a, b = b, a
            roles = _Roles(roles.batch, roles.columns, roles.rows, roles.summed)
            order = turned
    sizes = [[space[i] for i in axes] for axes in (roles.batch, roles.rows, roles.columns, roles.summed)]
    batch, rows, columns, summed = sizes
    m, n, k = (product(x) for x in (rows, columns, summed))
    left = _matrix(a, [*roles.batch, *roles.rows, *roles.summed], (*batch, m, k) if rows else (*batch, 1, k))
    right = _matrix(b, [*roles.batch, *roles.summed, *roles.columns], (*batch, k, n) if columns else (*batch, k, 1))
    result: Shape = (*batch, m, n)
    whole = _as_it_is(left, batch)
    if whole is not None:
        left, result = whole, (*whole.shape[:-1], n)
    back = None
    if order != sorted(order):
        back = (tuple([space[i] for i in order]), [order.index(i) for i in sorted(order)])

    def emit(w: GraphWriter, given: list[GraphValue]) -> GraphValue:
        names = [w.whole(v, s.shape).name for v, s in zip(given, (left, right), strict=True)]
        name = w.settled(w.node("MatMul", names), u.dtype)
        shape = result
        if back is not None:
            shape = back[0]
            name = w.node("Transpose", [name if result == shape else w.reshape(name, shape)], perm=back[1])
            shape = tuple([shape[i] for i in back[1]])
        if shape != target:
            name = w.reshape(name, target)
        return GraphValue(name, u.dtype, target)

    return ExportRecipe((left, right), emit)


def _matrix(u: UOp, order: list[int], shape: Shape) -> UOp:
    """`u` with its long axes in an order, as matrices; axes of size 1 go first, so that what added them is undone."""
    long = [i for i, n in enumerate(u.shape) if n.__class__ is not int or n != 1]
    bare = reshape(u, tuple([u.shape[i] for i in long]))
    return reshape(permute(bare, [long.index(i) for i in order if i in long]), shape)


def _as_it_is(left: UOp, batch: list[Any]) -> UOp | None:
    """The matrix before its leading axes became rows, where that is all that was done: MatMul takes it so."""
    if batch or left.op is not Op.RESHAPE:
        return None
    source = left.src[0]
    return source if len(source.shape) > 2 and source.shape[-1] == left.shape[-1] else None
