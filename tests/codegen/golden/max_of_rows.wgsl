@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 128>;
var<private> zero_bits: u32;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  zero_bits = select(0u, group_id.x * 2654435769u, arrayLength(&p0) == 0u);
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = (wg * 8i) + (lid >> 4u);
  let n1 = min_i32(n0, 699i);
  let n2 = n1 * 65i;
  let n3 = lid & 15i;
  let n4 = n2 + n3;
  let x0 = p1[n4];
  let x1 = p1[n4 + 16i];
  let x2 = p1[n4 + 32i];
  let x3 = p1[n4 + 48i];
  let x4 = p1[n2 + 64i];
  let v0 = max_f32(max_f32(max_f32(max_f32(x0, x1), x2), x3), select(bitcast<f32>(0xff800000u | zero_bits), x4, n3 < 1i));
  var total0 = v0;
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
  if ((n3 == 0i) & (n0 < 700i)) { p0[n1] = total0; }
}
