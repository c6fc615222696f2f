"""The scheduler's list of passes: every pass is shown, its graphs obey its stage, and a wrong name is refused."""

from __future__ import annotations

import pytest

from anneal import settings
from anneal.errors import UserError
from anneal.rewrite.passes import verify
from anneal.schedule import PASSES, CostModel, Schedule, graph, run_passes
from anneal.schedule.plan import parametrise
from anneal.tensor import Tensor
from anneal.uop import UOp


def program() -> UOp:
    w = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    loss = (w.softmax(1) @ w).tanh().sum()
    loss.backward()
    assert w.grad is not None
    return parametrise(graph([loss.uop, w.grad.uop]))[0]


def test_debug_5_shows_every_pass_with_what_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(debug=5):
        run_passes(program(), CostModel())
    said = capsys.readouterr().err
    parts = said.split("anneal: after ")[1:]
    assert [p.splitlines()[0] for p in parts] == list(PASSES.names)
    assert all(len(p.splitlines()) > 1 for p in parts)


def test_what_every_pass_makes_obeys_its_stage() -> None:
    assert {p.stage for p in PASSES} == {"tensor", "kernel", None}
    PASSES.run(Schedule(program(), CostModel()), hook=verify)


def test_until_stops_after_each_pass_and_refuses_other_names() -> None:
    sink = program()
    for name in PASSES.names:
        s = run_passes(sink, CostModel(), until=name)
        assert (s.plan is not None) == (name == "memory-plan")
        before = ("early-rewrites", "split-contractions", "narrow-products", "split-reduces")
        assert bool(s.materialised) == (name not in before)
    with pytest.raises(UserError, match="early-rewrites, split-contractions, narrow-products, split-reduces, mat"):
        run_passes(sink, CostModel(), until="materialization")
