@group(0) @binding(0) var<storage, read_write> p0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> p2: array<vec4<f32>>;
var<workgroup> tile0: array<vec4<f32>, 136>;
var<workgroup> tile1: array<vec4<f32>, 256>;
var<workgroup> part0: array<vec4<f32>, 64>;
var<workgroup> part1: array<vec4<f32>, 64>;
var<workgroup> part2: array<vec4<f32>, 64>;
var<workgroup> part3: array<vec4<f32>, 64>;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn tanh_f32(x: f32) -> f32 {
  // tanh overflows on some drivers; beyond 10 it is 1 to the last bit.
  return select(tanh(clamp(x, -10.0f, 10.0f)), x, is_nan(x) | (abs(x) < 0.0002f));
}
fn tanh_f32_x4(x: vec4<f32>) -> vec4<f32> { return vec4<f32>(tanh_f32(x.x), tanh_f32(x.y), tanh_f32(x.z), tanh_f32(x.w)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let n0 = wg >> 3u;
  let n1 = lid >> 3u;
  let n2 = n1 & 3i;
  let n3 = (wg & 7i) * 8i;
  let n4 = lid & 7i;
  let n5 = (((n0 * 1024i) + (n2 * 256i)) + n3) + n4;
  var acc0: vec4<f32> = vec4<f32>(0.0f);
  var acc1: vec4<f32> = vec4<f32>(0.0f);
  var acc2: vec4<f32> = vec4<f32>(0.0f);
  var acc3: vec4<f32> = vec4<f32>(0.0f);
  let n6 = (lid >> 2u) & 1i;
  let n7 = lid & 3i;
  let n8 = lid >> 5u;
  let n9 = ((n6 * 68i) + (n7 * 17i)) + n8;
  let n10 = vec4<i32>(0i, 1i, 2i, 3i) * 4i;
  let n11 = (((n0 * 256i) + (n1 * 16i)) + (n6 * 4i)) + n7;
  let x0 = p1[n11];
  var acc4: vec4<f32> = x0;
  let x1 = p1[n11 + 128i];
  var acc5: vec4<f32> = x1;
  let n12 = ((n1 * 64i) + n3) + n4;
  let x2 = p2[n12];
  var acc6: vec4<f32> = x2;
  let x3 = p2[n12 + 512i];
  var acc7: vec4<f32> = x3;
  let x4 = p2[n12 + 1024i];
  var acc8: vec4<f32> = x4;
  let x5 = p2[n12 + 1536i];
  var acc9: vec4<f32> = x5;
  let x6 = p1[n11 + 8i];
  let x7 = p1[n11 + 136i];
  let x8 = p2[n12 + 2048i];
  let x9 = p2[n12 + 2560i];
  let x10 = p2[n12 + 3072i];
  let x11 = p2[n12 + 3584i];
  let n13 = (n8 * 68i) + n2;
  let n14 = (n8 * 128i) + n4;
  for (var k0 = 0i; k0 < 2i; k0 += 1i) {
    let n15 = n9 + n10;
    tile0[n15.x][n2] = acc4.x;
    tile0[n15.y][n2] = acc4.y;
    tile0[n15.z][n2] = acc4.z;
    tile0[n15.w][n2] = acc4.w;
    let n16 = (n10 + n9) + 2i;
    tile0[n16.x][n2] = acc5.x;
    tile0[n16.y][n2] = acc5.y;
    tile0[n16.z][n2] = acc5.z;
    tile0[n16.w][n2] = acc5.w;
    tile1[lid] = acc6;
    tile1[lid + 64i] = acc7;
    tile1[lid + 128i] = acc8;
    tile1[lid + 192i] = acc9;
    workgroupBarrier();
    acc4 = x6;
    acc5 = x7;
    acc6 = x8;
    acc7 = x9;
    acc8 = x10;
    acc9 = x11;
    {
      const k1 = 0i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 1i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 2i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 3i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 4i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 5i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 6i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 7i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 8i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 9i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 10i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 11i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 12i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 13i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 14i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    {
      const k1 = 15i;
      let x12 = tile0[(n13 + (k1 * 4i)) + (k1 >> 2u)];
      let x13 = tile1[n14 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x12.x), x13, acc0);
      acc1 = fma(vec4<f32>(x12.y), x13, acc1);
      acc2 = fma(vec4<f32>(x12.z), x13, acc2);
      acc3 = fma(vec4<f32>(x12.w), x13, acc3);
    }
    workgroupBarrier();
  }
  var total0 = acc0;
  var total1 = acc1;
  var total2 = acc2;
  var total3 = acc3;
  let lane0 = local_id / 32u;
  part0[local_id] = total0; part1[local_id] = total1; part2[local_id] = total2; part3[local_id] = total3;
  workgroupBarrier();
  let first0 = local_id % 32u;
  total0 = part0[first0];
  total0 += part0[first0 + 32u];
  total1 = part1[first0];
  total1 += part1[first0 + 32u];
  total2 = part2[first0];
  total2 += part2[first0 + 32u];
  total3 = part3[first0];
  total3 += part3[first0 + 32u];
  let c0 = n8 == 0i;
  if (c0) { p0[n5] = tanh_f32_x4(total0); }
  if (c0) { p0[n5 + 64i] = tanh_f32_x4(total1); }
  if (c0) { p0[n5 + 128i] = tanh_f32_x4(total2); }
  if (c0) { p0[n5 + 192i] = tanh_f32_x4(total3); }
}
