"""An adapter that is open: buffers, pipelines and bind groups, and the values of variables that kernels read."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import wgpu

from anneal import cache, progress, settings
from anneal.backend import cost_models
from anneal.backend.arrays import Array, numpy_dtype
from anneal.backend.device import BoundCache, Contents, Device, Limits, Reader
from anneal.backend.promises import Finisher
from anneal.backend.webgpu.adapters import AdapterInfo, describe_adapter, implementation_of, subgroup_size
from anneal.backend.webgpu.implementation import Implementation
from anneal.backend.webgpu.queue import Buffers, Bytes, DeviceBuffer, DirectQueue, Dispatch, WebGpuProgram, translated
from anneal.codegen import HALVES, Binding, GeneratedKernel, Target, bindings_of, segment_bytes, wgsl_functions
from anneal.errors import DeviceError
from anneal.frozen import Texts
from anneal.uop import DType, Ints, Recent, dtypes

_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_FEATURES = ("shader-f16", "shader-int64", "shader-f64", "timestamp-query", "subgroup", "subgroup-matrix")
_POOL_BYTES = 1 << 30
# Memory that was dropped goes back to the driver when the GPU is done with it; so much of it may wait for that.
_LET_GO_BYTES = 2 << 30
_FENCE = 16  # buffers that a fence binds
_GROUPS_KEPT, _PROGRAMS_KEPT = 2048, 1024


def _typed(raw: Sequence[Bytes], pieces: Contents[DeviceBuffer]) -> list[Array]:
    """The bytes of buffers as arrays; a buffer without elements was not read."""
    rest, out = iter(raw), []
    for _, size, dtype in pieces:
        found = next(rest) if size else np.empty(0, np.uint8)
        if dtype.kind == "bool":
            out.append(found.view(np.uint32)[:size].astype(np.bool_))
        else:
            out.append(found.view(numpy_dtype(dtype))[:size])
    return out


class OpenAdapter(Device[DeviceBuffer]):
    """An adapter, opened with its own limits and the features we know how to use: its memory, pipelines and bind
    groups."""

    name = "webgpu"

    def __init__(self, adapter: Any, limits: Mapping[str, int] | None = None) -> None:
        self.info: AdapterInfo = describe_adapter(adapter)
        self.adapter = self.info.name
        self.made_by = made_by = implementation_of(adapter)
        self.trusted = settings.current().trusted and made_by.can_trust
        names = made_by.features(adapter)
        self.features = [f for f in _FEATURES if f in names]
        wanted = {**dict(adapter.limits), **(limits or {})}
        with translated(lambda: f"while opening {self.info.name}"):
            self.gpu = made_by.open(adapter, [names[f] for f in self.features], wanted, self.trusted)
        granted = {k.replace("_", "-"): v for k, v in dict(self.gpu.limits).items()}
        for name, asked in (limits or {}).items():  # Dawn gives more
            granted[name] = min(granted[name], asked)
        self.gpu_limits: dict[str, int] = granted
        self.target = self._target(adapter)
        self.max_buffer_bytes = granted["max-buffer-size"]
        self.limits = Limits(
            granted["max-storage-buffers-per-shader-stage"],
            segment_bytes(self.target.binding_bytes),
            self.target.dtypes,
        )
        self.cost_model = cost_models.gpu(
            self.limits.max_buffers,
            self.limits.max_binding_bytes,
            self.max_buffer_bytes,
            HALVES in self.target.matrices,
        )
        # what generated code may depend on
        self.identity = (self.info, self.features, sorted(granted.items()), self.target, made_by.version)
        self.queue = made_by.queue(self.gpu)
        super().__init__(_POOL_BYTES)
        # Every buffer until it is dropped. Were it held by its storage alone, a collection of cycles that finds both
        # would end the handle and, through the storage, put the buffer into the pool.
        self._buffers: set[DeviceBuffer] = set()
        # bytes of the buffers that were dropped since the host last waited: the GPU may still use them
        self._let_go = 0
        self._programs: Recent[bytes, WebGpuProgram] = Recent(_PROGRAMS_KEPT)
        self._pipelines: Recent[str, Future[tuple[Any, Any]]] = Recent(_PROGRAMS_KEPT)
        self._layouts: dict[tuple[tuple[int, bool], ...], tuple[Any, Any]] = {}
        self._layout_lock = threading.Lock()
        self._in_c: Future[None] | None = None  # what has commands recorded in C
        self._groups: BoundCache[Any] = BoundCache(_GROUPS_KEPT, _GROUPS_KEPT)  # bind groups, by pipelines
        self.finisher = Finisher("anneal-finisher")
        # the values of variables, by their names in the order in which kernels bind them
        self._tables: dict[Texts, DeviceBuffer] = {}
        self._known: dict[Texts, Ints] = {}
        # Metal follows buffers by itself.
        self.waits_by_buffer = self.info.backend in ("Vulkan", "D3D12")

    def _target(self, adapter: Any) -> Target:
        granted, features = self.gpu_limits, self.features
        f16 = "shader-f16" in features
        return Target(
            max_threads=min(
                granted["max-compute-invocations-per-workgroup"], granted["max-compute-workgroup-size-x"], 1024
            ),
            max_workgroups=granted["max-compute-workgroups-per-dimension"],
            workgroup_bytes=granted["max-compute-workgroup-storage-size"],
            f16=f16,
            int64="shader-int64" in features,
            float64="shader-f64" in features,
            subgroup=subgroup_size(adapter.info) if "subgroup" in features else 0,
            binding_bytes=granted["max-storage-buffer-binding-size"],
            names_subgroups=self.made_by.names_subgroups,
            matrices=self.made_by.matrices(adapter) if f16 and "subgroup-matrix" in features else (),
            # where the CPU does the work, to compile the trial takes longer than it saves
            rounds_halves=f16 and not self.info.software and rounds_halves(self.gpu, self.info, self.made_by),
        )

    # -- memory

    def _nbytes(self, size: int, dtype: DType) -> int:
        return max(16, -(-size * dtype.device_itemsize // 16) * 16)  # whole vectors

    def _kind(self, size: int, dtype: DType) -> tuple[int, int]:
        nbytes = self._nbytes(size, dtype)
        if nbytes > self.max_buffer_bytes:
            raise DeviceError(
                f"a tensor of {size} {dtype.name} takes {nbytes} bytes, and a buffer of {self.info.name} has at most "
                f"{self.max_buffer_bytes}; split the tensor, or use device 'cpu'"
            )
        return nbytes, nbytes

    def _kind_of(self, buffer: DeviceBuffer) -> tuple[int, int] | None:
        # A test may open several devices.
        return (buffer.nbytes, buffer.nbytes) if buffer in self._buffers else None

    def _create(self, size: int, dtype: DType) -> DeviceBuffer:
        nbytes = self._nbytes(size, dtype)
        if self._let_go + nbytes > _LET_GO_BYTES and self._let_go:
            self.synchronize()
        with translated(lambda: f"while allocating {nbytes} bytes"):
            buffer = DeviceBuffer(self.gpu.create_buffer(size=nbytes, usage=_STORAGE), nbytes)
        self._buffers.add(buffer)
        return buffer

    def _drop(self, buffer: DeviceBuffer) -> None:
        # The handle goes when the last batch that uses it does; cached bind groups would keep it for ever.
        self._buffers.discard(buffer)
        self._let_go += buffer.nbytes
        self._groups.left(buffer)

    def empty_cache(self) -> None:
        """Give back unused memory; waits, so that the driver has it back too."""
        with self.lock:
            super().empty_cache()
            self.queue.empty_cache()
            self.synchronize()

    def upload(self, buffer: DeviceBuffer, data: Array) -> None:
        """Copy host data in; bools become 0 and 1 as u32."""
        flat = np.ascontiguousarray(data).reshape(-1)
        if flat.dtype == np.bool_:
            flat = flat.astype(np.uint32)
        if flat.size == 0:
            return
        if flat.nbytes % 4:
            flat = np.concatenate([flat.view(np.uint8), np.zeros(-flat.nbytes % 4, np.uint8)])
        if flat.nbytes > buffer.nbytes:
            raise DeviceError(f"upload of {flat.nbytes} bytes into a buffer of {buffer.nbytes}")
        try:
            self.queue.write(buffer.gpu, flat)
        except Exception as e:  # a block would be three calls each time
            with translated(lambda: f"while uploading {flat.nbytes} bytes"):
                raise e

    def copy(self, source: DeviceBuffer, destination: DeviceBuffer, size: int, dtype: DType) -> None:
        """Copy on the device, as part of the next submission."""
        with translated(lambda: f"while copying {size} {dtype.name}"):
            self.queue.copy(source.gpu, destination.gpu, self._nbytes(size, dtype))

    def download(self, buffer: DeviceBuffer, size: int, dtype: DType) -> Array:
        """A fresh host array, read through staging memory that is kept for the next time."""
        return self.download_all([(buffer, size, dtype)])[0]

    def download_all(self, pieces: Contents[DeviceBuffer]) -> list[Array]:
        """Several buffers, read with one wait."""
        wanted = [(b.gpu, self._nbytes(size, dtype)) for b, size, dtype in pieces if size]
        try:
            return _typed(self.queue.read(wanted) if wanted else [], pieces)
        except Exception as e:
            with translated(lambda: f"while reading {sum(n for _, n in wanted)} bytes back"):
                raise e

    def read_later(self, pieces: Contents[DeviceBuffer]) -> Reader:
        wanted = [(b.gpu, self._nbytes(size, dtype)) for b, size, dtype in pieces if size]
        if not wanted:
            return super().read_later(pieces)
        said = lambda: f"while reading {sum(n for _, n in wanted)} bytes back"
        with translated(said):
            reading = self.queue.start_read(wanted)

        def wait(use: Callable[[list[Array]], Any]) -> Any:
            with self.lock, translated(said):
                return self.queue.end_read(reading, lambda views: use(_typed(views, pieces)))

        return wait

    def written(self, pieces: Contents[DeviceBuffer]) -> tuple[list[Array], Callable[[], None]] | None:
        queue = self.queue
        if not isinstance(queue, DirectQueue) or any(d is dtypes.bool_ or not size for _, size, d in pieces):
            return None  # bools are words there
        said = lambda: f"while uploading {sum(size * dtype.itemsize for _, size, dtype in pieces)} bytes"
        with self.lock, translated(said):
            given, views = queue.start_giving([size * dtype.itemsize for _, size, dtype in pieces])
        arrays = [view.view(numpy_dtype(dtype)) for view, (_, _, dtype) in zip(views, pieces)]

        def give() -> None:
            arrays.clear()
            views.clear()
            with self.lock, translated(said):
                queue.end_giving(given, [buffer.gpu for buffer, _, _ in pieces])

        return arrays, give

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        with translated(lambda: "while waiting"):
            self.queue.wait()
        self._let_go = 0

    # -- kernels

    def _layout(self, *key: tuple[int, bool]) -> tuple[Any, Any]:
        """The bind group layout and pipeline layout for bindings, each a number and whether it is written; shared by
        kernels that bind alike."""
        with self._layout_lock:
            found = self._layouts.get(key)
            if found is None:
                kinds = (wgpu.BufferBindingType.read_only_storage, wgpu.BufferBindingType.storage)
                entries = [
                    {"binding": number, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kinds[written]}}
                    for number, written in key
                ]
                group = self.gpu.create_bind_group_layout(entries=entries)
                found = group, self.gpu.create_pipeline_layout(bind_group_layouts=[group])
                self._layouts[key] = found
            return found

    def _start(self, program: WebGpuProgram) -> None:
        """Have the driver make the pipeline, beside others and while further code is generated: it needs no Python."""
        if program.built is None:
            found = self._pipelines[program.source]
            if found is None:
                found = self.threads.submit(self.build, program)
                self._pipelines[program.source] = found
            program.built = found

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """The threads that make pipelines, which needs no Python."""
        return ThreadPoolExecutor(min(8, os.cpu_count() or 1), "anneal-pipelines")

    def record_in_c(self) -> None:
        """Have commands recorded in C from soon on, where that can be and is not ruled out (ANNEAL_CPU=numpy)."""
        if not self._in_c and isinstance(self.queue, DirectQueue) and settings.current().cpu != "numpy":
            self._in_c = self.threads.submit(self.queue.record_in_c)

    def build(self, program: WebGpuProgram) -> tuple[Any, Any]:
        """The pipeline, and its bind group layout."""
        group, layout = self._layout(*[(b.number, b.written) for b in self._bindings(program.kernel)])
        module = self.made_by.shader_module(self.gpu, program.source, program.name, self.trusted)
        return self.made_by.pipeline(self.gpu, program.name, layout, module), group

    def _finish(self, program: WebGpuProgram) -> None:
        self._start(program)
        assert program.built is not None
        try:
            building = f"building kernel {program.name}"
            with progress.work(building), translated(lambda: f"while {building}\n{program.source}"):
                program.pipeline, program.layout = program.built.result()
        except BaseException:
            self._pipelines[program.source] = None
            program.built = None
            raise

    def bind_group(self, program: WebGpuProgram, buffers: Sequence[DeviceBuffer]) -> Any:
        """The buffers of a program's bindings, as wgpu takes them."""
        used = [buffers[p.slot] for p in program.kernel.params]
        group = self._groups.of(program.pipeline, used)
        if group is None:
            with translated(lambda: f"while binding kernel {program.name}"):
                group = self.new_group(program, buffers)
            self._groups.put(group, program.pipeline, used)
        return group

    def _bindings(self, kernel: GeneratedKernel) -> tuple[Binding, ...]:
        return bindings_of(kernel.params, self.target.binding_bytes)

    def new_group(self, program: WebGpuProgram, buffers: Buffers) -> Any:
        """The same, made anew, of buffers that are found by slot; large ones in segments."""
        bindings = self._bindings(program.kernel)
        return self._group(program.layout, [(b.number, buffers[b.slot], b.offset, b.length) for b in bindings])

    def _group(self, layout: Any, parts: Iterable[tuple[int, DeviceBuffer, int, int]]) -> Any:
        """A bind group of parts of buffers, each with its number, where it begins, and the bytes it has at most."""
        entries = [
            {"binding": n, "resource": {"buffer": b.gpu, "offset": at, "size": min(most, b.nbytes - at)}}
            for n, b, at, most in parts
        ]
        return self.gpu.create_bind_group(layout=layout, entries=entries)

    def _table(self, names: Texts) -> DeviceBuffer:
        """The memory from which kernels read the values of these variables: the same for every batch."""
        found = self._tables.get(names)
        if found is None:
            found = self._tables[names] = self.alloc(len(names), dtypes.int32)
        return found

    def set_variables(self, names: Texts, values: Ints) -> None:
        """Have whatever is submitted from here on read these values."""
        if self._known.get(names) != values:
            self._known[names] = values
            self.queue.write(self._tables[names].gpu, np.array(values, np.int32))

    @cached_property
    def _fence(self) -> tuple[Any, Any]:
        """The pipeline of a fence, and its bind group layout."""
        group, layout = self._layout(*[(n, False) for n in range(min(_FENCE, self.limits.max_buffers))])
        module = self.gpu.create_shader_module(code="@compute @workgroup_size(1) fn main() {}")
        return self.made_by.pipeline(self.gpu, "fence", layout, module), group

    def fences(self, buffers: Sequence[DeviceBuffer]) -> list[Dispatch]:
        """Dispatches that do nothing but read `buffers`, as far as wgpu can tell."""
        width = min(_FENCE, self.limits.max_buffers)
        pipeline, group = self._fence
        out = []
        for i in range(0, len(buffers), width):
            some = [*buffers[i : i + width], *[buffers[i]] * width][:width]
            made = self._group(group, [(n, b, 0, self.target.binding_bytes) for n, b in enumerate(some)])
            out.append((pipeline, made, 0, 0, 0))
        return out

    def describe(self) -> dict[str, Any]:
        """Facts for `anneal doctor`."""
        return {
            **super().describe(),
            "adapter": self.info.name,
            **{fact: getattr(self.info, fact) for fact in ("backend", "kind", "driver", "vendor", "software")},
            "shader_f16": self.target.f16,
            "timestamps": "timestamp-query" in self.features,
            "trusted_shaders": self.trusted,
            "features": list(self.features),
            "limits": {
                k: v
                for k, v in self.gpu_limits.items()
                if "compute" in k or "storage-buffer" in k or k == "max-buffer-size"
            },
            "implementation": f"{self.made_by.name} {self.made_by.version}",
        }


