/* unary: elementwise operations of one operand, y = op(x).
 *
 * in: x. out: y, of the same size; y may be x. ints: operation (unary.h). floats: p0, p1 (the operation's parameters;
 * give 0 where it has none).
 * Types: float32 all operations below HT_UNARY_SAME_TYPE_END; float64 the same through libm; int8, int16, int32,
 * int64: none, relu, clip, leaky_relu excepted, abs, neg, sign (wrapping); uint8 .. uint64: none, relu, clip, abs,
 * sign; bool: not; every integer: bitwise_not; float32, float64 -> bool: isnan, isinf.
 * Precision in float32: within 4 units in the last place (tests/unary_sweep.py states each figure and holds it for all
 * inputs; the tail of GELU, and sine and cosine, absolutely). Functions that rise or fall throughout do so here too, as
 * do gelu, swish (alpha = 1) and mish on both sides of their minimum, and give their limits exactly. Where ONNX's
 * formula is 0 * inf or inf / inf (Gelu, Swish and Mish of -inf, Softsign of both infinities), the result is NaN.
 * Rare operations (tan, hyperbolic functions and their inverses) go through libm.
 */
#include "unary_vector.h"

/* LOOP after `many`, a call that computes PIECES_TOGETHER vectors from x on. */
#define MANY(many, ...)                                                                                              \
    do {                                                                                                             \
        enum { COUNT = PIECES_TOGETHER * VF_LANES };                                                                 \
        for (; COUNT > VF_LANES && n >= COUNT; x += COUNT, y += COUNT, n -= COUNT)                                   \
            many;                                                                                                    \
        LOOP(__VA_ARGS__);                                                                                           \
    } while (0)

#define LOOP(...)                                                                                                    \
    do {                                                                                                             \
        for (int64_t i = 0; i < n; i += VF_LANES) {                                                                  \
            const vf v = vf_load(x + i);                                                                             \
            vf_store(y + i, (__VA_ARGS__));                                                                          \
        }                                                                                                            \
        return HT_OK;                                                                                                \
    } while (0)

/* Inverse trigonometric functions. A result is a constant plus a term that is exact or monotone (`main`), and a correction
 * that is small beside both: their sum is rounded once, so that rounding errors of the correction stay below the change from
 * one float to the next. */
HT_INLINE vf constant_plus(vf constant, vf main, vf correction)
{
    const vf sum = constant + main; /* |main| <= |constant|, or the constant is 0 */
    return sum + (((constant - sum) + main) + correction);
}
#define HALF_PI 1.57079637f
#define HALF_PI_REST -4.37113883e-08f

/* asin(|v|) = s + *correction, or pi / 2 - 2 (s + *correction) where *large. Fit: 1e-10. */
HT_INLINE vf arc(vf v, vm *large, vf *correction)
{
    const vf a = vf_abs(v), half = vf_set1(0.5f);
    *large = vf_lt(half, a);
    const vf z = vf_select(*large, half * (one() - a), a * a), s = vf_select(*large, vf_sqrt(z), a);
    vf r = vf_set1(0.037749592f);
    r = vf_fma(r, z, vf_set1(0.01433274f));
    r = vf_fma(r, z, vf_set1(0.031815223f));
    r = vf_fma(r, z, vf_set1(0.044519316f));
    r = vf_fma(r, z, vf_set1(0.07500468f));
    r = vf_fma(r, z, vf_set1(0.16666661f));
    *correction = s * z * r;
    return s; /* beyond 1: NaN */
}

HT_INLINE vf arc_sine(vf v)
{
    vm large;
    vf c;
    const vf s = arc(v, &large, &c), pi = vf_select(large, vf_set1(HALF_PI), zero());
    const vf rest = vf_fma(vf_set1(-2.0f), c, vf_set1(HALF_PI_REST));
    return vf_copysign(constant_plus(pi, vf_select(large, vf_set1(-2.0f) * s, s), vf_select(large, rest, c)), v);
}

