"""Initial values under torch's names: of parameters that are made or, by names with an underscore, that are there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from anneal.errors import ShapeError
from anneal.nn.parameter import Parameter
from anneal.ops import Generator, checked, host_normal, host_uniform, wrap_array
from anneal.runtime import here, modes
from anneal.tensor import Tensor, default_device

__all__ = [
    "blank", "calculate_gain", "constant", "constant_", "dirac_", "eye_", "fan", "kaiming_normal_", "kaiming_uniform",
    "kaiming_uniform_", "normal", "normal_", "ones_", "orthogonal_", "skipped", "sparse_", "trunc_normal_", "uniform",
    "uniform_", "xavier_normal", "xavier_normal_", "xavier_uniform", "xavier_uniform_", "zeros_",
]  # fmt: skip

Shape = tuple[int, ...]
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

# The numbers come from the host (keyed by `manual_seed`), so building a model compiles and launches nothing, and a
# model starts from the same weights on every device.


@contextmanager
def skipped() -> Iterator[None]:
    """A block in which parameters start as zeros that take neither time nor memory: for a model about to be loaded.

    Other threads are not affected.

    >>> with skipped():
    ...     normal((2,))
    Parameter([0., 0.], dtype=float32, requires_grad=True)
    """
    with modes(skips_init=True):
        yield


@contextmanager
def blank() -> Iterator[None]:
    """A block in which parameters are ordinary memory, of zeros that are not written until they are read: for a model
    whose graph is inspected.

    Other threads are not affected.

    >>> with blank():
    ...     normal((2,))
    Parameter([0., 0.], dtype=float32, requires_grad=True)
    """
    with modes(blank_init=True):
        yield


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
    element connects, 1 where there are none.

    >>> fan((8, 3, 5, 5))
    (75, 200)
    """
    if not shape:
        raise ShapeError("fan: a shape has one axis or more, not ()")
    return max(1, math.prod(shape[1:])), max(1, shape[0] * math.prod(shape[2:]))


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


def _given(tensor: Tensor, values: np.ndarray[Any, Any]) -> Tensor:
    tensor.assign(Tensor(values.astype(np.float32), dtype=tensor.dtype, device=tensor.device))
    return tensor


