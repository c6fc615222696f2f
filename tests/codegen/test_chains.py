"""CHAIN: kernels of attention and of its gradient compute the same tile by tile, by threads and by matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from anneal.backend import Storage, get_device, numpy_dtype
from anneal.codegen import MatrixShape, Opt, Target, choose, generate, prepare
from anneal.codegen.chain import Chain, Split, bytes_of, chain_of
from anneal.codegen.opts import axes_of
from anneal.codegen.pipeline import lower
from anneal.codegen.ranges import substituted
from anneal.errors import CompilerError
from anneal.nn import functional as F
from anneal.runtime import Execution, Launch, compiled
from anneal.schedule import CostModel, graph, plan_for
from anneal.schedule.passes import narrow_products
from anneal.schedule.passes.memory_plan import nbytes
from anneal.tensor import Tensor, Variable
from anneal.uop import Op, UOp, const, dtypes, toposort
from tests.codegen.evaluated import evaluated
from tests.codegen.played import played
from tests.tiers import thinned

COSTS = CostModel(max_buffers=32, chained_bytes=1, masks=True, row_fusion=65536, concurrent=True)
SHAPE = MatrixShape("float16", "float32", 16, 16, 16)
TARGET = Target(f16=True, subgroup=32, max_threads=1024, workgroup_bytes=49152, matrices=(SHAPE,))
Array = npt.NDArray[Any]


def kernels(
    dtype: str, sizes: tuple[int, ...], attention: Callable[[Tensor, Tensor, Tensor], Tensor], gradients: bool = True
) -> list[tuple[UOp, Chain]]:
    """The kernels of an attention, and of its gradient, that are chains; `sizes` are (batch, rows, columns, e, d)."""
    b, n, m, e, d = sizes
    q, k, v, g = (Tensor.zeros(*s).cast(dtype).realize() for s in ((b, n, e), (b, m, e), (b, m, d), (b, n, d)))
    for t in (q, k, v):
        t.requires_grad_(True)
    out = attention(q, k, v)
    if gradients:
        (out * g).sum().backward()
    return planned([out, *[t.grad for t in (q, k, v) if t.grad is not None]])


def planned(outputs: list[Tensor]) -> list[tuple[UOp, Chain]]:
    """The kernels of these tensors that are chains."""
    plan = plan_for(graph([t.uop for t in outputs]), COSTS)[0]
    found = []
    for kernel in plan.kernels:
        ready = prepare(kernel.sink, TARGET)
        chain = chain_of(ready.src, toposort((ready,)))
        if chain is not None:
            found.append((ready, chain))
    return found


def check(ready: UOp, chain: Chain, split: Split, tolerance: float, sizes: dict[str, int] | None = None) -> None:
    """The kernel with `split`, played, against its meaning on the same memory; `sizes` are the values of Variables."""
    rng = np.random.default_rng(7)
    params = {u.arg[0]: u for u in toposort((ready,)) if u.op is Op.PARAM}
    written = {s.src[0].arg[0] for s in ready.src}
    inputs = {
        slot: (np.abs if p.arg[1][0] < 300 else np.asarray)(rng.standard_normal(p.arg[1])).astype(numpy_dtype(p.dtype))
        for slot, p in params.items()
        if slot not in written
    }
    opts = split.opts(chain, [a.range for a in axes_of(ready)])
    program = lower(ready, opts, TARGET)
    assert program.shared_bytes <= bytes_of(chain, split)
    known = {u: const(dtypes.int32, (sizes or {})[u.arg[0]]) for u in toposort((ready,)) if u.op is Op.VARIABLE}
    got, want = played(program, inputs, sizes), evaluated(substituted(ready, known), inputs)
    for slot in written:
        scale = np.nanmax(np.abs(want[slot]))
        np.testing.assert_allclose(got[slot], want[slot], atol=tolerance * scale, rtol=0, err_msg=str(split))


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def windowed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    apart = Tensor.arange(q.shape[-2]).reshape(-1, 1) - Tensor.arange(k.shape[-2])
    seen = (Tensor.full((), 0).int() <= apart) & (apart < 20)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


THREADS = [Split(64, 32, 16, 8, 16), Split(64, 64, 8, 8, 16), Split(32, 32, 8, 8, 8), Split(64, 16, 8, 16, 8)]
MATRICES = [Split(64, 16, 16, 4, 1, True), Split(64, 32, 16, 2, 1, True), Split(32, 16, 16, 1, 1, True)]


SIZES = [(2, 128, 64, 32, 32), (1, 70, 90, 20, 24), (1, 90, 70, 32, 72)]
BY_THREADS = [pytest.param(sizes, split, id=f"{sizes}-{split}") for split in THREADS for sizes in SIZES]


@pytest.mark.parametrize(("sizes", "split"), thinned(BY_THREADS, test=2, ci=2))
def test_by_threads(sizes: tuple[int, ...], split: Split) -> None:
    """The maximum, the sum, the result and three gradients; sizes that tiles divide and do not."""
    found = kernels("float32", sizes, causal)
    alike = sizes[3] == sizes[4]  # then the gradients of keys and values are one kernel
    assert sorted((len(c.scores), len(c.reductions)) for _, c in found) == sorted(
        [(1, 1)] * 3 + [(2, 1), (2, 2)] if alike else [(1, 1)] * 4 + [(2, 1)] * 2
    )
    for ready, chain in found:
        check(ready, chain, split, 3e-6)


@pytest.mark.parametrize("split", MATRICES, ids=str)
@pytest.mark.parametrize("sizes", [(2, 128, 64, 32, 32), (1, 70, 90, 20, 24)])
def test_by_matrices(sizes: tuple[int, ...], split: Split) -> None:
    for ready, chain in kernels("float16", sizes, causal):
        check(ready, chain, split, 2e-3)


@pytest.mark.parametrize(("dtype", "split"), [("float32", THREADS[2]), ("float16", MATRICES[0])], ids=str)
def test_symbolic_sizes(dtype: str, split: Split) -> None:
    """One kernel for all numbers of rows and columns: 1, primes, and the most; nothing is stored beyond them."""
    n, m = Variable("n", 1, 90), Variable("m", 1, 100)
    found = {}
    for sizes in ({"n": 47, "m": 53}, {"n": 1, "m": 1}, {"n": 90, "m": 100}):
        rows, columns = n.bind(sizes["n"]), m.bind(sizes["m"])
        q, k, v, g = (Tensor.zeros(2, s, 32).cast(dtype).realize() for s in (90, 100, 100, 90))
        q, k, v, g = q[:, :rows], k[:, :columns], v[:, :columns], g[:, :rows]
        for t in (q, k, v):
            t.requires_grad_(True)
        out = causal(q, k, v)
        (out * g).sum().backward()
        chains = planned([out, *[t.grad for t in (q, k, v) if t.grad is not None]])
        assert len(chains) == 5
        found[tuple(ready for ready, _ in chains)] = True
        for ready, chain in chains:
            check(ready, chain, split, 3e-6 if dtype == "float32" else 2e-3, sizes)
    assert len(found) == 1, "values of Variables have kernels of their own"


@pytest.mark.parametrize("attention", [plain, windowed], ids=["plain", "windowed"])
def test_columns_that_are_needed(attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """All of them without a mask; of a window its own, before and after."""
    for ready, chain in kernels("float32", (1, 96, 96, 16, 16), attention, gradients=attention is plain):
        check(ready, chain, Split(32, 32, 8, 8, 8), 3e-6)


def test_columns_above_the_diagonal_are_left_out() -> None:
    """The loop over columns ends with the workgroup's last row, and begins with its first where columns are rows."""
    ends = set()
    for ready, chain in kernels("float32", (1, 128, 128, 16, 16), causal):
        program = lower(ready, Split(32, 32, 8, 8, 8).opts(chain, [a.range for a in axes_of(ready)]), TARGET)
        loop = next(s for s in program.stmts if s.kind == "for")
        assert isinstance(loop.src[0], int), "the loop has the same iterations in all workgroups"
        assert loop.node is not None
        ends.add((loop.node.src[0].vmin, loop.node.src[0].vmax))
    assert all(low <= 1 and high <= 4 for low, high in ends), ends


