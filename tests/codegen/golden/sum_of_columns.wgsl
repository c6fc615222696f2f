@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = wg * 4i;
  let n1 = lid & 3i;
  var acc0: f32 = 0.0f;
  let n2 = lid >> 2u;
  let n3 = ((n2 * 128i) + n0) + n1;
  for (var k0 = 0i; k0 < 2i; k0 += 1i) {
    let n4 = n3 + (k0 * 131072i);
    let x0 = p1[n4];
    acc0 += x0;
    let x1 = p1[n4 + 8192i];
    acc0 += x1;
    let x2 = p1[n4 + 16384i];
    acc0 += x2;
    let x3 = p1[n4 + 24576i];
    acc0 += x3;
    let x4 = p1[n4 + 32768i];
    acc0 += x4;
    let x5 = p1[n4 + 40960i];
    acc0 += x5;
    let x6 = p1[n4 + 49152i];
    acc0 += x6;
    let x7 = p1[n4 + 57344i];
    acc0 += x7;
    let x8 = p1[n4 + 65536i];
    acc0 += x8;
    let x9 = p1[n4 + 73728i];
    acc0 += x9;
    let x10 = p1[n4 + 81920i];
    acc0 += x10;
    let x11 = p1[n4 + 90112i];
    acc0 += x11;
    let x12 = p1[n4 + 98304i];
    acc0 += x12;
    let x13 = p1[n4 + 106496i];
    acc0 += x13;
    let x14 = p1[n4 + 114688i];
    acc0 += x14;
    let x15 = p1[n4 + 122880i];
    acc0 += x15;
  }
  var total0 = acc0;
  let lane0 = local_id / 4u;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 8u) {
    let first0 = local_id % 4u + lane0 * 4u;
    part0[first0] += part0[first0 + 32u];
    part0[first0] += part0[first0 + 64u];
    part0[first0] += part0[first0 + 96u];
    part0[first0] += part0[first0 + 128u];
    part0[first0] += part0[first0 + 160u];
    part0[first0] += part0[first0 + 192u];
    part0[first0] += part0[first0 + 224u];
  }
  workgroupBarrier();
  let first1 = local_id % 4u;
  total0 = part0[first1];
  total0 += part0[first1 + 4u];
  total0 += part0[first1 + 8u];
  total0 += part0[first1 + 12u];
  total0 += part0[first1 + 16u];
  total0 += part0[first1 + 20u];
  total0 += part0[first1 + 24u];
  total0 += part0[first1 + 28u];
  if (n2 == 0i) { p0[n0 + n1] = total0; }
}
