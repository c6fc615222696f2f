"""The test cases of the onnx package: generated from it, kept in a temporary folder between processes, never here."""

from __future__ import annotations

import getpass
import os
import pickle
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import anneal.onnx
from anneal.tensor import Tensor

__all__ = ["Case", "compare", "node_cases", "run"]


@dataclass(frozen=True)
class Case:
    """A model as bytes, its tolerances, and sets of inputs and outputs: arrays, lists of them, None."""

    name: str
    model: bytes
    rtol: float
    atol: float
    data: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]


@cache
def node_cases() -> dict[str, Case]:
    """Every node case by name."""
    import onnx

    path = Path(tempfile.gettempdir()) / f"onnx-{onnx.__version__}-node-cases-{getpass.getuser()}.pickle"
    if path.is_file() and path.stat().st_uid == os.getuid():
        with path.open("rb") as f:
            found: dict[str, Case] = pickle.load(f)
        return found
    cases = _generated()
    temporary = path.with_suffix(f".{os.getpid()}")
    with temporary.open("wb") as f:
        pickle.dump(cases, f)
    temporary.replace(path)
    return cases


def _generated() -> dict[str, Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    out = {}
    for c in found:
        data = tuple([(tuple([_plain(x) for x in ins]), tuple([_plain(x) for x in outs])) for ins, outs in c.data_sets])
        out[c.name] = Case(c.name, c.model.SerializeToString(), c.rtol, c.atol, data)
    return dict(sorted(out.items()))


def _plain(x: Any) -> Any:
    """A value of a data set as arrays."""
    from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

    if isinstance(x, TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, OptionalProto):
        return _plain(numpy_helper.to_optional(x))
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    return x if x is None or isinstance(x, dict) else np.asarray(x)


def run(case: Case, device: str = "cpu", atol: float | None = None, times: int = 1) -> None:
    """Load a case and run it so many times; AssertionError where an output differs by more than the case allows."""
    model = anneal.onnx.load(case.model, device=device)
    for inputs, outputs in case.data * times:
        results = list(model.run({v.name: x for v, x in zip(model.inputs, inputs)}).values())
        assert len(results) == len(outputs)
        for info, result, wanted in zip(model.outputs, results, outputs):
            compare(result, wanted, case.rtol, case.atol if atol is None else atol, info.name)


def compare(result: Any, wanted: Any, rtol: float, atol: float, name: str) -> None:
    """AssertionError unless a result has the wanted type, shape and values."""
    if wanted is None:
        assert result is None, f"{name}: {result} instead of nothing"
    elif isinstance(wanted, list):
        assert isinstance(result, list), f"{name}: no sequence"
        assert len(result) == len(wanted), f"{name}: {len(result)} items instead of {len(wanted)}"
        for n, (r, w) in enumerate(zip(result, wanted)):
            compare(r, w, rtol, atol, f"{name}[{n}]")
    else:
        array = result.numpy() if isinstance(result, Tensor) else np.asarray(result)
        assert array.shape == wanted.shape, f"{name}: shape {array.shape} instead of {wanted.shape}"
        if wanted.dtype == object or wanted.dtype.kind in "US":
            assert array.astype(str).tolist() == wanted.astype(str).tolist(), name
            return
        assert array.dtype == wanted.dtype, f"{name}: {array.dtype} instead of {wanted.dtype}"
        if wanted.dtype.kind == "V" or wanted.dtype.name.startswith(("bfloat", "float", "int", "uint")):
            kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
            if wanted.dtype.name in ("int64", "uint64"):
                np.testing.assert_array_equal(array, wanted, err_msg=name)
                return
            array, wanted = array.astype(kind), wanted.astype(kind)
        np.testing.assert_allclose(array, wanted, rtol=rtol, atol=atol, err_msg=name)
