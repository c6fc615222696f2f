"""The class `Tensor`: the top of the layers described in `_base.py`."""

from __future__ import annotations

from typing import Any, Self

from anneal.ops import no_grad
from anneal.tensor import functional
from anneal.tensor._creation import Creation
from anneal.tensor._repr import text
from anneal.uop import dtypes

__all__ = ["Tensor"]


class Tensor(Creation):
    """An array of numbers that are computed when somebody looks at them.

    `Tensor(data, device=None, dtype=None, requires_grad=None)`: data is a number, a nested list, an array or a tensor.
    Python floats become float32, ints int32, bools bool; an array keeps its dtype. Operations build a graph; printing,
    `.numpy()`, `.item()`, `.tolist()` and `.realize()` compute.

    Raises ShapeError for a ragged list, DTypeError for data or a dtype that cannot be, DeviceError for an unknown or
    missing device.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x).sum(axis=0)
    Tensor([22., 32.], dtype=float32)
    """

    __slots__ = ()

    no_grad = no_grad

    # The layers and losses that take the tensor first, as methods.
    avg_pool1d = functional.avg_pool1d
    avg_pool2d = functional.avg_pool2d
    avg_pool3d = functional.avg_pool3d
    batch_norm = functional.batch_norm
    binary_cross_entropy = functional.binary_cross_entropy
    binary_cross_entropy_with_logits = functional.binary_cross_entropy_with_logits
    conv1d = functional.conv1d
    conv2d = functional.conv2d
    conv3d = functional.conv3d
    conv_transpose1d = functional.conv_transpose1d
    conv_transpose2d = functional.conv_transpose2d
    conv_transpose3d = functional.conv_transpose3d
    cross_entropy = functional.cross_entropy
    dropout = functional.dropout
    group_norm = functional.group_norm
    huber_loss = functional.huber_loss
    interpolate = functional.interpolate
    kl_div = functional.kl_div
    l1_loss = functional.l1_loss
    layer_norm = functional.layer_norm
    linear = functional.linear
    max_pool1d = functional.max_pool1d
    max_pool2d = functional.max_pool2d
    max_pool3d = functional.max_pool3d
    mse_loss = functional.mse_loss
    nll_loss = functional.nll_loss
    pixel_shuffle = functional.pixel_shuffle
    pixel_unshuffle = functional.pixel_unshuffle
    rms_norm = functional.rms_norm
    scaled_dot_product_attention = functional.scaled_dot_product_attention
    smooth_l1_loss = functional.smooth_l1_loss

    def backward(self, gradient: Tensor | None = None, retain_graph: bool = False) -> None:
        """Add the gradient of this tensor (of one element, or weighted by `gradient`) to `.grad` of every leaf.

        Raises GradientError if nothing here wants a gradient, if it was taken before, or if there are several
        elements and no `gradient`.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> (w * w).sum().backward()
        >>> w.grad
        Tensor([2., 4.], dtype=float32)
        """
        from anneal.transforms import backward

        backward(self, gradient, retain_graph)

    def zero_grad(self) -> None:
        """Forget `.grad`."""
        self.grad = None

    def __repr__(self) -> str:
        return text(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        copy = Tensor(self.numpy(), device=self.device, requires_grad=self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.numpy(), self.device, self.requires_grad)

    # The short casts stand here and last, because they hide Python's own names in the body of a class.

    def half(self) -> Self:
        """`.cast("float16")`."""
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """`.cast("bfloat16")`."""
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """`.cast("float64")`."""
        return self.cast(dtypes.float64)

    def long(self) -> Self:
        """`.cast("int64")`."""
        return self.cast(dtypes.int64)

    def float(self) -> Self:
        """`.cast("float32")`."""
        return self.cast(dtypes.float32)

    def int(self) -> Self:
        """`.cast("int32")`."""
        return self.cast(dtypes.int32)

    def bool(self) -> Self:
        """`.cast("bool")`: whether each element differs from 0."""
        return self.cast(dtypes.bool_)


def _rebuild(array: Any, device: str, requires_grad: bool) -> Tensor:
    return Tensor(array, device=device, requires_grad=requires_grad)
