"""The ops that may exist at each stage, as tables, and `check`, which holds a graph to them.

    tensor   what anneal/tensor builds and the scheduler cuts: movement, axis reductions, elementwise ops over shapes
    kernel   what the scheduler hands to a device: stores over ranges, loads, scalar elementwise ops
    legal    the same in ops that code generation has text for: no ARGSORT; memory may round what is stored
    linear   a kernel whose ranges are split into pieces: tiles, hardware indices, lanes of vectors, stores in loops

Rows of ops (anneal/uop/ops.py) say at which stages an op exists, how many sources it takes and of which dtypes; the
tests here say the rest: op -> test, which returns what is wrong with a node, or an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anneal.errors import CompilerError
from anneal.rewrite.walk import over, rebuild
from anneal.uop import ALL, ALU, DTYPES, REDUCE_OPS, DType, Op, Src, UOp, alu, dtypes, toposort

# -- legalised dtypes -------------------------------------------------------------------------------------------------
# A value stored in few bits is computed in more, by a rewrite of kernels that every device shares.
#
# Afterwards a narrow dtype appears in memory, in LOAD, in CAST to and from it, and in BITCAST; an operation on it is
# one on the wide dtype, whose result is rounded (or wraps around) to the narrow one at once. What a kernel fuses
# therefore does not change a value.

_F32 = dtypes.float32
Widened = Mapping[DType, DType]
FLOATS: Widened = {d: _F32 for d in DTYPES if d.is_narrow}
INTEGERS: Widened = {
    dtypes.int8: dtypes.int32,
    dtypes.int16: dtypes.int32,
    dtypes.uint8: dtypes.uint32,
    dtypes.uint16: dtypes.uint32,
}
COMPUTED = {**FLOATS, **INTEGERS}


def legalised(sink: UOp, wide: Widened) -> UOp:
    """The kernel with every operation on a dtype that is a key of `wide` done in the dtype that `wide` gives for it.

    >>> from anneal.uop import const
    >>> x = UOp(Op.LOAD, dtypes.int8, (UOp(Op.PARAM, dtypes.int8, (), (0, (1,))), const(dtypes.int32, 0)))
    >>> legalised(x + x, INTEGERS) is (x.cast(dtypes.int32) + x.cast(dtypes.int32)).cast(dtypes.int8)
    True
    """
    order = toposort(sink)
    if not any(u.dtype in wide for u in order):
        return sink

    def visit(u: UOp, src: Src) -> UOp:
        narrow = u.dtype in wide
        if u.op in ALU and u.op is not Op.BITCAST and (narrow or any(s.dtype in wide for s in src)):
            return _computed(u, src, wide)
        if u.op is Op.REDUCE and narrow:
            return UOp(Op.REDUCE, wide[u.dtype], (_wide(src[0], wide), *src[1:]), u.arg, u.tag).cast(u.dtype)
        return over(u, src)

    return rebuild(sink, visit, order=order)


def _wide(u: UOp, wide: Widened) -> UOp:
    """`u` in the dtype that it is computed in; without the casts there and back if its bounds say that they lose
    nothing.
    """
    to = wide.get(u.dtype)
    if to is None:
        return u
    if u.op is Op.CAST and u.src[0].dtype is to and to.is_int:
        x = u.src[0]
        assert x.vmin is not None
        assert x.vmax is not None
        if u.dtype.min <= x.vmin and x.vmax <= u.dtype.max:
            return x
    return u.cast(to)


def _computed(u: UOp, src: Src, wide: Widened) -> UOp:
    x = tuple([_wide(s, wide) for s in src])
    if u.op is not Op.CAST:
        out = alu(u.op, x)
        return out if out.dtype is u.dtype else out.cast(u.dtype)
    # A number that is cast to a float dtype that only ml_dtypes or our own bit operations can make is cast to float32
    # first, on every device.
    by_single = u.dtype.is_narrow and u.dtype is not dtypes.float16
    return (x[0].cast(_F32) if by_single else x[0]).cast(u.dtype)


# -- the ops that may exist at each stage, as tables, and `check`, which holds a graph to them ------------------------


Test = Callable[[UOp], str]


def _plain(u: UOp) -> str:
    """The row of an op that is not elementwise."""
    arity = u.op.arity
    if arity is not None and len(u.src) != arity:
        return f"takes {('no source', 'one source', 'two sources', 'three sources')[arity]}"
    return "keeps its source's dtype" if u.op.takes and u.dtype is not u.src[0].dtype else ""


def _alu(u: UOp) -> str:
    op, src = u.op, u.src
    if len(src) != op.arity:
        return f"takes {op.arity} sources, not {len(src)}"
    if op is Op.CAST:
        return ""
    if op is Op.BITCAST:
        return "" if src[0].dtype.bits == u.dtype.bits else "keeps the number of bits"
    if op is Op.WHERE and src[0].dtype is not dtypes.bool_:
        return "chooses by a bool"
    values = src[1:] if op is Op.WHERE else src
    if any(s.dtype is not values[0].dtype for s in values):
        return f"takes sources of one dtype, not {', '.join(s.dtype.name for s in values)}"
    given = dtypes.bool_ if op.compares else values[0].dtype
    if u.dtype is not given:
        return f"gives {given.name}"
    if op.takes == "floats" and not values[0].dtype.is_float:
        return "is for floats"
    return "is not for floats" if op.takes == "whole" and values[0].dtype.is_float else ""


def _host(u: UOp) -> str:
    function, n = u.arg
    return "" if u.src and u.dtype is function.results[n][1] else "takes arrays, and gives what its function says"


def _reduce_axis(u: UOp) -> str:
    axes = u.arg[1]
    if u.arg[0] not in REDUCE_OPS or list(axes) != sorted(set(axes)):
        return "takes (ADD|MUL|MAX|MIN, sorted axes)"
    return _plain(u)


def _indexed(what: str, *places: int) -> Test:
    """The test of an op whose sources at some places are int32."""
    return lambda u: "" if not _plain(u) and all(u.src[n].dtype is dtypes.int32 for n in places) else f"takes {what}"


def _update(u: UOp) -> str:
    if len(u.src) < 2 or u.src[1].dtype is not u.dtype:
        return "takes an array and values of its dtype"
    starts = u.src[2:]
    fits = len(starts) == u.arg.count(None) + u.arg.count(-1) and all(
        s.dtype is dtypes.int32 and not s.shape for s in starts
    )
    return "" if fits else "takes a single int32 for every begin that its arg leaves open"


def _range(u: UOp) -> str:
    if len(u.src) != 1 or u.src[0].dtype is not dtypes.int32:
        return "has one int32 extent"
    return "" if isinstance(u.arg, tuple) and isinstance(u.arg[0], int) else "has arg (id, kind)"


_MEMORY = frozenset((Op.PARAM, Op.SHARED, Op.BUFFERIZE))


def _place(u: UOp, values: int) -> str:
    """PARAM, int32 index, `values` more sources and perhaps a bool predicate."""
    param, index = u.src[0], u.src[1]
    if param.op not in _MEMORY:
        return "addresses a PARAM, or workgroup memory"
    if index.dtype is not dtypes.int32:
        return f"has an int32 index, not {index.dtype.name}"
    if len(u.src) not in (2 + values, 3 + values):
        return f"takes {2 + values} sources, or {3 + values} with a predicate"
    if len(u.src) == 3 + values and u.src[-1].dtype is not dtypes.bool_:
        return "has a bool predicate"
    given = u if values == 0 else u.src[2]
    return "" if given.dtype is param.dtype else f"moves {param.dtype.name}, not {given.dtype.name}"


def _rounding_store(u: UOp) -> str:
    """The test of a store: its value may have the dtype in which its memory's dtype is computed."""
    memory, value = u.src[0].dtype, u.src[2].dtype
    rounds = value is COMPUTED.get(memory, memory)
    return "" if rounds and _place(u, 1).startswith("moves") else _place(u, 1)


