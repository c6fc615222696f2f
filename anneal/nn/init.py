"""Initial values of parameters, under torch's names: each function makes a parameter of a shape; those whose name ends
with an underscore, as torch's, give a tensor that is there new values.

The numbers come from the host (keyed by `manual_seed`), so building a model compiles and launches nothing, and a model
starts from the same weights on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from anneal.errors import ShapeError
from anneal.nn._init_in_place import (
    calculate_gain,
    constant_,
    dirac_,
    eye_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    orthogonal_,
    sparse_,
    trunc_normal_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)
from anneal.nn._parameter import Parameter
from anneal.ops import checked, host_normal, host_uniform, wrap_array
from anneal.runtime import here
from anneal.tensor import Tensor, default_device

__all__ = [
    "blank",
    "calculate_gain",
    "constant",
    "constant_",
    "dirac_",
    "eye_",
    "fan",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal_",
    "skipped",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

Shape = tuple[int, ...]
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@contextmanager
def skipped() -> Iterator[None]:
    """A block in which parameters start as zeros that take neither time nor memory: for a model about to be loaded.

    Other threads are not affected.

    >>> with skipped():
    ...     normal((2,))
    Parameter([0., 0.], dtype=float32, requires_grad=True)
    """
    before, here.skips_init = here.skips_init, True
    try:
        yield
    finally:
        here.skips_init = before


@contextmanager
def blank() -> Iterator[None]:
    """A block in which parameters are ordinary memory, of zeros that are not written until they are read: for a model
    whose graph is inspected.

    Other threads are not affected.

    >>> with blank():
    ...     normal((2,))
    Parameter([0., 0.], dtype=float32, requires_grad=True)
    """
    before, here.blank_init = here.blank_init, True
    try:
        yield
    finally:
        here.blank_init = before


def _parameter(shape: Shape, values: Callable[[], Array]) -> Parameter:
    if here.skips_init:
        return Parameter(Tensor.zeros(shape))
    # The array is fresh, so it needs no copy.
    device = default_device()
    array = np.zeros(shape, np.float32) if here.blank_init else values()
    t = Parameter(Tensor._fresh(wrap_array(array, device), device))
    t._own()
    return t


@checked
def constant(shape: Shape, value: float) -> Parameter:
    """A parameter whose every element is `value`.

    >>> constant((2,), 1.0)
    Parameter([1., 1.], dtype=float32, requires_grad=True)
    """
    return _parameter(shape, lambda: np.full(shape, value, np.float32))


@checked
def normal(shape: Shape, std: float = 1.0, zero_row: int | None = None) -> Parameter:
    """Normal numbers of mean 0 and deviation `std`; the row `zero_row`, if there is one, is zeros.

    Raises ShapeError for a row that is not there.

    >>> table = normal((4, 2), std=0.02, zero_row=0)
    >>> table.shape, table[0].tolist()
    ((4, 2), [0.0, 0.0])
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
def uniform(shape: Shape, bound: float = 1.0) -> Parameter:
    """Uniform numbers in [-bound, bound).

    >>> uniform((100,), 0.5).abs().amax().item() <= 0.5
    True
    """
    return _parameter(shape, lambda: host_uniform(shape, bound))


@checked
def fan(shape: Shape) -> tuple[int, int]:
    """The fan-in and fan-out of a weight of `shape` (out, in, ...): the numbers of inputs and of outputs that one
    element connects.

    >>> fan((8, 3, 5, 5))
    (75, 200)
    """
    if not shape:
        raise ShapeError("fan: a shape has one axis or more, not ()")
    field = math.prod(shape[2:])
    return (shape[1] if len(shape) > 1 else 1) * field, shape[0] * field


@checked
def kaiming_uniform(shape: Shape, a: float = math.sqrt(5)) -> Parameter:
    """He's uniform initialisation for leaky relu of slope `a`; the default is the one of torch's layers.

    A weight (out, in, ...) has numbers up to sqrt(6 / ((1 + a * a) * inputs)).

    >>> kaiming_uniform((8, 4)).abs().amax().item() <= 0.5
    True
    """
    return uniform(shape, math.sqrt(6 / ((1 + a * a) * fan(shape)[0])))


@checked
def xavier_uniform(shape: Shape, gain: float = 1.0) -> Parameter:
    """Glorot's uniform initialisation: a weight (out, in, ...) has numbers up to gain * sqrt(6 / (inputs + outputs)).

    >>> xavier_uniform((3, 3)).abs().amax().item() <= 1.0
    True
    """
    return uniform(shape, gain * math.sqrt(6 / sum(fan(shape))))


@checked
def xavier_normal(shape: Shape, gain: float = 1.0) -> Parameter:
    """Glorot's normal initialisation: a weight (out, in, ...) has deviation gain * sqrt(2 / (inputs + outputs)).

    >>> xavier_normal((3, 5)).shape
    (3, 5)
    """
    return normal(shape, gain * math.sqrt(2 / sum(fan(shape))))
