"""Distributions of real numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from anneal.distributions import constraints as c
from anneal.distributions._base import Distribution, Shape, nan_like
from anneal.special import gammainc
from anneal.tensor import Tensor

__all__ = [
    "Beta",
    "Cauchy",
    "Chi2",
    "Exponential",
    "Gamma",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Laplace",
    "Normal",
    "StudentT",
    "Uniform",
]

_HALF_LOG_2PI = math.log(2 * math.pi) / 2
_EULER = 0.5772156649015329
_TRIES = 12  # of a draw that is refused once in twenty times, or less


def standard_gamma(shape: Shape, of: Tensor, like: Distribution) -> Tensor:
    """Draws of gamma distributions of rate 1 (Marsaglia and Tsang, 2000), with a fixed number of tries."""
    a = (of < 1.0).where(of + 1.0, of)
    d = a - 1.0 / 3.0
    scale = 1.0 / (9.0 * d).sqrt()
    noise, chance = like._normal((_TRIES, *shape)), like._uniform((_TRIES, *shape))
    v = (1.0 + scale * noise).clamp(min=0.0) ** 3
    sure = (v > 0.0).where(v, 1.0)
    kept = (v > 0.0) & ((1.0 - chance).log() < 0.5 * noise * noise + d * (1.0 - v + sure.log()))
    out = d.expand(*shape)
    for n in reversed(range(_TRIES)):
        out = kept[n].where(d * v[n], out)
    return out * (of < 1.0).where((-like._exponential(shape) / of).exp(), 1.0)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x * log(y), 0 where both are 0."""
    found: Tensor = x * ((x == 0.0) & (y == 0.0)).where(1.0, y).log()
    return found


class _LocScale(Distribution):
    """A location and a scale: what follows is of the standard distribution."""

    has_rsample: ClassVar[bool] = True
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"loc": c.real, "scale": c.positive}
    support = c.real
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class Normal(_LocScale):
    """The normal distribution of mean `loc` and standard deviation `scale`; `validate_args` as of `Distribution`.

    >>> Normal(0.0, 1.0, validate_args=False).cdf(0.0).item()
    0.5
    """

    def _draw(self, shape: Shape) -> Tensor:
        return self.loc + self.scale * self._normal(shape)

    def _log(self, x: Tensor) -> Tensor:
        z = (x - self.loc) / self.scale
        return -0.5 * z * z - self.scale.log() - _HALF_LOG_2PI

    def _cdf(self, x: Tensor) -> Tensor:
        return 0.5 * (1.0 + ((x - self.loc) / (self.scale * math.sqrt(2))).erf())

    def _icdf(self, p: Tensor) -> Tensor:
        return self.loc + self.scale * (2.0 * p - 1.0).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + _HALF_LOG_2PI + self.scale.log()

    @property
    def variance(self) -> Tensor:
        return self.scale**2


