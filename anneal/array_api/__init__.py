"""The Python array API standard, 2024.12: the namespace that `x.__array_namespace__()` gives for a tensor x.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[3.0, 4.0]])
    >>> xp = x.__array_namespace__()
    >>> xp.linalg.vector_norm(x, axis=1)
    Tensor([5.], dtype=float32)

Arrays are tensors, devices their names. Python's ints are int32 and floats float32, indices int32; bfloat16, float16
and float8 are there besides. Functions whose results have as many elements as values say (`nonzero`, `unique_*`,
`repeat` by an array) read values at once, so they are none for the inside of jit. There are no complex dtypes, and so
no `fft` extension here: `anneal.fft` takes pairs.
"""

from typing import TYPE_CHECKING

from anneal.array_api import linalg as linalg
from anneal.array_api._derived import standard as _standard
from anneal.array_api._dtypes import __array_namespace_info__ as __array_namespace_info__
from anneal.doors import opened_later as _opened_later

if TYPE_CHECKING:
    from anneal.array_api._dtypes import *
    from anneal.array_api._functions import *
    from anneal.stubs.array_api import *
else:
    __getattr__ = _opened_later(__name__, make=_standard)

__array_api_version__ = "2024.12"
