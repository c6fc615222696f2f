"""How a loop is cut into blocks, which worker splits what, and where temporaries lie."""

from __future__ import annotations

import math

import pytest

from anneal.backend.cpu import layout
from anneal.backend.cpu.layout import ALIGN, CpuProgram, LoopLayout
from anneal.uop import Op, UOp
from tests.backend.cpu.kernels import kernel, load, loop, over, param, reduce, store

ROW = 16  # float32 elements of one alignment


def loops(sink: UOp, workers: int = 1) -> list[LoopLayout]:
    return CpuProgram(sink, "test", workers)._loops()


def only(sink: UOp, workers: int = 1) -> LoopLayout:
    (made,) = loops(sink, workers)
    return made


def lengths(made: LoopLayout) -> list[int]:
    """Elements of each block, of the dims that are cut."""
    return [math.prod(hi - lo for lo, hi in b.values()) for b in made.blocks]


def table(rows: int, columns: int, transposed: bool = False) -> UOp:
    """(x + y) * 2 of a table and a column: two calls, and a temporary between them."""
    i, j = loop(0, rows), loop(1, columns)
    at = i * columns + j
    return kernel(
        store(param(0, rows * columns), at, (load(param(1, rows * columns), at) + load(param(2, rows), i)) * 2.0)
    )


def matmul(m: int, n: int, k: int, batch: int = 1, more: bool = False) -> UOp:
    z, i, j, r = loop(0, batch), loop(1, m), loop(2, n), over(3, k)
    value = load(param(1, batch * m * k), (z * m + i) * k + r) * load(param(2, batch * k * n), (z * k + r) * n + j)
    total = reduce(Op.ADD, value, r)
    out = Op.EXP(total) + load(param(3, n), j) if more else total
    return kernel(store(param(0, batch * m * n), (z * m + i) * n + j, out))


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_what_fits_is_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 200)
    assert only(table(10, 20)).blocks == [{}]
    assert len(only(table(10, 21)).blocks) == 2


def test_blocks_are_whole_rows_and_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 100)
    made = only(table(10, 20))
    assert [len(b) for b in made.blocks] == [1, 1], "rows are cut, columns are not"
    assert lengths(made) == [5, 5], "rows of each"
    assert lengths(only(table(11, 20))) == [4, 4, 3]


def test_a_row_that_fits_no_block_is_cut_and_rows_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 100)
    made = only(table(3, 250))
    assert lengths(made) == [84, 84, 82] * 3


def test_blocks_are_as_many_as_workers_or_a_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    monkeypatch.setattr(layout, "BLOCK", 100)
    assert len(only(table(15, 20), 1).blocks) == 3
    assert len(only(table(15, 20), 2).blocks) == 4
    monkeypatch.setattr(layout, "BLOCK", 10**6)
    assert len(only(table(16, 20), 2).blocks) == 2, "what would fit one block is split for them"


def test_no_more_workers_than_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    assert only(table(3, 1), 4).workers == 3


def test_work_pays_from_a_size_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", only(table(10, 20)).worth)
    assert only(table(10, 20), 2).workers == 1
    assert only(table(10, 21), 2).workers == 2


def test_what_blocks_share_and_others_see_is_one_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    monkeypatch.setattr(layout, "BLOCK", 40)
    i, j = loop(0, 10), loop(1, 20)
    at, row = i * 20 + j, Op.EXP(load(param(2, 20), j))
    table_too = store(param(0, 200), at, (load(param(1, 200), at) + 1.0) * row)
    assert only(kernel(table_too), 2).workers == 2, "each computes the row for itself"
    both = only(kernel(table_too, store(param(3, 20), j, row)), 2)
    assert both.workers == 1, "the row is stored, and once only"


# -- products ---------------------------------------------------------------------------------------------------------


def product_of(sink: UOp, workers: int = 2) -> LoopLayout:
    (made,) = [x for x in loops(sink, workers) if x.product is not None]
    return made


def cut_of(made: LoopLayout, sink: UOp) -> str:
    """Which side of a product is cut."""
    p = made.product
    assert p is not None
    return "".join(n for n, g in (("b", p.batch), ("m", p.m), ("n", p.n)) if any(made.cut >> s & 1 for s in g))


@pytest.mark.parametrize(("sink", "side"), [
    pytest.param(matmul(512, 64, 64), "m", id="rows"),
    pytest.param(matmul(64, 256, 64), "m", id="four times as many columns"),
    pytest.param(matmul(64, 257, 64), "n", id="more columns than that"),
    pytest.param(matmul(8, 63, 64, more=True), "m", id="too few columns for two workers"),
    pytest.param(matmul(8, 64, 64, more=True), "n", id="enough of them"),
    pytest.param(matmul(4, 512, 64, batch=2), "b", id="matrices"),
])  # fmt: skip
def test_workers_split_rows_unless_columns_are_far_more(monkeypatch: pytest.MonkeyPatch, sink: UOp, side: str) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    assert cut_of(product_of(sink), sink) == side


