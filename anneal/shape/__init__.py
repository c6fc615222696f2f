"""Shapes: the six movement ops as arithmetic on indices."""

from anneal.shape.movement import flatten, linear_index, source_index, unflatten

__all__ = ["flatten", "linear_index", "source_index", "unflatten"]
