"""Whole vectors in memory: which accesses become one, which become lanes of one, and which stay as they are."""

from __future__ import annotations

import pytest

from anneal.codegen.lanes import is_whole, memory_of, to_vectors
from anneal.uop import DType, Op, UOp, const, dtypes, toposort
from tests.codegen import kernels as K

LID = UOp(Op.SPECIAL, K.I32, (), ("lid", 8))
V = K.loop(4, 9, "vector")
OUT, X, Y = K.param(0, 256), K.param(1, 256), K.param(2, 256)


def accesses(sink: UOp) -> dict[UOp, list[UOp]]:
    """The indices of each memory."""
    out: dict[UOp, list[UOp]] = {}
    for u in toposort((sink,)):
        if u.op in (Op.LOAD, Op.STORE):
            out.setdefault(memory_of(u.src[0]), []).append(u.src[1])
    return out


def made(value: UOp, at: UOp = LID * 4 + V, dtype: DType = dtypes.float32) -> dict[UOp, list[UOp]]:
    return accesses(to_vectors(K.sink(UOp(Op.STORE, dtype, (K.param(0, 256, dtype), at, value)))))


def test_aligned_neighbours_are_whole_vectors_counted_in_vectors() -> None:
    found = made(K.load(X, LID * 4 + V + 8))
    assert found[OUT] == [UOp(Op.LANES, K.I32, (LID, V))]
    assert found[X] == [UOp(Op.LANES, K.I32, (LID + 2, V))]


@pytest.mark.parametrize(
    "index", [LID * 4 + V + 1, LID * 3 + V, LID * 4 + V * 2, LID + V * 8, (LID + V) % 7], ids=lambda i: str(i.op)
)
def test_accesses_that_are_not_aligned_or_not_to_neighbours_stay(index: UOp) -> None:
    found = made(K.load(X, index))
    assert found[X] == [index]
    assert is_whole(found[OUT][0]), "each memory is decided by itself"


def test_an_access_under_a_predicate_of_lanes_stays() -> None:
    assert made(K.load(X, LID * 4 + V, V < 3))[X] == [LID * 4 + V]
    assert is_whole(made(K.load(X, LID * 4 + V, LID < 3))[X][0]), "all lanes or none"


def test_a_scalar_of_memory_in_vectors_is_a_lane_of_one() -> None:
    graph = K.sink(K.store(OUT, LID * 4 + V, K.load(X, LID * 4 + V) + K.load(X, LID * 4 + 6)))
    out = to_vectors(graph)
    (lane,) = [u for u in toposort((out,)) if u.op is Op.LANE]
    assert lane.arg == 2
    assert lane.src[0].src[1] is UOp(Op.LANES, K.I32, (LID + 1, V))


def test_scalar_stores_to_memory_in_vectors_go_to_lanes() -> None:
    stores = [K.store(OUT, LID * 4 + V, K.load(X, LID * 4 + V)), K.store(OUT, LID * 4 + 129, K.load(X, LID * 4))]
    found = accesses(to_vectors(K.sink(*stores)))
    assert found[OUT] == [UOp(Op.LANES, K.I32, (LID, V)), UOp(Op.LANES, K.I32, (LID + 32, const(K.I32, 1)))]


def test_four_neighbours_that_four_loads_read_are_lanes_of_a_vector() -> None:
    value = K.load(X, LID * 4)
    for n in range(1, 4):
        value = value + K.load(X, LID * 4 + n)
    out = to_vectors(K.sink(K.store(OUT, LID, value)))
    assert [u.arg for u in toposort((out,)) if u.op is Op.LANE] == [0, 1, 2, 3]
    assert len({u for u in toposort((out,)) if u.op is Op.LOAD}) == 1
    three = value.src[0]
    graph = K.sink(K.store(OUT, LID, three))
    assert to_vectors(graph) is graph, "of three elements a vector would read one too many"


def test_each_lane_of_a_transposed_load_takes_a_lane_of_a_vector_of_its_own() -> None:
    whole = K.load(X, LID * 4 + V)
    apart = K.load(X, LID + V * 8 + 128 - LID + 2)
    out = to_vectors(K.sink(K.store(OUT, LID * 4 + V, whole + apart)))
    load = next(u for u in toposort((out,)) if u.op is Op.LOAD and not is_whole(u.src[1]))
    assert load.arg == 2
    assert load.src[1] is V * 2 + 32


def test_memory_with_sub_word_stores_is_not_in_vectors() -> None:
    dtype = dtypes.int8
    x = K.param(1, 256, dtype)
    whole = made(K.load(x, LID * 4 + V), dtype=dtype)
    assert is_whole(whole[x][0])
    apart = made(K.load(x, LID * 4 + V), at=LID + V * 8, dtype=dtype)
    assert apart[K.param(0, 256, dtype)] == [LID + V * 8]
    assert is_whole(apart[x][0]), "what is only read may still be"


def test_memory_that_is_read_whole_and_has_sub_word_stores_is_read_by_elements() -> None:
    memory = K.param(0, 256, dtypes.int8)
    whole = LID * 4 + V
    graph = K.sink(
        UOp(Op.STORE, dtypes.int8, (memory, LID + V * 8, K.load(K.param(1, 256, dtypes.int8), whole))),
        UOp(Op.STORE, dtypes.float32, (K.param(2, 256), whole, K.load(memory, whole).cast(K.F32))),
    )
    found = accesses(to_vectors(graph))
    assert sorted(found[memory], key=lambda u: u.key) == sorted([whole, LID + V * 8], key=lambda u: u.key)
    four = sum([K.load(memory, LID * 4 + n) for n in range(1, 4)], K.load(memory, LID * 4)).cast(K.F32)
    graph = K.sink(graph.src[0], UOp(Op.STORE, dtypes.float32, (K.param(2, 256), LID, four)))
    assert not any(is_whole(index) for index in accesses(to_vectors(graph))[memory])


def test_pairs_of_bytes_are_no_whole_words() -> None:
    pair = K.loop(2, 9, "vector")
    x = K.param(1, 256, dtypes.int8)
    graph = K.sink(UOp(Op.STORE, dtypes.float32, (OUT, LID * 2 + pair, K.load(x, LID * 2 + pair).cast(K.F32))))
    found = accesses(to_vectors(graph))
    assert found[x] == [LID * 2 + pair]
    assert is_whole(found[OUT][0])
