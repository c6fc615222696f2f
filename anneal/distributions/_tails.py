"""Distributions of positive numbers with heavy tails."""

from __future__ import annotations

from typing import Any, ClassVar

from anneal.distributions import constraints as c
from anneal.distributions._base import Distribution, Shape
from anneal.tensor import Tensor

__all__ = ["Pareto", "Weibull"]

_EULER = 0.5772156649015329


class Weibull(Distribution):
    """The Weibull distribution of `scale` and of the power `concentration`; `validate_args` as of `Distribution`.

    >>> Weibull(2.0, 1.0, validate_args=None).mean.item()
    2.0
    """

    has_rsample: ClassVar[bool] = True
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"scale": c.positive, "concentration": c.positive}
    support = c.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, scale=scale, concentration=concentration)

    def _draw(self, shape: Shape) -> Tensor:
        return self.scale * self._exponential(shape).clamp(min=1e-30) ** (1.0 / self.concentration)

    def _log(self, x: Tensor) -> Tensor:
        k, z = self.concentration, x / self.scale
        return (k / self.scale).log() + (k - 1.0) * z.log() - z**k

    def _cdf(self, x: Tensor) -> Tensor:
        return -(-((x / self.scale) ** self.concentration)).expm1()

    def _icdf(self, p: Tensor) -> Tensor:
        return self.scale * (-(-p).log1p()) ** (1.0 / self.concentration)

    def entropy(self) -> Tensor:
        k = self.concentration
        return _EULER * (1.0 - 1.0 / k) + (self.scale / k).log() + 1.0

    @property
    def mean(self) -> Tensor:
        return self.scale * (1.0 + 1.0 / self.concentration).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1.0) / k) ** (1.0 / k)

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return self.scale**2 * ((1.0 + 2.0 / k).lgamma().exp() - (2.0 * (1.0 + 1.0 / k).lgamma()).exp())


class Pareto(Distribution):
    """Numbers above `scale` whose tail falls by the power `alpha`; `validate_args` as of `Distribution`.

    >>> Pareto(1.0, 2.0, validate_args=None).mean.item()
    2.0
    """

    has_rsample: ClassVar[bool] = True
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"scale": c.positive, "alpha": c.positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, scale=scale, alpha=alpha)
        self.support = c.greater_than_eq(self.scale.detach())

    def _draw(self, shape: Shape) -> Tensor:
        return self.scale * (self._exponential(shape) / self.alpha).exp()

    def _log(self, x: Tensor) -> Tensor:
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1.0) * x.log()

    def _cdf(self, x: Tensor) -> Tensor:
        return 1.0 - (self.scale / x) ** self.alpha

    def _icdf(self, p: Tensor) -> Tensor:
        return self.scale * (-(-p).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1.0 + 1.0 / self.alpha

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1.0)
        return a * self.scale / (a - 1.0)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2.0)
        return self.scale**2 * a / ((a - 1.0) ** 2 * (a - 2.0))
