"""Distributions of real numbers, and of shares that add up to 1."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from anneal.distributions import constraints as c
from anneal.distributions._base import Argument, Distribution, Parametric, Shape, nan_like
from anneal.special import gammainc
from anneal.tensor import Tensor

_HALF_LOG_2PI = math.log(2 * math.pi) / 2
_EULER = 0.5772156649015329
_MOST = 0.5 - 5e-8  # of the place of a two-sided draw, whose ends are infinitely far
_TRIES = 12  # of a draw that is refused once in twenty times, or less


def _standard_gamma(shape: Shape, of: Tensor, like: Distribution) -> Tensor:
    """Draws of gamma distributions of rate 1."""
    above, power = _gamma(shape, of, like)
    return above * power.exp()


def _log_gamma(shape: Shape, of: Tensor, like: Distribution) -> Tensor:
    """The logarithms of such draws: those of a small concentration are below the least float."""
    above, power = _gamma(shape, of, like)
    return above.log() + power


def _gamma(shape: Shape, of: Tensor, like: Distribution) -> tuple[Tensor, Tensor]:
    """Draws of gamma distributions of rate 1 and of concentrations of 1 or more (Marsaglia and Tsang, 2000), with a
    fixed number of tries, and the logarithms of factors that make them draws of smaller ones."""
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
    return out, (of < 1.0).where(-like._exponential(shape) / of, 0.0)


def _open(like: Tensor) -> tuple[float, float]:
    """The least and the largest float between 0 and 1."""
    return 2.0**like.dtype.least, 1.0 - 2.0**-like.dtype.digits


def _excess(r: Tensor) -> Tensor:
    """r - 1 - log(r)."""
    return r - 1.0 - r.log()


def _xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x * log(y), 0 where both are 0."""
    return x * ((x == 0.0) & (y == 0.0)).where(1.0, y).log()


class _LocScale(
    Parametric,
    loc=c.real,
    scale=c.positive,
    support=c.real,
    mean="loc",
    mode="loc",
    draw=lambda d, shape: d.loc + d.scale * d._noise(shape),
    log=lambda d, x: d._density((x - d.loc) / d.scale) - d.scale.log(),
    cdf=lambda d, x: d._below((x - d.loc) / d.scale),
    icdf=lambda d, p: d.loc + d.scale * d._quantile(p),
    entropy=lambda d: d.scale.log() + d._spread(),
):
    """A location and a scale; classes below are rows of the standard distribution: its draws (`noise`, of a shape), the
    logarithm of its density, what is `below` a number, the `quantile` of a probability, and its entropy, `spread`.
    """

    loc: Argument
    scale: Argument


class Normal(
    _LocScale,
    variance=lambda d: d.scale**2,
    noise=lambda d, shape: d._normal(shape),
    density=lambda d, z: -0.5 * z * z - _HALF_LOG_2PI,
    below=lambda d, z: 0.5 * (1.0 + (z / math.sqrt(2)).erf()),
    quantile=lambda d, p: (2.0 * p - 1.0).erfinv() * math.sqrt(2),
    spread=lambda d: 0.5 + _HALF_LOG_2PI,
    kl=lambda p, q: 0.5 * (_excess((p.scale / q.scale) ** 2) + ((p.loc - q.loc) / q.scale) ** 2),
):
    """The normal distribution of mean `loc` and standard deviation `scale`; `validate_args` as of `Distribution`.

    >>> Normal(0.0, 1.0, validate_args=False).cdf(0.0).item()
    0.5
    """


def _two_sided(u: Tensor) -> Tensor:
    """The quantile of Laplace's distribution, from the probability less 0.5."""
    return -u.sign() * (-2.0 * u.abs()).log1p()


