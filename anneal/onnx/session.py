"""onnxruntime's shape, for programs that have it already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anneal.errors import OnnxError
from anneal.onnx.graph import ValueInfo
from anneal.onnx.model import load
from anneal.tensor import Tensor

_TYPES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class _NodeArg:
    """An input or output: `type` as "tensor(float)", `shape` with ints, names and None."""

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """A model by onnxruntime's names: `run(names, feeds)` gives NumPy arrays.

    Args:
        path_or_bytes: a path, or what such a file holds.
        sess_options: not read.
        providers: not read; `device` says where the model runs.
        device: "cpu", "webgpu", or None for the default device.
        shapes: bounds of symbolic sizes, as `anneal.onnx.load` takes them.

    Raises OnnxError as `anneal.onnx.load` does.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        device: str | None = None,
        shapes: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = load(path_or_bytes, device, shapes=shapes)

    def get_inputs(self) -> list[_NodeArg]:
        """The inputs that must be given."""
        return [_argument(v) for v in self.model.inputs]

    def get_outputs(self) -> list[_NodeArg]:
        """The outputs."""
        return [_argument(v) for v in self.model.outputs]

    def get_providers(self) -> list[str]:
        """The device on which the model runs."""
        return [f"anneal:{self.model.device}"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs with these names, all of them for None, as NumPy arrays (lists of arrays, None).

        Args:
            output_names: the names of the outputs; None: all.
            input_feed: the values of the inputs by name.
            run_options: ignored.
        """
        results = self.model.run(input_feed)
        names = list(results) if output_names is None else list(output_names)
        for name in names:
            if name not in results:
                raise OnnxError(f"run: the model has no output {name!r}; its outputs are {', '.join(results)}")
        return [_plain(results[name]) for name in names]


def _argument(info: ValueInfo) -> _NodeArg:
    kind = f"tensor({_TYPES.get(info.dtype, info.dtype)})"
    if info.kind != "tensor":
        for part in reversed(info.kind.split(" of ")):
            kind = f"map({info.key},{kind})" if part == "map" else f"{part[:3]}({kind})"
    return _NodeArg(info.name, kind, list(info.shape or ()))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.numpy() if isinstance(value, Tensor) else value
