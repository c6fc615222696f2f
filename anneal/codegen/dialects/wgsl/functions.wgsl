// Functions that WGSL lacks, or that drivers get wrong; a module holds those it calls. `functions.py` reads them,
// writes what stands for a series, as $EXP, and adds the functions of 64-bit integers that are those of 32 bits.

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

// Not max() and min(): NVIDIA's compiler (580.159) gets them wrong for a chain over negated integers.
fn max_i32(a: i32, b: i32) -> i32 { return select(a, b, a < b); }
fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }

// WGSL promises a quotient only for divisors up to 2^126; NVIDIA gives 0 beyond.
fn div_f32(a: f32, b: f32) -> f32 {
  let s = select(1.0f, 0.25f, abs(b) > 8.507059e37f);
  return (a * s) / (b * s);
}

// By bits: NVIDIA's compiler makes a > b of !(a <= b), also where a is nan.
fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }
fn min_f32(a: f32, b: f32) -> f32 { return select(b, a, (a < b) | is_nan(a)); }
fn sign_f32(x: f32) -> f32 { return select(f32(x > 0.0f) - f32(x < 0.0f), x, is_nan(x)); }
fn sign_u32(x: u32) -> u32 { return min(x, 1u); }

// The functions of real numbers are ours where WGSL lets a driver be coarse: next to a zero (log at 1, tanh, sin at
// pi), far out (exp, sin), at the ends. They are built on + - * fma exp2 and bits, exact or nearly so everywhere.
fn high_bits(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }

fn lost_in(a: f32, b: f32, p: f32) -> f32 {
  // a * b - p, where p is the rounded product: of halves, whose products are exact. Some drivers round in fma.
  let x = high_bits(a);
  let y = high_bits(b);
  return ((x * y - p) + (x * (b - y) + (a - x) * y)) + (a - x) * (b - y);
}

fn exp_f32(x: f32) -> f32 {
  // exp2 of the product, and what rounding the product lost.
  let t = x * 1.44269502f;
  let y = exp2(t);
  let h = high_bits(x);
  let lost = (h * 1.4423828125f - t) + (h * 3.122283961e-04f + (x - h) * 1.44269502f);
  // what is not a number takes the first way, as not every driver's exp2 gives it back
  return select(fma(y, lost * 0.693147182f, y), y, abs(t) >= 127.99f);
}

fn exp2_f32(x: f32) -> f32 {
  // not every driver's exp2 gives back what is not a number
  return select(exp2(x), x, is_nan(x));
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

fn log2_f32(x: f32) -> f32 {
  let p = split_log(x);
  return log_ends(x, fma(log_1p(p.x), 1.44269502f, p.y));
}

fn tanh_f32(x: f32) -> f32 {
  let a = abs(x);
  let z = x * x;
  let near = fma(x * z, -0.333332839f + z * (0.133314913f + z * (-0.0537434966f + z * (0.0206505825f + z * -0.00571703969f))), x);
  let far = 1.0f - 2.0f / (exp2(min(a, 10.0f) * 2.88539004f) + 1.0f);
  return select(select(far, -far, x < 0.0f), near, (a < 0.625f) | is_nan(x));
}

fn mul_hi(a: u32, b: u32) -> u32 {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let t = ah * bl + ((al * bl) >> 16u);
  return ah * (b >> 16u) + (t >> 16u) + ((al * (b >> 16u) + (t & 0xffffu)) >> 16u);
}

fn far_turn(x: f32) -> vec2<f32> {
  // The same of a large number: its 24 bits times those 96 of 2 / pi that are neither whole turns nor beyond sight.
  var table = array<u32, 9>(0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u);
  let u = bitcast<u32>(x) & 0x7fffffffu;
  let m = (u & 0x7fffffu) | 0x800000u;
  let p = (u >> 23u) - 120u;
  let w = p >> 5u;
  let s = p & 31u;
  let a = select((table[w] << s) | (table[w + 1u] >> (32u - s)), table[w], s == 0u);
  let b = select((table[w + 1u] << s) | (table[w + 2u] >> (32u - s)), table[w + 1u], s == 0u);
  let c = select((table[w + 2u] << s) | (table[w + 3u] >> (32u - s)), table[w + 2u], s == 0u);
  let middle = m * b + mul_hi(m, c);
  let top = m * a + mul_hi(m, b) + select(0u, 1u, middle < m * b);
  let high = i32((top << 2u) | (middle >> 30u));
  let angle = (f32(high) * 2.3283064e-10f + f32(middle << 2u) * 5.4210109e-20f) * 1.57079637f;
  let quarter = f32((top >> 30u) + select(0u, 1u, high < 0));
  return select(vec2<f32>(angle, quarter), vec2<f32>(-angle, -quarter), x < 0.0f);
}

fn turn(x: f32) -> vec2<f32> {
  // x = angle + quarter * pi / 2, the angle within pi / 4 of 0, and the quarter.
  if (!(abs(x) < 100000.0f)) {
    if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) { return vec2<f32>(quiet_nan(), 0.0f); }
    return far_turn(x);
  }
  // pi / 2 in parts of eight bits, whose products with n are exact.
  let n = round(x * 0.636619747f);
  let r = (((x - n * 1.5703125f) - n * 0.000457763671875f) - n * 2.5987625122070312e-05f) - n * 7.543712854385376e-08f;
  return vec2<f32>(r - n * 6.077100628e-11f, n);
}

