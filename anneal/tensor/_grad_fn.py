"""Names of the functions that made tensors, as torch's `grad_fn` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anneal.runtime import storage_of
from anneal.uop import Op

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["GradFn", "grad_fn"]

# Our functions -> torch's, where that is not their own name.
_NAMES = {
    "cross_entropy": "NllLoss", "divide": "Div", "truediv": "Div", "true_divide": "Div", "rtruediv": "Div",
    "linear": "Addmm", "matmul": "Mm", "rmatmul": "Mm", "multiply": "Mul", "rmul": "Mul", "radd": "Add", "rpow": "Pow",
    "subtract": "Sub", "reshape": "View", "view_as": "View", "flatten": "View", "getitem": "Select", "cast": "ToCopy",
    "float": "ToCopy", "conv1d": "Convolution", "conv2d": "Convolution", "concat": "Cat",
}  # fmt: skip


class GradFn:
    """The function that a tensor was computed by, for programs that ask whether there is one, and its name.

    The name follows torch's manner; it is the node's, and equal nodes have the name of the first.
    """

    __slots__ = ("_name",)
    next_functions: tuple[Any, ...] = ()

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """The name: "MulBackward0"."""
        return self._name

    def __repr__(self) -> str:
        return f"<{self._name}>"


def grad_fn(x: Tensor) -> GradFn | None:
    """The function that this tensor was computed by, None for a leaf; it has a name, and `next_functions` is empty."""
    from anneal.transforms import derivative_of

    if x.is_leaf or not x.requires_grad:
        return None
    u = x.uop
    storage = storage_of(u)
    if storage is not None and storage.origin is not None:
        u = storage.origin
    while u.op is Op.CONTIGUOUS and u.provenance[4] is None:
        u = u.src[0]
    known = derivative_of(u)
    if known is not None and known.hooks is None and not known.name.startswith("a backward hook"):
        return GradFn(f"{known.name.split('.')[-1]}Backward")
    code = u.provenance[4]
    name = u.op.name.lower() if code is None else code.co_name
    said = _NAMES.get(name.rstrip("_")) or "".join(word.capitalize() for word in name.split("_"))
    return GradFn(f"{said}Backward0")
