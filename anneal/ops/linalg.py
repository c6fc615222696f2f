"""Products of matrices: a multiplication over a common space and a sum over what is contracted."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import function
from anneal.ops.checks import axis_in, axis_of, broadcast_shapes, is_tensor, said, whole as count
from anneal.ops.elementwise import beside
from anneal.ops.nodes import BOOL, Number, broadcast, common_dtype, elementwise, expand, permute, reduce_node, reshape
from anneal.ops.precision import in_single, largest_of, whole, whole_product
from anneal.runtime import Fun
from anneal.uop import Ints, Op, UOp, promote
from anneal.uop.sizes import most

_Lettered = tuple[UOp, list[str]]  # an operand of `einsum`, and the letters of its axes
_in_place = function("in_place autocast=low")


@function("alias=mm,bmm,mv autocast=low array_api linalg")
def matmul(x: Tensor, other: Any) -> Tensor:
    """The matrix product; leading axes broadcast, a vector is a row on the left and a column on the right.

    Shapes: (..., m, k) @ (..., k, n) -> (..., m, n). Integers multiply as integers (bools as int32). Those of 8 and 16
    bits wrap around; of int32 the result has the dtype, and the errors, of a sum (`Tensor.sum`).

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]) @ Tensor([1, 10])
    Tensor([21, 43], dtype=int32)
    """
    o = x._lift(other)
    return x._new(_matmul(x.device, x.uop, o.uop), o)


@function("alias=vdot autocast=widest")
def dot(x: Tensor, other: Any) -> Tensor:
    """`matmul`; of two vectors, their inner product.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).dot(Tensor([3, 4])).item()
    11
    """
    return x.matmul(other)


@function("alias=ger linalg")
def outer(x: Tensor, other: Any) -> Tensor:
    """The outer product of two vectors: the products of every element of one and every element of the other.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).outer(Tensor([3, 4]))
    Tensor([[3, 4],
            [6, 8]], dtype=int32)
    """
    o = x._lift(other)
    if x.ndim != 1 or o.ndim != 1:
        raise ShapeError(f"outer: takes two vectors, not shapes {x.shape} and {o.shape}; use .reshape(-1) first")
    return x.unsqueeze(1) * o.unsqueeze(0)


@function("linalg")
def trace(x: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).trace()
    Tensor(5, dtype=int32)
    """
    if x.ndim != 2:
        raise ShapeError(f"trace: takes a matrix, not shape {x.shape}")
    return x.diagonal().sum()


@function("autocast=low array_api linalg")
def vecdot(x: Tensor, other: Any, dim: int = -1) -> Tensor:
    """The inner products of vectors along an axis of their common shape; two tensors of one axis must have one size.
    Those of integers have the dtypes of sums.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).vecdot(Tensor([1, 10]))
    Tensor([21, 43], dtype=int32)
    """
    o = x._lift(other)
    a, b = common_dtype(x.uop, o.uop)
    shape = broadcast_shapes(a.shape, b.shape)
    at = axis_of(dim, len(shape))
    if len(a.shape) == len(b.shape) == 1 and a.shape != b.shape:  # of more axes torch broadcasts this one, too
        raise ShapeError(f"vecdot: vectors of shapes {x.shape} and {o.shape} must have one size")

    def made(a: UOp, b: UOp) -> UOp:
        return reduce_node(elementwise(Op.MUL, (broadcast(a, shape), broadcast(b, shape)), shape), Op.ADD, (at,), False)

    if not shape:
        raise ShapeError("vecdot: scalars have no axis; use *")
    if a.dtype.is_float or a.dtype.bits == 64:
        return x._new(made(a, b), o)
    return x._new(whole("vecdot", x.device, (a, b), most(shape[at]) * largest_of(a) * largest_of(b), made), o)