fn sin_near(x: f32) -> f32 {
  let z = x * x;
  return fma(x * z, -0.166666666f + z * (0.00833332893f + z * (-0.000198391876f + z * 2.7169167e-6f)), x);
}

fn cos_near(x: f32) -> f32 {
  let z = x * x;
  return fma(z * z, 0.0416666666f + z * (-0.00138888832f + z * (2.47993626e-5f + z * -2.7197293e-7f)), fma(z, -0.5f, 1.0f));
}

fn sin_f32(x: f32) -> f32 {
  let t = turn(x);
  let q = i32(t.y);
  let y = select(sin_near(t.x), cos_near(t.x), (q & 1) == 1);
  return select(y, -y, (q & 2) == 2);
}

fn cos_f32(x: f32) -> f32 {
  let t = turn(x);
  let q = i32(t.y);
  let y = select(cos_near(t.x), sin_near(t.x), (q & 1) == 1);
  return select(y, -y, ((q + 1) & 2) == 2);
}

fn tan_f32(x: f32) -> f32 {
  let t = turn(x);
  let odd = (i32(t.y) & 1) == 1;
  let s = sin_near(t.x);
  let c = cos_near(t.x);
  return select(s, -c, odd) / select(c, s, odd);
}

fn erf_f32(x: f32) -> f32 {
  // Below 1 the Taylor series, above it Chebyshev's fit of erfc (Numerical Recipes 6.2); within 1.6e-7 everywhere.
  let a = abs(x);
  let q = min(a, 1.0f) * min(a, 1.0f);
  var s = 1.480719282e-08f + q * -1.229055530e-09f;
  s = 1.646211437e-06f + q * (-1.636584469e-07f + q * s);
  s = 1.205533298e-04f + q * (-1.492565036e-05f + q * s);
  s = 5.223977625e-03f + q * (-8.548327023e-04f + q * s);
  s = 1.128379167e-01f + q * (-2.686617065e-02f + q * s);
  s = 1.128379167e+00f + q * (-3.761263890e-01f + q * s);
  let z = min(a, 10.0f);
  let t = 1.0f / (1.0f + 0.5f * z);
  var c = -0.82215223f + t * 0.17087277f;
  c = -1.13520398f + t * (1.48851587f + t * c);
  c = -0.18628806f + t * (0.27886807f + t * c);
  c = 0.37409196f + t * (0.09678418f + t * c);
  c = -1.26551223f + t * (1.00002368f + t * c);
  let far = 1.0f - t * exp_f32(c - z * z);
  return select(select(select(far, -far, x < 0.0f), x * s, a < 1.0f), x, is_nan(x));
}

