"""Decisions of the linear program: where a value is made, which reduces share a loop, the order around barriers and
stores.
"""

from __future__ import annotations

import itertools
import re

import pytest

from anneal.codegen import LaunchConfig, Opt, Target, run_passes
from anneal.codegen.linear import LinearProgram, linearise
from anneal.codegen.pipeline import lower, prepare
from anneal.codegen.ranges import form
from anneal.errors import CompilerError
from anneal.uop import Op, UOp, dtypes
from tests.codegen import kernels as K

LID = UOp(Op.SPECIAL, K.I32, (), ("lid", 8))
WG = UOp(Op.SPECIAL, K.I32, (), ("wg", 4))
OUT, X, Y = K.param(0, 8), K.param(1, 64), K.param(2, 64)
TILED = [Opt("LOCAL", 0, 2), Opt("LOCAL", 1, 2), Opt("TILE", 2, 2)]


def program(*stores: UOp, launch: LaunchConfig | None = None) -> LinearProgram:
    return linearise(K.sink(*stores), launch or LaunchConfig(4, 8))


def lowered(graph: UOp, *opts: Opt, target: Target | None = None) -> LinearProgram:
    found = run_passes(graph, target, opts, until="linearise").program
    assert found is not None
    return found


def lines(p: LinearProgram) -> list[str]:
    """The statements without numbers of values and operands: kind, op and depth."""
    return [re.sub(r"%\d+ = |\(.*", "", line) for line in str(p).splitlines()]


def depths(p: LinearProgram) -> dict[UOp, set[int]]:
    """How many loops are open where each node's value is made."""
    out: dict[UOp, set[int]] = {}
    for s in p.stmts:
        if s.kind == "let" and s.node is not None:
            out.setdefault(s.node, set()).add(s.depth)
    return out


def test_every_operand_is_made_before_it_is_used_in_a_block_that_is_open() -> None:
    graphs = [(K.logsumexp(6, 20), []), (K.segment_sum(5, 6, 7), []), (K.matmul(16, 16, 16), TILED)]
    for graph, opts in graphs:
        open_blocks: list[set[int]] = [set()]
        for s in lowered(graph, *opts).stmts:
            known = set().union(*open_blocks)
            assert all(o in known for o in s.src if isinstance(o, int)), s
            if s.kind == "end":
                open_blocks.pop()
            elif s.kind == "for":
                open_blocks.append({s.number})
            else:
                open_blocks[-1].add(s.number)
            assert s.depth == len(open_blocks) - 1 - (s.kind == "for")


# -- values -----------------------------------------------------------------------------------------------------------


def test_a_value_is_made_in_the_outermost_loop_that_knows_its_ranges() -> None:
    j, k = K.over(4, 1), K.over(5, 2)
    fixed, outer, inner = Op.EXP(K.load(Y, LID)), Op.SIN(K.load(X, j * 8 + LID)), K.load(Y, j * 5 + k)
    found = depths(program(K.store(OUT, LID, K.reduce(Op.MAX, fixed * outer * inner, j, k))))
    assert found[fixed] == {0}
    assert found[outer] == {1}
    assert found[inner] == found[fixed * outer * inner] == {2}
    assert found[fixed * outer] == {1}


def test_a_shared_value_is_made_once() -> None:
    x = K.load(X, LID)
    p = program(K.store(OUT, LID, Op.EXP(x) + x), K.store(Y, LID, Op.EXP(x)))
    assert lines(p).count("let LOAD") == lines(p).count("let EXP") == 1


def test_constants_and_memory_are_no_statements() -> None:
    p = program(K.store(OUT, 3, K.load(X, 5) * 2.0))
    assert str(p).splitlines() == ["%1 = let LOAD(p1, 5)", "%2 = let MUL(%1, 2.0)", "store STORE(p0, 3, %2)"]


# -- loops ------------------------------------------------------------------------------------------------------------


