"""Pipelines: order, stopping, unknown names, hooks, what is shown, stages."""

from __future__ import annotations

import pytest

from anneal import settings
from anneal.errors import CompilerError, UserError
from anneal.rewrite import Pass, Pipeline
from anneal.rewrite.passes import verify
from anneal.uop import Op, UOp, dtypes

X = UOp(Op.PARAM, dtypes.float32, (), (0, ()))


def over(name: str, op: Op, stage: str | None = None) -> Pass[UOp]:
    return Pass(name, lambda u: op(u), lambda u: [f"-- {u.op.name}", u], "", stage)


STEPS = Pipeline("example", [over("sine", Op.SIN), over("cosine", Op.COS)])


def test_passes_run_in_their_order_and_stop_where_they_are_told() -> None:
    assert STEPS.names == ("sine", "cosine") == tuple(p.name for p in STEPS)
    assert STEPS.run(X) is Op.COS(Op.SIN(X))
    assert STEPS.run(X, until="sine") is Op.SIN(X)


def test_an_unknown_name_is_an_error_that_lists_the_names_before_anything_runs() -> None:
    ran: list[str] = []
    with pytest.raises(UserError, match=r"no pass 'sines' in the pipeline example; passes: sine, cosine"):
        STEPS.run(X, until="sines", hook=lambda p, u: ran.append(p.name))
    assert not ran


def test_two_passes_of_one_name_are_refused() -> None:
    with pytest.raises(CompilerError, match="two passes of one name"):
        Pipeline("example", [over("sine", Op.SIN), over("sine", Op.COS)])


def test_the_hook_hears_each_pass_and_what_it_made() -> None:
    heard: list[tuple[str, UOp]] = []
    STEPS.run(X, hook=lambda p, u: heard.append((p.name, u)))
    assert heard == [("sine", Op.SIN(X)), ("cosine", Op.COS(Op.SIN(X)))]


def test_debug_5_prints_each_view(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(debug=4):
        STEPS.run(X)
    assert capsys.readouterr().err == ""
    with settings.override(debug=5):
        STEPS.run(X, until="sine")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["anneal: after sine", "  -- SIN"]
    assert "  n1 = UOp(Op.SIN, dtypes.float32, (n0,))" in lines


def test_the_graphs_of_a_view_are_held_to_the_stage() -> None:
    fine, wrong = over("load", Op.SIN, "kernel"), over("load", Op.NOT, "kernel")
    verify(fine, Op.SIN(X))
    bad = UOp(Op.NOT, dtypes.float32, (X,))
    with pytest.raises(CompilerError, match="NOT"):
        verify(wrong, bad)
    with settings.override(debug=5), pytest.raises(CompilerError, match="NOT"):
        Pipeline("example", [Pass("not", lambda u: bad, lambda u: [u], "", "kernel")]).run(X)
