"""The functions that WGSL lacks, or that drivers get wrong; a module holds those it calls."""

from __future__ import annotations

import re

from anneal.codegen.dialects.wgsl.functions64 import functions64

FUNCTIONS: dict[str, str] = {
    "is_nan": "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    # Not max() and min(): NVIDIA's compiler (580.159) gets them wrong for a chain over negated integers.
    "max_i32": "fn max_i32(a: i32, b: i32) -> i32 { return select(a, b, a < b); }",
    "min_i32": "fn min_i32(a: i32, b: i32) -> i32 { return select(a, b, b < a); }",
    # WGSL promises a quotient only for divisors up to 2^126; NVIDIA gives 0 beyond.
    "div_f32": """fn div_f32(a: f32, b: f32) -> f32 {
  let s = select(1.0f, 0.25f, abs(b) > 8.507059e37f);
  return (a * s) / (b * s);
}""",
    # By bits: NVIDIA's compiler makes a > b of !(a <= b), also where a is nan.
    "max_f32": "fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, (a > b) | is_nan(a)); }",
    "min_f32": "fn min_f32(a: f32, b: f32) -> f32 { return select(b, a, (a < b) | is_nan(a)); }",
    "sign_f32": "fn sign_f32(x: f32) -> f32 { return select(f32(x > 0.0f) - f32(x < 0.0f), x, is_nan(x)); }",
    "sign_u32": "fn sign_u32(x: u32) -> u32 { return min(x, 1u); }",
    # The functions of real numbers are ours where WGSL lets a driver be coarse: next to a zero (log at 1, tanh, sin at
    # pi), far out (exp, sin), at the ends. They are built on + - * fma exp2 and bits, exact or nearly so everywhere.
    "high_bits": "fn high_bits(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }",
    "lost_in": """fn lost_in(a: f32, b: f32, p: f32) -> f32 {
  // a * b - p, where p is the rounded product: of halves, whose products are exact. Some drivers round in fma.
  let x = high_bits(a);
  let y = high_bits(b);
  return ((x * y - p) + (x * (b - y) + (a - x) * y)) + (a - x) * (b - y);
}""",
    "exp_f32": """fn exp_f32(x: f32) -> f32 {
  // exp2 of the product, and what rounding the product lost.
  let t = x * 1.44269502f;
  let y = exp2(t);
  let h = high_bits(x);
  let lost = (h * 1.4423828125f - t) + (h * 3.122283961e-04f + (x - h) * 1.44269502f);
  // what is not a number takes the first way, as not every driver's exp2 gives it back
  return select(fma(y, lost * 0.693147182f, y), y, abs(t) >= 127.99f);
}""",
    "exp2_f32": """fn exp2_f32(x: f32) -> f32 {
  // not every driver's exp2 gives back what is not a number
  return select(exp2(x), x, is_nan(x));
}""",
    "split_log": """fn split_log(x: f32) -> vec2<f32> {
  // x = m * 2**k with m about 1: m - 1, and k. Of a positive number, by its bits: denormals have a logarithm, too.
  let u = bitcast<u32>(x);
  let up = countLeadingZeros(u) - 8u;
  let bits = select(i32(u), i32(u << up) - i32(up << 23u), u < 0x800000u) + 0x4afb0d;
  return vec2<f32>(bitcast<f32>((bits & 0x7fffff) + 0x3f3504f3) - 1.0f, f32((bits >> 23u) - 127));
}""",
    "log_1p": """fn log_1p(f: f32) -> f32 {
  // For 1 + f between sqrt(1/2) and sqrt(2): f less a small rest, by the series of artanh.
  let s = f / (2.0f + f);
  let z = s * s;
  let h = 0.5f * f * f;
  return f - (h - s * (h + z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * 0.222222222f)))));
}""",
    "log_ends": """fn log_ends(x: f32, inside: f32) -> f32 {
  // A logarithm of 0, of what is negative, infinity or nan; `inside` of all else.
  let u = bitcast<u32>(x);
  let size = u & 0x7fffffffu;
  let end = select(select(quiet_nan(), infinity(), u == 0x7f800000u), -infinity(), size == 0u);
  return select(end, inside, u - 1u < 0x7f7fffffu);
}""",
    "log_f32": """fn log_f32(x: f32) -> f32 {
  let p = split_log(x);
  return log_ends(x, fma(p.y, 0.693145752f, fma(p.y, 1.42860677e-6f, log_1p(p.x))));
}""",
    "log2_f32": """fn log2_f32(x: f32) -> f32 {
  let p = split_log(x);
  return log_ends(x, fma(log_1p(p.x), 1.44269502f, p.y));
}""",
    "tanh_f32": """fn tanh_f32(x: f32) -> f32 {
  let a = abs(x);
  let z = x * x;
  let near = fma(x * z, -0.333332839f + z * (0.133314913f + z * (-0.0537434966f + z * (0.0206505825f + z * -0.00571703969f))), x);
  let far = 1.0f - 2.0f / (exp2(min(a, 10.0f) * 2.88539004f) + 1.0f);
  return select(select(far, -far, x < 0.0f), near, (a < 0.625f) | is_nan(x));
}""",
    "mul_hi": """fn mul_hi(a: u32, b: u32) -> u32 {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let t = ah * bl + ((al * bl) >> 16u);
  return ah * (b >> 16u) + (t >> 16u) + ((al * (b >> 16u) + (t & 0xffffu)) >> 16u);
}""",
    "far_turn": """fn far_turn(x: f32) -> vec2<f32> {
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
}""",
    "turn": """fn turn(x: f32) -> vec2<f32> {
  // x = angle + quarter * pi / 2, the angle within pi / 4 of 0, and the quarter.
  if (!(abs(x) < 100000.0f)) {
    if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) { return vec2<f32>(quiet_nan(), 0.0f); }
    return far_turn(x);
  }
  // pi / 2 in parts of eight bits, whose products with n are exact.
  let n = round(x * 0.636619747f);
  let r = (((x - n * 1.5703125f) - n * 0.000457763671875f) - n * 2.5987625122070312e-05f) - n * 7.543712854385376e-08f;
  return vec2<f32>(r - n * 6.077100628e-11f, n);
}""",
    "sin_near": """fn sin_near(x: f32) -> f32 {
  let z = x * x;
  return fma(x * z, -0.166666666f + z * (0.00833332893f + z * (-0.000198391876f + z * 2.7169167e-6f)), x);
}""",
    "cos_near": """fn cos_near(x: f32) -> f32 {
  let z = x * x;
  return fma(z * z, 0.0416666666f + z * (-0.00138888832f + z * (2.47993626e-5f + z * -2.7197293e-7f)), fma(z, -0.5f, 1.0f));
}""",
    "sin_f32": """fn sin_f32(x: f32) -> f32 {
  let t = turn(x);
  let q = i32(t.y);
  let y = select(sin_near(t.x), cos_near(t.x), (q & 1) == 1);
  return select(y, -y, (q & 2) == 2);
}""",
    "cos_f32": """fn cos_f32(x: f32) -> f32 {
  let t = turn(x);
  let q = i32(t.y);
  let y = select(cos_near(t.x), sin_near(t.x), (q & 1) == 1);
  return select(y, -y, ((q + 1) & 2) == 2);
}""",
    "tan_f32": """fn tan_f32(x: f32) -> f32 {
  let t = turn(x);
  let odd = (i32(t.y) & 1) == 1;
  let s = sin_near(t.x);
  let c = cos_near(t.x);
  return select(s, -c, odd) / select(c, s, odd);
}""",
    "erf_f32": """fn erf_f32(x: f32) -> f32 {
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
}""",
    "size_pow": """fn size_pow(x: f32, y: f32) -> f32 {
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
}""",
    "pow_f32": """fn pow_f32(x: f32, y: f32) -> f32 {
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
}""",
    "quiet_nan": "fn quiet_nan() -> f32 { return bitcast<f32>(0x7fc00000u | zero_bits); }",
    "infinity": "fn infinity() -> f32 { return bitcast<f32>(0x7f800000u | zero_bits); }",
    "fmod_f32": """fn fmod_f32(a: f32, b: f32) -> f32 {
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
}""",
    "floormod_f32": """fn floormod_f32(a: f32, b: f32) -> f32 {
  let r = fmod_f32(a, b);
  let other = (bitcast<u32>(r) ^ bitcast<u32>(b)) >> 31u;
  if ((bitcast<u32>(r) & 0x7fffffffu) == 0u) { return bitcast<f32>(bitcast<u32>(b) & 0x80000000u); }
  return select(r, r + b, other == 1u);
}""",
    "floordiv_f32": """fn floordiv_f32(a: f32, b: f32) -> f32 {
  // What the remainder leaves divides without rest: rounding takes the error of the division away.
  let r = fmod_f32(a, b);
  let apart = (bitcast<u32>(r) & 0x7fffffffu) != 0u && (r < 0.0f) != (b < 0.0f);
  let q = round(div_f32(a - r, b)) - select(0.0f, 1.0f, apart);
  let zero = bitcast<f32>((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u);
  // A nan would be taken from itself, which NVIDIA's compiler (580.159) makes 0.
  return select(select(select(q, zero, q == 0.0f), div_f32(a, b), b == 0.0f), a, is_nan(a));
}""",
    "floordiv_i32": """fn floordiv_i32(a: i32, b: i32) -> i32 {
  let d = select(b, 1i, (b == 0i) | (b == -1i));
  let q = a / d;
  let down = ((a - q * d) != 0i) & ((a < 0i) != (d < 0i));
  return select(select(q - i32(down), 0i - a, b == -1i), 0i, b == 0i);
}""",
    "floormod_i32": """fn floormod_i32(a: i32, b: i32) -> i32 {
  let d = select(b, 1i, (b == 0i) | (b == -1i));
  let r = a - (a / d) * d;
  return select(r, r + d, (r != 0i) & ((r < 0i) != (d < 0i)));
}""",
    "div_u32": "fn div_u32(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }",
    "mod_u32": "fn mod_u32(a: u32, b: u32) -> u32 { return select(a % max(b, 1u), 0u, b == 0u); }",
    "shl_i32": "fn shl_i32(a: i32, b: i32) -> i32 { return select(a << (u32(b) & 31u), 0i, u32(b) > 31u); }",
    "shl_u32": "fn shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b > 31u); }",
    "shr_i32": "fn shr_i32(a: i32, b: i32) -> i32 { return a >> min(u32(b), 31u); }",
    "shr_u32": "fn shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b > 31u); }",
    "to_i32": """fn to_i32(x: f32) -> i32 {
  let i = i32(clamp(x, -2147483648.0f, 2147483520.0f));
  return select(select(i, 2147483647i, x >= 2147483648.0f), 0i, is_nan(x));
}""",
    "to_u32": """fn to_u32(x: f32) -> u32 {
  let i = u32(clamp(x, 0.0f, 4294967040.0f));
  return select(select(i, 4294967295u, x >= 4294967296.0f), 0u, is_nan(x));
}""",
    # A float becomes an integer by truncation, within the ends of its range; nan becomes 0.
    "to_i8": "fn to_i8(x: f32) -> i32 { return i32(clamp(select(x, 0.0f, is_nan(x)), -128.0f, 127.0f)); }",
    "to_u8": "fn to_u8(x: f32) -> u32 { return u32(clamp(select(x, 0.0f, is_nan(x)), 0.0f, 255.0f)); }",
    "to_i16": "fn to_i16(x: f32) -> i32 { return i32(clamp(select(x, 0.0f, is_nan(x)), -32768.0f, 32767.0f)); }",
    "to_u16": "fn to_u16(x: f32) -> u32 { return u32(clamp(select(x, 0.0f, is_nan(x)), 0.0f, 65535.0f)); }",
    # Words to the bits of their elements, and back.
    "split_16in2": "fn split_16in2(w: u32) -> vec2<u32> { return vec2<u32>(w & 0xffffu, w >> 16u); }",
    "split_16in4": """fn split_16in4(w: vec2<u32>) -> vec4<u32> {
  return vec4<u32>(w.x & 0xffffu, w.x >> 16u, w.y & 0xffffu, w.y >> 16u);
}""",
    "split_8in4": """fn split_8in4(w: u32) -> vec4<u32> {
  return vec4<u32>(w & 0xffu, (w >> 8u) & 0xffu, (w >> 16u) & 0xffu, w >> 24u);
}""",
    "join_16in2": "fn join_16in2(b: vec2<u32>) -> u32 { return b.x | (b.y << 16u); }",
    "join_16in4": """fn join_16in4(b: vec4<u32>) -> vec2<u32> {
  return vec2<u32>(b.x | (b.y << 16u), b.z | (b.w << 16u));
}""",
    "join_8in4": """fn join_8in4(b: vec4<u32>) -> u32 {
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}""",
    "unpack_i8": "fn unpack_i8(b: u32) -> i32 { return bitcast<i32>(b << 24u) >> 24u; }",
    "unpack_u8": "fn unpack_u8(b: u32) -> u32 { return b; }",
    "unpack_i16": "fn unpack_i16(b: u32) -> i32 { return bitcast<i32>(b << 16u) >> 16u; }",
    "unpack_u16": "fn unpack_u16(b: u32) -> u32 { return b; }",
    "pack_i8": "fn pack_i8(x: i32) -> u32 { return bitcast<u32>(x) & 0xffu; }",
    "pack_u8": "fn pack_u8(x: u32) -> u32 { return x & 0xffu; }",
    "pack_i16": "fn pack_i16(x: i32) -> u32 { return bitcast<u32>(x) & 0xffffu; }",
    "pack_u16": "fn pack_u16(x: u32) -> u32 { return x & 0xffffu; }",
    # bfloat16 is the upper half of a float32; 8 bits are sign, exponent and mantissa, 1-4-3 without infinity or 1-5-2.
    # Rounding adds just under half of the last place kept, and the last place itself where that is odd.
    "unpack_bf16": "fn unpack_bf16(b: u32) -> f32 { return bitcast<f32>(b << 16u); }",
    "pack_bf16": """fn pack_bf16(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  return select((u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u, (u >> 16u) | 0x40u, (u & 0x7fffffffu) > 0x7f800000u);
}""",
    "unpack_e4": """fn unpack_e4(b: u32) -> f32 {
  let m = b & 0x7fu;
  let small = bitcast<u32>(f32(m) * 0.001953125f);
  let size = select(select((m << 20u) + 0x3c000000u, small, m < 8u), 0x7fc00000u, m == 0x7fu);
  return bitcast<f32>(size | ((b & 0x80u) << 24u));
}""",
    "pack_e4": """fn pack_e4(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  let a = u & 0x7fffffffu;
  let small = u32(round(min(bitcast<f32>(a), 1.0f) * 512.0f));
  let size = min(((a + 0x7ffffu + ((a >> 20u) & 1u)) >> 20u) - 960u, 0x7fu);
  return select(size, small, a < 0x3c800000u) | ((u >> 24u) & 0x80u);
}""",
    "unpack_e5": """fn unpack_e5(b: u32) -> f32 {
  let m = b & 0x7fu;
  let small = bitcast<u32>(f32(m) * 0.0000152587890625f);
  let size = select(select((m << 21u) + 0x38000000u, small, m < 4u), (m << 21u) | 0x7f800000u, m > 0x7bu);
  return bitcast<f32>(size | ((b & 0x80u) << 24u));
}""",
    "pack_e5": """fn pack_e5(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  let a = u & 0x7fffffffu;
  let small = u32(round(min(bitcast<f32>(a), 1.0f) * 65536.0f));
  let size = min(((a + 0xfffffu + ((a >> 21u) & 1u)) >> 21u) - 448u, 0x7cu);
  let large = select(size, 0x7eu, a > 0x7f800000u);
  return select(large, small, a < 0x38800000u) | ((u >> 24u) & 0x80u);
}""",
    "round_bf16": "fn round_bf16(x: f32) -> f32 { return unpack_bf16(pack_bf16(x)); }",
    "round_e4": "fn round_e4(x: f32) -> f32 { return unpack_e4(pack_e4(x)); }",
    "round_e5": "fn round_e5(x: f32) -> f32 { return unpack_e5(pack_e5(x)); }",
    # f16(x) rounds, but NVIDIA's compiler takes f32(f16(x)) for x.
    "round_f16": """fn round_f16(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  let size = b & 0x7fffffffu;
  let near = bitcast<f32>((b + 0xfffu + ((b >> 13u) & 1u)) & 0xffffe000u);
  let small = select(near, round(x * 16777216.0f) * 5.9604645e-8f, size < 0x38800000u);
  return select(select(small, select(infinity(), -infinity(), x < 0.0f), size >= 0x477ff000u), x, size >= 0x7f800000u);
}""",
    # The same where `Target.rounds_halves`: that compiler does not see through bits that a run changes.
    "packed_f16": """fn packed_f16(x: f32) -> f32 {
  return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0f)) ^ zero_bits).x;
}""",
    "packed_f16_x2": """fn packed_f16_x2(x: vec2<f32>) -> vec2<f32> {
  return unpack2x16float(pack2x16float(x) ^ zero_bits);
}""",
    "packed_f16_x4": """fn packed_f16_x4(x: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(packed_f16_x2(x.xy), packed_f16_x2(x.zw));
}""",
    "pack_f16": "fn pack_f16(x: f16) -> u32 { return pack2x16float(vec2<f32>(f32(x), 0.0f)) & 0xffffu; }",
    "unpack_f16": "fn unpack_f16(b: u32) -> f16 { return f16(unpack2x16float(b).x); }",
    "threefry": """fn threefry(counter: u32, key0: u32, key1: u32) -> u32 {
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
}""",
}