fn size_pow(x: f32, y: f32) -> f32 {
  // x ** y of positive numbers. A rounded logarithm would cost digits: it is hi + lo, cut so that no compiler that takes
  // (a + b) - a for b can do harm.
  let p = split_log(x);
  let r = 1.0f / (2.0f + p.x);
  let q = p.x * r;
  let qx = q * p.x;
  let rest = ((p.x - 2.0f * q) - qx) - lost_in(q, p.x, qx);
  let z = q * q;
  let tail = rest * 2.0f * r + q * z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * 0.222222222f)));
  let main = q * 2.88539004f;
  let low = lost_in(q, 2.88539004f, main) + q * 3.851926e-8f + tail * 1.44269502f;
  let cut = f32(i32(main * 32768.0f)) * 3.0517578125e-5f;
  let hi = select(p.y + cut, main, p.y == 0.0f);
  let lo = select((main - cut) + low, low, p.y == 0.0f);
  let t = y * hi;
  let lost = lost_in(y, hi, t) + y * lo;
  let n = clamp(round(t + lost), -200.0f, 200.0f);
  let half = i32(n) / 2;
  let out = exp2((t - n) + lost) * bitcast<f32>((half + 127) << 23u) * bitcast<f32>((i32(n) - half + 127) << 23u);
  return select(out, select(0.0f, infinity(), t > 0.0f), abs(t) > 160.0f);
}

fn pow_f32(x: f32, y: f32) -> f32 {
  let whole = floor(y) == y;
  let odd = whole & (abs(y) < 16777216.0f) & (abs(y - 2.0f * floor(y * 0.5f)) == 1.0f);
  // The two ends are spelled out: what exp2 does there is the driver's choice.
  let zero = x == 0.0f;
  let ends = zero | (abs(x) == infinity());
  let size = select(size_pow(abs(x), y), select(0.0f, infinity(), zero == (y < 0.0f)), ends);
  let even = select(size, 1.0f, abs(x) == 1.0f);
  let signed = select(even, -even, odd & ((bitcast<u32>(x) >> 31u) == 1u));
  let out = select(signed, quiet_nan(), (x < 0.0f) & !whole & (abs(x) < infinity()));
  return select(select(out, x + y, is_nan(x) | is_nan(y)), 1.0f, (y == 0.0f) | (x == 1.0f));
}

fn quiet_nan() -> f32 { return bitcast<f32>(0x7fc00000u | zero_bits); }
fn infinity() -> f32 { return bitcast<f32>(0x7f800000u | zero_bits); }

fn fmod_f32(a: f32, b: f32) -> f32 {
  // Long division of the significands, eight bits at a time: what is left is exact, however large the quotient is.
  let x = bitcast<u32>(a) & 0x7fffffffu;
  let y = bitcast<u32>(b) & 0x7fffffffu;
  if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) { return quiet_nan(); }
  if (x < y) { return a; }
  let e = max(y >> 23u, 1u);
  let d = select(y, (y & 0x7fffffu) | 0x800000u, y > 0x7fffffu);
  var r = select(x, (x & 0x7fffffu) | 0x800000u, x > 0x7fffffu) % d;
  for (var left = max(x >> 23u, 1u) - e; left > 0u && r > 0u; ) {
    let bits = min(left, 8u);
    r = (r << bits) % d;
    left -= bits;
  }
  let up = min(countLeadingZeros(r) - 8u, e - 1u);
  let s = r << up;
  let size = select(s, ((e - up) << 23u) | (s & 0x7fffffu), s > 0x7fffffu);
  return bitcast<f32>(size | (bitcast<u32>(a) & 0x80000000u));
}

fn floormod_f32(a: f32, b: f32) -> f32 {
  let r = fmod_f32(a, b);
  let other = (bitcast<u32>(r) ^ bitcast<u32>(b)) >> 31u;
  if ((bitcast<u32>(r) & 0x7fffffffu) == 0u) { return bitcast<f32>(bitcast<u32>(b) & 0x80000000u); }
  return select(r, r + b, other == 1u);
}

