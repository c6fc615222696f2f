"""Many results of few inputs, computed together: how the scheduler joins kernels must not show.

`python -m tests.schedule.test_together COUNT [SEED]` tries more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anneal.backend import cost_models, get_device
from anneal.runtime import execute
from anneal.schedule import CostModel, Plan, graph, plan_for
from anneal.tensor import Tensor
from tests.reference import evaluate

SIZES = (1, 2, 3, 4, 7, 8, 16, 33, 64, 130)


def results(rng: np.random.Generator) -> list[Tensor]:
    """Reductions of a few arrays over rows, columns and all, what is made of them, and gradients through them."""
    shape = tuple(int(n) for n in rng.choice(SIZES, rng.integers(2, 4)))
    if np.prod(shape) > 1 << 15:
        shape = shape[:2]
    leaves = [
        Tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True) for _ in range(rng.integers(1, 4))
    ]
    parameters = [Tensor(rng.standard_normal(shape[-1:]).astype(np.float32), requires_grad=True) for _ in range(2)]
    wide = list(leaves)
    out: list[Tensor] = []

    def pick() -> Tensor:
        return wide[rng.integers(len(wide))]

    for _ in range(rng.integers(4, 10)):
        x, y, p = pick(), pick(), parameters[rng.integers(2)]
        axis: Any = (0, -1, None, (0, 1), tuple(range(len(shape) - 1)))[rng.integers(5)]
        which = rng.integers(10)
        if which < 3:
            out.append(x.sum(axis))
        elif which == 3:
            out.append((x * y).sum(axis))
        elif which == 4:
            out.append((x * x).mean(axis))
        elif which == 5:
            out.append(x.amax(axis))
        elif which == 6:
            wide.append((x - x.mean(axis, keepdim=True)) * 0.5)
        elif which == 7:
            wide.append((x * p + parameters[0]).tanh())
        elif which == 8:
            wide.append(x.softmax(-1) + y * 0.25)
        else:
            out.append(x * 0.5 + y)
    loss = sum(((t * t).mean() for t in (pick(), pick())), Tensor(0.0))
    (loss + sum((t.mean() for t in out), Tensor(0.0))).backward()
    return [*out, *[t.grad for t in (*leaves, *parameters) if t.grad is not None]]


def hold(seed: int, models: dict[str, CostModel], tensors: list[Tensor] | None = None) -> None:
    tensors = results(np.random.default_rng(seed)) if tensors is None else tensors
    nodes = list(dict.fromkeys(t.uop for t in tensors))
    want = evaluate(nodes)
    device = get_device("cpu")
    for name, cost_model in models.items():
        plan, inputs, _ = plan_for(graph(nodes), cost_model)
        reads_what_was_written(plan)
        for n, (s, w) in enumerate(zip(execute(plan, device, inputs), want, strict=True)):
            got = device.download(s.ensure(), s.size, s.dtype).reshape(w.shape)
            # float32 sums of some thousand elements that may cancel
            scale = max(1.0, float(np.max(np.abs(w), initial=0.0)))
            np.testing.assert_allclose(
                got / scale, w / scale, rtol=2e-4, atol=1e-4, err_msg=f"{seed} {name} result {n}"
            )


def reads_what_was_written(plan: Plan) -> None:
    """Each value that a call reads is an input or what an earlier call wrote; each of any size that is asked for as
    well.
    """
    known = set(range(plan.inputs))
    for call in plan.calls:
        assert known.issuperset(call.args[call.outputs :]), f"{call.kernel.name} reads what no call before it writes"
        known.update(call.args[: call.outputs])
    assert known.issuperset(v for v in plan.outputs if plan.values[v].size)


def targets() -> dict[str, CostModel]:
    many, few = (replace(cost_models.gpu(n), concurrent=False) for n in (128, 8))  # the cpu's memory has one dtype
    return {"cpu": cost_models.CPU, "webgpu": many, "8 buffers": few}


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_results_do_not_show_what_they_were_computed_with(first: int) -> None:
    for seed in range(first, first + 10):
        hold(seed, targets())


def nothing(rng: np.random.Generator) -> list[Tensor]:
    """Results of no elements, of the kinds that have kernels of their own elsewhere."""
    x = Tensor(rng.standard_normal((3, 4)).astype(np.float32))
    none = x[:0].realize()
    made: list[Callable[[], Tensor]] = [
        lambda: Tensor.zeros(0, 2).contiguous(),
        lambda: Tensor.full((2, 0), 3.0).contiguous(),
        lambda: none * 2.0,
        lambda: none.sum(1),
        lambda: x[:, :0].exp(),
        lambda: none @ x.transpose(0, 1),
        lambda: Tensor.cat(none, x[:0] * 2.0),
        lambda: none.argsort(1),
        lambda: none.cumsum(1),
    ]
    return [made[i]() for i in rng.permutation(len(made))[: rng.integers(1, 4)]]


@pytest.mark.parametrize("seed", range(40, 60))
def test_results_of_no_elements_are_in_nobodys_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    empty, full = nothing(rng), results(rng)
    tensors = [*empty, *full] if seed % 2 else [*full, *empty]
    hold(seed, targets(), tensors)


if __name__ == "__main__":
    begin = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    failed = 0
    for seed in range(begin, begin + int(sys.argv[1])):
        try:
            hold(seed, targets())
        except Exception as e:
            failed += 1
            print(f"{seed}: {type(e).__name__}: {str(e)[:300]}")
    print(f"{sys.argv[1]} programs, {failed} failures")
    sys.exit(failed > 0)
