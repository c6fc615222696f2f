@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 128>;
var<private> zero_bits: u32 = 0u;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = lid >> 5u;
  let n1 = (wg * 260i) + (n0 * 65i);
  let n2 = lid & 31i;
  let n3 = n1 + n2;
  let x0 = p1[n3];
  let x1 = p1[n3 + 32i];
  let x2 = p1[n1 + 64i];
  let v0 = max_f32(max_f32(x0, x1), select(bitcast<f32>(0xff800000u | zero_bits), x2, n2 < 1i));
  var total0 = v0;
  let lane0 = local_id % 32u;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 4u) {
    let first0 = local_id / 32u * 32u + lane0;
    part0[first0] = max_f32(part0[first0], part0[first0 + 4u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 8u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 12u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 16u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 20u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 24u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 28u]);
  }
  workgroupBarrier();
  let first1 = local_id / 32u * 32u;
  total0 = part0[first1];
  total0 = max_f32(total0, part0[first1 + 1u]);
  total0 = max_f32(total0, part0[first1 + 2u]);
  total0 = max_f32(total0, part0[first1 + 3u]);
  if (n2 == 0i) { p0[(wg * 4i) + n0] = total0; }
}
