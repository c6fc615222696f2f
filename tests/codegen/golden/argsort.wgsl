@group(0) @binding(0) var<storage, read_write> p0: array<i32>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<i32>>;
var<workgroup> part0: array<i32, 128>;
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = lid & 63i;
  let x0 = p1[n0];
  let n1 = (wg * 2i) + (lid >> 6u);
  let x1 = p1[(n1) >> 2u][(n1) & 3i];
  let n2 = (n0 * 4i) + vec4<i32>(0i, 1i, 2i, 3i);
  let x2 = p1[n0 + 64i];
  let n3 = vec4<i32>((x0 < vec4<i32>(x1)) | ((x0 == vec4<i32>(x1)) & (n2 < vec4<i32>(n1)))) + vec4<i32>((x2 < vec4<i32>(x1)) | ((x2 == vec4<i32>(x1)) & ((n2 + 256i) < vec4<i32>(n1))));
  let x3 = p1[n0 + 128i];
  let n4 = n3 + vec4<i32>((x3 < vec4<i32>(x1)) | ((x3 == vec4<i32>(x1)) & ((n2 + 512i) < vec4<i32>(n1))));
  let n5 = ((n4.x + n4.y) + n4.z) + n4.w;
  var total0 = n5;
  let lane0 = local_id % 64u;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 8u) {
    let first0 = local_id / 64u * 64u + lane0;
    part0[first0] += part0[first0 + 8u];
    part0[first0] += part0[first0 + 16u];
    part0[first0] += part0[first0 + 24u];
    part0[first0] += part0[first0 + 32u];
    part0[first0] += part0[first0 + 40u];
    part0[first0] += part0[first0 + 48u];
    part0[first0] += part0[first0 + 56u];
  }
  workgroupBarrier();
  let first1 = local_id / 64u * 64u;
  total0 = part0[first1];
  total0 += part0[first1 + 1u];
  total0 += part0[first1 + 2u];
  total0 += part0[first1 + 3u];
  total0 += part0[first1 + 4u];
  total0 += part0[first1 + 5u];
  total0 += part0[first1 + 6u];
  total0 += part0[first1 + 7u];
  if (n0 == 0i) { p0[total0] = n1; }
}
