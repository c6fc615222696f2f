"""Export: a traced graph of nodes becomes a graph of ONNX operators.

`traced` calls a function on stand-ins, `Lowering` writes what it computed, by recipes. The recipes: `composites`,
`windows` and `contractions` find operators that are several nodes here, `elementwise`, `movement`, `reductions` and
`bits` have a form for every op, and `folding` computes what is constant.
"""

from anneal.onnx.exporting.folding import Constants, carried
from anneal.onnx.exporting.lowering import Leaf, Lowering, Missing
from anneal.onnx.exporting.trace import Input, Traced, named_tensors, told, traced
from anneal.onnx.exporting.values import Value, Writer, carrier, code_of

__all__ = [
    "Constants",
    "Input",
    "Leaf",
    "Lowering",
    "Missing",
    "Traced",
    "Value",
    "Writer",
    "carried",
    "carrier",
    "code_of",
    "named_tensors",
    "told",
    "traced",
]
