"""Losses as modules, with torch's names and arguments; each calls the function of `anneal.nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import Any, ClassVar, NamedTuple

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._containers import ModuleList, Sequential
from anneal.nn._layers import Linear, PairwiseDistance
from anneal.nn._module import Module
from anneal.nn._rows import Row
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor


class _Loss(Row):
    reductions: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")

    def __post_init__(self) -> None:
        given = vars(self)["reduction"]  # each row has it at a place of its own
        if given not in self.reductions:
            names = ", ".join([f'"{r}"' for r in self.reductions])
            raise ShapeError(f"{type(self).__name__}: reduction is one of {names}, not {given!r}")


class _OfPair(_Loss):
    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._of(input, target)


class _OfThree(_Loss):
    @checked
    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return self._of(input1, input2, target)


class CrossEntropyLoss(_OfPair, function=F.cross_entropy):
    """`functional.cross_entropy` of logits (batch, classes, ...) and classes (batch, ...), integers.

    Args:
        weight: of each class, (classes,). ignore_index: the class that does not count. reduction: "mean", "sum" (both
            give shape ()) or "none". label_smoothing: the share of the target that goes to all classes alike.

    Raises ShapeError for an unknown reduction or shapes that do not fit.

    >>> round(CrossEntropyLoss()(Tensor([[2.0, 1.0, 0.1]]), Tensor([0])).item(), 4)
    0.417
    """

    weight: Tensor | None = None
    ignore_index: int | None = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0


class NLLLoss(_OfPair):
    """`functional.nll_loss` of log-probabilities and classes.

    Log-probabilities are (batch, classes, ...), classes (batch, ...), integers; arguments as for `CrossEntropyLoss`.

    >>> NLLLoss()(Tensor([[-0.5, -2.0]]), Tensor([0]))
    Tensor(0.5, dtype=float32)
    """

    weight: Tensor | None = None
    ignore_index: int | None = -100
    reduction: str = "mean"


class MSELoss(_OfPair):
    """The squared error.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> MSELoss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(2., dtype=float32)
    """

    reduction: str = "mean"


class L1Loss(_OfPair):
    """The absolute error.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> L1Loss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(1., dtype=float32)
    """

    reduction: str = "mean"


class HuberLoss(_OfPair):
    """Squared below `delta`, linear above: `functional.huber_loss`.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> HuberLoss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(0.75, dtype=float32)
    """

    reduction: str = "mean"
    delta: float = 1.0


class SmoothL1Loss(_OfPair):
    """Squared below `beta`, linear above, with slope 1: `functional.smooth_l1_loss`.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> SmoothL1Loss()(Tensor([1.0, 4.0]), Tensor([1.0, 2.0]))
    Tensor(0.75, dtype=float32)
    """

    reduction: str = "mean"
    beta: float = 1.0


class BCELoss(_OfPair, function=F.binary_cross_entropy):
    """`functional.binary_cross_entropy` of probabilities.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> BCELoss()(Tensor([0.5]), Tensor([1.0]))
    Tensor(0.6931, dtype=float32)
    """

    weight: Tensor | None = None
    reduction: str = "mean"


class BCEWithLogitsLoss(_OfPair, function=F.binary_cross_entropy_with_logits):
    """`functional.binary_cross_entropy_with_logits`, without overflow.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none". `pos_weight` weighs
    targets of 1.

    >>> BCEWithLogitsLoss()(Tensor([1000.0]), Tensor([1.0]))
    Tensor(0., dtype=float32)
    """

    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


class KLDivLoss(_OfPair, function=F.kl_div):
    """`functional.kl_div` of log-probabilities; reduction "batchmean" is the divergence.

    Targets are probabilities, or with `log_target` their logs.

    >>> KLDivLoss("batchmean")(Tensor([[0.5, 0.5]]).log(), Tensor([[0.5, 0.5]]))
    Tensor(0., dtype=float32)
    """

    reductions = ("mean", "sum", "none", "batchmean")

    reduction: str = "mean"
    log_target: bool = False


class SoftMarginLoss(_OfPair):
    """`log(1 + exp(-t*x))` for targets of 1 and -1.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> SoftMarginLoss()(Tensor([0.0]), Tensor([1.0]))
    Tensor(0.6931, dtype=float32)
    """

    reduction: str = "mean"


class HingeEmbeddingLoss(_OfPair):
    """`functional.hinge_embedding_loss` of distances and targets of 1 and -1.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".

    >>> HingeEmbeddingLoss()(Tensor([0.5, 0.5]), Tensor([1.0, -1.0]))
    Tensor(0.5, dtype=float32)
    """

    margin: float = 1.0
    reduction: str = "mean"


class MarginRankingLoss(_OfThree):
    """`functional.margin_ranking_loss`: one of two inputs should be larger.

    Inputs and targets (1: the first, -1: the second) are of one shape.

    >>> MarginRankingLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2., dtype=float32)
    """

    margin: float = 0.0
    reduction: str = "mean"


class CosineEmbeddingLoss(_OfThree):
    """`functional.cosine_embedding_loss` of pairs of rows and targets of 1 and -1.

    Inputs are (batch, features), targets (batch,).

    >>> CosineEmbeddingLoss()(Tensor([[1.0, 0.0]]), Tensor([[0.0, 1.0]]), Tensor([1]))
    Tensor(1., dtype=float32)
    """

    margin: float = 0.0
    reduction: str = "mean"


class TripletMarginLoss(_Loss):
    """`functional.triplet_margin_loss`: rows nearer to their positive than to their negative.

    All three are (batch, features); `p` is the norm of a distance, `swap` takes the nearer of two negatives' distances.

    >>> TripletMarginLoss()(Tensor([[0.0]]), Tensor([[0.0]]), Tensor([[3.0]]))
    Tensor(0., dtype=float32)
    """

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-06
    swap: bool = False
    reduction: str = "mean"

    @checked
    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return self._of(anchor, positive, negative)


class MultiMarginLoss(_OfPair):
    """`functional.multi_margin_loss` of scores and classes.

    Scores are (batch, classes), classes (batch,), integers; `weight` has a number for each class.

    >>> MultiMarginLoss()(Tensor([[2.0, 1.0]]), Tensor([0]))
    Tensor(0., dtype=float32)
    """

    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    reduction: str = "mean"


class MultiLabelSoftMarginLoss(_OfPair):
    """`functional.multilabel_soft_margin_loss`: one yes or no for each class.

    Scores and targets (1 or 0) are (batch, classes).

    >>> MultiLabelSoftMarginLoss()(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]]))
    Tensor(0.6931, dtype=float32)
    """

    weight: Tensor | None = None
    reduction: str = "mean"


class PoissonNLLLoss(_OfPair):
    """`functional.poisson_nll_loss` of rates or their logs and counts.

    x and target are of one shape; `reduction` is "mean", "sum" (both give shape ()) or "none".
    With `full` the loss includes its constant term.

    >>> PoissonNLLLoss()(Tensor([0.0]), Tensor([2.0]))
    Tensor(1., dtype=float32)
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-08
    reduction: str = "mean"


