"""What other parts of Python and other libraries ask of a tensor: numbers, arrays, copies, DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import ShapeError
from anneal.ops import made

if TYPE_CHECKING:
    import numpy.typing as npt

    from anneal.ops import Array
    from anneal.tensor._tensor import Tensor


def data(x: Tensor) -> Tensor:
    """The same values, through which no gradient flows. What is assigned to it, and in-place ops of it, change this
    tensor, as under `no_grad`.
    """
    return x.detach()


def set_data(x: Tensor, value: Any) -> None:
    x.assign(value.detach() if hasattr(value, "uop") else value)


def deepcopy(x: Tensor, memo: dict[Any, Any]) -> Tensor:
    copy = memo[id(x)] = _rebuild(x.numpy(), x.device, x.requires_grad)
    return copy


def reduce(x: Tensor) -> tuple[Any, ...]:
    return _rebuild, (x.numpy(), x.device, x.requires_grad)


def _rebuild(values: Any, device: str, requires_grad: bool) -> Tensor:
    x = made.tensor(values, device)
    return x.requires_grad_() if requires_grad else x


def array(x: Tensor, dtype: npt.DTypeLike | None = None, copy: Any = None) -> Array:
    values = x.numpy()
    return values if dtype is None else values.astype(dtype)


def array_function(x: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's functions get the values, and give arrays: `np.sum(t)` is `np.sum(t.numpy())`."""
    return function(*_arrays(args), **_arrays(kwargs))


def _arrays(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _arrays(value) for name, value in given.items()}
    if type(given) in (list, tuple):
        return type(given)([_arrays(value) for value in given])
    return given.numpy() if hasattr(given, "uop") and hasattr(given, "numpy") else given


def dlpack(x: Tensor, **options: Any) -> Any:
    """A copy of the values, on the cpu."""
    return np.ascontiguousarray(x.numpy()).__dlpack__()


def dlpack_device(x: Tensor) -> tuple[int, int]:
    return 1, 0  # the cpu


def truth(x: Tensor) -> bool:
    if x.numel() != 1:
        raise ShapeError(
            f"bool: the truth of a tensor of shape {x.shape} is ambiguous; use .any() or .all() and then .item()"
        )
    return bool(x.numpy().item())


def to_float(x: Tensor) -> float:
    return float(x.item())


def to_int(x: Tensor) -> int:
    return int(x.item())


def to_index(x: Tensor) -> int:
    if x.uop.dtype.is_float or x.uop.shape:
        raise TypeError(f"only an integer tensor of shape () is an index, not {x.dtype.name} of shape {x.shape}")
    return int(x.item())
