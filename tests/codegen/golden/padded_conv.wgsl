@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = (wg * 64i) + lid;
  let c0 = n0 < 100i;
  if (!(c0)) { return; }
  let c1 = (0i < n0) & (n0 < 101i);
  let x0 = select(0.0f, p1[select(i32(), n0 + -1i, c1)], c1);
  let x1 = p2[0i];
  let x2 = select(0.0f, p1[select(i32(), n0, c0)], c0);
  let x3 = p2[1i];
  let c2 = n0 < 99i;
  let x4 = select(0.0f, p1[select(i32(), n0 + 1i, c2)], c2);
  let x5 = p2[2i];
  p0[n0] = ((x0 * x1) + (x2 * x3)) + (x4 * x5);
}
