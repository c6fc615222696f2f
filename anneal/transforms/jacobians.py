"""Whole matrices of derivatives, from vjp and jvp over the unit vectors, all at once by vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Literal, overload

from anneal.errors import GradientError
from anneal.names import Tensor
from anneal.transforms.batching import vmap
from anneal.transforms.forward import jvp
from anneal.transforms.reverse import A, Aux, Numbers, P, TypedFunction, numbers_of, vjp
from anneal.transforms.trace import as_tensor, results_of
from anneal.transforms.tree import flatten, paths_of, rebuild


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


@overload
def jacrev(
    f: Callable[Concatenate[A, P], Tensor], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[A, P], A]: ...
@overload
def jacrev(
    f: Callable[Concatenate[A, P], tuple[Tensor, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> TypedFunction[Concatenate[A, P], tuple[A, Aux]]: ...
@overload
def jacrev(f: Callable[P, Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[P, Any]: ...
def jacrev(f: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that returns all derivatives of `f`'s result with respect to its arguments `argnums`, in reverse
    mode: for few results.

    The tree of the result, each leaf replaced by the tree of the arguments `argnums`, with tensors of shape
    `(*result's shape, *argument's shape)`. With `has_aux`, a pair of that and aux.

    >>> from anneal.tensor import Tensor
    >>> jacrev(lambda x: x * x)(Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], dtype=float32)
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = numbers_of("jacrev", argnums, args)
        found = vjp(_of(f, numbers, args, kwargs), *[args[n] for n in numbers], has_aux=has_aux)
        out, pull = found[0], found[1]
        results = results_of("jacrev", out)
        for where, t in zip(paths_of(out, "the function's result"), results, strict=True):
            if not t.dtype.is_float:
                raise GradientError(
                    f"jacrev: {where} is {t.dtype.name}, and only floats have derivatives; use .float()"
                )
        columns = vmap(lambda *units: pull(rebuild(out, iter(units))), randomness="same")(*_units(results))
        # by argument leaf: one matrix over all results; by result: the tree of the arguments
        matrices = [_parts(rows, results, True) for rows in flatten(columns)]
        trees = [rebuild(columns, iter([m[i] for m in matrices])) for i in range(len(results))]
        answer = rebuild(out, iter([t[0] if isinstance(argnums, int) else t for t in trees]))
        return (answer, found[2]) if has_aux else answer

    return jacobian


@overload
def jacfwd(
    f: Callable[Concatenate[A, P], Tensor], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[A, P], A]: ...
@overload
def jacfwd(
    f: Callable[Concatenate[A, P], tuple[Tensor, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> TypedFunction[Concatenate[A, P], tuple[A, Aux]]: ...
@overload
def jacfwd(f: Callable[P, Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[P, Any]: ...
def jacfwd(f: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that returns all derivatives of `f`'s result with respect to its arguments `argnums`, in forward
    mode: for few arguments. `has_aux` and the tree of the result are as for `jacrev`.

    >>> from anneal.tensor import Tensor
    >>> jacfwd(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    Tensor([2., 4.], dtype=float32)
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = numbers_of("jacfwd", argnums, args)
        primals = tuple([args[n] for n in numbers])
        named = zip(flatten(primals), paths_of(primals, "argument "), strict=True)
        variables = [as_tensor("jacfwd", where, v) for v, where in named]
        for t, where in zip(variables, paths_of(primals, "argument "), strict=True):
            if not t.dtype.is_float:
                raise GradientError(
                    f"jacfwd: {where} is {t.dtype.name}, and only floats have derivatives; use .float()"
                )
        inner = _of(f, numbers, args, kwargs)

        def push(*units: Any) -> Any:
            _, tangents, *aux = jvp(inner, primals, rebuild(primals, iter(units)), has_aux=has_aux)
            return tangents, aux

        if not variables:
            raise GradientError("jacfwd: the arguments to differentiate hold no tensor")
        found, aux = vmap(push, out_axes=(0, None), randomness="same")(*_units(variables))
        matrices = [_parts(rows, variables, False) for rows in flatten(found)]
        trees = [rebuild(primals, iter(parts)) for parts in matrices]
        answer = rebuild(found, iter([t[0] if isinstance(argnums, int) else t for t in trees]))
        return (answer, aux[0]) if has_aux else answer

    return jacobian


def _of(f: Callable[..., Any], numbers: list[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """`f` as a function of the arguments `numbers` alone."""

    def function(*variables: Any) -> Any:
        given = list(args)
        for n, v in zip(numbers, variables, strict=True):
            given[n] = v
        return f(*given, **kwargs)

    return function


@overload
def hessian(
    f: Callable[Concatenate[Tensor, P], Tensor], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> TypedFunction[Concatenate[Tensor, P], Tensor]: ...
@overload
def hessian(
    f: Callable[Concatenate[Tensor, P], tuple[Tensor, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> TypedFunction[Concatenate[Tensor, P], tuple[Tensor, Aux]]: ...
@overload
def hessian(f: Callable[P, Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[P, Any]: ...
def hessian(f: Callable[..., Any], argnums: Numbers = 0, has_aux: bool = False) -> TypedFunction[..., Any]:
    """The function that returns the second derivatives of `f` with respect to its arguments `argnums`, forward over
    reverse: `jacfwd(jacrev(f))`. `has_aux` is as for `grad`.

    >>> from anneal.tensor import Tensor
    >>> hessian(lambda x: (x * x * x).sum())(Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)
