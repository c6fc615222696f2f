"""Opts as values: what they do to ranges, what they refuse, and the launch that follows."""

from __future__ import annotations

import pytest

from anneal.codegen import Opt, Target, apply_opts, axes_of, choose, generate, grid, kernel_info, prepare
from anneal.codegen.hardware import to_hardware
from anneal.errors import CompilerError, DTypeError
from anneal.uop import Op, UOp, dtypes, toposort
from tests.codegen import kernels as K


def kinds(graph: UOp) -> list[tuple[str, int]]:
    ranges = sorted({u for u in toposort((graph,)) if u.op is Op.RANGE}, key=lambda r: r.arg[0])
    return [(r.arg[1], int(r.src[0].arg)) for r in ranges]


def test_opts_split_ranges_in_the_order_given() -> None:
    graph = prepare(K.matmul(64, 48, 32), Target())
    out = apply_opts(graph, [Opt("LOCAL", 1, 8), Opt("UPCAST", 0, 4), Opt("GROUP", 2, 4), Opt("UNROLL", 2, 2)])
    assert kinds(out) == [
        ("local", 8), ("upcast", 4), ("group", 4), ("unroll", 2), ("workgroup", 16), ("workgroup", 6), ("reduce", 4)
    ]  # fmt: skip


def test_axes_are_numbered_loops_first() -> None:
    axes = axes_of(K.segment_sum(5, 6, 7))
    assert [(a.is_loop, a.extent) for a in axes] == [(True, 5), (True, 6), (False, None)]


@pytest.mark.parametrize(
    ("opt", "why"),
    [
        (Opt("TWIST", 0, 2), "known: FLAT"),
        (Opt("LOCAL", 2, 2), "does not fit a reduce"),
        (Opt("GROUP", 0, 2), "does not fit a loop"),
        (Opt("LOCAL", 7, 2), "kernel with 3"),
        (Opt("UPCAST", 0, 0), "below 1"),
        (Opt("GROUP", 2, 6), "power of two"),
    ],
)
def test_opts_that_do_not_fit_say_why(opt: Opt, why: str) -> None:
    with pytest.raises(CompilerError, match=why):
        apply_opts(prepare(K.matmul(8, 9, 10), Target()), [opt])
    with pytest.raises(CompilerError, match="depends on data"):
        apply_opts(K.segment_sum(5, 6, 7), [Opt("UNROLL", 2, 2)])


def test_a_row_is_one_range_of_reduces_and_stores() -> None:
    graph = prepare(K.softmax(64, 100), Target())
    out = apply_opts(graph, [Opt("FUSE_REDUCE", 1, 1), Opt("GROUP", 1, 8), Opt("UNROLL", 1, 4)])
    assert kinds(out) == [("group", 8), ("unroll", 4), ("workgroup", 64), ("reduce", 4)]
    source = generate(
        K.softmax(64, 100), Target(), [Opt("FUSE_REDUCE", 1, 1), Opt("GROUP", 1, 32), Opt("UNROLL", 1, 4)]
    ).source
    assert source.count("= p1[") == 4, "each thread loads its part of the row once"
    for graph, opt in ((K.transpose(8, 8), Opt("FUSE_REDUCE", 1, 1)), (K.matmul(8, 9, 8), Opt("FUSE_REDUCE", 0, 1))):
        with pytest.raises(CompilerError, match="no reduce can run over this range"):
            apply_opts(prepare(graph, Target()), [opt])


def test_a_row_summed_for_each_of_its_elements_is_no_row() -> None:
    j, k, n = K.loop(3, 0), K.over(4, 1), K.over(3, 2)
    x = K.param(1, 12)
    total = K.reduce(Op.ADD, K.load(x, k * 3 + j) * K.reduce(Op.ADD, K.load(x, k * 3 + n), n), k)
    graph = prepare(K.sink(K.store(K.param(0, 3), j, total)), Target())
    with pytest.raises(CompilerError, match="no reduce can run over this range"):
        apply_opts(graph, [Opt("FUSE_REDUCE", 0, 1)])


def test_launch_of_a_tiled_product() -> None:
    graph = prepare(K.matmul(64, 48, 32), Target())
    _, launch = to_hardware(apply_opts(graph, [Opt("LOCAL", 1, 8), Opt("LOCAL", 0, 8), Opt("GROUP", 2, 4)]))
    assert (launch.workgroups, launch.threads, launch.group, launch.group_stride) == (8 * 6, 256, 4, 64)


