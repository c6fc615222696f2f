"""A model that was loaded: inputs and outputs, and how it is run."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from anneal.errors import OnnxError
from anneal.onnx.execute import Memo, Run
from anneal.onnx.files import parsed, reader_of
from anneal.onnx.graph import Program, ValueInfo, program_of
from anneal.onnx.types import fits_device
from anneal.tensor import Tensor, default_device, no_grad, realize

__all__ = ["Model", "load"]

_BUDGET = 1_000_000  # nodes that one run may execute
_KEPT = 16  # sets of input shapes that a model keeps what is fixed for
_SMALL = 64  # elements of an input of integers that may decide shapes


def load(
    source: str | os.PathLike[str] | bytes,
    device: str | None = None,
    *,
    structure_only: bool = False,
    budget: int = _BUDGET,
) -> Model:
    """The model of an ONNX file, or of its bytes.

    Args:
        source: a path, or what such a file holds.
        device: where it runs; the default device if None.
        structure_only: leave the weights: what the graph looks like is all that can be asked.
        budget: how many nodes one run may execute, those of subgraphs counted each time.

    Raises OnnxError for a file that cannot be read, is broken, or has what cannot be run.
    """
    proto, folder = parsed(source)
    program = program_of(proto, reader_of(folder, structure_only=structure_only))
    return Model(program, device or default_device(), budget)


class Model:
    """An ONNX model: `run` takes values by name, a call takes them by position."""

    def __init__(self, program: Program, device: str, budget: int = _BUDGET) -> None:
        self.program = program
        self.device = device
        self.budget = budget
        graph = program.graph
        self.inputs = [v for v in graph.inputs if v.name not in graph.constants]
        self.optional_inputs = [v for v in graph.inputs if v.name in graph.constants]
        self.outputs = graph.outputs
        self._constants = Memo()
        for value in graph.constants.values():
            self._constants.fix(value)
        self._memos: OrderedDict[Any, Memo] = OrderedDict()
        self._lock = threading.RLock()

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, in their order: tensors on the device, lists of them (sequences), None (empty
        optionals), and NumPy arrays of what no device holds (strings).

        Raises OnnxError for a name that is no input, a missing input, and for what a node cannot compute.
        """
        values = self._taken(feeds)
        with self._lock, no_grad():
            memo = self._memo(values)
            run = Run(self.device, memo, self._constants, self.budget)
            results = run.main(self.program.graph, values)
            results = [self._given(r) for r in results]
            realize([t for r in results for t in _tensors(r)])
        return {v.name: r for v, r in zip(self.outputs, results)}

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for inputs by position: the one output, or a tuple."""
        if len(inputs) > len(self.inputs):
            raise OnnxError(f"the model takes {len(self.inputs)} inputs, not {len(inputs)}")
        results = tuple(self.run({v.name: x for v, x in zip(self.inputs, inputs)}).values())
        return results[0] if len(results) == 1 else results

    def _taken(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The feeds as values of a run, each checked against its input."""
        known = {v.name: v for v in (*self.inputs, *self.optional_inputs)}
        told = ", ".join([str(v) for v in self.inputs]) or "none"
        for name in feeds:
            if name not in known:
                raise OnnxError(f"run: the model has no input {name!r}; its inputs are {told}")
        for v in self.inputs:
            if v.name not in feeds:
                raise OnnxError(f"run: input {v.name!r} is missing; the inputs are {told}")
        return {name: _value(x, known[name]) for name, x in feeds.items()}

    def _memo(self, values: dict[str, Any]) -> Memo:
        """What is fixed for these inputs. Small arrays of integers are fixed too, by their values; the others go to
        the device, in place.
        """
        parts: list[Any] = []
        fixed = []
        for name, value in sorted(values.items()):
            if isinstance(value, np.ndarray) and not fits_device(value.dtype):
                parts.append((name, id(value)))
            elif isinstance(value, np.ndarray) and value.dtype.kind in "iub" and value.size <= _SMALL:
                parts.append((name, value.dtype.name, value.shape, value.tobytes()))
                fixed.append(name)
            else:
                if isinstance(value, np.ndarray):
                    value = values[name] = Tensor(value, device=self.device)
                parts.append((name, _kind(value)))
        key = tuple(parts)
        memo = self._memos.pop(key, None)
        if memo is None:
            memo = Memo()
        self._memos[key] = memo
        if len(self._memos) > _KEPT:
            self._memos.popitem(last=False)
        for name in fixed:
            memo.fix(values[name])
        return memo

    def _given(self, result: Any) -> Any:
        """A result as the caller gets it."""
        if isinstance(result, list):
            return [self._given(r) for r in result]
        if isinstance(result, np.ndarray) and fits_device(result.dtype):
            return Tensor(result, device=self.device)
        return result


def _value(x: Any, info: ValueInfo) -> Any:
    """What a caller gives for an input, as a Tensor, an array, a list or None."""
    if x is None or isinstance(x, Tensor):
        return x
    if isinstance(x, list) and info.kind not in ("tensor", "unknown") and "sequence" in info.kind:
        return [_value(v, info) for v in x]
    if isinstance(x, (np.ndarray, np.generic)):
        array = np.asarray(x)
        if array.dtype.kind in "US":
            array = array.astype(object)
        return array
    if info.dtype == "string":
        return np.asarray(x, dtype=object)
    return np.asarray(x, dtype=info.dtype or None)


def _kind(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_kind(v) for v in value])
    return None if value is None else (value.shape, str(value.dtype))


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, list):
        return [t for r in result for t in _tensors(r)]
    return [result] if isinstance(result, Tensor) else []
