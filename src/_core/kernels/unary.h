/* Codes of the unary operations, for the `unary` kernel and as the activation fused into others.
 *
 * p0 and p1 are the operation's parameters. Formulas name ONNX's operator where it has one.
 */
#ifndef HETERO_UNARY_H
#define HETERO_UNARY_H

#include "vec.h"

enum {
    HT_UNARY_NONE = 0,
    HT_UNARY_RELU = 1,
    HT_UNARY_CLIP = 2,             /* min(max(x, p0), p1) */
    HT_UNARY_LEAKY_RELU = 3,       /* x < 0 ? p0 * x : x */
    HT_UNARY_ELU = 4,              /* x < 0 ? p0 * (exp(x) - 1) : x */
    HT_UNARY_SELU = 5,             /* p1 * (x < 0 ? p0 * (exp(x) - 1) : x); p0 = alpha, p1 = gamma */
    HT_UNARY_CELU = 6,             /* x < 0 ? p0 * (exp(x / p0) - 1) : x */
    HT_UNARY_THRESHOLDED_RELU = 7, /* x > p0 ? x : 0 */
    HT_UNARY_SIGMOID = 8,
    HT_UNARY_HARD_SIGMOID = 9,     /* min(max(p0 * x + p1, 0), 1) */
    HT_UNARY_HARD_SWISH = 10,      /* x * min(max(p0 * x + p1, 0), 1); ONNX: p0 = 1/6, p1 = 0.5 */
    HT_UNARY_SWISH = 11,           /* x * sigmoid(p0 * x); SiLU: p0 = 1 */
    HT_UNARY_TANH = 12,
    HT_UNARY_GELU_ERF = 13,        /* x / 2 * (1 + erf(x / sqrt(2))) */
    HT_UNARY_GELU_TANH = 14,       /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) */
    HT_UNARY_SOFTPLUS = 15,        /* log(1 + exp(x)) */
    HT_UNARY_SOFTSIGN = 16,        /* x / (1 + |x|) */
    HT_UNARY_MISH = 17,            /* x * tanh(softplus(x)) */
    HT_UNARY_ERF = 18,
    HT_UNARY_EXP = 19,
    HT_UNARY_LOG = 20,
    HT_UNARY_SQRT = 21,
    HT_UNARY_RECIPROCAL = 22,
    HT_UNARY_ABS = 23,
    HT_UNARY_NEG = 24,
    HT_UNARY_FLOOR = 25,
    HT_UNARY_CEIL = 26,
    HT_UNARY_ROUND = 27,           /* halves to even */
    HT_UNARY_SIGN = 28,
    HT_UNARY_SIN = 29,
    HT_UNARY_COS = 30,
    HT_UNARY_TAN = 31,
    HT_UNARY_ASIN = 32,
    HT_UNARY_ACOS = 33,
    HT_UNARY_ATAN = 34,
    HT_UNARY_SINH = 35,
    HT_UNARY_COSH = 36,
    HT_UNARY_ASINH = 37,
    HT_UNARY_ACOSH = 38,
    HT_UNARY_ATANH = 39,
    HT_UNARY_SHRINK = 40,          /* x < -p1 ? x + p0 : x > p1 ? x - p0 : 0; p0 = bias, p1 = lambd */
    HT_UNARY_SAME_TYPE_END = 41,   /* up to here the output has the input's type */
    HT_UNARY_NOT = 48,             /* bool */
    HT_UNARY_BITWISE_NOT = 49,     /* integers */
    HT_UNARY_ISNAN = 50,           /* float -> bool */
    HT_UNARY_ISINF = 51            /* float -> bool; p0: report -inf, p1: report +inf (0 or 1) */
};

/* y[i] = op(x[i]); y may be x. 0, or HT_ERR_OPERAND if `op` is no code below HT_UNARY_SAME_TYPE_END. */
#define ht_unary_f32 HT_KERNEL(unary_f32)
int ht_unary_f32(int op, float p0, float p1, const float *x, float *y, int64_t n);

/* The operations that other kernels apply in registers, as min(max(., low), high). */
HT_INLINE int ht_unary_is_clip(int op) { return op == HT_UNARY_NONE || op == HT_UNARY_RELU || op == HT_UNARY_CLIP; }
HT_INLINE void ht_unary_clip_range(int op, float p0, float p1, float *low, float *high)
{
    *low = op == HT_UNARY_CLIP ? p0 : op == HT_UNARY_RELU ? 0.0f : -INFINITY;
    *high = op == HT_UNARY_CLIP ? p1 : INFINITY;
}

#endif
