"""MATRIX: kernels by subgroup matrices compute the same, played in NumPy, and are chosen where they may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from anneal.backend import cost_models
from anneal.codegen import (
    MatrixShape,
    Opt,
    Target,
    apply_opts,
    choose,
    decode_opts,
    encode_opts,
    generate,
    prepare,
    run_passes,
)
from anneal.errors import CompilerError
from anneal.schedule import graph, plan_for
from anneal.tensor import Tensor
from anneal.uop import Op, UOp, const
from tests.codegen import kernels as K
from tests.codegen.played import played

SHAPE = MatrixShape("float16", "float32", 16, 16, 16)
TARGET = Target(f16=True, subgroup=32, names_subgroups=True, workgroup_bytes=49152, matrices=(SHAPE,))
PLAIN = Target(f16=True, subgroup=32, names_subgroups=True, workgroup_bytes=49152)


def played_product(graph: UOp, inputs: dict[int, npt.NDArray[Any]], given: list[Opt]) -> npt.NDArray[Any]:
    program = run_passes(graph, TARGET, given, until="linearise").program
    assert program is not None
    return played(program, inputs)[0]


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (2, 2, 1, 2, 2), (1, 2, 2, 1, 1), (2, 1, 1, 1, 4)])
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("end", ["float32", "float16", "bias", "transposed"])
@pytest.mark.parametrize("buffers", [0, 1, 2])
def test_products(pieces: tuple[int, ...], across: tuple[bool, bool], end: str, buffers: int) -> None:
    """Every layout of the factors, every split, results stored as matrices or by threads."""
    rng = np.random.default_rng(3)
    m, n, k = 64, 64, 64
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    bias = rng.standard_normal(n).astype(np.float16)
    given = {1: a.T if across[0] else a, 2: b.T if across[1] else b, 3: bias}
    want = a.astype(np.float64) @ b.astype(np.float64)
    if end == "bias":
        want = np.maximum(want + bias, 0)
    prefetch = [Opt("PREFETCH", 2, buffers)] if buffers else []
    got = played_product(K.half_product(m, n, k, end, *across), given, [*K.by_matrices(0, *pieces), *prefetch]).reshape(
        m, n
    )
    np.testing.assert_allclose(got.T if end == "transposed" else got, want, rtol=1e-3, atol=2e-2)
    if end in ("float32", "transposed"):
        np.testing.assert_allclose(got.T if end == "transposed" else got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("sizes", [(65, 32, 32), (32, 33, 32), (32, 32, 40), (50, 67, 41), (72, 40, 48), (64, 36, 100)])
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("end", ["float32", "bias", "transposed"])
@pytest.mark.parametrize("buffers", [0, 1, 2])
def test_sizes_that_no_block_divides(
    sizes: tuple[int, int, int], across: tuple[bool, bool], end: str, buffers: int
) -> None:
    """Every layout and end; what is infinite is added once, and no element is stored twice."""
    rng = np.random.default_rng(3)
    m, n, k = sizes
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    a[3, 5] = a[-1, -1] = np.inf
    b[k - 2, 1], b[-9, n - 1] = np.inf, 0
    bias = rng.standard_normal(n).astype(np.float16)
    given = {1: a.T if across[0] else a, 2: b.T if across[1] else b, 3: bias}
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
        want = np.maximum(want + bias, 0) if end == "bias" else want
    prefetch = [Opt("PREFETCH", 2, buffers)] if buffers else []
    opts = [*K.by_matrices(0, 2, 1, 1, 2, 2), *prefetch]
    with np.errstate(invalid="ignore"):
        found = played_product(K.half_product(m, n, k, end, *across), given, opts)
    got = found.reshape(n, m).T if end == "transposed" else found.reshape(m, n)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)


def test_overlapping_blocks_and_memory_that_changes_in_place() -> None:
    """What a block reads for elements that it does not store another one has changed, perhaps."""
    i, j, r = K.loop(40, 0), K.loop(64, 1), K.over(32, 2)
    out = K.param(0, 40 * 64, K.F16)
    left, right = K.load(K.param(1, 40 * 32, K.F16), i * 32 + r), K.load(K.param(2, 64 * 32, K.F16), j * 32 + r)
    total = K.reduce(Op.ADD, left.cast(K.F32) * right.cast(K.F32), r)
    graph = K.sink(K.store(out, i * 64 + j, (total + K.load(out, i * 64 + j).cast(K.F32)).cast(K.F16)))
    with pytest.raises(CompilerError, match="blocks overlap"):
        played_product(graph, {}, K.by_matrices(0, 1, 2, 2, 1, 1))
    assert "MATRIX" not in kinds(graph)


def test_batches_and_a_factor_that_is_computed() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((3, 32, 48)).astype(np.float32), rng.standard_normal((3, 48, 32)).astype(np.float16)
    z, i, j, r = K.loop(3, 0), K.loop(32, 1), K.loop(32, 2), K.over(48, 3)
    left = Op.EXP(K.load(K.param(1, a.size), z * (32 * 48) + i * 48 + r)).cast(K.F16)
    right = K.load(K.param(2, b.size, K.F16), z * (32 * 48) + r * 32 + j)
    total = K.reduce(Op.ADD, right.cast(K.F32) * left.cast(K.F32), r)
    graph = K.sink(K.store(K.param(0, 3 * 32 * 32), z * 1024 + i * 32 + j, total))
    got = played_product(graph, {1: a, 2: b}, K.by_matrices(1, 1, 2, 1, 1, 1)).reshape(3, 32, 32)
    np.testing.assert_allclose(got, np.exp(a).astype(np.float16).astype(np.float64) @ b, rtol=1e-5, atol=1e-4)


def by_heads(heads: int, width: int, rows: int, columns: int, dtype: Any = K.F16) -> UOp:
    """The sum over heads and their widths of a (heads, rows, width) and b (columns, heads * width), rounded."""
    i, j, h, d = K.loop(rows, 0), K.loop(columns, 1), K.over(heads, 2), K.over(width, 3)
    left = K.load(K.param(1, heads * rows * width, K.F16), h * (rows * width) + i * width + d)
    right = K.load(K.param(2, columns * heads * width, dtype), j * (heads * width) + h * width + d).cast(K.F16)
    total = K.reduce(Op.ADD, left.cast(K.F32) * right.cast(K.F32), h, d)
    return K.sink(K.store(K.param(0, rows * columns), i * columns + j, total.cast(K.F16).cast(K.F32)))


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (2, 1, 1, 2, 2)])
@pytest.mark.parametrize("dtype", [K.F16, K.F32])
def test_a_sum_over_several_ranges(pieces: tuple[int, ...], dtype: Any) -> None:
    """What attention gives, heads apart, times a weight that is cast as it is read."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((4, 32, 32)).astype(np.float16), rng.standard_normal((32, 128)).astype(np.float16)
    given = [Opt("MERGE", 2, 1), *K.by_matrices(0, *pieces), Opt("PREFETCH", 2, 1)]
    got = played_product(by_heads(4, 32, 32, 32, dtype), {1: a, 2: b}, given).reshape(32, 32)
    want = np.moveaxis(a, 0, 1).reshape(32, 128).astype(np.float64) @ b.T
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)
    chosen = choose(prepare(by_heads(4, 32, 256, 256, dtype), TARGET), TARGET)
    assert chosen[0] == Opt("MERGE", 2, 1)
    assert chosen[1].kind == "MATRIX"