fn floordiv_f32(a: f32, b: f32) -> f32 {
  // What the remainder leaves divides without rest: rounding takes the error of the division away.
  let r = fmod_f32(a, b);
  let apart = (bitcast<u32>(r) & 0x7fffffffu) != 0u && (r < 0.0f) != (b < 0.0f);
  let q = round(div_f32(a - r, b)) - select(0.0f, 1.0f, apart);
  let zero = bitcast<f32>((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u);
  // A nan would be taken from itself, which NVIDIA's compiler (580.159) makes 0.
  return select(select(select(q, zero, q == 0.0f), div_f32(a, b), b == 0.0f), a, is_nan(a));
}

fn floordiv_i32(a: i32, b: i32) -> i32 {
  let d = select(b, 1i, (b == 0i) | (b == -1i));
  let q = a / d;
  let down = ((a - q * d) != 0i) & ((a < 0i) != (d < 0i));
  return select(select(q - i32(down), 0i - a, b == -1i), 0i, b == 0i);
}

fn floormod_i32(a: i32, b: i32) -> i32 {
  let d = select(b, 1i, (b == 0i) | (b == -1i));
  let r = a - (a / d) * d;
  return select(r, r + d, (r != 0i) & ((r < 0i) != (d < 0i)));
}

fn div_u32(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }
fn mod_u32(a: u32, b: u32) -> u32 { return select(a % max(b, 1u), 0u, b == 0u); }
fn shl_i32(a: i32, b: i32) -> i32 { return select(a << (u32(b) & 31u), 0i, u32(b) > 31u); }
fn shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b > 31u); }
fn shr_i32(a: i32, b: i32) -> i32 { return a >> min(u32(b), 31u); }
fn shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b > 31u); }

fn to_i32(x: f32) -> i32 {
  let i = i32(clamp(x, -2147483648.0f, 2147483520.0f));
  return select(select(i, 2147483647i, x >= 2147483648.0f), 0i, is_nan(x));
}

fn to_u32(x: f32) -> u32 {
  let i = u32(clamp(x, 0.0f, 4294967040.0f));
  return select(select(i, 4294967295u, x >= 4294967296.0f), 0u, is_nan(x));
}

// A float becomes an integer by truncation, within the ends of its range; nan becomes 0.
fn to_i8(x: f32) -> i32 { return i32(clamp(select(x, 0.0f, is_nan(x)), -128.0f, 127.0f)); }
fn to_u8(x: f32) -> u32 { return u32(clamp(select(x, 0.0f, is_nan(x)), 0.0f, 255.0f)); }
fn to_i16(x: f32) -> i32 { return i32(clamp(select(x, 0.0f, is_nan(x)), -32768.0f, 32767.0f)); }
fn to_u16(x: f32) -> u32 { return u32(clamp(select(x, 0.0f, is_nan(x)), 0.0f, 65535.0f)); }

// Words to the bits of their elements, and back.
fn split_16in2(w: u32) -> vec2<u32> { return vec2<u32>(w & 0xffffu, w >> 16u); }

fn split_16in4(w: vec2<u32>) -> vec4<u32> {
  return vec4<u32>(w.x & 0xffffu, w.x >> 16u, w.y & 0xffffu, w.y >> 16u);
}

fn split_8in4(w: u32) -> vec4<u32> {
  return vec4<u32>(w & 0xffu, (w >> 8u) & 0xffu, (w >> 16u) & 0xffu, w >> 24u);
}

fn join_16in2(b: vec2<u32>) -> u32 { return b.x | (b.y << 16u); }

fn join_16in4(b: vec4<u32>) -> vec2<u32> {
  return vec2<u32>(b.x | (b.y << 16u), b.z | (b.w << 16u));
}

