@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<i32>;
@group(0) @binding(3) var<storage, read> p3: array<i32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  var acc0: f32 = 0.0f;
  let n0 = wg >> 1u;
  let x0 = p3[n0 + 1i];
  let x1 = p3[n0];
  let n1 = x0 - x1;
  let n2 = ((wg & 1i) * 64i) + lid;
  for (var k0 = 0i; k0 < n1; k0 += 1i) {
    let x2 = p2[x1 + k0];
    let x3 = p1[n2 + (x2 * 128i)];
    acc0 += x3;
  }
  p0[(wg * 64i) + lid] = acc0;
}