@pytest.mark.parametrize("tile", K.TILES)
def test_each_tile_of_the_heuristic_computes_the_same(tile: tuple[int, int, int, int, int]) -> None:
    rng = np.random.default_rng(5)
    down, across, high, wide, deep = tile
    m, n, k = 16 * down * high, 16 * across * wide, 3 * 16 * deep
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    given = [*K.by_matrices(0, *tile), Opt("PREFETCH", 2, 1)]
    got = played_product(K.half_product(m, n, k, "float16", b_across=True), {1: a, 2: b}, given).reshape(m, n)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.T, rtol=1e-3, atol=2e-2)


def test_the_heuristic_chooses_these_tiles() -> None:
    listed = {(*K.by_matrices(0, *tile), Opt("PREFETCH", 2, 1)) for tile in K.TILES}
    sizes = [(4096, 4096), (16384, 1152), (16384, 384), (1024, 1024), (384, 1152), (768, 3072), (960, 1920), (64, 6400)]
    found = {choose(prepare(K.half_product(m, n, 64, "float16"), TARGET), TARGET) for m, n in sizes}
    assert found <= listed
    assert len(found) >= 5


# -- where they are chosen --------------------------------------------------------------------------------------------


def kinds(graph: UOp, target: Target = TARGET) -> set[str]:
    return {o.kind for o in choose(prepare(graph, target), target)}


