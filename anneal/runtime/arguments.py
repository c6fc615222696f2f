"""Arguments and results of jit functions: nests of tensors, sizes and plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anneal.errors import JitError
from anneal.runtime.execution import realize
from anneal.runtime.guards import Failure, brief
from anneal.runtime.handle import Handle
from anneal.runtime.late import tensor_class
from anneal.runtime.nests import mapped
from anneal.runtime.nodes import is_realized
from anneal.uop import SYMBOLIC, Op, UOp
from anneal.uop.sizes import bindings_of, is_symbolic, mapped as of_sizes, symbolic_arg, unbound, variables_of


class ArrayGiven(JitError):
    """An array among the arguments, to be made a tensor."""


def with_tensors(value: Any) -> Any:
    """A nest with tensors for its arrays."""
    return mapped(value, lambda v: tensor_class()(v) if isinstance(v, np.ndarray) else v)


def flatten(value: Any, tensors: list[Handle], bound: dict[str, int] | None) -> Any:
    """Collect the tensors of a nest of tuples, lists and dicts, and the values of Variables, where `bound` takes them.

    Returns the nest's structure, which can be hashed. A tensor with a size that a call of the host is to find is
    computed for it.
    """
    if isinstance(value, Handle):
        tensors.append(value)
        shape = value.uop.shape
        if SYMBOLIC.seen and bound is not None and symbolic_arg(shape):
            if not is_realized(value.uop) and any(v.op is Op.VARIABLE for n in shape for v in variables_of(n)):
                realize([value])
                shape = value.uop.shape
            shape = of_sizes(shape, lambda n: unbound(n, bound))
        return ("T", shape, value.uop.dtype, value._device, value._wants)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[flatten(v, tensors, bound) for v in value])
    if isinstance(value, dict):
        return ("dict", *[(k, flatten(v, tensors, bound)) for k, v in value.items()])
    if isinstance(value, UOp) and is_symbolic(value) and not value.is_const:
        return ("S", unbound(value, bound) if bound is not None and bindings_of(value) else value)
    try:
        hash(value)
    except TypeError:
        if isinstance(value, np.ndarray):
            raise ArrayGiven("a jit function returns tensors, not NumPy arrays: return Tensor(array)") from None
        raise JitError(
            f"a jit function takes tensors, arrays, hashable values and nests of them, not {type(value).__name__}"
        ) from None
    return ("V", type(value), value)


def rebuild(value: Any, fresh: Iterator[Handle], sizes: Callable[[Any], Any]) -> Any:
    """The nest with other tensors, and what `sizes` makes of sizes."""
    return mapped(value, lambda v: next(fresh) if isinstance(v, Handle) else sizes(v) if isinstance(v, UOp) else v)


def difference(old: Any, new: Any, where: str = "arguments") -> Failure | None:
    """The first place where two structures made by `flatten` differ; None if they are equal.

    >>> difference(("tuple", ("V", int, 1)), ("tuple", ("V", int, 2)))
    Failure(what='arguments[0]', old='1', new='2')
    """
    if old == new:
        return None
    kind = old[0]
    if kind == new[0] and kind not in ("T", "V", "S") and len(old) == len(new):
        for n, (a, b) in enumerate(zip(old[1:], new[1:])):
            if kind != "dict":
                found = difference(a, b, f"{where}[{n}]")
            elif a[0] != b[0]:
                found = Failure(f"keys of {where}", repr(a[0]), repr(b[0]))
            else:
                found = difference(a[1], b[1], f"{where}[{a[0]!r}]")
            if found is not None:
                return found
    return Failure(where, _said(old), _said(new))


def described(structure: Any) -> str:
    """The arguments of which `flatten` gave a structure, as text."""
    _, args, named = structure
    return f"({', '.join([*map(_said, args[1:]), *[f'{name}={_said(s)}' for name, s in named[1:]]])})"


def _said(structure: Any) -> str:
    kind, *rest = structure
    if kind == "T":
        shape, dtype, device, wants = rest
        return f"{dtype.name} {shape} on {device}{' that requires a gradient' if wants else ''}"
    if kind == "V":
        return brief(rest[1])
    return str(rest[0]) if kind == "S" else f"a {kind} of {len(rest)}"
