"""The webgpu device: generated WGSL on any GPU that Vulkan, Metal or DX12 reaches, through wgpu-py."""

from anneal.backend.webgpu.adapters import (
    AdapterInfo,
    choose_adapter,
    describe_adapter,
    enumerate_adapters,
    implementation_of,
)
from anneal.backend.webgpu.batch import WebGpuBatch
from anneal.backend.webgpu.device import WebGpuDevice, open_device
from anneal.backend.webgpu.queue import DeviceBuffer, WebGpuProgram
