"""Relaxed bits and places: draws between 0 and 1 through which gradients flow."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from anneal.distributions import constraints as c
from anneal.distributions._base import Distribution, Shape
from anneal.distributions._discrete import Categorical, _Chances, clamped
from anneal.distributions._transformed import TransformedDistribution
from anneal.distributions.transforms import ExpTransform, SigmoidTransform
from anneal.tensor import Tensor

__all__ = ["ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class LogitRelaxedBernoulli(_Chances, support=c.real):
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

    def _draw(self, shape: Shape) -> Tensor:
        return (self._to_logits(self._uniform(shape)) + self._to_logits(self.probs)) / self.temperature

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
