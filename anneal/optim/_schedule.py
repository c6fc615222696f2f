"""The base of all schedules."""

from __future__ import annotations

from typing import Any

from anneal.errors import MissingMethodError, SettingError
from anneal.ops import explain_class
from anneal.optim._base import Optimizer

_OWN = ("optimizer", "_last", "_lambdas", "_scale")  # attributes that are no part of the state


class LRScheduler:
    """The base of schedules: subclasses compute in `get_lr` the rates of step `last_epoch` from the present ones.

    Args:
        optimizer: whose groups' `"lr"` is set. last_epoch: the step to go on from, -1 to begin.

    Raises SettingError to go on with groups that have no "initial_lr".

    >>> from anneal import nn, optim
    >>> class Halved(LRScheduler):
    ...     def get_lr(self):
    ...         return [lr * 0.5**self.last_epoch for lr in self.base_lrs]
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = Halved(optimizer)
    >>> schedule.step(); schedule.get_last_lr()
    [0.5]
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        explain_class(cls)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        name = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise SettingError(f"{name}: the first argument is an optimiser, not {type(optimizer).__name__}")
        for n, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise SettingError(f"{name}: group {n} has no 'initial_lr' to go on from step {last_epoch}")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self._last: list[float] = []
        self.step()

    def _rates(self) -> list[float]:
        """The rates in force."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The rates of step `last_epoch`, from the present ones."""
        raise MissingMethodError(
            f"{type(self).__name__} defines no get_lr(): define it in the class, to return a rate for each group"
        )

    def _at_once(self) -> list[float]:
        """The rates of step `last_epoch`, whatever is in force."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the next step's rates, or those of step `epoch`: call after the optimiser's step."""
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            rates = self._at_once()
        self._go_on(rates)
        self._last = self._rates()

    def get_last_lr(self) -> list[float]:
        """The present rates, per group."""
        return list(self._last)

    def state_dict(self) -> dict[str, Any]:
        """The state that `load_state_dict` goes on from: a dict of numbers and lists, no functions."""
        return {name: value for name, value in vars(self).items() if name not in _OWN and not callable(value)} | {
            "_last_lr": list(self._last)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`'s result, made here or in torch; the rates are set to those of then."""
        mine = vars(self)
        for name, value in state_dict.items():
            if name in mine and name not in _OWN:
                mine[name] = value
        if "_last_lr" in state_dict:
            self._go_on(state_dict["_last_lr"])

    def _go_on(self, last: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, last, strict=True):
            if group["lr"] != rate:
                group["lr"] = float(rate)
        self._last = list(last)