class Laplace(
    _LocScale,
    variance=lambda d: 2.0 * d.scale**2,
    noise=lambda d, shape: _two_sided((d._uniform(shape) - 0.5).clamp(-_MOST, _MOST)),
    density=lambda d, z: -z.abs() - math.log(2),
    below=lambda d, z: 0.5 - 0.5 * z.sign() * (-z.abs()).expm1(),
    quantile=lambda d, p: _two_sided(p - 0.5),
    spread=lambda d: 1.0 + math.log(2),
):
    """The two-sided exponential distribution about `loc`, with `scale`; `validate_args` as of `Normal`.

    >>> Laplace(0.0, 1.0, validate_args=None).variance.item()
    2.0
    """

    def _kl(self, q: Any) -> Any:
        ratio, away = self.scale / q.scale, (self.loc - q.loc).abs()
        return -ratio.log() + away / q.scale + ratio * (-away / self.scale).exp() - 1.0


class Gumbel(
    _LocScale,
    mean=lambda d: d.loc + d.scale * _EULER,
    variance=lambda d: d.scale**2 * (math.pi**2 / 6),
    noise=lambda d, shape: -d._exponential(shape).clamp(min=1e-30).log(),
    density=lambda d, z: -z - (-z).exp(),
    below=lambda d, z: (-(-z).exp()).exp(),
    quantile=lambda d, p: -(-p.log()).log(),
    spread=lambda d: 1 + _EULER,
):
    """The distribution of the largest of many, at `loc` with `scale`; `validate_args` as of `Normal`.

    >>> Gumbel(0.0, 1.0, validate_args=None).mode.item()
    0.0
    """

    def _kl(self, q: Any) -> Any:
        ratio, away = self.scale / q.scale, (q.loc - self.loc) / q.scale
        return -ratio.log() - away + ratio * _EULER + (away + (1.0 + ratio).lgamma()).exp() - (1.0 + _EULER)


class Cauchy(
    _LocScale,
    mean=lambda d: nan_like(d.loc),
    variance=lambda d: Tensor.full_like(d.loc, math.inf),
    noise=lambda d, shape: ((d._uniform(shape) - 0.5) * math.pi).tan(),
    density=lambda d, z: -math.log(math.pi) - (z**2).log1p(),
    below=lambda d, z: z.atan() / math.pi + 0.5,
    quantile=lambda d, p: (math.pi * (p - 0.5)).tan(),
    spread=lambda d: math.log(4 * math.pi),
    kl=lambda p, q: ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4.0 * p.scale * q.scale).log(),
):
    """The ratio of two normal numbers, about `loc` with `scale`; `validate_args` as of `Normal`.

    >>> Cauchy(0.0, 1.0, validate_args=None).cdf(0.0).item()
    0.5
    """


class StudentT(
    _LocScale, df=c.positive, loc=c.real, scale=c.positive, mean=lambda d: (d.df > 1.0).where(d.loc, math.nan)
):
    """Student's distribution of `df` degrees of freedom about `loc`, with `scale`; `validate_args` as of `Normal`.

    `rsample` has no gradient to `df`, `loc` and `scale`.

    >>> StudentT(3.0, loc=0.0, scale=1.0, validate_args=None).variance.item()
    3.0
    """

    _flows = False
    _cdf, _icdf = Distribution._cdf, Distribution._icdf  # the base's, which raise: there are no formulas
    df: Tensor

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._hold(locals())

    def _noise(self, shape: Shape) -> Tensor:
        chi2 = 2.0 * _standard_gamma(shape, self.df / 2.0, self)
        return self._normal(shape) * (self.df / chi2).sqrt()

    def _density(self, z: Tensor) -> Tensor:
        rest = 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        rest = rest + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1.0)).lgamma()
        return -0.5 * (self.df + 1.0) * (z**2 / self.df).log1p() - rest

    def _spread(self) -> Tensor:
        half = 0.5 * self.df
        beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + 0.5 * self.df.log() + beta

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df > 2.0).where(self.df - 2.0, 1.0)
        return (self.df > 2.0).where(finite, (self.df > 1.0).where(Tensor.full_like(self.df, math.inf), math.nan))


