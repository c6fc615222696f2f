"""The rounding of an adapter, found by trying: WGSL leaves that of conversions to the driver."""

from __future__ import annotations

import struct
from typing import Any

from anneal import cache
from anneal.backend.webgpu.adapters import AdapterInfo
from anneal.backend.webgpu.implementation import Implementation
from anneal.codegen import wgsl_functions

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
    kept: bool | None = cache.load("rounding", key, bool)
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
