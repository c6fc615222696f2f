"""A handle: a tensor as the runtime sees it."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy.typing as npt

from anneal.uop import UOp

__all__ = ["INSIDE", "Handle"]

# Stands for a gradient that a jit function took: no replay would follow it.
INSIDE: Final[Any] = object()


class Handle:
    """A name of a node that stays while the node changes: a lazy one at first, a BUFFER once it is computed.

    `Tensor` is the one class of handles. The runtime computes what handles name, and makes new ones for results.
    """

    __slots__ = ("__weakref__", "_grad", "device", "requires_grad", "uop")

    uop: UOp
    device: str
    requires_grad: bool
    _grad: Any  # a handle, None, or INSIDE

    @classmethod
    def _from_uop(cls, u: UOp, device: str) -> Self:
        """A handle of `u` on `device` that wants no gradient."""
        raise NotImplementedError

    def _settle(self, view: UOp) -> None:
        """The value is computed: name `view`, a BUFFER in this shape."""
        raise NotImplementedError

    def numpy(self) -> npt.NDArray[Any]:
        """The values as a new array."""
        raise NotImplementedError
