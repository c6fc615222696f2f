"""The `.upat` language: what its generator makes, and that the committed modules are what it makes now."""

from __future__ import annotations

from typing import Any

import pytest

from anneal.errors import CompilerError
from anneal.rewrite.generate import PACKAGE, generate, main, targets
from anneal.rewrite.upat import mentioned, parse
from anneal.uop import Op, UOp, alu, const, dtypes

I32, F32 = dtypes.int32, dtypes.float32


def var(name: str, dtype: Any = I32) -> UOp:
    return UOp(Op.VARIABLE, dtype, (), (name, -100, 100)) if dtype is I32 else UOp(Op.PARAM, dtype, (), (name, ()))


def table(text: str, name: str = "T") -> dict[Op, Any]:
    scope: dict[str, Any] = {}
    exec(compile(generate(text, "test.upat"), "test_rules", "exec"), scope)
    found: dict[Op, Any] = scope[name]
    return found


def match(text: str, u: UOp) -> UOp | None:
    rule = table("table t\n" + text).get(u.op)
    got = rule(u) if rule else None
    return got[0] if got else None


X, Y, Z = var("x"), var("y"), var("z")
P = UOp(Op.LT, dtypes.bool_, (X, Y))
RAW = {
    "x+y": UOp(Op.ADD, I32, (X, Y)),
    "x*3": UOp(Op.MUL, I32, (X, const(I32, 3))),
}
PARAM = UOp(Op.PARAM, F32, (), (0, (8,)))
LOAD = UOp(Op.LOAD, F32, (PARAM, X))

CASES = [
    ("x + y -> x - y", X + Y, X - Y),
    ("x + 3 -> x", X + 3, X),
    ("x + 3 -> x", X + 4, None),
    ("x * c -> x + c", X * 7, X + 7),
    ("x * c -> x", UOp(Op.MUL, I32, (X, Y)), None),
    ("x + x -> x", UOp(Op.ADD, I32, (X, X)), X),
    ("x + x -> x", X + Y, None),
    ("x * c + y -> y", X * 3 + Y, Y),
    ("x * c + y -> y", Y + X * 3, Y),
    ("x < y -> y < x", alu(Op.LT, (X, Y)), alu(Op.LT, (Y, X))),
    ("x > y -> x < y", alu(Op.LT, (Y, X)), alu(Op.LT, (X, Y))),
    ("where(p, a, b) -> where(p, b, a)", alu(Op.WHERE, (P, X, Y)), alu(Op.WHERE, (P, Y, X))),
    ("~p -> p", UOp(Op.NOT, dtypes.bool_, (P,)), P),
    ("-x -> x", UOp(Op.NEG, I32, (X,)), X),
    ("max(x, y) -> min(x, y)", alu(Op.MAX, (X, Y)), alu(Op.MIN, (X, Y))),
    ("exp(x) -> x", UOp(Op.EXP, F32, (LOAD,)), LOAD),
    ("cast(x) -> x", UOp(Op.CAST, F32, (X,)), X),
    ("cast(x) -> cast(x, dtypes.float16)", UOp(Op.CAST, F32, (X,)), X.cast(dtypes.float16)),
    ("x:float * 2 -> x", X * 2, None),
    ("x:int * 2 -> x", X * 2, X),
    ("load(p, i) -> load(p, i + 1)", LOAD, UOp(Op.LOAD, F32, (PARAM, X + 1))),
    ("load(p, i, g) -> p", LOAD, None),
    ("x * c -> x * {v(c) * 2} if v(c) > 2 and hi(x) == 100", X * 3, X * 6),
    ("x * c -> x * {v(c) * 2} if v(c) > 3", X * 3, None),
    ("x * c -> {v(c) + 1}", X * 3, const(I32, 4)),
    ("x * c -> {None}", X * 3, None),
    ("x == y -> ~(x != y)", alu(Op.EQ, (X, Y)), alu(Op.EQ, (X, Y))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "before", "after"), CASES)
def test_a_rule_matches_what_it_reads(text: str, before: UOp, after: UOp | None) -> None:
    assert match(text, before) is after


