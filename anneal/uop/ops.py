"""The op list: every word of the language, one row an op, grouped by the stage at which it may exist.

The cells of a row are what the compiler asks of every op; `Op` says what they are. `numpy` and `change` are given NumPy
when they are called, so this package does not import it. What depends on a dialect of kernels, or on a file format,
stands there, in tables by op; `covering` holds them to this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from anneal.errors import CompilerError
from anneal.uop import bounds as interval, meaning
from anneal.uop.dtype import DType, Number


class _Symbolic:
    """A flag: the process has made a VARIABLE. Before, every size is an int and need not be looked at."""

    def __init__(self) -> None:
        self.seen = False


SYMBOLIC = _Symbolic()


class _Later:
    """Files of functions of nodes that are written in nodes; `complete.py` puts them here at import."""

    sizes: Any
    text: Any


LATER = _Later()


T = TypeVar("T")
Shape = tuple[Any, ...]
N = TypeVar("N")  # a node: `UOp`, which stands above this file
_ANY = "tensor kernel legal linear"


def _op(stages: str = "tensor", arity: int | None = None, **cells: Any) -> Op:
    return {"stages": stages, "arity": arity, **cells}  # type: ignore[return-value]  # the row, of which `Op` is made


def _view(numpy: Callable[..., Any], bounds: Any = interval.kept, **cells: Any) -> Op:
    return _op(arity=1, takes="same", numpy=numpy, bounds=bounds, **cells)


def _alu(arity: int, numpy: Any, bounds: Any = None, takes: str = "same", cost: int = 1, **cells: Any) -> Op:
    return _op(_ANY, arity, numpy=numpy, bounds=bounds, takes=takes, cost=cost, **{"ulps": 1.0, **cells})


def _function(numpy: Any, ulps: float, cost: int = 6, change: Any = "monotone", composed: Any = None) -> Op:
    return _alu(1, numpy, takes="floats", cost=cost, ulps=ulps, change=change, composed=composed)


def _keep(src: tuple[Any, ...], _arg: Any) -> Shape:
    return src[0].shape  # type: ignore[no-any-return]


def _padded(src: tuple[Any, ...], arg: Any) -> Shape:
    out = tuple([b + s + a for s, (b, a) in zip(src[0].shape, arg, strict=True)])
    return LATER.sizes.sizes(out) if SYMBOLIC.seen else out


def _shrunk(_: tuple[Any, ...], arg: Any) -> Shape:
    out = tuple([e - b for b, e in arg])
    return LATER.sizes.sizes(out) if SYMBOLIC.seen else out


class Op:
    """An op. Each is a singleton, so `is` compares and hashing costs nothing.

    `stages` are the names of those at which it may exist, `arity` its sources if they are always as many. `takes` says
    of an op that has sources of one dtype: "same", and it may be any; "floats"; "whole", which are all others. Of an
    op that is elementwise the result has that dtype, too, unless it `compares`.

    `shape(src, arg)` is the shape in a tensor graph. `bounds(dtype, src)` are those of a result that is no float; of
    an op that is not elementwise `bounds(dtype, src, arg)`. Where there are none it is the dtype's whole range. `cost`
    is what computing it again costs, in units of one multiplication.

    `numpy` is the meaning: the name of a function of NumPy, or `numpy(np, *arrays)`; of an op that is not elementwise
    `numpy(np, node, arrays, dtype)`. `ulps` is the error of a device in halves of the last digit, twice the worst that
    NUMERICS.md measured, 0 where the bits are kept. `change` says how far the value moves if the operands do:
    "monotone", "pole" (at 0, and monotone on both sides), or `change(np, value, x, error of x, ...)`.

    `sign` is Python's sign for it. `composed(*sources)` is the same in terms of other ops, for a dialect or a format
    whose table lacks the op.
    """

    name: str
    index: int
    stages: str
    arity: int | None
    takes: str
    compares: bool
    sign: str | None
    composed: Callable[..., Any] | None
    shape: Callable[[tuple[Any, ...], Any], Shape] | None
    bounds: Callable[..., tuple[Any, Any]] | None
    cost: int
    numpy: str | Callable[..., Any] | None
    ulps: float
    change: str | Callable[..., Any] | None
    __slots__ = tuple(__annotations__)
    make: ClassVar[Callable[..., Any]]  # `alu`, which node.py puts here

    def __call__(self, *src: N) -> N:
        """The elementwise node of the op over `src`, folded: `Op.MAX(a, b)`."""
        made: N = Op.make(self, src)
        return made

    # -- leaves, any stage
    CONST = _op(_ANY, 0, bounds=lambda _, __, arg: (arg, arg), numpy=lambda np, u, _, dtype: np.array(u.arg, dtype))
    # a number; arg is the Python number, normalised to the dtype
    VARIABLE = _op(_ANY, 0, bounds=lambda _, __, arg: arg[1:3])  # a symbolic size; arg is (name, min, max)
    BIND = _op(arity=0, bounds=lambda _, __, arg: arg[1:3])
    # a VARIABLE with the value it has in this run; arg is (name, min, max, value); in no plan

    # -- leaves of a tensor graph
    BUFFER = _op(arity=0, shape=lambda _, arg: (arg.size,))  # device memory; arg is a Storage (identity)
    IOTA = _op(
        arity=0,
        shape=lambda _, arg: arg,
        bounds=lambda _, __, arg: (0, max(0, (arg[0] if arg[0].__class__ is int else arg[0].vmax) - 1)),
        numpy=lambda np, u, _, dtype: np.arange(u.arg[0], dtype=dtype),
    )  # 0, 1, ..., n-1; arg is (n,)

    # -- tensor graph only: movement, dissolved by rangeify into index arithmetic
    RESHAPE = _view(lambda _, u, src, __: src[0].reshape(u.shape), shape=lambda _, arg: arg)  # arg: the new shape
    PERMUTE = _view(
        lambda _, u, src, __: src[0].transpose(u.arg),
        shape=lambda src, arg: tuple([src[0].shape[i] for i in arg]),
    )  # arg: axis order; out.shape[i] = in.shape[arg[i]]
    EXPAND = _view(
        lambda np, u, src, _: np.broadcast_to(src[0], u.shape), shape=lambda _, arg: arg
    )  # arg: the new shape; size-1 axes repeat
    PAD = _view(
        lambda np, u, src, _: np.pad(src[0], u.arg) if u.arg else src[0], bounds=None, shape=_padded
    )  # arg: ((before, after), ...) zeros added on each axis
    SHRINK = _view(
        lambda _, u, src, __: src[0][tuple([slice(*pair) for pair in u.arg])], shape=_shrunk
    )  # arg: ((begin, end), ...) kept on each axis
    FLIP = _view(lambda np, u, src, _: np.flip(src[0], u.arg), shape=_keep)  # arg: axes to reverse, sorted

    # -- tensor graph only: the rest
    REDUCE_AXIS = _op(
        arity=1,
        takes="same",
        shape=lambda src, arg: tuple([1 if i in arg[1] else s for i, s in enumerate(src[0].shape)]),
        numpy=meaning.reduce_axis,
    )  # arg: (ADD|MUL|MAX|MIN, axes); reduced axes stay with size 1
    GATHER = _op(arity=2, shape=lambda src, _: src[1].shape, numpy=meaning.gather)
    # (x, index), arg: axis; out[i.., j, k..] = x[i.., index[i.., j, k..], k..]
    SCATTER_ADD = _op(
        "tensor kernel",
        shape=lambda src, arg: (arg[0], *src[1].shape[1:]) if len(src) == 2 else (),  # in a kernel: (..., *ranges)
        numpy=meaning.scatter_add,
    )  # (index[n], value[n, d]), arg: (v,); out[v, d] += value rows, deterministic; (v, MAX): their largest integers
    ARGSORT = _op(
        "tensor kernel",
        shape=lambda src, arg: meaning.order_shape(src[0], arg) if len(src) == 1 else (),  # in a kernel: (keys, range)
        bounds=lambda _, src, __: (0, max(0, src[0].size - 1)),
        numpy=meaning.order,
    )  # (keys[n]), stable ascending order as int32; arg (n, k): of every n keys, in one row, the first k of the order
    SEGMENT_SUM = _op(
        arity=3, shape=lambda src, _: (src[2].shape[0] - 1, *src[0].shape[1:]), numpy=meaning.segment_sum
    )  # (value[n, d], order[n], starts[v+1]); out[v] sums rows order[starts[v]:starts[v+1]]
    SCAN = _op(
        "tensor kernel",
        shape=lambda src, _: src[0].shape if len(src) == 1 else (),  # in a kernel: (x, index)
        numpy=meaning.scan,
    )  # (x), arg: (ADD|MUL|MAX|MIN, n, after); x[before, n, after] with each element reduced with those before it
    CONTIGUOUS = _view(lambda _, __, src, ___: src[0], shape=_keep)  # must be materialised
    DETACH = _view(lambda _, __, src, ___: src[0], shape=_keep)  # identity that stops gradients
    UPDATE = _op(shape=_keep, numpy=meaning.update)
    # (x, value, *starts), arg: begins, None or -1 where a start says; x with value there: the part is moved inside, or
    # what lies outside of x is left out (-1)
    CALL = _op(
        shape=lambda src, arg: (arg[0].results or src)[arg[1]].shape,
        bounds=interval.called,
        numpy=lambda _, u, src, __: src[u.arg[1]],
    )  # (*inputs), arg: (Function, n); its result number n: what transforms know by the name
    HOST_CALL = _op(
        shape=lambda _, arg: arg[0].results[arg[1]][0],
        numpy=lambda _, u, src, __: u.arg[0].arrays(src)[u.arg[1]],
    )  # (*inputs), arg: (HostFunction, n); its result number n: the host computes it, between plans

    # -- kernel graph
    PARAM = _op(_ANY, 0, shape=lambda _, arg: arg[1])  # kernel argument; arg is (slot, shape)
    RANGE = _op("kernel legal linear", 1, bounds=lambda _, src, __: (0, max(0, (src[0].vmax or 1) - 1)))
    # (extent), arg: (id, "loop"|"reduce"|...); an index from 0 to extent-1
    LOAD = _op("kernel legal linear")
    # (param, index[, predicate]); where the predicate is false the value is 0 and memory is not touched
    STORE = _op("kernel legal linear")  # (param, index, value[, predicate])
    REDUCE = _op("kernel legal linear")  # (value, *ranges), arg: ADD|MUL|MAX|MIN; ends its ranges
    BUFFERIZE = _op("linear")  # (value, *ranges), arg: "global"|"workgroup"|"register"; value kept over its ranges
    SINK = _op(_ANY)  # (*stores) of a kernel, or the outputs of a tensor graph

    # -- linear program
    SPECIAL = _op("linear", 0, bounds=lambda _, __, arg: (0, arg[1] - 1))  # a hardware index; arg: (name, extent)
    SHARED = _op("linear", 0)  # workgroup memory; arg: (number, (size,))
    LANES = _op("linear")  # (index, range | lane): a whole vector in memory, or one lane; the index counts vectors
    LANE = _op("linear")  # (vector, range), arg: number; one lane as a scalar

    # -- unary
    CAST = _alu(1, meaning.cast, interval.cast, takes="", cost=0)  # value conversion to the node's dtype
    BITCAST = _alu(
        1, lambda np, x, dtype: np.ascontiguousarray(x).view(dtype).reshape(x.shape), takes="", cost=0
    )  # the same bits under another dtype of equal size
    NEG = _alu(1, meaning.neg, interval.neg, ulps=0.0)
    ABS = _alu(1, "abs", interval.magnitude, ulps=0.0)
    SIGN = _alu(1, "sign", interval.signum, ulps=0.0, change="monotone")
    NOT = _alu(1, meaning.invert, interval.invert, takes="whole")  # bitwise; logical on bool
    EXP = _function("exp", ulps=8.0)
    EXP2 = _function("exp2", ulps=8.0)
    LOG = _function("log", ulps=16.0)
    LOG2 = _function("log2", ulps=16.0)
    SIN = _function("sin", ulps=16.0, change=meaning.wave)
    COS = _function("cos", ulps=16.0, change=meaning.wave)
    TAN = _function("tan", ulps=32.0, change=None)
    TANH = _function("tanh", ulps=16.0)
    ERF = _function(meaning.erf, ulps=32.0)
    SQRT = _function("sqrt", cost=3, ulps=8.0)
    RSQRT = _function(lambda np, a: 1 / np.sqrt(a), cost=3, ulps=8.0, change="pole")
    RECIP = _function(lambda _, a: 1 / a, cost=3, ulps=8.0, change="pole")
    FLOOR = _function("floor", ulps=0.0, cost=1)
    CEIL = _function("ceil", ulps=0.0, cost=1)
    ROUND = _function("rint", ulps=0.0, cost=1)  # half to even
    TRUNC = _function("trunc", ulps=0.0, cost=1)

    # -- binary; both sources share a dtype
    ADD = _alu(2, "add", interval.add, sign="+")
    SUB = _alu(2, meaning.subtract, interval.sub, sign="-")
    MUL = _alu(2, "multiply", interval.mul, sign="*")
    DIV = _alu(2, "divide", takes="floats", cost=3, ulps=8.0, sign="/")
    IDIV = _alu(2, meaning.floor_divide, interval.idiv, cost=3, ulps=8.0, sign="//")  # floor division, as Python's
    MOD = _alu(
        2, meaning.mod, interval.mod, cost=3, ulps=8.0, sign="%"
    )  # floor modulo: the sign of the divisor, as Python's
    POW = _alu(2, "power", takes="floats", cost=6, ulps=64.0, sign="**")
    MAX = _alu(2, "maximum", interval.greater, ulps=0.0)
    MIN = _alu(2, "minimum", interval.lesser, ulps=0.0)
    LT = _alu(2, "less", interval.lt, compares=True, sign="<")  # to bool, like EQ and NE
    EQ = _alu(2, "equal", interval.eq, compares=True, sign="==")
    NE = _alu(2, "not_equal", interval.ne, compares=True, sign="!=")
    AND = _alu(2, "bitwise_and", interval.both, takes="whole", sign="&")
    OR = _alu(2, "bitwise_or", interval.either, takes="whole", sign="|")
    XOR = _alu(2, "bitwise_xor", interval.xor, takes="whole", sign="^")
    SHL = _alu(2, "left_shift", interval.shl, takes="whole", sign="<<")
    SHR = _alu(2, "right_shift", interval.shr, takes="whole", sign=">>")

    # -- ternary
    WHERE = _alu(3, "where", interval.where)  # (condition: bool, a, b)
    THREEFRY = _alu(
        3, lambda np, x, *key: meaning.threefry2x32(np, x, np.zeros_like(x), *key)[0], takes="whole", cost=60
    )
    # (counter, key0, key1), all uint32: first word of threefry2x32-20 of (counter, 0)

    def __init__(self, name: str, index: int, cells: Mapping[str, Any]) -> None:
        self.name, self.index = name, index
        for cell in Op.__slots__:
            if cell not in ("name", "index"):
                setattr(self, cell, cells.get(cell))

    def __repr__(self) -> str:
        return f"Op.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        return getattr, (Op, self.name)


ALL: dict[str, Op] = {}
for _name, _cells in list(vars(Op).items()):
    if _name.isupper():
        ALL[_name] = Op(_name, len(ALL), _cells)
        setattr(Op, _name, ALL[_name])


MOVEMENT = frozenset((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.FLIP))
ALU = frozenset(o for o in ALL.values() if o.takes is not None and "kernel" in o.stages)  # elementwise
COMPARE = frozenset(o for o in ALU if o.compares)
REAL = frozenset(o for o in ALU if o.takes in ("same", "floats")) - COMPARE  # floats of floats
REDUCE_OPS = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN))
# A CAST of integers with the tag (FITS, name, text) is of an op's result: the cpu raises RangeError if it loses a
# value, or a UserError that says the text, if there is one; for WRAPS it warns.
FITS, WRAPS = "fits", "wraps"
# A REDUCE_AXIS or REDUCE with this tag is a sum of products of float16 numbers that need not be exact to float32.
BY_MATRICES = "by matrices"


def ranks(items: Iterable[T]) -> dict[T, int]:
    """The places of items, from 0."""
    return {x: n for n, x in enumerate(items)}


def covering(what: str, table: Mapping[Op, T], ops: Iterable[Op] = ALU) -> Mapping[Op, T]:
    """`table`, which has an entry for each of `ops`. Raises CompilerError with the names of those it lacks.

    >>> covering("the table of this example", {Op.ADD: "+"}, (Op.ADD, Op.SUB))
    Traceback (most recent call last):
    ...
    anneal.errors.CompilerError: the table of this example lacks SUB
    """
    lacking = sorted(o.name for o in set(ops).difference(table))
    if lacking:
        raise CompilerError(f"{what} lacks {', '.join(lacking)}")
    return table


def reduce_identity(op: Op, dtype: DType) -> Number:
    """The value that a reduction by `op` starts from, and gives over nothing.

    >>> from anneal.uop.dtype import dtypes
    >>> [reduce_identity(op, dtypes.int8) for op in (Op.ADD, Op.MUL, Op.MAX, Op.MIN)]
    [0, 1, -128, 127]
    """
    if op is Op.ADD:
        return 0
    if op is Op.MUL:
        return 1
    return dtype.min if op is Op.MAX else dtype.max
