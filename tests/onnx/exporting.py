"""A function exported, checked, and run by onnxruntime and by anneal: both give what the function gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import anneal.onnx
from anneal.onnx import Exported
from anneal.tensor import Tensor, tree_leaves, tree_map
from anneal.uop import UOp

__all__ = ["check_export", "run_file", "same"]

ort.set_default_logger_severity(4)


def run_file(path: Path, feeds: dict[str, Any]) -> list[Any]:
    """The outputs that onnxruntime computes."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def same(got: Any, want: Any, rtol: float = 1e-4) -> None:
    """Equal dtypes and shapes; integers exactly, floats to `rtol` of the largest value."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
    else:
        finite = np.abs(want[np.isfinite(want)]).astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * float(finite.max(initial=1e-3)))


def check_export(
    function: Callable[..., Any], *arguments: Any, folder: Path, feeds: list[Any] | None = None, **more: Any
) -> Exported:
    """Export a function and compare what the file gives, in both runtimes, for `feeds` (other arguments, such as of
    other sizes; `arguments` if None)."""
    path = folder / "model.onnx"
    made = anneal.onnx.export(function, arguments, path, **more)
    onnx.checker.check_model(str(path), full_check=True)
    for given in [arguments, *(feeds or [])]:
        values = tree_map(lambda a: Tensor(a) if isinstance(a, np.ndarray) else a, given)
        want = [(t if isinstance(t, Tensor) else Tensor(t)).numpy() for t in tree_leaves(function(*values))]
        inputs = [t for t in tree_leaves(values) if isinstance(t, (Tensor, UOp))]
        arrays = [t.numpy() if isinstance(t, Tensor) else np.array(t.arg[3]) for t in inputs]
        named = {i.name: a for i, a in zip(made.inputs, arrays, strict=True)}
        for got, w in zip(run_file(path, named), want, strict=True):
            same(got, w)
        again = anneal.onnx.load(path).run(named)
        for t, w in zip(again.values(), want, strict=True):
            assert isinstance(t, Tensor)
            same(t.numpy(), w)
    return made