class Laplace(_LocScale):
    """The two-sided exponential distribution about `loc`, with `scale`; `validate_args` as of `Normal`.

    >>> Laplace(0.0, 1.0, validate_args=None).variance.item()
    2.0
    """

    def _draw(self, shape: Shape) -> Tensor:
        u = self._uniform(shape) - 0.5
        return self.loc - self.scale * u.sign() * (-2.0 * u.abs()).clamp(min=-1 + 1e-7).log1p()

    def _log(self, x: Tensor) -> Tensor:
        return -(2.0 * self.scale).log() - (x - self.loc).abs() / self.scale

    def _cdf(self, x: Tensor) -> Tensor:
        z = x - self.loc
        return 0.5 - 0.5 * z.sign() * (-z.abs() / self.scale).expm1()

    def _icdf(self, p: Tensor) -> Tensor:
        t = p - 0.5
        return self.loc - self.scale * t.sign() * (-2.0 * t.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1.0 + (2.0 * self.scale).log()

    @property
    def variance(self) -> Tensor:
        return 2.0 * self.scale**2


class Gumbel(_LocScale):
    """The distribution of the largest of many, at `loc` with `scale`; `validate_args` as of `Normal`.

    >>> Gumbel(0.0, 1.0, validate_args=None).mode.item()
    0.0
    """

    def _draw(self, shape: Shape) -> Tensor:
        return self.loc - self.scale * self._exponential(shape).clamp(min=1e-30).log()

    def _log(self, x: Tensor) -> Tensor:
        y = (self.loc - x) / self.scale
        return y - y.exp() - self.scale.log()

    def _cdf(self, x: Tensor) -> Tensor:
        return (-((self.loc - x) / self.scale).exp()).exp()

    def _icdf(self, p: Tensor) -> Tensor:
        return self.loc - self.scale * (-p.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (math.pi**2 / 6)


class Cauchy(_LocScale):
    """The ratio of two normal numbers, about `loc` with `scale`; `validate_args` as of `Normal`.

    >>> Cauchy(0.0, 1.0, validate_args=None).cdf(0.0).item()
    0.5
    """

    def _draw(self, shape: Shape) -> Tensor:
        return self.loc + self.scale * ((self._uniform(shape) - 0.5) * math.pi).tan()

    def _log(self, x: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - (((x - self.loc) / self.scale) ** 2).log1p()

    def _cdf(self, x: Tensor) -> Tensor:
        return ((x - self.loc) / self.scale).atan() / math.pi + 0.5

    def _icdf(self, p: Tensor) -> Tensor:
        return (math.pi * (p - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return (4 * math.pi * self.scale).log()

    @property
    def mean(self) -> Tensor:
        return nan_like(self.loc)

    @property
    def variance(self) -> Tensor:
        return Tensor.full_like(self.loc, math.inf)


class StudentT(_LocScale):
    """Student's distribution of `df` degrees of freedom about `loc`, with `scale`; `validate_args` as of `Normal`.

    `rsample` has no gradient to `df`, `loc` and `scale`.

    >>> StudentT(3.0, loc=0.0, scale=1.0, validate_args=None).variance.item()
    3.0
    """

    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"df": c.positive, "loc": c.real, "scale": c.positive}
    _flows: ClassVar[bool] = False
    df: Tensor

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._hold(validate_args, df=df, loc=loc, scale=scale)

    def _draw(self, shape: Shape) -> Tensor:
        chi2 = 2.0 * standard_gamma(shape, self.df / 2.0, self)
        return self.loc + self.scale * self._normal(shape) * (self.df / chi2).sqrt()

    def _log(self, x: Tensor) -> Tensor:
        y = (x - self.loc) / self.scale
        rest = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        rest = rest + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1.0)).lgamma()
        return -0.5 * (self.df + 1.0) * (y**2 / self.df).log1p() - rest

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return self.scale.log() + (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + 0.5 * self.df.log() + beta

    @property
    def mean(self) -> Tensor:
        return (self.df > 1.0).where(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df > 2.0).where(self.df - 2.0, 1.0)
        return (self.df > 2.0).where(finite, (self.df > 1.0).where(Tensor.full_like(self.df, math.inf), math.nan))


class HalfNormal(Distribution):
    """The distribution of |x|, x being normal of mean 0 and deviation `scale`; `validate_args` as of `Distribution`.

    >>> HalfNormal(1.0, validate_args=None).mode.item()
    0.0
    """

    has_rsample: ClassVar[bool] = True
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"scale": c.positive}
    support = c.nonnegative
    scale: Tensor
    _whole: ClassVar[type[_LocScale]] = Normal

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, scale=scale)
        self._both = self._whole(Tensor.zeros_like(self.scale), self.scale, False)

    def _draw(self, shape: Shape) -> Tensor:
        return self._both._draw(shape).abs()

    def _log(self, x: Tensor) -> Tensor:
        return (x >= 0.0).where(self._both._log(x) + math.log(2), -math.inf)

    def _cdf(self, x: Tensor) -> Tensor:
        return 2.0 * self._both._cdf(x) - 1.0

    def _icdf(self, p: Tensor) -> Tensor:
        return self._both._icdf((p + 1.0) / 2.0)

    def entropy(self) -> Tensor:
        return self._both.entropy() - math.log(2)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return Tensor.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(HalfNormal):
    """The distribution of |x|, x being of a Cauchy distribution about 0 with `scale`; `validate_args` as of
    `HalfNormal`.

    >>> HalfCauchy(1.0, validate_args=None).cdf(1.0).item()
    0.5
    """

    _whole: ClassVar[type[_LocScale]] = Cauchy

    @property
    def mean(self) -> Tensor:
        return Tensor.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return Tensor.full_like(self.scale, math.inf)


class Uniform(Distribution):
    """Numbers from `low` on and below `high`; `validate_args` as of `Distribution`.

    >>> Uniform(1.0, 3.0, validate_args=None).mean.item()
    2.0
    """

    has_rsample: ClassVar[bool] = True
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"low": c.real, "high": c.real}
    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, low=low, high=high)
        self.support = c.interval(self.low.detach(), self.high.detach())
        ordered = c.greater_than(self.low.detach())
        self.arg_constraints = {"low": c.real, "high": ordered}  # type: ignore[misc]
        self._validate(high=self.high)

    def _draw(self, shape: Shape) -> Tensor:
        return self.low + self._uniform(shape) * (self.high - self.low)

    def _log(self, x: Tensor) -> Tensor:
        inside = (x >= self.low) & (x < self.high)
        return inside.where(-(self.high - self.low).log(), -math.inf)

    def _cdf(self, x: Tensor) -> Tensor:
        return ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def _icdf(self, p: Tensor) -> Tensor:
        return p * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return nan_like(self.high)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12