/* pi / 2 - asin(v); from 1/2 on 2 (s + c), and below -1/2 pi minus that. */
HT_INLINE vf arc_cosine(vf v)
{
    vm large;
    vf c;
    const vf s = arc(v, &large, &c), two = vf_set1(2.0f), sign = vf_select(large, v, vf_neg(v));
    const vf turns = vf_select(large, vf_select(vf_lt(v, zero()), two, zero()), one()); /* of pi / 2 */
    const vf main = vf_copysign(vf_select(large, two * s, s), sign), rest = vf_copysign(vf_select(large, two * c, c), sign);
    return constant_plus(turns * vf_set1(HALF_PI), main, vf_fma(turns, vf_set1(HALF_PI_REST), rest));
}

/* The arc tangent of t from -1 to 0 in pieces (pieces.h) of 1/7; in the piece at zero its main term is t. Fits: 2e-9, at
 * zero relative. Beyond 1 the arc tangent is pi / 2 minus that of 1 / x. */
#define ATAN_PIECES(X)                                                              \
    X(0.0f, 0.0f, 0.0f, 0.0f, -0.33333138f,                                         \
      0.0f, 0.198888f, 0.0f, 0.0f)                                                  \
    X(-0.14281136f, -0.14185219f, 0.98001254f, 0.13715954f, -0.29452834f,           \
      -0.12904096f, 0.14136451f, 0.11679467f, 0.0f)                                 \
    X(-0.28569707f, -0.27828375f, 0.9245367f, 0.24420474f, -0.19891576f,            \
      -0.19169559f, 0.029263927f, 0.12997271f, 0.0f)                                \
    X(-0.42853552f, -0.40486145f, 0.8448495f, 0.30587614f, -0.09025144f,            \
      -0.1782358f, -0.05932638f, 0.06622359f, 0.0f)                                 \
    X(-0.5714121f, -0.5191337f, 0.75385684f, 0.3247336f, -0.0029081597f,            \
      -0.12429097f, -0.08606304f, 0.002272511f, 0.0f)                               \
    X(-0.71431816f, -0.62027097f, 0.66214186f, 0.31317982f, 0.051347703f,           \
      -0.06725368f, -0.06954157f, -0.025487697f, 0.0f)                              \
    X(-0.85718215f, -0.7086489f, 0.5764482f, 0.28483522f, 0.07689638f,              \
      -0.02509992f, -0.04690297f, -0.029123664f, 0.0f)                              \
    X(-0.990032f, -0.78038925f, 0.5050088f, 0.25249186f, 0.08340685f,               \
      -0.006323083f, 0.0631277f, -0.55883694f, 0.0f)
static piece_table atan_pieces __attribute__((unused)) = PIECE_TABLE(ATAN_PIECES);

HT_INLINE vf arc_tangent(vf v)
{
    const vf a = vf_abs(v);
    const vm inverse = vf_lt(one(), a);
    const vf t = vf_neg(vf_select(inverse, one() / a, a));
    vf columns[PIECE_COLUMNS + 3];
    piece_columns(atan_pieces, piece_even(t, 1.0f / 7), columns);
    const vf z = t - columns[0];
    vf p = columns[PIECE_COLUMNS - 2];
    for (int k = PIECE_COLUMNS - 3; k > 1; k--)
        p = vf_fma(p, z, columns[k]);
    const vf main = vf_select(vf_eq(columns[0], zero()), t, columns[1]);
    const vf rest = vf_fma(p, z, vf_select(inverse, vf_set1(HALF_PI_REST), zero()));
    return vf_copysign(constant_plus(vf_select(inverse, vf_set1(HALF_PI), zero()), main, rest), v);
}

