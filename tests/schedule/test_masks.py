"""What indices alone decide: nobody reads the masked elements, and nothing else is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from anneal.backend import Storage, cost_models, get_device, numpy_dtype
from anneal.codegen import Target, generate
from anneal.runtime import Execution, Launch, compiled, execute
from anneal.schedule import CostModel, Kernel, Plan, graph, plan_for
from anneal.schedule.masks import dead_side
from anneal.tensor import Tensor, functional as F
from anneal.uop import Op, UOp, const
from tests.reference import evaluate

MASKS = replace(cost_models.gpu(), concurrent=False)  # the cpu's memory has one dtype
Array = npt.NDArray[np.float32]


def value(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), requires_grad=True)


def attention(rows: int, columns: int) -> list[Tensor]:
    q, k, v = value(2, 2, rows, 8), value(2, 2, columns, 8, seed=1), value(2, 2, columns, 8, seed=2)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(value(*y.shape, seed=3).detach())
    return [y, *[t.grad for t in (q, k, v) if t.grad is not None]]


def scaled() -> list[Tensor]:
    """The number outside the mask is scaled along, and the other elements are read in another order."""
    kept = (value(24, 16).tril(2) * 2.0).contiguous()
    return [kept.T @ value(24, 12, seed=1), kept.exp().sum(0)]


def transposed() -> list[Tensor]:
    kept = value(16, 24).triu().T.contiguous()
    return [kept @ value(16, 8, seed=1), kept + 1]


def band() -> list[Tensor]:
    kept = value(40, 40).tril(3).triu(-5).contiguous()
    return [kept @ value(40, 8, seed=1), value(8, 40, seed=2) @ kept, (kept * kept).amax(1)]


def twice() -> list[Tensor]:
    """A mask that never holds, outside one that does: what is stored under the inner one is read."""
    kept = value(8, 16).tril(2).triu(-9).contiguous()
    return [kept @ value(16, 8, seed=1), (kept * kept).sum(0)]


def numbers() -> list[Tensor]:
    """What is left beside the mask is a number, too."""
    row = Tensor.arange(24).reshape(24, 1) + Tensor.arange(24) * 0
    kept = (row < 10).where(Tensor.full((24, 24), -2.0), 0.0).contiguous()
    return [kept @ value(24, 8, seed=1), (kept * kept).sum(1)]


def dropped() -> list[Tensor]:
    """What is zero stays zero where chance makes other elements zero."""
    kept = (value(24, 24, seed=3) > 0).where(value(24, 24).tril() * 2.0, 0.0).contiguous()
    return [kept @ value(24, 8, seed=1)]


PROGRAMS: dict[str, Callable[[], list[Tensor]]] = {
    "attention": lambda: attention(24, 24),
    "attention of fewer queries": lambda: attention(16, 24),
    "attention of more queries": lambda: attention(24, 16),
    "scaled": scaled,
    "transposed": transposed,
    "band": band,
    "twice": twice,
    "dropped": dropped,
    "numbers": numbers,
}


def dead(plan: Plan) -> list[UOp]:
    return [s for c in plan.calls for s in c.kernel.sink.src if dead_side(s.src[2])]


def poisoned(kernel: Kernel) -> Kernel:
    """The kernel with nan in all elements that nobody is to read."""
    stores = []
    for s in kernel.sink.src:
        if dead_side(s.src[2]):
            given = list(s.src[2].src)
            given[dead_side(s.src[2]) or 0] = const(s.dtype, float("nan"))
            s = UOp(Op.STORE, s.dtype, (*s.src[:2], UOp(Op.WHERE, s.dtype, tuple(given))))
        stores.append(s)
    return Kernel(UOp(Op.SINK, kernel.sink.dtype, tuple(stores)), kernel.name)


def compare(outputs: list[Storage], results: list[Tensor], wanted: list[Array]) -> None:
    for storage, t, w in zip(outputs, results, wanted, strict=True):
        got = get_device(storage.device).download(storage.buffer, storage.size, storage.dtype)
        np.testing.assert_allclose(got.reshape(t.shape), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_masked_elements_are_not_read(device: str, name: str) -> None:
    """Memory is full of nan before, and on the cpu kernels store nan there."""
    results = PROGRAMS[name]()
    wanted = evaluate([t.uop for t in results])
    plan, inputs, _ = plan_for(graph([t.uop for t in results]), MASKS)
    assert dead(plan) or name in ("twice", "numbers")
    if device == "cpu":
        plan = replace(plan, calls=tuple([c._replace(kernel=poisoned(c.kernel)) for c in plan.calls]))
    outputs = [Storage(plan.values[v].size, plan.values[v].dtype, device) for v in plan.outputs]
    run = Execution(Launch(plan, inputs, outputs), get_device(device), compiled(plan, get_device(device)))
    for t, (size, dtype) in zip(run.own, plan.temporaries, strict=True):
        bits = np.frombuffer(b"\xff" * (size * dtype.itemsize), numpy_dtype(dtype))
        get_device(device).upload(t, bits)
    run.run()
    compare(outputs, results, wanted)
    run.close()


def test_outputs_are_stored_whole() -> None:
    kept = value(16, 16).tril()
    plan, _, _ = plan_for(graph([kept.uop, (kept @ value(16, 16, seed=1)).uop]), MASKS)
    assert not dead(plan)


def test_sorting_sees_the_masked_elements() -> None:
    kept = value(16).cumsum(0).reshape(4, 4).tril().contiguous()
    results = [kept.reshape(16).argsort(), kept @ value(4, 4, seed=1)]
    plan, inputs, _ = plan_for(graph([t.uop for t in results]), MASKS)
    plan = replace(plan, calls=tuple([c._replace(kernel=poisoned(c.kernel)) for c in plan.calls]))
    compare(execute(plan, get_device("cpu"), inputs), results, evaluate([t.uop for t in results]))


def test_data_are_no_mask() -> None:
    x = value(16, 16)
    for kept in ((x > 0).where(x, 0.0), (x > 0).where(x.tril(), 1.0)):
        plan, _, _ = plan_for(graph([(kept.contiguous() @ x).uop]), MASKS)
        assert not dead(plan)


def test_a_device_may_do_without() -> None:
    results = attention(24, 24)
    plan, _, _ = plan_for(graph([t.uop for t in results]), CostModel())
    assert not dead(plan)


def test_a_choice_in_a_sum_is_not_that_of_the_element_outside() -> None:
    """`where(c, 0, x - mean(where(c, 0, x)))` in one kernel: below the sum, c is that of every element."""
    t = Tensor(np.array([[1.0, np.nan, 3.0], [2.0, 5.0, np.nan]], np.float32))
    assert t.nanvar().item() == pytest.approx(35 / 12)


def test_weights_are_computed_once() -> None:
    """What a row sums and what it stores of it stay alike, mask or not."""
    plan, _, _ = plan_for(graph([t.uop for t in attention(24, 24)]), MASKS)
    (softmax,) = [c.kernel for c in plan.calls if c.outputs == 2 and "EXP" in str(c.kernel.sink)]
    source = generate(softmax.sink, Target(subgroup=32)).source
    assert source.count("= exp_f32_x4(") * 4 + source.count("= exp_f32(") == source.count("= p2[") * 4


def test_a_row_is_summed_whole(device: str) -> None:
    """Of a row of which a mask leaves a part, the sum reads all."""
    x, y = (np.random.default_rng(n).standard_normal((64, 64)).astype(np.float32) for n in range(2))
    t = Tensor(x)
    kept = (t - t.sum(1, keepdim=True)).tril().contiguous()
    np.testing.assert_allclose(
        (kept @ Tensor(y)).numpy(), np.tril(x - x.sum(1, keepdims=True)) @ y, rtol=1e-4, atol=1e-3
    )


def test_a_running_sum_makes_its_mask_where_it_is_used() -> None:
    plan, _, _ = plan_for(graph([value(20, 12).cumsum(0).uop]), MASKS)
    assert len(plan.calls) == 1
