"""Elements narrower than a word: whichever way a kernel walks, it writes its own bits and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anneal.backend import cost_models
from anneal.backend.webgpu import WebGpuDevice
from anneal.codegen import Target, generate
from anneal.schedule import graph, plan_for
from anneal.tensor import Tensor, Variable, jit, realize
from anneal.uop import by_name
from tests.reference import evaluate

pytestmark = pytest.mark.usefixtures("device")
KINDS = ["int8", "uint16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"]
rng = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def on_webgpu(webgpu: str, device: Any) -> Any:
    from anneal.tensor import set_default_device

    set_default_device("webgpu")
    yield
    set_default_device(None)


def some(kind: str, *shape: int) -> Tensor:
    return Tensor(rng.integers(0, 7, shape).astype(getattr(ml_dtypes, kind, kind)))


WALKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "in order": lambda x, y: x + 1,
    "an odd number": lambda x, y: x.reshape(-1)[:155] + 1,
    "turned": lambda x, y: x.T.contiguous(),
    "backwards": lambda x, y: x.reshape(-1).flip(0).contiguous(),
    "shifted by one": lambda x, y: x.reshape(-1)[1:].contiguous(),
    "in even steps": lambda x, y: x.reshape(-1)[::2].contiguous(),
    "padded": lambda x, y: x.pad(((1, 2), (3, 0))),
    "joined at odd places": lambda x, y: Tensor.cat(x.reshape(-1)[:7], y.reshape(-1) + 1, x.reshape(-1)[:5]),
    "joined in words": lambda x, y: Tensor.cat(x + 1, y * 2, dim=1),
    "rows picked": lambda x, y: x[Tensor([3, 1, 2, 11])],
    "rows added": lambda x, y: x.index_add(0, Tensor([3, 1, 3]), y[:3]),
    "elements added": lambda x, y: x.reshape(-1).scatter_add(0, Tensor([3, 1, 3, 99]), y.reshape(-1)[:4]),
    "elements written": lambda x, y: x.reshape(-1).scatter(0, Tensor([3, 1, 3, 99]), y.reshape(-1)[:4]),
    "largest of several": lambda x, y: x.reshape(-1).scatter_reduce(0, Tensor([3, 1, 3]), y.reshape(-1)[:3], "amax"),
    "a sum of each row": lambda x, y: x.sum(1, dtype=x.dtype),
    "a sum of each column": lambda x, y: x.sum(0, dtype=x.dtype),
    "the whole sum": lambda x, y: x.sum(dtype=x.dtype),
    "largest of each": lambda x, y: x.amax(1),
    "a product": lambda x, y: x.matmul(y.T),
    "an odd product": lambda x, y: x.matmul(y.T[:, :7]),
    "three at once": lambda x, y: (x + 1) * (y + 2) - x,
    "one value": lambda x, y: x[3, 4] + y[0, 0],
}


@pytest.mark.parametrize("kind", KINDS)
def test_whichever_way_a_kernel_walks(device: WebGpuDevice, kind: str) -> None:
    if by_name(kind) not in device.target.dtypes:
        pytest.skip(f"no {kind}")
    x, y = some(kind, 12, 16), some(kind, 12, 16)
    made = {name: walk(x, y) for name, walk in WALKS.items()}
    expected = evaluate([t.uop for t in made.values()])
    realize(list(made.values()))
    for (name, t), e in zip(made.items(), expected, strict=True):
        np.testing.assert_array_equal(t.numpy().reshape(-1).view(np.uint8), e.reshape(-1).view(np.uint8), err_msg=name)


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_kernels_of_a_thousand_rows(kind: str) -> None:
    """Sizes at which the heuristics share rows, tile products and take several words to a thread."""
    x = some(kind, 512, 256)
    made = [x + 1, x.T.contiguous(), x.amax(1), x[:, :255].contiguous(), x[:128] @ x[128:256].T]
    if kind == "bfloat16":
        made.append(x.softmax(-1))
    expected = evaluate([t.uop for t in made])
    realize(made)
    for t, e in zip(made[:5], expected, strict=False):
        np.testing.assert_array_equal(t.numpy().reshape(-1).view(np.uint8), e.reshape(-1).view(np.uint8))
    for t, e in zip(made[5:], expected[5:], strict=True):
        np.testing.assert_allclose(t.numpy().astype(np.float32), e.astype(np.float32), rtol=2.0**-7)


def test_updates_in_place_leave_the_neighbours_alone() -> None:
    weights = [some("bfloat16", 33), some("int8", 5, 7), some("float8_e5m2", 64)]
    before = [w.numpy() for w in weights]

    @jit
    def step(x: Tensor) -> Tensor:
        for w in weights:
            w.assign(w + 1)
        return x + 1

    for i in range(4):
        step(Tensor([float(i)])).realize()
    for w, b in zip(weights, before, strict=True):
        for _ in range(4):
            b = b + b.dtype.type(1)
        np.testing.assert_array_equal(w.numpy().view(np.uint8), b.view(np.uint8))


def source(t: Tensor) -> str:
    (call,) = plan_for(graph([t.uop]), cost_models.gpu())[0].calls
    return generate(call.kernel.sink, Target()).source


def test_whole_words_need_no_atomics() -> None:
    x = some("bfloat16", 256, 512)
    assert "array<vec2<u32>>" in source(x + 1)
    for t in (x + 1, x.softmax(-1), x.T.contiguous(), x @ x.T, some("int8", 64) + 1, x.gelu()):
        assert "atomic" not in source(t), source(t)
    assert "atomicOr" in source(some("int8", 63) + 1)


def test_bfloat16_asks_for_no_feature(device: WebGpuDevice) -> None:
    assert "enable" not in source(some("bfloat16", 8) + 1)
    if not device.target.f16:
        pytest.skip("no shader-f16")
    assert "enable f16;" in source_with_f16(some("float16", 8) + 1)


def source_with_f16(t: Tensor) -> str:
    (call,) = plan_for(graph([t.uop]), cost_models.gpu())[0].calls
    return generate(call.kernel.sink, Target(f16=True)).source


@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_a_slice_is_written_in_place_beside_its_neighbours(kind: str) -> None:
    cache = Tensor(np.zeros((3, 16, 5), getattr(ml_dtypes, kind, kind)))
    n = Variable("n", 0, 15)

    @jit
    def step(value: Tensor, place: Any) -> Tensor:
        cache[:, place : place + 1] = value
        return cache.float().sum()

    expected = np.zeros((3, 16, 5), np.float32)
    for i in (2, 7, 3, 9, 9, 4):
        total = step(Tensor(np.full((3, 1, 5), i + 1).astype(cache.numpy().dtype)), n.bind(i))
        expected[:, i] = i + 1
        np.testing.assert_array_equal(cache.numpy().astype(np.float32), expected)
        assert total.item() == expected.sum()


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_large_arrays_move_by_several_vectors_a_thread(kind: str) -> None:
    data = rng.integers(0, 100, (1 << 21) + 4).astype(getattr(ml_dtypes, kind, kind))
    x = Tensor(data)
    assert source(x + 1).count("join_") > 4
    np.testing.assert_array_equal((x + 1).numpy().astype(np.float32), data.astype(np.float32) + 1)


def test_workgroup_memory_holds_no_bools() -> None:
    """NVIDIA's compiler reads an array of bools there as false."""
    mask, x = rng.random((16, 24)) < 0.5, rng.normal(size=(24, 8)).astype(np.float32)
    chosen = Tensor(mask).unsqueeze(2).where(Tensor(x).unsqueeze(0), 1.0).sum(1)
    assert "<workgroup> tile0: array<u32" in source(chosen)
    assert "array<bool" not in source(chosen)
    expected = np.where(mask[:, :, None], x, np.float32(1)).sum(1)
    np.testing.assert_allclose(chosen.numpy(), expected, rtol=1e-5, atol=1e-5)