/* Whole vectors: n is a multiple of VF_LANES. */
static int vectors_f32(int op, float p0, float p1, const float *x, float *y, int64_t n)
{
    const vf a = vf_set1(p0), b = vf_set1(p1);
    if (op == HT_UNARY_SWISH && p0 == 1.0f) /* without a test of alpha per vector */
        MANY(silus(x, y), silu(v));
    if (op == HT_UNARY_GELU_ERF)
        MANY(gelus(gelu_erf_pieces, -6.25f, x, y), gelu(gelu_erf_pieces, -6.25f, v));
    if (op == HT_UNARY_GELU_TANH)
        MANY(gelus(gelu_tanh_pieces, -5.875f, x, y), gelu(gelu_tanh_pieces, -5.875f, v));
    switch (op) {
#define CASE(name, ...) \
    case HT_UNARY_##name: LOOP(__VA_ARGS__);
    HT_UNARY_VECTORS(CASE)
    CASE(ASIN, arc_sine(v))
    CASE(ACOS, arc_cosine(v))
    CASE(ATAN, arc_tangent(v))
#undef CASE
    default: return HT_ERR_OPERAND;
    }
}

static int libm_f32(int op, const float *x, float *y, int64_t n)
{
#define LIBM(name, function)                                                                                         \
    case HT_UNARY_##name:                                                                                            \
        HT_LONG_FOR (i, n)                                                                                           \
            y[i] = function(x[i]);                                                                                   \
        return HT_OK;
    switch (op) {
    LIBM(TAN, tanf)
    LIBM(SINH, sinhf)
    LIBM(COSH, coshf)
    LIBM(ASINH, asinhf)
    LIBM(ACOSH, acoshf)
    LIBM(ATANH, atanhf)
    default: return HT_ERR_OPERAND;
    }
#undef LIBM
}

int ht_unary_f32(int op, float p0, float p1, const float *x, float *y, int64_t n)
{
    const int64_t rest = n & (VF_LANES - 1), whole = n - rest;
    if (op == HT_UNARY_NONE) {
        if (x != y && n > 0)
            memmove(y, x, (size_t)n * sizeof(float));
        return HT_OK;
    }
    if (whole > 0 || rest == 0) {
        const int status = vectors_f32(op, p0, p1, x, y, whole);
        if (status != HT_OK)
            return libm_f32(op, x, y, n);
    }
    if (rest == 0)
        return HT_OK;
    float last[VF_LANES]; /* so that each operation is compiled once, for whole vectors */
    vf_store(last, vf_load_n(x + whole, rest));
    if (vectors_f32(op, p0, p1, last, last, VF_LANES) != HT_OK)
        return libm_f32(op, x, y, n);
    vf_store_n(y + whole, rest, vf_load(last));
    return HT_OK;
}

/* Other types, and tests of float types. */
#define unary_f64 HT_NARROWED(unary_f64)
#define unary_i8 HT_NARROWED(unary_i8)
#define unary_i16 HT_NARROWED(unary_i16)
#define unary_i32 HT_NARROWED(unary_i32)
#define unary_i64 HT_NARROWED(unary_i64)
#define unary_u8 HT_NARROWED(unary_u8)
#define unary_u16 HT_NARROWED(unary_u16)
#define unary_u32 HT_NARROWED(unary_u32)
#define unary_u64 HT_NARROWED(unary_u64)
#define classify_f32 HT_NARROWED(classify_f32)
#define classify_f64 HT_NARROWED(classify_f64)
int unary_f64(int op, double a, double b, const double *x, double *y, int64_t n);
int unary_i8(int op, double a, double b, const int8_t *x, int8_t *y, int64_t n);
int unary_i16(int op, double a, double b, const int16_t *x, int16_t *y, int64_t n);
int unary_i32(int op, double a, double b, const int32_t *x, int32_t *y, int64_t n);
int unary_i64(int op, double a, double b, const int64_t *x, int64_t *y, int64_t n);
int unary_u8(int op, double a, double b, const uint8_t *x, uint8_t *y, int64_t n);
int unary_u16(int op, double a, double b, const uint16_t *x, uint16_t *y, int64_t n);
int unary_u32(int op, double a, double b, const uint32_t *x, uint32_t *y, int64_t n);
int unary_u64(int op, double a, double b, const uint64_t *x, uint64_t *y, int64_t n);
void classify_f32(int op, int negative, int positive, const float *x, uint8_t *y, int64_t n);
void classify_f64(int op, int negative, int positive, const double *x, uint8_t *y, int64_t n);

