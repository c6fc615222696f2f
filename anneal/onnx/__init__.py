"""ONNX: other people's models become graphs like all others.

`load` gives a `Model` of a file. The onnx package is imported when a model is loaded.
"""

from anneal.onnx.graph import ValueInfo
from anneal.onnx.model import Model, load

__all__ = ["Model", "ValueInfo", "load"]
