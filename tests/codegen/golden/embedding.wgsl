@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<i32>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let x0 = p2[(wg * 2i) + (lid >> 7u)];
  let c0 = (-1i < x0) & (x0 < 65i);
  let x1 = select(0.0f, p1[select(i32(), (x0 * 128i) + (lid & 127i), c0)], c0);
  p0[(wg * 256i) + lid] = x1;
}