#if HT_DEFINES_NARROWED
static double clip_f64(double v, double low, double high)
{
    v = v < low ? low : v; /* NaN passes */
    return v > high ? high : v;
}

int unary_f64(int op, double a, double b, const double *x, double *y, int64_t n)
{
#define F64(code, expression)                                                                                        \
    case code:                                                                                                       \
        HT_LONG_FOR (i, n) {                                                                                         \
            const double v = x[i];                                                                                   \
            y[i] = expression;                                                                                       \
        }                                                                                                            \
        return HT_OK;
    switch (op) {
    F64(HT_UNARY_NONE, v)
    F64(HT_UNARY_RELU, v < 0 ? 0 : v)
    F64(HT_UNARY_CLIP, clip_f64(v, a, b))
    F64(HT_UNARY_LEAKY_RELU, v < 0 ? a * v : v)
    F64(HT_UNARY_ELU, v < 0 ? a * expm1(v) : v)
    F64(HT_UNARY_SELU, b * (v < 0 ? a * expm1(v) : v))
    F64(HT_UNARY_CELU, v < 0 ? a * expm1(v / a) : v)
    F64(HT_UNARY_THRESHOLDED_RELU, v > a ? v : 0)
    F64(HT_UNARY_SIGMOID, 1 / (1 + exp(-v)))
    F64(HT_UNARY_HARD_SIGMOID, clip_f64(a * v + b, 0, 1))
    F64(HT_UNARY_HARD_SWISH, v * clip_f64(a * v + b, 0, 1))
    F64(HT_UNARY_SWISH, v / (1 + exp(-a * v)))
    F64(HT_UNARY_TANH, tanh(v))
    F64(HT_UNARY_GELU_ERF, 0.5 * v * (1 + erf(v * 0.70710678118654752440)))
    F64(HT_UNARY_GELU_TANH, 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v))))
    F64(HT_UNARY_SOFTPLUS, (v > 0 ? v : 0) + log1p(exp(-fabs(v))))
    F64(HT_UNARY_SOFTSIGN, v / (1 + fabs(v)))
    F64(HT_UNARY_MISH, v * tanh((v > 0 ? v : 0) + log1p(exp(-fabs(v)))))
    F64(HT_UNARY_ERF, erf(v))
    F64(HT_UNARY_EXP, exp(v))
    F64(HT_UNARY_LOG, log(v))
    F64(HT_UNARY_SQRT, sqrt(v))
    F64(HT_UNARY_RECIPROCAL, 1 / v)
    F64(HT_UNARY_ABS, fabs(v))
    F64(HT_UNARY_NEG, -v)
    F64(HT_UNARY_FLOOR, floor(v))
    F64(HT_UNARY_CEIL, ceil(v))
    F64(HT_UNARY_ROUND, nearbyint(v))
    F64(HT_UNARY_SIGN, v > 0 ? 1 : v < 0 ? -1 : v == 0 ? 0 : v)
    F64(HT_UNARY_SIN, sin(v))
    F64(HT_UNARY_COS, cos(v))
    F64(HT_UNARY_TAN, tan(v))
    F64(HT_UNARY_ASIN, asin(v))
    F64(HT_UNARY_ACOS, acos(v))
    F64(HT_UNARY_ATAN, atan(v))
    F64(HT_UNARY_SINH, sinh(v))
    F64(HT_UNARY_COSH, cosh(v))
    F64(HT_UNARY_ASINH, asinh(v))
    F64(HT_UNARY_ACOSH, acosh(v))
    F64(HT_UNARY_ATANH, atanh(v))
    F64(HT_UNARY_SHRINK, v < -b ? v + a : v > b ? v - a : 0)
    default: return HT_ERR_OPERAND;
    }
