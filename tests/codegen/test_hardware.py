"""Hardware indices: which range is which digit, what one thread of a group stores, and the launch that follows."""

from __future__ import annotations

import itertools

from anneal.codegen.apply import apply_opts
from anneal.codegen.hardware import LaunchConfig, to_hardware
from anneal.codegen.opts import Opt
from anneal.uop import Op, UOp, const, toposort
from tests.codegen import kernels as K
from tests.codegen.test_affine import value

X = K.param(1, 4096)


def copied(*ranges: UOp, at: UOp) -> UOp:
    return K.sink(K.store(K.param(0, 4096), at, K.load(X, at)))


def visited(sink: UOp, launch: LaunchConfig) -> list[int]:
    """The index that each thread of each workgroup stores at."""
    (store,) = sink.src
    special = {u.arg[0]: u for u in toposort((sink,)) if u.op is Op.SPECIAL}
    out = []
    for wg, lid in itertools.product(range(launch.workgroups), range(launch.threads)):
        at = {u: {"wg": wg, "lid": lid}[name] for name, u in special.items()}
        out.append(value(store.src[1], at))
    return out


def test_threads_and_workgroups_together_are_at_every_index_once() -> None:
    i, j, k = K.loop(3, 0, "workgroup"), K.loop(5, 1, "workgroup"), K.loop(4, 2, "local")
    sink, launch = to_hardware(copied(i, j, k, at=(i * 5 + j) * 4 + k))
    assert launch == LaunchConfig(15, 4)
    assert sorted(visited(sink, launch)) == list(range(60))


def test_the_last_workgroup_range_and_the_first_thread_range_vary_fastest() -> None:
    i, j = K.loop(3, 0, "workgroup"), K.loop(5, 1, "workgroup")
    sink, launch = to_hardware(copied(i, j, at=i * 5 + j))
    assert visited(sink, launch) == list(range(15)), "neighbouring workgroups are neighbours in memory"
    k, l = K.loop(4, 2, "local"), K.loop(2, 3, "local")
    sink, launch = to_hardware(copied(k, l, at=l * 4 + k))
    assert visited(sink, launch) == list(range(8)), "the opt given first varies fastest"


def test_a_range_of_one_value_is_no_index() -> None:
    i = K.loop(1, 0, "workgroup")
    sink, launch = to_hardware(copied(i, at=i + 3))
    assert launch == LaunchConfig(1, 1)
    assert not any(u.op is Op.SPECIAL for u in toposort((sink,)))
    assert sink.src[0].src[1] is const(K.I32, 3)


def test_a_group_lies_among_the_threads_and_its_first_thread_stores() -> None:
    graph = apply_opts(K.row_reduce(Op.ADD, 12, 64), [Opt("LOCAL", 0, 4), Opt("GROUP", 1, 8)])
    sink, launch = to_hardware(graph)
    assert launch == LaunchConfig(3, 32, 8, 4)
    (store,) = sink.src
    lid = next(u for u in toposort((sink,)) if u.op is Op.SPECIAL and u.arg[0] == "lid")
    first = [n for n in range(32) if value(store.src[3].src[0], {lid: n}) == 0]
    assert store.src[3].op is Op.EQ
    assert first == [0, 1, 2, 3], "those of the first group, one for each row"
    (shared,) = [u for u in toposort((sink,)) if u.op is Op.REDUCE and u.src[1].arg[1] == "group"]
    assert shared.src[1].src[0].arg == 8, "the reduce keeps its group range: it says how many threads share it"


def test_two_reduces_of_one_group_have_the_same_threads() -> None:
    graph = apply_opts(K.logsumexp(6, 64), [Opt("GROUP", 1, 8), Opt("GROUP", 2, 8)])
    sink, launch = to_hardware(graph)
    assert launch == LaunchConfig(6, 8, 8, 1)
    loads = [u for u in toposort((sink,)) if u.op is Op.LOAD]
    specials = [{x.arg for x in toposort((u.src[1],)) if x.op is Op.SPECIAL} for u in loads]
    assert specials == [{("wg", 6), ("lid", 8)}] * 2


def test_values_that_each_thread_has_of_its_own_are_stored_by_all() -> None:
    graph = apply_opts(K.softmax(4, 32), [Opt("FUSE_REDUCE", 1, 1), Opt("GROUP", 1, 8)])
    sink, _ = to_hardware(graph)
    assert [len(s.src) for s in sink.src] == [3]
    graph = apply_opts(K.softmax(4, 32, statistics=True), [Opt("FUSE_REDUCE", 1, 1), Opt("GROUP", 1, 8)])
    assert [len(s.src) for s in to_hardware(graph)[0].src] == [3, 4, 4], "a row's largest value and sum by one thread"


def test_a_symbolic_number_of_workgroups_is_launched_up_to_the_most() -> None:
    n = UOp(Op.VARIABLE, K.I32, (), ("n", 1, 40))
    i = K.loop(n, 0, "workgroup")
    _, launch = to_hardware(copied(i, at=i))
    assert (launch.workgroups, launch.needed) == (40, n)


def test_vectors_of_one_length_share_a_range() -> None:
    a, b = K.loop(4, 3, "vector"), K.loop(4, 4, "vector")
    first, second = K.load(X, a), K.load(X, b)
    sink, _ = to_hardware(K.sink(K.store(K.param(0, 8), a, first), K.store(K.param(2, 8), b, second)))
    assert sink.src[0].src[2] is sink.src[1].src[2], "equal loads are one node"