class HalfNormal(
    Parametric,
    scale=c.positive,
    support=c.nonnegative,
    mean=lambda d: d.scale * math.sqrt(2 / math.pi),
    mode=lambda d: Tensor.zeros_like(d.scale),
    variance=lambda d: d.scale**2 * (1 - 2 / math.pi),
    draw=lambda d, shape: d._both._draw(shape).abs(),
    log=lambda d, x: (x >= 0.0).where(d._both._log(x) + math.log(2), -math.inf),
    cdf=lambda d, x: 2.0 * d._both._cdf(x) - 1.0,
    icdf=lambda d, p: d._both._icdf((p + 1.0) / 2.0),
    entropy=lambda d: d._both.entropy() - math.log(2),
    kl=lambda p, q: 0.5 * _excess((p.scale / q.scale) ** 2),
):
    """The distribution of |x|, x being normal of mean 0 and deviation `scale`; `validate_args` as of `Distribution`.

    >>> HalfNormal(1.0, validate_args=None).mode.item()
    0.0
    """

    scale: Argument
    _whole: ClassVar[type[_LocScale]] = Normal

    def _begin(self) -> None:
        self._both = self._whole(Tensor.zeros_like(self.scale), self.scale, validate_args=False)


class HalfCauchy(
    HalfNormal,
    mean=lambda d: Tensor.full_like(d.scale, math.inf),
    variance=lambda d: Tensor.full_like(d.scale, math.inf),
):
    """The distribution of |x|, x being of a Cauchy distribution about 0 with `scale`; `validate_args` as of
    `HalfNormal`.

    >>> HalfCauchy(1.0, validate_args=None).cdf(1.0).item()
    0.5
    """

    _apart = True
    _whole: ClassVar[type[_LocScale]] = Cauchy


class Uniform(
    Parametric,
    low=c.real,
    high=c.real,
    mean=lambda d: (d.high + d.low) / 2,
    mode=lambda d: nan_like(d.high),
    variance=lambda d: (d.high - d.low) ** 2 / 12,
    draw=lambda d, shape: d.low + d._uniform(shape) * (d.high - d.low),
    cdf=lambda d, x: ((x - d.low) / (d.high - d.low)).clamp(0.0, 1.0),
    icdf=lambda d, p: p * (d.high - d.low) + d.low,
    log=lambda d, x: ((x >= d.low) & (x < d.high)).where(-(d.high - d.low).log(), -math.inf),
    entropy=lambda d: (d.high - d.low).log(),
    kl=lambda p, q: ((q.low <= p.low) & (q.high >= p.high)).where(
        ((q.high - q.low) / (p.high - p.low)).log(), math.inf
    ),
):
    """Numbers from `low` on and below `high`; `validate_args` as of `Distribution`.

    >>> Uniform(1.0, 3.0, validate_args=None).mean.item()
    2.0
    """

    low: Argument
    high: Argument

    def _begin(self) -> None:
        self.support = c.interval(self.low.detach(), self.high.detach())
        ordered = c.greater_than(self.low.detach())
        self.arg_constraints = {"low": c.real, "high": ordered}  # type: ignore[misc]
        self._validate(high=self.high)


class Exponential(
    Parametric,
    rate=c.positive,
    support=c.nonnegative,
    mean=lambda d: 1.0 / d.rate,
    mode=lambda d: Tensor.zeros_like(d.rate),
    variance=lambda d: 1.0 / d.rate**2,
    draw=lambda d, shape: d._exponential(shape) / d.rate,
    log=lambda d, x: d.rate.log() - d.rate * x,
    cdf=lambda d, x: 1.0 - (-d.rate * x).exp(),
    icdf=lambda d, p: -(-p).log1p() / d.rate,
    entropy=lambda d: 1.0 - d.rate.log(),
    kl=lambda p, q: _excess(q.rate / p.rate),
):
    """Times between events that come at `rate`; `validate_args` as of `Distribution`.

    >>> Exponential(2.0, validate_args=None).mean.item()
    0.5
    """

    rate: Argument


