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
  var total0 = acc0;
  let lane0 = local_id;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 32u) {
    let first0 = lane0;
    part0[first0] += part0[first0 + 32u];
    part0[first0] += part0[first0 + 64u];
    part0[first0] += part0[first0 + 96u];
    part0[first0] += part0[first0 + 128u];
    part0[first0] += part0[first0 + 160u];
    part0[first0] += part0[first0 + 192u];
    part0[first0] += part0[first0 + 224u];
  }
  workgroupBarrier();
  if (lane0 < 4u) {
    let first1 = lane0;
    part0[first1] += part0[first1 + 4u];
    part0[first1] += part0[first1 + 8u];
    part0[first1] += part0[first1 + 12u];
    part0[first1] += part0[first1 + 16u];
    part0[first1] += part0[first1 + 20u];
    part0[first1] += part0[first1 + 24u];
    part0[first1] += part0[first1 + 28u];
  }
  workgroupBarrier();
  let first2 = 0u;
  total0 = part0[first2];
  total0 += part0[first2 + 1u];
  total0 += part0[first2 + 2u];
  total0 += part0[first2 + 3u];
  if (lid == 0i) { p0[0i] = total0; }
}
