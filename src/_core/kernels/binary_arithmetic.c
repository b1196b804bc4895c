/* Arithmetic of two operands: add sub mul div mod fmod pow min max prelu. Operands and broadcasting: binary.h.
 *
 *   add sub mul     integers wrap
 *   div             integers truncate; INT_MIN / -1 wraps to INT_MIN; a zero divisor gives HT_ERR_DIVIDE
 *   mod             integers only, sign of the divisor (Python's %); zero divisor gives HT_ERR_DIVIDE
 *   fmod            sign of the dividend (C's fmod and %); zero integer divisor gives HT_ERR_DIVIDE
 *   pow             integers by squaring, wrapping; a negative exponent truncates, of base 0 gives HT_ERR_DIVIDE
 *   min max         NaN if either operand is
 *   prelu           x >= 0 ? x : x * y
 * Results are bitwise equal in every instruction set, except those of pow (libm).
 */
#include "binary.h"

#include <math.h>

#define MIN (x < y || x != x) ? x : y
#define MAX (x > y || x != x) ? x : y
#define ROWS_WRAPPING(D, s, T, U)                    \
    HT_BINARY_ROW(add_##s, T, T, (U)x + (U)y)        \
    HT_BINARY_ROW(sub_##s, T, T, (U)x - (U)y)        \
    HT_BINARY_ROW(mul_##s, T, T, (U)x * (U)y)
#define RARE_WRAPPING(D, s, T, U)                    \
    HT_BINARY_RARE_ROW(add_##s, T, T, (U)x + (U)y)   \
    HT_BINARY_RARE_ROW(sub_##s, T, T, (U)x - (U)y)   \
    HT_BINARY_RARE_ROW(mul_##s, T, T, (U)x * (U)y)
#define ROWS_EXTREME(D, s, T, U)                     \
    HT_BINARY_ROW(min_##s, T, T, MIN)                \
    HT_BINARY_ROW(max_##s, T, T, MAX)
#define RARE_EXTREME(D, s, T, U)                     \
    HT_BINARY_RARE_ROW(min_##s, T, T, MIN)           \
    HT_BINARY_RARE_ROW(max_##s, T, T, MAX)
#define PRELU(T, U) x < 0 ? (T)((U)x * (U)y) : x
#define RARE_PRELU(D, s, T, U) HT_BINARY_RARE_ROW(prelu_##s, T, T, PRELU(T, U))
HT_COMMON_BIT_TYPES(ROWS_WRAPPING)
HT_RARE_BIT_TYPES(RARE_WRAPPING)
HT_COMMON_TYPES(ROWS_EXTREME)
HT_RARE_TYPES(RARE_EXTREME)
HT_BINARY_ROW(prelu_f32, float, float, PRELU(float, float))
RARE_PRELU(HT_FLOAT64, f64, double, double)
HT_SIGNED_TYPES(RARE_PRELU)
HT_BINARY_ROW(div_f32, float, float, x / y)
HT_BINARY_RARE_ROW(div_f64, double, double, x / y)
#if defined(__FMA__) || defined(__aarch64__) /* fmaf is an instruction */
/* Exact for quotients below 2^24: q is the integer part of the rounded quotient, at most one too large, and x - q * y and the
 * corrected remainder are floats. If x is the smaller one, it is the result. */
static inline float fmod_small(float x, float y)
{
    const float a = fabsf(x), b = fabsf(y), q = truncf(a / b), r = fmaf(-q, b, a);
    return copysignf(a < b ? a : r < 0 ? r + b : r, x);
}
HT_BINARY_RARE_ROW(fmod_small_f32, float, float, fmod_small(x, y))
HT_BINARY_RARE_ROW(fmod_any_f32, float, float, fmodf(x, y))
/* The quotients of a block are examined first, so that the compiler vectorizes both loops. NaN is not below 2^24. */
static int fmod_f32(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step)
{
    enum { BLOCK = 256 };
    const float *x = (const float *)a, *y = (const float *)b;
    for (int64_t i = 0; i < n && !ht_stops_at(i); i += BLOCK) {
        const int64_t count = n - i < BLOCK ? n - i : BLOCK;
        int large = 0;
        for (int64_t k = i; k < i + count; k++)
            large |= !(fabsf(x[k * a_step] / y[k * b_step]) < 0x1p24f);
        (large ? fmod_any_f32 : fmod_small_f32)(x + i * a_step, y + i * b_step, (float *)out + i, count, a_step, b_step);
    }
    return HT_OK;
}
#else
HT_BINARY_RARE_ROW(fmod_f32, float, float, fmodf(x, y))
#endif
HT_BINARY_RARE_ROW(fmod_f64, double, double, fmod(x, y))

/* Integer division and powers are defined for the types that X lists; narrower types are converted. */
#define SIGNED_WIDE_TYPES(X)            \
    X(HT_INT32, i32, int32_t, uint32_t) \
    X(HT_INT64, i64, int64_t, uint64_t)
#define WIDE_TYPES(X) SIGNED_WIDE_TYPES(X) X(HT_UINT64, u64, uint64_t, uint64_t)

/* Of int32, rounded toward zero. The quotient of doubles is exact enough: it differs from the next integer by 2^-31 of its
 * size or more, or not at all. Division by -1 is a wrapping negation, for the smallest x. */
static inline int32_t div_32(int32_t x, int32_t y)
{
    const int32_t q = (int32_t)((double)x / (double)(y == -1 ? 1 : y));
    return y == -1 ? (int32_t)(0 - (uint32_t)q) : q;
}
static inline int32_t fmod_32(int32_t x, int32_t y)
{
    return (int32_t)((uint32_t)x - (uint32_t)div_32(x, y) * (uint32_t)y);
}
static inline int32_t mod_32(int32_t x, int32_t y)
{
    const int32_t r = fmod_32(x, y);
    return r != 0 && (r ^ y) < 0 ? r + y : r;
}
/* The divisors are checked first, so that the compiler vectorizes both loops. */
#define ROW_DIV_32(name)                                                                                       \
    HT_BINARY_RARE_ROW(name##_nonzero, int32_t, int32_t, name##_32(x, y))                                      \
    static int name##_i32(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step)          \
    {                                                                                                          \
        const int32_t *y = (const int32_t *)b;                                                                 \
        const int64_t divisors = b_step ? n : n > 0;                                                           \
        int32_t zeros = 0;                                                                                     \
        for (int64_t i = 0; i < divisors; i++)                                                                 \
            zeros |= y[i] == 0 ? -1 : 0;                                                                       \
        return zeros ? HT_ERR_DIVIDE : name##_nonzero(a, b, out, n, a_step, b_step);                           \
    }
ROW_DIV_32(div)
ROW_DIV_32(mod)
ROW_DIV_32(fmod)

/* block[0, count) = from[0, count), or from[0] again and again; converted. */
#define SPREAD(W, block, from, count, step)                                                                    \
    if (step)                                                                                                  \
        for (int64_t k = 0; k < count; k++)                                                                    \
            block[k] = (W)(from)[k];                                                                           \
    else                                                                                                       \
        for (int64_t k = 0; k < count; k++)                                                                    \
            block[k] = (W)(from)[0];

/* Of int64: blocks of numbers from -2^30 to 2^30 - 1, whose quotients and remainders are int32, as int32. */
#define ROW_DIV_64(name, EXPR)                                                                                 \
    HT_BINARY_CHECKED_ROW(name##_large, int64_t, int64_t, y == 0 ? HT_ERR_DIVIDE : HT_OK, EXPR)                \
    static int name##_i64(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step)          \
    {                                                                                                          \
        return div_64(name##_i32, name##_large, (const int64_t *)a, (const int64_t *)b, (int64_t *)out, n,     \
                      a_step, b_step);                                                                         \
    }
static int div_64(ht_binary_row small, ht_binary_row large, const int64_t *a, const int64_t *b, int64_t *out, int64_t n,
                  int a_step, int b_step)
{
    enum { BLOCK = 128 };
    int32_t x[BLOCK], y[BLOCK];
    int status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i += BLOCK) {
        const int64_t count = n - i < BLOCK ? n - i : BLOCK, *from = a + i * a_step, *by = b + i * b_step;
        uint64_t all = 0;
        const int64_t as = a_step ? count : 1, bs = b_step ? count : 1;
        for (int64_t k = 0; k < as; k++)
            all |= (uint64_t)from[k] + (1 << 30);
        for (int64_t k = 0; k < bs; k++)
            all |= (uint64_t)by[k] + (1 << 30);
        if (all >> 31) {
            status = large(from, by, out + i, count, a_step, b_step);
            continue;
        }
        SPREAD(int32_t, x, from, count, a_step)
        SPREAD(int32_t, y, by, count, b_step)
        status = small(x, y, x, count, 1, 1);
        for (int64_t k = 0; k < count; k++)
            out[i + k] = x[k];
    }
    return status;
}
static inline int64_t floor_mod_64(int64_t x, int64_t y)
{
    const int64_t r = y == -1 ? 0 : x % y; /* x % -1 overflows for the smallest x */
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
ROW_DIV_64(div, y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y)
ROW_DIV_64(mod, floor_mod_64(x, y))
ROW_DIV_64(fmod, y == -1 ? 0 : x % y)
HT_BINARY_CHECKED_ROW(div_u64, uint64_t, uint64_t, y == 0 ? HT_ERR_DIVIDE : HT_OK, x / y)
HT_BINARY_CHECKED_ROW(mod_u64, uint64_t, uint64_t, y == 0 ? HT_ERR_DIVIDE : HT_OK, x % y)
#define fmod_u64 mod_u64

/* Integer powers by squaring. */
#define ROWS_POW_INTEGER(D, s, T, U)                             \
    static inline T power_##s(T x, T y)                          \
    {                                                            \
        U result = 1, square = (U)x;                             \
        if (y < 0)                                               \
            return (T)(x == 1 ? 1 : x == (T)-1 ? (y & 1 ? x : 1) : 0); \
        for (; y > 0; y = (T)(y >> 1)) {                         \
            if (y & 1)                                           \
                result *= square;                                \
            square *= square;                                    \
        }                                                        \
        return (T)result;                                        \
    }                                                            \
    HT_BINARY_CHECKED_ROW(pow_##s, T, T, y < 0 && x == 0 ? HT_ERR_DIVIDE : HT_OK, power_##s(x, y))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits"
WIDE_TYPES(ROWS_POW_INTEGER)
#pragma GCC diagnostic pop

/* The operations above for narrower types, in blocks of a wider type that holds all their values: the low bits of the
 * results are the same. */
#define CONVERTED(name, T, W)                                                                                  \
    static int name(ht_binary_row row, const T *a, const T *b, T *out, int64_t n, int a_step, int b_step)      \
    {                                                                                                          \
        enum { BLOCK = 128 };                                                                                  \
        W x[BLOCK], y[BLOCK];                                                                                  \
        int status = HT_OK;                                                                                    \
        for (int64_t i = 0; i < n && status == HT_OK; i += BLOCK) {                                            \
            const int64_t count = n - i < BLOCK ? n - i : BLOCK;                                               \
            SPREAD(W, x, a + i * a_step, count, a_step)                                                        \
            SPREAD(W, y, b + i * b_step, count, b_step)                                                        \
            status = row(x, y, x, count, 1, 1);                                                                \
            for (int64_t k = 0; k < count; k++)                                                                \
                out[i + k] = (T)x[k];                                                                          \
        }                                                                                                      \
        return status;                                                                                         \
    }
CONVERTED(converted_i8, int8_t, int32_t)
CONVERTED(converted_i16, int16_t, int32_t)
CONVERTED(converted_u8, uint8_t, int32_t)
CONVERTED(converted_u16, uint16_t, int32_t)
CONVERTED(converted_u32, uint32_t, int64_t)
#define NARROW(s, wide, T)                                                                                     \
    NARROW_ROW(div_##s, div_##wide, converted_##s, T)                                                          \
    NARROW_ROW(mod_##s, mod_##wide, converted_##s, T)                                                          \
    NARROW_ROW(fmod_##s, fmod_##wide, converted_##s, T)                                                        \
    NARROW_ROW(pow_##s, pow_##wide, converted_##s, T)
#define NARROW_ROW(name, wide, converted, T)                                                                   \
    static int name(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step)                \
    {                                                                                                          \
        return converted(wide, (const T *)a, (const T *)b, (T *)out, n, a_step, b_step);                       \
    }
NARROW(i8, i32, int8_t)
NARROW(i16, i32, int16_t)
NARROW(u8, i32, uint8_t)
NARROW(u16, i32, uint16_t)
NARROW(u32, i64, uint32_t)

/* Float powers: the exponents that models write, 2, 3 and 0.5, need no logarithm. pow(-0, 0.5) is +0 and
 * pow(-inf, 0.5) is +inf, unlike sqrt. */
#define ROWS_POW_FLOAT(s, T, POW, SQRT)                                                        \
    HT_BINARY_RARE_ROW(power_##s, T, T, POW(x, y))                                             \
    HT_BINARY_RARE_ROW(square_##s, T, T, x *x)                                                 \
    HT_BINARY_RARE_ROW(cube_##s, T, T, x *x *x)                                                \
    HT_BINARY_RARE_ROW(root_##s, T, T, x == -(T)INFINITY ? (T)INFINITY : SQRT(x) + (T)0)       \
    static int pow_##s(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step) \
    {                                                                                          \
        if (a_step && !b_step) { /* these do not read b */                                     \
            const T y = *(const T *)b;                                                         \
            if (y == 2)                                                                        \
                return square_##s(a, a, out, n, 1, 1);                                         \
            if (y == 3)                                                                        \
                return cube_##s(a, a, out, n, 1, 1);                                           \
            if (y == (T)0.5)                                                                   \
                return root_##s(a, a, out, n, 1, 1);                                           \
        }                                                                                      \
        return power_##s(a, b, out, n, a_step, b_step);                                        \
    }
ROWS_POW_FLOAT(f32, float, powf, sqrtf)
ROWS_POW_FLOAT(f64, double, pow, sqrt)

#define CASE_ADD(D, s, T, U) case D: row = add_##s; break;
#define CASE_SUB(D, s, T, U) case D: row = sub_##s; break;
#define CASE_MUL(D, s, T, U) case D: row = mul_##s; break;
#define CASE_DIV(D, s, T, U) case D: row = div_##s; break;
#define CASE_MOD(D, s, T, U) case D: row = mod_##s; break;
#define CASE_FMOD(D, s, T, U) case D: row = fmod_##s; break;
#define CASE_POW(D, s, T, U) case D: row = pow_##s; break;
#define CASE_MIN(D, s, T, U) case D: row = min_##s; break;
#define CASE_MAX(D, s, T, U) case D: row = max_##s; break;
#define CASE_PRELU(D, s, T, U) case D: row = prelu_##s; break;
HT_BINARY_KERNEL(add, dtype, ht_unsigned(dtype), HT_BIT_TYPES(CASE_ADD))
HT_BINARY_KERNEL(sub, dtype, ht_unsigned(dtype), HT_BIT_TYPES(CASE_SUB))
HT_BINARY_KERNEL(mul, dtype, ht_unsigned(dtype), HT_BIT_TYPES(CASE_MUL))
HT_BINARY_KERNEL(div, dtype, dtype, HT_NUMERIC_TYPES(CASE_DIV))
HT_BINARY_KERNEL(mod, dtype, dtype, HT_INTEGER_TYPES(CASE_MOD))
HT_BINARY_KERNEL(fmod, dtype, dtype, HT_NUMERIC_TYPES(CASE_FMOD))
HT_BINARY_KERNEL(pow, dtype, dtype, HT_NUMERIC_TYPES(CASE_POW))
HT_BINARY_KERNEL(min, dtype, dtype, HT_NUMERIC_TYPES(CASE_MIN))
HT_BINARY_KERNEL(max, dtype, dtype, HT_NUMERIC_TYPES(CASE_MAX))
HT_BINARY_KERNEL(prelu, dtype, dtype, HT_FLOAT_TYPES(CASE_PRELU) HT_SIGNED_TYPES(CASE_PRELU))
