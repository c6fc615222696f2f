#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define INT64_MIN (-__INT64_MAX__ - 1)
#define INLINE static inline __attribute__((always_inline))
#define bits(t, kind, x) (((union { kind from; t to; }){ .from = x }).to)
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define SUM(f, a, b, c) __builtin_fma##f(a, b, c)
#define FAR 48000
#else
#define FAR 0
#define SUM(f, a, b, c) ((a) * (b) + (c))
#endif
#define FMA(a, b, c) SUM(f, a, b, c)
#define VECTOR(t, n) \
  typedef t t##x##n __attribute__((vector_size(n * sizeof(t)))); \
  typedef t t##x##n##u __attribute__((vector_size(n * sizeof(t)), aligned(sizeof(t)), may_alias)); \
  typedef union { t##x##n all; t lane[n]; } t##x##n##s;
#define NUMBER(t, kind) typedef kind t; VECTOR(t, 2) VECTOR(t, 4) VECTOR(t, 8) VECTOR(t, 16)
NUMBER(f32, float)
NUMBER(f64, double)
NUMBER(i8, __INT8_TYPE__)
NUMBER(u8, __UINT8_TYPE__)
NUMBER(i16, __INT16_TYPE__)
NUMBER(u16, __UINT16_TYPE__)
NUMBER(i32, __INT32_TYPE__)
NUMBER(u32, __UINT32_TYPE__)
NUMBER(i64, __INT64_TYPE__)
NUMBER(u64, __UINT64_TYPE__)
NUMBER(f16, __UINT16_TYPE__)
NUMBER(bf16, __UINT16_TYPE__)

#define ANY(t) \
  INLINE t max_##t(t a, t b) { return a > b || a != a ? a : b; } \
  INLINE t min_##t(t a, t b) { return a < b || a != a ? a : b; } \
  INLINE t add_##t(t a, t b) { return a + b; } \
  INLINE t mul_##t(t a, t b) { return a * b; } \
  INLINE t sign_##t(t a) { return a != a ? a : (a > 0) - (a < 0); }
#define WHOLE(t, low, high) ANY(t) \
  INLINE t abs_##t(t a) { return a < 0 ? -a : a; } \
  INLINE t to_##t##_f64(f64 x) { return x != x ? 0 : x <= low ? low : x >= high ? high : (t)x; } \
  INLINE t to_##t##_f32(f32 x) { return x != x ? 0 : x <= (f32)low ? low : x >= (f32)high ? high : (t)x; } \
  static inline t mod_##t(t a, t b) { \
    if (b == 0 || (b == (t)-1 && low != 0)) return 0; \
    t r = a % b; \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r; \
  } \
  static inline t idiv_##t(t a, t b) { \
    return b == 0 ? 0 : b == (t)-1 && low != 0 ? -a : a / b - (a % b != 0 && (a < 0) != (b < 0)); \
  } \
  INLINE t shl_##t(t a, t b) { return (u64)b < 8 * sizeof(t) ? a << b : 0; } \
  INLINE t shr_##t(t a, t b) { return (u64)b < 8 * sizeof(t) ? a >> b : a < 0 ? -1 : 0; }
