"""What every tensor is: a node, a device, and whether a gradient is wanted.

`Tensor` is built in layers, one concept a file, each a class that inherits the one before:

    TensorBase   data in and out, dtypes, devices, leaves of the gradient        _base.py
    Elementwise  arithmetic, comparison, logic, bits, rounding                   _elementwise.py
    Functions    functions of real numbers, activations                          _functions.py
    Gamma        lgamma, digamma                                                 _gamma.py
    Views        movement: reshape, permute, pad, cat, ...                       _views.py
    Reduce       sums, extremes, statistics, softmax, running sums               _reduce.py
    Indexing     x[...], gather, scatter, where a value is chosen by a value     _indexing.py
    Sorting      argsort, topk, medians                                          _sorting.py
    Placing      scatter_reduce, index_put, masked writes                        _placing.py
    Linalg       matmul, einsum, outer                                           _linalg.py
    Statistics   covariance, histograms, order statistics, integrals             _statistics.py
    Further      further names of torch and the array API                        _further.py
    Creation     zeros, arange, eye, rand, ...                                   _creation.py
    Tensor       the door: backward, repr, and the layers functions as methods   _tensor.py

Gradients need no tape: `backward` walks the graph of the loss. What it must know besides is kept here. A *leaf* is a
tensor on which `requires_grad` was set; `leaves()` lists the live ones and `leaf_nodes(t)` the nodes that stand for
one in graphs made so far. Realising a tensor replaces its node by a BUFFER; where a gradient has to go on through
it, the buffer's Storage remembers the graph it was computed from as `origin`.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt

from anneal.backend import HOST, device_names, get_device, numpy_dtype
from anneal.errors import DeviceError, DTypeError, GradientError, ShapeError
from anneal.runtime import (
    INSIDE,
    Handle,
    JitError,
    bound_shape,
    default_device,
    forbid_in_jit,
    here,
    host_storage,
    needed,
    outdate_captures,
    realize,
    resolve_device,
    seen,
    storage_of,
)
from anneal.tensor._checked import check_methods, checked, said, whole
from anneal.tensor._movement import expand, reshape
from anneal.uop import MOVEMENT, DType, Op, UOp, alu, by_name, const, dtypes, promote
from anneal.uop.sizes import Count, is_symbolic, product, size

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = [
    "Number",
    "TensorBase",
    "as_dtype",
    "broadcast_shapes",
    "grad_enabled",
    "leaf_nodes",
    "leaves",
    "no_grad",
]

Number = bool | int | float
Array = npt.NDArray[Any]
Shape = tuple[Any, ...]  # of ints, and of nodes where a size is symbolic
DTypeLike = DType | str | npt.DTypeLike | type
F = TypeVar("F", bound=Callable[..., Any])

_DETACH = Op.DETACH
_FLOAT32 = dtypes.float32
_INT32 = dtypes.int32


# -- the gradient switch and the leaves ---------------------------------------------------------------------------


_LEAF_NUMBERS = itertools.count()


class no_grad:
    """Within the block (or the decorated function) results want no gradient, whatever they are made of. Other threads
    are not concerned.

    >>> from anneal.tensor import Tensor, no_grad
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> with no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> no_grad:
        self._before.append(here.grad)
        here.grad = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        here.grad = self._before.pop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def without_grad(*args: Any, **kwargs: Any) -> Any:
            with no_grad():
                return function(*args, **kwargs)

        return without_grad  # type: ignore[return-value]


def grad_enabled() -> bool:
    """False inside `no_grad`."""
    return here.grad


def leaves() -> list[Tensor]:
    """Every live tensor on which requires_grad was set."""
    return here.context.tensors.live_leaves()  # type: ignore[return-value]


def leaf_nodes(tensor: TensorBase) -> tuple[UOp, ...]:
    """The nodes that stand for a leaf in graphs built so far: its present one and, if it was realised since, that."""
    return (tensor.uop,) if tensor._alias is None else (tensor.uop, tensor._alias)


# -- devices and dtypes -------------------------------------------------------------------------------------------


