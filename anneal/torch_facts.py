"""Facts about devices, dtypes and random numbers that programs ask `import anneal as an` for, by torch's names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anneal import cuda
from anneal.amp import get_autocast_dtype, is_autocast_enabled
from anneal.backend import DEVICES as _DEVICES, Place
from anneal.errors import DeviceError, DTypeError, SettingError
from anneal.ops import as_dtype, checked, default_generator as _default_generator, said
from anneal.runtime import here as _here, set_float32_products

from anneal.tensor import (  # isort: skip
    OLDER, DType, Tensor, default_device as _default_device, dtypes, set_default_device as _set_default_device,
)  # fmt: skip
from anneal.uop import promote


class _AnyPlace(type):
    def __instancecheck__(cls, d: object) -> bool:
        return isinstance(d, Place)


class device(Place, metaclass=_AnyPlace):
    """The name of a device, "cpu", "webgpu" or "auto", as a text; `type` is the name without its number, and `index`
    the number. In a `with` block it is the default device of new tensors.

    Args:
        type: the name, or a device. index: a number behind it, of a device of other frameworks.

    >>> device("cpu"), device("cuda:0").type, Tensor([1.0]).device.type, isinstance(Tensor([1.0]).device, device)
    ('cpu', 'cuda', 'cpu', True)
    """

    def __new__(cls, type: Any, index: int | None = None) -> device:
        name = f"cuda:{type}" if type.__class__ is int else type  # torch's GPUs have numbers
        if not isinstance(name, str) or not name:
            raise DeviceError(f'device: takes a name, "cpu", "webgpu" or "auto", not {said(type)}')
        return super().__new__(cls, name if index is None else f"{name}:{index}")

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __enter__(self) -> device:
        before = _here.device
        _set_default_device(self)
        _here.devices.append(before)
        return self

    def __exit__(self, *error: Any) -> None:
        _here.device = _here.devices.pop()


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing: the compiler chooses for itself."""


mps = xpu = cuda


class accelerator:
    """The default device if it is a GPU, under torch's names for accelerators."""

    @staticmethod
    def is_available() -> bool:
        """True if the default device is a GPU."""
        return _default_device() != "cpu"

    @staticmethod
    def current_accelerator(check_available: bool = False) -> Place | None:
        """The default device if it is a GPU, else None; `check_available` is ignored."""
        return get_default_device() if accelerator.is_available() else None

    @staticmethod
    def device_count() -> int:
        """The number of GPUs: 1 or 0, since a process computes on one GPU."""
        return int(accelerator.is_available())

    synchronize = staticmethod(cuda.synchronize)


# -- dtypes -----------------------------------------------------------------------------------------------------------


class _OlderTensor:
    """Tensors of one dtype, by torch's older names: `LongTensor([1, 2])`, `FloatTensor(2, 3)` of zeros, and
    `isinstance(x, LongTensor)`.
    """

    def __init__(self, title: str, dtype: DType) -> None:
        self.older_name, self.dtype = f"{title}Tensor", dtype

    def __call__(self, *data: Any, device: str | None = None) -> Tensor:
        if data and all(n.__class__ is int for n in data):
            return Tensor.zeros(*data, dtype=self.dtype, device=device)
        return Tensor(data[0] if data else (), device, self.dtype)

    def __instancecheck__(self, x: object) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype

    def __repr__(self) -> str:
        return self.older_name

    __reduce__ = __repr__


HalfTensor, BFloat16Tensor, FloatTensor, DoubleTensor, BoolTensor, ByteTensor, CharTensor, ShortTensor, *_rest = [
    _OlderTensor(name, dtype) for name, dtype in OLDER.items()
]
IntTensor, LongTensor = _rest

Size: type[tuple[Any, ...]] = tuple  # as shapes are
contiguous_format, preserve_format, channels_last, channels_last_3d = (
    "contiguous_format", "preserve_format", "channels_last", "channels_last_3d",
)  # fmt: skip
strided = "strided"


def get_default_dtype() -> DType:
    """float32, which Python's floats become.

    >>> get_default_dtype()
    dtypes.float32
    """
    return dtypes.float32


def set_default_dtype(d: Any) -> None:
    """Does nothing for float32. DTypeError for another `d`: Python's floats become float32 here, so name dtypes."""
    if as_dtype(d) is not dtypes.float32:
        raise DTypeError(f"set_default_dtype: Python's floats become float32; give dtype={as_dtype(d).name!r} where "
                         "tensors are made, or use .double()")  # fmt: skip