def test_reduces_over_the_same_ranges_that_do_not_need_each_other_share_a_loop() -> None:
    k = K.over(4, 1)
    x = K.load(X, LID * 4 + k)
    p = program(K.store(OUT, LID, K.reduce(Op.ADD, x, k) + K.reduce(Op.MAX, x, k)))
    assert lines(p).count("for RANGE") == 1
    assert [s.src[0].arg for s in p.stmts if s.kind == "acc" and isinstance(s.src[0], UOp)] == [0.0, -float("inf")]
    assert lines(p).count("  let LOAD") == 1


def test_a_reduce_that_needs_another_has_a_loop_of_its_own() -> None:
    # logsumexp's two reduces, over one range of the same length.
    k = K.over(4, 1)
    x = K.load(X, LID * 4 + k)
    top = K.reduce(Op.MAX, x, k)
    p = program(K.store(OUT, LID, K.reduce(Op.ADD, Op.EXP(x - top), k)))
    assert lines(p).count("for RANGE") == 2
    assert lines(p).count("  let LOAD") == 2, "each loop loads for itself"
    # also where the first one is stored beside it
    beside = program(K.store(OUT, LID, K.reduce(Op.ADD, Op.EXP(x - top), k) * top), K.store(Y, LID, top))
    assert lines(beside).count("for RANGE") == 2
    assert [s.node.arg for s in beside.stmts if s.kind == "update" and s.node is not None] == [Op.MAX, Op.ADD]


def test_reduces_over_other_ranges_have_loops_of_their_own() -> None:
    k, r = K.over(4, 1), K.over(4, 2)
    p = program(K.store(OUT, LID, K.reduce(Op.ADD, K.load(X, k), k) + K.reduce(Op.ADD, K.load(Y, r), r)))
    assert lines(p).count("for RANGE") == 2


def test_a_reduce_within_a_loop_starts_anew_in_each_iteration() -> None:
    j, k = K.over(4, 1), K.over(5, 2)
    inner = K.reduce(Op.MAX, K.load(X, j * 5 + k), k)
    p = program(K.store(OUT, LID, K.reduce(Op.ADD, inner, j)))
    assert [(s.kind, s.depth) for s in p.stmts if s.kind in ("acc", "for")] == [
        ("acc", 0), ("for", 0), ("acc", 1), ("for", 1)
    ]  # fmt: skip


def test_a_sum_of_float_products_is_updated_by_both_factors() -> None:
    k = K.over(4, 1)

    def operands(op: Op, dtype: object) -> int:
        a, b = (K.load(K.param(n, 8, dtype), k) for n in (1, 2))  # type: ignore[arg-type]
        p = program(K.store(K.param(0, 8, a.dtype), LID, K.reduce(op, a * b, k)))
        return next(len(s.src) - 1 for s in p.stmts if s.kind == "update")

    assert operands(Op.ADD, dtypes.float32) == 2, "one fma"
    assert operands(Op.MAX, dtypes.float32) == operands(Op.ADD, dtypes.int32) == 1


def test_unrolled_iterations_load_one_by_one_in_their_order() -> None:
    p = lowered(K.column_reduce(Op.ADD, 16, 8), Opt("LOCAL", 0, 8), Opt("UNROLL", 1, 4))
    body = [line.strip() for line in lines(p) if line.startswith("  ") and ("LOAD" in line or "update" in line)]
    assert body == ["let LOAD", "update REDUCE"] * 4
    loads = [s for s in p.stmts if s.node is not None and s.node.op is Op.LOAD]
    assert [s.src[1] for s in p.stmts if s.kind == "update"] == [s.number for s in loads]
    assert [form(s.node.src[1])[1] for s in loads if s.node is not None] == [0, 8, 16, 24]


