"""Distributions of vectors, and those made of others: of transformed values, relaxed bits and places among them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from anneal.distributions import constraints as c
from anneal.distributions._base import Argument, Distribution, Parametric, Shape, kl_divergence, register_kl, summed
from anneal.distributions._continuous import Normal
from anneal.distributions._discrete import Categorical, _Chances, _clamped
from anneal.distributions.transforms import ComposeTransform, ExpTransform, SigmoidTransform, Transform
from anneal.errors import MissingMethodError, SettingError, ShapeError
from anneal.linalg import cholesky, inv, solve_triangular
from anneal.tensor import Tensor, no_grad

__all__ = [
    "Independent", "LogNormal", "LowRankMultivariateNormal", "MixtureSameFamily",
    "MultivariateNormal", "RelaxedBernoulli", "RelaxedOneHotCategorical", "TransformedDistribution", "kl_divergence",
    "register_kl",
]  # fmt: skip


class _Vectors(
    Parametric,
    support=c.real_vector,
    mean="loc",
    mode="loc",
    # half the logarithm of the covariance's determinant, and the square of a vector's length by the covariance
    log=lambda d, x: -0.5 * (d.loc.shape[-1] * math.log(2 * math.pi) + d._distance(x - d.loc)) - d._half_log_det(),
    entropy=lambda d: d._half_log_det() + 0.5 * d.loc.shape[-1] * (1 + math.log(2 * math.pi)),
):
    """Normal vectors about `loc`."""

    loc: Argument


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
        given = {name: value for name, value in locals().items() if value is not None}
        if len(given) - ("validate_args" in given) != 3:  # this one, loc and a matrix
            raise SettingError(
                "MultivariateNormal: give covariance_matrix, precision_matrix or scale_tril, one of them"
            )
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

    cov_factor: Argument
    cov_diag: Argument

    def _begin(self) -> None:
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
    mean="base_dist.mean",
    mode="base_dist.mode",
    variance="base_dist.variance",
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


# -- of transformed values --------------------------------------------------------------------------------------------


class TransformedDistribution(
    Distribution,
    cdf=lambda d, x: d._turned(d.base_dist.cdf(d._whole._inverse(x))),
    icdf=lambda d, p: d._whole(d.base_dist.icdf(d._turned(p))),
):
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
        several: Any = transforms if hasattr(transforms, "__iter__") else [transforms]
        self.transforms: list[Transform] = list(several)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise SettingError(f"TransformedDistribution: transforms are Transforms, not {self.transforms!r}")
        base, self._whole = base_distribution, (whole := ComposeTransform(self.transforms))
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
        made = c.over(last, len(self._event_shape) - last.event_dim) if last is not None else None
        self.support = type(self).support or made

    def __getattr__(self, name: str) -> Any:
        if name in self._of_base:
            return getattr(self.base_dist, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _tensor(self, value: Any) -> Tensor:
        return self.base_dist._tensor(value)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._whole._call(self.base_dist.sample(sample_shape)).detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._whole._call(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        y = self._check_value(value)
        n = len(self._event_shape)
        total: Tensor | float = 0.0
        for t in reversed(self.transforms):
            x = t.inv(y)
            n += t.domain.event_dim - t.codomain.event_dim
            total = total - summed(t.log_abs_det_jacobian(x, y), n - t.domain.event_dim)
            y = x
        return summed(self.base_dist.log_prob(y), n - len(self.base_dist.event_shape)) + total

    def _turned(self, p: Tensor) -> Tensor:
        """1 - p where the transforms turn numbers round."""
        sign = self._whole.sign
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value: Any) -> Tensor:
        """The probability of a draw that is at most `value`, which may be an end of the support. Raises SettingError
        where the transforms give no value that the base distribution may have."""
        return self._cdf(self._tensor(value))

    def expand(self, batch_shape: Iterable[int]) -> Self:
        shape = self._whole.inverse_shape((*batch_shape, *self._event_shape))
        base = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        found = type(self).__new__(type(self))
        TransformedDistribution.__init__(found, base, self.transforms, self._checks)
        return found

    def _kl(self, q: TransformedDistribution) -> Tensor:
        if self.transforms != q.transforms or self.event_shape != q.event_shape:
            raise MissingMethodError("kl_divergence: no formula for different transforms")
        return summed(kl_divergence(self.base_dist, q.base_dist), len(q.event_shape) - len(q.base_dist.event_shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"


class LogNormal(
    TransformedDistribution,
    loc=c.real,
    scale=c.positive,
    support=c.positive,
    mean=lambda d: (d.loc + d.scale**2 / 2).exp(),
    mode=lambda d: (d.loc - d.scale**2).exp(),
    variance=lambda d: (d.scale**2).expm1() * (2 * d.loc + d.scale**2).exp(),
    entropy=lambda d: d.base_dist.entropy() + d.loc,
):
    """The distribution of exp(x), x being normal of mean `loc` and deviation `scale`; `validate_args` as of `Normal`.

    >>> LogNormal(0.0, 1.0, validate_args=None).cdf(1.0).item()
    0.5
    """

    has_rsample = True
    _of_base = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args)


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
        noise = -(-_clamped(self._uniform(shape)).log()).log()
        return ((self.logits + noise) / self.temperature).log_softmax(-1)

    def _log(self, x: Tensor) -> Any:
        n = self._event_shape[0]
        found = (self.logits - x * self.temperature).log_softmax(-1).sum(-1)
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


class RelaxedOneHotCategorical(_Relaxed, probs=c.simplex, logits=c.real_vector, support=c.simplex):
    """`OneHotCategorical` with shares for draws, through which gradients flow; `validate_args` as of `Distribution`.

    Args:
        temperature: a number or a tensor; draws of a lower one are nearer to rows of zeros with a one. probs: weights
            of the places. logits: or their logarithms.

    >>> d = RelaxedOneHotCategorical(1.0, probs=Tensor([1.0, 1.0]), logits=None, validate_args=None)
    >>> round(d.log_prob([0.25, 0.75]).item(), 4)
    0.0
    """

    _made_of = ExpRelaxedCategorical, ExpTransform
