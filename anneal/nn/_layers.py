"""Layers with weights of their own, norms among them, with torch's names, arguments, parameter names and layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from anneal.errors import ShapeError
from anneal.nn import functional as F, init
from anneal.nn._module import Module, Resettable
from anneal.nn._rows import Row, Unary
from anneal.nn.parameter import Parameter
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor


class _Affine(Resettable):
    """A norm that may end with a weight and a bias."""

    def _scale(self, shape: tuple[int, ...], weight: bool, bias: bool) -> None:
        self.weight: Tensor | None = init.constant(shape, 1.0) if weight else None
        self.bias: Tensor | None = init.constant(shape, 0.0) if weight and bias else None


class Linear(Unary, Resettable, of="weight bias"):
    """`x @ weight.T + bias`: (..., in_features) to (..., out_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    @checked
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight: Tensor | None = None,
    ) -> None:
        """`weight` (out_features, in_features) is shared if given, and the bias zero then; torch's start otherwise."""
        self.in_features, self.out_features = in_features, out_features
        self.weight: Tensor = init.kaiming_uniform((out_features, in_features)) if weight is None else weight
        bound = 1 / math.sqrt(max(1, in_features)) if weight is None else 0.0
        self.bias: Tensor | None = init.uniform((out_features,), bound) if bias else None
        self._place(device, dtype)


class Identity(Module):
    """The module that returns x itself, to leave out a layer; its arguments are ignored.

    >>> Identity()(Tensor([1.0]))
    Tensor([1.], dtype=float32)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return x


class Embedding(Row, Resettable, of="weight padding_idx max_norm norm_type scale_grad_by_freq"):
    """Rows of a (num_embeddings, embedding_dim) table: integers of any shape to that shape plus (embedding_dim,).

    Args:
        weight: the table; None: a normal one of deviation 1, whose row `padding_idx` is zero.

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    @checked
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight: Tensor | None = None,
    ) -> None:
        """`weight` is shared if given; it starts normal with deviation 1 otherwise, the row `padding_idx` zero.

        That row has no gradient. The other arguments are those of `functional.embedding`. Raises ShapeError if there is
        no row of that number.
        """
        padding_idx = _row_of("Embedding", num_embeddings, padding_idx)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        weight = _weight if weight is None else weight
        if weight is None:
            weight = init.normal((num_embeddings, embedding_dim), zero_row=padding_idx)
        elif _weight is not None and not isinstance(_weight, Parameter):
            weight = Parameter(_weight)
        self.weight: Tensor = weight
        if _freeze:
            self.weight.requires_grad_(False)
        self._place(device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, **settings: Any
    ) -> Self:
        """An embedding whose table has the values `embeddings` (rows, width), frozen unless `freeze` is False; row
        `padding_idx` gets no gradient. `settings` are further ones of the class.

        >>> Embedding.from_pretrained(Tensor([[1.0, 2.0], [3.0, 4.0]]))(Tensor([1])).tolist()
        [[3.0, 4.0]]
        """
        rows, width = embeddings.shape
        return cls(rows, width, padding_idx, _weight=embeddings, _freeze=freeze, **settings)

    @checked
    def forward(self, index: Tensor) -> Tensor:
        return self._function(index, *self._taken(self))


def _row_of(name: str, rows: int, padding_idx: int | None) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ShapeError(f"{name}: padding_idx {padding_idx} is no row of {rows}")
    return padding_idx % rows


class EmbeddingBag(Resettable):
    """Sums, means or maxima of rows of a table: see `functional.embedding_bag`.

    Args:
        num_embeddings: the number of rows of the table.
        embedding_dim: the number of elements of a row.
        include_last_offset: whether the last offset marks the end.

    >>> EmbeddingBag(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 4)
    """

    @checked
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        padding_idx = _row_of("EmbeddingBag", num_embeddings, padding_idx)
        from anneal.nn._f_pools import check_bags

        check_bags("EmbeddingBag", mode)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.mode, self.include_last_offset = mode, include_last_offset
        shape = (num_embeddings, embedding_dim)
        self.weight: Tensor = init.normal(shape, zero_row=padding_idx) if _weight is None else Parameter(_weight)
        self._place(device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **settings: Any) -> Self:
        """Bags of a table with the values `embeddings` (rows, width), frozen unless `freeze` is False; `settings` are
        further ones of the class.
        """
        rows, width = embeddings.shape
        made = cls(rows, width, _weight=embeddings, **settings)
        made.weight.requires_grad_(not freeze)
        return made

    @checked
    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        held = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, False
        ends = self.include_last_offset, self.padding_idx
        return F.embedding_bag(input, self.weight, offsets, *held, per_sample_weights, *ends)


class Bilinear(Row, Resettable, of="weight bias"):
    """A bilinear layer: `a @ weight[o] @ b` for each output o, plus a bias: (..., in1), (..., in2) to (..., out).

    Args:
        in1_features: the number of features of the first input.
        in2_features: the number of features of the second input.

    >>> Bilinear(3, 4, 2)(Tensor.ones(5, 3), Tensor.ones(5, 4)).shape
    (5, 2)
    """

    @checked
    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1 / math.sqrt(max(1, in1_features))
        self.weight: Tensor = init.uniform((out_features, in1_features, in2_features), bound)
        self.bias: Tensor | None = init.uniform((out_features,), bound) if bias else None
        self._place(device, dtype)

    @checked
    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return self._function(input1, input2, *self._taken(self))


