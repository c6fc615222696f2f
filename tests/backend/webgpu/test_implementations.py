"""The two implementations of WebGPU: which is used, adapters by number, threads, and what WGSL each of them takes."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import wgpu

from anneal import settings
from anneal.backend import cost_models
from anneal.backend.webgpu import (
    WebGpuDevice,
    adapters,
    choose_adapter,
    enumerate_adapters,
    implementation_of,
    open_device,
)
from anneal.codegen import Target, generate
from anneal.errors import DeviceError
from anneal.schedule import graph, plan_for
from anneal.tensor import Tensor, Variable
from anneal.uop import dtypes

ADDS = """@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {{ p0[i] = p0[i] + {}.0f; }}"""


def named(name: str) -> Any:
    return SimpleNamespace(info={"device": name, "adapter_type": "DiscreteGPU", "backend_type": "Vulkan"})


def test_an_adapter_is_chosen_by_number_or_by_name() -> None:
    two = [named("NVIDIA H200"), named("NVIDIA H200")]
    assert choose_adapter(two, "1", False) is two[1]
    assert choose_adapter(two, "0", False) is two[0]
    assert choose_adapter([two[0], named("RTX 4090")], "4090", False).info["device"] == "RTX 4090"
    with pytest.raises(DeviceError, match="'7', or has that number; there are: NVIDIA H200"):
        choose_adapter(two, "7", False)


def test_auto_is_wgpu_and_dawn_where_that_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    finds = {"wgpu": [named("by wgpu")], "dawn": [named("by dawn")]}
    monkeypatch.setattr(adapters, "implementation", lambda name: SimpleNamespace(adapters=lambda: finds[name]))
    assert enumerate_adapters("auto") == finds["wgpu"]
    assert enumerate_adapters("dawn") == finds["dawn"]
    finds["wgpu"] = []
    assert enumerate_adapters("auto") == finds["dawn"]


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['wgpudawn'] = None\n"
        "from anneal.backend.webgpu import enumerate_adapters\n"
        "try: enumerate_adapters('dawn')\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("DeviceError Dawn needs the package wgpudawn, an extra: pip install wgpudawn")


def test_a_device_is_opened_by_the_implementation_of_its_adapter(device: WebGpuDevice) -> None:
    about = device.describe()
    assert about["implementation"].split()[0] == device.made_by.name
    assert device.target.names_subgroups == (device.made_by.name == "dawn")
    wanted = settings.current().webgpu
    assert wanted in ("auto", device.made_by.name)
    assert {implementation_of(a).name for a in enumerate_adapters()} == {device.made_by.name}


def test_a_second_device_of_an_adapter_computes_too(device: WebGpuDevice) -> None:
    other = open_device(device.info.name, allow_software=True)
    for d in (other, device):
        buffer = d.alloc(3, dtypes.float32)
        d.upload(buffer, np.arange(3, dtype=np.float32))
        assert d.download(buffer, 3, dtypes.float32).tolist() == [0, 1, 2]


def test_threads_make_and_drop_what_a_device_has(device: WebGpuDevice) -> None:
    """Pipelines, buffers and bind groups in cycles, which a collection in any thread ends."""
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for n in range(first, first + 25):
                with device.lock:
                    buffer = device.alloc(64, dtypes.float32)
                    device.upload(buffer, np.ones(64, np.float32))
                group = device.gpu.create_bind_group_layout(
                    entries=[{"binding": 0, "visibility": 4, "buffer": {"type": "storage"}}]
                )
                layout = device.gpu.create_pipeline_layout(bind_group_layouts=[group])
                module = device.made_by.shader_module(device.gpu, ADDS.format(n % 7), "adds", device.trusted)
                pipeline = device.made_by.pipeline(device.gpu, "adds", layout, module)
                entry = {"binding": 0, "resource": {"buffer": buffer.gpu, "offset": 0, "size": 256}}
                bound = device.gpu.create_bind_group(layout=group, entries=[entry])
                with device.lock:
                    queue = device.queue
                    queue.submit(queue.finish(queue.encode(queue.handles([(pipeline, bound, 1, 1, 1)]))))
                    assert device.download(buffer, 64, dtypes.float32).tolist() == [1 + n % 7] * 64
                cycle: list[Any] = [module, pipeline, bound]
                cycle.append(cycle)
                if n % 5 == 0:
                    gc.collect()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_an_error_in_a_shader_is_raised_where_it_is_made(device: WebGpuDevice) -> None:
    module = device.made_by.package.GPUError
    with pytest.raises(module, match="nonsense|expected|parsing"):
        device.made_by.shader_module(device.gpu, "nonsense", "no shader", False)
    buffer = device.alloc(3, dtypes.float32)  # the device works on
    device.upload(buffer, np.arange(3, dtype=np.float32))
    assert device.download(buffer, 3, dtypes.float32).tolist() == [0, 1, 2]


@pytest.mark.parametrize("ask", ["write", "copy", "read"])
def test_an_error_in_a_call_of_the_queue_is_raised_where_it_is_made(device: WebGpuDevice, ask: str) -> None:
    usage, gpu, calls = wgpu.BufferUsage, device.gpu, device.queue
    target, mute = gpu.create_buffer(size=4, usage=usage.COPY_DST), gpu.create_buffer(size=64, usage=usage.STORAGE)
    raised = []

    def run() -> None:
        with device.lock, pytest.raises(device.made_by.package.GPUError) as error:
            if ask == "write":
                calls.write(target, np.zeros(64, np.uint8))
            elif ask == "copy":
                calls.copy(mute, target, 64)
                calls.flush()
            else:
                calls.read([(mute, 64)])
        raised.append(error)
        calls._copies = None  # a copy that failed spoils what waits with it

    run()
    thread = threading.Thread(target=run)  # whose first call this is
    thread.start()
    thread.join()
    assert len(raised) == 2
    buffer = device.alloc(3, dtypes.float32)
    device.upload(buffer, np.arange(3, dtype=np.float32))
    assert device.download(buffer, 3, dtypes.float32).tolist() == [0, 1, 2]


@pytest.mark.parametrize("subgroup", [0, 4, 32])
@pytest.mark.parametrize("n", [48, 100])
def test_parts_of_a_kernel_that_wait_are_reached_by_all_threads(n: int, subgroup: int) -> None:
    """A part that waits has as many threads as the workgroup, also when another part got more of them later; and no
    part follows one that threads may leave: WGSL asks for barriers in uniform control flow."""
    x = Tensor(np.arange(n, dtype=np.float32), requires_grad=True)
    top = x.amax()
    top.backward()
    assert x.grad is not None
    rows = Tensor(np.ones((2, n), np.float32)).softmax(-1)
    plan, *_ = plan_for(graph([top.uop, x.grad.uop, rows.uop]), cost_models.gpu())
    sources = [generate(call.kernel.sink, Target(subgroup=subgroup)).source for call in plan.calls]
    several = [s for s in sources if "(at >=" in s]
    assert several
    for source in several:
        parts = source.split("if ((at >=")[1:]
        waits = ["workgroupBarrier" in part for part in parts]
        assert waits == sorted(waits, reverse=True), "threads may have left a part without barriers"
        assert not any(
            "local_id <" in part.splitlines()[0] for part, waiting in zip(parts, waits, strict=True) if waiting
        )


def test_the_values_of_variables_have_a_binding_of_their_own() -> None:
    model = cost_models.gpu(8, 1 << 27)
    size = Variable("n", 1, 64).bind(5)
    held = [Tensor(np.full((64, 3), k, np.float32)) for k in range(9)]
    total = held[0][:size]
    for t in held[1:]:
        total = total * t[:size]
    plan, *_ = plan_for(graph([total.uop]), model)
    for call in plan.calls:
        assert len(generate(call.kernel.sink).params) <= 8
