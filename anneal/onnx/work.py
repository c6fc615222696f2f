"""The cost of a node, before it is computed: a file's work is bounded as its memory is."""

from __future__ import annotations

import math
from collections.abc import Iterable

from anneal.uop import Op, UOp
from anneal.uop.sizes import most

__all__ = ["work_of"]


def work_of(results: Iterable[UOp], inputs: Iterable[UOp]) -> int:
    """The elements that the sums and extremes between `inputs` and `results` go through: for a product of matrices
    (n, k) and (k, m) n * m * k, for a convolution the elements of its result times those of its window. A symbolic size
    counts as the largest that it may be.
    """
    total, seen, todo = 0, set(inputs), list(results)
    while todo:
        u = todo.pop()
        if u not in seen:
            seen.add(u)
            todo.extend(u.src)
            if u.op is Op.REDUCE_AXIS:
                total += math.prod([most(n) for n in u.src[0].shape])
    return total
