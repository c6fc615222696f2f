"""What jit functions take and give: nests of tensors, sizes and plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from anneal.errors import UserError
from anneal.uop import SYMBOLIC, UOp
from anneal.uop.sizes import bindings_of, is_symbolic, mapped, unbound

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["JitError", "flatten", "rebuild"]


class JitError(UserError, RuntimeError):
    """Something inside a jit function would be frozen at its captured value."""


def flatten(value: Any, tensors: list[Tensor], bound: dict[str, int]) -> Any:
    """Collect the tensors of a nest of tuples, lists and dicts, and the values of Variables; returns its hashable structure."""
    from anneal.tensor._tensor import Tensor

    if isinstance(value, Tensor):
        tensors.append(value)
        shape = mapped(value.shape, lambda u: unbound(u, bound)) if SYMBOLIC.seen else value.shape
        return ("T", shape, value.dtype, value.device)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[flatten(v, tensors, bound) for v in value])
    if isinstance(value, dict):
        return ("dict", *[(k, flatten(v, tensors, bound)) for k, v in value.items()])
    if isinstance(value, UOp) and is_symbolic(value) and not value.is_const:
        return ("S", unbound(value, bound) if bindings_of(value) else value)
    try:
        hash(value)
    except TypeError:
        raise JitError(
            f"a jit function takes tensors, hashable values and nests of them, not {type(value).__name__}; "
            "make a Tensor of an array first"
        ) from None
    return ("V", type(value), value)


def rebuild(value: Any, fresh: Iterator[Tensor], sizes: Callable[[Any], Any]) -> Any:
    """The nest with other tensors, and what `sizes` makes of sizes."""
    from anneal.tensor._tensor import Tensor

    if isinstance(value, Tensor):
        return next(fresh)
    if isinstance(value, (list, tuple)):
        items = [rebuild(v, fresh, sizes) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: rebuild(v, fresh, sizes) for k, v in value.items()}
    return sizes(value) if isinstance(value, UOp) else value
