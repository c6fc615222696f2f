"""A good sequence of opts for every kernel, by hand-made rules and without a search."""

from anneal.codegen.heuristics.order import choose
from anneal.codegen.heuristics.processor import choose as choose_for_processor
