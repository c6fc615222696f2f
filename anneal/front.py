"""The names of `import anneal as an`: tensors, their functions, dtypes and rooms, each imported when it is first used.

`an.sum(x)` is `x.sum()`; `an.nn`, `an.optim`, `an.autograd`, `an.utils`, `an.linalg`, `an.fft` are rooms, as torch's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.ops import FAMILIES
from anneal.tensor import DType
from anneal.tensor import Tensor as Tensor
from anneal.tensor import dtypes as dtypes

if TYPE_CHECKING:
    from anneal import nn as _nn
    from anneal.amp import autocast as autocast
    from anneal.amp import get_autocast_dtype as get_autocast_dtype
    from anneal.amp import is_autocast_available as is_autocast_available
    from anneal.amp import is_autocast_enabled as is_autocast_enabled
    from anneal.array_api import finfo as finfo
    from anneal.array_api import iinfo as iinfo
    from anneal.linalg.older import *  # torch.qr and its kin, where methods have names of ops
    from anneal.ops import *
    from anneal.ops import as_dtype as as_dtype
    from anneal.ops.families import *
    from anneal.runtime import compile as compile
    from anneal.special import igamma as igamma
    from anneal.special import igammac as igammac
    from anneal.tensor import Generator as Generator
    from anneal.tensor import MemoryReport as MemoryReport
    from anneal.tensor import MinMax as MinMax
    from anneal.tensor import ValuesIndices as ValuesIndices
    from anneal.tensor import Variable as Variable
    from anneal.tensor import default_device as default_device
    from anneal.tensor import empty_cache as empty_cache
    from anneal.tensor import functional as functional
    from anneal.tensor import grad as grad
    from anneal.tensor import hessian as hessian
    from anneal.tensor import host_call as host_call
    from anneal.tensor import io as io
    from anneal.tensor import jacfwd as jacfwd
    from anneal.tensor import jacrev as jacrev
    from anneal.tensor import jit as jit
    from anneal.tensor import jvp as jvp
    from anneal.tensor import manual_seed as manual_seed
    from anneal.tensor import memory as memory
    from anneal.tensor import no_grad as no_grad
    from anneal.tensor import random as random
    from anneal.tensor import realize as realize
    from anneal.tensor import set_default_device as set_default_device
    from anneal.tensor import set_printoptions as set_printoptions
    from anneal.tensor import tree_leaves as tree_leaves
    from anneal.tensor import tree_map as tree_map
    from anneal.tensor import value_and_grad as value_and_grad
    from anneal.tensor import vjp as vjp
    from anneal.tensor import vmap as vmap
    from anneal.tensor.autograd import enable_grad as enable_grad
    from anneal.tensor.autograd import inference_mode as inference_mode
    from anneal.tensor.autograd import set_grad_enabled as set_grad_enabled
    from anneal.torch_facts import *
    from anneal.torch_names import *  # type: ignore[assignment,has-type]  # torch's arguments, where others
    from anneal.transforms import cond as cond
    from anneal.transforms import custom_jvp as custom_jvp
    from anneal.transforms import custom_vjp as custom_vjp
    from anneal.transforms import fori_loop as fori_loop
    from anneal.transforms import scan as scan
    from anneal.transforms import while_loop as while_loop

    alpha_dropout, feature_alpha_dropout = _nn.functional.alpha_dropout, _nn.functional.feature_alpha_dropout
    celu_, rrelu, rrelu_, selu_ = (
        _nn.functional.celu_,
        _nn.functional.rrelu,
        _nn.functional.rrelu_,
        _nn.functional.selu_,
    )
    ctc_loss, threshold_ = _nn.functional.ctc_loss, _nn.functional.threshold_
else:  # a later line of the table counts before an earlier one
    _FILES = {
        "anneal.ops": (
            "broadcast_shapes", "default_generator", "grad_enabled", "is_tensor",
            *[name for names in FAMILIES.values() for name in names],
        ),
        "anneal.linalg.older": (
            "chain_matmul", "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu",
            "lu_solve", "lu_unpack", "matrix_exp", "pca_lowrank", "pinverse", "qr", "slogdet", "svd",
            "svd_lowrank", "triangular_solve",
        ),
        "anneal.tensor": (
            "Generator", "MemoryReport", "MinMax", "ValuesIndices", "Variable", "default_device", "empty_cache",
            "functional", "grad", "hessian", "host_call", "io", "jacfwd", "jacrev", "jit", "jvp", "manual_seed",
            "memory", "no_grad", "random", "realize", "set_default_device", "set_printoptions", "tree_leaves",
            "tree_map", "value_and_grad", "vjp", "vmap",
        ),
        "anneal.amp": ("autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"),
        "anneal.array_api": ("finfo", "iinfo"),
        "anneal.runtime": ("compile",),
        "anneal.special": ("igamma", "igammac"),
        "anneal.nn.functional": (
            "alpha_dropout", "celu_", "ctc_loss", "feature_alpha_dropout", "rrelu", "rrelu_", "selu_", "threshold_",
        ),
        "anneal.tensor.autograd": ("enable_grad", "inference_mode", "set_grad_enabled"),
        "anneal.torch_facts": (
            "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
            "IntTensor", "LongTensor", "ShortTensor", "Size", "are_deterministic_algorithms_enabled",
            "can_cast", "channels_last", "channels_last_3d", "contiguous_format", "device",
            "get_default_device", "get_default_dtype", "get_device", "get_float32_matmul_precision", "get_num_threads",
            "get_rng_state", "initial_seed", "is_complex", "is_conj", "is_inference", "is_neg", "is_nonzero",
            "is_same_size", "is_signed", "is_storage", "mps", "preserve_format", "promote_types", "result_type", "seed",
            "set_default_dtype", "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads",
            "set_num_threads", "set_rng_state", "strided", "typename", "use_deterministic_algorithms", "xpu",
        ),
        "anneal.torch_names": (
            "as_tensor", "asarray", "broadcast_shapes", "constant_pad_nd", "clone", "detach", "empty_permuted",
            "empty_strided", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine", "fix",
            "from_dlpack", "ger", "grid_sampler_2d", "grid_sampler_3d", "is_floating_point",
            "is_grad_enabled", "load", "native_group_norm", "native_layer_norm", "norm", "normal", "numel", "randint",
            "randint_like", "save", "scalar_tensor", "tensor",
        ),
        "anneal.transforms": ("cond", "custom_jvp", "custom_vjp", "fori_loop", "scan", "while_loop"),
    }  # fmt: skip
    __getattr__ = opened_later(__name__, _FILES)

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
            "export fx jit_script library overrides"
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
        needed = {"FAMILIES", "TYPE_CHECKING", "annotations", "math", "opened_later"}  # by this file alone
        return sorted({*globals(), *[name for names in _FILES.values() for name in names]} - needed)


# -- dtypes -----------------------------------------------------------------------------------------------

float8_e4m3fn, float8_e5m2, bfloat16 = dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.bfloat16
float16, float32, float64 = dtypes.float16, dtypes.float32, dtypes.float64
half, double = float16, float64
int8, int16, int32, int64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
uint8, uint16, uint32, uint64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64
short, long = int16, int64
dtype = DType
inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None

# These hide Python's own names, so they stand last.
bool, int, float = dtypes.bool_, dtypes.int32, dtypes.float32
