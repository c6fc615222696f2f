"""An op that can be differentiated can be pushed forward and mapped: the tables are held against each other."""

from __future__ import annotations

import re

from anneal.rewrite import STAGES
from anneal.transforms.batching import BATCHING, batch
from anneal.transforms.forward import push_forward
from anneal.transforms.forward_rules import FORWARD
from anneal.transforms.gradient_rules import GRADIENT, RULES
from anneal.transforms.trace import stand_in
from anneal.uop import ALU, Op, UOp, by_rule, dtypes


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


def test_every_call_by_name_has_a_tangent_and_a_form_for_many_examples() -> None:
    """The rule of a gradient serves, but for a name that has its own; the arguments of calls are axes, or numbers."""
    names = {m[1] for _, text, *_ in RULES if (m := re.match(r'call\["(\w+)"', text))}
    assert len(names) >= 4
    rows, x = (UOp(Op.PARAM, dtypes.float32, (), (n, (2, 3))) for n in (0, 1))
    for name in names:
        y = by_rule(name, rows, *[x] * _others(name), arguments=(1,) if name in ("first", "standardize") else 1.0)
        many = batch(y, [stand_in(u.dtype, (4, *u.shape)) for u in y.src], [True] * len(y.src), 4)
        assert many.shape == (4, 2, 3)
        assert many.arg[0].arguments == ((2,) if name in ("first", "standardize") else 1.0)
        tangents = {u: stand_in(u.dtype, u.shape) for u in (rows, x)}
        push_forward([(y, y.src)], [y], tangents)
        assert y in tangents, name


def _others(name: str) -> int:
    return next(text.split("->")[0].count(",") - 1 for _, text, *_ in RULES if text.startswith(f'call["{name}"'))
