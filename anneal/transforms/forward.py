"""jvp: forward mode, a walk with the nodes in the order they were made that gives each its tangent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from anneal.errors import DTypeError, GradientError, TransformError
from anneal.ops.nodes import spread, to_memory
from anneal.rewrite import substitute, value_of
from anneal.runtime import DeviceCall
from anneal.transforms.calls import Derivative, derivative_of, outputs_of
from anneal.transforms.forward_rules import FORWARD
from anneal.transforms.gradient_rules import GRADIENT
from anneal.transforms.pullback import FLAT, STOPS, Path, paths, pull_back
from anneal.transforms.reverse import Aux, R, Ts, matching, split
from anneal.transforms.trace import Trace, as_tensor, results_of, stand_in
from anneal.transforms.tree import flatten, like, paths_of, rebuild
from anneal.uop import ALU, Op, UOp, arena, const, toposort


def push_forward(path: Path, roots: list[UOp], tangents: dict[UOp, UOp]) -> None:
    """Add to `tangents` that of every node of `path` (sources first) on the way to `roots`; one not there is zero.

    Raises GradientError for an op without a rule.
    """
    needed = set(roots)
    for y, sources in reversed(path):
        if y in needed:
            needed.update(sources)
    calls: dict[Any, Sequence[UOp | None]] = {}  # the tangents of all results of a loop, by function and sources
    for y, sources in path:
        if y not in needed or not y.dtype.is_float or y.op in STOPS or y.op in FLAT:
            continue
        total: UOp | None = None
        if y.op is Op.HOST_CALL and isinstance(y.arg[0], DeviceCall):
            function, number = y.arg
            if (function, sources) not in calls:
                calls[function, sources] = function.rules.push(function, sources, [tangents.get(s) for s in sources])
            total, sources = calls[function, sources][number], ()
        for place, s in enumerate(sources):
            t = tangents.get(s)
            if t is None:
                continue
            c = _contribution(y, place, t)
            if c is not None:
                c = spread(c, y.shape).cast(y.dtype)
                total = c if total is None else total + c
        if total is not None:
            tangents[y] = total


def _contribution(y: UOp, place: int, tangent: UOp) -> UOp | None:
    """The share of `y`'s tangent that comes from the source at `place`."""
    if y.op is Op.BUFFER:
        return to_memory(tangent, y.shape)
    if y.op is Op.HOST_CALL and y.arg[0].gradient is not None:
        return _of_call(y, place, tangent)
    if (derivative := derivative_of(y)) is not None:
        return _of_function(y, derivative, place, tangent)
    out: tuple[UOp | None, ...] | None = None
    if y.op in FORWARD and (out := FORWARD[y.op](y, tangent, place)) is not None:
        place = 0
    elif y.op in ALU or (y.op is Op.CALL and tangent.shape in ((), y.shape)):
        # the derivative is its own transpose; no rule of a call is by a source of another shape
        out = GRADIENT[y.op](y, tangent) if y.op in GRADIENT else None
    if out is None and y.op is Op.CALL:
        return _of_body(y, place, tangent)
    if out is None:
        raise GradientError(
            f"jvp: {y.op.name.lower()} has no derivative: use detach() on its input if none should flow through it"
        )
    return out[place]


def _of_body(y: UOp, place: int, tangent: UOp) -> UOp | None:
    """The same of a call that no rule knows: of its body."""
    if not y.arg[0].results:
        return tangent if place == y.arg[1] else None
    if y.src[place] in y.src[:place]:
        return None
    known = {y.src[place]: tangent}
    root = value_of(y)
    push_forward(paths([(u, u.src) for u in toposort((root,), until=known.__contains__)], known)[1], [root], known)
    return known.get(root)


def _of_function(y: UOp, derivative: Derivative, place: int, tangent: UOp) -> UOp | None:
    """The same of a call with a derivative by functions: its own tangents, or the transpose of its gradient."""
    number: int = y.arg[1]
    values, count = y.arg[0].arguments
    place -= values
    if not 0 <= place < count:
        return None
    inputs, outputs, saved = outputs_of(y)
    if derivative.push is not None:
        return derivative.push(inputs, outputs, saved, [tangent if n == place else None for n in range(count)])[number]
    pull = derivative.pull

    def gradient(cotangent: UOp) -> UOp | None:
        given = [cotangent if n == number else None for n in range(len(outputs))]
        return pull(inputs, outputs, saved, given)[place]

    return _transposed(y, gradient, tangent)