fn join_8in4(b: vec4<u32>) -> u32 {
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

fn unpack_i8(b: u32) -> i32 { return bitcast<i32>(b << 24u) >> 24u; }
fn unpack_u8(b: u32) -> u32 { return b; }
fn unpack_i16(b: u32) -> i32 { return bitcast<i32>(b << 16u) >> 16u; }
fn unpack_u16(b: u32) -> u32 { return b; }
fn pack_i8(x: i32) -> u32 { return bitcast<u32>(x) & 0xffu; }
fn pack_u8(x: u32) -> u32 { return x & 0xffu; }
fn pack_i16(x: i32) -> u32 { return bitcast<u32>(x) & 0xffffu; }
fn pack_u16(x: u32) -> u32 { return x & 0xffffu; }

// bfloat16 is the upper half of a float32; 8 bits are sign, exponent and mantissa, 1-4-3 without infinity or 1-5-2.
// Rounding adds just under half of the last place kept, and the last place itself where that is odd.
fn unpack_bf16(b: u32) -> f32 { return bitcast<f32>(b << 16u); }

fn pack_bf16(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  return select((u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u, (u >> 16u) | 0x40u, (u & 0x7fffffffu) > 0x7f800000u);
}

fn unpack_e4(b: u32) -> f32 {
  let m = b & 0x7fu;
  let small = bitcast<u32>(f32(m) * 0.001953125f);
  let size = select(select((m << 20u) + 0x3c000000u, small, m < 8u), 0x7fc00000u, m == 0x7fu);
  return bitcast<f32>(size | ((b & 0x80u) << 24u));
}

fn pack_e4(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  let a = u & 0x7fffffffu;
  let small = u32(round(min(bitcast<f32>(a), 1.0f) * 512.0f));
  let size = min(((a + 0x7ffffu + ((a >> 20u) & 1u)) >> 20u) - 960u, 0x7fu);
  return select(size, small, a < 0x3c800000u) | ((u >> 24u) & 0x80u);
}

fn unpack_e5(b: u32) -> f32 {
  let m = b & 0x7fu;
  let small = bitcast<u32>(f32(m) * 0.0000152587890625f);
  let size = select(select((m << 21u) + 0x38000000u, small, m < 4u), (m << 21u) | 0x7f800000u, m > 0x7bu);
  return bitcast<f32>(size | ((b & 0x80u) << 24u));
}

fn pack_e5(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  let a = u & 0x7fffffffu;
  let small = u32(round(min(bitcast<f32>(a), 1.0f) * 65536.0f));
  let size = min(((a + 0xfffffu + ((a >> 21u) & 1u)) >> 21u) - 448u, 0x7cu);
  let large = select(size, 0x7eu, a > 0x7f800000u);
  return select(large, small, a < 0x38800000u) | ((u >> 24u) & 0x80u);
}

fn round_bf16(x: f32) -> f32 { return unpack_bf16(pack_bf16(x)); }
fn round_e4(x: f32) -> f32 { return unpack_e4(pack_e4(x)); }
fn round_e5(x: f32) -> f32 { return unpack_e5(pack_e5(x)); }

// f16(x) rounds, but NVIDIA's compiler takes f32(f16(x)) for x.
fn round_f16(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  let size = b & 0x7fffffffu;
  let near = bitcast<f32>((b + 0xfffu + ((b >> 13u) & 1u)) & 0xffffe000u);
  let small = select(near, round(x * 16777216.0f) * 5.9604645e-8f, size < 0x38800000u);
  return select(select(small, select(infinity(), -infinity(), x < 0.0f), size >= 0x477ff000u), x, size >= 0x7f800000u);
}

// The same where `Target.rounds_halves`: that compiler does not see through bits that a run changes.
fn packed_f16(x: f32) -> f32 {
  return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0f)) ^ zero_bits).x;
}

fn packed_f16_x2(x: vec2<f32>) -> vec2<f32> {
  return unpack2x16float(pack2x16float(x) ^ zero_bits);
}

fn packed_f16_x4(x: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(packed_f16_x2(x.xy), packed_f16_x2(x.zw));
}

fn pack_f16(x: f16) -> u32 { return pack2x16float(vec2<f32>(f32(x), 0.0f)) & 0xffffu; }
fn unpack_f16(b: u32) -> f16 { return f16(unpack2x16float(b).x); }

fn threefry(counter: u32, key0: u32, key1: u32) -> u32 {
  // Threefry-2x32 with 20 rounds, of (counter, 0); the first word.
  var key = array<u32, 3>(key0, key1, key0 ^ key1 ^ 0x1bd11bdau);
  var turn = array<u32, 8>(13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u);
  var a = counter + key0;
  var b = key1;
  for (var i = 0u; i < 5u; i += 1u) {
    for (var j = 0u; j < 4u; j += 1u) {
      let r = turn[(i & 1u) * 4u + j];
      a += b;
      b = ((b << r) | (b >> (32u - r))) ^ a;
    }
    a += key[(i + 1u) % 3u];
    b += key[(i + 2u) % 3u] + i + 1u;
  }
  return a;
}

