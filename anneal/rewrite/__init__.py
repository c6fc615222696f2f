"""Rules as text and the machinery that runs them: `.upat` files, their generator, the driver, the index algebra.

README.md, beside this file, describes the language. `rebuild` is the walk that makes a graph anew, `substitute`
replaces nodes, `graph_rewrite` applies tables to a graph, `tracing` lists the rules that fire, `simplify` is the index
algebra on one expression, `check` asks whether a graph is legal at a stage, and a `Pipeline` is a list of passes. The
listing of rules (`anneal.rewrite.listing.explain`) stands apart: it needs the generator, which a program does not.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.rewrite.walk import Visit, applied, over, rebuild, rebuilt, substitute, tell, unchanged, unfolded, value_of

if TYPE_CHECKING:
    from anneal.rewrite.driver import Table, graph_rewrite, rewritten
    from anneal.rewrite.legality import FLOATS, INTEGERS, STAGES, check, legalised
    from anneal.rewrite.passes import Hook, Pass, Pipeline
    from anneal.rewrite.symbolic import forget, simplify
    from anneal.rewrite.trace import Event, listening, tracing
    from anneal.rewrite.walk import HERE
else:
    # What a program that only makes tensors does without is imported when its name is asked for.
    __getattr__ = opened_later(__name__)
