"""Values that are placed where others made them: parts of memory, and pieces of a concatenation, are stored by the
kernel that computes them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import anneal as an
from anneal import settings
from anneal.runtime import plan_of, values
from anneal.schedule.fusion.groups import is_copy
from anneal.tensor import Tensor, functional as F, jit
from anneal.uop import Op, UOp, dtypes

from .build import F32, buffer, matmul, reduce, reshape
from .test_decisions import scheduled

N, M = 4, 8


def kernels(*outputs: UOp, **prices: int | bool) -> int:
    """The kernels that compute something: a loop leaves out the copy that an update writes into."""
    groups = scheduled(list(outputs), "kernel-groups", **prices).groups
    return sum(len(g.members) or 1 for g in groups if not is_copy(g.roots[0]))


def update(memory: UOp, part: UOp, at: UOp | int = 2) -> UOp:
    part = reshape(part, 1, *part.shape)
    if isinstance(at, int):
        return UOp(Op.UPDATE, F32, (memory, part), (at, *[0] * (len(part.shape) - 1)))
    return UOp(Op.UPDATE, F32, (memory, part, at), (None, *[0] * (len(part.shape) - 1)))


def pad(x: UOp, before: int, after: int) -> UOp:
    return UOp(Op.PAD, F32, (x,), ((0, 0), (before, after)))


def made() -> UOp:
    return buffer(N, M) * 2.0


def test_a_part_is_written_where_it_is_computed() -> None:
    x = made()
    assert kernels(x, update(buffer(6, N, M), x)) == 1
    y = matmul(buffer(N, 16), buffer(16, M))
    assert kernels(y, update(buffer(6, N, M), y * 3.0)) == 1
    first = update(buffer(6, N, M), x, 1)
    assert kernels(x, update(first, x)) == 2, "one after the other, into one memory"


def test_a_part_that_is_read_elsewhere_than_where_it_is_computed_is_a_kernel() -> None:
    x = made()
    turned = UOp(Op.PERMUTE, F32, (x,), (1, 0))
    assert kernels(x, update(buffer(6, M, N), turned)) == 2
    assert kernels(x, update(buffer(6, N), reduce(x, Op.ADD, 1))) == 2


def test_memory_that_others_read_is_written_after_them() -> None:
    x, memory = made(), buffer(6, N, M)
    row = reshape(UOp(Op.SHRINK, F32, (memory,), ((0, 1), (0, N), (0, M))), N, M)
    written = update(memory, x)
    assert kernels(x, written, reduce(row * x, Op.ADD, 0)) == kernels(x, reduce(row * x, Op.ADD, 0)) + 1
    y = made() + row
    assert kernels(y, update(memory, y)) == 2, "the kernel itself reads other rows of it"


def test_a_start_that_the_kernel_itself_computes_is_known_after_it() -> None:
    at = reshape(buffer(1, dtype=dtypes.int32))
    x = made()
    assert kernels(x, update(buffer(6, N, M), x, at + 1)) == 1
    total = reshape(UOp(Op.SHRINK, F32, (x,), ((0, 1), (0, 1))))
    where = UOp(Op.CAST, dtypes.int32, (total,))
    assert kernels(x, update(buffer(6, N, M), x, where)) == 2


def test_pieces_are_stored_where_they_are_computed() -> None:
    x = made()
    both = pad(Op.EXP(x), 0, M) + pad(x * 3.0, M, 0)
    assert kernels(x, both) == 1
    assert kernels(x, both, update(buffer(6, N, 2 * M), both)) == 1
    turned = reshape(UOp(Op.PERMUTE, F32, (x,), (1, 0)), N, M)
    assert kernels(x, pad(Op.EXP(turned), 0, M) + pad(x * 3.0, M, 0)) > 1, "a piece reads elsewhere"
    y = matmul(buffer(N, M), buffer(M, M)) * 2.0
    assert kernels(x, pad(x + 1.0, 0, M) + pad(y, M, 0)) > 1, "a piece is a product"


def test_tiny_kernels_wait_for_a_launch() -> None:
    count, x = buffer(1), made()
    products = matmul(x, buffer(M, M))
    late = [Op.EXP(UOp(Op.PERMUTE, F32, (products,), (1, 0)))]
    assert [len(g.members) for g in scheduled([count + 1.0, products, *late], "kernel-groups").groups] == [0, 2]
    large = buffer(1 << 15) + 1.0
    assert [len(g.members) for g in scheduled([large, products, *late], "kernel-groups").groups].count(1) == 2


# -- values, on both devices -------------------------------------------------------------------------------------------


def gated(x: Tensor, w: Tensor) -> list[Tensor]:
    """A gated unit and its gradients, which are joined."""
    a, b = (x @ w).chunk(2, -1)
    (a.silu() * b).square().sum().backward()
    return [x.grad, w.grad]  # type: ignore[list-item]


def kept(x: Tensor, w: Tensor) -> list[Tensor]:
    """Rows of a cache, written at a place that the device knows, beside what is made of them."""
    h = (x @ w).tanh()
    cache = Tensor.zeros(5, *h.shape, device=x.device)
    at = x.sum().int() * 0 + 3
    return [h, an.where(Tensor.arange(5, device=x.device).reshape(5, 1, 1) == at, h, cache), h.softmax(-1)]


def rows(x: Tensor, w: Tensor) -> list[Tensor]:
    """A loop that stacks a carry, a product, a softmax and joined pieces."""

    def body(h: Tensor, _: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        p = h @ w
        a, b = p.chunk(2, -1)
        h = (a.sigmoid() * b.tanh() + h).contiguous()
        return h, (h, p, p.softmax(-1), an.cat([h.exp(), h * a, b], -1))

    h, ys = an.scan(body, x, Tensor.arange(5, device=x.device))
    sum([(y * y).mean() for y in ys], h.sum()).backward()
    return [h, *ys, x.grad, w.grad]  # type: ignore[list-item]


def backwards(x: Tensor, w: Tensor) -> list[Tensor]:
    """Pieces in another order of axes, and a piece twice."""
    h = (x @ w).relu()
    a, b = h.chunk(2, 1)
    return [a * b, an.cat([a * 2, a * 2, b], 1).T, an.stack([a + b, a, a - b], 1), an.cat([a * b, a], 0)]


def normed(x: Tensor, w: Tensor) -> list[Tensor]:
    """Numbers of rows beside joined pieces that read them."""
    h = x.exp()
    total = h.sum(-1, keepdim=True)
    return [total, an.cat([h / total, h * 2.0], -1), an.cat([total, total], 0), w.sum()]


PROGRAMS: tuple[Callable[[Tensor, Tensor], list[Tensor]], ...] = (gated, kept, rows, backwards, normed)


@pytest.mark.parametrize("size", [(1, 2), (3, 4), (7, 10), (32, 64)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values(program: Callable[[Tensor, Tensor], list[Tensor]], size: tuple[int, int], webgpu: str) -> None:
    n, m = size

    def found(device: str) -> list[np.ndarray]:
        r = np.random.default_rng(n)
        x, w = (r.standard_normal(s).astype(np.float32) for s in ((n, m // 2 if program is rows else m), (m, 2 * m)))
        w = w[: x.shape[1], :m]
        return values(program(*[Tensor(a, device=device, requires_grad=True) for a in (x, w)]))

    with settings.override(cache=False):
        for a, b in zip(found(webgpu), found("cpu"), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(b).max()))


def test_a_cache_in_place_is_written_beside_what_reads_the_same(webgpu: str) -> None:
    cache = Tensor.zeros(4, 3, 5, device=webgpu).realize()
    want = np.zeros((4, 3, 5), np.float32)

    @jit
    def step(x: Tensor, n: Tensor) -> Tensor:
        h = x.exp()
        cache[n] = h
        return h * 2 + cache[0]

    for k in range(6):
        x = np.full((3, 5), k / 7, np.float32)
        want[k % 4] = np.exp(x)
        y = step(Tensor(x, device=webgpu), Tensor(np.int32(k % 4), device=webgpu))
        np.testing.assert_allclose(y.numpy(), 2 * np.exp(x) + want[0], rtol=1e-5)
        np.testing.assert_allclose(cache.numpy(), want, rtol=1e-5)


def test_the_gradient_of_a_gated_unit_is_one_kernel_between_its_products(webgpu: str) -> None:
    x, w = (Tensor(np.ones((32, 32), np.float32), device=webgpu, requires_grad=True) for _ in range(2))
    a, b = (x @ w).chunk(2, -1)
    (a.silu() * b).sum().backward()
    F.relu(x)
    calls = plan_of([x.grad, w.grad]).calls  # type: ignore[list-item]
    assert len(calls) == 4, [c.kernel.name for c in calls]