def test_args_are_matched_bound_and_rebuilt() -> None:
    r = UOp(Op.RANGE, I32, (const(I32, 4),), (0, "reduce"))
    add = UOp(Op.REDUCE, F32, (LOAD, r), Op.ADD)
    assert match("reduce[add](x, r) -> reduce[max](x, r)", add) is UOp(Op.REDUCE, F32, (LOAD, r), Op.MAX)
    assert match("reduce[mul](x, r) -> x", add) is None
    axis = UOp(Op.REDUCE_AXIS, F32, (UOp(Op.PARAM, F32, (), (0, (4, 8))),), (Op.ADD, (1,)))
    assert match("reduce_axis[add, axes](x) -> reduce_axis[max, axes](x)", axis) is UOp(
        Op.REDUCE_AXIS, F32, axis.src, (Op.MAX, (1,))
    )
    assert match("reduce_axis[add, axes](x) -> expand[x.shape](u)", axis) is UOp(Op.EXPAND, F32, (axis,), (4, 8))


def test_the_first_rule_that_matches_wins_and_names_itself() -> None:
    t = table("table t\nx + 0 -> x\nx + c -> x - c\nx + y -> y\n")
    assert t[Op.ADD](X + 5) == (X - 5, "x + c -> x - c")
    assert t[Op.ADD](X + Y) == (Y, "x + y -> y")


def test_gradient_tables_give_a_contribution_for_each_source() -> None:
    t = table("table t kind=gradient\nx * z -> g * z, g * x\nexp(x) -> g * y\nwhere(p, a, b) -> _, where(p, g, 0), _\n")
    g, y = var("g"), UOp(Op.MUL, I32, (X, Y))
    assert t[Op.MUL](y, g) == (g * Y, g * X)
    w = alu(Op.WHERE, (P, X, Y))
    assert t[Op.WHERE](w, g) == (None, alu(Op.WHERE, (P, g, const(I32, 0))), None)


def test_a_fold_table_keeps_the_shape_of_what_it_replaces() -> None:
    t = table("table t kind=fold\nx:int * 0 -> 0\nwhere(p, x, x) -> x\n")
    wide = UOp(Op.PARAM, I32, (), (0, (4,)))
    assert t[Op.MUL](I32, (X, const(I32, 0))) is const(I32, 0)
    assert t[Op.MUL](I32, (wide, const(I32, 0))) is None
    condition = UOp(Op.PARAM, dtypes.bool_, (), (1, (4,)))
    assert t[Op.WHERE](I32, (condition, X, X)) is None
    assert t[Op.WHERE](I32, (condition, wide, wide)) is wide


def test_comments_and_continuations_stay_with_their_rules() -> None:
    text = "# file\n\ntable t\n# why\nx + 0 -> x\nx * 1\n  -> x\n  if hi(x) > 0\n\nx - 0 -> x\n"
    (read,) = parse(text, "t.upat").tables
    assert [(r.text, mentioned(r, "t.upat")[0].name, r.comment, r.line) for r in read.rules] == [
        ("x + 0 -> x", "ADD", "why", 5),
        ("x * 1 -> x if hi(x) > 0", "MUL", "why", 6),
        ("x - 0 -> x", "SUB", "", 10),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 0 -> x\n", "t.upat:1: a rule is"),
        ("table t\nx + 0\n", "t.upat:2: a rule is"),
        ("table t kind=odd\n", "t.upat:1: table takes"),
        ("table t\nx -> x\n", "must start with an op"),
        ("table t\nfoo(x) -> x\n", "`foo(x)` is no pattern"),
        ("table t\nexp(x) -> y\n", "`y` is not bound"),
        ("table t\nexp(x) -> foo(x)\n", "comes from no `use` line"),
        ("table t\nexp(x, z) -> x\n", "EXP does not take 2 sources"),
        ("table t\nx + -> x\n", "invalid syntax"),
    ],
)
def test_a_wrong_line_is_named(text: str, message: str) -> None:
    with pytest.raises(CompilerError, match=r"t\.upat:\d") as e:
        generate(text, "t.upat")
    assert message in str(e.value)


def test_the_committed_modules_are_what_the_generator_makes() -> None:
    assert len(targets()) >= 2
    for source, target in targets():
        name = source.relative_to(PACKAGE.parent).as_posix()
        assert target.read_text() == generate(source.read_text(), name), (
            f"run python -m anneal.rewrite.generate ({name})"
        )
    assert main(["--check"]) == 0
