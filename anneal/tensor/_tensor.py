"""The class `Tensor`: its state, what goes in and out, and the ops as its methods: functions of `anneal/ops/`, where
their signatures, examples and errors stand. The class names each once, so this file is long.

Gradients need no tape: `backward` walks the graph of the loss. What it must know besides is kept here. A *leaf* is a
tensor on which `requires_grad` was set. Realising a tensor replaces its node by a BUFFER; where a gradient has to go on
through it, the buffer's Storage remembers the graph it was computed from as `origin`.
"""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from anneal.backend import device_names, get_device, is_foreign, numpy_dtype
from anneal.doors import MethodsLater, statics_later
from anneal.errors import DeviceError, DTypeError, GradientError, ShapeError
from anneal.ops import (
    HELD,
    Array,
    DTypeLike,
    Shape,
    array_of,
    as_dtype,
    check_device_dtype,
    checked,
    deferred,
    made,
    no_grad,
    wrap_array,
)
from anneal.ops.nodes import Number, broadcast, check_fits, repeated, reshape, weak_const, weak_dtype
from anneal.runtime import (
    INSIDE,
    SEEN,
    UNSEEN,
    Handle,
    JitError,
    bound_shape,
    default_device,
    forbid_in_jit,
    here,
    host_storage,
    is_computed_late,
    needed,
    note_assigned,
    note_become,
    note_made,
    outdate_captures,
    resolve_device,
    seen,
    storage_of,
)
from anneal.tensor import _interchange as interchange
from anneal.tensor import _older as older
from anneal.tensor._grad_fn import grad_fn
from anneal.tensor._repr import html, text
from anneal.uop import MOVEMENT, DType, Op, UOp, arena, const, dtypes
from anneal.uop.sizes import is_symbolic, product

if TYPE_CHECKING:
    from anneal import ops, transforms
    from anneal.ops import operators
else:  # a family of ops is imported when one of its methods is first asked for
    ops, operators, transforms = map(MethodsLater, ("anneal.ops", "anneal.ops.operators", "anneal.transforms"))

__all__ = ["Tensor"]

_DETACH = Op.DETACH
_KNOWN_DTYPES = (*HELD, "half", "float", "double", "int", "long")
_create = object.__new__


def _of_linalg(self: Tensor, *args: Any, **options: Any) -> Any:
    """The type of `x.det()` and its kin."""


