"""The graph that is written: nodes, initialisers, unique names, and values in the types that runtimes compute in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.onnx.values import array_code, array_dtype
from anneal.rewrite import FLOATS, INTEGERS
from anneal.uop import DType, Op, UOp, dtypes, toposort
from anneal.uop.sizes import size

Shape = tuple[Any, ...]  # of ints, and of nodes where a size is symbolic

_CARRIERS: dict[DType, DType] = {
    **FLOATS,
    **dict.fromkeys(INTEGERS, dtypes.int32),
    dtypes.uint32: dtypes.int64,
    dtypes.uint64: dtypes.int64,
}
_SHARED = 1024  # constants of at most so many bytes are written once
_SIZE_OPS = {Op.ADD: "Add", Op.SUB: "Sub", Op.MUL: "Mul", Op.IDIV: "Div", Op.MOD: "Mod", Op.MAX: "Max", Op.MIN: "Min"}


def carrier(dtype: DType) -> DType:
    """The dtype in which a runtime computes for `dtype`."""
    return _CARRIERS.get(dtype, dtype)


def code_of(dtype: DType) -> int:
    """The TensorProto.DataType of a dtype."""
    return array_code(dtype.name)


class GraphValue(NamedTuple):
    """A tensor of the written graph: its name, the dtype that it stands for, and a shape.

    The shape may have fewer axes than the node's, and 1 where the node repeats: it broadcasts to the node's.
    """

    name: str
    dtype: DType
    shape: Shape


class GraphWriter:
    """A graph in the making. `sources` says for each symbolic size the input and the axis that tell it, or the input
    that is it.

    Runtimes compute in few types, so every dtype has a carrier: float32 carries the narrow floats, int32 the integers
    of 8 and 16 bits and int64 the unsigned ones of 32 and 64 (of 64: the same bits). A carried value is always one that
    its dtype holds: after arithmetic it is rounded or wrapped by a cast to the dtype and back.
    """

    def __init__(self, opset: int, sources: dict[str, tuple[str, int | None]]) -> None:
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
        """Name the nodes to come after the module in which `u` was made."""
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
        return self.constant(np.array(number, array_dtype(code_of(carrier(dtype)))))

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
            for x in toposort((n,)):
                if x not in self._sizes:
                    self._sizes[x] = self._size_node(x)
        return self._sizes[n]

    def _size_node(self, x: UOp) -> str:
        if x.op is Op.CONST:
            return self.ints([x.arg])
        path, self.path = self.path, "/sizes"
        if x.op is Op.VARIABLE or x.op is Op.BIND:
            name, axis = self.sources[x.arg[0]]
            if axis is None:
                found = self.node("Reshape", name, self.ints([1]))
            else:
                found = self.node("Shape", name, start=axis, end=axis + 1)
        elif x.op is Op.NEG:
            found = self.node("Neg", self._sizes[x.src[0]])
        else:
            found = self.node(_SIZE_OPS[x.op], *[self._sizes[s] for s in x.src])
        self.path = path
        return found

    def shape(self, shape: Shape) -> str:
        """A shape as a row of int64."""
        if all(n.__class__ is int for n in shape):
            return self.ints(shape)
        if shape not in self._sizes:
            parts = [self.size(n) for n in shape]
            path, self.path = self.path, "/sizes"
            self._sizes[shape] = self.node("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
            self.path = path
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
        missing = rank - len(v.shape)
        if not missing:
            return v
        shape = (1,) * missing + v.shape
        return GraphValue(self.node("Unsqueeze", v.name, self.ints(range(missing))), v.dtype, shape)

    def whole(self, v: GraphValue, shape: Shape) -> GraphValue:
        """The value with `shape` itself."""
        if v.shape == shape:
            return v
        if all(n == 1 for n in shape):
            return self.ranked(v, len(shape))
        return GraphValue(self.node("Expand", v.name, self.shape(shape)), v.dtype, shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to; they are known to fit."""
    out: list[Any] = [1] * max(map(len, shapes))
    for s in shapes:
        for i, n in enumerate(reversed(s), 1):
            if n.__class__ is not int or n != 1:
                out[-i] = size(n)
    return tuple(out)


# -- a recipe ---------------------------------------------------------------------------------------------------------


class ExportRecipe(NamedTuple):
    """The nodes that a value is computed from, and the function that writes it from theirs."""

    inputs: tuple[UOp, ...]
    emit: Callable[[GraphWriter, list[GraphValue]], GraphValue]