#undef F64
}

/* A bound of clip as an integer of the type; bounds outside the type do not bind. */
#define BOUND(v, type, lowest, highest) \
    ((v) >= (double)(highest) ? (highest) : (v) <= (double)(lowest) ? (lowest) : (type)(v))

#define EACH_INT(code, expression)                                                                                   \
    case code:                                                                                                       \
        HT_LONG_FOR (i, n) {                                                                                         \
            const T v = x[i];                                                                                        \
            y[i] = (T)(expression);                                                                                  \
        }                                                                                                            \
        return HT_OK;

/* unsigned_type: in which negation wraps instead of overflowing. */
#define INTEGER(name, type, unsigned_type, lowest, highest)                                                          \
    int name(int op, double a, double b, const type *x, type *y, int64_t n)                                   \
    {                                                                                                                \
        typedef type T;                                                                                              \
        const type low = BOUND(a, type, lowest, highest), high = BOUND(b, type, lowest, highest);                    \
        switch (op) {                                                                                                \
        EACH_INT(HT_UNARY_NONE, v)                                                                                   \
        EACH_INT(HT_UNARY_RELU, v > 0 ? v : 0)                                                                       \
        EACH_INT(HT_UNARY_CLIP, (v < low ? low : v) > high ? high : (v < low ? low : v))                             \
        EACH_INT(HT_UNARY_ABS, v < (type)1 && v != 0 ? (type)(0 - (unsigned_type)v) : v)                             \
        EACH_INT(HT_UNARY_SIGN, v > 0 ? 1 : v == 0 ? 0 : (type)-1)                                                   \
        EACH_INT(HT_UNARY_BITWISE_NOT, ~v)                                                                           \
        case HT_UNARY_NEG:                                                                                           \
            if ((type)-1 > 0)                                                                                        \
                return HT_ERR_DTYPE;                                                                                 \
            HT_LONG_FOR (i, n)                                                                                       \
                y[i] = (type)(0 - (unsigned_type)x[i]);                                                              \
            return HT_OK;                                                                                            \
        default: return HT_ERR_DTYPE;                                                                                \
        }                                                                                                            \
    }
