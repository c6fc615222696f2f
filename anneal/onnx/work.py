"""How much a node computes, before it is computed: what a file asks for is bounded as its memory is."""

from __future__ import annotations

import math
from typing import Any

from anneal.onnx.values import leaves
from anneal.tensor import Tensor
from anneal.uop import Op

__all__ = ["WORK", "work_of"]

WORK = 1 << 9  # how often as many elements as one value may have go through the sums and products of a run


def work_of(results: list[Any], inputs: list[Any]) -> int:
    """The elements that the sums and extremes between `inputs` and `results` go through: for a product of matrices
    (n, k) and (k, m) n * m * k, for a convolution the elements of its result times those of its window. A symbolic size
    counts as the largest that it may be.
    """
    todo, known = [[v.uop for v in leaves(x) if isinstance(v, Tensor)] for x in (results, inputs)]
    total, seen = 0, set(known)
    while todo:
        u = todo.pop()
        if u not in seen:
            seen.add(u)
            todo.extend(u.src)
            if u.op is Op.REDUCE_AXIS:
                total += math.prod([n if isinstance(n, int) else n.vmax for n in u.src[0].shape])
    return total
