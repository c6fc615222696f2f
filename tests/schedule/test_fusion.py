"""Fusion is a contract: how many kernels a program takes."""

from __future__ import annotations

import pytest

from anneal.backend import cost_models
from anneal.schedule import CostModel, graph, plan_for
from anneal.tensor import Tensor, functional as F, realize
from anneal.uop import Op, UOp, const, dtypes, toposort

from .build import F32, buffer, expand, layer_norm, matmul, permute, plan, reduce, reshape, softmax

ROWS = 8192


def kernels(*outputs: UOp, max_buffers: int = 8, row_fusion: int = 0) -> int:
    return len(plan(*outputs, max_buffers=max_buffers, row_fusion=row_fusion).calls)


def test_an_elementwise_chain_is_one_kernel() -> None:
    x = buffer(8, 16)
    y = x
    for _ in range(20):
        y = Op.SQRT(y * 2.0 + 1.0)
    assert kernels(y) == 1


def test_movement_costs_no_kernel() -> None:
    x = buffer(8, 16)
    assert kernels(permute(reshape(x, 4, 2, 16), 2, 0, 1) + 1.0) == 1


def test_bias_and_activation_join_the_matmul() -> None:
    h = matmul(buffer(8, 16), buffer(16, 32)) + expand(reshape(buffer(32), 1, 32), 8, 32)
    assert kernels(Op.TANH(h)) == 1


def test_an_activation_that_uses_its_input_twice_still_joins() -> None:
    h = matmul(buffer(8, 16), buffer(16, 32))
    assert kernels(h * Op.TANH(h) + h) == 1


def test_softmax_without_row_fusion_is_three_kernels() -> None:
    assert kernels(softmax(buffer(8, 16))) == 3


def test_softmax_is_one_kernel() -> None:
    assert kernels(softmax(buffer(8, 16)), row_fusion=ROWS) == 1


def test_a_norm_and_its_statistics_are_one_kernel() -> None:
    p = plan(*layer_norm(buffer(8, 16), buffer(16), buffer(16)), row_fusion=ROWS)
    assert [c.outputs for c in p.calls] == [3]


def test_what_makes_the_rows_of_a_norm_joins_it_and_is_stored_too() -> None:
    x = Op.EXP(buffer(8, 16) * buffer(8, 16)) + buffer(8, 16)
    p = plan(x, layer_norm(x, buffer(16), buffer(16))[0], row_fusion=ROWS)
    assert [c.outputs for c in p.calls] == [2]


def test_a_row_that_is_no_row_of_what_is_read_does_not_join() -> None:
    x = Op.EXP(buffer(8, 16) * buffer(8, 16))
    assert kernels(x, softmax(permute(x, 1, 0)), row_fusion=ROWS) == 2


def test_rows_longer_than_the_cost_model_allows_stay_apart() -> None:
    assert kernels(softmax(buffer(8, 16)), row_fusion=15) == 3


def test_a_product_stays_out_of_the_rows_that_are_made_of_it() -> None:
    p = plan(softmax(matmul(buffer(8, 32), buffer(32, 16))), row_fusion=ROWS)
    assert len(p.calls) == 2


def test_a_value_and_its_activation_leave_the_product_together() -> None:
    h = matmul(buffer(8, 16), buffer(16, 32)) + expand(reshape(buffer(32), 1, 32), 8, 32)
    p = plan(h, h * Op.TANH(h), matmul(Op.TANH(h), buffer(32, 8)))
    assert [c.outputs for c in p.calls] == [3, 1]


def test_an_update_joins_the_product_that_is_its_gradient() -> None:
    g = matmul(permute(buffer(64, 32), 1, 0), buffer(64, 16))
    p = plan(*adam(g))
    assert [c.outputs for c in p.calls] == [3]
    assert p.calls[0].kernel.sink.src[0].op is Op.STORE


def test_an_update_joins_through_a_reshape() -> None:
    g = reshape(matmul(permute(buffer(64, 32), 1, 0), buffer(64, 16)), 32, 16)
    split = reshape(g, 4, 8, 16)
    p = plan(split, *adam(reshape(split, 32, 16)), max_buffers=16)
    assert [c.outputs for c in p.calls] == [4]


