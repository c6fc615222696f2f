"""Rows that several axes count, with something of each channel's own in them: group norm, forward and backward."""

from __future__ import annotations

import numpy as np

import anneal as an
from anneal.backend import cost_models
from anneal.codegen import Target, choose, generate, prepare
from anneal.schedule import graph, plan_for
from anneal.tensor import Tensor, functional as F, realize
from anneal.uop import Op, toposort


def gradient(device: str) -> list[Tensor]:
    """Of a group norm and an activation: x, weight and bias."""
    rng = np.random.default_rng(0)
    shapes = ((3, 8, 4, 5), (8,), (8,))
    tensors = [Tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True, device=device) for s in shapes]
    cotangent = Tensor(rng.standard_normal(shapes[0]).astype(np.float32), device=device)
    realize([*tensors, cotangent])
    x, weight, bias = tensors
    (F.group_norm(x, 2, weight, bias).silu() * cotangent).sum().backward()
    return [t.grad for t in tensors if t.grad is not None]


def test_they_are_rows() -> None:
    plan, _, _ = plan_for(graph([gradient("cpu")[0].uop]), cost_models.gpu())
    kinds = [[opt.kind for opt in choose(prepare(c.kernel.sink, Target()), Target())] for c in plan.calls]
    assert all("FUSE_REDUCE" in k for k in kinds), kinds


def test_a_product_beside_them_stays_apart() -> None:
    # As in a residual block whose shortcut is a 1x1 convolution.
    x, w = Tensor.zeros(3, 8, 4, 4, requires_grad=True), Tensor.zeros(64, 8, 1, 1)
    weight = Tensor.zeros(8)
    realize([x, w, weight])
    (F.conv2d(x, w).square().sum() + F.group_norm(x, 2, weight).silu().sum()).backward()
    assert x.grad is not None
    plan, _, _ = plan_for(graph([x.grad.uop]), cost_models.gpu())
    for call in plan.calls:
        lengths = {u.src[0].ranges for u in toposort((call.kernel.sink,)) if u.op is Op.REDUCE}
        opts = [opt.kind for opt in choose(prepare(call.kernel.sink, Target()), Target())]
        assert len(lengths) < 2 or "FUSE_REDUCE" in opts, call.kernel.name


def test_they_have_the_cpus_values(webgpu: str) -> None:
    for got, want in zip(gradient(webgpu), gradient("cpu"), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def scaled(device: str) -> list[Tensor]:
    """Rows of heads, (batch, heads, length, width), divided by their largest, as bfloat16: of one tensor, of several
    joined, and of one whose rows of a head take no whole words."""
    rng = np.random.default_rng(1)

    def rows(width: int) -> Tensor:
        values = rng.standard_normal((2, 3, 5, width)).astype(np.float32)
        return Tensor(values, device=device).realize().transpose(1, 2).reshape(2, 5, 3 * width)

    found = []
    for x in (rows(8), an.cat([rows(8), rows(8)], dim=-1), rows(3), an.cat([rows(7), rows(5)], dim=-1)):
        found.append((x / x.abs().amax(-1, keepdim=True)).bfloat16())
    return found


def test_rows_through_heads_are_loaded_by_vectors_and_stored_without_atomics() -> None:
    plan, _, _ = plan_for(graph([u.contiguous().uop for u in scaled("cpu")[:2]]), cost_models.gpu())
    for call in plan.calls:
        kernel = generate(call.kernel.sink, Target())
        assert ("VECTORIZE", 4) in [(o.kind, o.amount) for o in kernel.opts], kernel.opts
        assert "atomic" not in kernel.source


def test_rows_through_heads_have_the_cpus_values(webgpu: str) -> None:
    for got, want in zip(scaled(webgpu), scaled("cpu"), strict=True):
        np.testing.assert_array_equal(got.float().numpy(), want.float().numpy())


def test_long_rows_with_several_sums_are_read_again_by_fewer_threads() -> None:
    x = Tensor.zeros(2048, 50_304, requires_grad=True)
    y = Tensor.zeros(2048, dtype="int32")
    realize([x, y])
    loss = F.cross_entropy(x, y)
    loss.backward()
    assert x.grad is not None
    plan, _, _ = plan_for(graph([loss.uop, x.grad.uop]), cost_models.gpu())
    target = Target(max_threads=1024, workgroup_bytes=49152, subgroup=32)
    kinds = [{o.kind: o.amount for o in generate(c.kernel.sink, target).opts} for c in plan.calls]
    assert {"FUSE_REDUCE": 1, "VECTORIZE": 4, "GROUP": 256, "UNROLL": 2} in kinds, kinds
