"""The test cases of the onnx package: generated from it, kept in a temporary folder between processes, never here."""

from __future__ import annotations

import getpass
import os
import pickle
import re
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import anneal.onnx
from anneal.errors import DTypeError
from anneal.tensor import Tensor

__all__ = ["Case", "compare", "file_cases", "light_models", "needs", "node_cases", "run", "with_weights"]


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


def needs(case: Case) -> set[str]:
    """What a case needs beside tensors of 8 to 64 bits and operators of ai.onnx that compute with them: "strings",
    "sequences", "optionals", "control flow", "preview", "ai.onnx.ml", "bfloat16", "narrow" (floats of 8 bits and less,
    integers of 4 and 2).
    """
    from onnx import ModelProto

    out: set[str] = set()
    todo: list[Any] = [ModelProto.FromString(case.model)]
    while todo:
        message = todo.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                todo.extend(value if field.is_repeated else [value])
        kind, code = message.DESCRIPTOR.name, 0
        if kind == "NodeProto":
            out |= _NEEDS.get(message.op_type, set())
            out |= {"preview"} if message.domain.startswith("ai.onnx.preview") else set()
            out |= {"ai.onnx.ml"} if message.domain == "ai.onnx.ml" else set()
        elif kind in ("Sequence", "Optional"):
            out.add(f"{kind.lower()}s")
        elif kind in ("Tensor", "TensorProto"):
            code = message.elem_type if kind == "Tensor" else message.data_type
        elif kind == "AttributeProto" and message.name in ("to", "dtype", "output_dtype"):
            code = message.i
        out |= {"strings"} if code == 8 else {"bfloat16"} if code == 16 else {"narrow"} if code > 16 else set()
    return out


_NEEDS = {op: {"control flow"} for op in ("If", "Loop", "Scan")}
_NEEDS |= {op: {"strings"} for op in ("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch")}
_NEEDS |= {
    op: {"sequences"}
    for op in [
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SplitToSequence",
        "ConcatFromSequence",
    ]
}
_NEEDS |= {op: {"optionals"} for op in ("Optional", "OptionalGetElement", "OptionalHasElement")}


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


@cache
def file_cases(kind: str) -> dict[str, Case]:
    """The cases of a folder of the package's data, by name: "simple", "pytorch-operator", "pytorch-converted"."""
    from onnx import ModelProto
    from onnx.backend.test.loader import load_model_tests

    out = {}
    for c in load_model_tests(kind=kind):
        folder = Path(c.model_dir)
        model = (folder / "model.onnx").read_bytes()
        graph = ModelProto.FromString(model).graph
        weights = {i.name for i in graph.initializer}
        inputs = [v for v in graph.input if v.name not in weights]
        data = tuple(
            [
                (_files(sample, "input", inputs), _files(sample, "output", graph.output))
                for sample in sorted(folder.glob("test_data_set_*"))
            ]
        )
        out[c.name] = Case(c.name, model, c.rtol, c.atol, data)
    return dict(sorted(out.items()))


def _files(folder: Path, what: str, infos: Any) -> tuple[Any, ...]:
    """The values of a data set, in the order of the graph."""
    from onnx import OptionalProto, SequenceProto, TensorProto

    kinds = {"tensor_type": TensorProto, "sequence_type": SequenceProto, "optional_type": OptionalProto}
    return tuple(
        [
            _plain(kinds[v.type.WhichOneof("value")].FromString((folder / f"{what}_{n}.pb").read_bytes()))
            for n, v in enumerate(infos)
            if (folder / f"{what}_{n}.pb").exists()
        ]
    )


def light_models() -> dict[str, Path]:
    """The real models that the package has without their weights, by name."""
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {p.stem.removeprefix("light_"): p for p in sorted(folder.glob("*.onnx"))}


def with_weights(path: Path, seed: int = 0) -> bytes:
    """A light model with random weights in place of those that ConstantOfShape makes of one number."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path))
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    shapes |= {
        n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in model.graph.node if n.op_type == "Constant"
    }
    random = np.random.default_rng(seed)
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = shapes[node.input[0]].astype(int).tolist()
            width = float(np.prod(shape[1:])) if len(shape) > 1 else 0.0
            # Weights keep the size of what goes through; variances and scales of a normalisation are positive.
            array = random.standard_normal(shape) * (2 / width) ** 0.5 if width else random.uniform(0.5, 1, shape)
            model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    data: bytes = model.SerializeToString()
    return data


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


def run(case: Case, device: str = "cpu", atol: float | None = None, times: int = 1, *, on_device: bool = False) -> None:
    """Load a case and run it so many times; AssertionError where an output differs by more than the case allows.

    With `on_device` the inputs are tensors already, so nothing is computed on the host that need not be.
    """
    model = anneal.onnx.load(case.model, device=device)
    for inputs, outputs in case.data * times:
        given = [_moved(x, device) for x in inputs] if on_device else inputs
        results = list(model.run({v.name: x for v, x in zip(model.inputs, given)}).values())
        assert len(results) == len(outputs)
        for info, result, wanted in zip(model.outputs, results, outputs):
            if (defined := _fits(case.name, inputs)) is not None:
                array = result.numpy() if isinstance(result, Tensor) else np.asarray(result)
                assert array.dtype == wanted.dtype
                result = np.where(defined, array, wanted)
            compare(result, wanted, case.rtol, case.atol if atol is None else atol, info.name)


def _moved(x: Any, device: str) -> Any:
    """A value as tensors, where the device has its dtype."""
    if isinstance(x, list):
        return [_moved(v, device) for v in x]
    try:
        return x if x is None else Tensor(x, device=device)
    except DTypeError:
        return x


def _fits(name: str, inputs: tuple[Any, ...]) -> Any:
    """Where a cast of floats fits an integer of 4 or 2 bits, None of other cases: ONNX leaves other values undefined,
    and the cases have what ml_dtypes makes of them, which differs between its versions and processors.
    """
    found = re.match(r"test_cast(?:like)?_FLOAT(?:16)?_to_(U?)INT([24])", name)
    if found is None:
        return None
    unsigned, bits = found[1] == "U", int(found[2])
    least, end = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    whole = np.trunc(inputs[0].astype(np.float64))
    return (whole >= least) & (whole < end)


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
            if wanted.dtype.name == "bfloat16":
                rtol = max(rtol, 2**-6)  # what the package's own runner allows
            array, wanted = array.astype(kind), wanted.astype(kind)
        np.testing.assert_allclose(array, wanted, rtol=rtol, atol=atol, err_msg=name)
