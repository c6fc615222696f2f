"""The node: interning, derived facts, keys, provenance, printing, memory, depth."""

from __future__ import annotations

import gc
import os
import pickle
import random
import subprocess
import sys
from typing import Any

import pytest

from anneal.errors import CompilerError
from anneal.tensor import Tensor
from anneal.uop import ALU, Arena, DType, Op, UOp, alu, arena, const, dtypes, render, toposort
from tests.rewrite.fuzz_index import boolean, integer

I32, F32, BOOL = dtypes.int32, dtypes.float32, dtypes.bool_
NAN, INF = float("nan"), float("inf")
X = UOp(Op.VARIABLE, I32, (), ("x", -7, 9))
WIDE = UOp(Op.PARAM, F32, (), (0, (4, 8)))


def r(size: int, number: int, kind: str = "loop") -> UOp:
    return UOp(Op.RANGE, I32, (const(I32, size),), (number, kind))


# -- interning


def test_equal_fields_are_one_node() -> None:
    assert UOp(Op.ADD, I32, (X, X)) is UOp(Op.ADD, I32, (X, X))
    assert UOp(Op.ADD, I32, (X, X)) is not UOp(Op.ADD, I32, (X, X), None, "tag")
    assert UOp(Op.CAST, F32, (X,)) is not UOp(Op.CAST, dtypes.float16, (X,))
    assert r(4, 0) is r(4, 0)
    assert r(4, 0) is not r(4, 1)


@pytest.mark.parametrize("dtype", [F32, dtypes.float64])
def test_float_constants_are_interned_by_their_bits(dtype: DType) -> None:
    assert const(dtype, 0.0) is not const(dtype, -0.0)
    assert const(dtype, NAN) is const(dtype, NAN)
    assert const(dtype, 1) is const(dtype, 1.0)
    assert const(I32, 1) is not const(BOOL, True)


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        (I32, 2**31, -(2**31)),
        (I32, -(2**31) - 1, 2**31 - 1),
        (dtypes.uint8, -1, 255),
        (dtypes.int8, 200, -56),
        (BOOL, 3, True),
        (F32, 0.1, 0.10000000149011612),
        (F32, 1e39, INF),
        (F32, -1e39, -INF),
        (dtypes.float16, 70000.0, INF),
        (dtypes.float16, 1 / 3, 0.333251953125),
    ],
)
def test_constants_are_what_the_dtype_stores(dtype: DType, value: Any, stored: Any) -> None:
    assert const(dtype, value).arg == stored


def test_a_node_is_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        X.arg = 3
    assert not hasattr(X, "__dict__")


def test_arenas_do_not_share_nodes() -> None:
    with Arena() as inner:
        y = UOp(Op.VARIABLE, I32, (), ("x", -7, 9))
        assert y is not X
        assert len(inner) == 1
    assert UOp(Op.VARIABLE, I32, (), ("x", -7, 9)) is X


def test_pickling_gives_the_same_node_back() -> None:
    u = (X + 3) * X
    assert pickle.loads(pickle.dumps(u)) is u


# -- derived facts


def test_shapes_follow_the_ops() -> None:
    for op, arg, shape in [
        (Op.RESHAPE, (32,), (32,)),
        (Op.PERMUTE, (1, 0), (8, 4)),
        (Op.PAD, ((1, 0), (0, 2)), (5, 10)),
        (Op.SHRINK, ((1, 3), (0, 8)), (2, 8)),
        (Op.FLIP, (0,), (4, 8)),
        (Op.REDUCE_AXIS, (Op.ADD, (1,)), (4, 1)),
    ]:
        assert UOp(op, F32, (WIDE,), arg).shape == shape
    assert (WIDE + 1).shape == (4, 8)
    assert (WIDE + WIDE).shape == (4, 8)


def test_elementwise_shapes_must_agree() -> None:
    with pytest.raises(CompilerError, match=r"ADD of shapes \[\(4, 8\), \(8,\)\]"):
        UOp(Op.ADD, F32, (WIDE, UOp(Op.PARAM, F32, (), (1, (8,)))))


def test_ranges_are_open_until_a_reduce_ends_them() -> None:
    i, k = r(4, 0), r(8, 3, "reduce")
    value = (i * 8 + k).cast(F32)
    assert value.ranges == 0b1001
    assert UOp(Op.REDUCE, F32, (value, k), Op.ADD).ranges == 0b0001


