@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<f32>;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn tanh_f32(x: f32) -> f32 {
  // tanh overflows on some drivers; beyond 10 it is 1 to the last bit.
  return select(tanh(clamp(x, -10.0f, 10.0f)), x, is_nan(x) | (abs(x) < 0.0002f));
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = wg >> 3u;
  let n1 = lid >> 3u;
  let n2 = (wg & 7i) * 32i;
  let n3 = lid & 7i;
  let n4 = (((n0 * 4096i) + (n1 * 256i)) + n2) + n3;
  var acc0: f32 = 0.0f;
  var acc1: f32 = 0.0f;
  var acc2: f32 = 0.0f;
  var acc3: f32 = 0.0f;
  var acc4: f32 = 0.0f;
  var acc5: f32 = 0.0f;
  var acc6: f32 = 0.0f;
  var acc7: f32 = 0.0f;
  let n5 = (n0 * 1024i) + (n1 * 64i);
  let n6 = n2 + n3;
  for (var k0 = 0i; k0 < 64i; k0 += 1i) {
    let n7 = n5 + k0;
    let x0 = p1[n7];
    let n8 = n6 + (k0 * 256i);
    let x1 = p2[n8];
    let x2 = p1[n7 + 512i];
    let x3 = p2[n8 + 8i];
    let x4 = p2[n8 + 16i];
    let x5 = p2[n8 + 24i];
    acc0 = fma(x0, x1, acc0);
    acc1 = fma(x2, x1, acc1);
    acc2 = fma(x0, x3, acc2);
    acc3 = fma(x2, x3, acc3);
    acc4 = fma(x0, x4, acc4);
    acc5 = fma(x2, x4, acc5);
    acc6 = fma(x0, x5, acc6);
    acc7 = fma(x2, x5, acc7);
  }
  p0[n4] = tanh_f32(acc0);
  p0[n4 + 2048i] = tanh_f32(acc1);
  p0[n4 + 8i] = tanh_f32(acc2);
  p0[n4 + 2056i] = tanh_f32(acc3);
  p0[n4 + 16i] = tanh_f32(acc4);
  p0[n4 + 2064i] = tanh_f32(acc5);
  p0[n4 + 24i] = tanh_f32(acc6);
  p0[n4 + 2072i] = tanh_f32(acc7);
}
