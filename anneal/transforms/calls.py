"""Gradients by Python functions: of HOST_CALL nodes, and of results that a `Derivative` belongs to.

Such a function gets the cotangents of all results of a call at once, so the walk collects them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from anneal.backend import Storage
from anneal.errors import GradientError, ShapeError
from anneal.ops.nodes import spread
from anneal.runtime import DeviceCall, HostFunction, here
from anneal.uop import Op, UOp, const, dtypes, of_rule

Nodes = Sequence[UOp]
Some = Sequence[UOp | None]
# (inputs, results, saved, cotangents of results) -> those of inputs
Pull = Callable[[Nodes, Nodes, Nodes, Some], Some]
# (inputs, results, saved, tangents of inputs) -> those of results
Push = Callable[[Nodes, Nodes, Nodes, Some], Some]


class Derivative:
    """The derivative of one call by functions of Python; `name` is for messages.

    A result is a CALL of a Function by the name "function", whose arguments are how many values and how many inputs
    there are, over (*values, *inputs, *saved, token). The token is memory that is never read: it has the Derivative,
    and what numbers memory numbers calls with it.
    """

    __slots__ = ("_each", "captured", "hooks", "name", "pull", "push")

    def __init__(self, name: str, pull: Pull, push: Push | None = None) -> None:
        self.name, self.pull, self.push = name, pull, push
        self.captured: Any = None  # of a captured call, whose results are in memory: that (`captured.py`)
        self.hooks: Any = None  # of a tensor with hooks: they
        self._each: weakref.WeakValueDictionary[Any, UOp] = weakref.WeakValueDictionary()

    def token(self, device: str) -> UOp:
        """A node that stands for this call."""
        storage = Storage(1, dtypes.int32, device)
        storage.derivative = self
        return UOp(Op.BUFFER, dtypes.int32, (), storage)

    def token_of_each(self, device: str, key: Any, make: Callable[[], Derivative]) -> UOp:
        """The token of a call of many examples, one for all of its results."""
        found = self._each.get(key)
        if found is None:
            found = self._each[key] = make().token(device)
        return found


def derivative_of(y: UOp) -> Derivative | None:
    """The Derivative of the result `y`, None for any other node."""
    if y.op is not Op.CALL or y.arg[0].name != "function":
        return None
    found: Derivative = y.src[-1].arg.derivative
    return found


def differentiated(values: Nodes, inputs: Nodes, saved: Nodes, token: UOp) -> list[UOp]:
    """The results of a call with these values."""
    function = of_rule("function", (len(values), len(inputs)))
    src = (*values, *inputs, *saved, token)
    return [UOp(Op.CALL, v.dtype, src, (function, n)) for n, v in enumerate(values)]


def outputs_of(y: UOp) -> tuple[Nodes, Nodes, Nodes]:
    """The inputs, all results and the saved values of the call that a result is of."""
    function, _ = y.arg
    values, inputs = function.arguments
    results = [UOp(Op.CALL, v.dtype, y.src, (function, n)) for n, v in enumerate(y.src[:values])]
    return y.src[values : values + inputs], results, y.src[values + inputs : -1]


def _call_of(y: UOp) -> Any:
    """The identity of the call that made a node, equal for all its results; None for a node that no call made."""
    return (y.arg[0], y.src) if y.op is Op.HOST_CALL or derivative_of(y) is not None else None


class Calls:
    """The calls on a path of the reverse walk.

    The cotangent of a result is whole when the walk comes to it, and those of all results of a call when it comes to
    the one that is `first` on the path; what the call was made of is before all of them.
    """

    __slots__ = ("_given", "first", "of")

    def __init__(self, path: Sequence[tuple[UOp, tuple[UOp, ...]]]) -> None:
        self.first: set[UOp] = set()
        self.of: dict[UOp, Any] = {}
        self._given: dict[Any, dict[int, UOp]] = {}  # the cotangents that have come, by the result's number
        if here.context.tensors.host_calls or here.context.tensors.derivatives:
            for y, _ in path:
                call = _call_of(y)
                if call is not None:
                    self.of[y] = call
                    if call not in self._given:
                        self._given[call] = {}
                        self.first.add(y)

    def contributions(self, y: UOp, g: UOp | None) -> Some:
        """A result's share of the cotangents of the call's inputs: the last that comes brings it for all.

        Raises GradientError for a function without a gradient, ShapeError for a cotangent of another shape.
        """
        number = y.arg[1]
        given = self._given[self.of[y]]
        if g is not None:
            given[number] = spread(g.cast(y.dtype), y.shape)
        if y not in self.first or not given:
            return (None,) * len(y.src)
        if y.op is Op.HOST_CALL:
            function = y.arg[0]
            if isinstance(function, DeviceCall):
                return function.rules.pull(function, y.src, [given.get(n) for n in range(len(function.results))])
            return _of_host(y, given)
        derivative = derivative_of(y)
        assert derivative is not None
        inputs, outputs, saved = outputs_of(y)
        here.effects += derivative.captured is None  # the function is to be called each time
        made = derivative.pull(inputs, outputs, saved, [given.get(n) for n in range(len(outputs))])
        before = len(outputs)
        return [*[None] * before, *made, *[None] * (len(y.src) - before - len(made))]


def _of_host(y: UOp, given: dict[int, UOp]) -> Some:
    function: HostFunction = y.arg[0]
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
            f"the gradient of {function.title} gives {len(made)} cotangents for {len(y.src)} inputs: one for each, "
            "None where there is none"
        )
    for n, (c, x) in enumerate(zip(made, y.src, strict=True)):
        if c is not None and c.shape != x.shape:
            raise ShapeError(
                f"the gradient of {function.title} gives input {n}, of shape {x.shape}, a cotangent of shape {c.shape}"
            )
    return [None if c is None or not x.dtype.is_float else c for c, x in zip(made, y.src, strict=True)]


def number_of(u: UOp) -> Any:
    """The number that every element of a node is; None where that is not plain."""
    while u.op is Op.RESHAPE or u.op is Op.EXPAND or u.op is Op.CAST:
        u = u.src[0]
    return u.arg if u.op is Op.CONST else None
