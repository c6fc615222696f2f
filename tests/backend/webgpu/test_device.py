"""The device itself: choosing an adapter, memory, batches, the ways around wgpu's private names, and errors."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anneal import settings
from anneal.backend import Storage, numpy_dtype
from anneal.backend.registry import DEVICES
from anneal.backend.webgpu import WebGpuDevice, WebGpuProgram, choose_adapter, native, open_device, queue
from anneal.backend.webgpu.adapters import fix_for
from anneal.codegen import generate
from anneal.errors import CompilerError, DeviceError
from anneal.uop import DType, Op, dtypes
from tests.backend.webgpu.run import Array, run
from tests.codegen import kernels as K


def adapter(name: str, kind: str, backend: str) -> Any:
    return SimpleNamespace(info={"device": name, "adapter_type": kind, "backend_type": backend, "vendor": "v"})


LLVMPIPE = adapter("llvmpipe (LLVM 15)", "CPU", "Vulkan")
INTEL = adapter("Intel Iris", "IntegratedGPU", "Vulkan")
NVIDIA = adapter("NVIDIA H200", "DiscreteGPU", "Vulkan")
NVIDIA_GL = adapter("NVIDIA H200", "DiscreteGPU", "OpenGL")
BASIC = adapter("Microsoft Basic Render Driver", "DiscreteGPU", "D3D12")


def test_hardware_is_preferred_and_software_refused_unless_asked_for() -> None:
    assert choose_adapter([LLVMPIPE, INTEL, NVIDIA_GL, NVIDIA], None, False) is NVIDIA
    assert choose_adapter([LLVMPIPE, INTEL], None, True) is INTEL
    assert choose_adapter([LLVMPIPE], None, True) is LLVMPIPE
    assert choose_adapter([LLVMPIPE, INTEL], "LLVMpipe", False) is LLVMPIPE
    assert choose_adapter([NVIDIA, INTEL], "iris", False) is INTEL
    for software in (LLVMPIPE, BASIC):
        with pytest.raises(DeviceError, match=r"software.*ANNEAL_ADAPTER="):
            choose_adapter([software], None, False)
    with pytest.raises(DeviceError, match="there are: .*llvmpipe"):
        choose_adapter([LLVMPIPE], "radeon", True)
    with pytest.raises(DeviceError, match="device 'cpu'"):
        choose_adapter([], None, True)


def test_every_system_gets_its_own_advice() -> None:
    assert "vulkaninfo" in fix_for("linux")
    assert "Metal" in fix_for("darwin")
    assert "driver" in fix_for("win32")


def test_describe_names_the_adapter_and_its_limits(device: WebGpuDevice) -> None:
    about = device.describe()
    assert about["name"] == "webgpu"
    assert about["adapter"]
    assert about["limits"]["max-compute-invocations-per-workgroup"] >= 128
    assert about["max_buffers"] >= 8
    assert isinstance(about["shader_f16"], bool)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool_, dtypes.float16])
@pytest.mark.parametrize("size", [0, 1, 3, 1000])
def test_upload_and_download_any_size(device: WebGpuDevice, dtype: DType, size: int) -> None:
    rng = np.random.default_rng(size)
    data: Array = rng.integers(0, 2 if dtype.kind == "bool" else 100, size).astype(dtype.name)
    buffer = device.alloc(size, dtype)
    device.upload(buffer, data)
    back = device.download(buffer, size, dtype)
    assert back.dtype == data.dtype
    np.testing.assert_array_equal(back, data)
    device.free(buffer)


def test_freed_memory_is_used_again(device: WebGpuDevice) -> None:
    first = device.alloc(12345, dtypes.float32)
    device.free(first)
    assert device.alloc(12345, dtypes.int32) is first
    device.free(first)


def test_a_tensor_larger_than_a_buffer_is_refused_before_anything_runs(device: WebGpuDevice) -> None:
    with pytest.raises(DeviceError, match="has at most"):
        device.alloc(2**40, dtypes.float32)


def _steps(device: WebGpuDevice, n: int) -> tuple[Any, list[Any]]:
    """y = 3i, then x = y + x twice over, as one batch; x starts at 1."""
    i = K.loop(n, 0)
    first = device.compile(K.sink(K.store(K.param(0, n), i, i.cast(dtypes.float32) * 3)))
    both = K.load(K.param(0, n), i) + K.load(K.param(1, n), i)
    second = device.compile(K.sink(K.store(K.param(0, n), i, both)))
    x, y = device.alloc(n, dtypes.float32), device.alloc(n, dtypes.float32)
    device.upload(x, np.ones(n, np.float32))
    return device.prepare([(first, [y]), (second, [x, y]), (second, [x, y])]), [x, y]


def test_batches_run_in_order_and_again(device: WebGpuDevice) -> None:
    batch, (x, _) = _steps(device, 100)
    for times in (1, 2, 3):
        batch.run()
        np.testing.assert_array_equal(device.download(x, 100, dtypes.float32), 1 + 6.0 * np.arange(100) * times)
    device.prepare([]).run()
    device.synchronize()


def test_copies_writes_and_batches_keep_their_order(device: WebGpuDevice) -> None:
    a, b, c = (device.alloc(4, dtypes.float32) for _ in range(3))
    device.upload(a, np.full(4, 1, np.float32))
    device.copy(a, b, 4, dtypes.float32)
    device.upload(a, np.full(4, 2, np.float32))  # after the copy, though the copy still waits
    device.copy(a, c, 4, dtypes.float32)
    for buffer, value in zip((a, b, c), device.download_all([(x, 4, dtypes.float32) for x in (a, b, c)]), strict=True):
        np.testing.assert_array_equal(value, np.full(4, 1 if buffer is b else 2))
    batch, (x, _) = _steps(device, 4)
    batch.run()
    device.copy(x, b, 4, dtypes.float32)
    batch.run()
    device.synchronize()
    np.testing.assert_array_equal(device.download(b, 4, dtypes.float32), 1 + 6.0 * np.arange(4))


def test_download_of_several_buffers_at_once(device: WebGpuDevice) -> None:
    data = [
        np.array([True, False, True]),
        np.arange(5, dtype=np.int32),
        np.zeros(0, np.float32),
        np.ones(3, np.float32),
    ]
    kinds = [dtypes.bool_, dtypes.int32, dtypes.float32, dtypes.float32]
    pieces = [(device.alloc(d.size, k), d.size, k) for d, k in zip(data, kinds, strict=True)]
    for (buffer, _, _), d in zip(pieces, data, strict=True):
        device.upload(buffer, d)
    for back, d in zip(device.download_all(pieces), data, strict=True):
        assert back.dtype == d.dtype
        np.testing.assert_array_equal(back, d)


def test_profile_times_every_call(device: WebGpuDevice) -> None:
    if "timestamp-query" not in device.features:
        pytest.skip("no timestamp queries")
    batch, (x, _) = _steps(device, 64)
    times = batch.profile()
    assert [name for name, _ in times] == batch.names
    assert all(seconds >= 0 for _, seconds in times)
    np.testing.assert_array_equal(device.download(x, 64, dtypes.float32), 1 + 6.0 * np.arange(64))
    assert batch.seconds() > 0
    np.testing.assert_array_equal(device.download(x, 64, dtypes.float32), 1 + 12.0 * np.arange(64))


def test_equal_kernels_share_a_program_and_a_pipeline(device: WebGpuDevice) -> None:
    a = device.compile(K.logsumexp(9, 11))
    assert device.compile(K.logsumexp(9, 11)) is a
    x, y = device.alloc(99, dtypes.float32), device.alloc(9, dtypes.float32)
    first, second = device.prepare([(a, [y, x])]), device.prepare([(a, [y, x])])
    assert first.dispatches == second.dispatches


def test_bind_groups_go_with_their_buffers(device: WebGpuDevice) -> None:
    program = device.compile(K.transpose(3, 4))
    x, y = device.alloc(12, dtypes.float32), device.alloc(12, dtypes.float32)
    before = len(device._groups)
    batch = device.prepare([(program, [y, x])])
    assert len(device._groups) >= before
    device._drop(x)
    assert all(id(x) not in key for key in device._groups)
    batch.run()  # what a batch holds stays


@pytest.mark.parametrize("way", ["checked", "public"])
def test_the_public_api_gives_the_same_results(device: WebGpuDevice, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "public":
        monkeypatch.setattr(native, "AVAILABLE", False)
    with settings.override(trusted=False):
        other = open_device(device.info.name, allow_software=True)
    assert not other.trusted
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((20, 20)).astype(np.float32) for _ in range(2))
    for graph, inputs in (
        (K.matmul(20, 20, 20), {1: a, 2: b}),
        (K.logsumexp(20, 20), {1: a}),
        (K.argsort(20), {1: np.arange(20)[::-1].astype(np.int32)}),
    ):
        np.testing.assert_array_equal(run(other, graph, inputs)[0], run(device, graph, inputs)[0])
    batch, (x, y) = _steps(other, 10)
    for times in (1, 2, 3):
        batch.run()
        other.copy(x, y, 10, dtypes.float32)
        other.synchronize()
        np.testing.assert_array_equal(other.download(y, 10, dtypes.float32), 1 + 6.0 * np.arange(10) * times)


def test_a_shader_that_does_not_compile_names_its_kernel(device: WebGpuDevice) -> None:
    good = generate(K.transpose(2, 2), device.target)
    object.__setattr__(good, "source", good.source.replace("p0[", "nonsense["))
    program = WebGpuProgram("e_broken", good)
    x = device.alloc(4, dtypes.float32)
    with pytest.raises(CompilerError, match="e_broken"):
        device.prepare([(program, [x, x])])


def test_a_dispatch_that_is_not_valid_names_its_kernel(device: WebGpuDevice) -> None:
    batch, _ = _steps(device, 8)
    pipeline, group, *_ = batch.dispatches[1]
    batch.dispatches[1] = (pipeline, group, 1 << 20, 1, 1)
    batch._handles[:] = device.queue.handles(batch.dispatches)
    with pytest.raises(CompilerError, match=batch.names[1]):
        batch.run()


def test_pipelines_are_built_side_by_side(device: WebGpuDevice) -> None:
    calls = []
    for n in range(40, 48):
        x, y = device.alloc(n, dtypes.float32), device.alloc(1, dtypes.float32)
        device.upload(x, np.ones(n, np.float32))
        calls.append((device.compile(K.row_reduce(Op.ADD, 1, n)), [y, x]))
    device.prepare(calls).run()
    sums = [device.download(buffers[0], 1, dtypes.float32)[0] for _, buffers in calls]
    assert sums == list(range(40, 48))


def test_a_buffer_survives_the_collection_of_a_cycle_that_held_its_storage(
    device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEVICES.open, "webgpu", device)
    storage = Storage(7777, dtypes.float32, "webgpu")
    cycle: list[object] = [storage]
    cycle.append(cycle)
    storage.ensure()
    del storage, cycle
    gc.collect()
    again = device.alloc(7777, dtypes.float32)
    device.upload(again, np.arange(7777, dtype=np.float32))
    np.testing.assert_array_equal(device.download(again, 7777, dtypes.float32), np.arange(7777, dtype=np.float32))
    device.free(again)


def test_a_lost_device_is_an_error_of_ours(device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_TRUST_S", 0.0)
    other = open_device(device.info.name, allow_software=True)
    batch, (x, y) = _steps(other, 16)
    for _ in range(3):
        batch.run()  # the commands of the next run are recorded already
    other.gpu.destroy()
    for _ in range(2):
        for what in (batch.run, other.synchronize, lambda: other.download(x, 16, dtypes.float32)):
            with pytest.raises(DeviceError, match="lost"):
                what()
    with pytest.raises(DeviceError, match="lost"):
        other.upload(y, np.ones(16, np.float32))
    with pytest.raises(DeviceError, match="lost"):
        other.alloc(99_999, dtypes.float32)


def test_what_is_written_in_place_arrives_in_order(device: WebGpuDevice, monkeypatch: Any) -> None:
    other = open_device(device.info.name, allow_software=True)
    kinds = [(7, dtypes.float32), (5, dtypes.int32), (3, dtypes.uint8)]
    for several in (kinds[:1], kinds[:2], kinds):
        pieces = [(other.alloc(n, kind), n, kind) for n, kind in several]
        for turn in range(5):
            for buffer, n, kind in pieces:
                other.upload(buffer, np.full(n, 99, numpy_dtype(kind)))  # what was written before does not come after
            found = other.written(pieces)
            assert found is not None
            arrays, give = found
            for array in arrays:
                array[...] = turn
            del array
            give()
            for (_, n, kind), there in zip(pieces, other.download_all(pieces), strict=True):
                np.testing.assert_array_equal(there, np.full(n, turn, numpy_dtype(kind)))
    assert other.written([(pieces[0][0], 1, dtypes.bool_)]) is None
    # the memory of the first is there for the others
    assert {size: len(given) for size, given in other.queue._given.items()} == {256: 1}
    if device.made_by.name == "wgpu":  # Dawn's queue has no other way
        monkeypatch.setattr(native, "AVAILABLE", False)
        assert open_device(device.info.name, allow_software=True).written(pieces) is None


def test_large_results_are_read_into_memory_that_nobody_has(device: WebGpuDevice, monkeypatch: Any) -> None:
    monkeypatch.setattr(queue, "_PIECE", 64)
    buffers = []
    for n in range(3):
        buffers.append(device.alloc(1000, dtypes.float32))
        device.upload(buffers[-1], np.full(1000, n, np.float32))
    held = device.download(buffers[0], 1000, dtypes.float32)
    place = device.download(buffers[1], 1000, dtypes.float32).ctypes.data
    again = device.download(buffers[2], 1000, dtypes.float32)
    assert again.ctypes.data == place != held.ctypes.data
    np.testing.assert_array_equal(held, np.zeros(1000))
    np.testing.assert_array_equal(again, np.full(1000, 2))
    device.empty_cache()
    np.testing.assert_array_equal(held, np.zeros(1000))


@pytest.mark.parametrize("public", [False, True])
def test_the_host_does_not_run_far_ahead(device: WebGpuDevice, public: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if public:
        monkeypatch.setattr(native, "AVAILABLE", False)
    other = open_device(device.info.name, allow_software=True)
    monkeypatch.setattr(queue, "_BYTES_AHEAD", 4000)
    monkeypatch.setattr(queue, "_SUBMISSIONS_AHEAD", 32)
    waits = []
    for name in ("_keep_pace", "wait"):
        right = getattr(other.queue, name)
        monkeypatch.setattr(other.queue, name, lambda name=name, right=right: (waits.append(name), right()))
    batch, (x, y) = _steps(other, 8)
    for _ in range(100):
        batch.run()
    assert waits.count("_keep_pace") >= 3
    np.testing.assert_array_equal(other.download(x, 8, dtypes.float32), 1 + 6.0 * np.arange(8) * 100)
    waits.clear()
    for n in range(300):
        other.upload(y, np.full(8, n, np.float32))
    assert waits.count("wait") >= 2
    np.testing.assert_array_equal(other.download(y, 8, dtypes.float32), np.full(8, 299))
    # what is large goes in pieces, and the host waits between them
    monkeypatch.setattr(queue, "_PIECE", 64)
    waits.clear()
    wide = np.arange(4003, dtype=np.float32)
    z = other.alloc(wide.size, dtypes.float32)
    other.upload(z, wide)
    assert waits.count("wait") >= 3
    np.testing.assert_array_equal(other.download(z, wide.size, dtypes.float32), wide)
