@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 64>;
var<workgroup> part1: array<f32, 64>;
var<private> zero_bits: u32 = 0u;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  var acc0: f32 = bitcast<f32>(0xff800000u | zero_bits);
  let i0 = (wg * 256i) + lid;
  for (var k0 = 0i; k0 < 4i; k0 += 1i) {
    let x0 = p1[i0 + (k0 * 64i)];
    acc0 = max_f32(acc0, x0);
  }
  part0[local_id] = acc0;
  workgroupBarrier();
  let lane0 = local_id;
  if (lane0 < 32u) {
    part0[local_id] = max_f32(part0[local_id], part0[local_id + 32u]);
  }
  workgroupBarrier();
  if (lane0 < 16u) {
    part0[local_id] = max_f32(part0[local_id], part0[local_id + 16u]);
  }
  workgroupBarrier();
  if (lane0 < 8u) {
    part0[local_id] = max_f32(part0[local_id], part0[local_id + 8u]);
  }
  workgroupBarrier();
  if (lane0 < 4u) {
    part0[local_id] = max_f32(part0[local_id], part0[local_id + 4u]);
  }
  workgroupBarrier();
  if (lane0 < 2u) {
    part0[local_id] = max_f32(part0[local_id], part0[local_id + 2u]);
  }
  workgroupBarrier();
  if (lane0 < 1u) {
    part0[local_id] = max_f32(part0[local_id], part0[local_id + 1u]);
  }
  workgroupBarrier();
  let total0 = part0[local_id - lane0];
  var acc1: f32 = 0.0f;
  for (var k1 = 0i; k1 < 4i; k1 += 1i) {
    let x1 = p1[i0 + (k1 * 64i)];
    acc1 += exp(x1 - total0);
  }
  part1[local_id] = acc1;
  workgroupBarrier();
  let lane1 = local_id;
  if (lane1 < 32u) {
    part1[local_id] += part1[local_id + 32u];
  }
  workgroupBarrier();
  if (lane1 < 16u) {
    part1[local_id] += part1[local_id + 16u];
  }
  workgroupBarrier();
  if (lane1 < 8u) {
    part1[local_id] += part1[local_id + 8u];
  }
  workgroupBarrier();
  if (lane1 < 4u) {
    part1[local_id] += part1[local_id + 4u];
  }
  workgroupBarrier();
  if (lane1 < 2u) {
    part1[local_id] += part1[local_id + 2u];
  }
  workgroupBarrier();
  if (lane1 < 1u) {
    part1[local_id] += part1[local_id + 1u];
  }
  workgroupBarrier();
  let total1 = part1[local_id - lane1];
  if (lid == 0i) { p0[wg] = total0 + log(total1); }
}
