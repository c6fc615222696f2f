"""Learning rates over time, with torch's names and arguments."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, dataclass_transform

from anneal.errors import SettingError
from anneal.ops import init_of, said
from anneal.optim._base import Optimizer
from anneal.optim._schedule import CosineAnnealingWarmRestarts, CyclicLR, LRScheduler, OneCycleLR, Rates, each

Factor = Callable[[int], float]

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR", "WarmupCosine", "warmup_cosine",
]  # fmt: skip

_LRScheduler = LRScheduler  # its older name

# A schedule sets its optimiser's rates when it is made, and again in each `step()`, which is called after the
# optimiser's. Each multiplies the rates that it finds, so that several may work together; `SequentialLR` puts them one
# after another.


def warmup_cosine(step: int, peak: float, warmup: int, steps: int, floor: float = 0.0) -> float:
    """The learning rate of step 0, 1, ...: linear up to `peak` over `warmup` steps, then half a cosine down.

    It ends at `floor * peak` after `steps` steps and stays there.

    >>> [round(warmup_cosine(i, 1.0, 2, 6, 0.1), 3) for i in range(8)]
    [0.5, 1.0, 1.0, 0.868, 0.55, 0.232, 0.1, 0.1]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= steps:
        return peak * floor
    way = (step - warmup) / max(1, steps - warmup)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * way)))


class _Lambdas(LRScheduler):
    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        several: Any = lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if not all(map(callable, several)):
            raise SettingError(
                f"{type(self).__name__}: lr_lambda is a function, or one for each group, not {lr_lambda}"
            )
        self.lr_lambdas: list[Factor] = list(several)
        if len(self.lr_lambdas) != count:
            raise SettingError(f"{type(self).__name__}: {len(self.lr_lambdas)} functions for {count} groups")
        super().__init__(optimizer, last_epoch)


@dataclass_transform(eq_default=False)
class _Row(LRScheduler):
    """Base of schedules whose annotated attributes are what `__init__` takes, and keeps."""

    def __init_subclass__(cls, **options: Any) -> None:
        if "optimizer" in vars(cls).get("__annotations__", {}) and cls.__module__.startswith("anneal."):
            cls.__init__ = init_of(cls)  # type: ignore[method-assign]
        super().__init_subclass__(**options)

    def __post_init__(self) -> None:
        LRScheduler.__init__(self, self.optimizer, self.last_epoch)


class _Factors(_Row):
    """A schedule that multiplies the present rates by a factor in step n: rates are a share of the first ones."""

    _factor: ClassVar[Any]
    _share: ClassVar[Any]

    def get_lr(self) -> list[float]:
        return [lr * self._factor(self.last_epoch) for lr in self._rates()]

    def _at_once(self) -> list[float]:
        return [lr * self._share(self.last_epoch) for lr in self.base_lrs]


class LambdaLR(_Lambdas):
    """A schedule that sets each group's rate to its first rate times `lr_lambda(step)`: one function, or one for each
    group.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = LambdaLR(optimizer, lambda step: 0.5**step)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.5, 0.25, 0.125]
    """

    def get_lr(self) -> list[float]:
        return [lr * f(self.last_epoch) for lr, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_Lambdas):
    """A schedule that multiplies each group's rate by `lr_lambda(step)`, step by step.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = MultiplicativeLR(optimizer, lambda step: 0.5)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.5, 0.25, 0.125]
    """

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self._rates()
        return [lr * f(self.last_epoch) for lr, f in zip(self._rates(), self.lr_lambdas, strict=True)]