class Exponential(Distribution):
    """Times between events that come at `rate`; `validate_args` as of `Distribution`.

    >>> Exponential(2.0, validate_args=None).mean.item()
    0.5
    """

    has_rsample: ClassVar[bool] = True
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"rate": c.positive}
    support = c.nonnegative
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, rate=rate)

    def _draw(self, shape: Shape) -> Tensor:
        return self._exponential(shape) / self.rate

    def _log(self, x: Tensor) -> Tensor:
        return self.rate.log() - self.rate * x

    def _cdf(self, x: Tensor) -> Tensor:
        return 1.0 - (-self.rate * x).exp()

    def _icdf(self, p: Tensor) -> Tensor:
        return -(-p).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.rate

    @property
    def mode(self) -> Tensor:
        return Tensor.zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return 1.0 / self.rate**2


class Gamma(Distribution):
    """The gamma distribution of shape `concentration` and of `rate`; `validate_args` as of `Distribution`.

    `rsample` has no gradient to `concentration` and `rate`.

    >>> Gamma(3.0, 2.0, validate_args=None).mean.item()
    1.5
    """

    has_rsample: ClassVar[bool] = True
    _flows: ClassVar[bool] = False
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"concentration": c.positive, "rate": c.positive}
    support = c.nonnegative
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, concentration=concentration, rate=rate)

    def _draw(self, shape: Shape) -> Tensor:
        return standard_gamma(shape, self.concentration, self) / self.rate

    def _log(self, x: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1.0, x) - rate * x - a.lgamma()

    def _cdf(self, x: Tensor) -> Tensor:
        return gammainc(self.concentration, self.rate * x)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1.0) / self.rate).clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2


class Chi2(Gamma):
    """The sum of squares of `df` normal numbers; `validate_args` as of `Distribution`.

    `rsample` has no gradient to `df`.

    >>> Chi2(3.0, validate_args=None).mean.item()
    3.0
    """

    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"df": c.positive}
    df: Tensor

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, df=df)
        self.concentration, self.rate = 0.5 * self.df, Tensor.full_like(self.df, 0.5)


class Beta(Distribution):
    """The beta distribution on (0, 1) of two concentrations; `validate_args` as of `Distribution`.

    Args:
        concentration1, concentration0: how much draws lean to 1 and to 0. `rsample` has no gradient to them.

    >>> Beta(1.0, 3.0, validate_args=None).mean.item()
    0.25
    """

    has_rsample: ClassVar[bool] = True
    _flows: ClassVar[bool] = False
    arg_constraints: ClassVar[dict[str, c.Constraint]] = {"concentration1": c.positive, "concentration0": c.positive}
    support = c.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._hold(validate_args, concentration1=concentration1, concentration0=concentration0)

    def _draw(self, shape: Shape) -> Tensor:
        a, b = (standard_gamma(shape, x, self).clamp(min=1e-37) for x in (self.concentration1, self.concentration0))
        return a / (a + b)

    def _norm(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.lgamma() + b.lgamma() - (a + b).lgamma()

    def _log(self, x: Tensor) -> Tensor:
        return xlogy(self.concentration1 - 1.0, x) + xlogy(self.concentration0 - 1.0, 1.0 - x) - self._norm()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        spread = (a - 1.0) * a.digamma() + (b - 1.0) * b.digamma() - (a + b - 2.0) * (a + b).digamma()
        return self._norm() - spread

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inner = (a > 1.0) & (b > 1.0)
        middle = (a - 1.0) / inner.where(a + b - 2.0, 1.0)
        edge = (a == b).where(math.nan, (a > b).where(Tensor.ones_like(a), 0.0))
        return inner.where(middle, edge)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1.0))
