"""Hand-written WGSL: what a kernel reaches that knows its sizes and is shaped by hand, on the device that anneal opens.

The product: a workgroup of 128 threads computes a block of 64 x 64, every thread 8 x 4 results. Sixteen columns of `a`
and sixteen rows of `b` at a time stand in workgroup memory as vec4 (`a` transposed, its rows padded so that stores meet
different banks), while the next sixteen are already on their way into registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import wgpu

from anneal.backend import get_device
from anneal.backend.webgpu import native
from anneal.uop import dtypes
from benchmarks._harness import Run

Array = npt.NDArray[np.float32]
BLOCK, DEPTH, THREADS = 64, 16, 128
PITCH = (BLOCK + 4) // 4  # of a row of `a` in workgroup memory, in vec4


def product_text(m: int, n: int, k: int) -> str:
    def load(step: str) -> list[str]:
        lines = []
        for i in range(BLOCK * DEPTH // 4 // THREADS):
            at = f"(tid + {i * THREADS}u)"
            lines.append(f"next_a{i} = a[((row + {at} / 4u) * {k}u + {step}) / 4u + {at} % 4u];")
            lines.append(f"next_b{i} = b[(({step} + {at} / 16u) * {n}u + column) / 4u + {at} % 16u];")
        return lines

    def stage() -> list[str]:
        lines = []
        for i in range(BLOCK * DEPTH // 4 // THREADS):
            at = f"(tid + {i * THREADS}u)"
            for q, lane in enumerate("xyzw"):
                to = f"tile_a[({at} % 4u * 4u + {q}u) * {PITCH}u + {at} / 16u]"
                lines.append(f"{to}[{at} / 4u % 4u] = next_a{i}.{lane};")
            lines.append(f"tile_b[{at}] = next_b{i};")
        return lines

    def multiply() -> list[str]:
        lines = [f"let b0 = tile_b[k * {BLOCK // 4}u + tx];"]
        lines += [f"let a{i} = tile_a[k * {PITCH}u + ty + {8 * i}u];" for i in range(2)]
        lines += [f"sum{r} = fma(vec4f(a{r // 4}.{'xyzw'[r % 4]}), b0, sum{r});" for r in range(8)]
        return lines

    write = [f"c[((row + ty * 4u + {r // 4 * 32 + r % 4}u) * {n}u + column) / 4u + tx] = sum{r};" for r in range(8)]
    inner = "\n    ".join
    return f"""
@group(0) @binding(0) var<storage, read_write> c: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b: array<vec4f>;
var<workgroup> tile_a: array<vec4f, {DEPTH * PITCH}>;
var<workgroup> tile_b: array<vec4f, {DEPTH * BLOCK // 4}>;
@compute @workgroup_size({THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) tid: u32) {{
  let tx = tid % 16u;
  let ty = tid / 16u;
  let row = group.y * {BLOCK}u;
  let column = group.x * {BLOCK}u;
  {" ".join(f"var sum{r} = vec4f();" for r in range(8))}
  {" ".join(f"var next_{x}{i}: vec4f;" for x in "ab" for i in range(BLOCK * DEPTH // 4 // THREADS))}
  {inner(load("0u"))}
  for (var k0 = {DEPTH}u; k0 <= {k}u; k0 += {DEPTH}u) {{
    {inner(stage())}
    workgroupBarrier();
    if (k0 < {k}u) {{
    {inner(load("k0"))}
    }}
    for (var k = 0u; k < {DEPTH}u; k += 1u) {{
    {inner(multiply())}
    }}
    workgroupBarrier();
  }}
  {inner(write)}
}}
"""


COPY = """
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (group.x + group.y * 32768u) * 256u + tid;
  if (i < arrayLength(&x)) { y[i] = x[i] * 1.5; }
}
"""


class Kernels:
    """The contestant `wgsl`."""

    details: ClassVar[dict[str, Any]] = {}

    def __init__(self, device: str) -> None:
        if device != "webgpu":
            raise ImportError("hand-written WGSL needs --device webgpu")
        self.device: Any = get_device("webgpu")

    @property
    def about(self) -> dict[str, Any]:
        return {"device": self.device.info.name, "driver": self.device.info.driver}

    def product(self, a: Array, b: Array, ta: bool, tb: bool) -> tuple[Run, Callable[[], Array]]:
        if a.ndim > 2 or ta or tb or any(d % BLOCK for d in (a.shape[0], b.shape[1])) or a.shape[1] % DEPTH:
            raise NotImplementedError("plain products of whole blocks only")
        (m, k), n = a.shape, b.shape[1]
        return self._bound(product_text(m, n, k), (n // BLOCK, m // BLOCK), (m, n), a, b)

    def convolution(self, x: Array, w: Array) -> tuple[Run, Callable[[], Array]]:
        raise NotImplementedError("no hand-written convolution")

    def memory(self, op: str, arrays: list[Array]) -> tuple[Run, Callable[[], list[Array]]]:
        """`benchmarks.memory_bound`'s copy; nothing else is written by hand."""
        if op != "copy":
            raise NotImplementedError("only the copy is written by hand")
        groups = -(-arrays[0].size // 1024)
        grid = min(groups, 32768), -(-groups // 32768)
        run, result = self._bound(COPY, grid, arrays[0].shape, arrays[0])
        return run, lambda: [result()]

    def _bound(
        self, text: str, grid: tuple[int, int], shape: tuple[int, ...], *inputs: Array
    ) -> tuple[Run, Callable[[], Array]]:
        device, size = self.device, int(np.prod(shape))
        module = native.shader_module(device.gpu, text, "wgsl", device.trusted)
        pipeline = device.gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        buffers = [device.alloc(size, dtypes.float32), *[device.alloc(x.size, dtypes.float32) for x in inputs]]
        for buffer, x in zip(buffers[1:], inputs):
            device.upload(buffer, x)
        entries = [
            {"binding": i, "resource": {"buffer": b.gpu, "offset": 0, "size": b.nbytes}} for i, b in enumerate(buffers)
        ]
        group = device.gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)

        def run(count: int) -> float:
            return seconds(device, pipeline, group, grid, count)

        def result() -> Array:
            run(1)
            out: Array = device.download(buffers[0], size, dtypes.float32).reshape(shape)
            return out

        return run, result


def seconds(device: Any, pipeline: Any, group: Any, grid: tuple[int, int], count: int) -> float:
    """GPU seconds of `count` dispatches in one pass."""
    gpu = device.gpu
    queries = gpu.create_query_set(type=wgpu.QueryType.timestamp, count=2)
    ticks = gpu.create_buffer(size=16, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
    encoder = gpu.create_command_encoder()
    compute_pass = encoder.begin_compute_pass(
        timestamp_writes={"query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
    )
    compute_pass.set_pipeline(pipeline)
    compute_pass.set_bind_group(0, group)
    for _ in range(count):
        compute_pass.dispatch_workgroups(*grid, 1)
    compute_pass.end()
    encoder.resolve_query_set(queries, 0, 2, ticks, 0)
    gpu.queue.submit([encoder.finish()])
    begin, end = (int(t) for t in np.frombuffer(gpu.queue.read_buffer(ticks), np.uint64))
    return (end - begin) * native.timestamp_period(gpu) * 1e-9
