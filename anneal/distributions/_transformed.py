"""Distributions of transformed values; relaxed bits and places, through whose draws gradients flow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from anneal.distributions import constraints as c
from anneal.distributions._base import Distribution, Shape, kl_divergence, register_kl, summed
from anneal.distributions._continuous import Normal
from anneal.distributions._discrete import Categorical, _Chances, clamped
from anneal.distributions._several import Independent
from anneal.distributions.transforms import ComposeTransform, ExpTransform, SigmoidTransform, Transform
from anneal.errors import MissingMethodError, SettingError, ShapeError
from anneal.tensor import Tensor, no_grad

__all__ = [
    "LogNormal", "RelaxedBernoulli", "RelaxedOneHotCategorical", "TransformedDistribution", "kl_divergence",
    "register_kl",
]  # fmt: skip


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
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
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
        self.support = c.over(last, len(self._event_shape) - last.event_dim) if last is not None else None

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
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)


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
