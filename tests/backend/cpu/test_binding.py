"""What binding and layout decide: which calls a plan becomes on given memory, in how many blocks, on how many
workers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from anneal.backend.cpu import binding, layout
from anneal.backend.cpu.binding import BoundProgram
from anneal.backend.cpu.executor import CpuDevice
from anneal.backend.cpu.layout import CpuProgram
from anneal.backend.cpu.workers import Workers
from anneal.uop import Op, UOp
from tests.backend.cpu.kernels import F32, check, exact, filled, kernel, load, loop, over, param, reduce, store

rng = np.random.default_rng(0)


def bound(sink: UOp, *sizes: int, workers: int = 1) -> BoundProgram:
    """A kernel on float32 memory of so many elements."""
    device = CpuDevice()
    device.workers = Workers(workers)
    program = CpuProgram(sink, "test", workers)
    buffers = [device.alloc(n, F32) for n in sizes]
    return BoundProgram(program, buffers, device, {})


def calls(binder: BoundProgram) -> list[str]:
    """The names of all calls, in order."""
    return [named(f) for f, _ in binder.steps]


def named(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return str(f.__name__)


def matmul(m: int, n: int, k: int, a: str = "mk", b: str = "kn", c: str = "mn") -> UOp:
    """A product whose arrays lie as these letters say, the innermost last."""
    ranges = {"m": loop(0, m), "n": loop(1, n), "k": over(2, k)}
    size = {"m": m, "n": n, "k": k}

    def at(axes: str) -> UOp:
        outer, inner = axes
        return ranges[outer] * size[inner] + ranges[inner]

    value = load(param(1, m * k), at(a)) * load(param(2, k * n), at(b))
    return kernel(store(param(0, m * n), at(c), reduce(Op.ADD, value, ranges["k"])))


# -- operands that BLAS reads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", ["mk", "km"])
@pytest.mark.parametrize("b", ["kn", "nk"])
@pytest.mark.parametrize("c", ["mn", "nm"])
def test_matrices_that_lie_either_way_are_multiplied_as_they_are(a: str, b: str, c: str) -> None:
    assert calls(bound(matmul(6, 8, 5, a, b, c), 48, 30, 40)) == ["matmul"]


def test_a_matrix_of_every_other_column_is_copied_first() -> None:
    i, j, k = loop(0, 40), loop(1, 8), over(2, 5)
    value = load(param(1, 400), i * 10 + k * 2) * load(param(2, 40), k * 8 + j)
    sink = kernel(store(param(0, 320), i * 8 + j, reduce(Op.ADD, value, k)))
    assert calls(bound(sink, 320, 400, 40)) == ["copyto", "matmul"]
    check(sink, np.zeros(320, np.float32), exact(rng, 400), exact(rng, 40))


@pytest.mark.parametrize(("width", "inner"), [(32, "rows"), (4, "taps")])
def test_windows_are_copied_along_their_longer_rows(width: int, inner: str) -> None:
    """The columns of an image, or the places of the kernel: BLAS reads the copy either way."""
    taps, ins, outs = 5, 3, 8
    x, o, c, i = loop(0, width), loop(1, outs), over(2, ins), over(3, taps)
    size = width + taps - 1
    value = load(param(1, ins * size), c * size + x + i) * load(param(2, outs * ins * taps), (o * ins + c) * taps + i)
    sink = kernel(store(param(0, width * outs), x * outs + o, reduce(Op.ADD, value, c, i)))
    binder = bound(sink, width * outs, ins * size, outs * ins * taps)
    (copy, _) = binder.steps
    shape, strides = copy[1][0].shape, copy[1][0].strides
    rows, places = [shape.index(n) for n in (width, taps)]
    assert strides[rows if inner == "rows" else places] == 4
    check(sink, np.zeros(width * outs, np.float32), exact(rng, ins * size), exact(rng, outs * ins * taps))


def test_a_result_that_blas_cannot_write_goes_through_a_workspace() -> None:
    i, j, k = loop(0, 40), loop(1, 8), over(2, 5)
    value = load(param(1, 200), i * 5 + k) * load(param(2, 40), k * 8 + j)
    sink = kernel(store(param(0, 640), i * 16 + j * 2, reduce(Op.ADD, value, k)))
    found = calls(bound(sink, 640, 200, 40))
    assert found[0] == "matmul"
    assert found[1:] == ["copyto"]


def test_a_matrix_vector_product_lets_other_workers_run() -> None:
    i, k = loop(0, 64), over(1, 64)
    value = load(param(1, 4096), i * 64 + k) * load(param(2, 64), k)
    assert calls(bound(kernel(store(param(0, 64), i, reduce(Op.ADD, value, k))), 64, 4096, 64)) == ["dot"]


# -- large operands that have to be copied -------------------------------------------------------------------------


def strided(m: int, n: int, k: int) -> UOp:
    """A product of which the left matrix is every other column of one."""
    i, j, r = loop(0, m), loop(1, n), over(2, k)
    value = load(param(1, 2 * m * k), i * (2 * k) + r * 2) * load(param(2, k * n), r * n + j)
    return kernel(store(param(0, m * n), i * n + j, reduce(Op.ADD, value, r)))


def test_rows_are_copied_and_multiplied_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = strided(40, 8, 5)
    monkeypatch.setattr(binding, "_PIECE", 4 * 40 * 5 // 4)
    assert calls(bound(sink, 320, 400, 40)) == ["copyto", "matmul"] * 4
    check(sink, np.zeros(320, np.float32), exact(rng, 400), exact(rng, 40))


def test_pieces_along_the_sum_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows there are too few for the pieces."""
    sink = strided(2, 8, 400)
    monkeypatch.setattr(binding, "_PIECE", 4 * 2 * 400 // 4)
    found = calls(bound(sink, 16, 1600, 3200))
    assert found == ["copyto", "matmul"] + ["copyto", "matmul", "add"] * 3
    check(sink, np.zeros(16, np.float32), exact(rng, 1600), exact(rng, 3200))


# -- blocks --------------------------------------------------------------------------------------------------------


def chain(n: int) -> UOp:
    i = loop(0, n)
    return kernel(store(param(0, n), i, (load(param(1, n), i) + 1.0) * 2.0))


def test_a_chain_is_cut_into_blocks_that_fit_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 100)
    (made,) = CpuProgram(chain(950), "test")._loops()
    assert [hi - lo for b in made.blocks for lo, hi in b.values()] == [95] * 10
    assert calls(bound(chain(950), 950, 950)) == ["add", "multiply"] * 10


