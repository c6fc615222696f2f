"""Losses of classes: from log-probabilities, or from scores."""

from __future__ import annotations

from typing import Any

from anneal.onnx.execute import Call
from anneal.onnx.registry import op
from anneal.tensor import Tensor, dtypes

__all__: list[str] = []


def _negative_log_likelihood(
    node: Call, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str
) -> Tensor:
    """Minus the log-probability (axis 1) of each target, weighted by class; a mean is over the weights."""
    if reduction not in ("none", "sum", "mean"):
        raise node.fail(f"reduction is none, sum or mean, not {reduction!r}")
    target = target.cast(dtypes.int32)
    ignored = None if ignore_index is None else target == ignore_index
    places = target if ignored is None else ignored.where(0, target)
    loss = -x.gather(1, places.unsqueeze(1)).squeeze(1)
    counts = Tensor.ones(*target.shape, dtype=x.dtype, device=x.device) if weight is None else weight.rows(places)
    if ignored is not None:
        counts = ignored.where(counts.zeros_like(), counts)
    if weight is not None or ignored is not None:
        loss = loss * counts
    if reduction == "none":
        return loss
    total = loss.sum()
    if reduction == "sum":
        return total
    return total / counts.sum() if weight is not None or ignored is not None else loss.mean()


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    node: Call,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str,
) -> Tensor:
    """Minus the log-probability of each target class; the same in every version."""
    return _negative_log_likelihood(node, x, target, weight, ignore_index, reduction)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    node: Call,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str,
) -> Any:
    """The loss of softmax over axis 1, and the log-probabilities if they are wanted."""
    x = scores.log_softmax(1)
    loss = _negative_log_likelihood(node, x, target, weight, ignore_index, reduction)
    return (loss, x) if node.wants(1) else loss
