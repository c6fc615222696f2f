"""Tensors wider than one binding, on a device whose bindings are asked to be small: every kernel reads
segments of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anneal import nn, settings
from anneal.backend import cost_models
from anneal.backend.registry import DEVICES
from anneal.backend.webgpu import WebGpuDevice, open_device
from anneal.codegen import Target, generate
from anneal.errors import CompilerError, DeviceError
from anneal.runtime import storage_of
from anneal.schedule import graph, plan_for
from anneal.tensor import Tensor, functional as F, jit, realize, set_default_device

LIMIT = 4096
TABLE = np.random.default_rng(0).standard_normal((97, 40)).astype(np.float32)  # 15520 bytes: four segments
ROWS = np.array([3, 96, 50, 0, 7, 96], np.int32)


@pytest.fixture
def narrow(webgpu: str, device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., WebGpuDevice]]:
    """Opens a device with bindings of at most 4096 bytes as the default one."""
    opened: list[WebGpuDevice] = []

    def make(binding: int = LIMIT, **limits: int) -> WebGpuDevice:
        wanted = {"max-storage-buffer-binding-size": binding} | {k.replace("_", "-"): v for k, v in limits.items()}
        opened.append(open_device(device.info.name, allow_software=True, limits=wanted))
        monkeypatch.setitem(DEVICES.open, "webgpu", opened[-1])
        return opened[-1]

    set_default_device("webgpu")
    try:
        yield make
    finally:
        set_default_device(None)


OPS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "elementwise": (lambda t: t * 2 + 1, lambda a: a * 2 + 1),
    "rows": (lambda t: t[Tensor(ROWS)], lambda a: a[ROWS]),
    "logits": (lambda t: t[:5] @ t.T, lambda a: a[:5] @ a.T),
    "transposed": (lambda t: t.T.contiguous(), lambda a: a.T),
    "whole sum": (lambda t: t.sum(), lambda a: a.sum()),
    "row sums": (lambda t: t.softmax(-1).sum(0), lambda a: (np.exp(a) / np.exp(a).sum(1, keepdims=True)).sum(0)),
    "bools": (lambda t: (t > 0).logical_not(), lambda a: a <= 0),
    "halves": (lambda t: t.half().float(), lambda a: a.astype(np.float16).astype(np.float32)),
    "packed words": (lambda t: (t * 20).cast("int8") + 1, lambda a: (a * 20).astype(np.int8) + 1),
    "parts of words": (
        lambda t: (t.reshape(-1)[1:].cast("bfloat16") + 0).float(),
        lambda a: a.reshape(-1)[1:].astype(ml_dtypes.bfloat16).astype(np.float32),
    ),
    "shifted": (lambda t: t.reshape(-1)[2:].reshape(-1, 7), lambda a: a.reshape(-1)[2:].reshape(-1, 7)),
    "joined": (lambda t: Tensor.cat(t, t[:3], dim=0), lambda a: np.concatenate([a, a[:3]])),
    "sorted": (lambda t: t.reshape(-1)[:2000].argsort(), lambda a: a.reshape(-1)[:2000].argsort(kind="stable")),
}


@pytest.mark.parametrize("name", OPS)
def test_kernels_over_segments(narrow: Callable[..., WebGpuDevice], name: str) -> None:
    if not narrow().target.f16 and name == "halves":
        pytest.skip("no shader-f16")
    ours, theirs = OPS[name]
    np.testing.assert_allclose(ours(Tensor(TABLE)).numpy(), theirs(TABLE), rtol=2e-4, atol=1e-5)


def test_checked_shaders_read_windows_too(narrow: Callable[..., WebGpuDevice]) -> None:
    with settings.override(trusted=False):
        narrow()
        np.testing.assert_array_equal(Tensor(TABLE)[Tensor(ROWS)].numpy(), TABLE[ROWS])


def _losses(device: str) -> list[float]:
    """A tied table that is looked up, multiplied with and trained: all three uses, captured."""
    set_default_device(device)
    table = Tensor(TABLE.copy(), requires_grad=True)
    optimizer = nn.AdamW([table], lr=1e-2)
    tokens, targets = Tensor(ROWS), Tensor(np.arange(6, dtype=np.int32))

    def step() -> Tensor:
        loss = F.cross_entropy(table[tokens] @ table.T, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    captured = jit(step)
    return [float(captured().item()) for _ in range(4)] + table.numpy().reshape(-1)[::50].tolist()


@pytest.mark.parametrize("buffers", [32, 24])
def test_a_wide_table_trains_as_on_the_cpu(
    narrow: Callable[..., WebGpuDevice], device: WebGpuDevice, buffers: int
) -> None:
    if device.limits.max_buffers < buffers:
        pytest.skip(f"no kernel may bind {buffers} buffers")
    narrow(max_storage_buffers_per_shader_stage=buffers)
    got = _losses("webgpu")
    np.testing.assert_allclose(got, _losses("cpu"), rtol=1e-4, atol=1e-5)


def test_what_would_take_too_many_bindings_is_split_or_refused(narrow: Callable[..., WebGpuDevice]) -> None:
    # Eight bindings: three operands of two segments each are read by two kernels.
    narrow(8192, max_storage_buffers_per_shader_stage=8)
    a, b, c, d = (Tensor(TABLE + n) for n in range(4))
    np.testing.assert_allclose((a * b + c * d).numpy(), TABLE * (TABLE + 1) + (TABLE + 2) * (TABLE + 3), rtol=1e-5)
    narrow(2048, max_storage_buffers_per_shader_stage=8)
    with pytest.raises(CompilerError, match=r"binds 2 buffers in 16 pieces of at most 2048 bytes; .* allows 8"):
        (Tensor(TABLE) + 1).numpy()


def test_a_buffer_has_a_limit_of_its_own(narrow: Callable[..., WebGpuDevice]) -> None:
    narrow(max_buffer_size=1 << 20)
    with pytest.raises(DeviceError, match=r"takes 1048592 bytes, and a buffer of .* has at most 1048576"):
        Tensor.zeros(262148).contiguous().realize()


def test_long_reads_go_through_short_staging_memory(
    narrow: Callable[..., WebGpuDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anneal.backend.webgpu import queue

    device = narrow()
    monkeypatch.setattr(queue, "_AT_ONCE", 8192)
    monkeypatch.setattr(queue, "_PIECE", 4096)
    large, small = Tensor(TABLE) + 0.5, Tensor(TABLE[:2]) + 0.5
    realize([small, large])
    got = device.download_all([(storage_of(t.uop).ensure(), t.numel(), t.dtype) for t in (small, large, small)])
    for data, rows in zip(got, (2, 97, 2), strict=True):
        np.testing.assert_array_equal(data.reshape(rows, 40), TABLE[:rows] + np.float32(0.5))


def test_memory_that_fits_is_read_as_ever() -> None:
    sink = plan_for(graph([(Tensor(TABLE) + 1).uop]), cost_models.gpu())[0].calls[0].kernel.sink
    assert "_at(" not in generate(sink, Target()).source
    source = generate(sink, Target(binding_bytes=8192)).source
    assert "p1_at(" in source
    assert "p0_put(" in source


def test_the_scheduler_counts_segments() -> None:
    # p, m, v and the gradient of AdamW over a table of four segments: 4 x 4 bindings read, 3 x 4 written.
    tables = [Tensor(TABLE + n) for n in range(6)]
    total = tables[0]
    for t in tables[1:]:
        total = total + t
    assert len(plan_for(graph([total.uop]), cost_models.gpu(16))[0].calls) == 1
    plan = plan_for(graph([total.uop]), cost_models.gpu(16, LIMIT))[0]
    assert len(plan.calls) > 1
    assert all(4 * len(c.args) <= 16 for c in plan.calls)