def as_dtype(dtype: DTypeLike) -> DType:
    """A dtype given as anneal's own, a name, a NumPy dtype, or Python's bool, int or float.

    Raises DTypeError, listing the known names, for anything else.

    >>> as_dtype("half"), as_dtype(int), as_dtype(np.uint8)
    (dtypes.float16, dtypes.int32, dtypes.uint8)
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        return by_name(dtype)
    if dtype is bool:
        return dtypes.bool_
    if dtype is int:
        return _INT32
    if dtype is float:
        return _FLOAT32
    try:
        if isinstance(dtype, (type, np.dtype)):
            return by_name(np.dtype(dtype).name)
    except (TypeError, ValueError):
        pass
    by_name(said(dtype))
    raise AssertionError("unreachable: by_name takes no such name")


def check_device_dtype(device: str, dtype: DType) -> None:
    """Raise DTypeError if `device` cannot hold `dtype`."""
    if device != HOST:
        held = get_device(device).limits.dtypes
        if dtype not in held:
            names = ", ".join(sorted(d.name for d in held))
            raise DTypeError(f"device {device!r} has no {dtype.name}; it has {names}: cast first, or use device 'cpu'")


# -- data in ------------------------------------------------------------------------------------------------------


def _ragged(data: Any) -> str | None:
    """Where a nested list stops being a box, in words; None if it is one."""
    level: list[tuple[str, Any]] = [("", data)]
    while level and any(isinstance(x, (list, tuple)) for _, x in level):
        sizes: dict[int | None, str] = {}
        for where, x in level:
            sizes.setdefault(len(x) if isinstance(x, (list, tuple)) else None, where)
        if len(sizes) > 1:
            (n0, w0), (n1, w1) = list(sizes.items())[:2]
            said = ["is a number" if n is None else f"has {n} items" for n in (n0, n1)]
            return f"data{w0} {said[0]} but data{w1} {said[1]}"
        level = [(f"{where}[{i}]", y) for where, x in level for i, y in enumerate(x)]
    return None


def _array(data: Any, dtype: DType | None) -> Array:
    """`data` as a fresh contiguous array of a dtype that anneal has."""
    weak = isinstance(data, (list, tuple, range))
    if weak and not isinstance(data, range):
        if any(isinstance(x, TensorBase) for x in data):
            raise DTypeError("Tensor: a list of tensors is no data; use Tensor.stack(list) or Tensor.cat(list)")
        fault = _ragged(data)
        if fault is not None:
            raise ShapeError(f"Tensor: a nested list must be a box, but {fault}; pad the shorter one or flatten")
    try:
        array = np.asarray(data)
    except (TypeError, ValueError) as e:
        raise DTypeError(f"Tensor: cannot make a tensor of {type(data).__name__}: {e}") from e
    if weak and array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.float32)
    if array.dtype.name not in _HELD:
        what = type(data).__name__ if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise DTypeError(f"Tensor: cannot make a tensor of {what}; known dtypes: {', '.join(_HELD)}")
    wanted = numpy_dtype(dtype) if dtype is not None else array.dtype
    if dtype is None and weak:
        # Python numbers are weak: 32 bits unless a value needs more or NumPy scalars say otherwise.
        if array.dtype == np.float64:
            wanted = np.dtype(np.float32)
        elif array.dtype == np.int64:
            fits = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
            wanted = np.dtype(np.int32) if fits else array.dtype
    if dtype is not None and dtype.is_int and array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        if low < dtype.min or high > dtype.max:
            raise DTypeError(f"Tensor: values from {low} to {high} do not fit {dtype.name}; choose a wider dtype")
    with np.errstate(all="ignore"):
        return np.array(array, dtype=wanted, order="C", copy=True)


_HELD = tuple(d.name for d in vars(dtypes).values() if isinstance(d, DType))


def wrap_array(array: Array, device: str) -> UOp:
    """A node that holds `array` (contiguous, not aliased by the caller), uploaded when first used."""
    dtype = by_name(array.dtype.name)
    check_device_dtype(device, dtype)
    if array.ndim == 0:
        return const(dtype, array.item())
    storage = host_storage(array.reshape(-1), dtype, device)
    return reshape(UOp(Op.BUFFER, dtype, (), storage), array.shape)


# -- broadcasting -------------------------------------------------------------------------------------------------


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """The shape that `shapes` broadcast to, aligned at the last axis; sizes of 1 repeat.

    Raises ShapeError naming `name`, the shapes and the axis that does not fit.

    >>> broadcast_shapes("add", (4, 1), (3,))
    (4, 3)
    """
    ndim = max(len(s) for s in shapes)
    out = [1] * ndim
    for s in shapes:
        for i, n in enumerate(s, ndim - len(s)):
            if n != 1 and n != out[i]:
                if out[i] != 1:
                    said = " and ".join(str(x) for x in shapes)
                    raise ShapeError(
                        f"{name}: shapes {said} do not broadcast: axis {i - ndim} is {out[i]} in one and {n} in another; "
                        f"sizes must be equal or 1 (aligned at the last axis): reshape, or unsqueeze the missing axis"
                    )
                out[i] = n
    return tuple(out)


def broadcast(u: UOp, shape: Shape) -> UOp:
    """`u` repeated to `shape`, which it is known to broadcast to."""
    if u.shape == shape:
        return u
    return expand(reshape(u, (1,) * (len(shape) - len(u.shape)) + u.shape), shape)


def elementwise(op: Op, src: tuple[UOp, ...], shape: Shape) -> UOp:
    """`op(*src)` with `shape` even where folding leaves a scalar."""
    u = alu(op, src)
    return u if u.shape == shape else broadcast(u, shape)


def axes_of(name: str, axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; None means all. Raises ShapeError for a wrong or repeated one."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list, range)):
        at = axis_of(name, axis, ndim)  # type: ignore[arg-type]
        return (at,) if ndim else ()
    out = sorted([axis_of(name, a, ndim) for a in axis])
    for a, b in zip(out, out[1:], strict=False):
        if a == b:
            raise ShapeError(f"{name}: axis {a} is given twice in {tuple(axis)}")
    return tuple(out) if ndim else ()


def axis_of(name: str, axis: int, ndim: int) -> int:
    """One axis as a non-negative number. Raises ShapeError, listing the valid range, for a wrong one."""
    # A scalar accepts axis 0 and -1, as torch's does.
    n = ndim or 1
    if axis.__class__ is not int:
        axis = whole(name, "an axis", axis)
    if -n <= axis < n:
        return axis + n if axis < 0 else axis
    if not ndim:
        raise ShapeError(f"{name}: axis {axis} does not exist: the tensor has no axes (shape ())")
    raise ShapeError(f"{name}: axis {axis} does not exist: valid axes are {-n} to {n - 1} for {n} axes")


def one_of(name: str, axis: Any, dim: Any, default: Any = None) -> Any:
    """`axis` and `dim` are two spellings of one argument."""
    if dim is None:
        return default if axis is None else axis
    if axis is not None and axis != dim:
        raise ShapeError(f"{name}: axis={axis} and dim={dim} are the same argument; give one of them")
    return dim


def int_args(name: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` alike, as a tuple of ints, and of nodes where a size is symbolic."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    out: list[Any] = []
    for a in args:
        if a.__class__ is int:
            out.append(a)
            continue
        try:
            out.append(size(a) if isinstance(a, (UOp, Count)) else whole(name, "an axis", a))
        except (AttributeError, TypeError, ShapeError):
            raise ShapeError(f"{name}: sizes and axes are ints, not {said(a)}; given {said(args)}") from None
    for n in out:
        if n.__class__ is int and not -(2**31) <= n < 2**31:
            raise ShapeError(f"{name}: sizes and axes are ints of 32 bits, not {n}")
    return tuple(out)


def in_single(keeps: bool = False) -> Callable[[F], F]:
    """For a function made of several ops: floats of 8 and 16 bits become float32 first, and the result is rounded once.

    The result has the dtype that the float tensors among the arguments promote to; with `keeps`, that of the first.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def in_float32(*args: Any, **options: Any) -> Any:
            kinds = [a.uop.dtype for a in (*args, *options.values()) if isinstance(a, TensorBase)]
            if not any(k.is_narrow for k in kinds) or options.get("dtype") is not None:
                return function(*args, **options)
            floats = [k for k in kinds if k.is_float]
            kind = args[0].uop.dtype if keeps else functools.reduce(promote, floats)
            out = function(*[_as_single(a) for a in args], **{n: _as_single(a) for n, a in options.items()})
            return out.cast(kind)

        return in_float32  # type: ignore[return-value]

    return decorate


