"""Sets of numbers that parameters and values of distributions come from; `check` says which elements do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal.tensor import Tensor

__all__ = [
    "Constraint",
    "boolean",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "lower_cholesky",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "real",
    "real_vector",
    "simplex",
    "unit_interval",
]


class Constraint:
    """A set of numbers.

    Args:
        name: what errors call it. test: says of each element whether it is in the set. event_dim: how many of the last
            axes make one element. is_discrete: whether it is a set of whole numbers.

    >>> positive.check(Tensor([1.0, -1.0])).tolist()
    [True, False]
    """

    def __init__(self, name: str, test: Callable[[Tensor], Tensor], event_dim: int = 0, is_discrete: bool = False):
        self.name, self.test, self.event_dim, self.is_discrete = name, test, event_dim, is_discrete

    def check(self, value: Tensor) -> Tensor:
        """Whether each element of `value` is in the set."""
        return self.test(value)

    def __repr__(self) -> str:
        return self.name


def _whole(x: Tensor) -> Tensor:
    return x == x.floor()


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above `lower_bound`."""
    return Constraint(f"GreaterThan(lower_bound={lower_bound})", lambda x: x > lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Numbers that are not below `lower_bound`."""
    return Constraint(f"GreaterThanEq(lower_bound={lower_bound})", lambda x: x >= lower_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from `lower_bound` to `upper_bound`, with both."""
    name = f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda x: (x >= lower_bound) & (x <= upper_bound))


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from `lower_bound` on and below `upper_bound`."""
    name = f"HalfOpenInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda x: (x >= lower_bound) & (x < upper_bound))


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Integers from `lower_bound` to `upper_bound`, with both."""
    name = f"IntegerInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda x: _whole(x) & (x >= lower_bound) & (x <= upper_bound), is_discrete=True)


def independent(base_constraint: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Arrays of which each element is in a set: so many more last axes make one.

    Args:
        base_constraint: that set. reinterpreted_batch_ndims: how many axes.
    """
    base, n = base_constraint, reinterpreted_batch_ndims
    if n <= 0:
        return base

    def test(x: Tensor) -> Tensor:
        found = base.check(x)
        return found.reshape(*found.shape[: found.ndim - n], -1).all(-1)

    return Constraint(f"IndependentConstraint({base}, {n})", test, base.event_dim + n, base.is_discrete)


def _lower(x: Tensor) -> Tensor:
    return (x.tril() == x).all(-1).all(-1) & (x.diagonal(0, -2, -1) > 0).all(-1)


def _definite(x: Tensor) -> Tensor:
    from anneal.linalg import eigvalsh

    even: Tensor = ((x - x.mT).abs() <= 1e-6).all(-1).all(-1)
    return even & (eigvalsh(x) > 0).all(-1)


real = Constraint("Real()", lambda x: x == x)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer = Constraint("IntegerGreaterThan(lower_bound=0)", lambda x: _whole(x) & (x >= 0), is_discrete=True)
positive_integer = Constraint("IntegerGreaterThan(lower_bound=1)", lambda x: _whole(x) & (x >= 1), is_discrete=True)
real_vector = Constraint("IndependentConstraint(Real(), 1)", lambda x: (x == x).all(-1), 1)
simplex = Constraint("Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), 1)
one_hot = Constraint("OneHot()", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, True)
lower_cholesky = Constraint("LowerCholesky()", _lower, 2)
positive_definite = Constraint("PositiveDefinite()", _definite, 2)