def test_the_heuristic_takes_matrices_for_halves_and_threads_for_others() -> None:
    for dtype, kind in (("float32", "LOCAL"), ("float16", "MATRIX")):
        for ready, _ in kernels(dtype, (8, 128, 128, 64, 64), causal):
            opts = choose(ready, TARGET)
            assert any(o.kind == "CHAIN" for o in opts), opts
            assert any(o.kind == kind for o in opts), opts
            generate(ready, TARGET, opts)  # fits


@pytest.mark.parametrize("room", [16384, 32768])
def test_the_heuristic_fits_small_workgroup_memory(room: int) -> None:
    target = Target(workgroup_bytes=room)
    for ready, _ in kernels("float32", (1, 128, 128, 64, 64), causal):
        generate(ready, target)


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ([Opt("CHAIN", 1, 64)], "it takes the axes of rows, columns and depth"),
        ([Opt("CHAIN", 9, 64)], "it takes the axes of rows, columns and depth"),
    ],
)
def test_opts_that_do_not_fit_say_so(opts: list[Opt], words: str) -> None:
    ready, _ = kernels("float32", (2, 64, 64, 16, 16), causal)[0]
    with pytest.raises(CompilerError, match=words):
        lower(ready, opts, TARGET)


def test_splits_that_do_not_divide_say_so() -> None:
    ready, chain = kernels("float32", (2, 64, 64, 16, 16), causal)[0]
    axes = [a.range for a in axes_of(ready)]
    for split in (Split(60, 32, 8, 8, 16), Split(64, 30, 8, 8, 16), Split(64, 32, 7, 8, 16)):
        with pytest.raises(CompilerError, match="does not divide|is no multiple|are no multiple"):
            lower(ready, split.opts(chain, axes), TARGET)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_kernel_that_computes_scores_is_a_chain(dtype: str) -> None:
    """Between projections, so that the factors of the scores, and of their gradients, are products, too."""
    x = Tensor.zeros(2, 128, 32).cast(dtype).realize().requires_grad_(True)
    weights = [Tensor.zeros(32, 32).cast(dtype).realize().requires_grad_(True) for _ in range(4)]

    def heads(t: Tensor) -> Tensor:
        return t.reshape(2, 128, 2, 16).transpose(1, 2)

    q, k, v = (heads(x @ w) for w in weights[:3])
    out = causal(q, k, v).transpose(1, 2).reshape(2, 128, 32) @ weights[3]
    (out * out).sum().backward()
    outputs = [out, *[t.grad for t in (x, *weights) if t.grad is not None]]
    plan = plan_for(graph([t.uop for t in outputs]), COSTS)[0]
    chains = 0
    for kernel in plan.kernels:
        ready = prepare(kernel.sink, TARGET)
        order = toposort((ready,))
        nested = [u for u in order if u.op is Op.REDUCE and any(v.op is Op.REDUCE for v in toposort(u.src))]
        is_row = all(u.arg is Op.ADD and len(order) < 40 for u in nested)
        chain = chain_of(ready.src, order)
        chains += chain is not None
        scores = any(p.size >= 2 * 2 * 128 * 128 for p in order if p.op is Op.PARAM)
        assert not scores, kernel.name
        assert chain is not None or not nested or is_row, kernel.name
    assert chains >= 5


