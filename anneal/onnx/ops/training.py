"""Training: losses of classes, random numbers, and one step of an optimiser for several tensors at once.

The optimisers are ai.onnx.preview.training's. Random numbers are anneal's, not those of another runtime; with a seed
each run draws the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Value, counted
from anneal.onnx.registry import op
from anneal.onnx.types import array_dtype
from anneal.tensor import Generator, Tensor, dtypes
from anneal.tensor.random import multinomial, rand, randn


def _negative_log_likelihood(
    node: NodeCall, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str
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
    node: NodeCall,
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
    node: NodeCall,
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


PREVIEW = "ai.onnx.preview.training"


def _each(node: NodeCall, tensors: tuple[Tensor, ...], kinds: int, step: Callable[..., tuple[Tensor, ...]]) -> Any:
    """Inputs are all parameters, then all gradients, then all of each state; so are the outputs, without gradients."""
    if not tensors or len(tensors) % kinds:
        raise node.fail(f"{len(tensors)} tensors; {kinds} for each parameter are wanted")
    count = len(tensors) // kinds
    rows = [step(*tensors[i::count]) for i in range(count)]
    return tuple([row[k] for k in range(kinds - 1) for row in rows])


@op("Momentum", domain=PREVIEW)
def momentum(
    node: NodeCall,
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """Gradient descent with momentum, "standard" or "nesterov"."""
    if mode not in ("standard", "nesterov"):
        raise node.fail(f"mode is standard or nesterov, not {mode!r}")
    scale = (t > 0).where(beta, 1.0)

    def step(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = g + x * norm_coefficient
        v = v * alpha + g * scale
        return x - r * (g + v * alpha if mode == "nesterov" else v), v

    return _each(node, tensors, 3, step)


@op("Adagrad", domain=PREVIEW)
def adagrad(
    node: NodeCall, r: Tensor, t: Tensor, *tensors: Tensor, decay_factor: float, epsilon: float, norm_coefficient: float
) -> Any:
    """A rate for each element, less the more its gradients were."""
    rate = r / (t * decay_factor + 1)

    def step(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + x * norm_coefficient
        h = h + g * g
        return x - rate * g / (h.sqrt() + epsilon), h

    return _each(node, tensors, 3, step)


@op("Adam", domain=PREVIEW)
def adam(
    node: NodeCall,
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> Any:
    """Running means of the gradient and of its square, corrected for their start by the count t."""
    steps = t.float()
    corrected = r * (1 - beta**steps).sqrt() / (1 - alpha**steps)
    rate = (t > 0).where(corrected, r)

    def step(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + x * norm_coefficient
        v = v * alpha + g * (1 - alpha)
        h = h * beta + g * g * (1 - beta)
        return (x - rate * v / (h.sqrt() + epsilon)) * (1 - norm_coefficient_post), v, h

    return _each(node, tensors, 4, step)


def _generator(seed: float | None) -> Generator | None:
    """A stream that begins at the bits of the seed, or None for the default one."""
    return None if seed is None else Generator(struct.unpack("<I", struct.pack("<f", seed))[0])


def _named(node: NodeCall, code: int | None, like: Value | None = None) -> str:
    if code is None:
        return "float32" if like is None else like.dtype.name
    dtype = array_dtype(code)
    if dtype is None:
        raise node.fail(f"there is no element type {code}")
    return str(dtype.name)


def _normal(node: NodeCall, shape: Sequence[int], name: str, mean: float, scale: float, seed: float | None) -> Tensor:
    return (randn(*shape, device=node.device, generator=_generator(seed)) * scale + mean).cast(name)


def _uniform(node: NodeCall, shape: Sequence[int], name: str, low: float, high: float, seed: float | None) -> Tensor:
    return (rand(*shape, device=node.device, generator=_generator(seed)) * (high - low) + low).cast(name)


@op("RandomNormal", pure=False)
def random_normal(
    node: NodeCall,
    *,
    dtype: int | None = None,
    mean: float,
    scale: float,
    seed: float | None = None,
    shape: Sequence[int],
) -> Tensor:
    """Normal numbers of a shape."""
    return _normal(node, shape, _named(node, dtype), mean, scale, seed)


@op("RandomNormalLike", raw=True, pure=False)
def random_normal_like(
    node: NodeCall, x: Value, *, dtype: int | None = None, mean: float, scale: float, seed: float | None = None
) -> Tensor:
    """Normal numbers of the shape of another value."""
    return _normal(node, x.shape, _named(node, dtype, x), mean, scale, seed)


@op("RandomUniform", pure=False)
def random_uniform(
    node: NodeCall,
    *,
    dtype: int | None = None,
    high: float,
    low: float,
    seed: float | None = None,
    shape: Sequence[int],
) -> Tensor:
    """Uniform numbers of a shape."""
    return _uniform(node, shape, _named(node, dtype), low, high, seed)


@op("RandomUniformLike", raw=True, pure=False)
def random_uniform_like(
    node: NodeCall, x: Value, *, dtype: int | None = None, high: float, low: float, seed: float | None = None
) -> Tensor:
    """Uniform numbers of the shape of another value."""
    return _uniform(node, x.shape, _named(node, dtype, x), low, high, seed)


@op("Bernoulli", pure=False)
def bernoulli(node: NodeCall, p: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability that each element is, else 0."""
    drawn: Any = rand(*p.shape, device=p.device, generator=_generator(seed)) < p
    return drawn.cast(_named(node, dtype, p))  # type: ignore[no-any-return]


@op("Multinomial", pure=False)
def draws(node: NodeCall, x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    """Classes drawn from rows of unnormalised log-probabilities."""
    found = multinomial(x.float().softmax(-1), sample_size, True, generator=_generator(seed))
    return found.cast(dtypes.int32) if dtype == 6 else counted(found)
