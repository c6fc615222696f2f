@group(0) @binding(0) var<storage, read_write> p0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> p2: array<vec4<f32>>;
var<workgroup> tile0: array<vec4<f32>, 136>;
var<workgroup> tile1: array<vec4<f32>, 128>;
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
  let n0 = lid & 3i;
  let n1 = (n0 * 34i) + (lid >> 4u);
  let n2 = vec4<i32>(0i, 1i, 2i, 3i) * 8i;
  let n3 = lid >> 2u;
  let n4 = n3 & 3i;
  let n5 = wg >> 3u;
  let n6 = ((n5 * 512i) + (n3 * 16i)) + n0;
  let x0 = p1[n6];
  var acc4: vec4<f32> = x0;
  let x1 = p1[n6 + 256i];
  var acc5: vec4<f32> = x1;
  let n7 = lid >> 3u;
  let n8 = (wg & 7i) * 8i;
  let n9 = lid & 7i;
  let n10 = ((n7 * 64i) + n8) + n9;
  let x2 = p2[n10];
  var acc6: vec4<f32> = x2;
  let x3 = p2[n10 + 512i];
  var acc7: vec4<f32> = x3;
  for (var k0 = 0i; k0 < 4i; k0 += 1i) {
    let n11 = n1 + n2;
    tile0[n11.x][n4] = acc4.x;
    tile0[n11.y][n4] = acc4.y;
    tile0[n11.z][n4] = acc4.z;
    tile0[n11.w][n4] = acc4.w;
    let n12 = (n2 + n1) + 4i;
    tile0[n12.x][n4] = acc5.x;
    tile0[n12.y][n4] = acc5.y;
    tile0[n12.z][n4] = acc5.z;
    tile0[n12.w][n4] = acc5.w;
    tile1[lid] = acc6;
    tile1[lid + 64i] = acc7;
    workgroupBarrier();
    let n13 = min_i32(k0 + 1i, 3i);
    let n14 = n6 + (n13 * 4i);
    let x4 = p1[n14];
    acc4 = x4;
    let x5 = p1[n14 + 256i];
    acc5 = x5;
    let n15 = n10 + (n13 * 1024i);
    let x6 = p2[n15];
    acc6 = x6;
    let x7 = p2[n15 + 512i];
    acc7 = x7;
    {
      const k1 = 0i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 1i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 2i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 3i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 4i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 5i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 6i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 7i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 8i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 9i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 10i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 11i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 12i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 13i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 14i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    {
      const k1 = 15i;
      let n16 = k1 * 8i;
      let x8 = tile0[(n7 + n16) + ((k1 >> 2u) * 2i)];
      let x9 = tile1[n9 + n16];
      acc0 = fma(vec4<f32>(x8.x), x9, acc0);
      acc1 = fma(vec4<f32>(x8.y), x9, acc1);
      acc2 = fma(vec4<f32>(x8.z), x9, acc2);
      acc3 = fma(vec4<f32>(x8.w), x9, acc3);
    }
    workgroupBarrier();
  }
  let n17 = (((n5 * 2048i) + (n7 * 256i)) + n8) + n9;
  p0[n17] = tanh_f32_x4(acc0);
  p0[n17 + 64i] = tanh_f32_x4(acc1);
  p0[n17 + 128i] = tanh_f32_x4(acc2);
  p0[n17 + 192i] = tanh_f32_x4(acc3);
}