def _of_call(y: UOp, place: int, tangent: UOp) -> UOp | None:
    """The same of a call of the host."""
    function, number = y.arg
    outputs = function.nodes(y.src)

    def gradient(cotangent: UOp) -> UOp | None:
        given = [cotangent if n == number else spread(const(u.dtype, 0), u.shape) for n, u in enumerate(outputs)]
        made: UOp | None = function.gradient(y.src, outputs, given)[place]
        return made

    return _transposed(y, gradient, tangent)


def _transposed(y: UOp, gradient: Callable[[UOp], UOp | None], tangent: UOp) -> UOp | None:
    """A tangent of `y` by the transpose of a gradient, which is linear in the cotangent of `y`.

    A gradient that is linear without showing it (by a call of the host, or a choice by what is 0) has a transpose which
    is the same for all cotangents, and is taken at 0.

    Raises GradientError where something that the gradient is made of has no gradient.
    """
    mark = arena().watermark()
    cotangent = stand_in(y.dtype, y.shape)
    made = gradient(cotangent)
    if made is None or made is cotangent:
        return None if made is None else tangent
    order = [(u, u.src) for u in arena().since(mark)]
    out = pull_back([(made, tangent)], *paths(order, [cotangent])).get(cotangent)
    return None if out is None else substitute(out, {cotangent: spread(const(y.dtype, 0), y.shape)})


@overload
def jvp(
    f: Callable[[*Ts], R], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[[*Ts], tuple[R, Aux]], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: Literal[True]
) -> tuple[R, R, Aux]: ...
@overload
def jvp(
    f: Callable[..., R], primals: list[Any], tangents: Sequence[Any], has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any: ...
def jvp(f: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """`f(*primals)` and its derivative in the direction `tangents`: a pair of trees like the result.

    `primals` and `tangents` are tuples of trees of one structure. A tangent has the shape and dtype of its primal; None
    is zero, and the only tangent of an integer. With `has_aux` the function returns (result, aux), and aux comes third.

    Raises TransformError if the structures differ, ShapeError or DTypeError if a tangent does not fit its primal.

    >>> from anneal.tensor import Tensor
    >>> jvp(lambda x, y: x * y, (Tensor([2.0]), Tensor([3.0])), (Tensor([1.0]), Tensor([0.5])))
    (Tensor([6.], dtype=float32), Tensor([4.], dtype=float32))
    """
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise TransformError(
                f"jvp: {what} are a tuple with one tree for each argument, as in jvp(f, (x,), (dx,)), not a "
                f"{type(given).__name__}"
            )
    primals, tangents = tuple(primals), tuple(tangents)
    trace = Trace("jvp")
    known: dict[UOp, UOp] = {}
    stand_ins = []
    wanted = like("jvp", primals, tangents, "tangents", "primals")
    for value, where, v in zip(flatten(primals), paths_of(primals, "primals"), wanted, strict=True):
        t = as_tensor("jvp", where, value)
        place = "tangents" + where.removeprefix("primals")
        if not t.dtype.is_float:
            if v is not None:
                raise DTypeError(
                    f"jvp: {where} is {t.dtype.name}, which has no tangent: give None in its place at {place}"
                )
            stand_ins.append(t)
            continue
        stand_in = trace.variables(t, where)
        stand_ins.append(stand_in)
        if v is not None:
            known[stand_in.uop] = matching("jvp", place, "primals", as_tensor("jvp", place, v), t).uop
    out, aux = split("jvp", has_aux, trace.run(f, rebuild(primals, iter(stand_ins)), {}))
    inner, extra = results_of("jvp", out), results_of("jvp", aux, "aux")
    push_forward(trace.order(), [t.uop for t in inner], known)
    pushed = [known.get(t.uop, spread(const(t.uop.dtype, 0), t.shape)) for t in inner]
    results = trace.finish([*inner, *inner, *extra], [*[t.uop for t in inner], *pushed, *[t.uop for t in extra]])
    n = len(inner)
    answer = rebuild(out, iter(results)), rebuild(out, iter(results[n : 2 * n]))
    return (*answer, rebuild(aux, iter(results[2 * n :]))) if has_aux else answer
