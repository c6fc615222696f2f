"""Exchange of tensors with Python and other libraries: numbers, arrays, copies, DLPack."""

from __future__ import annotations

import weakref
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from anneal.errors import DTypeError, GradientError, JitError, ShapeError
from anneal.names import Tensor
from anneal.ops import axis_of, grad_enabled, made, whole, zeros
from anneal.runtime import forbid_in_capture, forbid_in_jit, outdate_captures, storage_of, tensor_class
from anneal.uop import Op, UOp
from anneal.uop.sizes import most, product

if TYPE_CHECKING:
    import numpy.typing as npt

    from anneal.ops import Array


def data(x: Tensor) -> Tensor:
    """The same values without a gradient. Assigning to it, and in-place ops of it, change this tensor, as under
    `no_grad`.
    """
    return x.detach()


def set_data(x: Tensor, value: Any) -> None:
    """Make this tensor a view of another one, of any shape, dtype and device; `grad` stays."""
    if not isinstance(value, tensor_class()):
        raise DTypeError(f"data: a tensor's data is a tensor, not {type(value).__name__}: write Tensor(value)")
    if value._detached_from() is x:
        return  # x.data += y has changed the tensor already
    if x.requires_grad and not value.dtype.is_float:
        raise DTypeError(f"data: a tensor that requires a gradient is of floats, not {value.dtype.name}")
    other = value.detach()
    x._leave()
    if value.dtype is not x.dtype or value.shape != x.shape or value.device != x.device:
        forbid_in_capture("a tensor's data of another shape, dtype or device", "set it outside")
        outdate_captures("a tensor's data became of another shape, dtype or device")
        x._device = value.device
        x._become(UOp(Op.CONTIGUOUS, value.dtype, (other.uop,)))
    x.assign(other)
    if x.requires_grad and x.is_leaf:
        x.requires_grad_()  # a node of its own: equal ones are one
    if other._base is not None:
        x._part_of(value, other._base.step)


def has_twin(x: Tensor) -> bool:
    """True if another leaf shows the same memory: a tensor that became a parameter twice."""
    storage = storage_of(x.uop)
    if storage is None:
        return False
    other = None if storage.leaf is None else storage.leaf()
    if other is not None and other is not x and other._wants and other.late is None and other.uop is x.uop:
        return True
    storage.leaf = weakref.ref(x)
    return False


def retains_grad(x: Tensor) -> bool:
    """True if `backward` sets `.grad` of this tensor, which is no leaf, by `retain_grad`."""
    from anneal.transforms import retains_grad as retained

    return retained(x)


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


def array_wrap(x: Tensor, values: Array, context: Any = None, return_scalar: bool = False) -> Tensor:
    """The tensor that NumPy's elementwise functions give for a tensor: `np.sin(t)`. GradientError if a gradient would
    be lost.
    """
    if x.requires_grad and grad_enabled():
        name = "numpy" if context is None else f"np.{context[0].__name__}"
        raise GradientError(f"{name}: NumPy records no gradient: write anneal's function, or .detach() first")
    return made.tensor(values, x.device)


def sized(data: int, device: Any, dtype: Any, requires_grad: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The arguments of `Tensor(2, 3)`, whose sizes stand in the places of others, as those of a tensor of zeros."""
    shape = [n for n in (data, device, dtype, requires_grad, *sizes) if n.__class__ is int]
    kind, wants = (None if n.__class__ is int else n for n in (dtype, requires_grad))
    return zeros(*shape, dtype=kind), None, None, wants


def array_function(x: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's functions get the values, and give arrays: `np.sum(t)` is `np.sum(t.numpy())`."""
    return function(*_arrays(args), **_arrays(kwargs))


def _arrays(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _arrays(value) for name, value in given.items()}
    if type(given) in (list, tuple):
        return type(given)([_arrays(value) for value in given])
    return given.numpy() if hasattr(given, "uop") and hasattr(given, "numpy") else given


def dlpack(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """A copy of the values, on the cpu. Raises BufferError for another device, if copy is False, and for dtypes that
    NumPy has no DLPack of.
    """
    if dl_device is not None and tuple(dl_device) != dlpack_device(x):
        raise BufferError(f"__dlpack__: values go by way of the cpu, device (1, 0), not {tuple(dl_device)}")
    if copy is False:
        raise BufferError("__dlpack__: values are copied, and copy is False; leave copy out")
    return np.asarray(x.numpy(), order="C").__dlpack__()


def dlpack_device(x: Tensor) -> tuple[int, int]:
    return 1, 0  # the cpu


# -- the array API standard -------------------------------------------------------------------------------------------


class Elements(int):
    """The number of elements, which the array API reads as `x.size`; called as in torch, the shape or the size of one
    axis: `x.size()`, `x.size(0)`.
    """

    shape: tuple[Any, ...]

    @classmethod
    def of(cls, shape: tuple[Any, ...]) -> Elements:
        """The elements of a shape."""
        found = cls(most(product(shape)))
        found.shape = shape
        return found

    @overload
    def __call__(self, dim: None = None) -> tuple[Any, ...]: ...
    @overload
    def __call__(self, dim: int) -> int: ...
    def __call__(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.shape
        if not self.shape:
            raise ShapeError("size: a tensor of shape () has no axes")
        return self.shape[axis_of("size", whole("size", "dim", dim), len(self.shape))]


def array_namespace(x: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """`anneal.array_api`, imported by its name: that room is above this one. ValueError for an unknown version."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(
            f"__array_namespace__: version 2024.12 of the standard is here, and earlier ones, not {api_version!r}"
        )
    return import_module("anneal.array_api")


def to_device(x: Tensor, device: str, /, *, stream: Any = None) -> Tensor:
    """`x.to(device)`, by the array API's name; `stream` is ignored: each device has one queue.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).to_device("cpu").device
    'cpu'
    """
    return x.to(device=device)


# -- numbers ----------------------------------------------------------------------------------------------------------


def truth(x: Tensor) -> bool:
    if x.numel() != 1:
        raise ShapeError(
            f"bool: the truth of a tensor of shape {x.shape} is ambiguous; use .any() or .all() and then .item()"
        )
    try:
        return bool(x.numpy().item())
    except JitError:
        forbid_in_jit(
            "a branch on the value of a tensor (if, while, and, or, not)",
            "write an.where(condition, a, b), or decide outside and pass the choice as an argument",
        )
        raise


def to_float(x: Tensor) -> float:
    return float(x.item())


def to_int(x: Tensor) -> int:
    return int(x.item())


def to_complex(x: Tensor) -> complex:
    return complex(x.item())


def to_index(x: Tensor) -> int:
    if x.uop.dtype.is_float or product(x.shape) != 1:
        raise TypeError(f"only an integer tensor of one element is an index, not {x.dtype.name} of shape {x.shape}")
    return int(x.item())
