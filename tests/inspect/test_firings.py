"""The rules that fire for a model: how often, in which passes, for which lines and modules."""

from __future__ import annotations

from collections import Counter

import pytest

from anneal.backend import planned_cost_model
from anneal.inspect import Firing, firings
from anneal.rewrite import tracing
from anneal.rewrite.passes import rules
from anneal.tensor import Tensor
from tests.inspect import models
from tests.inspect.models import ATTENTION, FC, LOSS

POLICY = planned_cost_model("webgpu")


@pytest.fixture(scope="module")
def found() -> tuple[Firing, ...]:
    return firings(models.outputs, POLICY)


def test_every_rule_is_one_of_the_files(found: tuple[Firing, ...]) -> None:
    known = {(r.text, r.table, f"{r.file}:{r.line}") for r in rules()}
    assert {(f.rule, f.table, f.place) for f in found} <= known
    assert len({(f.rule, f.table) for f in found}) == len(found), "a rule is listed once"
    assert {"fold", "symbolic", "gradient", "early"} <= {f.table for f in found}


def test_counts(found: tuple[Firing, ...]) -> None:
    assert [f.count for f in found] == sorted([f.count for f in found], reverse=True)
    for f in found:
        assert f.count == sum(n for _, n in f.passes)
        assert all(0 < n <= f.count for _, n in (*f.lines, *f.modules))
        assert [n for _, n in f.lines] == sorted([n for _, n in f.lines], reverse=True)


def test_rules_of_gradients_fire_as_often_as_a_trace_tells(found: tuple[Firing, ...]) -> None:
    with tracing() as events:
        models.outputs()
    assert {f.rule: f.count for f in found if f.table == "gradient"} == dict(
        Counter(e.rule for e in events if e.table == "gradient")
    )


def test_lines_and_modules_are_the_models(found: tuple[Firing, ...]) -> None:
    for f in found:
        assert {line.file for line, _ in f.lines} <= {models.__file__}
        assert {path for path, _ in f.modules} <= {"fc", "head"}
    [exp] = [f for f in found if f.table == "gradient" and f.rule == "exp(x) -> g * y"]
    assert {line.line for line, _ in exp.lines} == {ATTENTION, LOSS}, "softmax, here and in the loss"
    [slope] = [f for f in found if f.rule.startswith('call["slope"')]
    assert [line.line for line, _ in slope.lines] == [FC], "gelu"


def test_passes_are_named(found: tuple[Firing, ...]) -> None:
    of = {f.table: {name for g in found if g.table == f.table for name, _ in g.passes} for f in found}
    assert of["gradient"] == {""}
    assert of["early"] == {"early-rewrites"}
    assert {"range-propagation", "apply-opts", "map-to-hardware"} <= of["fold"]


def test_a_second_time_says_the_same_though_all_is_compiled_by_now(found: tuple[Firing, ...]) -> None:
    assert [(f.rule, f.count) for f in firings(models.outputs, POLICY)] == [(f.rule, f.count) for f in found]


def test_forward_leaves_out_what_the_gradient_needs() -> None:
    def outputs() -> list[object]:
        x = Tensor([1.0, 2.0], device="cpu", requires_grad=True)
        loss = (x.sqrt() * 1.5).sum()
        loss.backward()
        return [loss.uop]

    whole, forward = firings(outputs, POLICY), firings(outputs, POLICY, forward=True)
    assert "gradient" in {f.table for f in whole}
    assert "gradient" not in {f.table for f in forward}
    assert sum(f.count for f in forward) < sum(f.count for f in whole)
