"""Functions of the host as values: what a HOST_CALL node calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from anneal.backend import Array, numpy_dtype
from anneal.errors import DTypeError, ShapeError
from anneal.uop import DType, Op, UOp
from anneal.uop.sizes import evaluator, is_symbolic, size_text, symbolic_arg, variables_of

Shape = tuple[Any, ...]  # of ints and symbolic sizes
VmapMethod = Literal["sequential", "expand_dims", "broadcast_all"] | None
# (inputs, outputs, cotangents of the outputs) -> a cotangent for each input, or None for one that gets none
HostGradient = Callable[[Sequence[UOp], Sequence[UOp], Sequence[UOp]], Sequence[UOp | None]]


class _Identity:
    """The key of something that cannot be hashed: it equals itself alone."""

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def key_of(function: Callable[..., Any]) -> Hashable:
    """The key of a function without a given one: equal functions are one, and one that cannot be hashed is its own.

    >>> import numpy as np
    >>> key_of(np.sort) == key_of(np.sort), key_of(lambda a: a) == key_of(lambda a: a)
    (True, False)
    """
    try:
        hash(function)
    except TypeError:
        return _Identity(function)
    return function


@dataclass(frozen=True, slots=True)
class HostFunction:
    """`call(*arrays)` gives an array for each of `results`, a shape and a dtype. Functions of one key are the same one.

    A shape may have a Variable that no input has: the call finds its value, the size of the array that it gives.
    `name` is for messages. `gradient` and `vmap_method` say what its derivative and its batched form are.
    """

    key: Hashable
    results: tuple[tuple[Shape, DType], ...]
    call: Callable[..., Any] = field(compare=False, repr=False)
    name: str = field(default="function", compare=False)
    gradient: HostGradient | None = field(default=None, compare=False, repr=False)
    vmap_method: VmapMethod = "sequential"
    sizes: tuple[UOp, ...] = ()  # the Variables whose values a call finds

    @property
    def variables(self) -> tuple[UOp, ...]:
        """The Variables whose values matter to a call, besides those of its arguments' shapes."""
        return self.sizes

    def nodes(self, src: tuple[UOp, ...]) -> list[UOp]:
        """A call with these sources, as a node for each result.

        Args:
            src: the nodes of the arguments.
        """
        return [UOp(Op.HOST_CALL, dtype, src, (self, n)) for n, (_, dtype) in enumerate(self.results)]

    def arrays(self, given: Sequence[Array]) -> list[Array]:
        """The results for these arrays. Raises ShapeError or DTypeError for one that is not as declared.

        Args:
            given: the arrays, in order.
        """
        return self.called(given, {})[0]

    def called(self, given: Sequence[Array], values: Mapping[str, int]) -> tuple[list[Array], dict[str, int]]:
        """The results for these arrays, and the values of Variables that they tell; `values` are those known before.

        Raises ShapeError or DTypeError for a result that is not as it was said to be.

        Args:
            given: the arrays, in order.
        """
        made = self._several(self.call(*given))
        found: dict[str, int] = {}
        own = {v.arg[0] for v in self.sizes}
        out = []
        for n, (array, (shape, dtype)) in enumerate(zip(made, self.results, strict=True)):
            if own and len(array.shape) == len(shape):
                self._find(n, array, shape, own, found)
            wanted = evaluator(shape)({**values, **found}) if symbolic_arg(shape) else shape
            if array.shape != wanted:
                raise ShapeError(f"{self.title}: result {n} has shape {array.shape}, not {wanted} as declared")
            if array.dtype != numpy_dtype(dtype):
                raise DTypeError(
                    f"{self.title}: result {n} is {array.dtype}, not {dtype.name} as declared: use .astype"
                )
            out.append(np.ascontiguousarray(array).reshape(wanted))
        return out, found

    @property
    def title(self) -> str:
        """The name of a call of it in messages."""
        return f"host_call of {self.name}"

    def _several(self, made: Any) -> list[Array]:
        """The function's results as arrays, as many as were said."""
        if made is None:
            raise DTypeError(f"{self.title}: the function gives nothing; it returns an array for each result")
        one = isinstance(made, (np.ndarray, np.generic)) or np.isscalar(made)
        try:
            arrays = [np.asarray(a) for a in ([made] if one else made)]
        except (TypeError, ValueError) as e:
            raise DTypeError(f"{self.title}: the function gives a {type(made).__name__}, not arrays: {e}") from e
        if len(arrays) != len(self.results):
            raise ShapeError(
                f"{self.title}: the function gives {len(arrays)} arrays, not {len(self.results)} as declared"
            )
        return arrays

    def _find(self, n: int, array: Array, shape: Shape, own: set[str], found: dict[str, int]) -> None:
        """Note the values of the call's own Variables that stand alone in the shape of result `n`."""
        for axis, (size, has) in enumerate(zip(shape, array.shape, strict=True)):
            if not isinstance(size, UOp) or size.op is not Op.VARIABLE or size.arg[0] not in own:
                continue
            name, low, high = size.arg
            if not low <= has <= high:
                raise ShapeError(
                    f"{self.title}: result {n} has {has} along axis {axis}, and Variable {name} runs from {low} to "
                    f"{high}; give it wider bounds"
                )
            if found.setdefault(name, has) != has:
                raise ShapeError(
                    f"{self.title}: result {n} has {has} along axis {axis}, where Variable {name} is {found[name]} by "
                    "another size"
                )

    def for_each(self, batched: tuple[bool, ...], n: int, gradient: HostGradient | None) -> HostFunction:
        """The function of `n` examples; arguments that are `batched` have an axis of them in front, the others not.

        `gradient` is the gradient of it. By "sequential" it calls this one for each; else once, and what is not batched
        gets an axis in front, of 1 by "expand_dims" and of `n` by "broadcast_all".
        """
        method = self.vmap_method

        def one_by_one(*arrays: Array) -> list[Array]:
            made = [self.arrays([a[i] if b else a for a, b in zip(arrays, batched, strict=True)]) for i in range(n)]
            return [np.stack(each) for each in zip(*made, strict=True)]

        def at_once(*arrays: Array) -> Any:
            size = n if method == "broadcast_all" else 1
            wide = [
                a if b else np.broadcast_to(a, (size, *a.shape)).copy() for a, b in zip(arrays, batched, strict=True)
            ]
            return self.call(*wide)

        return HostFunction(
            ("each", self.key, batched, n),
            tuple([((n, *shape), dtype) for shape, dtype in self.results]),
            one_by_one if method == "sequential" else at_once,
            f"{self.name}, for {n} examples",
            gradient,
            method,
        )


def found_sizes(name: str, results: Sequence[tuple[Shape, DType]], inputs: Sequence[Shape]) -> tuple[UOp, ...]:
    """The Variables of the results' shapes that a call finds: those without a value that no input has.

    Raises ShapeError for one that stands in an expression alone, from which it could not be told.

    Args:
        name: the name of the call in messages.
        inputs: the tensors that the call is given.
    """
    known = {v.arg[0] for shape in inputs for size in shape for v in variables_of(size)}
    new: dict[str, UOp] = {}
    alone = set()
    for shape, _ in results:
        for size in shape:
            if isinstance(size, UOp) and not is_symbolic(size):
                raise ShapeError(f"{name}: a size of a result is an int or made of Variables, not {size!r}")
            for v in variables_of(size):
                if v.op is Op.VARIABLE and v.arg[0] not in known:
                    new[v.arg[0]] = v
            if isinstance(size, UOp) and size.op is Op.VARIABLE:
                alone.add(size.arg[0])
    for n in new:
        if n not in alone:
            said = [size_text(s) for shape, _ in results for s in shape if isinstance(s, UOp)]
            raise ShapeError(
                f"{name}: Variable {n} is to be found by the call: a size is {n} alone, not only {said[0]}"
            )
    return tuple(new.values())
