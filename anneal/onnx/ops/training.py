"""ai.onnx.preview.training: one step of an optimiser for several tensors at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal.onnx.execute import Call
from anneal.onnx.registry import op
from anneal.tensor import Tensor

__all__: list[str] = []

PREVIEW = "ai.onnx.preview.training"


def _each(node: Call, tensors: tuple[Tensor, ...], kinds: int, step: Callable[..., tuple[Tensor, ...]]) -> Any:
    """Inputs are all parameters, then all gradients, then all of each state; so are the outputs, without gradients."""
    if not tensors or len(tensors) % kinds:
        raise node.fail(f"{len(tensors)} tensors; {kinds} for each parameter are wanted")
    count = len(tensors) // kinds
    rows = [step(*tensors[i::count]) for i in range(count)]
    return tuple([row[k] for k in range(kinds - 1) for row in rows])


@op("Momentum", domain=PREVIEW)
def momentum(
    node: Call, r: Tensor, t: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
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
    node: Call, r: Tensor, t: Tensor, *tensors: Tensor, decay_factor: float, epsilon: float, norm_coefficient: float
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
    node: Call,
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
