"""What the planner decides about a kernel: which arrays there are, in which loops, and what BLAS computes."""

from __future__ import annotations

import pytest

from anneal.backend.cpu import planner
from anneal.backend.cpu.planner import make_plan
from anneal.backend.cpu.primitives import BlockLoop, CpuPlan, Pad, Product
from anneal.uop import Op, UOp, const
from tests.backend.cpu.kernels import F32, I32, kernel, load, loop, over, param, reduce, store

M, N, K = 6, 8, 5
I, J, R = loop(0, M), loop(1, N), over(2, K)
A, B = load(param(1, M * K), I * K + R), load(param(2, K * N), R * N + J)
OUT = param(0, M * N)


def planned(value: UOp, out: UOp = OUT, index: UOp = I * N + J) -> CpuPlan:
    return make_plan(kernel(store(out, index, value)))


def phases(plan: CpuPlan) -> list[str]:
    """The kind of each phase; of a loop, its instructions."""
    return [
        " ".join(i.name for i in p.instrs) if isinstance(p, BlockLoop) else type(p).__name__.lower()
        for p in plan.phases
    ]


def only(plan: CpuPlan, kind: type) -> list[object]:
    return [p for p in plan.phases if isinstance(p, kind)]


def product(plan: CpuPlan) -> Product:
    (found,) = only(plan, Product)
    assert isinstance(found, Product)
    return found


def dot(*factors: UOp) -> UOp:
    value = factors[0]
    for f in factors[1:]:
        value = value * f
    return reduce(Op.ADD, value, R)


# -- dims ----------------------------------------------------------------------------------------------------------


def test_neighbours_that_every_access_walks_as_one_are_one_dim() -> None:
    plan = planned(load(param(1, M * N), I * N + J) * 2.0)
    assert [plan.dims.extent[s] for s in plan.order] == [M * N]


def test_a_transposed_access_keeps_dims_apart_and_the_store_says_which_is_inner() -> None:
    plan = planned(load(param(1, M * N), I * N + J) * 2.0, index=J * M + I)
    assert [plan.dims.extent[s] for s in plan.order] == [N, M]


# -- reduces -------------------------------------------------------------------------------------------------------


def test_a_short_reduce_stays_in_the_loop_of_what_uses_it() -> None:
    row = over(2, N)
    plan = planned(load(param(1, M * N), I * N + J) / reduce(Op.ADD, load(param(1, M * N), I * N + row), row))
    assert phases(plan) == ["reduce_add divide"]
    (found,) = only(plan, BlockLoop)
    assert [i.fold for i in found.instrs] == [None, None]


def test_a_long_reduce_is_accumulated_in_a_loop_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "INLINE", N - 1)
    row = over(2, N)
    plan = planned(load(param(1, M * N), I * N + J) / reduce(Op.ADD, load(param(1, M * N), I * N + row), row))
    assert phases(plan) == ["reduce_add", "divide"]
    first = plan.phases[0]
    assert isinstance(first, BlockLoop)
    assert first.instrs[0].fold is not None
    assert first.instrs[0].out.kind == "full"
    assert first.instrs[0].out.size == M


def test_a_sum_that_an_outer_loop_would_repeat_is_computed_before_it() -> None:
    column = reduce(Op.ADD, load(param(1, K * N), R * N + J), R)
    assert phases(planned(column * load(param(2, M), I))) == ["reduce_add", "multiply"]
    assert phases(planned(column, param(0, N), J)) == ["reduce_add"]


# -- products ------------------------------------------------------------------------------------------------------


def test_a_sum_of_products_is_one_blas_call_into_the_output() -> None:
    plan = planned(dot(A, B))
    assert phases(plan) == ["product"]
    p = product(plan)
    assert [plan.dims.extent[s] for s in (*p.m, *p.n, *p.k)] == [M, N, K]
    assert (p.a.kind, p.b.kind, p.c.kind) == ("param", "param", "param")
    assert not plan.fulls


def test_blas_writes_rows_of_the_output() -> None:
    p = product(plan := planned(dot(A, B), index=J * M + I))
    assert [plan.dims.extent[s] for s in (*p.m, *p.n)] == [N, M]


def test_an_epilogue_works_on_the_product_where_it_lies_in_the_output() -> None:
    plan = planned(dot(A, B) + load(param(3, N), J))
    assert phases(plan) == ["product", "add"]
    assert product(plan).c.kind == "param"


def test_an_output_that_the_kernel_still_reads_is_no_place_for_a_product() -> None:
    plan = planned(dot(A, B) + load(OUT, I * N + J))
    assert product(plan).c.kind == "full"
    assert len(plan.fulls) == 1