def test_two_gradients_of_one_kernel_are_both_updated_in_it() -> None:
    dy, x = buffer(64, 16), buffer(64, 16)
    grads = reshape(reduce(dy, Op.ADD, 0), 16), reshape(reduce(dy * x, Op.ADD, 0), 16)
    p = plan(*[u for g in grads for u in adam(g)], max_buffers=32)
    assert [c.outputs for c in p.calls] == [6]
    assert len(plan(*[u for g in grads for u in adam(g)], max_buffers=10).calls) > 1


def test_what_a_matmul_reads_many_times_is_materialised() -> None:
    x = Op.TANH(buffer(8, 16) * buffer(8, 16))
    assert kernels(matmul(x, buffer(16, 32))) == 2


def test_a_chain_of_matmuls_is_one_kernel_each() -> None:
    x = buffer(8, 16)
    for _ in range(4):
        x = Op.TANH(matmul(x, buffer(16, 16)))
    assert kernels(x) == 4


def test_a_sum_of_two_matmuls_is_two_kernels() -> None:
    assert kernels(matmul(buffer(8, 16), buffer(16, 8)) + matmul(buffer(8, 4), buffer(4, 8))) == 2


def adam(g: UOp | None = None) -> tuple[UOp, UOp, UOp]:
    g = buffer(32, 16) if g is None else g
    p, m, v = (buffer(*g.shape) for _ in range(3))
    m2 = m * 0.9 + g * 0.1
    v2 = v * 0.99 + g * g * 0.01
    return m2, v2, p - m2 / (Op.SQRT(v2) + 1e-8)


def test_products_that_are_only_summed_need_no_memory() -> None:
    # A convolution's products are hundreds of times what one binding shows; nobody stores them, so they take none.
    x, w = (Tensor.zeros(*shape, requires_grad=True) for shape in ((4, 16, 8, 8), (16, 16, 3, 3)))
    realize([x, w])
    y = F.conv2d(x, w, padding=1).relu()
    F.conv2d(y, w, padding=1).sum().backward()
    assert x.grad is not None
    found = plan_for(graph([x.grad.uop]), cost_models.gpu(128, 1 << 12))[0]
    assert max(v.size for v in found.values) < 4 * 16 * 8 * 8 * 16 * 9 // 10


def test_a_sum_of_added_products_is_a_product_each() -> None:
    # As in the gradient of what two weights read: a device knows a product only when it stands alone.
    def repeated(g: UOp, w: UOp) -> UOp:
        shape = (32, 128, 64)
        return expand(reshape(g, 32, 128, 1), *shape) * expand(reshape(w, 1, 128, 64), *shape)

    a, b = (repeated(buffer(32, 128), buffer(128, 64)) for _ in range(2))
    bodies = [
        u.src[0]
        for call in plan(reduce(a + b, Op.ADD, 1)).calls
        for u in toposort((call.kernel.sink,))
        if u.op is Op.REDUCE
    ]
    assert [u.op for u in bodies] == [Op.MUL, Op.MUL]
    # Beside them a term that is no product, as that of a recurrent net's first state, which is zero.
    other = expand(reshape(buffer(32, 128), 32, 128, 1), 32, 128, 64) * 0.5
    assert kernels(reduce(a + other + b, Op.ADD, 1)) == 3
    # Sums of other things stay one.
    assert kernels(reduce(buffer(32, 64) * buffer(32, 64) + buffer(32, 64), Op.ADD, 1)) == 1


def test_adam_is_one_kernel_with_three_stores() -> None:
    p = plan(*adam())
    assert len(p.calls) == 1
    assert p.calls[0].outputs == 3


def test_two_reductions_of_one_value_share_a_kernel() -> None:
    dy, x = buffer(64, 16), buffer(64, 16)
    p = plan(reduce(dy, Op.ADD, 0), reduce(dy * x, Op.ADD, 0))
    assert len(p.calls) == 1
    assert p.calls[0].outputs == 2