@pytest.mark.parametrize(("sizes", "small"), [((2, 64, 64, 16, 16), 1e-12), ((1, 70, 90, 20, 24), 1)])
def test_scaled_values_of_bfloat16_by_matrices(
    sizes: tuple[int, ...], small: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole attention and its gradient, chain by chain: what is played by matrices is what the device makes of the
    same memory, and what the next kernels read; the gradient is so small that float16 has no such numbers."""
    monkeypatch.setattr(narrow_products, "_WORTH", 1)
    monkeypatch.setattr(narrow_products, "_LONG", 1)
    b, n, m, e, d = sizes
    rng = np.random.default_rng(0)
    shapes = ((b, n, e), (b, m, e), (b, m, d), (b, n, d))
    given = [rng.standard_normal(s).astype(np.float32) * c for s, c in zip(shapes, (1, 1, 1, small), strict=True)]
    q, k, v, g = (Tensor(a, device="cpu").cast("bfloat16").realize() for a in given)
    for t in (q, k, v):
        t.requires_grad_(True)
    out = causal(q, k, v)
    out.backward(g)
    results = [t for t in (out, q.grad, k.grad, v.grad) if t is not None]
    plan, inputs, _ = plan_for(graph([t.uop for t in results]), replace(COSTS, matrix_bytes=1, matrices=True))
    device = get_device("cpu")
    made = [Storage(plan.values[x].size, plan.values[x].dtype, "cpu") for x in plan.outputs]
    execution = Execution(Launch(plan, inputs, made), device, compiled(plan, device))
    played_ones = 0
    for c in plan.calls:
        buffers = [execution.buffers[x] for x in c.args]
        views = [
            np.asarray(a).reshape(-1).view(np.uint8)[: nbytes(plan.values[x])].view(numpy_dtype(plan.values[x].dtype))
            for a, x in zip(buffers, c.args, strict=True)
        ]
        before = dict(enumerate([x.copy() for x in views]))
        device.prepare([(device.compile(c.kernel.sink), buffers)]).run()
        ready = prepare(c.kernel.sink, TARGET)
        chain = chain_of(ready.src, toposort((ready,)))
        if chain is None:
            continue
        played_ones += 1
        program = lower(ready, MATRICES[2].opts(chain, [a.range for a in axes_of(ready)]), TARGET)
        loop = next(s for s in program.stmts if s.kind == "for")
        assert isinstance(loop.src[0], int), "columns that the mask rules out are computed"
        got = played(program, {slot: a for slot, a in before.items() if slot >= c.outputs})
        for slot in range(c.outputs):
            want = views[slot].astype(np.float64)
            assert 0 < np.abs(want).max() < np.inf
            np.testing.assert_allclose(got[slot].astype(np.float64), want, atol=1e-3 * np.abs(want).max(), rtol=0)
            views[slot][:] = got[slot]
    execution.close()
    assert played_ones >= 7
