"""`gradcheck`: gradients against differences of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.errors import GradientError
from anneal.ops import is_tensor
from anneal.tensor import Tensor
from anneal.tensor.autograd import grad

__all__ = ["gradcheck", "gradgradcheck"]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """True if the gradients of `func(*inputs)` equal its central differences, for each input that requires a gradient.

    Differences of 1e-6 need inputs in float64 (`x.double().requires_grad_()`), which the cpu device has. Raises
    GradientError that names the input and the largest difference, or without `raise_exception` gives False.

    Args:
        eps: the step of the differences.
        atol: the absolute tolerance.
        rtol: the relative tolerance.

    >>> gradcheck(lambda x: x * x, Tensor([1.0, 2.0], dtype="float64", requires_grad=True))
    True
    """
    given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    at = [n for n, x in enumerate(given) if is_tensor(x) and x.requires_grad]
    if not at:
        raise GradientError("gradcheck: no input requires a gradient")
    for m, y in enumerate(_results(func, given)):
        for n in at:
            fault = _fault(func, given, m, n, eps, atol, rtol)
            if fault:
                if raise_exception:
                    raise GradientError(f"gradcheck: result {m} of shape {y.shape} by input {n}: {fault}")
                return False
    return True


def gradgradcheck(func: Callable[..., Any], inputs: Any, **options: Any) -> bool:
    """`gradcheck` of the gradients of `func(*inputs)`, with cotangents of ones; further options are those of
    `gradcheck`.

    >>> gradgradcheck(lambda x: x * x * x, Tensor([1.0, 2.0], dtype="float64", requires_grad=True))
    True
    """
    given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    at = [n for n, x in enumerate(given) if is_tensor(x) and x.requires_grad]

    def slopes(*args: Any) -> tuple[Any, ...]:
        total: Any = 0.0
        for y in _results(func, list(args)):
            total = total + y.sum()
        return grad(total, [args[n] for n in at], create_graph=True, materialize_grads=True)

    return gradcheck(slopes, given, **options)


def _results(func: Callable[..., Any], given: Sequence[Any]) -> list[Tensor]:
    out = func(*given)
    return [y for y in (out if isinstance(out, (tuple, list)) else [out]) if is_tensor(y) and y.dtype.is_float]


def _fault(func: Callable[..., Any], given: list[Any], m: int, n: int, eps: float, atol: float, rtol: float) -> str:
    """The error in the derivative of result `m` by input `n`, in words; "" if there is none."""
    x = given[n]
    values = x.numpy()

    def at(moved: Any) -> Any:
        args = [*given]
        args[n] = Tensor(moved, device=x.device, dtype=x.dtype, requires_grad=True)
        return _results(func, args)[m].numpy()

    y = _results(func, given)[m]
    found = np.zeros((y.numel(), x.numel()))
    wanted = np.zeros_like(found)
    for i in range(y.numel()):
        weights = np.zeros(y.numel())
        weights[i] = 1
        y = _results(func, given)[m]
        if y.requires_grad:
            (g,) = grad(y, x, Tensor(weights.reshape(y.shape), device=y.device, dtype=y.dtype), materialize_grads=True)
            found[i] = g.numpy().reshape(-1)
    for j in range(x.numel()):
        step = np.zeros(x.numel(), values.dtype)
        step[j] = eps
        step = step.reshape(values.shape)
        wanted[:, j] = ((at(values + step) - at(values - step)) / (2 * eps)).reshape(-1)
    if np.allclose(found, wanted, rtol, atol):
        return ""
    return f"the gradient differs from differences by up to {np.abs(found - wanted).max():.3g}"
