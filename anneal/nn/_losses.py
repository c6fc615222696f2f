"""Losses as modules, with torch's names and arguments; each calls the function of `anneal.tensor.functional`."""

from __future__ import annotations

from typing import ClassVar

from anneal.errors import ShapeError
from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
]


class _Loss(Module):
    reductions: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")

    @checked
    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in self.reductions:
            names = ", ".join([f'"{r}"' for r in self.reductions])
            raise ShapeError(f"{type(self).__name__}: reduction is one of {names}, not {reduction!r}")
        self.reduction = reduction


class _WeightedLoss(_Loss):
    @checked
    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = weight


class CrossEntropyLoss(_WeightedLoss):
    """`functional.cross_entropy` of logits (batch, classes, ...) and classes (batch, ...), integers.

    Args:
        weight: of each class, (classes,). ignore_index: the class that does not count. reduction: "mean", "sum" (both
            give shape ()) or "none". label_smoothing: the share of the target that goes to all classes alike.

    Raises ShapeError for an unknown reduction or shapes that do not fit.

    >>> round(CrossEntropyLoss()(Tensor([[2.0, 1.0, 0.1]]), Tensor([0])).item(), 4)
    0.417
    """

    @checked
    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(_WeightedLoss):
    """`functional.nll_loss` of log-probabilities and classes.

    Log-probabilities are (batch, classes, ...), classes (batch, ...), integers; arguments as for `CrossEntropyLoss`.

    >>> NLLLoss()(Tensor([[-0.5, -2.0]]), Tensor([0]))
    Tensor(0.5, dtype=float32)
    """

    @checked
    def __init__(self, weight: Tensor | None = None, ignore_index: int | None = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class MSELoss(_Loss):
    """The squared error.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> MSELoss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(2., dtype=float32)
    """

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """The absolute error.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> L1Loss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(1., dtype=float32)
    """

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class HuberLoss(_Loss):
    """Squared below `delta`, linear above: `functional.huber_loss`.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> HuberLoss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(0.75, dtype=float32)
    """

    @checked
    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class SmoothL1Loss(_Loss):
    """Squared below `beta`, linear above, with slope 1: `functional.smooth_l1_loss`.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> SmoothL1Loss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(0.75, dtype=float32)
    """

    @checked
    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class BCELoss(_WeightedLoss):
    """`functional.binary_cross_entropy` of probabilities.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> BCELoss()(Tensor([0.5]), Tensor([1.0]))
    Tensor(0.6931, dtype=float32)
    """

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """`functional.binary_cross_entropy_with_logits`, without overflow.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none". `pos_weight` weighs
    targets of 1.

    >>> BCEWithLogitsLoss()(Tensor([1000.0]), Tensor([1.0]))
    Tensor(0., dtype=float32)
    """

    @checked
    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(weight, reduction)
        self.pos_weight = pos_weight

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class KLDivLoss(_Loss):
    """`functional.kl_div` of log-probabilities; reduction "batchmean" is the divergence.

    Targets are probabilities, or with `log_target` their logs.

    >>> KLDivLoss("batchmean")(Tensor([[0.5, 0.5]]).log(), Tensor([[0.5, 0.5]]))
    Tensor(0., dtype=float32)
    """

    reductions = ("mean", "sum", "none", "batchmean")

    @checked
    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class SoftMarginLoss(_Loss):
    """`log(1 + exp(-t*x))` for targets of 1 and -1.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> SoftMarginLoss()(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931, dtype=float32)
    """

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class HingeEmbeddingLoss(_Loss):
    """`functional.hinge_embedding_loss` of distances and targets of 1 and -1.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> HingeEmbeddingLoss()(Tensor([0.5, 0.5]), Tensor([1.0, -1.0]))
    Tensor(0.5, dtype=float32)
    """

    @checked
    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class MarginRankingLoss(_Loss):
    """`functional.margin_ranking_loss`: one of two inputs should be larger.

    Inputs and targets (1: the first, -1: the second) are of one shape.

    >>> MarginRankingLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2., dtype=float32)
    """

    @checked
    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    @checked
    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """`functional.cosine_embedding_loss` of pairs of rows and targets of 1 and -1.

    Inputs are (batch, features), targets (batch,).

    >>> CosineEmbeddingLoss()(Tensor([[1.0, 0.0]]), Tensor([[0.0, 1.0]]), Tensor([1]))
    Tensor(1., dtype=float32)
    """

    @checked
    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    @checked
    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """`functional.triplet_margin_loss`: rows nearer to their positive than to their negative.

    All three are (batch, features); `p` is the norm of a distance, `swap` takes the nearer of two negatives' distances.

    >>> TripletMarginLoss()(Tensor([[0.0]]), Tensor([[0.0]]), Tensor([[3.0]]))
    Tensor(0., dtype=float32)
    """

    @checked
    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    @checked
    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """`functional.multi_margin_loss` of scores and classes.

    Scores are (batch, classes), classes (batch,), integers; `weight` has a number for each class.

    >>> MultiMarginLoss()(Tensor([[2.0, 1.0]]), Tensor([0]))
    Tensor(0., dtype=float32)
    """

    @checked
    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.p, self.margin = p, margin

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """`functional.multilabel_soft_margin_loss`: one yes or no for each class.

    Scores and targets (1 or 0) are (batch, classes).

    >>> MultiLabelSoftMarginLoss()(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]]))
    Tensor(0.6931, dtype=float32)
    """

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class PoissonNLLLoss(_Loss):
    """`functional.poisson_nll_loss` of rates or their logs and counts.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> PoissonNLLLoss()(Tensor([0.0]), Tensor([2.0]))
    Tensor(1., dtype=float32)
    """

    @checked
    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(_Loss):
    """`functional.gaussian_nll_loss` of means, values and variances.

    All three are of one shape, or a variance for each row.

    >>> GaussianNLLLoss()(Tensor([0.0]), Tensor([2.0]), Tensor([1.0]))
    Tensor(2., dtype=float32)
    """

    @checked
    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    @checked
    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)
