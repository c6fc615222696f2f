"""`torch.autograd.functional`: Jacobians, Hessians and products with them, of a function at a point.

Inputs are a tensor or a tuple of them, and so are results. Gradients flow through results only if `create_graph` is
true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal import transforms
from anneal.errors import GradientError
from anneal.ops import is_tensor
from anneal.runtime import Fun
from anneal.tensor import Tensor
from anneal.tensor.autograd import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _several(inputs: Any) -> tuple[Tensor, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _numbers(inputs: Any) -> int | tuple[int, ...]:
    return tuple(range(len(inputs))) if isinstance(inputs, (tuple, list)) else 0


def _out(result: Any, create_graph: bool) -> Any:
    return result if create_graph else transforms.tree_map(lambda t: t.detach(), result)


def _as(inputs: Any, several: tuple[Any, ...]) -> Any:
    return several if isinstance(inputs, (tuple, list)) else several[0]


def _of_strategy(strategy: str) -> Fun:
    """The transform of torch's word for it."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise GradientError(f'jacobian, hessian: a strategy is "forward-mode" or "reverse-mode", not {strategy!r}')
    return transforms.jacfwd if strategy == "forward-mode" else transforms.jacrev


def _one_element(func: Fun) -> Fun:
    """`func`, whose result of one element is a scalar. Raises GradientError for another result."""

    def scalar(*given: Any) -> Tensor:
        y = func(*given)
        if not isinstance(y, Tensor) or y.numel() != 1:
            raise GradientError("hessian: the function returns a tensor of one element: sum it, or use jacobian")
        return y.reshape(())

    return scalar


def jacobian(
    func: Fun,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivative of each element of `func(*inputs)` by each element of `inputs`; axes of the result come first.

    For a tuple of inputs a tuple, for several results a tuple of these. `strategy` may be "forward-mode", for few
    inputs; `strict` and `vectorize` change nothing, here and below.

    >>> jacobian(lambda x: x * x, Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=float32)
    """
    return _out(_of_strategy(strategy)(func, argnums=_numbers(inputs))(*_several(inputs)), create_graph)


def hessian(
    func: Fun,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function of one element: for a tuple of inputs a tuple of tuples. The strategy is
    that of the second ones, as for `jacobian`.

    Raises GradientError for a function of several elements.

    >>> hessian(lambda x: (x**3).sum(), Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=float32)
    """
    numbers = _numbers(inputs)
    slopes = transforms.grad(_one_element(func), argnums=numbers)
    return _out(_of_strategy(outer_jacobian_strategy)(slopes, argnums=numbers)(*_several(inputs)), create_graph)


def vjp(func: Fun, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """`func(*inputs)`, and the product of a vector `v` of the result's shape with the Jacobian.

    Raises GradientError for a result of several elements without `v`.

    >>> vjp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.], dtype=float32), Tensor([ 2., 40.], dtype=float32))
    """
    y, pull = transforms.vjp(func, *_several(inputs), has_aux=False)
    if v is None:
        if not isinstance(y, Tensor) or y.numel() != 1:
            raise GradientError("vjp: the result has several elements: give v, of its shape")
        v = y.detach().ones_like()
    return _out((y, _as(inputs, pull(v))), create_graph)  # type: ignore[no-any-return]


def jvp(func: Fun, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """`func(*inputs)`, and the product of the Jacobian with a vector `v` of the inputs' shapes.

    Raises GradientError for inputs of several elements without `v`.

    >>> jvp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.], dtype=float32), Tensor([ 2., 40.], dtype=float32))
    """
    given = _several(inputs)
    return _out(transforms.jvp(func, given, _direction(given, v), False), create_graph)  # type: ignore[no-any-return]


def _direction(given: tuple[Any, ...], v: Any) -> tuple[Any, ...]:
    """The tangents `v` of the inputs; of one input of one element, ones."""
    if v is None:
        if len(given) > 1 or given[0].numel() != 1:
            raise GradientError("jvp, hvp: the inputs have several elements: give v, of their shapes")
        v = given[0].ones_like()
    return _several(v)


def hvp(func: Fun, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """`func(*inputs)`, of one element, and the product of its Hessian with `v`.

    >>> hvp(lambda x: (x**3).sum(), Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor(9., dtype=float32), Tensor([  6., 120.], dtype=float32))
    """
    given = _several(inputs)
    slopes = transforms.grad(func, argnums=tuple(range(len(given))))
    _, product = transforms.jvp(slopes, given, _direction(given, v), False)
    return _out((func(*given), _as(inputs, product)), create_graph)  # type: ignore[no-any-return]


def vhp(func: Fun, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The product of a vector and the Hessian: `hvp`, since the Hessian is symmetric."""
    return hvp(func, inputs, v, create_graph, strict)


# -- gradients beside differences of values, which `anneal.autograd` has -----------------------------------------------


def gradcheck(
    func: Fun,
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
    given = list(_several(inputs))
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


def gradgradcheck(func: Fun, inputs: Any, **options: Any) -> bool:
    """`gradcheck` of the gradients of `func(*inputs)`, with cotangents of ones; further options are those of
    `gradcheck`.

    >>> gradgradcheck(lambda x: x * x * x, Tensor([1.0, 2.0], dtype="float64", requires_grad=True))
    True
    """
    given = list(_several(inputs))
    at = [n for n, x in enumerate(given) if is_tensor(x) and x.requires_grad]

    def slopes(*args: Any) -> tuple[Any, ...]:
        total: Any = 0.0
        for y in _results(func, list(args)):
            total = total + y.sum()
        return grad(total, [args[n] for n in at], create_graph=True, materialize_grads=True)

    return gradcheck(slopes, given, **options)


def _results(func: Fun, given: Sequence[Any]) -> list[Tensor]:
    return [y for y in _several(func(*given)) if is_tensor(y) and y.dtype.is_float]


def _fault(func: Fun, given: list[Any], m: int, n: int, eps: float, atol: float, rtol: float) -> str:
    """The error in the derivative of result `m` by input `n`, in words; "" if there is none."""
    x = given[n]
    values = x.numpy()

    def at(moved: Any) -> Any:
        args = [*given]
        args[n] = Tensor(moved, device=x.device, dtype=x.dtype, requires_grad=True)
        return _results(func, args)[m].numpy()

    y = _results(func, given)[m]
    found = np.zeros((y.numel(), x.numel()))
    if y.requires_grad and y.numel():
        units = Tensor(np.eye(y.numel()).reshape(-1, *y.shape), device=y.device, dtype=y.dtype)
        (g,) = grad(y, x, units, is_grads_batched=True, materialize_grads=True)
        found = g.numpy().reshape(found.shape)
    steps = eps * np.eye(x.numel(), dtype=values.dtype).reshape(x.numel(), *values.shape)
    wanted = (
        np.array([(at(values + step) - at(values - step)) / (2 * eps) for step in steps]).reshape(found.shape[::-1]).T
    )
    if np.allclose(found, wanted, rtol, atol):
        return ""
    return f"the gradient differs from differences by up to {np.abs(found - wanted).max():.3g}"
