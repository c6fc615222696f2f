"""What the programs share, for either library: numbers from NumPy, and models that begin with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]
STEPS = 20


def normal(seed: int, *shape: int) -> Array:
    """Numbers of a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def start(seed: int, parameters: Iterable[Any], scale: float = 0.3) -> None:
    """Give parameters values from NumPy."""
    rng = np.random.default_rng(seed)
    for p in parameters:
        p.data.copy_(p.new_tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32) * scale))
