"""Values on the host: NumPy arrays, the NumPy dtype of each of ours, and the meanings of ops in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from anneal.uop import ALL, DTYPES, DType, Op, by_name, covering, dtypes

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
NumpyDType: TypeAlias = np.dtype[Any]

_OTHERS = {d.name for d in DTYPES if d.is_narrow and d is not dtypes.float16}  # which NumPy does not have
_NUMPY: dict[DType, NumpyDType] = {d: np.dtype(d.name) for d in DTYPES if d.name not in _OTHERS}
_OURS = {kind: dtype for dtype, kind in _NUMPY.items()}


def numpy_dtype(dtype: DType) -> NumpyDType:
    """The NumPy dtype that holds `dtype` on the host; for bfloat16 and the floats of 8 bits, that of ml_dtypes.

    >>> numpy_dtype(dtypes.float16), numpy_dtype(dtypes.bfloat16)
    (dtype('float16'), dtype(bfloat16))
    """
    found = _NUMPY.get(dtype)
    return _narrow(dtype.name) if found is None else found


@lru_cache(64)
def _narrow(name: str) -> NumpyDType:
    import ml_dtypes

    kind: NumpyDType = np.dtype(getattr(ml_dtypes, name))
    return kind


def dtype_of(kind: NumpyDType) -> DType | None:
    """The dtype that `kind` holds on the host; None where none of ours is held so.

    >>> dtype_of(np.dtype("float16")), dtype_of(np.dtype("complex64"))
    (dtypes.float16, None)
    """
    found = _OURS.get(kind)
    if found is None and kind.name in _OTHERS and _narrow(kind.name) == kind:
        found = by_name(kind.name)
    return found


# -- meanings: what the rows of ops say (anneal/uop/ops.py), given NumPy -----------------------------------------------
# The reference interpreter and the checks compute with them; devices do not.

_OWNED = (Op.BUFFER, Op.PARAM, Op.SINK, Op.VARIABLE, Op.BIND)  # what they are, only their graph's owner knows


def of_numpy(cell: Any) -> Any:
    """A cell of a row: the function that is meant."""
    return getattr(np, cell) if isinstance(cell, str) else partial(cell, np)


MEANINGS: Mapping[Op, Callable[..., Any]] = covering(
    "the list of meanings in NumPy",
    {op: of_numpy(op.numpy) for op in ALL.values() if op.numpy is not None},
    (op for op in ALL.values() if "tensor" in op.stages and op not in _OWNED),
)