#define LIBRARY(name, t, f) INLINE t name##_##t(t x) { return f(x); }
#define REAL(t, f) ANY(t) \
  LIBRARY(abs, t, __builtin_fabs##f) LIBRARY(sqrt, t, __builtin_sqrt##f) LIBRARY(round, t, __builtin_rint##f) \
  LIBRARY(floor, t, __builtin_floor##f) LIBRARY(ceil, t, __builtin_ceil##f) LIBRARY(trunc, t, __builtin_trunc##f) \
  LIBRARY(tan, t, __builtin_tan##f) \
  INLINE t recip_##t(t x) { return 1 / x; } \
  INLINE t rsqrt_##t(t x) { return 1 / __builtin_sqrt##f(x); } \
  INLINE t fused_##t(t a, t b, t c) { return SUM(f, a, b, c); } \
  static inline t pow_##t(t a, t b) { return __builtin_pow##f(a, b); } \
  INLINE t mod_of_##t(t a, t b, t r) { \
    return r == 0 ? __builtin_copysign##f(0, b) : (r < 0) != (b < 0) ? r + b : r; \
  } \
  INLINE t idiv_of_##t(t a, t b, t r) { \
    t all = (a - r) / b - (r != 0 && (r < 0) != (b < 0)), q = __builtin_floor##f(all); \
    q += all - q > (t)0.5; \
    return a != a || b == 0 ? a / b : q == 0 ? __builtin_copysign##f(0, a) * __builtin_copysign##f(1, b) : q; \
  } \
  static inline t mod_##t(t a, t b) { return mod_of_##t(a, b, __builtin_fmod##f(a, b)); } \
  static inline t idiv_##t(t a, t b) { return idiv_of_##t(a, b, __builtin_fmod##f(a, b)); }
REAL(f32, f)
REAL(f64, )
LIBRARY(exp, f64, __builtin_exp)
LIBRARY(exp2, f64, __builtin_exp2)
LIBRARY(log, f64, __builtin_log)
LIBRARY(log2, f64, __builtin_log2)
LIBRARY(sin, f64, __builtin_sin)
LIBRARY(cos, f64, __builtin_cos)
LIBRARY(tanh, f64, __builtin_tanh)
LIBRARY(erf, f64, __builtin_erf)
WHOLE(i8, -128, 127)
WHOLE(u8, 0, 255)
WHOLE(i16, -32768, 32767)
WHOLE(u16, 0, 65535)
WHOLE(i32, (-__INT32_MAX__ - 1), __INT32_MAX__)
WHOLE(u32, 0, __UINT32_MAX__)
WHOLE(i64, INT64_MIN, __INT64_MAX__)
WHOLE(u64, 0, __UINT64_MAX__)

INLINE f32 to_f32_bf16(bf16 x) { return bits(f32, u32, (u32)x << 16); }
INLINE bf16 to_bf16_f32(f32 x) {
  u32 b = bits(u32, f32, x);
  return x != x ? b >> 16 | 64 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
INLINE f32 to_f32_f16(f16 x) {
  u32 b = (u32)(x & 0x7fff) << 13;
  f32 y = bits(f32, u32, b) * 0x1p112f;
  return bits(f32, u32, (b >= 0x0f800000 ? b | 0x7f800000 : bits(u32, f32, y)) | (u32)(x & 0x8000) << 16);
}
INLINE f16 to_f16_f32(f32 x) {
  u32 b = bits(u32, f32, x), sign = b >> 16 & 0x8000, m = b & 0x7fffffff;
  u32 small = bits(u32, f32, bits(f32, u32, m) + 0.5f) - 0x3f000000;
  u32 normal = (m + 0xc8000fff + (m >> 13 & 1)) >> 13;
  return sign | (m > 0x7f800000 ? 0x7e00 : m >= 0x47800000 ? 0x7c00 : m < 0x38800000 ? small : normal);
}

#define ROUNDING 12582912.0f /* its last bit is 1: what is added to it is rounded */
#define BIASED (ROUNDING + 254) /* ... and has the exponents of two factors added */
/* 2**n * (1 + more), n a whole number in the last bits of `whole`, which is BIASED; more is small. */
INLINE f32 scaled(f32 whole, f32 more) {
  u32 n = bits(u32, f32, whole), half = n >> 1;
  f32 a = bits(f32, u32, half << 23), b = bits(f32, u32, (n - half) << 23);
  return FMA(more, a, a) * b;
}
INLINE f32 exp_f32(f32 x) {
  f32 y = x < -150 ? -150 : x > 130 ? 130 : x, whole = FMA(y, 1.44269504f, BIASED), n = whole - BIASED;
  f32 r = FMA(n, -1.42860677e-6f, FMA(n, -0.693145752f, y));
  f32 p = FMA(FMA(FMA(FMA(0.00138146023f, r, 0.00836871564f), r, 0.041668389f), r, 0.166665211f), r, 0.49999994f);
  return scaled(whole, FMA(p, r * r, r));
}
INLINE f32 exp2_f32(f32 x) {
  f32 y = x < -200 ? -200 : x > 180 ? 180 : x, whole = y + BIASED, r = y - (whole - BIASED);
  f32 p = FMA(FMA(FMA(1.51961567e-5f, r, 1.54667563e-4f), r, 0.00133339351f), r, 0.00961803831f);
  return scaled(whole, FMA(FMA(FMA(p, r, 0.0555041023f), r, 0.240226507f), r, 0.693147182f) * r);
}
/* x = 2**n * (1 + m), m from -1/3 to 1/3; returns log(1 + m). */
INLINE f32 log_of_rest(f32 x, f32 *n) {
  f32 small = x < 0x1p-126f ? x * 0x1p23f : x;
  i32 b = bits(i32, f32, small), e = (b - 0x3f2aaaab) & (i32)0xff800000;
  *n = (e >> 23) - (x < 0x1p-126f ? 23 : 0);
  f32 m = bits(f32, i32, b - e) - 1, s = m * m;
  f32 r = FMA(FMA(FMA(-0.130310059f, s, -0.121483512f), s, -0.166846126f), s, -0.2499962f);
  f32 t = FMA(FMA(0.140869141f, s, 0.139814854f), s, 0.200120345f);
  return FMA(FMA(FMA(FMA(t, m, r), m, 0.333331972f), m, -0.5f), s, m);
}
INLINE f32 log_of_ends(f32 x, f32 y) {
  return x > 0 && x < INFINITY ? y : x < 0 ? NAN : x == 0 ? -INFINITY : x;
}
INLINE f32 log_f32(f32 x) {
  f32 n, r = log_of_rest(x, &n);
  return log_of_ends(x, FMA(n, 0.693147182f, r));
}
INLINE f32 log2_f32(f32 x) {
  f32 n, r = log_of_rest(x, &n);
  return log_of_ends(x, FMA(r, 1.44269502f, FMA(r, 1.92596303e-8f, n)));
}
INLINE f32 tanh_f32(f32 x) {
  f32 a = __builtin_fabsf(x), s = x * x;
  f32 p = FMA(FMA(FMA(0.00212274562f, s, -0.00815628003f), s, 0.0216926076f), s, -0.0539453775f);
  f32 near = FMA(FMA(FMA(p, s, 0.133331954f), s, -0.333333313f) * s, x, x);
  f32 far = 1 - 2 / (1 + exp_f32(2 * a));
  return __builtin_copysignf(a < 0.6f ? near : far, x);
}
INLINE f32 erf_f32(f32 x) {
  f32 a = __builtin_fabsf(x), s = x * x, t = a > 4 ? 4 : a;
  f32 p = FMA(FMA(FMA(8.34522361e-5f, s, -8.1374374e-4f), s, 0.00520063424f), s, -0.0268592704f);
  f32 near = FMA(FMA(FMA(p, s, 0.112836942f), s, -0.376126349f), s, 1.12837923f) * x;
  f32 q = FMA(FMA(FMA(7.37500727e-7f, t, 1.13107562e-5f), t, -3.78846278e-4f), t, 0.00399409048f);
  q = FMA(FMA(FMA(q, t, -0.0247744918f), t, 0.107858188f), t, 0.633663356f);
  q = FMA(FMA(q, t, 1.12938178f), t, -1.50612294e-4f);
  f32 far = a != a ? a : a >= 4 ? 1 : 1 - exp_f32(-q);
  return a < 0.92f ? near : __builtin_copysignf(far, x);
}
/* A sine or a cosine, of turn 0 or 1 and of numbers whose quarter turns are exact here: |x| < FAR. */
INLINE f32 wave(f32 x, i32 turn) {
  f32 whole = FMA(x, 0.636619747f, ROUNDING), n = whole - ROUNDING;
  f32 r = FMA(n, -1.57079601f, x);
  r = FMA(n, -5.39030253e-15f, FMA(n, -3.13916473e-7f, r));
  i32 at = bits(i32, f32, whole) + turn;
  f32 s = r * r;
  f32 sine = FMA(FMA(FMA(FMA(2.71756448e-6f, s, -1.98392561e-4f), s, 0.00833332911f), s, -0.166666672f) * s, r, r);
  f32 cosine = FMA(FMA(FMA(2.44256807e-5f, s, -0.00138872513f), s, 0.0416666456f), s * s, FMA(s, -0.5f, 1.0f));
  f32 y = at & 1 ? cosine : sine;
  return at & 2 ? -y : y;
}
INLINE f32 sin_near(f32 x) { return x == 0 ? x : wave(x, 0); }
INLINE f32 cos_near(f32 x) { return wave(x, 1); }
static inline f32 sin_f32(f32 x) { return __builtin_fabsf(x) < FAR ? sin_near(x) : __builtin_sinf(x); }
static inline f32 cos_f32(f32 x) { return __builtin_fabsf(x) < FAR ? cos_near(x) : __builtin_cosf(x); }

/* What is left of a, b times a whole number taken away, exactly: a quotient below 2**28 of two numbers of 24 bits, rounded
 * to 53 bits, never reaches the next whole number, and neither the product nor the difference is rounded. */
INLINE i32 quotient_is_far(f32 a, f32 b) {
  return !(__builtin_fabs((f64)a / (f64)b) < 0x1p28) | !(__builtin_fabsf(b) < INFINITY);
}
INLINE f32 rest_near(f32 a, f32 b) { return (f64)a - __builtin_trunc((f64)a / (f64)b) * (f64)b; }

static inline u32 threefry_u32(u32 counter, u32 key0, u32 key1) {
  const u32 key2 = key0 ^ key1 ^ 0x1bd11bdau;
  u32 a = counter + key0, b = key1;
#define TURN(r) a += b; b = (b << r | b >> (32 - r)) ^ a;
#define TURNS(p, q, r, s, x, y) TURN(p) TURN(q) TURN(r) TURN(s) a += x; b += y;
  TURNS(13, 15, 26, 6, key1, key2 + 1)
  TURNS(17, 29, 16, 24, key2, key0 + 2)
  TURNS(13, 15, 26, 6, key0, key1 + 3)
  TURNS(17, 29, 16, 24, key1, key2 + 4)
  TURNS(13, 15, 26, 6, key2, key0 + 5)
  return a;
}

#define EACH(n) _Pragma("omp simd") for (int l = 0; l < n; l += 1)
#define MAP1(f, a, r, n) INLINE r##x##n f##_##a##x##n(a##x##n x) { \
  a##x##n##s p = {x}; r##x##n##s out; EACH(n) out.lane[l] = f##_##a(p.lane[l]); return out.all; }
#define MAP2(f, t, n) INLINE t##x##n f##_##t##x##n(t##x##n x, t##x##n y) { \
  t##x##n##s p = {x}, q = {y}, out; EACH(n) out.lane[l] = f##_##t(p.lane[l], q.lane[l]); return out.all; }
#define MAP3(f, t, n) INLINE t##x##n f##_##t##x##n(t##x##n x, t##x##n y, t##x##n z) { \
  t##x##n##s p = {x}, q = {y}, r = {z}, out; \
  EACH(n) out.lane[l] = f##_##t(p.lane[l], q.lane[l], r.lane[l]); return out.all; }
#define NEAR_f64(f, n) MAP1(f, f64, f64, n)
#define NEAR_f32(f, n) INLINE f32x##n f##_f32x##n(f32x##n x) { \
  f32x##n##s p = {x}, out; i32 far = 0; \
  EACH(n) far |= !(__builtin_fabsf(p.lane[l]) < FAR); \
  if (far) { for (int l = 0; l < n; l += 1) out.lane[l] = f##_f32(p.lane[l]); return out.all; } \
  EACH(n) out.lane[l] = f##_near(p.lane[l]); return out.all; }
#define DIVIDED(f, t, n) DIVIDED_##t(f, n)
#define DIVIDED_f32(f, n) INLINE f32x##n f##_f32x##n(f32x##n x, f32x##n y) { \
  f32x##n##s p = {x}, q = {y}, out; i32 far = 0; \
  EACH(n) far |= quotient_is_far(p.lane[l], q.lane[l]); \
  if (far) { for (int l = 0; l < n; l += 1) out.lane[l] = f##_f32(p.lane[l], q.lane[l]); return out.all; } \
  EACH(n) out.lane[l] = f##_of_f32(p.lane[l], q.lane[l], rest_near(p.lane[l], q.lane[l])); return out.all; }
#define DIVIDED_f64(f, n) MAP2(f, f64, n)
#define DIVIDED_i8(f, n) MAP2(f, i8, n)
#define DIVIDED_u8(f, n) MAP2(f, u8, n)
#define DIVIDED_i16(f, n) MAP2(f, i16, n)
#define DIVIDED_u16(f, n) MAP2(f, u16, n)
#define DIVIDED_i32(f, n) MAP2(f, i32, n)
#define DIVIDED_u32(f, n) MAP2(f, u32, n)
#define DIVIDED_i64(f, n) MAP2(f, i64, n)
#define DIVIDED_u64(f, n) MAP2(f, u64, n)
#define ABS(t, n) MAP1(abs, t, t, n)
#define SIGN(t, n) MAP1(sign, t, t, n)
#define RECIP(t, n) MAP1(recip, t, t, n)
#define RSQRT(t, n) MAP1(rsqrt, t, t, n)
#define EXP(t, n) MAP1(exp, t, t, n)
#define EXP2(t, n) MAP1(exp2, t, t, n)
#define LOG(t, n) MAP1(log, t, t, n)
#define LOG2(t, n) MAP1(log2, t, t, n)
#define TAN(t, n) MAP1(tan, t, t, n)
#define TANH(t, n) MAP1(tanh, t, t, n)
#define ERF(t, n) MAP1(erf, t, t, n)
#define SQRT(t, n) MAP1(sqrt, t, t, n)
#define FLOOR(t, n) MAP1(floor, t, t, n)
#define CEIL(t, n) MAP1(ceil, t, t, n)
#define ROUND(t, n) MAP1(round, t, t, n)
#define TRUNC(t, n) MAP1(trunc, t, t, n)
#define SIN(t, n) NEAR_##t(sin, n)
#define COS(t, n) NEAR_##t(cos, n)
#define MAX(t, n) MAP2(max, t, n)
#define MIN(t, n) MAP2(min, t, n)
#define IDIV(t, n) DIVIDED(idiv, t, n)
#define MOD(t, n) DIVIDED(mod, t, n)
#define SHL(t, n) MAP2(shl, t, n)
#define SHR(t, n) MAP2(shr, t, n)
#define POW(t, n) MAP2(pow, t, n)
#define THREEFRY(t, n) MAP3(threefry, t, n)
#define WHERE(t, n) INLINE t##x##n where_##t##x##n(i32x##n m, t##x##n x, t##x##n y) { \
  i32x##n##s c = {m}; t##x##n##s p = {x}, q = {y}, out; \
  EACH(n) out.lane[l] = c.lane[l] ? p.lane[l] : q.lane[l]; return out.all; }
#define HAS_FUSED(f, t, n) INLINE t##x##n fused_##t##x##n(t##x##n x, t##x##n y, t##x##n z) { return f; }
#define FUSED(t, n) MAP3(fused, t, n)
#if __has_builtin(__builtin_elementwise_fma)
#undef FUSED
#define FUSED(t, n) HAS_FUSED(__builtin_elementwise_fma(x, y, z), t, n)
#elif defined(__FMA__)
#undef FUSED
#define FUSED(t, n) FUSED_##t##_##n
#define FUSED_f32_2 MAP3(fused, f32, 2)
#define FUSED_f64_2 HAS_FUSED(__builtin_ia32_vfmaddpd(x, y, z), f64, 2)
#define FUSED_f32_4 HAS_FUSED(__builtin_ia32_vfmaddps(x, y, z), f32, 4)
#define FUSED_f64_4 HAS_FUSED(__builtin_ia32_vfmaddpd256(x, y, z), f64, 4)
#define FUSED_f32_8 HAS_FUSED(__builtin_ia32_vfmaddps256(x, y, z), f32, 8)
#define FUSED_f64_16 MAP3(fused, f64, 16)
#ifdef __AVX512F__
#define FUSED_f32_16 HAS_FUSED(__builtin_ia32_vfmaddps512_mask(x, y, z, (short)-1, 4), f32, 16)
#define FUSED_f64_8 HAS_FUSED(__builtin_ia32_vfmaddpd512_mask(x, y, z, (char)-1, 4), f64, 8)
#else
#define FUSED_f32_16 MAP3(fused, f32, 16)
#define FUSED_f64_8 MAP3(fused, f64, 8)
#endif
#endif
#define ALL(t, n) INLINE t##x##n all_##t##x##n(t x) { return (t##x##n){TIMES##n(x)}; }
#define TIMES2(x) x, x
#define TIMES4(x) TIMES2(x), TIMES2(x)
#define TIMES8(x) TIMES4(x), TIMES4(x)
#define TIMES16(x) TIMES8(x), TIMES8(x)
/* One half of the lanes with the other, until two are left. */
#define FOLD(f, t, n) INLINE t fold_##f##_##t##x##n(t##x##n x##n) { FOLD##n(f, t) return f##_##t(x2[0], x2[1]); }
#define FOLD16(f, t) HALVE(f, t, 16, 8) FOLD8(f, t)
#define FOLD8(f, t) HALVE(f, t, 8, 4) FOLD4(f, t)
#define FOLD4(f, t) HALVE(f, t, 4, 2)
#define FOLD2(f, t)
#define HALVE(f, t, n, h) union { t##x##n all; t##x##h half[2]; } p##n = {x##n}; \
  t##x##h x##h; HALVE_##f(t, h, p##n.half[0], p##n.half[1])
#define HALVE_add(t, h, a, b) x##h = b + a;
#define HALVE_mul(t, h, a, b) x##h = b * a;
#define HALVE_max(t, h, a, b) HALVE_EACH(max, t, h, a, b)
#define HALVE_min(t, h, a, b) HALVE_EACH(min, t, h, a, b)
#define HALVE_EACH(f, t, h, a, b) { t##x##h##s p = {a}, q = {b}, out; \
  EACH(h) out.lane[l] = f##_##t(p.lane[l], q.lane[l]); x##h = out.all; }
#define FOLD_ADD(t, n) FOLD(add, t, n)
#define FOLD_MUL(t, n) FOLD(mul, t, n)
#define FOLD_MAX(t, n) FOLD(max, t, n)
#define FOLD_MIN(t, n) FOLD(min, t, n)
/* Bytes as numbers of 32 bits: one instruction, of which gcc makes several, or one for each byte. */
typedef char bytes __attribute__((vector_size(16)));
typedef long long words __attribute__((vector_size(16)));
#define WIDER_i8x8(x) __builtin_convertvector(x, i32x8)
#define WIDER_u8x8(x) __builtin_convertvector(x, i32x8)
#define WIDER_i8x16(x) __builtin_convertvector(x, i32x16)
#define WIDER_u8x16(x) __builtin_convertvector(x, i32x16)
#ifndef __clang__
#ifdef __AVX2__
#undef WIDER_i8x8
#undef WIDER_u8x8
#define WIDER_i8x8(x) ((i32x8)__builtin_ia32_pmovsxbd256((bytes)(words){(long long)(x)}))
#define WIDER_u8x8(x) ((i32x8)__builtin_ia32_pmovzxbd256((bytes)(words){(long long)(x)}))
#endif
#ifdef __AVX512F__
#undef WIDER_i8x16
#undef WIDER_u8x16
#define WIDER_i8x16(x) ((i32x16)__builtin_ia32_pmovsxbd512_mask((bytes)x, (i32x16){0}, -1))
#define WIDER_u8x16(x) ((i32x16)__builtin_ia32_pmovzxbd512_mask((bytes)x, (i32x16){0}, -1))
#endif
#endif
/* Halves, eight or sixteen by one instruction. With AVX-512, gcc makes two vectors of sixteen lanes in a loop, and what
 * two stores wrote takes long to load as one: there the functions of sixteen halves are written without a loop. */
#define CHANGED(f, a, r, it) INLINE r##x16 f##_##a##x16(a##x16 x) { return it; }
#ifdef __F16C__
#define WIDE_HALVES(x) (f32x8)__builtin_ia32_vcvtph2ps256((i16x8)(x))
#define NARROW_HALVES(x) (f16x8)__builtin_ia32_vcvtps2ph256(x, 0)
#define HALVES(f, a, r, change) INLINE r##x8 f##_##a##x8(a##x8 x) { return change(x); }
#define TWICE(f, a, r, change) INLINE r##x16 f##_##a##x16(a##x16 x) { \
  union { a##x16 all; a##x8 half[2]; } p = {x}; union { r##x16 all; r##x8 half[2]; } out; \
  out.half[0] = change(p.half[0]); out.half[1] = change(p.half[1]); return out.all; }
#define HALVES_f32_8 HALVES(to_f32, f16, f32, WIDE_HALVES)
#define HALVES_f16_8 HALVES(to_f16, f32, f16, NARROW_HALVES)
#ifdef __AVX512F__
#define HALVES_f32_16 CHANGED(to_f32, f16, f32, __builtin_ia32_vcvtph2ps512_mask((i16x16)x, (f32x16){0}, -1, 4))
#define HALVES_f16_16 CHANGED(to_f16, f32, f16, (f16x16)__builtin_ia32_vcvtps2ph512_mask(x, 0, (i16x16){0}, -1))
#else
#define HALVES_f32_16 TWICE(to_f32, f16, f32, WIDE_HALVES)
#define HALVES_f16_16 TWICE(to_f16, f32, f16, NARROW_HALVES)
#endif
#else
#define HALVES_f32_8 MAP1(to_f32, f16, f32, 8)
#define HALVES_f16_8 MAP1(to_f16, f32, f16, 8)
#define HALVES_f32_16 MAP1(to_f32, f16, f32, 16)
#define HALVES_f16_16 MAP1(to_f16, f32, f16, 16)
#endif
#define HALVES_f32_2 MAP1(to_f32, f16, f32, 2)
#define HALVES_f16_2 MAP1(to_f16, f32, f16, 2)
#define HALVES_f32_4 MAP1(to_f32, f16, f32, 4)
#define HALVES_f16_4 MAP1(to_f16, f32, f16, 4)
#define TO_F16(t, n) HALVES_f16_##n
#define TO_F32(t, n) TO_F32_##t(n)
#define TO_F32_f16(n) HALVES_f32_##n
#define TO_F32_bf16(n) BRAINS_f32_##n
#define TO_BF16(t, n) BRAINS_bf16_##n
#define BRAINS_f32_2 MAP1(to_f32, bf16, f32, 2)
#define BRAINS_f32_4 MAP1(to_f32, bf16, f32, 4)
#define BRAINS_f32_8 MAP1(to_f32, bf16, f32, 8)
#define BRAINS_f32_16 MAP1(to_f32, bf16, f32, 16)
#define BRAINS_bf16_2 MAP1(to_bf16, f32, bf16, 2)
#define BRAINS_bf16_4 MAP1(to_bf16, f32, bf16, 4)
#define BRAINS_bf16_8 MAP1(to_bf16, f32, bf16, 8)
#define BRAINS_bf16_16 MAP1(to_bf16, f32, bf16, 16)
#if defined(__AVX512F__) && !defined(__clang__)
#undef BRAINS_f32_16
#undef BRAINS_bf16_16
#define BRAINS_f32_16 CHANGED(to_f32, bf16, f32, \
  (f32x16)(__builtin_ia32_pmovzxwd512_mask((i16x16)x, (i32x16){0}, -1) << 16))
#define TOP(x) ((u32x16)(x) >> 16)
#define ROUNDED(x) ((u32x16)(x) + 0x7fff + (TOP(x) & 1) >> 16)
#define BRAINS_bf16_16 CHANGED(to_bf16, f32, bf16, (bf16x16)__builtin_ia32_pmovdw512_mask( \
  (i32x16)((u32x16)(x != x) & (TOP(x) | 64) | (u32x16)(x == x) & ROUNDED(x)), (i16x16){0}, -1))
