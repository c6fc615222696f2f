@group(0) @binding(0) var<storage, read_write> p0: array<f32>;
@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
var<workgroup> part0: array<f32, 64>;
var<workgroup> part1: array<f32, 64>;
var<private> zero_bits: u32;
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
fn high_bits(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
fn exp_f32(x: f32) -> f32 {
  // exp2 of the product, and what rounding the product lost.
  let t = x * 1.44269502f;
  let y = exp2(t);
  let h = high_bits(x);
  let lost = (h * 1.4423828125f - t) + (h * 3.122283961e-04f + (x - h) * 1.44269502f);
  // what is not a number takes the first way, as not every driver's exp2 gives it back
  return select(fma(y, lost * 0.693147182f, y), y, abs(t) >= 127.99f);
}
fn split_log(x: f32) -> vec2<f32> {
  // x = m * 2**k with m about 1: m - 1, and k. Of a positive number, by its bits: denormals have a logarithm, too.
  let u = bitcast<u32>(x);
  let up = countLeadingZeros(u) - 8u;
  let bits = select(i32(u), i32(u << up) - i32(up << 23u), u < 0x800000u) + 0x4afb0d;
  return vec2<f32>(bitcast<f32>((bits & 0x7fffff) + 0x3f3504f3) - 1.0f, f32((bits >> 23u) - 127));
}
fn log_1p(f: f32) -> f32 {
  // For 1 + f between sqrt(1/2) and sqrt(2): f less a small rest, by the series of artanh.
  let s = f / (2.0f + f);
  let z = s * s;
  let h = 0.5f * f * f;
  return f - (h - s * (h + z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * 0.222222222f)))));
}
fn log_ends(x: f32, inside: f32) -> f32 {
  // A logarithm of 0, of what is negative, infinity or nan; `inside` of all else.
  let u = bitcast<u32>(x);
  let size = u & 0x7fffffffu;
  let end = select(select(quiet_nan(), infinity(), u == 0x7f800000u), -infinity(), size == 0u);
  return select(end, inside, u - 1u < 0x7f7fffffu);
}
fn log_f32(x: f32) -> f32 {
  let p = split_log(x);
  return log_ends(x, fma(p.y, 0.693145752f, fma(p.y, 1.42860677e-6f, log_1p(p.x))));
}
fn quiet_nan() -> f32 { return bitcast<f32>(0x7fc00000u | zero_bits); }
fn infinity() -> f32 { return bitcast<f32>(0x7f800000u | zero_bits); }
fn exp_f32_x4(x: vec4<f32>) -> vec4<f32> { return vec4<f32>(exp_f32(x.x), exp_f32(x.y), exp_f32(x.z), exp_f32(x.w)); }
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  zero_bits = select(0u, group_id.x * 2654435769u, arrayLength(&p0) == 0u);
  let wg = i32(group_id.x);
  let lid = i32(local_id);
  let x0 = p1[(wg * 64i) + lid];
  let v0 = max_f32(max_f32(max_f32(x0.x, x0.y), x0.z), x0.w);
  var total0 = v0;
  let lane0 = local_id;
  part0[local_id] = total0;
  workgroupBarrier();
  if (lane0 < 8u) {
    let first0 = lane0;
    part0[first0] = max_f32(part0[first0], part0[first0 + 8u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 16u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 24u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 32u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 40u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 48u]);
    part0[first0] = max_f32(part0[first0], part0[first0 + 56u]);
  }
  workgroupBarrier();
  let first1 = 0u;
  total0 = part0[first1];
  total0 = max_f32(total0, part0[first1 + 1u]);
  total0 = max_f32(total0, part0[first1 + 2u]);
  total0 = max_f32(total0, part0[first1 + 3u]);
  total0 = max_f32(total0, part0[first1 + 4u]);
  total0 = max_f32(total0, part0[first1 + 5u]);
  total0 = max_f32(total0, part0[first1 + 6u]);
  total0 = max_f32(total0, part0[first1 + 7u]);
  let v1 = exp_f32_x4(x0 - total0);
  let v2 = ((v1.x + v1.y) + v1.z) + v1.w;
  var total1 = v2;
  let lane1 = local_id;
  part1[local_id] = total1;
  workgroupBarrier();
  if (lane1 < 8u) {
    let first2 = lane1;
    part1[first2] += part1[first2 + 8u];
    part1[first2] += part1[first2 + 16u];
    part1[first2] += part1[first2 + 24u];
    part1[first2] += part1[first2 + 32u];
    part1[first2] += part1[first2 + 40u];
    part1[first2] += part1[first2 + 48u];
    part1[first2] += part1[first2 + 56u];
  }
  workgroupBarrier();
  let first3 = 0u;
  total1 = part1[first3];
  total1 += part1[first3 + 1u];
  total1 += part1[first3 + 2u];
  total1 += part1[first3 + 3u];
  total1 += part1[first3 + 4u];
  total1 += part1[first3 + 5u];
  total1 += part1[first3 + 6u];
  total1 += part1[first3 + 7u];
  if (lid == 0i) { p0[wg] = total0 + log_f32(total1); }
}
