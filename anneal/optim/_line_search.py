"""A line search for strong Wolfe conditions, with cubic interpolation (Nocedal and Wright, 2006, section 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["strong_wolfe"]

Vector = np.ndarray[Any, np.dtype[np.float64]]
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
