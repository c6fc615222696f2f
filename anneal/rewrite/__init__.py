"""Rules as text and the machinery that runs them: `.upat` files, their generator, the driver, the index algebra.

README.md, beside this file, describes the language. `graph_rewrite` applies tables to a graph, `substitute` replaces
nodes, `simplify` is the index algebra on one expression, `check` asks whether a graph is legal at a stage, `explain`
lists the rules that concern an op.
"""

from anneal.rewrite.driver import Recorder, Table, graph_rewrite, substitute
from anneal.rewrite.symbolic import simplify

__all__ = ["Recorder", "Table", "graph_rewrite", "simplify", "substitute"]