def _fans(name: str, tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ShapeError(f"{name}: a weight has two axes or more, not shape {tensor.shape}")
    return fan(tensor.shape)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    return _fans("fan", tensor)


@checked
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain that makes up for an activation's smaller deviations; `param` is leaky_relu's slope.

    Raises ShapeError for an unknown name.

    >>> calculate_gain("relu") ** 2
    2.0000000000000004
    """
    if nonlinearity in ("linear", "sigmoid") or nonlinearity.startswith("conv"):
        return 1.0
    slope = 0.01 if param is None else param
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "leaky_relu": math.sqrt(2 / (1 + slope * slope)), "selu": 0.75}
    if nonlinearity not in gains:
        raise ShapeError(f"calculate_gain: nonlinearity is linear, sigmoid, {', '.join(gains)}, not {nonlinearity!r}")
    return gains[nonlinearity]


@checked
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill `tensor` with uniform numbers in [a, b).

    >>> uniform_(Tensor.zeros(100), 2.0, 3.0).amin().item() >= 2.0
    True
    """
    half = (b - a) / 2
    return _given(tensor, host_uniform(tensor.shape, half, generator=generator) + (a + half))


@checked
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill `tensor` with normal numbers of `mean` and standard deviation `std`.

    >>> normal_(Tensor.zeros(2), 3.0, 0.0).tolist()
    [3.0, 3.0]
    """
    return _given(tensor, host_normal(tensor.shape, std, generator=generator) + mean)


@checked
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers of `mean` and standard deviation `std`, in the interval [a, b]: those outside are drawn again.

    >>> trunc_normal_(Tensor.zeros(100)).abs().amax().item() <= 2.0
    True
    """
    values = host_normal(tensor.shape, std, generator=generator) + mean
    for _ in range(64):
        out = (values < a) | (values > b)
        if not out.any():
            break
        values[out] = (host_normal(tensor.shape, std, generator=generator) + mean)[out]
    return _given(tensor, values.clip(a, b))


@checked
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill `tensor` with the number `val`.

    >>> constant_(Tensor.zeros(2), 0.5).tolist()
    [0.5, 0.5]
    """
    return _given(tensor, np.full(tensor.shape, val))


@checked
def ones_(tensor: Tensor) -> Tensor:
    """Fill `tensor` with ones.

    >>> ones_(Tensor.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


@checked
def zeros_(tensor: Tensor) -> Tensor:
    """Fill `tensor` with zeros.

    >>> zeros_(Tensor.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


@checked
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix. Raises ShapeError for other than two axes.

    >>> eye_(Tensor.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: a matrix has two axes, not shape {tensor.shape}")
    return _given(tensor, np.eye(*tensor.shape))


@checked
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that gives each channel to its like; in each of `groups` groups.

    Raises ShapeError for a weight of other than three to five axes, or groups that do not divide its first.

    >>> dirac_(Tensor.zeros(1, 1, 3)).tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    if not 3 <= tensor.ndim <= 5 or groups < 1 or tensor.shape[0] % groups:
        raise ShapeError(f"dirac_: a weight of three to five axes in {groups} groups, not shape {tensor.shape}")
    values = np.zeros(tensor.shape)
    out = tensor.shape[0] // groups
    middle = tuple([n // 2 for n in tensor.shape[2:]])
    for g in range(groups):
        for d in range(min(out, tensor.shape[1])):
            values[(g * out + d, d, *middle)] = 1
    return _given(tensor, values)


@checked
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot's uniform initialisation of a weight (out, in, ...).

    >>> xavier_uniform_(Tensor.zeros(3, 3)).abs().amax().item() <= 1.0
    True
    """
    bound = gain * math.sqrt(6 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, generator)


@checked
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot's normal initialisation of a weight (out, in, ...).

    >>> xavier_normal_(Tensor.zeros(3, 5)).shape
    (3, 5)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans("xavier_normal_", tensor))), generator)


def _kaiming(name: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f'{name}: mode is "fan_in" or "fan_out", not {mode!r}')
    fan = _fans(name, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@checked
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He's uniform initialisation of a weight (out, in, ...) for an activation; `a` is leaky_relu's slope.

    >>> kaiming_uniform_(Tensor.zeros(4, 6)).abs().amax().item() <= 1.0
    True
    """
    bound = math.sqrt(3) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@checked
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He's normal initialisation of a weight (out, in, ...) for an activation; `a` is leaky_relu's slope.

    >>> kaiming_normal_(Tensor.zeros(4, 6)).shape
    (4, 6)
    """
    return normal_(tensor, 0.0, _kaiming("kaiming_normal_", tensor, a, mode, nonlinearity), generator)


@checked
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """A weight (out, in...) whose rows, or columns if these are fewer, are orthogonal and of length `gain`.

    >>> w = orthogonal_(Tensor.zeros(2, 3))
    >>> (w @ w.T).round(3).abs().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    _fans("orthogonal_", tensor)
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    flat = host_normal((max(rows, columns), min(rows, columns)), 1.0, generator=generator)
    q, r = np.linalg.qr(flat)
    q = q * np.sign(np.diag(r))
    return _given(tensor, gain * (q.T if rows < columns else q).reshape(tensor.shape))


@checked
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal numbers of standard deviation `std` in a matrix, a share of `sparsity` of each column zero.

    >>> (sparse_(Tensor.zeros(4, 3), 0.5) == 0).int().sum().item()
    6
    """
    if tensor.ndim != 2 or not 0 <= sparsity <= 1:
        raise ShapeError(f"sparse_: a matrix and a share of 0 to 1, not {tensor.shape} and {sparsity}")
    values = host_normal(tensor.shape, std, generator=generator)
    rows = tensor.shape[0]
    zeros = math.ceil(sparsity * rows)
    order = np.argsort(host_uniform(tensor.shape, 1.0, generator=generator), axis=0)
    np.put_along_axis(values, order[:zeros], 0, axis=0)
    return _given(tensor, values)
