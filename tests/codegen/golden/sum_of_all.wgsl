@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let lid = i32(local_id);
  var acc0: f32 = 0.0f;
  for (var k0 = 0i; k0 < 256i; k0 += 1i) {
    let x0 = p1[lid + (k0 * 256i)];
    acc0 += x0;
  }
  part0[local_id] = acc0;
  workgroupBarrier();
  let lane0 = local_id;
  if (lane0 < 128u) {
    part0[local_id] += part0[local_id + 128u];
  }
  workgroupBarrier();
  if (lane0 < 64u) {
    part0[local_id] += part0[local_id + 64u];
  }
  workgroupBarrier();
  if (lane0 < 32u) {
    part0[local_id] += part0[local_id + 32u];
  }
  workgroupBarrier();
  if (lane0 < 16u) {
    part0[local_id] += part0[local_id + 16u];
  }
  workgroupBarrier();
  if (lane0 < 8u) {
    part0[local_id] += part0[local_id + 8u];
  }
  workgroupBarrier();
  if (lane0 < 4u) {
    part0[local_id] += part0[local_id + 4u];
  }
  workgroupBarrier();
  if (lane0 < 2u) {
    part0[local_id] += part0[local_id + 2u];
  }
  workgroupBarrier();
  if (lane0 < 1u) {
    part0[local_id] += part0[local_id + 1u];
  }
  workgroupBarrier();
  let total0 = part0[local_id - lane0];
  if (lid == 0i) { p0[0i] = total0; }
}