@pytest.mark.parametrize("limit", [4, 8, 10, 32])
def test_the_buffer_limit_holds(limit: int) -> None:
    total = buffer(8, 8)
    for _ in range(40):
        total = total + buffer(8, 8)
    p = plan(total, *adam(), max_buffers=limit)
    assert all(len(c.args) <= limit for c in p.calls)
    assert len(p.calls) > 40 // limit


def test_equal_pieces_share_one_kernel() -> None:
    x = buffer(16, 16)
    for _ in range(6):
        x = softmax(matmul(x, buffer(16, 16)))
    p = plan(x)
    assert len(p.calls) == 24
    assert len(p.kernels) == 4


def test_a_second_program_of_the_same_structure_finds_its_plan() -> None:
    a = softmax(matmul(buffer(16, 16), buffer(16, 16)))
    b = softmax(matmul(buffer(16, 16), buffer(16, 16)))
    first, _, _ = plan_for(graph([a]), CostModel())
    second, storages, hit = plan_for(graph([b]), CostModel())
    assert hit
    assert first is second
    assert len(storages) == 2


def test_one_buffer_used_twice_is_another_program_than_two_buffers() -> None:
    x, y = buffer(4, 4), buffer(4, 4)
    assert plan(x + x) is not plan(x + y)
    assert plan(x + x).inputs == 1
    assert plan(x + y).inputs == 2


def test_a_chain_of_20000_steps_needs_no_recursion() -> None:
    x = buffer(4)
    for i in range(20_000):
        x = x + float(i)
    assert kernels(x) == 20  # no kernel is longer than a driver's compiler can take


def test_a_regular_chain_is_one_kernel_again_and_again() -> None:
    x = buffer(4)
    for _ in range(20 * (CostModel.kernel_steps + 1)):
        x = x + 1.5
    assert len(plan(x).calls) == 20
    assert len(plan(x).kernels) == 1


def test_split_ranges_leave_no_division() -> None:
    x = buffer(12, 64, 4, 32)
    heads = reshape(permute(x, 0, 2, 1, 3), 48 * 64, 32)
    p = plan(matmul(heads, buffer(32, 16)))
    assert len(p.calls) == 1
    ops = {u.op for u in toposort((p.calls[0].kernel.sink,))}
    assert Op.IDIV not in ops
    assert Op.MOD not in ops


def test_loop_ids_follow_the_output_and_reduces_follow_them() -> None:
    p = plan(matmul(reshape(permute(buffer(4, 6, 8), 1, 0, 2), 24, 8), buffer(8, 3)))
    ranges = [u for u in toposort((p.calls[0].kernel.sink,)) if u.op is Op.RANGE]
    ids = sorted(u.arg for u in ranges)
    loops = [i for i, kind in ids if kind == "loop"]
    assert loops == list(range(len(loops)))
    assert [kind for _, kind in ids] == ["loop"] * len(loops) + ["reduce"] * (len(ids) - len(loops))


def test_temporaries_that_live_together_never_share_memory() -> None:
    x = buffer(16, 16)
    outs = []
    for i in range(8):
        x = softmax(matmul(x, buffer(16, 16)))
        if i % 3 == 0:
            outs.append(matmul(x, x))
    p = plan(*outs)
    place = dict(p.memory)
    assert len(p.temporaries) < len(place)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for n, c in enumerate(p.calls):
        for v in c.args:
            first.setdefault(v, n)
            last[v] = n
    for a in place:
        for b in place:
            if a != b and place[a] == place[b]:
                assert last[a] < first[b] or last[b] < first[a]


def test_nothing_to_compute_makes_no_kernel() -> None:
    empty = UOp(Op.SHRINK, F32, (buffer(4, 4),), ((0, 0), (0, 4)))
    p = plan(empty + 1.0)
    assert p.calls == ()
    total = plan(reduce(empty, Op.ADD, 0))
    assert len(total.calls) == 1
    assert const(dtypes.float32, 0.0) in toposort((total.calls[0].kernel.sink,))
