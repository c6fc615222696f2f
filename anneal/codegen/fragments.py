"""Subgroup matrices in the IR: values that depend on ranges of the kinds "row", "column" and "depth".

As a value that depends on a vector range is a vector, so is one that depends on two of these a matrix, which the
threads of a subgroup hold together: the left factor over (row, depth), the right one over (depth, column), their
product over (row, column). Such a matrix is read and stored as a whole: the index of its LOAD or STORE is
LANES(index of the first element, range, range, number of the thread in its subgroup), whose arg has the dtype and the
steps between two elements along each range, of which one is 1.
"""

from __future__ import annotations

from anneal.uop import Op, UOp

SUBGROUP = 32  # threads that hold a matrix together


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
