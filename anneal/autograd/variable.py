"""torch's older names: for a tensor that gradients flow through, and of gradient functions."""

from __future__ import annotations

import warnings
from typing import Any

from anneal.errors import DTypeError
from anneal.tensor import Tensor

__all__ = ["Variable", "detect_anomaly", "set_detect_anomaly"]


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


class set_detect_anomaly:
    """torch's search for the first nan of a backward pass, as a call or a block; here it only warns.

    Args:
        mode: whether it is wanted. check_nan: ignored.

    >>> with set_detect_anomaly(False):
    ...     total = 2.0
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if mode:
            warnings.warn(
                "detect_anomaly: has no effect; `anneal check script.py` names the op of the first nan",
                stacklevel=2,
            )

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, *error: object) -> None:
        """Does nothing."""


class detect_anomaly(set_detect_anomaly):
    """`set_detect_anomaly(True)` as a block.

    Args:
        check_nan: ignored.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
