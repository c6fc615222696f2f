"""The decisions of fusion one by one: on a graph of a few nodes, what is materialised, and why; which kernels join.

Every case stands beside one that differs in what the decision looks at alone, and is decided the other way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anneal.schedule import CostModel, Schedule, donate, graph, plan_for, run_passes
from anneal.schedule.fusion import Reason, refusals
from anneal.schedule.plan import parametrise
from anneal.uop import MOVEMENT, Op, UOp, const, dtypes

from .build import F32, buffer, expand, matmul, permute, reduce, reshape, softmax

I32 = dtypes.int32
Graph = Callable[[], list[UOp]]


def scheduled(outputs: list[UOp], until: str, **prices: int | bool) -> Schedule:
    return run_passes(parametrise(graph(outputs))[0], CostModel(**({"max_buffers": 16} | prices)), until)  # type: ignore[arg-type]


def materialised(outputs: list[UOp], **prices: int | bool) -> set[tuple[str, Reason]]:
    """The materialised nodes that are no outputs: the op below all movement, and the reason."""
    found = scheduled(outputs, "materialisation", **prices).materialised
    return {(below(u).op.name, reason) for u, reason in found.items() if reason is not Reason.OUTPUT}


def below(u: UOp) -> UOp:
    while u.op in MOVEMENT:
        u = u.src[0]
    return u


def scalar(u: UOp) -> UOp:
    return reshape(u)


def row(u: UOp, *axes: int) -> UOp:
    return reduce(u, Op.ADD, *(axes or (1,)))


def number(x: float) -> UOp:
    return const(F32, x)


def dear(u: UOp, ops: int = 6) -> UOp:
    for _ in range(ops):
        u = Op.EXP(u)
    return u


def gather(table: UOp, index: UOp) -> UOp:
    return UOp(Op.GATHER, F32, (table, index), 0)


def padded(u: UOp) -> UOp:
    return UOp(Op.PAD, F32, (u,), ((0, 0), (1, 0)))


# -- elementwise, reductions, movement -------------------------------------------------------------------------------


def test_elementwise_work_is_fused_into_the_reduction_that_reads_it() -> None:
    assert materialised([row(dear(buffer(8, 64)))]) == set()


def test_a_reduction_is_not_fused_into_another_reduction() -> None:
    x = Op.EXP(row(buffer(8, 64)))
    assert materialised([row(x, 0)]) == {("EXP", Reason.REDUCED)}


def test_elementwise_work_is_the_epilogue_of_the_reduction_that_it_reads() -> None:
    assert materialised([dear(row(buffer(8, 64)))]) == set()


def test_the_result_of_a_reduction_stays_in_a_register_only_if_its_ways_meet() -> None:
    r = row(buffer(8, 64))
    a, b = Op.EXP(r), Op.SIN(r)
    assert materialised([a * b]) == set()
    assert materialised([a, b]) == {("REDUCE_AXIS", Reason.FORKED)}
    assert materialised([a * b], epilogue_steps=1) == {("REDUCE_AXIS", Reason.FORKED)}


def test_of_two_reductions_that_meet_one_goes_on() -> None:
    long, short = row(buffer(8, 128)), row(buffer(8, 64))
    s = scheduled([long + short], "materialisation")
    [kept] = [u for u, reason in s.materialised.items() if reason is Reason.SECOND_REDUCTION]
    assert kept.src[0].shape == (8, 64), "the longer one goes on"
    late = row(expand(Op.EXP(row(buffer(8, 64))), 8, 64) * buffer(8, 64))
    s = scheduled([late + long], "materialisation", concurrent=True)
    [kept] = [u for u, reason in s.materialised.items() if reason is Reason.SECOND_REDUCTION]
    assert kept.src[0].shape == (8, 128), "where kernels run side by side, the one that is known last"


def test_a_value_that_is_repeated_is_computed_again_only_if_that_is_next_to_free() -> None:
    x, v = buffer(64, 8), buffer(1, 8)
    assert materialised([x * expand(v * 2.0, 64, 8)]) == set()
    assert materialised([x * expand(Op.EXP(v), 64, 8)]) == {("EXP", Reason.REPEATED)}
    assert materialised([x * expand(Op.EXP(v), 64, 8)], expand_cost=6) == set()


def test_a_value_of_indices_alone_may_cost_more_where_masks_are_told() -> None:
    i = reshape(UOp(Op.IOTA, I32, (), (8,)), 1, 8)
    even = Op.LT(i % 2, i)  # 4: a remainder and a comparison
    mask = UOp(Op.EXPAND, dtypes.bool_, (even,), (64, 8))
    x = mask.where(buffer(64, 8), 0.0)
    assert materialised([x]) == {("LT", Reason.REPEATED)}
    assert materialised([x], masks=True) == set()


def test_a_scalar_is_not_computed_for_every_element() -> None:
    total = scalar(reduce(buffer(8, 64), Op.ADD, 0, 1))
    assert materialised([buffer(8, 64) * total]) == {("REDUCE_AXIS", Reason.SCALAR)}
    one = scalar(buffer(1))
    assert materialised([buffer(8, 64) * Op.EXP(one)]) == {("EXP", Reason.SCALAR)}
    assert materialised([buffer(8, 64) * (one + 1.0)]) == set()


def test_the_result_of_a_reduction_is_not_padded_in_its_kernel() -> None:
    x = buffer(8, 64)
    assert materialised([padded(dear(x))]) == set()
    assert materialised([padded(row(x))]) == {("REDUCE_AXIS", Reason.PADDED)}


# -- rows ------------------------------------------------------------------------------------------------------------


def test_reductions_of_rows_are_fused_into_their_consumers_loop_up_to_a_length() -> None:
    x = buffer(8, 64)
    assert materialised([softmax(x)], row_fusion=64) == set()
    found = materialised([softmax(x)], row_fusion=63)
    assert found == {("REDUCE_AXIS", Reason.REPEATED)}


def test_a_contraction_is_no_row() -> None:
    """Its body is more than twice as large as each value that it reads."""

    def centred(x: UOp) -> list[UOp]:
        products = expand(x, 8, 8, 16) * expand(buffer(1, 8, 16), 8, 8, 16)
        return [products - expand(reduce(products, Op.ADD, 2), 8, 8, 16)]

    assert materialised(centred(buffer(8, 8, 16)), row_fusion=64) == set()
    assert materialised(centred(buffer(8, 1, 16)), row_fusion=64) == {("REDUCE_AXIS", Reason.REPEATED)}


def test_a_kernel_of_rows_has_no_other_reductions() -> None:
    x = buffer(8, 64)
    rows = x - expand(reduce(x, Op.MAX, 1), 8, 64)
    across = reshape(row(buffer(32, 8, 64), 0), 8, 64)
    assert materialised([rows * across], row_fusion=64) == {("REDUCE_AXIS", Reason.NO_ROW)}
    assert materialised([rows * buffer(8, 64)], row_fusion=64) == set()


def test_elements_of_rows_are_kept_for_a_reduction_across_rows() -> None:
    """Else each column would compute the largest of every row again; whole rows are reduced in one kernel."""

    def less(x: UOp) -> UOp:
        return x - expand(reduce(x, Op.MAX, 1), 8, 64)

    x = buffer(8, 64)
    assert materialised([row(less(x), 0)], row_fusion=64) == {("SUB", Reason.ACROSS_ROWS)}
    assert materialised([row(less(x), 1)], row_fusion=64) == set()
    assert materialised([row(permute(less(x), 1, 0), 1)], row_fusion=64) == {("SUB", Reason.ACROSS_ROWS)}
    in_memory = reduce(x, Op.MAX, 1)
    found = materialised([row(x - expand(in_memory, 8, 64), 0), in_memory], row_fusion=64)
    assert Reason.ACROSS_ROWS not in {reason for _, reason in found}


def test_a_product_with_a_vector_repeats_the_row_that_a_norm_makes() -> None:
    """Each element of the matrix is read once; the row is computed in every workgroup rather than in a launch."""
    x, w = buffer(1, 64), buffer(32, 64)
    normed = x * expand(Op.RSQRT(row(x * x)), 1, 64)
    y = row(w * expand(normed, 32, 64))
    assert materialised([y], row_fusion=64, repeated_rows=32 * 64) == set()
    assert materialised([y], row_fusion=64, repeated_rows=32 * 64 - 1) == {("MUL", Reason.REPEATED)}


# -- reads in any order, memory by meaning ---------------------------------------------------------------------------


def test_a_gathers_sources_are_computed_where_it_reads_them_up_to_a_price() -> None:
    index = buffer(5, 4, dtype=I32)
    assert materialised([gather(buffer(8, 4) * 2.0, index)]) == set()
    assert materialised([gather(dear(buffer(8, 4)), index)]) == {("EXP", Reason.GATHERED)}
    assert materialised([gather(dear(buffer(8, 4)), index)], recompute_cost=36) == set()
    assert materialised([gather(reduce(buffer(8, 4, 9), Op.ADD, 2), reshape(index, 5, 4, 1))]) == {
        ("REDUCE_AXIS", Reason.GATHERED)
    }


def test_a_sort_reads_memory_and_writes_memory() -> None:
    keys = buffer(64, dtype=I32)
    order = UOp(Op.ARGSORT, I32, (keys + 1,))
    assert materialised([order + 1]) == {("CONTIGUOUS", Reason.REQUESTED), ("ARGSORT", Reason.REQUESTED)}
    assert materialised([UOp(Op.ARGSORT, I32, (keys,)) + 1]) == {("ARGSORT", Reason.REQUESTED)}


def test_a_scatter_is_a_kernel_where_the_device_has_such() -> None:
    index, value = buffer(64, dtype=I32), buffer(64, 4)
    rows = [UOp(Op.SCATTER_ADD, F32, (index, value * 2.0), (9,)) + 1.0]

    def ops(**prices: bool) -> list[Op]:
        return [u.op for u in scheduled(rows, "early-rewrites", **prices).order]

    assert Op.SCATTER_ADD not in ops()
    assert Op.ARGSORT not in ops(serial=True)
    assert materialised(rows, serial=True) == {("CONTIGUOUS", Reason.REQUESTED), ("SCATTER_ADD", Reason.REQUESTED)}


def test_a_sum_of_segments_reads_its_order_and_dear_values_from_memory() -> None:
    order, starts = buffer(64, dtype=I32), buffer(9, dtype=I32)

    def sums(value: UOp, order: UOp = order) -> list[UOp]:
        return [UOp(Op.SEGMENT_SUM, F32, (value, order, starts))]

    assert materialised(sums(buffer(64, 4))) == set()
    assert materialised(sums(buffer(64, 4) * 2.0)) == {("MUL", Reason.READ_ANYWHERE)}
    assert materialised(sums(buffer(64, 4), order + 1)) == {("ADD", Reason.READ_ANYWHERE)}


def test_contiguous_is_memory() -> None:
    x = UOp(Op.CONTIGUOUS, F32, (buffer(8, 64) * 2.0,))
    assert materialised([x + 1.0]) == {("CONTIGUOUS", Reason.REQUESTED)}


# -- limits, and values that several kernels want --------------------------------------------------------------------


def test_a_kernel_binds_no_more_buffers_than_it_may() -> None:
    def total(n: int) -> list[UOp]:
        left, right = buffer(64), buffer(64)
        for _ in range(n):
            left, right = left + buffer(64), right * buffer(64)
        return [left - right]

    assert materialised(total(2), max_buffers=7) == set()
    assert {reason for _, reason in materialised(total(2), max_buffers=6)} == {Reason.BINDINGS}


def test_a_value_that_only_sums_read_takes_no_binding_of_its_own() -> None:
    """Bindings are counted by size where a device limits it: 64 floats are four bindings of 64 bytes."""
    total = (buffer(1, 64) + buffer(1, 64)) * (buffer(1, 64) + buffer(1, 64))
    limit: dict[str, int] = {"max_buffers": 17, "binding_bytes": 64}
    assert materialised([row(total)], **limit) == set()
    assert materialised([total], **limit) == {("ADD", Reason.BINDINGS)}


def test_a_long_chain_is_cut() -> None:
    x = buffer(64)
    assert materialised([dear(x, 8)], kernel_steps=8) == set()
    assert materialised([dear(x, 10)], kernel_steps=8) == {("EXP", Reason.LONG_CHAIN)}


def test_a_value_that_several_kernels_want_is_recomputed_up_to_a_price() -> None:
    def shared(u: UOp) -> list[UOp]:
        return [row(u), row(u, 0)]

    assert materialised(shared(dear(buffer(8, 64), 5))) == set()
    assert materialised(shared(dear(buffer(8, 64), 6))) == {("EXP", Reason.SHARED)}
    assert materialised(shared(dear(buffer(8, 64), 6)), recompute_cost=36) == set()


def test_a_value_that_one_kernel_reads_at_several_places_is_recomputed_up_to_a_price() -> None:
    def neighbours(u: UOp) -> list[UOp]:
        return [Op.NEG(u) + UOp(Op.FLIP, F32, (u * 2.0,), (0,))]  # both read it in place, and meet elsewhere

    assert materialised(neighbours(dear(buffer(64), 5))) == set()
    assert materialised(neighbours(dear(buffer(64), 6))) == {("EXP", Reason.SEVERAL_PLACES)}
    x = dear(buffer(64), 6)
    assert materialised([x + Op.NEG(x)]) == set()  # one place
    across = UOp(Op.RESHAPE, F32, (dear(buffer(8, 9), 6),), (6, 12))
    assert materialised([UOp(Op.RESHAPE, F32, (Op.EXP(across),), (8, 9)) + across.src[0]]) == {
        ("EXP", Reason.SEVERAL_PLACES)
    }


def test_of_a_chain_that_several_kernels_want_its_end_alone_is_kept() -> None:
    u = dear(buffer(8, 64), 9)
    s = scheduled([row(u), row(u, 0)], "materialisation")
    [kept] = [u for u, reason in s.materialised.items() if reason is Reason.SHARED]
    assert {c.op for c in s.consumers[kept]} == {Op.REDUCE_AXIS}


def test_a_value_that_several_kernels_want_is_recomputed_up_to_a_number_of_loads() -> None:
    def shared(loads: int) -> list[UOp]:
        u = buffer(8, 64)
        for _ in range(loads - 1):
            u = u + buffer(8, 64)
        return [row(u), row(u, 0)]

    assert materialised(shared(3)) == set()
    assert materialised(shared(4)) == {("ADD", Reason.SHARED)}


def test_of_a_cast_to_more_bits_the_source_is_kept() -> None:
    half = dear(buffer(8, 64, dtype=dtypes.float16))
    wide = half.cast(F32)
    for outputs, why in (
        ([row(wide), row(wide, 0)], Reason.SHARED),
        ([buffer(9, 8, 64) * expand(reshape(wide, 1, 8, 64), 9, 8, 64)], Reason.REPEATED),
    ):
        found = scheduled(outputs, "materialisation").materialised
        assert [u.dtype for u, reason in found.items() if reason is why] == [dtypes.float16]


# -- vertical fusion -------------------------------------------------------------------------------------------------


def joined(outputs: list[UOp], **prices: int | bool) -> tuple[int, set[str]]:
    """The number of kernels, and the reasons of the refusals."""
    with refusals() as found:
        s = scheduled(outputs, "kernel-groups", **prices)
    return len(s.groups), {r.reason for r in found}


X, Y = (64, 32), (32, 64)
PRODUCT = "a matrix product or a convolution"
COLUMNS = (
    "the reader is a reduction over columns or over rows longer than {}, which uses each value several times: fused, the "
    "producer would be computed anew for each use"
)
PLACES = (
    "the reader takes the result in another order of axes: a reader joins only if it reads each element, or each row, "
    "where it is computed"
)
BUFFERS = "together they bind more than 6 buffers, the most that this device gives a kernel"
OTHERS = "another kernel reads the producer's result and makes something that the reader needs: it runs between them"
SORTED = "the producer is a sort: always a kernel of its own"
NUMBERS = (
    f"the reader is {PRODUCT}, and each of its results needs several results of the producer, {PRODUCT}: they are stored "
    "first"
)
ROWS = "the producer reduces rows of 64 and the reader rows of 32: a kernel has rows of one length"
SIZES = "the producer computes 64 values and the reader 2048: a kernel computes one size"


def epilogue() -> list[UOp]:
    h = matmul(buffer(*X), buffer(*Y))
    return [h, Op.EXP(h)]


def rows_of_one_array() -> list[UOp]:
    x = buffer(64, 32)
    y = Op.EXP(x)
    return [y, row(y)]


def other_rows() -> list[UOp]:
    y = Op.EXP(buffer(64, 32))
    return [y, row(y, 0)]


def transposed() -> list[UOp]:
    y = Op.EXP(buffer(64, 64))
    return [y, permute(y, 1, 0) + 1.0]


def many_inputs() -> list[UOp]:
    y = buffer(64) + buffer(64) + buffer(64)
    return [y, y * buffer(64) * buffer(64)]


def sorted_keys() -> list[UOp]:
    order = UOp(Op.ARGSORT, I32, (buffer(64, dtype=I32),))
    return [order, order + 1]


def two_products() -> list[UOp]:
    return [matmul(matmul(buffer(*X), buffer(*Y)), buffer(64, 64))]


def rows_of_two_lengths() -> list[UOp]:
    y = row(buffer(64, 32, 64), 2)
    return [y, row(Op.EXP(reshape(y, 64, 32)))]


def repeated_numbers() -> list[UOp]:
    y = Op.EXP(buffer(64, 1))
    return [y, expand(y, 64, 32) * buffer(64, 32)]


def reader_between() -> list[UOp]:
    """The last kernel reads the first one's result, and another's that is made of it."""
    y = Op.EXP(buffer(64, 64))
    between = matmul(y, buffer(64, 64))
    return [y, between, y + permute(between, 1, 0)]


@pytest.mark.parametrize(
    ("outputs", "prices", "kernels", "reasons"),
    [
        (epilogue, {}, 1, set()),
        (rows_of_one_array, {"row_fusion": 32}, 1, set()),
        (rows_of_one_array, {"row_fusion": 31}, 2, {COLUMNS.format(31)}),
        (other_rows, {"row_fusion": 64}, 2, {COLUMNS.format(64)}),
        (transposed, {}, 2, {PLACES}),
        (many_inputs, {"max_buffers": 7}, 1, set()),
        (many_inputs, {"max_buffers": 6}, 2, {BUFFERS}),
        (many_inputs, {"kernel_steps": 8}, 2, {"together they compute 10 nodes, and one kernel at most 8"}),
        (sorted_keys, {}, 2, {SORTED}),
        (two_products, {}, 2, {NUMBERS}),
        (rows_of_two_lengths, {"row_fusion": 64}, 2, {ROWS}),
        (repeated_numbers, {"row_fusion": 0}, 2, {SIZES}),
    ],
)
def test_a_kernel_takes_in_the_producer_of_its_input_or_says_why_not(
    outputs: Graph, prices: dict[str, int | bool], kernels: int, reasons: set[str]
) -> None:
    assert joined(outputs(), **prices) == (kernels, reasons)


def test_a_kernel_is_not_joined_around_another_one_that_stands_between() -> None:
    kernels, reasons = joined(reader_between())
    assert kernels == 3
    assert OTHERS in reasons


def test_a_product_stores_the_function_that_all_readers_make_of_it() -> None:
    def outputs(price: int = 2) -> list[UOp]:
        h = matmul(buffer(*X), buffer(*Y)) + 1.0
        f = h
        for _ in range(price):
            f = Op.SIN(f)
        return [Op.EXP(h), f * matmul(buffer(*X), buffer(*Y))]

    kept = scheduled(outputs(), "kernel-groups").materialised
    assert Reason.FUNCTION in kept.values()
    for kept in (
        scheduled(outputs(), "kernel-groups", keeps_functions=False).materialised,
        scheduled(outputs(1), "kernel-groups").materialised,
    ):
        assert Reason.FUNCTION not in kept.values()


# -- horizontal fusion -----------------------------------------------------------------------------------------------


def members(outputs: list[UOp], **prices: int | bool) -> list[int]:
    """The number of members of each kernel."""
    return [len(g.members) or 1 for g in scheduled(outputs, "kernel-groups", **prices).groups]


def test_sums_of_one_value_over_equal_ranges_are_one_body() -> None:
    x = buffer(64, 8)
    assert members([row(x, 0), row(x * x, 0)]) == [1]
    assert members([row(x), row(x * x, 0)]) == [1, 1]
    assert members([row(x, 0), row(x * x, 0)], max_buffers=2) == [1, 1]


def test_sums_over_columns_of_different_values_share_a_launch() -> None:
    sums = [row(buffer(64, 8), 0), row(buffer(64, 8), 0)]
    assert members(sums) == [2]
    assert members([row(buffer(64, 8), 0), row(buffer(32, 8), 0)]) == [1, 1], "of other ranges"


def test_products_of_matrices_with_one_vector_share_a_kernel() -> None:
    x = buffer(1, 64)
    products = [row(buffer(32, 64) * expand(x, 32, 64)) for _ in range(2)]
    assert members(products) == [1]
    assert members([row(buffer(32, 64) * expand(buffer(1, 64), 32, 64)) for _ in range(2)]) == [2], "of two vectors"


def test_elementwise_kernels_of_one_level_share_a_launch() -> None:
    small = [buffer(7) + 1.0, buffer(5) + 1.0, buffer(3) + 1.0]
    assert members(small) == [3]
    assert sorted(members(small, max_buffers=4)) == [1, 2]


def test_the_pieces_of_a_concatenation_are_members_of_the_kernel_that_stores_them() -> None:
    def pair() -> UOp:
        left, right = (matmul(buffer(4, 8), buffer(8, 8)) for _ in range(2))
        return UOp(Op.PAD, F32, (left,), ((0, 4), (0, 0))) + UOp(Op.PAD, F32, (right,), ((4, 0), (0, 0)))

    [together] = scheduled([pair()], "kernel-groups").groups
    assert together.concatenates


# -- passes before materialisation -----------------------------------------------------------------------------------


def reduces(outputs: list[UOp], until: str, **prices: int | bool) -> int:
    return sum(u.op is Op.REDUCE_AXIS for u in scheduled(outputs, until, **prices).order)


def test_a_matrix_vector_product_is_split_only_if_it_is_read_in_pieces() -> None:
    def product(*bounds: tuple[int, int]) -> list[UOp]:
        y = row(buffer(96, 64) * expand(buffer(1, 64), 96, 64))
        return [UOp(Op.SHRINK, F32, (y,), (b, (0, 1))) * 2.0 for b in bounds]

    pieces, prices = ((0, 32), (32, 96)), {"repeated_rows": 96 * 64}
    assert reduces(product(*pieces), "split-contractions", **prices) == 2
    assert reduces(product(*pieces), "split-contractions", repeated_rows=96 * 64 - 1) == 1
    assert reduces(product((0, 64), (32, 96)), "split-contractions", **prices) == 1, "they overlap"
    [whole] = [u for u in scheduled(product((0, 32)), "split-contractions", **prices).order if u.op is Op.REDUCE_AXIS]
    assert whole.src[0].size == 96 * 64, "one piece"


def test_a_long_reduction_for_few_results_is_done_in_two_stages() -> None:
    long, short = (reduce(buffer(n), Op.ADD, 0) for n in (1 << 16, (1 << 16) - 1))
    assert reduces([long], "split-reduces", parallel=512) == 2
    assert reduces([short], "split-reduces", parallel=512) == 1
    assert reduces([long], "split-reduces", parallel=0) == 1
    many = row(buffer(300, 1 << 16))
    assert reduces([many], "split-reduces", parallel=512) == 1, "its results fill more than half of the device"


def test_a_long_sort_is_done_by_radix() -> None:
    keys = UOp(Op.ARGSORT, I32, (buffer(100, dtype=I32),))

    def sorts(**prices: int) -> int:
        return sum(u.op is Op.ARGSORT for u in scheduled([keys], "early-rewrites", **prices).order)

    assert sorts(sort_by_counting=100) == 1
    assert sorts(sort_by_counting=99) == 6


def test_a_mask_is_told_where_indices_alone_decide() -> None:
    def masked(condition: Callable[[UOp, UOp], UOp]) -> list[UOp]:
        i, j = (UOp(Op.EXPAND, I32, (reshape(UOp(Op.IOTA, I32, (), (8,)), *s),), (8, 8)) for s in ((8, 1), (1, 8)))
        x = dear(condition(i, j).where(buffer(8, 8), 0.0) * 2.0, 0)
        return [row(UOp(Op.CONTIGUOUS, F32, (x,)))]

    def told(outputs: list[UOp], **prices: bool) -> bool:
        reader = scheduled(outputs, "kernel-split", **prices).cuts[-1].graph
        return reader.src[0].src[0].op is Op.WHERE

    by_index = masked(lambda i, j: Op.LT(i, j))
    by_value = masked(lambda i, j: Op.LT(buffer(8, 8, dtype=I32), j))
    assert told(by_index, masks=True)
    assert not told(by_index)
    assert not told(by_value, masks=True)


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "in_place"),
    [
        (lambda w: w * 0.5, True),
        (lambda w: UOp(Op.FLIP, F32, (w,), (0,)) * 0.5, False),
        (lambda w: permute(w, 1, 0) * 0.5, False),
        (lambda w: w - expand(reduce(w, Op.MAX, 1), *w.shape), False),
    ],
    ids=["element by element", "flipped", "transposed", "a row for each element"],
)
def test_an_output_takes_its_inputs_memory_only_if_it_reads_each_element_where_it_writes(
    update: Callable[[UOp], UOp], in_place: bool
) -> None:
    plan, _, _ = plan_for(graph([update(buffer(8, 8))]), CostModel(row_fusion=8))
    _, done = donate(plan, {plan.outputs[0]: 0})
    assert bool(done) == in_place
