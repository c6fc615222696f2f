"""Distributions of transformed values; relaxed bits and places, through whose draws gradients flow; divergences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar

from anneal.distributions import _continuous as continuous, _discrete as discrete, constraints as c
from anneal.distributions._base import Distribution, Shape, summed
from anneal.distributions._continuous import _EULER, Normal
from anneal.distributions._discrete import Categorical, _Chances, clamped, soft
from anneal.distributions._several import Dirichlet, Independent, MultivariateNormal
from anneal.distributions.transforms import ComposeTransform, ExpTransform, SigmoidTransform, Transform
from anneal.errors import MissingMethodError, SettingError, ShapeError
from anneal.linalg import solve_triangular
from anneal.tensor import Tensor, no_grad

__all__ = [
    "LogNormal", "RelaxedBernoulli", "RelaxedOneHotCategorical", "TransformedDistribution", "kl_divergence",
    "register_kl",
]  # fmt: skip


class TransformedDistribution(Distribution):
    """The distribution of draws of another that went through transforms.

    Args:
        base_distribution: that distribution. transforms: one, or several in order. validate_args: as of
            `Distribution`.

    Raises SettingError for what is no transform, ShapeError where the base has too few axes for the first one.

    >>> from anneal.distributions import Normal
    >>> from anneal.distributions.transforms import ExpTransform
    >>> d = TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()], validate_args=None)
    >>> d.cdf(1.0).item(), round(d.log_prob(2.0).item(), 4)
    (0.5, -1.8523)
    """

    _of_base: ClassVar[tuple[str, ...]] = ()  # the names of parameters that the base has

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Iterable[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise SettingError(f"TransformedDistribution: transforms are Transforms, not {self.transforms!r}")
        base, whole = base_distribution, ComposeTransform(self.transforms)
        shape = (*base.batch_shape, *base.event_shape)
        needed = whole.domain.event_dim
        if len(shape) < needed:
            raise ShapeError(
                f"TransformedDistribution: the base has the shape {shape}, and the transforms take {needed} axes or "
                "more: base.expand() gives it others"
            )
        forward = whole.forward_shape(shape)
        larger = whole.inverse_shape(forward)
        if larger != shape:
            base = base.expand(larger[: len(larger) - len(base.event_shape)])
        more = needed - len(base.event_shape)
        if more > 0:
            base = Independent(base, more)
        self.base_dist = base
        events = whole.codomain.event_dim + max(len(base.event_shape) - needed, 0)
        cut = len(forward) - events
        super().__init__(forward[:cut], forward[cut:], validate_args)
        self.has_rsample = base.has_rsample  # type: ignore[misc]
        last = self.transforms[-1].codomain if self.transforms else base.support
        self.support = c.over(last, len(self._event_shape) - last.event_dim) if last is not None else None

    def __getattr__(self, name: str) -> Any:
        if name in self._of_base:
            return getattr(self.base_dist, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _tensor(self, value: Any) -> Tensor:
        return self.base_dist._tensor(value)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for t in self.transforms:
                x = t(x)
            return x.detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = self.base_dist.rsample(sample_shape)
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Any) -> Tensor:
        y = self._check_value(value)
        n = len(self._event_shape)
        total: Any = 0.0
        for t in reversed(self.transforms):
            x = t.inv(y)
            n += t.domain.event_dim - t.codomain.event_dim
            total = total - summed(t.log_abs_det_jacobian(x, y), n - t.domain.event_dim)
            y = x
        found: Tensor = total + summed(self.base_dist.log_prob(y), n - len(self.base_dist.event_shape))
        return found

    def _turned(self, p: Tensor) -> Tensor:
        """1 - p where the transforms turn numbers round."""
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value: Any) -> Tensor:
        """The probability of a draw that is at most `value`, which may be an end of the support. Raises SettingError
        where the transforms give no value that the base distribution may have."""
        return self._cdf(self._tensor(value))

    def _cdf(self, x: Tensor) -> Tensor:
        for t in reversed(self.transforms):
            x = t.inv(x)
        return self._turned(self.base_dist.cdf(x))

    def _icdf(self, p: Tensor) -> Tensor:
        x = self.base_dist.icdf(self._turned(p))
        for t in self.transforms:
            x = t(x)
        return x

    def expand(self, batch_shape: Iterable[int]) -> Self:
        shape = (*batch_shape, *self._event_shape)
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        base = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        found = type(self).__new__(type(self))
        TransformedDistribution.__init__(found, base, self.transforms, self._checks)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"


class LogNormal(
    TransformedDistribution,
    loc=c.real,
    scale=c.positive,
    support=c.positive,
    mean=lambda d: (d.loc + d.scale**2 / 2).exp(),
    mode=lambda d: (d.loc - d.scale**2).exp(),
):
    """The distribution of exp(x), x being normal of mean `loc` and deviation `scale`; `validate_args` as of `Normal`.

    >>> LogNormal(0.0, 1.0, validate_args=None).cdf(1.0).item()
    0.5
    """

    has_rsample = True
    _of_base = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    def entropy(self) -> Tensor:
        found: Tensor = self.base_dist.entropy() + self.loc
        return found

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        found: Tensor = square.expm1() * (2 * self.loc + square).exp()
        return found


class LogitRelaxedBernoulli(
    _Chances,
    support=c.real,
    draw=lambda d, shape: (d._to_logits(d._uniform(shape)) + d._to_logits(d.probs)) / d.temperature,
):
    """The log-odds of `RelaxedBernoulli`; `temperature`, `probs`, `logits` and `validate_args` as of that.

    >>> d = LogitRelaxedBernoulli(1.0, probs=0.5, logits=None, validate_args=None)
    >>> d.log_prob(0.0).exp().item()
    0.25
    """

    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._hold(locals())
        self.temperature = self._tensor(temperature)

    def _settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def _log(self, x: Tensor) -> Tensor:
        away = self.logits - x * self.temperature
        return self.temperature.log() + away - 2 * away.exp().log1p()


class ExpRelaxedCategorical(Distribution, probs=c.simplex, logits=c.real_vector, support=c.real_vector):
    """The logarithms of `RelaxedOneHotCategorical`; `temperature`, `probs`, `logits` and `validate_args` as of that.

    >>> ExpRelaxedCategorical(1.0, probs=Tensor([1.0, 1.0]), logits=None, validate_args=None).event_shape
    (2,)
    """

    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._places = Categorical(probs, logits)
        super().__init__(self._places.batch_shape, self._places.param_shape[-1:], validate_args)
        self._given = self._places._given
        self.temperature = self._tensor(temperature)

    def __getattr__(self, name: str) -> Any:
        if name in ("probs", "logits", "param_shape"):
            return getattr(self._places, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def _draw(self, shape: Shape) -> Any:
        noise = -(-clamped(self._uniform(shape)).log()).log()
        return ((self.logits + noise) / self.temperature).log_softmax(-1)

    def _log(self, x: Tensor) -> Tensor:
        n = self._event_shape[0]
        found: Tensor = (self.logits - x * self.temperature).log_softmax(-1).sum(-1)
        return found + math.lgamma(n) + self.temperature.log() * (n - 1)


class _Relaxed(TransformedDistribution):
    _of_base = ("temperature", "probs", "logits")
    _made_of: ClassVar[tuple[Any, Any]]

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base, transform = self._made_of
        super().__init__(base(temperature, probs, logits), transform(), validate_args)


class RelaxedBernoulli(_Relaxed, probs=c.unit_interval, logits=c.real):
    """`Bernoulli` with draws between 0 and 1 through which gradients flow; `validate_args` as of `Distribution`.

    Args:
        temperature: a number or a tensor; draws of a lower one are nearer to 0 and 1. probs: the probability of 1.
            logits: or its log-odds.

    >>> round(RelaxedBernoulli(1.0, probs=0.5, logits=None, validate_args=None).log_prob(0.25).item(), 4)
    0.0
    """

    _made_of = LogitRelaxedBernoulli, SigmoidTransform


class RelaxedOneHotCategorical(_Relaxed, probs=c.simplex, logits=c.real_vector):
    """`OneHotCategorical` with shares for draws, through which gradients flow; `validate_args` as of `Distribution`.

    Args:
        temperature: a number or a tensor; draws of a lower one are nearer to rows of zeros with a one. probs: weights
            of the places. logits: or their logarithms.

    >>> d = RelaxedOneHotCategorical(1.0, probs=Tensor([1.0, 1.0]), logits=None, validate_args=None)
    >>> round(d.log_prob([0.25, 0.75]).item(), 4)
    0.0
    """

    _made_of = ExpRelaxedCategorical, ExpTransform


# -- divergences ------------------------------------------------------------------------------------------------------
# Divergences of Kullback and Leibler, by the classes of two distributions.


F = TypeVar("F", bound=Callable[[Any, Any], Tensor])
_TABLE: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[F], F]:
    """A decorator: the function is the divergence of distributions of the classes `type_p` and `type_q`.

    >>> class Mine(Normal):
    ...     pass
    >>> @register_kl(Mine, Mine)
    ... def kl(p, q):
    ...     return Tensor(0.0)
    >>> kl_divergence(Mine(0.0, 1.0), Mine(1.0, 1.0)).item()
    0.0
    """

    def keep(function: F) -> F:
        _TABLE[type_p, type_q] = function
        return function

    return keep


def _of(kind: type) -> Callable[[F], F]:
    """A decorator: the function is the divergence of two distributions of the class."""
    return register_kl(kind, kind)


def _line(kind: type) -> tuple[type, ...]:
    """The class and those above it whose divergences hold for it."""
    own = [n for n, above in enumerate(kind.__mro__) if above in _OWN]
    return kind.__mro__[: own[0] + 1] if own else kind.__mro__


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The divergence KL(p, q): the mean of log p(x) - log q(x) over draws x of the distribution `p`, `q` being the
    other.

    Raises MissingMethodError for classes of which none is known.

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    for a in _line(type(p)):
        for b in _line(type(q)):
            if (a, b) in _TABLE:
                return _TABLE[a, b](p, q)
    raise MissingMethodError(
        f"kl_divergence: no formula for {type(p).__name__} and {type(q).__name__}; register_kl adds one"
    )


@_of(discrete.Bernoulli)
def _bits(p: Any, q: Any) -> Any:
    """The divergence of two Bernoulli distributions; 0 log 0 is 0, and what q excludes is infinitely far."""
    lost = p.probs * (soft(-q.logits) - soft(-p.logits)) + (1.0 - p.probs) * (soft(q.logits) - soft(p.logits))
    return ((p.probs != q.probs) & (q.probs * (1.0 - q.probs) == 0.0)).where(math.inf, lost)


@_of(Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1.0 - ratio.log())


@_of(continuous.HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1.0 - ratio.log())


@_of(continuous.Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1.0


@_of(continuous.Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    spread = ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log()
    return spread - (4.0 * p.scale * q.scale).log()


@_of(continuous.Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - away + ratio * _EULER + (away + (1.0 + ratio).lgamma()).exp() - (1.0 + _EULER)


@_of(continuous.Uniform)
def _uniform(p: Any, q: Any) -> Any:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return inside.where(((q.high - q.low) / (p.high - p.low)).log(), math.inf)


@_of(continuous.Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1.0 - ratio.log()


@_of(continuous.Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    found = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return found + (q.rate - p.rate) * (a / p.rate)


@_of(continuous.Beta)
def _beta(p: Any, q: Any) -> Any:
    a, b, total = p.concentration1, p.concentration0, p.concentration1 + p.concentration0
    spread = (a - q.concentration1) * a.digamma() + (b - q.concentration0) * b.digamma()
    rest = (q.concentration1 + q.concentration0 - total) * total.digamma()
    return q._norm() - p._norm() + spread + rest


@_of(Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    norms = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum(-1)


@_of(continuous.Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    found = q.alpha * ratio.log() + (p.alpha / q.alpha).log() + q.alpha / p.alpha - 1.0
    return (p.scale >= q.scale).where(found, math.inf)


@_of(Categorical)
@_of(discrete.OneHotCategorical)
def _categorical(p: Any, q: Any) -> Any:
    t = p.probs * (p.logits - q.logits)
    t = (q.probs == 0.0).where(math.inf, t)
    return (p.probs == 0.0).where(0.0, t).sum(-1)


@_of(discrete.Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@_of(discrete.Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@_of(discrete.Binomial)
def _binomial(p: Any, q: Any) -> Any:
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return (p.total_count > q.total_count).where(math.inf, found)


@_of(MultivariateNormal)
def _vectors(p: Any, q: Any) -> Any:
    n, shape = p.loc.shape[-1], (p.loc - q.loc).shape[:-1]
    lower = q.scale_tril.expand(*shape, n, n)
    spread = (solve_triangular(lower, p.scale_tril.expand(*shape, n, n), upper=False) ** 2).sum((-2, -1))
    away = (solve_triangular(lower, (q.loc - p.loc).unsqueeze(-1), upper=False) ** 2).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (spread + away - n)


@_of(Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ShapeError("kl_divergence: both Independent take as many axes for an event")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# Classes that take formulas of others and are no special case of them.
_OWN = (continuous.HalfCauchy, discrete.Multinomial, discrete.OneHotCategorical)


@_of(TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise MissingMethodError("kl_divergence: no formula for different transforms")
    return summed(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))
