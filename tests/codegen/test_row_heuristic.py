"""What the heuristic makes of rows: threads that share them, parts that stay in registers, all within the target."""

from __future__ import annotations

import math

import pytest

from anneal.codegen import Target, choose, generate, prepare
from anneal.uop import Op
from tests.codegen import kernels as K

TARGETS = (Target(), Target(max_threads=1024, workgroup_bytes=49152, subgroup=32))


@pytest.mark.parametrize("target", TARGETS, ids=("least", "large"))
@pytest.mark.parametrize("rows,columns", [(100_000, 7), (4096, 64), (768, 128), (32768, 1024), (64, 50_257), (3, 5)])
def test_rows_are_shared_by_threads_and_loaded_once(target: Target, rows: int, columns: int) -> None:
    graph = prepare(K.softmax(rows, columns), target)
    opts = {o.kind: o.amount for o in choose(graph, target)}
    kernel = generate(K.softmax(rows, columns), target)
    held = columns / opts.get("GROUP", 1) / opts.get("VECTORIZE", 1)
    assert kernel.launch.threads <= target.max_threads
    assert kernel.launch.workgroups * opts.get("LOCAL", 1) >= rows
    if held <= 64:
        assert kernel.source.count("= p1[") == math.ceil(held)


def test_rows_across_memory_put_neighbours_on_neighbouring_threads() -> None:
    # A softmax over the first axis: elements of a row lie 64 apart.
    i, j, k = K.loop(100, 0), K.loop(64, 1), K.over(100, 2)
    x = K.param(1, 6400)
    top = K.reduce(Op.MAX, K.load(x, k * 64 + j), k)
    graph = prepare(K.sink(K.store(K.param(0, 6400), i * 64 + j, K.load(x, i * 64 + j) - top)), Target())
    opts = choose(graph, Target())
    assert [(o.kind, o.axis) for o in opts[:2]] == [("FUSE_REDUCE", 0), ("LOCAL", 1)]
    assert opts[1].amount == 32


def test_a_thread_compares_with_several_results_what_it_loads() -> None:
    kinds = {o.kind: o.amount for o in choose(prepare(K.argsort(8192), TARGETS[1]), TARGETS[1])}
    assert kinds["UPCAST"] == 4
    assert kinds["GROUP"] == 32
    assert "UPCAST" not in {o.kind for o in choose(prepare(K.argsort(768), TARGETS[1]), TARGETS[1])}
