"""The search for opts: what it finds is right and no slower, whatever a candidate does; and it is found again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import cache, settings
from anneal.backend import numpy_dtype
from anneal.backend.webgpu import WebGpuDevice, beam
from anneal.codegen import GeneratedKernel, MatrixShape, Opt, Target, axes_of, choose, generate, prepare
from anneal.codegen.opts import KINDS, neighbours, threads, work
from anneal.errors import CompilerError
from anneal.ops import as_dtype
from anneal.schedule.masks import DEAD
from anneal.tensor import Tensor
from anneal.uop import Op, Recent, UOp, dtypes
from tests.backend.webgpu.run import run
from tests.codegen import kernels as K

SINK = K.matmul(24, 20, 16)
A, B = (np.random.default_rng(0).uniform(-1, 1, s).astype(np.float32) for s in ((24, 16), (16, 20)))

KEYS = np.random.default_rng(1).integers(-9, 9, 320).astype(np.int32)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, device: WebGpuDevice) -> None:
    """Searches of a fraction of a second, and programs that no other test made."""
    monkeypatch.setattr(beam, "SECONDS", 0.1)
    monkeypatch.setattr(beam, "_BATCH", 2e-4)
    monkeypatch.setattr(device, "_programs", Recent(1024))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


# -- candidates


@pytest.mark.parametrize("sink", [SINK, K.logsumexp(16, 64), K.elementwise(12, 65), K.padded_conv(100, 3)])
def test_steps_are_distinct_and_fit_the_target(sink: UOp) -> None:
    target = Target()
    axes = axes_of(prepare(sink, target))
    for opts in ((), choose(prepare(sink, target), target)):
        found = list(neighbours(axes, opts, target))
        assert len(found) == len(set(found)) > 10
        assert opts not in found
        assert all(threads(o) <= target.max_threads for o in found)
        assert all(abs(len(o) - len(opts)) <= 1 for o in found)


def test_the_tiles_of_matrices_are_tried_where_the_heuristic_has_them() -> None:
    target = Target(
        f16=True, subgroup=32, workgroup_bytes=49152, matrices=(MatrixShape("float16", "float32", 16, 16, 16),)
    )
    ready = prepare(K.half_product(256, 384, 64, "float16"), target)
    opts = choose(ready, target)
    assert opts[0].kind == "MATRIX"
    fit = 0
    for found in neighbours(axes_of(ready), opts, target):
        assert threads(found) % 32 == 0 or not any(o.kind == "MATRIX" for o in found)
        with contextlib.suppress(CompilerError):
            fit += "subgroupMatrix" in generate(ready, target, found).source
    assert fit > 5


def test_every_kind_of_opt_is_tried_and_every_opt_left_out() -> None:
    target = Target()
    axes = axes_of(prepare(SINK, target))
    assert {o.kind for opts in neighbours(axes, (), target) for o in opts} == set(KINDS) - {"MATRIX", "CHAIN"}
    opts = (Opt("LOCAL", 1, 8), Opt("UPCAST", 0, 4), Opt("UNROLL", 2, 4))
    found = set(neighbours(axes, opts, target))
    for i in range(3):
        assert opts[:i] + opts[i + 1 :] in found
    assert (Opt("LOCAL", 1, 16), *opts[1:]) in found
    assert (Opt("UPCAST", 0, 4), Opt("LOCAL", 1, 8), opts[2]) in found


def test_work_counts_what_rows_save() -> None:
    axes = axes_of(prepare(SINK, Target()))
    assert work(axes, ()) == (16, 24 * 20 * 16)
    assert work(axes, (Opt("GROUP", 2, 4), Opt("UPCAST", 0, 2))) == (8, 24 * 20 * 16)
    row = [replace(a, extent=16) for a in axes]
    assert work(row, (Opt("FUSE_REDUCE", 1, 1),)) == (16, 16 * 16)


# -- the search


@pytest.mark.parametrize(
    ("sink", "inputs", "expected"),
    [
        (SINK, {1: A, 2: B}, lambda: np.tanh(A @ B)),
        (K.row_reduce(Op.ADD, 24, 16), {1: A}, lambda: A.sum(1)),
        (K.row_reduce(Op.MAX, 24, 16), {1: A}, lambda: A.max(1)),
        (K.transpose(24, 16), {1: A}, lambda: A.reshape(16, 24).T),
        (K.argsort(320), {1: KEYS}, lambda: np.argsort(KEYS, kind="stable")),
    ],
)
def test_what_is_found_computes_the_same(
    device: WebGpuDevice, sink: UOp, inputs: dict[int, Any], expected: Callable[[], Any]
) -> None:
    with settings.override(beam=2):
        (got,) = run(device, sink, {k: v.ravel() for k, v in inputs.items()}).values()
    np.testing.assert_allclose(got, expected().ravel(), rtol=1e-5, atol=1e-5)


WALKED = {
    "product": K.matmul(40, 36, 24),
    "products": K.matmul(16, 12, 20, 3),
    "row sums": K.row_reduce(Op.ADD, 20, 50),
    "column sums": K.column_reduce(Op.ADD, 40, 24),
    "logsumexp": K.logsumexp(12, 48),
    "softmax": K.softmax(12, 48),
    "transpose": K.transpose(36, 20),
    "convolution": K.padded_conv(50, 3),
    "embedding": K.embedding(30, 12, 65),
    "adam": K.adam(100),
}


@pytest.mark.slow
@pytest.mark.parametrize("walk", [0, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", WALKED)
def test_whatever_a_search_may_try_computes_the_same(device: WebGpuDevice, name: str, walk: int) -> None:
    found = random.Random(f"{name} {walk}" if walk else name)
    search = beam._Search(device, WALKED[name], 2)
    scratch = beam._Scratch(device, search.sink)
    (plain,) = search._build([()])
    assert plain is not None
    expected = scratch.values(plain)
    for _ in range(6):
        opts = found.choice(((), search.first))
        for _ in range(found.randrange(1, 6)):
            steps = list(neighbours(search.axes, opts, device.target))
            found.shuffle(steps)
            opts = next((o for o in steps if search._generate(o) is not None), opts)
        (program,) = search._build([opts])
        if program is not None:
            assert beam._close(scratch.values(program), expected), opts
    scratch.close()


@pytest.mark.parametrize(("dtype", "slack"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_a_program_under_beam(webgpu: str, device: WebGpuDevice, dtype: str, slack: float) -> None:
    from anneal.tensor import set_default_device

    x = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    set_default_device("webgpu")
    try:
        with settings.override(beam=1, require_webgpu=True):
            got = Tensor(x).cast(dtype).softmax(-1).matmul(Tensor(x.T).cast(dtype)).float().numpy()
    finally:
        set_default_device(None)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True) @ x.T, rtol=slack, atol=slack)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float16"])
def test_rounding_is_no_difference_and_more_is(dtype: str) -> None:
    one = np.linspace(1, 2, 50).astype(numpy_dtype(as_dtype(dtype)))
    assert beam._close([one], [one])
    assert beam._close([np.nextafter(one.astype(np.float32), np.float32(9)).astype(one.dtype)], [one])
    assert not beam._close([one], [-one])
    assert not beam._close([one[::-1].copy()], [one]) or dtype == "float8_e4m3fn"


def only(monkeypatch: pytest.MonkeyPatch, *candidates: tuple[Opt, ...]) -> None:
    """Searches try these and then end, however long that takes on a busy machine."""
    monkeypatch.setattr(beam.codegen, "neighbours", lambda axes, opts, target: iter(candidates))
    monkeypatch.setattr(beam, "SECONDS", 120.0)


def writes(text: str) -> Callable[..., GeneratedKernel]:
    """Code generation that writes `text` in place of the body for FLAT 17."""

    def make(sink: UOp, target: Target, opts: tuple[Opt, ...]) -> GeneratedKernel:
        kernel = generate(sink, target, [] if opts == BAD else opts)
        if opts != BAD:
            return kernel
        head, _, _ = kernel.source.partition("{")
        return replace(kernel, source=f"{head}{{\n{text}\n}}", opts=opts)

    return make


BAD = (Opt("FLAT", 0, 17),)
SLOW = "var x = 1.0f; for (var i = 0i; i < 40000000i; i += 1i) { x = x * 1.0001f + f32(i & 3i); } p0[0] = x + p1[0] + p2[0];"


@pytest.mark.parametrize(
    "body",
    [
        "p0[0] = p1[0] + p2[0];",  # fast and wrong
        "this is no WGSL",
        "p0[0] = nothing;",
        SLOW,
    ],
    ids=["wrong", "no WGSL", "no such name", "slow"],
)
def test_a_bad_candidate_does_no_harm(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    only(monkeypatch, BAD)
    monkeypatch.setattr(beam.codegen, "generate", writes(body))
    monkeypatch.setattr(beam, "DEADLINE", 0.05)
    assert beam.best_opts(device, SINK, 2) != BAD
    (got,) = run(device, SINK, {1: A.ravel(), 2: B.ravel()}).values()
    np.testing.assert_allclose(got, np.tanh(A @ B).ravel(), rtol=1e-5, atol=1e-5)


def test_a_candidate_that_raises_or_takes_too_much_is_left_out(
    device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, BAD, (Opt("LOCAL", 0, 8),))

    def make(sink: UOp, target: Target, opts: tuple[Opt, ...]) -> GeneratedKernel:
        if opts == BAD:
            raise RecursionError
        kernel = generate(sink, target, opts)
        return replace(kernel, source=kernel.source + "//" + " " * beam._TEXT) if opts else kernel

    first = choose(prepare(SINK, device.target), device.target)
    monkeypatch.setattr(beam.codegen, "choose", lambda *_: ())
    monkeypatch.setattr(beam.codegen, "generate", make)
    assert first
    assert beam.best_opts(device, SINK, 2) is None


def test_a_candidate_that_does_not_end_ends_the_search(
    device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    waits: list[float] = []

    def wait_for(seconds: float) -> bool:
        device.queue.wait()
        waits.append(seconds)
        return len(waits) <= 2

    monkeypatch.setattr(device.queue, "wait_for", wait_for)
    monkeypatch.setattr(beam, "SECONDS", 120.0)  # it ends by that candidate, on a busy machine too
    assert beam.best_opts(device, SINK, 2) is None
    assert waits[-2:] == [beam.DEADLINE, beam.PATIENCE]
    assert cache.entries(place) == []  # the next process may try again


def test_the_heuristic_stays_unless_another_is_clearly_faster(
    device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {BAD: 1.0}

    def time(self: Any, program: Any, scratch: Any, limit: float) -> float:
        return clock.get(program.kernel.opts, 1.0)

    monkeypatch.setattr(beam._Search, "_time", time)
    monkeypatch.setattr(beam, "DEADLINE", 10.0)
    only(monkeypatch, (Opt("LOCAL", 0, 4),), (Opt("LOCAL", 1, 4),))
    assert beam.best_opts(device, SINK, 2) is None
    clock[(Opt("LOCAL", 1, 4),)] = 0.985
    assert beam.best_opts(device, SINK, 2) is None
    clock[(Opt("LOCAL", 1, 4),)] = 0.9
    assert beam.best_opts(device, SINK, 2) == (Opt("LOCAL", 1, 4),)


def test_kernels_in_parts_are_not_searched(device: WebGpuDevice, capsys: pytest.CaptureFixture[str]) -> None:
    i, j = K.loop(4, 0), K.loop(6, 1)
    parts = K.sink(
        K.store(K.param(0, 4), i, K.load(K.param(2, 4), i)), K.store(K.param(1, 6), j, K.load(K.param(3, 6), j))
    )
    with settings.override(debug=2):
        assert beam.best_opts(device, parts, 2) is None
    assert "several kernels in one launch" in capsys.readouterr().err


def test_what_cannot_be_searched_keeps_the_heuristic(
    device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings.override(debug=2):
        assert beam.best_opts(device, K.segment_sum(5, 4, 12), 2) is None
        assert "not searched: its loops depend on data" in capsys.readouterr().err
        monkeypatch.setattr(beam, "_SCRATCH", 1000)
        assert beam.best_opts(device, SINK, 2) is None
        assert "too large for scratch memory" in capsys.readouterr().err


def test_debug_2_says_what_was_found(device: WebGpuDevice, capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(debug=2):
        beam.best_opts(device, SINK, 2)
    assert "anneal: beam r_24_20_by_16" in capsys.readouterr().err


# -- integers that are indices


def test_loaded_indices_stay_in_bounds() -> None:
    assert 16 <= beam._index_bound(K.embedding(12, 4, 65)) <= 65
    assert beam._index_bound(SINK) > 1
    index = UOp(Op.LOAD, dtypes.int32, (K.param(1, 4, dtypes.int32), K.loop(4, 0)))
    shifted = K.sink(K.store(K.param(0, 4), K.loop(4, 0), K.load(K.param(2, 10), index + 5)))
    assert beam._index_bound(shifted) == 4
    outside = K.sink(K.store(K.param(0, 4), K.loop(4, 0), K.load(K.param(2, 10), index - 1)))
    assert beam._index_bound(outside) == 1


# -- on disk


def searches(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    made: list[UOp] = []
    init = beam._Search.__init__

    def count(self: Any, device: WebGpuDevice, sink: UOp, width: int) -> None:
        made.append(sink)
        init(self, device, sink, width)

    monkeypatch.setattr(beam._Search, "__init__", count)
    return made


def test_what_was_found_is_found_again(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    made = searches(monkeypatch)
    first = beam.best_opts(device, SINK, 2)
    assert beam.best_opts(device, SINK, 2) == first
    assert len(made) == 1
    assert [e.kind for e in cache.entries(place)] == ["beam"]
    beam.best_opts(device, SINK, 1)  # another width
    beam.best_opts(device, K.matmul(24, 20, 17), 2)  # another kernel
    assert len(made) == 3
    info, *rest = device.identity
    for other in (replace(info, name="other"), replace(info, driver="other")):
        monkeypatch.setattr(device, "identity", (other, *rest))
        beam.best_opts(device, SINK, 2)
    assert len(made) == 5


def test_a_damaged_entry_is_searched_again(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    made = searches(monkeypatch)
    beam.best_opts(device, SINK, 2)
    (entry,) = cache.entries(place)
    text = entry.path.read_bytes()
    entry.path.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
    beam.best_opts(device, SINK, 2)
    assert len(made) == 2


def test_programs_of_different_widths_are_kept_apart(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.backend.webgpu.device.best_opts", lambda device, sink, width: (Opt("LOCAL", 0, width),))
    plain = device.compile(SINK)
    seen = {plain.source}
    for width in (2, 4):
        with settings.override(beam=width):
            program = device.compile(SINK)
            assert program.kernel.opts == (Opt("LOCAL", 0, width),)
            seen.add(program.source)
    assert len(seen) == 3
    assert device.compile(SINK) is plain


def test_what_nobody_reads_may_differ(device: WebGpuDevice) -> None:
    i, j, r = K.loop(32, 0), K.loop(32, 1), K.over(8, 2)
    product = K.load(K.param(1, 256), i * 8 + r) * K.load(K.param(2, 256), j * 8 + r)
    total = K.reduce(Op.ADD, product, r)
    masked = UOp(Op.WHERE, total.dtype, (i < j, total.const_like(0.0), total), None, DEAD[0])
    sink = K.sink(K.store(K.param(0, 1024), i * 32 + j, masked))
    tiles = [Opt("VECTORIZE", 1, 4), Opt("LOCAL", 0, 4), Opt("TILE", 2, 1)]  # no blocks above the diagonal are stored
    search, scratch = beam._Search(device, sink, 1), beam._Scratch(device, sink)
    plain, blocks = search._build([(), tuple(tiles)])
    assert plain is not None
    assert blocks is not None
    assert not beam._close(scratch.values(blocks), scratch.values(plain))
    search._note_read(scratch)
    assert beam._close(scratch.values(blocks), scratch.values(plain))
    scratch.read[0][:] = 1  # type: ignore[index]
    assert not beam._close(scratch.values(blocks), scratch.values(plain))
    scratch.close()