class CosineSimilarity(Row):
    """The cosine of the angle between vectors along an axis.

    >>> CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[1.0, 1.0]])).round(4)
    Tensor([0.7071], dtype=float32)
    """

    dim: int = 1
    eps: float = 1e-8

    @checked
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self._of(x1, x2)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis.

    >>> PairwiseDistance()(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0]])).round(3)
    Tensor([5.], dtype=float32)
    """

    @checked
    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    @checked
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class LayerNorm(Unary, _Affine, of="normalized_shape weight bias eps"):
    """Layer normalisation over the last axes, with weight and (by default) bias: (x - mean) / standard deviation.

    Args:
        normalized_shape: the sizes of those axes, or of the last one. eps: added to the variance.
        elementwise_affine: whether there are a weight and a bias of that shape, 1 and 0 at first.

    Raises ShapeError when called with an x of other last axes.

    >>> LayerNorm(2)(Tensor([[1.0, 3.0]])).round(3)
    Tensor([[-1.,  1.]], dtype=float32, requires_grad=True)
    """

    @checked
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self._scale(shape, elementwise_affine, bias)
        self._place(device, dtype)


class RMSNorm(Unary, Resettable, of="normalized_shape weight eps"):
    """Root-mean-square normalisation over the last axes, with a weight: x over the root of its mean square.

    Args:
        normalized_shape: the sizes of those axes, or of the last one. eps: added to the mean square; None is the
            dtype's smallest step. elementwise_affine: whether there is a weight of that shape, 1 at first.

    Raises ShapeError when called with an x of other last axes.

    >>> RMSNorm(2, elementwise_affine=False)(Tensor([[3.0, 3.0]])).round(3)
    Tensor([[1., 1.]], dtype=float32)
    """

    @checked
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self.weight: Tensor | None = init.constant(shape, 1.0) if elementwise_affine else None
        self._place(device, dtype)


class GroupNorm(Row, _Affine, of="num_groups weight bias eps"):
    """Normalisation over each of `num_groups` groups of channels (axis 1) and all axes after it.

    `affine` gives each channel a weight and, but for `bias=False`, a bias, 1 and 0 at first. Raises ShapeError if the
    groups do not divide the channels, or for an x of other channels.

    >>> GroupNorm(2, 4)(Tensor.ones(1, 4, 3, 3)).shape
    (1, 4, 3, 3)
    """

    @checked
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_groups} groups do not divide {num_channels} channels")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._scale((num_channels,), affine, bias)
        self._place(device, dtype)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(f"GroupNorm: x has shape (batch, {self.num_channels}, ...), not {x.shape}")
        return self._function(x, *self._taken(self))


class _ChannelNorm(_Affine):
    """A norm of each channel: a weight and a bias if it is affine, running statistics if it tracks them."""

    @checked
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        self.momentum, self.num_features, self.eps = momentum, num_features, eps
        self.affine, self.track_running_stats = affine, track_running_stats
        shape = (num_features,)
        self._scale(shape, affine, bias)
        self.running_mean = Tensor(np.zeros(shape, np.float32)) if track_running_stats else None
        self.running_var = Tensor(np.ones(shape, np.float32)) if track_running_stats else None
        self.num_batches_tracked = Tensor(0) if track_running_stats else None
        self._place(device, dtype)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        # states of torch's first versions do not count batches
        if self.num_batches_tracked is not None and local_metadata.get("version", 1) < 2:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _seen(self) -> float | Tensor:
        """Count a batch, if batches are counted, and return its weight in the statistics: without a momentum they are
        the mean of all batches so far.
        """
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        if self.momentum is not None or self.num_batches_tracked is None:
            return self.momentum or 0.0
        return 1.0 / self.num_batches_tracked.float()

    def reset_running_stats(self) -> None:
        """Reset the running statistics: means of 0, variances of 1, no batches."""
        for t, start in ((self.running_mean, 0.0), (self.running_var, 1.0), (self.num_batches_tracked, 0)):
            if t is not None:
                t.assign(start)


class _BatchNorm(_ChannelNorm):
    """Batch normalisation per channel (axis 1), with running statistics for evaluation.

    Args:
        num_features: the channels. eps: added to the variance. affine: whether there are a weight and a `bias`.
        momentum: how far they move towards each batch; None for the mean of all batches.
        track_running_stats: whether there are any; without them evaluation takes the batch's.
    """

    axes: ClassVar[tuple[str, ...]]  # the axes that may follow batch and channels in the shape of x

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim - 2 not in [a.count(",") for a in self.axes] or x.shape[1] != self.num_features:
            shapes = " or ".join([f"(batch, {self.num_features}{a})" for a in self.axes])
            raise ShapeError(f"{type(self).__name__}: x has shape {shapes}, not {x.shape}")
        kept = self.track_running_stats or not self.training
        mean, var = (self.running_mean, self.running_var) if kept else (None, None)
        batch = self.training or mean is None
        return F.batch_norm(x, mean, var, self.weight, self.bias, batch, self._seen() if batch else 0.0, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation over (batch, channels) or (batch, channels, length), with running statistics for evaluation.

    Arguments as for `BatchNorm2d`.

    >>> BatchNorm1d(3)(Tensor.ones(4, 3)).shape
    (4, 3)
    """

    axes = ("", ", length")


