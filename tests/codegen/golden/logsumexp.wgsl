@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
var<workgroup> part0: array<f32, 64>;
var<workgroup> part1: array<f32, 64>;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let x0 = p1[(wg * 64i) + lid];
  let v0 = max_f32(max_f32(max_f32(x0.x, x0.y), x0.z), x0.w);
  var total0 = v0;
  let lane0 = local_id;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 8u) {
    let first0 = lane0;
    part0[first0] = max_f32(part0[first0], part0[first0 + 8u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 16u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 24u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 32u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 40u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 48u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 56u]);
  }
  workgroupBarrier();
  let first1 = 0u;
  total0 = part0[first1];
  total0 = max_f32(total0, part0[first1 + 1u]);
  total0 = max_f32(total0, part0[first1 + 2u]);
  total0 = max_f32(total0, part0[first1 + 3u]);
  total0 = max_f32(total0, part0[first1 + 4u]);
  total0 = max_f32(total0, part0[first1 + 5u]);
  total0 = max_f32(total0, part0[first1 + 6u]);
  total0 = max_f32(total0, part0[first1 + 7u]);
  let v1 = exp(x0 - total0);
  let v2 = ((v1.x + v1.y) + v1.z) + v1.w;
  var total1 = v2;
  let lane1 = local_id;
  part1[local_id] = total1;
  workgroupBarrier();
  if (lane1 < 8u) {
    let first2 = lane1;
    part1[first2] += part1[first2 + 8u];
    part1[first2] += part1[first2 + 16u];
    part1[first2] += part1[first2 + 24u];
    part1[first2] += part1[first2 + 32u];
    part1[first2] += part1[first2 + 40u];
    part1[first2] += part1[first2 + 48u];
    part1[first2] += part1[first2 + 56u];
  }
  workgroupBarrier();
  let first3 = 0u;
  total1 = part1[first3];
  total1 += part1[first3 + 1u];
  total1 += part1[first3 + 2u];
  total1 += part1[first3 + 3u];
  total1 += part1[first3 + 4u];
  total1 += part1[first3 + 5u];
  total1 += part1[first3 + 6u];
  total1 += part1[first3 + 7u];
  if (lid == 0i) { p0[wg] = total0 + log(total1); }
}
