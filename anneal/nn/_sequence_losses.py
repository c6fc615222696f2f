"""Losses with settings beyond those of a function: over sequences, with a given distance or own weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._containers import ModuleList, Sequential
from anneal.nn._layers import Linear
from anneal.nn._losses import NLLLoss, _Loss
from anneal.nn._module import Module
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor

__all__ = [
    "ASMoutput",
    "AdaptiveLogSoftmaxWithLoss",
    "CTCLoss",
    "LinearCrossEntropyLoss",
    "MultiLabelMarginLoss",
    "NLLLoss2d",
    "TripletMarginWithDistanceLoss",
]


class NLLLoss2d(NLLLoss):
    """`NLLLoss` under its older name for images.

    >>> NLLLoss2d()(Tensor([[-0.5, -2.0]]), Tensor([0]))
    Tensor(0.5, dtype=float32)
    """


class CTCLoss(_Loss):
    """`functional.ctc_loss` of log-probabilities (time, batch, classes) and sequences of classes.

    >>> even = Tensor.full((4, 1, 3), 1 / 3).log()
    >>> round(CTCLoss(reduction="sum")(even, Tensor([[1, 2]]), [4], [2]).item(), 4)
    1.6864
    """

    @checked
    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    @checked
    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class MultiLabelMarginLoss(_Loss):
    """`functional.multilabel_margin_loss` of scores and lists of classes that end with -1.

    >>> MultiLabelMarginLoss()(Tensor([[0.1, 0.2, 0.4, 0.8]]), Tensor([[3, 0, -1, 1]])).round(4)
    Tensor(0.85, dtype=float32)
    """

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """`functional.triplet_margin_with_distance_loss` for a given distance.

    >>> TripletMarginWithDistanceLoss()(Tensor([[0.0]]), Tensor([[0.0]]), Tensor([[3.0]]))
    Tensor(0., dtype=float32)
    """

    @checked
    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    @checked
    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class LinearCrossEntropyLoss(_Loss):
    """Cross entropy of `linear(x)`: rows (batch, in_features) and classes (batch,).

    >>> LinearCrossEntropyLoss(4, 3)(Tensor.ones(2, 4), Tensor([0, 2])).shape
    ()
    """

    @checked
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.linear = Linear(in_features, num_classes, bias, device, dtype)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.linear_cross_entropy(
            input,
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )


class ASMoutput(NamedTuple):
    """The result of `AdaptiveLogSoftmaxWithLoss`: `output` (batch,), the log-probability of each example's class, and
    `loss`, shape (), their negative mean.

    >>> ASMoutput(Tensor([-1.0]), Tensor(1.0)).loss.item()
    1.0
    """

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes in clusters (Grave and others, 2017): frequent classes first, rare ones narrower.

    Args:
        in_features: the width of x (batch, in_features). n_classes: how many classes.
        cutoffs: where clusters begin, growing; the first is the size of the head.
        div_value: how much narrower each cluster is than the one before. head_bias: whether the head has a bias.

    Here each cluster is computed for all examples. Raises ShapeError for cutoffs that do not grow within the classes.

    >>> loss = AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])
    >>> out = loss(Tensor.ones(3, 8), Tensor([0, 7, 19]))
    >>> out.output.shape, out.loss.shape, loss.log_prob(Tensor.ones(3, 8)).shape
    ((3,), (), (3, 20))
    """

    @checked
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        given = list(cutoffs)
        if not given or given != sorted(set(given)) or given[0] < 1 or given[-1] > n_classes - 1:
            raise ShapeError(f"AdaptiveLogSoftmaxWithLoss: cutoffs grow within 1 to {n_classes - 1}, not {given}")
        if not 0 < div_value < math.inf:
            raise ShapeError(f"AdaptiveLogSoftmaxWithLoss: div_value is above 0, not {div_value}")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*given, n_classes]
        self.head = Linear(in_features, given[0] + len(given), head_bias)
        self.tail: ModuleList[Sequential] = ModuleList()
        for i, (a, b) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            narrow = max(1, int(in_features // div_value ** (i + 1)))
            self.tail.append(Sequential(Linear(in_features, narrow, False), Linear(narrow, b - a, False)))
        self._place(device, dtype)

    def reset_parameters(self) -> None:
        """Initialise the parameters of all clusters again."""
        for m in self.modules():
            if isinstance(m, Linear):
                m.reset_parameters()

    @checked
    def log_prob(self, x: Tensor) -> Tensor:
        """The log-probabilities of all classes, (batch, n_classes)."""
        head = self.head(x).log_softmax(-1)
        first = self.cutoffs[0]
        parts = [head[:, :first]]
        for i, cluster in enumerate(self.tail):
            parts.append(cluster(x).log_softmax(-1) + head[:, first + i : first + i + 1])
        return Tensor.cat(parts, dim=1)

    @checked
    def predict(self, x: Tensor) -> Tensor:
        """The most probable class of each example."""
        return self.log_prob(x).argmax(1)

    @checked
    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        single = input.ndim == 1
        x, t = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
        output = self.log_prob(x).gather(1, t.unsqueeze(1)).squeeze(1)
        return ASMoutput(output.squeeze(0) if single else output, -output.mean())
