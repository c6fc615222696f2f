"""Rules as text and the machinery that runs them: `.upat` files, their generator, the driver, the index algebra.

README.md, beside this file, describes the language. `graph_rewrite` applies tables to a graph, `substitute` replaces
nodes, `simplify` is the index algebra on one expression, `check` asks whether a graph is legal at a stage. The
listing of rules (`anneal.rewrite.listing.explain`) stands apart: it needs the generator, which a program does not.
"""

from anneal.rewrite.driver import Recorder, Table, graph_rewrite, substitute
from anneal.rewrite.legality import STAGES, check
from anneal.rewrite.symbolic import simplify

__all__ = ["STAGES", "Recorder", "Table", "check", "graph_rewrite", "simplify", "substitute"]
