@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<f32>;
var<workgroup> part0: array<f32, 256>;
var<workgroup> part1: array<f32, 256>;
var<workgroup> part2: array<f32, 256>;
var<workgroup> part3: array<f32, 256>;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn tanh_f32(x: f32) -> f32 {
  // tanh overflows on some drivers; beyond 10 it is 1 to the last bit.
  return select(tanh(clamp(x, -10.0f, 10.0f)), x, is_nan(x) | (abs(x) < 0.0002f));
}
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = wg >> 1u;
  let n1 = (lid >> 3u) & 7i;
  let n2 = (wg & 1i) * 16i;
  let n3 = lid & 7i;
  let n4 = (((n0 * 512i) + (n1 * 32i)) + n2) + n3;
  var acc0: f32 = 0.0f;
  var acc1: f32 = 0.0f;
  var acc2: f32 = 0.0f;
  var acc3: f32 = 0.0f;
  let n5 = lid >> 6u;
  let n6 = ((n0 * 8192i) + (n1 * 512i)) + n5;
  let n7 = ((n5 * 32i) + n2) + n3;
  for (var k0 = 0i; k0 < 128i; k0 += 1i) {
    let n8 = n6 + (k0 * 4i);
    let x0 = p1[n8];
    let n9 = n7 + (k0 * 128i);
    let x1 = p2[n9];
    let x2 = p1[n8 + 4096i];
    let x3 = p2[n9 + 8i];
    acc0 = fma(x0, x1, acc0);
    acc1 = fma(x2, x1, acc1);
    acc2 = fma(x0, x3, acc2);
    acc3 = fma(x2, x3, acc3);
  }
  var total0 = acc0;
  var total1 = acc1;
  var total2 = acc2;
  var total3 = acc3;
  let lane0 = local_id / 64u;
  part0[local_id] = total0; part1[local_id] = total1; part2[local_id] = total2; part3[local_id] = total3;
  workgroupBarrier();
  let first0 = local_id % 64u;
  total0 = part0[first0];
  total0 += part0[first0 + 64u];
  total0 += part0[first0 + 128u];
  total0 += part0[first0 + 192u];
  total1 = part1[first0];
  total1 += part1[first0 + 64u];
  total1 += part1[first0 + 128u];
  total1 += part1[first0 + 192u];
  total2 = part2[first0];
  total2 += part2[first0 + 64u];
  total2 += part2[first0 + 128u];
  total2 += part2[first0 + 192u];
  total3 = part3[first0];
  total3 += part3[first0 + 64u];
  total3 += part3[first0 + 128u];
  total3 += part3[first0 + 192u];
  let c0 = n5 == 0i;
  if (c0) { p0[n4] = tanh_f32(total0); }
  if (c0) { p0[n4 + 256i] = tanh_f32(total1); }
  if (c0) { p0[n4 + 8i] = tanh_f32(total2); }
  if (c0) { p0[n4 + 264i] = tanh_f32(total3); }
}
