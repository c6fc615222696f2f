"""A model that was read: its inputs and outputs, checked values for them, and the start of a run."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from anneal.errors import DTypeError, OnnxError
from anneal.onnx.execute import GraphRun
from anneal.onnx.graph import ModelProgram, ValueInfo, deciding
from anneal.onnx.notes import Memo
from anneal.onnx.size_bounds import SizeBounds
from anneal.onnx.types import Map, device_array, fits_device, uploaded
from anneal.tensor import Tensor
from anneal.uop import arena

BUDGET = 50_000  # nodes that one run may execute, besides those of the main graph
_ELEMENTS, _EACH = 1 << 26, 256  # that one value may have, and for each number of the file and the inputs
_SMALL = 16  # elements of an input that stays on the host, or is read, where its values decide shapes


class LoadedModel:
    """The graph of a file with its inputs and outputs, on a device; `Model` is one that runs."""

    def __init__(
        self,
        program: ModelProgram,
        device: str,
        budget: int = BUDGET,
        float64: str = "float32",
        elements: int | None = None,
        shapes: Mapping[str, Any] | None = None,
    ) -> None:
        self.program = program
        self.device = device
        self.budget = budget
        self.float64 = float64
        self.elements = elements
        graph = program.graph
        self.bounds = SizeBounds(shapes or {}, graph.inputs)
        graph.inputs[:] = self.bounds.inputs
        graph.outputs[:] = [self.bounds.named(v) for v in graph.outputs]
        self.inputs = [v for v in graph.inputs if v.name not in graph.constants]
        self.optional_inputs = [v for v in graph.inputs if v.name in graph.constants]
        self.outputs = graph.outputs
        self.lock = threading.RLock()
        self.deciding = deciding(graph)  # names whose values decide shapes
        self.known = {v.name: v for v in graph.inputs}
        self._constants = Memo()
        self._plans: OrderedDict[Any, Any] = OrderedDict()  # by signature, those used last
        # the last run: the kinds of arrays that it was for, its plan, and the names of those that became tensors
        self._again: tuple[Any, Any, tuple[str, ...]] = None, None, ()
        self._unsized: dict[str, str] = {}  # sizes with bounds that have a plan for each value after all, and why

    def __repr__(self) -> str:
        inputs, outputs = [", ".join([str(v) for v in some]) for some in (self.inputs, self.outputs)]
        return f"{type(self).__name__}({self.program.graph.name!r}: {inputs} -> {outputs})"

    def named(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Inputs by position as feeds. Raises OnnxError if there are too many.

        Args:
            inputs: the values, in order.
        """
        if len(inputs) > len(self.inputs):
            raise OnnxError(f"the model takes {len(self.inputs)} inputs, not {len(inputs)}: {self._told()}")
        return {v.name: x for v, x in zip(self.inputs, inputs)}

    def start(
        self, memo: Memo, given: int, *, reads: bool | str = True, training: bool = False, watch: Any = None
    ) -> GraphRun:
        """A run that has yet to go through the graph, for inputs of so many elements.

        Args:
            memo: the results that runs of the same shapes share.
            given: the number of elements of the inputs.
            reads: whether the run may read values from the device, or the reason why not.
            training: whether dropout and batch statistics are those of training.
            watch: a function that is called with each node and its results.
        """
        justified = max(_ELEMENTS, _EACH * (given + self.program.elements))
        return GraphRun(
            self.device,
            memo,
            self._constants,
            self.budget + len(self.program.graph.nodes),
            justified if self.elements is None else self.elements,
            reads=reads,
            training=training,
            float64=self.float64,
            watch=watch,
        )

    def taken(self, feeds: Mapping[str, Any], detach: bool = True) -> dict[str, Any]:
        """The feeds as values of a run, each checked against its input.

        Args:
            detach: whether results give gradients nowhere.
        """
        for name in feeds:
            if name not in self.known:
                raise OnnxError(f"run: the model has no input {name!r}; its inputs are {self._told()}")
        for v in self.inputs:
            if v.name not in feeds and "optional" not in v.kind:
                raise OnnxError(f"run: input {v.name!r} is missing; the inputs are {self._told()}")
        out = {}
        with arena().located():
            for name, info in self.known.items():
                if name in feeds:
                    out[name] = self._placed(_value(feeds[name], info), info, detach)
                elif name not in self.program.graph.constants:
                    out[name] = None
        self.bounds.check(out)
        return out

    def _told(self) -> str:
        return ", ".join([str(v) for v in self.inputs]) or "none"

    def _placed(self, value: Any, info: ValueInfo, detach: bool) -> Any:
        """A value where a run wants it: on the host if it decides shapes or no device holds it, else on the device."""
        if isinstance(value, list):
            return [self._placed(v, info, detach) for v in value]
        if value is None:
            return None
        decides = info.name in self.deciding and math.prod(value.shape) <= _SMALL
        if isinstance(value, Tensor):
            if decides and not value.dtype.is_float:
                return value.detach().numpy()
            value = value if value.device == self.device else value.to(device=self.device)
            return value.detach() if detach and value.requires_grad else value
        if decides or not fits_device(value.dtype):
            return value
        try:
            # what goes to a plan with Variables is uploaded to memory with room for the largest
            place = device_array if self.bounds.variables.keys() & set(info.shape or ()) else uploaded
            return place(value, self.device, self.float64)
        except DTypeError as e:
            raise OnnxError(f"input {info.name!r}: {e}") from None


