"""The names of `import anneal as an`: tensors, functions, dtypes and packages, each imported when it is first used.

`an.sum(x)` is `x.sum()`. `an.nn`, `an.optim`, `an.utils`, `an.linalg` and `an.fft` are packages, as in torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later
from anneal.tensor import DType, Tensor as Tensor, dtypes as dtypes

float8_e4m3fn, float8_e5m2, bfloat16 = dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.bfloat16
float16, float32, float64 = dtypes.float16, dtypes.float32, dtypes.float64
half, double = float16, float64
int8, int16, int32, int64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
uint8, uint16, uint32, uint64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64
short, long = int16, int64
dtype = DType
inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None

# From here on these names hide Python's builtins.
bool, int, float = dtypes.bool_, dtypes.int32, dtypes.float32

if TYPE_CHECKING:
    from anneal.stubs.front import *
else:
    __getattr__ = opened_later(__name__)

    _ELSEWHERE = {  # what torch's names are for that are not here
        "there are no complex numbers: fft has pairs": (
            "cdouble cfloat chalf complex complex32 complex64 complex128 eig imag istft polar stft view_as_complex "
            "view_as_real"
        ),
        "there are no sparse tensors: keep indices and values, for index_add and scatter_add": (
            "sparse sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo sparse_coo_tensor "
            "sparse_csc_tensor sparse_csr sparse_csr_tensor smm hspmm"
        ),
        "ANNEAL_DEBUG=2 and `anneal kernels --time` show times": "monitor profiler",
        "ANNEAL_DEBUG and `anneal explain` show what the compiler does; jit captures": (
            "fx jit_script library overrides"
        ),
        "there is no quantisation of programs; onnx runs quantised models": (
            "ao dequantize per_channel_affine per_tensor_affine qint32 qint8 quantization quantize_per_channel "
            "quantize_per_tensor quint8"
        ),
        "tensors do not expose their memory": (
            "ByteStorage FloatStorage LongStorage Storage TypedStorage UntypedStorage storage"
        ),
        "DataLoader's workers are threads, and Python has multiprocessing": "multiprocessing",
        "write linalg.NAME": "lstsq matrix_rank solve",
        "write linalg.eigh": "symeig",
        "reading a value waits for it": "Event Stream",
        "there is no hub: load a file by load, or onnx.load": "hub package",
        "write arange(start, end + step, step)": "range",
        "write from_numpy(numpy.frombuffer(...))": "from_file frombuffer",
        "write nn.functional.embedding_bag, whose indices come first": "embedding_bag",
    }

    def instead(name: str) -> str:
        """The end of a message about a name of torch's that is not here: what to write; empty of others."""
        return next(
            (f": {said.replace('NAME', name)}" for said, names in _ELSEWHERE.items() if name in names.split()), ""
        )

    def __dir__() -> list[str]:
        needed = {"names_of", "TYPE_CHECKING", "annotations", "instead", "math", "opened_later"}
        return sorted({*globals(), *names_of(__name__)} - needed)


# -- dtypes -----------------------------------------------------------------------------------------------
