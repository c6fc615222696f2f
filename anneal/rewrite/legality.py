"""The ops that may exist at each stage, as tables, and `check`, which holds a graph to them.

    tensor   what anneal/tensor builds and the scheduler cuts: movement, axis reductions, elementwise ops over shapes
    kernel   what the scheduler hands to a device: stores over ranges, loads, scalar elementwise ops
    legal    the same in ops that code generation has text for: no ARGSORT; a store may take a value that memory rounds
    linear   a kernel whose ranges are split into pieces: tiles, hardware indices, lanes of vectors, and stores in loops

Every table is op -> test; a test returns what is wrong with a node, or an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anneal.errors import CompilerError
from anneal.rewrite.legalise import FLOATS, INTEGERS
from anneal.uop import ALU, COMPARE, MOVEMENT, REDUCE_OPS, TERNARY, UNARY, Op, UOp, dtypes, toposort

__all__ = ["STAGES", "check"]

Test = Callable[[UOp], str]

_FLOAT_ONLY = frozenset(
    (
        Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.SQRT, Op.RSQRT, Op.RECIP,
        Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC, Op.DIV, Op.POW,
    )
)  # fmt: skip
_NO_FLOAT = frozenset((Op.NOT, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR))


def _fine(_: UOp) -> str:
    return ""


def _leaf(u: UOp) -> str:
    return "takes no source" if u.src else ""


def _one(u: UOp) -> str:
    return "" if len(u.src) == 1 else "takes one source"


def _kept(u: UOp) -> str:
    return _one(u) or ("" if u.dtype is u.src[0].dtype else "keeps its source's dtype")


def _alu(u: UOp) -> str:
    op, src = u.op, u.src
    arity = 1 if op in UNARY else 3 if op in TERNARY else 2
    if len(src) != arity:
        return f"takes {arity} sources, not {len(src)}"
    if op is Op.CAST:
        return ""
    if op is Op.BITCAST:
        return "" if src[0].dtype.bits == u.dtype.bits else "keeps the number of bits"
    if op is Op.WHERE and src[0].dtype is not dtypes.bool_:
        return "chooses by a bool"
    values = src[1:] if op is Op.WHERE else src
    if any(s.dtype is not values[0].dtype for s in values):
        return f"takes sources of one dtype, not {', '.join(s.dtype.name for s in values)}"
    if u.dtype is not (dtypes.bool_ if op in COMPARE else values[0].dtype):
        return f"gives {'bool' if op in COMPARE else values[0].dtype.name}"
    if op in _FLOAT_ONLY and not values[0].dtype.is_float:
        return "is for floats"
    return "is not for floats" if op in _NO_FLOAT and values[0].dtype.is_float else ""


def _host(u: UOp) -> str:
    function, n = u.arg
    return "" if u.src and u.dtype is function.results[n][1] else "takes arrays, and gives what its function says"


def _reduce_axis(u: UOp) -> str:
    axes = u.arg[1]
    if u.arg[0] not in REDUCE_OPS or list(axes) != sorted(set(axes)):
        return "takes (ADD|MUL|MAX|MIN, sorted axes)"
    return _kept(u)


def _gather(u: UOp) -> str:
    return "" if len(u.src) == 2 and u.src[1].dtype is dtypes.int32 else "takes values and int32 indices"


def _update(u: UOp) -> str:
    if len(u.src) < 2 or u.src[1].dtype is not u.dtype:
        return "takes an array and values of its dtype"
    starts = u.src[2:]
    fits = len(starts) == u.arg.count(None) and all(s.dtype is dtypes.int32 and not s.shape for s in starts)
    return "" if fits else "takes a single int32 for every begin that its arg leaves open"


def _scatter(u: UOp) -> str:
    return "" if len(u.src) == 2 and u.src[0].dtype is dtypes.int32 else "takes int32 rows and values"


def _segments(u: UOp) -> str:
    fits = len(u.src) == 3 and u.src[1].dtype is dtypes.int32 and u.src[2].dtype is dtypes.int32
    return "" if fits else "takes values, an int32 order and int32 starts"


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


def _load(u: UOp) -> str:
    return _place(u, 0)


def _store(u: UOp) -> str:
    return _place(u, 1)


def _rounding_store(u: UOp) -> str:
    """A store whose value may have the dtype in which its memory's dtype is computed."""
    memory, value = u.src[0].dtype, u.src[2].dtype
    rounds = value is _COMPUTED.get(memory, memory)
    return "" if rounds and _place(u, 1).startswith("moves") else _place(u, 1)


