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
from anneal.distributions._tails import Pareto
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


def _bits(p: Any, q: Any) -> Tensor:
    """The divergence of two Bernoulli distributions; 0 log 0 is 0."""
    lost = p.probs * (soft(-q.logits) - soft(-p.logits))
    found: Tensor = lost + (1.0 - p.probs) * (soft(q.logits) - soft(p.logits))
    return found


def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    found: Tensor = 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1.0 - ratio.log())
    return found


def _half_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    found: Tensor = 0.5 * (ratio - 1.0 - ratio.log())
    return found


def _laplace(p: Any, q: Any) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    found: Tensor = -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1.0
    return found


def _cauchy(p: Any, q: Any) -> Tensor:
    spread = ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log()
    found: Tensor = spread - (4.0 * p.scale * q.scale).log()
    return found


def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    found: Tensor = -ratio.log() - away + ratio * _EULER + (away + (1.0 + ratio).lgamma()).exp() - (1.0 + _EULER)
    return found


def _uniform(p: Any, q: Any) -> Tensor:
    inside = (q.low <= p.low) & (q.high >= p.high)
    found: Tensor = inside.where(((q.high - q.low) / (p.high - p.low)).log(), math.inf)
    return found


def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    found: Tensor = ratio - 1.0 - ratio.log()
    return found


def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    found: Tensor = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    found = found + (q.rate - p.rate) * (a / p.rate)
    return found


def _beta(p: Any, q: Any) -> Tensor:
    a, b, total = p.concentration1, p.concentration0, p.concentration1 + p.concentration0
    spread = (a - q.concentration1) * a.digamma() + (b - q.concentration0) * b.digamma()
    rest = (q.concentration1 + q.concentration0 - total) * total.digamma()
    found: Tensor = q._norm() - p._norm() + spread + rest
    return found


def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    norms = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    found: Tensor = norms + ((a - b) * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum(-1)
    return found


def _pareto(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    found: Tensor = q.alpha * ratio.log() + (p.alpha / q.alpha).log() + q.alpha / p.alpha - 1.0
    found = (p.scale >= q.scale).where(found, math.inf)
    return found


def _categorical(p: Any, q: Any) -> Tensor:
    t = p.probs * (p.logits - q.logits)
    t = (q.probs == 0.0).where(math.inf, t)
    found: Tensor = (p.probs == 0.0).where(0.0, t).sum(-1)
    return found


def _geometric(p: Any, q: Any) -> Tensor:
    found: Tensor = -p.entropy() - (-q.probs).log1p() / p.probs - q.logits
    return found


def _poisson(p: Any, q: Any) -> Tensor:
    found: Tensor = p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)
    return found


def _binomial(p: Any, q: Any) -> Tensor:
    found: Tensor = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    found = (p.total_count > q.total_count).where(math.inf, found)
    return found


def _vectors(p: Any, q: Any) -> Tensor:
    n, shape = p.loc.shape[-1], (p.loc - q.loc).shape[:-1]
    lower = q.scale_tril.expand(*shape, n, n)
    spread = (solve_triangular(lower, p.scale_tril.expand(*shape, n, n), upper=False) ** 2).sum((-2, -1))
    away = (solve_triangular(lower, (q.loc - p.loc).unsqueeze(-1), upper=False) ** 2).sum((-2, -1))
    found: Tensor = q._half_log_det() - p._half_log_det() + 0.5 * (spread + away - n)
    return found


def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ShapeError("kl_divergence: both Independent take as many axes for an event")
    found: Tensor = p._sum(kl_divergence(p.base_dist, q.base_dist))
    return found


_SAME: dict[type, Callable[[Any, Any], Tensor]] = {
    Bernoulli: _bits,
    Beta: _beta,
    Binomial: _binomial,
    Categorical: _categorical,
    Cauchy: _cauchy,
    Dirichlet: _dirichlet,
    Exponential: _exponential,
    Gamma: _gamma,
    Geometric: _geometric,
    Gumbel: _gumbel,
    HalfNormal: _half_normal,
    Independent: _independent,
    Laplace: _laplace,
    MultivariateNormal: _vectors,
    Normal: _normal,
    OneHotCategorical: _categorical,
    Pareto: _pareto,
    Poisson: _poisson,
    Uniform: _uniform,
}
_TABLE.update({(kind, kind): function for kind, function in _SAME.items()})
# Classes that take formulas of others and are no special case of them.
_OWN = (HalfCauchy, Multinomial, OneHotCategorical)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise MissingMethodError("kl_divergence: no formula for different transforms")
    found = kl_divergence(p.base_dist, q.base_dist)
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return found.sum(tuple(range(-more, 0))) if more > 0 else found