def test_they_are_chosen_where_sizes_are_those_of_a_tile_and_results_are_float16() -> None:
    assert "MATRIX" in kinds(K.half_product(256, 256, 64, "float16"))
    assert "MATRIX" in kinds(K.half_product(256, 256, 64, "bias", True, True))
    assert "MATRIX" not in kinds(K.half_product(256, 256, 64, "float32")), "whose sums are exact to float32"
    assert "MATRIX" not in kinds(K.half_product(64, 64, 1024, "float16")), "too few workgroups"
    assert "MATRIX" in kinds(K.half_product(250, 256, 64, "float16"))
    assert "MATRIX" in kinds(K.half_product(256, 300, 63, "bias"))
    assert "MATRIX" not in kinds(K.half_product(256, 256, 31, "float16")), "shorter than any tile"
    assert "MATRIX" not in kinds(K.matmul(256, 256, 64))


@pytest.mark.parametrize("across", [(False, False), (True, True)])
def test_no_tile_is_chosen_that_workgroup_memory_has_no_room_for(across: tuple[bool, bool]) -> None:
    tiles = set()
    for bytes_ in range(8192, 49152 + 1, 2048):
        target = replace(TARGET, workgroup_bytes=bytes_)
        for m, n in ((4096, 4096), (1024, 1024), (384, 1152), (768, 3072), (960, 1920)):
            kernel = K.half_product(m, n, 64, "float16", *across)
            made = generate(kernel, target)
            assert bytes_ >= 12288 or "subgroupMatrix" not in made.source
            tiles.add(made.opts)
    assert len(tiles) > 5


def test_without_matrices_every_kernel_is_what_it_was() -> None:
    kernel = K.half_product(256, 256, 64, "float16")
    assert "MATRIX" not in kinds(kernel, PLAIN)
    assert generate(kernel, PLAIN).source == generate(kernel, TARGET, choose(prepare(kernel, PLAIN), PLAIN)).source
    float32 = K.matmul(256, 256, 64)
    assert generate(float32, PLAIN).source == generate(float32, TARGET).source


def test_programs_of_float16_get_them() -> None:
    def found(*outs: Tensor) -> list[bool]:
        plan, *_ = plan_for(graph([o.uop for o in outs]), cost_models.gpu())
        return ["subgroupMatrixStore" in generate(call.kernel.sink, TARGET).source for call in plan.calls]

    x, w, bias = (Tensor(np.ones(s, np.float16)) for s in ((256, 128), (384, 128), (384,)))
    assert found(x @ w.T) == [True]
    assert found((x @ w.T + bias).relu()) == [True]
    assert found(x.float() @ w.T.float()) == [False]
    # a long sum in pieces: what they store is float32, their sum is rounded
    long, other = Tensor(np.ones((2048, 256), np.float16)), Tensor(np.ones((2048, 128), np.float16))
    assert found(long.T @ other) == [True, False]


