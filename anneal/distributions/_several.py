"""Distributions of vectors, and distributions made of others, the beta distribution of Dirichlet's among them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Self

from anneal.distributions import constraints as c
from anneal.distributions._base import Distribution, Shape, kl_divergence, summed
from anneal.distributions._continuous import standard_gamma, xlogy
from anneal.distributions._discrete import Categorical
from anneal.errors import SettingError, ShapeError
from anneal.linalg import cholesky, inv, solve_triangular
from anneal.tensor import Tensor

__all__ = ["Beta", "Dirichlet", "Independent", "LowRankMultivariateNormal", "MixtureSameFamily", "MultivariateNormal"]


class Dirichlet(
    Distribution,
    concentration=c.independent(c.positive, 1),
    support=c.simplex,
    mean=lambda d: d.concentration / d.concentration.sum(-1, keepdim=True),
):
    """Shares that add up to 1, by a `concentration` for each; `validate_args` as of `Distribution`.

    `rsample` has no gradient to `concentration`.

    >>> Dirichlet(Tensor([1.0, 3.0]), validate_args=None).mean.tolist()
    [0.25, 0.75]
    """

    has_rsample = True
    _flows = False
    concentration: Tensor

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        self._hold(locals())
        self._event_shape = self.concentration.shape[-1:]

    def _draw(self, shape: Shape) -> Tensor:
        x = standard_gamma(shape, self.concentration, self).clamp(min=1e-37)
        return x / x.sum(-1, keepdim=True)

    def _log(self, x: Tensor) -> Any:
        a = self.concentration
        return xlogy(a - 1.0, x).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

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
    Distribution,
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

    has_rsample = True
    _flows = False
    concentration1: Tensor
    concentration0: Tensor

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._hold(locals())
        # of x and 1 - x
        self._pair = Dirichlet(Tensor.stack([self.concentration1, self.concentration0], -1), validate_args=False)

    def _draw(self, shape: Shape) -> Tensor:
        a, b = (standard_gamma(shape, x, self).clamp(min=1e-37) for x in (self.concentration1, self.concentration0))
        return a / (a + b)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1.0))


class _Vectors(
    Distribution,
    support=c.real_vector,
    mean=lambda d: d.loc,
    mode=lambda d: d.loc,
    # half the logarithm of the covariance's determinant, and the square of a vector's length by the covariance
    log=lambda d, x: -0.5 * (d.loc.shape[-1] * math.log(2 * math.pi) + d._distance(x - d.loc)) - d._half_log_det(),
    entropy=lambda d: d._half_log_det() + 0.5 * d.loc.shape[-1] * (1 + math.log(2 * math.pi)),
):
    """Normal vectors about `loc`."""

    has_rsample = True
    loc: Tensor


class MultivariateNormal(
    _Vectors,
    loc=c.real_vector,
    covariance_matrix=c.positive_definite,
    precision_matrix=c.positive_definite,
    scale_tril=c.lower_cholesky,
    variance=lambda d: (d.scale_tril**2).sum(-1),
    draw=lambda d, shape: d.loc + (d.scale_tril @ d._normal(shape).unsqueeze(-1)).squeeze(-1),
):
    """Normal vectors about `loc`; `validate_args` as of `Distribution`.

    Args:
        covariance_matrix, precision_matrix, scale_tril: one of them: the covariance, its inverse, or the lower
            triangle L with the covariance L @ L.T.

    Raises SettingError for none or several of them.

    >>> d = MultivariateNormal(Tensor.zeros(2), Tensor.eye(2), precision_matrix=None, scale_tril=None)
    >>> d.log_prob(Tensor.zeros(2)).exp().round(4).item()
    0.15919999778270721
    """

    scale_tril: Tensor

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if [covariance_matrix, precision_matrix, scale_tril].count(None) != 2:
            raise SettingError(
                "MultivariateNormal: give covariance_matrix, precision_matrix or scale_tril, one of them"
            )
        given = {name: value for name, value in locals().items() if value is not None}
        self._hold(given)
        self._event_shape = self.loc.shape[-1:]
        if covariance_matrix is not None:
            self.scale_tril = cholesky(vars(self)["covariance_matrix"])
        elif precision_matrix is not None:
            self.scale_tril = cholesky(inv(vars(self)["precision_matrix"]))

    def __getattr__(self, name: str) -> Any:
        if name == "covariance_matrix":
            return self.scale_tril @ self.scale_tril.mT
        if name == "precision_matrix":
            return inv(self.covariance_matrix)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _half_log_det(self) -> Any:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def _distance(self, z: Tensor) -> Any:
        n = self.loc.shape[-1]
        lower = self.scale_tril.expand(*z.shape[:-1], n, n)
        return (solve_triangular(lower, z.unsqueeze(-1), upper=False) ** 2).sum((-2, -1))

    def _kl(self, q: Any) -> Any:
        n, away = self.loc.shape[-1], q.loc - self.loc
        lower, mine = [d.scale_tril.expand(*away.shape[:-1], n, n) for d in (q, self)]
        spread = (solve_triangular(lower, mine, upper=False) ** 2).sum((-2, -1))
        return q._half_log_det() - self._half_log_det() + 0.5 * (spread + q._distance(away) - n)


class LowRankMultivariateNormal(
    _Vectors,
    loc=c.real_vector,
    cov_factor=c.independent(c.real, 2),
    cov_diag=c.independent(c.positive, 1),
    variance=lambda d: (d.cov_factor**2).sum(-1) + d.cov_diag,
):
    """Normal vectors about `loc` with the covariance F @ F.T plus a diagonal; `validate_args` as of `Distribution`.

    Args:
        cov_factor: F, a row for each number and a column for each common cause. cov_diag: that diagonal.

    >>> d = LowRankMultivariateNormal(Tensor.zeros(2), Tensor([[1.0], [0.0]]), Tensor.ones(2), validate_args=None)
    >>> d.variance.tolist()
    [2.0, 1.0]
    """

    cov_factor: Tensor
    cov_diag: Tensor

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        self._hold(locals())
        n = self.loc.shape[-1]
        if self.cov_factor.shape[-2] != n or self.cov_diag.shape[-1] != n:
            raise ShapeError(
                f"LowRankMultivariateNormal: {n} numbers take a cov_factor of {n} rows and a cov_diag of {n} numbers, "
                f"not of shapes {self.cov_factor.shape} and {self.cov_diag.shape}"
            )
        self._event_shape = (n,)
        self._scaled = self.cov_factor / self.cov_diag.unsqueeze(-1)
        common = self.cov_factor.mT @ self._scaled
        self._small = cholesky(common + Tensor.eye(common.shape[-1], dtype=common.dtype, device=common.device))

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        half = solve_triangular(self._small, self._scaled.mT, upper=False)
        return (1.0 / self.cov_diag).diag_embed() - half.mT @ half

    @property
    def scale_tril(self) -> Tensor:
        """The lower triangle L with the covariance L @ L.T."""
        return cholesky(self.covariance_matrix)

    def _draw(self, shape: Shape) -> Tensor:
        common = self._normal((*shape[:-1], self.cov_factor.shape[-1])).unsqueeze(-1)
        return self.loc + (self.cov_factor @ common).squeeze(-1) + self.cov_diag.sqrt() * self._normal(shape)

    def _half_log_det(self) -> Any:
        return self._small.diagonal(0, -2, -1).log().sum(-1) + 0.5 * self.cov_diag.log().sum(-1)

    def _distance(self, z: Tensor) -> Any:
        k = self._small.shape[-1]
        common = (z.unsqueeze(-2) @ self._scaled).mT
        lower = self._small.expand(*z.shape[:-1], k, k)
        return (z**2 / self.cov_diag).sum(-1) - (solve_triangular(lower, common, upper=False) ** 2).sum((-2, -1))


class Independent(
    Distribution,
    mean=lambda d: d.base_dist.mean,
    mode=lambda d: d.base_dist.mode,
    variance=lambda d: d.base_dist.variance,
    entropy=lambda d: summed(d.base_dist.entropy(), d.reinterpreted_batch_ndims),
):
    """A distribution whose last batch axes are taken for parts of one event.

    Args:
        base_distribution: that distribution. reinterpreted_batch_ndims: how many axes. validate_args: as of it.

    Raises ShapeError where the batch has not as many.

    >>> from anneal.distributions import Normal
    >>> Independent(Normal(Tensor.zeros(3), 1.0), 1, validate_args=None).event_shape
    (3,)
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch, n = base_distribution.batch_shape, reinterpreted_batch_ndims
        if n > len(batch):
            raise ShapeError(f"Independent: a batch of shape {batch} has no {n} axes")
        cut = len(batch) - n
        super().__init__(batch[:cut], (*batch[cut:], *base_distribution.event_shape), validate_args)
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        self.has_rsample = base_distribution.has_rsample  # type: ignore[misc]
        support = base_distribution.support
        self.support = None if support is None else c.over(support, n)

    def _kl(self, q: Any) -> Tensor:
        if self.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
            raise ShapeError("kl_divergence: both Independent take as many axes for an event")
        return summed(kl_divergence(self.base_dist, q.base_dist), q.reinterpreted_batch_ndims)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def expand(self, batch_shape: Iterable[int]) -> Self:
        n = self.reinterpreted_batch_ndims
        return type(self)(self.base_dist.expand((*batch_shape, *self._event_shape[:n])), n)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(
    Distribution, mean=lambda d: (d._weights() * d.component_distribution.mean).sum(-1 - len(d._event_shape))
):
    """Draws of one of several distributions, which stand along the last batch axis.

    Args:
        mixture_distribution: a `Categorical`, which says of which. component_distribution: those. validate_args: as of
            `Distribution`.

    Raises ShapeError where the places of both differ.

    >>> from anneal.distributions import Normal
    >>> parts = Normal(Tensor([-1.0, 3.0]), 1.0)
    >>> MixtureSameFamily(Categorical(Tensor([1.0, 1.0])), parts, validate_args=None).mean.item()
    1.0
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        batch = component_distribution.batch_shape
        if not batch or batch[-1] != mixture_distribution.param_shape[-1]:
            raise ShapeError(
                f"MixtureSameFamily: components of batch {batch} have no {mixture_distribution.param_shape[-1]} places"
            )
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        self.support = component_distribution.support

    def expand(self, batch_shape: Iterable[int]) -> Self:
        shape, parts = tuple(batch_shape), self.component_distribution
        wide = parts.expand((*shape, parts.batch_shape[-1]))
        return type(self)(self.mixture_distribution.expand(shape), wide, self._checks)

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *[1] * len(self._event_shape))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        parts, n = self.component_distribution.sample(sample_shape), len(self._event_shape)
        place = self.mixture_distribution.expand(self._batch_shape).sample(sample_shape)
        place = place.reshape(*place.shape, *[1] * (n + 1)).expand(*place.shape, 1, *self._event_shape)
        return parts.gather(-1 - n, place).squeeze(-1 - n)

    def log_prob(self, value: Any) -> Tensor:
        parts = self.component_distribution.log_prob(self._tensor(value).unsqueeze(-1 - len(self._event_shape)))
        return (parts + self.mixture_distribution.logits).logsumexp(-1)

    def cdf(self, value: Any) -> Tensor:
        parts = self.component_distribution.cdf(self._tensor(value).unsqueeze(-1))
        return (parts * self.mixture_distribution.probs).sum(-1)

    @property
    def variance(self) -> Tensor:
        axis, parts = -1 - len(self._event_shape), self.component_distribution
        away = parts.mean - self.mean.unsqueeze(axis)
        return (self._weights() * (parts.variance + away**2)).sum(axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"
