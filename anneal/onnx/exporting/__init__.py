"""Export: a traced graph of nodes becomes a graph of ONNX operators.

`export` calls a function on stand-ins and writes what it computed, by recipes: `composites` finds operators that are
several nodes here, `graph_writer`, `composites` and `lowering` have a form for every op, and what is constant is
computed.
"""

from anneal.onnx.exporting.writing import Exported, export, named_tensors
