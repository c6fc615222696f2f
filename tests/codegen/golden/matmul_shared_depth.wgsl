@group(0) @binding(0) var<storage, read_write> p0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> p2: array<vec4<f32>>;
var<workgroup> tile0: array<vec4<f32>, 144>;
var<workgroup> tile1: array<vec4<f32>, 512>;
var<workgroup> part0: array<vec4<f32>, 64>;
var<workgroup> part1: array<vec4<f32>, 64>;
var<workgroup> part2: array<vec4<f32>, 64>;
var<workgroup> part3: array<vec4<f32>, 64>;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }
fn tanh_f32(x: f32) -> f32 {
  let a = abs(x);
  let z = x * x;
  let near = fma(x * z, -0.333332839f + z * (0.133314913f + z * (-0.0537434966f + z * (0.0206505825f + z * -0.00571703969f))), x);
  let far = 1.0f - 2.0f / (exp2(min(a, 10.0f) * 2.88539004f) + 1.0f);
  return select(select(far, -far, x < 0.0f), near, (a < 0.625f) | is_nan(x));
}
fn tanh_f32_x4(x: vec4<f32>) -> vec4<f32> { return vec4<f32>(tanh_f32(x.x), tanh_f32(x.y), tanh_f32(x.z), tanh_f32(x.w)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  var acc0: vec4<f32> = vec4<f32>(0.0f);
  var acc1: vec4<f32> = vec4<f32>(0.0f);
  var acc2: vec4<f32> = vec4<f32>(0.0f);
  var acc3: vec4<f32> = vec4<f32>(0.0f);
  let n0 = lid & 15i;
  let n1 = n0 * 9i;
  let n2 = vec4<i32>(0i, 1i, 2i, 3i) * 2i;
  let n3 = lid >> 4u;
  let n4 = n3 * 128i;
  let n5 = ((wg * 1024i) + n4) + n0;
  let x0 = p1[n5];
  var acc4: vec4<f32> = x0;
  let x1 = p1[n5 + 512i];
  var acc5: vec4<f32> = x1;
  let x2 = p2[lid];
  var acc6: vec4<f32> = x2;
  let x3 = p2[lid + 64i];
  var acc7: vec4<f32> = x3;
  let x4 = p2[lid + 128i];
  var acc8: vec4<f32> = x4;
  let x5 = p2[lid + 192i];
  var acc9: vec4<f32> = x5;
  let x6 = p2[lid + 256i];
  var acc10: vec4<f32> = x6;
  let x7 = p2[lid + 320i];
  var acc11: vec4<f32> = x7;
  let x8 = p2[lid + 384i];
  var acc12: vec4<f32> = x8;
  let x9 = p2[lid + 448i];
  var acc13: vec4<f32> = x9;
  let n6 = (lid >> 3u) & 1i;
  let n7 = (n3 * 36i) + n6;
  let n8 = lid & 7i;
  let n9 = n4 + n8;
  for (var k0 = 0i; k0 < 8i; k0 += 1i) {
    let n10 = n1 + n2;
    tile0[n10.x][n3] = acc4.x;
    tile0[n10.y][n3] = acc4.y;
    tile0[n10.z][n3] = acc4.z;
    tile0[n10.w][n3] = acc4.w;
    let n11 = (n2 + n1) + 1i;
    tile0[n11.x][n3] = acc5.x;
    tile0[n11.y][n3] = acc5.y;
    tile0[n11.z][n3] = acc5.z;
    tile0[n11.w][n3] = acc5.w;
    tile1[lid] = acc6;
    tile1[lid + 64i] = acc7;
    tile1[lid + 128i] = acc8;
    tile1[lid + 192i] = acc9;
    tile1[lid + 256i] = acc10;
    tile1[lid + 320i] = acc11;
    tile1[lid + 384i] = acc12;
    tile1[lid + 448i] = acc13;
    workgroupBarrier();
    let n12 = min_i32(k0 + 1i, 7i);
    let n13 = n5 + (n12 * 16i);
    let x10 = p1[n13];
    acc4 = x10;
    let x11 = p1[n13 + 512i];
    acc5 = x11;
    let n14 = lid + (n12 * 512i);
    let x12 = p2[n14];
    acc6 = x12;
    let x13 = p2[n14 + 64i];
    acc7 = x13;
    let x14 = p2[n14 + 128i];
    acc8 = x14;
    let x15 = p2[n14 + 192i];
    acc9 = x15;
    let x16 = p2[n14 + 256i];
    acc10 = x16;
    let x17 = p2[n14 + 320i];
    acc11 = x17;
    let x18 = p2[n14 + 384i];
    acc12 = x18;
    let x19 = p2[n14 + 448i];
    acc13 = x19;
    {
      const k1 = 0i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 1i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 2i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 3i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 4i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 5i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 6i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 7i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 8i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 9i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 10i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 11i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 12i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 13i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 14i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    {
      const k1 = 15i;
      let x20 = tile0[(n7 + (k1 * 2i)) + (k1 >> 2u)];
      let x21 = tile1[n9 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x20.x), x21, acc0);
      acc1 = fma(vec4<f32>(x20.y), x21, acc1);
      acc2 = fma(vec4<f32>(x20.z), x21, acc2);
      acc3 = fma(vec4<f32>(x20.w), x21, acc3);
    }
    workgroupBarrier();
  }
  var total0 = acc0;
  var total1 = acc1;
  var total2 = acc2;
  var total3 = acc3;
  let lane0 = local_id / 16u;
  part0[local_id] = total0; part1[local_id] = total1; part2[local_id] = total2; part3[local_id] = total3;
  workgroupBarrier();
  let first0 = local_id % 16u;
  total0 = part0[first0];
  total0 += part0[first0 + 16u];
  total0 += part0[first0 + 32u];
  total0 += part0[first0 + 48u];
  total1 = part1[first0];
  total1 += part1[first0 + 16u];
  total1 += part1[first0 + 32u];
  total1 += part1[first0 + 48u];
  total2 = part2[first0];
  total2 += part2[first0 + 16u];
  total2 += part2[first0 + 32u];
  total2 += part2[first0 + 48u];
  total3 = part3[first0];
  total3 += part3[first0 + 16u];
  total3 += part3[first0 + 32u];
  total3 += part3[first0 + 48u];
  let n15 = ((wg * 64i) + (n6 * 32i)) + n8;
  let c0 = n3 == 0i;
  if (c0) { p0[n15] = tanh_f32_x4(total0); }
  if (c0) { p0[n15 + 8i] = tanh_f32_x4(total1); }
  if (c0) { p0[n15 + 16i] = tanh_f32_x4(total2); }
  if (c0) { p0[n15 + 24i] = tanh_f32_x4(total3); }
}
