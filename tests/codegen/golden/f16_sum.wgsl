enable f16;
@group(0) @binding(0) var<storage, read_write> p0: array<f16>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f16>>;
var<workgroup> part0: array<f32, 32>;
var<private> zero_bits: u32;
fn infinity() -> f32 { return bitcast<f32>(0x7f800000u | zero_bits); }
fn round_f16(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  let size = b & 0x7fffffffu;
  let near = bitcast<f32>((b + 0xfffu + ((b >> 13u) & 1u)) & 0xffffe000u);
  let small = select(near, round(x * 16777216.0f) * 5.9604645e-8f, size < 0x38800000u);
  return select(select(small, select(infinity(), -infinity(), x < 0.0f), size >= 0x477ff000u), x, size >= 0x7f800000u);
}
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  zero_bits = select(0u, group_id.x * 2654435769u, arrayLength(&p0) == 0u);
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let x0 = p1[(wg * 32i) + lid];
  let v0 = vec4<f32>(x0);
  let v1 = ((v0.x + v0.y) + v0.z) + v0.w;
  var total0 = v1;
  let lane0 = local_id % 16u;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 2u) {
    let first0 = local_id / 16u * 16u + lane0;
    part0[first0] += part0[first0 + 2u];
    part0[first0] += part0[first0 + 4u];
    part0[first0] += part0[first0 + 6u];
    part0[first0] += part0[first0 + 8u];
    part0[first0] += part0[first0 + 10u];
    part0[first0] += part0[first0 + 12u];
    part0[first0] += part0[first0 + 14u];
  }
  workgroupBarrier();
  let first1 = local_id / 16u * 16u;
  total0 = part0[first1];
  total0 += part0[first1 + 1u];
  if ((lid & 15i) == 0i) { p0[(wg * 2i) + (lid >> 4u)] = f16(round_f16(total0)); }
}
