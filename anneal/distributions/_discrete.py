"""Distributions of whole numbers, and of places in a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.distributions import constraints as c
from anneal.distributions._base import Argument, Distribution, Parametric, Shape, nan_like
from anneal.distributions._continuous import _standard_gamma, _xlogy
from anneal.errors import MissingMethodError, SettingError, ShapeError
from anneal.ops import said
from anneal.tensor import Tensor, dtypes
from anneal.tensor.autograd import enable_grad


def _clamped(p: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1."""
    eps = 2.0 ** (1 - p.dtype.digits)
    return p.clamp(eps, 1 - eps)


def _soft(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return -(-x).logsigmoid()


class _Chances(
    Distribution,
    probs=c.unit_interval,
    logits=c.real,
    to_probs=lambda d, logits: logits.sigmoid(),
    odds_entropy=lambda d: _soft(d.logits) - d.logits * d.probs,  # of a bit
):
    """Probabilities, or their log-odds: one is given, and the other follows."""

    probs: Tensor
    logits: Tensor

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._hold(locals())

    def _hold(self, arguments: dict[str, Any]) -> None:
        if (arguments["probs"] is None) is (arguments["logits"] is None):
            raise SettingError(f"{type(self).__name__}: give probs or logits, and not both")
        super()._hold({name: value for name, value in arguments.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        given = {"logits": "probs", "probs": "logits"}.get(name)
        if given not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with enable_grad():  # it is kept, also where a draw asks for it first
            setattr(self, name, getattr(self, f"_to_{name}")(vars(self)[given]))
        return vars(self)[name]

    def _to_logits(self, probs: Tensor) -> Tensor:
        p = _clamped(probs)
        return p.log() - (-p).log1p()


class Bernoulli(
    _Chances,
    support=c.boolean,
    mean="probs",
    variance=lambda d: d.probs * (1.0 - d.probs),
    draw=lambda d, shape: (d._uniform(shape) < d.probs).cast(d.probs.dtype),
    log=lambda d, x: x * d.logits - _soft(d.logits),
    entropy=lambda d: d._odds_entropy(),
    mode=lambda d: (d.probs == 0.5).where(math.nan, (d.probs >= 0.5).cast(d.probs.dtype)),
    values=lambda d: Tensor([0.0, 1.0], dtype=d.probs.dtype, device=d.probs.device),
    # 0 log 0 is 0, and what q excludes is infinitely far
    kl=lambda p, q: ((p.probs != q.probs) & (q.probs * (1.0 - q.probs) == 0.0)).where(
        math.inf,
        p.probs * (_soft(-q.logits) - _soft(-p.logits)) + (1.0 - p.probs) * (_soft(q.logits) - _soft(p.logits)),
    ),
):
    """1 with probability `probs`, or with the log-odds `logits`, else 0; `validate_args` as of `Distribution`.

    >>> Bernoulli(0.25, logits=None, validate_args=None).variance.item()
    0.1875
    """

    has_enumerate_support = True


class Geometric(
    _Chances,
    support=c.nonnegative_integer,
    mean=lambda d: 1.0 / d.probs - 1.0,
    mode=lambda d: Tensor.zeros_like(d.probs),
    variance=lambda d: (1.0 / d.probs - 1.0) / d.probs,
    draw=lambda d, shape: (-d._exponential(shape) / (-d.probs).log1p()).floor(),
    entropy=lambda d: d._odds_entropy() / d.probs,
    kl=lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits,
):
    """Failures before the first success, which comes with probability `probs` or log-odds `logits`; `validate_args` as
    of `Distribution`.

    >>> Geometric(0.25, logits=None, validate_args=None).mean.item()
    3.0
    """

    def _log(self, x: Tensor) -> Tensor:
        sure = (self.probs == 1.0) & (x == 0.0)
        return x * (-sure.where(0.0, self.probs)).log1p() + self.probs.log()


def _poisson(like: Distribution, rate: Tensor, shape: Shape) -> Tensor:
    """Draws of Poisson distributions: events counted one by one below a rate of 10, above it by the rejections of
    Hormann (1993), with a fixed number of tries.
    """
    few = (like._exponential((48, *shape)).cumsum(0) <= rate.clamp(max=10.0)).sum(0).cast(rate.dtype)
    r = rate.clamp(min=10.0)
    b = 0.931 + 2.53 * r.sqrt()
    a = -0.059 + 0.02483 * b
    u, v = like._uniform((16, *shape)) - 0.5, like._uniform((16, *shape)).clamp(min=1e-12)
    us = (0.5 - u.abs()).clamp(min=1e-7)
    k = ((2.0 * a / us + b) * u + r + 0.43).floor()
    scale = 1.1239 + 1.1328 / (b - 3.4)
    # k log(r) - r - lgamma(k + 1) by Stirling's series, as the difference of large numbers is too coarse
    n = k.clamp(min=1.0)
    bound = n * ((r - n) / n).log1p() + (n - r) - 0.5 * (2 * math.pi * n).log() - (1 / 12 - 1 / 360 / (n * n)) / n
    bound = (k < 1.0).where(-r, bound)
    kept = (k >= 0.0) & ((v * scale / (a / (us * us) + b)).log() <= bound)
    out = r.floor().expand(*shape)
    for i in reversed(range(16)):
        out = kept[i].where(k[i], out)
    return (rate < 10.0).where(few, out)


class Poisson(
    Parametric,
    rate=c.nonnegative,
    support=c.nonnegative_integer,
    mean="rate",
    mode=lambda d: d.rate.floor(),
    variance="rate",
    draw=lambda d, shape: _poisson(d, d.rate, shape),
    log=lambda d, x: _xlogy(x, d.rate) - d.rate - (x + 1.0).lgamma(),
    kl=lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
):
    """The number of events that come at `rate`; `validate_args` as of `Distribution`.

    >>> Poisson(4.0, validate_args=None).variance.item()
    4.0
    """

    has_rsample = False
    rate: Argument


class Binomial(
    _Chances,
    total_count=c.nonnegative_integer,
    probs=c.unit_interval,
    logits=c.real,
    mean=lambda d: d.total_count * d.probs,
    mode=lambda d: ((d.total_count + 1.0) * d.probs).floor().minimum(d.total_count),
    variance=lambda d: d.mean * (1.0 - d.probs),
    values=lambda d: Tensor.arange(d._most + 1, device=d.probs.device).cast(d.probs.dtype),  # up to the largest count
):
    """Successes among `total_count` trials, each with probability `probs` or log-odds `logits`; `validate_args` as of
    `Distribution`. A draw takes as many random numbers as there are trials.

    >>> Binomial(4, 0.5, logits=None, validate_args=None).mean.item()
    2.0
    """

    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        try:
            counts = np.asarray(total_count, float)
            self._least, self._most = int(counts.min()), int(counts.max())
        except (TypeError, ValueError):
            raise SettingError(f"Binomial: total_count is of numbers of trials, not {said(total_count)}") from None
        self._hold(locals())
        self.support = c.integer_interval(0, self.total_count)

    def _draw(self, shape: Shape) -> Tensor:
        steps = Tensor.arange(self._most, device=self.probs.device).reshape(-1, *[1] * len(shape))
        won = (self._uniform((self._most, *shape)) < self.probs) & (steps < self.total_count)
        return won.sum(0).cast(self.probs.dtype)

    def _log(self, x: Tensor) -> Tensor:
        n, z = self.total_count, self.logits
        ways = (n + 1.0).lgamma() - (x + 1.0).lgamma() - (n - x + 1.0).lgamma()
        return ways + x * z - n * _soft(z)

    def _kl(self, q: Any) -> Any:
        if self._least == self._most == q._least == q._most:
            per_trial = self.probs * (self.logits - q.logits) + (-self.probs).log1p() - (-q.probs).log1p()
            return self.total_count * per_trial
        fewer = self.total_count.minimum(q.total_count)  # where q has no more, the ways are those of both
        return (self.total_count > q.total_count).where(
            math.inf, -self._mean(lambda x: q._log(x.minimum(fewer))) - self.entropy()
        )

    def _mean(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean of a function of the successes, which are counted one by one."""
        x = super().enumerate_support(False)
        p = self._log(x.minimum(self.total_count)).exp()
        return (x <= self.total_count).where(p * of(x), 0.0).sum(0)

    def entropy(self) -> Tensor:
        return -self._mean(lambda x: self._log(x.minimum(self.total_count)))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self._least != self._most:
            raise MissingMethodError(
                f"Binomial: enumerate_support is for counts that are equal, not of {self._least} to {self._most}: make "
                "a distribution for each count"
            )
        return super().enumerate_support(expand)


class NegativeBinomial(
    _Chances,
    total_count=c.nonnegative,
    probs=c.half_open_interval(0.0, 1.0),
    logits=c.real,
    support=c.nonnegative_integer,
    mean=lambda d: d.total_count * d.logits.exp(),
    mode=lambda d: ((d.total_count - 1.0) * d.logits.exp()).floor().clamp(min=0.0),
    variance=lambda d: d.mean / (-d.logits).sigmoid(),
    draw=lambda d, shape: _poisson(d, _standard_gamma(shape, d.total_count, d) * d.logits.exp(), shape),
):
    """Successes, each with probability `probs` or log-odds `logits`, before `total_count` failures;
    `validate_args` as of `Distribution`.

    >>> NegativeBinomial(2.0, 0.5, logits=None, validate_args=None).mean.item()
    2.0
    """

    total_count: Tensor

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._hold(locals())

    def _log(self, x: Tensor) -> Tensor:
        n, z = self.total_count, self.logits
        chances = n * (-z).logsigmoid() + x * z.logsigmoid()
        ways = (n + x).lgamma() - (x + 1.0).lgamma() - n.lgamma()
        return chances + ((n + x) == 0.0).where(0.0, ways)


class Categorical(
    _Chances,
    probs=c.independent(c.nonnegative, 1),
    logits=c.real_vector,
    mean=lambda d: nan_like(d.probs.sum(-1)),
    mode=lambda d: d.probs.argmax(-1),
    variance="mean",
    values=lambda d: Tensor.arange(d._count, device=d.probs.device),
    draw=lambda d, shape: (d.probs / d._exponential((*shape, d._count))).argmax(-1),
    to_logits=lambda d, probs: _clamped(probs).log(),
    to_probs=lambda d, logits: logits.softmax(-1),
):
    """A place along the last axis, by weights `probs`, which are made to add up to 1, or by `logits`;
    `validate_args` as of `Distribution`. Draws are int32.

    >>> Categorical(Tensor([1.0, 3.0]), logits=None, validate_args=None).log_prob(1).exp().item()
    0.75
    """

    has_enumerate_support = True

    def _begin(self) -> None:
        if "probs" in vars(self):
            self.probs = self.probs / self.probs.sum(-1, keepdim=True)
        else:
            self.logits = self.logits - self.logits.logsumexp(-1, keepdim=True)
        self._count = self._first().shape[-1]
        self.support = c.integer_interval(0, self._count - 1)

    @property
    def param_shape(self) -> Shape:
        """The shape of the probabilities."""
        shape: Shape = self._first().shape
        return shape

    def _ones(self, places: Tensor) -> Tensor:
        """Rows of zeros with a one at a place."""
        rows = places.unsqueeze(-1) == Tensor.arange(self._count, device=places.device)
        return rows.cast(self.probs.dtype)

    def _log(self, x: Tensor) -> Tensor:
        x = x.cast(dtypes.int32)
        if x.shape != self._batch_shape:
            x = x + Tensor.zeros(*self._batch_shape, dtype=dtypes.int32, device=x.device)
        rows = self.logits.expand(*x.shape, self._count)
        return rows.gather(-1, x.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        least = -3.4028234663852886e38
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def _kl(self, q: Any) -> Tensor:
        t = self.probs * (self.logits - q.logits)
        t = (q.probs == 0.0).where(math.inf, t)
        return (self.probs == 0.0).where(0.0, t).sum(-1)


class OneHotCategorical(
    Categorical,
    mean="probs",
    mode=lambda d: d._ones(d.probs.argmax(-1)),
    variance=lambda d: d.probs * (1.0 - d.probs),
    values=lambda d: Tensor.eye(d._count, dtype=d.probs.dtype, device=d.probs.device),
    log=lambda d, x: (x > 0.5).where(d.logits, 0.0).sum(-1),
):
    """`Categorical`, whose draws are rows of zeros with a one; `probs`, `logits` and `validate_args` as of that.

    >>> OneHotCategorical(Tensor([1.0, 3.0]), logits=None, validate_args=None).mean.tolist()
    [0.25, 0.75]
    """

    def _begin(self) -> None:
        super()._begin()
        self._event_shape, self.support = (self._count,), c.one_hot

    _apart, _kl = True, Categorical._kl

    def _draw(self, shape: Shape) -> Tensor:
        return self._ones(super()._draw(shape[:-1]))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose `rsample` has the gradient of the probabilities; `probs`, `logits` and
    `validate_args` as of that.

    >>> d = OneHotCategoricalStraightThrough(Tensor([0.0, 3.0]), logits=None, validate_args=None)
    >>> d.rsample().tolist()
    [0.0, 1.0]
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(
    Categorical,
    mean=lambda d: d.probs * d.total_count,
    mode=lambda d: d._missing("mode"),
    variance=lambda d: d.total_count * d.probs * (1.0 - d.probs),
    values=lambda d: d._missing("enumerate_support"),
):
    """Counts of the places in `total_count` draws of a `Categorical`; `probs`, `logits` and `validate_args` as of that.

    Raises ShapeError for a count that is no number.

    >>> Multinomial(4, Tensor([1.0, 3.0]), logits=None, validate_args=None).mean.tolist()
    [1.0, 3.0]
    """

    has_enumerate_support = False
    _apart = True

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int) or total_count < 0:
            raise ShapeError("Multinomial: total_count is a number of draws, the same for the whole batch")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)
        self._event_shape = (self._count,)
        self.support = c.multinomial(total_count)

    def _settings(self) -> dict[str, Any]:
        return {"total_count": self.total_count}

    def _draw(self, shape: Shape) -> Tensor:
        return self._ones(super()._draw((self.total_count, *shape[:-1]))).sum(0)

    def _log(self, x: Tensor) -> Tensor:
        ways = (x.sum(-1) + 1.0).lgamma() - (x + 1.0).lgamma().sum(-1)
        return ways + (((x == 0.0) & (self.logits == -math.inf)).where(0.0, self.logits) * x).sum(-1)

    def entropy(self) -> Tensor:
        n, places = float(self.total_count), Binomial(self.total_count, self.probs, validate_args=False)
        counts = places.enumerate_support(False)
        spread = (places._log(counts).exp() * (counts + 1.0).lgamma()).sum(0).sum(-1)
        return n * super().entropy() - math.lgamma(n + 1) + spread
