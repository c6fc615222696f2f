"""grad, value_and_grad and vjp: the reverse mode of `gradient.upat` over functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, TypeVarTuple, overload

from anneal.errors import DTypeError, GradientError, ShapeError, TransformError
from anneal.names import Tensor
from anneal.ops import is_tensor
from anneal.ops.nodes import spread
from anneal.transforms.pullback import Path, backward_phase, paths, pull_back
from anneal.transforms.trace import Trace, as_tensor, results_of
from anneal.transforms.tree import like, paths_of, rebuild
from anneal.uop import UOp, const

# For type checkers alone. A function with annotations keeps its parameters and its result. What a lambda takes stays
# open, and no checker complains: an argument to differentiate is therefore bound by Any, not by Tensor.
P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Any)  # the trees that are differentiated: the first argument, the second, the third
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")
_R_co = TypeVar("_R_co", covariant=True)


class TypedFunction(Protocol[P, _R_co]):
    """A function of parameters `P`. (mypy refuses calls of a `Callable` that was made of a lambda as untyped.)"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> _R_co: ...


Numbers = int | Sequence[int]


def numbers_of(name: str, argnums: Numbers, args: Sequence[Any]) -> list[int]:
    """`argnums` counted from 0. Raises GradientError for one that names no argument, or one twice."""
    out = []
    for n in (argnums,) if isinstance(argnums, int) else argnums:
        if not -len(args) <= n < len(args):
            raise GradientError(
                f"{name}: argnums names argument {n}, but the call has {len(args)} positional arguments; what is to be "
                "differentiated is passed by position"
            )
        out.append(n % len(args))
    if len(set(out)) < len(out):
        raise GradientError(f"{name}: argnums names an argument twice: {tuple(out)}")
    return out


def split(name: str, has_aux: bool, out: Any) -> tuple[Any, Any]:
    """A function's return value as (result, aux)."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise TransformError(
            f"{name}: with has_aux=True the function returns (result, aux), not a {type(out).__name__}"
        )
    return out


@overload
def grad(
    f: Callable[Concatenate[A, P], Tensor], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[A, P], A]: ...
@overload
def grad(
    f: Callable[Concatenate[A, P], tuple[Tensor, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> TypedFunction[Concatenate[A, P], tuple[A, Aux]]: ...
@overload
def grad(
    f: Callable[Concatenate[A, B, P], Tensor], argnums: Literal[1], has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[A, B, P], B]: ...
@overload
def grad(
    f: Callable[Concatenate[A, B, P], Tensor],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
) -> TypedFunction[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def grad(
    f: Callable[Concatenate[A, B, C, P], Tensor],
    argnums: tuple[Literal[0], Literal[1], Literal[2]],
    has_aux: Literal[False] = False,
) -> TypedFunction[Concatenate[A, B, C, P], tuple[A, B, C]]: ...
@overload
def grad(f: Callable[P, Any], argnums: Numbers, has_aux: bool = False) -> TypedFunction[P, Any]: ...
def grad(f: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that gives the gradient of `f` with respect to its arguments `argnums`.

    `f` returns one float tensor of one element (with `has_aux`, a pair of it and any tree). An argument is a tensor or
    a tree of them (dicts, lists, tuples); its gradient has the same structure. What `f` captures is a constant.

    Raises GradientError if the result is not a float of one element, or an argument not of floats.

    >>> from anneal.tensor import Tensor
    >>> slope = grad(lambda x: (x * x * x).sum())
    >>> slope(Tensor([1.0, 2.0])), grad(lambda x: slope(x).sum())(Tensor([1.0, 2.0]))
    (Tensor([ 3., 12.], dtype=float32), Tensor([ 6., 12.], dtype=float32))
    """
    if is_tensor(f) or (isinstance(f, (list, tuple)) and any(is_tensor(x) for x in f)):
        raise TypeError(
            "grad: takes a function, as in grad(f)(x); the gradient of a tensor that was computed is "
            "anneal.autograd.grad(y, x), or y.backward() and x.grad"
        )
    both = _value_and_grad("grad", f, argnums, has_aux)

    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient_of


