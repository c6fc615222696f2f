"""Initial values of parameters, under torch's names: each function makes a parameter of a shape.

The numbers come from the host (keyed by `manual_seed`), so building a model compiles and launches nothing, and a model
starts from the same weights on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from anneal.errors import ShapeError
from anneal.ops import checked, wrap_array
from anneal.runtime import here
from anneal.tensor import Tensor, default_device
from anneal.tensor.random import host_normal, host_uniform

__all__ = ["constant", "fan", "kaiming_uniform", "normal", "skipped", "uniform", "xavier_normal", "xavier_uniform"]

Shape = tuple[int, ...]
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@contextmanager
def skipped() -> Iterator[None]:
    """In this block parameters start as zeros that take neither time nor memory: for a model about to be loaded.

    Other threads are not concerned.

    >>> with skipped():
    ...     normal((2,))
    Tensor([0., 0.], dtype=float32, requires_grad=True)
    """
    before, here.skips_init = here.skips_init, True
    try:
        yield
    finally:
        here.skips_init = before


def _parameter(shape: Shape, values: Callable[[], Array]) -> Tensor:
    if here.skips_init:
        return Tensor.zeros(shape, requires_grad=True)
    # The array is fresh, so it needs no copy.
    device = default_device()
    t = Tensor._fresh(wrap_array(values(), device), device, requires_grad=True)
    t._own()
    return t


@checked
def constant(shape: Shape, value: float) -> Tensor:
    """Every element `value`.

    >>> constant((2,), 1.0)
    Tensor([1., 1.], dtype=float32, requires_grad=True)
    """
    return _parameter(shape, lambda: np.full(shape, value, np.float32))


@checked
def normal(shape: Shape, std: float = 1.0, zero_row: int | None = None) -> Tensor:
    """Normal numbers of mean 0; the row `zero_row`, if there is one, is zeros. Raises ShapeError for a row that is not
    there.
    """
    if zero_row is not None and not (shape and -shape[0] <= zero_row < shape[0]):
        raise ShapeError(f"normal: there is no row {zero_row} in an array of shape {tuple(shape)}")

    def values() -> Array:
        array = host_normal(shape, std)
        if zero_row is not None:
            array[zero_row] = 0
        return array

    return _parameter(shape, values)


@checked
def uniform(shape: Shape, bound: float = 1.0) -> Tensor:
    """Uniform numbers in [-bound, bound)."""
    return _parameter(shape, lambda: host_uniform(shape, bound))


@checked
def fan(shape: Shape) -> tuple[int, int]:
    """How many inputs and outputs one element of a weight (out, in, ...) connects.

    >>> fan((8, 3, 5, 5))
    (75, 200)
    """
    if not shape:
        raise ShapeError("fan: a shape has one axis or more, not ()")
    field = math.prod(shape[2:])
    return (shape[1] if len(shape) > 1 else 1) * field, shape[0] * field


@checked
def kaiming_uniform(shape: Shape, a: float = math.sqrt(5)) -> Tensor:
    """He's uniform initialisation for leaky relu of slope `a`; the default is what torch's layers start from."""
    return uniform(shape, math.sqrt(6 / ((1 + a * a) * fan(shape)[0])))


@checked
def xavier_uniform(shape: Shape, gain: float = 1.0) -> Tensor:
    """Glorot's uniform initialisation."""
    return uniform(shape, gain * math.sqrt(6 / sum(fan(shape))))


@checked
def xavier_normal(shape: Shape, gain: float = 1.0) -> Tensor:
    """Glorot's normal initialisation."""
    return normal(shape, gain * math.sqrt(2 / sum(fan(shape))))
