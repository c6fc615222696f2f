"""The graph that is written, with values in the types that runtimes compute in; and the forms of single ops."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.errors import OnnxError
from anneal.onnx.values import array_code, dtype_named
from anneal.rewrite import FLOATS, INTEGERS
from anneal.uop import ALU, COMPARE, DType, Nodes, Op, Src, UOp, covering, dtypes, toposort
from anneal.uop.sizes import size

Sources = dict[str, tuple[str, int | None]]
Shape = tuple[Any, ...]  # of ints, and of nodes where a size is symbolic

_CARRIERS: dict[DType, DType] = {
    **FLOATS,
    **dict.fromkeys(INTEGERS, dtypes.int32),
    dtypes.uint32: dtypes.int64,
    dtypes.uint64: dtypes.int64,
}
_SHARED = 1024  # constants of at most so many bytes are written once


def carrier(dtype: DType) -> DType:
    """The dtype in which a runtime computes for `dtype`."""
    return _CARRIERS.get(dtype, dtype)


def code_of(dtype: DType) -> int:
    """The TensorProto.DataType of a dtype. Raises OnnxError for a dtype that ONNX does not have."""
    code = array_code(dtype.name)
    if not code:
        raise OnnxError(f"export: ONNX has no type {dtype.name}; cast it first")
    return code


class GraphValue(NamedTuple):
    """A tensor of the written graph: its name and a shape.

    The shape may have fewer axes than the node's, and 1 where the node repeats: it broadcasts to the node's.
    """

    name: str
    shape: Shape


Values = list[GraphValue]


class GraphWriter:
    """A graph in the making. `sources` says for each symbolic size the input and the axis that tell it, or the input
    that is it.

    Runtimes compute in few types, so every dtype has a carrier: float32 carries the narrow floats, int32 the integers
    of 8 and 16 bits and int64 the unsigned ones of 32 and 64 (of 64: the same bits). A carried value is always one that
    its dtype holds: after arithmetic it is rounded or wrapped by a cast to the dtype and back.
    """

    def __init__(self, opset: int, sources: Sources) -> None:
        self.opset = opset
        self.sources = sources
        self.nodes: list[Any] = []
        self.initialisers: list[tuple[str, Any]] = []  # names and arrays
        self.names: set[str] = set()
        self.path = ""
        self._numbers: dict[str, int] = {}
        self._constants: dict[Any, str] = {}
        self._sizes: dict[Any, str] = {}

    # -- names ----------------------------------------------------------------------------------------------------
    def at(self, u: UOp) -> None:
        """Name the following nodes after the module in which `u` was made."""
        path = ""
        for part in u.provenance[3].split("."):
            path += ("." if part.isdigit() and path else "/") + part if part else ""
        self.path = path

    def unique(self, name: str) -> str:
        """`name`, with a number if there is one of that name already."""
        found = name
        while found in self.names:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            found = f"{name}_{self._numbers[name]}"
        self.names.add(found)
        return found

    # -- nodes ----------------------------------------------------------------------------------------------------
    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node; the name of its first output. The others end in _1, _2 (an op that has several).

        `w.Add(a, b)` is `w.node("Add", a, b)`, and so for every operator of ONNX.
        """
        from onnx import helper

        name = self.unique(f"{self.path}/{op}")
        first = self.unique(f"{name}_output")
        names = [first, *[self.unique(f"{first}_{n}") for n in range(1, outputs)]]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=name, **attributes))
        return first

    def __getattr__(self, op: str) -> Callable[..., str]:
        if not op[0].isupper():
            raise AttributeError(op)
        return functools.partial(self.node, op)

    def rename(self, old: str, new: str) -> None:
        """Give a value another name, wherever it is read."""
        for n in self.nodes:
            for names in (n.input, n.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new

    def initialiser(self, name: str, array: Any) -> str:
        """Add a tensor of the file; its name."""
        name = self.unique(name)
        self.initialisers.append((name, array))
        return name

    def constant(self, array: Any) -> str:
        """A tensor that was computed for the file; equal small ones are one."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = (array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= _SHARED else None
        found = self._constants.get(key) if key else None
        if found is None:
            found = self.initialiser("constant", array)
            if key:
                self._constants[key] = found
        return found

    def ints(self, numbers: Sequence[int]) -> str:
        """A row of int64."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, dtype: DType, number: Any) -> str:
        """A number, in the carrier of `dtype`."""
        if dtype is dtypes.uint64:
            number = int(np.uint64(number).astype(np.int64))
        return self.constant(np.array(number, dtype_named(carrier(dtype).name)))

    def cast(self, name: str, dtype: DType) -> str:
        """The value as elements of exactly `dtype`."""
        more = {"saturate": 0} if dtype.is_float and dtype.bits == 8 else {}
        return self.node("Cast", name, to=code_of(dtype), **more)

    def settled(self, name: str, dtype: DType) -> str:
        """The result of arithmetic in the carrier, rounded or wrapped to what `dtype` holds."""
        own = carrier(dtype)
        if own is dtype or dtype is dtypes.uint64:
            return name
        return self.cast(self.cast(name, dtype), own)

    # -- shapes ---------------------------------------------------------------------------------------------------
    def size(self, n: Any) -> str:
        """A size as a row of one int64."""
        if n.__class__ is int:
            return self.ints([n])
        if n not in self._sizes:
            for x in toposort(n):
                if x not in self._sizes:
                    self._sizes[x] = self._size_node(x)
        return self._sizes[n]

    def _size_node(self, x: UOp) -> str:
        if x.is_const:
            return self.ints([x.arg])
        if x.op is not Op.VARIABLE and x.op is not Op.BIND:
            return self._of_sizes(_SIZE_OPS[x.op], *[self._sizes[s] for s in x.src])
        name, axis = self.sources[x.arg[0]]
        if axis is None:
            return self._of_sizes("Reshape", name, self.ints([1]))
        return self._of_sizes("Shape", name, start=axis, end=axis + 1)

    def _of_sizes(self, op: str, *inputs: str, **attributes: int) -> str:
        path, self.path = self.path, "/sizes"
        found = self.node(op, *inputs, **attributes)
        self.path = path
        return found

    def shape(self, shape: Shape) -> str:
        """A shape as a row of int64."""
        if all(n.__class__ is int for n in shape):
            return self.ints(shape)
        if shape not in self._sizes:
            parts = [self.size(n) for n in shape]
            self._sizes[shape] = self._of_sizes("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
        return self._sizes[shape]

    def reshape(self, name: str, shape: Shape) -> str:
        """The elements of a value in another shape."""
        symbolic = [i for i, n in enumerate(shape) if n.__class__ is not int]
        if len(symbolic) == 1 and 0 not in shape:
            return self.node("Reshape", name, self.ints([-1 if n.__class__ is not int else n for n in shape]))
        more = {"allowzero": 1} if 0 in shape or symbolic else {}
        return self.node("Reshape", name, self.shape(shape), **more)

    def ranked(self, v: GraphValue, rank: int) -> GraphValue:
        """The value with axes of size 1 before its own."""
        if not (missing := rank - len(v.shape)):
            return v
        return GraphValue(self.node("Unsqueeze", v.name, self.ints(range(missing))), (1,) * missing + v.shape)

    def whole(self, v: GraphValue, shape: Shape) -> GraphValue:
        """The value with `shape` itself."""
        if v.shape == shape:
            return v
        if all(n == 1 for n in shape):
            return self.ranked(v, len(shape))
        return GraphValue(self.node("Expand", v.name, self.shape(shape)), shape)

    def wholes(self, values: Sequence[GraphValue], nodes: Nodes) -> list[str]:
        """The names of values, each with the shape of its node."""
        return [self.whole(v, u.shape).name for v, u in zip(values, nodes)]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to; they are known to fit."""
    out: list[Any] = [1] * max(map(len, shapes))
    for s in shapes:
        for i, n in enumerate(reversed(s), 1):
            if n != 1:
                out[-i] = size(n)
    return tuple(out)


class ExportRecipe(NamedTuple):
    """The nodes that a value is computed from, and the function that writes it from theirs: a name alone is that of the
    whole value."""

    inputs: Src
    emit: Callable[[GraphWriter, Values], GraphValue | str]


MaybeRecipe = ExportRecipe | None


# -- elementwise ops ---------------------------------------------------------------------------------------------------


_BOOL = dtypes.bool_
_ALIKE = (
    Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.SQRT, Op.FLOOR, Op.CEIL, Op.ROUND, Op.SIGN, Op.ABS, Op.NEG, Op.ADD,
    Op.SUB, Op.MUL, Op.DIV, Op.POW, Op.MAX, Op.MIN,
)  # fmt: skip
_PLAIN = {op: op.name.capitalize() for op in _ALIKE} | {Op.RECIP: "Reciprocal"}
_SIZE_OPS = _PLAIN | {Op.IDIV: "Div", Op.MOD: "Mod"}
_OF_BOOLS = {
    Op.ADD: "Or", Op.OR: "Or", Op.MAX: "Or", Op.MUL: "And", Op.AND: "And", Op.MIN: "And", Op.SUB: "Xor", Op.XOR: "Xor",
    Op.NE: "Xor", Op.EQ: "Equal",
}  # fmt: skip
_BITS = {Op.AND: "BitwiseAnd", Op.OR: "BitwiseOr", Op.XOR: "BitwiseXor"}
_OVERFLOWS = frozenset((Op.NEG, Op.ABS, Op.ADD, Op.SUB, Op.MUL, Op.SHL, Op.IDIV))


def without_form(u: UOp, opset: int) -> str:
    """The reason why an elementwise node has no form in ONNX; "" if it has one."""
    if u.op is Op.THREEFRY:
        return "random numbers: a file draws none; switch dropout off with .eval(), or make them an input"
    if u.op in _BITS and u.dtype is not _BOOL and opset < 18:
        return f"{u.op.name.lower()} of the bits of integers: ONNX has it from opset 18"
    if u.op is Op.BITCAST:
        return "the bits of one dtype read as another"
    if u.op in (Op.IDIV, Op.MOD) and u.dtype is dtypes.uint64:
        return "division of uint64"
    for d in (u.dtype, *[s.dtype for s in u.src]):
        if d.is_float and d.bits == 8 and opset < 19:
            return f"{d.name}: ONNX has it from opset 19"
    return ""


def _of_two(op: str) -> Callable[[Term, Any], Term]:
    return lambda a, b: a.of(op, b)


class Term:
    """A carried value that is computed with: `a + b` and `a < 0` add a node to the graph, numbers are of its type.

    Args:
        w: the graph.
        name: of the value.
        dtype: what it stands for; `Term.dtype` is that one's carrier.
    """

    __slots__ = ("dtype", "name", "w")

    def __init__(self, w: GraphWriter, name: str, dtype: DType) -> None:
        self.w, self.name, self.dtype = w, name, carrier(dtype)

    def number(self, number: Any) -> Term:
        """A number of the same type."""
        return Term(self.w, self.w.scalar(self.dtype, number), self.dtype)

    def of(self, op: str, *others: Any, dtype: DType | None = None, **attributes: Any) -> Term:
        """The result of an operator for this value and others, or numbers; of this type if no other is named."""
        names = [o.name if isinstance(o, Term) else self.number(o).name for o in others]
        return Term(self.w, self.w.node(op, self.name, *names, **attributes), dtype or self.dtype)

    def where(self, a: Any, b: Any) -> Term:
        """`a` where this is true, else `b`; one of them may be a number."""
        like = a if isinstance(a, Term) else b
        a, b = [x if isinstance(x, Term) else like.number(x) for x in (a, b)]
        return self.of("Where", a, b, dtype=like.dtype)

    def cast(self, dtype: DType) -> Term:
        """The value as elements of exactly `dtype`."""
        return Term(self.w, self.w.cast(self.name, dtype), dtype)

    def settled(self, dtype: DType) -> Term:
        """The result of arithmetic, rounded or wrapped to what `dtype` holds."""
        return Term(self.w, self.w.settled(self.name, dtype), self.dtype)

    def eq(self, other: Any) -> Term:
        """True where both are equal."""
        return self.of("Equal", other, dtype=_BOOL)

    def __lt__(self, other: Any) -> Term:
        return self.of("Less", other, dtype=_BOOL)

    def __invert__(self) -> Term:
        return self.of("Not")

    __add__, __sub__, __mul__, __truediv__ = map(_of_two, ("Add", "Sub", "Mul", "Div"))
    __and__, __or__, __xor__ = map(_of_two, ("And", "Or", "Xor"))


def elementwise(w: GraphWriter, u: UOp, given: Values) -> GraphValue:
    """An elementwise node; the shape is what its sources broadcast to."""
    terms = [Term(w, v.name, s.dtype) for v, s in zip(given, u.src)]
    operand = u.src[-1].dtype
    if u.op is Op.CAST:
        made = cast(terms[0], u.src[0].dtype, u.dtype)
    elif u.op is Op.WHERE:
        made = _where(*terms)
    elif operand is _BOOL:
        made = _of_bools(u.op, *terms)
    elif u.op in COMPARE:
        made = _compare(u.op, operand, *terms)
    elif u.dtype.is_float:
        rule = _FLOATS.get(u.op)
        made = (rule(*terms) if rule else terms[0].of(_PLAIN[u.op], *terms[1:])).settled(u.dtype)
    else:
        made = _of_integers(u, *terms)
    return GraphValue(made.name, broadcast([v.shape for v in given]))


def _where(chosen: Term, a: Term, b: Term) -> Term:
    return chosen & a | ~chosen & b if a.dtype is _BOOL else chosen.where(a, b)


def _of_bools(op: Op, a: Term, *b: Term) -> Term:
    if op is Op.NOT:
        return ~a
    if op is Op.LT:
        return ~a & b[0]
    return a.of(_OF_BOOLS[op], *b) if op in _OF_BOOLS else a


def _compare(op: Op, dtype: DType, a: Term, b: Term) -> Term:
    if op is Op.LT:
        if dtype is dtypes.uint64:  # with the sign turned round the order of bits is that of signed integers
            a, b = a + -(1 << 63), b + -(1 << 63)
        return a < b
    equal = a.eq(b)
    return equal if op is Op.EQ else ~equal


# -- floats -----------------------------------------------------------------------------------------------------------


def _erf(x: Term) -> Term:
    if x.dtype is dtypes.float32:
        return x.of("Erf")
    return x.cast(dtypes.float32).of("Erf").cast(x.dtype)  # no runtime that we know has it in float64


def _mod(a: Term, b: Term) -> Term:
    """The remainder with the divisor's sign, from the one with the dividend's."""
    zero = a.number(0)
    rest = a.of("Mod", b, fmod=1)
    return _unlike(rest, b, zero).where(rest + b, rest)


def _unlike(rest: Term, b: Term, zero: Term) -> Term:
    """True for remainders, 0 apart, whose sign is not the divisor's."""
    return ((rest < zero) ^ (b < zero)) & ~rest.eq(zero)


def _idiv(a: Term, b: Term) -> Term:
    """The floor of the quotient: (a - remainder) / b, which is a whole number, except for rounding."""
    even = ((a - _mod(a, b)) / b).of("Round")
    return b.eq(0).where(a / b, even)


_FLOATS: dict[Op, Callable[..., Term]] = {
    Op.TRUNC: lambda x: x.of("Sign") * x.of("Abs").of("Floor"),
    Op.EXP2: lambda x: x.number(2.0).of("Pow", x),
    Op.LOG2: lambda x: x.of("Log") / math.log(2.0),
    Op.RSQRT: lambda x: x.of("Sqrt").of("Reciprocal"),
    Op.TAN: lambda x: x.of("Sin") / x.of("Cos"),
    Op.ERF: _erf,
    Op.MOD: _mod,
    Op.IDIV: _idiv,
}

_OTHERS = (Op.CAST, Op.BITCAST, Op.WHERE, Op.NOT, Op.SHL, Op.SHR, Op.THREEFRY)
FORMS = covering(
    "the table of forms in ONNX",
    dict.fromkeys((*_PLAIN, *_OF_BOOLS, *_BITS, *COMPARE, *_FLOATS, *_OTHERS)),
    (op for op in ALU if op.composed is None),
)

# -- integers ---------------------------------------------------------------------------------------------------------


def _of_integers(u: UOp, a: Term, *others: Term) -> Term:
    op, dtype = u.op, u.dtype
    if op in _BITS:
        return a.of(_BITS[op], *others)
    if op is Op.NOT:
        return a.number(dtype.max if dtype.kind == "uint" and dtype.bits < 64 else -1) - a
    if op is Op.SHL:
        made = a * _power(others[0], a.dtype)
    elif op is Op.SHR:
        return _shifted_right(dtype, a, *others)
    elif op is Op.IDIV or op is Op.MOD:
        made = _divided(u, a, *others)
    elif dtype is dtypes.uint64 and op in (Op.MAX, Op.MIN, Op.SIGN, Op.ABS):
        return _of_long_words(op, a, *others)
    else:
        made = a.of(_PLAIN[op], *others) if op in _PLAIN else a
    within = u.vmin is not None and u.vmax is not None and (u.vmin > dtype.min or u.vmax < dtype.max)
    return made.settled(dtype) if op in _OVERFLOWS and not within else made


def _of_long_words(op: Op, a: Term, *b: Term) -> Term:
    if op is Op.ABS:
        return a
    zero, one = a.number(0), a.number(1)
    if op is Op.SIGN:
        return a.eq(zero).where(zero, one)
    less = _compare(Op.LT, dtypes.uint64, a, *b)
    return less.where(b[0], a) if op is Op.MAX else less.where(a, b[0])


def _power(places: Term, own: DType) -> Term:
    """2 to the power of `places`, in a carrier; 0 from its width on."""
    table = [1 << i for i in range(own.bits - 1)] + [int(own.min)]
    row = Term(places.w, places.w.constant(np.array(table, own.name)), own)
    return row.of("Gather", places.cast(dtypes.int64), axis=0)


def _shifted_right(dtype: DType, x: Term, places: Term) -> Term:
    if dtype is dtypes.uint64:
        return x.cast(dtype).of("BitShift", places.cast(dtype), direction="RIGHT").cast(dtypes.int64)
    # the floor of the quotient: of ~x where x is negative, for ~(~x // 2**n) is x // 2**n
    ones, zero = x.number(-1), x.number(0)
    power = _power(places, x.dtype)
    negative = x < zero
    upright = negative.where(ones - x, x)
    # by the last power, which has the sign, everything is 0
    shifted = (power < zero).where(zero, upright / power)
    return negative.where(ones - shifted, shifted)


def _divided(u: UOp, a: Term, b: Term) -> Term:
    """The quotient rounded down, or the remainder with the divisor's sign; by zero it is 0."""
    left, right = u.src
    zero, one = a.number(0), a.number(1)
    least = right.vmin
    sure = least is not None and least > 0 or (right.is_const and right.arg != 0)
    none = None if sure else b.eq(zero)
    if none is not None:
        b = none.where(one, b)
    if u.op is Op.MOD:
        out = a.of("Mod", b)
    elif left.vmin is not None and left.vmin >= 0 and least is not None and least >= 0:
        out = a / b
    else:
        whole = a / b
        out = whole - _unlike(a - whole * b, b, zero).cast(a.dtype)
    return out if none is None else none.where(zero, out)


# -- casts ------------------------------------------------------------------------------------------------------------


def cast(x: Term, old: DType, new: DType) -> Term:
    """A carried value of dtype `old` as a carried one of `new`."""
    own = carrier(new)
    if new is _BOOL:
        return ~x.eq(0)
    if old.is_float and new.is_int:
        return _to_integer(x, new)
    if old is dtypes.uint64 and new.is_float:
        x = x.cast(old)
    if new is dtypes.float16:  # rounded once, whatever it was
        return x.cast(new).cast(own)
    out = x if x.dtype is own else x.cast(own)
    if old is _BOOL or (new.is_float and not new.is_narrow):
        return out
    if old.is_int and new.is_int and old.min >= new.min and old.max <= new.max:
        return out
    if old.is_float and old.digits <= new.digits and old.least >= new.least and old.largest <= new.largest:
        return out
    return out.settled(new)


def _to_integer(x: Term, new: DType) -> Term:
    """A float towards zero, at the ends of the range where it is beyond, and 0 for nan."""
    own = carrier(new)
    if new is dtypes.uint64:
        return x.of("Max", 0).cast(new).cast(own)
    wide = np.dtype(x.dtype.name).type
    low, high = wide(new.min), wide(new.max)
    if int(high) > new.max:
        high = np.nextafter(high, wide(0))
    inside = x.of("Max", low).of("Min", high)
    out = x.of("IsNaN", dtype=_BOOL).where(0, inside).cast(own)
    return out if int(high) == new.max else (x.number(high) < x).where(new.max, out)