class BatchNorm2d(_BatchNorm):
    """Batch normalisation over (batch, channels, h, w), with running statistics for evaluation.

    Args:
        num_features: the channels. eps: added to the variance. affine: whether there are a weight and a `bias`.
        momentum: how far running statistics move towards each batch; None for the mean of all batches.
        track_running_stats: whether there are any; without them evaluation takes the batch's.

    Raises ShapeError when called with an x of another number of axes or channels.

    >>> norm = BatchNorm2d(3)
    >>> norm(Tensor.ones(2, 3, 4, 4)).shape, norm.num_batches_tracked.item()
    ((2, 3, 4, 4), 1)
    """

    axes = (", h, w",)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation over (batch, channels, d, h, w), with running statistics for evaluation.

    Arguments as for `BatchNorm2d`.

    >>> BatchNorm3d(3)(Tensor.ones(2, 3, 2, 4, 4)).shape
    (2, 3, 2, 4, 4)
    """

    axes = (", d, h, w",)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over (batch, channels, ...) whose statistics, in training, are of all processes' batches.

    Arguments as for `BatchNorm2d`. Batches are of one size. With one process it is `BatchNorm2d` for any shape.

    >>> SyncBatchNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    axes = ("", ", length", ", h, w", ", d, h, w")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module, in which each batch norm (or the module itself) is replaced by a `SyncBatchNorm` with the same
        parameters.

        Args:
            process_group: accepted as torch's: statistics are of all processes.

        >>> from anneal import nn
        >>> type(SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))[0]).__name__
        'SyncBatchNorm'
        """
        for m in module.modules():
            if type(m) in (BatchNorm1d, BatchNorm2d, BatchNorm3d):
                m.__class__ = cls
        return module

    def forward(self, x: Tensor) -> Tensor:
        from anneal.distributed import all_reduce, world  # layers of one process do not need it

        group = world()
        if group.size == 1 or not self.training:
            return super().forward(x)
        over, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
        mean = all_reduce(x.mean(over), group, "mean")
        apart = x - mean.reshape(shape)
        var = all_reduce((apart * apart).mean(over), group, "mean")
        count, share = x.numel() // x.shape[1] * group.size, self._seen()
        for kept, now in ((self.running_mean, mean), (self.running_var, var * (count / max(1, count - 1)))):
            if kept is not None and self.track_running_stats:
                kept.assign(kept * (1 - share) + now.detach() * share)
        return F.batch_norm(x, mean, var, self.weight, self.bias, False, 0.0, self.eps)


class _InstanceNorm(_ChannelNorm):
    axes: ClassVar[int]
    momentum: float

    @checked
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[-self.axes - 1] if x.ndim > self.axes else None
        if x.ndim not in (self.axes + 1, self.axes + 2) or channels != self.num_features:
            name = type(self).__name__
            raise ShapeError(
                f"{name}: x is (batch, {self.num_features}, ...) with {self.axes} axes more, not {x.shape}"
            )
        whole = x if x.ndim == self.axes + 2 else x.unsqueeze(0)
        mean, var, given = self.running_mean, self.running_var, self.training or not self.track_running_stats
        y = F.instance_norm(whole, mean, var, self.weight, self.bias, given, self.momentum, self.eps)
        return y if whole is x else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each channel of each example over (batch, channels, length) or (channels, length).

    Arguments as for `BatchNorm2d`; there are neither weights nor running statistics by default.

    >>> InstanceNorm1d(1)(Tensor([[[1.0, 3.0]]])).round(3)
    Tensor([[[-1.,  1.]]], dtype=float32)
    """

    axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each example over (batch, channels, h, w); arguments as for `InstanceNorm1d`.

    >>> InstanceNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    axes = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each channel of each example over (batch, channels, d, h, w); as `InstanceNorm1d`.

    >>> InstanceNorm3d(3)(Tensor.ones(2, 3, 2, 4, 4)).shape
    (2, 3, 2, 4, 4)
    """

    axes = 3


class LocalResponseNorm(Unary):
    """Local response normalisation: x / (k + alpha * m) ** beta, where m is the mean square of `size` channels about
    x's own.

    >>> LocalResponseNorm(2)(Tensor.ones(1, 3, 4)).shape
    (1, 3, 4)
    """

    size: int
    alpha: float = 0.0001
    beta: float = 0.75
    k: float = 1.0


class CrossMapLRN2d(LocalResponseNorm):
    """`LocalResponseNorm` under its older name.

    >>> CrossMapLRN2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 4, 4)
    """
