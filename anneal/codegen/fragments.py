"""Subgroup matrices in the IR: values that depend on ranges of the kinds "row", "column" and "depth".

As a value that depends on a vector range is a vector, so is one that depends on two of these a matrix, which the
threads of a subgroup hold together: the left factor over (row, depth), the right one over (depth, column), their
product over (row, column). Such a matrix is read and stored as a whole: the index of its LOAD or STORE is
LANES(index of the first element, range, range, number of the thread in its subgroup), whose arg has the dtype and the
steps between two elements along each range, of which one is 1.
"""

from __future__ import annotations

from typing import NamedTuple

from anneal.codegen.ranges import extent
from anneal.uop import Op, UOp, dtypes

__all__ = ["SUBGROUP", "Fragment", "factors", "fragment", "is_fragment", "is_product", "result_type"]

SUBGROUP = 32  # threads that hold a matrix together
_ROLES = {("row", "depth"): "left", ("depth", "column"): "right", ("row", "column"): "result"}
_ELEMENTS = {dtypes.float16: "f16", dtypes.float32: "f32"}


def is_fragment(index: UOp) -> bool:
    """Is `index` that of a whole matrix?"""
    return index.op is Op.LANES and len(index.src) == 4


def is_product(u: UOp) -> bool:
    """Does the REDUCE `u` multiply matrices?"""
    return u.op is Op.REDUCE and u.src[-1].op is Op.RANGE and u.src[-1].arg[1] == "depth"


def factors(product: UOp) -> tuple[UOp, UOp]:
    """The two matrices of which a term of a sum is the product, without the casts to the sum's dtype."""
    left, right = (x.src[0] if x.op is Op.CAST else x for x in product.src)
    return left, right


class Fragment(NamedTuple):
    """A matrix: its type in WGSL, and how it lies in memory."""

    type: str
    is_transposed: bool  # neighbours in memory stand in one column
    stride: int  # elements between two rows, or two columns


def result_type(product: UOp) -> str:
    """The type in WGSL of the matrix of sums that the REDUCE `product` makes."""
    left, right = factors(product.src[0])
    rows, columns = left.src[1].src[1], right.src[1].src[2]
    return f"subgroup_matrix_result<{_ELEMENTS[product.dtype]}, {extent(columns)}, {extent(rows)}>"


def fragment(index: UOp) -> Fragment:
    """The matrix whose elements the LANES `index` names."""
    _, first, second, _ = index.src
    dtype, steps = index.arg
    role = _ROLES[first.arg[1], second.arg[1]]
    kind = f"subgroup_matrix_{role}<{_ELEMENTS[dtype]}, {extent(second)}, {extent(first)}>"
    transposed = steps[1] != 1
    return Fragment(kind, transposed, steps[0] if steps[1] == 1 else steps[1])