INTEGER(unary_i8, int8_t, uint8_t, INT8_MIN, INT8_MAX)
INTEGER(unary_i16, int16_t, uint16_t, INT16_MIN, INT16_MAX)
INTEGER(unary_i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
INTEGER(unary_i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
INTEGER(unary_u8, uint8_t, uint8_t, 0, UINT8_MAX)
INTEGER(unary_u16, uint16_t, uint16_t, 0, UINT16_MAX)
INTEGER(unary_u32, uint32_t, uint32_t, 0, UINT32_MAX)
INTEGER(unary_u64, uint64_t, uint64_t, 0, UINT64_MAX)

#define CLASSIFY(name, type)                                                                                         \
    void name(int op, int negative, int positive, const type *x, uint8_t *y, int64_t n)                       \
    {                                                                                                                \
        if (op == HT_UNARY_ISNAN)                                                                                    \
            HT_LONG_FOR (i, n)                                                                                       \
                y[i] = x[i] != x[i];                                                                                 \
        else                                                                                                         \
            HT_LONG_FOR (i, n)                                                                                       \
                y[i] = (uint8_t)(((x[i] == -(type)INFINITY) & negative) | ((x[i] == (type)INFINITY) & positive));    \
    }
CLASSIFY(classify_f32, float)
CLASSIFY(classify_f64, double)
#endif

/* Elements [begin, end), whatever the type. Fails alike for all ranges. */
static int unary_range(const ht_call *call, int64_t begin, int64_t end)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    const int op = (int)call->ints[0];
    const double a = call->floats[0], b = call->floats[1];
    const int64_t n = end - begin;
#define ELEMENTS(function, type) function(op, a, b, (const type *)x->data + begin, (type *)y->data + begin, n)
    if (op == HT_UNARY_ISNAN || op == HT_UNARY_ISINF) {
        uint8_t *to = (uint8_t *)y->data + begin;
        if (y->dtype != HT_BOOL)
            return HT_ERR_DTYPE;
        if (x->dtype == HT_FLOAT32)
            classify_f32(op, a != 0, b != 0, (const float *)x->data + begin, to, n);
        else if (x->dtype == HT_FLOAT64)
            classify_f64(op, a != 0, b != 0, (const double *)x->data + begin, to, n);
        else
            return HT_ERR_DTYPE;
        return HT_OK;
    }
    if (x->dtype != y->dtype)
        return HT_ERR_DTYPE;
    switch (x->dtype) {
    case HT_FLOAT32:
        return ht_unary_f32(op, (float)a, (float)b, (const float *)x->data + begin, (float *)y->data + begin, n);
    case HT_FLOAT64: return ELEMENTS(unary_f64, double);
    case HT_INT8: return ELEMENTS(unary_i8, int8_t);
    case HT_INT16: return ELEMENTS(unary_i16, int16_t);
    case HT_INT32: return ELEMENTS(unary_i32, int32_t);
    case HT_INT64: return ELEMENTS(unary_i64, int64_t);
    case HT_UINT8: return ELEMENTS(unary_u8, uint8_t);
    case HT_UINT16: return ELEMENTS(unary_u16, uint16_t);
    case HT_UINT32: return ELEMENTS(unary_u32, uint32_t);
    case HT_UINT64: return ELEMENTS(unary_u64, uint64_t);
    case HT_BOOL: {
        const uint8_t *from = (const uint8_t *)x->data + begin; /* not read again after each store, which could change it */
        uint8_t *to = (uint8_t *)y->data + begin;
        const int flip = op == HT_UNARY_NOT;
        if (op != HT_UNARY_NOT && op != HT_UNARY_NONE)
            return HT_ERR_DTYPE;
        HT_LONG_FOR (i, n)
            to[i] = (uint8_t)((from[i] != 0) ^ flip);
        return HT_OK;
    }
    default: return HT_ERR_DTYPE;
    }
#undef ELEMENTS
}

/* Pieces of whole vectors, so that each element is computed as it would be by one thread. */
typedef struct {
    const ht_call *call;
    int64_t parts;
} pieces;

enum { PIECE = 1024 }; /* elements of a unit of work for threads: whole vectors and whole cache lines */

static void unary_part(void *context, int64_t part, int thread)
{
    const pieces *job = (const pieces *)context;
    const int64_t size = job->call->in[0]->size, units = ht_ceil_div(size, PIECE);
    const int64_t begin = ht_part_begin(units, job->parts, part) * PIECE;
    (void)thread;
    (void)unary_range(job->call, begin, ht_min64(size, ht_part_begin(units, job->parts, part + 1) * PIECE));
}

int HT_KERNEL(unary)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 1 || call->num_floats != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    if (call->out[0]->size != x->size)
        return HT_ERR_OPERAND;
    const int status = unary_range(call, 0, 0); /* is there such an operation? */
    if (status != HT_OK || x->size == 0)
        return status;
    const int is_float = x->dtype == HT_FLOAT32 || x->dtype == HT_FLOAT64;
    pieces job = {call, ht_parts(call, ht_ceil_div(x->size, PIECE), (is_float ? 8 : 4) * (double)x->size)};
    ht_parallel(call->team, job.parts, unary_part, &job);
    return HT_OK;
}