# -- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (K.by_matrices(0, 1, 1, 1, 1, 1)[:-1], "with a TILE of 1"),
        (K.by_matrices(0, 1, 1, 1, 1, 1)[1:], "the axes of rows, of columns and of the reduce"),
        ([*K.by_matrices(0, 1, 1, 1, 1, 1), Opt("GROUP", 2, 2)], "GROUP.* does not go with it"),
        ([*K.by_matrices(0, 1, 1, 1, 1, 1), Opt("PREFETCH", 0, 1)], "no PREFETCH of axis 0 goes with it"),
        ([*K.by_matrices(0, 1, 1, 1, 1, 1), Opt("LOCAL", 0, 2)], "does not go with it"),
        (K.by_matrices(0, 4, 1, 3, 1, 1), "a block of 192 is longer than a range of 64"),
        ([Opt("MATRIX", 0, 8), *K.by_matrices(0, 1, 1, 1, 1, 1)[1:]], "no subgroup matrices of this shape"),
        (K.by_matrices(1, 1, 1, 1, 1, 1), "an axis that the kernel has not"),
    ],
)
def test_opts_that_do_not_fit(given: list[Opt], why: str) -> None:
    with pytest.raises(CompilerError, match=why):
        generate(K.half_product(64, 64, 64, "float16"), TARGET, given)


def test_kernels_that_are_no_product_of_float16() -> None:
    given = K.by_matrices(0, 1, 1, 1, 1, 1)
    i, j, r = K.loop(64, 0), K.loop(64, 1), K.over(64, 2)
    a, b = (K.load(K.param(s, 4096, K.F16), at) for s, at in ((1, i * 64 + r), (2, r * 64 + j)))
    product = K.reduce(Op.ADD, a.cast(K.F32) * b.cast(K.F32), r)
    at, out = i * 64 + j, K.param(0, 4096, K.F16)
    crossed = K.load(out, j * 64 + i).cast(K.F32)  # read by others than the one that stores
    for kernel in (
        K.matmul(64, 64, 64),
        K.sink(K.store(out, at, K.reduce(Op.MAX, a.cast(K.F32) * b.cast(K.F32), r))),
        K.sink(K.store(out, at, product + crossed)),
        K.sink(K.store(out, at, (i < j).where(product, const(K.F32, 0.0)))),
    ):
        with pytest.raises(CompilerError, match="no product of float16"):
            apply_opts(kernel, given)
    generate(K.sink(K.store(out, at, product + K.load(out, at).cast(K.F32))), TARGET, given)
    with pytest.raises(CompilerError, match="no subgroup matrices"):
        generate(K.half_product(64, 64, 64, "float16"), PLAIN, given)


def test_kernels_in_parts_have_none() -> None:
    """Parts share their bindings' types and their workgroup memory, which matrices have of their own kind."""
    x, w = Tensor(np.ones((256, 128), np.float16)), Tensor(np.ones((128, 384), np.float16))
    rows = Tensor(np.ones((2, 48), np.float32)).softmax(-1)
    plan, *_ = plan_for(graph([(x @ w).uop, rows.uop]), cost_models.gpu())
    for call in plan.calls:
        source = generate(call.kernel.sink, TARGET).source
        assert "(at >=" not in source or "subgroupMatrix" not in source


def test_the_opts_are_written_down() -> None:
    given = tuple(K.by_matrices(0, 2, 2, 4, 4, 2))
    assert decode_opts(encode_opts(given)) == given


def test_an_adapters_configurations() -> None:
    from anneal.backend.webgpu.implementation import shapes_of

    def config(a: str, b: str, least: int, most: int) -> dict[str, Any]:
        sizes = {"m": 16, "n": 16, "k": 16}
        return {
            "component_type": a,
            "result_component_type": b,
            "min_subgroup_size": least,
            "max_subgroup_size": most,
        } | sizes

    found = [config("f16", "f32", 32, 32), config("u8", "u32", 32, 32), config("f16", "f32", 32, 64)]
    assert shapes_of(found) == (SHAPE,)