def _as_single(x: Any) -> Any:
    return x.cast(_FLOAT32) if isinstance(x, TensorBase) and x.uop.dtype.is_narrow else x


# -- the base -----------------------------------------------------------------------------------------------------

_create = object.__new__


class TensorBase(Handle):
    """A node of the graph with a device; see the module's docstring for the layers above."""

    __slots__ = ("_alias", "_spent", "is_leaf")

    # NumPy hands `array + tensor` to the tensor.
    __array_ufunc__: ClassVar[None] = None

    is_leaf: bool
    _alias: UOp | None
    _spent: bool

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("anneal."):
            check_methods(cls, TensorBase)

    def __init__(
        self,
        data: Any,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        kind = None if dtype is None else as_dtype(dtype)
        if isinstance(data, TensorBase):
            moved = data if device is None else data._moved(resolve_device(device))
            self.device = moved.device
            u = moved.uop if kind is None else moved.cast(kind).uop
            if data.requires_grad:
                u = UOp(_DETACH, u.dtype, (u,))
        else:
            self.device = default_device() if device is None else resolve_device(device)
            if isinstance(data, UOp):
                u = data if kind is None else data.cast(kind)
            elif isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
                if kind is None:
                    kind = weak_dtype(data)
                    if kind.is_int and not kind.min <= data <= kind.max:
                        kind = dtypes.int64
                check_fits("Tensor", kind, data)
                check_device_dtype(self.device, kind)
                u = const(kind, data)
            else:
                u = wrap_array(_array(data, kind), self.device)
        self.uop = u
        self._grad = None
        self.is_leaf = True
        self.requires_grad = False
        self._alias = None
        self._spent = False
        self._own()
        if requires_grad:
            self.requires_grad_()

    def _own(self) -> None:
        """Note in the memory this tensor shows whole that it is this tensor's, unless a live one has it (for jit)."""
        storage = storage_of(self.uop)
        if storage is not None and (storage.owner is None or storage.owner() is None):
            storage.owner = weakref.ref(self)

    # -- making results -------------------------------------------------------------------------------------------

    def _new(self, u: UOp, *others: TensorBase) -> Self:
        """The tensor of a node made from this tensor and `others`."""
        t = _create(type(self))
        t.device = self.device
        t._grad = None
        t.is_leaf = True
        t.requires_grad = False
        t._alias = None
        t._spent = False
        wants = self.requires_grad
        if others and not wants:
            for o in others:
                wants = wants or o.requires_grad
        if wants:
            if not here.grad:
                u = UOp(_DETACH, u.dtype, (u,))
            elif u.dtype.is_float:
                t.requires_grad = True
                t.is_leaf = False
        t.uop = u
        return t

    @classmethod
    def _fresh(cls, u: UOp, device: str | None = None, requires_grad: bool | None = None) -> Self:
        """The tensor of a node made from nothing; device as `default_device`."""
        t = _create(cls)
        t.device = default_device() if device is None else resolve_device(device)
        check_device_dtype(t.device, u.dtype)
        t._grad = None
        t.is_leaf = True
        t.requires_grad = False
        t._alias = None
        t._spent = False
        t.uop = u
        return t.requires_grad_() if requires_grad else t

    def _lift(self, name: str, other: Any) -> Self:
        """`other` as a tensor on this device: itself, or an array or number (weak dtype) wrapped."""
        if isinstance(other, TensorBase):
            if other.device != self.device:
                self._mixed(name, other)
            return other  # type: ignore[return-value]
        if isinstance(other, np.generic):
            other = other.item()
        if isinstance(other, (bool, int, float)):
            return self._new_plain(weak_const(name, self.uop.dtype, other))
        if isinstance(other, (np.ndarray, list, tuple)):
            return type(self)(other, device=self.device)
        if isinstance(other, UOp) and is_symbolic(other):
            # a size is a Python number: it takes the tensor's dtype within its kind or above it
            here = self.uop.dtype
            return self._new_plain(other if here is dtypes.bool_ else other.cast(here))
        raise DTypeError(f"{name}: takes a tensor, an array or a number, not {type(other).__name__}")

    def _new_plain(self, u: UOp) -> Self:
        t = _create(type(self))
        t.device = self.device
        t._grad = None
        t.is_leaf = True
        t.requires_grad = False
        t._alias = None
        t._spent = False
        t.uop = u
        return t

    def _mixed(self, name: str, other: TensorBase) -> NoReturn:
        raise DeviceError(
            f"{name}: one tensor is on {self.device!r} and the other on {other.device!r}; "
            f"move one with .to({self.device!r}) or .to({other.device!r})"
        )

    # -- facts ----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The type of every element."""
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.uop.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.uop.shape)

    def numel(self) -> int:
        """The number of elements.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 3).numel()
        6
        """
        count: int = product(self.uop.shape)
        return count

    @checked
    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or the size of one axis.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 3).size(), Tensor.zeros(2, 3).size(-1)
        ((2, 3), 3)
        """
        if dim is None:
            return self.uop.shape
        if not self.uop.shape:
            raise ShapeError("size: a tensor of shape () has no axes")
        n: int = self.uop.shape[axis_of("size", dim, self.ndim)]
        return n

    def element_size(self) -> int:
        """Bytes of one element in host memory."""
        return self.uop.dtype.itemsize

    def nbytes(self) -> int:
        """Bytes of all elements in host memory."""
        return self.numel() * self.uop.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float."""
        return self.uop.dtype.is_float

    @property
    def is_realized(self) -> bool:
        """Whether the values are in memory already."""
        return storage_of(self.uop) is not None

    def __len__(self) -> int:
        if not self.uop.shape:
            raise TypeError("len: a tensor of shape () has no length")
        n = self.uop.shape[0]
        if not isinstance(n, int):
            raise TypeError(f"len: the first axis has {n} elements; a length is a number: use .shape[0]")
        return n

    __hash__ = object.__hash__

    # -- gradient flags -------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Self | None:
        """What backward() has added up for this leaf. Raises JitError for one that was taken inside a jit function."""
        if self._grad is INSIDE:
            raise JitError(
                f"the gradient of a tensor of shape {self.shape} was taken inside a jit function and stays there: return "
                "it from the function, or use it inside; a function that takes it again starts with zero_grad()"
            )
        found: Self | None = self._grad
        return found

    @grad.setter
    def grad(self, value: Self | None) -> None:
        self._grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for (or decline) a gradient of this tensor; returns it. Raises DTypeError if it is not a float.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        if requires_grad and not self.uop.dtype.is_float:
            raise DTypeError(
                f"requires_grad: only floats have gradients, not {self.uop.dtype.name}; use .float() first"
            )
        if not requires_grad and not self.is_leaf:
            raise GradientError("requires_grad: only a leaf can decline its gradient; use .detach()")
        self.requires_grad = requires_grad
        if requires_grad and self.is_leaf:
            if storage_of(self.uop) is None and self.uop.tag is None:
                # A lazy leaf needs a node of its own: equal graphs are one node, and folding looks through others.
                self.uop = UOp(Op.CONTIGUOUS, self.uop.dtype, (self.uop,), tag=("leaf", next(_LEAF_NUMBERS)))
            here.context.tensors.leaves[id(self)] = self
        else:
            here.context.tensors.leaves.pop(id(self), None)
        return self

    def detach(self) -> Self:
        """The same values, through which no gradient flows.

        >>> from anneal.tensor import Tensor
        >>> x = Tensor([3.0], requires_grad=True)
        >>> (x * x.detach()).sum().backward()
        >>> x.grad
        Tensor([3.], dtype=float32)
        """
        u = self.uop
        return self._new_plain(UOp(_DETACH, u.dtype, (u,)) if self.requires_grad else u)

    # -- dtypes and devices ---------------------------------------------------------------------------------------

    @checked
    def cast(self, dtype: DTypeLike) -> Self:
        """Every element converted to `dtype`. Floats truncate to ints and stop at the ends of the range.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.7, -1.7]).cast("int32")
        Tensor([ 1, -1], dtype=int32)
        """
        kind = dtype if isinstance(dtype, DType) else as_dtype(dtype)
        if kind is self.uop.dtype:
            return self
        check_device_dtype(self.device, kind)
        return self._new(self.uop.cast(kind))

    @checked
    def bitcast(self, dtype: DTypeLike) -> Self:
        """The same bits read as another dtype of the same width. Raises DTypeError if the widths differ.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0]).bitcast("int32")
        Tensor([1065353216], dtype=int32)
        """
        kind = as_dtype(dtype)
        here = self.uop.dtype
        if kind is here:
            return self
        if kind.bits != here.bits or dtypes.bool_ in (kind, here):
            raise DTypeError(f"bitcast: {here.name} and {kind.name} differ in width; use .cast for a conversion")
        return self._new(UOp(Op.BITCAST, kind, (self.uop,)))

    @checked
    def to(self, *args: Any, device: str | None = None, dtype: DTypeLike | None = None) -> Self:
        """A copy on another device, of another dtype, or both; the tensor itself if nothing changes.

        A copy on another device is a new leaf: gradients do not flow back between devices.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2]).to("float32").to("cpu")
        Tensor([1., 2.], dtype=float32)
        """
        for a in args:
            if isinstance(a, str) and a in device_names():
                device = a
            elif isinstance(a, str) and a not in _KNOWN_DTYPES:
                raise DeviceError(
                    f"to: {a!r} is neither a device ({', '.join(device_names())}) nor a dtype ({', '.join(_KNOWN_DTYPES)})"
                )
            elif isinstance(a, TensorBase):
                device, dtype = a.device, a.dtype
            else:
                dtype = a
        out = self if device is None else self._moved(resolve_device(device))
        return out if dtype is None else out.cast(dtype)

    def _moved(self, device: str) -> Self:
        if device == self.device:
            return self
        return type(self)(self.numpy(), device=device, requires_grad=self.requires_grad)

    def cpu(self) -> Self:
        """`.to("cpu")`."""
        return self._moved("cpu")

    # -- values ---------------------------------------------------------------------------------------------------

    def realize(self, *others: TensorBase) -> Self:
        """Compute the values of this tensor and `others` now, together; returns this tensor.

        >>> from anneal.tensor import Tensor
        >>> x = (Tensor.arange(3) + 1).realize()
        >>> x.is_realized
        True
        """
        realize([self, *others])
        return self

    def _settle(self, view: UOp) -> None:
        """Realisation replaces the node by `view`, a BUFFER in this shape, and keeps what a gradient still needs."""
        old, self.uop = self.uop, view
        if self.requires_grad and here.grad and storage_of(old) is None:
            if self.is_leaf:
                # Graphs made while the leaf was lazy hold its old node. One is kept, so that steps do not chain.
                self._alias = old
            elif not self._spent:
                storage = storage_of(view)
                assert storage is not None
                storage.origin = old

    @checked
    def contiguous(self) -> Self:
        """The same values, materialised before anything that follows is computed."""
        return self._new(UOp(Op.CONTIGUOUS, self.uop.dtype, (self.uop,)))

    def _kept(self) -> UOp:
        """The node with its values in memory, for what will be compared bit for bit with them later.

        Two kernels that each compute a float may round it differently (a GPU fuses multiply and add as it likes), and
        `x == x.max()` must find its maximum. The tensor itself goes on from the same memory.
        """
        u = base = self.uop
        while base.op in MOVEMENT:
            base = base.src[0]
        if not u.dtype.is_float or base.op in (Op.BUFFER, Op.CONTIGUOUS, Op.CONST):
            return u
        self.uop = UOp(Op.CONTIGUOUS, u.dtype, (u,))
        return self.uop

    @checked
    def clone(self) -> Self:
        """A tensor of the same values with a life of its own; gradients flow through."""
        return self._new(self.uop)

    @checked
    def assign(self, x: Any) -> Self:
        """Take the values of `x` (same shape, cast to this dtype); keeps identity, device and requires_grad.

        Tensors made from the old values keep them. No gradient flows through an assignment.

        Raises ShapeError if the shapes differ, DeviceError if the devices do.

        >>> from anneal.tensor import Tensor
        >>> x = Tensor([1.0, 2.0])
        >>> y = x + 1
        >>> x.assign(x * 10), y
        (Tensor([10., 20.], dtype=float32), Tensor([2., 3.], dtype=float32))
        """
        other = self._lift("assign", x)
        if other.uop.shape != self.uop.shape:
            if isinstance(x, TensorBase) or other.uop.shape:
                raise ShapeError(
                    f"assign: a tensor of shape {self.shape} cannot take values of shape {other.shape}; "
                    f"use .reshape or .expand on the values"
                )
        u = broadcast(other.uop.cast(self.uop.dtype), self.uop.shape)
        if other.requires_grad:
            u = UOp(_DETACH, u.dtype, (u,))
        if storage_of(self.uop) is None:
            outdate_captures("a lazy tensor was assigned")
        if self.requires_grad and storage_of(u) is None:
            # Folding must not look through a leaf.
            u = UOp(Op.CONTIGUOUS, u.dtype, (u,))
        storage = storage_of(u)
        owner = None if storage is None or storage.owner is None else storage.owner()
        # Memory of its own: `x` may be a passing value or change later, and jit looks for the owner of what it finds.
        if storage is not None and storage.host is None and owner is not None and owner is not self:
            u = UOp(Op.CONTIGUOUS, u.dtype, (u,))
        elif storage is not None and storage.host is not None:
            u = reshape(UOp(Op.BUFFER, u.dtype, (), host_storage(storage.host, u.dtype, self.device)), u.shape)
        self._assign(u)
        return self

    def _assign(self, u: UOp) -> None:
        """Become the tensor of another node; a jit is told."""
        self.uop = u
        self._alias = None
        self._own()
        for watch in here.assigned:
            watch.append(weakref.ref(self))

    def numpy(self) -> Array:
        """The values as a new NumPy array.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2]]).numpy()
        array([[1, 2]], dtype=int32)
        """
        u = self.uop
        while u.op is _DETACH:
            u = u.src[0]
        if u.op is Op.CONST:
            return np.array(u.arg, numpy_dtype(u.dtype))
        if 0 in u.shape:
            return np.zeros(bound_shape(u.shape), numpy_dtype(u.dtype))
        if here.assigned:  # only while a jit function runs
            forbid_in_jit("a value read back", "return the tensor, and read it outside")
        storage = storage_of(u)
        if storage is None:
            self.realize()
            storage = storage_of(self.uop)
            assert storage is not None, self.uop
        host = storage.host
        if host is not None:
            return seen(host, u.shape).copy()
        device = get_device(storage.device)
        with device.lock:
            array = device.download(storage.ensure(), needed(u.shape), storage.dtype)
        return seen(array, u.shape)

    @checked
    def item(self) -> Number:
        """The one value as a Python number. Raises ShapeError if there are more or none.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[2.5]]).item()
        2.5
        """
        if self.numel() != 1:
            raise ShapeError(f"item: a tensor of shape {self.shape} has {self.numel()} values, not one; use .tolist()")
        value: Number = self.numpy().item()
        return value

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for shape ().

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self.numpy().tolist()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: Any = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(
                f"bool: the truth of a tensor of shape {self.shape} is ambiguous; use .any() or .all() and then .item()"
            )
        return bool(self.numpy().item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.uop.dtype.is_float or self.uop.shape:
            raise TypeError(
                f"only an integer tensor of shape () is an index, not {self.dtype.name} of shape {self.shape}"
            )
        return int(self.item())


_KNOWN_DTYPES = (*_HELD, "half", "float", "double", "int", "long")


def weak_dtype(value: Number) -> DType:
    """The dtype of a Python number that stands alone."""
    if isinstance(value, bool):
        return dtypes.bool_
    return _INT32 if isinstance(value, int) else _FLOAT32


def check_fits(name: str, dtype: DType, value: Number) -> None:
    if dtype.is_int and isinstance(value, int) and not dtype.min <= value <= dtype.max:
        raise DTypeError(
            f"{name}: {value} does not fit {dtype.name} ({dtype.min} to {dtype.max}); cast to a wider dtype"
        )


def weak_const(name: str, dtype: DType, value: Number) -> UOp:
    """A Python number beside a tensor of `dtype`: it takes the tensor's dtype unless its kind is higher."""
    if isinstance(value, float):
        return const(dtype if dtype.is_float else _FLOAT32, value)
    if isinstance(value, bool):
        return const(dtype, value)
    if dtype is dtypes.bool_:
        dtype = _INT32
    check_fits(name, dtype, value)
    return const(dtype, value)


def common_dtype(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Both nodes cast to the dtype they promote to."""
    da, db = a.dtype, b.dtype
    if da is db:
        return a, b
    d = promote(da, db)
    return a.cast(d), b.cast(d)
