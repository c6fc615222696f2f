"""Functions with a derivative given by the user, under JAX's names: custom_vjp and custom_jvp."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from anneal.errors import GradientError, TransformError
from anneal.names import Tensor
from anneal.ops import is_tensor, no_grad
from anneal.runtime import emptied, filled, is_hole
from anneal.transforms.derivatives import PullTensors, PushTensors, attached, wants_gradient
from anneal.transforms.tree import flatten, like, rebuild

P = ParamSpec("P")
R = TypeVar("R")


class _Custom(Generic[P, R]):
    """A function with arguments that are differentiated and others, which are not."""

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(self, fun)  # type: ignore[arg-type]
        self.fun, self.nondiff = fun, tuple(nondiff_argnums)
        self.name = getattr(fun, "__name__", type(fun).__name__)

    def _split(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments that are not differentiated, and the others."""
        plain = {n % len(args) for n in self.nondiff if -len(args) <= n < len(args)}
        return tuple([a for n, a in enumerate(args) if n in plain]), tuple(
            [a for n, a in enumerate(args) if n not in plain]
        )

    def _attached(
        self,
        given: tuple[Any, ...],
        inputs: list[Tensor],
        out: Any,
        saved: list[Tensor],
        pull: PullTensors | None,
        push: PushTensors | None,
    ) -> Any:
        """The result tree with the derivative at its floats."""
        leaves = flatten(out)
        for leaf in leaves:
            if not is_tensor(leaf):
                raise TransformError(f"{self.name}: returns a tree of tensors, and {type(leaf).__name__} is none")
        floats = [t for t in leaves if t.dtype.is_float]
        made = attached(self.name, inputs, [t.uop for t in inputs], floats, saved, pull, push) if floats else []
        found = iter(made)
        return rebuild(out, iter([next(found) if t.dtype.is_float else t for t in leaves]))


