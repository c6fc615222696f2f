"""Traces: every table tells of its rules while somebody listens, with places, and is as it was afterwards."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import pytest

from anneal import settings
from anneal.rewrite import Pass, Pipeline, simplify, symbolic as index_algebra, tracing
from anneal.rewrite.generate import PACKAGE, targets
from anneal.rewrite.upat import parse
from anneal.schedule import CostModel, clear_cache, graph, run_passes
from anneal.schedule.plan import parametrise
from anneal.tensor import Tensor, jvp
from anneal.uop import Op, UOp, alu, const, dtypes

I32 = dtypes.int32


def tables() -> dict[str, dict[Op, Any]]:
    found = {}
    for source, target in targets():
        module = importlib.import_module(".".join(target.relative_to(PACKAGE.parent).with_suffix("").parts))
        for table in parse(source.read_text(), "").tables:
            found[table.name] = getattr(module, table.name.upper())
    return found


def test_the_symbolic_trace_has_the_rule_as_the_file_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_algebra, "_MEMO", {})
    i = UOp(Op.RANGE, I32, (const(I32, 48),), (0, "loop"))
    raw = UOp(Op.IDIV, I32, (UOp(Op.ADD, I32, (i * 6, const(I32, 2))), const(I32, 3)))
    with tracing() as events:
        assert simplify(raw) is i * 2
    (event,) = [e for e in events if e.table == "symbolic"]
    assert (event.before, event.after, event.rule) == (raw, i * 2, "x:int // c -> divided(x, c)")


def test_a_fold_is_told_with_the_node_that_never_was_and_the_users_line() -> None:
    x = UOp(Op.SPECIAL, I32, (), ("x of this test alone", 8))
    with tracing() as events:
        assert alu(Op.MUL, (x, const(I32, 1))) is x
    (event,) = events
    assert (event.table, event.before.op, event.before.src, event.after) == ("fold", Op.MUL, (x, const(I32, 1)), x)
    assert event.user.startswith(f"{Path(__file__)}:")


def everything() -> None:
    clear_cache()
    index_algebra._MEMO.clear()
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    loss = (x.exp() * 3.0).sum()
    loss.backward()
    assert x.grad is not None
    y = jvp(lambda t: t.sum(), (Tensor([1.0, 2.0]),), (Tensor([1.0, 1.0]),))[1]
    run_passes(parametrise(graph([loss.uop, x.grad.uop, y.uop]))[0], CostModel())


def test_every_table_tells_and_every_place_is_the_line_of_the_rule() -> None:
    from anneal.codegen import generate

    with tracing() as events:
        everything()
        x = UOp(Op.LOAD, dtypes.float32, (UOp(Op.PARAM, dtypes.float32, (), (1, (4,))), const(I32, 0)))
        store = (UOp(Op.PARAM, dtypes.float32, (), (0, (1,))), const(I32, 0), x.ne(x).cast(dtypes.float32))
        generate(UOp(Op.SINK, dtypes.float32, (UOp(Op.STORE, dtypes.float32, store),)))
    assert {e.table for e in events} >= set(tables()) - {"symbolic"}
    for e in events:
        file, line = e.place.split(":")
        assert (PACKAGE.parent / file).read_text().splitlines()[int(line) - 1].split()[0] == e.rule.split()[0]
    assert {e.pass_name for e in events if e.table == "early"} == {"early-rewrites"}
    assert {e.pass_name for e in events if e.table == "gradient"} == {""}


def test_afterwards_the_tables_hold_their_own_functions() -> None:
    before = {name: dict(table) for name, table in tables().items()}
    with tracing(), tracing():
        assert tables() != before
    assert tables() == before
    with pytest.raises(ZeroDivisionError), tracing():
        _ = 1 // 0
    assert tables() == before


def test_a_trace_is_of_its_own_thread() -> None:
    x = UOp(Op.SPECIAL, I32, (), ("x", 8))
    with tracing() as events:
        other = threading.Thread(target=lambda: x * 1)
        other.start()
        other.join()
    assert not events


def test_rules_that_a_listener_needs_are_not_told() -> None:
    n = Tensor([1.0, 2.0])
    with settings.override(debug=6), tracing() as events:
        assert (n.uop * 1).dtype is dtypes.float32
    assert len(events) <= 1


def test_an_event_knows_the_pass(capsys: pytest.CaptureFixture[str]) -> None:
    x = UOp(Op.SPECIAL, I32, (), ("x", 8))
    steps = Pipeline("example", [Pass("times one", lambda u: u * 1, lambda u: [u], "")])
    with settings.override(debug=6), tracing() as events:
        steps.run(x)
    assert [e.pass_name for e in events] == ["times one"]
    said = capsys.readouterr().err
    assert (
        "anneal: times one: <MUL int32 (SPECIAL, CONST)> -> <SPECIAL int32 ('x', 8) ()>   by x * 1 -> x   at " in said
    )


def test_debug_6_tells_of_all_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(debug=5):
        everything()
    assert "   by " not in capsys.readouterr().err
    with settings.override(debug=6):
        everything()
    said = capsys.readouterr().err
    for file in ("uop/fold", "schedule/passes/early", "transforms/gradient", "transforms/forward"):
        assert f"   at anneal/{file}.upat:" in said, file
