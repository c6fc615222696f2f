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

import itertools
import weakref
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from anneal.backend import device_names, get_device, numpy_dtype
from anneal.errors import DeviceError, DTypeError, GradientError, ShapeError
from anneal.ops import (
    HELD,
    Array,
    DTypeLike,
    Shape,
    array_of,
    as_dtype,
    axis_of,
    check_device_dtype,
    check_methods,
    checked,
    wrap_array,
)
from anneal.ops.nodes import Number, broadcast, check_fits, reshape, weak_const, weak_dtype
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
from anneal.uop import MOVEMENT, DType, Op, UOp, const, dtypes
from anneal.uop.sizes import is_symbolic, product

__all__ = ["TensorBase"]


_DETACH = Op.DETACH
_FLOAT32 = dtypes.float32
_INT32 = dtypes.int32
_KNOWN_DTYPES = (*HELD, "half", "float", "double", "int", "long")
_LEAF_NUMBERS = itertools.count()


# -- the base -----------------------------------------------------------------------------------------------------

_create = object.__new__


class TensorBase(Handle):
    """A node of the graph with a device; see the module's docstring for the layers above."""

    __slots__ = ("_alias", "_spent", "is_leaf")

    # NumPy hands `array + tensor` to the tensor.
    __array_ufunc__: ClassVar[None] = None

    _made: ClassVar[type[Self]]  # the class of what ops make of a tensor: its own, but for a subclass that says another
    is_leaf: bool
    _alias: UOp | None
    _spent: bool

    def __init_subclass__(cls) -> None:
        if "_made" not in vars(cls):
            cls._made = cls  # type: ignore[assignment]
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
                u = wrap_array(array_of(data, kind), self.device)
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
        t = _create(self._made)
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
            return self._made(other, device=self.device)
        if isinstance(other, UOp) and is_symbolic(other):
            # a size is a Python number: it takes the tensor's dtype within its kind or above it
            here = self.uop.dtype
            return self._new_plain(other if here is dtypes.bool_ else other.cast(here))
        raise DTypeError(f"{name}: takes a tensor, an array or a number, not {type(other).__name__}")

    def _new_plain(self, u: UOp) -> Self:
        t = _create(self._made)
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
        if here.recordings:
            here.recordings[-1].note_grad(self)
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
        return self._made(self.numpy(), device=device, requires_grad=self.requires_grad)

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
            u = self.uop  # its sizes may have been found only now
            storage = storage_of(u)
            assert storage is not None, u
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
