"""Kernels over variables: when one plan serves all values, and what of it a run takes."""

from __future__ import annotations

import pytest

from anneal.backend.cpu import layout
from anneal.backend.cpu.layout import PartialProgram, SymbolicProgram
from anneal.uop import Op, UOp, toposort
from tests.backend.cpu.kernels import I32, kernel, load, loop, over, param, reduce, store


def variable(name: str, low: int, high: int) -> UOp:
    return UOp(Op.VARIABLE, I32, (), (name, low, high))


N = variable("n", 0, 9)
ROWS = UOp(Op.RANGE, I32, (N,), (0, "loop"))


def program(sink: UOp, *variables: UOp) -> SymbolicProgram:
    return SymbolicProgram(sink, "test", variables or (N,), 1)


def doubled() -> UOp:
    return kernel(store(param(0, 9), ROWS, load(param(1, 9), ROWS) * 2.0))


def test_one_plan_serves_all_values_and_a_run_takes_the_first_ones() -> None:
    p = program(doubled())
    assert isinstance(p.whole, PartialProgram)
    assert p.program({"n": 5}) is p.program({"n": 9}) is p.whole
    ((plan, _),) = p.whole.parts
    assert [plan.dims.extent[s] for s in plan.order] == [9], "laid out for the most"
    assert p.whole.taken(0, {"n": 5}) == {plan.order[0]: (0, 5)}


def test_no_rows_have_a_plan_of_their_own() -> None:
    p = program(doubled())
    found = p.program({"n": 0})
    assert found is not p.whole
    assert not isinstance(found, PartialProgram)
    assert p.program({"n": 0}) is found, "it is kept"


def test_a_variable_in_an_index_is_a_dim_of_which_a_run_takes_one_value() -> None:
    at = variable("at", 0, 7)
    i = loop(0, 4)
    p = program(kernel(store(param(0, 4), i, load(param(1, 11), i + at))), at)
    assert p.whole is not None
    ((plan, _),) = p.whole.parts
    (point,) = plan.dims.points
    assert p.whole.taken(0, {"at": 3}) == {point: (3, 4)}


def test_sizes_are_those_of_expressions() -> None:
    rows = UOp(Op.RANGE, I32, (N * 4,), (0, "loop"))
    p = program(kernel(store(param(0, 36), rows, load(param(1, 36), rows) * 2.0)))
    assert p.whole is not None
    ((plan, _),) = p.whole.parts
    assert plan.dims.extent[plan.order[0]] == 36
    assert p.whole.taken(0, {"n": 5}) == {plan.order[0]: (0, 20)}


def test_a_plan_that_would_depend_on_the_values_is_made_for_each() -> None:
    apart = ROWS % 3 * 3 + ROWS // 3
    p = program(kernel(store(param(0, 9), apart, load(param(1, 9), ROWS))))
    assert p.whole is None
    found = {n: p.program({"n": n}) for n in (6, 9)}
    assert found[6] is not found[9]
    assert all(p.program({"n": n}) is one for n, one in found.items())


def test_windows_of_a_symbolic_number_of_rows_have_a_plan_for_each() -> None:
    """Folded tap by tap they are many times faster, and that lays them out anew."""
    x, i = loop(1, 1024), over(2, 3)
    value = load(param(1, 9 * 1026), ROWS * 1026 + x + i) * load(param(2, 3), i)
    p = program(kernel(store(param(0, 9 * 1024), ROWS * 1024 + x, reduce(Op.ADD, value, i))))
    assert p.whole is None
    assert "taps_add" in p.program({"n": 5}).source


def test_a_border_on_a_symbolic_axis_is_a_mask_so_that_one_plan_serves_all() -> None:
    p = program(kernel(store(param(0, 9), ROWS, load(param(1, 9), ROWS - 1, ROWS > 0))))
    assert p.whole is not None
    assert "pad" not in p.whole.source
    assert "take(" in p.whole.source, "elements are looked up, and those outside made zero"


def test_extents_that_data_decide_have_no_plan_at_all() -> None:
    r = UOp(Op.RANGE, I32, (load(param(2, 9, I32), ROWS),), (1, "reduce"))
    p = program(kernel(store(param(0, 9), ROWS, reduce(Op.ADD, load(param(1, 9), r), r))))
    assert p.whole is None
    assert p.program({"n": 5}).dynamic


def test_much_work_has_a_plan_for_each_choice_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program(doubled()).whole is not None
    monkeypatch.setattr(layout, "_LARGE_NS", 1)
    assert program(doubled()).whole is None


def test_a_variable_of_many_values_is_not_listed() -> None:
    wide = variable("w", 0, layout._LARGE_VARIABLE)
    i = loop(0, 4)
    sink = kernel(store(param(0, 4), i, load(param(1, 1 << 17), i + wide)))
    assert program(sink, wide).whole is None


def test_as_many_programs_are_kept_as_there_is_room_for_the_last_used_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_PLANS", 2)
    monkeypatch.setattr(layout, "_LARGE_NS", 0)
    p = program(doubled())
    first, second = p.program({"n": 1}), p.program({"n": 2})
    assert p.program({"n": 1}) is first
    p.program({"n": 3})
    assert p.program({"n": 1}) is first
    assert p.program({"n": 2}) is not second


def test_a_plan_for_some_values_has_ranges_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_LARGE_NS", 0)
    k = UOp(Op.RANGE, I32, (N,), (1, "reduce"))
    i = loop(0, 4)
    total = reduce(Op.ADD, load(param(1, 36), i * 9 + k), k)
    p = program(kernel(store(param(0, 4), i, total)))

    def made(n: int) -> set[int]:
        found = p.program({"n": n})
        return {u.src[0].arg for u in toposort((found.sink,)) if u.op is Op.RANGE}

    assert made(5) == {4, 5}
    assert made(1) == {4, 1}
    assert "reduce" not in p.program({"n": 1}).source


def test_for_one_worker_it_is_one_plan_for_all_values_too() -> None:
    p = SymbolicProgram(doubled(), "test", (N,), 2)
    assert p.whole is not None
    single = p.whole.for_one_worker
    assert isinstance(single, PartialProgram)
    assert single.workers == 1
    assert single.for_one_worker is single


def test_a_reduction_over_a_symbolic_axis_takes_the_first_values() -> None:
    k = UOp(Op.RANGE, I32, (N,), (1, "reduce"))
    i = loop(0, 4)
    p = program(kernel(store(param(0, 4), i, reduce(Op.MAX, load(param(1, 36), i * 9 + k), k))))
    assert p.whole is not None
    ((plan, _),) = p.whole.parts
    (limit,) = plan.dims.limits
    assert plan.dims.extent[limit] == 9
    assert p.whole.taken(0, {"n": 4}) == {limit: (0, 4)}