@function("autocast=widest array_api linalg")
def tensordot(x: Tensor, other: Any, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Products summed over axes: the last `dims` of x with the first of other, or two lists of axes in pairs.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(2, 3, 4).tensordot(Tensor.ones(4, 3, 5), ([1, 2], [1, 0])).shape
    (2, 5)
    """
    o = x._lift(other)
    n, m = x.ndim, o.ndim
    if not isinstance(dims, (list, tuple)):
        few = count("dims", dims)
        if not 0 <= few <= min(n, m):
            raise ShapeError(f"tensordot: {few} axes of shapes {x.shape} and {o.shape}")
        mine, theirs = list(range(n - few, n)), list(range(few))
    else:
        if len(dims) != 2 or not all(isinstance(d, (list, tuple)) for d in dims) or len(dims[0]) != len(dims[1]):
            raise ShapeError(f"tensordot: dims is a number or two lists of as many axes, not {said(dims)}")
        mine = [axis_of(a, n) for a in dims[0]]
        theirs = [axis_of(a, m) for a in dims[1]]
        if len(set(mine)) < len(mine) or len(set(theirs)) < len(theirs):
            raise ShapeError(f"tensordot: an axis is named twice in {dims}")
    # an axis of size 1 is repeated beside a longer one, as torch does
    left, right = list(x.shape), list(o.shape)
    for i, j in zip(mine, theirs):
        left[i] = _wider(left[i], right[j])
        right[j] = _wider(right[j], left[i])
    x, o = x.expand(left), o.expand(right)
    summed = [left[i] for i in mine]
    if summed != [right[j] for j in theirs]:
        raise ShapeError(f"tensordot: axes {mine} of shape {x.shape} and {theirs} of {o.shape} are not of equal sizes")
    rows, columns = [i for i in range(n) if i not in mine], [i for i in range(m) if i not in theirs]
    k = math.prod(summed)
    height, width = [x.shape[i] for i in rows], [o.shape[i] for i in columns]
    a = reshape(permute(x.uop, [*rows, *mine]), (math.prod(height), k))
    b = reshape(permute(o.uop, [*theirs, *columns]), (k, math.prod(width)))
    return x._new(reshape(_matmul(x.device, a, b), (*height, *width)), o)


@function
def kron(x: Tensor, other: Any) -> Tensor:
    """The Kronecker product: a copy of `other` for each element of x, times it; sizes multiply.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2]]).kron(Tensor([[1], [10]]))
    Tensor([[ 1,  2],
            [10, 20]], dtype=int32)
    """
    o = x._lift(other)
    n = max(x.ndim, o.ndim)
    a, b = (1,) * (n - x.ndim) + x.shape, (1,) * (n - o.ndim) + o.shape
    left = x.reshape([x for size in a for x in (size, 1)])
    right = o.reshape([x for size in b for x in (1, size)])
    return (left * right).reshape([x * y for x, y in zip(a, b)])


@function("autocast=widest")
def cross(x: Tensor, other: Any, dim: int | None = None) -> Tensor:
    """The vector product of vectors of three numbers along an axis, by default the first one of three; the other axes
    broadcast.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0, 0]).cross(Tensor([0, 1, 0]))
    Tensor([0, 0, 1], dtype=int32)
    """
    o = x._lift(other)
    if BOOL in (x.dtype, o.dtype):
        raise DTypeError("cross: takes numbers, not bools; use .int() first")
    shape = broadcast_shapes(x.shape, o.shape)
    if x.ndim != o.ndim:
        raise ShapeError(f"cross: shapes {x.shape} and {o.shape} must have as many axes; use .unsqueeze(0)")
    if dim is None:
        dim = shape.index(3) if 3 in shape else -1
    at = axis_in(dim, x)
    if not shape or not x.shape[at] == o.shape[at] == 3:
        raise ShapeError(f"cross: axis {dim} of shapes {x.shape} and {o.shape} must have 3 elements")
    a, b = x.expand(shape), o.expand(shape)
    return a.roll(-1, at) * b.roll(1, at) - a.roll(1, at) * b.roll(-1, at)


@_in_place
def addmm(x: Tensor, a: Any, b: Any, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * x + alpha * (a @ b), of shape (n, m); with beta = 0 x counts for nothing, nan or not.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).addmm(Tensor([[1.0, 1.0]]), Tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[5., 8.]], dtype=float32)
    """
    return _added(x, matmul, a, b, beta, alpha)


def _added(x: Tensor, product: Fun, a: Any, b: Any, beta: Number, alpha: Number) -> Tensor:
    """beta * x + alpha * product(a, b): with factors, a product of narrow floats is not rounded before it is scaled."""
    return (_sum if alpha == 1 and beta in (0, 1) else _sum_of_factors)(x, product, a, b, beta, alpha)


def _sum(x: Tensor, product: Fun, left: Any, right: Any, beta: Number, alpha: Number) -> Tensor:
    """Of x only the shape and the dtype count if beta is 0."""
    y: Tensor = product(x._lift(left), right)
    if alpha != 1:
        y = y * alpha
    if beta:
        return (x if beta == 1 else x * beta) + y
    a, b = common_dtype(x.uop, y.uop)
    u = broadcast(b, broadcast_shapes(a.shape, b.shape))
    return x._new(beside(u, x), y)


