"""The loss curve: its range at the edge, high values on top, any number of values."""

from __future__ import annotations

import pytest

from anneal.cli._chart import curve


@pytest.mark.parametrize("braille", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7, 50, 5000])
def test_has_the_size_that_was_asked_for(count: int, braille: bool) -> None:
    lines = curve([5.0 / (1 + i) for i in range(count)], 40, 6, braille=braille)
    assert len(lines) == 6
    assert max(len(line) for line in lines) <= 40


def test_the_edge_shows_highest_and_lowest() -> None:
    lines = curve([4.0, 1.5], 30, 5)
    assert lines[0].startswith(" 4.00 |")
    assert lines[-1].startswith(" 1.50 |")


def test_a_flat_curve_is_drawn() -> None:
    assert any("*" in line for line in curve([2.0] * 10, 30, 5, braille=False))
