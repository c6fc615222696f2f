"""Gradients of HOST_CALL nodes: what a call's own `gradient` makes of the cotangents of all its results at once."""

from __future__ import annotations

from collections.abc import Sequence

from anneal.errors import GradientError, ShapeError
from anneal.ops.nodes import spread
from anneal.runtime import HostFunction, here
from anneal.uop import Op, UOp, const

__all__ = ["HostCalls"]

_Call = tuple[HostFunction, tuple[UOp, ...]]


class HostCalls:
    """The calls on a path of the reverse walk.

    The cotangent of a result is whole when the walk comes to it, and those of all results of a call when it comes to
    the one that is `first` on the path; what the call was made of is before all of them.
    """

    __slots__ = ("_given", "first")

    def __init__(self, path: Sequence[tuple[UOp, tuple[UOp, ...]]]) -> None:
        self.first: dict[UOp, _Call] = {}
        self._given: dict[_Call, dict[int, UOp]] = {}  # the cotangents that have come, by the result's number
        if here.context.tensors.host_calls:
            for y, _ in path:
                call = (y.arg[0], y.src) if y.op is Op.HOST_CALL else None
                if call is not None and call not in self._given:
                    self._given[call] = {}
                    self.first[y] = call

    def contributions(self, y: UOp, g: UOp | None) -> Sequence[UOp | None]:
        """A result's share of the cotangents of the call's inputs: the last that comes brings it for all.

        Raises GradientError for a function without a gradient, ShapeError for a cotangent of another shape.
        """
        function, number = y.arg
        given = self._given[function, y.src]
        if g is not None:
            given[number] = spread(g.cast(y.dtype), y.shape)
        if y not in self.first or not given:
            return (None,) * len(y.src)
        if function.gradient is None:
            raise GradientError(
                f"host_call has no gradient for {function.name}: pass gradient=, or use detach() on its input if none "
                "should flow through it"
            )
        outputs = function.nodes(y.src)
        cotangents = [given[n] if n in given else spread(const(u.dtype, 0), u.shape) for n, u in enumerate(outputs)]
        made = function.gradient(y.src, outputs, cotangents)
        if len(made) != len(y.src):
            raise GradientError(
                f"the gradient of {function.title} gives {len(made)} cotangents for {len(y.src)} inputs: one for each, None "
                "where there is none"
            )
        for n, (c, x) in enumerate(zip(made, y.src, strict=True)):
            if c is not None and c.shape != x.shape:
                raise ShapeError(
                    f"the gradient of {function.title} gives input {n}, of shape {x.shape}, a cotangent of shape {c.shape}"
                )
        return [None if c is None or not x.dtype.is_float else c for c, x in zip(made, y.src, strict=True)]