@pytest.mark.parametrize("count", [0, 1, 65535, 65536, 131071, 70_001, 65535 * 65535, 65535 * 65535 + 1])
def test_grid_holds_every_workgroup_within_the_limit(count: int) -> None:
    x, y, z = grid(count)
    assert max(x, y, z) <= 65535
    assert x * y * z >= count
    assert (x - 1) * y * z < max(count, 1)
    with pytest.raises(CompilerError):
        grid(100, 2)


def test_heuristic_shares_long_reduces_and_tiles_products() -> None:
    def chosen(graph: UOp) -> set[str]:
        return {o.kind for o in choose(prepare(graph, Target()), Target())}

    assert chosen(K.elementwise(100, 100)) == {"FLAT"}
    assert chosen(K.elementwise(1000, 1000)) == {"FLAT", "VECTORIZE"}
    assert chosen(K.row_reduce(Op.ADD, 1, 65536)) == {"GROUP", "UNROLL", "VECTORIZE"}
    assert chosen(K.column_reduce(Op.ADD, 2048, 128)) == {"GROUP", "LOCAL", "UNROLL"}
    # A column sum with a factor per row goes down the columns all the same.
    j, k = K.loop(128, 0), K.over(768, 1)
    weighted = K.load(K.param(1, 768 * 128), k * 128 + j) * K.load(K.param(2, 768), k)
    graph = prepare(K.sink(K.store(K.param(0, 128), j, K.reduce(Op.ADD, weighted, k))), Target())
    assert choose(graph, Target())[:2] == (Opt("VECTORIZE", 0, 4), Opt("LOCAL", 0, 2))
    tiled = {"VECTORIZE", "LOCAL", "UPCAST", "UNROLL", "TILE", "PREFETCH"}
    assert chosen(K.matmul(1024, 1024, 256)) == tiled
    assert chosen(K.matmul(32, 32, 512)) == tiled | {"GROUP"}
    assert chosen(K.padded_conv(100, 3)) == {"UNROLL", "FLAT"}


def test_heuristic_stays_within_the_target() -> None:
    for target in (Target(), Target(max_threads=128, workgroup_bytes=4096)):
        for graph in (
            K.matmul(512, 512, 512),
            K.matmul(32, 32, 2048),
            K.row_reduce(Op.ADD, 1, 100_000),
            K.logsumexp(3, 5000),
        ):
            k = generate(graph, target)
            assert k.launch.threads <= target.max_threads
            shared = sum(
                int(line.split(",")[-1].strip(" >;")) * (16 if "vec4" in line else 4)
                for line in k.source.splitlines()
                if "<workgroup>" in line
            )
            assert shared <= target.workgroup_bytes


def test_text_is_the_same_for_graphs_built_anew() -> None:
    first = generate(K.logsumexp(33, 44)).source
    assert generate(K.logsumexp(33, 44)).source == first


def test_dtypes_the_target_lacks_are_refused_by_name() -> None:
    for dtype in (dtypes.float64, dtypes.int64):
        with pytest.raises(DTypeError, match=rf"{dtype.name}.*device 'cpu'"):
            generate(K.row_reduce(Op.ADD, 2, 3, dtype))
    with pytest.raises(DTypeError, match="shader-f16"):
        generate(K.row_reduce(Op.ADD, 2, 3, dtypes.float16), Target(f16=False))


def test_estimates_of_work() -> None:
    info = kernel_info(K.matmul(8, 9, 10))
    assert info.flops == 2 * 8 * 9 * 10 + 8 * 9
    assert info.bytes_read == 4 * (80 + 90)
    assert info.bytes_written == 4 * 72


def test_unused_and_empty_loops() -> None:
    empty = K.sink(K.store(K.param(0, 0), K.loop(0, 0), K.load(K.param(1, 4), 0)))
    assert generate(empty).launch.workgroups == 0
    nothing = K.row_reduce(Op.ADD, 3, 0)
    assert "k0 < 0i" in generate(nothing).source


def test_a_reduce_runs_over_one_row_only() -> None:
    i, j, k = K.loop(2, 0), K.loop(2, 1), K.over(2, 2)
    total = K.reduce(Op.ADD, K.load(K.param(1, 2), k), k)
    graph = prepare(K.sink(K.store(K.param(0, 4), j * 2 + i, total)), Target())
    apply_opts(graph, [Opt("FUSE_REDUCE", 0, 1)])
    with pytest.raises(CompilerError, match="no reduce can run over this range"):
        apply_opts(graph, [Opt("FUSE_REDUCE", 0, 1), Opt("FUSE_REDUCE", 1, 1)])
