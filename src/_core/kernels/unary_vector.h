/* The unary operations of float32 as functions of a vector: what the kernel `unary` and chains compute. */
#ifndef HETERO_UNARY_VECTOR_H
#define HETERO_UNARY_VECTOR_H

#include "unary.h"
#include "vmath.h"

HT_INLINE vf zero(void) { return vf_set1(0.0f); }
HT_INLINE vf one(void) { return vf_set1(1.0f); }
HT_INLINE vf unit_clip(vf v) { return vf_min(one(), vf_max(zero(), v)); }

/* x (1/2 + c P(c^2) / Q(c^2)), where the fraction is half of erf(c / sqrt(2)): the polynomials of vf_erf with the factors
 * put into their coefficients. Up to the clip of c it has passed 1/2, to which it is cut, so that the tail is zero.
 * Adding 0 makes c a positive zero where v is -0, so that the two terms of the result are -0 there. */
HT_INLINE vf gelu_erf(vf v)
{
    const vf c = vf_min(vf_set1(5.7275649f), vf_max(vf_set1(-5.7275649f), v + zero())), u = c * c;
    vf p = vf_set1(2.26051286e-08f), q = vf_set1(1.18897299e-06f);
    p = vf_fma(p, u, vf_set1(6.29413881e-06f));
    q = vf_fma(q, u, vf_set1(7.27407025e-05f));
    p = vf_fma(p, u, vf_set1(0.000166724711f));
    q = vf_fma(q, u, vf_set1(0.00187290064f));
    p = vf_fma(p, u, vf_set1(0.0046641912f));
    q = vf_fma(q, u, vf_set1(0.028545713f));
    p = vf_fma(p, u, vf_set1(0.0336926121f));
    q = vf_fma(q, u, vf_set1(0.251121223f));
    p = vf_fma(p, u, vf_set1(0.39894226f));
    q = vf_fma(q, u, vf_set1(1.0f));
    const vf half = vf_min(vf_set1(0.5f), vf_max(vf_set1(-0.5f), c * p / q));
    return vf_fma(v, half, v * vf_set1(0.5f));
}

/* x / 2 * (1 + tanh(t)) = x * sigmoid(2 t) */
HT_INLINE vf gelu_tanh(vf v)
{
    const vf t = v * vf_fma(v * v, vf_set1(-2.0f * 0.7978845608f * 0.044715f), vf_set1(-2.0f * 0.7978845608f));
    return v / (one() + vf_exp(t));
}

/* tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(x); from x = 20 on it is 1. */
HT_INLINE vf mish(vf v)
{
    const vf e = vf_exp(vf_min(vf_set1(20.0f), v)), n = e * (e + vf_set1(2.0f));
    return v * (n / (n + vf_set1(2.0f)));
}

HT_INLINE vf sign(vf v)
{
    const vf s = vf_select(vf_lt(zero(), v), one(), vf_select(vf_lt(v, zero()), vf_set1(-1.0f), zero()));
    return vf_select(vf_isnan(v), v, s);
}

HT_INLINE vf shrink(vf v, vf bias, vf lambda)
{
    const vf low = vf_select(vf_lt(v, vf_neg(lambda)), v + bias, zero());
    return vf_select(vf_lt(lambda, v), v - bias, low);
}

/* Lanes too large for the range reduction go through libm, those alone: results do not depend on an element's
 * neighbours. */
HT_INLINE vf sine(vf v, int shift)
{
    vf y = vf_sincos_(v, shift);
    const vm large = vf_lt(vf_set1(VM_SIN_LIMIT), vf_abs(v));
    if (HT_UNLIKELY(vm_any(large))) {
        float in[VF_LANES], out[VF_LANES];
        vf_store(in, v);
        for (int i = 0; i < VF_LANES; i++)
            out[i] = shift ? cosf(in[i]) : sinf(in[i]);
        y = vf_select(large, vf_load(out), y);
    }
    return y;
}

/* X(code less HT_UNARY_, expression of the vector v and the parameters a and b, vectors too). */
#define HT_UNARY_VECTORS(X) \
    X(RELU, vf_max(zero(), v))                                   \
    X(CLIP, vf_min(b, vf_max(a, v)))                             \
    X(LEAKY_RELU, vf_select(vf_lt(v, zero()), v * a, v))         \
    X(ELU, vf_select(vf_lt(v, zero()), a * vf_expm1(v), v))      \
    X(SELU, b * vf_select(vf_lt(v, zero()), a * vf_expm1(v), v)) \
    X(CELU, vf_select(vf_lt(v, zero()), a * vf_expm1(v / a), v)) \
    X(THRESHOLDED_RELU, vf_select(vf_lt(a, v), v, zero()))       \
    X(SIGMOID, vf_sigmoid(v))                                    \
    X(HARD_SIGMOID, unit_clip(vf_fma(a, v, b)))                  \
    X(HARD_SWISH, v * unit_clip(vf_fma(a, v, b)))                \
    X(SWISH, v / (one() + vf_exp(vf_neg(a * v))))                \
    X(TANH, vf_tanh(v))                                          \
    X(GELU_ERF, gelu_erf(v))                                     \
    X(GELU_TANH, gelu_tanh(v))                                   \
    X(SOFTPLUS, vf_softplus(v))                                  \
    X(SOFTSIGN, vf_softsign(v))                                  \
    X(MISH, mish(v))                                             \
    X(ERF, vf_erf(v))                                            \
    X(EXP, vf_exp(v))                                            \
    X(LOG, vf_log(v))                                            \
    X(SQRT, vf_sqrt(v))                                          \
    X(RECIPROCAL, one() / v)                                     \
    X(ABS, vf_abs(v))                                            \
    X(NEG, vf_neg(v))                                            \
    X(FLOOR, vf_floor(v))                                        \
    X(CEIL, vf_ceil(v))                                          \
    X(ROUND, vf_round(v))                                        \
    X(SIGN, sign(v))                                             \
    X(SIN, sine(v, 0))                                           \
    X(COS, sine(v, 1))                                           \
    X(SHRINK, shrink(v, a, b))

#endif