def test_a_data_dependent_trip_count_is_loaded_before_its_loop() -> None:
    k = K.over(K.load(K.param(3, 9, K.I32), LID), 1)
    p = program(K.store(OUT, LID, K.reduce(Op.ADD, K.load(X, k), k)))
    assert lines(p)[:4] == ["let SPECIAL lid", "acc REDUCE", "let LOAD", "for RANGE"]
    assert next(s.src for s in p.stmts if s.kind == "for") == (3,)


# -- predicates -------------------------------------------------------------------------------------------------------


def test_threads_that_no_store_wants_leave_before_anything_is_loaded() -> None:
    inside = WG * 8 + LID < 30
    p = program(K.store(OUT, LID, K.load(X, LID), inside), K.store(Y, LID, K.load(X, LID + 1), inside & (LID < 3)))
    assert lines(p).index("guard") < lines(p).index("let LOAD")
    stores = [s for s in p.stmts if s.kind == "store"]
    assert [len(s.src) for s in stores] == [3, 4], "the predicate of one store alone stays with it"


def test_a_predicate_that_reads_memory_is_no_guard() -> None:
    p = program(K.store(OUT, LID, K.load(X, LID), K.load(Y, LID) < 1.0))
    assert "guard" not in lines(p)
    assert len(p.stmts[-1].src) == 4


def test_where_threads_meet_only_a_whole_workgroup_leaves() -> None:
    group = K.loop(8, 5, "group")
    total = K.reduce(Op.ADD, K.load(X, LID), group)
    launch = LaunchConfig(4, 8, 8)
    whole = program(K.store(OUT, WG, total, (WG < 3) & LID.eq(0)), launch=launch)
    assert lines(whole).count("guard") == 1
    assert [s.src for s in whole.stmts if s.kind == "guard"] == [(2,)]
    assert str(whole).splitlines()[1] == "%2 = let LT(%1, 3)"
    assert len(whole.stmts[-1].src) == 4, "the thread that stores is chosen at the store"
    assert "guard" not in lines(program(K.store(OUT, WG, total, LID.eq(0)), launch=launch))


def test_a_store_that_is_never_made_is_left_out_with_its_loads() -> None:
    never, always = (UOp(Op.CONST, dtypes.bool_, (), v) for v in (False, True))
    p = program(K.store(OUT, LID, K.load(X, LID), never), K.store(Y, LID, LID.cast(K.F32), always))
    assert [len(s.src) for s in p.stmts if s.kind == "store"] == [3]
    assert "let LOAD" not in lines(p)


# -- stores -----------------------------------------------------------------------------------------------------------


def test_every_load_comes_before_every_store() -> None:
    a, b = K.load(OUT, LID), K.load(Y, LID)
    p = program(K.store(OUT, LID, b), K.store(Y, LID, a))
    assert [line for line in lines(p) if "LOAD" in line or "STORE" in line] == ["let LOAD"] * 2 + ["store STORE"] * 2


def test_stores_of_a_fused_reduce_stand_in_its_loop_and_others_after_it() -> None:
    j = K.over(4, 1)
    x = K.load(X, LID * 4 + j)
    total = K.reduce(Op.ADD, x, j)
    p = program(K.store(OUT, LID, total), K.store(Y, LID * 4 + j, x / total))
    stores = [(s.depth, s.src[0].arg[0]) for s in p.stmts if s.kind == "store" and isinstance(s.src[0], UOp)]
    assert stores == [(1, 2), (0, 0)]
    assert lines(p).count("for RANGE") == 2, "the sum is known before the first quotient"


