"""Chains of contractions: what is left out of memory, what stays in it, and which kernels compute scores together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anneal.schedule import CostModel, Schedule, graph, run_passes
from anneal.schedule.fusion import Reason, refusals
from anneal.schedule.plan import parametrise
from anneal.uop import Op, UOp, dtypes

from .build import F32, buffer, matmul, permute, reduce, softmax

N, M, E = 64, 96, 16
COSTS = CostModel(max_buffers=16, chained_bytes=1)


def scheduled(outputs: list[UOp], costs: CostModel = COSTS) -> Schedule:
    return run_passes(parametrise(graph(outputs))[0], costs)


def scores(dtype: object = F32) -> UOp:
    q, k = buffer(N, E, dtype=dtype), buffer(M, E, dtype=dtype)  # type: ignore[arg-type]
    return matmul(q.cast(F32), permute(k.cast(F32), 1, 0))


def attention() -> UOp:
    return matmul(softmax(scores()), buffer(M, E))


def test_scores_are_not_stored_and_statistics_are() -> None:
    s = scheduled([attention()], replace(COSTS, row_fusion=65536))
    assert s.chained
    assert not any(u.size >= N * M for u in s.materialised)
    assert [u.arg[0] for u, r in s.materialised.items() if r is Reason.CHAINED] == [Op.MAX, Op.ADD]
    assert s.plan is not None
    assert len(s.plan.calls) == 3


def changed_by_a_sine() -> list[UOp]:
    return [matmul(Op.SIN(scores()), buffer(M, E))]


def read_by_an_output() -> list[UOp]:
    s = scores()
    return [matmul(Op.SIN(s), buffer(M, E)), s]


def read_in_another_order() -> list[UOp]:
    s = Op.SIN(scores())
    return [matmul(s, buffer(M, E)), permute(s, 1, 0) * 2.0]


def without_a_second_product() -> list[UOp]:
    return [reduce(Op.SIN(scores()), Op.ADD, 1)]


def multiplied_with_itself() -> list[UOp]:
    s = Op.SIN(scores())
    return [matmul(s, permute(s, 1, 0))]


@pytest.mark.parametrize(
    ("program", "chains"),
    [
        (changed_by_a_sine, True),
        (read_by_an_output, False),
        (read_in_another_order, False),
        (without_a_second_product, False),
        (multiplied_with_itself, False),
    ],
)
def test_readers(program: Callable[[], list[UOp]], chains: bool) -> None:
    assert bool(scheduled(program()).chained) is chains


@pytest.mark.parametrize(
    ("costs", "dtype", "chains"),
    [
        (CostModel(max_buffers=16), F32, False),
        (CostModel(max_buffers=16, chained_bytes=4 * N * M), F32, True),
        (CostModel(max_buffers=16, chained_bytes=4 * N * M + 1), F32, False),
        (CostModel(max_buffers=16, chained_bytes=4 * N * M, parallel=8), F32, False),  # 64 rows are not 8 * 16
        (CostModel(max_buffers=16, chained_bytes=4 * N * M, parallel=4), F32, True),
        (CostModel(max_buffers=16, buffer_bytes=4 * N * M), F32, False),
        (CostModel(max_buffers=16, buffer_bytes=4 * N * M - 1, parallel=512), F32, True),  # no buffer would hold them
        (CostModel(max_buffers=16, matrix_bytes=1), F32, False),
        (CostModel(max_buffers=16, matrix_bytes=1), dtypes.float16, True),
    ],
)
def test_where_it_pays(costs: CostModel, dtype: object, chains: bool) -> None:
    assert bool(scheduled([matmul(Op.SIN(scores(dtype)), buffer(M, E))], costs).chained) is chains


def test_sums_over_one_axis_of_the_same_scores_are_one_kernel() -> None:
    s = Op.SIN(scores())
    over_columns = [matmul(s, buffer(M, E)), matmul(s * 2.0, buffer(M, E))]
    over_rows = matmul(permute(Op.SIN(scores()), 1, 0), buffer(N, E))
    s_ = scheduled(over_columns)
    assert s_.plan is not None
    assert [c.outputs for c in s_.plan.calls] == [2]
    assert not scheduled([over_rows]).chained  # another order of the scores


def test_a_kernel_of_a_chain_is_alone_and_says_so() -> None:
    with refusals() as found:
        scheduled([Op.EXP(attention())])
    assert any("computes scores for itself" in r.reason for r in found)
