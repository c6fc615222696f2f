"""The functions of i64, u64 and f64. WGSL has those of f64 for numbers that need no series; the others are computed
here, within a few units of the last place, by Taylor's series after the usual reductions of the argument (as in
fdlibm)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

# erfc(x) = t exp(-x * x + T(4t - 2)) with t = 2 / (2 + x), for x >= 0: the Chebyshev series T (Numerical Recipes).
_ERFC = (
    -1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
    3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6,
    1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10,
    9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15,
    -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip


def _series(x: str, coefficients: Sequence[float]) -> str:
    """Horner's rule for the powers of `x` from the lowest on."""
    text = f"{coefficients[-1]!r}lf"
    for c in reversed(coefficients[:-1]):
        text = f"{c!r}lf + {x} * ({text})"
    return text


_EXP = _series("r", [1 / math.factorial(k) for k in range(14)])
_EXPM1 = _series("z", [1 / math.factorial(k) for k in range(1, 18)])
_LOG = _series("q", [2 / (2 * k + 1) for k in range(13)])
_SIN = _series("q", [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)])
_COS = _series("q", [(-1) ** k / math.factorial(2 * k) for k in range(10)])
_ERF = _series("q", [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(22)])

_OWN = {
    "nan_f64": "fn nan_f64() -> f64 { return bitcast<f64>(0x7ff8000000000000lu | u64(zero_bits)); }",
    "infinity_f64": "fn infinity_f64() -> f64 { return bitcast<f64>(0x7ff0000000000000lu | u64(zero_bits)); }",
    "is_nan_f64": """fn is_nan_f64(x: f64) -> bool {
  return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}""",
    "max_f64": "fn max_f64(a: f64, b: f64) -> f64 { return select(b, a, (a > b) | is_nan_f64(a)); }",
    "min_f64": "fn min_f64(a: f64, b: f64) -> f64 { return select(b, a, (a < b) | is_nan_f64(a)); }",
    "sign_f64": "fn sign_f64(x: f64) -> f64 { return select(f64(x > 0.0lf) - f64(x < 0.0lf), x, is_nan_f64(x)); }",
    "fmod_f64": """fn fmod_f64(a: f64, b: f64) -> f64 {
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
}""",
    "floormod_f64": """fn floormod_f64(a: f64, b: f64) -> f64 {
  let r = fmod_f64(a, b);
  let other = (bitcast<u64>(r) ^ bitcast<u64>(b)) >> 63u;
  if ((bitcast<u64>(r) & 0x7ffffffffffffffflu) == 0lu) { return bitcast<f64>(bitcast<u64>(b) & 0x8000000000000000lu); }
  return select(r, r + b, other == 1lu);
}""",
    "floordiv_f64": """fn floordiv_f64(a: f64, b: f64) -> f64 {
  let r = fmod_f64(a, b);
  let apart = (bitcast<u64>(r) & 0x7ffffffffffffffflu) != 0lu && (r < 0.0lf) != (b < 0.0lf);
  let q = round((a - r) / b) - select(0.0lf, 1.0lf, apart);
  let zero = bitcast<f64>((bitcast<u64>(a) ^ bitcast<u64>(b)) & 0x8000000000000000lu);
  return select(select(q, zero, q == 0.0lf), a / b, b == 0.0lf);
}""",
    "power_of_two": "fn power_of_two(n: i32) -> f64 { return bitcast<f64>(u64(n + 1023i) << 52u); }",
    "scaled_exp": f"""fn scaled_exp(r: f64, n: f64) -> f64 {{
  // exp(r) * 2^n in two steps, since 2^n alone may be no normal number.
  let k = i32(n);
  return ({_EXP}) * power_of_two(k >> 1u) * power_of_two(k - (k >> 1u));
}}""",
    "exp_f64": """fn exp_f64(x: f64) -> f64 {
  let a = min(max(x, -760.0lf), 720.0lf);
  let n = round(a * 1.4426950408889634lf);
  let r = (a - n * 0.6931471803691238lf) - n * 1.9082149292705877e-10lf;
  return select(scaled_exp(r, n), x, is_nan_f64(x));
}""",
    "exp2_f64": """fn exp2_f64(x: f64) -> f64 {
  let a = min(max(x, -1090.0lf), 1030.0lf);
  let n = round(a);
  return select(scaled_exp((a - n) * 0.6931471805599453lf, n), x, is_nan_f64(x));
}""",
    "log_parts": f"""fn log_parts(x: f64) -> vec2<f64> {{
  // The exponent of x > 0, and the logarithm of the rest, which lies between the roots of 1/2 and of 2.
  let small = x < 2.2250738585072014e-308lf;
  let u = bitcast<u64>(select(x, x * 18014398509481984.0lf, small));
  let high = (u & 0xffffffffffffflu) > 0x6a09e667f3bcclu;
  let m = bitcast<f64>((u & 0xffffffffffffflu) | select(0x3ff0000000000000lu, 0x3fe0000000000000lu, high));
  let e = f64(i32(u >> 52u)) - select(1023.0lf, 1077.0lf, small) + f64(high);
  let s = (m - 1.0lf) / (m + 1.0lf);
  let q = s * s;
  return vec2<f64>(e, s * ({_LOG}));
}}""",
    "log_ends_f64": """fn log_ends_f64(x: f64, y: f64) -> f64 {
  let inside = select(y, x, x == infinity_f64());
  return select(select(inside, -infinity_f64(), x == 0.0lf), nan_f64(), is_nan_f64(x) | (x < 0.0lf));
}""",
    "log_f64": """fn log_f64(x: f64) -> f64 {
  let p = log_parts(x);
  return log_ends_f64(x, p.x * 0.6931471803691238lf + (p.y + p.x * 1.9082149292705877e-10lf));
}""",
    "log2_f64": """fn log2_f64(x: f64) -> f64 {
  let p = log_parts(x);
  return log_ends_f64(x, p.x + p.y * 1.4426950408889634lf);
}""",
    "quarters": """fn quarters(x: f64) -> vec2<f64> {
  // x less the nearest multiple of pi / 2, which is exact up to about a million, and that multiple's number.
  let n = round(x * 0.6366197723675814lf);
  let r = ((x - n * 1.5707963267341256lf) - n * 6.077100506303966e-11lf) - n * 2.0222662487959506e-21lf;
  return vec2<f64>(r, n - 4.0lf * floor(n * 0.25lf));
}""",
    "sine": f"""fn sine(r: f64, quarter: f64) -> f64 {{
  let q = r * r;
  let odd = (quarter == 1.0lf) | (quarter == 3.0lf);
  let y = select(r * ({_SIN}), {_COS}, odd);
  return select(y, -y, (quarter >= 2.0lf) & (quarter < 4.0lf));
}}""",
    "sin_f64": """fn sin_f64(x: f64) -> f64 {
  let p = quarters(x);
  return select(nan_f64(), sine(p.x, p.y), abs(x) < infinity_f64());
}""",
    "cos_f64": """fn cos_f64(x: f64) -> f64 {
  let p = quarters(x);
  return select(nan_f64(), sine(p.x, select(p.y + 1.0lf, 0.0lf, p.y == 3.0lf)), abs(x) < infinity_f64());
}""",
    "tan_f64": "fn tan_f64(x: f64) -> f64 { return sin_f64(x) / cos_f64(x); }",
    "tanh_f64": f"""fn tanh_f64(x: f64) -> f64 {{
  let a = abs(x);
  let z = min(a, 0.5lf) * 2.0lf;
  let near = z * ({_EXPM1});
  let far = 1.0lf - 2.0lf / (exp_f64(min(a, 20.0lf) * 2.0lf) + 1.0lf);
  let y = select(far, near / (near + 2.0lf), a < 0.5lf);
  return select(select(y, -y, x < 0.0lf), x, is_nan_f64(x) | (x == 0.0lf));
}}""",
    "erf_f64": f"""fn erf_f64(x: f64) -> f64 {{
  let a = min(abs(x), 6.0lf);
  let q = min(a * a, 1.0lf);
  var c = array<f64, {len(_ERFC)}>({", ".join(f"{c!r}lf" for c in _ERFC)});
  let t = 2.0lf / (2.0lf + a);
  let w = 4.0lf * t - 2.0lf;
  var d = 0.0lf;
  var e = 0.0lf;
  for (var i = {len(_ERFC) - 1}i; i > 0i; i -= 1i) {{
    let next = w * d - e + c[i];
    e = d;
    d = next;
  }}
  let far = 1.0lf - t * exp_f64(0.5lf * (c[0] + w * d) - e - a * a);
  return select(select(select(far, -far, x < 0.0lf), x * ({_ERF}), a < 1.0lf), x, is_nan_f64(x));
}}""",
    "shl_i64": "fn shl_i64(a: i64, b: i64) -> i64 { return select(a << (u32(b) & 63u), 0li, u64(b) > 63lu); }",
    "shl_u64": "fn shl_u64(a: u64, b: u64) -> u64 { return select(a << (u32(b) & 63u), 0lu, b > 63lu); }",
    "shr_i64": "fn shr_i64(a: i64, b: i64) -> i64 { return a >> u32(min(u64(b), 63lu)); }",
    "shr_u64": "fn shr_u64(a: u64, b: u64) -> u64 { return select(a >> (u32(b) & 63u), 0lu, b > 63lu); }",
    "to_i64": """fn to_i64(x: f32) -> i64 {
  let i = i64(clamp(select(x, 0.0f, is_nan(x)), -9223372036854775808.0f, 9223371487098961920.0f));
  return select(i, 9223372036854775807li, x >= 9223372036854775808.0f);
}""",
    "to_u64": """fn to_u64(x: f32) -> u64 {
  let i = u64(clamp(select(x, 0.0f, is_nan(x)), 0.0f, 18446742974197923840.0f));
  return select(i, 18446744073709551615lu, x >= 18446744073709551616.0f);
}""",
    "to_i64_f64": """fn to_i64_f64(x: f64) -> i64 {
  let a = select(x, 0.0lf, is_nan_f64(x));
  let i = i64(min(max(a, -9223372036854775808.0lf), 9223372036854774784.0lf));
  return select(i, 9223372036854775807li, x >= 9223372036854775808.0lf);
}""",
    "to_u64_f64": """fn to_u64_f64(x: f64) -> u64 {
  let a = select(x, 0.0lf, is_nan_f64(x));
  let i = u64(min(max(a, 0.0lf), 18446744073709549568.0lf));
  return select(i, 18446744073709551615lu, x >= 18446744073709551616.0lf);
}""",
}
_SMALL = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32}


