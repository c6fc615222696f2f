"""An op that can be differentiated can be pushed forward and mapped: the tables are held against each other."""

from __future__ import annotations

import re

from anneal.rewrite import STAGES
from anneal.transforms import forward_rules, gradient_rules
from anneal.transforms.batching import BATCHING, CUSTOM_DERIVATIVES
from anneal.transforms.forward_rules import FORWARD
from anneal.transforms.gradient_rules import GRADIENT
from anneal.uop import ALU, Op


def test_every_op_with_a_gradient_has_a_tangent_and_a_batching_rule() -> None:
    # an elementwise op's tangent comes from its gradient rule
    forward = FORWARD.keys() | (GRADIENT.keys() & ALU)
    assert GRADIENT.keys() == forward, sorted(o.name for o in GRADIENT.keys() ^ forward)
    missing = GRADIENT.keys() - BATCHING.keys()
    assert not missing, sorted(o.name for o in missing)


def test_every_op_of_the_tensor_graph_can_be_mapped() -> None:
    leaves = {Op.CONST, Op.VARIABLE, Op.BIND, Op.BUFFER, Op.PARAM, Op.IOTA}
    made_by_the_scheduler = {Op.SEGMENT_SUM, Op.SINK}
    missing = STAGES["tensor"].keys() - BATCHING.keys() - leaves - made_by_the_scheduler
    assert not missing, sorted(o.name for o in missing)


def _custom_derivatives(rules: tuple[tuple[str, str, str, str, int], ...]) -> set[str]:
    return {m[1] for _, text, *_ in rules if (m := re.match(r'custom_derivative\["(\w+)"', text))}


def test_every_custom_derivative_is_in_all_tables() -> None:
    names = _custom_derivatives(gradient_rules.RULES)
    assert len(names) >= 4
    assert names == _custom_derivatives(forward_rules.RULES)
    assert names == CUSTOM_DERIVATIVES.keys()