def _reduce(u: UOp) -> str:
    if u.arg not in REDUCE_OPS:
        return "reduces by ADD, MUL, MAX or MIN"
    return "" if all(r.op is Op.RANGE for r in u.src[1:]) else "reduces over RANGEs"


def _rank(u: UOp) -> str:
    return "" if len(u.src) == 2 and u.src[0].op is Op.PARAM else "takes a PARAM of keys and a range"


def _stores(u: UOp) -> str:
    if not all(s.op is Op.STORE for s in u.src):
        return "ends a kernel: its sources are STOREs"
    return ""


_COMPUTED = {**FLOATS, **INTEGERS}
_LEAVES: dict[Op, Test] = {Op.CONST: _leaf, Op.VARIABLE: _leaf}
_ELEMENTWISE: dict[Op, Test] = dict.fromkeys(ALU, _alu)

STAGES: Mapping[str, Mapping[Op, Test]] = {
    "tensor": _LEAVES
    | _ELEMENTWISE
    | dict.fromkeys(MOVEMENT, _kept)
    | {
        Op.BIND: _leaf,
        Op.BUFFER: _leaf,
        Op.PARAM: _leaf,
        Op.IOTA: _leaf,
        Op.REDUCE_AXIS: _reduce_axis,
        Op.GATHER: _gather,
        Op.SCATTER_ADD: _scatter,
        Op.ARGSORT: _one,
        Op.SEGMENT_SUM: _segments,
        Op.CONTIGUOUS: _kept,
        Op.UPDATE: _update,
        Op.DETACH: _kept,
        Op.CALL: _fine,
        Op.HOST_CALL: _host,
        Op.SINK: _fine,
    },
    "kernel": _LEAVES
    | _ELEMENTWISE
    | {
        Op.PARAM: _leaf,
        Op.RANGE: _range,
        Op.LOAD: _load,
        Op.STORE: _store,
        Op.REDUCE: _reduce,
        Op.ARGSORT: _rank,
        Op.SINK: _stores,
    },
    "legal": _LEAVES
    | _ELEMENTWISE
    | {
        Op.PARAM: _leaf,
        Op.RANGE: _range,
        Op.LOAD: _load,
        Op.STORE: _rounding_store,
        Op.REDUCE: _reduce,
        Op.SINK: _stores,
    },
    "linear": _LEAVES
    | _ELEMENTWISE
    | {
        Op.PARAM: _leaf,
        Op.SPECIAL: _leaf,
        Op.RANGE: _range,
        Op.LOAD: _load,
        Op.STORE: _rounding_store,
        Op.REDUCE: _reduce,
        Op.BUFFERIZE: _fine,
        Op.SHARED: _leaf,
        Op.LANES: _fine,
        Op.LANE: _fine,
        Op.SINK: _stores,
    },
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
    for u in toposort((sink,)):
        test = table.get(u.op)
        if test is None:
            raise CompilerError(f"{u.op.name} may not exist here", stage=stage, node=repr(u))
        wrong = test(u)
        if wrong:
            raise CompilerError(f"{u.op.name} {wrong}", stage=stage, node=repr(u))
        if scalar and u.shape and u.op is not Op.PARAM:
            raise CompilerError(f"{u.op.name} has a shape {u.shape} inside a kernel", stage=stage, node=repr(u))
    if stage in ("kernel", "legal") and sink.op is Op.SINK:
        loops = 0
        for u in toposort((sink,)):
            if u.op is Op.RANGE and u.arg[1] != "reduce":
                loops |= 1 << u.arg[0]
        if sink.ranges & ~loops:
            raise CompilerError("a reduce range is used outside its REDUCE", stage=stage, node=repr(sink))
