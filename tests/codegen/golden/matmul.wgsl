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
  let i0 = wg >> 3u;
  let i1 = lid >> 3u;
  let i2 = (wg & 7i) * 32i;
  let i3 = lid & 7i;
  let i4 = (((i0 * 4096i) + (i1 * 256i)) + i2) + i3;
  var acc0: f32 = 0.0f;
  var acc1: f32 = 0.0f;
  var acc2: f32 = 0.0f;
  var acc3: f32 = 0.0f;
  var acc4: f32 = 0.0f;
  var acc5: f32 = 0.0f;
  var acc6: f32 = 0.0f;
  var acc7: f32 = 0.0f;
  let i5 = (i0 * 1024i) + (i1 * 64i);
  let i6 = i2 + i3;
  for (var k0 = 0i; k0 < 64i; k0 += 1i) {
    let i7 = i5 + k0;
    let x0 = p1[i7];
    let i8 = i6 + (k0 * 256i);
    let x1 = p2[i8];
    let x2 = p1[i7 + 512i];
    let x3 = p2[i8 + 8i];
    let x4 = p2[i8 + 16i];
    let x5 = p2[i8 + 24i];
    acc0 += x0 * x1;
    acc1 += x2 * x1;
    acc2 += x0 * x3;
    acc3 += x2 * x3;
    acc4 += x0 * x4;
    acc5 += x2 * x4;
    acc6 += x0 * x5;
    acc7 += x2 * x5;
  }
  p0[i4] = tanh_f32(acc0);
  p0[i4 + 2048i] = tanh_f32(acc1);
  p0[i4 + 8i] = tanh_f32(acc2);
  p0[i4 + 2056i] = tanh_f32(acc3);
  p0[i4 + 16i] = tanh_f32(acc4);
  p0[i4 + 2064i] = tanh_f32(acc5);
  p0[i4 + 24i] = tanh_f32(acc6);
  p0[i4 + 2072i] = tanh_f32(acc7);
}
