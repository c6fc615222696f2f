@group(0) @binding(0) var<storage, read_write> p0: array<i32>;
@group(0) @binding(1) var<storage, read> p1: array<i32>;
var<workgroup> part0: array<i32, 128>;
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  var acc0: i32 = 0i;
  let x0 = p1[wg];
  for (var k0 = 0i; k0 < 6i; k0 += 1i) {
    let n0 = k0 * 128i;
    let x1 = p1[lid + n0];
    acc0 += i32((x1 < x0) | ((x1 == x0) & ((n0 + lid) < wg)));
  }
  var total0 = acc0;
  let lane0 = local_id;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 16u) {
    let first0 = lane0;
    part0[first0] += part0[first0 + 16u];
    part0[first0] += part0[first0 + 32u];
    part0[first0] += part0[first0 + 48u];
    part0[first0] += part0[first0 + 64u];
    part0[first0] += part0[first0 + 80u];
    part0[first0] += part0[first0 + 96u];
    part0[first0] += part0[first0 + 112u];
  }
  workgroupBarrier();
  if (lane0 < 2u) {
    let first1 = lane0;
    part0[first1] += part0[first1 + 2u];
    part0[first1] += part0[first1 + 4u];
    part0[first1] += part0[first1 + 6u];
    part0[first1] += part0[first1 + 8u];
    part0[first1] += part0[first1 + 10u];
    part0[first1] += part0[first1 + 12u];
    part0[first1] += part0[first1 + 14u];
  }
  workgroupBarrier();
  let first2 = 0u;
  total0 = part0[first2];
  total0 += part0[first2 + 1u];
  if (lid == 0i) { p0[total0] = wg; }
}