_sum_of_factors = in_single(_sum, False)


@function("autocast=float32")
def matrix_norm(x: Tensor, ord: float | str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Tensor:
    """The norm of matrices in two axes: "fro", or the largest (least) sum of sizes of a column: 1 (-1), a row: inf
    (-inf).

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[1.0, -2.0], [2.0, 4.0]])
    >>> x.matrix_norm().item(), x.matrix_norm(1).item(), x.matrix_norm(float("inf")).item()
    (5.0, 6.0, 6.0)
    """
    row, column = axes = two_axes(x, dim)
    if ord == "fro":
        return x.norm(2, axes, keepdim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ShapeError(f'matrix_norm: ord is "fro", 1, -1, inf or -inf, not {ord!r}: there are no singular values')
    sizes = x.abs().sum(row if abs(float(ord)) == 1 else column, True)
    if float(ord) > 0:  # the largest of no sizes is 0
        out = sizes.sum(axes, True) if 0 in sizes.shape else sizes.amax(axes, True)
    else:
        out = sizes.amin(axes, True)
    return out if keepdim else out.squeeze(axes)


def two_axes(x: Tensor, dim: Sequence[int]) -> tuple[int, int]:
    """The axes `dim` of matrices x, counted from 0. Raises ShapeError unless they are two that differ.

    >>> from anneal.tensor import Tensor
    >>> two_axes(Tensor.ones(2, 3, 4), (-1, 0))
    (2, 0)
    """
    if x.ndim < 2 or len(dim) != 2:
        raise ShapeError(f"matrix_norm: takes two axes of shape {x.shape}, not {tuple(dim)}")
    row, column = (axis_in(a, x) for a in dim)
    if row == column:
        raise ShapeError(f"matrix_norm: axis {row} is named twice in {tuple(dim)}")
    return row, column


@function("static autocast=low view")
def einsum(formula: Any, *operands: Any) -> Tensor:
    """Products and sums by named axes (Einstein's notation), as NumPy's and torch's einsum.

    Spaces are ignored; a letter twice in one operand is its diagonal; `...` stands for axes that broadcast;
    without `->` the result has the letters that occur once, in alphabetical order. Several operands are
    contracted from left to right; of one whose axes all stay the result is a view. Lists of axes do without a formula:
    `einsum(x, [0, 1], y, [1, 2], [0, 2])` names axes by numbers below 52, `...` among them, and those of the result at
    the end, if at all.

    Raises ShapeError for a formula that does not fit the operands.

    >>> from anneal.tensor import Tensor
    >>> Tensor.einsum("ij,jk->ik", Tensor([[1, 2]]), Tensor([[3], [4]]))
    Tensor([[11]], dtype=int32)
    """
    if is_tensor(formula):
        *parts, formula = _axes_named(formula, *operands)
        operands = tuple(parts)
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands or not isinstance(formula, str) or not all(is_tensor(o) for o in operands):
        raise ShapeError("einsum: takes a formula and one or more tensors")
    first: Tensor = operands[0]
    for o in operands[1:]:
        if o.device != first.device:
            first._mixed(o)
    return first._new(_einsum(first.device, formula, [o.uop for o in operands]), *operands[1:])


def _axes_named(*given: Any) -> list[Any]:
    """Operands with lists of axes as operands and a formula."""
    named = [*given[1::2], *given[len(given) // 2 * 2 :]]
    if not all(isinstance(axes, (list, tuple)) and all(n in (*range(52), ...) for n in axes) for axes in named):
        raise ShapeError(f"einsum: behind each tensor stands a list of axes, numbers below 52 or ..., not {named}")
    texts = ["".join("..." if n is ... else chr(n + (65 if n < 26 else 71)) for n in axes) for axes in named]
    count = len(given) // 2
    return [*given[: 2 * count : 2], "->".join([",".join(texts[:count]), *texts[count:]])]


def _product(a: UOp, b: UOp, space: Ints, axis: int) -> UOp:
    """The sum along one axis of a * b, both broadcast to `space`; the axis goes."""
    u = elementwise(Op.MUL, (expand(a, space), expand(b, space)), space)
    return u if space[axis] == 1 else nodes.reduce_axis(u, Op.ADD, (axis,))


def _matmul(device: str, a: UOp, b: UOp) -> UOp:
    sa, sb = a.shape, b.shape
    if not sa or not sb:
        raise ShapeError(f"matmul: shapes {sa} and {sb}: a scalar has no axis to contract; use *")
    k, kb = sa[-1], sb[-2] if len(sb) > 1 else sb[0]
    if k != kb:
        raise ShapeError(
            f"matmul: shapes {sa} and {sb}: the last axis of the first is {k} and the "
            f"{'second to last' if len(sb) > 1 else 'only'} axis of the second is {kb}; they must be equal: "
            f"transpose one with .mT"
        )
    a, b = common_dtype(a, b)
    if a.dtype is BOOL:
        a, b = a.cast(nodes.INT32), b.cast(nodes.INT32)
    return whole_product("matmul", device, (a, b), k, _contracted)


def _contracted(a: UOp, b: UOp) -> UOp:
    sa, sb = a.shape, b.shape
    k, lead = sa[-1], sa[:-2]
    if len(sb) <= 2:  # one matrix on the right: all leading axes of the left are rows of one matrix
        m, columns = math.prod(sa[:-1]), sb[1:]
        left, right, axis = (m, k, *[1] * len(columns)), (1, *sb), 1
        space, out = (m, *sb), (*sa[:-1], *columns)
    else:
        rows, n = sa[-2:-1], sb[-1]
        whole = broadcast_shapes(lead, sb[:-2])
        space, out, axis = (*whole, *rows, k, n), (*whole, *rows, n), len(whole) + len(rows)
        left = (*[1] * (len(whole) - len(lead)), *sa, 1)
        right = (*[1] * (len(whole) - len(sb) + 2), *sb[:-2], *[1] * len(rows), k, n)
    return reshape(_product(reshape(a, left), reshape(b, right), space, axis), out)


def _einsum(device: str, formula: str, operands: list[UOp]) -> UOp:
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ShapeError(f"einsum: {formula!r} names {len(terms)} operands, but {len(operands)} are given")
    # `...` becomes numbered letters, aligned at the right as broadcasting is
    spare = max((len(u.shape) - len(t.replace("...", "")) for t, u in zip(terms, operands) if "..." in t), default=0)
    dots = [f"<{i}>" for i in range(max(0, spare))]
    named = list[list[str]]()
    sizes = dict[str, int]()
    parts = list[UOp]()
    for i, (t, u) in enumerate(zip(terms, operands)):
        letters = _letters(formula, t, dots, len(u.shape))
        if len(letters) != len(u.shape):
            raise ShapeError(f"einsum: operand {i} of {formula!r} has {len(letters)} axes named, but shape {u.shape}")
        u, letters = _unrepeat(formula, u, letters)
        for letter, n in zip(letters, u.shape):
            have = sizes.get(letter, 1)
            if n != have and n != 1 and have != 1:
                raise ShapeError(f"einsum: axis {letter!r} of {formula!r} is {have} in one operand and {n} in another")
            sizes[letter] = _wider(have, n)
        named.append(letters)
        parts.append(u)
    if arrow:
        out = _letters(formula, right, dots, None)
        for letter in out:
            if letter not in sizes:
                raise ShapeError(f"einsum: the result of {formula!r} names {letter!r}, which no operand has")
        if len(set(out)) != len(out):
            raise ShapeError(f"einsum: the result of {formula!r} names an axis twice")
    else:
        every = [x for t in terms for x in t.replace("...", "")]
        out = dots + sorted([x for x in set(every) if every.count(x) == 1])
    kind = functools.reduce(promote, [p.dtype for p in parts])
    kind = nodes.INT32 if kind is BOOL else kind

    def made(*parts: UOp) -> UOp:
        total = parts[0], named[0]
        for i in range(1, len(parts)):
            total = _contract(total, (parts[i], named[i]), set(out).union(*named[i + 1 :]), sizes)
        u, letters = _summed(total, set(out), sizes)
        return broadcast(permute(u, [letters.index(x) for x in out]), tuple([sizes[x] for x in out]))

    count = math.prod([most(n) for x, n in sizes.items() if x not in out])
    return whole_product("einsum", device, tuple([p.cast(kind) for p in parts]), count, made)


def _wider(a: int, b: int) -> int:
    """The size that two broadcast to, which are equal unless one is 1."""
    return b if a == 1 else a


def _letters(formula: str, term: str, dots: list[str], ndim: int | None) -> list[str]:
    before, mark, after = term.partition("...")
    if not all(map(str.isalpha, before + after)):
        raise ShapeError(f"einsum: {formula!r} may hold letters, commas, ... and one ->")
    here = list[str]()
    if mark:
        count = len(dots) if ndim is None else max(0, ndim - len(before) - len(after))
        here = dots[len(dots) - count :]
    return [*before, *here, *after]


def _unrepeat(formula: str, u: UOp, letters: list[str]) -> _Lettered:
    """A letter that stands twice in one operand means its diagonal."""
    for letter in list(dict.fromkeys(letters)):
        while letters.count(letter) > 1:
            i = letters.index(letter)
            j = letters.index(letter, i + 1)
            n = u.shape[i]
            if u.shape[j] != n:
                raise ShapeError(f"einsum: axis {letter!r} of {formula!r} is {n} and {u.shape[j]} in one operand")
            rest = [k for k in range(len(letters)) if k not in (i, j)]
            u = nodes.diagonal(permute(u, [*rest, i, j]))
            letters = [*[letters[k] for k in rest], letter]
    return u, letters


def _contract(left: _Lettered, right: _Lettered, keep: set[str], sizes: dict[str, int]) -> _Lettered:
    """The product over all their letters, summed over those that are not kept."""
    # Letters of one operand alone that nobody needs are summed before they can make the product larger.
    a, names_a = _summed(left, keep.union(right[1]), sizes)
    b, names_b = _summed(right, keep.union(names_a), sizes)
    mine, theirs = dict(zip(names_a, a.shape)), dict(zip(names_b, b.shape))
    batch = [x for x in mine if x in theirs and x in keep]
    summed = [x for x in mine if x in theirs and x not in keep]
    only_a = [x for x in mine if x not in theirs]
    only_b = [x for x in theirs if x not in mine]
    names = batch + only_a + summed + only_b
    space = tuple([_wider(mine.get(x, 1), theirs.get(x, 1)) for x in names])
    u = elementwise(Op.MUL, (_place(a, names_a, names, space), _place(b, names_b, names, space)), space)
    first = len(batch) + len(only_a)
    u = reduce_node(u, Op.ADD, tuple(range(first, first + len(summed))), False)
    return u, batch + only_a + only_b


def _summed(part: _Lettered, keep: set[str], sizes: dict[str, int]) -> _Lettered:
    """The sum over the letters that are not kept."""
    u, names = part
    wide = tuple([n if x in keep else sizes[x] for x, n in zip(names, u.shape)])
    drop = tuple([i for i, x in enumerate(names) if x not in keep])
    return reduce_node(broadcast(u, wide), Op.ADD, drop, False), [x for x in names if x in keep]


def _place(u: UOp, names: list[str], order: list[str], space: Ints) -> UOp:
    """`u` with its axes in the order of the common space, and expanded to it."""
    u = permute(u, [names.index(x) for x in order if x in names])
    sizes = iter(u.shape)
    return expand(reshape(u, tuple([next(sizes) if x in names else 1 for x in order])), space)


@function
def inner(x: Tensor, other: Any) -> Tensor:
    """The inner products of the last axes.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).inner(Tensor([1, 10]))
    Tensor([21, 43], dtype=int32)
    """
    o = x._lift(other)
    return x * o if not (x.ndim and o.ndim) else x.tensordot(o, ([-1], [-1]))


@_in_place
def addmv(x: Tensor, mat: Any, vec: Any, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * x + alpha * (mat @ vec), of shape (n,).

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).addmv(Tensor([[1.0, 0.0], [0.0, 1.0]]), Tensor([5.0, 6.0]))
    Tensor([6., 8.], dtype=float32)
    """
    return _added(x, matmul, mat, vec, beta, alpha)


@_in_place
def addr(x: Tensor, vec1: Any, vec2: Any, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * x + alpha * outer(vec1, vec2).

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 2).addr(Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
    Tensor([[3., 4.],
            [6., 8.]], dtype=float32)
    """
    return _added(x, outer, vec1, vec2, beta, alpha)


@_in_place
def baddbmm(x: Tensor, batch1: Any, batch2: Any, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * x + alpha * (batch1 @ batch2), of shape (batch, n, m).

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(2, 1, 1).baddbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1)).tolist()
    [[[4.0]], [[4.0]]]
    """
    return _added(x, matmul, batch1, batch2, beta, alpha)


@_in_place
def addbmm(x: Tensor, batch1: Any, batch2: Any, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * x + alpha * the sum of batch1 @ batch2 over the batch, of shape (n, m).

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(1, 1).addbmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1))
    Tensor([[6.]], dtype=float32)
    """
    return _added(x, lambda a, b: matmul(a, b).sum(0), batch1, batch2, beta, alpha)
