"""Sets of numbers that parameters and values of distributions come from; `check` says which elements do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anneal import linalg
from anneal.errors import MissingMethodError, SettingError, ShapeError
from anneal.tensor import Tensor

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "greater_than", "greater_than_eq", "half_open_interval",
    "independent", "integer_interval", "interval", "less_than", "lower_cholesky", "lower_triangular", "multinomial",
    "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer",
    "positive_semidefinite", "real", "real_vector", "simplex", "stack", "unit_interval",
]  # fmt: skip

Bound = Tensor | float


class Constraint:
    """A set of numbers: subclasses have `check`, and may have `event_dim`, how many of the last axes make one element,
    and `is_discrete`, which is true of whole numbers.

    >>> positive.check(Tensor([1.0, -1.0])).tolist()
    [True, False]
    """

    event_dim: int = 0
    is_discrete: bool = False

    def check(self, value: Tensor) -> Tensor:
        """A test of each element of `value` for being in the set, as bool."""
        raise MissingMethodError(f"{type(self).__name__} defines no check(value): define it")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


def _one(name: str, test: Callable[[Tensor], Tensor], event_dim: int = 0, is_discrete: bool = False) -> Constraint:
    """The only constraint of a class of its own, by which registries of transforms know it."""
    own = {"check": lambda self, value: test(value), "event_dim": event_dim, "is_discrete": is_discrete}
    own["__reduce__"] = lambda self: name  # of what is pickled
    found: Constraint = type(name.title().replace("_", ""), (Constraint,), own)()
    return found


class _From(Constraint):
    """Numbers with a bound below them."""

    def __init__(self, lower_bound: Bound) -> None:
        self.lower_bound = lower_bound


class _UpTo(Constraint):
    """Numbers with a bound above them."""

    def __init__(self, upper_bound: Bound) -> None:
        self.upper_bound = upper_bound


class _Integers(Constraint):
    """The integers of the set that is the next base."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == value.floor()) & super().check(value)


class _GreaterThan(_From):
    """Numbers above `lower_bound`."""

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_From):
    """Numbers that are not below `lower_bound`."""

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _IntegerGreaterThan(_Integers, _GreaterThanEq):
    """Integers that are not below `lower_bound`."""


class _LessThan(_UpTo):
    """Numbers below `upper_bound`."""

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(Constraint):
    """Numbers from `lower_bound` to `upper_bound`, with both."""

    def __init__(self, lower_bound: Bound, upper_bound: Bound) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """Numbers from `lower_bound` on and below `upper_bound`."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _IntegerInterval(_Integers, _Interval):
    """Integers from `lower_bound` to `upper_bound`, with both."""


class _Multinomial(_UpTo):
    """Counts along the last axis that add up to `upper_bound` or, as torch has it, to less."""

    event_dim, is_discrete = 1, True

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _IndependentConstraint(Constraint):
    """Arrays of which each element is in a set: so many more last axes make one.

    Args:
        base_constraint: that set. reinterpreted_batch_ndims: how many axes.
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value)
        cut = found.ndim - self.reinterpreted_batch_ndims
        if cut < 0:
            raise ShapeError(f"{self}: a value has {self.event_dim} axes or more, not shape {value.shape}")
        return found.reshape(*found.shape[:cut], -1).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint}, {self.reinterpreted_batch_ndims})"


class _Stack(Constraint):
    """Tensors whose places along an axis are in sets of their own.

    Args:
        cseq: the sets. dim: that axis.
    """

    lengths: Sequence[int] = ()

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq = self.members = list(cseq)
        self.dim = dim
        self.event_dim = max(c.event_dim for c in self.cseq)
        self.event_dim += not self.lengths and dim + self.event_dim < 0
        self.is_discrete = any(c.is_discrete for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        return joined([c.check(part) for c, part in zip(self.cseq, parts(self, value), strict=True)], self)

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({self.cseq}, {self.dim})"


class _Cat(_Stack):
    """Tensors whose stretches along an axis are in sets of their own.

    Args:
        cseq: the sets. dim: that axis. lengths: how long each stretch is, 1 where it is not given.
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.lengths = each_length(cseq, lengths)
        super().__init__(cseq, dim)


def each_length(several: Sequence[object], lengths: Sequence[int] | None) -> list[int]:
    """The length of each of several stretches."""
    found = [1] * len(several) if lengths is None else list(lengths)
    if len(found) != len(several):
        raise SettingError(f"cat: {len(found)} lengths for {len(several)} members; give each one")
    return found


def parts(of: Any, x: Tensor) -> list[Tensor]:
    """Stretches of a tensor of the `lengths` of a constraint or a transform, or its places where that has none."""
    own = of.lengths
    count = sum(own) if own else len(of.members)
    if not -x.ndim <= of.dim < x.ndim or x.shape[of.dim] != count:
        raise ShapeError(f"{type(of).__name__}: a tensor of shape {x.shape} has no {count} places along axis {of.dim}")
    if not own:
        return [x.select(of.dim, n) for n in range(count)]
    return [x.narrow(of.dim, sum(own[:n]), length) for n, length in enumerate(own)]


def joined(several: list[Tensor], of: Any) -> Tensor:
    """The opposite of `parts`."""
    return Tensor.cat(several, of.dim) if of.lengths else Tensor.stack(several, of.dim)


def over(base: Constraint, axes: int) -> Constraint:
    """`independent`, or the set itself where no axes are added."""
    return _IndependentConstraint(base, axes) if axes > 0 else base


def _triangle(x: Tensor) -> Tensor:
    return (x.tril() == x).all(-1).all(-1)


def _lower(x: Tensor) -> Tensor:
    return _triangle(x) & (x.diagonal(0, -2, -1) > 0).all(-1)


def _correlation(x: Tensor) -> Any:
    off = ((x.detach() ** 2).sum(-1).sqrt() - 1.0).abs()
    return _lower(x) & (off <= 2.0 ** (1 - x.dtype.digits) * x.shape[-1] * 10).all(-1)


def _even(x: Tensor) -> Any:
    return ((x - x.mT).abs() <= 1e-6).all(-1).all(-1)


greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
independent, cat, stack, multinomial = _IndependentConstraint, _Cat, _Stack, _Multinomial
real = _one("real", lambda x: x == x)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean = _one("boolean", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
real_vector = independent(real, 1)
simplex = _one("simplex", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), 1)
one_hot = _one("one_hot", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, True)
lower_triangular = _one("lower_triangular", _triangle, 2)
lower_cholesky = _one("lower_cholesky", _lower, 2)
corr_cholesky = _one("corr_cholesky", _correlation, 2)
positive_definite = _one("positive_definite", lambda x: _even(x) & (linalg.eigvalsh(x) > 0).all(-1), 2)
positive_semidefinite = _one("positive_semidefinite", lambda x: _even(x) & (linalg.eigvalsh(x) >= 0).all(-1), 2)
