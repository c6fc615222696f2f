"""Pools of random windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anneal.errors import ShapeError
from anneal.nn._f_pools import Sizes
from anneal.ops import ValuesIndices, function, per_axis
from anneal.tensor import Tensor


def _fractional(
    name: str, axes: int, x: Tensor, k: Sizes, size: Sizes | None, ratio: Any, samples: Tensor | None
) -> ValuesIndices:
    """Windows that begin at random places (Graham, 2014), others for each channel."""
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}: x is (batch, channels, ...) or (channels, ...), not {x.shape}")
    if (size is None) == (ratio is None):
        raise ShapeError(f"{name}: give output_size or output_ratio, and not both")
    kernel = per_axis(name, "kernel_size", k, axes)
    inner = x.shape[x.ndim - axes :]
    if ratio is not None:
        size = [
            int(n * r)
            for n, r in zip(inner, ratio if isinstance(ratio, (list, tuple)) else [ratio] * axes, strict=True)
        ]
    assert size is not None
    out = per_axis(name, "output_size", size, axes)
    whole = x if x.ndim == axes + 2 else x.unsqueeze(0)
    lead = whole.shape[:2]
    if samples is None:
        samples = Tensor.rand(*lead, axes, device=x.device, dtype=x.dtype)
    windows = whole
    places = []
    for i, (n, m, w) in enumerate(zip(inner, out, kernel, strict=True)):
        sample = samples[:, :, 1 - i if axes == 2 else i].unsqueeze(-1)  # torch's places: (w, h), (d, h, w)
        steps = Tensor.arange(m, device=x.device).cast(x.dtype)
        alpha = (n - w) / max(1, m - 1)
        starts = ((steps + sample) * alpha).int() - (sample * alpha).int()
        starts = (steps == m - 1).where(n - w, starts)  # the last window ends at the end
        index = (starts.unsqueeze(-1) + Tensor.arange(w, device=x.device)).reshape(*lead, m * w)
        places.append(index)
        at = 2 + i
        shape = [*lead, *[1] * i, m * w, *[1] * (axes - 1 - i)]
        full = [*windows.shape[:at], m * w, *windows.shape[at + 1 :]]
        windows = windows.gather(at, index.reshape(*shape).expand(*full))
    pairs = [*lead, *[v for m, w in zip(out, kernel, strict=True) for v in (m, w)]]
    order = [0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
    rows = windows.reshape(*pairs).permute(*order).flatten(2 + axes)
    best = rows.argmax(-1)
    values = rows.gather(-1, best.unsqueeze(-1)).squeeze(-1)
    flat, rest, stride = best * 0, best, 1
    for i in reversed(range(axes)):
        offset, rest = rest % kernel[i], rest // kernel[i]
        window = Tensor.arange(out[i], device=x.device).reshape(*[-1 if j == i else 1 for j in range(axes)])
        place = (window * kernel[i] + offset).flatten(2)
        flat = flat + places[i].gather(-1, place).reshape(*best.shape) * stride
        stride *= inner[i]
    if x.ndim == axes + 1:
        values, flat = values.squeeze(0), flat.squeeze(0)
    return ValuesIndices(values, flat)


@function
def fractional_max_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | ValuesIndices:
    """The largest value of windows of the last two axes that begin at random places (Graham, 2014).

    `output_size` or `output_ratio` says how many; `_random_samples`, (batch, channels, 2) in [0, 1), where they begin.

    >>> fractional_max_pool2d(Tensor.ones(1, 1, 4, 4), 2, output_size=3).shape
    (1, 1, 3, 3)
    """
    pair = _fractional("fractional_max_pool2d", 2, x, kernel_size, output_size, output_ratio, _random_samples)
    return pair if return_indices else pair.values


@function
def fractional_max_pool2d_with_indices(
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> ValuesIndices:
    """`fractional_max_pool2d` with `return_indices=True`.

    >>> fractional_max_pool2d_with_indices(Tensor.ones(1, 1, 4, 4), 2, output_size=3).indices.shape
    (1, 1, 3, 3)
    """
    return _fractional("fractional_max_pool2d", 2, x, kernel_size, output_size, output_ratio, _random_samples)


@function
def fractional_max_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | ValuesIndices:
    """The largest value of windows of the last three axes that begin at random places (Graham, 2014).

    `output_size` or `output_ratio` says how many; `_random_samples`, (batch, channels, 3) in [0, 1), where they begin.

    >>> fractional_max_pool3d(Tensor.ones(1, 1, 4, 4, 4), 2, output_size=3).shape
    (1, 1, 3, 3, 3)
    """
    pair = _fractional("fractional_max_pool3d", 3, x, kernel_size, output_size, output_ratio, _random_samples)
    return pair if return_indices else pair.values


@function
def fractional_max_pool3d_with_indices(
    x: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> ValuesIndices:
    """`fractional_max_pool3d` with `return_indices=True`.

    >>> fractional_max_pool3d_with_indices(Tensor.ones(1, 1, 4, 4, 4), 2, output_size=3).indices.shape
    (1, 1, 3, 3, 3)
    """
    return _fractional("fractional_max_pool3d", 3, x, kernel_size, output_size, output_ratio, _random_samples)