#endif
#define TO_I8(t, n) MAP1(to_i8, t, i8, n)
#define TO_U8(t, n) MAP1(to_u8, t, u8, n)
#define TO_I16(t, n) MAP1(to_i16, t, i16, n)
#define TO_U16(t, n) MAP1(to_u16, t, u16, n)
#define TO_I32(t, n) MAP1(to_i32, t, i32, n)
#define TO_U32(t, n) MAP1(to_u32, t, u32, n)
#define TO_I64(t, n) MAP1(to_i64, t, i64, n)
#define TO_U64(t, n) MAP1(to_u64, t, u64, n)
/* Masked accesses that are one instruction. gcc makes it of the loop, too; clang does not. */
#if defined(__AVX512DQ__)
#define TOLD(t, n, it) if (sizeof(t) == 4 && n == 16) { \
  union { t##x##n own; f32x16 all; } v; union { i32x##n own; i32x16 all; } k = {m}; it }
#define BITS __builtin_ia32_cvtd2mask512(k.all)
#define TOLD_LOAD v.all = __builtin_ia32_loadups512_mask((const f32 *)p, (f32x16){0}, BITS); return v.own;
#define TOLD_STORE v.own = x; __builtin_ia32_storeups512_mask((f32 *)p, v.all, BITS); return;
#elif defined(__AVX2__)
#define TOLD(t, n, it) if (sizeof(t) == 4 && n == 8) { \
  union { t##x##n own; f32x8 all; } v; union { i32x##n own; i32x8 all; } k = {m}; it }
#define TOLD_LOAD v.all = __builtin_ia32_maskloadps256((const f32x8 *)p, k.all); return v.own;
#define TOLD_STORE v.own = x; __builtin_ia32_maskstoreps256((f32x8 *)p, k.all, v.all); return;
#else
#define TOLD(t, n, it)
#endif
#define MASKED(t, n, at) i32x##n##s c = {m}; t##x##n##s out; \
  EACH(n) out.lane[l] = c.lane[l] ? p[at] : 0; return out.all;
#define SOME(name, t, n) INLINE t##x##n name##_##t##x##n(const t *p, i32x##n m) { \
  TOLD(t, n, TOLD_LOAD) MASKED(t, n, l) }
#define LOAD(t, n) INLINE t##x##n load_##t##x##n(const t *p) { return *(const t##x##n##u *)p; }
#define LOAD_IF(t, n) SOME(load_if, t, n)
#define LOAD_STEP(t, n) INLINE t##x##n load_step_##t##x##n(const t *p, long s) { \
  t##x##n##s out; EACH(n) out.lane[l] = p[l * s]; return out.all; }
#define LOAD_STEP_IF(t, n) INLINE t##x##n load_step_if_##t##x##n(const t *p, long s, i32x##n m) { MASKED(t, n, l * s) }
#define LOAD_AT(t, n) INLINE t##x##n load_at_##t##x##n(const t *p, i32x##n i) { \
  i32x##n##s k = {i}; t##x##n##s out; EACH(n) out.lane[l] = p[k.lane[l]]; return out.all; }
#define LOAD_AT_IF(t, n) INLINE t##x##n load_at_if_##t##x##n(const t *p, i32x##n i, i32x##n m) { \
  i32x##n##s k = {i}; MASKED(t, n, k.lane[l]) }
#define PUT(name, t, n) INLINE void name##_##t##x##n(t *p, t##x##n x, i32x##n m) { TOLD(t, n, TOLD_STORE) \
  i32x##n##s c = {m}; t##x##n##s q = {x}; EACH(n) if (c.lane[l]) p[l] = q.lane[l]; }
#define EACH_STORED(t, n, asked, at) t##x##n##s q = {x}; for (int l = 0; l < n; l += 1) if (asked) p[at] = q.lane[l];
#define STORE(t, n) INLINE void store_##t##x##n(t *p, t##x##n x) { *(t##x##n##u *)p = x; }
#define STORE_IF(t, n) PUT(store_if, t, n)
#define STORE_STEP(t, n) INLINE void store_step_##t##x##n(t *p, long s, t##x##n x) { EACH_STORED(t, n, 1, l * s) }
#define STORE_STEP_IF(t, n) INLINE void store_step_if_##t##x##n(t *p, long s, t##x##n x, i32x##n m) { \
  i32x##n##s c = {m}; EACH_STORED(t, n, c.lane[l], l * s) }
#define STORE_AT(t, n) INLINE void store_at_##t##x##n(t *p, i32x##n i, t##x##n x) { \
  i32x##n##s k = {i}; EACH_STORED(t, n, 1, k.lane[l]) }
#define STORE_AT_IF(t, n) INLINE void store_at_if_##t##x##n(t *p, i32x##n i, t##x##n x, i32x##n m) { \
  i32x##n##s c = {m}, k = {i}; EACH_STORED(t, n, c.lane[l], k.lane[l]) }
/* Every other number of memory, by two whole vectors, of which the second begins at the odd place n - 1. */
#define EVEN2 0, 3
#define FIRST2 0, 2
#define SECOND2 2, 1
#define EVEN4 0, 2, 5, 7
#define FIRST4 0, 4, 1, 4
#define SECOND4 4, 2, 4, 3
#define EVEN8 0, 2, 4, 6, 9, 11, 13, 15
#define FIRST8 0, 8, 1, 8, 2, 8, 3, 8
#define SECOND8 8, 4, 8, 5, 8, 6, 8, 7
#define EVEN16 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#define FIRST16 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16
#define SECOND16 16, 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15
#define PICK __builtin_shufflevector
#define LOAD_EVEN(t, n) INLINE t##x##n load_even_##t##x##n(const t *p) { \
  return PICK((t##x##n)*(const t##x##n##u *)p, (t##x##n)*(const t##x##n##u *)(p + n - 1), EVEN##n); }
#define LOAD_EVEN_IF(t, n) SOME(half, t, n) INLINE t##x##n load_even_if_##t##x##n(const t *p, i32x##n m) { \
  const i32x##n no = {0}; \
  return PICK(half_##t##x##n(p, PICK(m, no, FIRST##n)), half_##t##x##n(p + n - 1, PICK(m, no, SECOND##n)), EVEN##n); }
#define PUT_EVEN(put, t, n) const i32x##n no = {0}; \
  put##_##t##x##n(p, PICK(x, x, FIRST##n), PICK(m, no, FIRST##n)); \
  put##_##t##x##n(p + n - 1, PICK(x, x, SECOND##n), PICK(m, no, SECOND##n));
#define STORE_EVEN(t, n) PUT(put, t, n) INLINE void store_even_##t##x##n(t *p, t##x##n x) { \
  const i32x##n m = ~(i32x##n){0}; PUT_EVEN(put, t, n) }
#define STORE_EVEN_IF(t, n) PUT(put_if, t, n) INLINE void store_even_if_##t##x##n(t *p, t##x##n x, i32x##n m) { \
  PUT_EVEN(put_if, t, n) }
/* vectors */