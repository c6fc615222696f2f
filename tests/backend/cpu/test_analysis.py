"""What the analysis of a kernel decides: which ranges share a dim, what an index looks like, the order of axes."""

from __future__ import annotations

import pytest

from anneal.backend.cpu.analysis import Analysis, share_ranges
from anneal.backend.cpu.index import Bounds, Dims, linear
from anneal.uop import Op, UOp, const, toposort
from tests.backend.cpu.kernels import I32, kernel, load, loop, over, param, reduce, store

M, N = 6, 8
I, J = loop(0, M), loop(1, N)
OUT, X = param(0, M * N), param(1, M * N)


def analysed(*stores: UOp) -> Analysis:
    return Analysis(kernel(*stores))


def extents(a: Analysis) -> list[int]:
    """Those of the axes, outermost first."""
    return [a.dims.extent[s] for s in a.order]


def ranges(sink: UOp) -> set[tuple[int, str]]:
    return {u.arg[:2] for u in toposort((sink,)) if u.op is Op.RANGE}


# -- ranges that become one dim ---------------------------------------------------------------------------------------


def softmax_row(top: int, total: int) -> UOp:
    """exp(x - max) / sum(exp(x - max)) over rows of N, with these reduce ranges."""
    k, l = over(top, N), over(total, N)
    best = reduce(Op.MAX, load(X, I * N + k), k)
    part = reduce(Op.ADD, Op.EXP(load(X, I * N + l) - best), l)
    return kernel(store(OUT, I * N + J, Op.EXP(load(X, I * N + J) - best) / part))


def test_a_reduce_takes_the_range_of_a_loop_of_its_extent_so_that_equal_work_is_one_node() -> None:
    shared = share_ranges(softmax_row(2, 3))
    assert ranges(shared) == {(0, "loop"), (1, "loop")}
    exponents = [u for u in toposort((shared,)) if u.op is Op.EXP]
    assert len(exponents) == 1, "of the sum and of what it divides"


def test_ranges_that_a_node_sees_together_stay_apart() -> None:
    k = over(2, N)
    both = kernel(store(param(0, N), J, reduce(Op.MAX, load(param(1, N * N), J * N + k), k)))
    assert share_ranges(both) is both
    other = kernel(store(param(0, N), J, reduce(Op.MAX, load(param(1, 5), over(2, 5)), over(2, 5))))
    assert share_ranges(other) is other, "of another extent"


def test_a_range_that_the_body_does_not_depend_on_becomes_none_that_it_does() -> None:
    k = over(2, N)  # counted, but not used: the sum is N times the value
    graph = kernel(store(param(0, N), J, reduce(Op.ADD, load(param(1, N), J), k)))
    assert share_ranges(graph) is graph


def test_two_reduces_inside_each_other_share_no_range() -> None:
    k, l = over(1, N), over(2, N)
    inner = reduce(Op.ADD, load(param(1, N * N), k * N + l), l)
    graph = kernel(store(param(0, 1), const(I32, 0), reduce(Op.MAX, inner, k)))
    assert share_ranges(graph) is graph


# -- indices ----------------------------------------------------------------------------------------------------------


