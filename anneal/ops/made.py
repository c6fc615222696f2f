"""Tensors made of what is no tensor: of data, and of nodes that no tensor was taken for.

An op gives tensors by way of those that it takes (`x._new(node)`). What takes none asks here, since no file of ops
imports the class: the class says what it is when it is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anneal.names import Tensor
from anneal.runtime import register_late, tensor_class

if TYPE_CHECKING:
    from anneal.ops.data import DTypeLike
    from anneal.uop import UOp


def register(cls: type[Tensor]) -> None:
    """`cls` is the class of tensors, or one below it."""
    register_late(cls)


def tensor(data: Any, device: str | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """`Tensor(data, device, dtype)`."""
    made: Tensor = tensor_class()(data, device, dtype)
    return made


def fresh(u: UOp, device: str | None = None, requires_grad: bool | None = None) -> Tensor:
    """The tensor of a node made from nothing; device as `default_device`."""
    made: Tensor = tensor_class()._fresh(u, device, requires_grad)
    return made


def result(u: UOp, x: Tensor, *others: Tensor | None) -> Tensor:
    """The tensor of `u`, made from `x` and those of `others` that are there."""
    return x._new(u, *[o for o in others if o is not None])
