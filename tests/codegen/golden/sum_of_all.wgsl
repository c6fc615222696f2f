@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
var<workgroup> part0: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let lid = i32(local_id);
  var acc0: vec4<f32> = vec4<f32>(0.0f);
  for (var k0 = 0i; k0 < 4i; k0 += 1i) {
    let n0 = lid + (k0 * 4096i);
    let x0 = p1[n0];
    acc0 += x0;
    let x1 = p1[n0 + 256i];
    acc0 += x1;
    let x2 = p1[n0 + 512i];
    acc0 += x2;
    let x3 = p1[n0 + 768i];
    acc0 += x3;
    let x4 = p1[n0 + 1024i];
    acc0 += x4;
    let x5 = p1[n0 + 1280i];
    acc0 += x5;
    let x6 = p1[n0 + 1536i];
    acc0 += x6;
    let x7 = p1[n0 + 1792i];
    acc0 += x7;
    let x8 = p1[n0 + 2048i];
    acc0 += x8;
    let x9 = p1[n0 + 2304i];
    acc0 += x9;
    let x10 = p1[n0 + 2560i];
    acc0 += x10;
    let x11 = p1[n0 + 2816i];
    acc0 += x11;
    let x12 = p1[n0 + 3072i];
    acc0 += x12;
    let x13 = p1[n0 + 3328i];
    acc0 += x13;
    let x14 = p1[n0 + 3584i];
    acc0 += x14;
    let x15 = p1[n0 + 3840i];
    acc0 += x15;
  }
  let v0 = ((acc0.x + acc0.y) + acc0.z) + acc0.w;
  var total0 = v0;
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
