"""The oracle: a tensor graph evaluated op by op in plain NumPy.

It knows nothing of rules, scheduling or kernels, so it cannot share a mistake with them. Speed is no aim; memory is
given back as soon as the last user of a value has run.

The meaning of each op is what its row says (anneal/uop/meaning.py has the choices that NumPy leaves). Floats of 8 and
16 bits are computed with in float32 and rounded once, at the end of each op; a product that is summed is not rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anneal.backend.arrays import MEANINGS, numpy_dtype
from anneal.backend.registry import get_device
from anneal.backend.storage import Storage
from anneal.errors import CompilerError
from anneal.uop import ALU, SYMBOLIC, Op, UOp, const, dtypes, toposort
from anneal.uop.sizes import evaluator, mapped, symbolic_arg, unbound

Array = NDArray[Any]


def evaluate(uops: Sequence[UOp], *, dtype_override: DTypeLike | None = None) -> list[Array]:
    """The value of each tensor graph, as a new array of its shape and dtype.

    `dtype_override` replaces float32 and float64 (a gradient check asks for float64), and float32 where narrower floats
    are computed with. Raises CompilerError for an op that does not belong in a tensor graph.

    >>> from anneal.uop import Op, UOp, const, dtypes
    >>> x = UOp(Op.IOTA, dtypes.int32, (), (4,))
    >>> evaluate([x * x + 1])
    [array([ 1,  2,  5, 10], dtype=int32)]
    """
    override = None if dtype_override is None else np.dtype(dtype_override)
    if SYMBOLIC.seen:
        uops = _with_numbers(uops)
    order = toposort(uops)
    wide = np.dtype(np.float32) if override is None else override  # what narrow floats are computed in
    users: dict[UOp, int] = dict.fromkeys(order, 0)
    for u in order:
        for s in u.src:
            users[s] += 1
    for u in uops:
        users[u] += 1
    values: dict[UOp, Array] = {}
    products: dict[UOp, Array] = {}  # of narrow floats, before they are rounded
    with np.errstate(all="ignore"):
        for u in order:
            narrow = u.dtype.is_narrow
            out = override if override is not None and u.dtype.is_float and not narrow else numpy_dtype(u.dtype)
            src = [values[s] for s in u.src]
            if u.op is not Op.BITCAST:
                src = [x.astype(wide) if s.dtype.is_narrow else x for s, x in zip(u.src, src, strict=True)]
            if u.op is Op.REDUCE_AXIS and u.src[0] in products:
                src = [products[u.src[0]]]
            # NumPy rounds any number to float16 once; the others are reached by float32.
            direct = u.op is Op.BUFFER or u.op is Op.BITCAST or (u.op is Op.CAST and u.dtype is dtypes.float16)
            value = _evaluate_one(u, src, wide if narrow and not direct else out)
            if narrow and u.op is Op.MUL:
                products[u] = value
            if narrow and not direct:
                value = value.astype(np.float32)
            values[u] = value if value.dtype == out else value.astype(out)
            if values[u].shape != u.shape:
                raise CompilerError(f"reference: {u.op.name} gave shape {values[u].shape}, not {u.shape}", node=u)
            for s in u.src:
                users[s] -= 1
                if not users[s]:
                    del values[s]
                    products.pop(s, None)
    # a copy, so that no result aliases a buffer or another result
    return [values[u].copy(order="C") for u in uops]


def _with_numbers(uops: Sequence[UOp]) -> list[UOp]:
    """The graphs with the values of bound variables in their place."""
    new: dict[UOp, UOp] = {}

    def number(u: UOp) -> int:
        values: dict[str, int] = {}
        return evaluator((unbound(u, values),))(values)[0]

    for u in toposort(uops):
        src = tuple([new[s] for s in u.src])
        arg = mapped(u.arg, number) if symbolic_arg(u.arg) else u.arg
        if u.op is Op.BIND:
            new[u] = const(u.dtype, u.arg[3])
        elif u.op in ALU:
            new[u] = u.replace(src=src)
        else:
            new[u] = u if src == u.src and arg is u.arg else UOp(u.op, u.dtype, src, arg, u.tag)
    return [new[u] for u in uops]


def _evaluate_one(u: UOp, src: list[Array], out: np.dtype[Any]) -> Array:
    if u.op is Op.BUFFER:
        return _buffer(u)
    meaning = MEANINGS.get(u.op)
    if meaning is None:
        raise CompilerError(f"reference: {u.op.name} does not belong in a tensor graph", node=u)
    if u.op not in ALU:
        return meaning(u, src, out)  # type: ignore[no-any-return]
    if u.op is Op.BITCAST:  # an override must not change which bits are seen
        value = meaning(src[0].astype(numpy_dtype(u.src[0].dtype)), numpy_dtype(u.dtype))
    else:
        value = np.asarray(meaning(src[0], out) if u.op is Op.CAST else meaning(*src))
    return value if value.shape == u.shape else np.broadcast_to(value, u.shape)


def _buffer(u: UOp) -> Array:
    storage: Storage = u.arg
    if storage.host is not None:
        return storage.host.reshape(u.shape)
    if storage.buffer is None:
        raise CompilerError("reference: a BUFFER that was never filled", node=u)
    return get_device(storage.device).download(storage.buffer, storage.size, storage.dtype).reshape(u.shape)