def test_a_single_call_without_temporaries_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 100)
    i = loop(0, 950)
    sink = kernel(store(param(0, 950), i, load(param(1, 950), i) * 2.0))
    assert calls(bound(sink, 950, 950)) == ["multiply"]


def test_what_no_block_changes_runs_once_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK", 100)
    i, j = loop(0, 50), loop(1, 20)
    row = Op.EXP(load(param(2, 20), j))
    sink = kernel(store(param(0, 1000), i * 20 + j, load(param(1, 1000), i * 20 + j) * row + 1.0))
    found = calls(bound(sink, 1000, 1000, 20))
    assert found.count("exp") == 1
    assert found.index("exp") < found.index("multiply")
    assert found.count("multiply") == 10


def test_a_reduce_over_blocks_is_written_by_the_first_and_added_to_by_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "BLOCK", 100)
    monkeypatch.setattr("anneal.backend.cpu.planner.INLINE", 100)
    k = over(0, 1000)
    sink = kernel(store(param(0, 1), loop(1, 1), reduce(Op.ADD, load(param(1, 1000), k), k)))
    found = calls(bound(sink, 1, 1000))
    assert found[:3] == ["reduce", "reduce", "add"]
    assert found.count("reduce") == found.count("add") + 1 == 10


# -- workers -------------------------------------------------------------------------------------------------------


def test_little_work_is_not_worth_a_second_worker() -> None:
    (small,) = CpuProgram(chain(1000), "test", 2)._loops()
    (large,) = CpuProgram(chain(1_000_000), "test", 2)._loops()
    assert (small.workers, large.workers) == (1, 2)


def test_every_worker_has_as_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    monkeypatch.setattr(layout, "BLOCK", 400)
    (made,) = CpuProgram(chain(1000), "test", 2)._loops()
    assert len(made.blocks) == 4


def test_a_reduce_over_blocks_belongs_to_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    monkeypatch.setattr("anneal.backend.cpu.planner.INLINE", 100)
    k = over(0, 1000)
    sink = kernel(store(param(0, 1), loop(1, 1), reduce(Op.ADD, load(param(1, 1000), k), k)))
    assert all(made.workers == 1 for made in CpuProgram(sink, "test", 2)._loops())


@pytest.mark.parametrize(("m", "n", "shapes"), [(512, 64, [(256, 64)] * 2), (4, 512, [(4, 256)] * 2)])
def test_a_product_is_split_by_rows_or_by_columns_where_those_are_far_more(
    m: int, n: int, shapes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_WORKER_NS", 0)
    binder = bound(matmul(m, n, 64), m * n, m * 64, 64 * n, workers=2)
    ((_, (parts,)),) = binder.steps
    assert [args[2].shape for part in parts for _, args in part] == shapes


def test_what_one_worker_runs_wakes_no_thread() -> None:
    i, k = loop(0, 40), over(1, 300)
    x = filled(rng, 40 * 300)
    sums = reduce(Op.ADD, load(param(1, 12000), i * 300 + k), k)
    sink = kernel(store(param(0, 40), i, sums * load(param(2, 40), i)))
    binder = bound(sink, 40, 12000, 40)
    assert "run" not in calls(binder)
    check(sink, np.zeros(40, np.float32), x, filled(rng, 40))