# -- the rounding of an adapter, found by trying ----------------------------------------------------------------------
# WGSL leaves that of conversions to the driver.


# Every float16, and what lies halfway to the next, on both sides of it: of normal numbers by their bits, of subnormal
# ones, which are 2**-24 apart, by their values.
_TRIES = """fn differ(x: f32) -> u32 {
  let a = packed_f16(x);
  let b = round_f16(x);
  let both = is_nan(a) & is_nan(b);
  return select(1u, 0u, both | (bitcast<u32>(a) == bitcast<u32>(b)));
}
fn near(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  return differ(bitcast<f32>(b - 1u)) + differ(x) + differ(bitcast<f32>(b + 1u));
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  zero_bits = select(0u, id.x * 2654435769u, arrayLength(&wrong) == 0u);
  let x = unpack2x16float(id.x).x;
  let half = bitcast<f32>(bitcast<u32>(x) + 0x1000u);
  let small = x + select(2.9802322e-8f, -2.9802322e-8f, id.x >= 0x8000u);
  let found = differ(x) + near(half) + near(small);
  if (found > 0u) { atomicAdd(&wrong[0], found); }
}
"""
_HEAD = "@group(0) @binding(0) var<storage, read_write> wrong: array<atomic<u32>>;\nvar<private> zero_bits: u32;\n"


