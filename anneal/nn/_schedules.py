"""Learning rates over time."""

from __future__ import annotations

import math
from collections.abc import Callable

from anneal.errors import SettingError
from anneal.nn._optim import Optimizer

__all__ = ["LambdaLR", "WarmupCosine", "warmup_cosine"]


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


class LambdaLR:
    """Sets every group's learning rate to its initial one times `factor(step)`, at once for step 0.

    Args:
        optimizer: whose groups' `"lr"` is set. factor: from the number of `step()` calls so far.

    >>> from anneal import nn
    >>> from anneal.tensor import Tensor
    >>> optimizer = nn.SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = LambdaLR(optimizer, lambda step: 0.1**step)
    >>> schedule.step(); optimizer.param_groups[0]["lr"]
    0.05
    """

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
        self.optimizer, self.factor = optimizer, factor
        self.initial = [g["lr"] for g in optimizer.param_groups]
        self.count = 0
        self._set()

    def step(self) -> None:
        """Go on to the next step's rate: call after the optimiser's step."""
        self.count += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The rate in force, per group."""
        return [g["lr"] for g in self.optimizer.param_groups]

    def _set(self) -> None:
        for g, lr in zip(self.optimizer.param_groups, self.initial, strict=True):
            rate = lr * self.factor(self.count)
            if rate != g["lr"]:
                g["lr"] = rate


class WarmupCosine:
    """`warmup_cosine` for every group: call `step()` before each training step.

    Args:
        lr: the peak. warmup, steps: counts of steps. floor: the last rate, as a share of the peak.

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
