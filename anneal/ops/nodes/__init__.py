"""Nodes from nodes: what the ops, the adjoints and the optimisers put graphs together from.

Movement that costs nothing when nothing moves, values that meet in one dtype and one shape, rows picked and put by
integers, sizes that a run fixes. Nothing here knows tensors.
"""

from anneal.ops.nodes.rows import (
    COUNTED,
    Number,
    Pick,
    Variable,
    broadcast,
    check_fits,
    check_inside,
    common_dtype,
    elementwise,
    elementwise_where,
    first_by_blocks,
    inverse,
    keys,
    lay_back,
    lay_out,
    meet,
    named,
    put_rows,
    reciprocal,
    repeated,
    share,
    sorted_places,
    take_rows,
    weak_const,
    weak_dtype,
    wrapped,
)
from anneal.ops.nodes.views import (
    Pairs,
    every,
    expand,
    flip,
    from_memory,
    iota,
    pad,
    permute,
    reduce_axis,
    reduce_node,
    reshape,
    shrink,
    spread,
    to_memory,
)
