"""Shapes: the six movement ops as arithmetic on indices."""

from anneal.shape.movement import linear_index, matched_axes, reshaped_index, source_index, unflatten
