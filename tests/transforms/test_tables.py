"""An op that can be differentiated can be pushed forward and mapped: the tables are held against each other."""

from __future__ import annotations

import re

import numpy as np
import pytest

from anneal.rewrite import STAGES
from anneal.rewrite.passes import explain
from anneal.tensor import Tensor, grad, jvp, vmap
from anneal.transforms.batching import BATCHING
from anneal.transforms.forward_rules import FORWARD
from anneal.transforms.gradient_rules import GRADIENT
from anneal.transforms.walks import push_forward, stand_in
from anneal.uop import ALU, MOVEMENT, GraphFunction, Op, UOp, by_rule, dtypes


def test_every_op_with_a_gradient_has_a_tangent_and_a_batching_rule() -> None:
    # an elementwise op's tangent comes from its gradient rule, and movement moves one
    forward = FORWARD.keys() | MOVEMENT | (GRADIENT.keys() & ALU)
    assert GRADIENT.keys() == forward, sorted(o.name for o in GRADIENT.keys() ^ forward)
    missing = GRADIENT.keys() - BATCHING.keys()
    assert not missing, sorted(o.name for o in missing)


def test_every_op_of_the_tensor_graph_can_be_mapped() -> None:
    leaves = {Op.CONST, Op.VARIABLE, Op.BIND, Op.BUFFER, Op.PARAM, Op.IOTA}
    made_by_the_scheduler = {Op.SCAN, Op.SEGMENT_SUM, Op.SINK}
    missing = STAGES["tensor"].keys() - BATCHING.keys() - leaves - made_by_the_scheduler - {Op.HOST_CALL}  # its `Rules`
    assert not missing, sorted(o.name for o in missing)


def test_every_call_by_name_has_a_tangent_and_a_form_for_many_examples() -> None:
    """The rule of a gradient serves, but for a name that has its own; the arguments of calls are axes, or numbers."""
    names = {m[1] for r in explain("call") if (m := re.match(r'call\["(\w+)"', r.text))}
    assert len(names) >= 4
    rows, x = (UOp(Op.PARAM, dtypes.float32, (), (n, (2, 3))) for n in (0, 1))
    axes, running = dict.fromkeys(("first", "standardize"), (1,)), (Op.ADD, 3, 1)
    for name in names:
        y = by_rule(
            name, rows, *[x] * _others(name), arguments=axes.get(name, running if name in ("sums", "products") else 1.0)
        )
        many = BATCHING[y.op](y, [stand_in(u.dtype, (4, *u.shape)) for u in y.src], [True] * len(y.src), 4)
        assert many.shape == (4, 2, 3)
        assert many.arg[0].arguments == ((2,) if name in axes else y.arg[0].arguments)
        tangents = {u: stand_in(u.dtype, u.shape) for u in (rows, x)}
        push_forward([(y, y.src)], [y], tangents)
        assert y in tangents, name


@pytest.mark.parametrize("opened", [False, True])
def test_a_call_that_no_rule_knows_has_the_derivatives_of_its_value(opened: bool) -> None:
    p = UOp(Op.PARAM, dtypes.float32, (), (0, (2, 3)))
    body = GraphFunction("curve", (), (p,), (Op.SIN(p) * p,))

    def curve(x: Tensor) -> Tensor:
        if opened:
            return x._new(UOp(Op.CALL, dtypes.float32, (x.uop,), (body, 0)))
        return x._new(by_rule("curve", (x.sin() * x).uop, x.uop, arguments=1))

    x = Tensor([[0.5, -1.0, 2.0], [3.0, 0.1, -0.2]])
    plain = lambda x: x.sin() * x
    same = lambda a, b: np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    same(curve(x), plain(x))
    same(grad(lambda x: curve(x).sum())(x), grad(lambda x: plain(x).sum())(x))
    same(jvp(curve, (x,), (x * 2,))[1], jvp(plain, (x,), (x * 2,))[1])
    many = Tensor.stack([x, x + 1])
    same(vmap(curve)(many), plain(many))


def _others(name: str) -> int:
    return next(
        r.text.split("->")[0].count(",") - 1
        for r in explain("call")
        if r.kind == "gradient" and r.text.startswith(f'call["{name}"')
    )
