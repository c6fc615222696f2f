"""A recipe: what a node needs, and how its value is written once that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from anneal.onnx.exporting.graph_writer import GraphValue, GraphWriter
from anneal.uop import UOp


class ExportRecipe(NamedTuple):
    """The nodes that a value is computed from, and the function that writes it from theirs."""

    inputs: tuple[UOp, ...]
    emit: Callable[[GraphWriter, list[GraphValue]], GraphValue]