class Gamma(
    Parametric,
    concentration=c.positive,
    rate=c.positive,
    support=c.nonnegative,
    mean=lambda d: d.concentration / d.rate,
    mode=lambda d: ((d.concentration - 1.0) / d.rate).clamp(min=0.0),
    variance=lambda d: d.concentration / d.rate**2,
    draw=lambda d, shape: _standard_gamma(shape, d.concentration, d) / d.rate,
    cdf=lambda d, x: gammainc(d.concentration, d.rate * x),
):
    """The gamma distribution of shape `concentration` and of `rate`; `validate_args` as of `Distribution`.

    `rsample` has no gradient to `concentration` and `rate`.

    >>> Gamma(3.0, 2.0, validate_args=None).mean.item()
    1.5
    """

    _flows = False
    concentration: Argument
    rate: Argument

    def _log(self, x: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return _xlogy(a, rate) + _xlogy(a - 1.0, x) - rate * x - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    def _kl(self, q: Any) -> Any:
        a, b = self.concentration, q.concentration
        found = b * (self.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
        return found + (q.rate - self.rate) * (a / self.rate)


class Chi2(Gamma, df=c.positive):
    """The sum of squares of `df` normal numbers; `validate_args` as of `Distribution`.

    `rsample` has no gradient to `df`.

    >>> Chi2(3.0, validate_args=None).mean.item()
    3.0
    """

    df: Tensor

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        self._hold(locals())
        self.concentration, self.rate = 0.5 * self.df, Tensor.full_like(self.df, 0.5)


class Weibull(
    Parametric,
    scale=c.positive,
    concentration=c.positive,
    support=c.positive,
    mean=lambda d: d.scale * (1.0 + 1.0 / d.concentration).lgamma().exp(),
    mode=lambda d: d.scale * ((d.concentration - 1.0) / d.concentration) ** (1.0 / d.concentration),
    variance=lambda d: (
        d.scale**2
        * ((1.0 + 2.0 / d.concentration).lgamma().exp() - (2.0 * (1.0 + 1.0 / d.concentration).lgamma()).exp())
    ),
    draw=lambda d, shape: d.scale * d._exponential(shape).clamp(min=1e-30) ** (1.0 / d.concentration),
    cdf=lambda d, x: -(-((x / d.scale) ** d.concentration)).expm1(),
    icdf=lambda d, p: d.scale * (-(-p).log1p()) ** (1.0 / d.concentration),
    entropy=lambda d: _EULER * (1.0 - 1.0 / d.concentration) + (d.scale / d.concentration).log() + 1.0,
):
    """The Weibull distribution of `scale` and of the power `concentration`; `validate_args` as of `Distribution`.

    >>> Weibull(2.0, 1.0, validate_args=None).mean.item()
    2.0
    """

    scale: Argument
    concentration: Argument

    def cdf(self, value: Any) -> Tensor:
        """The probability of a draw that is at most `value`: 0 at 0, the end of the support."""
        return self._cdf(self._check_value(value, c.nonnegative))

    def _log(self, x: Tensor) -> Tensor:
        k, z = self.concentration, x / self.scale
        return (k / self.scale).log() + (k - 1.0) * z.log() - z**k


class Pareto(
    Parametric,
    scale=c.positive,
    alpha=c.positive,
    mode="scale",
    draw=lambda d, shape: d.scale * (d._exponential(shape) / d.alpha).exp(),
    log=lambda d, x: d.alpha.log() + d.alpha * d.scale.log() - (d.alpha + 1.0) * x.log(),
    cdf=lambda d, x: 1.0 - (d.scale / x) ** d.alpha,
    icdf=lambda d, p: d.scale * (-(-p).log1p() / d.alpha).exp(),
    entropy=lambda d: (d.scale / d.alpha).log() + 1.0 + 1.0 / d.alpha,
    kl=lambda p, q: (p.scale >= q.scale).where(
        q.alpha * (p.scale / q.scale).log() + _excess(q.alpha / p.alpha), math.inf
    ),
):
    """Numbers above `scale` whose tail falls by the power `alpha`; `validate_args` as of `Distribution`.

    >>> Pareto(1.0, 2.0, validate_args=None).mean.item()
    2.0
    """

    scale: Argument
    alpha: Argument

    def _begin(self) -> None:
        self.support = c.greater_than_eq(self.scale.detach())

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1.0)
        return a * self.scale / (a - 1.0)

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2.0)
        return self.scale**2 * a / ((a - 1.0) ** 2 * (a - 2.0))


