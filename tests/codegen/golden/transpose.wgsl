@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = (wg * 64i) + lid;
  if (!(n0 < 600i)) { return; }
  let x0 = p1[(i32(u32(n0) % 20u) * 30i) + i32(u32(n0) / 20u)];
  p0[n0] = x0;
}
