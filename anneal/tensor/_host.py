"""Functions of the host in the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from anneal.errors import DTypeError, ShapeError
from anneal.ops import as_dtype, check_device_dtype
from anneal.runtime import HostFunction, here
from anneal.tensor._tensor import Tensor
from anneal.uop import Op, UOp
from anneal.uop.sizes import symbolic_arg

__all__ = ["host_call"]


def host_call(
    function: Callable[..., Any], results: Sequence[Any], *inputs: Tensor, key: Hashable = None
) -> Tensor | tuple[Tensor, ...]:
    """What `function` makes of the values of `inputs`, on the host, whenever a result is computed.

    It gets NumPy arrays and gives arrays; it is part of the graph, so it is called when results are realized, between
    the kernels before it and those after it, and by each replay of a jit function. It may be called again, or not at
    all, as kernels are: it should depend on its arguments alone. It computes no tensors. No gradient flows through it.

    Args:
        function: takes an array for each input, and gives an array or a sequence of them.
        results: `(shape, dtype)` of the one result, which is returned, or a list of such pairs: then a tuple is.
        inputs: tensors on one device, at least one.
        key: calls of functions of equal keys on equal inputs are one; by default a function equals itself alone.

    Raises:
        ShapeError: no input, a symbolic size, or a result without elements; where results are computed, one of another
            number or shape than `results` says.
        DTypeError: something that is no tensor among `inputs`; later a result of another dtype.
        DeviceError: inputs on several devices.

    >>> import numpy as np
    >>> from anneal.tensor import Tensor
    >>> x = Tensor([3.0, 1.0, 2.0]) + 1
    >>> host_call(np.sort, ((3,), "float32"), x) * 10
    Tensor([20., 30., 40.], dtype=float32)
    """
    for x in inputs:
        if not isinstance(x, Tensor):
            raise DTypeError(
                f"host_call: takes tensors, not {type(x).__name__}; let the function hold what is constant"
            )
    if not inputs:
        raise ShapeError("host_call: takes at least one tensor; make a Tensor of what a function of nothing gives")
    first = inputs[0]
    for x in inputs:
        if x.device != first.device:
            first._mixed("host_call", x)
    one = not isinstance(results, list)
    said = tuple([(tuple(shape), as_dtype(dtype)) for shape, dtype in ([results] if one else results)])
    for shape, dtype in said:
        check_device_dtype(first.device, dtype)
        if symbolic_arg(shape) or 0 in shape:
            raise ShapeError(f"host_call: a result has fixed sizes of at least 1, not {shape}")
    if any(symbolic_arg(x.shape) or 0 in x.shape for x in inputs):
        raise ShapeError(
            "host_call: takes tensors of fixed sizes of at least 1; pad to the largest, and pass the length"
        )
    called = HostFunction(function if key is None else key, said, function)
    here.context.tensors.host_calls = True
    src = tuple([x.uop for x in inputs])
    made = tuple([first._new(UOp(Op.HOST_CALL, dtype, src, (called, n)), *inputs) for n, (_, dtype) in enumerate(said)])
    return made[0] if one else made
