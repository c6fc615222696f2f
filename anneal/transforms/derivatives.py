"""Derivatives of functions: grad, value_and_grad, vjp, jvp, and whole matrices of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, TypeVar, TypeVarTuple, overload

from anneal.errors import DTypeError, GradientError, ShapeError, TransformError
from anneal.names import Tensor
from anneal.ops import is_tensor
from anneal.runtime import Args, Fun, Options
from anneal.transforms.batching import vmap
from anneal.transforms.trace import P, R, Trace, TypedFunction, as_tensor, flatten, like, paths_of, rebuild, results_of
from anneal.transforms.walks import Path, backward_phase, paths, pull_back, push_forward, whole
from anneal.uop import Known, UOp, const

Numbers = int | Sequence[int]  # of arguments

# For type checkers alone. A function with annotations keeps its parameters and its result. What a lambda takes stays
# open, and no checker complains: an argument to differentiate is therefore bound by Any, not by Tensor.
A = TypeVar("A", bound=Any)  # the trees that are differentiated: the first argument, the second, the third
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
Aux = TypeVar("Aux")
V = TypeVar("V", bound="Tensor | tuple[Tensor, Any]")  # a value, or that and aux
Ts = TypeVarTuple("Ts")


def numbers_of(name: str, argnums: Numbers, args: Sequence[Any]) -> list[int]:
    """`argnums` counted from 0. Raises GradientError for one that names no argument, or one twice."""
    out = []
    several = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(several, Sequence) or not all(isinstance(n, int) for n in several):
        raise GradientError(f"{name}: argnums is the number of an argument, or a tuple of numbers, not {argnums!r}")
    for n in several:
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
def grad(f: Fun, argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
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
    f: Callable[Concatenate[A, P], V], argnums: Literal[0] = 0, has_aux: bool = False
) -> TypedFunction[Concatenate[A, P], tuple[V, A]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, B, P], V], argnums: Literal[1], has_aux: bool = False
) -> TypedFunction[Concatenate[A, B, P], tuple[V, B]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, B, P], V], argnums: tuple[Literal[0], Literal[1]], has_aux: bool = False
) -> TypedFunction[Concatenate[A, B, P], tuple[V, tuple[A, B]]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[A, B, C, P], V],
    argnums: tuple[Literal[0], Literal[1], Literal[2]],
    has_aux: bool = False,
) -> TypedFunction[Concatenate[A, B, C, P], tuple[V, tuple[A, B, C]]]: ...
@overload
def value_and_grad(f: Callable[P, V], argnums: Numbers, has_aux: bool = False) -> TypedFunction[P, tuple[V, Any]]: ...
def value_and_grad(f: Fun, argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that returns `(value, gradient)` of `f` with respect to its arguments `argnums`, as `grad`; with
    `has_aux`, `((value, aux), gradient)`.

    >>> from anneal.tensor import Tensor
    >>> value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(Tensor([2.0]), Tensor([5.0]))
    (Tensor(10., dtype=float32), (Tensor([5.], dtype=float32), Tensor([2.], dtype=float32)))
    """
    return _value_and_grad("value_and_grad", f, argnums, has_aux)


def _value_and_grad(name: str, f: Fun, argnums: Numbers, has_aux: bool) -> Fun:
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
        found = iter(trace.finish([value, *extra, *trace.originals], grads))
        value = next(found)
        whole = (value, rebuild(aux, found)) if has_aux else value
        answers = tuple([rebuild(args[n], found) for n in numbers])
        return whole, answers[0] if isinstance(argnums, int) else answers

    return with_gradient


def _pulled(trace: Trace, reach: set[UOp], path: Path, seeds: list[tuple[UOp, UOp]]) -> list[UOp]:
    """The cotangents of the stand-ins, zero where none flows."""
    with backward_phase():
        grads = pull_back(seeds, reach, path)
        return [whole(grads.get(n), n) for n in trace.nodes]


