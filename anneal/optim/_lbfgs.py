"""L-BFGS: a few gradients of the past stand for the curvature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.errors import SettingError
from anneal.optim._base import Optimizer, Parameters, settings_among
from anneal.tensor import Tensor

Vector = np.ndarray[Any, np.dtype[np.float64]]


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal, 1989) as torch computes it: a step calls `closure` several times.

    Directions are computed on the host, in float64; a step is no part of a jit function.

    Args:
        params: of one group. lr: the length of a step. max_iter: directions a step; max_eval: calls a step, by default
            1.25 times as many. tolerance_grad, tolerance_change: where a step ends. history_size: how many gradients
            are kept. line_search_fn: None, or "strong_wolfe".

    Raises SettingError for several groups, an unknown line search or a step without a closure.

    >>> w = Tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - 1.0) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> start = optimizer.step(closure).item()
    >>> w.numpy().round(3).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise SettingError(f'LBFGS: line_search_fn is None or "strong_wolfe", not {line_search_fn!r}')
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, settings_among(locals()))
        if len(self.param_groups) != 1:
            raise SettingError("LBFGS: takes one group of parameters")
        self._past: list[tuple[Vector, Vector, float]] = []  # changes of gradient and place, and 1 over their product
        self._last: tuple[Vector, Vector, float] | None = None  # direction, gradient and length of the last one
        self._scale, self._directions = 1.0, 0

    def step(self, closure: Callable[[], Tensor] | None = None, **options: Any) -> Tensor:  # type: ignore[override]
        """Take up to `max_iter` directions; `closure` forgets gradients, computes the loss and calls backward().

        Returns the loss before.
        """
        if closure is None or isinstance(closure, Tensor) or options:
            raise SettingError("LBFGS: step takes a closure, which computes the loss and its gradients, and no other")
        group = self.param_groups[0]
        first = closure()
        loss, g = float(first.item()), self._slope()
        calls = 1
        if np.abs(g).max(initial=0.0) <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            before = loss
            d, length = self._direction(g, group["lr"])
            slope = float(g @ d)
            if slope > -group["tolerance_change"]:
                break
            self._last = (d, g, length)
            if group["line_search_fn"] is not None:
                place = self._place()

                def along(t: float, place: Vector = place, d: Vector = d) -> tuple[float, Vector]:
                    return self._at(closure, place, t, d)

                loss, g, length, used = strong_wolfe(along, length, d, loss, g, slope)
                self._move(place + length * d)
                self._last = (d, self._last[1], length)
            else:
                self._move(self._place() + length * d)
                used = 1
                if n != group["max_iter"]:
                    loss, g = float(closure().item()), self._slope()
            calls += used
            small = np.abs(d * length).max(initial=0.0) <= group["tolerance_change"]
            flat = np.abs(g).max(initial=0.0) <= group["tolerance_grad"]
            if calls >= group["max_eval"] or flat or small or abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _direction(self, g: Vector, lr: float) -> tuple[Vector, float]:
        """The direction of the next step, and its first length."""
        self._directions += 1
        if self._last is None:
            return -g, min(1.0, 1.0 / float(np.abs(g).sum())) * lr
        d, before, length = self._last
        y, s = g - before, d * length
        product = float(y @ s)
        if product > 1e-10:
            if len(self._past) == self.param_groups[0]["history_size"]:
                self._past.pop(0)
            self._past.append((y, s, 1.0 / product))
            self._scale = product / float(y @ y)
        q, weights = -g, []
        for y, s, r in reversed(self._past):
            weights.append(float(s @ q) * r)
            q = q - weights[-1] * y
        q = q * self._scale
        for (y, s, r), weight in zip(self._past, reversed(weights), strict=True):
            q = q + s * (weight - float(y @ q) * r)
        return q, lr

    def _at(self, closure: Callable[[], Tensor], place: Vector, t: float, d: Vector) -> tuple[float, Vector]:
        """The loss and its slopes at a distance along a direction."""
        self._move(place + t * d)
        loss = float(closure().item())
        slope = self._slope()
        self._move(place)
        return loss, slope

    def _place(self) -> Vector:
        return np.concatenate([t.detach().numpy().reshape(-1).astype(np.float64) for t in self.params])

    def _slope(self) -> Vector:
        slopes = [np.zeros(t.numel()) if t.grad is None else t.grad.detach().numpy().reshape(-1) for t in self.params]
        return np.concatenate([s.astype(np.float64) for s in slopes])

    def _move(self, place: Vector) -> None:
        at = 0
        for t in self.params:
            part = place[at : at + t.numel()].reshape(t.shape)
            t.assign(Tensor(part, dtype=t.dtype, device=t.device))
            at += t.numel()


# -- a line search for strong Wolfe conditions, with cubic interpolation (Nocedal and Wright, 2006, section 3.5)

Point = tuple[float, float, Vector, float]  # distance, loss, gradient, slope along the direction


def _cubic(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float]) -> float:
    """The least place within `bounds` of the cubic through two points with slopes."""
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    low, high = bounds
    if square < 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    if x1 <= x2:
        place = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        place = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(place, low), high)


def strong_wolfe(
    at: Callable[[float], tuple[float, Vector]],
    t: float,
    d: Vector,
    f: float,
    g: Vector,
    slope: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    least: float = 1e-9,
    most: int = 25,
) -> tuple[float, Vector, float, int]:
    """A distance whose loss is lower by `c1` and whose slope is flatter by `c2`: loss, gradient, distance and calls.

    `at(t)` gives the loss and its gradient at a distance along `d`; `f`, `g` and `slope` are those at 0.
    """
    largest = float(np.abs(d).max())
    loss, grad = at(t)
    calls, n = 1, 0
    now: Point = (t, loss, grad, float(grad @ d))
    before: Point = (0.0, f, g, slope)
    bracket: list[Point] = []
    while n < most:
        if now[1] > f + c1 * now[0] * slope or (n > 1 and now[1] >= before[1]) or now[3] >= 0:
            if not (now[1] > f + c1 * now[0] * slope or (n > 1 and now[1] >= before[1])) and abs(now[3]) <= -c2 * slope:
                return now[1], now[2], now[0], calls
            bracket = [before, now]
            break
        if abs(now[3]) <= -c2 * slope:
            return now[1], now[2], now[0], calls
        low, high = now[0] + 0.01 * (now[0] - before[0]), now[0] * 10
        place = _cubic(before[0], before[1], before[3], now[0], now[1], now[3], (low, high))
        before = now
        loss, grad = at(place)
        calls, n = calls + 1, n + 1
        now = (place, loss, grad, float(grad @ d))
    if not bracket:
        bracket = [(0.0, f, g, slope), now]
    return _zoomed(at, d, bracket, (f, slope, c1, c2), least / largest if largest else least, most - n, calls)


def _zoomed(
    at: Callable[[float], tuple[float, Vector]],
    d: Vector,
    bracket: list[Point],
    start: tuple[float, float, float, float],
    least: float,
    rounds: int,
    calls: int,
) -> tuple[float, Vector, float, int]:
    """The best point of an interval that is made smaller until the conditions hold."""
    f, slope, c1, c2 = start
    slow = False
    low, high = sorted(bracket, key=lambda p: p[1])
    for _ in range(max(0, rounds)):
        if abs(low[0] - high[0]) < least:
            break
        ends = (min(low[0], high[0]), max(low[0], high[0]))
        a, b = sorted((low, high), key=lambda p: p[0])
        t = _cubic(a[0], a[1], a[3], b[0], b[1], b[3], ends)
        margin = 0.1 * (ends[1] - ends[0])
        if min(ends[1] - t, t - ends[0]) < margin:
            if slow or t >= ends[1] or t <= ends[0]:
                t = ends[1] - margin if abs(t - ends[1]) < abs(t - ends[0]) else ends[0] + margin
                slow = False
            else:
                slow = True
        else:
            slow = False
        loss, grad = at(t)
        calls += 1
        now: Point = (t, loss, grad, float(grad @ d))
        if loss > f + c1 * t * slope or loss >= low[1]:
            low, high = sorted((low, now), key=lambda p: p[1])
            continue
        if abs(now[3]) <= -c2 * slope:
            low = now
            break
        if now[3] * (high[0] - low[0]) >= 0:
            high = low
        low = now
    return low[1], low[2], low[0], calls
