"""The class `Tensor`: its state, and what goes in and out. Its other methods are functions of `anneal/ops/`, by the
names that `anneal/names.py` lists; type checkers see them as `Methods`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from anneal import names
from anneal.backend import device_names, get_device, is_foreign, numpy_dtype
from anneal.doors import methods_later, named
from anneal.errors import DeviceError, DTypeError, GradientError, ShapeError

from anneal.ops import (  # isort: skip
    HELD, Array, DTypeLike, Shape, array_of, as_dtype, check_device_dtype, checked, deferred, function,
    memory_of_constant, no_grad, viewing, wrap_array,
)  # fmt: skip
from anneal.ops.nodes import Number, broadcast, check_fits, detached, repeated, reshape, weak_const, weak_dtype

from anneal.runtime import (  # isort: skip
    UNSEEN, Fun, Handle, Inside, JitError, at_once, bound_shape, default_device, forbid_in_jit, freeze, has_twin,
    here, host_storage, is_chain, is_computed_late, made_number, needed, note_assigned, note_become,
    note_made, register_late, resolve_device, seen, storage_of, thaw,
)  # fmt: skip
from anneal.tensor import _interchange as interchange
from anneal.tensor._shown import grad_fn, html, text
from anneal.uop import MOVEMENT, DType, Op, UOp, arena, dtypes
from anneal.uop.sizes import is_symbolic, product

if TYPE_CHECKING:
    from anneal.names import Methods
else:
    Methods = Handle

METHODS = {  # functions of other packages than ops that are methods
    "anneal.tensor._interchange": """
        __array__ __array_function__ __array_namespace__ __array_wrap__ __bool__ __complex__ __contains__ __copy__
        __deepcopy__ __dlpack__ __dlpack_device__ __float__ __index__ __int__ __reduce__
        data_ptr detach_ get_device is_nonzero is_same_size is_signed set_ to_device type
    """,
    "anneal.transforms": "backward register_hook register_post_accumulate_grad_hook retain_grad",
}
_DETACH = Op.DETACH
_KNOWN_DTYPES = (*HELD, "half", "float", "double", "int", "long")
_create = object.__new__

# Gradients need no tape: `backward` walks the graph of the loss. A *leaf* is a tensor on which `requires_grad` was set.
# A realised node is a BUFFER, whose Storage remembers the graph it was computed from as `origin`, where gradients go
# on.


def _of_linalg(self: Tensor, *args: Any, **options: Any) -> Any:
    """The type of `x.det()` and its kin."""


def _cast(name_kind: str) -> Callable[[Tensor], Tensor]:
    """The method that casts to one dtype; both stand in "float=float32"."""
    name, kind = name_kind.split("=")
    dtype = as_dtype(kind)

    def cast(self: Tensor) -> Tensor:
        return self.cast(dtype)

    cast.__doc__ = f"""`.cast("{kind}")`.

    >>> Tensor([1]).{name}().dtype.name
    '{kind}'
    """
    return _of_class(function("itself")(named(cast, name)), name)


def _of_class(made: Fun, name: str) -> Fun:
    """A method that is made here, where `pickle` finds it."""
    made.__module__, made.__qualname__ = __name__, f"Tensor.{name}"
    return made


class Tensor(Methods):
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
        register_late(cls)

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
        kind, late = None if dtype is None else as_dtype(dtype), None
        if isinstance(data, Tensor):
            late = data.late
            moved = data if device is None else data._moved(resolve_device(device))
            self._device = moved._device
            u = moved.uop if kind is None else moved.cast(kind).uop
            if data._wants:
                u = detached(u)
        else:
            self._device = default_device() if device is None else resolve_device(device)
            if isinstance(data, UOp):
                u = data if kind is None else data.cast(kind)
            elif isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
                if kind is None:
                    kind = weak_dtype(data)
                    if kind.is_int and not kind.min <= data <= kind.max:
                        kind = dtypes.int64
                check_fits(kind, data, "Tensor")
                check_device_dtype(self._device, kind)
                if here.made is not None:
                    note_made(None, repr(data).encode(), kind)
                u = made_number(data, kind, self._device)
            else:
                u = wrap_array(array_of(data, kind), self._device)
        self.late = None
        self.uop = u
        self._grad = None
        self._leaf = True
        self._wants = False
        self._alias = self._base = self._was = self._views = None
        self._spent = False
        self._used = 0
        self._own()
        if late:  # a loop may go on from this one
            here.plain.append((weakref.ref(self), late.line))
        if requires_grad:
            self.requires_grad_()

    def _own(self) -> None:
        """Note in the memory this tensor shows whole that it is this tensor's, unless a live one has it (for jit)."""
        storage = storage_of(self.uop)
        if storage is not None and storage.owner() is None:
            storage.owner = weakref.ref(self)

    # -- making results -------------------------------------------------------------------------------------------

    def _new(self, u: UOp, *others: Tensor) -> Tensor:
        """The tensor of a node made from this tensor and `others`."""
        t = _plain(self._made, u, self._device)
        wants, self._used = self._wants, UNSEEN
        for o in others:
            wants, o._used = wants or o._wants, UNSEEN
        if wants:
            if not here.grad:
                t.uop = detached(u)
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
    def _from_uop(cls, u: UOp, device: str, wants: bool = False) -> Tensor:
        """The tensor that shows a node; whether it `wants` a gradient."""
        t = cls._fresh(u, device)
        t._wants, t._leaf = wants, not wants
        return t

    def _lift(self, other: Any, name: str = "") -> Tensor:
        """`other` as a tensor on this device: itself, or an array or number (weak dtype) wrapped."""
        if isinstance(other, Tensor):
            if other._device != self._device:
                self._mixed(other, name)
            return other
        if isinstance(other, np.generic):
            other = other.item()
        if isinstance(other, (bool, int, float)):
            return self._new_plain(weak_const(self.uop.dtype, other, name))
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

    def _mixed(self, other: Tensor, name: str = "") -> NoReturn:
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
        _of_class(checked(interchange.no, name), name)
        for name in ("is_complex", "is_conj", "is_neg", "is_inference", "is_pinned", "is_shared")
    )
    is_cuda = is_sparse = is_sparse_csr = is_quantized = is_meta = is_mps = is_xpu = is_nested = is_mkldnn = False
    pin_memory = share_memory_ = to_dense = interchange.itself
    layout = "strided"
    itemsize, nbytes = property(interchange.itemsize), property(interchange.nbytes)
    is_cpu, real = property(interchange.is_cpu), property(interchange.real)

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
        if isinstance(self._grad, Inside) and here.recordings and self._grad.value is not None:
            self._grad = self._grad.value
        if isinstance(self._grad, Inside):
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
        turns, before, leaves = self._wants is not requires_grad, self.uop, here.tensors.leaves
        lazy = storage_of(before) is None and not at_once(vars(here))
        here.tensors.flags += turns
        if turns and not requires_grad:
            if lazy and self._used:
                self.realize()
            freeze(self)
        self._wants = requires_grad
        if not requires_grad or not self._leaf:
            leaves.pop(id(self), None)
            return self
        leaves[id(self)] = self
        mine = thaw(self)
        if lazy and is_chain(self.uop):
            self.realize()
        graph, used = storage_of(self.uop) is None and self.uop.tag is None, self._used
        if (turns or not (used or self._views)) and (graph or (used and not mine) or has_twin(self)):
            # A leaf needs a node of its own: equal graphs are one node, folding looks through others, and no gradient
            # of a leaf flows to what else shows its memory.
            held = memory_of_constant(self.uop, self._device)
            self.uop = arena().fresh(Op.CONTIGUOUS, self.uop, "leaf") if held is None else held
            self._own()
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
    @viewing
    def detach(self) -> Tensor:
        """The same values, through which no gradient flows.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> (x * x.detach()).sum().backward()
        >>> x.grad
        Tensor([3.], dtype=float32)
        """
        u = self.uop
        return self._new_plain(detached(u) if self._wants else u)

    @staticmethod
    def _captured_backward(*args: Any) -> Any:
        from anneal.transforms import captured_backward

        return captured_backward(*args)

    def zero_grad(self) -> None:
        """Set `.grad` to None.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.sum().backward()
        >>> w.zero_grad()
        >>> w.grad is None
        True
        """
        self.grad = None

    retains_grad = property(interchange.retains_grad)
    grad_fn = property(grad_fn)
    data = property(interchange.data, interchange.set_data)

    if TYPE_CHECKING:  # found by `Handle.__getattr__`
        cholesky = cholesky_inverse = cholesky_solve = det = inverse = logdet = lu = lu_solve = matrix_exp = _of_linalg
        igamma = igammac = pinverse = qr = slogdet = svd = triangular_solve = _of_linalg

    # -- dtypes and devices ---------------------------------------------------------------------------------------

    @function("itself")
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

    @function("view")
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

        Gradients come back from a copy on another device. It is computed at once, so jit and vmap take none.

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
        if here.assigned:  # only while a jit function runs
            forbid_in_jit(f"a tensor moved to {device!r}", "move it before, or return it and move the result")
        made = self._made(self.numpy(), device=device)
        return interchange.carried(self, made) if self._wants and here.grad else made

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

        if wrong := [t for t in others if not isinstance(t, Tensor)]:
            raise DTypeError(f"realize: takes tensors to compute together, not {wrong[0]!r}")
        realize([self, *others])
        return self

    def _settle(self, view: UOp) -> None:
        """Realisation replaces the node by `view`, a BUFFER in this shape, and keeps what a gradient still needs."""
        if self._base is not None:
            self._is_part()  # or it lets go of what it was a part of
        unused = not (here.grad or self._used) if self.late is None else not self.late.is_used()
        if not self._wants or (unused if self._leaf else self._spent):
            self.uop, self.late = view, None
            if self._spent and (storage := storage_of(view)) is not None:
                storage.spent = True
            return
        late, computed = self.late, is_computed_late(self) and not self._leaf
        if late is not None and late.is_used():
            self._used = self._used or late.numbering.seen
        old = late.as_origin() if late is not None and computed else self.uop
        self.uop, self.late = view, None
        if computed or storage_of(old) is None:
            if self._leaf:
                # Graphs made while the leaf was lazy hold its old node. One is kept, so that steps do not chain.
                self._alias = old
            else:
                storage = storage_of(view)
                assert storage is not None
                storage.made_by = old

    @function("view")
    def contiguous(self) -> Tensor:
        """The same values, materialised before later ops are computed.

        >>> Tensor([[1, 2]]).T.contiguous().shape
        (2, 1)
        """
        return self._new(self.uop.then(Op.CONTIGUOUS))

    def _kept(self) -> UOp:
        """The node with its values in memory, for what will be compared bit for bit with them later.

        Two kernels that each compute a float may round it differently (a GPU fuses multiply and add as it likes), and
        `x == x.max()` must find its maximum. The tensor itself goes on from the same memory.
        """
        u = base = self.uop
        while base.op in MOVEMENT or base.op is _DETACH:
            base = base.src[0]
        if not u.dtype.is_float or base.op in (Op.BUFFER, Op.CONTIGUOUS, Op.CONST):
            return u
        self.uop = u.then(Op.CONTIGUOUS)
        return self.uop

    @function
    def clone(self) -> Tensor:
        """An independent copy, through which gradients flow.

        >>> Tensor([1, 2]).clone()
        Tensor([1, 2], dtype=int32)
        """
        return self._new(self.uop)

    @function
    def assign(self, x: Any) -> Self:
        """Take the values of `x` (same shape, cast to this dtype); keeps identity, device and requires_grad.

        Tensors made from the old values keep them. No gradient flows through an assignment.

        Raises ShapeError if the shapes differ, DeviceError if the devices do.

        >>> x = Tensor([1.0, 2.0])
        >>> y = x + 1
        >>> x.assign(x * 10), y
        (Tensor([10., 20.], dtype=float32), Tensor([2., 3.], dtype=float32))
        """
        other = self._lift(x, "assign")
        if other.uop.shape != self.uop.shape:
            if isinstance(x, Tensor) or other.uop.shape:
                raise ShapeError(
                    f"assign: a tensor of shape {self.shape} cannot take values of shape {other.shape}; "
                    f"use .reshape or .expand on the values"
                )
        u = broadcast(other.uop.cast(self.uop.dtype), self.uop.shape)
        if other._wants:
            u = detached(u)
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
        owner = None if storage is None else storage.owner()
        # Memory of its own: the node may be a passing value or change later, and jit looks for the owner of what it
        # finds. Inside jit that of an argument, or of another tensor of the host, is computed: a replay has others. So
        # is what a gradient goes through, on to the owner.
        on_device = storage is not None and storage.host is None
        others = owner is not None and owner is not self
        computes = here.made is not None or (self._wants and not self.is_leaf)
        if (others and (on_device or computes)) or (here.made is not None and owner is not self and on_device):
            u = self._leaf_of(u) if self._wants and self.is_leaf else u.then(Op.CONTIGUOUS)
        elif storage is not None and storage.host is not None:
            u = reshape(UOp(Op.BUFFER, u.dtype, (), host_storage(storage.host, u.dtype, self._device)), u.shape)
        self._assign(u)

    def _show(self, u: UOp) -> None:
        """Go on from another node of the same values; graphs of the old one keep it."""
        note_become(self)
        if self._leaf and self._wants:
            self._note_earlier()
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

    def numpy(self, *, force: bool = False) -> Array:
        """The values as a new NumPy array, also of a tensor that requires a gradient; `force` changes nothing.

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
        return format(self.item(), spec) if spec or not self.shape else repr(self)

    __hash__ = object.__hash__

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

    # They stand last, because they hide Python's own names in the body of a class.
    half, bfloat16, double, byte, char, short, long, float, int, bool = map(_cast, (
        "half=float16", "bfloat16=bfloat16", "double=float64", "byte=uint8", "char=int8", "short=int16",
        "long=int64", "float=float32", "int=int32", "bool=bool",
    ))  # fmt: skip


Tensor._made = Tensor
register_late(Tensor)
for _room, _names in {**METHODS, "anneal.ops.operators": names.OPERATORS, "anneal.ops": names.METHODS}.items():
    methods_later(Tensor, _room, _names.split())
methods_later(Tensor, "anneal.ops", names.STATICS.split(), static=True)


def _plain(cls: type[Tensor], u: UOp, device: str) -> Tensor:
    """A tensor of a class that shows a node, wants no gradient and owns no memory yet."""
    t = _create(cls)
    t._device = device
    t._grad = None
    t._leaf = True
    t._wants = False
    t._alias = t._base = t._was = t._views = None
    t._spent = False
    t._used = 0
    t.late = None
    t.uop = u
    return t