def rounds_halves(gpu: Any, info: AdapterInfo, made_by: Implementation) -> bool:
    """True if `pack2x16float` rounds as `Target.rounds_halves` says, on the device `gpu` of the adapter `info`."""
    key = cache.disk_key("rounding", info, made_by.name, made_by.version)
    kept = cache.load("rounding", key, bool)
    if kept is None:
        kept = _tried(gpu, made_by)
        cache.save("rounding", key, kept, f"{info.name}: pack2x16float {'rounds' if kept else 'does not round'}")
    return kept


def _tried(gpu: Any, made_by: Implementation) -> bool:
    usage = made_by.package.BufferUsage
    wrong = gpu.create_buffer(size=16, usage=usage.STORAGE | usage.COPY_SRC)
    code = "\n".join([_HEAD, *wgsl_functions(_TRIES), _TRIES])
    pipeline = gpu.create_compute_pipeline(
        layout="auto", compute={"module": gpu.create_shader_module(code=code), "entry_point": "main"}
    )
    bound = [{"binding": 0, "resource": {"buffer": wrong, "offset": 0, "size": 16}}]
    group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=bound)
    encoder = gpu.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, group)
    work.dispatch_workgroups((1 << 16) // 64)
    work.end()
    gpu.queue.submit([encoder.finish()])
    (count,) = struct.unpack_from("<I", gpu.queue.read_buffer(wrong))
    return bool(count == 0)
