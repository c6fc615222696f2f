"""The meanings of ops in NumPy: what their rows (anneal/uop/ops.py) say, given NumPy.

The reference interpreter and the checks compute with them; devices do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from anneal.uop import ALL, Op, covering

_OTHERS = (Op.BUFFER, Op.PARAM, Op.SINK, Op.VARIABLE, Op.BIND)  # what they are, only their graph's owner knows


def of_numpy(cell: Any) -> Any:
    """A cell of a row: the function that is meant."""
    return getattr(np, cell) if isinstance(cell, str) else partial(cell, np)


MEANINGS: Mapping[Op, Callable[..., Any]] = covering(
    "the list of meanings in NumPy",
    {op: of_numpy(op.numpy) for op in ALL.values() if op.numpy is not None},
    (op for op in ALL.values() if "tensor" in op.stages and op not in _OTHERS),
)
