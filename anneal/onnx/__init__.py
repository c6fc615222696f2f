"""ONNX: other people's models become graphs like all others.

`load` gives a `Model` of a file; `InferenceSession` is the same by onnxruntime's names; `export` writes one. The onnx
package is imported when a model is loaded or written.
"""

from anneal.errors import OnnxError
from anneal.onnx.exporting import Exported, export, named_tensors
from anneal.onnx.graph import ValueInfo
from anneal.onnx.model import Checked, InferenceSession, Model, NodeDifference, OnnxModule, check, load
from anneal.onnx.report import Description, Gap, Use
from anneal.onnx.values import HostStep

__all__ = [
    "Checked", "Description", "Exported", "Gap", "HostStep", "InferenceSession", "Model", "NodeDifference", "OnnxError",
    "OnnxModule", "Use", "ValueInfo", "check", "export", "load", "named_tensors",
]  # fmt: skip