def test_factors_that_the_sum_does_not_run_over_are_applied_afterwards() -> None:
    plan = planned(dot(A, B, load(param(3, M), I)))
    assert phases(plan) == ["product", "multiply"]


def test_an_operand_that_is_computed_is_computed_once_for_all_products() -> None:
    computed = A + 1.0
    plan = make_plan(
        kernel(
            store(OUT, I * N + J, dot(computed, B)),
            store(param(3, M * N), I * N + J, dot(computed, load(param(4, K * N), R * N + J))),
        )
    )
    assert phases(plan) == ["add", "product", "product"]
    first, second = only(plan, Product)
    assert isinstance(first, Product)
    assert isinstance(second, Product)
    assert first.a is second.a
    assert first.a.kind == "full"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(reduce(Op.MAX, A * B, R), id="a maximum"),
        pytest.param(dot(A, load(param(2, M * K), I * K + R)), id="both sides vary alike"),
        pytest.param(dot(A + B, B), id="a factor of both sides"),
    ],
)
def test_what_is_no_product_is_a_loop(value: UOp) -> None:
    assert not only(planned(value), Product)


@pytest.mark.parametrize(("rows", "columns", "blas"), [(64, 64, True), (64, 31, False), (31, 64, False)])
def test_a_matrix_vector_product_is_for_blas_from_a_size_on(rows: int, columns: int, blas: bool) -> None:
    i, k = loop(0, rows), over(1, columns)
    matrix = load(param(1, rows * columns), i * columns + k)
    plan = planned(reduce(Op.ADD, matrix * load(param(2, columns), k), k), param(0, rows), i)
    assert bool(only(plan, Product)) is blas


def test_a_matrix_that_something_else_reads_is_summed_where_that_reads_it() -> None:
    i, k = loop(0, 64), over(1, 64)
    matrix = load(param(1, 4096), i * 64 + k)
    both = reduce(Op.ADD, matrix * load(param(2, 64), k), k) + reduce(Op.MAX, matrix, k)
    assert not only(planned(both, param(0, 64), i), Product)


def heads(batch: int, time: int, count: int, width: int) -> CpuPlan:
    """A product over `width` whose rows, batch and time, are interrupted by the heads in the output."""
    b, h, t, j, k = loop(0, batch), loop(1, count), loop(2, time), loop(3, width), over(4, width)
    x = load(param(1, batch * time * width), (b * time + t) * width + k)
    w = load(param(2, count * width * width), (h * width + k) * width + j)
    size = batch * time * count * width
    out = ((b * count + h) * time + t) * width + j
    return planned(reduce(Op.ADD, x * w, k), param(0, size), out)


def test_rows_that_columns_interrupt_are_gathered_unless_the_calls_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def contiguous(plan: CpuPlan) -> bool:
        """Whether the rows of the result are one axis, and its columns too."""
        p = product(plan)
        steps = p.c.strides
        groups = ([s for s in g if plan.dims.extent[s] > 1] for g in (p.m, p.n))
        return all(steps[a] == steps[b] * plan.dims.extent[b] for g in groups for a, b in zip(g, g[1:], strict=False))

    assert contiguous(heads(3, 4, 2, 8))
    monkeypatch.setattr(planner, "SMALL_PRODUCT", 0)
    assert not contiguous(heads(3, 4, 2, 8))


# -- predicated loads ----------------------------------------------------------------------------------------------


def test_bounds_on_an_index_become_a_zero_border() -> None:
    shifted = load(param(1, N - 2), J - 1, (const(I32, 0) < J) & (J < N - 1))
    plan = planned(shifted, param(0, N), J)
    assert phases(plan) == ["pad", "copy"]
    (pad,) = only(plan, Pad)
    assert isinstance(pad, Pad)
    assert list(pad.extents.values()) == [N - 2]
    assert pad.out.size == N


def test_bounds_that_nothing_meets_leave_zeros_alone() -> None:
    plan = planned(load(param(1, N), J, J < 0), param(0, N), J)
    assert all(not p.extents for p in plan.phases if isinstance(p, Pad))


def test_a_predicate_that_data_decide_masks_what_was_loaded() -> None:
    plan = planned(load(param(1, N), J, load(param(2, N, I32), J) < 3), param(0, N), J)
    assert not only(plan, Pad)
    assert phases(plan)[-1].startswith("less mask")


def test_nothing_is_planned_for_a_loop_over_nothing() -> None:
    nobody = loop(0, 0)
    assert not make_plan(kernel(store(param(0, 1), nobody, const(F32, 1)))).phases
