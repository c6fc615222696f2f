"""The loss curve and its axes."""

from __future__ import annotations

import math

import pytest

from anneal.cli._dashboard import chart, share, ticks


def drawn(values: list[float], width: int, height: int, **kwargs: object) -> list[str]:
    return [axis + curve for axis, curve in chart(values, width, height, **kwargs)]  # type: ignore[arg-type]


@pytest.mark.parametrize("braille", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, 5000])
@pytest.mark.parametrize("width", [20, 56, 76, 116])
def test_it_has_the_size_that_was_asked_for(count: int, width: int, braille: bool) -> None:
    values = [5 * math.exp(-n / 300) + 1e-3 * (n % 7) for n in range(count)]
    lines = drawn(values, width, 12, braille=braille)
    assert len(lines) == 12
    assert max(map(len, lines)) <= width


def test_the_axes_say_where_a_value_is() -> None:
    lines = drawn([float(n) for n in range(101)], 60, 14, first=0)
    rows = {float(line.split("\u2524")[0]): n for n, line in enumerate(lines) if "\u2524" in line}
    assert len(rows) >= 3
    assert list(rows) == sorted(rows, reverse=True)
    for value, row in rows.items():
        assert row == pytest.approx((100 - value) / 100 * 11, abs=1)
    corner = lines[-2].index("\u2514")
    marks = [n for n, c in enumerate(lines[-2]) if c == "\u252c"]
    for mark, label in zip(marks, lines[-1].split(), strict=True):
        assert mark - corner - 1 == pytest.approx(float(label) / 100 * (60 - corner - 2), abs=1)


def test_a_curve_that_falls_falls() -> None:
    columns = [curve for _, curve in chart([9.0 - n for n in range(9)], 15, 11, braille=False)[:-2]]
    places = [line.index("*") for line in columns]
    assert places == sorted(places)
    assert places[0] == 0


def test_one_value_and_equal_values() -> None:
    assert sum("*" in line for line in drawn([2.0], 30, 8, braille=False)) == 1
    assert sum("*" in line for line in drawn([2.0] * 9, 30, 8, braille=False)) == 1


def test_each_column_is_a_mean() -> None:
    assert share(50, 60) == 1
    lines = drawn([0.0, 4.0] * 500, 20, 9, braille=False)
    assert sum("*" in line for line in lines[:-2]) == 1, "the mean of zeros and fours is two"


@pytest.mark.parametrize(("low", "high"), [(0.1, 4.2), (1, 500), (1.8, 1.9), (-3, 1e-3), (1e-9, 3e-9), (0, 1e12)])
@pytest.mark.parametrize("most", [1, 3, 5, 10])
def test_ticks_are_round_and_inside(low: float, high: float, most: int) -> None:
    found = ticks(low, high, most)
    assert len(found) <= 2 * most + 1
    for mark in found:
        assert low - 1e-9 * abs(low) <= mark <= high + 1e-9 * abs(high)
    if most >= 3:
        assert len(found) >= 2
        digits = f"{found[1] - found[0]:.1e}"
        assert digits[0] in "125"
        assert digits[2] == "0"
