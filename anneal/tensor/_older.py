"""Facts about tensors that torch's programs query, most of them the same for every tensor here, and dtypes by torch's
older names.
"""

from __future__ import annotations

from typing import Any, overload

from anneal.errors import DeviceError, DTypeError, GradientError
from anneal.names import Tensor
from anneal.ops import DTypeLike, as_dtype, checked, grad_enabled
from anneal.uop import DType, Op, UOp, dtypes

# torch's names of tensors of a dtype, as `x.type()` gives them and `x.type("torch.LongTensor")` takes them
OLDER: dict[str, DType] = {
    "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Float": dtypes.float32, "Double": dtypes.float64,
    "Bool": dtypes.bool_, "Byte": dtypes.uint8, "Char": dtypes.int8, "Short": dtypes.int16, "Int": dtypes.int32,
    "Long": dtypes.int64,
}  # fmt: skip


class Whole(int):
    """An int that may be called, since here it was a method: `x.nbytes` and `x.nbytes()`."""

    def __call__(self) -> int:
        return int(self)


@overload
def type(x: Tensor, dtype: None = None) -> str: ...  # noqa: A001
@overload
def type(x: Tensor, dtype: Any) -> Tensor: ...  # noqa: A001
@checked
def type(x: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:  # noqa: A001
    """torch's name of a tensor of this dtype, or the tensor in a dtype, which may have such a name; `non_blocking`
    changes nothing.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).type(), Tensor([1.5]).type("torch.LongTensor").dtype
    ('torch.FloatTensor', dtypes.int64)
    """
    if dtype is None:
        return f"torch.{next((n for n, d in OLDER.items() if d is x.dtype), x.dtype.name.title())}Tensor"
    return x.cast(older(dtype))


def older(dtype: Any) -> DTypeLike:
    """A dtype, by its own names or as `torch.LongTensor`."""
    name = getattr(dtype, "older_name", dtype)
    if isinstance(name, str) and name.endswith("Tensor"):
        found = OLDER.get(name.removeprefix("torch.").removesuffix("Tensor"))
        if found is None:
            raise DTypeError(f"type: there is no {name}; tensors are {', '.join(OLDER)}Tensor")
        return found
    return as_dtype(dtype)


def itemsize(x: Tensor) -> int:
    """Bytes of one element in host memory."""
    return x.dtype.itemsize


def nbytes(x: Tensor) -> Whole:
    """Bytes of all elements in host memory; called, too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).nbytes == Tensor([1, 2]).nbytes() == 8
    True
    """
    return Whole(x.numel() * x.dtype.itemsize)


def is_cpu(x: Tensor) -> bool:
    """True on the cpu device."""
    return x._device == "cpu"


def real(x: Tensor) -> Tensor:
    """The tensor itself: there are no complex numbers."""
    return x


def no(x: Tensor) -> bool:
    """False, for every tensor x.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).is_complex(), Tensor([1.0]).is_pinned()
    (False, False)
    """
    return False


def itself(x: Tensor, *args: Any, **options: Any) -> Tensor:
    """The tensor x itself: programs do not decide where its memory lies.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).pin_memory()
    Tensor([1.], dtype=float32)
    """
    return x


@checked
def is_signed(x: Tensor) -> bool:
    """True if the dtype has negative numbers.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).is_signed(), Tensor([1], dtype="uint8").is_signed()
    (True, False)
    """
    return x.dtype.min < 0


@checked
def is_nonzero(x: Tensor) -> bool:
    """True if the one number of the tensor is not 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).is_nonzero()
    True
    """
    return bool(x)


@checked
def is_same_size(x: Tensor, other: Tensor) -> bool:
    """True if `other` has the same shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).is_same_size(Tensor([1]))
    True
    """
    return x.shape == other.shape


@checked
def get_device(x: Tensor) -> int:
    """-1, as of every tensor that is on no CUDA device.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).get_device()
    -1
    """
    return -1


def data_ptr(x: Tensor) -> int:
    """A number that tells with which element the tensor x begins, no address: equal for tensors that share their values
    and begin with the same one, 0 for a tensor without elements. It holds while a tensor that shares the values lives.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x[0].data_ptr() == x.data_ptr(), x[1].data_ptr() == x.data_ptr(), x.clone().data_ptr() == x.data_ptr()
    (True, False, False)
    """
    link: Any = x._base
    if not x.numel():
        return 0
    if link is None or not link.recipe.is_view:
        return id(x) << 40
    return (id(link.root) << 40) + int(link.recipe.layout[1]) * x.dtype.itemsize


@checked
def set_(x: Tensor, source: Tensor) -> Tensor:
    """The tensor itself, which is a view of all of `source` from now on, in that one's shape: `x.data = source`.

    Raises GradientError for a leaf that requires a gradient outside no_grad, and where gradients of `source` would be
    recorded, DTypeError for another dtype, DeviceError for another device.

    Args:
        source: a tensor, no storage.

    >>> from anneal.tensor import Tensor
    >>> x, y = Tensor([0.0]), Tensor([1.0, 2.0])
    >>> x.set_(y)[0] = 7.0; y
    Tensor([7., 2.], dtype=float32)
    """
    if x.requires_grad and x.is_leaf and grad_enabled():
        raise GradientError("set_: a leaf that requires a gradient cannot be changed in place; use no_grad()")
    if source.requires_grad and grad_enabled():
        raise GradientError("set_: no gradient flows to the source; write x.set_(source.detach()), or no_grad()")
    if source.dtype is not x.dtype:
        raise DTypeError(
            f"set_: a tensor of {x.dtype.name} becomes no view of one of {source.dtype.name}: write "
            f"x.set_(source.to(x.dtype)), or x.data = source"
        )
    if source.device != x.device:
        raise DeviceError(f"set_: a tensor on {x.device} becomes no view of one on {source.device}: move that by .to()")
    x.data = source
    return x


@checked
def detach_(x: Tensor) -> Tensor:
    """The tensor itself, cut off from what it was computed from: no gradient flows through it any more.

    >>> from anneal.tensor import Tensor
    >>> y = Tensor([2.0], requires_grad=True) * 3
    >>> y.detach_().requires_grad
    False
    """
    if x._wants:
        u = x.uop
        x._become(UOp(Op.DETACH, u.dtype, (u,)))
        x._leaf = True
        x.requires_grad_(False)
    return x
