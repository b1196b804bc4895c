/* The unary operations of float32 as functions of a vector: what the kernel `unary` and chains compute. */
#ifndef HETERO_UNARY_VECTOR_H
#define HETERO_UNARY_VECTOR_H

#include "unary.h"
#include "vmath.h"

HT_INLINE vf zero(void) { return vf_set1(0.0f); }
HT_INLINE vf one(void) { return vf_set1(1.0f); }
HT_INLINE vf unit_clip(vf v) { return vf_min(one(), vf_max(zero(), v)); }

/* x Phi(x). Phi, the normal distribution, is 1/2 + copysign(1/2 - t, x), where the tail t beyond |x| is 1/2 (1 + e)^-8
 * with e = |x| P(|x|): fit 9.5e-9 of Phi(|x|). All coefficients are positive, so that each step to t is monotone and the
 * result rises with x from 0 on, however the steps round. s is (1 + e)^k - 1 for k = 2, 4 and 8. Beyond 5.4 nothing is
 * left of t beside 1/2. The product is subtracted, so that both terms of the result are -0 where x is. */
HT_INLINE vf gelu_erf(vf v)
{
    const vf a = vf_abs(v);
    vf p = vf_set1(1.9109622e-07f) * a;
    p = vf_fma(p, a, vf_set1(1.6842085e-06f));
    p = vf_fma(p, a, vf_set1(3.6056987e-05f));
    p = vf_fma(p, a, vf_set1(2.2956068e-04f));
    p = vf_fma(p, a, vf_set1(8.4837864e-04f));
    p = vf_fma(p, a, vf_set1(8.6745110e-03f));
    p = vf_fma(p, a, vf_set1(4.4762798e-02f));
    p = vf_fma(p, a, vf_set1(9.9735520e-02f));
    const vf e = p * a;
    vf s = vf_fma(e, e, e + e);
    s = vf_fma(s, s, s + s);
    s = vf_fma(s, s, s + s);
    const vf t = vf_set1(0.5f) / (s + one());
    return vf_fnma(a, t - vf_set1(0.5f), v * vf_set1(0.5f));
}

/* x / 2 * (1 + tanh(t)) = x * sigmoid(2 t) */
HT_INLINE vf gelu_tanh(vf v)
{
    const vf t = v * vf_fma(v * v, vf_set1(-2.0f * 0.7978845608f * 0.044715f), vf_set1(-2.0f * 0.7978845608f));
    return v / (one() + vf_exp(t));
}

/* tanh(log(1 + e)) = n / (n + 2) = 1 - 2 / (n + 2) with e = exp(x) and n = e (e + 2): the first for x < 0, where it is
 * small, the second from 0 on, where 2 / (n + 2) falls where x rises. From x = 20 on nothing is left of it. */
HT_INLINE vf mish(vf v)
{
    const vf c = vf_min(vf_set1(20.0f), v), e = vf_exp(c), n = vf_fma(e, e, e + e);
    const vf q = vf_select(vf_lt(v, zero()), n, vf_set1(2.0f)) / (n + vf_set1(2.0f));
    return vf_fnma(vf_abs(c), q, vf_max(zero(), v));
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
