"""The rules as `anneal explain` shows them come from the files' own text."""

from __future__ import annotations

import pytest

from anneal.errors import UserError
from anneal.rewrite.generate import PACKAGE
from anneal.rewrite.passes import explain, rules


def test_every_rule_stands_in_its_file_at_its_line() -> None:
    for rule in rules():
        line = (PACKAGE.parent / rule.file).read_text().splitlines()[rule.line - 1]
        assert " ".join(line.split("->")[0].split()) == rule.text.split(" ->")[0]


def test_an_op_has_its_own_rules_before_those_that_mention_it() -> None:
    found = explain("mod")
    own = [r for r in found if r.op == "MOD"]
    assert own == found[: len(own)]
    assert {r.table for r in own} >= {"fold", "symbolic"}
    assert any(r.op == "IDIV" for r in found)
    assert all("MOD" in r.mentions for r in found)


def test_forward_and_gradient_rules_are_told_apart() -> None:
    kinds = {r.kind for r in explain("MUL")}
    assert {"fold", "rewrite", "gradient"} <= kinds


def test_every_rule_has_a_reason() -> None:
    assert not [f"{r.file}:{r.line}" for r in rules() if not r.comment]


def test_an_unknown_op_is_met_with_those_that_look_like_it() -> None:
    with pytest.raises(UserError, match="unknown op 'mull'; known: MUL"):
        explain("mull")