class StepLR(_Factors):
    """A schedule that multiplies rates by `gamma` every `step_size` steps.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = StepLR(optimizer, 2)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 1.0, 0.1, 0.1]
    """

    optimizer: Optimizer
    step_size: int
    gamma: float = 0.1
    last_epoch: int = -1

    def _factor(self, n: int) -> float:
        return 1.0 if not n or n % self.step_size else self.gamma

    def _share(self, n: int) -> Any:
        return self.gamma ** (n // self.step_size)


class MultiStepLR(_Factors):
    """A schedule that multiplies rates by `gamma` at each of `milestones`.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = MultiStepLR(optimizer, [1, 3])
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.1, 0.1, 0.01]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, n: int) -> Any:
        return self.gamma ** self.milestones[n]

    def _share(self, n: int) -> Any:
        return self.gamma ** bisect.bisect_right(sorted(self.milestones.elements()), n)


class ConstantLR(_Factors):
    """A schedule that multiplies rates by `factor` for the first `total_iters` steps.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = ConstantLR(optimizer, 0.5, 2)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [0.5, 0.5, 1.0, 1.0]
    """

    optimizer: Optimizer
    factor: float = 1 / 3
    total_iters: int = 5
    last_epoch: int = -1

    def __post_init__(self) -> None:
        if not 0 <= self.factor <= 1:
            raise SettingError(f"ConstantLR: factor is a number of 0 to 1, not {self.factor}")
        super().__post_init__()

    def _factor(self, n: int) -> float:
        return self.factor if not n else 1 / self.factor if n == self.total_iters else 1.0

    def _share(self, n: int) -> float:
        return self.factor if n < self.total_iters else 1.0


class LinearLR(_Factors):
    """A schedule of rates from `start_factor` to `end_factor` of their own in `total_iters` steps.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = LinearLR(optimizer, 0.25, 1.0, 3)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [0.25, 0.5, 0.75, 1.0]
    """

    optimizer: Optimizer
    start_factor: float = 1 / 3
    end_factor: float = 1.0
    total_iters: int = 5
    last_epoch: int = -1

    def __post_init__(self) -> None:
        first, last = self.start_factor, self.end_factor
        if not 0 < first <= 1 or not 0 <= last <= 1:
            raise SettingError(f"LinearLR: factors are numbers of 0 to 1, not {first} and {last}")
        super().__post_init__()

    def _factor(self, n: int) -> float:
        if not n or self._is_initial or n > self.total_iters:
            return 1.0 if n else self.start_factor
        way = self.end_factor - self.start_factor
        return 1.0 + way / (self.total_iters * self.start_factor + (n - 1) * way)

    def _share(self, n: int) -> float:
        return self.start_factor + (self.end_factor - self.start_factor) * (min(self.total_iters, n) / self.total_iters)


class ExponentialLR(_Factors):
    """A schedule that multiplies rates by `gamma` in each step.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = ExponentialLR(optimizer, 0.5)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.5, 0.25, 0.125]
    """

    optimizer: Optimizer
    gamma: float
    last_epoch: int = -1

    def _factor(self, n: int) -> float:
        return 1.0 if self._is_initial else self.gamma

    def _share(self, n: int) -> Any:
        return self.gamma**n


class PolynomialLR(_Factors):
    """A schedule of rates down to 0 in `total_iters` steps, along a power.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = PolynomialLR(optimizer, 4)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """

    optimizer: Optimizer
    total_iters: int = 5
    power: float = 1.0
    last_epoch: int = -1

    def _factor(self, n: int) -> Any:
        total = self.total_iters
        return 1.0 if self._is_initial or n > total else ((1 - n / total) / (1 - (n - 1) / total)) ** self.power

    def _share(self, n: int) -> Any:
        return (1.0 - min(self.total_iters, n) / self.total_iters) ** self.power


class CosineAnnealingLR(_Row):
    """A schedule of rates along half a cosine down to `eta_min` in `T_max` steps, and up again (Loshchilov and Hutter,
    2017).

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = CosineAnnealingLR(optimizer, 2)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.5, 0.0, 0.5]
    """

    optimizer: Optimizer
    T_max: int
    eta_min: float = 0.0
    last_epoch: int = -1

    def get_lr(self) -> list[float]:
        n, low, rates = self.last_epoch, self.eta_min, self._rates()
        if self._is_initial:
            return rates
        if (n - 1 - self.T_max) % (2 * self.T_max) == 0:
            half = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - low) * half for lr, base in zip(rates, self.base_lrs, strict=True)]
        share = (1 + math.cos(math.pi * n / self.T_max)) / (1 + math.cos(math.pi * (n - 1) / self.T_max))
        return [share * (lr - low) + low for lr in rates]

    def _at_once(self) -> list[float]:
        return self._along_cosine(self.last_epoch / self.T_max, self.eta_min)


class SequentialLR(LRScheduler):
    """Schedules one after another: the next one begins at each of `milestones`.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> parts = [ConstantLR(optimizer, 0.5, 9), ExponentialLR(optimizer, 0.5)]
    >>> schedule = SequentialLR(optimizer, parts, milestones=[2])
    >>> [[optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0] for _ in range(4)]
    [0.5, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise SettingError(f"SequentialLR: {len(milestones)} milestones between {len(schedulers)} schedules")
        if any(getattr(s, "optimizer", None) is not optimizer for s in schedulers):
            raise SettingError("SequentialLR: every schedule is one of the same optimiser")
        self.optimizer, self._schedulers, self._milestones = optimizer, schedulers, milestones
        self.last_epoch = last_epoch + 1
        # the schedules set their first rates when they were made
        self._go_on([group["initial_lr"] for group in optimizer.param_groups])
        waiting = [*schedulers]
        for s in waiting:  # and of those that are made of schedules, their parts
            waiting += (parts := getattr(s, "_schedulers", ()))
            if not parts:
                s.last_epoch -= 1
        first = schedulers[bisect.bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        at = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at and self._milestones[at - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(LRScheduler):
    """Schedules that all step at once: their factors multiply.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = ChainedScheduler([ExponentialLR(optimizer, 0.5), ConstantLR(optimizer, 0.5, 9)])
    >>> schedule.step(); optimizer.param_groups[0]["lr"]
    0.25
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        given = list(schedulers)
        if len({id(getattr(s, "optimizer", s)) for s in given}) != 1 or not isinstance(given[0], LRScheduler):
            raise SettingError("ChainedScheduler: takes schedules of one optimiser")
        self.optimizer, self._schedulers = given[0].optimizer, given
        self._last_lr = given[-1].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        for s in self._schedulers:
            s.step()
        self._last_lr = self._rates()


class ReduceLROnPlateau(_Row):
    """A schedule that multiplies rates by `factor` when a metric has not improved for more than `patience` steps:
    `step(metric)`.

    Args:
        mode: whether less ("min") or more ("max") is better. threshold, threshold_mode: by how much, as a share ("rel")
            or a difference ("abs"). cooldown: steps after a change that do not count. min_lr: the least rates.
        eps: smaller changes are left out.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in [3.0, 3.0, 3.0]:
    ...     schedule.step(loss)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    optimizer: Optimizer
    mode: str = "min"
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: str = "rel"
    cooldown: int = 0
    min_lr: Rates = 0.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.factor >= 1.0 or self.mode not in ("min", "max") or self.threshold_mode not in ("rel", "abs"):
            raise SettingError(
                f'ReduceLROnPlateau: a factor below 1, mode "min" or "max", threshold_mode "rel" or "abs", not '
                f"{self.factor}, {self.mode!r}, {self.threshold_mode!r}"
            )
        least = vars(self).pop("min_lr")
        self.default_min_lr = None if isinstance(least, (list, tuple)) else least
        self.min_lrs = each("ReduceLROnPlateau", least, len(self.optimizer.param_groups))
        self.best = math.inf if self.mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = self._rates()

    def is_better(self, a: float, best: float) -> bool:
        """True if a metric is better than the best so far."""
        if self.threshold_mode == "rel" and math.isfinite(best):
            return a > best * (1 + self.threshold) if self.mode == "max" else a < best * (1 - self.threshold)
        return a > best + self.threshold if self.mode == "max" else a < best - self.threshold

    def step(self, metrics: Any = None, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take the measure `metrics` of a step, a number or a tensor of one, and lower the rates where it is due;
        `epoch` sets the step's number. Raises SettingError without a measure.
        """
        if metrics is None:
            raise SettingError("ReduceLROnPlateau: step takes the metric that should improve")
        if not hasattr(metrics, "__float__"):
            raise SettingError(f"ReduceLROnPlateau: the metric is a number, not {said(metrics)}")
        now = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(now, self.best):
            self.best, self.num_bad_epochs = now, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            if (count := len(rates := self._rates())) != len(self.min_lrs):  # a group was added
                least = self.min_lrs if self.default_min_lr is None else self.default_min_lr
                self.min_lrs = each("ReduceLROnPlateau: min_lrs", least, count)
            self._go_on(
                [
                    new if lr - (new := max(lr * self.factor, least)) > self.eps else lr
                    for lr, least in zip(rates, self.min_lrs, strict=True)
                ]
            )
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates()


class WarmupCosine:
    """`warmup_cosine` for every group: call `step()` before each training step.

    Args:
        optimizer: whose rates it sets. lr: the peak. warmup, steps: counts of steps. floor: the last rate, as a share
            of the peak.

    Raises SettingError for counts or a floor that make no sense.

    >>> from anneal import nn
    >>> optimizer = nn.SGD([nn.Parameter([1.0])])
    >>> schedule = WarmupCosine(optimizer, 0.5, warmup=2, steps=10)
    >>> schedule.step(), schedule.step(), optimizer.param_groups[0]["lr"]
    (0.25, 0.5, 0.5)
    """

    def __init__(self, optimizer: Optimizer, lr: float, warmup: int, steps: int, floor: float = 0.0) -> None:
        if warmup < 0 or steps < 1 or not 0 <= floor <= 1:
            raise SettingError(
                f"WarmupCosine: warmup ({warmup}) and steps ({steps}) are counts and floor ({floor}) lies in [0, 1]"
            )
        self.optimizer, self.lr, self.warmup, self.steps, self.floor = optimizer, lr, warmup, steps, floor
        self.count = 0

    def step(self) -> float:
        """Set the next step's rate, and return it."""
        rate = warmup_cosine(self.count, self.lr, self.warmup, self.steps, self.floor)
        self.count += 1
        for g in self.optimizer.param_groups:
            if g["lr"] != rate:
                g["lr"] = rate
        return rate
