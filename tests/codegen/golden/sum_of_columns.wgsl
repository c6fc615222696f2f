@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let i0 = wg * 32i;
  let i1 = lid & 31i;
  var acc0: f32 = 0.0f;
  let i2 = lid >> 5u;
  let i3 = ((i2 * 128i) + i0) + i1;
  for (var k0 = 0i; k0 < 256i; k0 += 1i) {
    let x0 = p1[i3 + (k0 * 1024i)];
    acc0 += x0;
  }
  part0[local_id] = acc0;
  workgroupBarrier();
  let lane0 = local_id / 32u;
  if (lane0 < 4u) {
    part0[local_id] += part0[local_id + 128u];
  }
  workgroupBarrier();
  if (lane0 < 2u) {
    part0[local_id] += part0[local_id + 64u];
  }
  workgroupBarrier();
  if (lane0 < 1u) {
    part0[local_id] += part0[local_id + 32u];
  }
  workgroupBarrier();
  let total0 = part0[local_id - lane0 * 32u];
  if (i2 == 0i) { p0[i0 + i1] = total0; }
}
