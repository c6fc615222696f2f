"""Functions of the host as values: what a HOST_CALL node calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anneal.backend import Array, numpy_dtype
from anneal.errors import DTypeError, ShapeError
from anneal.uop import DType

__all__ = ["HostFunction"]


@dataclass(frozen=True, slots=True)
class HostFunction:
    """`call(*arrays)` gives an array for each of `results`, a shape and a dtype. Functions of one key are the
    same one.
    """

    key: Hashable
    results: tuple[tuple[tuple[int, ...], DType], ...]
    call: Callable[..., Any] = field(compare=False, repr=False)

    def arrays(self, given: Sequence[Array]) -> list[Array]:
        """The results for these arrays. Raises ShapeError or DTypeError for one that is not as it was said to be."""
        made = self.call(*given)
        made = [made] if isinstance(made, (np.ndarray, np.generic)) or np.isscalar(made) else list(made)
        if len(made) != len(self.results):
            raise ShapeError(
                f"host_call: the function gives {len(made)} arrays, not {len(self.results)} as it was said"
            )
        out = []
        for n, (array, (shape, dtype)) in enumerate(zip(map(np.asarray, made), self.results, strict=True)):
            if array.shape != shape:
                raise ShapeError(f"host_call: result {n} has shape {array.shape}, not {shape} as it was said")
            if array.dtype != numpy_dtype(dtype):
                raise DTypeError(
                    f"host_call: result {n} is {array.dtype}, not {dtype.name} as it was said: use .astype"
                )
            out.append(np.ascontiguousarray(array).reshape(shape))
        return out

    def for_each(self, batched: tuple[bool, ...], n: int) -> HostFunction:
        """The function of `n` examples that calls this one for each; arguments that are `batched` have an axis in
        front.
        """

        def call(*arrays: Array) -> list[Array]:
            made = [self.arrays([a[i] if b else a for a, b in zip(arrays, batched, strict=True)]) for i in range(n)]
            return [np.stack(each) for each in zip(*made, strict=True)]

        results = tuple([((n, *shape), dtype) for shape, dtype in self.results])
        return HostFunction(("each", self.key, batched, n), results, call)