// -- i64, u64 and f64 ------------------------------------------------------------------------------------------------
// WGSL has those of f64 for numbers that need no series; the others are computed here, within a few units of the last
// place, by Taylor's series after the usual reductions of the argument (as in fdlibm).

fn nan_f64() -> f64 { return bitcast<f64>(0x7ff8000000000000lu | u64(zero_bits)); }
fn infinity_f64() -> f64 { return bitcast<f64>(0x7ff0000000000000lu | u64(zero_bits)); }

fn is_nan_f64(x: f64) -> bool {
  return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}

fn max_f64(a: f64, b: f64) -> f64 { return select(b, a, (a > b) | is_nan_f64(a)); }
fn min_f64(a: f64, b: f64) -> f64 { return select(b, a, (a < b) | is_nan_f64(a)); }
fn sign_f64(x: f64) -> f64 { return select(f64(x > 0.0lf) - f64(x < 0.0lf), x, is_nan_f64(x)); }

fn fmod_f64(a: f64, b: f64) -> f64 {
  // Long division, ten bits at a time: exact, with the sign of a.
  let x = bitcast<u64>(a) & 0x7ffffffffffffffflu;
  let y = bitcast<u64>(b) & 0x7ffffffffffffffflu;
  if (x >= 0x7ff0000000000000lu || y > 0x7ff0000000000000lu || y == 0lu) { return nan_f64(); }
  if (x < y) { return a; }
  let e = max(u32(y >> 52u), 1u);
  let d = select(y, (y & 0xffffffffffffflu) | 0x10000000000000lu, y > 0xffffffffffffflu);
  var r = select(x, (x & 0xffffffffffffflu) | 0x10000000000000lu, x > 0xffffffffffffflu) % d;
  for (var left = max(u32(x >> 52u), 1u) - e; left > 0u && r > 0lu; ) {
    let bits = min(left, 10u);
    r = (r << bits) % d;
    left -= bits;
  }
  let up = min(1075u - u32(bitcast<u64>(f64(r)) >> 52u), e - 1u);
  let s = r << up;
  let size = select(s, (u64(e - up) << 52u) | (s & 0xffffffffffffflu), s > 0xffffffffffffflu);
  return bitcast<f64>(size | (bitcast<u64>(a) & 0x8000000000000000lu));
}

fn floormod_f64(a: f64, b: f64) -> f64 {
  let r = fmod_f64(a, b);
  let other = (bitcast<u64>(r) ^ bitcast<u64>(b)) >> 63u;
  if ((bitcast<u64>(r) & 0x7ffffffffffffffflu) == 0lu) { return bitcast<f64>(bitcast<u64>(b) & 0x8000000000000000lu); }
  return select(r, r + b, other == 1lu);
}

fn floordiv_f64(a: f64, b: f64) -> f64 {
  let r = fmod_f64(a, b);
  let apart = (bitcast<u64>(r) & 0x7ffffffffffffffflu) != 0lu && (r < 0.0lf) != (b < 0.0lf);
  let q = round((a - r) / b) - select(0.0lf, 1.0lf, apart);
  let zero = bitcast<f64>((bitcast<u64>(a) ^ bitcast<u64>(b)) & 0x8000000000000000lu);
  return select(select(q, zero, q == 0.0lf), a / b, b == 0.0lf);
}

fn power_of_two(n: i32) -> f64 { return bitcast<f64>(u64(n + 1023i) << 52u); }

fn scaled_exp(r: f64, n: f64) -> f64 {
  // exp(r) * 2^n in two steps, since 2^n alone may be no normal number.
  let k = i32(n);
  return ($EXP) * power_of_two(k >> 1u) * power_of_two(k - (k >> 1u));
}

