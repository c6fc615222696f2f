"""A handle: a tensor as the runtime sees it."""

from __future__ import annotations

import operator
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

from anneal.uop import UOp

if TYPE_CHECKING:
    import numpy.typing as npt

    from anneal.runtime.numbering import Late

__all__ = ["INSIDE", "SEEN", "UNSEEN", "Handle"]

SEEN, UNSEEN = 1, 2  # used by calls that were noted (`uses.py`), or were not

# Stands for a gradient that a jit function took: no replay would follow it.
INSIDE: Final[Any] = object()


# Names that torch's tensors have and ours lack, with the expression to write instead.
_INSTEAD = {
    "cuda": 'x.to("webgpu"), by which GPUs of all makers are reached, or x.to("auto")',
    "apply_": "the function of tensors, or x.copy_(...) of what NumPy gives",
    "as_subclass": "cls(x)",
    "data_ptr": "x.numpy().ctypes.data, of a copy: a tensor's memory is the compiler's affair",
    "grad_dtype": "x.grad.dtype",
    "imag": "x.zeros_like(): there are no complex numbers",
    "map_": "the function of tensors, or x.copy_(...) of what NumPy gives",
    "reinforce": "the loss -(log_prob * reward).sum()",
    "rename": "x itself: axes have no names",
    "resize_": "y = x.reshape(...), or y = x.new_zeros(...)",
    "resize_as_": "y = x.reshape(other.shape), or y = x.new_zeros(other.shape)",
    "set_": "x.data = other",
    "storage": "x.flatten(): a tensor's memory is the compiler's affair",
    "storage_offset": "0: every tensor counts as contiguous",
    "stft": "transforms of windows of x, by the room fft",
    "to_sparse": "x itself: there are no sparse tensors",
    "untyped_storage": "x.flatten(): a tensor's memory is the compiler's affair",
    **{
        f"{name}_": f"x = x.{name}({args}): what is changed in place keeps its shape"
        for name, args in {
            "squeeze": "",
            "unsqueeze": "dim",
            "t": "",
            "transpose": "dim0, dim1",
            "swapaxes": "axis0, axis1",
            "swapdims": "dim0, dim1",
            "as_strided": "size, stride",
        }.items()
    },
}
# Methods of rooms above this one, imported when the first of them is called.
_LINALG = (
    *("cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu", "lu_solve", "matrix_exp"),
    *("pinverse", "qr", "slogdet", "svd", "triangular_solve"),
)

_create = object.__new__


def _shown(name: str, slot: str, doc: str, write: str) -> property:
    """The property `name` that shows a slot and refuses to set it: `write` is what to do instead."""

    def refuse(self: Handle, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: {write}")

    return property(operator.attrgetter(slot), refuse, doc=doc)


class Handle:
    """A name of a node that stays while the node changes: a lazy one at first, a BUFFER once it is computed.

    `Tensor` is the one class of handles. The runtime computes what handles name, and makes new ones for results.
    """

    __slots__ = (
        "__weakref__",
        "_alias",
        "_base",
        "_device",
        "_grad",
        "_hooks",
        "_leaf",
        "_spent",
        "_used",
        "_wants",
        "late",
        "uop",
    )

    uop: UOp  # of a late tensor it is made when it is asked for
    late: Late | None  # what a late tensor has in place of a node
    # Public names are properties of slots: what sets them from outside is refused, or seen.
    _device: str
    _wants: bool
    _leaf: bool  # `requires_grad` was set on it, or it wants none
    _alias: UOp | None  # the node that graphs have of a leaf that was lazy when they were made
    _spent: bool  # its backward was taken
    _base: Any  # of a view: what it is a part of (`_part_of`), else None
    _grad: Any  # a handle, None, or INSIDE
    _hooks: Any  # only of leaves with hooks (`Tensors.hooked`)
    _used: int  # SEEN or UNSEEN once graphs may have it

    if TYPE_CHECKING:

        @property
        def requires_grad(self) -> bool: ...
        @requires_grad.setter
        def requires_grad(self, value: bool) -> None: ...
        @property
        def device(self) -> str: ...
        @property
        def is_leaf(self) -> bool: ...
    else:
        device = _shown("device", "_device", "The name of the device.", "move the tensor by .to(device)")
        is_leaf = _shown(
            "is_leaf", "_leaf", "Whether no gradient flows on from here.", ".detach() makes a leaf of a computed tensor"
        )
        requires_grad = property(
            operator.attrgetter("_wants"),
            lambda self, value: self._set_wants(value),
            doc="Whether `backward()` gives it a gradient; can be set on what was not computed with others.",
        )

    def _set_wants(self, value: Any) -> None:
        """Take what was assigned to `requires_grad`."""
        raise NotImplementedError

    @classmethod
    def _from_uop(cls, u: UOp, device: str) -> Self:
        """A handle of `u` on `device` that wants no gradient."""
        raise NotImplementedError

    @classmethod
    def _late(cls, late: Late, device: str, requires_grad: bool) -> Self:
        """A late tensor as an op gives it."""
        t = _create(cls)
        t._device = device
        t._leaf = not requires_grad
        t._wants = requires_grad
        t.late = late
        t._grad = t._alias = t._base = None
        t._spent = False
        t._used = 0
        return t

    def _part_of(self, other: Handle) -> None:
        """Note that this is a view of `other`, as it is now, or of what that is a part of."""
        link = other._base
        if link is not None and link[0]() is not None:
            self._base = link
        else:
            late = other.late
            self._base = weakref.ref(other), other.uop if late is None else late

    def _is_plain(self) -> bool:
        """Whether it is as an op gives it: nothing is known of it but its node, and whether it wants a gradient."""
        return self._grad is None and self._alias is None and not self._spent and self._leaf is not self._wants

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """The node of a late tensor, which has none before it is asked for it."""
            if name == "uop":
                late = self.late
                # without one another thread has given it a node just now
                return object.__getattribute__(self, "uop") if late is None else late.node_of(self)
            if name in _LINALG:
                return getattr(import_module("anneal.linalg.older"), name).__get__(self)
            write = f": write {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{write}")

    @property
    def _looks(self) -> UOp:
        """A node of this shape and dtype: a late tensor's own is not made for them."""
        late = self.late
        return self.uop if late is None else late.template

    def _settle(self, view: UOp) -> None:
        """The value is computed: name `view`, a BUFFER in this shape."""
        raise NotImplementedError

    def numpy(self) -> npt.NDArray[Any]:
        """The values as a new array."""
        raise NotImplementedError
