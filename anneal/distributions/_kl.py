"""Divergences of Kullback and Leibler, by the classes of two distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from anneal.distributions._base import Distribution
from anneal.distributions._continuous import (
    _EULER,
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    Pareto,
    Uniform,
)
from anneal.distributions._discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    OneHotCategorical,
    Poisson,
    soft,
)
from anneal.distributions._several import Dirichlet, Independent, MultivariateNormal
from anneal.distributions._transform import summed
from anneal.distributions._transformed import TransformedDistribution
from anneal.errors import MissingMethodError, ShapeError
from anneal.linalg import solve_triangular
from anneal.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

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


def _of(*kinds: type) -> Callable[[F], F]:
    """A decorator: the function is the divergence of two distributions of one of the classes."""

    def keep(function: F) -> F:
        for kind in kinds:
            _TABLE[kind, kind] = function
        return function

    return keep


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


@_of(Bernoulli)
def _bits(p: Any, q: Any) -> Any:
    """The divergence of two Bernoulli distributions; 0 log 0 is 0, and what q excludes is infinitely far."""
    lost = p.probs * (soft(-q.logits) - soft(-p.logits)) + (1.0 - p.probs) * (soft(q.logits) - soft(p.logits))
    return ((p.probs != q.probs) & (q.probs * (1.0 - q.probs) == 0.0)).where(math.inf, lost)


@_of(Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1.0 - ratio.log())


@_of(HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1.0 - ratio.log())


@_of(Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1.0


@_of(Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    spread = ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log()
    return spread - (4.0 * p.scale * q.scale).log()


@_of(Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - away + ratio * _EULER + (away + (1.0 + ratio).lgamma()).exp() - (1.0 + _EULER)


@_of(Uniform)
def _uniform(p: Any, q: Any) -> Any:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return inside.where(((q.high - q.low) / (p.high - p.low)).log(), math.inf)


@_of(Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1.0 - ratio.log()


@_of(Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    found = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return found + (q.rate - p.rate) * (a / p.rate)


@_of(Beta)
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


@_of(Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    found = q.alpha * ratio.log() + (p.alpha / q.alpha).log() + q.alpha / p.alpha - 1.0
    return (p.scale >= q.scale).where(found, math.inf)


@_of(Categorical, OneHotCategorical)
def _categorical(p: Any, q: Any) -> Any:
    t = p.probs * (p.logits - q.logits)
    t = (q.probs == 0.0).where(math.inf, t)
    return (p.probs == 0.0).where(0.0, t).sum(-1)


@_of(Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@_of(Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@_of(Binomial)
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
_OWN = (HalfCauchy, Multinomial, OneHotCategorical)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise MissingMethodError("kl_divergence: no formula for different transforms")
    return summed(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))
