"""Leaves: the tensors on which requires_grad was set, and their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anneal.runtime import here
from anneal.uop import UOp

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = ["leaf_nodes", "leaves"]


def leaves() -> list[Tensor]:
    """The live tensors on which requires_grad was set."""
    return here.context.tensors.live_leaves()  # type: ignore[return-value]


def leaf_nodes(tensor: Tensor) -> tuple[UOp, ...]:
    """The nodes that stand for a leaf in graphs built so far: its present one and, if it was realised since, that.

    Args:
        tensor: a tensor that is a leaf.
    """
    return (tensor.uop,) if tensor._alias is None else (tensor.uop, tensor._alias)