fn exp_f64(x: f64) -> f64 {
  let a = min(max(x, -760.0lf), 720.0lf);
  let n = round(a * 1.4426950408889634lf);
  let r = (a - n * 0.6931471803691238lf) - n * 1.9082149292705877e-10lf;
  return select(scaled_exp(r, n), x, is_nan_f64(x));
}

fn exp2_f64(x: f64) -> f64 {
  let a = min(max(x, -1090.0lf), 1030.0lf);
  let n = round(a);
  return select(scaled_exp((a - n) * 0.6931471805599453lf, n), x, is_nan_f64(x));
}

fn log_parts(x: f64) -> vec2<f64> {
  // The exponent of x > 0, and the logarithm of the rest, which lies between the roots of 1/2 and of 2.
  let small = x < 2.2250738585072014e-308lf;
  let u = bitcast<u64>(select(x, x * 18014398509481984.0lf, small));
  let high = (u & 0xffffffffffffflu) > 0x6a09e667f3bcclu;
  let m = bitcast<f64>((u & 0xffffffffffffflu) | select(0x3ff0000000000000lu, 0x3fe0000000000000lu, high));
  let e = f64(i32(u >> 52u)) - select(1023.0lf, 1077.0lf, small) + f64(high);
  let s = (m - 1.0lf) / (m + 1.0lf);
  let q = s * s;
  return vec2<f64>(e, s * ($LOG));
}

fn log_ends_f64(x: f64, y: f64) -> f64 {
  let inside = select(y, x, x == infinity_f64());
  return select(select(inside, -infinity_f64(), x == 0.0lf), nan_f64(), is_nan_f64(x) | (x < 0.0lf));
}

fn log_f64(x: f64) -> f64 {
  let p = log_parts(x);
  return log_ends_f64(x, p.x * 0.6931471803691238lf + (p.y + p.x * 1.9082149292705877e-10lf));
}

fn log2_f64(x: f64) -> f64 {
  let p = log_parts(x);
  return log_ends_f64(x, p.x + p.y * 1.4426950408889634lf);
}

fn quarters(x: f64) -> vec2<f64> {
  // x less the nearest multiple of pi / 2, which is exact up to about a million, and that multiple's number.
  let n = round(x * 0.6366197723675814lf);
  let r = ((x - n * 1.5707963267341256lf) - n * 6.077100506303966e-11lf) - n * 2.0222662487959506e-21lf;
  return vec2<f64>(r, n - 4.0lf * floor(n * 0.25lf));
}

fn sine(r: f64, quarter: f64) -> f64 {
  let q = r * r;
  let odd = (quarter == 1.0lf) | (quarter == 3.0lf);
  let y = select(r * ($SIN), $COS, odd);
  return select(y, -y, (quarter >= 2.0lf) & (quarter < 4.0lf));
}

fn sin_f64(x: f64) -> f64 {
  let p = quarters(x);
  return select(nan_f64(), sine(p.x, p.y), abs(x) < infinity_f64());
}

fn cos_f64(x: f64) -> f64 {
  let p = quarters(x);
  return select(nan_f64(), sine(p.x, select(p.y + 1.0lf, 0.0lf, p.y == 3.0lf)), abs(x) < infinity_f64());
}

fn tan_f64(x: f64) -> f64 { return sin_f64(x) / cos_f64(x); }

fn tanh_f64(x: f64) -> f64 {
  let a = abs(x);
  let z = min(a, 0.5lf) * 2.0lf;
  let near = z * ($EXPM1);
  let far = 1.0lf - 2.0lf / (exp_f64(min(a, 20.0lf) * 2.0lf) + 1.0lf);
  let y = select(far, near / (near + 2.0lf), a < 0.5lf);
  return select(select(y, -y, x < 0.0lf), x, is_nan_f64(x) | (x == 0.0lf));
}

fn erf_f64(x: f64) -> f64 {
  let a = min(abs(x), 6.0lf);
  let q = min(a * a, 1.0lf);
  var c = array<f64, 28>($ERFC);
  let t = 2.0lf / (2.0lf + a);
  let w = 4.0lf * t - 2.0lf;
  var d = 0.0lf;
  var e = 0.0lf;
  for (var i = 27i; i > 0i; i -= 1i) {
    let next = w * d - e + c[i];
    e = d;
    d = next;
  }
  let far = 1.0lf - t * exp_f64(0.5lf * (c[0] + w * d) - e - a * a);
  return select(select(select(far, -far, x < 0.0lf), x * ($ERF), a < 1.0lf), x, is_nan_f64(x));
}

