"""Calls of the host as nodes of the graph, and their results as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anneal.errors import ShapeError
from anneal.ops.data import check_device_dtype
from anneal.runtime import HostFunction, here
from anneal.uop.sizes import most

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["called_on_host"]


def called_on_host(name: str, called: HostFunction, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a call; `name` is for messages. Raises ShapeError, DTypeError or DeviceError for wrong inputs."""
    first = inputs[0]
    for x in inputs:
        if x.device != first.device:
            first._mixed(name, x)
    for shape, dtype in called.results:
        check_device_dtype(first.device, dtype)
        if any(most(n) < 1 for n in shape):
            raise ShapeError(f"{name}: a result has sizes of at least 1, or a Variable's, not {shape}")
    if any(most(n) < 1 for x in inputs for n in x.shape):
        raise ShapeError(f"{name}: takes tensors whose sizes are at least 1; pad an empty one, and pass the length")
    here.context.tensors.host_calls = True
    return tuple([first._new(u, *inputs) for u in called.nodes(tuple([x.uop for x in inputs]))])