@pytest.mark.parametrize(
    ("u", "bounds"),
    [
        (X, (-7, 9)),
        (X + 3, (-4, 12)),
        (X * -2, (-18, 14)),
        (X // 4, (-2, 2)),
        (X % 5, (0, 4)),
        (r(8, 0) % 16, (0, 7)),
        (X * (1 << 30), (I32.min, I32.max)),
        (X < 10, (True, True)),
        (X < 9, (False, True)),
        (alu(Op.MAX, (X, const(I32, 0))), (0, 9)),
        (alu(Op.ABS, (X,)), (0, 9)),
        (X & 6, (0, 6)),
        ((X < 3).cast(I32), (0, 1)),
        (X.cast(dtypes.uint8), (0, 255)),
    ],
)
def test_bounds(u: UOp, bounds: tuple[int, int]) -> None:
    assert (u.vmin, u.vmax) == bounds


def test_a_value_that_can_only_be_one_number_is_that_number() -> None:
    assert r(8, 0) // 8 is const(I32, 0)
    assert (X < 10) is const(BOOL, True)


# -- keys


def test_keys_tell_structure_and_nothing_else() -> None:
    u = (X + 3) * X
    assert u.key == u.key
    assert u.key != ((X + 4) * X).key
    with Arena():
        junk = [const(I32, i) for i in range(100)]
        x = UOp(Op.VARIABLE, I32, (), ("x", -7, 9))
        assert ((x + 3) * x).key == u.key
        assert junk


def test_zero_and_minus_zero_have_different_keys() -> None:
    assert const(F32, 0.0).key != const(F32, -0.0).key


KEY_PROGRAM = """
from anneal.uop import *
from anneal.rewrite import simplify
i, j = (UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, n),), (k, "loop")) for k, n in enumerate((12, 64)))
junk = [const(dtypes.int32, n) for n in range({junk})]
u = simplify((i * 64 + j) // 48 * 3 + j % 7 + (j * 5 + i * 5) % 11)
v = UOp(Op.SINK, dtypes.float32, (u.cast(dtypes.float32), const(dtypes.float32, 0.1)), frozenset({{1}}).__len__())
print(v.key.hex())
"""


def test_keys_are_the_same_in_every_process() -> None:
    keys = set()
    for seed, junk in (("0", 0), ("1", 50), ("12345", 7)):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        out = subprocess.run(
            [sys.executable, "-c", KEY_PROGRAM.format(junk=junk)], env=env, capture_output=True, text=True, check=True
        )
        keys.add(out.stdout.strip())
    assert len(keys) == 1


# -- provenance


def test_the_first_builder_is_remembered_and_is_no_part_of_the_key() -> None:
    with Arena() as a:
        x = UOp(Op.VARIABLE, I32, (), ("x", -7, 9))
        first = x * 5
        a.phase = "backward"
        assert x * 5 is first
        assert first.provenance[0] == "forward"
        assert (x * 6).provenance[0] == "backward"
    _, code, line, _, _ = first.provenance
    assert code is not None
    assert code.co_filename == __file__
    assert line == first.provenance[2] > 0
    with Arena() as a:
        a.here.track = False
        assert (UOp(Op.VARIABLE, I32, (), ("x", -7, 9)) * 5).provenance[1:] == (None, 0, "", None)


# -- printing


@pytest.mark.parametrize("seed", range(60))
def test_the_printed_text_evaluates_back_to_the_node(seed: int) -> None:
    rng = random.Random(seed)
    u = (integer if seed % 2 else boolean)(rng, 5, [])
    assert evaluated(str(u)) is u


@pytest.mark.parametrize(
    "u",
    [
        const(F32, NAN),
        const(F32, -INF),
        const(F32, -0.0),
        const(BOOL, True),
        UOp(Op.REDUCE_AXIS, F32, (WIDE,), (Op.MAX, (0, 1))),
        UOp(Op.PAD, F32, (WIDE,), ((0, 1), (2, 0))),
        UOp(Op.ADD, F32, (WIDE, WIDE), None, ("tag", 1)),
        UOp(Op.LOAD, F32, (UOp(Op.PARAM, F32, (), (2, (64,))), r(8, 0), r(8, 0) < 3)),
    ],
)
def test_every_kind_of_arg_prints_back(u: UOp) -> None:
    assert evaluated(render(u)) is u


def evaluated(text: str) -> UOp:
    scope: dict[str, Any] = {"UOp": UOp, "Op": Op, "dtypes": dtypes}
    exec(text, scope)
    last: UOp = scope[text.splitlines()[-1].split(" = ")[0]]
    return last


def test_a_shared_node_is_printed_once() -> None:
    s = X + 1
    assert str(s * s).count("Op.ADD") == 1


# -- memory and depth


def test_sweep_drops_what_nobody_holds_and_keeps_the_rest() -> None:
    with Arena() as a:
        x = UOp(Op.VARIABLE, I32, (), ("x", -7, 9))
        kept = (x * 3) % 5
        lost: UOp | None = x
        for _ in range(1000):
            lost = UOp(Op.ADD, I32, (lost, x))
        before = len(a)
        lost = None
        gone = a.sweep()
        assert gone >= 1000
        assert len(a) == before - gone <= 6
        assert (x * 3) % 5 is kept


def test_an_arena_that_grows_without_being_held_stays_small() -> None:
    with Arena() as a:
        a._limit = 1000
        x = UOp(Op.VARIABLE, I32, (), ("x", -7, 9))
        for i in range(20_000):
            UOp(Op.ADD, I32, (x, const(I32, i)))
            if a._limit > 1000:
                a._limit = 1000
        assert len(a) < 2000


def deep(n: int) -> UOp:
    u = UOp(Op.PARAM, F32, (), (0, ()))
    for _ in range(n):
        u = UOp(Op.SIN, F32, (u,))
    return u


def test_depth_20000_is_built_walked_keyed_printed_and_freed() -> None:
    with Arena():
        u = deep(20_000)
        assert len(toposort((u,))) == 20_001
        assert len(u.key) == 16
        assert len(str(u).splitlines()) == 20_001
        assert pickle.loads(pickle.dumps(u)) is u
        del u
        gc.collect()
        arena().sweep()
        assert len(arena()) < 10


def test_what_is_later_than_a_node_is_so_too_where_nodes_may_go() -> None:
    """A buffer's node, and what is made of it, is held by its users alone: the arena has a reference to it."""
    with Arena():
        before = X + 7
        buffer = Tensor([1.0, 2.0]).realize().uop
        made = [Op.SIN(buffer), X * 5]
        for node, later in ((before, {buffer, *made}), (buffer, set(made)), (made[0], {made[1]})):
            assert node.weak is (node is not before)
            found = arena().since(node)
            assert later <= set(found)
            assert node not in found
            assert before not in found


def test_toposort_puts_sources_first_and_stops_where_told() -> None:
    u = (X + 1) * (X % 3)
    order = toposort((u,))
    assert all(order.index(s) < order.index(n) for n in order for s in n.src)
    assert toposort((u,), until=lambda n: n.op is Op.MOD)[-1] is u
    assert all(n.op is not Op.MOD for n in toposort((u,), until=lambda n: n.op is Op.MOD))


def test_replace_folds_elementwise_nodes() -> None:
    u = X * 3 + 1
    assert u.replace(src=(const(I32, 6), const(I32, 1))) is const(I32, 7)
    assert u.replace(src=u.src) is u
    assert X.cast(F32).replace(src=(const(I32, 6),)) is const(F32, 6.0)


def test_every_elementwise_op_can_be_built() -> None:
    f, b = UOp(Op.PARAM, F32, (), (0, ())), X < 3
    u = UOp(Op.PARAM, dtypes.uint32, (), (1, ()))
    for op in ALU - {Op.CAST, Op.BITCAST}:
        choices = ((b, f, f), (b, X, X), (b, b, b))
        for values in choices if op is Op.WHERE else ((f,) * 3, (X,) * 3, (b,) * 3, (u,) * 3):
            count = 3 if op in (Op.WHERE, Op.THREEFRY) else 2 if op.index >= Op.ADD.index else 1
            made = alu(op, values[:count])
            assert made.dtype in (F32, I32, BOOL, dtypes.uint32)
