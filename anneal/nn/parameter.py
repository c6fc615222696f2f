"""Parameter and buffer: tensors whose class decides if they train."""

from __future__ import annotations

from typing import Any

from anneal.ops import DTypeLike
from anneal.tensor import Tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that is a module's parameter: an attribute that trains, and a leaf of the gradient.

    What is computed with it is a plain tensor. It takes attributes of any name, as in torch. A module also counts a
    plain tensor with `requires_grad=True` as a parameter; layers have Parameters. One with `requires_grad=False` is
    saved and not trained, as a buffer is.

    Args:
        data: a tensor, an array, a nested list or a number, of floats. A tensor of this device and dtype shares its
            values with the parameter, as with a view: who changes one in place changes both. Its gradient ends here.
            `Tensor(n)` of a whole number stands for n elements, as in torch.
        requires_grad: whether it trains.
        device, dtype: as for `Tensor`; those of `data` if it is a tensor.

    Raises DTypeError for integers that are to train, ShapeError for a ragged list.

    >>> scale = Parameter(Tensor.ones(2))
    >>> scale, scale * 2
    (Parameter([1., 1.], dtype=float32, requires_grad=True), Tensor([2., 2.], dtype=float32, requires_grad=True))
    """

    __slots__ = ("__dict__",)
    _made = Tensor

    def __init__(
        self,
        data: Any,
        requires_grad: bool = True,
        *,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if requires_grad and isinstance(data, Tensor) and not data.shape and data.dtype.is_int and data.uop.is_const:
            # torch's Tensor(n) has n elements, where ours is the number n, which cannot train
            data = Tensor.zeros(data.uop.arg, device=data.device)
        super().__init__(data, device, dtype, requires_grad)
        _share(self, data)

    def __copy__(self) -> Parameter:
        copy = Parameter(self, self.requires_grad)
        vars(copy).update(vars(self))
        return copy

    def __deepcopy__(self, memo: dict[Any, Any]) -> Parameter:
        copy = memo[id(self)] = Parameter(self.numpy(), self.requires_grad, device=self.device)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.numpy(), self.device, self.requires_grad), vars(self) or None


class Buffer(Tensor):
    """A tensor that is part of a module and does not train, as any plain tensor that is set as an attribute is.

    Args:
        data: a tensor, an array, a nested list or a number. A tensor shares its values with the buffer.
        persistent: whether it stands in the module's `state_dict`.

    Raises as `Tensor` does.

    >>> from anneal import nn
    >>> net = nn.Module()
    >>> net.mask, net.scale = Buffer([1.0], persistent=False), Buffer([2.0])
    >>> list(net.state_dict())
    ['scale']
    """

    __slots__ = ("persistent",)
    _made = Tensor

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        super().__init__(data)
        _share(self, data)
        self.persistent = persistent

    def __copy__(self) -> Buffer:
        return Buffer(self, persistent=self.persistent)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Buffer:
        copy = memo[id(self)] = Buffer(self.detach().clone(), persistent=self.persistent)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _buffer, (self.numpy(), self.device, self.persistent)


def _share(part: Tensor, data: Any) -> None:
    """Make a tensor that was made of `data` a view of that, if it is a tensor of its device and dtype."""
    if isinstance(data, Tensor) and data is not part and (data.device, data.dtype) == (part.device, part.dtype):
        shared = data.detach()._base
        if shared is not None:
            part._part_of(data, shared.step)


def _buffer(array: Any, device: str, persistent: bool) -> Buffer:
    return Buffer(Tensor(array, device), persistent=persistent)


def _rebuilt(array: Any, device: str, requires_grad: bool) -> Parameter:
    return Parameter(array, requires_grad, device=device)