def test_stores_after_tiles_are_batched_with_what_they_load() -> None:
    """A tiled product with an epilogue that loads: few loads are under way at a time, and each is used soon."""
    m = K.matmul(64, 64, 8)
    (store,) = m.src
    i, j = K.loop(64, 1), K.loop(64, 2)
    bias = K.load(K.param(3, 64 * 64), i * 64 + j)
    graph = K.sink(K.store(store.src[0], store.src[1], store.src[2] + bias))
    opts = [Opt("UPCAST", 0, 8), Opt("UPCAST", 1, 8), *TILED]
    runs = _epilogue(graph, opts)
    assert [line for line, _ in runs] == ["let LOAD", "store STORE"] * (len(runs) // 2)
    assert len(runs) > 2
    assert sum(n for line, n in runs if line == "store STORE") == 64
    # Where an element might be stored before it is read, all loads come first.
    mirrored = K.load(store.src[0], j * 64 + i)
    graph = K.sink(K.store(store.src[0], store.src[1], store.src[2] + mirrored))
    assert [line for line, _ in _epilogue(graph, opts)] == ["let LOAD", "store STORE"]
    # An element that is read only where it is stored does not have to wait.
    same = K.load(*store.src[:2])
    graph = K.sink(K.store(store.src[0], store.src[1], store.src[2] + same))
    assert len(_epilogue(graph, [Opt("VECTORIZE", 1, 4), Opt("UPCAST", 0, 16), Opt("UPCAST", 1, 2), *TILED])) > 2


def _epilogue(graph: UOp, opts: list[Opt]) -> list[tuple[str, int]]:
    """Loads and stores outside of loops, as many as follow each other."""
    p = lower(prepare(graph, Target()), opts, Target())
    accesses = [line for line in lines(p) if line in ("let LOAD", "store STORE")]
    return [(line, len(list(same))) for line, same in itertools.groupby(accesses)]


# -- threads that meet ------------------------------------------------------------------------------------------------


def test_shared_reduces_that_do_not_need_each_other_meet_at_the_same_barriers() -> None:
    group = K.loop(8, 5, "group")
    x = K.load(X, LID)
    top, total = K.reduce(Op.MAX, x, group), K.reduce(Op.ADD, x, group)
    p = program(K.store(OUT, WG, top + total), launch=LaunchConfig(4, 8, 8))
    at = [n for n, s in enumerate(p.stmts) if s.kind == "share"]
    assert at[1] == at[0] + 1
    needing = K.reduce(Op.ADD, Op.EXP(x - top), group)
    p = program(K.store(OUT, WG, top + needing), launch=LaunchConfig(4, 8, 8))
    at = [n for n, s in enumerate(p.stmts) if s.kind == "share"]
    assert at[1] > at[0] + 1


@pytest.mark.parametrize(("loads", "before"), [(24, 25), (25, 2)])
def test_a_few_loads_are_under_way_while_threads_wait_at_barriers(loads: int, before: int) -> None:
    group = K.loop(8, 5, "group")
    total = K.reduce(Op.ADD, K.load(X, LID), group)
    stores = [K.store(OUT, n, K.load(Y, WG + n) + total) for n in range(loads)]
    p = program(*stores, launch=LaunchConfig(4, 8, 8))
    share = next(n for n, s in enumerate(p.stmts) if s.kind == "share")
    assert sum(s.node is not None and s.node.op is Op.LOAD for s in p.stmts[:share]) == before


def test_a_shared_reduce_inside_a_loop_is_refused() -> None:
    group, k = K.loop(8, 5, "group"), K.over(4, 1)
    shared = K.reduce(Op.MAX, K.load(X, k * 8 + LID), group)
    with pytest.raises(CompilerError, match="a shared reduce stands inside a loop"):
        program(K.store(OUT, LID, K.reduce(Op.ADD, shared, k)), launch=LaunchConfig(4, 8, 8))


# -- tiles ------------------------------------------------------------------------------------------------------------


def outline(*opts: Opt) -> list[str]:
    """The statements of a tiled product that order memory, up to the end of its outer loop."""
    words = ("for", "end", "barrier", "store", "set", "acc", "update")
    found = [s for s in lines(lowered(K.matmul(8, 8, 8), *TILED, *opts)) if s.split()[0] in words]
    return found[: len(found) - 1 - found[::-1].index("end") + 1]


def test_tiles_are_filled_between_two_barriers() -> None:
    assert outline() == [
        "acc REDUCE", "for RANGE", "  store STORE", "  store STORE", "  barrier",
        "  for RANGE", "    update REDUCE", "  end", "  barrier", "end",
    ]  # fmt: skip


def test_prefetched_tiles_wait_in_variables_and_are_fetched_after_the_barrier() -> None:
    assert outline(Opt("PREFETCH", 2, 1)) == [
        "acc REDUCE", "acc LOAD", "acc LOAD", "for RANGE", "  store STORE", "  store STORE", "  barrier",
        "  set LOAD", "  set LOAD", "  for RANGE", "    update REDUCE", "  end", "  barrier", "end",
    ]  # fmt: skip


def test_double_buffering_saves_the_second_barrier() -> None:
    one, two = outline(Opt("PREFETCH", 2, 1)), outline(Opt("PREFETCH", 2, 2))
    assert two == [*one[:-2], "end"]
    single, double = (lowered(K.matmul(8, 8, 8), *TILED, Opt("PREFETCH", 2, n)) for n in (1, 2))
    assert double.shared_bytes == 2 * single.shared_bytes


def test_the_first_tiles_are_fetched_before_the_loop_and_the_last_ones_again() -> None:
    p = lowered(K.matmul(8, 8, 8), *TILED, Opt("PREFETCH", 2, 1))
    (loop,) = [s.number for s in p.stmts if s.kind == "for" and s.depth == 0]
    following = [s for s in p.stmts if s.node is not None and s.node.op is Op.MIN and s.depth == 1]
    assert [s.src[1].arg for s in following if isinstance(s.src[1], UOp)] == [3], "of four iterations"
    assert loop not in [o for s in p.stmts if s.kind == "acc" for o in s.src]


# -- facts of a program -----------------------------------------------------------------------------------------------


def test_parameters_are_in_slot_order_and_know_whether_they_are_written() -> None:
    p = program(K.store(K.param(3, 8), LID, K.load(X, LID)), K.store(OUT, LID, K.load(OUT, LID)))
    assert [(x.slot, x.written) for x in p.params] == [(0, True), (1, False), (3, True)]


def test_vectors_and_sub_word_stores_are_facts_of_memory() -> None:
    bytes_ = (K.param(0, 64, dtypes.int8), K.param(1, 64, dtypes.int8))
    i = K.loop(64, 0)
    graph = K.sink(UOp(Op.STORE, dtypes.int8, (bytes_[0], i, K.load(bytes_[1], i))))
    vectors = lowered(graph, Opt("VECTORIZE", 0, 4))
    assert {u.arg[0]: n for u, n in vectors.wide.items()} == {0: 4, 1: 4}
    assert not vectors.sub_word
    scalars = lowered(graph, Opt("LOCAL", 0, 4))
    assert not scalars.wide
    assert {u.arg[0] for u in scalars.sub_word} == {0}, "another thread may write the rest of the word"
    load = next(s.node for s in vectors.stmts if s.node is not None and s.node.op is Op.LOAD)
    assert (vectors.width(load), scalars.width(load)) == (4, 1)


def test_workgroup_memory_counts_tiles_and_partial_results() -> None:
    assert lowered(K.matmul(8, 8, 8)).shared_bytes == 0
    shared = lowered(K.logsumexp(8, 32), Opt("GROUP", 1, 8), Opt("GROUP", 2, 8))
    assert shared.shared_bytes == 2 * 8 * 4
    tiled = lowered(K.matmul(8, 8, 8), *TILED)
    assert tiled.shared_bytes == 4 * sum(t.arg[1][0] for t in tiled.tiles)
    assert [t.arg[0] for t in tiled.tiles] == [0, 1]


def test_variables_are_in_the_order_of_their_names() -> None:
    n, m = (UOp(Op.VARIABLE, K.I32, (), (name, 1, 8)) for name in ("n", "m"))
    p = program(K.store(OUT, LID, K.load(X, LID * n + m)))
    assert [v.arg[0] for v in p.variables] == ["m", "n"]
