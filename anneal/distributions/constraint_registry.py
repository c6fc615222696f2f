"""Transforms of real numbers to sets of them: `biject_to` and `transform_to`, by constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal.distributions import constraints as c, transforms as t
from anneal.errors import ArgumentError, MissingMethodError

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], t.Transform]


class ConstraintRegistry:
    """Transforms to constraints, by the constraints' classes.

    >>> transform_to(c.greater_than(2.0))(0.0).item()
    3.0
    """

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Register a function that makes a transform onto a constraint; without it this is a decorator.

        Args:
            constraint: a constraint, or a class of them. factory: a function of the constraint to a transform.

        Raises ArgumentError for what is no constraint.
        """
        if factory is None:
            return lambda given: self.register(constraint, given)
        kind = type(constraint) if isinstance(constraint, c.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, c.Constraint)):
            raise ArgumentError(f"register: takes a Constraint or a class of them, not {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: c.Constraint) -> t.Transform:
        """The transform to the set of a `constraint`. Raises MissingMethodError where none is registered."""
        if type(constraint) not in self._registry:
            raise MissingMethodError(f"no transform to {constraint!r} is registered: register() adds one")
        return self._registry[type(constraint)](constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _above(of: Any) -> t.Transform:
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(of.lower_bound, 1)])


def _below(of: Any) -> t.Transform:
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(of.upper_bound, -1)])


def _between(of: Any) -> t.Transform:
    low, high = of.lower_bound, of.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return t.SigmoidTransform()
    return t.ComposeTransform([t.SigmoidTransform(), t.AffineTransform(low, high - low)])


def _of_others(registry: ConstraintRegistry) -> dict[Any, Factory]:
    return {
        c.independent: lambda of: t.IndependentTransform(registry(of.base_constraint), of.reinterpreted_batch_ndims),
        c.cat: lambda of: t.CatTransform([registry(one) for one in of.cseq], of.dim, of.lengths),
        c.stack: lambda of: t.StackTransform([registry(one) for one in of.cseq], of.dim),
    }


_BOTH: dict[Any, Factory] = {
    c.real: lambda of: t.identity_transform,
    c.greater_than: _above,
    c.greater_than_eq: _above,
    c.less_than: _below,
    c.interval: _between,
    c.half_open_interval: _between,
    c.corr_cholesky: lambda of: t.CorrCholeskyTransform(),
}
_OWN: dict[ConstraintRegistry, dict[Any, Factory]] = {
    biject_to: {c.simplex: lambda of: t.StickBreakingTransform()},
    transform_to: {
        c.simplex: lambda of: t.SoftmaxTransform(),
        c.lower_cholesky: lambda of: t.LowerCholeskyTransform(),
        c.positive_definite: lambda of: t.PositiveDefiniteTransform(),
        c.positive_semidefinite: lambda of: t.PositiveDefiniteTransform(),
    },
}
for _registry, _own in _OWN.items():
    for _constraint, _factory in {**_BOTH, **_own, **_of_others(_registry)}.items():
        _registry.register(_constraint, _factory)
