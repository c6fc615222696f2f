@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
var<workgroup> part0: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = wg * 32i;
  let n1 = lid & 31i;
  var acc0: f32 = 0.0f;
  let n2 = lid >> 5u;
  let n3 = ((n2 * 128i) + n0) + n1;
  for (var k0 = 0i; k0 < 256i; k0 += 1i) {
    let x0 = p1[n3 + (k0 * 1024i)];
    acc0 += x0;
  }
  var total0 = acc0;
  let lane0 = local_id / 32u;
  part0[local_id] = total0;
  workgroupBarrier();
  let first0 = local_id % 32u;
  total0 = part0[first0];
  total0 += part0[first0 + 32u];
  total0 += part0[first0 + 64u];
  total0 += part0[first0 + 96u];
  total0 += part0[first0 + 128u];
  total0 += part0[first0 + 160u];
  total0 += part0[first0 + 192u];
  total0 += part0[first0 + 224u];
  if (n2 == 0i) { p0[n0 + n1] = total0; }
}
