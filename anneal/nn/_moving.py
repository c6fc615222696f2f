"""The methods of a module that move its tensors to a device or a dtype, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from anneal.backend import device_names, is_foreign
from anneal.errors import DataError, DTypeError
from anneal.ops import DTypeLike, as_dtype
from anneal.runtime import outdate_captures, realize, resolve_device
from anneal.tensor import Tensor, host_call
from anneal.uop import Op, UOp, dtypes


class Moved:
    """The part of `Module` that moves and casts it: `to` and its short forms."""

    if TYPE_CHECKING:

        def _tensors(self, private: bool = False, recurse: bool = True) -> Iterator[tuple[str, Any, str, Tensor]]: ...

    def to(
        self,
        *args: DTypeLike,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
        memory_format: str | None = None,
    ) -> Self:
        """Move every tensor to a device, those of floats to a dtype, or both, in place: the tensors stay the same
        objects; returns the module.

        `non_blocking` and `memory_format` are ignored: nothing waits here before a value is read, and the
        compiler chooses the layout. On "meta" tensors forget their values and keep shapes, dtypes and their device: a
        module to be called with others' parameters, by `functional_call`. Computing one raises DataError.

        Raises DTypeError for a dtype that is no float, DeviceError for a device that is not there.

        >>> from anneal import nn
        >>> nn.Linear(2, 1).to("bfloat16").weight.dtype
        dtypes.bfloat16
        """
        for a in args:
            if isinstance(a, str) and (a in device_names() or is_foreign(a) or a == "meta"):
                device = a
            elif isinstance(a, Tensor):
                device, dtype = a.device, a.dtype
            elif a is not None and a not in (True, False):  # torch's third is non_blocking
                dtype = a
        if device == "meta":
            for name, *_, t in self._tensors(private=True):
                if t.numel():
                    device, no_values = t.device, _no_values(name)
                    t._leave()
                    t.grad = None
                    t._assign(host_call(no_values, (t.shape, t.dtype), Tensor.zeros(1, device=device)).uop)
            outdate_captures("a module moved to another device or dtype")
            return self
        device = None if device is None else resolve_device(device)
        kind = None if dtype is None else as_dtype(dtype)
        if kind is not None and not kind.is_float:
            raise DTypeError(f"{type(self).__name__}.to: a module's dtype is a float, not {kind.name}")
        changed = []
        for *_, t in self._tensors(private=True):
            own = kind if kind is not None and t.dtype.is_float else t.dtype
            if own is not t.dtype or device not in (None, t.device):
                new = t.detach().to(device=device).cast(own)
                t._leave()
                t._device, t.grad = new.device, None
                t._assign(UOp(Op.CONTIGUOUS, own, (new.uop,)))
                changed.append(t)
        if changed:
            outdate_captures("a module moved to another device or dtype")
            realize(changed)
        return self

    def _place(self, device: str | None, dtype: DTypeLike | None) -> None:
        """Move and cast to the `device=` and `dtype=` of a layer, if they are given."""
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def half(self) -> Self:
        """Cast floats to float16: `.to("float16")`."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floats to bfloat16, `.to("bfloat16")`: half the memory; an optimiser keeps a float32 copy of the
        parameters.
        """
        return self.to(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast floats to float64: `.to("float64")`."""
        return self.to(dtypes.float64)

    def float(self) -> Self:
        """Cast floats to float32: `.to("float32")`."""
        return self.to(dtypes.float32)

    def type(self, dst_type: DTypeLike) -> Self:
        """Cast floats to `dst_type`: `.to(dst_type)`."""
        return self.to(dtype=dst_type)

    def share_memory(self) -> Self:
        """The module itself: its tensors' memory is this process's."""
        return self

    def realize(self) -> Self:
        """Compute every tensor now, together; returns the module."""
        realize([t for *_, t in self._tensors()])
        return self

    def cpu(self) -> Self:
        """Move every tensor to the cpu: `.to("cpu")`."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        """Raise DeviceError, which names the device to use instead: there is no CUDA."""
        return self.to("cuda")


def _no_values(name: str) -> Callable[..., Any]:
    def no_values(_: Any) -> Any:
        raise DataError(f"{name}: the module was moved to 'meta': its tensors have shapes and no values")

    return no_values
