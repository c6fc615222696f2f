"""The values of graphs: element types and what holds them, sizes that depend on Variables, and the notes of runs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.onnx.graph import Graph
from anneal.ops import wrap_array
from anneal.runtime import Fun, storage_of
from anneal.tensor import Tensor, tree_leaves
from anneal.uop import Ints, Op, UOp, const, dtypes, toposort
from anneal.uop.sizes import Size, most, range_of, size, size_text

NpDType = np.dtype[Any]
Feeds = dict[str, Any]  # values by the names of what takes them
Key = tuple[Any, ...]  # identifies a node, and in a loop its turn

# TensorProto.DataType, counted from 1 -> the name of NumPy's or ml_dtypes' type.
_TYPES = (
    "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 "
    "float64 uint32 uint64 complex64 complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "uint4 int4 float4_e2m1fn float8_e8m0fnu uint2 int2 float6_e2m3fn float6_e3m2fn"
)
_NAMES = dict(enumerate(_TYPES.split(), 1))
PACKED_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6}  # of elements of which several are in a byte
_CODES = {name: code for code, name in _NAMES.items()} | {"object": 8}
_ON_DEVICE = frozenset(getattr(dtypes, n).name for n in vars(dtypes) if not n.startswith("_"))
_PLAIN = frozenset(np.dtype(n) for n in _ON_DEVICE & {"bool", *np.sctypeDict})  # known without asking for a name
_NARROWED = {"int64": ("int32", -(1 << 31), (1 << 31) - 1), "uint64": ("uint32", 0, (1 << 32) - 1)}


@dataclass(frozen=True, eq=False)
class Map:
    """A map as a value of a graph: from whole numbers or texts to numbers or texts. Callers give and get dicts."""

    entries: Mapping[Any, Any]

    @property
    def dtype(self) -> NpDType:
        """The dtype of arrays of objects: no device holds maps."""
        return np.dtype(object)

    @property
    def shape(self) -> Ints:
        """The number of entries."""
        return (len(self.entries),)

    def view(self) -> Map:
        """The same map as another object."""
        return Map(self.entries)


def element_name(code: int) -> str:
    """The name of a TensorProto.DataType: "float32", "string"; "type 99" if there is none."""
    return _NAMES.get(code, f"type {code}")


def element_bits(code: int) -> int:
    """The bits of an element of a TensorProto.DataType; 0 for texts, and if there is no such type."""
    dtype = array_dtype(code)
    return PACKED_BITS.get(code) or (0 if dtype is None or dtype.kind == "O" else dtype.itemsize * 8)


@lru_cache(64)  # a file may name any code
def array_dtype(code: int) -> NpDType | None:
    """NumPy's dtype of a TensorProto.DataType (objects for strings); None if there is none."""
    name = _NAMES.get(code)
    return None if name is None else dtype_named(name)


def dtype_named(name: str) -> NpDType:
    """NumPy's dtype, or ml_dtypes', of this name; objects for "string"."""
    import ml_dtypes

    return np.dtype(object if name == "string" else getattr(ml_dtypes, name, None) or name)


def array_code(name: str) -> int:
    """The TensorProto.DataType of a dtype by its name; 0 if there is none."""
    return _CODES.get(name, 0)


def fits_device(dtype: NpDType) -> bool:
    """True if a Tensor can hold elements of this dtype."""
    return dtype in _PLAIN or dtype.name in _ON_DEVICE


def device_array(array: Any, device: str, float64: str = "float32", *, constant: bool = False) -> Tensor:
    """An array as a Tensor on a device. On one without 64-bit integers they become 32-bit ones if their values allow;
    float64 becomes float32 where the device has none, if `float64` says so. A `constant`, which nobody writes, is not
    copied before it is uploaded.

    Raises DTypeError for elements that the device cannot hold.
    """
    if not fits_device(array.dtype):
        what = "strings" if array.dtype.kind == "O" else array.dtype.name
        raise DTypeError(f"takes a value of {what}, which no device holds")
    array = np.ascontiguousarray(array).reshape(array.shape)
    try:
        return Tensor(wrap_array(array, device, constant=True) if constant else array, device=device)
    except DTypeError as e:
        name = array.dtype.name
        if name == "float64" and float64 == "float32":
            return Tensor(array.astype(np.float32), device=device)
        if name in _NARROWED:
            narrow, least, most = _NARROWED[name]
            if not array.size or (array.min() >= least and array.max() <= most):
                return Tensor(array.astype(narrow), device=device)
            raise DTypeError(f"{e}; its values do not fit {narrow}") from None
        raise


