/* Codes of the unary operations, each once: X(NAME, code). unary.h makes HT_UNARY_<NAME> from the list; registry.c
 * publishes the codes to planners. Formulas name ONNX's operator where it has one; p0 and p1 are the operation's
 * parameters. Codes from SAME_TYPE_END on give another type than their operand's, or take no floats. */
#ifndef HETERO_UNARY_CODES_H
#define HETERO_UNARY_CODES_H

#define HT_UNARY_CODES(X) \
    X(NONE, 0) \
    X(RELU, 1) \
    X(CLIP, 2)                  /* min(max(x, p0), p1) */ \
    X(LEAKY_RELU, 3)            /* x < 0 ? p0 * x : x */ \
    X(ELU, 4)                   /* x < 0 ? p0 * (exp(x) - 1) : x */ \
    X(SELU, 5)                  /* p1 * (x < 0 ? p0 * (exp(x) - 1) : x); p0 = alpha, p1 = gamma */ \
    X(CELU, 6)                  /* x < 0 ? p0 * (exp(x / p0) - 1) : x */ \
    X(THRESHOLDED_RELU, 7)      /* x > p0 ? x : 0 */ \
    X(SIGMOID, 8) \
    X(HARD_SIGMOID, 9)          /* min(max(p0 * x + p1, 0), 1) */ \
    X(HARD_SWISH, 10)           /* x * min(max(p0 * x + p1, 0), 1); ONNX: p0 = 1/6, p1 = 0.5 */ \
    X(SWISH, 11)                /* x * sigmoid(p0 * x); SiLU: p0 = 1 */ \
    X(TANH, 12) \
    X(GELU_ERF, 13)             /* x / 2 * (1 + erf(x / sqrt(2))) */ \
    X(GELU_TANH, 14)            /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) */ \
    X(SOFTPLUS, 15)             /* log(1 + exp(x)) */ \
    X(SOFTSIGN, 16)             /* x / (1 + |x|) */ \
    X(MISH, 17)                 /* x * tanh(softplus(x)) */ \
    X(ERF, 18) \
    X(EXP, 19) \
    X(LOG, 20) \
    X(SQRT, 21) \
    X(RECIPROCAL, 22) \
    X(ABS, 23) \
    X(NEG, 24) \
    X(FLOOR, 25) \
    X(CEIL, 26) \
    X(ROUND, 27)                /* halves to even */ \
    X(SIGN, 28) \
    X(SIN, 29) \
    X(COS, 30) \
    X(SHRINK, 31)               /* x < -p1 ? x + p0 : x > p1 ? x - p0 : 0; p0 = bias, p1 = lambd */ \
    X(VECTOR_END, 32)           /* up to here vector_tape.h has the operation, for float32 */ \
    X(TAN, 32) \
    X(ASIN, 33) \
    X(ACOS, 34) \
    X(ATAN, 35) \
    X(SINH, 36) \
    X(COSH, 37) \
    X(ASINH, 38) \
    X(ACOSH, 39) \
    X(ATANH, 40) \
    X(SAME_TYPE_END, 41)        /* up to here the output has the input's type */ \
    X(NOT, 48)                  /* bool */ \
    X(BITWISE_NOT, 49)          /* integers */ \
    X(ISNAN, 50)                /* float -> bool */ \
    X(ISINF, 51)                /* float -> bool; p0: report -inf, p1: report +inf (0 or 1) */

#endif