FUNCTIONS |= functions64(FUNCTIONS)

_CALL = re.compile(r"\b([a-z]\w*)\(")
_VECTOR = re.compile(r"(\w+)_x([24])")


def called(body: str) -> list[str]:
    """The texts of the functions that `body` calls, and of those they call, in the order of the table.

    `NAME_x4` is NAME on each lane of a vec4.
    """
    used: set[str] = set()
    vectors: set[tuple[str, int]] = set()
    texts = [body]
    while texts:
        for name in set(_CALL.findall(texts.pop())):
            by_lane = _VECTOR.fullmatch(name)
            if by_lane is not None and by_lane[1] in FUNCTIONS and name not in FUNCTIONS:
                vectors.add((by_lane[1], int(by_lane[2])))
                name = by_lane[1]
            if name in FUNCTIONS and name not in used:
                used.add(name)
                texts.append(FUNCTIONS[name])
    return [FUNCTIONS[f] for f in FUNCTIONS if f in used] + [_by_lane(name, n) for name, n in sorted(vectors)]


_SIGNATURE = re.compile(r"fn \w+\(([^)]*)\) -> (\w+)")


def _by_lane(name: str, lanes: int) -> str:
    """A function on vectors that calls `name` for each lane."""
    found = _SIGNATURE.match(FUNCTIONS[name])
    assert found is not None
    parameters = [p.split(": ") for p in found[1].split(", ")]
    given = ", ".join(f"{p}: vec{lanes}<{t}>" for p, t in parameters)
    calls = ", ".join(f"{name}({', '.join(f'{p}.{c}' for p, _ in parameters)})" for c in "xyzw"[:lanes])
    result = f"vec{lanes}<{found[2]}>"
    return f"fn {name}_x{lanes}({given}) -> {result} {{ return {result}({calls}); }}"
