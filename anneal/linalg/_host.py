"""Calls of NumPy's LAPACK: checks of arguments, errors, batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from anneal.errors import DTypeError, LinAlgError, ShapeError
from anneal.ops import broadcast_shapes, checked
from anneal.tensor import Tensor, dtypes, host_call

Array = npt.NDArray[Any]
Tensors = Sequence[Tensor]
Gradient = Callable[[Tensors, Tensors, Tensors], Any]
F = TypeVar("F", bound=Callable[..., Any])
TOLERANCES = ("atol", "rtol", "tol")  # of any dtype


def float_op(function: F) -> F:
    """An op of float tensors: `linalg.NAME` in messages, in float32 for narrower floats, whose dtype the results have.

    Raises DTypeError for tensors of other dtypes.
    """
    title = f"linalg.{function.__name__}"

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        given = [*args, *[a for what, a in options.items() if what not in TOLERANCES]]
        tensors = [a for a in given if isinstance(a, Tensor)]
        for x in tensors:
            if not x.dtype.is_float:
                raise DTypeError(f"{title}: takes floats, not {x.dtype.name}; use .float()")
        kinds = {x.dtype for x in tensors}
        if len(kinds) > 1:
            names = " and ".join(sorted(k.name for k in kinds))
            raise DTypeError(f"{title}: takes tensors of one dtype, not {names}; use .cast")
        narrow = next((k for k in kinds if k.bits < 32), None)
        if narrow is None:
            return function(*args, **options)
        made = function(*[_single(a) for a in args], **{name: _single(a) for name, a in options.items()})
        return _back(made, narrow)

    return checked(called, title)  # type: ignore[return-value]


def _single(x: Any) -> Any:
    return x.cast(dtypes.float32) if isinstance(x, Tensor) else x


def _back(made: Any, dtype: Any) -> Any:
    if isinstance(made, Tensor):
        return made.cast(dtype) if made.dtype.is_float else made
    cast = [_back(x, dtype) for x in made]
    return type(made)(*cast) if hasattr(made, "_fields") else tuple(cast)


def on_device(function: F) -> F:
    """An op that the device computes: `linalg.NAME` in messages."""
    return checked(function, f"linalg.{function.__name__}")


def matrices(x: Tensor) -> tuple[int, int]:
    """The sizes of the last two axes. Raises ShapeError where there are fewer."""
    if x.ndim < 2:
        raise ShapeError(f"takes matrices, the last two axes, not shape {x.shape}")
    return x.shape[-2], x.shape[-1]


def squares(x: Tensor) -> int:
    """The side of square matrices. Raises ShapeError for others."""
    m, n = matrices(x)
    if m != n:
        raise ShapeError(f"takes square matrices, not shape {x.shape}")
    return m


def leading(x: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """The matrices of `x` broadcast over these leading axes."""
    wide = (*shape, *x.shape[-2:])
    return x if x.shape == wide else x.expand(wide)


def one_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches of matrices with equal leading axes."""
    lead = broadcast_shapes("linalg", a.shape[:-2], b.shape[:-2])
    return leading(a, lead), leading(b, lead)


def called(
    name: str,
    fault: str,
    compute: Callable[..., Any],
    results: Sequence[tuple[Any, ...]],
    inputs: Sequence[Tensor],
    gradient: Gradient | None,
    key: Hashable = (),
) -> list[Tensor]:
    """The results, of these shapes, of `compute` on the host, which takes and gives arrays of matrices with equal
    leading axes. `key` tells calls of one name apart; `fault` is said of a matrix that LAPACK refuses.

    Whatever `compute` gives is cast to the dtype of the inputs.
    """
    dtype, title = inputs[0].dtype, f"linalg.{name}"

    def run(*arrays: Array) -> list[Array]:
        try:
            made = compute(*arrays)
        except np.linalg.LinAlgError as error:
            raise _named(title, fault, compute, arrays) from error
        return [np.asarray(a).astype(arrays[0].dtype, copy=False) for a in made]

    def alone(t: Tensor) -> Tensor:
        """A result that depends on no element: the gradient of the inputs is zero rather than missing."""
        for x in inputs:
            t = t + x.flatten()[:0].sum() if x.requires_grad else t
        return t

    if all(0 in shape for shape in results):
        return [alone(Tensor.zeros(*shape, dtype=dtype, device=inputs[0].device)) for shape in results]
    if any(0 in shape for shape in (*results, *[x.shape for x in inputs])):
        # nothing to compute from, or nothing that is computed: no call of the host has such arrays
        zeros = [np.zeros(x.shape, dtype.name) for x in inputs]
        return [alone(Tensor(a, device=inputs[0].device)) for a in run(*zeros)]
    pairs: list[Any] = [(shape, dtype) for shape in results]
    made = host_call(run, pairs, *inputs, key=(title, key, dtype.name), gradient=gradient, vmap_method="broadcast_all")
    return list(made)


def _named(title: str, fault: str, compute: Callable[..., Any], arrays: Sequence[Array]) -> LinAlgError:
    """The error of the first matrix of a batch that LAPACK refuses."""
    lead = arrays[0].shape[:-2]
    for index in np.ndindex(*lead):
        try:
            compute(*[a[index] for a in arrays])
        except np.linalg.LinAlgError:
            which = f"matrix {index[0] if len(index) == 1 else index} of the batch" if index else "the matrix"
            return LinAlgError(f"{title}: {which} {fault}")
    return LinAlgError(f"{title}: a matrix {fault}")