def uploaded(array: Any, device: str, float64: str = "float32") -> Tensor:
    """`device_array` of what its owner may change later: it is copied once, to the device, before this returns. One
    number is memory too, not a constant that kernels are made for.
    """
    t = device_array(np.atleast_1d(array), device, float64, constant=True)
    storage = storage_of(t.uop)
    if storage is not None:
        storage.ensure()
    return t if array.ndim else t.reshape(())


Array = np.ndarray[Any, Any]


class Sizes:
    """An array of sizes: ints, and nodes that depend on Variables; `dtype` is the element type that ONNX gives it.

    A `Sizes` is an array of whole numbers, of which some follow from Variables. An operator that moves numbers moves
    nodes as well; one that computes has a row in `ARITHMETIC`; a comparison holds for all values of the Variables, or
    it is an error. What no row is for is computed on the device, from the numbers that a run has.
    """

    __slots__ = ("dtype", "items", "ndim", "shape", "size")

    def __init__(self, items: Array, dtype: Any) -> None:
        self.items = items
        self.dtype = np.dtype(dtype)
        self.shape = items.shape
        self.ndim, self.size = items.ndim, items.size

    def tolist(self) -> Any:
        """The numbers as nested lists."""
        return self.items.tolist()

    def __repr__(self) -> str:
        return f"Sizes([{', '.join([size_text(n) for n in self.items.reshape(-1)])}])"


def host_value(items: Any, dtype: Any = np.int64) -> Array | Sizes:
    """Sizes as a value on the host: an array where all of them are numbers.

    >>> host_value([2, 3])
    array([2, 3])
    """
    nested = np.asarray(items, object)
    flat = [size(n) for n in nested.reshape(-1)]
    if not any(isinstance(n, UOp) for n in flat):
        return np.array(flat, dtype).reshape(nested.shape)
    made = np.empty(len(flat), object)
    for i, n in enumerate(flat):
        made[i] = n
    return Sizes(made.reshape(nested.shape), dtype)


def objects(value: Any) -> Any:
    """A value as an array of ints and nodes, whatever it was."""
    return value.items if isinstance(value, Sizes) else value.astype(object) if isinstance(value, np.ndarray) else value


def tensor_of(value: Sizes, device: str) -> Tensor:
    """The numbers that this run has, on a device; as int32 where that has no integers of 64 bits."""
    row = Tensor.stack([Tensor(_node(n), device=device) for n in value.items.reshape(-1)]).reshape(value.shape)
    if value.dtype == np.int64 and device == "cpu":
        return row.cast(dtypes.int64)
    return row


# -- what computes ----------------------------------------------------------------------------------------------------


def _difference(a: Size, b: Size) -> tuple[int, int]:
    return range_of(a - b) if isinstance(a, UOp) or isinstance(b, UOp) else (int(a - b), int(a - b))


def _less(a: Size, b: Size) -> bool:
    low, high = _difference(a, b)
    if low < 0 <= high:
        raise ShapeError(f"whether {_told(a)} is less than {_told(b)} is not the same for all sizes")
    return high < 0


def _equal(a: Size, b: Size) -> bool:
    low, high = _difference(a, b)
    if low <= 0 <= high and low != high:
        raise ShapeError(f"whether {_told(a)} is {_told(b)} is not the same for all sizes")
    return low == high == 0


def _told(n: Size) -> str:
    return size_text(n, values=False)


def either(kind: Op, a: Size, b: Size) -> Size:
    """The larger or the smaller of two."""
    low, high = _difference(a, b)
    if low >= 0 or high <= 0:
        return a if (low >= 0) == (kind is Op.MAX) else b
    return kind(_node(a), _node(b))


def _node(n: Size) -> UOp:
    return n if isinstance(n, UOp) else const(dtypes.int32, int(n))


def _divided(a: Size, b: Size, remainder: bool = False) -> Size:
    """The quotient of numbers that are not negative, or what is left."""
    if range_of(size(a))[0] < 0 or range_of(size(b))[0] < 1:
        raise ShapeError(f"{_told(a)} divided by {_told(b)}, which are not known to be above 0")
    x = _node(a)
    return x % b if remainder else x // b