def test_a_product_and_what_is_made_of_it_are_one_loop_while_its_rows_are_in_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "BLOCK", 64 * 64)
    made = only(matmul(512, 64, 64, more=True))
    assert made.product is not None
    assert [i.name for i in made.loop.instrs] == ["exp", "add"]
    assert lengths(made) == [64] * 8


def test_a_product_alone_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 64 * 64)
    assert only(matmul(512, 64, 64)).blocks == [{}]


def test_blocks_are_multiplied_together_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 64 * 64)
    monkeypatch.setattr(layout, "_PRODUCT", 3 * 64 * 64)
    made = only(matmul(512, 64, 64, more=True))
    assert [len(g) for g in made.gathered(made.blocks)] == [3, 3, 2]


# -- temporaries ------------------------------------------------------------------------------------------------------


def temporaries(made: LoopLayout) -> list[int]:
    """The byte offset of the result of each instruction that has one in scratch memory."""
    return [i.out.root.register for i in made.loop.instrs if i.out.root.kind == "temp"]


def chain(n: int, *more: UOp) -> UOp:
    i = loop(0, n)
    return kernel(store(param(0, n), i, (Op.EXP(load(param(1, n), i) + 1.0) + 2.0) * 3.0), *more)


def test_a_temporary_is_overwritten_where_it_lies() -> None:
    made = only(chain(ROW))
    assert temporaries(made) == [0, 0, 0]
    assert made.end == ALIGN


def test_a_temporary_that_is_still_needed_is_not_overwritten() -> None:
    i = loop(0, ROW)
    x = load(param(1, ROW), i) + 1.0
    made = only(kernel(store(param(0, ROW), i, Op.EXP(x) * x)))
    assert temporaries(made) == [0, ALIGN]
    assert made.end == 2 * ALIGN


def test_memory_of_the_same_size_is_taken_again() -> None:
    i, j = loop(0, 4), loop(1, ROW)
    at = i * ROW + j
    x, y = (load(param(n, 4 * ROW), at) for n in (1, 2))
    rows = [Op.EXP(load(param(n, 4), i)) for n in (3, 4)]
    first = store(param(0, 4 * ROW), at, (x + rows[0]) * rows[0])
    second = store(param(5, 4 * ROW), at, (y + rows[1]) * rows[1])
    made = only(kernel(first, second))
    assert made.end <= 4 * ROW * 4 + 2 * ALIGN, "one table and what the rows take"


def test_temporaries_are_aligned() -> None:
    i = loop(0, 3)
    x = load(param(1, 3), i) + 1.0
    made = only(kernel(store(param(0, 3), i, Op.EXP(x) * x)))
    assert all(at % ALIGN == 0 for at in temporaries(made))
    assert made.end == 2 * ALIGN


def test_what_runs_once_keeps_its_memory_through_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", ROW)
    i, j = loop(0, 10), loop(1, ROW)
    at = i * ROW + j
    row = Op.EXP(load(param(2, ROW), j))
    x = load(param(1, 10 * ROW), at) * row + 1.0
    made = only(kernel(store(param(0, 10 * ROW), at, Op.SIN(x) * x)))
    assert len(made.blocks) == 10
    assert [i.name for i, once in zip(made.loop.instrs, made.once, strict=True) if once] == ["exp"]
    at_exp = next(i.out.root.register for i in made.loop.instrs if i.name == "exp")
    others = [i.out.root.register for i in made.loop.instrs if i.name != "exp" and i.out.root.kind == "temp"]
    assert len(set(others)) == 2
    assert at_exp not in others, "also after its last use: the next block wants it"


# -- programs ---------------------------------------------------------------------------------------------------------


def test_scratch_is_as_much_as_the_largest_loop_needs_and_shared_memory_as_the_largest_part() -> None:
    program = CpuProgram(chain(ROW), "test")
    assert (program.scratch, program.shared) == (ALIGN, 0)
    k = over(1, 5)
    computed = Op.EXP(load(param(1, 30), loop(0, 6) * 5 + k)) * load(param(2, 40), k * 8 + loop(2, 8))
    program = CpuProgram(kernel(store(param(0, 48), loop(0, 6) * 8 + loop(2, 8), reduce(Op.ADD, computed, k))), "test")
    assert program.shared == 2 * ALIGN, "the operand that is computed for BLAS: 30 elements"


def test_for_one_worker_it_is_laid_out_anew_unless_it_is_already() -> None:
    two, one = CpuProgram(chain(ROW), "test", 2), CpuProgram(chain(ROW), "test", 1)
    assert two.for_one_worker.workers == 1
    assert two.for_one_worker is two.for_one_worker
    assert one.for_one_worker is one


def test_the_plan_as_text() -> None:
    text = CpuProgram(matmul(6, 8, 5, more=True), "test").source
    assert text.splitlines()[0] == "# test"
    assert " @ " in text
    assert "exp(" in text
    assert "for 1 blocks on 1 workers:" in text