@overload
def vjp(
    f: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[*Ts]], Aux]: ...
@overload
def vjp(
    f: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...
@overload
def vjp(f: Fun, *primals: Any, has_aux: bool) -> Any: ...
def vjp(  # type: ignore[misc]  # mypy takes Any for no star of types
    f: Fun, *primals: Any, has_aux: bool = False
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

    def pull(cotangent: Any) -> Args:
        seeds = []
        given = like("vjp", out, cotangent, "the cotangent", "the result")
        for t, root, where, c in zip(inner, roots, named, given, strict=True):
            if c is not None:
                g = matching("vjp", where, "the result", as_tensor("vjp", where, c), t)
                if t.dtype.is_float:
                    seeds.append((root, g.uop))
        found = iter(trace.finish(trace.originals, _pulled(trace, reach, path, seeds)))
        return tuple([rebuild(a, found) for a in primals])

    made = iter(results)
    answer = rebuild(out, made)
    return (answer, pull, rebuild(aux, made)) if has_aux else (answer, pull)


def matching(name: str, where: str, whose: str, given: Tensor, of: Tensor) -> Tensor:
    """A tangent or cotangent that fits its tensor. Raises ShapeError or DTypeError where it does not."""
    given = of._lift(given, name)
    if given.shape != of.shape:
        raise ShapeError(
            f"{name}: {where} has shape {given.shape}, but {whose} has {of.shape} there; they must be equal"
        )
    if given.dtype is not of.dtype:
        raise DTypeError(
            f"{name}: {where} is {given.dtype.name}, but {whose} is {of.dtype.name} there: use .cast({of.dtype.name!r})"
        )
    return given


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
def jvp(f: Fun, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any: ...
def jvp(f: Fun, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
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
    known: Known = {}
    stand_ins = []
    wanted = like("jvp", primals, tangents, "tangents", "primals")
    for where, value, v in zip(paths_of(primals, "primals"), flatten(primals), wanted, strict=True):
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
    pushed = [whole(known.get(t.uop), t.uop) for t in inner]
    made = iter(trace.finish([*inner, *extra, *inner], pushed))
    value, others, tangent = rebuild(out, made), rebuild(aux, made), rebuild(out, made)
    return (value, tangent, others) if has_aux else (value, tangent)


# -- matrices of derivatives ------------------------------------------------------------------------------------------
# From vjp and jvp over the unit vectors, all at once by vmap.


F = TypeVar("F")


def _typed_as(other: F) -> Callable[[Any], F]:
    """A decorator: type checkers take a function for one like another, whose arguments and result have its types."""
    return lambda f: f


def _units(like: list[Tensor]) -> list[Tensor]:
    """The unit vectors over several tensors, side by side: for each, shape (elements of all, *its)."""
    total = sum(t.numel() for t in like)
    out, before = [], 0
    for t in like:
        count = t.numel()
        eye = t.eye(total, dtype=t.dtype, device=t.device)
        out.append(eye[:, before : before + count].reshape(total, *t.shape))
        before += count
    return out


def _parts(rows: Tensor, like: list[Tensor], first: bool) -> list[Tensor]:
    """A matrix of derivatives by all of `like`, cut into one part for each, with its axes first or last."""
    parts, before = [], 0
    for t in like:
        part = rows[before : before + t.numel()]
        rest = rows.shape[1:]
        if first:
            parts.append(part.reshape(*t.shape, *rest))
        else:
            parts.append(part.permute(*range(1, len(rest) + 1), 0).reshape(*rest, *t.shape))
        before += t.numel()
    return parts


def _check_floats(name: str, tree: Any, what: str, tensors: Sequence[Tensor]) -> None:
    """Raise GradientError for a tensor of a tree that is none of floats."""
    for where, t in zip(paths_of(tree, what), tensors, strict=True):
        if not t.dtype.is_float:
            raise GradientError(f"{name}: {where} is {t.dtype.name}, and only floats have derivatives; use .float()")


@_typed_as(grad)
def jacrev(
    f: Fun, argnums: Numbers = 0, has_aux: bool = False, chunk_size: int | None = None
) -> TypedFunction[..., Any]:
    """The function that returns all derivatives of `f`'s result with respect to its arguments `argnums`, in reverse
    mode: for few results.

    The tree of the result, each leaf replaced by the tree of the arguments `argnums`, with tensors of shape
    `(*result's shape, *argument's shape)`. With `has_aux`, a pair of that and aux. `chunk_size` is ignored.

    >>> from anneal.tensor import Tensor
    >>> jacrev(lambda x: x * x)(Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=float32)
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = numbers_of("jacrev", argnums, args)
        out, pull, *aux = vjp(_of(f, numbers, args, kwargs), *[args[n] for n in numbers], has_aux=has_aux)
        results = results_of("jacrev", out)
        _check_floats("jacrev", out, "the function's result", results)
        columns = vmap(lambda *units: pull(rebuild(out, iter(units))), randomness="same")(*_units(results))
        # by argument leaf: one matrix over all results; by result: the tree of the arguments
        matrices = [_parts(rows, results, True) for rows in flatten(columns)]
        trees = [rebuild(columns, iter([m[i] for m in matrices])) for i in range(len(results))]
        answer = rebuild(out, iter([t[0] if isinstance(argnums, int) else t for t in trees]))
        return (answer, *aux) if has_aux else answer

    return jacobian


@_typed_as(grad)
def jacfwd(
    f: Fun, argnums: Numbers = 0, has_aux: bool = False, *, randomness: Literal["different", "same", "error"] = "same"
) -> TypedFunction[..., Any]:
    """The function that returns all derivatives of `f`'s result with respect to its arguments `argnums`, in forward
    mode: for few arguments. `has_aux` and the tree of the result are as for `jacrev`, `randomness` is vmap's, over
    directions.

    >>> from anneal.tensor import Tensor
    >>> jacfwd(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    Tensor([2., 4.], dtype=float32)
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = numbers_of("jacfwd", argnums, args)
        primals = tuple([args[n] for n in numbers])
        variables = results_of("jacfwd", primals, "argument ")
        _check_floats("jacfwd", primals, "argument ", variables)
        inner = _of(f, numbers, args, kwargs)

        def push(*units: Any) -> Any:
            _, tangents, *aux = jvp(inner, primals, rebuild(primals, iter(units)), has_aux=has_aux)
            return tangents, aux

        if not variables:
            raise GradientError("jacfwd: the arguments to differentiate hold no tensor")
        found, aux = vmap(push, out_axes=(0, None), randomness=randomness)(*_units(variables))
        matrices = [_parts(rows, variables, False) for rows in flatten(found)]
        trees = [rebuild(primals, iter(parts)) for parts in matrices]
        answer = rebuild(found, iter([t[0] if isinstance(argnums, int) else t for t in trees]))
        return (answer, *aux) if has_aux else answer

    return jacobian


def _of(f: Fun, numbers: list[int], args: Args, kwargs: Options) -> Fun:
    """`f` as a function of the arguments `numbers` alone."""

    def function(*variables: Any) -> Any:
        given = list(args)
        for n, v in zip(numbers, variables, strict=True):
            given[n] = v
        return f(*given, **kwargs)

    return function


@overload
def hessian(
    f: Callable[Concatenate[Tensor, P], V], argnums: Literal[0] = 0, has_aux: bool = False
) -> TypedFunction[Concatenate[Tensor, P], V]: ...
@overload
def hessian(f: Callable[P, Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[P, Any]: ...
def hessian(f: Fun, argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that returns the second derivatives of `f` with respect to its arguments `argnums`, forward over
    reverse: `jacfwd(jacrev(f))`. `has_aux` is as for `grad`.

    >>> from anneal.tensor import Tensor
    >>> hessian(lambda x: (x * x * x).sum())(Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)
