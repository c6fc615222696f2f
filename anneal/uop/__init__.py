"""The language: ops, dtypes, and the immutable, interned UOp node.

A tensor program is a graph of `UOp(op, dtype, src, arg, tag)`. The op list lives in `ops.py`, grouped by the stage at
which each op may exist: leaves; tensor graph (movement, reductions, gathers); kernel graph (ranges, loads, stores);
linear program; and the elementwise ops that live everywhere.
"""

from anneal.uop.caches import Recent, Users, Weighed, references, uncollected
from anneal.uop.complete import alu
from anneal.uop.dtype import DTYPES, DType, by_name, dtypes, normalise_const, promote
from anneal.uop.function import GraphFunction, by_rule, of_rule
from anneal.uop.node import (
    Arena,
    Ints,
    Known,
    Nodes,
    Numbers,
    Some,
    Src,
    UOp,
    arena,
    const,
    fold_by,
    of_op,
    toposort,
    unique,
)
from anneal.uop.ops import (
    ALL,
    ALU,
    BY_MATRICES,
    COMPARE,
    FITS,
    MOVEMENT,
    REAL,
    REDUCE_OPS,
    SYMBOLIC,
    WRAPS,
    Op,
    Shape,
    covering,
    ranks,
    reduce_identity,
)
from anneal.uop.provenance import CODES, Line, Provenance, line_at, line_of, users_frame, users_line
from anneal.uop.sizes import ranged
from anneal.uop.text import decode_graph, decode_value, encode_graph, encode_value, render
from anneal.uop.varying import Questions, Varying, worth
