"""A model that was read: its inputs, the bounds of their symbolic sizes, checked values for them, a run's start."""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from anneal.backend import Storage, get_device
from anneal.errors import DTypeError, OnnxError
from anneal.onnx.execute import GraphRun
from anneal.onnx.graph import NARROW, ModelProgram, ValueInfo, deciding
from anneal.onnx.values import Feeds, Map, Memo, device_array, dtype_named, fits_device, uploaded
from anneal.runtime import buffer_leaf, here, memory_of
from anneal.tensor import Tensor, Variable, realize
from anneal.uop import Shape, UOp, arena
from anneal.uop.sizes import most, product

ByName = Mapping[str, Any]  # shapes, or values
_FORM = 'shapes={"batch": (1, 64)}, {"batch": 8}, or {"input": {0: (1, 64)}} for a size without a name'


@dataclass(frozen=True)
class SizeUse:
    """A symbolic size of the inputs: its bounds, None where none were given, and why each value has a plan of its own.

    `reason` is empty where one plan serves all values.
    """

    name: str
    bounds: tuple[int, int] | None
    reason: str

    def __str__(self) -> str:
        within = "" if self.bounds is None else f" ({self.bounds[0]} to {self.bounds[1]})"
        return f"{self.name}{within}: {f'a plan per size, because {self.reason}' if self.reason else 'one plan'}"


class SizeBounds:
    """The sizes of `load(shapes=...)`: `variables` are the sizes that one plan serves, by their names in the file.

    `inputs` are the model's, with the names and the numbers that were given in their shapes.

    Raises OnnxError for a name that the file does not have, and for bounds that are none.
    """

    def __init__(self, shapes: ByName, inputs: Sequence[ValueInfo]) -> None:
        self.inputs = list(inputs)
        limits = dict[str, tuple[int, int]]()
        self._names: dict[str, int] = {}
        for key, value in shapes.items():
            if isinstance(value, Mapping):
                self._name_axes(key, value, limits)
        known = list(dict.fromkeys(d for v in self.inputs for d in v.shape or () if isinstance(d, str)))
        for name, value in shapes.items():
            if isinstance(value, Mapping):
                continue
            if name not in known:
                raise OnnxError(
                    f"load: shapes names {name!r}, which no input has; the names are {', '.join(known) or 'none'}; a "
                    "size "
                    'without a name is given as {"input": {axis: (low, high)}}'
                )
            limits[name] = _limits(name, value)
        fixed = {name: low for name, (low, high) in limits.items() if low == high}
        self.inputs = [_fixed(v, fixed) for v in self.inputs]
        self.fixed = fixed
        self.limits = {name: both for name, both in limits.items() if name not in fixed}
        self.variables: dict[str, UOp] = {}
        for name, (low, high) in self.limits.items():
            own = re.sub(r"\W", "_", f"n{name}" if not name[:1].isalpha() else name)
            while any(v.arg[0] == own for v in self.variables.values()):
                own += "_"
            self.variables[name] = Variable(own, low, high)

    def _name_axes(self, key: str, axes: Mapping[Any, Any], limits: dict[str, tuple[int, int]]) -> None:
        """Give the sizes of one input that have no name the bounds, or the names, that `axes` says."""
        at = next((i for i, v in enumerate(self.inputs) if v.name == key), None)
        if at is None:
            inputs = ", ".join(v.name for v in self.inputs)
            raise OnnxError(f"load: shapes gives axes of {key!r}, which is no input; the inputs are {inputs}")
        info = self.inputs[at]
        sizes = list(info.shape or ())
        for axis, value in axes.items():
            if not isinstance(axis, int) or not -len(sizes) <= axis < len(sizes):
                raise OnnxError(f"load: shapes gives axis {axis!r} of input {info}, which has {len(sizes)} axes")
            axis %= len(sizes)
            if sizes[axis] is not None:
                fix = f"shapes={{{sizes[axis]!r}: ...}}" if isinstance(sizes[axis], str) else "leave it away"
                raise OnnxError(f"load: shapes gives axis {axis} of input {info}, which is {sizes[axis]!r}: {fix}")
            sizes[axis] = name = value if isinstance(value, str) else f"{key}_{axis}"
            if not isinstance(value, str):
                limits[name] = _limits(f"axis {axis} of {key}", value)
        self.inputs[at] = replace(info, shape=tuple(sizes))

    def named(self, info: ValueInfo) -> ValueInfo:
        """An output, with the numbers that were given in its shape."""
        return _fixed(info, self.fixed)

    def check(self, feeds: ByName) -> None:
        """Raises OnnxError for a size of a feed that is outside its bounds, and for two of one name that differ."""
        found = dict[str, tuple[int, str]]()
        for info in self.inputs:
            value = feeds.get(info.name)
            if value is None or info.kind != "tensor":
                continue
            for axis, (name, n) in enumerate(zip(info.shape or (), value.shape)):
                if name not in self.limits:
                    continue
                low, high = self.limits[str(name)]
                if not low <= n <= high:
                    raise OnnxError(
                        f"run: input {info.name!r}: axis {axis} is {name!r}, which goes from {low} to {high}, and has "
                        f"{n}; load the model with wider shapes"
                    )
                first, where = found.setdefault(str(name), (n, info.name))
                if first != n:
                    raise OnnxError(
                        f"run: {name!r} is {first} by input {where!r}, and {n} by axis {axis} of input {info.name!r}"
                    )

    def shape(self, info: ValueInfo, value: Any, names: frozenset[str]) -> Shape:
        """The shape of an input's value with Variables for the sizes in `names`."""
        if not isinstance(value, Tensor) or info.kind != "tensor" or 0 in value.shape:
            return tuple(value.shape)
        return tuple([self.variables[str(d)] if d in names else n for d, n in zip(info.shape or (), value.shape)])