def functions64(functions: Mapping[str, str]) -> dict[str, str]:
    """The functions of 64 bits, by name; some are those of 32 bits with other types."""
    out = dict(_OWN)
    for name in ("max_i32", "min_i32", "floordiv_i32", "floormod_i32"):
        text = functions[name].replace("i32", "i64")
        out[name.replace("32", "64")] = re.sub(r"\b(\d+)i\b", r"\1li", text)
    for name in ("div_u32", "mod_u32", "sign_u32"):
        text = functions[name].replace("u32", "u64")
        out[name.replace("32", "64")] = re.sub(r"\b(\d+)u\b", r"\1lu", text)
    text = functions["pow_f32"].replace("size_pow(abs(x), y)", "exp2(y * log2(abs(x)))").replace("f32", "f64")
    text = text.replace("16777216.0f", "9007199254740992.0f")
    text = text.replace("bitcast<u32>(x) >> 31u) == 1u", "bitcast<u64>(x) >> 63u) == 1lu")
    for name in ("exp2", "log2", "is_nan", "infinity"):
        text = text.replace(f"{name}(", f"{name}_f64(")
    out["pow_f64"] = re.sub(r"(\d\.\d+)f\b", r"\1lf", text.replace("quiet_nan(", "nan_f64("))
    for kind, bits in _SMALL.items():
        low = -(2 ** (bits - 1)) if kind[0] == "i" else 0
        high = 2 ** (bits - (kind[0] == "i")) - 1
        word = f"{kind[0]}32"
        out[f"to_{kind}_f64"] = (
            f"fn to_{kind}_f64(x: f64) -> {word} {{ return {word}(min(max(select(x, 0.0lf, is_nan_f64(x)), {low}.0lf), "
            f"{high}.0lf)); }}"
        )
    return out
