@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<f32>;
@group(0) @binding(2) var<storage, read> p2: array<f32>;
var<workgroup> tile0: array<vec4<f32>, 135>;
var<workgroup> tile1: array<vec4<f32>, 120>;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }
fn tanh_f32(x: f32) -> f32 {
  let a = abs(x);
  let z = x * x;
  let near = fma(x * z, -0.333332839f + z * (0.133314913f + z * (-0.0537434966f + z * (0.0206505825f + z * -0.00571703969f))), x);
  let far = 1.0f - 2.0f / (exp2(min(a, 10.0f) * 2.88539004f) + 1.0f);
  return select(select(far, -far, x < 0.0f), near, (a < 0.625f) | is_nan(x));
}
fn min_i32_x4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> { return vec4<i32>(min_i32(a.x, b.x), min_i32(a.y, b.y), min_i32(a.z, b.z), min_i32(a.w, b.w)); }
fn tanh_f32_x4(x: vec4<f32>) -> vec4<f32> { return vec4<f32>(tanh_f32(x.x), tanh_f32(x.y), tanh_f32(x.z), tanh_f32(x.w)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  var acc0: vec4<f32> = vec4<f32>(0.0f);
  var acc1: vec4<f32> = vec4<f32>(0.0f);
  var acc2: vec4<f32> = vec4<f32>(0.0f);
  var acc3: vec4<f32> = vec4<f32>(0.0f);
  let n0 = i32(u32(lid) % 15u);
  let n1 = i32(u32(lid) / 60u);
  let n2 = i32(u32(lid) / 15u) & 3i;
  let n3 = i32(u32(wg) / 3u);
  let n4 = n3 * 8i;
  let n5 = (min_i32(((n4 + n1) * 4i) + n2, 64i) * 30i) + n0;
  let x0 = p1[n5];
  var acc4: f32 = x0;
  let n6 = i32(u32(lid + 4i) % 15u);
  let n7 = i32(u32(lid + 4i) / 60u);
  let n8 = i32(u32(lid + 4i) / 15u) & 3i;
  let n9 = (min_i32((((n7 + n4) * 4i) + n8) + 4i, 64i) * 30i) + n6;
  let x1 = p1[n9];
  var acc5: f32 = x1;
  let n10 = i32(u32(lid + 8i) % 15u);
  let n11 = i32(u32(lid + 8i) / 60u);
  let n12 = i32(u32(lid + 8i) / 15u) & 3i;
  let n13 = (min_i32((((n11 + n4) * 4i) + n12) + 8i, 64i) * 30i) + n10;
  let x2 = p1[n13];
  var acc6: f32 = x2;
  let n14 = i32(u32(lid + 12i) % 15u);
  let n15 = i32(u32(lid + 192i) / 240u);
  let n16 = (i32(u32(lid + 12i) / 60u) + 3i) & 3i;
  let n17 = i32(u32(lid + 12i) / 15u) & 3i;
  let n18 = n3 * 2i;
  let n19 = (min_i32(((((n18 + n15) * 4i) + n16) * 4i) + n17, 64i) * 30i) + n14;
  let x3 = p1[n19];
  var acc7: f32 = x3;
  let n20 = i32(u32(lid + 1i) % 15u);
  let n21 = i32(u32(lid + 16i) / 60u);
  let n22 = (i32(u32(lid + 1i) / 15u) + 1i) & 3i;
  let n23 = (min_i32((((n4 + n21) * 4i) + n22) + 16i, 64i) * 30i) + n20;
  let x4 = p1[n23];
  var acc8: f32 = x4;
  let n24 = i32(u32(lid + 5i) % 15u);
  let n25 = i32(u32(lid + 20i) / 60u);
  let n26 = (i32(u32(lid + 5i) / 15u) + 1i) & 3i;
  let n27 = (min_i32((((n25 + n4) * 4i) + n26) + 20i, 64i) * 30i) + n24;
  let x5 = p1[n27];
  var acc9: f32 = x5;
  let n28 = i32(u32(lid + 9i) % 15u);
  let n29 = i32(u32(lid + 24i) / 60u);
  let n30 = (i32(u32(lid + 9i) / 15u) + 1i) & 3i;
  let n31 = (min_i32((((n29 + n4) * 4i) + n30) + 24i, 64i) * 30i) + n28;
  let x6 = p1[n31];
  var acc10: f32 = x6;
  let n32 = min_i32(lid + 448i, 479i);
  let n33 = i32(u32(n32) % 15u);
  let n34 = i32(u32(n32) / 15u);
  let n35 = n34 + -28i;
  let c0 = lid < 32i;
  let n36 = (min_i32(n34 + (n3 * 32i), 64i) * 30i) + n33;
  let x7 = p1[n36];
  var acc11: f32 = x7;
  let n37 = lid >> 2u;
  let n38 = lid & 3i;
  let n39 = lid >> 5u;
  let n40 = i32(u32(wg) % 3u) * 8i;
  let n41 = (n39 * 70i) + min_i32(((n40 + (n37 & 7i)) * 4i) + n38, 69i);
  let x8 = p2[n41];
  var acc12: f32 = x8;
  let x9 = p2[n41 + 140i];
  var acc13: f32 = x9;
  let x10 = p2[n41 + 280i];
  var acc14: f32 = x10;
  let x11 = p2[n41 + 420i];
  var acc15: f32 = x11;
  let x12 = p2[n41 + 560i];
  var acc16: f32 = x12;
  let x13 = p2[n41 + 700i];
  var acc17: f32 = x13;
  let x14 = p2[n41 + 840i];
  var acc18: f32 = x14;
  let n42 = n32 >> 2u;
  let n43 = n32 & 3i;
  let n44 = min_i32((((n42 + n40) * 4i) + n43) + -448i, 69i);
  let x15 = p2[n44 + 980i];
  var acc19: f32 = x15;
  let x16 = p1[n5 + 15i];
  let x17 = p1[n9 + 15i];
  let x18 = p1[n13 + 15i];
  let x19 = p1[n19 + 15i];
  let x20 = p1[n23 + 15i];
  let x21 = p1[n27 + 15i];
  let x22 = p1[n31 + 15i];
  let x23 = p1[n36 + 15i];
  let x24 = p2[n41 + 1050i];
  let x25 = p2[n41 + 1190i];
  let x26 = p2[n41 + 1330i];
  let x27 = p2[n41 + 1470i];
  let x28 = p2[n41 + 1610i];
  let x29 = p2[n41 + 1750i];
  let x30 = p2[n41 + 1890i];
  let x31 = p2[n44 + 2030i];
  let n45 = lid >> 3u;
  let n46 = lid & 7i;
  for (var k0 = 0i; k0 < 2i; k0 += 1i) {
    tile0[(n0 * 9i) + n1][n2] = acc4;
    tile0[((n6 * 9i) + n7) + 1i][n8] = acc5;
    tile0[((n10 * 9i) + n11) + 2i][n12] = acc6;
    tile0[((n14 * 9i) + (n15 * 4i)) + n16][n17] = acc7;
    tile0[((n20 * 9i) + n21) + 4i][n22] = acc8;
    tile0[((n24 * 9i) + n25) + 5i][n26] = acc9;
    tile0[((n28 * 9i) + n29) + 6i][n30] = acc10;
    if (c0) { tile0[(n33 * 9i) + 7i][n35] = acc11; }
    tile1[n37][n38] = acc12;
    tile1[n37 + 16i][n38] = acc13;
    tile1[n37 + 32i][n38] = acc14;
    tile1[n37 + 48i][n38] = acc15;
    tile1[n37 + 64i][n38] = acc16;
    tile1[n37 + 80i][n38] = acc17;
    tile1[n37 + 96i][n38] = acc18;
    if (c0) { tile1[n42][n43] = acc19; }
    workgroupBarrier();
    acc4 = x16;
    acc5 = x17;
    acc6 = x18;
    acc7 = x19;
    acc8 = x20;
    acc9 = x21;
    acc10 = x22;
    acc11 = x23;
    acc12 = x24;
    acc13 = x25;
    acc14 = x26;
    acc15 = x27;
    acc16 = x28;
    acc17 = x29;
    acc18 = x30;
    acc19 = x31;
    {
      const k1 = 0i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 1i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 2i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 3i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 4i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 5i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 6i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 7i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 8i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 9i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 10i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 11i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 12i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 13i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    {
      const k1 = 14i;
      let x32 = tile0[n45 + (k1 * 9i)];
      let x33 = tile1[n46 + (k1 * 8i)];
      acc0 = fma(vec4<f32>(x32.x), x33, acc0);
      acc1 = fma(vec4<f32>(x32.y), x33, acc1);
      acc2 = fma(vec4<f32>(x32.z), x33, acc2);
      acc3 = fma(vec4<f32>(x32.w), x33, acc3);
    }
    workgroupBarrier();
  }
  let n47 = ((n18 + n39) * 4i) + (n45 & 3i);
  let n48 = n47 * 4i;
  let n49 = ((n40 + n46) * 4i) + vec4<i32>(0i, 1i, 2i, 3i);
  let n50 = min_i32_x4(n49, vec4<i32>(69i));
  let c1 = n49 < vec4<i32>(70i);
  let n51 = (min_i32(n48, 64i) * 70i) + n50;
  let v0 = tanh_f32_x4(acc0);
  let c2 = vec4<bool>(n47 < 17i) & c1;
  if (c2.x) { p0[n51.x] = v0.x; }
  if (c2.y) { p0[n51.y] = v0.y; }
  if (c2.z) { p0[n51.z] = v0.z; }
  if (c2.w) { p0[n51.w] = v0.w; }
  let c3 = vec4<bool>(wg < 6i) & c1;
  let n52 = (min_i32(n48 + 1i, 64i) * 70i) + n50;
  let v1 = tanh_f32_x4(acc1);
  if (c3.x) { p0[n52.x] = v1.x; }
  if (c3.y) { p0[n52.y] = v1.y; }
  if (c3.z) { p0[n52.z] = v1.z; }
  if (c3.w) { p0[n52.w] = v1.w; }
  let n53 = (min_i32(n48 + 2i, 64i) * 70i) + n50;
  let v2 = tanh_f32_x4(acc2);
  if (c3.x) { p0[n53.x] = v2.x; }
  if (c3.y) { p0[n53.y] = v2.y; }
  if (c3.z) { p0[n53.z] = v2.z; }
  if (c3.w) { p0[n53.w] = v2.w; }
  let n54 = (min_i32(n48 + 3i, 64i) * 70i) + n50;
  let v3 = tanh_f32_x4(acc3);
  if (c3.x) { p0[n54.x] = v3.x; }
  if (c3.y) { p0[n54.y] = v3.y; }
  if (c3.z) { p0[n54.z] = v3.z; }
  if (c3.w) { p0[n54.w] = v3.w; }
}