def test_a_range_is_taken_apart_where_an_index_divides_it() -> None:
    r = loop(0, 12)
    a = analysed(store(param(0, 12), (r % 4) * 3 + r // 4, load(param(1, 12), r)))
    assert sorted(a.dims.extent) == [3, 4]
    (form,) = a.store_forms.values()
    assert form is not None
    assert sorted(form.dims.values()) == [1, 3]


def test_an_index_of_looked_up_numbers_has_them_as_terms() -> None:
    row = load(param(2, M, I32), I)
    a = analysed(store(OUT, I * N + J, load(X, row * N + J)))
    form = a.loads[load(X, row * N + J)].form
    assert form.nodes == {row: N}
    assert list(form.dims.values()) == [1]


def test_a_store_at_a_looked_up_place_keeps_what_is_linear_of_it() -> None:
    row = load(param(2, M, I32), I)
    a = analysed(store(OUT, row * N + J, load(X, I * N + J)))
    ((made, moved),) = a.store_forms.items()
    assert a.place(made) is None
    assert (list(moved.nodes), list(moved.dims.values())) == ([row], [1])


def test_a_store_under_a_predicate_is_made_element_by_element() -> None:
    a = analysed(store(OUT, I * N + J, load(X, I * N + J), J < 3))
    assert not a.store_forms


# -- predicates of loads ----------------------------------------------------------------------------------------------


def test_bounds_on_the_index_itself_are_a_border() -> None:
    a = analysed(store(param(0, N), J, load(param(1, N - 2), J - 1, (const(I32, 0) < J) & (J < N - 1))))
    (found,) = a.loads.values()
    assert found.predicate is None
    assert found.box == [Bounds({0: 1}, 1, N - 1)]


def test_bounds_on_a_part_of_the_index_are_a_border_of_that_part() -> None:
    a = analysed(store(OUT, I * N + J, load(X, I * N + J, J < 3)))
    (found,) = a.loads.values()
    assert found.predicate is None
    assert [b.high for b in found.box] == [3]


@pytest.mark.parametrize("predicate", [
    pytest.param(load(param(2, N, I32), J) < 3, id="data decide"),
    pytest.param((J < 3) | (const(I32, 5) < J), id="no box"),
    pytest.param(I + J < 9, id="it cuts across the index"),
])  # fmt: skip
def test_other_predicates_mask_what_was_loaded(predicate: UOp) -> None:
    a = analysed(store(OUT, I * N + J, load(X, I * N + J, predicate)))
    found = a.loads[load(X, I * N + J, predicate)]
    assert not found.box
    assert found.predicate is predicate
    assert found.form.dims, "the index stays inside the memory, so all of it can be read"


def test_what_a_predicate_keeps_from_leaving_its_memory_is_looked_up_clipped() -> None:
    predicate = load(param(2, N, I32), J) < 3
    a = analysed(store(OUT, I * N + J, load(X, I * N + J + 5, predicate)))
    found = a.loads[load(X, I * N + J + 5, predicate)]
    assert not found.form.dims
    assert list(found.form.nodes) == [I * N + J + 5]


# -- masks ------------------------------------------------------------------------------------------------------------


def test_a_node_has_the_dims_that_it_depends_on_and_a_reduce_ends_its_own() -> None:
    k = over(2, 5)
    total = reduce(Op.ADD, Op.EXP(load(param(1, M * 5), I * 5 + k)), k)
    a = analysed(store(OUT, I * N + J, total * load(param(2, N), J)))
    named = {a.dims.digits[r][0][0]: name for r, name in ((0, "i"), (1, "j"), (2, "k"))}

    def dims(u: UOp) -> str:
        return "".join(name for s, name in sorted(named.items()) if a.mask[u] >> s & 1)

    assert dims(total.src[0]) == "ik"
    assert dims(total) == "i"
    assert dims(a.stores[0].src[2]) == "ij"


def test_a_dim_of_one_value_is_no_dim() -> None:
    one = loop(1, 1)
    a = analysed(store(param(0, M), I + one, load(param(1, M), I)))
    assert extents(a) == [M]


# -- the order of axes ------------------------------------------------------------------------------------------------


def test_axes_lie_as_what_is_stored_has_them() -> None:
    assert extents(analysed(store(OUT, J * M + I, load(X, I * N + J)))) == [N, M]
    assert extents(analysed(store(OUT, I * N + J, load(X, J * M + I)))) == [M, N]


def test_several_loads_outvote_a_store() -> None:
    transposed = [load(param(n, M * N), J * M + I) for n in range(1, 6)]
    value = transposed[0]
    for x in transposed[1:4]:
        value = value + x
    assert extents(analysed(store(OUT, I * N + J, value))) == [M, N], "four against a store, which counts four times"
    assert extents(analysed(store(OUT, I * N + J, value + transposed[4]))) == [N, M]


def test_operands_of_a_product_have_no_vote() -> None:
    k = over(2, 5)
    a, b = load(param(1, 5 * M), k * M + I), load(param(2, 5 * N), k * N + J)
    found = analysed(store(OUT, I * N + J, reduce(Op.ADD, a * b, k)))
    assert extents(found)[:2] == [M, N]
    assert len(found.dots) == 1


# -- neighbours that become one dim -----------------------------------------------------------------------------------


def test_neighbours_that_every_access_walks_as_one_are_one() -> None:
    assert extents(analysed(store(OUT, I * N + J, load(X, I * N + J)))) == [M * N]
    assert extents(analysed(store(OUT, I * N + J, load(X, I * N + J) + load(param(2, N), J)))) == [M, N]


def test_a_range_that_is_a_number_stays() -> None:
    a = analysed(store(param(0, M * N, I32), I * N + J, J + load(param(1, M * N, I32), I * N + J)))
    assert extents(a) == [M, N]


def test_a_border_keeps_its_dims() -> None:
    a = analysed(store(OUT, I * N + J, load(X, I * N + J, J < 3)))
    assert extents(a) == [M, N]


def test_what_one_reduce_ends_and_not_the_other_dim_stays_apart() -> None:
    i, k = loop(0, M), over(1, N)
    total = reduce(Op.ADD, load(X, i * N + k), k)
    assert sorted(extents(analysed(store(param(0, M), i, total)))) == [M, N]
    a, b = over(0, M), over(1, N)
    whole = reduce(Op.ADD, load(X, a * N + b), a, b)
    assert extents(analysed(store(param(0, 1), const(I32, 0), whole))) == [M * N]


def test_a_kernel_over_nothing_is_not_looked_at() -> None:
    a = analysed(store(param(0, 1), loop(0, 0), load(X, loop(0, 0))))
    assert a.empty_loop
    assert not a.loads


@pytest.mark.timeout(60)
def test_parts_of_an_index_that_stand_in_it_several_times_are_looked_at_once() -> None:
    """A chain of reshapes and permutes: each index has that of the one before in two places, 2**200 in all."""
    index = load(param(1, 840, I32), loop(0, 840))
    dims = Dims()
    dims.add(0, 840)
    for step in range(200):
        index = index % (5 + step % 3) * 7 + index // (5 + step % 3)
    assert len(linear(index, dims, opaque=True).nodes) == 2
