"""A model as an `nn.Module`: fine-tuned, saved and differentiated like one that was written here."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.nn import Module
from anneal.onnx.captured import signature
from anneal.onnx.graph import Graph
from anneal.onnx.loaded import LoadedModel
from anneal.onnx.plan import ModelPlan
from anneal.onnx.report import nodes_of
from anneal.onnx.types import device_array

_TRAINED = ("float16", "bfloat16", "float32", "float64")
_PLANS = 16  # signatures that what is fixed is kept for


class OnnxModule(Module):
    """The network of an ONNX file: `module(*inputs)` gives the one output, or a tuple.

    Initialisers of floats are parameters, with the names that they have in the file; so are Constant nodes of more than
    one element, by the names of their outputs. Running means and variances and single numbers are buffers: saved, not
    trained. What decides shapes stays as the file says. A name that Python's attributes of a module do not allow (it
    begins with an underscore, or a module has one) gets "p" before it.

    Args:
        model: the model that is run.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._names: dict[tuple[str, str], str] = {}  # by graph and name in the file
        self._plans: dict[Any, ModelPlan] = {}
        statistics = _statistics(model.program.graph)
        for path, name, array in _weights(model.program.graph):
            if array is None or array.dtype.name not in _TRAINED or name in model.deciding:
                continue
            own = name if not name.startswith("_") and name and not hasattr(Module, name) else f"p{name}"
            while own in vars(self):
                own += "_"
            tensor = device_array(array, model.device, model.float64, constant=True)
            setattr(self, own, tensor.requires_grad_(array.ndim > 0 and name not in statistics))
            self._names[path, name] = own
        self.realize()

    def forward(self, *inputs: Any) -> Any:
        """The outputs for inputs by position."""
        model = self._model
        values = model.taken(model.named(inputs), detach=False)
        key = signature(values)
        plan = self._plans.pop(key, None) or ModelPlan(model, values)
        self._plans[key] = plan
        if len(self._plans) > _PLANS:
            del self._plans[next(iter(self._plans))]
        results = plan.lazy(values, {at: vars(self)[own] for at, own in self._names.items()})
        return results[0] if len(results) == 1 else tuple(results)

    def extra_repr(self) -> str:
        """The graph's name and what goes in and out."""
        return repr(self._model)


def _weights(graph: Graph) -> Any:
    """Arrays that may be trained, of all graphs: the path of the graph, the name, and the values."""
    graphs = [graph, *(g for node in nodes_of(graph) for g in node.subgraphs())]
    for g in graphs:
        yield from ((g.path, name, array) for name, array in g.constants.items())
        for node in g.nodes:
            array = node.attributes.get("value")
            if node.op == "Constant" and not node.domain and isinstance(array, np.ndarray) and array.size > 1:
                yield g.path, node.outputs[0], array


def _statistics(graph: Graph) -> frozenset[str]:
    """Names of running means and variances."""
    return frozenset(x for n in nodes_of(graph) if n.op == "BatchNormalization" for x in n.inputs[3:5])
