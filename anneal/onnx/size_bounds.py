"""Bounds of symbolic sizes: which sizes of a model's inputs are Variables, and tensors whose shapes they are in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anneal.backend import Storage, get_device
from anneal.errors import OnnxError
from anneal.onnx.graph import ValueInfo
from anneal.runtime import buffer_leaf, here, storage_of
from anneal.tensor import Tensor, Variable, realize
from anneal.uop import UOp
from anneal.uop.sizes import most, product

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

    def __init__(self, shapes: Mapping[str, Any], inputs: Sequence[ValueInfo]) -> None:
        self.inputs = list(inputs)
        limits: dict[str, tuple[int, int]] = {}
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
            inputs = ", ".join([v.name for v in self.inputs])
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

    def check(self, feeds: Mapping[str, Any]) -> None:
        """Raises OnnxError for a size of a feed that is outside its bounds, and for two of one name that differ."""
        found: dict[str, tuple[int, str]] = {}
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

    def shape(self, info: ValueInfo, value: Any, names: frozenset[str]) -> tuple[Any, ...]:
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
    return replace(info, shape=tuple([fixed.get(d, d) if isinstance(d, str) else d for d in info.shape]))


# -- tensors ----------------------------------------------------------------------------------------------------------


def inside_another() -> bool:
    """True inside a jit function, a transform or a host call, whose tensors have no memory yet."""
    return bool(here.recordings or here.depth or here.in_host_call or here.tracing)


def roomy(t: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """The values of `t` as one row, in memory that has room for the largest sizes of `shape`."""
    realize([t])
    held = storage_of(t.uop)
    assert held is not None
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
    held = storage_of(t.uop)
    assert held is not None
    own = Storage(math.prod(shape), held.dtype, t.device)
    if own.size:
        device = get_device(t.device)
        with device.lock:
            device.copy(held.ensure(), own.ensure(), own.size, held.dtype)
    return Tensor._from_uop(buffer_leaf(own, shape), t.device)