def _positive(a: Size) -> Size:
    if range_of(size(a))[0] < 0:
        raise ShapeError(f"{_told(a)} is not known to be 0 or more")
    return a


def _pairs(function: Callable[[Any, Any], Any]) -> Fun:
    each = np.frompyfunc(function, 2, 1)
    return lambda *xs: reduce(each, xs)


# name: a function of arrays of ints and nodes
ARITHMETIC: dict[str, Fun] = {
    "Abs": np.frompyfunc(_positive, 1, 1),
    "Add": _pairs(operator.add),
    "Div": _pairs(_divided),
    "Equal": _pairs(_equal),
    "Greater": _pairs(lambda a, b: _less(b, a)),
    "GreaterOrEqual": _pairs(lambda a, b: not _less(a, b)),
    "Less": _pairs(_less),
    "LessOrEqual": _pairs(lambda a, b: not _less(b, a)),
    "Max": _pairs(partial(either, Op.MAX)),
    "Min": _pairs(partial(either, Op.MIN)),
    "Mod": _pairs(partial(_divided, remainder=True)),
    "Mul": _pairs(operator.mul),
    "Neg": np.frompyfunc(operator.neg, 1, 1),
    "Sub": _pairs(operator.sub),
    "Sum": _pairs(operator.add),
}
_TRUTHS = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))  # those that give bools

# Operators whose functions for arrays move numbers, or take them together by + and *, whatever the numbers are.
MOVING = frozenset(
    ("Concat", "Expand", "Flatten", "Gather", "Identity", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Split")
    + ("Squeeze", "Transpose", "Unsqueeze", "Where")
)


def on_sizes(name: str, function: Fun, given: list[Any], data: list[Any]) -> Any:
    """The results of `function` of an operator that moves or computes the symbolic sizes among its inputs; None for
    any other operator. `data` are the inputs that are no attributes."""
    dtype = next((v.dtype for v in data if isinstance(v, Sizes)), None)
    if dtype is None:
        return None
    if name in ARITHMETIC:
        return host_value(ARITHMETIC[name](*[objects(v) for v in data]), np.bool_ if name in _TRUTHS else dtype)
    if name in ("Cast", "ReduceMax", "ReduceMin"):
        like, items = function(np.zeros(data[0].shape, dtype), *given[1:]), objects(data[0])
        if name != "Cast":
            items = np.full(like.shape, ARITHMETIC[name[6:]](*items.flat))
        if like.dtype in (np.int32, np.int64) and (name == "Cast" or like.size == 1):
            return host_value(items, like.dtype)
    if name in MOVING and (name in ("Concat", "Where") or not any(isinstance(v, Sizes) for v in given[1:])):
        moved = function(*[objects(v) for v in given])
        return tuple([host_value(r, dtype) for r in (moved if isinstance(moved, tuple) else (moved,))])
    return None


# -- the facts of any value -------------------------------------------------------------------------------------------


_ON_HOST = 1 << 24  # elements that a result on the host may have, where the device can compute it


class Items(list[Any]):
    """A sequence that a loop may grow, with what is known of all its items, so that no turn has to ask each of them:
    whether one is loose, whether all are fixed, those that perhaps are yet to be computed, and the elements of all.
    """

    __slots__ = ("fixed", "fresh", "loose", "size")
    size: int
    loose: bool
    fixed: bool
    fresh: list[Any]


def along(axis: int, ndim: int, n: Any = -1, others: Any = 1) -> list[Any]:
    """`n` for one of `ndim` axes: the shape in which a row goes along it."""
    return [n if i == axis else others for i in range(ndim)]


def border(axis: int, ndim: int, *pair: Any) -> list[Any]:
    """Pads of one of `ndim` axes: how many elements come before and behind."""
    return along(axis, ndim, pair, (0, 0))


def taken(x: Any, axis: int, at: Any) -> Any:
    """The element of an axis at a position, or those of a slice."""
    return x[(*(slice(None),) * axis, at)]


leaves = tree_leaves  # the arrays and tensors of a value: itself, or the items of sequences


def size_of(value: Any) -> int:
    """The number of elements that a tensor or an array has, or may have; 0 for anything else."""
    return math.prod([most(n) for n in value.shape]) if hasattr(value, "shape") else 0


def is_small(arrays: list[Any], most: int) -> bool:
    """True if an operator's result from these arrays is small, and at most `most`: as long as they broadcast, or else
    as all pairs of their elements.
    """
    try:
        size = math.prod(np.broadcast_shapes(*[v.shape for v in arrays if isinstance(v, np.ndarray)]))
    except ValueError:
        size = _ON_HOST + 1
    if size > _ON_HOST:
        size = math.prod(max(v.size, 1) for v in arrays if isinstance(v, np.ndarray))
    return size <= min(_ON_HOST, most)


def fit_device(values: list[Any]) -> bool:
    """True if tensors can hold the elements of all these arrays."""
    return all(fits_device(v.dtype) for v in leaves(values) if isinstance(v, np.ndarray))


def dtype_name(value: Any) -> str:
    """The name of a tensor's or an array's dtype."""
    return str(getattr(value.dtype, "name", value.dtype))


def brief(value: Any) -> str:
    """A value's dtype and shape, for messages."""
    if isinstance(value, (Tensor, np.ndarray, Sizes)):
        return f"{dtype_name(value)}{list(value.shape)}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else type(value).__name__


def type_of(value: Any) -> Any:
    """The TypeProto of a value."""
    from onnx import TypeProto, helper

    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0]) if value else TypeProto())
    if value is None:
        return TypeProto()
    sizes = [None if isinstance(d, UOp) else int(d) for d in value.shape]
    return helper.make_tensor_type_proto(array_code(value.dtype.name), sizes)


