@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 64>;
var<private> zero_bits: u32 = 0u;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = lid >> 4u;
  var acc0: f32 = bitcast<f32>(0xff800000u | zero_bits);
  let n1 = lid & 15i;
  let n2 = (wg * 260i) + (n0 * 65i);
  for (var k0 = 0i; k0 < 5i; k0 += 1i) {
    let n3 = (k0 * 16i) + n1;
    let x0 = p1[n2 + min_i32(n3, 64i)];
    acc0 = max_f32(acc0, select(bitcast<f32>(0xff800000u | zero_bits), x0, n3 < 65i));
  }
  var total0 = acc0;
  let lane0 = local_id % 16u;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 2u) {
    let first0 = local_id / 16u * 16u + lane0;
    part0[first0] = max_f32(part0[first0], part0[first0 + 2u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 4u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 6u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 8u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 10u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 12u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 14u]);
  }
  workgroupBarrier();
  let first1 = local_id / 16u * 16u;
  total0 = part0[first1];
  total0 = max_f32(total0, part0[first1 + 1u]);
  if (n1 == 0i) { p0[(wg * 4i) + n0] = total0; }
}
