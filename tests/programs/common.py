"""What the programs share: the same weights in both libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = 20


def same_weights(lib: Any, model: Any, rng: np.random.Generator) -> Any:
    """The model with weights from NumPy."""
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32) * 0.2))
    return model


def normal(lib: Any, rng: np.random.Generator, *shape: int) -> Any:
    return lib.tensor(rng.standard_normal(shape).astype(np.float32))