def _value(x: Any, info: ValueInfo) -> Any:
    """The value that a caller gives for an input, as a Tensor, an array, a list or None."""
    if "sequence" in info.kind and isinstance(x, (list, tuple)):
        item = ValueInfo(info.name, "map" if info.key else "tensor", info.dtype, None, info.key)
        return [_value(v, item) for v in x]
    if x is None:
        if "optional" in info.kind:
            return None
        raise OnnxError(f"input {info.name!r}: is None, but it is no optional; it takes {info}")
    if isinstance(x, Tensor):
        _check(x, info)
        return x
    if info.kind.endswith("map"):
        return _map(x, info)
    try:
        if isinstance(x, (np.ndarray, np.generic)):
            array = np.asarray(x)
            array = array.astype(object) if array.dtype.kind in "USTV" and info.dtype == "string" else array
        else:
            array = np.asarray(x, dtype=_numpy_dtype(info.dtype))
    except (TypeError, ValueError, OverflowError) as e:
        raise OnnxError(f"input {info.name!r}: cannot be made from {type(x).__name__}: {e}; it takes {info}") from None
    _check(array, info)
    return array


def _map(x: Any, info: ValueInfo) -> Map:
    """A dict as a Map, each key and value of the type that the input says."""
    if not isinstance(x, Mapping):
        raise OnnxError(f"input {info.name!r}: is {type(x).__name__}, not a dict; it takes {info}")
    types = [str if name == "string" else _numpy_dtype(name).type for name in (info.key, info.dtype)]
    try:
        for key, value in x.items():
            if not isinstance(key, str | int | np.integer) or isinstance(key, str) != (types[0] is str):
                raise OnnxError(f"input {info.name!r}: has the key {key!r}; it takes {info}")
            if not isinstance(value, str | int | float | np.generic) or isinstance(value, str) != (types[1] is str):
                raise OnnxError(f"input {info.name!r}: has {value!r} for {key!r}; it takes {info}")
        return Map({key: types[1](value) for key, value in x.items()})
    except (TypeError, ValueError, OverflowError) as e:
        raise OnnxError(f"input {info.name!r}: {e}; it takes {info}") from None


def _numpy_dtype(name: str) -> Any:
    import ml_dtypes

    return np.dtype(object if name == "string" else getattr(ml_dtypes, name, None) or name) if name else None


@lru_cache(64)  # NumPy takes long to name a dtype
def _name_of(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.kind == "O" else dtype.name


def _check(x: Any, info: ValueInfo) -> None:
    """Raises OnnxError unless a value has the dtype, rank and sizes that its input says."""
    name = x.dtype.name if isinstance(x, Tensor) else _name_of(x.dtype)
    narrowed = isinstance(x, Tensor) and (info.dtype, name) in (
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("float64", "float32"),
    )
    if info.dtype and name != info.dtype and not narrowed and not info.dtype.startswith("type "):
        raise OnnxError(f"input {info.name!r}: takes {info.dtype}, not {name}; cast it, .astype({info.dtype!r})")
    if info.shape is not None and info.kind == "tensor":
        shape = tuple(x.shape)
        if len(shape) != len(info.shape) or any(isinstance(d, int) and d != s for d, s in zip(info.shape, shape)):
            raise OnnxError(f"input {info.name!r}: has shape {list(shape)}, but the model takes {info}")