def promote_types(type1: Any, type2: Any) -> DType:
    """The dtype of the result of an op with an operand of `type1` and one of `type2`.

    >>> promote_types("int8", "float32")
    dtypes.float32
    """
    return promote(as_dtype(type1), as_dtype(type2))


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of `tensor1 + tensor2`, tensors or numbers.

    >>> result_type(Tensor([1]), 2.5), result_type(Tensor([1]), 2)
    (dtypes.float32, dtypes.int32)
    """
    # only the dtypes of tensors count: their shapes need not broadcast
    a, b = [t.reshape(-1)[:0] if isinstance(t, Tensor) else t for t in (tensor1, tensor2)]
    total = (a if isinstance(a, Tensor) or isinstance(b, Tensor) else Tensor(a)) + b
    return total.dtype


def can_cast(from_: Any, to: Any) -> bool:
    """True if torch lets `out=` of the dtype `to` take a result of `from_`: not a float in an integer, nor either in a
    bool.

    >>> can_cast("int32", "float16"), can_cast("float32", "int64")
    (True, False)
    """
    a, b = as_dtype(from_), as_dtype(to)
    return not (a.is_float and not b.is_float) and not (a.is_int and b is dtypes.bool_)


def typename(obj: Any) -> str:
    """`x.type()` of a tensor, else the name of the class of `obj`, with its module.

    >>> typename(Tensor([1.0]))
    'torch.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


is_complex, is_conj, is_inference, is_neg = (Tensor.is_complex,) * 4
is_nonzero, is_same_size, is_signed, get_device = (
    Tensor.is_nonzero, Tensor.is_same_size, Tensor.is_signed, Tensor.get_device,
)  # fmt: skip


def is_storage(obj: Any) -> bool:
    """False for every `obj`: there are no storages as torch's tensors have them."""
    return False


# -- threads and random numbers ---------------------------------------------------------------------------------------


def initial_seed() -> int:
    """The seed that the last `manual_seed` was given."""
    return int((_here.draws or _default_generator).seed)


def seed() -> int:
    """Seed the stream of random numbers with a number that differs each time, and return the number."""
    number = int.from_bytes(os.urandom(4), "little")
    (_here.draws or _default_generator).manual_seed(number)
    return number


def get_rng_state() -> Tensor:
    """The state of the stream of random numbers for `set_rng_state`: its seed, and the number of calls since.

    >>> state = get_rng_state(); a = Tensor.rand(3).tolist()
    >>> set_rng_state(state); a == Tensor.rand(3).tolist()
    True
    """
    state = (_here.draws or _default_generator).get_state()
    return state


@checked
def set_rng_state(new_state: Tensor) -> None:
    """Go on with random numbers from `new_state`, which `get_rng_state` gave."""
    (_here.draws or _default_generator).set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: Any = "cuda") -> Iterator[None]:
    """A block after which the stream of random numbers goes on from where it was before, on every device.

    A jit function that has such a block is not captured: it runs as written.

    Args:
        devices: ignored, as device_type is: there is one stream for all. enabled: False changes nothing.

    >>> state = get_rng_state()
    >>> with fork_rng():
    ...     _ = Tensor.rand(3)
    >>> get_rng_state().tolist() == state.tolist()
    True
    """
    if not isinstance(enabled, bool):
        raise SettingError(f"fork_rng: enabled is True or False, not {enabled!r}")
    generator = _here.draws or _default_generator
    before = generator.state()
    try:
        yield
    finally:
        if enabled:
            generator.go_on(before)


def is_autocast_cpu_enabled() -> bool:
    """True inside `autocast` for the cpu."""
    return is_autocast_enabled("cpu")


def get_autocast_gpu_dtype() -> DType:
    """The dtype that `autocast` casts to for CUDA."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """The dtype that `autocast` casts to on the cpu."""
    return get_autocast_dtype("cpu")


def get_num_threads() -> int:
    """The number of threads that the cpu device has at most."""
    return min(4, os.cpu_count() or 1)


set_num_threads = set_num_interop_threads = use_deterministic_algorithms = _nothing
set_flush_denormal = _nothing


def set_float32_matmul_precision(precision: str) -> None:
    """Set the `precision` of later float32 matrix products, also those of gradients, as in torch.

    It changes only products that tensor cores compute (webgpu through Dawn), of large matrices whose sizes are
    multiples of a tile's; all others stay exact to float32. "highest": float32. "high": each factor is the sum of two
    scaled float16 numbers, and sums of 256 terms or fewer are added in float32 (21 bits and more). "medium": factors
    are rounded to 11 bits.

    Raises SettingError for another word.

    >>> set_float32_matmul_precision("high")
    >>> get_float32_matmul_precision()
    'high'
    >>> set_float32_matmul_precision("highest")
    """
    set_float32_products(precision)


def are_deterministic_algorithms_enabled() -> bool:
    """True: the same program gives the same numbers on the same machine."""
    return True


def get_float32_matmul_precision() -> str:
    """The last argument of `set_float32_matmul_precision`; "highest" at first."""
    return _DEVICES.precision


def get_default_device() -> Place:
    """The default device of new tensors."""
    return Place(_default_device())