@overload
def value_and_grad(
    f: Callable[Concatenate[A, P], Tensor], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[A, P], tuple[Tensor, A]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, P], tuple[Tensor, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> TypedFunction[Concatenate[A, P], tuple[tuple[Tensor, Aux], A]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, B, P], Tensor], argnums: Literal[1], has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[A, B, P], tuple[Tensor, B]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, B, P], Tensor],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
) -> TypedFunction[Concatenate[A, B, P], tuple[Tensor, tuple[A, B]]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, B, C, P], Tensor],
    argnums: tuple[Literal[0], Literal[1], Literal[2]],
    has_aux: Literal[False] = False,
) -> TypedFunction[Concatenate[A, B, C, P], tuple[Tensor, tuple[A, B, C]]]: ...
@overload
def value_and_grad(
    f: Callable[P, Any], argnums: Numbers, has_aux: bool = False
) -> TypedFunction[P, tuple[Any, Any]]: ...
def value_and_grad(f: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that returns `(value, gradient)` of `f` with respect to its arguments `argnums`, as `grad`; with
    `has_aux`, `((value, aux), gradient)`.

    >>> from anneal.tensor import Tensor
    >>> value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(Tensor([2.0]), Tensor([5.0]))
    (Tensor(10., dtype=float32), (Tensor([5.], dtype=float32), Tensor([2.], dtype=float32)))
    """
    return _value_and_grad("value_and_grad", f, argnums, has_aux)


def _value_and_grad(name: str, f: Callable[..., Any], argnums: Numbers, has_aux: bool) -> Callable[..., Any]:
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        trace = Trace(name)
        given = list(args)
        numbers = numbers_of(name, argnums, args)
        for n in numbers:
            given[n] = trace.variables(args[n], f"argument {n}")
        value, aux = split(name, has_aux, trace.run(f, given, kwargs))
        if not is_tensor(value):
            raise GradientError(
                f"{name}: the function must return a tensor, not {type(value).__name__}"
                + ("" if has_aux else "; with has_aux=True it may return (tensor, anything)")
            )
        if not value.dtype.is_float or value.numel() != 1:
            raise GradientError(
                f"{name}: the function must return one float, and its result has shape {value.shape} "
                f"({value.numel()} elements, {value.dtype.name}): reduce it (.sum(), .mean()), or use vjp with a "
                "cotangent"
            )
        reach, path = paths(trace.order(), trace.nodes)
        grads = _pulled(trace, reach, path, [(value.uop, const(value.dtype, 1))])
        extra = results_of(name, aux, "aux")
        results = trace.finish([value, *extra, *trace.originals], [value.uop, *[t.uop for t in extra], *grads])
        found = iter(results[1 + len(extra) :])
        answers = tuple([rebuild(args[n], found) for n in numbers])
        whole = (results[0], rebuild(aux, iter(results[1:]))) if has_aux else results[0]
        return whole, answers[0] if isinstance(argnums, int) else answers

    return with_gradient


def _pulled(trace: Trace, reach: set[UOp], path: Path, seeds: list[tuple[UOp, UOp]]) -> list[UOp]:
    """The cotangents of the stand-ins, zero where none flows."""
    with backward_phase():
        grads = pull_back(seeds, reach, path)
        return [spread(grads.get(n, const(n.dtype, 0)), n.shape).cast(n.dtype) for n in trace.nodes]


@overload
def vjp(
    f: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[*Ts]], Aux]: ...
@overload
def vjp(
    f: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...
@overload
def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool) -> Any: ...
def vjp(  # type: ignore[misc]  # mypy takes Any for no star of types
    f: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> Any:
    """`f(*primals)`, and the function that maps cotangents of the result to a tuple of cotangents of `primals`.

    Arguments and results are trees of tensors; a cotangent has the structure of the result, and None stands for zero.
    With `has_aux` the function returns (result, aux), and aux comes third.

    Raises GradientError if an argument is not of floats; the second function raises TransformError, ShapeError or
    DTypeError where a cotangent does not fit.

    >>> from anneal.tensor import Tensor
    >>> y, pull = vjp(lambda x: x * x, Tensor([1.0, 2.0]))
    >>> y, pull(Tensor([1.0, 10.0]))
    (Tensor([1., 4.], dtype=float32), (Tensor([ 2., 40.], dtype=float32),))
    """
    trace = Trace("vjp")
    out, aux = split(
        "vjp", has_aux, trace.run(f, [trace.variables(a, f"argument {n}") for n, a in enumerate(primals)], {})
    )
    inner = results_of("vjp", out)
    extra = results_of("vjp", aux, "aux")
    reach, path = paths(trace.order(), trace.nodes)
    roots = [t.uop for t in inner]  # before a result that the function assigned to is put back
    results = trace.finish([*inner, *extra])
    named = paths_of(out, "the cotangent")

    def pull(cotangent: Any) -> tuple[Any, ...]:
        seeds = []
        given = like("vjp", out, cotangent, "the cotangent", "the result")
        for t, root, where, c in zip(inner, roots, named, given, strict=True):
            if c is not None:
                g = matching("vjp", where, "the result", as_tensor("vjp", where, c), t)
                if t.dtype.is_float:
                    seeds.append((root, g.uop))
        found = iter(trace.finish(trace.originals, _pulled(trace, reach, path, seeds)))
        return tuple([rebuild(a, found) for a in primals])

    answer = rebuild(out, iter(results))
    return (answer, pull, rebuild(aux, iter(results[len(inner) :]))) if has_aux else (answer, pull)


def matching(name: str, where: str, whose: str, given: Tensor, of: Tensor) -> Tensor:
    """A tangent or cotangent that fits its tensor. Raises ShapeError or DTypeError where it does not."""
    given = of._lift(name, given)
    if given.shape != of.shape:
        raise ShapeError(
            f"{name}: {where} has shape {given.shape}, but {whose} has {of.shape} there; they must be equal"
        )
    if given.dtype is not of.dtype:
        raise DTypeError(
            f"{name}: {where} is {given.dtype.name}, but {whose} is {of.dtype.name} there: use .cast({of.dtype.name!r})"
        )
    return given
