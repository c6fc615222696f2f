@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<f32>;
fn high_bits(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
fn exp_f32(x: f32) -> f32 {
  // exp2 of the product, and what rounding the product lost.
  let t = x * 1.44269502f;
  let y = exp2(t);
  let h = high_bits(x);
  let lost = (h * 1.4423828125f - t) + (h * 3.122283961e-04f + (x - h) * 1.44269502f);
  // what is not a number takes the first way, as not every driver's exp2 gives it back
  return select(fma(y, lost * 0.693147182f, y), y, abs(t) >= 127.99f);
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = (wg * 64i) + lid;
  if (!(n0 < 780i)) { return; }
  let x0 = p1[n0];
  let x1 = p2[i32(u32(n0) % 65u)];
  p0[n0] = exp_f32(x0) + x1;
}