class NeedsHostError(Exception):
    """A value is wanted on the host, where a run is to be made of device work alone.

    `number` is that of the node that wants it, or that the graph which does is in, in the outermost graph.
    """

    number = -1


@dataclass(frozen=True)
class HostStep:
    """A node that reads values from the device in the middle of a run, and why."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


@dataclass(eq=False)
class Memo:
    """The results of nodes that are fixed for one set of input shapes, and arrays that are on the device as well."""

    results: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    lifted: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)  # by the id of the array, which is kept
    read: dict[int, tuple[Tensor, Any]] = field(default_factory=dict)  # tensors that are on the host as well
    fixed: dict[int, Any] = field(default_factory=dict)  # by id
    used: dict[int, Tensor] = field(default_factory=dict)  # fixed tensors that each run reads
    numbers: dict[Any, Any] = field(default_factory=dict)  # turns of loops
    unrolled: set[Any] = field(default_factory=set)  # nodes that cannot be loops on the device

    def fix(self, value: Any) -> None:
        """Remember that a value is fixed."""
        for v in leaves(value):
            self.fixed[id(v)] = v

    def held(self, tensor: Tensor | None) -> Any:
        """The array on the host that a tensor was made of; None if there is none."""
        return next((array for array, t in self.lifted.values() if t is tensor), None)


@dataclass(eq=False, slots=True)
class Scope:
    """The values of one graph while it runs, inside those of the graph around it."""

    graph: Graph
    key: Key
    outer: Scope | None
    values: Feeds
    at: int = 0  # the place of the node that runs, among those of `graph`

    def waiting(self) -> list[Tensor]:
        """Tensors that a later node reads, here or around: its reader computes them."""
        out = []
        scope: Scope | None = self
        while scope is not None:
            last = scope.graph.last_uses
            read = [v for name, v in scope.values.items() if last.get(name, -1) >= scope.at]
            for value in read:
                fresh = value.fresh if isinstance(value, Items) else leaves(value)
                out += [v for v in fresh if isinstance(v, Tensor)]
                if isinstance(value, Items):
                    value.fresh = []
            scope = scope.outer
        return out

    def find(self, name: str) -> Any:
        """The value of this name, here or in a graph around. Raises KeyError if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


def work_of(results: Iterable[UOp], inputs: Iterable[UOp]) -> int:
    """The elements that the sums and extremes between `inputs` and `results` go through: for a product of matrices
    (n, k) and (k, m) n * m * k, for a convolution the elements of its result times those of its window. A symbolic size
    counts as the largest that it may be.
    """
    sums = [u for u in toposort(results, until=set(inputs).__contains__) if u.op is Op.REDUCE_AXIS]
    return sum([math.prod([most(n) for n in u.src[0].shape]) for u in sums])
