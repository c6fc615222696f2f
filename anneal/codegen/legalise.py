"""Legal ops and dtypes: ARGSORT as a rank, arithmetic on bools as logic, narrow dtypes computed wide, nan by bits."""

from __future__ import annotations

import math
from collections.abc import Callable

from anneal.codegen.lowering_rules import LOWERING
from anneal.codegen.ranges import with_sources
from anneal.codegen.target import PACKED, Target, register
from anneal.errors import DTypeError
from anneal.rewrite import COMPUTED, legalised, rebuild
from anneal.schedule import PERMUTATION
from anneal.uop import ALU, DType, Op, Src, UOp, const, dtypes

_I32, _BOOL, _F32 = dtypes.int32, dtypes.bool_, dtypes.float32


def legalise(sink: UOp, target: Target, text_of: Callable[[Op, DType], str | None] | None = None) -> UOp:
    """The same kernel in ops and dtypes the renderer has; raises DTypeError naming what the target lacks. An op that
    `text_of` has no text for is composed of others, as its row says.
    """
    known = target.dtypes

    def visit(u: UOp, src: Src) -> UOp:
        op = u.op
        if op is Op.STORE:
            return _store(u, src)
        if u.dtype not in known and op is not Op.SINK:
            raise DTypeError(_unsupported(u, target))
        if op is Op.REDUCE:
            return _reduce(u, src)
        if op is Op.ARGSORT:
            return u.replace(src=src)
        if op not in ALU:
            return with_sources(u, src)
        legal = _narrow_sum(_legal(with_sources(u, src)))
        composed = legal.op.composed
        lacking = composed is not None and text_of is not None and text_of(legal.op, legal.src[0].dtype) is None
        return composed(*legal.src) if composed is not None and lacking else legal

    return rebuild(legalised(sink, COMPUTED), visit)


def _unsupported(u: UOp, target: Target) -> str:
    what = f"{u.op.name} of {u.dtype.name}" if u.op is not Op.PARAM else f"buffer of {u.dtype.name}"
    feature = {"float16": "shader-f16", "float64": "shader-f64"}.get(u.dtype.name, "shader-int64")
    return f"device 'webgpu' has no {what}: this adapter lacks {feature}; cast it, or use device 'cpu'"


def _store(u: UOp, src: Src) -> UOp:
    value = src[2]
    rounds = u.dtype in PACKED or u.dtype is dtypes.float16
    if value.op is Op.CAST and rounds and value.src[0].dtype is (register(u.dtype) if u.dtype in PACKED else _F32):
        return with_sources(
            u, (*src[:2], value.src[0], *src[3:])
        )  # a value that is packed into words is rounded on the way
    if value.op is not Op.ARGSORT:
        return with_sources(u, src)
    # Element r goes where its rank says: the number of keys below it, or equal and before it.
    keys, r = value.src
    if value.arg == PERMUTATION:
        return u.replace(src=(src[0], UOp(Op.LOAD, _I32, (keys, r)), r, *src[3:]))
    j = UOp(Op.RANGE, _I32, r.src, (1 + r.arg[0], "reduce"))
    mine, other = (UOp(Op.LOAD, keys.dtype, (keys, i)) for i in (r, j))
    before = (other < mine) | (other.eq(mine) & (j < r))
    return u.replace(src=(src[0], UOp(Op.REDUCE, _I32, (before.cast(_I32), j), Op.ADD), r, *src[3:]))


def _reduce(u: UOp, src: Src) -> UOp:
    if u.dtype is _BOOL:
        return UOp(Op.REDUCE, _I32, (src[0].cast(_I32), *src[1:]), _BOOL_REDUCE[u.arg], u.tag).ne(0)
    return with_sources(u, src)


def _narrow_sum(u: UOp) -> UOp:
    """A sum of products of integers of 32 bits, as int64 or float64, of which an int32 is made: as int32 at once."""
    total = u.src[0] if u.src else u
    if u.op is not Op.CAST or u.dtype is not _I32 or total.op is not Op.REDUCE or total.arg is not Op.ADD:
        return u
    terms = total.src[0].src if total.src[0].op is Op.MUL else total.src[:1]
    if total.dtype.bits != 64 or any(t.op is not Op.CAST or not t.src[0].dtype.is_int for t in terms):
        return u
    return UOp(
        Op.REDUCE,
        _I32,
        (math.prod([t.src[0].cast(_I32) for t in terms], start=const(_I32, 1)), *total.src[1:]),
        Op.ADD,
        total.tag,
    )


_BOOL_REDUCE = {Op.ADD: Op.MAX, Op.MAX: Op.MAX, Op.MUL: Op.MIN, Op.MIN: Op.MIN}


def _legal(u: UOp) -> UOp:
    """The node that the lowering rules make of one; itself if no rule matches."""
    rule = LOWERING.get(u.op)
    found = rule(u) if rule is not None else None
    return u if found is None or found[0] is None else found[0]
