"""`torch.autograd.functional`: Jacobians, Hessians and products with them, of a function at a point.

Inputs are a tensor or a tuple of them, and so are results. What is computed flows on: results have gradients where
`create_graph` asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal import transforms
from anneal.errors import GradientError
from anneal.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _several(inputs: Any) -> tuple[Tensor, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _numbers(inputs: Any) -> int | tuple[int, ...]:
    return tuple(range(len(inputs))) if isinstance(inputs, (tuple, list)) else 0


def _out(result: Any, create_graph: bool) -> Any:
    return result if create_graph else transforms.tree_map(lambda t: t.detach(), result)


def _as(inputs: Any, several: tuple[Any, ...]) -> Any:
    return several if isinstance(inputs, (tuple, list)) else several[0]


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False
) -> Any:
    """The derivative of each element of `func(*inputs)` by each element of `inputs`; axes of the result come first.

    For a tuple of inputs a tuple, for several results a tuple of these.

    >>> jacobian(lambda x: x * x, Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=float32)
    """
    return _out(transforms.jacrev(func, argnums=_numbers(inputs))(*_several(inputs)), create_graph)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The second derivatives of a function of one element: for a tuple of inputs a tuple of tuples.

    >>> hessian(lambda x: (x**3).sum(), Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=float32)
    """
    return _out(transforms.hessian(func, argnums=_numbers(inputs))(*_several(inputs)), create_graph)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
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


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, and the product of the Jacobian with a vector `v` of the inputs' shapes.

    Raises GradientError for inputs of several elements without `v`.

    >>> jvp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.], dtype=float32), Tensor([ 2., 40.], dtype=float32))
    """
    given = _several(inputs)
    if v is None:
        if len(given) > 1 or given[0].numel() != 1:
            raise GradientError("jvp: the inputs have several elements: give v, of their shapes")
        v = given[0].ones_like()
    return _out(transforms.jvp(func, given, _several(v), False), create_graph)  # type: ignore[no-any-return]


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, of one element, and the product of its Hessian with `v`.

    >>> hvp(lambda x: (x**3).sum(), Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor(9., dtype=float32), Tensor([  6., 120.], dtype=float32))
    """
    given = _several(inputs)
    slopes = transforms.grad(func, argnums=tuple(range(len(given))))
    _, product = transforms.jvp(slopes, given, _several(v), False)
    return _out((func(*given), _as(inputs, product)), create_graph)  # type: ignore[no-any-return]


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The product of a vector and the Hessian: `hvp`, since the Hessian is symmetric."""
    return hvp(func, inputs, v, create_graph, strict)
