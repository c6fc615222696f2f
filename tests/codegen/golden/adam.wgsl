@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read_write> p1: array<f32>;
@group(0) @binding(2) var<storage, read_write> p2: array<f32>;
@group(0) @binding(3) var<storage, read> p3: array<f32>;
fn div_f32(a: f32, b: f32) -> f32 {
  let s = select(1.0f, 0.25f, abs(b) > 8.507059e37f);
  return (a * s) / (b * s);
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = (wg * 64i) + lid;
  if (!(n0 < 1000i)) { return; }
  let x0 = p0[n0];
  let x1 = p1[n0];
  let x2 = p3[n0];
  let v0 = (x1 * 0.8999999761581421f) + (x2 * 0.10000000149011612f);
  let x3 = p2[n0];
  let v1 = (x3 * 0.9900000095367432f) + ((x2 * x2) * 0.009999999776482582f);
  p0[n0] = x0 - div_f32(v0 * 0.0010000000474974513f, sqrt(v1) + 9.99999993922529e-09f);
  p1[n0] = v0;
  p2[n0] = v1;
}