class GaussianNLLLoss(_Loss):
    """`functional.gaussian_nll_loss` of means, values and variances.

    All three are of one shape, or a variance for each row. With `full` the loss includes its constant term.

    >>> GaussianNLLLoss()(Tensor([0.0]), Tensor([2.0]), Tensor([1.0]))
    Tensor(2., dtype=float32)
    """

    _: KW_ONLY
    full: bool = False
    eps: float = 1e-06
    reduction: str = "mean"

    @checked
    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """The loss of `input`, the means, for `target`; `var` is of its shape, or has 1 at its end. Gives a tensor of
        shape () unless reduction is "none".
        """
        return self._of(input, target, var)


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

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False

    @checked
    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return self._of(log_probs, targets, input_lengths, target_lengths)


class MultiLabelMarginLoss(_OfPair):
    """`functional.multilabel_margin_loss` of scores and lists of classes that end with -1.

    >>> MultiLabelMarginLoss()(Tensor([[0.1, 0.2, 0.4, 0.8]]), Tensor([[3, 0, -1, 1]])).round(4)
    Tensor(0.85, dtype=float32)
    """

    reduction: str = "mean"


class TripletMarginWithDistanceLoss(_Loss):
    """`functional.triplet_margin_with_distance_loss` for a given distance.

    >>> TripletMarginWithDistanceLoss()(Tensor([[0.0]]), Tensor([[0.0]]), Tensor([[3.0]]))
    Tensor(0., dtype=float32)
    """

    _: KW_ONLY
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance_function is None:
            self.distance_function = PairwiseDistance()

    @checked
    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, **settings)


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
        self.reduction = reduction
        self.__post_init__()
        self.linear = Linear(in_features, num_classes, bias, device, dtype)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    @checked
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        settings = {name: getattr(self, name) for name in ("weight", "reduction", "ignore_index", "label_smoothing")}
        return F.linear_cross_entropy(input, self.linear.weight, target, linear_bias=self.linear.bias, **settings)


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
        for i, (a, b) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            narrow = int(in_features // div_value ** (i + 1))  # torch's, even if it is 0
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