fn shl_i64(a: i64, b: i64) -> i64 { return select(a << (u32(b) & 63u), 0li, u64(b) > 63lu); }
fn shl_u64(a: u64, b: u64) -> u64 { return select(a << (u32(b) & 63u), 0lu, b > 63lu); }
fn shr_i64(a: i64, b: i64) -> i64 { return a >> u32(min(u64(b), 63lu)); }
fn shr_u64(a: u64, b: u64) -> u64 { return select(a >> (u32(b) & 63u), 0lu, b > 63lu); }

fn to_i64(x: f32) -> i64 {
  let i = i64(clamp(select(x, 0.0f, is_nan(x)), -9223372036854775808.0f, 9223371487098961920.0f));
  return select(i, 9223372036854775807li, x >= 9223372036854775808.0f);
}

fn to_u64(x: f32) -> u64 {
  let i = u64(clamp(select(x, 0.0f, is_nan(x)), 0.0f, 18446742974197923840.0f));
  return select(i, 18446744073709551615lu, x >= 18446744073709551616.0f);
}

fn to_i64_f64(x: f64) -> i64 {
  let a = select(x, 0.0lf, is_nan_f64(x));
  let i = i64(min(max(a, -9223372036854775808.0lf), 9223372036854774784.0lf));
  return select(i, 9223372036854775807li, x >= 9223372036854775808.0lf);
}

fn to_u64_f64(x: f64) -> u64 {
  let a = select(x, 0.0lf, is_nan_f64(x));
  let i = u64(min(max(a, 0.0lf), 18446744073709549568.0lf));
  return select(i, 18446744073709551615lu, x >= 18446744073709551616.0lf);
}

fn pow_f64(x: f64, y: f64) -> f64 {
  let whole = floor(y) == y;
  let odd = whole & (abs(y) < 9007199254740992.0lf) & (abs(y - 2.0lf * floor(y * 0.5lf)) == 1.0lf);
  // The two ends are spelled out: what exp2 does there is the driver's choice.
  let zero = x == 0.0lf;
  let ends = zero | (abs(x) == infinity_f64());
  let size = select(exp2_f64(y * log2_f64(abs(x))), select(0.0lf, infinity_f64(), zero == (y < 0.0lf)), ends);
  let even = select(size, 1.0lf, abs(x) == 1.0lf);
  let signed = select(even, -even, odd & ((bitcast<u64>(x) >> 63u) == 1lu));
  let out = select(signed, nan_f64(), (x < 0.0lf) & !whole & (abs(x) < infinity_f64()));
  return select(select(out, x + y, is_nan_f64(x) | is_nan_f64(y)), 1.0lf, (y == 0.0lf) | (x == 1.0lf));
}

fn to_i8_f64(x: f64) -> i32 { return i32(min(max(select(x, 0.0lf, is_nan_f64(x)), -128.0lf), 127.0lf)); }
fn to_u8_f64(x: f64) -> u32 { return u32(min(max(select(x, 0.0lf, is_nan_f64(x)), 0.0lf), 255.0lf)); }
fn to_i16_f64(x: f64) -> i32 { return i32(min(max(select(x, 0.0lf, is_nan_f64(x)), -32768.0lf), 32767.0lf)); }
fn to_u16_f64(x: f64) -> u32 { return u32(min(max(select(x, 0.0lf, is_nan_f64(x)), 0.0lf), 65535.0lf)); }
fn to_i32_f64(x: f64) -> i32 { return i32(min(max(select(x, 0.0lf, is_nan_f64(x)), -2147483648.0lf), 2147483647.0lf)); }
fn to_u32_f64(x: f64) -> u32 { return u32(min(max(select(x, 0.0lf, is_nan_f64(x)), 0.0lf), 4294967295.0lf)); }
