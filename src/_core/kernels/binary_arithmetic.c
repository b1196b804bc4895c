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

#define ROWS_ADD(D, s, T, U) HT_BINARY_ROW(add_##s, T, T, (U)x + (U)y)
#define ROWS_SUB(D, s, T, U) HT_BINARY_ROW(sub_##s, T, T, (U)x - (U)y)
#define ROWS_MUL(D, s, T, U) HT_BINARY_ROW(mul_##s, T, T, (U)x * (U)y)
#define ROWS_MIN(D, s, T, U) HT_BINARY_ROW(min_##s, T, T, (x < y || x != x) ? x : y)
#define ROWS_MAX(D, s, T, U) HT_BINARY_ROW(max_##s, T, T, (x > y || x != x) ? x : y)
#define ROWS_PRELU(D, s, T, U) HT_BINARY_ROW(prelu_##s, T, T, x < 0 ? (T)((U)x * (U)y) : x)
HT_NUMERIC_TYPES(ROWS_ADD)
HT_NUMERIC_TYPES(ROWS_SUB)
HT_NUMERIC_TYPES(ROWS_MUL)
HT_NUMERIC_TYPES(ROWS_MIN)
HT_NUMERIC_TYPES(ROWS_MAX)
HT_FLOAT_TYPES(ROWS_PRELU)
HT_SIGNED_TYPES(ROWS_PRELU)

/* Division by -1 is computed as a wrapping negation, since the processor traps on INT_MIN / -1. */
#define ROWS_DIV_SIGNED(D, s, T, U) \
    HT_BINARY_CHECKED_ROW(div_##s, T, T, y == 0 ? HT_ERR_DIVIDE : HT_OK, y == -1 ? (T)((U)0 - (U)x) : x / y)
#define ROWS_DIV_UNSIGNED(D, s, T, U) HT_BINARY_CHECKED_ROW(div_##s, T, T, y == 0 ? HT_ERR_DIVIDE : HT_OK, x / y)
#define ROWS_DIV_FLOAT(D, s, T, U) HT_BINARY_ROW(div_##s, T, T, x / y)
HT_SIGNED_TYPES(ROWS_DIV_SIGNED)
HT_UNSIGNED_TYPES(ROWS_DIV_UNSIGNED)
HT_FLOAT_TYPES(ROWS_DIV_FLOAT)

#define ROWS_MOD_SIGNED(D, s, T, U)                                              \
    static inline T floor_mod_##s(T x, T y)                                      \
    {                                                                            \
        if (y == -1) /* x % -1 overflows for the smallest x */                   \
            return 0;                                                            \
        const T r = (T)(x % y);                                                  \
        return r != 0 && (r < 0) != (y < 0) ? (T)(r + y) : r;                    \
    }                                                                            \
    HT_BINARY_CHECKED_ROW(mod_##s, T, T, y == 0 ? HT_ERR_DIVIDE : HT_OK, floor_mod_##s(x, y)) \
    HT_BINARY_CHECKED_ROW(fmod_##s, T, T, y == 0 ? HT_ERR_DIVIDE : HT_OK, y == -1 ? 0 : x % y)
#define ROWS_MOD_UNSIGNED(D, s, T, U)                                                   \
    HT_BINARY_CHECKED_ROW(mod_##s, T, T, y == 0 ? HT_ERR_DIVIDE : HT_OK, x % y)         \
    HT_BINARY_CHECKED_ROW(fmod_##s, T, T, y == 0 ? HT_ERR_DIVIDE : HT_OK, x % y)
HT_SIGNED_TYPES(ROWS_MOD_SIGNED)
HT_UNSIGNED_TYPES(ROWS_MOD_UNSIGNED)
HT_BINARY_ROW(fmod_f32, float, float, fmodf(x, y))
HT_BINARY_ROW(fmod_f64, double, double, fmod(x, y))

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
HT_INTEGER_TYPES(ROWS_POW_INTEGER)
#pragma GCC diagnostic pop

/* Float powers: the exponents that models write, 2, 3 and 0.5, need no logarithm. pow(-0, 0.5) is +0 and
 * pow(-inf, 0.5) is +inf, unlike sqrt. */
#define ROWS_POW_FLOAT(s, T, POW, SQRT)                                                        \
    HT_BINARY_ROW(power_##s, T, T, POW(x, y))                                                  \
    HT_BINARY_ROW(square_##s, T, T, x *x)                                                      \
    HT_BINARY_ROW(cube_##s, T, T, x *x *x)                                                     \
    HT_BINARY_ROW(root_##s, T, T, x == -(T)INFINITY ? (T)INFINITY : SQRT(x) + (T)0)            \
    static int pow_##s(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step) \
    {                                                                                          \
        if (a_step && !b_step) {                                                               \
            const T y = *(const T *)b;                                                         \
            if (y == 2)                                                                        \
                return square_##s(a, b, out, n, 1, 0);                                         \
            if (y == 3)                                                                        \
                return cube_##s(a, b, out, n, 1, 0);                                           \
            if (y == (T)0.5)                                                                   \
                return root_##s(a, b, out, n, 1, 0);                                           \
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
HT_BINARY_KERNEL(add, dtype, HT_NUMERIC_TYPES(CASE_ADD))
HT_BINARY_KERNEL(sub, dtype, HT_NUMERIC_TYPES(CASE_SUB))
HT_BINARY_KERNEL(mul, dtype, HT_NUMERIC_TYPES(CASE_MUL))
HT_BINARY_KERNEL(div, dtype, HT_NUMERIC_TYPES(CASE_DIV))
HT_BINARY_KERNEL(mod, dtype, HT_INTEGER_TYPES(CASE_MOD))
HT_BINARY_KERNEL(fmod, dtype, HT_NUMERIC_TYPES(CASE_FMOD))
HT_BINARY_KERNEL(pow, dtype, HT_NUMERIC_TYPES(CASE_POW))
HT_BINARY_KERNEL(min, dtype, HT_NUMERIC_TYPES(CASE_MIN))
HT_BINARY_KERNEL(max, dtype, HT_NUMERIC_TYPES(CASE_MAX))
HT_BINARY_KERNEL(prelu, dtype, HT_FLOAT_TYPES(CASE_PRELU) HT_SIGNED_TYPES(CASE_PRELU))
