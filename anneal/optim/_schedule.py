"""The base of all schedules, and the schedules that go up and down: warm restarts, cycles, one cycle."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from anneal.errors import DataError, MissingMethodError, SettingError
from anneal.ops import Explained, said
from anneal.optim._base import Optimizer

_HELD = ("lr_lambdas", "_scale_fn_custom", "_schedulers")  # objects with a state of their own


def _saved(held: Any) -> Any:
    """The state of an object that a schedule holds: its attributes, or None for a function."""
    if isinstance(held, list):
        return [*map(_saved, held)]
    if isinstance(held, LRScheduler):
        return held.state_dict()
    return None if hasattr(held, "__code__") else {**getattr(held, "__dict__", {})} or None


def _load(held: Any, state: Any) -> None:
    if isinstance(held, list):
        for mine, own in zip(held, state, strict=True):
            _load(mine, own)
    elif isinstance(held, LRScheduler):
        held.load_state_dict(state)
    elif state:
        vars(held).update(state)


class LRScheduler(Explained):
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

    _get_lr_called_within_step = True  # the `get_lr` of users' schedules reads it

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        name = type(self).__name__
        for n, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise SettingError(f"{name}: group {n} has no 'initial_lr' to go on from step {last_epoch}")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self._initial_step()

    def _initial_step(self) -> None:
        """Make the step that sets the first rates; `_is_initial` is True meanwhile."""
        self._is_initial, self._step_count = True, 0
        self.step()
        self._is_initial = False

    def _rates(self) -> list[float]:
        """The present rates."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The rates of step `last_epoch`, from the present ones."""
        raise MissingMethodError(
            f"{type(self).__name__} defines no get_lr(): define it in the class, to return a rate for each group"
        )

    def _at_once(self) -> list[float]:
        """The rates of step `last_epoch`, whatever the present rates are."""
        return self.get_lr()

    def _along_cosine(self, way: float, low: float) -> list[float]:
        return [low + (base - low) * (1 + math.cos(math.pi * way)) / 2 for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        """Set the next step's rates, or those of step `epoch`: call after the optimiser's step."""
        self._step_count += 1  # for the `get_lr` of users' schedules
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._go_on(self.get_lr() if epoch is None else self._at_once())

    def get_last_lr(self) -> list[float]:
        """The present rates, per group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """The state that `load_state_dict` goes on from: a dict of numbers and lists, no functions."""
        return {
            name: _saved(value) if name in _HELD else value
            for name, value in vars(self).items()
            if name in _HELD or name != "optimizer" and not callable(value)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`'s result, made here or in torch. The optimiser keeps its rates until the next step:
        load its state, too."""
        if not hasattr(state_dict, "keys"):
            raise DataError(f"load_state_dict: takes what state_dict() gave, not {said(state_dict)}")
        mine = vars(self)
        for name in state_dict.keys() & mine.keys():
            old, new = mine[name], state_dict[name]
            if name in _HELD:
                _load(old, new)
            else:
                mine[name] = type(old)(new) if isinstance(old, dict) else new  # milestones are counted

    def _go_on(self, last: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, last, strict=True):
            if group["lr"] != rate:
                group["lr"] = float(rate)
        self._last_lr = self._rates()


Rates = float | Sequence[float]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Rates along half a cosine down to `eta_min`, again and again (Loshchilov and Hutter, 2017).

    The first descent takes `T_0` steps, each other `T_mult` times as many as the one before. `step(epoch)` takes
    fractions of a step, too.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = CosineAnnealingWarmRestarts(optimizer, 2)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 < 1 or T_mult < 1 or int(T_0) != T_0 or T_mult != int(T_mult):
            raise SettingError(f"CosineAnnealingWarmRestarts: T_0 and T_mult are counts, not {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i: float = T_0
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._along_cosine(self.T_cur / self.T_i, self.eta_min)

    def step(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch >= 0:
            self.T_cur += 1
            epoch = self.last_epoch + 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise SettingError(f"CosineAnnealingWarmRestarts: epoch must not be negative, not {epoch}")
            self.T_i, self.T_cur = self.T_0, epoch
            while self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        super().step(math.floor(epoch))


def each(name: str, given: Rates, count: int) -> list[float]:
    several = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(several) != count:
        raise SettingError(f"{name}: {len(several)} numbers for {count} groups")
    if not all(hasattr(n, "__float__") for n in several):
        raise SettingError(f"{name}: a number, or one for each group, not {said(given)}")
    return [float(n) for n in several]  # type: ignore[arg-type]


class _WithMomentum(LRScheduler):
    """A schedule of rates and, against them, of momenta: "momentum", or the first of "betas"."""

    cycle_momentum: bool

    def _take_momenta(self, high: Rates, low: Rates, last_epoch: int) -> None:
        groups = self.optimizer.param_groups
        self.max_momentums, self.base_momentums = [
            each(type(self).__name__, given, len(groups)) for given in (high, low)
        ]
        if not self.cycle_momentum:
            return
        for group, most, least in zip(groups, self.max_momentums, self.base_momentums, strict=True):
            if "betas" not in group and "momentum" not in group:
                raise SettingError(
                    f"{type(self).__name__}: this optimiser has neither momentum nor betas; cycle_momentum=False"
                )
            if last_epoch == -1:
                dict.update(group, max_momentum=most, base_momentum=least)

    def _set_momenta(self, momenta: list[float]) -> None:
        for group, m in zip(self.optimizer.param_groups, momenta, strict=True):
            if "betas" in group:
                group["betas"] = (m, *group["betas"][1:])
            else:
                group["momentum"] = m


class OneCycleLR(_WithMomentum):
    """Rates up to `max_lr` and down to almost nothing, once (Smith and Topin, 2018).

    Args:
        total_steps: of the cycle; or `epochs` and `steps_per_epoch`. pct_start: the share in which rates rise.
        anneal_strategy: "cos" or "linear". div_factor: `max_lr` over the first rate; final_div_factor: that over the
            last. cycle_momentum, base_momentum, max_momentum: momenta go the other way. three_phase: the way down
            stops at the first rate.

    Raises SettingError for wrong counts, and for a step after the last.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0, momentum=0.9)
    >>> schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.4)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [0.04, 1.0, 0.75, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Rates,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Rates = 0.85,
        max_momentum: Rates = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise SettingError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise SettingError(
                f'OneCycleLR: a number of steps, a share and "cos" or "linear", not {total_steps}, {pct_start}, '
                f"{anneal_strategy!r}"
            )
        self.optimizer, self.total_steps, self.cycle_momentum = optimizer, total_steps, cycle_momentum
        self._anneal_func_type, count = anneal_strategy, len(optimizer.param_groups)
        # momenta are low where rates are highest
        first, top, last = [
            ("initial_lr", "max_momentum"), ("max_lr", "base_momentum"), ("min_lr", "max_momentum"),
        ]  # fmt: skip
        rise, end = float(pct_start * total_steps) - 1, total_steps - 1
        phases = [(rise, first, top), (end, top, last)]
        if three_phase:
            phases[1:] = [(2 * pct_start * total_steps - 2, top, first), (end, first, last)]
        self._schedule_phases: list[dict[str, Any]] = [
            {"end_step": end, "start_lr": a, "end_lr": b, "start_momentum": start, "end_momentum": stop}
            for end, (a, start), (b, stop) in phases
        ]
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, each("OneCycleLR", max_lr, count), strict=True):
                low = most / div_factor
                dict.update(group, initial_lr=low, max_lr=most, min_lr=low / final_div_factor)
        self._take_momenta(max_momentum, base_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[float]:
        n = self.last_epoch
        if n > self.total_steps:
            raise SettingError(f"OneCycleLR: step {n} of a cycle of {self.total_steps}")
        ends = [phase["end_step"] for phase in self._schedule_phases]
        at = bisect_left(ends, n, hi=len(ends) - 1)
        begin, phase = ends[at - 1] if at else 0.0, self._schedule_phases[at]
        share = (n - begin) / (ends[at] - begin)

        def now(what: str) -> list[float]:
            a, b = phase[f"start_{what}"], phase[f"end_{what}"]
            return [self._between(group[a], group[b], share) for group in self.optimizer.param_groups]

        if self.cycle_momentum:
            self._set_momenta(now("momentum"))
        return now("lr")


class CyclicLR(_WithMomentum):
    """Rates between `base_lr` and `max_lr`, up in `step_size_up` steps and down in `step_size_down` (Smith, 2017).

    Args:
        mode: "triangular"; "triangular2" halves the height with each cycle; "exp_range" takes `gamma` to the power of
            the step. scale_fn: a height of one's own, of the cycle's or the step's number (scale_mode "cycle" or
            "iterations"). cycle_momentum, base_momentum, max_momentum: momenta go the other way.

    >>> from anneal import nn, optim
    >>> optimizer = optim.SGD([nn.Parameter([1.0])], lr=1.0)
    >>> schedule = CyclicLR(optimizer, 0.0, 1.0, step_size_up=2, cycle_momentum=False)
    >>> [round([optimizer.param_groups[0]["lr"], optimizer.step(), schedule.step()][0], 3) for _ in range(4)]
    [0.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Rates,
        max_lr: Rates,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Rates = 0.8,
        max_momentum: Rates = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise SettingError(f'CyclicLR: mode is "triangular", "triangular2" or "exp_range", not {mode!r}')
        self.optimizer, self.cycle_momentum, count = optimizer, cycle_momentum, len(optimizer.param_groups)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        low, self.max_lrs = [each("CyclicLR", given, count) for given in (base_lr, max_lr)]
        if last_epoch == -1:
            self._go_on(low)
        self._take_momenta(max_momentum, base_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = low

    def _height(self, x: float) -> float:
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        heights: dict[str, float] = {"triangular": 1.0, "triangular2": 2.0 ** (1 - x), "exp_range": self.gamma**x}
        return heights[self.mode]

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        way = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = way * self._height(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            self._set_momenta(
                [a - (a - b) * height for a, b in zip(self.max_momentums, self.base_momentums, strict=True)]
            )
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]