def _limits(name: str, value: Any) -> tuple[int, int]:
    """Bounds as two numbers."""
    both = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(both) != 2 or any(not isinstance(n, int) or isinstance(n, bool) for n in both):
        raise OnnxError(f"load: shapes of {name} is {value!r}; bounds are given as {_FORM}")
    low, high = both
    if not 1 <= low <= high < 2**31:
        raise OnnxError(f"load: shapes of {name} goes from {low} to {high}; bounds are 1 <= low <= high < 2**31")
    return low, high


def _fixed(info: ValueInfo, fixed: Mapping[str, int]) -> ValueInfo:
    if info.shape is None or not any(d in fixed for d in info.shape):
        return info
    return replace(info, shape=tuple(fixed.get(d, d) if isinstance(d, str) else d for d in info.shape))


# -- tensors ----------------------------------------------------------------------------------------------------------


def inside_another() -> bool:
    """True inside a jit function, a transform or a host call, whose tensors have no memory yet."""
    return bool(here.recordings or here.depth or here.in_host_call or here.tracing)


def roomy(t: Tensor, shape: Shape) -> Tensor:
    """The values of `t` as one row, in memory that has room for the largest sizes of `shape`."""
    realize([t])
    held = memory_of(t.uop)
    count = product(shape)
    host = held.host  # values that are yet to be uploaded: they go to their place at once
    room = Storage(most(count), held.dtype, t.device, host=host)
    if host is None:
        device = get_device(t.device)
        with device.lock:
            device.copy(held.ensure(), room.ensure(), math.prod(t.shape), held.dtype)
    return Tensor._from_uop(buffer_leaf(room, (count,)), t.device)


def exact(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The values that `roomy` memory holds as a tensor of plain sizes."""
    held = memory_of(t.uop)
    own = Storage(math.prod(shape), held.dtype, t.device)
    if own.size:
        device = get_device(t.device)
        with device.lock:
            device.copy(held.ensure(), own.ensure(), own.size, held.dtype)
    return Tensor._from_uop(buffer_leaf(own, shape), t.device)


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
        shapes: ByName | None = None,
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
        inputs, outputs = [", ".join(str(v) for v in some) for some in (self.inputs, self.outputs)]
        return f"{type(self).__name__}({self.program.graph.name!r}: {inputs} -> {outputs})"

    def named(self, inputs: tuple[Any, ...]) -> Feeds:
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
        """A run at its start, before any node of the graph, for inputs of so many elements.

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

    def taken(self, feeds: ByName, detach: bool = True) -> Feeds:
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
        return ", ".join(str(v) for v in self.inputs) or "none"

    def _placed(self, value: Any, info: ValueInfo, detach: bool) -> Any:
        """A value where a run needs it: on the host if it decides shapes or no device holds it, else on the device."""
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
            # values for a plan with Variables are uploaded to memory with room for the largest sizes
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
            array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        else:
            array = np.asarray(x, dtype_named(info.dtype) if info.dtype else None)
    except (TypeError, ValueError, OverflowError) as e:
        raise OnnxError(f"input {info.name!r}: cannot be made from {type(x).__name__}: {e}; it takes {info}") from None
    _check(array, info)
    return array


def _map(x: Any, info: ValueInfo) -> Map:
    """A dict as a Map, each key and value of the type that the input says."""
    if not isinstance(x, Mapping):
        raise OnnxError(f"input {info.name!r}: is {type(x).__name__}, not a dict; it takes {info}")
    types = [str if name == "string" else dtype_named(name).type for name in (info.key, info.dtype)]
    try:
        for key, value in x.items():
            if not isinstance(key, str | int | np.integer) or isinstance(key, str) != (types[0] is str):
                raise OnnxError(f"input {info.name!r}: has the key {key!r}; it takes {info}")
            if not isinstance(value, str | int | float | np.generic) or isinstance(value, str) != (types[1] is str):
                raise OnnxError(f"input {info.name!r}: has {value!r} for {key!r}; it takes {info}")
        return Map({key: types[1](value) for key, value in x.items()})
    except (TypeError, ValueError, OverflowError) as e:
        raise OnnxError(f"input {info.name!r}: {e}; it takes {info}") from None


@lru_cache(64)  # NumPy takes long to name a dtype
def _name_of(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.kind == "O" else dtype.name


def _check(x: Any, info: ValueInfo) -> None:
    """Raises OnnxError unless a value has the dtype, rank and sizes that its input says."""
    name = x.dtype.name if isinstance(x, Tensor) else _name_of(x.dtype)
    narrowed = isinstance(x, Tensor) and NARROW.get(info.dtype) == name
    if info.dtype and name != info.dtype and not narrowed and not info.dtype.startswith("type "):
        raise OnnxError(f"input {info.name!r}: takes {info.dtype}, not {name}; cast it, .astype({info.dtype!r})")
    if info.shape is not None and info.kind == "tensor":
        shape = tuple(x.shape)
        if len(shape) != len(info.shape) or any(isinstance(d, int) and d != s for d, s in zip(info.shape, shape)):
            raise OnnxError(f"input {info.name!r}: has shape {list(shape)}, but the model takes {info}")