class Tensor(Handle):
    """A lazy array of numbers: values are computed when they are read.

    `Tensor(data, device=None, dtype=None, requires_grad=None)`: data is a number, a nested list, an array or a tensor.
    Python floats become float32, ints int32, bools bool; an array keeps its dtype. As in torch, several ints are sizes:
    `Tensor(2, 3)` has six zeros, `Tensor()` nothing. Operations build a graph; printing, `.numpy()`, `.item()`,
    `.tolist()` and `.realize()` compute.

    Raises ShapeError for a ragged list, DTypeError for data or a dtype that cannot be, DeviceError for an unknown or
    missing device.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x).sum(axis=0)
    Tensor([22., 32.], dtype=float32)
    """

    __slots__ = ()

    __array_priority__: ClassVar[int] = 1000  # NumPy hands `array + tensor` to the tensor

    _made: ClassVar[type[Tensor]]  # what ops make of a tensor: its own class, but for a subclass that says another

    def __init_subclass__(cls) -> None:
        cls._made = vars(cls).get("_made", cls)
        made.register(cls)

    def __init__(
        self,
        data: Any = (),
        device: str | None = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
        *sizes: int,
    ) -> None:
        if isinstance(device, int):
            data, device, dtype, requires_grad = interchange.sized(data, device, dtype, requires_grad, sizes)
        kind = None if dtype is None else as_dtype(dtype)
        if isinstance(data, Tensor):
            moved = data if device is None else data._moved(resolve_device(device))
            self._device = moved._device
            u = moved.uop if kind is None else moved.cast(kind).uop
            if data._wants:
                u = UOp(_DETACH, u.dtype, (u,))
        else:
            self._device = default_device() if device is None else resolve_device(device)
            if isinstance(data, UOp):
                u = data if kind is None else data.cast(kind)
            elif isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
                if kind is None:
                    kind = weak_dtype(data)
                    if kind.is_int and not kind.min <= data <= kind.max:
                        kind = dtypes.int64
                check_fits("Tensor", kind, data)
                check_device_dtype(self._device, kind)
                if here.made is not None:
                    note_made(None, repr(data).encode(), kind)
                u = const(kind, data)
            else:
                u = wrap_array(array_of(data, kind), self._device)
        self.late = None
        self.uop = u
        self._grad = None
        self._leaf = True
        self._wants = False
        self._alias = self._base = self._views = None
        self._spent = False
        self._used = 0
        self._own()
        if requires_grad:
            self.requires_grad_()

    def _own(self) -> None:
        """Note in the memory this tensor shows whole that it is this tensor's, unless a live one has it (for jit)."""
        storage = storage_of(self.uop)
        if storage is not None and (storage.owner is None or storage.owner() is None):
            storage.owner = weakref.ref(self)

    # -- making results -------------------------------------------------------------------------------------------

    def _new(self, u: UOp, *others: Tensor) -> Tensor:
        """The tensor of a node made from this tensor and `others`."""
        t = _plain(self._made, u, self._device)
        wants = self._wants
        for o in others:
            if o._wants:
                wants, o._used = True, UNSEEN
        if wants:
            self._used = UNSEEN
            if not here.grad:
                t.uop = UOp(_DETACH, u.dtype, (u,))
            elif u.dtype.is_float:
                t._wants = True
                t._leaf = False
        return t

    @classmethod
    def _fresh(cls, u: UOp, device: str | None = None, requires_grad: bool | None = None) -> Tensor:
        """The tensor of a node made from nothing; device as `default_device`."""
        t = _plain(cls, u, default_device() if device is None else resolve_device(device))
        check_device_dtype(t._device, u.dtype)
        return t.requires_grad_() if requires_grad else t

    @classmethod
    def _from_uop(cls, u: UOp, device: str) -> Tensor:
        """The tensor that shows a node."""
        return cls._fresh(u, device)

    def _lift(self, name: str, other: Any) -> Tensor:
        """`other` as a tensor on this device: itself, or an array or number (weak dtype) wrapped."""
        if isinstance(other, Tensor):
            if other._device != self._device:
                self._mixed(name, other)
            return other
        if isinstance(other, np.generic):
            other = other.item()
        if isinstance(other, (bool, int, float)):
            return self._new_plain(weak_const(name, self.uop.dtype, other))
        if isinstance(other, (np.ndarray, list, tuple)):
            return self._made(other, device=self._device)
        if isinstance(other, UOp) and is_symbolic(other):
            # a size is a Python number: it takes the tensor's dtype within its kind or above it
            here = self.uop.dtype
            return self._new_plain(other if here is dtypes.bool_ else other.cast(here))
        raise DTypeError(f"{name}: takes a tensor, an array or a number, not {type(other).__name__}")

    def _new_plain(self, u: UOp) -> Tensor:
        """The tensor of a node through which no gradient flows."""
        return _plain(self._made, u, self._device)

    def _mixed(self, name: str, other: Tensor) -> NoReturn:
        raise DeviceError(
            f"{name}: one tensor is on {self.device!r} and the other on {other.device!r}; "
            f"move one with .to({self.device!r}) or .to({other.device!r})"
        )

    # -- facts ----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self._looks.shape

    @property
    def dtype(self) -> DType:
        """The type of every element."""
        return self._looks.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes.

        >>> Tensor([[1, 2]]).dim()
        2
        """
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        count: int = product(self.shape)
        return count

    @property
    def size(self) -> interchange.Elements:
        """The number of elements; called, the shape or the size of one axis. Symbolic sizes count as their largest.

        >>> x = Tensor.zeros(2, 3)
        >>> x.size == 6, x.size(), x.size(-1)
        (True, (2, 3), 3)
        """
        return interchange.Elements.of(self.shape)

    def element_size(self) -> int:
        """Bytes of one element in host memory.

        >>> Tensor([1]).element_size()
        4
        """
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """True if the dtype is a float.

        >>> Tensor([1]).is_floating_point()
        False
        """
        return self.dtype.is_float

    is_complex, is_conj, is_neg, is_inference, is_pinned, is_shared = (
        checked(older.no, name)
        for name in ("is_complex", "is_conj", "is_neg", "is_inference", "is_pinned", "is_shared")
    )
    is_cuda = is_sparse = is_sparse_csr = is_quantized = is_meta = is_mps = is_xpu = is_nested = is_mkldnn = False
    is_signed = older.is_signed
    is_nonzero, is_same_size = older.is_nonzero, older.is_same_size
    get_device = older.get_device
    pin_memory = share_memory_ = to_dense = older.itself
    detach_ = older.detach_
    data_ptr, set_ = older.data_ptr, older.set_
    type = older.type
    layout = "strided"
    itemsize, nbytes, is_cpu, real = map(property, (older.itemsize, older.nbytes, older.is_cpu, older.real))

    @property
    def is_realized(self) -> bool:
        """True if the values are in memory already."""
        return not is_computed_late(self) and storage_of(self.uop) is not None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a tensor of shape () has no length")
        n = self.shape[0]
        if not isinstance(n, int):
            raise TypeError(f"len: the first axis has {n} elements; a length is a number: use .shape[0]")
        return n

    # -- gradient flags -------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward() has added up for this leaf. JitError for one taken inside a jit function."""
        if here.recordings:
            here.recordings[-1].note_read(self)
        if self._grad is INSIDE:
            raise JitError(
                f"the gradient of a tensor of shape {self.shape} was taken inside a jit function and stays there: "
                "return it from the function, or use it inside; a function that takes it again starts with zero_grad()"
            )
        found: Tensor | None = self._grad
        if found is None and not self._leaf and not interchange.retains_grad(self):
            warnings.warn(
                "grad: this tensor is no leaf, and backward() gives it no gradient: call retain_grad() on it before, "
                "or ask the leaf that it was computed from",
                stacklevel=2,
            )
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise DTypeError(f"grad: a gradient is a tensor or None, not {type(value).__name__}")
            scaled = self.dtype.is_narrow and value.dtype is dtypes.float32  # half of it may be 0 or infinite
            for what in ("shape", "device") if scaled else ("shape", "dtype", "device"):
                if getattr(value, what) != getattr(self, what):
                    raise GradientError(
                        f"grad: a gradient has its tensor's {what}, {getattr(self, what)}, not {getattr(value, what)}"
                    )
        if here.recordings:
            here.recordings[-1].note_grad(self, value)
        self._grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for a gradient of this tensor (`requires_grad=False`: none); returns it. DTypeError if it is no float.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        if requires_grad and not self.uop.dtype.is_float:
            raise DTypeError(
                f"requires_grad: only floats have gradients, not {self.uop.dtype.name}; use .float() first"
                + ("" if self.shape else ", or write empty(n) for torch's Tensor(n), n elements: Tensor(n) is a number")
            )
        if not requires_grad and not self._leaf:
            raise GradientError("requires_grad: only a leaf can decline its gradient; use .detach()")
        if self._wants is not requires_grad:
            here.context.tensors.flags += 1
        self._wants = requires_grad
        if requires_grad and self._leaf:
            if storage_of(self.uop) is None and self.uop.tag is None:
                # A lazy leaf needs a node of its own: equal graphs are one node, and folding looks through others.
                self.uop = arena().fresh(Op.CONTIGUOUS, self.uop, "leaf")
            elif interchange.has_twin(self):
                self.uop = self._leaf_of(self.uop)  # two parameters of one tensor have a gradient each
            here.context.tensors.leaves[id(self)] = self
        else:
            here.context.tensors.leaves.pop(id(self), None)
        return self

    def _set_wants(self, value: Any) -> None:
        if not isinstance(value, bool):
            raise GradientError(f"requires_grad: True or False, not {value!r}")
        if value and not self._leaf:
            raise GradientError(
                "requires_grad: a computed tensor that requires a gradient stays as it is: retain_grad() keeps its "
                "gradient, .detach() makes a leaf"
            )
        self.requires_grad_(value)

    @deferred
    def detach(self) -> Tensor:
        """The same values, through which no gradient flows.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> (x * x.detach()).sum().backward()
        >>> x.grad
        Tensor([3.], dtype=float32)
        """
        u = self.uop
        return self._new_plain(UOp(_DETACH, u.dtype, (u,)) if self._wants else u)

    backward = transforms.backward
    _captured_backward = staticmethod(transforms.captured_backward)

    def zero_grad(self) -> None:
        """Set `.grad` to None.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.sum().backward()
        >>> w.zero_grad()
        >>> w.grad is None
        True
        """
        self.grad = None

    register_hook = transforms.register_hook
    register_post_accumulate_grad_hook = transforms.register_post_accumulate_grad_hook
    retain_grad = transforms.retain_grad
    retains_grad = property(interchange.retains_grad)
    grad_fn = property(grad_fn)
    data = property(interchange.data, interchange.set_data)

    if TYPE_CHECKING:  # found by `Handle.__getattr__`
        cholesky = cholesky_inverse = cholesky_solve = det = inverse = logdet = lu = lu_solve = matrix_exp = _of_linalg
        igamma = igammac = pinverse = qr = slogdet = svd = triangular_solve = _of_linalg

    # -- dtypes and devices ---------------------------------------------------------------------------------------

    @checked
    def cast(self, dtype: DTypeLike) -> Tensor:
        """The tensor converted to `dtype`. Floats truncate to ints.

        >>> Tensor([1.7, -1.7]).cast("int32")
        Tensor([ 1, -1], dtype=int32)
        """
        kind = dtype if isinstance(dtype, DType) else as_dtype(dtype)
        if kind is self.uop.dtype:
            return self
        check_device_dtype(self._device, kind)
        return self._new(self.uop.cast(kind))

    @checked
    def bitcast(self, dtype: DTypeLike) -> Tensor:
        """The same bits read as another dtype of the same width. Raises DTypeError if the widths differ.

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
    def to(
        self,
        *args: Any,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Tensor:
        """A copy on another device, of another dtype, or both; the tensor itself if nothing changes, or, with `copy`, a
        `clone`. `non_blocking` is ignored.

        A copy on another device is a new leaf: gradients do not flow back between devices.

        >>> Tensor([1, 2]).to("float32").to("cpu")
        Tensor([1., 2.], dtype=float32)
        """
        flags = [a for a in args if isinstance(a, bool)]  # torch's last arguments by position: non_blocking, copy
        if len(flags) > 2 or (flags and list(args[-len(flags) :]) != flags):
            raise DTypeError("to: takes a device, a dtype or a tensor, and then non_blocking and copy")
        copy = flags[1] if len(flags) == 2 else copy
        for a in args[: len(args) - len(flags)]:
            if isinstance(a, str) and (a in device_names() or is_foreign(a)):
                device = a
            elif isinstance(a, str) and a not in _KNOWN_DTYPES:
                raise DeviceError(
                    f"to: {a!r} is neither a device ({', '.join(device_names())}) nor a dtype "
                    f"({', '.join(_KNOWN_DTYPES)})"
                )
            elif isinstance(a, Tensor):
                device, dtype = a.device, a.dtype
            else:
                dtype = a
        out = self if device is None else self._moved(resolve_device(device))
        out = out if dtype is None else out.cast(dtype)
        return out.clone() if copy and out is self else out

    def _moved(self, device: str) -> Tensor:
        if device == self._device:
            return self
        return self._made(self.numpy(), device=device, requires_grad=self._wants)

    def cpu(self) -> Tensor:
        """`.to("cpu")`.

        >>> Tensor([1, 2]).cpu().device
        'cpu'
        """
        return self._moved("cpu")

    # -- values ---------------------------------------------------------------------------------------------------

    def realize(self, *others: Tensor) -> Self:
        """Compute the values of this tensor and `others` now, together; returns this tensor.

        >>> x = (Tensor.arange(3) + 1).realize()
        >>> x.is_realized
        True
        """
        from anneal.runtime import realize

        realize([self, *others])
        return self

    def _settle(self, view: UOp) -> None:
        """Realisation replaces the node by `view`, a BUFFER in this shape, and keeps what a gradient still needs."""
        if self._base is not None:
            self._is_part()  # or it lets go of what it was a part of
        done = self._spent if not self._leaf else self.late is not None and not self.late.is_used()
        if done or not (self._wants and here.grad):
            self.uop, self.late = view, None
            return
        late, computed = self.late, is_computed_late(self) and not self._leaf
        if late is not None and late.is_used():
            self._used = SEEN
        old: Any = late.as_origin() if late is not None and computed else self.uop
        self.uop, self.late = view, None
        if computed or storage_of(old) is None:
            if self._leaf:
                # Graphs made while the leaf was lazy hold its old node. One is kept, so that steps do not chain.
                self._alias = old
            else:
                storage = storage_of(view)
                assert storage is not None
                storage.made_by = old

    @checked
    def contiguous(self) -> Tensor:
        """The same values, materialised before later ops are computed.

        >>> Tensor([[1, 2]]).T.contiguous().shape
        (2, 1)
        """
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
    def clone(self) -> Tensor:
        """An independent copy, through which gradients flow.

        >>> Tensor([1, 2]).clone()
        Tensor([1, 2], dtype=int32)
        """
        return self._new(self.uop)

    @checked
    def assign(self, x: Any) -> Self:
        """Take the values of `x` (same shape, cast to this dtype); keeps identity, device and requires_grad.

        Tensors made from the old values keep them. No gradient flows through an assignment.

        Raises ShapeError if the shapes differ, DeviceError if the devices do.

        >>> x = Tensor([1.0, 2.0])
        >>> y = x + 1
        >>> x.assign(x * 10), y
        (Tensor([10., 20.], dtype=float32), Tensor([2., 3.], dtype=float32))
        """
        other = self._lift("assign", x)
        if other.uop.shape != self.uop.shape:
            if isinstance(x, Tensor) or other.uop.shape:
                raise ShapeError(
                    f"assign: a tensor of shape {self.shape} cannot take values of shape {other.shape}; "
                    f"use .reshape or .expand on the values"
                )
        u = broadcast(other.uop.cast(self.uop.dtype), self.uop.shape)
        if other._wants:
            u = UOp(_DETACH, u.dtype, (u,))
        if storage_of(self.uop) is None:
            outdate_captures("a lazy tensor was assigned")
        if self._wants and storage_of(u) is None:
            u = self._leaf_of(u)  # folding must not look through a leaf
        self._take(u)
        return self

    def _leaf_of(self, u: UOp) -> UOp:
        """A node of these values that no other leaf shows: two that take equal values have a gradient each."""
        return arena().own(Op.CONTIGUOUS, u, "leaf")

    def _take(self, u: UOp) -> None:
        """Show the values of a node of this shape and dtype from now on, in memory of one's own."""
        storage = storage_of(u)
        owner = None if storage is None or storage.owner is None else storage.owner()
        # Memory of its own: the node may be a passing value or change later, and jit looks for the owner of what it
        # finds.
        if storage is not None and storage.host is None and owner is not None and owner is not self:
            u = self._leaf_of(u) if self._wants and self.is_leaf else UOp(Op.CONTIGUOUS, u.dtype, (u,))
        elif storage is not None and storage.host is not None:
            u = reshape(UOp(Op.BUFFER, u.dtype, (), host_storage(storage.host, u.dtype, self._device)), u.shape)
        self._assign(u)

    def _show(self, u: UOp) -> None:
        """Go on from another node of the same values; graphs of the old one keep it."""
        note_become(self)
        self.late, self.uop, self._alias, self._used = None, u, None, 0

    def _become(self, u: UOp) -> None:
        """Show other values from now on, in all views of them; graphs of the old node keep it."""
        link = self._base
        if link is not None and self._is_part():
            root: Any = link.root
            root._take(link.recipe.written("assign", root.uop, u))
        self._show(u)
        if self._views is not None:
            self._outdate_views()

    def _assign(self, u: UOp) -> None:
        """`_become`, of which a jit is told."""
        self._become(u)
        self._own()
        note_assigned(self)

    def numpy(self) -> Array:
        """The values as a new NumPy array.

        >>> Tensor([[1, 2]]).numpy()
        array([[1, 2]], dtype=int32)
        """
        here.effects += 1
        u = self._looks
        while u.op is _DETACH:
            u = u.src[0]
        if (number := repeated(u)) is not None:
            return np.full(bound_shape(u.shape), number, numpy_dtype(u.dtype))
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

        >>> Tensor([[2.5]]).item()
        2.5
        """
        if self.numel() != 1:
            raise ShapeError(f"item: a tensor of shape {self.shape} has {self.numel()} values, not one; use .tolist()")
        value: Number = self.numpy().item()
        return value

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for shape ().

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self.numpy().tolist()

    def __repr__(self) -> str:
        return text(self)

    _repr_html_ = html

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    __deepcopy__ = interchange.deepcopy
    __reduce__ = interchange.reduce
    __array__ = interchange.array
    __array_wrap__ = interchange.array_wrap
    __array_function__ = interchange.array_function
    __array_namespace__ = interchange.array_namespace
    to_device = interchange.to_device
    __dlpack__ = interchange.dlpack
    __dlpack_device__ = interchange.dlpack_device
    __bool__ = interchange.truth
    __float__ = interchange.to_float
    __int__ = interchange.to_int
    __complex__ = interchange.to_complex
    __index__ = interchange.to_index

    # -- operators ------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:  # a mere name would have the type of object's

        def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]

        def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]

    else:
        __eq__, __ne__ = operators.eq, operators.ne

    __hash__ = object.__hash__

    __add__ = operators.add
    __radd__ = operators.radd
    __sub__ = operators.sub
    __rsub__ = operators.rsub
    __mul__ = operators.mul
    __rmul__ = operators.rmul
    __truediv__ = operators.truediv
    __rtruediv__ = operators.rtruediv
    __rdiv__ = operators.rtruediv  # of Python 2, which torch has still
    __floordiv__ = operators.floordiv
    __rfloordiv__ = operators.rfloordiv
    __mod__ = operators.mod
    __rmod__ = operators.rmod
    __divmod__ = operators.divmod
    __rdivmod__ = operators.rdivmod
    __pow__ = operators.pow
    __rpow__ = operators.rpow
    __neg__ = operators.neg
    __pos__ = operators.pos
    __abs__ = operators.abs
    __lt__ = operators.lt
    __gt__ = operators.gt
    __le__ = operators.le
    __ge__ = operators.ge
    __and__ = operators.and_
    __rand__ = operators.rand
    __or__ = operators.or_
    __ror__ = operators.ror
    __xor__ = operators.xor
    __rxor__ = operators.rxor
    __invert__ = operators.invert
    __lshift__ = operators.lshift
    __rlshift__ = operators.rlshift
    __rshift__ = operators.rshift
    __rrshift__ = operators.rrshift
    __getitem__ = operators.getitem
    __setitem__ = operators.setitem
    __iter__ = operators.iterate
    __iadd__ = operators.iadd
    __isub__ = operators.isub
    __imul__ = operators.imul
    __itruediv__ = operators.itruediv
    __ifloordiv__ = operators.ifloordiv
    __imod__ = operators.imod
    __ipow__ = operators.ipow
    __iand__ = operators.iand
    __ior__ = operators.ior
    __ixor__ = operators.ixor
    __ilshift__ = operators.ilshift
    __irshift__ = operators.irshift
    __round__ = operators.round
    __matmul__ = operators.matmul
    __rmatmul__ = operators.rmatmul
    __imatmul__ = operators.matmul  # a new tensor, as in torch, which has no such method
    # -- ops ------------------------------------------------------------------------------------------------------

    # element by element
    add = ops.add
    sub = ops.sub
    mul = ops.mul
    div = ops.div
    floor_divide = ops.floor_divide
    remainder = ops.remainder
    fmod = ops.fmod
    divmod = ops.divmod
    pow = ops.pow
    maximum = ops.maximum
    minimum = ops.minimum
    lerp = ops.lerp
    addcmul = ops.addcmul
    addcdiv = ops.addcdiv
    subtract = ops.subtract
    multiply = ops.multiply
    divide = ops.divide
    true_divide = ops.true_divide
    neg = ops.neg
    negative = ops.negative
    abs = ops.abs
    absolute = ops.absolute
    sign = ops.sign
    floor = ops.floor
    ceil = ops.ceil
    trunc = ops.trunc
    round = ops.round
    frac = ops.frac
    isnan = ops.isnan
    isinf = ops.isinf
    isposinf = ops.isposinf
    isneginf = ops.isneginf
    isfinite = ops.isfinite
    nan_to_num = ops.nan_to_num
    clamp = ops.clamp
    clip = ops.clip

    # comparison, logic and bits
    eq = ops.eq
    ne = ops.ne
    lt = ops.lt
    gt = ops.gt
    le = ops.le
    ge = ops.ge
    not_equal = ops.not_equal
    less = ops.less
    greater = ops.greater
    less_equal = ops.less_equal
    greater_equal = ops.greater_equal
    isclose = ops.isclose
    allclose = ops.allclose
    isin = ops.isin
    bitwise_and = ops.bitwise_and
    bitwise_or = ops.bitwise_or
    bitwise_xor = ops.bitwise_xor
    bitwise_not = ops.bitwise_not
    bitwise_left_shift = ops.bitwise_left_shift
    bitwise_right_shift = ops.bitwise_right_shift
    logical_not = ops.logical_not
    logical_and = ops.logical_and
    logical_or = ops.logical_or
    logical_xor = ops.logical_xor

    # functions of real numbers
    exp = ops.exp
    exp2 = ops.exp2
    expm1 = ops.expm1
    log = ops.log
    log2 = ops.log2
    log10 = ops.log10
    log1p = ops.log1p
    sqrt = ops.sqrt
    rsqrt = ops.rsqrt
    reciprocal = ops.reciprocal
    square = ops.square
    sin = ops.sin
    cos = ops.cos
    tan = ops.tan
    tanh = ops.tanh
    sinh = ops.sinh
    cosh = ops.cosh
    erf = ops.erf
    erfc = ops.erfc
    erfinv = ops.erfinv
    logaddexp = ops.logaddexp
    asin = ops.asin
    acos = ops.acos
    atan = ops.atan
    atan2 = ops.atan2
    asinh = ops.asinh
    acosh = ops.acosh
    atanh = ops.atanh
    arcsin = ops.arcsin
    arccos = ops.arccos
    arctan = ops.arctan
    arctan2 = ops.arctan2
    arcsinh = ops.arcsinh
    arccosh = ops.arccosh
    arctanh = ops.arctanh
    cbrt = ops.cbrt
    hypot = ops.hypot
    signbit = ops.signbit
    copysign = ops.copysign
    xlogy = ops.xlogy
    logit = ops.logit
    sinc = ops.sinc
    deg2rad = ops.deg2rad
    rad2deg = ops.rad2deg
    heaviside = ops.heaviside

    # activations
    sigmoid = ops.sigmoid
    logsigmoid = ops.logsigmoid
    relu = ops.relu
    relu6 = ops.relu6
    leaky_relu = ops.leaky_relu
    elu = ops.elu
    celu = ops.celu
    selu = ops.selu
    silu = ops.silu
    swish = ops.swish
    gelu = ops.gelu
    softplus = ops.softplus
    softsign = ops.softsign
    mish = ops.mish
    hardtanh = ops.hardtanh
    hardsigmoid = ops.hardsigmoid
    hardswish = ops.hardswish
    softshrink = ops.softshrink
    hardshrink = ops.hardshrink
    tanhshrink = ops.tanhshrink
    threshold = ops.threshold
    prelu = ops.prelu

    # the gamma function
    lgamma = ops.lgamma
    digamma = ops.digamma
    polygamma = ops.polygamma
    mvlgamma = ops.mvlgamma
    i0 = ops.i0

    # movement
    reshape = ops.reshape
    view = ops.view
    reshape_as = ops.reshape_as
    view_as = ops.view_as
    flatten = ops.flatten
    ravel = ops.ravel
    unflatten = ops.unflatten
    squeeze = ops.squeeze
    unsqueeze = ops.unsqueeze
    permute = ops.permute
    transpose = ops.transpose
    swapaxes = ops.swapaxes
    swapdims = ops.swapdims
    t = ops.t
    movedim = ops.movedim
    moveaxis = ops.moveaxis
    flip = ops.flip
    roll = ops.roll
    expand = ops.expand
    expand_as = ops.expand_as
    broadcast_to = ops.broadcast_to
    repeat = ops.repeat
    tile = ops.tile
    repeat_interleave = ops.repeat_interleave
    pad = ops.pad
    shrink = ops.shrink
    narrow = ops.narrow

    # joining and cutting
    cat = ops.cat
    concat = ops.concat
    concatenate = ops.concatenate
    stack = ops.stack
    split = ops.split
    chunk = ops.chunk
    unbind = ops.unbind
    unfold = ops.unfold

    # triangles and diagonals
    tril = ops.tril
    triu = ops.triu
    diagonal = ops.diagonal
    diag = ops.diag
    diag_embed = ops.diag_embed
    rot90 = ops.rot90
    fliplr = ops.fliplr
    flipud = ops.flipud

    # reductions
    sum = ops.sum
    prod = ops.prod
    max = ops.max
    min = ops.min
    amax = ops.amax
    amin = ops.amin
    aminmax = ops.aminmax
    any = ops.any
    all = ops.all
    count_nonzero = ops.count_nonzero
    mean = ops.mean
    var = ops.var
    std = ops.std
    var_mean = ops.var_mean
    std_mean = ops.std_mean
    norm = ops.norm
    nansum = ops.nansum
    nanmean = ops.nanmean
    nanvar = ops.nanvar
    nanstd = ops.nanstd
    nanmax = ops.nanmax
    nanmin = ops.nanmin
    argmax = ops.argmax
    argmin = ops.argmin
    logsumexp = ops.logsumexp
    softmax = ops.softmax
    softmin = ops.softmin
    log_softmax = ops.log_softmax

    # running results
    cumsum = ops.cumsum
    cumprod = ops.cumprod
    logcumsumexp = ops.logcumsumexp
    cummax = ops.cummax
    cummin = ops.cummin
    diff = ops.diff

    # by position
    gather = ops.gather
    take_along_dim = ops.take_along_dim
    index_select = ops.index_select
    rows = ops.rows
    take = ops.take
    scatter_add = ops.scatter_add
    scatter = ops.scatter
    index_add = ops.index_add
    where = ops.where
    masked_fill = ops.masked_fill
    one_hot = ops.one_hot

    # subscripts
    update_slice = ops.update_slice

    # order
    argsort = ops.argsort
    sort = ops.sort
    topk = ops.topk
    median = ops.median
    nanmedian = ops.nanmedian
    quantile = ops.quantile
    bincount = ops.bincount
    searchsorted = ops.searchsorted

    # writing by position
    take_along_axis = ops.take_along_axis
    scatter_reduce = ops.scatter_reduce
    index_put = ops.index_put
    index_copy = ops.index_copy
    index_fill = ops.index_fill
    masked_scatter = ops.masked_scatter
    bucketize = ops.bucketize
    nonzero = ops.nonzero
    nonzero_static = ops.nonzero_static
    argwhere = ops.argwhere
    masked_select = ops.masked_select
    unique = ops.unique
    unique_consecutive = ops.unique_consecutive

    # products
    matmul = ops.matmul
    dot = ops.dot
    mm = ops.mm
    bmm = ops.bmm
    mv = ops.mv
    outer = ops.outer
    trace = ops.trace
    vecdot = ops.vecdot
    tensordot = ops.tensordot
    kron = ops.kron
    cross = ops.cross
    addmm = ops.addmm
    matrix_norm = ops.matrix_norm
    einsum = staticmethod(ops.einsum)

    # in place
    add_ = ops.add_
    sub_ = ops.sub_
    mul_ = ops.mul_
    div_ = ops.div_
    clamp_ = ops.clamp_
    lerp_ = ops.lerp_
    copy_ = ops.copy_
    fill_ = ops.fill_
    fill_diagonal_ = ops.fill_diagonal_
    zero_ = ops.zero_
    abs_ = ops.abs_
    absolute_ = ops.absolute_
    acos_ = ops.acos_
    acosh_ = ops.acosh_
    addbmm_ = ops.addbmm_
    addcdiv_ = ops.addcdiv_
    addcmul_ = ops.addcmul_
    addmm_ = ops.addmm_
    addmv_ = ops.addmv_
    addr_ = ops.addr_
    arccos_ = ops.arccos_
    arccosh_ = ops.arccosh_
    arcsin_ = ops.arcsin_
    arcsinh_ = ops.arcsinh_
    arctan2_ = ops.arctan2_
    arctan_ = ops.arctan_
    arctanh_ = ops.arctanh_
    asin_ = ops.asin_
    asinh_ = ops.asinh_
    atan2_ = ops.atan2_
    atan_ = ops.atan_
    atanh_ = ops.atanh_
    baddbmm_ = ops.baddbmm_
    bernoulli_ = ops.bernoulli_
    bitwise_and_ = ops.bitwise_and_
    bitwise_left_shift_ = ops.bitwise_left_shift_
    bitwise_not_ = ops.bitwise_not_
    bitwise_or_ = ops.bitwise_or_
    bitwise_right_shift_ = ops.bitwise_right_shift_
    bitwise_xor_ = ops.bitwise_xor_
    cauchy_ = ops.cauchy_
    ceil_ = ops.ceil_
    clamp_max_ = ops.clamp_max_
    clamp_min_ = ops.clamp_min_
    clip_ = ops.clip_
    copysign_ = ops.copysign_
    cos_ = ops.cos_
    cosh_ = ops.cosh_
    cumprod_ = ops.cumprod_
    cumsum_ = ops.cumsum_
    deg2rad_ = ops.deg2rad_
    digamma_ = ops.digamma_
    divide_ = ops.divide_
    eq_ = ops.eq_
    erf_ = ops.erf_
    erfc_ = ops.erfc_
    erfinv_ = ops.erfinv_
    exp2_ = ops.exp2_
    exp_ = ops.exp_
    expm1_ = ops.expm1_
    exponential_ = ops.exponential_
    float_power_ = ops.float_power_
    floor_ = ops.floor_
    floor_divide_ = ops.floor_divide_
    fmod_ = ops.fmod_
    frac_ = ops.frac_
    gcd_ = ops.gcd_
    ge_ = ops.ge_
    geometric_ = ops.geometric_
    greater_ = ops.greater_
    greater_equal_ = ops.greater_equal_
    gt_ = ops.gt_
    heaviside_ = ops.heaviside_
    hypot_ = ops.hypot_
    index_add_ = ops.index_add_
    index_copy_ = ops.index_copy_
    index_fill_ = ops.index_fill_
    index_put_ = ops.index_put_
    lcm_ = ops.lcm_
    ldexp_ = ops.ldexp_
    le_ = ops.le_
    less_ = ops.less_
    less_equal_ = ops.less_equal_
    lgamma_ = ops.lgamma_
    log10_ = ops.log10_
    log1p_ = ops.log1p_
    log2_ = ops.log2_
    log_ = ops.log_
    log_normal_ = ops.log_normal_
    logical_and_ = ops.logical_and_
    logical_not_ = ops.logical_not_
    logical_or_ = ops.logical_or_
    logical_xor_ = ops.logical_xor_
    logit_ = ops.logit_
    lt_ = ops.lt_
    masked_fill_ = ops.masked_fill_
    masked_scatter_ = ops.masked_scatter_
    multiply_ = ops.multiply_
    nan_to_num_ = ops.nan_to_num_
    ne_ = ops.ne_
    neg_ = ops.neg_
    negative_ = ops.negative_
    nextafter_ = ops.nextafter_
    normal_ = ops.normal_
    not_equal_ = ops.not_equal_
    pow_ = ops.pow_
    rad2deg_ = ops.rad2deg_
    random_ = ops.random_
    reciprocal_ = ops.reciprocal_
    relu_ = ops.relu_
    remainder_ = ops.remainder_
    renorm_ = ops.renorm_
    round_ = ops.round_
    rsqrt_ = ops.rsqrt_
    scatter_ = ops.scatter_
    scatter_add_ = ops.scatter_add_
    scatter_reduce_ = ops.scatter_reduce_
    sigmoid_ = ops.sigmoid_
    sign_ = ops.sign_
    sin_ = ops.sin_
    sinc_ = ops.sinc_
    sinh_ = ops.sinh_
    sqrt_ = ops.sqrt_
    square_ = ops.square_
    subtract_ = ops.subtract_
    squeeze_, unsqueeze_, t_, transpose_ = ops.squeeze_, ops.unsqueeze_, ops.t_, ops.transpose_
    swapaxes_, swapdims_ = ops.swapaxes_, ops.swapdims_
    tan_ = ops.tan_
    tanh_ = ops.tanh_
    tril_ = ops.tril_
    triu_ = ops.triu_
    true_divide_ = ops.true_divide_
    trunc_ = ops.trunc_
    uniform_ = ops.uniform_
    xlogy_ = ops.xlogy_
    i0_ = ops.i0_
    index_reduce_ = ops.index_reduce_
    put_ = ops.put_
    sgn_ = ops.sgn_

    # statistics
    cov = ops.cov
    corrcoef = ops.corrcoef
    histc = ops.histc
    kthvalue = ops.kthvalue
    msort = ops.msort
    histogram = ops.histogram
    mode = ops.mode
    nanquantile = ops.nanquantile
    dist = ops.dist
    renorm = ops.renorm
    trapezoid = ops.trapezoid
    cumulative_trapezoid = ops.cumulative_trapezoid
    pdist = ops.pdist
    vander = ops.vander
    matrix_power = ops.matrix_power

    # further names of torch and the array API
    fmax = ops.fmax
    fmin = ops.fmin
    float_power = ops.float_power
    logaddexp2 = ops.logaddexp2
    ldexp = ops.ldexp
    gcd = ops.gcd
    lcm = ops.lcm
    nextafter = ops.nextafter
    frexp = ops.frexp
    equal = ops.equal
    positive = ops.positive
    isreal = ops.isreal
    clamp_min = ops.clamp_min
    clamp_max = ops.clamp_max
    inner = ops.inner
    vdot = ops.vdot
    addmv = ops.addmv
    addr = ops.addr
    baddbmm = ops.baddbmm
    addbmm = ops.addbmm
    select = ops.select
    select_scatter = ops.select_scatter
    slice_scatter = ops.slice_scatter
    tensor_split = ops.tensor_split
    hsplit = ops.hsplit
    vsplit = ops.vsplit
    dsplit = ops.dsplit
    diagflat = ops.diagflat
    sum_to_size = ops.sum_to_size
    block_diag = ops.block_diag
    cartesian_prod = ops.cartesian_prod
    combinations = ops.combinations
    atleast_1d = ops.atleast_1d
    atleast_2d = ops.atleast_2d
    atleast_3d = ops.atleast_3d
    hstack = ops.hstack
    vstack = ops.vstack
    dstack = ops.dstack
    column_stack = ops.column_stack
    row_stack = ops.row_stack
    astype = ops.astype
    expand_dims = ops.expand_dims
    permute_dims = ops.permute_dims
    matrix_transpose = ops.matrix_transpose
    unstack = ops.unstack
    bitwise_invert = ops.bitwise_invert
    cumulative_sum = ops.cumulative_sum
    cumulative_prod = ops.cumulative_prod
    type_as = ops.type_as
    split_with_sizes = ops.split_with_sizes
    stride = ops.stride
    is_contiguous = ops.is_contiguous
    nelement = ops.nelement
    ndimension = ops.ndimension
    new_tensor = ops.new_tensor
    new_empty = ops.new_empty
    new_full = ops.new_full
    new_zeros = ops.new_zeros
    new_ones = ops.new_ones
    new_empty_strided = ops.new_empty_strided

    # places in memory order, and what complex numbers have
    as_strided = ops.as_strided
    as_strided_scatter = ops.as_strided_scatter
    diagonal_scatter = ops.diagonal_scatter
    put = ops.put
    index_reduce = ops.index_reduce
    adjoint = ops.adjoint
    angle = ops.angle
    conj = ops.conj
    conj_physical = ops.conj_physical
    resolve_conj = ops.resolve_conj
    resolve_neg = ops.resolve_neg
    sgn = ops.sgn
    narrow_copy = ops.narrow_copy
    unsafe_chunk = ops.unsafe_chunk
    unsafe_split = ops.unsafe_split
    bernoulli = ops.bernoulli
    multinomial = ops.multinomial

    # made from nothing
    full = staticmethod(ops.full)
    zeros = staticmethod(ops.zeros)
    ones = staticmethod(ops.ones)
    empty = staticmethod(ops.empty)
    eye = staticmethod(ops.eye)
    tri = staticmethod(ops.tri)
    arange = staticmethod(ops.arange)
    linspace = staticmethod(ops.linspace)
    logspace = staticmethod(ops.logspace)
    tril_indices = staticmethod(ops.tril_indices)
    triu_indices = staticmethod(ops.triu_indices)
    hann_window = staticmethod(ops.hann_window)
    hamming_window = staticmethod(ops.hamming_window)
    blackman_window = staticmethod(ops.blackman_window)
    bartlett_window = staticmethod(ops.bartlett_window)
    kaiser_window = staticmethod(ops.kaiser_window)
    from_numpy = staticmethod(ops.from_numpy)
    zeros_like = ops.zeros_like
    ones_like = ops.ones_like
    full_like = ops.full_like
    empty_like = ops.empty_like

    # random numbers
    rand = staticmethod(ops.rand)
    randn = staticmethod(ops.randn)
    uniform = staticmethod(ops.uniform)
    normal = staticmethod(ops.normal)
    randint = staticmethod(ops.randint)
    randperm = staticmethod(ops.randperm)
    rand_like = ops.rand_like
    randn_like = ops.randn_like

    # layers, pools and losses
    avg_pool1d = ops.avg_pool1d
    avg_pool2d = ops.avg_pool2d
    avg_pool3d = ops.avg_pool3d
    batch_norm = ops.batch_norm
    binary_cross_entropy = ops.binary_cross_entropy
    binary_cross_entropy_with_logits = ops.binary_cross_entropy_with_logits
    conv1d = ops.conv1d
    conv2d = ops.conv2d
    conv3d = ops.conv3d
    conv_transpose1d = ops.conv_transpose1d
    conv_transpose2d = ops.conv_transpose2d
    conv_transpose3d = ops.conv_transpose3d
    cross_entropy = ops.cross_entropy
    dropout = ops.dropout
    group_norm = ops.group_norm
    huber_loss = ops.huber_loss
    interpolate = ops.interpolate
    kl_div = ops.kl_div
    l1_loss = ops.l1_loss
    layer_norm = ops.layer_norm
    linear = ops.linear
    max_pool1d = ops.max_pool1d
    max_pool2d = ops.max_pool2d
    max_pool3d = ops.max_pool3d
    mse_loss = ops.mse_loss
    nll_loss = ops.nll_loss
    pixel_shuffle = ops.pixel_shuffle
    pixel_unshuffle = ops.pixel_unshuffle
    rms_norm = ops.rms_norm
    scaled_dot_product_attention = ops.scaled_dot_product_attention
    smooth_l1_loss = ops.smooth_l1_loss

    @property
    def T(self) -> Tensor:
        """The tensor with all axes in reverse order."""
        return self.permute(tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"mT: needs two axes or more, not shape {self.shape}")
        return self.transpose(-2, -1)

    @property
    def H(self) -> Tensor:
        """A matrix transposed: real numbers are their own conjugates."""
        if self.ndim not in (0, 2):
            raise ShapeError(f"H: a matrix, not shape {self.shape}; use mT")
        return self.T

    @property
    def mH(self) -> Tensor:
        """`mT`: real numbers are their own conjugates."""
        return self.mT

    no_grad = no_grad

    manual_seed = staticmethod(ops.manual_seed)

    # The short casts stand here and last, because they hide Python's own names in the body of a class.

    @checked
    def half(self) -> Tensor:
        """`.cast("float16")`.

        >>> Tensor([1]).half().dtype
        dtypes.float16
        """
        return self.cast(dtypes.float16)

    @checked
    def bfloat16(self) -> Tensor:
        """`.cast("bfloat16")`.

        >>> Tensor([1.5]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    @checked
    def double(self) -> Tensor:
        """`.cast("float64")`.

        >>> Tensor([1]).double().dtype
        dtypes.float64
        """
        return self.cast(dtypes.float64)

    @checked
    def byte(self) -> Tensor:
        """`.cast("uint8")`.

        >>> Tensor([1.5]).byte()
        Tensor([1], dtype=uint8)
        """
        return self.cast(dtypes.uint8)

    @checked
    def char(self) -> Tensor:
        """`.cast("int8")`.

        >>> Tensor([1.5]).char()
        Tensor([1], dtype=int8)
        """
        return self.cast(dtypes.int8)

    @checked
    def short(self) -> Tensor:
        """`.cast("int16")`.

        >>> Tensor([1.5]).short()
        Tensor([1], dtype=int16)
        """
        return self.cast(dtypes.int16)

    @checked
    def long(self) -> Tensor:
        """`.cast("int64")`.

        >>> Tensor([1]).long().dtype
        dtypes.int64
        """
        return self.cast(dtypes.int64)

    @checked
    def float(self) -> Tensor:
        """`.cast("float32")`.

        >>> Tensor([1]).float()
        Tensor([1.], dtype=float32)
        """
        return self.cast(dtypes.float32)

    @checked
    def int(self) -> Tensor:
        """`.cast("int32")`.

        >>> Tensor([1.7]).int()
        Tensor([1], dtype=int32)
        """
        return self.cast(dtypes.int32)

    @checked
    def bool(self) -> Tensor:
        """`.cast("bool")`: whether each element differs from 0.

        >>> Tensor([0, 2]).bool()
        Tensor([False,  True], dtype=bool)
        """
        return self.cast(dtypes.bool_)


Tensor._made = Tensor
made.register(Tensor)
statics_later(Tensor)


def _plain(cls: type[Tensor], u: UOp, device: str) -> Tensor:
    """A tensor of a class that shows a node, wants no gradient and owns no memory yet."""
    t = _create(cls)
    t._device = device
    t._grad = None
    t._leaf = True
    t._wants = False
    t._alias = t._base = t._views = None
    t._spent = False
    t._used = 0
    t.late = None
    t.uop = u
    return t
