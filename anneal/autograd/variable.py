"""torch's older name for a tensor that gradients flow through."""

from __future__ import annotations

import warnings
from typing import Any

from anneal.errors import DTypeError
from anneal.tensor import Tensor

__all__ = ["Variable"]


class _IsTensor(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor)


class Variable(metaclass=_IsTensor):
    """A leaf that shows the values of a tensor, and is a tensor: `data.detach().requires_grad_(requires_grad)`.

    Raises DTypeError for what is no tensor, and for one of integers that is to require a gradient.

    Args:
        data: the tensor; None is one without elements.
        requires_grad: whether `backward` gives it a gradient.
        volatile: without effect, as in torch, and a warning if True: write `with no_grad():`.

    >>> Variable(Tensor([1.0]), requires_grad=True).requires_grad
    True
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile:
            warnings.warn("Variable: volatile has no effect any more; write with no_grad():", stacklevel=2)
        if data is None:
            data = Tensor([])
        if not isinstance(data, Tensor):
            raise DTypeError(f"Variable: the data is a tensor, not {type(data).__name__}: write tensor(data)")
        x = data.detach()
        return x.requires_grad_() if requires_grad else x
