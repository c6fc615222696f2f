"""The op list: every word of the language, grouped by the stage at which it may exist."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["ALU", "BINARY", "COMPARE", "FITS", "MOVEMENT", "REDUCE_OPS", "TERNARY", "UNARY", "WRAPS", "Op"]


class Op:
    """An op. Each is a singleton, so `is` compares and hashing costs nothing."""

    __slots__ = ("index", "name")
    name: str
    index: int

    # -- leaves, any stage
    CONST: ClassVar[Op]  # a number; arg is the Python number, normalised to the dtype
    VARIABLE: ClassVar[Op]  # a symbolic size; arg is (name, min, max)
    BIND: ClassVar[Op]  # a VARIABLE with the value it has in this run; arg is (name, min, max, value); in no plan

    # -- leaves of a tensor graph
    BUFFER: ClassVar[Op]  # device memory; arg is a Storage (identity), shape (size,)
    IOTA: ClassVar[Op]  # 0, 1, ..., n-1; arg is (n,)

    # -- tensor graph only: movement, dissolved by rangeify into index arithmetic
    RESHAPE: ClassVar[Op]  # arg: the new shape
    PERMUTE: ClassVar[Op]  # arg: axis order; out.shape[i] = in.shape[arg[i]]
    EXPAND: ClassVar[Op]  # arg: the new shape; size-1 axes repeat
    PAD: ClassVar[Op]  # arg: ((before, after), ...) zeros added on each axis
    SHRINK: ClassVar[Op]  # arg: ((begin, end), ...) kept on each axis
    FLIP: ClassVar[Op]  # arg: axes to reverse, sorted

    # -- tensor graph only: the rest
    REDUCE_AXIS: ClassVar[Op]  # arg: (ADD|MUL|MAX|MIN, axes); reduced axes stay with size 1
    GATHER: ClassVar[Op]  # (x, index), arg: axis; out[i.., j, k..] = x[i.., index[i.., j, k..], k..]
    SCATTER_ADD: ClassVar[Op]  # (index[n], value[n, d]), arg: (v,); out[v, d] += value rows, deterministic
    ARGSORT: ClassVar[Op]  # (keys[n]), stable ascending order as int32
    SEGMENT_SUM: ClassVar[Op]  # (value[n, d], order[n], starts[v+1]); out[v] sums rows order[starts[v]:starts[v+1]]
    CONTIGUOUS: ClassVar[Op]  # must be materialised
    DETACH: ClassVar[Op]  # identity that stops gradients
    UPDATE: ClassVar[Op]  # (x, value, *starts), arg: begins, None where a start says; x with value there
    CALL: ClassVar[Op]  # (*inputs), arg: (Function, n); its result number n: what transforms know by the name
    HOST_CALL: ClassVar[
        Op
    ]  # (*inputs), arg: (HostFunction, n); its result number n: the host computes it, between plans

    # -- kernel graph
    PARAM: ClassVar[Op]  # kernel argument; arg is (slot, shape)
    RANGE: ClassVar[Op]  # (extent), arg: (id, "loop"|"reduce"|...); an index from 0 to extent-1
    LOAD: ClassVar[
        Op
    ]  # (param, index[, predicate]); where the predicate is false the value is 0 and memory is not touched
    STORE: ClassVar[Op]  # (param, index, value[, predicate])
    REDUCE: ClassVar[Op]  # (value, *ranges), arg: ADD|MUL|MAX|MIN; ends its ranges
    BUFFERIZE: ClassVar[Op]  # (value, *ranges), arg: "global"|"workgroup"|"register"; value kept over its ranges
    SINK: ClassVar[Op]  # (*stores) of a kernel, or the outputs of a tensor graph

    # -- linear program
    SPECIAL: ClassVar[Op]  # a hardware index; arg: (name, extent)
    SHARED: ClassVar[Op]  # workgroup memory; arg: (number, (size,))
    LANES: ClassVar[Op]  # (index, range | lane): a whole vector in memory, or one lane of it; the index counts vectors
    LANE: ClassVar[Op]  # (vector, range), arg: number; one lane as a scalar

    # -- unary
    CAST: ClassVar[Op]  # value conversion to the node's dtype
    BITCAST: ClassVar[Op]  # the same bits under another dtype of equal size
    NEG: ClassVar[Op]
    ABS: ClassVar[Op]
    SIGN: ClassVar[Op]
    NOT: ClassVar[Op]  # bitwise; logical on bool
    EXP: ClassVar[Op]
    EXP2: ClassVar[Op]
    LOG: ClassVar[Op]
    LOG2: ClassVar[Op]
    SIN: ClassVar[Op]
    COS: ClassVar[Op]
    TAN: ClassVar[Op]
    TANH: ClassVar[Op]
    ERF: ClassVar[Op]
    SQRT: ClassVar[Op]
    RSQRT: ClassVar[Op]
    RECIP: ClassVar[Op]
    FLOOR: ClassVar[Op]
    CEIL: ClassVar[Op]
    ROUND: ClassVar[Op]  # half to even
    TRUNC: ClassVar[Op]

    # -- binary; both sources share a dtype
    ADD: ClassVar[Op]
    SUB: ClassVar[Op]
    MUL: ClassVar[Op]
    DIV: ClassVar[Op]  # floats only
    IDIV: ClassVar[Op]  # floor division, as Python's
    MOD: ClassVar[Op]  # floor modulo: the sign of the divisor, as Python's
    POW: ClassVar[Op]  # floats only
    MAX: ClassVar[Op]
    MIN: ClassVar[Op]
    LT: ClassVar[Op]  # to bool, like EQ and NE
    EQ: ClassVar[Op]
    NE: ClassVar[Op]
    AND: ClassVar[Op]
    OR: ClassVar[Op]
    XOR: ClassVar[Op]
    SHL: ClassVar[Op]
    SHR: ClassVar[Op]

    # -- ternary
    WHERE: ClassVar[Op]  # (condition: bool, a, b)
    THREEFRY: ClassVar[Op]  # (counter, key0, key1), all uint32: first word of threefry2x32-20 of (counter, 0)

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index

    def __repr__(self) -> str:
        return f"Op.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        return getattr, (Op, self.name)


ALL: dict[str, Op] = {}
for _i, _name in enumerate(k for k in Op.__annotations__ if k.isupper() or "_" in k or k[-1].isdigit()):
    ALL[_name] = Op(_name, _i)
    setattr(Op, _name, ALL[_name])


def _between(first: Op, last: Op) -> frozenset[Op]:
    return frozenset(o for o in ALL.values() if first.index <= o.index <= last.index)


MOVEMENT = _between(Op.RESHAPE, Op.FLIP)
UNARY = _between(Op.CAST, Op.TRUNC)
BINARY = _between(Op.ADD, Op.SHR)
TERNARY = frozenset((Op.WHERE, Op.THREEFRY))
ALU = UNARY | BINARY | TERNARY
COMPARE = frozenset((Op.LT, Op.EQ, Op.NE))
REDUCE_OPS = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN))
# A CAST of integers with the tag (FITS, name, text) is of an op's result: the cpu raises RangeError if it loses a
# value, or a UserError that says the text, if there is one; for WRAPS it warns.
FITS, WRAPS = "fits", "wraps"
