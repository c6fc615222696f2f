"""Rules as text and the machinery that runs them: `.upat` files, their generator, the driver, the index algebra.

README.md, beside this file, describes the language. `rebuild` is the walk that makes a graph anew, `substitute`
replaces nodes, `graph_rewrite` applies tables to a graph, `tracing` lists the rules that fire, `simplify` is the index
algebra on one expression, `check` asks whether a graph is legal at a stage, and a `Pipeline` is a list of passes,
and `explain` lists the rules of an op.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.rewrite.walk import (
    HERE,
    Table,
    Visit,
    answered,
    applied,
    graph_rewrite,
    over,
    rebuild,
    rebuilt,
    rewritten,
    substitute,
    tell,
    unchanged,
    unfolded,
    value_of,
)

if TYPE_CHECKING:
    from anneal.rewrite.legality import COMPUTED, FLOATS, INTEGERS, STAGES, check, legalised
    from anneal.rewrite.movement import both, linear_index, matched_axes, reshaped_index, source_index, unflatten
    from anneal.rewrite.passes import Event, Hook, Listed, Pass, Pipeline, explain, listening, tracing
    from anneal.rewrite.sums import Sum, joined, linear
    from anneal.rewrite.symbolic import forget, simplify
else:
    # A program that only makes tensors needs none of these: they are imported when their names are used.
    __getattr__ = opened_later(__name__)
