"""Values on the host: NumPy arrays, and the NumPy dtype of each of ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anneal.uop import DType, dtypes

__all__ = ["Array", "numpy_dtype"]

Array = npt.NDArray[Any]

_NUMPY: dict[DType, np.dtype[Any]] = {
    d: np.dtype(getattr(ml_dtypes, d.name, d.name)) for d in vars(dtypes).values() if isinstance(d, DType)
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that holds `dtype` on the host; for bfloat16 and the floats of 8 bits, that of ml_dtypes.

    >>> numpy_dtype(dtypes.float16), numpy_dtype(dtypes.bfloat16)
    (dtype('float16'), dtype(bfloat16))
    """
    return _NUMPY[dtype]
