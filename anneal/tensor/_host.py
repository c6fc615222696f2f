"""Functions of the host in the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, get_args, overload

from anneal.errors import DTypeError, GradientError, ShapeError, UserError
from anneal.ops import as_dtype, called_on_host, said
from anneal.runtime import HostFunction, HostGradient, VmapMethod, found_sizes, key_of
from anneal.tensor._tensor import Tensor
from anneal.uop import DType, UOp
from anneal.uop.sizes import sizes

Tensors = Sequence[Tensor]
Gradient = Callable[[Tensors, Tensors, Tensors], Any]  # (inputs, results, cotangents) -> cotangents of the inputs


@overload
def host_call(
    function: Callable[..., Any],
    results: tuple[Any, Any],
    *inputs: Tensor,
    key: Hashable = ...,
    gradient: Gradient | None = ...,
    vmap_method: VmapMethod = ...,
) -> Tensor: ...
@overload
def host_call(
    function: Callable[..., Any],
    results: list[Any],
    *inputs: Tensor,
    key: Hashable = ...,
    gradient: Gradient | None = ...,
    vmap_method: VmapMethod = ...,
) -> tuple[Tensor, ...]: ...
def host_call(
    function: Callable[..., Any],
    results: tuple[Any, Any] | list[Any],
    *inputs: Tensor,
    key: Hashable = None,
    gradient: Gradient | None = None,
    vmap_method: VmapMethod = "sequential",
) -> Tensor | tuple[Tensor, ...]:
    """The result of `function` for the values of `inputs`, on the host, whenever a result is computed.

    It gets NumPy arrays and gives arrays; it is part of the graph, so it is called when results are realized, between
    the kernels before it and those after it, and by each replay of a jit function. It may be called again, or not at
    all, as kernels are: it should depend on its arguments alone. It computes no tensors.

    A size of a result may be a `Variable` without a value: each call finds it, within the Variable's bounds, and what
    is computed after the call runs with it.

    Args:
        function: takes an array for each input, and gives an array or a sequence of them.
        results: `(shape, dtype)` of the one result, which is returned, or a list of such pairs: then a tuple is.
        inputs: tensors on one device, at least one.
        key: calls of functions of equal keys on equal inputs are one. By default functions that are equal are one; a
            lambda, or a function that cannot be hashed, equals itself alone.
        gradient: takes the inputs, the results and the cotangents of the results, three lists of tensors, and gives a
            cotangent for each input, None for one that gets none. It is made of ops, and so has derivatives itself, or
            of `host_call`. Without it no gradient flows.
        vmap_method: how vmap calls it. "sequential": for each example. Or once for all of them, along a new first axis
            of inputs and results; an input without examples has 1 there by "expand_dims", repeats by "broadcast_all".

    Raises:
        ShapeError: no input, no pair of shape and dtype, or a size of 0; where results are computed, one of another
            number or shape than `results` says, or a size outside a Variable's bounds.
        DTypeError: an input that is no tensor, a key that cannot be hashed, an unknown vmap_method; later a result's.
        DeviceError: inputs on several devices.

    >>> import numpy as np
    >>> from anneal.tensor import Tensor, Variable
    >>> x = Tensor([3.0, 1.0, 2.0]) + 1
    >>> host_call(np.sort, ((3,), "float32"), x) * 10
    Tensor([20., 30., 40.], dtype=float32)
    >>> n = Variable("n", 0, 3)
    >>> large = host_call(lambda a: np.flatnonzero(a > 2.5).astype("int32"), ((n,), "int32"), x)
    >>> large.shape, x[large].sum().item(), large.tolist()
    ((n,), 7.0, [0, 2])
    """
    name = str(key) if isinstance(key, str) else getattr(function, "__qualname__", type(function).__name__)
    _check(inputs, key, vmap_method)
    pairs = [_pair(r) for r in (results if isinstance(results, list) else [results])]
    found = found_sizes(f"host_call of {name}", pairs, [x.shape for x in inputs])
    called = HostFunction(
        (key_of(function) if key is None else key, gradient is not None),
        tuple(pairs),
        function,
        name,
        None if gradient is None else _on_nodes(gradient, name, inputs[0].device),
        vmap_method,
        found,
    )
    made = called_on_host("host_call", called, inputs)
    return made if isinstance(results, list) else made[0]


def _check(inputs: Sequence[Any], key: Any, vmap_method: Any) -> None:
    """Raise ShapeError or DTypeError for arguments that are none of a call's."""
    for x in inputs:
        if not isinstance(x, Tensor):
            raise DTypeError(
                f"host_call: takes tensors, not {type(x).__name__}; let the function hold what is constant"
            )
    if not inputs:
        raise ShapeError(
            "host_call: takes at least one tensor; make a Tensor of the result of a function without arguments"
        )
    if vmap_method not in (None, *get_args(get_args(VmapMethod)[0])):
        raise DTypeError(
            f'host_call: vmap_method is "sequential", "expand_dims" or "broadcast_all", not {said(vmap_method)}'
        )
    try:
        hash(key)
    except TypeError:
        raise DTypeError(
            f"host_call: key must be hashable, like a text or a tuple of texts and numbers, not {said(key)}"
        ) from None


def _pair(result: Any) -> tuple[tuple[Any, ...], DType]:
    """A result's shape and dtype."""
    try:
        shape, dtype = result
        return sizes(tuple(shape)), as_dtype(dtype)
    except (TypeError, ValueError) as e:
        if isinstance(e, UserError):
            raise
        raise ShapeError(
            f"host_call: a result is a pair of shape and dtype, as ((3,), 'float32'), not {said(result)}"
        ) from e


def _on_nodes(gradient: Gradient, name: str, device: str) -> HostGradient:
    """A gradient over tensors as one over nodes. Raises GradientError where it gives anything but tensors and None."""

    def of_nodes(inputs: Sequence[UOp], outputs: Sequence[UOp], cotangents: Sequence[UOp]) -> Sequence[UOp | None]:
        given = [[Tensor._from_uop(u, device) for u in nodes] for nodes in (inputs, outputs, cotangents)]
        made = gradient(given[0], given[1], given[2])
        several = list(made) if isinstance(made, (list, tuple)) else [made]
        for c in several:
            if c is not None and not isinstance(c, Tensor):
                raise GradientError(f"the gradient of host_call of {name} gives tensors, or None, not {said(c)}")
        return [None if c is None else c.uop for c in several]

    return of_nodes
