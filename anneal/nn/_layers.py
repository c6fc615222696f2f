"""Layers, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._module import Module
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = [
    "GELU",
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "LayerNorm",
    "Linear",
    "MaxPool2d",
    "ModuleList",
    "RMSNorm",
    "ReLU",
    "Sequential",
]

Pair = int | Sequence[int]


class Linear(Module):
    """`x @ weight.T + bias`: (..., in_features) to (..., out_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, weight: Tensor | None = None) -> None:
        """`weight` (out_features, in_features) is shared if given, and the bias zero then; torch's start otherwise."""
        self.in_features, self.out_features = in_features, out_features
        self.weight = init.kaiming_uniform((out_features, in_features)) if weight is None else weight
        bound = 1 / math.sqrt(max(1, in_features)) if weight is None else 0.0
        self.bias = init.uniform((out_features,), bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a (num_embeddings, embedding_dim) table: integers of any shape to that shape plus (embedding_dim,).

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, weight: Tensor | None = None
    ) -> None:
        """`weight` is shared if given; it starts normal with deviation 1 otherwise."""
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = init.normal((num_embeddings, embedding_dim)) if weight is None else weight

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Conv2d(Module):
    """2-D convolution: (batch, in_channels, h, w) to (batch, out_channels, oh, ow); see `functional.conv2d`.

    >>> Conv2d(3, 8, 3, padding=1)(Tensor.ones(1, 3, 5, 5)).shape
    (1, 8, 5, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(f"Conv2d: {groups} groups do not divide {in_channels} and {out_channels} channels")
        kernel = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = (out_channels, in_channels // groups, *kernel)
        self.weight = init.kaiming_uniform(shape)
        self.bias = init.uniform((out_channels,), 1 / math.sqrt(init.fan(shape)[0])) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class MaxPool2d(Module):
    """The largest value of each window; see `functional.max_pool2d`."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"{self.kernel_size}"


class AvgPool2d(Module):
    """The mean of each window; see `functional.avg_pool2d`."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"{self.kernel_size}"


class LayerNorm(Module):
    """Layer normalisation over the last axes, with weight and (by default) bias."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = init.constant(shape, 1.0) if elementwise_affine else None
        self.bias = init.constant(shape, 0.0) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """Root-mean-square normalisation over the last axes, with a weight."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = init.constant(shape, 1.0) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class BatchNorm2d(Module):
    """Batch normalisation over (batch, channels, h, w), with running statistics for evaluation."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = init.constant((num_features,), 1.0) if affine else None
        self.bias = init.constant((num_features,), 0.0) if affine else None
        self.running_mean = Tensor(np.zeros(num_features, np.float32)) if track_running_stats else None
        self.running_var = Tensor(np.ones(num_features, np.float32)) if track_running_stats else None
        self.num_batches_tracked = Tensor(0) if track_running_stats else None

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.num_features:
            raise ShapeError(f"BatchNorm2d: x has shape (batch, {self.num_features}, h, w), not {x.shape}")
        mean, var = self.running_mean, self.running_var
        batch = self.training or mean is None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        return F.batch_norm(x, mean, var, self.weight, self.bias, batch, self.momentum, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class Dropout(Module):
    """Zeros each element with probability `p` in training, and scales the others to keep the mean."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ShapeError(f"Dropout: p is a probability between 0 and 1, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class GELU(Module):
    """x times the normal distribution function of x; approximate is "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return x.gelu(self.approximate)


class Flatten(Module):
    """All axes from `start_dim` on become one."""

    def __init__(self, start_dim: int = 1) -> None:
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim)


class ModuleList(Module):
    """Modules in a row, named "0", "1", ..."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self._count = 0
        for m in modules:
            self.append(m)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        setattr(self, str(self._count), module)
        self._count += 1
        return self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Module]:
        return iter([getattr(self, str(i)) for i in range(self._count)])

    def __getitem__(self, i: int) -> Module:
        return list(self)[i]


class Sequential(ModuleList):
    """Modules applied one after the other; each may also be a function of a tensor.

    >>> Sequential(Linear(2, 3), Tensor.relu, Linear(3, 1))(Tensor.ones(5, 2)).shape
    (5, 1)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for m in self:
            x = m(x)
        return x
