"""Random numbers: they are anneal's, not those of another runtime. With a seed each run draws the same."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Value, counted
from anneal.onnx.registry import op
from anneal.onnx.types import array_dtype
from anneal.tensor import Generator, Tensor, dtypes
from anneal.tensor.random import multinomial, rand, randn

__all__: list[str] = []


def _generator(seed: float | None) -> Generator | None:
    """A stream that begins at the bits of the seed, or None for the default one."""
    return None if seed is None else Generator(struct.unpack("<I", struct.pack("<f", seed))[0])


def _named(node: Call, code: int | None, like: Value | None = None) -> str:
    if code is None:
        return "float32" if like is None else like.dtype.name
    dtype = array_dtype(code)
    if dtype is None:
        raise node.fail(f"there is no element type {code}")
    return str(dtype.name)


def _normal(node: Call, shape: Sequence[int], name: str, mean: float, scale: float, seed: float | None) -> Tensor:
    return (randn(*shape, device=node.device, generator=_generator(seed)) * scale + mean).cast(name)


def _uniform(node: Call, shape: Sequence[int], name: str, low: float, high: float, seed: float | None) -> Tensor:
    return (rand(*shape, device=node.device, generator=_generator(seed)) * (high - low) + low).cast(name)


@op("RandomNormal", pure=False)
def random_normal(
    node: Call, *, dtype: int | None = None, mean: float, scale: float, seed: float | None = None, shape: Sequence[int]
) -> Tensor:
    """Normal numbers of a shape."""
    return _normal(node, shape, _named(node, dtype), mean, scale, seed)


@op("RandomNormalLike", raw=True, pure=False)
def random_normal_like(
    node: Call, x: Value, *, dtype: int | None = None, mean: float, scale: float, seed: float | None = None
) -> Tensor:
    """Normal numbers of the shape of another value."""
    return _normal(node, x.shape, _named(node, dtype, x), mean, scale, seed)


@op("RandomUniform", pure=False)
def random_uniform(
    node: Call, *, dtype: int | None = None, high: float, low: float, seed: float | None = None, shape: Sequence[int]
) -> Tensor:
    """Uniform numbers of a shape."""
    return _uniform(node, shape, _named(node, dtype), low, high, seed)


@op("RandomUniformLike", raw=True, pure=False)
def random_uniform_like(
    node: Call, x: Value, *, dtype: int | None = None, high: float, low: float, seed: float | None = None
) -> Tensor:
    """Uniform numbers of the shape of another value."""
    return _uniform(node, x.shape, _named(node, dtype, x), low, high, seed)


@op("Bernoulli", pure=False)
def bernoulli(node: Call, p: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability that each element is, else 0."""
    drawn: Any = rand(*p.shape, device=p.device, generator=_generator(seed)) < p
    return drawn.cast(_named(node, dtype, p))  # type: ignore[no-any-return]


@op("Multinomial", pure=False)
def draws(node: Call, x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    """Classes drawn from rows of unnormalised log-probabilities."""
    found = multinomial(x.float().softmax(-1), sample_size, True, generator=_generator(seed))
    return found.cast(dtypes.int32) if dtype == 6 else counted(found)
