"""A good sequence of opts for every kernel, by hand-made rules and without a search."""

from anneal.codegen.heuristics.order import choose

__all__ = ["choose"]
