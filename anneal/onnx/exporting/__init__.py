"""Export: a traced graph of nodes becomes a graph of ONNX operators.

`traced` calls a function on stand-ins, `GraphLowering` writes what it computed, by recipes. The recipes: `composites`,
`windows` and `contractions` find operators that are several nodes here, `elementwise`, `movement`, `reductions` and
`bits` have a form for every op, and `folding` computes what is constant.
"""

from anneal.onnx.exporting.graph_writer import GraphValue, GraphWriter, carrier, code_of
from anneal.onnx.exporting.lowering import Constants, GraphLowering, Leaf, Missing, carried
from anneal.onnx.exporting.tracing import Input, TracedGraph, named_tensors, told, traced
