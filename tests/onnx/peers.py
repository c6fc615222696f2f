"""One node as a model, run by anneal and by onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import anneal.onnx
from anneal.tensor import Tensor
from tests.onnx.corpus import compare

__all__ = ["check_node", "model_of"]


def model_of(
    op: str,
    inputs: Sequence[Any],
    outputs: int | Sequence[str],
    version: int,
    domain: str = "",
    **attributes: Any,
) -> bytes:
    """A model of one node. None is an absent input; an array in a tuple is an initialiser, not an input."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    given, constants = [], []
    for name, x in zip(names, inputs, strict=True):
        if x is None:
            continue
        array = x[0] if isinstance(x, tuple) else x
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if isinstance(x, tuple):
            constants.append(helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True))
        else:
            given.append(helper.make_tensor_value_info(name, kind, array.shape))
    results = [helper.make_empty_tensor_value_info(n) for n in made if n]
    graph = helper.make_graph([node], "one node", given, results, constants)
    opsets = [helper.make_opsetid("", version)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=7).SerializeToString())


def check_node(
    op: str,
    inputs: Sequence[Any],
    outputs: int | Sequence[str] = 1,
    opset: int = 17,
    domain: str = "",
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    steps: int = 0,
    device: str = "cpu",
    more: dict[str, Any] | None = None,
    **attributes: Any,
) -> list[Any]:
    """Every output equals onnxruntime's, in the first run and in those that are replayed; gives them.

    `more` are attributes whose names mean something else here. `steps` is how far integers may be off: where a quotient
    lies in the middle between two, either rounds its own way.
    """
    import onnxruntime

    model = model_of(op, inputs, outputs, opset, domain, **attributes, **(more or {}))
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if isinstance(x, np.ndarray)}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    ours = anneal.onnx.load(model, device=device)
    for _ in range(3):
        results = list(ours.run(feeds).values())
        for n, (result, want) in enumerate(zip(results, wanted, strict=True)):
            whole = np.asarray(want).dtype.kind in "iu"
            compare(result, np.asarray(want), 0 if whole else rtol, steps if whole else atol, f"{op} output {n}")
    return [r.numpy() if isinstance(r, Tensor) else r for r in results]


FLOAT = TensorProto.FLOAT