def _reduce(u: UOp) -> str:
    if u.arg not in REDUCE_OPS:
        return "reduces by ADD, MUL, MAX or MIN"
    return "" if all(r.op is Op.RANGE for r in u.src[1:]) else "reduces over RANGEs"


_TESTS: dict[Op, Test] = {
    **dict.fromkeys(ALU, _alu),
    Op.REDUCE_AXIS: _reduce_axis,
    Op.GATHER: _indexed("values and int32 indices", 1),
    Op.SCATTER_ADD: _indexed("int32 rows and values", 0),
    Op.SEGMENT_SUM: _indexed("values, an int32 order and int32 starts", 1, 2),
    Op.UPDATE: _update,
    Op.HOST_CALL: _host,
    Op.RANGE: _range,
    Op.LOAD: lambda u: _place(u, 0),
    Op.STORE: _rounding_store,
    Op.REDUCE: _reduce,
    Op.SINK: lambda u: "" if all(s.op is Op.STORE for s in u.src) else "ends a kernel: its sources are STOREs",
}
# Tests of single stages, in place of those above.
_AT: dict[tuple[str, Op], Test] = {
    ("tensor", Op.ARGSORT): lambda u: "" if len(u.src) == 1 else "takes one source",
    **dict.fromkeys(
        (("kernel", Op.ARGSORT), ("kernel", Op.SCAN)),
        lambda u: "" if len(u.src) == 2 and u.src[0].op is Op.PARAM else "takes a PARAM and an index",
    ),
    ("kernel", Op.SCATTER_ADD): lambda u: (
        ""
        if len(u.src) > 2 and u.src[0].op is u.src[1].op is Op.PARAM
        else "takes a PARAM of rows, one of values, and an index"
    ),
    ("kernel", Op.STORE): lambda u: _place(u, 1),
    ("tensor", Op.SINK): _plain,
}
STAGES: Mapping[str, Mapping[Op, Test]] = {
    stage: {op: _AT.get((stage, op)) or _TESTS.get(op, _plain) for op in ALL.values() if stage in op.stages.split()}
    for stage in ("tensor", "kernel", "legal", "linear")
}


