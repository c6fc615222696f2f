enable f16;
@group(0) @binding(0) var<storage, read_write> p0: array<f16>;
@group(0) @binding(1) var<storage, read> p1: array<f16>;
var<workgroup> part0: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let lid = i32(local_id);
  let n0 = lid >> 4u;
  var acc0: f32 = 0.0f;
  let n1 = lid & 15i;
  let n2 = (n0 * 64i) + n1;
  for (var k0 = 0i; k0 < 4i; k0 += 1i) {
    let x0 = p1[n2 + (k0 * 16i)];
    acc0 += f32(x0);
  }
  var total0 = acc0;
  let lane0 = local_id % 16u;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 2u) {
    let first0 = local_id / 16u * 16u + lane0;
    part0[first0] += part0[first0 + 2u];
    part0[first0] += part0[first0 + 4u];
    part0[first0] += part0[first0 + 6u];
    part0[first0] += part0[first0 + 8u];
    part0[first0] += part0[first0 + 10u];
    part0[first0] += part0[first0 + 12u];
    part0[first0] += part0[first0 + 14u];
  }
  workgroupBarrier();
  let first1 = local_id / 16u * 16u;
  total0 = part0[first1];
  total0 += part0[first1 + 1u];
  if (n1 == 0i) { p0[n0] = f16(total0); }
}