class custom_vjp(_Custom[P, R]):
    """The function `fun` with a reverse derivative of its own: `f.defvjp(fwd, bwd)`, as in JAX.

    `fwd(*args)` gives the result and residuals, a tree of tensors and plain values; `bwd(residuals, cotangent)` gives a
    tuple with a cotangent for each argument, None for zero. Arguments of `nondiff_argnums` are passed on as they are:
    `bwd(*nondiff, residuals, cotangent)`. Each gradient that is taken calls `bwd`; jit replays what it made. It works
    in `backward`, in every transform, and with derivatives of derivatives; forward mode is the transpose.

    Raises GradientError where a gradient is wanted before `defvjp`, or `bwd` gives another number of cotangents.

    >>> from anneal.tensor import Tensor, grad
    >>> @custom_vjp
    ... def clipped(x):  # whose gradient is clipped, too
    ...     return x * 3
    >>> clipped.defvjp(lambda x: (x * 3, None), lambda _, g: ((g * 3).clamp(-1, 1),))
    >>> grad(lambda x: clipped(x).sum())(Tensor([1.0, 2.0]))
    Tensor([1., 1.], dtype=float32)
    """

    _fwd: Callable[..., Any] | None = None
    _bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set `fwd`, the forward function with residuals, and `bwd`, which maps residuals and a cotangent to
        cotangents.
        """
        self._fwd, self._bwd = fwd, bwd

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        plain, given = self._split(args)
        inputs = [x for x in flatten(given) if is_tensor(x)]
        if not any(map(wants_gradient, inputs)):
            return self.fun(*args, **kwargs)
        if self._fwd is None or self._bwd is None:
            raise GradientError(f"custom_vjp: {self.name} has no derivative yet: {self.name}.defvjp(fwd, bwd)")
        bwd = self._bwd
        with no_grad():
            out, residuals = self._fwd(*args, **kwargs)
        saved = [x for x in flatten(residuals) if is_tensor(x)]
        tree, shape, kinds = emptied(residuals), emptied(out), [y.dtype.is_float for y in flatten(out) if is_tensor(y)]
        slots, name = emptied(given), self.name

        def pull(_: Any, outputs: Sequence[Tensor], rest: Sequence[Tensor], cotangents: Sequence[Any]) -> list[Any]:
            found = iter([y.zeros_like() if g is None else g for y, g in zip(outputs, cotangents, strict=True)])
            whole = filled(shape, iter([next(found) if is_float else None for is_float in kinds]))
            made = bwd(*plain, filled(tree, iter(rest)), whole)
            several = made if isinstance(made, (tuple, list)) else (made,)
            if len(several) != len(slots):
                raise GradientError(
                    f"custom_vjp: bwd of {name} gives {len(several)} cotangents for {len(slots)} arguments: a tuple "
                    "with one for each, None for zero"
                )
            return _of_tensors(name, slots, several)

        result: R = self._attached(given, inputs, out, saved, pull, None)
        return result


class custom_jvp(_Custom[P, R]):
    """The function `fun` with a forward derivative of its own: `f.defjvp(rule)`, or `f.defjvps(*rules)`, as in JAX.

    `rule(primals, tangents)` gives the result and its tangent, which is linear in the tangents: reverse mode transposes
    it. Arguments of `nondiff_argnums` come first: `rule(*nondiff, primals, tangents)`. A rule of `defjvps` is of one
    argument, `rule(tangent, result, *primals)`, or None where nothing flows.

    Raises GradientError where a gradient is wanted before `defjvp`.

    >>> from anneal.tensor import Tensor, grad
    >>> @custom_jvp
    ... def cube(x):
    ...     return x * x * x
    >>> cube.defjvps(lambda t, ans, x: 3 * ans / x * t)
    >>> grad(lambda x: cube(x).sum())(Tensor([2.0]))
    Tensor([12.], dtype=float32)
    """

    _rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> None:
        """Set `rule`, which maps primals and tangents to the result and its tangent."""
        self._rule = rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set `rules`, one for each argument, whose tangents add up; None where nothing flows."""

        def of_all(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            out = self.fun(*primals)  # type: ignore[call-arg]
            parts = [r(t, out, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            total: Any = 0.0 * out  # type: ignore[operator]
            for p in parts:
                total = total + p
            return out, total

        self._rule = of_all

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        plain, given = self._split(args)
        inputs = [x for x in flatten(given) if is_tensor(x)]
        if not any(map(wants_gradient, inputs)):
            return self.fun(*args, **kwargs)
        if self._rule is None:
            raise GradientError(f"custom_jvp: {self.name} has no derivative yet: {self.name}.defjvp(rule)")
        rule = self._rule
        with no_grad():
            out = self.fun(*args, **kwargs)

        slots, shape, name = emptied(given), emptied(out), self.name
        kinds = [y.dtype.is_float for y in flatten(out) if is_tensor(y)]

        def push(xs: Sequence[Tensor], _: Any, __: Any, tangents: Sequence[Any]) -> list[Any]:
            each = [x.zeros_like() if t is None else t for x, t in zip(xs, tangents, strict=True)]
            _, tangent = rule(*plain, filled(slots, iter(xs)), filled(slots, iter(each)))
            parts = like("custom_jvp", shape, tangent, f"the tangent of {name}", "the result")
            return [p for p, is_float in zip(parts, kinds, strict=True) if is_float]

        result: R = self._attached(given, inputs, out, [], None, push)
        return result


def _of_tensors(name: str, given: tuple[Any, ...], made: Sequence[Any]) -> list[Any]:
    """The cotangents of the tensors among the arguments."""
    out: list[Any] = []
    for n, (a, c) in enumerate(zip(given, made, strict=True)):
        leaves = flatten(a)
        parts = (
            [None] * len(leaves)
            if c is None
            else like("custom_vjp", a, c, f"the cotangent {n} of {name}", "the argument")
        )
        out += [p for p, x in zip(parts, leaves, strict=True) if is_hole(x)]
    return out