def check(sink: UOp, stage: str) -> None:
    """Hold every node below `sink` to the table of `stage` ("tensor", "kernel", "legal" or "linear").

    Raises CompilerError naming the stage, the op and what is wrong with it.

    >>> from anneal.uop import const
    >>> check(UOp(Op.EXP, dtypes.int32, (const(dtypes.int32, 1),)), "kernel")
    Traceback (most recent call last):
    ...
    anneal.errors.CompilerError: EXP is for floats in pass kernel on node:
    <EXP int32 (CONST)>
    """
    table = STAGES.get(stage)
    if table is None:
        raise CompilerError(f"unknown stage {stage!r}; known: {', '.join(STAGES)}")
    scalar = stage != "tensor"
    loops = 0
    for u in toposort(sink):
        test = table.get(u.op)
        if test is None:
            raise CompilerError(f"{u.op.name} may not exist here", stage=stage, node=repr(u))
        wrong = test(u)
        if wrong:
            raise CompilerError(f"{u.op.name} {wrong}", stage=stage, node=repr(u))
        if scalar and u.shape and u.op is not Op.PARAM:
            raise CompilerError(f"{u.op.name} has a shape {u.shape} inside a kernel", stage=stage, node=repr(u))
        if u.op is Op.RANGE and u.arg[1] != "reduce":
            loops |= 1 << u.arg[0]
    if stage in ("kernel", "legal") and sink.op is Op.SINK and sink.ranges & ~loops:
        raise CompilerError("a reduce range is used outside its REDUCE", stage=stage, node=repr(sink))
