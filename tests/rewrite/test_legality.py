"""The stages' tables: what passes, and what is refused with its reason."""

from __future__ import annotations

import pytest

from anneal.errors import CompilerError
from anneal.rewrite import STAGES, check
from anneal.runtime import HostFunction
from anneal.uop import Op, UOp, const, dtypes

F32, I32, BOOL = dtypes.float32, dtypes.int32, dtypes.bool_
I = UOp(Op.RANGE, I32, (const(I32, 4),), (0, "loop"))
K = UOp(Op.RANGE, I32, (const(I32, 8),), (1, "reduce"))
OUT, IN = UOp(Op.PARAM, F32, (), (0, (4,))), UOp(Op.PARAM, F32, (), (1, (32,)))
VALUE = UOp(Op.LOAD, F32, (IN, I * 8 + K))
SUM = UOp(Op.REDUCE, F32, (VALUE, K), Op.ADD)
KERNEL = UOp(Op.SINK, F32, (UOp(Op.STORE, F32, (OUT, I, SUM)),))
WIDE = UOp(Op.PARAM, F32, (), (0, (4, 8)))
ROWS = UOp(Op.REDUCE_AXIS, F32, (WIDE,), (Op.ADD, (1,)))
SORTED = HostFunction("sort", (((4, 1), F32),), lambda a: a)


def store(value: UOp) -> UOp:
    return UOp(Op.SINK, F32, (UOp(Op.STORE, F32, (OUT, I, value)),))


def test_what_the_stages_are_made_of_passes() -> None:
    check(KERNEL, "kernel")
    check(KERNEL, "legal")
    check(KERNEL, "linear")
    check(store(VALUE), "linear")  # in the loop of a row
    narrow = UOp(Op.PARAM, dtypes.bfloat16, (), (2, (4,)))
    rounding = UOp(Op.SINK, F32, (UOp(Op.STORE, dtypes.bfloat16, (narrow, I, SUM)),))
    check(rounding, "legal")
    check(rounding, "linear")
    check(ROWS, "tensor")
    check(UOp(Op.HOST_CALL, F32, (ROWS,), (SORTED, 0)), "tensor")
    check(store(UOp(Op.LOAD, F32, (IN, I, I < 3))), "kernel")


BAD = [
    (KERNEL, "tensor", "RANGE may not exist here"),
    (ROWS, "kernel", "REDUCE_AXIS may not exist here"),
    (store(VALUE), "kernel", "a reduce range is used outside its REDUCE"),
    (store(UOp(Op.EXP, F32, (UOp(Op.ADD, F32, (VALUE, I)),))), "kernel", "ADD takes sources of one dtype"),
    (store(I), "kernel", "STORE moves float32, not int32"),
    (store(UOp(Op.LOAD, F32, (IN, I.cast(F32)))), "kernel", "LOAD has an int32 index, not float32"),
    (store(UOp(Op.LOAD, F32, (IN, I, I))), "kernel", "LOAD has a bool predicate"),
    (store(UOp(Op.LOAD, I32, (IN, I)).cast(F32)), "kernel", "LOAD moves float32, not int32"),
    (store(UOp(Op.REDUCE, F32, (VALUE, K), Op.SUB)), "kernel", "REDUCE reduces by ADD"),
    (UOp(Op.SINK, F32, (SUM,)), "kernel", "SINK ends a kernel"),
    (UOp(Op.WHERE, F32, (ROWS, ROWS, ROWS)), "tensor", "WHERE chooses by a bool"),
    (UOp(Op.SQRT, I32, (UOp(Op.IOTA, I32, (), (4,)),)), "tensor", "SQRT is for floats"),
    (UOp(Op.AND, F32, (ROWS, ROWS)), "tensor", "AND is not for floats"),
    (UOp(Op.ADD, F32, (ROWS, ROWS, ROWS)), "tensor", "ADD takes 2 sources, not 3"),
    (UOp(Op.LT, F32, (ROWS, ROWS)), "tensor", "LT gives bool"),
    (UOp(Op.REDUCE_AXIS, F32, (WIDE,), (Op.ADD, (1, 0))), "tensor", "sorted axes"),
    (UOp(Op.BITCAST, dtypes.float16, (ROWS,)), "tensor", "keeps the number of bits"),
    (
        UOp(Op.HOST_CALL, I32, (ROWS,), (SORTED, 0)),
        "tensor",
        "HOST_CALL takes arrays, and gives what its function says",
    ),
    (UOp(Op.HOST_CALL, F32, (), (SORTED, 0)), "tensor", "HOST_CALL takes arrays"),
    (UOp(Op.HOST_CALL, F32, (IN,), (SORTED, 0)), "kernel", "HOST_CALL may not exist here"),
    (store(UOp(Op.ARGSORT, I32, (IN, I)).cast(F32)), "legal", "ARGSORT may not exist here"),
    (store(VALUE), "legal", "a reduce range is used outside its REDUCE"),
    (store(I), "legal", "STORE moves float32, not int32"),
    (store(I), "linear", "STORE moves float32, not int32"),
    (KERNEL, "attic", "unknown stage 'attic'; known: tensor, kernel, legal, linear"),
]


@pytest.mark.parametrize(("sink", "stage", "message"), BAD, ids=[f"{b[1]}: {b[2]}" for b in BAD])
def test_what_is_refused_says_why(sink: UOp, stage: str, message: str) -> None:
    with pytest.raises(CompilerError) as e:
        check(sink, stage)
    assert message in str(e.value)


def test_every_op_belongs_to_a_stage() -> None:
    from anneal.uop.ops import ALL

    placed = {op for table in STAGES.values() for op in table}
    assert set(ALL.values()) == placed


def test_random_programs_are_legal_before_and_after_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    from anneal.schedule import Kernel
    from anneal.schedule.passes import range_propagation
    from anneal.tensor import realize
    from tests.fuzz.generate import program
    from tests.fuzz.programs import build

    kernel_of = range_propagation._kernel_of
    seen: list[UOp] = []

    def checked(piece: UOp) -> Kernel:
        kernel = kernel_of(piece)
        check(piece, "tensor")
        check(kernel.sink, "kernel")
        seen.append(kernel.sink)
        return kernel

    monkeypatch.setattr(range_propagation, "_kernel_of", checked)
    for seed in range(25):
        realize(list(build(program(seed), "cpu").values()))
    assert len(seen) > 50