class Dirichlet(
    Parametric,
    concentration=c.independent(c.positive, 1),
    support=c.simplex,
    mean=lambda d: d.concentration / d.concentration.sum(-1, keepdim=True),
):
    """Shares that add up to 1, by a `concentration` for each; `validate_args` as of `Distribution`.

    `rsample` has no gradient to `concentration`.

    >>> Dirichlet(Tensor([1.0, 3.0]), validate_args=None).mean.tolist()
    [0.25, 0.75]
    """

    _flows = False
    concentration: Argument

    def _begin(self) -> None:
        self._event_shape = self.concentration.shape[-1:]

    def _draw(self, shape: Shape) -> Tensor:
        return _log_gamma(shape, self.concentration, self).softmax(-1).clamp(*_open(self.concentration))

    def _log(self, x: Tensor) -> Any:
        a = self.concentration
        return _xlogy(a - 1.0, x).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        norm = a.lgamma().sum(-1) - total.lgamma()
        found: Tensor = norm - (k - total) * total.digamma() - ((a - 1.0) * a.digamma()).sum(-1)
        return found

    def _kl(self, q: Any) -> Any:
        a, b = self.concentration, q.concentration
        norms = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
        return norms + ((a - b) * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum(-1)

    @property
    def mode(self) -> Tensor:
        rest = (self.concentration - 1.0).clamp(min=0.0)
        flat = (self.concentration < 1.0).all(-1, keepdim=True)
        corner = (Tensor.arange(rest.shape[-1], device=rest.device) == 0).cast(rest.dtype)  # torch's choice
        return flat.where(corner, rest / flat.where(1.0, rest.sum(-1, keepdim=True)))

    @property
    def variance(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1, keepdim=True)
        return a * (total - a) / (total**2 * (total + 1.0))


class Beta(
    Parametric,
    concentration1=c.positive,
    concentration0=c.positive,
    support=c.unit_interval,
    mean=lambda d: d._pair.mean[..., 0],
    mode=lambda d: d._pair.mode[..., 0],
    log=lambda d, x: d._pair._log(Tensor.stack([x, 1.0 - x], -1)),
    entropy=lambda d: d._pair.entropy(),
    kl=lambda p, q: p._pair._kl(q._pair),
):
    """The beta distribution on (0, 1) of two concentrations; `validate_args` as of `Distribution`.

    Args:
        concentration1, concentration0: how much draws lean to 1 and to 0. `rsample` has no gradient to them.

    >>> Beta(1.0, 3.0, validate_args=None).mean.item()
    0.25
    """

    _flows = False
    concentration1: Argument
    concentration0: Argument

    def _begin(self) -> None:
        # of x and 1 - x
        self._pair = Dirichlet(Tensor.stack([self.concentration1, self.concentration0], -1), validate_args=False)

    def _draw(self, shape: Shape) -> Tensor:
        a, b = (_log_gamma(shape, x, self) for x in (self.concentration1, self.concentration0))
        return (a - b).sigmoid().clamp(*_open(a))

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1.0))
