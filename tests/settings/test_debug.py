"""The debug ladder: each step says more on stderr, and none says anything on stdout."""

from __future__ import annotations

import pytest

from anneal import settings
from anneal.schedule import clear_cache
from anneal.tensor import Tensor

SAYS = {2: "anneal: realize on cpu: ", 3: "(forward)", 5: "anneal: after range-propagation", 6: "   by "}


@pytest.mark.parametrize("level", range(7))
def test_each_step_adds_to_the_ones_below(capsys: pytest.CaptureFixture[str], level: int) -> None:
    clear_cache()
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    with settings.override(debug=level):
        (x.T.T * 2.0).reshape(4).reshape(2, 2).sum(0).realize()
    captured = capsys.readouterr()
    assert captured.out == ""
    for step, text in SAYS.items():
        assert (text in captured.err) == (level >= step), (level, text)


def test_timing_shows_the_kernels_of_a_plan_once(capsys: pytest.CaptureFixture[str]) -> None:
    clear_cache()
    with settings.override(debug=2):
        for _ in range(2):
            (Tensor([[1.0, 2.0]]).exp().sum(1) * 3.0).realize()
    said = capsys.readouterr().err
    assert said.count("anneal: realize on cpu") == 2
    assert said.count("GFLOP/s  GB/s  kernel") == 1
    assert said.count("1 kernels, 1 distinct: ") == 1
