"""Distances and likenesses of vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from anneal.errors import ShapeError
from anneal.ops.arguments import function
from anneal.ops.axes import broadcast_shapes
from anneal.ops.elementwise import choose
from anneal.ops.precision import in_single
from anneal.uop import by_rule

if TYPE_CHECKING:
    from anneal.tensor import Tensor


@function(functional=True, method=False)
@in_single()
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; shapes broadcast first, norms below eps count as eps.

    >>> from anneal.tensor import Tensor
    >>> cosine_similarity(Tensor([[1.0, 0.0]]), Tensor([[1.0, 1.0]])).round(4)
    Tensor([0.7071], dtype=float32)
    """
    if a.shape != b.shape:
        shape = broadcast_shapes("cosine_similarity", a.shape, b.shape)
        a, b = a.expand(shape), b.expand(shape)
    x, y = a / a.norm(2.0, dim, True).clamp(min=eps), b / b.norm(2.0, dim, True).clamp(min=eps)
    return (x * y).sum(dim)


@function(functional=True, method=False)
@in_single()
def cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm distances between the rows of (..., m, d) and of (..., n, d): (..., m, n).

    torch's `compute_mode` says how, not what: any is computed by differences.

    >>> from anneal.tensor import Tensor
    >>> cdist(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0], [0.0, 1.0]]))
    Tensor([[5., 1.]], dtype=float32)
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: takes (..., m, d) and (..., n, d), not {a.shape} and {b.shape}")
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    out = apart.norm(p, -1)
    if p != math.inf or not out.requires_grad:
        return out
    # of equal largest differences each has the whole gradient, as in torch
    size = apart.abs()
    same = choose(size.eq(size.amax(-1, True).detach()), size, 0.0).sum(-1)
    return out._new(by_rule("equal", out.uop, same.uop))


@function(functional=True, method=False)
def pairwise_distance(a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of a - b + eps along the last axis.

    >>> from anneal.tensor import Tensor
    >>> pairwise_distance(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0]])).round(3)
    Tensor([5.], dtype=float32)
    """
    return (a - b + eps).norm(p, -1, keepdim)
